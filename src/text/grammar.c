/* grammar.c - from sets (shapes.h) to the tables of an automaton (tables.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "text/dialect.h"
#include "text/lexeme.h"
#include "text/shapes.h"
#include "text/tables.h"

/* An object with all that its layers say put together. */
struct obj_plan {
	struct key *key;                /* node: all that is said of its value */
	bool *need;
	int n_key;
	const struct dfa *names;        /* of all other members; label: index of their node */
	int *other;
	int n_other;
	bool any_name;                  /* no name is told from another but the properties' */
	int64_t min, max;
};

struct arr_plan {
	int *prefix, n_prefix, rest;
	int64_t min, max;
};

struct planned {
	struct obj_plan *obj;           /* [set.n_obj] */
	struct arr_plan *arr;           /* [set.n_arr] */
	bool *obj_ok, *arr_ok;
	bool ok;                        /* some value is in it */
};

struct compiler {
	struct builder b;
	struct planned *plan;           /* [b.n_node], grows with it */
	int n_plan;
	int32_t *id;                    /* of the nodes that are kept */
};

/* ---- objects ---- */

static int find_key(const struct key *key, int n, const struct key *k)
{
	for (int i = 0; i < n; i++)
		if (key[i].n == k->n && !memcmp(key[i].p, k->p, k->n))
			return i;
	return -1;
}

static bool key_matches(const struct dfa *d, const struct key *k)
{
	struct buf text;
	bool yes;

	buf_init(&text);
	put_plain(&text, k->p, k->n);
	yes = dfa_match(d, text.p, text.n) >= 0;
	buf_fini(&text);
	return yes;
}

/* All that the layers say of one key. */
static int node_of_key(struct builder *b, const struct obj_shape *o, const struct key *k)
{
	int part[LAYERS_MAX * (PATTERNS_MAX + 1)], n = 0;

	if (o->names && !key_matches(o->names, k))
		return NODE_NEVER;
	for (int i = 0; i < o->n_layer; i++) {
		const struct obj_layer *l = o->layer[i];
		int at = find_key(l->key, l->n_key, k), before = n;

		if (at >= 0)
			part[n++] = l->key[at].node;
		for (int p = 0; p < l->n_pattern; p++)
			if (key_matches(l->pattern[p].d, k))
				part[n++] = l->pattern[p].node;
		if (n == before)
			part[n++] = l->rest;
	}
	return node_all(b, part, n);
}

/* Keys that are none of the properties, by what is said of their values. */
static int plan_others(struct builder *b, const struct obj_shape *o, struct obj_plan *p, const char *at)
{
	const struct dfa *pattern[30];
	int32_t kinds[256];
	int n_pattern = 0, n_kind = 0;
	struct dfa *d;

	for (int i = 0; i < o->n_layer; i++)
		for (int k = 0; k < o->layer[i]->n_pattern; k++) {
			int j = 0;

			while (j < n_pattern && pattern[j] != o->layer[i]->pattern[k].d)
				j++;
			if (j == 30)
				return builder_fail(b, E_LIMIT, at, "too many key patterns meet here");
			if (j == n_pattern)
				pattern[n_pattern++] = o->layer[i]->pattern[k].d;
		}
	if (!n_pattern && !o->names && !p->n_key) {
		/* Nothing to tell apart: any spelling will do. */
		d = (struct dfa *)(uintptr_t)b->all.string;
		kinds[n_kind++] = 0;
	} else {
		d = dfa_and(&b->pool, o->names ? o->names : b->all.plain, b->all.plain);
		d = d ? dfa_relabel(&b->pool, d, (const int32_t[1]){ 0 }) : NULL;
		for (int i = 0; i < n_pattern; i++)
			d = dfa_mark(&b->pool, d, pattern[i], i);
		for (int s = 0; d && s < d->n; s++) {
			int k = 0;

			if (d->label[s] < 0)
				continue;
			while (k < n_kind && kinds[k] != d->label[s])
				k++;
			if (k == 256)
				return builder_fail(b, E_LIMIT, at, "too many key patterns meet here");
			if (k == n_kind)
				kinds[n_kind++] = d->label[s];
			d->label[s] = k;        /* the automaton is ours: relabel made it */
		}
	}
	if (builder_check(b, at))
		return E_LIMIT;
	p->any_name = !n_pattern && !o->names;
	p->names = d;
	p->other = arena_zalloc(&b->pool.a, ((size_t)n_kind + 1) * sizeof *p->other);
	p->n_other = n_kind;
	for (int k = 0; k < n_kind; k++) {
		int part[LAYERS_MAX * (PATTERNS_MAX + 1)], n = 0;

		for (int i = 0; i < o->n_layer; i++) {
			const struct obj_layer *l = o->layer[i];
			int before = n;

			for (int j = 0; j < l->n_pattern; j++)
				for (int q = 0; q < n_pattern; q++)
					if (pattern[q] == l->pattern[j].d && kinds[k] >> q & 1)
						part[n++] = l->pattern[j].node;
			if (n == before)
				part[n++] = l->rest;
		}
		if ((p->other[k] = node_all(b, part, n)) < 0)
			return p->other[k];
	}
	return 0;
}

