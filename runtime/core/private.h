/* What the runtime's own files share about a struct rt. */
#ifndef RT_PRIVATE_H
#define RT_PRIVATE_H

#include "rt.h"

/* Codes of diagnostics that the runtime gives: E0NNN. */
enum rt_code {
    RT_CODE_USAGE = 200,
    RT_CODE_LINK = 362, /* a link where none is followed */
    RT_CODE_DATA = 382, /* a kernel met a value it cannot take */
    RT_CODE_MEMORY = 500,
    RT_CODE_OPEN = 601,
    RT_CODE_CHANGED = 604, /* a file, while it was read */
    RT_CODE_MANIFEST = 605,
    RT_CODE_MODEL = 608, /* the model's file, or what names it, cannot be opened */
    RT_CODE_WRITE = 611,
    RT_CODE_BUSY = 701,
    RT_CODE_SOURCE_CHANGED = 802,
    RT_CODE_FORMAT = 803,
    RT_CODE_CHECKPOINT = 805,
    RT_CODE_WORLD = 901,
    RT_CODE_KEY = 902,
    RT_CODE_ABSENT = 903, /* a rank that never joined the others */
    RT_CODE_PLACE = 904,  /* where ranks meet */
    RT_CODE_SEGMENT = 905,
    RT_CODE_DEVICE = 906,
    RT_CODE_TOKEN = 907, /* of a meeting */
    RT_CODE_RANK = 911,
    RT_CODE_CALLS = 913,
    RT_CODE_LOSS = 914,
    RT_CODE_INPUT = 915,
};

/* Of a communicator: gradients that are complete, the sum of which has not begun; whether others' has. */
struct rt_bucket {
    unsigned char *first;
    size_t bytes;
    enum rt_dtype dtype;
    bool begun;
};

/* A training step under way, before its update: what it has computed can be computed again. */
struct rt_attempt {
    const void *const *const *samples;
    const unsigned char *is_dummy;
    const struct rt_scale *scale;
    /* Gradients and their reduction anew, from the same parameters and samples. Collective. */
    int (*repeat)(struct rt *rt, const struct rt_attempt *attempt);
};

struct rt_json_document;

struct rt_private {
    char error[512];
    int code;  /* enum rt_code of that error */
    bool told; /* another rank reports it */
    const char *directory;
    bool owns_comm;
    int local_rank;                           /* on this machine */
    int local_world;                          /* ranks on this machine; 0: the launcher does not say */
    bool json;                                /* warnings are objects */
    struct rt_meeting *meeting;               /* with ranks that were started one by one; else NULL */
    struct rt_comm *split[RT_MAX_AXES];       /* the ranks of rt->axis, for memory of the process */
    struct checkpoint_directory *checkpoints; /* held until rt_close, by rank 0; else NULL */
    void *mapping;                            /* of the segment, where this rank mapped it */
    size_t mapping_bytes;
    size_t *counts;     /* by rank, twice: arguments of collectives */
    const void **given; /* inputs of the step under way, and controls */
    double control[RT_CONTROLS];
    double lr;               /* not scheduled */
    double norm, norm_scale; /* of the gradients of the last update, and what they were multiplied with */
    int64_t passes;          /* forward, in training, since gradients were zero */
    bool reduced;            /* gradients were, since the last backward */
    bool last;               /* the backward phase under way is, or may be, the last before that */
    bool known;              /* it is, and no other comes after it: sums along axes begin in it */
    bool overlaps;           /* sums over units do */
    struct rt_bucket bucket[RT_MAX_AXES + 1]; /* of each axis, and of the units */
    struct rt_reduce_hooks hooks;
    int64_t trained;       /* training steps begun */
    int64_t micro_batches; /* that these have had, of all units */
    int accumulate;        /* micro-batches of this unit in a step */
    /* Called at each instruction (rt_at) while it is set, with `watcher`. */
    void (*watch)(void *watcher, struct rt *rt, int site);
    void *watcher;
    /* Called on all ranks in a step whose loss or gradient norm is not finite on one of them, before its update; NULL:
     * nobody wants to know. */
    int (*inspect)(void *inspector, struct rt *rt, const struct rt_attempt *attempt);
    void *inspector;
    void *owned[RT_ARENAS]; /* arenas that rt_close releases */
};

/* rt_fail with the code of its diagnostic. */
int rt_fail_code(struct rt *rt, int status, int code, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Prints a warning to stderr: what is wrong, but ends nothing. */
void rt_warn(const struct rt *rt, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The code of the last error of `rt`, or where that is NULL of this thread's last failed rt_open. */
int rt_error_code(const struct rt *rt);

/* True if another rank reports what made that call fail. */
bool rt_error_told(const struct rt *rt);

/* Joins the job's communicator: rt->rank, world, comm. */
int rt_join(struct rt *rt, const struct rt_options *options);

/* What the environment of a launcher says of this rank; `local` is its number on its machine, by default `rank`, of
 * `local_world`, 0 where the launcher does not say. False where there is none. RT_ERROR_USAGE through *status where
 * what is set makes no sense. */
struct rt_seat {
    int rank, world, local, local_world;
};
bool rt_seat_from_environment(struct rt_seat *seat, int *status);

/* Fills RT_WEIGHTS: from the files of location.json, or from the slices in weights/. */
int rt_load_weights(struct rt *rt);

/* manifest.json of the program's directory, as it was generated; the caller frees it. */
int rt_manifest_read(struct rt *rt, struct rt_json_document **manifest);

/* Around every call that executes instructions: counts it for who watches, sets the threads; ends it with its status,
 * and the job if it failed. Returns what rt_end_step puts back. */
int rt_begin_step(struct rt *rt);
int rt_end_step(struct rt *rt, int threads, int status);

/* Gives up what rt_hold_checkpoints took; NULL: nothing. */
void rt_release_checkpoints(struct checkpoint_directory *held);

/* Never 0: an arena without bytes has an address too. */
size_t rt_arena_bytes(const struct rt *rt, int arena);

/* From one place in arenas to another, or to the same. */
int rt_copy_bytes(struct rt *rt, void *dst, const void *src, size_t bytes);

/* Executes a phase with the controls as they are. */
int rt_run_phase(struct rt *rt, int (*phase)(struct rt *rt));

/* What the caller gives as input port `port`: where phases find it, or a copy of it there. */
int rt_take_input(struct rt *rt, int port, const void *input);

/* The forward phase over the caller's inputs, and output ports [first, first + n) to the caller's memory, where they
 * are once the device has finished. */
int rt_run_forward(struct rt *rt, const void *const *inputs);
int rt_give_outputs(struct rt *rt, int first, int n, void *const *outputs);

/* Before a backward phase: whether it is the last before gradients are reduced, as far as is known. */
void rt_backward_begins(struct rt *rt, bool last, bool known);

/* Gradients are neither scaled nor clipped but as the program says. */
void rt_reset_gradients(struct rt *rt);

/* The cut of a dimension along a mesh axis. */
struct rt_cut rt_cut_along(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t unit);

/* Around every collective: tells who watches where this rank is, and gives the axis' communicator; records why it
 * failed.
 */
struct rt_comm *rt_enter_site(struct rt *rt, int site, int axis);
int rt_leave_site(struct rt *rt, const struct rt_comm *comm, int status);

#endif
