/* What comments of generated sources say: the plan and its memory, and why ranks communicate. */
#ifndef CODEGEN_REMARKS_H
#define CODEGEN_REMARKS_H

#include "passes/rank/rankplan.h"

/* "data=2 tensor=4"; "one rank" of a mesh without axes. */
const char *remarks_mesh(const struct graph *graph);
/* Bytes of each of the rank's arenas that is used: "weights 4096, activations 512 to 768" of classes that differ. */
const char *remarks_memory(const struct rankplan *plan, int nclasses, const int *classes);

/* What a communication operator does with its operand, before the name of that: "partial sums of". */
const char *remarks_reason(const struct node *node);
/* The ranks that communicate along a mesh axis: "2 ranks", "4 ranks, 2 apart"; those of replica axes are counted at run
 * time. */
const char *remarks_group(const struct graph *graph, int axis);
/* The node whose result is communicated: a reduction that was begun has the operand of the node that began it. */
const struct node *remarks_origin(const struct graph *graph, const struct node *node);

/* What the function of a segment does, and how often in a step. */
const char *remarks_segment(const struct segment *segment);

/* What wrote the model: "pytorch 2.15.0, opset 20"; "an unknown exporter". */
const char *remarks_exporter(const struct graph *graph);

/* The name of the node, in the form of exporters' names: "layers.0.attn/softmax", by its provenance; its own name if
 * that is unknown. "layers.0.attn.q_proj" of a module that computes nothing else. */
const char *remarks_node_name(const struct graph *graph, const struct node *node);
/* The same for the value that a node computes; its own name if the model's user has given it one. */
const char *remarks_value_name(const struct graph *graph, int tensor);
/* What a comment calls two corresponding nodes, in the first and the last layer: "layers.*.attn.q_proj"; "" if nothing
 * is safe in a comment. */
const char *remarks_nodes(const struct graph *graph, const struct node *first, const struct node *last);
/* " (model.py:41 in forward: code)", without function and code if it is the same line as *said, which is set; "" if the
 * line is unknown. */
const char *remarks_line(const struct graph *graph, const struct node *node, const char **said);

#endif
