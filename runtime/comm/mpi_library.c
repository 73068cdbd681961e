#include "comm/mpi_library.h"

#include "comm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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
    struct constant world, none, byte, errors_return;
    uintptr_t status_ignore;
    int any_source;
    bool integers;
} open_mpi = {{"ompi_mpi_comm_world", 0},
              {"ompi_mpi_comm_null", 0},
              {"ompi_mpi_byte", 0},
              {"ompi_mpi_errors_return", 0},
              0,
              -1,
              false},
  mpich = {{NULL, 0x44000000}, {NULL, 0x04000000}, {NULL, 0x4c00010d}, {NULL, 0x54000001}, 1, -2, true};

enum { SINGLE, FUNNELED, SERIALIZED }; /* MPI_THREAD_.. */

/* MPI is one per process, and so is this. */
static struct {
    pthread_mutex_t lock;
    int uses;
    bool failed; /* one of the uses */
    int (*finalize)(void), (*finalized)(int *);
    atomic_bool ended; /* MPI is finalised, or about to be */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

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

/* The library's functions and constants. */
static int read_library(struct rt_mpi *mpi, void *library, char *why, size_t room) {
    const struct abi *abi = dlsym(library, open_mpi.world.symbol) ? &open_mpi : &mpich;
    mpi->world = find_constant(library, abi->world);
    mpi->none = find_constant(library, abi->none);
    mpi->byte = find_constant(library, abi->byte);
    mpi->errors_return = find_constant(library, abi->errors_return);
    mpi->status_ignore = (void *)abi->status_ignore;
    mpi->any_source = abi->any_source;
    mpi->integers = abi->integers;
    snprintf(why, room, "the MPI library lacks functions of MPI 3");
    return find_functions(mpi, library) && mpi->byte && mpi->errors_return ? RT_OK : RT_ERROR_SYSTEM;
}

static void finalize_at_exit(void) {
    int finalized = 0;
    atomic_store(&process.ended, true);
    if (process.uses == 0 && !process.failed && !process.finalized(&finalized) && !finalized) process.finalize();
}

static int initialise(const struct rt_mpi *mpi, char *why, size_t room) {
    int initialised = 0, finalized = 0, provided;
    snprintf(why, room, "MPI was finalised in this process");
    if (mpi->Initialized(&initialised) || mpi->Finalized(&finalized) || finalized) return RT_ERROR_SYSTEM;
    snprintf(why, room, "MPI_Init_thread failed");
    if (initialised) return RT_OK;
    if (mpi->Init_thread(NULL, NULL, FUNNELED, &provided)) return RT_ERROR_SYSTEM;
    process.finalize = mpi->Finalize;
    process.finalized = mpi->Finalized;
    return atexit(finalize_at_exit) ? RT_ERROR_SYSTEM : RT_OK;
}

static int begin_use(int status, char *why) {
    if (status) return status;
    why[0] = 0;
    process.uses++;
    return RT_OK;
}

/* How an error calls a rank's use, which differs from the `other`. */
static const char *name_use(unsigned use, unsigned other) {
    static const char *const names[] = {"with --comm mpi", "without --comm mpi", "to compile", "with --help"};
    return use > RT_MPI_HELPS ? "?" : other == RT_MPI_HELPS ? "without --help" : names[use];
}

/* All ranks gather the same, so all find the same error. */
static int compare_uses(const struct rt_mpi *mpi, enum rt_mpi_use use, char *why, size_t room) {
    const unsigned char mine = (unsigned char)use;
    int size = 0, rank = 1;
    snprintf(why, room, "MPI_Comm_size failed");
    if (mpi->Comm_size(mpi->world, &size)) return RT_ERROR_SYSTEM;
    unsigned char *uses = malloc((size_t)size);
    snprintf(why, room, uses ? "MPI_Allgather failed" : "out of memory");
    const bool gathered = uses && !mpi->Allgather(&mine, 1, mpi->byte, uses, 1, mpi->byte, mpi->world);
    while (gathered && rank < size && uses[rank] == uses[0]) rank++;
    const int status = !gathered ? RT_ERROR_SYSTEM : rank < size ? RT_ERROR_MISMATCH : RT_OK;
    if (status == RT_ERROR_MISMATCH)
        snprintf(why, room, "rank %d was started %s, but rank 0 %s: it must be the same on all ranks", rank,
                 name_use(uses[rank], uses[0]), name_use(uses[0], uses[rank]));
    free(uses);
    return status;
}

int rt_mpi_open(struct rt_mpi *mpi, enum rt_mpi_use use, char *why, size_t room) {
    void *library = load_library(why, room);
    if (!library) return RT_ERROR_SYSTEM;
    int status = read_library(mpi, library, why, room);
    if (status) return status;
    pthread_mutex_lock(&process.lock);
    status = initialise(mpi, why, room);
    if (!status) status = compare_uses(mpi, use, why, room);
    status = begin_use(status, why);
    pthread_mutex_unlock(&process.lock);
    return status;
}

/* A command of MPICH's process management interface (PMI-1), on a socket that its launcher, and no other, passes on
 * together with MPI_LOCALNRANKS. */
void rt_mpi_give_up(int exit) {
    const char *text = getenv("PMI_FD");
    struct stat about;
    char line[] = "cmd=abort exitcode=000\n";
    const int fd = text && getenv("MPI_LOCALNRANKS") ? atoi(text) : -1;
    if (fd < 0 || atomic_load(&process.ended) || fstat(fd, &about) || !S_ISSOCK(about.st_mode)) return;
    for (size_t i = sizeof line - 3; i > sizeof line - 6; i--, exit /= 10) line[i] = (char)('0' + exit % 10);
    if (write(fd, line, sizeof line - 1) < 0) return; /* its launcher is gone, and with it the job */
}

bool rt_mpi_initialised(void) {
    return process.finalize != NULL;
}

void rt_mpi_close(bool failed) {
    pthread_mutex_lock(&process.lock);
    process.uses--;
    process.failed = process.failed || failed;
    pthread_mutex_unlock(&process.lock);
}

/* The library in this process whose MPI is initialised; NULL: none. */
static void *find_initialised(void) {
    static const char *const names[] = {NULL, "libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
        int (*initialized)(int *) = NULL, yes = 0;
        if (library) initialized = (int (*)(int *))dlsym(library, "MPI_Initialized");
        if (initialized && !initialized(&yes) && yes) return library;
    }
    return NULL;
}

/* May this thread call MPI, and with this communicator? */
static int check_caller(struct rt_mpi *mpi, rt_mpi_handle comm, char *why, size_t room) {
    int finalized = 0, level = 0, main_thread = 0, inter = 0;
    snprintf(why, room, "MPI was finalised in this process");
    if (mpi->Finalized(&finalized) || finalized) return RT_ERROR_USAGE;
    snprintf(why, room, "the communicator is MPI_COMM_NULL");
    if (comm == mpi->none) return RT_ERROR_USAGE;
    snprintf(why, room, "the communicator is an intercommunicator: merge it with MPI_Intercomm_merge");
    if (mpi->Comm_test_inter(comm, &inter) || inter) return RT_ERROR_USAGE;
    snprintf(why, room, "MPI_Query_thread failed");
    if (mpi->Query_thread(&level) || mpi->Is_thread_main(&main_thread)) return RT_ERROR_SYSTEM;
    snprintf(why, room,
             "MPI was initialised with %s, so only the thread that initialised it may call MPI: open the model there, "
             "or initialise MPI with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE",
             level == SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED");
    if (level < SERIALIZED && !main_thread) return RT_ERROR_USAGE;
    mpi->single = level == SINGLE;
    return RT_OK;
}

int rt_mpi_adopt(struct rt_mpi *mpi, const void *comm, rt_mpi_handle *handle, char *why, size_t room) {
    void *library = find_initialised();
    snprintf(why, room, "no MPI library of this process is initialised: call MPI_Init_thread first");
    if (!library) return RT_ERROR_USAGE;
    int status = read_library(mpi, library, why, room);
    if (status) return status;
    *handle = mpi->integers ? (rt_mpi_handle) * (const unsigned *)comm : *(const rt_mpi_handle *)comm;
    status = check_caller(mpi, *handle, why, room);
    pthread_mutex_lock(&process.lock);
    status = begin_use(status, why);
    pthread_mutex_unlock(&process.lock);
    return status;
}
