/* Decisions for a whole program, in one struct. Options are parsed into it, a search compares candidates of it, passes
 * read it, and plan.json stores those that its nodes do not imply. decisions.def describes its members. */
#ifndef IR_DECISIONS_H
#define IR_DECISIONS_H

#include "ir/mesh.h"

/* What a policy prefers among plans. */
enum preference { PREFER_SPEED, PREFER_MEMORY };

/* How attention is computed where sequences are split: keys and values are gathered; it is split by heads; or keys and
 * values stay cut (passes/place/ring.c). */
enum attention_form { ATTENTION_GATHER, ATTENTION_HEADS, ATTENTION_RING };

/* How sequences are cut (runtime/base/shape/part.h). */
enum sequence_cut { CUT_ORDERED, CUT_MIRRORED };

/* What the stages of ZeRO divide among replicas, each what those before it do too: states of the optimizer, sums of
 * gradients, parameters. */
enum zero_stage { ZERO_STATES = 1, ZERO_SUMS, ZERO_PARAMETERS };

struct decisions {
    struct mesh mesh;       /* of the ranks of a scale unit */
    bool sequence_parallel; /* policy tp splits the sequence between the products that it splits */
    int64_t product_runs;   /* of place/product_runs.c: as many; 0: no runs; -1: as many as pay */
    int64_t zero;           /* enum zero_stage; 0: nothing is divided */
    int64_t zero_groups;    /* of scale units; each divides what ZeRO divides among its own */
    int64_t zero_prefetch;  /* stage 3: how many operators ahead parameters are gathered; 0: where they are used */
    const char *recompute;  /* as recompute_parse takes it (passes/plan/recompute.h); NULL: nothing */
    const char *schedule;   /* of pipeline stages (passes/plan/schedule/schedules.h); NULL: the default */
    int64_t micro_batches;  /* of a step of each scale unit; 0: not decided */
    enum preference prefer; /* of policies that estimate time */
    enum attention_form attention;
    enum sequence_cut cut;
    const char *configuration; /* of policy annotated, by name; NULL: the only one */
    int64_t capacity;          /* of experts' buffers, in thousandths of the mean number of rows; 0: as the most */
};

/* Types of members: bool; int64_t; int64_t in thousandths, which users write as a decimal fraction; const char *; an
 * enum, whose values count from 0. */
enum decision_kind { DECISION_FLAG, DECISION_COUNT, DECISION_PARTS, DECISION_TEXT, DECISION_WORD };

struct decision {
    const char *name;
    enum decision_kind kind;
    size_t offset; /* of the member */
    const char *policies, *words, *help, *file, *trait;
    int64_t usual, most;
    bool whole;
};

enum {
#define DECISION(member, ...) DECIDES_##member,
#include "ir/decisions.def"
#undef DECISION
    DECISIONS
};
extern const struct decision decision_rows[DECISIONS];

/* True if the policy, a word of --pas, takes the decision as a setting. */
bool decision_is_setting(const struct decision *row, const char *policy);

/* Sets the member of a setting, or a TEXT, to what the user wrote, which stays theirs. False if it is no value. */
bool decision_parse(const struct decision *row, const char *text, struct decisions *decisions);

/* As the user writes the value; a FLAG is "yes". NULL: it is as if nothing was decided. */
const char *decision_text(const struct decision *row, const struct decisions *decisions, struct arena *arena);

/* The value of all kinds but TEXT. */
int64_t decision_number(const struct decision *row, const struct decisions *decisions);
void decision_set(const struct decision *row, int64_t number, struct decisions *decisions);

/* True if the member is the same in both. */
bool decision_same(const struct decision *row, const struct decisions *a, const struct decisions *b);

/* Equal for equal members, of texts for those that stand in the same place. */
int64_t decision_key(const struct decision *row, const struct decisions *decisions);

/* True unless the member is 0 or NULL. */
bool decision_is_made(const struct decision *row, const struct decisions *decisions);

/* Sets a member to 0, NULL, or what is usual. */
void decision_leave(const struct decision *row, struct decisions *decisions);

/* Copies what `from`, a plan, says beside the mesh: decision_is_made. */
void decisions_take(struct decisions *to, const struct decisions *from);

/* True if a rank adds up gradients: of several micro-batches, or in slices. */
bool decisions_sum_gradients(const struct decisions *decisions, int64_t micro_batches);

/* The number of ZeRO groups; 1 without ZeRO. */
int decisions_zero_groups(const struct decisions *decisions);

#endif
