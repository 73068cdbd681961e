#include "passes/plan/machine/moves.h"

#include <math.h>

#include "ir/dims.h"

static const struct move moves[] = {
    {PLACED_WHOLE, PLACED_PART, OP_Chunk},           {PLACED_WHOLE, PLACED_WINDOW, OP_Chunk},
    {PLACED_PART, PLACED_WHOLE, OP_AllGather},       {PLACED_PART, PLACED_PART, OP_AllToAll},
    {PLACED_PART, PLACED_WINDOW, OP_Crop}, /* only if every part contains its window */
    {PLACED_PART, PLACED_WINDOW, OP_HaloExchange},   {PLACED_PARTIAL, PLACED_WHOLE, OP_AllReduce},
    {PLACED_PARTIAL, PLACED_PART, OP_ReduceScatter}, {PLACED_WHOLE, PLACED_FLAT, OP_Chunk},
    {PLACED_FLAT, PLACED_WHOLE, OP_AllGather},       {PLACED_PARTIAL, PLACED_FLAT, OP_ReduceScatter}};
enum { NMOVES = sizeof moves / sizeof *moves, NSTATES = 6 };

/* Moves behind the first one count so much: passes hide a single collective beside computation, and fuse it. */
static const double further = 1.1;

double moves_seconds(const struct machine_group *group, const struct op *op, double in, double out, double runs) {
    if (op->local || group->ranks < 2) return 0;
    const bool adds = op->collective == COLLECTIVE_SEND; /* neighbours send what the result has besides the operand */
    return machine_collective(group, op->collective, adds ? fmax(0, out - in) : fmax(in, out), runs);
}

/* Bytes that the rank with the largest part has. */
static double bytes_held(const struct moving *moving, enum placement_kind kind) {
    const struct placement *placement = moving->to.kind == kind ? &moving->to : &moving->from;
    const int ways = (int)moving->group.ranks;
    if (kind == PLACED_FLAT) return moving->bytes / ways;
    if (kind != PLACED_PART && kind != PLACED_WINDOW) return moving->bytes;
    if (placement->kind != kind || !moving->tensor->dims[placement->dim]) return moving->bytes / ways;
    const struct rt_placement ranks = placement_among(moving->tensor, placement, ways);
    int64_t most = 0;
    for (int r = 0; r < ways; r++) {
        const int64_t extent = rt_placement_extent(&ranks, r);
        if (extent > most) most = extent;
    }
    return moving->bytes * (double)most / (double)moving->tensor->dims[placement->dim];
}

/* True if every rank's part contains the window that it needs. */
static bool has_window(const struct moving *moving) {
    const struct placement *part = &moving->from, *window = &moving->to;
    const int ways = (int)moving->group.ranks;
    if (part->kind != PLACED_PART || window->kind != PLACED_WINDOW || part->dim != window->dim) return false;
    if (part->blocks < 0) return false; /* a window may lie in two adjacent runs of a mirrored cut */
    const struct rt_placement have = placement_among(moving->tensor, part, ways),
                              want = placement_among(moving->tensor, window, ways);
    for (int r = 0; r < ways; r++)
        if (rt_placement_lacks(&want, &have, r)) return false;
    return true;
}

/* Bellman-Ford. A path may lead from a part to another part. */
const struct move *moves_first(const struct moving *moving, double *seconds) {
    double of_move[NMOVES], held[NSTATES], cost[NSTATES];
    const struct move *first[NSTATES] = {NULL};
    const enum placement_kind from = moving->from.kind, to = moving->to.kind;
    const bool contained = has_window(moving);
    for (int s = 0; s < NSTATES; s++) {
        held[s] = bytes_held(moving, (enum placement_kind)s);
        cost[s] = s == (int)to && from != to ? 0 : INFINITY;
    }
    EACH(moves, NMOVES, m, const struct move *move) {
        const bool gathered = moving->made_whole && move->to == PLACED_WHOLE;
        of_move[m] = moves_seconds(&moving->group, &ops[move->op], held[move->from], held[move->to], 1);
        if (gathered) of_move[m] = 0;
        if (move->op == OP_Crop && !contained) of_move[m] = INFINITY;
    }
    for (int round = 0; round <= NSTATES; round++)
        for (int m = 0; m < NMOVES; m++) {
            const bool last = round == 0 && moves[m].to == to; /* leads into `to`, also from another part */
            const double total = of_move[m] + (last ? 0 : further * cost[moves[m].to]);
            if (total < cost[moves[m].from]) cost[moves[m].from] = total, first[moves[m].from] = &moves[m];
        }
    enum placement_kind state = from;
    if (seconds) *seconds = 0;
    while (seconds && first[from]) {
        *seconds += of_move[first[state] - moves];
        state = first[state]->to;
        if (state == to) break;
    }
    return first[from];
}

struct placement moves_after(const struct move *move, const struct placement *wanted) {
    if (move->to == wanted->kind) return *wanted;
    if (move->to == PLACED_WHOLE || move->to == PLACED_FLAT) return (struct placement){.kind = move->to};
    return (struct placement){.kind = PLACED_PART, .dim = wanted->dim, .blocks = 1, .grain = 1};
}
