/* Writes outputs as files, or prints a summary. */
#include "program/main.h"

#include "base/number/checked.h"
#include "base/io/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SHOWN 6 /* elements in a summary */

/* Gives the output the shape that follows from the extents. False: it has too many elements. */
static bool set_shape(struct rt_tensor *tensor, const struct rt_program *program, int output, const int64_t *extents) {
    const struct rt_port port = rt_whole_port(program, &program->outputs[output], extents);
    tensor->dtype = port.dtype;
    tensor->ndim = port.ndim;
    memcpy(tensor->dims, port.dims, sizeof port.dims);
    return rt_product(port.dims, port.ndim, &tensor->count);
}

/* What follows from the sizes, in memory of its own; NULL: out of memory. */
static int64_t *find_extents(const struct rt_program *program, const int64_t *sizes) {
    int64_t *extents = calloc((size_t)program->nextents + 1, sizeof *extents);
    if (extents && program->nsizes) program->find_extents(sizes, extents);
    return extents;
}

int outputs_allocate(struct rt_tensor *outputs, const struct rt_program *program, struct failure *failure) {
    int64_t sizes[RT_MAX_SIZES];
    rt_most_sizes(program, sizes);
    int64_t *extents = find_extents(program, sizes);
    bool ok = extents != NULL;
    for (int i = 0; i < program->noutputs && ok; i++) {
        const int64_t bytes = rt_most_bytes(program, &program->outputs[i], extents);
        if (set_shape(&outputs[i], program, i, extents) && bytes >= 0)
            outputs[i].data = outputs[i].owned = malloc((size_t)bytes + 1);
        ok = outputs[i].data;
    }
    free(extents);
    return ok ? EXIT_OK : failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

int outputs_resize(struct rt_tensor *outputs, const struct rt_program *program, const int64_t *sizes,
                   struct failure *failure) {
    if (!program->nsizes) return EXIT_OK;
    int64_t *extents = find_extents(program, sizes);
    for (int i = 0; i < program->noutputs && extents; i++) set_shape(&outputs[i], program, i, extents);
    free(extents);
    return extents ? EXIT_OK : failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

/* Keeps the first `n` of the indices of dimension `dim`. */
static void cut_tensor(struct rt_tensor *tensor, int dim, int64_t n) {
    int64_t before = 1, behind = 1, extent = tensor->dims[dim];
    for (int d = 0; d < dim; d++) before *= tensor->dims[d];
    for (int d = dim + 1; d < tensor->ndim; d++) behind *= tensor->dims[d];
    const size_t row = (size_t)(behind * (int64_t)rt_dtype_bytes(tensor->dtype));
    unsigned char *data = tensor->owned;
    for (int64_t i = 1; i < before; i++)
        memmove(data + (size_t)(i * n) * row, data + (size_t)(i * extent) * row, (size_t)n * row);
    tensor->dims[dim] = n;
    tensor->count = before * n * behind;
}

void outputs_trim(struct rt_tensor *outputs, const struct rt_program *program) {
    for (int i = 0; i < program->noutputs; i++) {
        const struct rt_port *port = &program->outputs[i];
        if (!port->count) continue;
        const int64_t n = *(const int64_t *)outputs[port->count - 1].data, most = outputs[i].dims[port->dim];
        cut_tensor(&outputs[i], port->dim, n < 0 ? 0 : n < most ? n : most);
    }
}

/* True of a count of another output, which is neither written nor printed. */
static bool is_count(const struct rt_program *program, int output) {
    for (int i = 0; i < program->noutputs; i++)
        if (program->outputs[i].count == output + 1) return true;
    return false;
}

static bool is_plain(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
}

static bool is_taken(char (*files)[NAME_MAX + 1], int count, const char *file) {
    for (int i = 0; i < count; i++)
        if (strcmp(files[i], file) == 0) return true;
    return false;
}

/* File name of an output: bytes other than letters, digits and "_.-" become '_', truncated to the file system's limit,
 * made unique by -2, -3, .. */
static void name_file(char (*files)[NAME_MAX + 1], int index, const char *name) {
    char stem[200];
    size_t length = 0;
    for (; length < sizeof stem - 1 && name[length]; length++)
        stem[length] = is_plain(name[length]) ? name[length] : '_';
    stem[length] = 0;
    if (stem[0] == '.') stem[0] = '_'; /* neither hidden nor a directory */
    snprintf(files[index], sizeof *files, "%s.npy", length ? stem : "_");
    for (int copy = 2; is_taken(files, index, files[index]); copy++)
        snprintf(files[index], sizeof *files, "%s-%d.npy", length ? stem : "_", copy);
}

int outputs_directory(const char *path, struct failure *failure) {
    if (rt_make_directories(path)) return EXIT_OK;
    return failure_set(failure, EXIT_SYSTEM, RT_CODE_WRITE, "cannot create the directory '%s': %s",
                       rt_quote_text(path).text, strerror(errno));
}

static int write_failure(struct failure *failure, const struct rt_reason *why) {
    const struct rt_report report = rt_reason_report(why, (struct rt_report){RT_CODE_WRITE, EXIT_SYSTEM});
    return failure_set(failure, report.exit, report.code, "%s", why->text);
}

static int write_index(const struct rt_tensor *outputs, const struct rt_program *program, const char *const *names,
                       char (*files)[NAME_MAX + 1], const char *directory, struct failure *failure) {
    struct rt_json_writer w;
    struct rt_reason why;
    char path[PATH_MAX];
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_LINES);
    rt_json_key_int(&w, "format", 1);
    rt_json_key_open(&w, "outputs", '[', RT_JSON_LINES);
    for (int i = 0; i < program->noutputs; i++) {
        if (is_count(program, i)) continue;
        rt_json_open(&w, '{', RT_JSON_INLINE);
        rt_json_key_text(&w, "name", names[i]);
        rt_json_key_text(&w, "file", files[i]);
        rt_json_key_text(&w, "dtype", rt_dtypes[outputs[i].dtype].name);
        rt_json_key_dims(&w, "shape", outputs[i].dims, outputs[i].ndim);
        rt_json_close(&w, '}');
    }
    rt_json_close(&w, ']');
    rt_json_close(&w, '}');
    bool ok = rt_json_end(&w, &why);
    if (ok) {
        snprintf(path, sizeof path, "%s/outputs.json", directory);
        ok = rt_file_write(path, &(struct rt_piece){w.text, w.bytes}, 1, &why);
    }
    rt_json_discard(&w);
    return ok ? EXIT_OK : write_failure(failure, &why);
}

int outputs_write(const struct rt_tensor *outputs, const struct rt_program *program, const struct manifest *manifest,
                  const char *directory, struct failure *failure) {
    const int count = program->noutputs;
    struct rt_reason why;
    char path[PATH_MAX];
    int exit = outputs_directory(directory, failure);
    if (exit) return exit;
    char(*files)[NAME_MAX + 1] = calloc((size_t)count + 1, sizeof *files);
    if (!files) return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    for (int i = 0; i < count && !exit; i++) {
        name_file(files, i, manifest->outputs[i]);
        if (is_count(program, i)) continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, files[i]) >= (int)sizeof path)
            exit = failure_set(failure, EXIT_SYSTEM, RT_CODE_WRITE, "--output-dir is too long");
        else if (!rt_npy_write(path, outputs[i].dtype, outputs[i].ndim, outputs[i].dims, outputs[i].data, &why))
            exit = write_failure(failure, &why);
    }
    if (!exit) exit = write_index(outputs, program, manifest->outputs, files, directory, failure);
    free(files);
    return exit;
}

