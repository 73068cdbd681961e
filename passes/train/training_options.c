/* Parses the training options of the command line: optimizer, learning-rate schedule, rules for parameters. */
#include <fnmatch.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/expr/expr.h"
#include "passes/train/roles.h"
#include "passes/train/training.h"
#include "runtime/base/number/hash.h"

const struct optimizer optimizers[] = {
#define OPTIMIZER(name, ...) {#name, __VA_ARGS__},
#include "passes/train/optimizers.def"
#undef OPTIMIZER
};
const int noptimizers = sizeof optimizers / sizeof *optimizers;

/* The text after the colon of "name:k=v,..", NULL if there is none. */
static const char *list_of(const char *text) {
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : NULL;
}

static bool is_called(const char *text, const char *name) {
    size_t length = strcspn(text, ":");
    return strlen(name) == length && strncmp(text, name, length) == 0;
}

static const char *names_of_all(struct arena *arena) {
    const char *all = "";
    for (int i = 0; i < noptimizers; i++)
        if (!*optimizers[i].when) all = arena_printf(arena, "%s %s", all, optimizers[i].name);
    return all;
}

static struct number look_up_option(const void *options, const char *name) {
    return (struct number){true, named_options_value(options, name, 0), 0};
}

static double evaluate(const char *text, expr_lookup look_up, const void *env, struct arena *arena) {
    struct number value = expr_eval(expr_parse(arena, text), look_up, env);
    return value.is_float ? value.f : (double)value.i;
}

/* The names in columns `when` and `needs` of optimizers.def. */
struct optimizer_scope {
    const struct named_options *options;
    int ndim;
};

static struct number look_up_optimizer(const void *env, const char *name) {
    const struct optimizer_scope *scope = env;
    if (strcmp(name, "ndim") == 0) return (struct number){true, scope->ndim, 0};
    return look_up_option(scope->options, name);
}

/* True if the options fulfil the condition for parameters of so many dimensions; "" is none. */
static bool holds(const char *condition, const struct named_options *options, int ndim, struct arena *arena) {
    const struct optimizer_scope scope = {options, ndim};
    return !*condition || evaluate(condition, look_up_optimizer, &scope, arena) != 0;
}

static void set_option(struct named_options *options, const char *name, double value) {
    for (int i = 0; i < options->n; i++)
        if (strcmp(options->at[i].name, name) == 0) options->at[i].value = value;
}

/* Sets the optimizer of that name, up to a colon, with its defaults. 0, or -1 after a diagnostic (E0202). */
static int start_choice(struct optimizer_choice *choice, const char *option, const char *name, struct arena *arena,
                        struct diags *diags) {
    choice->row = NULL;
    for (int i = 0; i < noptimizers && !choice->row; i++)
        if (is_called(name, optimizers[i].name)) choice->row = &optimizers[i];
    if (!choice->row)
        return diag_error(diags, 202, EXIT_USAGE, option, "unknown optimizer %s; the optimizers are%s",
                          diag_quote(diags, arena_copy(arena, name, strcspn(name, ":"))), names_of_all(arena));
    named_options_start(&choice->options, option, choice->row->name, choice->row->options, arena);
    return 0;
}

/* Selects the last row of the optimizer's name whose column `when` applies. */
static void choose_row(struct optimizer_choice *choice, int ndim, struct arena *arena) {
    const char *name = choice->row->name;
    for (int i = 0; i < noptimizers; i++)
        if (strcmp(optimizers[i].name, name) == 0 && holds(optimizers[i].when, &choice->options, ndim, arena))
            choice->row = &optimizers[i];
}

/* The optimizer of parameters that are no matrices, with the same learning rate and weight decay; with all options if
 * it is a row of the same name. */
