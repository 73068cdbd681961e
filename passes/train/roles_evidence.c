/* Evidence about weights: the tests of the EVIDENCE rows of roles.def. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "ir/expr/eval.h"
#include "ir/op.h"
#include "passes/train/roles.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one table have the parameters of all */

enum name_kind name_kind_of(const char *name) {
    static const struct {
        const char *glob;
        enum name_kind kind;
    } names[] = {
#define NAME(glob, kind) {glob, kind},
#include "passes/train/roles.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (fnmatch(names[i].glob, name, 0) == 0) return names[i].kind;
    return KIND_OTHER;
}

static const struct tensor *tensor_of(const struct evidence *e, int id) {
    return &e->graph->tensors.at[id];
}

/* The sources of a weight, counted by the kind of their names. */
struct sources {
    int all, buffers, numbers, members;
    const char *names; /* names of the members, separated by ", " */
};

static void add_source(struct sources *sources, struct arena *arena, const char *name) {
    const enum name_kind kind = name_kind_of(name);
    const bool member = kind == KIND_OTHER || kind == KIND_OPERAND || kind == KIND_FUSED;
    sources->all++;
    sources->buffers += kind == KIND_BUFFER;
    sources->numbers += kind == KIND_NUMBER;
    sources->members += member;
    if (member) sources->names = sources->names ? arena_printf(arena, "%s, %s", sources->names, name) : name;
}

static struct sources sources_of(const struct evidence *e, int weight) {
    struct sources sources = {.names = NULL};
    for (const char *next = tensor_of(e, weight)->sources; next && *next; next += strspn(next, ", ")) {
        const size_t length = strcspn(next, ", ");
        if (length) add_source(&sources, e->arena, arena_copy(e->arena, next, length));
        next += length;
    }
    return sources;
}

const char *evidence_members(const struct evidence *e, int weight) {
    return sources_of(e, weight).names;
}

/* True for a single parameter under another shape: any computation would have left its own name, on the result or among
 * the sources. */
static bool has_elements_of_member(enum name_kind kind, const struct sources *sources) {
    const bool moved = kind == KIND_NUMBER || kind == KIND_MOVED;
    return moved && sources->members == 1 && sources->members + sources->numbers == sources->all;
}

static bool moves(const struct node *node) {
    static const enum op_id names[] = {OP_Cast,    OP_Concat, OP_Expand, OP_Gather,    OP_Pad,
                                       OP_Reshape, OP_Slice,  OP_Trilu,  OP_Transpose, OP_NONE};
    return op_is_listed(node->op, names);
}

static bool is_arithmetic(const struct node *node) {
    return node->op->kind == OP_ELEMENTWISE && node->op->id != OP_PRelu;
}

static bool is_sine(const struct node *node) {
    static const enum op_id names[] = {OP_Sin, OP_Cos, OP_NONE};
    return op_is_listed(node->op, names);
}

/* Operators by which frequencies and positions are combined into angles. */
static bool combines(const struct node *node) {
    static const enum op_id names[] = {OP_Add, OP_Div, OP_Exp,        OP_MatMul, OP_Mul,
                                       OP_Neg, OP_Pow, OP_Reciprocal, OP_Sub,    OP_NONE};
    return op_is_listed(node->op, names) || moves(node);
}

bool evidence_is_read(const struct evidence *e, int tensor) {
    return e->uses.first[tensor] < e->uses.first[tensor + 1];
}

/* Per tensor: whether every use ends at a node for which `ends` holds, directly or through nodes for which `passes`
 * holds. */
static bool *ends_all(const struct evidence *e,
                      bool (*ends)(const struct evidence *e, const struct node *node, int input),
                      bool (*passes)(const struct node *node)) {
    const struct graph *graph = e->graph;
    bool *fails = graph_kept(graph, e->arena), *holds = ARENA_ARRAY(e->arena, bool, graph->tensors.n + 1);
    GRAPH_EACH_BACK(graph, i, const struct node *node) {
        const bool on = passes(node) && holds[node->outputs[0]] && !fails[node->outputs[0]];
        for (int k = 0; k < node->ninputs && e->live[graph->order.at[i]]; k++) {
            if (node->inputs[k] < 0) continue;
            const bool good = ends(e, node, k) || on;
            holds[node->inputs[k]] = holds[node->inputs[k]] || good;
            fails[node->inputs[k]] = fails[node->inputs[k]] || !good;
        }
    }
    for (int t = 0; t < graph->tensors.n; t++) holds[t] = holds[t] && !fails[t];
    return holds;
}

/* True for comparisons, logic and conversions to integers: elementwise operators whose result is not a float. */
static bool ends_in_condition(const struct evidence *e, const struct node *node, int input) {
    return node->op->kind == OP_ELEMENTWISE && !rt_dtype_is_float(tensor_of(e, node->outputs[0])->dtype);
}

static bool passes_by_element(const struct node *node) {
    return is_arithmetic(node) || moves(node);
}

/* Until e->angle is final it marks the tensors that are no positions: float inputs, parameters, and values computed
 * from them. Their sines do not count. */
static bool ends_in_sine(const struct evidence *e, const struct node *node, int input) {
    return is_sine(node) && !(e->angle && e->angle[node->inputs[input]]);
}

/* Per tensor: whether it is data rather than a position or frequency: a float input, a weight of more than one element
 * that makes no angle, or computed from these. */
static bool *find_data(const struct evidence *e, const bool *angle) {
    const struct graph *graph = e->graph;
    bool *data = ARENA_ARRAY(e->arena, bool, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) {
        const struct tensor *tensor = tensor_of(e, t);
        data[t] = rt_dtype_is_float(tensor->dtype) &&
                  (tensor->kind == TENSOR_INPUT ||
                   (tensor->kind == TENSOR_WEIGHT && tensor_elements(tensor) > 1 && !angle[t]));
    }
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && data[node->inputs[k]]) data[node->outputs[0]] = true;
    }
    return data;
}

