/* The table of core operators (ops.def), with the functions that its rows name. */
#include "ir/ops/ops.h"

#include "ir/ops/grad.h"

#define EW(name_, types_, expr_, flops_, ...)                                                                          \
    {.id = OP_##name_,                                                                                                 \
     .name = #name_,                                                                                                   \
     .kind = OP_ELEMENTWISE,                                                                                           \
     .types = types_,                                                                                                  \
     .expr = expr_,                                                                                                    \
     .flops = flops_,                                                                                                  \
     ##__VA_ARGS__},
#define OP(name_, kind_, dims_, types_, flops_, call_, ...)                                                            \
    {.id = OP_##name_,                                                                                                 \
     .name = #name_,                                                                                                   \
     .kind = kind_,                                                                                                    \
     .dims = dims_,                                                                                                    \
     .types = types_,                                                                                                  \
     .flops = flops_,                                                                                                  \
     .call = call_,                                                                                                    \
     ##__VA_ARGS__},
const struct op ops[NOPS] = {
#include "ir/ops.def"
};
#undef EW
#undef OP

struct number pair_look_up(const void *env, const char *name) {
    return *name == 'a' ? ((const struct pair *)env)->a : ((const struct pair *)env)->b;
}

int refuse(struct dims *dims, const char **why, const char *format, ...) {
    ARENA_PRINT_TO(*why, dims->arena, format);
    return -1;
}
