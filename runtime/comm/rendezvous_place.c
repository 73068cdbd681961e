/* Where ranks meet: an address, a file that contains one, or an MPI that broadcasts one. A file and MPI carry a card:
 * one line of text with the job's token, the port, and the addresses of rank 0's machine, which the others try in turn.
 * The card of an earlier job leads to no listener, or to one that does not know the token; ranks then try again.
 *
 * Rank 0 listens only at the given address. If none is given, it listens at 127.0.0.1 if all ranks are known to be on
 * this machine, else on all interfaces. */
#include "comm/rendezvous_private.h"

#include "comm/mpi_library.h"
#include "core/handshake.h"

#include "base/text/reason.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The broadcast of a rendezvous with the MPI whose launcher started this process. */

/* Broadcasts `bytes` bytes from rank 0 to all ranks of MPI_COMM_WORLD: RT_OK, or RT_ERROR_SYSTEM and `why`. Calls
 * MPI_Init and MPI_Finalize. */
static int rt_mpi_broadcast(void *data, int bytes, char *why, size_t room) {
    struct rt_mpi mpi;
    RT_TRY(rt_mpi_open(&mpi, RT_MPI_MEETS, why, room));
    const int status = mpi.Bcast(data, bytes, mpi.byte, 0, mpi.world);
    rt_mpi_close(status != 0);
    snprintf(why, room, "MPI_Bcast returned %d", status);
    return status ? RT_ERROR_SYSTEM : RT_OK;
}

/* Secret files: created with mode 0600, renamed into place, and read only if no other user could have written them,
 * because directories like /tmp are shared. */

#define DIGITS 32

static int write_text(int fd, const char *text) {
    const size_t bytes = strlen(text);
    if (fchmod(fd, 0600) != 0) return errno; /* the umask may have removed even these bits */
    const ssize_t written = write(fd, text, bytes);
    return written == (ssize_t)bytes ? 0 : written < 0 ? errno : ENOSPC;
}

/* Writes a file that only this user can read, replacing an existing one. Returns 0 or an errno. */
static int secret_write(const char *path, const char *text) {
    char temporary[1024];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= sizeof temporary) return ENAMETOOLONG;
    const int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) return errno;
    int error = write_text(fd, text);
    if (close(fd) != 0 && !error) error = errno;
    if (!error && rename(temporary, path) != 0) error = errno;
    if (error) unlink(temporary);
    return error;
}

static const char *refusal(const struct stat *status) {
    if (!S_ISREG(status->st_mode)) return "it is not a regular file";
    if (status->st_uid != geteuid()) return "it belongs to another user";
    if (status->st_mode & 077) return "others can read or write it";
    return NULL;
}

static bool read_text(int fd, char *text, size_t room, char *why, size_t why_room) {
    struct stat status;
    const char *bad = fstat(fd, &status) == 0 ? refusal(&status) : strerror(errno);
    const ssize_t got = bad ? 0 : read(fd, text, room);
    if (!bad && got < 0) bad = strerror(errno);
    if (!bad && (size_t)got >= room) bad = "it is too long";
    if (bad) return snprintf(why, why_room, "%s", bad), false;
    text[got] = 0;
    return true;
}

/* Reads such a file: a regular file of this user, not readable by others, not a link, of less than `room` bytes. False
 * otherwise, with the reason in `why`; "" if the file does not exist. */
static bool secret_read(const char *path, char *text, size_t room, char *why, size_t why_room) {
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    why[0] = 0;
    if (fd < 0) {
        if (errno != ENOENT) snprintf(why, why_room, "%s", errno == ELOOP ? "it is a link" : strerror(errno));
        return false;
    }
    const bool ok = read_text(fd, text, room, why, why_room);
    close(fd);
    return ok;
}

