/* Faults on purpose: the k-th allocation or system call of what runs between faults_arm and faults_disarm goes wrong.
 *
 * The functions of libc that rankc calls are defined here again, so that all of the process meets them; they end in the
 * system call of the same name. */
#ifndef TESTS_FAULTS_FAULTS_H
#define TESTS_FAULTS_FAULTS_H

#include <stdbool.h>

enum fault_kind {
    FAULT_NONE,
    FAULT_MEMORY,    /* the k-th allocation fails */
    FAULT_NO_MEMORY, /* and all after it */
    FAULT_ERROR,     /* the k-th system call fails with `error` */
    FAULT_SHORT,     /* the k-th system call, if it is a read or write, moves one byte */
    FAULT_KILL,      /* the process is killed instead of making the k-th system call */
};

struct fault {
    enum fault_kind kind;
    long at;          /* k, from 1 */
    int error;        /* of FAULT_ERROR */
    bool no_exchange; /* renameat2 fails with EINVAL, as on file systems without it */
};

void faults_arm(const struct fault *fault);
/* How many points there were; *hit: the fault was among them. */
long faults_disarm(bool *hit);
/* Blocks that are allocated and not freed. */
long faults_live_blocks(void);

#endif
