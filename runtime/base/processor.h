/* Questions to the processor: which instructions it has. */
#ifndef RT_BASE_PROCESSOR_H
#define RT_BASE_PROCESSOR_H

#ifdef __x86_64__
#include <cpuid.h>

#define RT_PROCESSOR_HAS(name, condition)                                                                              \
    static inline int rt_processor_has_##name(void) {                                                                  \
        return condition;                                                                                              \
    }
#else
#define RT_PROCESSOR_HAS(name, condition)                                                                              \
    static inline int rt_processor_has_##name(void) {                                                                  \
        return 0;                                                                                                      \
    }
#endif

RT_PROCESSOR_HAS(avx512, __builtin_cpu_supports("avx512f"))
RT_PROCESSOR_HAS(avx512bw, __builtin_cpu_supports("avx512bw"))
RT_PROCESSOR_HAS(avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
/* Sums of quads of 8-bit products: in vectors of 512 bits, and of 256 (bit 4 of eax in subleaf 1 of leaf 7). */
RT_PROCESSOR_HAS(avx512_vnni, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                  __builtin_cpu_supports("avx512vnni"))
RT_PROCESSOR_HAS(avx_vnni, rt_processor_has_avx2() && __extension__({
                               unsigned a = 0, b = 0, c = 0, d = 0;
                               __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
                           }))
/* It multiplies pairs of bf16 faster than f32: AMD's with AVX512-BF16. Intel's without AMX take four times as long for
 * a pair as for a product of f32. */
RT_PROCESSOR_HAS(pairs,
                 __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_is("amd"))

#endif
