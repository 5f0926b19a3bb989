/* grammar.c - from sets (shapes.h) to the tables of an automaton (tables.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/compile.h"
#include "text/grammar/lexeme.h"

/* ---- objects ---- */

static int find_key(struct builder *b, const struct key *key, int n, const struct key *k)
{
	dfa_spend(&b->pool, (size_t)n / 16 + 1);
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
		int at = find_key(b, l->key, l->n_key, k), before = n;

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
	if (!n_pattern && !o->names) {
		/* Where nothing is to be told apart any spelling will do. */
		d = (struct dfa *)(uintptr_t)(p->n_key ? b->all.plain : b->all.string);
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
			d->label[s] = k; /* the automaton is ours: relabel made it */
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
		for (int k = 0; k < o->layer[i]->n_key && !b->pool.why; k++)
			if (find_key(b, p->key, p->n_key, &o->layer[i]->key[k]) < 0)
				p->key[p->n_key++] = o->layer[i]->key[k];
	for (int i = 0; i < o->n_need; i++) {
		int at_key = find_key(b, p->key, p->n_key, &o->need[i]);

		if (at_key < 0)
			p->key[at_key = p->n_key++] = o->need[i];
		p->need[at_key] = true;
	}
	for (int i = 0; i < p->n_key && !b->pool.why; i++)
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
int compiler_plan(struct compiler *c)
{
	int rc = 0;

	for (; c->n_plan < c->b.n_node && !rc; c->n_plan++) {
		if (c->n_plan == c->cap_plan) {
			c->cap_plan = c->cap_plan ? 2 * c->cap_plan : 64;
			c->plan = xrealloc(c->plan, size_mul((size_t)c->cap_plan, sizeof *c->plan));
		}
		c->plan[c->n_plan] = (struct planned){ 0 };
		rc = plan_node(c, c->n_plan);
	}
	return rc;
}

/* ---- which of them some value fulfils ---- */

/* counted: it would be, if more of the members that no property names counted. */
static bool obj_ok(const struct compiler *c, const struct obj_plan *p, bool *counted)
{
	int64_t can = 0, must = 0;
	bool more = false;

	*counted = false;
	for (int i = 0; i < p->n_key; i++) {
		bool ok = c->plan[p->key[i].node].ok;

		if (p->need[i] && !ok)
			return false;
		can += ok;
		must += p->need[i];
	}
	for (int i = 0; i < p->n_other; i++)
		more |= c->plan[p->other[i]].ok;
	/* Only one of the other members surely counts: several might have one name. */
	*counted = more && p->min > can + 1 && (p->max < 0 || must <= p->max);
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

int compiler_find_ok(struct compiler *c)
{
	bool again = true;

	while (again) {
		again = false;
		c->counted = NULL;
		if (!dfa_spend(&c->b.pool, (size_t)c->n_plan))
			return builder_check(&c->b, "");
		for (int id = 0; id < c->n_plan; id++) {
			const struct set *s = &c->b.node[id].set;
			struct planned *p = &c->plan[id];
			bool ok = s->null || s->boolean || s->number || s->n_str;

			for (int i = 0; i < s->n_obj; i++) {
				bool counted;

				ok |= p->obj_ok[i] = obj_ok(c, &p->obj[i], &counted);
				c->counted = counted ? c->b.node[id].at : c->counted;
			}
			for (int i = 0; i < s->n_arr; i++) {
				int64_t room = arr_room(c, &p->arr[i]);

				ok |= p->arr_ok[i] = room < 0 || p->arr[i].min <= room;
			}
			again |= ok != p->ok;
			p->ok = ok;
		}
	}
	return 0;
}

int compiler_no_value(struct compiler *c, const char *why)
{
	return c->counted ? builder_fail(&c->b, E_UNSUPPORTED, c->counted,
	                                 "\"minProperties\" that asks for more than one member beyond those that "
	                                 "\"properties\" and \"required\" name is not supported") :
	                    builder_fail(&c->b, E_FORMAT, "", "%s", why);
}

static int check_apart(struct compiler *c)
{
	for (int i = 0; i < c->b.n_apart; i++) {
		const struct apart *a = &c->b.apart[i];

		if (c->plan[a->node].ok)
			return builder_fail(
				&c->b, E_UNSUPPORTED, a->at,
				"an array or object can be in branch %d and in branch %d; \"oneOf\" of such is not "
				"supported (use \"anyOf\", or tell them apart by a constant)",
				a->i, a->k);
	}
	return 0;
}

/* ---- tables ---- */

/* For every state which labels can be reached: properties, and whether others can.
 * The part of the automaton that spells properties is a tree, so that lists are
 * short: a property is in those of the states that its own letters lead through. */
void shape_labels(struct builder *b, struct shape *s, const struct key *spelled)
{
	const struct dfa *d = s->d;
	int32_t *n_at = xcalloc((size_t)d->n + 2, sizeof *n_at);
	bool again = true;

	s->other_at = arena_zalloc(&b->pool.a, (size_t)d->n + 1);
	for (int q = 0; q < d->n; q++)
		s->other_at[q] = d->label[q] >= s->n_node;
	while (again && dfa_spend(&b->pool, (size_t)(d->n * d->n_cls) / 8)) {
		again = false;
		for (int q = d->n - 1; q >= 0; q--)
			for (int c = 0; c < d->n_cls && !s->other_at[q]; c++) {
				int t = d->next[q * d->n_cls + c];

				if (t >= 0 && s->other_at[t])
					again = s->other_at[q] = true;
			}
	}
	for (int fill = 0; fill < 2; fill++) {
		for (int i = 0; i < s->n_node; i++) {
			int q = 0;

			for (size_t k = 0; k <= spelled[i].n; k++) {
				if (fill)
					s->label[n_at[q]++] = i;
				else
					n_at[q + 1]++;
				if (k < spelled[i].n)
					q = dfa_step(d, q, (uint8_t)spelled[i].p[k]);
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
void shape_needs(struct shape *s, const struct obj_plan *p, const int *key_of)
{
	s->next_need[s->n_node] = s->n_node;
	for (int i = s->n_node; i-- > 0;) {
		bool need = p->need[key_of[i]];

		s->next_need[i] = need ? i : s->next_need[i + 1];
		s->n_need[i] = s->n_need[i + 1] + need;
	}
}

/* ---- Gemma's spelling ---- */

static const struct dfa *gemma_strings(struct compiler *c, const struct set *s)
{
	enum { COUNTED_MAX = 500 };
	struct builder *b = &c->b;
	struct set few = *s;
	const struct dfa *d;

	few.str = arena_zalloc(&b->pool.a, ((size_t)s->n_str + 1) * sizeof *few.str);
	for (int i = 0; i < s->n_str; i++) {
		few.str[i] = s->str[i];
		if (!few.str[i].d && (few.str[i].max > COUNTED_MAX || few.str[i].min > COUNTED_MAX))
			few.str[i] = (struct str_shape){ .max = -1 };
	}
	d = set_strings_of(b, &few);
	if (d != b->all.plain)
		return lexeme_bare_between(&b->pool, d, GEMMA_QUOTE);
	if (!c->bare_any)
		c->bare_any = lexeme_bare_between(&b->pool, d, GEMMA_QUOTE);
	return c->bare_any;
}

/* Keys that no schema names, with their colons. */
static const struct dfa *gemma_names(struct compiler *c)
{
	enum { NAME_CHARS_MAX = 60 };
	struct nfa f;
	int at = 0, end;

	if (c->names)
		return c->names;
	nfa_init(&f);
	end = nfa_state(&f);
	for (int i = 0; i < NAME_CHARS_MAX; i++) {
		int to = nfa_state(&f);

		nfa_bytes(&f, at, 'a', 'z', to);
		nfa_bytes(&f, at, 'A', 'Z', to);
		nfa_bytes(&f, at, '_', '_', to);
		if (i)
			nfa_bytes(&f, at, '0', '9', to);
		at = to;
		nfa_bytes(&f, at, ':', ':', end);
	}
	nfa_accept(&f, end, 0);
	c->names = dfa_from_nfa(&c->b.pool, &f);
	nfa_fini(&f);
	return c->names;
}

static void put_gemma_key(struct buf *out, const char *p, size_t n)
{
	bool plain = n > 0;

	for (size_t i = 0; i < n; i++)
		plain &= (p[i] & 0x80) || (p[i] > ' ' && !strchr("{}[],:<\"", p[i]));
	buf_puts(out, plain ? "" : GEMMA_QUOTE);
	buf_put(out, p, n);
	buf_puts(out, plain ? ":" : GEMMA_QUOTE ":");
}

static int make_object(struct compiler *c, const struct obj_plan *p, struct shape *s, const char *at)
{
	struct builder *b = &c->b;
	struct texts keys;
	int32_t *map = arena_zalloc(&b->pool.a, ((size_t)p->n_other + 1) * sizeof *map);
	int *key_of = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *key_of);
	struct key *spelled = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *spelled);
	const struct dfa *own, *names, *others = c->gemma ? p->any_name ? gemma_names(c) : NULL : p->names;
	struct buf text;

	*s = (struct shape){ .kind = SHAPE_OBJECT, .min = limit(p->min), .max = limit(p->max), .colon = c->gemma };
	s->node = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *s->node);
	s->other = arena_zalloc(&b->pool.a, ((size_t)p->n_other + 1) * sizeof *s->other);
	s->next_need = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *s->next_need);
	s->n_need = arena_zalloc(&b->pool.a, ((size_t)p->n_key + 1) * sizeof *s->n_need);
	texts_init(&keys);
	buf_init(&text);
	for (int i = 0; i < p->n_key; i++) {
		bool ok = c->plan[p->key[i].node].ok;

		buf_reset(&text);
		if (c->gemma)
			put_gemma_key(&text, p->key[i].p, p->key[i].n);
		else
			put_plain(&text, p->key[i].p, p->key[i].n);
		texts_put(&keys, text.p, text.n, ok ? s->n_node : DFA_DROPPED);
		if (!ok)
			continue;
		spelled[s->n_node] = (struct key){ arena_strndup(&b->pool.a, text.p, text.n), text.n, 0 };
		key_of[s->n_node] = i;
		s->node[s->n_node++] = c->id[p->key[i].node];
	}
	buf_fini(&text);
	shape_needs(s, p, key_of);
	for (int i = 0; others && i < p->n_other; i++) {
		map[i] = c->plan[p->other[i]].ok ? s->n_node + s->n_other : -1;
		if (map[i] >= 0)
			s->other[s->n_other++] = c->id[p->other[i]];
	}
	own = texts_finish(&b->pool, &keys);
	/* Any string's automaton stays the one it is: its masks are shared. */
	if (!p->n_key && others == b->all.string && s->n_other)
		names = others;
	else if (s->n_other || s->n_node < p->n_key)
		names = dfa_keys(&b->pool, own, s->n_other ? others : own, map);
	else
		names = own;
	if (builder_check(b, at))
		return E_LIMIT;
	s->d = names;
	shape_labels(b, s, spelled);
	if (p->any_name && !c->gemma && s->n_other && names != b->all.string)
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

void shape_word(struct shape *s, const struct dfa *d)
{
	*s = (struct shape){ .kind = SHAPE_WORD, .d = d };
}

/* Those of the words null, true and false that d has. */
static const struct dfa *in_python(struct dfa_pool *p, const struct dfa *d)
{
	static const char *const words[][2] = { { "null", "None" }, { "true", "True" }, { "false", "False" } };
	struct texts t;

	texts_init(&t);
	for (int i = 0; i < 3; i++)
		if (dfa_match(d, words[i][0], strlen(words[i][0])) >= 0)
			texts_put(&t, words[i][1], strlen(words[i][1]), 0);
	return texts_finish(p, &t);
}

static int make_node(struct compiler *c, struct grammar *g, int id)
{
	const struct set *set = &c->b.node[id].set;
	const struct planned *p = &c->plan[id];
	int rc = 0;

	if (set->null)
		shape_word(&g->shape[g->n_shape++], c->python ? in_python(&c->b.pool, set->null) : set->null);
	if (set->boolean)
		shape_word(&g->shape[g->n_shape++], c->python ? in_python(&c->b.pool, set->boolean) : set->boolean);
	if (set->number)
		shape_word(&g->shape[g->n_shape++], set->number);
	if (set->n_str && c->gemma)
		shape_word(&g->shape[g->n_shape++], gemma_strings(c, set));
	for (int i = 0; i < set->n_str && !c->gemma; i++) {
		const struct str_shape *x = &set->str[i];
		struct shape *s = &g->shape[g->n_shape++];

		shape_word(s, x->d ? x->d : g->string);
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

static void use(struct compiler *c, int32_t *todo, int *n, int node)
{
	if (c->used[node] || !c->plan[node].ok)
		return;
	c->used[node] = true;
	todo[(*n)++] = node;
}

void compiler_use(struct compiler *c, int node)
{
	int32_t *todo;
	int n = 0;

	if (!c->used)
		c->used = xcalloc((size_t)c->n_plan, 1);
	if (c->used[node])
		return;
	todo = xmalloc(size_mul((size_t)c->n_plan + 1, sizeof *todo));
	use(c, todo, &n, node);
	while (n) {
		const struct planned *p = &c->plan[todo[--n]];
		const struct set *s = &c->b.node[todo[n]].set;

		for (int i = 0; i < s->n_obj; i++) {
			for (int k = 0; k < p->obj[i].n_key && p->obj_ok[i]; k++)
				use(c, todo, &n, p->obj[i].key[k].node);
			for (int k = 0; k < p->obj[i].n_other && p->obj_ok[i]; k++)
				use(c, todo, &n, p->obj[i].other[k]);
		}
		for (int i = 0; i < s->n_arr; i++) {
			for (int k = 0; k < p->arr[i].n_prefix && p->arr_ok[i]; k++)
				use(c, todo, &n, p->arr[i].prefix[k]);
			if (p->arr_ok[i])
				use(c, todo, &n, p->arr[i].rest);
		}
	}
	free(todo);
}

/* extra: nodes and shapes to reserve room for. */
int compiler_tables(struct compiler *c, struct grammar *g, int root, size_t extra)
{
	struct builder *b = &c->b;
	size_t n_shape = 0;
	int rc = 0;

	c->id = xmalloc(size_mul((size_t)c->n_plan, sizeof *c->id));
	for (int id = 0; id < c->n_plan; id++) {
		const struct set *s = &b->node[id].set;

		c->id[id] = c->used && c->used[id] ? g->n_node++ : -1;
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
	if (!rc)
		rc = builder_check(b, "");
	return rc;
}

/* Takes over all that c made; frees it after an error. */
int compiler_finish(struct compiler *c, struct grammar *g, int rc, struct grammar **out)
{
	free(c->plan);
	free(c->id);
	free(c->used);
	if (rc) {
		free(g);
	} else {
		g->pool = c->b.pool; /* with all that the tables point to */
		dfa_pool_init(&c->b.pool);
		*out = g;
	}
	builder_fini(&c->b);
	return rc;
}

struct grammar *compiler_grammar(void)
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
	rc = root < 0 ? root : compiler_plan(&c);
	if (!rc)
		rc = compiler_find_ok(&c);
	if (!rc)
		rc = check_apart(&c);
	if (!rc && !c.plan[root].ok)
		rc = compiler_no_value(&c, "no value fulfils it");
	if (!rc) {
		g = compiler_grammar();
		compiler_use(&c, root);
		rc = compiler_tables(&c, g, root, 0);
	}
	return compiler_finish(&c, g, rc, out);
}

size_t grammar_bytes(const struct grammar *g)
{
	return g->pool.a.used;
}

/* Has parameters any rule but that they are an object? */
static bool says_more(const struct json *parameters)
{
	static const char *const words[] = { "type", "title", "description", "$schema" };
	struct json_cursor c = json_first(parameters);
	const struct json *v;
	const char *key;
	bool any = false;

	while (json_next(&c, &key, &v)) {
		size_t i = 0;

		while (i < sizeof words / sizeof *words && strcmp(key, words[i]) != 0)
			i++;
		if (i == sizeof words / sizeof *words && json_kind(v) != JSON_NULL &&
		    !(json_kind(v) == JSON_OBJECT && !json_len(v)) && (json_to_bool(v, &any) || !any))
			return true;
	}
	return false;
}

void compiler_let_go(struct compiler *c, struct grammar *g, const char *name, const struct json *parameters)
{
	struct let_go *l;

	if (!says_more(parameters))
		return;
	l = arena_zalloc(&c->b.pool.a, sizeof *l);
	*l = (struct let_go){ arena_strndup(&c->b.pool.a, name, strlen(name)), g->let_go };
	g->let_go = l;
}

const struct let_go *grammar_let_go(const struct grammar *g)
{
	return g->let_go;
}

void grammar_ref(struct grammar *g)
{
	atomic_fetch_add(&g->refs, 1);
}

void grammar_unref(struct grammar *g)
{
	if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
		return;
	for (int i = 0; i < SHARED_SHEETS; i++)
		sheet_free(atomic_load(&g->sheet[i]));
	dfa_pool_fini(&g->pool);
	free(g);
}
