/* The interface between matrix product kernels (c/product.c), which divide work among threads, and single-threaded
 * products, in plain C or by a library.
 *
 * Note [Products and cuts]
 * Each element of a product has the same bits however m and n are cut, among ranks or threads. The reference sums over
 * k in increasing order. oneDNN's choices depend on the shape (other kernels for vectors and transposed operands, k
 * divided among threads), so it is only called in ways that were found to be invariant on AVX-512: one thread, b not
 * transposed, at least two columns, at most GEMM_K elements of k at a time. The k blocks are the same for every m and
 * n. On other processors oneDNN 2.6.3 is not invariant (observed with its AVX2 kernels); rt_kernels_invariant probes
 * it. */
#ifndef RT_KERNELS_GEMM_H
#define RT_KERNELS_GEMM_H

#include <stdint.h>

#include "../base/dtype.h"
#include "../base/number/fp8.h"
#include "../base/processor.h"
#include "c/epilogue.h"
#include "c/lists.h"

/* y(m,n) = a(m,k) b(k,n) on one thread; trans_a: a is stored as (k,m); trans_b: b is stored as (n,k). *_row is the
 * distance between stored rows in elements. m, n >= 1; k >= 0. Needs tens of KB of stack, the library 500 KB more. */
#define RT_GEMM_OPERANDS(T)                                                                                            \
    T *y, int64_t y_row, const T *a, int64_t a_row, int trans_a, const T *b, int64_t b_row, int trans_b, int64_t m,    \
        int64_t k, int64_t n
#define RT_DECLARE_GEMM(T, s) void rt_gemm_reference_##s(RT_GEMM_OPERANDS(T));

RT_NUMBERS(RT_DECLARE_GEMM)
/* 16-bit floats: summed in f32 and rounded once. Needs 500 KB of stack. */
RT_HALVES(RT_DECLARE_GEMM)

/* One block of a longer product: y(m,n) = a(m,k) b(k,n), added to y unless `first`. If k is divided at multiples of
 * RT_GEMM_DEPTH, the blocks in order give the same bits as the whole product. k >= 1. */
#define RT_GEMM_DEPTH 384
#define RT_DECLARE_GEMM_ADD(T, s)                                                                                      \
    void rt_gemm_reference_add_##s(T *y, int64_t y_row, const T *a, int64_t a_row, const T *b, int64_t b_row,          \
                                   int64_t m, int64_t k, int64_t n, int first);

RT_FLOATS(RT_DECLARE_GEMM_ADD)

struct rt_packed_product;

/* Where rows of a lie that need not be collected: `row` elements apart, each in runs of `run` elements. Run r of a row
 * begins offset[r] elements behind the row. reach: how many rows from number `row` on are such, the first at *at; 0:
 * it has to be collected. */
struct rt_gemm_places {
    int64_t row, run;
    const int64_t *offset;
    int64_t (*reach)(const float **at, const struct rt_packed_product *product, int64_t row);
};

/* y(m,n) = epilogue(a(m,k) b(k,n)), b packed (Note [Panels] in base/shape/panel.h); epilogue NULL: none. If a is not
 * stored as a matrix, `collect` writes columns [p, p + depth) of its rows [row, row + rows), which are then
 * RT_GEMM_LEFT_ROW apart; depth <= RT_GEMM_DEPTH. places: NULL, or where some of them lie. */
struct rt_packed_product {
    float *y;
    const float *a, *b;
    int64_t m, k, n;
    const struct rt_epilogue *epilogue;
    void (*collect)(float *to, const struct rt_packed_product *product, int64_t row, int64_t rows, int64_t p,
                    int64_t depth);
    const struct rt_gemm_places *places;
    const void *window; /* for collect and places */
};

/* y(m,n) = a(m,k) b(k,n), b stored as (n,k), not packed. *_row as above. m, k, n >= 1. If `pack` is set, b is not read:
 * pack(to, source, p, depth, j, width) writes rows [p, p + depth) and columns [j, j + width) of it as a panel of depth
 * rows, zeros in the panel's further columns; depth <= RT_GEMM_DEPTH, width <= RT_PANEL. onto: the product is added to
 * y. next: what `pack` will read after this product, of which `next_slices` slices of 4 KB are prefetched for each
 * panel; those of neighbouring panels begin `next_step` floats apart. Rows of a that are RT_GEMM_LEFT_ROW apart are
 * not copied: at this distance they do not evict each other from the cache. */
#define RT_GEMM_LEFT_ROW (RT_GEMM_DEPTH + 16)
struct rt_turned_product {
    float *y;
    const float *a, *b;
    int64_t y_row, a_row, b_row, m, k, n;
    int onto;
    void (*pack)(float *to, const void *source, int64_t p, int64_t depth, int64_t j, int64_t width);
    const void *source;
    const float *next;
    int64_t next_step, next_slices;
};

/* A part of b as a panel: to[q * RT_PANEL + c] = from[c * from_row + q] for c < width, else 0; width <= RT_PANEL. */
void rt_gemm_turn(float *to, const float *from, int64_t from_row, int64_t depth, int64_t width);
/* The same as rows of a left operand, RT_GEMM_LEFT_ROW apart; width <= RT_GEMM_DEPTH. */
void rt_gemm_turn_left(float *to, const float *from, int64_t from_row, int64_t depth, int64_t width);

