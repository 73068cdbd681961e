/* The time of a step by the cost model, from the plan of every rank: what each rank computes and sends, and when, by
 * the schedule. An estimate, from the annotations of operators and a machine (passes/plan/machine/machine.h). */
#ifndef PASSES_RANK_ESTIMATE_H
#define PASSES_RANK_ESTIMATE_H

#include "ir/timeline.h"
#include "passes/plan/machine/kernel_time.h"
#include "passes/rank/rankplan.h"

/* Seconds and operations of a step: of inference, one execution; of training, all micro-batches and the update. The
 * parts of `step` are those of the rank that works longest, and `waiting` is what remains. */
struct estimate {
    double step;
    double computing;             /* kernels of forward, backward, recomputation and update */
    double by_part[KERNEL_PARTS]; /* the parts of `computing` */
    double updating;              /* those of the update, once a step; a part of `computing` */
    double communicating;         /* collectives that nothing hides */
    double hidden;                /* collectives beside which something is computed; not a part of `step` */
    double summing;               /* collectives that are once a step: a part of `communicating`, */
    double summing_hidden;        /* and of `hidden` */
    double waiting;               /* for other pipeline stages */
    double bubble; /* the part of the time of forward and backward in which stages wait, over all stages */
    /* Floating-point operations of products, of all ranks together. Of the model: forward, and in training backward as
     * twice that, whatever is recomputed or computed twice. Causal attention counts in full, and once more by half:
     * the products of which the mask leaves nothing are left out. */
    double model_flops, model_flops_causal, executed_flops, executed_flops_causal;
    double peak_rate; /* operations per second of a device, of the type in which most products are computed */
    int64_t memory;   /* bytes of the rank that needs most */
    int64_t tokens;   /* of a step of --model-config; 0: unknown */
};

/* The estimate of a verified plan for `units` scale units, with that many micro-batches in each; `groups`: of ZeRO. */
struct estimate estimate_step(const struct rankplan *plan, const struct machine *machine, int units, int groups,
                              int micro_batches);

/* When each segment of a step is executed, of one scale unit. */
void estimate_timeline(const struct rankplan *plan, const struct machine *machine, int micro_batches,
                       struct timeline *timeline);

#endif
