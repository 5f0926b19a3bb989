/* test_backend.c - see test_backend.h. */
#include "test_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "far.h"

static struct backend *far(int threads, enum cpu_level level)
{
	return far_open(backend_cpu_open(threads, level));
}

static const struct {
	const char *name;
	struct backend *(*open)(int threads, enum cpu_level level);
} backends[] = { { "cpu", backend_cpu_open }, { "far", far } };

struct backend *test_backend_open(int threads, enum cpu_level level)
{
	const char *name = getenv("WEFT_TEST_BACKEND");

	for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
		if (!strcmp(name ? name : "cpu", backends[i].name))
			return backends[i].open(threads, level);
	fprintf(stderr, "WEFT_TEST_BACKEND: no backend %s\n", name);
	exit(1);
}
