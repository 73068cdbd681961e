#include "frontend/driver/output/temporary.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPEN = 16 };

const char *temporary_make(const char *what, struct arena *arena, struct diags *diags) {
    const char *base = getenv("TMPDIR");
    if (!base || !*base) base = "/tmp";
    char *path = arena_printf(arena, "%s/rankc-%s-XXXXXX", base, what);
    if (mkdtemp(path)) return path;
    diag_errno(diags, 611, NULL, "create a directory in", base);
    return NULL;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at) {
    (void)info, (void)type, (void)at;
    return remove(path);
}

int temporary_remove(const char *path) {
    return nftw(path, remove_entry, MAX_OPEN, FTW_DEPTH | FTW_PHYS);
}
