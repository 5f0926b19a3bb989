/* api_scores.c - scores of texts and pairs: POST /rerank (Jina's, Cohere's, vLLM's, llama-server's and TEI's shapes), /score and
 * /classify of vLLM, /predict and /similarity of TEI.
 *
 * A pair is a prompt of a reranker.  With a model that gives vectors a score is the cosine of two of them: texts are prompts
 * then, the first n_first of them those that the others are compared with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/api/texts.h"
#include "server/inside.h"
#include "server/routes.h"

static const struct field rerank_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "query" },
	{ "documents" },
	{ "texts" },
	{ "top_n" },
	{ "return_documents" },
	{ "return_text" },
	{ "raw_scores" },
	{ "use_activation" },
	{ "truncate" },
	{ "truncation_direction", "\"right\"|\"left\"|\"Right\"|\"Left\"" },
	{ "truncate_prompt_tokens" },
	{ "max_tokens_per_doc" },
	TEXTS_ABOUT,
	{ NULL },
};
static const struct field score_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "text_1" },
	{ "text_2" },
	{ "queries" },
	{ "documents" },
	{ "items" },
	{ "data_1" },
	{ "data_2" },
	{ "truncate_prompt_tokens" },
	{ "use_activation" },
	TEXTS_ABOUT,
	{ NULL },
};
static const struct field classify_fields[] = {
	TAKEN("model", TAKES_STRING), { "input" }, { "truncate_prompt_tokens" },
	{ "use_activation" },         TEXTS_ABOUT, { NULL },
};
static const struct field predict_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "inputs" },
	{ "truncate" },
	{ "truncation_direction", "\"right\"|\"left\"|\"Right\"|\"Left\"" },
	{ "raw_scores" },
	{ NULL },
};
static const struct field similarity_fields[] = {
	TAKEN("model", TAKES_STRING), { "inputs" }, { "parameters" }, { NULL }
};

/* ---- reading ---- */

static bool by_vectors(const struct generation *g)
{
	const struct texts_ask *own = g->own;

	return own->of && own->of->kind == EMBEDS;
}

/* The texts of a list, or one text, into prompts from `at` on. */
static int put_list(struct generation *g, int at, const struct json *v, const char *field, struct problem *p)
{
	bool several = json_kind(v) == JSON_ARRAY;
	char name[60];
	int r = 0;

	for (int i = 0; i < (several ? (int)json_len(v) : 1) && !r; i++) {
		snprintf(name, sizeof name, several ? "%s[%d]" : "%s", field, i);
		r = text_take(g, at + i, several ? json_at(v, (size_t)i) : v, NULL, name, p);
	}
	return r;
}

static int count(const struct json *v)
{
	return json_kind(v) != JSON_ARRAY ? 1 : json_len(v) < INT32_MAX / 4 ? (int)json_len(v) : INT32_MAX / 4;
}

static const struct json *item(const struct json *v, int i)
{
	return json_kind(v) == JSON_ARRAY ? json_at(v, (size_t)i) : v;
}

/* Pairs of a and b, of which either has one text for all of the other's: as prompts of a reranker, or apart. */
static int read_pairs(struct generation *g, const struct json *a, const char *name_a, const struct json *b,
                      const char *name_b, struct problem *p)
{
	struct texts_ask *own = g->own;
	int n_a = count(a), n_b = count(b), n = n_a > n_b ? n_a : n_b, r;
	char name[60];

	if (!n_a || !n_b || json_kind(a) == JSON_NULL || json_kind(b) == JSON_NULL)
		return problem_set(p, 400, "missing_field", n_a && json_kind(a) != JSON_NULL ? name_b : name_a,
		                   "%s is missing or empty: a string, or a list of strings",
		                   n_a && json_kind(a) != JSON_NULL ? name_b : name_a);
	if (n_a != 1 && n_b != 1 && n_a != n_b)
		return problem_set(p, 400, "invalid_value", name_b, "%s has %d texts and %s has %d: one, or as many",
		                   name_a, n_a, name_b, n_b);
	if (by_vectors(g)) {
		if ((r = texts_room(g, n_a + n_b, name_b, p)))
			return r;
		own->n_first = n_a;
		if ((r = put_list(g, 0, a, name_a, p)))
			return r;
		return put_list(g, n_a, b, name_b, p);
	}
	if ((r = texts_room(g, n, name_b, p)))
		return r;
	for (int i = 0; i < n && !r; i++) {
		snprintf(name, sizeof name, "%s[%d]", n_b > 1 ? name_b : name_a, i);
		r = text_take(g, i, item(a, n_a > 1 ? i : 0), item(b, n_b > 1 ? i : 0), name, p);
	}
	return r;
}

