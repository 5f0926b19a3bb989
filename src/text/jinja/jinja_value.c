/* jinja_value.c - what Python does with values: truth, equality, order, hashing,
 * str and repr, containers, iteration, sorting.
 *
 * Lists, tuples and dicts never change once a template can see them (the sandbox
 * refuses the methods that would), so they are shared freely; only a namespace can
 * form a cycle, and depth_max stops every walk through it. */
#include "text/jinja/jinja.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

struct value v_undef_hint(struct jrender *r, const char *hint)
{
	return v_undef(str_lit(r, hint), UNDEF_HINT);
}

struct value v_pair(struct jrender *r, struct value a, struct value b)
{
	struct jlist *l = list_new(r, 2);

	l->v[0] = a;
	l->v[1] = b;
	return v_tuple(l);
}

bool v_is_number(struct value v)
{
	return v.kind == V_INT || v.kind == V_BOOL || v.kind == V_FLOAT;
}

bool v_as_int(struct value v, int64_t *out)
{
	*out = v.kind == V_BOOL ? v.b : v.i;
	return v.kind == V_INT || v.kind == V_BOOL;
}

double v_as_double(struct value v)
{
	return v.kind == V_FLOAT ? v.d : v.kind == V_BOOL ? v.b : (double)v.i;
}

static const char *kind_name(int kind)
{
	static const char *const names[] = {
		[V_MISSING] = "missing", [V_UNDEF] = "Undefined",  [V_NONE] = "NoneType",  [V_BOOL] = "bool",
		[V_INT] = "int",         [V_FLOAT] = "float",      [V_STR] = "str",        [V_LIST] = "list",
		[V_TUPLE] = "tuple",     [V_DICT] = "dict",        [V_VIEW] = "dict view", [V_RANGE] = "range",
		[V_GEN] = "generator",   [V_SPACE] = "Namespace",  [V_MACRO] = "Macro",    [V_FUNC] = "function",
		[V_METHOD] = "method",   [V_LOOP] = "LoopContext",
	};

	return names[kind];
}

const char *v_type(struct value v)
{
	static const char *const views[] = { "dict_keys", "dict_values", "dict_items" };

	return v.kind == V_VIEW ? views[v.aux] : v.kind == V_STR && v.s->markup ? "Markup" : kind_name(v.kind);
}

static int shown(const struct jstr *s)
{
	return s->n < 100 ? (int)s->n : 100;
}

void v_fail_undef(struct jrender *r, struct value v)
{
	if (v.aux == UNDEF_HINT)
		jr_fail(r, E_ARG, "%.*s", shown(v.s), v.s->p);
	if (v.aux == UNDEF_NAME)
		jr_fail(r, E_ARG, "'%.*s' is undefined", shown(v.s), v.s->p);
	if (v.aux == UNDEF_UNSAFE)
		jr_fail(r, E_ARG, "access to attribute '%.*s' is unsafe", shown(v.s), v.s->p);
	jr_fail(r, E_ARG, "'%s object' has no attribute '%.*s'", kind_name(v.aux - UNDEF_ATTR), shown(v.s), v.s->p);
}

bool v_true(struct jrender *r, struct value v)
{
	switch (v.kind) {
	case V_MISSING:
	case V_UNDEF:
	case V_NONE: return false;
	case V_BOOL: return v.b;
	case V_INT: return v.i != 0;
	case V_FLOAT: return v.d != 0;
	case V_STR: return v.s->n != 0;
	case V_LIST:
	case V_TUPLE: return v.l->n != 0;
	case V_DICT:
	case V_VIEW: return v.o->n != 0;
	case V_RANGE: return v.range->n != 0;
	default: return true;
	}
}

static bool number_eq(struct value a, struct value b)
{
	int64_t i, k;

	if (v_as_int(a, &i) && v_as_int(b, &k))
		return i == k;
	if (v_as_int(a, &i))
		return (long double)i == (long double)b.d;
	if (v_as_int(b, &i))
		return (long double)i == (long double)a.d;
	return a.d == b.d;
}

static bool same(struct value a, struct value b)
{
	return a.kind == b.kind && a.kind > V_FLOAT && a.l == b.l && a.aux == b.aux;
}

