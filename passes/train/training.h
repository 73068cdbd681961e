/* The options of training: optimizer, learning-rate schedule, rules for single parameters, mixed precision. */
#ifndef PASSES_TRAIN_TRAINING_H
#define PASSES_TRAIN_TRAINING_H

#include "ir/ir.h"
#include "ir/decisions.h"
#include "passes/train/named_options.h"
#include "runtime/base/lr_schedule.h"

/* A row of optimizers.def, whose head describes the columns. */
struct optimizer {
    const char *name, *when, *needs, *options, *states, *scalars, *decay, *update, *help, *rest;
    bool stacks;
};

/* A row of inits.def, whose head describes the columns. */
struct init {
    const char *name, *kind, *options, *a, *b, *help;
};

extern const struct optimizer optimizers[];
extern const int noptimizers;

/* The optimizer that was chosen, with the values of its options. */
struct optimizer_choice {
    const char *text; /* as it was given */
    const struct optimizer *row;
    struct named_options options;
    const struct optimizer_choice *rest; /* of parameters that are no matrices; NULL: this one, as well */
};

/* Parses "adamw:lr=0.0003,weight_decay=0.1": a name of optimizers.def, then any of its options. 0, or -1 after a
 * diagnostic. The arena owns what `choice` points to. */
int optimizer_parse(struct optimizer_choice *choice, const char *text, struct arena *arena, struct diags *diags);

/* rt_lr_schedule_parse() for --lr-schedule: 0, or -1 after E0205. */
int lr_schedule_parse(struct rt_lr_schedule *schedule, const char *text, struct diags *diags);

/* Options of some parameters: --param 'GLOB:lr=0.001,weight_decay=0', 'GLOB:optimizer=adamw,lr=0.001', 'GLOB:frozen',
 * 'GLOB:train' or 'GLOB:whole'. */
struct parameter_rule {
    const char *text, *pattern; /* a glob over names of initializers */
    bool frozen;                /* no gradient and no state of the optimizer */
    bool whole;                 /* not divided by ZeRO */
    bool moments_f32;           /* its moments are not in 8 bits */
    bool pads;                  /* row `padding` of embeddings has no gradient; below 0: counted from the end */
    int64_t padding;
    bool train;  /* parameters, whatever pass roles decides (roles.h) */
    bool own_lr; /* a learning rate of their own; the schedule's factor applies to it too */
    struct optimizer_choice optimizer;
};

/* Initial values of some parameters: --init 'GLOB=normal:std=0.02', a row of inits.def. */
struct init_rule {
    const char *text, *pattern;
    const struct init *row;
    struct named_options options;
};

/* Adapters beside products of some modules: --lora (lora.h). */
struct lora_rule {
    const char *text, *globs; /* globs over names of modules, separated by commas */
    double r, alpha, dropout;
    bool rslora;
    bool swapped;  /* Note [Swapped stacks] in lora.c */
    bool gaussian; /* A is normal with standard deviation 1 / r, else uniform within 1 / sqrt(inputs) */
    struct init_rule a, zeros, normal; /* how A and B begin; of embeddings A with zeros, and B normal */
};

/* Mixed precision (--amp): products compute in 16-bit floats; parameters, the optimizer and operators that need the
 * range of f32 stay f32. Which operators compute in which type is as in torch.autocast (amp.def); loss scaling is
 * that of torch.cuda.amp.GradScaler (PyTorch 2). */
/* The precision in which autocast computes a node. ALLOW: the 16-bit type. DENY: f32. PROMOTE: the 16-bit type if all
 * computed operands have it, else f32. */
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
    double loss_scale;      /* initial scale of the loss; 0: no loss scaling */
    double growth_interval; /* steps with finite gradients after which the scale doubles; 0: it is constant */
    bool skip;              /* a step with non-finite gradients updates nothing */
};

/* Parses "fp16:loss_scale=1024,deny=*head*": 0, or -1 after a diagnostic. NULL: no mixed precision. */
int amp_parse(struct amp *amp, const char *text, struct arena *arena, struct diags *diags);

/* Linear layers in 8-bit floats with delayed scaling (--fp8), as in NVIDIA's TransformerEngine: recipe DelayedScaling
 * with its margin and amax_history_len, algorithm max, updated after every step of the optimizer.
 *
 * Note [Delayed scaling]
 * Three tensors of a layer are quantised: x, w, and dy, the gradient of its result. For each of them a history keeps
 * the largest magnitude of every step. A tensor is multiplied by its scale before it is rounded to 8 bits:
 *
 *   scale = largest number of the format / (2^margin * largest magnitude in the history)
 *
 * The scale changes only after a step, so that all micro-batches and all ranks use the same. Before the first
 * magnitude is known it is 1; that of dy is 1 / the first loss scale, by which gradients are multiplied. Magnitudes
 * that are not finite are left out. */
struct fp8_rule {
    const char *pattern; /* a glob over node names */
    bool exclude;
};

struct fp8 {
    const char *text;     /* as it was given, NULL: no 8-bit floats */
    const char *gradient; /* format of dy: "e5m2", or "e4m3" like x and w */
    VEC(struct fp8_rule) rules;
    double history, margin; /* amax history in steps; margin as a power of two */
};

