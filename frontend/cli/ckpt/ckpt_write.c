/* The actions of `rankc ckpt` that write checkpoints, or all parameters in one file. A directory is a checkpoint once
 * checkpoint.json is in it, which is written last. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/cli/ckpt/checkpoint_target.h"
#include "frontend/cli/format_bytes.h"
#include "runtime/base/io/file.h"

enum { CODE_WRITE = 611 };

static int unwritten(struct cli *cli, const struct rt_reason *why) {
    return diag_refusal(cli->diags, CODE_WRITE, EXIT_SYSTEM, NULL, why);
}

/* Reads a region of a tensor piece by piece and gives it to `put`. */
struct sink {
    void (*put)(void *to, const void *bytes, int64_t count);
    void *to;
};

static int copy_region(struct cli *cli, struct checkpoint *from, const struct rt_saved_tensor *tensor,
                       const struct rt_region *region, const struct sink *sink) {
    const int64_t size = (int64_t)rt_dtype_bytes(tensor->dtype), piece = RT_SAVED_CHUNK / size;
    int64_t elements = 1;
    unsigned char *buffer = ARENA_ARRAY(cli->arena, unsigned char, RT_SAVED_CHUNK);
    for (int d = 0; d < region->ndim; d++) elements *= rt_region_extent(region, d);
    for (int64_t at = 0; at < elements; at += piece) {
        const int64_t some = elements - at < piece ? elements - at : piece;
        struct rt_reason why;
        if (!rt_saved_read(from->saved, tensor, region, at, some, buffer, &why))
            return checkpoint_refused(from, cli, &why);
        sink->put(sink->to, buffer, some * size);
    }
    return 0;
}

/* written beside, then renamed */

const char *checkpoint_beside(struct cli *cli, const char *out) {
    const size_t room = strlen(out) + RT_BESIDE_BYTES;
    char *name = ARENA_ARRAY(cli->arena, char, room);
    rt_file_name_beside(out, name, room);
    return name;
}

int checkpoint_publish(struct cli *cli, int directory, const char *out) {
    const char *beside = rt_path_name(checkpoint_beside(cli, out));
    if (renameat(directory, beside, directory, rt_path_name(out)) == 0) return 0;
    const int failed = diag_errno(cli->diags, CODE_WRITE, NULL, "write", out);
    unlinkat(directory, beside, 0);
    return failed;
}

static void put_bytes(void *to, const void *bytes, int64_t count) {
    rt_file_append(to, bytes, (size_t)count);
}

int checkpoint_open_parent(struct cli *cli, const char *path) {
    const char *slash = strrchr(path, '/');
    const char *parent = !slash          ? "."
                         : slash == path ? "/"
                                         : arena_printf(cli->arena, "%.*s", (int)(slash - path), path);
    const int directory = rt_make_directories(parent) ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    return directory < 0 ? diag_errno(cli->diags, CODE_WRITE, NULL, "write", path) : directory;
}

static int write_tensors(struct cli *cli, struct checkpoint *from, int directory, const char *out,
                         const struct checkpoint_named *all, int n) {
    struct rt_safetensor *tensors = ARENA_ARRAY(cli->arena, struct rt_safetensor, n + 1);
    struct rt_new_file file;
    struct rt_reason why;
    size_t bytes;
    for (int i = 0; i < n; i++) {
        const struct rt_saved_tensor *tensor = all[i].from;
        tensors[i] = (struct rt_safetensor){.name = all[i].name, .dtype = tensor->dtype, .ndim = tensor->ndim};
        tensors[i].bytes = checkpoint_elements(tensor) * (int64_t)rt_dtype_bytes(tensor->dtype);
        memcpy(tensors[i].dims, tensor->dims, sizeof tensor->dims);
        while (all[i].matrix && tensors[i].ndim > 2) tensors[i].dims[1] *= tensors[i].dims[--tensors[i].ndim];
    }
    char *header = rt_safetensors_header(tensors, n, NULL, &bytes, &why);
    int status = 0;
    if (!header) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    rt_file_begin_at(&file, directory, checkpoint_beside(cli, out));
    rt_file_append(&file, header, bytes);
    free(header);
    for (int i = 0; i < n && !status; i++) {
        const struct rt_region whole = rt_region_whole(all[i].from->dims, all[i].from->ndim);
        const struct sink sink = {put_bytes, &file};
        status = copy_region(cli, from, all[i].from, &whole, &sink);
        cli_tell(cli, "%s", checkpoint_tensor_text(all[i].from, cli));
    }
    if (status) file.error = EIO; /* removes the file */
    if (!rt_file_end(&file, &why) && !status) status = unwritten(cli, &why);
    return status ? status : checkpoint_publish(cli, directory, out);
}

