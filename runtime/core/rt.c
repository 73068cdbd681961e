/* Opening and closing a rank. */
#include "core/handshake.h"
#include "core/place.h"

#include "base/thread/cores.h"
#include "base/thread/wait.h"
#include "base/text/diagnostic.h"
#include "base/io/progress.h"
#include "comm/mpi_library.h"
#include "kernels/c/kernels.h"
#include "comm/comm_mpi.h"
#include "comm/join_mpi.h"
#include "comm/rendezvous.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Error of a failed rt_open: there is no struct rt to hold it. */
static _Thread_local struct {
    char text[sizeof((struct rt_private *)0)->error];
    int code;
    bool told, agreed;
} open_error;

static int default_code(int status) {
    switch (status) {
    case RT_ERROR_INPUT: return RT_CODE_DATA;
    case RT_ERROR_SYSTEM: return RT_CODE_OPEN;
    case RT_ERROR_MISMATCH: return RT_CODE_FORMAT;
    case RT_ERROR_PEER: return RT_CODE_RANK;
    case RT_ERROR_DEVICE: return RT_CODE_DEVICE;
    case RT_ERROR_BUSY: return RT_CODE_BUSY;
    default: return RT_CODE_USAGE;
    }
}

static int record(struct rt *rt, int status, int code, const char *format, va_list arguments) {
    vsnprintf(rt->internal->error, sizeof rt->internal->error, format, arguments);
    rt_plurals(rt->internal->error);
    rt->internal->code = code;
    rt->internal->failed_at = 0;
    rt->internal->agreed = false;
    rt->internal->told = status == RT_ERROR_PEER && code == RT_CODE_RANK && rt_meeting_lost(rt->internal->meeting) < 0;
    return status;
}

int rt_fail(struct rt *rt, int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record(rt, status, default_code(status), format, arguments);
    va_end(arguments);
    return status;
}

int rt_fail_code(struct rt *rt, int status, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record(rt, status, code, format, arguments);
    va_end(arguments);
    return status;
}

int rt_fail_memory(struct rt *rt) {
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory");
}

int rt_refuse_null(struct rt *rt, const char *argument) {
    if (!rt) return rt_fail_open(RT_ERROR_USAGE, RT_CODE_USAGE, "%s is NULL", argument);
    return rt_fail(rt, RT_ERROR_USAGE, "%s is NULL", argument);
}

int rt_status_of_exit(enum exit_code exit) {
    switch (exit) {
    case EXIT_USAGE: return RT_ERROR_USAGE;
    case EXIT_MALFORMED: return RT_ERROR_INPUT;
    case EXIT_MISMATCH: return RT_ERROR_MISMATCH;
    default: return RT_ERROR_SYSTEM;
    }
}

int rt_fail_reason(struct rt *rt, const char *what, struct rt_report content, const struct rt_reason *why) {
    const struct rt_report report = rt_reason_report(why, content);
    const int status = rt_status_of_exit(report.exit);
    if (what && why->kind == RT_REASON_CONTENT) return rt_fail_code(rt, status, report.code, "%s: %s", what, why->text);
    return rt_fail_code(rt, status, report.code, "%s", why->text);
}

int rt_fail_comm(struct rt *rt, const struct rt_comm *comm, int status) {
    const int lost = rt_meeting_lost(rt->internal->meeting);
    if (status == RT_ERROR_PEER && lost >= 0)
        return rt_fail(rt, status, "rank %d ended before the job was complete", lost);
    if (status == RT_ERROR_PEER) return rt_fail(rt, status, "another rank failed");
    const int code = status == RT_ERROR_USAGE    ? RT_CODE_CALLS
                     : status == RT_ERROR_DEVICE ? RT_CODE_DEVICE
                                                 : RT_CODE_SEGMENT;
    char sizes[200] = "";
    if (code == RT_CODE_CALLS) rt_sizes_text(rt, sizes, sizeof sizes);
    return rt_fail_code(rt, status, code, "%s%s", comm->why[0] ? comm->why : "communication failed", sizes);
}

