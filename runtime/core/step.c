/* What a step consists of: executes segments, passes complete inputs to them, and copies complete outputs back. */
#include "core/place.h"

#include "base/number/checked.h"
#include "kernels/c/kernels.h"

#include <stdlib.h>

static size_t port_bytes(const struct rt *rt, const struct rt_port *port) {
    const struct rt_port at = rt_port_at(port, rt->extents);
    int64_t count = 0;
    rt_product(at.dims, at.ndim, &count);
    return (size_t)count * rt_dtype_bytes(port->dtype);
}

static unsigned char *slot_address(const struct rt *rt, const struct rt_place *place, size_t slot) {
    if (place->arena == RT_CALLER) return (unsigned char *)(uintptr_t)rt->inputs[place->offset];
    return rt->arena[place->arena] + place->offset + slot * place->stride;
}

static unsigned char *place_address(const struct rt *rt, const struct rt_place *place) {
    return slot_address(rt, place, rt->slot[place->set]);
}

const void *rt_current_output(const struct rt *rt, int index) {
    const struct rt_place *place = &rt->rank_class->outputs[index];
    return place->offset == RT_ABSENT ? NULL : place_address(rt, place);
}

/* Outputs of a program that trains are followed by gradients of its inputs and metrics. */
static int hidden_outputs(const struct rt_program *program) {
    return program->training ? program->training->gradients + program->training->metrics : 0;
}

/* rt->slot is that of the last segment, which may be an update, or a backward segment of another micro-batch. */
const void *rt_output(const struct rt *rt, int index) {
    if (!rt || index < 0 || index >= rt->program->noutputs + hidden_outputs(rt->program)) return NULL;
    const struct rt_place *place = &rt->rank_class->outputs[index];
    const int slots = rt->rank_class->schedule.slots[place->set];
    const size_t slot = slots ? (size_t)(rt->internal->forwarded[place->set % RT_MAX_CHUNKS] % slots) : 0;
    return place->offset == RT_ABSENT ? NULL : slot_address(rt, place, slot);
}

/* rt->internal->given has one pointer per input; the controls follow. */
static int take_input(struct rt *rt, int port, const void *input) {
    const struct rt_place *place = &rt->rank_class->inputs[port];
    const size_t bytes = port_bytes(rt, &rt->program->inputs[port]);
    const bool held = place->offset != RT_ABSENT || place->arena == RT_CALLER;
    if (!input && held && bytes > 0) return rt_fail_input(rt, port);
    rt->internal->given[port] = input;
    if (bytes == 0 || place->offset == RT_ABSENT) return RT_OK;
    return rt->program->device->put(rt, place_address(rt, place), input, bytes);
}

/* Executes a segment with the current controls. */
static int run_segment(struct rt *rt, const struct rt_segment *segment) {
    const struct rt_private *private = rt->internal;
    const size_t controls = rt->rank_class->controls;
    rt->inputs = private->given;
    if (rt->program->device->remote && controls != RT_ABSENT)
        RT_TRY(rt->program->device->put(rt, rt->arena[RT_ACTIVATIONS] + controls, private->control,
                                        sizeof private->control));
    return rt->program->device->run(rt, segment);
}

int rt_take_inputs(struct rt *rt, int first, int n, const void *const *inputs) {
    for (int i = 0; i < n; i++) RT_TRY(take_input(rt, first + i, inputs[i]));
    return RT_OK;
}

static struct rt_request *request_of(const struct rt *rt, int transfer, int micro) {
    const struct rt_schedule *schedule = &rt->rank_class->schedule;
    const int slot = rt_schedule_slot(schedule, rt->rank_class->transfers[transfer].chunk, micro);
    return &rt->internal->requests[(transfer * rt_schedule_most_slots(schedule) + slot) * rt->internal->most_peers];
}

/* True if the call asks for the phase and the micro-batch. */
static bool is_called(const struct rt *rt, enum phase phase, int micro) {
    const struct rt_call *call = rt->internal->call;
    return (call->phases >> phase & 1) && micro < call->micro_batches;
}

/* Makes the micro-batch and the chunk the current ones. Sets of slots that the phase does not access stay at slot 0,
 * so that a device that records a segment for each combination of slots has few of them. */
static void enter(struct rt *rt, enum phase phase, int chunk, int micro) {
    const struct rt_schedule *schedule = &rt->rank_class->schedule;
    for (int s = 0; s < RT_SLOT_SETS; s++) {
        const bool used = schedule->slots[s] && rt_slot_is_used((enum rt_slot_kind)(s / RT_MAX_CHUNKS), phase);
        rt->slot[s] = used ? (size_t)(micro % schedule->slots[s]) : 0;
    }
    rt->internal->chunk = chunk;
    rt->internal->micro = micro;
}

