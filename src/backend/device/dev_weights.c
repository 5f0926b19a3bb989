/* dev_weights.c - weights and vectors on the device: brought over when they are first named, and kept until no model places them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/dev.h"
#include "backend/device/lay.h"
#include "base/alloc.h"

static struct dev_placed *placed_of(const struct dev *d, const void *p)
{
	for (int i = 0; i < d->n_placed; i++)
		if ((const uint8_t *)p >= d->placed[i].p && (const uint8_t *)p < d->placed[i].p + d->placed[i].bytes)
			return &d->placed[i];
	return NULL;
}

int dev_place(struct backend *be, const struct placed *v, int n, struct err *err)
{
	struct dev *d = (struct dev *)be;

	for (int i = 0; i < n; i++) {
		struct dev_placed *had = placed_of(d, v[i].p);

		if (had) {
			had->models++;
			continue;
		}
		d->placed = dev_grow(d->placed, &d->cap_placed, d->n_placed + 1, sizeof *d->placed);
		d->placed[d->n_placed++] = (struct dev_placed){ .p = v[i].p, .bytes = v[i].bytes, .models = 1 };
	}
	return 0;
}

/* Forgets the weights that were made of a placed range. */
static void weights_end(struct dev *d, const struct dev_placed *of)
{
	int n = 0;

	for (int i = 0; i < d->n_weight; i++) {
		struct dev_weight *w = &d->weight[i];

		if (w->data < of->p || w->data >= of->p + of->bytes) {
			d->weight[n++] = *w;
			continue;
		}
		if (w->own)
			d->dev->ops->free(d->dev, w->codes);
		d->dev->ops->free(d->dev, w->scales);
	}
	d->n_weight = n;
}

void dev_unplace(struct backend *be, const struct placed *v, int n)
{
	struct dev *d = (struct dev *)be;
	struct err err;

	d->dev->ops->wait(d->dev, &err);
	for (int i = 0; i < n; i++) {
		struct dev_placed *p = placed_of(d, v[i].p);

		assert(p && p->models > 0);
		if (--p->models)
			continue;
		weights_end(d, p);
		d->n_angles = 0; /* their frequencies may lie here */
		d->dev->ops->free(d->dev, p->mem);
		*p = d->placed[--d->n_placed];
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
	struct dev_placed *v;

	if (!p || dev_idle(d))
		return (struct dmem){ 0 };
	v = placed_of(d, p);
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

static bool lay_plain(struct dev *d, struct dev_weight *to, const struct weight *w)
{
	to->codes = dev_vector(d, w->data);
	return !dev_idle(d);
}

/* Floats, where products are made of them whatever the format. */
static bool lay_floats(struct dev *d, struct dev_weight *to, const struct weight *w)
{
	size_t each = (size_t)w->cols * sizeof(float);
	float *f = xmalloc(size_mul((size_t)w->rows, each));
	bool ok;

	for (int o = 0; o < w->rows; o++)
		w->fmt->decode(f + (size_t)o * (size_t)w->cols, w, o);
	to->own = true;
	to->kind = 2;
	ok = bring(d, &to->codes, f, (size_t)w->rows * each);
	free(f);
	return ok;
}

static bool lay_codes(struct dev *d, struct dev_weight *to, const struct weight *w)
{
	uint32_t *codes = xmalloc(lay_code_bytes(w));
	float *scales = xmalloc(lay_scale_bytes(w));
	bool ok;

	lay_coded(codes, scales, w);
	to->own = true;
	to->module = lay_module(w);
	to->group = w->group;
	ok = bring(d, &to->codes, codes, lay_code_bytes(w)) && bring(d, &to->scales, scales, lay_scale_bytes(w));
	free(codes);
	free(scales);
	return ok;
}

const struct dev_weight *dev_weight_of(struct dev *d, const struct weight *w, enum arith arith)
{
	int kind = plain_kind(w->fmt);
	struct dev_weight made = { .data = w->data, .rows = w->rows, .cols = w->cols, .kind = kind };
	bool ok;

	made.decoded = kind < 0 && (arith == ARITH_F32 || wants_floats(w));
	if (dev_idle(d))
		return NULL;
	for (int i = 0; i < d->n_weight; i++) {
		const struct dev_weight *v = &d->weight[i];

		if (v->data == made.data && v->rows == made.rows && v->cols == made.cols && v->decoded == made.decoded)
			return v;
	}
	if (kind < 0 && !made.decoded && !lay_module(w)) {
		dev_refuse(d, "%s: weights of format %s in groups of %d", w->name, w->fmt->name, w->group);
		return NULL;
	}
	if (kind >= 0)
		ok = lay_plain(d, &made, w);
	else if (made.decoded)
		ok = lay_floats(d, &made, w);
	else
		ok = lay_codes(d, &made, w);
	if (!ok)
		return NULL;
	d->weight = dev_grow(d->weight, &d->cap_weight, d->n_weight + 1, sizeof *d->weight);
	d->weight[d->n_weight] = made;
	return &d->weight[d->n_weight++];
}

/* ---- shapes ---- */

struct dmem dev_shape_of(struct dev *d, const void *bytes, size_t n)
{
	struct dev_shape s = { .n = n };

	for (int i = 0; i < d->n_shape; i++)
		if (d->shape[i].n == n && !memcmp(d->shape[i].bytes, bytes, n))
			return d->shape[i].mem;
	if (dev_idle(d) || !bring(d, &s.mem, bytes, n))
		return (struct dmem){ 0 };
	s.bytes = xmalloc(n);
	memcpy(s.bytes, bytes, n);
	d->shape = dev_grow(d->shape, &d->cap_shape, d->n_shape + 1, sizeof *d->shape);
	d->shape[d->n_shape++] = s;
	return s.mem;
}
