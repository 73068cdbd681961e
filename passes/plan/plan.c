#include "passes/plan/plan.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "ir/text.h"
#include "passes/plan/schedule/schedules.h"

void draft_init(struct draft *draft, const struct graph *graph) {
    *draft = (struct draft){.graph = graph,
                            .chunks = graph->chunks,
                            .split = arena_alloc(graph->arena, (size_t)graph->nodes.n + 1, sizeof *draft->split),
                            .stage = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1)};
    for (int id = 0; id < graph->nodes.n; id++) {
        memcpy(draft->split[id], graph->nodes.at[id].split, sizeof *draft->split);
        draft->stage[id] = graph->nodes.at[id].stage;
    }
}

int draft_stages(const struct draft *draft) {
    return draft->chunks.n ? draft->chunks.n : schedule_coordinates(draft->graph);
}

void draft_give_stage(struct draft *draft, int id, int stage) {
    const struct graph *graph = draft->graph;
    if (!draft->given_stage) {
        draft->given_stage = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1);
        for (int other = 0; other < graph->nodes.n; other++) draft->given_stage[other] = -1;
    }
    draft->given_stage[id] = stage;
}

int draft_coordinate(const struct draft *draft, int stage) {
    return draft->chunks.n ? draft->chunks.home[stage] : stage;
}

int draft_first(const struct draft *draft, int stage) {
    for (int first = 0; first < stage && draft->chunks.n; first++)
        if (draft->chunks.home[first] == draft->chunks.home[stage]) return first;
    return stage;
}

int split_other_axis(const struct node_split splits[RT_MAX_AXES], const struct dims *dims, int axis,
                     const struct node_split *split) {
    for (int a = 0; a < RT_MAX_AXES; a++)
        if (a != axis && dims_splits_meet(dims, &splits[a], split)) return a;
    return -1;
}

/* The size that is the number; NULL: it is no size. */
static const struct open_size *size_of(const struct graph *graph, int64_t value) {
    for (int i = 0; i < graph->open->all.n; i++)
        if (graph->open->all.at[i].value == value) return &graph->open->all.at[i];
    return NULL;
}

/* Bounds that the size can have where ranks have equal parts of it: "; --dim batch=2..8:2 can be". */
static const char *divided_range(const struct graph *graph, const struct open_size *size, int64_t ways) {
    struct open_range range = size->range;
    int64_t step = range.step;
    while (step % ways) step += range.step;
    range.step = step;
    range.least = (range.least + ways - 1) / ways * ways;
    range.most = range.least + (range.most - range.least) / step * step;
    if (range.most <= range.least) range.most = range.least + step;
    range.typical = range.most;
    return arena_printf(graph->arena, "; --dim %s=%s can be", size->name, open_range_text(graph->arena, &range));
}

const char *open_cut_refused(const struct graph *graph, int64_t extent, int64_t ways) {
    if (!open_is(graph->open, extent)) return NULL;
    const char *name = open_plain(graph->open, graph->arena, extent);
    const struct open_size *size = size_of(graph, extent);
    if (extent % ways == 0 && open_is(graph->open, extent / ways)) return NULL;
    const char *range = size ? open_range_text(graph->arena, &size->range) : "";
    return arena_printf(graph->arena, "its size %s%s%s is open, and not always a multiple of %lld%s", name,
                        *range ? "=" : "", range, (long long)ways, size ? divided_range(graph, size, ways) : "");
}

const char *split_open_refused(const struct graph *graph, const struct dims *dims, const struct node_split *splits,
                               int axis, const struct node_split *split) {
    if (!graph->open || split->factor < 0) return NULL;
    if (dims_has_windows(dims, split->factor) && open_is(graph->open, dims->factor[split->factor].extent))
        return "its size is open, and it is read in windows";
    int64_t ways = graph->mesh.axis[axis].size;
    for (int other = 0; other < graph->mesh.naxes; other++)
        if (other != axis && splits[other].factor == split->factor) ways *= graph->mesh.axis[other].size;
    const int64_t pieces = (split->blocks < 0 ? -split->blocks : split->blocks) * split->grain;
    return open_cut_refused(graph, dims->factor[split->factor].extent / pieces, ways);
}

