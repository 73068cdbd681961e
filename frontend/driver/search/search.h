/* --pas autodist: the search for the plan with the most samples per second.
 *
 * A candidate is a mesh with ZeRO, recomputation, a schedule and sequence parallelism, as a user could ask for by the
 * same options. What the user gives is kept; the search chooses the rest:
 *
 *   --plan-ngpus N      the ranks of the scale unit; without it every divisor of --runtime-ngpus is tried. Tensor and
 *                       context parallelism stay inside a node of the machine
 *   --global-batch G    without --dim BATCH=B (frontend/driver/job/job.h), sizes of micro-batches are searched
 *                       too: G = B x micro-batches x units
 *   --use-zero, --zero-ngroups, --recompute, --schedule, --sequence-parallel, --async-tp, --mem-limit, --search-time,
 *   --forbid, --require, --constraints, --refine, --measure-topk
 *
 * Note [Search]
 * Time and memory of a candidate become known in steps, each of which costs more than the one before:
 *
 *   BOUNDED     by another candidate that is at least as fast: the same without recomputation, and with scale units in
 *               place of ranks along context, with as many sequences of a micro-batch each; one with larger
 *               micro-batches by the time that the smallest would take if kernels reached their rates at all sizes. By
 *               memory that is at least as small: what fewer ranks need, divided evenly among more. Only candidates
 *               whose base may be fast enough if no rank waited or communicated are bounded one by one
 *   PREDICTED   from a plan of its "base": the same ways of tensor, context and data parallelism, without stages and
 *               scale units. Layers are shared out to stages by policy pp (policy_pp_of_layers), waiting and slots are
 *               those of the schedule's cells (schedule_outline), ZeRO moves what zero_moves says. Tests compare
 *               predictions with complete plans (tests/cli/predictions.py)
 *   SHORTENED   without stages: from its plans for the model with fewer layers (Note [Shortened graphs]). With stages:
 *               by how much the complete plan of another with the same stages and another ZeRO differs from what was
 *               predicted of it
 *   PLANNED     from its complete plan
 *
 * Stages with unequal numbers of ranks are predicted from two plans: of the base, and of the base with the axis that
 * some stages alone have.
 *
 * The candidate with the least time that is not known not to fit takes the next step, until the first one is PLANNED.
 * Only the steps that a candidate has taken are paid for, and none but the last depends on the number of layers. */
#ifndef FRONTEND_DRIVER_SEARCH_SEARCH_H
#define FRONTEND_DRIVER_SEARCH_SEARCH_H

#include "frontend/driver/job/job.h"
#include "passes/plan/schedule/schedules.h"
#include "passes/plan/shorten.h"

/* --async-tp. Candidates with tensor parallelism are planned with it, which divides no product where that does not pay.
 * Whether it divides any is known from their base, since its plans have the same products. */
enum search_overlap { SEARCH_NEVER, SEARCH_IF_FASTER, SEARCH_ALWAYS };

enum search_step { SEARCH_BOUNDED, SEARCH_PREDICTED, SEARCH_SHORTENED, SEARCH_PLANNED, SEARCH_STEPS };

/* What plans say, of the rank that needs most. */
enum outcome_part {
    OUTCOME_STEP,   /* seconds */
    OUTCOME_MEMORY, /* bytes, of all scale units' ranks; the others are of a rank of a single scale unit */
    OUTCOME_WEIGHTS,
    OUTCOME_GRADIENTS,
    OUTCOME_OPTIMIZER,
    OUTCOME_OTHERS,
    OUTCOME_UPDATE,  /* seconds of the step that are once a step: the update of the parameters */
    OUTCOME_SUMMING, /* and its collectives, of gradients along axes of the mesh: those that nothing hides, */
    OUTCOME_HIDDEN,  /* and, not of the step, those that are hidden */
    OUTCOME_TENSORS, /* parameters that ZeRO divides */
    OUTCOME_LEAST,   /* seconds of the step, without what moves weights, if all kernels reached their rates at once */
    OUTCOME_PARTS
};
struct outcome {
    double part[OUTCOME_PARTS];
    double layer[OUTCOME_PARTS]; /* of a repetition of the largest block; from shortened graphs */
    int layers;                  /* its repetitions; 0: not known */
    int micro_batches;           /* of a scale unit */
    double crossing;             /* bytes of a micro-batch that a rank's layer hands to the next; 0: not known */
    struct estimate estimate;    /* of a complete plan */
    bool overlaps;               /* products have communication beside them (--async-tp) */
    const char *refused;         /* NULL: it was planned */
};

