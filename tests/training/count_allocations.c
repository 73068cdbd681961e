/* For LD_PRELOAD: counts what each module of a process allocates, and says at its end, in the file
 * COUNT_ALLOCATIONS.<pid>,
 *
 *   program PATH            of the process
 *   calls N MODULE          of malloc and its like, and of mmap
 *   arena BYTES             anonymous memory that the program itself maps, one line each, in order */
#define _GNU_SOURCE 1
#undef _FILE_OFFSET_BITS /* mmap and mmap64 are two functions here */

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's own, which need no looking up. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

enum { MODULES = 64, ARENAS = 64 };

static struct {
    _Atomic(const char *) path; /* the loader's, one per module */
    atomic_long calls;
} modules[MODULES];

static size_t arenas[ARENAS];
static atomic_int narenas;
static const char *program; /* as the loader knows it */

/* The path of the module that the address is in. */
static const char *module_of(const void *address) {
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "?";
}

static void count(const void *caller) {
    const char *path = module_of(caller);
    for (int i = 0; i < MODULES; i++) {
        const char *there = NULL;
        if (atomic_compare_exchange_strong(&modules[i].path, &there, path) || there == path) {
            atomic_fetch_add(&modules[i].calls, 1);
            return;
        }
    }
}

void *malloc(size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    count(__builtin_return_address(0));
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    const void *caller = __builtin_return_address(0);
    const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    count(caller);
    if ((flags & anonymous) == anonymous && module_of(caller) == program) {
        const int i = atomic_fetch_add(&narenas, 1);
        if (i < ARENAS) arenas[i] = bytes;
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
    __attribute__((alias("mmap")));

__attribute__((constructor)) static void begin(void) {
    program = module_of((const void *)getauxval(AT_ENTRY));
}

__attribute__((destructor)) static void end(void) {
    const char *prefix = getenv("COUNT_ALLOCATIONS");
    char path[4096];
    if (!prefix) return;
    snprintf(path, sizeof path, "%s.%ld", prefix, (long)getpid());
    FILE *out = fopen(path, "we");
    if (!out) abort();
    fprintf(out, "program %s\n", program);
    for (int i = 0; i < MODULES && modules[i].path; i++)
        fprintf(out, "calls %ld %s\n", modules[i].calls, modules[i].path);
    for (int i = 0; i < narenas && i < ARENAS; i++) fprintf(out, "arena %zu\n", arenas[i]);
    if (fclose(out)) abort();
}
