/* The verifier's comparison of intervals against an enumeration of every index (Note [Equivalence] in ir/verify.c).
 *
 * Cuts, layouts and windows are drawn at random, right ones and wrong ones. Whether they are equal is decided by
 * listing indices one by one, as the definition has it; ir/verify/parts.c, which compares runs, must give the same
 * answer. */
/* Its static functions are the subject; cmocka.h comes behind it, whose macro fail() would be in the way. */
#include "ir/verify/parts.c"

#include "tests/ir/random.h"
#include "tests/test.h"

enum { TRIALS = 200000 };

/* Reference: lists indices ----------------------------------------------------------------------------------------- */

/* The rank that holds index `at` of a dimension so cut, and the index's place in that rank's part; -1: none. */
static int owner(const struct rt_cut *cut, int64_t at, int64_t *place) {
    int64_t block = cut->extent / rt_blocks(cut->blocks), within = at % block;
    const bool turned = cut->blocks < 0 && at / block % 2;
    for (int share = 0; share < cut->ways; share++) {
        int64_t start = rt_cut_start(cut, share), length = rt_cut_length(cut, share);
        if (within < start || within >= start + length) continue;
        *place = at / block * length + within - start;
        return turned ? cut->ways - 1 - share : share;
    }
    return -1;
}

/* Makes the cut mirrored, or plain if it was, where that is possible: often for wrong cuts. */
static void turn(struct random *random, struct rt_cut *cut) {
    const struct rt_cut turned = {cut->extent, -cut->blocks, cut->grain, cut->ways};
    if (random_below(random, 2) && rt_cut_is_sound(&turned)) *cut = turned;
}

static bool same_owners(const struct rt_cut *by_factor, const struct rt_cut *by_layout, int64_t before, int64_t after) {
    if (before * by_factor->extent * after != by_layout->extent) return false;
    for (int64_t index = 0; index < by_layout->extent; index++) {
        int64_t value = index / after % by_factor->extent, rest = index % after;
        int64_t outer = index / (after * by_factor->extent), local = 0, place = 0;
        int a = owner(by_factor, value, &local), b = owner(by_layout, index, &place);
        if (a < 0 || a != b) return false;
        if (place != (outer * rt_cut_extent(by_factor, a) + local) * after + rest) return false;
    }
    return true;
}

/* The same for an outer cut, which by_factor[0] and by_layout[0] say, and an inner one of its parts. The extents of the
 * inner ones are not used: they follow from the outer rank. */
static bool same_nests(const struct rt_cut by_factor[2], const struct rt_cut by_layout[2], int64_t before,
                       int64_t after) {
    const int64_t extent = by_factor[0].extent * after;
    for (int64_t index = 0; index < by_layout[0].extent; index++) {
        struct rt_cut factor = by_factor[1], layout = by_layout[1];
        int64_t value = 0, local = 0, place = 0;
        const int a = owner(&by_factor[0], index / after % by_factor[0].extent, &value),
                  b = owner(&by_layout[0], index, &place);
        if (a < 0 || a != b) return false;
        factor.extent = rt_cut_extent(&by_factor[0], a);
        layout.extent = rt_cut_extent(&by_layout[0], b);
        const int inner = owner(&factor, value, &local);
        if (inner < 0 || inner != owner(&layout, place, &place)) return false;
        if (place != (index / extent * rt_cut_extent(&factor, inner) + local) * after + index % after) return false;
    }
    return before * extent == by_layout[0].extent;
}

static bool same_places(const struct reach *reach, int64_t extent, const struct rt_placement *window,
                        const struct rt_cut *positions) {
    for (int64_t at = 0; at < positions->extent; at++) {
        int64_t local = 0, start;
        int rank = owner(positions, at, &local);
        int64_t length = rt_placement_run(window, rank, 0, &start), before = rt_placement_before(window, rank);
        for (int64_t k = 0; k < reach->span; k++) {
            int64_t index = at * reach->stride - reach->before + k;
            int64_t place = local * reach->stride - before + k;
            bool there = index >= 0 && index < extent, held = place >= 0 && place < length;
            if (there != held || (there && start + place != index)) return false;
        }
    }
    return true;
}

static bool owns_window(const struct rt_cut *part, const struct rt_placement *window) {
    for (int r = 0; r < window->cut.ways; r++) {
        int64_t start, place, length = rt_placement_run(window, r, 0, &start);
        for (int64_t index = start; index < start + length; index++)
            if (owner(part, index, &place) != r) return false;
    }
    return true;
}

/* Trials ----------------------------------------------------------------------------------------------------------- */

TEST(sets_of_indices) {
    struct random random = {1};
    int right = 0, wrong = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        const int ways = 1 + (int)random_below(&random, 4);
        const int64_t before = 1 + random_below(&random, 3), after = 1 + random_below(&random, 3);
        const int64_t blocks = 1 + random_below(&random, 3), grain = 1 + random_below(&random, 3);
        struct rt_cut by_factor = {blocks * grain * (ways + random_below(&random, 5)), blocks, grain, ways};
        turn(&random, &by_factor);
        struct rt_cut by_layout = {before * by_factor.extent * after, before * by_factor.blocks, grain * after, ways};
        /* Often something else than what the factor's cut makes of the dimension. */
        if (random_below(&random, 2)) by_layout.blocks = 1 + random_below(&random, 6);
        if (random_below(&random, 2)) by_layout.grain = 1 + random_below(&random, 6);
        if (random_below(&random, 4) == 0) turn(&random, &by_layout);
        if (random_below(&random, 16) == 0) by_layout.extent += by_layout.grain * rt_blocks(by_layout.blocks);
        if (!rt_cut_is_sound(&by_layout) || !parts_cover(&by_layout)) continue;
        bool alike = true;
        for (int r = 0; r < ways; r++) alike = alike && owns_alike(&by_factor, &by_layout, before, after, r);
        assert_int_equal(alike, same_owners(&by_factor, &by_layout, before, after));
        ++*(alike ? &right : &wrong);
    }
    assert_true(right > TRIALS / 50 && wrong > TRIALS / 50);
}

