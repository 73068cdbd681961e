/* rankc show DIR|MODEL.onnx: prints the plan in a manifest, that of DIR or that which compiling MODEL.onnx would
 * write. */
#include "frontend/cli/show/show.h"

#include <inttypes.h>
#include <stdio.h>

#include "frontend/cli/format_bytes.h"
#include "frontend/cli/memory.h"
#include "frontend/driver/driver.h"

/* Printing the estimate of a step's time. */

static double number(const struct rt_json *estimate, const char *key) {
    double value = 0;
    rt_json_real(rt_json_member(estimate, key), &value);
    return value;
}

/* "1.23 s", "4.56 ms", "7.89 us" */
static const char *duration(struct arena *arena, double seconds) {
    if (seconds < 1e-9) seconds = 0; /* rounding of a difference */
    const double scale = seconds >= 1 || seconds <= 0 ? 1 : seconds >= 1e-3 ? 1e3 : 1e6;
    return arena_printf(arena, "%.3g %s", seconds * scale, scale == 1 ? "s" : scale == 1e3 ? "ms" : "us");
}

/* Speeds of each device: operations of all devices, in tera. */
static void put_speed(struct strbuf *out, const struct rt_json *estimate, double devices, const char *name,
                      const char *all, const char *causal) {
    const double per_step = 1e12 * devices * number(estimate, "step_s"), peak = number(estimate, "peak_flops");
    const double speed = number(estimate, all) / per_step;
    strbuf_printf(out,
                  "  %-10s %.4g TFLOP/s a device, %.1f %% of its peak; %.4g with causal attention counted by half\n",
                  name, speed, peak > 0 ? 1e14 * speed / peak : 0, number(estimate, causal) / per_step);
}

/* Appends the estimate of a step's time, if the plan has one. */
static void show_estimate(struct strbuf *out, const struct compiled_model *compiled) {
    const struct rt_json *estimate = rt_json_member(compiled->root, "estimate");
    const double devices = (double)compiled->runtime_ngpus, hidden = number(estimate, "hidden_s");
    const double tokens = number(estimate, "tokens"), rate = tokens / number(estimate, "step_s");
    const int64_t memory = rt_json_number(estimate, "memory", 0), device = rt_json_number(estimate, "device_memory", 0);
    struct arena *arena = out->arena;
    if (!estimate) return;
    strbuf_printf(out, "\ntime on %s, estimated\n", show_text(rt_json_member(estimate, "machine"), arena));
    strbuf_printf(out, "  %-10s %s: computing %s, communicating %s%s, waiting %s\n", "step",
                  duration(arena, number(estimate, "step_s")), duration(arena, number(estimate, "computing_s")),
                  duration(arena, number(estimate, "communicating_s")),
                  hidden > 0 ? arena_printf(arena, " and %s beside computing", duration(arena, hidden)) : "",
                  duration(arena, number(estimate, "waiting_s")));
    strbuf_printf(out, "  %-10s products %s, attention %s, other kernels %s, launching kernels %s\n", "computing",
                  duration(arena, number(estimate, "products_s")), duration(arena, number(estimate, "attention_s")),
                  duration(arena, number(estimate, "other_kernels_s")),
                  duration(arena, number(estimate, "launching_s")));
    if (tokens > 0) strbuf_printf(out, "  %-10s %.*f a second\n", "tokens", rate < 1000 ? 1 : 0, rate);
    put_speed(out, estimate, devices, "model", "model_flops", "model_flops_causal");
    put_speed(out, estimate, devices, "executed", "executed_flops", "executed_flops_causal");
    if (device > 0)
        strbuf_printf(out, "  %-10s %s of %s on each device%s\n", "memory", format_bytes(memory).text,
                      format_bytes(device).text, memory > device ? ": does not fit" : "");
}

/* JSON as the content of a script element. Outside of strings it has none of these characters, and the writer of JSON
 * leaves only ASCII, so that the text has no other way to end the element or to begin a comment. */
static const char *as_script_data(struct arena *arena, const char *json) {
    struct strbuf out = {.arena = arena};
    for (; *json; json++)
        if (strchr("<>&", *json))
            strbuf_printf(&out, "\\u%04x", (unsigned)*json);
        else
            strbuf_putc(&out, *json);
    return strbuf_text(&out);
}

