/* What the parts of the library that stands in for cuDNN share. */
#ifndef TESTS_CUDA_STAND_IN_CUDNN_H
#define TESTS_CUDA_STAND_IN_CUDNN_H

#include "cuda_runtime.h" /* before the next, which would include it as C */

#include <cudnn.h>

struct cudnnContext {
    host::stream *stream = nullptr;
};

[[noreturn]] inline void complain(const char *what) {
    fprintf(stderr, "cuDNN would not take this: %s\n", what);
    abort();
}

/* A line in the file that FAKE_CUDNN_LOG names. */
inline void log_call(const char *what) {
    FILE *log = getenv("FAKE_CUDNN_LOG") ? fopen(getenv("FAKE_CUDNN_LOG"), "a") : nullptr;
    if (!log) return;
    fprintf(log, "%s\n", what);
    fclose(log);
}

#endif
