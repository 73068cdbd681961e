#include "ir/user.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/dims.h"

static int count_letters(const char *text, size_t length) {
    int n = 0;
    for (size_t i = 0; i < length; i++) n += isalpha((unsigned char)text[i]) != 0;
    return n;
}

int user_inputs(const struct user_op *user) {
    return count_letters(user->op.types, strcspn(user->op.types, "-"));
}

int user_outputs(const struct user_op *user) {
    return (int)strlen(strchr(user->op.types, '>') + 1);
}

static bool is_optional(const struct user_op *user, int input) {
    return op_input_letter(&user->op, input)[1] == '?';
}

int user_required(const struct user_op *user) {
    int n = user_inputs(user);
    while (n > 0 && is_optional(user, n - 1)) n--;
    return n;
}

/* The name of an input in expressions: x, or a b c .. if there are several. */
static const char *input_name(const struct user_op *user, int input) {
    static const char *const names[USER_INPUTS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    return user_inputs(user) == 1 ? "x" : names[input];
}

static const char *check_types(const char *types) {
    const char *arrow = strstr(types, "->"), *at = types;
    if (!arrow) return "types have the form INPUTS->OUTPUTS, such as ff->f";
    if (arrow == types) return "an operator has an input";
    for (; at < arrow; at++)
        if (!strchr("TNfIbdsul", *at) && !(*at == '?' && at > types && at[-1] != '?'))
            return "the letters of inputs are T N f I b d s u l, each with a ? behind it if it is optional";
    if (count_letters(types, (size_t)(arrow - types)) > USER_INPUTS) return "an operator has at most 8 inputs";
    if (types[1] == '?') return "the first input cannot be optional";
    if (!arrow[2] || strlen(arrow + 2) > USER_OUTPUTS) return "an operator has 1 to 3 outputs";
    for (at = arrow + 2; *at; at++) {
        if (!strchr("TNfbsul", *at)) return "the letters of outputs are T N f b s u l";
        if (strchr("TNf", *at) && strcspn(types, (char[]){*at, 0}) > (size_t)(arrow - types))
            return "an output of type T, N or f has the type of the inputs with this letter: there is none";
    }
    return NULL;
}

const char *user_next_attr(const char *text, struct user_attr *attr, const char **why) {
    *why = NULL;
    text += strspn(text, " ");
    if (!*text) return NULL;
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_') length++;
    *why = "an attribute has the form NAME:KIND, a NAME beginning with a small letter and a KIND i, f or I";
    if (!islower((unsigned char)*text) || length >= sizeof attr->name || text[length] != ':') return NULL;
    *attr = (struct user_attr){.kind = text[length + 1]};
    memcpy(attr->name, text, length);
    text += length + 1;
    if (!*text || !strchr("ifI", *text++)) return NULL;
    attr->required = *text == '!';
    text += attr->required;
    if (*text == '=') {
        char *end;
        attr->fallback = ++text;
        *why = attr->kind == 'i' ? "the default of an attribute of kind i is an integer of 64 bits"
                                 : "the default of an attribute is a number, of kind f a finite f32";
        if (attr->kind == 'I' || attr->required || !strchr("-0123456789", *text)) return NULL;
        errno = 0;
        const bool fits = attr->kind == 'i' ? (strtoll(text, &end, 10), !errno) : isfinite(strtof(text, &end));
        if (end == text || !fits) return NULL;
        text = end;
    }
    *why = "attributes are separated by blanks";
    if (*text && *text != ' ') return NULL;
    *why = NULL;
    return text;
}

static bool find_attr(const struct user_op *user, const char *name, struct user_attr *attr) {
    const char *why;
    for (const char *rest = user->attrs; (rest = user_next_attr(rest, attr, &why));)
        if (strcmp(attr->name, name) == 0) return true;
    return false;
}

static const char *const variables[] = {"y",    "y1",    "y2",    "list",   "shape", "ndim",    "size",  "T",
                                        "B",    "dtype", "start", "extent", "whole", "aligned", "count", "starts",
                                        "node", "stage", "phase", "split",  "rt",    "dy",      "x",     NULL};

static bool is_operand_name(const char *name) {
    return (name[0] == 'x' || name[0] == 'T') && isdigit((unsigned char)name[1]) && !name[2];
}

static bool is_among(const char *const *list, const char *name) {
    while (*list && strcmp(*list, name) != 0) list++;
    return *list;
}

static bool is_variable(const char *name) {
    return is_among(variables, name) || is_operand_name(name);
}

static const char *check_attrs(const struct user_op *user, struct arena *arena) {
    struct user_attr attr, other;
    const char *why, *rest = user->attrs;
    int n = 0;
    while ((rest = user_next_attr(rest, &attr, &why))) {
        if (++n > USER_ATTRS) return "an operator has at most 16 attributes";
        if (is_variable(attr.name) || (strlen(attr.name) == 1 && attr.name[0] <= 'h'))
            return arena_printf(arena, "'%s' has another meaning in calls and expressions", attr.name);
        if (find_attr(user, attr.name, &other) && other.fallback != attr.fallback)
            return arena_printf(arena, "attribute '%s' is declared twice", attr.name);
    }
    return why;
}

/* A call being checked: one alternative of `call` with that of the annotation. */
struct call {
    const struct user_op *user;
    struct arena *arena;
    const char *dims; /* the alternative of the annotation */
    size_t dims_length;
    const char *why;
};

static bool refuse(struct call *call, const char *format, const char *name) {
    call->why = arena_printf(call->arena, format, name);
    return false;
}

static bool is_factor(const struct call *call, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i + length <= call->dims_length; i++) {
        bool begins = i == 0 || !isalnum((unsigned char)call->dims[i - 1]);
        if (begins && strncmp(call->dims + i, name, length) == 0 && !isalnum((unsigned char)call->dims[i + length]))
            return length > 0 && islower((unsigned char)*name);
    }
    return false;
}

