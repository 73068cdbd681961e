/* What a manifest says of every tensor of the program, for dumps of values in a run. */
#ifndef CODEGEN_MANIFEST_DUMP_H
#define CODEGEN_MANIFEST_DUMP_H

#include "passes/rank/rankplan.h"
#include "runtime/base/text/json.h"

/* Writes "dump", which runtime/base/manifest.h describes. */
void manifest_put_dump(struct rt_json_writer *writer, const struct rankplan *plan);

#endif
