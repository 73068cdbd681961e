/* Runs a function on every rank of a job, whatever the transport, and collects what went wrong. */
#ifndef RANKS_H
#define RANKS_H

#include "comm.h"

#include <stdio.h>

enum transport { SELF, LOOPBACK, SHM, TRANSPORTS };
extern const char *const transport_names[TRANSPORTS];

/* A rank's function: 0, or 1 with `why` filled. */
struct rank_context {
    struct rt_comm *comm;
    const void *argument;
    unsigned char *memory; /* as much as symmetric memory, for a transport that has none */
    char why[512];
};
typedef int rank_fn(struct rank_context *context);

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (condition) break;                                                                                          \
        int check_used = snprintf(context->why, sizeof context->why, "%s:%d: %s: ", __FILE__, __LINE__, #condition);   \
        if (check_used < (int)sizeof context->why)                                                                     \
            snprintf(context->why + check_used, sizeof context->why - (size_t)check_used, " " __VA_ARGS__);            \
        return 1;                                                                                                      \
    } while (0)

/* A transport above one of these: open makes a rank's communicator from `host`, close closes it, not the host's. A
 * program that is linked with one sets rank_layer; the functions then get its communicators. */
struct rank_layer {
    int (*open)(struct rt_comm *host, struct rt_comm **out, void **kept);
    void (*close)(struct rt_comm *comm, void *kept);
};
extern const struct rank_layer *rank_layer;

/* Ranks are threads (LOOPBACK), processes that each map a memfd (SHM), or the caller (SELF, one rank). Returns how
 * many failed and prints why. */
int run_ranks(enum transport transport, int ranks, size_t symmetric, rank_fn *function, const void *argument);

#endif
