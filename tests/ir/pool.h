/* An arena that the tests of a program share: run_all_tests(NAME, open_pool, close_pool). */
#ifndef TESTS_POOL_H
#define TESTS_POOL_H

#include "ir/base/arena.h"
#include "tests/test.h"

static struct arena pool;

static int open_pool(void **state) {
    arena_init(&pool, 0, NULL);
    return 0;
}

static int close_pool(void **state) {
    arena_free(&pool);
    return 0;
}

#endif
