#include "frontend/lower/amounts.h"

#include <math.h>
#include <string.h>

#include "frontend/lower/lowering_state.h"
#include "ir/base/str.h"
#include "ir/expr/eval.h"

enum { CONTENT = 256 /* bytes of a constant that are compared */ };

static int64_t limited(int64_t value) {
    return value < -AMOUNT_LIMIT ? -AMOUNT_LIMIT : value > AMOUNT_LIMIT ? AMOUNT_LIMIT : value;
}

static int64_t total(int64_t a, int64_t b) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return a < 0 ? -AMOUNT_LIMIT : AMOUNT_LIMIT;
    return limited(sum);
}

static int64_t times(int64_t a, int64_t b) {
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product)) return (a < 0) == (b < 0) ? AMOUNT_LIMIT : -AMOUNT_LIMIT;
    return limited(product);
}

static void key_of_attr(struct strbuf *key, const struct attr *attr) {
    strbuf_printf(key, "|%s:%lld:%.17g:%s", attr->key, (long long)attr->value, attr->number,
                  attr->text ? attr->text : "");
    for (int i = 0; i < attr->n; i++) strbuf_printf(key, ",%lld", (long long)attr->ints[i]);
}

static const char *key_of_node(struct lowering *lowering, const struct node *node) {
    struct strbuf key = {.arena = lowering->arena};
    strbuf_printf(&key, "%s", node->op->name);
    for (int i = 0; i < node->ninputs; i++)
        strbuf_printf(&key, " %d", node->inputs[i] < 0 ? -1 : lowering->first_equal.at[node->inputs[i]]);
    for (int i = 0; i < node->nattrs; i++) key_of_attr(&key, &node->attrs[i]);
    return strbuf_text(&key);
}

/* Note [Counts of masks]
 * Exporters select rows by a mask with NonZero, and compute how many there are, or the elements of these rows, as sums
 * of the mask in other shapes. Their numbers are those that NonZero counts, times the elements of a row. */
struct mask_count {
    int mask;
    int64_t times; /* each element of the mask is counted so often */
};

/* The elements of the operand that an Expand repeats each of, 0: an open number. */
static int64_t repeats(const struct graph *graph, const struct node *expand) {
    const struct tensor *in = &graph->tensors.at[expand->inputs[0]], *out = &graph->tensors.at[expand->outputs[0]];
    int64_t times = 1;
    for (int d = 0; d < out->ndim; d++) {
        const int own = d - (out->ndim - in->ndim);
        if (own >= 0 && in->dims[own] == out->dims[d]) continue;
        if (open_is(graph->open, out->dims[d]) || out->dims[d] > AMOUNTS || times > AMOUNT_LIMIT / AMOUNTS) return 0;
        times *= out->dims[d];
    }
    return times;
}

/* True if the node counts the true elements of a mask. */
static bool counts_mask(const struct graph *graph, const struct node *node, struct mask_count *count) {
    const struct tensor *sum = &graph->tensors.at[node->outputs[0]];
    if (node->op->id != OP_ReduceSum || sum->dtype != RT_I64 || tensor_elements(sum) != 1) return false;
    *count = (struct mask_count){node->inputs[0], 1};
    for (;;) {
        const struct tensor *tensor = &graph->tensors.at[count->mask];
        const struct node *producer = tensor->producer < 0 ? NULL : &graph->nodes.at[tensor->producer];
        const int from = producer && producer->ninputs ? producer->inputs[0] : -1;
        const enum op_id op = from < 0 ? OP_NONE : producer->op->id;
        const int64_t repeated = op == OP_Expand ? repeats(graph, producer) : 1;
        if (op != OP_Reshape && op != OP_Expand && (op != OP_Cast || graph->tensors.at[from].dtype != RT_BOOL))
            return tensor->dtype == RT_BOOL;
        if (!repeated) return tensor->dtype == RT_BOOL;
        count->times = times(count->times, repeated);
        count->mask = from;
    }
}

