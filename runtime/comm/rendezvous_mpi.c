/* One broadcast with the MPI whose launcher started this process. The MPI library is chosen by the launcher's
 * environment variables: a program linked with another MPI than the launcher's would see a world of one rank. The
 * functions have the same signatures in all MPIs, but handles differ: pointers to objects in Open MPI, integers in
 * MPICH and the MPIs that share its ABI. */
#define _GNU_SOURCE 1

#include "comm/rendezvous_private.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const struct mpi {
    const char *variable; /* set by its launcher */
    const char *library[2];
    const char *world, *byte; /* symbols whose addresses are the handles; NULL: handles are integers */
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

/* Handles are passed as pointer-sized words; in registers, an int handle is the lower half. */
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
    snprintf(why, room, "this rank was not started by an MPI launcher");
    if (!mpi) return RT_ERROR_SYSTEM;
    for (int i = 0; i < 2 && mpi->library[i] && !library; i++) {
        library = dlopen(mpi->library[i], RTLD_NOW | RTLD_GLOBAL); /* its plug-ins need its symbols */
        if (!library) snprintf(why, room, "%s", dlerror());
    }
    if (!library) return RT_ERROR_SYSTEM;
    snprintf(why, room, "%s is not the MPI library of the launcher", mpi->library[0]);
    if (!find_calls(mpi, library, &calls) || calls.init(NULL, NULL)) return RT_ERROR_SYSTEM;
    const int status = calls.broadcast(data, bytes, calls.byte, 0, calls.world);
    calls.finalize();
    snprintf(why, room, "MPI_Bcast returned %d", status);
    return status ? RT_ERROR_SYSTEM : RT_OK; /* the library stays loaded: it has registered exit handlers */
}
