/* jinja_parse.c - statements: tokens to nodes, by recursive descent over Jinja's grammar.
 *
 * What we lack (inheritance, includes, recursive loops ...) is refused here by
 * name.  Nesting is bounded by nest_max, the height of operator chains, which
 * needs no recursion here but does when evaluated, by 4 * nest_max.
 *
 * Children of each kind: COND a if-test b then c else | BINARY OR AND a b | NOT NEG
 * POS a | CONCAT TUPLE LIST list | DICT list keys, body values | COMPARE a, then
 * ops[i] list[i] | ATTR a, value = name | ITEM a [b] | SLICE a:b:c | CALL FILTER TEST
 * a, list kw star starstar | NSREF name, value = attribute | OUTPUT list | FOR a in b
 * if c, body orelse | IF a, body, list = elif, orelse | SET a = b | SETBLOCK a, b =
 * filters, body | MACRO name, list = parameters, orelse = defaults (of the last
 * ones), body | CALLBLOCK b = call, c = macro | FILTERBLOCK b, body | WITH list =
 * orelse, body | SCOPE body */
#include "text/jinja/jinja_parse.h"

#include <stdio.h>
#include <string.h>

static struct nodes parse_body(struct jcompile *c, const char *const *ends);

const char *jp_describe(const struct token *t, char text[64])
{
	static const char *const names[] = {
		"end of template",
		"template text",
		"{{",
		"}}",
		"{%",
		"%}",
		"name",
		"string",
		"integer",
		"float",
		"+",
		"-",
		"/",
		"//",
		"*",
		"%",
		"**",
		"~",
		"[",
		"]",
		"(",
		")",
		"{",
		"}",
		"==",
		"!=",
		">",
		">=",
		"<",
		"<=",
		"=",
		".",
		":",
		"|",
		",",
		";",
	};
	int len = t->n < 40 ? (int)t->n : 40;

	if (t->kind == T_NAME)
		snprintf(text, 64, "'%.*s'", len, t->p);
	else
		snprintf(text, 64, "'%s'", names[t->kind]);
	return text;
}

struct token *jp_expect(struct jcompile *c, enum tkind kind)
{
	struct token want = { .kind = kind };
	char a[64], b[64];

	if (jp_cur(c)->kind != kind)
		jc_fail(c, E_FORMAT, jp_cur(c)->line, "expected %s, got %s",
		        kind == T_NAME ? "a name" : jp_describe(&want, a), jp_describe(jp_cur(c), b));
	return jp_next(c);
}

void jp_expect_name(struct jcompile *c, const char *name)
{
	char b[64];

	if (!jp_skip_name(c, name))
		jc_fail(c, E_FORMAT, jp_cur(c)->line, "expected '%s', got %s", name, jp_describe(jp_cur(c), b));
}

struct node *jp_node(struct jcompile *c, enum nkind kind, int line)
{
	struct node *n = arena_zalloc(&c->t->mem, sizeof *n);

	n->kind = (uint8_t)kind;
	n->line = line;
	n->name = -1;
	return n;
}

void *jp_grow(struct jcompile *c, void *old, size_t n, size_t cap, size_t size)
{
	void *p = arena_alloc(&c->t->mem, size_mul(cap, size));

	if (n)
		memcpy(p, old, n * size);
	return p;
}

void jp_add(struct jcompile *c, struct jp_nodes *v, struct node *n)
{
	if (v->n.n == v->cap) {
		v->cap = v->cap ? v->cap * 2 : 4;
		v->n.v = jp_grow(c, v->n.v, v->n.n, v->cap, sizeof *v->n.v);
	}
	v->n.v[v->n.n++] = n;
}

void jp_enter(struct jcompile *c)
{
	if (++c->nest > c->t->lim.nest_max)
		jc_fail(c, E_LIMIT, jp_cur(c)->line, "nested more than %d deep", c->t->lim.nest_max);
}

void jp_leave(struct jcompile *c)
{
	c->nest--;
}

/* ---- statements ---- */

static void check_target(struct jcompile *c, struct node *n)
{
	if (n->kind == N_NAME) {
		c->t->names[n->name].stored = true;
		if (str_is(c->t->names[n->name].str, "loop"))
			jc_fail(c, E_FORMAT, n->line, "can't assign to special loop variable");
	} else if (n->kind == N_TUPLE) {
		for (uint32_t i = 0; i < n->list.n; i++)
			check_target(c, n->list.v[i]);
	} else {
		jc_fail(c, E_FORMAT, n->line, "can't assign to this expression");
	}
}

static struct node *parse_target(struct jcompile *c, const char *end_name)
{
	struct node *n = jp_tuple(c, TUPLE_PRIMARY, end_name, false);

	check_target(c, n);
	return n;
}

static struct node *parse_name_target(struct jcompile *c)
{
	struct node *n = jp_node(c, N_NAME, jp_cur(c)->line);

	n->name = jp_expect(c, T_NAME)->name;
	check_target(c, n);
	return n;
}

