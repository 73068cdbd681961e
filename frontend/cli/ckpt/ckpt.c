/* rankc ckpt: inspects and converts checkpoints. They are read through runtime/base/io/saved.h, whatever plan wrote
 * them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/ckpt/checkpoint.h"
#include "frontend/cli/format_bytes.h"
#include "passes/plan/file/plan_text.h"
#include "runtime/base/number/half.h"
#include "runtime/base/io/file.h"

enum { CODE_CHECKPOINT = 805 };

static int parts_of(const struct rt_saved_tensor *tensor) {
    int n = 0;
    for (const struct rt_saved_part *part = tensor->parts; part; part = part->next) n++;
    return n;
}

static const char *mesh_text(const struct checkpoint *checkpoint, struct cli *cli) {
    struct rt_mesh_axis ways;
    struct strbuf text = {.arena = cli->arena};
    for (const struct rt_json *axis = rt_json_items(rt_saved_root(checkpoint->saved), "mesh"); axis;
         axis = axis->next) {
        if (!plan_get_axis(axis, &ways)) continue;
        strbuf_printf(&text, "%s%d", text.length ? " x " : "", ways.size);
        if (ways.end) strbuf_printf(&text, " (stages %d to %d)", ways.first, ways.end - 1);
    }
    return text.length ? strbuf_text(&text) : "1";
}

static void print_tensors(const struct checkpoint *checkpoint, enum rt_saved_kind kind, struct cli *cli) {
    int64_t bytes = 0;
    const int n = rt_saved_count(checkpoint->saved, kind);
    for (int i = 0; i < n; i++) {
        const struct rt_saved_tensor *tensor = rt_saved_at(checkpoint->saved, kind, i);
        bytes += checkpoint_elements(tensor) * (int64_t)rt_dtype_bytes(tensor->dtype);
    }
    cli_print(cli, "%-11s %d tensor(s), %s\n", rt_saved_kinds[kind], n, format_bytes(bytes).text);
    for (int i = 0; i < n && cli->options->verbose; i++) {
        const struct rt_saved_tensor *tensor = rt_saved_at(checkpoint->saved, kind, i);
        printf("  %s, ", checkpoint_tensor_text(tensor, cli));
        cli_print(cli, "%d part(s)\n", parts_of(tensor));
    }
}

static void put_json_tensors(struct rt_json_writer *w, const struct checkpoint *checkpoint, enum rt_saved_kind kind) {
    rt_json_key_open(w, rt_saved_kinds[kind], '[', RT_JSON_LINES);
    for (int i = 0; i < rt_saved_count(checkpoint->saved, kind); i++) {
        const struct rt_saved_tensor *tensor = rt_saved_at(checkpoint->saved, kind, i);
        rt_json_open(w, '{', RT_JSON_INLINE);
        rt_json_key_text(w, "name", tensor->name);
        rt_json_key_text(w, "dtype", rt_dtypes[tensor->dtype].name);
        rt_json_key_dims(w, "shape", tensor->dims, tensor->ndim);
        rt_json_key_int(w, "parts", parts_of(tensor));
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

static int info_json(struct cli *cli, const struct checkpoint *checkpoint) {
    static const char *const numbers[] = {"step", "micro_batches", "micro_batches_per_step", "seed"};
    struct rt_json_writer *w = own_json_writer(cli->arena);
    const struct rt_json *root = rt_saved_root(checkpoint->saved);
    rt_json_open(w, '{', RT_JSON_LINES);
    rt_json_key_int(w, "format", 1);
    rt_json_key_text(w, "checkpoint", checkpoint->path);
    rt_json_key_int(w, "checkpoint_format", rt_saved_format(checkpoint->saved));
    rt_json_key_text(w, "name", rt_json_text(rt_json_member(root, "name")));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        rt_json_key_int(w, numbers[i], checkpoint_number(checkpoint, numbers[i]));
    rt_json_key_int(w, "files", rt_saved_files(checkpoint->saved));
    for (int k = 0; k < RT_SAVED_KINDS; k++) put_json_tensors(w, checkpoint, (enum rt_saved_kind)k);
    rt_json_close(w, '}');
    return cli_print_json(cli, w);
}

static int ckpt_info(struct cli *cli, struct checkpoint *checkpoint) {
    const char *name = rt_json_text(rt_json_member(rt_saved_root(checkpoint->saved), "name"));
    int64_t bytes = 0;
    if (cli->options->json) return info_json(cli, checkpoint);
    for (int i = 0; i < rt_saved_files(checkpoint->saved); i++) bytes += rt_saved_file(checkpoint->saved, i)->bytes;
    printf("%s: ", checkpoint->path);
    cli_print(cli, "step %" PRId64 " of %s, %" PRId64 " micro-batch(es)\n", checkpoint_number(checkpoint, "step"),
              name ? diag_quote(cli->diags, name) : "?", checkpoint_number(checkpoint, "micro_batches"));
    cli_print(cli, "written by ranks of a mesh of %s: %d file(s), %s\n", mesh_text(checkpoint, cli),
              rt_saved_files(checkpoint->saved), format_bytes(bytes).text);
    for (int k = 0; k < RT_SAVED_KINDS; k++) print_tensors(checkpoint, (enum rt_saved_kind)k, cli);
    return 0;
}

/* Every element must be in exactly one part. The parts are regions of one tensor: they are disjoint if no two have an
 * element in common, and complete if their sizes add up. */
