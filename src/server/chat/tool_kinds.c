/* tool_kinds.c - see tool_kinds.h. */
#include "server/chat/tool_kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/grammar/grammar.h"

static bool str_is(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && !strcmp(s, text);
}

/* ---- kinds ---- */

void tool_kinds_fini(struct tool_kinds *k)
{
	for (int i = 0; i < k->n; i++) {
		free(k->kind[i].name);
		free(k->kind[i].own);
		free(k->kind[i].space);
	}
	free(k->kind);
	*k = (struct tool_kinds){ 0 };
}

const struct tool_kind *tool_kinds_find(const struct tool_kinds *k, const char *name, size_t n)
{
	for (int i = 0; i < k->n; i++)
		if (strlen(k->kind[i].name) == n && !memcmp(k->kind[i].name, name, n))
			return &k->kind[i];
	return NULL;
}

void tool_flat_name(const char *space, const char *name, struct buf *out)
{
	size_t n = space ? strlen(space) : 0;

	if (n)
		buf_printf(out, "%s%s", space, n > 1 && !strcmp(space + n - 2, "__") ? "" : "__");
	buf_puts(out, name);
}

struct json *tool_arguments(const struct json *input)
{
	struct json *out = json_new_object();

	json_set(out, "input", json_share(input));
	return out;
}

/* Do the n bytes of JSON end within a string? */
static bool ends_in_string(const char *p, size_t n)
{
	bool in = false;

	for (size_t i = 0; i < n; i++) {
		if (p[i] == '"')
			in = !in;
		else if (p[i] == '\\' && in)
			i++;
	}
	return in;
}

/* Parses arguments that broke off behind their string, or within it: without the escape that broke off with them, at
 * most two of six bytes, of which the second was to complete a pair.  NULL: they are not such. */
static struct json *parse_broken(const char *arguments, size_t n)
{
	struct json *j = NULL;
	struct buf b;

	buf_init(&b);
	for (size_t cut = 0; !j && cut <= 12 && cut < n; cut++) {
		bool in = ends_in_string(arguments, n - cut);

		if (cut && !in)
			break;
		buf_reset(&b);
		buf_put(&b, arguments, n - cut);
		buf_puts(&b, in ? "\"}" : "}");
		j = json_parse(b.p, b.n, 200, NULL);
	}
	buf_fini(&b);
	return j;
}

/* Arguments that broke off before their string began. */
static bool is_beginning(const char *p, size_t n)
{
	const char *want = "{\"input\":\"";

	for (size_t i = 0; i < n; i++)
		if (!strchr(" \t\r\n", p[i]) && (!*want || *want++ != p[i]))
			return false;
	return true;
}

void tool_get_input(const char *arguments, size_t n, struct buf *out)
{
	struct json *j = json_parse(arguments, n, 200, NULL);
	size_t len;
	const char *s;

	if (!j)
		j = parse_broken(arguments, n);
	s = json_str(json_get(j, "input"), &len);
	if (s)
		buf_put(out, s, len);
	else if (!is_beginning(arguments, n))
		buf_put(out, arguments, n);
	json_free(j);
}

/* ---- one tool ---- */

struct made {
	char *name; /* NULL: not read yet */
	struct json *tool;
	int list; /* that it came in */
};

struct making {
	struct tool_kinds *k;
	struct warnings *w;
	struct problem *p;
	struct made *made;
	size_t n;
	int list;    /* that tools are read of */
	bool loaded; /* the list is what was deferred before */
};

/* Adds a tool; takes both. */
static void add_tool(struct making *m, char *name, struct json *tool)
{
	/* Twice the room at each power of two. */
	if (!(m->n & (m->n - 1)))
		m->made = xrealloc(m->made, size_mul(m->n ? 2 * m->n : 1, sizeof *m->made));
	m->made[m->n++] = (struct made){ .name = name, .tool = tool, .list = m->list };
}

