/* rankc profile --target cuda: the probes of a GPU (profile_gpu_probes.def), and what their times say of it. */
#ifndef FRONTEND_CLI_PROFILE_GPU_H
#define FRONTEND_CLI_PROFILE_GPU_H

#include "frontend/cli/doctor/gpu_driver.h"
#include "passes/plan/machine/machine.h"

enum gpu_probe {
#define GPU_PROBE(id, ...) GPU_##id,
#include "frontend/cli/profile/profile_gpu_probes.def"
#undef GPU_PROBE
    GPU_PROBES
};
/* A row; shapes are texts such as "512,1024", or "". */
struct gpu_probe_row {
    const char *name, *dtype, *op;
    int operands;
    const char *attributes, *first, *second, *result, *beside;
};
extern const struct gpu_probe_row gpu_probe_rows[GPU_PROBES];

/* profile_gpu_machine.c: the machine as the seconds of all probes say. `known`: a machine that has GPUs of that name,
 * of which peaks, rates of 8-bit floats and links are taken; NULL: there is none. */
struct machine profile_gpu_machine(const struct gpu *gpu, const double seconds[GPU_PROBES],
                                   const struct machine *known);

#endif
