/* What sources of ranks include (templates/cuda), for host/nvcc and tests/meson.build. */
#include <rankc/rt.h>
#include <rankc/cuda/kernels.cuh>
