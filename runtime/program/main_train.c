/* `rankc train`: training steps over files of samples, metrics per step, evaluation and checkpoints. */
#include "program/main.h"

#include "program/best.h"

#include "base/number/checked.h"
#include "base/io/file.h"
#include "base/io/progress.h"
#include "program/feed.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* True for a complete line that is not of a step after `step`. */
static bool stays(const char *line, size_t bytes, int64_t step) {
    long long of = 0;
    return bytes && line[bytes - 1] == '\n' && (sscanf(line, "{\"step\": %lld", &of) != 1 || of <= step);
}

static bool is_evaluation(const char *line, int64_t step) {
    long long of = 0;
    return sscanf(line, "{\"step\": %lld", &of) == 1 && of == step && strstr(line, "\"eval_loss\"");
}

/* The bytes of the log up to the first line that does not stay. */
static off_t bytes_kept(FILE *log, int64_t step, bool *evaluated) {
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    for (ssize_t bytes; (bytes = getline(&line, &room, log)) > 0 && stays(line, (size_t)bytes, step); kept += bytes)
        *evaluated = *evaluated || is_evaluation(line, step);
    free(line);
    return kept;
}

/* Opens the log of a training run, --log: a JSON line per step. step >= 0: the run continues the log after that step.
 * The log is cut at the first line of a later step, since the run computes these steps again, and at an incomplete last
 * line. step < 0: the log is new. *evaluated: the log has an evaluation after that step. NULL with errno if it cannot
 * be opened or shortened. */
static FILE *log_open(const char *path, int64_t step, bool *evaluated) {
    struct stat about;
    *evaluated = false;
    if (step < 0 || stat(path, &about) || !S_ISREG(about.st_mode)) return fopen(path, step < 0 ? "we" : "ae");
    FILE *log = fopen(path, "r+e");
    if (!log) return NULL;
    const off_t kept = bytes_kept(log, step, evaluated);
    if (!ferror(log) && !ftruncate(fileno(log), kept) && !fseeko(log, kept, SEEK_SET)) return log;
    const int error = errno;
    fclose(log);
    errno = error;
    return NULL;
}

/* The training run of one rank. */
struct trainer {
    struct rank *self;
    struct rt *rt;
    const struct main_options *options;
    struct feed feed, eval; /* eval.data NULL: no evaluation */
    double *losses;         /* of the micro-batches of a step */
    FILE *log;              /* of rank 0; NULL: metrics go to stdout */
    int accumulate, units;
    int64_t saved;          /* last step with a checkpoint; 0: none */
    bool writing;           /* it is being written in the background */
    bool stopping;          /* all ranks have agreed to stop */
    bool evaluated;         /* the log has the evaluation after the step that the run goes on from */
    double longest;         /* of the steps so far, ms */
    struct nonfinite found; /* of the current step */
    const char *resume;     /* what --resume says in the end; NULL: the run begins anew */
    char resumed[24];       /* memory of that */
    struct best best;       /* the evaluation with the lowest loss so far, and how many came after it */
    int64_t after_best;
    int64_t kept;    /* step of best.json, whose checkpoint stays; 0: none */
    int64_t skipped; /* steps of this run */
    struct rt_progress progress;
};

/* After a signal, how long reading or writing files may take. */
#define FILES_MS 600e3

struct metrics {
    struct rt_train_result of;
    int64_t step, samples; /* `samples`: of the step, over all scale units */
    double ms;
};

static bool end_line(struct rt_json_writer *w, FILE *log) {
    rt_json_close(w, '}');
    return rt_json_end_to(w, log) && fflush(log) == 0;
}

static void start_line(struct rt_json_writer *w, int64_t step) {
    rt_json_start(w);
    rt_json_open(w, '{', RT_JSON_INLINE);
    rt_json_key_int(w, "step", step);
}

/* Samples per second, or tokens per second for files of tokens. */
static double speed_of(const struct trainer *t, const struct metrics *m, const char **unit) {
    const struct rt_data *data = &t->feed.data[0];
    while (data->shared) data++;
    *unit = data->tokens ? "tokens" : "samples";
    return m->ms > 0 ? (double)m->samples * (double)(data->tokens ? data->per_sample : 1) / m->ms * 1e3 : 0;
}

