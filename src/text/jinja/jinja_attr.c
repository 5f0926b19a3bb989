/* jinja_attr.c - x.name, x[key], slices, and the methods of dict, list, tuple and loop.
 *
 * x.name looks for a method first and a key second, x[key] the other way round, as
 * Jinja does; both give undefined when there is neither.  Methods that would change
 * a list or dict exist but are unsafe: using them is an error, as in the immutable
 * sandbox of Jinja 3.1.5 and later (earlier ones let list.pop and list.clear pass). */
#include "text/jinja/jinja.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* ---- dict, list, tuple, loop ---- */

static struct value m_get(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[2], *v;

	args_bind(r, "get", "- -", a, arg, 1);
	v = dict_get(r, self.o, arg[0]);
	return v ? *v : arg[1].kind == V_MISSING ? v_none() : arg[1];
}

static struct value view(struct jrender *r, struct value self, const struct jargs *a, int which)
{
	no_args(r, "dict view", a);
	return (struct value){ .kind = V_VIEW, .aux = (uint8_t)which, .o = self.o };
}

static struct value m_keys(struct jrender *r, struct value self, const struct jargs *a)
{
	return view(r, self, a, VIEW_KEYS);
}

static struct value m_values(struct jrender *r, struct value self, const struct jargs *a)
{
	return view(r, self, a, VIEW_VALUES);
}

static struct value m_items(struct jrender *r, struct value self, const struct jargs *a)
{
	return view(r, self, a, VIEW_ITEMS);
}

static struct value m_copy(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "copy", a);
	return self; /* nothing can change either of them */
}

static struct value m_list_count(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[1];
	int64_t n = 0;

	args_bind(r, "count", "-", a, arg, 1);
	for (size_t i = 0; i < self.l->n; i++)
		n += v_eq(r, self.l->v[i], arg[0]);
	jr_steps(r, self.l->n);
	return v_int(n);
}

static struct value m_list_index(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[3];
	int64_t n = (int64_t)self.l->n, to;

	args_bind(r, "index", "- - -", a, arg, 1);
	to = py_bound(r, arg[2], n, n);
	for (int64_t i = py_bound(r, arg[1], 0, n); i < to; i++) {
		jr_steps(r, 1);
		if (v_eq(r, self.l->v[i], arg[0]))
			return v_int(i);
	}
	jr_fail(r, E_ARG, "value is not in list");
}

static struct value m_cycle(struct jrender *r, struct value self, const struct jargs *a)
{
	if (!a->n || a->n_kw)
		jr_fail(r, E_ARG, "no items for cycling given");
	return a->v[self.loop->index0 % (int64_t)a->n];
}

static struct value m_changed(struct jrender *r, struct value self, const struct jargs *a)
{
	struct jlist *l = list_new(r, a->n);
	struct value now = v_tuple(l);
	bool same;

	for (size_t i = 0; i < a->n; i++)
		l->v[i] = a->v[i];
	same = self.loop->last_changed.kind != V_MISSING && v_eq(r, self.loop->last_changed, now);
	self.loop->last_changed = now;
	return v_bool(!same);
}

/* ---- lookup ---- */

static const struct jmethod_def methods[] = {
	METHOD(V_DICT, "get", m_get),           METHOD(V_DICT, "items", m_items),
	METHOD(V_DICT, "keys", m_keys),         METHOD(V_DICT, "values", m_values),
	METHOD(V_DICT, "copy", m_copy),         METHOD(V_DICT, "fromkeys", NULL),
	METHOD_REFUSED(V_DICT, "clear"),        METHOD_REFUSED(V_DICT, "pop"),
	METHOD_REFUSED(V_DICT, "popitem"),      METHOD_REFUSED(V_DICT, "setdefault"),
	METHOD_REFUSED(V_DICT, "update"),

	METHOD(V_LIST, "count", m_list_count),  METHOD(V_LIST, "index", m_list_index),
	METHOD(V_LIST, "copy", m_copy),         METHOD_REFUSED(V_LIST, "append"),
	METHOD_REFUSED(V_LIST, "clear"),        METHOD_REFUSED(V_LIST, "extend"),
	METHOD_REFUSED(V_LIST, "insert"),       METHOD_REFUSED(V_LIST, "pop"),
	METHOD_REFUSED(V_LIST, "remove"),       METHOD_REFUSED(V_LIST, "reverse"),
	METHOD_REFUSED(V_LIST, "sort"),         METHOD(V_TUPLE, "count", m_list_count),
	METHOD(V_TUPLE, "index", m_list_index), METHOD(V_LOOP, "cycle", m_cycle),
	METHOD(V_LOOP, "changed", m_changed),   METHOD(V_INT, "bit_length", NULL),
	METHOD(V_INT, "to_bytes", NULL),        METHOD(V_FLOAT, "is_integer", NULL),
};

/* The method after m of those here and of str's; m NULL: the first; NULL: m is the last. */
static const struct jmethod_def *method_after(const struct jmethod_def *m)
{
	if (!m)
		return methods;
	if (m + 1 == methods + sizeof methods / sizeof *methods)
		return text_methods;
	return m + 1 == text_methods + n_text_methods ? NULL : m + 1;
}

