/* pair_order.c - scores that join pairs in the order of merges.
 *
 * A tokenizer.json has merges: of all neighbours that have one, those of the lowest rank are joined, of equals the leftmost.
 * GGUF's "llama" vocabularies have scores: of all neighbours whose text together is a token, those whose token has the
 * highest score are joined, of equals the leftmost.  Scores say the same as merges, for any text, if and only if
 *
 *     for every token, the last two symbols that its own text is joined to have a merge, or are not reached,
 *
 * and the score of a token falls with the rank of that merge.  For both ways look for the best neighbours of the whole text
 * and join them.  As long as nothing was joined across the ends of a stretch of text, what was joined within it is what would
 * be joined of that stretch alone, in the same order.  So the neighbours that become a token are in every text the last two
 * symbols of the token's own text: there is one merge for each token that is ever used, and its rank is the token's.  If
 * those two symbols have no merge, the token's own text is one that the two ways differ in. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "export/folder_vocab.h"

/* ---- ids by text ---- */

static int by_text(const void *a, const void *b)
{
	const struct token *x = *(const struct token *const *)a, *y = *(const struct token *const *)b;
	int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

	return c ? c : (x->n > y->n) - (x->n < y->n);
}

void text_index_open(struct text_index *x, const struct token *tok, int64_t n, int64_t twin[2])
{
	*x = (struct text_index){ .base = tok, .sorted = xmalloc(size_mul((size_t)n + 1, sizeof *x->sorted)) };
	for (int64_t i = 0; i < n; i++)
		if (tok[i].p)
			x->sorted[x->n++] = &tok[i];
	qsort(x->sorted, x->n, sizeof *x->sorted, by_text);
	twin[0] = twin[1] = -1;
	for (size_t i = 0; i + 1 < x->n && twin[0] < 0; i++)
		if (!by_text(&x->sorted[i], &x->sorted[i + 1])) {
			twin[0] = x->sorted[i] - tok;
			twin[1] = x->sorted[i + 1] - tok;
		}
}

void text_index_close(struct text_index *x)
{
	free(x->sorted);
	*x = (struct text_index){ 0 };
}

int32_t text_index_find(const struct text_index *x, const char *p, size_t n)
{
	struct token key = { .p = p, .n = n };
	const struct token *at = &key, *const *found = bsearch(&at, x->sorted, x->n, sizeof *x->sorted, by_text);

	return found ? (int32_t)(*found - x->base) : -1;
}

/* ---- merges by their halves ---- */

static int by_halves(const void *a, const void *b)
{
	const struct pair_merge *x = a, *y = b;

	if (x->left != y->left)
		return x->left < y->left ? -1 : 1;
	if (x->right != y->right)
		return x->right < y->right ? -1 : 1;
	return (x->rank < y->rank) - (x->rank > y->rank); /* of a repeated pair the last one counts */
}

struct reading {
	const struct pair_order *o;
	size_t *first; /* [n + 1]: where the merges of a left half begin */
	int32_t id[PAIR_CHARS_MAX];
	const struct pair_merge *pair[PAIR_CHARS_MAX]; /* of a symbol and the next one */
	int n;
};

static const struct pair_merge *merge_of(const struct reading *r, int32_t left, int32_t right)
{
	const struct pair_order *o = r->o;
	size_t lo, hi;

	if (left < 0 || right < 0)
		return NULL;
	if (o->cut && o->tok[right].n >= strlen(WORD_MARK) && !memcmp(o->tok[right].p, WORD_MARK, strlen(WORD_MARK)))
		return NULL;
	lo = r->first[left];
	hi = r->first[left + 1];
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (o->merge[mid].right < right)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == r->first[left + 1] || o->merge[lo].right != right || token_hidden(&o->tok[o->merge[lo].made]))
		return NULL;
	return &o->merge[lo];
}

/* ---- a token's own text ---- */

/* Its characters as symbols; a character that is not a token is one that nothing is joined with. */
static bool first_symbols(struct reading *r, const struct token *t)
{
	uint32_t cp;
	size_t len;

	r->n = 0;
	for (size_t i = 0; i < t->n; i += len) {
		len = (size_t)utf8_decode(t->p + i, t->n - i, &cp);
		len = len ? len : 1;
		if (r->n == PAIR_CHARS_MAX)
			return false;
		r->id[r->n] = text_index_find(r->o->index, t->p + i, len);
		if (r->id[r->n] >= 0 && token_hidden(&r->o->tok[r->id[r->n]]))
			r->id[r->n] = -1;
		r->n++;
	}
	for (int i = 0; i + 1 < r->n; i++)
		r->pair[i] = merge_of(r, r->id[i], r->id[i + 1]);
	return true;
}

/* Joins until two are left; false: more are, for good. */
static bool join_to_two(struct reading *r)
{
	while (r->n > 2) {
		int best = -1;

		for (int i = 0; i + 1 < r->n; i++)
			if (r->pair[i] && (best < 0 || r->pair[i]->rank < r->pair[best]->rank))
				best = i;
		if (best < 0)
			return false;
		r->id[best] = r->pair[best]->made;
		r->n--;
		memmove(r->id + best + 1, r->id + best + 2, (size_t)(r->n - best - 1) * sizeof *r->id);
		if (best + 1 < r->n) {
			memmove(r->pair + best + 1, r->pair + best + 2, (size_t)(r->n - best - 2) * sizeof *r->pair);
			r->pair[best] = merge_of(r, r->id[best], r->id[best + 1]);
		}
		if (best)
			r->pair[best - 1] = merge_of(r, r->id[best - 1], r->id[best]);
	}
	return r->n == 2;
}

int64_t pair_order(struct pair_order *o, int32_t *rank)
{
	struct reading *r = xcalloc(1, sizeof *r);
	int64_t apart = -1;

	r->o = o;
	r->first = xcalloc((size_t)o->n + 2, sizeof *r->first);
	qsort(o->merge, o->n_merge, sizeof *o->merge, by_halves);
	for (size_t i = 0; i < o->n_merge; i++)
		r->first[o->merge[i].left + 1]++;
	for (int64_t i = 0; i < o->n; i++)
		r->first[i + 1] += r->first[i];
	for (int64_t i = 0; i < o->n; i++) {
		const struct token *t = &o->tok[i];
		bool two = t->p && !token_hidden(t) && first_symbols(r, t) && join_to_two(r);

		rank[i] = two && r->pair[0] ? r->pair[0]->rank : -1;
		if (two && !r->pair[0] && !t->unseen && apart < 0)
			apart = i;
	}
	free(r->first);
	free(r);
	return apart;
}