/* Sets the kind of the name that the model sees.  A plain function needs none unless it takes another's place. */
static void set_kind(struct tool_kinds *k, const char *name, const char *space, const char *own, enum tool_form form)
{
	struct tool_kind *kind = NULL;

	for (int i = 0; i < k->n && !kind; i++)
		if (!strcmp(k->kind[i].name, name))
			kind = &k->kind[i];
	if (!kind && !space && form == TOOL_FUNCTION)
		return;
	if (kind) {
		free(kind->name);
		free(kind->own);
		free(kind->space);
	} else {
		k->kind = xrealloc(k->kind, size_mul((size_t)k->n + 1, sizeof *k->kind));
		kind = &k->kind[k->n++];
	}
	*kind = (struct tool_kind){
		.name = xstrdup(name), .own = xstrdup(own), .space = space ? xstrdup(space) : NULL, .form = form
	};
}

/* Adds a tool, or puts it in the place of an earlier list's tool of that name.  Returns its function, to which the
 * caller adds what else it has. */
static struct json *begin_tool(struct making *m, const char *space, const char *own, enum tool_form form)
{
	struct json *tool = json_new_object(), *function = json_new_object();
	struct buf name;
	size_t i = 0;

	buf_init(&name);
	tool_flat_name(space, own, &name);
	if (m->k)
		set_kind(m->k, name.p, space, own, form);
	while (i < m->n && (m->made[i].list == m->list || !m->made[i].name || strcmp(m->made[i].name, name.p)))
		i++;
	json_set_cstr(tool, "type", "function");
	json_set_str(function, "name", name.p, name.n);
	json_set(tool, "function", function);
	if (i < m->n) {
		json_free(m->made[i].tool);
		m->made[i].tool = tool;
	} else {
		add_tool(m, xstrdup(name.p), tool);
	}
	buf_fini(&name);
	return function;
}

/* The parameters of a function with one string, "input"; pattern: what the string is held to, empty: nothing. */
static struct json *input_schema(const struct buf *pattern)
{
	struct json *input = json_new_object(), *properties = json_new_object(), *required = json_new_array();
	struct json *out = json_new_object();

	json_set_cstr(input, "type", "string");
	if (pattern->n)
		json_set_str(input, "pattern", pattern->p, pattern->n);
	json_set(properties, "input", input);
	json_add(required, json_new_str("input", 5));
	json_set_cstr(out, "type", "object");
	json_set(out, "properties", properties);
	json_set(out, "required", required);
	json_set_bool(out, "additionalProperties", false);
	return out;
}

static void leave_out(struct making *m, const struct json *type)
{
	size_t n;

	warnings_add(&m->w->tools, NULL, json_str(type, &n));
}

static int name_of(struct making *m, const struct json *t, const char *at, const char **name)
{
	char where[100];
	size_t n;

	if ((*name = json_str(json_get(t, "name"), &n)))
		return 0;
	snprintf(where, sizeof where, "%.80s.name", at);
	return field_wrong(m->p, where, "a string", json_get(t, "name"));
}

/* Is it an expression that an input can be held to? */
static int check_expression(struct making *m, const char *re, size_t n, const char *at)
{
	struct grammar *g;
	struct err err;
	int rc = grammar_compile_regex(re, n, &g, &err);

	if (rc)
		return problem_set(m->p, 400, rc == E_UNSUPPORTED ? "unsupported_grammar" : "invalid_grammar", "tools",
		                   "%.80s.format: %s", at, err.msg);
	grammar_unref(g);
	return 0;
}

