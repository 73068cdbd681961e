#include "frontend/cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/driver/driver.h"
#include "frontend/driver/output/temporary.h"
#include "frontend/driver/files/user_ops.h"
#include "ir/dims.h"
#include "ir/text.h"
#include "ir/user.h"
#include "runtime/base/io/file.h"
#include "runtime/base/npy.h"
#include "runtime/base/number/random_fill.h"
#include "runtime/launch.h"

/* Types in the order of the trials: the first that has a kernel is the reference of the others. */
static const enum rt_dtype types[] = {RT_F64, RT_F32, RT_BF16, RT_F16, RT_I64, RT_I32, RT_U8, RT_BOOL};
enum { TYPES = sizeof types / sizeof *types, DIRECTIONS = 3, MOST_WAYS = 3, MAX_ALTERNATIVES = 16 };

/* What is known of an operator in one alternative of its annotation. */
struct subject {
    const struct user_op *user;
    int alternative;
    struct rt_tensor whole[TYPES][USER_OUTPUTS]; /* results on one rank, by type; data NULL: not tried */
    const char *split;                           /* names of the factors that were divided */
    double difference, gradient;                 /* the largest relative error of a gradient; -1: none was tried */
    const char *pattern;                         /* property `pattern`; NULL: none */
    bool replaces;                               /* the pattern's subgraph computes the same */
};

/* A node of the program: the subject divided along a factor or whole, or for a finite difference. */
struct trial {
    int subject, factor;  /* -1: whole */
    int input, direction; /* of a finite difference, which adds step to the input; -1: none */
    double step;
    bool pattern;               /* the subgraph of the operator's pattern takes the operator's place */
    int first_output, noutputs; /* of the program */
};

struct check {
    struct cli *cli;
    struct arena *arena;
    const char *work;
    struct graph *declared, *graph;
    VEC(struct subject) subjects;
    VEC(struct trial) trials;
    enum rt_dtype type;
    int slot; /* of the type, in types[] */
    int ways;
    struct strbuf rules;
    VEC(const char *) inputs; /* arguments --input NAME=FILE */
};

/* Multiples of 1/64 in [-1, 1), which every float type represents; integers from 0 to 2. */
static double value_of(uint64_t *state, enum rt_dtype dtype) {
    int64_t bits = (int64_t)(rt_random_next(state) >> 40);
    if (rt_dtype_is_float(dtype)) return (double)(bits % 128 - 64) / 64;
    return (double)(bits % (dtype == RT_BOOL ? 2 : 3));
}

/* Input `input` of a subject, or of a direction; the same for every type. */
static void values_of(int subject, int input, int direction, enum rt_dtype dtype, int64_t count, double *values) {
    uint64_t state = (uint64_t)(subject * 64 + input) * 64 + (uint64_t)(direction + 1);
    for (int64_t i = 0; i < count; i++) values[i] = value_of(&state, dtype);
}

/* The step of finite differences: about the cube root of epsilon, where errors of rounding and of the formula meet. */
static double step_of(const struct check *check) {
    return check->type == RT_F64 ? 0x1p-17 : 0x1p-7;
}

static int write_values(struct check *check, const char *name, enum rt_dtype dtype, int ndim, const int64_t *dims,
                        const double *values, int64_t count) {
    void *data = arena_alloc(check->arena, (size_t)count + 1, rt_dtype_bytes(dtype));
    const char *path = arena_printf(check->arena, "%s/%s.npy", check->work, name);
    struct rt_reason why;
    rt_convert(data, dtype, values, RT_F64, (size_t)count);
    if (!rt_npy_write(path, dtype, ndim, dims, data, &why))
        return diag_refusal(check->cli->diags, 611, EXIT_SYSTEM, NULL, &why);
    VEC_PUSH(check->arena, &check->inputs, "--input");
    VEC_PUSH(check->arena, &check->inputs, arena_printf(check->arena, "%s=%s", name, path));
    return 0;
}

static enum rt_dtype input_type(const struct check *check, const struct user_op *user, int input) {
    static const struct {
        char letter;
        enum rt_dtype dtype;
    } fixed[] = {{'b', RT_BOOL}, {'d', RT_F64}, {'s', RT_F32}, {'u', RT_U8}, {'I', RT_I64}, {'l', RT_I64}};
    const char letter = *op_input_letter(&user->op, input);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (fixed[i].letter == letter) return fixed[i].dtype;
    return check->type;
}

