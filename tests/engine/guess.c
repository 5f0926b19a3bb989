/* guess.c - see guess.h. */
#include "guess.h"

#include <string.h>

#include "base/alloc.h"

/* From the first told sequence that begins as this one does. */
static int by_heart(const struct guesser *g, const struct draft_seq *s, int32_t *out, int max)
{
	for (int i = 0; i < g->n_told; i++) {
		const struct told *t = &g->told[i];

		if (t->n > s->n_tok && !memcmp(t->tok, s->tok, (size_t)s->n_tok * sizeof(*t->tok))) {
			int n = t->n - s->n_tok < max ? t->n - s->n_tok : max;

			memcpy(out, t->tok + s->n_tok, (size_t)n * sizeof(*out));
			return n;
		}
	}
	return 0;
}

/* As the engine will: a sampler of its own, fed what the request has so far. */
static int by_truth(const struct guesser *g, const struct draft_seq *s, int32_t *out, int max)
{
	float *row = xmalloc((size_t)g->m->shape.vocab * sizeof(*row));
	int32_t tok[2 * LIFE_MAX];
	int n_prompt = s->n_tok - s->sampler->n_out, n = 0;
	struct sampler ahead;
	struct err err;

	memcpy(tok, s->tok, (size_t)s->n_tok * sizeof(*tok));
	CHECK(!sampler_init(&ahead, &s->sampler->p, s->sampler->n_vocab, tok, n_prompt, &err), "%s", err.msg);
	for (int i = n_prompt; i < s->n_tok; i++)
		sampler_accept(&ahead, tok[i]);
	while (n < max && s->n_tok + n < LIFE_MAX) {
		g->truth(g->m, tok, s->n_tok + n, row);
		out[n] = sampler_guess(&ahead, row, s->n_tok + n);
		if (out[n] < 0)
			break;
		sampler_accept(&ahead, out[n]);
		tok[s->n_tok + n] = out[n];
		n++;
	}
	sampler_fini(&ahead);
	free(row);
	return n;
}

static int guess(struct guesser *g, struct draft_ask *ask, enum guess how, int turn)
{
	const struct draft_seq *s = &ask->seq;
	int n = g->truth ? by_truth(g, s, ask->out, ask->max) : by_heart(g, s, ask->out, ask->max);

	/* Past what is known: a token or two that nobody will pick. */
	while (n < ask->max)
		ask->out[n++] = 7;
	for (int i = how == GUESS_WRONG ? 0 : how == GUESS_TURN ? turn : n; i < n; i++)
		ask->out[i] = (ask->out[i] + 1 + i) % 250;
	return n;
}

static void propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct guesser *g = (struct guesser *)d;

	for (int i = 0; i < n_ask; i++) {
		struct draft_ask *a = &ask[i];

		CHECK(a->max >= 1 && a->max <= DRAFT_MAX, "asked for %d", a->max);
		CHECK(a->seq.id, "no id");
		g->asked++;
		if (g->how != GUESS_DICE) {
			a->n = guess(g, a, g->how, g->turn);
			continue;
		}
		a->n = guess(g, a, (enum guess)dice(&g->dice, GUESS_DICE), (int)dice(&g->dice, DRAFT_MAX));
		a->n = (int)dice(&g->dice, (uint64_t)a->n + 1);
		if (a->n && !dice(&g->dice, 8))
			a->out[dice(&g->dice, (uint64_t)a->n)] = dice(&g->dice, 2) ? -5 : INT32_MAX;
	}
}

static void close_nothing(struct drafter *d) {}

static const struct drafter_ops guess_ops = { .name = "guess", .propose = propose, .close = close_nothing };

void guesser_init(struct guesser *g, enum guess how)
{
	*g = (struct guesser){ .d = { &guess_ops }, .how = how, .dice = 1 };
}

/* ---- a head whose guesses are replaced ---- */

static void book_compare(struct rigged *r, const struct draft_ask *a)
{
	int at = a->seq.n_tok, n = a->n < r->n_book[at] ? a->n : r->n_book[at];

	for (int i = 0; i < n; i++)
		CHECK(a->out[i] == r->book[at][i], "%s: guess %d after %d tokens is %d, and was %d", r->ops.name, i, at,
		      a->out[i], r->book[at][i]);
	r->compared += n > 0;
	for (int i = n; i < a->n; i++)
		r->book[at][i] = a->out[i];
	r->n_book[at] = a->n > n ? a->n : r->n_book[at];
}

static void rigged_propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct rigged *r = (struct rigged *)d;
	int max[64];

	CHECK(n_ask <= 64, "%d asks", n_ask);
	for (int i = 0; i < n_ask; i++)
		max[i] = ask[i].max;
	r->head->ops->propose(r->head, ask, n_ask);
	for (int i = 0; i < n_ask; i++) {
		struct draft_ask told = ask[i];

		if (r->books)
			book_compare(r, &ask[i]);
		if (!ask[i].n || !r->by)
			continue;
		told.max = max[i];
		r->by->d.ops->propose(&r->by->d, &told, 1);
		ask[i].n = told.n;
	}
}

static void rigged_close(struct drafter *d)
{
	struct rigged *r = (struct rigged *)d;

	r->head->ops->close(r->head);
}

static void rigged_learn(struct drafter *d, const struct draft_seq *seq)
{
	struct rigged *r = (struct rigged *)d;

	r->head->ops->learn(r->head, seq);
}

static void rigged_forget(struct drafter *d, int slot)
{
	struct rigged *r = (struct rigged *)d;

	r->head->ops->forget(r->head, slot);
}

static int rigged_follow(struct drafter *d, const struct pass *p, const struct draft_run *run, int n_run)
{
	struct rigged *r = (struct rigged *)d;

	r->head->taps = d->taps;
	return r->head->ops->follow(r->head, p, run, n_run);
}

static int rigged_behind(struct drafter *d, const struct draft_seq *seq)
{
	struct rigged *r = (struct rigged *)d;

	return r->head->ops->behind(r->head, seq);
}

static struct prefix *rigged_kept(struct drafter *d, struct model **m)
{
	struct rigged *r = (struct rigged *)d;

	return r->head->ops->kept(r->head, m);
}

void rigged_init(struct rigged *r, struct drafter *head, bool books)
{
	const struct drafter_ops *o = head->ops;

	*r = (struct rigged){ .d = *head, .head = head, .books = books };
	r->ops = (struct drafter_ops){
		.name = o->name,
		.propose = rigged_propose,
		.close = rigged_close,
		.learn = o->learn ? rigged_learn : NULL,
		.forget = o->forget ? rigged_forget : NULL,
		.follow = o->follow ? rigged_follow : NULL,
		.behind = o->behind ? rigged_behind : NULL,
		.kept = o->kept ? rigged_kept : NULL,
	};
	r->d.ops = &r->ops;
}

void rigged_clear(struct rigged *r)
{
	memset(r->n_book, 0, sizeof r->n_book);
}
