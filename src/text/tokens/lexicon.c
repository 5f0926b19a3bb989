/* lexicon.c - see lexicon.h. */
#include "text/tokens/lexicon.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "text/tokens/tokenizer.h"

uint64_t lexicon_mix(uint64_t h)
{
	h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
	return h ^ h >> 32;
}

static uint64_t hash_bytes(uint64_t seed, const char *p, size_t n)
{
	uint64_t h = seed ^ n, w;

	for (; n >= 8; p += 8, n -= 8) {
		memcpy(&w, p, 8);
		h = lexicon_mix(h ^ w);
	}
	w = 0;
	memcpy(&w, p, n);
	return lexicon_mix(lexicon_mix(h ^ w) + seed);
}

uint32_t lexicon_table_size(size_t n)
{
	uint32_t size = 16;

	while (size < n + n / 2)
		size *= 2;
	return size;
}

int32_t lexicon_find(const struct lexicon *l, const char *p, size_t n)
{
	for (uint64_t h = hash_bytes(l->seed, p, n);; h++) {
		int32_t id = l->slot[h & l->slot_mask];

		if (id < 0)
			return -1;
		if (l->tok[id].n == n && !memcmp(l->tok[id].p, p, n))
			return id;
	}
}

/* ---- loading ---- */

/* A vocabulary of either form, entry after entry. */
struct entries {
	const struct json *list;
	struct json_cursor c;
	size_t i;
	const char *text;
	size_t n;
	int64_t id;
	double score;
};

static struct entries entries_of(const struct json *vocab)
{
	return (struct entries){ .list = vocab,
		                 .c = json_kind(vocab) == JSON_OBJECT ? json_first(vocab) : (struct json_cursor){ 0 } };
}

/* 1: an entry; 0: the end; < 0: an error. */
static int next_entry(struct entries *e, struct err *err)
{
	const struct json *v;

	if (json_kind(e->list) == JSON_OBJECT) {
		if (!json_next(&e->c, &e->text, &v))
			return 0;
		e->n = strlen(e->text);
		if (json_to_int(v, &e->id))
			return err_set(err, E_FORMAT, "vocab: id of \"%.40s\" must be an integer, is %s", e->text,
			               json_kind_name(json_kind(v)));
	} else {
		if (e->i == json_len(e->list))
			return 0;
		v = json_at(e->list, e->i);
		while (json_kind(v) == JSON_NULL && ++e->i < json_len(e->list))
			v = json_at(e->list, e->i);
		if (e->i == json_len(e->list))
			return 0;
		e->id = (int64_t)e->i++;
		e->text = json_str(json_at(v, 0), &e->n);
		if (!e->text || json_to_double(json_at(v, 1), &e->score))
			return err_set(err, E_FORMAT, "vocab[%zu]: must be [text, score]", e->i - 1);
	}
	if (e->id < 0 || e->id >= TOKENIZER_IDS_MAX)
		return err_set(err, E_LIMIT, "vocab: id %lld of \"%.40s\" is outside [0, %d)", (long long)e->id,
		               e->text, TOKENIZER_IDS_MAX);
	return 1;
}

/* First pass over the vocabulary: how many ids and bytes it needs. */
static int measure(const struct json *vocab, int32_t *n_ids, size_t *n_bytes, struct err *err)
{
	struct entries e = entries_of(vocab);
	int more;

	*n_ids = 0;
	*n_bytes = 0;
	if (json_len(vocab) > TOKENIZER_IDS_MAX)
		return err_set(err, E_LIMIT, "vocab: %zu tokens, more than %d", json_len(vocab), TOKENIZER_IDS_MAX);
	while ((more = next_entry(&e, err)) > 0) {
		if (e.id >= *n_ids)
			*n_ids = (int32_t)e.id + 1;
		*n_bytes += e.n;
	}
	if (more < 0)
		return more;
	return *n_ids ? 0 : err_set(err, E_FORMAT, "vocab: is empty");
}

static void put(struct lexicon *l, int32_t id)
{
	uint64_t h = hash_bytes(l->seed, l->tok[id].p, l->tok[id].n);

	while (l->slot[h & l->slot_mask] >= 0)
		h++;
	l->slot[h & l->slot_mask] = id;
}

static int fill(struct lexicon *l, const struct json *vocab, lexicon_spell *spell, struct err *err)
{
	struct entries e = entries_of(vocab);
	char *to = l->pool;
	int more;

	while ((more = next_entry(&e, err)) > 0) {
		long n = spell ? spell(e.text, e.n, to) : -1;

		if (l->tok[e.id].p)
			return err_set(err, E_FORMAT, "vocab: id %d belongs to two tokens, the second is \"%.40s\"",
			               (int)e.id, e.text);
		if (n < 0)
			memcpy(to, e.text, e.n);
		l->tok[e.id] = (struct token_text){ to, (uint32_t)(n < 0 ? e.n : (size_t)n) };
		if (l->score)
			l->score[e.id] = e.score;
		/* A text outside of the alphabet: merging never yields it, decoding gives it as it is. */
		if (n >= 0 || !spell) {
			if (json_kind(vocab) == JSON_ARRAY && lexicon_find(l, to, l->tok[e.id].n) >= 0)
				return err_set(err, E_FORMAT, "vocab[%d]: \"%.40s\" is there twice", (int)e.id, e.text);
			put(l, (int32_t)e.id);
		}
		to += l->tok[e.id].n;
	}
	return more;
}

int lexicon_open(struct lexicon *l, const struct json *vocab, lexicon_spell *spell, struct err *err)
{
	size_t n_bytes;
	uint32_t size;
	int e;

	*l = (struct lexicon){ .seed = rng_os_seed() };
	if (json_kind(vocab) != JSON_OBJECT && json_kind(vocab) != JSON_ARRAY)
		return err_set(err, E_FORMAT, "model vocab: must be an object or an array, is %s",
		               json_kind_name(json_kind(vocab)));
	if ((e = measure(vocab, &l->n_tok, &n_bytes, err)))
		return e;
	l->tok = xcalloc((size_t)l->n_tok, sizeof *l->tok);
	if (json_kind(vocab) == JSON_ARRAY)
		l->score = xcalloc((size_t)l->n_tok, sizeof *l->score);
	l->pool = xmalloc(n_bytes + 1);
	size = lexicon_table_size(json_len(vocab));
	l->slot_mask = size - 1;
	l->slot = xmalloc(size_mul(size, sizeof *l->slot));
	memset(l->slot, 0xFF, size * sizeof *l->slot);
	return fill(l, vocab, spell, err);
}

void lexicon_close(struct lexicon *l)
{
	free(l->tok);
	free(l->score);
	free(l->pool);
	free(l->slot);
	*l = (struct lexicon){ 0 };
}
