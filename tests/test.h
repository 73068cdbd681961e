/* The framework of the tests in C, cmocka, and what it needs before it. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Every test is given a state, which few have. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Defines a test, which run_all_tests runs: TEST(name) { ... }. */
#define TEST(name) TEST_BETWEEN(name, NULL, NULL)

/* A test that one function of its state precedes and another follows. */
#define TEST_BETWEEN(name, set_up, tear_down)                                                                          \
    static void name(void **state);                                                                                    \
    __attribute__((constructor)) static void add_##name(void) {                                                        \
        add_test((struct CMUnitTest){#name, name, set_up, tear_down, NULL});                                           \
    }                                                                                                                  \
    static void name(void **state)

static struct CMUnitTest all_tests[64];
static size_t tests_defined;

static inline void add_test(struct CMUnitTest test) {
    if (tests_defined == sizeof all_tests / sizeof *all_tests) abort();
    all_tests[tests_defined++] = test;
}

/* Runs all tests of the program, as a group that set_up precedes and tear_down follows. Returns how many failed. */
static inline int run_all_tests(const char *group, CMFixtureFunction set_up, CMFixtureFunction tear_down) {
    return _cmocka_run_group_tests(group, all_tests, tests_defined, set_up, tear_down);
}

#endif