static const char *key_of_count(struct lowering *lowering, const struct mask_count *count, int64_t times) {
    return arena_printf(lowering->arena, "%lld elements of %d", (long long)times,
                        lowering->first_equal.at[count->mask]);
}

static const char *key_of_constant(struct lowering *lowering, const struct tensor *tensor, size_t bytes) {
    struct strbuf key = {.arena = lowering->arena};
    strbuf_printf(&key, "= %s", tensor_type(lowering->arena, tensor));
    for (size_t i = 0; i < bytes; i++) strbuf_printf(&key, " %02x", ((const unsigned char *)tensor->data)[i]);
    return strbuf_text(&key);
}

static const char *key_of_result(struct lowering *lowering, int output, const char *key) {
    return arena_printf(lowering->arena, "%d %s", output, key);
}

/* The first tensor of the key, which is `tensor` if there was none. */
static int first_of(struct lowering *lowering, const char *key, int tensor) {
    const int found = map_find(&lowering->equal, key);
    if (found >= 0) return found;
    map_set(&lowering->equal, key, tensor);
    return tensor;
}

/* Two nodes of the same operator, attributes and operands compute equal values. Brings lowering->first_equal up to
 * date. */
static void find_equal(struct lowering *lowering) {
    const struct graph *graph = lowering->graph;
    for (int t = lowering->first_equal.n; t < graph->tensors.n; t++) {
        const struct tensor *tensor = &graph->tensors.at[t];
        int first = t;
        if (tensor->kind == TENSOR_CONST) {
            const size_t bytes = (size_t)tensor_elements(tensor) * rt_dtype_bytes(tensor->dtype);
            if (bytes <= CONTENT) first = first_of(lowering, key_of_constant(lowering, tensor, bytes), t);
        }
        VEC_PUSH(lowering->arena, &lowering->first_equal, first);
    }
    for (; lowering->numbered < graph->nodes.n; lowering->numbered++) {
        const struct node *node = &graph->nodes.at[lowering->numbered];
        struct mask_count count;
        const char *key = counts_mask(graph, node, &count) ? key_of_count(lowering, &count, count.times)
                                                           : key_of_node(lowering, node);
        for (int o = 0; o < node->noutputs; o++)
            lowering->first_equal.at[node->outputs[o]] =
                first_of(lowering, key_of_result(lowering, o, key), node->outputs[o]);
    }
}

static int64_t least_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t most_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

struct amount amount_of_number(int64_t number) {
    number = limited(number);
    return (struct amount){.least = number, .most = number, .offset = number};
}

static int order_of(const struct amount_term *a, const struct amount_term *b) {
    return a->tensor != b->tensor ? a->tensor - b->tensor : a->element - b->element;
}

/* The sum of two numbers, of which open ones stay known. */
static int64_t joined(const struct lowering *lowering, int64_t a, int64_t b) {
    struct open_sizes *open = lowering->graph->open;
    return open_is(open, a) || open_is(open, b) ? open_sum(open, a, b) : total(a, b);
}

static struct amount plus(struct lowering *lowering, const struct amount *a, int64_t factor, const struct amount *b) {
    struct amount_term *terms = ARENA_ARRAY(lowering->arena, struct amount_term, a->n + b->n + 1);
    struct amount sum = {.offset = joined(lowering, a->offset, times(factor, b->offset)), .terms = terms};
    const int64_t low = times(factor, b->least), high = times(factor, b->most);
    for (int i = 0, k = 0; i < a->n || k < b->n;) {
        const int order = i == a->n ? 1 : k == b->n ? -1 : order_of(&a->terms[i], &b->terms[k]);
        struct amount_term term = order <= 0 ? a->terms[i] : b->terms[k];
        if (order > 0) term.factor = times(factor, term.factor);
        if (!order) term.factor = total(term.factor, times(factor, b->terms[k].factor));
        i += order <= 0;
        k += order >= 0;
        if (term.factor) terms[sum.n++] = term;
    }
    sum.least = joined(lowering, a->least, least_of(low, high));
    sum.most = joined(lowering, a->most, most_of(low, high));
    return sum.n ? sum : amount_of_number(sum.offset);
}

