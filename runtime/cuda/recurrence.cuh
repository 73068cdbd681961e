/* Recurrent layers; the manual is kernels/c/recurrence.h. Each step is a product and a kernel that computes the gates
 * of all units from it. Launches of all steps go to the stream one after the other, or into a graph. */
#ifndef RT_CUDA_RECURRENCE_CUH
#define RT_CUDA_RECURRENCE_CUH

#include "../kernels/c/cells.h"
#include "product.cuh"

template <class T> struct rt_cells;

#define RT_CUDA_CELLS(T, s)                                                                                            \
    template <> struct rt_cells<T> {                                                                                   \
        static __device__ T round(T x) { return rt_round_##s(x); }                                                     \
        static __device__ T squash(const rt_recurrence &k, const rt_gate &gate, T x) {                                 \
            return rt_squash_##s(&k, &gate, x);                                                                        \
        }                                                                                                              \
        static __device__ T slope(const rt_recurrence &k, const rt_gate &gate, T x, T y) {                             \
            return rt_squash_slope_##s(&k, &gate, x, y);                                                               \
        }                                                                                                              \
        static __device__ void lstm(const rt_recurrence &k, const T *pre, const T *peephole, T *hidden, T *cell) {     \
            rt_lstm_##s(&k, pre, peephole, hidden, cell);                                                              \
        }                                                                                                              \
        static __device__ void lstm_grad(const rt_recurrence &k, const T *pre, const T *peephole, T before, T after,   \
                                         T dh, T *dc, T *d) {                                                          \
            rt_lstm_grad_##s(&k, pre, peephole, before, after, dh, dc, d);                                             \
        }                                                                                                              \
        static __device__ T gru(const rt_recurrence &k, T pre_z, T pre_h, T before) {                                  \
            return rt_gru_##s(&k, pre_z, pre_h, before);                                                               \
        }                                                                                                              \
        static __device__ T gru_grad(const rt_recurrence &k, T pre_z, T pre_h, T before, T dh, T *dz, T *dc) {         \
            return rt_gru_grad_##s(&k, pre_z, pre_h, before, dh, dz, dc);                                              \
        }                                                                                                              \
    };

RT_FLOATS(RT_CUDA_CELLS)

/* The operands of a layer, and its workspace in SCRATCH, which a library's follows. */
template <class T> struct rt_layer {
    rt_recurrence k;
    int64_t gates, plane; /* elements of a state of one step */
    const T *x, *weights, *initial, *vector;
    const int64_t *lengths;
    const T *scale;         /* of an LSTM, or NULL: `reset` then is the quantised state, and `last` its scale */
    T *sums, *reset, *last; /* (b,gates h), then two of (b,h) */
    T *candidates;          /* gradient of a GRU without reset_after: the candidate's products of all steps */
    void *workspace;
};

template <class T>
static inline rt_layer<T> rt_layer_of(const rt_recurrence &k, const T *x, const T *weights, const T *initial,
                                      const T *vector, const int64_t *lengths, void *scratch, int64_t states) {
    rt_layer<T> l = {k, rt_cell_gates(k.cell), k.b * k.h, x, weights, initial, vector, lengths, NULL, (T *)scratch};
    l.reset = l.sums + l.gates * l.plane;
    l.last = l.reset + l.plane;
    l.candidates = l.last + l.plane;
    l.workspace = (char *)scratch + rt_behind_scores((int64_t)sizeof(T) * (l.gates + 2 + states) * l.plane);
    return l;
}

/* The steps whose states lie in GPU memory (s,t,b,h), by position. */
static inline int64_t rt_step_at(const rt_recurrence &k, int64_t step) {
    return k.reverse ? k.t - 1 - step : step;
}

/* y(rows,units) = a(rows,depth) times weights (depth,units), stored transposed if `turned`. */
template <class T>
static inline int rt_layer_product(struct rt *rt, const rt_layer<T> &l, T *y, const T *a, const T *weights, int turned,
                                   int64_t rows, int64_t depth, int64_t units) {
    return rt_multiply<rt_plain<T>>(
        rt, rt_product{rt_dtype_of<T>, y, a, weights, 1, rows, depth, units, 0, turned, l.workspace, {}});
}

/* One sequence's unit of a step: its offsets in a state and in the sums of the gates. */
struct rt_unit {
    int64_t row, j;
};
static inline __device__ rt_unit rt_unit_of(int64_t p, int64_t h) {
    const int64_t j = rt_take(&p, h);
    return {p, j};
}

/* The levels of the state, less their zero point, and its scale. One block does it, since all depends on the range. */
template <class T>
static inline int rt_quantise_state(struct rt *rt, const rt_layer<T> &l, int64_t at, const T *state) {
    const rt_recurrence k = l.k;
    return rt_rows(rt, 1, [=] __device__(int64_t) {
        T low = 0, high = 0;
        RT_EACH(p, l.plane) {
            const bool beyond = l.lengths && !k.reverse && at - 1 >= l.lengths[p / k.h];
            low = !beyond && state[p] < low ? state[p] : low;
            high = !beyond && state[p] > high ? state[p] : high;
        }
        low = -rt_block_fold(-low, rt_max_of());
        high = rt_block_fold(high, rt_max_of());
        const T scale = high > low ? (high - low) / 255 : 1, zero = rt_cells<T>::round(-low / scale);
        RT_EACH(p, l.plane) {
            const T level = rt_cells<T>::round(state[p] / scale) + zero;
            l.reset[p] = (level < 0 ? 0 : level > 255 ? 255 : level) - zero;
        }
        if (threadIdx.x == 0) *l.last = scale;
    });
}

template <class T>
static inline int rt_lstm_step(struct rt *rt, const rt_layer<T> &l, int64_t at, const T *before, const T *cells, T *y) {
    const rt_recurrence k = l.k;
    T *cells_after = y + k.t * l.plane;
    if (l.scale) RT_TRY(rt_quantise_state(rt, l, at, before));
    RT_TRY(rt_layer_product(rt, l, l.sums, l.scale ? l.reset : before, l.weights, 1, k.b, k.h, 4 * k.h));
    return rt_points(rt, l.plane, [=] __device__(int64_t p) {
        const rt_unit unit = rt_unit_of(p, k.h);
        const T *x = l.x + (at * k.b + unit.row) * 4 * k.h + unit.j, *sums = l.sums + unit.row * 4 * k.h + unit.j;
        T pre[4], peephole[3], hidden = before[p], cell = cells[p];
        for (int q = 0; q < 4; q++) {
            const T scale = l.scale ? *l.last * l.scale[q * k.h + unit.j] : (T)1;
            pre[q] = x[q * k.h] + sums[q * k.h] * scale;
        }
        for (int q = 0; q < 3; q++) peephole[q] = l.vector ? l.vector[q * k.h + unit.j] : (T)0;
        if (!l.lengths || at < l.lengths[unit.row]) rt_cells<T>::lstm(k, pre, peephole, &hidden, &cell);
        y[p] = hidden;
        cells_after[p] = cell;
    });
}

/* The reset gate times the state, or with reset_after times the candidate's product. `sums` has `gates` gates. */
template <class T>
static inline int rt_reset_step(struct rt *rt, const rt_layer<T> &l, int64_t at, const T *before, int64_t gates) {
    const rt_recurrence k = l.k;
    return rt_points(rt, l.plane, [=] __device__(int64_t p) {
        const rt_unit unit = rt_unit_of(p, k.h);
        const T *sums = l.sums + unit.row * gates * k.h + unit.j;
        const T pre = l.x[(at * k.b + unit.row) * 3 * k.h + k.h + unit.j] + sums[k.h];
        const T bias = l.vector ? l.vector[unit.j] : (T)0;
        l.reset[p] = rt_cells<T>::squash(k, k.gate, pre) * (k.reset_after ? sums[2 * k.h] + bias : before[p]);
    });
}

template <class T>
static inline int rt_gru_step(struct rt *rt, const rt_layer<T> &l, int64_t at, const T *before, T *y) {
    const rt_recurrence k = l.k;
    const int64_t gates = k.reset_after ? 3 : 2;
    const T *last = k.reset_after ? l.reset : l.last;
    RT_TRY(rt_layer_product(rt, l, l.sums, before, l.weights, 1, k.b, k.h, gates * k.h));
    RT_TRY(rt_reset_step(rt, l, at, before, gates));
    if (!k.reset_after)
        RT_TRY(rt_layer_product(rt, l, l.last, (const T *)l.reset, l.weights + 2 * k.h * k.h, 1, k.b, k.h, k.h));
    return rt_points(rt, l.plane, [=] __device__(int64_t p) {
        const rt_unit unit = rt_unit_of(p, k.h);
        const T *x = l.x + (at * k.b + unit.row) * 3 * k.h + unit.j;
        const T pre_z = x[0] + l.sums[unit.row * gates * k.h + unit.j], pre_h = x[2 * k.h] + last[p];
        const bool beyond = l.lengths && at >= l.lengths[unit.row];
        y[p] = beyond ? before[p] : rt_cells<T>::gru(k, pre_z, pre_h, before[p]);
    });
}

template <class T>
static inline int rt_rnn_step(struct rt *rt, const rt_layer<T> &l, int64_t at, const T *before, T *y) {
    const rt_recurrence k = l.k;
    RT_TRY(rt_layer_product(rt, l, l.sums, before, l.weights, 1, k.b, k.h, k.h));
    return rt_points(rt, l.plane, [=] __device__(int64_t p) {
        const bool beyond = l.lengths && at >= l.lengths[p / k.h];
        y[p] = beyond ? before[p] : rt_cells<T>::squash(k, k.gate, l.x[at * l.plane + p] + l.sums[p]);
    });
}

template <class T> static inline int rt_run_layer(struct rt *rt, const rt_layer<T> &l, T *y) {
    const rt_recurrence &k = l.k;
    const T *before = l.initial, *cells = l.initial + l.plane;
    for (int64_t step = 0; step < k.t; step++) {
        const int64_t at = rt_step_at(k, step);
        T *after = y + at * l.plane;
        if (k.cell == RT_CELL_LSTM) RT_TRY(rt_lstm_step(rt, l, at, before, cells, after));
        if (k.cell == RT_CELL_GRU) RT_TRY(rt_gru_step(rt, l, at, before, after));
        if (k.cell == RT_CELL_RNN) RT_TRY(rt_rnn_step(rt, l, at, before, after));
        before = after;
        cells = after + k.t * l.plane;
    }
    return RT_OK;
}

/* The tensors of the gradient. */
template <class T> struct rt_layer_grad {
    T *dx, *dinitial, *mixed;
    const T *dy, *y;
};

/* The state before a step: hidden, and `all` or `plane` behind it the cell state. */
template <class T> struct rt_before { const T *hidden, *cell; };
template <class T>
static inline rt_before<T> rt_before_step(const rt_layer<T> &l, const rt_layer_grad<T> &g, int64_t step) {
    if (step == 0) return {l.initial, l.initial + l.plane};
    const T *hidden = g.y + rt_step_at(l.k, step - 1) * l.plane;
    return {hidden, hidden + l.k.t * l.plane};
}

/* The recurrent products of all steps, to dx. */
template <class T> static inline int rt_restore_sums(struct rt *rt, const rt_layer<T> &l, const rt_layer_grad<T> &g) {
    const rt_recurrence k = l.k;
    const int64_t row = l.gates * k.h, first = rt_step_at(k, 0), others = k.reverse ? 0 : 1;
    RT_TRY(rt_layer_product(rt, l, g.dx + first * k.b * row, l.initial, l.weights, 1, k.b, k.h, row));
    if (k.t > 1)
        RT_TRY(rt_layer_product(rt, l, g.dx + others * k.b * row, g.y + (1 - others) * l.plane, l.weights, 1,
                                (k.t - 1) * k.b, k.h, row));
    if (k.cell != RT_CELL_GRU || k.reset_after) return RT_OK;
    rt_points(rt, k.t * l.plane, [=] __device__(int64_t p) {
        const int64_t at = p / l.plane, step = k.reverse ? k.t - 1 - at : at;
        const T before = step == 0 ? l.initial[p % l.plane] : g.y[k.reverse ? p + l.plane : p - l.plane];
        const int64_t place = p / k.h * 3 * k.h + k.h + p % k.h;
        g.mixed[p] = before * rt_cells<T>::squash(k, k.gate, l.x[place] + g.dx[place]);
    });
    return rt_layer_product(rt, l, l.candidates, (const T *)g.mixed, l.weights + 2 * k.h * k.h, 1, k.t * k.b, k.h, k.h);
}

template <class T>
static inline int rt_lstm_back(struct rt *rt, const rt_layer<T> &l, const rt_layer_grad<T> &g, int64_t at,
                               const rt_before<T> &before) {
    const rt_recurrence k = l.k;
    const T *after = g.y + (k.t + at) * l.plane, *dy = g.dy + at * l.plane, *dcell_y = dy + k.t * l.plane;
    const T *cells = before.cell;
    T *dcells = g.dinitial + l.plane;
    return rt_points(rt, l.plane, [=] __device__(int64_t p) {
        const rt_unit unit = rt_unit_of(p, k.h);
        const int64_t place = (at * k.b + unit.row) * 4 * k.h + unit.j;
        T pre[4], peephole[3], d[4] = {}, dc = dcells[p] + dcell_y[p];
        const T dh = g.dinitial[p] + l.last[p] + dy[p];
        const bool beyond = l.lengths && at >= l.lengths[unit.row];
        for (int q = 0; q < 4; q++) pre[q] = l.x[place + q * k.h] + g.dx[place + q * k.h];
        for (int q = 0; q < 3; q++) peephole[q] = l.vector ? l.vector[q * k.h + unit.j] : (T)0;
        if (!beyond) rt_cells<T>::lstm_grad(k, pre, peephole, cells[p], after[p], dh, &dc, d);
        for (int q = 0; q < 4; q++) g.dx[place + q * k.h] = d[q];
        dcells[p] = dc;
        g.dinitial[p] = beyond ? dh : (T)0;
    });
}

/* The left operands of the step's products are in l.sums: (b,3 h), or without reset_after (b,2 h) and (b,h). */
template <class T>
static inline int rt_gru_back(struct rt *rt, const rt_layer<T> &l, const rt_layer_grad<T> &g, int64_t at,
                              const T *before) {
    const rt_recurrence k = l.k;
    const T *dy = g.dy + at * l.plane;
    return rt_points(rt, l.plane, [=] __device__(int64_t p) {
        const rt_unit unit = rt_unit_of(p, k.h);
        const int64_t place = (at * k.b + unit.row) * 3 * k.h + unit.j, whole = at * l.plane + p;
        const int64_t gates = k.reset_after ? 3 : 2;
        const bool beyond = l.lengths && at >= l.lengths[unit.row];
        const T pre_r = l.x[place + k.h] + g.dx[place + k.h], reset = rt_cells<T>::squash(k, k.gate, pre_r);
        const T bias = l.vector ? l.vector[unit.j] : (T)0;
        const T last = k.reset_after ? g.dx[place + 2 * k.h] + bias : l.candidates[whole];
        const T dh = g.dinitial[p] + l.last[p] + dy[p];
        T dz = 0, dc = 0, dr = 0, dinitial = dh;
        if (!beyond)
            dinitial = rt_cells<T>::gru_grad(k, l.x[place] + g.dx[place],
                                             l.x[place + 2 * k.h] + (k.reset_after ? reset * last : last), before[p],
                                             dh, &dz, &dc);
        T *left = l.sums + unit.row * gates * k.h + unit.j;
        if (k.reset_after) dr = dc * last * rt_cells<T>::slope(k, k.gate, pre_r, reset);
        g.dinitial[p] = dinitial;
        g.dx[place] = left[0] = dz;
        g.dx[place + 2 * k.h] = dc;
        if (k.reset_after) {
            g.dx[place + k.h] = left[k.h] = dr;
            g.mixed[whole] = left[2 * k.h] = dc * reset;
        } else {
            l.sums[2 * l.plane + p] = dc;
            if (beyond) g.mixed[whole] = 0;
        }
    });
}

/* Without reset_after: the reset gate's gradient, from that of the state times the reset gate, in l.reset. */
template <class T>
static inline int rt_reset_back(struct rt *rt, const rt_layer<T> &l, const rt_layer_grad<T> &g, int64_t at,
                                const T *before) {
    const rt_recurrence k = l.k;
    return rt_points(rt, l.plane, [=] __device__(int64_t p) {
        const rt_unit unit = rt_unit_of(p, k.h);
        const int64_t place = (at * k.b + unit.row) * 3 * k.h + k.h + unit.j;
        const T pre = l.x[place] + g.dx[place], reset = rt_cells<T>::squash(k, k.gate, pre);
        const bool beyond = l.lengths && at >= l.lengths[unit.row];
        const T dr = beyond ? (T)0 : l.reset[p] * before[p] * rt_cells<T>::slope(k, k.gate, pre, reset);
        g.dx[place] = l.sums[unit.row * 2 * k.h + k.h + unit.j] = dr;
        if (!beyond) g.dinitial[p] += l.reset[p] * reset;
    });
}

template <class T>
static inline int rt_rnn_back(struct rt *rt, const rt_layer<T> &l, const rt_layer_grad<T> &g, int64_t at) {
    const rt_recurrence k = l.k;
    return rt_points(rt, l.plane, [=] __device__(int64_t p) {
        const int64_t place = at * l.plane + p;
        const T pre = l.x[place] + g.dx[place], y = rt_cells<T>::squash(k, k.gate, pre);
        const T dh = g.dinitial[p] + l.last[p] + g.dy[place];
        const bool beyond = l.lengths && at >= l.lengths[p / k.h];
        g.dx[place] = beyond ? (T)0 : dh * rt_cells<T>::slope(k, k.gate, pre, y);
        g.dinitial[p] = beyond ? dh : (T)0;
    });
}

/* One step backward; then l.last has the product that is the gradient of the state before it. */
template <class T>
static inline int rt_step_back(struct rt *rt, const rt_layer<T> &l, const rt_layer_grad<T> &g, int64_t step) {
    const rt_recurrence &k = l.k;
    const int64_t at = rt_step_at(k, step);
    const rt_before<T> before = rt_before_step(l, g, step);
    const T *left = g.dx + at * l.gates * l.plane;
    int64_t gates = l.gates;
    if (k.cell == RT_CELL_LSTM) RT_TRY(rt_lstm_back(rt, l, g, at, before));
    if (k.cell == RT_CELL_RNN) RT_TRY(rt_rnn_back(rt, l, g, at));
    if (k.cell == RT_CELL_GRU) {
        RT_TRY(rt_gru_back(rt, l, g, at, before.hidden));
        left = l.sums;
        if (!k.reset_after) {
            gates = 2;
            RT_TRY(rt_layer_product(rt, l, l.reset, (const T *)l.sums + 2 * l.plane, l.weights + 2 * k.h * k.h, 0, k.b,
                                    k.h, k.h));
            RT_TRY(rt_reset_back(rt, l, g, at, before.hidden));
        }
    }
    return rt_layer_product(rt, l, l.last, left, l.weights, 0, k.b, gates * k.h, k.h);
}

template <class T> static inline int rt_run_layer_back(struct rt *rt, const rt_layer<T> &l, const rt_layer_grad<T> &g) {
    const int64_t states = rt_cell_states(l.k.cell);
    rt_points(rt, states * l.plane, [=] __device__(int64_t p) {
        g.dinitial[p] = 0;
        if (p < l.plane) l.last[p] = 0;
    });
    if (l.k.t == 0 || l.plane == 0) return RT_OK;
    RT_TRY(rt_restore_sums(rt, l, g));
    for (int64_t step = l.k.t - 1; step >= 0; step--) RT_TRY(rt_step_back(rt, l, g, step));
    return rt_points(rt, l.plane, [=] __device__(int64_t p) { g.dinitial[p] += l.last[p]; });
}

template <class T>
RT_FAMILY int rt_recurrence_of(struct rt *rt, T *y, const T *x, const T *weights, const T *initial, const T *vector,
                               const int64_t *lengths, const T *scale, void *scratch, const rt_recurrence &shape) {
    rt_layer<T> layer = rt_layer_of(shape, x, weights, initial, vector, lengths, scratch, 0);
    layer.scale = scale;
    return rt_run_layer(rt, layer, y);
}

template <class T>
RT_FAMILY int rt_recurrence_grad(struct rt *rt, T *dx, T *dinitial, T *mixed, const T *dy, const T *y, const T *x,
                                 const T *weights, const T *initial, const T *vector, const int64_t *lengths,
                                 void *scratch, const rt_recurrence &shape) {
    const int64_t states = shape.cell == RT_CELL_GRU && !shape.reset_after ? shape.t : 0;
    return rt_run_layer_back(rt, rt_layer_of(shape, x, weights, initial, vector, lengths, scratch, states),
                             rt_layer_grad<T>{dx, dinitial, mixed, dy, y});
}

#define RT_CUDA_RECURRENCE(T, s)                                                                                       \
    RT_NAME(rt_recurrence_##s, rt_recurrence_of<T>)                                                                    \
    RT_NAME(rt_recurrence_grad_##s, rt_recurrence_grad<T>)
RT_FLOATS(RT_CUDA_RECURRENCE)

#endif
