/* Inputs and outputs of a program, for templates: tables of the runtime, and constants and fields of model.h. */
#ifndef CODEGEN_PORTS_H
#define CODEGEN_PORTS_H

#include "codegen/text/extents.h"
#include "codegen/text/tmpl.h"
#include "ir/ir.h"

/* The enumerators of enum rt_dtype. */
extern const char *const dtype_ids[];

/* Binds the lists "inputs" and "outputs" and, of a model whose loss is the caller's, "seeds" (gradients of outputs,
 * which the caller passes) and "gradients" (of inputs, which the caller gets), and how many these are: "ninputs" ..
 * "ngradients". Each entry has "index"; "type" (f32[2,3]); "shape" ((2, 3)); "batch" ((4 * 2, 3)), the shape with
 * the `accumulate` micro-batches of a training step; "elements", those of all micro-batches of inference; "dtype",
 * "ndim" and "dims" for tables; and "name", "c_type" and "remark": a C identifier that differs from those of all other
 * ports (codegen/text/names.h), the type of an element, and the model's name where it may stand in a comment. */
void ports_bind(struct tmpl_env *env, const struct graph *graph, struct extents *extents, int accumulate);

/* Gradients of inputs that the program gives: outputs behind those of the model. */
int ports_input_gradients(const struct graph *graph);

#endif