/* Makes a token: 128 random bits as hexadecimal digits. Returns 0 or an errno. */
static int secret_make(char text[TOKEN_ROOM]) {
    unsigned char bytes[DIGITS / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return errno;
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

#define CALL_MS 2000 /* limit of one attempt to connect */

/* Takes the first `length` bytes of `host`, and `port` + `offset`. False if they are no address. */
static bool set_address(struct place *place, const char *host, size_t length, const char *port_text, int offset) {
    char *end;
    const long port = strtol(port_text, &end, 10);
    if (length == 0 || length >= sizeof place->host || end == port_text || *end || port < 1 || port + offset > 65535)
        return false;
    place->kind = PLACE_ADDRESS;
    memcpy(place->host, host, length);
    snprintf(place->port, sizeof place->port, "%ld", port + offset);
    snprintf(place->label, sizeof place->label, "%s:%s", place->host, place->port);
    return true;
}

static int place_of_environment(struct rt *rt, struct place *place) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    /* torchrun's own store may listen at MASTER_PORT; ranks then use the next port. */
    const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (host && port && set_address(place, host, strlen(host), port, store && strcmp(store, "True") == 0)) return RT_OK;
    if (host && port)
        return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_PLACE,
                            "MASTER_ADDR is '%s' and MASTER_PORT '%s': a host and a port from 1 to 65535 are needed",
                            rt_quote_text(host).text, rt_quote_text(port).text);
    place->kind = PLACE_MPI;
    snprintf(place->label, sizeof place->label, "an address that MPI broadcasts");
    if (rt_mpi_launched()) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_WORLD,
                        "rank %d of %d has no rendezvous: start the ranks with `rankc run`, or give "
                        "MASTER_ADDR and MASTER_PORT, or --rendezvous",
                        rt->rank, rt->world);
}

/* True if the address belongs to this machine: a socket can bind to it. */
static bool is_own(const struct addrinfo *at) {
    struct sockaddr_storage address = {0};
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    memcpy(&address, at->ai_addr, at->ai_addrlen);
    if (at->ai_family == AF_INET) ((struct sockaddr_in *)(void *)&address)->sin_port = 0;
    if (at->ai_family == AF_INET6) ((struct sockaddr_in6 *)(void *)&address)->sin6_port = 0;
    const bool own = bind(fd, (const struct sockaddr *)&address, at->ai_addrlen) == 0;
    close(fd);
    return own;
}

static struct addrinfo *resolve(const char *host, const char *port, int *error) {
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    *error = getaddrinfo(host, port, &wanted, &found);
    return *error ? NULL : found;
}

/* A name that does not resolve counts as local: it may resolve later. */
static bool is_elsewhere(const struct place *place) {
    int error;
    struct addrinfo *found = resolve(place->host, place->port, &error);
    bool own = !found;
    for (const struct addrinfo *at = found; at && !own; at = at->ai_next) own = is_own(at);
    if (found) freeaddrinfo(found);
    return !own;
}

static int take_token(struct rt *rt, struct place *place) {
    const char *given = getenv(TOKEN_VARIABLE);
    if (given && (strlen(given) < TOKEN_LEAST || strlen(given) >= TOKEN_ROOM))
        return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_TOKEN, TOKEN_VARIABLE " has %zu bytes; a token has %d to %d",
                            strlen(given), TOKEN_LEAST, TOKEN_ROOM - 1);
    place->given = given != NULL;
    if (given) snprintf(place->token, sizeof place->token, "%s", given);
    if (given || (place->one_machine && (rt->rank == 0 || !is_elsewhere(place)))) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_TOKEN,
                        "ranks that meet at %s are on several machines: set " TOKEN_VARIABLE
                        " to the same secret of %d bytes or more "
                        "for all of them",
                        place->label, TOKEN_LEAST);
}

static int read_place(struct rt *rt, const char *text, struct place *place) {
    *place = (struct place){.kind = PLACE_MPI,
                            .one_machine = rt->internal->local_world == rt->world || !rt->internal->local_world};
    if (!text) return place_of_environment(rt, place);
    snprintf(place->label, sizeof place->label, "%s", text);
    if (strcmp(text, "mpi") == 0) return RT_OK;
    if (strncmp(text, "file:", 5) == 0 && text[5]) {
        place->kind = PLACE_FILE;
        place->path = text + 5;
        return RT_OK;
    }
    const char *colon = strrchr(text, ':');
    if (colon && set_address(place, text, (size_t)(colon - text), colon + 1, 0)) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_PLACE, "invalid rendezvous '%s': use HOST:PORT, file:PATH or mpi",
                        rt_quote_text(text).text);
}

