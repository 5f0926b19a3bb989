/* jinja_parse.h - what the parser's two files share: reading tokens, making nodes.
 *
 * Only jinja_parse.c (statements) and jinja_expr.c (expressions) include this.  Nodes live in the template's arena;
 * errors leave by jc_fail, so nothing here returns one. */
#ifndef TEXT_JINJA_PARSE_H
#define TEXT_JINJA_PARSE_H

#include <string.h>

#include "text/jinja/jinja.h"

/* A list of nodes that grows. */
struct jp_nodes {
	struct nodes n;
	uint32_t cap;
};

/* ---- tokens ---- */

static inline struct token *jp_cur(struct jcompile *c)
{
	return &c->tok[c->at];
}
static inline struct token *jp_peek(struct jcompile *c)
{
	return &c->tok[c->at + (c->at + 1 < c->n_tok)];
}

static inline struct token *jp_next(struct jcompile *c)
{
	struct token *t = jp_cur(c);

	if (t->kind != T_EOF)
		c->at++;
	return t;
}

static inline bool jp_token_is(const struct token *t, const char *name)
{
	return t->kind == T_NAME && t->n == strlen(name) && !memcmp(t->p, name, t->n);
}

static inline bool jp_at_name(struct jcompile *c, const char *name)
{
	return jp_token_is(jp_cur(c), name);
}

static inline bool jp_skip(struct jcompile *c, enum tkind kind)
{
	if (jp_cur(c)->kind != kind)
		return false;
	jp_next(c);
	return true;
}

static inline bool jp_skip_name(struct jcompile *c, const char *name)
{
	if (!jp_at_name(c, name))
		return false;
	jp_next(c);
	return true;
}

/* Names a token for a message; text is storage for it. */
const char *jp_describe(const struct token *t, char text[64]);
/* Takes the current token, which must be of this kind, or the name `name`; else E_FORMAT. */
struct token *jp_expect(struct jcompile *c, enum tkind kind);
void jp_expect_name(struct jcompile *c, const char *name);

/* ---- nodes ---- */

struct node *jp_node(struct jcompile *c, enum nkind kind, int line);
/* A copy of n elements with place for cap of them. */
void *jp_grow(struct jcompile *c, void *old, size_t n, size_t cap, size_t size);
void jp_add(struct jcompile *c, struct jp_nodes *v, struct node *n);
/* One level of nesting more and less; E_LIMIT beyond nest_max. */
void jp_enter(struct jcompile *c);
void jp_leave(struct jcompile *c);

/* ---- expressions (jinja_expr.c) ---- */

struct node *jp_expr(struct jcompile *c);
/* "a, b, c", or one expression without commas.  TUPLE_PRIMARY: of names, subscripts and parentheses only;
 * TUPLE_NO_COND: without "a if b".  end_name, which may be NULL, is a name that ends it. */
enum { TUPLE_PRIMARY, TUPLE_NO_COND, TUPLE_FULL };
struct node *jp_tuple(struct jcompile *c, int mode, const char *end_name, bool parens);
/* A filter's name and arguments, applied to `of` (NULL: of a filter block). */
struct node *jp_filter(struct jcompile *c, struct node *of);

#endif