/* True for x0, or y, y1, y2: an operand that a node always has, unless `optional`. */
static bool is_operand(const struct call *call, const char *name, bool optional) {
    int index = name[1] ? atoi(name + 1) : 0;
    if (name[0] == 'y') return (!name[1] || (index > 0 && !name[2])) && index < user_outputs(call->user);
    if (name[0] != 'x' || !isdigit((unsigned char)name[1]) || name[2] || index >= user_inputs(call->user)) return false;
    return optional || !is_optional(call->user, index);
}

static bool check_variable(struct call *call, const char *name, const char *argument) {
    static const char *const of_dims[] = {"start", "extent", NULL}, *const plain[] = {"T",    "B",     "dtype",
                                                                                      "list", "count", NULL},
                             *const of_operands[] = {"shape", "ndim", "size", "whole", "aligned", "starts", NULL};
    struct user_attr attr;
    if (is_among(of_dims, name))
        return is_factor(call, argument) || refuse(call, "'%s' is no dimension of the annotation", argument);
    if (is_among(of_operands, name))
        return is_operand(call, argument, strcmp(name, "aligned") == 0) ||
               refuse(call, "'%s' is no operand that every node has: those are y, y1 .. and x0, x1 ..", argument);
    if (*argument) return refuse(call, "$%s takes no argument", name);
    if (is_factor(call, name) || find_attr(call->user, name, &attr) || is_operand(call, name, true) ||
        is_among(plain, name))
        return true;
    if (is_operand_name(name) && *name == 'T')
        return is_operand(call, arena_printf(call->arena, "x%s", name + 1), false);
    return refuse(call, "$%s is no operand, dimension, attribute or variable", name);
}

/* Checks a variable from behind its "$"; moves *at behind it. */
static bool take_variable(struct call *call, const char **at) {
    char name[24] = "", argument[24] = "";
    const char *s = *at;
    if (*s == '[') {
        if ((!isalpha((unsigned char)s[1]) && s[1] != '*') || s[2] != ']')
            return refuse(call, "$[] has one letter or * in it%s", "");
        *at = s + 3;
        return true;
    }
    size_t n = 0;
    for (bool type = *s == 'T' || *s == 'B'; isalnum((unsigned char)s[n]) || (s[n] == '_' && !type); n++) {
        if (n == sizeof name - 1) return refuse(call, "a name is too long%s", "");
        name[n] = s[n];
    }
    bool type = *s == 'T' || *s == 'B';
    s += n;
    if (*s == '(' && !type) {
        size_t length = strcspn(s + 1, ")");
        if (length >= sizeof argument || s[1 + length] != ')') return refuse(call, "bad argument of $%s", name);
        memcpy(argument, s + 1, length);
        s += length + 2;
    }
    *at = s;
    return check_variable(call, name, argument);
}

