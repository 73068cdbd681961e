/* A library that stands in for NCCL between processes of one machine, behind streams.h: the calls that the runtime
 * makes, and what NCCL demands of them. What is demanded and not given ends the process with a line.
 *
 * Demanded: configurations as initialized, and not blocking; no call on a communicator that is still at something; the
 * same calls by all members in the same order, of the same size, type and operation; every communicator finalized by
 * all members, with no graph left that it has a part in, before it is destroyed. A send waits for its receive unless
 * both are of one group.
 *
 * Ranks share a file. Each appends to its own part of it what it does (records) and brings (data); nothing is ever
 * taken back. FAKE_NCCL_LOG=DIR: what each process called, a file each. FAKE_NCCL_FAIL=RANK:N: that rank's N-th
 * operation and all that follow never end, and NCCL has an error to tell of. */
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "base/number/half.h"

namespace {

enum call { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, SEND, RECEIVE, SPLIT, FINALIZE, CALLS };
const char *const call_names[CALLS] = {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce",
                                       "send",       "receive",    "split",          "finalize"};
const size_t type_bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

struct record {
    uint64_t comm, offset;
    size_t count;
    int call, type, op, peer; /* root, other end, key */
};

enum : size_t { RECORDS = 1 << 16, DATA = (size_t)1 << 32, MOST_RANKS = 64 };
struct part {
    std::atomic<uint64_t> n, used;
    record records[RECORDS];
};
struct header {
    std::atomic<int> joined;
};

[[noreturn]] void complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "NCCL would not take this: ");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

/* --- The file --- */

struct process {
    char *memory = nullptr;
    int rank = -1, world = 0;
    uint64_t read[MOST_RANKS] = {};
    /* What others have said, by who, communicator, kind of call and peer, in order. */
    std::map<std::tuple<int, uint64_t, int, int>, std::vector<const record *>> said;
    int64_t failing = -1, operations = 0;
    FILE *log = nullptr;
};
process self;

size_t part_bytes() {
    return sizeof(part) + DATA;
}
part *part_of(int rank) {
    return (part *)(self.memory + 4096 + (size_t)rank * part_bytes());
}
char *data_of(int rank) {
    return (char *)part_of(rank) + sizeof(part);
}

void note(const char *format, ...) {
    va_list arguments;
    if (!self.log) return;
    va_start(arguments, format);
    vfprintf(self.log, format, arguments);
    va_end(arguments);
    fflush(self.log);
}

void open_world(const char *path, int rank, int world) {
    const int fd = open(path, O_RDWR);
    if (fd < 0 || world > (int)MOST_RANKS) complain("cannot open %s", path);
    self.memory = (char *)mmap(nullptr, 4096 + (size_t)world * part_bytes(), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (self.memory == MAP_FAILED) complain("no memory for %d ranks", world);
    close(fd);
    self.rank = rank, self.world = world;
    if (const char *fail = getenv("FAKE_NCCL_FAIL")) {
        int who = -1, when = 0;
        if (sscanf(fail, "%d:%d", &who, &when) == 2 && who == rank) self.failing = when;
    }
    if (const char *log = getenv("FAKE_NCCL_LOG"))
        self.log = fopen((std::string(log) + "/" + std::to_string(rank)).c_str(), "w");
    ((header *)self.memory)->joined++;
}

int slot_of(int call) {
    return call < SEND ? ALL_REDUCE : call; /* collectives are in one order */
}

void say(record what, const void *data, size_t bytes) {
    part *mine = part_of(self.rank);
    const uint64_t n = mine->n, used = mine->used;
    if (n >= RECORDS || used + bytes > DATA) complain("too much for this stand-in");
    what.offset = used;
    if (bytes) memcpy(data_of(self.rank) + used, data, bytes);
    mine->used = used + bytes;
    mine->records[n] = what;
    mine->n = n + 1;
}

/* The number-th thing of that kind that a rank has said; NULL: not yet. */
const record *heard(int rank, uint64_t comm, int slot, int peer, size_t number) {
    for (part *other = part_of(rank); self.read[rank] < other->n; self.read[rank]++) {
        const record *what = &other->records[self.read[rank]];
        const bool between = what->call == SEND || what->call == RECEIVE;
        self.said[{rank, what->comm, slot_of(what->call), between ? what->peer : 0}].push_back(what);
    }
    const auto &all = self.said[{rank, comm, slot, peer}];
    return number < all.size() ? all[number] : nullptr;
}

} /* namespace */

/* --- Communicators --- */