static int plan_object(struct builder *b, const struct obj_shape *o, struct obj_plan *p, const char *at)
{
	int most = o->n_need;

	for (int i = 0; i < o->n_layer; i++)
		most += o->layer[i]->n_key;
	if (most > 2 * KEYS_MAX)
		return builder_fail(b, E_LIMIT, at, "more than %d properties meet here", 2 * KEYS_MAX);
	p->key = arena_zalloc(&b->pool.a, ((size_t)most + 1) * sizeof *p->key);
	p->need = arena_zalloc(&b->pool.a, (size_t)most + 1);
	p->min = o->min;
	p->max = o->max;
	for (int i = 0; i < o->n_layer; i++)
		for (int k = 0; k < o->layer[i]->n_key; k++)
			if (find_key(p->key, p->n_key, &o->layer[i]->key[k]) < 0)
				p->key[p->n_key++] = o->layer[i]->key[k];
	for (int i = 0; i < o->n_need; i++) {
		int at_key = find_key(p->key, p->n_key, &o->need[i]);

		if (at_key < 0)
			p->key[at_key = p->n_key++] = o->need[i];
		p->need[at_key] = true;
	}
	for (int i = 0; i < p->n_key; i++)
		if ((p->key[i].node = node_of_key(b, o, &p->key[i])) < 0)
			return p->key[i].node;
	return plan_others(b, o, p, at);
}

/* ---- arrays ---- */

static int item_node(struct builder *b, const struct arr_shape *a, int i)
{
	int part[LAYERS_MAX];

	for (int k = 0; k < a->n_layer; k++)
		part[k] = i < a->layer[k]->n_prefix ? a->layer[k]->prefix[i] : a->layer[k]->rest;
	return node_all(b, part, a->n_layer);
}

static int plan_array(struct builder *b, const struct arr_shape *a, struct arr_plan *p)
{
	p->min = a->min;
	p->max = a->max;
	for (int i = 0; i < a->n_layer; i++)
		if (a->layer[i]->n_prefix > p->n_prefix)
			p->n_prefix = a->layer[i]->n_prefix;
	p->prefix = arena_zalloc(&b->pool.a, ((size_t)p->n_prefix + 1) * sizeof *p->prefix);
	for (int i = 0; i < p->n_prefix; i++)
		if ((p->prefix[i] = item_node(b, a, i)) < 0)
			return p->prefix[i];
	p->rest = item_node(b, a, p->n_prefix);
	return p->rest < 0 ? p->rest : 0;
}

/* ---- all nodes ---- */

static int plan_node(struct compiler *c, int id)
{
	struct builder *b = &c->b;
	struct planned *p;
	struct set s;
	const char *at;
	int rc = node_expand(b, id);

	if (rc)
		return rc;
	s = b->node[id].set;
	at = b->node[id].at;
	p = &c->plan[id];
	p->obj = arena_zalloc(&b->pool.a, ((size_t)s.n_obj + 1) * sizeof *p->obj);
	p->arr = arena_zalloc(&b->pool.a, ((size_t)s.n_arr + 1) * sizeof *p->arr);
	p->obj_ok = arena_zalloc(&b->pool.a, (size_t)s.n_obj + 1);
	p->arr_ok = arena_zalloc(&b->pool.a, (size_t)s.n_arr + 1);
	for (int i = 0; i < s.n_obj && !rc; i++)
		rc = plan_object(b, s.obj[i], &p->obj[i], at);
	for (int i = 0; i < s.n_arr && !rc; i++)
		rc = plan_array(b, s.arr[i], &p->arr[i]);
	return rc;
}

