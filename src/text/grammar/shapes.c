/* shapes.c - nodes and their sets; see shapes.h. */
#include "text/grammar/shapes.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/lexeme.h"

int builder_fail(struct builder *b, int code, const char *at, const char *fmt, ...)
{
	char what[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return err_set(b->err, code, "schema%s%.120s: %s", *at ? " at " : "", at, what);
}

int builder_check(struct builder *b, const char *at)
{
	return b->pool.why ? builder_fail(b, E_LIMIT, at, "%s", b->pool.why) : 0;
}

static uint64_t hash_json(const struct json *schema)
{
	return (uint64_t)(uintptr_t)schema * 0x9E3779B97F4A7C15u >> 32;
}

static uint64_t hash_parts(const int *part, int n)
{
	uint64_t h = 7;

	for (int i = 0; i < n; i++)
		h = (h ^ (uint64_t)part[i]) * 0x9E3779B97F4A7C15u;
	return h >> 32;
}

/* The first empty slot from where this hash belongs. */
static int32_t *empty_slot(const struct builder *b, int32_t *table, uint64_t h)
{
	while (table[h & (b->n_slot - 1)] >= 0)
		h++;
	return &table[h & (b->n_slot - 1)];
}

static void slots_grow(struct builder *b)
{
	b->n_slot = b->n_slot ? 2 * b->n_slot : 256;
	b->by_json = xrealloc(b->by_json, size_mul(b->n_slot, sizeof *b->by_json));
	b->by_part = xrealloc(b->by_part, size_mul(b->n_slot, sizeof *b->by_part));
	memset(b->by_json, 0xFF, b->n_slot * sizeof *b->by_json);
	memset(b->by_part, 0xFF, b->n_slot * sizeof *b->by_part);
	for (int i = 0; i < b->n_node; i++) {
		const struct node *n = &b->node[i];

		if (n->n_part)
			*empty_slot(b, b->by_part, hash_parts(n->part, n->n_part)) = i;
		else if (!n->made)
			*empty_slot(b, b->by_json, hash_json(n->schema)) = i;
	}
}

static int new_node(struct builder *b)
{
	if (b->n_node == b->cap_node) {
		b->cap_node = b->cap_node ? 2 * b->cap_node : 64;
		b->node = xrealloc(b->node, size_mul((size_t)b->cap_node, sizeof *b->node));
	}
	if (2 * ((uint64_t)b->n_node + 1) > b->n_slot)
		slots_grow(b);
	b->node[b->n_node] = (struct node){ .at = "", .made = true };
	return b->n_node++;
}

enum { BUILDER_STEPS = 500 }; /* what a schema costs that says nothing */

void builder_init(struct builder *b, const struct json *root, struct err *err)
{
	memset(b, 0, sizeof *b);
	dfa_pool_init(&b->pool);
	b->root = root;
	b->err = err;
	b->all = *stock();
	dfa_spend(&b->pool, BUILDER_STEPS);
	new_node(b);
	new_node(b);
	b->node[NODE_ANY].state = b->node[NODE_NEVER].state = SET_DONE;
	set_any(b, &b->node[NODE_ANY].set);
}

void builder_fini(struct builder *b)
{
	dfa_pool_fini(&b->pool);
	free(b->node);
	free(b->by_json);
	free(b->by_part);
	free(b->apart);
	anchors_fini(&b->anchors);
}

/* ---- nodes ---- */

static int full(struct builder *b, const char *at)
{
	return builder_fail(b, E_LIMIT, at,
	                    "the schema has too many parts: more than %d, with those that combinations make",
	                    NODES_MAX);
}

int node_of(struct builder *b, const struct json *schema, const char *at, bool constant)
{
	uint64_t h = hash_json(schema);
	bool yes;
	int id;

	if (!constant && !json_to_bool(schema, &yes))
		return yes ? NODE_ANY : NODE_NEVER;
	if (!constant && json_kind(schema) != JSON_OBJECT)
		return builder_fail(b, E_FORMAT, at, "a schema must be an object or a boolean, and this is %s",
		                    json_kind_name(json_kind(schema)));
	if (!constant && !json_len(schema))
		return NODE_ANY;
	for (uint64_t k = h;; k++) {
		int32_t there = b->by_json[k & (b->n_slot - 1)];

		if (there < 0)
			break;
		/* null has no address of its own. */
		if (b->node[there].schema == schema && b->node[there].constant == constant && schema)
			return there;
	}
	if (b->n_node == NODES_MAX)
		return full(b, at);
	id = new_node(b);
	b->node[id].schema = schema;
	b->node[id].root = b->root;
	b->node[id].constant = constant;
	b->node[id].at = arena_strndup(&b->pool.a, at, strlen(at));
	b->node[id].made = false;
	*empty_slot(b, b->by_json, h) = id;
	return id;
}

static int by_value(const void *x, const void *y)
{
	int a = *(const int *)x, c = *(const int *)y;

	return (a > c) - (a < c);
}

int node_all(struct builder *b, const int *part, int n)
{
	int *v, m = 0, id, n_flat = 0;
	uint64_t h;

	for (int i = 0; i < n; i++)
		n_flat += b->node[part[i]].n_part ? b->node[part[i]].n_part : 1;
	v = arena_alloc(&b->pool.a, ((size_t)n_flat + 1) * sizeof *v);
	for (int i = 0; i < n; i++) {
		const struct node *q = &b->node[part[i]];

		if (part[i] == NODE_NEVER)
			return NODE_NEVER;
		for (int k = 0; k < q->n_part; k++)
			v[m++] = q->part[k];
		if (!q->n_part && part[i] != NODE_ANY)
			v[m++] = part[i];
	}
	qsort(v, (size_t)m, sizeof *v, by_value);
	n = m;
	m = 0;
	for (int i = 0; i < n; i++)
		if (!i || v[i] != v[i - 1])
			v[m++] = v[i];
	if (m < 2)
		return m ? v[0] : NODE_ANY;
	h = hash_parts(v, m);
	for (uint64_t k = h;; k++) {
		int32_t there = b->by_part[k & (b->n_slot - 1)];

		if (there < 0)
			break;
		if (b->node[there].n_part == m && !memcmp(b->node[there].part, v, (size_t)m * sizeof *v))
			return there;
	}
	if (b->n_node == NODES_MAX)
		return full(b, b->node[v[0]].at);
	id = new_node(b);
	b->node[id].part = v;
	b->node[id].n_part = m;
	b->node[id].at = b->node[v[0]].at;
	*empty_slot(b, b->by_part, h) = id;
	return id;
}

int node_made(struct builder *b, const struct set *s, const char *at)
{
	int id;

	if (b->n_node == NODES_MAX)
		return full(b, at);
	id = new_node(b);
	b->node[id].set = *s;
	b->node[id].state = SET_DONE;
	b->node[id].at = at;
	return id;
}

int node_expand(struct builder *b, int id)
{
	struct node *n = &b->node[id];
	const struct json *root = b->root;
	const char *at = n->at;
	struct set s;
	int rc = 0;

	if (n->state == SET_DONE)
		return 0;
	if (n->state == SET_BUSY)
		return builder_fail(b, E_FORMAT, at, "the schema refers to itself with nothing in between");
	if (b->depth++ == NEST_MAX)
		return builder_fail(b, E_LIMIT, at, "references and combinations are nested deeper than %d", NEST_MAX);
	n->state = SET_BUSY;
	if (n->n_part) {
		const int *part = n->part;

		for (int i = 0, m = n->n_part; i < m && !rc; i++) {
			if ((rc = node_expand(b, part[i])))
				break;
			if (i)
				rc = set_and(b, &s, &b->node[part[i]].set, at);
			else
				s = b->node[part[i]].set;
		}
	} else {
		b->root = n->root;
		rc = n->constant ? schema_constant(b, n->schema, at, &s) : schema_read(b, n->schema, at, &s);
		b->root = root;
	}
	if (!rc)
		rc = builder_check(b, at);
	b->depth--;
	if (rc)
		return rc;
	b->node[id].set = s; /* the table may have moved */
	b->node[id].state = SET_DONE;
	return 0;
}

/* ---- sets ---- */

static void *list(struct builder *b, size_t n, size_t size)
{
	dfa_spend(&b->pool, n * size / 256 + 1);
	return arena_zalloc(&b->pool.a, size_mul(n + 1, size));
}

void set_any(struct builder *b, struct set *s)
{
	struct obj_layer *ol = list(b, 1, sizeof *ol);
	struct arr_layer *al = list(b, 1, sizeof *al);

	*s = (struct set){ .null = b->all.null, .boolean = b->all.boolean, .number = b->all.number };
	ol->rest = al->rest = NODE_ANY;
	s->str = list(b, 1, sizeof *s->str);
	s->str[0] = (struct str_shape){ .max = -1 };
	s->arr = list(b, 1, sizeof *s->arr);
	s->arr[0] = list(b, 1, sizeof **s->arr);
	*s->arr[0] = (struct arr_shape){ .layer = { al }, .n_layer = 1, .max = -1 };
	s->obj = list(b, 1, sizeof *s->obj);
	s->obj[0] = list(b, 1, sizeof **s->obj);
	*s->obj[0] = (struct obj_shape){ .layer = { ol }, .n_layer = 1, .max = -1 };
	s->n_str = s->n_arr = s->n_obj = 1;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static const struct dfa *both(struct builder *b, const struct dfa *x, const struct dfa *y)
{
	const struct dfa *d = x && y ? dfa_and(&b->pool, x, y) : NULL;

	return d && d->n ? d : NULL;
}

/* False: nothing is left. */
static bool str_and(struct builder *b, const struct str_shape *x, const struct str_shape *y, struct str_shape *out)
{
	*out = (struct str_shape){ .max = -1 };
	if (!x->d && !y->d) {
		out->min = most(x->min, y->min);
		out->max = least(x->max, y->max);
		return out->max < 0 || out->min <= out->max;
	}
	if (x->d && y->d) {
		out->d = dfa_and(&b->pool, x->d, y->d);
	} else {
		const struct str_shape *d = x->d ? x : y, *n = x->d ? y : x;

		out->d = n->min || n->max >= 0 ? lexeme_length(&b->pool, d->d, n->min, n->max) : d->d;
	}
	return out->d && out->d->n;
}

const struct dfa *set_strings_of(struct builder *b, const struct set *s)
{
	const struct dfa *d = NULL;

	for (int i = 0; i < s->n_str; i++) {
		const struct str_shape *x = &s->str[i];
		const struct dfa *one = x->d;

		if (!one)
			one = x->min || x->max >= 0 ? lexeme_length(&b->pool, b->all.plain, x->min, x->max) :
			                              b->all.plain;
		d = d ? dfa_or(&b->pool, d, one) : one;
	}
	return d;
}

static void set_strings(struct builder *b, struct set *s, const struct dfa *d)
{
	s->n_str = d && d->n;
	s->str = list(b, 1, sizeof *s->str);
	s->str[0] = (struct str_shape){ .d = d, .max = -1 };
}

static struct arr_shape *arr_and(struct builder *b, const struct arr_shape *x, const struct arr_shape *y)
{
	struct arr_shape *out = list(b, 1, sizeof *out);

	if (x->n_layer + y->n_layer > LAYERS_MAX) {
		b->pool.why = "too many array schemas meet here";
		return NULL;
	}
	*out = *x;
	memcpy(out->layer + x->n_layer, y->layer, (size_t)y->n_layer * sizeof *y->layer);
	out->n_layer += y->n_layer;
	out->min = most(x->min, y->min);
	out->max = least(x->max, y->max);
	return out->max >= 0 && out->min > out->max ? NULL : out;
}

static struct obj_shape *obj_and(struct builder *b, const struct obj_shape *x, const struct obj_shape *y)
{
	struct obj_shape *out = list(b, 1, sizeof *out);

	if (x->n_layer + y->n_layer > LAYERS_MAX || x->n_need + y->n_need > KEYS_MAX) {
		b->pool.why = "too many object schemas meet here";
		return NULL;
	}
	*out = *x;
	memcpy(out->layer + x->n_layer, y->layer, (size_t)y->n_layer * sizeof *y->layer);
	out->n_layer += y->n_layer;
	out->need = list(b, (size_t)(x->n_need + y->n_need), sizeof *out->need);
	if (x->n_need)
		memcpy(out->need, x->need, (size_t)x->n_need * sizeof *x->need);
	if (y->n_need)
		memcpy(out->need + x->n_need, y->need, (size_t)y->n_need * sizeof *y->need);
	out->n_need += y->n_need;
	out->min = most(x->min, y->min);
	out->max = least(x->max, y->max);
	out->names = x->names && y->names ? dfa_and(&b->pool, x->names, y->names) : x->names ? x->names : y->names;
	return out->max >= 0 && out->min > out->max ? NULL : out;
}

static int too_many(struct builder *b, const char *at)
{
	return builder_fail(b, E_LIMIT, at, "more than %d alternatives of one type meet here", SHAPES_MAX);
}

int set_and(struct builder *b, struct set *s, const struct set *t, const char *at)
{
	struct set out = { .null = both(b, s->null, t->null),
		           .boolean = both(b, s->boolean, t->boolean),
		           .number = both(b, s->number, t->number) };
	const struct set *any = &b->node[NODE_ANY].set;

	if (s->n_str * t->n_str > SHAPES_MAX || s->n_arr * t->n_arr > SHAPES_MAX || s->n_obj * t->n_obj > SHAPES_MAX)
		return too_many(b, at);
	out.str = list(b, (size_t)(s->n_str * t->n_str), sizeof *out.str);
	out.arr = list(b, (size_t)(s->n_arr * t->n_arr), sizeof *out.arr);
	out.obj = list(b, (size_t)(s->n_obj * t->n_obj), sizeof *out.obj);
	for (int i = 0; i < s->n_str; i++)
		for (int k = 0; k < t->n_str; k++)
			out.n_str += str_and(b, &s->str[i], &t->str[k], &out.str[out.n_str]);
	/* A layer without constraints leaves the other as it is. */
	for (int i = 0; i < s->n_arr; i++)
		for (int k = 0; k < t->n_arr; k++) {
			struct arr_shape *a = s->arr[i] == any->arr[0] || s->arr[i] == t->arr[k] ? t->arr[k] :
			                      t->arr[k] == any->arr[0]                           ? s->arr[i] :
			                                                 arr_and(b, s->arr[i], t->arr[k]);

			if (a)
				out.arr[out.n_arr++] = a;
		}
	for (int i = 0; i < s->n_obj; i++)
		for (int k = 0; k < t->n_obj; k++) {
			struct obj_shape *o = s->obj[i] == any->obj[0] || s->obj[i] == t->obj[k] ? t->obj[k] :
			                      t->obj[k] == any->obj[0]                           ? s->obj[i] :
			                                                 obj_and(b, s->obj[i], t->obj[k]);

			if (o)
				out.obj[out.n_obj++] = o;
		}
	*s = out;
	return builder_check(b, at);
}

static const struct dfa *either(struct builder *b, const struct dfa *x, const struct dfa *y)
{
	return x && y ? dfa_or(&b->pool, x, y) : x ? x : y;
}

int set_or(struct builder *b, struct set *s, const struct set *t, const char *at)
{
	struct set out = { .null = either(b, s->null, t->null),
		           .boolean = either(b, s->boolean, t->boolean),
		           .number = either(b, s->number, t->number) };

	if (s->n_str + t->n_str > SHAPES_MAX || s->n_arr + t->n_arr > SHAPES_MAX || s->n_obj + t->n_obj > SHAPES_MAX)
		return too_many(b, at);
	out.str = list(b, (size_t)(s->n_str + t->n_str), sizeof *out.str);
	out.arr = list(b, (size_t)(s->n_arr + t->n_arr), sizeof *out.arr);
	out.obj = list(b, (size_t)(s->n_obj + t->n_obj), sizeof *out.obj);
	for (int i = 0; i < s->n_str + t->n_str; i++) {
		const struct str_shape *x = i < s->n_str ? &s->str[i] : &t->str[i - s->n_str];
		bool there = false;

		for (int k = 0; k < out.n_str; k++)
			there |= !memcmp(&out.str[k], x, sizeof *x);
		if (!there)
			out.str[out.n_str++] = *x;
	}
	for (int i = 0; i < s->n_arr + t->n_arr; i++) {
		struct arr_shape *x = i < s->n_arr ? s->arr[i] : t->arr[i - s->n_arr];
		bool there = false;

		for (int k = 0; k < out.n_arr; k++)
			there |= out.arr[k] == x;
		if (!there)
			out.arr[out.n_arr++] = x;
	}
	for (int i = 0; i < s->n_obj + t->n_obj; i++) {
		struct obj_shape *x = i < s->n_obj ? s->obj[i] : t->obj[i - s->n_obj];
		bool there = false;

		for (int k = 0; k < out.n_obj; k++)
			there |= out.obj[k] == x;
		if (!there)
			out.obj[out.n_obj++] = x;
	}
	*s = out;
	return builder_check(b, at);
}

/* ---- exactly one ---- */

static bool says_nothing_arr(const struct arr_shape *a)
{
	for (int i = 0; i < a->n_layer; i++)
		if (a->layer[i]->n_prefix || a->layer[i]->rest != NODE_ANY)
			return false;
	return !a->min && a->max < 0;
}

static bool says_nothing_obj(const struct obj_shape *o)
{
	for (int i = 0; i < o->n_layer; i++)
		if (o->layer[i]->n_key || o->layer[i]->n_pattern || o->layer[i]->rest != NODE_ANY)
			return false;
	return !o->min && o->max < 0 && !o->n_need && !o->names;
}

/* The language of texts that are in exactly one of d[0..n); NULL stands for the empty language. */
static const struct dfa *once(struct builder *b, const struct dfa *const *d, int n)
{
	const struct dfa *one = NULL, *more = NULL;

	for (int i = 0; i < n; i++) {
		if (!d[i])
			continue;
		if (one)
			more = either(b, more, both(b, one, d[i]));
		one = either(b, one, d[i]);
	}
	if (one && more)
		one = dfa_minus(&b->pool, one, more);
	return one && one->n ? one : NULL;
}

/* A node of what two sets have in common, arrays and objects only; it must turn
 * out that nothing can be in it. */
static int keep_apart(struct builder *b, const struct set *x, const struct set *y, const char *at, int i, int k)
{
	struct set s = { .arr = x->arr, .n_arr = x->n_arr, .obj = x->obj, .n_obj = x->n_obj };
	struct set t = { .arr = y->arr, .n_arr = y->n_arr, .obj = y->obj, .n_obj = y->n_obj };
	int rc = set_and(b, &s, &t, at), id;

	if (rc || (!s.n_arr && !s.n_obj))
		return rc;
	if ((id = node_made(b, &s, at)) < 0)
		return id;
	if (b->n_apart == b->cap_apart) {
		b->cap_apart = b->cap_apart ? 2 * b->cap_apart : 16;
		b->apart = xrealloc(b->apart, size_mul((size_t)b->cap_apart, sizeof *b->apart));
	}
	b->apart[b->n_apart++] = (struct apart){ id, at, i, k };
	return 0;
}

int set_one(struct builder *b, struct set *s, const struct set *const *part, int n, const char *at)
{
	const struct dfa **d = list(b, (size_t)n, sizeof *d);
	struct set out = { 0 }, *kept = list(b, (size_t)n, sizeof *kept);
	int rc = 0, with = 0, all_arr = 0, all_obj = 0, numbers = 0;

	for (int i = 0; i < n; i++)
		d[i] = part[i]->null;
	out.null = once(b, d, n);
	for (int i = 0; i < n; i++)
		d[i] = part[i]->boolean;
	out.boolean = once(b, d, n);
	for (int i = 0; i < n; i++) {
		d[i] = part[i]->number;
		numbers += d[i] != NULL;
	}
	/* A number that is spelled two ways must be in the same branches by both. */
	for (int i = 0; i < n && numbers > 1; i++)
		d[i] = d[i] ? both(b, d[i], b->all.once) : NULL;
	out.number = once(b, d, n);
	for (int i = 0; i < n; i++) {
		bool arr = false, obj = false;

		for (int k = 0; k < part[i]->n_arr; k++)
			arr |= says_nothing_arr(part[i]->arr[k]);
		for (int k = 0; k < part[i]->n_obj; k++)
			obj |= says_nothing_obj(part[i]->obj[k]);
		all_arr += arr;
		all_obj += obj;
	}
	/* A value that two branches allow without constraint is never valid, whatever the others say. */
	for (int i = 0; i < n; i++) {
		struct set shapes = { .arr = part[i]->arr,
			              .n_arr = all_arr < 2 ? part[i]->n_arr : 0,
			              .obj = part[i]->obj,
			              .n_obj = all_obj < 2 ? part[i]->n_obj : 0 };

		kept[i] = shapes;
		for (int k = 0; k < i && !rc; k++)
			rc = keep_apart(b, &kept[k], &kept[i], at, k, i);
		if (rc || (rc = set_or(b, &out, &shapes, at)))
			return rc;
		with += part[i]->n_str > 0;
	}
	for (int i = 0; i < n; i++) {
		if (with == 1 && part[i]->n_str) {
			out.str = part[i]->str;
			out.n_str = part[i]->n_str;
		}
		d[i] = with > 1 ? set_strings_of(b, part[i]) : NULL;
	}
	if (with > 1)
		set_strings(b, &out, once(b, d, n));
	*s = out;
	return builder_check(b, at);
}

/* ---- not ---- */

static const struct dfa *without(struct builder *b, const struct dfa *all, const struct dfa *x)
{
	const struct dfa *d = x ? dfa_minus(&b->pool, all, x) : all;

	return d && d->n ? d : NULL;
}

int set_not(struct builder *b, struct set *s, const struct set *t, const char *at)
{
	const struct set *any = &b->node[NODE_ANY].set;
	struct set out = { .null = without(b, b->all.null, t->null),
		           .boolean = without(b, b->all.boolean, t->boolean),
		           .number = t->number ? without(b, b->all.once, t->number) : b->all.number };
	bool all_arr = false, all_obj = false;

	for (int i = 0; i < t->n_arr; i++)
		all_arr |= says_nothing_arr(t->arr[i]);
	for (int i = 0; i < t->n_obj; i++)
		all_obj |= says_nothing_obj(t->obj[i]);
	if ((t->n_arr && !all_arr) || (t->n_obj && !all_obj))
		return builder_fail(b, E_UNSUPPORTED, at, "\"not\" of a schema that looks inside %s is not supported",
		                    t->n_obj && !all_obj ? "objects (it says nothing of \"type\", or \"object\")" :
		                                           "arrays");
	if (!t->n_arr) {
		out.arr = any->arr;
		out.n_arr = any->n_arr;
	}
	if (!t->n_obj) {
		out.obj = any->obj;
		out.n_obj = any->n_obj;
	}
	if (t->n_str) {
		set_strings(b, &out, without(b, b->all.plain, set_strings_of(b, t)));
	} else {
		out.str = any->str;
		out.n_str = any->n_str;
	}
	*s = out;
	return builder_check(b, at);
}
