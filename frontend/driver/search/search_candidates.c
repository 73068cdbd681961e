/* The candidates of a search, and the options that ask for them. */
#include <stdlib.h>
#include <string.h>

#include "frontend/driver/search/search.h"
#include "ir/base/str.h"
#include "passes/plan/schedule/schedules.h"

static const char *const axis_names[SEARCH_AXES] = {"tensor", "context", "expert", "data", "pipeline"};

/* The settings of --pas that ask for the form; NULL: the default. */
static const struct form {
    const char *attention, *cut;
} forms[SEARCH_FORMS] = {[SEARCH_GATHER] = {NULL, NULL},
                         [SEARCH_MIRRORED] = {NULL, "mirrored"},
                         [SEARCH_HEADS] = {"heads", NULL},
                         [SEARCH_RING] = {"ring", NULL},
                         [SEARCH_MIRRORED_RING] = {"ring", "mirrored"}};

static void add_axis(struct options *options, struct arena *arena, const struct candidate *c, enum search_axis axis) {
    const bool own = c->own.ways && c->own.axis == axis;
    const int size = own ? c->own.ways : c->ways[axis];
    struct mesh mesh = {0};
    struct option_setting setting = {axis_names[axis], NULL};
    if (size == 1) return;
    mesh_add_axis(&mesh, setting.key, &(struct rt_mesh_axis){size, own ? c->own.first : 0, own ? c->own.end : 0});
    setting.value = strchr(mesh_axis_text(&mesh, 0, arena), '=') + 1;
    VEC_PUSH(arena, &options->pas.settings, setting);
    options->mesh[options->naxes++] = (struct mesh_axis){setting.key, size, mesh.axis[0].first, mesh.axis[0].end};
}

/* Ranks of a scale unit. */
static int unit_size(const struct candidate *candidate) {
    int size = 1;
    for (int a = 0; a < SEARCH_AXES; a++) size *= candidate->ways[a];
    if (!candidate->own.ways) return size;
    const int larger = candidate->own.end - candidate->own.first;
    return size + size / candidate->ways[SEARCH_PIPELINE] * larger * (candidate->own.ways - 1);
}

