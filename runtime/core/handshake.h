/* Checks at the start of a job: what ranks compute together must be the same on all of them, over every transport. */
#ifndef RT_CORE_HANDSHAKE_H
#define RT_CORE_HANDSHAKE_H

#include "core/private.h"

#include "base/hash.h"

/* The identity of a program. The first half of its digits is a hash of the program's work key (model, and options that
 * change results), the second half a hash of its content key (the work, the plan and the build of rankc). */
void rt_identify(const struct rt_program *program, char identity[RT_HASH_HEX]);

/* Compares the identities of rank 0 and of another rank: RT_OK, or a recorded RT_ERROR_MISMATCH that names the rank and
 * says what differs. The final zeros are not read. */
int rt_compare_identities(struct rt *rt, int rank, const char *first, const char *other);

/* Collective: *all becomes the hashes of all ranks in rank order, RT_HASH_HEX bytes each, to be freed by the caller.
 * RT_OK, or a recorded error of memory or transport. */
int rt_gather_hashes(struct rt *rt, const char mine[RT_HASH_HEX], char **all);

#endif
