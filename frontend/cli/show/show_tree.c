/* The tree of a plan's nodes, with repeated layers printed once. Scopes are the parts of names that slashes end, and
 * the modules that the exporter recorded.
 *
 * Note [Folding]
 * The pattern of a node or scope consists of its name with numbers replaced, its operator, partition and stage, and the
 * patterns of its children. Equal patterns get equal ids. A sequence of children whose ids repeat with a fixed period
 * is printed once, with the number of repetitions. So scopes h.0 .. h.11 fold into one, and so do nodes MatMul_3 ..
 * Add_222 in a model without scopes. */
#include <ctype.h>
#include <inttypes.h>

#include "frontend/cli/show/show.h"
#include "ir/base/map.h"
#include "ir/base/repeats.h"

enum {
    DEPTH = 32,        /* deepest nesting of scopes; deeper names keep their slashes */
    NAME_COLUMNS = 40, /* of a name with its indentation */
    OP_COLUMNS = 22
};

struct scope {
    const char *name;    /* the last part, printable */
    const char *op;      /* NULL: not a node */
    const char *what;    /* the partition of a node; of a scope, that of its first node */
    const char *place;   /* stage and ranks; NULL: they differ within the scope */
    const char *pattern; /* of a node's partition (Note [Folding]) */
    VEC(int) children;
    int id, nodes;
    bool replicated; /* all its nodes are */
    bool numbered;   /* a node whose name ends in a number of the exporter, or has none if it is the first */
};

struct stage {
    int64_t number;
    struct rank_list ranks;
    const char *place; /* place_text */
};

struct tree {
    struct arena *arena;
    const struct compiled_model *compiled;
    VEC(struct stage) stages;
    struct map patterns;
    VEC(struct scope) scopes;
    bool verbose, has_stages;
};

const char *show_pattern(struct arena *arena, const char *text) {
    char *blanked = arena_strdup(arena, text), *to = blanked;
    for (const char *from = text; *from; from++) {
        if (!isdigit((unsigned char)*from))
            *to++ = *from;
        else if (from == text || !isdigit((unsigned char)from[-1]))
            *to++ = '#';
    }
    *to = 0;
    return blanked;
}

/* The name of a tensor without the scope of the node: names of weights have "h.0.attn." for the scope "/h.0/attn/". */
static const char *local_name(const char *tensor, const char *node) {
    const char *scope_end = strrchr(node, '/'), *rest = tensor;
    if (*node == '/') node++;
    if (*rest == '/') rest++;
    for (; scope_end && node <= scope_end; node++, rest++)
        if (*rest != *node && !(*node == '/' && *rest == '.')) return tensor;
    return *rest ? rest : tensor;
}

/* A partition as text: "split weight.1, MatMul_output_0.2 in 2 (tensor)". */
static const char *partition_text(const struct rt_json *partition, const char *node, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    for (const struct rt_json *part = partition->first; part; part = part->next) {
        const char *tensor = local_name(show_text(rt_json_member(part, "tensor"), arena), node);
        const char *axis = show_text(rt_json_member(part, "axis"), arena);
        int64_t ways = rt_json_number(part, "ways", 0);
        const struct rt_json *next = part->next;
        bool last = !next || rt_json_number(next, "ways", 0) != ways ||
                    strcmp(show_text(rt_json_member(next, "axis"), arena), axis);
        strbuf_printf(&text, "%s%s.%" PRId64, text.length ? ", " : "split ", tensor, rt_json_number(part, "dim", 0));
        if (last) strbuf_printf(&text, " in %" PRId64 " (%s)", ways, axis);
    }
    return strbuf_text(&text);
}

/* show_pattern without the number at the end of names that the exporter numbers: "linear", "linear_1", "linear_2". */
static const char *pattern_of(struct arena *arena, const char *name, bool numbered) {
    const char *pattern = show_pattern(arena, name);
    const size_t length = strlen(pattern);
    if (!numbered || length < 3 || strcmp(pattern + length - 2, "_#") != 0) return pattern;
    return arena_copy(arena, pattern, length - 2);
}

