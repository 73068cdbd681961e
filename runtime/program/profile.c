/* Where the time of traced steps went, by layer and by operator: sums over the events of a trace. */
#include "program/trace.h"

#include "base/io/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_PRINTED = 24, NAME_COLUMNS = 32, MACHINE_LIMIT = 1 << 20 };

struct row {
    char *name;
    double ns, waited, calls, bytes, flops; /* of all ranks and steps */
};

struct rows {
    struct row *at;
    int n;
    int *of; /* per instruction: its row */
};

struct profile {
    int world, steps;
    double step_ns; /* of all ranks and steps */
    double inside;  /* of instructions */
    struct rows layers, operators;
    double flops_per_s, bytes_per_s;      /* of a rank at most; 0: unknown */
    char machine[2 * RT_QUOTE_BYTES + 8]; /* whose peaks these are */
};

static int find_row(struct rows *rows, const char *name) {
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->at[i].name, name) == 0) return i;
    if (!(rows->at[rows->n].name = strdup(name))) return -1;
    return rows->n++;
}

static bool list_rows(struct rows *rows, const struct trace_names *names, bool layers) {
    const size_t n = (size_t)names->ninstructions + 1;
    rows->at = calloc(n, sizeof *rows->at);
    rows->of = calloc(n, sizeof *rows->of);
    bool ok = rows->at && rows->of;
    for (int i = 0; i < names->ninstructions && ok; i++) {
        const char *layer = names->instructions[i].layer;
        rows->of[i] = find_row(rows, !layers ? names->instructions[i].op : *layer ? layer : "(no layer)");
        ok = rows->of[i] >= 0;
    }
    return ok;
}

static void free_rows(struct rows *rows) {
    for (int i = 0; i < rows->n; i++) free(rows->at[i].name);
    free(rows->at);
    free(rows->of);
}

/* Rows that took most time come first; then by name, so that the order is the same on every machine. */
static int compare_rows(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns) - (x->ns > y->ns) : strcmp(x->name, y->name);
}

static void add_row(struct row *row, const struct row *one) {
    row->ns += one->ns, row->waited += one->waited, row->calls += one->calls;
    row->bytes += one->bytes, row->flops += one->flops;
}

/* `sizes`: of the step that the event belongs to. */
static void add_event(struct profile *profile, const struct trace_event *event, const struct trace_names *names,
                      int class, int64_t *sizes) {
    const int i = event->instruction;
    const double ns = (double)(event->end - event->begin);
    if (event->kind == TRACE_SIZE) sizes[event->call] = event->bytes;
    if (event->kind == TRACE_STEP) profile->step_ns += ns;
    if (i < 0 || i >= names->ninstructions) return;
    struct row row = {.waited = (double)event->waited};
    if (event->kind == TRACE_INSTRUCTION) {
        const struct trace_work *work = &names->work[(int64_t) class * names->ninstructions + i];
        row.ns = ns;
        row.calls = 1;
        row.bytes = (double)trace_amount(names, work->bytes, sizes);
        row.flops = (double)trace_amount(names, work->flops, sizes);
        profile->inside += ns;
    }
    add_row(&profile->layers.at[profile->layers.of[i]], &row);
    add_row(&profile->operators.at[profile->operators.of[i]], &row);
}

static void add_all(struct profile *profile, const struct trace_all *all, const struct trace_names *names) {
    for (int r = 0; r < all->world; r++) {
        const struct trace_part *part = &all->parts[r];
        int64_t sizes[RT_MAX_SIZES] = {0};
        for (int64_t i = 0; i < part->about.n; i++) {
            add_event(profile, &part->events[i], names, part->about.class, sizes);
            profile->steps += r == 0 && part->events[i].kind == TRACE_STEP;
        }
    }
}

struct profile *profile_make(const struct trace_all *all, const struct trace_names *names) {
    struct profile *profile = calloc(1, sizeof *profile);
    if (!profile) return NULL;
    profile->world = all->world;
    if (!list_rows(&profile->layers, names, true) || !list_rows(&profile->operators, names, false)) {
        profile_free(profile);
        return NULL;
    }
    add_all(profile, all, names);
    qsort(profile->layers.at, (size_t)profile->layers.n, sizeof *profile->layers.at, compare_rows);
    qsort(profile->operators.at, (size_t)profile->operators.n, sizeof *profile->operators.at, compare_rows);
    return profile;
}

