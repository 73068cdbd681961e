/* What the parts of rankc profile share: programs that are compiled and timed. */
#ifndef FRONTEND_CLI_PROFILE_H
#define FRONTEND_CLI_PROFILE_H

#include "frontend/cli/cli.h"
#include "passes/plan/machine/machine.h"
#include "runtime/base/io/progress.h"

struct profiling {
    struct cli *cli;
    const char *work;
    int64_t ranks, threads;
    bool gpu;     /* programs are compiled for target cuda, and read random inputs */
    int retries;  /* runs that may still be repeated because other programs used the processor */
    double load;  /* the most processors that others used in a run that was not repeated */
    int measured; /* probes until now, and in all rounds */
    int probes;
    struct rt_progress progress;
};
enum { PROFILE_ROUNDS = 2 };

/* Compiles a graph for that many ranks; its program is WORK/NAME/_. `rules`: where its nodes are computed; NULL: each
 * rank executes all of them. 0, or -1 after a diagnostic. */
int profile_compile(const struct profiling *p, const char *name, const char *graph, const char *rules, int64_t ranks);

/* Runs a compiled program, up to p->retries times more while other programs use the processor: seconds of the fastest
 * step, negative after a diagnostic. `trace`: a file for its events (docs/profile-a-step.md); NULL: none. */
double profile_run(struct profiling *p, const char *name, int64_t ranks, const char *trace);

/* Says what a round measured: seconds. */
void profile_tell(struct profiling *p, int round, const char *name, double seconds);

/* profile_exchanges.c: measures the collectives that have a bandwidth of their own, by so many probes in each round.
 * machine->level[0].link is known. 0, or -1 after a diagnostic. */
int profile_exchanges_count(const struct profiling *p);
int profile_exchanges(struct profiling *p, struct machine *machine);

/* profile_gpu.c: what is wrong before the first GPU is measured, an option of processors or something that is missing
 * here: 0, or -1 after a diagnostic. */
int profile_gpu_refuses(struct cli *cli);
/* Measures it. 0, or -1 after a diagnostic. */
int profile_gpu(struct profiling *p, struct machine *machine);

/* Arithmetic on the rows of rankc profile's tables of probes. A shape is a text such as "512,1024". */

double shape_extent(const char *shape, int dimension);
int shape_elements(const char *shape);

/* The extent at which half of a rate is reached, where the part that is reached is extent / (extent + half): from the
 * rate `fast` at the extent `most`, and `slow` at `least`. 0: the rate does not depend on the extent, or depends on it
 * in another way. */
double shape_half(double most, double fast, double least, double slow);

#endif