static void settle_rest(struct optimizer_choice *choice, struct arena *arena) {
    static const char *const same[] = {"lr", "weight_decay"};
    struct optimizer_choice *rest = ARENA_NEW(arena, struct optimizer_choice);
    choice->rest = NULL;
    if (!choice->row->rest || start_choice(rest, choice->options.option, choice->row->rest, arena, NULL) < 0) return;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        set_option(&rest->options, same[i], named_options_value(&choice->options, same[i], 0));
    if (strcmp(rest->row->name, choice->row->name) == 0) rest->options = choice->options;
    choose_row(rest, 1, arena);
    choice->rest = rest;
}

/* Selects the rows for the options. */
static void settle_row(struct optimizer_choice *choice, struct arena *arena) {
    choose_row(choice, 2, arena);
    settle_rest(choice, arena);
}

int optimizer_parse(struct optimizer_choice *choice, const char *text, struct arena *arena, struct diags *diags) {
    *choice = (struct optimizer_choice){.text = text};
    if (start_choice(choice, "--optimizer", text, arena, diags) < 0) return -1;
    if (named_options_set_all(&choice->options, list_of(text), 0, diags) < 0) return -1;
    return settle_row(choice, arena), 0;
}

static int check_options(const struct optimizer_choice *choice, struct arena *arena, struct diags *diags) {
    const struct optimizer *row = choice->row;
    if (holds(row->needs, &choice->options, 2, arena)) return 0;
    const bool by_option = *row->when && !row->rest;
    return diag_error(diags, 205, EXIT_USAGE, choice->options.option, "%s%s%s needs %s", row->name,
                      by_option ? " with " : "", by_option ? row->when : "", row->needs);
}

int optimizers_check(const struct training *training, struct arena *arena, struct diags *diags) {
    int status = check_options(&training->optimizer, arena, diags);
    for (int i = 0; i < training->rules.n && !status; i++)
        status = check_options(&training->rules.at[i].optimizer, arena, diags);
    return status;
}

static bool has_codes(const struct optimizer_choice *choice) {
    const char *states = choice->row->states;
    return strstr(states, "/s") || strstr(states, "/u") || (choice->rest && has_codes(choice->rest));
}

const char *const offload_names[] = {"none", "optimizer", "weights"};

enum offload offload_by_name(const char *name) {
    int offload = OFFLOAD_WEIGHTS;
    while (name && offload > OFFLOAD_NOTHING && strcmp(offload_names[offload], name) != 0) offload--;
    return name ? (enum offload)offload : OFFLOAD_NOTHING;
}

int moments_check(const struct training *training, struct diags *diags) {
    bool any = !training->moments_int8 || has_codes(&training->optimizer);
    for (int i = 0; i < training->rules.n; i++) any = any || has_codes(&training->rules.at[i].optimizer);
    return any ? 0
               : diag_error(diags, 205, EXIT_USAGE, "--moments-dtype", "%s has no states that can be in 8 bits",
                            training->optimizer.row->name);
}

int lr_schedule_parse(struct rt_lr_schedule *schedule, const char *text, struct diags *diags) {
    struct rt_reason why;
    if (rt_lr_schedule_parse(schedule, text, &why)) return 0;
    return diag_error(diags, 205, EXIT_USAGE, "--lr-schedule", "%s", why.text);
}

/* Gives the rule another optimizer than the others', with its defaults and their learning rate. */
static int start_with(struct parameter_rule *rule, const char *name, const struct training *training,
                      struct arena *arena, struct diags *diags) {
    const double lr = named_options_value(&training->optimizer.options, "lr", 0);
    if (start_choice(&rule->optimizer, "--param", name, arena, diags) < 0) return -1;
    set_option(&rule->optimizer.options, "lr", lr);
    return 0;
}

/* What --param says of parameters beside options of their optimizer. */
static const struct word {
    const char *word;
    size_t field; /* of struct parameter_rule, a bool */
} words_of_rules[] = {{"frozen", offsetof(struct parameter_rule, frozen)},
                      {"train", offsetof(struct parameter_rule, train)},
                      {"whole", offsetof(struct parameter_rule, whole)},
                      {"moments_dtype=f32", offsetof(struct parameter_rule, moments_f32)}};
enum { WORDS_OF_RULES = sizeof words_of_rules / sizeof *words_of_rules };

