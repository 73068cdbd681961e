/* Ensembles of trees (domain ai.onnx.ml).
 *
 * Note [Trees]
 * All trees are followed at once, one level after the other: a tensor (samples, trees) has the node in which each
 * sample is, at first the roots. A level gathers the node's feature and limit, compares, and gathers the child; leaves
 * are their own children. After as many levels as the deepest tree has, the leaves' weights are gathered and summed.
 * This is TreeTraversal of Hummingbird (Nakandala et al., OSDI 2020, section 4.1). */
#include "frontend/lower/lower_ml.h"

#include <math.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/expr/eval.h"

enum { MOST_LEVELS = 1024, MOST_WEIGHTS = 1 << 26 };

/* MEMBER: one of a set of values (TreeEnsemble-5). */
enum mode { LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF, MODES };
enum aggregate { AVERAGE, SUM, MIN, MAX };

struct forest {
    int64_t n;               /* nodes, leaves among them */
    double *feature, *limit; /* of each node */
    int64_t *yes, *no;       /* children; of leaves themselves */
    uint8_t *mode;
    double *missing; /* 1: NaN goes to `yes` */
    bool has_missing;
    int64_t ntrees, *root;
    int64_t levels, targets;
    double *weight, *has; /* (n, targets): what a leaf adds to a target, and 1 where it adds something */
    bool sparse;          /* some leaf adds nothing to a target */
    enum aggregate aggregate;
    enum rt_dtype compared; /* the type in which features are compared */
};

static int malformed(struct lower *lower, const char *what) {
    return lower_error(lower, 385, "the trees are malformed: %s", what);
}

static double *doubles(struct lower *lower, int64_t n) {
    return ARENA_ARRAY(lower->arena, double, n + 1);
}
static int64_t *integers(struct lower *lower, int64_t n) {
    return ARENA_ARRAY(lower->arena, int64_t, n + 1);
}

/* The numbers of attribute NAME (floats) or TENSOR, *n of them; NULL after a diagnostic. */
static const double *numbers(struct lower *lower, const char *name, const char *tensor, int64_t *n) {
    const Onnx__AttributeProto *given = tensor ? lower_attribute(lower, tensor) : NULL;
    if (given) {
        const int id = lower_proto(lower, given->t);
        if (id < 0) return NULL;
        const struct tensor t = lower_tensor(lower, id);
        const void *bytes = eval_bytes(lower->builder.graph, &t);
        double *values = doubles(lower, *n = tensor_elements(&t));
        for (int64_t i = 0; i < *n; i++) {
            const struct number number = eval_load(bytes, t.kind == TENSOR_WEIGHT ? t.stored.dtype : t.dtype, i);
            values[i] = number.is_float ? number.f : (double)number.i;
        }
        return values;
    }
    int count = 0;
    const float *floats = name ? lower_floats(lower, name, &count) : NULL;
    double *values = doubles(lower, *n = count);
    for (int i = 0; i < count; i++) values[i] = (double)floats[i];
    return values;
}

/* The integers of an attribute that must have n of them; NULL after a diagnostic. */
static const int64_t *integers_of(struct lower *lower, const char *name, int64_t n) {
    int count;
    const int64_t *values = lower_ints(lower, name, &count);
    if (count == n) return n ? values : integers(lower, 0);
    lower_error(lower, 385, "attribute %s has %d value(s), but %lld are needed", name, count, (long long)n);
    return NULL;
}

static void forest_init(struct lower *lower, struct forest *f, int64_t n, int64_t targets) {
    f->n = n;
    f->targets = targets;
    f->feature = doubles(lower, n);
    f->limit = doubles(lower, n);
    f->missing = doubles(lower, n);
    f->yes = integers(lower, n);
    f->no = integers(lower, n);
    f->mode = ARENA_ARRAY(lower->arena, uint8_t, n + 1);
    f->weight = doubles(lower, n * targets);
    f->has = doubles(lower, n * targets);
    f->root = integers(lower, n);
}

