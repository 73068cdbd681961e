// A C++ program that runs a compiled samples/models/gpt2.onnx, with any number of ranks. Each rank is a thread.
//
//     embed-cc DIR TOKENS.npy
//
// DIR is the output directory of `rankc compile`. Prints the first logits.
#include <cstdio>
#include <vector>

#include <rankc/base/npy.h>

#include "model.h"

namespace {

struct Job {
    const int64_t *tokens;
    std::vector<float> logits;
};

// What each rank does: all pass the complete input; only rank 0 asks for the output. Exceptions must not leave it.
int run_rank(rt *rank, void *context) {
    Job *job = static_cast<Job *>(context);
    gpt2_tensors tensors{};
    tensors.input_ids = job->tokens;
    if (rt_rank(rank) == 0) tensors.logits = job->logits.data();
    return gpt2_infer(rank, &tensors);
}

} // namespace

int main(int argc, char **argv) {
    rt_tensor tokens{};
    rt_reason why{};
    if (argc < 3 || !rt_npy_read(&tokens, argv[2], &why)) {
        std::fprintf(stderr, "usage: embed-cc DIR TOKENS.npy %s\n", why.text);
        return 2;
    }
    int failed = tokens.dtype != RT_I64 || tokens.count != gpt2_COUNT_input_ids;
    if (failed) std::fprintf(stderr, "embed-cc: %s has another type or shape than input_ids\n", argv[2]);
    Job job{static_cast<const int64_t *>(tokens.data), std::vector<float>(gpt2_COUNT_logits)};
    if (!failed && (failed = gpt2_run_threads(argv[1], 0, run_rank, &job)))
        std::fprintf(stderr, "embed-cc: %s\n", rt_error(nullptr));
    if (!failed)
        std::printf("%d ranks: %g %g %g ...\n", rt_program_ranks(&gpt2_program), job.logits[0], job.logits[1], job.logits[2]);
    rt_tensor_free(&tokens);
    return failed != 0;
}