static void add_setting(struct options *options, struct arena *arena, const char *key, const char *value) {
    VEC_PUSH(arena, &options->pas.settings, (struct option_setting){key, value});
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void add_form(struct options *options, struct arena *arena, const struct form *form) {
    if (form->attention) add_setting(options, arena, "attention", form->attention);
    if (form->cut) add_setting(options, arena, "cut", form->cut);
    options->attention_heads = same_text(form->attention, "heads");
    options->attention_ring = same_text(form->attention, "ring");
    options->mirrored_cut = form->cut != NULL;
}

/* --dim BATCH=SIZE. */
static void add_batch(struct options *options, struct arena *arena, int size) {
    VEC_UNSHARE(arena, &options->dims.all);
    VEC_PUSH(arena, &options->dims.all, (struct option_size){options->batch_dim, size});
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
    struct options options = *given;
    options.mem_limit = 0; /* the search compares with the limit */
    options.pas = (struct option_spec){.word = OPT_POLICY_HYBRID};
    options.naxes = 0;
    options.plan_ngpus = unit_size(candidate);
    for (int a = 0; a < SEARCH_AXES; a++) add_axis(&options, arena, candidate, (enum search_axis)a);
    if (!options.naxes) options.pas.word = OPT_POLICY_DP;
    add_form(&options, arena, &forms[candidate->form]);
    options.expert_capacity = candidate->ways[SEARCH_EXPERT] > 1 ? given->expert_capacity : 0;
    if (options.expert_capacity)
        add_setting(&options, arena, "capacity", arena_printf(arena, "%g", (double)options.expert_capacity / 1000));
    if (candidate->batch) add_batch(&options, arena, candidate->batch);
    options.runtime_ngpus = options.plan_ngpus * candidate->units;
    options.given[OPT_RUNTIME_NGPUS] = true;
    options_divide_batch(&options);
    options.sequence_parallel = candidate->sequence_parallel;
    if (candidate->overlap != SEARCH_NEVER) options.async_tp = "auto", options.product_runs = -1;
    options.use_zero = candidate->zero;
    options.zero_ngroups = candidate->groups;
    options.recompute = candidate->recompute;
    options.schedule = candidate->schedule;
    return options;
}

/* Ranks wait for a part 1 / v of the time, with v stages each. Each further stage keeps its own inputs for all
 * micro-batches in flight. */
static struct schedule_law interleaved_law(int stages) {
    return (struct schedule_law){"interleaved", stages, 1, 1.0 / stages, 1, 1, 1.5, 1.2 + 0.01 * stages, 1.2};
}

static const struct schedule_law plain_law = {"1f1b", 1, 1, 1, 1, 1, 1, 1.2, 1.2};

static const struct schedule_law *law_of(const char *schedule, struct arena *arena) {
    static const struct schedule_law laws[] = {{"zb-h1", 1, 1, 1.0 / 3, 0.75, 1, 0.8, 1.6, 1.6},
                                               {"zb-h2", 1, 1, 0, 0.75, 2, 1.3, 1.6, 1.6},
                                               {"zb-v", 2, 1, 1.0 / 6, 0.75, 2, 1.5, 1.2, 1.2},
                                               {"chimera", 2, 2, 0.67, 1, 1, 1, 1.2, 1.2}};
    static const char interleaved[] = "interleaved";
    for (size_t i = 0; i < sizeof laws / sizeof *laws; i++)
        if (same_text(laws[i].name, schedule)) return &laws[i];
    if (!schedule || strncmp(schedule, interleaved, sizeof interleaved - 1) != 0) return &plain_law;
    const char *stages = strstr(schedule, "v=");
    struct schedule_law *law = ARENA_NEW(arena, struct schedule_law);
    *law = interleaved_law(stages ? atoi(stages + 2) : 2);
    return law;
}

struct candidate search_base(const struct candidate *candidate) {
    struct candidate base = *candidate;
    base.ways[SEARCH_PIPELINE] = base.units = 1;
    base.zero = 0, base.groups = 1;
    base.schedule = NULL, base.law = &plain_law;
    base.own = (struct own_axis){0};
    return base;
}

struct candidate search_larger_base(const struct candidate *candidate) {
    struct candidate base = search_base(candidate);
    base.ways[candidate->own.axis] = candidate->own.ways;
    return base;
}

bool search_same_base(const struct candidate *a, const struct candidate *b) {
    for (int axis = 0; axis < SEARCH_PIPELINE; axis++)
        if (a->ways[axis] != b->ways[axis]) return false;
    return a->batch == b->batch && a->form == b->form && a->sequence_parallel == b->sequence_parallel &&
           same_text(a->recompute, b->recompute);
}

/* Constraints ------------------------------------------------------------------------------------------------------ */

/* What --forbid and --require can name. `value` gives what a candidate has, NULL if it has none. */
struct trait {
    const char *name;
    const char *(*value)(const struct candidate *candidate, int axis, struct arena *arena);
    int axis;
};

static const char *number(int value, int none, struct arena *arena) {
    return value == none ? NULL : arena_printf(arena, "%d", value);
}

static const char *ways_of(const struct candidate *c, int axis, struct arena *arena) {
    return number(c->own.ways && c->own.axis == (enum search_axis)axis ? c->own.ways : c->ways[axis], 1, arena);
}

static const char *unequal_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis, (void)arena;
    return c->own.ways ? "yes" : NULL;
}

static const char *zero_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis;
    return number(c->zero, 0, arena);
}

static const char *groups_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis;
    return number(c->groups, 1, arena);
}

static const char *recompute_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis, (void)arena;
    return c->recompute && strcmp(c->recompute, "none") != 0 ? c->recompute : NULL;
}

