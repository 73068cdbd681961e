/* Shapes of programs that rankc generate executes one after the other: they are compared before the first begins. */
#include "frontend/cli/generate_ports.h"

#include <inttypes.h>
#include <string.h>

#include "ir/base/str.h"

void ports_read(struct ports *ports, const struct compiled_model *compiled, const char *name, struct cli *cli) {
    const struct rt_json *sizes = rt_json_member(compiled->root, "sizes");
    *ports = (struct ports){.name = name,
                            .inputs = rt_json_member(compiled->root, "inputs"),
                            .outputs = rt_json_member(compiled->root, "outputs")};
    for (const struct rt_json *size = sizes ? sizes->first : NULL; size; size = size->next) {
        const char *text = rt_json_text(rt_json_member(size, "name"));
        const struct port_size read = {text ? text : "", rt_json_number(size, "least", 0),
                                       rt_json_number(size, "most", INT64_MAX), rt_json_number(size, "step", 1), -1};
        VEC_PUSH(cli->arena, &ports->sizes, read);
    }
}

const char *port_name(const struct rt_json *port) {
    const char *name = rt_json_text(rt_json_member(port, "name"));
    return name ? name : "";
}

enum rt_dtype port_dtype(const struct rt_json *port) {
    const char *name = rt_json_text(rt_json_member(port, "dtype"));
    return rt_dtype_by_name(name ? name : "");
}

/* The index of the size that the dimension is; -1: a number, or an expression. */
static int size_of(const struct ports *ports, const struct rt_json *dim) {
    const char *name = dim ? rt_json_text(dim) : NULL;
    for (int s = 0; name && s < ports->sizes.n; s++)
        if (strcmp(ports->sizes.at[s].name, name) == 0) return s;
    return -1;
}

static const struct rt_json *dims_of(const struct rt_json *port) {
    const struct rt_json *shape = rt_json_member(port, "shape");
    return shape && shape->kind == RT_JSON_ARRAY && shape->count <= RT_MAX_NDIM ? shape : NULL;
}

/* "[3, 16, 64]"; "?" for what is not known. */
static const char *shape_text(struct cli *cli, int ndim, const int64_t *dims) {
    struct strbuf text = {.arena = cli->arena};
    strbuf_puts(&text, "[");
    for (int d = 0; d < ndim; d++) {
        if (d) strbuf_puts(&text, ", ");
        if (dims[d] < 0)
            strbuf_puts(&text, "?");
        else
            strbuf_printf(&text, "%" PRId64, dims[d]);
    }
    strbuf_puts(&text, "]");
    return strbuf_text(&text);
}

/* "[batch, 24, 64]" */
static const char *port_text(const struct rt_json *port, struct cli *cli) {
    const struct rt_json *shape = dims_of(port);
    struct strbuf text = {.arena = cli->arena};
    strbuf_puts(&text, "[");
    for (const struct rt_json *dim = shape ? shape->first : NULL; dim; dim = dim->next) {
        const char *name = rt_json_text(dim);
        int64_t number = 0;
        if (dim != shape->first) strbuf_puts(&text, ", ");
        if (name)
            strbuf_puts(&text, str_escape(cli->arena, name, strlen(name), 80));
        else if (rt_json_int(dim, &number))
            strbuf_printf(&text, "%" PRId64, number);
    }
    strbuf_puts(&text, "]");
    return strbuf_text(&text);
}

static int refuse(const struct ports *ports, const struct rt_json *input, const struct value *value, struct cli *cli) {
    return diag_error(cli->diags, 915, EXIT_MALFORMED, ports->name, "input %s has the shape %s, but %s from %s has %s",
                      diag_quote(cli->diags, port_name(input)), port_text(input, cli),
                      diag_quote(cli->diags, value->name), value->from, shape_text(cli, value->ndim, value->dims));
}

static int choose(struct ports *ports, int s, int64_t extent, const struct rt_json *input, const struct value *value,
                  struct cli *cli) {
    struct port_size *size = &ports->sizes.at[s];
    if (extent < size->least || extent > size->most || (extent - size->least) % size->step) {
        refuse(ports, input, value, cli);
        return diag_note(
            cli->diags, "%s is one of %s", diag_quote(cli->diags, size->name),
            open_range_text(cli->arena, &(struct open_range){size->least, size->most, size->step, size->most}));
    }
    if (size->chosen >= 0 && size->chosen != extent) {
        refuse(ports, input, value, cli);
        return diag_note(cli->diags, "%s is %" PRId64 " for another input", diag_quote(cli->diags, size->name),
                         size->chosen);
    }
    size->chosen = extent;
    return 0;
}

int ports_give(struct ports *ports, const struct rt_json *input, const struct value *value, struct cli *cli) {
    const struct rt_json *shape = dims_of(input), *dim = shape ? shape->first : NULL;
    if (!shape || value->ndim < 0) return 0;
    if (value->ndim != (int)shape->count) return refuse(ports, input, value, cli);
    for (int d = 0; dim; d++, dim = dim->next) {
        const int s = size_of(ports, dim);
        int64_t number;
        if (value->dims[d] < 0) continue;
        if (rt_json_int(dim, &number) && number != value->dims[d]) return refuse(ports, input, value, cli);
        if (s >= 0 && choose(ports, s, value->dims[d], input, value, cli) < 0) return -1;
    }
    return 0;
}

void ports_shape(const struct ports *ports, const struct rt_json *output, struct value *out) {
    const struct rt_json *shape = dims_of(output);
    out->ndim = shape ? (int)shape->count : -1;
    int d = 0;
    for (const struct rt_json *dim = shape ? shape->first : NULL; dim; dim = dim->next, d++) {
        const int s = size_of(ports, dim);
        if (!rt_json_int(dim, &out->dims[d])) out->dims[d] = s < 0 ? -1 : ports->sizes.at[s].chosen;
    }
}

int64_t ports_extent(const struct ports *ports, const struct rt_json *input, int d, int64_t wanted) {
    const struct rt_json *shape = dims_of(input), *dim = shape ? shape->first : NULL;
    for (; d && dim; d--) dim = dim->next;
    const int s = size_of(ports, dim);
    int64_t number = 0;
    if (s < 0) return dim && rt_json_int(dim, &number) && number > wanted ? number : wanted;
    const struct port_size *size = &ports->sizes.at[s];
    if (wanted <= size->least) return size->least;
    const int64_t extent = size->least + (wanted - size->least + size->step - 1) / size->step * size->step;
    return extent <= size->most ? extent : wanted;
}
