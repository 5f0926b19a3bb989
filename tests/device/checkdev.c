/* checkdev.c - kernels of a device against the processor's operations, all bits, and how fast it is.
 *
 *   checkdev opencl|cuda [library=FILE] [device=N] [csv=FILE] [small] [speed] [only=NAME]
 *
 * small: one small size of each, also by WEFT_TEST_QUICK in the environment.  speed: times instead of bits.
 * Exit 0: all alike; 1: some differ; 2: there is no such device, or it failed. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

static const struct {
	const char *name;
	void (*check)(struct check *);
} checks[] = {
	{ "rows", check_rows },   { "products", check_products }, { "attend", check_attend },
	{ "recur", check_recur }, { "moe", check_moe },           { "heads", check_heads },
};

int main(int argc, char **argv)
{
	struct check c = { .small = getenv("WEFT_TEST_QUICK") != NULL };
	const char *library = NULL, *csv = NULL, *only = NULL;
	int index = 0, speed = 0, code;
	struct err err = { 0 };

	for (int i = 2; i < argc; i++) {
		if (!strncmp(argv[i], "library=", 8))
			library = argv[i] + 8;
		else if (!strncmp(argv[i], "device=", 7))
			index = atoi(argv[i] + 7);
		else if (!strncmp(argv[i], "csv=", 4))
			csv = argv[i] + 4;
		else if (!strncmp(argv[i], "only=", 5))
			only = argv[i] + 5;
		else if (!strcmp(argv[i], "small"))
			c.small = true;
		else if (!strcmp(argv[i], "speed"))
			speed = 1;
		else
			return printf("checkdev: what is '%s'?\n", argv[i]), 2;
	}
	if (argc < 2 || (strcmp(argv[1], "opencl") != 0 && strcmp(argv[1], "cuda") != 0))
		return printf("checkdev opencl|cuda [library=FILE] [device=N] [csv=FILE] [small] [speed] [only=NAME]\n"),
		       2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	code = (!strcmp(argv[1], "cuda") ? cuda_open : opencl_open)(&c.dev, library, index, &err);
	check_ok(code, &err);
	c.kernels.dev = c.dev;
	if (strstr(c.dev->name, "Oclgrind"))
		check_settle(&c);
	printf("%s: %s, driver %s, %.1f GB\n", argv[1], c.dev->name, c.dev->driver, (double)c.dev->memory * 1e-9);
	if (csv && !(c.csv = fopen(csv, "w")))
		return printf("checkdev: cannot write %s\n", csv), 2;
	if (speed) {
		speed_all(&c);
		speed_layers(&c);
	}
	/* The fastest level of the plain arithmetic: that all of them have the same bits is known from other tests. */
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
		if (!strcmp(level_orders(l).products, "plain") && !strcmp(level_orders(l).attention, "plain"))
			c.level = l;
	c.cpu = backend_cpu_open(1, c.level);
	for (size_t i = 0; i < sizeof checks / sizeof *checks && !speed; i++) {
		int before = c.shapes, bad = c.failed;

		if (only && strcmp(only, checks[i].name) != 0)
			continue;
		checks[i].check(&c);
		printf("%s against the processor at level %s: %d comparisons, %d differ\n", checks[i].name,
		       cpu_level_name(c.level), c.shapes - before, c.failed - bad);
	}
	c.cpu->ops->close(c.cpu);
	if (c.csv)
		fclose(c.csv);
	c.dev->ops->close(c.dev);
	if (!speed)
		printf("%s: %d of %d comparisons differ\n", c.failed ? "FAILED" : "all bits alike", c.failed, c.shapes);
	return c.failed != 0;
}
