/* Collectives over several hosts.
 *
 * Each call begins with an exchange of its description among all members, which finds ranks that call different
 * collectives. Data then go from member to member directly.
 *
 * Note [Chain of hosts]
 * A large all-reduce over hosts with equally many members each, numbered host by host, goes in three steps. Member i of
 * a host reduces slice i of its host's members on to the result that it receives from member i of the host before, and
 * passes it on; so the order is that of ranks. The last host sends the slices back to all hosts. The members of a host
 * gather the slices. Each host sends and receives the data once or twice, however many members it has.
 *
 * A reduce-scatter passes the parts of one host after the other along this chain, each divided into the slices that its
 * members get, and the last host sends the slices to them. Each host sends the data once, and the last one the parts
 * once more; directly, each of its members would send what the other hosts get. The chain is used where it is less.
 *
 * In an all-gather member i of a host exchanges its part with members i of the other hosts; then the members of a host
 * gather the parts of one host after the other in shared memory. */
#include "comm/comm_mpi_private.h"

#include "comm/reduce.h"

#include <string.h>

/* bytes; up to this size members exchange data directly, and each reduces everything: it takes one exchange */
#define SMALL ((size_t)16 << 10)

static int check_same_call(struct mpi_comm *comm) {
    const struct mpi_call *first = &comm->calls[0];
    for (int m = 1; m < comm->base.size; m++) {
        const struct mpi_call *other = &comm->calls[m];
        if (other->sequence == first->sequence && other->what == first->what && other->amount == first->amount)
            continue;
        return mpi_fail(comm, RT_ERROR_USAGE,
                        "ranks call different collectives: rank %d %s of %llu (call %llu), rank %d %s of %llu (call "
                        "%llu)",
                        comm->world[0], rt_shared_operation_name((int)(first->what & 0xff)),
                        (unsigned long long)first->amount, (unsigned long long)first->sequence, comm->world[m],
                        rt_shared_operation_name((int)(other->what & 0xff)), (unsigned long long)other->amount,
                        (unsigned long long)other->sequence);
    }
    return RT_OK;
}

int mpi_enter(struct mpi_comm *comm, enum rt_operation kind, unsigned what, uint64_t amount, int64_t detail,
              const size_t *details) {
    struct mpi_call mine[2] = {{++comm->sequence, (uint64_t)kind | (uint64_t)what << 8, amount, detail}};
    const int own = comm->base.rank, size = comm->base.size;
    struct mpi_call *sent = (struct mpi_call *)(void *)mpi_scratch(comm, (size_t)size * sizeof *sent);
    if (!sent) return RT_ERROR_SYSTEM;
    shared_begin_call(shared_of(comm->job->inside), kind);
    for (int m = 0; m < size; m++) {
        sent[m] = mine[0];
        if (details) sent[m].detail = (int64_t)details[m];
    }
    comm->calls[own] = sent[own];
    for (int m = 0; m < size; m++)
        if (m != own) RT_TRY(mpi_begin_receive(comm, &comm->calls[m], sizeof *comm->calls, m));
    for (int m = 0; m < size; m++)
        if (m != own) RT_TRY(mpi_begin_send(comm, &sent[m], sizeof *sent, m));
    RT_TRY(mpi_settle(comm));
    return check_same_call(comm);
}

int mpi_barrier(struct rt_comm *comm) {
    return mpi_enter(mpi_of(comm), RT_BARRIER, 0, 0, 0, NULL);
}

static void copy(void *dst, const void *src, size_t bytes) {
    if (bytes > 0 && dst != src) memcpy(dst, src, bytes);
}

/* Sends send[m] bytes of src to each member m, and receives receive[m] bytes from it to dst; both in member order. A
 * NULL array: `bytes` bytes to each from the same place; src_at: the caller's own bytes. */
static int trade(struct mpi_comm *comm, unsigned char *dst, const size_t *receive, const unsigned char *src,
                 const size_t *send, size_t bytes) {
    const int own = comm->base.rank;
    unsigned char *to = dst;
    const unsigned char *from = src;
    for (int m = 0; m < comm->base.size; to += receive[m], m++)
        if (m != own) RT_TRY(mpi_begin_receive(comm, to, receive[m], m));
    for (int m = 0; m < comm->base.size; from += send ? send[m] : 0, m++) {
        if (m == own)
            copy(dst + rt_counts_total(receive, own), from, receive[own]);
        else
            RT_TRY(mpi_begin_send(comm, from, send ? send[m] : bytes, m));
    }
    return mpi_settle(comm);
}

