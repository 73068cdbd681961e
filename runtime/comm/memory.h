/* Shared memory of the ranks of a host that no common launcher has given them: a memfd of one rank, which the others
 * open by its process number. */
#ifndef RT_MEMORY_H
#define RT_MEMORY_H

#include <stdint.h>

struct rt_memory {
    char name[64]; /* unique to the job */
    int32_t pid, fd;
};

/* Makes the memory of `ranks` ranks without its symmetric part, with the seal that a launcher gives it (see
 * grow_segment in join.c). Returns the descriptor, or -1 with errno. */
int rt_memory_make(int ranks, struct rt_memory *out);

/* Opens the memory of another process. -1: not accessible. */
int rt_memory_find(const struct rt_memory *memory);

#endif
