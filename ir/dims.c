#include "ir/dims.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/base/str.h"
#include "ir/expr/expr.h"
#include "ir/op.h"
#include "runtime/base/number/checked.h"

/* A parsed annotation: tensors, which have dimensions, which have names of factors. */
struct pattern_dim {
    enum { PATTERN_NAME, PATTERN_GROUP, PATTERN_STAR, PATTERN_ONE } form;
    bool same; /* STAR: not broadcast */
    int n;
    char name[RT_MAX_NDIM][8];
    enum factor_kind kind[RT_MAX_NDIM];
};

struct pattern_tensor {
    int n;
    struct pattern_dim dim[RT_MAX_NDIM + 1];
};

enum { MAX_TENSORS = EXPR_INPUTS + EXPR_VALUES }; /* Fused has the most */

struct pattern {
    int ninputs, ntensors;
    struct pattern_tensor tensor[MAX_TENSORS];
    const char *why; /* a syntax error; NULL: none */
};

/* No factors, operands without dimensions. Memory is used again if it suffices. The factors are set when they are
 * added: they are large, and nodes are bound many times. */
static void begin(struct dims *dims, int ninputs, int noutputs) {
    const int n = ninputs + noutputs;
    if (n > FEW_OPERANDS && n > dims->ninputs + dims->noutputs)
        dims->operand = ARENA_ARRAY(dims->arena, struct operand, n);
    else if (n <= FEW_OPERANDS)
        dims->operand = dims->few;
    memset(dims->operand, 0, (size_t)n * sizeof *dims->operand);
    dims->ninputs = ninputs, dims->noutputs = noutputs;
    dims->alternative = dims->nfactors = 0, dims->points = 0;
}

/* The name, cut to the room there is; with an index of 0 and more, three characters of it and the index. Not by
 * snprintf: dimensions are bound for every node, many times. */
static void name_factor(char *at, size_t room, const char *name, int index) {
    const size_t most = index < 0 ? room - 1 : 3;
    size_t n = strnlen(name, most);
    memcpy(at, name, n);
    if (index >= 100) at[n++] = (char)('0' + index / 100 % 10);
    if (index >= 10) at[n++] = (char)('0' + index / 10 % 10);
    if (index >= 0) at[n++] = (char)('0' + index % 10);
    at[n] = 0;
}

int dims_factor(struct dims *dims, const char *name, int index, int64_t extent, enum factor_kind kind) {
    if (dims->nfactors == MAX_FACTORS) return -1;
    struct factor *factor = &dims->factor[dims->nfactors];
    *factor = (struct factor){.extent = extent, .kind = kind, .over = -1};
    name_factor(factor->name, sizeof factor->name, name, index);
    return dims->nfactors++;
}

void dims_set(struct operand *operand, int dim, int factor) {
    operand->dim[dim].n = 1;
    operand->dim[dim].factor[0] = (signed char)factor;
}

int64_t dims_extent(const struct dims *dims, int operand, int dim) {
    const struct dim_factors *d = &dims->operand[operand].dim[dim];
    int64_t extent = 1;
    for (int i = 0; i < d->n; i++)
        if (!rt_mul(extent, dims->factor[d->factor[i]].extent, &extent)) return -1;
    return extent;
}

bool dims_fits(const struct dims *dims, int operand, const struct tensor *tensor) {
    bool fits = tensor->ndim == dims->operand[operand].ndim;
    for (int d = 0; fits && d < tensor->ndim; d++) fits = tensor->dims[d] == dims_extent(dims, operand, d);
    return fits;
}

int dims_find(const struct dims *dims, const char *name) {
    for (int i = 0; i < dims->nfactors; i++)
        if (strcmp(dims->factor[i].name, name) == 0) return i;
    return -1;
}

static const char *skip_space(const char *s) {
    while (*s == ' ') s++;
    return s;
}

static const struct {
    const char *text;
    enum factor_kind kind;
} kinds[] = {{"+max", FACTOR_MAX}, {"+min", FACTOR_MIN}, {"+", FACTOR_SUM}, {"^", FACTOR_WHOLE}, {"~", FACTOR_HALO}};

/* The end of the text after a syntax error. */
static const char *syntax_error(struct pattern *pattern, const char *why, const char *s) {
    pattern->why = why;
    return s + strlen(s);
}