/* Adds an input of the program with its values, which `step` times those of the direction are added to. -1 after a
 * diagnostic. */
static int add_input(struct check *check, const struct trial *trial, int input, double step) {
    const struct subject *subject = &check->subjects.at[trial->subject];
    const enum rt_dtype dtype = input_type(check, subject->user, input);
    int64_t dims[RT_MAX_NDIM], count = 1;
    const char *text = subject->user->op.dims ? subject->user->op.dims : "*, *, * -> *";
    const int ndim = dims_sample(text, subject->alternative, input, dims);
    for (int d = 0; d < ndim; d++) count *= dims[d];
    double *values = ARENA_ARRAY(check->arena, double, count + 1), *more = ARENA_ARRAY(check->arena, double, count + 1);
    values_of(trial->subject, input, -1, dtype, count, values);
    if (step != 0) values_of(trial->subject, input, trial->direction, dtype, count, more);
    for (int64_t i = 0; i < count && step != 0; i++) values[i] += step * more[i];
    const char *name = arena_printf(check->arena, "x%d", check->graph->inputs.n);
    const int tensor = graph_add_tensor(check->graph, TENSOR_INPUT, name, dtype, ndim, dims);
    VEC_PUSH(check->arena, &check->graph->inputs, tensor);
    return write_values(check, name, dtype, ndim, dims, values, count) < 0 ? -1 : tensor;
}

static void add_output(struct check *check, int tensor) {
    VEC_PUSH(check->arena, &check->graph->output_names, arena_printf(check->arena, "y%d", check->graph->outputs.n));
    VEC_PUSH(check->arena, &check->graph->outputs, tensor);
}

static const char *trial_name(const struct check *check, const struct trial *trial) {
    return arena_printf(check->arena, "trial%d.", (int)(trial - check->trials.at));
}

/* Adds the node of the last trial with inputs of its own, and its results as outputs. */
static int add_trial(struct check *check, int *inputs, int *outputs) {
    struct trial *trial = &check->trials.at[check->trials.n - 1];
    const struct user_op *user = check->subjects.at[trial->subject].user;
    struct build builder = {check->graph, check->cli->diags, trial_name(check, trial)};
    int nattrs;
    for (int i = 0; i < user_inputs(user); i++)
        if ((inputs[i] = add_input(check, trial, i, i == trial->input ? trial->step : 0)) < 0) return -1;
    const struct attr *attrs = user_attrs(user, NULL, check->arena, &nattrs);
    trial->first_output = check->graph->outputs.n;
    trial->noutputs = user_outputs(user);
    if (build_op(&builder, &user->op, user_inputs(user), inputs, trial->noutputs, outputs, nattrs, attrs) < 0)
        return -1;
    for (int o = 0; o < trial->noutputs; o++) add_output(check, outputs[o]);
    return 0;
}

static void new_trial(struct check *check, struct trial trial) {
    VEC_PUSH(check->arena, &check->trials, trial);
}

/* Adds the subgraph of the operator's pattern with the operator's inputs. */
static int add_pattern(struct check *check, int s) {
    const struct subject *subject = &check->subjects.at[s];
    struct user_op user = *subject->user;
    int inputs[USER_INPUTS];
    user.pattern = subject->pattern;
    new_trial(check, (struct trial){.subject = s, .factor = -1, .input = -1, .pattern = true});
    struct trial *trial = &check->trials.at[check->trials.n - 1];
    struct build builder = {check->graph, check->cli->diags, trial_name(check, trial)};
    for (int i = 0; i < user_inputs(&user); i++)
        if ((inputs[i] = add_input(check, trial, i, 0)) < 0) return -1;
    const int y = user_pattern_build(&builder, &user, inputs);
    if (y < 0) return -1;
    trial->first_output = check->graph->outputs.n;
    trial->noutputs = 1;
    add_output(check, y);
    return 0;
}

/* Writes the rule that divides the last node along the factor, by a dimension of an input that is this factor. */
static bool put_rule(struct check *check, const struct dims *dims, int factor) {
    const struct trial *trial = &check->trials.at[check->trials.n - 1];
    for (int i = 0; i < dims->ninputs; i++)
        for (int d = 0; d < dims->operand[i].ndim; d++)
            if (dims->operand[i].dim[d].n == 1 && dims->operand[i].dim[d].factor[0] == factor) {
                strbuf_printf(&check->rules, "match \"%s\" split in%d.%d\n", trial_name(check, trial), i, d);
                return true;
            }
    return false;
}