/* A custom tool: {"name", "description", "format"}. */
static int put_custom(struct making *m, const struct json *t, const char *at, const char *space)
{
	const struct json *format = json_get(t, "format"), *grammar = json_get(format, "grammar");
	const struct json *of = json_kind(grammar) == JSON_OBJECT ? grammar : format,
			  *rules = json_get(of, "definition");
	bool expression = str_is(json_get(of, "syntax"), "regex");
	const char *name, *text, *definition;
	struct buf about, pattern;
	struct json *f;
	size_t n = 0, n_rules = 0;
	char where[80];
	int r;

	snprintf(where, sizeof where, "%.60s.format", at);
	if ((r = field_takes(t, at, "description", TAKES_STRING, m->p)) ||
	    (r = field_takes(t, at, "format", TAKES_OBJECT, m->p)) ||
	    (r = field_takes(format, where, "type", TAKES_STRING, m->p)) ||
	    (r = field_takes(format, where, "grammar", TAKES_OBJECT, m->p)) ||
	    (r = field_takes(of, where, "syntax", TAKES_STRING, m->p)) ||
	    (r = field_takes(of, where, "definition", TAKES_STRING, m->p)))
		return r;
	definition = json_str(rules, &n_rules);
	if ((r = name_of(m, t, at, &name)) ||
	    (definition && expression && (r = check_expression(m, definition, n_rules, at))))
		return r;
	f = begin_tool(m, space, name, TOOL_CUSTOM);
	buf_init(&about);
	buf_init(&pattern);
	if ((text = json_str(json_get(t, "description"), &n)))
		buf_put(&about, text, n);
	if (definition && expression) {
		/* The expression is the whole input; a schema's may be anywhere in a string. */
		buf_puts(&pattern, "^(?:");
		buf_put(&pattern, definition, n_rules);
		buf_puts(&pattern, ")$");
	} else if (definition) {
		/* The model is told the grammar and not held to it. */
		buf_printf(&about, "%sThe input follows this grammar:\n", about.n ? "\n\n" : "");
		buf_put(&about, definition, n_rules);
	}
	json_set_str(f, "description", about.p, about.n);
	json_set(f, "parameters", input_schema(&pattern));
	buf_fini(&about);
	buf_fini(&pattern);
	return 0;
}

/* A function, all of whose members but the type are shown. */
static int put_function(struct making *m, const struct json *t, const char *at, const char *space)
{
	static const char *const ours[] = { "type", "name", "defer_loading", "output_schema" };
	struct json_cursor c;
	const struct json *v;
	const char *key, *name;
	struct json *f;
	int r;

	if ((r = name_of(m, t, at, &name)))
		return r;
	f = begin_tool(m, space, name, TOOL_FUNCTION);
	for (c = json_first(t); json_next(&c, &key, &v);) {
		bool own = json_kind(v) == JSON_NULL;

		for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
			own |= !strcmp(key, ours[i]);
		if (!own)
			json_set(f, key, json_share(v));
	}
	return 0;
}

static void tell_deferred(struct making *m, const struct json *t)
{
	bool deferred = false;

	json_to_bool(json_get(t, "defer_loading"), &deferred);
	if (deferred && !m->loaded)
		warnings_add(&m->w->ignored, "tools", "defer_loading");
}

/* A member of t, unless it is null, under a name of f's. */
static void set_if_any(struct json *f, const char *as, const struct json *t, const char *name)
{
	const struct json *v = json_get(t, name);

	if (json_kind(v) != JSON_NULL)
		json_set(f, as, json_share(v));
}

/* A search for tools that the client runs: {"description", "parameters"}. */
static void put_search(struct making *m, const struct json *t)
{
	struct json *f = begin_tool(m, NULL, "tool_search", TOOL_SEARCH);

	set_if_any(f, "description", t, "description");
	set_if_any(f, "parameters", t, "parameters");
}

/* One of /v1/responses: space is the namespace that it stands in, or NULL. */
static int put_responses(struct making *m, const struct json *t, const char *at, const char *space)
{
	const struct json *type = json_get(t, "type"), *inner = json_get(t, "tools");
	const char *name;
	char where[120];
	int r = 0;

	if (json_kind(t) != JSON_OBJECT)
		return field_wrong(m->p, at, "an object", t);
	snprintf(where, sizeof where, "%.80s.type", at);
	if (json_kind(type) != JSON_STRING)
		return field_wrong(m->p, where, "a string", type);
	tell_deferred(m, t);
	if (str_is(type, "function"))
		return put_function(m, t, at, space);
	if (str_is(type, "custom"))
		return put_custom(m, t, at, space);
	if (str_is(type, "tool_search") && !space && str_is(json_get(t, "execution"), "client")) {
		put_search(m, t);
		return 0;
	}
	if ((r = field_takes(t, at, "description", TAKES_STRING, m->p)))
		return r;
	if (!str_is(type, "namespace") || space) {
		leave_out(m, type);
		return 0;
	}
	if ((r = name_of(m, t, at, &name)))
		return r;
	snprintf(where, sizeof where, "%.80s.tools", at);
	if (json_kind(inner) != JSON_ARRAY)
		return field_wrong(m->p, where, "an array of functions", inner);
	for (size_t i = 0; i < json_len(inner) && !r; i++) {
		snprintf(where, sizeof where, "%.80s.tools[%zu]", at, i);
		r = put_responses(m, json_at(inner, i), where, name);
	}
	return r;
}

