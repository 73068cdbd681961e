/* Names of manifest.json in errors. It is read when an error is asked for, and without it errors have no names. */
#include "core/place.h"

#include "base/number/checked.h"
#include "base/text/json.h"
#include "base/manifest.h"
#include "base/io/sealed.h"

#include <stdio.h>
#include <string.h>

static struct rt_json_document *read_manifest(const struct rt_private *private) {
    struct rt_reason why;
    bool intact;
    return rt_sealed_read(private->directory, "manifest.json", &intact, &why);
}

bool rt_place_of(const struct rt_json *root, int instruction, char *text, size_t room) {
    const struct rt_json *entry = rt_json_item(root, "instructions", instruction);
    const char *node = rt_json_text(rt_json_member(entry, "node"));
    const char *op = rt_json_text(rt_json_member(entry, "op"));
    const char *from = rt_json_text(rt_json_member(entry, "from"));
    if (!node || !op) return false;
    snprintf(text, room, "node '%s' (%s)%s%s", rt_quote_text(node).text, rt_quote_text(op).text, from ? " " : "",
             from ? rt_quote_text(from).text : "");
    return true;
}

void rt_place_error(struct rt_private *private) {
    char place[sizeof private->error];
    const int instruction = private->failed_at - 1;
    if (instruction < 0) return;
    private->failed_at = 0;
    struct rt_json_document *manifest = read_manifest(private);
    if (!manifest) return;
    const size_t length = strlen(private->error);
    if (rt_place_of(rt_json_root(manifest), instruction, place, sizeof place))
        snprintf(private->error + length, sizeof private->error - length, ", in %s", place);
    rt_json_free(manifest);
}

/* The bytes of an input of the current step: of the model, the gradient of an output, or a control. */
static int64_t input_bytes(const struct rt *rt, int64_t input) {
    const struct rt_program *program = rt->program;
    const int64_t gradients = program->training ? program->training->seeds : 0, gradient = input - program->ninputs;
    int64_t elements, bytes;
    if (gradient >= gradients) return gradient < gradients + RT_CONTROLS ? sizeof rt->internal->control[0] : 0;
    const struct rt_port *port = gradient < 0 ? &program->inputs[input] : &program->outputs[gradient];
    const struct rt_port at = rt_port_at(port, rt->extents);
    const bool fits =
        rt_product(at.dims, at.ndim, &elements) && rt_mul(elements, (int64_t)rt_dtype_bytes(port->dtype), &bytes);
    return fits ? bytes : 0;
}

const unsigned char *rt_value_at(const struct rt *rt, const struct rt_value_place *place, int64_t start,
                                 int64_t bytes) {
    const struct rt_private *private = rt->internal;
    const unsigned char *base;
    int64_t room, at = 0;
    if (place->offset < 0 || place->stride < 0 || place->set < 0 || place->set >= RT_SLOT_SETS || start < 0 ||
        bytes < 0)
        return NULL;
    if (place->arena == MANIFEST_FLAT) {
        if (place->offset >= rt->rank_class->nflats) return NULL;
        base = rt->slice[place->offset];
        room = private->bytes[rt->rank_class->flats[place->offset].arena] - private->flat_at[place->offset];
    } else if (place->arena == RT_CALLER) {
        room = input_bytes(rt, place->offset);
        if (!rt->inputs || !room) return NULL;
        base = rt->inputs[place->offset];
    } else {
        if (place->arena < 0 || place->arena >= RT_ARENAS ||
            !rt_mul((int64_t)rt->slot[place->set], place->stride, &at) || !rt_add(at, place->offset, &at))
            return NULL;
        base = rt->arena[place->arena];
        room = private->bytes[place->arena];
    }
    if (!base || at > room || start > room - at || bytes > room - at - start) return NULL;
    return base + at + start;
}

int rt_fail_input(struct rt *rt, int input) {
    const int gradient = input - rt->program->ninputs;
    if (gradient >= 0) return rt_fail(rt, RT_ERROR_USAGE, "the gradient of output %d is NULL", gradient);
    struct rt_json_document *manifest = read_manifest(rt->internal);
    const struct rt_json *port = manifest ? rt_json_item(rt_json_root(manifest), "inputs", input) : NULL;
    const char *name = port ? rt_json_text(rt_json_member(port, "name")) : NULL;
    if (name)
        rt_fail(rt, RT_ERROR_USAGE, "input %d, '%s', is NULL", input, rt_quote_text(name).text);
    else
        rt_fail(rt, RT_ERROR_USAGE, "input %d is NULL", input);
    rt_json_free(manifest);
    return RT_ERROR_USAGE;
}
