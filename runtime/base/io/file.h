/* Reads, maps and writes complete files. Only regular files are opened; FIFOs and devices are refused without
 * blocking. */
#ifndef RT_BASE_FILE_H
#define RT_BASE_FILE_H

#include "../text/reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rt_file_info {
    int64_t bytes, mtime_ns, ctime_ns;
};
struct stat; /* of <sys/stat.h> */
struct rt_file_info rt_file_info_of(const struct stat *status);

/* Opens a regular file for reading; returns a descriptor, or -1. */
int rt_file_open(const char *path, struct rt_file_info *info, struct rt_reason *why);

/* Reads a file into allocated memory, with a NUL appended that *count excludes. The caller frees *bytes. Files larger
 * than `limit` are refused. */
bool rt_file_read(const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why);

/* Variants `_below`: file `name` below a directory that a program wrote. Symbolic links are followed in `directory` but
 * not below it (RT_REASON_MISMATCH). `name` has no "..". */
int rt_file_open_below(const char *directory, const char *name, struct rt_file_info *info, struct rt_reason *why);
bool rt_file_read_below(const char *directory, const char *name, size_t limit, void **bytes, size_t *count,
                        struct rt_reason *why);

/* Maps a file privately and read-only; *bytes is NULL for an empty file. */
bool rt_file_map(const char *path, const void **bytes, struct rt_file_info *info, struct rt_reason *why);
bool rt_file_map_below(const char *directory, const char *name, const void **bytes, struct rt_file_info *info,
                       struct rt_reason *why);
void rt_file_unmap(const void *bytes, int64_t count);

/* Writes the pieces to a temporary file in the same directory and renames it to `path`: readers see the old file or the
 * complete new one. */
struct rt_piece {
    const void *bytes;
    size_t count;
};
bool rt_file_write(const char *path, const struct rt_piece *pieces, int npieces, struct rt_reason *why);

/* The name of a temporary file or directory beside `path`; `room`: at least its bytes and RT_BESIDE_BYTES. */
enum { RT_BESIDE_BYTES = 32 };
void rt_file_name_beside(const char *path, char *out, size_t room);

/* Files of an open directory that other users may write to. The last component of `path` is the file's name in
 * `directory`; messages print `path`. Reading refuses a symbolic link and a file with several hard links
 * (RT_REASON_LINK); writing replaces a link by a new file. */
bool rt_file_read_at(int directory, const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why);
int rt_file_open_at(int directory, const char *path, struct rt_file_info *info, struct rt_reason *why);

/* Writes a new file piece by piece and syncs it to disk. `path` stays the caller's. After an error, appending does
 * nothing; rt_file_end, which must be called, reports the error, and no file remains. */
struct rt_new_file {
    const char *path;
    int directory, descriptor, error; /* descriptor -1: not open; error: 0 or an errno */
};
void rt_file_begin_at(struct rt_new_file *file, int directory, const char *path);
void rt_file_append(struct rt_new_file *file, const void *bytes, size_t count);
/* Replaces the file's first bytes, which were appended before; nothing may be appended afterwards. */
void rt_file_replace_start(struct rt_new_file *file, const void *bytes, size_t count);
bool rt_file_end(struct rt_new_file *file, struct rt_reason *why);

/* The same at once. */
bool rt_file_create_at(int directory, const char *path, const struct rt_piece *pieces, int64_t npieces,
                       struct rt_reason *why);

/* Creates the directory, and those above it; false with errno. An existing one is no error. */
bool rt_make_directories(const char *path);
/* The same for those above a file, which is to be written. */
bool rt_make_parents(const char *path);

/* Syncs the entries of an open directory to disk; messages print `path`. */
bool rt_file_sync_directory(int directory, const char *path, struct rt_reason *why);

/* The last component of a path: what follows the last slash. */
const char *rt_path_name(const char *path);

/* True if the text ends in `suffix`, such as ".npy". */
bool rt_has_suffix(const char *text, const char *suffix);

/* Flushes stdout. True if all that was printed is written, or stdout is a pipe whose reader has left: it has read
 * enough, as head does. False: it could not be written, with errno of the last attempt, such as ENOSPC. SIGPIPE must be
 * ignored or handled: else it ends the process. */
bool rt_printed(void);

#endif
