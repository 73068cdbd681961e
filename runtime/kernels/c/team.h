/* The threads of kernels. A source that includes this may use OpenMP: gcc's code for its directives calls the functions
 * below in place of libgomp's, whose threads spin for milliseconds wherever they wait (base/thread/wait.h). With
 * another compiler directives use that compiler's library.
 *
 * Note [Teams]
 * A parallel region is a function that is executed once per share of the work; gcc derives a share's part from its
 * number and from their count. Shares are handed out: each thread of the caller's team has a lane of neighbouring
 * shares, which it takes from the front, and then takes the last ones of other lanes until none is left. The caller
 * itself begins at once. A thread that has not come by then has nothing left to do, and is not waited for.
 *
 * With num_threads(rt_pieces(n)), for a loop of n iterations, there are several shares for each thread, so that one
 * that is suspended or slower does less of the work; a thread still has about the same part of neighbouring operators.
 * Such a region cannot have barriers. Others have as many shares as threads, at most as many as the process has cores,
 * so that all run at the same time. */
#ifndef RT_KERNELS_C_TEAM_H
#define RT_KERNELS_C_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(__clang__)
#define RT_HAS_TEAMS 1

/* For num_threads: Note [Teams]. */
enum { RT_TEAM_PIECES = 1 << 20 };
static inline unsigned rt_pieces(int64_t n) {
    return RT_TEAM_PIECES | (unsigned)(n < RT_TEAM_PIECES ? n : RT_TEAM_PIECES - 1);
}

/* GOMP_parallel: executes run(data) for each share. shares: 0 for as many as rt_team_set_threads says, or rt_pieces;
 * inside of a region there is one. The team's threads are started by the first call with more than one, and end with
 * the calling thread, or when the library that contains this is unloaded. */
void rt_team_parallel(void (*run)(void *data), void *data, unsigned shares, unsigned flags);
void rt_team_barrier(void);
/* GOMP_loop_dynamic_start and _next: a loop whose iterations are handed out in pieces of `chunk`. A region has at most
 * one such loop. */
bool rt_team_loop_start(long start, long end, long step, long chunk, long *from, long *to);
bool rt_team_loop_next(long *from, long *to);
void rt_team_loop_end(void);
bool rt_team_single(void); /* GOMP_single_start */
/* What a region cannot have here: writes a message and aborts. */
void rt_team_refuse(void);

int rt_team_share(void);       /* omp_get_thread_num */
int rt_team_shares(void);      /* omp_get_num_threads */
int rt_team_max_threads(void); /* omp_get_max_threads: of the calling thread; the cores if it was not set */
void rt_team_set_threads(int threads);

/* An assembler's names: the compiler has no way to rename what it calls itself. */
__asm__(
    "GOMP_parallel = rt_team_parallel\n"
    "GOMP_barrier = rt_team_barrier\n"
    ".irp loop, dynamic, nonmonotonic_dynamic, guided, nonmonotonic_guided\n"
    "GOMP_loop_\\loop\\()_start = rt_team_loop_start\n"
    "GOMP_loop_\\loop\\()_next = rt_team_loop_next\n"
    ".endr\n"
    "GOMP_loop_end_nowait = rt_team_loop_end\n"
    "GOMP_loop_end = rt_team_barrier\n"
    "GOMP_single_start = rt_team_single\n"
    ".irp name, single_copy_start, sections_start, sections2_start, parallel_sections, task, taskloop, taskloop_ull\n"
    "GOMP_\\name = rt_team_refuse\n"
    ".endr\n"
    ".irp loop, static, runtime, nonmonotonic_runtime, maybe_nonmonotonic_runtime\n"
    "GOMP_loop_\\loop\\()_start = rt_team_refuse\n"
    "GOMP_loop_ordered_\\loop\\()_start = rt_team_refuse\n"
    "GOMP_loop_ull_\\loop\\()_start = rt_team_refuse\n"
    ".endr\n"
    ".irp loop, dynamic, nonmonotonic_dynamic, guided, nonmonotonic_guided\n"
    "GOMP_loop_ordered_\\loop\\()_start = rt_team_refuse\n"
    "GOMP_loop_ull_\\loop\\()_start = rt_team_refuse\n"
    ".endr\n"
    "omp_get_thread_num = rt_team_share\n"
    "omp_get_num_threads = rt_team_shares\n"
    "omp_get_max_threads = rt_team_max_threads\n");
#else
#ifdef _OPENMP
#include <omp.h>
#endif
#define rt_pieces(n) omp_get_max_threads()
#endif

#endif
