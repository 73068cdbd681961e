/* Device "host": arenas in the process' memory; segments are plain function calls. */
#include "comm/reduce.h"
#include "core/private.h"

#include <string.h>
#include <sys/mman.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one table have the parameters of all */

static int open_host(struct rt *rt, const struct rt_options *options) {
    return RT_OK;
}

static void close_host(struct rt *rt) {}

/* Huge pages where the kernel has them: models whose kernels move many bytes for few operations take 3 to 5 % less
 * time. Pages are populated at open, before Linux 5.14 by writing zeros, so that no step takes page faults. Those of
 * weights are faulted in by the threads that load them; those of a program whose sizes are chosen by each call by the
 * first call that needs them, since most may never. */
static void *allocate(struct rt *rt, enum rt_arena arena, size_t bytes) {
    const bool later = arena == RT_WEIGHTS || rt->program->nsizes;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (arena == RT_WEIGHTS || !later) madvise(memory, bytes, MADV_HUGEPAGE);
    if (!later && madvise(memory, bytes, MADV_POPULATE_WRITE)) memset(memory, 0, bytes);
    return memory;
}

static void release(struct rt *rt, void *memory, size_t bytes) {
    munmap(memory, bytes);
}

static int copy_bytes(struct rt *rt, void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
    return RT_OK;
}

static int zero(struct rt *rt, void *memory, size_t bytes) {
    memset(memory, 0, bytes);
    return RT_OK;
}

static int copy_where(struct rt *rt, void *dst, const void *src, size_t bytes, enum rt_control control) {
    if (!(rt->internal->control[control] > 0)) return zero(rt, dst, bytes);
    return dst == src ? RT_OK : copy_bytes(rt, dst, src, bytes);
}

static int copy_rows(struct rt *rt, const struct rt_copies *rows) {
    const int64_t *count = rows->count, *to = rows->to_stride, *from = rows->from_stride;
    for (int64_t i = 0; i < count[0]; i++)
        for (int64_t j = 0; j < count[1]; j++)
            for (int64_t k = 0; k < count[2]; k++)
                memcpy((unsigned char *)rows->to + i * to[0] + j * to[1] + k * to[2],
                       (const unsigned char *)rows->from + i * from[0] + j * from[1] + k * from[2], rows->bytes);
    return RT_OK;
}

static int add(struct rt *rt, void *dst, const void *src, int64_t count, enum rt_dtype dtype) {
    rt_reduce_ordered(&dst, 1, (const void *const[]){dst, src}, 2, (size_t)count, dtype, RT_SUM);
    return RT_OK;
}

static int connect(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out) {
    *out = host;
    return RT_OK;
}

static int run(struct rt *rt, const struct rt_segment *segment) {
    return segment->run(rt);
}

static int finish(struct rt *rt) {
    return RT_OK;
}

const struct rt_device rt_host = {.name = "host",
                                  .open = open_host,
                                  .close = close_host,
                                  .allocate = allocate,
                                  .release = release,
                                  .put = copy_bytes,
                                  .get = copy_bytes,
                                  .zero = zero,
                                  .copy_where = copy_where,
                                  .copy = copy_rows,
                                  .add = add,
                                  .connect = connect,
                                  .run = run,
                                  .finish = finish};
