/* calls_grammar.c - calls of tools as a grammar: their arguments, and the form of the dialect around them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allowance.h"
#include "text/grammar/compile.h"
#include "text/calls/dialect.h"
#include "text/grammar/lexeme.h"
#include "text/grammar/rules.h"

struct tool {
	const char *name;
	size_t n_name;
	const struct json *json_name;
	const struct json *parameters;
	bool strict;
	bool free; /* its arguments are any object */
	int node;  /* of its arguments */
	int *rest; /* tagged: for each key of the plan, the part of its value that is not a string; -1: none */
	const struct dfa **bare; /* for each key, its value's strings as bare text; NULL: none */
};

/* How CALLS_TAGGED is written. */
static const struct calls_spelling tagged_spelling = { .spell = SPELL_MARKED,
	                                               .key = "<parameter=",
	                                               .key_end = ">\n",
	                                               .value_end = BARE_VALUE_END,
	                                               .value_gap = "\n",
	                                               .end = "</function>",
	                                               .line = true };

/* Whether a name can be spelled inside a tag. */
static bool spells(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strchr("<>\n\"", p[i]))
			return false;
	return n > 0 && n <= 200;
}

/* Reads the tools, or the one; finds out whose arguments can be held. */
static int read_tools(const struct json *list, const char *only, struct tool *tool, int *n, struct err *err)
{
	*n = 0;
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *f = json_get(json_at(list, i), "function");
		struct tool *t = &tool[*n];
		struct grammar *g = NULL;
		struct err why;
		int rc;

		*t = (struct tool){ .parameters = json_get(f, "parameters") };
		t->json_name = json_get(f, "name");
		t->name = json_str(t->json_name, &t->n_name);
		if (!t->name || (only && strcmp(only, t->name)))
			continue;
		json_to_bool(json_get(f, "strict"), &t->strict);
		t->free = json_kind(t->parameters) != JSON_OBJECT || !json_len(t->parameters);
		if (!t->free && (rc = grammar_compile(t->parameters, &g, &why))) {
			/* Not this schema alone was too large, but all of them together. */
			if (t->strict || allowance_why())
				return err_set(err, rc, "tool \"%.60s\": %.400s", t->name, why.msg);
			t->free = true;
		}
		grammar_unref(g);
		++*n;
	}
	return *n ? 0 : err_set(err, E_ARG, "there is no tool");
}

/* Any object. */
static int object_node(struct builder *b)
{
	const struct set *any = &b->node[NODE_ANY].set;
	struct set objects = { .obj = any->obj, .n_obj = any->n_obj };

	return node_made(b, &objects, "");
}

static int arguments_node(struct builder *b, const struct tool *t, int object)
{
	int part[2] = { object };

	if (t->free || object < 0)
		return object;
	b->root = t->parameters;
	part[1] = node_of(b, t->parameters, "", false);
	return part[1] < 0 ? part[1] : node_all(b, part, 2);
}

/* A node of all calls in JSON. */
static int calls_in_json(struct builder *b, const struct tool *tool, int n, const char *arguments)
{
	struct set s = { .obj = arena_zalloc(&b->pool.a, (size_t)n * sizeof *s.obj), .n_obj = n };

	for (int i = 0; i < n; i++) {
		struct obj_layer *l = arena_zalloc(&b->pool.a, sizeof *l);

		l->key = arena_zalloc(&b->pool.a, 2 * sizeof *l->key);
		l->n_key = 2;
		l->key[0] = (struct key){ "name", 4, node_of(b, tool[i].json_name, "", true) };
		l->key[1] = (struct key){ arguments, strlen(arguments), tool[i].node };
		l->rest = NODE_NEVER;
		if (l->key[0].node < 0)
			return l->key[0].node;
		s.obj[i] = arena_zalloc(&b->pool.a, sizeof **s.obj);
		*s.obj[i] = (struct obj_shape){ .layer = { l }, .n_layer = 1, .need = l->key, .n_need = 2, .max = -1 };
	}
	return node_made(b, &s, "");
}

/* { and "name": as a walk through an object takes them (matcher.c), up to the name. */
static int json_head(struct nfa *f)
{
	int key = nfa_state(f), open = nfa_text(f, 0, "{", 1), one = nfa_text(f, open, " ", 1), to;
	int at = nfa_text(f, open, "\n", 1);

	nfa_empty(f, open, key, NFA_EMPTY);
	nfa_empty(f, one, key, NFA_EMPTY);
	for (int i = 0; i < INDENT_MAX; i++, at = to) {
		nfa_empty(f, at, key, NFA_EMPTY);
		to = nfa_state(f);
		nfa_bytes(f, at, ' ', ' ', to);
		nfa_bytes(f, at, '\t', '\t', to);
	}
	nfa_empty(f, at, key, NFA_EMPTY);
	at = nfa_text(f, key, "\"name\":", 7);
	to = nfa_text(f, at, " ", 1);
	nfa_empty(f, at, to, NFA_EMPTY);
	return to;
}

/* Calls in JSON begin with one word for all, which spells the name; else each tool would be a thread of
 * its own up to there, and of these there are THREADS_MAX.  root: the node of calls_in_json, whose shapes
 * are in the tables. */
