/* Internals of struct rt, shared by the runtime's own files. */
#ifndef RT_PRIVATE_H
#define RT_PRIVATE_H

#include "base/io/file.h"
#include "base/number/hash.h"
#include "base/shape/bucket.h"
#include "base/text/reason.h"
#include "generated.h"

/* Codes of the runtime's diagnostics, printed as E0NNN. */
enum rt_code {
    RT_CODE_USAGE = 200,
    RT_CODE_LINK = 362, /* a symbolic or hard link where links are not followed */
    RT_CODE_MACHINE = 396,
    RT_CODE_DATA = 382, /* data out of a kernel's range, such as an index */
    RT_CODE_MEMORY = 500,
    RT_CODE_FULL = 508,   /* a cache has no room for the rows of a step */
    RT_CODE_GROUPS = 503, /* the scale units cannot be divided into the ZeRO groups */
    RT_CODE_OPEN = 601,
    RT_CODE_CHANGED = 604, /* a file changed while it was read */
    RT_CODE_MANIFEST = 605,
    RT_CODE_MODEL = 608, /* the model's file cannot be opened */
    RT_CODE_WRITE = 611,
    RT_CODE_BUSY = 701,
    RT_CODE_SOURCE_CHANGED = 802,
    RT_CODE_FORMAT = 803,
    RT_CODE_CHECKPOINT = 805,
    RT_CODE_STATELESS = 807, /* a program without state is to generate */
    RT_CODE_WORLD = 901,
    RT_CODE_KEY = 902,
    RT_CODE_ABSENT = 903, /* a rank did not join in time */
    RT_CODE_PLACE = 904,  /* invalid rendezvous */
    RT_CODE_SEGMENT = 905,
    RT_CODE_DEVICE = 906,
    RT_CODE_TOKEN = 907, /* token of a rendezvous */
    RT_CODE_RANK = 911,
    RT_CODE_STALL = 912,
    RT_CODE_CALLS = 913,
    RT_CODE_LOSS = 914,
    RT_CODE_INPUT = 915,
    RT_CODE_TRACE = 916,  /* a trace without some of its events */
    RT_CODE_LOGITS = 917, /* logits from which no token can be chosen */
};

/* Sums over a communicator in the background: a bucket of gradients that are complete but not handed to the transport.
 * begun: sums of earlier buckets have begun and not been waited for. */
struct rt_sum {
    struct rt_bucket bucket;
    bool begun;
};

/* A training step between backward and update. Its gradients can be computed again: parameters are unchanged. */
struct rt_attempt {
    const void *const *const *samples;
    const unsigned char *is_dummy;
    const struct rt_scale *scale;
    /* Computes and reduces the gradients again, from the same parameters and samples. Collective. */
    int (*repeat)(struct rt *rt, const struct rt_attempt *attempt);
};

struct rt_json_document;

/* Observes the instructions of a rank, between rt_observe and rt_observe_end. `begins` is called before an
 * instruction begins; -1: none is current. While an observer that reads values is there, sums of gradients do not
 * overlap computation: values of finished instructions may be read. Such an observer is told of a posted receive when
 * it is waited for, and of a posted send when it is posted. */
struct rt_observer {
    void (*begins)(struct rt_observer *observer, struct rt *rt, int instruction);
    bool reads_values;
    struct rt_observer *next; /* set by rt_observe */
};

