/* What is said about ranks that died or get nothing done. */
#include "launch_private.h"

#include <inttypes.h>
#include <stdio.h>

#define MOST_NOTES 16 /* ranks that a report describes */
#define MOST_PEERS 8  /* ranks that a note lists */

static struct rt_progress *progress_of(const struct launch *job, int rank) {
    return rt_shared_progress(job->segment, rank);
}

static bool waits_for(const struct launch *job, int rank, int other) {
    return rt_shared_waits_for(job->segment, rank, other);
}

/* " for rank 2", " for ranks 1, 2, 3" */
static void put_peers(const struct launch *job, int rank) {
    int count = 0, last = 0;
    for (int r = 0; r < job->what->ranks; r++)
        if (waits_for(job, rank, r)) count++, last = r;
    if (count == 1) {
        fprintf(stderr, " for rank %d%s", last, job->child[last].alive ? "" : ", which has ended");
        return;
    }
    const char *between = " for ranks ";
    for (int r = 0, listed = 0; r < job->what->ranks && listed < MOST_PEERS; r++) {
        if (!waits_for(job, rank, r)) continue;
        fprintf(stderr, "%s%d", between, r);
        between = ", ";
        listed++;
    }
    if (count > MOST_PEERS) fprintf(stderr, " and %d more", count - MOST_PEERS);
}

static void put_state(const struct launch *job, int rank) {
    int64_t cpu;
    const char state = process_state(job->child[rank].pid, &cpu);
    const double used = (double)job->stall.rank[rank].used / 1e3;
    switch (state) {
    case 'T': fputs("it is stopped (SIGCONT lets it go on)", stderr); break;
    case 't': fputs("it is stopped by a debugger", stderr); break;
    case 'D': fputs("it waits for a device or file system", stderr); break;
    default: fprintf(stderr, "it is alive and used %.2f s of CPU time meanwhile", used); break;
    }
}

/* "node 'layer0/fc' (MatMul)", or where names are not known "instruction 3"; false outside of instructions. */
static bool put_instruction(const struct launch *job, int rank, const char *before) {
    const struct rt_launch *what = job->what;
    const int site = atomic_load(&progress_of(job, rank)->site);
    if (site < 0 || atomic_load(&progress_of(job, rank)->step) == 0) return false;
    const char *text = what->instruction ? what->instruction(what->context, site) : NULL;
    if (text)
        fprintf(stderr, "%s%s", before, text);
    else
        fprintf(stderr, "%sinstruction %d", before, site);
    return true;
}

/* "rank 1, step 3, call 12 (all-reduce): waits for rank 0 at node 'a' (AllReduce)". A rank that does not wait may be
 * a few instructions further, as only those that may take long are recorded. */
static void put_rank(const struct launch *job, int rank) {
    const struct rt_progress *progress = progress_of(job, rank);
    const int64_t step = atomic_load(&progress->step), calls = atomic_load(&progress->calls);
    fprintf(stderr, "  note: rank %d", rank);
    if (step > 0) fprintf(stderr, ", step %" PRId64, step);
    if (calls > 0)
        fprintf(stderr, ", call %" PRId64 " (%s)", calls,
                rt_shared_operation_name(atomic_load(&progress->operation)));
    if (rt_shared_waits(job->segment, rank)) {
        fputs(": waits", stderr);
        put_peers(job, rank);
    } else {
        fputs(": last seen", stderr);
    }
    if (!put_instruction(job, rank, " at "))
        fputs(step > 0 ? " between instructions" : " before the first step", stderr);
    fputc('\n', stderr);
}

static void put_place(const struct launch *job, int rank) {
    if (put_instruction(job, rank, "  --> ")) fputc('\n', stderr);
}

void report_dead(struct launch *job, int rank, const char *how) {
    if (!rt_shared_claim_report(job->segment)) return;
    int notes = 0;
    fprintf(stderr, "rankc: error[E0911]: rank %d (pid %ld) %s\n", rank, (long)job->child[rank].pid, how);
    put_place(job, rank);
    put_rank(job, rank);
    for (int r = 0; r < job->what->ranks && notes < MOST_NOTES; r++)
        if (job->child[r].alive && waits_for(job, r, rank)) put_rank(job, r), notes++;
}

static void put_headline(const struct launch *job, int rank, enum conduct conduct) {
    const struct standstill *standstill = &job->stall.rank[rank];
    const double still = (double)(conduct == WAITING ? standstill->waited : standstill->still) / 1e3;
    const long pid = (long)job->child[rank].pid;
    const bool absent = atomic_load(&progress_of(job, rank)->moves) == 0;
    if (conduct == WAITING) {
        fprintf(stderr, "rankc: error[E0912]: all ranks wait for others, none made progress for %.1f s\n", still);
        return;
    }
    if (absent)
        fprintf(stderr, "rankc: error[E0903]: rank %d of %d (pid %ld) did not join for %.1f s: ", rank,
                job->what->ranks, pid, still);
    else
        fprintf(stderr, "rankc: error[E0912]: rank %d (pid %ld) made no progress for %.1f s: ", rank, pid, still);
    put_state(job, rank);
    fputc('\n', stderr);
}

void report_stuck(struct launch *job, struct verdict verdict) {
    const int ranks = job->what->ranks, culprit = verdict.rank;
    int notes = 0;
    if (!rt_shared_claim_report(job->segment)) return;
    put_headline(job, culprit, verdict.conduct);
    put_place(job, culprit);
    put_rank(job, culprit);
    for (int r = 0; r < ranks; r++)
        if (r != culprit && job->child[r].alive && notes++ < MOST_NOTES) put_rank(job, r);
    if (notes > MOST_NOTES) fprintf(stderr, "  note: and %d more ranks\n", notes - MOST_NOTES);
    fputs("  help: --stall-timeout sets how long a rank may get nothing done; 0: for ever\n", stderr);
}