static int make_heads(struct compiler *c, struct grammar *g, int root, const struct tool *tool, int n)
{
	struct builder *b = &c->b;
	struct shape calls = { .kind = SHAPE_CALLS };
	struct nfa f;
	struct buf text;
	int at;

	calls.node = arena_zalloc(&b->pool.a, (size_t)n * sizeof *calls.node);
	nfa_init(&f);
	buf_init(&text);
	at = json_head(&f);
	for (int i = 0; i < n; i++) {
		if (!c->plan[root].obj_ok[i])
			continue;
		buf_reset(&text);
		put_plain(&text, tool[i].name, tool[i].n_name);
		nfa_accept(&f, nfa_text(&f, at, text.p, text.n), calls.n_node);
		calls.node[calls.n_node] = g->first[c->id[root]] + calls.n_node;
		calls.n_node++;
	}
	buf_fini(&text);
	calls.d = dfa_from_nfa(&b->pool, &f);
	nfa_fini(&f);
	if (builder_check(b, ""))
		return E_LIMIT;
	g->shape[g->n_shape++] = calls;
	g->first[++g->n_node] = g->n_shape;
	g->root = g->n_node - 1;
	return 0;
}

/* A tagged call has one list of parameters: the arguments must be one form of object,
 * whose keys can be written.  NULL: they are; else why not. */
static const char *not_one_form(const struct compiler *c, const struct tool *t, const struct obj_plan **plan)
{
	const struct set *s = &c->b.node[t->node].set;
	int k = -1;

	for (int i = 0; i < s->n_obj; i++) {
		if (!c->plan[t->node].obj_ok[i])
			continue;
		if (k >= 0)
			return "its parameters are one of several objects";
		k = i;
	}
	if (k < 0)
		return "its parameters are not an object";
	*plan = &c->plan[t->node].obj[k];
	for (int i = 0; i < (*plan)->n_key; i++)
		if (!spells((*plan)->key[i].p, (*plan)->key[i].n))
			return "a parameter's name is empty, too long, or holds < > \" or a line break";
	/* Where none is named and any may come they are free. */
	for (int i = 0; i < (*plan)->n_other && !(*plan)->n_key; i++)
		if (c->plan[(*plan)->other[i]].ok)
			return "it names no parameter";
	return NULL;
}

static bool one_form(const struct compiler *c, const struct tool *t, const struct obj_plan **plan)
{
	return !not_one_form(c, t, plan);
}

/* A string as bare text, up to what ends it.  An end may contain a token: the same text spelled by other tokens is
 * refused. */
static const struct dfa *bare_of(struct compiler *c, const struct dfa *d, const struct calls_spelling *sp)
{
	struct dfa_pool *p = &c->b.pool;

	if (sp->spelled_end && !c->otherwise[0] && strcmp(sp->spelled_end, sp->value_end) != 0)
		c->otherwise[0] = value_spelling(p, sp->spelled_end);
	d = c->otherwise[0] ? dfa_minus(p, d, c->otherwise[0]) : d;
	return sp->line ? lexeme_bare(p, d, sp->value_end) : lexeme_bare_to(p, d, sp->value_end);
}

/* Any string, which most parameters are: made once for all tools, and so are its masks. */
static const struct dfa *bare_any(struct compiler *c, const struct calls_spelling *sp)
{
	if (!c->bare_any)
		c->bare_any = sp == &tagged_spelling ? c->b.all.bare : bare_of(c, c->b.all.plain, sp);
	return c->bare_any;
}

/* Those of the strings d that are read as they are written.  Any string may lose what it may. */
static const struct dfa *read_alike(struct compiler *c, const struct dfa *d, unsigned kinds,
                                    const struct calls_spelling *sp)
{
	bool any = d == c->b.all.plain;
	int at = value_readings(kinds, !sp->line && !any);

	if (!d || sp->key_end_json || !at || (any && !(at & (READ_NUMBERS | READ_LISTS))))
		return d;
	if (!c->otherwise[at])
		c->otherwise[at] = value_otherwise(&c->b.pool, at);
	return dfa_minus(&c->b.pool, d, c->otherwise[at]);
}

/* Strings as bare text; those counted to more than can be told apart are not counted. */
static const struct dfa *bare_strings(struct compiler *c, const struct set *s, unsigned kinds,
                                      const struct calls_spelling *sp)
{
	enum { COUNTED_MAX = 500 };
	struct builder *b = &c->b;
	struct set few = *s;
	const struct dfa *d;

	if (!s->n_str)
		return NULL;
	few.str = arena_zalloc(&b->pool.a, (size_t)s->n_str * sizeof *few.str);
	memcpy(few.str, s->str, (size_t)s->n_str * sizeof *few.str);
	for (int i = 0; i < s->n_str; i++)
		if (!few.str[i].d && (few.str[i].max > COUNTED_MAX || few.str[i].min > COUNTED_MAX))
			few.str[i] = (struct str_shape){ .max = -1 };
	d = read_alike(c, set_strings_of(b, &few), kinds, sp);
	return d == b->all.plain ? bare_any(c, sp) : bare_of(c, d, sp);
}

