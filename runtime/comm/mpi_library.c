#define _GNU_SOURCE 1

#include "comm/mpi_library.h"

#include "comm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Libraries by the environment variable that their launcher sets, in order of preference. A program linked with another
 * MPI than the launcher's would see a world of one rank. */
static const struct {
    const char *variable, *library[2];
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", {"libmpi.so.40", "libmpi.so"}},
    {"PMI_RANK", {"libmpi.so.12", "libmpich.so.12"}},
    {"PMIX_RANK", {"libmpi.so.40", "libmpi.so"}},
};

/* Constants of an ABI. A name: the symbol whose address is the handle; NULL: the number is the handle. */
struct constant {
    const char *symbol;
    uintptr_t number;
};
static const struct abi {
    struct constant world, byte, errors_return;
    uintptr_t status_ignore;
    int any_source;
} open_mpi = {{"ompi_mpi_comm_world", 0}, {"ompi_mpi_byte", 0}, {"ompi_mpi_errors_return", 0}, 0, -1},
  mpich = {{NULL, 0x44000000}, {NULL, 0x4c00010d}, {NULL, 0x54000001}, 1, -2};

static const char *const *libraries_of_launcher(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i].variable)) return launchers[i].library;
    return NULL;
}

bool rt_mpi_launched(void) {
    return libraries_of_launcher() != NULL;
}

/* RTLD_GLOBAL: its plug-ins need its symbols. */
static void *load(const char *name, char *why, size_t room) {
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!library) snprintf(why, room, "%s", dlerror());
    return library;
}

static void *load_library(char *why, size_t room) {
    const char *const *names = libraries_of_launcher(), *given = getenv(RT_MPI_VARIABLE);
    void *library = NULL;
    if (given) return load(given, why, room);
    snprintf(why, room, "this rank was not started by an MPI launcher");
    for (int i = 0; names && i < 2 && !library; i++) library = load(names[i], why, room);
    return library;
}

static rt_mpi_handle find_constant(void *library, struct constant constant) {
    return constant.symbol ? (rt_mpi_handle)dlsym(library, constant.symbol) : constant.number;
}

static bool find_functions(struct rt_mpi *mpi, void *library) {
    bool found = true;
#define F(name, arguments)                                                                                             \
    mpi->name = (int(*) arguments)dlsym(library, "MPI_" #name);                                                        \
    found = found && mpi->name;
    RT_MPI_FUNCTIONS(F)
#undef F
    return found;
}

int rt_mpi_open(struct rt_mpi *mpi, char *why, size_t room) {
    enum { FUNNELED = 1 };
    void *library = load_library(why, room);
    int initialised = 0, provided;
    if (!library) return RT_ERROR_SYSTEM;
    const struct abi *abi = dlsym(library, open_mpi.world.symbol) ? &open_mpi : &mpich;
    mpi->world = find_constant(library, abi->world);
    mpi->byte = find_constant(library, abi->byte);
    mpi->errors_return = find_constant(library, abi->errors_return);
    mpi->status_ignore = (void *)abi->status_ignore;
    mpi->any_source = abi->any_source;
    snprintf(why, room, "the launcher's MPI library lacks functions of MPI 3");
    if (!find_functions(mpi, library) || !mpi->byte || !mpi->errors_return) return RT_ERROR_SYSTEM;
    snprintf(why, room, "MPI_Init_thread failed");
    if (mpi->Initialized(&initialised) || (!initialised && mpi->Init_thread(NULL, NULL, FUNNELED, &provided)))
        return RT_ERROR_SYSTEM;
    why[0] = 0;
    return RT_OK;
}
