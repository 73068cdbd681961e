/* What kernels for GPUs want of SCRATCH: planned by the compiler (codegen/target_cuda.c), used by runtime/cuda. */
#ifndef RT_BASE_SCRATCH_H
#define RT_BASE_SCRATCH_H

/* Bytes that cuBLASLt may use, whatever the product: what its fastest kernels want on GPUs from sm_80 to sm_90. */
#define RT_PRODUCT_WORKSPACE (32 << 20)

/* An attention's scores come first; the workspace of its products begins at the next multiple of this. */
#define RT_SCORES_ALIGNMENT 256

/* Partial sums of a sum of squares, f64. */
#define RT_SQUARE_BLOCKS 1024

#endif
