#include "codegen/files.h"

#include <string.h>

#include "codegen/text/embedded.h"
#include "ir/base/str.h"

void runtime_files_add(struct program *program, struct arena *arena, bool cuda) {
    for (const struct embedded *e = embedded_runtime; e->path; e++) {
        if (!cuda && strncmp(e->path, "cuda/", 5) == 0) continue;
        const char *path = arena_printf(arena, RUNTIME_FOLDER "/%s", e->path);
        VEC_PUSH(arena, &program->files, (struct program_file){path, e->text, strlen(e->text), NULL});
    }
}

const char *runtime_sources(struct arena *arena) {
    struct strbuf out = {.arena = arena};
    for (const struct embedded *e = embedded_runtime; e->path; e++) {
        const size_t length = strlen(e->path);
        if (strcmp(e->path + length - 2, ".c") != 0) continue;
        strbuf_printf(&out, "%s%s", out.length ? " \\\n    " : "", e->path);
    }
    return strbuf_text(&out);
}
