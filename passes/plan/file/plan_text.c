#include "passes/plan/file/plan_text.h"

#include <limits.h>
#include <string.h>

#include "ir/base/own.h"

bool plan_get_axis(const struct rt_json *entry, struct rt_mesh_axis *axis) {
    const struct rt_json *size = entry->kind == RT_JSON_OBJECT ? rt_json_member(entry, "size") : entry;
    const struct rt_json *stages = entry->kind == RT_JSON_OBJECT ? rt_json_member(entry, "stages") : NULL;
    int64_t ways = 0, first = 0, last = -1;
    const bool listed = stages && stages->kind == RT_JSON_ARRAY && stages->first && stages->first->next;
    if (!size || !rt_json_int(size, &ways) || ways < 1 || ways > RT_MAX_RANKS || (stages && !listed)) return false;
    if (listed && (!rt_json_int(stages->first, &first) || !rt_json_int(stages->first->next, &last) || first < 0 ||
                   last < first || last >= RT_MAX_RANKS))
        return false;
    *axis = (struct rt_mesh_axis){(int)ways, (int)first, (int)last + 1};
    return true;
}

bool plan_get_mesh(const struct rt_json *list, struct mesh *mesh, struct arena *arena) {
    *mesh = (struct mesh){0};
    for (const struct rt_json *entry = rt_json_first(list); entry; entry = entry->next) {
        const char *name = rt_json_text(rt_json_member(entry, "axis"));
        struct rt_mesh_axis axis;
        if (!name || !*name || !plan_get_axis(entry, &axis) || mesh_take_axis(mesh, arena_strdup(arena, name), &axis))
            return false;
    }
    return list && list->kind == RT_JSON_ARRAY;
}

void plan_put_mesh(struct rt_json_writer *writer, const struct mesh *mesh) {
    rt_json_key_open(writer, "mesh", '[', RT_JSON_LINES);
    for (int a = 0; a < mesh->naxes; a++) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "axis", mesh->axis[a].name);
        rt_json_key_int(writer, "size", mesh->axis[a].size);
        if (mesh->axis[a].end) {
            rt_json_key_dims(writer, "stages", (int64_t[]){mesh->axis[a].first, mesh->axis[a].end - 1}, 2);
        }
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

static void put_number(struct rt_json_writer *writer, const char *key, int64_t value, const char *text) {
    if (text)
        rt_json_key_text(writer, key, text);
    else
        rt_json_key_int(writer, key, value);
}

void plan_put_partition(struct rt_json_writer *writer, const struct plan *plan, const struct plan_node *node,
                        bool cuts) {
    rt_json_key(writer, "partition");
    if (!node->nsplits) {
        rt_json_put_text(writer, "replicate");
        return;
    }
    rt_json_open(writer, '[', RT_JSON_INLINE);
    EACH(node->splits, node->nsplits, i, const struct plan_split *split) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "tensor", split->tensor);
        rt_json_key_int(writer, "dim", split->dim);
        rt_json_key_int(writer, "ways", plan->decisions.mesh.axis[split->axis].size);
        rt_json_key_text(writer, "axis", plan->decisions.mesh.axis[split->axis].name);
        if (cuts) put_number(writer, "blocks", rt_blocks(split->blocks), split->blocks_text);
        if (cuts) put_number(writer, "unit", split->grain, split->grain_text);
        if (cuts && split->blocks < 0) rt_json_key_bool(writer, "mirrored", true);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