static int fail_inside(struct mpi_comm *comm, int status) {
    return status ? mpi_fail(comm, status, "%s", comm->inside->why) : RT_OK;
}

static int gather_by_hosts(struct mpi_comm *comm, unsigned char *dst, const void *src, const size_t *bytes) {
    struct rt_comm *inside = comm->inside;
    const int each = inside->size, own = comm->base.rank, column = inside->rank;
    unsigned char *mine = dst + rt_counts_total(bytes, own);
    copy(mine, src, bytes[own]);
    for (int m = column; m < comm->base.size; m += each)
        if (m != own) RT_TRY(mpi_begin_receive(comm, dst + rt_counts_total(bytes, m), bytes[m], m));
    for (int m = column; m < comm->base.size; m += each)
        if (m != own) RT_TRY(mpi_begin_send(comm, mine, bytes[own], m));
    RT_TRY(mpi_settle(comm));
    for (int h = 0; h < comm->hosts; h++) {
        unsigned char *of_host = dst + rt_counts_total(bytes, h * each);
        const size_t *counts = bytes + (size_t)h * (size_t)each;
        RT_TRY(fail_inside(
            comm, inside->driver->all_gather(inside, of_host, of_host + rt_counts_total(counts, column), counts)));
    }
    return RT_OK;
}

int mpi_all_gather(struct rt_comm *base, void *dst, const void *src, const size_t *bytes) {
    struct mpi_comm *comm = mpi_of(base);
    const size_t all = rt_counts_total(bytes, base->size);
    RT_TRY(mpi_enter(comm, RT_ALL_GATHER, 0, all, 0, NULL));
    if (all > SMALL && comm->hosts && comm->inside->size > 1) return gather_by_hosts(comm, dst, src, bytes);
    return trade(comm, dst, bytes, src, NULL, bytes[base->rank]);
}

int mpi_all_to_all(struct rt_comm *base, void *dst, const size_t *receive, const void *src, const size_t *send) {
    struct mpi_comm *comm = mpi_of(base);
    RT_TRY(mpi_enter(comm, RT_ALL_TO_ALL, 0, 0, 0, send));
    bool differ = false; /* what does not agree is not transferred, and both ranks fail */
    for (int m = 0; m < base->size; m++) differ = differ || (size_t)comm->calls[m].detail != receive[m];
    if (differ)
        return mpi_fail(comm, RT_ERROR_USAGE,
                        "all-to-all: the number of bytes that a rank sends differs from the number that is received");
    return trade(comm, dst, receive, src, send, 0);
}

int mpi_broadcast(struct rt_comm *base, void *data, size_t bytes, int root) {
    struct mpi_comm *comm = mpi_of(base);
    if (root < 0 || root >= base->size)
        return mpi_fail(comm, RT_ERROR_USAGE, "broadcast from the invalid rank %d", root);
    RT_TRY(mpi_enter(comm, RT_BROADCAST, (unsigned)root, bytes, 0, NULL));
    for (int m = 0; m < base->size && base->rank == root; m++)
        if (m != root) RT_TRY(mpi_begin_send(comm, data, bytes, m));
    if (base->rank != root) RT_TRY(mpi_begin_receive(comm, data, bytes, root));
    return mpi_settle(comm);
}

struct reduction {
    enum rt_dtype dtype;
    enum rt_reduce reduce;
    bool onto; /* dst is the first operand */
};

/* dst = the caller's counts[rank] elements, reduced over the members. */
static int reduce_parts(struct mpi_comm *comm, void *dst, const unsigned char *src, const size_t *counts,
                        const struct reduction *what) {
    const int own = comm->base.rank, size = comm->base.size;
    const size_t element = rt_dtype_bytes(what->dtype), bytes = counts[own] * element;
    unsigned char *room = mpi_scratch(comm, bytes * (size_t)size + 1);
    const unsigned char *from = src;
    if (!room) return RT_ERROR_SYSTEM;
    for (int m = 0; m < size; m++)
        if (m != own) RT_TRY(mpi_begin_receive(comm, room + bytes * (size_t)m, bytes, m));
    for (int m = 0; m < size; from += counts[m] * element, m++) {
        comm->view[m + 1] = m == own ? from : room + bytes * (size_t)m;
        if (m != own) RT_TRY(mpi_begin_send(comm, from, counts[m] * element, m));
    }
    RT_TRY(mpi_settle(comm));
    comm->view[0] = dst;
    const void *const *views = what->onto ? comm->view : comm->view + 1;
    if (bytes > 0)
        rt_reduce_ordered(&dst, 1, views, what->onto ? size + 1 : size, counts[own], what->dtype, what->reduce);
    return RT_OK;
}