static bool check_alternative(struct call *call, const char *s, const char *end) {
    int depth = 0, calls = 0;
    s += *s == '!';
    if (!isalpha((unsigned char)*s) && *s != '_') return refuse(call, "a call begins with a function%s", "");
    while (s < end) {
        if (*s == '$') {
            s++;
            if (!take_variable(call, &s)) return false;
            continue;
        }
        if (!isalnum((unsigned char)*s) && !strchr("_ ,.*()+-", *s)) return refuse(call, "unexpected character%s", "");
        if (!depth && !calls && !isalnum((unsigned char)*s) && *s != '_' && *s != '(')
            return refuse(call, "a call has the form FUNCTION(ARGUMENTS)%s", "");
        if (*s == '(' && !depth++ && calls++) return refuse(call, "more than one call%s", "");
        if (*s == ')' && --depth < 0) return refuse(call, "unexpected ')'%s", "");
        if (*s == ')' && !depth && s + 1 != end) return refuse(call, "unexpected text behind the call%s", "");
        s++;
    }
    return (calls && !depth && s == end) || refuse(call, "the call is not closed%s", "");
}

/* Alternatives of the call are for those of the annotation, in this order; the last one serves all further ones. */
static const char *check_call(const struct user_op *user, struct arena *arena) {
    const char *text = user->op.call, *dims = user->op.dims;
    struct call call = {.user = user, .arena = arena};
    while (dims) {
        const char *bar = strchr(text, '|'), *next = strchr(dims, '|');
        call.dims = dims;
        call.dims_length = next ? (size_t)(next - dims) : strlen(dims);
        if (!check_alternative(&call, text, bar ? bar : text + strlen(text))) return call.why;
        if (bar && !next) return "there are more calls than alternatives of the annotation";
        if (bar) text = bar + 1;
        dims = next ? next + 1 : NULL;
    }
    return NULL;
}

static const char *check_factor_names(const struct user_op *user, struct arena *arena) {
    struct user_attr attr;
    for (const char *at = user->op.dims; *at;) {
        size_t length = 0;
        while (isalnum((unsigned char)at[length])) length++;
        const char *name = arena_copy(arena, at, length);
        if (length && isupper((unsigned char)*at)) return "names of dimensions begin with a small letter";
        if (length && strcmp(name, "x") != 0 && (is_variable(name) || find_attr(user, name, &attr)) &&
            (at == user->op.dims || at[-1] != '+'))
            return arena_printf(arena, "'%s' has another meaning in the call", name);
        at += length ? length : 1;
    }
    return NULL;
}

static const char *check_name(const char *name, bool may_be_onnx) {
    const char *colons = strstr(name, "::");
    if (!colons || (colons == name && !may_be_onnx) || !colons[2]) return "a name has the form DOMAIN::NAME";
    for (const char *at = name; *at; at += at == colons ? 2 : 1)
        if (at != colons && !isalnum((unsigned char)*at) && *at != '_' && !(*at == '.' && at < colons))
            return "the domain of a name has letters, digits, '_' and '.', what follows it no '.'";
    return strlen(name) < 64 ? NULL : "the name is too long";
}

static const char *check_file(const char *file) {
    if (!*file || *file == '/' || *file == '.' || strstr(file, "/.") || strstr(file, "//") || strlen(file) > 200)
        return "a kernel's file lies in the folder of the file that declares it, or below";
    return str_is_plain(file) && !strchr(file, ':') ? NULL : "a file's name has letters, digits, '_', '-' and '.'";
}

static bool read_kernels(struct user_op *user) {
    for (const char *at = user->kernels; *at;) {
        size_t length = strcspn(at, " ");
        char name[8] = "";
        if (length && length < sizeof name) memcpy(name, at, length);
        enum rt_dtype dtype = rt_dtype_by_name(name);
        if (length && dtype == RT_DTYPE_NONE) return false;
        if (length) user->op.variants |= 1u << dtype;
        at += length + (at[length] == ' ');
    }
    return user->op.variants != 0;
}

static const char *expression_fault(const struct user_op *user, const char *text, bool gradient, struct arena *arena) {
    const char *names[2 + USER_INPUTS + USER_ATTRS], *why;
    struct user_attr attr;
    int n = 0;
    if (gradient) names[n++] = "dy", names[n++] = "y";
    for (int i = 0; i < user_inputs(user); i++) names[n++] = input_name(user, i);
    for (const char *rest = user->attrs; (rest = user_next_attr(rest, &attr, &why));)
        if (attr.kind != 'I') names[n++] = arena_strdup(arena, attr.name);
    return build_expr_fault(arena, text, n, names, gradient);
}

