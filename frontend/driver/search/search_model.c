/* Plans of candidates, from one model that is read once. */
#include "frontend/driver/search/search.h"

#include <math.h>
#include <string.h>

#include "passes/place/zero.h"
#include "passes/plan/shorten.h"

/* Repetitions of a block in the shorter one of two plans: of those in which whole layers are recomputed, RECOMPUTED.
 * With fewer, layers may be others than in the whole model (Note [Recomputed layers] in passes/plan/recompute.c). */
enum { SHORT = 1, RECOMPUTED = 3 };

static int at_most(int value, int limit) {
    return value < limit ? value : limit;
}

bool search_reads_same(const struct candidate *a, const struct candidate *b) {
    const int expert = search_ways(a, AXIS_EXPERT);
    return a->batch == b->batch && expert == search_ways(b, AXIS_EXPERT) &&
           (expert == 1 || search_ways(a, AXIS_DATA) == search_ways(b, AXIS_DATA));
}

int64_t search_experts(const struct search_model *model) {
    const struct graph *graph = model->job.graph;
    int64_t experts = 1;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (node->op->id == OP_ExpertMatMul) experts = graph->tensors.at[node->inputs[1]].dims[0];
    }
    return experts;
}

double search_tied(const struct search_model *model) {
    const struct graph *graph = model->job.graph;
    struct arena *scratch = arena_scratch(graph->arena);
    const int *readers = graph_readers(graph, scratch);
    double elements = 0;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (node->op->id != OP_Gather) continue;
        const struct tensor *table = &graph->tensors.at[node->inputs[0]];
        if (table->kind == TENSOR_WEIGHT && readers[node->inputs[0]] > 1) elements += (double)tensor_elements(table);
    }
    arena_release(graph->arena, scratch);
    return elements;
}

/* Checks the constraints with the whole model. A partial plan may name nodes of the backward phase and of updates too:
 * it is checked with a graph that has them. */
static int check_constraints(const struct search_model *model, struct arena *arena, struct diags *diags) {
    const struct constraints *constraints = model->job.side.constraints;
    if (!constraints) return 0;
    if (!constraints->refine || !model->job.graph->train)
        return constraints_check(constraints, model->job.graph, diags);
    struct arena *scratch = arena_scratch(arena);
    struct job whole = model->job;
    whole.graph = graph_copy(model->job.graph, scratch), whole.unverified = true;
    const struct pass_context context = job_pass_context(&whole);
    const bool sound = pipeline_run(whole.graph, &context, pass_find("prune")) == 0 &&
                       constraints_check(constraints, whole.graph, diags) == 0;
    arena_release(arena, scratch);
    return sound ? 0 : -1;
}

/* Makes model->stem. */
static void make_stem(struct search_model *model, struct arena *arena) {
    const struct repeated *all = &model->repeated, *left = &model->of_stem;
    int *times = ARENA_ARRAY(arena, int, all->all.n + 1);
    for (int b = 0; b < all->all.n; b++) times[b] = RECOMPUTED + 1;
    model->stem = graph_copy(model->job.graph, arena);
    shorten(model->stem, all, times);
    repeated_find(model->stem, arena, RECOMPUTED, &model->of_stem);
    bool same = all->all.n == left->all.n;
    for (int b = 0; b < all->all.n && same; b++)
        same = left->all.at[b].nodes == all->all.at[b].nodes && left->all.at[b].times == times[b];
    if (!same) model->stem = NULL;
}

/* search_model.crossing. */
static double crossing_of(const struct graph *whole, const struct repeated *repeated, struct arena *arena) {
    if (!repeated->all.n) return 0;
    const struct graph *graph = graph_typical(whole, arena);
    const struct block *block = &repeated->all.at[0];
    const int end = block->first + block->nodes;
    struct arena *scratch = arena_scratch(arena);
    bool *crosses = ARENA_ARRAY(scratch, bool, graph->tensors.n);
    double bytes = 0;
    for (int i = block->first; i < end; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->noutputs; k++)
            if (node->outputs[k] >= 0) crosses[node->outputs[k]] = true;
    }
    for (int i = end; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++) {
            if (node->inputs[k] < 0 || !crosses[node->inputs[k]]) continue;
            bytes += (double)tensor_bytes(&graph->tensors.at[node->inputs[k]]);
            crosses[node->inputs[k]] = false;
        }
    }
    arena_release(arena, scratch);
    return bytes;
}

