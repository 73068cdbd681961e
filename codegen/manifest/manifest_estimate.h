/* What a manifest says of the time of a step, estimated for a machine. */
#ifndef CODEGEN_MANIFEST_ESTIMATE_H
#define CODEGEN_MANIFEST_ESTIMATE_H

#include "passes/rank/estimate.h"
#include "runtime/base/text/json.h"

/* Writes "estimate": the machine, seconds of a step and its parts, and operations of all ranks together. */
void manifest_put_estimate(struct rt_json_writer *writer, const struct machine *machine,
                           const struct estimate *estimate);

#endif
