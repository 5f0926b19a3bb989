/* check.h - kernels of a device against the processor's operations: every bit.
 *
 * A file check_NAME.c has one function, which checkdev.c names in its list.  It makes data by check_floats, runs the kernel
 * through the helpers below and the same by an operation of the processor, and compares by check_alike.  Sizes: check_small says
 * that one small size is enough (oclgrind is a thousand times slower). */
#ifndef TESTS_DEVICE_CHECK_H
#define TESTS_DEVICE_CHECK_H

#include <stdbool.h>
#include <stdio.h>

#include "backend/backend.h"
#include "backend/device/kernel_set.h"

struct check {
	struct device *dev;
	struct kernel_set kernels;
	struct backend *cpu; /* the fastest level whose bits are the plain ones */
	enum cpu_level level;
	bool small;
	int shapes, failed;
	FILE *csv; /* NULL: none */
	struct {
		struct dmem m;
		size_t bytes;
	} held[64];
	int n_held;
};

/* n floats of moderate size, some 0, -0, large and tiny; the same for the same seed. */
float *check_floats(size_t n, uint32_t seed);
/* Random 32 bits from *state. */
uint32_t check_random(uint32_t *state);

/* Memory with these bytes, or filled with 0xff (NULL); freed by check_done. */
struct dmem check_up(struct check *c, const void *from, size_t bytes);
/* Runs a kernel once; ends the program with a message where it cannot. */
void check_run(struct check *c, const char *module, const char *kernel, int threads, int gx, int gy,
               const struct darg *arg, int n);
#define ARGS DARGS
struct device_kernel *check_kernel(struct check *c, const char *module, const char *kernel, int threads);
/* Compares n floats at m with want; says what and where they differ. */
void check_alike(struct check *c, const char *what, const float *want, struct dmem m, size_t n);
void check_floats_alike(struct check *c, const char *what, const float *want, const float *got, size_t n);
/* A backend over the device, which stays open when the backend is closed; one at a time. */
struct backend *check_backend(struct check *c);
/* Frees what check_up gave; check_back: all but the first n_held. */
void check_done(struct check *c);
void check_back(struct check *c, int n_held);
/* For oclgrind, which takes what a kernel wrote for uninitialised in the next: copies all memory to the host and back after every
 * launch. */
void check_settle(struct check *c);
/* Ends the program where code is not 0. */
void check_ok(int code, const struct err *err);

void check_rows(struct check *c);
void check_products(struct check *c);
void check_attend(struct check *c);
void check_recur(struct check *c);
void check_moe(struct check *c);
void check_heads(struct check *c);
void speed_all(struct check *c);    /* floors, launches and products, as times */
void speed_layers(struct check *c); /* attention and recurrences */
void speed_say(struct check *c, const char *what, double value, const char *unit);
double speed_now(void); /* seconds */

#endif
