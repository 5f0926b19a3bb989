/* test_backend.c - see test_backend.h. */
#include "test_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backends.h"
#include "backend/split_backend.h"
#include "far.h"
#include "quant/choices.h"

struct backend *test_backend_named(const char *name, int threads, enum cpu_level level)
{
	struct backend *be;
	struct err err;

	if (!strcmp(name, "cpu"))
		return backend_cpu_open(threads, level);
	if (!strcmp(name, "far"))
		return far_open(backend_cpu_open(threads, level));
	if (!strcmp(name, "split"))
		return split_open(far_open_beside(backend_cpu_open(threads, level)), backend_cpu_open(threads, level),
		                  2);
	if (!strcmp(name, "experts"))
		return split_open_mixtures(far_open_beside(backend_cpu_open(threads, level)),
		                           backend_cpu_open(threads, level));
	if (!strncmp(name, "experts:", 8))
		return split_open_mixtures(test_backend_named(name + 8, threads, level),
		                           backend_cpu_open(threads, level));
	if (!strncmp(name, "split:", 6))
		return split_open(test_backend_named(name + 6, threads, level), backend_cpu_open(threads, level), 2);
	if (!backends_open(&be, name, NULL, &err))
		return be;
	fprintf(stderr, "%s\n", err.msg);
	exit(1);
}

struct backend *test_backend_open(int threads, enum cpu_level level)
{
	const char *name = getenv("WEFT_TEST_BACKEND");

	return test_backend_named(name ? name : "cpu", threads, level);
}
