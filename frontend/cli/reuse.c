#include "frontend/cli/reuse.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/file.h"

/* Keys
 * ------------------------------------------------------------------------------------------------------------- */

static void add_part(struct key *key, struct arena *arena, const char *name, const char *value) {
    VEC_PUSH(arena, &key->parts, (struct key_part){name, arena_strdup(arena, value)});
}

static void seal(struct key *key, struct arena *arena) {
    struct rt_hash hash;
    char hex[RT_HASH_HEX];
    rt_hash_start(&hash);
    for (int i = 0; i < key->parts.n; i++) {
        rt_hash_text(&hash, key->parts.at[i].name);
        rt_hash_text(&hash, key->parts.at[i].value);
    }
    rt_hash_hex(&hash, hex);
    key->hex = arena_strdup(arena, hex);
}

static int add_file(struct reuse_keys *keys, struct arena *arena, struct diags *diags, const char *path) {
    struct reuse_file file = {0};
    struct rt_reason why;
    struct stat info;
    char real[PATH_MAX];
    if (!realpath(path, real) || stat(real, &info) < 0)
        return diag_error(diags, 601, EXIT_SYSTEM, NULL, "cannot open %s: %s", diag_quote(diags, path),
                          strerror(errno));
    if (!rt_hash_file(real, file.hash, &why)) return diag_error(diags, 601, EXIT_SYSTEM, NULL, "%s", why.text);
    file.path = arena_strdup(arena, real);
    file.bytes = info.st_size;
    file.mtime_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    VEC_PUSH(arena, &keys->files, file);
    return 0;
}

/* The running rankc: another build may write other code. */
static int add_build(struct key *key, struct arena *arena, struct diags *diags) {
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    if (!rt_hash_file("/proc/self/exe", hex, &why))
        return diag_error(diags, 601, EXIT_SYSTEM, NULL, "%s", why.text);
    add_part(key, arena, "rankc", hex);
    return 0;
}

int reuse_make_keys(struct reuse_keys *keys, const struct options *options, const struct side_files *side,
                    int nfiles, const char *const *files, struct arena *arena, struct diags *diags) {
    *keys = (struct reuse_keys){0};
    for (int i = 0; i < nfiles; i++) {
        if (add_file(keys, arena, diags, files[i]) < 0) return -1;
        add_part(&keys->graph, arena, i ? arena_printf(arena, "external data %d", i) : "model",
                 keys->files.at[i].hash);
    }
    for (int id = 0; id < OPTIONS; id++) {
        const struct option *row = &option_rows[id];
        if (row->later || row->key == KEY_NONE || (id == OPT_PAS && side->rules)) continue;
        add_part(row->key == KEY_GRAPH ? &keys->graph : &keys->plan, arena, row->name,
                 options_text(options, (enum option_id)id, arena));
    }
    add_part(&keys->graph, arena, "bound inputs", side->binds_hash);
    add_part(&keys->plan, arena, "plan file", side->plan_hash);
    if (add_build(&keys->graph, arena, diags) < 0) return -1;
    seal(&keys->graph, arena);
    add_part(&keys->plan, arena, "graph", keys->graph.hex);
    seal(&keys->plan, arena);
    return 0;
}

/* What is there
 * ----------------------------------------------------------------------------------------------------- */

enum found { FOUND_EMPTY, FOUND_EQUAL, FOUND_GRAPH, FOUND_OTHER };

/* Lists the parts of a key that differ, one line each, after a diagnostic. */
static void note_differences(const struct rt_json *stored, const struct key *key, struct diags *diags) {
    const struct rt_json *parts = rt_json_member(stored, "parts");
    for (int i = 0; i < key->parts.n; i++) {
        const char *was = rt_json_text(rt_json_member(parts, key->parts.at[i].name));
        if (was && strcmp(was, key->parts.at[i].value) == 0) continue;
        if (strcmp(key->parts.at[i].name, "graph") == 0) continue;
        diag_note(diags, "%s: was '%s', is '%s'", key->parts.at[i].name, was ? was : "", key->parts.at[i].value);
    }
}

static bool same_key(const struct rt_json *stored, const struct key *key) {
    const char *hex = rt_json_text(rt_json_member(stored, "key"));
    return hex && strcmp(hex, key->hex) == 0;
}

/* The first file of the result that is not as it was written, NULL if all are. */
static const char *damaged_file(const char *directory, const struct rt_json *root, struct arena *arena) {
    const struct rt_json *files = rt_json_member(root, "files");
    if (!files || files->kind != RT_JSON_ARRAY) return "manifest.json";
    for (const struct rt_json *file = files->first; file; file = file->next) {
        const char *path = rt_json_text(rt_json_member(file, "path")),
                   *hash = rt_json_text(rt_json_member(file, "hash"));
        char hex[RT_HASH_HEX];
        struct rt_reason why;
        if (!path || !hash || strstr(path, "..") || path[0] == '/') return "manifest.json";
        if (!rt_hash_file(arena_printf(arena, "%s/%s", directory, path), hex, &why) || strcmp(hex, hash) != 0)
            return arena_strdup(arena, path);
    }
    return NULL;
}

