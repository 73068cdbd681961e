/* --bind: inputs that are constants, given as tensors or as numbers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/import/import_sizes.h"
#include "frontend/import/import_state.h"
#include "runtime/base/number/checked.h"

/* A number as it is written. */
struct written {
    double real;
    int64_t whole;
    bool is_whole;
};

/* The number that the text begins with; *end is set behind it. False if there is none. */
static bool read_number(const char *text, const char **end, struct written *number) {
    char *after;
    for (int i = 0; i < 2; i++) {
        const char *word = i ? "true" : "false";
        if (strncmp(text, word, strlen(word)) != 0) continue;
        *number = (struct written){i, i, true};
        *end = text + strlen(word);
        return true;
    }
    if (!strchr("+-.0123456789", *text)) return false;
    number->real = strtod(text, &after);
    *end = after;
    if (after == text) return false;
    errno = 0;
    number->whole = strtoll(text, &after, 10);
    number->is_whole = after == *end && !errno;
    return true;
}

/* Stores the number as an element of that type; false if it is none of it. */
static bool store(void *to, enum rt_dtype dtype, const struct written *number) {
    int64_t stored;
    rt_convert(to, dtype, &number->real, RT_F64, 1);
    if (rt_dtype_is_float(dtype)) return true;
    rt_convert(to, dtype, &number->whole, RT_I64, 1);
    rt_convert(&stored, RT_I64, to, dtype, 1);
    return number->is_whole && stored == number->whole;
}

/* The numbers in the text: how many, or -1 if it has something else. `values`, unless NULL, are set to them; -1,
 * too, if one is not of the type. */
static int64_t read_numbers(const char *text, enum rt_dtype dtype, unsigned char *values) {
    struct written number;
    for (int64_t n = 0; *text && read_number(text, &text, &number) && (!*text || *text == ','); text++) {
        if (values && !store(values + (size_t)n * rt_dtype_bytes(dtype), dtype, &number)) return -1;
        n++;
        if (!*text) return n;
    }
    return -1;
}

bool import_is_numbers(const char *text) {
    return read_numbers(text, RT_F64, NULL) > 0;
}

/* True if `count` numbers are all elements of the last dimensions, from some dimension on: what is in front has copies
 * of them, as where NumPy broadcasts. */
static bool repeats(const struct rt_tensor *tensor, int64_t count) {
    int64_t behind = 1;
    int d = tensor->ndim;
    while (d > 0 && behind < count) behind *= tensor->dims[--d];
    return behind == count || count == 1;
}

/* The shape of `count` numbers for the input: its own, whose only open dimension has the size that is left; if it is
 * not declared, none for one number, else one dimension. Of an input without open dimensions they may be repeated.
 * False if they do not fit. */
static bool shape_of(struct sizes *sizes, const Onnx__ValueInfoProto *info, int64_t count, struct rt_tensor *tensor) {
    const Onnx__TensorShapeProto *shape = sizes_tensor_type(info)->shape;
    int64_t known = 1, open = -1;
    tensor->ndim = shape ? (int)shape->n_dim : count > 1;
    for (int d = 0; d < tensor->ndim; d++) {
        int64_t size = shape ? sizes_of(sizes, info, (size_t)d) : OPEN;
        tensor->dims[d] = size == OPEN ? 1 : size;
        if (size != OPEN && size < 0) return false; /* chosen by each run */
        if (size == OPEN && open >= 0 && count > 1) return false;
        if (size == OPEN) open = d;
        if (!rt_mul(known, tensor->dims[d], &known)) return false;
    }
    if (open >= 0 && known && count % known == 0) tensor->dims[open] = count / known, known = count;
    tensor->count = known;
    return known == count || (open < 0 && repeats(tensor, count));
}

/* Reads `count` numbers into the tensor, and repeats them; false if one is not of its type. */
static bool fill(struct rt_tensor *tensor, const char *text, int64_t count, struct arena *arena) {
    const size_t element = rt_dtype_bytes(tensor->dtype), given = (size_t)count * element;
    unsigned char *values = arena_alloc(arena, (size_t)(tensor->count > count ? tensor->count : count), element);
    tensor->data = values;
    if (read_numbers(text, tensor->dtype, values) != count) return false;
    for (int64_t done = count; done < tensor->count; done += count)
        memcpy(values + (size_t)done * element, values, given);
    return true;
}

static int numbers_of(struct sizes *sizes, const Onnx__ValueInfoProto *info, const char *text,
                      struct rt_tensor *tensor) {
    struct import *import = sizes->import;
    const Onnx__TypeProto__Tensor *type = sizes_tensor_type(info);
    const char *where = onnx_where(import->model, "input", info->name);
    const int64_t count = read_numbers(text, RT_F64, NULL);
    tensor->dtype = type ? rt_dtype_by_onnx(type->elem_type) : RT_DTYPE_NONE;
    if (tensor->dtype == RT_DTYPE_NONE || (type->shape && type->shape->n_dim > RT_MAX_NDIM) ||
        !shape_of(sizes, info, count, tensor))
        return diag_error(import->diags, 342, EXIT_MALFORMED, where,
                          "--bind gives %lld number(s), but the input is declared as %s", (long long)count,
                          sizes_declared(type, import->arena));
    if (fill(tensor, text, count, import->arena)) return 0;
    return diag_error(import->diags, 342, EXIT_MALFORMED, where, "--bind gives numbers that are not of type %s",
                      rt_dtypes[tensor->dtype].name);
}

/* Checks the value of a bound input against its declaration; symbolic dimensions get their sizes from it. */
static int bind_input(struct sizes *sizes, const Onnx__ValueInfoProto *info, const struct rt_tensor *given) {
    struct import *import = sizes->import;
    const Onnx__TypeProto__Tensor *type = sizes_tensor_type(info);
    const char *where = onnx_where(import->model, "input", info->name);
    const bool fits = type && rt_dtype_by_onnx(type->elem_type) == given->dtype;
    if (fits && sizes_shape(sizes, onnx_text(info->name)))
        return diag_error(import->diags, 201, EXIT_USAGE, where, "--shape and --bind both give the input a shape");
    if (fits && sizes_bind(sizes, info, given->ndim, given->dims)) return 0;
    struct tensor values = {.dtype = given->dtype, .ndim = given->ndim};
    memcpy(values.dims, given->dims, sizeof given->dims);
    return diag_error(import->diags, 342, EXIT_MALFORMED, where, "--bind gives %s, but the input is declared as %s",
                      tensor_type(import->arena, &values), type ? sizes_declared(type, import->arena) : "no tensor");
}

void import_binds(struct sizes *sizes, struct scope *scope) {
    struct import *import = sizes->import;
    EACH(import->options->binds, import->options->nbinds, i, const struct import_bind *bind) {
        int k = 0;
        while (k < import->ports.n && strcmp(onnx_text(import->ports.at[k]->name), bind->input) != 0) k++;
        if (k == import->ports.n) {
            import_no_input(import, "--bind", bind->input);
            continue;
        }
        struct rt_tensor given = bind->tensor;
        const Onnx__ValueInfoProto *info = import->ports.at[k];
        bool fits = !bind->numbers || numbers_of(sizes, info, bind->numbers, &given) == 0;
        fits = fits && bind_input(sizes, info, &given) == 0;
        scope_define(scope, bind->input,
                     fits ? lowering_constant(&import->lowering, bind->input, given.dtype, given.ndim, given.dims,
                                              given.data, given.dtype)
                          : POISONED);
    }
}
