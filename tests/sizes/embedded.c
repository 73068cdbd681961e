/* Calls samples/models/llama_any.onnx with one size after the other on two ranks, each a thread: embedded DIR
 *
 * Prints the sum of the logits for each pair of sizes, and the errors of sizes that the program was not compiled for
 * and of ranks that differ. */
#include "model.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 4, SEQ = 64, VOCABULARY = 100 };

static double sum_of(const float *logits, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += logits[i];
    return sum;
}

static int run(struct rt *rt, void *context) {
    static const struct llama_any_sizes all[] = {{1, 1}, {4, 64}, {3, 17}, {1, 2}, {2, 5}};
    static int64_t ids[BATCH * SEQ];
    static float logits[2][BATCH * SEQ * VOCABULARY];
    const int rank = rt_rank(rt);
    float *own = logits[rank];
    int64_t dims[RT_MAX_NDIM];
    (void)context;
    for (int i = 0; i < BATCH * SEQ && !rank; i++) ids[i] = i * 7 % VOCABULARY;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct llama_any_tensors tensors = {.sizes = all[i], .input_ids = ids, .logits = own};
        const int status = llama_any_infer(rt, &tensors);
        if (status) return status;
        rt_port_extents(rt, rt_program_output(&llama_any_program, llama_any_OUTPUT_logits), dims);
        if (!rank)
            printf("%lld x %lld: %.4f in %lld x %lld x %lld\n", (long long)all[i].batch, (long long)all[i].seq,
                   sum_of(own, dims[0] * dims[1] * dims[2]), (long long)dims[0], (long long)dims[1],
                   (long long)dims[2]);
    }
    const struct llama_any_sizes beyond = {2, 65}, differing = {2, rank ? 7 : 9};
    if (!llama_any_set_sizes(rt, &beyond) || !strstr(rt_error(rt), "seq is 65")) return 1;
    const struct llama_any_tensors tensors = {.sizes = differing, .input_ids = ids, .logits = own};
    if (!llama_any_infer(rt, &tensors)) return 1;
    fprintf(stderr, "%s\n", rt_error(rt));
    return RT_OK;
}

int main(int argc, char **argv) {
    const int status = argc > 1 ? llama_any_run_threads(argv[1], 2, run, NULL) : 1;
    if (status) fprintf(stderr, "%s\n", rt_error(NULL));
    return status;
}
