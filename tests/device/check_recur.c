/* check_recur.c - kernels/conv.cl and recur.cl: what recurrent layers give, and the states, tails and tapes that they leave: prompts,
 * drafts, rows that are owed, rows that leave the state as it is, copies on the way. */
#include <stdlib.h>
#include <string.h>

#include "backend/device/device_recur.h"
#include "base/alloc.h"
#include "check.h"

enum { ITEMS = 2, LAYERS = 2, LAYER = 1, TAPE_ROWS = 11, MOST = 90 };

struct shape {
	enum recur_rule_id rule;
	int heads_k, heads_v, dim_k, dim_v, width;
	bool tiled;
	float beta_scale, gate_floor;
	int gate;  /* 1: SiLU, 2: a sigmoid, with a norm; 0: neither */
	int heads; /* of one norm; 0: one */
};
static const struct shape shapes[] = {
	{ RECUR_DELTA, 1, 2, 16, 32, 4, false, 0, 0, 1 },    { RECUR_KDA, 2, 2, 16, 32, 4, false, 0, 0, 2 },
	{ RECUR_SSM, 1, 2, 16, 16, 4, false, 0, 0 },         { RECUR_DELTA, 2, 4, 128, 128, 4, false, 0, 0 },
	{ RECUR_DELTA, 2, 6, 96, 104, 3, true, 2, 0, 1, 3 }, { RECUR_FIXED, 2, 2, 64, 80, 0, false, 0, 0 },
	{ RECUR_SSM, 1, 4, 128, 64, 4, false, 0, 0 },        { RECUR_SSM, 2, 4, 256, 48, 2, false, 0, 0 },
	{ RECUR_KDA, 3, 3, 128, 128, 4, false, 0, 0, 2 },    { RECUR_KDA, 2, 2, 64, 40, 4, false, 0, -5 },
};

struct world {
	struct check *c;
	const struct shape *shape;
	struct recur r;
	struct state_view view;
	int32_t owed[ITEMS];
	bool still[ITEMS];
	struct state_keep keep[1];
	size_t s_floats, tail_floats, tape_floats; /* of all slots and layers */
	float *kept;                               /* S, then the tail */
	size_t kept_s, kept_floats;
	float *conv, *conv_bias, *rate, *dt_bias, *skip, *gain;
	struct device_recur m;
	struct dmem dgain;
	int cols;
};

static float *of(size_t n, uint32_t seed, float scale)
{
	float *f = check_floats(n, seed);

	for (size_t i = 0; i < n; i++)
		f[i] = f[i] < -1 || f[i] > 1 ? 0.5f : f[i] * scale;
	return f;
}

static struct dmem floats_up(struct check *c, const float *f, size_t n)
{
	return check_up(c, f, n * sizeof *f);
}

static void world_open(struct world *w)
{
	const struct shape *s = w->shape;
	bool ssm = s->rule == RECUR_SSM;
	size_t values = (size_t)(s->heads_v * s->dim_v), channels;
	struct check *c = w->c;

	w->cols = 2 * s->heads_k * s->dim_k + s->heads_v * s->dim_v;
	channels = s->width ? (size_t)w->cols : 0;
	w->view.shape = (struct state_shape){ .layers = LAYERS,
		                              .heads_k = s->heads_k,
		                              .heads_v = s->heads_v,
		                              .dim_k = s->dim_k,
		                              .dim_v = s->dim_v,
		                              .conv_channels = (int)channels,
		                              .conv_width = s->width,
		                              .rule = s->rule,
		                              .tiled = s->tiled };
	w->s_floats = ITEMS * LAYERS * state_floats(&w->view.shape);
	w->tail_floats = ITEMS * LAYERS * state_tail_floats(&w->view.shape);
	w->tape_floats = ITEMS * LAYERS * TAPE_ROWS * state_tape_floats(&w->view.shape);
	w->kept_s = LAYERS * state_floats(&w->view.shape);
	w->kept_floats = w->kept_s + LAYERS * state_tail_floats(&w->view.shape);
	w->view.s = xcalloc(w->s_floats, sizeof(float)), w->view.tail = xcalloc(w->tail_floats + 1, sizeof(float));
	w->view.tape = xcalloc(w->tape_floats, sizeof(float)), w->kept = xcalloc(w->kept_floats, sizeof(float));
	w->view.tape_rows = TAPE_ROWS;
	w->view.owed = w->owed, w->view.still = w->still, w->view.keep = w->keep;
	w->conv = of((size_t)s->width * channels, 1, 0.5f), w->conv_bias = of(channels, 2, 0.5f);
	w->rate = of((size_t)s->heads_v, 3, 0.1f), w->skip = of((size_t)s->heads_v, 4, 1);
	for (int h = 0; h < s->heads_v; h++)
		w->rate[h] = 0.5f + w->rate[h];
	w->dt_bias = of((size_t)(s->heads_v * s->dim_k), 5, 1);
	w->gain = of((size_t)(s->heads_v * s->dim_v), 6, 1);
	w->r = (struct recur){ .conv = ssm || !s->width ? NULL : w->conv,
		               .conv_bias = ssm || !s->width || s->tiled ? NULL : w->conv_bias,
		               .a_log_exp = w->rate,
		               .dt_bias = w->dt_bias,
		               .decay = w->rate,
		               .skip = w->skip,
		               .dt_min = 0.3f,
		               .dt_max = 1.2f,
		               .norm = w->gain,
		               .eps = 1e-6f,
		               .sigmoid_gate = s->gate == 2,
		               .norm_cols = s->heads * s->dim_v,
		               .gate_floor = s->gate_floor,
		               .beta_scale = s->beta_scale };
	w->m.s = floats_up(c, w->view.s, w->s_floats), w->m.tail = floats_up(c, w->view.tail, w->tail_floats);
	w->m.tape = floats_up(c, w->view.tape, w->tape_floats), w->m.kept = floats_up(c, w->kept, w->kept_floats);
	w->m.conv = floats_up(c, w->conv, (size_t)s->width * channels);
	if (w->r.conv_bias || ssm)
		w->m.conv_bias = floats_up(c, w->conv_bias, channels);
	w->m.rate = floats_up(c, w->rate, (size_t)s->heads_v);
	w->m.dt_bias = floats_up(c, w->dt_bias, (size_t)(s->heads_v * s->dim_k));
	w->dgain = floats_up(c, w->gain, (size_t)(s->heads_v * s->dim_v));
	if (ssm)
		w->m.skip = floats_up(c, w->skip, (size_t)s->heads_v);
	w->m.x = floats_up(c, NULL, (size_t)MOST * (size_t)w->cols);
	w->m.update = floats_up(c, NULL, MOST * values);
}

