/* recur.h - inside backend/cpu/: the frame of recurrent layers, and what a rule adds to it.
 *
 * The frame (recur.c) walks a step's rows in blocks, head by head; convolves where the layer does; lays
 * rows on the tape and goes on from them; copies states on the way; gates and normalises what comes out.
 * A rule (rule_*.c) says what of a row reaches the kernel of recur_kernels.h that moves S. */
#ifndef BACKEND_CPU_RECUR_H
#define BACKEND_CPU_RECUR_H

#include "backend/cpu/state/conv.h"
#include "backend/cpu/recur_kernels.h"

struct recur_rule;

struct recur_job {
	struct conv_rows rows; /* of x: what is convolved, or came convolved */
	struct cpu_backend *c;
	const struct recur *r;
	const struct recur_rule *rule;
	const struct state_shape *s;
	struct state_tape tape;
	const struct recur_in *in;
	float *out;
	struct made *made;     /* in place of out; NULL: floats */
	int x_cols, rows_most; /* columns of x; rows of a block */
	int heads;             /* value heads of a part */
};

/* One part of the work on one thread: an item's rows through some value heads of one key head, with memory
 * for a block of them side by side. */
struct recur_part {
	const struct recur_job *j;
	int item, hk;
	float *kq; /* [rows][kq_ld]: the rule's key_rows vectors of dim_k */
	size_t kq_ld;
	float *v, *out;           /* [rows][dim_v] of one value head */
	float *dot, *dot2, *beta; /* [rows] */
	float *decay;             /* [rows], or [rows][dim_v] where the rule's decays are by value */
	float *spare;             /* of the kernel */
	const float **row;        /* [CONV_MAX + rows] */
};

struct recur_rule {
	const char *name;
	enum recur_head kernel;
	int key_rows;
	/* Parts are single value heads, and several share a key head; x comes convolved. */
	bool shared_keys;
	bool no_keys; /* x holds values alone */
	/* Fills kq of rows [i, i + n) where it does not depend on the value head. */
	void (*keys)(const struct recur_part *, int i, int n);
	/* Value head h of them: v, beta, dot and decays, and in t where the kernel finds decay, k, q, put ... */
	void (*head)(const struct recur_part *, int i, int n, int h, struct recur_rows *t);
	/* The key of row i of the block as it goes on the tape: the update's left factor. */
	const float *(*taped_key)(const struct recur_part *, int i);
	/* After the kernel, or NULL: out += what does not come from S. */
	void (*finish)(const struct recur_part *, int i, int n, int h);
};

/* Columns [c, c + n) of x, convolved if the layer's x is to be; m rows from i on, written ld apart. */
void recur_x(const struct recur_part *, float *out, size_t ld, int i, int m, int c, int n);
/* The row of a layer's input [n_row][cols] that is the item's row i. */
static inline const float *recur_row(const struct recur_part *k, const float *in, int i, int cols)
{
	return in + ((size_t)k->j->rows.p->row[k->item] + (size_t)i) * (size_t)cols;
}

extern const struct recur_rule rule_delta, rule_fixed, rule_ssm, rule_kda, rule_scan, rule_rwkv7;

#endif
