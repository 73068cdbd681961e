/* Shared by saving and loading checkpoints: which tensors a rank keeps, and which ranks' files have their parts.
 *
 * Several ranks of a scale unit may hold the same part of a tensor, bit for bit; the first of them owns it and writes
 * it. Scale units are replicas of each other: only unit 0 writes. */
#ifndef RT_CHECKPOINT_H
#define RT_CHECKPOINT_H

#include "core/private.h"

#include "base/io/saved_write.h"

#include <limits.h>

/* A tensor that training changes: a parameter or optimizer state. */
struct kept {
    const char *name;
    int index;  /* in the program's list */
    char *copy; /* key in files if the plan holds the tensor in a second way: "NAME#2"; NULL: `name` */
    enum rt_dtype dtype;
    int ndim, nsplits;
    const int64_t *dims; /* of the complete tensor */
    const struct rt_split *split;
    struct rt_saved_cut *cuts; /* the same, and which part this rank has */
    unsigned flat;             /* axes of a flat cut, which files do not show: they have whole parts; 0: none */
    unsigned char *at;         /* address of what this rank stores of its part; NULL: it holds none */
    struct rt_stored stored;
    struct rt_region region;                    /* the part */
    int64_t part[RT_MAX_NDIM], elements, bytes; /* of the part */
    int owner;                                  /* shard number of the owner */
};

struct kept_list {
    struct rt_json_document *manifest; /* owns the names */
    struct kept *at[RT_SAVED_KINDS];
    int n[RT_SAVED_KINDS];
    /* memory with the tensors of a kind: the rank's arena, or a copy of a GPU's arena */
    unsigned char *arena[RT_SAVED_KINDS];
    bool copied;
};

/* Its key in files. */
static inline const char *kept_key(const struct kept *kept) {
    return kept->copy ? kept->copy : kept->name;
}

/* How files describe it. */
struct rt_saved_entry kept_entry(const struct kept *kept);

/* Lists the tensors that this rank keeps, by name: the order of the program's list depends on its plan. RT_OK or a
 * recorded status; call kept_free in both cases. */
int kept_find(struct kept_list *list, struct rt *rt);
/* After loading: copies the tensors to the rank's arenas, if they are copies. */
int kept_give(struct kept_list *list, struct rt *rt);
void kept_free(struct kept_list *list);

struct checkpoint_path {
    char text[PATH_MAX];
};

/* Paths: "D/step-7" with prefix CHECKPOINT_DONE and token 0; "D/.writing-7-0a1b2c3d" with a token; files in such a
 * directory. RT_OK or a recorded status. */
int checkpoint_path(struct rt *rt, struct checkpoint_path *out, const char *directory, const char *prefix, int64_t step,
                    uint32_t token);
int checkpoint_file(struct rt *rt, struct checkpoint_path *out, const struct checkpoint_path *directory,
                    enum rt_saved_kind kind, int shard);
int checkpoint_json(struct rt *rt, struct checkpoint_path *out, const struct checkpoint_path *directory);
/* The last component of a path: the entry's name in D. */
const char *checkpoint_name(const struct checkpoint_path *path);

/* Note [Directory of checkpoints]
 * The directory D may be shared with other users' programs, and killed runs may have left files in it. D itself is
 * opened by the user's path; everything in it is opened relative to an open directory, without following links.
 * Directories get their final name by rename, once they are complete:
 *
 *   step-K                  a complete checkpoint
 *   .writing-K-TOKEN        a checkpoint being written; each save has a token of its own
 *   .removing-K-TOKEN       a checkpoint being removed
 *   .lock                   locked by the job that writes to D, while it runs; contains its process and host
 *
 * The holder of the lock removes what dead jobs left. It is a kernel lock (flock), released when its owner dies; no
 * time limit is needed. */
#define CHECKPOINT_DONE     "step-"
#define CHECKPOINT_WRITING  ".writing-"
#define CHECKPOINT_REMOVING ".removing-"
#define CHECKPOINT_LOCK     ".lock"

/* An open directory of checkpoints. */
struct checkpoint_directory {
    char *path;
    int fd;   /* -1: not open */
    int lock; /* locked .lock file; -1: not locked */
};

/* Opens the directory D at `path`; `create`: makes it if it does not exist. RT_OK or a recorded status; call
 * checkpoint_close in both cases. */
int checkpoint_open(struct rt *rt, struct checkpoint_directory *out, const char *path, bool create);
void checkpoint_close(struct checkpoint_directory *directory); /* also releases the lock */

/* Opens a checkpoint's directory: RT_OK and *fd, or a recorded status. */
int checkpoint_enter(struct rt *rt, const struct checkpoint_directory *directory, const struct checkpoint_path *path,
                     int *fd);

/* Locks D and removes what dead jobs left. RT_ERROR_BUSY, recorded: another job holds the lock. */
int checkpoint_lock(struct rt *rt, struct checkpoint_directory *directory);

/* Removes an entry of D: a directory tree, a file, or a link itself. False, with errno, if something cannot be removed
 * or is on another file system. */
bool checkpoint_remove(const struct checkpoint_directory *directory, const char *name);

/* The largest step less than `below` that has a checkpoint; -1: none. */
int64_t checkpoint_before(const struct checkpoint_directory *directory, int64_t below);

/* A random token for a unique name; never 0. */
uint32_t checkpoint_token(void);

/* Record that a function of base/ refused to read (checkpoint_refused) or to write a file. content: the exit code
 * for malformed content. */
int checkpoint_refused(struct rt *rt, enum exit_code content, const char *path, const struct rt_reason *why);
int checkpoint_unwritten(struct rt *rt, const struct rt_reason *why);

#endif
