#include "frontend/lower/lower_counted.h"

#include "runtime/base/number/checked.h"

struct amount lower_amount(struct lower *lower, int scalar) {
    return amounts_of(lower->shared, scalar)[0];
}

/* a + number */
static struct amount lower_moved(struct lower *lower, const struct amount *a, int64_t number) {
    const struct amount b = amount_of_number(number);
    return amount_plus(lower->shared, a, 1, &b);
}

struct amount lower_extent(struct lower *lower, int x, int dim) {
    const struct counted *counted = lower_counted(lower, x);
    return counted && counted->dim == dim ? lower_amount(lower, counted->count)
                                          : amount_of_number(lower_tensor(lower, x).dims[dim]);
}

/* The element of a tensor as an i64 scalar. */
static int emit_element(struct lower *lower, int x, int element) {
    struct tensor tensor = lower_tensor(lower, x);
    const int64_t elements = tensor_elements(&tensor);
    int y = x;
    if (elements > 1) y = emit_piece(lower, emit_reshape(lower, x, 1, &elements), 0, element, 1, 1);
    return emit_cast(lower, emit_reshape(lower, y, 0, NULL), RT_I64);
}

int emit_amount(struct lower *lower, const struct amount *amount) {
    int sum = -1;
    EACH(amount->terms, amount->n, i, const struct amount_term *term) {
        int value = emit_element(lower, term->tensor, term->element);
        if (term->factor != 1) value = emit_with(lower, OP_Mul, value, (double)term->factor);
        sum = i ? emit2(lower, OP_Add, sum, value) : value;
    }
    if (!amount->n) return emit_ints(lower, 1, &amount->offset, 0, NULL);
    if (amount->offset) sum = emit2(lower, OP_Add, sum, emit_ints(lower, 1, &amount->offset, 0, NULL));
    if (sum >= 0) amounts_set(lower->shared, sum, amount);
    return sum;
}

const struct amount *lower_amounts(struct lower *lower, int input, const char *what, int *n) {
    const struct tensor tensor = lower_input(lower, input);
    const struct amount *amounts =
        rt_dtype_is_float(tensor.dtype) ? NULL : amounts_of(lower->shared, lower->inputs[input]);
    *n = (int)tensor_elements(&tensor);
    for (int i = 0; amounts && i < *n; i++)
        if (amounts[i].n && (amounts[i].most >= AMOUNT_LIMIT || amounts[i].least <= -AMOUNT_LIMIT)) amounts = NULL;
    if (!amounts) lower_known(lower, input, what, n);
    return amounts;
}

/* The larger of an amount and 0. */
static struct amount not_negative(struct lower *lower, const struct amount *a) {
    if (a->least >= 0) return *a;
    return lower_amount(lower, emit_with(lower, OP_Max, emit_amount(lower, a), 0));
}

struct amount lower_steps(struct lower *lower, const struct amount *end, int64_t start, int64_t step) {
    const struct amount zero = amount_of_number(0);
    struct amount span = lower_moved(lower, end, -start);
    if (step < 0) span = amount_plus(lower->shared, &zero, -1, &span);
    span = not_negative(lower, &span);
    const int64_t by = step < 0 ? -step : step;
    if (by == 1) return span;
    span = lower_moved(lower, &span, by - 1);
    return lower_amount(lower, emit_with(lower, OP_Div, emit_amount(lower, &span), (double)by));
}

static int view(struct lower *lower, int x) {
    if (x < 0) return -1;
    const struct tensor tensor = lower_tensor(lower, x);
    return emit_view(lower, x, tensor.ndim, tensor.dims);
}

int lower_all_valid(struct lower *lower, int x) {
    if (x < 0 || !lower_counted(lower, x)) return x;
    const int y = view(lower, x);
    lower_set_counted(lower, y, NULL);
    return y;
}

