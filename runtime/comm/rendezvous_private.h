/* Shared by the parts of a rendezvous: rendezvous.c (sequence of steps), rendezvous_door.c (accepting and recognising
 * ranks), rendezvous_proof.c (messages and their authentication) and rendezvous_place.c (addresses
 * and files of secrets).
 *
 * Note [Who belongs to a meeting]
 * All ranks of a job share a secret token, which is never sent. Each side sends a nonce, a random number used once, and
 * a message authentication code over both nonces and the message, keyed with the token (HMAC-SHA256, RFC 2104):
 *
 *     rank 0 -> caller    struct challenge    its nonce, as soon as the caller connects
 *     caller -> rank 0    struct hello        rank, world, program, its nonce, code
 *     rank 0 -> caller    struct proof        code that proves that rank 0 knows the token too
 *     rank 0 -> caller    struct verdict      twice, each with a code: where the memory is; that the job begins
 *
 * A caller without the token learns nothing and has no effect: rank 0 drops it and waits on; a rank that finds such a
 * process in the place of rank 0 tries again. Messages after hello and proof - one word that the memory was found, one
 * byte of farewell - have no code: an attacker who can alter packets can end a job.
 *
 * Source of the token: for an address, RANKC_TOKEN; if that is not set and all ranks are on one machine, a file
 * readable by this user only, which rank 0 writes. A file: or mpi place carries a token of its own. Ranks that `rankc
 * run` starts inherit their memory and do not meet. */
#ifndef RT_RENDEZVOUS_PRIVATE_H
#define RT_RENDEZVOUS_PRIVATE_H

#include "comm/rendezvous.h"

#include "base/number/hmac.h"

#include <pthread.h>

#define TOKEN_VARIABLE "RANKC_TOKEN"
#define TOKEN_LEAST    16  /* minimal length of a token given by the user */
#define TOKEN_ROOM     256 /* including a NUL */
#define NONCE_BYTES    32
#define KEY_BYTES      32        /* a program's hash in hexadecimal digits */
#define MAGIC          "rankc-2" /* 8 bytes with its NUL; names the protocol version */
#define PROMPT_MS      5000      /* time limit for a caller's answer */

/* Places */

enum place_kind { PLACE_ADDRESS, PLACE_FILE, PLACE_MPI };

/* The place where the ranks of a job meet. */
struct place {
    enum place_kind kind;
    char host[256], port[24]; /* of PLACE_ADDRESS */
    const char *path;         /* of PLACE_FILE */
    bool given;               /* the token is the user's; else rank 0 makes one */
    bool one_machine;         /* all ranks are on this machine, as far as the environment tells */
    char token[TOKEN_ROOM];
    char token_path[512]; /* file with the token of an address, known once rank 0 listens */
    char card[1024];      /* of PLACE_FILE and PLACE_MPI: token, port and addresses of rank 0, as text */
    char label[320];      /* of the place, for messages */
    char trouble[320];    /* why the token could not be read; "": it was, or does not exist yet */
};

/* Parses the place; RT_ERROR_USAGE: none is given or known, or it has no token. */
int place_find(struct rt *rt, const char *text, struct place *place);

/* Rank 0: opens the listening socket and publishes its address. */
int place_listen(struct rt *rt, struct place *place, int *listener);

/* Other ranks: called once before place_call; for PLACE_MPI, receives rank 0's broadcast. */
int place_ask(struct rt *rt, struct place *place);

/* Other ranks: one attempt to connect to rank 0. Returns a socket, or -1; on success the token is known. */
int place_call(struct place *place);

/* Why the last attempt found nobody; looks once more for an address. Valid as long as the place. */
const char *place_absence(struct place *place);

/* Rank 0: removes the published files, when all ranks have come or the time is over. */
void place_leave(const struct place *place);

/* Messages. Sockets are non-blocking; a message that is not complete by the deadline counts as lost. */

struct challenge {
    char magic[sizeof MAGIC];
    unsigned char nonce[NONCE_BYTES];
};

/* A rank's first message. */
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

/* Rank 0's result: status of the job; if RT_OK, where the shared memory is: descriptor `fd` of process `pid`. */
struct verdict {
    char magic[sizeof MAGIC], name[64]; /* of the memfd */
    char text[320];
    int32_t status, code, pid, fd;
    unsigned char proof[RT_SHA256_BYTES];
};

/* An exchange of messages between rank 0 and a caller. */
struct session {
    unsigned char nonce[2][NONCE_BYTES]; /* of rank 0, of the caller */
};

/* Makes a nonce; 0 or an errno. */
int session_nonce(unsigned char nonce[NONCE_BYTES]);

/* Authentication code of a message of `count` bytes in this session; `what` names the kind of message. */
void session_code(const struct place *place, const struct session *session, const char *what, const void *bytes,
                  size_t count, unsigned char code[RT_SHA256_BYTES]);
bool session_proves(const struct place *place, const struct session *session, const char *what, const void *bytes,
                    size_t count, const unsigned char code[RT_SHA256_BYTES]);

/* Send or receive a complete message until `deadline` (rt_now_ms); false: the connection failed or time is over. */
bool send_all(int fd, const void *data, size_t bytes, int64_t deadline);
bool receive_all(int fd, void *data, size_t bytes, int64_t deadline);

/* Closes a socket or descriptor unless it is -1, and sets it to -1. */
void close_link(int *fd);

/* Receives available bytes of a message of which *done bytes have arrived; false: the connection ended. */
bool receive_some(int fd, void *data, size_t bytes, size_t *done);

/* Accepting ranks */

struct rt_meeting {
    int world;
    int *link;               /* sockets by rank: rank 0 has one to each other rank, the others have link[0]; -1: none */
    struct session *session; /* per link */
    int memory;              /* a memfd */
    char name[64];           /* name of the memfd, unique to this job */
    void *segment;           /* NULL unless the watching thread runs */
    int wake;                /* eventfd that ends the watching thread */
    pthread_t thread;
    _Atomic int lost; /* rank that disconnected without a farewell, plus 1; 0: none */
};

/* Rank 0: accepts callers until all ranks have authenticated; others are dropped and named in a warning. */
int door_receive(struct rt *rt, struct rt_meeting *meeting, const struct place *place, int listener, int seconds);

/* Other ranks: connects until rank 0 is found and authenticated. The first verdict follows. */
int door_enter(struct rt *rt, struct rt_meeting *meeting, struct place *place, int seconds);

#endif
