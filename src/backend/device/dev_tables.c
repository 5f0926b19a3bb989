/* dev_tables.c - the tables of a pass, brought over at once when it begins. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/dev.h"
#include "base/alloc.h"

enum { ALIGN = 64 };

/* Room for n members in the tables; where they are. */
static size_t table_room(struct dev *d, size_t n, size_t each)
{
	size_t at = d->table_n, bytes = (size_mul(n, each) + ALIGN - 1) / ALIGN * ALIGN;

	if (at + bytes > d->table_cap) {
		d->table_cap = 2 * (at + bytes);
		d->table = xrealloc(d->table, d->table_cap);
	}
	d->table_n += bytes;
	return at;
}

static size_t table_put(struct dev *d, const void *from, size_t n, size_t each)
{
	size_t at = table_room(d, n, each);

	if (from && n)
		memcpy(d->table + at, from, n * each);
	return at;
}

void dev_kept_floats(const struct state_shape *shape, size_t *s, size_t *tail)
{
	*s = (size_t)shape->layers * state_floats(shape);
	*tail = ((size_t)shape->layers * state_tail_floats(shape) + 15) / 16 * 16;
}

static void put_views(struct dev *d, const struct pass *p)
{
	struct step_keep keep;
	size_t state = 0, s = 0, tail = 0;

	for (int g = 0; g < KV_GROUPS; g++)
		if (p->kv[g])
			d->page[g] = table_put(d, d->rehearsing ? NULL : p->kv[g]->page,
			                       (size_t)p->n_item * (size_t)p->kv[g]->page_max, sizeof *p->kv[g]->page);
	if (!p->state)
		return;
	d->items = table_room(d, (size_t)p->n_item, sizeof(struct step_item));
	if (!d->rehearsing)
		step_items((struct step_item *)(void *)(d->table + d->items), p, p->state);
	dev_kept_floats(&p->state->shape, &s, &tail);
	state = s + tail;
	d->keeps = table_room(d, (size_t)p->state->n_keep, sizeof keep);
	for (int i = 0; i < p->state->n_keep; i++) {
		const struct state_keep *k = &p->state->keep[i];

		keep = (struct step_keep){ k->item, k->row, (int)((size_t)i * state / 16),
			                   (int)(((size_t)i * state + s) / 16) };
		memcpy(d->table + d->keeps + (size_t)i * sizeof keep, &keep, sizeof keep);
	}
	dev_room(d, ROOM_KEPT, (size_t)p->state->n_keep * state * sizeof(float));
}

static void put_angles(struct dev *d, const struct pass *p, struct dev_angles *a)
{
	const struct attn attn = { .rope = a->rope, .q_bend = a->bend, .q_bend_every = a->bend_every };
	size_t n = (size_t)p->n_row, freqs = (size_t)a->rope.n_freq;

	a->cosines = table_room(d, n * freqs, sizeof(float));
	a->sines = table_room(d, n * freqs, sizeof(float));
	a->bends = table_room(d, n, sizeof(float));
	step_angles((float *)(void *)(d->table + a->cosines), (float *)(void *)(d->table + a->sines),
	            (float *)(void *)(d->table + a->bends), &attn, p);
}

static void put_units(struct dev *d, const struct pass *p, struct dev_units *u)
{
	const struct attn attn = { .heads = u->heads,
		                   .heads_kv = u->heads_kv,
		                   .dim = u->dim,
		                   .window = u->window,
		                   .first = u->first,
		                   .both_ways = u->both_ways };
	struct attend_unit *unit;

	u->at = table_room(d, (size_t)p->n_row, sizeof *unit);
	unit = (struct attend_unit *)(void *)(d->table + u->at);
	u->n = attend_units_cut(unit, &attn, p);
	u->part_bytes = attend_part_bytes(&attn, p, unit, u->n, &u->segments);
}