static bool write_step(const struct trainer *t, const struct metrics *m) {
    struct rt_json_writer w;
    const char *unit;
    const double speed = speed_of(t, m, &unit);
    start_line(&w, m->step);
    rt_json_key_real(&w, "loss", m->of.loss);
    rt_json_key_real(&w, "grad_norm", m->of.gradient_norm);
    rt_json_key_real(&w, "lr", m->of.learning_rate);
    if (!isnan(m->of.loss_scale)) rt_json_key_real(&w, "loss_scale", m->of.loss_scale);
    if (t->rt->program->training->metrics > RT_SKIPPED) rt_json_key_bool(&w, "skipped", m->of.skipped);
    rt_json_key_real(&w, unit[0] == 't' ? "tokens_per_s" : "samples_per_s", speed);
    rt_json_key_real(&w, "ms", m->ms);
    return end_line(&w, t->log);
}

/* The sign of a NaN depends on the processor and is not printed. */
static double without_sign(double value) {
    return isnan(value) ? NAN : value;
}

static bool print_step(const struct trainer *t, const struct metrics *m) {
    const char *unit;
    const double speed = speed_of(t, m, &unit);
    printf("step %lld: loss %.6g, gradient norm %.6g, learning rate %.3g, %.1f ms, %.*f %s/s%s\n", (long long)m->step,
           without_sign(m->of.loss), without_sign(m->of.gradient_norm), m->of.learning_rate, m->ms, speed < 100 ? 2 : 0,
           speed, unit, m->of.skipped ? ", skipped" : "");
    return rt_printed();
}

/* Steps are printed on stdout unless it is for JSON or the run is quiet. */
static bool prints_steps(const struct main_options *options) {
    return !options->json && !options->quiet;
}

static bool is_finite(const struct metrics *m) {
    return isfinite(m->of.loss) && isfinite(m->of.gradient_norm);
}

static bool report_step(struct trainer *t, const struct metrics *m) {
    const bool stops = !is_finite(m); /* such a step is always reported */
    char loss[40];
    snprintf(loss, sizeof loss, ", loss %.6g", without_sign(m->of.loss));
    rt_progress_show(&t->progress, "step", m->step, t->options->steps, loss);
    if (m->step % t->options->log_every && m->step != t->options->steps && !stops) return true;
    return t->log ? write_step(t, m) : !prints_steps(t->options) || print_step(t, m);
}