/* Writes the web page of a plan to `path`, one file that loads nothing: templates/page/plan.html.in with its data in
 * it. json: what show --json prints, in which names may be any bytes; none of them can end the element that holds the
 * data or add one to the page. Replaces the file in one step. False, and the reason in *why, if it cannot be
 * written. */
static bool page_write(struct arena *arena, const char *path, const char *json, struct rt_reason *why) {
    static const char name[] = "page/plan.html.in";
    struct tmpl_env *env = tmpl_env(arena, NULL);
    tmpl_set(env, "data", as_script_data(arena, json));
    const char *page = tmpl_fill(arena, name, template_text(name), env);
    const struct rt_piece piece = {page, strlen(page)};
    return rt_file_write(path, &piece, 1, why);
}

const char *show_text(const struct rt_json *value, struct arena *arena) {
    if (!value || value->kind != RT_JSON_STRING) return "?";
    return str_escape(arena, value->text, (size_t)value->count, 120);
}

static void copy_value(struct rt_json_writer *writer, const struct rt_json *value, enum rt_json_layout layout);

static void copy_members(struct rt_json_writer *writer, const struct rt_json *value, enum rt_json_layout layout) {
    bool object = value->kind == RT_JSON_OBJECT;
    rt_json_open(writer, object ? '{' : '[', layout);
    for (const struct rt_json *member = value->first; member; member = member->next) {
        if (object) rt_json_key_bytes(writer, member->key, member->key_bytes);
        copy_value(writer, member, RT_JSON_INLINE);
    }
    rt_json_close(writer, object ? '}' : ']');
}

static void copy_value(struct rt_json_writer *writer, const struct rt_json *value, enum rt_json_layout layout) {
    switch (value->kind) {
    case RT_JSON_NULL: rt_json_put_null(writer); break;
    case RT_JSON_BOOL: rt_json_put_bool(writer, value->boolean); break;
    case RT_JSON_INT: rt_json_put_int(writer, value->integer); break;
    case RT_JSON_REAL: rt_json_put_real(writer, value->real); break;
    case RT_JSON_STRING: rt_json_put_bytes(writer, value->text, (size_t)value->count); break;
    case RT_JSON_ARRAY:
    case RT_JSON_OBJECT: copy_members(writer, value, layout); break;
    }
}

static void put_ranks(struct rt_json_writer *writer, const char *key, const struct rank_list *list) {
    rt_json_key_open(writer, key, '[', RT_JSON_INLINE);
    for (int i = 0; i < list->all.n; i++) rt_json_put_int(writer, list->all.at[i]);
    rt_json_close(writer, ']');
}

static void copy_member(struct rt_json_writer *writer, const struct rt_json *object, const char *key) {
    const struct rt_json *value = rt_json_member(object, key);
    rt_json_key(writer, key);
    if (value)
        copy_value(writer, value, RT_JSON_LINES);
    else
        rt_json_put_null(writer);
}

/* What a part of the manifest is shown as. */
struct shown {
    struct rt_json_writer *writer;
    const struct compiled_model *compiled;
    const struct rt_json **classes; /* ranks_classes */
    struct arena *arena;
};

/* Member `key` of the class, "memory" or "touched", if it has it. */
static void put_memory_of(const struct shown *shown, const struct rt_json *class, const char *key) {
    int64_t bytes[MEMORY_KINDS];
    if (strcmp(key, "memory") != 0 && !rt_json_member(class, key)) return;
    memory_of_class(shown->compiled, class, key, bytes);
    rt_json_key_open(shown->writer, key, '{', RT_JSON_LINES);
    for (int i = 0; i < MEMORY_KINDS; i++) rt_json_key_int(shown->writer, memory_kinds[i], bytes[i]);
    rt_json_close(shown->writer, '}');
}

/* "ranks": source and memory of each rank. */
static void put_all_ranks(const struct shown *shown, const char *key) {
    rt_json_key_open(shown->writer, key, '[', RT_JSON_LINES);
    for (int64_t rank = 0; rank < shown->compiled->runtime_ngpus; rank++) {
        const struct rt_json *class = shown->classes[rank % shown->compiled->plan_ngpus];
        rt_json_open(shown->writer, '{', RT_JSON_INLINE);
        rt_json_key_int(shown->writer, "rank", rank);
        copy_member(shown->writer, class, "source");
        put_memory_of(shown, class, "memory");
        put_memory_of(shown, class, "touched");
        if (rt_json_member(class, "state_copied")) copy_member(shown->writer, class, "state_copied");
        if (rt_json_member(class, "state_replaced")) copy_member(shown->writer, class, "state_replaced");
        rt_json_close(shown->writer, '}');
    }
    rt_json_close(shown->writer, ']');
}