static int set_targets(struct lower *lower, struct forest *f, int64_t n, int64_t targets) {
    if (n < 1 || targets < 1) return malformed(lower, "there are no nodes, or no targets");
    if (targets > MOST_WEIGHTS || n > MOST_WEIGHTS / targets)
        return lower_error(lower, 505, "%lld node(s) of trees with %lld target(s)", (long long)n, (long long)targets);
    forest_init(lower, f, n, targets);
    return 0;
}

static bool add_weight(struct forest *f, int64_t leaf, int64_t target, double weight) {
    if (leaf < 0 || leaf >= f->n || target < 0 || target >= f->targets || f->mode[leaf] != LEAF) return false;
    double *at = &f->weight[leaf * f->targets + target], *has = &f->has[leaf * f->targets + target];
    *at = !*has                 ? weight
          : f->aggregate == MIN ? fmin(*at, weight)
          : f->aggregate == MAX ? fmax(*at, weight)
                                : *at + weight;
    *has = 1;
    return true;
}

/* A node's child number k, 0 or 1; -1: a leaf, or both are one. */
static int64_t child_of(const struct forest *f, int64_t node, int k) {
    if (f->mode[node] == LEAF || (k && f->no[node] == f->yes[node])) return -1;
    return k ? f->no[node] : f->yes[node];
}

/* Counts the levels: the longest way from a root. False if there is no such root or child, or children lead back. */
static bool count_levels(struct lower *lower, struct forest *f) {
    int64_t *parents = integers(lower, f->n), *level = integers(lower, f->n), *left = integers(lower, f->n), n = 0,
            done = 0;
    for (int64_t i = 0; i < f->n; i++) parents[i] = -1; /* not reached */
    for (int64_t t = 0; t < f->ntrees; t++) {
        if (f->root[t] < 0 || f->root[t] >= f->n) return false;
        if (parents[f->root[t]] < 0) parents[left[n++] = f->root[t]] = 0;
    }
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            const int64_t child = child_of(f, left[i], k);
            if (f->mode[left[i]] != LEAF && (f->yes[left[i]] < 0 || f->no[left[i]] < 0 || child >= f->n)) return false;
            if (child < 0) continue;
            if (parents[child] < 0) parents[left[n++] = child] = 0;
            parents[child]++;
        }
    const int64_t reached = n;
    n = 0;
    for (int64_t i = 0; i < f->n; i++)
        if (parents[i] == 0) left[n++] = i;
    for (; done < n; done++)
        for (int k = 0; k < 2; k++) {
            const int64_t node = left[done], child = child_of(f, node, k);
            if (child < 0) continue;
            if (level[child] <= level[node]) level[child] = level[node] + 1;
            if (level[child] > f->levels) f->levels = level[child];
            if (--parents[child] == 0) left[n++] = child;
        }
    return done == reached;
}

/* What is left to know of the trees. 0, or -1 after a diagnostic. */
static int finish(struct lower *lower, struct forest *f, int64_t features) {
    for (int64_t i = 0; i < f->n; i++) {
        if (f->mode[i] == LEAF) {
            f->yes[i] = f->no[i] = i;
            for (int64_t t = 0; t < f->targets; t++) f->sparse = f->sparse || !f->has[i * f->targets + t];
        } else if (f->feature[i] < 0 || f->feature[i] >= (double)features) {
            return lower_error(lower, 378, "the trees read feature %g of %lld", f->feature[i], (long long)features);
        }
        f->has_missing = f->has_missing || (f->missing[i] != 0 && f->mode[i] != LEAF);
    }
    if (!count_levels(lower, f)) return malformed(lower, "there is no such node, or children lead back to a parent");
    if (f->levels > MOST_LEVELS)
        return lower_error(lower, 505, "trees of %lld level(s), but at most %d are supported", (long long)f->levels,
                           MOST_LEVELS);
    return 0;
}

/* The nodes of all trees as constants, one value for each node; -1 where no tree needs them. */
struct tables {
    int feature, limit, yes, no, missing, mode;
};

static int compared(struct lower *lower, enum mode mode, int value, int limit) {
    static const enum op_id op[] = {
        [LEQ] = OP_LessOrEqual, [LT] = OP_Less, [GTE] = OP_GreaterOrEqual, [GT] = OP_Greater, [EQ] = OP_Equal};
    return mode == NEQ ? emit1(lower, OP_Not, emit2(lower, OP_Equal, value, limit))
                       : emit2(lower, op[mode], value, limit);
}