static const char *parse_name(const char *s, struct pattern *pattern, struct pattern_dim *dim) {
    if (!isalpha((unsigned char)*s)) return syntax_error(pattern, "a dimension is a name, *, 1 or (NAMES)", s);
    if (dim->n == RT_MAX_NDIM) return syntax_error(pattern, "too many names in one dimension", s);
    int length = 0;
    while (isalnum((unsigned char)s[length])) length++;
    if (length > 7) return syntax_error(pattern, "a name of a dimension has at most 7 characters", s);
    memcpy(dim->name[dim->n], s, (size_t)length);
    dim->name[dim->n][length] = 0;
    s += length;
    dim->kind[dim->n] = FACTOR_PASS;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].text);
        if (strncmp(s, kinds[i].text, n) != 0) continue;
        dim->kind[dim->n] = kinds[i].kind;
        s += n;
        break;
    }
    dim->n++;
    return s;
}

static const char *parse_dim(const char *s, struct pattern *pattern, struct pattern_dim *dim) {
    *dim = (struct pattern_dim){0};
    if (*s == '*') return dim->form = PATTERN_STAR, dim->same = s[1] == '=', s + 1 + dim->same;
    if (*s == '1') return dim->form = PATTERN_ONE, s + 1;
    dim->form = *s == '(' ? PATTERN_GROUP : PATTERN_NAME;
    if (*s != '(') return parse_name(s, pattern, dim);
    for (s = skip_space(s + 1); *s && *s != ')'; s = skip_space(s)) s = parse_name(s, pattern, dim);
    return *s ? s + 1 : syntax_error(pattern, pattern->why ? pattern->why : "a ( is not closed", s);
}

static struct pattern_tensor *add_tensor(struct pattern *pattern) {
    struct pattern_tensor *tensor = &pattern->tensor[pattern->ntensors++];
    tensor->n = 0;
    return tensor;
}

/* Parses one alternative; returns what follows it, NULL at the end of the text or at a syntax error. Sets what it has,
 * since the whole is large and nodes are bound many times. */
static const char *parse_alternative(const char *s, struct pattern *pattern) {
    pattern->ntensors = pattern->ninputs = 0, pattern->why = NULL;
    struct pattern_tensor *tensor = add_tensor(pattern);
    for (s = skip_space(s); *s && *s != '|'; s = skip_space(s)) {
        bool arrow = s[0] == '-' && s[1] == '>';
        if (arrow) pattern->ninputs = pattern->ntensors;
        if (arrow || *s == ',') {
            s += arrow ? 2 : 1;
            if (pattern->ntensors == MAX_TENSORS) {
                pattern->why = "too many tensors";
                return NULL;
            }
            tensor = add_tensor(pattern);
            continue;
        }
        if (tensor->n > RT_MAX_NDIM) {
            pattern->why = "too many dimensions";
            return NULL;
        }
        s = parse_dim(s, pattern, &tensor->dim[tensor->n++]);
    }
    return *s ? s + 1 : NULL;
}

static bool has_star(const struct pattern_tensor *tensor) {
    for (int i = 0; i < tensor->n; i++)
        if (tensor->dim[i].form == PATTERN_STAR) return true;
    return false;
}

static const struct pattern_dim *find_name(const struct pattern *pattern, int from, int end, const char *name, int *k) {
    for (int t = from; t < end; t++)
        for (int d = 0; d < pattern->tensor[t].n; d++)
            for (*k = 0; *k < pattern->tensor[t].dim[d].n; ++*k)
                if (strcmp(pattern->tensor[t].dim[d].name[*k], name) == 0) return &pattern->tensor[t].dim[d];
    return NULL;
}

/* The kind of a factor: that of its last occurrence with one, as named_factor has it. */
static enum factor_kind kind_of(const struct pattern *pattern, const char *name) {
    enum factor_kind kind = FACTOR_PASS;
    for (int t = 0; t < pattern->ntensors; t++)
        for (int d = 0; d < pattern->tensor[t].n; d++)
            for (int k = 0; k < pattern->tensor[t].dim[d].n; k++)
                if (pattern->tensor[t].dim[d].kind[k] && strcmp(pattern->tensor[t].dim[d].name[k], name) == 0)
                    kind = pattern->tensor[t].dim[d].kind[k];
    return kind;
}

static bool is_reduced(enum factor_kind kind) {
    return kind == FACTOR_SUM || kind == FACTOR_MAX || kind == FACTOR_MIN;
}

bool dims_reduces(const struct dims *dims, int output, int factor, enum rt_reduce *reduce) {
    const enum factor_kind own = dims->operand[dims->ninputs + output].reduced;
    const enum factor_kind kind = own ? own : dims->factor[factor].kind;
    *reduce = kind == FACTOR_SUM ? RT_SUM : kind == FACTOR_MAX ? RT_MAX : RT_MIN;
    return is_reduced(dims->factor[factor].kind);
}

