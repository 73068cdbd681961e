/* What the driver of NVIDIA's GPUs says of the first GPU. The driver is loaded when it is asked: rankc is not linked
 * with it. */
#ifndef FRONTEND_CLI_GPU_DRIVER_H
#define FRONTEND_CLI_GPU_DRIVER_H

#include "ir/base/arena.h"

struct gpu {
    int count;           /* GPUs of this machine */
    const char *name;    /* "NVIDIA H200" */
    double memory;       /* bytes; 0: the driver does not say */
    int multiprocessors; /* 0: the driver does not say */
    int major, minor;    /* compute capability, 9 and 0 of sm_90; 0: the driver does not say */
    int version;         /* of CUDA that the driver supports: 1000 x major + 10 x minor */
};

enum gpu_found { GPU_FOUND, GPU_NO_DRIVER, GPU_NONE };

/* Describes the first GPU. *gpu is set only if there is one; its name is of the arena. */
enum gpu_found gpu_driver_ask(struct gpu *gpu, struct arena *arena);

#endif
