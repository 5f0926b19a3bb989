/* api_embed.c - vectors of texts: POST /v1/embeddings of OpenAI's API, ollama's /api/embed and /api/embeddings, TEI's /embed,
 * /embed_all and /info, llama-server's /embedding, Cohere's /v2/embed, vLLM's /pooling.
 *
 * A text is a prompt like any: what is kept of it, and what else is in its step, change no bit of its vector. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/wanted_rows.h"
#include "server/api/texts.h"
#include "server/inside.h"
#include "server/routes.h"

static const struct field embed_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "input" },
	{ "encoding_format", "\"float\"|\"base64\"" },
	{ "dimensions" },
	{ "truncate_prompt_tokens" },
	{ "truncation_side", "\"right\"|\"left\"" },
	{ "normalize" },
	{ "prompt_name" },
	{ "add_special_tokens", "true" },
	TEXTS_ABOUT,
	{ "input_type", "", "name the instruction that the model knows with prompt_name, or put it into input" },
	{ NULL },
};
static const struct field ollama_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "input" },
	SYNONYM("prompt", "input"),
	{ "dimensions" },
	TAKEN("options", TAKES_OBJECT), /* of how a model is run, or sampled */
	TAKEN("keep_alive", TAKES_NUMBER | TAKES_STRING),
	{ "truncate" },
	{ NULL },
};
static const struct field tei_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "inputs" },
	{ "normalize" },
	{ "truncate" },
	{ "truncation_direction", "\"right\"|\"left\"|\"Right\"|\"Left\"" },
	{ "prompt_name" },
	{ "dimensions" },
	{ NULL },
};
static const struct field llama_fields[] = {
	TAKEN("model", TAKES_STRING), { "input" }, SYNONYM("content", "input"), { "embd_normalize" }, { NULL },
};
static const struct field cohere_fields[] = {
	TAKEN("model", TAKES_STRING), { "texts" },    { "input_type" }, { "embedding_types" },
	{ "output_dimension" },       { "truncate" }, { NULL },
};
static const struct field pooling_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "input" },
	{ "task", "\"embed\"|\"classify\"|\"token_embed\"|\"token_classify\"" },
	{ "encoding_format", "\"float\"|\"base64\"" },
	{ "dimensions" },
	{ "truncate_prompt_tokens" },
	{ "use_activation" },
	SYNONYM("normalize", "use_activation"),
	TEXTS_ABOUT,
	{ NULL },
};

/* ---- reading ---- */

/* OpenAI's API takes no empty text. */
static int refuse_empty(const struct json *v, const char *field, struct problem *p)
{
	size_t n = 1;

	if (json_kind(v) != JSON_ARRAY)
		return json_str(v, &n) && !n ? problem_set(p, 400, "invalid_prompt", field, "%s is empty", field) : 0;
	if (!json_len(v))
		return problem_set(p, 400, "invalid_prompt", field, "%s is empty", field);
	for (size_t i = 0; i < json_len(v); i++)
		if (json_str(json_at(v, i), &n) && !n)
			return problem_set(p, 400, "invalid_prompt", field, "%s[%zu] is empty", field, i);
	return 0;
}

static int read_openai(struct generation *g, struct json *body, struct problem *p)
{
	struct texts_ask *own = g->own;
	bool normalize = true;
	int r;

	if (!(body = texts_check(g, body, embed_fields, p)))
		return p->status;
	own->base64 = texts_word(body, "encoding_format", "base64");
	if (!(r = texts_begin(g, body, WANT_VECTORS, p)) && !(r = texts_dimensions(g, body, "dimensions", p)) &&
	    !(r = texts_cut(g, body, "truncation_side", p)) && !(r = field_bool(body, "normalize", &normalize, p)) &&
	    !(r = texts_prompt(g, body, "prompt_name", p)) && !(r = refuse_empty(json_get(body, "input"), "input", p)))
		r = texts_read(g, json_get(body, "input"), "input", false, p);
	own->raw = !normalize;
	json_free(body);
	return r;
}

/* Clients of ollama have a model loaded by a request that asks nothing of it. */
static bool asks_nothing(const struct json *input)
{
	size_t n = 0;

	return json_kind(input) == JSON_NULL || (json_kind(input) == JSON_ARRAY && !json_len(input)) ||
	       (json_str(input, &n) && !n);
}

