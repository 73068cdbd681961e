/* Inputs and outputs of a compiled program as manifest.json describes them, and the sizes that given tensors choose. */
#ifndef FRONTEND_CLI_GENERATE_PORTS_H
#define FRONTEND_CLI_GENERATE_PORTS_H

#include "frontend/cli/compiled_model.h"
#include "runtime/base/dtype.h"

/* A tensor in a file, or one that a program will write. */
struct value {
    const char *name;
    const char *from;          /* what gives it, as texts name it */
    const char *path;          /* NULL: not written yet */
    int ndim;                  /* -1: not known */
    int64_t dims[RT_MAX_NDIM]; /* -1: not known */
};

/* A size that a run of the program chooses. */
struct port_size {
    const char *name;
    int64_t least, most, step;
    int64_t chosen; /* -1: not yet */
};

struct ports {
    const char *name;                       /* of the program, as texts name it */
    const struct rt_json *inputs, *outputs; /* arrays, or NULL */
    VEC(struct port_size) sizes;
};

void ports_read(struct ports *ports, const struct compiled_model *compiled, const char *name, struct cli *cli);

/* The name of an input or output. */
const char *port_name(const struct rt_json *port);
enum rt_dtype port_dtype(const struct rt_json *port);

/* Gives the input a value, whose dimensions choose sizes. 0, or -1 after E0915: the value has another shape, a size is
 * out of its bounds, or another input has chosen another. */
int ports_give(struct ports *ports, const struct rt_json *input, const struct value *value, struct cli *cli);

/* The shape of an output under the sizes that are chosen; -1 where it depends on others. */
void ports_shape(const struct ports *ports, const struct rt_json *output, struct value *out);

/* The least extent that dimension d of the input can have and that is at least `wanted`; `wanted` if there is none. */
int64_t ports_extent(const struct ports *ports, const struct rt_json *input, int d, int64_t wanted);

#endif
