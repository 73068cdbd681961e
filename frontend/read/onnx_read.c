#include "frontend/read/onnx_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/read/onnx_check.h"
#include "frontend/read/onnx_data.h"
#include "frontend/read/onnx_scan.h"
#include "ir/base/str.h"

static int not_regular(struct onnx_model *model, mode_t mode) {
    return diag_error(model->diags, 602, EXIT_SYSTEM, model->place, "%s is %s", diag_quote(model->diags, model->path),
                      S_ISDIR(mode) ? "a directory, not a model file" : "not a regular file");
}

/* Checks the file's type before opening, since opening a device may have side effects, and again afterwards, since the
 * file may have been replaced in between. */
static int open_file(struct onnx_model *model) {
    struct stat status;
    if (stat(model->path, &status) != 0) return diag_errno(model->diags, 601, model->place, "open", model->path);
    if (!S_ISREG(status.st_mode)) return not_regular(model, status.st_mode);
    model->fd = open(model->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (model->fd < 0 || fstat(model->fd, &status) != 0)
        return diag_errno(model->diags, 601, model->place, "open", model->path);
    if (!S_ISREG(status.st_mode)) return not_regular(model, status.st_mode);
    if (status.st_size == 0) return diag_error(model->diags, 301, EXIT_MALFORMED, model->place, "model file is empty");
    return onnx_file_add(model, model->fd, model->path, NULL, model->place) < 0 ? -1 : 0;
}

static int open_directory(struct onnx_model *model) {
    const char *slash = strrchr(model->path, '/');
    const char *name = slash ? arena_printf(model->arena, "%.*s", (int)(slash - model->path) + 1, model->path) : ".";
    model->directory = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return model->directory < 0 ? diag_errno(model->diags, 601, model->place, "open", model->path) : 0;
}

/* ---- bytes to tree ---- */

static void *tree_alloc(void *arena, size_t bytes) {
    return arena_alloc(arena, 1, bytes);
}
static void tree_free(void *arena, void *object) {
    (void)arena;
    (void)object;
}

static void drop_stripped(struct onnx_model *model) {
    free(model->stripped.bytes);
    model->stripped = (struct onnx_stripped){0};
}

/* Scans the file into a copy without tensor data, which protobuf-c unpacks into model->proto. */
static int read_tree(struct onnx_model *model) {
    const struct onnx_file *file = &model->files.at[0];
    ProtobufCAllocator allocator = {tree_alloc, tree_free, model->arena};
    struct scan_source source = {
        .bytes = file->mapped ? NULL : file->data, .fd = model->fd, .size = (uint64_t)file->bytes};
    if (file->mapped) source.window = arena_alloc(model->arena, SCAN_WINDOW, 1);
    if (onnx_scan(model->arena, model->diags, model->place, &source, &model->stripped, &model->spans)) return -1;
    model->proto = onnx__model_proto__unpack(&allocator, model->stripped.length, model->stripped.bytes);
    if (!model->proto)
        return diag_error(model->diags, 302, EXIT_MALFORMED, model->place, "not an ONNX model: protobuf-c rejects it");
    drop_stripped(model);
    return onnx_file_changed(file, model->fd) ? onnx_file_refuse(model, file) : 0;
}

/* ---- the model ---- */

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void close_model(void *model) {
    onnx_close(model);
}

int onnx_open(struct arena *arena, struct diags *diags, const char *path, bool allow_links, struct onnx_model **out) {
    return onnx_open_with(arena, diags, path, allow_links, NULL, out);
}

int onnx_open_with(struct arena *arena, struct diags *diags, const char *path, bool allow_links,
                   const struct onnx_weights_from *weights, struct onnx_model **out) {
    struct onnx_model *model = *out = ARENA_NEW(arena, struct onnx_model);
    *model = (struct onnx_model){.arena = arena, .diags = diags, .fd = -1, .directory = -1, .allow_links = allow_links};
    arena_own(arena, model, close_model);
    model->path = arena_strdup(arena, path);
    model->place = str_escape(arena, path, strlen(path), 120);
    arena_init(&model->scratch, arena->budget, arena->failed);
    map_init(&model->locations, arena);
    map_init(&model->copies, arena);
    map_init(&model->moved, arena);
    int result = open_file(model);
    if (result == 0) result = read_tree(model);
    close_fd(&model->fd);
    if (result == 0) result = open_directory(model);
    if (result == 0 && weights) result = onnx_weights_open(model, weights);
    if (result == 0) result = onnx_check(model);
    arena_free(&model->scratch);
    return result;
}

void onnx_close(struct onnx_model *model) {
    if (!model) return;
    for (int i = 0; i < model->files.n; i++) onnx_file_drop(&model->files.at[i]);
    model->files.n = 0;
    drop_stripped(model);
    arena_free(&model->scratch);
    close_fd(&model->fd);
    close_fd(&model->directory);
}
