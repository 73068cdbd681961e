/* What rendezvous.c (who is there) and rendezvous_place.c (where) share. */
#ifndef RT_RENDEZVOUS_PRIVATE_H
#define RT_RENDEZVOUS_PRIVATE_H

#include "rendezvous.h"

#define TOKEN_BYTES 33 /* of hexadecimal digits and a NUL */

enum place_kind { PLACE_ADDRESS, PLACE_FILE, PLACE_MPI };

/* Where the ranks of a job meet. */
struct place {
    enum place_kind kind;
    char host[256], port[24]; /* of an address */
    const char *path;        /* of a file */
    char token[TOKEN_BYTES]; /* of this job, where the place carries one: tells it from those before */
    char card[1024];         /* of MPI: what a file would say */
    char label[320];         /* for messages */
};

/* The place that is meant; RT_ERROR_USAGE where there is none. */
int place_find(struct rt *rt, const char *text, struct place *place);

/* The first rank: a socket that listens there, and is known to all who ask. */
int place_listen(struct rt *rt, struct place *place, int *listener);

/* The others: once, before place_call. Waits for the first where the place is MPI. */
int place_ask(struct rt *rt, struct place *place);

/* One try to reach the first rank: a socket, or -1. */
int place_call(struct place *place);

/* The first rank: nobody else is expected. */
void place_leave(const struct place *place);

/* Gives all ranks of MPI's world what the first has: RT_OK, or RT_ERROR_SYSTEM and why. MPI is started and ended by it. */
int rt_mpi_broadcast(void *data, int bytes, char *why, size_t room);

/* True if an MPI's launcher started this process. */
bool rt_mpi_launched(void);

#endif
