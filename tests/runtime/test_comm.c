/* One conformance suite for all transports: every collective, dtype, size, number of ranks and kind of buffer,
 * against plain loops that go through the ranks in order. */
#define _GNU_SOURCE 1

#include "ranks.h"
#include "ranks_mpi.h"

#include "base/number/half.h"
#include "base/shape/part.h"
#include "../test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MOST      65537 /* elements: more than one staged piece of every type */
#define MAX_RANKS 16
#define BUFFER    ((size_t)MOST * 8 + 64)
#define SYMMETRIC (2 * BUFFER)

static const size_t sizes[] = {0, 1, 2, 3, 7, 64, 1000, MOST};
#define SIZES (sizeof sizes / sizeof *sizes)

/* Data */

/* What each rank brings, and what reductions over the first n ranks give: made once, before ranks start. */
static unsigned char *input[RT_DTYPE_COUNT][MAX_RANKS];
static unsigned char *expected[RT_DTYPE_COUNT][3];

static void make_inputs(void) {
    static double real[MOST], whole[MOST];
    for (int r = 0; r < MAX_RANKS; r++) {
        /* Magnitudes differ so much between ranks that another order gives another sum. */
        static const double scale[] = {1, 1e-3, 1e3, 1e-1, 1e2, 1e-2, 10, 1};
        for (int i = 0; i < MOST; i++) {
            real[i] = ((i * 31 + r * 17) % 23 - 11) * scale[(r * 3 + i) % 8] + 0.1 * r;
            whole[i] = (i * 31 + r * 17) % 251 - 60;
        }
        for (int t = 0; t < RT_DTYPE_COUNT; t++) {
            input[t][r] = malloc(MOST * rt_dtype_bytes((enum rt_dtype)t));
            rt_convert(input[t][r], (enum rt_dtype)t, rt_dtype_is_float((enum rt_dtype)t) ? real : whole, RT_F64, MOST);
        }
    }
}

static double fold_real(double a, double b, enum rt_reduce reduce, bool single) {
    if (reduce == RT_SUM) return single ? (double)((float)a + (float)b) : a + b;
    return reduce == RT_MAX ? (b > a ? b : a) : (b < a ? b : a);
}

