/* Option --rows of `rankc plan`: predicts published training runs of other systems.
 *
 * A row has the sizes of a transformer, the GPUs, and how the system divided the model. Columns are found by their
 * names in the first line: source, model, params, layers, hidden, heads, kv_heads, ffn, vocab, seq, gpu, ngpus, tp, pp,
 * dp, cp, ep, zero/fsdp, schedule, microbatch, global_batch, recompute, precision, notes. Others are ignored. All but
 * layers, hidden, heads, seq, gpu, ngpus, microbatch and global_batch may be missing, or empty in a row.
 *
 * The programs of those systems are not rankc's: their kernels are fused in other ways, and they overlap other
 * collectives. So their step is not estimated from a rank plan but from the layer's products, with a few constants per
 * system and device (rows_systems.def, rows_devices.def). A row is left empty, with the reason, if there is nothing to
 * compute from, if it contradicts itself, or if it has something that is not simulated (offload). */
#ifndef FRONTEND_CLI_ROWS_ROWS_H
#define FRONTEND_CLI_ROWS_ROWS_H

#include <stdbool.h>

#include "ir/base/diag.h"
#include "ir/base/str.h"

/* Appends the CSV `row,tflops_per_gpu,mem_gb,fits`: a line for each data row, numbered from 0. tflops_per_gpu by the
 * row's own definition of operations (flops_def in notes); mem_gb in GiB; fits: 1 or 0. Reasons for empty ones are
 * warnings. 0, or -1 after E0397: a file that cannot be read, no row of names, a needed column that is missing. */
int rows_predict(struct arena *arena, struct diags *diags, const char *path, struct strbuf *out);

#endif
