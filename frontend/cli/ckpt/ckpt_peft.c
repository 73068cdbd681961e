/* rankc ckpt to-peft: the adapters of a checkpoint as peft saves them: adapter_model.safetensors, and
 * adapter_config.json with the names of the modules. The rules by which they were trained are among what
 * checkpoint.json says the program was made of. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/cli/ckpt/checkpoint.h"
#include "frontend/driver/files/adapter_files.h"
#include "ir/base/own.h"
#include "passes/train/lora.h"
#include "runtime/base/io/file.h"

struct exported {
    const char *module;
    const struct lora_rule *rule;
};

struct to_peft {
    struct cli *cli;
    struct checkpoint *from;
    struct training training; /* its rules */
    VEC(struct exported) all; /* by A */
    VEC(struct checkpoint_named) tensors;
    int others; /* parameters that are no adapters */
    const char *first_other;
    bool rslora; /* of all adapters; otherwise alpha is made of the scale */
};

/* The rules in a part of checkpoint.json's "made_of", a line for each. */
static int read_rules(struct to_peft *p, const char *part) {
    struct cli *cli = p->cli;
    const char *text = rt_json_text(rt_json_member(rt_json_member(rt_saved_root(p->from->saved), "made_of"), part));
    for (const char *at = text ? text : ""; *at; at += strspn(at, "\n")) {
        const size_t length = strcspn(at, "\n");
        if (lora_rule_add(&p->training, arena_copy(cli->arena, at, length), cli->arena, cli->diags) < 0) return -1;
        at += length;
    }
    return 0;
}

static int mismatch(const struct to_peft *p, const char *text, const char *name) {
    return diag_error(p->cli->diags, 805, EXIT_MISMATCH, p->from->path, "%s %s", text, diag_quote(p->cli->diags, name));
}

static int add_parameter(struct to_peft *p, const struct rt_saved_tensor *tensor) {
    struct arena *arena = p->cli->arena;
    const char *module;
    const char matrix = tensor->copy_of ? 0 : lora_matrix_of_name(arena, tensor->name, &module);
    if (!matrix) {
        if (!tensor->copy_of && !p->others++) p->first_other = tensor->name;
        return 0;
    }
    const struct lora_rule *rule = lora_rule_of(&p->training, module);
    if (!rule) return mismatch(p, "the checkpoint has no rule of --lora for", module);
    if (matrix == 'A') VEC_PUSH(arena, &p->all, ((struct exported){module, rule}));
    if (p->all.n == 1 && matrix == 'A') p->rslora = rule->rslora;
    p->rslora = p->rslora && rule->rslora;
    VEC_PUSH(arena, &p->tensors,
             ((struct checkpoint_named){arena_printf(arena, ADAPTER_PREFIX "%s", tensor->name), tensor}));
    return 0;
}

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

/* The values of modules that differ from those of the first. */
static void put_pattern(struct rt_json_writer *w, const struct to_peft *p, const char *key, bool alpha) {
    const struct lora_rule *first = p->all.at[0].rule;
    rt_json_key_open(w, key, '{', RT_JSON_LINES);
    for (int i = 0; i < p->all.n; i++) {
        const struct lora_rule *rule = p->all.at[i].rule;
        const double value = alpha ? alpha_of(p, rule) : rule->r;
        if (value != (alpha ? alpha_of(p, first) : first->r)) put_number(w, p->all.at[i].module, value);
    }
    rt_json_close(w, '}');
}

static const char *config_text(const struct to_peft *p) {
    struct rt_json_writer *w = own_json_writer(p->cli->arena);
    const struct lora_rule *first = p->all.at[0].rule;
    rt_json_open(w, '{', RT_JSON_LINES);
    rt_json_key_text(w, "peft_type", "LORA");
    rt_json_key_text(w, "base_model_name_or_path", NULL);
    rt_json_key_text(w, "task_type", NULL);
    rt_json_key_int(w, "r", (int64_t)first->r);
    put_number(w, "lora_alpha", alpha_of(p, first));
    rt_json_key_real(w, "lora_dropout", first->dropout);
    rt_json_key_bool(w, "use_rslora", p->rslora);
    rt_json_key_text(w, "bias", "none");
    rt_json_key_bool(w, "inference_mode", true);
    put_pattern(w, p, "rank_pattern", false);
    put_pattern(w, p, "alpha_pattern", true);
    rt_json_key_open(w, "target_modules", '[', RT_JSON_LINES);
    for (int i = 0; i < p->all.n; i++) rt_json_put_text(w, p->all.at[i].module);
    rt_json_close(w, ']');
    rt_json_close(w, '}');
    return own_json_end(p->cli->arena, w);
}

static int write_files(struct to_peft *p, const char *out) {
    struct cli *cli = p->cli;
    struct rt_reason why;
    const char *config = config_text(p);
    if (!config) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    if (mkdir(out, 0777) < 0 && errno != EEXIST) return diag_errno(cli->diags, 611, NULL, "create", out);
    if (checkpoint_write_tensors(cli, p->from, arena_printf(cli->arena, "%s/" ADAPTER_WEIGHTS, out), p->tensors.at,
                                 p->tensors.n) < 0)
        return -1;
    const struct rt_piece piece = {config, strlen(config)};
    if (rt_file_write(arena_printf(cli->arena, "%s/" ADAPTER_CONFIG, out), &piece, 1, &why)) return 0;
    return diag_refusal(cli->diags, 611, EXIT_SYSTEM, NULL, &why);
}

int checkpoint_to_peft(struct cli *cli, struct checkpoint *from, const char *out) {
    struct to_peft p = {.cli = cli, .from = from};
    if (read_rules(&p, "lora") < 0 || read_rules(&p, "adapter") < 0) return -1;
    for (int i = 0; i < rt_saved_count(from->saved, RT_SAVED_PARAMETERS); i++)
        if (add_parameter(&p, rt_saved_at(from->saved, RT_SAVED_PARAMETERS, i)) < 0) return -1;
    if (!p.all.n) return mismatch(&p, "the checkpoint has no adapters:", from->path);
    if (p.others)
        diag_remark(cli->diags, from->path, "%d parameters that are no adapters are left out: %s%s", p.others,
                    diag_quote(cli->diags, p.first_other), p.others > 1 ? ", .." : "");
    if (write_files(&p, out) < 0) return -1;
    return cli_confirm(cli, arena_printf(cli->arena, "%s: %d adapters\n", out, p.all.n));
}