static int add_splits(struct check *check, int s) {
    struct subject *subject = &check->subjects.at[s];
    int inputs[USER_INPUTS], outputs[USER_OUTPUTS];
    struct dims dims;
    const char *why;
    new_trial(check, (struct trial){.subject = s, .factor = -1, .input = -1});
    if (add_trial(check, inputs, outputs) < 0) return -1;
    const int node = check->graph->tensors.at[outputs[0]].producer;
    if (dims_bind(check->arena, check->graph, &check->graph->nodes.at[node], &dims, &why) < 0)
        BUG("%s: %s", subject->user->op.name, why);
    struct strbuf names = {.arena = check->arena};
    for (int f = 0; f < dims.nfactors; f++) {
        const struct node_split split = {.factor = (int16_t)f, .blocks = 1, .grain = 1};
        if (!dims_can_split(&dims, &split, check->ways) || !op_can_split(&subject->user->op, &dims, &split)) continue;
        new_trial(check, (struct trial){.subject = s, .factor = f, .input = -1});
        if (add_trial(check, inputs, outputs) < 0) return -1;
        if (put_rule(check, &dims, f)) strbuf_printf(&names, "%s%s", names.length ? " " : "", dims.factor[f].name);
    }
    subject->split = strbuf_text(&names);
    return 0;
}

/* Adds the gradients of a subject's inputs, for a random gradient of output 0, as outputs, and its results beside the
 * inputs in random directions. */
static int add_gradient(struct check *check, int s) {
    const struct user_op *user = check->subjects.at[s].user;
    int inputs[USER_INPUTS], outputs[USER_OUTPUTS], dx[USER_INPUTS];
    bool wanted[USER_INPUTS];
    new_trial(check, (struct trial){.subject = s, .factor = -1, .input = user_inputs(user)});
    if (add_trial(check, inputs, outputs) < 0) return -1;
    const struct tensor y = check->graph->tensors.at[outputs[0]];
    const char *name = arena_printf(check->arena, "x%d", check->graph->inputs.n);
    const int64_t count = tensor_elements(&y);
    double *values = ARENA_ARRAY(check->arena, double, count + 1);
    values_of(s, USER_INPUTS, -1, y.dtype, count, values);
    const int dy = graph_add_tensor(check->graph, TENSOR_INPUT, name, y.dtype, y.ndim, y.dims);
    VEC_PUSH(check->arena, &check->graph->inputs, dy);
    if (write_values(check, name, y.dtype, y.ndim, y.dims, values, count) < 0) return -1;
    for (int i = 0; i < user_inputs(user); i++) wanted[i] = rt_dtype_is_float(input_type(check, user, i));
    struct gradient gradient = {
        .builder = {check->graph, check->cli->diags, trial_name(check, &check->trials.at[check->trials.n - 1])},
        .node = check->graph->nodes.at[y.producer],
        .place = user->op.name,
        .wanted = wanted,
        .dy = dy,
        .dx = dx};
    if (gradient_make(&gradient) < 0) return -1;
    for (int i = 0; i < user_inputs(user); i++) {
        if (dx[i] < 0) continue;
        check->trials.at[check->trials.n - 1].direction |= 1 << i;
        add_output(check, dx[i]);
    }
    const int made = check->trials.at[check->trials.n - 1].direction;
    for (int i = 0; i < user_inputs(user); i++)
        for (int d = 0; d < DIRECTIONS && made >> i & 1; d++)
            for (int sign = -1; sign <= 1; sign += 2) {
                new_trial(check,
                          (struct trial){
                              .subject = s, .factor = -1, .input = i, .direction = d, .step = sign * step_of(check)});
                if (add_trial(check, inputs, outputs) < 0) return -1;
            }
    return 0;
}

static bool is_tried(const struct check *check, const struct user_op *user) {
    return op_takes(&user->op, check->type) && op_has_kernel(&user->op, check->type);
}

/* Gradients are tried once, in the first float type, among 2 ranks. */
static bool tries_gradient(const struct check *check, const struct subject *subject) {
    return subject->user->gradient && subject->gradient < 0 && check->ways == 2 &&
           (check->type == RT_F64 || check->type == RT_F32);
}

/* So is the pattern, in the first alternative of the annotation. */
static bool tries_pattern(const struct check *check, const struct subject *subject) {
    return subject->pattern && !subject->replaces && check->ways == 2 && subject->alternative == 0 &&
           (check->type == RT_F64 || check->type == RT_F32);
}

