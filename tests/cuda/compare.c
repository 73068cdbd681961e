/* Compares two .npy files:
 *
 *     compare GOT EXPECTED RTOL ATOL
 *
 * Types and shapes must agree, and every float be within RTOL of the largest expected one, plus ATOL; NaN where NaN, and
 * infinities and all other types equal. Prints what differs most; exit status 1 if that is too much. */
#include <rankc/base/npy.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_tensor(struct rt_tensor *tensor, const char *path) {
    struct rt_reason why;
    if (rt_npy_read(tensor, path, &why)) return;
    fprintf(stderr, "%s: %s\n", path, why.text);
    exit(1);
}

static double *doubles_of(const struct rt_tensor *tensor) {
    double *values = malloc(((size_t)tensor->count + 1) * sizeof *values);
    if (!values) exit(1);
    rt_convert(values, RT_F64, tensor->data, tensor->dtype, (size_t)tensor->count);
    return values;
}

static double largest_of(const double *values, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i]) && fabs(values[i]) > largest) largest = fabs(values[i]);
    return largest;
}

static double distance_of(double a, double b) {
    if (a == b || (isnan(a) && isnan(b))) return 0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : INFINITY;
}

int main(int argc, char **argv) {
    struct rt_tensor got, expected;
    double worst = 0;
    int64_t at = 0;
    if (argc != 5) return 2;
    read_tensor(&got, argv[1]);
    read_tensor(&expected, argv[2]);
    if (got.dtype != expected.dtype || got.ndim != expected.ndim ||
        memcmp(got.dims, expected.dims, (size_t)got.ndim * sizeof *got.dims) != 0) {
        fprintf(stderr, "%s has another type or shape than %s\n", argv[1], argv[2]);
        return 1;
    }
    const double *a = doubles_of(&got), *b = doubles_of(&expected);
    const double bound =
        rt_dtype_is_float(got.dtype) ? atof(argv[3]) * largest_of(b, expected.count) + atof(argv[4]) : 0;
    for (int64_t i = 0; i < got.count; i++)
        if (distance_of(a[i], b[i]) > worst) worst = distance_of(a[i], b[i]), at = i;
    if (worst <= bound) return 0;
    fprintf(stderr, "%s: element %lld is %g, expected %g, bound %g\n", argv[1], (long long)at, a[at], b[at], bound);
    return 1;
}
