/* lives.c - see lives.h. */
#include "lives.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/wanted_rows.h"
#include "base/rng.h"
#include "engine/core.h"
#include "text/tokens/detok.h"

void life_init(struct life *l, int n_prompt, int vocab, uint64_t seed)
{
	memset(l, 0, sizeof(*l));
	for (int i = 0; i < n_prompt; i++)
		l->prompt[i] = (int32_t)(rng_bits(seed, (uint64_t)i, 77) % (uint64_t)vocab);
	l->ask.prompt = l->prompt;
	l->ask.n_prompt = n_prompt;
	sampler_params_init(&l->ask.sampling);
	l->ask.sampling.temperature = 0;
	l->row_max = -1;
}

static void on_logits(void *arg, int pos, const float *row, int vocab)
{
	struct life *l = arg;

	CHECK(pos > l->row_max && pos < LIFE_MAX, "row %d after row %d", pos, l->row_max);
	l->row_max = pos;
	l->vocab = vocab;
	l->row[pos] = xmalloc((size_t)vocab * sizeof(*row));
	memcpy(l->row[pos], row, (size_t)vocab * sizeof(*row));
}

struct rules {
	struct mask_source source;
	int vocab;
	uint64_t hash[LIFE_MAX + 1]; /* after each accepted token */
	int n;
	uint32_t *mask;
};

static const uint32_t *rules_mask(struct mask_source *m)
{
	struct rules *r = (struct rules *)m;

	for (int i = 0; i < (r->vocab + 31) / 32; i++)
		r->mask[i] = (uint32_t)rng_bits(r->hash[r->n], (uint64_t)i, 3);
	/* Some places are free. */
	return r->hash[r->n] % 7 ? r->mask : NULL;
}

static void rules_accept(struct mask_source *m, int32_t token)
{
	struct rules *r = (struct rules *)m;
	const uint32_t *mask = rules_mask(m);

	CHECK(!mask || mask[token / 32] >> (token % 32) & 1, "token %d was not allowed", token);
	CHECK(r->n < LIFE_MAX, "more than %d tokens", LIFE_MAX);
	r->hash[r->n + 1] = rng_bits(r->hash[r->n], (uint64_t)token, 4);
	r->n++;
}

static void rules_rollback(struct mask_source *m, int n)
{
	struct rules *r = (struct rules *)m;

	CHECK(n >= 0 && n <= r->n, "%d of %d tokens taken back", n, r->n);
	r->n -= n;
}

static bool rules_whole(const struct mask_source *m)
{
	const struct rules *r = (const struct rules *)m;

	return r->n && r->hash[r->n] % 50 == 0;
}

static void rules_free(struct mask_source *m)
{
	struct rules *r = (struct rules *)m;

	free(r->mask);
	free(r);
}

struct mask_source *rules_new(uint64_t seed, int vocab)
{
	static const struct mask_source_ops ops = { rules_mask, rules_accept, rules_rollback, rules_whole, rules_free };
	struct rules *r = xcalloc(1, sizeof(*r));

	r->source.ops = &ops;
	r->vocab = vocab;
	r->hash[0] = seed;
	r->mask = xcalloc((size_t)(vocab + 31) / 32, sizeof(*r->mask));
	return &r->source;
}

int life_submit(struct life *l, struct engine *e, struct err *err)
{
	if (l->want_rows) {
		l->ask.on_logits = on_logits;
		l->ask.on_logits_arg = l;
	}
	/* Room for any model's ids. */
	l->ask.mask = l->held ? l->held : l->masked ? rules_new(l->masked, 1 << 16) : NULL;
	int rc = engine_submit(e, &l->ask, &l->r, err);

	if (rc && l->ask.mask)
		l->ask.mask->ops->free(l->ask.mask);
	return rc;
}

