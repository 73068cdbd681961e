/* test_faults [--from K] [--every N] KIND MODEL [OPTION...]: compiles MODEL again and again in this process (killed
 * ones: in a child), the k-th point of it going wrong, k = K, K + N, ... until a compile meets no fault. Checks each
 * time:
 *
 *   - the exit code: 5 where memory was short, 6 where the system failed, 0 where it did not matter; with one error
 *   - the result of an earlier compile is there to the byte, or all of the new one, and nothing else
 *   - no block of memory and no file descriptor is left
 *   - the next compile succeeds, and writes what it would have without the fault before
 *
 * then the same of a compile that reuses what is there, which must stay as it is.
 *
 * KIND: memory, no-memory, EIO, ENOSPC, EINTR, short, kill, kill-without-exchange. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults/faults.h"

int rankc_main(int argc, char **argv); /* frontend/cli/main.c */

enum { MOST_WORDS = 64, KILLED = -9 };

static const struct kind {
    const char *name;
    struct fault fault;
    int exit; /* besides 0 */
} kinds[] = {
    {"memory", {.kind = FAULT_MEMORY}, 5},
    {"no-memory", {.kind = FAULT_NO_MEMORY}, 5},
    {"EIO", {.kind = FAULT_ERROR, .error = EIO}, 6},
    {"ENOSPC", {.kind = FAULT_ERROR, .error = ENOSPC}, 6},
    {"EINTR", {.kind = FAULT_ERROR, .error = EINTR}, 6},
    {"short", {.kind = FAULT_SHORT}, 0},
    {"kill", {.kind = FAULT_KILL}, KILLED},
    {"kill-without-exchange", {.kind = FAULT_KILL, .no_exchange = true}, KILLED},
};

static const struct kind *kind;
static char directory[64];
static pid_t owner;             /* of the directory */
static char *words[MOST_WORDS]; /* of the compile whose result is to be kept */
static int nwords;
static long k;

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at) {
    (void)status, (void)type, (void)at;
    return remove(path);
}

/* Children that are to be killed share the directory. */
static void leave(void) {
    if (getpid() == owner && chdir("/") == 0) nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%s at point %ld: ", kind ? kind->name : "?", k);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    leave();
    _exit(1);
}

/* What is in the output directory ---------------------------------------------------------------------------------- */

struct digest {
    unsigned long long hash;
    int files;
};

static struct digest digest;

static void mix(const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) digest.hash = (digest.hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
}

static void mix_file(const char *path) {
    char bytes[1 << 16];
    int fd = open(path, O_RDONLY);
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;) mix(bytes, (size_t)n);
    close(fd);
}

/* The files of one directory after the other; their order in it does not matter to the sum. */
static int visit(const char *path, const struct stat *status, int type, struct FTW *at) {
    (void)status, (void)at;
    if (type != FTW_F) return 0;
    unsigned long long before = digest.hash;
    digest.hash = 0xcbf29ce484222325u;
    mix(path, strlen(path));
    mix_file(path);
    digest.hash += before;
    digest.files++;
    return 0;
}

/* Of files that are there, or {0} if there are none. */
static struct digest digest_of(const char *path) {
    digest = (struct digest){0};
    nftw(path, visit, 8, FTW_PHYS);
    return digest;
}

static bool is_same(struct digest a, struct digest b) {
    return a.hash == b.hash && a.files == b.files;
}

static int open_descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(all)) n++;
    closedir(all);
    return n;
}

/* Compiling -------------------------------------------------------------------------------------------------------- */

/* rankc WORDS... [more...] in this process: its exit code, and what it said in `said`. */
static int compile(const struct fault *fault, char *const *more, char *said, size_t room, bool *hit) {
    static int err = -1, keep = -1;
    char *argv[MOST_WORDS + 8];
    int argc = nwords;
    memcpy(argv, words, sizeof words);
    while (*more) argv[argc++] = *more++;
    argv[argc] = NULL;
    if (err < 0) err = memfd_create("stderr", MFD_CLOEXEC), keep = fcntl(2, F_DUPFD_CLOEXEC, 10);
    if (ftruncate(err, 0) || lseek(err, 0, SEEK_SET) || dup2(err, 2) < 0) fail("no file for stderr");
    faults_arm(fault);
    int code = rankc_main(argc, argv);
    faults_disarm(hit);
    dup2(keep, 2);
    ssize_t n = pread(err, said, room - 1, 0);
    said[n > 0 ? n : 0] = 0;
    return code;
}

static int count_errors(const char *said) {
    int n = 0;
    for (; (said = strstr(said, "rankc: error[")); said++) n++;
    return n;
}

static char *const earlier[] = {"--reuse=override", NULL};
static char *const later[] = {"--reuse=override", "--pas=tp:tensor=2", NULL};
static char *const again[] = {"--reuse=match", "--pas=tp:tensor=2", NULL};

/* Without a fault; its files. */
static struct digest compile_well(char *const *more) {
    char said[4096];
    bool hit;
    int code = compile(&(struct fault){FAULT_NONE}, more, said, sizeof said, &hit);
    if (code) fail("a compile without a fault ends with %d: %s", code, said);
    return digest_of("out/m/_");
}

