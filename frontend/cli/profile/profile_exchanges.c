/* rankc profile: the time of each kind of collective, from traces of programs that make it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/profile/profile.h"
#include "ir/base/own.h"

/* A row of profile_exchanges.def. */
static const struct exchange {
    enum collective kind;
    const char *op, *axis;
    int ranks;
    const char *rules, *reader, *attributes;
} exchanges[] = {
#define EXCHANGE(collective, ...) {COLLECTIVE_##collective, __VA_ARGS__},
#include "frontend/cli/profile/profile_exchanges.def"
#undef EXCHANGE
};
/* Rows and columns of the tensors, of f32. */
static const int sizes[][2] = {{256, 64}, {512, 512}, {2048, 2048}};
enum { EXCHANGES = sizeof exchanges / sizeof *exchanges, SIZES = sizeof sizes / sizeof *sizes, STEPS = 64 };

static double bytes_of(int size) {
    return 4.0 * sizes[size][0] * sizes[size][1];
}

static const char *graph_of(const struct exchange *exchange, int size, struct arena *arena) {
    const int rows = sizes[size][0], columns = sizes[size][1];
    struct strbuf text = {.arena = arena};
    strbuf_puts(&text, "rankc-ir 1\ngraph \"probe\" level=TYPED\n");
    strbuf_printf(&text, "const %%0 \"a\" f32[%d,8] = [0.5*%d]\n", rows, rows * 8);
    strbuf_printf(&text, "const %%1 \"b\" f32[8,%d] = [0.25*%d]\n", columns, columns * 8);
    strbuf_printf(&text, "%%2 \"y1\" f32[%d,%d] = MatMul(%%0, %%1) node=\"made\"\n", rows, columns);
    strbuf_printf(&text, "%%3 \"y2\" f32[%d,%d] = %s(%%2) %s node=\"read\"\n", rows, columns, exchange->reader,
                  exchange->attributes);
    strbuf_puts(&text, "output %3 \"y2\"\n");
    return strbuf_text(&text);
}

static const char *name_of(const struct exchange *exchange, int size, struct arena *arena) {
    return arena_printf(arena, "%s_%d", exchange->op, size);
}

static int ranks_of(const struct profiling *p, const struct exchange *exchange) {
    return exchange->ranks ? exchange->ranks : (int)p->ranks;
}

/* An exchange in a step: when its last rank began, and the last one ended, in microseconds. */
struct moment {
    double begin, end;
};

static int by_length(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    const double difference = (x->end - x->begin) - (y->end - y->begin);
    return (difference > 0) - (difference < 0);
}

/* Adds an event of the trace, if it is one of the operator. */
static void add_event(const struct rt_json *event, const char *op, struct moment moments[STEPS]) {
    const struct rt_json *args = rt_json_member(event, "args");
    const char *of = rt_json_text(rt_json_member(args, "operator"));
    int64_t step;
    double begin, length;
    if (!of || strcmp(of, op) != 0 || !rt_json_int(rt_json_member(args, "step"), &step) || step < 1 || step > STEPS ||
        !rt_json_real(rt_json_member(event, "ts"), &begin) || !rt_json_real(rt_json_member(event, "dur"), &length))
        return;
    struct moment *moment = &moments[step - 1];
    moment->begin = fmax(moment->begin, begin);
    moment->end = fmax(moment->end, begin + length);
}

/* The median of the exchange's seconds in the steps of a trace; negative if it has none. */
static double seconds_in(const char *trace, const char *op, struct arena *arena) {
    struct rt_reason why;
    struct moment moments[STEPS] = {{0}};
    struct rt_json_document *document = own_json(arena, trace, &why);
    int n = 0;
    if (!document) return -1;
    for (const struct rt_json *event = rt_json_items(rt_json_root(document), "traceEvents"); event; event = event->next)
        add_event(event, op, moments);
    arena_release(arena, document);
    for (int i = 0; i < STEPS; i++)
        if (moments[i].end > 0) moments[n++] = moments[i];
    qsort(moments, (size_t)n, sizeof *moments, by_length);
    return n ? 1e-6 * (moments[n / 2].end - moments[n / 2].begin) : -1;
}

int profile_exchanges_count(const struct profiling *p) {
    return p->ranks > 1 ? EXCHANGES * SIZES : 0;
}

static double measure(struct profiling *p, const struct exchange *exchange, int size) {
    struct arena *arena = p->cli->arena;
    const char *name = name_of(exchange, size, arena), *trace = arena_printf(arena, "%s/trace.json", p->work);
    if (profile_run(p, name, ranks_of(p, exchange), trace) < 0) return -1;
    const double seconds = seconds_in(trace, exchange->op, arena);
    if (seconds < 0)
        return diag_error(p->cli->diags, 620, EXIT_SYSTEM, NULL,
                          "the trace of the program that measures %s has no such event", exchange->op);
    return fmax(seconds, 1e-7);
}

/* The bandwidth of each size, as machine_collective counts it. */
static void find_link(struct machine_link *link, const struct exchange *exchange, const double seconds[SIZES],
                      double ranks) {
    const struct machine unit = {.nlevels = 1, .level = {{.devices = INFINITY, .link = {.bandwidth = 1}}}};
    const struct machine_group group = {&unit, ranks, 1};
    link->by_size.n = SIZES;
    for (int i = 0; i < SIZES; i++) {
        const double largest = bytes_of(i) / (exchange->kind == COLLECTIVE_ALL_TO_ALL ? ranks : 1);
        link->by_size.bytes[i] = largest;
        link->by_size.bandwidth[i] = machine_collective(&group, exchange->kind, largest, 1) / seconds[i];
    }
    link->bandwidth = link->by_size.bandwidth[SIZES - 1];
}

int profile_exchanges(struct profiling *p, struct machine *machine) {
    struct arena *arena = p->cli->arena;
    double seconds[EXCHANGES][SIZES];
    if (!profile_exchanges_count(p)) return 0;
    for (int e = 0; e < EXCHANGES; e++)
        for (int i = 0; i < SIZES; i++) {
            const struct exchange *exchange = &exchanges[e];
            const int ranks = ranks_of(p, exchange);
            const char *rules = arena_printf(arena, "mesh %s=%d\n%s", exchange->axis, ranks, exchange->rules);
            if (profile_compile(p, name_of(exchange, i, arena), graph_of(exchange, i, arena), rules, ranks)) return -1;
        }
    for (int round = 0; round < PROFILE_ROUNDS; round++)
        for (int e = 0; e < EXCHANGES; e++)
            for (int i = 0; i < SIZES; i++) {
                const double now = measure(p, &exchanges[e], i);
                if (now < 0) return -1;
                profile_tell(p, round, name_of(&exchanges[e], i, arena), now);
                seconds[e][i] = round ? fmin(seconds[e][i], now) : now;
            }
    for (int e = 0; e < EXCHANGES; e++) {
        struct machine_link *link = &machine->level[0].own[exchanges[e].kind];
        *link = (struct machine_link){.latency = machine->level[0].link.latency};
        find_link(link, &exchanges[e], seconds[e], ranks_of(p, &exchanges[e]));
    }
    return 0;
}
