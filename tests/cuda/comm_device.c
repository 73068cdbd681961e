/* Runs the conformance suite of transports (tests/runtime/test_comm.c) over the loopback of target cuda: each rank's
 * communicator is connected as that of a program is. On the stand-in memory of the GPU is memory of the process, and
 * with HOST_AT_ONCE streams have done their work when a call returns. */
#include "ranks.h"

#include "core/private.h"

#include <stdlib.h>

extern const struct rt_device rt_cuda_device;

/* A rank without a program. */
struct bare {
    struct rt rt;
    struct rt_private own;
    struct rt_program program;
};

static int open_device(struct rt_comm *host, struct rt_comm **out, void **kept) {
    struct bare *bare = *kept = calloc(1, sizeof *bare);
    if (!bare) return RT_ERROR_SYSTEM;
    bare->program.device = &rt_cuda_device;
    bare->rt.program = &bare->program;
    bare->rt.internal = &bare->own;
    bare->rt.comm = host;
    bare->rt.rank = host->rank;
    bare->rt.world = host->size;
    const int status = rt_cuda_device.open(&bare->rt, &(struct rt_options){0});
    return status ? status : rt_cuda_device.connect(&bare->rt, host, 0, out);
}

static void close_device(struct rt_comm *device, void *kept) {
    struct bare *bare = kept;
    device->driver->close(device);
    bare->rt.program->device->close(&bare->rt);
    free(bare);
}

__attribute__((constructor)) static void choose(void) {
    static const struct rank_layer layer = {open_device, close_device};
    rank_layer = &layer;
}