static bool has_common(void *context, int64_t from, int64_t to, int64_t count, struct rt_reason *why) {
    (void)context, (void)from, (void)to, (void)count, (void)why;
    return false;
}

static bool is_covered(const struct rt_saved_tensor *tensor) {
    const struct rt_region_visitor visitor = {has_common, NULL};
    int64_t elements = 0;
    struct rt_reason why;
    for (const struct rt_saved_part *part = tensor->parts; part; part = part->next) {
        int64_t of_part = 1;
        for (int d = 0; d < tensor->ndim; d++) of_part *= rt_region_extent(&part->region, d);
        elements += of_part;
        for (const struct rt_saved_part *other = part->next; other; other = other->next)
            if (!rt_region_common(&part->region, &other->region, &visitor, &why)) return false;
    }
    return elements == checkpoint_elements(tensor);
}

static int verify_tensor(struct cli *cli, struct checkpoint *checkpoint, const struct rt_saved_tensor *tensor) {
    struct rt_reason why;
    for (const struct rt_saved_part *part = tensor->parts; part; part = part->next)
        if (!rt_saved_check(checkpoint->saved, tensor, part, &why)) return checkpoint_refused(checkpoint, cli, &why);
    if (is_covered(tensor)) {
        cli_tell(cli, "%s: %d part(s) intact", checkpoint_tensor_text(tensor, cli), parts_of(tensor));
        return 0;
    }
    return diag_error(cli->diags, CODE_CHECKPOINT, EXIT_MISMATCH, checkpoint->path,
                      "the parts of tensor %s do not have each of its elements once",
                      diag_quote(cli->diags, tensor->name));
}

static int ckpt_verify(struct cli *cli, struct checkpoint *checkpoint) {
    int n = 0, status = 0;
    for (int k = 0; k < RT_SAVED_KINDS; k++)
        for (int i = 0; i < rt_saved_count(checkpoint->saved, (enum rt_saved_kind)k); i++, n++)
            if (verify_tensor(cli, checkpoint, rt_saved_at(checkpoint->saved, (enum rt_saved_kind)k, i))) status = -1;
    if (status) return status;
    return cli_confirm(cli, "%s: %d tensor(s) in %d file(s) are intact\n", checkpoint->path, n,
                       rt_saved_files(checkpoint->saved));
}

/* A pass over two tensors of equal shape, piece by piece. */
struct difference {
    bool equal;         /* bit for bit */
    double most, scale; /* largest difference, and largest magnitude, of floats */
};

static double value_of(const unsigned char *bytes, enum rt_dtype dtype) {
    float f32;
    double f64;
    uint16_t bits;
    switch (dtype) {
    case RT_F32: return memcpy(&f32, bytes, sizeof f32), f32;
    case RT_F64: return memcpy(&f64, bytes, sizeof f64), f64;
    case RT_F16: return memcpy(&bits, bytes, sizeof bits), rt_f16_to_f32(bits);
    case RT_BF16: return memcpy(&bits, bytes, sizeof bits), rt_bf16_to_f32(bits);
    default: return NAN;
    }
}

static void compare_values(struct difference *out, const unsigned char *a, const unsigned char *b, int64_t n,
                           enum rt_dtype dtype) {
    const size_t size = rt_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++, a += size, b += size) {
        if (memcmp(a, b, size) == 0) continue;
        const double x = value_of(a, dtype), y = value_of(b, dtype), apart = fabs(x - y);
        out->equal = false;
        if (!(apart <= out->most)) out->most = apart; /* NaN too */
        if (fabs(x) > out->scale) out->scale = fabs(x);
    }
}

static int compare_tensor(struct cli *cli, struct checkpoint *a, struct checkpoint *b, const struct rt_saved_tensor *x,
                          const struct rt_saved_tensor *y, struct difference *out) {
    const int64_t size = (int64_t)rt_dtype_bytes(x->dtype), elements = checkpoint_elements(x), piece = RT_SAVED_CHUNK;
    const struct rt_region whole = rt_region_whole(x->dims, x->ndim);
    unsigned char *buffer = ARENA_ARRAY(cli->arena, unsigned char, 2 * piece);
    struct rt_reason why;
    *out = (struct difference){.equal = true};
    for (int64_t at = 0; at < elements; at += piece / size) {
        const int64_t some = elements - at < piece / size ? elements - at : piece / size;
        if (!rt_saved_read(a->saved, x, &whole, at, some, buffer, &why)) return checkpoint_refused(a, cli, &why);
        if (!rt_saved_read(b->saved, y, &whole, at, some, buffer + piece, &why))
            return checkpoint_refused(b, cli, &why);
        compare_values(out, buffer, buffer + piece, some, x->dtype);
    }
    return 0;
}

