/* The laws of `rankc plan --rows` with constants that can be changed while they run: rows_fit.py compiles this file as
 * a shared library. CONSTANTS, on the command line, is a list of CONSTANT(name) for the constants of rows_laws.c and
 * rows_memory.c; the tables of systems and devices are writable too. */
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/own.h"
#include "runtime/base/text/reason.h"

#define const /* constants become variables */
#include "frontend/cli/rows/rows_laws.h"
#include "passes/plan/machine/machine.h"

/* machine_read, once for each machine. */
static int read_once(struct arena *arena, struct diags *diags, char *name, struct machine *machine);
#define machine_read read_once
#include "frontend/cli/rows/rows.c"
#include "frontend/cli/rows/rows_laws.c"
#include "frontend/cli/rows/rows_memory.c"
#undef machine_read

static struct {
    char name[32];
    struct machine machine;
} known[64];
static int nknown;

int machine_read(struct arena *arena, struct diags *diags, char *name, struct machine *machine);

static int read_once(struct arena *arena, struct diags *diags, char *name, struct machine *machine) {
    for (int i = 0; i < nknown; i++)
        if (strcmp(known[i].name, name) == 0) return *machine = known[i].machine, 0;
    const int status = machine_read(arena, diags, name, machine);
    snprintf(known[nknown].name, sizeof known->name, "%s", name);
    known[nknown++].machine = *machine;
    return status;
}

static struct arena rows_arena;
static struct row rows[4096]; /* columns only */
static int nrows;
static jmp_buf failed;

/* Reads a table; its number of rows, or -1. */
int fit_load(char *path) {
    struct rt_reason why;
    struct fields names, fields;
    void *bytes;
    size_t count;
    int line = 1;
    arena_init(&rows_arena, (size_t)1 << 30, &failed);
    if (!own_file(&rows_arena, path, (size_t)1 << 26, &bytes, &count, &why)) return -1;
    char *at = arena_copy(&rows_arena, bytes, count);
    if (!rows_read_line(&rows_arena, &at, &line, &names)) return -1;
    while (*at && nrows < 4096 && rows_read_line(&rows_arena, &at, &line, &fields))
        if (fields.all.n > 1 && read_row(&rows_arena, &names, &fields, &rows[nrows++])) return -1;
    return nrows;
}

/* Predictions of all rows: TFLOP/s, GiB, the device's GiB, indices in the tables of systems and devices. NaN and -1:
 * the row is left empty. */
void fit_predict(double *tflops, double *bytes, double *memory, int *system, int *device) {
    struct arena arena;
    arena_init(&arena, (size_t)1 << 30, &failed);
    for (int i = 0; i < nrows; i++) {
        struct row row = rows[i];
        tflops[i] = bytes[i] = memory[i] = NAN;
        system[i] = device[i] = -1;
        struct prediction prediction;
        if (predict_complete(&arena, &row, &prediction)) continue;
        tflops[i] = prediction.tflops;
        bytes[i] = prediction.bytes / 0x1p30;
        memory[i] = row.machine.memory / 0x1p30;
        system[i] = (int)(row.system - systems);
        device[i] = find_device(row.gpu);
    }
    arena_free(&arena);
}

/* The address of a constant; NULL: there is none. */
double *fit_constant(char *name) {
#define CONSTANT(constant)                                                                                             \
    if (strcmp(name, #constant) == 0) return &constant;
    CONSTANTS
#undef CONSTANT
    return NULL;
}

/* The address of a column of row i of a table. */
double *fit_system(int i, char *field) {
#define FIELD(field_)                                                                                                  \
    if (strcmp(field, #field_) == 0) return &systems[i].field_
    FIELD(time);
    FIELD(network);
    FIELD(logits);
    FIELD(memory);
    FIELD(reserve);
    FIELD(experts);
    FIELD(host);
    FIELD(gaps);
#undef FIELD
    return NULL;
}

double *fit_device(int i, char *field) {
#define FIELD(field_)                                                                                                  \
    if (strcmp(field, #field_) == 0) return &devices[i].field_
    FIELD(rate);
    FIELD(host);
    FIELD(attention);
#undef FIELD
    return NULL;
}

int fit_systems(void) {
    return sizeof systems / sizeof *systems;
}
int fit_devices(void) {
    return sizeof devices / sizeof *devices;
}
char *fit_word(int i) {
    return systems[i].word;
}
char *fit_gpu(int i) {
    return devices[i].gpu;
}
/* What system i is called from now on: with a word that no source has, it is unknown. */
void fit_call(int i, char *word) {
    systems[i].word = word;
}