static void take(struct life *l, const struct event *ev)
{
	CHECK(!l->done, "an event after DONE");
	switch (ev->kind) {
	case EV_START:
		CHECK(!l->started, "started twice");
		CHECK(ev->total == l->ask.n_prompt && ev->cached < ev->total, "cached %d of %d", ev->cached, ev->total);
		l->started = true;
		l->cached = ev->cached;
		break;
	case EV_PROGRESS:
		CHECK(l->started && !l->got.n && ev->done > l->progress && ev->done <= l->ask.n_prompt,
		      "progress %d after %d of %d", ev->done, l->progress, l->ask.n_prompt);
		l->progress = ev->done;
		break;
	case EV_TOKEN:
		CHECK(l->started && l->got.n < LIFE_MAX, "token %d", l->got.n);
		CHECK(ev->pick.token == ev->token, "pick");
		l->got.logprob[l->got.n] = ev->pick.logprob;
		l->got.tok[l->got.n++] = ev->token;
		break;
	case EV_DONE:
		l->done = true;
		l->end = *ev;
		l->got.finish = ev->finish;
		if (ev->stop_text)
			snprintf(l->got.stop, sizeof(l->got.stop), "%s", ev->stop_text);
		CHECK(ev->n_output == l->got.n, "n_output %d of %d tokens", ev->n_output, l->got.n);
		CHECK(ev->n_prompt == l->ask.n_prompt && ev->n_cached == l->cached, "counts of DONE");
		break;
	}
	if (ev->kind == EV_TOKEN || ev->kind == EV_DONE) {
		CHECK(l->got.n_text + ev->n_text < sizeof(l->got.text), "text of %zu bytes", ev->n_text);
		memcpy(l->got.text + l->got.n_text, ev->text, ev->n_text);
		l->got.n_text += ev->n_text;
	}
}

void life_read(struct life *l, bool wait)
{
	struct event ev;

	while (wait ? request_wait(l->r, &ev) : request_next(l->r, &ev))
		take(l, &ev);
	CHECK(!wait || l->done, "the events ended without DONE");
}

void life_free(struct life *l)
{
	request_free(l->r);
	l->r = NULL;
	for (int i = 0; i < LIFE_MAX; i++)
		free(l->row[i]);
}

/* Text of the tokens, with what an unfinished character leaves when all is over. */
static void text_of(const struct life *l, const struct tokenizer *t, const struct answer *a, bool over, struct buf *out)
{
	struct detok d;

	buf_reset(out);
	if (!t)
		return;
	detok_init(&d, t, l->ask.skip_special);
	for (int i = 0; i < a->n; i++)
		detok_put(&d, a->tok[i], out);
	if (over)
		detok_flush(&d, out);
}

/* The stop that ends first in text; of those the longest.  Cuts the text. */
static bool cut(const struct life *l, struct buf *text, struct answer *a)
{
	for (size_t end = 1; end <= text->n; end++) {
		const char *best = NULL;

		for (int i = 0; i < l->ask.n_stop; i++) {
			const char *s = l->ask.stop[i];
			size_t n = strlen(s);

			if (n <= end && !memcmp(text->p + end - n, s, n) && (!best || n > strlen(best)))
				best = s;
		}
		if (best) {
			text->n = end - strlen(best);
			snprintf(a->stop, sizeof(a->stop), "%s", best);
			return true;
		}
	}
	return false;
}

int life_room(const struct model *m)
{
	return caches_longest(&m->caches, m->opts.ctx_max);
}

void life_alone(const struct life *l, const struct model *m, int room, const struct tokenizer *t, truth_fn *truth,
                struct answer *out)
{
	const struct ask *a = &l->ask;
	int vocab = m->shape.vocab, n = a->n_prompt;
	int32_t tok[LIFE_MAX + 1];
	float *row = xmalloc((size_t)vocab * sizeof(*row));
	struct sampler_params sp;
	struct sampler s;
	struct mask_source *mask = l->masked ? rules_new(l->masked, 1 << 16) : NULL;
	struct buf text;
	bool over = false;

	memset(out, 0, sizeof(*out));
	memcpy(tok, a->prompt, (size_t)n * sizeof(*tok));
	sp = a->sampling;
	sp.end_token = a->stop_token;
	sp.n_end_token = a->n_stop_token;
	CHECK(!sampler_init(&s, &sp, t ? tokenizer_size(t) : vocab, tok, n, NULL), "sampler");
	buf_init(&text);
	out->finish = FINISH_LENGTH;
	while (!over && out->n < a->max_tokens && n < room) {
		struct pick pick = { 0 };
		struct err err;

		truth(m, tok, n, row);
		s.mask = mask ? mask->ops->mask(mask) : NULL;
		if (sampler_pick(&s, row, n, &pick, &err)) {
			out->finish = FINISH_ERROR;
			break;
		}
		for (int i = 0; i < a->n_stop_token; i++)
			over |= a->stop_token[i] == pick.token;
		if (over) {
			out->finish = FINISH_STOP;
			break;
		}
		sampler_accept(&s, pick.token);
		if (mask)
			mask->ops->accept(mask, pick.token);
		tok[n++] = pick.token;
		out->logprob[out->n] = pick.logprob;
		out->tok[out->n++] = pick.token;
		text_of(l, t, out, false, &text);
		if (cut(l, &text, out)) {
			out->finish = FINISH_STOP;
			over = true;
		}
		if (!over && mask && mask->ops->whole(mask)) {
			out->finish = FINISH_STOP;
			over = true;
		}
	}
	if (mask)
		mask->ops->free(mask);
	if (!out->stop[0] && out->finish != FINISH_ERROR) {
		text_of(l, t, out, true, &text);
		cut(l, &text, out);
	}
	memcpy(out->text, text.p, text.n);
	out->n_text = text.n;
	sampler_fini(&s);
	buf_fini(&text);
	free(row);
}