static int64_t fold_whole(int64_t a, int64_t b, enum rt_dtype t, enum rt_reduce reduce) {
    const bool is_unsigned = rt_dtypes[t].kind == RT_KIND_UINT;
    const bool greater = is_unsigned ? (uint64_t)b > (uint64_t)a : b > a;
    if (t == RT_BOOL) return reduce == RT_MIN ? a && b : a || b;
    if (reduce == RT_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
    return greater == (reduce == RT_MAX) ? b : a;
}

/* Whole tensors at a time: a process of every rank does this. */
static void expect_type(enum rt_dtype t, int ranks) {
    static double real[3][MOST], next_real[MOST];
    static int64_t whole[3][MOST], next_whole[MOST];
    const bool is_real = rt_dtype_is_float(t);
    const enum rt_dtype wide = is_real ? RT_F64 : RT_I64;
    for (int r = 0; r < ranks; r++) {
        rt_convert(is_real ? (void *)next_real : next_whole, wide, input[t][r], t, MOST);
        for (int reduce = 0; reduce < 3; reduce++)
            for (int i = 0; i < MOST; i++) {
                double *sum = &real[reduce][i];
                int64_t *count = &whole[reduce][i];
                if (is_real)
                    *sum = r == 0 ? next_real[i] : fold_real(*sum, next_real[i], (enum rt_reduce)reduce, t != RT_F64);
                else
                    *count = r == 0 ? next_whole[i] : fold_whole(*count, next_whole[i], t, (enum rt_reduce)reduce);
            }
    }
    for (int reduce = 0; reduce < 3; reduce++) {
        if (!expected[t][reduce]) expected[t][reduce] = malloc(MOST * 8);
        rt_convert(expected[t][reduce], t, is_real ? (void *)real[reduce] : whole[reduce], wide, MOST);
    }
}

static void make_expected(int ranks) {
    static int made_for;
    if (made_for == ranks) return;
    made_for = ranks;
    for (int t = 0; t < RT_DTYPE_COUNT; t++) expect_type((enum rt_dtype)t, ranks);
}

/* Buffers */

enum placement { PRIVATE, PRIVATE_IN_PLACE, SEGMENT, SEGMENT_IN_PLACE, SOURCE_IN_SEGMENT, MIXED, PLACEMENTS };

struct buffers {
    unsigned char *dst, *src, *owned;
};

static struct buffers place(struct rt_comm *comm, enum placement placement) {
    struct buffers b;
    unsigned char *segment = rt_comm_segment(comm);
    if (placement == MIXED) placement = comm->rank % 2 ? SEGMENT : PRIVATE;
    b.owned = calloc(2, BUFFER);
    b.src = b.owned;
    b.dst = b.owned + BUFFER;
    if (segment && placement >= SEGMENT) b.src = segment;
    if (segment && (placement == SEGMENT || placement == SEGMENT_IN_PLACE)) b.dst = segment + BUFFER;
    if (placement == PRIVATE_IN_PLACE || placement == SEGMENT_IN_PLACE) b.dst = b.src;
    return b;
}

static bool in_place(enum placement placement) {
    return placement == PRIVATE_IN_PLACE || placement == SEGMENT_IN_PLACE;
}

/* Cases: each is called once per dtype, size and placement */

struct instance {
    enum rt_dtype dtype;
    size_t element, count;
    enum placement placement;
};

typedef int instance_fn(struct rank_context *context, const struct instance *instance, struct buffers *b);

static int all_reduce(struct rank_context *context, const struct instance *in, struct buffers *b) {
    struct rt_comm *comm = context->comm;
    for (int reduce = RT_SUM; reduce <= (in->count == MOST ? RT_SUM : RT_MIN); reduce++) {
        memcpy(b->src, input[in->dtype][comm->rank], in->count * in->element);
        int status = comm->driver->all_reduce(comm, b->dst, b->src, in->count, in->dtype, (enum rt_reduce)reduce);
        CHECK(status == RT_OK, "status %d (%s)", status, comm->why);
        CHECK(memcmp(b->dst, expected[in->dtype][reduce], in->count * in->element) == 0, "%s x %zu, op %d",
              rt_dtypes[in->dtype].name, in->count, reduce);
        CHECK(in_place(in->placement) || memcmp(b->src, input[in->dtype][comm->rank], in->count * in->element) == 0);
    }
    return 0;
}

/* Uneven parts; with few elements some ranks have none. */
static void cut_counts(size_t counts[MAX_RANKS], size_t count, int ranks) {
    struct rt_cut cut = {(int64_t)count, 1, 1, ranks};
    for (int r = 0; r < ranks; r++) counts[r] = (size_t)rt_cut_length(&cut, r);
    if (ranks > 2) counts[0] += counts[1], counts[1] = 0;
}

static int all_gather(struct rank_context *context, const struct instance *in, struct buffers *b) {
    struct rt_comm *comm = context->comm;
    size_t bytes[MAX_RANKS], before = 0;
    if (in_place(in->placement)) return 0;
    cut_counts(bytes, in->count, comm->size);
    for (int r = 0; r < comm->size; r++) bytes[r] *= in->element;
    memcpy(b->src, input[in->dtype][comm->rank], bytes[comm->rank]);
    CHECK(comm->driver->all_gather(comm, b->dst, b->src, bytes) == RT_OK);
    for (int r = 0; r < comm->size; before += bytes[r], r++)
        CHECK(memcmp(b->dst + before, input[in->dtype][r], bytes[r]) == 0, "part %d of %zu bytes", r, before);
    return 0;
}

static int reduce_scatter(struct rank_context *context, const struct instance *in, struct buffers *b) {
    struct rt_comm *comm = context->comm;
    size_t counts[MAX_RANKS], before = 0;
    if (in_place(in->placement)) return 0;
    cut_counts(counts, in->count, comm->size);
    for (int r = 0; r < comm->rank; r++) before += counts[r];
    memcpy(b->src, input[in->dtype][comm->rank], in->count * in->element);
    CHECK(comm->driver->reduce_scatter(comm, b->dst, b->src, counts, in->dtype, RT_SUM, false) == RT_OK);
    CHECK(memcmp(b->dst, expected[in->dtype][RT_SUM] + before * in->element, counts[comm->rank] * in->element) == 0,
          "%s x %zu", rt_dtypes[in->dtype].name, in->count);
    return 0;
}

/* Elements from one rank to another: uneven, some none. */
static size_t traded(int from, int to, size_t count) {
    return count * (size_t)((from * 3 + to * 5) % 7) / (7 * MAX_RANKS);
}

static int all_to_all(struct rank_context *context, const struct instance *in, struct buffers *b) {
    struct rt_comm *comm = context->comm;
    size_t send[MAX_RANKS], receive[MAX_RANKS];
    unsigned char *at = b->src;
    if (in_place(in->placement)) return 0;
    for (int r = 0; r < comm->size; r++) {
        send[r] = traded(comm->rank, r, in->count) * in->element;
        receive[r] = traded(r, comm->rank, in->count) * in->element;
        memcpy(at, input[in->dtype][comm->rank] + (size_t)r * in->element, send[r] ? send[r] : 0);
        at += send[r];
    }
    CHECK(comm->driver->all_to_all(comm, b->dst, receive, b->src, send) == RT_OK);
    at = b->dst;
    for (int r = 0; r < comm->size; at += receive[r], r++)
        CHECK(memcmp(at, input[in->dtype][r] + (size_t)comm->rank * in->element, receive[r]) == 0, "from %d", r);
    return 0;
}

static int broadcast(struct rank_context *context, const struct instance *in, struct buffers *b) {
    struct rt_comm *comm = context->comm;
    for (int root = 0; root < comm->size; root++) {
        memcpy(b->src, input[in->dtype][comm->rank], in->count * in->element);
        CHECK(comm->driver->broadcast(comm, b->src, in->count * in->element, root) == RT_OK);
        CHECK(memcmp(b->src, input[in->dtype][root], in->count * in->element) == 0, "root %d", root);
    }
    return 0;
}

static int ring(struct rank_context *context, const struct instance *in, struct buffers *b) {
    struct rt_comm *comm = context->comm;
    const int next = (comm->rank + 1) % comm->size, before = (comm->rank + comm->size - 1) % comm->size;
    const size_t bytes = in->count * in->element;
    if (in_place(in->placement) || comm->size == 1) return 0;
    memcpy(b->src, input[in->dtype][comm->rank], bytes);
    int status = RT_OK;
    for (int turn = 0; turn < 2 && !status; turn++)
        if ((comm->rank == 0) == (turn == 0)) /* rank 0 sends first, or all would wait for their receiver */
            status = comm->driver->send(comm, b->src, bytes, next);
        else
            status = comm->driver->receive(comm, b->dst, bytes, before);
    CHECK(status == RT_OK, "status %d (%s)", status, comm->why);
    CHECK(memcmp(b->dst, input[in->dtype][before], bytes) == 0, "%zu bytes from %d", bytes, before);
    return 0;
}

/* Posted transfers. Each rank has as many to and from each other rank, of sizes and contents that all can foresee. */

#define POSTED 20 /* more than a transport may announce ahead */

struct posted {
    struct rt_request request;
    unsigned char *data;
    size_t bytes;
    int from, to, number;
};

static size_t posted_bytes(int from, int to, int number) {
    static const size_t bytes[] = {0, 1, 8, 100, 4096, 40000, 100000};
    return bytes[(from * 5 + to * 3 + number) % 7];
}

static unsigned char posted_byte(const struct posted *p, size_t at) {
    return (unsigned char)(at * 7 + (size_t)(p->from * 31 + p->to * 17 + p->number * 3));
}

/* Sends come before receives of the same number. */
static int list_posted(struct rt_comm *comm, struct posted *list) {
    int n = 0;
    for (int number = 0; number < POSTED; number++)
        for (int i = 0; i < 2 * comm->size; i++) {
            const int peer = i % comm->size, from = i < comm->size ? comm->rank : peer,
                      to = i < comm->size ? peer : comm->rank;
            if (peer == comm->rank) continue;
            list[n++] =
                (struct posted){.bytes = posted_bytes(from, to, number), .from = from, .to = to, .number = number};
        }
    return n;
}

static unsigned next_random(unsigned *seed) {
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 16;
}

/* A random order in which those of a pair and direction keep theirs. */
static void shuffle_posted(struct posted *list, int n, unsigned *seed) {
    for (int turn = 0; turn < 8 * n; turn++) {
        struct posted *a = &list[next_random(seed) % (unsigned)(n - 1)], *b = a + 1, other = *a;
        if (a->from == b->from && a->to == b->to) continue;
        *a = *b;
        *b = other;
    }
}

static int post_all(struct rank_context *context, struct posted *list, int n, unsigned char *sources, unsigned *seed) {
    struct rt_comm *comm = context->comm;
    for (int i = 0; i < n; i++) {
        struct posted *p = &list[i];
        p->data = malloc(p->bytes + 1);
        if (p->from == comm->rank) {
            unsigned char *src = p->data;
            if (sources && p->bytes <= 100 && p->number % 2) src = sources, sources += 100;
            for (size_t at = 0; at < p->bytes; at++) src[at] = posted_byte(p, at);
            CHECK(comm->driver->post_send(comm, src, p->bytes, p->to, &p->request) == RT_OK, "%s", comm->why);
        } else {
            CHECK(comm->driver->post_receive(comm, p->data, p->bytes, p->from, &p->request) == RT_OK, "%s", comm->why);
        }
        if (next_random(seed) % 64 == 0) usleep(50);
    }
    return 0;
}

static int wait_for_posted(struct rank_context *context, struct posted *p) {
    struct rt_comm *comm = context->comm;
    const int status = comm->driver->wait(comm, &p->request);
    CHECK(status == RT_OK, "status %d (%s)", status, comm->why);
    for (size_t at = 0; at < p->bytes && p->to == comm->rank; at++)
        CHECK(p->data[at] == posted_byte(p, at), "message %d from %d, byte %zu", p->number, p->from, at);
    return 0;
}

/* Waits in random order, half of the times after a barrier. */
static int posted_round(struct rank_context *context, unsigned round, struct posted *list, struct posted **order) {
    struct rt_comm *comm = context->comm;
    unsigned char *segment = rt_comm_segment(comm);
    unsigned seed = round * 64 + (unsigned)comm->rank;
    const int n = list_posted(comm, list);
    shuffle_posted(list, n, &seed);
    if (post_all(context, list, n, round % 3 ? segment : NULL, &seed)) return 1;
    if (round % 2) CHECK(comm->driver->barrier(comm) == RT_OK, "%s", comm->why);
    for (int i = 0; i < n; i++) order[i] = &list[i];
    for (int i = n - 1; i > 0; i--) {
        const unsigned other = next_random(&seed) % (unsigned)(i + 1);
        struct posted *p = order[i];
        order[i] = order[other];
        order[other] = p;
    }
    for (int i = 0; i < n; i++)
        if (wait_for_posted(context, order[i])) return 1;
    for (int i = 0; i < n; i++) free(list[i].data);
    CHECK(comm->driver->barrier(comm) == RT_OK); /* the segment is used again */
    return 0;
}

static int posted_case(struct rank_context *context) {
    const size_t most = (size_t)(2 * context->comm->size * POSTED);
    struct posted *list = calloc(most, sizeof *list), **order = calloc(most, sizeof(*order));
    int failed = 0;
    for (unsigned round = 0; round < 4 && context->comm->size > 1 && !failed; round++)
        failed = posted_round(context, round, list, order);
    free(list);
    free(order);
    return failed;
}

/* All ranks wait for their sends, of which none fits a buffer, before their receives; by send and receive in between
 * the order stays that of posting. */
static int crossing_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm;
    enum { BYTES = 1000000 };
    const int next = (comm->rank + 1) % comm->size, before = (comm->rank + comm->size - 1) % comm->size;
    struct rt_request send, receive;
    unsigned char *data = malloc(2 * BYTES), small[4] = {0};
    if (comm->size > 1) {
        memset(data, comm->rank + 1, BYTES);
        CHECK(comm->driver->post_receive(comm, data + BYTES, BYTES, before, &receive) == RT_OK);
        CHECK(comm->driver->post_send(comm, data, BYTES, next, &send) == RT_OK);
        CHECK(comm->driver->wait(comm, &send) == RT_OK, "%s", comm->why);
        CHECK(comm->driver->wait(comm, &receive) == RT_OK, "%s", comm->why);
        for (size_t i = 0; i < BYTES; i++) CHECK(data[BYTES + i] == before + 1, "byte %zu", i);
        CHECK(comm->driver->post_receive(comm, data, 100, before, &receive) == RT_OK);
        CHECK(comm->driver->post_send(comm, data + BYTES, 100, next, &send) == RT_OK);
        for (int turn = 0; turn < 2; turn++)
            if ((comm->rank == 0) == (turn == 0))
                CHECK(comm->driver->send(comm, (unsigned char[]){7, 8, 9, 10}, 4, next) == RT_OK, "%s", comm->why);
            else
                CHECK(comm->driver->receive(comm, small, 4, before) == RT_OK, "%s", comm->why);
        CHECK(memcmp(small, (unsigned char[]){7, 8, 9, 10}, 4) == 0);
        CHECK(comm->driver->wait(comm, &receive) == RT_OK && comm->driver->wait(comm, &send) == RT_OK);
        CHECK(data[99] == (before + comm->size - 1) % comm->size + 1);
    }
    free(data);
    return 0;
}