/* The same with numbers in names replaced, but not those of dimensions and ways. */
static const char *partition_pattern(const struct rt_json *partition, bool numbered, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    for (const struct rt_json *part = partition->first; part; part = part->next)
        strbuf_printf(&text, "%s %" PRId64 " %" PRId64 " %s;",
                      pattern_of(arena, show_text(rt_json_member(part, "tensor"), arena), numbered),
                      rt_json_number(part, "dim", 0), rt_json_number(part, "ways", 0),
                      show_text(rt_json_member(part, "axis"), arena));
    return strbuf_text(&text);
}

/* Stage and ranks of a stage's nodes; "" if the plan has one stage and its nodes run on all ranks. */
static const char *place_text(const struct tree *tree, const struct stage *stage) {
    struct strbuf text = {.arena = tree->arena};
    if (tree->has_stages) strbuf_printf(&text, ", stage %" PRId64, stage->number);
    if (stage->ranks.all.n < tree->compiled->runtime_ngpus)
        strbuf_printf(&text, ", rank%s %s", stage->ranks.all.n == 1 ? "" : "s",
                      rank_list_text(&stage->ranks, tree->arena));
    return strbuf_text(&text);
}

/* The stage of the node: nodes of a stage follow each other mostly. */
static const struct stage *stage_of(struct tree *tree, const struct rt_json *node) {
    const int64_t number = rt_json_number(node, "stage", 0);
    for (int i = tree->stages.n - 1; i >= 0; i--)
        if (tree->stages.at[i].number == number) return &tree->stages.at[i];
    struct stage stage = {.number = number, .ranks = ranks_of_stage(tree->compiled, number, tree->arena)};
    stage.place = place_text(tree, &stage);
    VEC_PUSH(tree->arena, &tree->stages, stage);
    return &tree->stages.at[tree->stages.n - 1];
}

static struct scope read_node(struct tree *tree, const struct rt_json *node, const char *name, const char *last) {
    struct arena *arena = tree->arena;
    const struct rt_json *partition = rt_json_member(node, "partition");
    const char *op = show_text(rt_json_member(node, "op"), arena), *place = stage_of(tree, node)->place;
    const bool numbered = rt_json_member(node, "scope") != NULL;
    bool split = partition && partition->kind == RT_JSON_ARRAY && partition->first;
    const char *unsplit = stage_of(tree, node)->ranks.all.n == 1 ? "whole" : "replicated";
    const char *what = split ? partition_text(partition, name, arena) : unsplit;
    const char *pattern = split ? partition_pattern(partition, numbered, arena) : "";
    return (struct scope){.name = last,
                          .op = op,
                          .what = *place ? arena_printf(arena, "%s%s", what, place) : what,
                          .pattern = pattern,
                          .place = place,
                          .nodes = 1,
                          .replicated = !split,
                          .numbered = numbered};
}

static int add_scope(struct tree *tree, int parent, struct scope scope) {
    int index = tree->scopes.n;
    VEC_PUSH(tree->arena, &tree->scopes, scope);
    if (parent >= 0) VEC_PUSH(tree->arena, &tree->scopes.at[parent].children, index);
    return index;
}

/* The scope `name` within `parent`: the one that the previous node is in, else a new one. */
static int enter_scope(struct tree *tree, int parent, const char *name) {
    const struct scope *scope = &tree->scopes.at[parent];
    int last = scope->children.n ? scope->children.at[scope->children.n - 1] : -1;
    if (last >= 0 && !tree->scopes.at[last].op && !strcmp(tree->scopes.at[last].name, name)) return last;
    return add_scope(tree, parent, (struct scope){.name = name, .replicated = true});
}

