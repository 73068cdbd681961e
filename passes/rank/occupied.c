/* A segment tree over time: a leaf stands for one time, a node for the times of both its children.
 *
 * Note [Occupied addresses]
 * Each node of the tree has two sets of addresses: `over`, occupied by blocks that live during all times of the node
 * but not all of its parent's, and `within`, occupied at any of its times. A set is a sorted list of spans that
 * neither touch nor overlap. A block that lives k times is added to the sets of about 4 log k nodes, and a search
 * reads as many. Blocks lie side by side, so there are few spans: n blocks take about n log n time, where comparing
 * all pairs takes n^2. */
#include "passes/rank/memplan.h"

#include "ir/base/vec.h"

struct span {
    int64_t from, to;
};

struct spans {
    VEC(struct span) all; /* by address */
};

struct occupied {
    struct arena *arena;
    int leaves;
    struct spans *over, *within; /* per node: 1 is the root, 2n and 2n + 1 are the children of n */
};

struct occupied *occupied_new(struct arena *arena, int times) {
    struct occupied *occupied = ARENA_NEW(arena, struct occupied);
    *occupied = (struct occupied){.arena = arena, .leaves = 1};
    while (occupied->leaves < times) occupied->leaves *= 2;
    occupied->over = ARENA_ARRAY(arena, struct spans, 2 * occupied->leaves);
    occupied->within = ARENA_ARRAY(arena, struct spans, 2 * occupied->leaves);
    return occupied;
}

/* The index of the first span that ends at `address` or after it; the number of spans if there is none. */
static int find_span(const struct spans *spans, int64_t address) {
    int low = 0, high = spans->all.n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (spans->all.at[middle].to < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_span(struct arena *arena, struct spans *spans, struct span span) {
    const int first = find_span(spans, span.from);
    int behind = first;
    for (; behind < spans->all.n && spans->all.at[behind].from <= span.to; behind++) {
        if (spans->all.at[behind].from < span.from) span.from = spans->all.at[behind].from;
        if (spans->all.at[behind].to > span.to) span.to = spans->all.at[behind].to;
    }
    if (first == behind) VEC_PUSH(arena, &spans->all, span); /* room for one more */
    const int kept = first == behind ? spans->all.n - 1 - first : spans->all.n - behind;
    memmove(&spans->all.at[first + 1], &spans->all.at[behind], (size_t)kept * sizeof span);
    spans->all.at[first] = span;
    spans->all.n = first + 1 + kept;
}

/* The first address from `address` on at which the spans leave room for `bytes`. */
static int64_t past_spans(const struct spans *spans, int64_t address, int64_t bytes) {
    for (int i = find_span(spans, address + 1); i < spans->all.n && spans->all.at[i].from < address + bytes; i++)
        address = spans->all.at[i].to;
    return address;
}

static int64_t past_parents(const struct occupied *occupied, int time, int64_t address, int64_t bytes) {
    for (int node = occupied->leaves + time; node; node /= 2)
        address = past_spans(&occupied->over[node], address, bytes);
    return address;
}

static int64_t past_all(const struct occupied *occupied, int first, int last, int64_t address, int64_t bytes) {
    address = past_parents(occupied, last, past_parents(occupied, first, address, bytes), bytes);
    for (int left = occupied->leaves + first, right = occupied->leaves + last + 1; left < right;
         left /= 2, right /= 2) {
        if (left % 2) address = past_spans(&occupied->within[left++], address, bytes);
        if (right % 2) address = past_spans(&occupied->within[--right], address, bytes);
    }
    return address;
}

int64_t occupied_lowest(const struct occupied *occupied, int first, int last, int64_t bytes) {
    int64_t address = 0, before;
    do {
        before = address;
        address = past_all(occupied, first, last, address, bytes);
    } while (address != before);
    return address;
}

void occupied_take(struct occupied *occupied, int first, int last, int64_t address, int64_t bytes) {
    const struct span span = {address, address + bytes};
    for (int left = occupied->leaves + first, right = occupied->leaves + last + 1; left < right;
         left /= 2, right /= 2) {
        if (left % 2) {
            add_span(occupied->arena, &occupied->over[left], span);
            add_span(occupied->arena, &occupied->within[left++], span);
        }
        if (right % 2) {
            add_span(occupied->arena, &occupied->over[--right], span);
            add_span(occupied->arena, &occupied->within[right], span);
        }
    }
    for (int left = (occupied->leaves + first) / 2, right = (occupied->leaves + last) / 2; left;
         left /= 2, right /= 2) {
        add_span(occupied->arena, &occupied->within[left], span);
        if (right != left) add_span(occupied->arena, &occupied->within[right], span);
    }
}