static void world_close(struct world *w)
{
	check_done(w->c);
	free(w->view.s), free(w->view.tail), free(w->view.tape), free(w->kept);
	free(w->conv), free(w->conv_bias), free(w->rate), free(w->skip), free(w->dt_bias), free(w->gain);
}

/* States, tails, tapes and copies. */
static void state_alike(struct world *w, const char *kind)
{
	static const char *const names[] = { "delta", "fixed", "ssm", "kda" };
	const struct shape *s = w->shape;
	const struct {
		const char *what;
		const float *want;
		struct dmem m;
		size_t n;
	} part[] = {
		{ "S", w->view.s, w->m.s, w->s_floats },
		{ "tail", w->view.tail, w->m.tail, w->tail_floats },
		{ "tape", w->view.tape, w->m.tape, w->tape_floats },
		{ "copy", w->kept, w->m.kept, w->kept_floats },
	};

	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		char what[120];

		snprintf(what, sizeof what, "%s after %s: %s, %d of %d by %d", part[i].what, kind, names[s->rule],
		         s->heads_v, s->dim_k, s->dim_v);
		check_alike(w->c, what, part[i].want, part[i].m, part[i].n);
	}
}

static void tables_up(struct world *w, const struct pass *p)
{
	struct check *c = w->c;
	const struct state_shape *s = &w->view.shape;
	struct recur_room room = recur_room_floats(s, p->n_row);
	struct recur_shape shape = recur_shape_of(&w->r, &w->view, LAYER);
	struct step_keep keep = { w->keep[0].item, w->keep[0].row, 0, (int)(w->kept_s / 16) };
	struct step_item item[ITEMS];
	struct step_row row[MOST];

	for (int i = 0; i < p->n_row; i++)
		row[i] = (struct step_row){ p->item[i], 0, 0 };
	step_items(item, p, &w->view);
	w->m.rows = check_up(c, row, (size_t)p->n_row * sizeof *row);
	w->m.items = check_up(c, item, (size_t)p->n_item * sizeof *item);
	w->m.keeps = check_up(c, &keep, sizeof keep);
	w->m.shape = check_up(c, &shape, sizeof shape);
	w->m.kq = floats_up(c, NULL, room.kq), w->m.dot = floats_up(c, NULL, room.dot);
	w->m.decay = floats_up(c, NULL, room.decay), w->m.beta = floats_up(c, NULL, room.beta);
	w->m.update = floats_up(c, NULL, room.update);
}

/* The processor's step, of rows that the device convolved to `made` where they came to it so. */
static void reference(struct world *w, struct pass *p, float *out, const float *x, const float *z, const float *a,
                      const float *b)
{
	const struct shape *s = w->shape;
	struct recur_in in = { .x = x, .z = s->gate ? z : NULL, .a = a, .b = b };
	struct conv conv = { w->conv, w->conv_bias, true };
	float *made = NULL;

	if (s->rule == RECUR_SSM) {
		made = xmalloc((size_t)p->n_row * (size_t)w->cols * sizeof *made);
		w->c->cpu->ops->conv(p, made, &conv, 1, x, 0, w->cols, &w->view, LAYER);
		in.x = made;
	}
	w->c->cpu->ops->recur(p, out, &w->r, &in, &w->view, LAYER);
	free(made);
}

