#include "frontend/driver/files/user_ops.h"

#include <string.h>
#include <sys/stat.h>

#include "ir/base/own.h"
#include "ir/text.h"
#include "ir/user.h"
#include "runtime/base/io/file.h"

enum { MAX_DECLARATIONS = 1 << 20, MAX_KERNEL = 4 << 20 }; /* bytes of a file */

struct reader {
    const struct graph *graph;
    struct arena *arena;
    struct diags *diags;
    const char *directory;
    bool may_miss; /* files */
};

static int read_kernel(const struct reader *reader, struct user_kernel *kernel) {
    const char *path = arena_printf(reader->arena, "%s/%s", reader->directory, kernel->file);
    struct rt_reason why;
    struct stat info;
    void *bytes;
    if (reader->may_miss && lstat(path, &info) < 0) return 0;
    bool good = reader->may_miss ? own_file_below(reader->arena, reader->directory, kernel->file, MAX_KERNEL, &bytes,
                                                  &kernel->bytes, &why)
                                 : own_file(reader->arena, path, MAX_KERNEL, &bytes, &kernel->bytes, &why);
    if (!good) return diag_refusal(reader->diags, 601, EXIT_SYSTEM, diag_quote(reader->diags, path), &why);
    kernel->text = bytes;
    return 0;
}

/* Kernels are copied to one folder, so files of the same name must have the same content. */
static int check_name(const struct reader *reader, const struct user_kernel *kernel) {
    for (int i = 0; i < reader->graph->operators.n; i++)
        EACH(reader->graph->operators.at[i]->kernel, USER_TARGETS, t, const struct user_kernel *other) {
            if (!other->text || other == kernel || strcmp(other->file, kernel->file) != 0) continue;
            if (other->bytes != kernel->bytes || memcmp(other->text, kernel->text, kernel->bytes) != 0)
                return diag_error(reader->diags, 391, EXIT_MALFORMED, NULL,
                                  "two kernels of different content are called %s",
                                  diag_quote(reader->diags, rt_path_name(kernel->file)));
        }
    return 0;
}

/* Reads the kernels and renames their files as in a compiled result. */
static int read_kernels(const struct reader *reader, char hash[RT_HASH_HEX]) {
    struct rt_hash sum;
    rt_hash_start(&sum);
    for (int i = 0; i < reader->graph->operators.n; i++)
        EACH(reader->graph->operators.at[i]->kernel, USER_TARGETS, t, struct user_kernel *const kernel) {
            if (!kernel->file) continue;
            if (read_kernel(reader, kernel) < 0) return -1;
            kernel->file = arena_printf(reader->arena, "operators/%s", rt_path_name(kernel->file));
            if (check_name(reader, kernel) < 0) return -1;
            rt_hash_field(&sum, kernel->text, kernel->bytes);
        }
    const char *declarations = text_print(reader->arena, reader->graph);
    rt_hash_text(&sum, strchr(declarations, '\n') + 1);
    rt_hash_hex(&sum, hash);
    return 0;
}

static const char *directory_of(struct arena *arena, const char *path) {
    size_t length = strlen(path) - strlen(rt_path_name(path));
    return length ? arena_copy(arena, path, length) : ".";
}

int user_ops_read(struct arena *arena, struct diags *diags, const char *path, struct graph **declared,
                  char hash[RT_HASH_HEX]) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file(arena, path, MAX_DECLARATIONS, &bytes, &count, &why))
        return diag_refusal(diags, 345, EXIT_MALFORMED, diag_quote(diags, path), &why);
    int status = text_parse_operators(arena, diags, path, bytes, count, declared);
    arena_release(arena, bytes);
    if (status < 0) return -1;
    (*declared)->name = "operators"; /* not the path, so that the hash is one of content */
    struct reader reader = {*declared, arena, diags, directory_of(arena, path), false};
    return read_kernels(&reader, hash);
}

int user_ops_attach(const struct graph *graph, const char *directory, char hash[RT_HASH_HEX], struct diags *diags) {
    struct reader reader = {graph, graph->arena, diags, directory, true};
    return graph->operators.n ? read_kernels(&reader, hash) : 0;
}