static struct nodes parse_until(struct jcompile *c, const char *end)
{
	const char *const ends[] = { end, NULL };
	struct nodes body = parse_body(c, ends);

	jp_next(c);
	return body;
}

static struct node *parse_filters(struct jcompile *c)
{
	struct node *n = NULL;

	while (jp_skip(c, T_PIPE))
		n = jp_filter(c, n);
	return n;
}

static struct node *parse_set(struct jcompile *c, int line)
{
	struct node *n = jp_node(c, N_SET, line), *ns;
	struct token *t;

	if (jp_cur(c)->kind == T_NAME && jp_peek(c)->kind == T_DOT) {
		ns = jp_node(c, N_NSREF, jp_cur(c)->line);
		ns->name = jp_next(c)->name;
		jp_next(c);
		t = jp_expect(c, T_NAME);
		c->t->names[t->name].stored = true;
		ns->value = v_str(c->t->names[t->name].str);
		n->a = ns;
	} else {
		n->a = parse_target(c, NULL);
	}
	if (jp_skip(c, T_ASSIGN)) {
		n->b = jp_tuple(c, TUPLE_FULL, NULL, false);
		return n;
	}
	n->kind = N_SETBLOCK;
	n->b = parse_filters(c);
	n->body = parse_until(c, "endset");
	return n;
}

static struct node *parse_for(struct jcompile *c, int line)
{
	static const char *const ends[] = { "endfor", "else", NULL };
	struct node *n = jp_node(c, N_FOR, line);

	n->a = parse_target(c, "in");
	jp_expect_name(c, "in");
	n->b = jp_tuple(c, TUPLE_NO_COND, "recursive", false);
	if (jp_skip_name(c, "if"))
		n->c = jp_expr(c);
	if (jp_at_name(c, "recursive"))
		jc_fail(c, E_UNSUPPORTED, line, "recursive loops are not supported");
	c->loops++;
	n->body = parse_body(c, ends);
	c->loops--;
	if (jp_token_is(jp_next(c), "else")) {
		n->else_scope = jp_node(c, N_SCOPE, line);
		n->else_scope->body = parse_until(c, "endfor");
	}
	return n;
}

static struct node *parse_if(struct jcompile *c, int line)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL };
	struct node *n = jp_node(c, N_IF, line), *branch = n;
	struct jp_nodes v = { 0 };

	for (;;) {
		branch->a = jp_tuple(c, TUPLE_NO_COND, NULL, false);
		branch->body = parse_body(c, ends);
		struct token *t = jp_next(c);

		if (jp_token_is(t, "elif")) {
			branch = jp_node(c, N_IF, t->line);
			jp_add(c, &v, branch);
			continue;
		}
		if (jp_token_is(t, "else"))
			n->orelse = parse_until(c, "endif");
		n->list = v.n;
		return n;
	}
}

/* "(a, b=1)" of a macro or call block. */
static void parse_signature(struct jcompile *c, struct node *n)
{
	struct jp_nodes params = { 0 }, defaults = { 0 };

	jp_expect(c, T_LPAREN);
	while (jp_cur(c)->kind != T_RPAREN) {
		struct node *p;

		if (params.n.n)
			jp_expect(c, T_COMMA);
		p = parse_name_target(c);
		for (uint32_t i = 0; i < params.n.n; i++)
			if (params.n.v[i]->name == p->name)
				jc_fail(c, E_FORMAT, p->line, "duplicate parameter");
		if (jp_skip(c, T_ASSIGN))
			jp_add(c, &defaults, jp_expr(c));
		else if (defaults.n.n)
			jc_fail(c, E_FORMAT, p->line, "parameter without default follows one with default");
		jp_add(c, &params, p);
	}
	jp_next(c);
	n->list = params.n;
	n->orelse = defaults.n;
}

static struct nodes macro_body(struct jcompile *c, const char *end)
{
	int loops = c->loops;
	struct nodes body;

	c->loops = 0;
	body = parse_until(c, end);
	c->loops = loops;
	return body;
}

static struct node *parse_macro(struct jcompile *c, int line)
{
	struct node *n = jp_node(c, N_MACRO, line);

	n->name = parse_name_target(c)->name;
	parse_signature(c, n);
	n->body = macro_body(c, "endmacro");
	return n;
}

static struct node *parse_call_block(struct jcompile *c, int line)
{
	struct node *n = jp_node(c, N_CALLBLOCK, line), *m = jp_node(c, N_MACRO, line);

	if (jp_cur(c)->kind == T_LPAREN)
		parse_signature(c, m);
	n->b = jp_expr(c);
	if (n->b->kind != N_CALL)
		jc_fail(c, E_FORMAT, line, "expected a call after {%% call %%}");
	m->body = macro_body(c, "endcall");
	n->c = m;
	return n;
}

static struct node *parse_with(struct jcompile *c, int line)
{
	struct node *n = jp_node(c, N_WITH, line);
	struct jp_nodes targets = { 0 }, values = { 0 };

