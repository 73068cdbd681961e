/* A whole program, written by hand (tiny.h): opening, weights, a step, and what must fail. */
#define _GNU_SOURCE 1

#include "ranks.h"
#include "tiny.h"

#include "base/io/file.h"
#include "base/io/location.h"
#include "base/shape/panel.h"
#include "../test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/rankc-rt-XXXXXX";

static void in_directory(char *path, size_t room, const char *name) {
    snprintf(path, room, "%s/%s", directory, name);
}

struct run {
    int shards, units;
    int64_t ids[3];
};

/* Three steps; outputs are compared on every rank. */
static int step_case(struct rank_context *context) {
    const struct run *run = context->argument;
    struct rt_program program;
    struct rt *rt;
    float y[TINY_M * TINY_N], z[TINY_M * TINY_P], expected_y[TINY_M * TINY_N], expected_z[TINY_M * TINY_P];
    int64_t first = 0;
    tiny_program(&program, run->shards);
    tiny_expect(expected_y, expected_z, run->shards);
    const struct rt_options options = {.directory = directory, .joined = context->comm, .threads = 1};
    CHECK(rt_open(&rt, &program, &options) == RT_OK, "%s", rt_error(NULL));
    CHECK(rt->unit == context->comm->rank / run->shards && rt->coordinate[0] == context->comm->rank % run->shards);
    CHECK(rt->axis[0]->size == run->shards && rt->axis[0]->rank == rt->shard);
    for (int step = 1; step <= 3; step++) {
        CHECK(rt_infer_step(rt, (const void *[]){tiny_x, run->ids}, (void *[]){y, z, &first}) == RT_OK, "%s",
              rt_error(rt));
        CHECK(memcmp(y, expected_y, sizeof y) == 0 && memcmp(z, expected_z, sizeof z) == 0, "step %d", step);
        CHECK(first == run->ids[0] && rt->step == step && rt->instruction == -1);
    }
    CHECK(rt_infer_step(rt, (const void *[]){tiny_x, run->ids}, (void *[]){NULL, NULL, NULL}) == RT_OK);
    rt_close(rt);
    return 0;
}

TEST(steps_give_what_plain_loops_give) {
    for (int transport = SELF; transport < TRANSPORTS; transport++)
        for (int shards = 1; shards <= 6; shards++) /* six: one rank has no column */
            for (int units = 1; units <= 2; units++) {
                const struct run run = {shards, units, {5, 0, 0}};
                if (transport == SELF && shards * units > 1) continue;
                assert_int_equal(run_ranks((enum transport)transport, shards * units, 512, step_case, &run), 0);
            }
}

/* A segment too small for the program: its communicated tensors are staged instead. */
TEST(steps_work_without_symmetric_memory) {
    const struct run run = {3, 1, {5, 0, 0}};
    assert_int_equal(run_ranks(LOOPBACK, 3, 0, step_case, &run), 0);
}

/* One rank meets bad data: it says what, the others that another one failed; nobody waits for ever. */
static int failing_step_case(struct rank_context *context) {
    const struct run *run = context->argument;
    struct rt_program program;
    struct rt *rt;
    tiny_program(&program, run->shards);
    const struct rt_options options = {.directory = directory, .joined = context->comm, .threads = 1};
    CHECK(rt_open(&rt, &program, &options) == RT_OK, "%s", rt_error(NULL));
    int status = rt_infer_step(rt, (const void *[]){tiny_x, run->ids}, (void *[]){NULL, NULL, NULL});
    if (context->comm->rank == run->ids[1])
        CHECK(status == RT_ERROR_INPUT && strcmp(rt_error(rt), "index 12 is out of range") == 0, "%s", rt_error(rt));
    else
        CHECK(status == RT_ERROR_PEER && strcmp(rt_error(rt), "another rank failed") == 0, "%s", rt_error(rt));
    rt_close(rt);
    return 0;
}

TEST(a_failing_rank_fails_the_step_everywhere) {
    for (int rank = 0; rank < 3; rank++) {
        const struct run run = {3, 1, {12, rank, 0}};
        assert_int_equal(run_ranks(LOOPBACK, 3, 512, failing_step_case, &run), 0);
    }
}

/* Ranks as threads of the caller: rt_run_threads */