/* "live": memory over a step of each class, with the first rank that has it. Not in manifests of older versions. */
static void put_all_live(const struct shown *shown, const char *key) {
    rt_json_key_open(shown->writer, key, '[', RT_JSON_LINES);
    for (int64_t rank = 0; rank < shown->compiled->plan_ngpus; rank++) {
        const struct rt_json *class = shown->classes[rank], *live = rt_json_member(class, key);
        bool again = !live;
        for (int64_t r = 0; r < rank; r++) again |= shown->classes[r] == class;
        if (again) continue;
        rt_json_open(shown->writer, '{', RT_JSON_INLINE);
        rt_json_key_int(shown->writer, "rank", rank);
        for (const struct rt_json *member = live->first; member; member = member->next)
            copy_member(shown->writer, live, member->key);
        rt_json_close(shown->writer, '}');
    }
    rt_json_close(shown->writer, ']');
}

/* "communication": an entry for each group of ranks. */
static void put_all_communication(const struct shown *shown, const char *key) {
    const struct rt_json *row = rt_json_items(shown->compiled->root, key);
    rt_json_key_open(shown->writer, key, '[', RT_JSON_LINES);
    for (; row; row = row->next) {
        const struct rank_groups groups = ranks_groups(shown->compiled, row, shown->classes, shown->arena);
        for (int g = 0; g < groups.all.n; g++) {
            const struct rank_list ranks = ranks_of_group(&groups.all.at[g], shown->arena);
            rt_json_open(shown->writer, '{', RT_JSON_INLINE);
            for (const struct rt_json *member = row->first; member; member = member->next)
                if (strcmp(member->key, "axis") != 0 && strcmp(member->key, "class") != 0)
                    copy_member(shown->writer, row, member->key);
            put_ranks(shown->writer, "group", &ranks);
            rt_json_close(shown->writer, '}');
        }
    }
    rt_json_close(shown->writer, ']');
}

/* A list of more ranks is not repeated with each node, of which there are thousands. */
enum { MOST_REPEATED = 256 };

/* "stages", if a list may be longer than that: the ranks of each one, in the order of their nodes. */
static void put_all_stages(const struct shown *shown, const char *key) {
    const struct rt_json *node = rt_json_items(shown->compiled->root, "nodes");
    VEC(int64_t) seen = {0};
    if (shown->compiled->runtime_ngpus <= MOST_REPEATED) return;
    rt_json_key_open(shown->writer, key, '[', RT_JSON_LINES);
    for (; node; node = node->next) {
        const int64_t stage = rt_json_number(node, "stage", 0);
        int k = 0;
        while (k < seen.n && seen.at[k] != stage) k++;
        if (k < seen.n) continue;
        VEC_PUSH(shown->arena, &seen, stage);
        const struct rank_list ranks = ranks_of_stage(shown->compiled, stage, shown->arena);
        rt_json_open(shown->writer, '{', RT_JSON_INLINE);
        rt_json_key_int(shown->writer, "stage", stage);
        put_ranks(shown->writer, "ranks", &ranks);
        rt_json_close(shown->writer, '}');
    }
    rt_json_close(shown->writer, ']');
}

/* "nodes": with the ranks of their stages, null if these are many. */
static void put_all_nodes(const struct shown *shown, const char *key) {
    const struct rt_json *node = rt_json_items(shown->compiled->root, key);
    struct rank_list ranks = {0};
    rt_json_key_open(shown->writer, key, '[', RT_JSON_LINES);
    for (int64_t stage = -1; node; node = node->next) {
        if (!ranks.all.n || rt_json_number(node, "stage", 0) != stage) {
            stage = rt_json_number(node, "stage", 0);
            ranks = ranks_of_stage(shown->compiled, stage, shown->arena);
        }
        rt_json_open(shown->writer, '{', RT_JSON_INLINE);
        copy_member(shown->writer, node, "name");
        if (rt_json_member(node, "scope")) copy_member(shown->writer, node, "scope");
        copy_member(shown->writer, node, "op");
        copy_member(shown->writer, node, "partition");
        if (ranks.all.n <= MOST_REPEATED)
            put_ranks(shown->writer, "ranks", &ranks);
        else
            rt_json_key(shown->writer, "ranks"), rt_json_put_null(shown->writer);
        copy_member(shown->writer, node, "stage");
        rt_json_close(shown->writer, '}');
    }
    rt_json_close(shown->writer, ']');
}

