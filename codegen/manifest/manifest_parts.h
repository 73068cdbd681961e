/* Parts of manifest.json that have files of their own. */
#ifndef CODEGEN_MANIFEST_PARTS_H
#define CODEGEN_MANIFEST_PARTS_H

#include "codegen/program.h"
#include "passes/rank/estimate.h"
#include "runtime/base/text/json.h"

/* Writes a number: as a text with the names of sizes if it depends on open ones (ir/open.h). */
void manifest_put_extent(struct rt_json_writer *writer, const struct graph *graph, int64_t extent);
/* Writes "shape". */
void manifest_put_shape(struct rt_json_writer *writer, const struct graph *graph, const int64_t *dims, int ndim);

/* Writes "dump": every tensor of the program, for dumps of values in a run (runtime/base/manifest.h). */
void manifest_put_dump(struct rt_json_writer *writer, const struct rankplan *plan);

/* Writes "parameters": [{name, dtype, shape, partition, trained, lr, weight_decay}], where partition is "replicate" or
 * [{dim, ways, axis}]. Optional: "computed_from", the original names if the exporter stored the parameter in another
 * form; "doubt", a reason why it may not be a parameter. "constants": [{name, type, reason}], initializers that are not
 * parameters. */
void manifest_put_parameters(struct rt_json_writer *writer, const struct rankplan *plan,
                             const struct program_info *info);

/* Writes "schedule": its name, the micro-batches of a step, the slots of each stage, the part of the time in which
 * stages wait by the cost model, for zero-bubble schedules also the part if steps overlapped
 * (timeline_bubble_overlapped), and the timeline with the times of timeline_simulate. Of many micro-batches that
 * are alike the timeline has the first ones. */
void manifest_put_schedule(struct rt_json_writer *writer, const struct rankplan *plan, const struct machine *machine,
                           const struct decisions *decisions);

/* Writes "work": for each class, a list of [instruction, phase, operations, bytes, activations, communication, scratch]
 * of what its ranks execute. phase: enum phase; operations, bytes: what is computed, and what is read and written, as
 * manifest_put_extent; activations and the others: bytes that are live in these arenas while the instruction is
 * executed, without slots (struct rank_class). */
void manifest_put_work(struct rt_json_writer *writer, const struct rankplan *plan);

/* What the elements of a tensor of integers are for. Followed are nodes that only move or convert elements. `scratch`
 * is used for tables. */
struct index_use {
    /* The least number of rows of the tables that they index, such as the vocabulary that token ids index; 0 if they
     * index none: for inputs that are made up (runtime/base/number/random_fill.h). */
    int64_t below;
    bool ignores; /* they are labels of a loss, of which those that are `ignored` do not count */
    int64_t ignored;
};
struct index_use index_use_of(const struct graph *graph, const struct uses *uses, int tensor, struct arena *scratch);

#endif