static const char *schedule_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis, (void)arena;
    if (c->ways[SEARCH_PIPELINE] == 1) return NULL;
    return c->schedule ? c->schedule : schedule_default;
}

static const char *batch_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis;
    return number(c->batch, 0, arena);
}

static const char *cut_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis, (void)arena;
    return forms[c->form].cut;
}

static const char *attention_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis, (void)arena;
    return forms[c->form].attention;
}

static const char *sequence_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis, (void)arena;
    return c->sequence_parallel ? "yes" : NULL;
}

static const char *overlap_of(const struct candidate *c, int axis, struct arena *arena) {
    (void)axis, (void)arena;
    return c->overlap == SEARCH_ALWAYS ? "yes" : NULL;
}

static const struct trait traits[] = {{"tensor", ways_of, SEARCH_TENSOR},
                                      {"context", ways_of, SEARCH_CONTEXT},
                                      {"expert", ways_of, SEARCH_EXPERT},
                                      {"data", ways_of, SEARCH_DATA},
                                      {"pipeline", ways_of, SEARCH_PIPELINE},
                                      {"batch", batch_of, 0},
                                      {"cut", cut_of, 0},
                                      {"attention", attention_of, 0},
                                      {"zero", zero_of, 0},
                                      {"zero-groups", groups_of, 0},
                                      {"recompute", recompute_of, 0},
                                      {"schedule", schedule_of, 0},
                                      {"sequence-parallel", sequence_of, 0},
                                      {"async-tp", overlap_of, 0},
                                      {"unequal-stages", unequal_of, 0}};
enum { TRAITS = sizeof traits / sizeof *traits };

/* What candidates must have or not have, such as zero=3: `value` NULL: any. */
struct wanted {
    const struct trait *trait;
    const char *value, *text;
};

static int parse_wanted(struct wanted *wanted, const char *option, const char *text, struct arena *arena,
                        struct diags *diags) {
    const char *names[TRAITS + 1] = {NULL}, *equals = strchr(text, '=');
    const char *name = equals ? arena_copy(arena, text, (size_t)(equals - text)) : text;
    *wanted = (struct wanted){.text = text, .value = equals ? equals + 1 : NULL};
    for (int t = 0; t < TRAITS; t++) {
        names[t] = traits[t].name;
        if (strcmp(traits[t].name, name) == 0) wanted->trait = &traits[t];
    }
    if (wanted->trait) return 0;
    diag_error(diags, 205, EXIT_USAGE, NULL, "--%s does not know %s", option, diag_quote(diags, name));
    const char *near = str_nearest(name, names);
    if (near) diag_help(diags, "did you mean '%s'?", near);
    return -1;
}

static bool meets(const struct candidate *c, const struct wanted *wanted, struct arena *arena) {
    const char *value = wanted->trait->value(c, wanted->trait->axis, arena);
    if (!value || !wanted->value) return value != NULL;
    const size_t length = strlen(wanted->value); /* of schedules, the name stands for all settings */
    return strncmp(value, wanted->value, length) == 0 && (!value[length] || value[length] == ':');
}

/* True if the constraint decides what would be decided with the candidate's prediction. */
static bool settle(struct candidate *c, const struct wanted *wanted, bool forbids) {
    if (wanted->trait->value != overlap_of || c->overlap != SEARCH_IF_FASTER) return false;
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
    return diag_error(diags, 432, EXIT_LIMIT, "--pas autodist", "--forbid and --require exclude all %d candidates",
                      search->all.n);
}

/* Partial plans ---------------------------------------------------------------------------------------------------- */

struct options search_refined(const struct options *options, const struct plan *partial) {
    struct options refined = *options;
    if (partial->zero_level) refined.use_zero = partial->zero_level, refined.given[OPT_USE_ZERO] = true;
    if (partial->zero_ngroups) refined.zero_ngroups = partial->zero_ngroups, refined.given[OPT_ZERO_NGROUPS] = true;
    if (partial->schedule) refined.schedule = partial->schedule, refined.given[OPT_SCHEDULE] = true;
    if (partial->micro_batches) {
        refined.accumulate = partial->micro_batches * schedule_pipelines(partial->schedule);
        refined.given[OPT_ACCUMULATE] = true;
    }
    return refined;
}

