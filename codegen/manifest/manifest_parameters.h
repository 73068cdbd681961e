/* The lists "parameters" and "constants" in manifest.json of a model that is trained. */
#ifndef CODEGEN_MANIFEST_PARAMETERS_H
#define CODEGEN_MANIFEST_PARAMETERS_H

#include "codegen/program.h"
#include "runtime/base/text/json.h"

/* Writes "parameters": [{name, dtype, shape, partition, trained, lr, weight_decay}], where partition is "replicate" or
 * [{dim, ways, axis}]. Optional: "computed_from", the original names if the exporter stored the parameter in another
 * form; "doubt", a reason why it may not be a parameter. "constants": [{name, type, reason}], initializers that are not
 * parameters. */
void manifest_put_parameters(struct rt_json_writer *writer, const struct rankplan *plan,
                             const struct program_info *info);

#endif