/* Reports a context that is asked for and is larger than the model's here, as chats do. */
static int note_context(struct generation *g, const struct json *body, struct problem *p)
{
	const struct json *asked = json_get(json_get(body, "options"), "num_ctx");
	double n;

	if (json_kind(asked) == JSON_NULL)
		return 0;
	if (json_to_double(asked, &n))
		return field_wrong(p, "options.num_ctx", "a number", asked);
	if (n > g->served->ctx_max)
		warnings_add(&g->params.warnings.ignored, "options", "num_ctx");
	return 0;
}

static int read_ollama(struct generation *g, struct json *body, struct problem *p)
{
	struct texts_ask *own = g->own;
	int r;

	if (!(body = texts_check(g, body, ollama_fields, p)))
		return p->status;
	own->cut = true;
	own->raw = g->endpoint == &ollama_embeddings_endpoint && g->served->embedder && !g->served->embedder->writes;
	if (!(r = note_context(g, body, p)) && !(r = field_bool(body, "truncate", &own->cut, p)) &&
	    !(r = texts_begin(g, body, WANT_VECTORS, p)) && !(r = texts_dimensions(g, body, "dimensions", p)) &&
	    !asks_nothing(json_get(body, "input")))
		r = texts_read(g, json_get(body, "input"), "input", false, p);
	json_free(body);
	return r;
}

static int read_tei(struct generation *g, struct json *body, struct problem *p)
{
	bool all = g->endpoint == &tei_embed_all_endpoint, normalize = !all;
	struct texts_ask *own = g->own;
	int r;

	if (!(body = texts_check(g, body, tei_fields, p)))
		return p->status;
	own->cut = true;
	if (!(r = texts_begin(g, body, all ? WANT_ROWS : WANT_VECTORS, p)) &&
	    !(r = field_bool(body, "truncate", &own->cut, p)) && !(r = field_bool(body, "normalize", &normalize, p)) &&
	    !(r = texts_prompt(g, body, "prompt_name", p)) && !(r = texts_dimensions(g, body, "dimensions", p)) &&
	    !(r = texts_cut(g, body, "truncation_direction", p)) &&
	    !(r = refuse_empty(json_get(body, "inputs"), "inputs", p)))
		r = texts_read(g, json_get(body, "inputs"), "inputs", false, p);
	own->raw = !normalize;
	json_free(body);
	return r;
}

static int read_llama(struct generation *g, struct json *body, struct problem *p)
{
	struct texts_ask *own = g->own;
	int64_t norm = 2;
	int r;

	if (!(body = texts_check(g, body, llama_fields, p)))
		return p->status;
	if (!(r = texts_begin(g, body, WANT_VECTORS, p)) &&
	    !(r = field_int(body, "embd_normalize", -1, 1 << 10, &norm, p)) &&
	    !(r = refuse_empty(json_get(body, "input"), "input", p)))
		r = texts_read(g, json_get(body, "input"), "input", false, p);
	own->norm = (int)norm;
	own->raw = norm != 2;
	json_free(body);
	return r;
}

static const char *const cohere_types[] = { "float", "int8", "uint8", "binary", "ubinary", "base64" };
enum { COHERE_FLOAT, COHERE_INT8, COHERE_UINT8, COHERE_BINARY, COHERE_UBINARY, COHERE_BASE64, COHERE_TYPES };

static int read_cohere_types(struct generation *g, const struct json *body, struct problem *p)
{
	const struct json *list;
	struct texts_ask *own = g->own;
	int r = field_value(body, "embedding_types", JSON_ARRAY, &list, p);

	for (size_t i = 0; i < json_len(list) && !r; i++) {
		const char *s = json_str(json_at(list, i), NULL);
		int k = 0;

		while (k < COHERE_TYPES && !(s && !strcmp(s, cohere_types[k])))
			k++;
		if (k == COHERE_TYPES)
			return field_wrong(p, "embedding_types", "float, int8, uint8, binary, ubinary or base64",
			                   json_at(list, i));
		own->types |= 1u << k;
	}
	own->types = own->types ? own->types : 1u << COHERE_FLOAT;
	return r;
}

