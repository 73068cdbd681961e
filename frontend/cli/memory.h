/* The memory of ranks, from a manifest. */
#ifndef FRONTEND_CLI_MEMORY_H
#define FRONTEND_CLI_MEMORY_H

#include "frontend/cli/compiled_model.h"

/* A kind for each arena (enum rt_arena), then "peak": the sum of those in the device's memory, all but HOST. */
enum { MEMORY_PEAK = RT_ARENAS, MEMORY_KINDS };
extern const char *const memory_kinds[MEMORY_KINDS];

/* The ranks along an axis of that name: a mesh axis, or "units", the scale units of a ZeRO group. */
int memory_ways(const struct compiled_model *compiled, const char *axis);

/* Bytes by kind of a rank of the class, an entry of "classes": the arenas as planned ("memory"), or what
 * a run touches of them ("touched"), and behind them the slices of
 * tensors that are cut flat (runtime/base/shape/flat.h), whose size depends on the number of scale units. */
void memory_of_class(const struct compiled_model *compiled, const struct rt_json *class, const char *key,
                     int64_t bytes[MEMORY_KINDS]);

#endif