const char *split_refused(const struct graph *graph, const struct dims *dims, const struct node_split *splits, int axis,
                          const struct node_split *split) {
    const int other = split_other_axis(splits, dims, axis, split);
    const char *open = split_open_refused(graph, dims, splits, axis, split);
    if (open) return open;
    if (other < 0) return "it cannot be divided among that many ranks";
    const char *name = graph->mesh.axis[other].name;
    if (splits[other].factor != split->factor) return arena_printf(graph->arena, "it is already split along %s", name);
    if (dims_has_windows(dims, split->factor))
        return arena_printf(graph->arena, "it is read in windows, and already split along %s", name);
    return arena_printf(graph->arena, "the parts along %s are too small or too unlike to be divided again", name);
}

const char *split_nest(const struct graph *graph, const struct dims *dims, struct node_split *splits, int axis,
                       const struct node_split *split) {
    if (!dims_can_nest(dims, &graph->mesh, splits, axis, split) || split_open_refused(graph, dims, splits, axis, split))
        return split_refused(graph, dims, splits, axis, split);
    dims_nest(splits, graph->mesh.naxes, axis, split);
    return NULL;
}

int split_tensor(const struct node *node, const struct dims *dims, int operand) {
    const int k = operand < dims->ninputs ? operand : operand - dims->ninputs;
    if (operand < dims->ninputs) return k < node->ninputs ? node->inputs[k] : -1;
    return k < node->noutputs ? node->outputs[k] : -1;
}

enum { OPERAND_NAME = 24 };

/* "in0", "in1" .., "out0" .. */
static void number_operand(char name[OPERAND_NAME], const struct dims *dims, int operand) {
    const bool input = operand < dims->ninputs;
    snprintf(name, OPERAND_NAME, "%s%d", input ? "in" : "out", input ? operand : operand - dims->ninputs);
}

int split_operand(const struct graph *graph, const struct node *node, const struct dims *dims, const char *name) {
    const int operands = dims->ninputs + dims->noutputs;
    char number[OPERAND_NAME];
    for (int i = 0; i < 3 * operands; i++) {
        const int o = i % operands, tensor = split_tensor(node, dims, o);
        const char *called = tensor < 0 ? NULL : graph->tensors.at[tensor].name;
        number_operand(number, dims, o);
        if (called && (i < operands       ? strcmp(called, name) == 0
                       : i < 2 * operands ? strcmp(number, name) == 0
                                          : fnmatch(name, called, 0) == 0))
            return o;
    }
    return -1;
}

bool split_of_cut(const struct node *node, const struct dims *dims, int operand, int dim, int64_t blocks, int64_t grain,
                  int ways, struct node_split *out) {
    struct cut_option options[RT_MAX_NDIM];
    const int n = dims_cut_options(dims, operand, dim, blocks, grain, options);
    for (int i = 0; i < n; i++) {
        if (options[i].more_blocks != 1 || options[i].more_grain != 1 ||
            !dims_can_split(dims, &options[i].split, ways) || !op_can_split(node->op, dims, &options[i].split))
            continue;
        *out = options[i].split;
        return true;
    }
    return false;
}

/* True if `split` means the node's split `wanted`. */
static bool says(const struct graph *graph, const struct node *node, const struct dims *dims,
                 const struct plan_split *split, const struct node_split *wanted) {
    struct node_split meant;
    const int operand = split_operand(graph, node, dims, split->tensor), ways = graph->mesh.axis[split->axis].size;
    return split_of_cut(node, dims, operand, split->dim, split->blocks, split->grain, ways, &meant) &&
           meant.factor == wanted->factor && meant.blocks == wanted->blocks && meant.grain == wanted->grain;
}

