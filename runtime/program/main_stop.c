/* How SIGINT and SIGTERM end a training run.
 *
 * Note [Stopping]
 * Before training begins there is nothing to save, and the first signal ends the process. From then on the first signal
 * is a request to stop. Ranks receive signals at different times, or only one rank does; therefore all ranks check
 * together between two steps whether any rank has a request. A second signal ends the process, unless a launcher runs
 * it: a terminal sends Ctrl-C to the launcher and to every rank, and the launcher forwards it, so a rank may receive
 * one Ctrl-C twice. The launcher counts signals itself. */
#include "program/main.h"

#include "comm/comm_shared.h"
#include "comm/mpi_library.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool training, launched;
static atomic_int requests;

static void end_at_once(void) {
    rt_mpi_give_up(EXIT_INTERRUPTED);
    _exit(EXIT_INTERRUPTED);
}

static void on_signal(int number) {
    (void)number;
    if (!atomic_load(&training)) end_at_once();
    if (atomic_fetch_add(&requests, 1) > 0 && !atomic_load(&launched)) end_at_once();
}

/* Signals that the parent process ignores stay ignored. */
static void catch_signal(int number) {
    const struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(number, &ours, NULL);
}

void stop_catch_signals(void) {
    atomic_store(&launched, getenv(RT_SHM_FD_VARIABLE) != NULL);
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
}

void stop_after_steps(void) {
    atomic_store(&training, true);
}

bool stop_requested(void) {
    return atomic_load(&requests) > 0;
}
