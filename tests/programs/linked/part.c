/* One of two programs that are linked into one: `int RUN(const float *x)` runs the program of DIRECTORY, whose
 * functions are called PREFIX_.., and prints its output or what failed. */
#include <stdio.h>

#include "model.h"

#define PASTE(A, B) A##B
#define NAME(A, B)  PASTE(A, B)
#define MODEL(WHAT) NAME(PREFIX, WHAT)
#define TEXT_OF(A)  #A
#define TEXT(A)     TEXT_OF(A)

int RUN(const float *x);

static int infer(struct rt *rt, void *context) {
    float y[MODEL(_COUNT_y)];
    const struct MODEL(_tensors) tensors = {.x = context, .y = y};
    RT_TRY(MODEL(_infer)(rt, &tensors));
    for (int i = 0; rt_rank(rt) == 0 && i < MODEL(_COUNT_y); i++) printf("%.9g ", y[i]);
    return RT_OK;
}

int RUN(const float *x) {
    const int status = MODEL(_run_threads)(TEXT(DIRECTORY), 0, infer, (void *)x);
    if (status) printf("status %d: %s", status, rt_error(NULL));
    printf("\n");
    return status;
}
