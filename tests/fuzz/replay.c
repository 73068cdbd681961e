/* replay [--runs N] FILE|DIRECTORY...: gives a fuzz target every file, then N mutations of them (2,000 by default), the
 * same ones each time. For builds without libFuzzer, and for tests. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

enum { MOST_BYTES = 1 << 14, MOST_FILES = 4096, ROUNDS = 4 };

struct input {
    unsigned char *bytes;
    size_t size;
};

static struct input inputs[MOST_FILES];
static int ninputs;
static uint64_t state = 0x9e3779b97f4a7c15u;

/* The targets that need more than bytes bring one of their own. */
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
    if (!file || !bytes || ninputs == MOST_FILES) {
        fprintf(stderr, "replay: cannot take %s\n", path);
        exit(2);
    }
    inputs[ninputs++] = (struct input){bytes, fread(bytes, 1, MOST_BYTES, file)};
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

static void run_mutated(void) {
    unsigned char *data = malloc(MOST_BYTES);
    fuzz_check(data != NULL);
    const struct input *from = &inputs[next((size_t)ninputs)];
    size_t size = from->size;
    memcpy(data, from->bytes, size);
    for (size_t rounds = 1 + next(ROUNDS); rounds; rounds--)
        size = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(data, size, MOST_BYTES, (unsigned)next(1u << 31))
                                       : LLVMFuzzerMutate(data, size, MOST_BYTES);
    unsigned char *exact = malloc(size ? size : 1); /* reading past its end is noticed */
    fuzz_check(exact != NULL);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    free(data);
}

int main(int argc, char **argv) {
    long runs = 2000;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            runs = strtol(argv[++i], NULL, 10);
        else
            load(argv[i]);
    for (int i = 0; i < ninputs; i++) LLVMFuzzerTestOneInput(inputs[i].bytes, inputs[i].size);
    for (long i = 0; i < runs && ninputs; i++) run_mutated();
    printf("%d files, %ld mutations\n", ninputs, runs);
    for (int i = 0; i < ninputs; i++) free(inputs[i].bytes);
    return ninputs ? 0 : 2;
}
