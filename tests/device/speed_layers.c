/* speed_layers.c - what a device gives in attention and in recurrences. */
#include <stdlib.h>

#include "backend/device/device_attend.h"
#include "backend/device/device_recur.h"
#include "base/alloc.h"
#include "check.h"

enum { PAGE_ROWS = 16 };

/* Seconds of one call, of several in a row: the best of five rounds. */
static double timed(struct check *c, void (*run)(void *), void *arg, int calls)
{
	struct err err = { 0 };
	double best = 1e9;

	for (int round = 0; round < 5; round++) {
		double t = speed_now();

		for (int i = 0; i < calls; i++)
			run(arg);
		check_ok(c->dev->ops->wait(c->dev, &err), &err);
		t = (speed_now() - t) / calls;
		best = t < best ? t : best;
	}
	return best;
}

/* ---- attention ---- */

struct attention {
	struct check *c;
	struct attn a;
	struct device_attn m;
	struct dmem out, q;
	int units, segments;
};

static void attend_once(void *arg)
{
	struct attention *t = arg;
	struct err err = { 0 };

	check_ok(device_attend(&t->c->kernels, &t->m, &t->a, t->out, t->q, (struct dmem){ 0 }, t->units, t->segments,
	                       &err),
	         &err);
}

/* n rows of each of `items` sequences that have `before` positions; a byte repeated is a key and a value. */
static void attention(struct check *c, const char *format, int items, int n, int before)
{
	struct attention t = { .c = c, .a = { .heads = 16, .heads_kv = 4, .dim = 256, .scale = 0.06f } };
	const struct kv_rows all = kv_rows_of(kv_format_find(format));
	struct kv_layer layer;
	struct kv_view view = { .layer = &layer, .page_rows = PAGE_ROWS };
	int n_row = items * n, pages = (before + n + PAGE_ROWS - 1) / PAGE_ROWS;
	int32_t *page = xmalloc((size_t)(items * pages) * sizeof *page), *pos = xmalloc((size_t)n_row * sizeof *pos),
		*item = xmalloc((size_t)n_row * sizeof *item);
	struct step_row *rows = xmalloc((size_t)n_row * sizeof *rows);
	struct attend_unit *unit = xmalloc((size_t)n_row * sizeof *unit);
	struct pass p = { .n_row = n_row, .n_item = items, .pos = pos, .item = item };
	struct attend_shape shape;
	size_t row_bytes, q_bytes = (size_t)n_row * 16 * 256 * sizeof(float), part;
	double s;
	char what[80];
	struct err err = { 0 };

	view.page_max = pages;
	view.page_bytes = kv_layers_lay(&layer, 1, &all, 4, 256, PAGE_ROWS);
	row_bytes = 4 * (layer.row_bytes[0] + layer.row_bytes[1]);
	for (int i = 0; i < items * pages; i++)
		page[i] = i;
	for (int i = 0; i < n_row; i++)
		item[i] = i / n, pos[i] = before + i % n;
	step_rows(rows, &p);
	shape = attend_shape_of(&t.a, 16 * 256, 256, &view, 0);
	t.units = attend_units_cut(unit, &t.a, &p);
	part = attend_part_bytes(&t.a, &p, unit, t.units, &t.segments);
	t.m.pages = check_up(c, NULL, view.page_bytes * (size_t)(items * pages));
	check_ok(c->dev->ops->fill(c->dev, t.m.pages, 0x3c, view.page_bytes * (size_t)(items * pages), &err), &err);
	t.m.page = check_up(c, page, (size_t)(items * pages) * sizeof *page);
	t.m.rows = check_up(c, rows, (size_t)n_row * sizeof *rows);
	t.m.attend_shape = check_up(c, &shape, sizeof shape);
	t.m.units = check_up(c, unit, (size_t)t.units * sizeof *unit);
	t.m.part = check_up(c, NULL, part);
	t.q = check_up(c, NULL, q_bytes), t.out = check_up(c, NULL, q_bytes);
	check_ok(c->dev->ops->fill(c->dev, t.q, 0x3c, q_bytes, &err), &err);
	s = timed(c, attend_once, &t, n > 1 ? 1 : 10);
	snprintf(what, sizeof what, "attention, %s, %d x %d rows after %d", format, items, n, before);
	if (n == 1) {
		speed_say(c, what, 1e6 * s, "us");
		speed_say(c, what, 1e-9 * (double)row_bytes * (double)before * items / s, "GB/s");
	} else {
		speed_say(c, what, 4e-12 * 16 * 256 * (double)n_row * (before + 0.5 * n) / s, "TFLOP/s");
	}
	check_done(c);
	free(page), free(pos), free(item), free(rows), free(unit);
}

