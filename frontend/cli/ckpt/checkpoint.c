#include "frontend/cli/ckpt/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/number/checked.h"

enum { CODE_CHECKPOINT = 805, CODE_OPEN = 601 };
#define STEP "step-"

int checkpoint_refused(const struct checkpoint *checkpoint, struct cli *cli, const struct rt_reason *why) {
    return diag_refusal(cli->diags, CODE_CHECKPOINT, EXIT_MISMATCH, checkpoint->path, why);
}

const char *checkpoint_newest(const char *path, struct cli *cli) {
    DIR *directory = opendir(path);
    int64_t newest = -1;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *number = entry->d_name + strlen(STEP);
        char *end;
        if (strncmp(entry->d_name, STEP, strlen(STEP)) != 0 || *number < '0' || *number > '9' || strlen(number) > 18)
            continue;
        const int64_t step = strtoll(number, &end, 10);
        if (!*end && step > newest) newest = step;
    }
    if (directory) closedir(directory);
    return newest < 0 ? NULL : arena_printf(cli->arena, "%s/" STEP "%" PRId64, path, newest);
}

int checkpoint_open(struct checkpoint *checkpoint, const char *path, struct cli *cli) {
    struct rt_reason why;
    *checkpoint = (struct checkpoint){.path = path, .directory = -1};
    if (access(arena_printf(cli->arena, "%s/%s", path, RT_SAVED_JSON), F_OK)) {
        const char *step = checkpoint_newest(path, cli);
        if (!step && access(path, F_OK)) return diag_errno(cli->diags, CODE_OPEN, NULL, "open", path);
        if (!step)
            return diag_error(cli->diags, CODE_CHECKPOINT, EXIT_MISMATCH, NULL, "%s contains no checkpoint",
                              diag_quote(cli->diags, path));
        checkpoint->path = step;
    }
    checkpoint->directory = open(checkpoint->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (checkpoint->directory < 0) return diag_errno(cli->diags, CODE_OPEN, NULL, "open", checkpoint->path);
    checkpoint->saved = rt_saved_open(checkpoint->directory, checkpoint->path, false, &why);
    return checkpoint->saved ? 0 : checkpoint_refused(checkpoint, cli, &why);
}

void checkpoint_close(struct checkpoint *checkpoint) {
    rt_saved_close(checkpoint->saved);
    if (checkpoint->directory >= 0) close(checkpoint->directory);
    *checkpoint = (struct checkpoint){.directory = -1};
}

int64_t checkpoint_number(const struct checkpoint *checkpoint, const char *key) {
    return rt_json_number(rt_saved_root(checkpoint->saved), key, 0);
}

int64_t checkpoint_elements(const struct rt_saved_tensor *tensor) {
    int64_t elements = 0;
    rt_product(tensor->dims, tensor->ndim, &elements);
    return elements;
}

void *checkpoint_values(struct cli *cli, const struct checkpoint *from, const struct rt_saved_tensor *tensor) {
    const struct rt_region whole = rt_region_whole(tensor->dims, tensor->ndim);
    const int64_t elements = checkpoint_elements(tensor);
    struct rt_reason why;
    void *values = ARENA_ARRAY(cli->arena, char, elements *(int64_t)rt_dtype_bytes(tensor->dtype) + 1);
    if (rt_saved_read(from->saved, tensor, &whole, 0, elements, values, &why)) return values;
    checkpoint_refused(from, cli, &why);
    return NULL;
}

const char *checkpoint_tensor_text(const struct rt_saved_tensor *tensor, struct cli *cli) {
    struct strbuf text = {.arena = cli->arena};
    strbuf_printf(&text, "%s %s [", str_escape(cli->arena, tensor->name, strlen(tensor->name), 0),
                  rt_dtypes[tensor->dtype].name);
    for (int d = 0; d < tensor->ndim; d++) strbuf_printf(&text, "%s%" PRId64, d ? ", " : "", tensor->dims[d]);
    strbuf_puts(&text, "]");
    return strbuf_text(&text);
}
