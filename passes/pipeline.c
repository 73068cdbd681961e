#include "passes/pipeline.h"

#include <string.h>

#include "ir/verify.h"

const struct pass passes[] = {
#define PASS(name, from, to, run, help) {#name, from, to, run, help},
#include "passes/passes.def"
#undef PASS
};
const int npasses = sizeof passes / sizeof *passes;

const struct pass *pass_find(const char *name) {
    for (int i = 0; i < npasses; i++)
        if (strcmp(passes[i].name, name) == 0) return &passes[i];
    return NULL;
}

/* A graph of level TRAINING satisfies the invariants of TYPED, so passes from TYPED apply to it too. Passes to TRAINING
 * apply only to graphs that train. */
static bool applies(const struct pass *pass, const struct graph *graph) {
    if (pass->to == TRAINING) return graph->train && pass->from == graph->level;
    return pass->from == graph->level || (pass->from == TYPED && graph->level == TRAINING);
}

int pipeline_run(struct graph *graph, const struct pass_context *context, const struct pass *last) {
    /* text IR that no pass applies to */
    if (graph->level >= SCHEDULED && verify_graph(graph, context->diags) < 0) return -1;
    for (int i = 0; i < npasses; i++) {
        if (applies(&passes[i], graph)) {
            if (passes[i].run(graph, context) < 0) return -1;
            if (passes[i].to != passes[i].from) graph->level = passes[i].to;
            if (!context->unverified && verify_graph(graph, context->diags) < 0) return -1;
        }
        if (&passes[i] == last) break;
    }
    return 0;
}