/* ---- recurrences ---- */

struct recurrence {
	struct check *c;
	struct state_view view;
	struct device_recur m;
	struct dmem out, x, a, b;
	int n_row, items;
};

static void recur_once(void *arg)
{
	struct recurrence *t = arg;
	struct err err = { 0 };

	check_ok(
		device_recur(&t->c->kernels, &t->m, &t->view, true, t->out, t->x, t->a, t->b, t->n_row, t->items, &err),
		&err);
}

static struct dmem zeros(struct check *c, size_t n)
{
	float *f = xcalloc(n + 1, sizeof *f);
	struct dmem m = check_up(c, f, n * sizeof *f);

	free(f);
	return m;
}

/* n rows of each of `items` sequences: 32 heads of dim_k by dim_v, zeros. */
static void recurrence(struct check *c, enum recur_rule_id rule, const char *name, int dim_v, int items, int n)
{
	struct recurrence t = { .c = c, .n_row = items * n, .items = items };
	struct state_shape shape = { .layers = 1,
		                     .heads_k = rule == RECUR_SSM ? 8 :
		                                rule == RECUR_KDA ? 32 :
		                                                    16,
		                     .heads_v = 32,
		                     .dim_k = 128,
		                     .dim_v = dim_v,
		                     .rule = rule };
	struct step_item *item = xmalloc((size_t)items * sizeof *item);
	struct recur r = { .dt_max = 1 };
	struct recur_shape s;
	struct recur_room room;
	size_t rows = (size_t)t.n_row, cols = (size_t)(2 * shape.heads_k * 128 + 32 * dim_v);
	double seconds;
	char what[80];

	t.view = (struct state_view){ .shape = shape, .tape_rows = 1 };
	s = recur_shape_of(&r, &t.view, 0);
	room = recur_room_floats(&shape, t.n_row);
	for (int i = 0; i < items; i++)
		item[i] = (struct step_item){ .row = i * n, .n = n, .sure = n, .slot = i, .tail = n };
	t.m.s = zeros(c, (size_t)items * state_floats(&shape)), t.m.tail = zeros(c, 1);
	t.m.tape = zeros(c, (size_t)items * state_tape_floats(&shape)), t.m.kept = zeros(c, 1);
	t.m.items = check_up(c, item, (size_t)items * sizeof *item), t.m.keeps = zeros(c, 4);
	t.m.shape = check_up(c, &s, sizeof s);
	t.m.rate = zeros(c, 32), t.m.dt_bias = zeros(c, 32 * 128), t.m.rows = zeros(c, 3);
	t.m.kq = zeros(c, room.kq), t.m.dot = zeros(c, room.dot), t.m.decay = zeros(c, room.decay);
	t.m.beta = zeros(c, room.beta), t.m.update = zeros(c, room.update);
	t.x = zeros(c, rows * cols), t.a = zeros(c, rows * 32 * 128), t.b = zeros(c, rows * 32),
	t.out = zeros(c, rows * 32 * (size_t)dim_v);
	seconds = timed(c, recur_once, &t, n > 1 ? 2 : 10);
	snprintf(what, sizeof what, "%s, %d x %d rows of 32 heads", name, items, n);
	speed_say(c, what, 1e6 * seconds / n, "us a token");
	check_done(c);
	free(item);
}

void speed_layers(struct check *c)
{
	int most = c->small ? 300 : 32768, rows = c->small ? 20 : 2048;

	for (int items = 1; items <= 8; items += 7)
		for (int before = c->small ? 300 : 1024; before <= most; before *= 8)
			attention(c, "bf16", items, 1, before);
	attention(c, "u8g64", 1, 1, most);
	attention(c, "bf16", 1, rows, 0);
	attention(c, "bf16", 1, c->small ? 20 : 512, c->small ? 300 : 8192);
	attention(c, "u8g64", 1, rows, 0);
	for (int items = 1; items <= 8; items += 7) {
		recurrence(c, RECUR_DELTA, "gated delta", 128, items, 1);
		recurrence(c, RECUR_DELTA, "gated delta", 128, items, rows);
	}
	recurrence(c, RECUR_KDA, "kda", 128, 1, rows);
	recurrence(c, RECUR_SSM, "ssm", 64, 1, rows);
}
