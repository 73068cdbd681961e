#include "passes/place/messages.h"

struct message {
    int node, micro, cell; /* cell: number of the sender's that computes it */
};

/* The messages that one coordinate sends to another, in order; `next`: the first whose receive is not posted. */
struct channel {
    VEC(struct message) all;
    int next;
};

struct ordering {
    const struct graph *graph;
    const struct transfer_ends *ends; /* of the coordinate that receives */
    struct channel *from;             /* by coordinate */
    int *end_of;                      /* per node: 1 + the end that receives from it, 0: none */
    bool *posted;                     /* [end * micro-batches + micro] */
    bool *held;                       /* [chunk * micro-batches + micro]: the micro-batch has a slot of the chunk */
    bool *taken; /* [chunk * micro-batches + micro]: it has one for the gradients that are received and sent */
    int *ahead;  /* per chunk: how many have one */
    int micro_batches;
    struct arrivals arrivals;
};

static bool is_of_cell(const struct graph *graph, const struct transfer_end *end, const struct cell *cell, bool sends) {
    return end->sends == sends && end->chunk == cell->chunk && graph->nodes.at[end->node].phase == cell->phase;
}

static void list_sends(const struct graph *graph, const struct column *column, const struct transfer_ends *ends, int to,
                       struct channel *channel) {
    for (int i = 0; i < column->cells.n; i++)
        for (int e = 0; e < ends->all.n; e++) {
            const struct transfer_end *end = &ends->all.at[e];
            if (is_of_cell(graph, end, &column->cells.at[i], true) &&
                schedule_home(graph, (int)attr_int(&graph->nodes.at[end->node], "to", 0)) == to)
                VEC_PUSH(graph->arena, &channel->all, (struct message){end->node, column->cells.at[i].micro, i});
        }
}

static void post(struct ordering *o, int cell, int end, int micro) {
    bool *posted = &o->posted[end * o->micro_batches + micro];
    if (!*posted) VEC_PUSH(o->graph->arena, &o->arrivals.all, (struct arrival){cell, end, micro});
    *posted = true;
    const int chunk = o->ends->all.at[end].chunk, at = chunk * o->micro_batches + micro;
    if (!o->ends->all.at[end].of_backward || o->taken[at]) return;
    o->taken[at] = true;
    o->ahead[chunk]++;
}

static void post_next(struct ordering *o, int cell, struct channel *channel) {
    const struct message *message = &channel->all.at[channel->next++];
    post(o, cell, o->end_of[message->node] - 1, message->micro);
}

/* Posts the receive that the cell needs, with those of Note [Order of messages]. */
static void post_up_to(struct ordering *o, int cell, int end, int micro) {
    const int from = (int)attr_int(&o->graph->nodes.at[o->ends->all.at[end].node], "from", 0);
    struct channel *channel = &o->from[schedule_home(o->graph, from)];
    while (!o->posted[end * o->micro_batches + micro] && channel->next < channel->all.n) post_next(o, cell, channel);
    while (channel->next > 0 && channel->next < channel->all.n &&
           channel->all.at[channel->next].cell == channel->all.at[channel->next - 1].cell)
        post_next(o, cell, channel);
    post(o, cell, end, micro);
}

/* Posts the next receives whose memory is in slots that their micro-batches have. */
static void post_held(struct ordering *o, int cell, struct channel *channel) {
    while (channel->next < channel->all.n) {
        const struct message *message = &channel->all.at[channel->next];
        const struct transfer_end *end = &o->ends->all.at[o->end_of[message->node] - 1];
        const int at = end->chunk * o->micro_batches + message->micro;
        if (!o->held[at]) return;
        if (end->of_backward && !o->taken[at] && o->ahead[end->chunk] >= MESSAGES_AHEAD) return;
        post_next(o, cell, channel);
    }
}

struct arrivals messages_order(const struct graph *graph, const struct column *columns,
                               const struct transfer_ends *ends, int coordinate) {
    const int coordinates = schedule_coordinates(graph);
    const enum phase last = schedule_last_phase(graph);
    const struct column *column = &columns[coordinate];
    struct ordering o = {.graph = graph, .ends = &ends[coordinate], .micro_batches = column->micro_batches};
    o.from = ARENA_ARRAY(graph->arena, struct channel, coordinates);
    o.end_of = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1);
    o.posted = ARENA_ARRAY(graph->arena, bool, o.ends->all.n *o.micro_batches + 1);
    for (int e = 0; e < o.ends->all.n; e++)
        if (!o.ends->all.at[e].sends) o.end_of[o.ends->all.at[e].node] = e + 1;
    for (int from = 0; from < coordinates; from++)
        list_sends(graph, &columns[from], &ends[from], coordinate, &o.from[from]);
    o.held = ARENA_ARRAY(graph->arena, bool, schedule_chunks(graph) * o.micro_batches + 1);
    o.taken = ARENA_ARRAY(graph->arena, bool, schedule_chunks(graph) * o.micro_batches + 1);
    o.ahead = ARENA_ARRAY(graph->arena, int, schedule_chunks(graph) + 1);
    for (int i = 0; i < column->cells.n; i++) {
        const struct cell *cell = &column->cells.at[i];
        for (int e = 0; e < o.ends->all.n; e++)
            if (is_of_cell(graph, &o.ends->all.at[e], cell, false)) post_up_to(&o, i, e, cell->micro);
        for (int from = 0; from < coordinates && graph->chunks.n; from++) post_held(&o, i, &o.from[from]);
        const int at = cell->chunk * o.micro_batches + cell->micro;
        o.held[at] = cell->phase != last;
        if (cell->phase == last && o.taken[at]) o.taken[at] = false, o.ahead[cell->chunk]--;
    }
    return o.arrivals;
}