static void put_value(const struct shown *shown, const char *key) {
    copy_member(shown->writer, shown->compiled->root, key);
}

/* "runtime_ngpus", which is not in the manifest. */
static void put_number_of_ranks(const struct shown *shown, const char *key) {
    rt_json_key_int(shown->writer, key, shown->compiled->runtime_ngpus);
}

/* Of training, and so in the manifest of a model that is trained. */
static void put_value_if_any(const struct shown *shown, const char *key) {
    if (rt_json_member(shown->compiled->root, key)) put_value(shown, key);
}

/* "inputs" and "outputs" of a program with open sizes, whose shapes have their names. */
static void put_open_ports(const struct shown *shown, const char *key) {
    if (rt_json_member(shown->compiled->root, "sizes")) put_value(shown, key);
}

/* Writes the plan as JSON. */
static struct rt_json_writer *put_all(const struct compiled_model *compiled, struct cli *cli) {
    static const struct {
        const char *key;
        void (*put)(const struct shown *shown, const char *key);
    } members[] = {{"model", put_value},
                   {"target", put_value},
                   {"plan_ngpus", put_value},
                   {"runtime_ngpus", put_number_of_ranks},
                   {"sizes", put_value_if_any},
                   {"inputs", put_open_ports},
                   {"outputs", put_open_ports},
                   {"ranks", put_all_ranks},
                   {"communication", put_all_communication},
                   {"live", put_all_live},
                   {"pas", put_value},
                   {"adapters", put_value_if_any},
                   {"mesh", put_value},
                   {"schedule", put_value_if_any},
                   {"estimate", put_value_if_any},
                   {"search", put_value_if_any},
                   {"stages", put_all_stages},
                   {"nodes", put_all_nodes},
                   {"parameters", put_value_if_any},
                   {"constants", put_value_if_any}};
    const struct shown shown = {own_json_writer(cli->arena), compiled, ranks_classes(compiled, cli->arena), cli->arena};
    rt_json_open(shown.writer, '{', RT_JSON_LINES);
    rt_json_key_int(shown.writer, "format", 1);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) members[i].put(&shown, members[i].key);
    rt_json_close(shown.writer, '}');
    return shown.writer;
}

/* --html. */
static int write_page(const struct compiled_model *compiled, struct cli *cli) {
    struct rt_reason why;
    const char *json = own_json_end(cli->arena, put_all(compiled, cli));
    if (!json) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    if (page_write(cli->arena, cli->options->html, json, &why)) return 0;
    return diag_refusal(cli->diags, 611, EXIT_SYSTEM, NULL, &why);
}

static void put_ports(struct strbuf *out, const struct compiled_model *compiled, const char *key) {
    const struct rt_json *port = rt_json_items(compiled->root, key);
    for (; port; port = port->next) {
        strbuf_printf(out, "%-8s %s %s[", key, show_text(rt_json_member(port, "name"), out->arena),
                      show_text(rt_json_member(port, "dtype"), out->arena));
        const struct rt_json *shape = rt_json_member(port, "shape");
        for (const struct rt_json *dim = rt_json_first(shape); dim; dim = dim->next) {
            int64_t size = 0;
            const char *text = dim->kind == RT_JSON_STRING ? show_text(dim, out->arena) : NULL;
            rt_json_int(dim, &size);
            strbuf_printf(out, "%s%s", dim == shape->first ? "" : ",",
                          text ? text : arena_printf(out->arena, "%" PRId64, size));
        }
        strbuf_puts(out, "]\n");
    }
}

/* "sizes    batch=1..8, seq=1..512@128". */
static void put_sizes(struct strbuf *out, const struct compiled_model *compiled) {
    const struct rt_json *size = rt_json_items(compiled->root, "sizes");
    const char *before = "sizes    ";
    if (!size) return;
    for (; size; size = size->next, before = ", ") {
        const struct open_range range = {rt_json_number(size, "least", 0), rt_json_number(size, "most", 0),
                                         rt_json_number(size, "step", 0), rt_json_number(size, "typical", 0)};
        strbuf_printf(out, "%s%s=%s", before, show_text(rt_json_member(size, "name"), out->arena),
                      open_range_text(out->arena, &range));
    }
    strbuf_puts(out, "\n");
}