static int make_graph(struct check *check) {
    check->trials.n = check->inputs.n = 0;
    check->graph = ARENA_NEW(check->arena, struct graph);
    graph_init(check->graph, check->arena, "check");
    check->graph->operators.n = 0;
    strbuf_init(&check->rules, check->arena);
    strbuf_printf(&check->rules, "mesh tensor=%d\nmatch \"*\" replicate\n", check->ways);
    for (int i = 0; i < check->declared->operators.n; i++)
        VEC_PUSH(check->arena, &check->graph->operators, check->declared->operators.at[i]);
    for (int s = 0; s < check->subjects.n; s++) {
        if (!is_tried(check, check->subjects.at[s].user)) continue;
        if (add_splits(check, s) < 0) return -1;
        if (tries_pattern(check, &check->subjects.at[s]) && add_pattern(check, s) < 0) return -1;
        if (tries_gradient(check, &check->subjects.at[s]) && add_gradient(check, s) < 0) return -1;
    }
    return check->trials.n;
}

static int write_text(struct check *check, const char *name, const void *bytes, size_t count) {
    struct rt_reason why;
    const struct rt_piece piece = {bytes, count};
    return rt_file_write(arena_printf(check->arena, "%s/%s", check->work, name), &piece, 1, &why)
               ? 0
               : diag_refusal(check->cli->diags, 611, EXIT_SYSTEM, NULL, &why);
}

static int write_kernels(struct check *check) {
    if (mkdir(arena_printf(check->arena, "%s/operators", check->work), 0700) < 0)
        return diag_errno(check->cli->diags, 611, NULL, "create", check->work);
    for (int i = 0; i < check->declared->operators.n; i++) {
        const struct user_kernel *kernel = &check->declared->operators.at[i]->kernel[USER_C];
        if (kernel->text && write_text(check, kernel->file, kernel->text, kernel->bytes) < 0) return -1;
    }
    return 0;
}

static int run_program(struct check *check) {
    const char *text = text_print(check->arena, check->graph), *rules = strbuf_text(&check->rules);
    if (write_text(check, "check.rir", text, strlen(text)) < 0 || write_text(check, "rules", rules, strlen(rules)) < 0)
        return -1;
    struct options options;
    struct driver_result result;
    options_start(&options, VERB_COMPILE, arena_printf(check->arena, "%s/check.rir", check->work), check->arena,
                  check->cli->diags);
    options.output = check->work;
    options.quiet = true;
    options.reuse = OPT_REUSE_OVERRIDE;
    options.pas = (struct option_policy){OPT_POLICY_MANUAL, arena_printf(check->arena, "%s/rules", check->work)};
    if (options_finish(&options, check->arena, check->cli->diags) < 0 ||
        driver_compile(&options, check->arena, check->cli->diags, &result) < 0)
        return -1;
    VEC_PUSH(check->arena, &check->inputs, "--output-dir");
    VEC_PUSH(check->arena, &check->inputs, check->work);
    VEC_PUSH(check->arena, &check->inputs, NULL);
    const struct rt_launch launch = {.program = arena_printf(check->arena, "%s/check/_/build/run", check->work),
                                     .arguments = check->inputs.at,
                                     .ranks = check->ways,
                                     .no_results = true};
    return rt_launch(&launch) ? diag_error(check->cli->diags, 1105, EXIT_RANK, check->cli->options->check,
                                           "the program that tries the operators failed")
                              : 0;
}

static int read_output(struct check *check, int output, struct rt_tensor *tensor) {
    struct rt_reason why;
    *tensor = (struct rt_tensor){0};
    return rt_npy_read(tensor, arena_printf(check->arena, "%s/y%d.npy", check->work, output), &why)
               ? 0
               : diag_refusal(check->cli->diags, 601, EXIT_SYSTEM, NULL, &why);
}

static int wrong(struct check *check, const struct subject *subject, const char *format, const char *what) {
    const char *text = arena_printf(check->arena, format, what);
    return diag_error(check->cli->diags, 1105, EXIT_MISMATCH, check->cli->options->check, "%s in %s: %s",
                      subject->user->op.name, rt_dtypes[check->type].name, text);
}