int place_find(struct rt *rt, const char *text, struct place *place) {
    RT_TRY(read_place(rt, text, place));
    return place->kind == PLACE_ADDRESS ? take_token(rt, place) : RT_OK;
}

/* Path of the token file, for this user, address and port. */
static void set_token_path(struct place *place, const struct addrinfo *at) {
    const char *const directories[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    const char *directory = NULL;
    char host[64] = "", port[16] = "";
    for (size_t i = 0; !directory; i++)
        if (directories[i] && directories[i][0] == '/') directory = directories[i];
    getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(place->token_path, sizeof place->token_path, "%s/rankc-%u-%s-%s", directory, (unsigned)geteuid(), host,
             port);
}

static int fail_listen(struct rt *rt, const struct place *place, const char *why) {
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_PLACE, "rank 0 cannot listen at %s: %s", place->label, why);
}

static int bind_socket(const struct addrinfo *at) {
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Listens at the first of the host's addresses that can be bound. */
static int listen_at(struct rt *rt, struct place *place, const char *host, const char *port, int *listener) {
    int error = 0;
    struct addrinfo *found = resolve(host, port, &error);
    if (!found) return fail_listen(rt, place, gai_strerror(error));
    for (const struct addrinfo *at = found; at && *listener < 0; at = at->ai_next) {
        *listener = bind_socket(at);
        error = errno;
        if (*listener >= 0) set_token_path(place, at);
    }
    freeaddrinfo(found);
    return *listener >= 0 ? RT_OK : fail_listen(rt, place, strerror(error));
}

static int make_token(struct rt *rt, struct place *place) {
    const int error = secret_make(place->token);
    return error ? fail_listen(rt, place, strerror(error)) : RT_OK;
}

/* Called after binding the address, so that no other job of this user writes the same file. */
static int publish_token(struct rt *rt, struct place *place) {
    RT_TRY(make_token(rt, place));
    const int error = secret_write(place->token_path, place->token);
    if (!error) return RT_OK;
    const int status = rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_TOKEN,
                                    "cannot write the job's token to '%s': %s; set XDG_RUNTIME_DIR, or " TOKEN_VARIABLE,
                                    rt_quote_text(place->token_path).text, strerror(error));
    place->token_path[0] = 0;
    return status;
}

/* Appends this machine's addresses, loopback last. */
static void add_addresses(char *card, size_t room, bool alone) {
    struct ifaddrs *all = NULL;
    char text[INET_ADDRSTRLEN];
    if (alone || getifaddrs(&all) != 0) all = NULL;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        const size_t used = strlen(card);
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
            i->ifa_flags & IFF_LOOPBACK)
            continue;
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)i->ifa_addr;
        if (inet_ntop(AF_INET, &four->sin_addr, text, sizeof text) &&
            used + sizeof text + 1 < room - sizeof " 127.0.0.1\n")
            snprintf(card + used, room - used, " %s", text);
    }
    if (all) freeifaddrs(all);
    snprintf(card + strlen(card), room - strlen(card), " 127.0.0.1\n");
}

static int broadcast_card(struct rt *rt, struct place *place) {
    char why[200];
    const int status = rt_mpi_broadcast(place->card, sizeof place->card, why, sizeof why);
    if (status == RT_ERROR_MISMATCH) return rt_fail_agreed(rt, why);
    return status ? rt_fail_code(rt, status, RT_CODE_PLACE, "MPI cannot broadcast the rendezvous: %s", why) : RT_OK;
}

static int publish_card(struct rt *rt, struct place *place) {
    if (place->kind == PLACE_MPI) return broadcast_card(rt, place);
    const int error = secret_write(place->path, place->card);
    if (!error) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_PLACE, "rank 0 cannot publish its address: cannot write '%s': %s",
                        rt_quote_text(place->path).text, strerror(error));
}