void profile_free(struct profile *profile) {
    if (!profile) return;
    free_rows(&profile->layers);
    free_rows(&profile->operators);
    free(profile);
}

static double number_of(const struct rt_json *object, const char *key) {
    double value = 0;
    rt_json_real(rt_json_member(object, key), &value);
    return value;
}

/* Products are compared with the peak of their type, or where the file has none, with the rate that it measured. */
static const char *type_name(enum rt_dtype dtype) {
    return dtype == RT_F64 ? "f64" : dtype == RT_F16 || dtype == RT_BF16 ? "half" : "f32";
}

static bool take_peaks(struct profile *profile, const struct rt_json *machine, enum rt_dtype dtype) {
    profile->flops_per_s = number_of(rt_json_member(machine, "peaks"), type_name(dtype));
    if (!(profile->flops_per_s > 0))
        profile->flops_per_s = number_of(rt_json_member(machine, "rates"), type_name(dtype));
    profile->bytes_per_s = number_of(machine, "bandwidth");
    return profile->flops_per_s > 0 && profile->bytes_per_s > 0;
}

/* "h100", "this machine (here.json)", "h100 (--machine of the compile)". */
static void set_machine(struct profile *profile, const char *name, const char *source) {
    const struct rt_quoted first = rt_quote_text(name ? name : source ? source : "a machine without a name");
    if (name && source)
        snprintf(profile->machine, sizeof profile->machine, "%s (%s)", first.text, rt_quote_text(source).text);
    else
        snprintf(profile->machine, sizeof profile->machine, "%s", first.text);
}

bool profile_compare(struct profile *profile, const char *machine, enum rt_dtype dtype, struct rt_reason *why) {
    const bool is_file = *machine != '{';
    void *bytes = NULL;
    size_t count = strlen(machine);
    if (is_file && !rt_file_read(machine, MACHINE_LIMIT, &bytes, &count, why)) return false;
    struct rt_json_document *document = rt_json_parse(is_file ? bytes : machine, count, why);
    free(bytes);
    if (!document) return false;
    const struct rt_json *root = rt_json_root(document);
    const bool has_peaks = take_peaks(profile, root, dtype);
    set_machine(profile, rt_json_text(rt_json_member(root, "name")), is_file ? machine : NULL);
    rt_json_free(document);
    return has_peaks ||
           rt_refuse(why, "'%s' is not a machine file: it has no \"rates\" and \"bandwidth\" (see 'rankc profile')",
                     rt_quote_text(machine).text);
}

void profile_compare_compiled(struct profile *profile, const struct manifest *manifest, enum rt_dtype dtype) {
    const struct rt_json *machine = rt_json_member(rt_json_root(manifest->document), "machine");
    const char *name = rt_json_text(rt_json_member(machine, "name"));
    if (!name || !take_peaks(profile, machine, dtype)) return;
    set_machine(profile, name, "--machine of the compile");
}

/* Times and sizes of a rank and step. */
static double mean(const struct profile *profile, double sum) {
    const double n = (double)profile->world * profile->steps;
    return n > 0 ? sum / n : 0;
}

static double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

static double rate(double amount, double ns) {
    return ns > 0 ? amount / ns : 0;
}

static void print_row(const struct profile *profile, const struct row *row, FILE *file) {
    const double gflops = rate(row->flops, row->ns), gbytes = rate(row->bytes, row->ns);
    const size_t length = strlen(row->name), skipped = length > NAME_COLUMNS ? length - NAME_COLUMNS : 0;
    fprintf(file, "  %-*s %9.3f %5.1f%% %8.1f %9.3f %9.3f %9.3f %8.2f %7.2f", NAME_COLUMNS,
            rt_quote_text(row->name + skipped).text, mean(profile, row->ns) / 1e6, percent(row->ns, profile->step_ns),
            mean(profile, row->calls), mean(profile, row->waited) / 1e6, mean(profile, row->bytes) / 1e6,
            mean(profile, row->flops) / 1e6, gflops, gbytes);
    if (profile->bytes_per_s > 0)
        fprintf(file, " %6.1f%% %6.1f%%", percent(gflops * 1e9, profile->flops_per_s),
                percent(gbytes * 1e9, profile->bytes_per_s));
    fputc('\n', file);
}