/* One member's part in the chain of hosts. `values`: the caller's operand, in the type of the accumulation. */
struct chain {
    const void *values;
    unsigned char *slice, *own; /* the member's slice: result, and the reduction over the host where it is not a sum */
    const size_t *counts;       /* elements by member of a host */
    enum rt_dtype dtype;        /* of the accumulation */
};

/* Reduces slice i of the host's members on to chain->slice. */
static int reduce_inside(struct mpi_comm *comm, const struct chain *chain, enum rt_reduce reduce, bool first) {
    struct rt_comm *inside = comm->inside;
    void *slice = chain->slice;
    const size_t count = chain->counts[inside->rank];
    const bool onto = !first && reduce == RT_SUM;
    void *dst = first || onto ? slice : chain->own;
    RT_TRY(fail_inside(
        comm, inside->driver->reduce_scatter(inside, dst, chain->values, chain->counts, chain->dtype, reduce, onto)));
    if (!first && !onto && count > 0)
        rt_reduce_ordered(&slice, 1, (const void *const[]){slice, chain->own}, 2, count, chain->dtype, reduce);
    return RT_OK;
}

/* True if the busiest host sends less along the chain than directly, in units of the data. */
static bool chain_is_less(const struct mpi_comm *comm, bool onto) {
    const int hosts = comm->hosts, each = comm->inside->size;
    return hosts && each * (hosts - 1) > hosts + (hosts - 1) * (onto ? 2 : 1);
}

/* The slices of the parts of all hosts that a member reduces, one after the other, and its operands. */
struct slices {
    unsigned char *at;           /* hosts slices, in the type of the accumulation */
    const unsigned char *values; /* the caller's operand, in that type */
    const size_t *counts;        /* elements of the parts, by member */
    size_t wide;                 /* bytes of an element */
};

static unsigned char *slice_of(const struct mpi_comm *comm, const struct slices *slices, int host) {
    const int each = comm->inside->size;
    size_t before = 0;
    for (int h = 0; h < host; h++) before += slices->counts[h * each + comm->inside->rank];
    return slices->at + before * slices->wide;
}

/* Bytes of the slice of a host's part. */
static size_t slice_bytes(const struct mpi_comm *comm, const struct slices *slices, int host) {
    return slices->counts[host * comm->inside->size + comm->inside->rank] * slices->wide;
}

/* The first addends: each member sends what it has to the first host. */
static int send_first_addends(struct mpi_comm *comm, const struct slices *slices, const void *addend) {
    const int each = comm->inside->size, column = comm->inside->rank, host = comm->base.rank / each;
    if (host > 0) {
        RT_TRY(mpi_begin_send(comm, addend, slice_bytes(comm, slices, host), column));
        return mpi_settle(comm);
    }
    copy(slices->at, addend, slice_bytes(comm, slices, 0));
    for (int h = 1; h < comm->hosts; h++)
        RT_TRY(mpi_begin_receive(comm, slice_of(comm, slices, h), slice_bytes(comm, slices, h), h * each + column));
    return mpi_settle(comm);
}

