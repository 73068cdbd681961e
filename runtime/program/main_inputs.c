/* Reads manifest.json and the input tensors of the command line. */
#include "program/main.h"

#include "base/number/checked.h"
#include "base/number/hash.h"
#include "base/io/file.h"
#include "base/number/random_fill.h"
#include "base/text/diagnostic.h"
#include "base/io/sealed.h"
#include "base/io/tensor_pb.h"
#include "core/place.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The program is in DIR/build/; returns DIR. */
static char *default_directory(void) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (slash) *slash = 0;
    }
    return strdup(path[0] ? path : "/");
}

static bool read_dims(const struct rt_json *value, int *ndim, int64_t dims[RT_MAX_NDIM]) {
    if (!value || value->kind != RT_JSON_ARRAY || value->count > RT_MAX_NDIM) return false;
    *ndim = 0;
    for (const struct rt_json *extent = value->first; extent; extent = extent->next)
        if (!rt_json_int(extent, &dims[(*ndim)++]) && extent->kind != RT_JSON_STRING) return false;
    return true;
}

/* The same, of a port of manifest.json: an extent that follows from sizes is a text there. */
static bool same_port(int ndim, const int64_t *dims, const struct rt_port *port) {
    for (int d = 0; d < ndim && ndim == port->ndim; d++)
        if (dims[d] != port->dims[d] && rt_open_extent(port->dims[d]) < 0) return false;
    return ndim == port->ndim;
}

static bool same_shape(int ndim, const int64_t *dims, const struct rt_port *port) {
    return ndim == port->ndim && (ndim == 0 || memcmp(dims, port->dims, (size_t)ndim * sizeof *dims) == 0);
}

/* Reads the ports' names; their dtypes and shapes must be the program's, so that another program's manifest is
 * refused. */
static bool read_ports(const char **names, const struct rt_json *ports, const struct rt_port *expected, int count) {
    if (!ports || ports->kind != RT_JSON_ARRAY || ports->count != count) return false;
    int i = 0;
    for (const struct rt_json *port = ports->first; port; port = port->next, i++) {
        int64_t dims[RT_MAX_NDIM] = {0};
        int ndim;
        const char *dtype = rt_json_text(rt_json_member(port, "dtype"));
        names[i] = rt_json_text(rt_json_member(port, "name"));
        if (!names[i] || !dtype || rt_dtype_by_name(dtype) != expected[i].dtype) return false;
        if (!read_dims(rt_json_member(port, "shape"), &ndim, dims) || !same_port(ndim, dims, &expected[i]))
            return false;
    }
    return true;
}

/* Reads what the integers of the inputs are for; files without it say nothing. */
static void read_bounds(struct manifest *manifest, const struct rt_json *ports) {
    int i = 0;
    for (const struct rt_json *port = ports->first; port; port = port->next, i++) {
        if (!rt_json_int(rt_json_member(port, "below"), &manifest->below[i])) manifest->below[i] = 0;
        manifest->ignores[i] = rt_json_int(rt_json_member(port, "ignored"), &manifest->ignored[i]);
    }
}

static int read_names(struct manifest *manifest, const struct rt_program *program, bool intact,
                      struct failure *failure) {
    const struct rt_json *root = rt_json_root(manifest->document);
    int64_t format;
    if (!rt_json_int(rt_json_member(root, "format"), &format) || format != RT_MANIFEST_FORMAT)
        return failure_set(failure, EXIT_MISMATCH, RT_CODE_FORMAT, "the format of manifest.json is not %d",
                           RT_MANIFEST_FORMAT);
    if (!intact)
        return failure_set(failure, EXIT_MISMATCH, RT_CODE_SOURCE_CHANGED,
                           "manifest.json was modified after it was generated: its hash differs");
    manifest->inputs = calloc((size_t)program->ninputs + 1, sizeof(*manifest->inputs));
    manifest->outputs = calloc((size_t)program->noutputs + 1, sizeof(*manifest->outputs));
    manifest->below = calloc((size_t)program->ninputs + 1, sizeof *manifest->below);
    manifest->ignored = calloc((size_t)program->ninputs + 1, sizeof *manifest->ignored);
    manifest->ignores = calloc((size_t)program->ninputs + 1, sizeof *manifest->ignores);
    if (!manifest->inputs || !manifest->outputs || !manifest->below || !manifest->ignored || !manifest->ignores)
        return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    const struct rt_json *inputs = rt_json_member(root, "inputs");
    if (!read_ports(manifest->inputs, inputs, program->inputs, program->ninputs) ||
        !read_ports(manifest->outputs, rt_json_member(root, "outputs"), program->outputs, program->noutputs))
        return failure_set(failure, EXIT_MISMATCH, RT_CODE_SOURCE_CHANGED,
                           "manifest.json lists other inputs or outputs than the program has");
    read_bounds(manifest, inputs);
    return EXIT_OK;
}