static bool has_axis(const struct candidate *c, const char *name, const struct rt_mesh_axis *wanted) {
    for (int a = 0; a < SEARCH_AXES; a++) {
        const bool own = c->own.ways && c->own.axis == (enum search_axis)a;
        const int ways = own ? c->own.ways : c->ways[a] / (a == SEARCH_PIPELINE ? c->law->copies : 1);
        if (strcmp(axis_names[a], name) != 0) continue;
        return ways == wanted->size && (own ? c->own.first : 0) == wanted->first &&
               (own ? c->own.end : 0) == wanted->end;
    }
    return wanted->size == 1;
}

static bool has_mesh(const struct candidate *c, const struct mesh *mesh) {
    const struct rt_mesh wanted = mesh_positions(mesh);
    for (int i = 0; i < mesh->naxes; i++)
        if (!has_axis(c, mesh->axis[i].name, &wanted.axis[i])) return false;
    return true;
}

int search_keep_partial(struct search *search, const struct plan *partial, struct diags *diags) {
    int kept = 0;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (!has_mesh(c, &partial->mesh) && !c->refused) c->refused = "--refine: the partial plan has another mesh";
        if (partial->micro_batches && !c->refused &&
            search_micro_batches(search->given, c) != partial->micro_batches * c->law->copies)
            c->refused = "--refine: the partial plan has another number of micro-batches";
        kept += !c->refused;
    }
    if (kept) return 0;
    return diag_error(diags, 432, EXIT_LIMIT, "--refine", "no candidate has the mesh and the micro-batches of %s",
                      diag_quote(diags, partial->file));
}

/* Listing ---------------------------------------------------------------------------------------------------------- */

struct listing {
    struct search *search;
    const struct options *options;
    struct arena *arena;
    bool trains;
    int64_t experts;
    int layers, devices;
};

/* Sequences of each rank's micro-batch, at most, where that is searched: all that divide those of a step. */
enum { MOST_SEQUENCES = 128 };

static bool is_allowed(const struct listing *l, const struct candidate *c) {
    const struct options *options = l->options;
    const struct machine *machine = &l->search->machine;
    int64_t micro_batches;
    if (!divide_batch(options, c, &micro_batches) || l->experts % c->ways[SEARCH_EXPERT]) return false;
    if (c->own.ways && c->own.axis == SEARCH_DATA && c->batch % c->own.ways) return false;
    if (machine->nlevels > 1 && c->ways[SEARCH_TENSOR] * c->ways[SEARCH_CONTEXT] > machine->level[0].devices)
        return false;
    if (options->given[OPT_PLAN_NGPUS]) return unit_size(c) == options->plan_ngpus;
    return c->ways[SEARCH_DATA] == 1 && (int64_t)unit_size(c) * c->units == options->runtime_ngpus;
}

/* True if the candidate's two pipelines can have as many ranks and as many micro-batches as each other, and do not wait
 * for longer than one. */
static bool has_two_pipelines(const struct listing *l, const struct candidate *c) {
    const int64_t micro = search_micro_batches(l->options, c), stages = c->ways[SEARCH_PIPELINE];
    return stages >= 4 && stages % 2 == 0 && micro % 2 == 0 && micro <= 2 * stages;
}

/* True if the candidate may have that many stages on each rank: micro-batches come in groups of as many as there are
 * ranks, and more than two stages have two layers each at least. */
static bool may_interleave(const struct listing *l, const struct candidate *c, int stages) {
    const int64_t ranks = c->ways[SEARCH_PIPELINE];
    return search_micro_batches(l->options, c) % ranks == 0 && (stages == 2 || 2 * stages * ranks <= l->layers);
}