static bool *find_scores(const struct evidence *e) {
    static const enum op_id ends[] = {OP_Softmax, OP_LogSoftmax, OP_NONE};
    const struct graph *graph = e->graph;
    bool *scores = ARENA_ARRAY(e->arena, bool, graph->tensors.n + 1);
    GRAPH_EACH_BACK(graph, i, const struct node *node) {
        const bool on =
            op_is_listed(node->op, ends) || ((is_arithmetic(node) || moves(node)) && scores[node->outputs[0]]);
        for (int k = 0; k < node->ninputs && on; k++)
            if (node->inputs[k] >= 0) scores[node->inputs[k]] = true;
    }
    return scores;
}

void evidence_begin(struct evidence *e, const struct graph *graph) {
    *e = (struct evidence){.graph = graph, .arena = graph->arena, .live = graph_live(graph, graph->arena)};
    e->uses = graph_uses(graph, e->arena);
    e->searches = ARENA_NEW(e->arena, int);
    e->reached = ARENA_ARRAY(e->arena, int, graph->tensors.n + 1);
    e->scores = find_scores(e);
    e->condition = ends_all(e, ends_in_condition, passes_by_element);
    const bool *angle = ends_all(e, ends_in_sine, combines);
    e->angle = find_data(e, angle);
    e->angle = ends_all(e, ends_in_sine, combines);
}

/* all_uses: whether the test holds for every node that uses the values of the weight, directly or after operators that
 * only move elements. */
typedef bool use_test(const struct evidence *e, const struct node *node, int input);

static bool all_uses(const struct evidence *e, int weight, use_test *test) {
    const struct graph *graph = e->graph;
    const int search = ++*e->searches; /* a search of `test` may reach the same tensors: they are then visited again */
    bool any = false;
    VEC(int) left = {0};
    VEC_PUSH(e->arena, &left, weight);
    while (left.n) {
        const int t = left.at[--left.n];
        for (int u = e->uses.first[t]; u < e->uses.first[t + 1]; u++) {
            const struct node *node = &graph->nodes.at[e->uses.users[u]];
            if (!e->live[e->uses.users[u]]) continue;
            const int out = node->outputs[0];
            any = true;
            for (int k = 0; k < node->ninputs && !moves(node); k++)
                if (node->inputs[k] == t && !test(e, node, k)) return false;
            if (moves(node) && e->reached[out] != search) VEC_PUSH(e->arena, &left, out);
            if (moves(node)) e->reached[out] = search;
        }
    }
    return any;
}

static bool is_power(const struct evidence *e, const struct node *node, int input) {
    return input == 1 && node->op->id == OP_Pow;
}

static bool is_by_element(const struct evidence *e, const struct node *node, int input) {
    return is_arithmetic(node);
}

static bool reads_initial_state(const struct evidence *e, const struct node *node, int input) {
    return input == 2 && node->op->id == OP_Recurrence;
}

static bool is_scattered_into(const struct evidence *e, const struct node *node, int input) {
    return input == 0 && (node->op->id == OP_ScatterElements || node->op->id == OP_ScatterND);
}

static bool reads_away_from_zero(const struct evidence *e, const struct node *node, int input) {
    static const enum op_id names[] = {OP_Log, OP_Pow, OP_Reciprocal, OP_Sqrt, OP_NONE};
    return (input == 0 && op_is_listed(node->op, names)) || (input == 1 && node->op->id == OP_Div);
}

/* x + epsilon or max(x, epsilon) whose result goes to a root, a logarithm or a division. */
static bool is_kept_from_zero(const struct evidence *e, const struct node *node, int input) {
    static const enum op_id names[] = {OP_Add, OP_Max, OP_NONE};
    return op_is_listed(node->op, names) && all_uses(e, node->outputs[0], reads_away_from_zero);
}