int manifest_read(struct manifest *manifest, const struct rt_program *program, const char *directory,
                  struct failure *failure) {
    struct rt_reason why;
    manifest->directory = directory ? strdup(directory) : default_directory();
    if (!manifest->directory)
        return failure_set(failure, EXIT_SYSTEM, RT_CODE_OPEN, "cannot determine the directory of the program");
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/manifest.json", manifest->directory);
    if (length >= (int)sizeof path)
        return failure_set(failure, EXIT_SYSTEM, RT_CODE_OPEN, "the path of the program's directory is too long");
    bool intact;
    manifest->document = rt_sealed_read(manifest->directory, "manifest.json", &intact, &why);
    int exit = EXIT_OK;
    if (!manifest->document) exit = failure_reason(failure, RT_CODE_MANIFEST, &why);
    if (!exit) exit = read_names(manifest, program, intact, failure);
    return exit ? failure_where(failure, "%s", rt_quote_text(path).text) : exit;
}

void manifest_free(struct manifest *manifest) {
    free(manifest->directory);
    free(manifest->inputs);
    free(manifest->outputs);
    free(manifest->below);
    free(manifest->ignored);
    free(manifest->ignores);
    rt_json_free(manifest->document);
}

void manifest_place(const struct manifest *manifest, int instruction, struct failure *failure) {
    char place[sizeof failure->where];
    if (rt_place_of(rt_json_root(manifest->document), instruction, place, sizeof place))
        failure_where(failure, "%s", place);
}

struct shape_text shape_format(int ndim, const int64_t *dims) {
    struct shape_text shape;
    size_t used = 1;
    shape.text[0] = '[';
    for (int i = 0; i < ndim; i++)
        used += (size_t)snprintf(shape.text + used, sizeof shape.text - used, "%s%" PRId64, i ? ", " : "", dims[i]);
    snprintf(shape.text + used, sizeof shape.text - used, "]");
    return shape;
}

/* The shape that the program needs of an input: sizes that are chosen at run time by name. whole: the same port with
 * the sizes so far, which those have that follow from others. */
static struct shape_text shape_needed(const struct rt_program *program, const struct rt_port *port,
                                      const struct rt_port *whole) {
    struct shape_text shape = {"["};
    size_t used = 1;
    for (int d = 0; d < port->ndim; d++) {
        const int s = rt_open_extent(port->dims[d]);
        char extent[24];
        snprintf(extent, sizeof extent, "%" PRId64, whole->dims[d]);
        if (s >= 0 && s < program->nsizes && (d || rt_inferred_micro_batches(program) == 1))
            snprintf(extent, 21, "%s", program->sizes[s].name);
        used += (size_t)snprintf(shape.text + used, sizeof shape.text - used, "%s%s", d ? ", " : "", extent);
    }
    snprintf(shape.text + used, sizeof shape.text - used, "]");
    return shape;
}

/* Least and greatest value of an integer type, clamped to the range of the return type. */
static int64_t least_of(enum rt_dtype t) {
    return rt_dtype_is_signed(t) ? -(int64_t)(UINT64_MAX >> (65 - rt_dtype_bits(t))) - 1 : 0;
}