/* Options about raw scores, and about cutting, that these APIs share.  cuts: texts that are too long are cut unless the body says
 * otherwise. */
static int read_options(struct generation *g, const struct json *body, bool cuts, struct problem *p)
{
	struct texts_ask *own = g->own;
	bool act = true;
	int r;

	own->cut = cuts;
	if ((r = field_bool(body, "truncate", &own->cut, p)) || (r = field_bool(body, "raw_scores", &own->raw, p)) ||
	    (r = field_bool(body, "use_activation", &act, p)))
		return r;
	own->raw |= !act;
	return texts_cut(g, body, cuts ? "truncation_direction" : NULL, p);
}

static int read_rerank(struct generation *g, struct json *body, struct problem *p)
{
	struct texts_ask *own = g->own;
	const struct json *list, *query;
	const char *name;
	int64_t top = 0;
	int r;

	if (!(body = texts_check(g, body, rerank_fields, p)))
		return p->status;
	own->body = body;
	own->bare = json_get(body, "texts") != NULL;
	name = own->bare ? "texts" : "documents";
	list = json_get(body, name);
	query = json_get(body, "query");
	if ((r = texts_begin(g, body, WANT_NEARNESS, p)) || (r = read_options(g, body, true, p)) ||
	    (r = field_int(body, "top_n", 0, INT32_MAX, &top, p)) ||
	    (r = field_bool(body, own->bare ? "return_text" : "return_documents", &own->documents, p)))
		return r;
	own->top_n = (int)top;
	if (json_kind(query) != JSON_STRING)
		return field_wrong(p, "query", "a string", query);
	if (json_kind(list) != JSON_ARRAY || !json_len(list))
		return field_wrong(p, name, "a list of texts, not empty", list);
	return read_pairs(g, query, "query", list, name, p);
}

static int read_score(struct generation *g, struct json *body, struct problem *p)
{
	static const char *const names[][2] = {
		{ "text_1", "text_2" }, { "queries", "documents" }, { "queries", "items" }, { "data_1", "data_2" }
	};
	int r, k = 0;

	if (!(body = texts_check(g, body, score_fields, p)))
		return p->status;
	while (k < 3 && !(json_get(body, names[k][0]) && json_get(body, names[k][1])))
		k++;
	if (k == 3 && !json_get(body, names[3][0]))
		k = 0;
	if (!(r = texts_begin(g, body, WANT_NEARNESS, p)) && !(r = read_options(g, body, false, p)))
		r = read_pairs(g, json_get(body, names[k][0]), names[k][0], json_get(body, names[k][1]), names[k][1],
		               p);
	json_free(body);
	return r;
}

static int read_classify(struct generation *g, struct json *body, struct problem *p)
{
	int r;

	if (!(body = texts_check(g, body, classify_fields, p)))
		return p->status;
	if (!(r = texts_begin(g, body, WANT_LABELS, p)) && !(r = read_options(g, body, false, p)))
		r = texts_read(g, json_get(body, "input"), "input", false, p);
	json_free(body);
	return r;
}

/* A text, a pair (a list of two strings), or a list of lists of one text or two. */
static int read_predict(struct generation *g, struct json *body, struct problem *p)
{
	struct texts_ask *own = g->own;
	const struct json *v;
	char name[60];
	int r;

	if (!(body = texts_check(g, body, predict_fields, p)))
		return p->status;
	v = json_get(body, "inputs");
	own->batch = json_kind(v) == JSON_ARRAY && json_kind(json_at(v, 0)) == JSON_ARRAY;
	if (!(r = texts_begin(g, body, WANT_LABELS, p)) && !(r = read_options(g, body, true, p)))
		r = texts_room(g, own->batch ? count(v) : 1, "inputs", p);
	for (int i = 0; !r && i < g->prompts.n; i++) {
		const struct json *one = own->batch ? json_at(v, (size_t)i) : v;
		bool list = json_kind(one) == JSON_ARRAY;

		snprintf(name, sizeof name, own->batch ? "inputs[%d]" : "inputs", i);
		if (list && (json_len(one) < 1 || json_len(one) > 2))
			r = field_wrong(p, name, "a string, or a list of one or two", one);
		else
			r = text_take(g, i, list ? json_at(one, 0) : one,
			              list && json_len(one) > 1 ? json_at(one, 1) : NULL, name, p);
	}
	json_free(body);
	return r;
}

