#include "frontend/driver/output/integrity.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/manifest/manifest.h"
#include "ir/base/own.h"
#include "runtime/base/number/hash.h"

enum { DEPTH = 8 /* deepest nesting of directories in a result */ };

struct walk {
    const char *directory;
    const struct rt_json *manifest;
    struct arena *arena;
    struct diags *diags;
};

const struct rt_json *integrity_entry(const struct rt_json *manifest, const char *name) {
    for (const struct rt_json *f = rt_json_items(manifest, "files"); f; f = f->next) {
        const char *path = rt_json_text(rt_json_member(f, "path"));
        if (path && strcmp(path, name) == 0) return f;
    }
    return NULL;
}

bool integrity_is_copy(const char *name) {
    const char *at = NULL;
    for (const char *next = name; (next = strstr(next, INTEGRITY_COPY)); next++) at = next + sizeof INTEGRITY_COPY - 1;
    if (!at || !*at) return false;
    while (isdigit((unsigned char)*at)) at++;
    return !*at;
}

static int cannot_look(const struct walk *walk, const char *path) {
    int error = errno;
    if (error == ENOMEM) return diag_error(walk->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    return diag_error(walk->diags, 601, EXIT_SYSTEM, NULL, "cannot access %s: %s", diag_quote(walk->diags, path),
                      strerror(error));
}

static int is_as_listed(const struct walk *walk, const struct rt_json *entry) {
    const char *path = rt_json_text(rt_json_member(entry, "path")), *hash = rt_json_text(rt_json_member(entry, "hash"));
    char hex[RT_HASH_HEX];
    struct rt_reason why;
    struct stat info;
    if (!path || !hash || strstr(path, "..") || path[0] == '/') return 0;
    const char *full = arena_printf(walk->arena, "%s/%s", walk->directory, path);
    if (lstat(full, &info) < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : cannot_look(walk, full);
    if (!S_ISREG(info.st_mode)) return 0;
    if (!rt_hash_file_below(walk->directory, path, hex, &why))
        return diag_refusal(walk->diags, 601, EXIT_SYSTEM, NULL, &why);
    return strcmp(hex, hash) == 0;
}

static int manifest_is_intact(const struct walk *walk) {
    struct rt_reason why;
    bool intact;
    struct rt_json_document *document = own_sealed(walk->arena, walk->directory, "manifest.json", &intact, &why);
    arena_release(walk->arena, document);
    if (document) return intact;
    bool changed = why.kind == RT_REASON_CONTENT || why.kind == RT_REASON_MISMATCH;
    return changed ? 0 : diag_refusal(walk->diags, 601, EXIT_SYSTEM, NULL, &why);
}

static void close_stream(void *stream) {
    closedir(stream);
}

static int find_extra(const struct walk *walk, const char *name, int depth, const char **extra);

/* Checks one entry of the directory `name`, open as `stream`: 1 if it belongs to the result, else 0 or -1 as
 * find_extra. */
static int judge_entry(const struct walk *walk, DIR *stream, const char *name, const char *entry, int depth,
                       const char **extra) {
    struct stat info;
    if (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0) return 1;
    const char *path = *extra = arena_printf(walk->arena, "%s%s%s", name, *name ? "/" : "", entry);
    if (fstatat(dirfd(stream), entry, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : cannot_look(walk, path);
    if (S_ISDIR(info.st_mode)) {
        if (strcmp(path, "build") == 0) return 1;
        return depth ? find_extra(walk, path, depth - 1, extra) : 0;
    }
    if (!S_ISREG(info.st_mode)) return 0;
    return strcmp(path, "manifest.json") == 0 || strcmp(path, "location.json") == 0 || integrity_is_copy(path) ||
           integrity_entry(walk->manifest, path);
}

/* Looks for a file below `name` ("": the whole result) that the manifest does not list: 1 if there is none, 0 with
 * *extra set, -1 after a diagnostic. */
static int find_extra(const struct walk *walk, const char *name, int depth, const char **extra) {
    const char *path = arena_printf(walk->arena, "%s/%s", walk->directory, name);
    DIR *stream = opendir(path);
    int good = 1;
    if (!stream) return cannot_look(walk, path);
    arena_own(walk->arena, stream, close_stream);
    for (struct dirent *entry; good == 1 && (errno = 0, entry = readdir(stream));)
        good = judge_entry(walk, stream, name, entry->d_name, depth, extra);
    if (good == 1 && errno) good = cannot_look(walk, path);
    arena_release(walk->arena, stream);
    return good;
}

int integrity_check_directory(const char *directory, const struct rt_json *manifest, const char **fault,
                              struct diags *diags) {
    const struct walk walk = {directory, manifest, diags->arena, diags};
    const struct rt_json *files = rt_json_member(manifest, "files");
    *fault = "manifest.json";
    if (!files || files->kind != RT_JSON_ARRAY) return 0;
    int good = manifest_is_intact(&walk);
    for (const struct rt_json *file = files->first; file && good == 1; file = file->next) {
        const char *path = rt_json_text(rt_json_member(file, "path"));
        if (path) *fault = arena_strdup(walk.arena, path);
        good = is_as_listed(&walk, file);
    }
    return good == 1 ? find_extra(&walk, "", DEPTH, fault) : good;
}

int integrity_check_file(const char *directory, const struct rt_json *manifest, const char *name, struct diags *diags) {
    const struct walk walk = {directory, manifest, diags->arena, diags};
    const struct rt_json *entry = integrity_entry(manifest, name);
    int good = entry ? manifest_is_intact(&walk) : 0;
    return good == 1 ? is_as_listed(&walk, entry) : good;
}