static int check_written(struct trainer *t, bool written) {
    if (written) return RT_OK;
    fail_with(t->self, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write metrics: %s", strerror(errno));
    if (t->options->log) failure_where(&t->self->failure, "%s", rt_quote_text(t->options->log).text);
    return t->self->status;
}

/* Records the step, and reports it where it is to be. */
static int tell_step(struct trainer *t, const struct metrics *m) {
    struct job *job = t->self->job;
    if (!job->nsteps) job->first_step = m->step;
    RT_TRY(record_step(t->self, m->ms, m->of.loss));
    return check_written(t, report_step(t, m));
}

/* A non-finite loss or gradient norm ends the run, also after its last step: no checkpoint is saved. */
static int check_finite(struct trainer *t, const struct metrics *m) {
    const bool lost = !isfinite(m->of.loss);
    const double value = lost ? m->of.loss : m->of.gradient_norm;
    if (isfinite(value)) return RT_OK;
    char rank[64] = "";
    if (t->found.found) snprintf(rank, sizeof rank, "; the first such value was on rank %d", t->found.rank);
    fail_with(t->self, EXIT_RANK, RT_CODE_LOSS, "the %s of step %lld is %s%s", lost ? "loss" : "gradient norm",
              (long long)m->step, isnan(value) ? "not a number" : "infinite", rank);
    nonfinite_place(&t->found, &t->self->job->manifest, &t->self->failure);
    if (isinf(t->rt->internal->control[RT_SHARE])) failure_help(&t->self->failure, "no label of the step counts");
    return t->self->status;
}

static int inspect(void *trainer, struct rt *rt, const struct rt_attempt *attempt) {
    struct trainer *t = trainer;
    return nonfinite_find(t->self, rt, attempt, &t->found);
}

/* Sums values over the scale units; every rank gets the sums. */
static int sum_units(struct trainer *t, double *values, int n) {
    return check_comm(t->self, t->rt, t->rt->units,
                      t->rt->units->driver->all_reduce(t->rt->units, values, values, (size_t)n, RT_F64, RT_SUM));
}

/* --keep, once a checkpoint has its name. */
static int thin(const struct trainer *t) {
    const int keep = t->options->keep;
    return keep && t->self->first ? rt_thin_checkpoints_but(t->rt, t->saved, keep, t->kept ? t->kept : -1) : RT_OK;
}

/* Collective: waits for the checkpoint that is being written in the background, if any. */
static int finish_save(struct trainer *t) {
    if (!t->writing) return RT_OK;
    t->writing = false;
    int status = rt_save_end(t->rt);
    if (!status) status = thin(t);
    return check_rank(t->self, t->rt, status);
}

/* Errors about data, such as an index out of range, name the samples of the micro-batch. */
static int fail_step(struct trainer *t, int status, int64_t first) {
    const int64_t sample = (first + (int64_t)t->rt->internal->control[RT_MICRO]) * t->feed.batch;
    check_rank(t->self, t->rt, status);
    if (status == RT_ERROR_INPUT)
        failure_help(&t->self->failure, "step %lld read samples %lld to %lld of the run; the data has %lld",
                     (long long)(t->rt->internal->trained + 1), (long long)sample,
                     (long long)(sample + t->feed.batch - 1), (long long)t->feed.sampler.samples);
    return status;
}

/* Micro-batches of a step are assigned to scale units round-robin. */
static int train_step(struct trainer *t) {
    struct rt *rt = t->rt;
    struct metrics m = {.step = rt->internal->trained + 1, .samples = t->feed.batch * t->accumulate * t->units};
    const int64_t first = rt->internal->micro_batches;
    for (int j = 0; j < t->accumulate; j++)
        RT_TRY(feed_read(&t->feed, t->self, j, first + (int64_t)j * t->units + rt->unit));
    trace_begin_step(t->self->trace, m.step);
    dump_begin_step(t->self->dump, m.step);
    stop_allow(t->self->job, 3 * t->longest);
    const double start = now_ms();
    int status = rt_train_step(rt, t->feed.samples, NULL, NULL, t->losses);
    if (status) return fail_step(t, status, first);
    status = rt_find_train_result(rt, t->losses, &m.of);
    RT_TRY(check_rank(t->self, rt, status));
    m.ms = now_ms() - start;
    if (m.ms > t->longest) t->longest = m.ms;
    RT_TRY(trace_end_step(t->self->trace));
    RT_TRY(dump_end_step(t->self->dump));
    if (t->self->first) RT_TRY(tell_step(t, &m));
    t->skipped += m.of.skipped;
    if (m.of.skipped || is_finite(&m)) return RT_OK;
    RT_TRY(finish_save(t)); /* of an earlier step */
    return check_finite(t, &m);
}

/* Saves a checkpoint unless there is no directory or this step is saved already. `wait`: not in the background. */
static int save_once(struct trainer *t, bool wait) {
    const struct main_options *o = t->options;
    const struct rt_sampler *sampler = &t->feed.sampler;
    const struct rt_position progress = {t->rt->internal->trained, t->rt->internal->micro_batches,
                                         sampler->shuffle ? (int64_t)sampler->seed : -1};
    RT_TRY(finish_save(t));
    if (!o->checkpoint_dir || t->saved == progress.step) return RT_OK;
    t->writing = o->checkpoint_async && !wait;
    stop_allow(t->self->job, FILES_MS);
    const double start = now_ms();
    int status =
        t->writing ? rt_save_begin(t->rt, o->checkpoint_dir, &progress) : rt_save(t->rt, o->checkpoint_dir, &progress);
    t->saved = progress.step;
    if (!status && o->verbose && t->self->first)
        fprintf(stderr, "rankc: %s '%s/step-%lld' in %.1f ms\n", t->writing ? "copied" : "saved",
                rt_quote_text(o->checkpoint_dir).text, (long long)progress.step, now_ms() - start);
    if (!status && !t->writing) status = thin(t);
    return check_rank(t->self, t->rt, status);
}

/* Collective: checks whether any rank was asked to stop. If none was, a checkpoint that all ranks have written in the
 * background gets its name. */
static int find_stop(struct trainer *t) {
    struct rt_comm *comm = t->rt->comm;
    const int32_t mine[] = {stop_requested(), !rt_save_is_written(t->rt)};
    int32_t any[2] = {0};
    RT_TRY(check_comm(t->self, t->rt, comm, comm->driver->all_reduce(comm, any, mine, 2, RT_I32, RT_MAX)));
    t->stopping = any[0] != 0;
    return any[1] || t->stopping ? RT_OK : finish_save(t);
}

/* The same; saves a checkpoint if the run is to stop. */
static int check_stop(struct trainer *t) {
    RT_TRY(find_stop(t));
    return t->stopping ? save_once(t, true) : RT_OK;
}

static bool report_evaluation(const struct trainer *t, int64_t step, double loss, int64_t samples) {
    struct rt_json_writer w;
    const int64_t over = t->options->eval_steps ? 0 : t->eval.sampler.samples - samples;
    char left[64] = "";
    if (over)
        snprintf(left, sizeof left, ", without the last %lld (a micro-batch is %lld)", (long long)over,
                 (long long)t->eval.batch);
    if (prints_steps(t->options))
        printf("step %lld: evaluation loss %.6g, %lld samples%s\n", (long long)step, loss, (long long)samples, left);
    if (!t->log) return rt_printed();
    start_line(&w, step);
    rt_json_key_real(&w, "eval_loss", loss);
    rt_json_key_int(&w, "eval_samples", samples);
    return end_line(&w, t->log);
}

static bool keeps_best(const struct trainer *t) {
    return t->options->checkpoint_dir && (t->options->keep_best || t->options->early_stop);
}

/* Keeps the checkpoint of the step if its loss in evaluation, which all ranks have, is the lowest so far. best.json
 * names a checkpoint that exists at all times. */
static int judge(struct trainer *t, double loss) {
    const int64_t step = t->rt->internal->trained;
    struct rt_reason why;
    t->after_best++;
    if (!(loss < t->best.loss) && step != t->best.step) return RT_OK;
    t->best = (struct best){step, loss};
    t->after_best = 0;
    if (!keeps_best(t)) return RT_OK;
    RT_TRY(save_once(t, true));
    if (t->self->first && !best_write(&t->best, t->options->checkpoint_dir, &why))
        return fail_reason(t->self, RT_CODE_WRITE, &why);
    t->kept = step;
    return check_rank(t->self, t->rt, thin(t));
}

/* Of a run that is resumed after `step`. */
static void recall_best(struct trainer *t, int64_t step) {
    const int every = t->options->eval_every;
    struct best best;
    if (!keeps_best(t) || !best_read(&best, t->options->checkpoint_dir) || best.step > step) return;
    t->best = best;
    t->kept = best.step;
    t->after_best = every ? step / every - best.step / every : 0;
}

/* --early-stop */
static bool is_over(const struct trainer *t) {
    return t->options->early_stop && t->after_best >= t->options->early_stop;
}

/* Sums over the scale units the losses of the evaluation, their weights and the samples. Scale units take micro-batches
 * round-robin; a unit without one in the last round computes one that does not count. A signal ends it early. */
static int sum_evaluation(struct trainer *t, double sums[3]) {
    struct rt *rt = t->rt;
    const int64_t all = t->options->eval_steps ? t->options->eval_steps : feed_micro_batches(&t->eval);
    void **outputs = t->self->no_outputs;
    for (int64_t first = 0; first < all; first += t->units) {
        const int64_t index = first + rt->unit < all ? first + rt->unit : first;
        RT_TRY(find_stop(t));
        if (t->stopping) return RT_OK;
        stop_allow(t->self->job, 3 * t->longest);
        RT_TRY(feed_read(&t->eval, t->self, 0, index));
        RT_TRY(check_rank(t->self, rt, rt_infer_step(rt, t->eval.samples[0], outputs)));
        const double mean = rt_loss(rt), weight = rt_loss_weight(rt);
        if (index != first + rt->unit) continue;
        const double share = rt->program->training->elements ? 1 : (double)feed_samples(&t->eval, index);
        sums[0] += mean * share;
        sums[1] += weight * share;
        sums[2] += (double)feed_samples(&t->eval, index);
    }
    return sum_units(t, sums, 3);
}

static int exchange_averages(struct trainer *t) {
    return check_rank(t->self, t->rt, rt_exchange_averages(t->rt));
}

/* Mean loss over the samples of the evaluation, or over all of their labels that count, with the averages of parameters
 * if the program has them. A signal ends an evaluation without metrics, which would be incomplete; a resumed run makes
 * it again. */
static int evaluate(struct trainer *t) {
    double sums[3] = {0};
    RT_TRY(exchange_averages(t));
    RT_TRY(sum_evaluation(t, sums));
    RT_TRY(exchange_averages(t));
    if (t->stopping) return t->options->eval_only ? RT_OK : save_once(t, true);
    if (t->self->first)
        RT_TRY(check_written(t, report_evaluation(t, t->rt->internal->trained, sums[0] / sums[1], (int64_t)sums[2])));
    return t->options->eval_only ? RT_OK : judge(t, sums[0] / sums[1]);
}

/* Locks the checkpoint directory for this run. A new run refuses a directory with checkpoints, which would be its
 * "latest". */
static int hold_directory(struct trainer *t) {
    const char *directory = t->options->checkpoint_dir;
    if (!directory) return RT_OK;
    RT_TRY(check_rank(t->self, t->rt, rt_hold_checkpoints(t->rt, directory, !t->resume)));
    if (t->resume || !rt_checkpoint_exists(directory)) return RT_OK;
    fail_with(t->self, EXIT_USAGE, RT_CODE_CHECKPOINT, "'%s' contains checkpoints of an earlier run",
              rt_quote_text(directory).text);
    failure_help(&t->self->failure, "--resume latest continues from them; for a new run, use another directory");
    return t->self->status;
}

static int cannot_keep(struct trainer *t, int64_t all, const char *why) {
    fail_with(t->self, EXIT_MISMATCH, RT_CODE_CHECKPOINT,
              "the steps of the checkpoint have %lld micro-batch(es), and this job has %d scale unit(s): %s",
              (long long)all, t->units, why);
    failure_help(&t->self->failure, "--accumulate A continues with A micro-batches per scale unit and step");
    return t->self->status;
}

/* Continues with as many micro-batches per step as the checkpoint's steps have, `all` of them, which this job's scale
 * units share; 0: the checkpoint does not say. --accumulate sets another number. */
static int keep_step(struct trainer *t, int64_t all) {
    const int64_t mine = all / t->units;
    if (t->options->accumulate || !all) return RT_OK;
    if (all % t->units || mine > INT_MAX) return cannot_keep(t, all, "they cannot be divided equally");
    if (rt_set_accumulate(t->rt, (int)mine)) return cannot_keep(t, all, rt_error(t->rt));
    t->accumulate = (int)mine;
    return RT_OK;
}

/* A new run that starts from the parameters of a checkpoint. */
static int start_from(struct trainer *t) {
    stop_allow(t->self->job, FILES_MS);
    return check_rank(t->self, t->rt, rt_load_parameters(t->rt, t->options->checkpoint_dir, t->resume));
}

/* Collective: what --resume auto and best mean. */
static int find_resume(struct trainer *t) {
    const char *directory = t->options->checkpoint_dir;
    struct rt_comm *comm = t->rt->comm;
    struct best best;
    t->resume = t->options->resume;
    if (t->resume && strcmp(t->resume, "best") == 0) {
        if (!best_read(&best, directory))
            return fail_with(t->self, EXIT_USAGE, RT_CODE_CHECKPOINT, "'%s' has no best.json, which --keep-best writes",
                             rt_quote_text(directory).text);
        snprintf(t->resumed, sizeof t->resumed, "%lld", (long long)best.step);
        t->resume = t->resumed;
    }
    if (!t->resume || strcmp(t->resume, "auto") != 0) return RT_OK;
    const int32_t mine = t->self->first && rt_checkpoint_exists(directory);
    int32_t any = 0;
    RT_TRY(check_comm(t->self, t->rt, comm, comm->driver->all_reduce(comm, &any, &mine, 1, RT_I32, RT_MAX)));
    t->resume = any ? "latest" : NULL;
    return RT_OK;
}

/* Resumes from a checkpoint, with its order of samples and its micro-batches per step. */
static int resume(struct trainer *t) {
    struct rt_position progress;
    RT_TRY(find_resume(t));
    if (!t->options->eval_only) RT_TRY(hold_directory(t)); /* reading needs no lock */
    if (!t->resume) return RT_OK;
    if (t->options->reset_optimizer) return start_from(t);
    stop_allow(t->self->job, FILES_MS);
    RT_TRY(check_rank(t->self, t->rt, rt_load(t->rt, t->options->checkpoint_dir, t->resume, &progress)));
    if (t->options->eval_only) return RT_OK;
    if (t->options->shuffle >= 0 && t->options->shuffle != progress.seed)
        return fail_with(t->self, EXIT_MISMATCH, RT_CODE_CHECKPOINT,
                         "the checkpoint was written with another order of samples than --shuffle %d",
                         t->options->shuffle);
    if (progress.step > t->options->steps)
        return fail_with(t->self, EXIT_USAGE, RT_CODE_USAGE, "the checkpoint is of step %lld, but --steps is %d",
                         (long long)progress.step, t->options->steps);
    t->saved = progress.step;
    t->feed.sampler.shuffle = progress.seed >= 0;
    t->feed.sampler.seed = (uint64_t)progress.seed;
    RT_TRY(keep_step(t, progress.per_step));
    recall_best(t, progress.step);
    if (t->self->first && !t->options->log && prints_steps(t->options))
        printf("resumed after step %lld\n", (long long)progress.step);
    return RT_OK;
}

static int check_options(struct trainer *t) {
    const struct main_options *o = t->options;
    const char *alone = !o->checkpoint_dir && o->checkpoint_every   ? "--checkpoint-every needs --checkpoint-dir"
                        : !o->checkpoint_dir && o->keep             ? "--keep needs --checkpoint-dir"
                        : !o->checkpoint_dir && o->checkpoint_async ? "--checkpoint-async needs --checkpoint-dir"
                        : !o->checkpoint_dir && o->resume           ? "--resume needs --checkpoint-dir"
                        : !o->resume && o->reset_optimizer          ? "--reset-optimizer needs --resume"
                        : !o->eval_data.n && o->eval_every          ? "--eval-every needs --eval-data"
                        : !o->checkpoint_dir && o->keep_best        ? "--keep-best needs --checkpoint-dir"
                        : !o->eval_data.n && o->eval_steps          ? "--eval-steps needs --eval-data"
                        : !o->eval_data.n && o->keep_best           ? "--keep-best needs --eval-data"
                        : !o->eval_data.n && o->early_stop          ? "--early-stop needs --eval-data"
                        : !o->eval_data.n && o->eval_only           ? "--eval-only needs --eval-data"
                                                                    : NULL;
    if (!t->rt->program->training) {
        fail_with(t->self, EXIT_MISMATCH, RT_CODE_FORMAT, "the program was not compiled with --train");
        failure_help(&t->self->failure, "compile the model again with --train; --instance-name keeps both");
        return t->self->status;
    }
    if (t->rt->program->training->seeds)
        return fail_with(t->self, EXIT_USAGE, RT_CODE_USAGE,
                         "the program does not compute a loss: compile it with --loss, or call its forward and "
                         "backward functions (model.h)");
    return alone ? fail_with(t->self, EXIT_USAGE, RT_CODE_USAGE, "%s", alone) : RT_OK;
}

/* Applies options that override the program's. */
static int set_numbers(struct trainer *t) {
    const struct rt_training *training = t->rt->program->training;
    int status = RT_OK;
    t->units = t->rt->units->size;
    t->accumulate = t->options->accumulate ? t->options->accumulate : training->accumulate;
    t->found = (struct nonfinite){.parameter = -1, .input = -1, .instruction = -1};
    t->rt->internal->inspector = t;
    /* programs that skip such steps do not need it */
    if (training->metrics <= RT_SKIPPED) t->rt->internal->inspect = inspect;
    if (t->options->lr >= 0) rt_set_learning_rate(t->rt, t->options->lr);
    if (t->options->lr_schedule) {
        struct rt_lr_schedule schedule;
        struct rt_reason why;
        if (!rt_lr_schedule_parse(&schedule, t->options->lr_schedule, &why))
            return fail_with(t->self, EXIT_USAGE, RT_CODE_USAGE, "--lr-schedule: %s", why.text);
        rt_set_lr_schedule(t->rt, &schedule);
    }
    status = rt_set_accumulate(t->rt, t->accumulate);
    return check_rank(t->self, t->rt, status);
}

/* Ranks may have the files under other paths, but must have the same samples. */
static int compare_data(struct trainer *t, const struct feed_options *data, const struct feed_options *eval) {
    struct rt_terms terms = {0};
    int status = t->feed.program ? feed_add_terms(&t->feed, t->self, data, &terms) : RT_OK;
    if (!status && eval->n) status = feed_add_terms(&t->eval, t->self, eval, &terms);
    if (!status) status = ranks_agree(t->self, t->rt, &terms);
    rt_terms_free(&terms);
    return status;
}

static int open_data(struct trainer *t) {
    const struct main_options *o = t->options;
    const struct feed_options data = {"--data", o->data.at, o->data.n},
                              eval = {"--eval-data", o->eval_data.at, o->eval_data.n};
    if (!o->eval_only) RT_TRY(feed_open(&t->feed, t->self, &data));
    t->feed.sampler.shuffle = o->shuffle >= 0;
    t->feed.sampler.seed = (uint64_t)o->shuffle;
    if (eval.n) RT_TRY(feed_open(&t->eval, t->self, &eval));
    if (eval.n) t->eval.pads = !o->eval_steps && feed_can_pad(&t->eval, t->self);
    return compare_data(t, &data, &eval);
}

/* Memory for the micro-batches of a step, whose number is known when a checkpoint was loaded. */
static int allocate(struct trainer *t) {
    const struct main_options *o = t->options;
    int64_t samples;
    if (!rt_mul((int64_t)t->accumulate * t->units, o->steps, &samples) || !rt_mul(samples, t->feed.batch, &samples))
        return fail_with(t->self, EXIT_USAGE, RT_CODE_USAGE,
                         "the number of samples in all steps overflows: use a smaller --steps");
    t->losses = calloc((size_t)t->accumulate, sizeof *t->losses);
    if (!t->losses) return fail_with(t->self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    RT_TRY(feed_allocate(&t->feed, t->self, t->accumulate));
    return t->eval.data ? feed_allocate(&t->eval, t->self, 1) : RT_OK;
}

static int open_log(struct trainer *t) {
    const char *path = t->options->log;
    const int64_t step = t->resume ? t->rt->internal->trained : -1;
    if (!path || !t->self->first) return RT_OK;
    if (rt_make_parents(path)) t->log = t->options->eval_only ? fopen(path, "ae") : log_open(path, step, &t->evaluated);
    if (t->log) return RT_OK;
    return fail_with(t->self, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write '%s': %s", rt_quote_text(path).text,
                     strerror(errno));
}

/* True after every `every` steps and after the last one. */
static bool is_due(const struct trainer *t, int every) {
    const int64_t step = t->rt->internal->trained;
    return step == t->options->steps || (every && step % every == 0);
}

/* Collective: makes the evaluation that a signal has ended before the run was resumed, if the log lacks it; without a
 * log after the last step alone, where nothing else is left to do. */
static int evaluate_again(struct trainer *t) {
    struct rt_comm *comm = t->rt->comm;
    const bool last = t->rt->internal->trained == t->options->steps;
    const int32_t mine = t->self->first && (t->log ? !t->evaluated : last);
    int32_t any = 0;
    if (!t->resume || !t->eval.data || !is_due(t, t->options->eval_every)) return RT_OK;
    RT_TRY(check_comm(t->self, t->rt, comm, comm->driver->all_reduce(comm, &any, &mine, 1, RT_I32, RT_MAX)));
    if (!any || !t->rt->internal->trained) return RT_OK;
    if (t->after_best) t->after_best--; /* recall_best has counted it */
    return evaluate(t);
}

/* Metrics that are printed on the terminal show how far the run is. */
static bool shows_progress(const struct trainer *t) {
    const bool prints = prints_steps(t->options) && !t->log;
    return t->self->first && !t->options->quiet && !(prints && isatty(STDOUT_FILENO));
}

/* What a reader of the last lines may not know. */
static void tell_end(const struct trainer *t) {
    if (t->skipped)
        fprintf(stderr, "rankc: note: steps skipped, because their gradients were not finite: %lld\n",
                (long long)t->skipped);
    if (is_over(t))
        fprintf(stderr,
                "rankc: note: ended after step %lld: %lld evaluations without a lower loss than %.6g, of step %lld\n",
                (long long)t->rt->internal->trained, (long long)t->after_best, t->best.loss, (long long)t->best.step);
}

/* --eval-only */
static int run_evaluation(struct trainer *t) {
    RT_TRY(feed_allocate(&t->eval, t->self, 1));
    RT_TRY(evaluate(t));
    t->self->interrupted = t->stopping;
    return RT_OK;
}

static int run(struct trainer *t) {
    RT_TRY(check_options(t));
    RT_TRY(set_numbers(t));
    RT_TRY(open_data(t));
    RT_TRY(resume(t));
    RT_TRY(open_log(t));
    if (t->options->eval_only) return run_evaluation(t);
    RT_TRY(allocate(t));
    RT_TRY(check_stop(t));
    rt_progress_begin(&t->progress, t->rt->internal->trained, !shows_progress(t));
    if (!t->stopping) RT_TRY(evaluate_again(t));
    while (t->rt->internal->trained < t->options->steps && !t->stopping && !is_over(t)) {
        RT_TRY(train_step(t));
        if (t->eval.data && is_due(t, t->options->eval_every)) RT_TRY(evaluate(t));
        if (is_due(t, t->options->checkpoint_every)) RT_TRY(save_once(t, false));
        RT_TRY(check_stop(t));
    }
    if (is_over(t) && !t->stopping) RT_TRY(save_once(t, false));
    RT_TRY(finish_save(t));
    if (t->self->first && !t->options->quiet) tell_end(t);
    stop_allow(t->self->job, FILES_MS); /* traces, for example */
    t->self->interrupted = t->stopping;
    if (t->stopping && t->self->first && !t->log && !t->options->json)
        printf("interrupted after step %lld\n", (long long)t->rt->internal->trained);
    return RT_OK;
}

int train_steps(struct rank *self, struct rt *rt) {
    struct trainer t = {.self = self, .rt = rt, .options = &self->job->options, .best.loss = INFINITY};
    stop_after_steps(self->job);
    int status = run(&t);
    rt_progress_end(&t.progress);
    if (t.log) fclose(t.log);
    if (t.feed.program) feed_close(&t.feed);
    if (t.eval.program) feed_close(&t.eval);
    free(t.losses);
    return status;
}
