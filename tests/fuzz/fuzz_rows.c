/* Fuzz target: tables of published runs (plan --rows).
 *
 * A table is refused with diagnostics, or each line gets finite numbers or a reason. */
#include <string.h>

#include "frontend/cli/rows/rows.h"
#include "tests/fuzz/fuzz.h"

enum { BUDGET = 64 << 20 };

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    struct diags diags;
    struct strbuf out;
    diags_init(&diags, arena);
    strbuf_init(&out, arena);
    bool good = rows_predict(arena, &diags, fuzz_file(data, size), &out) == 0;
    fuzz_check(good == (diags.errors == 0));
    fuzz_passed = good;
    const char *text = strbuf_text(&out);
    fuzz_check(!good || (!strstr(text, "nan") && !strstr(text, "inf") && !strstr(text, ",-")));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    fuzz_in_arena(BUDGET, run, data, size);
    return 0;
}