/* All tables of the pass, anew. */
static void tables_up(struct dev *d, const struct pass *p)
{
	size_t rows = (size_t)p->n_row;
	struct dmem to;
	struct err err;

	d->table_n = 0;
	d->rows = table_room(d, rows, sizeof(struct step_row));
	step_rows((struct step_row *)(void *)(d->table + d->rows), p);
	d->tok = table_put(d, p->tok, p->tok ? rows : 0, sizeof *p->tok);
	d->logit_row = table_put(d, p->logit_row, (size_t)p->n_logit, sizeof *p->logit_row);
	d->pick = table_put(d, p->picked.row, (size_t)p->picked.n, sizeof *p->picked.row);
	d->brought = table_room(d, (size_t)p->brought.n * (size_t)p->brought.cols, sizeof(float));
	for (int i = 0; i < p->brought.n; i++)
		memcpy(d->table + d->brought + (size_t)i * (size_t)p->brought.cols * sizeof(float), p->brought.v[i],
		       (size_t)p->brought.cols * sizeof(float));
	put_views(d, p);
	for (int i = 0; i < d->n_angles; i++)
		put_angles(d, p, &d->angles[i]);
	for (int i = 0; i < d->n_units; i++)
		put_units(d, p, &d->units[i]);
	to = dev_room(d, ROOM_TABLES, d->table_n);
	if (!dev_idle(d))
		dev_ok(d, d->dev->ops->up(d->dev, to, d->table, d->table_n, &err), &err);
}

int dev_begin(struct pass *p)
{
	struct dev *d = dev_of(p);

	d->of = p;
	if (!dev_idle(d))
		tables_up(d, p);
	return d->be.failed.code;
}

/* Copies the states that kernels kept in ROOM_KEPT to where the view wants them. */
static void keeps_out(struct dev *d, const struct state_view *v)
{
	size_t s, tail;
	struct err err;

	dev_kept_floats(&v->shape, &s, &tail);
	for (int i = 0; i < v->n_keep; i++) {
		const struct state_keep *k = &v->keep[i];
		struct dmem from = dmem_at(d->room[ROOM_KEPT].mem, (size_t)i * (s + tail) * sizeof(float));

		if (!dev_idle(d) && k->s && s)
			dev_ok(d,
			       d->dev->ops->copy(d->dev, dev_at(d, k->s), from,
			                         state_floats(&v->shape) * (size_t)v->shape.layers * sizeof(float),
			                         &err),
			       &err);
		if (!dev_idle(d) && k->tail && tail)
			dev_ok(d,
			       d->dev->ops->copy(d->dev, dev_at(d, k->tail), dmem_at(from, s * sizeof(float)),
			                         state_tail_floats(&v->shape) * (size_t)v->shape.layers * sizeof(float),
			                         &err),
			       &err);
	}
}

int dev_end(struct pass *p)
{
	struct dev *d = dev_of(p);
	struct err err;

	if (p->state && d->of == p && !d->rehearsing)
		keeps_out(d, p->state);
	d->of = NULL;
	if (!d->be.failed.code)
		dev_ok(d, d->dev->ops->wait(d->dev, &err), &err);
	return d->be.failed.code;
}

/* ---- what operations find ---- */

static bool same_rope(const struct rope *a, const struct rope *b)
{
	return a->freq == b->freq && a->n_freq == b->n_freq && a->mscale == b->mscale && a->axis == b->axis;
}

/* Operations that are the first to name a rope or a geometry have the tables brought over again. */
const struct dev_angles *dev_angles_of(struct pass *p, const struct attn *a)
{
	struct dev *d = dev_of(p);
	int i = 0;

	while (i < d->n_angles && !(same_rope(&d->angles[i].rope, &a->rope) && d->angles[i].bend == a->q_bend &&
	                            d->angles[i].bend_every == a->q_bend_every))
		i++;
	if (i == d->n_angles) {
		if (i == (int)(sizeof d->angles / sizeof *d->angles))
			i = d->n_angles = 0;
		d->angles[d->n_angles++] = (struct dev_angles){ .rope = a->rope,
			                                        .bend = a->q_bend,
			                                        .bend_every = a->q_bend_every };
		tables_up(d, p);
	}
	return &d->angles[i];
}

const struct dev_units *dev_units_of(struct pass *p, const struct attn *a)
{
	struct dev *d = dev_of(p);
	int i = 0;

	for (; i < d->n_units; i++) {
		const struct dev_units *u = &d->units[i];

		if (u->heads == a->heads && u->heads_kv == a->heads_kv && u->dim == a->dim && u->window == a->window &&
		    u->first == a->first && u->both_ways == a->both_ways)
			return u;
	}
	if (i == (int)(sizeof d->units / sizeof *d->units))
		i = d->n_units = 0;
	d->units[d->n_units++] = (struct dev_units){ .heads = a->heads,
		                                     .heads_kv = a->heads_kv,
		                                     .dim = a->dim,
		                                     .window = a->window,
		                                     .first = a->first,
		                                     .both_ways = a->both_ways };
	tables_up(d, p);
	return &d->units[i];
}
