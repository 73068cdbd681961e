/* Directories of checkpoints: Note [Directory of checkpoints] in checkpoint.h. */
#include "state/checkpoint.h"

#include "base/io/file.h"
#include "base/io/lock_owner.h"
#include "comm/comm_shared.h"
#include "core/handshake.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { MOST_DEPTH = 64 };

#define OPEN_DIRECTORY (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

static int fail_path(struct rt *rt, int code, const char *what, const char *path) {
    return rt_fail_code(rt, RT_ERROR_SYSTEM, code, "cannot %s '%s': %s", what, rt_quote_text(path).text,
                        strerror(errno));
}

/* Syncs the parent directory, so that a new D survives a power failure. Best effort: the parent may not be
 * accessible. */
static void sync_above(int fd) {
    int above = openat(fd, "..", OPEN_DIRECTORY);
    if (above < 0) return;
    fsync(above);
    close(above);
}

int checkpoint_open(struct rt *rt, struct checkpoint_directory *out, const char *path, bool create) {
    *out = (struct checkpoint_directory){.path = strdup(path), .fd = -1, .lock = -1};
    if (!out->path) return rt_fail_memory(rt);
    if (create && !rt_make_directories(path)) return fail_path(rt, RT_CODE_WRITE, "create", path);
    out->fd = open(path, OPEN_DIRECTORY);
    if (create && out->fd >= 0) sync_above(out->fd);
    if (out->fd >= 0) return RT_OK;
    if (create || errno != ENOENT) return fail_path(rt, RT_CODE_OPEN, "open", path);
    return rt_fail(rt, RT_ERROR_SYSTEM, "'%s' contains no checkpoint", rt_quote_text(path).text);
}

int checkpoint_enter(struct rt *rt, const struct checkpoint_directory *directory, const struct checkpoint_path *path,
                     int *fd) {
    const char *name = checkpoint_name(path);
    struct stat status;
    *fd = openat(directory->fd, name, OPEN_DIRECTORY | O_NOFOLLOW);
    if (*fd >= 0) return RT_OK;
    const int error = errno;
    if (fstatat(directory->fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode))
        return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_LINK, "'%s' is a symbolic link, which is not followed",
                            rt_quote_text(path->text).text);
    errno = error;
    return fail_path(rt, RT_CODE_OPEN, "open", path->text);
}

void checkpoint_close(struct checkpoint_directory *directory) {
    if (directory->lock >= 0) {
        unlinkat(directory->fd, CHECKPOINT_LOCK, 0); /* while the lock is held */
        close(directory->lock);
    }
    if (directory->fd >= 0) close(directory->fd);
    free(directory->path);
    *directory = (struct checkpoint_directory){.fd = -1, .lock = -1};
}

uint32_t checkpoint_token(void) {
    uint32_t token = 0;
    if (getrandom(&token, sizeof token, GRND_NONBLOCK) != sizeof token) {
        struct timespec now; /* not unique, but the caller retries if the name exists */
        clock_gettime(CLOCK_MONOTONIC, &now);
        token = (uint32_t)now.tv_nsec ^ (uint32_t)getpid() << 16;
    }
    return token ? token : 1;
}

/* The step of a name "step-K" with K in canonical form; -1: another name. */
static int64_t step_of(const char *name) {
    const size_t prefix = strlen(CHECKPOINT_DONE), digits = strspn(name + strnlen(name, prefix), "0123456789");
    if (strncmp(name, CHECKPOINT_DONE, prefix) != 0 || !digits || digits > 18 || name[prefix + digits]) return -1;
    if (digits > 1 && name[prefix] == '0') return -1;
    return strtoll(name + prefix, NULL, 10);
}

/* True for ".writing-K-TOKEN" and ".removing-K-TOKEN"; earlier versions wrote no token. */
static bool is_unfinished(const char *name) {
    static const char *const prefixes[] = {CHECKPOINT_WRITING, CHECKPOINT_REMOVING};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) != 0) continue;
        const char *rest = name + strlen(prefixes[i]);
        const size_t digits = strspn(rest, "0123456789");
        if (!digits) return false;
        rest += digits;
        return !*rest || (*rest == '-' && strlen(rest) == 9 && strspn(rest + 1, "0123456789abcdef") == 8);
    }
    return false;
}

static DIR *open_entries(int directory, const char *name) {
    int fd = openat(directory, name, OPEN_DIRECTORY | O_NOFOLLOW);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !entries) close(fd);
    return entries;
}

int64_t checkpoint_before(const struct checkpoint_directory *directory, int64_t below) {
    int64_t latest = -1;
    DIR *entries = open_entries(directory->fd, ".");
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        const int64_t step = step_of(entry->d_name);
        if (step > latest && step < below) latest = step;
    }
    if (entries) closedir(entries);
    return latest;
}

