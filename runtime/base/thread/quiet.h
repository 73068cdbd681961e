/* Threads that take no signals. */
#ifndef RT_BASE_QUIET_H
#define RT_BASE_QUIET_H

#include <pthread.h>
#include <signal.h>

/* pthread_create of a thread that blocks all signals, so that the others of the process receive them. */
static inline int rt_thread_start_quiet(pthread_t *thread, void *(*run)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