/* What only moves bytes knows no dtypes: one of each size of element will do. */
static bool is_first_of_its_size(int t) {
    for (int before = 0; before < t; before++)
        if (rt_dtypes[before].bytes == rt_dtypes[t].bytes) return false;
    return true;
}

/* There is no arithmetic on the types of quantised tensors. */
static bool has_sums(int t) {
    return !rt_dtype_is_code((enum rt_dtype)t);
}

static int run_instances(struct rank_context *context, instance_fn *function, bool reduces) {
    for (int placement = 0; placement < PLACEMENTS; placement++) {
        struct buffers b = place(context->comm, (enum placement)placement);
        int failed = 0;
        for (int t = 0; t < RT_DTYPE_COUNT && !failed; t++)
            for (size_t s = 0; s < SIZES && !failed && (reduces ? has_sums(t) : is_first_of_its_size(t)); s++) {
                const struct instance instance = {(enum rt_dtype)t, rt_dtype_bytes((enum rt_dtype)t), sizes[s],
                                                  (enum placement)placement};
                failed = function(context, &instance, &b);
            }
        free(b.owned);
        if (failed) return failed;
    }
    return 0;
}

/* For data of calls that overlap others. */
static unsigned char *memory_of(const struct rank_context *context) {
    unsigned char *segment = rt_comm_segment(context->comm);
    return segment ? segment : context->memory;
}

