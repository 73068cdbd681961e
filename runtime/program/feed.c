#include "program/feed.h"

#include "base/number/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options */

/* FILE of "NAME=FILE" if NAME is `name`, else NULL. */
static const char *file_for(const char *spec, const char *name) {
    const size_t length = strlen(name);
    return strncmp(spec, name, length) == 0 && spec[length] == '=' ? spec + length + 1 : NULL;
}

static const char *find_file(const struct feed_options *options, const char *name) {
    for (int i = 0; i < options->n; i++)
        if (file_for(options->specs[i], name)) return file_for(options->specs[i], name);
    return NULL;
}

/* Checks that every argument names an input. */
static int check_names(struct rank *self, const struct feed_options *options) {
    const struct job *job = self->job;
    for (int s = 0; s < options->n; s++) {
        bool known = false;
        for (int i = 0; i < job->program->ninputs; i++)
            known = known || file_for(options->specs[s], job->manifest.inputs[i]);
        if (known) continue;
        return self->status = rt_status_of_exit(inputs_unknown(options->name, options->specs[s], job->manifest.inputs,
                                                               job->program->ninputs, &self->failure));
    }
    return RT_OK;
}

/* Files */

static int open_input(struct feed *feed, struct rank *self, const struct feed_options *options, int input) {
    const struct job *job = self->job;
    const char *name = job->manifest.inputs[input], *file = find_file(options, name);
    struct rt_reason why;
    if (!file) {
        const struct rt_port *port = &job->program->inputs[input];
        return fail_with(self, EXIT_USAGE, RT_CODE_USAGE, "needs %s %s=FILE (%s%s %s)", options->name,
                         rt_quote_text(name).text, port->shared ? "" : "samples of ", rt_dtypes[port->dtype].name,
                         port->shared ? shape_format(port->ndim, port->dims).text
                                      : shape_format(port->ndim - (port->ndim > 0), port->dims + 1).text);
    }
    if (rt_data_open(&feed->data[input], &job->program->inputs[input], feed->batch, file, &why)) return RT_OK;
    fail_reason(self, RT_CODE_INPUT, &why);
    failure_where(&self->failure, "%s", rt_quote_text(file).text);
    return self->status;
}

/* Of a program with a batch of one sample, nothing in the graph tells positions [1,T] from tokens [1,T]: a file of one
 * sample, beside files of several, has the input of all samples. */
static void take_single(struct feed *feed, const struct rank *self) {
    int64_t most = 0;
    for (int i = 0; i < feed->program->ninputs; i++)
        if (!feed->data[i].shared && feed->data[i].samples > most) most = feed->data[i].samples;
    for (int i = 0; i < feed->program->ninputs && feed->batch == 1; i++) {
        struct rt_data *data = &feed->data[i];
        if (data->shared || data->tokens || data->samples != 1 || most < 2) continue;
        data->shared = true;
        if (self->first && !self->job->options.quiet)
            fprintf(stderr, "rankc: note: input '%s' has one sample, which is taken for all %lld\n",
                    rt_quote_text(self->job->manifest.inputs[i]).text, (long long)most);
    }
}

/* Sets the number of samples, which must be the same for all inputs. Only a file of tokens may have more, because
 * labels are its tokens shifted by one. */
static int count_samples(struct feed *feed, struct rank *self) {
    int least = -1;
    take_single(feed, self);
    for (int i = 0; i < feed->program->ninputs; i++)
        if (!feed->data[i].shared && (least < 0 || feed->data[i].samples < feed->data[least].samples)) least = i;
    feed->sampler.samples = feed->data[least].samples;
    for (int i = 0; i < feed->program->ninputs; i++) {
        if (feed->data[i].shared || feed->data[i].tokens || feed->data[i].samples == feed->sampler.samples) continue;
        const struct rt_quoted more = rt_quote_text(self->job->manifest.inputs[i]),
                               less = rt_quote_text(self->job->manifest.inputs[least]);
        return fail_with(self, EXIT_MALFORMED, RT_CODE_INPUT, "input '%s' has %lld samples, but input '%s' has %lld",
                         more.text, (long long)feed->data[i].samples, less.text, (long long)feed->sampler.samples);
    }
    return RT_OK;
}