/* What is wrong with factor `name`: a split would give another result than the whole, or no shape follows. */
static const char *name_fault(struct arena *arena, const struct pattern *pattern, const char *name) {
    const enum factor_kind kind = kind_of(pattern, name);
    int k, outputs = pattern->ntensors - pattern->ninputs, in = 0;
    if (!find_name(pattern, 0, pattern->ninputs, name, &k))
        return arena_printf(arena, "'%s' is in no input: its extent is unknown", name);
    for (int t = pattern->ninputs; t < pattern->ntensors; t++) in += find_name(pattern, t, t + 1, name, &k) != NULL;
    if (kind == FACTOR_HALO) return "windows (~) are not supported in declarations";
    if (is_reduced(kind) && in > 0) return arena_printf(arena, "'%s' is reduced, so that no output has it", name);
    if (kind == FACTOR_PASS && in < outputs)
        return arena_printf(arena, "'%s' is missing in an output: mark it as reduced (+ +max +min) or whole (^)", name);
    return NULL;
}

static const char *tensor_fault(struct arena *arena, const struct pattern *pattern, int t) {
    const struct pattern_tensor *tensor = &pattern->tensor[t];
    int stars = 0;
    for (int d = 0; d < tensor->n; d++) {
        stars += tensor->dim[d].form == PATTERN_STAR;
        if (tensor->dim[d].form == PATTERN_GROUP && (t < pattern->ninputs || !tensor->dim[d].n))
            return "a compound dimension (a b) is one of an output";
        for (int k = 0; k < tensor->dim[d].n; k++) {
            const char *why = name_fault(arena, pattern, tensor->dim[d].name[k]);
            if (why) return why;
        }
    }
    return stars > 1 ? "a tensor has at most one *" : tensor->n - stars > RT_MAX_NDIM ? "too many dimensions" : NULL;
}

const char *dims_text_fault(struct arena *arena, const char *text, int ninputs, int noutputs) {
    bool star = false, star_out = false;
    for (const char *rest = text; rest;) {
        struct pattern pattern;
        rest = parse_alternative(rest, &pattern);
        if (pattern.why) return pattern.why;
        if (pattern.ninputs != ninputs || pattern.ntensors - pattern.ninputs != noutputs)
            return arena_printf(arena, "the annotation must have the %d input(s) and %d output(s) of the types",
                                ninputs, noutputs);
        for (int t = 0; t < pattern.ntensors; t++) {
            const char *why = tensor_fault(arena, &pattern, t);
            if (why) return why;
            if (t < ninputs) star |= has_star(&pattern.tensor[t]);
        }
        for (int t = ninputs; t < pattern.ntensors; t++) {
            star_out = has_star(&pattern.tensor[t]);
            if (star != star_out) return "the dimensions * are those of inputs and of all outputs, or of none";
        }
        star = false;
    }
    return NULL;
}

/* The number of the name among those of the pattern, in order of appearance. */
static int number_of_name(const struct pattern *pattern, const char *name) {
    int n = 0, k;
    for (int t = 0; t < pattern->ntensors; t++)
        for (int d = 0; d < pattern->tensor[t].n; d++)
            EACH_VALUE(pattern->tensor[t].dim[d].name, pattern->tensor[t].dim[d].n, i, const char *other) {
                if (strcmp(other, name) == 0) return n;
                n += find_name(pattern, 0, t, other, &k) == NULL;
            }
    return n;
}

int dims_sample(const char *text, int alternative, int input, int64_t dims[RT_MAX_NDIM]) {
    static const int64_t extents[] = {6, 5, 7, 4, 8, 3, 9};
    struct pattern pattern;
    int ndim = 0;
    for (int i = 0; i <= alternative; i++) {
        if (!text) return -1;
        text = parse_alternative(text, &pattern);
    }
    const struct pattern_tensor *tensor = &pattern.tensor[input];
    EACH(tensor->dim, tensor->n, d, const struct pattern_dim *dim) {
        const int copies = dim->form == PATTERN_STAR ? 2 : 1;
        for (int i = 0; i < copies && ndim < RT_MAX_NDIM; i++)
            dims[ndim++] = dim->form == PATTERN_STAR   ? 3 + i
                           : dim->form == PATTERN_NAME ? extents[number_of_name(&pattern, dim->name[0]) % 7]
                                                       : 1;
    }
    return ndim;
}

struct binding {
    struct dims *dims;
    const struct graph *graph;
    const struct node *node;
    const struct pattern *pattern;
    int star[RT_MAX_NDIM]; /* factors of the star dimensions, aligned right */
    int nstar;
    const char *why;
};

__attribute__((format(printf, 2, 3))) static bool refuse(struct binding *b, const char *format, ...) {
    ARENA_PRINT_TO(b->why, b->dims->arena, format);
    return false;
}

static const struct tensor *input_of(const struct binding *b, int i) {
    int id = i < b->node->ninputs ? b->node->inputs[i] : -1;
    return id < 0 ? NULL : &b->graph->tensors.at[id];
}