static int read_cohere(struct generation *g, struct json *body, struct problem *p)
{
	static const char *const query[] = { "query", "search_query", NULL };
	static const char *const document[] = { "document", "passage", "search_document", "corpus", NULL };
	struct texts_ask *own = g->own;
	int r;

	if (!(body = texts_check(g, body, cohere_fields, p)))
		return p->status;
	own->cut = !texts_word(body, "truncate", "none");
	own->ends = texts_word(body, "truncate", "start");
	if (!(r = texts_begin(g, body, WANT_VECTORS, p)) && !(r = texts_dimensions(g, body, "output_dimension", p)) &&
	    !(r = read_cohere_types(g, body, p))) {
		if (texts_word(body, "input_type", "search_query"))
			texts_usual_prompt(g, query);
		else if (texts_word(body, "input_type", "search_document"))
			texts_usual_prompt(g, document);
		r = json_kind(json_get(body, "texts")) == JSON_ARRAY && json_len(json_get(body, "texts")) ?
		            texts_read(g, json_get(body, "texts"), "texts", false, p) :
		            field_wrong(p, "texts", "a list of strings", json_get(body, "texts"));
	}
	if (!r) {
		own->body = body;
		return 0;
	}
	json_free(body);
	return r;
}

/* With an activation vectors are made as long as 1, and logits scores. */
static int read_pooling(struct generation *g, struct json *body, struct problem *p)
{
	bool act = true, labels, rows;
	struct texts_ask *own = g->own;
	int r;

	if (!(body = texts_check(g, body, pooling_fields, p)))
		return p->status;
	own->base64 = texts_word(body, "encoding_format", "base64");
	rows = texts_word(body, "task", "token_embed") || texts_word(body, "task", "token_classify");
	labels = texts_word(body, "task", "classify");
	if (!json_get(body, "task") && g->served->embedder)
		labels = !(rows = g->served->embedder->all_rows) && g->served->embedder->kind != EMBEDS;
	if (!(r = texts_begin(g, body,
	                      rows   ? WANT_ROWS :
	                      labels ? WANT_LABELS :
	                               WANT_VECTORS,
	                      p)) &&
	    !(r = texts_dimensions(g, body, "dimensions", p)) && !(r = texts_cut(g, body, NULL, p)) &&
	    !(r = field_bool(body, "use_activation", &act, p)) &&
	    !(r = refuse_empty(json_get(body, "input"), "input", p)))
		r = texts_read(g, json_get(body, "input"), "input", false, p);
	own->raw = !act;
	json_free(body);
	return r;
}

/* ---- writing ---- */

static void put_vector(const struct generation *g, const struct choice *c, struct buf *out)
{
	const struct texts_ask *own = g->own;
	int n, n_row;
	float *v = texts_vector(g, c, &n, &n_row);

	if (own->base64)
		put_base64(out, v, (size_t)n * sizeof *v);
	else
		put_floats(out, v, n);
	free(v);
}

static void put_usage_of(const struct generation *g, struct buf *out)
{
	int n = generation_usage(g).prompt;

	buf_printf(out, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}", n, n);
}

static void whole_openai(struct generation *g, struct buf *out)
{
	buf_puts(out, "{\"object\":\"list\",\"data\":[");
	for (int i = 0; i < g->n_choice; i++) {
		buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
		put_vector(g, &g->choice[i], out);
		buf_putc(out, '}');
	}
	buf_puts(out, "],\"model\":");
	json_put_cstr(out, model_shown(g));
	put_usage_of(g, out);
	buf_puts(out, "}\n");
}

static void whole_ollama(struct generation *g, struct buf *out)
{
	buf_puts(out, "{\"model\":");
	json_put_cstr(out, model_shown(g));
	buf_puts(out, ",\"embeddings\":[");
	for (int i = 0; i < g->n_choice; i++) {
		buf_puts(out, i ? "," : "");
		put_vector(g, &g->choice[i], out);
	}
	buf_printf(out, "],\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%d}\n",
	           (long long)(clock_monotonic_ns() - g->x->t_begin), generation_usage(g).prompt);
}

/* The older of ollama's two: one text, one vector, which has no numbers where there is no text. */
static void whole_one(struct generation *g, struct buf *out)
{
	buf_puts(out, "{\"embedding\":");
	if (g->n_choice)
		put_vector(g, &g->choice[0], out);
	else
		buf_puts(out, "[]");
	buf_puts(out, "}\n");
}