bool v_eq(struct jrender *r, struct value a, struct value b)
{
	bool eq = true;

	if (v_is_number(a) && v_is_number(b))
		return number_eq(a, b);
	if (a.kind != b.kind)
		return false;
	if (a.kind == V_UNDEF || a.kind == V_NONE || same(a, b))
		return true;
	jr_enter(r);
	switch (a.kind) {
	case V_STR:
		jr_bytes(r, a.s->n == b.s->n ? a.s->n : 0);
		eq = str_eq(a.s, b.s);
		break;
	case V_LIST:
	case V_TUPLE:
		eq = a.l->n == b.l->n;
		for (size_t i = 0; eq && i < a.l->n; i++)
			eq = same(a.l->v[i], b.l->v[i]) || v_eq(r, a.l->v[i], b.l->v[i]);
		break;
	case V_DICT:
		eq = a.o->n == b.o->n;
		for (size_t i = 0; eq && i < a.o->n; i++) {
			struct value *v = dict_get(r, b.o, a.o->e[i].key);

			eq = v && v_eq(r, a.o->e[i].value, *v);
		}
		break;
	case V_RANGE:
		eq = a.range->n == b.range->n && (!a.range->n || (a.range->start == b.range->start &&
		                                                  (a.range->n == 1 || a.range->step == b.range->step)));
		break;
	case V_METHOD: eq = a.method->def == b.method->def && same(a.method->self, b.method->self); break;
	default: eq = false; break;
	}
	jr_leave(r);
	return eq;
}

_Noreturn static void no_order(struct jrender *r, const char *op, struct value a, struct value b)
{
	if (a.kind == V_UNDEF)
		v_fail_undef(r, a);
	if (b.kind == V_UNDEF)
		v_fail_undef(r, b);
	jr_fail(r, E_ARG, "'%s' not supported between instances of '%s' and '%s'", op, v_type(a), v_type(b));
}

static bool order_holds(int op, int cmp)
{
	return op == OP_LT ? cmp < 0 : op == OP_LE ? cmp <= 0 : op == OP_GT ? cmp > 0 : cmp >= 0;
}

static bool in_order(struct jrender *r, int op, struct value a, struct value b)
{
	static const char *const names[] = { [OP_LT] = "<", [OP_LE] = "<=", [OP_GT] = ">", [OP_GE] = ">=" };
	int64_t i, k;
	bool res;

	if (v_as_int(a, &i) && v_as_int(b, &k))
		return order_holds(op, (i > k) - (i < k));
	if (v_is_number(a) && v_is_number(b)) {
		long double x = v_as_int(a, &i) ? (long double)i : (long double)a.d;
		long double y = v_as_int(b, &i) ? (long double)i : (long double)b.d;

		return op == OP_LT ? x < y : op == OP_LE ? x <= y : op == OP_GT ? x > y : x >= y;
	}
	if (a.kind == V_STR && b.kind == V_STR) {
		jr_bytes(r, a.s->n < b.s->n ? a.s->n : b.s->n);
		return order_holds(op, str_cmp(a.s, b.s));
	}
	if (a.kind != b.kind || (a.kind != V_LIST && a.kind != V_TUPLE))
		no_order(r, names[op], a, b);
	jr_enter(r);
	res = order_holds(op, (a.l->n > b.l->n) - (a.l->n < b.l->n));
	for (size_t n = 0; n < a.l->n && n < b.l->n; n++) {
		if (same(a.l->v[n], b.l->v[n]) || v_eq(r, a.l->v[n], b.l->v[n]))
			continue;
		res = in_order(r, op, a.l->v[n], b.l->v[n]);
		break;
	}
	jr_leave(r);
	return res;
}

