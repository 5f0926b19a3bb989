/* test_backend.h - the backend that a test runs over, named by the environment.
 *
 * WEFT_TEST_BACKEND: cpu (also where it is not set), or far (far.h).  An unknown name ends the test.  A backend that is added to the
 * table in test_backend.c inherits every test that opens its backend here. */
#ifndef TESTS_BACKEND_TEST_BACKEND_H
#define TESTS_BACKEND_TEST_BACKEND_H

#include "backend/backend.h"

/* The caller closes it. */
struct backend *test_backend_open(int threads, enum cpu_level level);

#endif
