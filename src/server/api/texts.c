/* texts.c - see texts.h. */
#include "server/api/texts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/base64.h"
#include "engine/wanted_rows.h"
#include "server/api/complete.h"
#include "server/inside.h"
#include "text/tokens/pair.h"

void *texts_own_new(void)
{
	return xcalloc(1, sizeof(struct texts_ask));
}

void texts_own_free(void *own)
{
	json_free(((struct texts_ask *)own)->body);
	free(own);
}

void texts_no_token(struct generation *g, struct choice *c, const struct event *ev)
{
	(void)g;
	(void)c;
	(void)ev;
}

void texts_no_end(struct generation *g, struct choice *c)
{
	(void)g;
	(void)c;
}

/* ---- fields ---- */

struct json *texts_check(struct generation *g, struct json *body, const struct field *fields, struct problem *p)
{
	const struct field *const tables[] = { fields, NULL };

	return body_check(body, tables, &g->params.warnings, p);
}

bool texts_word(const struct json *body, const char *field, const char *word)
{
	const char *s = json_str(json_get(body, field), NULL);

	return s && !strcasecmp(s, word);
}

int texts_cut(struct generation *g, const struct json *body, const char *side, struct problem *p)
{
	struct texts_ask *own = g->own;
	int64_t most = 0;
	int r = field_int(body, "truncate_prompt_tokens", -1, INT32_MAX, &most, p);

	own->cut |= most < 0;
	own->most = most > 0 ? most : 0;
	own->ends = side && texts_word(body, side, "left");
	return r;
}

/* ---- what the model can do ---- */

static const char *gives(const struct embedder *e)
{
	if (!e || e->writes)
		return "it writes text, and gives vectors besides";
	if (e->kind == RANKS)
		return "it gives one score of a text or of a pair of texts";
	if (e->kind == LABELS)
		return e->all_rows ? "it gives a label of each token" : "it gives a score for each of its labels";
	return e->all_rows ? "it gives a vector of each token" : "it gives a vector of a text";
}

static bool can(const struct embedder *e, enum texts_want want)
{
	switch (want) {
	case WANT_VECTORS: return !e || (e->kind == EMBEDS && !e->all_rows);
	case WANT_ROWS: return e && !e->writes;
	case WANT_SCORES: return e && e->kind == RANKS;
	case WANT_LABELS: return e && e->kind != EMBEDS && !e->asks && !e->all_rows;
	case WANT_NEARNESS: return e && !e->writes && !e->all_rows && (e->kind == RANKS || e->kind == EMBEDS);
	}
	return false;
}

static const char *wanted(enum texts_want want)
{
	switch (want) {
	case WANT_VECTORS: return "a vector of a text";
	case WANT_ROWS: return "a vector or scores of each token";
	case WANT_LABELS: return "scores of labels";
	default: return "scores of pairs";
	}
}

/* A body with the members of this one that generations read: the model's name and the user.  It shares nothing with
 * own->body, which another thread may free. */
static struct json *body_of(const struct json *body)
{
	static const char *const about[] = { "user", "safety_identifier", "metadata", "cache_salt", "priority" };
	struct json *out = ollama_body_new(body);

	for (size_t i = 0; i < sizeof about / sizeof *about; i++)
		if (json_get(body, about[i]))
			json_set(out, about[i], json_copy_whole(json_get(body, about[i])));
	return out;
}

int texts_begin(struct generation *g, const struct json *body, enum texts_want want, struct problem *p)
{
	struct texts_ask *own = g->own;
	struct params *a = &g->params;
	int r;

	g->body = body_of(body);
	if ((r = model_read(g, g->body, p)) || (r = params_read(a, g->body, g->served, p)))
		return r;
	own->of = g->served->embedder;
	if (!can(own->of, want))
		return problem_set(p, 400, "unsupported_model", "model", "%s cannot give %s: %s", g->served->name,
		                   wanted(want), gives(own->of));
	a->max_tokens = 0;
	a->n = 1;
	a->n_draft = -1;
	own->rows = want == WANT_ROWS;
	g->rows.kinds = ROWS_LAST;
	if (own->of)
		g->rows.kinds = want == WANT_ROWS ? ROWS_ALL : own->of->rows;
	if (own->of && own->of->default_prompt >= 0)
		own->prompt = own->of->prompt[own->of->default_prompt].text;
	return 0;
}

