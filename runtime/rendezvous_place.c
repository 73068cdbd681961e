/* Where ranks meet: an address, a file that says one, or an MPI that does. A file and MPI carry a card, one line of text: the
 * job's token, the port, and the addresses of the first rank's machine, of which the others try one after the other. What
 * a file of an earlier job says leads nowhere, or to somebody who does not know the token: they look again. */
#define _GNU_SOURCE 1

#include "rendezvous_private.h"

#include "base/file.h"

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
#include <unistd.h>

#define CALL_MS 2000 /* one try to connect */

/* Finding the place */

static int refuse(struct rt *rt, const char *format, const char *text) {
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_PLACE, format, text);
}

/* A port as text, or false. */
static bool set_port(struct place *place, const char *text, int offset) {
    char *end;
    const long port = strtol(text, &end, 10);
    if (end == text || *end || port < 1 || port + offset > 65535) return false;
    snprintf(place->port, sizeof place->port, "%ld", port + offset);
    return true;
}

static int set_address(struct rt *rt, struct place *place, const char *host, size_t length, const char *port, int offset) {
    if (length == 0 || length >= sizeof place->host || !set_port(place, port, offset))
        return refuse(rt, "ranks cannot meet at '%s': a HOST:PORT, file:PATH or mpi is wanted", host);
    place->kind = PLACE_ADDRESS;
    memcpy(place->host, host, length);
    snprintf(place->label, sizeof place->label, "%s:%s", place->host, place->port);
    return RT_OK;
}

/* Under torchrun its own store may listen at the port: then ranks meet at the next one. */
static int store_offset(void) {
    const char *used = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return used && strcmp(used, "True") == 0;
}

static int place_of_environment(struct rt *rt, struct place *place) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    if (host && port) return set_address(rt, place, host, strlen(host), port, store_offset());
    place->kind = PLACE_MPI;
    snprintf(place->label, sizeof place->label, "a place that MPI tells");
    if (rt_mpi_launched()) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_WORLD,
                        "rank %d of %d does not know where the others are: start them with `rankc run`, or give "
                        "MASTER_ADDR and MASTER_PORT, or --rendezvous", rt->rank, rt->world);
}

int place_find(struct rt *rt, const char *text, struct place *place) {
    *place = (struct place){.kind = PLACE_MPI};
    if (!text) return place_of_environment(rt, place);
    snprintf(place->label, sizeof place->label, "%s", text);
    if (strcmp(text, "mpi") == 0) return RT_OK;
    if (strncmp(text, "file:", 5) == 0 && text[5]) {
        place->kind = PLACE_FILE;
        place->path = text + 5;
        return RT_OK;
    }
    const char *colon = strrchr(text, ':');
    return set_address(rt, place, text, colon ? (size_t)(colon - text) : 0, colon ? colon + 1 : "", 0);
}

/* The first rank */

static int fail_listen(struct rt *rt, const struct place *place, const char *why) {
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_PLACE, "rank 0 cannot listen at %s: %s", place->label, why);
}

/* A socket at that address, or at any of its machine unless it is the machine's own for itself. */
static int bind_socket(const struct addrinfo *at) {
    struct sockaddr_storage address = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)&address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&address;
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    if (fd < 0) return -1;
    memcpy(&address, at->ai_addr, at->ai_addrlen);
    if (at->ai_family == AF_INET && ntohl(four->sin_addr.s_addr) >> 24 != 127) four->sin_addr.s_addr = htonl(INADDR_ANY);
    if (at->ai_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)) six->sin6_addr = in6addr_any;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)&address, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* host NULL: any address of this machine; port "0": any port. */
