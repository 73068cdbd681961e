/* When each instruction and each communication call of a rank began and ended: --trace and --profile.
 *
 * Note [Traces]
 * A rank records events into memory while it executes a step of the window (--trace-steps): by an observer of its
 * instructions, and by tables of functions that are put before those of its communicators. Outside of the window
 * neither is there, and nothing is recorded. After the last step of the window, rank 0 collects the events of all ranks
 * over the communicator, brings their times to its own clock and writes them.
 *
 * Ranks on rank 0's host have its clock (CLOCK_MONOTONIC). Another host's is compared with it by messages: of several
 * exchanges the fastest counts, and rank 0's answer is taken to lie in its middle, as in NTP. */
#ifndef RT_PROGRAM_TRACE_H
#define RT_PROGRAM_TRACE_H

#include "program/main.h"

#include <stdio.h>

/* TRACE_SIZE: in front of a step's instructions, of each size that it chooses: `bytes` is size number `call`. */
enum trace_kind { TRACE_STEP, TRACE_INSTRUCTION, TRACE_CALL, TRACE_SIZE };

/* Functions of a transport, as of struct rt_comm_driver. */
enum trace_call {
    CALL_BARRIER,
    CALL_ALL_REDUCE,
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_ALL_TO_ALL,
    CALL_BROADCAST,
    CALL_COLLECTIVES,                  /* those above block until all ranks of the communicator have called them */
    CALL_SUM_BEGIN = CALL_COLLECTIVES, /* by enum rt_early */
    CALL_SCATTER_BEGIN,
    CALL_GATHER_BEGIN,
    CALL_SUM_FINISH,
    CALL_GATHER_FINISH,
    CALL_SEND,
    CALL_RECEIVE,
    CALL_POST_SEND,
    CALL_POST_RECEIVE,
    CALL_WAIT,
    TRACE_CALLS
};

enum { TRACE_COMMS = RT_LAYOUT_AXES + 1 }; /* of the layout's axes, and of all scale units */

struct trace_event {
    int64_t begin, end; /* ns of CLOCK_MONOTONIC; once collected, of rank 0's */
    int64_t bytes;      /* of a call: of the caller's operand */
    /* ns of a collective until its last rank called it; of CALL_WAIT and CALL_RECEIVE, all. Set when events are
     * collected. */
    int64_t waited;
    int32_t instruction; /* current one; -1: none */
    int32_t step, micro;
    uint8_t kind, call, comm, chunk; /* comm: < TRACE_COMMS */
};

/* The events of one rank. */
struct trace_part {
    struct trace_about {
        int64_t n, dropped; /* events; those for which there was no room */
        int64_t bytes[RT_ARENAS];
        int64_t offset, uncertain; /* ns to add to its times; how far that may be off */
        int32_t class;
        int32_t group[TRACE_COMMS]; /* lowest rank of the communicator */
        char host[128];
    } about;
    struct trace_event *events;
};

/* The events of all ranks, on rank 0. */
struct trace_all {
    int world;
    struct trace_part *parts;
};

/* trace_collect.c: collects the events of all ranks on rank 0, which releases all->parts. */
int trace_collect(struct rt *rt, const struct trace_part *mine, struct trace_all *all);
void trace_free(struct trace_all *all);

/* trace_names.c: names of instructions, from manifest.json. */
struct trace_names {
    int ninstructions, nclasses;
    struct trace_instruction {
        const char *node, *op;
        const char *module, *from; /* module, and line of source, of the exported program; NULL: unknown */
        char *layer;               /* Note [Layers of names] */
    } * instructions;
    struct trace_work {
        int phase;                           /* enum phase; -1: unknown */
        const struct rt_json *flops, *bytes; /* numbers, or formulas over the names of sizes; NULL: 0 */
        int64_t live[RT_ARENAS]; /* bytes that are live meanwhile, without slots: of activations and what follows */
    } * work;                    /* [class * ninstructions + instruction] */
    struct trace_kept {
        int64_t inputs; /* bytes of activations that are held during the whole step */
        int nslots;
        struct trace_slot {
            enum rt_slot_kind kind;
            int chunk;
            int64_t bytes[RT_ARENAS]; /* of one slot */
        } * slots;
    } * kept; /* of each class */
    int nsizes;
    const char *sizes[RT_MAX_SIZES];
};
extern const char *const trace_phases[];
bool trace_names_read(struct trace_names *names, const struct manifest *manifest, int nclasses);
void trace_names_free(struct trace_names *names);
/* Operations or bytes of an instruction in a step of these sizes. */
int64_t trace_amount(const struct trace_names *names, const struct rt_json *amount, const int64_t *sizes);

/* The memory of a rank, by arena, from `at` on. */
struct trace_memory {
    int64_t at; /* ns */
    int64_t bytes[RT_ARENAS];
};

/* trace_write.c: writes a file in the Trace Event Format, which Perfetto and chrome://tracing read. False: errno says
 * why. */
bool trace_write(const char *path, const struct trace_all *all, const struct trace_names *names, const char *title);

/* profile.c: where the time of the steps went. NULL: out of memory. */
struct profile *profile_make(const struct trace_all *all, const struct trace_names *names);
/* Compares with the peaks of a machine, of products of that type and of memory: `machine` is a machine file such as
 * `rankc profile` writes, or the text of one, which begins with "{". False, and `why`: it cannot be read. */
bool profile_compare(struct profile *profile, const char *machine, enum rt_dtype dtype, struct rt_reason *why);
/* The same with the machine of the compile (--machine), if there was one. */
void profile_compare_compiled(struct profile *profile, const struct manifest *manifest, enum rt_dtype dtype);

#endif
