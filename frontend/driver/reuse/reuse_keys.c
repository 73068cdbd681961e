#include "frontend/driver/reuse/reuse_keys.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/base/str.h"
#include "runtime/base/io/file.h"

#define PART_BUILD     "rankc"
#define PART_GRAPH     "graph" /* the graph key, which includes the build */
#define PART_PLAN_FILE "plan file"
#define PART_DIRECTORY "directory"

static void add_part(struct key *key, struct arena *arena, const char *name, const char *value) {
    VEC_PUSH(arena, &key->parts, (struct key_part){name, arena_strdup(arena, value)});
}

static void seal(struct key *key, struct arena *arena) {
    struct rt_hash hash;
    char hex[RT_HASH_HEX];
    rt_hash_start(&hash);
    for (int i = 0; i < key->parts.n; i++) {
        rt_hash_text(&hash, key->parts.at[i].name);
        rt_hash_text(&hash, key->parts.at[i].value);
    }
    rt_hash_hex(&hash, hex);
    key->hex = arena_strdup(arena, hex);
}

/* Reads size and times of the file. The change time (ctime) is included, since no program can set it back. */
static bool read_state(struct hashed_file *file) {
    struct stat info;
    if (stat(file->path, &info) < 0) return false;
    const struct rt_file_info state = rt_file_info_of(&info);
    file->bytes = state.bytes, file->mtime_ns = state.mtime_ns, file->ctime_ns = state.ctime_ns;
    return true;
}

static int add_file(struct reuse_keys *keys, const struct options *options, struct arena *arena, struct diags *diags,
                    const char *path) {
    struct rt_reason why;
    struct rt_reader reader;
    char real[PATH_MAX];
    struct hashed_file file = {.path = real};
    if (!realpath(path, real) || !read_state(&file)) return diag_errno(diags, 601, NULL, "open", path);
    const bool opened = rt_reader_open(&reader, real, &why);
    const bool hashed = opened && rt_hash_reader_shown(&reader, path, options->quiet || options->json, file.hash, &why);
    if (opened) rt_reader_close(&reader);
    if (!hashed) return diag_refusal(diags, 601, EXIT_SYSTEM, NULL, &why);
    file.path = arena_strdup(arena, real);
    file.given = str_escape(arena, path, strlen(path), 0);
    VEC_PUSH(arena, &keys->files, file);
    return 0;
}

int reuse_keys_check_files(const struct reuse_keys *keys, struct diags *diags) {
    VEC_EACH(&keys->files, i, const struct hashed_file *then) {
        struct hashed_file now = {.path = then->path};
        if (read_state(&now) && now.bytes == then->bytes && now.mtime_ns == then->mtime_ns &&
            now.ctime_ns == then->ctime_ns)
            continue;
        return diag_error(diags, 604, EXIT_SYSTEM, then->given, "file changed while reading");
    }
    return 0;
}

/* Adds a hash of the running executable, since another build of rankc may generate other code. */
static int add_build(struct key *key, struct arena *arena, struct diags *diags) {
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    if (!rt_hash_file("/proc/self/exe", hex, &why)) return diag_refusal(diags, 601, EXIT_SYSTEM, NULL, &why);
    add_part(key, arena, PART_BUILD, arena_printf(arena, "%s, build %s", RANKC_VERSION, hex));
    return 0;
}

static void add_options(struct reuse_keys *keys, const struct options *options, const struct side_files *side,
                        struct arena *arena) {
    EACH(option_rows, OPTIONS, id, const struct option *row) {
        if (row->key == KEY_NONE || (id == OPT_PAS && side->rules)) continue;
        const char *value = id == OPT_SCHEDULE && side->decisions.schedule ? side->decisions.schedule
                            : id == OPT_MACHINE                            ? side->machine_hash
                                                : options_text(options, (enum option_id)id, arena);
        add_part(row->key == KEY_GRAPH ? &keys->graph : &keys->plan, arena, row->name, value);
    }
}

/* True for the parts that say how a program computes and what it is called: a run may be resumed by a program that
 * differs in them. */
static bool is_means(const char *part) {
    static const char *const parts[] = {PART_BUILD, PART_GRAPH, PART_PLAN_FILE, PART_DIRECTORY, NAMES_INSTANCE};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(part, parts[i]) == 0) return true;
    for (int id = 0; id < OPTIONS; id++)
        if (strcmp(option_rows[id].name, part) == 0) return option_rows[id].key == KEY_MEANS;
    return false;
}

