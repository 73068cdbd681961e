/* Movement of elements; the manual is kernels/c/kernels.h. */
#ifndef RT_CUDA_MOVE_CUH
#define RT_CUDA_MOVE_CUH

#include "launch.cuh"

/* A strided view: extents of the dense tensor and strides in the other tensor. Dimensions that are contiguous in both
 * are merged. */
struct rt_view {
    int ndim;
    int64_t count, start;
    int64_t extent[RT_MAX_NDIM], stride[RT_MAX_NDIM];
};

static inline void rt_view_push(rt_view *view, int64_t extent, int64_t stride) {
    const int last = view->ndim - 1;
    view->count *= extent;
    if (extent == 1) return;
    if (last >= 0 && view->stride[last] == stride * extent) {
        view->extent[last] *= extent;
        view->stride[last] = stride;
        return;
    }
    view->extent[view->ndim] = extent;
    view->stride[view->ndim++] = stride;
}

static inline rt_view rt_view_of(int64_t start) {
    rt_view view = {};
    view.count = 1;
    view.start = start;
    return view;
}

/* Splits point % extent off the point; in 32 bits if that suffices. */
static inline __host__ __device__ int64_t rt_take(int64_t *point, int64_t extent) {
    if (((*point | extent) >> 32) == 0) {
        const uint32_t p = (uint32_t)*point, e = (uint32_t)extent;
        *point = p / e;
        return p % e;
    }
    const int64_t rest = *point % extent;
    *point /= extent;
    return rest;
}

static inline __host__ __device__ int64_t rt_view_at(const rt_view &view, int64_t point) {
    int64_t at = view.start;
    for (int d = view.ndim - 1; d >= 0; d--) at += rt_take(&point, view.extent[d]) * view.stride[d];
    return at;
}

static inline rt_dims rt_dense(const rt_dims &dims, int ndim) {
    rt_dims stride = {};
    int64_t count = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = count;
        count *= dims[d];
    }
    return stride;
}

/* Elements per 16-byte access; used if extents and addresses allow. */
template <class T> using rt_wide = rt_vector<T, RT_WIDTH(T)>;

/* The view in units of 16 bytes; its last dimension is contiguous. */
template <class T> static inline bool rt_view_widen(struct rt *rt, rt_view *view, const void *y, const void *x) {
    const int64_t n = RT_WIDTH(T), last = view->ndim - 1;
    bool whole =
        last >= 0 && view->stride[last] == 1 && view->start % n == 0 && rt_is_wide<T>(rt, view->extent[last], {y, x});
    for (int d = 0; d < last; d++) whole = whole && view->stride[d] % n == 0;
    if (!whole) return false;
    for (int d = 0; d < last; d++) view->stride[d] /= n;
    view->extent[last] /= n;
    view->start /= n;
    view->count /= n;
    return true;
}

/* A view whose lines of y lie across those of x: in x a dimension other than the last is contiguous. A thread moves a
 * square of RT_WIDTH(T) elements of either, with accesses of 16 bytes. The loop over squares goes through up to four
 * neighbours in x first, which share the sectors that they read, then along the lines of y. */
struct rt_turn {
    int ndim;
    int64_t count, start;
    int64_t extent[RT_MAX_NDIM + 1], from[RT_MAX_NDIM + 1], to[RT_MAX_NDIM + 1]; /* in squares; strides of x and y */
    int64_t line_from, line_to; /* between the lines of a square in x, and in y */
};

static inline void rt_turn_push(rt_turn *turn, int64_t extent, int64_t from, int64_t to) {
    turn->extent[turn->ndim] = extent;
    turn->from[turn->ndim] = from;
    turn->to[turn->ndim++] = to;
    turn->count *= extent;
}

/* The dimension that is contiguous in x, if squares of n divide the view; else -1. */
static inline int rt_turned_dimension(const rt_view &view, int64_t n) {
    int turned = -1;
    for (int d = 0; d < view.ndim; d++)
        if (view.stride[d] == 1 && turned < 0)
            turned = d;
        else if (view.stride[d] % n)
            return -1;
    const bool whole = turned >= 0 && turned < view.ndim - 1 && view.start % n == 0 && view.extent[turned] % n == 0 &&
                       view.extent[view.ndim - 1] % n == 0;
    return whole ? turned : -1;
}