/* The split as an entry of a plan: it names the first operand that is divided and whose name identifies the split,
 * otherwise the first operand that is divided, by its number. Text IR may give a split more ranks than parts. No name
 * identifies that one, and verify_graph refuses it once the plan is applied. */
static struct plan_split name_split(const struct graph *graph, const struct node *node, const struct dims *dims,
                                    const struct node_split *wanted, int axis) {
    const int operands = dims->ninputs + dims->noutputs;
    char number[OPERAND_NAME];
    struct plan_split last = {.axis = axis};
    for (int i = 0; i < 2 * operands; i++) {
        const int o = i % operands, tensor = split_tensor(node, dims, o);
        struct plan_split split = {.axis = axis};
        if (tensor < 0 || (split.dim = dims_dim_cut(dims, o, wanted, &split.blocks, &split.grain)) < 0) continue;
        number_operand(number, dims, o);
        split.tensor = i < operands ? graph->tensors.at[tensor].name : arena_strdup(graph->arena, number);
        last = split;
        if (!says(graph, node, dims, &split, wanted)) continue;
        if (open_is(graph->open, split.blocks))
            split.blocks_text = open_text(graph->open, graph->arena, split.blocks, NULL, false);
        if (open_is(graph->open, split.grain))
            split.grain_text = open_text(graph->open, graph->arena, split.grain, NULL, false);
        return split;
    }
    if (!last.tensor) BUG("%s: no operand tells its split along %s", node->name, graph->mesh.axis[axis].name);
    return last;
}

/* Per node: it was recomputed. */
static bool *list_recomputed(const struct graph *graph, struct arena *arena) {
    bool *recomputed = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    for (int i = 0; i < graph->recomputed.n; i++) recomputed[graph->recomputed.at[i]] = true;
    return recomputed;
}

/* Sets the entry's splits, of nested ones the outermost first. */
static void name_splits(struct plan_node *entry, const struct graph *graph, const struct node *node,
                        const struct node_split *splits, struct arena *scratch) {
    struct dims dims;
    int axes[RT_LAYOUT_AXES];
    for (int a = 0; a < graph->mesh.naxes; a++) entry->nsplits += splits[a].factor >= 0;
    if (!entry->nsplits) return;
    dims_bind_checked(scratch, graph, node, &dims);
    entry->splits = ARENA_ARRAY(graph->arena, struct plan_split, entry->nsplits);
    dims_outermost_first(splits, graph->mesh.naxes, axes);
    for (int i = 0, n = 0; n < entry->nsplits; i++)
        if (splits[axes[i]].factor >= 0) entry->splits[n++] = name_split(graph, node, &dims, &splits[axes[i]], axes[i]);
}

void plan_of_draft(struct plan *plan, const struct draft *draft) {
    const struct graph *graph = draft->graph;
    struct arena *arena = graph->arena, *scratch = arena_scratch(arena);
    const bool *recomputed = list_recomputed(graph, scratch);
    *plan = (struct plan){.decisions.mesh = graph->mesh, .chunks = draft->chunks};
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        struct plan_node entry = {
            .name = node->name, .op = node->op->name, .stage = draft->stage[id], .recompute = recomputed[id]};
        name_splits(&entry, graph, node, draft->split[id], scratch);
        VEC_PUSH(arena, &plan->nodes, entry);
    }
    arena_release(arena, scratch);
}

struct applying {
    const struct graph *graph;
    const bool *recomputed; /* per node */
    const struct plan *plan;
    struct diags *diags;
    struct arena *scratch;
    bool is_base;     /* plan_refine */
    struct map nodes; /* entry_key -> node id */
};

/* True if what the plan says of the axis does not concern the graph: a base has no stages, so it has axes of some
 * stages alone for all nodes or for none. */
