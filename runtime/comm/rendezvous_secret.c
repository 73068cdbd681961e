/* Secret files: created with mode 0600, renamed into place, and read only if no other user could have written them,
 * because directories like /tmp are shared. */
#define _GNU_SOURCE 1

#include "comm/rendezvous_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS 32

static int write_text(int fd, const char *text) {
    const size_t bytes = strlen(text);
    if (fchmod(fd, 0600) != 0) return errno; /* the umask may have removed even these bits */
    const ssize_t written = write(fd, text, bytes);
    return written == (ssize_t)bytes ? 0 : written < 0 ? errno : ENOSPC;
}

int secret_write(const char *path, const char *text) {
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

bool secret_read(const char *path, char *text, size_t room, char *why, size_t why_room) {
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

int secret_make(char text[TOKEN_ROOM]) {
    unsigned char bytes[DIGITS / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return errno;
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}