/* As sets_of_indices, for two axes that divide one factor. */
TEST(nests_of_indices) {
    struct arena arena;
    struct random random = {4};
    int right = 0, wrong = 0;
    arena_init(&arena, 0, NULL);
    for (int trial = 0; trial < TRIALS / 4; trial++) {
        const int outer = 1 + (int)random_below(&random, 3), inner = 1 + (int)random_below(&random, 3);
        const int64_t before = 1 + random_below(&random, 2), after = 1 + random_below(&random, 2),
                      blocks = 1 + random_below(&random, 2), grain = 1 + random_below(&random, 2),
                      coarse = grain * (1 + random_below(&random, 2)),
                      extent = blocks * coarse * (outer * inner + random_below(&random, 4));
        struct nest nest = {.levels = 2, .ways = {outer, inner}};
        const int64_t grains[] = {coarse, grain};
        struct rt_cut by_factor[2], by_layout[2];
        for (int l = 0; l < 2; l++) {
            nest.by_factor[l] = (struct node_split){.factor = 1, .blocks = blocks, .grain = grains[l]};
            nest.by_layout[l] =
                (struct placement){.kind = PLACED_PART, .blocks = before * blocks, .grain = grains[l] * after};
            /* Often something else than what the factor's cut makes of the dimension. */
            if (random_below(&random, 6) == 0) nest.by_layout[l].blocks = 1 + random_below(&random, 4);
            if (random_below(&random, 6) == 0) nest.by_layout[l].grain = 1 + random_below(&random, 4);
            by_factor[l] = (struct rt_cut){extent, blocks, grains[l], nest.ways[l]};
            by_layout[l] = (struct rt_cut){before * extent * after, nest.by_layout[l].blocks, nest.by_layout[l].grain,
                                           nest.ways[l]};
        }
        const struct dim_factors dim = {.n = 3, .factor = {0, 1, 2}};
        struct dims dims = {.nfactors = 3,
                            .factor = {{.extent = before}, {.name = "f", .extent = extent}, {.extent = after}}};
        struct graph graph = {.arena = &arena, .name = "g"};
        struct diags diags;
        struct verifier verifier = {.graph = &graph, .diags = &diags, .node = -1};
        diags_init(&diags, &arena);
        check_nest(&verifier, &dims, &dim, &nest, 0, extent, before * extent * after);
        bool sound = rt_cut_is_sound(&by_layout[0]); /* of the inner one within each part of the outer one */
        for (int r = 0; r < outer && sound; r++)
            sound = rt_cut_extent(&by_layout[0], r) % (by_layout[1].blocks * by_layout[1].grain) == 0;
        assert_int_equal(diags.errors == 0, sound && same_nests(by_factor, by_layout, before, after));
        ++*(diags.errors == 0 ? &right : &wrong);
    }
    arena_free(&arena);
    assert_true(right > TRIALS / 200 && wrong > TRIALS / 200);
}

TEST(windows_of_positions) {
    struct random random = {2};
    int right = 0, wrong = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        const int ways = 1 + (int)random_below(&random, 4);
        const struct rt_cut positions = {ways + random_below(&random, 6), 1, 1, ways};
        const struct reach reach = {positions.extent, 1 + random_below(&random, 3), random_below(&random, 4),
                                    1 + random_below(&random, 5)};
        const int64_t extent = 1 + random_below(&random, 20);
        struct rt_placement window = {positions, extent, reach.stride, reach.before, reach.span};
        /* Often the window of another operator. */
        if (random_below(&random, 4) == 0) window.stride = 1 + random_below(&random, 3);
        if (random_below(&random, 4) == 0) window.before = random_below(&random, 4);
        if (random_below(&random, 4) == 0) window.span = 1 + random_below(&random, 5);
        if (random_below(&random, 8) == 0) window.extent = 1 + random_below(&random, 20);
        bool serves = true;
        for (int r = 0; r < ways; r++) serves = serves && window_serves(&reach, extent, &window, &positions, r);
        assert_int_equal(serves, same_places(&reach, extent, &window, &positions));
        ++*(serves ? &right : &wrong);
    }
    assert_true(right > TRIALS / 50 && wrong > TRIALS / 50);
}

TEST(windows_in_parts) {
    struct random random = {3};
    int right = 0, wrong = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        const int ways = 1 + (int)random_below(&random, 3);
        const int64_t blocks = 1 + random_below(&random, 2), grain = 1 + random_below(&random, 3);
        const struct rt_cut part = {blocks * grain * (ways + random_below(&random, 4)), blocks, grain, ways};
        const struct rt_cut positions = {ways + random_below(&random, 6), 1, 1, ways};
        const struct rt_placement window = {positions, part.extent, 1 + random_below(&random, 3),
                                            random_below(&random, 3), 1 + random_below(&random, 4)};
        bool inside = true;
        for (int r = 0; r < ways; r++) inside = inside && lies_in_part(&part, &window, r);
        assert_int_equal(inside, owns_window(&part, &window));
        ++*(inside ? &right : &wrong);
    }
    assert_true(right > TRIALS / 50 && wrong > TRIALS / 50);
}

int main(void) {
    return run_all_tests("verify", NULL, NULL);
}
