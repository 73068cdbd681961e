/* A plan as annotations of a model: how the ranks divide the tensors at each node, by the names of the model.
 *
 * This is what ONNX's multi-device annotations say (onnx.proto of IR version 11: NodeDeviceConfigurationProto), with
 * mesh axes in place of lists of devices; frontend/driver/annotations/ converts between the two. Annotations say less
 * than struct plan: they know the forward phase alone, and tensors that the model names. Policy annotated takes them as
 * constraints, and propagates splits to nodes that have none. */
#ifndef PASSES_PLAN_ANNOTATIONS_H
#define PASSES_PLAN_ANNOTATIONS_H

#include "ir/base/map.h"
#include "ir/ir.h"

/* The ranks along mesh axis `axis` divide dimension `dim`, which consists of `blocks` blocks of `pieces` pieces of
 * equal length; each rank has consecutive pieces of every block (Note [Cuts] in runtime/base/shape/part.h, where a
 * piece is a granule). */
struct annotated_cut {
    int axis, dim;          /* dim below 0: counted from the last dimension, which is -1 */
    int64_t blocks, pieces; /* pieces 0: as many as there are indices */
    int64_t grain;          /* indices of a piece; not read by policy annotated, which knows the extent */
};

/* An input or output of the node. Along axes without a cut every rank has the whole tensor, or a partial sum of it. */
struct annotated_tensor {
    const char *name;
    int ncuts;
    struct annotated_cut cut[RT_MAX_AXES]; /* by dimension; of cuts of one dimension the outermost first */
};

enum { ANNOTATED_NO_STAGE = -1 };

struct annotated_node {
    const char *name; /* as a plan calls it: the ONNX name if that is unique, else the first output */
    int stage;        /* of the pipeline, or ANNOTATED_NO_STAGE */
    int coordinate;   /* on the pipeline axis, of the devices that have the node; ANNOTATED_NO_STAGE: not said */
    VEC(struct annotated_tensor) tensors;
};

struct annotations {
    const char *place; /* model and configuration, for diagnostics */
    struct mesh mesh;
    VEC(struct annotated_node) nodes;
    struct map index; /* of nodes, by name */
};

/* The node of that name, and the tensor of that name at a node; NULL: there is none. */
struct annotated_node *annotations_find(const struct annotations *annotations, const char *name);
struct annotated_tensor *annotated_tensor(const struct annotated_node *node, const char *name);

/* The node of that name, which is kept; adds one without stage and tensors if there is none. */
struct annotated_node *annotations_node(struct annotations *annotations, const char *name, struct arena *arena);

/* Annotations of the nodes of the forward phase, from the splits and stages that pass policy has written to the graph.
 * Several nodes that were one of the model have its annotation together: the stage of the last, which a remark says,
 * and of operands of one name the first that is divided. Operands that are read through windows or have a mirrored cut
 * are left out: annotations cannot say which parts ranks have. Memory is of `arena`, names are those of the graph. */
void annotations_of_graph(struct annotations *annotations, const struct graph *graph, struct arena *arena,
                          struct diags *diags);

#endif
