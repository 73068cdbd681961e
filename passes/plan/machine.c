#include "passes/plan/machine.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "ir/base/own.h"
#include "ir/base/str.h"

const struct machine machine_default = {.name = "default",
                                        .bandwidth = 1e10,
                                        .traffic = 1,
                                        .rate = {1e11, 1e11, 1e11, 1e11},
                                        .peak = {1e11, 1e11, 1e11, 1e11},
                                        .attention = 1,
                                        .alone = 1,
                                        .writes = 1,
                                        .correction = 1,
                                        .elementwise = INFINITY,
                                        .nlevels = 1,
                                        .level = {{.devices = INFINITY, .bandwidth = 5e9, .latency = 1e-5}}};

/* Known machines --------------------------------------------------------------------------------------------------- */

/* A row of machines.def. */
struct known_machine {
    const char *name;
    double memory, bandwidth, f32, half, fp8, half_peak, fp8_peak;
    double node_devices, node_bandwidth, node_latency, bandwidth_between, latency_between;
};
static const struct known_machine known_machines[] = {
#define MACHINE(...) {__VA_ARGS__},
#include "passes/plan/machines.def"
#undef MACHINE
};
enum { MACHINES = sizeof known_machines / sizeof *known_machines };

/* What GPUs have in common. The extents, and the parts of memory bandwidth and of links that are reached, were fitted
 * to published training runs of several systems. */
static struct machine gpu_of(const struct known_machine *row) {
    return (struct machine){.name = row->name,
                            .memory = row->memory * 1024 * 1024 * 1024,
                            .bandwidth = row->bandwidth * 1e9,
                            .traffic = 0.85,
                            .launch = 4e-6,
                            .rate = {row->f32 * 1e12, row->f32 * 1e12, row->half * 1e12, row->fp8 * 1e12},
                            .peak = {row->f32 * 1e12, row->f32 * 1e12, row->half_peak * 1e12, row->fp8_peak * 1e12},
                            .half_extents = {500, 90, 170},
                            .attention = 0.55,
                            .overlap = 0.75,
                            .alone = 1,
                            .writes = 1,
                            .correction = 1,
                            .elementwise = INFINITY,
                            .nlevels = 2,
                            .level = {{.devices = row->node_devices,
                                       .bandwidth = row->node_bandwidth * 1e9 * 0.61,
                                       .latency = row->node_latency * 1e-6},
                                      {.devices = INFINITY,
                                       .bandwidth = row->bandwidth_between * 1e9 * 0.76,
                                       .latency = row->latency_between * 1e-6}}};
}

static int unknown_name(struct diags *diags, const char *option, const char *name) {
    const char *names[MACHINES + 1] = {NULL};
    for (int i = 0; i < MACHINES; i++) names[i] = known_machines[i].name;
    const char *near = str_nearest(name, names);
    diag_error(diags, 396, EXIT_USAGE, option, "%s is neither a known machine nor a .json file",
               diag_quote(diags, name));
    if (near) diag_help(diags, "did you mean '%s'?", near);
    for (int i = 0; i < MACHINES; i++) diag_note(diags, "known: %s", names[i]);
    return -1;
}

/* Machine files ---------------------------------------------------------------------------------------------------- */

static const char *const type_names[MACHINE_TYPES + 1] = {"f64", "f32", "half", "fp8"};

/* The numbers of the top level, and the range of each. */
static const struct number_key {
    const char *key;
    size_t field;
    double least, most;
    double otherwise; /* the number if the key is left out; 0: it must be there */
} number_keys[] = {{"memory", offsetof(struct machine, memory), 0, 1e18, 0},
                   {"bandwidth", offsetof(struct machine, bandwidth), 1, 1e18, 0},
                   {"traffic", offsetof(struct machine, traffic), 1e-6, 1, 0},
                   {"launch", offsetof(struct machine, launch), 0, 1, 0},
                   {"attention", offsetof(struct machine, attention), 1e-6, 1, 0},
                   {"overlap", offsetof(struct machine, overlap), 0, 1, 0},
                   {"alone", offsetof(struct machine, alone), 0.1, 100, 1},
                   {"writes", offsetof(struct machine, writes), 1, 2, 1},
                   {"correction", offsetof(struct machine, correction), 1e-2, 100, 1},
                   {"elementwise", offsetof(struct machine, elementwise), 1, 1e20, INFINITY}};