struct candidate {
    /* What the options give is kept. The mesh has an axis of each role; one of them may be of some pipeline
     * stages alone. */
    struct decisions decisions;
    int units;
    int batch; /* sequences of a micro-batch; 0: as given */
    enum search_overlap overlap;
    struct schedule_choice schedule; /* that of the decisions; of a file: as schedule_default */
    int family, rest;                /* search_group */
    enum search_step step;           /* that `seconds` and `memory` are from */
    const struct outcome *base;      /* of the candidate's base, from PREDICTED on */
    const struct outcome *larger;    /* of the base with the own axis, if there is one: as soon as it is known */
    double seconds;                  /* for a sequence; where `batch` is 0, for a micro-batch */
    double memory;                   /* bytes of the rank that needs most */
    double predicted_seconds, predicted_memory; /* the same as they were when it was PREDICTED */
    const struct estimate *estimate;            /* of its plan, if it is PLANNED; else NULL */
    double measured;                            /* seconds for a sample on this machine; 0: not measured */
    const char *unmeasured; /* the first line of what compiling or running it said, if that failed; else NULL */
    const char *refused;    /* why it cannot be, with the text of the first error; NULL: it can */
};

/* Ranks of all pipeline stages along the axis. */
static inline int search_ways(const struct candidate *candidate, enum axis_role axis) {
    const struct mesh_axis *of = &candidate->decisions.mesh.axis[axis];
    return of->end ? 1 : of->size;
}

/* The axis that some stages alone have, besides those of all stages (Note [Unequal stages] in
 * runtime/base/shape/mesh.h); NULL: there is none. */
static inline const struct mesh_axis *search_own(const struct candidate *candidate) {
    for (int a = 0; a < AXIS_ROLES; a++)
        if (candidate->decisions.mesh.axis[a].end) return &candidate->decisions.mesh.axis[a];
    return NULL;
}

/* Candidates with the same base (search_same_base), which are predicted together. */
struct search_family {
    VEC(int) members;        /* indices into `all` of the search, ascending */
    int applied;             /* its members are bounded by so many of search.known, the first ones */
    double least;            /* a lower bound of their seconds */
    bool known;              /* what follows is; false: a member has changed */
    int tried;               /* members that are refused or at least PREDICTED */
    int first[SEARCH_STEPS]; /* the first member that has taken the step and may fit; -1: there is none */
};

/* A base that is planned. */
struct search_known {
    struct candidate of;
    const struct outcome *outcome;
};

struct search {
    VEC(struct search_known) known;
    VEC(struct candidate) all; /* at last the chosen one first, then by time; those that are refused last */
    VEC(struct search_family) families;
    VEC(int) unequal; /* the candidates with an axis of some stages */
    int nrests;       /* numbers of candidate.rest */
    double tied;      /* search_tied */
    struct outlines {
        struct map index;
        VEC(struct schedule_outline) all;
    } * outlines; /* of search_outline */
    struct balances {
        struct map index;
        VEC(double) all;
    } * balances;   /* of the slowest stages of search_predict */
    bool tied_once; /* stages send gradients of these once a step (--tied-gradients) */
    struct arena *arena;
    struct machine machine;
    double limit;                /* bytes of memory of a rank; INFINITY: none */
    struct job *job;             /* has the chosen plan; in `arena` of search_plan */
    const struct options *given; /* the options of the search */
    double gap; /* the part of the chosen plan's time by which another that may fit is predicted to be faster */
};

/* True if the options ask for a search. */
bool search_is_wanted(const struct options *options);

/* The options with which a user would ask for the candidate. Those that were given are kept. */
struct options search_options(const struct options *given, const struct candidate *candidate, struct arena *arena);

/* The same as text: "--pas hybrid:tensor=2 --runtime-ngpus 4 --use-zero 1 --recompute full" */
const char *search_words(const struct candidate *candidate, const struct options *given, struct arena *arena);

/* Searches. 0, or -1 after a diagnostic: of the model, or E0430 if no plan fits, with the one that needs the least
 * memory, and what that is for. What reading the model and the chosen plan remark is in search->job->diags. */