static int begin(struct rt_comm *comm, enum rt_early kind, enum rt_dtype dtype, void *dst, const void *src,
                 const size_t *counts) {
    return comm->driver->begin(comm, &(struct rt_collective){kind, dtype, dst, src, counts});
}

/* More sums than a transport may keep open, begun by some ranks earlier than by others, and looked after here and
 * there. */
static int sums_of(struct rank_context *context, enum rt_dtype dtype, size_t count) {
    struct rt_comm *comm = context->comm;
    const size_t bytes = count * rt_dtype_bytes(dtype), room = (bytes + 63) / 64 * 64;
    const int n = count == MOST ? 2 : 70;
    unsigned char *segment = memory_of(context);
    for (int i = 0; i < n; i++) {
        memcpy(segment + (size_t)i * room, input[dtype][comm->rank], bytes);
        if (i % 9 == comm->rank) usleep(100);
        int status = begin(comm, RT_SUM_WHOLE, dtype, segment + (size_t)i * room, NULL, &count);
        CHECK(status == RT_OK, "sum %d: status %d (%s)", i, status, comm->why);
        if (i % 5 == comm->rank) CHECK(comm->driver->progress(comm) == RT_OK);
    }
    CHECK(comm->driver->finish(comm, RT_SUM_WHOLE) == RT_OK, "%s", comm->why);
    for (int i = 0; i < n; i++)
        CHECK(memcmp(segment + (size_t)i * room, expected[dtype][RT_SUM], bytes) == 0, "%s x %zu, sum %d",
              rt_dtypes[dtype].name, count, i);
    return 0;
}

