#include "frontend/driver/program/random_inputs.h"

#include <string.h>

#include "runtime/base/npy.h"
#include "runtime/base/number/formula.h"
#include "runtime/base/number/random_fill.h"

int64_t random_inputs_micro_batches(const struct rt_json *manifest) {
    int64_t n;
    return rt_json_int(rt_json_member(manifest, "micro_batches"), &n) ? n : 1;
}

/* What the names in shapes stand for. */
struct names {
    const struct rt_json *sizes; /* of the manifest */
    const int64_t *values;       /* NULL: the typical ones */
};

static bool value_of(void *context, const char *name, size_t length, int64_t *out) {
    const struct names *names = context;
    const struct rt_json *size = rt_json_first(names->sizes);
    for (int i = 0; size; size = size->next, i++) {
        const char *own = rt_json_text(rt_json_member(size, "name"));
        if (!own || strlen(own) != length || memcmp(own, name, length) != 0) continue;
        if (names->values) return *out = names->values[i], true;
        return rt_json_int(rt_json_member(size, "typical"), out);
    }
    return false;
}

/* A number, or a text of the names of sizes. */
static bool read_extent(struct names *names, const struct rt_json *dim, int64_t *extent) {
    const struct rt_formula formula = {.value = value_of, .context = names};
    if (rt_json_text(dim)) return rt_formula_read(&formula, rt_json_text(dim), extent, NULL, NULL) == RT_FORMULA_OK;
    return rt_json_int(dim, extent);
}

/* Makes floats, values of the type `written`, larger and smaller (struct random_inputs). */
static void move(const struct random_inputs *inputs, void *values, enum rt_dtype written, int64_t count) {
    const size_t bytes = rt_dtype_bytes(written);
    for (int64_t i = 0; i < count; i++) {
        char *at = (char *)values + (size_t)i * bytes;
        double value;
        rt_convert(&value, RT_F64, at, written, 1);
        value *= 1 + (i / inputs->turn % 2 ? -inputs->moved : inputs->moved);
        rt_convert(at, written, &value, RT_F64, 1);
    }
}

static int write_input(const struct rt_json *input, struct names *names, int64_t micro_batches, int index,
                       enum rt_dtype floats, const struct random_inputs *inputs, const char *path, struct arena *arena,
                       struct diags *diags) {
    enum rt_dtype dtype = rt_dtype_by_name(rt_json_text(rt_json_member(input, "dtype")));
    enum rt_dtype written = floats != RT_DTYPE_NONE && rt_dtype_is_float(dtype) ? floats : dtype;
    int64_t dims[RT_MAX_NDIM], count = 1, below = 0;
    int ndim = 0;
    struct rt_reason why;
    for (const struct rt_json *d = rt_json_items(input, "shape"); d && ndim < RT_MAX_NDIM; d = d->next)
        if (read_extent(names, d, &dims[ndim])) count *= dims[ndim++];
    if (ndim) dims[0] *= micro_batches, count *= micro_batches;
    struct arena *scratch = arena_scratch(arena);
    void *data = arena_alloc(scratch, (size_t)count + 1, rt_dtype_bytes(dtype)),
         *values = arena_alloc(scratch, (size_t)count + 1, rt_dtype_bytes(written));
    rt_json_int(rt_json_member(input, "below"), &below);
    rt_random_fill(data, dtype, count, (uint64_t)index + 1, below);
    rt_convert(values, written, data, dtype, (size_t)count);
    if (inputs->turn && rt_dtype_is_float(written)) move(inputs, values, written, count);
    const bool is_written = rt_npy_write(path, written, ndim, dims, values, &why);
    arena_release(arena, scratch);
    return is_written ? 0 : diag_refusal(diags, 601, EXIT_SYSTEM, NULL, &why);
}

/* The file that is given for an input; NULL: none. */
static const char *given_path(const struct option_files *given, const char *name) {
    for (int i = 0; given && i < given->all.n; i++)
        if (strcmp(given->all.at[i].name, name) == 0) return given->all.at[i].path;
    return NULL;
}

/* E0201 if a given input is none of the manifest's. */
static int check_given(const struct option_files *given, const struct rt_json *inputs, struct diags *diags) {
    for (int i = 0; given && i < given->all.n; i++) {
        const struct rt_json *input = rt_json_first(inputs);
        const char *wanted = given->all.at[i].name, *name;
        while (input && (!(name = rt_json_text(rt_json_member(input, "name"))) || strcmp(name, wanted)))
            input = input->next;
        if (!input)
            return diag_error(diags, 201, EXIT_USAGE, "--input", "the model has no input %s",
                              diag_quote(diags, wanted));
    }
    return 0;
}

int random_inputs_write(struct random_inputs *out, const struct rt_json *manifest, const char *prefix,
                        enum rt_dtype floats, struct arena *arena, struct diags *diags) {
    const struct rt_json *inputs = rt_json_member(manifest, "inputs");
    const int64_t micro_batches = random_inputs_micro_batches(manifest);
    struct names names = {rt_json_member(manifest, "sizes"), out->sizes};
    int index = 0;
    if (check_given(out->given, inputs, diags) < 0) return -1;
    for (const struct rt_json *input = rt_json_first(inputs); input; input = input->next, index++) {
        const char *name = rt_json_text(rt_json_member(input, "name"));
        if (!name) return -1;
        const char *given = given_path(out->given, name),
                   *path = given ? given : arena_printf(arena, "%s.input%d.npy", prefix, index);
        if (!given && write_input(input, &names, micro_batches, index, floats, out, path, arena, diags) < 0) return -1;
        VEC_PUSH(arena, &out->all, arena_printf(arena, "%s=%s", name, path));
    }
    return 0;
}