/* Counts the dimensions that the star of each input stands for. The largest count is the number of star factors. */
static bool bind_star(struct binding *b) {
    for (int i = 0; i < b->pattern->ninputs; i++) {
        const struct tensor *t = input_of(b, i);
        if (!t) continue;
        const struct pattern_tensor *p = &b->pattern->tensor[i];
        bool star = has_star(p);
        int count = t->ndim - p->n + star;
        if (count < 0 || (!star && count > 0))
            return refuse(b, "input %d has %d dimension(s), but needs %s%d", i, t->ndim, star ? "at least " : "",
                          p->n - star);
        if (star && count > b->nstar) b->nstar = count;
    }
    for (int s = 0; s < b->nstar; s++)
        if ((b->star[s] = dims_factor(b->dims, "*", s, 1, FACTOR_PASS)) < 0) return refuse(b, "too many dimensions");
    return true;
}

/* Binds dimension `d` of input `i` to star factor `s`. A dimension of extent 1 is broadcast. */
static bool bind_star_dim(struct binding *b, int i, int d, int s, int64_t extent) {
    struct factor *factor = &b->dims->factor[b->star[s]];
    if (extent == 1) return true;
    if (factor->extent != 1 && !open_meet(b->graph->open, factor->extent, extent))
        return refuse(b, "dimension %d of input %d is %lld, but another input has %lld there", d, i, (long long)extent,
                      (long long)factor->extent);
    factor->extent = extent;
    dims_set(&b->dims->operand[i], d, b->star[s]);
    return true;
}

/* The factor of that name; the first use of a name adds the factor. */
static int named_factor(struct binding *b, const char *name, enum factor_kind kind, int64_t extent) {
    int factor = dims_find(b->dims, name);
    if (factor < 0)
        factor = dims_factor(b->dims, name, -1, extent, kind);
    else if (kind != FACTOR_PASS)
        b->dims->factor[factor].kind = kind;
    return factor;
}

static bool bind_named_dim(struct binding *b, int i, int d, const struct pattern_dim *p, int64_t extent) {
    if (p->form == PATTERN_ONE) return extent == 1 || refuse(b, "dimension %d of input %d must be 1", d, i);
    if (p->form == PATTERN_GROUP) BUG("annotation: a compound dimension (a b) in an input needs a dims_fn");
    int factor = named_factor(b, p->name[0], p->kind[0], extent);
    if (factor < 0) return refuse(b, "too many dimensions");
    if (!open_meet(b->graph->open, b->dims->factor[factor].extent, extent))
        return refuse(b, "dimension %d of input %d is %lld, but '%s' is %lld elsewhere", d, i, (long long)extent,
                      p->name[0], (long long)b->dims->factor[factor].extent);
    dims_set(&b->dims->operand[i], d, factor);
    return true;
}

static bool bind_input(struct binding *b, int i) {
    const struct tensor *t = input_of(b, i);
    if (!t) return true;
    const struct pattern_tensor *p = &b->pattern->tensor[i];
    b->dims->operand[i].ndim = t->ndim;
    int count = t->ndim - p->n + has_star(p);
    for (int j = 0, d = 0; j < p->n; j++) {
        if (p->dim[j].form != PATTERN_STAR) {
            if (!bind_named_dim(b, i, d, &p->dim[j], t->dims[d])) return false;
            d++;
            continue;
        }
        for (int s = 0; s < count; s++, d++)
            if (!bind_star_dim(b, i, d, b->nstar - count + s, t->dims[d])) return false;
    }
    return true;
}

/* Refuses to broadcast an input with "*=". */
static bool check_same(struct binding *b, int i) {
    const struct tensor *t = input_of(b, i);
    const struct pattern_tensor *p = &b->pattern->tensor[i];
    int first = 0;
    while (first < p->n && !p->dim[first].same) first++;
    if (!t || first == p->n) return true;
    bool same = t->ndim - p->n + 1 == b->nstar;
    for (int s = 0; same && s < b->nstar; s++) same = t->dims[first + s] == b->dims->factor[b->star[s]].extent;
    return same || refuse(b, "input %d is not broadcast, but another input has a larger shape", i);
}

static bool bind_output(struct binding *b, int i) {
    const struct pattern_tensor *p = &b->pattern->tensor[i];
    struct operand *out = &b->dims->operand[i];
    if (p->n - has_star(p) + b->nstar > RT_MAX_NDIM)
        return refuse(b, "the result has more than %d dimensions", RT_MAX_NDIM);
    EACH(p->dim, p->n, j, const struct pattern_dim *d) {
        if (d->form == PATTERN_STAR) {
            for (int s = 0; s < b->nstar; s++) dims_set(out, out->ndim++, b->star[s]);
            continue;
        }
        struct dim_factors *to = &out->dim[out->ndim++];
        for (int k = 0; k < d->n; k++) {
            int factor = dims_find(b->dims, d->name[k]);
            if (factor < 0) BUG("'%s' is only in an output of an annotation", d->name[k]);
            to->factor[to->n++] = (signed char)factor;
        }
    }
    return true;
}