/* How often the sum contains the terms of the part; 0 if not all of them as often. */
static int64_t times_contained(const struct amount *sum, const struct amount *part) {
    int64_t ratio = 0;
    for (int i = 0, k = 0; k < part->n; k++) {
        while (i < sum->n && order_of(&sum->terms[i], &part->terms[k]) < 0) i++;
        if (i == sum->n || order_of(&sum->terms[i], &part->terms[k]) != 0) return 0;
        const int64_t here = sum->terms[i].factor / part->terms[k].factor;
        if (sum->terms[i].factor % part->terms[k].factor || (k && here != ratio)) return 0;
        ratio = here;
    }
    return ratio;
}

struct amount amount_plus(struct lowering *lowering, const struct amount *a, int64_t factor, const struct amount *b) {
    struct amount sum = plus(lowering, a, factor, b);
    for (int s = 0; s < lowering->sums.n && sum.n; s++) {
        const struct amount_sum *known = &lowering->sums.at[s];
        const int64_t ratio = times_contained(&sum, &known->parts);
        if (!ratio) continue;
        const int64_t least = sum.least, most = sum.most;
        sum = plus(lowering, &sum, -ratio, &known->parts);
        sum = plus(lowering, &sum, ratio, &known->total);
        if (!sum.n) return sum;
        sum.least = most_of(sum.least, least);
        sum.most = least_of(sum.most, most);
    }
    return sum;
}

bool amount_at_most(struct lowering *lowering, const struct amount *a, const struct amount *b) {
    struct open_sizes *open = lowering->graph->open;
    const struct amount rest = amount_plus(lowering, b, -1, a);
    return open_at_most(open, a->most, b->least) || (!rest.n && open_at_most(open, a->offset, b->offset));
}

bool amount_equal(struct lowering *lowering, const struct amount *a, const struct amount *b) {
    const struct amount rest = amount_plus(lowering, a, -1, b);
    return !rest.n && !rest.offset;
}

struct root {
    int tensor, element;
};

static int find_bound(const struct lowering *lowering, int tensor, int element) {
    const struct root root = {tensor, element};
    return map_get(&lowering->bounds, (const char *)&root, sizeof root);
}

static struct amount root_of(struct lowering *lowering, int tensor, int element, int64_t least, int64_t most) {
    find_equal(lowering);
    tensor = lowering->first_equal.at[tensor];
    const int at = find_bound(lowering, tensor, element);
    struct amount root = {.least = limited(least), .most = limited(most), .n = 1};
    if (at >= 0) root.least = most_of(root.least, 0), root.most = least_of(root.most, lowering->bound.at[at]);
    if (root.least >= root.most) return amount_of_number(root.least);
    root.terms = arena_copy(lowering->arena, &(struct amount_term){tensor, element, 1}, sizeof *root.terms);
    return root;
}

void amounts_bound(struct lowering *lowering, int tensor, int element, int64_t most) {
    const struct amount *amounts = amounts_of(lowering, tensor);
    if (!amounts || amounts[element].n != 1) return;
    const struct amount_term *term = amounts[element].terms;
    if (amounts[element].offset || term->factor != 1) return;
    const struct root root = {term->tensor, term->element};
    VEC_PUSH(lowering->arena, &lowering->bound, most);
    map_put(&lowering->bounds, (const char *)&root, sizeof root, lowering->bound.n - 1);
    map_init(&lowering->amount_index, lowering->arena); /* amounts found so far lack the bound */
}

void amounts_sum(struct lowering *lowering, int n, const struct amount *parts, const struct amount *total) {
    struct amount_sum sum = {.parts = amount_of_number(0), .total = *total};
    for (int i = 0; i < n; i++) sum.parts = plus(lowering, &sum.parts, 1, &parts[i]);
    if (sum.parts.n) VEC_PUSH(lowering->arena, &lowering->sums, sum);
}

