#include "ir/base/axes.h"

#include <string.h>

const struct axis_row axis_rows[AXIS_ROLES] = {
#define AXIS(id, ...) {__VA_ARGS__},
#include "ir/base/axes.def"
#undef AXIS
};

enum axis_role axis_role_of(const char *name) {
    int role = 0;
    while (role < AXIS_ROLES && strcmp(axis_rows[role].name, name) != 0) role++;
    return (enum axis_role)role;
}