template <class T>
static inline bool rt_turn_of(struct rt *rt, const rt_view &view, const void *y, const void *x, rt_turn *turn) {
    const int64_t n = RT_WIDTH(T), turned = rt_turned_dimension(view, n), last = view.ndim - 1;
    rt_dims extent = {}, dense;
    if (turned < 0 || !rt_is_wide<T>(rt, 0, {y, x})) return false;
    for (int d = 0; d < view.ndim; d++) extent[d] = view.extent[d];
    dense = rt_dense(extent, view.ndim);
    const int64_t squares = extent[(int)turned] / n, side = squares % 4 == 0 ? 4 : squares % 2 == 0 ? 2 : 1;
    *turn = {};
    turn->count = 1;
    turn->start = view.start;
    turn->line_from = view.stride[last];
    turn->line_to = dense[(int)turned];
    for (int d = 0; d < last; d++)
        if (d == turned)
            rt_turn_push(turn, squares / side, n * side, dense[d] * n * side);
        else
            rt_turn_push(turn, extent[d], view.stride[d], dense[d]);
    rt_turn_push(turn, extent[(int)last] / n, view.stride[last] * n, n);
    rt_turn_push(turn, side, n, turn->line_to * n);
    return true;
}

template <class T> static inline int rt_read_turned(struct rt *rt, void *y, const void *x, const rt_turn &turn) {
    constexpr int N = RT_WIDTH(T);
    return rt_points(rt, turn.count, [=] __device__(int64_t p) {
        const T *from = (const T *)x + turn.start;
        T *to = (T *)y;
        for (int d = turn.ndim - 1; d >= 0; d--) {
            const int64_t i = rt_take(&p, turn.extent[d]);
            from += i * turn.from[d];
            to += i * turn.to[d];
        }
        rt_vector<T, N> square[N];
#pragma unroll
        for (int i = 0; i < N; i++) square[i] = rt_get_vector<N>(from + i * turn.line_from);
#pragma unroll
        for (int j = 0; j < N; j++) {
            rt_vector<T, N> line;
#pragma unroll
            for (int i = 0; i < N; i++) line.at[i] = square[i].at[j];
            rt_put_vector(to + j * turn.line_to, line);
        }
    });
}

/* As many values as fit in a kernel's arguments at a time. */
static inline int rt_sizes_b8(struct rt *rt, void *y, int64_t n, std::initializer_list<int64_t> values) {
    for (int64_t first = 0; first < n; first += RT_MAX_NDIM) {
        const int64_t count = n - first < RT_MAX_NDIM ? n - first : RT_MAX_NDIM;
        int64_t *to = (int64_t *)y + first;
        rt_dims part = {};
        for (int64_t i = 0; i < count; i++) part[(int)i] = values.begin()[first + i];
        rt_points(rt, count, [=] __device__(int64_t i) { to[i] = part[(int)i]; });
    }
    return RT_OK;
}

/* y = the elements of x at the view's offsets. */
template <class T> static inline int rt_read_each(struct rt *rt, void *y, const void *x, const rt_view &view) {
    T *to = (T *)y;
    const T *from = (const T *)x;
    return rt_points(rt, view.count, [=] __device__(int64_t p) { to[p] = from[rt_view_at(view, p)]; });
}
template <class T> static inline int rt_read_view(struct rt *rt, void *y, const void *x, rt_view view) {
    rt_turn turn;
    if (rt_view_widen<T>(rt, &view, y, x)) return rt_read_each<rt_wide<T>>(rt, y, x, view);
    return rt_turn_of<T>(rt, view, y, x, &turn) ? rt_read_turned<T>(rt, y, x, turn) : rt_read_each<T>(rt, y, x, view);
}

template <class T>
RT_FAMILY int rt_transpose(struct rt *rt, void *y, const void *x, int ndim, const rt_dims &x_dims,
                           const rt_dims &perm) {
    const rt_dims stride = rt_dense(x_dims, ndim);
    rt_view view = rt_view_of(0);
    for (int d = 0; d < ndim; d++) rt_view_push(&view, x_dims[(int)perm[d]], stride[(int)perm[d]]);
    return rt_read_view<T>(rt, y, x, view);
}

template <class T>
RT_FAMILY int rt_slice(struct rt *rt, void *y, const void *x, int ndim, const rt_dims &x_dims, const rt_dims &start,
                       const rt_dims &step, const rt_dims &y_dims) {
    const rt_dims stride = rt_dense(x_dims, ndim);
    rt_view view = rt_view_of(0);
    for (int d = 0; d < ndim; d++) {
        view.start += start[d] * stride[d];
        rt_view_push(&view, y_dims[d], stride[d] * step[d]);
    }
    return rt_read_view<T>(rt, y, x, view);
}

template <class T>
RT_FAMILY int rt_expand(struct rt *rt, void *y, const void *x, int ndim, const rt_dims &x_dims, const rt_dims &y_dims) {
    const rt_dims stride = rt_dense(x_dims, ndim);
    rt_view view = rt_view_of(0);
    for (int d = 0; d < ndim; d++) rt_view_push(&view, y_dims[d], x_dims[d] == 1 ? 0 : stride[d]);
    return rt_read_view<T>(rt, y, x, view);
}

