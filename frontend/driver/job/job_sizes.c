/* Open sizes: a model is imported as two specimens, and its program generated from both (Note [Specimens] in
 * ir/open.h). */
#include <string.h>

#include "frontend/driver/job/job.h"
#include "ir/base/str.h"
#include "ir/specimens.h"

bool job_has_open_sizes(const struct job *job) {
    const struct options *options = job->options;
    bool open = false;
    for (int i = 0; i < options->dims.all.n; i++) open = open || open_is_range(&options->dims.all.at[i].range);
    for (int i = 0; i < options->shapes.all.n; i++)
        for (int d = 0; d < options->shapes.all.at[i].ndim; d++)
            open = open || open_is_range(&options->shapes.all.at[i].sizes[d]);
    return open;
}

/* Training programs have fixed sizes. */
static int refuse_training(const struct job *job) {
    const struct options *options = job->options;
    VEC_EACH(&options->dims.all, i, const struct option_size *dim) {
        if (!open_is_range(&dim->range)) continue;
        diag_error(job->diags, 439, EXIT_UNSUPPORTED, "--train",
                   "the size of %s is open, but sizes of training are fixed", diag_quote(job->diags, dim->name));
        return diag_help(job->diags, "--dim %s=%lld trains with one size", dim->name, (long long)dim->range.typical),
               -1;
    }
    diag_error(job->diags, 439, EXIT_UNSUPPORTED, "--train",
               "--shape leaves sizes open, but sizes of training are fixed");
    return -1;
}

/* Imports the specimen into job->graph. The diagnostics are job->diags. */
static int import_specimen(struct job *job, int (*import)(struct job *job), int specimen) {
    job->specimen = specimen;
    return import(job);
}

/* Warnings of the second specimen are those of the first. */
int job_import_pair(struct job *job, int (*import)(struct job *job), int first) {
    struct diags *diags = job->diags, others;
    const int before = diags->all.n;
    if (import_specimen(job, import, first) < 0) return -1;
    if (!job->graph->open) return 0;
    struct graph *graph = job->graph;
    diags_init(&others, job->arena);
    job->diags = &others;
    const int status = import_specimen(job, import, first + 1);
    job->diags = diags;
    job->specimen = first;
    job->twin = job->graph, job->graph = graph;
    if (status < 0) return diags_append(diags, &others), -1;
    if (!specimens_agree(job->graph, job->twin, diags)) return -1;
    job_name_sizes(job, diags, before); /* by the numbers of the import */
    return job->graph->level < PLACED ? specimens_settle(job->graph, job->twin, diags) : 0;
}

void job_name_sizes(const struct job *job, struct diags *diags, int first) {
    struct open_sizes *open = job->graph ? job->graph->open : NULL;
    for (int i = first; open && i < diags->all.n; i++) {
        struct diagnostic *said = &diags->all.at[i];
        said->text = open_said(open, diags->arena, said->text);
        for (int k = 0; k < said->notes.n; k++) said->notes.at[k] = open_said(open, diags->arena, said->notes.at[k]);
    }
}

/* A number that is fixed may have the value of a size by chance, and sizes may be too large for a model. */
static bool others_may_do(const struct diags *tried) {
    const int code = tried->errors ? tried->all.at[0].code : 0;
    return code == 439 || code == 505;
}

/* Note [Narrower sizes]
 * Shapes that do not fit for all open sizes may fit for some. For example, a slice may exceed a table only at the
 * largest sizes. So the import is tried again with narrower ranges: for each range in turn with a lower upper bound,
 * then with a single size; at last with a single size for all ranges. The error names the choice that succeeds. Only
 * if none does, the model's shapes are wrong. */

static bool imports_with(const struct job *job, int (*import)(struct job *job), const struct options *options) {
    struct job attempt = *job;
    struct diags diags = {.arena = job->arena};
    attempt.options = options, attempt.diags = &diags;
    return job_import_pair(&attempt, import, 0) == 0;
}

static struct open_range up_to(const struct open_range *whole, int64_t steps) {
    struct open_range range = *whole;
    range.most = whole->least + steps * whole->step;
    if (range.typical > range.most) range.typical = range.most;
    return range;
}

/* Narrows *range, which is part of `options`, to the largest upper bound with which the import succeeds; if there is
 * none, to its typical size alone. False if that fails, too; then *range is unchanged. */
static bool narrow(const struct job *job, int (*import)(struct job *job), const struct options *options,
                   struct open_range *range) {
    const struct open_range whole = *range;
    int64_t fits = 0, beyond = (whole.most - whole.least) / whole.step; /* steps above the least size */
    *range = up_to(&whole, 0);
    if (!imports_with(job, import, options)) {
        *range = open_fixed(whole.typical);
        if (imports_with(job, import, options)) return true;
        *range = whole;
        return false;
    }
    while (beyond - fits > 1) {
        const int64_t middle = fits + (beyond - fits) / 2;
        *range = up_to(&whole, middle);
        *(imports_with(job, import, options) ? &fits : &beyond) = middle;
    }
    *range = up_to(&whole, fits);
    return true;
}

static const char *dim_option(struct arena *arena, const struct option_size *dim) {
    return arena_printf(arena, " --dim %s=%s", str_name(arena, dim->name), open_range_text(arena, &dim->range));
}