bool rt_checkpoint_exists(const char *directory) {
    const struct checkpoint_directory opened = {.fd = directory ? open(directory, OPEN_DIRECTORY) : -1, .lock = -1};
    const bool exists = opened.fd >= 0 && checkpoint_before(&opened, INT64_MAX) >= 0;
    if (opened.fd >= 0) close(opened.fd);
    return exists;
}

static bool remove_tree(int directory, const char *name, dev_t device, int depth);

/* Removes all entries of an open directory; stops at the first error. */
static bool remove_entries(DIR *entries, dev_t device, int depth) {
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !remove_tree(dirfd(entries), entry->d_name, device, depth))
            return false;
    return true;
}

/* The depth of directories is limited, and so are recursion and open files. */
static bool remove_tree(int directory, const char *name, dev_t device, int depth) {
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
    if (!S_ISDIR(status.st_mode)) return unlinkat(directory, name, 0) == 0 || errno == ENOENT;
    if (status.st_dev != device || depth == MOST_DEPTH) {
        errno = EBUSY;
        return false;
    }
    DIR *entries = open_entries(directory, name);
    if (!entries) return errno == ENOENT;
    const bool emptied = remove_entries(entries, device, depth + 1);
    const int error = errno;
    closedir(entries);
    errno = error;
    return emptied && (unlinkat(directory, name, AT_REMOVEDIR) == 0 || errno == ENOENT);
}

bool checkpoint_remove(const struct checkpoint_directory *directory, const char *name) {
    struct stat status;
    return fstat(directory->fd, &status) == 0 && remove_tree(directory->fd, name, status.st_dev, 0);
}

/* Removes what dead jobs left. Entries that cannot be removed are harmless: no save uses their names. */
static void remove_unfinished(const struct checkpoint_directory *directory) {
    DIR *entries = open_entries(directory->fd, ".");
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (is_unfinished(entry->d_name)) checkpoint_remove(directory, entry->d_name);
    if (entries) closedir(entries);
}

/* Removes a checkpoint atomically: renames it first. */
static int remove_checkpoint(struct rt *rt, const struct checkpoint_directory *directory, int64_t step) {
    struct checkpoint_path from, to;
    RT_TRY(checkpoint_path(rt, &from, directory->path, CHECKPOINT_DONE, step, 0));
    RT_TRY(checkpoint_path(rt, &to, directory->path, CHECKPOINT_REMOVING, step, checkpoint_token()));
    if (renameat(directory->fd, checkpoint_name(&from), directory->fd, checkpoint_name(&to)) == 0 &&
        checkpoint_remove(directory, checkpoint_name(&to)))
        return RT_OK;
    return fail_path(rt, RT_CODE_WRITE, "remove", from.text);
}

int rt_thin_checkpoints(struct rt *rt, int64_t step, int most) {
    return rt_thin_checkpoints_but(rt, step, most, -1);
}

int rt_thin_checkpoints_but(struct rt *rt, int64_t step, int most, int64_t spared) {
    RT_NEEDS(rt, rt);
    const struct checkpoint_directory *directory = rt->internal->checkpoints;
    if (!directory || most < 1)
        return rt_fail(rt, RT_ERROR_USAGE, "this rank does not hold the lock of a checkpoint directory");
    int64_t oldest = step + 1;
    for (int i = 0; i < most && oldest >= 0; i++) oldest = checkpoint_before(directory, oldest);
    while (oldest >= 0 && (oldest = checkpoint_before(directory, oldest)) >= 0)
        if (oldest != spared) RT_TRY(remove_checkpoint(rt, directory, oldest));
    return RT_OK;
}

static int refuse_busy(struct rt *rt, const char *path, const struct rt_lock_owner *owner) {
    char who[2 * RT_QUOTE_BYTES + 64] = "";
    if (owner)
        snprintf(who, sizeof who, ": process %ld on %s since %s", owner->process, rt_quote_text(owner->host).text,
                 rt_quote_text(owner->since).text);
    return rt_fail(rt, RT_ERROR_BUSY, "another run uses the checkpoint directory '%s'%s", rt_quote_text(path).text,
                   who);
}

/* Waits a moment and returns true if the lock may be free soon: its owner is ending, or has not written its record
 * yet. */
static bool is_worth_waiting(int lock, int tries, struct rt_lock_owner *owner, bool *known) {
    enum { TRIES_TO_SIGN = 10, TRIES_TO_END = 1000 };
    const struct timespec pause = {.tv_nsec = 10000000};
    *known = rt_lock_read(lock, owner);
    if (tries >= (*known ? TRIES_TO_END : TRIES_TO_SIGN) || (*known && !rt_lock_owner_ended(owner))) return false;
    nanosleep(&pause, NULL);
    return true;
}

