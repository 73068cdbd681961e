/* sweep_math [NAME..] [STEP]: tries the functions of functions.h on all floats, or every STEP-th: prints the largest
 * error of each in units in the last place and where it is, and fails where it is beyond the function's bound, where
 * a sign of 0 is wrong, or where a vector's elements have other bits than the function alone. All floats take one
 * to five minutes of a core for each function. */
#include "functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 4096, PARTS = 1 << 20 };

struct found {
    double error;
    float at;
    int64_t other_bits, other_signs;
};

static void try_part(struct found *found, const struct function *f, uint64_t first, uint64_t step) {
    float x[PART] = {0}, y[PART];
    int n = 0;
    for (uint64_t bits = (first + step - 1) / step * step; bits < first + PART; bits += step)
        x[n++] = rt_f32_of_bits((uint32_t)bits);
    f->loop(y, x, n);
    for (int i = 0; i < n; i++) {
        const float alone = f->got(x[i]);
        const double exact = f->exact((double)x[i]), error = ulps(alone, exact);
        found->other_bits += memcmp(&alone, &y[i], sizeof alone) != 0 && !(isnan(alone) && isnan(y[i]));
        found->other_signs += !isnan(exact) && !signbit(exact) != !signbit(alone);
        if (error > found->error) *found = (struct found){error, x[i], found->other_bits, found->other_signs};
    }
}

static int try_all(const struct function *f, uint64_t step) {
    struct found worst = {0};
#pragma omp parallel
    {
        struct found found = {0};
#pragma omp for schedule(dynamic, 64)
        for (int part = 0; part < PARTS; part++) try_part(&found, f, (uint64_t)part * PART, step);
#pragma omp critical
        {
            found.other_bits += worst.other_bits;
            found.other_signs += worst.other_signs;
            if (found.error < worst.error) found.error = worst.error, found.at = worst.at;
            worst = found;
        }
    }
    const int wrong = worst.error > f->bound || worst.other_bits || worst.other_signs;
    printf("%-9s %.4f ulp at %a; %lld vectors differ, %lld signs%s\n", f->name, worst.error, (double)worst.at,
           (long long)worst.other_bits, (long long)worst.other_signs, wrong ? ": WRONG" : "");
    return wrong;
}

int main(int argc, char **argv) {
    const long step = argc > 1 ? atol(argv[argc - 1]) : 1;
    const int names = argc - 1 - (step > 0 && argc > 1);
    int wrong = 0;
    for (int f = 0; f < NFUNCTIONS; f++) {
        int asked = names <= 0;
        for (int i = 1; i <= names; i++) asked |= strcmp(argv[i], functions[f].name) == 0;
        if (asked) wrong |= try_all(&functions[f], step > 0 ? (uint64_t)step : 1);
    }
    return wrong;
}