/* Nodes are numbered as they are made, and planning one may make more. */
static int plan_all(struct compiler *c)
{
	int rc = 0;

	if (!c->plan)
		c->plan = xcalloc(NODES_MAX, sizeof *c->plan);
	for (; c->n_plan < c->b.n_node && !rc; c->n_plan++)
		rc = plan_node(c, c->n_plan);
	return rc;
}

/* ---- which of them some value fulfils ---- */

static bool obj_ok(const struct compiler *c, const struct obj_plan *p)
{
	int64_t can = 0, must = 0;
	bool more = false;

	for (int i = 0; i < p->n_key; i++) {
		bool ok = c->plan[p->key[i].node].ok;

		if (p->need[i] && !ok)
			return false;
		can += ok;
		must += p->need[i];
	}
	for (int i = 0; i < p->n_other; i++)
		more |= c->plan[p->other[i]].ok;
	/* Of other members one is sure to count: several might have one name. */
	return (p->max < 0 || must <= p->max) && p->min <= can + more;
}

/* How many items there can be; -1: any number. */
static int64_t arr_room(const struct compiler *c, const struct arr_plan *p)
{
	for (int i = 0; i < p->n_prefix; i++)
		if (!c->plan[p->prefix[i]].ok)
			return i;
	return c->plan[p->rest].ok ? -1 : p->n_prefix;
}

static void find_ok(struct compiler *c)
{
	bool again = true;

	while (again) {
		again = false;
		for (int id = 0; id < c->n_plan; id++) {
			const struct set *s = &c->b.node[id].set;
			struct planned *p = &c->plan[id];
			bool ok = s->null || s->boolean || s->number || s->n_str;

			for (int i = 0; i < s->n_obj; i++)
				ok |= p->obj_ok[i] = obj_ok(c, &p->obj[i]);
			for (int i = 0; i < s->n_arr; i++) {
				int64_t room = arr_room(c, &p->arr[i]);

				ok |= p->arr_ok[i] = room < 0 || p->arr[i].min <= room;
			}
			again |= ok != p->ok;
			p->ok = ok;
		}
	}
}

static int check_apart(struct compiler *c)
{
	for (int i = 0; i < c->b.n_apart; i++) {
		const struct apart *a = &c->b.apart[i];

		if (c->plan[a->node].ok)
			return builder_fail(&c->b, E_UNSUPPORTED, a->at,
			                    "an array or object can be in branch %d and in branch %d; \"oneOf\" of such is not "
			                    "supported (use \"anyOf\", or tell them apart by a constant)", a->i, a->k);
	}
	return 0;
}

/* ---- tables ---- */

static uint32_t limit(int64_t n) { return n < 0 ? NO_LIMIT : (uint32_t)n; }

/* For every state which labels can be reached: properties, and whether others can.
 * The part of the automaton that spells properties is a tree, so that lists are
 * short: a property is in those of the states that its own letters lead through. */
static void label_states(struct builder *b, struct shape *s, const struct key *key, const int *key_of,
                         void (*spell)(struct buf *out, const char *p, size_t n))
{
	const struct dfa *d = s->d;
	int32_t *n_at = xcalloc((size_t)d->n + 2, sizeof *n_at);
	struct buf text;
	bool again = true;

	s->other_at = arena_zalloc(&b->pool.a, (size_t)d->n + 1);
	for (int q = 0; q < d->n; q++)
		s->other_at[q] = d->label[q] >= s->n_node;
	while (again) {
		again = false;
		for (int q = d->n - 1; q >= 0; q--)
			for (int c = 0; c < d->n_cls && !s->other_at[q]; c++) {
				int t = d->next[q * d->n_cls + c];

				if (t >= 0 && s->other_at[t])
					again = s->other_at[q] = true;
			}
	}
	buf_init(&text);
	for (int fill = 0; fill < 2; fill++) {
		for (int i = 0; i < s->n_node; i++) {
			int q = 0;

			buf_reset(&text);
			spell(&text, key[key_of[i]].p, key[key_of[i]].n);
			for (size_t k = 0; k <= text.n; k++) {
				if (fill)
					s->label[n_at[q]++] = i;
				else
					n_at[q + 1]++;
				if (k < text.n)
					q = dfa_step(d, q, (uint8_t)text.p[k]);
			}
		}
		if (!fill) {
			for (int q = 0; q < d->n; q++)
				n_at[q + 1] += n_at[q];
			s->label_at = arena_zalloc(&b->pool.a, ((size_t)d->n + 1) * sizeof *s->label_at);
			memcpy(s->label_at, n_at, ((size_t)d->n + 1) * sizeof *s->label_at);
			s->label = arena_zalloc(&b->pool.a, ((size_t)n_at[d->n] + 1) * sizeof *s->label);
		}
	}
	buf_fini(&text);
	free(n_at);
}

