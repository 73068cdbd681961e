/* How SIGINT, SIGTERM and SIGHUP end a training run.
 *
 * Note [Stopping]
 * Before training begins there is nothing to save, and the first signal ends the process. From then on the first signal
 * is a request to stop. Ranks receive signals at different times, or only one rank does; therefore all ranks check
 * together between two steps whether any rank has a request. A second signal ends the process, unless a launcher runs
 * it: a terminal sends Ctrl-C to the launcher and to every rank, and the launcher forwards it, so a rank may receive
 * one Ctrl-C twice. The launcher counts signals itself.
 *
 * A step that waits for a rank which hangs, or which is gone unnoticed, is never finished. So the first signal also
 * wakes a thread, which ends the process and the waits of the others (E0912) when the step under way takes longer than
 * three times the longest step so far, and than STOP_MS, or --stall-timeout if that is less. */
#include "program/main.h"

#include "base/thread/quiet.h"
#include "comm/comm_shared.h"
#include "comm/mpi_library.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define STOP_MS 30e3 /* least time to finish a step in */
#define LOOK_NS 100000000

static atomic_bool training, launched;
static atomic_int requests;
static sem_t requested;               /* posted by a signal */
static _Atomic double allowed, begun; /* ms: what is under way may take so long, and has begun then */

static void end_at_once(void) {
    rt_mpi_give_up(EXIT_INTERRUPTED);
    _exit(EXIT_INTERRUPTED);
}

static void on_signal(int number) {
    (void)number;
    if (!atomic_load(&training)) end_at_once();
    if (atomic_fetch_add(&requests, 1) > 0 && !atomic_load(&launched)) end_at_once();
    sem_post(&requested);
}

/* Signals that the parent process ignores stay ignored. */
static void catch_signal(int number) {
    const struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(number, &ours, NULL);
}

void stop_catch_signals(void) {
    atomic_store(&launched, getenv(RT_SHM_FD_VARIABLE) != NULL);
    sem_init(&requested, 0, 0);
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);
}

void stop_allow(const struct job *job, double ms) {
    const double stall = job->options.stall_timeout * 1e3, least = stall > 0 && stall < STOP_MS ? stall : STOP_MS;
    atomic_store(&allowed, ms > least ? ms : least);
    atomic_store(&begun, now_ms());
}

static void *watch(void *argument) {
    const struct job *job = argument;
    struct failure failure;
    while (sem_wait(&requested)) {
    }
    const double since = now_ms();
    double late;
    do {
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
        const double from = atomic_load(&begun);
        late = now_ms() - (from > since ? from : since) - atomic_load(&allowed);
    } while (late < 0);
    failure_set(&failure, EXIT_RANK, RT_CODE_STALL,
                "what was under way when a signal came was not finished within %.0f s: another rank hangs, or is gone",
                atomic_load(&allowed) / 1e3);
    failure_help(&failure, "the run can be resumed from its last checkpoint; a second signal ends it at once");
    end_job(job, &failure);
}

/* The thread takes no signals. A process has one, also for ranks that are threads; without it a second signal is
 * needed. */
void stop_after_steps(struct job *job) {
    pthread_t thread;
    stop_allow(job, 0);
    if (atomic_exchange(&training, true)) return;
    if (rt_thread_start_quiet(&thread, watch, job) == 0) pthread_detach(thread);
}

void stop_ends(void) {
    atomic_store(&allowed, 1e300);
}

bool stop_requested(void) {
    return atomic_load(&requests) > 0;
}
