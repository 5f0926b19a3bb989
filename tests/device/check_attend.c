/* check_attend.c - kernels/append.cl and attend.cl: what attention layers write to the cache, and what they give. */
#include <stdlib.h>
#include <string.h>

#include "backend/device/device_attend.h"
#include "base/alloc.h"
#include "check.h"

enum { ITEMS = 2, ROWS = 400, PAGE_MAX = 1024 };

struct shape {
	const char *keys, *values;
	int dim, heads, heads_kv, page_rows;
	int window, first;
	float cap;
	bool sinks, gate, norms, adjacent, v_norm, v_is_key;
	int n_freq, norm_from, bend_every;
	int stretch; /* of rows of the first step, from 5 on, that see each other */
};
static const struct shape shapes[] = {
	{ "bf16", "bf16", 32, 4, 2, 3, .norms = true, .gate = true, .n_freq = 16 },
	{ "u8g32", "u8g32", 32, 4, 2, 16, .sinks = true, .n_freq = 8 },
	{ "u4g32", "u4g32", 32, 4, 2, 5, .cap = 30, .v_norm = true, .n_freq = 16, .adjacent = true },
	{ "tq4", "tq3", 64, 4, 2, 5, .sinks = true, .n_freq = 16 },
	{ "bf16", "bf16", 64, 6, 2, 16, .norms = true, .n_freq = 32 },
	{ "bf16", "bf16", 128, 20, 1, 16, .window = 90, .sinks = true, .cap = 5, .n_freq = 16, .gate = true },
	{ "bf16", "bf16", 256, 8, 2, 16, .norms = true, .gate = true, .n_freq = 32 },
	{ "f32", "bf16", 96, 6, 3, 16, .first = 37, .n_freq = 48, .v_is_key = true },
	{ "bf16", "f32", 80, 6, 2, 7, .window = 300, .n_freq = 16, .norms = true, .norm_from = 16 },
	{ "u8g64", "u8g64", 128, 8, 2, 16, .norms = true, .n_freq = 64, .stretch = 40 },
	{ "u8g32", "u4g32", 96, 4, 1, 16, .window = 200, .first = 90, .n_freq = 48 },
	{ "u8g128", "u8g64", 256, 4, 2, 16, .n_freq = 32, .bend_every = 100, .gate = true },
	{ "u4g64", "u8g128", 128, 40, 2, 16, .sinks = true, .n_freq = 64 },
	{ "bf16", "bf16", 512, 10, 1, 16, .norms = true, .n_freq = 64, .v_is_key = true },
	{ "bf16", "bf16", 576, 20, 1, 16, .norms = true, .n_freq = 32, .adjacent = true, .norm_from = 64,
	  .v_is_key = true },
	{ "tq3", "tq2", 64, 8, 2, 16, .norms = true, .n_freq = 32, .window = 150, .bend_every = 100, .gate = true },
	{ "tq4", "tq3", 256, 8, 2, 16, .norms = true, .gate = true, .n_freq = 32 },
	{ "u8g64", "tq4", 64, 6, 2, 7, .cap = 20, .n_freq = 16, .stretch = 30 },
	{ "tq2", "bf16", 64, 20, 1, 16, .n_freq = 32 },
	{ "tq4", "tq4", 512, 10, 1, 16, .sinks = true, .n_freq = 64, .v_is_key = true },
};

/* One model's layer: what the processor has, and the same on the device. */
struct world {
	struct check *c;
	const struct shape *shape;
	struct attn a;
	struct kv_layer layer;
	struct kv_view view;
	int32_t page[ITEMS * PAGE_MAX];
	float freq[128];
	float *q_norm, *k_norm, *sinks;
	size_t bytes;
	struct device_attn m;
	char what[120];
};

