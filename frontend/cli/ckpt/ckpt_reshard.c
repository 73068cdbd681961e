/* rankc ckpt dedup and reshard: which parts the new checkpoint has. */
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/ckpt/checkpoint_target.h"
#include "frontend/cli/compiled_model.h"
#include "frontend/cli/show/ranks.h"
#include "frontend/driver/reuse/reuse_keys.h"
#include "passes/plan/file/plan_text.h"

/* Appends the cuts of a list of JSON objects with dim, blocks, unit and an axis: a number, or its name in `mesh`. */
static bool read_cuts(const struct checkpoint_target *target, struct checkpoint_tensor *tensor,
                      const struct rt_json *list, const struct rt_json *mesh) {
    const int64_t n = list && list->kind == RT_JSON_ARRAY ? list->count : 0;
    tensor->cuts = ARENA_ARRAY(target->cli->arena, struct rt_saved_cut, n + 1);
    for (const struct rt_json *entry = n ? list->first : NULL; entry; entry = entry->next) {
        struct rt_saved_cut *cut = &tensor->cuts[tensor->ncuts++];
        const struct rt_json *axis = rt_json_member(entry, "axis");
        const char *name = rt_json_text(axis);
        int64_t number = -1;
        int place = 0;
        rt_json_int(axis, &number);
        for (const struct rt_json *at = name && mesh ? mesh->first : NULL; at; at = at->next, place++)
            if (rt_json_text(rt_json_member(at, "axis")) && !strcmp(rt_json_text(rt_json_member(at, "axis")), name))
                number = place;
        cut->axis = (int)number;
        if (number < 0 || number >= target->mesh.naxes || !rt_json_int(rt_json_member(entry, "dim"), &cut->cut.dim) ||
            !rt_json_int(rt_json_member(entry, "blocks"), &cut->cut.blocks) ||
            !rt_json_int(rt_json_member(entry, "unit"), &cut->cut.grain))
            return false;
    }
    return true;
}

static int dedup_refused(struct checkpoint *from, struct cli *cli) {
    return diag_error(cli->diags, 805, EXIT_MISMATCH, from->path, "checkpoint.json does not describe its tensors");
}

/* The ranks that wrote parts of the tensor; each rank is a class of its own here. */
static const bool *holders_of(const struct checkpoint_target *target, const struct rt_saved_tensor *tensor) {
    bool *holders = ARENA_ARRAY(target->cli->arena, bool, target->ranks);
    for (const struct rt_saved_part *part = tensor->parts; part; part = part->next) {
        const char *number = strchr(rt_saved_file(target->from->saved, part->file)->name, '-') + 1;
        const long rank = strtol(number, NULL, 10);
        if (rank < target->ranks) holders[rank] = true;
    }
    return holders;
}

/* Reads the mesh of a checkpoint or of a manifest. Of a checkpoint's axes no names are known; the pipeline axis is the
 * last one if stages are unequal. */
static int read_mesh(struct checkpoint_target *target, const struct rt_json *list) {
    struct mesh mesh = {0};
    for (const struct rt_json *entry = rt_json_first(list); entry; entry = entry->next) {
        struct rt_mesh_axis axis;
        if (mesh.naxes == RT_MAX_AXES || !plan_get_axis(entry, &axis) || mesh_product(&mesh) * axis.size > RT_MAX_RANKS)
            return -1;
        mesh_add_axis(&mesh, entry->next ? "" : axis_rows[AXIS_PIPELINE].name, &axis);
    }
    if (mesh_refused(&mesh)) return -1;
    target->mesh = mesh_positions(&mesh);
    target->ranks = mesh_size(&mesh);
    return 0;
}

int checkpoint_dedup(struct cli *cli, struct checkpoint *from) {
    const char *out = cli->options->operands[1];
    const struct rt_json *root = rt_saved_root(from->saved);
    struct checkpoint_target target = {.cli = cli, .from = from, .path = out};
    target.name = rt_json_text(rt_json_member(root, "name"));
    target.program = rt_json_text(rt_json_member(root, "program"));
    if (!target.name || !target.program || read_mesh(&target, rt_json_member(root, "mesh")))
        return dedup_refused(from, cli);
    int *class_of = ARENA_ARRAY(cli->arena, int, target.ranks);
    for (int r = 0; r < target.ranks; r++) class_of[r] = r;
    target.class_of = class_of;
    for (int k = 0; k < RT_SAVED_KINDS; k++) {
        const struct rt_json *entry = rt_json_member(root, rt_saved_kinds[k])->first;
        for (int i = 0; entry; entry = entry->next, i++) {
            const struct rt_saved_tensor *tensor = rt_saved_at(from->saved, (enum rt_saved_kind)k, i);
            struct checkpoint_tensor to = {.from = tensor, .name = tensor->name};
            if (tensor->copy_of) continue;
            if (!read_cuts(&target, &to, rt_json_member(entry, "slices"), NULL)) return dedup_refused(from, cli);
            to.holds = holders_of(&target, tensor);
            VEC_PUSH(cli->arena, &target.tensors[k], to);
        }
    }
    return checkpoint_write(&target);
}

static int fail_manifest(struct cli *cli) {
    return diag_error(cli->diags, 803, EXIT_MISMATCH, NULL, "manifest.json does not describe the program's tensors");
}

