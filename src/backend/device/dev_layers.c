/* dev_layers.c - attention and recurrent layers. */
#include <assert.h>
#include <string.h>

#include "backend/device/dev.h"

static const struct dmem none;

/* ---- attention ---- */

static int group_of(const struct pass *p, const struct kv_view *view)
{
	for (int g = 0; g < KV_GROUPS; g++)
		if (p->kv[g] == view)
			return g;
	assert(!"a view that is not the pass's");
	return 0;
}

/* NULL view: the queries alone. */
static bool attn_served(struct dev *d, const struct attn *a, const struct kv_view *view)
{
	if (a->chunk || a->q_bend_from) {
		dev_refuse(d, "attention in chunks, and queries that grow from position 1 on");
		return false;
	}
	if (device_attn_serves(a) && (!view || (view->dim == a->dim && view->dim_v == a->dim)))
		return true;
	dev_refuse(d, "attention of heads of %d dims, with values of %d", a->dim, view ? view->dim_v : a->dim);
	return false;
}

static struct device_attn memory_of(struct pass *p, const struct attn *a, const struct kv_view *view)
{
	struct dev *d = dev_of(p);
	const struct dev_angles *angles = dev_angles_of(p, a);
	struct device_attn m = {
		.pages = view ? dev_at(d, view->base) : none,
		.page = view ? dev_table(d, d->page[group_of(p, view)]) : none,
		.rows = dev_table(d, d->rows),
		.cosines = dev_table(d, angles->cosines),
		.sines = dev_table(d, angles->sines),
		.bend = a->q_bend_every ? dev_table(d, angles->bends) : none,
		.q_norm = dev_vector(d, a->q_norm),
		.k_norm = dev_vector(d, a->k_norm),
		.sinks = dev_vector(d, a->sinks),
	};

	return m;
}

void dev_kv_append(struct pass *p, const struct attn *a, float *q, size_t q_row, size_t q_head, float *k,
                   const float *v, const struct kv_view *view, int layer)
{
	struct dev *d = dev_of(p);
	struct append_shape shape;
	struct device_attn m;
	struct err err;

	if (dev_idle(d) || !attn_served(d, a, view))
		return;
	if (k && !view) {
		dev_refuse(d, "attention over rows that no cache holds");
		return;
	}
	shape = append_shape_of(a, q_row, q_head, view, layer);
	m = memory_of(p, a, view);
	m.append_shape = dev_shape_of(d, &shape, sizeof shape);
	if (!dev_idle(d))
		dev_ok(d, device_append(&d->kernels, &m, a, p->n_row, dev_at(d, q), dev_at(d, k), dev_at(d, v), &err),
		       &err);
}

void dev_attend(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate, size_t q_row,
                size_t q_head, const struct kv_view *view, int layer)
{
	struct dev *d = dev_of(p);
	const struct dev_units *units;
	struct attend_shape shape;
	struct device_attn m;
	struct err err;

	if (dev_idle(d) || !attn_served(d, a, view))
		return;
	units = dev_units_of(p, a);
	shape = attend_shape_of(a, q_row, q_head, view, layer);
	m = memory_of(p, a, view);
	m.attend_shape = dev_shape_of(d, &shape, sizeof shape);
	m.turned = device_attn_turned(a, &view->layer[layer]);
	m.units = dev_table(d, units->at);
	m.part = units->part_bytes ? dev_room(d, ROOM_PART, units->part_bytes) : none;
	if (!dev_idle(d))
		dev_ok(d,
		       device_attend(&d->kernels, &m, a, dev_at(d, out), dev_at(d, q), dev_at(d, gate), units->n,
		                     units->segments, &err),
		       &err);
}

/* ---- recurrences ---- */

static bool shape_served(struct dev *d, const struct state_shape *s)
{
	if (!s->heads_v || device_recur_serves(s))
		return true;
	dev_refuse(d, "a recurrence of rule %d with keys of %d dims", (int)s->rule, s->dim_k);
	return false;
}

/* r NULL: a convolution alone. */
static struct device_recur state_memory(struct pass *p, const struct recur *r, const struct state_view *view, int layer)
{
	struct dev *d = dev_of(p);
	struct recur_shape shape = recur_shape_of(r, view, layer);

	return (struct device_recur){
		.s = dev_at(d, view->s),
		.tail = dev_at(d, view->tail),
		.tape = dev_at(d, view->tape),
		.kept = d->room[ROOM_KEPT].mem,
		.rows = dev_table(d, d->rows),
		.items = dev_table(d, d->items),
		.keeps = dev_table(d, d->keeps),
		.shape = dev_shape_of(d, &shape, sizeof shape),
	};
}

void dev_conv(struct pass *p, float *out, const struct conv *c, int n_conv, const float *in, int at, int n,
              const struct state_view *view, int layer)
{
	enum { CONVS = 8 };
	struct dev *d = dev_of(p);
	struct dmem w[CONVS], bias[CONVS];
	struct device_recur m;
	struct err err;

	assert(n_conv <= CONVS);
	if (c->apart > 1)
		dev_refuse(d, "convolutions of inputs that lie apart");
	if (dev_idle(d) || c->apart > 1 || !shape_served(d, &view->shape))
		return;
	m = state_memory(p, NULL, view, layer);
	for (int i = 0; i < n_conv; i++) {
		w[i] = dev_vector(d, c[i].w);
		bias[i] = dev_vector(d, c[i].bias);
	}
	if (!dev_idle(d))
		dev_ok(d,
		       device_conv(&d->kernels, &m, view, dev_at(d, out), c, w, bias, n_conv, dev_at(d, in), at, n,
		                   p->n_row, p->n_item, &err),
		       &err);
}

