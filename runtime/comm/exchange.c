/* Redistribution in which each rank sends a box of its part of a tensor to each other rank: all-to-all and halo
 * exchange (rt.h).
 *
 * Note [Exchanged boxes]
 * Along one mesh axis each rank holds the indices of dimension from_dim that `from` gives and needs the indices of
 * dimension to_dim that `to` gives; all other dimensions are complete on all of them. Rank s therefore sends rank r a
 * box: the indices that s holds of from_dim times those that r needs of to_dim; if both are the same dimension, the
 * intersection. As a placement may consist of several runs, a box is a sequence of pieces, in an order that both ranks
 * know. Pieces for other ranks are packed, exchanged and unpacked; a rank copies its own pieces directly.
 *
 * The tensor is seen as (outer, high, middle, low, inner), where high and low are the two dimensions. If they are the
 * same dimension, it is low, and high and middle are 1. */
#include "core/private.h"

struct exchange {
    const struct rt_placement *from, *to;
    bool same;      /* from_dim == to_dim */
    bool from_high; /* from_dim is `high` */
    int64_t outer, high, middle, low;
    size_t inner; /* bytes */
};

/* Place of a piece in a buffer: the buffer's extents of the high and low dimension, and the piece's offsets in them. */
struct region {
    unsigned char *bytes;
    int64_t high, low, at_high, at_low;
};

/* A piece: its extents, its place in the sender's part and in the receiver's. */
struct piece {
    int64_t high, low; /* extents */
    struct region held, wanted;
};

struct pieces {
    int sender, receiver;
    int64_t from_run, to_run;  /* next runs, if the dimensions differ */
    struct rt_overlap overlap; /* if they are the same */
};

static int64_t product(const int64_t *dims, int from, int to) {
    int64_t product = 1;
    for (int d = from; d < to; d++) product *= dims[d];
    return product;
}

static struct exchange exchange_of(enum rt_dtype dtype, int ndim, const int64_t *dims, int from_dim,
                                   const struct rt_placement *from, int to_dim, const struct rt_placement *to) {
    const int high = from_dim < to_dim ? from_dim : to_dim, low = from_dim < to_dim ? to_dim : from_dim;
    struct exchange x = {.from = from, .to = to, .same = high == low, .from_high = from_dim < to_dim};
    x.outer = product(dims, 0, high);
    x.high = x.same ? 1 : dims[high];
    x.middle = product(dims, high + 1, low);
    x.low = dims[low];
    x.inner = (size_t)product(dims, low + 1, ndim) * rt_dtype_bytes(dtype);
    return x;
}

/* The region with `from` indices of from_dim, at at_from, and `to` indices of to_dim, at at_to. */
static struct region region_of(const struct exchange *x, void *bytes, int64_t from, int64_t at_from, int64_t to,
                               int64_t at_to) {
    if (x->from_high) return (struct region){bytes, from, to, at_from, at_to};
    return (struct region){bytes, to, from, at_to, at_from};
}

static bool next_in_one(const struct exchange *x, struct pieces *at, struct piece *piece, void *held, void *wanted) {
    struct rt_overlap *overlap = &at->overlap;
    if (!rt_overlap_next(overlap, x->from, at->sender, x->to, at->receiver)) return false;
    *piece = (struct piece){.high = 1, .low = overlap->length};
    piece->held = (struct region){held, 1, rt_placement_extent(x->from, at->sender), 0, overlap->a_place};
    piece->wanted = (struct region){wanted, 1, rt_placement_extent(x->to, at->receiver), 0, overlap->b_place};
    return true;
}

static bool next_in_two(const struct exchange *x, struct pieces *at, struct piece *piece, void *held, void *wanted) {
    int64_t from_start, to_start;
    if (at->from_run == rt_blocks(x->from->cut.blocks)) return false;
    const int64_t from = rt_placement_run(x->from, at->sender, at->from_run, &from_start),
                  to = rt_placement_run(x->to, at->receiver, at->to_run, &to_start);
    piece->high = x->from_high ? from : to;
    piece->low = x->from_high ? to : from;
    piece->held =
        region_of(x, held, rt_placement_extent(x->from, at->sender), at->from_run * from, x->to->extent, to_start);
    piece->wanted =
        region_of(x, wanted, x->from->extent, from_start, rt_placement_extent(x->to, at->receiver), at->to_run * to);
    if (++at->to_run == rt_blocks(x->to->cut.blocks)) at->to_run = 0, at->from_run++;
    return true;
}

/* Next piece that at->sender sends to at->receiver; false at the end. held, wanted: the part of the sender, of the
 * receiver; NULL where it is another rank's. */
static bool next_piece(const struct exchange *x, struct pieces *at, struct piece *piece, void *held, void *wanted) {
    return x->same ? next_in_one(x, at, piece, held, wanted) : next_in_two(x, at, piece, held, wanted);
}

static size_t piece_bytes(const struct exchange *x, const struct piece *piece) {
    return (size_t)(x->outer * piece->high * x->middle * piece->low) * x->inner;
}

static struct region packed(const struct piece *piece, void *bytes) {
    return (struct region){bytes, piece->high, piece->low, 0, 0};
}