static uint64_t greatest_of(enum rt_dtype t) {
    return UINT64_MAX >> (64 - rt_dtype_bits(t) + rt_dtype_is_signed(t));
}

/* Index of the first element that is out of the range of integer type `to`; -1: none. */
static int64_t first_misfit(const struct rt_tensor *tensor, enum rt_dtype to) {
    const unsigned char *at = tensor->data;
    const bool is_signed = rt_dtype_is_signed(tensor->dtype);
    for (int64_t i = 0; i < tensor->count; i++, at += rt_dtype_bytes(tensor->dtype)) {
        int64_t integer = 0;
        uint64_t natural;
        rt_convert(&natural, RT_U64, at, tensor->dtype, 1);
        if (is_signed) rt_convert(&integer, RT_I64, at, tensor->dtype, 1);
        if (integer < 0 ? integer < least_of(to) : natural > greatest_of(to)) return i;
    }
    return -1;
}

/* Converts between widths but not between kinds: a float file for an integer input is most likely a mistake. */
static int convert_input(struct rt_tensor *tensor, enum rt_dtype to, const char *name, struct failure *failure) {
    const enum rt_dtype from = tensor->dtype;
    if (from == to) return EXIT_OK;
    if (from == RT_BYTES && rt_dtype_is_code(to)) {
        tensor->dtype = to;
        return EXIT_OK;
    }
    if (!(rt_dtype_is_float(from) && rt_dtype_is_float(to)) && !(rt_dtype_is_integer(from) && rt_dtype_is_integer(to)))
        return failure_set(failure, EXIT_MALFORMED, RT_CODE_INPUT,
                           "input '%s' has data type %s, but the model needs %s", rt_quote_text(name).text,
                           rt_dtypes[from].name, rt_dtypes[to].name);
    int64_t misfit = rt_dtype_is_integer(from) ? first_misfit(tensor, to) : -1;
    if (misfit >= 0)
        return failure_set(failure, EXIT_MALFORMED, RT_CODE_INPUT, "input '%s': element %" PRId64 " does not fit %s",
                           rt_quote_text(name).text, misfit, rt_dtypes[to].name);
    int64_t bytes;
    if (!rt_mul(tensor->count, (int64_t)rt_dtype_bytes(to), &bytes)) bytes = INT64_MAX;
    void *converted = bytes < INT64_MAX ? malloc((size_t)bytes + 1) : NULL;
    if (!converted) return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    rt_convert(converted, to, tensor->data, from, (size_t)tensor->count);
    rt_tensor_free(tensor);
    tensor->data = tensor->owned = converted;
    tensor->dtype = to;
    return EXIT_OK;
}

/* Sizes that are not known yet. */
enum { UNKNOWN = -1 };

/* Takes sizes from the shape of an input. */
static int take_sizes(const struct rt_program *program, const struct rt_port *port, const struct rt_tensor *tensor,
                      const char *name, int64_t *sizes, struct failure *failure) {
    const int parts = port->shared ? 1 : rt_inferred_micro_batches(program);
    for (int d = 0; d < port->ndim && tensor->ndim == port->ndim; d++) {
        const int s = rt_open_extent(port->dims[d]);
        if (s < 0 || s >= program->nsizes) continue;
        const struct rt_size *size = &program->sizes[s];
        const int64_t here = d ? tensor->dims[d] : tensor->dims[d] / parts;
        char range[80];
        rt_size_range(size, range, sizeof range);
        if (!rt_size_fits(size, here) || (!d && tensor->dims[d] % parts))
            return failure_set(failure, EXIT_MALFORMED, RT_CODE_INPUT,
                               "dimension %d of input '%s', %s, is %lld, but the program was compiled for %s", d,
                               rt_quote_text(name).text, size->name, (long long)here, range);
        if (sizes[s] != UNKNOWN && sizes[s] != here)
            return failure_set(failure, EXIT_MALFORMED, RT_CODE_INPUT,
                               "dimension %d of input '%s', %s, is %lld, but another input or --dim has %lld", d,
                               rt_quote_text(name).text, size->name, (long long)here, (long long)sizes[s]);
        sizes[s] = here;
    }
    return EXIT_OK;
}