struct threads_job {
    int shards, failing,
        own; /* the rank that gets a bad index, and the one that returns a status of its own; -1: none */
    int calls[6];
};

static int thread_case(struct rt *rt, void *context) {
    struct threads_job *job = context;
    const int rank = rt_rank(rt);
    const int64_t ids[3] = {rank == job->failing ? 12 : 5, rank == job->failing ? rank : 0, 0};
    float y[TINY_M * TINY_N], z[TINY_M * TINY_P], expected_y[TINY_M * TINY_N], expected_z[TINY_M * TINY_P];
    int64_t first = 0;
    tiny_expect(expected_y, expected_z, job->shards);
    job->calls[rank]++;
    if (rank == job->own) return 42;
    RT_TRY(rt_infer_step(rt, (const void *[]){tiny_x, ids}, (void *[]){y, z, &first}));
    const bool right = memcmp(y, expected_y, sizeof y) == 0 && memcmp(z, expected_z, sizeof z) == 0;
    return right ? RT_OK : RT_ERROR_INPUT;
}

static int run_threads(struct threads_job *job, int shards, int world) {
    struct rt_program program;
    tiny_program(&program, shards);
    job->shards = shards;
    return rt_run_threads(&program, &(struct rt_options){.directory = directory, .world = world, .threads = 1},
                          thread_case, job);
}

TEST(ranks_run_as_threads_of_the_caller) {
    for (int shards = 1; shards <= 3; shards++)
        for (int units = 0; units <= 2; units++) {
            struct threads_job job = {.failing = -1, .own = -1};
            assert_int_equal(run_threads(&job, shards, shards * units), RT_OK);
            for (int r = 0; r < 6; r++) assert_int_equal(job.calls[r], r < shards * (units ? units : 1));
        }
}

TEST(threads_report_the_rank_that_failed_first) {
    struct threads_job job = {.failing = 1, .own = -1};
    assert_int_equal(run_threads(&job, 3, 0), RT_ERROR_INPUT);
    assert_string_equal(rt_error(NULL), "rank 1: index 12 is out of range");
    job = (struct threads_job){.failing = -1, .own = 2};
    assert_int_equal(run_threads(&job, 3, 0), 42);
    assert_string_equal(rt_error(NULL), "rank 2: status 42");
    assert_int_equal(run_threads(&job, 3, 4), RT_ERROR_MISMATCH);
    assert_int_equal(run_threads(&job, 3, -3), RT_ERROR_MISMATCH);
    assert_int_equal(run_threads(&job, 3, INT_MAX), RT_ERROR_MISMATCH);
    assert_string_equal(rt_error(NULL),
                        "'tiny' needs a multiple of 3 ranks (plan_ngpus), at most 16384, but was started "
                        "with 2147483647");
}

/* Opening */

static int open_alone(const struct rt_program *program) {
    struct rt *rt;
    const struct rt_options options = {.directory = directory, .comm = "self", .world = 1, .threads = 1};
    int status = rt_open(&rt, program, &options);
    if (!status) rt_close(rt);
    return status;
}

static int other_program_case(struct rank_context *context) {
    struct rt_program program;
    struct rt *rt;
    tiny_program(&program, context->comm->size);
    if (context->comm->rank == 1) program.key = "tiny-2";
    const struct rt_options options = {.directory = directory, .joined = context->comm};
    CHECK(rt_open(&rt, &program, &options) == RT_ERROR_MISMATCH);
    CHECK(strcmp(rt_error(NULL), "rank 1 runs another program than rank 0, compiled with another plan or by another "
                                 "build of rankc") == 0,
          "%s", rt_error(NULL));
    return 0;
}

TEST(ranks_of_another_program_are_refused) {
    assert_int_equal(run_ranks(LOOPBACK, 3, 512, other_program_case, NULL), 0);
}

