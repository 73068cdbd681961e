/* Limits and enumerations that the compiler and the runtime share. Generated programs contain the numbers, or name the
 * enumerators. */
#ifndef RT_BASE_CONTRACT_H
#define RT_BASE_CONTRACT_H

#define RT_MAX_NDIM     8                               /* dimensions of a tensor */
#define RT_MAX_AXES     8                               /* axes of the mesh */
#define RT_MAX_REPLICAS 2                               /* replica axes: scale units, and groups of scale units */
#define RT_LAYOUT_AXES  (RT_MAX_AXES + RT_MAX_REPLICAS) /* axes along which a tensor is placed */
#define RT_MAX_SIZES    16                              /* sizes that are chosen at run time */
#define RT_MAX_RANKS    16384                           /* ranks of a job */
#define RT_ALIGNMENT    64                              /* of every arena and of every offset in it, in bytes */
#define RT_FLASH_HEAD   128                             /* most elements of a head of FlashAttention */

/* A rank's memory by purpose. */
enum rt_arena {
#define ARENA(ID, name) RT_##ID,
#include "arenas.def"
#undef ARENA
    RT_ARENAS,
    RT_CALLER = RT_ARENAS /* not an arena: the caller's tensor; an offset there is the index of an input */
};

/* Memory layout of a weight. PLAIN: row-major, as stored. PACK_ROWS: packed into panels (Note [Panels] in panel.h)
 * from a stored (k,n). PACK_COLUMNS: packed from a stored (n,k). PACK_WINDOWS: from a stored (n, c, window..), the
 * weights of a convolution; row t * c + i of the panels is element t of the window and channel i.
 * PACK_WINOGRAD: from a stored (n, c, 3, 3), transformed (shape/winograd.h): panels of 36 matrices (c,n). */
enum rt_packing { RT_PLAIN, RT_PACK_ROWS, RT_PACK_COLUMNS, RT_PACK_WINDOWS, RT_PACK_WINOGRAD };

/* How a convolution of channels last is computed: as a product, or with RT_PACK_WINOGRAD unless kernels are the
 * reference. */
enum rt_conv_algorithm { RT_CONV_PRODUCT, RT_CONV_WINOGRAD };

/* Scalars that the runtime sets before each phase of a training step. */
enum rt_control {
#define CONTROL(ID, name) RT_##ID,
#include "controls.def"
#undef CONTROL
    RT_CONTROLS
};

/* Reductions of collectives. */
enum rt_reduce { RT_SUM, RT_MAX, RT_MIN, RT_REDUCES };

/* Rows of attention that have no weights and give 0 instead of NaN: none, those with NaN weights (also because of a NaN
 * or an infinite score), or only those whose scores are all -inf. */
enum rt_nan_to_zero { RT_NAN_STAYS, RT_NAN_TO_ZERO, RT_HIDDEN_ROWS_TO_ZERO };

/* Whether a target's library may compute attention; atomic: and add up its gradient in any order. */
enum rt_library { RT_NO_LIBRARY, RT_LIBRARY, RT_LIBRARY_ATOMIC };

/* Activation that a matrix product applies to its result: none, GELU, or the product with GELU's derivative. */
enum rt_activation { RT_NO_ACTIVATION, RT_GELU, RT_GELU_GRAD };

#endif
