/* Values of tensors while a program runs: --dump-tensors GLOB.
 *
 * Note [Dumps]
 * manifest.json says of every tensor where ranks hold it, and by which instruction it is made ("dump" in
 * base/manifest.h). An observer of the rank's instructions copies the tensors whose name, or whose node's name, matches
 * when the instruction that makes them ends; weights, inputs and states before the first instruction that reads them.
 * Later instructions may reuse the memory.
 *
 *   DIR/dump.json                      format, program, number of ranks
 *   DIR/rank_R.jsonl                   a line per file that rank R wrote, in the order of execution
 *   DIR/step_S/[micro_M/]rank_R/F.npy  the part of rank R
 *
 * Names of tensors are untrusted: F has their letters, digits, '.', '_' and '-'; other bytes, and a '.' in front, are
 * %XX. A name that is too long ends in ~N, where N is the number of the tensor. */
#ifndef RT_PROGRAM_DUMP_H
#define RT_PROGRAM_DUMP_H

#include "core/place.h"
#include "program/main.h"

/* A tensor of the program, as manifest.json describes it. */
struct dump_tensor {
    const char *name;
    enum rt_dtype dtype;
    int ndim, ncuts;
    int64_t dims[RT_MAX_NDIM]; /* complete */
    struct dump_cut {
        int axis, dim;
        int64_t blocks, grain;
    } cuts[RT_LAYOUT_AXES];
    unsigned partial[RT_REDUCES], own, flat; /* bit a: along axis a */
    bool window;
};

/* Where a rank holds it. */
struct dump_place {
    int tensor, instruction;
    bool before, wanted, strided;
    struct rt_value_place at;
    int64_t packing;
    int64_t dims[RT_MAX_NDIM], step[RT_MAX_NDIM];
    int64_t written; /* last step that wrote it; 0: none */
};

/* dump_values.c: copies the rank's part to memory that the caller frees, row-major, of a type that numpy has: *dtype.
 * *count: its elements, those of a slice if it is cut flat. NULL: out of memory, or nothing is there (*count 0), or the
 * rank has no such memory (-1). */
void *dump_copy(struct rt *rt, const struct dump_tensor *tensor, const struct dump_place *place, enum rt_dtype *dtype,
                int64_t *count);

/* True if the place has the extents of the rank's part of the tensor. */
bool dump_fits(const struct rt *rt, const struct dump_tensor *tensor, const struct dump_place *place);

/* Writes where the part lies in the complete tensor, as members of a JSON object: "ranges", per dimension the runs of
 * indices [start, stop] that it has, in order; "slice", [start, count] of the elements of these, if it is cut flat;
 * "partial" and "replica". */
void dump_put_region(struct rt_json_writer *writer, const struct rt *rt, const struct dump_tensor *tensor,
                     const struct dump_place *place);

#endif