int texts_dimensions(struct generation *g, const struct json *body, const char *field, struct problem *p)
{
	struct texts_ask *own = g->own;
	int64_t n = 0;
	int r = field_int(body, field, 1, INT32_MAX, &n, p);

	if (r)
		return r;
	/* A model that writes has said for long that such a number is ignored. */
	if ((!own->of || own->of->writes) && g->served->is.hidden && n > g->served->is.hidden)
		warnings_add(&g->params.warnings.ignored, NULL, field);
	else if (own->of && n > own->of->out)
		return problem_set(p, 400, "invalid_value", field,
		                   "%s is %lld, and the model's vectors have %d numbers", field, (long long)n,
		                   own->of->out);
	own->dimensions = (int)n;
	return 0;
}

int texts_prompt(struct generation *g, const struct json *body, const char *field, struct problem *p)
{
	struct texts_ask *own = g->own;
	const struct json *v;
	const char *name;
	size_t n;
	int r = field_value(body, field, JSON_STRING, &v, p);

	if (r || !v)
		return r;
	name = json_str(v, &n);
	own->prompt = own->of ? embedder_prompt(own->of, name) : NULL;
	if (!own->prompt)
		return problem_set(p, 400, "invalid_value", field, "%s: the model has no prompt named \"%.60s\"", field,
		                   name);
	return 0;
}

void texts_usual_prompt(struct generation *g, const char *const *names)
{
	struct texts_ask *own = g->own;
	const char *text = NULL;

	for (; own->of && *names && !text; names++)
		text = embedder_prompt(own->of, *names);
	if (text)
		own->prompt = text;
}

/* ---- texts ---- */

int texts_room(struct generation *g, int n, const char *field, struct problem *p)
{
	if (n > TEXTS_MAX)
		return problem_set(p, 400, "invalid_value", field, "%s: %d texts; at most %d are taken at once", field,
		                   n, TEXTS_MAX);
	generation_prompts(g, n);
	g->rows.from = xcalloc((size_t)n + 1, sizeof *g->rows.from);
	g->rows.kind = xcalloc((size_t)n + 1, sizeof *g->rows.kind);
	g->rows.second = xcalloc((size_t)n + 1, sizeof *g->rows.second);
	return 0;
}

const char *document_text(const struct json *v, size_t *n)
{
	return json_str(json_kind(v) == JSON_OBJECT ? json_get(v, "text") : v, n);
}

static int text_limit(const struct generation *g)
{
	const struct texts_ask *own = g->own;
	int most = own->of && own->of->max_tokens && own->of->max_tokens < g->served->ctx_max ? own->of->max_tokens :
	                                                                                        g->served->ctx_max;

	return own->most > 0 && own->most < most ? (int)own->most : most;
}

static int too_many(const struct generation *g, size_t length, int limit, const char *field, struct problem *p)
{
	return problem_set(p, 400, "context_length_exceeded", field,
	                   "%s is too long: %zu tokens; the maximum context length of this model is %d tokens", field,
	                   length, limit);
}

/* The number of tokens of the prompt alone, but for one behind it. */
static int tokens_of_prompt(const struct generation *g, const char *prompt)
{
	const struct tokenizer *t = g->served->tokenizer;
	struct tokens ids;
	size_t n_behind;
	struct err err;
	int n = 0;

	tokens_init(&ids);
	if (!tokenizer_encode(t, prompt, strlen(prompt), TOKENIZE_SPECIAL | TOKENIZE_AROUND, &ids, &err)) {
		tokenizer_suffix(t, &n_behind);
		n = (int)(ids.n - n_behind);
	}
	tokens_fini(&ids);
	return n;
}