/* The amounts x[i] of the operands of one element; false: the element is a root in [y->least, y->most]. */
typedef bool (*operation)(struct lowering *lowering, const struct amount *x, struct amount *y);

static bool add(struct lowering *lowering, const struct amount *x, struct amount *y) {
    *y = amount_plus(lowering, &x[0], 1, &x[1]);
    return true;
}
static bool subtract(struct lowering *lowering, const struct amount *x, struct amount *y) {
    *y = amount_plus(lowering, &x[0], -1, &x[1]);
    return true;
}
static bool negate(struct lowering *lowering, const struct amount *x, struct amount *y) {
    const struct amount zero = amount_of_number(0);
    *y = amount_plus(lowering, &zero, -1, x);
    return true;
}
static bool multiply(struct lowering *lowering, const struct amount *x, struct amount *y) {
    const struct amount zero = amount_of_number(0);
    for (int i = 0; i < 2; i++)
        if (!x[i].n) return *y = amount_plus(lowering, &zero, x[i].offset, &x[1 - i]), true;
    const int64_t a = times(x[0].least, x[1].least), b = times(x[0].least, x[1].most), c = times(x[0].most, x[1].least),
                  d = times(x[0].most, x[1].most);
    y->least = least_of(least_of(a, b), least_of(c, d));
    y->most = most_of(most_of(a, b), most_of(c, d));
    return false;
}

/* The quotient by a positive number if it divides everything; else a root in the range of the quotients, rounded to
 * either side. */
static bool divide(struct lowering *lowering, const struct amount *x, struct amount *y) {
    struct open_sizes *open = lowering->graph->open;
    const int64_t by = x[1].n ? 0 : x[1].offset;
    if (by <= 0 || open_is(open, by)) return false;
    if (open_is(open, x->offset)) {
        const int64_t least = open_least(open, x->least), most = open_most(open, x->most);
        y->least = least / by - (least % by < 0);
        y->most = most / by + (most % by > 0);
        return false;
    }
    bool divides = x->offset % by == 0;
    for (int i = 0; i < x->n; i++) divides = divides && x->terms[i].factor % by == 0;
    y->least = x->least / by - (x->least % by < 0);
    y->most = x->most / by + (x->most % by > 0);
    if (!divides) return false;
    struct amount_term *terms = ARENA_ARRAY(lowering->arena, struct amount_term, x->n + 1);
    for (int i = 0; i < x->n; i++) terms[i] = x->terms[i], terms[i].factor /= by;
    *y = (struct amount){.least = y->least, .most = y->most, .offset = x->offset / by, .n = x->n, .terms = terms};
    return true;
}

static bool smaller(struct lowering *lowering, const struct amount *x, struct amount *y) {
    for (int i = 0; i < 2; i++)
        if (amount_at_most(lowering, &x[i], &x[1 - i])) return *y = x[i], true;
    struct open_sizes *open = lowering->graph->open;
    y->least = least_of(open_least(open, x[0].least), open_least(open, x[1].least));
    y->most = open_lesser(open, x[0].most, x[1].most);
    return false;
}
static bool larger(struct lowering *lowering, const struct amount *x, struct amount *y) {
    for (int i = 0; i < 2; i++)
        if (amount_at_most(lowering, &x[i], &x[1 - i])) return *y = x[1 - i], true;
    struct open_sizes *open = lowering->graph->open;
    y->least = most_of(open_least(open, x[0].least), open_least(open, x[1].least));
    y->most = open_greater(open, x[0].most, x[1].most);
    return false;
}

static bool choose(struct lowering *lowering, const struct amount *x, struct amount *y) {
    if (!x[0].n) return *y = x[0].offset ? x[1] : x[2], true;
    if (amount_equal(lowering, &x[1], &x[2])) return *y = x[1], true;
    y->least = least_of(x[1].least, x[2].least);
    y->most = most_of(x[1].most, x[2].most);
    return false;
}

