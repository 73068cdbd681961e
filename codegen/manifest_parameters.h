/* The lists of parameters and constants in manifest.json, of a model that is trained. */
#ifndef CODEGEN_MANIFEST_PARAMETERS_H
#define CODEGEN_MANIFEST_PARAMETERS_H

#include "codegen/program.h"
#include "runtime/base/json.h"

/* "parameters": [{name, dtype, shape, partition, trained, lr, weight_decay}], partition being "replicate" or [{dim,
 * ways, axis}]; with "computed_from", a name, where the exporter stored another form of it, and "doubt", a reason,
 * where it may be none. "constants": [{name, type, reason}], initializers that are no parameters. */
void manifest_put_parameters(struct rt_json_writer *writer, const struct rankplan *plan,
                             const struct program_info *info);

#endif