/* Bytes of a special token at s, as they begin and end in vocabularies of such models: "[MASK]", "<s>"; 0: none. */
static size_t special_at(const struct tokenizer *t, const char *s, size_t n)
{
	enum { LONGEST = 32 };
	char end = *s == '[' ? ']' : '>';
	const char *to = *s == '[' || *s == '<' ? memchr(s, end, n < LONGEST ? n : LONGEST) : NULL;
	size_t len = to ? (size_t)(to - s) + 1 : 0;

	return len && tokenizer_is_special(t, tokenizer_find(t, s, len)) ? len : 0;
}

/* In lower case, but for special tokens.  Letters beyond ASCII are left to the tokenizer. */
static char *lower(const struct tokenizer *t, const char *s, size_t n)
{
	char *out = xmalloc(n + 1);

	for (size_t i = 0, len; i < n; i += len) {
		len = special_at(t, s + i, n - i);
		if (len) {
			memcpy(out + i, s + i, len);
			continue;
		}
		out[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] + 'a' - 'A') : s[i];
		len = 1;
	}
	out[n] = '\0';
	return out;
}

/* Fills prompt i's ids of one text or two, and which of its rows are wanted. */
static int encode(struct generation *g, int i, struct texts_in *in, unsigned flags, const char *field,
                  struct problem *p)
{
	struct texts_ask *own = g->own;
	int limit = text_limit(g), r;
	size_t length;
	struct err err;

	if (g->x && atomic_load(&g->x->gone))
		return problem_set(p, 499, NULL, NULL, "the client left");
	in->most = own->cut || own->most ? limit : 0;
	in->ends = own->ends;
	r = texts_encode(g->served->tokenizer, in, flags, &g->prompts.of[i], &g->rows.second[i], &length, &err);
	if (r)
		return problem_set(p, 400, "invalid_prompt", field, "%s cannot be tokenised: %s", field, err.msg);
	if (!in->most && g->prompts.of[i].n > (size_t)limit)
		return too_many(g, g->prompts.of[i].n, limit, field, p);
	return 0;
}

/* Qwen3-Reranker's question. */
static const char asked[] =
	"<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
	"Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
static const char asked_of[] =
	"<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: ";