TEST(programs_that_do_not_fit_are_refused) {
    struct rt_program program;
    tiny_program(&program, 1);
    program.format = 99;
    assert_int_equal(open_alone(&program), RT_ERROR_MISMATCH);
    tiny_program(&program, 2);
    assert_int_equal(open_alone(&program), RT_ERROR_MISMATCH);
    assert_string_equal(rt_error(NULL),
                        "'tiny' needs a multiple of 2 ranks (plan_ngpus), at most 16384, but was started with 1");
    tiny_program(&program, 1);
    program.mesh.axis[0].size = 2;
    assert_int_equal(open_alone(&program), RT_ERROR_MISMATCH);
    tiny_program(&program, 1);
    struct rt *rt;
    assert_int_equal(rt_open(&rt, &program, &(struct rt_options){.directory = directory, .comm = "pigeons"}),
                     RT_ERROR_USAGE);
    assert_int_equal(rt_open(&rt, &program, &(struct rt_options){.directory = directory, .kernels = "none"}),
                     RT_ERROR_USAGE);
    tiny_program(&program, 2);
    assert_int_equal(rt_open(&rt, &program, &(struct rt_options){.directory = directory, .world = 2}), RT_ERROR_USAGE);
}

/* Weights */

static void touch(const char *path, int64_t seconds) {
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){{seconds, 0}, {seconds, 0}}, 0), 0);
}

static void flip_byte(const char *path, off_t at) {
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

TEST(changed_weights_are_refused) {
    struct rt_program program;
    char path[64];
    tiny_program(&program, 1);
    in_directory(path, sizeof path, "weights.bin");
    touch(path, 1000); /* another time, the same bytes */
    assert_int_equal(open_alone(&program), RT_OK);
    flip_byte(path, 40);
    assert_int_equal(open_alone(&program), RT_ERROR_MISMATCH);
    assert_non_null(strstr(rt_error(NULL), "weights.bin' has changed"));
    flip_byte(path, 40);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(open_alone(&program), RT_ERROR_MISMATCH);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(open_alone(&program), RT_ERROR_SYSTEM);
    tiny_write(directory);
    assert_int_equal(open_alone(&program), RT_OK);
}

static void put_location(const char *text) {
    char path[64];
    struct rt_reason why;
    in_directory(path, sizeof path, "location.json");
    assert_true(rt_file_write(path, &(struct rt_piece){text, strlen(text)}, 1, &why));
}

TEST(malformed_locations_are_refused) {
    struct rt_program program;
    tiny_program(&program, 1);
    put_location("{\"format\":1,");
    assert_int_equal(open_alone(&program), RT_ERROR_INPUT);
    put_location("{\"format\":2,\"files\":[]}");
    assert_int_equal(open_alone(&program), RT_ERROR_MISMATCH);
    put_location("{\"format\":1,\"files\":[{\"path\":7}]}");
    assert_int_equal(open_alone(&program), RT_ERROR_INPUT);
    put_location("{\"format\":1,\"files\":[{\"path\":\"weights.bin\"}]}");
    assert_int_equal(open_alone(&program), RT_ERROR_INPUT);
    tiny_write(directory);
}

/* What location.json says of the number of ranks of a program of two shards. */
TEST(the_default_number_of_ranks_is_a_multiple_of_a_unit) {
    static const struct {
        const char *text;
        int64_t ranks; /* 0: refused */
    } cases[] = {{"{}", 2},
                 {"[]", 2},
                 {"{\"runtime_ngpus\": 2}", 2},
                 {"{\"runtime_ngpus\": 6}", 6},
                 {"{\"runtime_ngpus\": 16384}", 16384},
                 {"{\"runtime_ngpus\": 3}", 0},
                 {"{\"runtime_ngpus\": 0}", 0},
                 {"{\"runtime_ngpus\": -2}", 0},
                 {"{\"runtime_ngpus\": 16386}", 0},
                 {"{\"runtime_ngpus\": 8589934592}", 0},
                 {"{\"runtime_ngpus\": 2.5}", 0},
                 {"{\"runtime_ngpus\": \"2\"}", 0},
                 {"{\"runtime_ngpus\": null}", 0},
                 {"{\"runtime_ngpus\": 2", 0}};
    struct rt_reason why;
    char path[64], aside[64];
    int64_t ranks;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_location(cases[i].text);
        const bool read = rt_location_ranks(directory, 2, &ranks, &why);
        if (read != (cases[i].ranks > 0) || (read && ranks != cases[i].ranks)) fail_msg("%s", cases[i].text);
        if (!read) assert_int_equal(why.kind, RT_REASON_CONTENT);
    }
    in_directory(path, sizeof path, "location.json");
    in_directory(aside, sizeof aside, "aside.json");
    assert_int_equal(rename(path, aside), 0);
    assert_true(rt_location_ranks(directory, 2, &ranks, &why) && ranks == 2);
    assert_int_equal(symlink(aside, path), 0);
    assert_false(rt_location_ranks(directory, 2, &ranks, &why));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(aside), 0);
    tiny_write(directory);
}

