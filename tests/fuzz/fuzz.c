#include "tests/fuzz/fuzz.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ir/text.h"
#include "runtime/base/io/file.h"

bool fuzz_passed;

void fuzz_check(bool good) {
    if (!good) abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct arena arena;
    jmp_buf failed;
    fuzz_passed = false;
    arena_init(&arena, fuzz_target.budget, &failed);
    if (setjmp(failed) == 0) fuzz_target.run(&arena, data, size);
    arena_free(&arena);
    if (fuzz_target.after) fuzz_target.after();
    return 0;
}

const char *fuzz_file(const unsigned char *data, size_t size) {
    static int file = -1;
    static char path[64];
    if (file < 0) file = memfd_create("fuzz", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    fuzz_check(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    return path;
}

struct graph *fuzz_graph(struct arena *arena) {
    static void *text;
    static size_t size;
    struct rt_reason why;
    struct diags diags;
    struct graph *graph;
    if (!text) fuzz_check(rt_file_read(FUZZ_DIR "/graph.rir", 1 << 20, &text, &size, &why));
    diags_init(&diags, arena);
    fuzz_check(text_parse(arena, &diags, "graph.rir", text, size, &graph) == 0);
    return graph;
}