/* a < b + more: true, false, or either */
static bool less(struct lowering *lowering, const struct amount *a, const struct amount *b, int64_t more,
                 struct amount *y) {
    const struct amount number = amount_of_number(more), one = amount_of_number(1);
    const struct amount end = amount_plus(lowering, b, 1, &number), next = amount_plus(lowering, a, 1, &one);
    if (amount_at_most(lowering, &next, &end)) return *y = one, true;
    if (amount_at_most(lowering, &end, a)) return *y = amount_of_number(0), true;
    return false;
}
static bool is_less(struct lowering *lowering, const struct amount *x, struct amount *y) {
    return less(lowering, &x[0], &x[1], 0, y);
}
static bool is_at_most(struct lowering *lowering, const struct amount *x, struct amount *y) {
    return less(lowering, &x[0], &x[1], 1, y);
}
static bool is_greater(struct lowering *lowering, const struct amount *x, struct amount *y) {
    return less(lowering, &x[1], &x[0], 0, y);
}
static bool is_at_least(struct lowering *lowering, const struct amount *x, struct amount *y) {
    return less(lowering, &x[1], &x[0], 1, y);
}
static bool is_equal(struct lowering *lowering, const struct amount *x, struct amount *y) {
    if (amount_equal(lowering, &x[0], &x[1])) return *y = amount_of_number(1), true;
    struct amount apart = {0};
    for (int i = 0; i < 2; i++)
        if (less(lowering, &x[i], &x[1 - i], 0, &apart) && apart.offset) return *y = amount_of_number(0), true;
    return false;
}
static bool is_not(struct lowering *lowering, const struct amount *x, struct amount *y) {
    const struct amount one = amount_of_number(1);
    *y = amount_plus(lowering, &one, -1, x);
    return true;
}

/* An integer is returned unchanged. A float becomes a new root with the same bounds. */
static bool round_to_integer(struct lowering *lowering, const struct amount *x, struct amount *y) {
    for (int i = 0; i < x->n; i++)
        if (rt_dtype_is_float(lowering->graph->tensors.at[x->terms[i].tensor].dtype))
            return y->least = x->least, y->most = x->most, false;
    *y = *x;
    return true;
}
static bool take_first(struct lowering *lowering, const struct amount *x, struct amount *y) {
    (void)lowering;
    *y = *x;
    return true;
}

/* Operators on each element of the result, with the elements of the operands that broadcast to it. */
static const struct {
    enum op_id op;
    operation apply;
} elementwise[] = {{OP_Add, add},
                   {OP_Sub, subtract},
                   {OP_Mul, multiply},
                   {OP_Div, divide},
                   {OP_Neg, negate},
                   {OP_Min, smaller},
                   {OP_Max, larger},
                   {OP_Where, choose},
                   {OP_Less, is_less},
                   {OP_Equal, is_equal},
                   {OP_LessOrEqual, is_at_most},
                   {OP_Not, is_not},
                   {OP_Greater, is_greater},
                   {OP_GreaterOrEqual, is_at_least},
                   {OP_Cast, round_to_integer},
                   {OP_Floor, round_to_integer},
                   {OP_Ceil, round_to_integer},
                   {OP_Expand, take_first}};

/* Reductions of all elements. */
static const struct {
    enum op_id op;
    operation apply;
} reductions[] = {{OP_ReduceSum, add}, {OP_ReduceProd, multiply}, {OP_ReduceMin, smaller}, {OP_ReduceMax, larger}};

enum { DEPTH = 64, EXACT = 1 << 24 /* f32 has all integers up to it */ };

static const struct amount *find(struct lowering *lowering, int tensor, int depth);

/* The range of a type whose arithmetic is that of integers; false for others. */
static bool range_of(enum rt_dtype dtype, int64_t *least, int64_t *most) {
    *least = dtype == RT_BOOL ? 0 : dtype == RT_I32 ? INT32_MIN : -AMOUNT_LIMIT;
    *most = dtype == RT_BOOL ? 1 : dtype == RT_I32 ? INT32_MAX : AMOUNT_LIMIT;
    return dtype == RT_BOOL || dtype == RT_I32 || dtype == RT_I64 || dtype == RT_F32 || dtype == RT_F64;
}

