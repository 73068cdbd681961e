/* rankc show DIR|MODEL.onnx: prints the plan in a manifest, that of DIR or that which compiling MODEL.onnx would
 * write. */
#include "frontend/cli/show.h"

#include <inttypes.h>
#include <stdio.h>

#include "frontend/cli/format_bytes.h"
#include "frontend/driver/driver.h"

const char *show_text(const struct rt_json *value, struct arena *arena) {
    if (!value || value->kind != RT_JSON_STRING) return "?";
    return str_escape(arena, value->text, (size_t)value->count, 120);
}

/* Unsigned, since a manifest may hold any number. */
static uint64_t step_after(const struct rank_list *list, int i) {
    return (uint64_t)list->all.at[i + 1] - (uint64_t)list->all.at[i];
}

/* The last index of the longest run of equal steps that starts at i. */
static int end_of_run(const struct rank_list *list, int i) {
    int last = i + 1 < list->all.n ? i + 1 : i;
    while (last + 1 < list->all.n && step_after(list, last) == step_after(list, i)) last++;
    return last;
}

const char *rank_list_text(const struct rank_list *list, struct arena *arena) {
    const int64_t *rank = list->all.at;
    struct strbuf text;
    strbuf_init(&text, arena);
    for (int i = 0, last; i < list->all.n; i = last + 1) {
        last = end_of_run(list, i);
        uint64_t step = last > i ? step_after(list, i) : 0;
        strbuf_printf(&text, "%s%" PRId64, i ? "," : "", rank[i]);
        if (step == 1)
            strbuf_printf(&text, "-%" PRId64, rank[last]);
        else if (last - i >= 3)
            strbuf_printf(&text, ",%" PRId64 "..%" PRId64, rank[i + 1], rank[last]);
        else
            last = i;
    }
    return strbuf_text(&text);
}

const char *show_ranks(const struct rt_json *ranks, struct arena *arena) {
    struct rank_list list = {0};
    if (!ranks || ranks->kind != RT_JSON_ARRAY) return "?";
    for (const struct rt_json *rank = ranks->first; rank; rank = rank->next) {
        int64_t number = 0;
        rt_json_int(rank, &number);
        VEC_PUSH(arena, &list.all, number);
    }
    return rank_list_text(&list, arena);
}

static int64_t integer(const struct rt_json *object, const char *key) {
    int64_t value = 0;
    rt_json_int(rt_json_member(object, key), &value);
    return value;
}

static const struct rt_json *elements(const struct rt_json *array) {
    return array && array->kind == RT_JSON_ARRAY ? array->first : NULL;
}

/* --json ----------------------------------------------------------------------------------------------------------- */

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

static int show_json(const struct compiled_model *compiled, struct cli *cli) {
    static const char *const keys[] = {"model",         "target", "plan_ngpus", "runtime_ngpus", "ranks",
                                       "communication", "nodes",  "parameters", "constants"};
    enum { OF_TRAINING = 2 }; /* the last keys, shown only if the model is trained */
    struct rt_json_writer *writer = own_json_writer(cli->arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key(writer, "format"), rt_json_put_int(writer, 1);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct rt_json *value = rt_json_member(compiled->root, keys[i]);
        if (!value && i >= sizeof keys / sizeof *keys - OF_TRAINING) continue;
        rt_json_key(writer, keys[i]);
        if (value)
            copy_value(writer, value, RT_JSON_LINES);
        else
            rt_json_put_null(writer);
    }
    rt_json_close(writer, '}');
    return cli_print_json(cli, writer);
}

/* ---- text ---- */

static void put_ports(struct strbuf *out, const struct compiled_model *compiled, const char *key) {
    const struct rt_json *port = elements(rt_json_member(compiled->root, key));
    for (; port; port = port->next) {
        strbuf_printf(out, "%-8s %s %s[", key, show_text(rt_json_member(port, "name"), out->arena),
                      show_text(rt_json_member(port, "dtype"), out->arena));
        const struct rt_json *shape = rt_json_member(port, "shape");
        for (const struct rt_json *dim = elements(shape); dim; dim = dim->next) {
            int64_t size = 0;
            rt_json_int(dim, &size);
            strbuf_printf(out, "%s%" PRId64, dim == shape->first ? "" : ",", size);
        }
        strbuf_puts(out, "]\n");
    }
}

static const char *mesh_text(const struct compiled_model *compiled, struct arena *arena) {
    struct strbuf text;
    strbuf_init(&text, arena);
    const struct rt_json *axis = elements(rt_json_member(compiled->root, "mesh"));
    for (; axis; axis = axis->next)
        strbuf_printf(&text, "%s%s=%" PRId64, text.length ? ", " : "", show_text(rt_json_member(axis, "axis"), arena),
                      integer(axis, "size"));
    return strbuf_text(&text);
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
    put_ports(out, compiled, "inputs");
    put_ports(out, compiled, "outputs");
}

static bool same_traffic(const struct rt_json *left, const struct rt_json *right, struct arena *arena) {
    return integer(left, "count") == integer(right, "count") && integer(left, "bytes") == integer(right, "bytes") &&
           integer(left, "begun") == integer(right, "begun") &&
           !strcmp(show_text(rt_json_member(left, "kind"), arena), show_text(rt_json_member(right, "kind"), arena));
}

/* Says whether gradients are reduced during the backward phase. */
static void put_overlap(struct strbuf *out, const struct rt_json *item) {
    const int64_t n = integer(item, "buckets"), begun = integer(item, "begun");
    if (begun) strbuf_printf(out, ", %" PRId64 " during backward", begun);
    if (n) strbuf_printf(out, ", during backward, in %" PRId64 " bucket%s", n, n == 1 ? "" : "s");
}

