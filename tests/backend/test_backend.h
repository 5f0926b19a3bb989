/* test_backend.h - the backend that a test runs over, named by the environment.
 *
 * WEFT_TEST_BACKEND: cpu (also where it is not set), far (far.h), split (split_backend.h: two
 * layers far away), experts (the same, all but mixtures far away), or a device of backends.h ("opencl", "cuda:0").  A name that is not
 * known, or a device that is not there, ends the test.  A backend of that list inherits every test that opens its backend here. */
#ifndef TESTS_BACKEND_TEST_BACKEND_H
#define TESTS_BACKEND_TEST_BACKEND_H

#include "backend/backend.h"

/* The caller closes it. */
struct backend *test_backend_open(int threads, enum cpu_level level);
struct backend *test_backend_named(const char *name, int threads, enum cpu_level level);

#endif