static struct amount unknown(struct lowering *lowering, int tensor, int element) {
    int64_t least, most;
    range_of(lowering->graph->tensors.at[tensor].dtype, &least, &most);
    return root_of(lowering, tensor, element, least, most);
}

/* True for a float that may be infinite or NaN. Nothing follows from it: NaN does not even equal itself. */
static bool is_wild(const struct lowering *lowering, int tensor, const struct amount *x) {
    return rt_dtype_is_float(lowering->graph->tensors.at[tensor].dtype) &&
           (x->least <= -AMOUNT_LIMIT || x->most >= AMOUNT_LIMIT);
}

/* The element of the result of an operation. */
static struct amount result_of(struct lowering *lowering, int tensor, int element, operation apply,
                               const struct amount *x) {
    struct amount y = unknown(lowering, tensor, element);
    if (apply(lowering, x, &y)) return y;
    return root_of(lowering, tensor, element, y.least, y.most);
}

/* The element of `operand` that broadcasts to index `at` of a tensor of ndim dimensions. */
static int64_t broadcast_element(const struct tensor *operand, const int64_t *at, int ndim) {
    int64_t own[RT_MAX_NDIM];
    for (int d = 0; d < operand->ndim; d++) own[d] = operand->dims[d] == 1 ? 0 : at[ndim - operand->ndim + d];
    return eval_offset(own, operand->dims, operand->ndim);
}

static void of_elementwise(struct lowering *lowering, const struct node *node, operation apply, struct amount *y) {
    const struct tensor *out = &lowering->graph->tensors.at[node->outputs[0]];
    int64_t at[RT_MAX_NDIM] = {0};
    struct amount x[3];
    for (int e = 0; e < tensor_elements(out); e++, eval_next(at, out->dims, out->ndim)) {
        bool wild = false;
        for (int i = 0; i < node->ninputs && i < 3; i++) {
            const struct tensor *operand = &lowering->graph->tensors.at[node->inputs[i]];
            x[i] = find(lowering, node->inputs[i], 0)[broadcast_element(operand, at, out->ndim)];
            wild = wild || is_wild(lowering, node->inputs[i], &x[i]);
        }
        if (!wild) y[e] = result_of(lowering, node->outputs[0], e, apply, x);
    }
}

/* Partial results that are no amounts are roots of the result's tensor with negative elements. A sum of several terms
 * stays one number. */
static void of_reduction(struct lowering *lowering, const struct node *node, operation apply, struct amount *y) {
    const int tensor = node->outputs[0];
    const struct tensor *in = &lowering->graph->tensors.at[node->inputs[0]];
    struct amount x[2] = {find(lowering, node->inputs[0], 0)[0]};
    for (int e = 0; e < tensor_elements(in); e++)
        if (is_wild(lowering, node->inputs[0], &find(lowering, node->inputs[0], 0)[e])) return;
    for (int e = 1; e < tensor_elements(in); e++) {
        x[1] = find(lowering, node->inputs[0], 0)[e];
        x[0] = result_of(lowering, tensor, -e, apply, x);
    }
    bool partial = false;
    for (int i = 0; i < x[0].n; i++) partial = partial || x[0].terms[i].element < 0;
    y[0] = partial || x[0].n > 1 ? root_of(lowering, tensor, 0, x[0].least, x[0].most) : x[0];
}

static void of_constant(struct lowering *lowering, int id, const struct tensor *tensor, struct amount *y) {
    for (int e = 0; e < tensor_elements(tensor); e++) {
        const struct number number = eval_load(tensor->data, tensor->dtype, e);
        const double value = number.is_float ? number.f : (double)number.i;
        if (!number.is_float)
            y[e] = amount_of_number(number.i);
        else if (fabs(value) < EXACT)
            y[e] = value == floor(value) ? amount_of_number((int64_t)value)
                                         : root_of(lowering, id, e, (int64_t)floor(value), (int64_t)ceil(value));
    }
}

