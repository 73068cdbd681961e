/* Where nodes come from: the module, the operation and the line of the program that was exported, as the exporter
 * recorded them in the model (PyTorch's dynamo exporter: frontend/import/import_provenance.c).
 *
 * It is found by the node's name, so nodes that passes derive from a node have the same provenance. It is for names,
 * comments and messages only: nothing else depends on it, and nodes that differ in it alone are alike.
 *
 * What exporters write is untrusted. A graph holds only text that is safe in a comment of generated code:
 * provenance_add leaves out everything else, and it is the only way in. */
#ifndef IR_PROVENANCE_H
#define IR_PROVENANCE_H

#include "ir/ir.h"

/* Adds the provenance of a node, with copies of the texts (NULL: ""). A text that is too long or has other bytes than
 * those allowed is left out. Adds nothing if nothing remains, or if there is one for this name. */
void provenance_add(struct graph *graph, const struct provenance *from);
/* Sets the graph's `exporter`, "pytorch 2.15.0", unless it is too long or not safe in a comment. */
void provenance_exporter(struct graph *graph, const char *name, const char *version, int opset);

/* The provenance of the node of that name: its own, or that of the node that it was derived from, as "node.grad" from
 * "node". *suffix is what follows that node's name (NULL: not wanted). NULL if it is unknown. */
const struct provenance *provenance_of(const struct graph *graph, const char *node, const char **suffix);

/* What a message says after the node's name: " in layers.0.attn.q_proj (model.py:41 in forward)"; "" if its
 * provenance is unknown. */
const char *provenance_text(struct arena *arena, const struct graph *graph, const char *node);

#endif