static void step(struct world *w, const struct span *span, const char *kind)
{
	struct check *c = w->c;
	const struct shape *s = w->shape;
	int32_t item[MOST], first[ITEMS];
	struct pass p = {
		.be = c->cpu, .arith = ARITH_FAST, .n_item = ITEMS, .item = item, .span = span, .row = first
	};
	size_t n, values = (size_t)(s->heads_v * s->dim_v), of_a;
	int held = c->n_held, together = s->heads ? s->heads : 1;
	float *x, *z, *a, *b, *out;
	struct dmem dx, dz, da, db, dout;
	struct err err = { 0 };
	char what[120];

	for (int i = 0; i < ITEMS; i++) {
		first[i] = p.n_row;
		for (int r = 0; r < span[i].n; r++)
			item[p.n_row++] = i;
	}
	n = (size_t)p.n_row, of_a = (size_t)(s->heads_v * (s->rule == RECUR_KDA ? s->dim_k : 1));
	x = of(n * (size_t)w->cols, (uint32_t)(7 + p.n_row), 1), a = of(n * of_a, 8, 3);
	b = of(n * (size_t)s->heads_v, 9, 3), z = check_floats(n * values, 10), out = xmalloc(n * values * sizeof *out);
	tables_up(w, &p);
	dz = floats_up(c, z, n * values), dx = floats_up(c, x, n * (size_t)w->cols), da = floats_up(c, a, n * of_a);
	db = floats_up(c, b, n * (size_t)s->heads_v), dout = floats_up(c, NULL, n * values);
	if (s->rule == RECUR_SSM) {
		struct conv conv = { w->conv, w->conv_bias, true };

		check_ok(device_conv(&c->kernels, &w->m, &w->view, w->m.x, &conv, &w->m.conv, &w->m.conv_bias, 1, dx, 0,
		                     w->cols, p.n_row, ITEMS, &err),
		         &err);
		dx = w->m.x;
	}
	check_ok(device_recur(&c->kernels, &w->m, &w->view, !w->r.conv, dout, dx, da, db, p.n_row, ITEMS, &err), &err);
	if (s->gate)
		check_run(c, "rows", "gated_norm", 256, p.n_row * s->heads_v / together, 1,
		          ARGS(darg_mem(dout), darg_mem(dout), darg_mem(dz), darg_mem(w->dgain),
		               darg_int(together * s->dim_v), darg_float(1e-6f), darg_int(s->gate == 2),
		               darg_int(s->heads ? s->heads_v / together : 1)));
	reference(w, &p, out, x, z, a, b);
	snprintf(what, sizeof what, "recurrence in %s, rule %d, %d of %d by %d", kind, (int)s->rule, s->heads_v,
	         s->dim_k, s->dim_v);
	check_alike(c, what, out, dout, n * values);
	state_alike(w, kind);
	free(x), free(z), free(a), free(b), free(out);
	check_back(c, held);
}

static void apply(struct world *w, int slot, int keep)
{
	struct check *c = w->c;
	struct recur_shape shape[LAYERS];
	struct step_item item = { .slot = slot, .owed = keep };
	struct err err = { 0 };
	int held = c->n_held;

	w->m.items = check_up(c, &item, sizeof item);
	for (int layer = 0; layer < LAYERS; layer++) {
		shape[layer] = recur_shape_of(NULL, &w->view, layer);
		w->m.shape = check_up(c, &shape[layer], sizeof *shape);
		check_ok(device_tape_apply(&c->kernels, &w->m, &w->view, &err), &err);
	}
	c->cpu->ops->tape_apply(c->cpu, &w->view, slot, keep);
	state_alike(w, "a tape that was applied");
	check_back(c, held);
}

static void layer(struct check *c, const struct shape *s)
{
	struct world *w = xcalloc(1, sizeof *w);
	int rows = c->small ? 3 : 70;

	w->c = c;
	w->shape = s;
	world_open(w);
	w->keep[0] = (struct state_keep){ 0, 2, w->kept, w->kept + w->kept_s };
	w->view.n_keep = 1;
	step(w, (struct span[]){ { .slot = 1, .n = rows }, { .slot = 0, .n = 4, .n_draft = 3 } }, "a prompt");
	w->view.n_keep = 0;
	w->owed[0] = 2; /* of the three drafted rows */
	w->still[1] = true;
	step(w, (struct span[]){ { .slot = 1, .n = 2 }, { .slot = 0, .n = 3, .n_draft = 2 } }, "a step");
	w->owed[0] = 1, w->owed[1] = 2;
	w->still[1] = w->still[0] = true;
	step(w, (struct span[]){ { .slot = 0, .n = 1 }, { .slot = 1, .n = 1 } }, "a still step");
	w->owed[0] = 2, w->owed[1] = 3;
	w->still[1] = w->still[0] = false;
	w->keep[0].row = 1;
	w->view.n_keep = 1;
	step(w, (struct span[]){ { .slot = 1, .n = c->small ? 2 : 9, .n_draft = 1 }, { .slot = 0, .n = 1 } },
	     "a late step");
	w->view.n_keep = 0;
	apply(w, 1, 1);
	world_close(w);
	free(w);
}

void check_recur(struct check *c)
{
	for (size_t i = 0; i < (c->small ? 3 : sizeof shapes / sizeof *shapes); i++)
		layer(c, &shapes[i]);
}