static int listen_at(struct rt *rt, const struct place *place, const char *host, const char *port, int *listener) {
    const struct addrinfo wanted = {.ai_family = host ? AF_UNSPEC : AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found;
    const int error = getaddrinfo(host, port, &wanted, &found);
    if (error) return fail_listen(rt, place, gai_strerror(error));
    *listener = bind_socket(found);
    freeaddrinfo(found);
    return *listener >= 0 ? RT_OK : fail_listen(rt, place, strerror(errno));
}

static int make_token(struct rt *rt, struct place *place) {
    unsigned char bytes[(TOKEN_BYTES - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return fail_listen(rt, place, strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(place->token + 2 * i, 3, "%02x", bytes[i]);
    return RT_OK;
}

/* This machine's addresses, those that others reach it by first. */
static void add_addresses(char *card, size_t room) {
    struct ifaddrs *all = NULL;
    char text[INET_ADDRSTRLEN];
    if (getifaddrs(&all) != 0) all = NULL;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        const size_t used = strlen(card);
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK)
            continue;
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)i->ifa_addr;
        if (inet_ntop(AF_INET, &four->sin_addr, text, sizeof text) && used + sizeof text + 1 < room - sizeof " 127.0.0.1\n")
            snprintf(card + used, room - used, " %s", text);
    }
    if (all) freeifaddrs(all);
    snprintf(card + strlen(card), room - strlen(card), " 127.0.0.1\n");
}

static int write_card(struct rt *rt, const struct place *place) {
    const struct rt_piece piece = {place->card, strlen(place->card)};
    struct rt_reason why;
    if (rt_file_write(place->path, &piece, 1, &why)) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_PLACE, "rank 0 cannot say where it listens: %s", why.text);
}

static int broadcast_card(struct rt *rt, struct place *place) {
    char why[200];
    const int status = rt_mpi_broadcast(place->card, sizeof place->card, why, sizeof why);
    return status ? rt_fail_code(rt, status, RT_CODE_PLACE, "MPI cannot tell ranks where they meet: %s", why) : RT_OK;
}

static int publish(struct rt *rt, struct place *place) {
    return place->kind == PLACE_MPI ? broadcast_card(rt, place) : write_card(rt, place);
}

int place_listen(struct rt *rt, struct place *place, int *listener) {
    struct sockaddr_in bound;
    socklen_t length = sizeof bound;
    if (place->kind == PLACE_ADDRESS) return listen_at(rt, place, place->host, place->port, listener);
    RT_TRY(make_token(rt, place));
    RT_TRY(listen_at(rt, place, NULL, "0", listener));
    if (getsockname(*listener, (struct sockaddr *)&bound, &length) != 0) return fail_listen(rt, place, strerror(errno));
    snprintf(place->card, sizeof place->card, "%s %d", place->token, ntohs(bound.sin_port));
    add_addresses(place->card, sizeof place->card);
    return publish(rt, place);
}

void place_leave(const struct place *place) {
    if (place->kind == PLACE_FILE) unlink(place->path);
}

/* The others */

int place_ask(struct rt *rt, struct place *place) {
    return place->kind == PLACE_MPI ? broadcast_card(rt, place) : RT_OK;
}

/* Ends within CALL_MS. */
static int connect_socket(const struct addrinfo *at) {
    struct pollfd wait = {.fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), .events = POLLOUT};
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
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int fd = -1;
    if (getaddrinfo(host, port, &wanted, &found)) return -1;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) fd = connect_socket(at);
    freeaddrinfo(found);
    return fd;
}

static bool read_card(struct place *place) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!rt_file_read(place->path, sizeof place->card - 1, &bytes, &count, &why)) return false;
    memcpy(place->card, bytes, count + 1);
    free(bytes);
    return true;
}

static int call_card(struct place *place) {
    char line[sizeof place->card], *rest = NULL;
    int fd = -1;
    snprintf(line, sizeof line, "%s", place->card);
    const char *token = strtok_r(line, " \n", &rest), *port = token ? strtok_r(NULL, " \n", &rest) : NULL;
    if (!port || strlen(token) != TOKEN_BYTES - 1) return -1;
    memcpy(place->token, token, TOKEN_BYTES);
    for (const char *host; fd < 0 && (host = strtok_r(NULL, " \n", &rest));) fd = call_address(host, port);
    return fd;
}

int place_call(struct place *place) {
    if (place->kind == PLACE_ADDRESS) return call_address(place->host, place->port);
    if (place->kind == PLACE_FILE && !read_card(place)) return -1;
    return call_card(place);
}
