/* Finds the first non-finite value of a training step.
 *
 * Note [First value]
 * When the loss or the gradient norm of a step is not finite, the gradients are computed again before the update, from
 * the same parameters and samples. Each instruction is observed (struct rt_observer): its operands are checked before
 * it and its results after it. It is the cause if it makes a NaN from operands without NaN, or an infinity from finite
 * operands. Constants, such as a mask with -inf, are operands too. Each rank finds its first such instruction; all
 * ranks then agree on the least one in program order, by micro-batch. A parameter or input that is not finite precedes
 * all instructions. */
#include "program/main.h"

#include "base/number/checked.h"
#include "base/manifest.h"
#include "core/place.h"
#include "state/load_part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1024 };

/* Findings are ordered integers: the kind in the highest bits, the index in the others. */
enum kind { KIND_PARAMETER, KIND_INPUT, KIND_INSTRUCTION };
#define KIND_SHIFT 60
#define NOTHING    INT64_MAX

struct search {
    struct rt_observer observer; /* first member */
    struct rank *self;
    struct rt *rt;
    /* entry of each instruction in "values" of manifest.json; NULL: not executed by this rank */
    const struct rt_json **entries;
    int64_t ninstructions;
    int instruction; /* current instruction; -1: none */
    int read;        /* non-finite values in its operands */
    int64_t first;   /* least finding of this rank */
};

static int check_host(const void *bytes, enum rt_dtype dtype, size_t count) {
    const size_t size = rt_dtype_bytes(dtype);
    double values[BLOCK];
    int seen = 0;
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        rt_convert(values, RT_F64, (const unsigned char *)bytes + at * size, dtype, n);
        for (size_t i = 0; i < n; i++) seen |= isnan(values[i]) ? HAS_NAN : isinf(values[i]) ? HAS_INFINITY : 0;
    }
    return seen;
}

/* Checks device memory; returns 0 if it cannot be copied. */
static int check_memory(struct rt *rt, const void *at, enum rt_dtype dtype, size_t count) {
    const size_t bytes = count * rt_dtype_bytes(dtype);
    if (!rt_dtype_is_float(dtype) || !count) return 0;
    if (!rt->program->device->remote) return check_host(at, dtype, count);
    void *copy = malloc(bytes);
    bool ok = copy && !rt->program->device->get(rt, copy, at, bytes) && !rt->program->device->finish(rt);
    const int seen = ok ? check_host(copy, dtype, count) : 0;
    free(copy);
    return seen;
}

/* Checks a tensor in "values" of manifest.json (base/manifest.h). */
static int check_value(struct rt *rt, const struct rt_json *value) {
    int64_t field[7] = {0};
    int n = 0;
    for (const struct rt_json *f = value->first; f && n < 7; f = f->next, n++) rt_json_int(f, &field[n]);
    const struct rt_value_place place = {field[0], field[1], field[4], field[6]};
    const int64_t elements = field[3];
    int64_t begin, bytes;
    if (n < 4 || field[2] < 0 || field[2] >= RT_DTYPE_COUNT || elements < 0 || field[5] < 0 ||
        field[5] >> rt_layout_axes(rt))
        return 0;
    const enum rt_dtype dtype = (enum rt_dtype)field[2];
    const unsigned axes = (unsigned)field[5];
    const int64_t start = place.arena == MANIFEST_FLAT ? 0 : rt_flat_start(rt, axes, elements),
                  count = rt_flat_count(rt, axes, elements), size = (int64_t)rt_dtype_bytes(dtype);
    if (!rt_mul(start, size, &begin) || !rt_mul(count, size, &bytes)) return 0;
    const unsigned char *at = rt_value_at(rt, &place, begin, bytes);
    return at ? check_memory(rt, at, dtype, (size_t)count) : 0;
}

static int check_values(struct rt *rt, const struct rt_json *values) {
    int seen = 0;
    for (const struct rt_json *v = rt_json_first(values); v; v = v->next) seen |= check_value(rt, v);
    return seen;
}

static void add_finding(struct search *s, enum kind kind, int64_t which) {
    const int64_t answer = (int64_t)kind << KIND_SHIFT | which;
    if (answer < s->first) s->first = answer;
}

