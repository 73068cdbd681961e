/* A program on the caller's NCCL communicator and stream: callers DIR TOKENS PLACE, with RANK and WORLD_SIZE in the
 * environment. Runs the model twice, one program after the other, then sums on its own communicator. Prints
 * "rank R: LOGIT" and ends with 0 if all is as expected. Files that begin with PLACE are made. */
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

extern "C" {
#include <rankc/base/npy.h>
}

#include "model.h"

static int rank_here, world, bad;
static std::string place;
static cudaStream_t stream;
static ncclComm_t comm;

static void expect(bool holds, const char *what) {
    if (!holds) fprintf(stderr, "callers: not so: %s: %s\n", what, rt_error(NULL));
    if (!holds) bad = 1;
}

static void settle(ncclResult_t result) {
    while (result == ncclInProgress && ncclCommGetAsyncError(comm, &result) == ncclSuccess && result == ncclInProgress)
        usleep(100);
    if (result == ncclSuccess) return;
    fprintf(stderr, "callers: %s\n", ncclGetErrorString(result));
    exit(1);
}

/* Rank 0 writes the identity that all ranks read. */
static ncclUniqueId meet() {
    ncclUniqueId id;
    const std::string path = place + ".id", made = path + ".new";
    if (rank_here == 0) {
        ncclGetUniqueId(&id);
        FILE *file = fopen(made.c_str(), "wb");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(made.c_str(), path.c_str()))
            exit(1);
        return id;
    }
    FILE *file;
    while (!(file = fopen(path.c_str(), "rb"))) usleep(1000);
    if (fread(&id, sizeof id, 1, file) != 1) exit(1);
    fclose(file);
    return id;
}

static int open_model(struct rt **rt, const char *directory, int number, cudaStream_t *on) {
    static int opened;
    const std::string rendezvous = "file:" + place + std::to_string(opened++);
    struct rt_options options = {};
    options.directory = directory;
    options.nccl_comm = &comm;
    options.cuda_stream = on;
    options.rank = number;
    options.world = world;
    options.rendezvous = rendezvous.c_str();
    *rt = NULL;
    return model_open(rt, &options);
}

static void run(const char *directory, const struct rt_tensor *tokens, std::vector<float> &logits) {
    struct rt *rt;
    const void *inputs[] = {tokens->data};
    void *outputs[] = {logits.data()};
    expect(open_model(&rt, directory, rank_here, &stream) == RT_OK, "the model opens");
    for (int i = 0; i < 2 && rt; i++) expect(model_infer_step(rt, inputs, outputs) == RT_OK, "a step");
    if (rt) model_close(rt);
}

static void refuse(const char *directory) {
    struct rt *rt;
    cudaStream_t legacy = cudaStreamLegacy;
    expect(open_model(&rt, directory, world - 1 - rank_here, &stream) == RT_ERROR_USAGE &&
               strstr(rt_error(NULL), "of the caller's NCCL"),
           "other numbers than the communicator's");
    expect(open_model(&rt, directory, rank_here, &legacy) == RT_ERROR_USAGE &&
               strstr(rt_error(NULL), "cannot be captured"),
           "the legacy stream");
}

/* The communicator and the stream are whole. */
static void sum() {
    float *one, got = 0;
    const float mine = (float)rank_here + 1;
    cudaMalloc((void **)&one, sizeof *one);
    cudaMemcpyAsync(one, &mine, sizeof mine, cudaMemcpyHostToDevice, stream);
    settle(ncclAllReduce(one, one, 1, ncclFloat32, ncclSum, comm, stream));
    cudaMemcpyAsync(&got, one, sizeof got, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    expect(got == (float)(world * (world + 1)) / 2, "a sum of the caller's");
    cudaFree(one);
}

int main(int argc, char **argv) {
    struct rt_tensor tokens;
    struct rt_reason why;
    std::vector<float> logits(1 << 20);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (argc < 4 || !rt_npy_read(&tokens, argv[2], &why)) return 2;
    rank_here = atoi(getenv("RANK"));
    world = atoi(getenv("WORLD_SIZE"));
    place = argv[3];
    config.blocking = 0;
    cudaSetDevice(rank_here);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    settle(ncclCommInitRankConfig(&comm, world, meet(), rank_here, &config));
    run(argv[1], &tokens, logits);
    run(argv[1], &tokens, logits);
    refuse(argv[1]);
    sum();
    settle(ncclCommFinalize(comm));
    ncclCommDestroy(comm);
    cudaStreamDestroy(stream);
    printf("rank %d: %.9g\n", rank_here, (double)logits[0]);
    rt_tensor_free(&tokens);
    return bad;
}
