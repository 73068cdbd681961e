/* The candidates of a search, and the options that ask for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/driver/search/search.h"
#include "ir/base/str.h"
#include "passes/plan/schedule/schedules.h"

/* Ranks of a scale unit. */
static int unit_size(const struct candidate *candidate) {
    return mesh_size(&candidate->decisions.mesh);
}

struct candidate search_one_rank(const struct options *given) {
    struct candidate one = {.units = 1, .batch = search_smallest_batch(given), .decisions = given->decisions};
    one.decisions.mesh = (struct mesh){0};
    for (int a = 0; a < AXIS_ROLES; a++)
        mesh_add_axis(&one.decisions.mesh, axis_rows[a].name, &(struct rt_mesh_axis){.size = 1});
    one.decisions.attention = ATTENTION_GATHER, one.decisions.cut = CUT_ORDERED;
    one.decisions.sequence_parallel = false, one.decisions.recompute = NULL;
    return search_base(&one);
}

/* --dim BATCH=SIZE. */
static void add_batch(struct options *options, struct arena *arena, int size) {
    VEC_UNSHARE(arena, &options->dims.all);
    VEC_PUSH(arena, &options->dims.all, (struct option_size){options->batch_dim, open_fixed(size)});
}

/* As options_micro_batches. */
static bool divide_batch(const struct options *given, const struct candidate *c, int64_t *micro_batches) {
    return options_micro_batches(given, c->units * (int64_t)(c->batch ? c->batch : 1), micro_batches);
}

int64_t search_micro_batches(const struct options *given, const struct candidate *candidate) {
    int64_t micro_batches;
    divide_batch(given, candidate, &micro_batches);
    return micro_batches ? micro_batches : 1;
}

int search_smallest_batch(const struct options *options) {
    if (!options->global_batch) return 0;
    for (int i = 0; i < options->dims.all.n; i++)
        if (strcmp(options->dims.all.at[i].name, options->batch_dim) == 0) return 0;
    return 1;
}

struct options search_options(const struct options *given, const struct candidate *candidate, struct arena *arena) {
    const struct mesh_axis *axes = candidate->decisions.mesh.axis;
    struct options options = *given;
    struct mesh *mesh = &options.decisions.mesh;
    options.mem_limit = 0; /* the search compares with the limit */
    options.decisions = candidate->decisions;
    *mesh = (struct mesh){0};
    for (int a = 0; a < AXIS_ROLES; a++)
        if (axes[a].size > 1) mesh->axis[mesh->naxes++] = axes[a];
    options.pas = (struct option_policy){.word = mesh->naxes ? OPT_POLICY_HYBRID : OPT_POLICY_DP};
    options.plan_ngpus = unit_size(candidate);
    if (axes[AXIS_EXPERT].size == 1) options.decisions.capacity = 0;
    if (candidate->overlap != SEARCH_NEVER) options.decisions.product_runs = -1;
    if (candidate->batch) add_batch(&options, arena, candidate->batch);
    options.runtime_ngpus = options.plan_ngpus * candidate->units;
    options.given[OPT_RUNTIME_NGPUS] = true;
    options_divide_batch(&options);
    return options;
}

static struct schedule_choice schedule_of(const char *text, struct arena *arena) {
    struct schedule_choice choice;
    struct diags diags; /* of a schedule that was checked */
    diags_init(&diags, arena);
    if (schedule_choose(&choice, text && strchr(text, '\n') ? NULL : text, &diags) < 0) BUG("schedule %s", text);
    return choice;
}

void search_drop_own(struct candidate *candidate) {
    for (int a = 0; a < AXIS_ROLES; a++) {
        struct mesh_axis *axis = &candidate->decisions.mesh.axis[a];
        if (axis->end) axis->size = 1, axis->first = axis->end = 0;
    }
}