/* See shape.plain_at: d and `plain` are walked together. */
static void twin_states(struct builder *b, struct shape *s)
{
	const struct dfa *d = s->d, *plain = b->all.plain;
	int32_t *at = arena_alloc(&b->pool.a, ((size_t)d->n + 1) * sizeof *at);
	int32_t *todo = xmalloc(size_mul((size_t)d->n + 1, sizeof *todo));
	int n = 1;

	memset(at, 0xFF, (size_t)d->n * sizeof *at);
	at[0] = todo[0] = 0;
	for (int i = 0; i < n; i++) {
		int q = todo[i];

		for (int c = 0; c < 256; c++) {
			int to = dfa_step(d, q, (uint8_t)c);

			if (to < 0 || at[to] >= 0)
				continue;
			at[to] = dfa_step(plain, at[q], (uint8_t)c);
			todo[n++] = to;
		}
	}
	free(todo);
	s->plain_at = at;
}

/* From each member on: the next one that must be there, and how many of these are left.
 * key_of says which of p's keys a member of s is. */
static void count_needs(struct shape *s, const struct obj_plan *p, const int *key_of)
{
	s->next_need[s->n_node] = s->n_node;
	for (int i = s->n_node; i-- > 0;) {
		bool need = p->need[key_of[i]];

		s->next_need[i] = need ? i : s->next_need[i + 1];
		s->n_need[i] = s->n_need[i + 1] + need;
	}
}

static int make_object(struct compiler *c, const struct obj_plan *p, struct shape *s, const char *at)
{
	struct builder *b = &c->b;
	struct texts mine, all;
	int32_t *map = arena_zalloc(&b->pool.a, ((size_t)p->n_other + 1) * sizeof *map);
	int *key_of = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *key_of);
	const struct dfa *others, *keys;
	struct buf text;

	*s = (struct shape){ .kind = SHAPE_OBJECT, .min = limit(p->min), .max = limit(p->max) };
	s->node = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *s->node);
	s->other = arena_zalloc(&b->pool.a, ((size_t)p->n_other + 1) * sizeof *s->other);
	s->next_need = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *s->next_need);
	s->n_need = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *s->n_need);
	texts_init(&mine);
	texts_init(&all);
	buf_init(&text);
	for (int i = 0; i < p->n_key; i++) {
		buf_reset(&text);
		put_plain(&text, p->key[i].p, p->key[i].n);
		texts_put(&all, text.p, text.n, 0);
		if (!c->plan[p->key[i].node].ok)
			continue;
		texts_put(&mine, text.p, text.n, s->n_node);
		key_of[s->n_node] = i;
		s->node[s->n_node++] = c->id[p->key[i].node];
	}
	buf_fini(&text);
	count_needs(s, p, key_of);
	for (int i = 0; i < p->n_other; i++) {
		map[i] = c->plan[p->other[i]].ok ? s->n_node + s->n_other : -1;
		if (map[i] >= 0)
			s->other[s->n_other++] = c->id[p->other[i]];
	}
	keys = texts_finish(&b->pool, &mine);
	others = texts_finish(&b->pool, &all);
	/* Any string's automaton stays the one it is: its masks are shared. */
	if (p->n_key || p->names != b->all.string || !s->n_other) {
		others = p->n_key ? dfa_minus(&b->pool, p->names, others) : p->names;
		if (others)
			others = dfa_relabel(&b->pool, others, map);
		others = p->n_key ? dfa_or(&b->pool, keys, others) : others;
	} else {
		others = p->names;
	}
	if (builder_check(b, at))
		return E_LIMIT;
	s->d = others;
	label_states(b, s, p->key, key_of, put_plain);
	if (p->any_name && s->n_other && others != b->all.string)
		twin_states(b, s);
	return 0;
}

