/* gguf_vocab.c - see gguf_vocab.h. */
#include "store/gguf/gguf_vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An array under tokenizer.ggml.KEY as long as the token list; *out NULL when it is missing. */
static int list_of(const struct gguf_vocab *v, const char *key, const struct gguf_value **out, struct err *err)
{
	const struct gguf_value *a = gguf_find(v->g, key);

	*out = a;
	if (a && (!a->array || a->n != v->n))
		return err_set(err, E_FORMAT, "%s: key %s: %s%" PRIu64 " elements, there are %zu tokens", v->g->path,
		               key, a->array ? "" : "not a list, ", a->n, v->n);
	return 0;
}

static int read_types(struct gguf_vocab *v, struct err *err)
{
	const struct gguf_value *a;
	int code = list_of(v, "tokenizer.ggml.token_type", &a, err);
	int64_t type = GGUF_NORMAL;

	v->type = xmalloc(v->n);
	memset(v->type, GGUF_NORMAL, v->n);
	for (size_t i = 0; a && i < v->n && !code; i++) {
		if ((code = gguf_int(v->g, a, i, &type, err)))
			break;
		if (type < 0 || type > GGUF_BYTE)
			code = err_set(err, E_FORMAT,
			               "%s: key tokenizer.ggml.token_type: token %zu has type %" PRId64 ", none of 0 "
			               "to %d",
			               v->g->path, i, type, GGUF_BYTE);
		v->type[i] = type ? (uint8_t)type : GGUF_NORMAL;
	}
	return code;
}

static int read_scores(struct gguf_vocab *v, struct err *err)
{
	const struct gguf_value *a;
	int code = list_of(v, "tokenizer.ggml.scores", &a, err);
	double score;

	if (code || !a)
		return code;
	v->score = xmalloc(size_mul(v->n, sizeof *v->score));
	for (size_t i = 0; i < v->n && !code; i++) {
		code = gguf_float(v->g, a, i, &score, err);
		if (!code && !isfinite(score))
			code = err_set(err, E_FORMAT,
			               "%s: key tokenizer.ggml.scores: token %zu: must be a finite number", v->g->path,
			               i);
		v->score[i] = code ? 0 : (float)score;
	}
	return code;
}

static int compare(struct gguf_string a, struct gguf_string b)
{
	int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);

	return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int by_bytes(const void *a, const void *b, void *ctx)
{
	const struct gguf_vocab *v = ctx;

	return compare(v->tok[*(const int32_t *)a], v->tok[*(const int32_t *)b]);
}

static int sort(struct gguf_vocab *v, struct err *err)
{
	v->order = xmalloc(size_mul(v->n, sizeof *v->order));
	for (size_t i = 0; i < v->n; i++)
		v->order[i] = (int32_t)i;
	qsort_r(v->order, v->n, sizeof *v->order, by_bytes, v);
	for (size_t i = 0; i + 1 < v->n; i++)
		if (!compare(v->tok[v->order[i]], v->tok[v->order[i + 1]]))
			return err_set(err, E_FORMAT,
			               "%s: key tokenizer.ggml.tokens: tokens %d and %d have the same %zu bytes",
			               v->g->path, v->order[i], v->order[i + 1], v->tok[v->order[i]].n);
	return 0;
}

int gguf_vocab_read(struct gguf_vocab *v, const struct gguf_model *m, struct err *err)
{
	const struct gguf_value *a = gguf_find(&m->part[0], "tokenizer.ggml.tokens");
	const uint8_t *at;
	int code;

	*v = (struct gguf_vocab){ .g = &m->part[0] };
	if (!a)
		return err_set(err, E_MISSING, "%s: key tokenizer.ggml.tokens: missing", v->g->path);
	if (!a->array || a->kind != GGUF_STRING || !a->n)
		return err_set(err, E_FORMAT, "%s: key tokenizer.ggml.tokens: is not a list of strings", v->g->path);
	if (a->n > GGUF_TOKENS_MAX)
		return err_set(err, E_LIMIT, "%s: key tokenizer.ggml.tokens: %" PRIu64 " tokens, at most %d are read",
		               v->g->path, a->n, GGUF_TOKENS_MAX);
	v->n = (size_t)a->n;
	v->tok = xmalloc(size_mul(v->n, sizeof *v->tok));
	at = a->p;
	for (size_t i = 0; i < v->n; i++)
		v->tok[i] = gguf_next(&at);
	code = sort(v, err);
	if (!code)
		code = read_types(v, err);
	if (!code)
		code = read_scores(v, err);
	if (code)
		gguf_vocab_free(v);
	return code;
}

void gguf_vocab_free(struct gguf_vocab *v)
{
	free(v->tok);
	free(v->type);
	free(v->score);
	free(v->order);
	*v = (struct gguf_vocab){ 0 };
}

int32_t gguf_vocab_find(const struct gguf_vocab *v, const char *p, size_t n)
{
	size_t lo = 0, hi = v->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int c = compare(v->tok[v->order[mid]], (struct gguf_string){ p, n });

		if (!c)
			return v->order[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
}

int gguf_vocab_id(const struct gguf_vocab *v, const char *key, int32_t *out, struct err *err)
{
	const struct gguf_value *a;
	char full[80];
	int64_t id;
	int code;

	*out = -1;
	snprintf(full, sizeof full, "tokenizer.ggml.%s", key);
	a = gguf_find(v->g, full);
	if (!a || (code = gguf_int(v->g, a, 0, &id, err)))
		return a ? code : 0;
	/* Writers say "none" by -1 or by the largest number. */
	if (id == -1 || id == UINT32_MAX)
		return 0;
	if (id < 0 || (uint64_t)id >= v->n)
		return err_set(err, E_FORMAT, "%s: key %s: %" PRId64 ", there are %zu tokens", v->g->path, full, id,
		               v->n);
	*out = (int32_t)id;
	return 0;
}

bool gguf_printed_mark(const char *p, size_t n)
{
	static const char *const marks[] = { "<|channel>",       "<channel|>",       "<|tool_call>", "<tool_call|>",
		                             "<|tool_response>", "<tool_response|>", "<|\"|>" };

	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
		if (n == strlen(marks[i]) && !memcmp(p, marks[i], n))
			return true;
	return false;
}