	while (jp_cur(c)->kind != T_BLOCK_END) {
		if (targets.n.n)
			jp_expect(c, T_COMMA);
		jp_add(c, &targets, parse_target(c, NULL));
		jp_expect(c, T_ASSIGN);
		jp_add(c, &values, jp_expr(c));
	}
	n->list = targets.n;
	n->orelse = values.n;
	n->body = parse_until(c, "endwith");
	return n;
}

static struct node *parse_print(struct jcompile *c, int line)
{
	struct node *n = jp_node(c, N_OUTPUT, line);
	struct jp_nodes v = { 0 };

	while (jp_cur(c)->kind != T_BLOCK_END) {
		if (v.n.n)
			jp_expect(c, T_COMMA);
		jp_add(c, &v, jp_expr(c));
	}
	n->list = v.n;
	return n;
}

static struct node *parse_simple_scope(struct jcompile *c, int line, const char *end, bool filter)
{
	struct node *n = jp_node(c, filter ? N_FILTERBLOCK : N_SCOPE, line);

	if (filter) {
		n->b = jp_filter(c, NULL);
		while (jp_skip(c, T_PIPE))
			n->b = jp_filter(c, n->b);
		n->body = parse_until(c, end);
	} else { /* a function of its own in Jinja: no loop to break out of */
		n->body = macro_body(c, end);
	}
	return n;
}

static struct node *parse_statement(struct jcompile *c)
{
	static const char *const lacking[] = {
		"block", "extends", "include", "import", "from", "autoescape", "do", "trans", "debug",
	};
	struct token *t = jp_cur(c);

	if (t->kind != T_NAME)
		jc_fail(c, E_FORMAT, t->line, "tag name expected");
	jp_next(c);
	if (jp_token_is(t, "for"))
		return parse_for(c, t->line);
	if (jp_token_is(t, "if"))
		return parse_if(c, t->line);
	if (jp_token_is(t, "set"))
		return parse_set(c, t->line);
	if (jp_token_is(t, "macro"))
		return parse_macro(c, t->line);
	if (jp_token_is(t, "call"))
		return parse_call_block(c, t->line);
	if (jp_token_is(t, "with"))
		return parse_with(c, t->line);
	if (jp_token_is(t, "print"))
		return parse_print(c, t->line);
	if (jp_token_is(t, "filter"))
		return parse_simple_scope(c, t->line, "endfilter", true);
	if (jp_token_is(t, "generation"))
		return parse_simple_scope(c, t->line, "endgeneration", false);
	if (jp_token_is(t, "break") || jp_token_is(t, "continue")) {
		if (!c->loops)
			jc_fail(c, E_FORMAT, t->line, "'%.*s' outside of a loop", (int)t->n, t->p);
		return jp_node(c, jp_token_is(t, "break") ? N_BREAK : N_CONTINUE, t->line);
	}
	for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
		if (jp_token_is(t, lacking[i]))
			jc_fail(c, E_UNSUPPORTED, t->line, "tag '%s' is not supported", lacking[i]);
	jc_fail(c, E_UNSUPPORTED, t->line, "unknown tag '%.*s'", t->n < 80 ? (int)t->n : 80, t->p);
}

/* Statements and text until a tag named in ends (which stays current, after its
 * {%), or the end of the template when ends is NULL. */
static struct nodes parse_nodes(struct jcompile *c, const char *const *ends)
{
	struct jp_nodes body = { 0 }, out = { 0 };
	struct node *n;

	for (;;) {
		struct token *t = jp_cur(c);

		if (t->kind == T_DATA) {
			n = jp_node(c, N_CONST, t->line);
			n->value = v_str(jc_str(c, t->p, t->n));
			jp_add(c, &out, n);
			jp_next(c);
			continue;
		}
		if (t->kind == T_VAR_BEGIN) {
			jp_next(c);
			jp_add(c, &out, jp_tuple(c, TUPLE_FULL, NULL, false));
			jp_expect(c, T_VAR_END);
			continue;
		}
		if (out.n.n) {
			n = jp_node(c, N_OUTPUT, out.n.v[0]->line);
			n->list = out.n;
			jp_add(c, &body, n);
			out = (struct jp_nodes){ 0 };
		}
		if (t->kind == T_EOF) {
			if (ends)
				jc_fail(c, E_FORMAT, t->line, "unexpected end of template, expected '%s'", ends[0]);
			return body.n;
		}
		jp_next(c);
		for (size_t i = 0; ends && ends[i]; i++)
			if (jp_at_name(c, ends[i]))
				return body.n;
		jp_enter(c);
		jp_add(c, &body, parse_statement(c));
		jp_leave(c);
		jp_expect(c, T_BLOCK_END);
	}
}

static struct nodes parse_body(struct jcompile *c, const char *const *ends)
{
	jp_skip(c, T_COLON);
	jp_expect(c, T_BLOCK_END);
	return parse_nodes(c, ends);
}

void jinja_parse(struct jcompile *c)
{
	c->t->body = parse_nodes(c, NULL);
}
