/* State of one compile, shared by the files of the driver: driver.c implements the verbs, job_read.c reads the input,
 * job_training.c checks options of training, job_plan.c plans, job_write.c generates and builds.
 *
 * Functions return 0, or -1 after a diagnostic, unless stated otherwise. */
#ifndef FRONTEND_DRIVER_JOB_H
#define FRONTEND_DRIVER_JOB_H

#include "codegen/manifest/manifest.h"
#include "codegen/slices.h"
#include "frontend/options/options.h"
#include "frontend/driver/output/directory_names.h"
#include "frontend/driver/output/location.h"
#include "frontend/driver/output/output.h"
#include "frontend/driver/reuse/reuse_keys.h"
#include "frontend/driver/files/side_files.h"
#include "frontend/driver/files/sliced_weights.h"
#include "frontend/read/onnx_read.h"
#include "passes/pipeline.h"
#include "passes/rank/estimate.h"
#include "passes/train/roles.h"

struct job {
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
    struct onnx_model *model; /* NULL where the input is text IR */
    bool whole;               /* compile the graph of a compiled model for one rank */
    int adapter;              /* number of the adapter that it then has, of those of the program; -1: none */
    bool unverified;     /* neither the graph is verified after each pass nor the plan of its ranks: job_verify does */
    bool named;          /* the files of weights are those that the text IR names */
    struct graph *graph; /* NULL until the model is imported */
    struct graph *twin;  /* another specimen of it (ir/open.h); NULL: all sizes are fixed */
    int specimen;        /* that the next import makes */
    int first;           /* the first one that an import of open sizes tries */
    const char *kept;    /* the graph.rir that is read instead of the model; NULL: none */
    struct side_files side;
    struct directory_names names; /* the directories of the result */
    VEC(const char *) files;      /* paths by stored.file */
    struct sliced_files *copied;  /* those of a compiled model with --weights copy; NULL: it is none */
    VEC(const char *) hashes;     /* of `files` according to location.json; empty if it was not read */
    struct decisions decisions;   /* of the options and of the files that they name */
    struct plan decided;          /* by the policy or the user, and applied */
    struct rankplan plan;
    struct estimate estimate; /* of the plan, if there is a machine (side.machine) */
    struct sources sources;
    struct training training;
    struct weight_roles roles; /* weights that are not trained, with reasons */
    struct program_info info;
    struct reuse_keys keys;
    struct stored_weights stored; /* weights of the imported graph, for --weights copy */
    struct slices slices;         /* of the plan; empty without --weights copy */
    int runtime_ngpus;            /* the default of the result's programs, in location.json */
};

/* job_read.c */

/* Opens the operand: reads and checks the structure of an ONNX model, or parses text IR. */
int job_open(struct job *job);
/* Builds the graph of an opened ONNX model: imports it, or if `kept` is not NULL parses that file, the graph.rir of an
 * earlier compile. Does nothing for text IR. */
int job_import(struct job *job, const char *kept);
/* job_open, then job_import. */
int job_read(struct job *job);
/* Takes the place of job_read: the input that `read` read, with a graph of its own, a copy of that of `read`. */
int job_take(struct job *job, const struct job *read, struct graph *graph);

/* Text IR as input. */

/* Fills job->files: the files that location.json or the slices that manifest.json beside the text lists, else the files
 * that the text names. */
int job_list_text_files(struct job *job);
/* E0802 if a file has not the hash in location.json. Needs job->keys. */
int job_check_located(const struct job *job);
/* E0345, E0353 unless every weight lies inside one of the files. Needs job->keys. */
int job_check_text_weights(const struct job *job);
/* After the passes: sets the places of what --weight-dtype made of weights, of which a compiled model has slices. */
int job_take_smaller(struct job *job);
/* Maps the files and sets `data` of the weights, so that passes can read their values. */
int job_attach_text_weights(struct job *job);

/* job_sizes.c */