/* The classes that hold the tensor; NULL: all do. */
static const bool *classes_of(const struct rt_json *entry, int classes, struct arena *arena) {
    const struct rt_json *list = rt_json_member(entry, "classes");
    bool *holders = list && list->kind == RT_JSON_ARRAY ? ARENA_ARRAY(arena, bool, classes + 1) : NULL;
    int64_t number;
    for (const struct rt_json *class = holders ? list->first : NULL; class; class = class->next)
        if (rt_json_int(class, &number) && number >= 0 && number < classes) holders[number] = true;
    return holders;
}

/* Files have their tensors by name, and copies in the program's order. */
static int by_name(const void *a, const void *b) {
    const struct checkpoint_tensor *x = a, *y = b;
    const int names = strcmp(x->from->name, y->from->name);
    return names ? names : x->copy - y->copy;
}

/* Names the tensor in files: "NAME", or "NAME#2" for the second of that name. */
static void name_tensor(const struct checkpoint_target *target, enum rt_saved_kind kind,
                        struct checkpoint_tensor *tensor, const char *name) {
    tensor->copy = 1;
    for (int i = 0; i < target->tensors[kind].n; i++)
        tensor->copy += !strcmp(target->tensors[kind].at[i].from->name, name);
    tensor->name = tensor->copy == 1 ? name : arena_printf(target->cli->arena, "%s#%d", name, tensor->copy);
    tensor->copy_of = tensor->copy == 1 ? NULL : name;
}

/* Lists the program's tensors of one kind that the checkpoint has; constants it has not. */
static int list_kind(struct checkpoint_target *target, enum rt_saved_kind kind, const struct compiled_model *compiled,
                     int classes) {
    struct arena *arena = target->cli->arena;
    const char *key = kind == RT_SAVED_PARAMETERS ? "tensors" : "states";
    const struct rt_json *list = rt_json_member(compiled->root, key), *mesh = rt_json_member(compiled->root, "mesh");
    if (!list || list->kind != RT_JSON_ARRAY) return fail_manifest(target->cli);
    for (const struct rt_json *entry = list->first; entry; entry = entry->next) {
        const char *name = rt_json_text(rt_json_member(entry, "name"));
        struct checkpoint_tensor tensor = {.holds = classes_of(entry, classes, arena)};
        if (!name || !read_cuts(target, &tensor, rt_json_member(entry, "slices"), mesh))
            return fail_manifest(target->cli);
        tensor.from = rt_saved_find(target->from->saved, kind, name);
        if (!tensor.from && kind == RT_SAVED_PARAMETERS) continue;
        if (!tensor.from)
            return diag_error(target->cli->diags, 805, EXIT_MISMATCH, target->from->path,
                              "the checkpoint has no optimizer state %s", diag_quote(target->cli->diags, name));
        name_tensor(target, kind, &tensor, name);
        VEC_PUSH(arena, &target->tensors[kind], tensor);
    }
    if (target->tensors[kind].n)
        qsort(target->tensors[kind].at, (size_t)target->tensors[kind].n, sizeof *target->tensors[kind].at, by_name);
    return 0;
}

/* The number of each rank's class in the manifest; *n: of classes. */
static const int *number_classes(const struct compiled_model *compiled, struct arena *arena, int *n) {
    const struct rt_json *const *class_of = ranks_classes(compiled, arena);
    int *numbers = ARENA_ARRAY(arena, int, compiled->plan_ngpus);
    *n = 0;
    for (const struct rt_json *class = rt_json_member(compiled->root, "classes")->first; class;
         class = class->next, ++*n)
        for (int64_t r = 0; r < compiled->plan_ngpus; r++)
            if (class_of[r] == class) numbers[r] = *n;
    return numbers;
}

static int reshard(struct checkpoint_target *target, const struct compiled_model *compiled) {
    struct cli *cli = target->cli;
    const char *model = rt_json_text(rt_json_member(compiled->root, "model")),
               *instance = rt_json_text(rt_json_member(compiled->root, "instance")),
               *theirs = rt_json_text(rt_json_member(rt_saved_root(target->from->saved), "program"));
    struct reuse_keys keys;
    int files, classes;
    if (!reuse_keys_read(&keys, rt_json_member(compiled->root, "keys"), &files, cli->arena) || !model || !instance ||
        read_mesh(target, rt_json_member(compiled->root, "mesh")))
        return fail_manifest(cli);
    if (rt_saved_format(target->from->saved) != RT_SAVED_OLDEST && (!theirs || strcmp(theirs, keys.work.hex))) {
        struct rt_reason why;
        rt_saved_refuse(target->from->saved, compiled->root, &why);
        return diag_error(cli->diags, 805, EXIT_MISMATCH, target->from->path,
                          "the checkpoint belongs to another program, %s", why.text);
    }
    target->name = arena_printf(cli->arena, "%s/%s", model, instance);
    target->program = keys.work.hex;
    target->made_of = rt_saved_made_of(compiled->root);
    target->class_of = number_classes(compiled, cli->arena, &classes);
    for (int k = 0; k < RT_SAVED_KINDS; k++)
        if (list_kind(target, (enum rt_saved_kind)k, compiled, classes)) return -1;
    return checkpoint_write(target);
}

int checkpoint_reshard(struct cli *cli, struct checkpoint *from) {
    const char *program = cli->options->operands[1], *out = cli->options->operands[2];
    struct checkpoint_target target = {.cli = cli, .from = from, .path = out};
    struct compiled_model compiled;
    if (compiled_open(&compiled, program, cli)) return -1;
    const int status = reshard(&target, &compiled);
    compiled_close(&compiled);
    return status;
}
