/* scored.c - see token_model.h: pairs joined by the score of what they give, the highest first.
 *
 * SentencePiece's kind of byte pair encoding, which has no list of merges: two
 * neighbours are joined if their text together is a token, and the token's score is
 * the order; of equals the leftmost.  GGUF's "llama" vocabularies are such; those of
 * tiktoken and tekken too, whose first symbols are bytes and whose scores are ranks
 * with the sign turned. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "text/tokens/bpe.h"
#include "text/tokens/token_model.h"

struct pair_sym {
	uint32_t n;          /* bytes; 0: joined to the symbol before it */
	uint32_t prev, next; /* offsets of the neighbours; prev of the first is UINT32_MAX */
};

struct pair_cand {
	double score;
	uint32_t at, end; /* bytes [at, end); another end of the pair at `at` means that it has changed */
};

/* The order of joining. */
static bool sooner(const struct pair_cand *a, const struct pair_cand *b)
{
	return a->score != b->score ? a->score > b->score : a->at < b->at;
}

static void heap_down(struct pair_cand *heap, size_t n, size_t i)
{
	struct pair_cand c = heap[i];

	for (;;) {
		size_t kid = 2 * i + 1;

		if (kid >= n)
			break;
		if (kid + 1 < n && sooner(&heap[kid + 1], &heap[kid]))
			kid++;
		if (!sooner(&heap[kid], &c))
			break;
		heap[i] = heap[kid];
		i = kid;
	}
	heap[i] = c;
}

static void heap_up(struct pair_cand *heap, size_t i)
{
	struct pair_cand c = heap[i];

	for (; i && sooner(&c, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = c;
}

struct joining {
	const struct token_model *m;
	const char *p;
	size_t n;
	struct pair_sym *sym; /* [n] by offset */
	struct pair_cand *heap;
	size_t n_heap;
};

/* The pair of the symbol at i and the next one, if its text is a token. */
static bool pair_at(const struct joining *j, uint32_t i, struct pair_cand *c)
{
	uint32_t right = j->sym[i].next;
	int32_t id;

	if (right >= j->n)
		return false;
	c->at = i;
	c->end = right + j->sym[right].n;
	id = token_model_find(j->m, j->p + i, c->end - i);
	if (id < 0)
		return false;
	c->score = j->m->words.score[id];
	return true;
}

static void begin(struct joining *j)
{
	uint32_t prev = UINT32_MAX;

	for (size_t i = 0, len; i < j->n && allowance_spend(0); i += len) {
		len = j->m->byte_level ? 1 : token_model_char(j->p + i, j->n - i);
		j->sym[i] = (struct pair_sym){ (uint32_t)len, prev, (uint32_t)(i + len) };
		prev = (uint32_t)i;
	}
	/* A result that is broken off here is not used. */
	for (size_t i = 0; i < j->n && allowance_spend(1); i = j->sym[i].next)
		j->n_heap += pair_at(j, (uint32_t)i, &j->heap[j->n_heap]);
	for (size_t i = j->n_heap / 2; i-- > 0 && allowance_spend(0);)
		heap_down(j->heap, j->n_heap, i);
}

static void add_pair(struct joining *j, uint32_t i)
{
	if (pair_at(j, i, &j->heap[j->n_heap])) {
		j->n_heap++;
		heap_up(j->heap, j->n_heap - 1);
	}
}

static void join_all(struct joining *j)
{
	while (j->n_heap && allowance_spend(2)) {
		struct pair_cand top = j->heap[0];
		struct pair_sym *left = &j->sym[top.at], *right;

		j->heap[0] = j->heap[--j->n_heap];
		if (j->n_heap)
			heap_down(j->heap, j->n_heap, 0);
		if (!left->n || left->next >= j->n || left->next + j->sym[left->next].n != top.end)
			continue;
		right = &j->sym[left->next];
		left->n += right->n;
		left->next = right->next;
		right->n = 0;
		if (left->next < j->n)
			j->sym[left->next].prev = top.at;
		add_pair(j, top.at);
		if (left->prev != UINT32_MAX)
			add_pair(j, left->prev);
	}
}

static void encode(const struct token_model *m, struct token_work *w, const char *p, size_t n, struct tokens *out)
{
	struct joining j = { .m = m, .p = p, .n = n };
	bool fused = false;
	int32_t whole;

	if (m->byte_level && (whole = token_model_find(m, p, n)) >= 0) {
		tokens_put(out, whole); /* tiktoken's way: a whole piece first */
		return;
	}
	/* n - 1 pairs at first, and each of at most n - 1 joins adds two where it takes one. */
	j.heap = token_work_get(w, size_mul(n, 2 * sizeof *j.heap + sizeof *j.sym));
	j.sym = (struct pair_sym *)(j.heap + 2 * n);
	begin(&j);
	join_all(&j);
	for (size_t i = 0; i < n && allowance_spend(0); i = j.sym[i].next) {
		int32_t id = token_model_find(m, p + i, j.sym[i].n);

		if (id >= 0)
			tokens_put(out, id);
		else
			token_model_lacking(m, p + i, j.sym[i].n, &fused, out);
		fused &= id < 0;
	}
}

static int open_scored(struct token_model *m, const struct json *model, struct err *err)
{
	int e = lexicon_open(&m->words, json_get(model, "vocab"), m->byte_level ? bpe_unmap : NULL, err);

	if (!e && !m->words.score)
		e = err_set(err, E_FORMAT, "model vocab: must be an array of [text, score]");
	return e ? e : token_model_fallback(m, model, err);
}

const struct token_model_ops scored_model = { "ScoredBPE", open_scored, NULL, encode };