TEST(weights_outside_of_file_or_arena_are_refused) {
    struct rt_program program;
    struct rt_weight weights[2];
    tiny_program(&program, 1);
    const struct rt_weight *good = program.weights;
    program.weights = weights;
#define TRY(change)                                                                                                    \
    do {                                                                                                               \
        memcpy(weights, good, sizeof weights);                                                                         \
        change;                                                                                                        \
        assert_int_equal(open_alone(&program), RT_ERROR_MISMATCH);                                                     \
    } while (0)
    TRY(weights[1].offset += 1);
    TRY(weights[1].offset = UINT64_MAX);
    TRY(weights[0].dims[0] = INT64_MAX / 4);
    TRY(weights[0].dims[0] = -1);
    TRY(weights[0].split[0].dim = 2);
    TRY(weights[0].split[0].axis = 1);
    TRY(weights[0].split[0].grain = 0);
    TRY(weights[0].split[0].blocks = 3);
    TRY(weights[0].packing = RT_PACK_ROWS); /* larger than the arena */
    TRY(weights[0].packing = RT_PACK_ROWS; weights[0].ndim = 1);
    TRY(weights[0].stored = RT_U8; weights[0].dims[0] = 40);
}

/* A stored tensor (3,12) of which dimension 1 is cut in two blocks, units of 3 and two ways: the rank's part is the
 * first grain of each block's two. */

static int strided_case(struct rank_context *context) {
    static const struct rt_weight weight = {0, 8, RT_F64, RT_F32, 3, {2, 12, 1}, 1, {{1, 0, 2, 3}}};
    static const size_t offset = 64;
    const struct rt_rank_class class = {.bytes = {[RT_WEIGHTS] = 128}, .weights = &offset};
    static const int class_of_shard[2];
    const struct rt_program program = {.format = RT_FORMAT,
                                       .name = "strided",
                                       .key = "tiny-1",
                                       .plan_ngpus = 2,
                                       .mesh = {1, -1, {{2}}},
                                       .nweights = 1,
                                       .nclasses = 1,
                                       .weights = &weight,
                                       .classes = &class,
                                       .class_of_shard = class_of_shard,
                                       .device = &rt_host};
    const struct rt_options options = {.directory = directory, .joined = context->comm};
    struct rt *rt;
    CHECK(rt_open(&rt, &program, &options) == RT_OK, "%s", rt_error(NULL));
    for (int i = 0; i < 12; i++) {
        const int row = i / 6, block = i / 3 % 2, column = block * 6 + rt->shard * 3 + i % 3;
        const int stored = row * 12 + column; /* of the doubles that tiny_write puts there */
        float got;
        memcpy(&got, rt->arena[RT_WEIGHTS] + 64 + i * 4, sizeof got);
        CHECK(got == (float)((stored / TINY_N + 1) * 0.125 - stored % TINY_N * 0.75), "element %d is %g", i,
              (double)got);
    }
    rt_close(rt);
    return 0;
}

TEST(strided_cuts_are_loaded) {
    assert_int_equal(run_ranks(LOOPBACK, 2, 0, strided_case, NULL), 0);
}

/* The bytes of the file as matrices of u8, of which each rank packs its part: of two blocks of 48 the first or second
 * 24. */