/* True if --dim or --shape leaves a size open. */
bool job_has_open_sizes(const struct job *job);
/* Reads specimen `first` by `import` into job->graph and, if its sizes are open, the next one into job->twin. */
int job_import_pair(struct job *job, int (*import)(struct job *job), int first);
/* The same with the first pair of specimens that the model can have. */
int job_import_open(struct job *job, int (*import)(struct job *job));
/* Replaces numbers of a specimen by what they are made of, in diagnostics from index `first` on. */
void job_name_sizes(const struct job *job, struct diags *diags, int first);
/* Generates the program from the twin, too. E0439 unless its files are those of `program`, and its manifest. */
int job_check_twin(const struct job *job, const struct program *program);
/* After `tried`, the errors of making a program: imports the model as the next pair of specimens if a number may have
 * had the value of another by chance, or be too large. -1: that is not so, or the import is refused. */
int job_other_specimens(struct job *job, const struct diags *tried);

/* job_training.c */

/* Sets job->runtime_ngpus, the number of ranks in all. E0204 unless it is a multiple of the mesh's size. */
int job_ranks(struct job *job);
/* E0200 if a given option contradicts what the plan of --load-plan or --refine says of the whole program. 0, or -1. */
int job_check_plan(const struct job *job, const struct plan *plan);
/* Sets job->decisions, and parses the options of training into job->training. If the graph is not trained: E0200 for
 * any of them but the number of micro-batches, which enters the graph. */
int job_read_training(struct job *job);
/* Micro-batches of a step and scale unit, in training or inference. */
int job_micro_batches(const struct job *job);
/* job->training; NULL if the graph is not trained, or not imported yet. */
const struct training *job_training(const struct job *job);

/* job_plan.c */

/* The target of --target, and what the passes are told of it and of the options. */
const struct target *job_target(const struct job *job);
struct pass_context job_pass_context(struct job *job);
/* Runs the passes on job->graph up to the last one that does not depend on the plan. */
int job_simplify(struct job *job);
/* Runs the passes on job->graph and plans what each rank executes: all that an estimate needs. */
int job_plan_ranks(struct job *job);
/* Verifies the graph and the plan of its ranks. 0, or -1 after diagnostics. */
int job_verify(struct job *job);
/* Numbers the source files of the ranks of a plan that is only described: sources_number. */
int job_number_sources(struct job *job);
/* job_plan_ranks, then finds which ranks of the plan share a source file; also checks that the model's files did not
 * change. */
int job_plan(struct job *job);
/* Notes of the last diagnostic: the memory of the rank that needs most, by kind, and what is live at its peak. */
void job_note_memory(const struct job *job, struct diags *diags);
/* Hashes files and options: sets job->info, job->keys and job->runtime_ngpus. Needs job_open and job->names. */
int job_describe(struct job *job);
/* The manifest of the plan, for manifest_text; `program` NULL: without "files". */
struct manifest job_manifest(const struct job *job, const struct program *program);
/* Writes the text of plan.json to the file of --save-plan, if given. */
int job_save_plan(const struct job *job, const char *plan, size_t bytes);
/* The text of plan.json, which it also writes to the file of --save-plan; NULL after a diagnostic. */
const char *job_plan_text(const struct job *job);
/* Reports E0500; returns -1. */
int job_out_of_memory(const struct job *job);

/* job_generation.c */

/* Writes "generation" of the manifest of a program with state; context: the job. */
void job_put_generation(struct rt_json_writer *writer, const void *context);

/* job_write.c */

/* What location.json says, but for the file of constants. */
struct location job_location(const struct job *job);
/* Plans, generates and builds in the staging directory, and commits it as the result. Needs output_own. */
int job_generate(struct job *job, struct output *output);

/* --global-batch of a model file, whose inputs say which dimension is the batch (import_batch_dim). If it is given and
 * its dimension is not known: *options become a copy in `arena` with batch_dim, and with
 * the size that --shape gives that dimension in --dim; except with --pas autodist, `accumulate` follows. 0, or -1 after
 * a diagnostic: of the file, or E0205 if its inputs have no batch or --global-batch cannot be divided. */
int batch_take(const struct options **options, struct arena *arena, struct diags *diags);

#endif