static int read_similarity(struct generation *g, struct json *body, struct problem *p)
{
	struct texts_ask *own = g->own;
	const struct json *in;
	int r;

	if (!(body = texts_check(g, body, similarity_fields, p)))
		return p->status;
	in = json_get(body, "inputs");
	own->cut = true;
	if (!(r = texts_begin(g, body, WANT_VECTORS, p))) {
		int n_more = count(json_get(in, "sentences"));

		if (json_kind(json_get(in, "source_sentence")) != JSON_STRING)
			r = field_wrong(p, "inputs.source_sentence", "a string", json_get(in, "source_sentence"));
		else if (json_kind(json_get(in, "sentences")) != JSON_ARRAY || !n_more)
			r = field_wrong(p, "inputs.sentences", "a list of strings, not empty",
			                json_get(in, "sentences"));
		else if (!(r = texts_room(g, 1 + n_more, "inputs.sentences", p)) &&
		         !(r = put_list(g, 0, json_get(in, "source_sentence"), "inputs.source_sentence", p)))
			r = put_list(g, 1, json_get(in, "sentences"), "inputs.sentences", p);
		own->n_first = 1;
	}
	json_free(body);
	return r;
}

/* ---- writing ---- */

/* The score of each pair, [*n], to be freed. */
static float *pair_scores(const struct generation *g, int *n)
{
	const struct texts_ask *own = g->own;
	int first = own->n_first, others = g->n_choice - first, cols, rows;
	float *score, **v;

	if (!first) {
		*n = g->n_choice;
		score = xcalloc((size_t)*n + 1, sizeof *score);
		for (int i = 0; i < *n; i++) {
			float *of = texts_scores(g, &g->choice[i], &cols, &rows);

			score[i] = of[0];
			free(of);
		}
		return score;
	}
	*n = first > others ? first : others;
	score = xcalloc((size_t)*n + 1, sizeof *score);
	v = xcalloc((size_t)g->n_choice, sizeof *v);
	for (int i = 0; i < g->n_choice; i++)
		v[i] = texts_vector(g, &g->choice[i], &cols, &rows);
	for (int i = 0; i < *n; i++)
		score[i] = (float)nearness(v[first > 1 ? i : 0], v[first + (others > 1 ? i : 0)], cols);
	for (int i = 0; i < g->n_choice; i++)
		free(v[i]);
	free(v);
	return score;
}

static void put_score(struct buf *out, float v)
{
	json_put_double(out, (double)v == (double)v ? (double)v : 0);
}

static void put_text(struct buf *out, const struct json *document)
{
	size_t n = 0;
	const char *s = document_text(document, &n);

	json_put_str(out, s ? s : "", s ? n : 0);
}

static void whole_rerank(struct generation *g, struct buf *out)
{
	const struct texts_ask *own = g->own;
	const struct json *list = json_get(own->body, own->bare ? "texts" : "documents");
	int n, n_tokens = generation_usage(g).prompt;
	float *score = pair_scores(g, &n);
	int *order = order_of_scores(score, n);
	int most = own->top_n && own->top_n < n && !own->bare ? own->top_n : n;

	if (!own->bare) {
		buf_printf(out, "{\"id\":\"rerank-%s\",\"object\":\"list\",\"model\":", g->x->id);
		json_put_cstr(out, model_shown(g));
		buf_puts(out, ",\"results\":");
	}
	buf_putc(out, '[');
	for (int i = 0; i < most; i++) {
		buf_printf(out, "%s{\"index\":%d,\"%s\":", i ? "," : "", order[i],
		           own->bare ? "score" : "relevance_score");
		put_score(out, score[order[i]]);
		if (own->documents && own->bare) {
			buf_puts(out, ",\"text\":");
			put_text(out, json_at(list, (size_t)order[i]));
		} else if (own->documents) {
			buf_puts(out, ",\"document\":{\"text\":");
			put_text(out, json_at(list, (size_t)order[i]));
			buf_putc(out, '}');
		}
		buf_putc(out, '}');
	}
	buf_putc(out, ']');
	if (!own->bare)
		buf_printf(
			out,
			",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d},\"meta\":{\"api_version\":{\"version\":\"2\","
			"\"is_experimental\":false},\"billed_units\":{\"search_units\":1}}}",
			n_tokens, n_tokens);
	buf_putc(out, '\n');
	free(order);
	free(score);
}

