/* Fuzz target: templates. Any text is filled, or refused: templates are rankc's own, so a wrong one is a bug that is
 * named (BUG), which ends the input here instead of the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codegen/text/tmpl.h"
#include "ir/base/diag.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_LOOPS = 6 }; /* loops in loops take the time that they say */

static jmp_buf refused;

/* In place of diag_bug (linked with --wrap). */
_Noreturn void __wrap_diag_bug(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void __wrap_diag_bug(const char *file, int line, const char *format, ...) {
    char text[4096];
    va_list args;
    (void)file, (void)line;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args); /* the message is read, too */
    va_end(args);
    longjmp(refused, 1);
}

/* Lists in lists, names that hide others, values of several lines. */
static struct tmpl_env *bindings(struct arena *arena) {
    struct tmpl_env *env = tmpl_env(arena, NULL);
    tmpl_set(env, "name", "model");
    tmpl_set(env, "lines", "first\nsecond\n\nfourth");
    tmpl_set(env, "empty", "");
    tmpl_list(env, "none");
    for (int i = 0; i < 3; i++) {
        struct tmpl_env *rank = tmpl_entry(env, "ranks");
        tmpl_setf(rank, "name", "rank%d", i);
        for (int k = 0; k < i; k++) tmpl_setf(tmpl_entry(rank, "steps"), "call", "step(%d, %d)", i, k);
        tmpl_list(rank, "steps");
    }
    return env;
}

static int count_loops(const char *text) {
    int n = 0;
    for (; (text = strstr(text, "@for")); text++) n++;
    return n;
}

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    const char *text = arena_copy(arena, data, size);
    if (count_loops(text) > MOST_LOOPS) return;
    if (setjmp(refused) == 0) tmpl_fill(arena, "fuzz", text, bindings(arena));
}

const struct fuzz_target fuzz_target = {16 << 20, run, NULL};
