/* wordpiece.c - see token_model.h: a word is cut from the left into the longest tokens, those behind the first written
 * with a prefix ("##"); a word that cannot be is one unknown token.  BERT's way. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "text/tokens/token_model.h"
#include "text/tokens/trie.h"

enum { WORD_CHARS = 100, PREFIX_MAX = 16 };

struct wordpiece {
	struct trie trie;
	uint32_t inner;  /* the node behind the prefix; TRIE_NONE: no token has it */
	int64_t longest; /* characters; longer words are unknown */
};

/* The longest token at p[0..n) below node; 0: none. */
static size_t longest_at(const struct token_model *m, uint32_t node, const char *p, size_t n, int32_t *best)
{
	const struct wordpiece *w = m->own;
	size_t len = 0;
	uint32_t id;

	for (size_t k = 0; k < n && node != TRIE_NONE && allowance_spend(1); k++) {
		node = trie_step(&w->trie, node, (unsigned char)p[k], &id);
		if (node == TRIE_NONE || id == TRIE_NONE || token_model_hidden(m, (int32_t)id))
			continue;
		*best = (int32_t)id;
		len = k + 1;
	}
	return len;
}

static void encode(const struct token_model *m, struct token_work *work, const char *p, size_t n, struct tokens *out)
{
	const struct wordpiece *w = m->own;
	size_t before = out->n, len = 0;
	int64_t chars = 0;
	int32_t id = -1;

	for (size_t i = 0; i < n; i += token_model_char(p + i, n - i))
		chars++;
	for (size_t i = 0; i < n && chars <= w->longest; i += len) {
		len = longest_at(m, i ? w->inner : TRIE_ROOT, p + i, n - i, &id);
		if (!len)
			break;
		tokens_put(out, id);
	}
	if (len && chars <= w->longest)
		return;
	out->n = before;
	if (m->unknown >= 0)
		tokens_put(out, m->unknown);
}

static int open_wordpiece(struct token_model *m, const struct json *model, struct err *err)
{
	struct wordpiece *w = xcalloc(1, sizeof *w);
	const char *prefix;
	size_t n_bytes = 0;
	uint32_t id;
	int e;

	m->own = w;
	if ((e = json_get_str(model, "continuing_subword_prefix", "##", &prefix, err)) ||
	    (e = json_get_int(model, "max_input_chars_per_word", WORD_CHARS, &w->longest, err)))
		return err_prefix(err, "model");
	if (strlen(prefix) > PREFIX_MAX)
		return err_set(err, E_LIMIT, "model continuing_subword_prefix: more than %d bytes", PREFIX_MAX);
	if ((e = lexicon_open(&m->words, json_get(model, "vocab"), NULL, err)))
		return e;
	for (int32_t i = 0; i < m->words.n_tok; i++)
		n_bytes += m->words.tok[i].n;
	trie_init(&w->trie, n_bytes);
	for (int32_t i = 0; i < m->words.n_tok; i++)
		if (m->words.tok[i].n)
			trie_put(&w->trie, m->words.tok[i].p, m->words.tok[i].n, (uint32_t)i);
	w->inner = TRIE_ROOT;
	for (const char *c = prefix; *c && w->inner != TRIE_NONE; c++)
		w->inner = trie_step(&w->trie, w->inner, (unsigned char)*c, &id);
	return token_model_fallback(m, model, err);
}

static void close_wordpiece(struct token_model *m)
{
	struct wordpiece *w = m->own;

	trie_fini(&w->trie);
	free(w);
}

const struct token_model_ops wordpiece_model = { "WordPiece", open_wordpiece, close_wordpiece, encode };
