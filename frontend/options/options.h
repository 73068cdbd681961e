/* The parsed command line and the tables of verbs, options and words, generated from frontend/options/options.def.
 *
 * options_parse() turns argv into a struct options with checked and typed fields. An option that is unknown, given
 * twice, contradictory or not supported yet is a diagnostic (E02xx, exit code 2; E0400, exit code 4). All strings are
 * in the arena.
 *
 * Arguments are GNU style: --name=value, --name value, -oDIR, -o DIR, -- ends the options, @file is replaced by the
 * arguments in that file (frontend/options/parse.c).
 */
#ifndef FRONTEND_OPTIONS_OPTIONS_H
#define FRONTEND_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/open.h"
#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/vec.h"
#include "ir/decisions.h"
#include "runtime/base/contract.h"

enum verb {
#define VERB(ID, ...) VERB_##ID,
#include "frontend/options/options.def"
    VERBS
};

/* What a verb with several actions does (ACTION_CKPT_INFO, ...). */
enum action {
    ACTION_NONE,
#define ACTION(VERB, ID, ...) ACTION_##VERB##_##ID,
#include "frontend/options/options.def"
    ACTIONS
};
enum { OPERANDS_MAX = 3 }; /* of an action */

enum option_id {
#define OPTION(ID, ...) OPT_##ID,
#include "frontend/options/options.def"
    OPTIONS
};

enum choice_group {
    GROUP_NONE,
#define GROUP(ID, ...) GROUP_##ID,
#include "frontend/options/options.def"
    GROUPS
};

/* A word of any group (OPT_TARGET_C, OPT_POLICY_DP, ...). */
enum choice {
    CHOICE_NONE, /* not given, and no default */
#define CHOICE(GROUP, ID, ...)       OPT_##GROUP##_##ID,
#define CHOICE_LATER(GROUP, ID, ...) OPT_##GROUP##_##ID,
#include "frontend/options/options.def"
    CHOICES
};

/* Type of an option's value, and of its field in struct options. */
enum option_kind {
    OPTION_FLAG,   /* bool; takes no value */
    OPTION_TEXT,   /* const char *; not empty */
    OPTION_PATH,   /* const char *; not empty, no line break */
    OPTION_COUNT,  /* int64_t in [min, max], decimal; or a word for -1 */
    OPTION_BYTES,  /* int64_t, decimal with K, M, G or T (powers of 1024) */
    OPTION_CHOICE, /* enum choice */
    OPTION_POLICY, /* struct option_policy, decisions.mesh and settings (ir/decisions.def): WORD[:KEY=VALUE,...] */
    /* the repeatable kinds */
    OPTION_SIZES,  /* struct option_sizes: NAME=SIZE, repeatable, every name once */
    OPTION_SHAPES, /* struct option_shapes: NAME=SIZE,SIZE,.., repeatable, every name once */
    OPTION_FILES,  /* struct option_files: NAME=FILE, repeatable, every name once */
    OPTION_TEXTS,  /* struct option_texts: not empty, no line break; repeatable, in order */
    /* texts that the program checks */
    OPTION_RATE = OPTION_TEXT,
    OPTION_WINDOW = OPTION_TEXT
};

struct option_policy {
    enum choice word;
    const char *file; /* NULL: it takes none */
};

struct option_size {
    const char *name;
    struct open_range range;
};
struct option_sizes {
    VEC(struct option_size) all, more; /* more: further sizes of names in `all`, where a verb takes several */
};
bool option_has_size(const struct option_sizes *sizes, const char *name);

/* Words that --shape takes in place of sizes, by number of dimensions; ended by NULL. */
extern const struct option_shape_word {
    const char *word;
    int ndim;
} option_shape_words[];

struct option_shape {
    const char *name;
    int ndim; /* 0 to RT_MAX_NDIM; negative: a word (option_shape_words) */
    struct open_range sizes[RT_MAX_NDIM];
};
struct option_shapes {
    VEC(struct option_shape) all;
};

struct option_file {
    const char *name, *path;
};
struct option_files {
    VEC(struct option_file) all;
};

struct option_texts {
    VEC(const char *) all;
};

struct options {
    enum verb verb;
    const char *operand;      /* MODEL.onnx, DIR, ...; of a verb with actions, the action's name. NULL: not given */
    struct option_texts more; /* operands behind the first, of a verb that takes many */
    enum action action;
    const char *operands[OPERANDS_MAX]; /* of the action */
    bool given[OPTIONS];                /* by the user, rather than by default */
    const char *command;                /* the command line, quoted for a shell, to be extended in suggestions */