/* moved_from of an update of single elements of a list at known indices, of which the last one counts. */
static bool updated_from(struct lowering *lowering, const struct node *node, int64_t e, int *input, int64_t *from) {
    const struct tensor *in = &lowering->graph->tensors.at[node->inputs[0]];
    int n;
    const int64_t *index = in->ndim == 1 ? build_known_ints(lowering->graph, node->inputs[1], &n) : NULL;
    for (int i = 0; index && i < n; i++)
        if (index[i] == e || index[i] + in->dims[0] == e) *input = 2, *from = i;
    return index;
}

/* Finds from where an operator that moves elements takes element e of its result: element *from of operand *input.
 * False if that is not found. */
static bool moved_from(struct lowering *lowering, const struct node *node, int64_t e, int *input, int64_t *from) {
    struct graph *graph = lowering->graph;
    const struct tensor *in = &graph->tensors.at[node->inputs[0]], *out = &graph->tensors.at[node->outputs[0]];
    int n;
    *input = 0;
    *from = e;
    if (node->op->id == OP_Reshape) return true;
    if (node->op->id == OP_ScatterElements || node->op->id == OP_ScatterND)
        return updated_from(lowering, node, e, input, from);
    if (node->op->id == OP_Concat) {
        for (int64_t d = 0; d < attr_int(node, "axis", 0); d++)
            if (out->dims[d] != 1) return false;
        for (; *from >= tensor_elements(&graph->tensors.at[node->inputs[*input]]); ++*input)
            *from -= tensor_elements(&graph->tensors.at[node->inputs[*input]]);
        return true;
    }
    if (node->op->id == OP_Slice) {
        const int64_t *start = attr_ints(node, "start", &n), *step = attr_ints(node, "step", &n);
        int64_t stride = 1;
        *from = 0;
        for (int d = out->ndim; d-- > 0; e /= out->dims[d], stride *= in->dims[d])
            *from += (start[d] + e % out->dims[d] * step[d]) * stride;
        return true;
    }
    if (node->op->id != OP_Gather || attr_int(node, "axis", 0) != 0) return false;
    const int64_t inner = in->dims[0] ? tensor_elements(in) / in->dims[0] : 0;
    const int64_t *index = build_known_ints(graph, node->inputs[1], &n);
    if (!index || !inner) return false;
    const int64_t at = index[e / inner];
    *from = (at < 0 ? at + in->dims[0] : at) * inner + e % inner;
    return *from >= 0 && *from < tensor_elements(in);
}

static void of_moved(struct lowering *lowering, const struct node *node, struct amount *y) {
    const int64_t elements = tensor_elements(&lowering->graph->tensors.at[node->outputs[0]]);
    for (int64_t e = 0, from; e < elements; e++) {
        int input;
        if (moved_from(lowering, node, e, &input, &from)) y[e] = find(lowering, node->inputs[input], 0)[from];
    }
}

static void of_node(struct lowering *lowering, const struct node *node, struct amount *y) {
    static const enum op_id moves[] = {OP_Reshape,         OP_Concat,    OP_Slice, OP_Gather,
                                       OP_ScatterElements, OP_ScatterND, OP_NONE};
    if (op_is_listed(node->op, moves)) of_moved(lowering, node, y);
    for (size_t i = 0; i < sizeof elementwise / sizeof *elementwise; i++)
        if (node->op->id == elementwise[i].op) of_elementwise(lowering, node, elementwise[i].apply, y);
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        if (node->op->id == reductions[i].op && tensor_elements(&lowering->graph->tensors.at[node->outputs[0]]) == 1 &&
            tensor_elements(&lowering->graph->tensors.at[node->inputs[0]]))
            of_reduction(lowering, node, reductions[i].apply, y);
}

