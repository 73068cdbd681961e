/* The parts of `rankc doctor`: what the machine has, and a program that is compiled and run. */
#ifndef FRONTEND_CLI_DOCTOR_H
#define FRONTEND_CLI_DOCTOR_H

#include "frontend/cli/cli.h"

enum verdict {
    FOUND,
    LIMITED, /* works, less well than it might */
    ABSENT,  /* not needed */
    FAILED   /* compiled programs cannot run here */
};

struct finding {
    enum verdict verdict;
    const char *what, *found; /* found: NULL where there is nothing */
    const char *hint;         /* NULL: nothing to do */
};

/* The path of a program, as execvp would find it; NULL. */
const char *doctor_find_program(const char *name, struct arena *arena);

/* doctor_machine.c: from sched_getaffinity, CPUID, /proc and the control groups of this process. */
struct finding doctor_processor(struct arena *arena);
struct finding doctor_cores(struct arena *arena);
struct finding doctor_memory(struct arena *arena);

/* doctor_probe.c: compiles a product for two ranks, builds it, runs it, and looks at the result. Its diagnostics are in
 * cli->diags. */
struct finding doctor_probe(struct cli *cli);

#endif