/* Compares a result with the reference: |x - y| <= tolerance epsilon max|y|, exact for integers. */
static int compare(struct check *check, const struct subject *subject, const struct rt_tensor *x,
                   const struct rt_tensor *y, double tolerance, const char *what) {
    double largest = 0;
    if (x->count != y->count) return wrong(check, subject, "%s: the result has another shape", what);
    for (int64_t i = 0; i < y->count; i++)
        if (isfinite(rt_tensor_element(y, i))) largest = fmax(largest, fabs(rt_tensor_element(y, i)));
    const bool is_float = rt_dtype_is_float(x->dtype);
    const double bound = is_float ? tolerance * rt_dtypes[x->dtype].epsilon * fmax(largest, 1) : 0;
    for (int64_t i = 0; i < y->count; i++) {
        const double a = rt_tensor_element(x, i), b = rt_tensor_element(y, i);
        if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= bound) continue;
        return wrong(check, subject, "%s",
                     arena_printf(check->arena, "%s: element %lld is %.9g, not %.9g", what, (long long)i, a, b));
    }
    return 0;
}

static int check_whole(struct check *check, const struct trial *trial) {
    struct subject *subject = &check->subjects.at[trial->subject];
    EACH(subject->whole[check->slot], trial->noutputs, o, struct rt_tensor *const own) {
        rt_tensor_free(own);
        if (read_output(check, trial->first_output + o, own) < 0) return -1;
        for (int t = 0; t < check->slot; t++) {
            if (!subject->whole[t][o].data || rt_dtype_is_float(types[t]) != rt_dtype_is_float(check->type)) continue;
            if (compare(check, subject, own, &subject->whole[t][o], 256,
                        arena_printf(check->arena, "against the kernel for %s", rt_dtypes[types[t]].name)) < 0)
                return -1;
            break;
        }
    }
    return 0;
}

static int check_pattern(struct check *check, const struct trial *trial) {
    struct subject *subject = &check->subjects.at[trial->subject];
    struct rt_tensor result;
    if (read_output(check, trial->first_output, &result) < 0) return -1;
    const int status =
        compare(check, subject, &subject->whole[check->slot][0], &result, 256, "against the subgraph of its pattern");
    rt_tensor_free(&result);
    subject->replaces = status == 0;
    return status;
}

static int check_split(struct check *check, const struct trial *trial) {
    const struct subject *subject = &check->subjects.at[trial->subject];
    const char *names = subject->split;
    const struct trial *first = trial;
    while (first->factor >= 0) first--;
    for (const struct trial *t = first + 1; t < trial; t++) names += strcspn(names, " ") + 1;
    for (int o = 0; o < trial->noutputs; o++) {
        struct rt_tensor part;
        if (read_output(check, trial->first_output + o, &part) < 0) return -1;
        const char *what = arena_printf(check->arena, "dimension %.*s divided among %d rank(s), output %d",
                                        (int)strcspn(names, " "), names, check->ways, o);
        int status = compare(check, subject, &part, &subject->whole[check->slot][o], 64, what);
        rt_tensor_free(&part);
        if (status < 0) return -1;
    }
    return 0;
}

/* The sum of products of a tensor and the values of an input or direction. */
static double dot(const struct rt_tensor *t, int subject, int input, int direction) {
    double *values = calloc((size_t)t->count + 1, sizeof *values), sum = 0;
    if (!values) return NAN;
    values_of(subject, input, direction, RT_F64, t->count, values);
    for (int64_t i = 0; i < t->count; i++) sum += rt_tensor_element(t, i) * values[i];
    free(values);
    return sum;
}

/* Compares the gradient of input k with the finite differences that follow it from `trial` on. */
static int check_input(struct check *check, const struct trial *trial, int k, const struct rt_tensor *dx) {
    struct subject *subject = &check->subjects.at[trial->subject];
    double scale = 0;
    for (int64_t i = 0; i < dx->count; i++) scale += fabs(rt_tensor_element(dx, i));
    for (int d = 0; d < DIRECTIONS; d++) {
        struct rt_tensor less, more;
        if (read_output(check, trial[2 * d].first_output, &less) < 0 ||
            read_output(check, trial[2 * d + 1].first_output, &more) < 0)
            return -1;
        const double want =
                         (dot(&more, trial->subject, USER_INPUTS, -1) - dot(&less, trial->subject, USER_INPUTS, -1)) /
                         (2 * step_of(check)),
                     is = dot(dx, trial->subject, k, d);
        const double off = fabs(is - want) / fmax(scale, 1e-3);
        rt_tensor_free(&less);
        rt_tensor_free(&more);
        subject->gradient = fmax(subject->gradient, off);
        if (off <= (check->type == RT_F64 ? 1e-6 : 2e-2)) continue;
        return wrong(check, subject, "%s",
                     arena_printf(check->arena,
                                  "the gradient of input %d changes the result by %.6g, but the finite "
                                  "difference is %.6g",
                                  k, is, want));
    }
    return 0;
}