struct rt_private {
    char error[512];
    int code;      /* of the last error: enum rt_code */
    bool told;     /* another rank reports the cause */
    bool agreed;   /* all ranks end with this error: none waits for this one */
    int failed_at; /* 1 + the instruction of the step that failed with this error; 0: none */
    const char *directory;
    bool owns_comm;
    bool embedded;                         /* rt_run_threads closes the rank */
    bool misclosed;                        /* the caller has tried to close it while it was used */
    int local_rank;                        /* number of this rank among those of its machine */
    int local_world;                       /* ranks on this machine; 0: the launcher does not say */
    bool json;                             /* warnings are printed as JSON */
    bool broadcast_weights;                /* as in struct rt_options */
    bool progress;                         /* as in struct rt_options */
    struct rt_meeting *meeting;            /* rendezvous of ranks that were started one by one; else NULL */
    struct rt_mpi_job *mpi;                /* with --comm mpi; else NULL */
    int segment;                           /* descriptor of the host's shared memory with --comm mpi; else -1 */
    struct rt_comm *split[RT_LAYOUT_AXES]; /* the ranks of rt->axis, for buffers in the process' memory */
    struct saving *saving;                 /* begun by rt_save_begin; else NULL */
    unsigned char *copy;                   /* for saves in the background, kept from one to the next; NULL: none yet */
    size_t copy_bytes;
    struct checkpoint_directory *checkpoints; /* locked by rank 0 until rt_close; else NULL */
    void *mapping;                            /* of the shared segment, if this rank mapped it; else NULL */
    size_t mapping_bytes;
    int64_t sizes[RT_MAX_SIZES]; /* of the steps that follow; the rows that are kept */
    bool state_changed;          /* a step has been executed since states were reset */
    int64_t *extents;            /* rt->extents */
    int64_t *most_extents;       /* those of the largest sizes */
    size_t *counts;              /* two arrays of `world` entries: arguments of collectives */
    const void **given;          /* inputs of the current step, then the controls */
    const struct rt_call *call;  /* what is executed of the current step; NULL: no step is executed */
    bool ahead;                  /* the step is not waited for */
    double control[RT_CONTROLS];
    int adapter;       /* the chosen one; -1: none */
    struct rt_hashed { /* the file whose hash was found last, which takes long, and that hash */
        struct rt_file_info info;
        char hash[RT_HASH_HEX];
    } hashed;
    double lr; /* learning rate without the schedule's factor */
    struct rt_lr_schedule schedule;
    double norm, norm_scale; /* gradient norm of the last update, and RT_RESCALE at that time */
    int64_t passes;          /* training forward passes since gradients were set to zero */
    bool computed;           /* a backward phase has begun since gradients were set to zero or the update */
    bool reduced;            /* gradients were reduced since the last backward */
    bool summed;             /* their sums over ranks lie in the place of the rank's own: zero_grad comes next */
    bool apart;              /* weights that are scale units' own may differ since rt_take_first_unit */
    bool lost;               /* an inference step has overwritten the gradients, or their sums over ranks */
    bool last;               /* the current backward phase is, or may be, the last before gradients are reduced */
    bool known;              /* the current backward phase is certainly the last: sums along mesh axes begin in it */
    bool overlaps;           /* sums along replica axes begin in the current backward phase */
    struct rt_sum sum[RT_LAYOUT_AXES]; /* one per axis */
    int chunk;                         /* of the current row, by the rank's own numbers */
    int micro;                         /* micro-batch of the current row */
    int forwarded[RT_MAX_CHUNKS];      /* by chunk: micro-batch of its last forward segment */
    void **joined; /* per output: memory for its micro-batches where the caller gives none; NULL: not needed so far */
    /* per end of a transfer, slot and peer: [(end * most slots + slot) * most_peers + peer] */
    struct rt_request *requests;
    int most_peers; /* the most ranks at the other end of one of them */
    struct rt_reduce_hooks hooks;
    int64_t trained;       /* training steps begun */
    int64_t micro_batches; /* micro-batches of these steps, of all scale units */
    int accumulate;        /* micro-batches per step and scale unit */
    double *losses;        /* of these, in rt_train_batch */
    double *weights;       /* of these, with rt_training.elements: of their labels, as bytes until count_weights */
    struct rt_observer *observers;
    /* If not NULL, called before the update of a training step whose loss or gradient norm is not finite on at least
     * one rank. Called on all ranks. */
    int (*inspect)(void *inspector, struct rt *rt, const struct rt_attempt *attempt);
    void *inspector;
    int64_t bytes[RT_ARENAS]; /* of each arena, slices of flat cuts included */
    int64_t *flat_at;         /* of each of rank_class->flats: offset of its slice in its arena */
    void *owned[RT_ARENAS];   /* arenas allocated by this rank, released by rt_close; NULL: the communicator's */
};

