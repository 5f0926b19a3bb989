/* jinja_parse.c - tokens to nodes, by recursive descent over Jinja's grammar.
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
#include "text/jinja/jinja.h"

#include <stdio.h>
#include <string.h>

struct vec {
	struct nodes n;
	uint32_t cap;
};

static struct node *parse_expr(struct jcompile *c);
static struct node *parse_or(struct jcompile *c);
static struct node *parse_unary(struct jcompile *c, bool with_filter);
static struct nodes parse_body(struct jcompile *c, const char *const *ends);

static struct token *cur(struct jcompile *c)
{
	return &c->tok[c->at];
}
static struct token *peek(struct jcompile *c)
{
	return &c->tok[c->at + (c->at + 1 < c->n_tok)];
}

static struct token *next(struct jcompile *c)
{
	struct token *t = cur(c);

	if (t->kind != T_EOF)
		c->at++;
	return t;
}

static bool token_is(const struct token *t, const char *name)
{
	return t->kind == T_NAME && t->n == strlen(name) && !memcmp(t->p, name, t->n);
}

static bool at_name(struct jcompile *c, const char *name)
{
	return token_is(cur(c), name);
}

static bool skip(struct jcompile *c, enum tkind kind)
{
	if (cur(c)->kind != kind)
		return false;
	next(c);
	return true;
}

static bool skip_name(struct jcompile *c, const char *name)
{
	if (!at_name(c, name))
		return false;
	next(c);
	return true;
}

static const char *describe(const struct token *t, char text[64])
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

static struct token *expect(struct jcompile *c, enum tkind kind)
{
	struct token want = { .kind = kind };
	char a[64], b[64];

	if (cur(c)->kind != kind)
		jc_fail(c, E_FORMAT, cur(c)->line, "expected %s, got %s",
		        kind == T_NAME ? "a name" : describe(&want, a), describe(cur(c), b));
	return next(c);
}

static void expect_name(struct jcompile *c, const char *name)
{
	char b[64];

	if (!skip_name(c, name))
		jc_fail(c, E_FORMAT, cur(c)->line, "expected '%s', got %s", name, describe(cur(c), b));
}

static struct node *make(struct jcompile *c, enum nkind kind, int line)
{
	struct node *n = arena_zalloc(&c->t->mem, sizeof *n);

	n->kind = (uint8_t)kind;
	n->line = line;
	n->name = -1;
	return n;
}

static void *grow(struct jcompile *c, void *old, size_t n, size_t cap, size_t size)
{
	void *p = arena_alloc(&c->t->mem, size_mul(cap, size));

	if (n)
		memcpy(p, old, n * size);
	return p;
}

static void add(struct jcompile *c, struct vec *v, struct node *n)
{
	if (v->n.n == v->cap) {
		v->cap = v->cap ? v->cap * 2 : 4;
		v->n.v = grow(c, v->n.v, v->n.n, v->cap, sizeof *v->n.v);
	}
	v->n.v[v->n.n++] = n;
}

static void higher(struct node *n, const struct node *child)
{
	if (child && child->depth >= n->depth)
		n->depth = (uint16_t)(child->depth + 1);
}

/* To be called when an expression's children are in place. */
static struct node *measured(struct jcompile *c, struct node *n)
{
	higher(n, n->a);
	higher(n, n->b);
	higher(n, n->c);
	higher(n, n->star);
	higher(n, n->starstar);
	for (uint32_t i = 0; i < n->list.n; i++)
		higher(n, n->list.v[i]);
	for (uint32_t i = 0; n->kind == N_DICT && i < n->body.n; i++)
		higher(n, n->body.v[i]);
	for (uint32_t i = 0; i < n->n_kw; i++)
		higher(n, n->kw[i].value);
	if (n->depth > 4 * c->t->lim.nest_max)
		jc_fail(c, E_LIMIT, n->line, "expression of more than %d levels", 4 * c->t->lim.nest_max);
	return n;
}

static void enter(struct jcompile *c)
{
	if (++c->nest > c->t->lim.nest_max)
		jc_fail(c, E_LIMIT, cur(c)->line, "nested more than %d deep", c->t->lim.nest_max);
}