static double mean_of(const struct rt_tensor *tensor) {
    const unsigned char *at = tensor->data;
    double sum = 0;
    for (int64_t i = 0; i < tensor->count; i++, at += rt_dtype_bytes(tensor->dtype)) {
        double value;
        rt_convert(&value, RT_F64, at, tensor->dtype, 1);
        sum += value;
    }
    return tensor->count ? sum / (double)tensor->count : 0;
}

static void print_output(const struct rt_tensor *tensor, const char *name) {
    const unsigned char *at = tensor->data;
    printf("%s %s %s:", rt_quote_text(name).text, rt_dtypes[tensor->dtype].name,
           shape_format(tensor->ndim, tensor->dims).text);
    for (int64_t i = 0; i < tensor->count && i < SHOWN; i++, at += rt_dtype_bytes(tensor->dtype)) {
        double value;
        rt_convert(&value, RT_F64, at, tensor->dtype, 1);
        printf(" %.6g", value);
    }
    printf("%s (mean %.6g)\n", tensor->count > SHOWN ? " ..." : "", mean_of(tensor));
}

void outputs_print(const struct rt_tensor *outputs, const struct rt_program *program, const struct manifest *manifest) {
    for (int i = 0; i < program->noutputs; i++)
        if (!is_count(program, i)) print_output(&outputs[i], manifest->outputs[i]);
}