static bool fault_at(struct user_fault *fault, const char *property, const char *why) {
    *fault = (struct user_fault){property, why, 0};
    return !why;
}

static bool complete_elementwise(struct user_op *user, struct arena *arena, struct user_fault *fault) {
    if (user->op.dims || user->op.call || user->kernel[USER_C].file || user->kernel[USER_CUDA].file || user->kernels)
        return fault_at(fault, "expr",
                        "an operator with an expression has no dims, call, kernels and files of kernels");
    if (user_inputs(user) > 3 || user_outputs(user) > 1 || strchr(user->op.types, '?'))
        return fault_at(fault, "types", "an operator with an expression has 1 to 3 inputs and one output");
    user->op.kind = OP_ELEMENTWISE;
    user->op.halves = true;
    return fault_at(fault, "expr", expression_fault(user, user->op.expr, false, arena));
}

static bool complete_kernel(struct user_op *user, struct arena *arena, struct user_fault *fault) {
    const char *why;
    if (!user->op.dims) return fault_at(fault, "dims", "dims is missing: the annotation, or expr");
    if (!user->op.call) return fault_at(fault, "call", "call is missing");
    if ((why = dims_text_fault(arena, user->op.dims, user_inputs(user), user_outputs(user))) ||
        (why = check_factor_names(user, arena)))
        return fault_at(fault, "dims", why);
    if ((why = check_call(user, arena))) return fault_at(fault, "call", why);
    for (int t = 0; t < USER_TARGETS; t++)
        if (user->kernel[t].file && (why = check_file(user->kernel[t].file)))
            return fault_at(fault, t == USER_C ? "c" : "cuda", why);
    if (!user->kernel[USER_C].file && !user->kernel[USER_CUDA].file)
        return fault_at(fault, "c", "c or cuda is missing: the file with the kernel");
    if (user->kernels && !read_kernels(user))
        return fault_at(fault, "kernels", "kernels is a list of types, such as f32 f64");
    user->op.halves = user->op.variants >> RT_F16 & 1 && user->op.variants >> RT_BF16 & 1;
    user->op.kind = OP_KERNEL;
    return true;
}

static int user_gradient(struct gradient *gradient);

bool user_op_complete(struct user_op *user, struct arena *arena, struct user_fault *fault) {
    const char *why;
    user->op.id = OP_NONE;
    user->op.user = user;
    if (user->gradient) user->op.grad = user_gradient;
    if (!user->model) user->model = user->op.name;
    if (!user->attrs) user->attrs = "";
    if ((why = check_name(user->op.name, false))) return fault_at(fault, NULL, why);
    if ((why = check_name(user->model, true))) return fault_at(fault, "model", why);
    if (!user->op.types) return fault_at(fault, "types", "types is missing");
    if ((why = check_types(user->op.types))) return fault_at(fault, "types", why);
    if ((why = check_attrs(user, arena))) return fault_at(fault, "attrs", why);
    if (!(user->op.flops >= 0)) return fault_at(fault, "flops", "flops is a number of at least 0");
    if (!(user->op.expr ? complete_elementwise(user, arena, fault) : complete_kernel(user, arena, fault))) return false;
    if (!user->pattern) return true;
    size_t at;
    const bool good = fault_at(fault, "pattern", user_pattern_fault(user, arena, &at));
    fault->at = at;
    return good;
}

/* The gradient of one input, as declared. */
struct part {
    enum { PART_NONE, PART_EXPRESSION, PART_CALL } kind;
    const char *text; /* of an expression; of a call without its output */
    const char *callee;
    int nargs, args[USER_INPUTS], output; /* args: inputs of the node, or one of these */
};
enum { ARG_DY = -1, ARG_Y = -2 };

static bool read_argument(const struct user_op *user, const char *word, int *arg) {
    if (strcmp(word, "dy") == 0) return *arg = ARG_DY, true;
    if (strcmp(word, "y") == 0) return *arg = ARG_Y, true;
    for (int i = 0; i < user_inputs(user); i++)
        if (strcmp(word, input_name(user, i)) == 0) return *arg = i, true;
    return false;
}