struct ncclComm {
    uint64_t id = 0;
    int rank = 0;
    std::vector<int> world; /* by member */
    size_t numbers[CALLS] = {};
    std::map<std::pair<int, int>, size_t> pairs; /* sends and receives, by call and peer */
    ncclResult_t state = ncclSuccess;
    std::function<bool()> settled; /* whether what it is at is done */
    int polls = 0, calls = 0;
    bool aborted = false, finalized = false;
    std::shared_ptr<int> parts = std::make_shared<int>(0); /* held by every step, those of graphs too */
    host::event last;                                      /* after the operation that was called last */
};

namespace {

struct operation {
    ncclComm *comm;
    record what;
    const void *src;
    void *dst;
    size_t number;
};

void check_free(const ncclComm *comm, const char *call) {
    if (!comm) complain("%s of no communicator", call);
    if (comm->aborted || comm->finalized) complain("%s of a communicator that is no more", call);
    if (comm->state != ncclSuccess) complain("%s of a communicator that is still at something", call);
}

ncclResult_t be_at(ncclComm *comm, std::function<bool()> settled) {
    comm->settled = std::move(settled);
    comm->polls = 0;
    return comm->state = ncclInProgress;
}

size_t bytes_of(const record &what, size_t times) {
    return what.count * times * type_bytes[what.type];
}

/* --- Operations --- */

template <class T, class L, class S>
void reduce(void *dst, const std::vector<const char *> &src, size_t count, int op, L load, S store) {
    for (size_t i = 0; i < count; i++) {
        auto a = load(((const T *)src[0])[i]);
        for (size_t r = 1; r < src.size(); r++) {
            const auto b = load(((const T *)src[r])[i]);
            a = op == ncclSum ? (decltype(a))(a + b) : (op == ncclMax ? b > a : b < a) || b != b ? b : a;
        }
        ((T *)dst)[i] = store(a);
    }
}
template <class T> void reduce_plain(void *dst, const std::vector<const char *> &src, size_t count, int op) {
    reduce<T>(
        dst, src, count, op, [](T x) { return x; }, [](T x) { return x; });
}
void reduce_as(int type, void *dst, const std::vector<const char *> &src, size_t count, int op) {
    switch (type) {
    case ncclInt8: return reduce_plain<int8_t>(dst, src, count, op);
    case ncclUint8: return reduce_plain<uint8_t>(dst, src, count, op);
    case ncclInt32: return reduce_plain<int32_t>(dst, src, count, op);
    case ncclUint32: return reduce_plain<uint32_t>(dst, src, count, op);
    case ncclInt64: return reduce_plain<int64_t>(dst, src, count, op);
    case ncclUint64: return reduce_plain<uint64_t>(dst, src, count, op);
    case ncclFloat32: return reduce_plain<float>(dst, src, count, op);
    case ncclFloat64: return reduce_plain<double>(dst, src, count, op);
    case ncclFloat16: return reduce<uint16_t>(dst, src, count, op, rt_f16_to_f32, rt_f32_to_f16);
    case ncclBfloat16: return reduce<uint16_t>(dst, src, count, op, rt_bf16_to_f32, rt_f32_to_bf16);
    default: complain("a reduction of type %d", type);
    }
}

size_t brought(const operation &o) {
    const int members = (int)o.comm->world.size();
    if (o.what.call == RECEIVE || (o.what.call == BROADCAST && o.what.peer != o.comm->rank)) return 0;
    return bytes_of(o.what, o.what.call == REDUCE_SCATTER ? (size_t)members : 1);
}

void begin(operation &o) {
    const bool between = o.what.call == SEND || o.what.call == RECEIVE;
    o.number = between ? o.comm->pairs[{o.what.call, o.what.peer}]++ : o.comm->numbers[slot_of(o.what.call)]++;
    say(o.what, o.src, brought(o));
}

bool meets(const operation &o) {
    const int opposite = o.what.call == SEND ? RECEIVE : SEND;
    const record *other = heard(o.comm->world[(size_t)o.what.peer], o.comm->id, opposite, o.comm->rank, o.number);
    if (!other) return false;
    if (bytes_of(*other, 1) != bytes_of(o.what, 1))
        complain("rank %d: %s of %zu bytes, and the other end is for %zu", self.rank, call_names[o.what.call],
                 bytes_of(o.what, 1), bytes_of(*other, 1));
    if (o.what.call == RECEIVE)
        memcpy(o.dst, data_of(o.comm->world[(size_t)o.what.peer]) + other->offset, bytes_of(o.what, 1));
    return true;
}

void finish(const operation &o, const std::vector<const record *> &all) {
    std::vector<const char *> src;
    for (size_t m = 0; m < all.size(); m++) src.push_back(data_of(o.comm->world[m]) + all[m]->offset);
    const size_t bytes = bytes_of(o.what, 1);
    if (o.what.call == ALL_GATHER)
        for (size_t m = 0; m < all.size(); m++) memcpy((char *)o.dst + m * bytes, src[m], bytes);
    if (o.what.call == BROADCAST) memcpy(o.dst, src[(size_t)o.what.peer], bytes);
    if (o.what.call == REDUCE_SCATTER)
        for (const char *&from : src) from += (size_t)o.comm->rank * bytes;
    if (o.what.call == ALL_REDUCE || o.what.call == REDUCE_SCATTER ||
        (o.what.call == REDUCE && o.what.peer == o.comm->rank))
        reduce_as(o.what.type, o.dst, src, o.what.count, o.what.op);
}

/* True once it is done. */
bool go_on(const operation &o) {
    if (o.what.call == SEND || o.what.call == RECEIVE) return meets(o);
    std::vector<const record *> all;
    for (int member : o.comm->world) {
        const record *other = heard(member, o.comm->id, ALL_REDUCE, 0, o.number);
        if (!other) return false;
        if (other->call != o.what.call || other->count != o.what.count || other->type != o.what.type ||
            other->op != o.what.op || other->peer != o.what.peer)
            complain("rank %d: %s of %zu, rank %d: %s of %zu", self.rank, call_names[o.what.call], o.what.count, member,
                     call_names[other->call], other->count);
        all.push_back(other);
    }
    finish(o, all);
    return true;
}

bool fails() {
    return self.failing >= 0 && self.operations >= self.failing;
}

/* Operations of one group are one step of their stream: all have begun before any is waited for. */
struct together {
    std::vector<operation> operations;
    std::vector<std::shared_ptr<int>> parts;
    bool begun = false;
    bool operator()() {
        if (operations[0].comm->aborted) return true;
        if (!begun) self.operations += (int64_t)operations.size();
        if (fails()) return false;
        if (!begun)
            for (operation &o : operations) begin(o);
        begun = true;
        while (!operations.empty() && go_on(operations.back())) operations.pop_back();
        return operations.empty();
    }
};

struct group {
    int depth = 0;
    std::vector<operation> operations;
    cudaStream_t stream = nullptr;
};
thread_local group current;

/* Operations of a communicator are executed in the order of the calls, whatever their streams. */
void submit_in_order(ncclComm *comm, cudaStream_t stream, together step) {
    if (comm->last.captured == stream->captured && (stream->captured || comm->last.last))
        host::wait(stream, &comm->last);
    stream->submit(std::move(step));
    host::record(&comm->last, stream);
}

ncclResult_t submit_group() {
    together step;
    ncclResult_t result = ncclSuccess;
    for (const operation &o : current.operations) step.parts.push_back(o.comm->parts);
    step.operations = std::move(current.operations);
    current.operations.clear();
    if (step.operations.empty()) return ncclSuccess;
    note("%s%s\n", current.stream->high_priority ? "beside " : "", current.stream->captured ? "captured" : "launched");
    ncclComm *comm = step.operations[0].comm;
    if (++comm->calls % 3 == 0) result = be_at(comm, [] { return true; });
    submit_in_order(comm, current.stream, std::move(step));
    return result;
}

ncclResult_t add(ncclComm *comm, cudaStream_t stream, int call, const void *src, void *dst, size_t count, int type,
                 int op, int peer) {
    check_free(comm, call_names[call]);
    if (!stream) complain("%s on no stream", call_names[call]);
    if (!current.operations.empty() && current.stream != stream) complain("a group on two streams");
    if (peer < 0 || peer >= (int)comm->world.size())
        complain("%s with rank %d of %zu", call_names[call], peer, comm->world.size());
    note("%s %zu\n", call_names[call], count);
    current.stream = stream;
    current.operations.push_back({comm, {comm->id, 0, count, call, type, op, peer}, src, dst, 0});
    return current.depth ? ncclSuccess : submit_group();
}

void check_config(const ncclConfig_t *config) {
    const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
    if (!config || config->size != fresh.size || config->magic != fresh.magic || config->version != fresh.version)
        complain("a configuration that was not initialized");
    if (config->blocking != 0) complain("a communicator that blocks: nobody could end it");
}

bool all_said(const ncclComm *comm, int call, size_t number) {
    for (int member : comm->world)
        if (!heard(member, comm->id, call, 0, number)) return false;
    return true;
}

/* Members of one color, by key; none without a color. */
void make_part(ncclComm *parent, size_t number, int color, ncclComm **out) {
    *out = nullptr;
    if (color == NCCL_SPLIT_NOCOLOR) return;
    std::vector<std::pair<int, int>> members;
    for (int member : parent->world) {
        const record *said = heard(member, parent->id, SPLIT, 0, number);
        if ((int)said->count == color) members.push_back({said->peer, member});
    }
    std::sort(members.begin(), members.end());
    ncclComm *made = new ncclComm;
    made->id = (parent->id * 1000003 + number) * 1000003 + (uint64_t)color + 1;
    for (const auto &member : members) {
        if (member.second == self.rank) made->rank = (int)made->world.size();
        made->world.push_back(member.second);
    }
    note("split into %zu\n", made->world.size());
    be_at(made, [] { return true; });
    *out = made;
}

} /* namespace */

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(id->internal, sizeof id->internal, "/dev/shm/rankc-nccl-%d-%lld-%ld", (int)getpid(), (long long)now.tv_sec,
             now.tv_nsec);
    const int fd = open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)(4096 + MOST_RANKS * part_bytes()))) return ncclSystemError;
    close(fd);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank, ncclConfig_t *config) {
    check_config(config);
    if (self.memory) complain("two communicators of all ranks in one process");
    open_world(id.internal, rank, world);
    note("init of %d\n", world);
    ncclComm *made = new ncclComm;
    made->rank = rank;
    for (int r = 0; r < world; r++) made->world.push_back(r);
    *out = made;
    const std::string path = id.internal;
    return be_at(made, [world, path] {
        const bool all = ((header *)self.memory)->joined == world;
        if (all) unlink(path.c_str());
        return all;
    });
}

