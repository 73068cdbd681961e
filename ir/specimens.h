/* Comparing two specimens of a program with open sizes (Note [Specimens] in ir/open.h). */
#ifndef IR_SPECIMENS_H
#define IR_SPECIMENS_H

#include "ir/ir.h"

/* True if two graphs of one model, of different specimens, are the same for all sizes: nodes, attributes, extents and
 * constants. If not, E0439 in `diags` for the first node that differs, with what differs and the open sizes. */
bool specimens_agree(struct graph *a, struct graph *b, struct diags *diags);

/* Gives both graphs, which agree, the sizes, atoms and numbers of a graph that is parsed from the text of `graph`. Code
 * generated from them then equals code generated from that text. 0, or -1 after E0439. Of a level before PLACED. */
int specimens_settle(struct graph *graph, struct graph *twin, struct diags *diags);
/* The first error, if it is E0377 or E0378, of shapes that do not fit; else NULL. */
struct diagnostic *specimens_misfit(const struct diags *diags);
/* The option with which the extents of the clash are equal, a blank in front; NULL: none is found. */
const char *specimens_option(struct arena *arena, struct open_sizes *open);
/* Makes the error an E0439 that says with which options shapes fit, each with a blank in front; "": none is known. */
void specimens_refuse_misfit(struct diagnostic *misfit, struct arena *arena, const char *option);

/* E0439 for a node: `what` follows from an open size in a way that is not known. Names the sizes, and the option that
 * compiles for one size. Returns -1. */
int specimens_refuse(struct diags *diags, const struct open_sizes *open, const char *where, const char *what);

#endif
