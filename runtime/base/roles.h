/* Roles of a decoder's inputs: what `rankc generate` gives them in each step. manifest.json and --role have the
 * words. */
#ifndef RT_BASE_ROLES_H
#define RT_BASE_ROLES_H

#include <stddef.h>
#include <string.h>

enum rt_role {
    RT_ROLE_NONE,
#define ROLE(ID, word, shapes, help) RT_ROLE_##ID,
#include "roles.def"
#undef ROLE
    RT_ROLES
};

struct rt_role_row {
    const char *word, *shapes, *help;
};

static inline const struct rt_role_row *rt_role_row(enum rt_role role) {
    static const struct rt_role_row rows[RT_ROLES] = {
        {"", "", ""},
#define ROLE(ID, word, shapes, help) {word, shapes, help},
#include "roles.def"
#undef ROLE
    };
    return &rows[role];
}

/* RT_ROLE_NONE: there is no such word. */
static inline enum rt_role rt_role_by_word(const char *word) {
    for (int role = 1; role < RT_ROLES; role++)
        if (strcmp(rt_role_row((enum rt_role)role)->word, word) == 0) return (enum rt_role)role;
    return RT_ROLE_NONE;
}

#endif