/* The kernels of an instruction set, one row each, the best first. All use fused multiply-adds (Note [Products with
 * panels] in gemm_packed.c) except the last, which gives the reference's bits and is always available (is_present is
 * NULL). multiply computes a block of the product on one thread, which is not empty; needs 30 KB of stack.
 * multiply_turned sums like the library, in blocks of k (Note [Products and cuts]), on one thread; NULL: not
 * available; needs 500 KB of stack. multiply_near: y(rows,RT_PANEL) = a(rows,depth) panel(depth,RT_PANEL), added to
 * y unless `first`; rows of a are RT_GEMM_NEAR_ROW apart, 1 <= depth <= RT_GEMM_NEAR_ROW; lines from `ahead` on are
 * prefetched. */
#define RT_GEMM_NEAR_ROW 64
struct rt_gemm_packed {
    const char *name;
    int (*is_present)(void);
    void (*multiply)(const struct rt_packed_product *product, struct rt_block block);
    void (*multiply_turned)(const struct rt_turned_product *product);
    void (*multiply_near)(float *y, const float *a, const float *panel, const float *ahead, int64_t rows, int64_t depth,
                          int first);
};
extern const struct rt_gemm_packed rt_gemm_packed[];

/* The best row that this processor supports, or the reference. */
const struct rt_gemm_packed *rt_gemm_packed_choose(int reference);

/* y(m,n) = epilogue(a(m,k) b(k,n)), b of 16-bit floats, packed in panels of pairs (Note [Panels] in
 * base/shape/panel.h), summed in f32. Either a and y are of b's type, y is rounded once, after the epilogue (NULL:
 * none); or they are f32, and y and a are NULL. rounds: a of f32 may be rounded to bf16. */
struct rt_packed_half {
    uint16_t *y;
    const uint16_t *a, *b;
    int64_t m, k, n;
    enum rt_dtype dtype; /* of b */
    const struct rt_epilogue_half *epilogue;
    float *wide_y;
    const float *wide_a;
    const struct rt_epilogue *wide_epilogue;
    int rounds;
};

/* Computes a block of the product on one thread; the block begins at a panel and is not empty. `pairs`: with the
 * processor's products of bf16 pairs, of b in bf16 and a in bf16 or rounded to it. Otherwise operands of 16 bits are
 * widened block by block and multiplied as f32 by `set`. Needs 1.1 MB of stack. */
void rt_gemm_half(const struct rt_packed_half *product, struct rt_block block, const struct rt_gemm_packed *set,
                  int pairs);

/* to(rows,RT_PANEL) (+)= left(rows,depth) b(depth,RT_PANEL), b a panel of pairs that is widened in registers, rows of
 * `left` RT_GEMM_LEFT_ROW apart: Note [Few rows of halves] in gemm_few.c. What lies behind b is prefetched. Only where
 * rt_processor_has_avx512bw() is 1. */
enum { RT_GEMM_FEW_ROWS = 12 };
void rt_gemm_few(float *to, int64_t to_row, const float *left, const uint16_t *b, int64_t depth, int first,
                 int64_t rows, enum rt_dtype dtype);

/* Products by the library that the runtime was built with; k >= 1. 0, or -1: the library refused. Do not call them if
 * rt_gemm_library_present() is 0. */
int rt_gemm_library_present(void);
int rt_gemm_library_f32(RT_GEMM_OPERANDS(float));
int rt_gemm_library_bf16(RT_GEMM_OPERANDS(uint16_t));
int rt_gemm_library_fp16(RT_GEMM_OPERANDS(uint16_t));
/* rt_gemm_has_tiles: 1 if the library has a product of bf16 by AMX tiles, and the processor AMX. rt_gemm_onednn_bf16
 * multiplies bf16 with oneDNN, which uses them; on other processors it is slower than the others. Its bits may depend
 * on how m and n are cut. -1: refused. */
int rt_gemm_has_tiles(void);
int rt_gemm_onednn_bf16(RT_GEMM_OPERANDS(uint16_t));
/* The fastest on this processor: tiles, pairs (gemm_pairs.h), or rt_gemm_library_bf16. */
int rt_gemm_has_best_bf16(void);
int rt_gemm_best_bf16(RT_GEMM_OPERANDS(uint16_t));

/* A block of y(m,n) = factor a(m,k) b(k,n) for 8-bit floats, b stored as (n,k); pointers are to the block's first
 * elements. Summed in f32 and rounded once to f32 or a 16-bit float. 0, or -1: the library refused or the type is not
 * supported. Needs 500 KB of stack. */
struct rt_fp8_product {
    void *y;
    const uint8_t *a, *b;
    int64_t k, y_row;
    float factor;
    enum rt_dtype dtype; /* of y */
    enum rt_fp8 format_a, format_b;
};
int rt_gemm_fp8(const struct rt_fp8_product *product, int64_t m, int64_t n, int library);

/* One block of a longer product, as rt_gemm_reference_add_f32; n >= 2 and k <= RT_GEMM_DEPTH. */
int rt_gemm_library_add_f32(float *y, int64_t y_row, const float *a, int64_t a_row, const float *b, int64_t b_row,
                            int64_t m, int64_t k, int64_t n, int first);

#endif