/* Reads "acme::GateGrad(a, dy).0"; the reason if it is malformed. */
static const char *read_call(const struct user_op *user, const char *text, struct arena *arena, struct part *part) {
    const char *open = strchr(text, '('), *close = strchr(text, ')');
    if (!open || !close || close < open) return "the gradient calls an operator as DOMAIN::NAME(a, dy).OUTPUT";
    part->callee = arena_copy(arena, text, (size_t)(open - text));
    part->text = arena_copy(arena, text, (size_t)(close + 1 - text));
    for (const char *at = open + 1; at < close;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, " ,)");
        const char *word = arena_copy(arena, at, length);
        if (part->nargs == USER_INPUTS) return "the gradient's operator has too many operands";
        if (!read_argument(user, word, &part->args[part->nargs++]))
            return arena_printf(arena, "'%s' is neither dy, y nor an input (x of one, a b c .. of several)", word);
        at += length;
        at += strspn(at, " ");
        at += *at == ',';
    }
    close++;
    if (!*close) return NULL;
    part->output = close[1] - '0';
    bool good = *close == '.' && isdigit((unsigned char)close[1]) && !close[2];
    return good ? NULL : "what follows the operands is .0, .1 or .2, the output";
}

/* The gradient of input k; the reason if it is malformed. */
static const char *read_part(const struct user_op *user, int k, struct arena *arena, struct part *part) {
    const char *text = user->gradient;
    *part = (struct part){0};
    for (int i = 0; i < k; i++) {
        if (!(text = strstr(text, " | "))) return "the gradient has a part per input, separated by ' | '";
        text += 3;
    }
    const char *bar = strstr(text, " | ");
    if (bar && k + 1 == user_inputs(user)) return "the gradient has more parts than the operator has inputs";
    part->text = arena_copy(arena, text, bar ? (size_t)(bar - text) : strlen(text));
    if (strcmp(part->text, "0") == 0) return NULL;
    part->kind = strstr(part->text, "::") ? PART_CALL : PART_EXPRESSION;
    return part->kind == PART_CALL ? read_call(user, part->text, arena, part) : NULL;
}

static struct user_op *find(const char *name, struct user_op *const *all, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(all[i]->op.name, name) == 0) return all[i];
    return NULL;
}

static const char *check_callee(const struct user_op *user, const struct user_op *callee, const struct part *part,
                                struct arena *arena) {
    struct user_attr attr, own;
    const char *why;
    if (!callee) return arena_printf(arena, "the operator %s is not declared", part->callee);
    if (part->nargs < user_required(callee) || part->nargs > user_inputs(callee))
        return arena_printf(arena, "%s has %d input(s), not %d", part->callee, user_inputs(callee), part->nargs);
    if (part->output >= user_outputs(callee))
        return arena_printf(arena, "%s has no output %d", part->callee, part->output);
    for (const char *rest = callee->attrs; (rest = user_next_attr(rest, &attr, &why));)
        if (attr.required && !find_attr(user, attr.name, &own))
            return arena_printf(arena, "%s needs attribute '%s', which this operator does not have", part->callee,
                                attr.name);
    return NULL;
}

bool user_op_check_gradient(const struct user_op *user, struct user_op *const *all, int n, struct arena *arena,
                            struct user_fault *fault) {
    const char *why = NULL;
    struct part part;
    for (int k = 0; user->gradient && k < user_inputs(user) && !why; k++) {
        why = read_part(user, k, arena, &part);
        if (!why && part.kind == PART_CALL) why = check_callee(user, find(part.callee, all, n), &part, arena);
        if (!why && part.kind == PART_EXPRESSION) why = expression_fault(user, part.text, true, arena);
    }
    return fault_at(fault, "gradient", why);
}

const struct op *graph_find_op(const struct graph *graph, const char *name) {
    const struct user_op *user = find(name, graph->operators.at, graph->operators.n);
    return user ? &user->op : op_find(name);
}

void graph_declare(struct graph *graph, struct user_op *user, struct user_op *const *all, int n) {
    const int first = graph->operators.n;
    struct part part;
    if (find(user->op.name, graph->operators.at, first)) return;
    VEC_PUSH(graph->arena, &graph->operators, user);
    for (int i = first; i < graph->operators.n; i++) {
        const struct user_op *own = graph->operators.at[i];
        for (int k = 0; own->gradient && k < user_inputs(own); k++) {
            if (read_part(own, k, graph->arena, &part) || part.kind != PART_CALL) continue;
            if (!find(part.callee, graph->operators.at, graph->operators.n))
                VEC_PUSH(graph->arena, &graph->operators, find(part.callee, all, n));
        }
    }
}

