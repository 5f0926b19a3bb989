/* jinja_expr.c - expressions: tokens to nodes, by recursive descent over Jinja's grammar.  See jinja_parse.c. */
#include "text/jinja/jinja_parse.h"

static struct node *parse_or(struct jcompile *c);
static struct node *parse_unary(struct jcompile *c, bool with_filter);

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

static struct node *unary(struct jcompile *c, enum nkind kind, int line, struct node *a)
{
	struct node *n = jp_node(c, kind, line);

	n->a = a;
	return measured(c, n);
}

static struct node *binary(struct jcompile *c, enum nkind kind, int op, int line, struct node *a, struct node *b)
{
	struct node *n = jp_node(c, kind, line);

	n->op = (uint8_t)op;
	n->a = a;
	n->b = b;
	return measured(c, n);
}

static bool tuple_ends(struct jcompile *c, const char *end_name)
{
	enum tkind k = jp_cur(c)->kind;

	return k == T_VAR_END || k == T_BLOCK_END || k == T_RPAREN || (end_name && jp_at_name(c, end_name));
}

static struct node *parse_primary(struct jcompile *c);

struct node *jp_tuple(struct jcompile *c, int mode, const char *end_name, bool parens)
{
	int line = jp_cur(c)->line;
	bool is_tuple = false;
	struct jp_nodes v = { 0 };
	struct node *n;
	char text[64];

	for (;;) {
		if (v.n.n)
			jp_expect(c, T_COMMA);
		if (tuple_ends(c, end_name))
			break;
		jp_enter(c);
		n = mode == TUPLE_PRIMARY ? parse_primary(c) : mode == TUPLE_FULL ? jp_expr(c) : parse_or(c);
		jp_add(c, &v, n);
		jp_leave(c);
		if (jp_cur(c)->kind != T_COMMA)
			break;
		is_tuple = true;
	}
	if (!is_tuple) {
		if (v.n.n)
			return v.n.v[0];
		if (!parens)
			jc_fail(c, E_FORMAT, line, "expected an expression, got %s", jp_describe(jp_cur(c), text));
	}
	n = jp_node(c, N_TUPLE, line);
	n->list = v.n;
	return measured(c, n);
}

static struct node *parse_list(struct jcompile *c)
{
	struct node *n = jp_node(c, N_LIST, jp_next(c)->line);
	struct jp_nodes v = { 0 };

	while (jp_cur(c)->kind != T_RBRACKET) {
		if (v.n.n)
			jp_expect(c, T_COMMA);
		if (jp_cur(c)->kind == T_RBRACKET)
			break;
		jp_add(c, &v, jp_expr(c));
	}
	jp_next(c);
	n->list = v.n;
	return measured(c, n);
}

static struct node *parse_dict(struct jcompile *c)
{
	struct node *n = jp_node(c, N_DICT, jp_next(c)->line);
	struct jp_nodes keys = { 0 }, values = { 0 };

	while (jp_cur(c)->kind != T_RBRACE) {
		if (keys.n.n)
			jp_expect(c, T_COMMA);
		if (jp_cur(c)->kind == T_RBRACE)
			break;
		jp_add(c, &keys, jp_expr(c));
		jp_expect(c, T_COLON);
		jp_add(c, &values, jp_expr(c));
	}
	jp_next(c);
	n->list = keys.n;
	n->body = values.n;
	return measured(c, n);
}

static struct node *parse_strings(struct jcompile *c)
{
	struct node *n = jp_node(c, N_CONST, jp_cur(c)->line);
	struct token *first = jp_cur(c), *t;
	size_t total = 0, at = 0;
	char *p;

	for (t = first; t->kind == T_STRING; t++)
		total += t->n;
	p = arena_alloc(&c->t->mem, total + 1);
	while (jp_cur(c)->kind == T_STRING) {
		t = jp_next(c);
		memcpy(p + at, t->p, t->n);
		at += t->n;
	}
	n->value = v_str(jc_str(c, p, total));
	return n;
}

static struct node *parse_primary(struct jcompile *c)
{
	struct token *t = jp_cur(c);
	struct node *n;
	char text[64];