struct candidate search_base(const struct candidate *candidate) {
    struct candidate base = *candidate;
    base.decisions.mesh.axis[AXIS_PIPELINE].size = base.units = 1;
    for (const struct decision *row = decision_rows; row < decision_rows + DECISIONS; row++)
        if (row->whole) decision_leave(row, &base.decisions);
    search_drop_own(&base);
    return base;
}

struct candidate search_larger_base(const struct candidate *candidate) {
    struct candidate base = search_base(candidate);
    const struct mesh_axis *own = search_own(candidate);
    base.decisions.mesh.axis[own - candidate->decisions.mesh.axis].size = own->size;
    return base;
}

bool search_same_base(const struct candidate *a, const struct candidate *b) {
    if (a->batch != b->batch) return false;
    for (int axis = 0; axis < AXIS_PIPELINE; axis++)
        if (search_ways(a, (enum axis_role)axis) != search_ways(b, (enum axis_role)axis)) return false;
    for (const struct decision *row = decision_rows; row < decision_rows + DECISIONS; row++)
        if (!row->whole && !decision_same(row, &a->decisions, &b->decisions)) return false;
    return true;
}

/* Constraints ------------------------------------------------------------------------------------------------------ */

const char *search_decides(const struct candidate *c, const struct decision *row, struct arena *arena) {
    const char *value = decision_text(row, &c->decisions, arena);
    if (row == &decision_rows[DECIDES_product_runs]) return c->overlap == SEARCH_ALWAYS ? "yes" : NULL;
    if (row == &decision_rows[DECIDES_schedule] && search_ways(c, AXIS_PIPELINE) == 1) return NULL;
    return value && strcmp(value, "none") == 0 ? NULL : value;
}

/* What --forbid and --require can name: axes, the batch, unequal stages, and decisions. */
enum { TRAIT_BATCH = AXIS_ROLES, TRAIT_UNEQUAL, TRAIT_DECIDED, TRAITS = TRAIT_DECIDED + DECISIONS };

/* NULL: a decision that cannot be named. */
static const char *trait_name(int trait) {
    if (trait < AXIS_ROLES) return axis_rows[trait].name;
    if (trait < TRAIT_DECIDED) return trait == TRAIT_BATCH ? "batch" : "unequal-stages";
    return decision_rows[trait - TRAIT_DECIDED].trait;
}

/* What the candidate has; NULL: none. */
static const char *trait_of(const struct candidate *c, int trait, struct arena *arena) {
    const int number = trait < AXIS_ROLES ? c->decisions.mesh.axis[trait].size : c->batch;
    const int none = trait < AXIS_ROLES;
    if (trait <= TRAIT_BATCH) return number == none ? NULL : arena_printf(arena, "%d", number);
    if (trait == TRAIT_UNEQUAL) return search_own(c) ? "yes" : NULL;
    const char *value = search_decides(c, &decision_rows[trait - TRAIT_DECIDED], arena);
    const bool scheduled = trait - TRAIT_DECIDED == DECIDES_schedule && search_ways(c, AXIS_PIPELINE) > 1;
    return value || !scheduled ? value : schedule_default;
}

/* What candidates must have or not have, such as zero=3: `value` NULL: any. */
struct wanted {
    int trait;
    const char *value, *text;
};

static int parse_wanted(struct wanted *wanted, const char *option, const char *text, struct arena *arena,
                        struct diags *diags) {
    const char *names[TRAITS + 1] = {NULL}, *equals = strchr(text, '=');
    const char *name = equals ? arena_copy(arena, text, (size_t)(equals - text)) : text;
    int n = 0;
    *wanted = (struct wanted){.text = text, .value = equals ? equals + 1 : NULL};
    for (; wanted->trait < TRAITS; wanted->trait++) {
        if (!trait_name(wanted->trait)) continue;
        names[n++] = trait_name(wanted->trait);
        if (strcmp(names[n - 1], name) == 0) return 0;
    }
    diag_error(diags, 205, EXIT_USAGE, NULL, "--%s does not know %s", option, diag_quote(diags, name));
    const char *near = str_nearest(name, names);
    if (near) diag_help(diags, "did you mean '%s'?", near);
    return -1;
}

