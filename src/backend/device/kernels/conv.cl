/* conv.cl - the short causal convolution of recurrent layers, and the end of a recurrent layer: tails, and rows that go on the
 * tape (backend/cpu/state/conv.c, recur.c). */
#include "dialect.cl"
#include "math.cl"
#include "../kernel_shapes.h"

#define THREADS 256

FN long slot_layer(GLOBAL const struct recur_shape *s, GLOBAL const struct step_item *item)
{
	return (long)item->slot * s->layers + s->layer;
}
FN long tape_row_at(GLOBAL const struct recur_shape *s, GLOBAL const struct step_item *item, int row)
{
	return (slot_layer(s, item) * s->tape_rows + row) * s->tape_floats;
}

/* Channel c of [at, at + n) of the item's row i, counted from its first of this step: before it come the owed rows, on the tape,
 * and before those the tail. */
FN float input_at(GLOBAL const struct recur_shape *s, GLOBAL const struct step_item *item, GLOBAL const float *in,
                  GLOBAL const float *tail, GLOBAL const float *tape, int i, int c, int at, int n)
{
	if (i >= 0)
		return in[(long)(item->row + i) * n + c];
	i += item->owed;
	if (i >= 0)
		return tape[tape_row_at(s, item, i) + at + c];
	return tail[slot_layer(s, item) * (s->width - 1) * s->channels + (long)(s->width - 1 + i) * s->channels + at + c];
}

/* out[n_row][n] = act(bias + sum of w[j] times the input of width - 1 - j tokens before), of channels [at, at + n); rows of w lie
 * w_ld apart. */
KERNEL(THREADS) conv(MEM(float, out), MEM(const float, in), MEM(const float, tail), MEM(const float, tape), MEM(const float, w),
                     MEM(const float, bias), MEM(const struct step_row, rows), MEM(const struct step_item, items),
                     MEM(const struct recur_shape, shape), int at, int n, int w_ld, int silu)
{
	USE(float, out);
	USE_CONST(float, in);
	USE_CONST(float, tail);
	USE_CONST(float, tape);
	USE_CONST(float, w);
	USE_CONST(float, bias);
	USE_CONST(struct step_row, rows);
	USE_CONST(struct step_item, items);
	USE_CONST(struct recur_shape, shape);
	int c = BID * THREADS + TID, row = BID_Y, before = shape->width - 1;
	GLOBAL const struct step_item *item = items + rows[row].item;
	int i = row - item->row - before;
	float acc;

	if (c >= n)
		return;
	acc = mul1(w[c], input_at(shape, item, in, tail, tape, i, c, at, n));
	for (int j = 1; j <= before; j++)
		acc = fma1(w[(long)j * w_ld + c], input_at(shape, item, in, tail, tape, i + j, c, at, n), acc);
	if (!NONE(bias))
		acc = add1(acc, bias[c]);
	out[(long)row * n + c] = silu ? silu_bits(acc) : acc;
}

/* The tail as it is after `row` of the item's rows; `to` may be where it is before them. */
FN void tail_after(GLOBAL const struct recur_shape *s, GLOBAL const struct step_item *item, GLOBAL float *to, GLOBAL const float *in,
                   GLOBAL const float *tail, GLOBAL const float *tape, int row, int c, int at, int n)
{
	int keep = s->width - 1;

	for (int i = 0; i < keep; i++)
		to[(long)i * s->channels + at + c] = input_at(s, item, in, tail, tape, row - keep + i, c, at, n);
}

/* The last launch of a layer: a work-item has a number of a row of the tape, for all rows of an item that go there.  Channels
 * [at, at + n) come from in; what lies behind the channels from keys [n_row][heads_k][key_ld], of which key_of and on goes there,
 * decays, and updates [n_row][heads_v * dim_v], unless those are none. */
KERNEL(THREADS) tape_end(MEM(float, tail), MEM(float, tape), MEM(float, kept), MEM(const float, in), MEM(const float, keys),
                         MEM(const float, decay), MEM(const float, update), MEM(const struct step_item, items),
                         MEM(const struct step_keep, keeps), MEM(const struct recur_shape, shape), int n_keep, int at, int n,
                         int key_ld, int key_of, int decay_of)
{
	USE(float, tail);
	USE(float, tape);
	USE(float, kept);
	USE_CONST(float, in);
	USE_CONST(float, keys);
	USE_CONST(float, decay);
	USE_CONST(float, update);
	USE_CONST(struct step_item, items);
	USE_CONST(struct step_keep, keeps);
	USE_CONST(struct recur_shape, shape);
	GLOBAL const struct recur_shape *s = shape;
	GLOBAL const struct step_item *item = items + BID_Y;
	int f = BID * THREADS + TID, c = f - at;

	if (c >= 0 && c < n) {
		for (int i = 0; i < n_keep; i++)
			if (keeps[i].item == BID_Y)
				tail_after(s, item, kept + (long)keeps[i].tail_block * 16 + s->layer * (s->width - 1) * s->channels, in,
				           tail, tape, keeps[i].row, c, at, n);
		if (item->tail >= 0)
			tail_after(s, item, tail + slot_layer(s, item) * (s->width - 1) * s->channels, in, tail, tape, item->tail,
			           c, at, n);
		for (int i = item->sure; i < item->n; i++)
			tape[tape_row_at(s, item, item->taped_at + i - item->sure) + f] = in[(long)(item->row + i) * n + c];
	}
	if (NONE(update) || f < s->tape_key || f >= s->tape_update + s->heads_v * s->dim_v)
		return;
	for (int i = item->sure; i < item->n; i++) {
		long row = item->row + i;
		float v;

		if (f < s->tape_decay) {
			int k = f - s->tape_key;

			v = keys[(row * s->heads_k + k / s->dim_k) * key_ld + key_of + k % s->dim_k];
		} else if (f < s->tape_update) {
			int k = f - s->tape_decay;

			/* by key, decays lie beside the keys */
			v = s->decay_n == 1 ? decay[row * s->heads_v + k] :
			                      keys[(row * s->heads_v + k / s->dim_k) * key_ld + decay_of + k % s->dim_k];
		} else {
			v = update[row * s->heads_v * s->dim_v + f - s->tape_update];
		}
		tape[tape_row_at(s, item, item->taped_at + i - item->sure) + f] = v;
	}
}
