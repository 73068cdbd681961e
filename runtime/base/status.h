/* What functions of the runtime return. */
#ifndef RT_BASE_STATUS_H
#define RT_BASE_STATUS_H

enum rt_status {
    RT_OK = 0,
    RT_ERROR_USAGE,    /* a call that breaks the documented contract, e.g. a bad option */
    RT_ERROR_INPUT,    /* malformed or wrong-shaped data */
    RT_ERROR_SYSTEM,   /* file, memory or operating system */
    RT_ERROR_MISMATCH, /* file or rank of another program, model or world size */
    RT_ERROR_PEER,     /* another rank failed, or the job was aborted */
    RT_ERROR_DEVICE,   /* no GPU, or a failure of its driver or of a library */
    RT_ERROR_BUSY,     /* another job holds a resource that one job at a time may use */
};

/* Returns the callee's status from the calling function unless it is RT_OK. */
#define RT_TRY(call)                                                                                                   \
    do {                                                                                                               \
        int rt_try_status = (call);                                                                                    \
        if (rt_try_status) return rt_try_status;                                                                       \
    } while (0)

#endif
