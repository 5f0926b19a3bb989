/* token_models.c - every kind of vocabulary there is, and what they share; see token_model.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/utf8.h"
#include "text/tokens/token_model.h"

extern const struct token_model_ops bpe_model, scored_model, unigram_model, wordpiece_model, longest_model;

const struct token_model_ops *const token_models[] = {
	&bpe_model, &scored_model, &unigram_model, &wordpiece_model, &longest_model, NULL,
};

int token_model_open(struct token_model *m, const struct json *model, bool byte_level, struct err *err)
{
	const char *type;
	int e;

	*m = (struct token_model){ .byte_level = byte_level, .unknown = -1 };
	memset(m->byte_id, 0xFF, sizeof m->byte_id);
	if ((e = json_get_str(model, "type", json_kind(json_get(model, "merges")) == JSON_ARRAY ? "BPE" : "", &type,
	                      err)))
		return err_prefix(err, "model");
	for (int i = 0; token_models[i] && !m->ops; i++)
		if (!strcmp(token_models[i]->type, type))
			m->ops = token_models[i];
	if (!m->ops)
		return err_set(err, E_UNSUPPORTED, "model type \"%.40s\" is not done", type);
	return m->ops->open(m, model, err);
}

void token_model_close(struct token_model *m)
{
	if (m->ops && m->ops->close)
		m->ops->close(m);
	lexicon_close(&m->words);
	*m = (struct token_model){ 0 };
}

void *token_work_get(struct token_work *w, size_t bytes)
{
	if (w->bytes < bytes) {
		free(w->mem);
		w->mem = xmalloc(bytes);
		w->bytes = bytes;
	}
	return w->mem;
}

void token_work_fini(struct token_work *w)
{
	if (!w->mem || !allowance_free_later(free, w->mem))
		free(w->mem);
	*w = (struct token_work){ 0 };
}

int token_model_without(const struct json *model, const char *key, struct err *err)
{
	const struct json *v = json_get(model, key);
	const char *s = json_str(v, NULL);
	double number = 0;
	bool on = false;

	json_to_bool(v, &on);
	json_to_double(v, &number);
	if (on || number != 0 || (s && *s))
		return err_set(err, E_UNSUPPORTED, "model %s%s%s: only none is done", key, s ? " " : "", s ? s : "");
	return 0;
}

int token_model_fallback(struct token_model *m, const struct json *model, struct err *err)
{
	const struct json *unk = json_get(model, "unk_token"), *id = json_get(model, "unk_id");
	int64_t at = -1;
	const char *s;
	size_t n;
	int e;

	if ((e = json_get_bool(model, "byte_fallback", false, &m->byte_fallback, err)) ||
	    (e = json_get_bool(model, "fuse_unk", false, &m->fuse_unknown, err)))
		return err_prefix(err, "model");
	if ((s = json_str(unk, &n)))
		at = lexicon_find(&m->words, s, n);
	else if (json_kind(id) != JSON_NULL && (json_to_int(id, &at) || at < 0 || at >= m->words.n_tok))
		return err_set(err, E_FORMAT, "model unk_id: is not a token");
	m->unknown = (int32_t)at;
	for (int i = 0; i < 256 && m->byte_fallback; i++) {
		char text[8];

		snprintf(text, sizeof text, "<0x%02X>", i);
		m->byte_id[i] = lexicon_find(&m->words, text, 6);
	}
	return 0;
}

size_t token_model_char(const char *p, size_t n)
{
	uint32_t cp;
	int len = utf8_decode(p, n, &cp);

	return len ? (size_t)len : 1;
}

void token_model_lacking(const struct token_model *m, const char *p, size_t n, bool *fused, struct tokens *out)
{
	bool all = m->byte_fallback;

	for (size_t i = 0; i < n && all; i++)
		all = m->byte_id[(unsigned char)p[i]] >= 0;
	for (size_t i = 0; i < n && all; i++)
		tokens_put(out, m->byte_id[(unsigned char)p[i]]);
	if (!all && m->unknown >= 0 && !(*fused && m->fuse_unknown))
		tokens_put(out, m->unknown);
	*fused = !all;
}