int search_plan(const struct options *options, struct arena *arena, struct diags *diags, struct search *search);

/* True if the candidate was planned completely and fits. */
bool search_fits(const struct search *search, const struct candidate *candidate);

/* E0433 if --measure-topk asks for more ranks than this machine has cores or GPUs. */
int search_can_measure(const struct options *options, struct diags *diags);

/* --measure-topk K: compiles the first K candidates that search_fits and runs them for a few steps with random inputs
 * on this machine, and moves them into the order of what was measured. 0, or -1 after a diagnostic: E0434 if none of
 * them runs. */
int search_measure(struct search *search, const struct options *options, bool trains, struct arena *arena,
                   struct diags *diags);

/* --save-machine: writes the machine of the search as a file, with "correction" such that its estimates of the measured
 * plans are right on (geometric) average. 0, or -1 after a diagnostic. */
int search_save_machine(const struct search *search, const struct options *options, struct arena *arena,
                        struct diags *diags);

/* Reports the chosen plan and why others were not chosen: a few, with --verbose all. */
void search_explain(const struct search *search, const struct options *options, struct arena *arena,
                    struct diags *diags);

/* Puts the member "search": machine, limit, and of the best candidates (with --verbose of all) the options, what they
 * need, the parts of the time of those that were planned, and why they were not chosen. context: struct search. */
void search_put(struct rt_json_writer *writer, const void *context);

/* Parts of the search ---------------------------------------------------------------------------------------------- */

/* Lists the candidates that the options and the machine allow. experts: of the model's mixtures; 1: it has
 * none. layers: of the model; 0: not known. */
void search_list(struct search *search, bool trains, int64_t experts, int layers);

/* Refuses the candidates that --forbid and --require exclude. 0, or -1 after a diagnostic: E0205 for a name that is
 * unknown, E0432 for a constraint that no candidate meets, and if none is left. */
int search_constrain(struct search *search, const struct options *options, struct arena *arena, struct diags *diags);

/* What a partial plan (--refine) decides for the whole program, as if the options gave it. */
struct options search_refined(const struct options *options, const struct plan *partial);

/* Refuses the candidates whose mesh has other sizes of the axes of the partial plan, or that have other micro-batches.
 * 0, or -1 after E0432 if all do. */
int search_keep_partial(struct search *search, const struct plan *partial, struct diags *diags);

/* The candidate's base: Note [Search]. The larger one of unequal stages has the axis of the larger stages. */
struct candidate search_base(const struct candidate *candidate);
struct candidate search_larger_base(const struct candidate *candidate);
bool search_same_base(const struct candidate *a, const struct candidate *b);
/* Takes the axis of some stages away from all of them. */
void search_drop_own(struct candidate *candidate);
/* One rank with the smallest micro-batches, and what the options give of that which is not searched. */
struct candidate search_one_rank(const struct options *given);
/* The candidate's value of a decision, as the user writes it; NULL: none. */
const char *search_decides(const struct candidate *candidate, const struct decision *row, struct arena *arena);

/* 1 if the sequences of a micro-batch are searched, as only their product with the micro-batches is given; else 0. */
int search_smallest_batch(const struct options *options);

/* Its schedule among its pipeline ranks. */
struct schedule_outline search_outline(const struct search *search, const struct candidate *candidate);

/* Sequences of its micro-batches; 1 if they are as given. */
double search_samples(const struct candidate *candidate);

/* Micro-batches of a scale unit in a step, at least 1. */
int64_t search_micro_batches(const struct options *given, const struct candidate *candidate);

/* A model that was read once for micro-batches of one size and one division of experts, and simplified as far as that
 * does not depend on the rest of a plan. Candidates are planned from copies of its graph. */
struct search_model {
    struct candidate of;
    const char *refused; /* why there is none; NULL: there is */
    struct job job;
    struct machine machine;
    struct repeated repeated; /* blocks of its graph */
    double crossing;          /* bytes that a repetition of the largest block hands to the next */
    /* The graph with as many repetitions as most shortened ones have at least, which are then copied from it in a time
     * that does not depend on the layers. NULL: there is none that has the same blocks. */
    struct graph *stem;
    struct repeated of_stem;
};