static bool meets(const struct candidate *c, const struct wanted *wanted, struct arena *arena) {
    const char *value = trait_of(c, wanted->trait, arena);
    if (!value || !wanted->value) return value != NULL;
    const size_t length = strlen(wanted->value); /* of schedules, the name stands for all settings */
    return strncmp(value, wanted->value, length) == 0 && (!value[length] || value[length] == ':');
}

/* True if the constraint decides what would be decided with the candidate's prediction. */
static bool settle(struct candidate *c, const struct wanted *wanted, bool forbids) {
    if (wanted->trait != TRAIT_DECIDED + DECIDES_product_runs || c->overlap != SEARCH_IF_FASTER) return false;
    c->overlap = forbids ? SEARCH_NEVER : SEARCH_ALWAYS;
    return true;
}

/* Refuses the candidates that meet the constraint, or those that do not. */
static int apply_wanted(struct search *search, const char *option, const struct wanted *wanted, bool forbids,
                        struct arena *arena, struct diags *diags) {
    int met = 0;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        const bool settled = settle(c, wanted, forbids), is = meets(c, wanted, arena);
        met += is || settled;
        if (is == forbids && !c->refused) c->refused = arena_printf(arena, "--%s %s", option, wanted->text);
    }
    if (met) return 0;
    return diag_error(diags, 432, EXIT_LIMIT, arena_printf(arena, "--%s", option), "no candidate has %s",
                      diag_quote(diags, wanted->text));
}

static int apply_all(struct search *search, const char *option, const char *list, bool forbids, struct arena *arena,
                     struct diags *diags) {
    while (list && *list) {
        const size_t length = strcspn(list, ",");
        const char *word = arena_copy(arena, list, length);
        struct wanted wanted;
        if (!constraint_is_of_nodes(word) && (parse_wanted(&wanted, option, word, arena, diags) < 0 ||
                                              apply_wanted(search, option, &wanted, forbids, arena, diags) < 0))
            return -1;
        list += length + (list[length] == ',');
    }
    return 0;
}

int search_constrain(struct search *search, const struct options *options, struct arena *arena, struct diags *diags) {
    bool left = !options->forbid && !options->require;
    if (apply_all(search, "forbid", options->forbid, true, arena, diags) < 0 ||
        apply_all(search, "require", options->require, false, arena, diags) < 0)
        return -1;
    for (int i = 0; i < search->all.n; i++) left = left || !search->all.at[i].refused;
    if (left) return 0;
    return diag_error(diags, 432, EXIT_LIMIT, "--pas autodist", "--forbid and --require exclude all %d candidate(s)",
                      search->all.n);
}

/* Partial plans ---------------------------------------------------------------------------------------------------- */

struct options search_refined(const struct options *options, const struct plan *partial) {
    struct options refined = *options;
    decisions_take(&refined.decisions, &partial->decisions);
    for (const struct decision *row = decision_rows; row < decision_rows + DECISIONS; row++)
        if (options_of(row) >= 0 && decision_is_made(row, &partial->decisions)) refined.given[options_of(row)] = true;
    return refined;
}

static bool has_axis(const struct candidate *c, const struct mesh_axis *wanted) {
    const int axis = mesh_axis_by_name(&c->decisions.mesh, wanted->name);
    const struct mesh_axis *has = axis < 0 ? NULL : &c->decisions.mesh.axis[axis];
    if (!has) return wanted->size == 1;
    return has->size == wanted->size && has->first == wanted->first && has->end == wanted->end;
}

static bool has_mesh(const struct candidate *c, const struct mesh *mesh) {
    for (int i = 0; i < mesh->naxes; i++)
        if (!has_axis(c, &mesh->axis[i])) return false;
    return true;
}

