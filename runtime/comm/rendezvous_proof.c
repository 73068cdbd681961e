/* Messages of a rendezvous and their authentication codes; Note [Who belongs to a meeting]. */
#include "comm/rendezvous_private.h"

#include "base/thread/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(sizeof(struct hello) == 8 + 8 + KEY_BYTES + NONCE_BYTES + RT_SHA256_BYTES, "no padding is sent");
_Static_assert(sizeof(struct verdict) == 8 + 64 + 320 + 16 + RT_SHA256_BYTES, "no padding is sent");

int session_nonce(unsigned char nonce[NONCE_BYTES]) {
    return getrandom(nonce, NONCE_BYTES, 0) == NONCE_BYTES ? 0 : errno;
}

void session_code(const struct place *place, const struct session *session, const char *what, const void *bytes,
                  size_t count, unsigned char code[RT_SHA256_BYTES]) {
    struct rt_hmac hmac;
    rt_hmac_start(&hmac, place->token, strlen(place->token));
    rt_hmac_add(&hmac, what, strlen(what) + 1);
    rt_hmac_add(&hmac, session->nonce, sizeof session->nonce);
    rt_hmac_add(&hmac, bytes, count);
    rt_hmac_end(&hmac, code);
}

bool session_proves(const struct place *place, const struct session *session, const char *what, const void *bytes,
                    size_t count, const unsigned char code[RT_SHA256_BYTES]) {
    unsigned char mine[RT_SHA256_BYTES];
    session_code(place, session, what, bytes, count, mine);
    return rt_same_secret(mine, code, sizeof mine);
}

static bool wait_for(int fd, short events, int64_t deadline) {
    struct pollfd wait = {.fd = fd, .events = events};
    for (;;) {
        const int64_t left = deadline - rt_now_ms();
        const int ready = poll(&wait, 1, left > 0 ? (int)left : 0);
        if (ready > 0) return true;
        if (ready == 0 || errno != EINTR) return false;
    }
}

bool send_all(int fd, const void *data, size_t bytes, int64_t deadline) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t sent = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            done += (size_t)sent;
        else if ((errno != EAGAIN && errno != EINTR) || !wait_for(fd, POLLOUT, deadline))
            return false;
    }
    return true;
}

bool receive_some(int fd, void *data, size_t bytes, size_t *done) {
    const ssize_t got = recv(fd, (char *)data + *done, bytes - *done, MSG_DONTWAIT);
    if (got > 0) *done += (size_t)got;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool receive_all(int fd, void *data, size_t bytes, int64_t deadline) {
    for (size_t done = 0; done < bytes;)
        if (!wait_for(fd, POLLIN, deadline) || !receive_some(fd, data, bytes, &done)) return false;
    return true;
}

void close_link(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}
