/* rankc ckpt to-peft: the adapters of a checkpoint as peft saves them: adapter_model.safetensors, and
 * adapter_config.json with the names of the modules, and of the parameters that are stacks of experts. peft wraps the
 * module of such a parameter, and its wrapper again for the next one, in the order of the module's parameters: the name
 * of a matrix has one base_layer for each wrapper around its own. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/cli/ckpt/checkpoint.h"
#include "frontend/driver/files/adapter_files.h"
#include "ir/base/own.h"
#include "passes/train/lora.h"
#include "runtime/base/io/file.h"

struct to_peft {
    struct cli *cli;
    struct checkpoint *from;
    struct checkpoint_adapters adapters;
    bool rslora;                   /* of all adapters; otherwise alpha is made of the scale */
    const struct lora_rule *first; /* whose r and alpha stand for all that have no own: of a stack if there is one */
    bool stacks;
};

/* What peft multiplies by r, or its root, to get the scale. */
static double alpha_of(const struct to_peft *p, const struct lora_rule *rule) {
    return p->rslora == rule->rslora ? rule->alpha : lora_scale(rule) * rule->r;
}

static void put_number(struct rt_json_writer *w, const char *key, double value) {
    if (value == floor(value) && fabs(value) < 1e15)
        rt_json_key_int(w, key, (int64_t)value);
    else
        rt_json_key_real(w, key, value);
}

static double value_of(const struct to_peft *p, const struct lora_rule *rule, bool alpha) {
    return alpha ? alpha_of(p, rule) : rule->r;
}

/* True if the module's value differs from the first's, or that of a module with whose name its name ends. */
static bool has_own(const struct to_peft *p, const struct checkpoint_adapter *adapter, bool alpha) {
    for (int i = 0; i < p->adapters.all.n; i++) {
        const struct checkpoint_adapter *other = &p->adapters.all.at[i];
        if (value_of(p, other->rule, alpha) != value_of(p, p->first, alpha) &&
            (other == adapter || rt_has_suffix(adapter->module, arena_printf(p->cli->arena, ".%s", other->module))))
            return true;
    }
    return false;
}

/* The values of modules that differ from those of the first. peft takes the first that names a module or the end of its
 * name: longer names come first. */
static void put_pattern(struct rt_json_writer *w, const struct to_peft *p, const char *key, bool alpha) {
    size_t longest = 0;
    for (int i = 0; i < p->adapters.all.n; i++)
        if (strlen(p->adapters.all.at[i].module) > longest) longest = strlen(p->adapters.all.at[i].module);
    rt_json_key_open(w, key, '{', RT_JSON_LINES);
    for (size_t length = longest; length > 0; length--)
        for (int i = 0; i < p->adapters.all.n; i++) {
            const struct checkpoint_adapter *adapter = &p->adapters.all.at[i];
            if (strlen(adapter->module) == length && has_own(p, adapter, alpha))
                put_number(w, adapter->module, value_of(p, adapter->rule, alpha));
        }
    rt_json_close(w, '}');
}

static void put_targets(struct rt_json_writer *w, const struct to_peft *p, const char *key, bool stacks) {
    rt_json_key_open(w, key, '[', RT_JSON_LINES);
    for (int i = 0; i < p->adapters.all.n; i++)
        if ((p->adapters.all.at[i].kind == LORA_STACK) == stacks) rt_json_put_text(w, p->adapters.all.at[i].module);
    rt_json_close(w, ']');
}

static const char *config_text(const struct to_peft *p) {
    struct rt_json_writer *w = own_json_writer(p->cli->arena);
    const struct lora_rule *first = p->first;
    rt_json_open(w, '{', RT_JSON_LINES);
    rt_json_key_text(w, "peft_type", "LORA");
    rt_json_key_text(w, "base_model_name_or_path", NULL);
    rt_json_key_text(w, "task_type", NULL);
    rt_json_key_int(w, "r", (int64_t)first->r);
    put_number(w, "lora_alpha", alpha_of(p, first));
    rt_json_key_real(w, "lora_dropout", p->stacks ? 0 : first->dropout); /* peft has none for stacks */
    rt_json_key_bool(w, "use_rslora", p->rslora);
    rt_json_key_text(w, "bias", "none");
    rt_json_key_bool(w, "inference_mode", true);
    put_pattern(w, p, "rank_pattern", false);
    put_pattern(w, p, "alpha_pattern", true);
    put_targets(w, p, "target_modules", false);
    if (p->stacks) put_targets(w, p, "target_parameters", true);
    rt_json_close(w, '}');
    return own_json_end(p->cli->arena, w);
}

