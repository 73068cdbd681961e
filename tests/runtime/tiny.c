#define _GNU_SOURCE 1

#include "tiny.h"

#include "base/io/file.h"
#include "base/number/half.h"
#include "base/number/hash.h"
#include "base/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define V_OFFSET   (8 + TINY_K * TINY_N * 8 + 1)
#define FILE_BYTES (V_OFFSET + TINY_N * TINY_P * 2)

enum { X_AT = 0, Y_AT = 64, Z_AT = 192, IDS_AT = 256, FIRST_AT = 320, PART_AT = 384, SCRATCH_AT = 448 };
enum { W_AT = 0, V_AT = 256 };

const float tiny_x[TINY_M * TINY_K] = {1, -2, .5f, 3, 1e-3f, 7, 0, 4, -1, .25f, 1e3f, 2};

static double w_at(int k, int n) {
    return (k + 1) * 0.125 - n * 0.75;
}
static float v_at(int n, int p) {
    return (float)(n - p) * 0.5f;
}

/* The step of every rank: parts differ, the code does not. */
static int tiny_step(struct rt *rt) {
    float *x = (float *)(void *)(rt->arena[RT_ACTIVATIONS] + X_AT);
    float *y = (float *)(void *)(rt->arena[RT_COMMUNICATION] + Y_AT);
    float *z = (float *)(void *)(rt->arena[RT_COMMUNICATION] + Z_AT);
    float *part = (float *)(void *)(rt->arena[RT_COMMUNICATION] + PART_AT);
    const int64_t *ids = (const int64_t *)(void *)(rt->arena[RT_ACTIVATIONS] + IDS_AT);
    const float *w = (const float *)(void *)(rt->arena[RT_WEIGHTS] + W_AT);
    const float *v = (const float *)(void *)(rt->arena[RT_WEIGHTS] + V_AT);
    const int instruction = 0;
    const struct rt_cut cut = {TINY_N, 1, 1, rt->program->mesh.axis[0].size};
    const int64_t first = rt_part_start(rt, 0, TINY_N, 1, 1), columns = rt_cut_length(&cut, rt->coordinate[0]);

    if (ids[0] > 9 && ids[1] == rt->rank) return rt_fail(rt, RT_ERROR_INPUT, "index %d is out of range", (int)ids[0]);
    for (int m = 0; m < TINY_M; m++)
        for (int64_t n = 0; n < columns; n++) {
            float sum = 0;
            for (int k = 0; k < TINY_K; k++) sum += x[m * TINY_K + k] * w[k * columns + n];
            part[m * columns + n] = sum;
        }
    RT_TRY_AT(
        1, rt_all_gather(rt, 0, y, part, rt->arena[RT_COMMUNICATION] + SCRATCH_AT, RT_F32, TINY_M, TINY_N, 1, 1, 1, 0));
    tiny_misbehave(rt->rank, rt->step, rt);
    for (int m = 0; m < TINY_M; m++)
        for (int p = 0; p < TINY_P; p++) {
            float sum = 0;
            for (int64_t n = 0; n < columns; n++) sum += y[m * TINY_N + first + n] * v[n * TINY_P + p];
            z[m * TINY_P + p] = sum;
        }
    RT_TRY_AT(2, rt_all_reduce(rt, 0, z, z, RT_F32, TINY_M * TINY_P, RT_SUM, 0));
    memcpy(rt->arena[RT_ACTIVATIONS] + FIRST_AT, ids, 8);
    return RT_OK;
}

void tiny_expect(float y[TINY_M * TINY_N], float z[TINY_M * TINY_P], int shards) {
    for (int m = 0; m < TINY_M; m++)
        for (int n = 0; n < TINY_N; n++) {
            y[m * TINY_N + n] = 0;
            for (int k = 0; k < TINY_K; k++) y[m * TINY_N + n] += tiny_x[m * TINY_K + k] * (float)w_at(k, n);
        }
    for (int i = 0; i < TINY_M * TINY_P; i++) {
        const int m = i / TINY_P, p = i % TINY_P;
        for (int s = 0; s < shards; s++) {
            const struct rt_cut cut = {TINY_N, 1, 1, shards};
            float sum = 0;
            for (int64_t n = rt_cut_start(&cut, s); n < rt_cut_start(&cut, s + 1); n++)
                sum += y[m * TINY_N + n] * v_at((int)n, p);
            z[i] = s == 0 ? sum : z[i] + sum;
        }
    }
}

static const struct rt_port inputs[] = {{RT_F32, 2, {TINY_M, TINY_K}}, {RT_I64, 1, {3}}};
static const struct rt_port outputs[] = {
    {RT_F32, 2, {TINY_M, TINY_N}}, {RT_F32, 2, {TINY_M, TINY_P}}, {RT_I64, 0, {0}}};