/* Prints how two tensors of one name differ: 1 if they do, 0 if not, -1 after a diagnostic. */
static int diff_tensor(struct cli *cli, struct checkpoint *a, struct checkpoint *b, const struct rt_saved_tensor *x,
                       const struct rt_saved_tensor *y) {
    struct difference difference;
    if (!y || x->dtype != y->dtype || x->ndim != y->ndim ||
        memcmp(x->dims, y->dims, (size_t)x->ndim * sizeof *x->dims) != 0) {
        if (!cli->options->quiet)
            printf("%s: %s\n", checkpoint_tensor_text(x, cli), y ? checkpoint_tensor_text(y, cli) : "missing");
        return 1;
    }
    if (compare_tensor(cli, a, b, x, y, &difference)) return -1;
    if (difference.equal)
        cli_tell(cli, "%s: equal", checkpoint_tensor_text(x, cli));
    else if (!cli->options->quiet)
        printf("%s: at most %.3g apart, of %.3g\n", checkpoint_tensor_text(x, cli), difference.most, difference.scale);
    return !difference.equal;
}

static int diff_kind(struct cli *cli, struct checkpoint *a, struct checkpoint *b, enum rt_saved_kind kind,
                     int *compared) {
    int different = 0;
    for (int i = 0; i < rt_saved_count(a->saved, kind); i++, ++*compared) {
        const struct rt_saved_tensor *x = rt_saved_at(a->saved, kind, i);
        if (x->copy_of) continue;
        const int result = diff_tensor(cli, a, b, x, rt_saved_find(b->saved, kind, x->name));
        if (result < 0) return -1;
        different += result;
    }
    for (int i = 0; i < rt_saved_count(b->saved, kind); i++) {
        const struct rt_saved_tensor *y = rt_saved_at(b->saved, kind, i);
        if (y->copy_of || rt_saved_find(a->saved, kind, y->name)) continue;
        if (!cli->options->quiet) printf("%s: only in %s\n", checkpoint_tensor_text(y, cli), b->path);
        different++;
    }
    return different;
}

/* Exit code 8 if they differ, as diff and cmp have one for it. */
static int ckpt_diff(struct cli *cli, struct checkpoint *a) {
    struct checkpoint b;
    int different = 0, compared = 0;
    int status = checkpoint_open(&b, cli->options->operands[1], cli);
    for (int k = 0; k < RT_SAVED_KINDS && !status; k++) {
        const int found = diff_kind(cli, a, &b, (enum rt_saved_kind)k, &compared);
        if (found < 0) status = -1;
        different += found;
    }
    const bool says = !status && !cli->options->quiet;
    if (says && different) cli_print(cli, "%d of %d tensor(s) differ\n", different, compared);
    if (says && !different) cli_print(cli, "%d tensor(s) are equal bit for bit\n", compared);
    checkpoint_close(&b);
    return status ? status : different ? EXIT_MISMATCH : 0;
}

static int (*const actions[ACTIONS])(struct cli *, struct checkpoint *) = {
    [ACTION_CKPT_INFO] = ckpt_info,
    [ACTION_CKPT_VERIFY] = ckpt_verify,
    [ACTION_CKPT_DIFF] = ckpt_diff,
    [ACTION_CKPT_MERGE] = checkpoint_merge,
    [ACTION_CKPT_DEDUP] = checkpoint_dedup,
    [ACTION_CKPT_RESHARD] = checkpoint_reshard,
    [ACTION_CKPT_TO_ONNX] = checkpoint_to_onnx,
    [ACTION_CKPT_TO_PEFT] = checkpoint_to_peft,
};

static int take_averages(struct cli *cli, struct checkpoint *checkpoint) {
    const enum action action = cli->options->action;
    struct rt_reason why;
    if (action != ACTION_CKPT_MERGE && action != ACTION_CKPT_TO_ONNX && action != ACTION_CKPT_TO_PEFT)
        return diag_error(cli->diags, 200, EXIT_USAGE, NULL, "--averaged is for merge, to-onnx and to-peft");
    return rt_saved_average(checkpoint->saved, &why) ? 0 : checkpoint_refused(checkpoint, cli, &why);
}

int cli_ckpt(struct cli *cli) {
    struct checkpoint checkpoint;
    int status = checkpoint_open(&checkpoint, cli->options->operands[0], cli);
    if (!status && cli->options->averaged) status = take_averages(cli, &checkpoint);
    if (!status) status = actions[cli->options->action](cli, &checkpoint);
    checkpoint_close(&checkpoint);
    return status;
}