static void put_head(const struct generation *g, struct buf *out, const char *prefix)
{
	buf_printf(out, "{\"id\":\"%s-%s\",\"object\":\"list\",\"created\":%lld,\"model\":", prefix, g->x->id,
	           (long long)g->created);
	json_put_cstr(out, model_shown(g));
	buf_puts(out, ",\"data\":[");
}

static void put_tail(const struct generation *g, struct buf *out)
{
	int n = generation_usage(g).prompt;

	buf_printf(out,
	           "],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":0,"
	           "\"prompt_tokens_details\":null}}\n",
	           n, n);
}

static void whole_score(struct generation *g, struct buf *out)
{
	int n;
	float *score = pair_scores(g, &n);

	put_head(g, out, "score");
	for (int i = 0; i < n; i++) {
		buf_printf(out, "%s{\"index\":%d,\"object\":\"score\",\"score\":", i ? "," : "", i);
		put_score(out, score[i]);
		buf_putc(out, '}');
	}
	put_tail(g, out);
	free(score);
}

static int best_of(const float *v, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		if (v[i] > v[best])
			best = i;
	return best;
}

static void whole_classify(struct generation *g, struct buf *out)
{
	const struct texts_ask *own = g->own;
	char scratch[32];

	put_head(g, out, "classify");
	for (int i = 0; i < g->n_choice; i++) {
		int n, rows;
		float *v = texts_scores(g, &g->choice[i], &n, &rows);

		buf_printf(out, "%s{\"index\":%d,\"label\":", i ? "," : "", i);
		json_put_cstr(out, embedder_label(own->of, best_of(v, n), scratch));
		buf_puts(out, ",\"probs\":");
		put_floats(out, v, n);
		buf_printf(out, ",\"num_classes\":%d}", n);
		free(v);
	}
	put_tail(g, out);
}

/* The labels of a text, the best first. */
static void put_labels(const struct generation *g, const struct choice *c, struct buf *out)
{
	const struct texts_ask *own = g->own;
	char scratch[32];
	int n, rows, *order;
	float *v = texts_scores(g, c, &n, &rows);

	order = order_of_scores(v, n);
	buf_putc(out, '[');
	for (int i = 0; i < n; i++) {
		buf_puts(out, i ? ",{\"score\":" : "{\"score\":");
		put_score(out, v[order[i]]);
		buf_puts(out, ",\"label\":");
		json_put_cstr(out, embedder_label(own->of, order[i], scratch));
		buf_putc(out, '}');
	}
	buf_putc(out, ']');
	free(order);
	free(v);
}

static void whole_predict(struct generation *g, struct buf *out)
{
	bool batch = ((struct texts_ask *)g->own)->batch;

	buf_puts(out, batch ? "[" : "");
	for (int i = 0; i < g->n_choice; i++) {
		buf_puts(out, i ? "," : "");
		put_labels(g, &g->choice[i], out);
	}
	buf_puts(out, batch ? "]\n" : "\n");
}

static void whole_similarity(struct generation *g, struct buf *out)
{
	int n;
	float *score = pair_scores(g, &n);

	put_floats(out, score, n);
	buf_putc(out, '\n');
	free(score);
}

const struct endpoint rerank_endpoint = TEXTS_ENDPOINT("rerank-", read_rerank, whole_rerank, NULL);
const struct endpoint score_endpoint = TEXTS_ENDPOINT("score-", read_score, whole_score, NULL);
const struct endpoint classify_endpoint = TEXTS_ENDPOINT("classify-", read_classify, whole_classify, NULL);
const struct endpoint predict_endpoint = TEXTS_ENDPOINT("predict-", read_predict, whole_predict, NULL);
const struct endpoint similarity_endpoint = TEXTS_ENDPOINT("similarity-", read_similarity, whole_similarity, NULL);