    /* compile */
    const char *output, *instance_name;
    /* dtype: CHOICE_NONE keeps the model's; tied_gradients: CHOICE_NONE is the target's default */
    enum choice target, dtype, cache_dtype, weights, reuse, broadcast, attention, tied_gradients, logits, moments_dtype,
        grad_accum_dtype, offload;
    struct option_policy pas;
    /* as asked for, with the settings of pas; the mesh has plan_ngpus shards, even if only --plan-ngpus was given.
     * micro_batches: 0: not given */
    struct decisions decisions;
    int64_t plan_ngpus, runtime_ngpus;
    struct option_sizes dims;
    struct option_shapes shapes;
    struct option_files binds;
    const char *ops, *weights_from; /* NULL: none */
    const char *model_config;       /* NULL: the operand is a file */
    const char *machine;            /* NULL: no estimate */
    int64_t global_batch;           /* 0: not given */
    const char *batch_dim;          /* the dimension of --dim that global_batch counts; NULL: not known */
    int64_t mem_limit;              /* bytes; 0: none */
    int64_t search_time;            /* seconds; 0: not given */
    int64_t measure_topk;           /* plans; 0: none */
    const char *forbid, *require;   /* of autodist; NULL: not given */
    const char *dump_after, *load_plan, *save_plan, *onnx_out;
    const char *refine;       /* NULL: none */
    const char *constraints;  /* NULL: none */
    const char *save_machine; /* NULL: not given */
    const char *html;         /* NULL: no page */
    bool no_build, with_runtime, allow_links;
    bool train, inference, decode;
    const char *state, *weight_dtype, *loss, *optimizer, *lr_schedule, *clip_grad_norm, *ema, *amp, *fp8,
        *reducer_bucket_cap_mb, *arch;
    struct option_texts params, inits, loras, shared, adapters;
    bool sync_batch_norm, skip_nonfinite;
    int64_t use_async_reducer;

    /* verify */
    bool numeric, averaged, reset_optimizer, checkpoint_async, keep_best, eval_only;

    /* compare */
    const char *rtol, *atol; /* NULL: not given */

    /* ops */
    const char *check; /* NULL: none */

    int64_t lock_timeout; /* seconds */

    /* run */
    struct option_files inputs;
    const char *output_dir; /* NULL: outputs are not written */
    int64_t random_inputs;  /* seed */
    enum choice comm, kernels;
    bool broadcast_weights;

    /* generate */
    struct option_texts prompts, stops, roles, encoders;
    const char *tokenizer;                                        /* NULL: that of the model */
    const char *save_state, *load_state;                          /* NULL: none */
    const char *temperature, *top_p, *min_p, *repetition_penalty; /* NULL: not given */
    int64_t max_new_tokens, top_k, seed;                          /* max_new_tokens 0: not given */

    /* train */
    struct option_files data, eval_data;
    const char *log, *lr, *checkpoint_dir, *resume; /* lr: NULL keeps the program's */
    /* but steps: 0, or not given */
    int64_t steps, shuffle, checkpoint_every, keep, eval_every, eval_steps, early_stop;
    int64_t restarts, log_every;

    /* run and train */
    int64_t threads, repeat, warmup;           /* threads 0: cores / ranks */
    int64_t stall_timeout;                     /* seconds; 0: never */
    const char *dump_tensors, *dump_dir;       /* NULL: none; NULL: "dump" */
    const char *trace, *trace_steps, *profile; /* NULL: none; profile: a machine's file, or "" */

    /* every verb */
    bool json, verbose, quiet, help, man, version;
    enum choice color;
};

/* Parses the arguments after the program's name: 0, or -1 after diagnostics. Even then `out` is filled as far as
 * possible, so that the caller knows how to print (json, color). With --help neither verb nor operand is required. */
int options_parse(struct options *out, int argc, char **argv, struct arena *arena, struct diags *diags);

/* Sets the options as if the verb and its operand alone were given, for callers that set further fields. */
void options_start(struct options *out, enum verb verb, const char *operand, struct arena *arena, struct diags *diags);

/* Checks what holds between options, and sets what follows from them, when all are set: 0, or -1 after a diagnostic. */
int options_finish(struct options *options, struct arena *arena, struct diags *diags);

/* The micro-batches of each of so many scale units: by --global-batch if that is given. False if the batch is no
 * multiple of the sequences that all scale units have in a micro-batch; in generation, if it is another number. */