static void add(const struct listing *l, struct candidate candidate) {
    candidate.law = law_of(candidate.schedule, l->arena);
    VEC_PUSH(l->arena, &l->search->all, candidate);
}

static void add_interleaved(const struct listing *l, struct candidate candidate) {
    static const struct {
        int stages;
        const char *schedule;
    } all[] = {{2, "interleaved:v=2"},
               {3, "interleaved:v=3"},
               {4, "interleaved:v=4"},
               {6, "interleaved:v=6"},
               {8, "interleaved:v=8"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        candidate.schedule = all[i].schedule;
        if (may_interleave(l, &candidate, all[i].stages)) add(l, candidate);
    }
}

/* The values that one option of a candidate may have: the one that is given, or all. Zero-bubble schedules keep what
 * recomputation would not. */
static void add_schedules(const struct listing *l, struct candidate candidate) {
    const bool varies =
        l->trains && candidate.ways[SEARCH_PIPELINE] > 1 && !candidate.own.ways && !l->options->given[OPT_SCHEDULE];
    const struct {
        const char *name;
        bool listed;
    } schedules[] = {{varies ? NULL : l->options->schedule, true},
                     {"zb-h1", varies && !candidate.recompute},
                     {"zb-h2", varies && !candidate.recompute},
                     {"zb-v", varies && !candidate.recompute},
                     {"chimera", varies && has_two_pipelines(l, &candidate)}};
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
        candidate.schedule = schedules[s].name;
        if (schedules[s].listed) add(l, candidate);
    }
    if (varies) add_interleaved(l, candidate);
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
    const bool varies = candidate.zero && !l->options->given[OPT_ZERO_NGROUPS];
    const int most = varies ? candidate.units : 1;
    candidate.groups = candidate.zero && !varies ? (int)l->options->zero_ngroups : 1;
    if (candidate.units % candidate.groups)
        candidate.refused = arena_printf(l->arena, "%d scale units cannot be divided into %d ZeRO groups of equal size",
                                         candidate.units, candidate.groups);
    add_schedules(l, candidate);
    candidate.refused = NULL;
    for (int groups = 2; groups < most; groups++) {
        candidate.groups = groups;
        if (may_have_groups(l, &candidate, groups)) add_schedules(l, candidate);
    }
}

static void add_zeros(const struct listing *l, struct candidate candidate) {
    const int replicas =
        candidate.units * candidate.ways[SEARCH_DATA] * candidate.ways[SEARCH_CONTEXT] * candidate.ways[SEARCH_EXPERT];
    const bool varies = l->trains && replicas > 1 && !l->options->given[OPT_USE_ZERO];
    candidate.zero = (int)l->options->use_zero;
    for (int zero = 0; zero <= (varies ? 3 : 0); zero++) {
        if (varies) candidate.zero = zero;
        add_groups(l, candidate);
    }
}

static void add_recomputes(const struct listing *l, struct candidate candidate) {
    static const char *const recomputes[] = {NULL, "selective", "full"};
    const bool varies = l->trains && !l->options->given[OPT_RECOMPUTE];
    candidate.recompute = same_text(l->options->recompute, "none") ? NULL : l->options->recompute;
    for (int r = 0; r < (varies ? 3 : 1); r++) {
        if (varies) candidate.recompute = recomputes[r];
        add_zeros(l, candidate);
    }
}

static void add_sequences(const struct listing *l, struct candidate candidate) {
    const bool can = candidate.ways[SEARCH_TENSOR] > 1, given = l->options->given[OPT_SEQUENCE_PARALLEL];
    const bool overlaps = can && l->search->machine.overlap > 0 && !l->options->given[OPT_ASYNC_TP];
    candidate.overlap = overlaps ? SEARCH_IF_FASTER : SEARCH_NEVER;
    for (int s = can && given; s <= can; s++) {
        candidate.sequence_parallel = s;
        add_recomputes(l, candidate);
    }
}

