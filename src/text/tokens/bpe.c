/* bpe.c - see bpe.h.
 *
 * Byte pair encoding as in Sennrich et al., arXiv:1508.07909: of all neighbouring
 * pairs the one learnt first is joined, the leftmost of equals, until none is
 * left.  Short pieces scan an array; longer ones use a heap of candidates. */
#include "text/tokens/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/rng.h"
#include "base/utf8.h"

/* Below this the scan's n * n / 2 steps are cheaper than a heap. */
enum { SHORT_PIECE = 64 };

#define NO_PAIR UINT64_MAX

struct bpe_merge {
	uint64_t pair; /* left id << 32 | right id; NO_PAIR empty */
	uint32_t rank;
	int32_t id;
};

struct bpe_sym {
	int32_t id;          /* -1: joined to the symbol before it */
	uint32_t prev, next; /* offsets of the neighbours' first bytes */
};

struct bpe_cand {
	uint64_t key; /* rank << 32 | offset: the order of merging */
	uint32_t end; /* where the pair ends; tells a pair that has changed */
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

/* ---- hashes ---- */

static uint64_t mix(uint64_t h)
{
	h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
	return h ^ h >> 32;
}

static uint64_t hash_bytes(uint64_t seed, const char *p, size_t n)
{
	uint64_t h = seed ^ n, w;

	for (; n >= 8; p += 8, n -= 8) {
		memcpy(&w, p, 8);
		h = mix(h ^ w);
	}
	w = 0;
	memcpy(&w, p, n);
	return mix(mix(h ^ w) + seed);
}

/* A power of two with a third or more left empty. */
static uint32_t table_size(size_t n)
{
	uint32_t size = 16;

	while (size < n + n / 2)
		size *= 2;
	return size;
}

int32_t bpe_find(const struct bpe *b, const char *p, size_t n)
{
	for (uint64_t h = hash_bytes(b->seed, p, n);; h++) {
		int32_t id = b->slot[h & b->slot_mask];

		if (id < 0)
			return -1;
		if (b->tok[id].n == n && !memcmp(b->tok[id].p, p, n))
			return id;
	}
}

static const struct bpe_merge *find_merge(const struct bpe *b, int32_t left, int32_t right)
{
	uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

	for (uint64_t h = mix(pair ^ b->seed);; h++) {
		const struct bpe_merge *m = &b->merge[h & b->merge_mask];

		if (m->pair == pair)
			return m;
		if (m->pair == NO_PAIR)
			return NULL;
	}
}

/* ---- merging ---- */

static void encode_short(const struct bpe *b, const char *p, size_t n, struct tokens *out)
{
	int32_t id[SHORT_PIECE];
	const struct bpe_merge *m[SHORT_PIECE]; /* of id[i] with id[i + 1] */

	for (size_t i = 0; i < n; i++)
		id[i] = b->byte_id[(unsigned char)p[i]];
	for (size_t i = 0; i + 1 < n; i++)
		m[i] = find_merge(b, id[i], id[i + 1]);
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
			m[best] = find_merge(b, id[best], id[best + 1]);
		}
		if (best)
			m[best - 1] = find_merge(b, id[best - 1], id[best]);
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
static bool candidate(const struct bpe *b, const struct bpe_sym *sym, uint32_t i, size_t n, struct bpe_cand *c)
{
	uint32_t right = sym[i].next;
	const struct bpe_merge *m;

	if (right >= n || !(m = find_merge(b, sym[i].id, sym[right].id)))
		return false;
	*c = (struct bpe_cand){ (uint64_t)m->rank << 32 | i, sym[right].next, m->id };
	return true;
}

static void encode_long(const struct bpe *b, struct bpe_scratch *s, const char *p, size_t n, struct tokens *out)
{
	struct bpe_sym *sym;
	struct bpe_cand *heap;
	size_t n_heap = 0;

	if (s->cap < n) {
		s->cap = n;
		s->sym = xrealloc(s->sym, size_mul(n, sizeof *s->sym));
		/* n - 1 pairs at first, and each of at most n - 1 merges adds two where it takes one. */
		s->heap = xrealloc(s->heap, size_mul(2 * n, sizeof *s->heap));
	}
	sym = s->sym;
	heap = s->heap;
	for (size_t i = 0; i < n; i++)
		sym[i] = (struct bpe_sym){ b->byte_id[(unsigned char)p[i]], (uint32_t)i - 1, (uint32_t)i + 1 };
	/* A piece may be a whole text: what is broken off here is not used. */
	for (size_t i = 0; i < n && allowance_spend(0); i++)
		n_heap += candidate(b, sym, (uint32_t)i, n, &heap[n_heap]);
	for (size_t i = n_heap / 2; i-- > 0;)
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
		if (candidate(b, sym, i, n, &heap[n_heap]))
			sift_up(heap, n_heap++);
		if (i && candidate(b, sym, sym[i].prev, n, &heap[n_heap]))
			sift_up(heap, n_heap++);
	}
	for (size_t i = 0; i < n; i = sym[i].next)
		tokens_put(out, sym[i].id);
}

void bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *p, size_t n, struct tokens *out)
{
	int32_t id;

	assert(n > 0 && n <= TOKENIZER_TEXT_MAX);
	if (b->whole_first && (id = bpe_find(b, p, n)) >= 0)
		tokens_put(out, id);
	else if (n <= SHORT_PIECE)
		encode_short(b, p, n, out);
	else
		encode_long(b, s, p, n, out);
}

void bpe_scratch_fini(struct bpe_scratch *s)
{
	free(s->sym);
	free(s->heap);
	*s = (struct bpe_scratch){ 0 };
}

/* ---- loading ---- */

/* Options of the BPE model that change what it does, and that we lack. */
static int check_options(const struct json *model, struct err *err)
{
	static const char *const affix[] = { "continuing_subword_prefix", "end_of_word_suffix" };
	const char *type, *s;
	double dropout;
	bool fallback;
	int e;

	if ((e = json_get_str(model, "type", "BPE", &type, err)))
		return err_prefix(err, "model");
	if (strcmp(type, "BPE"))
		return err_set(err, E_UNSUPPORTED, "model type \"%s\": only BPE is done", type);
	for (int i = 0; i < 2; i++) {
		if ((e = json_get_str(model, affix[i], "", &s, err)))
			return err_prefix(err, "model");
		if (*s)
			return err_set(err, E_UNSUPPORTED, "model %s \"%s\": only none is done", affix[i], s);
	}
	if ((e = json_get_bool(model, "byte_fallback", false, &fallback, err)) ||
	    (e = json_get_double(model, "dropout", 0, &dropout, err)))
		return err_prefix(err, "model");
	if (fallback)
		return err_set(err, E_UNSUPPORTED,
		               "model byte_fallback: SentencePiece-style BPE is not done, "
		               "only byte-level");
	if (dropout != 0)
		return err_set(err, E_UNSUPPORTED, "model dropout %g: only 0 is done", dropout);
	return 0;
}

/* First pass over the vocabulary: how many ids and bytes it needs. */
static int measure_vocab(const struct json *vocab, int32_t *n_ids, size_t *n_bytes, struct err *err)
{
	struct json_cursor c;
	const struct json *v;
	const char *key;
	int64_t id;

	*n_ids = 0;
	*n_bytes = 0;
	if (json_len(vocab) > TOKENIZER_IDS_MAX)
		return err_set(err, E_LIMIT, "vocab: %zu tokens, more than %d", json_len(vocab), TOKENIZER_IDS_MAX);
	for (c = json_first(vocab); json_next(&c, &key, &v);) {
		if (json_to_int(v, &id))
			return err_set(err, E_FORMAT, "vocab: id of \"%.40s\" must be an integer, is %s", key,
			               json_kind_name(json_kind(v)));
		if (id < 0 || id >= TOKENIZER_IDS_MAX)
			return err_set(err, E_LIMIT, "vocab: id %lld of \"%.40s\" is outside [0, %d)", (long long)id,
			               key, TOKENIZER_IDS_MAX);
		if (id >= *n_ids)
			*n_ids = (int32_t)id + 1;
		*n_bytes += strlen(key);
	}
	return *n_ids ? 0 : err_set(err, E_FORMAT, "vocab: is empty");
}