enum { NUMBER_KEYS = sizeof number_keys / sizeof *number_keys };

/* A file that is read. */
struct reading {
    struct diags *diags;
    const char *path;
    struct machine *machine;
};

static int fail_at(const struct reading *r, const struct rt_json *value, const char *what) {
    return diag_error(r->diags, 396, EXIT_MALFORMED, diag_quote(r->diags, r->path), "line %d: %s",
                      value ? value->line : 1, what);
}

static const char *say(const struct reading *r, const char *key, const char *what) {
    return arena_printf(r->diags->arena, "%s %s", key, what);
}

/* The number of that member, in [least, most]; `parent` is where it should be. */
static int read_number(const struct reading *r, const struct rt_json *parent, const char *key, double least,
                       double most, double *number) {
    const struct rt_json *value = rt_json_member(parent, key);
    if (!value) return fail_at(r, parent, say(r, key, "is missing"));
    if (!rt_json_real(value, number)) return fail_at(r, value, say(r, key, "is not a number"));
    if (!(*number >= least && *number <= most)) {
        char range[64];
        snprintf(range, sizeof range, "is not in the range %g to %g", least, most);
        return fail_at(r, value, say(r, key, range));
    }
    return 0;
}

/* True if the name is one of the NULL-terminated ones. */
static bool is_among(const char *name, const char *const *names) {
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* Members of the object that are none of these. */
static int check_keys(const struct reading *r, const struct rt_json *object, const char *const *names,
                      const char *what) {
    for (const struct rt_json *member = object->first; member; member = member->next)
        if (!is_among(member->key, names)) return fail_at(r, member, say(r, diag_quote(r->diags, member->key), what));
    return 0;
}

/* A number for each type of numbers; 0: there are no products of them, but of f32 there are. */
static int read_types(const struct reading *r, const struct rt_json *root, const char *key,
                      double numbers[MACHINE_TYPES]) {
    const struct rt_json *object = rt_json_member(root, key);
    if (!object || object->kind != RT_JSON_OBJECT) return fail_at(r, object, say(r, key, "is missing, or no object"));
    if (check_keys(r, object, type_names, "is no type of numbers") < 0) return -1;
    for (int t = 0; t < MACHINE_TYPES; t++) {
        if (read_number(r, object, type_names[t], 0, 1e20, &numbers[t]) < 0) return -1;
        if (numbers[t] < 1 && (t == MACHINE_F32 || numbers[t] > 0))
            return fail_at(r, rt_json_member(object, type_names[t]),
                           say(r, type_names[t], t == MACHINE_F32 ? "is less than 1" : "is neither 0 nor at least 1"));
    }
    return 0;
}

/* A number that may be left out. */
static int read_number_or(const struct reading *r, const struct rt_json *root, const struct number_key *key) {
    double *number = (double *)((char *)r->machine + key->field);
    if (key->otherwise > 0 && !rt_json_member(root, key->key)) return *number = key->otherwise, 0;
    return read_number(r, root, key->key, key->least, key->most, number);
}

/* An array of pairs of numbers above 0, by ascending first numbers; none if the key is left out. */
static int read_curve(const struct reading *r, const struct rt_json *parent, const char *key,
                      struct machine_curve *curve) {
    const struct rt_json *array = rt_json_member(parent, key);
    curve->n = 0;
    if (!array) return 0;
    if (array->kind != RT_JSON_ARRAY || array->count < 1 || array->count > MACHINE_POINTS)
        return fail_at(r, array, say(r, key, "is no array of one to twelve pairs"));
    for (const struct rt_json *pair = array->first; pair; pair = pair->next) {
        const int i = curve->n++;
        if (pair->kind != RT_JSON_ARRAY || pair->count != 2 || !rt_json_real(pair->first, &curve->bytes[i]) ||
            !rt_json_real(pair->first->next, &curve->bandwidth[i]) || !(curve->bytes[i] >= 1) ||
            !(curve->bytes[i] <= 1e18) || !(curve->bandwidth[i] >= 1) || !(curve->bandwidth[i] <= 1e18))
            return fail_at(r, pair, say(r, key, "has an element that is no pair of numbers from 1 to 1e18"));
        if (i > 0 && curve->bytes[i] <= curve->bytes[i - 1])
            return fail_at(r, pair, say(r, key, "is not in ascending order"));
    }
    return 0;
}

static const char *const kernel_names[MACHINE_KERNELS] = {
#define KERNEL(id, name) [MACHINE_##id] = name,
#include "passes/plan/machine_kernels.def"
#undef KERNEL
};

/* An array of a rate, and the extents of half of it. */
static int read_kernel(const struct reading *r, const struct rt_json *array, struct machine_kernel_rate *kernel) {
    double numbers[1 + MACHINE_EXTENTS] = {0};
    int n = 0;
    bool valid = array->kind == RT_JSON_ARRAY && array->count >= 2 && array->count <= 1 + MACHINE_EXTENTS;
    for (const struct rt_json *value = array->first; valid && value; value = value->next, n++)
        valid = rt_json_real(value, &numbers[n]) && numbers[n] >= (n ? 0 : 1) && numbers[n] <= (n ? 1e9 : 1e20);
    if (!valid) return fail_at(r, array, say(r, array->key, "is no array of a rate and one to three extents"));
    kernel->rate = numbers[0];
    for (int e = 0; e < MACHINE_EXTENTS; e++) kernel->half[e] = numbers[1 + e];
    return 0;
}

static int read_kernels(const struct reading *r, const struct rt_json *root) {
    const struct rt_json *object = rt_json_member(root, "kernels");
    if (!object) return 0;
    if (object->kind != RT_JSON_OBJECT) return fail_at(r, object, "kernels is no object");
    for (const struct rt_json *member = object->first; member; member = member->next) {
        int k = 0;
        while (k < MACHINE_KERNELS && strcmp(member->key, kernel_names[k]) != 0) k++;
        if (k == MACHINE_KERNELS)
            return fail_at(r, member, say(r, diag_quote(r->diags, member->key), "is no kind of kernel"));
        if (read_kernel(r, member, &r->machine->kernel[k]) < 0) return -1;
    }
    return 0;
}

static int read_extents(const struct reading *r, const struct rt_json *root) {
    const struct rt_json *array = rt_json_member(root, "half_extents");
    double *extent = r->machine->half_extents;
    if (!array || array->kind != RT_JSON_ARRAY || array->count != 3)
        return fail_at(r, array, "half_extents is missing, or no array of three numbers");
    for (const struct rt_json *value = array->first; value; value = value->next, extent++)
        if (!rt_json_real(value, extent) || *extent < 0 || *extent > 1e9)
            return fail_at(r, value, "an element of half_extents is not a number from 0 to 1e9");
    return 0;
}

/* The number of devices of a level, which the last one has not. */
static int read_devices(const struct reading *r, const struct rt_json *value, double *devices) {
    const struct rt_json *given = rt_json_member(value, "devices");
    *devices = INFINITY;
    if (!value->next) return given ? fail_at(r, given, "the last level connects all devices: it has no 'devices'") : 0;
    if (read_number(r, value, "devices", 1, 1e9, devices) < 0) return -1;
    return *devices == floor(*devices) ? 0 : fail_at(r, given, "devices is no whole number");
}

static int read_levels(const struct reading *r, const struct rt_json *root) {
    static const char *const keys[] = {"devices", "bandwidth", "latency", "by_size", NULL};
    const struct rt_json *array = rt_json_member(root, "levels");
    struct machine *machine = r->machine;
    if (!array || array->kind != RT_JSON_ARRAY || array->count < 1 || array->count > MACHINE_LEVELS)
        return fail_at(r, array, "levels is missing, or no array of one to four objects");
    for (const struct rt_json *value = array->first; value; value = value->next) {
        struct machine_level *level = &machine->level[machine->nlevels++];
        if (value->kind != RT_JSON_OBJECT) return fail_at(r, value, "an element of levels is no object");
        if (check_keys(r, value, keys, "is no property of a level") < 0 ||
            read_devices(r, value, &level->devices) < 0 ||
            read_number(r, value, "bandwidth", 1, 1e18, &level->bandwidth) < 0 ||
            read_number(r, value, "latency", 0, 1e3, &level->latency) < 0 ||
            read_curve(r, value, "by_size", &level->by_size) < 0)
            return -1;
        if (machine->nlevels > 1 && level->devices <= level[-1].devices)
            return fail_at(r, value, "a level has no more devices than the one before it");
    }
    return 0;
}

static int read_document(const struct reading *r, const struct rt_json *root) {
    static const char *const others[] = {"format", "name",    "rates",   "peaks",         "half_extents",
                                         "levels", "kernels", "by_size", "by_size_alone", NULL};
    int64_t format = 0;
    if (!root || root->kind != RT_JSON_OBJECT) return fail_at(r, root, "no object");
    for (const struct rt_json *member = root->first; member; member = member->next) {
        bool known = is_among(member->key, others);
        for (int i = 0; i < NUMBER_KEYS; i++) known |= strcmp(member->key, number_keys[i].key) == 0;
        if (!known) return fail_at(r, member, say(r, diag_quote(r->diags, member->key), "is no property of a machine"));
    }
    if (!rt_json_int(rt_json_member(root, "format"), &format) || format != 1)
        return fail_at(r, rt_json_member(root, "format"), "format is not 1");
    const struct rt_json *name = rt_json_member(root, "name");
    if (name && !rt_json_text(name)) return fail_at(r, name, "name is no text");
    for (int i = 0; i < NUMBER_KEYS; i++)
        if (read_number_or(r, root, &number_keys[i]) < 0) return -1;
    return read_types(r, root, "rates", r->machine->rate) < 0 || read_types(r, root, "peaks", r->machine->peak) < 0 ||
                   read_extents(r, root) < 0 || read_kernels(r, root) < 0 ||
                   read_curve(r, root, "by_size", &r->machine->by_size) < 0 ||
                   read_curve(r, root, "by_size_alone", &r->machine->by_size_alone) < 0
               ? -1
               : read_levels(r, root);
}

static int read_file(struct arena *arena, struct diags *diags, const char *path, struct machine *machine) {
    struct rt_reason why;
    const struct reading reading = {diags, path, machine};
    struct rt_json_document *document = own_json(arena, path, &why);
    if (!document) return diag_refusal(diags, 396, EXIT_MALFORMED, diag_quote(diags, path), &why);
    const char *name = rt_json_text(rt_json_member(rt_json_root(document), "name"));
    *machine = (struct machine){.name = name ? arena_printf(arena, "%s", name) : path};
    const int status = read_document(&reading, rt_json_root(document));
    arena_release(arena, document);
    return status;
}

int machine_read(struct arena *arena, struct diags *diags, const char *name_or_file, struct machine *machine) {
    return machine_read_of(arena, diags, "--machine", name_or_file, machine);
}

int machine_read_of(struct arena *arena, struct diags *diags, const char *option, const char *name_or_file,
                    struct machine *machine) {
    const size_t length = strlen(name_or_file);
    if (length > 5 && strcmp(name_or_file + length - 5, ".json") == 0)
        return read_file(arena, diags, name_or_file, machine);
    for (int i = 0; i < MACHINES; i++)
        if (strcmp(known_machines[i].name, name_or_file) == 0) return *machine = gpu_of(&known_machines[i]), 0;
    return unknown_name(diags, option, name_or_file);
}

void machine_put_types(struct rt_json_writer *writer, const char *key, const double numbers[MACHINE_TYPES]) {
    rt_json_key(writer, key);
    rt_json_open(writer, '{', RT_JSON_INLINE);
    for (int t = 0; t < MACHINE_TYPES; t++) rt_json_key(writer, type_names[t]), rt_json_put_real(writer, numbers[t]);
    rt_json_close(writer, '}');
}

static void put_pair(struct rt_json_writer *writer, double first, double second) {
    rt_json_open(writer, '[', RT_JSON_INLINE);
    rt_json_put_real(writer, first), rt_json_put_real(writer, second);
    rt_json_close(writer, ']');
}

static void put_curve(struct rt_json_writer *writer, const char *key, const struct machine_curve *curve) {
    if (!curve->n) return;
    rt_json_key(writer, key);
    rt_json_open(writer, '[', RT_JSON_INLINE);
    for (int i = 0; i < curve->n; i++) put_pair(writer, curve->bytes[i], curve->bandwidth[i]);
    rt_json_close(writer, ']');
}

static void put_kernels(struct rt_json_writer *writer, const struct machine *machine) {
    rt_json_key(writer, "kernels");
    rt_json_open(writer, '{', RT_JSON_LINES);
    for (int k = 0; k < MACHINE_KERNELS; k++) {
        const struct machine_kernel_rate *kernel = &machine->kernel[k];
        if (!(kernel->rate > 0)) continue;
        rt_json_key(writer, kernel_names[k]);
        rt_json_open(writer, '[', RT_JSON_INLINE);
        rt_json_put_real(writer, kernel->rate);
        for (int e = 0; e < MACHINE_EXTENTS; e++) rt_json_put_real(writer, kernel->half[e]);
        rt_json_close(writer, ']');
    }
    rt_json_close(writer, '}');
}

const char *machine_text(struct arena *arena, const struct machine *machine) {
    struct rt_json_writer *writer = own_json_writer(arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key(writer, "format"), rt_json_put_int(writer, 1);
    rt_json_key(writer, "name"), rt_json_put_text(writer, machine->name);
    for (int i = 0; i < NUMBER_KEYS; i++) {
        const double number = *(const double *)((const char *)machine + number_keys[i].field);
        if (isfinite(number)) rt_json_key(writer, number_keys[i].key), rt_json_put_real(writer, number);
    }
    machine_put_types(writer, "rates", machine->rate);
    machine_put_types(writer, "peaks", machine->peak);
    rt_json_key(writer, "half_extents");
    rt_json_open(writer, '[', RT_JSON_INLINE);
    for (int i = 0; i < 3; i++) rt_json_put_real(writer, machine->half_extents[i]);
    rt_json_close(writer, ']');
    put_curve(writer, "by_size", &machine->by_size);
    put_curve(writer, "by_size_alone", &machine->by_size_alone);
    put_kernels(writer, machine);
    rt_json_key(writer, "levels");
    rt_json_open(writer, '[', RT_JSON_LINES);
    for (int i = 0; i < machine->nlevels; i++) {
        const struct machine_level *level = &machine->level[i];
        rt_json_open(writer, '{', RT_JSON_INLINE);
        if (i < machine->nlevels - 1) rt_json_key(writer, "devices"), rt_json_put_real(writer, level->devices);
        rt_json_key(writer, "bandwidth"), rt_json_put_real(writer, level->bandwidth);
        rt_json_key(writer, "latency"), rt_json_put_real(writer, level->latency);
        put_curve(writer, "by_size", &level->by_size);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
    return own_json_end(arena, writer);
}

/* Speeds ----------------------------------------------------------------------------------------------------------- */

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

double machine_reached(const struct machine *machine, double m, double n, double k) {
    const double *half = machine->half_extents;
    return m / (m + half[0]) * n / (n + half[1]) * k / (k + half[2]);
}

double machine_curve_at(const struct machine_curve *curve, double bytes, double otherwise) {
    int i = 0;
    if (!curve->n) return otherwise;
    while (i < curve->n && curve->bytes[i] < bytes) i++;
    if (i == 0) return curve->bandwidth[0];
    if (i == curve->n) return curve->bandwidth[i - 1];
    const double part = log(bytes / curve->bytes[i - 1]) / log(curve->bytes[i] / curve->bytes[i - 1]);
    return 1 / ((1 - part) / curve->bandwidth[i - 1] + part / curve->bandwidth[i]);
}

double machine_bandwidth(const struct machine *machine, double bytes, bool alone) {
    const struct machine_curve *curve = alone && machine->by_size_alone.n ? &machine->by_size_alone : &machine->by_size;
    return machine_curve_at(curve, bytes, machine->bandwidth * machine->traffic);
}

struct machine_level machine_link(const struct machine *machine, double ranks, double stride) {
    const double span = ranks * stride;
    int l = 0;
    while (l < machine->nlevels - 1 && span > machine->level[l].devices) l++;
    struct machine_level link = machine->level[l];
    if (l > 0 && stride < machine->level[l - 1].devices) {
        /* each device of a domain has a link of its own to other domains, and a ring leaves the domain through one */
        const double members = machine->level[l - 1].devices / stride, all = link.bandwidth * members;
        link.bandwidth = all < machine->level[l - 1].bandwidth ? all : machine->level[l - 1].bandwidth;
    }
    return link;
}

double machine_collective(const struct machine_level *link, double times, double bytes, double parts) {
    return parts * link->latency + times * bytes / machine_curve_at(&link->by_size, bytes / parts, link->bandwidth);
}