static void add_forms(const struct listing *l, struct candidate candidate) {
    const bool flash = l->options->attention != OPT_ATTENTION_PRODUCTS; /* ring attention is */
    const int most = candidate.ways[SEARCH_CONTEXT] == 1 ? 1 : flash ? SEARCH_FORMS : SEARCH_RING;
    for (int f = 0; f < most; f++) {
        candidate.form = (enum search_form)f;
        add_sequences(l, candidate);
    }
}

static void add_batches(const struct listing *l, struct candidate candidate) {
    const int ranks = candidate.ways[SEARCH_EXPERT] * candidate.ways[SEARCH_DATA]; /* that divide a micro-batch */
    const bool varies = search_smallest_batch(l->options) > 0;
    for (int sequences = 1; sequences <= (varies ? MOST_SEQUENCES : 1); sequences++) {
        candidate.batch = varies ? sequences * ranks : 0;
        if (is_allowed(l, &candidate)) add_forms(l, candidate);
    }
}

static void add_meshes(const struct listing *l, struct candidate candidate, int axis, int left) {
    if (axis == SEARCH_AXES) {
        candidate.units = l->options->given[OPT_PLAN_NGPUS] ? l->devices / (int)l->options->plan_ngpus : left;
        add_batches(l, candidate);
        return;
    }
    for (int ways = 1; ways <= left; ways++) {
        candidate.ways[axis] = ways;
        if (left % ways == 0) add_meshes(l, candidate, axis + 1, left / ways);
    }
}

/* Unequal stages are listed for so many devices, scale units of so many ranks, and ranks along their axis, at most: of
 * more, equal ones can be had that are about as good. */
enum { MOST_DEVICES = 64, MOST_UNEQUAL = 8, MOST_OWN = 4 };

/* The candidates with these axes of all stages in which some of the first or the last stages have another one. `ranks`:
 * of all stages, as a multiple of the smaller ones. */
static void add_own_axes(const struct listing *l, struct candidate candidate, int ranks) {
    static const enum search_axis axes[] = {SEARCH_TENSOR, SEARCH_DATA};
    struct own_axis *own = &candidate.own;
    for (int stages = 2; stages < ranks; stages++)
        for (int larger = 1; larger < stages; larger++) {
            candidate.ways[SEARCH_PIPELINE] = stages;
            own->ways = 1 + (ranks - stages) / larger;
            if ((ranks - stages) % larger || own->ways > MOST_OWN) continue;
            for (int i = 0; i < 4; i++) {
                own->axis = axes[i / 2];
                own->first = i % 2 ? stages - larger : 0, own->end = own->first + larger;
                if (candidate.ways[own->axis] == 1) add_batches(l, candidate);
            }
        }
}

static void add_unequal(const struct listing *l) {
    const bool given = l->options->given[OPT_PLAN_NGPUS];
    const int law = schedule_pipelines(l->options->schedule);
    for (int unit = 3; unit <= MOST_UNEQUAL && unit <= l->devices && l->devices <= MOST_DEVICES && law == 1; unit++) {
        const bool even = l->layers && !(unit & (unit - 1)); /* equal stages of equal layers are as good */
        if (l->devices % unit || (given ? unit != l->options->plan_ngpus : even)) continue;
        for (int tensor = 1; tensor <= unit; tensor++) {
            struct candidate candidate = {.ways = {tensor, 1, 1, 1, 1}, .units = l->devices / unit};
            if (unit % tensor == 0) add_own_axes(l, candidate, unit / tensor);
        }
    }
}

void search_list(struct search *search, bool trains, int64_t experts, int layers) {
    const struct options *options = search->given;
    const struct listing l = {search, options, search->arena, trains, experts, layers, (int)options->runtime_ngpus};
    add_meshes(&l, (struct candidate){0}, 0, l.devices);
    add_unequal(&l);
    search_group(search);
}