/* "batch=1, seq=128": the sizes at which the memory is shown that a run touches; "": none. */
static const char *sizes_touched(const struct compiled_model *compiled, struct arena *arena) {
    const struct rt_json *size = rt_json_items(compiled->root, "sizes");
    const char *text = "";
    for (; size && rt_json_member(size, "size"); size = size->next)
        text = arena_printf(arena, "%s%s%s=%" PRId64, text, *text ? ", " : "",
                            show_text(rt_json_member(size, "name"), arena), rt_json_number(size, "size", 0));
    return text;
}

static const char *mesh_text(const struct compiled_model *compiled, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    for (int a = 0; a < compiled->mesh.naxes; a++)
        strbuf_printf(&text, "%s%s", text.length ? ", " : "", mesh_axis_text(&compiled->mesh, a, arena));
    return strbuf_text(&text);
}

/* Adapters, of which the first takes part unless another is chosen. */
static void put_adapters(struct strbuf *out, const struct rt_json *name) {
    const char *before = "adapters ";
    for (; name; name = name->next, before = ", ")
        strbuf_printf(out, "%s%s%s", before, show_text(name, out->arena), name->next ? "" : "\n");
}

static void put_header(struct strbuf *out, const struct compiled_model *compiled) {
    const struct rt_json *root = compiled->root;
    int64_t units = compiled->runtime_ngpus / compiled->plan_ngpus;
    const char *mesh = mesh_text(compiled, out->arena);
    strbuf_printf(out, "model    %s, instance %s, target %s\n", show_text(rt_json_member(root, "model"), out->arena),
                  show_text(rt_json_member(root, "instance"), out->arena),
                  show_text(rt_json_member(root, "target"), out->arena));
    strbuf_printf(out, "plan     %s: %" PRId64 " scale unit%s of %" PRId64 " rank%s%s%s%s\n",
                  show_text(rt_json_member(root, "pas"), out->arena), units, units == 1 ? "" : "s",
                  compiled->plan_ngpus, compiled->plan_ngpus == 1 ? "" : "s", *mesh ? " (" : "", mesh,
                  *mesh ? ")" : "");
    put_adapters(out, rt_json_items(root, "adapters"));
    put_ports(out, compiled, "inputs");
    put_ports(out, compiled, "outputs");
    put_sizes(out, compiled);
}

static bool same_traffic(const struct rt_json *left, const struct rt_json *right, struct arena *arena) {
    return rt_json_number(left, "count", 0) == rt_json_number(right, "count", 0) &&
           rt_json_number(left, "bytes", 0) == rt_json_number(right, "bytes", 0) &&
           rt_json_number(left, "begun", 0) == rt_json_number(right, "begun", 0) &&
           rt_json_number(left, "prefetched", 0) == rt_json_number(right, "prefetched", 0) &&
           !strcmp(show_text(rt_json_member(left, "kind"), arena), show_text(rt_json_member(right, "kind"), arena));
}

/* Says whether gradients are reduced during the backward phase, and whether parameters are gathered early. */
static void put_overlap(struct strbuf *out, const struct rt_json *item) {
    const int64_t n = rt_json_number(item, "buckets", 0), begun = rt_json_number(item, "begun", 0),
                  prefetched = rt_json_number(item, "prefetched", 0);
    if (prefetched) strbuf_printf(out, ", %" PRId64 " prefetched", prefetched);
    if (begun) strbuf_printf(out, ", %" PRId64 " during backward", begun);
    if (n) strbuf_printf(out, ", during backward, in %" PRId64 " bucket%s", n, n == 1 ? "" : "s");
}

/* One line for equal communication of several groups of ranks. */
static void put_communication(struct strbuf *out, const struct compiled_model *compiled,
                              const struct rt_json **classes) {
    const struct rt_json *item = rt_json_items(compiled->root, "communication");
    struct strbuf lines = {.arena = out->arena};
    for (const struct rt_json *next; item; item = next) {
        const struct rank_groups groups = ranks_groups(compiled, item, classes, out->arena);
        int others = groups.all.n - 1;
        for (next = item->next; next && same_traffic(item, next, out->arena); next = next->next)
            others += ranks_groups(compiled, next, classes, out->arena).all.n;
        if (!groups.all.n) continue;
        const struct rank_list ranks = ranks_of_group(&groups.all.at[0], out->arena);
        strbuf_printf(&lines, "  %-16s %6" PRId64 "x  %10s  ranks %s",
                      show_text(rt_json_member(item, "kind"), out->arena), rt_json_number(item, "count", 0),
                      format_bytes(rt_json_number(item, "bytes", 0)).text, rank_list_text(&ranks, out->arena));
        if (others > 0) strbuf_printf(&lines, ", and %d more group%s", others, others == 1 ? "" : "s");
        put_overlap(&lines, item);
        strbuf_putc(&lines, '\n');
    }
    strbuf_printf(out, "\ncommunication per step%s\n%s", lines.length ? "" : ": none", strbuf_text(&lines));
}