/* Nodes for the part of each value that is written as JSON. */
static int split_values(struct compiler *c, struct tool *t, const struct obj_plan *p, const struct calls_spelling *sp)
{
	struct builder *b = &c->b;

	t->rest = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *t->rest);
	t->bare = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *t->bare);
	for (int i = 0; i < p->n_key; i++) {
		struct set s = b->node[p->key[i].node].set;
		unsigned kinds;
		char *key = arena_strndup(&b->pool.a, p->key[i].p, p->key[i].n);

		kinds = argument_kinds(t->parameters, key);
		t->rest[i] = -1;
		t->bare[i] = bare_strings(c, &s, kinds, sp);
		/* A value that may only be read as a string is one. */
		if (s.n_str && (!kinds || kinds == 1u << JSON_STRING || sp->key_end_json))
			continue;
		s.n_str = 0;
		if ((t->rest[i] = node_made(b, &s, "")) < 0)
			return t->rest[i];
	}
	return builder_check(b, "");
}

/* Has key i of the plan a value that can be written? */
static bool has_value(const struct compiler *c, const struct tool *t, const struct obj_plan *p, int i)
{
	return c->plan[p->key[i].node].ok &&
	       ((t->rest[i] >= 0 && c->plan[t->rest[i]].ok) || (t->bare[i] && t->bare[i]->n));
}

static int32_t word_node(struct grammar *g, const struct dfa *d)
{
	g->first[g->n_node] = g->n_shape;
	shape_word(&g->shape[g->n_shape++], d);
	g->first[++g->n_node] = g->n_shape;
	return g->n_node - 1;
}

/* Sets the text that follows values. */
static void put_value_end(struct builder *b, const struct calls_spelling *sp, struct shape *s)
{
	struct buf text;

	buf_init(&text);
	buf_printf(&text, "%s%s%s", sp->line ? "\n" : "", sp->value_end, sp->value_gap ? sp->value_gap : "");
	s->value_end = arena_strndup(&b->pool.a, text.p, text.n);
	s->bare_end = (uint32_t)(sp->line + strlen(sp->value_end));
	buf_fini(&text);
}

static int make_tagged(struct compiler *c, struct grammar *g, const struct tool *t, const struct obj_plan *p,
                       const struct calls_spelling *sp, struct shape *s)
{
	struct builder *b = &c->b;
	int *key_of = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *key_of);
	struct key *spelled = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *spelled);
	struct texts keys;
	struct buf text;
	size_t room = ((size_t)p->n_key + 1) * sizeof(int32_t);

	*s = (struct shape){ .kind = SHAPE_OBJECT, .tagged = true, .min = limit(p->min), .max = limit(p->max) };
	s->node = arena_zalloc(&b->pool.a, room);
	s->bare = arena_zalloc(&b->pool.a, room);
	s->next_need = arena_zalloc(&b->pool.a, room);
	s->n_need = arena_zalloc(&b->pool.a, room);
	texts_init(&keys);
	buf_init(&text);
	for (int i = 0; i < p->n_key; i++) {
		if (!has_value(c, t, p, i))
			continue;
		buf_reset(&text);
		buf_printf(&text, "%s%.*s%s", sp->key, (int)p->key[i].n, p->key[i].p,
		           sp->key_end_json && t->rest[i] >= 0 ? sp->key_end_json : sp->key_end);
		texts_put(&keys, text.p, text.n, s->n_node);
		spelled[s->n_node] = (struct key){ arena_strndup(&b->pool.a, text.p, text.n), text.n, 0 };
		s->bare[s->n_node] = t->bare[i] && t->bare[i]->n ? word_node(g, t->bare[i]) : -1;
		s->node[s->n_node] = t->rest[i] >= 0 ? c->id[t->rest[i]] : -1;
		key_of[s->n_node++] = i;
	}
	texts_put(&keys, sp->end, strlen(sp->end), s->n_node);
	buf_fini(&text);
	put_value_end(b, sp, s);
	shape_needs(s, p, key_of);
	s->d = texts_finish(&b->pool, &keys);
	if (builder_check(b, ""))
		return E_LIMIT;
	shape_labels(b, s, spelled);
	return 0;
}