/* The --dim with which the import succeeds, each with a blank in front; NULL: none is found. */
static const char *narrower(const struct job *job, int (*import)(struct job *job)) {
    struct options *options = arena_copy(job->arena, job->options, sizeof *options);
    VEC_UNSHARE(job->arena, &options->dims.all);
    const char *all = "";
    VEC_EACH(&options->dims.all, i, struct option_size *const dim)
        if (open_is_range(&dim->range) && narrow(job, import, options, &dim->range)) return dim_option(job->arena, dim);
    VEC_EACH(&options->dims.all, i, struct option_size *const dim) {
        if (!open_is_range(&dim->range)) continue;
        dim->range = open_fixed(dim->range.typical);
        all = arena_printf(job->arena, "%s%s", all, dim_option(job->arena, dim));
    }
    return imports_with(job, import, options) ? all : NULL;
}

/* Shapes that do not fit because of open sizes are not wrong, but not supported. */
static void refuse_misfit(const struct job *job, int (*import)(struct job *job), struct diags *tried) {
    struct diagnostic *misfit = specimens_misfit(tried);
    struct open_sizes *open = job->graph ? job->graph->open : NULL;
    if (!misfit || !open) return;
    const char *option = open->clash.met ? specimens_option(job->arena, open) : NULL;
    if (!option) option = narrower(job, import);
    if (option || open->clash.met) specimens_refuse_misfit(misfit, job->arena, option ? option : "");
}

/* Imports the model with two specimens of its open sizes, job->first and the next one. Where other specimens may
 * succeed, the next two are tried. The errors reported are those of the last two. */
int job_import_open(struct job *job, int (*import)(struct job *job)) {
    struct diags *diags = job->diags;
    if (job->options->train) return refuse_training(job);
    for (int first = job->first;; first += 2) {
        struct diags tried = {.arena = job->arena};
        job->diags = &tried;
        const int status = job_import_pair(job, import, first);
        job->diags = diags;
        if (status && first + 2 < OPEN_SPECIMENS && others_may_do(&tried)) continue;
        if (status) refuse_misfit(job, import, &tried);
        return job_name_sizes(job, &tried, 0), diags_append(diags, &tried), status;
    }
}

/* Tells where text `a` differs from `b`: the last comment before the difference, which names a node; without one, the
 * line. */
static const char *difference(struct arena *arena, const char *a, const char *b) {
    const char *line = a, *comment = "", *behind = "";
    for (; *a && *a == *b; a++, b++) {
        if (*a == '\n') line = a + 1;
        if (strncmp(a, "\n    // ", 8) == 0) comment = a + 8, behind = comment + strcspn(comment, "\n");
    }
    if (*comment) return arena_copy(arena, comment, (size_t)(behind - comment));
    return arena_copy(arena, line, strcspn(line, "\n"));
}

/* True for what has the weights and hashes of them. */
static bool is_text(const struct program_file *file) {
    return file->bytes && strncmp(file->path, "weights/", 8) != 0;
}

int job_other_specimens(struct job *job, const struct diags *tried) {
    struct diags *diags = job->diags, said; /* what the import said before */
    if (!job->model || !job->twin || !others_may_do(tried) || job->specimen + 2 >= OPEN_SPECIMENS) return -1;
    diags_init(&said, job->arena);
    job->first = job->specimen + 2;
    job->diags = &said;
    memset(&job->plan, 0, sizeof job->plan);
    memset(&job->decided, 0, sizeof job->decided);
    const int status = job_import(job, NULL);
    job->diags = diags;
    return status;
}

/* E0439 unless both have one manifest, but for the hashes of files. */
static int check_manifest(const struct job *job, const struct job *twin) {
    struct manifest manifest = job_manifest(job, NULL), other = job_manifest(twin, NULL);
    manifest.estimate = other.estimate = NULL;
    const char *text = manifest_text(&manifest), *same = manifest_text(&other);
    if (!text || !same) return job_out_of_memory(job);
    if (strcmp(text, same) == 0) return 0;
    return specimens_refuse(job->diags, job->graph->open, difference(job->arena, text, same), "a number of the plan");
}

int job_check_twin(const struct job *job, const struct program *program) {
    struct job twin = *job;
    struct program other;
    if (!job->twin) return 0;
    struct diags diags = {.arena = job->arena};
    twin.graph = job->twin, twin.diags = &diags;
    memset(&twin.plan, 0, sizeof twin.plan);
    memset(&twin.decided, 0, sizeof twin.decided);
    if (job_plan(&twin) < 0) return diags_append(job->diags, &diags), -1;
    program_make(&other, &twin.plan, &twin.sources, job_target(&twin), &twin.info);
    for (int i = 0; i < program->files.n; i++) {
        const struct program_file *file = &program->files.at[i], *same = i < other.files.n ? &other.files.at[i] : NULL;
        if (!same) return specimens_refuse(job->diags, job->graph->open, file->path, "a file");
        if (file->count == same->count && memcmp(file->bytes, same->bytes, file->count) == 0) continue;
        const char *where = is_text(file) ? difference(job->arena, file->bytes, same->bytes) : file->path;
        return specimens_refuse(job->diags, job->graph->open, where, "a number of the program");
    }
    return check_manifest(job, &twin);
}