	switch (t->kind) {
	case T_NAME:
		jp_next(c);
		n = jp_node(c, N_CONST, t->line);
		if (jp_token_is(t, "true") || jp_token_is(t, "True")) {
			n->value = v_bool(true);
		} else if (jp_token_is(t, "false") || jp_token_is(t, "False")) {
			n->value = v_bool(false);
		} else if (jp_token_is(t, "none") || jp_token_is(t, "None")) {
			n->value = v_none();
		} else {
			n->kind = N_NAME;
			n->name = t->name;
		}
		return n;
	case T_STRING: return parse_strings(c);
	case T_INT:
	case T_FLOAT:
		jp_next(c);
		n = jp_node(c, N_CONST, t->line);
		n->value = t->kind == T_INT ? v_int(t->i) : v_float(t->d);
		return n;
	case T_LPAREN:
		jp_next(c);
		jp_enter(c);
		n = jp_tuple(c, TUPLE_FULL, NULL, true);
		jp_leave(c);
		jp_expect(c, T_RPAREN);
		return n;
	case T_LBRACKET: return parse_list(c);
	case T_LBRACE: return parse_dict(c);
	default: jc_fail(c, E_FORMAT, t->line, "unexpected %s", jp_describe(t, text));
	}
}

static struct node *parse_subscribed(struct jcompile *c)
{
	int line = jp_cur(c)->line;
	struct node *n, *from = NULL;

	if (jp_cur(c)->kind != T_COLON) {
		from = jp_expr(c);
		if (jp_cur(c)->kind != T_COLON)
			return from;
	}
	jp_next(c);
	n = jp_node(c, N_SLICE, line);
	n->a = from;
	if (jp_cur(c)->kind != T_COLON && jp_cur(c)->kind != T_RBRACKET && jp_cur(c)->kind != T_COMMA)
		n->b = jp_expr(c);
	if (jp_skip(c, T_COLON) && jp_cur(c)->kind != T_RBRACKET && jp_cur(c)->kind != T_COMMA)
		n->c = jp_expr(c);
	return measured(c, n);
}

static struct node *parse_subscript(struct jcompile *c, struct node *of)
{
	struct token *t = jp_next(c), *attr;
	struct node *n, *key;
	struct jp_nodes v = { 0 };

	if (t->kind == T_DOT) {
		attr = jp_next(c);
		if (attr->kind == T_NAME) {
			n = unary(c, N_ATTR, t->line, of);
			n->name = attr->name;
			n->value = v_str(c->t->names[attr->name].str);
			return n;
		}
		if (attr->kind != T_INT)
			jc_fail(c, E_FORMAT, attr->line, "expected name or number after '.'");
		key = jp_node(c, N_CONST, attr->line);
		key->value = v_int(attr->i);
		return binary(c, N_ITEM, 0, t->line, of, key);
	}
	while (jp_cur(c)->kind != T_RBRACKET) {
		if (v.n.n)
			jp_expect(c, T_COMMA);
		jp_add(c, &v, parse_subscribed(c));
	}
	jp_next(c);
	if (v.n.n == 1)
		return binary(c, N_ITEM, 0, t->line, of, v.n.v[0]);
	for (uint32_t i = 0; i < v.n.n; i++)
		if (v.n.v[i]->kind == N_SLICE)
			jc_fail(c, E_UNSUPPORTED, t->line, "slices of more than one dimension are not supported");
	key = jp_node(c, N_TUPLE, t->line);
	key->list = v.n;
	return binary(c, N_ITEM, 0, t->line, of, measured(c, key));
}

/* "(...)" into n's list, kw, star and starstar. */
static void parse_args(struct jcompile *c, struct node *n)
{
	struct token *open = jp_expect(c, T_LPAREN);
	struct jp_nodes v = { 0 };
	uint32_t cap = 0;
	bool ok = true, comma = false;

	while (jp_cur(c)->kind != T_RPAREN) {
		if (comma) {
			jp_expect(c, T_COMMA);
			if (jp_cur(c)->kind == T_RPAREN)
				break;
		}
		comma = true;
		if (jp_skip(c, T_MUL)) {
			ok = ok && !n->star && !n->starstar;
			n->star = jp_expr(c);
		} else if (jp_skip(c, T_POW)) {
			ok = ok && !n->starstar;
			n->starstar = jp_expr(c);
		} else if (jp_cur(c)->kind == T_NAME && jp_peek(c)->kind == T_ASSIGN) {
			struct token *key = jp_next(c);

			ok = ok && !n->starstar;
			jp_next(c);
			if (n->n_kw == cap) {
				cap = cap ? cap * 2 : 4;
				n->kw = jp_grow(c, n->kw, n->n_kw, cap, sizeof *n->kw);
			}
			for (uint32_t i = 0; i < n->n_kw; i++)
				if (n->kw[i].id == key->name)
					jc_fail(c, E_FORMAT, key->line, "repeated keyword argument '%.*s'", (int)key->n,
					        key->p);
			n->kw[n->n_kw++] = (struct keyword){ c->t->names[key->name].str, key->name, jp_expr(c) };
			c->t->names[key->name].stored = true;
		} else {
			ok = ok && !n->star && !n->starstar && !n->n_kw;
			jp_add(c, &v, jp_expr(c));
		}
		if (!ok)
			jc_fail(c, E_FORMAT, open->line, "invalid syntax for function call expression");
	}
	jp_next(c);
	n->list = v.n;
}

