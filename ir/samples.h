/* Samples: which inputs have a part for each sample of the batch, along dimension 0, and which are the same for all
 * samples: masks of positions, tables of positions, scalars. */
#ifndef IR_SAMPLES_H
#define IR_SAMPLES_H

#include "ir/ir.h"

/* Sets `shared` of the inputs that are the same for all samples (Note [Batch] in samples.c). The graph is not divided
 * among ranks yet. */
void samples_find_shared(struct graph *graph);

#endif
