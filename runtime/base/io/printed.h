/* Whether what a process printed on stdout has come to its reader. */
#ifndef RT_BASE_PRINTED_H
#define RT_BASE_PRINTED_H

#include <stdbool.h>

/* Flushes stdout. True if all that was printed is written, or stdout is a pipe whose reader has left: it has read
 * enough, as head does. False: it could not be written, with errno of the last attempt, such as ENOSPC. SIGPIPE must be
 * ignored or handled: else it ends the process. */
bool rt_printed(void);

#endif