/* Position in program order: micro-batches over all scale units, then reduction and update. */
static int64_t micro_of(const struct search *s, const struct rt_json *entry) {
    const struct rt_private *private = s->rt->internal;
    const int64_t phase = rt_json_number(entry, "phase", 0);
    if (phase < PHASE_REDUCE) return rt_numbered(s->rt, private->micro);
    return (int64_t) private->accumulate * s->rt->units->size;
}

static void end_instruction(struct search *s) {
    const struct rt_json *entry =
        s->instruction >= 0 && s->instruction < s->ninstructions ? s->entries[s->instruction] : NULL;
    if (!entry) return;
    const int made = check_values(s->rt, rt_json_member(entry, "results"));
    const bool undefined = (made & HAS_NAN) && !(s->read & HAS_NAN);
    if (undefined || ((made & HAS_INFINITY) && !s->read))
        add_finding(s, KIND_INSTRUCTION, 2 * (micro_of(s, entry) * s->ninstructions + s->instruction) + undefined);
}

static void begin_instruction(struct rt_observer *observer, struct rt *rt, int instruction) {
    struct search *s = (struct search *)observer;
    if (instruction == s->instruction) return;
    end_instruction(s);
    s->instruction = instruction;
    const struct rt_json *entry = instruction >= 0 && instruction < s->ninstructions ? s->entries[instruction] : NULL;
    int64_t constants = 0;
    if (!entry) return;
    rt_json_int(rt_json_member(entry, "constants"), &constants);
    s->read = (int)constants | check_values(rt, rt_json_member(entry, "operands"));
}

static void check_parameters(struct search *s) {
    const struct rt_program *program = s->rt->program;
    for (int w = 0; w < program->nweights; w++) {
        const struct rt_weight *weight = &program->weights[w];
        const size_t place = s->rt->rank_class->weights[w];
        struct load_part part;
        int64_t elements;
        if (place == RT_ABSENT || !load_part_find(&part, s->rt, weight, &elements)) continue;
        const struct rt_stored stored = rt_stored_part(s->rt, RT_WEIGHTS, place, weight->flat, elements);
        if (stored.count < 0) continue;
        const int seen =
            check_memory(s->rt, s->rt->arena[stored.arena] + stored.at, weight->dtype, (size_t)stored.count);
        if ((seen & HAS_NAN) || (seen && weight->trained)) add_finding(s, KIND_PARAMETER, w);
    }
}

/* Infinite inputs may be intended, such as a mask. */
static void check_inputs(struct search *s, const void *const *const *samples) {
    const struct rt_program *program = s->rt->program;
    for (int j = 0; j < s->rt->internal->accumulate; j++)
        for (int i = 0; i < program->ninputs; i++) {
            const struct rt_port *port = &program->inputs[i];
            int64_t count = 0;
            if (!rt_dtype_is_float(port->dtype) || !rt_product(port->dims, port->ndim, &count)) continue;
            if (check_host(samples[j][i], port->dtype, (size_t)count) & HAS_NAN) add_finding(s, KIND_INPUT, i);
        }
}