/* The first indices of dimension `dim`, of an operand that may be counted along it. */
static int first_of(struct lower *lower, int x, int dim, int64_t size) {
    return emit_piece(lower, lower_all_valid(lower, x), dim, 0, 1, size);
}

/* The node's lowering has created the tensor, and nothing is known of its size yet. */
static bool is_new(const struct lower *lower, int x) {
    return x >= lower->first_tensor && lower_tensor(lower, x).kind == TENSOR_VALUE && !lower_is_resized(lower, x);
}

int lower_sized(struct lower *lower, int x, int dim, const struct amount *size) {
    const struct counted *other = x < 0 ? NULL : lower_counted(lower, x);
    if (x < 0) return -1;
    if (other && other->dim != dim)
        return lower_error(lower, 410, "the sizes along dimensions %d and %d depend on data", other->dim, dim);
    const int64_t extent = lower_tensor(lower, x).dims[dim];
    const int64_t bound = size->most > 0 ? open_lesser(lower_open(lower), size->most, extent) : 0;
    int y = first_of(lower, x, dim, bound);
    if (!size->n || !bound) return y;
    if (bound == 1) y = emit_concat(lower, dim, 2, (int[]){y, y});
    const int count = emit_amount(lower, size);
    if (y < 0 || count < 0) return -1;
    if (!is_new(lower, y)) y = view(lower, y);
    lower_set_counted(lower, y, &(struct counted){dim, count, false});
    return y;
}

static int refuse_sizes(struct lower *lower, int dim, const struct amount *a, const struct amount *b) {
    const struct amount *known = !a->n ? a : !b->n ? b : NULL;
    if (known)
        return lower_error(lower, 410,
                           "along dimension %d one operand has %lld element(s) and the size of another depends on data",
                           dim, (long long)known->offset);
    return lower_error(lower, 410,
                       "the operands' sizes along dimension %d depend on data, and are not known to be equal", dim);
}

int lower_fit_along(struct lower *lower, int n, int *operands, const int *dims) {
    const struct counted *counted;
    int first = -1;
    int64_t least = 0;
    struct amount size = amount_of_number(1);
    for (int i = 0; i < n; i++) {
        const int64_t extent = operands[i] < 0 || dims[i] < 0 ? 1 : lower_tensor(lower, operands[i]).dims[dims[i]];
        if (extent == 1) continue;
        const struct amount own = lower_extent(lower, operands[i], dims[i]);
        if (first >= 0 && !amount_equal(lower->shared, &size, &own)) {
            if (!size.n && !own.n) return 0; /* a misfit, which the lowering reports */
            return refuse_sizes(lower, dims[i], &size, &own);
        }
        least = first < 0 ? extent : open_lesser(lower->builder.graph->open, extent, least);
        size = own;
        first = i;
    }
    for (int i = 0; i < n && first >= 0; i++) {
        if (operands[i] < 0 || dims[i] < 0 || !(counted = lower_counted(lower, operands[i]))) continue;
        if (counted->dim != dims[i] || lower_tensor(lower, operands[i]).dims[dims[i]] == least) continue;
        const struct counted same = {dims[i], counted->count, counted->zero};
        operands[i] = first_of(lower, operands[i], same.dim, least);
        lower_set_counted(lower, operands[i], &same);
        if (operands[i] < 0) return -1;
    }
    return 0;
}

int lower_fit(struct lower *lower, int n, int *operands, int except) {
    int ndim = 0, *dims = ARENA_ARRAY(lower->arena, int, n + 1);
    for (int i = 0; i < n; i++)
        if (operands[i] >= 0 && lower_ndim(lower, operands[i]) > ndim) ndim = lower_ndim(lower, operands[i]);
    for (int d = 0; d < ndim; d++) {
        for (int i = 0; i < n; i++) dims[i] = operands[i] < 0 ? -1 : d - (ndim - lower_ndim(lower, operands[i]));
        if (d != except && lower_fit_along(lower, n, operands, dims) < 0) return -1;
    }
    return 0;
}