/* Passes the slices along; afterwards that of the caller's host is complete. */
static int pass_slices(struct mpi_comm *comm, const struct slices *slices, const struct reduction *what,
                       unsigned char *own, enum rt_dtype dtype) {
    const int each = comm->inside->size, column = comm->inside->rank, host = comm->base.rank / each,
              last = comm->hosts - 1;
    const unsigned char *values = slices->values;
    for (int h = 0; h < comm->hosts; h++) {
        const size_t *counts = slices->counts + (size_t)h * (size_t)each, bytes = slice_bytes(comm, slices, h);
        const struct chain chain = {values, slice_of(comm, slices, h), own, counts, dtype};
        if (host > 0) {
            RT_TRY(mpi_begin_receive(comm, chain.slice, bytes, comm->base.rank - each));
            RT_TRY(mpi_settle(comm));
        }
        RT_TRY(reduce_inside(comm, &chain, what->reduce, host == 0 && !what->onto));
        if (host < last) RT_TRY(mpi_begin_send(comm, chain.slice, bytes, comm->base.rank + each));
        values += rt_counts_total(counts, each) * slices->wide;
    }
    RT_TRY(mpi_settle(comm)); /* the last host sends to hosts that still wait for others: not before all have passed */
    if (host < last)
        RT_TRY(mpi_begin_receive(comm, slice_of(comm, slices, host), slice_bytes(comm, slices, host),
                                 last * each + column));
    for (int h = 0; h < last && host == last; h++)
        RT_TRY(mpi_begin_send(comm, slice_of(comm, slices, h), slice_bytes(comm, slices, h), h * each + column));
    return mpi_settle(comm);
}

static void convert_or_copy(void *dst, enum rt_dtype to, const void *src, enum rt_dtype from, size_t count) {
    if (to == from)
        copy(dst, src, count * rt_dtype_bytes(to));
    else
        rt_convert(dst, to, src, from, count);
}

/* 16-bit floats are accumulated in f32 and rounded at the end. */
static int scatter_by_hosts(struct mpi_comm *comm, void *dst, const void *src, const size_t *counts,
                            const struct reduction *what) {
    const bool half = rt_dtypes[what->dtype].kind == RT_KIND_HALF;
    const enum rt_dtype dtype = half ? RT_F32 : what->dtype;
    const int each = comm->inside->size, own = comm->base.rank;
    const size_t wide = rt_dtype_bytes(dtype), all = rt_counts_total(counts, comm->base.size);
    size_t sliced = 0, most = 0;
    for (int m = comm->inside->rank; m < comm->base.size; m += each) {
        sliced += counts[m];
        if (counts[m] > most) most = counts[m];
    }
    const size_t widened = half ? (all + 1) * wide : 0, first = what->onto ? (counts[own] + 1) * wide : 0;
    unsigned char *room = mpi_scratch(comm, widened + first + (sliced + most + 16) * wide);
    if (!room) return RT_ERROR_SYSTEM;
    const struct slices slices = {room + widened + first, half ? room : src, counts, wide};
    if (half) rt_convert(room, RT_F32, src, what->dtype, all);
    if (what->onto) {
        convert_or_copy(room + widened, dtype, dst, what->dtype, counts[own]);
        RT_TRY(send_first_addends(comm, &slices, room + widened));
    }
    RT_TRY(pass_slices(comm, &slices, what, slices.at + (sliced + 8) * wide, dtype));
    convert_or_copy(dst, what->dtype, slice_of(comm, &slices, own / each), dtype, counts[own]);
    return RT_OK;
}

int mpi_reduce_scatter(struct rt_comm *base, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                       enum rt_reduce reduce, bool onto) {
    const struct reduction what = {dtype, reduce, onto};
    const size_t bytes = rt_counts_total(counts, base->size) * rt_dtype_bytes(dtype);
    RT_TRY(mpi_enter(mpi_of(base), RT_REDUCE_SCATTER, (unsigned)dtype | (unsigned)reduce << 8, bytes, 0, NULL));
    if (bytes > SMALL && chain_is_less(mpi_of(base), onto))
        return scatter_by_hosts(mpi_of(base), dst, src, counts, &what);
    return reduce_parts(mpi_of(base), dst, src, counts, &what);
}

/* Parts of `count` elements, as equal as can be. */
static const size_t *equal_parts(size_t *counts, size_t count, int ways) {
    for (int m = 0; m < ways; m++) counts[m] = count / (size_t)ways + ((size_t)m < count % (size_t)ways);
    return counts;
}

static int reduce_small(struct mpi_comm *comm, void *dst, const void *src, size_t count, const struct reduction *what) {
    const int own = comm->base.rank, size = comm->base.size;
    const size_t bytes = count * rt_dtype_bytes(what->dtype);
    unsigned char *room = mpi_scratch(comm, bytes * (size_t)size + 1);
    if (!room) return RT_ERROR_SYSTEM;
    for (int m = 0; m < size; m++) {
        comm->view[m] = m == own ? src : room + bytes * (size_t)m;
        if (m != own) RT_TRY(mpi_begin_receive(comm, room + bytes * (size_t)m, bytes, m));
    }
    for (int m = 0; m < size; m++)
        if (m != own) RT_TRY(mpi_begin_send(comm, src, bytes, m));
    RT_TRY(mpi_settle(comm));
    if (count > 0) rt_reduce_ordered(&dst, 1, comm->view, size, count, what->dtype, what->reduce);
    return RT_OK;
}

