#include "frontend/cli/compiled_model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/driver/output/lock.h"
#include "passes/plan/file/plan_text.h"
#include "runtime/base/io/location.h"

enum { LEVELS_BELOW = 2 /* <output>/<model>/<instance> */, NAMES_SHOWN = 8 };

struct paths {
    VEC(const char *) all;
};

bool is_directory(const char *path) {
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static bool has_manifest(const char *directory, struct arena *arena) {
    struct stat info;
    return !lstat(arena_printf(arena, "%s/manifest.json", directory), &info) &&
           (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)); /* a symbolic link is refused later, when it is read */
}

static int by_name(const struct dirent **left, const struct dirent **right) {
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* Hidden files are locks and staging directories. */
static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* Finds compiled models at most `levels` below `directory`, in sorted order. False with errno if it cannot be read;
 * unreadable directories below it are skipped. */
static bool find_below(struct paths *found, const char *directory, int levels, struct arena *arena) {
    struct dirent **entries;
    int n = scandir(directory, &entries, is_visible, by_name);
    bool ok = n >= 0;
    for (int i = 0; i < n; i++) {
        const char *path = arena_printf(arena, "%s/%s", directory, entries[i]->d_name);
        free(entries[i]);
        if (has_manifest(path, arena))
            VEC_PUSH(arena, &found->all, path);
        else if (levels > 1 && is_directory(path))
            ok &= find_below(found, path, levels - 1, arena) || errno != ENOMEM;
    }
    if (n >= 0) free(entries);
    return ok;
}

static const char *list_paths(const struct paths *paths, struct cli *cli) {
    struct strbuf list = {.arena = cli->arena};
    for (int i = 0; i < paths->all.n && i < NAMES_SHOWN; i++)
        strbuf_printf(&list, "%s%s", i ? ", " : "", diag_quote(cli->diags, paths->all.at[i]));
    if (paths->all.n > NAMES_SHOWN) strbuf_printf(&list, " and %d more", paths->all.n - NAMES_SHOWN);
    return strbuf_text(&list);
}

static const char *find_instance(const char *path, struct cli *cli) {
    struct paths found = {0};
    const char *name = diag_quote(cli->diags, path);
    if (has_manifest(path, cli->arena)) return path;
    if (!find_below(&found, path, LEVELS_BELOW, cli->arena)) {
        diag_errno(cli->diags, 601, NULL, "read", path);
        return NULL;
    }
    if (found.all.n == 1) return found.all.at[0];
    if (found.all.n) {
        diag_error(cli->diags, 200, EXIT_USAGE, NULL, "%s contains %d compiled model(s); name one of them", name,
                   found.all.n);
        diag_note(cli->diags, "the compiled models are %s", list_paths(&found, cli));
    } else {
        diag_error(cli->diags, 605, EXIT_SYSTEM, NULL, "%s contains no compiled model", name);
        diag_help(cli->diags, "create one with 'rankc compile MODEL.onnx -o DIR'");
    }
    return NULL;
}

/* Cuts the last name off `path` and returns it. */
static char *cut_name(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash || !slash[1]) return NULL;
    *slash = 0;
    return slash + 1;
}

/* NULL if `directory` has fewer than two parents. */
static const char *lock_of(const char *directory, struct arena *arena) {
    char real[PATH_MAX];
    if (!realpath(directory, real)) return NULL;
    char *instance = cut_name(real), *model = instance ? cut_name(real) : NULL;
    return model ? lock_path(real, model, instance, arena) : NULL;
}

/* Takes the shared lock. A directory without a lock file is a copy, which no compile will replace. */
static int lock_shared(struct compiled_model *compiled, struct cli *cli) {
    const char *path = lock_of(compiled->directory, cli->arena);
    compiled->lock = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (compiled->lock < 0) return 0;
    arena_own_fd(cli->arena, compiled->lock);
    return lock_take(compiled->lock, path, LOCK_READING, (long)cli->options->lock_timeout, cli->diags);
}

/* Reads "mesh"; false unless it has plan_ngpus shards. */
static bool read_mesh(struct compiled_model *compiled, struct arena *arena) {
    struct mesh *mesh = &compiled->mesh;
    return plan_get_mesh(rt_json_member(compiled->root, "mesh"), mesh, arena) && !mesh_refused(mesh) &&
           mesh_size(mesh) == compiled->plan_ngpus;
}

