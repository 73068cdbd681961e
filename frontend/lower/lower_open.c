/* What lowerings ask of open sizes (ir/open.h). */
#include "frontend/lower/onnx_lower.h"

#include "ir/base/str.h"

/* The size with the most steps that the number depends on; -1: none. */
static int size_of(struct open_sizes *open, int64_t number) {
    int64_t sizes[OPEN_SIZES];
    for (int s = 0; s < open->all.n; s++) {
        for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].range.most;
        const int64_t most = open_at(open, number, sizes);
        sizes[s] = open->all.at[s].range.least;
        if (open_at(open, number, sizes) != most) return s;
    }
    return -1;
}

int lower_at_least(struct lower *lower, int64_t number, int64_t least, const char *what, const char *must) {
    struct open_sizes *open = lower_open(lower);
    if (open_least(open, number) >= least) return 0;
    lower_error(lower, 439, "%s must be %s for all open sizes", what, must);
    const int s = size_of(open, number);
    if (s < 0) return -1;
    int64_t sizes[OPEN_SIZES];
    struct open_range range = open->all.at[s].range;
    for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].range.least;
    for (; range.least <= range.most; range.least += range.step) {
        sizes[s] = range.least;
        if (open_at(open, number, sizes) < least) continue;
        const char *text = open_range_text(lower->arena, &range);
        diag_help(lower->builder.diags, "it is for --dim %s=%s",
                  str_escape(lower->arena, open->all.at[s].name, strlen(open->all.at[s].name), 120), text);
        break;
    }
    return -1;
}