static void make_array(struct compiler *c, const struct arr_plan *p, struct shape *s)
{
	int64_t room = arr_room(c, p), max = p->max < 0 ? room : room < 0 || p->max < room ? p->max : room;

	*s = (struct shape){ .kind = SHAPE_ARRAY, .min = limit(p->min), .max = limit(max) };
	s->node = arena_zalloc(&c->b.pool.a, ((size_t)p->n_prefix + 1) * sizeof *s->node);
	for (int i = 0; i < p->n_prefix && (max < 0 || i < max); i++)
		s->node[s->n_node++] = c->id[p->prefix[i]];
	s->rest = c->id[p->rest];
}

static void make_word(struct shape *s, const struct dfa *d) { *s = (struct shape){ .kind = SHAPE_WORD, .d = d }; }

static int make_node(struct compiler *c, struct grammar *g, int id)
{
	const struct set *set = &c->b.node[id].set;
	const struct planned *p = &c->plan[id];
	int rc = 0;

	if (set->null)
		make_word(&g->shape[g->n_shape++], set->null);
	if (set->boolean)
		make_word(&g->shape[g->n_shape++], set->boolean);
	if (set->number)
		make_word(&g->shape[g->n_shape++], set->number);
	for (int i = 0; i < set->n_str; i++) {
		const struct str_shape *x = &set->str[i];
		struct shape *s = &g->shape[g->n_shape++];

		make_word(s, x->d ? x->d : g->string);
		s->counted = !x->d && (x->min || x->max >= 0);
		s->min = limit(x->min);
		s->max = limit(x->max);
	}
	for (int i = 0; i < set->n_arr; i++)
		if (p->arr_ok[i])
			make_array(c, &p->arr[i], &g->shape[g->n_shape++]);
	for (int i = 0; i < set->n_obj && !rc; i++)
		if (p->obj_ok[i])
			rc = make_object(c, &p->obj[i], &g->shape[g->n_shape++], c->b.node[id].at);
	return rc;
}

/* extra: room for so many more nodes and shapes. */
static int make_tables(struct compiler *c, struct grammar *g, int root, size_t extra)
{
	struct builder *b = &c->b;
	size_t n_shape = 0;
	int rc = 0;

	c->id = xmalloc(size_mul((size_t)c->n_plan, sizeof *c->id));
	for (int id = 0; id < c->n_plan; id++) {
		const struct set *s = &b->node[id].set;

		c->id[id] = c->plan[id].ok ? g->n_node++ : -1;
		n_shape += 3 + (size_t)(s->n_str + s->n_arr + s->n_obj);
	}
	g->shape = arena_zalloc(&b->pool.a, (n_shape + extra) * sizeof *g->shape);
	g->first = arena_zalloc(&b->pool.a, ((size_t)g->n_node + extra + 1) * sizeof *g->first);
	g->string = b->all.string;
	g->plain = b->all.plain;
	g->root = root < 0 ? -1 : c->id[root];
	for (int id = 0; id < c->n_plan && !rc; id++) {
		if (c->id[id] < 0)
			continue;
		g->first[c->id[id]] = g->n_shape;
		rc = make_node(c, g, id);
	}
	g->first[g->n_node] = g->n_shape;
	return rc;
}

/* Takes over all that c made; frees it after an error. */
static int finish(struct compiler *c, struct grammar *g, int rc, struct grammar **out)
{
	free(c->plan);
	free(c->id);
	if (rc) {
		free(g);
	} else {
		g->pool = c->b.pool;    /* with all that the tables point to */
		dfa_pool_init(&c->b.pool);
		*out = g;
	}
	builder_fini(&c->b);
	return rc;
}

static struct grammar *grammar_new(void)
{
	struct grammar *g = xcalloc(1, sizeof *g);

	atomic_init(&g->refs, 1);
	return g;
}

