/* dflash2.c - see dflash2.h. */
#include "model/dflash2.h"

#include <string.h>

#include "model/work.h"

/* ---- config ---- */

void dflash2_read(struct dflash2_form *f, struct conf *own, const struct shape *s)
{
	enum { TAPS_MAX = 64, TOP_MAX = 256 };

	f->taps = conf_int(own, "conv_kernel_size", 1, TAPS_MAX);
	f->each = conf_int(own, "conv_group_size", 1, s->hidden);
	f->rank = conf_int(own, "selector_rank", 1, CONF_DIM_MAX);
	f->top = conf_int(own, "selector_top_k", 1, s->vocab < TOP_MAX ? s->vocab : TOP_MAX);
	f->embed_scale = (float)conf_above_zero_or(own, "input_embedding_scale", 1);
	f->logit_scale = (float)conf_above_zero_or(own, "output_multiplier", 1);
	f->logit_cap = conf_get(own, "final_logit_softcapping") ? (float)conf_double(own, "final_logit_softcapping") :
	                                                          0;
	if (!own->code && s->hidden % f->each)
		conf_fail(own, E_FORMAT, "conv_group_size: %d does not divide hidden_size %d", f->each, s->hidden);
	if (!own->code && !(f->logit_cap >= 0))
		conf_fail(own, E_FORMAT, "final_logit_softcapping: %g is below 0", (double)f->logit_cap);
}

/* ---- convolutions ---- */

void block_conv_bind(struct binder *b, struct block_conv *c, const struct dflash2_form *f, int hidden, int layer,
                     const char *name)
{
	c->taps = f->taps;
	c->each = f->each;
	c->base = bind_floats(b, (int64_t)2 * f->taps * hidden, 0, "layers.%d.%s.base_kernel", layer, name);
	bind_weight(b, &c->kernel, 2 * f->taps * (hidden / f->each), hidden, "layers.%d.%s.kernel_projection", layer,
	            name);
}

void block_conv_kernel(struct pass *p, const struct block_conv *c, float *k, const float *x)
{
	struct linear job = { .w = &c->kernel, .out = k, .ld = (size_t)c->kernel.rows };

	p->be->ops->linear(p, &job, 1, x, p->n_row, c->kernel.cols);
}

void block_conv(struct pass *p, const struct block_conv *c, int side, float *out, const float *in, const float *k)
{
	int hidden = c->kernel.cols, row = c->kernel.rows;

	p->be->ops->conv_block(p, out, in, c->base + (side ? (size_t)c->taps * (size_t)hidden : 0),
	                       k + (side ? row / 2 : 0), (size_t)row, c->taps, c->each, hidden);
}

/* ---- selector ---- */

void selector_bind(struct binder *b, struct selector *s, const struct dflash2_form *f, int vocab, int hidden)
{
	struct arena *a = &b->m->arena;
	size_t rank = (size_t)f->rank, n = 1 + (size_t)f->top;

	s->top = f->top;
	bind_weight(b, &s->before, vocab, f->rank, "candidate_selector.predecessor_codebook");
	bind_rows_only(b, &s->before);
	bind_weight(b, &s->after, vocab, f->rank, "candidate_selector.successor_codebook");
	bind_rows_only(b, &s->after);
	bind_weight(b, &s->gate, f->rank, hidden, "candidate_selector.hidden_projection");
	s->tok = arena_alloc(a, n * sizeof *s->tok);
	s->zero = arena_zalloc(a, n * sizeof *s->zero);
	s->score = arena_alloc(a, n * sizeof *s->score);
	s->past = arena_alloc(a, rank * sizeof *s->past);
	s->gates = arena_alloc(a, rank * sizeof *s->gates);
	s->matched = arena_alloc(a, size_mul(n, rank) * sizeof *s->matched);
}

size_t selector_floats(const struct selector *s)
{
	return 2 * work_floats_of(1 + s->top, s->before.cols) + work_floats_of(1, s->before.cols);
}

