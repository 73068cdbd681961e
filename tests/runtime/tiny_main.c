/* The tiny program as an executable, for tests that start processes: TINY_SHARDS is the number of
 * ranks of a scale unit.
 * TINY_KEY makes it another program, TINY_WORK one of another model. With
 * TINY_WRITE=DIR it writes its files and inputs there instead. */
#define _GNU_SOURCE 1

#include "tiny.h"

#include "base/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int env_int(const char *name, int otherwise) {
    return getenv(name) ? atoi(getenv(name)) : otherwise;
}

static int write_files(const char *directory) {
    char path[512];
    struct rt_reason why;
    const int64_t ids[3] = {env_int("TINY_ID", 7), env_int("TINY_ID_RANK", 0), 0};
    tiny_write(directory);
    snprintf(path, sizeof path, "%s/x.npy", directory);
    bool ok = rt_npy_write(path, RT_F32, 2, (int64_t[]){TINY_M, TINY_K}, tiny_x, &why);
    snprintf(path, sizeof path, "%s/ids.npy", directory);
    return ok && rt_npy_write(path, RT_I64, 1, (int64_t[]){3}, ids, &why) ? 0 : 1;
}

static void misbehave_before_joining(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--rank") == 0) tiny_misbehave(atoi(argv[i + 1]), 0, NULL);
}

int main(int argc, char **argv) {
    if (getenv("TINY_WRITE")) return write_files(getenv("TINY_WRITE"));
    misbehave_before_joining(argc, argv);
    struct rt_program program;
    tiny_program(&program, env_int("TINY_SHARDS", 1));
    if (getenv("TINY_KEY")) program.key = getenv("TINY_KEY");
    if (getenv("TINY_WORK")) program.work = getenv("TINY_WORK");
    return rt_main(argc, argv, &program);
}