void life_check(const struct life *l, const struct model *m, const struct answer *want, truth_fn *truth, bool partial)
{
	const struct answer *got = &l->got;
	int32_t tok[2 * LIFE_MAX];
	float *row;

	CHECK(got->n <= want->n && !memcmp(got->tok, want->tok, (size_t)got->n * sizeof(*got->tok)), "tokens differ");
	CHECK(!memcmp(got->logprob, want->logprob, (size_t)got->n * sizeof(*got->logprob)), "log-probabilities differ");
	CHECK(got->n_text <= want->n_text && !memcmp(got->text, want->text, got->n_text),
	      "text differs: '%.*s' for '%.*s'", (int)got->n_text, got->text, (int)want->n_text, want->text);
	if (!partial) {
		CHECK(got->n == want->n, "%d tokens for %d, finish %d: %s", got->n, want->n, got->finish,
		      l->end.err.msg);
		CHECK(got->finish == want->finish, "finish %d for %d", got->finish, want->finish);
		if (want->finish != FINISH_ERROR)
			CHECK(got->n_text == want->n_text, "text '%.*s' for '%.*s'", (int)got->n_text, got->text,
			      (int)want->n_text, want->text);
		CHECK(!strcmp(got->stop, want->stop), "stop '%s' for '%s'", got->stop, want->stop);
	}
	if (!l->want_rows)
		return;
	if (!partial && want->finish != FINISH_ERROR)
		CHECK(l->row_max >= l->ask.n_prompt - 1, "rows end at %d", l->row_max);
	memcpy(tok, l->ask.prompt, (size_t)l->ask.n_prompt * sizeof(*tok));
	memcpy(tok + l->ask.n_prompt, want->tok, (size_t)want->n * sizeof(*tok));
	row = xmalloc((size_t)m->shape.vocab * sizeof(*row));
	for (int i = 0; i <= l->row_max; i++) {
		CHECK(l->row[i] || i < l->cached || (l->loose && !l->ask.no_cache), "row %d is missing", i);
		if (!l->row[i])
			continue;
		truth(m, tok, i + 1, row);
		CHECK(!memcmp(row, l->row[i], (size_t)m->shape.vocab * sizeof(*row)), "logits of position %d differ",
		      i);
	}
	free(row);
}

/* ---- many ---- */

struct many {
	struct life l;
	bool used, cancelled;
};

uint64_t dice(uint64_t *state, uint64_t n)
{
	++*state;
	return rng_bits(*state, *state, 5) % n;
}

static void random_ask(struct life *l, const struct lives_opts *o, const struct tokenizer *t, int vocab, uint64_t *s)
{
	static const int32_t stop_token[] = { 'a', 'b', 259, 7, 8, 9 };
	static const char *const stop[] = { "a", "bc", "zz", "\xe2\x82\xac", "STOP", "ello", "1" };
	static const int split[] = { 3, 1, 17, 5 };
	static const int mark[] = { 5, 20, 21, 60 };
	/* Prompts come from a few families, so that prefixes are met again. */
	int n = 1 + (int)dice(s, (uint64_t)o->prompt_max), family = (int)dice(s, 4);

	life_init(l, n, vocab, (uint64_t)family);
	if (dice(s, 2))
		l->prompt[dice(s, (uint64_t)n)] ^= 1;
	l->want_rows = dice(s, 2);
	l->loose = true;
	l->ask.max_tokens = (int)dice(s, (uint64_t)o->answer_max);
	l->ask.sampling.temperature = (float)dice(s, 2);
	l->ask.sampling.seed = dice(s, 5);
	l->ask.sampling.top_k = dice(s, 3) ? 0 : 5;
	l->ask.sampling.top_p = dice(s, 3) ? 1 : 0.9f;
	l->ask.sampling.repetition_penalty = dice(s, 3) ? 1 : 1.3f;
	l->ask.sampling.frequency_penalty = dice(s, 3) ? 0 : 0.5f;
	l->ask.sampling.min_tokens = dice(s, 3) ? 0 : 6;
	l->ask.sampling.n_logprobs = (int)dice(s, 4) - 1;
	l->ask.stop_token = stop_token;
	l->ask.n_stop_token = dice(s, 3) ? (int)dice(s, 7) : 0;
	l->ask.stop = stop;
	l->ask.n_stop = !t || dice(s, 3) ? 0 : (int)dice(s, 8);
	l->ask.skip_special = dice(s, 2);
	l->ask.no_cache = !dice(s, 4);
	l->ask.client = dice(s, 4);
	l->ask.priority = dice(s, 4) ? 0 : (int)dice(s, 5) - 2;
	l->ask.mark = mark;
	l->ask.n_mark = (int)dice(s, 5);
	if (!dice(s, 4)) {
		l->ask.split = split;
		l->ask.n_split = 1 + (int)dice(s, 4);
	}
	if (!dice(s, 6))
		l->ask.resume_at = 1 + (int)dice(s, (uint64_t)(o->prompt_max + o->answer_max));
	if (!dice(s, 3))
		l->masked = 1 + dice(s, 1000);
	if (!dice(s, 30) && o->poison >= 0)
		l->prompt[n - 1] = o->poison;
	if (o->last && dice(s, 3)) {
		l->ask.rows = dice(s, 4) ? ROWS_LAST : ROWS_LAST | ROWS_ALL;
		l->ask.rows_from = l->ask.rows & ROWS_ALL ? (int)dice(s, (uint64_t)n) : n - 1;
	}
	if (o->n_mix) {
		l->mix = (int)dice(s, (uint64_t)o->n_mix);
		l->ask.adapters = o->mix[l->mix];
	}
}

