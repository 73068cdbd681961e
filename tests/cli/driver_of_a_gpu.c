/* A driver, libcuda.so.1, of a machine with two H200, as far as rankc asks one (frontend/cli/doctor/gpu_driver.c). */
#include <stddef.h>
#include <stdio.h>

int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}
int cuDeviceGetCount(int *count) {
    *count = 2;
    return 0;
}
int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    snprintf(name, (size_t)length, "NVIDIA H200");
    return 0;
}
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = 150754820096;
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    enum { MAJOR = 75, MINOR = 76 };
    (void)device;
    *value = attribute == MAJOR ? 9 : 0;
    return attribute == MAJOR || attribute == MINOR ? 0 : 1;
}