static struct node *parse_call(struct jcompile *c, struct node *of)
{
	struct node *n = jp_node(c, N_CALL, jp_cur(c)->line);

	n->a = of;
	parse_args(c, n);
	return measured(c, n);
}

struct node *jp_filter(struct jcompile *c, struct node *of)
{
	struct token *t = jp_expect(c, T_NAME);
	struct node *n = jp_node(c, N_FILTER, t->line);

	n->a = of;
	n->filter = filter_find(t->p, t->n);
	if (!n->filter || jp_cur(c)->kind == T_DOT)
		jc_fail(c, E_UNSUPPORTED, t->line, "unknown filter '%.*s'", (int)t->n, t->p);
	if (jp_cur(c)->kind == T_LPAREN)
		parse_args(c, n);
	return measured(c, n);
}

static struct node *parse_postfix(struct jcompile *c, struct node *n)
{
	for (;;) {
		switch (jp_cur(c)->kind) {
		case T_DOT:
		case T_LBRACKET: n = parse_subscript(c, n); break;
		case T_LPAREN: n = parse_call(c, n); break;
		default: return n;
		}
	}
}

static struct node *parse_test(struct jcompile *c, struct node *of)
{
	bool negated = jp_skip_name(c, "not");
	struct token *t = jp_expect(c, T_NAME);
	struct node *n = jp_node(c, N_TEST, t->line), *arg;
	struct jp_nodes v = { 0 };
	enum tkind k = jp_cur(c)->kind;

	n->a = of;
	n->test = test_find(t->p, t->n);
	if (!n->test || k == T_DOT)
		jc_fail(c, E_UNSUPPORTED, t->line, "unknown test '%.*s'", (int)t->n, t->p);
	if (k == T_LPAREN) {
		parse_args(c, n);
	} else if ((k == T_NAME && !jp_at_name(c, "else") && !jp_at_name(c, "or") && !jp_at_name(c, "and")) ||
	           k == T_STRING || k == T_INT || k == T_FLOAT || k == T_LBRACKET || k == T_LBRACE) {
		if (jp_at_name(c, "is"))
			jc_fail(c, E_FORMAT, t->line, "tests cannot be chained with 'is'");
		arg = parse_primary(c);
		jp_add(c, &v, parse_postfix(c, arg));
		n->list = v.n;
	}
	n = measured(c, n);
	return negated ? unary(c, N_NOT, t->line, n) : n;
}

static struct node *parse_unary(struct jcompile *c, bool with_filter)
{
	struct token *t = jp_cur(c);
	struct node *n;

	jp_enter(c);
	if (t->kind == T_SUB || t->kind == T_ADD) {
		jp_next(c);
		n = unary(c, t->kind == T_SUB ? N_NEG : N_POS, t->line, parse_unary(c, false));
	} else {
		n = parse_primary(c);
	}
	n = parse_postfix(c, n);
	while (with_filter) {
		if (jp_skip(c, T_PIPE))
			n = jp_filter(c, n);
		else if (jp_skip_name(c, "is"))
			n = parse_test(c, n);
		else if (jp_cur(c)->kind == T_LPAREN)
			n = parse_call(c, n);
		else
			break;
	}
	jp_leave(c);
	return n;
}

static struct node *parse_pow(struct jcompile *c)
{
	int line = jp_cur(c)->line;
	struct node *n = parse_unary(c, true);

