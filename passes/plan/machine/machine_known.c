/* Machines that are known by name, and machine_read. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "ir/base/embedded.h"
#include "ir/base/str.h"
#include "passes/plan/machine/machine_file.h"

/* A row of machines.def. */
struct known_machine {
    const char *name;
    double multiprocessors, memory, bandwidth, f32, half, fp8, half_peak, fp8_peak;
    double node_devices, node_bandwidth, node_latency, bandwidth_between, latency_between;
};
static const struct known_machine known_machines[] = {
#define MACHINE(...) {__VA_ARGS__},
#include "passes/plan/machine/machines.def"
};
enum { MACHINES = sizeof known_machines / sizeof *known_machines };

/* The part of a link's bandwidth that is reached. */
static const double reached[] = {
#define LINK(level, part) [level] = part,
#include "passes/plan/machine/machines.def"
};

static struct machine gpu_of(const struct known_machine *row) {
    const struct machine_link inside = {row->node_bandwidth * 1e9 * reached[0], row->node_latency * 1e-6},
                              between = {row->bandwidth_between * 1e9 * reached[1], row->latency_between * 1e-6};
    const double f32 = row->f32 * 1e12;
    struct machine machine = machine_gpu;
    machine.name = row->name;
    machine.memory = row->memory * 1024 * 1024 * 1024;
    machine.bandwidth = row->bandwidth * 1e9;
    memcpy(machine.rate, (double[]){f32, f32, row->half * 1e12, row->fp8 * 1e12}, sizeof machine.rate);
    memcpy(machine.peak, (double[]){f32, f32, row->half_peak * 1e12, row->fp8_peak * 1e12}, sizeof machine.peak);
    machine.multiprocessors = row->multiprocessors;
    machine.nlevels = 2;
    machine.level[0] = (struct machine_level){row->node_devices, inside};
    machine.level[1] = (struct machine_level){INFINITY, between};
    return machine;
}

/* A row of machine_sweeps.def. */
static const struct sweep {
    const char *machine;
    int level;
    enum collective kind;
    double latency, points[MACHINE_POINTS][2];
} sweeps[] = {
#define SWEEP(machine, level, kind, latency, ...) {machine, level, COLLECTIVE_##kind, latency, {__VA_ARGS__}},
#include "passes/plan/machine/machine_sweeps.def"
#undef SWEEP
};

/* Adds what was measured of the machine's collectives. */
static void add_sweeps(struct machine *machine) {
    for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps; i++) {
        const struct sweep *sweep = &sweeps[i];
        if (strcmp(sweep->machine, machine->name) != 0) continue;
        struct machine_link *link = &machine->level[sweep->level].own[sweep->kind];
        *link = (struct machine_link){.latency = sweep->latency * 1e-6};
        for (int n = 0; n < MACHINE_POINTS && sweep->points[n][0] > 0; n++, link->by_size.n++) {
            link->by_size.bytes[n] = sweep->points[n][0] * 0x1p30;
            link->bandwidth = link->by_size.bandwidth[n] = sweep->points[n][1] * 1e9;
        }
    }
}

/* True if the words of the GPU's name contain the model's, which is the machine's name up to '-'. */
static bool is_model(const char *gpu, const char *machine) {
    const size_t length = strcspn(machine, "-");
    for (const char *word = gpu; *word; word += strcspn(word, " -"), word += strspn(word, " -"))
        if (strcspn(word, " -") == length && strncasecmp(word, machine, length) == 0) return true;
    return false;
}

const char *machine_of_gpu(const char *gpu, double memory) {
    const char *nearest = NULL;
    double least = INFINITY;
    for (int i = 0; i < MACHINES; i++) {
        const double apart = fabs(memory - known_machines[i].memory * 0x1p30);
        if (!is_model(gpu, known_machines[i].name) || apart >= least) continue;
        least = apart;
        nearest = known_machines[i].name;
    }
    return nearest;
}

/* Machine files that rankc profile has written: passes/plan/machines/NAME.json. */
extern const struct embedded embedded_machines[];

static bool is_file_of(const char *path, const char *name) {
    const size_t length = strlen(name);
    return strncmp(path, name, length) == 0 && strcmp(path + length, ".json") == 0;
}

static int unknown_name(struct diags *diags, const char *option, const char *name) {
    VEC(const char *) names = {0};
    for (int i = 0; i < MACHINES; i++) VEC_PUSH(diags->arena, &names, known_machines[i].name);
    for (const struct embedded *file = embedded_machines; file->path; file++)
        VEC_PUSH(diags->arena, &names, arena_printf(diags->arena, "%.*s", (int)strcspn(file->path, "."), file->path));
    VEC_PUSH(diags->arena, &names, NULL);
    const char *near = str_nearest(name, names.at);
    diag_error(diags, 396, EXIT_USAGE, option, "%s is neither a known machine nor a .json file",
               diag_quote(diags, name));
    if (near) diag_help(diags, "did you mean '%s'?", near);
    for (int i = 0; names.at[i]; i++) diag_note(diags, "known: %s", names.at[i]);
    return -1;
}

int machine_read(struct arena *arena, struct diags *diags, const char *name_or_file, struct machine *machine) {
    return machine_read_of(arena, diags, "--machine", name_or_file, machine);
}

int machine_read_of(struct arena *arena, struct diags *diags, const char *option, const char *name_or_file,
                    struct machine *machine) {
    const size_t length = strlen(name_or_file);
    if (length > 5 && strcmp(name_or_file + length - 5, ".json") == 0)
        return machine_read_file(arena, diags, name_or_file, machine);
    for (int i = 0; i < MACHINES; i++) {
        if (strcmp(known_machines[i].name, name_or_file) != 0) continue;
        *machine = gpu_of(&known_machines[i]);
        add_sweeps(machine);
        return 0;
    }
    for (const struct embedded *file = embedded_machines; file->path; file++)
        if (is_file_of(file->path, name_or_file))
            return machine_read_text(arena, diags, file->path, file->text, machine);
    return unknown_name(diags, option, name_or_file);
}
