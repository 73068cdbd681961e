#include "frontend/cli/doctor/gpu_driver.h"

#include <dlfcn.h>

/* The driver's functions are looked up by name; they return 0, or an error. */
typedef int ask_attribute(int *, int, int);

static int attribute_of(void *driver, int attribute) {
    ask_attribute *ask = (ask_attribute *)dlsym(driver, "cuDeviceGetAttribute");
    int value = 0;
    return !ask || ask(&value, attribute, 0) ? 0 : value;
}

static double memory_of(void *driver) {
    int (*ask)(size_t *, int) = (int (*)(size_t *, int))dlsym(driver, "cuDeviceTotalMem_v2");
    size_t bytes = 0;
    return !ask || ask(&bytes, 0) ? 0 : (double)bytes;
}

static enum gpu_found ask(void *driver, struct gpu *gpu, struct arena *arena) {
    enum { MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_.. */
    int (*start)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*count_of)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    int (*name_of)(char *, int, int) = (int (*)(char *, int, int))dlsym(driver, "cuDeviceGetName");
    int (*get_version)(int *) = (int (*)(int *))dlsym(driver, "cuDriverGetVersion");
    char name[128] = "";
    int count = 0, version = 0;
    if (!start || !count_of || !name_of || !get_version || start(0) || count_of(&count) || count < 1 ||
        name_of(name, sizeof name, 0) || get_version(&version))
        return GPU_NONE;
    *gpu = (struct gpu){.count = count,
                        .name = arena_strdup(arena, name),
                        .memory = memory_of(driver),
                        .multiprocessors = attribute_of(driver, MULTIPROCESSORS),
                        .major = attribute_of(driver, MAJOR),
                        .minor = attribute_of(driver, MINOR),
                        .version = version};
    return GPU_FOUND;
}

enum gpu_found gpu_driver_ask(struct gpu *gpu, struct arena *arena) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver) return GPU_NO_DRIVER;
    const enum gpu_found found = ask(driver, gpu, arena);
    dlclose(driver);
    return found;
}