static void leave(struct jcompile *c)
{
	c->nest--;
}

static struct node *unary(struct jcompile *c, enum nkind kind, int line, struct node *a)
{
	struct node *n = make(c, kind, line);

	n->a = a;
	return measured(c, n);
}

static struct node *binary(struct jcompile *c, enum nkind kind, int op, int line, struct node *a, struct node *b)
{
	struct node *n = make(c, kind, line);

	n->op = (uint8_t)op;
	n->a = a;
	n->b = b;
	return measured(c, n);
}

/* ---- expressions ---- */

static bool tuple_ends(struct jcompile *c, const char *end_name)
{
	enum tkind k = cur(c)->kind;

	return k == T_VAR_END || k == T_BLOCK_END || k == T_RPAREN || (end_name && at_name(c, end_name));
}

enum { TUPLE_PRIMARY, TUPLE_NO_COND, TUPLE_FULL };
static struct node *parse_primary(struct jcompile *c);

static struct node *parse_tuple(struct jcompile *c, int mode, const char *end_name, bool parens)
{
	int line = cur(c)->line;
	bool is_tuple = false;
	struct vec v = { 0 };
	struct node *n;
	char text[64];

	for (;;) {
		if (v.n.n)
			expect(c, T_COMMA);
		if (tuple_ends(c, end_name))
			break;
		enter(c);
		n = mode == TUPLE_PRIMARY ? parse_primary(c) : mode == TUPLE_FULL ? parse_expr(c) : parse_or(c);
		add(c, &v, n);
		leave(c);
		if (cur(c)->kind != T_COMMA)
			break;
		is_tuple = true;
	}
	if (!is_tuple) {
		if (v.n.n)
			return v.n.v[0];
		if (!parens)
			jc_fail(c, E_FORMAT, line, "expected an expression, got %s", describe(cur(c), text));
	}
	n = make(c, N_TUPLE, line);
	n->list = v.n;
	return measured(c, n);
}

static struct node *parse_list(struct jcompile *c)
{
	struct node *n = make(c, N_LIST, next(c)->line);
	struct vec v = { 0 };

	while (cur(c)->kind != T_RBRACKET) {
		if (v.n.n)
			expect(c, T_COMMA);
		if (cur(c)->kind == T_RBRACKET)
			break;
		add(c, &v, parse_expr(c));
	}
	next(c);
	n->list = v.n;
	return measured(c, n);
}

static struct node *parse_dict(struct jcompile *c)
{
	struct node *n = make(c, N_DICT, next(c)->line);
	struct vec keys = { 0 }, values = { 0 };

	while (cur(c)->kind != T_RBRACE) {
		if (keys.n.n)
			expect(c, T_COMMA);
		if (cur(c)->kind == T_RBRACE)
			break;
		add(c, &keys, parse_expr(c));
		expect(c, T_COLON);
		add(c, &values, parse_expr(c));
	}
	next(c);
	n->list = keys.n;
	n->body = values.n;
	return measured(c, n);
}

static struct node *parse_strings(struct jcompile *c)
{
	struct node *n = make(c, N_CONST, cur(c)->line);
	struct token *first = cur(c), *t;
	size_t total = 0, at = 0;
	char *p;

	for (t = first; t->kind == T_STRING; t++)
		total += t->n;
	p = arena_alloc(&c->t->mem, total + 1);
	while (cur(c)->kind == T_STRING) {
		t = next(c);
		memcpy(p + at, t->p, t->n);
		at += t->n;
	}
	n->value = v_str(jc_str(c, p, total));
	return n;
}

static struct node *parse_primary(struct jcompile *c)
{
	struct token *t = cur(c);
	struct node *n;
	char text[64];