int place_listen(struct rt *rt, struct place *place, int *listener) {
    struct sockaddr_in bound;
    socklen_t length = sizeof bound;
    if (place->kind == PLACE_ADDRESS) {
        RT_TRY(listen_at(rt, place, place->host, place->port, listener));
        return place->given ? RT_OK : publish_token(rt, place);
    }
    const bool alone = rt->internal->local_world == rt->world;
    RT_TRY(make_token(rt, place));
    RT_TRY(listen_at(rt, place, alone ? "127.0.0.1" : "0.0.0.0", "0", listener));
    if (getsockname(*listener, (struct sockaddr *)&bound, &length) != 0) return fail_listen(rt, place, strerror(errno));
    snprintf(place->card, sizeof place->card, "%s %d", place->token, ntohs(bound.sin_port));
    add_addresses(place->card, sizeof place->card, alone);
    return publish_card(rt, place);
}

void place_leave(const struct place *place) {
    if (place->kind == PLACE_FILE) unlink(place->path);
    if (place->kind == PLACE_ADDRESS && !place->given && place->token_path[0]) unlink(place->token_path);
}

int place_ask(struct rt *rt, struct place *place) {
    return place->kind == PLACE_MPI ? broadcast_card(rt, place) : RT_OK;
}

/* One attempt to connect, limited to CALL_MS. */
static int connect_socket(const struct addrinfo *at) {
    struct pollfd wait = {.fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                          .events = POLLOUT};
    int error = 0;
    socklen_t length = sizeof error;
    if (wait.fd < 0) return -1;
    bool ok = connect(wait.fd, at->ai_addr, at->ai_addrlen) == 0 ||
              (errno == EINPROGRESS && poll(&wait, 1, CALL_MS) == 1 &&
               getsockopt(wait.fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
    if (ok) return wait.fd;
    close(wait.fd);
    return -1;
}

static int call_address(const char *host, const char *port) {
    int error, fd = -1;
    struct addrinfo *found = resolve(host, port, &error);
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) fd = connect_socket(at);
    if (found) freeaddrinfo(found);
    return fd;
}

/* Reads a secret file; records in place->trouble why an existing one cannot be used. */
static bool read_secret(struct place *place, const char *path, char *text, size_t room) {
    char why[160];
    if (secret_read(path, text, room, why, sizeof why)) return place->trouble[0] = 0, true;
    if (why[0]) snprintf(place->trouble, sizeof place->trouble, "'%s' is not used: %s", rt_quote_text(path).text, why);
    return false;
}

/* Connects only if the token file exists: a listener without one belongs to another job, or has not written it yet. */
static int call_with_token(struct place *place) {
    int error, fd = -1;
    struct addrinfo *found = resolve(place->host, place->port, &error);
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        set_token_path(place, at);
        if (read_secret(place, place->token_path, place->token, sizeof place->token)) fd = connect_socket(at);
    }
    if (found) freeaddrinfo(found);
    return fd;
}

static int call_card(struct place *place) {
    char line[sizeof place->card], *rest = NULL;
    int fd = -1;
    snprintf(line, sizeof line, "%s", place->card);
    const char *token = strtok_r(line, " \n", &rest), *port = token ? strtok_r(NULL, " \n", &rest) : NULL;
    if (!port || strlen(token) < TOKEN_LEAST || strlen(token) >= sizeof place->token) return -1;
    snprintf(place->token, sizeof place->token, "%s", token);
    for (const char *host; fd < 0 && (host = strtok_r(NULL, " \n", &rest));) fd = call_address(host, port);
    return fd;
}

const char *place_absence(struct place *place) {
    const char *why = "no process listens there";
    if (place->trouble[0]) return place->trouble;
    if (place->kind != PLACE_ADDRESS) return why;
    int error;
    struct addrinfo *found = resolve(place->host, place->port, &error);
    if (!found) return gai_strerror(error);
    for (const struct addrinfo *at = found; at; at = at->ai_next) {
        const int fd = connect_socket(at);
        if (fd >= 0) why = "another program listens there";
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(found);
    return why;
}

int place_call(struct place *place) {
    if (place->kind == PLACE_ADDRESS)
        return place->given ? call_address(place->host, place->port) : call_with_token(place);
    if (place->kind == PLACE_FILE && !read_secret(place, place->path, place->card, sizeof place->card)) return -1;
    return call_card(place);
}
