#include "frontend/driver/sizes_at.h"

#include "ir/base/str.h"

static int no_size(const struct open_sizes *open, const char *name, struct diags *diags) {
    const char **names = ARENA_ARRAY(diags->arena, const char *, OPEN_SIZES + 1), *all = "";
    for (int i = 0; open && i < open->all.n; i++) {
        names[i] = open->all.at[i].name;
        all = arena_printf(diags->arena, "%s%s%s=%s", all, i ? ", " : "", diag_quote(diags, names[i]),
                           open_range_text(diags->arena, &open->all.at[i].range));
    }
    const char *near = str_nearest(name, names);
    diag_error(diags, 201, EXIT_USAGE, "--dim", "%s is no open size of the program", diag_quote(diags, name));
    diag_note(diags, "open sizes: %s", *all ? all : "none");
    if (near) diag_help(diags, "did you mean %s?", diag_quote(diags, near));
    return -1;
}

int sizes_at(struct open_sizes *open, const struct option_size *given, int n, struct diags *diags, int64_t *sizes) {
    for (int k = 0; k < n; k++) {
        const struct open_range *size = &given[k].range;
        int i = 0;
        while (open && i < open->all.n && strcmp(open->all.at[i].name, given[k].name) != 0) i++;
        if (!open || i == open->all.n) return no_size(open, given[k].name, diags);
        const struct open_range *range = &open->all.at[i].range;
        if (open_is_range(size) || size->most < range->least || size->most > range->most ||
            (size->most - range->least) % range->step)
            return diag_error(diags, 201, EXIT_USAGE, "--dim", "%s is %s and cannot be %s",
                              diag_quote(diags, given[k].name), open_range_text(diags->arena, range),
                              open_range_text(diags->arena, size));
        sizes[i] = size->most;
    }
    open_fit(open, sizes);
    return 0;
}