void rt_warn(const struct rt *rt, int code, const char *format, ...) {
    char text[sizeof rt->internal->error];
    const struct rt_diagnostic item = {.severity = RT_SEVERITY_WARNING, .code = code, .text = text};
    RT_PRINT_TO(text, format);
    if (rt_mpi_launched()) rt_progress_clear(); /* rank 0's, which no launcher removes */
    rt_diagnostic_print(&item, stderr, rt->internal->json ? RT_DIAGNOSTIC_JSON : RT_DIAGNOSTIC_PLAIN);
}

const char *rt_error_text(const struct rt *rt) {
    return rt ? rt->internal->error : open_error.text;
}
const char *rt_error(const struct rt *rt) {
    if (rt) rt_place_error(rt->internal);
    return rt_error_text(rt);
}
int rt_error_code(const struct rt *rt) {
    return rt ? rt->internal->code : open_error.code;
}
bool rt_error_told(const struct rt *rt) {
    return rt ? rt->internal->told : open_error.told;
}
bool rt_error_agreed(const struct rt *rt) {
    return rt ? rt->internal->agreed : open_error.agreed;
}

static int check_program(struct rt *rt) {
    const struct rt_program *program = rt->program;
    if (program->format != RT_FORMAT)
        return rt_fail(rt, RT_ERROR_MISMATCH, "the program has format %d, but this runtime needs format %d",
                       program->format, RT_FORMAT);
    if (program->plan_ngpus < 1 || rt_mesh_shards(&program->mesh) != program->plan_ngpus)
        return rt_fail(rt, RT_ERROR_MISMATCH, "the program's mesh does not match its number of ranks");
    return RT_OK;
}

static int place_shard(struct rt *rt) {
    const struct rt_program *program = rt->program;
    rt->unit = rt->rank / program->plan_ngpus;
    rt->shard = rt->rank % program->plan_ngpus;
    rt->rank_class = &program->classes[program->class_of_shard[rt->shard]];
    rt_mesh_coordinates(&program->mesh, rt->shard, rt->coordinate);
    for (int a = 0; a < program->mesh.naxes; a++) rt->ways[a] = rt_mesh_ways(&program->mesh, a, rt_stage(rt));
    rt->internal->counts = calloc(2 * (size_t)rt->world, sizeof(*rt->internal->counts));
    return rt->internal->counts ? RT_OK : rt_fail_memory(rt);
}

/* Checks that all ranks run the same program. */
static int shake_hands(struct rt *rt) {
    char mine[RT_HASH_HEX], *all;
    rt_identify(rt->program, mine);
    RT_TRY(rt_gather_hashes(rt, mine, &all));
    int status = RT_OK;
    for (int r = 1; r < rt->world && !status; r++)
        status = rt_compare_identities(rt, r, all, all + (size_t)r * RT_HASH_HEX);
    free(all);
    return status;
}

/* The first rank of the group along the axis. */
static int first_along(const struct rt *rt, int axis) {
    const struct rt_mesh *mesh = &rt->program->mesh;
    if (axis == mesh->stages && !rt_mesh_is_even(mesh)) return rt->rank - rt->shard;
    return rt->rank - rt->coordinate[axis] * rt_mesh_stride(mesh, axis, rt_stage(rt));
}

static int open_axes(struct rt *rt) {
    const struct rt_program *program = rt->program;
    for (int a = 0; a < program->mesh.naxes; a++) {
        const int color = first_along(rt, a);
        struct rt_comm **split = &rt->internal->split[a];
        int status;
        if (program->mesh.axis[a].size == 1)
            status = rt_comm_open_self(split);
        else
            status = rt->comm->driver->split(rt->comm, color, split);
        if (status) return rt_fail_comm(rt, rt->comm, status);
        rt->axis[a] = *split;
        if (program->communicates & 1u << a) RT_TRY(program->device->connect(rt, *split, color, &rt->axis[a]));
    }
    return RT_OK;
}

int rt_layout_axes(const struct rt *rt) {
    return rt->program->mesh.naxes + rt->program->nreplicas;
}

/* A replica axis: the units of the same `color`. */
static int open_replicas(struct rt *rt, int axis, int coordinate, int color) {
    struct rt_comm **split = &rt->internal->split[axis];
    int status = rt->units->size == 1 ? rt_comm_open_self(split) : rt->units->driver->split(rt->units, color, split);
    if (status) return rt_fail_comm(rt, rt->units, status);
    rt->coordinate[axis] = coordinate;
    rt->ways[axis] = (*split)->size;
    rt->axis[axis] = *split;
    const int distinct = (axis * rt->units->size + color) * rt->program->plan_ngpus + rt->shard;
    return rt->program->device->connect(rt, *split, distinct, &rt->axis[axis]);
}

