/* The broadcast of a rendezvous with the MPI whose launcher started this process. */
#include "comm/rendezvous_private.h"

#include "comm/mpi_library.h"

#include <stdio.h>

int rt_mpi_broadcast(void *data, int bytes, char *why, size_t room) {
    struct rt_mpi mpi;
    const int opened = rt_mpi_open(&mpi, RT_MPI_MEETS, why, room);
    if (opened) return opened;
    const int status = mpi.Bcast(data, bytes, mpi.byte, 0, mpi.world);
    rt_mpi_close(status != 0);
    snprintf(why, room, "MPI_Bcast returned %d", status);
    return status ? RT_ERROR_SYSTEM : RT_OK;
}