int search_read(struct search_model *model, const struct options *options, const struct candidate *candidate,
                const struct machine *machine, struct arena *arena, struct diags *diags) {
    struct candidate one = search_one_rank(options);
    struct options *of_one = ARENA_NEW(arena, struct options);
    struct diags *own = ARENA_NEW(arena, struct diags);
    diags_init(own, arena);
    one.batch = candidate->batch;
    one.decisions.recompute = options->decisions.recompute;
    one.decisions.mesh.axis[AXIS_EXPERT].size = search_ways(candidate, AXIS_EXPERT);
    one.decisions.mesh.axis[AXIS_DATA].size = search_ways(candidate, AXIS_DATA);
    *of_one = search_options(options, &one, arena);
    *model = (struct search_model){
        .of = *candidate, .job = {.options = of_one, .arena = arena, .diags = own}, .machine = *machine};
    bool read = job_read(&model->job) == 0;
    model->job.side.refine = NULL;
    read = read && job_simplify(&model->job) == 0 && check_constraints(model, arena, own) == 0;
    if (!read) {
        diags_append(diags, own);
        return -1;
    }
    repeated_find(model->job.graph, arena, RECOMPUTED, &model->repeated);
    model->crossing = crossing_of(model->job.graph, &model->repeated, arena);
    make_stem(model, arena);
    return 0;
}

/* Seconds of communication that --async-tp can hide beside the products of larger micro-batches and does not in this
 * plan. The last run of a product hides none; where products are not divided, none does. */
static double hidden_later(const struct job *job, const struct candidate *candidate, const struct estimate *estimate) {
    static const double most = 7.0 / 8; /* of the runs that `auto` tries (passes/place/product_runs.c) */
    const double runs = candidate->decisions.sequence_parallel
                            ? at_most(job->graph->product_runs, search_ways(candidate, AXIS_TENSOR))
                            : job->graph->product_runs;
    if (candidate->overlap == SEARCH_NEVER) return 0;
    if (runs > 1) return estimate->hidden * fmax(0, most * runs / (runs - 1) - 1);
    return machine_hidden(&job->side.machine, estimate->computing, estimate->communicating);
}

/* OUTCOME_LEAST. */
static double least_step(const struct job *job, const struct candidate *candidate) {
    struct machine ideal = job->side.machine;
    const int units = job->runtime_ngpus / mesh_size(&job->graph->mesh);
    ideal.launch = ideal.multiprocessors = 0;
    for (int e = 0; e < 3; e++) ideal.half_extents[e] = 0;
    for (int l = 0; l < ideal.nlevels; l++) {
        ideal.level[l].link.latency = 0;
        for (int k = 0; k < COLLECTIVES; k++) ideal.level[l].own[k].latency = 0;
    }
    const struct estimate least = estimate_step(&job->plan, &ideal, units, 1, job_micro_batches(job));
    return least.step - hidden_later(job, candidate, &least);
}

/* Seconds in which a micro-batch moves weights and their gradients, at most: a larger one does not move more. They are
 * cast, read in both phases, and added to the sums of gradients: eight times their bytes. */
static double moving_weights(const struct job *job, const double part[OUTCOME_PARTS]) {
    const struct machine *machine = &job->side.machine;
    return machine->correction * 8 * part[OUTCOME_WEIGHTS] / (machine->bandwidth * machine->traffic);
}

/* OUTCOME_TENSORS. */
static double count_parameters(const struct graph *graph) {
    double n = 0;
    for (int i = 0; i < graph->updates.n; i++) {
        const struct tensor *tensor = &graph->tensors.at[graph->updates.at[i].weight];
        n += tensor->kind == TENSOR_WEIGHT && tensor_elements(tensor) >= ZERO_THRESHOLD;
    }
    return n;
}

