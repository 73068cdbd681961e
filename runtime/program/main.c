/* rt_main(): runs a generated program from the command line. */
#include "program/main.h"

#include "base/io/location.h"
#include "base/io/file.h"
#include "base/io/progress.h"
#include "comm/comm_shared.h"
#include "comm/mpi_library.h"
#include "core/private.h"
#include "launch.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CAUSE_SECONDS = 2 }; /* in which a rank says why it failed */

/* Copies the outputs of the last step. Timed steps do not include this copy, unless the arenas do not keep all
 * outputs. */
static int copy_outputs(struct rank *self, struct rt *rt) {
    if (!rt_keeps_outputs(rt)) return RT_OK;
    int status = rt_give_outputs(rt, 0, rt->program->noutputs, self->output_data);
    if (!status) status = rt->program->device->finish(rt);
    return check_rank(self, rt, status);
}

/* A step is timed from barrier to barrier, so rank 0 measures the slowest rank. Steps below 0 are warm-up.
 */
static int run_step(struct rank *self, struct rt *rt, int step) {
    const struct main_options *options = &self->job->options;
    void **outputs = rt_keeps_outputs(rt) ? self->no_outputs : self->output_data;
    int status = rt_end_collective(rt, rt->comm, rt->comm->driver->barrier(rt->comm));
    if (step >= 0) trace_begin_step(self->trace, step + 1), dump_begin_step(self->dump, step + 1);
    const double start = now_ms();
    if (!status) status = rt_state_reset(rt);
    if (!status) status = rt_infer_step(rt, self->job->input_data, outputs);
    if (!status) status = rt_end_collective(rt, rt->comm, rt->comm->driver->barrier(rt->comm));
    RT_TRY(check_rank(self, rt, status));
    const double took = now_ms() - start;
    RT_TRY(trace_end_step(self->trace));
    RT_TRY(dump_end_step(self->dump));
    if (self->first && step >= 0) RT_TRY(record_step(self, took, 0));
    if (self->first && options->verbose)
        fprintf(stderr, "rankc: %s %d: %.3f ms\n", step < 0 ? "warm-up" : "step",
                step < 0 ? step + options->warmup + 1 : step + 1, took);
    return RT_OK;
}

/* With --verbose, a line per step shows how far the run is. */
static int run_steps(struct rank *self, struct rt *rt) {
    const struct main_options *options = &self->job->options;
    const int64_t all = (int64_t)options->warmup + options->repeat;
    struct rt_progress progress;
    int status = RT_OK;
    rt_progress_begin(&progress, 0, !rt->internal->progress || options->verbose);
    for (int i = -options->warmup; i < options->repeat && !status; i++) {
        status = run_step(self, rt, i);
        rt_progress_show(&progress, "step", i + options->warmup + 1, all, "");
    }
    rt_progress_end(&progress);
    return status ? status : copy_outputs(self, rt);
}

/* Peak resident memory of this process in bytes. getrusage() is not used because its value survives exec and may be the
 * parent's. */
static int64_t peak_resident(void) {
    char line[128];
    long long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    if (!status) return 0;
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %lld kB", &kib) == 1) break;
    fclose(status);
    return kib * 1024;
}

static int gather_memory(struct rank *self, struct rt *rt) {
    const int64_t peak = peak_resident();
    int64_t *all = calloc((size_t)rt->world, sizeof *all);
    for (int r = 0; r < rt->world; r++) rt->internal->counts[r] = sizeof peak;
    int status = all ? rt->comm->driver->all_gather(rt->comm, all, &peak, rt->internal->counts) : RT_ERROR_SYSTEM;
    if (!status && self->first) memcpy(self->job->peak_rss, all, (size_t)rt->world * sizeof *all);
    free(all);
    return check_comm(self, rt, rt->comm, status);
}

/* Under an MPI launcher: the rank has joined, and its process beside it observes its progress from now on. */
static void begin_watch(const struct job *job, const struct rt *rt) {
    if (rt->internal->segment >= 0)
        rt_watch_begin(job->watch, rt->internal->segment, rt->internal->local_rank, rt->rank);
    else if (job->segment >= 0)
        rt_watch_begin(job->watch, job->segment, rt->rank, rt->rank);
}

/* What follows may take long, such as waiting for the others in MPI_Finalize. */
static void end_watch(struct job *job) {
    if (job->watch < 0) return; /* such as of ranks that are threads, which share the job */
    close(job->watch);
    job->watch = -1;
}

static bool is_loopback(const struct job *job) {
    return strcmp(job->options.comm, "loopback") == 0;
}