static int read_input(struct rt_tensor *tensor, const struct rt_program *program, const struct rt_port *port,
                      const char *name, const char *path, int64_t *sizes, struct failure *failure) {
    struct rt_reason why;
    bool ok = rt_has_suffix(path, ".pb") ? rt_tensor_pb_read(tensor, path, &why) : rt_npy_read(tensor, path, &why);
    int exit = ok ? EXIT_OK : failure_reason(failure, RT_CODE_INPUT, &why);
    if (!exit) exit = take_sizes(program, port, tensor, name, sizes, failure);
    return exit ? failure_where(failure, "%s", rt_quote_text(path).text) : exit;
}

static int check_input(struct rt_tensor *tensor, const struct rt_port *port, struct shape_text needed, const char *name,
                       const char *path, struct failure *failure) {
    int exit = EXIT_OK;
    if (!same_shape(tensor->ndim, tensor->dims, port))
        exit = failure_set(failure, EXIT_MALFORMED, RT_CODE_INPUT, "input '%s' has shape %s, but the model needs %s",
                           rt_quote_text(name).text, shape_format(tensor->ndim, tensor->dims).text, needed.text);
    if (!exit) exit = convert_input(tensor, port->dtype, name, failure);
    return exit ? failure_where(failure, "%s", rt_quote_text(path).text) : exit;
}

/* The port that NAME=FILE names, -1: none. Names may contain '=', so the longest matching name wins. */
static int find_port(const char *argument, const char *const *names, int count) {
    int best = -1;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(argument, names[i], length) != 0 || argument[length] != '=') continue;
        if (best < 0 || length > strlen(names[best])) best = i;
    }
    return best;
}

/* "'a', 'b'": the first names, as many as fit. */
static void list_names(char *text, size_t room, const char *const *names, int count) {
    size_t used = 0;
    for (int i = 0; i < count && used + 8 < room; i++) {
        const int length = snprintf(text + used, room - used, "%s'%s'", i ? ", " : "", rt_quote_text(names[i]).text);
        const bool fits = used + (size_t)length + 8 < room;
        if (!fits) snprintf(text + used, room - used, "%s..", used ? ", " : "");
        used = fits ? used + (size_t)length : room;
    }
}

int inputs_unknown(const char *option, const char *argument, const char *const *names, int count,
                   struct failure *failure) {
    const char *equals = strchr(argument, '=');
    if (!equals)
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s needs NAME=FILE, not '%s'", option,
                           rt_quote_text(argument).text);
    char word[128];
    snprintf(word, sizeof word, "%.*s", (int)(equals - argument < 127 ? equals - argument : 127), argument);
    failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "the model has no input '%s'", rt_quote_text(word).text);
    const char *meant = rt_nearest(word, names, count);
    if (!meant && count == 1) meant = names[0];
    if (meant) return failure_help(failure, "did you mean '%s'?", rt_quote_text(meant).text);
    char all[192] = "";
    list_names(all, sizeof all, names, count);
    return *all ? failure_help(failure, "its inputs are %s", all) : failure->exit;
}

static int missing_input(const struct rt_port *port, struct shape_text needed, const char *name,
                         struct failure *failure) {
    return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "needs --input %s=FILE (%s %s)", rt_quote_text(name).text,
                       rt_dtypes[port->dtype].name, needed.text);
}

/* Makes an input of random values; each input has a sequence of its own. */
static int make_input(struct rt_tensor *tensor, const struct rt_port *port, int64_t below, uint64_t seed,
                      struct failure *failure) {
    int64_t bytes;
    *tensor = (struct rt_tensor){.dtype = port->dtype, .ndim = port->ndim};
    memcpy(tensor->dims, port->dims, sizeof port->dims);
    if (rt_product(port->dims, port->ndim, &tensor->count) &&
        rt_mul(tensor->count, (int64_t)rt_dtype_bytes(port->dtype), &bytes))
        tensor->data = tensor->owned = malloc((size_t)bytes + 1);
    if (!tensor->data) return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    rt_random_fill(tensor->owned, port->dtype, tensor->count, seed, below);
    return EXIT_OK;
}

