#include "passes/plan/machine/machine.h"

#include <math.h>
#include <stddef.h>

const struct machine machine_default = {.name = "default",
                                        .bandwidth = 1e10,
                                        .host_bandwidth = 1e10,
                                        .traffic = 1,
                                        .rate = {1e11, 1e11, 1e11, 1e11},
                                        .peak = {1e11, 1e11, 1e11, 1e11},
                                        .attention = 1,
                                        .slowdown = 1,
                                        .alone = 1,
                                        .writes = 1,
                                        .correction = 1,
                                        .elementwise = INFINITY,
                                        .nlevels = 1,
                                        .level = {{.devices = INFINITY, .link = {.bandwidth = 5e9, .latency = 1e-5}}}};

const struct machine machine_gpu = {
#define GPU(member, ...) .member = __VA_ARGS__,
#include "passes/plan/machine/machines.def"
    .alone = 1, .writes = 1, .correction = 1, .elementwise = INFINITY};

const struct machine *machine_or_default(const struct machine *machine) {
    return machine ? machine : &machine_default;
}

/* Columns of collectives.def. */
static const double passes[COLLECTIVES] = {
#define COLLECTIVE(id, name, passes, whole, divided) passes,
#include "ir/collectives.def"
#undef COLLECTIVE
};
static const double whole_passes[COLLECTIVES] = {
#define COLLECTIVE(id, name, passes, whole, divided) whole,
#include "ir/collectives.def"
#undef COLLECTIVE
};
static const bool divided[COLLECTIVES] = {
#define COLLECTIVE(id, name, passes, whole, divided) divided,
#include "ir/collectives.def"
#undef COLLECTIVE
};

enum machine_type machine_type_of(const struct machine *machine, enum rt_dtype dtype) {
    const size_t bytes = rt_dtype_bytes(dtype);
    const enum machine_type type = bytes == 8   ? MACHINE_F64
                                   : bytes == 4 ? MACHINE_F32
                                   : bytes == 2 ? MACHINE_HALF
                                                : MACHINE_FP8;
    return machine->rate[type] > 0 ? type : MACHINE_F32;
}

double machine_rate(const struct machine *machine, enum rt_dtype dtype) {
    return machine->rate[machine_type_of(machine, dtype)];
}

/* The part of the multiprocessors' time that the tiles of a result of (m, n) fill: the last wave of tiles leaves
 * multiprocessors idle. The library takes the best of a few sizes of tiles; small tiles read their operands more
 * often. */
static double filled_by_tiles(const struct machine *machine, double m, double n) {
    static const struct {
        double m, n, rate;
    } tiles[] = {
#define TILE(...) {__VA_ARGS__},
#include "passes/plan/machine/machines.def"
    };
    const double places = machine->multiprocessors;
    double most = 0;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles && places > 0; i++) {
        const double all = ceil(m / tiles[i].m) * ceil(n / tiles[i].n);
        const double used = ceil(all / places) * places;
        most = fmax(most, m * n / (used * tiles[i].m * tiles[i].n) * tiles[i].rate);
    }
    return places > 0 ? most : 1;
}

double machine_reached(const struct machine *machine, double m, double n, double k) {
    const double *half = machine->half_extents;
    const double tiled = fmin(1, m / 256) * fmin(1, n / 128); /* less than a tile is shared out along k instead */
    const double filled = pow(filled_by_tiles(machine, m, n), tiled);
    return filled * m / (m + half[0]) * n / (n + half[1]) * k / (k + half[2]);
}

double machine_attention(const struct machine *machine, double head, bool library) {
    const double own = library || machine->own_attention == 0 ? 1 : machine->own_attention;
    return own * machine->attention * (128 + machine->half_head) / 128 * head / (head + machine->half_head);
}

/* The point of the curve at that many bytes; `otherwise` if it has no points. */
static double curve_at(const struct machine_curve *curve, double bytes, double otherwise) {
    int i = 0;
    if (!curve->n) return otherwise;
    while (i < curve->n && curve->bytes[i] < bytes) i++;
    if (i == 0) return curve->bandwidth[0];
    if (i == curve->n) return curve->bandwidth[i - 1];
    const double part = log(bytes / curve->bytes[i - 1]) / log(curve->bytes[i] / curve->bytes[i - 1]);
    return 1 / ((1 - part) / curve->bandwidth[i - 1] + part / curve->bandwidth[i]);
}

static const struct machine_curve *bandwidths_of(const struct machine *machine, bool alone) {
    return alone && machine->by_size_alone.n ? &machine->by_size_alone : &machine->by_size;
}

/* The bandwidth of a kernel that touches that many bytes; alone: while no other rank computes. */
static double bandwidth_of(const struct machine *machine, double bytes, bool alone) {
    return curve_at(bandwidths_of(machine, alone), bytes, machine->bandwidth * machine->traffic);
}

/* The highest bandwidth while all ranks compute. */
static double highest_bandwidth(const struct machine *machine) {
    const struct machine_curve *curve = bandwidths_of(machine, false);
    double most = curve->n ? 0 : machine->bandwidth * machine->traffic;
    for (int i = 0; i < curve->n; i++) most = fmax(most, curve->bandwidth[i]);
    return most;
}

double machine_byte_seconds(const struct machine *machine, double bytes, bool alone, double distant) {
    const double seconds = 1 / bandwidth_of(machine, bytes, alone);
    if (!(distant > 1)) return seconds;
    const double longer = 1 / bandwidth_of(machine, bytes, false) - 1 / highest_bandwidth(machine);
    return seconds + (distant - 1) * fmax(longer, 0);
}

static struct machine_link link_of(const struct machine_level *level, enum collective kind) {
    return level->own[kind].bandwidth > 0 ? level->own[kind] : level->link;
}

static void multiply(struct machine_link *link, double factor) {
    link->bandwidth *= factor;
    for (int i = 0; i < link->by_size.n; i++) link->by_size.bandwidth[i] *= factor;
}

struct machine_link machine_link(const struct machine_group *group, enum collective kind) {
    const struct machine_level *level = group->machine->level;
    int l = 0;
    while (l < group->machine->nlevels - 1 && group->ranks * group->stride > level[l].devices) l++;
    struct machine_link link = link_of(&level[l], kind);
    if (l > 0 && group->stride < level[l - 1].devices && divided[kind]) {
        /* each device of a domain has a link of its own to other domains, and a ring leaves the domain through one */
        const double members = level[l - 1].devices / group->stride;
        multiply(&link, fmin(members, fmax(1, link_of(&level[l - 1], kind).bandwidth / link.bandwidth)));
    }
    return link;
}

struct machine_group machine_pair(const struct machine *machine, int first, int second) {
    int l = 0;
    while (l < machine->nlevels - 1 &&
           floor(first / machine->level[l].devices) < floor(second / machine->level[l].devices))
        l++;
    return (struct machine_group){machine, 2, machine->level[l].devices / 2};
}

double machine_exchange(const struct machine_group *group, enum collective kind, double times, double bytes,
                        double parts) {
    const struct machine_link link = machine_link(group, kind);
    return parts * link.latency + times * bytes / curve_at(&link.by_size, bytes / parts, link.bandwidth);
}

double machine_collective(const struct machine_group *group, enum collective kind, double bytes, double parts) {
    const double times = passes[kind] * (group->ranks - 1) / group->ranks + whole_passes[kind];
    return machine_exchange(group, kind, times, bytes, parts);
}

double machine_hidden(const struct machine *machine, double computing, double collective) {
    return fmax(0, fmin(computing * machine->overlap, collective / machine->slowdown));
}