struct earlier {
    enum found found;
    const char *damaged;
    const struct rt_json *root;
};

static struct earlier look(const char *directory, const struct reuse_keys *keys, struct rt_json_document *document,
                           struct arena *arena) {
    const struct rt_json *root = rt_json_root(document), *stored = rt_json_member(root, "keys");
    struct earlier earlier = {FOUND_OTHER, NULL, root};
    bool graph = same_key(rt_json_member(stored, "graph"), &keys->graph),
         plan = same_key(rt_json_member(stored, "plan"), &keys->plan);
    if (graph && plan) earlier.damaged = damaged_file(directory, root, arena);
    if (graph) earlier.found = plan && !earlier.damaged ? FOUND_EQUAL : FOUND_GRAPH;
    return earlier;
}

static int refuse(const char *directory, const struct earlier *earlier, const struct reuse_keys *keys,
                  struct diags *diags) {
    const struct rt_json *stored = rt_json_member(earlier->root, "keys");
    if (earlier->damaged) {
        diag_error(diags, 802, EXIT_MISMATCH, NULL, "%s is not as it was generated: %s",
                   diag_quote(diags, directory), earlier->damaged);
    } else {
        diag_error(diags, 801, EXIT_MISMATCH, NULL, "%s was generated for something else",
                   diag_quote(diags, directory));
        note_differences(rt_json_member(stored, "graph"), &keys->graph, diags);
        note_differences(rt_json_member(stored, "plan"), &keys->plan, diags);
    }
    diag_help(diags, "--reuse=moo generates it anew; --instance-name or -o keeps both");
    return -1;
}

int reuse_decide(const char *directory, const struct options *options, const struct reuse_keys *keys,
                 struct arena *arena, struct diags *diags) {
    struct stat info;
    struct rt_reason why;
    if (options->reuse == OPT_REUSE_OVERRIDE || options->reuse == OPT_REUSE_GRAPH) return 0;
    if (lstat(directory, &info) < 0) return 0;
    struct rt_json_document *document = rt_json_read(arena_printf(arena, "%s/manifest.json", directory), &why);
    struct earlier earlier = {FOUND_OTHER, "manifest.json", NULL};
    if (document) earlier = look(directory, keys, document, arena);
    int decision = earlier.found == FOUND_EQUAL        ? 1
                   : options->reuse == OPT_REUSE_MATCH ? refuse(directory, &earlier, keys, diags)
                                                       : 0;
    rt_json_free(document);
    return decision;
}

/* Location
 * ---------------------------------------------------------------------------------------------------------- */

void reuse_put_file(struct rt_json_writer *w, const struct reuse_file *file) {
    rt_json_open(w, '{', RT_JSON_INLINE);
    rt_json_key(w, "path"), rt_json_put_text(w, file->path);
    rt_json_key(w, "bytes"), rt_json_put_int(w, file->bytes);
    rt_json_key(w, "mtime_ns"), rt_json_put_int(w, file->mtime_ns);
    rt_json_key(w, "hash"), rt_json_put_text(w, file->hash);
    rt_json_close(w, '}');
}

/* The entries of our own files (relative paths) are kept as they are. */
static void put_own_files(struct rt_json_writer *w, const struct rt_json *location) {
    const struct rt_json *files = rt_json_member(location, "files");
    for (const struct rt_json *f = files && files->kind == RT_JSON_ARRAY ? files->first : NULL; f; f = f->next) {
        struct reuse_file file = {.path = rt_json_text(rt_json_member(f, "path"))};
        const char *hash = rt_json_text(rt_json_member(f, "hash"));
        if (!file.path || file.path[0] == '/' || !hash || strlen(hash) >= RT_HASH_HEX) continue;
        rt_json_int(rt_json_member(f, "bytes"), &file.bytes);
        memcpy(file.hash, hash, strlen(hash) + 1);
        reuse_put_file(w, &file);
    }
}

int reuse_relocate(struct output *output, const struct reuse_keys *keys, struct arena *arena) {
    struct rt_reason why;
    struct rt_json_writer w;
    struct rt_json_document *old = rt_json_read(arena_printf(arena, "%s/location.json", output->directory), &why);
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_LINES);
    rt_json_key(&w, "format"), rt_json_put_int(&w, 1);
    rt_json_key(&w, "files");
    rt_json_open(&w, '[', RT_JSON_LINES);
    for (int i = 0; i < keys->files.n; i++) reuse_put_file(&w, &keys->files.at[i]);
    if (old) put_own_files(&w, rt_json_root(old));
    rt_json_close(&w, ']');
    rt_json_close(&w, '}');
    bool ended = rt_json_end(&w, &why);
    int status = ended ? output_replace(output, "location.json", w.text, w.bytes)
                       : diag_error(output->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    rt_json_discard(&w);
    rt_json_free(old);
    return status;
}
