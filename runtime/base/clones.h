/* Compilation for several instruction sets. */
#ifndef RT_BASE_CLONES_H
#define RT_BASE_CLONES_H

/* The function is compiled for several instruction sets, and the loader takes the best one. The bits are the same:
 * sums have a fixed order, and no clone contracts products into fused operations. Sanitizers do not stand the
 * resolvers. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define CLONES
#endif
#define IN_CLONE static inline __attribute__((always_inline)) /* a helper that each clone has its own copy of */

#endif
