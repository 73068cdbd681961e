/* Runs both programs (part.c) on the x of a file of f32. */
#include <stdio.h>

int first(const float *x), second(const float *x);

int main(int argc, char **argv) {
    static float x[1 << 16];
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(x, 1, sizeof x, file) == 0) return 2;
    fclose(file);
    const int failed = first(x) != 0;
    return second(x) ? 1 : failed;
}