/* --verbose */
static void tell_loaded(const struct job *job, const struct rt *rt) {
    const bool shared = strcmp(rt->comm->driver->name, "shared") == 0; /* by threads, too */
    fprintf(stderr, "rankc: loaded in %.1f ms: %d rank%s, %d thread%s per rank, transport %s, kernels %s\n",
            job->load_ms, rt->world, rt->world == 1 ? "" : "s", rt->threads, rt->threads == 1 ? "" : "s",
            !shared            ? rt->comm->driver->name
            : is_loopback(job) ? "loopback"
                               : "shm",
            job->options.kernels);
}

static int read_inputs(struct job *job, struct failure *failure) {
    int (*const read)(struct rt_tensor *, const struct rt_program *, const struct manifest *,
                      const struct main_options *, int64_t *, struct failure *) =
        job->options.generate ? inputs_read_given : inputs_read;
    const int exit = read(job->inputs, job->program, &job->manifest, &job->options, job->sizes, failure);
    for (int i = 0; i < job->program->ninputs && !exit; i++) job->input_data[i] = job->inputs[i].data;
    return exit;
}

/* The inputs of a rank that is a process. They are read when all ranks agree on their options, one of which may be that
 * they train. The same inputs may have other paths on other hosts. */
static int take_inputs(void *rank, struct rt *rt) {
    struct rank *self = rank;
    struct rt_terms terms = {0};
    if (self->job->options.steps || is_loopback(self->job)) return RT_OK;
    const int exit = read_inputs(self->job, &self->failure);
    if (exit) return self->status = rt_status_of_exit(exit);
    if (rt->world > 1) inputs_add_terms(&terms, self->job);
    const int status = ranks_agree(self, rt, &terms);
    rt_terms_free(&terms);
    return status;
}

/* rt_open, in which ranks agree on their options. */
static int open_agreed(struct rank *self, const struct rt_options *open, struct rt **rt) {
    struct rt_agreed agreed = {.next = take_inputs, .context = self};
    options_add_terms(&agreed.terms, &self->job->options);
    const int status = rt_open_agreed(rt, self->job->program, open, &agreed);
    rt_terms_free(&agreed.terms);
    return status && !self->status ? check_rank(self, NULL, status) : status;
}

static void run_rank(struct rank *self) {
    const struct main_options *options = &self->job->options;
    const struct rt_options open = {.directory = self->job->manifest.directory,
                                    .comm = options->comm,
                                    .joined = self->joined,
                                    .rank = options->rank,
                                    .world = options->world,
                                    .rendezvous = options->rendezvous,
                                    .join_timeout = options->join_timeout,
                                    .segment = self->joined ? NULL : &self->job->segment,
                                    .threads = options->threads,
                                    .kernels = options->kernels,
                                    .adapter = options->adapter,
                                    .broadcast_weights = options->broadcast_weights,
                                    .json = options->json,
                                    .progress = self->first && !options->quiet};
    struct rt *rt;
    const double start = now_ms();
    int status = open_agreed(self, &open, &rt);
    if (status) return;
    begin_watch(self->job, rt);
    if (self->first) {
        self->job->load_ms = now_ms() - start;
        self->job->threads = rt->threads;
        if (options->verbose) tell_loaded(self->job, rt);
    }
    if (!options->steps && !options->generate && (status = rt_set_sizes(rt, self->job->sizes)))
        check_rank(self, rt, status);
    if (!status) status = trace_open(&self->trace, self, rt);
    if (!status) status = dump_open(&self->dump, self, rt);
    if (!status)
        status = options->steps      ? train_steps(self, rt)
                 : options->generate ? generate_tokens(self, rt)
                                     : run_steps(self, rt);
    status = dump_close(self->dump, trace_close(self->trace, status));
    if (!status) status = gather_memory(self, rt);
    if (status && !self->failure.agreed) rt->comm->driver->abort(rt->comm);
    rt_close(rt);
    end_watch(self->job);
}

/* Finds the root cause: the first failed rank whose error is not that another rank failed. */
static int first_cause(const struct rank *ranks, int count, struct failure *failure) {
    const struct rank *cause = NULL;
    for (int r = 0; r < count; r++)
        if (ranks[r].status && (!cause || (cause->status == RT_ERROR_PEER && ranks[r].status != RT_ERROR_PEER)))
            cause = &ranks[r];
    if (cause) *failure = cause->failure;
    return cause ? cause->failure.exit : EXIT_OK;
}

static void run_thread(struct rt_comm *comm, void *context) {
    struct rank *ranks = context;
    ranks[comm->rank].joined = comm;
    run_rank(&ranks[comm->rank]);
}

