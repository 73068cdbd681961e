/* A compile in progress: what the driver's files share. driver.c has the verbs; job_read.c and job_text.c read the
 * input, job_training.c the options of training, job_plan.c plans, job_write.c generates and builds.
 *
 * All functions return 0, or -1 after a diagnostic, unless said otherwise. */
#ifndef FRONTEND_DRIVER_JOB_H
#define FRONTEND_DRIVER_JOB_H

#include "codegen/manifest.h"
#include "codegen/slices.h"
#include "frontend/cli/options.h"
#include "frontend/driver/directory_names.h"
#include "frontend/driver/output.h"
#include "frontend/driver/reuse_keys.h"
#include "frontend/driver/side_files.h"
#include "frontend/read/onnx_read.h"
#include "passes/pipeline.h"
#include "passes/train/roles.h"

struct job {
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
    struct onnx_model *model; /* NULL where the input is text IR */
    bool whole;               /* compile the graph of a compiled model for one rank */
    bool named;               /* the text IR names the files of its weights */
    struct graph *graph;      /* NULL until the model is imported */
    struct side_files side;
    struct directory_names names; /* of the directories that the result goes to */
    VEC(const char *) files;      /* paths by stored.file */
    VEC(const char *) hashes;     /* of `files` when the graph was compiled; empty where location.json was not read */
    struct rankplan plan;
    struct sources sources;
    struct training training;
    struct decisions decisions; /* the weights that are constants, with reasons */
    struct program_info info;
    struct reuse_keys keys;
    struct stored_weights stored; /* weights of the imported graph, for --weights copy */
    struct slices slices;         /* of the plan; empty without --weights copy */
};

/* job_read.c */

/* Opens the model and reports what can be said before its operators are looked at. Text IR is parsed at once. */
int job_open(struct job *job);
/* Imports an opened ONNX model, or reads its graph back from `kept`, the graph.rir of an earlier compile (NULL:
 * none). */
int job_import(struct job *job, const char *kept);
/* job_open, then job_import. */
int job_read(struct job *job);
/* --dtype; RT_DTYPE_NONE: not given. */
enum rt_dtype job_dtype(const struct job *job);

/* job_text.c: text IR as input. */

int job_read_text(struct job *job, const char *path);
/* E0201 for options whose answer stands in the text itself. */
int job_check_text_options(const struct job *job);
/* Lists job->files: those that location.json or the manifest beside the text names, else those that the text names. */
int job_list_text_files(struct job *job);
/* The files are as location.json says (E0802), and every weight lies inside one of them (E0345, E0353). Needs
 * job->keys. */
int job_check_located(const struct job *job);
int job_check_text_weights(const struct job *job);
/* Maps the files, so that passes can read values of weights. */
int job_attach_text_weights(struct job *job);

/* job_training.c */

/* --runtime-ngpus: ranks in all, a multiple of the mesh's size (E0204). */
int job_ranks(const struct job *job, int *ranks);
/* Options of training into job->training; of a graph that is not trained E0200 where one is given. */
int job_read_training(struct job *job);
/* job->training, or NULL where the graph is not trained or not imported yet. */
const struct training *job_training(const struct job *job);

/* job_plan.c */

const struct target *job_target(const struct job *job);
struct pass_context job_pass_context(struct job *job);
/* Runs the passes on job->graph and plans what each rank executes. */
int job_plan(struct job *job);
/* Sets job->info and job->keys from the options and the opened files. */
int job_describe(struct job *job);
/* The manifest of the plan; `program` NULL: without its files. */
struct manifest job_manifest(const struct job *job, const struct program *program);
/* --save-plan of `bytes` bytes of plan.json. */
int job_save_plan(const struct job *job, const char *plan, size_t bytes);
/* The text of plan.json, saved where --save-plan says; NULL after a diagnostic. */
const char *job_plan_text(const struct job *job);
/* E0500. -1. */
int job_out_of_memory(const struct job *job);

/* job_write.c */

/* Plans, generates and builds in the staging directory, and makes that the result. Needs output_own. */
int job_generate(struct job *job, struct output *output);

#endif
