/* Sizes that are chosen at run time (struct rt_size). */
#include "base/number/formula.h"
#include "core/private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rt_port rt_port_at(const struct rt_port *port, const int64_t *extents) {
    struct rt_port at = *port;
    for (int d = 0; d < port->ndim; d++) {
        const int extent = rt_open_extent(port->dims[d]);
        if (extent >= 0) at.dims[d] = extents[extent];
    }
    return at;
}

int rt_port_extents(const struct rt *rt, const struct rt_port *port, int64_t *dims) {
    if (!rt || !port || !dims) return RT_ERROR_USAGE;
    const struct rt_port at = rt_port_at(port, rt->extents);
    memcpy(dims, at.dims, (size_t)port->ndim * sizeof *dims);
    return RT_OK;
}

void rt_most_sizes(const struct rt_program *program, int64_t *sizes) {
    for (int s = 0; s < program->nsizes; s++) sizes[s] = program->sizes[s].most;
}

bool rt_size_fits(const struct rt_size *size, int64_t value) {
    return value >= size->least && value <= size->most && (value - size->least) % size->step == 0;
}

void rt_size_range(const struct rt_size *size, char *text, size_t room) {
    if (size->least == size->most)
        snprintf(text, room, "%" PRId64, size->most);
    else if (size->step == 1)
        snprintf(text, room, "%" PRId64 " to %" PRId64, size->least, size->most);
    else
        snprintf(text, room, "%" PRId64 " to %" PRId64 " in steps of %" PRId64, size->least, size->most, size->step);
}

/* At open: the extents of the largest sizes. */
int rt_open_sizes(struct rt *rt) {
    const struct rt_program *program = rt->program;
    int64_t sizes[RT_MAX_SIZES];
    if (!program->nsizes) return RT_OK;
    struct rt_private *private = rt->internal;
    rt->extents = private->extents = calloc((size_t)program->nextents * 2, sizeof *private->extents);
    if (!private->extents) return rt_fail_memory(rt);
    private->most_extents = private->extents + program->nextents;
    rt_most_sizes(program, sizes);
    program->find_extents(sizes, private->most_extents);
    for (int s = 0; s < program->nsizes; s++) private->sizes[s] = program->sizes[s].next ? 0 : sizes[s];
    program->find_extents(private->sizes, private->extents);
    return RT_OK;
}

int rt_begin_sizes(struct rt *rt) {
    const struct rt_program *program = rt->program;
    if (program->nsizes) program->find_extents(rt->internal->sizes, rt->internal->extents);
    for (int s = 0; s < program->nsizes; s++) {
        const struct rt_size *size = &program->sizes[s];
        const int64_t rows = rt->extents[size->next ? size->next - 1 : s];
        if (size->next && rows > size->most)
            return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_FULL,
                                "the step needs room for %" PRId64
                                " rows of state, %s, but it was compiled for %" PRId64,
                                rows, size->name, size->most);
    }
    for (int i = 0; i < program->nlimits; i++) {
        const struct rt_limit *limit = &program->limits[i];
        if (rt->extents[limit->extent] > limit->most)
            return rt_fail(rt, RT_ERROR_INPUT, "%s is %" PRId64 ", but may be at most %" PRId64, limit->name,
                           rt->extents[limit->extent], limit->most);
    }
    return RT_OK;
}

void rt_end_sizes(struct rt *rt) {
    const struct rt_program *program = rt->program;
    rt->internal->state_changed = true;
    for (int s = 0; s < program->nsizes; s++)
        if (program->sizes[s].next) rt->internal->sizes[s] = rt->extents[program->sizes[s].next - 1];
}

static bool size_of_name(void *context, const char *name, size_t length, int64_t *out) {
    const struct rt *rt = context;
    for (int s = 0; s < rt->program->nsizes; s++) {
        const char *own = rt->program->sizes[s].name;
        if (strlen(own) != length || memcmp(own, name, length) != 0) continue;
        *out = rt->extents[s];
        return true;
    }
    return false;
}

void rt_size_formula(const struct rt *rt, const char *text, int64_t *out) {
    const struct rt_formula formula = {size_of_name, NULL, (void *)(uintptr_t)rt};
    if (!text || rt_formula_read(&formula, text, out, NULL, NULL) != RT_FORMULA_OK) *out = 0;
}

void rt_sizes_text(const struct rt *rt, char *text, size_t room) {
    const struct rt_program *program = rt->program;
    size_t used = 0;
    for (int s = 0; s < program->nsizes && used < room; s++)
        used += (size_t)snprintf(text + used, room - used, "%s%s %" PRId64, s ? ", " : "; this rank has the sizes ",
                                 program->sizes[s].name, rt->extents[s]);
}

int rt_set_sizes(struct rt *rt, const int64_t *sizes) {
    if (!rt) return RT_ERROR_USAGE;
    const struct rt_program *program = rt->program;
    if (!sizes && program->nsizes) return rt_refuse_null(rt, "sizes");
    for (int s = 0; s < program->nsizes; s++) {
        const struct rt_size *size = &program->sizes[s];
        char range[80];
        if (size->next || rt_size_fits(size, sizes[s])) continue;
        rt_size_range(size, range, sizeof range);
        return rt_fail(rt, RT_ERROR_INPUT, "size %s is %" PRId64 ", but the program was compiled for %s", size->name,
                       sizes[s], range);
    }
    for (int s = 0; s < program->nsizes; s++)
        if (!program->sizes[s].next) rt->internal->sizes[s] = sizes[s];
    if (program->nsizes) program->find_extents(rt->internal->sizes, rt->internal->extents);
    return RT_OK;
}