int grammar_compile(const struct json *schema, struct grammar **out, struct err *err)
{
	struct compiler c = { 0 };
	struct grammar *g = NULL;
	struct err own;
	int root, rc;

	*out = NULL;
	builder_init(&c.b, schema, err ? err : &own);
	root = node_of(&c.b, schema, "", false);
	rc = root < 0 ? root : plan_all(&c);
	if (!rc) {
		find_ok(&c);
		rc = check_apart(&c);
	}
	if (!rc && !c.plan[root].ok)
		rc = builder_fail(&c.b, E_FORMAT, "", "no value fulfils it");
	if (!rc) {
		g = grammar_new();
		rc = make_tables(&c, g, root, 0);
	}
	return finish(&c, g, rc, out);
}

void grammar_ref(struct grammar *g) { atomic_fetch_add(&g->refs, 1); }

void grammar_unref(struct grammar *g)
{
	if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
		return;
	dfa_pool_fini(&g->pool);
	free(g);
}

/* ---- calls ---- */

struct tool {
	const char *name;
	size_t n_name;
	const struct json *parameters;
	bool free;                      /* its arguments are any object */
	int node;                       /* of its arguments */
	int *rest;                      /* tagged: of each key of the plan what of its value is no string; -1: nothing */
};

static void spell_parameter(struct buf *out, const char *p, size_t n)
{
	buf_puts(out, "<parameter=");
	buf_put(out, p, n);
	buf_puts(out, ">\n");
}

/* What may not stand in a tag. */
static bool spells(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strchr("<>\n", p[i]))
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
		bool strict = false;
		struct err why;
		int rc;

		*t = (struct tool){ .parameters = json_get(f, "parameters") };
		t->name = json_str(json_get(f, "name"), &t->n_name);
		if (!t->name || (only && strcmp(only, t->name)))
			continue;
		json_to_bool(json_get(f, "strict"), &strict);
		if (json_kind(t->parameters) != JSON_OBJECT || !json_len(t->parameters)) {
			t->free = true;
		} else if ((rc = grammar_compile(t->parameters, &g, &why))) {
			if (strict)
				return err_set(err, rc, "tool \"%.60s\": %.400s", t->name, why.msg);
			t->free = true;
		}
		grammar_unref(g);
		++*n;
	}
	return *n ? 0 : err_set(err, E_ARG, "there is no tool");
}

static int arguments_node(struct builder *b, struct tool *t)
{
	const struct set *any = &b->node[NODE_ANY].set;
	struct set objects = { .obj = any->obj, .n_obj = any->n_obj };
	int part[2];

	part[0] = node_made(b, &objects, "");
	if (t->free || part[0] < 0)
		return part[0];
	b->root = t->parameters;
	part[1] = node_of(b, t->parameters, "", false);
	return part[1] < 0 ? part[1] : node_all(b, part, 2);
}

/* A node of all calls in JSON. */
static int calls_in_json(struct builder *b, const struct json *list, const struct tool *tool, int n)
{
	struct set s = { .obj = arena_zalloc(&b->pool.a, (size_t)n * sizeof *s.obj), .n_obj = n };

	for (int i = 0; i < n; i++) {
		struct obj_layer *l = arena_zalloc(&b->pool.a, sizeof *l);
		const struct json *name = NULL;

		for (size_t k = 0; k < json_len(list) && !name; k++) {
			name = json_get(json_get(json_at(list, k), "function"), "name");
			if (json_kind(name) != JSON_STRING || strcmp(json_str(name, &(size_t){ 0 }), tool[i].name))
				name = NULL;
		}
		l->key = arena_zalloc(&b->pool.a, 2 * sizeof *l->key);
		l->n_key = 2;
		l->key[0] = (struct key){ "name", 4, node_of(b, name, "", true) };
		l->key[1] = (struct key){ "arguments", 9, tool[i].node };
		l->rest = NODE_NEVER;
		if (l->key[0].node < 0)
			return l->key[0].node;
		s.obj[i] = arena_zalloc(&b->pool.a, sizeof **s.obj);
		*s.obj[i] = (struct obj_shape){ .layer = { l }, .n_layer = 1, .need = l->key, .n_need = 2, .max = -1 };
	}
	return node_made(b, &s, "");
}