bool v_in(struct jrender *r, struct value v, struct value in)
{
	struct jiter it;
	struct value x;
	__int128 off;
	int64_t i;

	switch (in.kind) {
	case V_STR:
		if (v.kind != V_STR)
			jr_fail(r, E_ARG, "'in <string>' requires string as left operand, not %s", v_type(v));
		jr_bytes(r, in.s->n);
		return mem_find(in.s->p, in.s->n, v.s->p, v.s->n) != NULL;
	case V_DICT: return dict_get(r, in.o, v) != NULL;
	case V_RANGE:
		if (!v_as_int(v, &i))
			return false;
		off = (__int128)i - in.range->start;
		return off % in.range->step == 0 && off / in.range->step >= 0 && off / in.range->step < in.range->n;
	default:
		if (in.kind == V_VIEW && in.aux == VIEW_KEYS)
			return dict_get(r, in.o, v) != NULL;
		if (!v_iterable(in))
			jr_fail(r, E_ARG, "argument of type '%s' is not iterable", v_type(in));
		it = iter_open(r, in);
		while (iter_next(r, &it, &x))
			if (same(x, v) || v_eq(r, x, v))
				return true;
		return false;
	}
}

bool v_compare(struct jrender *r, int op, struct value a, struct value b)
{
	switch (op) {
	case OP_EQ: return v_eq(r, a, b);
	case OP_NE: return !v_eq(r, a, b);
	case OP_IN: return v_in(r, a, b);
	case OP_NOTIN: return !v_in(r, a, b);
	default: return in_order(r, op, a, b);
	}
}

bool v_has_len(struct value v)
{
	return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_DICT || v.kind == V_VIEW ||
	       v.kind == V_RANGE || v.kind == V_UNDEF;
}

int64_t v_len(struct jrender *r, struct value v)
{
	switch (v.kind) {
	case V_UNDEF: return 0;
	case V_STR:
		if (v.s->chars == NO_CHARS)
			jr_bytes(r, v.s->n);
		return (int64_t)str_chars(v.s);
	case V_LIST:
	case V_TUPLE: return (int64_t)v.l->n;
	case V_DICT:
	case V_VIEW: return (int64_t)v.o->n;
	case V_RANGE: return v.range->n;
	default: jr_fail(r, E_ARG, "object of type '%s' has no len()", v_type(v));
	}
}

/* ---- str and repr ---- */

static bool printable(uint32_t cp)
{
	utf8proc_category_t c;

	if (cp < 0x7f)
		return cp >= 0x20;
	c = utf8proc_category((utf8proc_int32_t)cp);
	return c != UTF8PROC_CATEGORY_CN && c != UTF8PROC_CATEGORY_CC && c != UTF8PROC_CATEGORY_CF &&
	       c != UTF8PROC_CATEGORY_CS && c != UTF8PROC_CATEGORY_CO && c != UTF8PROC_CATEGORY_ZL &&
	       c != UTF8PROC_CATEGORY_ZP && c != UTF8PROC_CATEGORY_ZS;
}