	switch (t->kind) {
	case T_NAME:
		next(c);
		n = make(c, N_CONST, t->line);
		if (token_is(t, "true") || token_is(t, "True")) {
			n->value = v_bool(true);
		} else if (token_is(t, "false") || token_is(t, "False")) {
			n->value = v_bool(false);
		} else if (token_is(t, "none") || token_is(t, "None")) {
			n->value = v_none();
		} else {
			n->kind = N_NAME;
			n->name = t->name;
		}
		return n;
	case T_STRING: return parse_strings(c);
	case T_INT:
	case T_FLOAT:
		next(c);
		n = make(c, N_CONST, t->line);
		n->value = t->kind == T_INT ? v_int(t->i) : v_float(t->d);
		return n;
	case T_LPAREN:
		next(c);
		enter(c);
		n = parse_tuple(c, TUPLE_FULL, NULL, true);
		leave(c);
		expect(c, T_RPAREN);
		return n;
	case T_LBRACKET: return parse_list(c);
	case T_LBRACE: return parse_dict(c);
	default: jc_fail(c, E_FORMAT, t->line, "unexpected %s", describe(t, text));
	}
}

static struct node *parse_subscribed(struct jcompile *c)
{
	int line = cur(c)->line;
	struct node *n, *from = NULL;

	if (cur(c)->kind != T_COLON) {
		from = parse_expr(c);
		if (cur(c)->kind != T_COLON)
			return from;
	}
	next(c);
	n = make(c, N_SLICE, line);
	n->a = from;
	if (cur(c)->kind != T_COLON && cur(c)->kind != T_RBRACKET && cur(c)->kind != T_COMMA)
		n->b = parse_expr(c);
	if (skip(c, T_COLON) && cur(c)->kind != T_RBRACKET && cur(c)->kind != T_COMMA)
		n->c = parse_expr(c);
	return measured(c, n);
}

static struct node *parse_subscript(struct jcompile *c, struct node *of)
{
	struct token *t = next(c), *attr;
	struct node *n, *key;
	struct vec v = { 0 };

	if (t->kind == T_DOT) {
		attr = next(c);
		if (attr->kind == T_NAME) {
			n = unary(c, N_ATTR, t->line, of);
			n->name = attr->name;
			n->value = v_str(c->t->names[attr->name].str);
			return n;
		}
		if (attr->kind != T_INT)
			jc_fail(c, E_FORMAT, attr->line, "expected name or number after '.'");
		key = make(c, N_CONST, attr->line);
		key->value = v_int(attr->i);
		return binary(c, N_ITEM, 0, t->line, of, key);
	}
	while (cur(c)->kind != T_RBRACKET) {
		if (v.n.n)
			expect(c, T_COMMA);
		add(c, &v, parse_subscribed(c));
	}
	next(c);
	if (v.n.n == 1)
		return binary(c, N_ITEM, 0, t->line, of, v.n.v[0]);
	for (uint32_t i = 0; i < v.n.n; i++)
		if (v.n.v[i]->kind == N_SLICE)
			jc_fail(c, E_UNSUPPORTED, t->line, "slices of more than one dimension are not supported");
	key = make(c, N_TUPLE, t->line);
	key->list = v.n;
	return binary(c, N_ITEM, 0, t->line, of, measured(c, key));
}

/* "(...)" into n's list, kw, star and starstar. */
static void parse_args(struct jcompile *c, struct node *n)
{
	struct token *open = expect(c, T_LPAREN);
	struct vec v = { 0 };
	uint32_t cap = 0;
	bool ok = true, comma = false;

	while (cur(c)->kind != T_RPAREN) {
		if (comma) {
			expect(c, T_COMMA);
			if (cur(c)->kind == T_RPAREN)
				break;
		}
		comma = true;
		if (skip(c, T_MUL)) {
			ok = ok && !n->star && !n->starstar;
			n->star = parse_expr(c);
		} else if (skip(c, T_POW)) {
			ok = ok && !n->starstar;
			n->starstar = parse_expr(c);
		} else if (cur(c)->kind == T_NAME && peek(c)->kind == T_ASSIGN) {
			struct token *key = next(c);

			ok = ok && !n->starstar;
			next(c);
			if (n->n_kw == cap) {
				cap = cap ? cap * 2 : 4;
				n->kw = grow(c, n->kw, n->n_kw, cap, sizeof *n->kw);
			}
			for (uint32_t i = 0; i < n->n_kw; i++)
				if (n->kw[i].id == key->name)
					jc_fail(c, E_FORMAT, key->line, "repeated keyword argument '%.*s'", (int)key->n,
					        key->p);
			n->kw[n->n_kw++] = (struct keyword){ c->t->names[key->name].str, key->name, parse_expr(c) };
			c->t->names[key->name].stored = true;
		} else {
			ok = ok && !n->star && !n->starstar && !n->n_kw;
			add(c, &v, parse_expr(c));
		}
		if (!ok)
			jc_fail(c, E_FORMAT, open->line, "invalid syntax for function call expression");
	}
	next(c);
	n->list = v.n;
}