static bool bind_alternative(struct binding *b) {
    int ninputs = b->pattern->ninputs, noutputs = b->pattern->ntensors - ninputs;
    if (b->node->ninputs > ninputs || b->node->noutputs > noutputs)
        return refuse(b, "takes %d input(s) and returns %d output(s)", ninputs, noutputs);
    begin(b->dims, ninputs, noutputs);
    if (!bind_star(b)) return false;
    for (int i = 0; i < ninputs; i++)
        if (!bind_input(b, i)) return false;
    for (int i = 0; i < ninputs; i++)
        if (!check_same(b, i)) return false;
    for (int i = ninputs; i < ninputs + noutputs; i++)
        if (!bind_output(b, i)) return false;
    return true;
}

int dims_bind_text(struct dims *dims, const char *text, const struct graph *graph, const struct node *node,
                   const char **why) {
    struct strbuf reasons = {.arena = dims->arena};
    int alternative = 0;
    for (const char *rest = text; rest; alternative++) {
        struct pattern pattern;
        rest = parse_alternative(rest, &pattern);
        if (pattern.why) BUG("annotation '%s': %s", text, pattern.why);
        struct binding binding = {.dims = dims, .graph = graph, .node = node, .pattern = &pattern};
        if (bind_alternative(&binding)) return dims->alternative = alternative, 0;
        strbuf_printf(&reasons, "%s%s", reasons.length ? "; or " : "", binding.why);
    }
    *why = strbuf_text(&reasons);
    return -1;
}

int dims_bind(struct arena *arena, const struct graph *graph, const struct node *node, struct dims *dims,
              const char **why) {
    const char *reason;
    why = why ? why : &reason;
    *why = "";
    dims->arena = arena, dims->ninputs = dims->noutputs = 0;
    begin(dims, node->ninputs, node->noutputs);
    if (node->op->dims_fn) return node->op->dims_fn(dims, graph, node, why);
    if (node->op->dims) return dims_bind_text(dims, node->op->dims, graph, node, why);
    static const char *const elementwise[] = {NULL, "* -> *", "*, * -> *", "*, *, * -> *"};
    return dims_bind_text(dims, elementwise[op_arity(node->op)], graph, node, why);
}

void dims_bind_checked(struct arena *arena, const struct graph *graph, const struct node *node, struct dims *dims) {
    const char *why;
    if (dims_bind(arena, graph, node, dims, &why) < 0) BUG("%s: %s", node->name, why);
}

/* Products of the extents before and after position `at` of a dimension. */
static void around(const struct dims *dims, const struct dim_factors *d, int at, int64_t *before, int64_t *after) {
    *before = *after = 1;
    for (int i = 0; i < d->n; i++)
        if (i != at) *(i < at ? before : after) *= dims->factor[d->factor[i]].extent;
}

int dims_dim_cut(const struct dims *dims, int operand, const struct node_split *split, int64_t *blocks,
                 int64_t *grain) {
    const struct operand *o = &dims->operand[operand];
    for (int d = 0; d < o->ndim; d++)
        for (int i = 0; i < o->dim[d].n; i++) {
            if (o->dim[d].factor[i] != split->factor) continue;
            int64_t before, after;
            around(dims, &o->dim[d], i, &before, &after);
            *blocks = split->blocks * before;
            *grain = split->grain * after;
            return d;
        }
    return -1;
}

int dims_window_dim(const struct dims *dims, int operand, int factor) {
    const struct operand *o = &dims->operand[operand];
    for (int d = 0; d < o->ndim; d++)
        for (int i = 0; i < o->dim[d].n && factor >= 0; i++) {
            const struct factor *held = &dims->factor[o->dim[d].factor[i]];
            if (held->kind == FACTOR_HALO && held->over == factor) return d;
        }
    return -1;
}

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static bool may_split(const struct factor *factor) {
    return factor->kind != FACTOR_WHOLE && factor->kind != FACTOR_HALO && factor->extent > 1;
}

