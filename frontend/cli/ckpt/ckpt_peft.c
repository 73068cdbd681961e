/* rankc ckpt to-peft: the adapters of a checkpoint as peft saves them: adapter_model.safetensors, and
 * adapter_config.json with the names of the modules. */
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
    bool rslora; /* of all adapters; otherwise alpha is made of the scale */
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

/* The values of modules that differ from those of the first. */
static void put_pattern(struct rt_json_writer *w, const struct to_peft *p, const char *key, bool alpha) {
    const struct lora_rule *first = p->adapters.all.at[0].rule;
    rt_json_key_open(w, key, '{', RT_JSON_LINES);
    for (int i = 0; i < p->adapters.all.n; i++) {
        const struct lora_rule *rule = p->adapters.all.at[i].rule;
        const double value = alpha ? alpha_of(p, rule) : rule->r;
        if (value != (alpha ? alpha_of(p, first) : first->r)) put_number(w, p->adapters.all.at[i].module, value);
    }
    rt_json_close(w, '}');
}

static const char *config_text(const struct to_peft *p) {
    struct rt_json_writer *w = own_json_writer(p->cli->arena);
    const struct lora_rule *first = p->adapters.all.at[0].rule;
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
    for (int i = 0; i < p->adapters.all.n; i++) rt_json_put_text(w, p->adapters.all.at[i].module);
    rt_json_close(w, ']');
    rt_json_close(w, '}');
    return own_json_end(p->cli->arena, w);
}

static struct checkpoint_named named(const struct to_peft *p, const struct rt_saved_tensor *tensor) {
    return (struct checkpoint_named){arena_printf(p->cli->arena, ADAPTER_PREFIX "%s", tensor->name), tensor};
}

static int write_files(struct to_peft *p, const char *out) {
    struct cli *cli = p->cli;
    struct rt_reason why;
    const char *config = config_text(p);
    if (!config) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    struct checkpoint_named *tensors = ARENA_ARRAY(cli->arena, struct checkpoint_named, 2 * p->adapters.all.n);
    int n = 0;
    for (int i = 0; i < p->adapters.all.n; i++) {
        tensors[n++] = named(p, p->adapters.all.at[i].a);
        tensors[n++] = named(p, p->adapters.all.at[i].b);
    }
    if (mkdir(out, 0777) < 0 && errno != EEXIST) return diag_errno(cli->diags, 611, NULL, "create", out);
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
    for (int i = 0; i < adapters->all.n; i++) p.rslora = p.rslora && adapters->all.at[i].rule->rslora;
    if (adapters->others)
        diag_remark(cli->diags, from->path, "%d parameters that are no adapters are left out: %s%s", adapters->others,
                    diag_quote(cli->diags, adapters->first_other), adapters->others > 1 ? ", .." : "");
    if (write_files(&p, out) < 0) return -1;
    return cli_confirm(cli, arena_printf(cli->arena, "%s: %d adapters\n", out, adapters->all.n));
}
