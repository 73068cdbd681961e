/* Launches of one kernel for many tensors as one.
 *
 * Note [Held launches]
 * An optimizer updates each parameter by a call of the same kernel with other pointers. Between rt_hold and rt_release
 * such calls are not launched but noted, as rows of a table, which is the parameter of one launch: tables lie in the
 * constant memory of kernels, so that nothing is copied before it. Blocks take chunks of RT_TABLE_CHUNK points; a chunk
 * is of one row. Kernels that take no table are launched at once, before those that are held: generated code calls
 * rt_hold again before one that touches what held launches do (codegen/held.h).
 *
 * The same holds for the squares of gradients, whose calls add to one sum: two launches for all of them. */
#ifndef RT_CUDA_HELD_CUH
#define RT_CUDA_HELD_CUH

#include "launch.cuh"

enum { RT_TABLE_CHUNK = 8 * RT_POINT_BLOCK };

template <class Row> struct rt_table_row {
    int64_t points;
    int64_t first; /* chunk */
    Row of;
};
template <class Row, int most> struct rt_table {
    int64_t n, chunks;
    rt_table_row<Row> row[most];
};
/* The most rows of a table. */
template <class Row>
inline constexpr int rt_table_rows = (RT_TABLE_BYTES - 2 * (int)sizeof(int64_t)) / (int)sizeof(rt_table_row<Row>);
template <class Row> using rt_long_table = rt_table<Row, rt_table_rows<Row>>;
template <class Row> using rt_short_table = rt_table<Row, 1>;

template <class Row, int most>
static inline __device__ int rt_row_of_chunk(const rt_table<Row, most> &table, int64_t chunk) {
    int row = 0, end = (int)table.n;
    while (most > 1 && end - row > 1) {
        const int middle = (row + end) / 2;
        if (table.row[middle].first <= chunk)
            row = middle;
        else
            end = middle;
    }
    return row;
}

static inline __device__ int64_t rt_least_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Loop over the thread's points of all rows: point number `point` of row number `at`. */
#define RT_TABLE_POINTS(point, at, table)                                                                              \
    for (int64_t chunk = blockIdx.x; chunk < (table).chunks; chunk += gridDim.x)                                       \
        if (const int at = rt_row_of_chunk(table, chunk); true)                                                        \
            for (int64_t begin = (chunk - (table).row[at].first) * RT_TABLE_CHUNK, point = begin + threadIdx.x,        \
                         end = rt_least_of((table).row[at].points, begin + RT_TABLE_CHUNK);                            \
                 point < end; point += blockDim.x)

template <class Table, class Row> static inline void rt_table_add(Table &table, int64_t points, const Row &row) {
    table.row[table.n++] = {points, table.chunks, row};
    table.chunks += (points + RT_TABLE_CHUNK - 1) / RT_TABLE_CHUNK;
}

static inline int rt_launch_all(struct rt *rt) {
    rt_holding &holding = rt_cuda_of(rt)->holding;
    int status = RT_OK;
    for (int i = 0; i < holding.n && !status; i++) status = holding.held[i].launch(rt, &holding.held[i]);
    holding.n = 0;
    return status;
}

static inline void rt_forget_held(struct rt *rt) {
    rt_cuda_of(rt)->holding.holds = false;
    rt_cuda_of(rt)->holding.n = 0;
}

/* Launches what is held; launches after it are held, unless something observes each instruction. */
static inline int rt_hold(struct rt *rt) {
    rt_cuda_of(rt)->holding.holds = !rt_is_watched(rt);
    return rt_launch_all(rt);
}

/* Launches what is held, and holds no longer. */
static inline int rt_release(struct rt *rt) {
    rt_cuda_of(rt)->holding.holds = false;
    return rt_launch_all(rt);
}

/* A table for launches with that key that has room; NULL: launches are not held. */
template <class Row> static inline rt_held *rt_held_of(struct rt *rt, const void *key) {
    rt_holding &holding = rt_cuda_of(rt)->holding;
    for (int i = 0; i < holding.n; i++) {
        rt_held *held = &holding.held[i];
        if (held->key == key && ((rt_long_table<Row> *)held->table)->n < rt_table_rows<Row>) return held;
    }
    if (!holding.holds || (holding.n == RT_MOST_HELD && rt_launch_all(rt))) return NULL;
    rt_held *held = &holding.held[holding.n++];
    held->key = key;
    *(rt_long_table<Row> *)held->table = {};
    return held;
}

template <class Row> static inline int rt_launch_held_points(struct rt *rt, const rt_held *held) {
    const rt_long_table<Row> &table = *(const rt_long_table<Row> *)held->table;
    if (table.n > 1)
        return rt_launch(rt, (void (*)(rt_long_table<Row>))held->kernels[1], table.chunks, RT_POINT_BLOCK, table);
    const rt_short_table<Row> alone = {1, table.chunks, {table.row[0]}};
    return rt_launch(rt, (void (*)(rt_short_table<Row>))held->kernels[0], alone.chunks, RT_POINT_BLOCK, alone);
}

/* Holds a launch for `points` points, or launches it: `alone` takes a table of one row, `together` one of many. */
template <class Row>
static inline int rt_hold_points(struct rt *rt, void (*alone)(rt_short_table<Row>),
                                 void (*together)(rt_long_table<Row>), int64_t points, const Row &row) {
    rt_held *held = points > 0 ? rt_held_of<Row>(rt, (const void *)together) : NULL;
    if (points <= 0) return RT_OK;
    if (held) {
        held->kernels[0] = (void (*)(void))alone;
        held->kernels[1] = (void (*)(void))together;
        held->launch = rt_launch_held_points<Row>;
        rt_table_add(*(rt_long_table<Row> *)held->table, points, row);
        return RT_OK;
    }
    rt_short_table<Row> table = {};
    rt_table_add(table, points, row);
    return rt_launch(rt, alone, table.chunks, RT_POINT_BLOCK, table);
}

#endif
