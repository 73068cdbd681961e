/* What the parts of a meeting share: rendezvous.c (its course), rendezvous_door.c (who comes), rendezvous_proof.c
 * (who belongs to it), rendezvous_place.c (where it is) and rendezvous_secret.c (files of secrets).
 *
 * Note [Who belongs to a meeting]
 * All ranks of a job know a token, and nobody else does. It is never sent: each side sends a nonce, a number that
 * it uses once, and a code that only who knows the token can compute from both nonces and the message (HMAC-SHA256,
 * RFC 2104). So
 *
 *     first rank -> caller    struct challenge    its nonce, as soon as somebody connects
 *     caller -> first rank    struct hello        who it is, its nonce, the code of both
 *     first rank -> caller    struct proof        the code that shows that it knows the token too
 *     first rank -> caller    struct verdict      twice, with a code each: where the memory is; that the job begins
 *
 * Who does not know the token learns nothing and changes nothing: the first rank drops it and waits on, a rank that
 * finds it in the first rank's place looks again. What the ranks say after their hello and proof - one word that
 * the memory was found, one byte of farewell - has no code: who can change the packets of others can end a job.
 *
 * Where the token comes from depends on the place: an address takes RANKC_TOKEN, or where that is not set and all
 * ranks are on one machine a file that only this user can read, which the first rank writes; a place that is a
 * file, and one that MPI tells, carry a token of their own. Ranks that `rankc run` starts do not meet: they inherit
 * their memory. */
#ifndef RT_RENDEZVOUS_PRIVATE_H
#define RT_RENDEZVOUS_PRIVATE_H

#include "comm/rendezvous.h"

#include "base/hmac.h"

#include <pthread.h>

#define TOKEN_VARIABLE "RANKC_TOKEN"
#define TOKEN_LEAST    16  /* bytes of one that a user gives */
#define TOKEN_ROOM     256 /* and a NUL */
#define NONCE_BYTES    32
#define KEY_BYTES      32        /* of the hash of a program, in hexadecimal digits */
#define MAGIC          "rankc-2" /* with its NUL: 8 bytes */
#define PROMPT_MS      5000      /* who belongs to the job answers sooner */

/* Places */

enum place_kind { PLACE_ADDRESS, PLACE_FILE, PLACE_MPI };

/* Where the ranks of a job meet. */
struct place {
    enum place_kind kind;
    char host[256], port[24]; /* of an address */
    const char *path;         /* of a file */
    bool given;               /* the token is the user's; else the first rank makes it */
    bool one_machine;         /* all ranks are on this machine, for all that is known */
    char token[TOKEN_ROOM];
    char token_path[512]; /* of the file that has the token of an address, once the first rank listens */
    char card[1024];      /* of a file or MPI: what it says */
    char label[320];      /* for messages */
    char trouble[320];    /* why the token could not be read; "": it could, or is not there */
};

/* The place that is meant; RT_ERROR_USAGE where there is none, or no token. */
int place_find(struct rt *rt, const char *text, struct place *place);

/* The first rank: a socket that listens there, and is known to all who ask. */
int place_listen(struct rt *rt, struct place *place, int *listener);

/* The others: once, before place_call. Waits for the first where the place is MPI. */
int place_ask(struct rt *rt, struct place *place);

/* One try to reach the first rank: a socket, or -1. The token is then known. */
int place_call(struct place *place);

/* The first rank: nobody else is expected. */
void place_leave(const struct place *place);

/* Secrets */

/* Writes a file that only this user can read, whatever was there before; 0 or an errno. */
int secret_write(const char *path, const char *text);

/* Reads one: a regular file of this user that nobody else can read, no link, of less than `room` bytes. Else false,
 * with the reason in `why`; where there is no file, "". */
bool secret_read(const char *path, char *text, size_t room, char *why, size_t why_room);

/* A token of 128 random bits as hexadecimal digits; 0 or an errno. */
int secret_make(char text[TOKEN_ROOM]);

/* Messages. A socket does not block; what does not come in time is not coming. */

struct challenge {
    char magic[sizeof MAGIC];
    unsigned char nonce[NONCE_BYTES];
};

/* What a rank says when it comes. */
struct hello {
    char magic[sizeof MAGIC];
    int32_t rank, world;
    char key[KEY_BYTES]; /* of the program */
    unsigned char nonce[NONCE_BYTES], code[RT_SHA256_BYTES];
};

struct proof {
    char magic[sizeof MAGIC];
    unsigned char code[RT_SHA256_BYTES];
};

/* What the first rank says at last: whether the job is complete, and then where its shared memory is. */
struct verdict {
    char magic[sizeof MAGIC], name[64]; /* of the memory */
    char text[320];
    int32_t status, code, pid, fd;
    unsigned char proof[RT_SHA256_BYTES];
};

/* A conversation of the first rank with a caller. */
struct session {
    unsigned char nonce[2][NONCE_BYTES]; /* the first rank's, the caller's */
};

/* 0 or an errno. */
int session_nonce(unsigned char nonce[NONCE_BYTES]);

/* The code of `count` bytes of a message of this conversation; `what` says which message it is. */
void session_code(const struct place *place, const struct session *session, const char *what, const void *bytes,
                  size_t count, unsigned char code[RT_SHA256_BYTES]);
bool session_proves(const struct place *place, const struct session *session, const char *what, const void *bytes,
                    size_t count, const unsigned char code[RT_SHA256_BYTES]);

bool send_all(int fd, const void *data, size_t bytes, int64_t deadline);
bool receive_all(int fd, void *data, size_t bytes, int64_t deadline);

/* What is there of a message of which *done bytes have come; false where no more comes. */
bool receive_some(int fd, void *data, size_t bytes, size_t *done);

/* Who comes */

struct rt_meeting {
    int world;
    int *link;               /* by rank: of the first to all others, of these to the first; -1: none */
    struct session *session; /* of each link */
    int memory;              /* a memfd */
    char name[64];           /* of it: of this job alone */
    void *segment;           /* while it is watched */
    int wake;                /* ends the watch */
    pthread_t thread;
    _Atomic int lost; /* a rank that left without a farewell, plus one; 0: none */
};

/* The first rank: until all others have come and shown that they belong to the job. Who does not is dropped and
 * named. */
int door_receive(struct rt *rt, struct rt_meeting *meeting, const struct place *place, int listener, int seconds);

/* Another rank: until the first has shown that it is. Its first verdict comes later. */
int door_enter(struct rt *rt, struct rt_meeting *meeting, struct place *place, int seconds);

/* MPI */

/* Gives all ranks of MPI's world what the first has: RT_OK, or RT_ERROR_SYSTEM and why. MPI is started and ended by
 * it. */
int rt_mpi_broadcast(void *data, int bytes, char *why, size_t room);

/* True if an MPI's launcher started this process. */
bool rt_mpi_launched(void);

#endif
