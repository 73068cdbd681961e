#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "frontend/cli/doctor/doctor.h"
#include "frontend/cli/format_bytes.h"

/* ---- processor ---- */

struct feature {
    const char *name;
    bool (*supported)(void);
};

#if defined(__x86_64__) || defined(__i386__)
#define FEATURE(id, name)                                                                                              \
    static bool has_##id(void) {                                                                                       \
        return __builtin_cpu_supports(name);                                                                           \
    }
FEATURE(avx2, "avx2")
FEATURE(fma, "fma")
FEATURE(avx512f, "avx512f")
#undef FEATURE
/* Features by which runtime/kernels choose variants of kernels when a program starts. */
static const struct feature features[] = {{"avx2", has_avx2}, {"fma", has_fma}, {"avx512f", has_avx512f}};
#else
static const struct feature features[] = {{NULL, NULL}};
#endif

/* Further features that oneDNN uses, by their names in /proc/cpuinfo. */
static const char *const library_flags[] = {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16",
                                            "amx_int8",    "asimd",       "sve"};

static bool read_line(const char *path, const char *start, char *line, size_t bytes) {
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, (int)bytes, file)) found = !strncmp(line, start, strlen(start));
    if (file) fclose(file);
    return found;
}

static bool has_word(const char *line, const char *word) {
    size_t length = strlen(word);
    for (const char *at = line; (at = strstr(at, word)); at += length)
        if (at > line && (at[-1] == ' ' || at[-1] == '\t') && (at[length] == ' ' || at[length] == '\n')) return true;
    return false;
}

struct finding doctor_processor(struct arena *arena) {
    char line[8192] = "";
    struct strbuf text;
    strbuf_init(&text, arena);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (features[i].name && features[i].supported())
            strbuf_printf(&text, "%s%s", text.length ? " " : "", features[i].name);
    bool vectors = text.length;
    if (read_line("/proc/cpuinfo", "flags", line, sizeof line) ||
        read_line("/proc/cpuinfo", "Features", line, sizeof line))
        for (size_t i = 0; i < sizeof library_flags / sizeof *library_flags; i++)
            if (has_word(line, library_flags[i]))
                strbuf_printf(&text, "%s%s", text.length ? " " : "", library_flags[i]);
    if (vectors) return (struct finding){FOUND, "processor", strbuf_text(&text), NULL};
    return (struct finding){LIMITED, "processor", text.length ? strbuf_text(&text) : "no known vector instructions",
                            "kernels use portable code"};
}

/* ---- control groups ---- */

/* Finds the control group of this process: for a controller of cgroups version 1, or "" for version 2, whose line in
 * /proc/self/cgroup is "0::PATH". */
static bool find_group(const char *controller, char *path, size_t bytes) {
    char line[4096];
    FILE *file = fopen("/proc/self/cgroup", "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        found = !strcmp(list + 1, controller) && strlen(group) < bytes;
        if (found) strcpy(path, group);
    }
    if (file) fclose(file);
    return found;
}

/* Calls `use` with the first line of `file` in the group and all groups above it. */
static void read_groups(const char *controller, const char *file, void (*use)(const char *line, void *state),
                        void *state) {
    char group[2048], path[4096], line[128];
    if (!find_group(controller, group, sizeof group)) return;
    for (char *end = group + strlen(group);; end = strrchr(group, '/')) {
        if (end) *end = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s%s%s/%s", *controller ? "/" : "", controller, group, file);
        if (read_line(path, "", line, sizeof line)) use(line, state);
        if (!end || !*group) return;
    }
}

static void take_least(const char *line, void *state) {
    int64_t *least = state, value;
    if (sscanf(line, "%" SCNd64, &value) == 1 && value > 0 && value < *least) *least = value;
}

/* Parses quota and period, "150000 100000", to thousandths of a core. */
static void take_quota(const char *line, void *state) {
    int64_t *least = state, quota, period;
    if (sscanf(line, "%" SCNd64 " %" SCNd64, &quota, &period) == 2 && period > 0 && quota * 1000 / period < *least)
        *least = quota * 1000 / period;
}

/* The limit of the control groups in thousandths of a core; INT64_MAX: none. */
static int64_t core_quota(void) {
    int64_t least = INT64_MAX, quota = INT64_MAX, period = INT64_MAX;
    read_groups("", "cpu.max", take_quota, &least);
    read_groups("cpu", "cpu.cfs_quota_us", take_least, &quota);
    read_groups("cpu", "cpu.cfs_period_us", take_least, &period);
    if (quota < INT64_MAX / 1000 && period < INT64_MAX && quota * 1000 / period < least) least = quota * 1000 / period;
    return least;
}

struct finding doctor_cores(struct arena *arena) {
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t quota = core_quota();
    if (sched_getaffinity(0, sizeof set, &set)) return (struct finding){LIMITED, "cores", strerror(errno), NULL};
    int usable = CPU_COUNT(&set);
    const char *text = arena_printf(arena, "%d of %ld", usable, online);
    if (quota >= usable * INT64_C(1000)) return (struct finding){FOUND, "cores", text, NULL};
    const char *hint = "the control group limits CPU time to less than all cores: use fewer --threads or ranks";
    text = arena_printf(arena, "%s, CPU time of %.3g", text, (double)quota / 1000);
    return (struct finding){LIMITED, "cores", text, hint};
}

/* ---- memory ---- */

static int64_t memory_limit(void) {
    struct rlimit space;
    int64_t least = INT64_MAX;
    read_groups("", "memory.max", take_least, &least);
    read_groups("memory", "memory.limit_in_bytes", take_least, &least);
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY && (int64_t)space.rlim_cur < least)
        least = (int64_t)space.rlim_cur;
    return least;
}

struct finding doctor_memory(struct arena *arena) {
    long pages = sysconf(_SC_PHYS_PAGES), available = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    int64_t all = (int64_t)pages * size, limit = memory_limit();
    struct bytes_text total = format_bytes(all), free_now = format_bytes((int64_t)available * size);
    const char *text = arena_printf(arena, "%s, %s free", total.text, free_now.text);
    if (limit >= all) return (struct finding){FOUND, "memory", text, NULL};
    text = arena_printf(arena, "%s, limited to %s", text, format_bytes(limit).text);
    return (struct finding){LIMITED, "memory", text, "'rankc show' prints the memory of each rank"};
}