/* How many modes the splits have. */
static int modes_of(const struct forest *f, bool occurs[MODES]) {
    int n = 0;
    for (int64_t i = 0; i < f->n; i++) {
        n += f->mode[i] != LEAF && !occurs[f->mode[i]];
        occurs[f->mode[i]] = true;
    }
    return n;
}

static struct tables make_tables(struct lower *lower, const struct forest *f) {
    bool occurs[MODES] = {false};
    const int64_t n = f->n;
    struct tables tables = {.missing = -1, .mode = -1};
    tables.feature = ml_constant(lower, RT_I64, 1, &n, f->feature);
    tables.limit = ml_constant(lower, f->compared, 1, &n, f->limit);
    tables.yes = emit_ints(lower, (int)n, f->yes, 1, &n);
    tables.no = emit_ints(lower, (int)n, f->no, 1, &n);
    if (f->has_missing) tables.missing = ml_constant(lower, RT_F32, 1, &n, f->missing);
    if (modes_of(f, occurs) > 1) {
        double *modes = doubles(lower, n);
        for (int64_t i = 0; i < n; i++) modes[i] = f->mode[i];
        tables.mode = ml_constant(lower, RT_F32, 1, &n, modes);
    }
    return tables;
}

/* True where a sample goes to child `yes`: the comparison of each mode that occurs, at the nodes that have it. */
static int goes_to_yes(struct lower *lower, const struct forest *f, const struct tables *tables, int node, int value) {
    bool occurs[MODES] = {false};
    modes_of(f, occurs);
    const int limit = emit_gather(lower, tables->limit, node, 0);
    const int mode = tables->mode < 0 ? -1 : emit_gather(lower, tables->mode, node, 0);
    int result = -1;
    for (int m = LEQ; m < LEAF; m++) {
        if (!occurs[m]) continue;
        int is = compared(lower, (enum mode)m, value, limit);
        if (mode >= 0) is = emit2(lower, OP_And, is, emit_with(lower, OP_Equal, mode, m));
        result = result < 0 ? is : emit2(lower, OP_Or, result, is);
    }
    if (tables->missing < 0) return result;
    const int tracks = emit_with(lower, OP_Greater, emit_gather(lower, tables->missing, node, 0), 0);
    return emit2(lower, OP_Or, result, emit2(lower, OP_And, tracks, emit1(lower, OP_IsNaN, value)));
}

/* The leaf (samples, trees) of each sample in each tree. */
static int leaves(struct lower *lower, const struct forest *f, int x) {
    const int64_t shape[] = {lower_tensor(lower, x).dims[0], f->ntrees};
    const struct tables tables = make_tables(lower, f);
    int node = emit_expand(lower, emit_ints(lower, (int)f->ntrees, f->root, 1, &f->ntrees), 2, shape);
    for (int64_t level = 0; level < f->levels && node >= 0; level++) {
        const int feature = emit_gather(lower, tables.feature, node, 0);
        const int value = emit_gather_elements(lower, x, feature, 1);
        if (value < 0) return -1;
        const int is = goes_to_yes(lower, f, &tables, node, value);
        node =
            emit3(lower, OP_Where, is, emit_gather(lower, tables.yes, node, 0), emit_gather(lower, tables.no, node, 0));
    }
    return node;
}

/* The sums (samples, targets) of what the leaves have in `table`, or another aggregate; targets without any are 0. */
static int aggregate(struct lower *lower, const struct forest *f, int leaf, enum rt_dtype dtype) {
    static const enum op_id op[] = {
        [AVERAGE] = OP_ReduceSum, [SUM] = OP_ReduceSum, [MIN] = OP_ReduceMin, [MAX] = OP_ReduceMax};
    const int64_t shape[] = {f->n, f->targets};
    const double none = f->aggregate == MIN ? INFINITY : f->aggregate == MAX ? -INFINITY : 0;
    double *table = doubles(lower, f->n * f->targets);
    for (int64_t i = 0; i < f->n * f->targets; i++) table[i] = f->has[i] != 0 ? f->weight[i] : none;
    const int weights = emit_gather(lower, ml_constant(lower, dtype, 2, shape, table), leaf, 0);
    int y = emit_reduce_along(lower, op[f->aggregate], weights, 1, false);
    if (none != 0 && f->sparse)
        y = emit3(lower, OP_Where, emit_with(lower, OP_Equal, y, none), emit_like(lower, y, 0), y);
    return f->aggregate == AVERAGE ? emit_with(lower, OP_Div, y, (double)f->ntrees) : y;
}