static const struct rt_weight weights[] = {
    {0, 8, RT_F64, RT_F32, 2, {TINY_K, TINY_N}, 1, {{1, 0, 1, 1}}},
    {0, V_OFFSET, RT_F16, RT_F32, 2, {TINY_N, TINY_P}, 1, {{0, 0, 1, 1}}},
};
static const struct rt_place input_places[] = {{RT_ACTIVATIONS, X_AT}, {RT_ACTIVATIONS, IDS_AT}};
static const struct rt_place output_places[] = {
    {RT_COMMUNICATION, Y_AT}, {RT_COMMUNICATION, Z_AT}, {RT_ACTIVATIONS, FIRST_AT}};
static const size_t weight_offsets[] = {W_AT, V_AT};
static const struct rt_segment segments[] = {{.phase = PHASE_FORWARD, .run = tiny_step}};
static int run_step(struct rt *rt, int micro_batches) {
    (void)micro_batches;
    return rt_run(rt, 0, 0);
}
static const struct rt_rank_class the_class = {
    .bytes = {[RT_WEIGHTS] = 512, [RT_ACTIVATIONS] = 512, [RT_COMMUNICATION] = 512},
    .inputs = input_places,
    .outputs = output_places,
    .weights = weight_offsets,
    .segments = segments,
    .schedule = {.micro_batches = 1, .nchunks = 1, .slots = {1}},
    .step = run_step,
};

void tiny_program(struct rt_program *program, int shards) {
    static const int class_of_shard[256];
    *program = (struct rt_program){.format = RT_FORMAT,
                                   .name = "tiny",
                                   .key = "tiny-1",
                                   .plan_ngpus = shards,
                                   .mesh = {1, -1, {{shards}}},
                                   .ninputs = 2,
                                   .noutputs = 3,
                                   .nweights = 2,
                                   .nclasses = 1,
                                   .inputs = inputs,
                                   .outputs = outputs,
                                   .weights = weights,
                                   .classes = &the_class,
                                   .class_of_shard = class_of_shard,
                                   .device = &rt_host};
}

static void put_text(const char *directory, const char *name, const char *text, size_t bytes) {
    char path[512];
    struct rt_reason why;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (rt_file_write(path, &(struct rt_piece){text, bytes}, 1, &why)) return;
    fprintf(stderr, "%s\n", why.text);
    abort();
}

static const char manifest[] = "{\"format\": 3,\n"
                               " \"keys\": {\"plan\": {\"key\": \"tiny-1\"}},\n"
                               " \"inputs\": [{\"name\": \"x\", \"dtype\": \"f32\", \"shape\": [2, 6]},\n"
                               "            {\"name\": \"ids\", \"dtype\": \"i64\", \"shape\": [3]}],\n"
                               " \"outputs\": [{\"name\": \"y\", \"dtype\": \"f32\", \"shape\": [2, 5]},\n"
                               "             {\"name\": \"a/z\", \"dtype\": \"f32\", \"shape\": [2, 4]},\n"
                               "             {\"name\": \"a.z\", \"dtype\": \"i64\", \"shape\": []}],\n"
                               " \"instructions\": [{\"node\": \"first\", \"op\": \"MatMul\"},\n"
                               "                  {\"node\": \"second\", \"op\": \"AllGather\"},\n"
                               "                  {\"node\": \"third\", \"op\": \"AllReduce\"}]";

/* With its seal (base/sealed.h). */
static void put_manifest(const char *directory) {
    char hash[RT_HASH_HEX], text[sizeof manifest + 64];
    rt_hash_bytes(manifest, strlen(manifest), hash);
    snprintf(text, sizeof text, "%s,\n  \"hash_above\": \"%s\"\n}\n", manifest, hash);
    put_text(directory, "manifest.json", text, strlen(text));
}

void tiny_write(const char *directory) {
    unsigned char file[FILE_BYTES] = {0};
    char hash[RT_HASH_HEX], path[512], location[512];
    struct stat status;
    for (int i = 0; i < TINY_K * TINY_N; i++) {
        double value = w_at(i / TINY_N, i % TINY_N);
        memcpy(file + 8 + i * 8, &value, 8);
    }
    for (int i = 0; i < TINY_N * TINY_P; i++) {
        uint16_t value = rt_f32_to_f16(v_at(i / TINY_P, i % TINY_P));
        memcpy(file + V_OFFSET + i * 2, &value, 2);
    }
    put_text(directory, "weights.bin", (const char *)file, sizeof file);
    put_manifest(directory);
    rt_hash_bytes(file, sizeof file, hash);
    snprintf(path, sizeof path, "%s/weights.bin", directory);
    if (stat(path, &status) != 0) abort();
    snprintf(location, sizeof location,
             "{\"format\":1,\"files\":[{\"path\":\"weights.bin\",\"bytes\":%d,\"mtime_ns\":%lld,\"hash\":\"%s\"}]}",
             FILE_BYTES, (long long)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec, hash);
    put_text(directory, "location.json", location, strlen(location));
}
