/* rules.h - a grammar of named rules, before it is tables.
 *
 * For gbnf.c, which reads one, calls_grammar.c, which makes some of tools, and
 * net.c, which makes the tables.  Expressions are numbered; those of one list are
 * chained by `next`. */
#ifndef TEXT_RULES_H
#define TEXT_RULES_H

#include "base/err.h"
#include "text/grammar/tables.h"

enum {
	RULES_MAX = 2000,
	EXPRS_MAX = 100000,
	RULES_DEPTH_MAX = 200,    /* groups in groups; rules in rules before a character is read */
	RULES_REPEAT_MAX = 10000, /* in {m,n} */
};

enum expr_kind { EXPR_TEXT, EXPR_CLASS, EXPR_WORD, EXPR_RULE, EXPR_VALUE, EXPR_SEQ, EXPR_ALT, EXPR_REPEAT };

struct expr {
	enum expr_kind kind;
	int32_t first, next; /* SEQ, ALT, REPEAT: what is in it; -1 ends */
	int32_t rule; /* RULE: its number; VALUE: a node of the grammar's tables.  One of calls with `places` (tables.h)
	                      * names rules in its labels, and stands in one VALUE only; net_make puts their places there */
	int32_t min, max; /* REPEAT; max -1: any number */
	const char *p;    /* TEXT, p[0..n) */
	size_t n;
	int32_t range, n_range; /* CLASS: some of rules.range, by themselves */
	const struct dfa *d;    /* WORD */
	size_t at;              /* where it stands in the text */
	bool loop;              /* RULE: the rule it stands in, as its last: goes back to its beginning */
};

struct rule {
	const char *name;
	size_t n_name, at;
	int32_t body; /* -1: it was not given yet */
	bool regular; /* no rule that holds itself is in it */
};

struct rules {
	const char *text; /* for messages; NULL: made by us */
	size_t n_text;
	struct expr *expr;
	int n_expr, cap_expr;
	struct rule *rule;
	int n_rule, cap_rule;
	struct {
		uint32_t lo, hi;
	} * range;
	int n_range, cap_range;
	struct arena a; /* texts */
};

void rules_init(struct rules *r, const char *text, size_t n);
void rules_fini(struct rules *r);

/* A rule's number, made when its name is new; -1: there are too many. */
int rules_named(struct rules *r, const char *name, size_t n, size_t at);
/* A rule more, whatever others are called; copies the name.  Not bounded by RULES_MAX. */
int rules_add(struct rules *r, const char *name, size_t n, size_t at);
/* -1: there are too many. */
int expr_new(struct rules *r, enum expr_kind kind, size_t at);
int expr_text(struct rules *r, const char *p, size_t n); /* copied */
/* Adds characters to a CLASS; those of one class follow each other. */
void expr_range(struct rules *r, int e, uint32_t lo, uint32_t hi);
/* Says which rule, and where it is. */
int rules_fail(const struct rules *r, int rule, size_t at, struct err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));

/* The tables of g, whose pool is p, from rule `root` on.  Errors as gbnf_compile. */
int net_make(struct rules *r, int root, struct dfa_pool *p, struct grammar *g, struct err *err);

#endif