/* Each member reduces a part and sends it to all. */
static int reduce_by_parts(struct mpi_comm *comm, unsigned char *dst, const unsigned char *src, size_t count,
                           const struct reduction *what) {
    const int own = comm->base.rank, size = comm->base.size;
    const size_t element = rt_dtype_bytes(what->dtype);
    const size_t *counts = equal_parts(comm->counts, count, size);
    const size_t first = rt_counts_total(counts, own) * element;
    RT_TRY(reduce_parts(comm, dst + first, src, counts, what));
    for (int m = 0; m < size; m++) comm->counts[m] *= element;
    return trade(comm, dst, counts, dst + first, NULL, counts[own]);
}

static int pass_along(struct mpi_comm *comm, const struct chain *chain, enum rt_reduce reduce) {
    const int each = comm->inside->size, column = comm->inside->rank, host = comm->base.rank / each,
              last = comm->hosts - 1;
    const size_t bytes = chain->counts[column] * rt_dtype_bytes(chain->dtype);
    if (host > 0) {
        RT_TRY(mpi_begin_receive(comm, chain->slice, bytes, comm->base.rank - each));
        RT_TRY(mpi_settle(comm));
    }
    RT_TRY(reduce_inside(comm, chain, reduce, host == 0));
    if (host < last) {
        RT_TRY(mpi_begin_send(comm, chain->slice, bytes, comm->base.rank + each));
        RT_TRY(mpi_settle(comm));
        RT_TRY(mpi_begin_receive(comm, chain->slice, bytes, last * each + column));
    } else {
        for (int h = 0; h < last; h++) RT_TRY(mpi_begin_send(comm, chain->slice, bytes, h * each + column));
    }
    return mpi_settle(comm);
}

/* 16-bit floats are accumulated in f32 and rounded at the end, by all hosts alike. */
static int reduce_by_hosts(struct mpi_comm *comm, unsigned char *dst, const void *src, size_t count,
                           const struct reduction *what) {
    struct rt_comm *inside = comm->inside;
    const bool half = rt_dtypes[what->dtype].kind == RT_KIND_HALF;
    const enum rt_dtype dtype = half ? RT_F32 : what->dtype;
    const size_t wide = rt_dtype_bytes(dtype), element = rt_dtype_bytes(what->dtype);
    const size_t *counts = equal_parts(comm->counts, count, inside->size);
    const size_t own = counts[inside->rank], first = rt_counts_total(counts, inside->rank) * element,
                 room = (count + 1) * wide;
    unsigned char *scratch = mpi_scratch(comm, room + 2 * (own + 8) * wide);
    if (!scratch) return RT_ERROR_SYSTEM;
    const struct chain chain = {half ? scratch : src, scratch + room, scratch + room + (own + 1) * wide, counts, dtype};
    if (half) rt_convert(scratch, RT_F32, src, what->dtype, count);
    RT_TRY(pass_along(comm, &chain, what->reduce));
    if (half)
        rt_convert(dst + first, what->dtype, chain.slice, RT_F32, own);
    else
        copy(dst + first, chain.slice, own * element);
    for (int m = 0; m < inside->size; m++) comm->counts[m] *= element;
    return fail_inside(comm, inside->driver->all_gather(inside, dst, dst + first, comm->counts));
}

int mpi_all_reduce(struct rt_comm *base, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                   enum rt_reduce reduce) {
    struct mpi_comm *comm = mpi_of(base);
    const struct reduction what = {dtype, reduce, false};
    const size_t bytes = count * rt_dtype_bytes(dtype);
    RT_TRY(mpi_enter(comm, RT_ALL_REDUCE, (unsigned)dtype | (unsigned)reduce << 8, bytes, 0, NULL));
    if (bytes <= SMALL) return reduce_small(comm, dst, src, count, &what);
    if (comm->hosts && comm->inside->size > 1) return reduce_by_hosts(comm, dst, src, count, &what);
    return reduce_by_parts(comm, dst, src, count, &what);
}
