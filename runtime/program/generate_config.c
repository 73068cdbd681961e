/* What manifest.json says about generation, and options that change it. */
#include "program/generate.h"

#include "base/io/file.h"
#include "base/text/diagnostic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Greatest token id: vocabularies are smaller, and i32 holds it. */
#define MOST_ID INT32_MAX

static int out_of_memory(struct failure *failure) {
    return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

static int read_ids(struct id_list *list, const struct rt_json *value, int64_t more, struct failure *failure) {
    const int64_t count = value && value->kind == RT_JSON_ARRAY ? value->count : 0;
    list->at = calloc((size_t)(count + more) + 1, sizeof *list->at);
    if (!list->at) return out_of_memory(failure);
    for (const struct rt_json *id = count ? value->first : NULL; id; id = id->next)
        if (rt_json_int(id, &list->at[list->n])) list->n++;
    return EXIT_OK;
}

static int find_name(const char *const *names, int count, const char *name, size_t length) {
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) return i;
    return -1;
}

/* --role INPUT=ROLE. The role is behind the last '=', which names may contain. */
static int take_role(struct generation *generation, const struct job *job, const char *argument,
                     struct failure *failure) {
    const char *equals = strrchr(argument, '=');
    if (!equals)
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "--role needs INPUT=ROLE, not '%s'",
                           rt_quote_text(argument).text);
    const int input = find_name(job->manifest.inputs, job->program->ninputs, argument, (size_t)(equals - argument));
    if (input < 0) return inputs_unknown("--role", argument, job->manifest.inputs, job->program->ninputs, failure);
    generation->roles[input] = rt_role_by_word(equals + 1);
    if (generation->roles[input]) return EXIT_OK;
    const char *words[RT_ROLES];
    for (int r = 1; r < RT_ROLES; r++) words[r - 1] = rt_role_row((enum rt_role)r)->word;
    failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "--role: there is no role '%s'", rt_quote_text(equals + 1).text);
    const char *meant = rt_nearest(equals + 1, words, RT_ROLES - 1);
    return failure_help(failure, meant ? "did you mean '%s'?" : "see --help", meant);
}

static bool is_given(const struct job *job, int input) {
    const char *name = job->manifest.inputs[input];
    const size_t length = strlen(name);
    for (int i = 0; i < job->options.inputs.n; i++)
        if (strncmp(job->options.inputs.at[i], name, length) == 0 && job->options.inputs.at[i][length] == '=')
            return true;
    return false;
}

/* Roles of the manifest, then of --role; a tensor of --input is what the input gets, whatever its name. */
static int read_roles(struct generation *generation, const struct rt_json *roles, const struct job *job,
                      struct failure *failure) {
    const struct manifest *manifest = &job->manifest;
    generation->ids = -1;
    for (const struct rt_json *role = roles ? roles->first : NULL; role; role = role->next) {
        const int input = find_name(manifest->inputs, job->program->ninputs, role->key, role->key_bytes);
        const char *word = rt_json_text(role);
        if (input >= 0 && word) generation->roles[input] = rt_role_by_word(word);
    }
    for (int i = 0; i < job->options.roles.n; i++) {
        const int exit = take_role(generation, job, job->options.roles.at[i], failure);
        if (exit) return exit;
    }
    for (int i = 0; i < job->program->ninputs; i++) {
        if (is_given(job, i)) generation->roles[i] = RT_ROLE_GIVEN;
        if (generation->roles[i] == RT_ROLE_IDS) generation->ids = i;
    }
    return EXIT_OK;
}

/* "with --role NAME=ROLE or --input NAME=FILE" */
static int check_roles(const struct generation *generation, const struct job *job, struct failure *failure) {
    if (generation->ids < 0) {
        failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "none of the model's inputs has the role ids");
        return failure_help(failure, "name it: --role INPUT=ids");
    }
    for (int i = 0; i < job->program->ninputs; i++) {
        const char *name = job->manifest.inputs[i];
        if (generation->roles[i] && (*rt_role_row(generation->roles[i])->shapes || is_given(job, i))) continue;
        failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "input '%s' of the model has no %s", rt_quote_text(name).text,
                    generation->roles[i] ? "value" : "role, and no value");
        return failure_help(
            failure, generation->roles[i] ? "--input %s=FILE" : "--role %s=mask, =positions, .., or --input %s=FILE",
            rt_quote_text(name).text, rt_quote_text(name).text);
    }
    return EXIT_OK;
}

/* The output with the logits: the one that the manifest names, else the first. */
static void find_logits(struct generation *generation, const char *name, const struct job *job) {
    const int found = name ? find_name(job->manifest.outputs, job->program->noutputs, name, strlen(name)) : -1;
    generation->logits = found < 0 ? 0 : found;
}

