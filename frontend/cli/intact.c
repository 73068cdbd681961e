#include "frontend/cli/intact.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/manifest.h"
#include "ir/base/own.h"
#include "runtime/base/hash.h"

enum { DEPTH = 8 /* of directories that a result may have */ };

struct walk {
    const char *directory;
    const struct rt_json *manifest;
    struct arena *arena;
};

const struct rt_json *intact_entry(const struct rt_json *manifest, const char *name) {
    const struct rt_json *files = rt_json_member(manifest, "files");
    for (const struct rt_json *f = files && files->kind == RT_JSON_ARRAY ? files->first : NULL; f; f = f->next) {
        const char *path = rt_json_text(rt_json_member(f, "path"));
        if (path && strcmp(path, name) == 0) return f;
    }
    return NULL;
}

static bool is_as_listed(const struct walk *walk, const struct rt_json *entry) {
    const char *path = rt_json_text(rt_json_member(entry, "path")),
               *hash = rt_json_text(rt_json_member(entry, "hash"));
    char hex[RT_HASH_HEX];
    struct rt_reason why;
    struct stat info;
    if (!path || !hash || strstr(path, "..") || path[0] == '/') return false;
    const char *full = arena_printf(walk->arena, "%s/%s", walk->directory, path);
    return lstat(full, &info) == 0 && S_ISREG(info.st_mode) && rt_hash_file(full, hex, &why) &&
           strcmp(hex, hash) == 0;
}

static bool manifest_is_intact(const struct walk *walk) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    const char *path = arena_printf(walk->arena, "%s/manifest.json", walk->directory);
    if (!own_file(walk->arena, path, (size_t)1 << 30, &bytes, &count, &why)) return false;
    bool intact = manifest_text_is_intact(bytes, count);
    arena_release(walk->arena, bytes);
    return intact;
}

static bool is_known(const struct walk *walk, const char *name) {
    return strcmp(name, "manifest.json") == 0 || strcmp(name, "location.json") == 0 ||
           intact_entry(walk->manifest, name);
}

static void close_stream(void *stream) {
    closedir(stream);
}

/* The first thing below `name` ("" for all) that nobody generated. */
static const char *find_extra(const struct walk *walk, const char *name, int depth) {
    DIR *stream = opendir(arena_printf(walk->arena, "%s/%s", walk->directory, name));
    if (stream) arena_own(walk->arena, stream, close_stream);
    const char *extra = stream && depth ? NULL : name;
    for (struct dirent *entry; !extra && stream && (entry = readdir(stream));) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        const char *path = arena_printf(walk->arena, "%s%s%s", name, *name ? "/" : "", entry->d_name);
        if (fstatat(dirfd(stream), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0)
            extra = path;
        else if (S_ISDIR(info.st_mode))
            extra = strcmp(path, "build") == 0 ? NULL : find_extra(walk, path, depth - 1);
        else if (!S_ISREG(info.st_mode) || !is_known(walk, path))
            extra = path;
    }
    arena_release(walk->arena, stream);
    return extra;
}

const char *intact_fault(const char *directory, const struct rt_json *manifest, struct arena *arena) {
    const struct walk walk = {directory, manifest, arena};
    const struct rt_json *files = rt_json_member(manifest, "files");
    if (!files || files->kind != RT_JSON_ARRAY || !manifest_is_intact(&walk)) return "manifest.json";
    for (const struct rt_json *file = files->first; file; file = file->next) {
        const char *path = rt_json_text(rt_json_member(file, "path"));
        if (!is_as_listed(&walk, file)) return path ? arena_strdup(arena, path) : "manifest.json";
    }
    return find_extra(&walk, "", DEPTH);
}

bool intact_file(const char *directory, const struct rt_json *manifest, const char *name, struct arena *arena) {
    const struct walk walk = {directory, manifest, arena};
    const struct rt_json *entry = intact_entry(manifest, name);
    return entry && manifest_is_intact(&walk) && is_as_listed(&walk, entry);
}