int lower_from_begin(struct lower *lower, int index, const struct amount *extent) {
    if (!extent->n || index < 0) return index;
    const int end = emit_cast(lower, emit_amount(lower, extent), lower_dtype(lower, index));
    return emit3(lower, OP_Where, emit_with(lower, OP_Less, index, 0), emit2(lower, OP_Add, index, end), index);
}

/* Indices that are not in [0, extent) are replaced by the nearest. */
static int clamped(struct lower *lower, int index, int64_t extent) {
    const int64_t last = open_sum(lower_open(lower), extent, -1);
    const int most = emit_cast(lower, emit_ints(lower, 1, &last, 0, NULL), lower_dtype(lower, index));
    return emit2(lower, OP_Min, emit_with(lower, OP_Max, index, 0), most);
}

int lower_run(struct lower *lower, int x, int dim, int first, const struct amount *size) {
    if (x < 0 || first < 0) return -1;
    const int64_t extent = lower_tensor(lower, x).dims[dim];
    const int64_t most = size->most > 0 ? open_lesser(lower_open(lower), size->most, extent) : 0;
    if (!extent || !most) return first_of(lower, x, dim, 0);
    const int at = clamped(lower, emit2(lower, OP_Add, emit_places(lower, 0, most, 1, 0), first), extent);
    return lower_sized(lower, emit_gather(lower, x, at, dim), dim, size);
}

/* The positions of the joined operands' elements: those of valid ones first, in their order. */
static int positions_of_valid(struct lower *lower, int axis, int n, const int *operands) {
    int *flags = ARENA_ARRAY(lower->arena, int, n);
    for (int i = 0; i < n; i++) {
        const int64_t extent = lower_tensor(lower, operands[i]).dims[axis];
        const struct counted *found = lower_counted(lower, operands[i]);
        const bool counts = found && found->dim == axis;
        flags[i] = counts ? lower_valid(lower, &(struct counted){0, found->count, false}, extent, 1, 0)
                          : emit_expand(lower, build_scalar(&lower->builder, RT_BOOL, 1), 1, &extent);
    }
    const int all = emit_cast(lower, emit_concat(lower, 0, n, flags), RT_I32);
    if (all < 0) return -1;
    return emit_top(lower, all, 0, lower_tensor(lower, all).dims[0], true);
}

int lower_join(struct lower *lower, int axis, int n, const int *operands) {
    int *parts = ARENA_ARRAY(lower->arena, int, n + 1), npart = 0;
    struct amount total = amount_of_number(0);
    bool gaps = false, counts = false;
    for (int i = 0; i < n; i++) {
        if (operands[i] < 0) return -1;
        if (lower_tensor(lower, operands[i]).dims[axis]) parts[npart++] = operands[i];
    }
    if (!npart) return emit_concat(lower, axis, n, operands);
    if (lower_fit(lower, npart, parts, axis) < 0) return -1;
    for (int i = 0; i < npart; i++) {
        const struct amount size = lower_extent(lower, parts[i], axis);
        gaps = gaps || counts;
        counts = counts || size.n;
        total = amount_plus(lower->shared, &total, 1, &size);
    }
    if (!counts) return emit_concat(lower, axis, npart, parts);
    const int order = gaps ? positions_of_valid(lower, axis, npart, parts) : -1;
    for (int i = 0; i < npart; i++)
        if (lower_extent(lower, parts[i], axis).n) parts[i] = lower_all_valid(lower, parts[i]);
    const int y = emit_concat(lower, axis, npart, parts);
    return lower_sized(lower, gaps ? emit_gather(lower, y, order, axis) : y, axis, &total);
}

/* x with zeros behind, up to `extent` indices of dimension dim. */
static int padded(struct lower *lower, int x, int dim, int64_t extent) {
    const int64_t more = extent - lower_tensor(lower, x).dims[dim];
    return more ? emit_padded(lower, x, dim, 0, more, 0) : x;
}