static int run_loopback(struct job *job, struct rank *ranks, struct failure *failure) {
    const int world = job->options.world, error = rt_spawn_ranks(job->program, world, run_thread, ranks);
    if (error == ENOMEM) return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory for %d rank(s)", world);
    if (!error) return first_cause(ranks, world, failure);
    return failure_set(failure, EXIT_SYSTEM, RT_CODE_MEMORY, "cannot start %d thread(s): %s", world, strerror(error));
}

/* Determines rank and world from options or environment and checks them, before any file is read. World 0: loopback
 * without --world. */
static int settle_world(struct job *job, struct failure *failure) {
    struct main_options *options = &job->options;
    const struct rt_program *program = job->program;
    struct rt_seat seat = {0, 1, 0, 1};
    struct rt_reason why = {.text = ""};
    if (is_loopback(job)) {
        options->rank = 0;
    } else if (options->rank < 0) {
        rt_seat_from_environment(&seat, &why);
        options->rank = seat.rank;
        options->world = seat.world;
    }
    if (why.text[0]) return failure_set(failure, EXIT_USAGE, RT_CODE_WORLD, "%s", why.text);
    if ((is_loopback(job) && options->world == 0) || rt_ranks_fit(options->world, program->plan_ngpus)) return EXIT_OK;
    failure_set(failure, EXIT_MISMATCH, RT_CODE_WORLD, RT_RANKS_DO_NOT_FIT, rt_quote_text(program->name).text,
                program->plan_ngpus, RT_MAX_RANKS, options->world);
    return failure_help(failure, "start it with `rankc run`, or with --comm loopback as threads of one process");
}

/* The world of loopback without --world: the default that location.json records. */
static int default_world(struct job *job, struct failure *failure) {
    struct rt_reason why;
    int64_t ranks;
    if (job->options.world > 0) return EXIT_OK;
    if (!rt_location_ranks(job->manifest.directory, job->program->plan_ngpus, &ranks, &why))
        return failure_reason(failure, RT_CODE_MANIFEST, &why);
    job->options.world = (int)ranks;
    return EXIT_OK;
}

static bool print_times(const struct job *job) {
    struct times ms;
    if (!find_times(job, &ms)) return false;
    printf("%d step%s: min %.3f ms, median %.3f ms, max %.3f ms\n", job->nsteps, job->nsteps == 1 ? "" : "s", ms.min,
           ms.median, ms.max);
    for (int r = 0; job->options.verbose && r < job->options.world; r++)
        fprintf(stderr, "rankc: rank %d: %.1f MB resident at most\n", r, (double)job->peak_rss[r] / 1e6);
    return true;
}

/* Steps are numbered in training, where they have losses. */
static void put_steps(struct rt_json_writer *w, const struct job *job) {
    if (!job->options.steps) return;
    rt_json_key_int(w, "first_step", job->first_step);
    rt_json_key_open(w, "losses", '[', RT_JSON_INLINE);
    for (int i = 0; i < job->nsteps; i++) rt_json_put_real(w, job->losses[i]);
    rt_json_close(w, ']');
}

static bool print_json(const struct job *job) {
    struct rt_json_writer w;
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_INLINE);
    rt_json_key_int(&w, "format", 1);
    rt_json_key_int(&w, "ranks", job->options.world);
    rt_json_key_int(&w, "threads", job->threads);
    if (!put_step_times(&w, job)) return rt_json_discard(&w), false;
    put_steps(&w, job);
    put_ms(&w, "load_ms", job->load_ms);
    if (job->profile) rt_json_key(&w, "profile"), profile_put(&w, job->profile);
    rt_json_key_dims(&w, "peak_rss", job->peak_rss, job->options.world);
    rt_json_close(&w, '}');
    return rt_json_end_to(&w, stdout);
}

