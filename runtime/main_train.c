/* `rankc train`: steps over files of samples, and a line of metrics for each. */
#include "main.h"

#include "base/checked.h"
#include "data.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Training data of one rank, and memory for the micro-batches of a step. */
struct feed {
    struct rt_data *data; /* per input */
    void **buffers;       /* [micro-batch][input] */
    const void *const **samples;
    double *losses;
    int micro_batches, inputs;
};

/* Options */

static const char *data_of(const struct main_options *options, const char *name) {
    const size_t length = strlen(name);
    for (int i = 0; i < options->ndata; i++)
        if (strncmp(options->data[i], name, length) == 0 && options->data[i][length] == '=')
            return options->data[i] + length + 1;
    return NULL;
}

static int fail_data(struct rank *self, int exit, int code, const char *what, const char *where) {
    self->status = exit == RT_EXIT_USAGE ? RT_ERROR_USAGE : RT_ERROR_INPUT;
    failure_set(&self->failure, exit, code, "%s", what);
    if (where) failure_where(&self->failure, "%s", where);
    return self->status;
}

/* Every --data names an input. */
static int check_names(struct rank *self) {
    const struct job *job = self->job;
    for (int d = 0; d < job->options.ndata; d++) {
        const char *given = job->options.data[d];
        bool known = false;
        for (int i = 0; i < job->program->ninputs; i++) {
            const size_t length = strlen(job->manifest.inputs[i]);
            known = known || (strncmp(given, job->manifest.inputs[i], length) == 0 && given[length] == '=');
        }
        if (!known)
            return fail_data(self, RT_EXIT_USAGE, RT_CODE_USAGE, "--data names no input of the model",
                             rt_quote_text(given).text);
    }
    return RT_OK;
}

static int open_input(struct rank *self, struct rt_data *data, int input) {
    const struct job *job = self->job;
    const char *name = job->manifest.inputs[input], *spec = data_of(&job->options, name);
    struct rt_reason why;
    if (!spec)
        return fail_data(self, RT_EXIT_USAGE, RT_CODE_USAGE, "an input has no --data", rt_quote_text(name).text);
    if (rt_data_open(data, &job->program->inputs[input], spec, &why)) return RT_OK;
    return fail_data(self, why.kind == RT_REASON_CONTENT ? RT_EXIT_INPUT : RT_EXIT_SYSTEM,
                     why.kind == RT_REASON_CONTENT ? RT_CODE_INPUT : RT_CODE_OPEN, why.text,
                     rt_quote_text(spec).text);
}

/* Feeding */

static void close_feed(struct feed *feed) {
    for (int i = 0; feed->data && i < feed->inputs; i++) rt_data_close(&feed->data[i]);
    for (int b = 0; feed->buffers && b < feed->micro_batches * feed->inputs; b++) free(feed->buffers[b]);
    free(feed->data);
    free(feed->buffers);
    free(feed->samples);
    free(feed->losses);
}

static bool allocate_feed(struct feed *feed, const struct rt_program *program) {
    feed->inputs = program->ninputs;
    feed->micro_batches = program->training->accumulate;
    const size_t batches = (size_t)feed->micro_batches, inputs = (size_t)feed->inputs;
    feed->data = calloc(inputs + 1, sizeof *feed->data);
    feed->buffers = calloc(batches * inputs + 1, sizeof *feed->buffers);
    feed->samples = calloc(batches, sizeof *feed->samples);
    feed->losses = calloc(batches, sizeof *feed->losses);
    if (!feed->data || !feed->buffers || !feed->samples || !feed->losses) return false;
    for (int b = 0; b < feed->micro_batches * feed->inputs; b++) {
        const struct rt_port *port = &program->inputs[b % feed->inputs];
        int64_t count = 0;
        rt_product(port->dims, port->ndim, &count);
        feed->buffers[b] = malloc((size_t)count * rt_dtype_bytes(port->dtype) + 1);
        if (!feed->buffers[b]) return false;
    }
    for (int j = 0; j < feed->micro_batches; j++)
        feed->samples[j] = (const void *const *)(feed->buffers + j * feed->inputs);
    return true;
}

static int open_feed(struct rank *self, struct feed *feed) {
    const struct rt_program *program = self->job->program;
    if (!allocate_feed(feed, program))
        return fail_data(self, RT_EXIT_MEMORY, RT_CODE_MEMORY, "out of memory", NULL);
    RT_TRY(check_names(self));
    for (int i = 0; i < program->ninputs; i++) RT_TRY(open_input(self, &feed->data[i], i));
    return RT_OK;
}

/* The micro-batches of a step are dealt out to the units one after the other. */
static void fill(struct feed *feed, const struct rt *rt, int64_t step) {
    const int units = rt->program->training->units;
    for (int j = 0; j < feed->micro_batches; j++)
        for (int i = 0; i < feed->inputs; i++)
            rt_data_read(&feed->data[i], (step * feed->micro_batches + j) * units + rt->unit,
                         feed->buffers[j * feed->inputs + i]);
}