/* Arguments that are free: any parameters, bare text each. */
static int make_free(struct compiler *c, struct grammar *g, const struct calls_spelling *sp, struct shape *s)
{
	enum { NAME_CHARS_MAX = 60 };
	struct builder *b = &c->b;
	const struct dfa *d;
	size_t same = 0;
	struct nfa f;
	bool *both;
	int at, end;

	*s = (struct shape){ .kind = SHAPE_OBJECT, .tagged = true, .any_key = true, .max = NO_LIMIT, .n_node = 1 };
	s->node = arena_zalloc(&b->pool.a, 2 * sizeof *s->node);
	s->bare = arena_zalloc(&b->pool.a, 2 * sizeof *s->bare);
	s->next_need = arena_zalloc(&b->pool.a, 2 * sizeof *s->next_need);
	s->n_need = arena_zalloc(&b->pool.a, 2 * sizeof *s->n_need);
	s->next_need[0] = s->next_need[1] = 1;
	s->node[0] = -1;
	nfa_init(&f);
	end = nfa_state(&f);
	nfa_accept(&f, nfa_text(&f, end, sp->key_end, strlen(sp->key_end)), 0);
	at = nfa_text(&f, 0, sp->key, strlen(sp->key));
	for (int i = 0; i < NAME_CHARS_MAX; i++) {
		int to = nfa_state(&f);

		nfa_utf8(&f, at, 0x20, '"' - 1, to);
		nfa_utf8(&f, at, '"' + 1, '<' - 1, to);
		nfa_utf8(&f, at, '=', '=', to);
		nfa_utf8(&f, at, '>' + 1, 0x10FFFF, to);
		nfa_empty(&f, to, end, NFA_EMPTY);
		at = to;
	}
	nfa_accept(&f, nfa_text(&f, 0, sp->end, strlen(sp->end)), 1);
	s->d = d = dfa_from_nfa(&b->pool, &f);
	nfa_fini(&f);
	if (builder_check(b, ""))
		return E_LIMIT;
	s->bare[0] = word_node(g, bare_any(c, sp));
	put_value_end(b, sp, s);
	if (builder_check(b, ""))
		return E_LIMIT;
	/* States from which the end of a value, or its continuation, can be reached. */
	s->other_at = arena_zalloc(&b->pool.a, (size_t)d->n + 1);
	both = arena_zalloc(&b->pool.a, (size_t)d->n + 1); /* states that keys and the end begin with */
	s->label_at = arena_zalloc(&b->pool.a, ((size_t)d->n + 1) * sizeof *s->label_at);
	s->label = arena_zalloc(&b->pool.a, ((size_t)d->n + 1) * sizeof *s->label);
	while (sp->end[same] && sp->end[same] == sp->key[same])
		same++;
	for (size_t i = 0, q = 0; i <= strlen(sp->end); i++) {
		s->other_at[q] = true;
		both[q] = i <= same;
		if (sp->end[i])
			q = (size_t)dfa_step(d, (int)q, (uint8_t)sp->end[i]);
	}
	for (int q = 0, n = 0; q < d->n; q++) {
		if (!s->other_at[q] || both[q])
			s->label[n++] = 0;
		s->label_at[q + 1] = n;
	}
	return 0;
}

/* The tables are there; adds the calls around them. */
static int make_calls(struct compiler *c, struct grammar *g, const struct tool *tool, int n)
{
	struct builder *b = &c->b;
	struct shape calls = { .kind = SHAPE_CALLS, .n_node = n };
	struct texts heads;
	struct buf text;
	int rc = 0, free_at = -1;

	calls.node = arena_zalloc(&b->pool.a, (size_t)n * sizeof *calls.node);
	texts_init(&heads);
	buf_init(&text);
	for (int i = 0; i < n && !rc; i++) {
		const struct obj_plan *p;
		bool held = !tool[i].free && tool[i].rest && one_form(c, &tool[i], &p);
		struct shape s;

		buf_reset(&text);
		buf_printf(&text, "<function=%s>\n", tool[i].name);
		texts_put(&heads, text.p, text.n, i);
		/* All tools with free arguments share one shape. */
		if (!held && free_at < 0)
			rc = make_free(c, g, &tagged_spelling, &s);
		else if (held)
			rc = make_tagged(c, g, &tool[i], p, &tagged_spelling, &s);
		if (rc)
			break;
		calls.node[i] = !held && free_at >= 0 ? free_at : g->n_shape;
		if (!held && free_at >= 0)
			continue;
		if (!held)
			free_at = g->n_shape;
		g->first[g->n_node] = g->n_shape;
		g->shape[g->n_shape++] = s;
		g->first[++g->n_node] = g->n_shape;
	}
	buf_fini(&text);
	calls.d = texts_finish(&b->pool, &heads);
	g->bare = b->all.bare;
	if (rc || (rc = builder_check(b, "")))
		return rc;
	g->first[g->n_node] = g->n_shape;
	g->shape[g->n_shape++] = calls;
	g->first[++g->n_node] = g->n_shape;
	g->root = g->n_node - 1;
	return 0;
}

/* ---- calls that are the whole answer ---- */

static int put(struct rules *r, int list, int e)
{
	int *at = &r->expr[list].first;

	while (*at >= 0)
		at = &r->expr[*at].next;
	*at = e;
	return e;
}

static int value_expr(struct rules *r, int32_t node)
{
	int e = expr_new(r, EXPR_VALUE, 0);

	r->expr[e].rule = node;
	return e;
}

static int list_expr(struct rules *r, enum expr_kind kind, int32_t min, int32_t max)
{
	int e = expr_new(r, kind, 0);

	r->expr[e].min = min;
	r->expr[e].max = max;
	return e;
}

/* A rule of that name; what its body is. */
static int rule_expr(struct rules *r, const char *name, enum expr_kind kind)
{
	int rule = rules_named(r, name, strlen(name), 0), e = list_expr(r, kind, 0, 0);

	return r->rule[rule].body = e;
}

static void put_text(struct rules *r, int list, const char *text)
{
	if (text && *text)
		put(r, list, expr_text(r, text, strlen(text)));
}

/* e, and more of it behind `between`, which is a character that a blank may follow, or a longer text. */
static void put_several(struct rules *r, int list, int rule_or_node, bool value, const char *between)
{
	for (int i = 0; i < 2; i++) {
		int to = list, e;

		if (i) {
			to = put(r, put(r, list, list_expr(r, EXPR_REPEAT, 0, -1)), list_expr(r, EXPR_SEQ, 0, 0));
			put_text(r, to, between);
			if (between[0] > ' ' && !between[1])
				put(r, put(r, to, list_expr(r, EXPR_REPEAT, 0, 1)), expr_text(r, " ", 1));
		}
		e = value ? value_expr(r, rule_or_node) : expr_new(r, EXPR_RULE, 0);
		r->expr[e].rule = rule_or_node;
		put(r, to, e);
	}
}