/* Reduce-scatters among sums. */
static int scatters_of(struct rank_context *context, enum rt_dtype dtype, size_t count) {
    struct rt_comm *comm = context->comm;
    const size_t size = rt_dtype_bytes(dtype), bytes = count * size, room = (bytes + 63) / 64 * 64;
    const int n = count == MOST ? 2 : 70;
    unsigned char *segment = memory_of(context);
    size_t counts[MAX_RANKS], before = 0;
    cut_counts(counts, count, comm->size);
    for (int r = 0; r < comm->rank; r++) before += counts[r];
    for (int i = 0; i < n; i++) {
        unsigned char *data = segment + (size_t)i * room;
        memcpy(data, input[dtype][comm->rank], bytes);
        if (i % 9 == comm->rank) usleep(100);
        int status = begin(comm, i % 3 ? RT_SCATTER : RT_SUM_WHOLE, dtype, data, NULL, i % 3 ? counts : &count);
        CHECK(status == RT_OK, "scatter %d: status %d (%s)", i, status, comm->why);
        if (i % 5 == comm->rank) CHECK(comm->driver->progress(comm) == RT_OK);
    }
    CHECK(comm->driver->finish(comm, RT_SUM_WHOLE) == RT_OK, "%s", comm->why);
    for (int i = 0; i < n; i++) {
        const size_t first = i % 3 ? before * size : 0, length = i % 3 ? counts[comm->rank] * size : bytes;
        CHECK(memcmp(segment + (size_t)i * room + first, (const char *)expected[dtype][RT_SUM] + first, length) == 0,
              "%s x %zu, reduction %d", rt_dtypes[dtype].name, count, i);
    }
    return 0;
}

/* Parts of all ranks in rank order, of gather i: bytes that depend on all of these. */
static unsigned char part_byte(int i, int rank, size_t at) {
    return (unsigned char)(i * 31 + rank * 7 + (int)(at * 13 % 251));
}

static bool holds_parts(const unsigned char *data, int i, const size_t *bytes, int size) {
    for (int r = 0; r < size; r++)
        for (size_t at = 0; at < bytes[r]; at++, data++)
            if (*data != part_byte(i, r, at)) return false;
    return true;
}

/* Gathers of parts of different sizes, begun `ahead` of their end; from private memory or in place, among sums. */
static int gathers_of(struct rank_context *context, size_t count, int ahead) {
    struct rt_comm *comm = context->comm;
    const int n = 40 + ahead;
    const size_t room = (count + 63) / 64 * 64;
    unsigned char *segment = memory_of(context), *own = calloc((size_t)n + 1, room + 1);
    size_t bytes[MAX_RANKS], before = 0;
    int32_t *sum = (int32_t *)(void *)(segment + (size_t)n * room);
    cut_counts(bytes, count, comm->size);
    for (int r = 0; r < comm->rank; r++) before += bytes[r];
    for (int i = 0; i < n + ahead; i++) {
        unsigned char *part = segment + (size_t)i * room + before, *src = i % 2 ? own + (size_t)i * room : part;
        for (size_t at = 0; at < bytes[comm->rank] && i < n; at++) src[at] = part_byte(i, comm->rank, at);
        if (i % 9 == comm->rank) usleep(100);
        if (i < n)
            CHECK(begin(comm, RT_GATHER, RT_U8, segment + (size_t)i * room, src, bytes) == RT_OK, "%s", comm->why);
        if (i == 17) *sum = comm->rank + 1;
        if (i == 17) CHECK(begin(comm, RT_SUM_WHOLE, RT_I32, sum, NULL, (const size_t[]){1}) == RT_OK, "%s", comm->why);
        if (i % 5 == comm->rank) CHECK(comm->driver->progress(comm) == RT_OK);
        if (i < ahead) continue;
        CHECK(comm->driver->finish(comm, RT_GATHER) == RT_OK, "%s", comm->why);
        CHECK(holds_parts(segment + (size_t)(i - ahead) * room, i - ahead, bytes, comm->size), "%zu bytes, gather %d",
              count, i - ahead);
        memset(segment + (size_t)(i - ahead) * room, 0xee, count); /* no other rank reads it any more */
    }
    CHECK(comm->driver->finish(comm, RT_SUM_WHOLE) == RT_OK, "%s", comm->why);
    CHECK(*sum == comm->size * (comm->size + 1) / 2, "the sum among gathers is %d", *sum);
    free(own);
    return 0;
}

static int gathers_case(struct rank_context *context) {
    if (!context->comm->driver->begin) return 0;
    for (size_t s = 0; s < SIZES; s++)
        for (int ahead = 0; ahead <= 60 && sizes[s] < MOST; ahead += 30)
            if (gathers_of(context, sizes[s], ahead)) return 1;
    return 0;
}

/* Between other calls, which know nothing of them. */
static int sums_case(struct rank_context *context) {
    if (!context->comm->driver->begin) return 0;
    for (int t = 0; t < RT_DTYPE_COUNT; t++)
        for (size_t s = 0; s < SIZES && has_sums(t); s++) {
            if (sums_of(context, (enum rt_dtype)t, sizes[s])) return 1;
            if (scatters_of(context, (enum rt_dtype)t, sizes[s])) return 1;
            CHECK(context->comm->driver->barrier(context->comm) == RT_OK);
        }
    return 0;
}