static int load_vocab(struct bpe *b, const struct json *vocab, struct err *err)
{
	struct json_cursor c;
	const struct json *v;
	const char *key;
	size_t n_bytes;
	uint32_t size;
	char *to;
	int e;

	if (json_kind(vocab) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "model vocab: must be an object, is %s",
		               json_kind_name(json_kind(vocab)));
	if ((e = measure_vocab(vocab, &b->n_tok, &n_bytes, err)))
		return e;
	b->tok = xcalloc((size_t)b->n_tok, sizeof *b->tok);
	b->pool = to = xmalloc(n_bytes + 1);
	size = table_size(json_len(vocab));
	b->slot_mask = size - 1;
	b->slot = xmalloc(size_mul(size, sizeof *b->slot));
	memset(b->slot, 0xFF, size * sizeof *b->slot);
	for (c = json_first(vocab); json_next(&c, &key, &v);) {
		size_t len = strlen(key);
		long n = bpe_unmap(key, len, to);
		int64_t id = 0;

		json_to_int(v, &id);
		if (b->tok[id].p)
			return err_set(err, E_FORMAT, "vocab: id %d belongs to two tokens, the second is \"%.40s\"",
			               (int)id, key);
		if (n < 0) {
			/* Outside the alphabet: merging never yields it, decoding gives it as it is. */
			memcpy(to, key, len);
			b->tok[id] = (struct bpe_token){ to, (uint32_t)len };
			to += len;
			continue;
		}
		b->tok[id] = (struct bpe_token){ to, (uint32_t)n };
		uint64_t h = hash_bytes(b->seed, to, (size_t)n);

		while (b->slot[h & b->slot_mask] >= 0)
			h++;
		b->slot[h & b->slot_mask] = (int32_t)id;
		to += n;
	}
	for (int i = 0; i < 256; i++) {
		char byte = (char)i;

		b->byte_id[i] = bpe_find(b, &byte, 1);
		/* 0xC0, 0xC1 and 0xF5 to 0xFF occur in no UTF-8 text. */
		if (b->byte_id[i] < 0 && i != 0xC0 && i != 0xC1 && i < 0xF5)
			return err_set(err, E_UNSUPPORTED,
			               "vocab: has no token for byte 0x%02X; byte-level BPE needs all", i);
	}
	return 0;
}

/* Writes both halves of merge i to tmp and their lengths in bytes. */
static int merge_halves(const struct json *m, size_t i, struct buf *tmp, size_t *left, size_t *right, struct err *err)
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
	n[0] = bpe_unmap(s[0], len[0], tmp->p);
	n[1] = n[0] < 0 ? -1 : bpe_unmap(s[1], len[1], tmp->p + n[0]);
	if (n[1] < 0)
		return err_set(err, E_FORMAT, "merges[%zu]: \"%.40s\" is not in the byte-level alphabet", i,
		               s[n[0] < 0 ? 0 : 1]);
	*left = (size_t)n[0];
	*right = (size_t)n[1];
	return 0;
}

static int load_merge(struct bpe *b, const struct json *m, size_t i, struct buf *tmp, struct err *err)
{
	size_t nl = 0, nr = 0;
	int32_t left, right, id;
	uint64_t pair, h;
	int e;

	if ((e = merge_halves(m, i, tmp, &nl, &nr, err)))
		return e;
	left = bpe_find(b, tmp->p, nl);
	right = bpe_find(b, tmp->p + nl, nr);
	id = bpe_find(b, tmp->p, nl + nr);
	if (left < 0 || right < 0 || id < 0 || !nl || !nr)
		return err_set(err, E_FORMAT, "merges[%zu]: its %s is not in the vocab", i,
		               left < 0 || !nl  ? "left half" :
		               right < 0 || !nr ? "right half" :
		                                  "result");
	pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	h = mix(pair ^ b->seed);
	while (b->merge[h & b->merge_mask].pair != NO_PAIR && b->merge[h & b->merge_mask].pair != pair)
		h++;
	/* Of a repeated pair the last rank counts, as in the reference implementation. */
	b->merge[h & b->merge_mask] = (struct bpe_merge){ pair, (uint32_t)i, id };
	return 0;
}

static int load_merges(struct bpe *b, const struct json *merges, struct err *err)
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
	size = table_size(n);
	b->merge_mask = size - 1;
	b->merge = xmalloc(size_mul(size, sizeof *b->merge));
	for (uint32_t i = 0; i < size; i++)
		b->merge[i].pair = NO_PAIR;
	buf_init(&tmp);
	for (size_t i = 0; i < n && !e; i++)
		e = load_merge(b, json_at(merges, i), i, &tmp, err);
	buf_fini(&tmp);
	return e;
}

int bpe_open(struct bpe *b, const struct json *model, struct err *err)
{
	int e;

	*b = (struct bpe){ .seed = rng_os_seed() };
	if ((e = check_options(model, err)) ||
	    (e = json_get_bool(model, "ignore_merges", false, &b->whole_first, err)) ||
	    (e = load_vocab(b, json_get(model, "vocab"), err)) || (e = load_merges(b, json_get(model, "merges"), err)))
		bpe_close(b);
	return e;
}

void bpe_close(struct bpe *b)
{
	free(b->tok);
	free(b->pool);
	free(b->slot);
	free(b->merge);
	*b = (struct bpe){ 0 };
}
