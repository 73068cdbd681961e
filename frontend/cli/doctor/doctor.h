/* The checks of `rankc doctor`: hardware and software of the machine, and a small program that is compiled and run. */
#ifndef FRONTEND_CLI_DOCTOR_H
#define FRONTEND_CLI_DOCTOR_H

#include "frontend/cli/cli.h"

enum verdict {
    FOUND,
    LIMITED, /* works, but slower or with limits */
    ABSENT,  /* missing, but optional */
    FAILED   /* compiled programs cannot run here */
};

struct finding {
    enum verdict verdict;
    const char *what, *found; /* what was looked for; what was found, NULL: nothing */
    const char *hint;         /* how to improve it; NULL: none */
};

/* The path of a program, as execvp would find it; NULL: it is not in PATH. */
const char *doctor_find_program(const char *name, struct arena *arena);

#endif
