/* rankc completions SHELL. Words that are rows of other tables than options.def complete values and operands, too. */
#include <string.h>

#include "frontend/cli/cli.h"
#include "frontend/lower/onnx_ops.h"
#include "frontend/options/help_text.h"
#include "passes/train/training.h"

/* Names of tables whose rows have no list that others can read. */
static const char schedules[] = ""
#define SCHEDULE(name, ...) name " "
#include "passes/plan/schedule/schedules.def"
#undef SCHEDULE
    ;
static const char lr_schedules[] = ""
#define SCHEDULE(id, name, ...) #name " "
#include "runtime/base/lr_schedules.def"
#undef SCHEDULE
    ;
static const char machines[] = ""
#define MACHINE(name, ...) name " "
#include "passes/plan/machine/machines.def"
#undef MACHINE
    ;
static const char models[] = ""
#define MODEL(name, ...) name " "
#include "frontend/config/models.def"
#undef MODEL
    ;
static const char losses[] = ""
#define LOSS(name, ...) #name " "
#include "frontend/import/import_losses.def"
#undef LOSS
    ;
static const char codes[] = ""
#define CODE(number, ...) "E0" #number " "
#include "frontend/cli/explain/codes.def"
#undef CODE
    ;

static const char *optimizer_names(struct arena *arena) {
    struct strbuf names = {.arena = arena};
    for (int i = 0; i < noptimizers; i++) /* rows of one name follow each other */
        if (!i || strcmp(optimizers[i].name, optimizers[i - 1].name)) strbuf_printf(&names, "%s ", optimizers[i].name);
    return strbuf_text(&names);
}

static const char *operator_names(struct arena *arena) {
    struct strbuf names = {.arena = arena};
    for (int i = 0; i < onnx_nops; i++)
        if (!*onnx_ops[i].domain && !onnx_ops[i].refused && (!i || strcmp(onnx_ops[i].name, onnx_ops[i - 1].name)))
            strbuf_printf(&names, "%s ", onnx_ops[i].name);
    return strbuf_text(&names);
}

/* "lr=0.001 beta1=0.9<1 steps" as "lr= beta1= steps=". */
static const char *keys_of(const char *options, struct arena *arena) {
    struct strbuf keys = {.arena = arena};
    for (; *options; options += strcspn(options, " "), options += strspn(options, " ")) {
        const char *key = arena_copy(arena, options, strcspn(options, " ="));
        strbuf_printf(&keys, "%s%s=", keys.length ? " " : "", key);
    }
    return strbuf_text(&keys);
}

struct settings {
    VEC(struct completion_settings) all;
};

/* Settings behind policies, optimizers and learning-rate schedules. */
static const struct completion_settings *find_settings(struct arena *arena) {
    struct settings found = {0};
    for (int i = 1; i < CHOICES; i++)
        if (choice_rows[i].group == GROUP_POLICY)
            VEC_PUSH(arena, &found.all,
                     ((struct completion_settings){OPT_PAS, choice_rows[i].word,
                                                   help_policy_settings((enum choice)i, arena)}));
    for (int i = 0; i < noptimizers; i++)
        if (!i || strcmp(optimizers[i].name, optimizers[i - 1].name))
            VEC_PUSH(arena, &found.all,
                     ((struct completion_settings){OPT_OPTIMIZER, optimizers[i].name,
                                                   keys_of(optimizers[i].options, arena)}));
    for (int i = 0; i < RT_LR_SCHEDULES; i++)
        VEC_PUSH(arena, &found.all,
                 ((struct completion_settings){OPT_LR_SCHEDULE, rt_lr_schedule_rows[i].name,
                                               keys_of(rt_lr_schedule_rows[i].options, arena)}));
    VEC_PUSH(arena, &found.all, (struct completion_settings){0});
    return found.all.at;
}

int cli_completions(struct cli *cli) {
    const char *shell = cli->options->operand;
    const struct completion_words words[] = {
        {OPT_OPTIMIZER, VERBS, optimizer_names(cli->arena)},
        {OPT_LR_SCHEDULE, VERBS, lr_schedules},
        {OPT_SCHEDULE, VERBS, schedules},
        {OPT_LOSS, VERBS, losses},
        {OPT_MACHINE, VERBS, machines},
        {OPT_MODEL_CONFIG, VERBS, models},
        {OPT_AMP, VERBS, "bf16 fp16"},
        {OPT_FP8, VERBS, "hybrid e4m3"},
        {OPT_RECOMPUTE, VERBS, "full selective first: names: budget:"},
        {OPT_ASYNC_TP, VERBS, "auto 2 4 8"},
        {COMPLETES_OPERAND, VERB_OPS, operator_names(cli->arena)},
        {COMPLETES_OPERAND, VERB_EXPLAIN, codes},
    };
    struct strbuf text = {.arena = cli->arena};
    if (!help_completions(&text, shell, words, sizeof words / sizeof *words, find_settings(cli->arena)))
        return diag_error(cli->diags, 202, EXIT_USAGE, NULL, "unknown shell %s (%s)", diag_quote(cli->diags, shell),
                          verb_rows[VERB_COMPLETIONS].operand);
    cli_tell(cli, "'meson install' puts this script where %s finds it; by hand: %s", shell,
             !strcmp(shell, "bash")  ? "source <(rankc completions bash)"
             : !strcmp(shell, "zsh") ? "write it as _rankc into a directory of $fpath"
                                     : "write it to ~/.config/fish/completions/rankc.fish");
    return cli_print_text(cli, strbuf_text(&text));
}