template <class T>
RT_FAMILY int rt_pad(struct rt *rt, void *y, const void *x, int ndim, const rt_dims &x_dims, const rt_dims &begin,
                     const rt_dims &y_dims, const void *value) {
    T *to = (T *)y;
    const T *from = (const T *)x, *outside = (const T *)value;
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
        int64_t rest = p, at = 0, stride = 1;
        bool inside = true;
        for (int d = ndim - 1; d >= 0; d--) {
            const int64_t i = rt_take(&rest, y_dims[d]) - begin[d];
            inside = inside && i >= 0 && i < x_dims[d];
            at += i * stride;
            stride *= x_dims[d];
        }
        to[p] = inside ? from[at] : *outside;
    });
}

/* One input of Concat: the elements of y from `start` on, in every `sum`. */
template <class T>
static inline int rt_put_part(struct rt *rt, void *y, const void *x, int64_t outer, int64_t extent, int64_t sum,
                              int64_t start) {
    T *to = (T *)y + start;
    const T *from = (const T *)x;
    return rt_points(rt, outer * extent, [=] __device__(int64_t p) {
        int64_t row = p;
        const int64_t i = rt_take(&row, extent);
        to[row * sum + i] = from[p];
    });
}

template <class T>
RT_FAMILY int rt_concat(struct rt *rt, void *y, int count, std::initializer_list<const void *> x, int64_t outer,
                        std::initializer_list<int64_t> extents) {
    const int64_t n = RT_WIDTH(T);
    int64_t sum = 0, start = 0;
    for (int j = 0; j < count; j++) sum += extents.begin()[j];
    for (int j = 0; j < count; j++) {
        const int64_t extent = extents.begin()[j];
        const void *from = x.begin()[j];
        if (rt_is_wide<T>(rt, extent, {y, from}) && sum % n == 0 && start % n == 0)
            rt_put_part<rt_wide<T>>(rt, y, from, outer, extent / n, sum / n, start / n);
        else
            rt_put_part<T>(rt, y, from, outer, extent, sum, start);
        start += extent;
    }
    return RT_OK;
}

static inline int rt_copy(struct rt *rt, void *y, const void *x, size_t bytes) {
    rt_take_note(rt, NULL, false, y, x, bytes);
    return rt_note(rt, cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, rt_cuda_of(rt)->stream));
}

template <class T>
RT_FAMILY int rt_append(struct rt *rt, void *y, const void *x, const rt_strided<const void> &rows, int ndim,
                        const rt_dims &rows_dims, const rt_dims &dims, int axis, int64_t at) {
    const rt_dims step = rt_dense(dims, ndim), from_step = rows.step;
    int64_t count = 1, all = 1;
    for (int d = 0; d < ndim; d++) count *= rows_dims[d], all *= dims[d];
    if (y != x) RT_TRY(rt_copy(rt, y, x, (size_t)all * sizeof(T)));
    T *to = (T *)y + at * step[axis];
    const T *from = (const T *)rows.at;
    const rt_dims extent = rows_dims;
    return rt_points(rt, count, [=] __device__(int64_t p) {
        int64_t source = 0, place = 0;
        for (int d = ndim - 1; d >= 0; d--) {
            const int64_t i = rt_take(&p, extent[d]);
            source += i * from_step[d], place += i * step[d];
        }
        to[place] = from[source];
    });
}

template <class T>
RT_FAMILY int rt_trilu(struct rt *rt, void *y, const void *x, int64_t outer, int64_t rows, int64_t columns, int64_t k,
                       int upper, int64_t row_start, int64_t row_jump, int64_t column_start) {
    T *to = (T *)y;
    const T *from = (const T *)x;
    return rt_points(rt, outer * rows * columns, [=] __device__(int64_t p) {
        int64_t row = p;
        const int64_t j = rt_take(&row, columns) + column_start, place = rt_take(&row, rows),
                      edge = place + (place < rows / 2 ? 0 : row_jump) + row_start + k;
        to[p] = (upper ? j >= edge : j <= edge) ? from[p] : (T)0;
    });
}

#define RT_CUDA_MOVE(T, N)                                                                                             \
    RT_NAME(rt_transpose_b##N, rt_transpose<T>)                                                                        \
    RT_NAME(rt_slice_b##N, rt_slice<T>)                                                                                \
    RT_NAME(rt_expand_b##N, rt_expand<T>)                                                                              \
    RT_NAME(rt_pad_b##N, rt_pad<T>)                                                                                    \
    RT_NAME(rt_concat_b##N, rt_concat<T>)                                                                              \
    RT_NAME(rt_trilu_b##N, rt_trilu<T>)                                                                                \
    RT_NAME(rt_append_b##N, rt_append<T>)
RT_SIZES(RT_CUDA_MOVE)

#endif
