/* structured.c - see structured.h. */
#include "server/chat/structured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "server/inside.h"
#include "text/grammar/constraint.h"
#include "text/calls/dialect.h"

static void make_vocab(void *arg)
{
	struct known_model *m = arg;
	const struct template *t = served_template(&m->served, true);
	const struct dialect *d = t ? dialect_taught(t) : NULL;
	struct call_marks marks = { .n = 0 };

	if (m->vocab)
		return;
	if (d && d->held)
		constraint_marks(m->served.tokenizer, d->marks, &marks);
	m->vocab = constraint_vocab(m->served.tokenizer, &marks);
}

/* Made when it is first needed, on a worker: a walk over all tokens. */
static const struct vocab *vocab_of(struct known_model *m)
{
	fault_locked(&m->vocab_lock, make_vocab, m);
	return m->vocab; /* which does not change any more */
}

const struct field form_fields[] = {
	{ "response_format" },
	{ "json_schema" },
	{ "structured_outputs" },
	{ "guided_json" },
	{ "guided_regex" },
	{ "guided_choice" },
	{ "guided_grammar" },
	{ "grammar" },
	{ "regex" },
	{ "ebnf" },
	{ "grammar_lazy", "false" },
	{ "grammar_triggers", "[]" },
	{ "preserved_tokens", "[]" },
	{ NULL },
};

enum form { FORM_SCHEMA, FORM_RULES, FORM_EXPRESSION, FORM_CHOICE };

static int compile(enum form form, const struct json *v, struct grammar **out, struct err *err)
{
	size_t n;
	const char *s = json_str(v, &n);

	switch (form) {
	case FORM_SCHEMA: return grammar_compile(v, out, err);
	case FORM_RULES: return grammar_compile_gbnf(s, n, out, err);
	case FORM_EXPRESSION: return grammar_compile_regex(s, n, out, err);
	case FORM_CHOICE: return grammar_compile_choice(v, out, err);
	}
	return E_ARG;
}

/* Digest of everything that a grammar is made of; empties made_of. */
static struct digest key_of(struct buf *made_of)
{
	struct digest d;
	struct sha256 h;

	sha256_init(&h);
	sha256_put(&h, made_of->p, made_of->n);
	sha256_end(&h, &d);
	buf_fini(made_of);
	return d;
}

static int hold(struct generation *g, enum form form, const struct json *v, const char *field, struct problem *p)
{
	bool schema = form == FORM_SCHEMA;
	struct grammar *made_now = NULL;
	struct json *made = NULL;
	struct digest key;
	struct buf text;
	struct err err;
	size_t n;
	int rc;

	if (g->held.content)
		return problem_set(p, 400, "invalid_value", field, "%s: the answer's form is said twice", field);
	if ((form == FORM_RULES || form == FORM_EXPRESSION) && !json_str(v, &n))
		return field_wrong(p, field, "a string", v);
	if (form == FORM_CHOICE && json_kind(v) != JSON_ARRAY)
		return field_wrong(p, field, "an array of strings", v);
	/* A schema may be in a string; of json_object there is none. */
	if (schema && json_str(v, &n) && !(made = json_parse(json_str(v, &n), n, 0, NULL)))
		return field_wrong(p, field, "a JSON schema", v);
	if (schema && !v) {
		made = json_new_object();
		json_set_cstr(made, "type", "object");
	}
	buf_init(&text);
	buf_printf(&text, "content %d ", (int)form);
	json_put(&text, made ? made : v);
	key = key_of(&text);
	if (g->x)
		g->held.content = grammar_store_find(&g->x->model->grammars, &key);
	rc = g->held.content ? 0 : compile(form, made ? made : v, &made_now, &err);
	if (made_now)
		g->held.content = made_now;
	if (made_now && g->x)
		grammar_store_keep(&g->x->model->grammars, &key, g->held.content);
	json_free(made);
	if (rc)
		return problem_set(p, 400,
		                   schema              ? rc == E_UNSUPPORTED ? "unsupported_schema" : "invalid_schema" :
		                   rc == E_UNSUPPORTED ? "unsupported_grammar" :
		                                         "invalid_grammar",
		                   field, "%s: %s", field, err.msg);
	if (g->x && !g->held.vocab)
		g->held.vocab = vocab_of(g->x->model);
	return 0;
}

