/* bpe.c - see token_model.h: pairs joined by the order in which they were learnt.
 *
 * Byte pair encoding as in Sennrich et al., arXiv:1508.07909: of all neighbouring
 * pairs the one learnt first is joined, the leftmost of equals, until none is
 * left.  Short pieces scan an array; longer ones use a heap of candidates.  The
 * first symbols are bytes where the vocabulary is byte-level, else characters. */
#include "text/tokens/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/tokens/token_model.h"

/* Below this many symbols the scan's n * n / 2 steps are cheaper than a heap. */
enum { SHORT_PIECE = 64 };

#define NO_PAIR UINT64_MAX

struct bpe_merge {
	uint64_t pair; /* left id << 32 | right id; NO_PAIR empty */
	uint32_t rank;
	int32_t id;
};

struct bpe {
	struct bpe_merge *merge; /* open addressing, by the pair of ids */
	uint32_t merge_mask;
	bool whole_first; /* ignore_merges: a piece that is a token is that token */
	uint64_t seed;
};

struct bpe_sym {
	int32_t id;          /* -1: joined to the symbol before it */
	uint32_t prev, next; /* numbers of the neighbours */
};

struct bpe_cand {
	uint64_t key; /* rank << 32 | symbol: the order of merging */
	uint32_t end; /* the symbol behind the pair; tells a pair that has changed */
	int32_t id;
};

/* ---- GPT-2's alphabet ---- */

/* The 188 printable characters of Latin-1 stand for themselves; the other 68
 * bytes, in order, are U+0100 to U+0143. */
