/* Parts of rt_main(): what a generated program does when it is started as a command.
 *
 * Functions return an exit code of rankc, 0 when all is well, and describe what went wrong in `struct failure`;
 * only rt_main prints it, so that a job says one thing once. */
#ifndef RT_MAIN_H
#define RT_MAIN_H

#include "core/private.h"

#include "base/json.h"
#include "base/npy.h"

enum rt_exit {
    RT_EXIT_OK = 0,
    RT_EXIT_BUG = 1,
    RT_EXIT_USAGE = 2,
    RT_EXIT_INPUT = 3,
    RT_EXIT_MEMORY = 5,
    RT_EXIT_SYSTEM = 6,
    RT_EXIT_BUSY = 7,
    RT_EXIT_MISMATCH = 8,
    RT_EXIT_RANK = 9,
    RT_EXIT_INTERRUPTED = 130
};

struct failure {
    int exit, code;
    char text[512], where[256], help[256];
    bool told; /* another rank reports it */
};

/* Describe a failure; return `exit`. */
int failure_set(struct failure *failure, int exit, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int failure_where(struct failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));
int failure_help(struct failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Of a base/ function that refused a file; content is of `code`. */
int failure_reason(struct failure *failure, int code, const struct rt_reason *why);
/* To stderr, in one piece; with --json as an object. */
void failure_print(const struct failure *failure, bool json);

/* Options */

struct main_options {
    const char *program;
    struct words {
        const char **at;
        int n;
    } inputs, data, eval_data; /* NAME=FILE, as given */
    const char *output_dir, *comm, *kernels, *directory, *log, *checkpoint_dir, *resume, *rendezvous;
    int threads, repeat, warmup, rank, world, steps, accumulate, shuffle, checkpoint_every, keep, eval_every,
        eval_steps, join_timeout;
    double lr;
    bool json, quiet, help;
};

int options_parse(struct main_options *options, int argc, char **argv, struct failure *failure);
void options_free(struct main_options *options);
void options_print_help(const char *program);

/* The candidate nearest to `word`, if it is near enough to be meant, else NULL. */
const char *nearest_name(const char *word, const char *const *candidates, int count);

/* Names */

/* manifest.json of the program's directory, as far as running needs it. */
struct manifest {
    char *directory;
    struct rt_json_document *document;
    const char **inputs, **outputs; /* names, in the order of the program's ports */
};

int manifest_read(struct manifest *manifest, const struct rt_program *program, const char *directory,
                  struct failure *failure);
void manifest_free(struct manifest *manifest);

/* The node that an instruction comes from becomes the failure's place, if it is known. */
void manifest_place(const struct manifest *manifest, int instruction, struct failure *failure);

/* Tensors */

/* "[2, 8]" */
struct shape_text {
    char text[RT_MAX_NDIM * 24];
};
struct shape_text shape_format(int ndim, const int64_t *dims);

/* Reads --input files into one tensor per port, of the port's dtype and shape. */
int inputs_read(struct rt_tensor *inputs, const struct rt_program *program, const struct manifest *manifest,
                const struct main_options *options, struct failure *failure);

/* Memory for one tensor per output port. */
int outputs_allocate(struct rt_tensor *outputs, const struct rt_program *program, struct failure *failure);
int outputs_write(const struct rt_tensor *outputs, const struct rt_program *program, const struct manifest *manifest,
                  const char *directory, struct failure *failure);
void outputs_print(const struct rt_tensor *outputs, const struct rt_program *program, const struct manifest *manifest);

/* Ranks */

/* What the ranks of this process share. */
struct job {
    const struct rt_program *program;
    struct main_options options;
    struct manifest manifest;
    struct rt_tensor *inputs, *outputs;
    const void **input_data;
    double *step_ms; /* of each timed step, by rank 0; there are nsteps */
    int nsteps;
    int64_t *peak_rss; /* of each rank, by rank 0 */
    double load_ms;
    int threads;
    int segment; /* a descriptor of memory that the ranks share, where no launcher made it; -1 */
};

/* One rank of this process. */
struct rank {
    struct job *job;
    struct rt_comm *joined; /* loopback */
    void **output_data;     /* rank 0: where outputs go; others: NULLs */
    void **no_outputs;      /* NULLs */
    bool first;             /* rank 0 of the job */
    bool interrupted;       /* training ended after a signal rather than after --steps; on all ranks alike */
    int status;
    struct failure failure;
};

/* Monotonic time. */
double now_ms(void);

/* Records that a call failed; returns `status`. */
int fail_rank(struct rank *self, const struct rt *rt, int status);

/* Records a failure of the rank's own, or a file that base/ refused; returns the status that fits the exit code. */
int fail_with(struct rank *self, int exit, int code, const char *format, ...) __attribute__((format(printf, 4, 5)));
int fail_reason(struct rank *self, int code, const struct rt_reason *why);

/* SIGINT and SIGTERM, of a program that trains: Note [Stopping]. After stop_after_steps they are requests to end the
 * run. */
void stop_catch_signals(void);
void stop_after_steps(void);
bool stop_requested(void);

/* Trains on --data for --steps; RT_OK or a status that fail_rank has recorded. Collective over the job's ranks. */
int train_steps(struct rank *self, struct rt *rt);

#endif