/* `values`: the operands of the instruction are there, and its result will be when the next one begins. If not,
 * observers that read values are told of no instruction. */
static void observe(struct rt *rt, int instruction, bool values) {
    for (struct rt_observer *o = rt->internal->observers; o; o = o->next)
        o->begins(o, rt, o->reads_values && !values ? -1 : instruction);
}

static void begin(struct rt *rt, int instruction, bool values) {
    rt->instruction = instruction;
    observe(rt, instruction, values);
    if (rt->comm->driver->report) rt->comm->driver->report(rt->comm, rt->step, instruction);
}

/* Observers are told of the end of a segment: what follows may overwrite its last result. */
int rt_run(struct rt *rt, int segment, int micro) {
    const struct rt_segment *of = &rt->rank_class->segments[segment];
    const struct rt_call *call = rt->internal->call;
    const struct rt_around *around = &call->around[of->phase];
    if (!is_called(rt, of->phase, micro)) return RT_OK;
    enter(rt, of->phase, of->chunk, micro);
    if (around->before) RT_TRY(around->before(rt, call->context, micro));
    RT_TRY(run_segment(rt, of));
    if (of->phase == PHASE_FORWARD) rt->internal->forwarded[of->chunk] = micro;
    observe(rt, -1, true);
    return around->after ? around->after(rt, call->context, micro) : RT_OK;
}

/* Posts an end of a transfer, or waits for it. */
static int transfer(struct rt *rt, int number, int micro, bool waits) {
    const struct rt_transfer *end = &rt->rank_class->transfers[number];
    struct rt_comm *comm = rt->axis[rt->program->stages - 1];
    struct rt_request *request = request_of(rt, number, micro);
    const int extent = rt_open_extent(end->bytes);
    const size_t bytes = (size_t)(extent < 0 ? end->bytes : rt->extents[extent]);
    int status = RT_OK;
    enter(rt, end->phase, end->chunk, micro);
    begin(rt, end->instruction,
          end->sends != waits); /* a value to be sent exists already; a received one exists after the wait */
    void *value = place_address(rt, &end->place);
    for (int peer = -1; !status && (peer = rt_next_peer(rt, end->peer, end->sends, peer)) >= 0; request++) {
        if (waits)
            status = comm->driver->wait(comm, request);
        else if (end->sends)
            status = comm->driver->post_send(comm, value, bytes, peer, request);
        else
            status = comm->driver->post_receive(comm, value, bytes, peer, request);
    }
    if (status) return rt_fail_comm(rt, comm, status);
    observe(rt, -1, true);
    return RT_OK;
}

static int transfer_all(struct rt *rt, int first, int n, int micro, bool waits) {
    if (!is_called(rt, rt->rank_class->transfers[first].phase, micro)) return RT_OK;
    for (int i = first; i < first + n; i++) RT_TRY(transfer(rt, i, micro, waits));
    return RT_OK;
}

int rt_post(struct rt *rt, int first, int n, int micro) {
    return transfer_all(rt, first, n, micro, false);
}

int rt_wait(struct rt *rt, int first, int n, int micro) {
    return transfer_all(rt, first, n, micro, true);
}

/* A function that the caller passed, such as a hook, may execute another part of a step meanwhile. */
int rt_execute(struct rt *rt, const struct rt_call *call) {
    const struct rt_rank_class *class = rt->rank_class;
    const struct rt_call *outer = rt->internal->call;
    const int least = class->schedule.micro_batches;
    rt->internal->call = call;
    const int status = class->step(rt, call->micro_batches > least ? call->micro_batches : least);
    rt->internal->call = outer;
    return status;
}

int rt_give_outputs(struct rt *rt, int first, int n, void *const *outputs) {
    for (int i = 0; i < n; i++) {
        const size_t bytes = port_bytes(rt, &rt->program->outputs[first + i]);
        const struct rt_place *place = &rt->rank_class->outputs[first + i];
        if (!outputs[i] || bytes == 0 || place->offset == RT_ABSENT) continue;
        const void *at = place_address(rt, place);
        if (at != outputs[i]) RT_TRY(rt->program->device->get(rt, outputs[i], at, bytes));
    }
    return RT_OK;
}

bool rt_is_watched(const struct rt *rt) {
    return rt->internal->observers != NULL;
}

void rt_observe(struct rt *rt, struct rt_observer *observer) {
    struct rt_observer **end = &rt->internal->observers;
    while (*end) end = &(*end)->next;
    observer->next = NULL;
    *end = observer;
}

void rt_observe_end(struct rt *rt, struct rt_observer *observer) {
    struct rt_observer **at = &rt->internal->observers;
    while (*at && *at != observer) at = &(*at)->next;
    if (*at) *at = observer->next;
}

