#include <math.h>

#include "frontend/cli/profile/profile_gpu.h"
#include "frontend/cli/profile/profile.h"

/* What was measured. Times of kernels are without that of launching one (passes/plan/machine/kernel_time.h). */
struct measured {
    const double *seconds;
    const struct machine *machine; /* as far as it is known yet */
};

static double seconds_of(const struct measured *measured, enum gpu_probe id) {
    return fmax(measured->seconds[id] - measured->machine->launch, 0.1 * measured->seconds[id]);
}

/* m, n or k, by the index of half_extents, of a product of (m, k) by (k, n). */
static double product_extent(enum gpu_probe id, int which) {
    const struct gpu_probe_row *probe = &gpu_probe_rows[id];
    return which == 1 ? shape_extent(probe->second, 1) : shape_extent(probe->first, which / 2);
}

/* The rate at which a product would be computed if it reached all of it. */
static double rate_of(const struct measured *measured, enum gpu_probe id) {
    const double m = product_extent(id, 0), n = product_extent(id, 1), k = product_extent(id, 2);
    return 2 * m * n * k / seconds_of(measured, id) / machine_reached(measured->machine, m, n, k);
}

/* The extent at which half the rate is reached, from a product in which only that extent is less. No half extent is
 * known yet. */
static double half_extent(const struct measured *measured, enum gpu_probe less, int which) {
    return shape_half(product_extent(GPU_PRODUCT_HALF, which), rate_of(measured, GPU_PRODUCT_HALF),
                      product_extent(less, which), rate_of(measured, less));
}

static void find_half_extents(struct machine *machine, const struct measured *measured) {
    const double half[] = {half_extent(measured, GPU_FEW_ROWS, 0), half_extent(measured, GPU_FEW_COLUMNS, 1),
                           half_extent(measured, GPU_SHORT_SUMS, 2)};
    for (int e = 0; e < 3; e++) machine->half_extents[e] = half[e];
}

/* Rates, of which a GPU reaches no more than the vendor's peaks. */
static void find_rates(struct machine *machine, const struct measured *measured, const struct machine *known) {
    static const enum gpu_probe large[] = {
        [MACHINE_F64] = GPU_PRODUCT_F64, [MACHINE_F32] = GPU_PRODUCT_F32, [MACHINE_HALF] = GPU_PRODUCT_HALF};
    for (int t = 0; t <= MACHINE_HALF; t++) {
        const double rate = rate_of(measured, large[t]), peak = known ? known->peak[t] : 0;
        machine->rate[t] = peak > 0 ? fmin(rate, peak) : rate;
        machine->peak[t] = peak > 0 ? peak : rate;
    }
    machine->rate[MACHINE_FP8] = known ? known->rate[MACHINE_FP8] : 0;
    machine->peak[MACHINE_FP8] = known ? known->peak[MACHINE_FP8] : 0;
}

/* The part of the rate that attention reaches: both of its products, by half. */
static double attention_reached(const struct measured *measured, enum gpu_probe id) {
    const struct gpu_probe_row *probe = &gpu_probe_rows[id];
    const double flops = 2.0 * shape_elements(probe->first) * shape_extent(probe->second, 2);
    return flops / seconds_of(measured, id) / measured->machine->rate[MACHINE_HALF];
}

static void find_attention(struct machine *machine, const struct measured *measured) {
    const double wide = shape_extent(gpu_probe_rows[GPU_ATTENTION].first, 3);
    const double narrow = shape_extent(gpu_probe_rows[GPU_ATTENTION_NARROW].first, 3);
    const double most = attention_reached(measured, GPU_ATTENTION);
    const double least = attention_reached(measured, GPU_ATTENTION_NARROW);
    machine->half_head = shape_half(wide, most, narrow, least);
    machine->attention = fmin(most * (wide + machine->half_head) / wide * 128 / (128 + machine->half_head), 1);
}

/* Bytes that are read and written. */
static double bytes_of(enum gpu_probe id) {
    return 2 * 4.0 * shape_elements(gpu_probe_rows[id].result);
}

/* The bandwidth of the bytes that a larger tensor has more: what a kernel takes at its begin and end is in both. There
 * are no bandwidths by size: those are of processors, whose kernels wait for their operands (passes/rank/reuse.h). */
static void find_memory(struct machine *machine, const struct measured *measured, const struct machine *known) {
    const double more = bytes_of(GPU_MOVE_MORE) - bytes_of(GPU_MOVE_LESS);
    const double longer = measured->seconds[GPU_MOVE_MORE] - measured->seconds[GPU_MOVE_LESS];
    const double whole = bytes_of(GPU_MOVE_MORE) / seconds_of(measured, GPU_MOVE_MORE);
    const double reached = longer > 0 ? more / longer : whole;
    machine->bandwidth = known ? known->bandwidth : reached;
    machine->traffic = fmin(reached / machine->bandwidth, 1);
}

/* Unlimited, where memory explains the time of the probe. */
static double elementwise_of(const struct measured *measured) {
    const struct machine *machine = measured->machine;
    const double seconds = seconds_of(measured, GPU_ELEMENTWISE);
    const double moving = bytes_of(GPU_ELEMENTWISE) / (machine->bandwidth * machine->traffic);
    const double operations = 14.0 * shape_elements(gpu_probe_rows[GPU_ELEMENTWISE].result); /* ir/ops.def */
    return seconds > 1.25 * moving ? operations / seconds : INFINITY;
}

/* What one GPU does not tell. */
static struct machine without_links(void) {
    return (struct machine){.host_bandwidth = machine_gpu.host_bandwidth,
                            .own_attention = machine_gpu.own_attention,
                            .slowdown = 1,
                            .nlevels = 1,
                            .level = {{.devices = INFINITY}}};
}

struct machine profile_gpu_machine(const struct gpu *gpu, const double seconds[GPU_PROBES],
                                   const struct machine *known) {
    struct machine machine = known ? *known : without_links();
    const struct measured measured = {seconds, &machine};
    machine.name = gpu->name;
    machine.memory = gpu->memory;
    machine.multiprocessors = gpu->multiprocessors;
    machine.launch = seconds[GPU_LAUNCH];
    machine.alone = machine.writes = machine.correction = 1;
    for (int e = 0; e < 3; e++) machine.half_extents[e] = 0;
    find_half_extents(&machine, &measured);
    find_rates(&machine, &measured, known);
    find_attention(&machine, &measured);
    find_memory(&machine, &measured, known);
    machine.elementwise = elementwise_of(&measured);
    if (!known) machine.level[0].link.bandwidth = machine.bandwidth;
    return machine;
}
