/* A set of texts, each with a number, that finds those which a text begins with. */
#ifndef FRONTEND_TEXT_PREFIXES_H
#define FRONTEND_TEXT_PREFIXES_H

#include "frontend/text/unicode.h"

struct prefix {
    struct span text;
    int32_t value;
};

struct prefixes {
    const struct prefix *at; /* in order of their bytes */
    int n;
    const int *first; /* [257]: where those that begin with a byte are */
};

/* The set, in the arena, of texts that are not empty and stay; of equal ones the last counts. Returns false if two are
 * equal. Reorders the array, which it keeps. */
bool prefixes_make(struct arena *arena, struct prefixes *set, struct prefix *texts, int n);

/* Those that a text begins with, by length:
 *     struct prefix_walk walk = prefixes_walk(&set, text);
 *     while ((found = prefixes_next(&walk)) ...
 */
struct prefix_walk {
    const struct prefixes *set;
    struct span text;
    int from, to; /* of those that agree with the text in `depth` bytes */
    size_t depth;
};
struct prefix_walk prefixes_walk(const struct prefixes *set, struct span text);
const struct prefix *prefixes_next(struct prefix_walk *walk);

/* The longest; NULL: none. */
const struct prefix *prefixes_longest(const struct prefixes *set, struct span text);

#endif
