#include "base/io/printed.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

/* Asked of the pipe, since errno of an earlier printf is lost. */
static bool reader_left(void) {
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

bool rt_printed(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    const int why = errno;
    const bool enough = reader_left();
    errno = why;
    return enough;
}
