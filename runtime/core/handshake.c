#include "core/handshake.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS = RT_HASH_HEX - 1, WORK_DIGITS = DIGITS / 2 };

void rt_identify(const struct rt_program *program, char identity[RT_HASH_HEX]) {
    const char *text = program->work ? program->work : ""; /* programs written by hand may have none */
    char work[RT_HASH_HEX];
    rt_hash_bytes(program->key, strlen(program->key), identity);
    rt_hash_bytes(text, strlen(text), work);
    memcpy(identity, work, WORK_DIGITS);
}

int rt_compare_identities(struct rt *rt, int rank, const char *first, const char *other) {
    if (memcmp(first, other, DIGITS) == 0) return RT_OK;
    const bool same_work = memcmp(first, other, WORK_DIGITS) == 0;
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_KEY, "rank %d runs another program than rank 0, compiled %s",
                        rank,
                        same_work ? "with another plan or by another build of rankc"
                                  : "from another model or with options that change results");
}

int rt_gather_hashes(struct rt *rt, const char mine[RT_HASH_HEX], char **all) {
    if (!(*all = malloc((size_t)rt->world * RT_HASH_HEX))) return rt_fail_memory(rt);
    for (int r = 0; r < rt->world; r++) rt->internal->counts[r] = RT_HASH_HEX;
    const int status = rt->comm->driver->all_gather(rt->comm, *all, mine, rt->internal->counts);
    if (!status) return RT_OK;
    free(*all);
    return rt_fail_comm(rt, rt->comm, status);
}