/* Lists the entries of the instructions of this rank's class. */
static int list_entries(struct search *s) {
    const struct rt_json *root = rt_json_root(s->self->job->manifest.document);
    const struct rt_json *list = rt_json_member(root, "instructions"), *classes = rt_json_member(root, "values");
    const struct rt_json *class = rt_json_first(classes);
    for (long c = s->rt->rank_class - s->rt->program->classes; c > 0 && class; c--) class = class->next;
    s->ninstructions = list && list->kind == RT_JSON_ARRAY ? list->count : 0;
    s->entries = calloc((size_t)s->ninstructions + 1, sizeof(*s->entries));
    if (!s->entries) return fail_with(s->self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    for (const struct rt_json *entry = rt_json_first(class); entry; entry = entry->next) {
        int64_t instruction;
        if (rt_json_int(rt_json_member(entry, "instruction"), &instruction) && instruction >= 0 &&
            instruction < s->ninstructions)
            s->entries[instruction] = entry;
    }
    return RT_OK;
}

/* Collective: the least finding of all ranks, and the first rank that made it. */
static int agree(struct search *s, struct nonfinite *found) {
    struct rt *rt = s->rt;
    int64_t all = NOTHING, rank, owner = 0;
    int status = rt->comm->driver->all_reduce(rt->comm, &all, &s->first, 1, RT_I64, RT_MIN);
    rank = all == s->first ? rt->rank : rt->world;
    if (!status) status = rt->comm->driver->all_reduce(rt->comm, &owner, &rank, 1, RT_I64, RT_MIN);
    if (status) return rt_fail_comm(rt, rt->comm, status);
    *found = (struct nonfinite){.found = all != NOTHING, .rank = (int)owner};
    if (!found->found) return RT_OK;
    const int64_t which = all & (((int64_t)1 << KIND_SHIFT) - 1);
    found->parameter = all >> KIND_SHIFT == KIND_PARAMETER ? (int)which : -1;
    found->input = all >> KIND_SHIFT == KIND_INPUT ? (int)which : -1;
    found->instruction = all >> KIND_SHIFT == KIND_INSTRUCTION ? (int)(which / 2 % s->ninstructions) : -1;
    found->undefined = which % 2;
    return RT_OK;
}

int nonfinite_find(struct rank *self, struct rt *rt, const struct rt_attempt *attempt, struct nonfinite *found) {
    struct search s = {.observer = {.begins = begin_instruction, .reads_values = true},
                       .self = self,
                       .rt = rt,
                       .instruction = -1,
                       .first = NOTHING};
    int status = list_entries(&s);
    if (!status) {
        check_parameters(&s);
        check_inputs(&s, attempt->samples);
        rt_observe(rt, &s.observer);
        status = attempt->repeat(rt, attempt);
        begin_instruction(&s.observer, rt, -1);
        rt_observe_end(rt, &s.observer);
    }
    if (!status) status = agree(&s, found);
    free(s.entries);
    return status;
}

/* Adds a help line with the names of the nodes that were fused into one loop. */
static void list_members(const struct rt_json *names, struct failure *failure) {
    char text[sizeof failure->help - 64] = "";
    size_t used = 0;
    int n = 0;
    for (const struct rt_json *name = rt_json_first(names); name; name = name->next) {
        const struct rt_quoted quoted = rt_quote_text(rt_json_text(name) ? rt_json_text(name) : "");
        if (used + strlen(quoted.text) + 8 > sizeof text) break;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s'%s'", n++ ? ", " : "", quoted.text);
    }
    if (n > 1)
        failure_help(failure, "one fused loop computes these nodes, and the value is from one of them: %s", text);
}

/* A gradient node is named like its forward node, with ".grad" appended. */
static void place_instruction(const struct rt_json *entry, bool undefined, struct failure *failure) {
    static const char suffix[] = ".grad";
    const char *node = rt_json_text(rt_json_member(entry, "node")), *op = rt_json_text(rt_json_member(entry, "op"));
    const char *from = rt_json_text(rt_json_member(entry, "from"));
    char name[256];
    if (!node || !op) return;
    size_t length = strlen(node);
    const bool gradient = length > strlen(suffix) && strcmp(node + length - strlen(suffix), suffix) == 0;
    if (gradient) length -= strlen(suffix);
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), node);
    failure_where(failure, "%snode '%s' (%s)%s%s", gradient ? "gradient of " : "", rt_quote_text(name).text,
                  rt_quote_text(op).text, from ? " " : "", from ? rt_quote_text(from).text : "");
    if (undefined && strcmp(op, "Div") == 0)
        failure_help(failure, "it divides 0 by 0: so does a mean over labels none of which counts, in PyTorch too; "
                              "mean=tokens of --loss is a mean over the labels of all micro-batches of the step");
    list_members(rt_json_member(entry, "of"), failure);
}

void nonfinite_place(const struct nonfinite *found, const struct manifest *manifest, struct failure *failure) {
    const struct rt_json *tensor = rt_json_item(rt_json_root(manifest->document), "tensors", found->parameter);
    const char *name = tensor ? rt_json_text(rt_json_member(tensor, "name")) : NULL;
    if (name)
        failure_where(failure, "parameter '%s', before the step", rt_quote_text(name).text);
    else if (found->input >= 0)
        failure_where(failure, "input '%s'", rt_quote_text(manifest->inputs[found->input]).text);
    else if (found->instruction >= 0)
        place_instruction(rt_json_item(rt_json_root(manifest->document), "instructions", found->instruction),
                          found->undefined, failure);
}