/* Reads the model as the candidate needs it. 0, or -1 after diagnostics. What it remarks is in model->job.diags. */
int search_read(struct search_model *model, const struct options *options, const struct candidate *candidate,
                const struct machine *machine, struct arena *arena, struct diags *diags);
bool search_reads_same(const struct candidate *a, const struct candidate *b);

/* The text of the first error, in `arena`. */
const char *search_first_error(const struct diags *diags, struct arena *arena);

/* The repetitions of the model's largest block; 0 if it has so few that shortened graphs are no less work. */
int search_layers(const struct search_model *model);

/* Elements of the tables of embeddings that are read elsewhere too (tied weights). */
double search_tied(const struct search_model *model);

/* The number of experts of the model's mixtures; 1: it has none. */
int64_t search_experts(const struct search_model *model);

/* Puts the candidates into families, and numbers what else they have: those with the same `rest` differ in their bases
 * alone, or in scale units that take the place of ranks along the axis context. */
void search_group(struct search *search);
/* The family of candidates with that base; NULL: there is none. */
struct search_family *search_family_of(struct search *search, const struct candidate *candidate);

/* True if the candidate, if it was not planned yet, may be found to fit when it is. */
bool search_may_fit(const struct search *search, const struct candidate *candidate);
/* The candidate with the least time that may fit, among those that have taken the step `least`; NULL: there is none. */
struct candidate *search_first(struct search *search, enum search_step least);
/* How many candidates are refused or at least PREDICTED. */
int search_tried(struct search *search);

/* Predicts time and memory of the candidate from what the plan of its base says: Note [Search]. */
void search_predict(const struct search *search, struct candidate *candidate, const struct outcome *base);
/* The seconds of a candidate of that base on as many devices, whatever its stages, scale units and ZeRO, at least. */
double search_least(const struct search *search, const struct candidate *candidate, const struct outcome *base);
/* The plan of a base with which a candidate of equal stages would take as long, and need as much memory on its fullest
 * rank, as this one with unequal stages, whose two bases are known. */
struct outcome search_unequal(const struct candidate *candidate);

/* Bytes of weights, gradients and optimizer states of a rank, by the plan of the candidate's base or of one with other
 * micro-batches, recomputation, or ranks along context. */
double search_states(const struct search *search, const struct candidate *candidate, const struct outcome *base);
/* Bytes of a rank that are neither weights nor of the optimizer: those of each layer for each micro-batch that is kept,
 * and the others. `share`: of the layers' bytes by the plan of the base that the candidate keeps. */
double search_activations(const struct search *search, const struct candidate *candidate, const struct outcome *base,
                          double share);

/* Notes the plan of the base `of`, by which families of candidates that are not predicted yet are bounded when they are
 * looked at. */
void search_bound(struct search *search, const struct candidate *of, const struct outcome *outcome);
/* Bounds the members of the family by all bases that are planned. */
void search_bound_family(struct search *search, struct search_family *family);
/* Bounds those with unequal stages by one that is predicted, with search_unequal. */
void search_bound_unequal(struct search *search, const struct candidate *of, const struct outcome *mixed);
/* True if attention of `c` communicates as much as that of `than` and in fewer steps, with more in memory, or if both
 * are alike. */
bool search_has_faster_form(const struct candidate *c, const struct candidate *than);
/* True if each rank along context has as many sequences of a micro-batch. */
bool search_same_share(const struct candidate *c, const struct candidate *of);
void search_take_form(struct candidate *c, const struct candidate *from);

/* Seconds of the micro-batches of a step, without what is once a step. */
double search_working(const double part[OUTCOME_PARTS]);

/* What an outcome says of the parts that are no layers: they take as long as so many layers. */
double search_rest(const struct outcome *outcome);

/* What the plan of a candidate without stages is: from shortened graphs if that is less work, else from the complete
 * plan and one that has a layer less. */
struct outcome search_shortened(const struct search_model *model, const struct options *given,
                                const struct candidate *candidate, struct arena *arena);
/* Plans the candidate, for the model with times[b] repetitions of block b, NULL: all. *job has the plan (job->decided),
 * in an arena of its own, until search_forget; NULL if there is none. */
struct outcome search_planned(const struct search_model *model, const struct options *given,
                              const struct candidate *candidate, const int *times, struct arena *arena,
                              struct job **job);
void search_forget(struct job *job, struct arena *arena);

#endif
