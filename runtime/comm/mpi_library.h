/* The MPI library of the launcher that started this process, loaded at run time: nothing of MPI is needed to compile.
 *
 * Open MPI and MPICH have the same functions, but other handles and constants: handles are pointers to objects of the
 * library in Open MPI, and integers in MPICH and the libraries that share its ABI. Here a handle is a word of pointer
 * size; an integer handle is its lower half. */
#ifndef RT_MPI_LIBRARY_H
#define RT_MPI_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RT_MPI_VARIABLE "RANKC_MPI" /* environment variable: path of the library, instead of the launcher's */

/* What MPI functions return and take is as in the MPI standard; `handle` stands for its handles. */
typedef uintptr_t rt_mpi_handle;
#define RT_MPI_FUNCTIONS(F)                                                                                            \
    F(Init_thread, (int *, char ***, int, int *))                                                                      \
    F(Initialized, (int *))                                                                                            \
    F(Finalized, (int *))                                                                                              \
    F(Finalize, (void))                                                                                                \
    F(Query_thread, (int *))                                                                                           \
    F(Is_thread_main, (int *))                                                                                         \
    F(Comm_test_inter, (rt_mpi_handle, int *))                                                                         \
    F(Comm_dup, (rt_mpi_handle, rt_mpi_handle *))                                                                      \
    F(Comm_rank, (rt_mpi_handle, int *))                                                                               \
    F(Comm_size, (rt_mpi_handle, int *))                                                                               \
    F(Comm_set_errhandler, (rt_mpi_handle, rt_mpi_handle))                                                             \
    F(Bcast, (void *, int, rt_mpi_handle, int, rt_mpi_handle))                                                         \
    F(Allgather, (const void *, int, rt_mpi_handle, void *, int, rt_mpi_handle, rt_mpi_handle))                        \
    F(Isend, (const void *, int, rt_mpi_handle, int, int, rt_mpi_handle, rt_mpi_handle *))                             \
    F(Irecv, (void *, int, rt_mpi_handle, int, int, rt_mpi_handle, rt_mpi_handle *))                                   \
    F(Test, (rt_mpi_handle *, int *, void *))                                                                          \
    F(Wait, (rt_mpi_handle *, void *))                                                                                 \
    F(Cancel, (rt_mpi_handle *))                                                                                       \
    F(Request_free, (rt_mpi_handle *))                                                                                 \
    F(Type_contiguous, (int, rt_mpi_handle, rt_mpi_handle *))                                                          \
    F(Type_commit, (rt_mpi_handle *))                                                                                  \
    F(Type_free, (rt_mpi_handle *))                                                                                    \
    F(Comm_free, (rt_mpi_handle *))                                                                                    \
    F(Error_string, (int, char *, int *))

struct rt_mpi {
#define F(name, arguments) int(*name) arguments;
    RT_MPI_FUNCTIONS(F)
#undef F
    rt_mpi_handle world, none, byte, errors_return; /* none: MPI_COMM_NULL */
    void *status_ignore;
    int any_source;
    bool integers; /* handles are integers */
    bool single;   /* the caller promised MPI that this process has one thread */
};

/* What a process opens MPI for. All ranks of a launcher must do the same, or they would wait for each other without
 * end. */
enum rt_mpi_use {
    RT_MPI_CONNECTS, /* --comm mpi */
    RT_MPI_MEETS,    /* the broadcast of a rendezvous */
    RT_MPI_SENDS,    /* rankc compile --broadcast */
    RT_MPI_HELPS     /* --help of a program */
};

/* Loads the library of the launcher and calls MPI_Init_thread unless the program has. RT_OK, or RT_ERROR_SYSTEM and
 * `why`; RT_ERROR_MISMATCH: ranks open MPI for different uses. The library stays loaded: it has registered exit
 * handlers. Collective over the launcher's ranks. */
int rt_mpi_open(struct rt_mpi *mpi, enum rt_mpi_use use, char *why, size_t room);

/* Finds the library that the caller has initialised, and the handle in the caller's variable `comm`, an MPI_Comm.
 * RT_ERROR_USAGE: MPI is not initialised or was finalised, the communicator is MPI_COMM_NULL or an intercommunicator,
 * or this thread may not call MPI. */
int rt_mpi_adopt(struct rt_mpi *mpi, const void *comm, rt_mpi_handle *handle, char *why, size_t room);

/* Ends a use that rt_mpi_open or rt_mpi_adopt began. MPI that rt_mpi_open initialised is finalised when the process
 * exits, since it cannot be initialised again; not after a failure: MPI's launcher then ends the other ranks. */
void rt_mpi_close(bool failed);

/* True if the launcher of an MPI started this process. */
bool rt_mpi_launched(void);

/* Asks the launcher to end the other ranks, with this exit code. To be called before this process exits with it, while
 * others may wait for it in MPI_Init: MPICH's launcher does not notice the end of a process that has not returned from
 * MPI_Init; other launchers notice the exit code. May be called by a signal handler. */
void rt_mpi_give_up(int exit);

/* True if this process has called MPI_Init_thread, which has returned. */
bool rt_mpi_initialised(void);

#endif
