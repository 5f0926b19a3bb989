/* conv.c - the short causal convolution: see conv.h; and the operation of layers that
 * convolve apart from their recurrence, or have nothing else.
 *
 *   y[t][c] = act(bias[c] + sum over j < width of w[j][c] x[t - (width - 1) + j][c])
 *
 * Each channel is its own: parts are stretches of channels, each of which moves its part of
 * the tail and writes its part of the tape. */
#include "backend/cpu/state/conv.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/recur_kernels.h"

/* Rows convolved at a time, so that those before them are still in the cache; channels of a part. */
enum { BLOCK = 64, STRETCH = 256 };

static int slot_of(const struct conv_rows *r, int item)
{
	return r->p->span[item].slot;
}

float *conv_taped_row(const struct conv_rows *r, int item, int i)
{
	const struct span *sp = &r->p->span[item];

	return state_tape_row(r->view, sp->slot, r->layer, state_taped_at(r->view, sp) + i - state_taped(r->view, sp));
}

const float *conv_input(const struct conv_rows *r, int item, int i, int c)
{
	const struct state_shape *s = &r->view->shape;
	int slot = slot_of(r, item), owed = r->view->owed[slot];

	if (i >= 0)
		return r->in + ((size_t)r->p->row[item] + (size_t)i) * (size_t)r->n + c;
	if (owed + i >= 0)
		return state_tape_row(r->view, slot, r->layer, owed + i) + r->at + c;
	return tail_of(r->view, slot, r->layer) + (size_t)(s->conv_width - 1 + owed + i) * (size_t)s->conv_channels +
	       r->at + c;
}

void conv_tail_after(const struct conv_rows *r, float *to, int item, int row, int c, int n)
{
	int keep = r->view->shape.conv_width - 1;

	to += r->at + c;
	for (int i = 0; i < keep; i++, to += r->view->shape.conv_channels)
		memcpy(to, conv_input(r, item, row - keep + i, c), (size_t)n * sizeof *to);
}

void conv_tape(const struct conv_rows *r, int item, int c, int n)
{
	for (int i = state_taped(r->view, &r->p->span[item]); i < r->p->span[item].n; i++)
		memcpy(conv_taped_row(r, item, i) + r->at + c, conv_input(r, item, i, c), (size_t)n * sizeof(float));
}

const struct state_keep *keep_after(const struct state_view *v, int item, int row)
{
	const struct state_keep *first = NULL;

	for (int i = 0; i < v->n_keep; i++) {
		const struct state_keep *k = &v->keep[i];

		if (k->item == item && k->row > row && (!first || k->row < first->row))
			first = k;
	}
	return first;
}

void conv_apply(const struct state_view *v, int slot, int layer, int keep)
{
	size_t n = (size_t)v->shape.conv_channels;
	float *tail = tail_of(v, slot, layer);
	int rows = v->shape.conv_width - 1, old = rows > keep ? rows - keep : 0;

	if (rows <= 0)
		return;
	memmove(tail, tail + (size_t)(rows - old) * n, (size_t)old * n * sizeof *tail);
	for (int i = old; i < rows; i++)
		memcpy(tail + (size_t)i * n, state_tape_row(v, slot, layer, keep - rows + i), n * sizeof *tail);
}

void conv_move(const struct conv_rows *r, int item, int c, int n)
{
	const struct span *sp = &r->p->span[item];

	for (const struct state_keep *k = keep_after(r->view, item, 0); k; k = keep_after(r->view, item, k->row))
		conv_tail_after(r, k->tail + (size_t)r->layer * state_tail_floats(&r->view->shape), item, k->row, c, n);
	if (!r->view->still[sp->slot])
		conv_tail_after(r, tail_of(r->view, sp->slot, r->layer), item, state_taped(r->view, sp), c, n);
	conv_tape(r, item, c, n);
}

/* ---- the operation ---- */

struct job {
	struct conv_rows r;
	struct cpu_backend *c;
	const struct conv *conv;
	float *out; /* [n_conv][n_row][n] */
	int n_conv, parts;
};

/* How far apart the inputs of a convolution lie, in tokens. */
static int apart_of(const struct conv *v)
{
	return v->apart ? v->apart : 1;
}

/* Channels [c, c + n) of the item's rows first, first + apart, ... */
static void convolve(const struct job *j, int item, int first, int apart, int c, int n)
{
	const float **row = cpu_my_scratch(j->c);
	int before = j->r.view->shape.conv_width - 1, width = before / apart + 1, rows = j->r.p->span[item].n;
	size_t ld = (size_t)j->r.n;

	for (int i = first, m; i < rows; i += m * apart) {
		m = (rows - i + apart - 1) / apart;
		m = m < BLOCK ? m : BLOCK;
		for (int k = 0; k < width - 1 + m; k++)
			row[k] = conv_input(&j->r, item, i - before + k * apart, c);
		for (int k = 0; k < j->n_conv; k++) {
			const struct conv *v = &j->conv[k];
			float *out = j->out +
			             ((size_t)k * (size_t)j->r.p->n_row + (size_t)(j->r.p->row[item] + i)) * ld;

			j->c->recur->conv(out + c, ld * (size_t)apart, row, m, v->w + c, ld,
			                  v->bias ? v->bias + c : NULL, width, n, v->silu);
		}
	}
}

/* Parts: item x stretch of channels. */
static void conv_part(void *ctx, int part)
{
	const struct job *j = ctx;
	const struct conv_rows *r = &j->r;
	int item = part / j->parts, c = part % j->parts * STRETCH, n = r->n - c < STRETCH ? r->n - c : STRETCH;
	int apart = apart_of(j->conv);

	for (int first = 0; first < apart; first++)
		convolve(j, item, first, apart, c, n);
	conv_move(r, item, c, n);
}

void cpu_conv(struct pass *p, float *out, const struct conv *conv, int n_conv, const float *in, int at, int n,
              const struct state_view *view, int layer)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct job j = { { p, view, in, layer, at, n }, c, conv, out, n_conv, (n + STRETCH - 1) / STRETCH };

	assert(n_conv > 0 && at >= 0 && n > 0 && at + n <= view->shape.conv_channels);
	assert(view->shape.conv_width >= 1 && (view->shape.conv_width - 1) / apart_of(conv) < CONV_MAX);
	assert((view->shape.conv_width - 1) % apart_of(conv) == 0 && conv[n_conv - 1].apart == conv->apart);
	cpu_scratch(c, (BLOCK + CONV_MAX) * sizeof(float *));
	pool_run(c->pool, conv_part, &j, p->n_item * j.parts);
}