static int all_reduce_case(struct rank_context *context) {
    return run_instances(context, all_reduce, true);
}
static int all_gather_case(struct rank_context *context) {
    return run_instances(context, all_gather, false);
}
static int reduce_scatter_case(struct rank_context *context) {
    return run_instances(context, reduce_scatter, true);
}
static int all_to_all_case(struct rank_context *context) {
    return run_instances(context, all_to_all, false);
}
static int broadcast_case(struct rank_context *context) {
    return run_instances(context, broadcast, false);
}
static int ring_case(struct rank_context *context) {
    return run_instances(context, ring, false);
}

/* Communicators of parts of the job */

/* Sum over a communicator of 1000 * round + world rank, which the caller can foresee. */
static int check_sum(struct rank_context *context, struct rt_comm *comm, const int *members, int round,
                     bool symmetric) {
    int64_t own[300], *data = own, sum = 0;
    if (symmetric && rt_comm_segment(comm)) data = rt_comm_segment(comm);
    for (int i = 0; i < 300; i++) data[i] = 1000 * round + context->comm->rank + i;
    CHECK(comm->driver->all_reduce(comm, data, data, 300, RT_I64, RT_SUM) == RT_OK, "%s", comm->why);
    for (int m = 0; m < comm->size; m++) sum += 1000 * round + members[m];
    for (int i = 0; i < 300; i++) CHECK(data[i] == sum + (int64_t)i * comm->size, "round %d", round);
    return 0;
}

/* Groups of two axes of a mesh and the whole job, used in turn; a group of the one does not wait for the other. */
static int split_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm, *row, *column;
    int all[MAX_RANKS], in_row[MAX_RANKS], in_column[MAX_RANKS], nrow = 0, ncolumn = 0;
    CHECK(comm->driver->split(comm, comm->rank / 2, &row) == RT_OK);
    CHECK(comm->driver->split(comm, -1 - comm->rank % 2, &column) == RT_OK);
    for (int r = 0; r < comm->size; r++) {
        all[r] = r;
        if (r / 2 == comm->rank / 2) in_row[nrow++] = r;
        if (r % 2 == comm->rank % 2) in_column[ncolumn++] = r;
    }
    CHECK(row->size == nrow && column->size == ncolumn);
    CHECK(in_row[row->rank] == comm->rank && in_column[column->rank] == comm->rank);
    for (int round = 0; round < 40; round++) {
        if (check_sum(context, row, in_row, round, round % 3 == 0)) return 1;
        if (round % 2 == comm->rank / 2 % 2 && check_sum(context, row, in_row, round, false)) return 1;
        if (check_sum(context, column, in_column, round, round % 3 == 1)) return 1;
        if (round % 5 == 0 && check_sum(context, comm, all, round, true)) return 1;
    }
    row->driver->close(row);
    column->driver->close(column);
    return 0;
}

/* More communicators one after the other than there can be at once. */
static int split_again_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm, *part, *nested;
    for (int round = 0; round < 70; round++) {
        int members[MAX_RANKS], n = 0;
        const int ways = 1 + round % 3;
        CHECK(comm->driver->split(comm, comm->rank % ways, &part) == RT_OK, "round %d: %s", round, comm->why);
        CHECK(part->driver->split(part, 0, &nested) == RT_OK);
        for (int r = comm->rank % ways; r < comm->size; r += ways) members[n++] = r;
        if (round % 2) part->driver->close(part);
        if (check_sum(context, nested, members, round, round % 4 == 0)) return 1;
        if (round % 2 == 0) part->driver->close(part);
        nested->driver->close(nested);
    }
    return 0;
}

/* Ranks that are in different numbers of communicators split together. */
static int split_unevenly_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm, *part, *deeper = NULL, *late;
    const int half = comm->rank % 2;
    int all[MAX_RANKS], in_part[MAX_RANKS], n = 0;
    for (int r = 0; r < comm->size; r++) {
        all[r] = r;
        if (r % 2 == half) in_part[n++] = r;
    }
    CHECK(comm->driver->split(comm, half, &part) == RT_OK);
    if (half == 0) CHECK(part->driver->split(part, 0, &deeper) == RT_OK);
    CHECK(comm->driver->split(comm, 0, &late) == RT_OK);
    for (int round = 0; round < 20; round++) {
        if (deeper && check_sum(context, deeper, in_part, round, round % 2 == 0)) return 1;
        if (round % 4 == 0 && check_sum(context, late, all, round, false)) return 1;
        if (check_sum(context, part, in_part, round, round % 2 == 1)) return 1;
    }
    if (deeper) deeper->driver->close(deeper);
    part->driver->close(part);
    late->driver->close(late);
    return 0;
}