/* A multiple of the count of the mask that the counted one repeats, if there is a node with that count. */
static bool of_count(struct lowering *lowering, int id, const struct node *node, struct amount *y) {
    struct mask_count count;
    if (!counts_mask(lowering->graph, node, &count) || count.times == 1) return false;
    find_equal(lowering);
    const int once = map_find(&lowering->equal, key_of_result(lowering, 0, key_of_count(lowering, &count, 1)));
    if (once < 0 || once >= id) return false;
    const struct amount zero = amount_of_number(0);
    y[0] = amount_plus(lowering, &zero, count.times, &find(lowering, once, 0)[0]);
    return true;
}

/* The amounts of the result of the tensor's node, or of a constant. Values that may overflow, and those of other types
 * and of several results, are roots. */
static void of_tensor(struct lowering *lowering, int id, int depth, struct amount *y) {
    const struct tensor tensor = lowering->graph->tensors.at[id];
    int64_t least, most;
    for (int e = 0; e < tensor_elements(&tensor); e++) y[e] = unknown(lowering, id, e);
    if (depth == DEPTH || !range_of(tensor.dtype, &least, &most)) return;
    if (tensor.kind == TENSOR_CONST) of_constant(lowering, id, &tensor, y);
    if (tensor.producer < 0) return;
    const struct node *node = &lowering->graph->nodes.at[tensor.producer];
    if (of_count(lowering, id, node, y)) return;
    for (int i = 0; i < node->ninputs; i++)
        if (node->inputs[i] < 0 || !find(lowering, node->inputs[i], depth + 1)) return;
    if (node->noutputs != 1) return;
    of_node(lowering, node, y);
    for (int e = 0; e < tensor_elements(&tensor); e++)
        if (y[e].least < least || y[e].most > most) y[e] = unknown(lowering, id, e);
}

static void record(struct lowering *lowering, int id, const struct amount *amounts) {
    VEC_PUSH(lowering->arena, &lowering->amounts, amounts);
    map_put(&lowering->amount_index, (const char *)&id, sizeof id, lowering->amounts.n - 1);
}

void amounts_set(struct lowering *lowering, int tensor, const struct amount *amount) {
    record(lowering, tensor, arena_copy(lowering->arena, amount, sizeof *amount));
}

static const struct amount *find(struct lowering *lowering, int id, int depth) {
    const int known = map_get(&lowering->amount_index, (const char *)&id, sizeof id);
    if (known >= 0) return lowering->amounts.at[known];
    const int64_t elements = tensor_elements(&lowering->graph->tensors.at[id]);
    if (elements > AMOUNTS) return NULL;
    struct amount *y = ARENA_ARRAY(lowering->arena, struct amount, elements + 1);
    of_tensor(lowering, id, depth, y);
    record(lowering, id, y);
    return y;
}

const struct amount *amounts_of(struct lowering *lowering, int tensor) {
    return find(lowering, tensor, 0);
}

int amounts_fold(struct lowering *lowering, int id) {
    const struct tensor tensor = lowering->graph->tensors.at[id];
    const int64_t n = tensor_elements(&tensor);
    if (!lowering->counts.n || tensor.kind != TENSOR_VALUE || rt_dtype_is_float(tensor.dtype) ||
        rt_dtype_is_code(tensor.dtype) || lowering_counted(lowering, id))
        return id;
    const struct amount *amounts = amounts_of(lowering, id);
    for (int64_t i = 0; amounts && i < n; i++)
        if (amounts[i].n || amounts[i].offset >= AMOUNT_LIMIT || amounts[i].offset <= -AMOUNT_LIMIT) amounts = NULL;
    if (!amounts) return id;
    int64_t *values = ARENA_ARRAY(lowering->arena, int64_t, n + 1);
    unsigned char *bytes = arena_alloc(lowering->arena, (size_t)n + 1, rt_dtype_bytes(tensor.dtype));
    for (int64_t i = 0; i < n; i++) values[i] = amounts[i].offset;
    rt_convert(bytes, tensor.dtype, values, RT_I64, (size_t)n);
    return graph_add_const(lowering->graph, tensor.name, tensor.dtype, tensor.ndim, tensor.dims, bytes);
}