/* Reads the given inputs; *files: theirs. */
static int read_given(struct rt_tensor *inputs, const struct rt_program *program, const char *const *names,
                      const struct main_options *options, const char **files, int64_t *sizes, struct failure *failure) {
    for (int i = 0; i < options->inputs.n; i++) {
        const char *argument = options->inputs.at[i];
        const int port = find_port(argument, names, program->ninputs);
        if (port < 0) return inputs_unknown("--input", argument, names, program->ninputs, failure);
        if (inputs[port].data)
            return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "input '%s' is given twice",
                               rt_quote_text(names[port]).text);
        files[port] = argument + strlen(names[port]) + 1;
        const int exit =
            read_input(&inputs[port], program, &program->inputs[port], names[port], files[port], sizes, failure);
        if (exit) return exit;
    }
    return EXIT_OK;
}

/* The extent with size s as given; other unknown sizes are their least. `extents` has room for all. */
static int64_t extent_with(const struct rt_program *program, int extent, const int64_t *sizes, int s, int64_t value,
                           int64_t *extents) {
    int64_t trial[RT_MAX_SIZES];
    for (int i = 0; i < program->nsizes; i++) trial[i] = sizes[i] == UNKNOWN ? program->sizes[i].least : sizes[i];
    trial[s] = value;
    program->find_extents(trial, extents);
    return extents[extent];
}

/* The only unknown size that the extent depends on; -1: there is none, or several. */
static int only_unknown(const struct rt_program *program, int extent, const int64_t *sizes, int64_t *extents) {
    int only = -1;
    for (int s = 0; s < program->nsizes; s++) {
        const struct rt_size *size = &program->sizes[s];
        if (sizes[s] != UNKNOWN || extent_with(program, extent, sizes, s, size->least, extents) ==
                                       extent_with(program, extent, sizes, s, size->most, extents))
            continue;
        if (only >= 0) return -1;
        only = s;
    }
    return only;
}

/* Takes the size that dimension d of an input is linear in, as of "past + seq" where seq is known. *found: it was. */
static int solve_size(const struct rt_program *program, const struct rt_port *port, const struct rt_tensor *tensor,
                      int d, const char *name, int64_t *sizes, int64_t *extents, bool *found, struct failure *failure) {
    const int extent = rt_open_extent(port->dims[d]), s = only_unknown(program, extent, sizes, extents);
    if (s < 0) return EXIT_OK;
    const struct rt_size *size = &program->sizes[s];
    const int64_t here = d || port->shared ? tensor->dims[d] : tensor->dims[d] / rt_inferred_micro_batches(program);
    const int64_t first = extent_with(program, extent, sizes, s, size->least, extents);
    const int64_t slope = extent_with(program, extent, sizes, s, size->least + size->step, extents) - first;
    if (!slope) return EXIT_OK;
    const int64_t value = size->least + (here - first) / slope * size->step;
    char range[80];
    rt_size_range(size, range, sizeof range);
    if ((here - first) % slope || !rt_size_fits(size, value))
        return failure_set(failure, EXIT_MALFORMED, RT_CODE_INPUT,
                           "dimension %d of input '%s' is %lld, which would make %s %lld, but the program was compiled "
                           "for %s",
                           d, rt_quote_text(name).text, (long long)here, size->name, (long long)value, range);
    if (extent_with(program, extent, sizes, s, value, extents) != here) return EXIT_OK;
    sizes[s] = value;
    *found = true;
    return EXIT_OK;
}

