/* unigram.c - see token_model.h: the segmentation whose tokens have the largest sum of scores.
 *
 * Kudo, Subword Regularization, arXiv:1804.10959, without sampling: a path from the
 * left through all tokens that fit, in double.  A character that no token covers
 * costs as much as the worst token and 10 more. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "text/tokens/token_model.h"
#include "text/tokens/trie.h"

static const double unknown_penalty = 10;

struct unigram {
	struct trie trie;
	double unknown_score;
};

/* The best way to bytes [0, i). */
struct best {
	double score;
	uint32_t from;
	int32_t id; /* of bytes [from, i); -1: a character that no token covers */
};

static void offer(struct best *at, double score, uint32_t from, int32_t id)
{
	if (score > at->score)
		*at = (struct best){ score, from, id };
}

/* Returns the steps that it took. */
static size_t extend(const struct token_model *m, struct best *best, const char *p, size_t n, size_t i)
{
	const struct unigram *u = m->own;
	size_t len = token_model_char(p + i, n - i);
	uint32_t node = TRIE_ROOT, id;
	bool covered = false;
	size_t k;

	for (k = i; k < n; k++) {
		node = trie_step(&u->trie, node, (unsigned char)p[k], &id);
		if (node == TRIE_NONE)
			break;
		if (id == TRIE_NONE || token_model_hidden(m, (int32_t)id))
			continue;
		offer(&best[k + 1], best[i].score + m->words.score[id], (uint32_t)i, (int32_t)id);
		covered |= k + 1 - i == len;
	}
	if (!covered)
		offer(&best[i + len], best[i].score + u->unknown_score, (uint32_t)i, -1);
	return k - i + 1;
}

static void encode(const struct token_model *m, struct token_work *w, const char *p, size_t n, struct tokens *out)
{
	struct best *best = token_work_get(w, size_mul(n + 1, sizeof *best));
	bool fused = false;
	size_t end = n;

	/* A loop that the allowance ends leaves a half-made cut; the caller drops it. */
	for (size_t i = 1; i <= n; i++) {
		if (!allowance_spend(0))
			return;
		best[i] = (struct best){ (double)-INFINITY, 0, -1 };
	}
	best[0] = (struct best){ 0, 0, -1 };
	for (size_t i = 0; i < n; i++)
		if (best[i].score > (double)-INFINITY)
			if (!allowance_spend(extend(m, best, p, n, i)))
				return;
	/* Backwards along the path, each step noting where it came from. */
	for (size_t i = n; i > 0 && allowance_spend(0); end = i, i = best[i].from)
		best[i].score = (double)end; /* where the next token ends; of the last, n */
	for (size_t i = end; i <= n && n && allowance_spend(0); i = (size_t)best[i].score) {
		if (best[i].id >= 0)
			tokens_put(out, best[i].id);
		else
			token_model_lacking(m, p + best[i].from, i - best[i].from, &fused, out);
		fused &= best[i].id < 0;
		if (i == n)
			break;
	}
}

static int open_unigram(struct token_model *m, const struct json *model, struct err *err)
{
	struct unigram *u = xcalloc(1, sizeof *u);
	double least = 0;
	size_t n_bytes = 0;
	int e;

	m->own = u;
	if ((e = lexicon_open(&m->words, json_get(model, "vocab"), NULL, err)))
		return e;
	if (!m->words.score)
		return err_set(err, E_FORMAT, "model vocab: must be an array of [text, score]");
	for (int32_t i = 0; i < m->words.n_tok; i++)
		n_bytes += m->words.tok[i].n;
	trie_init(&u->trie, n_bytes);
	for (int32_t i = 0; i < m->words.n_tok; i++) {
		if (!m->words.tok[i].n)
			continue;
		trie_put(&u->trie, m->words.tok[i].p, m->words.tok[i].n, (uint32_t)i);
		if (m->words.score[i] < least)
			least = m->words.score[i];
	}
	u->unknown_score = least - unknown_penalty;
	if ((e = token_model_fallback(m, model, err)))
		return e;
	m->fuse_unknown = true;
	return 0;
}

static void close_unigram(struct token_model *m)
{
	struct unigram *u = m->own;

	trie_fini(&u->trie);
	free(u);
}

const struct token_model_ops unigram_model = { "Unigram", open_unigram, close_unigram, encode };