static bool reads_word(struct parameter_rule *rule, const char *text) {
    for (int i = 0; i < WORDS_OF_RULES; i++)
        if (strcmp(text, words_of_rules[i].word) == 0) return *(bool *)((char *)rule + words_of_rules[i].field) = true;
    return false;
}

/* "padding_idx=N" */
static bool reads_padding(struct parameter_rule *rule, const char *text) {
    static const char key[] = "padding_idx=";
    char *end = NULL;
    if (strncmp(text, key, sizeof key - 1) != 0) return false;
    rule->padding = strtoll(text + sizeof key - 1, &end, 10);
    return rule->pads = end > text + sizeof key - 1 && !*end;
}

/* E0205 for a key that has one value only, or another spelling of what --param takes; false: it is neither. */
static bool refuses_word(const char *text, struct diags *diags) {
    static const char *const keys[][2] = {{"moments_dtype=", "f32"}, {"padding_idx=", "the number of a row"}};
    const char *names[WORDS_OF_RULES + 1] = {NULL};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const size_t length = strlen(keys[i][0]);
        if (strncmp(text, keys[i][0], length) != 0) continue;
        diag_error(diags, 205, EXIT_USAGE, "--param", "%.*s must be %s, not %s", (int)length - 1, keys[i][0],
                   keys[i][1], diag_quote(diags, text + length));
        return true;
    }
    for (int i = 0; i < WORDS_OF_RULES; i++) names[i] = words_of_rules[i].word;
    const char *near = strchr(text, '=') ? NULL : str_nearest(text, names);
    if (near)
        diag_error(diags, 205, EXIT_USAGE, "--param", "%s is unknown; did you mean '%s'?", diag_quote(diags, text),
                   near);
    return near != NULL;
}

/* One of the options behind the colon; the first may choose the optimizer. */
static int read_rule(struct parameter_rule *rule, const char *text, bool first, const struct training *training,
                     struct arena *arena, struct diags *diags) {
    static const char optimizer[] = "optimizer=";
    rule->own_lr = rule->own_lr || strncmp(text, "lr=", 3) == 0;
    if (first && strncmp(text, optimizer, sizeof optimizer - 1) == 0 && text[sizeof optimizer - 1])
        return start_with(rule, text + sizeof optimizer - 1, training, arena, diags);
    if (reads_word(rule, text) || reads_padding(rule, text)) return 0;
    return refuses_word(text, diags) ? -1 : named_options_set(&rule->optimizer.options, text, strlen(text), 0, diags);
}

int parameter_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags) {
    const char *colon = strrchr(text, ':'); /* the last colon: names may contain colons, options do not */
    struct parameter_rule rule = {.text = text, .optimizer = training->optimizer};
    if (!colon || colon == text)
        return diag_error(diags, 205, EXIT_USAGE, "--param",
                          "%s must have the form GLOB:frozen, GLOB:train, GLOB:whole, GLOB:padding_idx=N, "
                          "GLOB:moments_dtype=f32, GLOB:lr=..,.. or GLOB:optimizer=NAME,..",
                          diag_quote(diags, text));
    rule.pattern = arena_copy(arena, text, (size_t)(colon - text));
    rule.optimizer.options.option = "--param";
    for (const char *at = colon + 1; at;) {
        const size_t length = strcspn(at, ",");
        if (read_rule(&rule, arena_copy(arena, at, length), at == colon + 1, training, arena, diags) < 0) return -1;
        at = at[length] ? at + length + 1 : NULL;
    }
    if (rule.frozen && rule.train)
        return diag_error(diags, 205, EXIT_USAGE, "--param", "%s: frozen and train exclude each other",
                          diag_quote(diags, text));
    settle_row(&rule.optimizer, arena);
    VEC_PUSH(arena, &training->rules, rule);
    return 0;
}

/* True if the glob matches the weight's name, or that of the parameter from which the exporter transposed or reshaped
 * it. */