bool options_micro_batches(const struct options *options, int64_t units, int64_t *micro_batches);

/* Sets decisions.micro_batches from --global-batch, if it is given, for the mesh and the ranks of the options. False as
 * options_micro_batches. */
bool options_divide_batch(struct options *options);

/* The same where --global-batch and batch_dim are given: 0, or -1 after E0205. In generation without --dim of the
 * batch, that is its size. The search of autodist divides the batch for each of its candidates. */
int options_take_batch(struct options *options, struct arena *arena, struct diags *diags);

/* The name of a file without directories and suffix. */
char *options_stem(const char *path, struct arena *arena);

/* Maps a name to a file name of bytes [A-Za-z0-9_.-] that does not begin with ".": so it is not "." or "..", and does
 * not clash with locks and staging directories. Of long names the first 240 bytes. */
char *options_file_name(const char *name, struct arena *arena);

/* What `compile` calls the directories <output>/<model>/<instance> unless they are taken
 * (frontend/driver/output/directory_names.h): safe as file names, never hidden, never "." or "..". */
char *options_model(const struct options *options, struct arena *arena);
char *options_instance(const struct options *options, struct arena *arena);

/* The value of an option in canonical form, as "tp:tensor=2" or "batch=2,seq=8"; "" if unset. Equal settings have equal
 * text. Used for reuse keys and instance names. */
const char *options_text(const struct options *options, enum option_id id, struct arena *arena);

/* The enum option_id of the option that gives the decision; -1 for a setting of --pas. */
int options_of(const struct decision *row);

/* The first given option that affects compiling, as "--name"; NULL if there is none. Verbs refuse it if their operand
 * is a compiled model. What `train` takes, whose operand is always one, is not among them. */
const char *options_compiling(const struct options *options, struct arena *arena);

/* the tables */

/* KEY_MEANS: the plan key, too. The value says how a program computes, not what, so a run may be resumed with another
 * value. */
enum reuse_key { KEY_NONE, KEY_GRAPH, KEY_PLAN, KEY_MEANS };

struct option {
    const char *name; /* without dashes */
    char letter;      /* 0: no short form */
    enum option_kind kind;
    const char *metavar;
    unsigned verbs; /* bit 1 << enum verb */
    enum reuse_key key;
    int code; /* of errors in the value; 0: 205 */
    int64_t min, max;
    enum choice_group choices;
    bool lines;           /* of texts: they may have several */
    const char *word;     /* of a COUNT, for -1; NULL: none */
    const char *bare;     /* the value of an option that is given without one; NULL: it needs one */
    const char *fallback; /* the default; in parentheses: what an unset option means; NULL: none */
    const char *help;
    size_t offset; /* of the field */
};

struct verb_row {
    const char *name, *operand, *help;
    bool many; /* takes any number of operands */
};

struct action_row {
    enum verb verb;
    const char *name, *operands, *help; /* operands: a word for each */
};

struct choice_row {
    enum choice_group group;
    const char *word, *keys, *help;
    bool later;
};

/* A title and the number of rows that are listed under it. */
struct section {
    const char *title;
    int n;
};

extern const struct option option_rows[OPTIONS];
extern const enum option_id option_order[OPTIONS]; /* as the sections list them */
extern const struct section option_sections[];     /* ended by a section of 0 */
extern const enum verb verb_order[VERBS];
extern const struct section verb_sections[]; /* ended by a section of 0 */
extern const struct verb_row verb_rows[VERBS];
extern const struct action_row action_rows[ACTIONS];
extern const struct choice_row choice_rows[CHOICES];

/* The names of a verb's actions, with `between` between them; "" if it has none. */
const char *action_names(enum verb verb, const char *between, struct arena *arena);

/* True if `verb` takes the option. */
static inline bool option_of_verb(const struct option *option, enum verb verb) {
    return option->verbs >> verb & 1;
}

/* True if the option may be given several times. */
static inline bool option_is_repeatable(const struct option *option) {
    return option->kind >= OPTION_SIZES;
}

/* The placeholder of the option's value in help: its metavar, or its words as "match|override|moo|graph". */
const char *option_argument(const struct option *option, struct arena *arena);

/* The word of a choice: choice_word(OPT_TARGET_C) is "c"; "" for CHOICE_NONE. */
static inline const char *choice_word(enum choice choice) {
    return choice_rows[choice].word;
}

#endif
