/* rankc profile --target cuda: from seconds that a made-up GPU would take, the numbers of that GPU are found, and the
 * file that is printed is one that --machine takes. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/profile/profile_gpu.h"
#include "frontend/cli/profile/profile.h"
#include "passes/plan/machine/machine_file.h"
#include "tests/test.h"

static const struct gpu gpu = {.count = 1, .name = "NVIDIA H200", .memory = 150754820096, .multiprocessors = 132};

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static double seconds_of_product(const struct machine *machine, const struct gpu_probe_row *probe) {
    const double m = shape_extent(probe->first, 0), k = shape_extent(probe->first, 1);
    const double n = shape_extent(probe->second, 1);
    const enum machine_type type = strcmp(probe->dtype, "f64") == 0   ? MACHINE_F64
                                   : strcmp(probe->dtype, "f32") == 0 ? MACHINE_F32
                                                                      : MACHINE_HALF;
    return 2 * m * n * k / machine->rate[type] / machine_reached(machine, m, n, k);
}

/* A causal one: half of both products. */
static double seconds_of_attention(const struct machine *machine, const struct gpu_probe_row *probe) {
    const double flops = 2.0 * shape_elements(probe->first) * shape_extent(probe->second, 2);
    return flops / machine->rate[MACHINE_HALF] / machine_attention(machine, shape_extent(probe->first, 3), true);
}

static double seconds_of_elementwise(const struct machine *machine, const struct gpu_probe_row *probe) {
    return 8.0 * shape_elements(probe->result) / machine->bandwidth / machine->traffic;
}

static double seconds_of(const struct machine *machine, const struct gpu_probe_row *probe) {
    if (strcmp(probe->op, "MatMul") == 0) return seconds_of_product(machine, probe);
    return probe->operands == 3 ? seconds_of_attention(machine, probe) : seconds_of_elementwise(machine, probe);
}

/* The seconds that the cost model gives to all probes on the machine. */
static void estimate(const struct machine *machine, double seconds[GPU_PROBES]) {
    for (int i = 0; i < GPU_PROBES; i++) seconds[i] = machine->launch + seconds_of(machine, &gpu_probe_rows[i]);
    seconds[GPU_LAUNCH] = machine->launch;
}

/* A GPU that reaches less of its peaks than the known one. */
static struct machine slower_than(const struct machine *known) {
    struct machine machine = *known;
    for (int t = 0; t <= MACHINE_HALF; t++) machine.rate[t] = (0.9 - 0.1 * t) * known->peak[t];
    machine.half_extents[0] = 300, machine.half_extents[1] = 80, machine.half_extents[2] = 120;
    machine.traffic = 0.8, machine.launch = 3e-6, machine.attention = 0.6, machine.half_head = 12;
    return machine;
}

static void read_known(struct arena *arena, struct diags *diags, struct machine *known) {
    arena_init(arena, 0, NULL);
    diags_init(diags, arena);
    assert_int_equal(machine_read(arena, diags, "h200", known), 0);
}

TEST(a_machine_is_found_from_its_times) {
    struct arena arena;
    struct diags diags;
    struct machine known;
    double seconds[GPU_PROBES];
    read_known(&arena, &diags, &known);
    const struct machine slower = slower_than(&known);
    estimate(&slower, seconds);
    const struct machine found = profile_gpu_machine(&gpu, seconds, &known);
    for (int e = 0; e < 3; e++) assert_true(is_near(found.half_extents[e], slower.half_extents[e]));
    for (int t = 0; t < MACHINE_TYPES; t++) {
        assert_true(is_near(found.rate[t], slower.rate[t]));
        assert_true(is_near(found.peak[t], known.peak[t]));
    }
    assert_true(is_near(found.traffic, 0.8) && is_near(found.bandwidth, known.bandwidth));
    assert_true(is_near(found.attention, 0.6) && is_near(found.half_head, 12));
    assert_true(found.launch == 3e-6 && isinf(found.elementwise) && found.multiprocessors == 132);
    assert_int_equal(found.nlevels, known.nlevels);
    assert_true(found.level[0].link.bandwidth == known.level[0].link.bandwidth);
    arena_free(&arena);
}

/* Without a known machine, peaks are what is reached, and there is one level. */
TEST(a_file_of_an_unknown_gpu_is_a_machine) {
    struct arena arena;
    struct diags diags;
    struct machine known, again;
    double seconds[GPU_PROBES];
    read_known(&arena, &diags, &known);
    const struct machine slower = slower_than(&known);
    estimate(&slower, seconds);
    const struct machine found = profile_gpu_machine(&gpu, seconds, NULL);
    assert_true(is_near(found.bandwidth, 0.8 * known.bandwidth) && is_near(found.traffic, 1));
    assert_true(is_near(found.peak[MACHINE_HALF], slower.rate[MACHINE_HALF]) && found.rate[MACHINE_FP8] == 0);
    assert_int_equal(machine_read_text(&arena, &diags, "gpu", machine_text(&arena, &found), &again), 0);
    assert_string_equal(again.name, "NVIDIA H200");
    assert_true(again.nlevels == 1 && again.level[0].link.bandwidth == again.bandwidth);
    assert_true(again.rate[MACHINE_HALF] == found.rate[MACHINE_HALF] && again.memory == gpu.memory);
    arena_free(&arena);
}

/* Times that no GPU takes give a file, too. */
TEST(equal_times_give_a_machine) {
    struct arena arena;
    struct diags diags;
    struct machine again;
    double seconds[GPU_PROBES];
    arena_init(&arena, 0, NULL);
    diags_init(&diags, &arena);
    for (int i = 0; i < GPU_PROBES; i++) seconds[i] = 1e-5;
    const struct machine found = profile_gpu_machine(&gpu, seconds, NULL);
    assert_int_equal(machine_read_text(&arena, &diags, "gpu", machine_text(&arena, &found), &again), 0);
    arena_free(&arena);
}

TEST(a_gpu_is_known_by_its_model_and_memory) {
    assert_string_equal(machine_of_gpu("NVIDIA H200", 0x1p30 * 140.4), "h200");
    assert_string_equal(machine_of_gpu("NVIDIA H100 80GB HBM3", 0x1p30 * 79.2), "h100");
    assert_string_equal(machine_of_gpu("NVIDIA H100 NVL", 0x1p30 * 93.6), "h100-96");
    assert_string_equal(machine_of_gpu("NVIDIA A100-SXM4-40GB", 0x1p30 * 39.4), "a100-40");
    assert_string_equal(machine_of_gpu("Tesla V100-SXM2-32GB", 0x1p30 * 31.7), "v100-32");
    assert_string_equal(machine_of_gpu("NVIDIA GB200", 0x1p30 * 184), "gb200");
    assert_null(machine_of_gpu("NVIDIA GH200 480GB", 0x1p30 * 95));
    assert_null(machine_of_gpu("NVIDIA L40S", 0x1p30 * 45));
}

int main(void) {
    return run_all_tests("profile_gpu", NULL, NULL);
}