/* Is one of x[n] above `least`? */
static bool some_above(const float *x, int n, float least)
{
	int some = 0;

	for (int i = 0; i < n; i++)
		some |= x[i] > least;
	return some;
}

/* Adds token t to the n best, which are in order. */
static void put_token(struct selector *s, int n, int32_t t, float logit)
{
	int at = n;

	for (; at > 0 && logit > s->score[at - 1]; at--) {
		s->score[at] = s->score[at - 1];
		s->tok[1 + at] = s->tok[at];
	}
	s->score[at] = logit;
	s->tok[1 + at] = t;
}

/* The best tokens, best first, of equal logits the lower first, to tok[1 + i], and their logits to score[i]; returns how many.
 * A NaN is none of them. */
static int best_tokens(struct selector *s, const float *logits)
{
	enum { RUN = 64 }; /* most hold none of the best, and are passed over with a few instructions */
	int n = 0, vocab = s->before.rows;

	for (int run = 0; run < vocab; run += RUN) {
		int end = run + RUN < vocab ? run + RUN : vocab;

		if (n == s->top && !some_above(logits + run, end - run, s->score[n - 1]))
			continue;
		for (int t = run; t < end; t++) {
			if (n < s->top && logits[t] == logits[t])
				put_token(s, n++, t, logits[t]);
			else if (n == s->top && logits[t] > s->score[n - 1])
				put_token(s, n - 1, t, logits[t]);
		}
	}
	return n;
}

/* Brings the rows of the n best tokens, of the one before, and the gates to host memory; nonzero: the device failed. */
static int read_rows(struct selector *s, const struct pass *over, const float *hid, int n)
{
	const struct backend_ops *ops = over->be->ops;
	const struct span span = { .n = 1 + n };
	size_t rank = (size_t)s->gate.rows;
	struct pass p = *over;
	struct linear job = { .w = &s->gate, .ld = rank };
	float *before, *after;
	int rc = 0;

	p.tok = s->tok;
	p.pos = p.item = p.row = s->zero;
	p.see = p.rope_pos = NULL;
	p.span = &span;
	memset(p.kv, 0, sizeof p.kv);
	p.state = NULL;
	p.n_row = 1 + n;
	p.n_item = 1;
	p.n_logit = 0;
	if (!pass_begin(&p)) {
		before = pass_floats(&p, (size_t)p.n_row * rank);
		after = pass_floats(&p, (size_t)p.n_row * rank);
		job.out = pass_floats(&p, rank);
		ops->embed(&p, before, &s->before);
		ops->embed(&p, after, &s->after);
		ops->linear(&p, &job, 1, hid, 1, s->gate.cols);
		rc = ops->read(p.be, s->past, before, rank * sizeof *before) ||
		     ops->read(p.be, s->gates, job.out, rank * sizeof *before) ||
		     ops->read(p.be, s->matched, after, (size_t)p.n_row * rank * sizeof *after);
	}
	return pass_end(&p) || rc;
}

void selector_lean(struct selector *s, const struct pass *over, const float *hid, int32_t token, float *logits)
{
	const float below = 1e4f; /* more than scores differ, and little enough for the order of the others to stay */
	int rank = s->gate.rows, n;

	if (token < 0 || token >= s->before.rows)
		return;
	n = best_tokens(s, logits);
	s->tok[0] = token;
	if (!n || read_rows(s, over, hid, n))
		return; /* a failed device: the step after fails too */
	for (int r = 0; r < rank; r++)
		s->past[r] *= s->gates[r];
	for (int t = 0; t < s->before.rows; t++)
		logits[t] -= below;
	for (int i = 0; i < n; i++) {
		const float *b = s->matched + (size_t)(1 + i) * (size_t)rank;
		float sum = 0;

		for (int r = 0; r < rank; r++)
			sum += s->past[r] * b[r];
		logits[s->tok[1 + i]] = s->score[i] + sum;
	}
}