/* Parses "hybrid:include=GLOB,exclude=GLOB,history=16": 0, or -1 after a diagnostic. NULL: no 8-bit floats. */
int fp8_parse(struct fp8 *fp8, const char *text, struct arena *arena, struct diags *diags);

/* Libraries need rows of a multiple of 16 bytes: the extents of each rank's product must be multiples of this. */
enum { FP8_MULTIPLE = 16 };

/* Parameters of fewer elements keep their moments as they are. */
enum { MOMENTS_THRESHOLD = 4096 };

enum offload { OFFLOAD_NOTHING, OFFLOAD_OPTIMIZER, OFFLOAD_WEIGHTS };
extern const char *const offload_names[3]; /* in manifest.json, which has none for nothing */

struct training {
    struct optimizer_choice optimizer;
    struct amp amp;
    struct fp8 fp8;
    double clip_grad_norm; /* largest norm of the gradient (torch.nn.utils.clip_grad_norm_); 0: no clipping */
    double ema;            /* decay of the averages of parameters, which are states "ema"; 0: there are none */
    bool moments_int8;     /* states that the optimizer's row marks are in blocks of 8 bits */
    bool gradients_bf16;   /* gradients of parameters are kept, summed and reduced in bf16 */
    enum offload offload;  /* what lies in the host's memory (passes/place/offload.c) */
    int64_t bucket_bytes;  /* bytes of gradients per bucket that units reduce during the backward phase; 0: after it */
    bool tied_once;        /* stages send gradients of tied weights once a step (passes/place/tied_gradients.c) */
    const char *lr_schedule_text; /* as it was given */
    struct rt_lr_schedule lr_schedule;
    VEC(struct parameter_rule) rules;
    VEC(struct init_rule) inits;
    VEC(struct lora_rule) loras;
};

/* True if gradients are accumulated in STATE tensors: a step has several micro-batches, or the program is a module
 * without a loss, whose caller may run the backward phase several times per step. */
bool training_gathers(const struct decisions *decisions, const struct graph *graph);

/* Parses a --param rule and adds it; its options start as those of --optimizer. 0, or -1 after a diagnostic. */
int parameter_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags);

/* Checks the options of --optimizer and of all rules against column `needs` of optimizers.def, the combinations that
 * PyTorch allows: 0, or -1 after a diagnostic (E0205). Not called for the optimizer of a model's training_info, for
 * which ONNX allows more. */
int optimizers_check(const struct training *training, struct arena *arena, struct diags *diags);

/* By the name in manifest.json; NULL: OFFLOAD_NOTHING. */
enum offload offload_by_name(const char *name);

/* Checks that some optimizer has states that can be in 8 bits, if they are asked for: 0, or -1 after E0205. */
int moments_check(const struct training *training, struct diags *diags);

/* The last --param rule that matches the weight; NULL if none does. */
const struct parameter_rule *parameter_rule_of(const struct training *training, const struct tensor *weight);
/* The optimizer and its options that update the weight. */
const struct optimizer_choice *optimizer_choice_of(const struct training *training, const struct tensor *weight);

/* Parses an --init rule: 0, or -1 after a diagnostic. init_rule_add: adds it. init_rule_of: the last that matches the
 * name, or NULL. */
int init_rule_parse(struct init_rule *rule, const char *text, struct arena *arena, struct diags *diags);
int init_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags);
const struct init_rule *init_rule_of(const struct training *training, const char *name);

/* The values of columns a and b of inits.def for a tensor, and the key of its random generator. */
struct init_values {
    double a, b;
    uint64_t key;
};
struct init_values init_values_of(const struct init_rule *rule, const struct tensor *tensor, struct arena *arena);

/* Checks that every --param and --init rule matches a parameter of the graph, or a constant if it freezes: 0, or -1
 * after a diagnostic for each rule that matches nothing. `roles` (roles.h) may be NULL. */
struct weight_roles;
int parameter_rules_check(const struct training *training, const struct graph *graph, const struct weight_roles *roles,
                          struct diags *diags);

/* Dynamic loss scaling: the factor by which the loss is multiplied, and its change after every step. Semantics of
 * torch.cuda.amp.GradScaler (PyTorch 2). */
struct build;

/* The tensors of loss scaling: scalars in f64 unless said otherwise; -1: none. */
struct loss_scale {
    int exponent; /* STATE: the scale is amp->loss_scale * 2^exponent */
    int scale;
    int good;    /* bool: all gradients of the step are finite */
    int updates; /* bool: the update phase is that of a step (Note [Exchange] in optimizer.c); -1: it always is */
    int skipped; /* STATE: number of steps skipped so far */
};

/* To be called before autodiff: adds the states and returns the scale, which is the gradient of the loss; -1: no loss
 * scaling, or after a diagnostic. */
int loss_scale_begin(struct build *builder, const struct amp *amp);
/* Finds the tensors that loss_scale_begin added to the graph. */
struct loss_scale loss_scale_find(struct build *builder, const struct amp *amp);
/* Sets scale->good and scale->skipped from the norm of all gradients (f64), and adds the metrics. 0, or -1 after a
 * diagnostic. */
int loss_scale_judge(struct build *builder, const struct amp *amp, struct loss_scale *scale, int norm);
/* Adds the updates of the states, which give the scale of the next step. 0, or -1 after a diagnostic. */
int loss_scale_end(struct build *builder, const struct amp *amp, const struct loss_scale *scale);

#endif