/* The node's name; below the path of its module if the exporter recorded that. */
static const char *full_name(const struct tree *tree, const struct rt_json *node) {
    const char *name = show_text(rt_json_member(node, "name"), tree->arena);
    const struct rt_json *scope = rt_json_member(node, "scope");
    return scope ? arena_printf(tree->arena, "%s/%s", show_text(scope, tree->arena), name) : name;
}

static void add_node(struct tree *tree, const struct rt_json *node) {
    const char *name = full_name(tree, node), *at = name;
    int parent = 0;
    for (int depth = 0; depth < DEPTH; depth++) {
        at += *at == '/';
        size_t length = strcspn(at, "/");
        if (!at[length]) break;
        parent = enter_scope(tree, parent, arena_copy(tree->arena, at, length));
        at += length;
    }
    add_scope(tree, parent, read_node(tree, node, name, *at ? at : name));
}

static bool same_place(const struct scope *left, const struct scope *right) {
    return left->place && right->place && strcmp(left->place, right->place) == 0;
}

/* The place of a scope: that of its children if all have the same. */
static void find_place(const struct tree *tree, struct scope *scope) {
    if (!scope->children.n) return;
    const struct scope *first = &tree->scopes.at[scope->children.at[0]];
    scope->what = first->what;
    scope->place = first->place;
    for (int c = 1; c < scope->children.n; c++)
        if (!same_place(first, &tree->scopes.at[scope->children.at[c]])) scope->place = NULL;
}

/* Computes pattern ids and totals of all scopes, bottom up: children have larger indices than their parents. */
static void number_patterns(struct tree *tree) {
    map_init(&tree->patterns, tree->arena);
    for (int i = tree->scopes.n - 1; i >= 0; i--) {
        struct scope *scope = &tree->scopes.at[i];
        find_place(tree, scope);
        struct strbuf pattern = {.arena = tree->arena};
        const char *name = pattern_of(tree->arena, scope->name, scope->numbered);
        if (scope->op)
            strbuf_printf(&pattern, "%s %s %s%s", name, scope->op, scope->pattern, scope->place);
        else
            strbuf_printf(&pattern, "%s (", name);
        for (int c = 0; c < scope->children.n; c++) {
            const struct scope *child = &tree->scopes.at[scope->children.at[c]];
            strbuf_printf(&pattern, "%d ", child->id);
            scope->nodes += child->nodes;
            scope->replicated &= child->replicated;
        }
        const char *key = strbuf_text(&pattern);
        scope->id = map_get(&tree->patterns, key, pattern.length);
        if (scope->id >= 0) continue;
        scope->id = tree->patterns.n;
        map_put(&tree->patterns, key, pattern.length, scope->id);
    }
}

static void put_line(struct strbuf *out, int depth, const char *name, const char *op, const char *what) {
    int columns = NAME_COLUMNS - 2 * depth;
    strbuf_printf(out, "%*s", 2 * depth, "");
    if (*op)
        strbuf_printf(out, "%-*s %-*s %s\n", columns > 1 ? columns : 1, name, OP_COLUMNS, op, what);
    else
        strbuf_printf(out, "%s\n", name);
}

static void put_children(struct strbuf *out, const struct tree *tree, const int *children, int n, int depth);

/* How many of the first children are entirely replicated and at one place; *nodes: how many nodes they contain. */
static int count_replicated(const struct tree *tree, const int *children, int n, int *nodes) {
    int count = 0;
    *nodes = 0;
    const struct scope *first = &tree->scopes.at[children[0]];
    for (; count < n && tree->scopes.at[children[count]].replicated &&
           same_place(first, &tree->scopes.at[children[count]]);
         count++)
        *nodes += tree->scopes.at[children[count]].nodes;
    return count;
}

static const char *range_text(const struct tree *tree, const int *children, int n) {
    const char *first = tree->scopes.at[children[0]].name, *last = tree->scopes.at[children[n - 1]].name;
    return n == 1 ? first : arena_printf(tree->arena, "%s .. %s", first, last);
}