static size_t length_of_parent(const struct checkpoint_adapter *adapter) {
    const char *dot = strrchr(adapter->module, '.');
    return adapter->kind == LORA_STACK && dot ? (size_t)(dot - adapter->module) : strlen(adapter->module);
}

/* The module of adapter i in the file. */
static const char *wrapped_module(const struct to_peft *p, int i) {
    const struct checkpoint_adapter *all = p->adapters.all.at;
    const size_t length = length_of_parent(&all[i]);
    const char *name = arena_copy(p->cli->arena, all[i].module, length);
    for (int other = 0; other < p->adapters.all.n && all[i].kind == LORA_STACK; other++)
        if (all[other].kind == LORA_STACK && all[other].stack > all[i].stack &&
            length_of_parent(&all[other]) == length && strncmp(all[other].module, all[i].module, length) == 0)
            name = arena_printf(p->cli->arena, "%s" ADAPTER_WRAPPED, name);
    return name;
}

static struct checkpoint_named named(const struct to_peft *p, int i, char matrix) {
    const struct checkpoint_adapter *adapter = &p->adapters.all.at[i];
    const struct lora_matrix of = {.kind = adapter->kind == LORA_STACK ? LORA_LINEAR : adapter->kind,
                                   .module = wrapped_module(p, i)};
    const char *name = lora_name_of_matrix(p->cli->arena, &of, matrix);
    return (struct checkpoint_named){arena_printf(p->cli->arena, ADAPTER_PREFIX "%s", name),
                                     matrix == 'A' ? adapter->a : adapter->b, true};
}

static int write_files(struct to_peft *p, const char *out) {
    struct cli *cli = p->cli;
    struct rt_reason why;
    const char *config = config_text(p);
    if (!config) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    struct checkpoint_named *tensors = ARENA_ARRAY(cli->arena, struct checkpoint_named, 2 * p->adapters.all.n);
    int n = 0;
    for (int i = 0; i < p->adapters.all.n; i++) {
        tensors[n++] = named(p, i, 'A');
        tensors[n++] = named(p, i, 'B');
    }
    if (!rt_make_directories(out)) return diag_errno(cli->diags, 611, NULL, "create", out);
    if (checkpoint_write_tensors(cli, p->from, arena_printf(cli->arena, "%s/" ADAPTER_WEIGHTS, out), tensors, n) < 0)
        return -1;
    const struct rt_piece piece = {config, strlen(config)};
    if (rt_file_write(arena_printf(cli->arena, "%s/" ADAPTER_CONFIG, out), &piece, 1, &why)) return 0;
    return diag_refusal(cli->diags, 611, EXIT_SYSTEM, NULL, &why);
}

int checkpoint_to_peft(struct cli *cli, struct checkpoint *from) {
    const char *out = cli->options->operands[1];
    struct to_peft p = {.cli = cli, .from = from, .rslora = true};
    struct checkpoint_adapters *adapters = &p.adapters;
    if (checkpoint_adapters_read(adapters, from, cli) < 0) return -1;
    if (!adapters->all.n)
        return diag_error(cli->diags, 805, EXIT_MISMATCH, from->path, "the checkpoint has no adapters");
    VEC_EACH(&adapters->all, i, const struct checkpoint_adapter *adapter) {
        p.rslora = p.rslora && adapter->rule->rslora;
        if (!p.first || (adapter->kind == LORA_STACK && !p.stacks)) p.first = adapter->rule;
        p.stacks = p.stacks || adapter->kind == LORA_STACK;
    }
    if (adapters->others)
        diag_remark(cli->diags, from->path, "%d parameters that are no adapters are left out: %s%s", adapters->others,
                    diag_quote(cli->diags, adapters->first_other), adapters->others > 1 ? ", .." : "");
    if (write_files(&p, out) < 0) return -1;
    return cli_confirm(cli, "%s: %d adapter(s)\n", out, adapters->all.n);
}