static int make_llama(struct compiler *c, struct grammar *g, bool several)
{
	struct rules r;
	int rc;

	if (!several)
		return 0;
	rules_init(&r, NULL, 0);
	put_several(&r, rule_expr(&r, "root", EXPR_SEQ), g->root, true, ";");
	rc = net_make(&r, 0, &c->b.pool, g, c->b.err);
	rules_fini(&r);
	return rc;
}

static bool python_name(const char *p, size_t n, bool dots)
{
	for (size_t i = 0; i < n; i++) {
		bool letter = (p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') || p[i] == '_';

		if (!letter && (!i || !((p[i] >= '0' && p[i] <= '9') || p[i] == '-' || (dots && p[i] == '.'))))
			return false;
	}
	return n > 0 && n <= 200;
}

enum { KEYWORDS_MAX = 60 }; /* that may come at one place: see net.c */

/* Arguments that can be held so: one form of object, all of whose keys are names.  NULL: they can; else why not. */
static const char *no_keywords(const struct compiler *c, const struct tool *t, const struct obj_plan **p)
{
	const char *why = not_one_form(c, t, p);
	int64_t need = 0, can = 0;

	if (why)
		return why;
	for (int i = 0; i < (*p)->n_key; i++) {
		if (!python_name((*p)->key[i].p, (*p)->key[i].n, false))
			return "a parameter's name is none in Python";
		need += (*p)->need[i];
		can += c->plan[(*p)->key[i].node].ok;
	}
	if ((*p)->n_key > KEYWORDS_MAX)
		return "it has more than 60 parameters";
	return (*p)->min <= need && ((*p)->max < 0 || (*p)->max >= can) ? NULL : "it counts its parameters";
}

/* A rule of any KEY=value, with commas between, and a closing parenthesis. */
static int free_rule(struct rules *r, int32_t any)
{
	int rule = rules_add(r, "any arguments", 13, 0), to = r->rule[rule].body = list_expr(r, EXPR_SEQ, 0, 0);
	int maybe = put(r, to, list_expr(r, EXPR_REPEAT, 0, 1)), all = put(r, maybe, list_expr(r, EXPR_SEQ, 0, 0));

	for (int i = 0; i < 2; i++) {
		static const uint32_t first[][2] = { { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
		int one = all, e;

		if (i) {
			one = put(r, put(r, all, list_expr(r, EXPR_REPEAT, 0, -1)), list_expr(r, EXPR_SEQ, 0, 0));
			put(r, one, expr_text(r, ", ", 2));
		}
		e = put(r, one, expr_new(r, EXPR_CLASS, 0));
		for (int k = 0; k < 3; k++)
			expr_range(r, e, first[k][0], first[k][1]);
		e = put(r, put(r, one, list_expr(r, EXPR_REPEAT, 0, 60)), expr_new(r, EXPR_CLASS, 0));
		for (int k = 0; k < 3; k++)
			expr_range(r, e, first[k][0], first[k][1]);
		expr_range(r, e, '0', '9');
		put(r, one, expr_text(r, "=", 1));
		put(r, one, value_expr(r, any));
	}
	put(r, to, expr_text(r, ")", 1));
	return rule;
}

static void put_rule(struct rules *r, int list, int rule)
{
	int e = put(r, list, expr_new(r, EXPR_RULE, 0));

	r->expr[e].rule = rule;
}

/* The rule of key k where `some` were written before it: writes it, or passes on where it need not be there.  The rules
 * of key k are first + 2 k and the one behind it; those behind the last key are empty. */
static void put_keyword(struct compiler *c, struct rules *r, const struct obj_plan *p, int first, int k, bool some)
{
	int rule = first + 2 * k + some, next = first + 2 * (k + 1), alt, one;
	bool can = k < p->n_key && c->plan[p->key[k].node].ok;
	struct buf key;

	alt = r->rule[rule].body = list_expr(r, EXPR_ALT, 0, 0);
	if (k == p->n_key)
		put(r, alt, list_expr(r, EXPR_SEQ, 0, 0));
	if (can) {
		buf_init(&key);
		buf_printf(&key, "%s%.*s=", some ? ", " : "", (int)p->key[k].n, p->key[k].p);
		one = put(r, alt, list_expr(r, EXPR_SEQ, 0, 0));
		put(r, one, expr_text(r, key.p, key.n));
		put(r, one, value_expr(r, c->id[p->key[k].node]));
		put_rule(r, one, next + 1);
		buf_fini(&key);
	}
	if (k < p->n_key && !(can && p->need[k]))
		put_rule(r, alt, next + some);
}

/* A rule of a tool's keywords and a closing parenthesis. */
static int keywords_rule(struct compiler *c, struct rules *r, const struct obj_plan *p)
{
	int rule = rules_add(r, "arguments", 9, 0), first = r->n_rule,
	    all = r->rule[rule].body = list_expr(r, EXPR_SEQ, 0, 0);

	for (int k = 0; k <= p->n_key; k++)
		for (int some = 0; some < 2; some++)
			rules_add(r, "a keyword", 9, 0);
	for (int k = 0; k <= p->n_key; k++)
		for (int some = 0; some < 2; some++)
			put_keyword(c, r, p, first, k, some);
	put_rule(r, all, first);
	put(r, all, expr_text(r, ")", 1));
	return rule;
}

/* A node of all tools' names, each with an opening parenthesis: one word for all, followed by the rule of the
 * arguments. */
static int32_t named_heads(struct compiler *c, struct grammar *g, struct rules *r, const struct tool *tool, int n)
{
	struct shape calls = { .kind = SHAPE_CALLS, .places = true, .n_node = n };
	struct dfa_pool *p = &c->b.pool;
	const struct obj_plan *plan;
	struct texts heads;
	struct buf text;
	int any = -1;

	calls.node = arena_zalloc(&p->a, ((size_t)n + 1) * sizeof *calls.node);
	texts_init(&heads);
	buf_init(&text);
	for (int i = 0; i < n; i++) {
		buf_reset(&text);
		buf_printf(&text, "%s(", tool[i].name);
		texts_put(&heads, text.p, text.n, i);
		if (r->n_expr < EXPRS_MAX / 2 && !tool[i].free && !no_keywords(c, &tool[i], &plan))
			calls.node[i] = keywords_rule(c, r, plan);
		else
			calls.node[i] = any >= 0 ? any : (any = free_rule(r, c->id[NODE_ANY]));
	}
	buf_fini(&text);
	calls.d = texts_finish(p, &heads);
	g->first[g->n_node] = g->n_shape;
	g->shape[g->n_shape++] = calls;
	g->first[++g->n_node] = g->n_shape;
	return g->n_node - 1;
}

static int make_python(struct compiler *c, struct grammar *g, const struct tool *tool, int n,
                       const struct calls_spelling *sp, bool several)
{
	struct rules r;
	int all, call, rc;

	rules_init(&r, NULL, 0);
	all = rule_expr(&r, "root", EXPR_SEQ);
	call = rule_expr(&r, "call", EXPR_SEQ);
	put_text(&r, all, sp->first);
	if (several)
		put_several(&r, all, 1, false, sp->between);
	else
		put_rule(&r, all, 1);
	put_text(&r, all, sp->last);
	put(&r, call, value_expr(&r, named_heads(c, g, &r, tool, n)));
	rc = builder_check(&c->b, "");
	if (!rc)
		rc = net_make(&r, 0, &c->b.pool, g, c->b.err);
	rules_fini(&r);
	return rc;
}

/* ---- calls as they are spelled ---- */

/* A rule of what follows a name, and of the tool's arguments. */
static int arguments_rule(struct rules *r, const struct dfa *behind, int32_t node)
{
	int rule = rules_add(r, "arguments", 9, 0), all = r->rule[rule].body = list_expr(r, EXPR_SEQ, 0, 0);

	if (behind) {
		int e = expr_new(r, EXPR_WORD, 0);

		r->expr[e].d = behind;
		put(r, all, e);
	}
	put(r, all, value_expr(r, node));
	return rule;
}

/* Adds the beginnings of all tools' calls as one word, followed by the arguments of the tool that it names: a shape
 * between marks, else a rule. What is between name and arguments is in the rule, since in the word it would
 * be there for each tool again. */
static int32_t spelled_heads(struct compiler *c, struct grammar *g, struct rules *r, const struct tool *tool, int n,
                             const struct calls_spelling *sp, const int32_t *behind)
{
	struct shape calls = { .kind = SHAPE_CALLS, .places = sp->spell != SPELL_MARKED };
	struct dfa_pool *p = &c->b.pool;
	const struct dfa *between = calls.places && sp->behind[0] ? lexeme_spelled(p, sp->behind) : NULL;
	struct nfa f;

	calls.node = arena_zalloc(&p->a, ((size_t)n + 1) * sizeof *calls.node);
	nfa_init(&f);
	for (int i = 0; i < n; i++) {
		if (behind[i] < 0)
			continue;
		for (int h = 0; !h || sp->head[h]; h++)
			for (int k = 0; !k || (!calls.places && sp->behind[k]); k++) {
				const char *then = !calls.places && sp->behind[k] ? sp->behind[k] : "";
				int at = lexeme_spell(&f, 0, sp->head[h] ? sp->head[h] : "");

				at = nfa_text(&f, at, tool[i].name, tool[i].n_name);
				nfa_accept(&f, lexeme_spell(&f, at, then), calls.n_node);
			}
		calls.node[calls.n_node++] = calls.places ? arguments_rule(r, between, behind[i]) : behind[i];
	}
	calls.d = dfa_from_nfa(p, &f);
	nfa_fini(&f);
	g->first[g->n_node] = g->n_shape;
	g->shape[g->n_shape++] = calls;
	g->first[++g->n_node] = g->n_shape;
	return g->n_node - 1;
}

/* The shape of a tool's parameters between marks; those that are free are one, however many tools. */
static int32_t marked_shape(struct compiler *c, struct grammar *g, const struct tool *t,
                            const struct calls_spelling *sp, int32_t *free_at, int *rc)
{
	const struct obj_plan *p;
	bool held = !t->free && t->rest && one_form(c, t, &p);
	struct shape s;

	if (!held && *free_at >= 0)
		return *free_at;
	*rc = held ? make_tagged(c, g, t, p, sp, &s) : make_free(c, g, sp, &s);
	if (*rc)
		return -1;
	if (!held)
		*free_at = g->n_shape;
	g->first[g->n_node] = g->n_shape;
	g->shape[g->n_shape++] = s;
	g->first[++g->n_node] = g->n_shape;
	return g->n_shape - 1;
}

static int make_spelled(struct compiler *c, struct grammar *g, const struct tool *tool, int n,
                        const struct calls_spelling *sp, bool several)
{
	int32_t *behind = xcalloc((size_t)n + 1, sizeof *behind), free_at = -1, heads;
	int rc = 0, all, call, e;
	struct rules r;

	for (int i = 0; i < n && !rc; i++)
		behind[i] = sp->spell == SPELL_MARKED ? marked_shape(c, g, &tool[i], sp, &free_at, &rc) :
		            c->plan[tool[i].node].ok  ? c->id[tool[i].node] :
		                                        -1;
	rules_init(&r, NULL, 0);
	all = rule_expr(&r, "root", EXPR_SEQ);
	call = rule_expr(&r, "call", EXPR_SEQ);
	heads = rc ? -1 : spelled_heads(c, g, &r, tool, n, sp, behind);
	free(behind);
	if (rc || (rc = builder_check(&c->b, ""))) {
		rules_fini(&r);
		return rc;
	}
	put(&r, call, value_expr(&r, heads));
	if (sp->tail[0]) {
		e = put(&r, call, expr_new(&r, EXPR_WORD, 0));
		r.expr[e].d = lexeme_spelled(&c->b.pool, sp->tail);
	}
	put_text(&r, all, sp->first);
	if (several && sp->between) {
		put_several(&r, all, 1, false, sp->between);
	} else {
		e = put(&r, all, expr_new(&r, EXPR_RULE, 0));
		r.expr[e].rule = 1;
	}
	put_text(&r, all, sp->last);
	rc = net_make(&r, 0, &c->b.pool, g, c->b.err);
	rules_fini(&r);
	return rc;
}

/* ---- all forms ---- */

static int check_names(const struct tool *t, enum calls_spell spell, struct err *err)
{
	if (spell == SPELL_PYTHON && !python_name(t->name, t->n_name, true))
		return err_set(err, E_UNSUPPORTED, "a tool's name that is none in Python: \"%.60s\"", t->name);
	if (!spells(t->name, t->n_name))
		return err_set(err, E_ARG, "a tool's name with < > or \", or of more than 200 bytes");
	return 0;
}

/* Frees arguments that cannot be written so that they are held; of a strict tool that is an error. */
static int check_forms(struct compiler *c, enum calls_spell spell, struct tool *tool, int n)
{
	const struct obj_plan *p = NULL;

	for (int i = 0; i < n; i++) {
		struct tool *t = &tool[i];
		const char *why = t->free               ? NULL :
		                  spell == SPELL_PYTHON ? no_keywords(c, t, &p) :
		                                          not_one_form(c, t, &p);
		int k = 0;

		if (t->free)
			continue;
		while (!why && spell == SPELL_MARKED && k < p->n_key && (!p->need[k] || has_value(c, t, p, k)))
			k++;
		if (!why && spell == SPELL_MARKED && k < p->n_key)
			why = arena_printf(&c->b.pool.a, "no value of \"%.60s\" can be written in it", p->key[k].p);
		t->free = why;
		if (why && t->strict)
			return err_set(c->b.err, E_UNSUPPORTED,
			               "tool \"%.60s\" is strict, and this model's form of calls cannot hold it: %s",
			               t->name, why);
	}
	return 0;
}

/* Marks the nodes that calls of that form use: all; those of values that are not bare text; those of keywords' values;
 * or those of arguments. */
static void use_nodes(struct compiler *c, enum calls_spell spell, int root, const struct tool *tool, int n)
{
	const struct obj_plan *p;

	compiler_use(c, root >= 0 ? root : NODE_ANY);
	for (int i = 0; i < n && root < 0; i++) {
		if (spell == SPELL_JSON || spell == SPELL_GEMMA) {
			compiler_use(c, tool[i].node);
			continue;
		}
		if (tool[i].free || !one_form(c, &tool[i], &p))
			continue;
		for (int k = 0; k < p->n_key; k++)
			if (spell == SPELL_PYTHON)
				compiler_use(c, p->key[k].node);
			else if (tool[i].rest && tool[i].rest[k] >= 0)
				compiler_use(c, tool[i].rest[k]);
	}
}

/* The form of all tools' calls, and how it is spelled where it is not of the first four. */
struct form {
	enum calls_form form;
	const struct calls_spelling *sp;
	bool in_json, spelled, several;
};

static int make_form(struct compiler *c, struct grammar *g, const struct form *f, int root, const struct tool *tool,
                     int n)
{
	if (f->sp->spell == SPELL_PYTHON && (f->spelled || f->form == CALLS_PYTHON))
		return make_python(c, g, tool, n, f->sp, f->several);
	if (f->spelled)
		return make_spelled(c, g, tool, n, f->sp, f->several);
	if (f->form == CALLS_TAGGED)
		return make_calls(c, g, tool, n);
	return make_heads(c, g, root, tool, n);
}

static int compile_form(const struct json *tools, const struct form *f, const char *only, struct grammar **out,
                        struct err *err)
{
	const struct calls_spelling *sp = f->sp;
	struct compiler c = { .python = sp->spell == SPELL_PYTHON, .gemma = sp->spell == SPELL_GEMMA };
	struct grammar *g = NULL;
	struct err own;
	struct tool *tool = xcalloc(json_len(tools) + 1, sizeof *tool);
	const struct obj_plan *p;
	size_t extra = 2;
	bool marked = sp->spell == SPELL_MARKED && !f->in_json;
	int n = 0, root = -1, object, rc = read_tools(tools, only, tool, &n, err);

	*out = NULL;
	if (rc) {
		free(tool);
		return rc;
	}
	builder_init(&c.b, tools, err ? err : &own);
	object = object_node(&c.b);
	for (int i = 0; i < n && !rc; i++) {
		tool[i].node = arguments_node(&c.b, &tool[i], object);
		rc = tool[i].node < 0 ? tool[i].node : f->in_json ? 0 : check_names(&tool[i], sp->spell, c.b.err);
	}
	if (!rc && f->in_json) {
		root = calls_in_json(&c.b, tool, n, f->form == CALLS_JSON ? "arguments" : "parameters");
		rc = root < 0 ? root : 0;
	}
	if (!rc && !(rc = compiler_plan(&c)))
		rc = compiler_find_ok(&c);
	for (int i = 0; i < n && !rc && marked; i++)
		if (!tool[i].free && one_form(&c, &tool[i], &p) && !(rc = split_values(&c, &tool[i], p, sp)))
			extra += (size_t)p->n_key;
	extra += 2 * (size_t)n;
	if (!rc && marked && !(rc = compiler_plan(&c)))
		rc = compiler_find_ok(&c);
	if (!rc && (marked || sp->spell == SPELL_PYTHON))
		rc = check_forms(&c, sp->spell, tool, n);
	/* Whether branches are apart was found tool by tool. */
	if (!rc && f->in_json && !c.plan[root].ok)
		rc = compiler_no_value(&c, "no call fulfils it");
	if (!rc) {
		g = compiler_grammar();
		for (int i = n; i-- > 0;)
			if (tool[i].free)
				compiler_let_go(&c, g, tool[i].name, tool[i].parameters);
		use_nodes(&c, sp->spell, root, tool, n);
		rc = compiler_tables(&c, g, root, extra);
		if (!rc)
			rc = make_form(&c, g, f, root, tool, n);
		if (!rc && f->form == CALLS_LLAMA)
			rc = make_llama(&c, g, f->several);
	}
	free(tool);
	return compiler_finish(&c, g, rc, out);
}

int grammar_compile_calls(const struct json *tools, enum calls_form form, const char *only, bool several,
                          struct grammar **out, struct err *err)
{
	static const struct calls_spelling json = { .spell = SPELL_JSON };
	static const struct calls_spelling python = {
		.spell = SPELL_PYTHON, .first = "[", .between = ",", .last = "]"
	};
	struct form f = { .form = form, .several = several, .in_json = form == CALLS_JSON || form == CALLS_LLAMA };

	f.sp = f.in_json ? &json : form == CALLS_TAGGED ? &tagged_spelling : &python;
	return compile_form(tools, &f, only, out, err);
}

/* text with marks in it, in the arena. */
static const char *put_marks(struct arena *a, const char *text, const struct call_marks *marks)
{
	struct buf out;
	const char *made;

	if (!text)
		return NULL;
	buf_init(&out);
	while (*text) {
		int i = 0;

		while (i < marks->n && strncmp(text, marks->text[i], strlen(marks->text[i])) != 0)
			i++;
		buf_putc(&out, i < marks->n ? (char)(MARK_FIRST + i) : *text);
		text += i < marks->n ? strlen(marks->text[i]) : 1;
	}
	made = arena_strndup(a, out.p ? out.p : "", out.n);
	buf_fini(&out);
	return made;
}

int grammar_compile_spelled(const struct json *tools, const struct calls_spelling *sp, const struct call_marks *marks,
                            const char *only, bool several, struct grammar **out, struct err *err)
{
	struct calls_spelling own = *sp;
	const char **text[] = { &own.first,        &own.between,   &own.last,      &own.key, &own.key_end,
		                &own.key_end_json, &own.value_end, &own.value_gap, &own.end };
	struct form f = { .form = CALLS_TAGGED, .sp = &own, .spelled = true, .several = several };
	struct arena a = { 0 };
	int rc;

	*out = NULL;
	if (sp->quote && (!marks->n || strcmp(marks->text[0], sp->quote) != 0))
		return err_set(err, E_UNSUPPORTED, "the mark of strings is not a token of this model");
	arena_init(&a);
	own.spelled_end = sp->value_end;
	for (size_t i = 0; i < sizeof text / sizeof *text; i++)
		*text[i] = put_marks(&a, *text[i], marks);
	for (int i = 0; sp->head[i]; i++)
		own.head[i] = put_marks(&a, sp->head[i], marks);
	for (int i = 0; sp->behind[i]; i++)
		own.behind[i] = put_marks(&a, sp->behind[i], marks);
	for (int i = 0; sp->tail[i]; i++)
		own.tail[i] = put_marks(&a, sp->tail[i], marks);
	rc = compile_form(tools, &f, only, out, err);
	arena_fini(&a);
	return rc;
}
