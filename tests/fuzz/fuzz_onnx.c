/* Fuzz target: an ONNX model in any state, scanned, unpacked, checked, every tensor of it decoded, and imported: shapes
 * inferred, constants folded.
 *
 * The file lies in memory (memfd), so that the reader's own way of opening is what runs. A model is refused with
 * diagnostics, or becomes a graph that passes the verifier. Run with a small stack to notice recursion. */
#include "frontend/import/import.h"
#include "ir/verify.h"
#include "tests/fuzz/fuzz.h"

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

static void import(struct arena *arena, struct onnx_model *model) {
    struct import_options options = {.ndims = 0};
    struct graph *graph;
    bool good = import_model(arena, model->diags, model, &options, &graph) == 0;
    fuzz_check(good || diags_exit(model->diags) != EXIT_OK);
    if (good) fuzz_check(verify_graph(graph, model->diags) == 0);
}

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    static volatile unsigned sink;
    struct onnx_model *model;
    struct diags diags;
    diags_init(&diags, arena);
    int status = onnx_open(arena, &diags, fuzz_file(data, size), false, &model);
    fuzz_check((status != 0) == (diags_exit(&diags) != EXIT_OK) || diags_exit(&diags) == EXIT_UNSUPPORTED);
    if (status != 0) return;
    sink = decode_tensors(model);
    (void)sink;
    import(arena, model);
}

const struct fuzz_target fuzz_target = {128 << 20, run, NULL};