/* Finds sizes that no dimension of an input is, but that one depends on. */
static int solve_sizes(const struct rt_tensor *inputs, const struct rt_program *program,
                       const struct manifest *manifest, int64_t *sizes, int64_t *extents, struct failure *failure) {
    bool found = program->nsizes > 0;
    while (found) {
        found = false;
        for (int i = 0; i < program->ninputs; i++)
            for (int d = 0; inputs[i].data && inputs[i].ndim == program->inputs[i].ndim && d < inputs[i].ndim; d++) {
                if (rt_open_extent(program->inputs[i].dims[d]) < program->nsizes) continue;
                const int exit = solve_size(program, &program->inputs[i], &inputs[i], d, manifest->inputs[i], sizes,
                                            extents, &found, failure);
                if (exit) return exit;
            }
    }
    return EXIT_OK;
}

static int64_t extent_at(const struct rt_program *program, int extent, const int64_t *sizes, int64_t *extents) {
    program->find_extents(sizes, extents);
    return extents[extent];
}

/* Lowers a size to the largest that keeps the limit. */
static void keep_limit(const struct rt_program *program, const struct rt_limit *limit, int s, int64_t *sizes,
                       int64_t *extents) {
    const struct rt_size *size = &program->sizes[s];
    int64_t keeps = 0, exceeds = (sizes[s] - size->least) / size->step; /* steps above the least size */
    while (exceeds - keeps > 1) {
        const int64_t middle = keeps + (exceeds - keeps) / 2;
        sizes[s] = size->least + middle * size->step;
        *(extent_at(program, limit->extent, sizes, extents) > limit->most ? &exceeds : &keeps) = middle;
    }
    sizes[s] = size->least + keeps * size->step;
}

/* Gives sizes that are not known the largest values, and lowers them, the first ones first, to what limits allow. */
static void choose_sizes(const struct rt_program *program, int64_t *sizes, int64_t *extents) {
    bool known[RT_MAX_SIZES];
    for (int s = 0; s < program->nsizes; s++) {
        known[s] = sizes[s] != UNKNOWN;
        if (!known[s]) sizes[s] = program->sizes[s].most;
    }
    for (int i = 0; i < program->nlimits; i++) {
        const struct rt_limit *limit = &program->limits[i];
        for (int s = 0; s < program->nsizes && extent_at(program, limit->extent, sizes, extents) > limit->most; s++)
            if (!known[s]) keep_limit(program, limit, s, sizes, extents);
    }
    if (program->nsizes) program->find_extents(sizes, extents);
}

/* Checks what was read for its shape, and makes the others, with the largest sizes where no input says another. */
static int complete(struct rt_tensor *inputs, const struct rt_program *program, const struct manifest *manifest,
                    const struct main_options *options, const char *const *files, int64_t *sizes, int64_t *extents,
                    struct failure *failure) {
    choose_sizes(program, sizes, extents);
    for (int i = 0; i < program->ninputs; i++) {
        const struct rt_port whole = rt_whole_port(program, &program->inputs[i], extents);
        const uint64_t seed = ((uint64_t)options->random_inputs << 32) + (uint64_t)i + 1;
        const struct shape_text needed = shape_needed(program, &program->inputs[i], &whole);
        if (!files[i] && options->random_inputs < 0) return missing_input(&whole, needed, manifest->inputs[i], failure);
        const int exit = files[i] ? check_input(&inputs[i], &whole, needed, manifest->inputs[i], files[i], failure)
                                  : make_input(&inputs[i], &whole, manifest->below[i], seed, failure);
        if (exit) return exit;
    }
    return EXIT_OK;
}

static int no_size(const struct rt_program *program, const char *argument, struct failure *failure) {
    const char *names[RT_MAX_SIZES];
    char word[128];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    for (int s = 0; s < program->nsizes; s++) names[s] = program->sizes[s].name;
    failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "--dim: the program has no open size '%s'",
                rt_quote_text(word).text);
    const char *meant = rt_nearest(word, names, program->nsizes);
    return meant ? failure_help(failure, "did you mean '%s'?", rt_quote_text(meant).text) : failure->exit;
}