/* --stop ID */
static int take_stops(struct generation *generation, const struct job *job, struct failure *failure) {
    for (int i = 0; i < job->options.stops.n; i++) {
        const char *text = job->options.stops.at[i];
        char *end;
        errno = 0;
        const long long id = strtoll(text, &end, 10);
        if (errno || end == text || *end || id < 0 || id > MOST_ID)
            return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE,
                               "--stop needs a token id, not '%s': `rankc generate` takes texts",
                               rt_quote_text(text).text);
        generation->ends.at[generation->ends.n++] = id;
    }
    return EXIT_OK;
}

int generation_read(struct generation *generation, const struct job *job, struct failure *failure) {
    const struct rt_json *from = rt_json_member(rt_json_root(job->manifest.document), "generation");
    *generation = (struct generation){.ids = -1};
    if (!from) {
        failure_set(failure, EXIT_MISMATCH, RT_CODE_STATELESS, "the program keeps no state from step to step");
        return failure_help(failure, "compile the model with --state auto");
    }
    generation->roles = calloc((size_t)job->program->ninputs + 1, sizeof *generation->roles);
    if (!generation->roles) return out_of_memory(failure);
    int exit = read_ids(&generation->ends, rt_json_member(from, "end"), job->options.stops.n, failure);
    if (!exit) exit = read_ids(&generation->suppressed, rt_json_member(from, "suppress"), 0, failure);
    if (!exit) exit = read_ids(&generation->suppressed_first, rt_json_member(from, "suppress_first"), 0, failure);
    if (!exit && !rt_json_int(rt_json_member(from, "pad"), &generation->pad))
        generation->pad = generation->ends.n ? generation->ends.at[0] : 0;
    const char *padding = rt_json_text(rt_json_member(from, "padding"));
    generation->pads_right = padding && strcmp(padding, "right") == 0;
    find_logits(generation, rt_json_text(rt_json_member(from, "logits")), job);
    if (!exit) exit = take_stops(generation, job, failure);
    if (!exit) exit = read_roles(generation, rt_json_member(from, "roles"), job, failure);
    return exit ? exit : check_roles(generation, job, failure);
}

void generation_free(struct generation *generation) {
    free(generation->roles);
    free(generation->ends.at);
    free(generation->suppressed.at);
    free(generation->suppressed_first.at);
}

/* One line: adds its ids to the row, all rows being `room` apart. False: not a line of ids. */
static bool read_line(const char *line, const char *end, int64_t *ids, int64_t *n) {
    *n = 0;
    while (line < end) {
        int64_t id = 0;
        const char *word = line;
        for (; line < end && *line >= '0' && *line <= '9' && id <= MOST_ID; line++) id = id * 10 + (*line - '0');
        if (line == word || id > MOST_ID || (line < end && *line++ != ' ')) return false;
        if (ids) ids[*n] = id;
        ++*n;
    }
    return *n > 0;
}

/* Counts rows and the longest, or with ids fills them. */
static bool read_lines(struct grid *grid, const char *text, size_t bytes) {
    const char *end = text + bytes;
    int64_t row = 0;
    for (const char *line = text; line < end; row++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        int64_t n;
        if (!stop) stop = end;
        if (!read_line(line, stop, grid->ids ? grid->ids + row * grid->room : NULL, &n)) return false;
        if (grid->ids) grid->lengths[row] = n;
        if (n > grid->width) grid->width = n;
        line = stop + 1;
    }
    grid->rows = grid->given = row;
    return row > 0;
}

int prompts_read(struct grid *grid, const char *path, struct failure *failure) {
    enum { MOST_BYTES = 1 << 28 };
    struct rt_reason why;
    void *bytes;
    size_t count;
    *grid = (struct grid){0};
    if (!rt_file_read(path, MOST_BYTES, &bytes, &count, &why)) {
        failure_reason(failure, RT_CODE_INPUT, &why);
        return failure_where(failure, "%s", rt_quote_text(path).text);
    }
    bool ok = read_lines(grid, bytes, count);
    grid->room = grid->width;
    if (ok) {
        grid->ids = calloc((size_t)(grid->rows * grid->room), sizeof *grid->ids);
        grid->lengths = calloc((size_t)grid->rows, sizeof *grid->lengths);
    }
    if (ok && grid->ids && grid->lengths) read_lines(grid, bytes, count);
    free(bytes);
    if (ok) return grid->ids && grid->lengths ? EXIT_OK : out_of_memory(failure);
    failure_set(failure, EXIT_MALFORMED, RT_CODE_INPUT,
                "a file of prompts has a line for each: token ids with a space between them");
    return failure_where(failure, "%s", rt_quote_text(path).text);
}
