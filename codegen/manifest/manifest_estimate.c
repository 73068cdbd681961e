#include "codegen/manifest/manifest_parts.h"

void manifest_put_estimate(struct rt_json_writer *writer, const struct machine *machine,
                           const struct estimate *estimate) {
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"step_s", estimate->step},
                   {"computing_s", estimate->computing},
                   {"communicating_s", estimate->communicating},
                   {"hidden_s", estimate->hidden},
                   {"waiting_s", estimate->waiting},
                   {"bubble", estimate->bubble},
                   {"model_flops", estimate->model_flops},
                   {"model_flops_causal", estimate->model_flops_causal},
                   {"executed_flops", estimate->executed_flops},
                   {"executed_flops_causal", estimate->executed_flops_causal},
                   {"peak_flops", estimate->peak_rate}};
    rt_json_key_open(writer, "estimate", '{', RT_JSON_LINES);
    rt_json_key_text(writer, "machine", machine->name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        rt_json_key_real(writer, numbers[i].key, numbers[i].value);
    rt_json_key_int(writer, "memory", estimate->memory);
    rt_json_key_int(writer, "device_memory", (int64_t)machine->memory);
    rt_json_close(writer, '}');
}
