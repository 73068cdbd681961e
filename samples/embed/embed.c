/* A C program that runs a compiled samples/models/gpt2.onnx, with any number of ranks. Each rank is a thread.
 *
 *     embed DIR TOKENS.npy [EXPECTED.npy]
 *
 * DIR is the output directory of `rankc compile`. Prints the first logits. With EXPECTED it compares all logits with
 * that file, and exits with 1 if they differ by more than rounding errors. */
#include <stdio.h>

#include <rankc/base/npy.h>

#include "model.h"

static float logits[gpt2_COUNT_logits];

/* What each rank does: all pass the complete input; only rank 0 asks for the output. */
static int run_rank(struct rt *rt, void *tokens) {
    const struct gpt2_tensors tensors = {.input_ids = tokens, .logits = rt_rank(rt) == 0 ? logits : NULL};
    return gpt2_infer(rt, &tensors);
}

/* Reads a file with elements of that type and of that number. */
static int read_tensor(struct rt_tensor *tensor, const char *path, enum rt_dtype dtype, int64_t count) {
    struct rt_reason why = {.text = "other type or shape than the model's"};
    if (rt_npy_read(tensor, path, &why) && tensor->dtype == dtype && tensor->count == count) return 0;
    fprintf(stderr, "embed: %s: %s\n", path, why.text);
    return 1;
}

static int compare(const float *expected) {
    float most = 0, largest = 0;
    for (int64_t i = 0; i < gpt2_COUNT_logits; i++) {
        float difference = logits[i] > expected[i] ? logits[i] - expected[i] : expected[i] - logits[i];
        float size = expected[i] < 0 ? -expected[i] : expected[i];
        if (!(difference <= most)) most = difference;
        if (size > largest) largest = size;
    }
    printf("largest difference %.2g of %d logits up to %.3g\n", most, gpt2_COUNT_logits, largest);
    return !(most <= 1e-5f * largest);
}

int main(int argc, char **argv) {
    struct rt_tensor tokens = {0}, expected = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: embed DIR TOKENS.npy [EXPECTED.npy]\n");
        return 2;
    }
    if (read_tensor(&tokens, argv[2], RT_I64, gpt2_COUNT_input_ids)) return 1;
    int failed = gpt2_run_threads(argv[1], 0, run_rank, tokens.data) != RT_OK;
    if (failed)
        fprintf(stderr, "embed: %s\n", rt_error(NULL));
    else
        printf("%d ranks: %g %g %g ...\n", rt_program_ranks(&gpt2_program), logits[0], logits[1], logits[2]);
    if (!failed && argc > 3)
        failed = read_tensor(&expected, argv[3], RT_F32, gpt2_COUNT_logits) || compare(expected.data);
    rt_tensor_free(&tokens);
    rt_tensor_free(&expected);
    return failed;
}
