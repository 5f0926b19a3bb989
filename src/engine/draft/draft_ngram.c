/* draft_ngram.c - the drafter that copies: where the last tokens occurred
 * before, the ones after them may come again.
 *
 * Every three tokens of a text are chained to the last place that has the same
 * hash, as in LZ77; the longest agreement among the newest places wins.  Text
 * that repeats is code being edited, documents being quoted, lists, tables. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/draft/draft.h"

enum {
	GRAM = 3,       /* tokens that must agree: fewer are mostly chance */
	LOOKS = 16,     /* looked at */
	AGREE_MAX = 32, /* an agreement of this length is not bettered */
	SEPARATOR = -1, /* between the texts of the history; no token */
};

/* Where each run of GRAM tokens ends, for tok[0..n). */
struct grams {
	int32_t *head; /* [1 << bits] last place of a hash, or -1 */
	int32_t *prev; /* [cap] the place before, or -1 */
	int n, cap, bits;
};

static uint32_t hash(const int32_t *last, int bits)
{
	uint32_t h = 0;

	for (int i = 0; i < GRAM; i++)
		h = (h ^ (uint32_t)last[-i]) * 0x9E3779B1u;
	return h >> (32 - bits);
}

static void grams_clear(struct grams *g)
{
	g->n = 0;
	if (g->head)
		memset(g->head, 0xFF, sizeof(*g->head) << g->bits);
}

static void grams_fini(struct grams *g)
{
	free(g->head);
	free(g->prev);
}

static void grams_grow(struct grams *g, const int32_t *tok, int n);

/* tok[0..n): what was there already is unchanged. */
static void grams_reach(struct grams *g, const int32_t *tok, int n)
{
	if (n > g->cap)
		grams_grow(g, tok, n);
	for (; g->n < n; g->n++) {
		int32_t *head;

		if (g->n + 1 < GRAM) {
			g->prev[g->n] = -1;
			continue;
		}
		head = &g->head[hash(tok + g->n, g->bits)];
		g->prev[g->n] = *head;
		*head = g->n;
	}
}

/* Allocations, which may fail, come first and leave the table unchanged. */
static void grams_grow(struct grams *g, const int32_t *tok, int n)
{
	int had = g->n, cap = n < 1024 ? 2048 : 2 * n, bits = 11;

	while (1 << bits < cap)
		bits++;
	g->head = xrealloc(g->head, sizeof(*g->head) << bits);
	g->prev = xrealloc(g->prev, size_mul((size_t)cap, sizeof(*g->prev)));
	g->cap = cap;
	g->bits = bits;
	grams_clear(g);
	grams_reach(g, tok, had);
}

/* The place in tok[0..n) that agrees longest with the tokens that end at
 * last[0]; of equals the newest.  *agree: how many tokens, at least GRAM; of
 * last, n_last may be looked at.  -1: none. */
static int grams_find(const struct grams *g, const int32_t *tok, int n, const int32_t *last, int n_last, int *agree)
{
	int best = -1, at, most = n_last < AGREE_MAX ? n_last : AGREE_MAX;

	*agree = GRAM - 1;
	if (n_last < GRAM || g->n < GRAM)
		return -1;
	at = g->head[hash(last, g->bits)];
	for (int i = 0; at >= 0 && i < LOOKS && *agree < most; i++, at = g->prev[at]) {
		int len = 0;

		if (at + 1 >= n)
			continue; /* nothing follows: the end itself */
		while (len < most && len <= at && tok[at - len] == last[-len])
			len++;
		if (len > *agree) {
			*agree = len;
			best = at;
		}
	}
	return best;
}

/* ---- the drafter ---- */

struct seq {
	uint64_t id;
	struct grams grams;
};

struct ngram {
	struct drafter d;
	struct seq *seq; /* [seqs_max] */
	int seqs_max;
	int32_t *text; /* [text_max] of sequences that ended */
	int n_text, text_max;
	struct grams grams;
};

/* Text of others is looked up, and this one's left to them. */
static bool shares(const struct draft_seq *s)
{
	return !s->secret && !*s->salt;
}