/* "stage 1, 2 slots" of a pipeline coordinate; of one with several stages "stages 1,3: 4,2 slots". */
static const char *line_name(const struct compiled_model *compiled, int coordinate, const struct rt_json *slots,
                             struct arena *arena) {
    const struct rt_json *stages = rt_json_items(compiled->root, "stages");
    int64_t n = 0, stage = 0;
    if (!slots || slots->kind != RT_JSON_ARRAY) {
        if (slots) rt_json_int(slots, &n);
        return arena_printf(arena, "stage %d, %2" PRId64 " slot%s", coordinate, n, n == 1 ? " " : "s");
    }
    struct strbuf name = {.arena = arena}, numbers = {.arena = arena};
    for (const struct rt_json *home = stages; home; home = home->next, stage++)
        if (rt_json_int(home, &n) && n == coordinate)
            strbuf_printf(&name, "%s%" PRId64, name.length ? "," : "stages ", stage);
    for (const struct rt_json *of = rt_json_first(slots); of; of = of->next)
        if (rt_json_int(of, &n)) strbuf_printf(&numbers, "%s%" PRId64, numbers.length ? "," : "", n);
    return arena_printf(arena, "%s: %s slots", strbuf_text(&name), strbuf_text(&numbers));
}

/* "  slots of values that gradients of weights do not need: 4 3 2 1": of each stage; several at one coordinate as
 * "4,1". Nothing if there are none. */
static void put_slots(struct strbuf *out, const struct rt_json *schedule, const char *key, const char *what) {
    const struct rt_json *stage = rt_json_items(schedule, key);
    int64_t n = 0;
    if (!stage) return;
    strbuf_printf(out, "  slots of values %s:", what);
    for (; stage; stage = stage->next) {
        const bool list = stage->kind == RT_JSON_ARRAY;
        const char *before = " ";
        for (const struct rt_json *of = list ? rt_json_first(stage) : stage; of;
             of = list ? of->next : NULL, before = ",")
            if (rt_json_int(of, &n)) strbuf_printf(out, "%s%" PRId64, before, n);
    }
    strbuf_putc(out, '\n');
}

enum { MOST_COLUMNS = 1000 }; /* of a timeline */

/* The timeline of pipeline stages in training. */
static void put_schedule(struct strbuf *out, const struct compiled_model *compiled) {
    const struct rt_json *schedule = rt_json_member(compiled->root, "schedule");
    const struct rt_json *slots = rt_json_items(schedule, "slots");
    double bubble = 0;
    int coordinate = 0;
    if (!schedule) return;
    rt_json_real(rt_json_member(schedule, "bubble"), &bubble);
    strbuf_printf(out, "\nschedule %s, %" PRId64 " micro-batches: stages wait %.0f %% of the time by the cost model",
                  show_text(rt_json_member(schedule, "name"), out->arena), rt_json_number(schedule, "micro_batches", 0),
                  100 * bubble);
    if (rt_json_real(rt_json_member(schedule, "bubble_overlapped"), &bubble))
        strbuf_printf(out, ", %.0f %% if steps overlapped", 100 * bubble);
    strbuf_putc(out, '\n');
    const struct rt_json *line = rt_json_items(schedule, "timeline");
    for (; line; line = line->next, slots = slots ? slots->next : NULL) {
        strbuf_printf(
            out, "  %s | %s\n", line_name(compiled, coordinate++, slots, out->arena),
            line->kind == RT_JSON_STRING ? str_escape(out->arena, line->text, (size_t)line->count, MOST_COLUMNS) : "?");
    }
    const bool divided = rt_json_member(schedule, "slots_to_weight") != NULL; /* the backward phase */
    put_slots(out, schedule, "slots_to_backward",
              divided ? "that gradients of weights do not need" : "that are neither sent nor received");
    put_slots(out, schedule, "slots_to_weight", "that the backward pass computes for them");
    put_slots(out, schedule, "slots_of_gradients", "that are sent or received in the backward pass");
}