static void attn_of(struct world *w)
{
	const struct shape *s = w->shape;

	for (int i = 0; i < s->n_freq; i++)
		w->freq[i] = 1.0f / (1.0f + (float)i);
	w->a = (struct attn){ .heads = s->heads,
		              .heads_kv = s->heads_kv,
		              .dim = s->dim,
		              .scale = 0.11f,
		              .eps = 1e-6f,
		              .q_norm = s->norms ? w->q_norm : NULL,
		              .k_norm = s->norms ? w->k_norm : NULL,
		              .rope = { .freq = w->freq, .n_freq = s->n_freq, .mscale = 1.1f, .adjacent = s->adjacent },
		              .v_norm = s->v_norm,
		              .window = s->window,
		              .first = s->first,
		              .both_ways = s->stretch > 0,
		              .softcap = s->cap,
		              .sinks = s->sinks ? w->sinks : NULL,
		              .q_bend = 0.1f,
		              .q_bend_every = s->bend_every,
		              .norm_from = s->norm_from,
		              .v_is_key = s->v_is_key };
}

static void world_open(struct world *w)
{
	const struct shape *s = w->shape;
	const struct kv_rows rows = { .all = { kv_format_find(s->keys), kv_format_find(s->values) } };
	int pages = 0;

	w->q_norm = check_floats((size_t)s->dim, 5), w->k_norm = check_floats((size_t)s->dim, 6);
	w->sinks = check_floats((size_t)s->heads, 7);
	attn_of(w);
	w->view = (struct kv_view){ .layer = &w->layer,
		                    .page_rows = s->page_rows,
		                    .heads = s->heads_kv,
		                    .dim = s->dim,
		                    .page = w->page,
		                    .page_max = PAGE_MAX };
	w->view.page_bytes = kv_layers_lay(&w->layer, 1, &rows, s->heads_kv, s->dim, s->page_rows);
	for (int at = 0; at < ROWS + 300; at += s->page_rows) /* those of items alternate */
		for (int i = ITEMS - 1; i >= 0; i--)
			w->page[i * PAGE_MAX + at / s->page_rows] = pages++;
	w->bytes = w->view.page_bytes * (size_t)pages;
	w->view.base = xmalloc(w->bytes);
	memset(w->view.base, 0xff, w->bytes);
	w->m.pages = check_up(w->c, NULL, w->bytes);
	w->m.page = check_up(w->c, w->page, sizeof w->page);
	if (w->a.q_norm)
		w->m.q_norm = check_up(w->c, w->q_norm, (size_t)s->dim * sizeof(float));
	if (w->a.k_norm)
		w->m.k_norm = check_up(w->c, w->k_norm, (size_t)s->dim * sizeof(float));
	w->m.turned = device_attn_turned(&w->a, &w->layer);
	if (w->a.sinks)
		w->m.sinks = check_up(w->c, w->sinks, (size_t)s->heads * sizeof(float));
}

static void world_close(struct world *w)
{
	check_done(w->c);
	free(w->q_norm), free(w->k_norm), free(w->sinks), free(w->view.base);
}

static void tables_up(struct world *w, const struct pass *p, size_t q_row)
{
	struct check *c = w->c;
	size_t n = (size_t)p->n_row, f = n * (size_t)w->a.rope.n_freq * sizeof(float);
	struct append_shape append = append_shape_of(&w->a, q_row, (size_t)w->a.dim, &w->view, 0);
	struct attend_shape attend = attend_shape_of(&w->a, q_row, (size_t)w->a.dim, &w->view, 0);
	struct step_row *rows = xmalloc(n * sizeof *rows);
	float *cosines = xmalloc(f + 4), *sines = xmalloc(f + 4), *bend = xmalloc(n * sizeof *bend);

	step_rows(rows, p);
	step_angles(cosines, sines, bend, &w->a, p);
	w->m.rows = check_up(c, rows, n * sizeof *rows);
	w->m.cosines = check_up(c, cosines, f), w->m.sines = check_up(c, sines, f);
	w->m.bend = w->a.q_bend_every ? check_up(c, bend, n * sizeof *bend) : (struct dmem){ 0 };
	w->m.append_shape = check_up(c, &append, sizeof append);
	w->m.attend_shape = check_up(c, &attend, sizeof attend);
	free(rows), free(cosines), free(sines), free(bend);
}