static bool leaves_out(const struct applying *a, int axis) {
    const struct mesh *given = &a->plan->decisions.mesh;
    if (!a->is_base) return false;
    return axis == mesh_pipeline_axis(given) || (given->axis[axis].end && mesh_is_even(&a->graph->mesh));
}

static int mismatch(const struct applying *a, int line, int column, const char *what) {
    const char *where = a->plan->file ? diag_place(a->diags, a->plan->file, line, column) : a->graph->name;
    return diag_error(a->diags, 424, EXIT_MALFORMED, where, "plan: %s", what);
}

/* Sets the numbers that the plan gives as expressions of open sizes. */
static bool evaluate(const struct graph *graph, struct plan_split *split) {
    return (!split->blocks_text || text_parse_number(graph, split->blocks_text, &split->blocks)) &&
           (!split->grain_text || text_parse_number(graph, split->grain_text, &split->grain)) && split->blocks &&
           split->grain > 0;
}

/* Adds what the plan says of the node to its `splits`, or refuses with node and dimension. */
static int apply_split(const struct applying *a, int id, const struct dims *dims, const struct plan_split *given,
                       struct node_split *splits) {
    const struct graph *graph = a->graph;
    struct plan_split copy = *given, *split = &copy;
    if (!evaluate(graph, split))
        return mismatch(a, given->line, given->column, "blocks or unit is no number of the model's open sizes");
    const struct node *node = &graph->nodes.at[id];
    const char *name = a->plan->decisions.mesh.axis[split->axis].name;
    const int ways = a->plan->decisions.mesh.axis[split->axis].size, axis = mesh_axis_by_name(&graph->mesh, name);
    struct node_split wanted;
    if (axis < 0) return mismatch(a, split->line, split->column, "the mesh has no such axis");
    if (axis == mesh_pipeline_axis(&graph->mesh))
        return mismatch(a, split->line, split->column,
                        arena_printf(graph->arena, "%s cannot be split along '%s', the axis of the pipeline stages",
                                     node_place(graph, id), name));
    if (ways != graph->mesh.axis[axis].size)
        return mismatch(a, split->line, split->column, "ways must be the size of the mesh axis");
    const int operand = split_operand(graph, node, dims, split->tensor);
    if (operand < 0 || split->dim < 0 || split->dim >= dims->operand[operand].ndim)
        return mismatch(a, split->line, split->column, "the node has no such tensor or dimension");
    if (!split_of_cut(node, dims, operand, split->dim, split->blocks, split->grain, ways, &wanted))
        return diag_error(a->diags, 420, EXIT_LIMIT, node_place(graph, id), "dimension %d of %s cannot be split in %d",
                          split->dim, diag_quote(a->diags, split->tensor), ways);
    const char *why = split_nest(graph, dims, splits, axis, &wanted);
    if (!why) return 0;
    return diag_error(a->diags, 420, EXIT_LIMIT, node_place(graph, id),
                      "dimension %d of %s cannot be split along %s: %s", split->dim,
                      diag_quote(a->diags, split->tensor), name, why);
}

static int apply_splits(const struct applying *a, int id, const struct plan_node *entry, struct node_split *splits) {
    struct dims dims;
    if (!entry->nsplits) return 0;
    dims_bind_checked(a->scratch, a->graph, &a->graph->nodes.at[id], &dims);
    EACH(entry->splits, entry->nsplits, i, const struct plan_split *split)
        if (!leaves_out(a, split->axis) && apply_split(a, id, &dims, split, splits) < 0) return -1;
    return 0;
}