static int give_results(const struct job *job, struct failure *failure) {
    const struct main_options *options = &job->options;
    int exit = EXIT_OK;
    bool ok = true;
    if (options->rank != 0) return EXIT_OK;
    if (options->generate) return generated_give(job, failure);
    exit = job->options.steps ? EXIT_OK : outputs_resize(job->outputs, job->program, job->sizes, failure);
    if (exit) return exit;
    outputs_trim(job->outputs, job->program);
    if (options->output_dir)
        exit = outputs_write(job->outputs, job->program, &job->manifest, options->output_dir, failure);
    if (exit) return exit;
    if (options->json) ok = print_json(job);
    if (!options->json && !options->output_dir && !options->steps)
        outputs_print(job->outputs, job->program, &job->manifest);
    if (!options->json && !options->steps && !options->quiet && (options->repeat > 1 || options->verbose))
        ok = print_times(job);
    if (job->profile && !options->json) profile_print(job->profile, stdout);
    if (ok && rt_printed()) return EXIT_OK;
    return failure_set(failure, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write the results to standard output");
}

static int allocate_job(struct job *job, struct rank **ranks, int nranks, struct failure *failure) {
    const struct rt_program *program = job->program;
    job->inputs = calloc((size_t)program->ninputs + 1, sizeof *job->inputs);
    job->outputs = calloc((size_t)program->noutputs + 1, sizeof *job->outputs);
    job->input_data = calloc((size_t)program->ninputs + 1, sizeof(*job->input_data));
    const bool room = reserve_steps(job);
    job->peak_rss = calloc((size_t)job->options.world, sizeof *job->peak_rss);
    *ranks = calloc((size_t)nranks, sizeof **ranks);
    bool ok = job->inputs && job->outputs && job->input_data && room && job->peak_rss && *ranks;
    for (int r = 0; ok && r < nranks; r++) {
        (*ranks)[r].job = job;
        (*ranks)[r].first = job->options.rank == 0 && r == 0;
        (*ranks)[r].output_data = calloc((size_t)program->noutputs + 1, sizeof(*(*ranks)[r].output_data));
        (*ranks)[r].no_outputs = calloc((size_t)program->noutputs + 1, sizeof(*(*ranks)[r].no_outputs));
        ok = (*ranks)[r].output_data && (*ranks)[r].no_outputs;
    }
    return ok ? EXIT_OK : failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

static void free_job(struct job *job, struct rank *ranks, int nranks) {
    for (int r = 0; ranks && r < nranks; r++) free(ranks[r].output_data), free(ranks[r].no_outputs);
    for (int i = 0; job->inputs && i < job->program->ninputs; i++) rt_tensor_free(&job->inputs[i]);
    for (int i = 0; job->outputs && i < job->program->noutputs; i++) rt_tensor_free(&job->outputs[i]);
    free(ranks);
    free(job->inputs);
    free(job->outputs);
    free(job->input_data);
    free(job->step_ms);
    free(job->losses);
    free(job->peak_rss);
    profile_free(job->profile);
    generated_free(&job->generated);
}

static int run_ranks(struct job *job, struct rank *ranks, struct failure *failure) {
    const struct rt_program *program = job->program;
    int exit = !job->options.steps && is_loopback(job) ? read_inputs(job, failure) : EXIT_OK;
    if (!exit && ranks[0].first && !job->options.generate) exit = outputs_allocate(job->outputs, program, failure);
    if (exit) return exit;
    for (int i = 0; i < program->noutputs; i++) ranks[0].output_data[i] = job->outputs[i].data;
    if (is_loopback(job)) {
        exit = run_loopback(job, ranks, failure);
    } else {
        run_rank(&ranks[0]);
        exit = first_cause(ranks, 1, failure);
    }
    if (!exit && ranks[0].interrupted) exit = failure->exit = EXIT_INTERRUPTED;
    return exit;
}

/* "node 'layer0/fc' (MatMul)", for reports about a rank that hangs. */
static const char *instruction_name(void *context, int number) {
    static struct failure place;
    place.where[0] = 0;
    manifest_place(context, number, &place);
    return place.where[0] ? place.where : NULL;
}

static void open_watch(struct job *job) {
    const struct rt_launch what = {.stall_ms = (int64_t)job->options.stall_timeout * 1000,
                                   .instruction = instruction_name,
                                   .context = &job->manifest,
                                   .json = job->options.json};
    if (what.stall_ms > 0 && rt_mpi_launched() && !is_loopback(job) && !getenv(RT_SHM_FD_VARIABLE))
        job->watch = rt_watch_open(&what);
}

static int run_job(struct job *job, struct failure *failure) {
    struct rank *ranks = NULL;
    const int nranks = is_loopback(job) ? job->options.world : 1;
    int exit = allocate_job(job, &ranks, nranks, failure);
    if (!exit) exit = run_ranks(job, ranks, failure);
    if (!exit || (exit == EXIT_INTERRUPTED && job->options.generate)) {
        const int given = give_results(job, failure);
        exit = given ? given : exit;
    }
    free_job(job, ranks, nranks);
    return exit;
}

/* Maps the job's shared segment, to publish how this rank ends; NULL: none. */
static void *map_control(const struct job *job, size_t *bytes) {
    const char *text = getenv(RT_SHM_FD_VARIABLE); /* from the launcher; else from a rendezvous */
    char *end;
    const long given = text ? strtol(text, &end, 10) : -1;
    const int fd = given < 0 || given > INT_MAX || end == text || *end ? job->segment : (int)given;
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) return NULL;
    *bytes = (size_t)status.st_size;
    if (*bytes < rt_shared_control_bytes(1)) return NULL;
    void *control = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) return NULL;
    const uint32_t world = atomic_load(&rt_shared_header(control)->size);
    if (world > 0 && world <= RT_MAX_RANKS && rt_shared_control_bytes((int)world) <= *bytes) return control;
    munmap(control, *bytes);
    return NULL;
}