/* One step of these rows: q, k and v of it are random, and lie in q's rows with the gate beside them. */
static void step(struct world *w, const struct pass *p, const char *kind)
{
	struct check *c = w->c;
	const struct attn *a = &w->a;
	size_t n = (size_t)p->n_row, q_row = (size_t)(2 * a->heads * a->dim), kv = n * (size_t)(a->heads_kv * a->dim),
	       of_out = n * (size_t)(a->heads * a->dim), part;
	float *q = check_floats(n * q_row, 11), *k = check_floats(kv, 12), *v = check_floats(kv, 13);
	float *out = xmalloc(of_out * sizeof *out);
	struct dmem dq = check_up(c, q, n * q_row * sizeof *q), dk = check_up(c, k, kv * sizeof *k),
		    dv = check_up(c, v, kv * sizeof *v), dout = check_up(c, NULL, of_out * sizeof *out),
		    gate = w->shape->gate ? dmem_at(dq, (size_t)(a->heads * a->dim) * sizeof *q) : (struct dmem){ 0 };
	struct attend_unit *unit = xmalloc(n * sizeof *unit);
	int units, segments;
	struct err err = { 0 };
	struct pass pass = *p;

	tables_up(w, p, q_row);
	check_ok(device_append(&c->kernels, &w->m, a, p->n_row, dq, dk, dv, &err), &err);
	c->cpu->ops->kv_append(&pass, a, q, q_row, (size_t)a->dim, k, v, &w->view, 0);
	snprintf(w->what, sizeof w->what, "queries of %s, %s/%s, %d of %d", kind, w->shape->keys, w->shape->values,
	         a->heads, a->dim);
	check_alike(c, w->what, q, dq, n * q_row);
	snprintf(w->what, sizeof w->what, "cache of %s, %s/%s, %d of %d", kind, w->shape->keys, w->shape->values,
	         a->heads_kv, a->dim);
	check_alike(c, w->what, (const float *)(const void *)w->view.base, w->m.pages, w->bytes / sizeof(float));

	units = attend_units_cut(unit, a, p);
	part = attend_part_bytes(a, p, unit, units, &segments);
	w->m.units = check_up(c, unit, (size_t)units * sizeof *unit);
	w->m.part = check_up(c, NULL, part);
	check_ok(device_attend(&c->kernels, &w->m, a, dout, dq, gate, units, segments, &err), &err);
	c->cpu->ops->attend(&pass, out, a, q, w->shape->gate ? q + a->heads * a->dim : NULL, q_row, (size_t)a->dim,
	                    &w->view, 0);
	snprintf(w->what, sizeof w->what, "attention of %s, %s/%s, %d of %d in %d segments", kind, w->shape->keys,
	         w->shape->values, a->heads, a->dim, segments);
	check_alike(c, w->what, out, dout, of_out);
	free(q), free(k), free(v), free(out), free(unit);
}

/* Rows [from[i], from[i] + n[i]) of each item. */
static void rows(struct world *w, const int *from, const int *n, const char *kind)
{
	static int32_t pos[ROWS], item[ROWS], see[ROWS];
	struct pass p = { .be = w->c->cpu, .arith = ARITH_FAST, .n_item = ITEMS, .pos = pos, .item = item, .see = see };
	int held = w->c->n_held, stretch = w->shape->stretch;

	for (int i = 0; i < ITEMS; i++)
		for (int r = from[i]; r < from[i] + n[i]; r++) {
			item[p.n_row] = i;
			see[p.n_row] = stretch && from[0] == 0 && i == 0 && r >= 5 && r < 5 + stretch ? 4 + stretch : r;
			pos[p.n_row++] = r;
		}
	step(w, &p, kind);
	check_back(w->c, held);
}

static void layer(struct check *c, const struct shape *s)
{
	struct world *w = xcalloc(1, sizeof *w);
	int long_one = c->small ? 70 : 330;

	w->c = c;
	w->shape = s;
	world_open(w);
	rows(w, (int[]){ 0, 0 }, (int[]){ long_one, c->small ? 4 : 21 }, "a prompt");
	rows(w, (int[]){ long_one, c->small ? 4 : 21 }, (int[]){ 1, 3 }, "a step");
	if (!c->small)
		rows(w, (int[]){ long_one + 1, 24 }, (int[]){ 270, 1 }, "a chunk");
	world_close(w);
	free(w);
}

void check_attend(struct check *c)
{
	for (size_t i = 0; i < (c->small ? 4 : sizeof shapes / sizeof *shapes); i++)
		layer(c, &shapes[i]);
}
