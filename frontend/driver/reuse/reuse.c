#include "frontend/driver/reuse/reuse.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/driver/output/integrity.h"
#include "ir/base/own.h"

enum found { FOUND_EMPTY, FOUND_EQUAL, FOUND_GRAPH, FOUND_OTHER, FOUNDS };

static const struct {
    enum choice mode;
    enum reuse_action action[FOUNDS]; /* by enum found */
} matrix[] = {
    {OPT_REUSE_MATCH, {REUSE_NOTHING, REUSE_ALL, REUSE_REFUSE, REUSE_REFUSE}},
    {OPT_REUSE_OVERRIDE, {REUSE_NOTHING, REUSE_NOTHING, REUSE_NOTHING, REUSE_NOTHING}},
    {OPT_REUSE_MOO, {REUSE_NOTHING, REUSE_ALL, REUSE_GRAPH, REUSE_NOTHING}},
    {OPT_REUSE_GRAPH, {REUSE_NOTHING, REUSE_GRAPH, REUSE_GRAPH, REUSE_NOTHING}},
};

static enum reuse_action action_for(enum choice mode, enum found found) {
    for (size_t i = 0; i < sizeof matrix / sizeof *matrix; i++)
        if (matrix[i].mode == mode) return matrix[i].action[found];
    BUG("unknown reuse mode %d", (int)mode);
}

struct earlier {
    enum found found;
    const char *damaged; /* keys are equal, but this file of the result was changed; NULL: none */
    int64_t format;
    const struct rt_json *root;
};

static bool same_key(const struct rt_json *stored, const struct key *key) {
    const char *hex = rt_json_text(rt_json_member(stored, "key"));
    return hex && strcmp(hex, key->hex) == 0;
}

/* 1 if the directory is empty or does not exist, 0 if not, -1 after a diagnostic. */
static int is_empty(const char *directory, struct diags *diags) {
    DIR *stream = opendir(directory);
    if (!stream && (errno == ENOENT || errno == ENOTDIR)) return errno == ENOENT;
    if (!stream) return diag_errno(diags, 601, NULL, "open", directory);
    int entries = 0;
    while (entries <= 2 && readdir(stream)) entries++;
    closedir(stream);
    return entries <= 2; /* "." and ".." */
}

/* Classifies the result whose manifest is `root`: 0, or -1 after a diagnostic. */
static int classify(struct earlier *earlier, const char *directory, const struct rt_json *root,
                    const struct reuse_keys *keys, struct diags *diags) {
    const struct rt_json *stored = rt_json_member(root, "keys");
    *earlier = (struct earlier){.found = FOUND_OTHER, .root = root};
    bool graph = same_key(rt_json_member(stored, "graph"), &keys->graph),
         plan = same_key(rt_json_member(stored, "plan"), &keys->plan);
    if (!rt_json_int(rt_json_member(root, "format"), &earlier->format) || earlier->format != RT_MANIFEST_FORMAT ||
        !graph)
        return 0;
    int all = plan ? integrity_check_directory(directory, root, &earlier->damaged, diags) : 0;
    int kept = all == 0 ? integrity_check_file(directory, root, "graph.rir", diags) : all;
    if (all == 1)
        earlier->found = FOUND_EQUAL, earlier->damaged = NULL;
    else if (kept == 1)
        earlier->found = FOUND_GRAPH;
    return all < 0 || kept < 0 ? -1 : 0;
}