int checkpoint_write_tensors(struct cli *cli, struct checkpoint *from, const char *out,
                             const struct checkpoint_named *all, int n) {
    const int directory = checkpoint_open_parent(cli, out);
    const int status = directory < 0 ? -1 : write_tensors(cli, from, directory, out, all, n);
    if (directory >= 0) close(directory);
    return status;
}

int checkpoint_merge(struct cli *cli, struct checkpoint *from) {
    const char *out = cli->options->operands[1];
    const int count = rt_saved_count(from->saved, RT_SAVED_PARAMETERS);
    struct checkpoint_named *all = ARENA_ARRAY(cli->arena, struct checkpoint_named, count + 1);
    int n = 0;
    for (int i = 0; i < count; i++) {
        const struct rt_saved_tensor *tensor = rt_saved_at(from->saved, RT_SAVED_PARAMETERS, i);
        if (!tensor->copy_of) all[n++] = (struct checkpoint_named){tensor->name, tensor, false};
    }
    const int status = checkpoint_write_tensors(cli, from, out, all, n);
    return status ? status : cli_confirm(cli, "%s: %d parameter(s)\n", out, n);
}

static int coordinate(const struct checkpoint_target *target, int rank, int axis) {
    int coordinates[RT_MAX_AXES];
    rt_mesh_coordinates(&target->mesh, rank, coordinates);
    return coordinates[axis];
}

static bool holds(const struct checkpoint_target *target, const struct checkpoint_tensor *tensor, int rank) {
    return !tensor->holds || tensor->holds[target->class_of[rank]];
}

/* True if no rank before this one has the same part. */
static bool owns(const struct checkpoint_target *target, const struct checkpoint_tensor *tensor, int rank) {
    if (!holds(target, tensor, rank)) return false;
    for (int before = 0; before < rank; before++) {
        bool same = holds(target, tensor, before);
        for (int c = 0; c < tensor->ncuts && same; c++)
            same = coordinate(target, before, tensor->cuts[c].axis) == coordinate(target, rank, tensor->cuts[c].axis);
        if (same) return false;
    }
    return true;
}

/* The entry of a rank's part; without a rank, -1, of the complete tensor. */
static struct rt_saved_entry entry_of(const struct checkpoint_target *target, const struct checkpoint_tensor *tensor,
                                      int rank) {
    const struct rt_saved_tensor *from = tensor->from;
    struct rt_saved_cut *cuts =
        arena_copy(target->cli->arena, tensor->cuts, (size_t)tensor->ncuts * sizeof *tensor->cuts);
    for (int c = 0; c < tensor->ncuts && rank >= 0; c++) {
        cuts[c].cut.part = coordinate(target, rank, cuts[c].axis);
        cuts[c].cut.parts = target->mesh.axis[cuts[c].axis].size;
    }
    return (struct rt_saved_entry){.name = tensor->name,
                                   .copy_of = tensor->copy_of,
                                   .dtype = from->dtype,
                                   .ndim = from->ndim,
                                   .dims = from->dims,
                                   .ncuts = tensor->ncuts,
                                   .cuts = cuts};
}

static void put_part(void *to, const void *bytes, int64_t count) {
    rt_saved_output_append(to, bytes, count);
}

static int write_parts(const struct checkpoint_target *target, struct rt_saved_output *out,
                       const struct rt_saved_entry *entries, const struct rt_saved_tensor *const *from, int n) {
    const struct sink sink = {put_part, out};
    for (int i = 0; i < n; i++) {
        struct rt_region region;
        rt_saved_region(&entries[i], &region);
        if (copy_region(target->cli, target->from, from[i], &region, &sink)) return -1;
    }
    return 0;
}