static bool weight_is_called(const struct tensor *weight, const char *pattern) {
    return fnmatch(pattern, weight->name, 0) == 0 ||
           (weight->mark == MARK_MOVED && fnmatch(pattern, weight->sources, 0) == 0);
}

const struct parameter_rule *parameter_rule_of(const struct training *training, const struct tensor *weight) {
    for (int i = training ? training->rules.n - 1 : -1; i >= 0; i--)
        if (weight_is_called(weight, training->rules.at[i].pattern)) return &training->rules.at[i];
    return NULL;
}

const struct optimizer_choice *optimizer_choice_of(const struct training *training, const struct tensor *weight) {
    const struct parameter_rule *rule = parameter_rule_of(training, weight);
    const struct optimizer_choice *choice = rule ? &rule->optimizer : &training->optimizer;
    const bool fits = weight->ndim == 2 || (weight->ndim > 2 && choice->row->stacks);
    return choice->rest && !fits ? choice->rest : choice;
}

/* Whether the pattern matches a weight that is not a constant. */
static bool matches_weight(const char *pattern, const struct graph *graph) {
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++) {
            const struct tensor *tensor = node->inputs[k] < 0 ? NULL : &graph->tensors.at[node->inputs[k]];
            if (tensor && tensor->kind == TENSOR_WEIGHT && !tensor->constant && rt_dtype_is_float(tensor->dtype) &&
                weight_is_called(tensor, pattern))
                return true;
        }
    }
    return false;
}

/* The same, where `constants` also for constants: a frozen weight may be a constant by role, or a CONST if it has one
 * element. */
static bool matches_any(const char *pattern, bool constants, const struct graph *graph) {
    if (matches_weight(pattern, graph)) return true;
    for (int t = 0; t < graph->tensors.n && constants; t++) {
        const struct tensor *tensor = &graph->tensors.at[t];
        const bool stored = tensor->kind == TENSOR_CONST || (tensor->kind == TENSOR_WEIGHT && tensor->constant);
        if (stored && rt_dtype_is_float(tensor->dtype) && fnmatch(pattern, tensor->name, 0) == 0) return true;
    }
    return false;
}

static int check_pattern(const char *option, const char *pattern, bool constants, const struct graph *graph,
                         const struct weight_roles *roles, struct diags *diags) {
    if (matches_any(pattern, constants, graph)) return 0;
    diag_error(diags, 414, EXIT_USAGE, option, "no parameter's name matches %s", diag_quote(diags, pattern));
    for (int i = 0; roles && i < roles->all.n; i++) {
        const struct weight_role *decision = &roles->all.at[i];
        if (decision->role != ROLE_CONSTANT || fnmatch(pattern, decision->name, 0) != 0) continue;
        diag_note(diags, "%s is not a parameter: %s", diag_quote(diags, decision->name), decision->rule->reason);
        diag_help(diags, "--param 'NAME:train' makes it one");
        break;
    }
    return -1;
}

int parameter_rules_check(const struct training *training, const struct graph *graph, const struct weight_roles *roles,
                          struct diags *diags) {
    int status = 0;
    for (int i = 0; training && i < training->rules.n; i++) {
        const struct parameter_rule *rule = &training->rules.at[i];
        if (check_pattern("--param", rule->pattern, rule->frozen, graph, roles, diags) < 0) status = -1;
    }
    for (int i = 0; training && i < training->inits.n; i++)
        if (check_pattern("--init", training->inits.at[i].pattern, false, graph, roles, diags) < 0) status = -1;
    return status;
}

static const struct init inits[] = {
#define INIT(name, kind, ...) {#name, "RT_INIT_" #kind, __VA_ARGS__},
#include "passes/train/inits.def"
#undef INIT
};
enum { NINITS = sizeof inits / sizeof *inits };

static const char *inits_text(struct arena *arena) {
    const char *all = "";
    for (int i = 0; i < NINITS; i++) all = arena_printf(arena, "%s %s", all, inits[i].name);
    return all;
}

