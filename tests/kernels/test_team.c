/* The threads of kernels: what OpenMP's directives mean with them, and what waiting for each other costs. */
#define _GNU_SOURCE 1

#include "kernel_test.h"

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, ITEMS = 1000 };

#ifdef RT_HAS_TEAMS
enum { HAS_TEAMS = 1 };
#else
enum { HAS_TEAMS = 0 }; /* the compiler's own library has the threads */
#endif

TEST(every_item_is_done_once) {
    for (int threads = 1; threads <= THREADS; threads++)
        for (int n = 0; n <= ITEMS; n = n * 3 + 1) {
            int fixed[ITEMS] = {0}, handed[ITEMS] = {0}, pieces[ITEMS] = {0}, most = -1;
            rt_kernels_threads(threads);
#pragma omp parallel for schedule(static) reduction(max : most)
            for (int i = 0; i < n; i++) fixed[i]++, most = i > most ? i : most;
#pragma omp parallel for schedule(dynamic, 3) num_threads(threads)
            for (int i = n - 1; i >= 0; i--) handed[i]++;
#pragma omp parallel for num_threads(rt_pieces(n))
            for (int i = 0; i < n; i++) pieces[i]++;
            assert_int_equal(most, n - 1);
            for (int i = 0; i < ITEMS; i++) {
                assert_int_equal(fixed[i], i < n);
                assert_int_equal(handed[i], i < n);
                assert_int_equal(pieces[i], i < n);
            }
        }
}

/* A thread that comes late, or is suspended, keeps the piece that it has begun; the others do the rest. */
TEST(a_slow_thread_does_less) {
    enum { PIECES = 16 };
    const pthread_t caller = pthread_self();
    int slow = 0;
    if (!HAS_TEAMS) skip();
    rt_kernels_threads(2);
#pragma omp parallel for num_threads(rt_pieces(PIECES)) reduction(+ : slow)
    for (int i = 0; i < PIECES; i++) {
        if (pthread_equal(pthread_self(), caller)) continue;
        usleep(200000);
        slow++;
    }
    if (slow > 4) fail_msg("the slow thread did %d of %d pieces", slow, PIECES);
}

/* Each thread reads what its neighbour wrote before the barrier. */
TEST(threads_meet_at_barriers) {
    int value[THREADS] = {0}, wrong = 0;
    rt_kernels_threads(THREADS);
#pragma omp parallel reduction(+ : wrong)
    for (int round = 1; round <= 2000; round++) {
        const int own = omp_get_thread_num(), next = (own + 1) % omp_get_num_threads();
        value[own] = round;
#pragma omp barrier
        wrong += value[next] != round;
#pragma omp barrier
    }
    assert_int_equal(wrong, 0);
}

TEST(a_region_inside_of_a_region_has_one_thread) {
    int inner = 0, outer = 0, singles = 0;
    rt_kernels_threads(2);
#pragma omp parallel reduction(+ : inner, outer, singles)
    {
        outer++;
#pragma omp parallel reduction(+ : inner)
        inner += omp_get_num_threads();
#pragma omp single
        singles++;
    }
    assert_int_equal(inner, outer);
    assert_int_equal(singles, 1);
}

static int count_shares(int threads) {
    int shares = 0;
    rt_kernels_threads(threads);
#pragma omp parallel reduction(+ : shares)
    shares++;
    return shares;
}

/* The child has none of its parent's threads. */
TEST(the_child_of_a_fork_computes) {
    if (!HAS_TEAMS) skip();
    const int shares = count_shares(2);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(count_shares(2) == shares ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A construct that the threads do not have is not executed as something else. */
TEST(sections_are_refused) {
    if (!HAS_TEAMS) skip();
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        fclose(stderr);
#pragma omp parallel sections
        {
#pragma omp section
            count_shares(1);
#pragma omp section
            count_shares(1);
        }
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Pieces are more than threads: the last would wait for ever. */
TEST(barriers_of_pieces_are_refused) {
    if (!HAS_TEAMS) skip();
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        fclose(stderr);
        rt_kernels_threads(2);
#pragma omp parallel num_threads(rt_pieces(ITEMS))
        {
#pragma omp barrier
        } _exit(sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 0 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) skip(); /* one core, one thread */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static int count_tasks(void) {
    int tasks = 0;
    DIR *directory = opendir("/proc/self/task");
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory));) tasks += entry->d_name[0] != '.';
    closedir(directory);
    return tasks;
}

static void *use_a_team(void *unused) {
    count_shares(THREADS);
    return NULL;
}

TEST(a_team_ends_with_its_thread) {
    if (!HAS_TEAMS) skip();
    const int before = count_tasks();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_a_team, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int turn = 0; turn < 1000 && count_tasks() > before; turn++) usleep(1000); /* the kernel removes it later */
    assert_int_equal(count_tasks(), before);
}

/* Waiting beside other work */

enum { BUSY = 4, REGIONS = 200, WORK = 100000 };

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t work(uint64_t x) {
    for (int i = 0; i < WORK; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

/* Processor time of regions of two items, and of work that the caller does alone between them. */
static double time_regions(int threads) {
    uint64_t item[2] = {1, 2}, alone = 3;
    const double begin = cpu_seconds();
    rt_kernels_threads(threads);
    for (int region = 0; region < REGIONS; region++) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < 2; i++) item[i] = work(item[i]);
        alone = work(alone);
    }
    assert_true(item[0] | item[1] | alone);
    return cpu_seconds() - begin;
}

/* Keeps this process, and its children, to two cores: false if it has fewer. */
static int use_two_cores(void) {
    cpu_set_t all, two;
    CPU_ZERO(&two);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; core++)
        if (CPU_ISSET(core, &all)) CPU_SET(core, &two);
    return CPU_COUNT(&two) == 2 && sched_setaffinity(0, sizeof two, &two) == 0;
}

/* A thread that spins where another is suspended takes many times what the work does. */
TEST(waiting_beside_busy_processes_costs_little) {
    pid_t busy[BUSY];
    if (!HAS_TEAMS || !use_two_cores()) skip();
    for (int i = 0; i < BUSY; i++) {
        busy[i] = fork();
        if (busy[i] != 0) continue;
        alarm(60);
        for (volatile uint64_t x = 0;;) x++;
    }
    const double one = time_regions(1), two = time_regions(2);
    for (int i = 0; i < BUSY; i++) {
        kill(busy[i], SIGKILL);
        waitpid(busy[i], NULL, 0);
    }
    if (two > 2 * one) fail_msg("%.3f s of processor time with two threads, %.3f s with one", two, one);
}

int main(void) {
    return run_all_tests("team", NULL, NULL);
}
