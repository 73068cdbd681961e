#include <stdio.h>

#include "model.h"

static const int64_t tokens[gpt2_COUNT_input_ids] = {10, 20, 30}; /* and zeros */
static float logits[gpt2_COUNT_logits];

static int run(struct rt *rt, void *context) {
    (void)context;
    return gpt2_infer(rt, &(struct gpt2_tensors){.input_ids = tokens, .logits = rt_rank(rt) == 0 ? logits : NULL});
}

int main(void) {
    if (gpt2_run_threads(".rankc/gpt2/_", 0, run, NULL)) {
        fprintf(stderr, "%s\n", rt_error(NULL));
        return 1;
    }
    printf("%.5f %.5f %.5f\n", logits[0], logits[1], logits[2]);
    return 0;
}
