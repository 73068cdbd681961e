/* Questions to the processor whose answers both kernels and `rankc doctor` need. */
#ifndef RT_BASE_PROCESSOR_H
#define RT_BASE_PROCESSOR_H

/* 1 if it multiplies pairs of bf16 faster than f32: AMD's with AVX512-BF16. Intel's without AMX take four times as long
 * for a pair as for a product of f32. */
static inline int rt_processor_has_pairs(void) {
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_is("amd");
#else
    return 0;
#endif
}

#endif
