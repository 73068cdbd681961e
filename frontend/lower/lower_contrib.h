/* Shared by the lowerings of ONNX Runtime's operators (lower_contrib*.c). */
#ifndef FRONTEND_LOWER_LOWER_CONTRIB_H
#define FRONTEND_LOWER_LOWER_CONTRIB_H

#include "frontend/lower/onnx_lower.h"

/* E331 unless the node has all of these inputs: required ones that follow optional ones. */
int contrib_requires(struct lower *lower, int n, const int *inputs);

/* Applies the node's attribute `activation` to x; `values` are its parameters, as many as are given. Returns x if the
 * node has no such attribute. */
int emit_activation(struct lower *lower, int x, int nvalues, const double *values);

/* An image (n, .., c) as (n, c, ..), and back (lower_contrib_image.c). */
int emit_channels_second(struct lower *lower, int x);
int emit_channels_last(struct lower *lower, int x);

#endif
