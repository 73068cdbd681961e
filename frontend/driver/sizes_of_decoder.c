/* Bounds of a decoder's open dimensions, from its configuration. */
#include <string.h>

#include "frontend/driver/driver.h"
#include "frontend/driver/job/job.h"
#include "frontend/import/import.h"

/* Columns of a step, and rows of the caches, where the configuration does not say less. */
enum { MOST_COLUMNS = 256, FEW_COLUMNS = 16, MOST_ROWS = 4096 };

/* A dimension that is an expression of others needs no bound. */
static bool is_plain(const char *name) {
    return !strpbrk(name, "+-*/( ") && (*name < '0' || *name > '9');
}

struct decoder_bounds {
    const struct generation *generation;
    int64_t rows, tokens; /* of the batch; of prompt and new tokens */
    bool within;          /* the columns of a step fit behind full caches */
    const char *batch, *columns;
};

static struct open_range range_to(int64_t least, int64_t most) {
    return (struct open_range){least, most, 1, most};
}

static int64_t context_of(const struct decoder_bounds *bounds) {
    const int64_t context = bounds->generation->context, most = context ? context : INT32_MAX;
    const int64_t wanted = bounds->tokens > MOST_ROWS ? bounds->tokens : MOST_ROWS;
    return wanted < most ? wanted : most;
}

/* The letter that the role's shape has for the dimension (runtime/base/roles.def); 0: none. */
static char letter_of(enum rt_role role, const struct import_open_dim *dim) {
    for (const char *word = rt_role_row(role)->shapes; *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        if (*word != '.' && (int)length == dim->ndim) return word[dim->dim];
        word += length;
    }
    return 0;
}

/* The range of a dimension: of an input with a role, or of a cache, [rows, heads, tokens, head size]. False: nothing is
 * known, or it follows from others. */
static bool range_of(const struct decoder_bounds *bounds, const struct import_open_dim *dim, struct open_range *range) {
    const int64_t context = context_of(bounds), most = bounds->within ? FEW_COLUMNS : MOST_COLUMNS;
    const int64_t columns = context < most ? context : most, rows = bounds->within ? context - columns : context;
    const enum rt_role role = generation_role(dim->input, false);
    const char letter = letter_of(role, dim);
    if (letter == 'b' || (!role && !dim->dim) || (bounds->batch && strcmp(dim->name, bounds->batch) == 0))
        *range = range_to(1, bounds->rows);
    else if (letter == 't' || (bounds->columns && strcmp(dim->name, bounds->columns) == 0))
        *range = range_to(1, columns);
    else if (role || dim->ndim != 4 || dim->dim < 2)
        return false;
    else if (dim->dim == 2)
        *range = range_to(0, rows);
    else if (bounds->generation->head_size)
        *range = open_fixed(bounds->generation->head_size);
    else
        return false;
    return true;
}

int driver_sizes_of_decoder(const struct options *options, int64_t rows, int64_t tokens, bool within,
                            struct arena *arena, struct option_sizes *out) {
    struct diags diags; /* errors are those of the compile, which opens the model too */
    struct job job = {.options = options, .arena = arena, .diags = &diags};
    struct generation generation;
    struct import_open_dims dims = {0};
    struct decoder_bounds bounds = {&generation, rows, tokens, within, NULL, NULL};
    diags_init(&diags, arena);
    *out = (struct option_sizes){0};
    if (generation_read(arena, &diags, options->operand, &generation) < 0 || job_open(&job) < 0 || !job.model)
        return -1;
    import_open_dims(arena, job.model, &dims);
    for (int i = 0; i < dims.all.n; i++)
        if (generation_role(dims.all.at[i].input, false) == RT_ROLE_IDS)
            *(dims.all.at[i].dim ? &bounds.columns : &bounds.batch) = dims.all.at[i].name;
    VEC_EACH(&dims.all, i, const struct import_open_dim *dim) {
        struct open_range range;
        if (is_plain(dim->name) && !option_has_size(&options->dims, dim->name) && !option_has_size(out, dim->name) &&
            range_of(&bounds, dim, &range))
            VEC_PUSH(arena, &out->all, ((struct option_size){dim->name, range}));
    }
    return 0;
}