static int mode_named(const Onnx__AttributeProto *modes, size_t i) {
    static const char *const names[MODES] = {
        [LEQ] = "BRANCH_LEQ", [LT] = "BRANCH_LT",   [GTE] = "BRANCH_GTE", [GT] = "BRANCH_GT",
        [EQ] = "BRANCH_EQ",   [NEQ] = "BRANCH_NEQ", [LEAF] = "LEAF"};
    for (int m = 0; m < MODES; m++)
        if (names[m] && modes->strings[i].len == strlen(names[m]) &&
            memcmp(modes->strings[i].data, names[m], strlen(names[m])) == 0)
            return m;
    return -1;
}

/* (tree, node) -> index of the node. */
static void put_node(struct map *map, int64_t tree, int64_t node, int index) {
    map_put(map, (const char *)(int64_t[]){tree, node}, 2 * sizeof(int64_t), index);
}
static int get_node(const struct map *map, int64_t tree, int64_t node) {
    return map_get(map, (const char *)(int64_t[]){tree, node}, 2 * sizeof(int64_t));
}

/* Attributes whose names begin with "class" or "target": which leaf adds how much to which target. */
static int read_weights(struct lower *lower, struct forest *f, const struct map *nodes, const char *of) {
    struct arena *arena = lower->arena;
    int64_t n;
    const double *weights = numbers(lower, arena_printf(arena, "%s_weights", of),
                                    lower->version < 3 ? NULL : arena_printf(arena, "%s_weights_as_tensor", of), &n);
    if (!weights) return -1;
    const int64_t *trees = integers_of(lower, arena_printf(arena, "%s_treeids", of), n),
                  *ids = trees ? integers_of(lower, arena_printf(arena, "%s_nodeids", of), n) : NULL,
                  *targets = ids ? integers_of(lower, arena_printf(arena, "%s_ids", of), n) : NULL;
    if (!targets) return -1;
    for (int64_t i = 0; i < n; i++)
        if (!add_weight(f, get_node(nodes, trees[i], ids[i]), targets[i], weights[i]))
            return malformed(lower, "a weight belongs to no leaf or target");
    return 0;
}

/* The root of each tree: its first node that is nobody's child. */
static int find_roots(struct lower *lower, struct forest *f, const int64_t *trees) {
    bool *is_child = ARENA_ARRAY(lower->arena, bool, f->n + 1);
    struct map has_root = {.arena = lower->arena};
    for (int64_t i = 0; i < f->n; i++) {
        if (f->mode[i] == LEAF) continue;
        if (f->yes[i] < 0 || f->no[i] < 0) return malformed(lower, "there is no such node");
        is_child[f->yes[i]] = is_child[f->no[i]] = true;
    }
    for (int64_t i = 0; i < f->n; i++) {
        if (is_child[i] || get_node(&has_root, trees[i], 0) >= 0) continue;
        put_node(&has_root, trees[i], 0, 0);
        f->root[f->ntrees++] = i;
    }
    return f->ntrees ? 0 : malformed(lower, "no node is a root");
}