struct proposal {
	struct ngram *g;
	struct draft_ask *ask;
};

static void propose_one(void *arg)
{
	struct ngram *g = ((struct proposal *)arg)->g;
	struct draft_ask *ask = ((struct proposal *)arg)->ask;
	const struct draft_seq *s = &ask->seq;
	struct seq *own = &g->seq[s->slot];
	const int32_t *last = s->tok + s->n_tok - 1, *from = s->tok;
	int agree, other, at, n_other, n;

	if (own->id != s->id) {
		grams_clear(&own->grams);
		own->id = s->id;
	}
	grams_reach(&own->grams, s->tok, s->n_tok);
	at = grams_find(&own->grams, s->tok, s->n_tok, last, s->n_tok, &agree);
	n = s->n_tok;
	if (shares(s)) {
		n_other = grams_find(&g->grams, g->text, g->n_text, last, s->n_tok, &other);
		if (n_other >= 0 && other > agree) {
			at = n_other;
			agree = other;
			from = g->text;
			n = g->n_text;
		}
	}
	/* Not more than what agreed before. */
	for (ask->n = 0; at >= 0 && ask->n < ask->max && ask->n < agree; ask->n++) {
		int next = at + 1 + ask->n;

		if (next < n)
			ask->out[ask->n] = from[next];
		else if (from == s->tok)
			ask->out[ask->n] = ask->out[next - n]; /* the end repeats itself */
		else
			break;
		if (ask->out[ask->n] < 0) /* the separator, or a row that is not a token */
			break;
	}
}

static void propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct ngram *g = (struct ngram *)d;

	for (int i = 0; i < n_ask; i++)
		if (!draft_own(&ask[i], propose_one, &(struct proposal){ g, &ask[i] }))
			g->seq[ask[i].seq.slot].id = 0;
}

/* Tokens from a kept prefix are in the text already. */
static void learn(struct drafter *d, const struct draft_seq *s)
{
	struct ngram *g = (struct ngram *)d;
	const int32_t *tok = s->tok + s->n_known;
	int n = s->n_tok - s->n_known;

	if (!shares(s) || n < GRAM || !g->text_max)
		return;
	if (n > g->text_max / 2 - 1) {
		tok += n - (g->text_max / 2 - 1);
		n = g->text_max / 2 - 1;
	}
	if (g->n_text + n + 1 > g->text_max) {
		int half = g->text_max / 2;

		/* Older than the newest half is forgotten. */
		memmove(g->text, g->text + g->n_text - half, (size_t)half * sizeof(*g->text));
		g->n_text = half;
		grams_clear(&g->grams);
	}
	memcpy(g->text + g->n_text, tok, (size_t)n * sizeof(*tok));
	g->n_text += n;
	g->text[g->n_text++] = SEPARATOR;
	grams_reach(&g->grams, g->text, g->n_text);
}

static void forget(struct drafter *d, int slot)
{
	((struct ngram *)d)->seq[slot].id = 0;
}

static void ngram_close(struct drafter *d)
{
	struct ngram *g = (struct ngram *)d;

	for (int i = 0; i < g->seqs_max; i++)
		grams_fini(&g->seq[i].grams);
	grams_fini(&g->grams);
	free(g->seq);
	free(g->text);
	free(g);
}

static const struct drafter_ops ngram_ops = {
	.name = "ngram",
	.propose = propose,
	.close = ngram_close,
	.learn = learn,
	.forget = forget,
};

struct drafter *draft_ngram_open(int seqs_max, int text_max)
{
	struct ngram *g = xcalloc(1, sizeof(*g));

	assert(seqs_max > 0 && text_max >= 0);
	g->d.ops = &ngram_ops;
	g->seqs_max = seqs_max;
	g->seq = xcalloc((size_t)seqs_max, sizeof(*g->seq));
	g->text_max = text_max;
	g->text = xmalloc(size_mul((size_t)text_max + 1, sizeof(*g->text)));
	return &g->d;
}