static void measure(const struct job *job, const struct candidate *candidate, struct outcome *outcome) {
    double *part = outcome->part;
    outcome->micro_batches = job_micro_batches(job), outcome->estimate = job->estimate;
    part[OUTCOME_STEP] = job->estimate.step, part[OUTCOME_UPDATE] = job->estimate.updating;
    part[OUTCOME_SUMMING] = job->estimate.summing, part[OUTCOME_HIDDEN] = job->estimate.summing_hidden;
    part[OUTCOME_TENSORS] = count_parameters(job->graph);
    outcome->overlaps = job->graph->product_runs > 1;
    part[OUTCOME_MEMORY] = (double)job->estimate.memory;
    for (int c = 0; c < job->plan.nclasses; c++) {
        const int64_t *bytes = job->plan.classes[c].bytes;
        const double others = (double)(bytes[RT_ACTIVATIONS] + bytes[RT_COMMUNICATION] + bytes[RT_SCRATCH]);
        if (others < part[OUTCOME_OTHERS]) continue;
        part[OUTCOME_WEIGHTS] = (double)bytes[RT_WEIGHTS], part[OUTCOME_GRADIENTS] = (double)bytes[RT_GRADIENTS];
        part[OUTCOME_OPTIMIZER] = (double)bytes[RT_OPTIMIZER], part[OUTCOME_OTHERS] = others;
    }
    if (candidate->batch && candidate->units == 1 && search_ways(candidate, AXIS_PIPELINE) == 1) {
        part[OUTCOME_LEAST] = fmax(0, least_step(job, candidate) - outcome->micro_batches * moving_weights(job, part));
    }
}

const char *search_first_error(const struct diags *diags, struct arena *arena) {
    for (int i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == RT_SEVERITY_ERROR)
            return diags->all.at[i].code == 438
                       ? arena_printf(arena, "%s: %s", diags->all.at[i].where, diags->all.at[i].text)
                       : arena_strdup(arena, diags->all.at[i].text);
    return "it cannot be planned";
}

/* A copy of the model's graph with times[b] repetitions of block b, NULL: all. */
static struct graph *copy_of(const struct search_model *model, const int *times, struct arena *arena) {
    bool from_stem = times && model->stem;
    for (int b = 0; b < model->repeated.all.n && from_stem; b++) from_stem = times[b] <= RECOMPUTED + 1;
    struct graph *graph = graph_copy(from_stem ? model->stem : model->job.graph, arena);
    if (times) shorten(graph, from_stem ? &model->of_stem : &model->repeated, times);
    return graph;
}

/* The ranks that have parts of what goes from one layer to the next, each as large as the others. */
static double parts_of_crossing(const struct candidate *candidate) {
    return (double)search_ways(candidate, AXIS_DATA) * search_ways(candidate, AXIS_EXPERT) *
           search_ways(candidate, AXIS_CONTEXT) *
           (candidate->decisions.sequence_parallel ? search_ways(candidate, AXIS_TENSOR) : 1);
}

struct outcome search_planned(const struct search_model *model, const struct options *given,
                              const struct candidate *candidate, const int *times, struct arena *arena,
                              struct job **planned) {
    struct outcome outcome = {0};
    struct arena *scratch = arena_scratch(arena);
    struct diags *diags = ARENA_NEW(scratch, struct diags);
    struct options *options = ARENA_NEW(scratch, struct options);
    struct job *job = ARENA_NEW(scratch, struct job);
    struct graph *graph = copy_of(model, times, scratch);
    *options = search_options(given, candidate, scratch);
    *job = (struct job){.options = options, .arena = scratch, .diags = diags, .unverified = true};
    diags_init(diags, scratch);
    bool sound = job_take(job, &model->job, graph) == 0;
    job->side.refine = NULL; /* search_refined has what it decides for the whole program */
    job->side.machine = model->machine;
    sound = sound && job_plan_ranks(job) == 0;
    *planned = sound ? job : NULL;
    if (sound) {
        measure(job, candidate, &outcome);
        outcome.crossing = model->crossing / parts_of_crossing(candidate);
    } else {
        outcome.refused = search_first_error(diags, arena);
        arena_release(arena, scratch);
    }
    return outcome;
}

void search_forget(struct job *job, struct arena *arena) {
    if (job) arena_release(arena, job->arena);
}

static struct outcome measure_with(const struct search_model *model, const struct options *given,
                                   const struct candidate *candidate, struct arena *arena, const int *times) {
    struct job *job;
    const struct outcome outcome = search_planned(model, given, candidate, times, arena, &job);
    search_forget(job, arena);
    return outcome;
}

/* Shortening ------------------------------------------------------------------------------------------------------- */

/* Repetitions of a block in two plans. */
struct lengths {
    int shorter, longer;
};

static struct lengths lengths_of(const struct block *block, bool by_layers) {
    const int shorter = by_layers ? RECOMPUTED : SHORT;
    return (struct lengths){at_most(shorter, block->times), at_most(shorter + 1, block->times)};
}

/* True if what is recomputed depends on the layers of the model, and not on each node alone. */
static bool recomputes_layers(const struct candidate *candidate) {
    return candidate->decisions.recompute && strcmp(candidate->decisions.recompute, "selective") != 0;
}