/* The only dimension along which the sizes of a and b differ or depend on data; -1: none, -2: several, or their types
 * differ. */
static int dimension_apart(struct lower *lower, int a, int b) {
    const struct tensor ta = lower_tensor(lower, a), tb = lower_tensor(lower, b);
    int apart = -1;
    if (ta.dtype != tb.dtype || ta.ndim != tb.ndim) return -2;
    for (int d = 0; d < ta.ndim; d++) {
        const struct amount x = lower_extent(lower, a, d), y = lower_extent(lower, b, d);
        if (!x.n && !y.n && x.offset == y.offset) continue;
        if (apart >= 0) return -2;
        apart = d;
    }
    return apart;
}

bool lower_can_choose(struct lower *lower, int yes, int no) {
    return yes == no || dimension_apart(lower, yes, no) != -2;
}

int lower_choice(struct lower *lower, int condition, int yes, int no) {
    if (yes == no) return yes;
    const int dim = dimension_apart(lower, yes, no);
    if (dim < 0) return emit3(lower, OP_Where, condition, yes, no);
    const int64_t a = lower_tensor(lower, yes).dims[dim], b = lower_tensor(lower, no).dims[dim];
    const struct amount many = lower_extent(lower, yes, dim), few = lower_extent(lower, no, dim);
    const int count = emit3(lower, OP_Where, condition, emit_amount(lower, &many), emit_amount(lower, &few));
    const int64_t bound = a > b ? a : b;
    yes = padded(lower, lower_all_valid(lower, yes), dim, bound);
    no = padded(lower, lower_all_valid(lower, no), dim, bound);
    if (yes < 0 || no < 0 || count < 0) return -1;
    const struct amount size = lower_amount(lower, count);
    return lower_sized(lower, a && b ? emit3(lower, OP_Where, condition, yes, no) : view(lower, a ? yes : no), dim,
                       &size);
}

/* Note [Counted reshape]
 * A counted tensor is rows of which the first part is valid: (rows, bound, columns) with count * columns valid elements
 * in each. Where the result has the same rows it has the same elements; else those that are valid are gathered to the
 * front, and from there to the rows of the result. */
struct rows {
    int64_t rows, bound, columns;
    int dim;
};

/* Gathers along the flat tensor x, of `elements` elements, into `rows` of `width`: element j of row i is from element
 * i * step + j of the flat tensor; `step` is an i64 scalar. */
static int gather_rows(struct lower *lower, int x, int64_t elements, int64_t rows, int64_t width, int step) {
    const int64_t column[] = {rows, 1}, row[] = {1, width}, n = rows * width;
    const int i = emit_reshape(lower, emit_places(lower, 0, rows, 1, 0), 2, column),
              j = emit_reshape(lower, emit_places(lower, 0, width, 1, 0), 2, row);
    const int at = clamped(lower, emit2(lower, OP_Add, emit2(lower, OP_Mul, i, step), j), elements);
    return emit_gather(lower, emit_reshape(lower, x, 1, &elements), emit_reshape(lower, at, 1, &n), 0);
}

/* The valid elements of rows, `valid` of each, in front. */
static int compacted(struct lower *lower, int x, const struct rows *from, int valid) {
    const int64_t width = from->bound * from->columns, n = from->rows * width;
    const int some = emit_with(lower, OP_Max, valid, 1), j = emit_places(lower, 0, n, 1, 0);
    const int row = emit2(lower, OP_Div, j, some), column = emit2(lower, OP_Mod, j, some);
    const int at = emit2(lower, OP_Add, emit_with(lower, OP_Mul, row, (double)width), column);
    return emit_gather(lower, emit_reshape(lower, x, 1, &n), clamped(lower, at, n), 0);
}

