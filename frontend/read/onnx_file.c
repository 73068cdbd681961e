#include "frontend/read/onnx_data.h"
#include "ir/base/str.h"
#include "runtime/base/io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SHA-1 (FIPS 180-4), for the key "checksum" of ONNX's external data. It detects damage, not forgery. */
#define SHA1_HEX 41 /* 40 digits and a NUL */

struct sha1 {
    uint32_t state[5];
    uint64_t bytes;
    unsigned char block[64];
};

static uint32_t rotate(uint32_t word, int by) {
    return word << by | word >> (32 - by);
}

/* The round function of step t. FIPS 180-4, 4.1.1. */
static uint32_t mix(int t, uint32_t b, uint32_t c, uint32_t d) {
    if (t < 20) return (b & c) | (~b & d);
    if (t < 40 || t >= 60) return b ^ c ^ d;
    return (b & c) | (b & d) | (c & d);
}

static void add_block(uint32_t state[5], const unsigned char block[64]) {
    static const uint32_t constants[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 |
               block[4 * t + 3];
    for (int t = 16; t < 80; t++) w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t sum = rotate(a, 5) + mix(t, b, c, d) + e + w[t] + constants[t / 20];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = sum;
    }
    const uint32_t added[5] = {a, b, c, d, e};
    for (int i = 0; i < 5; i++) state[i] += added[i];
}