int search_keep_partial(struct search *search, const struct plan *partial, struct diags *diags) {
    int kept = 0;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (!has_mesh(c, &partial->decisions.mesh) && !c->refused)
            c->refused = "--refine: the partial plan has another mesh";
        if (partial->decisions.micro_batches && !c->refused &&
            search_micro_batches(search->given, c) != partial->decisions.micro_batches)
            c->refused = "--refine: the partial plan has another number of micro-batches";
        kept += !c->refused;
    }
    if (kept) return 0;
    return diag_error(diags, 432, EXIT_LIMIT, "--refine", "no candidate has the mesh and the micro-batches of %s",
                      diag_quote(diags, partial->file));
}

/* Listing ---------------------------------------------------------------------------------------------------------- */

/* A schedule that candidates may have, as the user names it; NULL: the default. */
struct listed_schedule {
    const char *text;
    struct schedule_choice choice;
};

struct listing {
    struct search *search;
    const struct options *options;
    struct arena *arena;
    bool trains;
    int64_t experts;
    int layers, devices;
    VEC(struct listed_schedule) schedules; /* the first: that of the options, or the default */
};

/* Sequences of each rank's micro-batch, at most, where that is searched: all that divide those of a step. */
enum { MOST_SEQUENCES = 128 };

static bool is_allowed(const struct listing *l, const struct candidate *c) {
    const struct options *options = l->options;
    const struct machine *machine = &l->search->machine;
    int64_t micro_batches;
    if (!divide_batch(options, c, &micro_batches) || l->experts % search_ways(c, AXIS_EXPERT)) return false;
    if (search_own(c) && c->batch % c->decisions.mesh.axis[AXIS_DATA].size) return false;
    if (machine->nlevels > 1 && search_ways(c, AXIS_TENSOR) * search_ways(c, AXIS_CONTEXT) > machine->level[0].devices)
        return false;
    if (options->given[OPT_PLAN_NGPUS]) return unit_size(c) == options->plan_ngpus;
    return search_ways(c, AXIS_DATA) == 1 && (int64_t)unit_size(c) * c->units == options->runtime_ngpus;
}

/* True if the search lists the candidate with that schedule. Micro-batches of interleaved stages come in groups of as
 * many as there are ranks, and more than two stages of a rank have two layers each at least. Zero-bubble schedules keep
 * what recomputation would not. With more than twice as many micro-batches as ranks, chimera waits as long as 1f1b. */
static bool may_have_schedule(const struct listing *l, const struct candidate *c,
                              const struct schedule_choice *schedule) {
    const int64_t ranks = search_ways(c, AXIS_PIPELINE), micro = search_micro_batches(l->options, c);
    const int stages = schedule->chunks;
    if (schedule->kind->splits) return !c->decisions.recompute;
    if (schedule->kind->is_v) return micro <= 2 * ranks;
    return stages == 1 || (micro % ranks == 0 && (stages == 2 || 2 * stages * ranks <= l->layers));
}

/* The values that one option of a candidate may have: the one that is given, or all. */
static void add_schedules(const struct listing *l, struct candidate candidate) {
    const bool varies = l->trains && search_ways(&candidate, AXIS_PIPELINE) > 1 && !search_own(&candidate) &&
                        !l->options->given[OPT_SCHEDULE];
    for (int s = 0; s < (varies ? l->schedules.n : 1); s++) {
        candidate.decisions.schedule = l->schedules.at[s].text, candidate.schedule = l->schedules.at[s].choice;
        if (!s || may_have_schedule(l, &candidate, &candidate.schedule)) VEC_PUSH(l->arena, &l->search->all, candidate);
    }
}

/* True if the candidate may have that many ZeRO groups: those whose ranks fill the domains of a level, since links are
 * slower beyond it; on machines of one level any groups that are of equal size and more than one scale unit each. */
static bool may_have_groups(const struct listing *l, const struct candidate *c, int groups) {
    const struct machine *machine = &l->search->machine;
    bool fills = machine->nlevels == 1;
    if (c->units % groups || c->units == groups) return false;
    for (int i = 0; i < machine->nlevels - 1; i++)
        fills = fills || machine->level[i].devices == unit_size(c) * (c->units / groups);
    return fills;
}

