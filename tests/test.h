/* The framework of the tests in C, cmocka, and what it needs before it. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Every test is given a state, which few have. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