enum { LONG = 96, SHORT = 2, BLOCK = LONG / 2, SHARE = BLOCK / 2, ROOM = 3 * RT_PANEL * LONG * 4 };
static const struct rt_weight packed_weights[] = {
    {0, 8, RT_U8, RT_F32, 2, {SHORT, LONG}, 1, {{1, 0, 2, 3}}, RT_PACK_ROWS},
    {0, 8, RT_U8, RT_F32, 2, {SHORT, LONG}, 1, {{1, 0, 2, 3}}, RT_PACK_COLUMNS},
    {0, 8, RT_U8, RT_F32, 2, {LONG, SHORT}, 1, {{0, 0, 2, 3}}, RT_PACK_ROWS},
    {0, 8, RT_U8, RT_F32, 2, {LONG, SHORT}, 1, {{0, 0, 2, 3}}, RT_PACK_COLUMNS},
    {0, 8, RT_U8, RT_F32, 2, {LONG, SHORT}, 0, {{0}}, RT_PACK_COLUMNS}};
enum { PACKED = sizeof packed_weights / sizeof *packed_weights };

/* Element (p, j) of what the rank packed, zero in the columns beyond. */
static float packed_expected(const unsigned char *stored, const struct rt_weight *weight, int shard, int64_t p,
                             int64_t j) {
    int64_t at[2] = {p, j};
    if (weight->packing == RT_PACK_COLUMNS) at[0] = j, at[1] = p;
    for (int s = 0; s < weight->nsplits; s++) {
        int64_t *cut = &at[weight->split[s].dim];
        *cut = *cut / SHARE * BLOCK + shard * SHARE + *cut % SHARE;
    }
    return at[0] < weight->dims[0] && at[1] < weight->dims[1] ? (float)stored[at[0] * weight->dims[1] + at[1]] : 0;
}

static int check_panels(struct rank_context *context, const struct rt *rt, const unsigned char *stored, int w) {
    const struct rt_weight *weight = &packed_weights[w];
    const float *panels = (const float *)(const void *)(rt->arena[RT_WEIGHTS] + w * ROOM);
    const bool rows = weight->packing == RT_PACK_ROWS;
    int64_t extent[2] = {weight->dims[0], weight->dims[1]};
    if (weight->nsplits) extent[weight->split[0].dim] /= 2;
    const int64_t k = extent[rows ? 0 : 1], n = extent[rows ? 1 : 0];
    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < rt_panels(n) * RT_PANEL; j++) {
            const float expected = j < n ? packed_expected(stored, weight, rt->shard, p, j) : 0;
            CHECK(panels[rt_panel_place(k, p, j)] == expected, "weight %d, element (%d,%d)", w, (int)p, (int)j);
        }
    return 0;
}

static int packed_case(struct rank_context *context) {
    static const size_t offsets[PACKED] = {0, ROOM, 2 * ROOM, 3 * ROOM, 4 * ROOM};
    const struct rt_rank_class class = {.bytes = {[RT_WEIGHTS] = PACKED * ROOM}, .weights = offsets};
    const struct rt_options options = {.directory = directory, .joined = context->comm};
    struct rt_program program;
    unsigned char bytes[8 + LONG * SHORT];
    char path[64];
    struct rt *rt;
    tiny_program(&program, 2);
    program.nweights = PACKED, program.weights = packed_weights, program.classes = &class;
    program.ninputs = program.noutputs = 0;
    in_directory(path, sizeof path, "weights.bin");
    FILE *file = fopen(path, "rb");
    CHECK(file && fread(bytes, 1, sizeof bytes, file) == sizeof bytes);
    fclose(file);
    CHECK(rt_open(&rt, &program, &options) == RT_OK, "%s", rt_error(NULL));
    for (int w = 0; w < PACKED; w++)
        if (check_panels(context, rt, bytes + 8, w)) return 1;
    rt_close(rt);
    return 0;
}

TEST(weights_are_packed) {
    assert_int_equal(run_ranks(LOOPBACK, 2, 512, packed_case, NULL), 0);
}

/* Redistribution */

/* Chunk and all-gather are inverse, and reduce-scatter of equal tensors is `ways` chunks, for cuts of every kind.
 */