static int apply_node(const struct applying *a, struct graph *graph, int id, const struct plan_node *entry) {
    struct node *node = &graph->nodes.at[id];
    if (entry->stage < 0 || entry->stage >= schedule_chunks(graph))
        return mismatch(a, entry->line, entry->column, "the pipeline axis has no such stage");
    if (entry->recompute && !a->recomputed[id])
        return mismatch(a, entry->line, entry->column,
                        arena_printf(a->scratch,
                                     "%s is not recomputed: it is not of the forward phase of training, or reads "
                                     "what that phase updates",
                                     node_place(graph, id)));
    node->stage = entry->stage;
    for (int axis = 0; axis < RT_MAX_AXES; axis++)
        node->split[axis] = (struct node_split){.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
    return apply_splits(a, id, entry, node->split);
}

static const char *entry_key(struct arena *arena, const char *name, const char *op, int nth) {
    return arena_printf(arena, "%s\n%s\n%d", op, name, nth);
}

/* The key of the next node of that name and operator: their number so far is part of it. */
static const char *next_key(struct arena *arena, struct map *counts, const char *name, const char *op) {
    const char *plain = entry_key(arena, name, op, -1);
    const int nth = map_find(counts, plain) + 1;
    map_set(counts, plain, nth);
    return entry_key(arena, name, op, nth);
}

/* Finds a->nodes, and the node of each entry; -1: the graph has none. */
static int *find_entries(struct applying *a) {
    const struct graph *graph = a->graph;
    int *ids = ARENA_ARRAY(a->scratch, int, a->plan->nodes.n + 1);
    struct map counts, wanted;
    map_init(&counts, a->scratch), map_init(&wanted, a->scratch), map_init(&a->nodes, a->scratch);
    GRAPH_EACH(graph, i, const struct node *node) {
        const char *key = next_key(a->scratch, &counts, node->name, node->op->name);
        map_set(&a->nodes, key, graph->order.at[i]);
    }
    for (int i = 0; i < a->plan->nodes.n; i++) {
        const char *key = next_key(a->scratch, &wanted, a->plan->nodes.at[i].name, a->plan->nodes.at[i].op);
        ids[i] = map_find(&a->nodes, key);
    }
    return ids;
}

/* Entries of copies in the backward phase have names of their own, so the numbers of entries that nodes of the forward
 * phase have are the same before and after copying. */
void plan_recomputed(const struct plan *plan, const struct graph *graph, bool *dropped) {
    struct applying a = {.graph = graph, .plan = plan, .scratch = arena_scratch(graph->arena)};
    const int *ids = find_entries(&a);
    VEC_EACH(&plan->nodes, i, const struct plan_node *entry) {
        if (ids[i] >= 0 && graph->nodes.at[ids[i]].phase == PHASE_FORWARD && (entry->gives_recompute || !plan->partial))
            dropped[ids[i]] = entry->recompute;
    }
    arena_release(graph->arena, a.scratch);
}

/* The nodes if entry i is that of the i-th node, for all, as in the plan that a policy has just made; else NULL. */
static const int *find_in_order(const struct plan *plan, const struct graph *graph) {
    bool same = plan->nodes.n == graph->order.n;
    for (int i = 0; i < plan->nodes.n && same; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        same = strcmp(plan->nodes.at[i].op, node->op->name) == 0 && strcmp(plan->nodes.at[i].name, node->name) == 0;
    }
    return same ? graph->order.at : NULL;
}

/* E0424 for an entry without a node. */
static int no_node(const struct applying *a, const struct plan_node *entry) {
    const char *first = entry_key(a->scratch, entry->name, entry->op, 0);
    const char *what = map_find(&a->nodes, first) < 0 ? "the model has no node %s (%s)"
                                                      : "the plan has more entries %s (%s) than the model has nodes";
    return mismatch(a, entry->line, entry->column,
                    arena_printf(a->scratch, what, diag_quote(a->diags, entry->name), diag_quote(a->diags, entry->op)));
}

enum { NAMED = 3 }; /* nodes that an error names */

/* Notes of the last error: the nodes that have no entry. */
static void note_nodes_left(const struct applying *a, const bool *has_entry) {
    int left = 0;
    GRAPH_EACH(a->graph, i, const struct node *node) {
        if (has_entry[a->graph->order.at[i]] || left++ >= NAMED) continue;
        diag_note(a->diags, "the plan has no entry for node %s (%s)", diag_quote(a->diags, node->name),
                  diag_quote(a->diags, node->op->name));
    }
    if (left > NAMED) diag_note(a->diags, "and for %d more of %d node(s)", left - NAMED, a->graph->order.n);
}

/* The node of each entry. NULL after E0424 if they are not those of the graph. */
static const int *find_nodes(struct applying *a) {
    const struct plan *plan = a->plan;
    const int *in_order = find_in_order(plan, a->graph), *ids = in_order ? in_order : find_entries(a);
    const struct plan_node *unknown = NULL;
    bool *has_entry = ARENA_ARRAY(a->scratch, bool, a->graph->nodes.n + 1);
    int known = 0;
    for (int i = 0; i < plan->nodes.n; i++) {
        if (ids[i] < 0 && !unknown) unknown = &plan->nodes.at[i];
        if (ids[i] >= 0) has_entry[ids[i]] = true, known++;
    }
    if (!unknown && known == a->graph->order.n) return ids;
    if (unknown)
        no_node(a, unknown);
    else
        mismatch(a, plan->line, plan->column,
                 a->graph->train ? "not every node of the training program has an entry: the nodes depend on the "
                                   "options of training, which must be those that the plan was made with"
                                 : "not every node of the model has an entry");
    if (plan->nodes.n - known > 1)
        diag_note(a->diags, "%d of the plan's %d node(s) are not in the model", plan->nodes.n - known, plan->nodes.n);
    note_nodes_left(a, has_entry);
    return NULL;
}

static int apply_nodes(struct applying *a, struct graph *graph) {
    const int before = a->diags->errors, *ids = find_nodes(a);
    for (int i = 0; i < a->plan->nodes.n && ids; i++) apply_node(a, graph, ids[i], &a->plan->nodes.at[i]);
    return a->diags->errors == before ? 0 : -1;
}

/* A training program may have any schedule, an inference program its own only. */
static int check_schedule(const struct graph *graph, const struct plan *plan, struct diags *diags) {
    struct schedule_choice choice;
    if (!plan->decisions.schedule) return 0;
    if (graph->train != (strcmp(plan->decisions.schedule, schedule_of_inference) == 0) &&
        schedule_is_known(plan->decisions.schedule))
        return schedule_choose(&choice, plan->decisions.schedule, diags);
    return diag_error(diags, 415, EXIT_UNSUPPORTED, plan->file, "schedule %s in a plan is not supported yet",
                      diag_quote(diags, plan->decisions.schedule));
}

static int check_program(const struct graph *graph, const struct plan *plan, struct diags *diags) {
    const char *what = plan->decisions.zero ? "zero_level" : plan->decisions.zero_groups ? "zero_ngroups" : NULL;
    if (what && !graph->train)
        return diag_error(diags, 424, EXIT_MALFORMED, plan->file, "plan: %s needs a training program (--train)", what);
    return check_schedule(graph, plan, diags);
}

int plan_apply(struct graph *graph, const struct plan *plan, struct diags *diags) {
    struct applying a = {.graph = graph, .plan = plan, .diags = diags};
    if (check_program(graph, plan, diags) < 0) return -1;
    if (plan->chunks.n && !chunks_are_whole(&plan->chunks, schedule_coordinates(graph)))
        return mismatch(&a, plan->line, plan->column,
                        arena_printf(graph->arena, "every coordinate of the pipeline axis needs from 1 to %d stages",
                                     RT_MAX_CHUNKS));
    graph->chunks = plan->chunks;
    a.scratch = arena_scratch(graph->arena);
    a.recomputed = list_recomputed(graph, a.scratch);
    const int status = apply_nodes(&a, graph);
    arena_release(graph->arena, a.scratch);
    return status;
}

/* True if an entry with this name is for a node of a later phase, whose name is that of what it is made for with a
 * word behind it: "h.0/Add.grad", "h.0/Add.again", "h.0.weight.update". */
static bool is_of_later_phase(const struct graph *graph, const char *name) {
    static const char *const words[] = {".grad", ".again", ".update", ".norm"};
    const char *dot = strrchr(name, '.');
    bool known = !dot && strcmp(name, "optimizer") == 0;
    for (size_t i = 0; dot && i < sizeof words / sizeof *words; i++) known = known || strcmp(words[i], dot) == 0;
    return known && graph->train;
}

int plan_check_entries(const struct plan *partial, const struct graph *graph, struct diags *diags) {
    struct applying a = {.graph = graph, .plan = partial, .diags = diags, .scratch = arena_scratch(graph->arena)};
    const int before = diags->errors, *ids = find_entries(&a);
    for (int i = 0; i < partial->nodes.n; i++)
        if (ids[i] < 0 && !is_of_later_phase(graph, partial->nodes.at[i].name)) no_node(&a, &partial->nodes.at[i]);
    arena_release(graph->arena, a.scratch);
    return diags->errors == before ? 0 : -1;
}

/* Checks that the graph's mesh has the axes of the partial plan. */
static int check_mesh(const struct applying *a) {
    const struct mesh *given = &a->plan->decisions.mesh, *mesh = &a->graph->mesh;
    for (int i = 0; i < given->naxes; i++) {
        const int axis = mesh_axis_by_name(mesh, given->axis[i].name);
        const int size = axis < 0 || axis >= mesh->naxes ? 1 : mesh->axis[axis].size;
        const bool same = size == given->axis[i].size && (axis < 0 || (given->axis[i].first == mesh->axis[axis].first &&
                                                                       given->axis[i].end == mesh->axis[axis].end));
        if (same || leaves_out(a, i)) continue;
        const char *here = axis < 0 || axis >= mesh->naxes ? arena_printf(a->scratch, "%s=1", given->axis[i].name)
                                                           : mesh_axis_text(mesh, axis, a->scratch);
        return mismatch(
            a, a->plan->line, a->plan->column,
            arena_printf(a->scratch, "its mesh has %s, this one %s", mesh_axis_text(given, i, a->scratch), here));
    }
    return 0;
}

static int refine_node(const struct applying *a, struct draft *draft, int id, const struct plan_node *entry) {
    const struct mesh *given = &a->plan->decisions.mesh;
    const int pipeline = mesh_pipeline_axis(given), stages = draft_stages(draft);
    if (entry->gives_splits) {
        if (apply_splits(a, id, entry, draft->split[id]) < 0) return -1;
        for (int i = 0; i < given->naxes; i++) {
            const int axis = mesh_axis_by_name(&a->graph->mesh, given->axis[i].name);
            if (i != pipeline && axis >= 0 && !leaves_out(a, i)) draft->fixed[id][axis] = true;
        }
    }
    if (!entry->gives_stage || (pipeline < 0 && !entry->stage) || (pipeline >= 0 && stages == 1)) return 0;
    if (pipeline < 0 || entry->stage < 0 || entry->stage >= stages)
        return mismatch(a, entry->line, entry->column, "the pipeline axis has no such stage");
    draft_give_stage(draft, id, entry->stage);
    return 0;
}

int plan_refine(struct draft *draft, const struct plan *partial, bool is_base, struct diags *diags) {
    const struct graph *graph = draft->graph;
    struct applying a = {.graph = graph, .plan = partial, .diags = diags, .is_base = is_base};
    a.scratch = arena_scratch(graph->arena);
    const int *ids = find_entries(&a);
    int status = check_mesh(&a);
    for (int i = 0; i < partial->nodes.n && !status; i++)
        if (ids[i] >= 0 && graph->nodes.at[ids[i]].phase == PHASE_FORWARD)
            status = refine_node(&a, draft, ids[i], &partial->nodes.at[i]);
    arena_release(graph->arena, a.scratch);
    return status;
}