/* Returns success while it is in progress, as NCCL 2.28 does. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    check_free(comm, "split");
    check_config(config);
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR) complain("a split with color %d", color);
    const size_t number = comm->numbers[SPLIT]++;
    say({comm->id, 0, (size_t)color, SPLIT, 0, 0, key}, nullptr, 0);
    *out = nullptr;
    be_at(comm, [=] {
        if (!all_said(comm, SPLIT, number)) return false;
        make_part(comm, number, color, out);
        return true;
    });
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    check_free(comm, "question");
    *count = (int)comm->world.size();
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    check_free(comm, "question");
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    check_free(comm, "question");
    *device = 0;
    return ncclSuccess;
}

/* Even what is done shows at the second look only. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    if (!comm) complain("the state of no communicator is asked for");
    if (comm->state == ncclInProgress && comm->polls++ > 0 && comm->settled()) comm->state = ncclSuccess;
    if (fails()) comm->state = ncclRemoteError;
    *state = comm->state;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    check_free(comm, "finalize");
    if (comm->parts.use_count() > 1)
        complain("a communicator is finalized while graphs or streams still have to do with it");
    note("finalize\n");
    say({comm->id, 0, 0, FINALIZE, 0, 0, 0}, nullptr, 0);
    return be_at(comm, [=] { return comm->finalized = all_said(comm, FINALIZE, 0); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!comm || !comm->finalized) complain("a communicator is destroyed that is not finalized");
    note("destroy\n");
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (!comm || comm->aborted) complain("an abort of a communicator that is no more");
    note("abort\n");
    comm->aborted = true; /* steps that are left look at it */
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited or there was a network error" : "unhandled error";
}

ncclResult_t ncclGroupStart() {
    current.depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (current.depth < 1) complain("the end of a group that has not begun");
    return --current.depth ? ncclSuccess : submit_group();
}

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, ALL_REDUCE, src, dst, count, type, op, 0);
}
ncclResult_t ncclAllGather(const void *src, void *dst, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return add(comm, stream, ALL_GATHER, src, dst, count, type, 0, 0);
}
ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, REDUCE_SCATTER, src, dst, count, type, op, 0);
}
ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return add(comm, stream, BROADCAST, src, dst, count, type, 0, root);
}
ncclResult_t ncclReduce(const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, REDUCE, src, dst, count, type, op, root);
}
ncclResult_t ncclSend(const void *src, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add(comm, stream, SEND, src, nullptr, count, type, 0, peer);
}
ncclResult_t ncclRecv(void *dst, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, RECEIVE, nullptr, dst, count, type, 0, peer);
}

} /* extern "C" */