/* A tagged call has one list of parameters: the arguments must be one form of object,
 * whose keys can be written. */
static bool one_form(const struct compiler *c, const struct tool *t, const struct obj_plan **plan)
{
	const struct set *s = &c->b.node[t->node].set;
	int k = -1;

	for (int i = 0; i < s->n_obj; i++) {
		if (!c->plan[t->node].obj_ok[i])
			continue;
		if (k >= 0)
			return false;
		k = i;
	}
	if (k < 0)
		return false;
	*plan = &c->plan[t->node].obj[k];
	for (int i = 0; i < (*plan)->n_key; i++)
		if (!spells((*plan)->key[i].p, (*plan)->key[i].n))
			return false;
	/* Where none is named and any may come they are free. */
	for (int i = 0; i < (*plan)->n_other && !(*plan)->n_key; i++)
		if (c->plan[(*plan)->other[i]].ok)
			return false;
	return true;
}

/* Nodes for the part of each value that is written as JSON. */
static int split_values(struct compiler *c, struct tool *t, const struct obj_plan *p)
{
	struct builder *b = &c->b;

	t->rest = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *t->rest);
	for (int i = 0; i < p->n_key; i++) {
		struct set s = b->node[p->key[i].node].set;
		unsigned kinds;
		char *key = arena_strndup(&b->pool.a, p->key[i].p, p->key[i].n);

		kinds = argument_kinds(t->parameters, key);
		t->rest[i] = -1;
		/* What is read as a string whatever it says is one. */
		if (s.n_str && (!kinds || kinds == 1u << JSON_STRING))
			continue;
		s.n_str = 0;
		if ((t->rest[i] = node_made(b, &s, "")) < 0)
			return t->rest[i];
	}
	return 0;
}

static const struct dfa *any_bare(struct builder *b)
{
	if (!b->all.bare)
		b->all.bare = lexeme_bare(&b->pool, b->all.plain, BARE_VALUE_END);
	return b->all.bare;
}

/* Strings as bare text; those counted to more than can be told apart are not counted. */
static const struct dfa *bare_strings(struct builder *b, const struct set *s)
{
	enum { COUNTED_MAX = 500 };
	struct set few = *s;
	const struct dfa *d;

	if (!s->n_str)
		return NULL;
	few.str = arena_zalloc(&b->pool.a, (size_t)s->n_str * sizeof *few.str);
	memcpy(few.str, s->str, (size_t)s->n_str * sizeof *few.str);
	for (int i = 0; i < s->n_str; i++)
		if (!few.str[i].d && (few.str[i].max > COUNTED_MAX || few.str[i].min > COUNTED_MAX))
			few.str[i] = (struct str_shape){ .max = -1 };
	d = set_strings_of(b, &few);
	return d == b->all.plain ? any_bare(b) : lexeme_bare(&b->pool, d, BARE_VALUE_END);
}

static int32_t word_node(struct grammar *g, const struct dfa *d)
{
	g->first[g->n_node] = g->n_shape;
	make_word(&g->shape[g->n_shape++], d);
	g->first[++g->n_node] = g->n_shape;
	return g->n_node - 1;
}

static int make_tagged(struct compiler *c, struct grammar *g, const struct tool *t, const struct obj_plan *p, struct shape *s)
{
	struct builder *b = &c->b;
	int *key_of = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *key_of);
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
		const struct dfa *bare;

		if (!c->plan[p->key[i].node].ok)
			continue;
		buf_reset(&text);
		spell_parameter(&text, p->key[i].p, p->key[i].n);
		texts_put(&keys, text.p, text.n, s->n_node);
		bare = bare_strings(b, &b->node[p->key[i].node].set);
		s->bare[s->n_node] = bare && bare->n ? word_node(g, bare) : -1;
		s->node[s->n_node] = t->rest[i] >= 0 ? c->id[t->rest[i]] : -1;
		key_of[s->n_node++] = i;
	}
	texts_put(&keys, "</function>", 11, s->n_node);
	buf_fini(&text);
	count_needs(s, p, key_of);
	s->d = texts_finish(&b->pool, &keys);
	if (builder_check(b, ""))
		return E_LIMIT;
	label_states(b, s, p->key, key_of, spell_parameter);
	return 0;
}

