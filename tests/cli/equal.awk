# Text IR of a chain of 1,500 equal products.
BEGIN {
    print "rankc-ir 1\ngraph \"equal\" level=IMPORTED\ninput %0 \"x\" f32[2,2]\nconst %1 \"w\" f32[2,2] = [1*4]"
    for (i = 2; i < 1502; i++)
        printf "%%%d \"v%d\" = MatMul(%%%d, %%1)\n", i, i, i == 2 ? 0 : i - 1
    print "output %1501 \"y\""
}
