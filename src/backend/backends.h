/* backends.h - the backends that there are, by name: the processor, and devices (docs/gpu.md).
 *
 * A name is "cpu", or a kind of device and its number, "cuda:0", "opencl:1"; without a number it is 0. */
#ifndef BACKEND_BACKENDS_H
#define BACKEND_BACKENDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct backend;
struct choices; /* quant/choices.h */

struct backend_opts {
	int threads;               /* of the CPU backend */
	const struct choices *cpu; /* levels of the CPU backend */
};

/* E_ARG: no such name.  E_MISSING: no such device, or the library of its driver is not there.  E_UNSUPPORTED: the device lacks
 * what kernels need, or computes something else than the processor does (self_test.h), and the message says what. */
int backends_open(struct backend **, const char *name, const struct backend_opts *, struct err *);

/* A device, whether it can be used or not. */
struct backend_found {
	char name[24];    /* "cuda:0" */
	char device[128]; /* as it calls itself; empty: it cannot be opened */
	char driver[128];
	size_t memory;
	bool gpu;       /* and not a processor that OpenCL shows as a device */
	struct err why; /* code 0: it can be used */
};
/* The devices of all kinds; returns how many, at most `most`.  A kind without a device has none of them; one whose library is
 * not there has one, with `why`.  Opens and closes every device, which takes some 100 ms. */
int backends_find(struct backend_found *, int most);

#endif
