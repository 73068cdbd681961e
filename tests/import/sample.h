/* A model in a directory with its inputs and outputs, as tests/models/README.md describes. */
#ifndef TESTS_IMPORT_SAMPLE_H
#define TESTS_IMPORT_SAMPLE_H

#include "frontend/import/import.h"

struct sample {
    struct arena arena;
    struct diags diags;
    struct onnx_model *model;
    struct graph *graph; /* NULL after an error */
};

/* Opens and imports DIR/model.onnx, with the sizes of DIR/dims: 0, or -1 with diagnostics. */
int sample_import(struct sample *sample, const char *dir, enum rt_dtype dtype, bool train);

/* Evaluates it on DIR/inputs and compares the outputs with DIR/outputs: NULL, or what is wrong. */
const char *sample_check(struct sample *sample, const char *dir, double rtol, double atol);

void sample_close(struct sample *sample);

#endif