/* Ranks that need equal amounts of memory. */
struct memory_row {
    int64_t bytes[MEMORY_KINDS];
    struct rank_list ranks;
};
struct memory_rows {
    VEC(struct memory_row) all;
};

static int find_row(struct memory_rows *rows, const int64_t bytes[MEMORY_KINDS], struct arena *arena) {
    struct memory_row row = {0};
    for (int i = 0; i < rows->all.n; i++)
        if (!memcmp(rows->all.at[i].bytes, bytes, sizeof row.bytes)) return i;
    memcpy(row.bytes, bytes, sizeof row.bytes);
    VEC_PUSH(arena, &rows->all, row);
    return rows->all.n - 1;
}

static void read_rows(struct memory_rows *rows, const struct compiled_model *compiled, const char *key,
                      const struct rt_json **classes, bool used[MEMORY_KINDS], struct arena *arena) {
    int *row = ARENA_ARRAY(arena, int, compiled->plan_ngpus); /* per rank of a scale unit */
    for (int64_t rank = 0; rank < compiled->plan_ngpus; rank++) {
        int64_t bytes[MEMORY_KINDS];
        memory_of_class(compiled, classes[rank], key, bytes);
        for (int i = 0; i < MEMORY_KINDS; i++) used[i] |= bytes[i] != 0;
        row[rank] = find_row(rows, bytes, arena);
    }
    for (int64_t rank = 0; rank < compiled->runtime_ngpus; rank++)
        VEC_PUSH(arena, &rows->all.at[row[rank % compiled->plan_ngpus]].ranks.all, rank);
}

static int column_width(int kind) {
    return strlen(memory_kinds[kind]) < 10 ? 10 : 13;
}

/* A table of the memory that is planned, or touched, which is member `key` of the classes. */
static void put_memory(struct strbuf *out, const struct compiled_model *compiled, const struct rt_json **classes,
                       const char *key, const char *title) {
    struct memory_rows rows = {0};
    bool used[MEMORY_KINDS] = {[MEMORY_KINDS - 1] = true};
    read_rows(&rows, compiled, key, classes, used, out->arena);
    strbuf_printf(out, "\n%-20s", title);
    for (int i = 0; i < MEMORY_KINDS; i++)
        if (used[i]) strbuf_printf(out, " %*s", column_width(i), memory_kinds[i]);
    strbuf_putc(out, '\n');
    VEC_EACH(&rows.all, r, const struct memory_row *row) {
        const char *name = arena_printf(out->arena, "rank%s %s", row->ranks.all.n == 1 ? "" : "s",
                                        rank_list_text(&row->ranks, out->arena));
        strbuf_printf(out, "  %-18s", name);
        for (int i = 0; i < MEMORY_KINDS; i++)
            if (used[i]) strbuf_printf(out, " %*s", column_width(i), format_bytes(row->bytes[i]).text);
        strbuf_printf(out, "   (%" PRId64 " bytes)\n", row->bytes[MEMORY_KINDS - 1]);
    }
}

/* True if ranks divide the tensor along the axis. */
static bool is_divided(const struct rt_json *tensor, const char *axis) {
    for (const struct rt_json *cut = rt_json_items(tensor, "slices"); cut; cut = cut->next) {
        const char *name = rt_json_text(rt_json_member(cut, "axis"));
        if (name && !strcmp(name, axis)) return true;
    }
    return false;
}

static int64_t stored_bytes(const struct rt_json *tensor) {
    const char *name = rt_json_text(rt_json_member(tensor, "dtype"));
    const enum rt_dtype dtype = name ? rt_dtype_by_name(name) : RT_DTYPE_NONE;
    uint64_t bytes = dtype == RT_DTYPE_NONE ? 0 : rt_dtype_bytes(dtype);
    for (const struct rt_json *dim = rt_json_items(tensor, "shape"); dim; dim = dim->next) {
        int64_t size = 0;
        rt_json_int(dim, &size);
        bytes *= (uint64_t)size; /* unsigned: a manifest may hold any number */
    }
    return (int64_t)bytes;
}