/* Ranks without common memory each report their error, but one that all have is rank 0's to report. */
static bool is_reporter(const struct main_options *options, const struct failure *failure, void *control) {
    return control ? rt_shared_claim_report(control) : !failure->agreed || options->rank == 0;
}

/* Publishes the end of this rank. One error is printed per job: by the first rank whose error is not that another rank
 * failed. A failed rank also ends the waits of the others, unless all end with its error: a rank that MPI_Finalize of
 * the others waits for must call it too, or their launcher returns that it killed them. */
static void end_rank(const struct job *job, const struct failure *failure) {
    const struct main_options *options = &job->options;
    size_t bytes = 0;
    void *control = is_loopback(job) ? NULL : map_control(job, &bytes);
    const bool failed = failure->exit && failure->exit != EXIT_INTERRUPTED; /* which is a regular end */
    if (control && !failed && options->rank >= 0)
        atomic_store(&rt_shared_progress(control, options->rank)->finished, 1);
    if (control && failed && !failure->agreed) atomic_store(&rt_shared_header(control)->aborted, 1);
    const bool told = failure->told && !is_loopback(job);
    if (failed && !told && is_reporter(options, failure, control)) failure_print(failure, options->json);
    if (control) munmap(control, bytes);
    /* Launchers of MPI kill the others when one leaves: the rank that knows the cause shall say it first. */
    if (failed && told && rt_mpi_launched()) sleep(CAUSE_SECONDS);
    /* the others wait in MPI_Init */
    if (failed && !told && !is_loopback(job) && rt_mpi_launched() && !rt_mpi_initialised())
        rt_mpi_give_up(failure->exit);
}

void end_job(const struct job *job, const struct failure *failure) {
    end_rank(job, failure);
    if (!is_loopback(job) && rt_mpi_launched()) rt_mpi_give_up(failure->exit);
    _exit(failure->exit);
}

/* --help. Ranks that MPI's launcher started wait for each other: all of them must ask for help, which rank 0 prints. */
static int give_help(struct job *job, struct failure *failure) {
    struct rt_seat seat = {0, 1, 0, 1};
    struct rt_reason unused;
    struct rt_mpi mpi;
    char why[320];
    const bool meets = rt_mpi_launched() && !is_loopback(job) && rt_seat_from_environment(&seat, &unused);
    const int met = meets ? rt_mpi_open(&mpi, RT_MPI_HELPS, why, sizeof why) : RT_OK;
    if (meets && !met) rt_mpi_close(false);
    job->options.rank = seat.rank;
    if (met == RT_ERROR_MISMATCH) {
        failure_set(failure, EXIT_MISMATCH, RT_CODE_KEY, "%s", why);
        failure->agreed = true;
        return EXIT_MISMATCH;
    }
    if (seat.rank == 0) options_print_help(job->options.program);
    return rt_printed() ? EXIT_OK : failure_set(failure, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write to standard output");
}

int rt_main(int argc, char **argv, const struct rt_program *program) {
    struct job job = {.program = program, .segment = -1, .watch = -1};
    struct failure failure = {0};
    signal(SIGPIPE, SIG_IGN); /* write() to a closed pipe fails instead: rt_printed */
    signal(SIGXFSZ, SIG_IGN); /* so does a file at the size limit (RLIMIT_FSIZE) */
    int exit = options_parse(&job.options, argc, argv, &failure);
    if (!exit && job.options.help) {
        exit = give_help(&job, &failure);
        end_rank(&job, &failure);
        options_free(&job.options);
        return exit;
    }
    if (!exit && (job.options.steps || job.options.generate)) stop_catch_signals();
    if (!exit && !is_loopback(&job) && rt_mpi_launched()) rt_progress_find_launcher();
    if (!exit) exit = settle_world(&job, &failure);
    if (!exit) exit = manifest_read(&job.manifest, program, job.options.directory, &failure);
    if (!exit) exit = default_world(&job, &failure);
    if (!exit) open_watch(&job);
    if (!exit) exit = run_job(&job, &failure);
    stop_ends();
    end_rank(&job, &failure);
    if (job.segment >= 0) close(job.segment);
    manifest_free(&job.manifest);
    options_free(&job.options);
    return exit;
}