/* True if the plans of shortened graphs are less work than one of the whole graph. */
static bool is_worthwhile(const struct search_model *model) {
    const struct repeated *repeated = &model->repeated;
    double nodes = model->job.graph->order.n, shortest = nodes, planned = 0;
    for (int b = 0; b < repeated->all.n; b++) {
        const struct block *block = &repeated->all.at[b];
        const struct lengths lengths = lengths_of(block, true);
        shortest -= (double)(block->times - lengths.shorter) * block->nodes;
        planned += (double)(lengths.longer - lengths.shorter) * block->nodes;
    }
    return repeated->all.n > 0 && (repeated->all.n + 1) * shortest + planned < 0.8 * nodes;
}

int search_layers(const struct search_model *model) {
    return is_worthwhile(model) ? model->repeated.all.at[0].times : 0;
}

/* *out becomes what follows for `wanted` from plans for x = `shorter`, which *out is of, and for x = `longer`. */
static void extrapolate(struct outcome *out, const struct outcome *more, double shorter, double longer, double wanted) {
    out->refused = more->refused;
    for (int p = 0; p < OUTCOME_PARTS; p++)
        out->part[p] += (wanted - shorter) / (longer - shorter) * (more->part[p] - out->part[p]);
}

/* Says how many layers the model has, unless they take next to none of the time: then stages are not balanced by
 * them. */
static void set_layers(struct outcome *outcome, int layers) {
    static const double least = 1e-6;
    outcome->layers = search_working(outcome->layer) > least * search_working(outcome->part) ? layers : 0;
}

/* From a plan with few repetitions of all blocks, and for each block one with a further repetition. */
static struct outcome with_fewer_layers(const struct search_model *model, const struct options *given,
                                        const struct candidate *candidate, struct arena *arena) {
    const int blocks = model->repeated.all.n;
    const bool by_layers = recomputes_layers(candidate);
    int *times = ARENA_ARRAY(arena, int, blocks);
    for (int b = 0; b < blocks; b++) times[b] = lengths_of(&model->repeated.all.at[b], by_layers).shorter;
    const struct outcome base = measure_with(model, given, candidate, arena, times);
    struct outcome all = base;
    for (int b = 0; b < blocks && !all.refused; b++) {
        const struct block *block = &model->repeated.all.at[b];
        const struct lengths lengths = lengths_of(block, by_layers);
        struct outcome one = base; /* with all repetitions of this block */
        if (lengths.longer == lengths.shorter) continue;
        times[b] = lengths.longer;
        const struct outcome more = measure_with(model, given, candidate, arena, times);
        times[b] = lengths.shorter;
        extrapolate(&one, &more, lengths.shorter, lengths.longer, block->times);
        all.refused = more.refused;
        for (int p = 0; p < OUTCOME_PARTS; p++) all.part[p] += one.part[p] - base.part[p];
        for (int p = 0; b == 0 && p < OUTCOME_PARTS; p++)
            all.layer[p] = (more.part[p] - base.part[p]) / (lengths.longer - lengths.shorter);
    }
    set_layers(&all, model->repeated.all.at[0].times);
    return all;
}

/* From a complete plan, and from one that has a layer less if that has the same layers else. */
static struct outcome with_all_layers(const struct search_model *model, const struct options *given,
                                      const struct candidate *candidate, struct arena *arena) {
    const struct repeated *repeated = &model->repeated;
    struct outcome all = measure_with(model, given, candidate, arena, NULL);
    if (!repeated->all.n || all.refused) return all;
    int *times = ARENA_ARRAY(arena, int, repeated->all.n);
    for (int b = 0; b < repeated->all.n; b++) times[b] = repeated->all.at[b].times;
    if (--times[0] < (recomputes_layers(candidate) ? RECOMPUTED : SHORT)) return all;
    const struct outcome less = measure_with(model, given, candidate, arena, times);
    if (less.refused) return all;
    for (int p = 0; p < OUTCOME_PARTS; p++) all.layer[p] = all.part[p] - less.part[p];
    set_layers(&all, repeated->all.at[0].times);
    return all;
}

struct outcome search_shortened(const struct search_model *model, const struct options *given,
                                const struct candidate *candidate, struct arena *arena) {
    return is_worthwhile(model) ? with_fewer_layers(model, given, candidate, arena)
                                : with_all_layers(model, given, candidate, arena);
}
