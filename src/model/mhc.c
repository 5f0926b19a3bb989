/* mhc.c - see mhc.h. */
#include "model/mhc.h"

#include "model/conf.h"
#include "model/work.h"

void mhc_read(struct mhc_form *f, struct conf *c)
{
	f->streams = conf_int(c, "hc_mult", 2, STREAMS_MOST);
	f->rounds = conf_int(c, "hc_sinkhorn_iters", 1, 1000);
	f->gate_eps = (float)conf_above_zero_or(c, "hc_eps", 1e-6);
}

static void bind_site(struct binder *b, struct mhc *s, const struct mhc_form *f, const char *path, bool last)
{
	int gates = last ? f->streams : stream_gates_cols(f->streams);

	*s = (struct mhc){ .hidden = f->hidden,
		           .eps = f->eps,
		           .gates = { .streams = f->streams, .rounds = last ? 0 : f->rounds, .eps = f->gate_eps } };
	bind_weight(b, &s->fn, gates, f->streams * f->hidden, "%s_fn", path);
	bind_apart(b, &s->fn); /* a parameter, of which adapters know nothing */
	s->gates.base = bind_floats(b, gates, 0, "%s_base", path);
	s->gates.scale = bind_floats(b, last ? 1 : 3, 0, "%s_scale", path);
}

void mhc_bind(struct binder *b, struct mhc *s, const struct mhc_form *f, const char *path)
{
	bind_site(b, s, f, path, false);
}

void mhc_bind_last(struct binder *b, struct mhc *s, const struct mhc_form *f, const char *path)
{
	bind_site(b, s, f, path, true);
}

void mhc_begin(struct pass *p, const struct mhc *s, float *h, float *gates, const float *x)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used;
	float *normed = pass_floats(p, (size_t)p->n_row * (size_t)s->fn.cols);
	const struct linear fn = { .w = &s->fn, .out = gates, .ld = (size_t)s->fn.rows };

	ops->norm(p, normed, x, p->n_row, s->fn.cols, NULL, s->eps);
	ops->linear(p, &fn, 1, normed, p->n_row, s->fn.cols);
	ops->gate_streams(p, h, gates, &s->gates, x, p->n_row, s->hidden);
	p->work.used = mark;
}

void mhc_end(struct pass *p, const struct mhc *s, float *x, const float *y, const float *gates)
{
	p->be->ops->join_streams(p, x, gates, y, p->n_row, s->gates.streams, s->hidden);
}

size_t mhc_floats(const struct mhc *s, int n_row)
{
	return work_floats_of(n_row, s->fn.cols);
}