/* The rows that an embedding is made of: the last, and all from one on behind it. */
static void check_last(const struct life *l, const struct model *m, truth_fn *last)
{
	size_t n, cols = (size_t)m->shape.hidden;
	const float *got = request_rows(l->r, &n);
	int all = l->ask.rows & ROWS_ALL ? l->ask.n_prompt - l->ask.rows_from : 0;
	float *want = xmalloc(cols * sizeof(*want));

	CHECK(!got == !l->ask.rows, "rows that were not asked for, or none");
	if (got && (l->got.finish == FINISH_STOP || l->got.finish == FINISH_LENGTH)) {
		CHECK(n == (size_t)(1 + all) * cols, "%zu floats", n);
		last(m, l->prompt, l->ask.n_prompt, want);
		CHECK(!memcmp(got, want, cols * sizeof(*got)), "the prompt's last row differs");
		for (int i = 0; i < all; i++) {
			last(m, l->prompt, l->ask.rows_from + i + 1, want);
			CHECK(!memcmp(got + (size_t)(1 + i) * cols, want, cols * sizeof(*got)), "row %d differs",
			      l->ask.rows_from + i);
		}
	}
	free(want);
}

static void check_one(struct many *a, const struct model *m, const struct tokenizer *t, truth_fn *truth,
                      const struct lives_opts *o)
{
	struct answer want;

	life_read(&a->l, false);
	if (!a->l.done)
		return;
	if (o->about)
		o->about(&a->l);
	life_alone(&a->l, m, life_room(m), t, truth, &want);
	life_check(&a->l, m, &want, truth, a->cancelled && a->l.end.finish == FINISH_CANCEL);
	CHECK(a->cancelled || a->l.end.finish != FINISH_CANCEL, "cancelled by nobody");
	if (o->last)
		check_last(&a->l, m, o->last);
	life_free(&a->l);
	a->used = false;
}

void lives_many(struct engine *e, const struct model *m, const struct tokenizer *t, truth_fn *truth,
                const struct lives_opts *o, uint64_t *state)
{
	static struct many a[LIVES_MAX];
	int vocab = o->poison < 0 ? m->shape.vocab & ~1 : 254, steps = o->steps, live;
	struct err err;

	do {
		for (int i = 0; i < LIVES_MAX; i++) {
			if (!a[i].used && steps > 0 && !dice(state, 30)) {
				memset(&a[i], 0, sizeof(a[i]));
				random_ask(&a[i].l, o, t, vocab, state);
				/* A client may have its share of the queue already. */
				if (life_submit(&a[i].l, e, &err)) {
					CHECK(err.code == E_FULL, "%s", err.msg);
					continue;
				}
				a[i].used = true;
			} else if (a[i].used && !dice(state, 200)) {
				request_cancel(a[i].l.r);
				a[i].cancelled = true;
			}
		}
		engine_step(e);
		caches_check(&m->caches);
		prefix_check(&e->prefix);
		live = 0;
		for (int i = 0; i < LIVES_MAX; i++) {
			if (a[i].used)
				check_one(&a[i], m, t, truth, o);
			live += a[i].used;
		}
	} while (--steps > 0 || live);
}
