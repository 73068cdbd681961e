#include "frontend/driver/output/directory_names.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/base/own.h"
#include "runtime/base/io/file.h"

enum { MOST_CLASHES = 1000 };

/* The model file and instance that a result was compiled for; NULL: its manifest cannot be read. */
struct owner {
    const char *file, *instance;
};

static const char *key_part(const struct rt_json *root, const char *key, const char *part, struct arena *arena) {
    const struct rt_json *parts = rt_json_member(rt_json_member(rt_json_member(root, "keys"), key), "parts");
    const char *text = rt_json_text(rt_json_member(parts, part));
    return text ? arena_strdup(arena, text) : NULL;
}

static struct owner owner_of(const char *directory, struct arena *arena) {
    const char *path = arena_printf(arena, "%s/manifest.json", directory);
    struct owner owner = {NULL, NULL};
    struct rt_reason why;
    struct stat info;
    if (lstat(path, &info) < 0 || !S_ISREG(info.st_mode)) return owner;
    struct rt_json_document *document = own_json_below(arena, directory, "manifest.json", &why);
    if (!document) return owner;
    owner.file = key_part(rt_json_root(document), "graph", NAMES_FILE, arena);
    owner.instance = key_part(rt_json_root(document), "plan", NAMES_INSTANCE, arena);
    arena_release(arena, document);
    return owner;
}

/* True if `path` ends in the directory name of `owner`, perhaps with a number appended, as settle chooses it. A
 * directory that was renamed by hand belongs to nobody. */
static bool is_placed(const char *path, const char *owner, struct arena *arena) {
    const char *name = rt_path_name(path), *base = options_file_name(owner, arena);
    const size_t length = strlen(base);
    if (strncmp(name, base, length) != 0) return false;
    return !name[length] ||
           (name[length] == '-' && name[length + 1] && !name[length + 1 + strspn(name + length + 1, "0123456789")]);
}

/* True if the directory belongs to a model or instance with another name than `name`. */
static bool is_anothers(const char *path, const char *owner, const char *name, struct arena *arena) {
    return owner && strcmp(owner, name) != 0 && is_placed(path, owner, arena);
}

static bool owns_model(const struct options *options, const char *directory, const struct owner *owner,
                       struct arena *arena) {
    const char *stem = owner->file ? options_stem(owner->file, arena) : NULL;
    return !is_anothers(directory, stem, options_stem(options->operand, arena), arena);
}

bool directory_names_own(const struct options *options, const char *directory, struct arena *arena) {
    const struct owner owner = owner_of(directory, arena);
    const char *model = arena_copy(arena, directory, (size_t)(strrchr(directory, '/') - directory));
    return owns_model(options, model, &owner, arena) &&
           !is_anothers(directory, owner.instance, options->instance_name, arena);
}

/* True if directory <output>/<model> is free or holds results of this model. All results in it are of one model, so the
 * first readable manifest decides. */
static bool owns_models(const struct options *options, const char *directory, struct arena *arena) {
    DIR *stream = opendir(directory);
    struct owner owner = {NULL, NULL};
    for (const struct dirent *entry; stream && !owner.file && (entry = readdir(stream));)
        if (entry->d_name[0] != '.') owner = owner_of(arena_printf(arena, "%s/%s", directory, entry->d_name), arena);
    if (stream) closedir(stream);
    return owns_model(options, directory, &owner, arena);
}

/* The first of `name`, name-2, name-3 .. below `parent` that does not belong to another model or instance; NULL if all
 * do. */
static const char *settle(const char *parent, const char *name, const struct options *options,
                          bool (*owns)(const struct options *, const char *, struct arena *), struct arena *arena) {
    const char *candidate = name;
    for (int i = 2; i <= MOST_CLASHES; i++) {
        if (owns(options, arena_printf(arena, "%s/%s", parent, candidate), arena)) return candidate;
        candidate = arena_printf(arena, "%s-%d", name, i);
    }
    return NULL;
}

int directory_names_find(struct directory_names *names, const struct options *options, struct arena *arena,
                         struct diags *diags) {
    const char *root = options->output;
    names->model = settle(root, options_model(options, arena), options, owns_models, arena);
    if (names->model)
        names->instance = settle(arena_printf(arena, "%s/%s", root, names->model), options_instance(options, arena),
                                 options, directory_names_own, arena);
    if (names->model && names->instance) return 0;
    return diag_error(diags, 611, EXIT_SYSTEM, NULL, "%s already has %d directories of other models with this name",
                      diag_quote(diags, root), MOST_CLASHES - 1);
}
