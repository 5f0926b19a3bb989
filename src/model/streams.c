/* streams.c - see streams.h. */
#include "model/streams.h"

#include "model/conf.h"
#include "model/work.h"

void streams_read(struct streams_form *f, struct conf *c)
{
	f->streams = conf_int(c, "hc_count", 2, 64);
	f->low = conf_int(c, "hc_lowrank", 1, CONF_DIM_MAX);
}

void site_bind(struct binder *b, struct site *s, const struct streams_form *f, bool inject, const char *path)
{
	int all = f->streams * f->hidden;
	const float *norm = bind_floats(b, all, f->norm_add, "%s.hc_norm.weight", path);
	float *gain;

	s->hidden = f->hidden;
	s->streams = f->streams;
	s->eps = f->eps;
	bind_weight(b, &s->down, f->low, all, "%s.input_mix_weight_down", path);
	bind_weight(b, &s->up, all, f->low, "%s.input_mix_weight_up", path);
	if (inject)
		bind_weight(b, &s->inject, f->streams, all, "%s.block_inject_weight", path);
	if (b->code)
		return;
	s->gain = gain = bind_table(b, (size_t)all);
	for (int i = 0; i < all; i++)
		gain[i] = norm[i] / (float)f->streams;
}

void streams_norm(struct pass *p, float *out, const float *in, int n, int streams, int hidden, const float *gain,
                  float eps)
{
	p->be->ops->norm(p, out, in, n * streams, hidden, NULL, eps);
	p->be->ops->mul(p, out, gain, 0, 1, n, streams * hidden);
}

void streams_fill(struct pass *p, float *x, const float *e, int n, int streams, int hidden)
{
	for (int s = 0; s < streams; s++)
		p->be->ops->blend(p, x + (size_t)s * (size_t)hidden, (size_t)streams * (size_t)hidden, e, NULL, NULL, n,
		                  hidden);
}

void streams_fuse(struct pass *p, const struct streams_fuse *f, float *x, float *e)
{
	const struct backend_ops *ops = p->be->ops;
	int n = p->n_row, rows = n * f->streams;
	size_t mark = p->work.used, hidden = (size_t)f->hidden, wide = hidden * (size_t)f->streams;
	float *given = pass_floats(p, (size_t)n * wide), *h, *both;
	const struct linear of_given = { .w = &f->of_given, .out = x, .ld = hidden, .add = true };
	const struct linear of_both = { .w = &f->both, .out = x, .ld = hidden };

	ops->norm(p, e, e, n, f->hidden, f->norm_embed, f->eps);
	ops->norm(p, given, p->given, f->each ? rows : n, f->each ? f->hidden : (int)wide, f->norm_given, f->eps);
	if (f->both.rows) {
		both = pass_floats(p, 2 * (size_t)n * wide);
		streams_fill(p, x, e, n, f->streams, f->hidden);
		ops->blend(p, both, 2 * hidden, x, NULL, NULL, rows, f->hidden);
		ops->blend(p, both + hidden, 2 * hidden, given, NULL, NULL, rows, f->hidden);
		ops->linear(p, &of_both, 1, both, rows, f->both.cols);
	} else {
		h = pass_floats(p, (size_t)n * hidden);
		ops->linear(p, &(struct linear){ .w = &f->of_embed, .out = h, .ld = hidden }, 1, e, n, f->hidden);
		streams_fill(p, x, h, n, f->streams, f->hidden);
		ops->linear(p, &of_given, 1, given, rows, f->hidden);
	}
	p->work.used = mark;
}

size_t streams_fuse_floats(const struct streams_fuse *f, int n)
{
	size_t wide = f->norm_given ? work_floats_of(n, f->streams * f->hidden) : 0;

	return wide ? wide + (f->both.rows ? 2 * wide : work_floats_of(n, f->hidden)) : 0;
}

void streams_tap(struct pass *p, int i, const float *x, int wide)
{
	for (int k = 0; k < p->taps.n; k++)
		if (p->taps.v[k].layer == i)
			p->be->ops->blend(p, p->taps.v[k].out, p->taps.v[k].ld, x, NULL, NULL, p->n_row, wide);
}

size_t site_floats(const struct site *s, int n)
{
	return 2 * work_floats_of(n, s->streams * s->hidden) + work_floats_of(n, s->down.rows);
}

void site_begin(struct pass *p, const struct site *s, float *h, float *by, const float *x, int n)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used, all = (size_t)s->up.rows, rows = (size_t)n;
	float *normed = pass_floats(p, rows * all), *mix = pass_floats(p, rows * all);
	float *low = pass_floats(p, rows * (size_t)s->down.rows);
	const struct linear in[] = {
		{ .w = &s->down, .out = low, .ld = (size_t)s->down.rows, .act.kind = ACT_SILU },
		{ .w = &s->inject, .out = by, .ld = (size_t)s->streams, .act.kind = ACT_SIGMOID },
	};
	const struct linear up = { .w = &s->up, .out = mix, .ld = all, .act.kind = ACT_SIGMOID };

	streams_norm(p, normed, x, n, s->streams, s->hidden, s->gain, s->eps);
	ops->linear(p, in, by ? 2 : 1, normed, n, s->up.rows);
	ops->linear(p, &up, 1, low, n, s->down.rows);
	ops->mix_streams(p, h, normed, mix, n, s->streams, s->hidden);
	p->work.used = mark;
}

void site_end(struct pass *p, const struct site *s, float *x, const float *y, const float *by)
{
	p->be->ops->add_streams(p, x, true, y, by, 2, p->n_row, s->streams, s->hidden);
}
