/* libFuzzer target: an ONNX model in any state, scanned, unpacked, checked, and every tensor of it decoded.
 *
 * The file lies in memory (memfd), so that the reader's own way of opening is what runs. Build with
 * clang -fsanitize=fuzzer,address,undefined; run with a small stack (ulimit -s 1024) to notice recursion. An arena
 * budget stands for "memory is bounded": running out of it is not a finding.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frontend/onnx_read.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

static void write_all(int file, const unsigned char *data, size_t bytes) {
    if (ftruncate(file, 0) != 0 || pwrite(file, data, bytes, 0) != (ssize_t)bytes) abort();
}

/* A sum over the bytes, so that a wrong pointer is touched. */
static unsigned touch(const struct onnx_tensor *tensor) {
    unsigned sum = 0;
    const unsigned char *bytes = tensor->data;
    for (uint64_t i = 0; i < tensor->bytes; i++) sum += bytes[i];
    return sum;
}

static unsigned decode_tensors(struct onnx_model *model) {
    const Onnx__GraphProto *graph = model->proto->graph;
    unsigned sum = 0;
    struct onnx_tensor tensor;
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (onnx_tensor(model, graph->initializer[i], NULL, &tensor) == 0) sum += touch(&tensor);
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t a = 0; a < graph->node[i]->n_attribute; a++)
            if (graph->node[i]->attribute[a]->t &&
                onnx_tensor(model, graph->node[i]->attribute[a]->t, NULL, &tensor) == 0)
                sum += touch(&tensor);
    return sum;
}

static void open_and_decode(const char *path, struct arena *arena, struct onnx_model **model) {
    struct diags diags;
    diags_init(&diags, arena);
    int status = onnx_open(arena, &diags, path, false, model);
    if ((status != 0) != (diags_exit(&diags) != EXIT_OK) && diags_exit(&diags) != EXIT_UNSUPPORTED) abort();
    static volatile unsigned sink;
    if (status == 0) sink += decode_tensors(*model);
    (void)sink;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("model.onnx", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    write_all(file, data, bytes);
    struct arena arena;
    jmp_buf failed;
    struct onnx_model *volatile model = NULL;
    arena_init(&arena, 1u << 30, &failed);
    if (!setjmp(failed)) open_and_decode(path, &arena, (struct onnx_model **)&model);
    onnx_close(model);
    arena_free(&arena);
    return 0;
}
