/* replay [--runs N] [--first F] [--seed S] [--apart DIR] FILE|DIRECTORY...: gives a fuzz target every file, then
 * mutations F .. F+N-1 of them (2,000 from 0 by default); a mutation follows from the files, S and its number. For
 * builds without libFuzzer, and for tests.
 *
 * With --apart every input runs in a process of its own, with MOST_SECONDS of processor time and at most MOST_MEMORY:
 * one that is killed, ends with another status, takes longer or more is left in DIR with what was printed, and the next
 * one is tried. The exit status is 1 if there was one. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

enum {
    MOST_BYTES = 1 << 20,
    GROWTH = 1 << 12, /* what mutations may add */
    MOST_FILES = 4096,
    ROUNDS = 4,
    MOST_SECONDS = 10,  /* of processor time, sanitized */
    MOST_MEMORY = 2048, /* MiB */
    REFUSED = 77        /* exit status of an input that its target refused */
};

struct input {
    const char *path;
    unsigned char *bytes;
    size_t size;
};

static struct input inputs[MOST_FILES];
static int ninputs;
static uint64_t state = 0x9e3779b97f4a7c15u;

/* The targets that need more than bytes bring their own. */
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(unsigned char *data, size_t size, size_t most, unsigned seed) __attribute__((weak));

static size_t next(size_t n) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (size_t)((state * 0x2545f4914f6cdd1du) >> 33) % n;
}

static size_t insert(unsigned char *data, size_t size, size_t most) {
    const struct input *from = &inputs[next((size_t)ninputs)];
    size_t room = most - size, n = from->size < room ? from->size : room;
    if (!n) return size;
    n = 1 + next(n < 64 ? n : 64);
    if (n > room || n > from->size) return size;
    size_t at = next(size + 1);
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, from->bytes + next(from->size - n + 1), n);
    return size + n;
}

static size_t erase(unsigned char *data, size_t size) {
    size_t at = next(size), n = 1 + next(size - at < 64 ? size - at : 64);
    memmove(data + at, data + at + n, size - at - n);
    return size - n;
}

size_t LLVMFuzzerMutate(unsigned char *data, size_t size, size_t most) {
    size_t kind = next(4);
    if (!size || kind == 0) return insert(data, size, most);
    if (kind == 1) return erase(data, size);
    data[next(size)] = (unsigned char)(kind == 2 ? next(256) : data[next(size)] ^ 1u << next(8));
    return size;
}

static void load_file(const char *path) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = malloc(MOST_BYTES);
    size_t size = file && bytes ? fread(bytes, 1, MOST_BYTES, file) : MOST_BYTES;
    if (size == MOST_BYTES || ninputs == MOST_FILES) {
        fprintf(stderr, "replay: cannot take %s\n", path);
        exit(2);
    }
    inputs[ninputs++] = (struct input){strdup(path), realloc(bytes, size + 1), size};
    fclose(file);
}

static int compare(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void load(const char *path) {
    struct dirent **entries;
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) {
        load_file(path);
        return;
    }
    int n = scandir(path, &entries, NULL, compare);
    if (n < 0) load_file(path); /* which says so */
    for (int i = 0; i < n; i++) {
        char full[4096];
        snprintf(full, sizeof full, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') load_file(full);
        free(entries[i]);
    }
    free(entries);
}

/* Where findings go; NULL: inputs run in this process. */
static const char *apart;
static long findings, passed;

/* Gives the input to the target, in this process. Reading past its end is noticed. */
static void run_here(const unsigned char *data, size_t size) {
    unsigned char *exact = malloc(size ? size : 1);
    fuzz_check(exact != NULL);
    if (size) memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    passed += fuzz_passed;
}

static _Noreturn void run_child(const unsigned char *data, size_t size, const char *log) {
    const struct rlimit seconds = {MOST_SECONDS, MOST_SECONDS};
    int file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    fuzz_check(file >= 0 && dup2(file, STDOUT_FILENO) >= 0 && dup2(file, STDERR_FILENO) >= 0);
    setrlimit(RLIMIT_CPU, &seconds);
    alarm(10 * MOST_SECONDS); /* one that sleeps */
    run_here(data, size);
    exit(fuzz_passed ? 0 : REFUSED); /* leaks are looked for */
}

/* Why what a process did is a finding; NULL: it is none. */
static const char *finding_of(int status, const struct rusage *used) {
    static char text[96];
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "killed by signal %d after %ld s", WTERMSIG(status), (long)used->ru_utime.tv_sec);
    else if (WEXITSTATUS(status) && WEXITSTATUS(status) != REFUSED)
        snprintf(text, sizeof text, "exit status %d", WEXITSTATUS(status));
    else if (used->ru_maxrss >> 10 > MOST_MEMORY)
        snprintf(text, sizeof text, "%ld MiB", used->ru_maxrss >> 10);
    else
        return NULL;
    return text;
}

static void run_apart(const unsigned char *data, size_t size, const char *from, long number) {
    char log[4096], kept[4096];
    int status;
    struct rusage used;
    snprintf(log, sizeof log, "%s/%ld.log", apart, number);
    pid_t child = fork();
    fuzz_check(child >= 0);
    if (!child) run_child(data, size, log);
    fuzz_check(wait4(child, &status, 0, &used) == child);
    const char *why = finding_of(status, &used);
    passed += WIFEXITED(status) && !WEXITSTATUS(status);
    if (!why) {
        unlink(log);
        return;
    }
    findings++;
    snprintf(kept, sizeof kept, "%s/%ld.input", apart, number);
    FILE *file = fopen(kept, "wb");
    fuzz_check(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    printf("%ld (%s): %s\n", number, from, why);
    fflush(stdout);
}

static void run(const unsigned char *data, size_t size, const char *from, long number) {
    if (apart)
        run_apart(data, size, from, number);
    else
        run_here(data, size);
}

static void run_mutated(uint64_t seed, long number) {
    state = (seed * 0x9e3779b97f4a7c15u + (uint64_t)number + 1) * 0xbf58476d1ce4e5b9u | 1;
    for (int i = 0; i < 8; i++) next(2); /* numbers that follow each other are far apart then */
    const struct input *from = &inputs[next((size_t)ninputs)];
    size_t size = from->size, most = from->size + GROWTH;
    unsigned char *data = malloc(most);
    fuzz_check(data != NULL);
    memcpy(data, from->bytes, size);
    for (size_t rounds = 1 + next(ROUNDS); rounds; rounds--)
        size = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(data, size, most, (unsigned)next(1u << 31))
                                       : LLVMFuzzerMutate(data, size, most);
    run(data, size, from->path, number);
    free(data);
}

int main(int argc, char **argv) {
    long runs = 2000, first = 0, seed = 1;
    if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            runs = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--first") == 0 && i + 1 < argc)
            first = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--apart") == 0 && i + 1 < argc)
            apart = argv[++i];
        else
            load(argv[i]);
    for (int i = 0; i < ninputs && !first; i++) run(inputs[i].bytes, inputs[i].size, inputs[i].path, -1 - i);
    for (long i = 0; i < runs && ninputs; i++) run_mutated((uint64_t)seed, first + i);
    printf("%d files, %ld mutations, %ld passed, %ld findings\n", ninputs, runs, passed, findings);
    for (int i = 0; i < ninputs; i++) free(inputs[i].bytes), free((char *)inputs[i].path);
    return !ninputs ? 2 : findings ? 1 : 0;
}
