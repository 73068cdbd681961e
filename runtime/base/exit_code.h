/* Exit codes of rankc and of the programs that it generates. */
#ifndef RT_BASE_EXIT_CODE_H
#define RT_BASE_EXIT_CODE_H

enum exit_code {
    EXIT_OK = 0,
    EXIT_INTERNAL = 1,    /* a bug in rankc */
    EXIT_USAGE = 2,       /* options, an unbound dimension */
    EXIT_MALFORMED = 3,   /* input that is not what it should be: model, plan, data, shapes */
    EXIT_UNSUPPORTED = 4, /* valid, but not implemented */
    EXIT_LIMIT = 5,       /* does not fit: memory, infeasible split */
    EXIT_SYSTEM = 6,      /* file or operating system */
    EXIT_BUSY = 7,        /* another process has the output */
    EXIT_MISMATCH = 8,    /* belongs to something else; verification failed */
    EXIT_RANK = 9,        /* a rank failed */
    EXIT_INTERRUPTED = 130
};

#endif