/* The weights that tensor parallelism does not divide, if there are any. */
static void put_whole_weights(struct strbuf *out, const struct compiled_model *compiled) {
    const char *axis = axis_rows[AXIS_TENSOR].name;
    const struct rt_json *largest = NULL;
    int64_t whole = 0, all = 0;
    if (mesh_axis_by_name(&compiled->mesh, axis) < 0 || memory_ways(compiled, axis) < 2) return;
    for (const struct rt_json *t = rt_json_items(compiled->root, "tensors"); t; t = t->next) {
        const int64_t bytes = stored_bytes(t);
        all += bytes;
        if (is_divided(t, axis)) continue;
        whole += bytes;
        if (!largest || bytes > stored_bytes(largest)) largest = t;
    }
    if (!whole) return;
    strbuf_printf(out, "\nwhole along %s: %s of %s of weights, the largest is %s, %s\n", axis, format_bytes(whole).text,
                  format_bytes(all).text, show_text(rt_json_member(largest, "name"), out->arena),
                  format_bytes(stored_bytes(largest)).text);
}

/* The largest number of that name among all ranks; -1: no rank has one. */
static int64_t most_of(const struct compiled_model *compiled, const struct rt_json **classes, const char *key) {
    int64_t most = -1, bytes;
    for (int rank = 0; rank < compiled->plan_ngpus; rank++)
        if (rt_json_int(rt_json_member(classes[rank], key), &bytes) && bytes > most) most = bytes;
    return most;
}

/* What a step copies of the caches that ranks keep, and replaces of other states, on the rank where that is most. */
static void put_state(struct strbuf *out, const struct compiled_model *compiled, const struct rt_json **classes) {
    const int64_t copied = most_of(compiled, classes, "state_copied");
    const int64_t replaced = most_of(compiled, classes, "state_replaced");
    if (copied < 0) return;
    strbuf_printf(out, "\nstate: a step copies %s of caches", copied ? format_bytes(copied).text : "nothing");
    if (replaced > 0) strbuf_printf(out, ", and replaces %s of other states", format_bytes(replaced).text);
    strbuf_printf(out, "\n");
}

static int show(const struct compiled_model *compiled, struct cli *cli) {
    if (cli->options->html && write_page(compiled, cli)) return -1;
    if (cli->options->json) return cli_print_json(cli, put_all(compiled, cli));
    const struct rt_json **classes = ranks_classes(compiled, cli->arena);
    struct strbuf out = {.arena = cli->arena};
    put_header(&out, compiled);
    show_tree(&out, compiled, cli->options->verbose);
    show_parameters(&out, compiled, cli->options->verbose);
    put_communication(&out, compiled, classes);
    put_schedule(&out, compiled);
    put_memory(&out, compiled, classes, "memory", "memory");
    if (*sizes_touched(compiled, cli->arena)) {
        put_memory(&out, compiled, classes, "touched", "touched");
        strbuf_printf(&out, "  by a run of %s\n", sizes_touched(compiled, cli->arena));
    }
    put_state(&out, compiled, classes);
    show_estimate(&out, compiled);
    put_whole_weights(&out, compiled);
    fputs(strbuf_text(&out), stdout);
    return 0;
}

int show_model(struct cli *cli) {
    struct compiled_model compiled;
    const char *manifest = NULL;
    int ranks;
    if (driver_plan(cli->options, cli->arena, cli->diags, &manifest, &ranks)) return -1;
    if (compiled_parse(&compiled, manifest, ranks, cli)) return -1;
    int status = show(&compiled, cli);
    compiled_close(&compiled);
    return status;
}

/* With --dim: the memory that runs of these sizes touch, too. */
static int show_at(const struct compiled_model *compiled, struct cli *cli) {
    struct compiled_model at;
    const char *manifest = NULL;
    if (driver_show_at(compiled->directory, cli->options, cli->arena, cli->diags, &manifest) < 0 ||
        compiled_parse(&at, manifest, compiled->runtime_ngpus, cli) < 0)
        return -1;
    int status = show(&at, cli);
    compiled_close(&at);
    return status;
}

static int show_directory(struct cli *cli) {
    struct compiled_model compiled;
    if (compiled_open(&compiled, cli->options->operand, cli)) return -1;
    int status = cli->options->dims.all.n ? show_at(&compiled, cli) : show(&compiled, cli);
    compiled_close(&compiled);
    return status;
}

int cli_show(struct cli *cli) {
    if (!is_directory(cli->options->operand)) return show_model(cli);
    return compiled_refuses_options(cli) ? -1 : show_directory(cli);
}
