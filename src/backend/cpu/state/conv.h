/* conv.h - inside backend/cpu/: the short causal convolution of recurrent layers, over a step's rows, the
 * rows on the tape and the tail.  The frame of the recurrence and the operation `conv` share it. */
#ifndef BACKEND_CPU_CONV_H
#define BACKEND_CPU_CONV_H

#include "backend/cpu/cpu_backend.h"

/* Channels [at, at + n) of one layer: the step's rows, and the rows before them that the view keeps. */
struct conv_rows {
	struct pass *p;
	const struct state_view *view;
	const float *in; /* [n_row][n] */
	int layer, at, n;
};

/* The tail of a slot in a layer, and S: where the view keeps them. */
static inline float *tail_of(const struct state_view *v, int slot, int layer)
{
	return v->tail + ((size_t)slot * (size_t)v->shape.layers + (size_t)layer) * state_tail_floats(&v->shape);
}

/* Row i of the item, counted from its first of this step, on the tape, where it goes. */
float *conv_taped_row(const struct conv_rows *r, int item, int i);
/* Channel c (of n) and on of the item's row i, counted from its first of this step: before it come the owed
 * rows, on the tape, and before those the tail. */
const float *conv_input(const struct conv_rows *r, int item, int i, int c);
/* Copies channels [c, c + n) of the tail as it is after `row` of the item's rows to `to`, a tail of all
 * channels; that may be the tail before them, since what is read lies above what is written. */
void conv_tail_after(const struct conv_rows *r, float *to, int item, int row, int c, int n);
/* Lays channels [c, c + n) of the item's tentative rows, or of all that are not written to S, on the tape. */
void conv_tape(const struct conv_rows *r, int item, int c, int n);
/* Channels [c, c + n) of the item go on: the copies that the view wants, the tail and the tape. */
void conv_move(const struct conv_rows *r, int item, int c, int n);
/* The first copy of the item's state that the view wants after more than `row` of its rows; NULL: none. */
const struct state_keep *keep_after(const struct state_view *v, int item, int row);
/* Between passes: the tail of a layer moves through the first `keep` rows of the slot's tape. */
void conv_apply(const struct state_view *v, int slot, int layer, int keep);

#endif
