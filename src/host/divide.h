/* divide.h - which part of a model a device takes that has no room for all of it. */
#ifndef HOST_DIVIDE_H
#define HOST_DIVIDE_H

#include <stdbool.h>
#include <stddef.h>

/* Rates are assumed, so that one model on one machine is divided in one way: docs/gpu.md. */
enum {
	DIVIDE_DEVICE_GBS = 400, /* GB/s of a device's memory */
	DIVIDE_MACHINE_GBS = 40, /* of the machine's */
	DIVIDE_CROSSING_US = 20, /* microseconds for rows to go from one to the other */
};

/* Bytes are of weights as they are stored. */
struct divide_ask {
	int layers;
	const size_t *bytes, *mixtures; /* [layers] of a layer; those of them that only its mixture reads */
	double used;                    /* share of a mixture's bytes that a token reads, 0 to 1 */
	size_t beside;                  /* of no layer */
	size_t read;                    /* of these, that a token reads: the output matrix */
	size_t memory;                  /* that the device may give */
	bool first_layers; /* may the device have the first layers alone?  Else only all but the mixtures. */
};

struct division {
	int layers;       /* the first layers, or DEVICE_NO_EXPERTS */
	size_t there;     /* bytes of weights on the device */
	double ms, alone; /* estimated milliseconds for a token: divided, and on the processor alone */
};

/* Chooses the division whose next token comes soonest: bytes read on each side by its rate, and the crossings.  Weights, with
 * an eighth for their layout, get three quarters of the memory less a gigabyte, or less an eighth of it where that is less; keys,
 * values, states and a step get the rest.  False: nothing fits, or the processor alone is as fast. */
bool divide(const struct divide_ask *a, struct division *to);

#endif