static int redistribution_case(struct rank_context *context) {
    static const struct {
        int64_t outer, extent, inner, blocks, grain;
    } rows[] = {{1, 7, 1, 1, 1},  {1, 12, 5, 1, 1},   {3, 12, 2, 1, 3},   {2, 24, 3, 2, 3},
                {1, 18, 1, 3, 1}, {2, 120, 1, -2, 1}, {1, 120, 2, -2, 1}, {4, 2, 3, 1, 1},
                {0, 6, 2, 1, 1},  {2, 0, 2, 1, 1},    {5, 6, 0, 2, 1}};
    struct rt_program program;
    struct rt *rt;
    int32_t whole[256], part[256], back[256], scratch[256], sum[256];
    tiny_program(&program, context->comm->size);
    const struct rt_options options = {.directory = directory, .joined = context->comm};
    CHECK(rt_open(&rt, &program, &options) == RT_OK, "%s", rt_error(NULL));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t outer = rows[i].outer, extent = rows[i].extent, inner = rows[i].inner;
        const struct rt_cut cut = {extent, rows[i].blocks, rows[i].grain, context->comm->size};
        const int64_t count = outer * extent * inner, mine = outer * rt_cut_extent(&cut, rt->shard) * inner;
        for (int64_t e = 0; e < count; e++) whole[e] = (int32_t)(e * 7 + (int64_t)i), back[e] = -1;
        const struct rt_placement held = {.cut = cut, .extent = extent};
        const int64_t dims[] = {outer, extent, inner};
        CHECK(rt_chunk(rt, 0, part, whole, RT_I32, 3, dims, 1, &held) == RT_OK);
        if (mine > 0) CHECK(part[0] == whole[rt_part_start(rt, 0, extent, cut.blocks, cut.grain) * inner]);
        CHECK(rt_all_gather(rt, 0, back, part, scratch, RT_I32, outer, extent, inner, cut.blocks, cut.grain, 0) == 0);
        CHECK(memcmp(back, whole, (size_t)count * 4) == 0, "row %zu", i);
        CHECK(rt_reduce_scatter(rt, 0, sum, whole, scratch, RT_I32, outer, extent, inner, cut.blocks, cut.grain, RT_SUM,
                                0) == RT_OK);
        for (int64_t e = 0; e < mine; e++) CHECK(sum[e] == context->comm->size * part[e], "row %zu", i);
    }
    rt_close(rt);
    return 0;
}

TEST(redistribution_handles_every_cut) {
    for (int ranks = 1; ranks <= 5; ranks++)
        assert_int_equal(run_ranks(LOOPBACK, ranks, 512, redistribution_case, NULL), 0);
}

/* From any placement to any other, of one dimension or of two: every rank gets what the definition says, element by
 * element.
 */
enum { SIDES = 11, EXCHANGED = 2 * 12 * 3 * 8 * 2 };

static const struct side {
    int dim;
    struct rt_placement placement; /* ways: those of the job */
} sides[SIDES] = {
    {1, {{12, 1, 1, 0}, 12, 0, 0, 0}}, {1, {{12, 1, 3, 0}, 12, 0, 0, 0}},
    {1, {{12, 2, 2, 0}, 12, 0, 0, 0}}, {3, {{8, 1, 1, 0}, 8, 0, 0, 0}},
    {3, {{8, 4, 1, 0}, 8, 0, 0, 0}},   {1, {{12, 1, 1, 0}, 12, 1, 1, 3}}, /* 3 indices, one of them before */
    {1, {{6, 1, 1, 0}, 12, 2, 3, 7}}, /* every other index, and more than neighbours have */
    {1, {{4, 1, 1, 0}, 12, 3, 0, 1}}, /* leaves out two of three */
    {3, {{5, 1, 1, 0}, 8, 1, 0, 4}},   {1, {{12, -2, 1, 0}, 12, 0, 0, 0}}, /* mirrored: for ways that share equally */
    {3, {{8, -4, 1, 0}, 8, 0, 0, 0}},
};

static bool side_holds(const struct side *side, int rank, int64_t index) {
    const struct rt_cut *cut = &side->placement.cut;
    if (!side->placement.span) {
        const int64_t block = cut->extent / llabs(cut->blocks), within = index % block;
        const int share = cut->blocks < 0 && index / block % 2 ? cut->ways - 1 - rank : rank;
        return within >= rt_cut_start(cut, share) && within < rt_cut_start(cut, share + 1);
    }
    int64_t first = side->placement.extent, last = -1; /* read by some position of the rank */
    for (int64_t p = rt_cut_start(cut, rank); p < rt_cut_start(cut, rank + 1); p++)
        for (int64_t k = 0; k < side->placement.span; k++) {
            const int64_t at = p * side->placement.stride - side->placement.before + k;
            if (at < 0 || at >= side->placement.extent) continue;
            first = at < first ? at : first;
            last = at > last ? at : last;
        }
    return index >= first && index <= last;
}

