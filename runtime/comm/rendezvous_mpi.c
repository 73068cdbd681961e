/* One broadcast by the MPI whose launcher started this process. The library is found by the launcher's variables, as a
 * program of one MPI under the launcher of another is a world of one. What is called has the same form in all MPIs;
 * what handles are differs: addresses of objects in Open MPI, numbers in MPICH and all that share its ABI. */
#define _GNU_SOURCE 1

#include "comm/rendezvous_private.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const struct mpi {
    const char *variable; /* of its launcher */
    const char *library[2];
    const char *world, *byte; /* objects that are handles; NULL: numbers are */
    uintptr_t world_number, byte_number;
} mpis[] = {
    {"OMPI_COMM_WORLD_RANK", {"libmpi.so.40"}, "ompi_mpi_comm_world", "ompi_mpi_byte", 0, 0},
    {"PMI_RANK", {"libmpi.so.12", "libmpich.so.12"}, NULL, NULL, 0x44000000, 0x4c00010d},
};

static const struct mpi *find_mpi(void) {
    for (size_t i = 0; i < sizeof mpis / sizeof *mpis; i++)
        if (getenv(mpis[i].variable)) return &mpis[i];
    return NULL;
}

bool rt_mpi_launched(void) {
    return find_mpi() != NULL;
}

/* Handles are passed as words: in registers, a number is the word's lower half. */
struct calls {
    int (*init)(int *argc, char ***argv);
    int (*broadcast)(void *data, int count, uintptr_t type, int root, uintptr_t comm);
    int (*finalize)(void);
    uintptr_t world, byte;
};

static bool find_calls(const struct mpi *mpi, void *library, struct calls *calls) {
    *calls = (struct calls){
        .init = (int (*)(int *, char ***))dlsym(library, "MPI_Init"),
        .broadcast = (int (*)(void *, int, uintptr_t, int, uintptr_t))dlsym(library, "MPI_Bcast"),
        .finalize = (int (*)(void))dlsym(library, "MPI_Finalize"),
        .world = mpi->world ? (uintptr_t)dlsym(library, mpi->world) : mpi->world_number,
        .byte = mpi->byte ? (uintptr_t)dlsym(library, mpi->byte) : mpi->byte_number,
    };
    return calls->init && calls->broadcast && calls->finalize && calls->world && calls->byte;
}

int rt_mpi_broadcast(void *data, int bytes, char *why, size_t room) {
    const struct mpi *mpi = find_mpi();
    struct calls calls;
    void *library = NULL;
    snprintf(why, room, "no launcher of an MPI started this rank");
    if (!mpi) return RT_ERROR_SYSTEM;
    for (int i = 0; i < 2 && mpi->library[i] && !library; i++) {
        library = dlopen(mpi->library[i], RTLD_NOW | RTLD_GLOBAL); /* its plug-ins look for its symbols */
        if (!library) snprintf(why, room, "%s", dlerror());
    }
    if (!library) return RT_ERROR_SYSTEM;
    snprintf(why, room, "%s is not the MPI that its launcher belongs to", mpi->library[0]);
    if (!find_calls(mpi, library, &calls) || calls.init(NULL, NULL)) return RT_ERROR_SYSTEM;
    const int status = calls.broadcast(data, bytes, calls.byte, 0, calls.world);
    calls.finalize();
    snprintf(why, room, "MPI_Bcast returned %d", status);
    return status ? RT_ERROR_SYSTEM : RT_OK; /* the library stays: it has handlers of its own at the process' end */
}