/* The ranks with the same shard number, one per scale unit; the replica axes are its units, or those of a ZeRO group
 * and the groups. */
static int open_units(struct rt *rt) {
    const int axis = rt->program->mesh.naxes, groups = rt->program->zero_groups;
    const bool alone = rt->world == rt->program->plan_ngpus;
    int status = alone ? rt_comm_open_self(&rt->units) : rt->comm->driver->split(rt->comm, rt->shard, &rt->units);
    if (status) return rt_fail_comm(rt, rt->comm, status);
    if (!rt->program->nreplicas) return RT_OK;
    if (rt->units->size % groups)
        return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_GROUPS,
                            "%d scale unit(s) cannot be divided into %d ZeRO groups of equal size", rt->units->size,
                            groups);
    const int each = rt->units->size / groups;
    RT_TRY(open_replicas(rt, axis, rt->unit % each, rt->unit / each));
    return rt->program->nreplicas > 1 ? open_replicas(rt, axis + 1, rt->unit / each, rt->unit % each) : RT_OK;
}

static int open_controls(struct rt *rt) {
    struct rt_private *private = rt->internal;
    RT_TRY(rt_open_sizes(rt));
    const struct rt_training *training = rt->program->training;
    const int ports = rt->program->ninputs + (training ? training->seeds : 0);
    private->given = calloc((size_t)ports + RT_CONTROLS, sizeof *private->given);
    if (!private->given) return rt_fail_memory(rt);
    private->most_peers = rt_most_peers(rt);
    const size_t transfers = (size_t)(rt->rank_class->ntransfers * rt_schedule_most_slots(&rt->rank_class->schedule));
    private->requests = calloc(transfers * (size_t) private->most_peers + 1, sizeof *private->requests);
    if (!private->requests) return rt_fail_memory(rt);
    for (int c = 0; c < RT_CONTROLS; c++) private->given[ports + c] = &private->control[c];
    private->last = true;
    if (training) {
        private->lr = training->lr;
        private->schedule = training->schedule;
        RT_TRY(rt_set_accumulate(rt, training->accumulate));
        rt_reset_gradients(rt);
    }
    return RT_OK;
}

size_t rt_arena_bytes(const struct rt *rt, int arena) {
    return (size_t)rt->internal->bytes[arena] + 1;
}

/* True if the arenas that peers reach lie in the transport's symmetric memory. */
static bool uses_segment(const struct rt *rt) {
    const size_t bytes = rt_symmetric_bytes(rt->rank_class);
    return !rt->program->device->remote && bytes > 0 && rt_comm_segment_bytes(rt->comm) >= bytes;
}

static int open_arena(struct rt *rt, enum rt_arena arena) {
    const size_t bytes = (size_t)rt->internal->bytes[arena];
    size_t before = 0;
    for (int a = 0; a < (int)arena; a++)
        before += rt_reaches(rt->rank_class, (enum rt_arena)a) ? rt->rank_class->bytes[a] : 0;
    if (rt_reaches(rt->rank_class, arena) && uses_segment(rt)) {
        rt->arena[arena] = (unsigned char *)rt_comm_segment(rt->comm) + before;
        if (!rt->program->nsizes)
            memset(rt->arena[arena], 0, bytes); /* else only values lie there, which are written */
    } else {
        rt->arena[arena] = rt->internal->owned[arena] =
            rt->program->device->allocate(rt, arena, rt_arena_bytes(rt, arena));
    }
    if (rt->arena[arena]) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory: an arena needs %zu bytes", bytes);
}

/* Cores are divided among the ranks of this machine only. Kernels start no more threads than cores (kernels/team.c). */
static int set_threads(struct rt *rt, int threads) {
    const int ranks = rt->internal->local_world > 0 ? rt->internal->local_world : rt->world, cores = rt_cores();
    const int share = cores / ranks;
    rt->threads = threads > 0 ? threads : share > 0 ? share : 1;
    rt_wait_beside((rt->threads < cores ? rt->threads : cores) * ranks);
    return rt_check_mpi_threads(rt);
}