/* Sets the option that cuts the factor at position `at` of the dimension; false if that factor cannot be cut. */
static bool cut_option(const struct dims *dims, const struct dim_factors *d, int at, int64_t blocks, int64_t grain,
                       struct cut_option *option) {
    const struct factor *factor = &dims->factor[d->factor[at]];
    int64_t before, after, pieces;
    if (factor->kind == FACTOR_HALO && factor->over >= 0 && blocks == 1) {
        *option = (struct cut_option){{.factor = (int16_t)factor->over, .blocks = 1, .grain = 1}, 1, 1};
        return true;
    }
    if (!may_split(factor)) return false;
    around(dims, d, at, &before, &after);
    if (!before || !after) return false;
    if (blocks < 0 && (blocks % before || blocks / before % 2))
        return false; /* finer blocks are another mirrored cut */
    option->more_blocks = blocks < 0 ? 1 : before / gcd(blocks, before);
    option->more_grain = after / gcd(grain, after);
    if (!rt_mul(blocks, option->more_blocks, &blocks) || !rt_mul(grain, option->more_grain, &grain)) return false;
    option->split = (struct node_split){.factor = d->factor[at], .blocks = blocks / before, .grain = grain / after};
    return rt_mul(option->split.blocks, option->split.grain, &pieces) && factor->extent % pieces == 0;
}

/* True if `ways` ranks can divide so many values of the factor, and none is left without any. */
static bool divides(int64_t extent, const struct node_split *split, int ways) {
    const struct rt_cut cut = {extent, split->blocks, split->grain, ways};
    return extent / (rt_blocks(split->blocks) * split->grain) >= ways && (split->blocks > 0 || rt_cut_is_sound(&cut));
}

int dims_cut_options(const struct dims *dims, int operand, int dim, int64_t blocks, int64_t grain,
                     struct cut_option options[RT_MAX_NDIM]) {
    const struct dim_factors *d = &dims->operand[operand].dim[dim];
    int n = 0;
    for (int exact = 1; exact >= 0; exact--)
        for (int at = 0; at < d->n; at++) {
            struct cut_option option;
            if (!cut_option(dims, d, at, blocks, grain, &option)) continue;
            if ((option.more_blocks == 1 && option.more_grain == 1) == exact) options[n++] = option;
        }
    return n;
}

/* True if the window of every rank is not empty. */
static bool windows_fit(const struct factor *halo, const struct node_split *split, int ways) {
    const struct reach *reach = &halo->reach;
    const struct rt_placement window = {.cut = {reach->positions, 1, split->grain, ways},
                                        .extent = halo->extent,
                                        .stride = reach->stride,
                                        .before = reach->before,
                                        .span = reach->span};
    bool fit = split->blocks == 1;
    for (int r = 0; r < ways && fit; r++) fit = rt_placement_extent(&window, r) > 0;
    return fit;
}

bool dims_can_split(const struct dims *dims, const struct node_split *split, int ways) {
    if (split->factor < 0 || !may_split(&dims->factor[split->factor])) return false;
    if (!divides(dims->factor[split->factor].extent, split, ways)) return false;
    for (int f = 0; f < dims->nfactors; f++)
        if (dims->factor[f].kind == FACTOR_HALO && dims->factor[f].over == split->factor &&
            !windows_fit(&dims->factor[f], split, ways))
            return false;
    return true;
}

bool dims_has_windows(const struct dims *dims, int factor) {
    for (int f = 0; f < dims->nfactors; f++)
        if (dims->factor[f].kind == FACTOR_HALO && dims->factor[f].over == factor) return true;
    return false;
}

/* The dimension of the operand that the split divides among ranks; -1 if it divides none. */
static int divided_dim(const struct dims *dims, int operand, const struct node_split *split) {
    struct placement placement = dims_placement(dims, operand, split);
    return placement_divides(&placement) ? placement.dim : -1;
}

bool dims_splits_meet(const struct dims *dims, const struct node_split *a, const struct node_split *b) {
    if (a->factor < 0 || b->factor < 0) return false;
    if (a->factor == b->factor) return true;
    for (int o = 0; o < dims->ninputs + dims->noutputs; o++) {
        int dim = divided_dim(dims, o, a);
        if (dim >= 0 && dim == divided_dim(dims, o, b)) return true;
    }
    return false;
}

void dims_outermost_first(const struct node_split *splits, int naxes, int axes[RT_LAYOUT_AXES]) {
    int n = 0;
    for (int depth = 0; n < naxes; depth++)
        for (int axis = 0; axis < naxes; axis++)
            if (splits[axis].depth == depth) axes[n++] = axis;
}

void dims_nest(struct node_split *splits, int naxes, int axis, const struct node_split *split) {
    splits[axis] = *split;
    splits[axis].depth = 0;
    for (int a = 0; a < naxes && split->factor >= 0; a++)
        splits[axis].depth = (int16_t)(splits[axis].depth + (a != axis && splits[a].factor == split->factor));
}

