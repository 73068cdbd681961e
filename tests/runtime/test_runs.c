/* Regions of tensors (base/runs.h) against lists of indices. */
#include "base/shape/runs.h"
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#define DIMS     3
#define EXTENT   24
#define ELEMENTS (EXTENT * EXTENT * EXTENT)

/* What a rank holds of a dimension, index by index: cuts applied one after another, by their definition. */
struct list {
    int n, at[EXTENT];
};

static struct list all_of(int extent) {
    struct list list = {.n = extent};
    for (int i = 0; i < extent; i++) list.at[i] = i;
    return list;
}

static struct list keep(const struct list *list, const struct rt_region_cut *cut) {
    struct list kept = {0};
    const int block = list->n / abs((int)cut->blocks), grains = block / (int)cut->grain;
    for (int i = 0; i < list->n; i++) {
        /* the part that owns the grain: the first grains % parts parts have one more */
        const int grain = i % block / (int)cut->grain, larger = grains % (int)cut->parts,
                  share = grains / (int)cut->parts, first = larger * (share + 1);
        const int owner = grain < first ? grain / (share + 1) : larger + (grain - first) / (share ? share : 1);
        const bool turned = cut->blocks < 0 && i / block % 2; /* the shares of these blocks are in reverse order */
        if ((turned ? (int)cut->parts - 1 - owner : owner) == cut->part) kept.at[kept.n++] = list->at[i];
    }
    return kept;
}

static int below(int limit) {
    return rand() % limit;
}

static const int64_t extents[] = {1, 2, 6, 8, 12, 24};

/* The number of blocks as in a cut, often mirrored if that can be. */
static int64_t often_mirrored(int64_t extent, int64_t blocks, int64_t grain, int64_t parts) {
    return blocks % 2 == 0 && extent % (blocks * grain * parts) == 0 && below(2) ? -blocks : blocks;
}

/* A random region, and its lists. At most two cuts of a dimension; the inner has as many blocks, a divisor grain. */
static struct rt_region region_of(const int64_t *dims, struct list *lists) {
    struct rt_region region = rt_region_whole(dims, DIMS);
    for (int d = 0; d < DIMS; d++) {
        static const int divisors[] = {1, 2, 3, 4};
        const int64_t blocks = divisors[below(4)], grain = divisors[below(4)], parts = 1 + below(4);
        const struct rt_region_cut outer = {d, often_mirrored(dims[d], blocks, grain, parts), grain, below((int)parts),
                                            parts};
        lists[d] = all_of((int)dims[d]);
        if (dims[d] % (blocks * grain)) {
            assert_false(rt_region_cut(&region, &outer));
            continue;
        }
        assert_true(rt_region_cut(&region, &outer));
        lists[d] = keep(&lists[d], &outer);
        const struct rt_region_cut inner = {d, often_mirrored(lists[d].n, blocks, 1, 2), 1, below(2), 2};
        if (below(2) && rt_region_cut(&region, &inner)) lists[d] = keep(&lists[d], &inner);
        assert_int_equal(rt_region_extent(&region, d), lists[d].n);
    }
    return region;
}

/* For each element of the tensor, its place in the region; -1: the region does not have it. */
static void find_places(int *places, const int64_t *dims, const struct list *lists) {
    int place = 0;
    memset(places, -1, ELEMENTS * sizeof *places);
    for (int i = 0; i < lists[0].n; i++)
        for (int j = 0; j < lists[1].n; j++)
            for (int k = 0; k < lists[2].n; k++)
                places[(lists[0].at[i] * (int)dims[1] + lists[1].at[j]) * (int)dims[2] + lists[2].at[k]] = place++;
}

struct visits {
    int b_of_a[ELEMENTS]; /* place in region b of each place in region a; -1: not visited */
    int64_t last;         /* the end of the run before */
};