/* One of /v1/chat/completions. */
static int put_chat(struct making *m, const struct json *t, const char *at, const char *space)
{
	const struct json *type = json_get(t, "type");
	char where[100];

	(void)space;
	tell_deferred(m, t);
	if (str_is(type, "custom")) {
		snprintf(where, sizeof where, "%.80s.custom", at);
		if (json_kind(json_get(t, "custom")) != JSON_OBJECT)
			return field_wrong(m->p, where, "an object with a name", json_get(t, "custom"));
		return put_custom(m, json_get(t, "custom"), where, NULL);
	}
	if (json_kind(type) == JSON_STRING && !str_is(type, "function")) {
		leave_out(m, type);
		return 0;
	}
	/* As it is: what is wrong with it is found by tools_check. */
	add_tool(m, NULL, json_share(t));
	return 0;
}

static int put_messages(struct making *m, const struct json *t, const char *at, const char *space)
{
	static const struct field known[] = {
		{ "type" },
		{ "name" },
		TAKEN("description", TAKES_STRING),
		{ "input_schema" },
		TAKEN("strict", TAKES_BOOL),
		TAKEN("cache_control", TAKES_OBJECT), /* harmless */
		TAKEN("eager_input_streaming", TAKES_BOOL),
		IGNORED("defer_loading", "false"),
		IGNORED("allowed_callers", "[\"direct\"]"),
		IGNORED("input_examples", "[]"),
		{ NULL },
	};
	static const struct field *const tables[] = { known, NULL };
	const struct json *type = json_get(t, "type"), *schema = json_get(t, "input_schema");
	const char *name;
	struct json *f;
	char where[100];
	int r;

	(void)space;
	if (json_kind(t) != JSON_OBJECT)
		return field_wrong(m->p, at, "an object", t);
	snprintf(where, sizeof where, "%.80s.type", at);
	if (json_kind(type) != JSON_NULL && json_kind(type) != JSON_STRING)
		return field_wrong(m->p, where, "a string", type);
	if (json_kind(type) == JSON_STRING && !str_is(type, "custom")) {
		leave_out(m, type);
		return 0;
	}
	snprintf(where, sizeof where, "%.80s.input_schema", at);
	if (json_kind(schema) != JSON_OBJECT)
		return field_wrong(m->p, where, "an object", schema);
	/* One name for all of them: of two hundred tools each would fill the header. */
	if ((r = name_of(m, t, at, &name)) || (r = fields_check(t, "tools", tables, m->w, m->p)))
		return r;
	f = begin_tool(m, NULL, name, TOOL_FUNCTION);
	set_if_any(f, "description", t, "description");
	set_if_any(f, "strict", t, "strict");
	set_if_any(f, "parameters", t, "input_schema");
	return 0;
}

/* ---- all of a request ---- */

typedef int put_tool(struct making *m, const struct json *t, const char *at, const char *space);

/* Tools of one list; at: its path. */
static int put_list(struct making *m, const struct json *tools, const char *at, put_tool *put)
{
	char where[80];
	int r = 0;

	m->list++;
	for (size_t i = 0; i < json_len(tools) && !r; i++) {
		snprintf(where, sizeof where, "%.50s[%zu]", at, i);
		r = put(m, json_at(tools, i), where, NULL);
	}
	return r;
}

/* Ends the making: adds the tools to an array. */
static void put_made(struct making *m, struct json *out)
{
	for (size_t i = 0; i < m->n; i++) {
		json_add(out, m->made[i].tool);
		free(m->made[i].name);
	}
	free(m->made);
}

int tools_of_chat(const struct json *tools, struct tool_kinds *k, struct warnings *w, struct json *out,
                  struct problem *p)
{
	struct making m = { .k = k, .w = w, .p = p };
	int r = put_list(&m, tools, "tools", put_chat);

