/* The interface of policy plug-ins: --pas plugin:FILE.so. C and C++.
 *
 * A plug-in is a shared library that decides how the nodes of a model are divided among ranks. It is shown the forward
 * nodes of the model, after rankc has simplified them, and answers with rules as in a rule file (docs/plans.md, Rules).
 * rankc applies them like those of a file: a rule that cannot be applied is an error, and what the rules leave open
 * follows from them or is replicated, with a note. A plug-in must be deterministic. It runs in a process of its own,
 * which is started anew for each of the functions below. Build it with: cc -shared -fPIC -o policy.so policy.c */
#ifndef RANKC_POLICY_H
#define RANKC_POLICY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RANKC_POLICY_VERSION 1

enum rankc_policy_kind { RANKC_POLICY_VALUE, RANKC_POLICY_INPUT, RANKC_POLICY_WEIGHT, RANKC_POLICY_CONSTANT };

struct rankc_policy_tensor {
    const char *name, *dtype; /* "f32", "i64" */
    int kind;                 /* enum rankc_policy_kind */
    int ndim;
    const int64_t *dims; /* extents of the whole tensor */
};

struct rankc_policy_node {
    const char *name, *op; /* of the ONNX node that it is from; rankc's operator (docs/operators.md) */
    double flops;          /* floating-point operations of the whole node */
    int ninputs, noutputs;
    const int *inputs, *outputs; /* indices into tensors; -1: an optional input that is left out */
};

struct rankc_policy_graph {
    int nnodes, ntensors;
    const struct rankc_policy_node *nodes; /* in an order of execution */
    const struct rankc_policy_tensor *tensors;
    int trains; /* 1: the program trains the model */
    int naxes;  /* of the mesh; the first is the fastest */
    const struct rankc_policy_axis {
        const char *name; /* "tensor", "pipeline" */
        int size;
    } * axes;
};

/* What a plug-in defines */

/* RANKC_POLICY_VERSION of the header that the plug-in was compiled with. */
extern const int rankc_policy_version;

/* Optional. The mesh for that many ranks, such as "tensor=2 pipeline=2"; NULL or without this function: one axis
 * "tensor" of all of them. */
const char *rankc_policy_mesh(int plan_ngpus);

/* Calls rule(to, text) for each rule, such as "match \"h.0.mlp\" split in1.1", the last one that matches a node
 * decides. Returns 0, or another number if the policy cannot divide the model. */
int rankc_policy(const struct rankc_policy_graph *graph, void (*rule)(void *to, const char *text), void *to);

#ifdef __cplusplus
}
#endif

#endif