/* The attributes nodes_* of TreeEnsembleClassifier and TreeEnsembleRegressor, which name nodes by tree and number. */
static int read_nodes(struct lower *lower, struct forest *f, struct map *nodes) {
    int64_t n = f->n, nlimits;
    const Onnx__AttributeProto *modes = lower_attribute(lower, "nodes_modes");
    const double *limits =
        numbers(lower, "nodes_values", lower->version < 3 ? NULL : "nodes_values_as_tensor", &nlimits);
    const int64_t *trees = integers_of(lower, "nodes_treeids", n),
                  *ids = trees ? integers_of(lower, "nodes_nodeids", n) : NULL,
                  *feature = ids ? integers_of(lower, "nodes_featureids", n) : NULL,
                  *yes = feature ? integers_of(lower, "nodes_truenodeids", n) : NULL,
                  *no = yes ? integers_of(lower, "nodes_falsenodeids", n) : NULL;
    const bool tracks = lower_given(lower, "nodes_missing_value_tracks_true");
    int given;
    lower_ints(lower, "nodes_missing_value_tracks_true", &given);
    const int64_t *missing = tracks && given ? integers_of(lower, "nodes_missing_value_tracks_true", n) : NULL;
    if (!no || !limits || (tracks && given && !missing)) return -1;
    if (!modes || (int64_t)modes->n_strings != n || nlimits != n)
        return malformed(lower, "lists of nodes have other lengths");
    for (int64_t i = 0; i < n; i++) put_node(nodes, trees[i], ids[i], (int)i);
    for (int64_t i = 0; i < n; i++) {
        const int mode = mode_named(modes, (size_t)i);
        if (mode < 0) return malformed(lower, "a mode is unknown");
        f->mode[i] = (uint8_t)mode;
        f->feature[i] = (double)feature[i];
        f->limit[i] = limits[i];
        f->missing[i] = missing && missing[i] != 0;
        f->yes[i] = get_node(nodes, trees[i], yes[i]);
        f->no[i] = get_node(nodes, trees[i], no[i]);
    }
    return find_roots(lower, f, trees);
}

/* The forest of a TreeEnsembleClassifier or TreeEnsembleRegressor; x: its samples. */
static int read_forest(struct lower *lower, struct forest *f, const char *of, int64_t targets, int *x) {
    int n;
    f->compared = lower_input(lower, 0).dtype == RT_F64 ? RT_F64 : ml_score_type(lower);
    *x = ml_samples(lower, f->compared);
    lower_ints(lower, "nodes_treeids", &n);
    struct map nodes = {.arena = lower->arena};
    if (*x < 0 || set_targets(lower, f, n, targets) < 0 || read_nodes(lower, f, &nodes) < 0) return -1;
    return read_weights(lower, f, &nodes, of) < 0 ? -1 : finish(lower, f, lower_tensor(lower, *x).dims[1]);
}

/* Adds attribute base_values, *n of them: one per target, or one for the first of two classes. */
static int with_base(struct lower *lower, int scores, int64_t targets, int64_t *n) {
    const double *base = numbers(lower, "base_values", lower->version < 3 ? NULL : "base_values_as_tensor", n);
    if (!base || *n == 0) return base ? scores : -1;
    const double first[] = {base[0], 0};
    if (*n != targets && (*n != 1 || targets != 2))
        return lower_error(lower, 385, "%lld base value(s) for %lld target(s)", (long long)*n, (long long)targets);
    return emit2(lower, OP_Add, scores,
                 ml_constant(lower, lower_dtype(lower, scores), 1, &targets, *n == targets ? base : first));
}

/* One score is left as it is, except by PROBIT. */
static int regression(struct lower *lower, int scores, int64_t targets, int transform) {
    return lower_result(lower,
                        targets == 1 && transform != ML_PROBIT ? scores : ml_transformed(lower, scores, transform));
}

int lower_tree_regressor(struct lower *lower) {
    static const char *const names[] = {[AVERAGE] = "AVERAGE", [SUM] = "SUM", [MIN] = "MIN", [MAX] = "MAX"};
    const int transform = ml_transform(lower, lower_text(lower, "post_transform"));
    const char *how = lower_text(lower, "aggregate_function");
    struct forest f = {.aggregate = SUM};
    int x, a = 0;
    int64_t n;
    while (a < 4 && strcmp(how, names[a]) != 0) a++;
    if (a == 4) return lower_error(lower, 385, "aggregate_function is not SUM, AVERAGE, MIN or MAX");
    f.aggregate = (enum aggregate)a;
    if (transform < 0 || read_forest(lower, &f, "target", lower_int(lower, "n_targets"), &x) < 0) return -1;
    const int scores = aggregate(lower, &f, leaves(lower, &f, x), ml_score_type(lower));
    return scores < 0 ? -1 : regression(lower, with_base(lower, scores, f.targets, &n), f.targets, transform);
}