/* Checks the parts of the manifest that every verb uses. */
static int check(struct compiled_model *compiled, const char *where, bool intact, struct cli *cli) {
    int64_t format;
    compiled->root = rt_json_root(compiled->document);
    if (!rt_json_int(rt_json_member(compiled->root, "format"), &format))
        return diag_error(cli->diags, 804, EXIT_MALFORMED, where, "not a rankc manifest: it has no format number");
    if (format != RT_MANIFEST_FORMAT) {
        diag_error(cli->diags, 803, EXIT_MISMATCH, where,
                   "written by another version of rankc: the format is %lld, this version reads %d", (long long)format,
                   RT_MANIFEST_FORMAT);
        return diag_help(cli->diags,
                         "'rankc compile --reuse override' with the same model and options generates it again"),
               -1;
    }
    if (!intact) {
        diag_error(cli->diags, 802, EXIT_MISMATCH, where,
                   "the file was modified after it was generated: its hash differs");
        return diag_help(cli->diags, "'rankc compile --reuse moo' generates it again");
    }
    if (!rt_json_int(rt_json_member(compiled->root, "plan_ngpus"), &compiled->plan_ngpus) || compiled->plan_ngpus < 1 ||
        compiled->plan_ngpus > RT_MAX_RANKS)
        return diag_error(cli->diags, 804, EXIT_MALFORMED, where, "plan_ngpus is missing or invalid");
    if (!read_mesh(compiled, cli->arena))
        return diag_error(cli->diags, 804, EXIT_MALFORMED, where, "mesh is missing or invalid");
    return 0;
}

/* Sets compiled->runtime_ngpus. E0204 unless --runtime-ngpus is a multiple of plan_ngpus, E0804 unless the default
 * is. */
static int find_ranks(struct compiled_model *compiled, struct cli *cli) {
    const struct options *options = cli->options;
    struct rt_reason why;
    compiled->runtime_ngpus = options->given[OPT_RUNTIME_NGPUS] ? options->runtime_ngpus : compiled->plan_ngpus;
    if (!rt_ranks_fit(compiled->runtime_ngpus, compiled->plan_ngpus))
        return diag_error(cli->diags, 204, EXIT_USAGE, NULL,
                          "--runtime-ngpus must be a multiple of plan_ngpus: %" PRId64 " is not a multiple of %" PRId64,
                          compiled->runtime_ngpus, compiled->plan_ngpus);
    if (options->given[OPT_RUNTIME_NGPUS] ||
        rt_location_ranks(compiled->directory, compiled->plan_ngpus, &compiled->runtime_ngpus, &why))
        return 0;
    return diag_refusal(cli->diags, 804, EXIT_MALFORMED, compiled->directory, &why);
}

static int read_manifest(struct compiled_model *compiled, struct cli *cli) {
    const char *path = arena_printf(cli->arena, "%s/manifest.json", compiled->directory);
    const char *where = str_escape(cli->arena, path, strlen(path), 0);
    struct rt_reason why;
    bool intact;
    compiled->document = own_sealed(cli->arena, compiled->directory, "manifest.json", &intact, &why);
    if (compiled->document) return check(compiled, where, intact, cli);
    if (why.kind != RT_REASON_CONTENT) return diag_refusal(cli->diags, 804, EXIT_MALFORMED, where, &why);
    return diag_error(cli->diags, 804, EXIT_MALFORMED, where, "not a rankc manifest: %s", why.text);
}

int compiled_open(struct compiled_model *out, const char *path, struct cli *cli) {
    struct stat info;
    *out = (struct compiled_model){.arena = cli->arena, .lock = -1};
    if (stat(path, &info)) return diag_errno(cli->diags, 601, NULL, "open", path);
    out->directory = find_instance(path, cli);
    if (out->directory && !lock_shared(out, cli) && !read_manifest(out, cli) && !find_ranks(out, cli)) return 0;
    compiled_close(out);
    return -1;
}

int compiled_parse(struct compiled_model *out, const char *text, int ranks, struct cli *cli) {
    struct rt_reason why;
    *out = (struct compiled_model){.arena = cli->arena, .lock = -1, .document = own_json_text(cli->arena, text, &why)};
    if (!out->document && why.kind == RT_REASON_MEMORY) return diag_refusal(cli->diags, 500, EXIT_LIMIT, NULL, &why);
    if (!out->document) BUG("the driver's manifest: %s", why.text);
    out->runtime_ngpus = ranks;
    if (!check(out, "plan", true, cli)) return 0;
    compiled_close(out);
    return -1;
}

void compiled_close(struct compiled_model *compiled) {
    arena_release(compiled->arena, compiled->document);
    arena_close_fd(compiled->arena, compiled->lock); /* as lock_release does for readers */
    *compiled = (struct compiled_model){.lock = -1};
}

int compiled_refuses_options(struct cli *cli) {
    const char *option = options_compiling(cli->options, cli->arena);
    if (!option) return 0;
    return diag_error(cli->diags, 200, EXIT_USAGE, NULL, "%s is a compile option, but %s is already compiled", option,
                      diag_quote(cli->diags, cli->options->operand));
}