/* Failure */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The last rank gives up while the others wait for it in different calls. */
static int abort_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm;
    const int last = comm->size - 1;
    static int64_t data[100000]; /* more than a transport may buffer */
    if (comm->size == 1) return 0;
    CHECK(comm->driver->alive(comm) == RT_OK);
    CHECK(comm->driver->barrier(comm) == RT_OK);
    const double start = seconds();
    if (comm->rank == last) {
        usleep(20000);
        comm->driver->abort(comm);
        return 0;
    }
    int status;
    if (comm->rank % 3 == 0)
        status = comm->driver->all_reduce(comm, data, data, 4, RT_I64, RT_SUM);
    else if (comm->rank % 3 == 1)
        status = comm->driver->receive(comm, data, sizeof data, last);
    else
        status = comm->driver->send(comm, data, sizeof data, last);
    CHECK(status == RT_ERROR_PEER, "status %d", status);
    CHECK(comm->driver->alive(comm) == RT_ERROR_PEER);
    CHECK(comm->driver->barrier(comm) == RT_ERROR_PEER);
    CHECK(seconds() - start < 2);
    return 0;
}

/* The last rank gives up while the others wait for what they have posted. */
static int abort_posted_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm;
    const int last = comm->size - 1;
    struct rt_request request;
    static char data[1000000];
    if (comm->size == 1) return 0;
    CHECK(comm->driver->barrier(comm) == RT_OK);
    const double start = seconds();
    if (comm->rank == last) {
        usleep(20000);
        comm->driver->abort(comm);
        return 0;
    }
    int status = comm->rank % 2 ? comm->driver->post_receive(comm, data, sizeof data, last, &request)
                                : comm->driver->post_send(comm, data, sizeof data, last, &request);
    if (!status) status = comm->driver->wait(comm, &request);
    CHECK(status == RT_ERROR_PEER, "status %d", status);
    CHECK(seconds() - start < 2);
    return 0;
}

/* Ranks that call different collectives are told so, all of them. */
static int mismatch_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm;
    float data[8] = {0}, all[8 * MAX_RANKS];
    size_t bytes[MAX_RANKS];
    if (comm->size == 1) return 0;
    for (int r = 0; r < comm->size; r++) bytes[r] = sizeof data;
    int status = comm->rank == 1 ? comm->driver->all_gather(comm, all, data, bytes)
                                 : comm->driver->all_reduce(comm, data, data, 8, RT_F32, RT_SUM);
    CHECK(status == RT_ERROR_USAGE, "status %d", status);
    CHECK(strstr(comm->why, "rank 1 all-gather"), "%s", comm->why);
    return 0;
}

/* A NaN of any rank is the result of a maximum and of a minimum. */
static int nan_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm;
    for (int who = 0; who < comm->size; who++)
        for (int reduce = RT_SUM; reduce <= RT_MIN; reduce++) {
            float data[2] = {comm->rank == who ? __builtin_nanf("") : (float)comm->rank, 1};
            CHECK(comm->driver->all_reduce(comm, data, data, 2, RT_F32, (enum rt_reduce)reduce) == RT_OK);
            CHECK(data[0] != data[0] && data[1] == data[1], "rank %d", who);
        }
    return 0;
}

/* Many more ranks than cores. */
static int crowd_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm;
    double sum = 0;
    for (int round = 0; round < 3; round++) {
        double data[100];
        for (int i = 0; i < 100; i++) data[i] = comm->rank * 0.1 + i;
        CHECK(comm->driver->all_reduce(comm, data, data, 100, RT_F64, RT_SUM) == RT_OK);
        sum = 7;
        for (int r = 0; r < comm->size; r++) sum = r == 0 ? 7.0 : sum + (r * 0.1 + 7);
        CHECK(data[7] == sum);
    }
    return 0;
}

/* A rank that waits long for another sleeps until the other has come: it does not look again and again. */
static int late_case(struct rank_context *context) {
    struct rt_comm *comm = context->comm;
    struct rusage before, after;
    char byte = 0;
    for (int kind = 0; kind < 3; kind++) {
        CHECK(comm->driver->barrier(comm) == RT_OK);
        if (comm->rank == 0) usleep(200000);
        CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
        if (kind == 0) CHECK(comm->driver->barrier(comm) == RT_OK);
        if (kind == 1) CHECK(comm->driver->broadcast(comm, &byte, 1, 0) == RT_OK);
        if (kind == 2 && comm->rank == 0) CHECK(comm->driver->send(comm, &byte, 1, 1) == RT_OK);
        if (kind == 2 && comm->rank == 1) CHECK(comm->driver->receive(comm, &byte, 1, 0) == RT_OK);
        CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
        const long sleeps = after.ru_nvcsw - before.ru_nvcsw;
        CHECK(sleeps < 100, "%ld times", sleeps);
    }
    return 0;
}

struct test_case {
    const char *name;
    rank_fn *function;
    bool fatal; /* ends the job */
    bool host;  /* of communicators of the host only: on a device they are not split, nor are calls compared */
};

static const struct test_case cases[] = {
    {"all-reduce", all_reduce_case, false, false},
    {"all-gather", all_gather_case, false, false},
    {"sums", sums_case, false, false},
    {"gathers", gathers_case, false, false},
    {"reduce-scatter", reduce_scatter_case, false, false},
    {"all-to-all", all_to_all_case, false, false},
    {"broadcast", broadcast_case, false, false},
    {"send and receive", ring_case, false, false},
    {"posted transfers", posted_case, false, false},
    {"crossing transfers", crossing_case, false, false},
    {"split unevenly", split_unevenly_case, false, true},
    {"split", split_case, false, true},
    {"split again", split_again_case, false, true},
    {"abort", abort_case, true, false},
    {"abort of posted transfers", abort_posted_case, true, false},
    {"different calls", mismatch_case, true, true},
    {"nan", nan_case, false, false},
};
#define CASES (sizeof cases / sizeof *cases)