static void put_repr_str(struct jrender *r, struct sb *b, const struct jstr *s)
{
	char quote = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'', esc[16];
	uint32_t origin = str_origin(s), cp;
	size_t from = 0;

	if (s->markup)
		sb_puts(r, b, "Markup(");
	sb_put(r, b, &quote, 1, origin);
	for (size_t i = 0, len; i < s->n; i += len) {
		int n = 0;

		len = (size_t)utf8_decode(s->p + i, s->n - i, &cp);
		if (cp == (uint32_t)quote || cp == '\\')
			n = snprintf(esc, sizeof esc, "\\%c", (int)cp);
		else if (cp == '\n' || cp == '\r' || cp == '\t')
			n = snprintf(esc, sizeof esc, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
		else if (!printable(cp))
			n = snprintf(esc, sizeof esc,
			             cp < 0x100   ? "\\x%02x" :
			             cp < 0x10000 ? "\\u%04x" :
			                            "\\U%08x",
			             cp);
		if (!n)
			continue;
		sb_put(r, b, s->p + from, i - from, origin);
		sb_put(r, b, esc, (size_t)n, origin);
		from = i + len;
	}
	sb_put(r, b, s->p + from, s->n - from, origin);
	sb_put(r, b, &quote, 1, origin);
	if (s->markup)
		sb_puts(r, b, ")");
}

static void put_repr_items(struct jrender *r, struct sb *b, struct value v, const char *open, const char *close)
{
	struct value x;
	size_t n = v.kind == V_VIEW ? v.o->n : v.l->n;

	sb_puts(r, b, open);
	for (size_t i = 0; i < n; i++) {
		if (i)
			sb_puts(r, b, ", ");
		x = v.kind == V_VIEW ? view_at(r, v, i) : v.l->v[i];
		v_put_repr(r, b, x);
	}
	sb_puts(r, b, v.kind == V_TUPLE && n == 1 ? ",)" : close);
}

static void put_repr_dict(struct jrender *r, struct sb *b, const struct jdict *o)
{
	sb_puts(r, b, "{");
	for (size_t i = 0; i < o->n; i++) {
		if (i)
			sb_puts(r, b, ", ");
		v_put_repr(r, b, o->e[i].key);
		sb_puts(r, b, ": ");
		v_put_repr(r, b, o->e[i].value);
	}
	sb_puts(r, b, "}");
}

void v_put_repr(struct jrender *r, struct sb *b, struct value v)
{
	jr_enter(r);
	switch (v.kind) {
	case V_UNDEF: sb_puts(r, b, "Undefined"); break;
	case V_NONE: sb_puts(r, b, "None"); break;
	case V_BOOL: sb_puts(r, b, v.b ? "True" : "False"); break;
	case V_INT: put_int(r, b, v.i); break;
	case V_FLOAT:
		if (v.digits)
			sb_puts(r, b, v.digits);
		else
			put_float(r, b, v.d);
		break;
	case V_STR: put_repr_str(r, b, v.s); break;
	case V_LIST: put_repr_items(r, b, v, "[", "]"); break;
	case V_TUPLE: put_repr_items(r, b, v, "(", ")"); break;
	case V_VIEW:
		sb_puts(r, b, v_type(v));
		put_repr_items(r, b, v, "([", "])");
		break;
	case V_DICT: put_repr_dict(r, b, v.o); break;
	case V_SPACE:
		sb_puts(r, b, "<Namespace ");
		put_repr_dict(r, b, v.o);
		sb_puts(r, b, ">");
		break;
	case V_RANGE:
		sb_puts(r, b, "range(");
		put_int(r, b, v.range->start);
		sb_puts(r, b, ", ");
		put_int(r, b, v.range->stop);
		if (v.range->step != 1) {
			sb_puts(r, b, ", ");
			put_int(r, b, v.range->step);
		}
		sb_puts(r, b, ")");
		break;
	default: /* Python prints an address here; no prompt can depend on it */
		sb_puts(r, b, "<");
		sb_puts(r, b, v_type(v));
		sb_puts(r, b, " object>");
		break;
	}
	jr_leave(r);
}

void v_put_str(struct jrender *r, struct sb *b, struct value v)
{
	if (v.kind == V_STR)
		sb_put_str(r, b, v.s);
	else if (v.kind <= V_FLOAT && v.kind != V_UNDEF)
		v_put_repr(r, b, v);
	else if (v.kind != V_UNDEF)
		sb_put_str(r, b, v_to_str(r, v));
}

struct jstr *v_to_str(struct jrender *r, struct value v)
{
	struct jstr *s;
	struct sb b;

	if (v.kind == V_STR) {
		if (!v.s->markup)
			return v.s;
		s = jr_alloc(r, sizeof *s);
		*s = *v.s;
		s->markup = false;
		return s;
	}
	sb_init(&b);
	if (v.kind != V_UNDEF)
		v_put_repr(r, &b, v);
	s = sb_str(r, &b);
	sb_one_origin(&b, str_origin(s));
	return sb_str(r, &b);
}

struct jstr *v_soft_str(struct jrender *r, struct value v)
{
	return v.kind == V_STR ? v.s : v_to_str(r, v);
}

/* ---- containers ---- */

struct jlist *list_new(struct jrender *r, size_t n)
{
	struct jlist *l = jr_alloc(r, sizeof *l);

	l->n = n;
	l->v = jr_array(r, n, sizeof *l->v);
	return l;
}

void list_push(struct jrender *r, struct jlist *l, size_t *cap, struct value v)
{
	struct value *old = l->v;

	if (l->n == *cap) {
		*cap = *cap ? *cap * 2 : 4;
		l->v = jr_array(r, *cap, sizeof *l->v);
		if (l->n)
			memcpy(l->v, old, l->n * sizeof *old);
	}
	l->v[l->n++] = v;
}

struct jlist *v_to_list(struct jrender *r, struct value v)
{
	struct jlist *l = list_new(r, 0);
	struct jiter it = iter_open(r, v);
	struct value x;
	size_t cap = 0;

	while (iter_next(r, &it, &x))
		list_push(r, l, &cap, x);
	return l;
}

bool v_hashable(struct value v)
{
	if (v.kind == V_TUPLE) {
		for (size_t i = 0; i < v.l->n; i++)
			if (v.l->v[i].kind == V_TUPLE || !v_hashable(v.l->v[i]))
				return false; /* tuples within tuples: no template has such a key */
		return true;
	}
	return v.kind != V_LIST && v.kind != V_DICT && v.kind != V_VIEW;
}

static uint64_t mix(uint64_t h)
{
	h ^= h >> 32;
	h *= 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio: spreads neighbours */
	return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *p, size_t n)
{
	uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
	return mix(h);
}

static uint64_t hash(struct jrender *r, struct value v)
{
	uint64_t h = 1;
	int64_t i;

	if (!v_hashable(v))
		jr_fail(r, E_ARG, "unhashable type: '%s'", v_type(v));
	if (v.kind == V_STR) {
		jr_bytes(r, v.s->n);
		return hash_bytes(v.s->p, v.s->n);
	}
	if (v_as_int(v, &i))
		return mix((uint64_t)i);
	if (v.kind == V_FLOAT) {
		if (v.d >= -9e18 && v.d <= 9e18 && v.d == (double)(int64_t)v.d)
			return mix((uint64_t)(int64_t)v.d);
		memcpy(&h, &v.d, sizeof h);
		return mix(h);
	}
	if (v.kind == V_TUPLE) {
		for (size_t k = 0; k < v.l->n; k++)
			h = mix(h * 31 + hash(r, v.l->v[k]));
		return h;
	}
	return mix(v.kind == V_NONE || v.kind == V_UNDEF ? v.kind : (uint64_t)(uintptr_t)v.l);
}

struct jdict *dict_new(struct jrender *r)
{
	struct jdict *o = jr_alloc(r, sizeof *o);

	*o = (struct jdict){ 0 };
	return o;
}

enum { DICT_SMALL = 8 }; /* up to here a scan beats an index */

static void dict_index(struct jrender *r, struct jdict *o)
{
	size_t cap = o->index_cap ? o->index_cap * 2 : 4 * DICT_SMALL;

	jr_steps(r, o->n);
	o->index = jr_array(r, cap, sizeof *o->index);
	memset(o->index, 0, cap * sizeof *o->index);
	o->index_cap = cap;
	for (size_t i = 0; i < o->n; i++) {
		size_t k = o->e[i].hash & (cap - 1);

		while (o->index[k])
			k = (k + 1) & (cap - 1);
		o->index[k] = (uint32_t)i + 1;
	}
}

static struct jpair *dict_find(struct jrender *r, struct jdict *o, struct value key, uint64_t h)
{
	if (!o->index) {
		for (size_t i = 0; i < o->n; i++)
			if (o->e[i].hash == h && v_eq(r, o->e[i].key, key))
				return &o->e[i];
		return NULL;
	}
	for (size_t k = h & (o->index_cap - 1); o->index[k]; k = (k + 1) & (o->index_cap - 1)) {
		struct jpair *e = &o->e[o->index[k] - 1];

		jr_steps(r, 1);
		if (e->hash == h && v_eq(r, e->key, key))
			return e;
	}
	return NULL;
}

void dict_set(struct jrender *r, struct jdict *o, struct value key, struct value v)
{
	uint64_t h = hash(r, key);
	struct jpair *e = dict_find(r, o, key, h), *old = o->e;
	size_t k;

	if (e) {
		e->value = v;
		return;
	}
	if (o->n == o->cap) {
		if (o->n >= UINT32_MAX / 2)
			jr_fail(r, E_LIMIT, "dict of more than %zu entries", o->n);
		o->cap = o->cap ? o->cap * 2 : 4;
		o->e = jr_array(r, o->cap, sizeof *o->e);
		if (o->n)
			memcpy(o->e, old, o->n * sizeof *old);
	}
	o->e[o->n++] = (struct jpair){ key, v, h };
	if (o->n <= DICT_SMALL)
		return;
	if (o->n * 2 > o->index_cap) {
		dict_index(r, o);
		return;
	}
	for (k = h & (o->index_cap - 1); o->index[k]; k = (k + 1) & (o->index_cap - 1))
		;
	o->index[k] = (uint32_t)o->n;
}

struct value *dict_get(struct jrender *r, struct jdict *o, struct value key)
{
	struct jpair *e = dict_find(r, o, key, hash(r, key));

	return e ? &e->value : NULL;
}

struct value *dict_get_str(struct jrender *r, struct jdict *o, const struct jstr *key)
{
	struct value k = { .kind = V_STR, .s = (struct jstr *)(uintptr_t)key };
	struct jpair *e = dict_find(r, o, k, hash_bytes(key->p, key->n));

	return e ? &e->value : NULL;
}

struct value view_at(struct jrender *r, struct value view, size_t i)
{
	const struct jpair *e = &view.o->e[i];

	return view.aux == VIEW_KEYS ? e->key : view.aux == VIEW_VALUES ? e->value : v_pair(r, e->key, e->value);
}

/* ---- iteration ---- */

bool v_iterable(struct value v)
{
	return v_has_len(v) || v.kind == V_GEN;
}

struct jiter iter_open(struct jrender *r, struct value v)
{
	if (!v_iterable(v))
		jr_fail(r, E_ARG, "'%s' object is not iterable", v_type(v));
	return (struct jiter){ .of = v };
}

bool iter_next(struct jrender *r, struct jiter *it, struct value *out)
{
	struct value v = it->of;
	uint32_t cp;
	size_t k;

	jr_steps(r, 1);
	switch (v.kind) {
	case V_LIST:
	case V_TUPLE:
		if (it->i >= v.l->n)
			return false;
		*out = v.l->v[it->i++];
		return true;
	case V_DICT:
		if (it->i >= v.o->n)
			return false;
		*out = v.o->e[it->i++].key;
		return true;
	case V_VIEW:
		if (it->i >= v.o->n)
			return false;
		*out = view_at(r, v, it->i++);
		return true;
	case V_STR:
		if (it->i >= v.s->n)
			return false;
		k = (size_t)utf8_decode(v.s->p + it->i, v.s->n - it->i, &cp);
		*out = v_str(v_to_str(r, v_str(str_sub(r, v.s, it->i, it->i + k))));
		it->i += k;
		return true;
	case V_RANGE:
		if ((int64_t)it->i >= v.range->n)
			return false;
		*out = v_int(range_at(v.range, (int64_t)it->i++));
		return true;
	case V_GEN: return gen_next(r, v.gen, out);
	default: return false;
	}
}

void v_sort(struct jrender *r, struct value *keys, struct value *vals, size_t n, bool reverse)
{
	size_t *a = jr_array(r, n, sizeof *a), *b = jr_array(r, n, sizeof *b), *t;
	struct value *tmp = jr_array(r, n, sizeof *tmp);

	for (size_t i = 0; i < n; i++)
		a[i] = i;
	/* Merging from the bottom; the right element goes first only when it is strictly
	 * before the left one, so equal elements keep their order either way. */
	for (size_t w = 1; w < n; w *= 2) {
		for (size_t lo = 0; lo < n; lo += 2 * w) {
			size_t mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n, i = lo, k = mid;

			for (size_t o = lo; o < hi; o++) {
				bool right = i >= mid ||
				             (k < hi && in_order(r, reverse ? OP_GT : OP_LT, keys[a[k]], keys[a[i]]));

				jr_steps(r, 1);
				b[o] = right ? a[k++] : a[i++];
			}
		}
		t = a;
		a = b;
		b = t;
	}
	for (size_t i = 0; i < n; i++)
		tmp[i] = vals[a[i]];
	memcpy(vals, tmp, n * sizeof *tmp);
}