/* Options may be negative, except a standard deviation; a range must not be empty. */
static int check_init_options(const struct init_rule *rule, struct diags *diags) {
    const struct named_options *n = &rule->options;
    const double seed = named_options_value(n, "seed", 0);
    if (named_options_value(n, "std", 0) >= 0 &&
        named_options_value(n, "low", 0) <= named_options_value(n, "high", 0) && seed >= 0 && seed == floor(seed) &&
        seed < 0x1p53)
        return 0;
    return diag_error(diags, 205, EXIT_USAGE, "--init",
                      "%s: std must be at least 0, seed a whole number of at least 0, and low at most high",
                      diag_quote(diags, rule->text));
}

int init_rule_parse(struct init_rule *rule, const char *text, struct arena *arena, struct diags *diags) {
    const char *equals = strchr(text, '=');
    *rule = (struct init_rule){.text = text};
    if (!equals || equals == text)
        return diag_error(diags, 205, EXIT_USAGE, "--init",
                          "initial values must have the form GLOB=NAME:key=number,.., not %s", diag_quote(diags, text));
    rule->pattern = arena_copy(arena, text, (size_t)(equals - text));
    for (int i = 0; i < NINITS; i++)
        if (is_called(equals + 1, inits[i].name)) rule->row = &inits[i];
    if (!rule->row)
        return diag_error(diags, 202, EXIT_USAGE, "--init", "unknown initialization %s; the initializations are%s",
                          diag_quote(diags, arena_copy(arena, equals + 1, strcspn(equals + 1, ":"))),
                          inits_text(arena));
    named_options_start(&rule->options, "--init", rule->row->name, rule->row->options, arena);
    if (named_options_set_all(&rule->options, list_of(equals), -1e300, diags) < 0 ||
        check_init_options(rule, diags) < 0)
        return -1;
    return 0;
}

int init_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags) {
    struct init_rule rule;
    if (init_rule_parse(&rule, text, arena, diags) < 0) return -1;
    VEC_PUSH(arena, &training->inits, rule);
    return 0;
}

const struct init_rule *init_rule_of(const struct training *training, const char *name) {
    for (int i = training ? training->inits.n - 1 : -1; i >= 0; i--)
        if (fnmatch(training->inits.at[i].pattern, name, 0) == 0) return &training->inits.at[i];
    return NULL;
}

/* The names in columns a and b of inits.def. */
struct init_scope {
    const struct named_options *options;
    double fan_in, fan_out;
};

static struct number look_up_init(const void *env, const char *name) {
    const struct init_scope *scope = env;
    if (strcmp(name, "fan_in") == 0) return (struct number){true, scope->fan_in, 0};
    if (strcmp(name, "fan_out") == 0) return (struct number){true, scope->fan_out, 0};
    return look_up_option(scope->options, name);
}

/* torch.nn.init._calculate_fan_in_and_fan_out; of a vector, its length. */
static struct init_scope scope_of(const struct init_rule *rule, const struct tensor *tensor) {
    double kernel = 1, first = tensor->ndim ? (double)tensor->dims[0] : 1;
    for (int d = 2; d < tensor->ndim; d++) kernel *= (double)tensor->dims[d];
    double second = tensor->ndim > 1 ? (double)tensor->dims[1] : first;
    return (struct init_scope){&rule->options, second * kernel, first * kernel};
}

struct init_values init_values_of(const struct init_rule *rule, const struct tensor *tensor, struct arena *arena) {
    const struct init_scope scope = scope_of(rule, tensor);
    struct init_values values = {evaluate(rule->row->a, look_up_init, &scope, arena),
                                 evaluate(rule->row->b, look_up_init, &scope, arena), 0};
    struct rt_hash hash;
    char hex[RT_HASH_HEX];
    rt_hash_start(&hash);
    rt_hash_text(&hash, tensor->name);
    rt_hash_int(&hash, (int64_t)named_options_value(&rule->options, "seed", 0));
    rt_hash_hex(&hash, hex);
    hex[16] = 0;
    values.key = strtoull(hex, NULL, 16);
    return values;
}
