/* What a manifest says of the size of each instruction, for traces and profiles of a run. */
#ifndef CODEGEN_MANIFEST_WORK_H
#define CODEGEN_MANIFEST_WORK_H

#include "passes/rank/rankplan.h"
#include "runtime/base/text/json.h"

/* Writes "work": for each class, a list of [instruction, phase, operations, bytes, activations, communication, scratch]
 * of what its ranks execute. phase: enum phase; operations, bytes: of kernel_size(); activations and the others: bytes
 * that are live in these arenas while the instruction is executed, without slots (struct rank_class). */
void manifest_put_work(struct rt_json_writer *writer, const struct rankplan *plan);

#endif