static struct node *parse_call(struct jcompile *c, struct node *of)
{
	struct node *n = make(c, N_CALL, cur(c)->line);

	n->a = of;
	parse_args(c, n);
	return measured(c, n);
}

static struct node *parse_filter(struct jcompile *c, struct node *of)
{
	struct token *t = expect(c, T_NAME);
	struct node *n = make(c, N_FILTER, t->line);

	n->a = of;
	n->filter = filter_find(t->p, t->n);
	if (!n->filter || cur(c)->kind == T_DOT)
		jc_fail(c, E_UNSUPPORTED, t->line, "unknown filter '%.*s'", (int)t->n, t->p);
	if (cur(c)->kind == T_LPAREN)
		parse_args(c, n);
	return measured(c, n);
}

static struct node *parse_postfix(struct jcompile *c, struct node *n)
{
	for (;;) {
		switch (cur(c)->kind) {
		case T_DOT:
		case T_LBRACKET: n = parse_subscript(c, n); break;
		case T_LPAREN: n = parse_call(c, n); break;
		default: return n;
		}
	}
}

static struct node *parse_test(struct jcompile *c, struct node *of)
{
	bool negated = skip_name(c, "not");
	struct token *t = expect(c, T_NAME);
	struct node *n = make(c, N_TEST, t->line), *arg;
	struct vec v = { 0 };
	enum tkind k = cur(c)->kind;

	n->a = of;
	n->test = test_find(t->p, t->n);
	if (!n->test || k == T_DOT)
		jc_fail(c, E_UNSUPPORTED, t->line, "unknown test '%.*s'", (int)t->n, t->p);
	if (k == T_LPAREN) {
		parse_args(c, n);
	} else if ((k == T_NAME && !at_name(c, "else") && !at_name(c, "or") && !at_name(c, "and")) || k == T_STRING ||
	           k == T_INT || k == T_FLOAT || k == T_LBRACKET || k == T_LBRACE) {
		if (at_name(c, "is"))
			jc_fail(c, E_FORMAT, t->line, "tests cannot be chained with 'is'");
		arg = parse_primary(c);
		add(c, &v, parse_postfix(c, arg));
		n->list = v.n;
	}
	n = measured(c, n);
	return negated ? unary(c, N_NOT, t->line, n) : n;
}

static struct node *parse_unary(struct jcompile *c, bool with_filter)
{
	struct token *t = cur(c);
	struct node *n;

	enter(c);
	if (t->kind == T_SUB || t->kind == T_ADD) {
		next(c);
		n = unary(c, t->kind == T_SUB ? N_NEG : N_POS, t->line, parse_unary(c, false));
	} else {
		n = parse_primary(c);
	}
	n = parse_postfix(c, n);
	while (with_filter) {
		if (skip(c, T_PIPE))
			n = parse_filter(c, n);
		else if (skip_name(c, "is"))
			n = parse_test(c, n);
		else if (cur(c)->kind == T_LPAREN)
			n = parse_call(c, n);
		else
			break;
	}
	leave(c);
	return n;
}

static struct node *parse_pow(struct jcompile *c)
{
	int line = cur(c)->line;
	struct node *n = parse_unary(c, true);

	while (skip(c, T_POW))
		n = binary(c, N_BINARY, OP_POW, line, n, parse_unary(c, true));
	return n;
}

static struct node *parse_product(struct jcompile *c)
{
	struct node *n = parse_pow(c);

