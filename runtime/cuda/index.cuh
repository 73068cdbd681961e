/* Indexing; the manual is kernels/c/kernels.h. An index out of range is recorded as a fault; its element becomes 0 or
 * is skipped. Several updates of one element are made in order: results do not depend on timing. */
#ifndef RT_CUDA_INDEX_CUH
#define RT_CUDA_INDEX_CUH

#include "move.cuh"
#include "reduce.cuh"
#include "sort.cuh"

/* An index tensor, and where its faults are recorded. */
struct rt_index {
    const void *at;
    int is_64, instruction;
    rt_fault *fault;
};

static inline rt_index rt_index_of(struct rt *rt, const void *index, int is_64) {
    return rt_index{index, is_64, rt->instruction, rt_cuda_of(rt)->fault};
}

static inline __device__ void rt_note_fault(rt_fault *fault, int kind, int instruction, int64_t value, int64_t position,
                                            int64_t total) {
    if (atomicCAS(&fault->kind, RT_FAULT_NONE, kind) != RT_FAULT_NONE) return;
    fault->instruction = instruction;
    fault->value = value;
    fault->position = position;
    fault->total = total;
}

static inline __device__ int64_t rt_index_value(const rt_index &index, int64_t position) {
    return index.is_64 ? ((const int64_t *)index.at)[position] : ((const int32_t *)index.at)[position];
}

/* The non-negative index that the entry at `position` stands for; -1 after a fault. */
static inline __device__ int64_t rt_index_place(const rt_index &index, int64_t position, int64_t total) {
    const int64_t value = rt_index_value(index, position);
    if (value >= -total && value < total) return value < 0 ? value + total : value;
    rt_note_fault(index.fault, RT_FAULT_INDEX, index.instruction, value, position, total);
    return -1;
}

/* The block that row `row` of `depth` indices names; -1 after a fault. */
static inline __device__ int64_t rt_block_of(const rt_index &index, int64_t row, int depth, const rt_dims &dims) {
    int64_t block = 0;
    for (int d = 0; d < depth; d++) {
        const int64_t place = rt_index_place(index, row * depth + d, dims[d]);
        if (place < 0) return -1;
        block = block * dims[d] + place;
    }
    return block;
}

template <class T>
static inline int rt_gather_each(struct rt *rt, void *y, const void *x, const void *indices, int is_64, int64_t outer,
                                 int64_t extent, int64_t inner, int64_t count, int64_t start, int64_t total) {
    T *to = (T *)y;
    const T *from = (const T *)x;
    const rt_index index = rt_index_of(rt, indices, is_64);
    return rt_points(rt, outer * count * inner, [=] __device__(int64_t p) {
        int64_t o = p;
        const int64_t q = rt_take(&o, inner), i = rt_take(&o, count), place = rt_index_place(index, i, total) - start;
        to[p] = place >= 0 && place < extent ? from[(o * extent + place) * inner + q] : T{};
    });
}
template <class T>
RT_FAMILY int rt_gather(struct rt *rt, void *y, const void *x, const void *indices, int is_64, int64_t outer,
                        int64_t extent, int64_t inner, int64_t count, int64_t start, int64_t total) {
    if (!rt_is_wide<T>(rt, inner, {y, x}))
        return rt_gather_each<T>(rt, y, x, indices, is_64, outer, extent, inner, count, start, total);
    return rt_gather_each<rt_wide<T>>(rt, y, x, indices, is_64, outer, extent, inner / RT_WIDTH(T), count, start,
                                      total);
}

/* The row of y that an index names; `extent` if another rank holds it, or after a fault. */
struct rt_row_of {
    rt_index index;
    int64_t extent, start, total;
    __device__ int64_t operator()(int64_t position) const {
        const int64_t place = rt_index_place(index, position, total) - start;
        return place < 0 || place >= extent ? extent : place;
    }
};

/* Sums the rows of dy by the row of y that their index names. Positions are sorted by row, in SCRATCH; the thread block
 * of the first position of a row adds all of that row, in order. */
template <class T>
RT_FAMILY int rt_gather_grad(struct rt *rt, T *y, const T *dy, const void *indices, int is_64, int64_t outer,
                             int64_t extent, int64_t inner, int64_t count, int64_t start, int64_t total) {
    const rt_row_of row_of = {rt_index_of(rt, indices, is_64), extent, start, total};
    const rt_sorted sorted = rt_sort(rt, rt->arena[RT_SCRATCH], count, extent, row_of);
    rt_points(rt, outer * extent * inner, [=] __device__(int64_t p) { y[p] = 0; });
    return rt_rows(rt, outer * count, [=] __device__(int64_t row) {
        const int64_t o = row / count, first = row % count, place = sorted.key[first];
        if (place == extent || (first > 0 && sorted.key[first - 1] == place)) return;
        int64_t end = first + 1;
        while (end < count && sorted.key[end] == place) end++;
        RT_EACH(q, inner) {
            T sum = 0;
#pragma unroll 4
            for (int64_t i = first; i < end; i++) sum += dy[(o * count + sorted.position[i]) * inner + q];
            y[(o * extent + place) * inner + q] = sum;
        }
    });
}

