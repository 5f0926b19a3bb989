/* structured.c - see structured.h. */
#include "server/structured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/inside.h"
#include "text/constraint.h"
#include "text/dialect.h"

/* Made when it is first needed, on a worker: a walk over all tokens. */
static const struct vocab *vocab_of(struct server *s)
{
	const struct vocab *v;

	pthread_mutex_lock(&s->vocab_lock);
	if (!s->vocab)
		s->vocab = constraint_vocab(s->served.tokenizer);
	v = s->vocab;
	pthread_mutex_unlock(&s->vocab_lock);
	return v;
}

static int hold(struct generation *g, const struct json *schema, const char *field, struct problem *p)
{
	struct json *made = NULL;
	struct err err;
	int rc;

	if (g->content)
		return problem_set(p, 400, "invalid_value", field, "%s: the answer's form is said twice", field);
	if (!schema)
		made = json_parse("{\"type\":\"object\"}", 17, 0, NULL);
	rc = grammar_compile(schema ? schema : made, &g->content, &err);
	json_free(made);
	if (rc)
		return problem_set(p, 400, rc == E_UNSUPPORTED ? "unsupported_schema" : "invalid_schema", field, "%s: %s", field,
		                   err.msg);
	if (g->x && !g->vocab)
		g->vocab = vocab_of(g->x->srv);
	return 0;
}

int structured_format(struct generation *g, const struct json *format, const char *field, struct problem *p)
{
	const struct json *type = json_get(format, "type"), *schema = json_get(format, "schema");
	const struct json *wrapped = json_get(format, "json_schema");
	char name[80];
	const char *s;
	size_t n;

	if (json_kind(format) == JSON_NULL)
		return 0;
	if (json_kind(format) != JSON_OBJECT)
		return field_wrong(p, field, "an object", format);
	snprintf(name, sizeof name, "%s.type", field);
	s = json_str(type, &n);
	if (!s || (strcmp(s, "text") && strcmp(s, "json_object") && strcmp(s, "json_schema")))
		return field_wrong(p, name, "text, json_object or json_schema", type);
	if (!strcmp(s, "text"))
		return 0;
	if (wrapped) {
		snprintf(name, sizeof name, "%s.json_schema", field);
		if (json_kind(wrapped) != JSON_OBJECT)
			return field_wrong(p, name, "an object", wrapped);
		schema = json_get(wrapped, "schema");
	}
	snprintf(name, sizeof name, wrapped ? "%s.json_schema.schema" : "%s.schema", field);
	if (!strcmp(s, "json_schema") && !schema && !wrapped)
		return field_wrong(p, name, "a JSON schema", schema);
	return hold(g, schema, schema ? name : field, p);
}

int structured_fields(struct generation *g, const struct json *body, struct problem *p)
{
	static const char *const names[] = { "guided_json", "json_schema" };
	const struct json *v = json_get(body, "structured_outputs");
	int r = structured_format(g, json_get(body, "response_format"), "response_format", p);

	if (!r && json_kind(v) != JSON_NULL) {
		if (json_len(v) != 1 || !json_get(v, "json"))
			return field_wrong(p, "structured_outputs", "an object with \"json\" alone", v);
		r = hold(g, json_get(v, "json"), "structured_outputs.json", p);
	}
	for (int i = 0; i < 2 && !r; i++) {
		struct json *parsed = NULL;
		const char *s;
		size_t n;

		v = json_get(body, names[i]);
		/* An empty object asks for nothing where llama.cpp's clients send it always. */
		if (json_kind(v) == JSON_NULL || (i && json_kind(v) == JSON_OBJECT && !json_len(v)))
			continue;
		if ((s = json_str(v, &n)) && !(v = parsed = json_parse(s, n, 0, NULL)))
			return field_wrong(p, names[i], "a JSON schema", json_get(body, names[i]));
		r = hold(g, v, names[i], p);
		json_free(parsed);
	}
	return r;
}

/* Agents send the same tools with each request: those compiled last are kept. */
static struct grammar *kept_calls(struct server *s, const struct buf *key)
{
	struct grammar *g = NULL;

	pthread_mutex_lock(&s->vocab_lock);
	for (int i = 0; i < KEPT_CALLS && !g; i++)
		if (s->calls[i].key && !strcmp(s->calls[i].key, key->p)) {
			g = s->calls[i].grammar;
			grammar_ref(g);
		}
	pthread_mutex_unlock(&s->vocab_lock);
	return g;
}

static void keep_calls(struct server *s, const struct buf *key, struct grammar *g)
{
	pthread_mutex_lock(&s->vocab_lock);
	int i = s->at_call++ % KEPT_CALLS;

	free(s->calls[i].key);
	grammar_unref(s->calls[i].grammar);
	s->calls[i].key = xstrndup(key->p, key->n);
	s->calls[i].grammar = g;
	grammar_ref(g);
	pthread_mutex_unlock(&s->vocab_lock);
}

int structured_calls(struct generation *g, const char *only, struct problem *p)
{
	const struct dialect *d = dialect_taught(g->served->tmpl);
	enum calls_form form = d == &dialect_tagged ? CALLS_TAGGED : CALLS_JSON;
	struct buf key;
	struct err err;
	int rc = 0;

	if (!g->tools || (d != &dialect_tagged && d != &dialect_hermes))
		return 0;
	buf_init(&key);
	buf_printf(&key, "%d %s ", form, only ? only : "");
	json_put(&key, g->tools);
	if (g->x)
		g->calls = kept_calls(g->x->srv, &key);
	if (!g->calls && !(rc = grammar_compile_calls(g->tools, form, only, &g->calls, &err)) && g->x)
		keep_calls(g->x->srv, &key, g->calls);
	buf_fini(&key);
	if (rc)
		return problem_set(p, 400, rc == E_UNSUPPORTED ? "unsupported_schema" : "invalid_schema", "tools", "tools: %s", err.msg);
	if (g->x && !g->vocab)
		g->vocab = vocab_of(g->x->srv);
	return 0;
}

struct mask_source *structured_mask(const struct generation *g, const int32_t *end, int n_end)
{
	struct constraint_rules r = {
		.tokenizer = g->served->tokenizer, .vocab = g->vocab, .thinking = g->thinking, .may_think = g->may_think,
		.content = g->content, .call = g->calls, .end = end, .n_end = n_end,
	};

	if ((!g->content && !g->calls) || !g->vocab)
		return NULL;
	if (g->tools) {
		r.call_open = "<tool_call>";
		r.call_close = "</tool_call>";
	}
	return constraint_new(&r);
}
