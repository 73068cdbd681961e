/* Inline functions that device code calls too. */
#ifndef RT_BASE_INLINE_H
#define RT_BASE_INLINE_H

#ifdef __CUDACC__
#define RT_INLINE static inline __host__ __device__
#else
#define RT_INLINE static inline
#endif

#endif