static const struct jmethod_def *method_find(int kind, const char *name, size_t n)
{
	if (kind == V_BOOL)
		kind = V_INT;
	for (const struct jmethod_def *m = NULL; (m = method_after(m));)
		if (m->kind == kind && m->n == n && !memcmp(m->name, name, n))
			return m;
	return NULL;
}

int method_known(const char *name, size_t n)
{
	int known = METHOD_UNKNOWN;

	for (const struct jmethod_def *m = NULL; (m = method_after(m));) {
		if (m->n != n || memcmp(m->name, name, n))
			continue;
		if (m->call || m->refused)
			return METHOD_KNOWN;
		known = METHOD_LACKING;
	}
	return known;
}

struct value method_call(struct jrender *r, struct jmethod *m, const struct jargs *a)
{
	if (!m->def->call)
		jr_fail(r, E_UNSUPPORTED, "method '%s' is not supported", m->def->name);
	return m->def->call(r, m->self, a);
}

static int64_t loop_length(struct jrender *r, struct jloop *l)
{
	struct jlist *rest;
	struct value v;
	size_t cap = 0;

	if (l->length >= 0)
		return l->length;
	/* A generator has no length: take what is left and go on from a list. */
	rest = list_new(r, 0);
	while (loop_fetch(r, l, &v))
		list_push(r, rest, &cap, v);
	l->length = (int64_t)rest->n + l->index0 + 1 + (l->next.kind != V_MISSING);
	l->src = iter_open(r, v_list(rest));
	return l->length;
}

static bool loop_peek(struct jrender *r, struct jloop *l)
{
	return l->next.kind != V_MISSING || loop_fetch(r, l, &l->next);
}

static bool loop_attr(struct jrender *r, struct jloop *l, const struct jstr *name, struct value *out)
{
	if (str_is(name, "index0"))
		*out = v_int(l->index0);
	else if (str_is(name, "index"))
		*out = v_int(l->index0 + 1);
	else if (str_is(name, "first"))
		*out = v_bool(l->index0 == 0);
	else if (str_is(name, "last"))
		*out = v_bool(!loop_peek(r, l));
	else if (str_is(name, "length"))
		*out = v_int(loop_length(r, l));
	else if (str_is(name, "revindex"))
		*out = v_int(loop_length(r, l) - l->index0);
	else if (str_is(name, "revindex0"))
		*out = v_int(loop_length(r, l) - l->index0 - 1);
	else if (str_is(name, "previtem"))
		*out = l->index0 ? l->prev : v_undef_hint(r, "there is no previous item");
	else if (str_is(name, "nextitem"))
		*out = loop_peek(r, l) ? l->next : v_undef_hint(r, "there is no next item");
	else if (str_is(name, "depth"))
		*out = v_int(1);
	else if (str_is(name, "depth0"))
		*out = v_int(0);
	else
		return false;
	return true;
}

/* Finds what Python's getattr would; false: no such attribute. */
static bool attribute(struct jrender *r, struct value v, struct jstr *name, struct value *out)
{
	const struct jmethod_def *def;
	struct jmethod *m;
	struct value *a;

	if (v.kind != V_SPACE && name->n > 4 && !memcmp(name->p, "__", 2) && !memcmp(name->p + name->n - 2, "__", 2)) {
		*out = v_undef(name, UNDEF_UNSAFE);
		return true;
	}
	if (v.kind == V_SPACE) {
		a = dict_get_str(r, v.o, name);
		if (a)
			*out = *a;
		return a != NULL;
	}
	if (v.kind == V_LOOP && loop_attr(r, v.loop, name, out))
		return true;
	if (v.kind == V_MACRO && str_is(name, "name")) {
		*out = v.macro->node->name < 0 ? v_none() : v_str(r->t->names[v.macro->node->name].str);
		return true;
	}
	def = method_find(v.kind, name->p, name->n);
	if (!def)
		return false;
	if (def->refused) {
		*out = v_undef(name, UNDEF_UNSAFE);
		return true;
	}
	m = jr_alloc(r, sizeof *m);
	*m = (struct jmethod){ v, def };
	*out = (struct value){ .kind = V_METHOD, .method = m };
	return true;
}

/* Finds v[key] without falling back to attributes; false: no such item. */
static bool item(struct jrender *r, struct value v, struct value key, struct value *out)
{
	struct value *found;
	int64_t i, n;

	if (v.kind == V_DICT) {
		if (!v_hashable(key))
			return false;
		found = dict_get(r, v.o, key);
		if (found)
			*out = *found;
		return found != NULL;
	}
	if (!v_as_int(key, &i) || (v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_STR && v.kind != V_RANGE))
		return false;
	n = v_len(r, v);
	if (i < 0)
		i += n;
	if (i < 0 || i >= n)
		return false;
	if (v.kind == V_STR) {
		size_t at = str_offset(v.s, (size_t)i), end = at + 1;

		jr_bytes(r, n == (int64_t)v.s->n ? 0 : v.s->n);
		while (end < v.s->n && (v.s->p[end] & 0xC0) == 0x80)
			end++;
		*out = v_str(str_sub(r, v.s, at, end));
	} else {
		*out = v.kind == V_RANGE ? v_int(range_at(v.range, i)) : v.l->v[i];
	}
	return true;
}