/* Rows behind those that are printed, as one. */
static struct row sum_rest(const struct rows *rows, char *name) {
    struct row rest = {.name = name};
    for (int i = ROWS_PRINTED; i < rows->n; i++) add_row(&rest, &rows->at[i]);
    return rest;
}

static void print_rows(const struct profile *profile, const char *title, const struct rows *rows, FILE *file) {
    char name[NAME_COLUMNS];
    fprintf(file, "  %-*s %9s %6s %8s %9s %9s %9s %8s %7s%s\n", NAME_COLUMNS, title, "ms", "share", "calls", "waits ms",
            "MB", "MFLOP", "GFLOP/s", "GB/s", profile->bytes_per_s > 0 ? "    of peaks   " : "");
    for (int i = 0; i < rows->n && i < ROWS_PRINTED; i++)
        if (rows->at[i].calls > 0) print_row(profile, &rows->at[i], file);
    if (rows->n <= ROWS_PRINTED) return;
    snprintf(name, sizeof name, "(%d others)", rows->n - ROWS_PRINTED);
    const struct row rest = sum_rest(rows, name);
    print_row(profile, &rest, file);
}

void profile_print(const struct profile *profile, FILE *file) {
    const double step = profile->step_ns, outside = step - profile->inside;
    fprintf(file,
            "profile of %d step%s, mean of %d rank%s: %.3f ms per step, %.3f ms (%.1f%%) outside of instructions\n",
            profile->steps, profile->steps == 1 ? "" : "s", profile->world, profile->world == 1 ? "" : "s",
            mean(profile, step) / 1e6, mean(profile, outside) / 1e6, percent(outside, step));
    if (profile->bytes_per_s > 0)
        fprintf(file, "peaks of a rank: %.1f GFLOP/s, %.2f GB/s, of %s\n", profile->flops_per_s / 1e9,
                profile->bytes_per_s / 1e9, profile->machine);
    else
        fprintf(file, "peaks are not known: --profile=MACHINE names a machine, or a file that 'rankc profile' wrote\n");
    print_rows(profile, "operator", &profile->operators, file);
    print_rows(profile, "layer", &profile->layers, file);
}

static void put_rows(struct rt_json_writer *w, const struct profile *profile, const char *key,
                     const struct rows *rows) {
    rt_json_key_open(w, key, '[', RT_JSON_INLINE);
    for (int i = 0; i < rows->n; i++) {
        const struct row *row = &rows->at[i];
        if (!(row->calls > 0)) continue;
        rt_json_open(w, '{', RT_JSON_INLINE);
        rt_json_key_text(w, "name", row->name);
        rt_json_key_real(w, "ms", mean(profile, row->ns) / 1e6);
        rt_json_key_real(w, "waiting_ms", mean(profile, row->waited) / 1e6);
        rt_json_key_real(w, "calls", mean(profile, row->calls));
        rt_json_key_real(w, "bytes", mean(profile, row->bytes));
        rt_json_key_real(w, "flops", mean(profile, row->flops));
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

void profile_put(struct rt_json_writer *w, const struct profile *profile) {
    rt_json_open(w, '{', RT_JSON_INLINE);
    rt_json_key_int(w, "steps", profile->steps);
    rt_json_key_int(w, "ranks", profile->world);
    rt_json_key_real(w, "step_ms", mean(profile, profile->step_ns) / 1e6);
    rt_json_key_real(w, "instructions_ms", mean(profile, profile->inside) / 1e6);
    if (profile->bytes_per_s > 0) {
        rt_json_key_text(w, "machine", profile->machine);
        rt_json_key_real(w, "peak_flops_per_s", profile->flops_per_s);
        rt_json_key_real(w, "peak_bytes_per_s", profile->bytes_per_s);
    }
    put_rows(w, profile, "operators", &profile->operators);
    put_rows(w, profile, "layers", &profile->layers);
    rt_json_close(w, '}');
}
