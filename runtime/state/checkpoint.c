#include "state/checkpoint.h"

#include "base/number/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int checkpoint_refused(struct rt *rt, enum exit_code content, const char *path, const struct rt_reason *why) {
    return rt_fail_reason(rt, rt_quote_text(path).text, (struct rt_report){RT_CODE_CHECKPOINT, content}, why);
}

int checkpoint_unwritten(struct rt *rt, const struct rt_reason *why) {
    return rt_fail_reason(rt, NULL, (struct rt_report){RT_CODE_WRITE, EXIT_SYSTEM}, why);
}

static int check_path(struct rt *rt, int length) {
    if (length < PATH_MAX) return RT_OK;
    return rt_fail(rt, RT_ERROR_SYSTEM, "the name of the checkpoint is too long");
}

int checkpoint_path(struct rt *rt, struct checkpoint_path *out, const char *directory, const char *prefix, int64_t step,
                    uint32_t token) {
    char end[16] = "";
    if (token) snprintf(end, sizeof end, "-%08x", token);
    return check_path(rt,
                      snprintf(out->text, sizeof out->text, "%s/%s%lld%s", directory, prefix, (long long)step, end));
}

const char *checkpoint_name(const struct checkpoint_path *path) {
    return strrchr(path->text, '/') + 1;
}

int checkpoint_file(struct rt *rt, struct checkpoint_path *out, const struct checkpoint_path *directory,
                    enum rt_saved_kind kind, int shard) {
    return check_path(rt, snprintf(out->text, sizeof out->text, "%s/%s-%d.safetensors", directory->text,
                                   rt_saved_kinds[kind], shard));
}

int checkpoint_json(struct rt *rt, struct checkpoint_path *out, const struct checkpoint_path *directory) {
    return check_path(rt, snprintf(out->text, sizeof out->text, "%s/%s", directory->text, RT_SAVED_JSON));
}

struct rt_saved_entry kept_entry(const struct kept *kept) {
    return (struct rt_saved_entry){.name = kept_key(kept),
                                   .copy_of = kept->copy ? kept->name : NULL,
                                   .dtype = kept->dtype,
                                   .ndim = kept->ndim,
                                   .dims = kept->dims,
                                   .ncuts = kept->nsplits,
                                   .cuts = kept->cuts};
}

/* False if memory is out. */
static bool find_cuts(const struct rt *rt, struct kept *kept) {
    kept->cuts = calloc((size_t)kept->nsplits + 1, sizeof *kept->cuts);
    for (int s = 0; s < kept->nsplits && kept->cuts; s++) {
        const struct rt_split *split = &kept->split[s];
        kept->cuts[s] = (struct rt_saved_cut){{split->dim, split->blocks, split->grain, rt->coordinate[split->axis],
                                               rt->program->mesh.axis[split->axis].size},
                                              split->axis};
    }
    return kept->cuts != NULL;
}

/* False if the program's tables do not describe a part. */
static bool find_part(struct kept *kept) {
    const struct rt_saved_entry entry = kept_entry(kept);
    if (!rt_saved_region(&entry, &kept->region)) return false;
    for (int d = 0; d < kept->ndim; d++) kept->part[d] = rt_region_extent(&kept->region, d);
    rt_product(kept->part, kept->ndim, &kept->elements);
    kept->bytes = kept->elements * (int64_t)rt_dtype_bytes(kept->dtype);
    return true;
}

/* True if the shard holds the same part as this rank: it has the same coordinates on all mesh axes that cut the
 * tensor. */
static bool has_same_part(const struct rt *rt, const struct kept *kept, int shard) {
    int coordinate[RT_MAX_AXES];
    rt_mesh_coordinates(&rt->program->mesh, shard, coordinate);
    for (int s = 0; s < kept->nsplits; s++)
        if (coordinate[kept->split[s].axis] != rt->coordinate[kept->split[s].axis]) return false;
    return true;
}

/* The tensor's entry in the shard's class, or RT_ABSENT. */
static size_t entry_of(const struct rt *rt, int shard, enum rt_saved_kind kind, int index) {
    const struct rt_rank_class *class = &rt->program->classes[rt->program->class_of_shard[shard]];
    return kind == RT_SAVED_PARAMETERS ? class->weights[index] : class->states[index];
}

static enum rt_arena arena_of(int kind) {
    return kind == RT_SAVED_PARAMETERS ? RT_WEIGHTS : RT_OPTIMIZER;
}

/* False if the program's tables contradict each other. */
static bool place(const struct kept_list *list, const struct rt *rt, struct kept *kept, enum rt_saved_kind kind,
                  int index) {
    const size_t entry = entry_of(rt, rt->shard, kind, index);
    if (entry == RT_ABSENT) return true;
    if (!find_part(kept)) return false;
    kept->stored = rt_stored_part(rt, arena_of(kind), entry, kept->flat, kept->elements);
    kept->at = (kept->stored.arena == RT_HOST ? rt->arena[RT_HOST] : list->arena[kind]) + kept->stored.at;
    while (!has_same_part(rt, kept, kept->owner) || entry_of(rt, kept->owner, kind, index) == RT_ABSENT) kept->owner++;
    return kept->stored.count >= 0;
}