const struct attr *user_attrs(const struct user_op *user, const struct node *from, struct arena *arena, int *n) {
    struct attr *attrs = ARENA_ARRAY(arena, struct attr, USER_ATTRS);
    struct user_attr attr;
    const char *why;
    *n = 0;
    for (const char *rest = user->attrs; (rest = user_next_attr(rest, &attr, &why));) {
        const struct attr *given = from ? attr_find(from, attr.name) : NULL;
        const char *key = arena_strdup(arena, attr.name);
        if (given)
            attrs[(*n)++] = *given;
        else if (attr.fallback && attr.kind == 'i')
            attrs[(*n)++] = attr_of_int(key, strtoll(attr.fallback, NULL, 10));
        else if (attr.fallback)
            attrs[(*n)++] = attr_of_float(key, strtof(attr.fallback, NULL));
    }
    return attrs;
}

/* A call of a gradient's operator that was added. Parts with the same text share it. */
struct added {
    const char *text;
    int outputs[USER_OUTPUTS];
};

static int add_call(struct gradient *gradient, const struct part *part, struct added *added) {
    struct graph *graph = gradient->builder.graph;
    const struct user_op *callee = find(part->callee, graph->operators.at, graph->operators.n);
    int inputs[USER_INPUTS], nattrs;
    if (!callee) BUG("operator %s is not declared", part->callee);
    for (int i = 0; i < part->nargs; i++)
        inputs[i] = part->args[i] == ARG_DY                  ? gradient->dy
                    : part->args[i] == ARG_Y                 ? gradient->node.outputs[0]
                    : part->args[i] < gradient->node.ninputs ? gradient->node.inputs[part->args[i]]
                                                             : -1;
    const struct attr *attrs = user_attrs(callee, &gradient->node, graph->arena, &nattrs);
    added->text = part->text;
    return build_op(&gradient->builder, &callee->op, part->nargs, inputs, user_outputs(callee), added->outputs, nattrs,
                    attrs);
}

/* Output `output` of the operator that the part calls, -1 after a diagnostic. */
static int call_result(struct gradient *gradient, const struct part *part, struct added *added, int *n) {
    for (int i = 0; i < *n; i++)
        if (strcmp(added[i].text, part->text) == 0) return added[i].outputs[part->output];
    if (add_call(gradient, part, &added[*n]) < 0) return -1;
    return added[(*n)++].outputs[part->output];
}

/* The names of dy, y and the inputs in an expression. Inputs that the node leaves out are none. */
static int expression_result(struct gradient *gradient, const struct user_op *user, const char *text) {
    const char *names[2 + USER_INPUTS] = {"dy", "y"};
    int tensors[2 + USER_INPUTS] = {gradient->dy, gradient->node.outputs[0]}, n = 2;
    for (int i = 0; i < gradient->node.ninputs; i++) {
        if (gradient->node.inputs[i] < 0) continue;
        names[n] = input_name(user, i);
        tensors[n++] = gradient->node.inputs[i];
    }
    return gradient_expr(gradient, text, n, names, tensors);
}

/* True if `tensor` can be summed to the shape of `like`. */
static bool is_broadcast(const struct tensor *tensor, const struct tensor *like) {
    int more = tensor->ndim - like->ndim;
    for (int d = 0; d < like->ndim && more >= 0; d++)
        if (like->dims[d] != tensor->dims[d + more] && like->dims[d] != 1) return false;
    return more >= 0 && tensor->dtype == like->dtype;
}

/* Column `grad` of declared operators. */
static int user_gradient(struct gradient *gradient) {
    struct graph *graph = gradient->builder.graph;
    const struct user_op *user = gradient->node.op->user;
    struct added added[USER_INPUTS];
    int nadded = 0;
    for (int k = 0; k < gradient->node.ninputs; k++) {
        struct part part;
        const char *why = read_part(user, k, graph->arena, &part);
        if (why) BUG("gradient of %s: %s", user->op.name, why);
        if (!gradient->wanted[k] || part.kind == PART_NONE || gradient->node.inputs[k] < 0) continue;
        int full = part.kind == PART_CALL ? call_result(gradient, &part, added, &nadded)
                                          : expression_result(gradient, user, part.text);
        if (full < 0) return -1;
        const struct tensor *input = gradient_input(gradient, k), *made = &graph->tensors.at[full];
        if (!is_broadcast(made, input))
            return diag_error(gradient->builder.diags, 392, EXIT_MALFORMED, gradient->place,
                              "the gradient that %s declares for input %d is %s, but the input is %s", user->op.name, k,
                              tensor_type(graph->arena, made), tensor_type(graph->arena, input));
        if ((gradient->dx[k] = gradient_sum_to(gradient, full, input)) < 0) return -1;
    }
    return 0;
}
