/* Parts of rt_main(): a generated program as a command.
 *
 * Functions return an exit code of rankc, 0 for success, and describe an error in `struct failure`. Only rt_main prints
 * it, so that a job reports one error once. */
#ifndef RT_MAIN_H
#define RT_MAIN_H

#include "core/handshake.h"

#include "base/exit_code.h"
#include "base/text/json.h"
#include "base/npy.h"

#include <stdio.h>

struct failure {
    int exit, code;
    char text[512], where[256], help[256];
    bool told;   /* another rank reports the cause */
    bool agreed; /* all ranks end with it: none is to be stopped */
};

/* Set the text, place and help of a failure; return its exit code. */
int failure_set(struct failure *failure, int exit, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int failure_where(struct failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));
int failure_help(struct failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Describes a file that a function of base/ refused; `code` is for malformed content. */
int failure_reason(struct failure *failure, int code, const struct rt_reason *why);
/* Prints a failure to stderr, as text or JSON. */
void failure_print(const struct failure *failure, bool json);

/* Options */

struct main_options {
    const char *program;
    struct words {
        const char **at;
        int n;
    } inputs, data, eval_data; /* as given: NAME=FILE */
    struct words dims;         /* NAME=SIZE */
    struct words roles, stops; /* INPUT=ROLE; token ids */
    const char *output_dir, *comm, *kernels, *directory, *log, *checkpoint_dir, *resume, *rendezvous, *trace,
        *dump_tensors, *dump_dir, /* NULL: none; NULL: "dump" */
        *profile,                 /* machine file or ""; NULL: no profile */
        *generate, *report,       /* files: prompts, a socket; NULL: none */
        *save_state, *load_state, /* directories; NULL: none */
        *adapter;                 /* NULL: the first */
    int64_t trace_steps[2];       /* first and last; 0: those that come first */
    int threads, repeat, warmup, rank, world, steps, accumulate, shuffle, checkpoint_every, keep, eval_every,
        eval_steps, early_stop, join_timeout, stall_timeout, log_every;
    int random_inputs;               /* seed; -1: inputs without a file are an error */
    int max_new_tokens, top_k, seed; /* max_new_tokens 0: not given */
    const char *lr_schedule;
    double lr, temperature, top_p, min_p, repetition_penalty;
    bool ask, json, quiet, verbose, help, reset_optimizer, checkpoint_async, keep_best, eval_only, broadcast_weights;
    uint64_t given; /* bit i: row i of the table of options */
};

int options_parse(struct main_options *options, int argc, char **argv, struct failure *failure);
void options_free(struct main_options *options);
void options_print_help(const char *program);

/* Adds what must be the same on all ranks, as the table of options says. options_add_content: what a file of `option`
 * for an input contains, a text that ends with its hash; path NULL: random values. */
void options_add_terms(struct rt_terms *terms, const struct main_options *options);
void options_add_content(struct rt_terms *terms, const char *option, const char *name, const char *path,
                         const char *content);

/* Names */

/* manifest.json of the program's directory. */
struct manifest {
    char *directory;
    struct rt_json_document *document;
    const char **inputs, **outputs; /* names, in the order of the program's ports */
    int64_t *below;                 /* per input: its integers index a table of that many rows; 0: no such table */
    bool *ignores;                  /* per input: they are labels, of which those that are `ignored` do not count */
    int64_t *ignored;
};

int manifest_read(struct manifest *manifest, const struct rt_program *program, const char *directory,
                  struct failure *failure);
void manifest_free(struct manifest *manifest);

/* Sets the failure's place to the ONNX node that an instruction was generated from, if it is known. */
void manifest_place(const struct manifest *manifest, int instruction, struct failure *failure);

/* Tensors */

struct job;

/* "[2, 8]" */
struct shape_text {
    char text[RT_MAX_NDIM * 24];
};
struct shape_text shape_format(int ndim, const int64_t *dims);

/* NAME=FILE of `option` ("--input", "--data") names none of the inputs. Sets a failure, with the nearest name. */
int inputs_unknown(const char *option, const char *argument, const char *const *names, int count,
                   struct failure *failure);

/* Reads the --input files alone, converted to the types of their ports; other tensors stay without data, and sizes that
 * no file has are -1. */
int inputs_read_given(struct rt_tensor *inputs, const struct rt_program *program, const struct manifest *manifest,
                      const struct main_options *options, int64_t *sizes, struct failure *failure);

/* Reads the --input files into one tensor per port, converted to the port's dtype; its shape is checked. With
 * --random-inputs the others are made (rt_random_fill). sizes[]: the program's sizes, which follow from the shapes; the
 * largest where no given input says. */
int inputs_read(struct rt_tensor *inputs, const struct rt_program *program, const struct manifest *manifest,
                const struct main_options *options, int64_t *sizes, struct failure *failure);

/* Adds the contents of the inputs to what all ranks must agree on. */
void inputs_add_terms(struct rt_terms *terms, const struct job *job);

/* Allocates one tensor per output port, with room for the largest sizes. outputs_resize gives them the shapes of other
 * sizes. */
int outputs_allocate(struct rt_tensor *outputs, const struct rt_program *program, struct failure *failure);
int outputs_resize(struct rt_tensor *outputs, const struct rt_program *program, const int64_t *sizes,
                   struct failure *failure);
int outputs_write(const struct rt_tensor *outputs, const struct rt_program *program, const struct manifest *manifest,
                  const char *directory, struct failure *failure);
/* Makes the directory, and those above it. */
int outputs_directory(const char *path, struct failure *failure);
/* Cuts each output whose size depends on data to its valid elements (struct rt_port). */
void outputs_trim(struct rt_tensor *outputs, const struct rt_program *program);
void outputs_print(const struct rt_tensor *outputs, const struct rt_program *program, const struct manifest *manifest);

/* What generation took. */
struct spent {
    int64_t prompt_tokens, tokens; /* tokens: of the steps behind the prompt */
    double prompt_ms, ms;
};

/* New tokens of a generation; rank 0 has them. */
struct generated {
    int64_t rows, width; /* width: of the longest row */
    int64_t *ids;        /* [rows, width], padded behind a row's end */
    int64_t *made;       /* of each row */
    struct spent spent;
};

/* Ranks */

/* Shared by the ranks of this process. */
struct job {
    const struct rt_program *program;
    struct main_options options;
    struct manifest manifest;
    struct rt_tensor *inputs, *outputs;
    const void **input_data;
    int64_t sizes[RT_MAX_SIZES]; /* of the steps, from the shapes of the inputs */
    double *step_ms, *losses;    /* of nsteps timed steps, kept by rank 0 with record_step; losses: of training */
    int nsteps, steps_room;
    int64_t *peak_rss; /* of each rank in bytes, set by rank 0 */
    double load_ms;
    struct profile *profile;    /* set by rank 0; NULL: none */
    struct generated generated; /* by generation */
    int64_t first_step;         /* of training: the step of losses[0] */
    int threads;
    int watch;   /* of rt_watch_open; -1: none */
    int segment; /* descriptor of the ranks' shared memory from a rendezvous; else -1 */
};

/* One rank of this process. */
struct rank {
    struct job *job;
    struct rt_comm *joined; /* loopback: this thread's communicator */
    void **output_data;     /* rank 0: buffers for outputs; others: NULLs */
    void **no_outputs;      /* NULL per output, for steps whose outputs are not copied */
    bool first;             /* rank 0 of the job */
    struct trace *trace;    /* NULL: the rank is not traced */
    struct dump *dump;      /* NULL: no values are written */
    bool interrupted;       /* training or generation was ended by a signal; the same on all ranks */
    int status;
    struct failure failure;
};

/* Monotonic time in milliseconds. */
double now_ms(void);

/* Records the error of a call of the runtime (rt may be NULL: of rt_open) if it failed; returns its `status`. */
int check_rank(struct rank *self, const struct rt *rt, int status);
/* The same of a call of `comm`. */
int check_comm(struct rank *self, struct rt *rt, const struct rt_comm *comm, int status);

/* Record an error of this file's own, or of a file that base/ refused; return the status that corresponds to the exit
 * code. */
int fail_with(struct rank *self, int exit, int code, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* rt_agree for a rank of this process; ranks that are threads have their options and files in common. RT_OK, or a
 * status recorded in `self`. Collective. */
int ranks_agree(struct rank *self, struct rt *rt, const struct rt_terms *terms);

/* Records the time of a step, and its loss in training. Runs out of memory as fail_with does. reserve_steps: memory for
 * many steps; false: there is none. */
bool reserve_steps(struct job *job);
int record_step(struct rank *self, double ms, double loss);
int fail_reason(struct rank *self, int code, const struct rt_reason *why);

/* Handling of SIGINT, SIGTERM and SIGHUP in training: Note [Stopping] in main_stop.c. After stop_after_steps they
 * request the end of the run instead of ending the process. stop_allow: what begins now, such as a step, may take that
 * many ms after a signal, and at least STOP_MS; then the process ends. */
void stop_catch_signals(void);
void stop_after_steps(struct job *job);
void stop_allow(const struct job *job, double ms);
void stop_ends(void); /* the job's memory is about to be released */
bool stop_requested(void);

/* Prints the failure, ends the waits of the job's other ranks and exits. */
void end_job(const struct job *job, const struct failure *failure) __attribute__((noreturn));

/* Generates tokens from the prompts of --generate: RT_OK, or a status recorded in `self`. Collective over the job's
 * ranks. generated_give writes and prints the result on rank 0. */
int generate_tokens(struct rank *self, struct rt *rt);
int generated_give(const struct job *job, struct failure *failure);
void generated_free(struct generated *generated);

/* Least, median and greatest time of the steps, ms; zeros if no step was run, by a run resumed at its end. False: out
 * of memory. put_ms puts a time, put_step_times "step_ms" with all of them. */
struct times {
    double min, median, max;
};
bool find_times(const struct job *job, struct times *times);
void put_ms(struct rt_json_writer *writer, const char *key, double ms);
bool put_step_times(struct rt_json_writer *writer, const struct job *job);

/* Trains on --data up to step --steps: RT_OK, or a status recorded in `self`. Collective over the job's ranks. */
int train_steps(struct rank *self, struct rt *rt);

/* Traces and profiles: Note [Traces] in trace.h */

struct trace;

/* Begins to trace the rank, if its options ask for that: *out is NULL if not. Collective. */
int trace_open(struct trace **out, struct rank *self, struct rt *rt);

/* Around step `step`, counted from 1; `trace` may be NULL. The end of the window's last step is collective: rank 0
 * writes the trace and keeps the profile. */
void trace_begin_step(struct trace *trace, int64_t step);
int trace_end_step(struct trace *trace);

/* After the last step: writes what was not written, and releases the trace. `status`: of the steps; if they failed,
 * nothing is written. Collective otherwise. */
int trace_close(struct trace *trace, int status);

/* Dumps of values: Note [Dumps] in dump.c. Used as the functions of the same name of a trace; dump_open is collective,
 * the others are not. Inference writes the first timed step, training all. */
struct dump;
int dump_open(struct dump **out, struct rank *self, struct rt *rt);
void dump_begin_step(struct dump *dump, int64_t step);
int dump_end_step(struct dump *dump);
int dump_close(struct dump *dump, int status);

/* Where the time of the traced steps went: as a table, or as a JSON value. */
struct profile;
void profile_print(const struct profile *profile, FILE *file);
void profile_put(struct rt_json_writer *writer, const struct profile *profile);
void profile_free(struct profile *profile);

/* The first non-finite value of a training step, for E0914: one of `parameter` (index into "tensors" of manifest.json),
 * `input` and `instruction` (index into "instructions") is set, the others are -1. */
struct nonfinite {
    bool found;
    int rank; /* the first rank that had it */
    int parameter, input, instruction;
    bool undefined; /* the instruction made a NaN, of values that were none */
};

/* Finds it by computing the gradients of the step again. Collective over the job's ranks; parameters are unchanged.
 * RT_OK, or a status recorded in `rt` or `self`. */
int nonfinite_find(struct rank *self, struct rt *rt, const struct rt_attempt *attempt, struct nonfinite *found);

/* Sets the failure's place to the value that was found. */
void nonfinite_place(const struct nonfinite *found, const struct manifest *manifest, struct failure *failure);

#endif
