/* The functions of model.c that execute a step: a call for each row of a coordinate's table (ir/step_table.h), in loops
 * where rows repeat. All ranks of a pipeline coordinate have the same. */
#ifndef CODEGEN_STEP_H
#define CODEGEN_STEP_H

#include "codegen/text/tmpl.h"
#include "passes/rank/rankplan.h"

/* The function's name: "train_step"; with several coordinates "train_step_1". In the graph's arena. */
const char *step_function(const struct graph *graph, int coordinate);

/* The enumerator that stands for a segment in calls of rt_run: "FORWARD"; where ranks have several chunks "FORWARD_1",
 * that of the second one. In the graph's arena. */
const char *step_segment(const struct graph *graph, const struct segment *segment);

/* The value of a transfer's end and the other chunk: "h_0_add_1 to chunk 1", or "from chunk 1" if it is received. `n`
 * ends that have that chunk in common: "h_0_add_1, h_1_ln_1 to chunk 1". In the graph's arena. */
struct transfer_end;
const char *step_transfer(const struct graph *graph, int n, const struct transfer_end *ends);

/* Binds the list "steps": an entry for each coordinate. */
void step_bind(struct tmpl_env *env, const struct rankplan *plan);

#endif
