/* --pas autodist: the search for the plan with the most samples per second.
 *
 * A candidate is a mesh of tensor, data and pipeline parallelism, with ZeRO, recomputation and a schedule, as a user
 * could ask for by the same options. What the user gives is kept; the search chooses the rest:
 *
 *   --plan-ngpus N      the ranks of the scale unit; without it every divisor of --runtime-ngpus is tried. Tensor
 *                       parallelism stays inside a node of the machine
 *   --use-zero, --recompute, --schedule, --mem-limit, --search-time
 *
 * Note [Search]
 * Meshes with the same ways of tensor and data parallelism and the same recomputation differ in what a stage has of the
 * layers, and a plan without stages says what all layers take. So one such plan is made for each of them ("base"), and
 * the time and memory of every candidate is predicted from it: layers are divided evenly among stages, stages wait
 * (p - 1) / m of the time, a stage keeps the activations of at most p micro-batches. Candidates are then planned
 * completely, those that are predicted to be fastest first, until the best one found is faster than what is predicted
 * of the next, or enough were planned. The plan that is chosen was always planned completely: its memory is exact. */
#ifndef FRONTEND_DRIVER_SEARCH_H
#define FRONTEND_DRIVER_SEARCH_H

#include "frontend/driver/job.h"

struct candidate {
    int tensor, data, pipeline, units;
    int zero;
    const char *recompute, *schedule; /* NULL: none; the default */
    double predicted;                 /* seconds for a sample, from a base plan */
    bool bound;                       /* `predicted` is of the candidate without recomputation: a lower bound */
    double predicted_memory;
    bool planned;
    double seconds;           /* for a sample, by the estimate of the complete plan */
    struct estimate estimate; /* of the complete plan */
    const char *refused;      /* why it cannot be, with the text of the first error; NULL: it can */
};

struct search {
    VEC(struct candidate) all; /* the chosen one first, then by time; those that do not fit behind them */
    struct machine machine;
    double limit; /* bytes of memory of a rank; INFINITY: none */
    double gap;   /* the part of the chosen plan's time by which another that may fit is predicted to be faster */
};

/* True if the options ask for a search. */
bool search_is_wanted(const struct options *options);

/* The options with which a user would ask for the candidate. Those that were given are kept. */
struct options search_options(const struct options *given, const struct candidate *candidate, struct arena *arena);

/* Searches, and sets *found to the options of the chosen plan. 0, or -1 after a diagnostic: of the model, or E0430 if
 * no plan fits, with the one that needs the least memory. */
int search_plan(const struct options *options, struct arena *arena, struct diags *diags, struct search *search,
                struct options *found);

/* Reports the chosen plan and why others were not chosen: a few, with --verbose all. */
void search_explain(const struct search *search, const struct options *options, struct arena *arena,
                    struct diags *diags);

#endif