int structured_format(struct generation *g, const struct json *format, const char *field, struct problem *p)
{
	static const struct field known[] = {
		{ "type" },
		TAKEN("name", TAKES_STRING),
		TAKEN("description", TAKES_STRING),
		{ "schema" },
		TAKEN("strict", TAKES_BOOL),
		{ "json_schema" },
		{ "grammar" },
		{ NULL },
	};
	static const struct field *const tables[] = { known, NULL };
	const struct json *type = json_get(format, "type"), *schema = json_get(format, "schema");
	const struct json *wrapped = json_get(format, "json_schema");
	char name[80];
	const char *s;
	size_t n;
	int r;

	if (json_kind(format) == JSON_NULL)
		return 0;
	if (json_kind(format) != JSON_OBJECT)
		return field_wrong(p, field, "an object", format);
	if ((r = fields_check(format, field, tables, &g->params.warnings, p)))
		return r;
	snprintf(name, sizeof name, "%s.type", field);
	s = json_str(type, &n);
	if (!s || (strcmp(s, "text") && strcmp(s, "json_object") && strcmp(s, "json_schema") && strcmp(s, "grammar")))
		return field_wrong(p, name, "text, json_object, json_schema or grammar", type);
	if (!strcmp(s, "text"))
		return 0;
	if (!strcmp(s, "grammar")) {
		snprintf(name, sizeof name, "%s.grammar", field);
		return hold(g, FORM_RULES, json_get(format, "grammar"), name, p);
	}
	if (wrapped) {
		snprintf(name, sizeof name, "%s.json_schema", field);
		if (json_kind(wrapped) != JSON_OBJECT)
			return field_wrong(p, name, "an object", wrapped);
		if ((r = fields_check(wrapped, name, tables, &g->params.warnings, p)))
			return r;
		schema = json_get(wrapped, "schema");
	}
	snprintf(name, sizeof name, wrapped ? "%s.json_schema.schema" : "%s.schema", field);
	if (!strcmp(s, "json_schema") && json_kind(schema) == JSON_NULL)
		return field_wrong(p, name, "a JSON schema", schema);
	return hold(g, FORM_SCHEMA, schema, schema ? name : field, p);
}

/* vLLM's structured_outputs: one of its kinds, and settings with no effect. */
static int structured_outputs(struct generation *g, const struct json *v, struct problem *p)
{
	static const struct {
		const char *name;
		enum form form;
	} forms[] = {
		{ "json", FORM_SCHEMA },
		{ "regex", FORM_EXPRESSION },
		{ "choice", FORM_CHOICE },
		{ "grammar", FORM_RULES },
	};
	static const struct field settings[] = {
		{ "json" },
		{ "regex" },
		{ "choice" },
		{ "grammar" },
		{ "json_object", "false|true" },
		{ "structural_tag", "" },
		TAKEN("disable_fallback", TAKES_BOOL),
		{ "disable_any_whitespace", "false" },
		{ "disable_additional_properties", "false" },
		{ "whitespace_pattern", "" },
		{ NULL },
	};
	static const struct field *const tables[] = { settings, NULL };
	bool object = false;
	char name[60];
	int r;

	if (json_kind(v) == JSON_NULL)
		return 0;
	if (json_kind(v) != JSON_OBJECT)
		return field_wrong(p, "structured_outputs",
		                   "an object with \"json\", \"regex\", \"choice\" or \"grammar\"", v);
	if ((r = fields_check(v, "structured_outputs", tables, &g->params.warnings, p)) ||
	    (r = field_bool(v, "json_object", &object, p)))
		return r;
	if (object && (r = hold(g, FORM_SCHEMA, NULL, "structured_outputs.json_object", p)))
		return r;
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		const struct json *form = json_get(v, forms[i].name);

		snprintf(name, sizeof name, "structured_outputs.%s", forms[i].name);
		if (json_kind(form) != JSON_NULL && (r = hold(g, forms[i].form, form, name, p)))
			return r;
	}
	if (!g->held.content)
		return field_wrong(p, "structured_outputs",
		                   "an object with \"json\", \"regex\", \"choice\" or \"grammar\"", v);
	return 0;
}