	put_made(&m, out);
	return r;
}

const struct json *tools_in_item(const struct json *item)
{
	const struct json *type = json_get(item, "type"), *tools = json_get(item, "tools");

	if (!str_is(type, "additional_tools") && !str_is(type, "tool_search_output"))
		return NULL;
	return json_kind(tools) == JSON_ARRAY ? tools : NULL;
}

static int put_items(struct making *m, const struct json *items, const char *list)
{
	char at[60];
	int r = 0;

	for (size_t i = 0; json_kind(items) == JSON_ARRAY && i < json_len(items) && !r; i++) {
		m->loaded = str_is(json_get(json_at(items, i), "type"), "tool_search_output");
		snprintf(at, sizeof at, "%s[%zu].tools", list, i);
		r = put_list(m, tools_in_item(json_at(items, i)), at, put_responses);
	}
	return r;
}

int tools_of_responses(const struct json *tools, const struct json *kept, const struct json *input,
                       struct tool_kinds *k, struct warnings *w, struct json *out, struct problem *p)
{
	struct making m = { .k = k, .w = w, .p = p };
	int r = put_list(&m, tools, "tools", put_responses);

	if (!r && !(r = put_items(&m, kept, "previous_response_id")))
		r = put_items(&m, input, "input");
	put_made(&m, out);
	return r;
}

int tools_of_messages(const struct json *tools, struct warnings *w, struct json *out, struct problem *p)
{
	struct making m = { .w = w, .p = p };
	int r = put_list(&m, tools, "tools", put_messages);

	put_made(&m, out);
	return r;
}

/* ---- what may be called ---- */

/* Does the schema of a function's parameters name none?  It may be absent, null, {}, or say that they are an object
 * and no more. */
static bool takes_nothing(const struct json *schema)
{
	static const char *const plain[] = { "type", "properties", "required", "title", "description", "$schema" };
	struct json_cursor c = json_first(schema);
	const struct json *v;
	const char *key;

	if (json_kind(schema) != JSON_OBJECT)
		return true;
	while (json_next(&c, &key, &v)) {
		bool known = false;

		for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
			known |= !strcmp(key, plain[i]);
		if (!known || (!strcmp(key, "properties") && json_len(v)) ||
		    (!strcmp(key, "required") && json_len(v)) || (!strcmp(key, "type") && !str_is(v, "object")))
			return false;
	}
	return true;
}

static bool is_allowed(const struct json *allowed, const struct tool_kinds *k, const char *name, size_t n)
{
	const struct tool_kind *kind = tool_kinds_find(k, name, n);

	for (size_t i = 0; i < json_len(allowed); i++) {
		const struct json *t = json_at(allowed, i), *own = json_get(t, "name");

		if (!own)
			own = json_get(json_get(t, "function"), "name");
		if (!own)
			own = json_get(json_get(t, "custom"), "name");
		if (str_is(own, name) || (kind && str_is(own, kind->own)))
			return true;
	}
	return false;
}

/* The schema of a function that takes nothing. */
static struct json *no_parameters(void)
{
	struct json *out = json_new_object();

	json_set_cstr(out, "type", "object");
	json_set(out, "properties", json_new_object());
	json_set_bool(out, "additionalProperties", false);
	return out;
}

struct json *tools_callable(const struct json *list, const struct json *allowed, const struct tool_kinds *k)
{
	struct json *out = json_new_array(), *tool, *function;

	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *f = json_get(json_at(list, i), "function"), *parameters = json_get(f, "parameters");
		size_t n;
		const char *name = json_str(json_get(f, "name"), &n);

		if (!name || (allowed && !is_allowed(allowed, k, name, n)))
			continue;
		tool = json_new_object();
		function = json_new_object();
		json_set_cstr(tool, "type", "function");
		json_set(function, "name", json_share(json_get(f, "name")));
		json_set(function, "parameters", takes_nothing(parameters) ? no_parameters() : json_share(parameters));
		set_if_any(function, "strict", f, "strict");
		json_set(tool, "function", function);
		json_add(out, tool);
	}
	return out;
}