/* One line for equal communication of several groups of ranks. */
static void put_communication(struct strbuf *out, const struct compiled_model *compiled) {
    const struct rt_json *item = elements(rt_json_member(compiled->root, "communication"));
    strbuf_puts(out, "\ncommunication per step");
    if (!item) strbuf_puts(out, ": none");
    strbuf_putc(out, '\n');
    for (const struct rt_json *next; item; item = next) {
        int others = 0;
        for (next = item->next; next && same_traffic(item, next, out->arena); next = next->next) others++;
        strbuf_printf(out, "  %-16s %6" PRId64 "x  %10s  ranks %s", show_text(rt_json_member(item, "kind"), out->arena),
                      integer(item, "count"), format_bytes(integer(item, "bytes")).text,
                      show_ranks(rt_json_member(item, "group"), out->arena));
        if (others) strbuf_printf(out, ", and %d more group%s", others, others == 1 ? "" : "s");
        put_overlap(out, item);
        strbuf_putc(out, '\n');
    }
}

/* ---- memory ---- */

static const char *const memory_kinds[] = {"weights",       "gradients", "optimizer", "activations",
                                           "communication", "scratch",   "peak"};
enum { MEMORY_KINDS = sizeof memory_kinds / sizeof *memory_kinds };

static void read_memory(const struct rt_json *rank, int64_t bytes[MEMORY_KINDS]) {
    for (int i = 0; i < MEMORY_KINDS; i++) bytes[i] = integer(rt_json_member(rank, "memory"), memory_kinds[i]);
}

/* Ranks that need equal amounts of memory. */
struct memory_row {
    int64_t bytes[MEMORY_KINDS];
    struct rank_list ranks;
};
struct memory_rows {
    VEC(struct memory_row) all;
};

static struct memory_row *find_row(struct memory_rows *rows, const int64_t bytes[MEMORY_KINDS], struct arena *arena) {
    struct memory_row row = {0};
    for (int i = 0; i < rows->all.n; i++)
        if (!memcmp(rows->all.at[i].bytes, bytes, sizeof row.bytes)) return &rows->all.at[i];
    memcpy(row.bytes, bytes, sizeof row.bytes);
    VEC_PUSH(arena, &rows->all, row);
    return &rows->all.at[rows->all.n - 1];
}

static void read_rows(struct memory_rows *rows, const struct compiled_model *compiled, bool used[MEMORY_KINDS],
                      struct arena *arena) {
    const struct rt_json *rank = elements(rt_json_member(compiled->root, "ranks"));
    for (; rank; rank = rank->next) {
        int64_t bytes[MEMORY_KINDS];
        read_memory(rank, bytes);
        for (int i = 0; i < MEMORY_KINDS; i++) used[i] |= bytes[i] != 0;
        VEC_PUSH(arena, &find_row(rows, bytes, arena)->ranks.all, integer(rank, "rank"));
    }
}

static int column_width(int kind) {
    return strlen(memory_kinds[kind]) < 10 ? 10 : 13;
}

static void put_memory(struct strbuf *out, const struct compiled_model *compiled) {
    struct memory_rows rows = {0};
    bool used[MEMORY_KINDS] = {[MEMORY_KINDS - 1] = true};
    read_rows(&rows, compiled, used, out->arena);
    strbuf_printf(out, "\n%-20s", "memory");
    for (int i = 0; i < MEMORY_KINDS; i++)
        if (used[i]) strbuf_printf(out, " %*s", column_width(i), memory_kinds[i]);
    strbuf_putc(out, '\n');
    for (int r = 0; r < rows.all.n; r++) {
        const struct memory_row *row = &rows.all.at[r];
        const char *name = arena_printf(out->arena, "rank%s %s", row->ranks.all.n == 1 ? "" : "s",
                                        rank_list_text(&row->ranks, out->arena));
        strbuf_printf(out, "  %-18s", name);
        for (int i = 0; i < MEMORY_KINDS; i++)
            if (used[i]) strbuf_printf(out, " %*s", column_width(i), format_bytes(row->bytes[i]).text);
        strbuf_printf(out, "   (%" PRId64 " bytes)\n", row->bytes[MEMORY_KINDS - 1]);
    }
}

/* ---- the verbs ---- */

static int show(const struct compiled_model *compiled, struct cli *cli) {
    if (cli->options->json) return show_json(compiled, cli);
    struct strbuf out;
    strbuf_init(&out, cli->arena);
    put_header(&out, compiled);
    show_tree(&out, compiled, cli->options->verbose);
    show_parameters(&out, compiled, cli->options->verbose);
    put_communication(&out, compiled);
    put_memory(&out, compiled);
    fputs(strbuf_text(&out), stdout);
    return 0;
}

int show_model(struct cli *cli) {
    struct compiled_model compiled;
    const char *manifest = NULL;
    if (driver_plan(cli->options, cli->arena, cli->diags, &manifest)) return -1;
    if (compiled_parse(&compiled, manifest, cli)) return -1;
    int status = show(&compiled, cli);
    compiled_close(&compiled);
    return status;
}

static int show_directory(struct cli *cli) {
    struct compiled_model compiled;
    if (compiled_open(&compiled, cli->options->operand, cli)) return -1;
    int status = show(&compiled, cli);
    compiled_close(&compiled);
    return status;
}

int cli_show(struct cli *cli) {
    if (!is_directory(cli->options->operand)) return show_model(cli);
    return compiled_refuses_options(cli) ? -1 : show_directory(cli);
}
