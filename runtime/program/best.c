#include "program/best.h"

#include "base/io/file.h"
#include "base/text/json.h"

#include <limits.h>
#include <stdio.h>

static bool path_of(char path[PATH_MAX], const char *directory) {
    return snprintf(path, PATH_MAX, "%s/best.json", directory) < PATH_MAX;
}

bool best_read(struct best *best, const char *directory) {
    char path[PATH_MAX];
    struct rt_reason why;
    struct rt_json_document *document = path_of(path, directory) ? rt_json_read(path, &why) : NULL;
    if (!document) return false;
    const struct rt_json *root = rt_json_root(document);
    const bool found = rt_json_int(rt_json_member(root, "step"), &best->step) && best->step > 0 &&
                       rt_json_real(rt_json_member(root, "eval_loss"), &best->loss);
    rt_json_free(document);
    return found;
}

bool best_write(const struct best *best, const char *directory, struct rt_reason *why) {
    char path[PATH_MAX];
    struct rt_json_writer writer;
    if (!path_of(path, directory)) return rt_refuse(why, "the path of best.json is too long");
    rt_json_start(&writer);
    rt_json_open(&writer, '{', RT_JSON_INLINE);
    rt_json_key_int(&writer, "step", best->step);
    rt_json_key_real(&writer, "eval_loss", best->loss);
    rt_json_close(&writer, '}');
    bool ok = rt_json_end(&writer, why);
    const struct rt_piece piece = {writer.text, writer.bytes};
    ok = ok && rt_file_write(path, &piece, 1, why);
    rt_json_discard(&writer);
    return ok;
}
