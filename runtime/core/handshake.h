/* Checks at the start of a job: what ranks compute together must be the same on all of them, over every transport. */
#ifndef RT_CORE_HANDSHAKE_H
#define RT_CORE_HANDSHAKE_H

#include "core/private.h"

#include "base/number/hash.h"

/* The identity of a program. The first half of its digits is a hash of the program's work key (model, and options that
 * change results), the second half a hash of its content key (the work, the plan and the build of rankc). */
void rt_identify(const struct rt_program *program, char identity[RT_HASH_HEX]);

/* Compares the identities of rank 0 and of another rank: RT_OK, or a recorded RT_ERROR_MISMATCH that names the rank and
 * says what differs. The final zeros are not read. */
int rt_compare_identities(struct rt *rt, int rank, const char *first, const char *other);

/* What ranks must agree on beside the program, such as an option of their command line, in an order that is the same on
 * all ranks. Zero-initialised: none. */
struct rt_terms {
    char *text; /* of each term: its name, value and phrase ("with --lr 0.1"), each with its NUL */
    size_t bytes, room;
    bool failed; /* out of memory */
};

/* Adds a term. Ranks agree on it if their values are equal. `shown` is how an error calls this rank's value, "" for a
 * flag; NULL: the option was not given. */
void rt_terms_add(struct rt_terms *terms, const char *name, const char *value, const char *shown);
void rt_terms_free(struct rt_terms *terms);

/* Collective: RT_OK, or a recorded RT_ERROR_MISMATCH (E0902), the same on all ranks, that names the first rank whose
 * terms differ from rank 0's, the term and both values. */
int rt_agree(struct rt *rt, const struct rt_terms *terms);

/* rt_open for callers that have terms, to which those of `options` are added. Once all ranks agree, `next` is
 * called unless it is NULL, before weights are loaded; a status other than RT_OK ends the opening, of all ranks. */
struct rt_agreed {
    struct rt_terms terms;
    int (*next)(void *context, struct rt *rt);
    void *context;
};
int rt_open_agreed(struct rt **out, const struct rt_program *program, const struct rt_options *options,
                   struct rt_agreed *agreed);

/* Records RT_ERROR_MISMATCH (E0902) with a text that all ranks have found: one of them reports it. */
int rt_fail_agreed(struct rt *rt, const char *text);

/* Collective: *all becomes the hashes of all ranks in rank order, RT_HASH_HEX bytes each, to be freed by the caller.
 * RT_OK, or a recorded error of memory or transport. */
int rt_gather_hashes(struct rt *rt, const char mine[RT_HASH_HEX], char **all);

#endif