/* Arenas of a GPU are copied to the process' memory; HOST is there. */
static int find_arenas(struct kept_list *list, struct rt *rt) {
    const struct rt_device *device = rt->program->device;
    list->copied = device->remote;
    for (int k = 0; k < RT_SAVED_KINDS; k++) {
        unsigned char *arena = rt->arena[arena_of(k)];
        list->arena[k] = list->copied ? malloc(rt_arena_bytes(rt, arena_of(k))) : arena;
        if (!list->arena[k]) return rt_fail_memory(rt);
        if (list->copied) RT_TRY(device->get(rt, list->arena[k], arena, (size_t)rt->internal->bytes[arena_of(k)]));
    }
    return device->finish(rt);
}

int kept_give(struct kept_list *list, struct rt *rt) {
    const struct rt_device *device = rt->program->device;
    for (int k = 0; k < RT_SAVED_KINDS && list->copied; k++)
        RT_TRY(device->put(rt, rt->arena[arena_of(k)], list->arena[k], (size_t)rt->internal->bytes[arena_of(k)]));
    return device->finish(rt);
}

/* Of a parameter's row of the program's tables or of a state's. */
#define KEPT(row)                                                                                                      \
    ((struct kept){.dtype = (row).dtype,                                                                               \
                   .ndim = (row).ndim,                                                                                 \
                   .nsplits = (row).nsplits,                                                                           \
                   .dims = (row).dims,                                                                                 \
                   .flat = (row).flat,                                                                                 \
                   .split = (row).split})

/* Lists the tensors of one kind. The program's tables identify tensors by number; manifest.json lists their names in
 * the same order. */
static int list_kind(struct kept_list *list, struct rt *rt, enum rt_saved_kind kind) {
    const struct rt_program *program = rt->program;
    const bool parameters = kind == RT_SAVED_PARAMETERS;
    const int count = parameters ? program->nweights : program->nstates;
    const struct rt_json *names = rt_json_member(rt_json_root(list->manifest), parameters ? "tensors" : "states");
    const struct rt_json *entry = names && names->kind == RT_JSON_ARRAY && names->count == count ? names->first : NULL;
    int index = 0;
    for (; entry && index < count; entry = entry->next, index++) {
        const char *name = rt_json_text(rt_json_member(entry, "name"));
        if (!name) break;
        if (parameters && !program->weights[index].trained) continue;
        struct kept *kept = &list->at[kind][list->n[kind]++];
        *kept = parameters ? KEPT(program->weights[index]) : KEPT(program->states[index]);
        kept->name = name;
        kept->index = index;
        if (!find_cuts(rt, kept)) return rt_fail_memory(rt);
        if (!place(list, rt, kept, kind, index)) break;
    }
    if (index == count) return RT_OK;
    return rt_fail(rt, RT_ERROR_MISMATCH, "manifest.json belongs to another program");
}

static int by_name(const void *a, const void *b) {
    const struct kept *x = a, *y = b;
    const int names = strcmp(x->name, y->name);
    return names ? names : x->index - y->index;
}

/* Sorts the tensors of a kind by name, and gives those of the same name different keys: "NAME#2", "NAME#3". */
static int name_copies(struct kept_list *list, struct rt *rt, enum rt_saved_kind kind) {
    struct kept *all = list->at[kind];
    qsort(all, (size_t)list->n[kind], sizeof *all, by_name);
    for (int i = 0; i < list->n[kind]; i++) {
        const size_t room = strlen(all[i].name) + 16;
        int copies = 1;
        for (int j = 0; j < i; j++) copies += strcmp(all[j].name, all[i].name) == 0;
        if (copies == 1) continue;
        if (!(all[i].copy = malloc(room))) return rt_fail_memory(rt);
        snprintf(all[i].copy, room, "%s#%d", all[i].name, copies);
    }
    return RT_OK;
}

int kept_find(struct kept_list *list, struct rt *rt) {
    const int counts[RT_SAVED_KINDS] = {rt->program->nweights, rt->program->nstates};
    *list = (struct kept_list){0};
    for (int k = 0; k < RT_SAVED_KINDS; k++) {
        list->at[k] = calloc((size_t)counts[k] + 1, sizeof *list->at[k]);
        if (!list->at[k]) return rt_fail_memory(rt);
    }
    RT_TRY(find_arenas(list, rt));
    RT_TRY(rt_manifest_read(rt, &list->manifest));
    RT_TRY(list_kind(list, rt, RT_SAVED_PARAMETERS));
    RT_TRY(list_kind(list, rt, RT_SAVED_OPTIMIZER));
    RT_TRY(name_copies(list, rt, RT_SAVED_PARAMETERS));
    return name_copies(list, rt, RT_SAVED_OPTIMIZER);
}

void kept_free(struct kept_list *list) {
    rt_json_free(list->manifest);
    for (int k = 0; k < RT_SAVED_KINDS; k++) {
        for (int i = 0; i < list->n[k]; i++) {
            free(list->at[k][i].copy);
            free(list->at[k][i].cuts);
        }
        free(list->at[k]);
        if (list->copied) free(list->arena[k]);
    }
}
