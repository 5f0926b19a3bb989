/* dev_weights.c - weights and vectors on the device: brought over when they are first named, and kept until no model places them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/dev.h"
#include "backend/device/lay.h"
#include "base/alloc.h"

int dev_place(struct backend *be, const struct placed *v, int n, struct err *err)
{
	struct dev *d = (struct dev *)be;

	for (int i = 0; i < n; i++) {
		struct dev_range *had = dev_range_of(&d->placed, v[i].p);

		if (had)
			had->models++;
		else if (!dev_range_add(&d->placed,
		                        &(struct dev_range){ .p = v[i].p, .bytes = v[i].bytes, .models = 1 })) {
			dev_unplace(be, v, i);
			return err_set(err, E_UNSUPPORTED, "the device takes no tensors that share bytes");
		}
	}
	return 0;
}

/* Forgets the weights that were made of a placed range. */
static void weights_end(struct dev *d, const struct dev_range *of)
{
	int n = 0;

	for (int i = 0; i < d->weights.n; i++) {
		struct dev_weight *w = &d->weights.v[i];

		if (w->data < of->p || w->data >= of->p + of->bytes) {
			d->weights.v[n++] = *w;
			continue;
		}
		if (w->own)
			d->dev->ops->free(d->dev, w->codes);
		d->dev->ops->free(d->dev, w->scales);
	}
	d->weights.n = n;
}

void dev_unplace(struct backend *be, const struct placed *v, int n)
{
	struct dev *d = (struct dev *)be;
	struct err err;

	d->dev->ops->wait(d->dev, &err);
	for (int i = 0; i < n; i++) {
		struct dev_range *p = dev_range_of(&d->placed, v[i].p);

		assert(p && p->models > 0);
		if (--p->models)
			continue;
		weights_end(d, p);
		d->n_angles = 0; /* their frequencies may lie here */
		d->dev->ops->free(d->dev, p->mem);
		dev_range_drop(&d->placed, p);
	}
}

static bool bring(struct dev *d, struct dmem *to, const void *from, size_t n)
{
	struct err err;

	if (!dev_ok(d, d->dev->ops->alloc(d->dev, to, n, &err), &err))
		return false;
	return dev_ok(d, d->dev->ops->up(d->dev, *to, from, n, &err), &err);
}

struct dmem dev_vector(struct dev *d, const void *p)
{
	struct dev_range *v;

	if (!p || dev_idle(d))
		return (struct dmem){ 0 };
	v = dev_range_of(&d->placed, p);
	if (!v)
		return dev_at(d, p);
	if (!v->mem.base && !bring(d, &v->mem, v->p, v->bytes))
		return (struct dmem){ 0 };
	return dmem_at(v->mem, (size_t)((const uint8_t *)p - v->p));
}

/* ---- weights ---- */

/* The kind of plain.cl; -1: the format is another. */
static int plain_kind(const struct format *f)
{
	static const char *const names[] = { "bf16", "f16", "f32" };

	for (int i = 0; i < 3; i++)
		if (!strcmp(names[i], f->name))
			return i;
	return -1;
}

static bool wants_floats(const struct weight *w)
{
	struct kernels k;

	w->fmt->kernels(&k, CPU_SCALAR);
	return k.acts == ACTS_FLOAT;
}

/* The i-th of the pieces of m, n bytes each; the first call takes memory for all of them. */
static bool bring_piece(struct dev *d, struct dmem *m, const struct dev_weight *of, int i, const void *from, size_t n)
{
	struct err err;

	if (!i && !dev_ok(d, d->dev->ops->alloc(d->dev, m, size_mul((size_t)of->experts, n), &err), &err))
		return false;
	return dev_ok(d, d->dev->ops->up(d->dev, dmem_at(*m, (size_t)i * n), from, n, &err), &err);
}

/* Does the stack lie in one placed range, without gaps? */
static bool together(struct dev *d, const struct weight *w, int n)
{
	size_t each = (size_t)w->rows * w->row_bytes;

	for (int i = 1; i < n; i++)
		if (w[i].data != w->data + (size_t)i * each)
			return false;
	return dev_range_of(&d->placed, w->data) == dev_range_of(&d->placed, w->data + (size_t)n * each - 1);
}

static bool lay_plain(struct dev *d, struct dev_weight *to, const struct weight *w)
{
	bool ok = true;

	if (together(d, w, to->experts)) {
		to->codes = dev_vector(d, w->data);
		return !dev_idle(d);
	}
	to->own = true;
	for (int i = 0; i < to->experts && ok; i++)
		ok = bring_piece(d, &to->codes, to, i, w[i].data, (size_t)w->rows * w->row_bytes);
	return ok;
}

