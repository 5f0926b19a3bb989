/* dev.c - the backend over a device: opening it, its errors, rehearsals, and the table of its operations. */
#include "backend/device/dev.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/device_backend.h"
#include "base/alloc.h"

void dev_lost(struct dev *d, const struct err *why)
{
	if (!d->be.failed.code)
		err_set(&d->be.failed, E_DEVICE, "%s", why->msg);
}

bool dev_ok(struct dev *d, int code, const struct err *err)
{
	if (!code)
		return true;
	if (!d->rehearsing || code == E_FAULT)
		dev_lost(d, err);
	else if (!d->refused.code)
		d->refused = *err;
	return false;
}

void dev_refuse(struct dev *d, const char *fmt, ...)
{
	char what[300];
	struct err err;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	dev_ok(d, err_set(&err, E_UNSUPPORTED, "the device has no kernels for %s", what), &err);
}

void dev_run(struct dev *d, const char *module, const char *kernel, int threads, int gx, int gy, const struct darg *arg,
             int n)
{
	struct err err;

	if (!dev_idle(d) && gx > 0 && gy > 0)
		dev_ok(d, kernels_run(&d->kernels, module, kernel, threads, gx, gy, arg, n, &err), &err);
}

/* ---- rehearsals ---- */

static void dev_rehearse(struct backend *be)
{
	struct dev *d = (struct dev *)be;

	d->rehearsing = d->kernels.only_find = true;
	d->refused = (struct err){ 0 };
}

static int dev_rehearsed(struct backend *be, struct err *err)
{
	struct dev *d = (struct dev *)be;
	struct err why = be->failed.code ? be->failed : d->refused;

	d->rehearsing = d->kernels.only_find = false;
	d->refused = (struct err){ 0 };
	if (why.code && err)
		*err = why;
	return why.code;
}

/* ---- what there is no kernel for ---- */

static void dev_compress(struct pass *p, const struct compress *o, const float *k, const float *v,
                         const struct kv_view *raw, int raw_layer, const struct kv_view *view, int layer)
{
	dev_refuse(dev_of(p), "compressed histories");
}

static void dev_choose(struct pass *p, int32_t *chosen, int most, const struct attn *a, const float *q, size_t q_row,
                       size_t q_head, const float *weight, const struct kv_view *view, int layer)
{
	dev_refuse(dev_of(p), "indexers");
}

static void dev_attend_chosen(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                              size_t q_row, size_t q_head, const int32_t *chosen, int most, const struct kv_view *view,
                              int layer)
{
	dev_refuse(dev_of(p), "attention to what an indexer has chosen");
}

static void dev_mix_streams(struct pass *p, float *out, const float *x, const float *by, int n, int streams, int cols)
{
	dev_refuse(dev_of(p), "several residual streams");
}

static void dev_add_streams(struct pass *p, float *x, bool add, const float *y, const float *by, float scale, int n,
                            int streams, int cols)
{
	dev_refuse(dev_of(p), "several residual streams");
}

static void dev_match_streams(struct pass *p, float *out, const float *a, const float *b, float scale, int n,
                              int streams, int cols)
{
	dev_refuse(dev_of(p), "several residual streams");
}

static void dev_conv_block(struct pass *p, float *out, const float *in, const float *base, const float *by,
                           size_t by_ld, int taps, int each, int cols)
{
	dev_refuse(dev_of(p), "convolutions inside of a block of guesses");
}

static void dev_gate_streams(struct pass *p, float *out, float *z, const struct stream_gates *g, const float *x, int n,
                             int cols)
{
	dev_refuse(dev_of(p), "several residual streams");
}

static void dev_join_streams(struct pass *p, float *x, const float *gates, const float *y, int n, int streams, int cols)
{
	dev_refuse(dev_of(p), "several residual streams");
}

static void dev_mean_streams(struct pass *p, float *out, const float *x, int n, int streams, int cols)
{
	dev_refuse(dev_of(p), "several residual streams");
}

static void dev_embed_ngrams(struct pass *p, float *out, const struct ngrams *g, const struct state_view *view,
                             int layer, int at)
{
	dev_refuse(dev_of(p), "embeddings of n-grams");
}

/* ---- opening ---- */

static void dev_close(struct backend *be)
{
	struct dev *d = (struct dev *)be;
	const struct device_ops *ops = d->dev->ops;

	while (d->area.n) {
		const struct dev_range *a = &d->area.v[d->area.n - 1];

		dev_free(be, (void *)a->p, a->bytes);
	}
	for (int i = 0; i < d->weights.n; i++) {
		if (d->weights.v[i].own)
			ops->free(d->dev, d->weights.v[i].codes);
		ops->free(d->dev, d->weights.v[i].scales);
	}
	for (int i = 0; i < d->placed.n; i++)
		ops->free(d->dev, d->placed.v[i].mem);
	for (int i = 0; i < d->shapes.n; i++) {
		ops->free(d->dev, d->shapes.v[i].mem);
		free(d->shapes.v[i].bytes);
	}
	for (int i = 0; i < ROOMS; i++)
		ops->free(d->dev, d->room[i].mem);
	ops->close(d->dev);
	free(d->area.v);
	free(d->placed.v);
	free(d->weights.v);
	free(d->shapes.v);
	free(d->table);
	free(d);
}

static const struct backend_ops dev_ops = {
	.name = "device",
	.alloc = dev_alloc,
	.free = dev_free,
	.write = dev_write,
	.read = dev_read,
	.copy = dev_copy,
	.adapts = true,
	.place = dev_place,
	.unplace = dev_unplace,
	.rehearse = dev_rehearse,
	.rehearsed = dev_rehearsed,
	.begin = dev_begin,
	.end = dev_end,
	.embed = dev_embed,
	.bring = dev_bring,
	.norm = dev_norm,
	.layer_norm = dev_layer_norm,
	.linear = dev_linear,
	.by_head = dev_by_head,
	.kv_append = dev_kv_append,
	.attend = dev_attend,
	.compress = dev_compress,
	.choose = dev_choose,
	.attend_chosen = dev_attend_chosen,
	.conv = dev_conv,
	.recur = dev_recur,
	.tape_apply = dev_tape_apply,
	.moe = dev_moe,
	.heads = dev_heads,
	.gate = dev_gate,
	.affine = dev_affine,
	.add = dev_add,
	.map = dev_map,
	.mul = dev_mul,
	.blend = dev_blend,
	.mix_streams = dev_mix_streams,
	.add_streams = dev_add_streams,
	.match_streams = dev_match_streams,
	.conv_block = dev_conv_block,
	.gate_streams = dev_gate_streams,
	.join_streams = dev_join_streams,
	.mean_streams = dev_mean_streams,
	.embed_ngrams = dev_embed_ngrams,
	.gather = dev_gather,
	.close = dev_close,
};

struct backend *backend_device_open(struct device *dev)
{
	struct dev *d = xcalloc(1, sizeof *d);

	d->dev = d->kernels.dev = dev;
	snprintf(d->level, sizeof d->level, "%s: %s", dev->ops->name, dev->name);
	d->be = (struct backend){ .ops = &dev_ops,
		                  .arithmetic = "plain",
		                  .order = "cpu",
		                  .level = d->level,
		                  .threads = 1,
		                  .memory = dev->memory };
	return &d->be;
}