static void sha1_start(struct sha1 *sha1) {
    *sha1 = (struct sha1){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

static void sha1_add(struct sha1 *sha1, const void *bytes, size_t count) {
    for (const unsigned char *at = bytes; count;) {
        size_t used = sha1->bytes % 64, part = 64 - used < count ? 64 - used : count;
        memcpy(sha1->block + used, at, part);
        sha1->bytes += part;
        at += part;
        count -= part;
        if (sha1->bytes % 64 == 0) add_block(sha1->state, sha1->block);
    }
}

/* Ends the hash and writes its lower-case hexadecimal digits. */
static void sha1_hex(struct sha1 *sha1, char hex[SHA1_HEX]) {
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = sha1->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha1_add(sha1, padding, 1 + (119 - sha1->bytes % 64) % 64);
    sha1_add(sha1, length, sizeof length);
    for (int i = 0; i < 5; i++) snprintf(hex + 8 * i, 9, "%08x", sha1->state[i]);
}

enum { FAILED_BEFORE = INT_MAX, OPEN_FLAGS = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };

bool onnx_file_changed(const struct onnx_file *file, int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0) return true;
    const struct rt_file_info now = rt_file_info_of(&status);
    return now.bytes != file->bytes || now.mtime_ns != file->mtime_ns;
}

int onnx_file_refuse(const struct onnx_model *model, const struct onnx_file *file) {
    const char *where = str_name(model->arena, file->path);
    return diag_error(model->diags, 604, EXIT_SYSTEM, where, "file changed while reading");
}

static int64_t bytes_in_memory(const struct onnx_model *model) {
    int64_t sum = 0;
    for (int i = 0; i < model->files.n; i++)
        if (!model->files.at[i].mapped) sum += model->files.at[i].bytes;
    return sum;
}

static int read_whole(struct onnx_model *model, struct onnx_file *file, int fd, const char *where) {
    unsigned char *bytes = malloc((size_t)file->bytes);
    if (!bytes) return diag_error(model->diags, 500, EXIT_LIMIT, where, "out of memory");
    file->data = bytes;
    for (int64_t done = 0; done < file->bytes;) {
        ssize_t n = pread(fd, bytes + done, (size_t)(file->bytes - done), done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return diag_errno(model->diags, 601, where, "read", file->path);
        if (n == 0) break;
        done += n;
        if (done == file->bytes && !onnx_file_changed(file, fd)) return 0;
    }
    return onnx_file_refuse(model, file);
}

static int map_whole(struct onnx_model *model, struct onnx_file *file, int fd, const char *where) {
    file->mapped = mapping_open(fd, file->bytes);
    if (!file->mapped) return diag_errno(model->diags, 601, where, "map", file->path);
    file->data = file->mapped->bytes;
    return 0;
}

int onnx_file_add(struct onnx_model *model, int fd, const char *path, const char *location, const char *where) {
    struct stat status;
    if (fstat(fd, &status) != 0) return diag_errno(model->diags, 601, where, "open", path);
    const struct rt_file_info info = rt_file_info_of(&status);
    bool fits = info.bytes <= ONNX_IN_MEMORY - bytes_in_memory(model);
    struct onnx_file file = {.path = arena_strdup(model->arena, path), .bytes = info.bytes, .mtime_ns = info.mtime_ns};
    if (location) file.location = arena_strdup(model->arena, location);
    VEC_PUSH(model->arena, &model->files, file);
    struct onnx_file *added = &model->files.at[model->files.n - 1];
    int result = !added->bytes ? 0 : fits ? read_whole(model, added, fd, where) : map_whole(model, added, fd, where);
    if (result == 0) return model->files.n - 1;
    onnx_file_drop(added);
    model->files.n--;
    return -1;
}

void onnx_file_drop(struct onnx_file *file) {
    if (file->mapped)
        mapping_close(file->mapped);
    else
        free((void *)(uintptr_t)file->data);
    file->data = NULL;
    file->mapped = NULL;
}

bool onnx_copy(const struct onnx_model *model, int file, uint64_t offset, void *to, uint64_t bytes) {
    if (file < 0 || file >= model->files.n) return false;
    const struct onnx_file *source = &model->files.at[file];
    if (offset > (uint64_t)source->bytes || bytes > (uint64_t)source->bytes - offset) return false;
    if (bytes) memcpy(to, source->data + offset, bytes);
    return !source->mapped || !source->mapped->lost;
}

const char *onnx_file_sha1(struct onnx_model *model, int file) {
    enum { BLOCK = 1 << 14 };
    struct onnx_file *source = &model->files.at[file];
    struct sha1 sha1;
    unsigned char block[BLOCK];
    sha1_start(&sha1);
    for (int64_t at = 0; !source->sha1 && at < source->bytes; at += BLOCK) {
        size_t part = source->bytes - at < BLOCK ? (size_t)(source->bytes - at) : BLOCK;
        if (!onnx_copy(model, file, (uint64_t)at, block, part)) return NULL;
        sha1_add(&sha1, block, part);
    }
    if (source->sha1) return source->sha1;
    char *hex = arena_alloc(model->arena, SHA1_HEX, 1);
    sha1_hex(&sha1, hex);
    return source->sha1 = hex;
}

int onnx_check_files(const struct onnx_model *model) {
    for (int i = 0; i < model->files.n; i++)
        if (model->files.at[i].mapped && !mapping_check(model->files.at[i].mapped))
            return onnx_file_refuse(model, &model->files.at[i]);
    return 0;
}

static int refuse(struct onnx_model *model, int code, const char *location, const char *where, const char *why) {
    return diag_error(model->diags, code, EXIT_MALFORMED, where, "external data %s %s",
                      diag_quote(model->diags, location), why);
}

static int refuse_link(struct onnx_model *model, int code, const char *location, const char *where, const char *why) {
    refuse(model, code, location, where, why);
    return diag_help(model->diags, "--allow-links accepts links to external data");
}

/* True if a relative path leaves its start directory by "..". */
static bool climbs_out(const char *path) {
    int depth = 0;
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length == 2 && path[0] == '.' && path[1] == '.')
            depth--;
        else if (length > 1 || (length == 1 && path[0] != '.'))
            depth++;
        if (depth < 0) return true;
        path += length + (path[length] == '/');
    }
    return false;
}

static int check_spelling(struct onnx_model *model, const char *location, const char *where) {
    if (!*location || strcmp(location, ".") == 0) return refuse(model, 364, location, where, "is not a file name");
    if (strlen(location) >= PATH_MAX) return refuse(model, 364, location, where, "is too long for a path");
    bool memory = strstr(location, "_ORT_MEM_ADDR_") != NULL; /* ONNX Runtime's mark for "location is a pointer" */
    if (location[0] == '/' || strstr(location, "://") || strncmp(location, "file:", 5) == 0 || memory ||
        climbs_out(location))
        return refuse(model, 361, location, where, "is outside of the model's directory");
    return 0;
}

