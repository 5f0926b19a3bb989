/* api_embed.c - POST /v1/embeddings in the OpenAI API's shapes, and ollama's /api/embed and /api/embeddings.
 *
 * The vector of a text is the model's row of its last token as the output matrix reads it, made as long as 1.  A text is
 * a prompt like any: what is kept of it, and what else is in its step, change no bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/base64.h"
#include "base/clock.h"
#include "engine/wanted_rows.h"
#include "server/api/complete.h"
#include "server/inside.h"
#include "server/routes.h"

/* Members that params_read is shown: they change nothing of the vector. */
#define ABOUT                                                                  \
	{ "user" }, { "safety_identifier" }, { "metadata" }, { "cache_salt" }, \
	{                                                                      \
		"priority"                                                     \
	}
static const struct field about_fields[] = { ABOUT, { NULL } };
static const struct field embed_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "input" },
	{ "encoding_format", "\"float\"|\"base64\"" },
	{ "dimensions" },
	ABOUT,
	{ "input_type", "", "put the instruction that the model knows into input" },
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

struct embedding {
	int dimensions; /* 0: all */
	bool ollama;
	bool cut; /* a text that is too long, to its beginning */
	bool base64;
};

static void *own_new(void)
{
	return xcalloc(1, sizeof(struct embedding));
}

/* ---- reading ---- */

/* A body with the members of this one that generations read: the model's name and the user. */
static struct json *body_of(const struct json *body)
{
	struct json *j;
	struct buf b;

	buf_init(&b);
	buf_putc(&b, '{');
	ollama_put_model(json_get(body, "model"), &b);
	for (const struct field *f = about_fields; f->name; f++) {
		const struct json *v = json_get(body, f->name);

		if (!v)
			continue;
		buf_puts(&b, b.n > 1 ? "," : "");
		json_put_cstr(&b, f->name);
		buf_putc(&b, ':');
		json_put(&b, v);
	}
	buf_putc(&b, '}');
	j = json_parse(b.p, b.n, 0, NULL);
	buf_fini(&b);
	return j;
}

/* Clients of ollama have a model loaded by a request that asks nothing of it. */
static bool asks_nothing(const struct json *input)
{
	size_t n = 0;

	return json_kind(input) == JSON_NULL || (json_kind(input) == JSON_ARRAY && !json_len(input)) ||
	       (json_str(input, &n) && !n);
}

static int read_input(struct generation *g, const struct json *body, struct problem *p)
{
	struct embedding *own = g->own;
	struct params *a = &g->params;
	int64_t dimensions = 0;
	const char *format;
	size_t n;
	int r;

	g->body = body_of(body);
	if ((r = model_read(g, g->body, p)) || (r = params_read(a, g->body, g->served, p)) ||
	    (r = field_int(body, "dimensions", 1, INT32_MAX, &dimensions, p)))
		return r;
	own->dimensions = (int)dimensions;
	if (g->served->is.hidden && dimensions > g->served->is.hidden)
		warnings_add(&a->warnings.ignored, NULL, "dimensions");
	format = json_str(json_get(body, "encoding_format"), &n);
	own->base64 = format && !strcmp(format, "base64");
	a->max_tokens = 0;
	a->n = 1;
	a->n_draft = -1;
	a->ignore_eos = true;
	g->rows = ROWS_LAST;
	g->cuts = own->cut;
	if (own->ollama && asks_nothing(json_get(body, "input")))
		return 0;
	g->prompt_field = "input";
	r = prompts_read(g, json_get(body, "input"), "input", TOKENIZE_AROUND, p);
	for (int i = 0; own->cut && !r && i < g->n_prompt; i++)
		if (g->prompt[i].n >= (size_t)g->served->ctx_max)
			g->prompt[i].n = (size_t)g->served->ctx_max - 1;
	return r;
}

static int read_fields(struct generation *g, struct json *body, const struct field *fields, struct problem *p)
{
	const struct field *const tables[] = { fields, NULL };
	struct embedding *own = g->own;
	int r;

	if (!(body = body_check(body, tables, &g->params.warnings, p)))
		return p->status;
	own->ollama = own->cut = fields == ollama_fields;
	if (!own->ollama || !(r = field_bool(body, "truncate", &own->cut, p)))
		r = read_input(g, body, p);
	json_free(body);
	return r;
}

static int read_openai(struct generation *g, struct json *body, struct problem *p)
{
	return read_fields(g, body, embed_fields, p);
}

static int read_ollama(struct generation *g, struct json *body, struct problem *p)
{
	return read_fields(g, body, ollama_fields, p);
}

/* ---- writing ---- */

static void token(struct generation *g, struct choice *c, const struct event *ev)
{
	(void)g;
	(void)c;
	(void)ev;
}

static void end(struct generation *g, struct choice *c)
{
	(void)g;
	(void)c;
}

static void put_base64(struct buf *out, const float *v, int n)
{
	size_t bytes = (size_t)n * sizeof *v, chars = (bytes + 2) / 3 * 4;
	char *text = xmalloc(chars);

	base64_encode(text, (const uint8_t *)v, bytes);
	buf_putc(out, '"');
	buf_put(out, text, chars);
	buf_putc(out, '"');
	free(text);
}

static void put_vector(const struct generation *g, const struct choice *c, struct buf *out)
{
	const struct embedding *own = g->own;
	double sum = 0, scale;
	const float *row;
	size_t n_row;
	float *v;
	int n;

	row = request_rows(c->req, &n_row);
	n = (int)n_row;
	if (own->dimensions && own->dimensions < n)
		n = own->dimensions;
	for (int i = 0; i < n; i++)
		sum += (double)row[i] * (double)row[i];
	scale = sum > 0 ? 1 / sqrt(sum) : 0;
	v = xmalloc((size_t)n * sizeof *v);
	for (int i = 0; i < n; i++)
		v[i] = (float)((double)row[i] * scale);
	if (own->base64) {
		put_base64(out, v, n);
	} else {
		for (int i = 0; i < n; i++)
			buf_printf(out, "%s%.9g", i ? "," : "[", (double)v[i]);
		buf_putc(out, ']');
	}
	free(v);
}

static void whole(struct generation *g, struct buf *out)
{
	int n = generation_usage(g).prompt;

	buf_puts(out, "{\"object\":\"list\",\"data\":[");
	for (int i = 0; i < g->n_choice; i++) {
		buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
		put_vector(g, &g->choice[i], out);
		buf_putc(out, '}');
	}
	buf_puts(out, "],\"model\":");
	json_put_cstr(out, model_shown(g));
	buf_printf(out, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}}\n", n, n);
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

#define ENDPOINT(prefix, reader, writer, none)                                                               \
	{                                                                                                    \
		GENERATION_STEPS, .id_prefix = prefix, .read = reader, .own_new = own_new, .own_free = free, \
				  .token = token, .end = end, .whole = writer, .nothing = none               \
	}
const struct endpoint embed_endpoint = ENDPOINT("embd-", read_openai, whole, NULL);
const struct endpoint ollama_embed_endpoint = ENDPOINT("ollama-", read_ollama, whole_ollama, whole_ollama);
const struct endpoint ollama_embeddings_endpoint = ENDPOINT("ollama-", read_ollama, whole_one, whole_one);
#undef ENDPOINT