/* A line of index_dims along `axis`: offsets of its first element in the index and in x, and the strides. */
struct rt_lines {
    int ndim, axis;
    rt_dims x_dims, index_dims;
    int64_t count, length, x_step, index_step;
};

static inline rt_lines rt_lines_of(int ndim, const rt_dims &x_dims, const rt_dims &index_dims, int axis) {
    return rt_lines{ndim,
                    axis,
                    x_dims,
                    index_dims,
                    rt_count(index_dims, 0, axis) * rt_count(index_dims, axis + 1, ndim),
                    index_dims[axis],
                    rt_count(x_dims, axis + 1, ndim),
                    rt_count(index_dims, axis + 1, ndim)};
}

static inline __device__ void rt_line_at(const rt_lines &lines, int64_t line, int64_t *in_x, int64_t *in_index) {
    int64_t x_stride = 1, index_stride = 1;
    *in_x = *in_index = 0;
    for (int d = lines.ndim - 1; d >= 0; d--) {
        const int64_t i = d == lines.axis ? 0 : rt_take(&line, lines.index_dims[d]);
        *in_x += i * x_stride;
        *in_index += i * index_stride;
        x_stride *= lines.x_dims[d];
        index_stride *= lines.index_dims[d];
    }
}

template <class T>
RT_FAMILY int rt_gather_elements(struct rt *rt, void *y, const void *x, const void *indices, int is_64, int ndim,
                                 const rt_dims &x_dims, const rt_dims &index_dims, int axis) {
    T *to = (T *)y;
    const T *from = (const T *)x;
    const rt_index index = rt_index_of(rt, indices, is_64);
    const rt_lines lines = rt_lines_of(ndim, x_dims, index_dims, axis);
    return rt_points(rt, lines.count * lines.length, [=] __device__(int64_t p) {
        int64_t line = p, in_x, in_index;
        const int64_t i = rt_take(&line, lines.length);
        rt_line_at(lines, line, &in_x, &in_index);
        in_index += i * lines.index_step;
        const int64_t place = rt_index_place(index, in_index, lines.x_dims[lines.axis]);
        to[in_index] = place < 0 ? (T)0 : from[in_x + place * lines.x_step];
    });
}

struct rt_replace {
    template <class T> __device__ void operator()(T *at, T value) const { *at = value; }
};
/* Combined in the type of sums, in which integers wrap, or in order. */
template <class Op> struct rt_put_sum {
    template <class T> __device__ void operator()(T *at, T value) const {
        using A = typename rt_sum_type<T>::type;
        *at = (T)Op()((A)*at, (A)value);
    }
};
template <class Op> struct rt_put_order {
    template <class T> __device__ void operator()(T *at, T value) const { *at = Op()(*at, value); }
};

/* P: the type of elements in generated programs. */
template <class T, class Op, class P>
RT_FAMILY int rt_scatter_elements(struct rt *rt, P *y, const P *x, const void *indices, int is_64, const P *updates,
                                  int ndim, const rt_dims &x_dims, const rt_dims &index_dims, int axis) {
    T *to = (T *)y;
    const T *from = (const T *)updates;
    const rt_index index = rt_index_of(rt, indices, is_64);
    const rt_lines lines = rt_lines_of(ndim, x_dims, index_dims, axis);
    if (y != x) rt_copy(rt, y, x, (size_t)rt_count(x_dims, 0, ndim) * sizeof(T));
    return rt_points(rt, lines.count, [=] __device__(int64_t line) {
        int64_t in_x, in_index;
        rt_line_at(lines, line, &in_x, &in_index);
        for (int64_t i = 0; i < lines.length; i++, in_index += lines.index_step) {
            const int64_t place = rt_index_place(index, in_index, lines.x_dims[lines.axis]);
            if (place >= 0) Op()(to + in_x + place * lines.x_step, from[in_index]);
        }
    });
}

