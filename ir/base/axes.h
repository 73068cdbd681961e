/* Roles of the axes of a mesh (axes.def). */
#ifndef IR_BASE_AXES_H
#define IR_BASE_AXES_H

#include <stdbool.h>

enum axis_role {
#define AXIS(id, ...) AXIS_##id,
#include "ir/base/axes.def"
#undef AXIS
    AXIS_ROLES /* an axis of another name */
};

extern const struct axis_row {
    const char *name;
    bool splits, samples;
} axis_rows[AXIS_ROLES];

/* The role of an axis of that name. */
enum axis_role axis_role_of(const char *name);

#endif
