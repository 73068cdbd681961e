/* Stands in for the driver, libcuda.so.1, where there is none: without it cuDNN builds no plan, though what a GPU is
 * like can be told to it. There is no device; kernels are taken, and thrown away. Functions are looked up by name: they
 * need no parameters that they do not use. */
enum { SUCCESS = 0, NO_DEVICE = 100, A_DRIVER = 13000 };

static int thing; /* what handles point to */

/* Of devices, and what is done on one. */
#define REFUSED(name)                                                                                                  \
    int name(void) {                                                                                                   \
        return NO_DEVICE;                                                                                              \
    }
/* clang-format off */
#define EACH_REFUSED(F) \
    F(cuInit) F(cuDeviceGet) F(cuDeviceGetCount) \
    F(cuDeviceGetAttribute) F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxReset) \
    F(cuCtxGetCurrent) F(cuCtxGetDevice) F(cuCtxGetLimit) \
    F(cuCtxPushCurrent) F(cuCtxPopCurrent) F(cuStreamGetCtx) \
    F(cuStreamSynchronize) F(cuLaunchKernel) F(cuLaunchKernelEx) \
    F(cuLaunchCooperativeKernel) F(cuMemcpyDtoH_v2) F(cuTensorMapEncodeTiled) \
    F(cuLibraryLoadFromFile) F(cuLinkCreate) F(cuLinkCreate_v2) \
    F(cuLinkAddData) F(cuLinkAddData_v2) F(cuLinkAddFile_v2) \
    F(cuLinkComplete) F(cuModuleGetGlobal_v2) F(cuModuleLoadDataEx) \
    F(cuModuleLoadFatBinary) F(cuGetErrorName) F(cuGetErrorString) \
    F(cuOccupancyMaxPotentialClusterSize)
/* clang-format on */
EACH_REFUSED(REFUSED)

/* Of kernels, about which no more is asked. */
#define GRANTED(name)                                                                                                  \
    int name(void) {                                                                                                   \
        return SUCCESS;                                                                                                \
    }
#define EACH_GRANTED(F)                                                                                                \
    F(cuLibraryUnload)                                                                                                 \
    F(cuModuleUnload) F(cuLinkDestroy) F(cuKernelSetAttribute) F(cuFuncSetAttribute) F(cuDevicePrimaryCtxRelease)
EACH_GRANTED(GRANTED)

#define MADE(name)                                                                                                     \
    int name(void **out) {                                                                                             \
        *out = &thing;                                                                                                 \
        return SUCCESS;                                                                                                \
    }
#define EACH_MADE(F) F(cuLibraryLoadData) F(cuLibraryGetKernel) F(cuModuleLoadData) F(cuModuleGetFunction)
EACH_MADE(MADE)

#define NUMBERED(name, value)                                                                                          \
    int name(int *out) {                                                                                               \
        *out = value;                                                                                                  \
        return SUCCESS;                                                                                                \
    }
NUMBERED(cuDriverGetVersion, A_DRIVER)
NUMBERED(cuKernelGetAttribute, 0)
NUMBERED(cuFuncGetAttribute, 0)
NUMBERED(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)