/* First row of a piece in a region, and the strides of (outer, high, middle) in bytes. */
static unsigned char *rows_in(const struct exchange *x, const struct region *region, int64_t stride[3]) {
    const int64_t inner = (int64_t)x->inner;
    stride[2] = region->low * inner;
    stride[1] = x->middle * stride[2];
    stride[0] = region->high * stride[1];
    return region->bytes + region->at_high * stride[1] + region->at_low * inner;
}

static int copy_piece(struct rt *rt, const struct exchange *x, const struct piece *piece, struct region to,
                      struct region from) {
    struct rt_copies rows = {.bytes = (size_t)piece->low * x->inner, .count = {x->outer, piece->high, x->middle}};
    if (!piece_bytes(x, piece)) return RT_OK;
    rows.to = rows_in(x, &to, rows.to_stride);
    rows.from = rows_in(x, &from, rows.from_stride);
    return rt->program->device->copy(rt, &rows);
}

/* Bytes that `sender` sends to `receiver`. */
static size_t bytes_for(const struct exchange *x, int sender, int receiver) {
    struct pieces at = {.sender = sender, .receiver = receiver};
    struct piece piece;
    size_t bytes = 0;
    while (next_piece(x, &at, &piece, NULL, NULL)) bytes += piece_bytes(x, &piece);
    return bytes;
}

static int pack(struct rt *rt, const struct exchange *x, int sender, int receiver, const void *src, unsigned char *to) {
    struct pieces at = {.sender = sender, .receiver = receiver};
    struct piece piece;
    for (; next_piece(x, &at, &piece, (void *)(uintptr_t)src, NULL); to += piece_bytes(x, &piece))
        RT_TRY(copy_piece(rt, x, &piece, packed(&piece, to), piece.held));
    return RT_OK;
}

static int unpack(struct rt *rt, const struct exchange *x, int sender, int receiver, void *dst, unsigned char *from) {
    struct pieces at = {.sender = sender, .receiver = receiver};
    struct piece piece;
    for (; next_piece(x, &at, &piece, NULL, dst); from += piece_bytes(x, &piece))
        RT_TRY(copy_piece(rt, x, &piece, piece.wanted, packed(&piece, from)));
    return RT_OK;
}

static int keep_own(struct rt *rt, const struct exchange *x, int rank, void *dst, const void *src) {
    struct pieces at = {.sender = rank, .receiver = rank};
    struct piece piece;
    while (next_piece(x, &at, &piece, (void *)(uintptr_t)src, dst))
        RT_TRY(copy_piece(rt, x, &piece, piece.wanted, piece.held));
    return RT_OK;
}

int rt_all_to_all(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype, int ndim,
                  const int64_t *dims, int from_dim, const struct rt_placement *from, int to_dim,
                  const struct rt_placement *to) {
    const struct exchange x = exchange_of(dtype, ndim, dims, from_dim, from, to_dim, to);
    struct rt_comm *comm = rt->axis[axis];
    size_t *send = rt->internal->counts, *receive = send + rt->world;
    unsigned char *end = scratch;
    for (int r = 0; r < comm->size; end += send[r], r++) {
        const bool other = r != comm->rank;
        send[r] = other ? bytes_for(&x, comm->rank, r) : 0;
        receive[r] = other ? bytes_for(&x, r, comm->rank) : 0;
        if (other) RT_TRY(pack(rt, &x, comm->rank, r, src, end));
    }
    RT_TRY(rt_end_collective(rt, comm, comm->driver->all_to_all(comm, end, receive, scratch, send)));
    for (int r = 0; r < comm->size; end += receive[r], r++)
        RT_TRY(r == comm->rank ? keep_own(rt, &x, r, dst, src) : unpack(rt, &x, r, comm->rank, dst, end));
    return RT_OK;
}

int rt_halo_exchange(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype, int ndim,
                     const int64_t *dims, int from_dim, const struct rt_placement *from, int to_dim,
                     const struct rt_placement *window) {
    return rt_all_to_all(rt, axis, dst, src, scratch, dtype, ndim, dims, from_dim, from, to_dim, window);
}

int rt_crop(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim, const int64_t *dims,
            int from_dim, const struct rt_placement *from, int to_dim, const struct rt_placement *window) {
    const struct exchange x = exchange_of(dtype, ndim, dims, from_dim, from, to_dim, window);
    return keep_own(rt, &x, rt->coordinate[axis], dst, src);
}

int rt_chunk(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim, const int64_t *dims,
             int dim, const struct rt_placement *to) {
    const struct rt_placement whole = {.cut = {to->extent, 1, 1, 1}, .extent = to->extent};
    const struct exchange x = exchange_of(dtype, ndim, dims, dim, &whole, dim, to);
    struct pieces at = {.sender = 0, .receiver = rt->coordinate[axis]};
    struct piece piece;
    while (next_piece(&x, &at, &piece, (void *)(uintptr_t)src, dst))
        RT_TRY(copy_piece(rt, &x, &piece, piece.wanted, piece.held));
    return RT_OK;
}
