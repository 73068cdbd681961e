/* What a program does on its GPUs, told by CUPTI when it ends: how long every kernel took, in graphs too, and the most
 * memory that was allocated at a time. Loaded into any program of CUDA by the driver:
 *
 *     g++ -shared -fPIC -o device_trace.so device_trace.cpp -lcupti
 *     CUDA_INJECTION64_PATH=device_trace.so RANKC_TRACE=FILE program ...
 *
 * FILE: {"device_peak": bytes, "first_ns", "last_ns": of the device's clock, "kernels": [{"name": mangled, "count",
 * "ns", "idle_ns": how long the device did nothing before them}]}. */
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct sum {
    uint64_t count, ns, idle;
};
struct activity {
    uint64_t start, end;
    sum *of;
};
struct trace {
    std::mutex lock;
    std::map<std::string, sum> kernels;
    std::vector<activity> activities;
    std::multimap<uint64_t, int64_t> memory; /* when bytes are allocated or released; buffers come thread by thread */
};

/* Never destroyed: CUPTI's thread may outlive what main() leaves. */
trace &all() {
    static trace *made = new trace;
    return *made;
}

void add(const char *name, uint64_t start, uint64_t end) {
    sum &own = all().kernels[name];
    own.count++, own.ns += end - start;
    all().activities.push_back({start, end, &own});
}

/* Adds to each kernel's sum when the device was idle before it. Returns when the last activity ended. */
uint64_t add_idle() {
    uint64_t until = 0;
    std::sort(all().activities.begin(), all().activities.end(),
              [](const activity &a, const activity &b) { return a.start < b.start; });
    for (const activity &one : all().activities) {
        if (until && one.start > until) one.of->idle += one.start - until;
        until = std::max(until, one.end);
    }
    return until;
}

void add_memory(const CUpti_ActivityMemory4 *record) {
    if (record->memoryKind != CUPTI_ACTIVITY_MEMORY_KIND_DEVICE) return;
    const bool released = record->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
    if (released || record->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION)
        all().memory.emplace(record->timestamp, released ? -(int64_t)record->bytes : (int64_t)record->bytes);
}

/* The most bytes that were allocated at once. */
int64_t peak() {
    int64_t live = 0, most = 0;
    for (const auto &[when, bytes] : all().memory) most = std::max(most, live += bytes);
    return most;
}

void add_record(const CUpti_Activity *record) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto *kernel = (const CUpti_ActivityKernel10 *)record;
        add(kernel->name, kernel->start, kernel->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const auto *copy = (const CUpti_ActivityMemcpy6 *)record;
        add("memcpy", copy->start, copy->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const auto *set = (const CUpti_ActivityMemset4 *)record;
        add("memset", set->start, set->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY2) {
        add_memory((const CUpti_ActivityMemory4 *)record);
    }
}

void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *records) {
    *bytes = (size_t)8 << 20;
    *buffer = (uint8_t *)aligned_alloc(8, *bytes);
    *records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    const std::lock_guard<std::mutex> hold(all().lock);
    CUpti_Activity *record = nullptr;
    while (valid && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) add_record(record);
    free(buffer);
}

void write_trace() {
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const std::lock_guard<std::mutex> hold(all().lock);
    const char *path = getenv("RANKC_TRACE"), *between = "";
    FILE *out = path ? fopen(path, "w") : nullptr;
    if (!out) return;
    const uint64_t last = add_idle(), first = all().activities.empty() ? 0 : all().activities.front().start;
    fprintf(out, "{\"device_peak\": %llu, \"first_ns\": %llu, \"last_ns\": %llu, \"kernels\": [",
            (unsigned long long)peak(), (unsigned long long)first, (unsigned long long)last);
    for (const auto &[name, sum] : all().kernels) {
        fprintf(out, "%s\n {\"name\": \"%s\", \"count\": %llu, \"ns\": %llu, \"idle_ns\": %llu}", between, name.c_str(),
                (unsigned long long)sum.count, (unsigned long long)sum.ns, (unsigned long long)sum.idle);
        between = ",";
    }
    fputs("]}\n", out);
    fclose(out);
}

} // namespace

/* The driver calls this when the program first uses it. */
extern "C" int InitializeInjection(void) {
    cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    for (CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                    CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMORY2})
        cuptiActivityEnable(kind);
    atexit(write_trace);
    return 1;
}