static int write_file(struct checkpoint_target *target, enum rt_saved_kind kind, int rank) {
    struct arena *arena = target->cli->arena;
    const int most = target->tensors[kind].n;
    struct rt_saved_entry *entries = ARENA_ARRAY(arena, struct rt_saved_entry, most + 1);
    const struct rt_saved_tensor **from = ARENA_ARRAY(arena, const struct rt_saved_tensor *, most + 1);
    struct rt_saved_written written = {0};
    struct rt_saved_output out;
    struct rt_reason why;
    int n = 0;
    EACH(target->tensors[kind].at, most, i, const struct checkpoint_tensor *tensor) {
        if (!owns(target, tensor, rank)) continue;
        entries[n] = entry_of(target, tensor, rank);
        from[n++] = tensor->from;
    }
    if (!n) return 0;
    rt_saved_file_name(&written.is, kind, rank);
    const char *path = arena_printf(arena, "%s/%s", target->path, written.is.name);
    if (!rt_saved_output_begin(&out, target->directory, path, entries, n, &why)) return unwritten(target->cli, &why);
    int status = write_parts(target, &out, entries, from, n);
    if (!rt_saved_output_end(&out, &written.is.bytes, written.hash, &why) && !status)
        status = unwritten(target->cli, &why);
    if (!status) cli_tell(target->cli, "%s: %d tensor(s), %s", path, n, format_bytes(written.is.bytes).text);
    VEC_PUSH(arena, &target->files, written);
    return status;
}

static int write_summary(struct checkpoint_target *target) {
    struct arena *arena = target->cli->arena;
    struct rt_saved_summary summary = {.name = target->name,
                                       .program = target->program,
                                       .made_of = target->made_of,
                                       .step = checkpoint_number(target->from, "step"),
                                       .micro_batches = checkpoint_number(target->from, "micro_batches"),
                                       .micro_batches_per_step =
                                           checkpoint_number(target->from, "micro_batches_per_step"),
                                       .seed = checkpoint_number(target->from, "seed"),
                                       .mesh = &target->mesh,
                                       .files = target->files.at,
                                       .nfiles = target->files.n};
    struct rt_reason why;
    for (int k = 0; k < RT_SAVED_KINDS; k++) {
        const int n = summary.ntensors[k] = target->tensors[k].n;
        struct rt_saved_entry *entries = ARENA_ARRAY(arena, struct rt_saved_entry, n + 1);
        for (int i = 0; i < n; i++) entries[i] = entry_of(target, &target->tensors[k].at[i], -1);
        summary.tensors[k] = entries;
    }
    const char *path = arena_printf(arena, "%s/%s", target->path, RT_SAVED_JSON);
    if (rt_saved_summary_write(&summary, target->directory, path, &why) &&
        rt_file_sync_directory(target->directory, target->path, &why))
        return 0;
    return unwritten(target->cli, &why);
}

static int write_files(struct checkpoint_target *target) {
    for (int r = 0; r < target->ranks; r++)
        for (int k = 0; k < RT_SAVED_KINDS; k++)
            if (write_file(target, (enum rt_saved_kind)k, r)) return -1;
    return write_summary(target);
}

static void remove_staged(int directory, const char *staged) {
    DIR *entries = fdopendir(directory);
    const struct dirent *entry;
    while (entries && (entry = readdir(entries)))
        if (entry->d_name[0] != '.') unlinkat(directory, entry->d_name, 0);
    rmdir(staged);
    entries ? closedir(entries) : close(directory);
}

int checkpoint_write(struct checkpoint_target *target) {
    struct cli *cli = target->cli;
    char *path = arena_strdup(cli->arena, target->path);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
    target->path = path;
    const char *staged = checkpoint_beside(cli, target->path);
    const int parent = checkpoint_open_parent(cli, target->path);
    struct stat info;
    if (parent < 0) return -1;
    close(parent);
    errno = EEXIST;
    if (lstat(target->path, &info) == 0 || mkdir(staged, 0777))
        return diag_errno(cli->diags, CODE_WRITE, NULL, "create", target->path);
    target->directory = open(staged, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target->directory < 0) return diag_errno(cli->diags, 601, NULL, "open", staged);
    int status = write_files(target);
    if (!status && rename(staged, target->path))
        status = diag_errno(cli->diags, CODE_WRITE, NULL, "create", target->path);
    if (status) {
        remove_staged(target->directory, staged);
        return status;
    }
    close(target->directory);
    return cli_confirm(cli, "%s: step %lld in %d file(s)\n", target->path,
                       (long long)checkpoint_number(target->from, "step"), target->files.n);
}
