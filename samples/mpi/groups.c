/* An MPI program that runs a compiled samples/models/gpt2.onnx on communicators of its own: its processes are divided
 * into groups of as many as the plan has ranks, and each group runs the model by itself.
 *
 *     mpirun -n 4 groups DIR TOKENS.npy
 *
 * DIR is the output directory of `rankc compile`. Rank 0 of each group prints the first logits. */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>
#include <rankc/base/npy.h>

#include "model.h"

/* Collective over `group`. A failed call ends the waits of the group's other ranks; the caller's MPI goes on. */
static int run_model(MPI_Comm group, const char *directory, const struct rt_tensor *tokens, float *logits) {
    const struct rt_options options = {.directory = directory, .mpi_comm = &group, .threads = 1};
    const struct gpt2_tensors tensors = {.input_ids = tokens->data, .logits = logits};
    struct rt *rt = NULL;
    int status = gpt2_open(&rt, &options);
    if (!status) status = gpt2_infer(rt, &tensors);
    if (status) fprintf(stderr, "groups: %s\n", rt_error(rt));
    if (rt) gpt2_close(rt);
    return status;
}

int main(int argc, char **argv) {
    struct rt_tensor tokens = {0};
    struct rt_reason why = {.text = "other type or shape than the model's"};
    int provided, rank, group_rank;
    MPI_Comm group;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided); /* a rank's kernels may use several threads */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *logits = calloc(gpt2_COUNT_logits, sizeof *logits);
    int failed = argc != 3 || !logits || !rt_npy_read(&tokens, argv[2], &why) || tokens.dtype != RT_I64 ||
                 tokens.count != gpt2_COUNT_input_ids;
    if (failed) {
        fprintf(stderr, "usage: mpirun -n RANKS groups DIR TOKENS.npy (%s)\n", why.text);
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    const int number = rank / rt_program_ranks(&gpt2_program);
    MPI_Comm_split(MPI_COMM_WORLD, number, rank, &group);
    MPI_Comm_rank(group, &group_rank);
    failed = run_model(group, argv[1], &tokens, logits);
    if (!failed && group_rank == 0) printf("group %d: %g %g %g ...\n", number, logits[0], logits[1], logits[2]);
    MPI_Comm_free(&group);
    rt_tensor_free(&tokens);
    free(logits);
    MPI_Finalize();
    return failed != 0;
}
