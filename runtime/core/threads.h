/* A job whose ranks are threads of the process. */
#ifndef RT_CORE_THREADS_H
#define RT_CORE_THREADS_H

#include "core/private.h"

/* Calls run(comm, context) for each of `world` ranks on a thread of its own, where `comm` joins the ranks through
 * memory of the process, and returns when all have returned. 0, or an errno (ENOMEM, EAGAIN) if not all ranks could
 * be started; those that were have then been aborted. */
int rt_spawn_ranks(const struct rt_program *program, int world, void (*run)(struct rt_comm *comm, void *context),
                   void *context);

#endif
