/* Function multiversioning: compilation for several instruction sets. */
#ifndef RT_BASE_CLONES_H
#define RT_BASE_CLONES_H

/* A function marked CLONES is compiled for several instruction sets; the dynamic loader selects the best one. All give
 * the same bits: sums have a fixed order and no version contracts products into fused operations. Off under sanitizers,
 * which cannot run the loader's resolvers. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define CLONES
#endif
#define IN_CLONE static inline __attribute__((always_inline)) /* inlined into each version of its caller */

#endif