static bool stands_for_itself(uint32_t c)
{
	return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

static int byte_of(uint32_t cp)
{
	if (cp < 0x100)
		return stands_for_itself(cp) ? (int)cp : -1;
	if (cp <= 0x120)
		return (int)(cp - 0x100); /* 0x00..0x20 */
	if (cp <= 0x142)
		return (int)(cp - 0x121 + 0x7F); /* 0x7F..0xA0 */
	return cp == 0x143 ? 0xAD : -1;
}

long bpe_unmap(const char *s, size_t n, char *out)
{
	long len = 0;
	uint32_t cp;
	int k, byte;

	for (size_t i = 0; i < n; i += (size_t)k) {
		k = utf8_decode(s + i, n - i, &cp);
		if (!k || (byte = byte_of(cp)) < 0)
			return -1;
		out[len++] = (char)byte;
	}
	return len;
}

/* The merge of two neighbours, or NULL; one that would give a special token is none. */
static const struct bpe_merge *find_merge(const struct token_model *model, int32_t left, int32_t right)
{
	uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	const struct bpe *b = model->own;

	for (uint64_t h = lexicon_mix(pair ^ b->seed);; h++) {
		const struct bpe_merge *m = &b->merge[h & b->merge_mask];

		if (m->pair == pair)
			return token_model_hidden(model, m->id) ? NULL : m;
		if (m->pair == NO_PAIR)
			return NULL;
	}
}

/* ---- the first symbols ---- */

/* Splits p[0..n) into tokens, to id[n]; returns how many. */
static size_t first_symbols(const struct token_model *m, const char *p, size_t n, int32_t *id)
{
	struct tokens one = { id, 0, n }; /* never grows: a character leaves at most as many as it has bytes */
	bool fused = false;

	for (size_t i = 0, len; i < n && allowance_spend(0); i += len) {
		int32_t k;

		len = 1;
		if (m->byte_level) {
			id[one.n++] = m->byte_id[(unsigned char)p[i]];
			continue;
		}
		len = token_model_char(p + i, n - i);
		k = token_model_find(m, p + i, len);
		if (k < 0) {
			token_model_lacking(m, p + i, len, &fused, &one);
			continue;
		}
		id[one.n++] = k;
		fused = false;
	}
	return one.n;
}

/* ---- merging ---- */

static void join_few(const struct token_model *model, int32_t *id, size_t n, struct tokens *out)
{
	const struct bpe_merge *m[SHORT_PIECE]; /* of id[i] with id[i + 1] */

	for (size_t i = 0; i + 1 < n; i++)
		m[i] = find_merge(model, id[i], id[i + 1]);
	for (;;) {
		uint32_t best_rank = UINT32_MAX;
		size_t best = 0;

		for (size_t i = 0; i + 1 < n; i++) {
			if (m[i] && m[i]->rank < best_rank) {
				best_rank = m[i]->rank;
				best = i;
			}
		}
		if (best_rank == UINT32_MAX)
			break;
		id[best] = m[best]->id;
		n--;
		memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
		if (best + 1 < n) {
			memmove(m + best + 1, m + best + 2, (n - best - 2) * sizeof *m);
			m[best] = find_merge(model, id[best], id[best + 1]);
		}
		if (best)
			m[best - 1] = find_merge(model, id[best - 1], id[best]);
	}
	for (size_t i = 0; i < n; i++)
		tokens_put(out, id[i]);
}

static void sift_down(struct bpe_cand *heap, size_t n, size_t i)
{
	struct bpe_cand c = heap[i];

	for (;;) {
		size_t kid = 2 * i + 1;

		if (kid >= n)
			break;
		if (kid + 1 < n && heap[kid + 1].key < heap[kid].key)
			kid++;
		if (heap[kid].key >= c.key)
			break;
		heap[i] = heap[kid];
		i = kid;
	}
	heap[i] = c;
}

static void sift_up(struct bpe_cand *heap, size_t i)
{
	struct bpe_cand c = heap[i];

	while (i && heap[(i - 1) / 2].key > c.key) {
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = c;
}

/* The candidate that the symbol at i makes with its right neighbour, if any. */
static bool candidate(const struct token_model *model, const struct bpe_sym *sym, uint32_t i, size_t n,
                      struct bpe_cand *c)
{
	uint32_t right = sym[i].next;
	const struct bpe_merge *m;

	if (right >= n || !(m = find_merge(model, sym[i].id, sym[right].id)))
		return false;
	*c = (struct bpe_cand){ (uint64_t)m->rank << 32 | i, sym[right].next, m->id };
	return true;
}

static void join_many(const struct token_model *model, const int32_t *id, size_t n, struct bpe_sym *sym,
                      struct bpe_cand *heap, struct tokens *out)
{
	size_t n_heap = 0;

	/* A piece may be a whole text: what is broken off here is not used. */
	for (size_t i = 0; i < n; i++) {
		if (!allowance_spend(0))
			return;
		sym[i] = (struct bpe_sym){ id[i], (uint32_t)i - 1, (uint32_t)i + 1 };
	}
	for (size_t i = 0; i < n && allowance_spend(0); i++)
		n_heap += candidate(model, sym, (uint32_t)i, n, &heap[n_heap]);
	for (size_t i = n_heap / 2; i-- > 0 && allowance_spend(0);)
		sift_down(heap, n_heap, i);
	while (n_heap && allowance_spend(1)) {
		struct bpe_cand top = heap[0];
		uint32_t i = (uint32_t)top.key, right;

		heap[0] = heap[--n_heap];
		if (n_heap)
			sift_down(heap, n_heap, 0);
		/* Symbols only grow, so the same end means the same pair. */
		if (sym[i].id < 0 || (right = sym[i].next) >= n || sym[right].next != top.end)
			continue;
		sym[i].id = top.id;
		sym[i].next = sym[right].next;
		sym[right].id = -1;
		if (sym[i].next < n)
			sym[sym[i].next].prev = i;
		if (candidate(model, sym, i, n, &heap[n_heap]))
			sift_up(heap, n_heap++);
		if (i && candidate(model, sym, sym[i].prev, n, &heap[n_heap]))
			sift_up(heap, n_heap++);
	}
	for (size_t i = 0; i < n && allowance_spend(0); i = sym[i].next)
		tokens_put(out, sym[i].id);
}

static void encode(const struct token_model *m, struct token_work *w, const char *p, size_t n, struct tokens *out)
{
	const struct bpe *b = m->own;
	struct bpe_cand *heap;
	struct bpe_sym *sym;
	int32_t *id, whole;

	assert(n > 0 && n <= 3 * (size_t)TOKENIZER_TEXT_MAX);
	if (b->whole_first && (whole = token_model_find(m, p, n)) >= 0) {
		tokens_put(out, whole);
		return;
	}
	/* n - 1 pairs at first, and each of at most n - 1 merges adds two where it takes one. */
	heap = token_work_get(w, size_mul(n, 2 * sizeof *heap + sizeof *sym + sizeof *id));
	sym = (struct bpe_sym *)(heap + 2 * n);
	id = (int32_t *)(sym + n);
	if (!(n = first_symbols(m, p, n, id)))
		return;
	if (n <= SHORT_PIECE)
		join_few(m, id, n, out);
	else
		join_many(m, id, n, sym, heap, out);
}

/* ---- loading ---- */

static long spelt(const struct token_model *m, const char *s, size_t n, char *out)
{
	if (m->byte_level)
		return bpe_unmap(s, n, out);
	memcpy(out, s, n);
	return (long)n;
}

/* Writes both halves of merge i to tmp and their lengths in bytes. */
static int merge_halves(const struct token_model *model, const struct json *m, size_t i, struct buf *tmp, size_t *left,
                        size_t *right, struct err *err)
{
	const char *s[2];
	size_t len[2];
	long n[2];

	if (json_kind(m) == JSON_STRING) {
		const char *space;

		s[0] = json_str(m, &len[0]);
		space = memchr(s[0], ' ', len[0]);
		if (!space)
			return err_set(err, E_FORMAT, "merges[%zu]: \"%.40s\" has no space", i, s[0]);
		s[1] = space + 1;
		len[1] = len[0] - (size_t)(s[1] - s[0]);
		len[0] = (size_t)(space - s[0]);
	} else {
		if (json_kind(m) != JSON_ARRAY || json_len(m) != 2 || !(s[0] = json_str(json_at(m, 0), &len[0])) ||
		    !(s[1] = json_str(json_at(m, 1), &len[1])))
			return err_set(err, E_FORMAT, "merges[%zu]: must be \"a b\" or [\"a\", \"b\"]", i);
	}
	buf_reset(tmp);
	buf_reserve(tmp, len[0] + len[1]);
	n[0] = spelt(model, s[0], len[0], tmp->p);
	n[1] = n[0] < 0 ? -1 : spelt(model, s[1], len[1], tmp->p + n[0]);
	if (n[1] < 0)
		return err_set(err, E_FORMAT, "merges[%zu]: \"%.40s\" is not in the byte-level alphabet", i,
		               s[n[0] < 0 ? 0 : 1]);
	*left = (size_t)n[0];
	*right = (size_t)n[1];
	return 0;
}

static int load_merge(const struct token_model *model, struct bpe *b, const struct json *m, size_t i, struct buf *tmp,
                      struct err *err)
{
	size_t nl = 0, nr = 0;
	int32_t left, right, id;
	uint64_t pair, h;
	int e;

	if ((e = merge_halves(model, m, i, tmp, &nl, &nr, err)))
		return e;
	left = lexicon_find(&model->words, tmp->p, nl);
	right = lexicon_find(&model->words, tmp->p + nl, nr);
	id = lexicon_find(&model->words, tmp->p, nl + nr);
	if (left < 0 || right < 0 || id < 0 || !nl || !nr)
		return err_set(err, E_FORMAT, "merges[%zu]: its %s is not in the vocab", i,
		               left < 0 || !nl  ? "left half" :
		               right < 0 || !nr ? "right half" :
		                                  "result");
	pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	h = lexicon_mix(pair ^ b->seed);
	while (b->merge[h & b->merge_mask].pair != NO_PAIR && b->merge[h & b->merge_mask].pair != pair)
		h++;
	/* The last rank of a repeated pair counts, as in the reference implementation. */
	b->merge[h & b->merge_mask] = (struct bpe_merge){ pair, (uint32_t)i, id };
	return 0;
}

static int load_merges(const struct token_model *model, struct bpe *b, const struct json *merges, struct err *err)
{
	size_t n = json_len(merges);
	struct buf tmp;
	uint32_t size;
	int e = 0;

	if (json_kind(merges) != JSON_ARRAY)
		return err_set(err, E_FORMAT, "model merges: must be an array, is %s",
		               json_kind_name(json_kind(merges)));
	if (n > TOKENIZER_MERGES_MAX)
		return err_set(err, E_LIMIT, "merges: %zu, more than %d", n, TOKENIZER_MERGES_MAX);
	size = lexicon_table_size(n);
	b->merge_mask = size - 1;
	b->merge = xmalloc(size_mul(size, sizeof *b->merge));
	for (uint32_t i = 0; i < size; i++)
		b->merge[i].pair = NO_PAIR;
	buf_init(&tmp);
	for (size_t i = 0; i < n && !e; i++)
		e = load_merge(model, b, json_at(merges, i), i, &tmp, err);
	buf_fini(&tmp);
	return e;
}

/* Every byte of a text must be a token: what merging begins with. */
static int find_bytes(struct token_model *m, struct err *err)
{
	for (int i = 0; i < 256; i++) {
		char byte = (char)i;

		m->byte_id[i] = lexicon_find(&m->words, &byte, 1);
		/* 0xC0, 0xC1 and 0xF5 to 0xFF occur in no UTF-8 text. */
		if (m->byte_id[i] < 0 && i != 0xC0 && i != 0xC1 && i < 0xF5)
			return err_set(err, E_UNSUPPORTED,
			               "vocab: has no token for byte 0x%02X; byte-level BPE needs all", i);
	}
	return 0;
}

static int open_bpe(struct token_model *m, const struct json *model, struct err *err)
{
	struct bpe *b = xcalloc(1, sizeof *b);
	int e;

	m->own = b;
	b->seed = rng_os_seed();
	if ((e = token_model_without(model, "continuing_subword_prefix", err)) ||
	    (e = token_model_without(model, "end_of_word_suffix", err)) ||
	    (e = token_model_without(model, "dropout", err)) ||
	    (e = lexicon_open(&m->words, json_get(model, "vocab"), m->byte_level ? bpe_unmap : NULL, err)))
		return e;
	if ((e = json_get_bool(model, "ignore_merges", false, &b->whole_first, err)))
		return err_prefix(err, "model");
	e = m->byte_level ? find_bytes(m, err) : token_model_fallback(m, model, err);
	return e ? e : load_merges(m, b, json_get(model, "merges"), err);
}

static void close_bpe(struct token_model *m)
{
	struct bpe *b = m->own;

	free(b->merge);
	free(b);
}

const struct token_model_ops bpe_model = { "BPE", open_bpe, close_bpe, encode };