struct test_run {
    const struct test_case *test;
    enum transport transport;
    int ranks;
    char name[64];
};

static void run_case(void **state) {
    const struct test_run *run = *state;
    make_expected(run->ranks);
    assert_int_equal(run_ranks(run->transport, run->ranks, SYMMETRIC, run->test->function, NULL), 0);
}

static void crowd(void **state) {
    assert_int_equal(run_ranks(LOOPBACK, 64, 4096, crowd_case, NULL), 0);
    assert_int_equal(run_ranks(SHM, 64, 0, crowd_case, NULL), 0);
}

static void long_waits_sleep(void **state) {
    for (int t = LOOPBACK; t <= SHM; t++)
        assert_int_equal(run_ranks((enum transport)t, 2, SYMMETRIC, late_case, NULL), 0);
}

static void ranks_that_disagree_on_the_job_are_refused(void **state) {
    struct rt_comm *comm, *other;
    void *segment = calloc(1, rt_comm_shared_bytes(3, 64) + 64);
    void *at = (void *)(((uintptr_t)segment + 63) / 64 * 64);
    assert_int_equal(rt_comm_open_shared(&comm, at, 0, 2, 64), RT_OK);
    assert_int_equal(rt_comm_open_shared(&other, at, 1, 3, 64), RT_ERROR_MISMATCH);
    assert_int_equal(rt_comm_open_shared(&other, at, 1, 2, 128), RT_ERROR_MISMATCH);
    assert_int_equal(rt_comm_open_shared(&other, at, 2, 2, 64), RT_ERROR_USAGE);
    comm->driver->close(comm);
    free(segment);
}

/* As a rank of an MPI job: test_comm HOSTS CASE.. runs the cases named, one after the other; "*" is all that leave the
 * job intact. */
static int run_as_rank(int ncases, char **names, const char *hosts) {
    struct rank_context context = {0};
    struct rt_mpi_job *job;
    int failed = mpi_ranks_open(hosts, SYMMETRIC, &job, &context.comm);
    if (failed) return 1;
    make_expected(context.comm->size);
    for (int i = 0; i < ncases && !failed; i++)
        for (size_t c = 0; c < CASES && !failed; c++) {
            const bool all = strcmp(names[i], "*") == 0;
            if (all ? cases[c].fatal : strcmp(names[i], cases[c].name) != 0) continue;
            failed = cases[c].function(&context);
            if (failed)
                fprintf(stderr, "%s, rank %d of %s: %s\n", cases[c].name, context.comm->rank, hosts, context.why);
        }
    if (failed) context.comm->driver->abort(context.comm);
    printf("rank %d %s\n", context.comm->rank, failed ? "failed" : "passed");
    fflush(stdout);
    const bool aborted = context.comm->driver->alive(context.comm) != RT_OK;
    if (aborted)
        sleep(2); /* MPICH's launcher kills the others as soon as one leaves: they have to say how they ended */
    if (!aborted) context.comm->driver->close(context.comm);
    rt_mpi_job_close(job, aborted);
    return failed;
}

static int run_here(void) {
    static struct test_run runs[CASES * TRANSPORTS * 5];
    static struct CMUnitTest tests[CASES * TRANSPORTS * 5 + 3];
    static const int rank_counts[] = {1, 2, 3, 4, 8};
    size_t n = 0;
    for (int c = 0; c < 5; c++) /* ranks outermost: expected results are kept for one number of ranks */
        for (size_t i = 0; i < CASES; i++)
            for (int t = SELF; t < TRANSPORTS; t++) {
                if (t == SELF && rank_counts[c] != 1) continue;
                if (rank_layer && (t != LOOPBACK || cases[i].host)) continue;
                struct test_run *run = &runs[n];
                *run = (struct test_run){&cases[i], (enum transport)t, rank_counts[c], ""};
                snprintf(run->name, sizeof run->name, "%s, %s, %d ranks", cases[i].name, transport_names[t],
                         rank_counts[c]);
                tests[n++] = (struct CMUnitTest){.name = run->name, .test_func = run_case, .initial_state = run};
            }
    if (!rank_layer) tests[n++] = (struct CMUnitTest)cmocka_unit_test(crowd);
    if (!rank_layer) tests[n++] = (struct CMUnitTest)cmocka_unit_test(long_waits_sleep);
    if (!rank_layer) tests[n++] = (struct CMUnitTest)cmocka_unit_test(ranks_that_disagree_on_the_job_are_refused);
    return _cmocka_run_group_tests("comm", tests, n, NULL, NULL);
}

int main(int argc, char **argv) {
    make_inputs();
    const int failed = argc > 2 ? run_as_rank(argc - 2, argv + 2, argv[1]) : run_here();
    for (int t = 0; t < RT_DTYPE_COUNT; t++) {
        for (int r = 0; r < MAX_RANKS; r++) free(input[t][r]);
        for (int reduce = 0; reduce < 3; reduce++) free(expected[t][reduce]);
    }
    return failed;
}