int structured_fields(struct generation *g, const struct json *body, struct problem *p)
{
	static const struct {
		const char *name;
		enum form form;
	} forms[] = {
		{ "guided_json", FORM_SCHEMA },   { "json_schema", FORM_SCHEMA },   { "guided_regex", FORM_EXPRESSION },
		{ "guided_choice", FORM_CHOICE }, { "guided_grammar", FORM_RULES }, { "grammar", FORM_RULES },
		{ "regex", FORM_EXPRESSION },     { "ebnf", FORM_RULES },
	};
	int r = structured_format(g, json_get(body, "response_format"), "response_format", p);

	if (!r)
		r = structured_outputs(g, json_get(body, "structured_outputs"), p);
	for (size_t i = 0; i < sizeof forms / sizeof *forms && !r; i++) {
		const struct json *v = json_get(body, forms[i].name);
		size_t n = 1;

		/* llama.cpp's clients always send these two: an empty one asks for nothing. */
		if (json_kind(v) == JSON_NULL ||
		    (!strcmp(forms[i].name, "json_schema") && json_kind(v) == JSON_OBJECT && !json_len(v)) ||
		    (!strcmp(forms[i].name, "grammar") && json_str(v, &n) && !n))
			continue;
		r = hold(g, forms[i].form, v, forms[i].name, p);
	}
	return r;
}

/* Forms of calls; mark, n_mark: in a form without tags, the byte whose n_mark-th occurrence ends the name, where a call is
 * certain. */
static const struct {
	const struct dialect *d;
	enum calls_form form;
	char mark;
	int n_mark;
} call_forms[] = {
	{ &dialect_tagged, CALLS_TAGGED, 0, 0 },
	{ &dialect_hermes, CALLS_JSON, 0, 0 },
	{ &dialect_llama, CALLS_LLAMA, '"', 4 },   /* {"name": "NAME" */
	{ &dialect_python, CALLS_PYTHON, '(', 1 }, /* [NAME( */
};

static int form_taught(const struct generation *g)
{
	const struct dialect *d = dialect_taught(generation_template(g));

	for (int i = 0; i < (int)(sizeof call_forms / sizeof *call_forms); i++)
		if (call_forms[i].d == d)
			return i;
	return -1;
}

static bool strict(const struct json *tools)
{
	bool yes = false;

	for (size_t i = 0; i < json_len(tools) && !yes; i++)
		json_to_bool(json_get(json_get(json_at(tools, i), "function"), "strict"), &yes);
	return yes;
}

static int compile_calls(struct generation *g, const struct dialect *d, int form, const struct json *tools,
                         const char *only, bool several, struct err *err)
{
	struct call_marks marks;

	if (form >= 0)
		return grammar_compile_calls(tools, call_forms[form].form, only, several, &g->held.calls, err);
	constraint_marks(g->served->tokenizer, d->marks, &marks);
	return grammar_compile_spelled(tools, d->held, &marks, only, several, &g->held.calls, err);
}

/* Tells of the tools whose parameters calls are not held to: those of the grammar, or, without one, all
 * that have any. */
static void tell_let_go(struct generation *g, const struct json *tools, const char *only)
{
	const struct let_go *l = g->held.calls ? grammar_let_go(g->held.calls) : NULL;
	struct buf *list = &g->params.warnings.let_go;
	size_t n;

	for (; l; l = l->next)
		warnings_add(list, NULL, l->name);
	for (size_t i = 0; i < json_len(tools) && !g->held.calls; i++) {
		const struct json *f = json_get(json_at(tools, i), "function");
		const char *own = json_str(json_get(f, "name"), &n);

		if (own && json_len(json_get(f, "parameters")) && (!only || !strcmp(only, own)))
			warnings_add(list, NULL, own);
	}
}