/* Metrics */

struct metrics {
    int64_t step, samples; /* the step's, of all units */
    double loss, norm, lr, ms;
};

/* The mean loss over the micro-batches of all units, which every rank gets. */
static int mean_loss(struct rank *self, struct rt *rt, const struct feed *feed, double *mean) {
    double mine = 0, all = 0;
    for (int j = 0; j < feed->micro_batches; j++) mine += feed->losses[j];
    int status = rt->units->driver->all_reduce(rt->units, &all, &mine, 1, RT_F64, RT_SUM);
    *mean = all / (feed->micro_batches * rt->program->training->units);
    return status ? fail_rank(self, rt, rt_fail_comm(rt, rt->units, status)) : RT_OK;
}

static bool write_metrics(FILE *log, const struct metrics *m) {
    struct rt_json_writer w;
    struct rt_reason why;
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_INLINE);
    rt_json_key(&w, "step"), rt_json_put_int(&w, m->step);
    rt_json_key(&w, "loss"), rt_json_put_real(&w, m->loss);
    rt_json_key(&w, "grad_norm"), rt_json_put_real(&w, m->norm);
    rt_json_key(&w, "lr"), rt_json_put_real(&w, m->lr);
    rt_json_key(&w, "samples_per_s"), rt_json_put_real(&w, m->ms > 0 ? (double)m->samples / m->ms * 1e3 : 0);
    rt_json_key(&w, "ms"), rt_json_put_real(&w, m->ms);
    rt_json_close(&w, '}');
    bool ok = rt_json_end(&w, &why) && fwrite(w.text, 1, w.bytes, log) == w.bytes && fflush(log) == 0;
    rt_json_discard(&w);
    return ok;
}

static int report(struct rank *self, FILE *log, const struct metrics *m) {
    const char *path = self->job->options.log;
    if (!log)
        printf("step %lld: loss %.6g, gradient norm %.6g, %.1f ms\n", (long long)m->step, m->loss, m->norm, m->ms);
    if ((log ? write_metrics(log, m) : fflush(stdout) == 0)) return RT_OK;
    self->status = RT_ERROR_SYSTEM;
    failure_set(&self->failure, RT_EXIT_SYSTEM, RT_CODE_WRITE, "cannot write metrics: %s", strerror(errno));
    if (path) failure_where(&self->failure, "%s", rt_quote_text(path).text);
    return self->status;
}

/* A loss that is no number ends the run: what follows would be worth nothing. */
static int check_loss(struct rank *self, const struct metrics *m) {
    if (isfinite(m->loss)) return RT_OK;
    self->status = RT_ERROR_INPUT;
    failure_set(&self->failure, RT_EXIT_RANK, RT_CODE_LOSS, "the loss of step %lld is %s", (long long)m->step,
                isnan(m->loss) ? "not a number" : "infinite");
    return self->status;
}

/* Steps */

static int train_step(struct rank *self, struct rt *rt, struct feed *feed, FILE *log, int64_t step) {
    const struct rt_training *training = rt->program->training;
    struct metrics m = {.step = step + 1, .lr = rt->private->control[RT_LR]};
    if (rt->program->ninputs && rt->program->inputs[0].ndim)
        m.samples = rt->program->inputs[0].dims[0] * training->accumulate * training->units;
    fill(feed, rt, step);
    const double start = now_ms();
    int status = rt_train_step(rt, feed->samples, NULL, feed->losses);
    if (status) return fail_rank(self, rt, status);
    RT_TRY(mean_loss(self, rt, feed, &m.loss));
    m.ms = now_ms() - start;
    m.norm = rt_gradient_norm(rt);
    if (self->first) RT_TRY(report(self, log, &m));
    return check_loss(self, &m);
}

static int open_log(struct rank *self, FILE **log) {
    const char *path = self->job->options.log;
    if (!path || !self->first || (*log = fopen(path, "we"))) return RT_OK;
    const int error = errno;
    self->status = RT_ERROR_SYSTEM;
    failure_set(&self->failure, RT_EXIT_SYSTEM, RT_CODE_WRITE, "cannot write '%s': %s", rt_quote_text(path).text,
                strerror(error));
    return self->status;
}

int train_steps(struct rank *self, struct rt *rt) {
    struct feed feed = {0};
    FILE *log = NULL;
    if (!rt->program->training)
        return fail_data(self, RT_EXIT_MISMATCH, RT_CODE_FORMAT, "the program was not compiled with --train", NULL);
    int status = open_feed(self, &feed);
    if (!status) status = open_log(self, &log);
    for (int64_t step = 0; step < self->job->options.steps && !status; step++)
        status = train_step(self, rt, &feed, log, step);
    if (log) fclose(log);
    close_feed(&feed);
    return status;
}
