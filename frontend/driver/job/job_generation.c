/* "generation" of manifest.json: what rankc generate needs to know of a program with state. */
#include <string.h>

#include "frontend/driver/job/job.h"

/* Operators that write to a cache at a place of each row's own: the tokens of a row lie side by side, so prompts of a
 * batch are padded on the right. */
static const char *const per_row[] = {"GroupQueryAttention", "TensorScatter"};

static bool pads_right(const struct onnx_model *model) {
    const Onnx__GraphProto *graph = model ? model->proto->graph : NULL;
    for (size_t i = 0; graph && i < graph->n_node; i++)
        for (size_t k = 0; k < sizeof per_row / sizeof *per_row; k++)
            if (strcmp(onnx_text(graph->node[i]->op_type), per_row[k]) == 0) return true;
    return false;
}

void job_put_generation(struct rt_json_writer *writer, const void *context) {
    const struct job *job = context;
    rt_json_key_open(writer, "generation", '{', RT_JSON_LINES);
    generation_put_roles(writer, job->graph);
    rt_json_key_text(writer, "padding", pads_right(job->model) ? "right" : "left");
    generation_put(writer, &job->side.generation);
    rt_json_close(writer, '}');
}
