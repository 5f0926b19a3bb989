/* bench_fill.c - a context that was not computed: random keys and values, written as
 * a model's would be.  How long the next token takes depends on how many there are,
 * not on what they say. */
#include "bench/bench.h"

#include "base/rng.h"

static float *random_rows(struct pass *p, size_t cols, uint64_t stream)
{
	size_t n = (size_t)p->n_row * cols;
	float *x = pass_floats(p, n);
	uint64_t bits = 0;

	/* Four numbers of each draw, in [-1, 1). */
	for (size_t i = 0; i < n; i++, bits >>= 16) {
		if (i % 4 == 0)
			bits = rng_bits((uint64_t)p->pos[0] + 1, i, stream);
		x[i] = (float)(bits & 0xffff) / 32768 - 1;
	}
	return x;
}

/* In the place of an architecture's own: states stay, every logit is 0. */
static void forward(struct model *m, struct pass *p)
{
	const struct shape *s = &m->shape;
	uint64_t stream = 0;

	for (int i = 0; i < s->n_kv; i++)
		for (int layer = 0; layer < s->kv[i].layers; layer++) {
			const struct kv_group *g = &s->kv[i];
			float *k, *v;

			p->work.used = 0;
			k = random_rows(p, (size_t)g->heads * (size_t)g->dim_k, stream++);
			v = random_rows(p, (size_t)g->heads * (size_t)g->dim_v, stream++);
			model_fill(m, p, (struct kv_place){ i, layer }, k, v);
		}
	for (size_t i = 0; i < (size_t)p->n_logit * (size_t)s->vocab; i++)
		p->logits[i] = 0;
}

void bench_fill_begin(struct bench_fill *f, struct model *m)
{
	f->own = m->ops;
	f->ops = *m->ops;
	f->ops.forward = forward;
	m->ops = &f->ops;
}

void bench_fill_end(struct bench_fill *f, struct model *m)
{
	m->ops = f->own;
}
