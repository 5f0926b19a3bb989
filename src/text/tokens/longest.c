/* longest.c - see token_model.h: at each place the longest token that fits, as RWKV's vocabularies are used. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "text/tokens/bpe.h"
#include "text/tokens/token_model.h"
#include "text/tokens/trie.h"

static void encode(const struct token_model *m, struct token_work *w, const char *p, size_t n, struct tokens *out)
{
	const struct trie *t = m->own;
	bool fused = false;

	/* A result that is broken off here is not used. */
	for (size_t i = 0, len; i < n && allowance_spend(2); i += len) {
		uint32_t node = TRIE_ROOT, id;
		int32_t best = -1;

		len = 1;
		for (size_t k = i; k < n; k++) {
			node = trie_step(t, node, (unsigned char)p[k], &id);
			if (node == TRIE_NONE || !allowance_spend(1))
				break;
			if (id == TRIE_NONE || token_model_hidden(m, (int32_t)id))
				continue;
			best = (int32_t)id;
			len = k + 1 - i;
		}
		if (best >= 0)
			tokens_put(out, best);
		else
			token_model_lacking(m, p + i, len, &fused, out);
		fused &= best < 0;
	}
}

static int open_longest(struct token_model *m, const struct json *model, struct err *err)
{
	struct trie *t = xcalloc(1, sizeof *t);
	size_t n_bytes = 0;
	int e;

	m->own = t;
	if ((e = lexicon_open(&m->words, json_get(model, "vocab"), m->byte_level ? bpe_unmap : NULL, err)))
		return e;
	for (int32_t i = 0; i < m->words.n_tok; i++)
		n_bytes += m->words.tok[i].n;
	trie_init(t, n_bytes);
	for (int32_t i = 0; i < m->words.n_tok; i++)
		if (m->words.tok[i].n)
			trie_put(t, m->words.tok[i].p, m->words.tok[i].n, (uint32_t)i);
	return token_model_fallback(m, model, err);
}

static void close_longest(struct token_model *m)
{
	trie_fini(m->own);
	free(m->own);
}

const struct token_model_ops longest_model = { "Longest", open_longest, close_longest, encode };
