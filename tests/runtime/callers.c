/* A program on the caller's communicators: callers DIR TOKENS, on twice as many processes as the plan has ranks. Each
 * half of them runs the model twice, one program after the other and both at once; then a rank of the second half
 * fails, and the processes go on. Prints "half H: LOGIT" and ends with 0 if all is as expected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>
#include <rankc/base/npy.h>

#include "model.h"

enum { LOGITS = 1 << 20 };
static float logits[2][LOGITS];
static struct rt_tensor tokens;
static const char *directory;
static int bad;

static void expect(int holds, const char *what) {
    if (!holds) fprintf(stderr, "callers: not so: %s\n", what);
    if (!holds) bad = 1;
}

static int open_model(struct rt **rt, const MPI_Comm *comm, int threads) {
    const struct rt_options options = {.directory = directory, .mpi_comm = comm, .threads = threads};
    *rt = NULL;
    return model_open(rt, &options);
}

static int step(struct rt *rt, float *out) {
    return model_infer_step(rt, (const void *const[]){tokens.data}, (void *const[]){out});
}

static void run_twice(MPI_Comm comm) {
    struct rt *one, *two;
    expect(open_model(&one, &comm, 1) == RT_OK && step(one, logits[0]) == RT_OK, "a first program runs");
    model_close(one);
    expect(open_model(&one, &comm, 1) == RT_OK && open_model(&two, &comm, 1) == RT_OK, "two programs are open");
    memset(logits[1], 0, sizeof logits[1]);
    expect(step(one, logits[1]) == RT_OK && step(two, logits[1]) == RT_OK, "both run");
    expect(memcmp(logits[0], logits[1], sizeof logits[0]) == 0, "all give the same");
    model_close(one);
    model_close(two);
}

static void refuse(MPI_Comm comm) {
    struct rt *rt;
    MPI_Comm none = MPI_COMM_NULL;
    int level;
    MPI_Query_thread(&level);
    expect(open_model(&rt, &none, 1) == RT_ERROR_USAGE && strstr(rt_error(NULL), "MPI_COMM_NULL"), "no communicator");
    const int status = open_model(&rt, &comm, 3);
    if (level == MPI_THREAD_SINGLE)
        expect(status == RT_ERROR_USAGE && strstr(rt_error(NULL), "MPI_THREAD_FUNNELED"), "threads need a level");
    else
        expect(status == RT_OK, "threads are allowed");
    if (!status) model_close(rt);
}

/* Rank 0 gives up between two steps; the others are told, and MPI is intact. */
static void fail_and_go_on(MPI_Comm comm) {
    struct rt *rt;
    int rank;
    MPI_Comm_rank(comm, &rank);
    expect(open_model(&rt, &comm, 1) == RT_OK, "it opens before the failure");
    MPI_Barrier(comm); /* or rank 0 fails while another one opens */
    if (rank == 0)
        rt_abort(rt);
    else
        expect(step(rt, logits[1]) == RT_ERROR_PEER, "the others are told");
    model_close(rt);
    MPI_Barrier(comm);
    run_twice(comm);
}

int main(int argc, char **argv) {
    struct rt_reason why;
    int rank, size, here, finalized, level = argc > 3 ? MPI_THREAD_SINGLE : MPI_THREAD_FUNNELED;
    MPI_Comm half;
    MPI_Init_thread(&argc, &argv, level, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    directory = argv[1];
    if (!rt_npy_read(&tokens, argv[2], &why)) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_split(MPI_COMM_WORLD, rank / (size / 2), -rank, &half); /* ranks in the opposite order */
    run_twice(half);
    refuse(half);
    if (rank / (size / 2) == 1)
        fail_and_go_on(half);
    else
        run_twice(half);
    MPI_Comm_rank(half, &here);
    if (here == 0) printf("half %d: %.9g\n", rank / (size / 2), logits[0][0]);
    MPI_Comm_free(&half);
    MPI_Finalized(&finalized);
    expect(!finalized, "MPI is the caller's to finalise");
    MPI_Finalize();
    rt_tensor_free(&tokens);
    return bad;
}