/* Two classes, of which only one has weights: its score decides. Without base values, weights of the first class are
 * the score of the second. */
static int of_one_class(struct lower *lower, const char *ints, const struct forest *f, int64_t weighted, bool has_base,
                        int scores, int transform) {
    bool positive = true;
    for (int64_t i = 0; i < f->n * f->targets; i++) positive = positive && f->weight[i] >= 0;
    const int score = emit_piece(lower, scores, 1, weighted, 1, 1);
    int z;
    if (weighted == 1 || has_base || transform == ML_PROBIT)
        z = ml_transformed(lower, scores, transform);
    else if (transform == ML_LOGISTIC)
        z = ml_both(lower, emit1(lower, OP_Sigmoid, score), false);
    else
        z = ml_both(lower, score, !positive);
    lower->outputs[1] = z;
    return z < 0 ? -1 : ml_pick_labels(lower, ints, ml_exceeds(lower, score, positive ? 0.5 : 0));
}

int lower_tree_classifier(struct lower *lower) {
    static const char ints[] = "classlabels_int64s";
    const int transform = ml_transform(lower, lower_text(lower, "post_transform"));
    const int64_t classes = transform < 0 ? -1 : ml_labels(lower, ints);
    struct forest f = {.aggregate = SUM};
    int x, weighted = 0;
    int64_t n, target = 0;
    if (classes < 0 || read_forest(lower, &f, "class", classes, &x) < 0) return -1;
    const int sums = aggregate(lower, &f, leaves(lower, &f, x), ml_score_type(lower));
    const int scores = sums < 0 ? -1 : with_base(lower, sums, classes, &n);
    if (scores < 0) return -1;
    for (int64_t t = classes - 1; t >= 0; t--) {
        bool has = false;
        for (int64_t i = 0; i < f.n; i++) has = has || f.has[i * classes + t] != 0;
        weighted += has;
        if (has) target = t;
    }
    if (classes == 2 && weighted == 1) return of_one_class(lower, ints, &f, target, n == 2, scores, transform);
    lower->outputs[1] = ml_transformed(lower, scores, transform);
    return lower->outputs[1] < 0 ? -1 : ml_pick_labels(lower, ints, ml_best(lower, scores));
}

/* Splits of mode MEMBER are written as chains of EQ: one for each value of the split's set, which ends with NaN. */
static int64_t members_of(const double *members, int64_t n, int64_t *at) {
    const int64_t first = *at;
    while (*at < n && !isnan(members[*at])) ++*at;
    const int64_t found = *at - first;
    if (*at < n) ++*at;
    return found;
}

struct splits {
    int64_t n, nleaves, nmembers, nsplits, nmodes, nweights;
    const double *modes, *limits, *weights, *members;
    const int64_t *feature, *yes, *no, *yes_leaf, *no_leaf, *missing, *leaf_target;
};

static int read_splits(struct lower *lower, struct splits *s) {
    int n, nleaves, nmissing;
    lower_ints(lower, "nodes_featureids", &n);
    lower_ints(lower, "leaf_targetids", &nleaves);
    lower_ints(lower, "nodes_missing_value_tracks_true", &nmissing);
    *s = (struct splits){.n = n, .nleaves = nleaves};
    if (!(s->modes = numbers(lower, NULL, "nodes_modes", &s->nmodes)) ||
        !(s->limits = numbers(lower, NULL, "nodes_splits", &s->nsplits)) ||
        !(s->weights = numbers(lower, NULL, "leaf_weights", &s->nweights)) ||
        !(s->members = numbers(lower, NULL, "membership_values", &s->nmembers)) ||
        !(s->feature = integers_of(lower, "nodes_featureids", n)) ||
        !(s->yes = integers_of(lower, "nodes_truenodeids", n)) ||
        !(s->no = integers_of(lower, "nodes_falsenodeids", n)) ||
        !(s->yes_leaf = integers_of(lower, "nodes_trueleafs", n)) ||
        !(s->no_leaf = integers_of(lower, "nodes_falseleafs", n)) ||
        !(s->leaf_target = integers_of(lower, "leaf_targetids", nleaves)) ||
        (nmissing && !(s->missing = integers_of(lower, "nodes_missing_value_tracks_true", n))))
        return -1;
    if (s->nmodes != n || s->nsplits != n || s->nweights != nleaves)
        return malformed(lower, "lists of nodes have other lengths");
    return 0;
}

