#include "base/thread/cores.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CORES (1 << 16)

/* Reads two numbers from a file, "max" as 0; false if it does not have them. */
static bool read_numbers(const char *directory, const char *name, int count, long long *numbers) {
    char path[1024], text[64];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    const bool there = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    char *at = text, *end = text;
    for (int i = 0; there && i < count; i++, at = end) {
        while (*at == ' ') at++;
        numbers[i] = strtoll(at, &end, 10);
        if (end == at && strncmp(at, "max", 3) == 0) end = at + 3;
        if (end == at) return false;
    }
    return there;
}

/* Quota in cores; 0: no limit. */
static int limit_of(const char *directory) {
    long long time[2];
    if (!read_numbers(directory, "cpu.max", 2, time) && !(read_numbers(directory, "cpu.cfs_quota_us", 1, &time[0]) &&
                                                          read_numbers(directory, "cpu.cfs_period_us", 1, &time[1])))
        return 0;
    if (time[0] <= 0 || time[1] <= 0) return 0;
    const long long cores = time[0] / time[1];
    return cores < 1 ? 1 : cores > MOST_CORES ? MOST_CORES : (int)cores;
}

static int least(int a, int b) {
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Least quota of a group and its ancestors up to the mounted root. In a container the path may be the host's; then only
 * the root is found. */
static int least_limit(const char *root, const char *group) {
    char directory[1024];
    const size_t keep = strlen(root);
    int limit = 0;
    if ((size_t)snprintf(directory, sizeof directory, "%s%s", root, group) >= sizeof directory) return limit_of(root);
    for (;;) {
        char *slash = strrchr(directory, '/');
        limit = least(limit, limit_of(directory));
        if (strlen(directory) <= keep || !slash || (size_t)(slash - directory) < keep) return limit;
        *slash = 0;
    }
}

/* True if the comma-separated list has "cpu". */
static bool names_cpu(const char *controllers) {
    for (const char *at = controllers; *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || !at[3])) return true;
    return false;
}

/* Parses a line "ID:CONTROLLERS:PATH"; version 2 has no controllers and is mounted at the root. */
static int limit_of_line(char *line, const char *root) {
    char mount[1024];
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return 0;
    *group++ = 0;
    controllers++;
    if (!*controllers) return least_limit(root, group);
    if (!names_cpu(controllers) || (size_t)snprintf(mount, sizeof mount, "%s/%s", root, controllers) >= sizeof mount)
        return 0;
    return least_limit(mount, group);
}

int rt_cores_allowed(const char *groups, const char *root) {
    char line[1024];
    int limit = 0;
    FILE *file = fopen(groups, "re");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) limit = least(limit, limit_of_line(line, root));
    fclose(file);
    return limit;
}

/* Affinity mask: its size is the kernel's and may exceed cpu_set_t. */
static int cores_of_mask(void) {
    for (int cores = 1024; cores <= MOST_CORES; cores *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cores);
        const size_t bytes = CPU_ALLOC_SIZE((size_t)cores);
        const bool ok = set && sched_getaffinity(0, bytes, set) == 0;
        const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
        const bool larger = set && !ok && errno == EINVAL;
        if (set) CPU_FREE(set);
        if (!larger) return count > 0 ? count : 1;
    }
    return 1;
}

int rt_cores(void) {
    return least(cores_of_mask(), rt_cores_allowed("/proc/self/cgroup", "/sys/fs/cgroup"));
}