/* Prints a child. A scope with a single child is printed on one line with it. */
static void put_child(struct strbuf *out, const struct tree *tree, int child, const char *name, int depth) {
    const struct scope *scope = &tree->scopes.at[child];
    while (scope->children.n == 1) {
        scope = &tree->scopes.at[scope->children.at[0]];
        name = arena_printf(tree->arena, "%s/%s", name, scope->name);
    }
    if (scope->op)
        put_line(out, depth, name, scope->op, scope->what);
    else {
        put_line(out, depth, name, "", "");
        put_children(out, tree, scope->children.at, scope->children.n, depth + 1);
    }
}

static void put_folded(struct strbuf *out, const struct tree *tree, const int *children, int period, int times,
                       int depth) {
    const char *range = range_text(tree, children, period * times);
    if (period == 1) {
        put_child(out, tree, children[0], arena_printf(tree->arena, "%s (%dx)", range, times), depth);
        return;
    }
    put_line(out, depth, arena_printf(tree->arena, "%s (%dx %d)", range, times, period), "", "");
    put_children(out, tree, children, period, depth + 1);
}

/* Children that are not folded. Those that are replicated are summed up. */
static void put_singly(struct strbuf *out, const struct tree *tree, const int *children, int n, int depth) {
    for (int i = 0; i < n;) {
        int nodes, replicated = count_replicated(tree, children + i, n - i, &nodes);
        if (nodes > 1 && !tree->verbose) {
            put_line(out, depth, range_text(tree, children + i, replicated),
                     arena_printf(tree->arena, "(%d nodes)", nodes), tree->scopes.at[children[i]].what);
            i += replicated;
        } else {
            put_child(out, tree, children[i], tree->scopes.at[children[i]].name, depth);
            i++;
        }
    }
}

/* A repetition is folded unless all of it is replicated and can be summed up. */
static bool is_folded(const struct tree *tree, const int *children, const struct stretch *stretch) {
    int nodes, n = stretch->period * stretch->times;
    return stretch->times > 1 && (tree->verbose || count_replicated(tree, children + stretch->first, n, &nodes) < n);
}

/* Recursion is bounded by 2 x DEPTH, since folding several children adds a level. */
static void put_children(struct strbuf *out, const struct tree *tree, const int *children, int n, int depth) {
    int *ids = ARENA_ARRAY(tree->arena, int, n + 1), put = 0;
    struct stretches stretches;
    for (int i = 0; i < n; i++) ids[i] = tree->scopes.at[children[i]].id;
    repeats_find(tree->arena, ids, n, 1, &stretches);
    VEC_EACH(&stretches.all, s, const struct stretch *stretch) {
        if (!is_folded(tree, children, stretch)) continue;
        put_singly(out, tree, children + put, stretch->first - put, depth);
        put_folded(out, tree, children + stretch->first, stretch->period, stretch->times, depth);
        put = stretch->first + stretch->period * stretch->times;
    }
    put_singly(out, tree, children + put, n - put, depth);
}

static bool has_stages(const struct rt_json *nodes) {
    const struct rt_json *node = rt_json_first(nodes);
    while (node && !rt_json_number(node, "stage", 0)) node = node->next;
    return node != NULL;
}

void show_tree(struct strbuf *out, const struct compiled_model *compiled, bool verbose) {
    const struct rt_json *nodes = rt_json_member(compiled->root, "nodes");
    struct tree tree = {.arena = out->arena, .compiled = compiled, .verbose = verbose, .has_stages = has_stages(nodes)};
    add_scope(&tree, -1, (struct scope){.name = "", .replicated = true});
    if (nodes && nodes->kind == RT_JSON_ARRAY)
        for (const struct rt_json *node = nodes->first; node; node = node->next) add_node(&tree, node);
    number_patterns(&tree);
    strbuf_printf(out, "\nnodes: %d\n", tree.scopes.at[0].nodes);
    put_children(out, &tree, tree.scopes.at[0].children.at, tree.scopes.at[0].children.n, 1);
}
