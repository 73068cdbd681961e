/* Functions of a few instructions, which kernels for GPUs call too. */
#ifndef RT_BASE_INLINE_H
#define RT_BASE_INLINE_H

#ifdef __CUDACC__
#define RT_INLINE static inline __host__ __device__
#else
#define RT_INLINE static inline
#endif

#endif