/* Reads the manifest: 0 with *document NULL if it is missing or damaged; -1 after a diagnostic if it cannot be read. */
static int read_manifest(struct rt_json_document **document, const char *directory, struct diags *diags) {
    bool intact;
    const char *path = arena_printf(diags->arena, "%s/manifest.json", directory);
    struct rt_reason why;
    struct stat info;
    *document = NULL;
    if (lstat(path, &info) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : diag_errno(diags, 601, NULL, "open", path);
    if (!S_ISREG(info.st_mode)) return 0;
    *document = own_sealed(diags->arena, directory, "manifest.json", &intact, &why);
    if (*document || why.kind == RT_REASON_CONTENT || why.kind == RT_REASON_MISMATCH) return 0;
    return diag_refusal(diags, 601, EXIT_SYSTEM, NULL, &why);
}

static bool has_part(const struct key *key, const char *name) {
    for (int i = 0; i < key->parts.n; i++)
        if (strcmp(key->parts.at[i].name, name) == 0) return true;
    return false;
}

/* "" is the value of an option that was not given. */
static const char *show_part(const char *value, struct diags *diags) {
    return value && *value ? diag_quote(diags, value) : "unset";
}

/* Lists the parts of a key that differ, one line each, after a diagnostic. */
static void note_differences(const struct rt_json *stored, const struct key *key, struct diags *diags) {
    const struct rt_json *parts = rt_json_member(stored, "parts");
    VEC_EACH(&key->parts, i, const struct key_part *part) {
        const char *was = rt_json_text(rt_json_member(parts, part->name));
        if (strcmp(part->name, "graph") == 0 || (was && strcmp(was, part->value) == 0)) continue;
        diag_note(diags, "%s: was %s, is %s", part->name, show_part(was, diags), show_part(part->value, diags));
    }
    bool listed = parts && parts->kind == RT_JSON_OBJECT;
    for (const struct rt_json *part = listed ? parts->first : NULL; part; part = part->next) {
        const char *was = rt_json_text(part);
        if (was && !has_part(key, part->key))
            diag_note(diags, "%s: was %s, is not used", diag_quote(diags, part->key), show_part(was, diags));
    }
}

static void refuse(const char *directory, const struct earlier *earlier, const struct reuse_keys *keys,
                   struct diags *diags) {
    const struct rt_json *stored = rt_json_member(earlier->root, "keys");
    const char *name = diag_quote(diags, directory);
    if (earlier->damaged) {
        diag_error(diags, 802, EXIT_MISMATCH, NULL, "%s was modified after it was generated: %s", name,
                   diag_quote(diags, earlier->damaged));
    } else if (earlier->format != RT_MANIFEST_FORMAT) {
        diag_error(diags, 803, EXIT_MISMATCH, NULL,
                   "%s was written by another version of rankc: the format is %lld, this version writes %d", name,
                   (long long)earlier->format, RT_MANIFEST_FORMAT);
    } else {
        diag_error(diags, 801, EXIT_MISMATCH, NULL, "%s was generated from other inputs or options", name);
        note_differences(rt_json_member(stored, "graph"), &keys->graph, diags);
        note_differences(rt_json_member(stored, "plan"), &keys->plan, diags);
    }
    diag_help(diags, "--reuse=moo replaces it%s; --instance-name or -o keeps both",
              earlier->damaged ? " and keeps the edited file as FILE.edited-1" : "");
}

enum reuse_action reuse_decide(const char *directory, const struct options *options, const struct reuse_keys *keys,
                               const struct reuse_check *check, struct arena *arena, struct diags *diags) {
    struct earlier earlier = {.found = FOUND_EMPTY};
    struct rt_json_document *document = NULL;
    if (options->reuse == OPT_REUSE_OVERRIDE) return REUSE_NOTHING; /* even if the directory is unreadable */
    int empty = is_empty(directory, diags);
    if (empty < 0) return REUSE_REFUSE;
    if (!empty) {
        earlier = (struct earlier){.found = FOUND_OTHER, .damaged = "manifest.json"};
        if (read_manifest(&document, directory, diags) < 0 ||
            (document && classify(&earlier, directory, rt_json_root(document), keys, diags) < 0))
            return REUSE_REFUSE;
    }
    enum reuse_action action = action_for(options->reuse, earlier.found);
    if (action == REUSE_REFUSE && check->command(check->context) == 0) refuse(directory, &earlier, keys, diags);
    arena_release(arena, document);
    return action;
}

const char *reuse_location(const char *directory, const struct location *location, struct diags *diags) {
    struct location now = *location;
    struct arena *arena = diags->arena;
    struct rt_reason why;
    struct rt_json_document *document = own_json_below(arena, directory, "manifest.json", &why);
    if (!document) return diag_refusal(diags, 804, EXIT_MALFORMED, NULL, &why), NULL;
    const struct rt_json *entry = integrity_entry(rt_json_root(document), CONSTANTS_FILE);
    const char *hash = rt_json_text(rt_json_member(entry, "hash"));
    struct hashed_file constants = {.path = CONSTANTS_FILE};
    rt_json_int(rt_json_member(entry, "bytes"), &constants.bytes);
    if (hash && strlen(hash) < RT_HASH_HEX) memcpy(constants.hash, hash, strlen(hash) + 1);
    if (hash) now.constants = &constants;
    const char *text = location_text(&now, arena);
    if (!text) diag_error(diags, 500, EXIT_LIMIT, NULL, "out of memory");
    arena_release(arena, document);
    return text;
}