/* The earlier result lies between two renames: the next compile finds it, and that it is of another plan. */
static void check_restored(void) {
    char said[4096];
    bool hit;
    if (compile(&(struct fault){FAULT_NONE}, again, said, sizeof said, &hit) != 8)
        fail("the earlier result is not found: %s", said);
}

static void check_exit(int code, const char *said, bool hit) {
    if (!hit && code) fail("no fault, and exit %d: %s", code, said);
    if (code && code != kind->exit) fail("exit %d: %s", code, said);
    if (code && count_errors(said) != 1) fail("exit %d and %d errors: %s", code, count_errors(said), said);
}

/* In this process: false when no fault was met. */
static bool compile_badly(char *const *more, int *code) {
    char said[4096];
    bool hit;
    struct fault fault = kind->fault;
    fault.at = k;
    long blocks = faults_live_blocks();
    int descriptors = open_descriptors();
    *code = compile(&fault, more, said, sizeof said, &hit);
    check_exit(*code, said, hit);
    if (faults_live_blocks() != blocks) fail("%ld blocks are left", faults_live_blocks() - blocks);
    if (open_descriptors() != descriptors) fail("%d descriptors are left", open_descriptors() - descriptors);
    return hit;
}

/* In a child, which is killed: false when it was not. */
static bool compile_until_killed(char *const *more, int *code) {
    int status;
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        char said[4096];
        bool hit;
        struct fault fault = kind->fault;
        fault.at = k;
        _exit(compile(&fault, more, said, sizeof said, &hit));
    }
    waitpid(child, &status, 0);
    *code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    if (*code && *code != KILLED) fail("the child ends with %d", *code);
    return *code == KILLED;
}

/* Nothing but the result; and, where it cannot be removed, what was being written. */
static void check_beside(bool killed) {
    DIR *all = opendir("out/m");
    for (struct dirent *entry; (entry = readdir(all));) {
        bool staging = strcmp(entry->d_name, "._.new") == 0 || strcmp(entry->d_name, "._.old") == 0;
        if (strcmp(entry->d_name, "_") && strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
            !(staging && (killed || kind->fault.kind == FAULT_NO_MEMORY)))
            fail("out/m/%s is there", entry->d_name);
    }
    closedir(all);
}

static bool go_wrong(char *const *more, int *code) {
    return kind->exit == KILLED ? compile_until_killed(more, code) : compile_badly(more, code);
}

static bool try_point(struct digest before, struct digest after) {
    int code;
    bool killed = kind->exit == KILLED, hit = go_wrong(later, &code);
    struct digest now = digest_of("out/m/_");
    check_beside(killed && code);
    if (!code && !is_same(now, after)) fail("exit 0, and the result is not complete");
    if (kind->fault.no_exchange && !now.files) {
        check_restored();
        now = digest_of("out/m/_");
    }
    if (code && !is_same(now, before) && !is_same(now, after)) fail("the earlier result is gone");
    if (!is_same(compile_well(earlier), before)) fail("the next compile gives something else");
    check_beside(false);
    return hit;
}

static bool try_reuse(struct digest there) {
    int code;
    bool hit = go_wrong(again, &code);
    if (!is_same(digest_of("out/m/_"), there)) fail("exit %d, and what was to be reused has changed", code);
    check_beside(false);
    return hit;
}

/* A directory of our own with a copy of the model. */
static void enter(const char *model) {
    char bytes[1 << 16];
    const char *temporary = getenv("TMPDIR");
    if (!temporary) temporary = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* fsync takes no time there */
    snprintf(directory, sizeof directory, "%.40s/faults-XXXXXX", temporary);
    FILE *from = fopen(model, "rb");
    if (!from || !mkdtemp(directory) || chdir(directory)) fail("%s: %s", model, strerror(errno));
    owner = getpid();
    atexit(leave);
    FILE *to = fopen("m.onnx", "wb");
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, from)) > 0;) fwrite(bytes, 1, n, to);
    fclose(from);
    fclose(to);
}

static void take_words(int n, char **options) {
    static char *const first[] = {"rankc", "compile", "m.onnx", "--no-build", "-q", "-oout"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) words[nwords++] = first[i];
    for (int i = 0; i < n && nwords < MOST_WORDS; i++) words[nwords++] = options[i];
}

int main(int argc, char **argv) {
    long from = 1, every = 1, points = 0;
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2)
        *(strcmp(argv[at], "--from") == 0 ? &from : &every) = strtol(argv[at + 1], NULL, 10);
    for (size_t i = 0; at < argc && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[at], kinds[i].name) == 0) kind = &kinds[i];
    if (!kind || argc < at + 2 || from < 1 || every < 1) {
        fprintf(stderr, "usage: test_faults [--from K] [--every N] KIND MODEL [OPTION...]\n");
        return 2;
    }
    enter(argv[at + 1]);
    take_words(argc - at - 2, argv + at + 2);
    compile_well(later); /* libc's own memory is allocated now */
    struct digest before = compile_well(earlier), after = compile_well(later);
    compile_well(earlier);
    for (k = from; try_point(before, after); k += every) points++;
    compile_well(later);
    for (k = from; try_reuse(after); k += every) points++;
    printf("%ld points\n", points);
    return 0;
}