static void put_node(struct rt_json_writer *writer, const struct plan *plan, const struct plan_node *node) {
    rt_json_open(writer, '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "name", node->name);
    rt_json_key_text(writer, "op", node->op);
    plan_put_partition(writer, plan, node, true);
    rt_json_key_int(writer, "stage", node->stage);
    if (node->recompute) rt_json_key_bool(writer, "recompute", true);
    rt_json_close(writer, '}');
}

void plan_put_chunks(struct rt_json_writer *writer, const struct chunks *chunks) {
    if (!chunks->n) return;
    rt_json_key_open(writer, "stages", '[', RT_JSON_INLINE);
    for (int c = 0; c < chunks->n; c++) rt_json_put_int(writer, chunks->home[c]);
    rt_json_close(writer, ']');
}

/* True if the value is a text in the file. */
static bool has_text(const struct decision *row) {
    return row->kind == DECISION_TEXT || row->kind == DECISION_WORD;
}

static void put_decisions(struct rt_json_writer *writer, const struct decisions *decisions, struct arena *arena) {
    for (const struct decision *row = decision_rows; row < decision_rows + DECISIONS; row++) {
        const int64_t number = decision_number(row, decisions);
        if (!row->file) continue;
        if (has_text(row) && decision_text(row, decisions, arena))
            rt_json_key_text(writer, row->file, decision_text(row, decisions, arena));
        else if (!has_text(row) && number && number != row->usual)
            rt_json_key_int(writer, row->file, number);
    }
}

const char *plan_print(struct arena *arena, const struct plan *plan, const char *pas) {
    struct rt_json_writer *writer = own_json_writer(arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_int(writer, "format", PLAN_FORMAT);
    rt_json_key_text(writer, "pas", pas);
    plan_put_mesh(writer, &plan->decisions.mesh);
    plan_put_chunks(writer, &plan->chunks);
    put_decisions(writer, &plan->decisions, arena);
    rt_json_key_open(writer, "nodes", '[', RT_JSON_LINES);
    for (int i = 0; i < plan->nodes.n; i++) put_node(writer, plan, &plan->nodes.at[i]);
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
    return own_json_end(arena, writer);
}

enum { MAX_ERRORS = 20 };

struct reader {
    struct plan *plan;
    struct arena *arena;
    struct diags *diags;
    bool partial;
    int errors;
};

static int malformed(struct reader *r, const struct rt_json *at, const char *what) {
    const char *where = diag_place(r->diags, r->plan->file, at ? at->line : 1, at ? at->column : 1);
    r->errors++;
    return diag_error(r->diags, 424, EXIT_MALFORMED, where, "plan: %s", what);
}

static int refuse_file(const struct reader *r, const char *what) {
    return diag_error(r->diags, 424, EXIT_MALFORMED, diag_quote(r->diags, r->plan->file), "plan: %s", what);
}

static int read_mesh(const struct reader *r, const struct rt_json *list) {
    struct mesh *mesh = &r->plan->decisions.mesh;
    if (!plan_get_mesh(list, mesh, r->arena)) return refuse_file(r, "mesh must be a list of axes and sizes");
    const char *why = mesh_refused(mesh);
    return why ? refuse_file(r, why) : 0;
}

/* A number, or the text of one that depends on open sizes. */
static void read_number(struct reader *r, const struct rt_json *value, int64_t *number, const char **text) {
    const char *given = rt_json_text(value);
    if (given) *text = arena_strdup(r->arena, given);
    rt_json_int(value, number);
}

static int read_split(struct reader *r, const struct rt_json *entry, struct plan_split *split) {
    const char *tensor = rt_json_text(rt_json_member(entry, "tensor")),
               *axis = rt_json_text(rt_json_member(entry, "axis"));
    const struct rt_json *mirrored = rt_json_member(entry, "mirrored");
    int64_t dim = -1, ways = 0;
    bool reversed = false;
    *split = (struct plan_split){.blocks = 1, .grain = 1, .line = entry->line, .column = entry->column};
    rt_json_int(rt_json_member(entry, "dim"), &dim);
    rt_json_int(rt_json_member(entry, "ways"), &ways);
    read_number(r, rt_json_member(entry, "blocks"), &split->blocks, &split->blocks_text);
    read_number(r, rt_json_member(entry, "unit"), &split->grain, &split->grain_text);
    if (!tensor || !axis) return malformed(r, entry, "a split needs tensor, dim and axis");
    if (split->blocks < 1 || split->grain < 1) return malformed(r, entry, "blocks and unit are at least 1");
    if (mirrored && !rt_json_bool(mirrored, &reversed)) return malformed(r, entry, "mirrored must be true or false");
    if (reversed && split->blocks % 2) return malformed(r, entry, "a mirrored split has an even number of blocks");
    if (reversed) split->blocks = -split->blocks;
    split->axis = mesh_axis_by_name(&r->plan->decisions.mesh, axis);
    if (split->axis < 0) return malformed(r, entry, "the mesh has no such axis");
    if (ways != r->plan->decisions.mesh.axis[split->axis].size)
        return malformed(r, entry, "ways must be the size of the mesh axis");
    split->tensor = arena_strdup(r->arena, tensor);
    split->dim = dim < 0 || dim >= RT_MAX_NDIM ? RT_MAX_NDIM : (int)dim;
    return 0;
}

static int read_partition(struct reader *r, const struct rt_json *entry, struct plan_node *node) {
    const struct rt_json *partition = rt_json_member(entry, "partition");
    const char *text = rt_json_text(partition);
    int64_t n = 0;
    node->gives_splits = partition != NULL;
    if (!partition && r->partial) return 0;
    if (text && strcmp(text, "replicate") == 0) return 0;
    if (!partition || partition->kind != RT_JSON_ARRAY)
        return malformed(r, entry, "partition must be \"replicate\" or a list");
    if (partition->count > RT_MAX_AXES) return malformed(r, entry, "partition has more than one split per mesh axis");
    node->splits = ARENA_ARRAY(r->arena, struct plan_split, partition->count + 1);
    for (const struct rt_json *split = partition->first; split; split = split->next)
        if (read_split(r, split, &node->splits[n++]) < 0) return -1;
    node->nsplits = (int)n;
    return 0;
}

static int read_node(struct reader *r, const struct rt_json *entry) {
    struct plan_node node = {.line = entry->line, .column = entry->column};
    const char *name = rt_json_text(rt_json_member(entry, "name")), *op = rt_json_text(rt_json_member(entry, "op"));
    const struct rt_json *recompute = rt_json_member(entry, "recompute");
    int64_t stage = 0;
    if (!name || !op) return malformed(r, entry, "an entry needs name and op");
    node.gives_stage = rt_json_member(entry, "stage") != NULL;
    node.gives_recompute = recompute != NULL;
    if (node.gives_stage && !rt_json_int(rt_json_member(entry, "stage"), &stage))
        return malformed(r, entry, "stage must be a number");
    if (recompute && !rt_json_bool(recompute, &node.recompute))
        return malformed(r, entry, "recompute must be true or false");
    node.name = arena_strdup(r->arena, name);
    node.op = arena_strdup(r->arena, op);
    node.stage = stage < 0 || stage > INT_MAX ? -1 : (int)stage;
    if (read_partition(r, entry, &node) < 0) return -1;
    VEC_PUSH(r->arena, &r->plan->nodes, node);
    return 0;
}

/* A decision for the whole program. */
static int read_decision(struct reader *r, const struct rt_json *text, const struct decision *row) {
    const struct rt_json *value = row->file ? rt_json_member(text, row->file) : NULL;
    const char *word = rt_json_text(value);
    int64_t number;
    if (!value) return 0;
    if (has_text(row)) {
        if (word && decision_parse(row, arena_strdup(r->arena, word), &r->plan->decisions)) return 0;
        const char *words = row->words ? arena_printf(r->arena, "one of %s", row->words) : "a name";
        return malformed(r, value, arena_printf(r->arena, "%s must be %s", row->file, words));
    }
    if (!rt_json_int(value, &number) || number < 0 || number > row->most)
        return malformed(
            r, value,
            arena_printf(r->arena, "%s must be a whole number from 0 to %lld", row->file, (long long)row->most));
    decision_set(row, number, &r->plan->decisions);
    return 0;
}

static int read_chunks(struct reader *r, const struct rt_json *chunks) {
    const bool list = chunks && chunks->kind == RT_JSON_ARRAY;
    int *homes = ARENA_ARRAY(r->arena, int, (list ? chunks->count : 0) + 1), n = 0;
    if (!chunks) return 0;
    for (const struct rt_json *entry = list ? chunks->first : NULL; entry; entry = entry->next) {
        int64_t home;
        if (!rt_json_int(entry, &home) || home < 0 || home >= RT_MAX_RANKS) break;
        homes[n++] = (int)home;
    }
    r->plan->chunks = (struct chunks){n, homes};
    if (list && n && n == chunks->count) return 0;
    return malformed(r, chunks, "stages must be a list of coordinates on the pipeline axis");
}

static int read_decisions(struct reader *r, const struct rt_json *text) {
    int status = 0;
    for (int i = 0; i < DECISIONS && !status; i++) status = read_decision(r, text, &decision_rows[i]);
    return status;
}

int plan_parse(struct plan *plan, bool partial, struct arena *arena, struct diags *diags, const char *file,
               const struct rt_json *text) {
    struct reader r = {.plan = plan, .arena = arena, .diags = diags, .partial = partial};
    const struct rt_json *nodes = rt_json_member(text, "nodes");
    int64_t format = 0;
    *plan = (struct plan){.file = file, .partial = partial};
    rt_json_int(rt_json_member(text, "format"), &format);
    if (format != PLAN_FORMAT) return refuse_file(&r, arena_printf(arena, "the format must be %d", PLAN_FORMAT));
    if (read_mesh(&r, rt_json_member(text, "mesh")) < 0 || read_decisions(&r, text) < 0 ||
        read_chunks(&r, rt_json_member(text, "stages")) < 0)
        return -1;
    if (!nodes || nodes->kind != RT_JSON_ARRAY) return malformed(&r, text, "\"nodes\" must be a list");
    plan->line = nodes->line;
    plan->column = nodes->column;
    for (const struct rt_json *entry = nodes->first; entry && r.errors < MAX_ERRORS; entry = entry->next)
        read_node(&r, entry);
    return r.errors ? -1 : 0;
}
