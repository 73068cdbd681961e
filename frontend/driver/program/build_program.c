#include "frontend/driver/program/build_program.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codegen/files.h"
#include "frontend/driver/program/subprocess.h"
#include "ir/base/own.h"
#include "ir/base/str.h"
#include "runtime/base/io/file.h"
#include "runtime/base/number/hash.h"
#include "runtime/base/io/progress.h"

enum { QUOTED_LINES = 5 };

/* Headers and library of the runtime, relative to the directory of the rankc executable. */
static const struct {
    const char *include, *library;
} places[] = {{"include", "../runtime/librankc-rt.a"}, /* build tree */
              {"../include", "../" RANKC_LIBDIR "/librankc-rt.a"}};

static bool exists(const char *path) {
    return access(path, R_OK) == 0;
}

/* Folders below `include` with files that programs may include: headers, and sources of kernels. */
static const char *const folders[] = {"rankc", "rankc/base", "rankc/cuda", "rankc/kernels/c"};
static const char *const endings[] = {".h", ".def", ".cuh", ".cu"};
/* Variables that the Makefile takes from the environment. */
static const char *const variables[] = {"CC", "ARCH", "CFLAGS", "LDFLAGS", "NVCC", "NVCCFLAGS", "GPU_ARCH"};

enum {
    NFOLDERS = sizeof folders / sizeof *folders,
    NENDINGS = sizeof endings / sizeof *endings,
    NVARIABLES = sizeof variables / sizeof *variables
};

struct build_runtime build_runtime(struct arena *arena) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) return (struct build_runtime){0};
    self[length] = 0;
    *strrchr(self, '/') = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct build_runtime found = {arena_printf(arena, "%s/%s", self, places[i].include),
                                      arena_printf(arena, "%s/%s", self, places[i].library)};
        if (exists(arena_printf(arena, "%s/rankc/rt.h", found.include)) && exists(found.library)) return found;
    }
    return (struct build_runtime){0};
}

/* Hashes the processor's features, which -march=native depends on: the first line of flags in /proc/cpuinfo. */
static void hash_processor(struct rt_hash *hash) {
    char *line = NULL;
    size_t room = 0;
    FILE *info = fopen("/proc/cpuinfo", "re");
    while (info && getline(&line, &room, info) > 0) {
        if (strncmp(line, "flags", 5) != 0 && strncmp(line, "Features", 8) != 0) continue;
        rt_hash_text(hash, line);
        break;
    }
    if (info) fclose(info);
    free(line);
}

static void hash_file(struct rt_hash *hash, const char *path) {
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    rt_hash_text(hash, rt_hash_file(path, hex, &why) ? hex : "");
}

/* build/stamp: a hash of all that a program is built from besides its sources. If there is no runtime beside the
 * executable, pkg-config chooses one, which is not part of the hash. */
static int is_header(const struct dirent *entry) {
    const char *ending = strrchr(entry->d_name, '.');
    for (int i = 0; i < NENDINGS; i++)
        if (ending && strcmp(ending, endings[i]) == 0) return 1;
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void hash_headers(struct rt_hash *hash, struct arena *arena, const char *folder) {
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, is_header, by_name);
    for (int i = 0; i < n; i++) {
        hash_file(hash, arena_printf(arena, "%s/%s", folder, entries[i]->d_name));
        free(entries[i]);
    }
    free(entries);
}

static const char *stamp_text(struct arena *arena) {
    struct build_runtime runtime = build_runtime(arena);
    struct rt_hash hash;
    char hex[RT_HASH_HEX];
    rt_hash_start(&hash);
    for (int i = 0; i < NVARIABLES; i++) {
        const char *value = getenv(variables[i]);
        rt_hash_text(&hash, value ? value : "");
    }
    hash_processor(&hash);
    rt_hash_text(&hash, RANKC_RT_CFLAGS " " RANKC_RT_LIBS);
    if (runtime.library) hash_file(&hash, runtime.library);
    for (int i = 0; i < NFOLDERS && runtime.include; i++)
        hash_headers(&hash, arena, arena_printf(arena, "%s/%s", runtime.include, folders[i]));
    rt_hash_hex(&hash, hex);
    return arena_printf(arena, "%s\n", hex);
}

static const char *stamp_path(struct arena *arena, const char *directory) {
    return arena_printf(arena, "%s/build/stamp", directory);
}

static bool has_program(struct arena *arena, const char *directory, const char *name) {
    return access(arena_printf(arena, "%s/build/%s", directory, name), X_OK) == 0;
}

bool build_is_current(struct arena *arena, const char *directory, bool trains) {
    const char *wanted = stamp_text(arena);
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!has_program(arena, directory, "run") || (trains && !has_program(arena, directory, "train"))) return false;
    if (!own_file(arena, stamp_path(arena, directory), 4096, &bytes, &count, &why)) return false;
    bool current = count == strlen(wanted) && memcmp(bytes, wanted, count) == 0;
    arena_release(arena, bytes);
    return current;
}

static int put_stamp(struct arena *arena, struct diags *diags, const char *directory) {
    const char *text = stamp_text(arena);
    struct rt_piece piece = {text, strlen(text)};
    struct rt_reason why;
    if (rt_file_write(stamp_path(arena, directory), &piece, 1, &why)) return 0;
    return diag_error(diags, 611, EXIT_SYSTEM, NULL, "%s", why.text);
}

/* Note [Paths and make]
 * Make and the shell interpret some characters, and a path may have any. So no Makefile and no command contains a path
 * of the user's: the runtime is reached through symbolic links with fixed names in build/runtime, and make is started
 * in the directory of the program. */