/* Index of a child: splits come first, each with its whole chain, then leaves. */
static int64_t child(const struct splits *s, const int64_t *place, int64_t splits, int64_t is_leaf, int64_t id) {
    const int64_t n = is_leaf ? s->nleaves : s->n;
    return id < 0 || id >= n ? -1 : is_leaf ? splits + id : place[id];
}

static int read_ensemble(struct lower *lower, struct forest *f, int64_t targets) {
    struct splits s;
    int64_t total = 0, at = 0;
    if (read_splits(lower, &s) < 0) return -1;
    int64_t *place = integers(lower, s.n), *chain = integers(lower, s.n);
    for (int64_t i = 0; i < s.n; i++) {
        if (s.modes[i] < LEQ || s.modes[i] > MEMBER) return malformed(lower, "a mode is unknown");
        place[i] = total;
        chain[i] = s.modes[i] == MEMBER ? members_of(s.members, s.nmembers, &at) : 1;
        if (chain[i] == 0) return malformed(lower, "a set has no members");
        total += chain[i];
    }
    if (set_targets(lower, f, total + s.nleaves, targets) < 0) return -1;
    at = 0;
    for (int64_t i = 0; i < s.n; i++) {
        const int64_t yes = child(&s, place, total, s.yes_leaf[i], s.yes[i]),
                      no = child(&s, place, total, s.no_leaf[i], s.no[i]);
        const bool member = s.modes[i] == MEMBER;
        int64_t value = at;
        if (member) members_of(s.members, s.nmembers, &at);
        for (int64_t k = 0; k < chain[i]; k++) {
            const int64_t node = place[i] + k;
            f->mode[node] = member ? EQ : (uint8_t)s.modes[i];
            f->feature[node] = (double)s.feature[i];
            f->limit[node] = member ? s.members[value++] : s.limits[i];
            f->missing[node] = s.missing && s.missing[i] != 0;
            f->yes[node] = yes;
            f->no[node] = k + 1 < chain[i] ? node + 1 : no;
        }
    }
    for (int64_t i = 0; i < s.nleaves; i++) {
        f->mode[total + i] = LEAF;
        if (!add_weight(f, total + i, s.leaf_target[i], s.weights[i]))
            return malformed(lower, "a leaf has no such target");
    }
    int ntrees;
    const int64_t *roots = lower_ints(lower, "tree_roots", &ntrees);
    for (f->ntrees = 0; f->ntrees < ntrees && f->ntrees < f->n; f->ntrees++) {
        const int64_t root = roots[f->ntrees];
        if (root < 0 || root >= s.n) return malformed(lower, "there is no such root");
        f->root[f->ntrees] = place[root];
    }
    return 0;
}

int lower_tree_ensemble(struct lower *lower) {
    static const int transforms[] = {ML_NONE, ML_SOFTMAX, ML_LOGISTIC, ML_SOFTMAX_ZERO, ML_PROBIT};
    const int64_t transform = lower_int(lower, "post_transform"), how = lower_int(lower, "aggregate_function");
    const int64_t targets = lower_given(lower, "n_targets") ? lower_int(lower, "n_targets") : 1;
    if (transform < 0 || transform > 4 || how < AVERAGE || how > MAX)
        return lower_error(lower, 385, "post_transform or aggregate_function is out of range");
    struct forest f = {.aggregate = (enum aggregate)how};
    f.compared = lower_input(lower, 0).dtype == RT_F64 ? RT_F64 : ml_score_type(lower);
    const int x = ml_samples(lower, f.compared);
    if (x < 0 || read_ensemble(lower, &f, targets) < 0 || finish(lower, &f, lower_tensor(lower, x).dims[1]) < 0)
        return -1;
    const int scores = aggregate(lower, &f, leaves(lower, &f, x), lower_input(lower, 0).dtype);
    return scores < 0 ? -1 : regression(lower, scores, targets, transforms[transform]);
}