template <class T>
RT_FAMILY int rt_gather_nd(struct rt *rt, void *y, const void *x, const int64_t *indices, int64_t batch, int64_t count,
                           int depth, const rt_dims &dims, int64_t inner) {
    T *to = (T *)y;
    const T *from = (const T *)x;
    const rt_index index = rt_index_of(rt, indices, 1);
    const int64_t blocks = rt_count(dims, 0, depth);
    return rt_points(rt, batch * count * inner, [=] __device__(int64_t p) {
        int64_t row = p;
        const int64_t q = rt_take(&row, inner), block = rt_block_of(index, row, depth, dims);
        to[p] = block < 0 ? (T)0 : from[(row / count * blocks + block) * inner + q];
    });
}

template <class T, class Op, class P>
RT_FAMILY int rt_scatter_nd(struct rt *rt, P *y, const P *x, const int64_t *indices, const P *updates, int64_t batch,
                            int64_t count, int depth, const rt_dims &dims, int64_t inner) {
    T *to = (T *)y;
    const T *from = (const T *)updates;
    const rt_index index = rt_index_of(rt, indices, 1);
    const int64_t blocks = rt_count(dims, 0, depth);
    if (y != x) rt_copy(rt, y, x, (size_t)(batch * blocks * inner) * sizeof(T));
    return rt_points(rt, batch * inner, [=] __device__(int64_t p) {
        int64_t b = p;
        const int64_t q = rt_take(&b, inner);
        for (int64_t row = b * count; row < (b + 1) * count; row++) {
            const int64_t block = rt_block_of(index, row, depth, dims);
            if (block >= 0) Op()(to + (b * blocks + block) * inner + q, from[row * inner + q]);
        }
    });
}

RT_ON_CALL int rt_class_index(struct rt *rt, int64_t *y, const void *x, int x_is_64, int ndim, const rt_dims &dims,
                              const rt_dims &, int64_t classes, int ignores, int64_t ignored) {
    const rt_index index = rt_index_of(rt, x, x_is_64);
    return rt_points(rt, rt_count(dims, 0, ndim), [=] __device__(int64_t p) {
        const int64_t value = rt_index_value(index, p);
        y[p] = value;
        if ((value < 0 || value >= classes) && !(ignores && value == ignored))
            rt_note_fault(index.fault, RT_FAULT_CLASS, index.instruction, value, p, classes);
    });
}

template <class T>
RT_FAMILY int rt_divisor(struct rt *rt, void *y, const void *x, int ndim, const rt_dims &dims, const rt_dims &) {
    const rt_index index = rt_index_of(rt, NULL, 0);
    const T *from = (const T *)x;
    T *to = (T *)y;
    return rt_points(rt, rt_count(dims, 0, ndim), [=] __device__(int64_t p) {
        to[p] = from[p];
        if (from[p] == 0) rt_note_fault(index.fault, RT_FAULT_DIVISOR, index.instruction, 0, p, 0);
    });
}

#define RT_CUDA_INDEX(T, N)                                                                                            \
    RT_NAME(rt_divisor_b##N, rt_divisor<T>)                                                                            \
    RT_NAME(rt_gather_b##N, rt_gather<T>)                                                                              \
    RT_NAME(rt_gather_elements_b##N, rt_gather_elements<T>)                                                            \
    RT_NAME(rt_gather_nd_b##N, rt_gather_nd<T>)                                                                        \
    RT_NAME(rt_scatter_elements_b##N, rt_scatter_elements<T, rt_replace, void>)                                        \
    RT_NAME(rt_scatter_nd_b##N, rt_scatter_nd<T, rt_replace, void>)
RT_SIZES(RT_CUDA_INDEX)

#define RT_CUDA_INDEX_ADD(T, s) RT_NAME(rt_gather_grad_##s, rt_gather_grad<T>)
RT_FLOATS(RT_CUDA_INDEX_ADD)

#define RT_CUDA_SCATTER_FOLD(T, s, fold, ...)                                                                          \
    RT_NAME(rt_scatter_elements_##fold##_##s, rt_scatter_elements<T, __VA_ARGS__, T>)                                  \
    RT_NAME(rt_scatter_nd_##fold##_##s, rt_scatter_nd<T, __VA_ARGS__, T>)
#define RT_CUDA_SCATTER_FOLDS(T, s)                                                                                    \
    RT_CUDA_SCATTER_FOLD(T, s, add, rt_put_sum<rt_sum_of>)                                                             \
    RT_CUDA_SCATTER_FOLD(T, s, mul, rt_put_sum<rt_product_of>)                                                         \
    RT_CUDA_SCATTER_FOLD(T, s, max, rt_put_order<rt_max_of>)                                                           \
    RT_CUDA_SCATTER_FOLD(T, s, min, rt_put_order<rt_min_of>)
RT_NUMBERS(RT_CUDA_SCATTER_FOLDS)

#endif
