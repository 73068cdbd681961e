/* The options of training: optimizer, learning-rate schedule, rules for some parameters, precision, recomputation. */
#ifndef PASSES_TRAIN_TRAINING_H
#define PASSES_TRAIN_TRAINING_H

#include "ir/ir.h"
#include "passes/train/named_options.h"
#include "runtime/base/lr_schedule.h"

struct optimizer {
    const char *name, *when, *needs, *options, *states, *scalars, *decay, *update, *help;
};

struct init {
    const char *name, *kind, *options, *a, *b, *help;
};

extern const struct optimizer optimizers[];
extern const int noptimizers;

/* An optimizer with the values of its options. */
struct optimizer_choice {
    const char *text; /* as it was given */
    const struct optimizer *row;
    struct named_options options;
};

/* Reads "adamw:lr=0.0003,weight_decay=0.1" (name, then any of its options): 0, or -1 after a diagnostic. */
int optimizer_parse(struct optimizer_choice *choice, const char *text, struct arena *arena, struct diags *diags);

/* Reads "cosine:warmup=100,steps=1000,min=0.1": a row of runtime/base/lr_schedules.def, and any of its numbers. */
int lr_schedule_parse(struct rt_lr_schedule *schedule, const char *text, struct arena *arena, struct diags *diags);

/* Options of some parameters: --param 'GLOB:lr=0.001,weight_decay=0', 'GLOB:frozen' or 'GLOB:train'. */
struct parameter_rule {
    const char *text, *pattern; /* a glob over names of initializers */
    bool frozen;                /* no gradient and no state of the optimizer */
    bool train;                 /* they are parameters, whatever roles.h decides */
    bool own_lr;                /* a learning rate of their own; the schedule's factor applies to it too */
    struct optimizer_choice optimizer;
};

/* Initial values of some parameters: --init 'GLOB=normal:std=0.02', a row of inits.def. */
struct init_rule {
    const char *text, *pattern;
    const struct init *row;
    struct named_options options;
};

/* --amp (amp.h). */
/* ALLOW: in the half type. DENY: in f32. PROMOTE: in the half type if all computed operands have it, else in f32. */
enum amp_cast { AMP_PROMOTE, AMP_ALLOW, AMP_DENY };

struct amp_rule {
    const char *pattern; /* a glob over node names */
    enum amp_cast cast;
};

struct amp {
    const char *text;    /* as it was given, NULL: no mixed precision */
    enum rt_dtype dtype; /* bf16 or fp16 */
    VEC(struct amp_rule) rules;
    bool *matched;          /* per rule */
    double loss_scale;      /* the first one if it changes; 0: gradients are not scaled */
    double growth_interval; /* good steps after which the scale is doubled; 0: it never changes */
    bool skip;              /* a step whose gradients are not finite changes nothing */
};

/* --fp8 (fp8.h). */
struct fp8_rule {
    const char *pattern; /* a glob over node names */
    bool exclude;
};

struct fp8 {
    const char *text;     /* as it was given, NULL: no 8-bit floats */
    const char *gradient; /* format of dy: "e5m2", or "e4m3" as of x and w */
    VEC(struct fp8_rule) rules;
    double history, margin; /* steps; powers of two */
};

/* --recompute (recompute.h). */
enum recompute_kind {
    RECOMPUTE_NONE,
    RECOMPUTE_FULL,      /* of each layer, all but what it takes from the one before */
    RECOMPUTE_SELECTIVE, /* all but results of products, convolutions and attention */
    RECOMPUTE_FIRST,     /* full, of the first `count` layers */
    RECOMPUTE_NAMES,     /* results of nodes whose names match */
    RECOMPUTE_BUDGET     /* full, of as few layers from the first as keep the rest within `count` bytes */
};

struct recompute {
    const char *text; /* as it was given; NULL: none */
    enum recompute_kind kind;
    int64_t count;
    const char *pattern;
};

struct training {
    struct optimizer_choice optimizer;
    struct amp amp;
    struct fp8 fp8;
    double clip_grad_norm; /* 0: none; torch.nn.utils.clip_grad_norm_ */
    int accumulate;        /* micro-batches of a unit in a step */
    int units;             /* data parallel copies of the plan */
    int64_t bucket_bytes;  /* of gradients that are reduced over units at once, while backward goes on; 0: none are */
    const char *lr_schedule_text; /* as it was given */
    struct rt_lr_schedule lr_schedule;
    VEC(struct parameter_rule) rules;
    VEC(struct init_rule) inits;
    struct recompute recompute;
};

/* True if gradients are accumulated in states: a step has several micro-batches, or the model is a module, whose caller
 * may run backward several times per step. */
bool training_gathers(const struct training *training, const struct graph *graph);

/* Adds a rule to training, whose optimizer it starts from: 0, or -1 after a diagnostic. */
int parameter_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags);

/* Checks the combinations of options that PyTorch forbids, for --optimizer and all rules: 0, or -1 after a diagnostic
 * (E0205). Not for the optimizer of a model's training_info, for which ONNX allows more. */
int optimizers_check(const struct training *training, struct arena *arena, struct diags *diags);

/* True if the glob matches the weight's name, or that of the parameter from which the exporter transposed or reshaped
 * it. */
bool weight_is_called(const struct tensor *weight, const char *pattern);

/* The last rule that matches the weight, NULL if none does. */
const struct parameter_rule *parameter_rule_of(const struct training *training, const struct tensor *weight);

/* The same for rules of initial values. */
int init_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags);
const struct init_rule *init_rule_of(const struct training *training, const char *name);

/* The numbers a and b of the rule for a tensor, and the key of its random numbers. */
struct init_values {
    double a, b;
    uint64_t key;
};
struct init_values init_values_of(const struct init_rule *rule, const struct tensor *tensor, struct arena *arena);

/* Every rule of either kind must match a parameter of the graph, or freeze a constant: 0, or -1 after diagnostics that
 * name those that do not. decisions: roles.h; may be NULL. */
struct decisions;
int parameter_rules_check(const struct training *training, const struct graph *graph, const struct decisions *decisions,
                          struct diags *diags);

#endif
