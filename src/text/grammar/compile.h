/* compile.h - a grammar while it is made of sets (shapes.h).
 *
 * For grammar.c, which makes tables of schemas, and calls_grammar.c, which puts
 * calls of tools around them. */
#ifndef TEXT_COMPILE_H
#define TEXT_COMPILE_H

#include "text/grammar/shapes.h"
#include "text/grammar/tables.h"

/* An object with all that its layers say put together. */
struct obj_plan {
	struct key *key; /* node: all that is said of its value */
	bool *need;
	int n_key;
	const struct dfa *names; /* of all other members; label: index of their node */
	int *other;
	int n_other;
	bool any_name; /* no name is told from another but the properties' */
	int64_t min, max;
};

struct arr_plan {
	int *prefix, n_prefix, rest;
	int64_t min, max;
};

struct planned {
	struct obj_plan *obj; /* [set.n_obj] */
	struct arr_plan *arr; /* [set.n_arr] */
	bool *obj_ok, *arr_ok;
	bool ok; /* some value is in it */
};

struct compiler {
	struct builder b;
	struct planned *plan; /* [b.n_node] */
	int n_plan, cap_plan;
	bool *used;          /* [n_plan] it is in the grammar: compiler_use */
	int32_t *id;         /* of the nodes that are kept */
	const char *counted; /* where an object has no value because unnamed members do not count; NULL: nowhere */
	bool python;         /* None, True and False are written so */
	bool gemma;          /* strings are between GEMMA_QUOTEs, keys are bare where they can be */
	const struct dfa *bare_any; /* any string as the bare text of the dialect at hand; NULL: not made yet */
	const struct dfa
		*otherwise[16];  /* strings that bare text does not give back, by reading (dialect.h); 0: that spell
	                                  * the end of a value; NULL: not made yet */
	const struct dfa *names; /* Gemma's keys that no schema names; NULL: not made yet */
};

static inline uint32_t limit(int64_t n)
{
	return n < 0 ? NO_LIMIT : (uint32_t)n;
}

/* Plans all nodes that there are, and those that this makes.  Later: which of them
 * some value fulfils. */
int compiler_plan(struct compiler *c);
int compiler_find_ok(struct compiler *c);
/* The error of a root that no value fulfils, for which `why` is the reason unless something that is not done is. */
int compiler_no_value(struct compiler *c, const char *why);

struct grammar *compiler_grammar(void);
/* Puts a tool in front of g's list of grammar_let_go, if its parameters have a rule. */
void compiler_let_go(struct compiler *c, struct grammar *g, const char *name, const struct json *parameters);
/* node, and all that values of it hold, are in the grammar; others get no tables. */
void compiler_use(struct compiler *c, int node);
/* Writes the tables into g.  root: a node, or -1; extra: nodes and shapes to reserve room for beyond those there
 * are. */
int compiler_tables(struct compiler *c, struct grammar *g, int root, size_t extra);
/* Takes over all that c made; frees it after an error. */
int compiler_finish(struct compiler *c, struct grammar *g, int rc, struct grammar **out);

void shape_word(struct shape *s, const struct dfa *d);
/* Fills an object's shape: label_at, label and other_at; next_need and n_need.  spelled: [s->n_node] keys as d has
 * them. */
void shape_labels(struct builder *b, struct shape *s, const struct key *spelled);
void shape_needs(struct shape *s, const struct obj_plan *p, const int *key_of);

#define GEMMA_QUOTE "\xF8" /* the first of the marks (grammar.h) */

#endif