bool rt_values_are_read(const struct rt *rt) {
    const struct rt_observer *o = rt->internal->observers;
    while (o && !o->reads_values) o = o->next;
    return o != NULL;
}

void rt_at(struct rt *rt, int instruction) {
    begin(rt, instruction, true);
}

int rt_begin_step(struct rt *rt) {
    rt->step++;
    rt->internal->error[0] = 0;
    rt_at(rt, -1);
    return rt_kernels_threads(rt->threads);
}

int rt_end_step(struct rt *rt, int threads, int status) {
    rt_kernels_threads(threads);
    if (!status && !rt->internal->ahead) status = rt->program->device->finish(rt);
    if (!status && rt->internal->misclosed && !rt->internal->embedded) status = rt_refuse_close(rt);
    if (!status) {
        rt_at(rt, -1);
        return RT_OK;
    }
    if (!rt->internal->error[0]) rt_fail(rt, status, "step %lld failed", (long long)rt->step);
    if (status != RT_ERROR_PEER) rt->internal->failed_at = rt->instruction + 1;
    rt->comm->driver->abort(rt->comm); /* ends the other ranks' waits */
    return status;
}

int rt_take_micro_batch(struct rt *rt, const void *const *inputs, int micro) {
    for (int i = 0; i < rt->program->ninputs; i++) {
        const struct rt_port *port = &rt->program->inputs[i];
        const unsigned char *input = inputs[i];
        if (input && !port->shared) input += (size_t)micro * port_bytes(rt, port);
        RT_TRY(take_input(rt, i, input));
    }
    return RT_OK;
}

int rt_give_micro_batch(struct rt *rt, void *const *outputs, int micro) {
    for (int i = 0; i < rt->program->noutputs; i++) {
        unsigned char *output = outputs[i];
        if (!output || rt->rank_class->outputs[i].chunk != rt->internal->chunk) continue;
        output += (size_t)micro * port_bytes(rt, &rt->program->outputs[i]);
        RT_TRY(rt_give_outputs(rt, i, 1, &(void *){output}));
    }
    return RT_OK;
}

int rt_inferred_micro_batches(const struct rt_program *program) {
    return program->micro_batches > 1 ? program->micro_batches : 1;
}

struct rt_port rt_whole_port(const struct rt_program *program, const struct rt_port *port, const int64_t *extents) {
    struct rt_port whole = rt_port_at(port, extents);
    if (port->ndim && !port->shared) whole.dims[0] *= rt_inferred_micro_batches(program);
    return whole;
}

int64_t rt_most_bytes(const struct rt_program *program, const struct rt_port *port, const int64_t *most_extents) {
    const struct rt_port whole = rt_whole_port(program, port, most_extents);
    const int64_t parts = port->ndim ? rt_inferred_micro_batches(program) : 1;
    int64_t count, most, bytes;
    if (!rt_product(whole.dims, whole.ndim, &count) || !rt_mul(port->most, parts, &most)) return -1;
    return rt_mul(count > most ? count : most, (int64_t)rt_dtype_bytes(port->dtype), &bytes) ? bytes : -1;
}

/* The caller's tensors of an inference step. */
struct tensors {
    const void *const *inputs;
    void *const *outputs;
};

static int take_inputs(struct rt *rt, void *context, int micro) {
    const struct tensors *tensors = context;
    rt->internal->control[RT_MICRO] = (double)rt_numbered(rt, micro);
    return rt->internal->ahead ? RT_OK : rt_take_micro_batch(rt, tensors->inputs, micro);
}

/* Where the output of all micro-batches goes; NULL: nowhere. */
static unsigned char *joined_output(const struct rt *rt, const struct tensors *tensors, int output) {
    if (tensors->outputs[output] || !rt->internal->joined) return tensors->outputs[output];
    return rt->internal->joined[output];
}

static int give_outputs(struct rt *rt, void *context, int micro) {
    const struct tensors *tensors = context;
    for (int i = 0; i < rt->program->noutputs && !rt->internal->ahead; i++) {
        void *output = joined_output(rt, tensors, i);
        if (output && micro)
            output = (unsigned char *)output + (size_t)micro * port_bytes(rt, &rt->program->outputs[i]);
        RT_TRY(rt_give_outputs(rt, i, 1, &output));
    }
    return RT_OK;
}

/* Pipeline stages that have an output, by their coordinates: the first of them and their number. */
struct holders {
    int first, n;
};

static struct holders find_holders(const struct rt *rt, int output) {
    const struct rt_program *program = rt->program;
    const int axis = program->mesh.stages;
    struct holders holders = {0};
    int coordinate[RT_MAX_AXES];
    rt_mesh_coordinates(&program->mesh, rt->shard, coordinate);
    for (int c = program->mesh.axis[axis].size - 1; c >= 0; c--) {
        coordinate[axis] = c;
        const int shard = rt_mesh_shard(&program->mesh, coordinate);
        if (program->classes[program->class_of_shard[shard]].outputs[output].offset == RT_ABSENT) continue;
        holders.first = c;
        holders.n++;
    }
    return holders;
}

