/* profile.h - what the operations of a backend cost: time, bytes, arithmetic.
 *
 * Off, nothing is counted and nothing paid: the operations are the backend's own.
 * On, each call is timed by the caller's clock, so that a backend whose calls
 * return before their work is done must wait in them; the CPU's do.
 *
 * Bytes are those that no cache can spare a step: weights once for a call, keys
 * and values that its rows see once for each item, recurrent state read and
 * written.  Activations are not counted.  Only experts that the rows chose are
 * counted. */
#ifndef BACKEND_PROFILE_H
#define BACKEND_PROFILE_H

#include "backend/backend.h"
#include "quant/choices.h"

struct op_cost {
	const char *op; /* "linear", "attend" ... */
	char what[40];  /* of a product: its first matrix, as "mlp.gate_proj +1"; else "" */
	int64_t calls, ns;
	double bytes;
	double int_ops, bf16_ops, float_ops; /* multiplications and additions, of int8, of bf16 and of floats */
};

enum { PROFILE_ROWS = 64 };

struct profile {
	struct op_cost row[PROFILE_ROWS]; /* in the order they were first called; the last takes what is left */
	int n;
	struct backend_ops ops; /* the backend's with timers */
	const struct backend_ops *inner;
	struct choices choices;
};

/* Counts from now on, from zero, until profile_stop.  From the thread that runs
 * the passes, between two of them.  choices: whose kernels say whether a product is of int8, bf16 or floats. */
void profile_start(struct profile *, struct backend *, const struct choices *choices);
void profile_stop(struct profile *, struct backend *);
/* The sum of all rows. */
struct op_cost profile_total(const struct profile *);

#endif