static void put_rows(const struct generation *g, const struct choice *c, struct buf *out)
{
	const struct texts_ask *own = g->own;
	bool scores = own->of && own->of->kind != EMBEDS && own->of->all_rows;
	int n, n_row;
	float *v = scores ? texts_scores(g, c, &n, &n_row) : texts_vector(g, c, &n, &n_row);

	buf_putc(out, '[');
	for (int i = 0; i < n_row; i++) {
		buf_puts(out, i ? "," : "");
		put_floats(out, v + (size_t)i * (size_t)n, n);
	}
	buf_putc(out, ']');
	free(v);
}

static void whole_tei(struct generation *g, struct buf *out)
{
	buf_putc(out, '[');
	for (int i = 0; i < g->n_choice; i++) {
		buf_puts(out, i ? "," : "");
		if (((struct texts_ask *)g->own)->rows)
			put_rows(g, &g->choice[i], out);
		else
			put_vector(g, &g->choice[i], out);
	}
	buf_puts(out, "]\n");
}

/* llama-server's norms: the largest number is 32760, or the sum of absolute ones, or the p-th root of their p-th powers. */
static void apply_norm(float *v, int n, int norm)
{
	double sum = 0;

	for (int i = 0; i < n; i++) {
		double a = fabs((double)v[i]);

		sum = norm == 0 ? fmax(sum, a) : sum + pow(a, norm);
	}
	sum = norm == 0 ? sum / 32760 : pow(sum, 1.0 / norm);
	for (int i = 0; i < n && sum > 0; i++)
		v[i] = (float)((double)v[i] / sum);
}

static void whole_llama(struct generation *g, struct buf *out)
{
	const struct texts_ask *own = g->own;

	buf_putc(out, '[');
	for (int i = 0; i < g->n_choice; i++) {
		int n, n_row;
		float *v = texts_vector(g, &g->choice[i], &n, &n_row);

		if (own->norm >= 0 && own->norm != 2)
			apply_norm(v, n, own->norm);
		buf_printf(out, "%s{\"index\":%d,\"embedding\":[", i ? "," : "", i);
		put_floats(out, v, n);
		buf_puts(out, "]}");
		free(v);
	}
	buf_puts(out, "]\n");
}

/* A vector of numbers between -1 and 1 in one of Cohere's types. */
static void put_cohere(struct buf *out, const float *v, int n, int type)
{
	if (type == COHERE_FLOAT) {
		put_floats(out, v, n);
		return;
	}
	if (type == COHERE_BASE64) {
		put_base64(out, v, (size_t)n * sizeof *v);
		return;
	}
	buf_putc(out, '[');
	for (int i = 0; i < n && type <= COHERE_UINT8; i++) {
		double x = fmin(fmax(round((double)v[i] * 127), -128), 127);

		buf_printf(out, "%s%d", i ? "," : "", (int)x + (type == COHERE_UINT8 ? 128 : 0));
	}
	for (int i = 0; i < n && type > COHERE_UINT8; i += 8) {
		int byte = 0;

		for (int k = 0; k < 8; k++)
			byte = byte << 1 | (i + k < n && v[i + k] >= 0);
		buf_printf(out, "%s%d", i ? "," : "", type == COHERE_BINARY ? byte - 128 : byte);
	}
	buf_putc(out, ']');
}

static void whole_cohere(struct generation *g, struct buf *out)
{
	const struct texts_ask *own = g->own;
	bool more = false;

	buf_printf(out, "{\"id\":\"%s\",\"response_type\":\"embeddings_by_type\",\"embeddings\":{", g->x->id);
	for (int type = 0; type < COHERE_TYPES; type++) {
		if (!(own->types & 1u << type))
			continue;
		buf_printf(out, "%s\"%s\":[", more ? "," : "", cohere_types[type]);
		more = true;
		for (int i = 0; i < g->n_choice; i++) {
			int n, n_row;
			float *v = texts_vector(g, &g->choice[i], &n, &n_row);

			buf_puts(out, i ? "," : "");
			put_cohere(out, v, n, type);
			free(v);
		}
		buf_putc(out, ']');
	}
	buf_puts(out, "},\"texts\":");
	json_put(out, json_get(own->body, "texts"));
	buf_printf(out,
	           ",\"meta\":{\"api_version\":{\"version\":\"2\",\"is_experimental\":false},"
	           "\"billed_units\":{\"input_tokens\":%d}}}\n",
	           generation_usage(g).prompt);
}