/* Samples per micro-batch: the least dimension 0 of the inputs that have samples. */
static int find_batch(struct feed *feed, struct rank *self) {
    const struct rt_program *program = feed->program;
    for (int i = 0; i < program->ninputs; i++) {
        const int64_t rows = program->inputs[i].ndim ? program->inputs[i].dims[0] : 0;
        if (program->inputs[i].shared) continue;
        if (!feed->batch || rows < feed->batch) feed->batch = rows;
    }
    if (feed->batch > 0) return RT_OK;
    return fail_with(self, EXIT_USAGE, RT_CODE_USAGE, "the model has no input with samples of its own");
}

/* Memory */

static bool allocate(struct feed *feed) {
    const size_t slots = (size_t)feed->slots, inputs = (size_t)feed->program->ninputs;
    feed->buffers = calloc(slots * inputs + 1, sizeof *feed->buffers);
    feed->samples = calloc(slots + 1, sizeof *feed->samples);
    if (!feed->buffers || !feed->samples) return false;
    for (size_t b = 0; b < slots * inputs; b++) {
        const struct rt_port *port = &feed->program->inputs[b % inputs];
        int64_t count = 0;
        rt_product(port->dims, port->ndim, &count);
        feed->buffers[b] = malloc((size_t)count * rt_dtype_bytes(port->dtype) + 1);
        if (!feed->buffers[b]) return false;
    }
    for (size_t j = 0; j < slots; j++) feed->samples[j] = (const void *const *)(feed->buffers + j * inputs);
    return true;
}

int feed_allocate(struct feed *feed, struct rank *self, int slots) {
    feed->slots = slots;
    return allocate(feed) ? RT_OK : fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

int feed_open(struct feed *feed, struct rank *self, const struct feed_options *options) {
    *feed = (struct feed){.program = self->job->program};
    feed->data = calloc((size_t)feed->program->ninputs + 1, sizeof *feed->data);
    if (!feed->data) return fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    RT_TRY(check_names(self, options));
    RT_TRY(find_batch(feed, self));
    for (int i = 0; i < feed->program->ninputs; i++) RT_TRY(open_input(feed, self, options, i));
    return count_samples(feed, self);
}

int feed_add_terms(const struct feed *feed, struct rank *self, const struct feed_options *options,
                   struct rt_terms *terms) {
    for (int i = 0; i < feed->program->ninputs; i++) {
        const struct rt_data *data = &feed->data[i];
        const char *name = self->job->manifest.inputs[i];
        char hash[RT_HASH_HEX], content[128];
        struct rt_reason why;
        if (!rt_data_hash(data, hash, &why)) return fail_reason(self, RT_CODE_INPUT, &why);
        snprintf(content, sizeof content, "%lld samples of %s, hash %s", (long long)data->samples,
                 rt_dtypes[data->dtype].name, hash);
        options_add_content(terms, options->name, name, find_file(options, name), content);
    }
    return RT_OK;
}

void feed_close(struct feed *feed) {
    for (int i = 0; feed->data && i < feed->program->ninputs; i++) rt_data_close(&feed->data[i]);
    for (int b = 0; feed->buffers && b < feed->slots * feed->program->ninputs; b++) free(feed->buffers[b]);
    free(feed->data);
    free(feed->buffers);
    free(feed->samples);
}

int feed_read(struct feed *feed, struct rank *self, int slot, int64_t index) {
    void **buffers = feed->buffers + slot * feed->program->ninputs;
    struct rt_reason why;
    for (int i = 0; i < feed->program->ninputs; i++)
        if (!rt_data_read(&feed->data[i], &feed->sampler, index * feed->batch, buffers[i], &why))
            return fail_reason(self, RT_CODE_INPUT, &why);
    return RT_OK;
}

int64_t feed_micro_batches(const struct feed *feed) {
    return feed->sampler.samples / feed->batch;
}