/* Memory for the outputs that pass through this rank to others, where its caller does not give any. */
static int allocate_joined(struct rt *rt, const struct tensors *tensors) {
    struct rt_private *private = rt->internal;
    if (!private->joined) private->joined = calloc((size_t)rt->program->noutputs + 1, sizeof *private->joined);
    if (!private->joined) return rt_fail_memory(rt);
    for (int i = 0; i < rt->program->noutputs; i++) {
        if (tensors->outputs[i] || private->joined[i]) continue;
        const int64_t bytes = rt_most_bytes(rt->program, &rt->program->outputs[i], private->most_extents);
        private->joined[i] = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
        if (!private->joined[i]) return rt_fail_memory(rt);
    }
    return RT_OK;
}

void rt_free_joined(struct rt *rt) {
    for (int i = 0; rt->internal->joined && i < rt->program->noutputs; i++) free(rt->internal->joined[i]);
    free(rt->internal->joined);
}

/* True if a pipeline stage does not have all outputs. Those of inference with one micro-batch are brought to all stages
 * by nodes of the program; a program that trains has none for its loss. */
static bool lacks_outputs(const struct rt *rt) {
    for (int i = 0; rt->program->stages && i < rt->program->noutputs; i++)
        if (find_holders(rt, i).n < rt->program->mesh.axis[rt->program->mesh.stages].size) return true;
    return false;
}

bool rt_keeps_outputs(const struct rt *rt) {
    return rt_inferred_micro_batches(rt->program) == 1 && !lacks_outputs(rt);
}

/* Gives outputs to the pipeline stages that do not have them. */
static int share_outputs(struct rt *rt, const struct tensors *tensors) {
    const int axis = rt->program->mesh.stages;
    RT_TRY(rt->program->device->finish(rt));
    for (int i = 0; i < rt->program->noutputs; i++) {
        const struct rt_port whole = rt_whole_port(rt->program, &rt->program->outputs[i], rt->extents);
        const struct holders holders = find_holders(rt, i);
        struct rt_comm *comm = rt->internal->split[axis];
        if (holders.n == rt->program->mesh.axis[axis].size || !port_bytes(rt, &whole)) continue;
        const int status = comm->driver->broadcast(comm, joined_output(rt, tensors, i), port_bytes(rt, &whole),
                                                   rt_first_member(rt, holders.first));
        if (status) return rt_fail_comm(rt, comm, status);
    }
    return RT_OK;
}

/* Executes the forward phase of all micro-batches. */
static int infer(struct rt *rt, struct tensors *tensors) {
    static const struct rt_around around[PHASES] = {[PHASE_FORWARD] = {take_inputs, give_outputs}};
    const int micro_batches = rt_inferred_micro_batches(rt->program);
    const struct rt_call call = {1u << PHASE_FORWARD, micro_batches, around, tensors};
    const bool shares = lacks_outputs(rt);
    if (shares) RT_TRY(allocate_joined(rt, tensors));
    RT_TRY(rt_execute(rt, &call));
    return shares ? share_outputs(rt, tensors) : RT_OK;
}

/* Gradients of a single micro-batch, and sums over ranks, lie in memory that the forward phase uses too. */
static bool overwrites_gradients(const struct rt *rt) {
    const struct rt_training *training = rt->program->training;
    return training && ((training->accumulate == 1 && !training->seeds) || rt->internal->reduced);
}

static int infer_step(struct rt *rt, struct tensors tensors) {
    RT_TRY(rt_begin_sizes(rt));
    const int threads = rt_begin_step(rt);
    double *control = rt->internal->control;
    int status = rt_end_sums(rt); /* those under way write to that memory */
    if (overwrites_gradients(rt)) rt->internal->lost = true;
    control[RT_REAL] = control[RT_TRAINING] = 0; /* kept state, such as running statistics, is not updated */
    control[RT_STEP] = (double)rt->step;         /* random operators draw other numbers in each step and scale unit */
    if (!status) status = rt_take_first_unit(rt);
    if (!status) status = infer(rt, &tensors);
    status = rt_end_step(rt, threads, status);
    if (!status) rt_end_sizes(rt);
    return status;
}

int rt_infer_step(struct rt *rt, const void *const *inputs, void *const *outputs) {
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, inputs);
    RT_NEEDS(rt, outputs);
    return infer_step(rt, (struct tensors){inputs, outputs});
}

int rt_infer_ahead(struct rt *rt) {
    rt->internal->ahead = true;
    const int status = infer_step(rt, (struct tensors){NULL, NULL});
    rt->internal->ahead = false;
    return status;
}
