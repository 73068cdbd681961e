/* Numbers that the compiler writes into "values" of manifest.json and that a program reads there. */
#ifndef RT_BASE_MANIFEST_H
#define RT_BASE_MANIFEST_H

/* A training step runs the forward and the backward phase for each micro-batch, then once the phase that reduces
 * gradients over scale units and the update. */
enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_REDUCE, PHASE_UPDATE, PHASES };

/* Bits: which non-finite values a tensor contains. */
enum { HAS_INFINITY = 1, HAS_NAN = 2 };

#endif