static int select_kernels(struct rt *rt, const char *name) {
    if (rt_kernels_select(rt, name) < 0)
        return rt_fail(rt, RT_ERROR_USAGE, "unknown kernel set '%s' (auto, reference, tf32)", name);
    if (!rt->tf32 || rt->program->device->remote) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "kernel set tf32 needs a GPU: compile with --target cuda");
}

static int meet(struct rt *rt) {
    return rt_end_collective(rt, rt->comm, rt->comm->driver->barrier(rt->comm));
}

static int open_device(struct rt *rt, const struct rt_options *options) {
    if (rt->program->device->remote || (!options->nccl_comm && !options->cuda_stream))
        return rt->program->device->open(rt, options);
    return rt_fail(rt, RT_ERROR_USAGE, "a caller's %s is for programs that were compiled with --target cuda",
                   options->nccl_comm ? "NCCL communicator" : "stream");
}

/* Of the caller's options, what must be the same on all ranks. */
static void add_terms(struct rt_terms *terms, const struct rt_options *options) {
    const char *kernels = options->kernels ? options->kernels : "auto";
    const char *adapter = options->adapter ? options->adapter : "";
    const bool nccl = options->nccl_comm, stream = options->cuda_stream, broadcast = options->broadcast_weights;
    rt_terms_add(terms, "options.kernels", kernels, kernels);
    rt_terms_add(terms, "options.adapter", adapter, adapter);
    rt_terms_add(terms, "options.broadcast_weights", broadcast ? "1" : "0", broadcast ? "" : NULL);
    rt_terms_add(terms, "options.nccl_comm", nccl ? "1" : "0", nccl ? "" : NULL);
    rt_terms_add(terms, "options.cuda_stream", stream ? "1" : "0", stream ? "" : NULL);
}

static int agree(struct rt *rt, const struct rt_options *options, struct rt_agreed *agreed) {
    add_terms(&agreed->terms, options);
    RT_TRY(rt_agree(rt, &agreed->terms));
    return agreed->next ? agreed->next(agreed->context, rt) : RT_OK;
}

static int check_options(struct rt *rt, const struct rt_options *options) {
    const char *negative = options->join_timeout < 0 ? "join_timeout"
                           : options->threads < 0    ? "threads"
                           : options->world < 0      ? "world"
                                                     : NULL;
    if (!negative) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "options.%s is negative", negative);
}

static int open_rank(struct rt *rt, const struct rt_options *options, struct rt_agreed *agreed) {
    RT_TRY(check_options(rt, options));
    RT_TRY(check_program(rt));
    RT_TRY(rt_take_adapter(rt, options->adapter));
    RT_TRY(rt_join(rt, options));
    RT_TRY(place_shard(rt));
    RT_TRY(shake_hands(rt));
    RT_TRY(agree(rt, options, agreed));
    RT_TRY(open_device(rt, options));
    RT_TRY(open_axes(rt));
    RT_TRY(open_units(rt));
    RT_TRY(open_controls(rt));
    RT_TRY(set_threads(rt, options->threads));
    RT_TRY(select_kernels(rt, options->kernels));
    RT_TRY(rt_flat_open(rt));
    for (int a = 0; a < RT_ARENAS; a++) RT_TRY(open_arena(rt, (enum rt_arena)a));
    rt_flat_find(rt);
    RT_TRY(rt_load_weights(rt));
    return meet(rt);
}

int rt_fail_open(int status, int code, const char *format, ...) {
    RT_PRINT_TO(open_error.text, format);
    open_error.code = code;
    open_error.told = open_error.agreed = false;
    return status;
}

static int fail_open(struct rt *rt, int status) {
    memcpy(open_error.text, rt->internal->error, sizeof open_error.text);
    open_error.code = rt->internal->code;
    open_error.told = rt->internal->told;
    open_error.agreed = rt->internal->agreed;
    if (rt->comm && !open_error.agreed) rt->comm->driver->abort(rt->comm);
    rt_close(rt);
    return status;
}