static bool visit(void *context, int64_t from, int64_t to, int64_t count, struct rt_reason *why) {
    struct visits *visits = context;
    assert_true(from >= visits->last);
    visits->last = from + count;
    for (int64_t i = 0; i < count; i++) visits->b_of_a[from + i] = (int)(to + i);
    return true;
}

TEST(finds_what_two_regions_have_in_common) {
    static int a_places[ELEMENTS], b_places[ELEMENTS];
    static struct visits visits;
    srand(1);
    for (int round = 0; round < 2000; round++) {
        struct list a_lists[DIMS], b_lists[DIMS];
        int64_t dims[DIMS];
        struct rt_reason why;
        for (int d = 0; d < DIMS; d++) dims[d] = extents[below(6)];
        const struct rt_region a = region_of(dims, a_lists), b = region_of(dims, b_lists);
        const struct rt_region_visitor visitor = {visit, &visits};
        find_places(a_places, dims, a_lists);
        find_places(b_places, dims, b_lists);
        memset(&visits, -1, sizeof visits.b_of_a);
        visits.last = 0;
        assert_true(rt_region_common(&a, &b, &visitor, &why));
        for (int64_t e = 0; e < dims[0] * dims[1] * dims[2]; e++)
            if (a_places[e] >= 0) assert_int_equal(visits.b_of_a[a_places[e]], b_places[e]);
    }
}

TEST(mirrored_cuts_have_equal_shares) {
    const int64_t dims[] = {12};
    const struct rt_region_cut refused[] = {{0, -1, 1, 0, 2}, {0, -3, 1, 0, 2},        {0, -2, 1, 0, 4},
                                            {0, -2, 4, 0, 2}, {0, INT64_MIN, 1, 0, 1}, {0, 0, 1, 0, 1}};
    struct rt_region region = rt_region_whole(dims, 1);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) assert_false(rt_region_cut(&region, &refused[i]));
    /* Pieces of 2: rank 1 of 3 has the second one and the second last. */
    assert_true(rt_region_cut(&region, &(struct rt_region_cut){0, -2, 1, 1, 3}));
    assert_int_equal(region.dim[0].start, 2);
    assert_int_equal(region.dim[0].block + region.dim[0].turned, 8);
    assert_int_equal(region.dim[0].length, 2);
}

TEST(a_scalar_is_one_run) {
    static struct visits visits;
    struct rt_reason why;
    const struct rt_region scalar = rt_region_whole(NULL, 0);
    const struct rt_region_visitor visitor = {visit, &visits};
    visits.b_of_a[0] = -1;
    assert_true(rt_region_common(&scalar, &scalar, &visitor, &why));
    assert_int_equal(visits.b_of_a[0], 0);
}

TEST(refuses_what_is_no_cut) {
    static const struct rt_region_cut wrong[] = {
        {-1, 1, 1, 0, 2},        {2, 1, 1, 0, 2},
        {0, 0, 1, 0, 2},         {0, 1, 0, 0, 2},
        {0, 1, 1, 2, 2},         {0, 1, 1, -1, 2},
        {0, 1, 1, 0, 0},         {0, 5, 1, 0, 2},
        {0, 1, 5, 0, 2},         {0, INT64_MAX, INT64_MAX, 0, 2},
        {0, 1, 1, 0, -1},        {0, -1, 1, 0, 2},
        {0, 1, 1, 0, INT64_MAX}, {INT64_MAX, 1, 1, 0, 1},
    };
    const int64_t dims[] = {12, 4};
    const struct rt_region before = rt_region_whole(dims, 2);
    struct rt_region region = before;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(rt_region_cut(&region, &wrong[i]));
    assert_memory_equal(&region, &before, sizeof region);
    assert_true(rt_region_cut(&region, &(struct rt_region_cut){0, 3, 1, 0, 2}));
    assert_false(rt_region_cut(&region, &(struct rt_region_cut){0, 2, 1, 0, 2})); /* other blocks than outside */
}

int main(void) {
    return run_all_tests("runs", NULL, NULL);
}