/* Norm and gate of the rows that a recurrence gave, in place. */
static void finish_rows(struct pass *p, struct dmem out, const struct recur *r, const float *z,
                        const struct state_shape *s)
{
	struct dev *d = dev_of(p);
	int cols = s->heads_v * s->dim_v, step = r->norm_cols ? r->norm_cols : s->dim_v, norms = cols / step;
	struct dmem gain = dev_vector(d, r->norm);

	if (!r->norm || (r->norm_cols && r->gate_first)) {
		/* silu(z) * out: the product is the same whichever factor comes first. */
		struct dmem g = dev_room(d, ROOM_FLOATS, (size_t)p->n_row * (size_t)cols * sizeof(float));

		dev_run(d, "rows", "blend", 256, (cols + 255) / 256, p->n_row,
		        DARGS(darg_mem(g), darg_mem(dev_at(d, z)), darg_mem(none), darg_mem(none), darg_int(cols),
		              darg_int(cols)));
		dev_run(d, "rows", "gate", 256, (int)(((size_t)p->n_row * (size_t)cols + 255) / 256), 1,
		        DARGS(darg_mem(g), darg_mem(out), darg_int(p->n_row * cols), darg_int(ACT_SILU), darg_float(0),
		              darg_float(0)));
		dev_run(d, "rows", "blend", 256, (cols + 255) / 256, p->n_row,
		        DARGS(darg_mem(out), darg_mem(g), darg_mem(none), darg_mem(none), darg_int(cols),
		              darg_int(cols)));
		if (r->norm)
			dev_run(d, "rows", "norm", 256, p->n_row * norms, 1,
			        DARGS(darg_mem(out), darg_mem(out), darg_mem(gain), darg_int(step), darg_float(r->eps),
			              darg_int(norms)));
		return;
	}
	dev_run(d, "rows", "gated_norm", 256, p->n_row * norms, 1,
	        DARGS(darg_mem(out), darg_mem(out), darg_mem(dev_at(d, z)), darg_mem(gain), darg_int(step),
	              darg_float(r->eps), darg_int(r->sigmoid_gate), darg_int(r->norm_cols ? norms : 1)));
}

void dev_recur(struct pass *p, float *out, const struct recur *r, const struct recur_in *in,
               const struct state_view *view, int layer)
{
	struct dev *d = dev_of(p);
	const struct state_shape *s = &view->shape;
	struct device_recur m;
	struct recur_room room;
	struct err err;

	if (dev_idle(d) || !shape_served(d, s))
		return;
	m = state_memory(p, r, view, layer);
	room = recur_room_floats(s, p->n_row);
	m.conv = dev_vector(d, r->conv);
	m.conv_bias = dev_vector(d, r->conv_bias);
	m.rate = dev_vector(d, s->rule == RECUR_FIXED ? r->decay : r->a_log_exp);
	m.dt_bias = dev_vector(d, r->dt_bias);
	m.skip = dev_vector(d, r->skip);
	m.x = dev_room(d, ROOM_X,
	               (size_t)p->n_row * (size_t)(2 * s->heads_k * s->dim_k + s->heads_v * s->dim_v) * sizeof(float));
	m.kq = dev_room(d, ROOM_KQ, room.kq * sizeof(float));
	m.dot = dev_room(d, ROOM_DOT, room.dot * sizeof(float));
	m.decay = dev_room(d, ROOM_DECAY, room.decay * sizeof(float));
	m.beta = dev_room(d, ROOM_BETA, room.beta * sizeof(float));
	m.update = dev_room(d, ROOM_UPDATE, room.update * sizeof(float));
	if (!dev_idle(d))
		dev_ok(d,
		       device_recur(&d->kernels, &m, view, !r->conv, dev_at(d, out), dev_at(d, in->x), dev_at(d, in->a),
		                    dev_at(d, in->b), p->n_row, p->n_item, &err),
		       &err);
	if (in->z)
		finish_rows(p, dev_at(d, out), r, in->z, s);
}

void dev_tape_apply(struct backend *be, const struct state_view *view, int slot, int keep)
{
	struct dev *d = (struct dev *)be;
	struct step_item item = { .slot = slot, .owed = keep };
	struct device_recur m = { .s = dev_at(d, view->s),
		                  .tail = dev_at(d, view->tail),
		                  .tape = dev_at(d, view->tape) };
	struct err err;

	m.items = dev_room(d, ROOM_ITEM, sizeof item);
	if (!dev_idle(d))
		dev_ok(d, d->dev->ops->up(d->dev, m.items, &item, sizeof item, &err), &err);
	for (int layer = 0; layer < view->shape.layers && !dev_idle(d); layer++) {
		struct recur_shape shape = recur_shape_of(NULL, view, layer);

		m.shape = dev_shape_of(d, &shape, sizeof shape);
		if (!dev_idle(d))
			dev_ok(d, device_tape_apply(&d->kernels, &m, view, &err), &err);
	}
}