/* Sets the sizes of --dim. */
static int take_dims(const struct rt_program *program, const struct main_options *options, int64_t *sizes,
                     struct failure *failure) {
    const char *names[RT_MAX_SIZES];
    for (int s = 0; s < program->nsizes; s++) names[s] = program->sizes[s].name;
    for (int i = 0; i < options->dims.n; i++) {
        const char *argument = options->dims.at[i];
        const int s = find_port(argument, names, program->nsizes);
        if (s < 0) return no_size(program, argument, failure);
        if (program->sizes[s].next)
            return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE,
                               "--dim: %s is the number of rows that the program keeps, which are none at first",
                               names[s]);
        const char *text = argument + strlen(names[s]) + 1;
        char *end, range[80];
        sizes[s] = strtoll(text, &end, 10);
        rt_size_range(&program->sizes[s], range, sizeof range);
        if (end == text || *end || !rt_size_fits(&program->sizes[s], sizes[s]))
            return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "--dim: %s is %s, not '%s'", names[s], range,
                               rt_quote_text(text).text);
    }
    return EXIT_OK;
}

int inputs_read_given(struct rt_tensor *inputs, const struct rt_program *program, const struct manifest *manifest,
                      const struct main_options *options, int64_t *sizes, struct failure *failure) {
    const char **files = calloc((size_t)program->ninputs + 1, sizeof *files);
    int exit = files ? EXIT_OK : failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    for (int s = 0; s < program->nsizes; s++) sizes[s] = UNKNOWN;
    if (!exit) exit = read_given(inputs, program, manifest->inputs, options, files, sizes, failure);
    for (int i = 0; i < program->ninputs && !exit; i++) {
        if (!files[i]) continue;
        exit = convert_input(&inputs[i], program->inputs[i].dtype, manifest->inputs[i], failure);
        if (!exit && inputs[i].ndim != program->inputs[i].ndim)
            exit = failure_set(failure, EXIT_MALFORMED, RT_CODE_INPUT, "input '%s' has %d dimension(s), not %d",
                               rt_quote_text(manifest->inputs[i]).text, inputs[i].ndim, program->inputs[i].ndim);
        if (exit) failure_where(failure, "%s", rt_quote_text(files[i]).text);
    }
    free(files);
    return exit;
}

int inputs_read(struct rt_tensor *inputs, const struct rt_program *program, const struct manifest *manifest,
                const struct main_options *options, int64_t *sizes, struct failure *failure) {
    const char **files = calloc((size_t)program->ninputs + 1, sizeof *files);
    int64_t *extents = calloc((size_t)program->nextents + 1, sizeof *extents);
    int exit = files && extents ? EXIT_OK : failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    for (int s = 0; s < program->nsizes; s++) sizes[s] = program->sizes[s].next ? 0 : UNKNOWN; /* 0: an empty state */
    if (!exit) exit = take_dims(program, options, sizes, failure);
    if (!exit) exit = read_given(inputs, program, manifest->inputs, options, files, sizes, failure);
    if (!exit) exit = solve_sizes(inputs, program, manifest, sizes, extents, failure);
    if (!exit) exit = complete(inputs, program, manifest, options, files, sizes, extents, failure);
    free(files);
    free(extents);
    return exit;
}

/* The file of --input for an input, NULL: none. */
static const char *file_of(const struct job *job, int port) {
    const char *const *names = job->manifest.inputs;
    for (int i = 0; i < job->options.inputs.n; i++)
        if (find_port(job->options.inputs.at[i], names, job->program->ninputs) == port)
            return job->options.inputs.at[i] + strlen(names[port]) + 1;
    return NULL;
}

void inputs_add_terms(struct rt_terms *terms, const struct job *job) {
    for (int i = 0; i < job->program->ninputs; i++) {
        const struct rt_tensor *input = &job->inputs[i];
        char hash[RT_HASH_HEX], content[RT_HASH_HEX + 8];
        if (!input->data) continue;
        rt_hash_bytes(input->data, (size_t)input->count * rt_dtype_bytes(input->dtype), hash);
        snprintf(content, sizeof content, "hash %s", hash);
        options_add_content(terms, "--input", job->manifest.inputs[i], file_of(job, i), content);
    }
}