static void whole_pooling(struct generation *g, struct buf *out)
{
	const struct texts_ask *own = g->own;

	buf_printf(out, "{\"id\":\"pool-%s\",\"object\":\"list\",\"created\":%lld,\"model\":", g->x->id,
	           (long long)g->created);
	json_put_cstr(out, model_shown(g));
	buf_puts(out, ",\"data\":[");
	for (int i = 0; i < g->n_choice; i++) {
		buf_printf(out, "%s{\"index\":%d,\"object\":\"pooling\",\"data\":", i ? "," : "", i);
		if (own->rows) {
			put_rows(g, &g->choice[i], out);
		} else if (own->of && own->of->kind != EMBEDS) {
			int n, n_row;
			float *v = texts_scores(g, &g->choice[i], &n, &n_row);

			put_floats(out, v, n);
			free(v);
		} else {
			put_vector(g, &g->choice[i], out);
		}
		buf_putc(out, '}');
	}
	buf_putc(out, ']');
	put_usage_of(g, out);
	buf_puts(out, "}\n");
}

const struct endpoint embed_endpoint = TEXTS_ENDPOINT("embd-", read_openai, whole_openai, NULL);
const struct endpoint ollama_embed_endpoint = TEXTS_ENDPOINT("ollama-", read_ollama, whole_ollama, whole_ollama);
const struct endpoint ollama_embeddings_endpoint = TEXTS_ENDPOINT("ollama-", read_ollama, whole_one, whole_one);
const struct endpoint tei_embed_endpoint = TEXTS_ENDPOINT("embd-", read_tei, whole_tei, NULL);
const struct endpoint tei_embed_all_endpoint = TEXTS_ENDPOINT("embd-", read_tei, whole_tei, NULL);
const struct endpoint llama_embedding_endpoint = TEXTS_ENDPOINT("embd-", read_llama, whole_llama, NULL);
const struct endpoint cohere_embed_endpoint = TEXTS_ENDPOINT("embd-", read_cohere, whole_cohere, NULL);
const struct endpoint pooling_endpoint = TEXTS_ENDPOINT("pool-", read_pooling, whole_pooling, NULL);

/* ---- TEI's /info ---- */

/* The labels of a head, by number and by name. */
static void put_labels(struct buf *b, const struct embedder *e)
{
	char scratch[32];

	buf_puts(b, "{\"id2label\":{");
	for (int i = 0; i < e->out; i++) {
		buf_printf(b, "%s\"%d\":", i ? "," : "", i);
		json_put_cstr(b, embedder_label(e, i, scratch));
	}
	buf_puts(b, "},\"label2id\":{");
	for (int i = 0; i < e->out; i++) {
		buf_puts(b, i ? "," : "");
		json_put_cstr(b, embedder_label(e, i, scratch));
		buf_printf(b, ":%d", i);
	}
	buf_puts(b, "}}");
}

static void put_kind(struct buf *b, const struct embedder *e)
{
	if (e && e->kind != EMBEDS) {
		buf_printf(b, "{\"%s\":", e->kind == RANKS ? "reranker" : "classifier");
		put_labels(b, e);
	} else {
		buf_printf(b, "{\"embedding\":{\"pooling\":\"%s\"}",
		           !e || e->rows == ROWS_LAST ? "last_token" :
		           e->rows == ROWS_FIRST      ? "cls" :
		                                        "mean");
	}
	buf_putc(b, '}');
}

static void tei_info(struct exchange *x)
{
	const struct embedder *e;
	const struct served *d;
	struct problem p;
	struct buf b;
	int most;

	if (known_ask(x, &p)) {
		exchange_refuse(x, &p);
		return;
	}
	d = &x->model->served;
	e = d->embedder;
	most = e && e->max_tokens && e->max_tokens < d->ctx_max ? e->max_tokens : d->ctx_max;
	buf_init(&b);
	buf_puts(&b, "{\"model_id\":");
	json_put_cstr(&b, d->name);
	buf_puts(&b, ",\"model_sha\":null,\"model_type\":");
	put_kind(&b, e);
	buf_printf(&b, ",\"max_input_length\":%d,\"max_client_batch_size\":%d,\"auto_truncate\":true}\n", most,
	           TEXTS_MAX);
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct endpoint tei_info_endpoint = { .ready = tei_info };