static const char asked_end[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

/* The question about a query and a document, whose own text is cut and spells no special token. */
static int encode_question(struct generation *g, int i, const struct texts_in *in, const char *field, struct problem *p)
{
	const struct tokenizer *t = g->served->tokenizer;
	const struct texts_ask *own = g->own;
	struct tokens *to = &g->prompts.of[i], middle, end;
	size_t limit = (size_t)text_limit(g), most;
	struct buf text;
	struct err err;
	int r;

	tokens_init(&middle);
	tokens_init(&end);
	buf_init(&text);
	buf_puts(&text, asked_of);
	buf_put(&text, in->p[0], in->n[0]);
	buf_puts(&text, "\n<Document>: ");
	buf_put(&text, in->p[1], in->n[1]);
	if ((r = tokenizer_encode(t, asked, sizeof asked - 1, TOKENIZE_SPECIAL, to, &err)) ||
	    (r = tokenizer_encode(t, text.p, text.n, 0, &middle, &err)) ||
	    (r = tokenizer_encode(t, asked_end, sizeof asked_end - 1, TOKENIZE_SPECIAL, &end, &err)))
		r = problem_set(p, 400, "invalid_prompt", field, "%s cannot be tokenised: %s", field, err.msg);
	most = to->n + end.n < limit ? limit - to->n - end.n : 0;
	if (!r && middle.n > most && (!(own->cut || own->most) || !most))
		r = too_many(g, to->n + middle.n + end.n, (int)limit, field, p);
	for (size_t k = 0; k < middle.n && k < most && !r; k++)
		tokens_put(to, middle.id[k]);
	for (size_t k = 0; k < end.n && !r; k++)
		tokens_put(to, end.id[k]);
	buf_fini(&text);
	tokens_fini(&middle);
	tokens_fini(&end);
	return r;
}

static int encode_one(struct generation *g, int i, const char *s, size_t n, const char *field, struct problem *p)
{
	const struct texts_ask *own = g->own;
	bool whole = own->of && !own->of->writes;
	char *small = whole && own->of->lower ? lower(g->served->tokenizer, s, n) : NULL;
	struct texts_in in = { .n = { n } };
	struct buf text;
	int r;

	buf_init(&text);
	in.p[0] = small ? small : s;
	if (own->prompt) {
		buf_puts(&text, own->prompt);
		buf_put(&text, in.p[0], n);
		in.p[0] = text.p ? text.p : "";
		in.n[0] = text.n;
	}
	r = encode(g, i, &in, whole ? TOKENIZE_SPECIAL : 0, field, p);
	free(small);
	buf_fini(&text);
	return r;
}

/* Which rows of prompt i are wanted, once its ids are there. */
static void rows_of_prompt(struct generation *g, int i, bool has_prompt)
{
	const struct texts_ask *own = g->own;
	const struct tokens *ids = &g->prompts.of[i];
	int n_prompt = 0;

	if (!ids->n)
		return;
	if (!own->of || own->rows) {
		g->rows.from[i] = own->rows ? 0 : (int)ids->n - 1;
		return;
	}
	if (own->of->no_prompt && own->prompt && has_prompt)
		n_prompt = tokens_of_prompt(g, own->prompt);
	g->rows.kind[i] = embedder_rows(own->of, ids->id, (int)ids->n, n_prompt, &g->rows.from[i]);
}

int text_take(struct generation *g, int i, const struct json *a, const struct json *b, const char *field,
              struct problem *p)
{
	const struct texts_ask *own = g->own;
	struct texts_in in = { .two = b != NULL };
	int r;

	in.p[0] = document_text(a, &in.n[0]);
	in.p[1] = document_text(b, &in.n[1]);
	if (!in.p[0] || (b && !in.p[1]))
		return field_wrong(p, field, "a string", in.p[0] ? b : a);
	if (!b)
		r = encode_one(g, i, in.p[0], in.n[0], field, p);
	else if (own->of && own->of->asks)
		r = encode_question(g, i, &in, field, p);
	else
		r = encode(g, i, &in, TOKENIZE_SPECIAL, field, p);
	if (!r)
		rows_of_prompt(g, i, !b);
	return r;
}

static int read_ids(struct generation *g, int i, const struct json *ids, const char *name, struct problem *p)
{
	const struct texts_ask *own = g->own;
	size_t n = json_len(ids), from = 0;
	int limit = text_limit(g);
	char where[80], expected[60];

	if (n > (size_t)limit && !own->cut && !own->most)
		return too_many(g, n, limit, name, p);
	if (n > (size_t)limit && own->ends)
		from = n - (size_t)limit;
	else if (n > (size_t)limit)
		n = (size_t)limit;
	for (size_t k = from; k < n && allowance_spend(1); k++) {
		int64_t id;

		if (json_to_int(json_at(ids, k), &id) || id < 0 || id >= g->served->vocab) {
			snprintf(where, sizeof where, "%.40s[%zu]", name, k);
			snprintf(expected, sizeof expected, "a token id from 0 to %d", g->served->vocab - 1);
			return field_wrong(p, where, expected, json_at(ids, k));
		}
		tokens_put(&g->prompts.of[i], (int32_t)id);
	}
	rows_of_prompt(g, i, false);
	return 0;
}

static int read_one(struct generation *g, int i, const struct json *v, const char *name, bool objects,
                    struct problem *p)
{
	if (json_kind(v) == JSON_ARRAY)
		return read_ids(g, i, v, name, p);
	if (json_kind(v) != JSON_STRING && !(objects && json_kind(v) == JSON_OBJECT))
		return field_wrong(p, name, "a string or an array of token ids", v);
	return text_take(g, i, v, NULL, name, p);
}

int texts_read(struct generation *g, const struct json *v, const char *field, bool objects, struct problem *p)
{
	bool several;
	char name[60];
	int r;

	if (!v || json_kind(v) == JSON_NULL)
		return problem_set(p, 400, "missing_field", field, "%s is missing: a string or an array of token ids",
		                   field);
	several = json_kind(v) == JSON_ARRAY && json_kind(json_at(v, 0)) != JSON_INT && json_len(v);
	if ((r = texts_room(g, several ? (int)(json_len(v) < INT32_MAX ? json_len(v) : INT32_MAX) : 1, field, p)))
		return r;
	g->prompts.called = field;
	for (int i = 0; i < g->prompts.n && !r; i++) {
		snprintf(name, sizeof name, several ? "%s[%d]" : "%s", field, i);
		r = read_one(g, i, several ? json_at(v, (size_t)i) : v, name, objects, p);
	}
	return r;
}

/* ---- results ---- */

/* The steps of the embedder over the rows that came: [*n_row][*n]. */
static float *run_steps(const struct generation *g, const struct choice *c, int *n, int *n_row)
{
	const struct texts_ask *own = g->own;
	const struct embedder *e = own->of;
	size_t have, in, rows;
	const float *row = request_rows(c->req, &have);
	float *v;

	if (!e) {
		*n = (int)have;
		*n_row = 1;
		v = xmalloc(have * sizeof *v);
		memcpy(v, row, have * sizeof *v);
		return v;
	}
	in = own->rows && !e->all_rows ? (size_t)g->served->is.hidden : (size_t)e->in;
	rows = have / in;
	*n_row = (int)rows;
	/* Rows of a model whose steps are for the pooled row are given as they are. */
	*n = own->rows && !e->all_rows ? (int)in : e->out;
	v = xmalloc(rows * (size_t)*n * sizeof *v);
	for (size_t i = 0; i < rows; i++)
		if (own->rows && !e->all_rows)
			memcpy(v + i * in, row + i * in, in * sizeof *v);
		else
			embedder_run(e, row + i * in, v + i * (size_t)*n);
	return v;
}

float *texts_vector(const struct generation *g, const struct choice *c, int *n, int *n_row)
{
	const struct texts_ask *own = g->own;
	float *v = run_steps(g, c, n, n_row);

	if (own->dimensions && own->dimensions < *n && *n_row == 1)
		*n = own->dimensions;
	for (int i = 0; i < *n_row && !own->raw; i++)
		vector_normalize(v + (size_t)i * (size_t)*n, *n);
	return v;
}

float *texts_scores(const struct generation *g, const struct choice *c, int *n, int *n_row)
{
	const struct texts_ask *own = g->own;
	float *v = run_steps(g, c, n, n_row);

	for (int i = 0; i < *n_row; i++)
		embedder_scores(own->of, v + (size_t)i * (size_t)*n, own->raw);
	return v;
}

void put_floats(struct buf *out, const float *v, int n)
{
	buf_putc(out, '[');
	for (int i = 0; i < n; i++)
		if (isfinite(v[i]))
			buf_printf(out, "%s%.9g", i ? "," : "", (double)v[i]);
		else
			buf_puts(out, i ? ",null" : "null");
	buf_putc(out, ']');
}

void put_base64(struct buf *out, const void *p, size_t bytes)
{
	buf_putc(out, '"');
	base64_put(out, p, bytes);
	buf_putc(out, '"');
}

double nearness(const float *a, const float *b, int n)
{
	double ab = 0, aa = 0, bb = 0;

	for (int i = 0; i < n; i++) {
		ab += (double)a[i] * (double)b[i];
		aa += (double)a[i] * (double)a[i];
		bb += (double)b[i] * (double)b[i];
	}
	return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

int *order_of_scores(const float *score, int n)
{
	int *order = xcalloc((size_t)n + 1, sizeof *order), *other = xcalloc((size_t)n + 1, sizeof *other), *was;

	for (int i = 0; i < n; i++)
		order[i] = i;
	/* Merging from below keeps equal scores in their order. */
	for (int width = 1; width < n; width *= 2) {
		for (int at = 0; at < n; at += 2 * width) {
			int a = at, b = at + width < n ? at + width : n, mid = b, end = b + width < n ? b + width : n;

			for (int k = at; k < end; k++)
				other[k] = b >= end || (a < mid && score[order[a]] >= score[order[b]]) ? order[a++] :
				                                                                         order[b++];
		}
		was = order;
		order = other;
		other = was;
	}
	free(other);
	return order;
}