static int check_gradient(struct check *check, const struct trial *trial) {
    struct subject *subject = &check->subjects.at[trial->subject];
    int output = trial->first_output + trial->noutputs;
    const struct trial *differences = trial + 1;
    subject->gradient = 0;
    for (int k = 0; k < user_inputs(subject->user); k++) {
        struct rt_tensor dx;
        if (!(trial->direction >> k & 1)) continue;
        if (read_output(check, output++, &dx) < 0) return -1;
        int status = check_input(check, differences, k, &dx);
        rt_tensor_free(&dx);
        if (status < 0) return -1;
        differences += 2 * DIRECTIONS;
    }
    return 0;
}

static int compare_all(struct check *check) {
    VEC_EACH(&check->trials, i, const struct trial *trial) {
        int status = 0;
        if (trial->factor >= 0)
            status = check_split(check, trial);
        else if (trial->pattern)
            status = check_pattern(check, trial);
        else if (trial->input < 0)
            status = check_whole(check, trial);
        else if (trial->step == 0)
            status = check_gradient(check, trial);
        if (status < 0 && check->cli->diags->errors >= 20) return -1;
    }
    return check->cli->diags->errors ? -1 : 0;
}

static void find_subjects(struct check *check) {
    int64_t dims[RT_MAX_NDIM];
    VEC_EACH_VALUE(&check->declared->operators, i, struct user_op *const user) {
        const char *pattern = user->pattern;
        user->pattern = NULL; /* the subgraph must stay as it is */
        if (user->op.kind == OP_KERNEL && !user->kernel[USER_C].file) continue;
        for (int a = 0;
             a < MAX_ALTERNATIVES && (a == 0 || dims_sample(user->op.dims ? user->op.dims : "* -> *", a, 0, dims) >= 0);
             a++)
            VEC_PUSH(
                check->arena, &check->subjects,
                ((struct subject){.user = user, .alternative = a, .split = "", .gradient = -1, .pattern = pattern}));
    }
}

static void report(const struct check *check, const struct subject *subject) {
    struct strbuf text = {.arena = check->arena};
    for (int t = 0; t < TYPES; t++)
        if (subject->whole[t][0].data) strbuf_printf(&text, " %s", rt_dtypes[types[t]].name);
    printf("%s%s%s: types%s; splits %s", subject->user->op.name, subject->alternative ? ", alternative " : "",
           subject->alternative ? arena_printf(check->arena, "%d", subject->alternative) : "", strbuf_text(&text),
           *subject->split ? subject->split : "none");
    if (subject->gradient == 0)
        printf("; gradient equal to finite differences");
    else if (subject->gradient > 0)
        printf("; gradient within %.1g of finite differences", subject->gradient);
    else if (subject->user->gradient)
        printf("; the gradient was not tried: it needs f32 or f64");
    if (subject->replaces) printf("; computes what its pattern does");
    printf("\n");
}

static int check_types(struct check *check) {
    for (check->slot = 0; check->slot < TYPES; check->slot++)
        for (check->ways = 2; check->ways <= MOST_WAYS; check->ways++) {
            check->type = types[check->slot];
            int trials = make_graph(check);
            if (trials < 0 || (trials > 0 && (run_program(check) < 0 || compare_all(check) < 0))) return -1;
        }
    return 0;
}

int ops_check(const char *path, struct cli *cli) {
    struct check check = {.cli = cli, .arena = cli->arena};
    char hash[RT_HASH_HEX];
    if (user_ops_read(cli->arena, cli->diags, path, &check.declared, hash) < 0) return -1;
    if (!(check.work = temporary_make("ops", cli->arena, cli->diags))) return -1;
    find_subjects(&check);
    int status = write_kernels(&check) < 0 || check_types(&check) < 0 ? -1 : 0;
    temporary_remove(check.work);
    for (int s = 0; s < check.subjects.n && !status; s++) report(&check, &check.subjects.at[s]);
    for (int s = 0; s < check.subjects.n; s++)
        for (int t = 0; t < TYPES; t++)
            for (int o = 0; o < USER_OUTPUTS; o++) rt_tensor_free(&check.subjects.at[s].whole[t][o]);
    return status;
}