	for (;;) {
		struct token *t = cur(c);
		int op = t->kind == T_MUL      ? OP_MUL :
		         t->kind == T_DIV      ? OP_DIV :
		         t->kind == T_FLOORDIV ? OP_FLOORDIV :
		         t->kind == T_MOD      ? OP_MOD :
		                                 -1;

		if (op < 0)
			return n;
		next(c);
		n = binary(c, N_BINARY, op, t->line, n, parse_pow(c));
	}
}

static struct node *parse_concat(struct jcompile *c)
{
	int line = cur(c)->line;
	struct node *first = parse_product(c), *n;
	struct vec v = { 0 };

	if (cur(c)->kind != T_TILDE)
		return first;
	add(c, &v, first);
	while (skip(c, T_TILDE))
		add(c, &v, parse_product(c));
	n = make(c, N_CONCAT, line);
	n->list = v.n;
	return measured(c, n);
}

static struct node *parse_sum(struct jcompile *c)
{
	struct node *n = parse_concat(c);

	while (cur(c)->kind == T_ADD || cur(c)->kind == T_SUB) {
		struct token *t = next(c);

		n = binary(c, N_BINARY, t->kind == T_ADD ? OP_ADD : OP_SUB, t->line, n, parse_concat(c));
	}
	return n;
}

static int compare_op(struct jcompile *c)
{
	switch (cur(c)->kind) {
	case T_EQ: return OP_EQ;
	case T_NE: return OP_NE;
	case T_LT: return OP_LT;
	case T_LE: return OP_LE;
	case T_GT: return OP_GT;
	case T_GE: return OP_GE;
	default:
		if (at_name(c, "in"))
			return OP_IN;
		return at_name(c, "not") && token_is(peek(c), "in") ? OP_NOTIN : -1;
	}
}

static struct node *parse_compare(struct jcompile *c)
{
	int line = cur(c)->line, op;
	struct node *first = parse_sum(c), *n;
	struct vec v = { 0 };
	uint8_t *ops = NULL;
	uint32_t cap = 0;

	while ((op = compare_op(c)) >= 0) {
		next(c);
		if (op == OP_NOTIN)
			next(c);
		if (v.n.n == cap) {
			cap = cap ? cap * 2 : 4;
			ops = grow(c, ops, v.n.n, cap, 1);
		}
		ops[v.n.n] = (uint8_t)op;
		add(c, &v, parse_sum(c));
	}
	if (!v.n.n)
		return first;
	n = make(c, N_COMPARE, line);
	n->a = first;
	n->list = v.n;
	n->ops = ops;
	return measured(c, n);
}

static struct node *parse_not(struct jcompile *c)
{
	struct node *n;
	int line = cur(c)->line;

	if (!skip_name(c, "not"))
		return parse_compare(c);
	enter(c);
	n = unary(c, N_NOT, line, parse_not(c));
	leave(c);
	return n;
}

static struct node *parse_and(struct jcompile *c)
{
	struct node *n = parse_not(c);

	while (at_name(c, "and")) {
		int line = next(c)->line;

		n = binary(c, N_AND, 0, line, n, parse_not(c));
	}
	return n;
}

static struct node *parse_or(struct jcompile *c)
{
	struct node *n = parse_and(c);

	while (at_name(c, "or")) {
		int line = next(c)->line;

		n = binary(c, N_OR, 0, line, n, parse_and(c));
	}
	return n;
}

/* a if b else c */
static struct node *parse_expr(struct jcompile *c)
{
	struct node *n, *cond;

	enter(c);
	n = parse_or(c);
	while (at_name(c, "if")) {
		cond = make(c, N_COND, next(c)->line);
		cond->b = n;
		cond->a = parse_or(c);
		if (skip_name(c, "else"))
			cond->c = parse_expr(c);
		n = measured(c, cond);
	}
	leave(c);
	return n;
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
	struct node *n = parse_tuple(c, TUPLE_PRIMARY, end_name, false);

	check_target(c, n);
	return n;
}

static struct node *parse_name_target(struct jcompile *c)
{
	struct node *n = make(c, N_NAME, cur(c)->line);

	n->name = expect(c, T_NAME)->name;
	check_target(c, n);
	return n;
}

static struct nodes parse_until(struct jcompile *c, const char *end)
{
	const char *const ends[] = { end, NULL };
	struct nodes body = parse_body(c, ends);