/* The smallest extent that a rank has of the factor under these splits: larger parts come first. */
static int64_t least_extent(const struct dims *dims, const struct mesh *mesh, const struct node_split *splits,
                            int factor) {
    int64_t extent = dims->factor[factor].extent;
    int axes[RT_LAYOUT_AXES];
    dims_outermost_first(splits, mesh->naxes, axes);
    for (int i = 0; i < mesh->naxes; i++) {
        const struct node_split *split = &splits[axes[i]];
        const struct rt_cut cut = {extent, split->blocks, split->grain, mesh->axis[axes[i]].size};
        if (split->factor == factor) extent = rt_cut_extent(&cut, cut.ways - 1);
    }
    return extent;
}

bool dims_can_nest(const struct dims *dims, const struct mesh *mesh, const struct node_split *splits, int axis,
                   const struct node_split *split) {
    const int ways = mesh->axis[axis].size;
    bool nested = false;
    if (!dims_can_split(dims, split, 1)) return false;
    for (int a = 0; a < mesh->naxes; a++) {
        if (a == axis || !dims_splits_meet(dims, &splits[a], split)) continue;
        if (splits[a].factor != split->factor || splits[a].blocks != split->blocks || splits[a].grain % split->grain)
            return false;
        nested = true;
    }
    if (!nested) return dims_can_split(dims, split, ways);
    if (dims_has_windows(dims, split->factor)) return false;
    return divides(least_extent(dims, mesh, splits, split->factor), split, ways);
}

static bool call_has(const struct op *op, const char *hole, const char *factor) {
    char text[32];
    snprintf(text, sizeof text, "$%s(%s)", hole, factor);
    return strstr(op->call, text);
}

bool op_can_split(const struct op *op, const struct dims *dims, const struct node_split *split) {
    const char *factor = dims->factor[split->factor].name;
    if (split->blocks == 1 || !op->call) return true;
    if (strstr(op->call, "$starts(")) return false;
    return !call_has(op, "start", factor) ||
           (split->blocks == -2 && (call_has(op, "jump", factor) || call_has(op, "gap", factor)));
}

struct placement dims_placement(const struct dims *dims, int operand, const struct node_split *split) {
    struct placement placement = {PLACED_WHOLE};
    if (split->factor < 0) return placement;
    int64_t blocks, grain;
    int dim = dims_dim_cut(dims, operand, split, &blocks, &grain);
    if (dim >= 0) return (struct placement){.kind = PLACED_PART, .dim = dim, .blocks = blocks, .grain = grain};
    dim = dims_window_dim(dims, operand, split->factor);
    if (dim >= 0) {
        const struct factor *halo = &dims->factor[dims->operand[operand].dim[dim].factor[0]];
        return (struct placement){
            .kind = PLACED_WINDOW, .dim = dim, .blocks = split->blocks, .grain = split->grain, .reach = halo->reach};
    }
    enum rt_reduce reduce;
    if (operand < dims->ninputs || !dims_reduces(dims, operand - dims->ninputs, split->factor, &reduce))
        return placement;
    return (struct placement){.kind = PLACED_PARTIAL, .reduce = reduce};
}

struct placement placement_partial_sum(void) {
    return (struct placement){.kind = PLACED_PARTIAL, .reduce = RT_SUM};
}

static bool is_one_element(const struct graph *graph, int tensor) {
    return tensor_elements(&graph->tensors.at[tensor]) == 1;
}

static bool is_own(const struct graph *graph, int tensor, int axis) {
    return tensor >= 0 && layout_along(&graph->tensors.at[tensor].layout, axis).kind == PLACED_OWN;
}

/* The placement of what the node computes along a replica axis: its own value on every rank if one of its inputs is,
 * unless these are declared operands of a reduction. */
static struct placement given_to_replicas(const struct graph *graph, const struct node *node, int output, int axis) {
    const enum joined joined = graph->tensors.at[node->outputs[output]].joined;
    bool own = false;
    if (joined) return (struct placement){.kind = PLACED_PARTIAL, .reduce = joined == JOINED_SUM ? RT_SUM : RT_MAX};
    for (int k = 0; k < node->ninputs; k++) own = own || is_own(graph, node->inputs[k], axis);
    return (struct placement){.kind = own ? PLACED_OWN : PLACED_WHOLE};
}

/* The slices of an operand or result of a node with a flat cut. Of one that computes with blocks, the scales are fewer
 * than the elements. */
static struct placement flat_placement(const struct graph *graph, const struct node *node, int tensor, int axis) {
    const int64_t elements = tensor_elements(&graph->tensors.at[tensor]), grain = node->split[axis].grain;
    const bool scales = op_has_blocks(node->op) && elements < tensor_elements(&graph->tensors.at[node->inputs[0]]);
    return (struct placement){.kind = PLACED_FLAT, .grain = scales ? 1 : grain > 1 ? grain : 0};
}

