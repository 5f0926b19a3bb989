/* shapes.h - what a schema allows, as sets of values that can be combined.
 *
 * For schema.c, shapes.c and grammar.c.  Every subschema is a node.  A node's set
 * lists, per type, what is allowed: automata for what has no parts, lists of
 * shapes for arrays and objects, whose parts are nodes again.  Sets are made when
 * they are asked for, so that schemas may refer to themselves; and what several
 * keywords say about one value is made one set here, so that no later code has
 * to compare two.
 *
 * All functions return 0 or an error with b->err set. */
#ifndef TEXT_SHAPES_H
#define TEXT_SHAPES_H

#include "base/json.h"
#include "text/grammar/anchors.h"
#include "text/grammar/dfa.h"
#include "text/grammar/stock.h"

enum {
	NODES_MAX = 20000,
	SHAPES_MAX = 200, /* of one type in one set */
	KEYS_MAX = 2000,  /* of one object */
	LAYERS_MAX = 64,
	PATTERNS_MAX = 16,
	NEST_MAX = 100,      /* of sets that need each other to be made */
	COUNT_MAX = 1 << 30, /* of items, characters, members; more means no limit */
};

enum { NODE_ANY, NODE_NEVER }; /* the first two nodes */

struct str_shape {
	const struct dfa *d; /* of the one spelling; NULL: any string */
	int64_t min, max;    /* characters, where d is NULL; max -1: any number */
};

struct key {
	const char *p;
	size_t n;
	int node;
};

/* The constraints of one schema on an object's members. */
struct obj_layer {
	struct key *key;
	int n_key;
	struct {
		const struct dfa *d;
		int node;
	} pattern[PATTERNS_MAX];
	int n_pattern;
	int rest; /* for members that neither properties nor patterns name */
};

struct obj_shape {
	const struct obj_layer *layer[LAYERS_MAX];
	int n_layer;
	struct key *need; /* node is not used */
	int n_need;
	int64_t min, max;
	const struct dfa *names; /* of all keys; NULL: any */
};

struct arr_layer {
	int *prefix, n_prefix, rest;
};

struct arr_shape {
	const struct arr_layer *layer[LAYERS_MAX];
	int n_layer;
	int64_t min, max;
};

struct set {
	const struct dfa *null, *boolean, *number; /* NULL: not allowed */
	struct str_shape *str;
	struct arr_shape **arr;
	struct obj_shape **obj;
	int n_str, n_arr, n_obj;
};

struct node {
	const struct json *schema; /* or the constant; NULL: all of `part` at once */
	const struct json *root;   /* where its references begin */
	const char *at;            /* JSON pointer */
	bool constant;
	bool made; /* of a set, and found by nothing */
	int *part, n_part;
	enum { SET_NONE, SET_BUSY, SET_DONE } state;
	struct set set;
};

/* Two branches of a oneOf that must have nothing in common. */
struct apart {
	int node;
	const char *at;
	int i, k;
};

struct builder {
	struct dfa_pool pool;    /* its arena holds everything here */
	const struct json *root; /* of what is read at the moment */
	struct node *node;
	int n_node, cap_node;
	int32_t *by_json, *by_part; /* open addressing, -1 empty; n_slot, a power of two, is more than twice n_node */
	uint64_t n_slot;
	struct anchors anchors;
	struct apart *apart;
	int n_apart, cap_apart;
	int depth;
	struct err *err;
	struct stock all;
};

int builder_fail(struct builder *b, int code, const char *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Fails when the pool is used up. */
int builder_check(struct builder *b, const char *at);

/* ---- shapes.c ---- */
void builder_init(struct builder *b, const struct json *root, struct err *err);
void builder_fini(struct builder *b);

/* < 0: an error. */
int node_of(struct builder *b, const struct json *schema, const char *at, bool constant);
int node_all(struct builder *b, const int *part, int n);
/* A node with that set. */
int node_made(struct builder *b, const struct set *s, const char *at);
/* The node's set is made, if it was not. */
int node_expand(struct builder *b, int node);

void set_any(struct builder *b, struct set *s);
int set_and(struct builder *b, struct set *s, const struct set *t, const char *at);
int set_or(struct builder *b, struct set *s, const struct set *t, const char *at);
/* Values in exactly one of part[0..n), which belong to no node. */
int set_one(struct builder *b, struct set *s, const struct set *const *part, int n, const char *at);
int set_not(struct builder *b, struct set *s, const struct set *t, const char *at);

/* All strings of a set as one automaton; NULL: none, or the pool is used up. */
const struct dfa *set_strings_of(struct builder *b, const struct set *s);

/* ---- schema.c ---- */
/* Reads the keywords of schema itself into *s. */
int schema_read(struct builder *b, const struct json *schema, const char *at, struct set *s);
int schema_constant(struct builder *b, const struct json *value, const char *at, struct set *s);
/* The value that a JSON pointer (as in references, %XX decoded) points to; NULL: none. */
const struct json *schema_at(const struct json *root, const char *pointer);
/* A string in the one spelling, with its quotation marks. */
void put_plain(struct buf *out, const char *p, size_t n);

#endif