/* Floats, where products are made of them whatever the format. */
static bool lay_floats(struct dev *d, struct dev_weight *to, const struct weight *w)
{
	size_t each = (size_t)w->cols * sizeof(float);
	float *f = xmalloc(size_mul((size_t)w->rows, each));
	bool ok = true;

	to->own = true;
	to->kind = 2;
	for (int i = 0; i < to->experts && ok; i++) {
		for (int o = 0; o < w->rows; o++)
			w->fmt->decode(f + (size_t)o * (size_t)w->cols, &w[i], o);
		ok = bring_piece(d, &to->codes, to, i, f, (size_t)w->rows * each);
	}
	free(f);
	return ok;
}

static bool lay_codes(struct dev *d, struct dev_weight *to, const struct weight *w)
{
	uint32_t *codes = xmalloc(lay_code_bytes(w));
	float *scales = xmalloc(lay_scale_bytes(w));
	bool ok = true;

	to->own = true;
	to->module = lay_module(w);
	to->group = w->group;
	for (int i = 0; i < to->experts && ok; i++) {
		lay_coded(codes, scales, &w[i]);
		ok = bring_piece(d, &to->codes, to, i, codes, lay_code_bytes(w)) &&
		     bring_piece(d, &to->scales, to, i, scales, lay_scale_bytes(w));
	}
	free(codes);
	free(scales);
	return ok;
}

static const struct dev_weight *weight_make(struct dev *d, const struct weight *w, int n, bool exact)
{
	int kind = plain_kind(w->fmt);
	struct dev_weight made = {
		.data = w->data, .rows = w->rows, .cols = w->cols, .experts = n, .exact = exact, .kind = kind
	};
	bool ok;

	if (w->basis) {
		dev_refuse(d, "%s: weights in a rotated basis", w->name);
		return NULL;
	}
	if (kind >= 0) {
		ok = lay_plain(d, &made, w);
	} else if (exact || wants_floats(w)) {
		ok = lay_floats(d, &made, w);
	} else if (lay_module(w)) {
		ok = lay_codes(d, &made, w);
	} else {
		dev_refuse(d, "%s: weights of format %s in groups of %d", w->name, w->fmt->name, w->group);
		return NULL;
	}
	if (!ok)
		return NULL;
	d->weights.v = dev_grow(d->weights.v, &d->weights.cap, d->weights.n + 1, sizeof *d->weights.v);
	d->weights.v[d->weights.n] = made;
	return &d->weights.v[d->weights.n++];
}

const struct dev_weight *dev_weight_of(struct dev *d, const struct weight *w, enum arith arith)
{
	return dev_stack_of(d, w, 1, arith);
}

const struct dev_weight *dev_stack_of(struct dev *d, const struct weight *w, int n, enum arith arith)
{
	bool exact = arith == ARITH_F32;

	if (dev_idle(d))
		return NULL;
	for (int i = 0; i < d->weights.n; i++) {
		const struct dev_weight *v = &d->weights.v[i];

		if (v->data == w->data && v->rows == w->rows && v->cols == w->cols && v->experts == n &&
		    v->exact == exact)
			return v;
	}
	for (int i = 1; i < n; i++)
		if (w[i].fmt != w->fmt || w[i].group != w->group || w[i].rows != w->rows || w[i].cols != w->cols ||
		    w[i].basis != w->basis) {
			dev_refuse(d, "%s: experts in several formats", w[i].name);
			return NULL;
		}
	return weight_make(d, w, n, exact);
}

/* ---- shapes ---- */

struct dmem dev_shape_of(struct dev *d, const void *bytes, size_t n)
{
	struct dev_shape s = { .n = n };

	for (int i = 0; i < d->shapes.n; i++)
		if (d->shapes.v[i].n == n && !memcmp(d->shapes.v[i].bytes, bytes, n))
			return d->shapes.v[i].mem;
	if (dev_idle(d) || !bring(d, &s.mem, bytes, n))
		return (struct dmem){ 0 };
	s.bytes = xmalloc(n);
	memcpy(s.bytes, bytes, n);
	d->shapes.v = dev_grow(d->shapes.v, &d->shapes.cap, d->shapes.n + 1, sizeof *d->shapes.v);
	d->shapes.v[d->shapes.n++] = s;
	return s.mem;
}
