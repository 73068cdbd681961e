#include "frontend/driver/output/output.h"

#include <dirent.h>
#include <string.h>

#include "frontend/driver/output/integrity.h"
#include "ir/base/map.h"
#include "ir/base/own.h"

enum { BYTES_MOST = 1 << 30 };

/* Copies a file of the result into the staging directory: 1; 0 if it cannot be read, since it was deleted; -1 after a
 * diagnostic. */
static int copy(struct output *output, const char *from, const char *to) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file_below(output->arena, output->directory, from, BYTES_MOST, &bytes, &count, &why)) return 0;
    const int status = output_write(output, to, bytes, count);
    arena_release(output->arena, bytes);
    return status < 0 ? -1 : 1;
}

static void close_stream(void *stream) {
    closedir(stream);
}

/* Copies what earlier compiles have kept, and enters the names in `taken`. */
static int keep_copies(struct output *output, struct map *taken) {
    DIR *stream = opendir(output->directory);
    int status = 0;
    if (!stream) return 0;
    arena_own(output->arena, stream, close_stream);
    for (struct dirent *entry; status >= 0 && (entry = readdir(stream));) {
        if (!integrity_is_copy(entry->d_name)) continue;
        const char *name = arena_strdup(output->arena, entry->d_name);
        map_set(taken, name, 1);
        status = copy(output, name, name);
    }
    arena_release(output->arena, stream);
    return status;
}

static int keep(struct output *output, const char *path, struct map *taken) {
    const char *name = path;
    for (int n = 1; n == 1 || map_find(taken, name) >= 0; n++)
        name = arena_printf(output->arena, "%s" INTEGRITY_COPY "%d", path, n);
    map_set(taken, name, 1);
    const int copied = copy(output, path, name);
    if (copied > 0) diag_remark(output->diags, path, "the edited file is kept as %s", diag_quote(output->diags, name));
    return copied;
}

int edited_keep(struct output *output) {
    struct rt_reason why;
    bool intact = false;
    struct rt_json_document *document = own_sealed(output->arena, output->directory, "manifest.json", &intact, &why);
    const struct rt_json *root = document && intact ? rt_json_root(document) : NULL,
                         *files = rt_json_member(root, "files");
    struct map taken = {.arena = output->arena};
    if (keep_copies(output, &taken) < 0) return -1;
    for (const struct rt_json *f = rt_json_first(files); f; f = f->next) {
        const char *path = rt_json_text(rt_json_member(f, "path"));
        if (!path || strchr(path, '/')) continue;
        struct diags unread = {.arena = output->arena};
        if (integrity_check_file(output->directory, root, path, &unread) == 0 && keep(output, path, &taken) < 0)
            return -1;
    }
    return 0;
}