	next(c);
	return body;
}

static struct node *parse_filters(struct jcompile *c)
{
	struct node *n = NULL;

	while (skip(c, T_PIPE))
		n = parse_filter(c, n);
	return n;
}

static struct node *parse_set(struct jcompile *c, int line)
{
	struct node *n = make(c, N_SET, line), *ns;
	struct token *t;

	if (cur(c)->kind == T_NAME && peek(c)->kind == T_DOT) {
		ns = make(c, N_NSREF, cur(c)->line);
		ns->name = next(c)->name;
		next(c);
		t = expect(c, T_NAME);
		c->t->names[t->name].stored = true;
		ns->value = v_str(c->t->names[t->name].str);
		n->a = ns;
	} else {
		n->a = parse_target(c, NULL);
	}
	if (skip(c, T_ASSIGN)) {
		n->b = parse_tuple(c, TUPLE_FULL, NULL, false);
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
	struct node *n = make(c, N_FOR, line);

	n->a = parse_target(c, "in");
	expect_name(c, "in");
	n->b = parse_tuple(c, TUPLE_NO_COND, "recursive", false);
	if (skip_name(c, "if"))
		n->c = parse_expr(c);
	if (at_name(c, "recursive"))
		jc_fail(c, E_UNSUPPORTED, line, "recursive loops are not supported");
	c->loops++;
	n->body = parse_body(c, ends);
	c->loops--;
	if (token_is(next(c), "else")) {
		n->else_scope = make(c, N_SCOPE, line);
		n->else_scope->body = parse_until(c, "endfor");
	}
	return n;
}

static struct node *parse_if(struct jcompile *c, int line)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL };
	struct node *n = make(c, N_IF, line), *branch = n;
	struct vec v = { 0 };

	for (;;) {
		branch->a = parse_tuple(c, TUPLE_NO_COND, NULL, false);
		branch->body = parse_body(c, ends);
		struct token *t = next(c);

		if (token_is(t, "elif")) {
			branch = make(c, N_IF, t->line);
			add(c, &v, branch);
			continue;
		}
		if (token_is(t, "else"))
			n->orelse = parse_until(c, "endif");
		n->list = v.n;
		return n;
	}
}

/* "(a, b=1)" of a macro or call block. */
static void parse_signature(struct jcompile *c, struct node *n)
{
	struct vec params = { 0 }, defaults = { 0 };

	expect(c, T_LPAREN);
	while (cur(c)->kind != T_RPAREN) {
		struct node *p;

		if (params.n.n)
			expect(c, T_COMMA);
		p = parse_name_target(c);
		for (uint32_t i = 0; i < params.n.n; i++)
			if (params.n.v[i]->name == p->name)
				jc_fail(c, E_FORMAT, p->line, "duplicate parameter");
		if (skip(c, T_ASSIGN))
			add(c, &defaults, parse_expr(c));
		else if (defaults.n.n)
			jc_fail(c, E_FORMAT, p->line, "parameter without default follows one with default");
		add(c, &params, p);
	}
	next(c);
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
	struct node *n = make(c, N_MACRO, line);

	n->name = parse_name_target(c)->name;
	parse_signature(c, n);
	n->body = macro_body(c, "endmacro");
	return n;
}

static struct node *parse_call_block(struct jcompile *c, int line)
{
	struct node *n = make(c, N_CALLBLOCK, line), *m = make(c, N_MACRO, line);

	if (cur(c)->kind == T_LPAREN)
		parse_signature(c, m);
	n->b = parse_expr(c);
	if (n->b->kind != N_CALL)
		jc_fail(c, E_FORMAT, line, "expected a call after {%% call %%}");
	m->body = macro_body(c, "endcall");
	n->c = m;
	return n;
}

static struct node *parse_with(struct jcompile *c, int line)
{
	struct node *n = make(c, N_WITH, line);
	struct vec targets = { 0 }, values = { 0 };

