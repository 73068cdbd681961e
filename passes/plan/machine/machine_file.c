#include "passes/plan/machine/machine_file.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "ir/base/own.h"

static const char *const type_names[MACHINE_TYPES + 1] = {"f64", "f32", "half", "fp8"};

/* The numbers of the top level, and the range of each. */
static const struct number_key {
    const char *key;
    size_t field;
    double least, most;
    double otherwise; /* the number if the key is left out; negative: it must be there */
} number_keys[] = {{"memory", offsetof(struct machine, memory), 0, 1e18, -1},
                   {"bandwidth", offsetof(struct machine, bandwidth), 1, 1e18, -1},
                   {"traffic", offsetof(struct machine, traffic), 1e-6, 1, -1},
                   {"launch", offsetof(struct machine, launch), 0, 1, -1},
                   {"host_bandwidth", offsetof(struct machine, host_bandwidth), 1, 1e18, 5.5e10},
                   {"multiprocessors", offsetof(struct machine, multiprocessors), 0, 1e6, 0},
                   {"attention", offsetof(struct machine, attention), 1e-6, 1, -1},
                   {"own_attention", offsetof(struct machine, own_attention), 0, 1, 0},
                   {"half_head", offsetof(struct machine, half_head), 0, 1e6, 0},
                   {"overlap", offsetof(struct machine, overlap), 0, 1, -1},
                   {"slowdown", offsetof(struct machine, slowdown), 1, 100, 1},
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
    if (key->otherwise >= 0 && !rt_json_member(root, key->key)) return *number = key->otherwise, 0;
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
#include "passes/plan/machine/machine_kernels.def"
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

static int read_distant(const struct reading *r, const struct rt_json *value, struct machine_kernel_rate *kernel) {
    if (rt_json_real(value, &kernel->distant) && kernel->distant >= 1 && kernel->distant <= 100) return 0;
    return fail_at(r, value, say(r, value->key, "is no number from 1 to 100"));
}

/* An object that says something of kinds of kernels. */
static int read_kernels(const struct reading *r, const struct rt_json *root, const char *key,
                        int (*read)(const struct reading *, const struct rt_json *, struct machine_kernel_rate *)) {
    const struct rt_json *object = rt_json_member(root, key);
    if (!object) return 0;
    if (object->kind != RT_JSON_OBJECT) return fail_at(r, object, say(r, key, "is no object"));
    for (const struct rt_json *member = object->first; member; member = member->next) {
        int k = 0;
        while (k < MACHINE_KERNELS && strcmp(member->key, kernel_names[k]) != 0) k++;
        if (k == MACHINE_KERNELS)
            return fail_at(r, member, say(r, diag_quote(r->diags, member->key), "is no kind of kernel"));
        if (read(r, member, &r->machine->kernel[k]) < 0) return -1;
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

static const char *const collective_names[COLLECTIVES + 1] = {
#define COLLECTIVE(id, name, ...) [COLLECTIVE_##id] = name,
#include "ir/collectives.def"
#undef COLLECTIVE
};

static int read_link(const struct reading *r, const struct rt_json *value, struct machine_link *link) {
    if (read_number(r, value, "bandwidth", 1, 1e18, &link->bandwidth) < 0 ||
        read_number(r, value, "latency", 0, 1e3, &link->latency) < 0)
        return -1;
    return read_curve(r, value, "by_size", &link->by_size);
}

/* Links of collectives of their own. */
static int read_collectives(const struct reading *r, const struct rt_json *parent, struct machine_level *level) {
    static const char *const keys[] = {"bandwidth", "latency", "by_size", NULL};
    const struct rt_json *object = rt_json_member(parent, "collectives");
    if (!object) return 0;
    if (object->kind != RT_JSON_OBJECT) return fail_at(r, object, "collectives is no object");
    if (check_keys(r, object, collective_names, "is no kind of collective") < 0) return -1;
    for (int kind = 0; kind < COLLECTIVES; kind++) {
        const struct rt_json *value = rt_json_member(object, collective_names[kind]);
        if (!value) continue;
        if (value->kind != RT_JSON_OBJECT) return fail_at(r, value, say(r, value->key, "is no object"));
        if (check_keys(r, value, keys, "is no property of a collective") < 0 ||
            read_link(r, value, &level->own[kind]) < 0)
            return -1;
    }
    return 0;
}

static int read_levels(const struct reading *r, const struct rt_json *root) {
    static const char *const keys[] = {"devices", "bandwidth", "latency", "by_size", "collectives", NULL};
    const struct rt_json *array = rt_json_member(root, "levels");
    struct machine *machine = r->machine;
    if (!array || array->kind != RT_JSON_ARRAY || array->count < 1 || array->count > MACHINE_LEVELS)
        return fail_at(r, array, "levels is missing, or no array of one to four objects");
    for (const struct rt_json *value = array->first; value; value = value->next) {
        struct machine_level *level = &machine->level[machine->nlevels++];
        if (value->kind != RT_JSON_OBJECT) return fail_at(r, value, "an element of levels is no object");
        if (check_keys(r, value, keys, "is no property of a level") < 0 ||
            read_devices(r, value, &level->devices) < 0 || read_link(r, value, &level->link) < 0 ||
            read_collectives(r, value, level) < 0)
            return -1;
        if (machine->nlevels > 1 && level->devices <= level[-1].devices)
            return fail_at(r, value, "a level has no more devices than the one before it");
    }
    return 0;
}

static int read_document(const struct reading *r, const struct rt_json *root) {
    static const char *const others[] = {"format",       "name",          "rates",   "peaks",
                                         "half_extents", "levels",        "kernels", "distant",
                                         "by_size",      "by_size_alone", NULL};
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
    if (r->machine->multiprocessors > 0 && !rt_json_member(root, "own_attention"))
        r->machine->own_attention = machine_gpu.own_attention;
    return read_types(r, root, "rates", r->machine->rate) < 0 || read_types(r, root, "peaks", r->machine->peak) < 0 ||
                   read_extents(r, root) < 0 || read_kernels(r, root, "kernels", read_kernel) < 0 ||
                   read_kernels(r, root, "distant", read_distant) < 0 ||
                   read_curve(r, root, "by_size", &r->machine->by_size) < 0 ||
                   read_curve(r, root, "by_size_alone", &r->machine->by_size_alone) < 0
               ? -1
               : read_levels(r, root);
}

/* The machine of a document, which is released; NULL: why there is none. */
static int read_machine(struct arena *arena, struct diags *diags, const char *path, struct rt_json_document *document,
                        const struct rt_reason *why, struct machine *machine) {
    const struct reading reading = {diags, path, machine};
    if (!document) return diag_refusal(diags, 396, EXIT_MALFORMED, diag_quote(diags, path), why);
    const char *name = rt_json_text(rt_json_member(rt_json_root(document), "name"));
    *machine = (struct machine){.name = name ? arena_printf(arena, "%s", name) : path};
    const int status = read_document(&reading, rt_json_root(document));
    arena_release(arena, document);
    return status;
}

int machine_read_text(struct arena *arena, struct diags *diags, const char *name, const char *text,
                      struct machine *machine) {
    struct rt_reason why;
    struct rt_json_document *document = own_json_text(arena, text, &why);
    return read_machine(arena, diags, name, document, &why, machine);
}

int machine_read_file(struct arena *arena, struct diags *diags, const char *path, struct machine *machine) {
    struct rt_reason why;
    struct rt_json_document *document = own_json(arena, path, &why);
    return read_machine(arena, diags, path, document, &why, machine);
}

void machine_put_types(struct rt_json_writer *writer, const char *key, const double numbers[MACHINE_TYPES]) {
    rt_json_key_open(writer, key, '{', RT_JSON_INLINE);
    for (int t = 0; t < MACHINE_TYPES; t++) rt_json_key_real(writer, type_names[t], numbers[t]);
    rt_json_close(writer, '}');
}

static void put_pair(struct rt_json_writer *writer, double first, double second) {
    rt_json_open(writer, '[', RT_JSON_INLINE);
    rt_json_put_real(writer, first), rt_json_put_real(writer, second);
    rt_json_close(writer, ']');
}

static void put_curve(struct rt_json_writer *writer, const char *key, const struct machine_curve *curve) {
    if (!curve->n) return;
    rt_json_key_open(writer, key, '[', RT_JSON_INLINE);
    for (int i = 0; i < curve->n; i++) put_pair(writer, curve->bytes[i], curve->bandwidth[i]);
    rt_json_close(writer, ']');
}

static void put_kernels(struct rt_json_writer *writer, const struct machine *machine) {
    rt_json_key_open(writer, "kernels", '{', RT_JSON_LINES);
    EACH(machine->kernel, MACHINE_KERNELS, k, const struct machine_kernel_rate *kernel) {
        if (!(kernel->rate > 0)) continue;
        rt_json_key_open(writer, kernel_names[k], '[', RT_JSON_INLINE);
        rt_json_put_real(writer, kernel->rate);
        for (int e = 0; e < MACHINE_EXTENTS; e++) rt_json_put_real(writer, kernel->half[e]);
        rt_json_close(writer, ']');
    }
    rt_json_close(writer, '}');
}

static void put_distant(struct rt_json_writer *writer, const struct machine *machine) {
    rt_json_key_open(writer, "distant", '{', RT_JSON_LINES);
    for (int k = 0; k < MACHINE_KERNELS; k++) {
        if (!(machine->kernel[k].distant > 0)) continue;
        rt_json_key_real(writer, kernel_names[k], machine->kernel[k].distant);
    }
    rt_json_close(writer, '}');
}

static void put_link(struct rt_json_writer *writer, const struct machine_link *link) {
    rt_json_key_real(writer, "bandwidth", link->bandwidth);
    rt_json_key_real(writer, "latency", link->latency);
    put_curve(writer, "by_size", &link->by_size);
}

static void put_level(struct rt_json_writer *writer, const struct machine_level *level) {
    bool any = false;
    rt_json_open(writer, '{', RT_JSON_LINES);
    if (isfinite(level->devices)) rt_json_key_real(writer, "devices", level->devices);
    put_link(writer, &level->link);
    for (int kind = 0; kind < COLLECTIVES; kind++) {
        if (!(level->own[kind].bandwidth > 0)) continue;
        if (!any) rt_json_key_open(writer, "collectives", '{', RT_JSON_LINES);
        any = true;
        rt_json_key_open(writer, collective_names[kind], '{', RT_JSON_INLINE);
        put_link(writer, &level->own[kind]);
        rt_json_close(writer, '}');
    }
    if (any) rt_json_close(writer, '}');
    rt_json_close(writer, '}');
}

const char *machine_text(struct arena *arena, const struct machine *machine) {
    struct rt_json_writer *writer = own_json_writer(arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_int(writer, "format", 1);
    rt_json_key_text(writer, "name", machine->name);
    for (int i = 0; i < NUMBER_KEYS; i++) {
        const double number = *(const double *)((const char *)machine + number_keys[i].field);
        if (!isfinite(number) || (number == 0 && number_keys[i].otherwise == 0)) continue;
        rt_json_key_real(writer, number_keys[i].key, number);
    }
    machine_put_types(writer, "rates", machine->rate);
    machine_put_types(writer, "peaks", machine->peak);
    rt_json_key_open(writer, "half_extents", '[', RT_JSON_INLINE);
    for (int i = 0; i < 3; i++) rt_json_put_real(writer, machine->half_extents[i]);
    rt_json_close(writer, ']');
    put_curve(writer, "by_size", &machine->by_size);
    put_curve(writer, "by_size_alone", &machine->by_size_alone);
    put_kernels(writer, machine);
    put_distant(writer, machine);
    rt_json_key_open(writer, "levels", '[', RT_JSON_LINES);
    for (int i = 0; i < machine->nlevels; i++) put_level(writer, &machine->level[i]);
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
    return own_json_end(arena, writer);
}
