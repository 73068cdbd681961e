/* A published training run. */
#ifndef FRONTEND_CLI_ROWS_LAWS_H
#define FRONTEND_CLI_ROWS_LAWS_H

#include "passes/plan/machine/machine.h"

struct system {
    const char *word, *division;
    double time, network;
    bool fused, sequence, wide, keeps, divides, overlaps;
    double states, logits, memory, reserve, experts, host, gaps;
};

struct row {
    /* columns */
    const char *source, *model, *gpu, *zero, *schedule, *recompute, *precision, *notes;
    double layers, hidden, heads, kv_heads, ffn, vocab, seq, ngpus, tp, pp, dp, cp, ep, microbatch, global_batch;
    double params; /* 0: unknown */
    /* what follows from them */
    const struct system *system;
    struct machine machine;
    double links[3];       /* of a device to others of a group of 2, 4 and 8; 0: a switch */
    double device;         /* factors of rows_devices.def: of the rate, */
    double host;           /* of the time that the host needs, */
    double fused_rate;     /* and the part of the rate that fused attention reaches */
    double micro_batches;  /* of a step */
    double attention, mlp; /* weights of a layer */
    double projections;    /* of the MLP: 2, or 3 if it is gated */
    double chunks;         /* of a rank (interleaved schedules) */
    double longest;        /* layers of the longest stage */
    double outer;          /* layers that the first stage, and the last, have less than that */
    double bubble;         /* the part of 1F1B's bubble that the schedule has */
    double flying;         /* micro-batches whose activations the first stage holds */
    double head;           /* elements of a head */
    double scored;         /* the part of the scores that attention's windows leave */
    double experts;        /* of a layer; 0: one dense MLP */
    double chosen, shared; /* experts of a token, shared ones included; those that all tokens have */
    double dense_layers;   /* the first ones, with a dense MLP of dense_ffn */
    double dense_ffn;
    bool fused;      /* attention is a fused kernel */
    bool biased;     /* and adds ALiBi's bias to the scores, which the fastest kernels did not */
    bool tuned;      /* the publication took the fastest micro-batch, and does not say which */
    bool adapters;   /* LoRA: other weights are frozen */
    bool overlapped; /* exchanges of tensor parallelism are pipelined with their products */
    int stage;       /* of ZeRO; -1: none */
    bool sharded;    /* parameters are divided (ZeRO 3, FSDP) */
    bool divided;    /* optimizer states are (ZeRO 1 and above) */
    bool sequence;   /* activations between products are divided among tensor-parallel ranks */
    bool recomputes, selects, selects_attention;
    bool selects_products, selects_layers; /* torchtitan: every second product is computed again; every second layer */
};

/* The value behind "key=" in notes, up to the next ';' or '('; false if there is none. */
bool row_note(const struct row *row, const char *key, char *value, size_t bytes);

/* Operations of a sequence, by the row's own definition (flops_def); of an unknown one by the products of the model, 0
 * where the definition needs a column that is empty. */
double row_flops(const struct row *row);
/* Operations per second of a device, as the vendor states it for the row's type. */
double row_peak(const struct row *row);
/* Seconds of a step. */
double row_seconds(const struct row *row);
/* True if the stages divide the embeddings and the head among them (arXiv 2411.05288). */
bool row_divides_head(const struct row *row);
/* Weights of a layer's MLP, or of the experts of a rank, as if tensor parallelism divided them too. */
double row_owned_mlp(const struct row *row);
/* Bytes on the device that needs most. */
double row_memory(const struct row *row);

#endif