/* rt_fail with an explicit enum rt_code. */
int rt_fail_code(struct rt *rt, int status, int code, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Records that a call has NULL in place of `argument`, and returns RT_ERROR_USAGE; rt may be NULL. */
int rt_refuse_null(struct rt *rt, const char *argument);
#define RT_NEEDS(rt, argument)                                                                                         \
    do                                                                                                                 \
        if (!(argument)) return rt_refuse_null(rt, #argument);                                                         \
    while (0)

/* rt_fail_code where there is no struct rt: the error of this thread, which rt_error(NULL) returns. */
int rt_fail_open(int status, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The status of a library call where a command would end with that exit code. */
int rt_status_of_exit(enum exit_code exit);

/* Records why a function of base/ refused a file, as rt_reason_report() says, and returns the status. `what` precedes
 * the text about malformed content: the name of the file, or a description of it; NULL: nothing. */
int rt_fail_reason(struct rt *rt, const char *what, struct rt_report content, const struct rt_reason *why);

/* Records that memory is exhausted (E0500), and returns RT_ERROR_SYSTEM. */
int rt_fail_memory(struct rt *rt);

/* Prints a warning to stderr. */
void rt_warn(const struct rt *rt, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Text of the last error of `rt` without the node, which rt_error appends. */
const char *rt_error_text(const struct rt *rt);

/* Code of the last error of `rt`; with NULL, of the last failed rt_open of this thread. */
int rt_error_code(const struct rt *rt);

/* True if another rank reports the cause of that error: this rank prints nothing. */
bool rt_error_told(const struct rt *rt);

/* True if all ranks fail with that error, by what they compared: none has to be told, and each closes as after
 * success. */
bool rt_error_agreed(const struct rt *rt);

/* Observers are called in the order in which they were added. */
void rt_observe(struct rt *rt, struct rt_observer *observer);
void rt_observe_end(struct rt *rt, struct rt_observer *observer);

/* True while an observer reads values. */
bool rt_values_are_read(const struct rt *rt);

/* Joins the job's communicator: rt->rank, world, comm. */
int rt_join(struct rt *rt, const struct rt_options *options);

/* Rank numbers from a launcher's environment variables. local: number among the ranks of this machine, `rank` if the
 * launcher does not set it; local_world: how many these are, 0 if not set. Returns false where no launcher's variables
 * are set. `why` is empty unless they are wrong: then it names the variable and its value. */
struct rt_seat {
    int rank, world, local, local_world;
};
bool rt_seat_from_environment(struct rt_seat *seat, struct rt_reason *why);

/* Gives all scale units the first one's values of the weights that are units' own. Collective. */
int rt_take_first_unit(struct rt *rt);

/* Fills RT_WEIGHTS: from the files of location.json, or from the slices in weights/. */
int rt_load_weights(struct rt *rt);

/* Takes the adapter of that name, NULL: the first, for rt_load_weights. RT_ERROR_USAGE: there is none of the name. */
int rt_take_adapter(struct rt *rt, const char *name);

/* Reads manifest.json of the program's directory, and checks its hash and that it is this program's; the caller frees
 * it. */
int rt_manifest_read(struct rt *rt, struct rt_json_document **manifest);

/* Records that rt_close was called, and refused, while the rank is used (`misclosed`); RT_ERROR_USAGE. */
int rt_refuse_close(struct rt *rt);

/* Enclose every call that executes instructions. rt_begin_step counts the step, reports it to the launcher, sets the
 * kernels' thread count and returns the previous count, which rt_end_step restores. rt_end_step waits for the device; a
 * failure aborts the job. Returns the step's status. */
int rt_begin_step(struct rt *rt);
int rt_end_step(struct rt *rt, int threads, int status);

/* Abandons what rt_save_begin began, if anything; nothing of it remains. */
void rt_drop_save(struct rt *rt);
/* Frees the memory that saves in the background keep. */
void rt_free_copy(struct rt_private *private);
/* Releases the lock of rt_hold_checkpoints; NULL: nothing. */
void rt_release_checkpoints(struct checkpoint_directory *held);

/* True for an arena that lies in symmetric memory, so that peers reach it: COMMUNICATION, and GRADIENTS unless sums of
 * gradients are cut flat. rt_symmetric_bytes: the bytes of these arenas, which lie in the order of enum rt_arena. */
bool rt_reaches(const struct rt_rank_class *rank_class, enum rt_arena arena);
size_t rt_symmetric_bytes(const struct rt_rank_class *rank_class);

/* Before the arenas are opened: computes their sizes, and where the slices of flat cuts lie. rt_flat_find: afterwards,
 * sets rt->slice. */
int rt_flat_open(struct rt *rt);
void rt_flat_find(struct rt *rt);

/* What a rank stores of its part of a tensor, row-major: elements [start, start + count) at offset `at` of the arena.
 * All of the part, or the rank's slice of it. `place`: the tensor's entry in the rank class, not RT_ABSENT; `slices`:
 * as rt_flat_slice takes it, 0 for a tensor in `arena`; `elements`: of the part. count is -1 if the entry does not
 * belong to such a slice. */
struct rt_stored {
    enum rt_arena arena;
    size_t at;
    int64_t start, count;
};
struct rt_stored rt_stored_part(const struct rt *rt, enum rt_arena arena, size_t place, unsigned slices,
                                int64_t elements);

/* Completes a part that is cut flat along `axes`: `part` has room for all its elements, in the process' memory, and the
 * rank has put its slice in its place there. Collective over the ranks along these axes. */
int rt_complete_part(struct rt *rt, void *part, enum rt_dtype dtype, int64_t elements, unsigned axes);

/* Size to allocate for an arena: never 0, so that every arena has an address. */
size_t rt_arena_bytes(const struct rt *rt, int arena);

/* Copies within the arenas; dst may be src. */
int rt_copy_bytes(struct rt *rt, void *dst, const void *src, size_t bytes);

/* What is done before and after a segment, outside of the device; NULL: nothing. micro: its micro-batch. */
struct rt_around {
    int (*before)(struct rt *rt, void *context, int micro);
    int (*after)(struct rt *rt, void *context, int micro);
};

/* What a call of the API executes of a step: the segments of some phases, for the first micro-batches. */
struct rt_call {
    unsigned phases; /* bit p: enum phase p */
    int micro_batches;
    const struct rt_around *around; /* by enum phase */
    void *context;                  /* of the functions in `around` */
};

/* Executes what belongs to the call of the class' step. */
int rt_execute(struct rt *rt, const struct rt_call *call);

/* A step of inference whose inputs the device fills (open_decoding), and for which this does not wait. */
int rt_infer_ahead(struct rt *rt);

/* rt_take_inputs passes the caller's tensors to input ports [first, first + n): segments read them in place, or they
 * are copied to the rank's arena. rt_give_outputs copies output ports [first, first + n) to the caller's memory, valid
 * once the device has finished. */
int rt_take_inputs(struct rt *rt, int first, int n, const void *const *inputs);
int rt_give_outputs(struct rt *rt, int first, int n, void *const *outputs);

/* rt_take_inputs for the program's inputs; each tensor has all micro-batches of the step, this one at its place. */
int rt_take_micro_batch(struct rt *rt, const void *const *inputs, int micro);

/* rt_output of the micro-batch of the current row. */
const void *rt_current_output(const struct rt *rt, int index);

/* After a forward segment: rt_give_outputs for the outputs that the rank's current chunk computes. Each tensor has all
 * micro-batches of the step, this one at its place. */
int rt_give_micro_batch(struct rt *rt, void *const *outputs, int micro);

/* What the training step that has just ended returns; losses: of this scale unit's micro-batches. Collective. */
int rt_find_train_result(struct rt *rt, const double *losses, struct rt_train_result *result);

/* Exchanges the parameters and their averages, if the program has them: before inference with the averages, and again
 * after it, which restores both. To be called between training steps. Collective over the job's ranks. */
int rt_exchange_averages(struct rt *rt);

/* The number of a scale unit's micro-batch among those of all scale units. */
static inline int64_t rt_numbered(const struct rt *rt, int64_t micro) {
    return micro * rt->units->size + rt->unit;
}

/* Micro-batches of rt_infer_step, and the port of the tensors that it takes or gives: those of all micro-batches. */
int rt_inferred_micro_batches(const struct rt_program *program);
/* core/sizes.c: sizes that are chosen at run time. */

/* The number of the extent that a port's dimension is; -1: it is fixed. */
static inline int rt_open_extent(int64_t dim) {
    return dim < 0 ? (int)(dim - INT64_MIN) : -1;
}
/* The port with the extents in place of their numbers. */
struct rt_port rt_port_at(const struct rt_port *port, const int64_t *extents);
void rt_most_sizes(const struct rt_program *program, int64_t *sizes);
bool rt_size_fits(const struct rt_size *size, int64_t value);
/* Writes "1 to 512". */
void rt_size_range(const struct rt_size *size, char *text, size_t room);
int rt_open_sizes(struct rt *rt);
/* Before a step: the extents for the rows that are kept so far; refuses a step for which there is no room. Behind it:
 * the rows that it has added are kept. */
int rt_begin_sizes(struct rt *rt);
void rt_end_sizes(struct rt *rt);
/* The value of a formula of sizes, such as "2 * batch", for the sizes of the current step; 0 if it is none. */
void rt_size_formula(const struct rt *rt, const char *text, int64_t *out);
/* Writes "; this rank has the sizes batch 2, seq 9"; nothing if sizes are fixed. */
void rt_sizes_text(const struct rt *rt, char *text, size_t room);

struct rt_port rt_whole_port(const struct rt_program *program, const struct rt_port *port, const int64_t *extents);
/* Bytes of an output of all micro-batches for all sizes at most, of which these are the largest sizes' extents; -1: too
 * many. */
int64_t rt_most_bytes(const struct rt_program *program, const struct rt_port *port, const int64_t *most_extents);

/* Frees the memory of joined outputs. */
void rt_free_joined(struct rt *rt);

/* True if all outputs of an inference step are in this rank's arenas after it. Not those of several micro-batches, nor
 * those that only another pipeline stage computes: they are copied during the step, or lost. */
bool rt_keeps_outputs(const struct rt *rt);

/* True if reductions along the axis begin in the current backward phase, or gathers in any phase. */
bool rt_begins_early(const struct rt *rt, int axis, enum rt_early kind);

/* True if collectives run beside products in runs of rows. */
bool rt_runs_beside(const struct rt *rt, const struct rt_comm *comm);

/* Copies a gradient that is to be reduced along the axis from src to dst, which may be src; a dummy's becomes zero.
 * Does nothing before the last micro-batch of a step. */
int rt_take_gradient(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t count);

/* begin of the transport; a complete gradient for an all-reduce, which may begin it (Note [Buckets] in core/sums.c);
 * the wait for all sums of the communicator that have begun. */
int rt_begin_collective(struct rt *rt, struct rt_comm *comm, const struct rt_collective *what);
int rt_put_in_bucket(struct rt *rt, struct rt_comm *comm, const void *gradient, enum rt_dtype dtype, int64_t count);
int rt_finish_sums(struct rt *rt, struct rt_comm *comm);

/* True if what is reduced along the axis may be the gradient of a dummy micro-batch, which counts as zero: along the
 * first replica axis; along the second it is the sum of several scale units' gradients. each_micro_batch: it is not the
 * sum of a step's micro-batches, from which dummies were left out already. */
bool rt_may_be_dummy(const struct rt *rt, int axis, bool each_micro_batch);

/* Called before each backward phase. last: it may be the last before gradients are reduced; known: this is certain. */
void rt_backward_begins(struct rt *rt, bool last, bool known);

/* Resets rescaling and clipping of gradients to the program's options. */
void rt_reset_gradients(struct rt *rt);

/* Number of axes of the program: mesh axes, then replica axes. */
int rt_layout_axes(const struct rt *rt);

/* The group along the pipeline axis. Its members are the ranks with this rank's other coordinates, by stage; where
 * stages are unequal the ranks of the scale unit, by shard (Note [Unequal stages] in base/shape/mesh.h).
 *
 *     rt_stage             this rank's coordinate on the pipeline axis; 0 without one
 *     rt_next_peer         the next member behind `before`, -1 at first, to which this rank sends what its stage sends
 *                          to `stage`, or from which it receives; -1: there is none
 *     rt_most_peers        the most peers of one of this rank's ends of transfers, at least 1
 *     rt_first_member      the member that broadcasts for the stage
 *     rt_speaks_for_stage  true if this rank does so among its group's members of its stage */
int rt_stage(const struct rt *rt);
int rt_next_peer(const struct rt *rt, int stage, bool sends, int before);
int rt_most_peers(const struct rt *rt);
int rt_first_member(const struct rt *rt, int stage);
bool rt_speaks_for_stage(const struct rt *rt);

/* The cut of a dimension along a mesh axis. */
struct rt_cut rt_cut_along(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t grain);

/* Ends a collective: records the error if status is not RT_OK, and returns status. */
int rt_end_collective(struct rt *rt, const struct rt_comm *comm, int status);

/* A job whose ranks are threads of the process: calls run(comm, context) for each of `world` ranks on a thread of its
 * own, where `comm` joins the ranks through memory of the process, and returns when all have returned. 0, or an errno
 * (ENOMEM, EAGAIN) if not all ranks could be started; those that were have then been aborted. */
int rt_spawn_ranks(const struct rt_program *program, int world, void (*run)(struct rt_comm *comm, void *context),
                   void *context);

#endif