	while (jp_skip(c, T_POW))
		n = binary(c, N_BINARY, OP_POW, line, n, parse_unary(c, true));
	return n;
}

static struct node *parse_product(struct jcompile *c)
{
	struct node *n = parse_pow(c);

	for (;;) {
		struct token *t = jp_cur(c);
		int op = t->kind == T_MUL      ? OP_MUL :
		         t->kind == T_DIV      ? OP_DIV :
		         t->kind == T_FLOORDIV ? OP_FLOORDIV :
		         t->kind == T_MOD      ? OP_MOD :
		                                 -1;

		if (op < 0)
			return n;
		jp_next(c);
		n = binary(c, N_BINARY, op, t->line, n, parse_pow(c));
	}
}

static struct node *parse_concat(struct jcompile *c)
{
	int line = jp_cur(c)->line;
	struct node *first = parse_product(c), *n;
	struct jp_nodes v = { 0 };

	if (jp_cur(c)->kind != T_TILDE)
		return first;
	jp_add(c, &v, first);
	while (jp_skip(c, T_TILDE))
		jp_add(c, &v, parse_product(c));
	n = jp_node(c, N_CONCAT, line);
	n->list = v.n;
	return measured(c, n);
}

static struct node *parse_sum(struct jcompile *c)
{
	struct node *n = parse_concat(c);

	while (jp_cur(c)->kind == T_ADD || jp_cur(c)->kind == T_SUB) {
		struct token *t = jp_next(c);

		n = binary(c, N_BINARY, t->kind == T_ADD ? OP_ADD : OP_SUB, t->line, n, parse_concat(c));
	}
	return n;
}

static int compare_op(struct jcompile *c)
{
	switch (jp_cur(c)->kind) {
	case T_EQ: return OP_EQ;
	case T_NE: return OP_NE;
	case T_LT: return OP_LT;
	case T_LE: return OP_LE;
	case T_GT: return OP_GT;
	case T_GE: return OP_GE;
	default:
		if (jp_at_name(c, "in"))
			return OP_IN;
		return jp_at_name(c, "not") && jp_token_is(jp_peek(c), "in") ? OP_NOTIN : -1;
	}
}

static struct node *parse_compare(struct jcompile *c)
{
	int line = jp_cur(c)->line, op;
	struct node *first = parse_sum(c), *n;
	struct jp_nodes v = { 0 };
	uint8_t *ops = NULL;
	uint32_t cap = 0;

	while ((op = compare_op(c)) >= 0) {
		jp_next(c);
		if (op == OP_NOTIN)
			jp_next(c);
		if (v.n.n == cap) {
			cap = cap ? cap * 2 : 4;
			ops = jp_grow(c, ops, v.n.n, cap, 1);
		}
		ops[v.n.n] = (uint8_t)op;
		jp_add(c, &v, parse_sum(c));
	}
	if (!v.n.n)
		return first;
	n = jp_node(c, N_COMPARE, line);
	n->a = first;
	n->list = v.n;
	n->ops = ops;
	return measured(c, n);
}

static struct node *parse_not(struct jcompile *c)
{
	struct node *n;
	int line = jp_cur(c)->line;

	if (!jp_skip_name(c, "not"))
		return parse_compare(c);
	jp_enter(c);
	n = unary(c, N_NOT, line, parse_not(c));
	jp_leave(c);
	return n;
}

static struct node *parse_and(struct jcompile *c)
{
	struct node *n = parse_not(c);

	while (jp_at_name(c, "and")) {
		int line = jp_next(c)->line;

		n = binary(c, N_AND, 0, line, n, parse_not(c));
	}
	return n;
}

static struct node *parse_or(struct jcompile *c)
{
	struct node *n = parse_and(c);

	while (jp_at_name(c, "or")) {
		int line = jp_next(c)->line;

		n = binary(c, N_OR, 0, line, n, parse_and(c));
	}
	return n;
}

/* a if b else c */
struct node *jp_expr(struct jcompile *c)
{
	struct node *n, *cond;

	jp_enter(c);
	n = parse_or(c);
	while (jp_at_name(c, "if")) {
		cond = jp_node(c, N_COND, jp_next(c)->line);
		cond->b = n;
		cond->a = parse_or(c);
		if (jp_skip_name(c, "else"))
			cond->c = jp_expr(c);
		n = measured(c, cond);
	}
	jp_leave(c);
	return n;
}