/* The size of the dimension that is left open: elements / others, if it is certain to be an integer. */
static bool solve(struct lower *lower, const struct amount *elements, int64_t others, struct amount *size) {
    const int quotient = others ? emit_with(lower, OP_Div, emit_amount(lower, elements), (double)others) : -1;
    if (quotient < 0) return false;
    *size = lower_amount(lower, quotient);
    return true;
}

/* The ratio of two amounts if it is a number; else 0. */
static int64_t ratio_of(struct lower *lower, const struct amount *a, const struct amount *b) {
    if (!b->n || !a->n || a->terms[0].factor % b->terms[0].factor) return 0;
    const int64_t ratio = a->terms[0].factor / b->terms[0].factor;
    const struct amount rest = amount_plus(lower->shared, a, -ratio, b);
    return rest.n || rest.offset ? 0 : ratio;
}

int lower_reshaped(struct lower *lower, int x, int ndim, const struct amount *shape, int open) {
    const struct counted *counted = lower_counted(lower, x);
    const struct tensor tensor = lower_tensor(lower, x);
    const struct amount zero = amount_of_number(0);
    const struct amount count = lower_amount(lower, counted->count);
    const struct rows from = {extent_between(&tensor, 0, counted->dim), tensor.dims[counted->dim],
                              extent_between(&tensor, counted->dim + 1, tensor.ndim), counted->dim};
    const struct amount elements = amount_plus(lower->shared, &zero, from.rows * from.columns, &count);
    int64_t dims[RT_MAX_NDIM], others = 1;
    int dynamic = -1;
    for (int d = 0; d < ndim; d++) {
        dims[d] = d == open ? 1 : shape[d].n ? 1 : shape[d].offset;
        if (d != open && shape[d].n) dynamic = dynamic < 0 ? d : RT_MAX_NDIM;
        if (!rt_mul(others, dims[d], &others)) return lower_too_large(lower);
    }
    struct amount size = count;
    if (dynamic == RT_MAX_NDIM) return lower_too_open(lower);
    if (dynamic >= 0 && open >= 0) { /* the open extent is a number if the other grows as the operand does */
        const int64_t ratio = ratio_of(lower, &elements, &shape[dynamic]);
        if (!ratio || ratio % others) return lower_too_open(lower);
        dims[open] = ratio / others;
        others = ratio;
    }
    const int dim = dynamic >= 0 ? dynamic : open;
    if (dim < 0)
        return lower_error(
            lower, 410,
            "the shape's %lld element(s) are those of the exporter's example input: the size of dimension "
            "%d depends on data",
            (long long)others, counted->dim);
    if (dynamic < 0 && !solve(lower, &elements, others, &size))
        return lower_error(lower, 377, "the shape has no elements for those of the input");
    if (dynamic >= 0) size = shape[dynamic];
    struct rows to = {1, others ? from.rows * from.bound * from.columns / others : 0, 1, dim};
    for (int d = 0; d < dim; d++) to.rows *= dims[d];
    for (int d = dim + 1; d < ndim; d++) to.columns *= dims[d];
    dims[dim] = to.bound;
    int y = lower_all_valid(lower, x);
    const int64_t width = to.bound * to.columns, n = from.rows * from.bound * from.columns;
    if (from.rows != to.rows && from.rows != 1) {
        const int valid = emit_with(lower, OP_Mul, emit_amount(lower, &count), (double)from.columns);
        y = compacted(lower, y, &from, valid);
    }
    if (from.rows == to.rows) {
        y = emit_reshape(lower, y, 2, (int64_t[]){from.rows, from.bound * from.columns});
        y = emit_piece(lower, y, 1, 0, 1, width);
    } else if (to.rows == 1) {
        y = emit_piece(lower, emit_reshape(lower, y, 1, &n), 0, 0, 1, width);
    } else {
        const int step = emit_with(lower, OP_Mul, emit_amount(lower, &size), (double)to.columns);
        y = gather_rows(lower, y, n, to.rows, width, step);
    }
    return lower_sized(lower, emit_reshape(lower, y, ndim, dims), dim, &size);
}
