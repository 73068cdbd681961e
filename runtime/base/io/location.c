#include "location.h"

#include "file.h"
#include "../text/json.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define NAME  "location.json"
#define LIMIT ((size_t)1 << 30)

static bool is_absent(const char *directory) {
    char path[PATH_MAX];
    struct stat status;
    const int length = snprintf(path, sizeof path, "%s/" NAME, directory);
    return length < (int)sizeof path && lstat(path, &status) != 0 && errno == ENOENT;
}

static bool read_ranks(const struct rt_json *root, int64_t plan_ngpus, int64_t *ranks, struct rt_reason *why) {
    const struct rt_json *given = rt_json_member(root, "runtime_ngpus");
    if (!given || (rt_json_int(given, ranks) && rt_ranks_fit(*ranks, plan_ngpus))) return true;
    return rt_refuse(why, NAME ": runtime_ngpus is not a multiple of plan_ngpus, %lld, up to %d", (long long)plan_ngpus,
                     RT_MAX_RANKS);
}

bool rt_location_ranks(const char *directory, int64_t plan_ngpus, int64_t *ranks, struct rt_reason *why) {
    void *text;
    size_t bytes;
    *ranks = plan_ngpus;
    if (is_absent(directory)) return true;
    if (!rt_file_read_below(directory, NAME, LIMIT, &text, &bytes, why)) return false;
    struct rt_json_document *document = rt_json_parse(text, bytes, why);
    free(text);
    const bool read = document && read_ranks(rt_json_root(document), plan_ngpus, ranks, why);
    rt_json_free(document);
    return read;
}