static void add_groups(const struct listing *l, struct candidate candidate) {
    const bool varies = candidate.decisions.zero && !l->options->given[OPT_ZERO_NGROUPS];
    const int most = varies ? candidate.units : 1;
    candidate.decisions.zero_groups = candidate.decisions.zero && !varies ? l->options->decisions.zero_groups : 1;
    if (candidate.units % candidate.decisions.zero_groups)
        candidate.refused = arena_printf(l->arena, "%d scale units cannot be divided into %d ZeRO groups of equal size",
                                         candidate.units, (int)candidate.decisions.zero_groups);
    add_schedules(l, candidate);
    candidate.refused = NULL;
    for (int groups = 2; groups < most; groups++) {
        candidate.decisions.zero_groups = groups;
        if (may_have_groups(l, &candidate, groups)) add_schedules(l, candidate);
    }
}

static void add_zeros(const struct listing *l, struct candidate candidate) {
    const int replicas = candidate.units * search_ways(&candidate, AXIS_DATA) * search_ways(&candidate, AXIS_CONTEXT) *
                         search_ways(&candidate, AXIS_EXPERT);
    const bool varies = l->trains && replicas > 1 && !l->options->given[OPT_USE_ZERO];
    candidate.decisions.zero = l->options->decisions.zero;
    for (int zero = 0; zero <= (varies ? 3 : 0); zero++) {
        if (varies) candidate.decisions.zero = zero;
        add_groups(l, candidate);
    }
}

static void add_recomputes(const struct listing *l, struct candidate candidate) {
    static const char *const recomputes[] = {NULL, "selective", "full"};
    const bool varies = l->trains && !l->options->given[OPT_RECOMPUTE];
    const char *given = l->options->decisions.recompute;
    candidate.decisions.recompute = given && strcmp(given, "none") ? given : NULL;
    for (int r = 0; r < (varies ? 3 : 1); r++) {
        if (varies) candidate.decisions.recompute = recomputes[r];
        add_zeros(l, candidate);
    }
}

static void add_sequences(const struct listing *l, struct candidate candidate) {
    const bool can = search_ways(&candidate, AXIS_TENSOR) > 1, given = l->options->given[OPT_SEQUENCE_PARALLEL];
    const bool overlaps = can && l->search->machine.overlap > 0 && !l->options->given[OPT_ASYNC_TP];
    candidate.overlap = overlaps ? SEARCH_IF_FASTER : SEARCH_NEVER;
    for (int s = can && given; s <= can; s++) {
        candidate.decisions.sequence_parallel = s;
        add_recomputes(l, candidate);
    }
}

/* The ways to compute attention along context. Ring attention is flash attention. */
static void add_forms(const struct listing *l, struct candidate candidate) {
    static const struct {
        enum attention_form attention;
        enum sequence_cut cut;
    } forms[] = {{ATTENTION_GATHER, CUT_ORDERED},
                 {ATTENTION_GATHER, CUT_MIRRORED},
                 {ATTENTION_HEADS, CUT_ORDERED},
                 {ATTENTION_RING, CUT_ORDERED},
                 {ATTENTION_RING, CUT_MIRRORED}};
    const bool flash = l->options->attention != OPT_ATTENTION_PRODUCTS;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        if (f && search_ways(&candidate, AXIS_CONTEXT) == 1) break;
        if (forms[f].attention == ATTENTION_RING && !flash) continue;
        candidate.decisions.attention = forms[f].attention, candidate.decisions.cut = forms[f].cut;
        add_sequences(l, candidate);
    }
}

/* A step of generation has one micro-batch, whose texts have their caches in memory. */
static bool is_generation(const struct options *options) {
    return options->decode || (options->state && strcmp(options->state, "none"));
}