	while (cur(c)->kind != T_BLOCK_END) {
		if (targets.n.n)
			expect(c, T_COMMA);
		add(c, &targets, parse_target(c, NULL));
		expect(c, T_ASSIGN);
		add(c, &values, parse_expr(c));
	}
	n->list = targets.n;
	n->orelse = values.n;
	n->body = parse_until(c, "endwith");
	return n;
}

static struct node *parse_print(struct jcompile *c, int line)
{
	struct node *n = make(c, N_OUTPUT, line);
	struct vec v = { 0 };

	while (cur(c)->kind != T_BLOCK_END) {
		if (v.n.n)
			expect(c, T_COMMA);
		add(c, &v, parse_expr(c));
	}
	n->list = v.n;
	return n;
}

static struct node *parse_simple_scope(struct jcompile *c, int line, const char *end, bool filter)
{
	struct node *n = make(c, filter ? N_FILTERBLOCK : N_SCOPE, line);

	if (filter) {
		n->b = parse_filter(c, NULL);
		while (skip(c, T_PIPE))
			n->b = parse_filter(c, n->b);
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
	struct token *t = cur(c);

	if (t->kind != T_NAME)
		jc_fail(c, E_FORMAT, t->line, "tag name expected");
	next(c);
	if (token_is(t, "for"))
		return parse_for(c, t->line);
	if (token_is(t, "if"))
		return parse_if(c, t->line);
	if (token_is(t, "set"))
		return parse_set(c, t->line);
	if (token_is(t, "macro"))
		return parse_macro(c, t->line);
	if (token_is(t, "call"))
		return parse_call_block(c, t->line);
	if (token_is(t, "with"))
		return parse_with(c, t->line);
	if (token_is(t, "print"))
		return parse_print(c, t->line);
	if (token_is(t, "filter"))
		return parse_simple_scope(c, t->line, "endfilter", true);
	if (token_is(t, "generation"))
		return parse_simple_scope(c, t->line, "endgeneration", false);
	if (token_is(t, "break") || token_is(t, "continue")) {
		if (!c->loops)
			jc_fail(c, E_FORMAT, t->line, "'%.*s' outside of a loop", (int)t->n, t->p);
		return make(c, token_is(t, "break") ? N_BREAK : N_CONTINUE, t->line);
	}
	for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
		if (token_is(t, lacking[i]))
			jc_fail(c, E_UNSUPPORTED, t->line, "tag '%s' is not supported", lacking[i]);
	jc_fail(c, E_UNSUPPORTED, t->line, "unknown tag '%.*s'", t->n < 80 ? (int)t->n : 80, t->p);
}

/* Statements and text until a tag named in ends (which stays current, after its
 * {%), or the end of the template when ends is NULL. */
static struct nodes parse_nodes(struct jcompile *c, const char *const *ends)
{
	struct vec body = { 0 }, out = { 0 };
	struct node *n;

	for (;;) {
		struct token *t = cur(c);

		if (t->kind == T_DATA) {
			n = make(c, N_CONST, t->line);
			n->value = v_str(jc_str(c, t->p, t->n));
			add(c, &out, n);
			next(c);
			continue;
		}
		if (t->kind == T_VAR_BEGIN) {
			next(c);
			add(c, &out, parse_tuple(c, TUPLE_FULL, NULL, false));
			expect(c, T_VAR_END);
			continue;
		}
		if (out.n.n) {
			n = make(c, N_OUTPUT, out.n.v[0]->line);
			n->list = out.n;
			add(c, &body, n);
			out = (struct vec){ 0 };
		}
		if (t->kind == T_EOF) {
			if (ends)
				jc_fail(c, E_FORMAT, t->line, "unexpected end of template, expected '%s'", ends[0]);
			return body.n;
		}
		next(c);
		for (size_t i = 0; ends && ends[i]; i++)
			if (at_name(c, ends[i]))
				return body.n;
		enter(c);
		add(c, &body, parse_statement(c));
		leave(c);
		expect(c, T_BLOCK_END);
	}
}

static struct nodes parse_body(struct jcompile *c, const char *const *ends)
{
	skip(c, T_COLON);
	expect(c, T_BLOCK_END);
	return parse_nodes(c, ends);
}

void jinja_parse(struct jcompile *c)
{
	c->t->body = parse_nodes(c, NULL);
}