/* Arguments that are free: any parameters, bare text each. */
static int make_free(struct compiler *c, struct grammar *g, struct shape *s)
{
	enum { NAME_CHARS_MAX = 60 };
	struct builder *b = &c->b;
	const struct dfa *bare = any_bare(b), *d;
	struct nfa f;
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
	f.label[nfa_text(&f, end, ">\n", 2)] = 0;
	at = nfa_text(&f, 0, "<parameter=", 11);
	for (int i = 0; i < NAME_CHARS_MAX; i++) {
		int to = nfa_state(&f);

		nfa_utf8(&f, at, 0x20, '<' - 1, to);
		nfa_utf8(&f, at, '=', '=', to);
		nfa_utf8(&f, at, '>' + 1, 0x10FFFF, to);
		nfa_empty(&f, to, end, NFA_EMPTY);
		at = to;
	}
	f.label[nfa_text(&f, 0, "</function>", 11)] = 1;
	s->d = d = dfa_from_nfa(&b->pool, &f);
	nfa_fini(&f);
	if (builder_check(b, ""))
		return E_LIMIT;
	s->bare[0] = word_node(g, bare);
	/* What can be reached: the end from where it begins, the parameter from all others. */
	s->other_at = arena_zalloc(&b->pool.a, (size_t)d->n + 1);
	s->label_at = arena_zalloc(&b->pool.a, ((size_t)d->n + 1) * sizeof *s->label_at);
	s->label = arena_zalloc(&b->pool.a, ((size_t)d->n + 1) * sizeof *s->label);
	for (int i = 0, q = 0; i < 12; q = i < 11 ? dfa_step(d, q, (uint8_t)"</function>"[i]) : q, i++)
		s->other_at[q] = true;
	for (int q = 0, n = 0; q < d->n; q++) {
		if (!s->other_at[q] || q == 0 || q == dfa_step(d, 0, '<'))
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
	int rc = 0;

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
		rc = held ? make_tagged(c, g, &tool[i], p, &s) : make_free(c, g, &s);
		if (rc)
			break;
		calls.node[i] = g->n_shape;
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

int grammar_compile_calls(const struct json *tools, enum calls_form form, const char *only, struct grammar **out,
                          struct err *err)
{
	struct compiler c = { 0 };
	struct grammar *g = NULL;
	struct err own;
	struct tool *tool = xcalloc(json_len(tools) + 1, sizeof *tool);
	const struct obj_plan *p;
	size_t extra = 2;
	int n = 0, root = -1, rc = read_tools(tools, only, tool, &n, err);

	*out = NULL;
	if (rc) {
		free(tool);
		return rc;
	}
	builder_init(&c.b, tools, err ? err : &own);
	for (int i = 0; i < n && !rc; i++) {
		tool[i].node = arguments_node(&c.b, &tool[i]);
		rc = tool[i].node < 0 ? tool[i].node : 0;
		if (form == CALLS_TAGGED && !spells(tool[i].name, tool[i].n_name))
			rc = err_set(c.b.err, E_ARG, "a tool's name with < or >, or of more than 200 bytes");
	}
	if (!rc && form == CALLS_JSON) {
		root = calls_in_json(&c.b, tools, tool, n);
		rc = root < 0 ? root : 0;
	}
	if (!rc && !(rc = plan_all(&c)))
		find_ok(&c);
	for (int i = 0; i < n && !rc && form == CALLS_TAGGED; i++)
		if (!tool[i].free && one_form(&c, &tool[i], &p) && !(rc = split_values(&c, &tool[i], p)))
			extra += (size_t)p->n_key;
	extra += 2 * (size_t)n;
	if (!rc && form == CALLS_TAGGED && !(rc = plan_all(&c)))
		find_ok(&c);
	/* Whether branches are apart was found tool by tool. */
	if (!rc && form == CALLS_JSON && !c.plan[root].ok)
		rc = builder_fail(&c.b, E_FORMAT, "", "no call fulfils it");
	if (!rc) {
		g = grammar_new();
		rc = make_tables(&c, g, root, extra);
		if (!rc && form == CALLS_TAGGED)
			rc = make_calls(&c, g, tool, n);
	}
	free(tool);
	return finish(&c, g, rc, out);
}
