/* Reports about ranks that died or make no progress. */
#include "launch/launch_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_RANKS 16 /* described in a report */
#define MOST_PEERS 8  /* ranks listed in a note */
#define LINE       512
#define MOST_NOTES (MOST_RANKS + 3) /* culprit, other ranks, help */

/* A report being composed, without memory allocation. */
struct report {
    int code, nnotes;
    char text[LINE], where[LINE], notes[MOST_NOTES][LINE];
};

/* Appends to a line of LINE bytes; truncates. */
__attribute__((format(printf, 2, 3))) static void put(char *line, const char *format, ...) {
    const size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, LINE - used, format, args);
    va_end(args);
}

static void print(const struct launch *job, const struct report *report) {
    const char *notes[MOST_NOTES];
    for (int i = 0; i < report->nnotes; i++) notes[i] = report->notes[i];
    const struct rt_diagnostic item = {.code = report->code,
                                       .text = report->text,
                                       .where = report->where[0] ? report->where : NULL,
                                       .notes = notes,
                                       .nnotes = report->nnotes};
    launch_print(job, &item);
}

static struct rt_activity *progress_of(const struct launch *job, int rank) {
    return rt_shared_progress(job->segment, rank);
}

static int number_of(const struct launch *job, int rank) {
    return job->number ? *job->number : rank;
}

static bool waits_for(const struct launch *job, int rank, int other) {
    return rt_shared_waits_for(job->segment, rank, other);
}

/* " for rank 2", " for ranks 1, 2, 3" */
static void put_peers(char *line, const struct launch *job, int rank) {
    int count = 0, last = 0;
    for (int r = 0; r < job->what->ranks; r++)
        if (waits_for(job, rank, r)) count++, last = r;
    if (count == 1) {
        put(line, " for rank %d%s", last, job->child[last].alive ? "" : ", which has ended");
        return;
    }
    const char *between = " for ranks ";
    for (int r = 0, listed = 0; r < job->what->ranks && listed < MOST_PEERS; r++) {
        if (!waits_for(job, rank, r)) continue;
        put(line, "%s%d", between, r);
        between = ", ";
        listed++;
    }
    if (count > MOST_PEERS) put(line, " and %d more", count - MOST_PEERS);
}

static void put_state(char *line, const struct launch *job, int rank) {
    int64_t cpu;
    const char state = process_state(job->child[rank].pid, &cpu);
    const double used = (double)job->stall.rank[rank].used / 1e3;
    switch (state) {
    case 'T': put(line, "it is stopped (SIGCONT resumes it)"); break;
    case 't': put(line, "it is stopped by a debugger"); break;
    case 'D': put(line, "it is waiting for a device or file system"); break;
    default: put(line, "it is alive and used %.2f s of CPU time meanwhile", used); break;
    }
}

/* Appends "node 'layer0/fc' (MatMul)", or "instruction 3" if names are not known; false if the rank is not in an
 * instruction. */
static bool put_instruction(char *line, const struct launch *job, int rank, const char *before) {
    const struct rt_launch *what = job->what;
    const int instruction = atomic_load(&progress_of(job, rank)->instruction);
    if (instruction < 0 || atomic_load(&progress_of(job, rank)->step) == 0) return false;
    const char *text = what->instruction ? what->instruction(what->context, instruction) : NULL;
    if (text)
        put(line, "%s%s", before, text);
    else
        put(line, "%sinstruction %d", before, instruction);
    return true;
}

/* Adds a note such as "rank 1, step 3, call 12 (all-reduce): waits for rank 0 at node 'a' (AllReduce)". A rank that
 * does not wait may be a few instructions further: only instructions that may take long are recorded. */
static void note_rank(struct report *report, const struct launch *job, int rank) {
    const struct rt_activity *progress = progress_of(job, rank);
    const int64_t step = atomic_load(&progress->step), calls = atomic_load(&progress->calls);
    char *line = report->notes[report->nnotes++];
    put(line, "note: rank %d", number_of(job, rank));
    if (step > 0) put(line, ", step %" PRId64, step);
    if (calls > 0)
        put(line, ", call %" PRId64 " (%s)", calls, rt_shared_operation_name(atomic_load(&progress->operation)));
    if (rt_shared_waits(job->segment, rank)) {
        put(line, ": waits");
        if (!job->number) put_peers(line, job, rank);
    } else {
        put(line, ": last seen");
    }
    if (!put_instruction(line, job, rank, " at "))
        put(line, step > 0 ? " between instructions" : " before the first step");
}

void report_dead(struct launch *job, int rank, const char *how) {
    struct report report = {.code = 911};
    if (!rt_shared_claim_report(job->segment)) return;
    put(report.text, "rank %d (pid %ld) %s", rank, (long)job->child[rank].pid, how);
    put_instruction(report.where, job, rank, "");
    note_rank(&report, job, rank);
    for (int r = 0; r < job->what->ranks && report.nnotes <= MOST_RANKS; r++)
        if (job->child[r].alive && waits_for(job, r, rank)) note_rank(&report, job, r);
    print(job, &report);
}

static void put_headline(struct report *report, const struct launch *job, struct verdict verdict) {
    const struct standstill *standstill = &job->stall.rank[verdict.rank];
    const bool all = verdict.conduct == WAITING;
    const double still = (double)(all ? standstill->waited : standstill->still) / 1e3;
    const long pid = (long)job->child[verdict.rank].pid;
    const bool absent = atomic_load(&progress_of(job, verdict.rank)->moves) == 0;
    report->code = absent && !all ? 903 : 912;
    if (all) {
        put(report->text, "deadlock: all ranks wait for other ranks, and none made progress for %.1f s", still);
        return;
    }
    if (absent)
        put(report->text, "rank %d of %d (pid %ld) did not join for %.1f s: ", verdict.rank, job->what->ranks, pid,
            still);
    else
        put(report->text, "rank %d (pid %ld) made no progress for %.1f s: ", number_of(job, verdict.rank), pid, still);
    put_state(report->text, job, verdict.rank);
}

void report_stuck(struct launch *job, struct verdict verdict) {
    const int ranks = job->what->ranks, culprit = verdict.rank;
    struct report report = {0};
    int others = 0;
    if (!rt_shared_claim_report(job->segment)) return;
    put_headline(&report, job, verdict);
    put_instruction(report.where, job, culprit, "");
    note_rank(&report, job, culprit);
    for (int r = 0; r < ranks; r++)
        if (r != culprit && job->child[r].alive && others++ < MOST_RANKS) note_rank(&report, job, r);
    if (others > MOST_RANKS) put(report.notes[report.nnotes++], "note: and %d more ranks", others - MOST_RANKS);
    put(report.notes[report.nnotes++], "help: --stall-timeout sets how long a rank may make no progress; 0: no limit");
    print(job, &report);
}