/* The elements that a rank holds, in order, each by its place in the tensor. */
static int64_t list_held(const int64_t *dims, const struct side *side, int rank, int16_t *out) {
    int64_t n = 0, count = 1, inner = 1;
    for (int d = 0; d < 5; d++) count *= dims[d];
    for (int d = side->dim + 1; d < 5; d++) inner *= dims[d];
    for (int64_t e = 0; e < count; e++)
        if (side_holds(side, rank, e / inner % dims[side->dim])) out[n++] = (int16_t)e;
    return n;
}

static int exchange_case(struct rank_context *context) {
    static const int64_t dims[] = {2, 12, 3, 8, 2};
    struct rt_program program;
    struct rt *rt;
    tiny_program(&program, context->comm->size);
    const struct rt_options options = {.directory = directory, .joined = context->comm};
    CHECK(rt_open(&rt, &program, &options) == RT_OK, "%s", rt_error(NULL));
    const size_t bytes = EXCHANGED * sizeof(int16_t);
    int16_t *own = malloc(bytes * 16), *mine = own + EXCHANGED, *wanted = mine + EXCHANGED,
            *result = wanted + EXCHANGED, *scratch = result + EXCHANGED;
    CHECK(own);
    for (int i = 0; i < EXCHANGED; i++) own[i] = (int16_t)i;
    for (int f = 0; f < SIDES; f++)
        for (int t = 0; t < SIDES; t++) {
            struct side from = sides[f], to = sides[t];
            from.placement.cut.ways = to.placement.cut.ways = context->comm->size;
            if (!rt_cut_is_sound(&from.placement.cut) || !rt_cut_is_sound(&to.placement.cut)) continue;
            const int64_t n = list_held(dims, &to, rt->shard, wanted);
            memset(result, -1, bytes);
            CHECK(rt_chunk(rt, 0, result, own, RT_F16, 5, dims, to.dim, &to.placement) == RT_OK);
            CHECK(memcmp(result, wanted, (size_t)n * 2) == 0, "chunk %d", t);
            CHECK(n == EXCHANGED || result[n] == -1, "chunk %d", t);
            if (from.placement.span) continue; /* windows leave indices out */
            list_held(dims, &from, rt->shard, mine);
            memset(result, -1, bytes);
            CHECK(rt_all_to_all(rt, 0, result, mine, scratch, RT_F16, 5, dims, from.dim, &from.placement, to.dim,
                                &to.placement) == RT_OK);
            CHECK(memcmp(result, wanted, (size_t)n * 2) == 0, "%d to %d", f, t);
            CHECK(n == EXCHANGED || result[n] == -1, "%d to %d", f, t);
            if (from.dim != to.dim || rt_placement_lacks(&to.placement, &from.placement, rt->shard)) continue;
            memset(result, -1, bytes);
            CHECK(rt_crop(rt, 0, result, mine, RT_F16, 5, dims, from.dim, &from.placement, to.dim, &to.placement) ==
                  RT_OK);
            CHECK(memcmp(result, wanted, (size_t)n * 2) == 0, "%d cropped to %d", f, t);
        }
    free(own);
    rt_close(rt);
    return 0;
}

TEST(exchanges_give_what_is_wanted) {
    for (int transport = SELF; transport < TRANSPORTS; transport++)
        for (int ranks = 1; ranks <= 5; ranks++) /* five: some ranks have nothing of an extent of 4 */
            if (transport != SELF || ranks == 1)
                assert_int_equal(run_ranks((enum transport)transport, ranks, 512, exchange_case, NULL), 0);
}

static int make_directory(void **state) {
    if (!mkdtemp(directory)) return -1;
    tiny_write(directory);
    return 0;
}

static int remove_directory(void **state) {
    static const char *const names[] = {"weights.bin", "manifest.json", "location.json"};
    char path[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        in_directory(path, sizeof path, names[i]);
        unlink(path);
    }
    return rmdir(directory);
}

int main(void) {
    return run_all_tests("rt", make_directory, remove_directory);
}