int structured_calls(struct generation *g, const struct json *tools, const char *only, bool must, struct problem *p)
{
	int i = g->tools.list ? form_taught(g) : -1;
	const struct dialect *d = g->tools.list ? dialect_taught(generation_template(g)) : NULL;
	bool several = g->params.parallel && !(must && only), python;
	struct digest key;
	struct buf text;
	struct err err;
	int rc = 0;

	if (i < 0 && !(d && d->held))
		return 0;
	python = i < 0 ? d->held->spell == SPELL_PYTHON : call_forms[i].form == CALLS_PYTHON;
	g->held.must_call = must;
	buf_init(&text);
	buf_printf(&text, "calls %d %d ", i, several);
	json_put(&text, tools);
	buf_puts(&text, only ? only : "");
	key = key_of(&text);
	if (g->x)
		g->held.calls = grammar_store_find(&g->x->model->grammars, &key);
	if (!g->held.calls && !(rc = compile_calls(g, d, i, tools, only, several, &err)) && g->x)
		grammar_store_keep(&g->x->model->grammars, &key, g->held.calls);
	/* Calls that Python's or Gemma's form cannot express are not held. */
	if ((python || (i < 0 && d->held->spell == SPELL_GEMMA)) && (rc == E_LIMIT || rc == E_UNSUPPORTED) &&
	    !strict(tools)) {
		tell_let_go(g, tools, only);
		return 0;
	}
	if (rc)
		return problem_set(p, 400, rc == E_UNSUPPORTED ? "unsupported_schema" : "invalid_schema", "tools",
		                   "tools: %s", err.msg);
	tell_let_go(g, tools, only);
	if (g->x && !g->held.vocab)
		g->held.vocab = vocab_of(g->x->model);
	return 0;
}

/* Other dialects of the list have the same form behind another tag. */
static void ways_to_open(const struct dialect *const *dialects, const struct dialect *first, struct constraint_rules *r)
{
	for (int i = 0, n = 0; dialects[i] && n < CONSTRAINT_OPENS; i++) {
		const struct dialect *d = dialects[i];

		if (d == first || d->held != first->held)
			continue;
		r->also[n] = d->open;
		r->opened[n++] = d->opened;
	}
}

struct mask_source *structured_mask(const struct generation *g, const int32_t *end, int n_end)
{
	const struct speech *speech = g->thoughts.speech;
	struct constraint_rules r = {
		.tokenizer = g->served->tokenizer,
		.vocab = g->held.vocab,
		.thinking = g->thoughts.open,
		.may_think = g->thoughts.may_open,
		.think_open = speech ? speech->think_open : NULL,
		.think_close = speech ? speech->think_close : NULL,
		.reopens = speech && speech->reopens,
		.content_open = speech ? speech->content_open : NULL,
		.turn = speech ? speech->turn : NULL,
		.content = g->held.content,
		.call = g->held.calls,
		.end = end,
		.n_end = n_end,
	};
	const struct dialect *d;
	struct call_marks marks;
	int i;

	if ((!g->held.content && !g->held.calls) || !g->held.vocab)
		return NULL;
	i = g->tools.list ? form_taught(g) : -1;
	if (i >= 0 && call_forms[i].n_mark) {
		r.call_alone = true;
		r.mark = call_forms[i].mark;
		r.n_mark = call_forms[i].n_mark;
		r.must_call = g->held.must_call;
	} else if (i < 0 && g->held.calls && (d = dialect_taught(generation_template(g)))->held) {
		constraint_marks(g->served->tokenizer, d->marks, &marks);
		r.marks = &marks;
		r.call_open = d->open;
		ways_to_open(g->tools.dialects, d, &r);
	} else if (g->tools.list) {
		r.call_open = "<tool_call>";
		r.call_close = "</tool_call>";
	}
	return constraint_new(&r);
}
