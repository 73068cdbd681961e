/* Printing the estimate of a step's time. */
#include <inttypes.h>

#include "frontend/cli/format_bytes.h"
#include "frontend/cli/show/show.h"

static double number(const struct rt_json *estimate, const char *key) {
    double value = 0;
    rt_json_real(rt_json_member(estimate, key), &value);
    return value;
}

static int64_t bytes(const struct rt_json *estimate, const char *key) {
    int64_t value = 0;
    rt_json_int(rt_json_member(estimate, key), &value);
    return value;
}

/* "1.23 s", "4.56 ms", "7.89 us" */
static const char *duration(struct arena *arena, double seconds) {
    if (seconds < 1e-9) seconds = 0; /* rounding of a difference */
    const double scale = seconds >= 1 || seconds <= 0 ? 1 : seconds >= 1e-3 ? 1e3 : 1e6;
    return arena_printf(arena, "%.3g %s", seconds * scale, scale == 1 ? "s" : scale == 1e3 ? "ms" : "us");
}

/* Speeds of each device: operations of all devices, in tera. */
static void put_speed(struct strbuf *out, const struct rt_json *estimate, double devices, const char *name,
                      const char *all, const char *causal) {
    const double per_step = 1e12 * devices * number(estimate, "step_s"), peak = number(estimate, "peak_flops");
    const double speed = number(estimate, all) / per_step;
    strbuf_printf(out,
                  "  %-10s %.4g TFLOP/s a device, %.1f %% of its peak; %.4g with causal attention counted by half\n",
                  name, speed, peak > 0 ? 1e14 * speed / peak : 0, number(estimate, causal) / per_step);
}

void show_estimate(struct strbuf *out, const struct compiled_model *compiled) {
    const struct rt_json *estimate = rt_json_member(compiled->root, "estimate");
    const double devices = (double)compiled->runtime_ngpus, hidden = number(estimate, "hidden_s");
    const int64_t memory = bytes(estimate, "memory"), device = bytes(estimate, "device_memory");
    struct arena *arena = out->arena;
    if (!estimate) return;
    strbuf_printf(out, "\ntime on %s, estimated\n", show_text(rt_json_member(estimate, "machine"), arena));
    strbuf_printf(out, "  %-10s %s: computing %s, communicating %s%s, waiting %s\n", "step",
                  duration(arena, number(estimate, "step_s")), duration(arena, number(estimate, "computing_s")),
                  duration(arena, number(estimate, "communicating_s")),
                  hidden > 0 ? arena_printf(arena, " and %s beside computing", duration(arena, hidden)) : "",
                  duration(arena, number(estimate, "waiting_s")));
    put_speed(out, estimate, devices, "model", "model_flops", "model_flops_causal");
    put_speed(out, estimate, devices, "executed", "executed_flops", "executed_flops_causal");
    if (device > 0)
        strbuf_printf(out, "  %-10s %s of %s on each device%s\n", "memory", format_bytes(memory).text,
                      format_bytes(device).text, memory > device ? ": does not fit" : "");
}
