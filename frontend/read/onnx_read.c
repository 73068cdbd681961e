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

static int cannot_open(struct onnx_model *model) {
    return diag_error(model->diags, 601, EXIT_SYSTEM, model->place, "cannot open %s: %s",
                      diag_quote(model->diags, model->path), strerror(errno));
}

static int not_regular(struct onnx_model *model, mode_t mode) {
    return diag_error(model->diags, 602, EXIT_SYSTEM, model->place, "%s is %s", diag_quote(model->diags, model->path),
                      S_ISDIR(mode) ? "a directory, not a model file" : "not a regular file");
}

/* Looked at before it is opened, since opening a device may have effects; and after, since it may have been
 * replaced. */
static int open_file(struct onnx_model *model) {
    struct stat status;
    if (stat(model->path, &status) != 0) return cannot_open(model);
    if (!S_ISREG(status.st_mode)) return not_regular(model, status.st_mode);
    model->fd = open(model->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (model->fd < 0 || fstat(model->fd, &status) != 0) return cannot_open(model);
    if (!S_ISREG(status.st_mode)) return not_regular(model, status.st_mode);
    if (status.st_size == 0) return diag_error(model->diags, 301, EXIT_MALFORMED, model->place, "model file is empty");
    return onnx_file_add(model, model->fd, model->path, NULL, model->place) < 0 ? -1 : 0;
}

static int open_directory(struct onnx_model *model) {
    const char *slash = strrchr(model->path, '/');
    const char *name = slash ? arena_printf(model->arena, "%.*s", (int)(slash - model->path) + 1, model->path) : ".";
    model->directory = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return model->directory < 0 ? cannot_open(model) : 0;
}

/* ---- bytes to tree ---- */

static void *tree_alloc(void *arena, size_t bytes) {
    return arena_alloc(arena, 1, bytes);
}
static void tree_free(void *arena, void *object) {
    (void)arena;
    (void)object;
}

static int unpack(struct onnx_model *model) {
    ProtobufCAllocator allocator = {tree_alloc, tree_free, model->arena};
    model->proto = onnx__model_proto__unpack(&allocator, model->slim.length, model->slim.bytes);
    if (model->proto) return 0;
    return diag_error(model->diags, 302, EXIT_MALFORMED, model->place, "not an ONNX model: protobuf-c refuses it");
}

static int scan(struct onnx_model *model) {
    const struct onnx_file *file = &model->files.at[0];
    struct scan_source source = {
        .bytes = file->mapped ? NULL : file->data, .fd = model->fd, .size = (uint64_t)file->bytes};
    if (file->mapped) source.window = arena_alloc(model->arena, SCAN_WINDOW, 1);
    return onnx_scan(model->arena, model->diags, model->place, &source, &model->slim, &model->spans);
}

static void drop_slim(struct onnx_model *model) {
    free(model->slim.bytes);
    model->slim = (struct onnx_slim){0};
}

static int read_tree(struct onnx_model *model) {
    if (scan(model) || unpack(model)) return -1;
    drop_slim(model);
    if (!onnx_file_changed(&model->files.at[0], model->fd)) return 0;
    return onnx_file_refuse(model, &model->files.at[0]);
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
    struct onnx_model *model = *out = ARENA_NEW(arena, struct onnx_model);
    *model = (struct onnx_model){.arena = arena, .diags = diags, .fd = -1, .directory = -1, .allow_links = allow_links};
    arena_own(arena, model, close_model);
    model->path = arena_strdup(arena, path);
    model->place = str_escape(arena, path, strlen(path), 120);
    arena_init(&model->scratch, arena->budget, arena->failed);
    map_init(&model->locations, arena);
    map_init(&model->copies, arena);
    int result = open_file(model);
    if (result == 0) result = read_tree(model);
    close_fd(&model->fd);
    if (result == 0) result = open_directory(model);
    if (result == 0) result = onnx_check(model);
    arena_free(&model->scratch);
    return result;
}

void onnx_close(struct onnx_model *model) {
    if (!model) return;
    for (int i = 0; i < model->files.n; i++) onnx_file_drop(&model->files.at[i]);
    model->files.n = 0;
    drop_slim(model);
    arena_free(&model->scratch);
    close_fd(&model->fd);
    close_fd(&model->directory);
}