int rt_open(struct rt **out, const struct rt_program *program, const struct rt_options *options) {
    struct rt_agreed agreed = {0};
    const int status = rt_open_agreed(out, program, options, &agreed);
    rt_terms_free(&agreed.terms);
    return status;
}

int rt_open_agreed(struct rt **out, const struct rt_program *program, const struct rt_options *options,
                   struct rt_agreed *agreed) {
    RT_NEEDS(NULL, out);
    *out = NULL;
    RT_NEEDS(NULL, program);
    RT_NEEDS(NULL, options);
    struct rt *rt = calloc(1, sizeof *rt);
    struct rt_private *private = calloc(1, sizeof *private);
    if (!rt || !private) {
        free(rt);
        free(private);
        return rt_fail_open(RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory");
    }
    rt->program = program;
    rt->internal = private;
    rt->instruction = -1;
    private->directory = options->directory ? options->directory : ".";
    private->json = options->json;
    private->segment = -1;
    private->broadcast_weights = options->broadcast_weights;
    private->progress = options->progress;
    int status = open_rank(rt, options, agreed);
    if (status) return fail_open(rt, status);
    *out = rt;
    return RT_OK;
}

void rt_abort(struct rt *rt) {
    if (rt) rt->comm->driver->abort(rt->comm);
}

int rt_program_ranks(const struct rt_program *program) {
    return program ? program->plan_ngpus : 0;
}

const struct rt_port *rt_program_input(const struct rt_program *program, int index) {
    return program && index >= 0 && index < program->ninputs ? &program->inputs[index] : NULL;
}

const struct rt_port *rt_program_output(const struct rt_program *program, int index) {
    return program && index >= 0 && index < program->noutputs ? &program->outputs[index] : NULL;
}

int rt_rank(const struct rt *rt) {
    return rt ? rt->rank : -1;
}

int rt_world(const struct rt *rt) {
    return rt ? rt->world : 0;
}

int rt_units(const struct rt *rt) {
    return rt ? rt->units->size : 0;
}

int rt_scale_unit(const struct rt *rt) {
    return rt ? rt->unit : -1;
}

/* A rank that is used must not be released: its user goes on with it. */
static bool is_used(struct rt *rt) {
    if (!rt->internal->embedded && !rt->internal->call) return false;
    rt->internal->misclosed = true;
    return true;
}

int rt_refuse_close(struct rt *rt) {
    rt->internal->misclosed = false;
    return rt_fail(rt, RT_ERROR_USAGE,
                   "the rank was closed while it is used: rt_run_threads closes its ranks, and a function that a "
                   "step calls closes none");
}

/* The two communicators may be the same object. */
static void close_both(struct rt_comm *arenas, struct rt_comm *host) {
    if (arenas && arenas != host) arenas->driver->close(arenas);
    if (host) host->driver->close(host);
}

void rt_close(struct rt *rt) {
    if (!rt || is_used(rt)) return;
    struct rt_private *private = rt->internal;
    const bool failed = !rt->comm || rt->comm->driver->alive(rt->comm) != RT_OK;
    const bool accessed = failed && private->mpi && rt_mpi_job_accesses(private->mpi); /* by MPI, still */
    rt_drop_save(rt);
    for (int a = 0; a < RT_LAYOUT_AXES; a++) close_both(rt->axis[a], private->split[a]);
    close_both(rt->units, NULL);
    for (int a = 0; a < RT_ARENAS; a++) /* closed communicators no longer access arenas */
        if (private->owned[a] && !accessed) rt->program->device->release(rt, private->owned[a], rt_arena_bytes(rt, a));
    if (rt->internal->counts) rt->program->device->close(rt);
    if (rt->comm && private->owns_comm) rt->comm->driver->close(rt->comm);
    rt_mpi_job_close(private->mpi, failed);
    rt_meeting_close(private->meeting);
    if (private->mapping && !accessed) munmap(private->mapping, private->mapping_bytes);
    if (private->segment >= 0) close(private->segment);
    rt_release_checkpoints(private->checkpoints);
    rt_free_copy(private);
    free(private->counts);
    free(private->extents);
    free(private->flat_at);
    free(rt->slice);
    free(private->given);
    free(private->losses);
    rt_free_joined(rt);
    free(private->requests);
    free(private);
    free(rt);
}