/* True if the locked file still has the name .lock: an owner that ends removes the file. */
static bool has_name(const struct checkpoint_directory *directory, int lock) {
    struct stat mine, named;
    return fstat(lock, &mine) == 0 && fstatat(directory->fd, CHECKPOINT_LOCK, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

/* Opens the lock file, which must be a regular file with one name: RT_OK and *lock, or a recorded status. */
static int open_lock(struct rt *rt, const struct checkpoint_directory *directory, const char *path, int *lock) {
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct stat status;
    *lock = openat(directory->fd, CHECKPOINT_LOCK, flags, 0666);
    if (*lock < 0) return fail_path(rt, RT_CODE_WRITE, "lock", path);
    if (fstat(*lock, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink <= 1) return RT_OK;
    close(*lock);
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_WRITE, "'%s' exists, but is not a lock file of rankc",
                        rt_quote_text(path).text);
}

/* One attempt. RT_OK: directory->lock is the locked file, or -1 if the caller should try again. Else a recorded
 * status. */
static int try_lock(struct rt *rt, struct checkpoint_directory *directory, const char *path, int tries) {
    struct rt_lock_owner owner;
    bool known = false;
    int lock, status = RT_OK;
    RT_TRY(open_lock(rt, directory, path, &lock));
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
        if (has_name(directory, lock)) {
            directory->lock = lock;
            return RT_OK;
        }
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
        status = fail_path(rt, RT_CODE_WRITE, "lock", path);
    } else if (!is_worth_waiting(lock, tries, &owner, &known)) {
        status = refuse_busy(rt, directory->path, known ? &owner : NULL);
    }
    close(lock);
    return status;
}

int checkpoint_lock(struct rt *rt, struct checkpoint_directory *directory) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory->path, CHECKPOINT_LOCK);
    for (int tries = 0; directory->lock < 0; tries++) RT_TRY(try_lock(rt, directory, path, tries));
    /* the owner is the process that ends the job when killed: the launcher if there is one */
    rt_lock_sign(directory->lock, getenv(RT_SHM_FD_VARIABLE) ? getppid() : getpid());
    fsync(directory->lock); /* ranks on other hosts read it */
    remove_unfinished(directory);
    return RT_OK;
}

static int hold(struct rt *rt, const char *path, bool create) {
    struct checkpoint_directory *held = malloc(sizeof *held);
    if (!held) return rt_fail_memory(rt);
    int status = checkpoint_open(rt, held, path, create);
    if (!status) status = checkpoint_lock(rt, held);
    if (status)
        rt_release_checkpoints(held);
    else
        rt->internal->checkpoints = held;
    return status;
}

/* The hash of the record in the directory's lock file; zeros: there is none. */
static void hash_owner(const char *path, char hash[RT_HASH_HEX]) {
    struct rt_lock_owner owner = {0};
    const int directory = open(path, OPEN_DIRECTORY);
    const int lock =
        directory < 0 ? -1 : openat(directory, CHECKPOINT_LOCK, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    memset(hash, 0, RT_HASH_HEX);
    if (lock >= 0 && rt_lock_read(lock, &owner)) rt_hash_bytes(&owner, sizeof owner, hash);
    if (lock >= 0) close(lock);
    if (directory >= 0) close(directory);
}

/* Collective, once rank 0 has signed the lock file: the ranks that write checkpoints must see that file. Their paths
 * may differ, and equal paths of two hosts may be two directories. */
static int compare_directories(struct rt *rt, const char *path) {
    char first[RT_HASH_HEX], mine[RT_HASH_HEX], shown[RT_QUOTE_BYTES + 300], *whole = realpath(path, NULL);
    struct utsname host = {0};
    struct rt_terms terms = {0};
    hash_owner(path, first);
    int status = rt->comm->driver->broadcast(rt->comm, first, sizeof first, 0);
    if (!status) {
        hash_owner(path, mine);
        uname(&host);
        snprintf(shown, sizeof shown, "'%s' on %s", rt_quote_text(whole ? whole : path).text, host.nodename);
        rt_terms_add(&terms, "--checkpoint-dir", rt->unit > 0 ? first : mine, shown);
    }
    status = status ? rt_fail_comm(rt, rt->comm, status) : rt_agree(rt, &terms);
    rt_terms_free(&terms);
    free(whole);
    return status;
}

int rt_hold_checkpoints(struct rt *rt, const char *directory, bool create) {
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, directory);
    int status = RT_OK;
    if (rt->rank == 0 && rt->internal->checkpoints) {
        rt_release_checkpoints(rt->internal->checkpoints);
        rt->internal->checkpoints = NULL;
    }
    if (rt->rank == 0) status = hold(rt, directory, create);
    if (status) {
        rt->comm->driver->abort(rt->comm); /* ends the other ranks' waits */
        return status;
    }
    return compare_directories(rt, directory);
}

void rt_release_checkpoints(struct checkpoint_directory *held) {
    if (held) checkpoint_close(held);
    free(held);
}
