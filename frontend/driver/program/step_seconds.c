#include "frontend/driver/program/step_seconds.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>

#include "ir/base/own.h"

/* The median of a step's milliseconds; negative if the line is not JSON that has it. */
static double median_of(struct arena *arena, const char *line) {
    struct rt_reason why;
    double ms = -1;
    struct rt_json_document *document = own_json_text(arena, line, &why);
    if (!document) return -1;
    rt_json_real(rt_json_member(rt_json_member(rt_json_root(document), "step_ms"), "median"), &ms);
    arena_release(arena, document);
    return ms;
}

double step_seconds(const char *const *words, const struct subprocess_watch *watch, struct arena *arena,
                    const char **said) {
    int status = 0;
    double ms = -1;
    struct strbuf out = {.arena = arena};
    const int failed = subprocess_run(words, NULL, watch, &out, &status);
    *said = strbuf_text(&out);
    if (failed || !WIFEXITED(status) || WEXITSTATUS(status)) return -1;
    for (const char *line = *said; *line && ms < 0;) {
        const size_t length = strcspn(line, "\n");
        if (*line == '{') ms = median_of(arena, arena_copy(arena, line, length));
        line += length + (line[length] == '\n');
    }
    return ms < 0 ? -1 : fmax(ms, 1e-3) * 1e-3;
}