/* Opens `path` on kernels without openat2: directory by directory, following no link. `path` has no "..". */
static int open_stepwise(int directory, char *path) {
    int fd = dup(directory);
    for (char *name = strtok_r(path, "/", &path); name && fd >= 0; name = strtok_r(NULL, "/", &path)) {
        bool last = path[strspn(path, "/")] == 0;
        int next = openat(fd, name, OPEN_FLAGS | O_NOFOLLOW | (last ? 0 : O_DIRECTORY));
        struct stat status;
        if (next < 0 && fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode)) errno = ELOOP;
        int error = errno;
        close(fd);
        errno = error;
        fd = next;
    }
    return fd;
}

/* `path` without "." and "..": "a/../b" is "b". */
static char *path_normal(struct arena *arena, const char *path) {
    char *normal = arena_alloc(arena, strlen(path) + 2, 1);
    size_t end = 0;
    while (*path) {
        size_t length = strcspn(path, "/");
        bool up = length == 2 && path[0] == '.' && path[1] == '.';
        if (up) {
            while (end && normal[--end] != '/') {
            }
        } else if (length > 1 || (length == 1 && path[0] != '.')) {
            if (end) normal[end++] = '/';
            memcpy(normal + end, path, length);
            end += length;
        }
        path += length + (path[length] == '/');
    }
    normal[end] = 0;
    return normal;
}

static int open_beneath(struct onnx_model *model, const char *location) {
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_NO_MAGICLINKS};
    if (!model->allow_links) how.resolve |= RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    for (int tries = 0; tries < 16; tries++) {
        int fd = (int)syscall(SYS_openat2, model->directory, location, &how, sizeof how);
        if (fd >= 0) return fd;
        if (errno == ENOSYS || errno == EPERM) {
            if (model->allow_links) return openat(model->directory, location, OPEN_FLAGS);
            return open_stepwise(model->directory, path_normal(model->arena, location));
        }
        if (errno != EAGAIN && errno != EINTR) return -1; /* EAGAIN: a directory was renamed meanwhile */
    }
    return -1;
}

static int open_failed(struct onnx_model *model, const char *location, const char *where) {
    if (errno == EXDEV) return refuse(model, 361, location, where, "is outside of the model's directory");
    if (errno == ELOOP) return refuse_link(model, 362, location, where, "is a symbolic link");
    if (errno == ENAMETOOLONG || errno == ENXIO) return refuse(model, 364, location, where, "is not a regular file");
    return diag_errno(model->diags, 601, where, "open external data", location);
}

static int check_kind(struct onnx_model *model, int fd, const char *location, const char *where) {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return refuse(model, 364, location, where, "is not a regular file");
    if (status.st_nlink > 1 && !model->allow_links)
        return refuse_link(model, 363, location, where, "has more than one hard link");
    return 0;
}

/* The descriptor lies in model->fd, so that onnx_close closes it if an allocation jumps out of this function. */
static int open_location(struct onnx_model *model, const char *location, const char *where) {
    if (check_spelling(model, location, where)) return -1;
    const char *slash = strrchr(model->path, '/');
    int prefix = slash ? (int)(slash - model->path) + 1 : 0;
    const char *path = arena_printf(model->arena, "%.*s%s", prefix, model->path, location);
    model->fd = open_beneath(model, location);
    if (model->fd < 0) return open_failed(model, location, where);
    int file = -1;
    if (check_kind(model, model->fd, location, where) == 0)
        file = onnx_file_add(model, model->fd, path, location, where);
    close(model->fd);
    model->fd = -1;
    return file;
}

int onnx_external_file(struct onnx_model *model, const char *location, const struct onnx_place *place) {
    int file = map_find(&model->locations, location);
    if (file == FAILED_BEFORE) return -1;
    if (file >= 0) return file;
    file = open_location(model, location, onnx_place_text(model, place));
    map_set(&model->locations, location, file < 0 ? FAILED_BEFORE : file);
    return file;
}