/* Element i of the stored bytes, which must be in memory. */
static double value_at(const struct tensor *tensor, int64_t i) {
    return eval_load(tensor->data, tensor->stored.dtype, i).f;
}

static bool is_small(const struct tensor *tensor) {
    return tensor->data && value_at(tensor, 0) > 0 && value_at(tensor, 0) <= 1e-3;
}

/* The value v of a tensor whose elements are 0 and v, both present; else NAN. */
static double beside_zero(const struct tensor *tensor) {
    const int64_t count = tensor->data ? tensor_elements(tensor) : 0;
    double found = NAN;
    bool zero = false;
    for (int64_t i = 0; i < count; i++) {
        const double value = value_at(tensor, i);
        if (isnan(value) || (value != 0 && !isnan(found) && value != found)) return NAN;
        if (value != 0) found = value;
        zero = zero || value == 0;
    }
    return zero ? found : NAN;
}

/* Note [Sinusoids]
 * v(t) = a sin(w t + p) satisfies v(t+1) + v(t-1) = 2 cos(w) v(t). So a table is taken for sinusoids if every column
 * satisfies this equation with one factor 2 cos(w), fitted by least squares, in all rows but the first and the last, up
 * to the rounding of 16-bit floats. Random columns fail within the first rows. Constant columns satisfy it with w = 0,
 * so at least one column must vary. The first rows may be zero: padding. */
enum { FEW_ROWS = 16, PADDING_ROWS = 4, LEAST_ROWS = 4, LEAST_EQUATIONS = 12 };

struct table {
    const struct tensor *tensor;
    int64_t rows, columns, first; /* first: the row after the padding */
    bool swings;                  /* some column varies by more than rounding */
};

static double entry(const struct table *table, int64_t row, int64_t column) {
    return value_at(table->tensor, row * table->columns + column);
}

static bool is_zero_row(const struct table *table, int64_t row) {
    for (int64_t column = 0; column < table->columns; column++)
        if (entry(table, row, column) != 0) return false;
    return true;
}

static double neighbours(const struct table *table, int64_t row, int64_t column) {
    return entry(table, row - 1, column) + entry(table, row + 1, column);
}

/* Whether the rows before `end` of the column satisfy the equation of Note [Sinusoids]. */
static bool solves(struct table *table, int64_t column, int64_t end) {
    double largest = 0, low = INFINITY, high = -INFINITY, above = 0, below = 0;
    for (int64_t t = table->first; t < end; t++) {
        const double v = entry(table, t, column);
        largest = fmax(largest, fabs(v)), low = fmin(low, v), high = fmax(high, v);
        if (t == table->first || t == end - 1) continue;
        above += v * neighbours(table, t, column), below += v * v;
    }
    const double factor = below > 0 ? above / below : 0; /* 2 cos(w), by least squares */
    if (!isfinite(largest) || fabs(factor) > 2.01) return false;
    for (int64_t t = table->first + 1; t + 1 < end; t++)
        if (fabs(neighbours(table, t, column) - factor * entry(table, t, column)) > 0.03 * largest) return false;
    table->swings = table->swings || high - low > 0.2 * largest;
    return true;
}

static bool all_solve(struct table *table, int64_t end) {
    for (int64_t column = 0; column < table->columns; column++)
        if (!solves(table, column, end)) return false;
    return table->swings;
}

/* The rows of the table are the first dimension whose extent is not 1. */
static bool has_sinusoids(const struct tensor *tensor) {
    struct table table = {tensor, 1, 1, 0, false};
    for (int d = 0; d < tensor->ndim; d++) {
        if (table.rows > 1)
            table.columns *= tensor->dims[d];
        else
            table.rows = tensor->dims[d];
    }
    if (!tensor->data || table.rows < LEAST_ROWS || table.columns < 2) return false;
    for (int64_t row = 0; row < PADDING_ROWS && row < table.rows; row++)
        if (is_zero_row(&table, row)) table.first = row + 1;
    if ((table.rows - table.first - 2) * table.columns < LEAST_EQUATIONS || table.rows - table.first < LEAST_ROWS)
        return false;
    const int64_t few = table.first + FEW_ROWS;
    return (table.rows <= few || all_solve(&table, few)) && all_solve(&table, table.rows);
}

unsigned evidence_of(const struct evidence *e, int w) {
    const struct tensor *t = tensor_of(e, w);
    const enum name_kind kind = name_kind_of(t->name);
    const struct sources sources = sources_of(e, w);
    const bool one = tensor_elements(t) == 1;
    unsigned bits = 0, bit = 0;
#define EVIDENCE(name, test) bits |= (unsigned)(test) << bit++;
#include "passes/train/roles.def"
    return bits;
}
