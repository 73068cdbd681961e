/* The number of ranks of a job, which is known when the job starts: a multiple of plan_ngpus, the ranks of one scale
 * unit. location.json in a program's directory records the number that the model was compiled for, as a default. */
#ifndef RT_BASE_LOCATION_H
#define RT_BASE_LOCATION_H

#include "../contract.h"
#include "../text/reason.h"

#include <stdint.h>

/* True if a program whose scale units have `plan_ngpus` ranks runs on `ranks` ranks. */
static inline bool rt_ranks_fit(int64_t ranks, int64_t plan_ngpus) {
    return ranks > 0 && ranks <= RT_MAX_RANKS && ranks % plan_ngpus == 0;
}

/* What to say otherwise: of the program's name, plan_ngpus, RT_MAX_RANKS and the number of ranks. */
#define RT_RANKS_DO_NOT_FIT "'%s' needs a multiple of %d ranks (plan_ngpus), at most %d, but was started with %d"

/* Sets *ranks to "runtime_ngpus" of location.json below `directory`; to plan_ngpus if there is no such file or the file
 * has no such member. False if the file cannot be read, or the number does not fit: RT_REASON_CONTENT. */
bool rt_location_ranks(const char *directory, int64_t plan_ngpus, int64_t *ranks, struct rt_reason *why);

#endif