const char build_cflags[] = "-Ibuild/runtime/include" RANKC_RT_CFLAGS;
const char build_libs[] = "build/runtime/librankc-rt.a " RANKC_RT_LIBS;

/* True if the program was compiled --with-runtime: its Makefile builds the runtime. */
static bool has_runtime(struct arena *arena, const char *directory) {
    return exists(arena_printf(arena, "%s/" RUNTIME_FOLDER "/rt.h", directory));
}

static int put_link(struct diags *diags, const char *target, const char *path) {
    if (unlink(path) < 0 && errno != ENOENT) return diag_errno(diags, 611, NULL, "write", path);
    return symlink(target, path) < 0 ? diag_errno(diags, 611, NULL, "write", path) : 0;
}

int build_link_runtime(struct arena *arena, struct diags *diags, const char *directory) {
    struct build_runtime runtime = build_runtime(arena);
    const char *build = arena_printf(arena, "%s/build", directory);
    const char *links = arena_printf(arena, "%s/runtime", build);
    if (!runtime.include || has_runtime(arena, directory)) return 0;
    if (mkdir(build, 0777) < 0 && errno != EEXIST) return diag_errno(diags, 611, NULL, "write", build);
    if (mkdir(links, 0777) < 0 && errno != EEXIST) return diag_errno(diags, 611, NULL, "write", links);
    if (put_link(diags, runtime.include, arena_printf(arena, "%s/include", links)) < 0) return -1;
    return put_link(diags, runtime.library, arena_printf(arena, "%s/librankc-rt.a", links));
}

static void quote_lines(struct diags *diags, const char *text) {
    for (int i = 0; i < QUOTED_LINES && *text; i++) {
        size_t length = strcspn(text, "\n");
        diag_note(diags, "%s", str_escape(diags->arena, text, length, 300));
        text += length + (text[length] == '\n');
    }
}

static int report(struct diags *diags, const char *directory, int status, const struct strbuf *said) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    if (WIFSIGNALED(status))
        diag_error(diags, 621, EXIT_SYSTEM, NULL, "make in %s was killed by signal %d", diag_quote(diags, directory),
                   WTERMSIG(status));
    else
        diag_error(diags, 621, EXIT_SYSTEM, NULL, "make in %s failed with status %d", diag_quote(diags, directory),
                   WEXITSTATUS(status));
    quote_lines(diags, strbuf_text(said));
    return -1;
}

/* Variables that change what make does: options, and further makefiles. */
static const char *const make_variables[] = {"MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "MAKELEVEL", NULL};

/* Progress of make: objects that are newer than its start, of the sources. */
struct compiling {
    const char *objects; /* a directory */
    struct timespec since;
    int all;
    struct rt_progress progress;
};

/* The files in a directory with that ending, and not older than `since` if that is given. */
static int count_files(const char *directory, const char *ending, const struct timespec *since) {
    int count = 0;
    DIR *entries = opendir(directory);
    const struct dirent *entry;
    struct stat about;
    while (entries && (entry = readdir(entries))) {
        if (!rt_has_suffix(entry->d_name, ending)) continue;
        count += !since || (fstatat(dirfd(entries), entry->d_name, &about, 0) == 0 &&
                            about.st_mtim.tv_sec >= since->tv_sec && about.st_size > 0);
    }
    if (entries) closedir(entries);
    return count;
}

static void show_compiling(void *of) {
    struct compiling *compiling = of;
    const int done = count_files(compiling->objects, ".o", &compiling->since);
    char text[80];
    snprintf(text, sizeof text, "compiling: %d of %d file(s)", done < compiling->all ? done : compiling->all,
             compiling->all);
    rt_progress_say(&compiling->progress, rt_plurals(text), -1, "");
}

static int run_make(struct arena *arena, struct diags *diags, const char *directory, const char *const *argv,
                    bool silent) {
    struct compiling compiling = {.objects = arena_printf(arena, "%s/build", directory)};
    const struct subprocess_watch watch = {show_compiling, &compiling};
    int status;
    struct strbuf said = {.arena = arena};
    clock_gettime(CLOCK_REALTIME, &compiling.since);
    compiling.all = count_files(directory, ".c", NULL) + count_files(directory, ".cu", NULL);
    rt_progress_begin(&compiling.progress, 0, silent);
    int error = subprocess_run(argv, make_variables, compiling.progress.off ? NULL : &watch, &said, &status);
    rt_progress_end(&compiling.progress);
    if (error) return diag_error(diags, 621, EXIT_SYSTEM, NULL, "cannot run make: %s", strerror(error));
    return report(diags, directory, status, &said);
}

/* Rebuilds everything, since the times of files do not show a change of runtime or flags, and an object file may be
 * left from a make that was killed. */
int build_program(struct arena *arena, struct diags *diags, const char *directory, bool silent) {
    const char *jobs = arena_printf(arena, "-j%ld", sysconf(_SC_NPROCESSORS_ONLN));
    const char *argv[] = {"make", "-s", "-B", jobs, "-C", directory, "-f", "Makefile", "all", NULL, NULL, NULL};
    int n = 9;
    if (build_link_runtime(arena, diags, directory) < 0) return -1;
    if (build_runtime(arena).include && !has_runtime(arena, directory)) {
        argv[n++] = arena_printf(arena, "RANKC_CFLAGS=%s", build_cflags);
        argv[n++] = arena_printf(arena, "RANKC_LIBS=%s", build_libs);
    }
    unlink(stamp_path(arena, directory));
    if (run_make(arena, diags, directory, argv, silent) < 0) return -1;
    return put_stamp(arena, diags, directory);
}