static void add_batches(const struct listing *l, struct candidate candidate) {
    const int ranks =
        search_ways(&candidate, AXIS_EXPERT) * search_ways(&candidate, AXIS_DATA); /* that divide a micro-batch */
    const bool varies = search_smallest_batch(l->options) > 0, whole = varies && is_generation(l->options);
    const int all = (int)(l->options->global_batch / candidate.units / ranks);
    for (int sequences = whole ? all : 1; sequences <= (whole ? all : varies ? MOST_SEQUENCES : 1); sequences++) {
        candidate.batch = varies ? sequences * ranks : 0;
        if (sequences && is_allowed(l, &candidate)) add_forms(l, candidate);
    }
}

static void add_meshes(const struct listing *l, struct candidate candidate, int axis, int left) {
    if (axis == AXIS_ROLES) {
        candidate.units = l->options->given[OPT_PLAN_NGPUS] ? l->devices / (int)l->options->plan_ngpus : left;
        add_batches(l, candidate);
        return;
    }
    for (int ways = 1; ways <= left; ways++) {
        candidate.decisions.mesh.axis[axis].size = ways;
        if (left % ways == 0) add_meshes(l, candidate, axis + 1, left / ways);
    }
}

/* Unequal stages are listed for so many devices, scale units of so many ranks, and ranks along their axis, at most: of
 * more, equal ones can be had that are about as good. */
enum { MOST_DEVICES = 64, MOST_UNEQUAL = 8, MOST_OWN = 4 };

/* The candidates with these axes of all stages in which some of the first or the last stages have another one. `ranks`:
 * of all stages, as a multiple of the smaller ones. */
static void add_own_axes(const struct listing *l, struct candidate candidate, int ranks) {
    static const enum axis_role axes[] = {AXIS_TENSOR, AXIS_DATA};
    for (int stages = 2; stages < ranks; stages++)
        for (int larger = 1; larger < stages; larger++) {
            candidate.decisions.mesh.axis[AXIS_PIPELINE].size = stages;
            const int ways = 1 + (ranks - stages) / larger;
            if ((ranks - stages) % larger || ways > MOST_OWN) continue;
            for (int i = 0; i < 4; i++) {
                const int first = i % 2 ? stages - larger : 0;
                struct candidate unequal = candidate;
                struct mesh_axis *own = &unequal.decisions.mesh.axis[axes[i / 2]];
                if (own->size > 1) continue;
                own->size = ways, own->first = first, own->end = first + larger;
                add_batches(l, unequal);
            }
        }
}

static void add_unequal(const struct listing *l) {
    const bool given = l->options->given[OPT_PLAN_NGPUS];
    for (int unit = 3; unit <= MOST_UNEQUAL && unit <= l->devices && l->devices <= MOST_DEVICES; unit++) {
        const bool even = l->layers && !(unit & (unit - 1)); /* equal stages of equal layers are as good */
        if (l->devices % unit || (given ? unit != l->options->plan_ngpus : even)) continue;
        for (int tensor = 1; tensor <= unit; tensor++) {
            struct candidate candidate = search_one_rank(l->options);
            candidate.units = l->devices / unit, candidate.decisions.mesh.axis[AXIS_TENSOR].size = tensor;
            if (unit % tensor == 0) add_own_axes(l, candidate, unit / tensor);
        }
    }
}

void search_list(struct search *search, bool trains, int64_t experts, int layers) {
    const struct options *options = search->given;
    struct listing l = {.search = search,
                        .options = options,
                        .arena = search->arena,
                        .trains = trains,
                        .experts = experts,
                        .layers = layers,
                        .devices = (int)options->runtime_ngpus};
    const char *text = options->decisions.schedule;
    for (int i = 0; !i || text; text = schedule_proposed(i++)) {
        const struct listed_schedule schedule = {text, schedule_of(text, search->arena)};
        VEC_PUSH(search->arena, &l.schedules, schedule);
    }
    add_meshes(&l, search_one_rank(options), 0, l.devices);
    add_unequal(&l);
}