/* The placement on mesh axis `axis` that output `output` of the node has; with SPLIT_PARTIAL, a partial sum. */
static struct placement placement_given(const struct graph *graph, const struct dims *dims, const struct node *node,
                                        int output, int axis) {
    if (node->split[axis].factor == SPLIT_PARTIAL) return placement_partial_sum();
    if (node->split[axis].factor == SPLIT_FLAT)
        return node->op->id == OP_SumSquares || node->op->onto
                   ? placement_partial_sum()
                   : flat_placement(graph, node, node->outputs[output], axis);
    if (axis >= graph->mesh.naxes) return given_to_replicas(graph, node, output, axis);
    return dims_placement(dims, dims->ninputs + output, &node->split[axis]);
}

static struct placement placement_wanted(const struct graph *graph, const struct dims *dims, const struct node *node,
                                         int operand, int axis) {
    const int input = node->inputs[operand];
    if (is_own(graph, input, axis)) return (struct placement){.kind = PLACED_OWN};
    if (node->op->onto && operand == 0) return placement_given(graph, dims, node, 0, axis);
    if (node->split[axis].factor == SPLIT_FLAT)
        return input < 0 || is_one_element(graph, input) ? (struct placement){PLACED_WHOLE}
                                                         : flat_placement(graph, node, input, axis);
    if (node->split[axis].factor != SPLIT_PARTIAL) return dims_placement(dims, operand, &node->split[axis]);
    const struct placement sum = placement_partial_sum();
    const struct placement held =
        input < 0 ? (struct placement){PLACED_WHOLE} : layout_along(&graph->tensors.at[input].layout, axis);
    return placement_equal(&held, &sum) ? sum : (struct placement){PLACED_WHOLE};
}

/* The layout of input or output k from its placement along each axis. */
static struct layout layout_of(const struct graph *graph, const struct dims *dims, const struct node *node, int k,
                               struct placement (*along)(const struct graph *graph, const struct dims *dims,
                                                         const struct node *node, int k, int axis)) {
    struct layout layout = {0};
    int axes[RT_LAYOUT_AXES];
    const int naxes = mesh_layout_axes(&graph->mesh);
    dims_outermost_first(node->split, naxes, axes);
    for (int i = 0; i < naxes; i++) layout_place(graph->arena, &layout, axes[i], along(graph, dims, node, k, axes[i]));
    return layout;
}

struct layout dims_layout_wanted(const struct graph *graph, const struct dims *dims, const struct node *node,
                                 int operand) {
    return layout_of(graph, dims, node, operand, placement_wanted);
}

struct layout dims_layout_given(const struct graph *graph, const struct dims *dims, const struct node *node,
                                int output) {
    return layout_of(graph, dims, node, output, placement_given);
}

double dims_flops(const struct dims *dims, double per_point) {
    if (dims->points > 0) return per_point * dims->points;
    for (int i = 0; i < dims->nfactors; i++)
        if (dims->factor[i].kind != FACTOR_HALO) per_point *= (double)dims->factor[i].extent;
    return per_point;
}

static void print_operand(struct strbuf *out, const struct dims *dims, int operand) {
    static const char *const mark[] = {"", "+", "+max", "+min", "^", "~"};
    const struct operand *o = &dims->operand[operand];
    EACH(o->dim, o->ndim, d, const struct dim_factors *f) {
        strbuf_puts(out, d ? " " : "");
        if (f->n == 0) strbuf_puts(out, "1");
        if (f->n > 1) strbuf_puts(out, "(");
        for (int i = 0; i < f->n; i++) {
            const struct factor *factor = &dims->factor[f->factor[i]];
            bool windows = factor->kind == FACTOR_HALO && factor->over >= 0;
            strbuf_printf(out, "%s%s%s%s", i ? " " : "", factor->name, mark[factor->kind],
                          windows ? dims->factor[factor->over].name : "");
        }
        if (f->n > 1) strbuf_puts(out, ")");
    }
}

const char *dims_print(struct arena *arena, const struct dims *dims) {
    struct strbuf out = {.arena = arena};
    for (int i = 0; i < dims->ninputs + dims->noutputs; i++) {
        strbuf_puts(&out, i == 0 ? "" : i == dims->ninputs ? " -> " : ", ");
        print_operand(&out, dims, i);
    }
    for (int i = 0; i < dims->nfactors; i++)
        strbuf_printf(&out, "%s%s=%lld", i ? ", " : " {", dims->factor[i].name, (long long)dims->factor[i].extent);
    strbuf_puts(&out, dims->nfactors ? "}" : "");
    return strbuf_text(&out);
}
