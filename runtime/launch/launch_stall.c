/* Finds ranks that make no progress.
 *
 * Note [Standstill]
 * Each rank counts its progress: instructions begun, calls begun, waits completed. A rank whose count does not change
 * for the time limit is stuck, whether its process sleeps, is stopped or loops. A rank that waits for another rank is
 * not stuck itself; the other one is, or ranks wait for each other in a cycle and are stuck together. Only the user
 * knows how long an instruction may take, hence the limit is an option.
 *
 * Only time in which a rank could have made progress counts. For a runnable rank this is its CPU time, so that other
 * load on the machine makes it slow but not stuck. For a sleeping or stopped rank it is elapsed time, as far as the
 * launcher ran too: both may have been stopped together by Ctrl-Z. Time in which a rank waits for another does not
 * count. */
#include "launch/launch_private.h"

#include "base/thread/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECKS_PER_LIMIT 100
#define MOST_PER_CHECK   10 /* divisor of the limit: the most that a single late check may count */
#define LEAST_INTERVAL   10
#define MOST_INTERVAL    1000

int stall_open(struct launch *job) {
    struct stall *stall = &job->stall;
    int64_t interval = job->what->stall_ms / CHECKS_PER_LIMIT;
    if (interval < LEAST_INTERVAL) interval = LEAST_INTERVAL;
    if (interval > MOST_INTERVAL) interval = MOST_INTERVAL;
    *stall = (struct stall){.limit = job->what->stall_ms, .interval = interval, .checked = rt_now_ms()};
    stall->rank = calloc((size_t)job->what->ranks, sizeof *stall->rank);
    return stall->rank ? 0 : -1;
}

int64_t stall_wait_ms(const struct launch *job) {
    if (job->stall.limit <= 0) return -1;
    const int64_t left = job->stall.checked + job->stall.interval - rt_now_ms();
    return left > 0 ? left : 0;
}

/* State of a task as in proc(5), 'R' or 'T' or ...; adds its CPU time to *cpu_ms. 0: it does not exist. */
static char read_task(const char *path, int64_t *cpu_ms) {
    char text[512], state = 0;
    unsigned long user = 0, system = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    text[count > 0 ? count : 0] = 0;
    const char *after_name = strrchr(text, ')'); /* the name may contain any character */
    if (!after_name ||
        sscanf(after_name + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user, &system) != 3)
        return 0;
    *cpu_ms += (int64_t)((user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
    return state;
}

char process_state(pid_t pid, int64_t *cpu_ms) {
    char path[64], state = 0;
    *cpu_ms = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(path);
    if (!tasks) return 0;
    for (const struct dirent *entry; (entry = readdir(tasks));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%ld/task/%.20s/stat", (long)pid, entry->d_name);
        const char of_task = read_task(path, cpu_ms);
        if (!state || of_task == 'R') state = of_task; /* else that of the first thread, which is listed first */
    }
    closedir(tasks);
    return state;
}

static bool is_stopped(char state) {
    return state == 'T' || state == 't';
}

/* Accounts for `passed` ms without progress. */
static void count_still(struct standstill *rank, pid_t pid, bool waits, int64_t passed) {
    int64_t cpu;
    const char state = process_state(pid, &cpu);
    const int64_t used = rank->begun && cpu > rank->cpu ? cpu - rank->cpu : 0;
    if (!rank->begun)
        rank->begun = true;
    else if (waits && !is_stopped(state))
        rank->waited += passed;
    else
        rank->still += state == 'R' && used < passed ? used : passed;
    rank->used += used;
    rank->cpu = cpu;
}

static void check_rank(struct launch *job, int r, int64_t passed) {
    struct standstill *rank = &job->stall.rank[r];
    const int64_t moves = atomic_load_explicit(&rt_shared_progress(job->segment, r)->moves, memory_order_relaxed);
    if (moves != rank->moves)
        *rank = (struct standstill){.moves = moves};
    else
        count_still(rank, job->child[r].pid, rt_shared_waits(job->segment, r), passed);
}

static enum conduct conduct_of(const struct launch *job, int rank) {
    int64_t cpu;
    const struct standstill *standstill = &job->stall.rank[rank];
    if (!job->child[rank].alive) return ENDED;
    if (standstill->still >= job->stall.limit)
        return is_stopped(process_state(job->child[rank].pid, &cpu)) ? STOPPED : BUSY;
    return standstill->waited >= job->stall.limit ? WAITING : MOVING;
}

/* Finds the rank to blame: the first stopped or busy one; if all wait for each other, the first waiting one. */
static bool find_stuck(const struct launch *job, struct verdict *verdict) {
    *verdict = (struct verdict){0, ENDED};
    for (int r = 0; r < job->what->ranks; r++) {
        const enum conduct conduct = conduct_of(job, r);
        if (conduct < verdict->conduct) *verdict = (struct verdict){r, conduct};
    }
    return verdict->conduct == STOPPED || verdict->conduct == BUSY || verdict->conduct == WAITING;
}

bool stall_check(struct launch *job, struct verdict *verdict) {
    struct stall *stall = &job->stall;
    const int64_t now = rt_now_ms(), most = stall->limit / MOST_PER_CHECK + stall->interval;
    const int64_t passed = now - stall->checked;
    bool reached = false;
    if (stall->limit <= 0 || passed < stall->interval) return false;
    stall->checked = now;
    for (int r = 0; r < job->what->ranks; r++) {
        if (!job->child[r].alive) continue;
        check_rank(job, r, passed < most ? passed : most);
        reached = reached || stall->rank[r].still + stall->rank[r].waited >= stall->limit;
    }
    return reached && find_stuck(job, verdict);
}