struct value v_getattr(struct jrender *r, struct value v, struct jstr *name)
{
	struct value out;

	if (v.kind == V_UNDEF)
		v_fail_undef(r, v);
	if (attribute(r, v, name, &out))
		return out;
	if (v.kind == V_DICT && item(r, v, v_str(name), &out))
		return out;
	return v_undef(name, UNDEF_ATTR + v.kind);
}

struct value v_getitem(struct jrender *r, struct value v, struct value key)
{
	struct value out;

	if (v.kind == V_UNDEF)
		v_fail_undef(r, v);
	if (item(r, v, key, &out))
		return out;
	if (key.kind == V_STR && attribute(r, v, key.s, &out))
		return out;
	return v_undef(v_to_str(r, key), UNDEF_ATTR + v.kind);
}

static bool is_bound(struct value v)
{
	return v.kind == V_NONE || v.kind == V_INT || v.kind == V_BOOL;
}

struct value v_slice(struct jrender *r, struct value v, struct value from, struct value to, struct value step)
{
	int64_t n, k, a, b, count;
	struct jlist *l;
	struct sb out;

	if (v.kind == V_UNDEF)
		v_fail_undef(r, v);
	if (v.kind != V_STR && v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_RANGE)
		jr_fail(r, E_ARG, "'%s' object cannot be sliced", v_type(v));
	if (!is_bound(from) || !is_bound(to) || !is_bound(step))
		jr_fail(r, E_ARG, "slice indices must be integers or None");
	n = v_len(r, v);
	k = step.kind == V_NONE ? 1 : py_index(r, step, 1);
	if (!k)
		jr_fail(r, E_ARG, "slice step cannot be zero");
	if (k > 0) {
		a = py_bound(r, from, 0, n);
		b = py_bound(r, to, n, n);
	} else { /* bounds of a walk to the left lie one lower */
		int64_t x = py_index(r, from.kind == V_NONE ? v_int(n) : from, 0);
		int64_t y = py_index(r, to.kind == V_NONE ? v_int(0) : to, 0);

		a = x < -n ? -1 : x < 0 ? x + n : x >= n ? n - 1 : x;
		b = to.kind == V_NONE || y < -n ? -1 : y < 0 ? y + n : y >= n ? n - 1 : y;
	}
	if (k > 0)
		count = b > a ? (b - a - 1) / k + 1 : 0;
	else
		count = a > b ? (int64_t)((uint64_t)(a - b - 1) / -(uint64_t)k) + 1 : 0;
	if (v.kind == V_RANGE) {
		struct jrange *g = jr_alloc(r, sizeof *g);

		*g = (struct jrange){ .n = count };
		if (__builtin_mul_overflow(a, v.range->step, &g->start) ||
		    __builtin_mul_overflow(b, v.range->step, &g->stop) ||
		    __builtin_add_overflow(g->start, v.range->start, &g->start) ||
		    __builtin_add_overflow(g->stop, v.range->start, &g->stop) ||
		    __builtin_mul_overflow(k, v.range->step, &g->step))
			jr_fail(r, E_UNSUPPORTED, "integer beyond 64 bits");
		return (struct value){ .kind = V_RANGE, .range = g };
	}
	jr_steps(r, (uint64_t)count);
	if (v.kind != V_STR) {
		l = list_new(r, (size_t)count);
		for (int64_t i = 0; i < count; i++)
			l->v[i] = v.l->v[a + i * k];
		return v.kind == V_LIST ? v_list(l) : v_tuple(l);
	}
	jr_bytes(r, n == (int64_t)v.s->n ? 0 : v.s->n);
	if (k == 1 || !count) {
		size_t lo = str_offset(v.s, (size_t)a), hi = count ? str_offset(v.s, (size_t)b) : lo;

		return v_str(str_sub(r, v.s, lo, hi));
	}
	sb_init(&out);
	/* Walks bytes, not indices: each character's start is found from the last one's. */
	for (int64_t i = 0, at = (int64_t)str_offset(v.s, (size_t)a); i < count; i++) {
		int64_t end = at + 1;

		while (end < (int64_t)v.s->n && (v.s->p[end] & 0xC0) == 0x80)
			end++;
		sb_put_sub(r, &out, v.s, (size_t)at, (size_t)end);
		if (i + 1 == count)
			break;
		for (int64_t moved = 0; moved < (k > 0 ? k : -k); moved++) {
			do
				at += k > 0 ? 1 : -1;
			while ((v.s->p[at] & 0xC0) == 0x80);
		}
	}
	return str_like(r, v, sb_str(r, &out));
}