static void add_work(struct key *work, const struct key *key, struct arena *arena) {
    for (int i = 0; i < key->parts.n; i++)
        if (!is_means(key->parts.at[i].name)) add_part(work, arena, key->parts.at[i].name, key->parts.at[i].value);
}

static void find_work(struct reuse_keys *keys, struct arena *arena) {
    add_work(&keys->work, &keys->graph, arena);
    add_work(&keys->work, &keys->plan, arena);
    seal(&keys->work, arena);
}

static bool read_key(struct key *key, const struct rt_json *stored, struct arena *arena) {
    const char *hex = rt_json_text(rt_json_member(stored, "key"));
    const struct rt_json *parts = rt_json_member(stored, "parts");
    if (!hex || !parts || parts->kind != RT_JSON_OBJECT) return false;
    for (const struct rt_json *part = parts->first; part; part = part->next) {
        const char *value = rt_json_text(part);
        if (!value) return false;
        add_part(key, arena, arena_strdup(arena, part->key), value);
    }
    seal(key, arena);
    return strcmp(key->hex, hex) == 0;
}

const char *reuse_keys_part(const struct key *key, const char *name) {
    for (int i = 0; i < key->parts.n; i++)
        if (strcmp(key->parts.at[i].name, name) == 0) return key->parts.at[i].value;
    return NULL;
}

bool reuse_keys_read(struct reuse_keys *keys, const struct rt_json *stored, int *nfiles, struct arena *arena) {
    *keys = (struct reuse_keys){0};
    if (!read_key(&keys->graph, rt_json_member(stored, "graph"), arena) ||
        !read_key(&keys->plan, rt_json_member(stored, "plan"), arena))
        return false;
    find_work(keys, arena);
    for (*nfiles = 1; reuse_keys_part(&keys->graph, arena_printf(arena, "external data %d", *nfiles)); ++*nfiles)
        continue;
    return true;
}

/* Adds the names of the result's directories, as far as they are not those that the options give. */
static void add_names(struct key *key, const struct options *options, const struct directory_names *names,
                      struct arena *arena) {
    add_part(key, arena, NAMES_INSTANCE, options->instance_name);
    if (strcmp(names->model, options_model(options, arena)) ||
        strcmp(names->instance, options_instance(options, arena)))
        add_part(key, arena, PART_DIRECTORY, arena_printf(arena, "%s/%s", names->model, names->instance));
}

int reuse_keys_make(struct reuse_keys *keys, const struct options *options, const struct directory_names *names,
                    const struct side_files *side, int nfiles, const char *const *files, struct arena *arena,
                    struct diags *diags) {
    *keys = (struct reuse_keys){0};
    for (int i = 0; i < nfiles; i++) {
        if (add_file(keys, options, arena, diags, files[i]) < 0) return -1;
        add_part(&keys->graph, arena, i ? arena_printf(arena, "external data %d", i) : "model", keys->files.at[i].hash);
    }
    /* generated files contain the name of the model's file, but not its directory */
    add_part(&keys->graph, arena, NAMES_FILE, rt_path_name(options->operand));
    add_options(keys, options, side, arena);
    add_part(&keys->graph, arena, "bound inputs", side->binds_hash);
    if (*side->loss_hash) add_part(&keys->graph, arena, "weights of the loss", side->loss_hash);
    add_part(&keys->graph, arena, "operators", side->ops_hash);
    add_part(&keys->graph, arena, "names of weights", side->names_hash);
    if (side->adapters.rules) add_part(&keys->graph, arena, "adapter", side->adapters.rules);
    if (*side->generation_hash) add_part(&keys->graph, arena, "generation", side->generation_hash);
    if (add_build(&keys->graph, arena, diags) < 0) return -1;
    seal(&keys->graph, arena);
    add_part(&keys->plan, arena, PART_PLAN_FILE, side->plan_hash);
    if (*side->constraints_hash) add_part(&keys->plan, arena, "constraints", side->constraints_hash);
    add_names(&keys->plan, options, names, arena);
    add_part(&keys->plan, arena, PART_GRAPH, keys->graph.hex);
    seal(&keys->plan, arena);
    find_work(keys, arena);
    return 0;
}
