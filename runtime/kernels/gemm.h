/* The seam to libraries of matrix products. Above it (c/product.c) are the kernels that programs call, which share
 * work out among threads; below it is one product on the calling thread, in plain C or by a library.
 *
 * Note [Products and cuts]
 * A product is bit-equal however m and n are cut, among ranks or among threads. The reference sums over k in
 * increasing order for every element. oneDNN's own choices depend on the shape (other kernels for vectors and for
 * transposed operands, k cut among threads), so it is only given what was found to be invariant on AVX-512: one
 * thread, b not transposed, at least two columns, at most GEMM_K elements of k at a time. The k blocks are the same
 * for every m and n. On other processors oneDNN 2.6.3 is not invariant (seen with its AVX2 kernels):
 * rt_kernels_invariant asks it.
 */
#ifndef RT_KERNELS_GEMM_H
#define RT_KERNELS_GEMM_H

#include <stdint.h>

#include "../base/dtype.h"
#include "../base/fp8.h"
#include "c/epilogue.h"

/* y(m,n) = a(m,k) b(k,n) on one thread; trans_a: a is stored as (k,m); trans_b: b is stored as (n,k). *_row is the
 * distance between stored rows in elements. m, n >= 1; k >= 0. Needs some ten KB of stack, the library 500 KB more.
 */
#define RT_DECLARE_GEMM(T, s)                                                                                          \
    void rt_gemm_reference_##s(T *y, int64_t y_row, const T *a, int64_t a_row, int trans_a, const T *b, int64_t b_row, \
                               int trans_b, int64_t m, int64_t k, int64_t n);

RT_DECLARE_GEMM(float, f32)
RT_DECLARE_GEMM(double, f64)
RT_DECLARE_GEMM(int64_t, i64)
RT_DECLARE_GEMM(int32_t, i32)
/* Halves: summed in f32 and rounded once. Needs 500 KB of stack. */
RT_DECLARE_GEMM(uint16_t, bf16)
RT_DECLARE_GEMM(uint16_t, fp16)

/* y(m,n) = a(m,k) b(k,n), added to y unless `first`: one block of a longer product, of which k is cut at multiples of
 * RT_GEMM_DEPTH; together the blocks give the bits of the whole product. k >= 1. */
#define RT_GEMM_DEPTH 384
#define RT_DECLARE_GEMM_ADD(T, s)                                                                                      \
    void rt_gemm_reference_add_##s(T *y, int64_t y_row, const T *a, int64_t a_row, const T *b, int64_t b_row,          \
                                   int64_t m, int64_t k, int64_t n, int first);

RT_DECLARE_GEMM_ADD(float, f32)
RT_DECLARE_GEMM_ADD(double, f64)

/* y(m,n) = epilogue(a(m,k) b(k,n)), b packed (Note [Panels] in base/panel.h); no epilogue: NULL. */
struct rt_packed_product {
    float *y;
    const float *a, *b;
    int64_t m, k, n;
    const struct rt_epilogue *epilogue;
};

/* y(m,n) = a(m,k) b(k,n), b stored as (n,k), not packed. *_row as above. m, k, n >= 1. */
struct rt_turned_product {
    float *y;
    const float *a, *b;
    int64_t y_row, a_row, b_row, m, k, n;
};

/* multiply computes a block of the product on one thread; it begins at a panel, and is not empty. One row per
 * instruction set, the best first: all with fused multiply-adds (Note [Products with panels]) but for the last, which
 * gives the reference's bits and is always there (is_present is NULL). Needs 20 KB of stack. multiply_turned sums
 * as the library does, in blocks of k (Note [Products and cuts]), on one thread; NULL: the row has none. Needs 500 KB
 * of stack. */
struct rt_gemm_packed {
    const char *name;
    int (*is_present)(void);
    void (*multiply)(const struct rt_packed_product *product, struct rt_block block);
    void (*multiply_turned)(const struct rt_turned_product *product);
};
extern const struct rt_gemm_packed rt_gemm_packed[];

/* The best row of this processor, or the reference. */
const struct rt_gemm_packed *rt_gemm_packed_choose(int reference);

/* By the library this was built with; k >= 1. 0, or -1 when it refused. Where there is none (present is 0), not to
 * be called. */
int rt_gemm_library_present(void);
int rt_gemm_library_f32(float *y, int64_t y_row, const float *a, int64_t a_row, int trans_a, const float *b,
                        int64_t b_row, int trans_b, int64_t m, int64_t k, int64_t n);
int rt_gemm_library_bf16(uint16_t *y, int64_t y_row, const uint16_t *a, int64_t a_row, int trans_a, const uint16_t *b,
                         int64_t b_row, int trans_b, int64_t m, int64_t k, int64_t n);
int rt_gemm_library_fp16(uint16_t *y, int64_t y_row, const uint16_t *a, int64_t a_row, int trans_a, const uint16_t *b,
                         int64_t b_row, int trans_b, int64_t m, int64_t k, int64_t n);
/* Products of bf16 by oneDNN's, and whether this processor has instructions for them (AVX512-BF16, AMX): elsewhere they
 * widen and are slower than rt_gemm_library_bf16. Their bits may depend on how m and n are cut. -1: refused. */
int rt_gemm_has_bf16(void);
int rt_gemm_onednn_bf16(uint16_t *y, int64_t y_row, const uint16_t *a, int64_t a_row, int trans_a, const uint16_t *b,
                        int64_t b_row, int trans_b, int64_t m, int64_t k, int64_t n);
/* The faster of the two. */
int rt_gemm_best_bf16(uint16_t *y, int64_t y_row, const uint16_t *a, int64_t a_row, int trans_a, const uint16_t *b,
                      int64_t b_row, int trans_b, int64_t m, int64_t k, int64_t n);

/* A block of y(m,n) = factor a(m,k) b(k,n), b stored as (n,k), from where it begins: codes of 8-bit floats, summed in
 * f32 and rounded once, to f32 or a half. 0, or -1 where the library refused or the type is none of those. Needs 500 KB
 * of stack. */
struct rt_fp8_product {
    void *y;
    const uint8_t *a, *b;
    int64_t k, y_row;
    float factor;
    enum rt_dtype dtype; /* of y */
    enum rt_fp8 format_a, format_b;
};
int rt_gemm_fp8(const struct rt_fp8_product *product, int64_t m, int64_t n, int library);

/* One block, as above; n >= 2 and k <= RT_GEMM_DEPTH. */
int rt_gemm_library_add_f32(float *y, int64_t y_row, const float *a, int64_t a_row, const float *b, int64_t b_row,
                            int64_t m, int64_t k, int64_t n, int first);

#endif
