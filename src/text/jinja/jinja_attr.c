/* jinja_attr.c - x.name, x[key], slices, and the methods of Python's types.
 *
 * x.name looks for a method first and a key second, x[key] the other way round, as
 * Jinja does; both give undefined when there is neither.  Methods that would change
 * a list or dict exist but are unsafe: using them is an error, as in the immutable
 * sandbox of Jinja 3.1.5 and later (earlier ones let list.pop and list.clear pass). */
#include "text/jinja/jinja.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* ---- arguments ---- */

static int64_t arg_int(struct jrender *r, struct value v, int64_t deflt)
{
	int64_t i = deflt;

	if (v.kind != V_MISSING && !v_as_int(v, &i))
		jr_fail(r, E_ARG, "'%s' object cannot be interpreted as an integer", v_type(v));
	return i;
}

static struct jstr *arg_str(struct jrender *r, const char *what, struct value v)
{
	if (v.kind != V_STR)
		jr_fail(r, E_ARG, "%s: must be str, not %s", what, v_type(v));
	return v.s;
}

/* The result of a method of self: a markup's is one too. */
static struct value keep(struct jrender *r, struct value self, struct jstr *s)
{
	return v_str(self.s->markup ? str_markup(r, s) : s);
}

/* The other strings of such a method, which a markup escapes. */
static struct jstr *other(struct jrender *r, struct value self, struct jstr *s)
{
	return self.s->markup ? str_escape(r, s) : s;
}

/* A slice bound of Python on a length n. */
static int64_t clamp(struct jrender *r, struct value v, int64_t deflt, int64_t n)
{
	int64_t i;

	if (v.kind == V_NONE || v.kind == V_MISSING)
		return deflt;
	i = arg_int(r, v, 0);
	if (i < 0)
		i = i < -n ? 0 : i + n;
	return i > n ? n : i;
}

/* The part of self that optional start and end arguments name, as bytes; false
 * when start lies beyond the end. */
static bool part(struct jrender *r, struct jstr *s, struct value from, struct value to, size_t *lo, size_t *hi)
{
	int64_t n = v_len(r, v_str(s)), a, b, start = 0;

	if (from.kind != V_NONE)
		start = arg_int(r, from, 0);
	a = clamp(r, from, 0, n);
	b = clamp(r, to, n, n);
	jr_bytes(r, s->n);
	*lo = str_offset(s, (size_t)a);
	*hi = str_offset(s, (size_t)b);
	return start <= n && *lo <= *hi;
}

/* ---- searching ---- */

static const char *find_last(struct jrender *r, const char *p, size_t n, const struct jstr *what)
{
	if (what->n > n)
		return NULL;
	for (const char *q = p + (n - what->n);; q--) {
		if ((!what->n || *q == *what->p) && !memcmp(q, what->p, what->n))
			return q;
		jr_steps(r, what->n && *q == *what->p ? what->n / 16 + 1 : (uint64_t) !((q - p) & 15));
		if (q == p)
			return NULL;
	}
}

static struct value affix(struct jrender *r, struct value self, const struct jargs *a, bool end)
{
	const char *what = end ? "endswith" : "startswith";
	struct value arg[3];
	struct jlist one = { 1, arg }, *set = &one;
	size_t lo, hi;

	args_bind(r, what, "- - -", a, arg, 1);
	if (arg[0].kind == V_TUPLE)
		set = arg[0].l;
	if (!part(r, self.s, arg[1], arg[2], &lo, &hi))
		return v_bool(false);
	for (size_t i = 0; i < set->n; i++) {
		struct jstr *s = arg_str(r, what, set->v[i]);

		if (s->n <= hi - lo && !memcmp(self.s->p + (end ? hi - s->n : lo), s->p, s->n))
			return v_bool(true);
	}
	return v_bool(false);
}

static struct value m_startswith(struct jrender *r, struct value self, const struct jargs *a)
{
	return affix(r, self, a, false);
}

static struct value m_endswith(struct jrender *r, struct value self, const struct jargs *a)
{
	return affix(r, self, a, true);
}

static struct value find(struct jrender *r, struct value self, const struct jargs *a, bool last, bool must)
{
	struct value arg[3];
	const char *hit = NULL;
	size_t lo, hi, at;
	struct jstr *what;

	args_bind(r, "find", "- - -", a, arg, 1);
	what = arg_str(r, "find", arg[0]);
	if (part(r, self.s, arg[1], arg[2], &lo, &hi))
		hit = last ? find_last(r, self.s->p + lo, hi - lo, what) :
		             mem_find(self.s->p + lo, hi - lo, what->p, what->n);
	if (!hit) {
		if (must)
			jr_fail(r, E_ARG, "substring not found");
		return v_int(-1);
	}
	at = (size_t)(hit - self.s->p);
	if (str_chars(self.s) != self.s->n)
		at = str_chars(str_sub(r, self.s, 0, at));
	return v_int((int64_t)at);
}

static struct value m_find(struct jrender *r, struct value self, const struct jargs *a)
{
	return find(r, self, a, false, false);
}

static struct value m_rfind(struct jrender *r, struct value self, const struct jargs *a)
{
	return find(r, self, a, true, false);
}

static struct value m_index(struct jrender *r, struct value self, const struct jargs *a)
{
	return find(r, self, a, false, true);
}

static struct value m_rindex(struct jrender *r, struct value self, const struct jargs *a)
{
	return find(r, self, a, true, true);
}

static struct value m_count(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[3];
	struct jstr *what;
	const char *hit;
	size_t lo, hi;
	int64_t n = 0;

	args_bind(r, "count", "- - -", a, arg, 1);
	what = arg_str(r, "count", arg[0]);
	if (!part(r, self.s, arg[1], arg[2], &lo, &hi))
		return v_int(0);
	if (!what->n)
		return v_int((int64_t)str_chars(str_sub(r, self.s, lo, hi)) + 1);
	for (; (hit = mem_find(self.s->p + lo, hi - lo, what->p, what->n)); n++) {
		lo = (size_t)(hit - self.s->p) + what->n;
		jr_steps(r, 1);
	}
	return v_int(n);
}

/* ---- cutting ---- */

static struct value strip(struct jrender *r, struct value self, const struct jargs *a, int sides)
{
	struct value arg[1];
	struct jstr *chars = NULL;

	args_bind(r, "strip", "-", a, arg, 0);
	if (arg[0].kind != V_MISSING && arg[0].kind != V_NONE)
		chars = other(r, self, arg_str(r, "strip", arg[0]));
	return v_str(str_strip(r, self.s, chars, sides));
}

static struct value m_strip(struct jrender *r, struct value self, const struct jargs *a)
{
	return strip(r, self, a, STRIP_LEFT | STRIP_RIGHT);
}

static struct value m_lstrip(struct jrender *r, struct value self, const struct jargs *a)
{
	return strip(r, self, a, STRIP_LEFT);
}

static struct value m_rstrip(struct jrender *r, struct value self, const struct jargs *a)
{
	return strip(r, self, a, STRIP_RIGHT);
}

struct pieces {
	struct jlist *l;
	size_t cap;
};

static void piece(struct jrender *r, struct pieces *p, struct jstr *s, size_t from, size_t to)
{
	list_push(r, p->l, &p->cap, v_str(str_sub(r, s, from, to)));
	jr_steps(r, 1);
}

static void split_space(struct jrender *r, struct jstr *s, int64_t max, struct pieces *out)
{
	size_t at = 0, k, start;

	for (;;) {
		while ((k = space_at(s->p + at, s->n - at)))
			at += k;
		if (at >= s->n)
			return;
		start = at;
		if (max-- == 0)
			break;
		while (at < s->n && !space_at(s->p + at, s->n - at))
			at++;
		piece(r, out, s, start, at);
	}
	piece(r, out, s, start, s->n);
}

static void rsplit_space(struct jrender *r, struct jstr *s, int64_t max, struct pieces *out)
{
	size_t end = s->n, at, k;

	for (;;) {
		while ((k = space_before(s->p, end)))
			end -= k;
		if (!end)
			return;
		at = end;
		if (max-- == 0)
			break;
		while (at && !space_before(s->p, at))
			at--;
		piece(r, out, s, at, end);
		end = at;
	}
	piece(r, out, s, 0, end);
}

static struct value split(struct jrender *r, struct value self, const struct jargs *a, bool right)
{
	struct value arg[2], t;
	struct pieces out = { .l = list_new(r, 0) };
	struct jstr *s = self.s, *sep;
	size_t from = 0, end = s->n;
	const char *hit;
	int64_t max;

	args_bind(r, "split", "sep maxsplit", a, arg, 0);
	max = arg_int(r, arg[1], -1);
	jr_steps(r, s->n / 2);
	if (arg[0].kind == V_MISSING || arg[0].kind == V_NONE) {
		if (right)
			rsplit_space(r, s, max, &out);
		else
			split_space(r, s, max, &out);
	} else {
		sep = arg_str(r, "split", arg[0]);
		if (!sep->n)
			jr_fail(r, E_ARG, "empty separator");
		while (max-- && (hit = right ? find_last(r, s->p, end, sep) :
		                               mem_find(s->p + from, s->n - from, sep->p, sep->n))) {
			size_t at = (size_t)(hit - s->p);

			piece(r, &out, s, right ? at + sep->n : from, right ? end : at);
			from = right ? 0 : at + sep->n;
			end = right ? at : end;
		}
		piece(r, &out, s, from, end);
	}
	for (size_t i = 0; right && i < out.l->n / 2; i++) {
		t = out.l->v[i];
		out.l->v[i] = out.l->v[out.l->n - 1 - i];
		out.l->v[out.l->n - 1 - i] = t;
	}
	return v_list(out.l);
}

static struct value m_split(struct jrender *r, struct value self, const struct jargs *a)
{
	return split(r, self, a, false);
}

static struct value m_rsplit(struct jrender *r, struct value self, const struct jargs *a)
{
	return split(r, self, a, true);
}

static struct value m_splitlines(struct jrender *r, struct value self, const struct jargs *a)
{
	struct pieces out = { .l = list_new(r, 0) };
	struct jstr *s = self.s;
	struct value arg[1];
	size_t from = 0, k;
	bool keepends;

	args_bind(r, "splitlines", "keepends", a, arg, 0);
	keepends = v_true(r, arg[0]);
	jr_steps(r, s->n / 2);
	for (size_t i = 0; i < s->n; i += k) {
		k = line_break_at(s->p + i, s->n - i);
		if (!k) {
			k = 1;
			while (i + k < s->n && (s->p[i + k] & 0xC0) == 0x80)
				k++;
			continue;
		}
		piece(r, &out, s, from, keepends ? i + k : i);
		from = i + k;
	}
	if (from < s->n)
		piece(r, &out, s, from, s->n);
	return v_list(out.l);
}

static struct value partition(struct jrender *r, struct value self, const struct jargs *a, bool last)
{
	struct jlist *l = list_new(r, 3);
	struct jstr *s = self.s, *sep, *empty = str_sub(r, s, 0, 0);
	struct value arg[1];
	const char *hit;
	size_t at;

	args_bind(r, "partition", "-", a, arg, 1);
	sep = other(r, self, arg_str(r, "partition", arg[0]));
	if (!sep->n)
		jr_fail(r, E_ARG, "empty separator");
	hit = last ? find_last(r, s->p, s->n, sep) : mem_find(s->p, s->n, sep->p, sep->n);
	jr_bytes(r, s->n);
	if (!hit) {
		l->v[0] = v_str(last ? empty : s);
		l->v[1] = v_str(empty);
		l->v[2] = v_str(last ? s : empty);
		return v_tuple(l);
	}
	at = (size_t)(hit - s->p);
	l->v[0] = v_str(str_sub(r, s, 0, at));
	l->v[1] = v_str(str_sub(r, s, at, at + sep->n));
	l->v[2] = v_str(str_sub(r, s, at + sep->n, s->n));
	return v_tuple(l);
}

static struct value m_partition(struct jrender *r, struct value self, const struct jargs *a)
{
	return partition(r, self, a, false);
}

static struct value m_rpartition(struct jrender *r, struct value self, const struct jargs *a)
{
	return partition(r, self, a, true);
}

static struct value m_removeprefix(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[1];
	struct jstr *x;

	args_bind(r, "removeprefix", "-", a, arg, 1);
	x = arg_str(r, "removeprefix", arg[0]);
	if (x->n > self.s->n || memcmp(self.s->p, x->p, x->n))
		return v_str(v_to_str(r, self));
	return v_str(v_to_str(r, v_str(str_sub(r, self.s, x->n, self.s->n))));
}

static struct value m_removesuffix(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[1];
	struct jstr *x;

	args_bind(r, "removesuffix", "-", a, arg, 1);
	x = arg_str(r, "removesuffix", arg[0]);
	if (x->n > self.s->n || memcmp(self.s->p + self.s->n - x->n, x->p, x->n))
		return v_str(v_to_str(r, self));
	return v_str(v_to_str(r, v_str(str_sub(r, self.s, 0, self.s->n - x->n))));
}

/* ---- building ---- */

static struct value m_replace(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[3];

	args_bind(r, "replace", "- - -", a, arg, 2);
	return keep(r, self,
	            str_replace(r, self.s, other(r, self, arg_str(r, "replace", arg[0])),
	                        other(r, self, arg_str(r, "replace", arg[1])), arg_int(r, arg[2], -1)));
}

static struct value m_join(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[1], x;
	struct jiter it;
	struct sb b;

	args_bind(r, "join", "-", a, arg, 1);
	sb_init(&b);
	it = iter_open(r, arg[0]);
	for (bool first = true; iter_next(r, &it, &x); first = false) {
		if (x.kind != V_STR && !self.s->markup)
			jr_fail(r, E_ARG, "join: expected str, found %s", v_type(x));
		if (!first)
			sb_put_str(r, &b, self.s);
		sb_put_str(r, &b, other(r, self, v_soft_str(r, x)));
	}
	return keep(r, self, sb_str(r, &b));
}

static struct value pad(struct jrender *r, struct value self, const struct jargs *a, int where)
{
	struct jstr *fill = str_lit(r, " ");
	int64_t width, n, left;
	struct value arg[2];
	struct sb b;

	args_bind(r, "justify", "- -", a, arg, 1);
	width = arg_int(r, arg[0], 0);
	if (arg[1].kind != V_MISSING)
		fill = other(r, self, arg_str(r, "justify", arg[1]));
	if (v_len(r, v_str(fill)) != 1)
		jr_fail(r, E_ARG, "the fill character must be exactly one character long");
	n = width - v_len(r, self);
	if (n <= 0)
		return self;
	/* str.center puts the odd blank left when the width is odd. */
	left = where < 0 ? n : where > 0 ? 0 : n / 2 + (n & width & 1);
	sb_init(&b);
	for (int64_t i = 0; i < n; i++) {
		if (i == left)
			sb_put_str(r, &b, self.s);
		sb_put_str(r, &b, fill);
	}
	if (left == n)
		sb_put_str(r, &b, self.s);
	return keep(r, self, sb_str(r, &b));
}

static struct value m_ljust(struct jrender *r, struct value self, const struct jargs *a)
{
	return pad(r, self, a, 1);
}

static struct value m_rjust(struct jrender *r, struct value self, const struct jargs *a)
{
	return pad(r, self, a, -1);
}

static struct value m_center(struct jrender *r, struct value self, const struct jargs *a)
{
	return pad(r, self, a, 0);
}

static struct value m_zfill(struct jrender *r, struct value self, const struct jargs *a)
{
	bool sign = self.s->n && (*self.s->p == '-' || *self.s->p == '+');
	struct value arg[1];
	struct sb b;
	int64_t n;

	args_bind(r, "zfill", "-", a, arg, 1);
	n = arg_int(r, arg[0], 0) - v_len(r, self);
	sb_init(&b);
	sb_put_sub(r, &b, self.s, 0, sign);
	for (; n > 0; n--)
		sb_puts(r, &b, "0");
	sb_put_sub(r, &b, self.s, sign, self.s->n);
	return keep(r, self, sb_str(r, &b));
}

static void no_args(struct jrender *r, const char *what, const struct jargs *a)
{
	if (a->n || a->n_kw)
		jr_fail(r, E_ARG, "%s() takes no arguments (%zu given)", what, a->n + a->n_kw);
}

static struct value m_upper(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "upper", a);
	return keep(r, self, str_upper(r, self.s));
}

static struct value m_lower(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "lower", a);
	return keep(r, self, str_lower(r, self.s));
}

static struct value m_capitalize(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "capitalize", a);
	return keep(r, self, str_capitalize(r, self.s));
}

static struct value m_title(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "title", a);
	return keep(r, self, str_title(r, self.s, false));
}

static struct value m_format(struct jrender *r, struct value self, const struct jargs *a)
{
	if (self.s->markup)
		jr_fail(r, E_UNSUPPORTED, "format() of a string marked safe");
	return format_braces(r, self.s, a);
}

/* ---- str.isxxx ---- */

enum is { IS_ALPHA, IS_DECIMAL, IS_DIGIT, IS_NUMERIC, IS_ALNUM, IS_SPACE, IS_ASCII, IS_UPPER, IS_LOWER };

static bool superscript(uint32_t c)
{
	return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
	       (c >= 0x2080 && c <= 0x2089);
}

static bool is_char(uint32_t cp, enum is what)
{
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
	bool letter = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
	bool number = c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;

	switch (what) {
	case IS_ALPHA: return letter;
	case IS_DECIMAL: return c == UTF8PROC_CATEGORY_ND;
	case IS_DIGIT: return c == UTF8PROC_CATEGORY_ND || superscript(cp);
	case IS_NUMERIC: return number;
	case IS_ALNUM: return letter || number;
	case IS_SPACE: return is_space(cp);
	default: return cp < 0x80;
	}
}

static struct value is_all(struct jrender *r, struct value self, const struct jargs *a, enum is what)
{
	bool any = what == IS_ASCII;
	uint32_t cp;

	no_args(r, "is...", a);
	jr_steps(r, self.s->n);
	for (size_t i = 0, len; i < self.s->n; i += len) {
		len = (size_t)utf8_decode(self.s->p + i, self.s->n - i, &cp);
		if (what == IS_UPPER || what == IS_LOWER) {
			utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

			if (c == (what == IS_UPPER ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU) ||
			    c == UTF8PROC_CATEGORY_LT)
				return v_bool(false);
			any = any || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LU;
		} else {
			if (!is_char(cp, what))
				return v_bool(false);
			any = true;
		}
	}
	return v_bool(any);
}

#define IS(fn, what)                                                                        \
	static struct value fn(struct jrender *r, struct value self, const struct jargs *a) \
	{                                                                                   \
		return is_all(r, self, a, what);                                            \
	}
IS(m_isalpha, IS_ALPHA)
IS(m_isdecimal, IS_DECIMAL)
IS(m_isdigit, IS_DIGIT)
IS(m_isnumeric, IS_NUMERIC)
IS(m_isalnum, IS_ALNUM)
IS(m_isspace, IS_SPACE)
IS(m_isascii, IS_ASCII)
IS(m_isupper, IS_UPPER)
IS(m_islower, IS_LOWER)
#undef IS

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
	to = clamp(r, arg[2], n, n);
	for (int64_t i = clamp(r, arg[1], 0, n); i < to; i++) {
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

#define DEF(kind, name, fn)                            \
	{                                              \
		name, sizeof name - 1, kind, false, fn \
	}
#define REFUSE(kind, name)                              \
	{                                               \
		name, sizeof name - 1, kind, true, NULL \
	}
static const struct jmethod_def methods[] = {
	DEF(V_DICT, "get", m_get),
	DEF(V_DICT, "items", m_items),
	DEF(V_DICT, "keys", m_keys),
	DEF(V_DICT, "values", m_values),
	DEF(V_DICT, "copy", m_copy),
	DEF(V_DICT, "fromkeys", NULL),
	REFUSE(V_DICT, "clear"),
	REFUSE(V_DICT, "pop"),
	REFUSE(V_DICT, "popitem"),
	REFUSE(V_DICT, "setdefault"),
	REFUSE(V_DICT, "update"),

	DEF(V_STR, "split", m_split),
	DEF(V_STR, "rsplit", m_rsplit),
	DEF(V_STR, "strip", m_strip),
	DEF(V_STR, "lstrip", m_lstrip),
	DEF(V_STR, "rstrip", m_rstrip),
	DEF(V_STR, "startswith", m_startswith),
	DEF(V_STR, "endswith", m_endswith),
	DEF(V_STR, "replace", m_replace),
	DEF(V_STR, "join", m_join),
	DEF(V_STR, "upper", m_upper),
	DEF(V_STR, "lower", m_lower),
	DEF(V_STR, "title", m_title),
	DEF(V_STR, "capitalize", m_capitalize),
	DEF(V_STR, "find", m_find),
	DEF(V_STR, "rfind", m_rfind),
	DEF(V_STR, "index", m_index),
	DEF(V_STR, "rindex", m_rindex),
	DEF(V_STR, "count", m_count),
	DEF(V_STR, "splitlines", m_splitlines),
	DEF(V_STR, "partition", m_partition),
	DEF(V_STR, "rpartition", m_rpartition),
	DEF(V_STR, "removeprefix", m_removeprefix),
	DEF(V_STR, "removesuffix", m_removesuffix),
	DEF(V_STR, "ljust", m_ljust),
	DEF(V_STR, "rjust", m_rjust),
	DEF(V_STR, "center", m_center),
	DEF(V_STR, "zfill", m_zfill),
	DEF(V_STR, "format", m_format),
	DEF(V_STR, "isalpha", m_isalpha),
	DEF(V_STR, "isdecimal", m_isdecimal),
	DEF(V_STR, "isdigit", m_isdigit),
	DEF(V_STR, "isnumeric", m_isnumeric),
	DEF(V_STR, "isalnum", m_isalnum),
	DEF(V_STR, "isspace", m_isspace),
	DEF(V_STR, "isascii", m_isascii),
	DEF(V_STR, "isupper", m_isupper),
	DEF(V_STR, "islower", m_islower),
	DEF(V_STR, "casefold", NULL),
	DEF(V_STR, "encode", NULL),
	DEF(V_STR, "expandtabs", NULL),
	DEF(V_STR, "format_map", NULL),
	DEF(V_STR, "isidentifier", NULL),
	DEF(V_STR, "isprintable", NULL),
	DEF(V_STR, "istitle", NULL),
	DEF(V_STR, "maketrans", NULL),
	DEF(V_STR, "swapcase", NULL),
	DEF(V_STR, "translate", NULL),

	DEF(V_LIST, "count", m_list_count),
	DEF(V_LIST, "index", m_list_index),
	DEF(V_LIST, "copy", m_copy),
	REFUSE(V_LIST, "append"),
	REFUSE(V_LIST, "clear"),
	REFUSE(V_LIST, "extend"),
	REFUSE(V_LIST, "insert"),
	REFUSE(V_LIST, "pop"),
	REFUSE(V_LIST, "remove"),
	REFUSE(V_LIST, "reverse"),
	REFUSE(V_LIST, "sort"),
	DEF(V_TUPLE, "count", m_list_count),
	DEF(V_TUPLE, "index", m_list_index),
	DEF(V_LOOP, "cycle", m_cycle),
	DEF(V_LOOP, "changed", m_changed),
	DEF(V_INT, "bit_length", NULL),
	DEF(V_INT, "to_bytes", NULL),
	DEF(V_FLOAT, "is_integer", NULL),
};

static const struct jmethod_def *method_find(int kind, const char *name, size_t n)
{
	if (kind == V_BOOL)
		kind = V_INT;
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if (methods[i].kind == kind && methods[i].n == n && !memcmp(methods[i].name, name, n))
			return &methods[i];
	return NULL;
}

int method_known(const char *name, size_t n)
{
	int known = METHOD_UNKNOWN;

	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		if (methods[i].n != n || memcmp(methods[i].name, name, n))
			continue;
		if (methods[i].call || methods[i].refused)
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

/* What Python's getattr finds; false: nothing. */
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

/* What v[key] finds without help; false: nothing. */
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
	k = step.kind == V_NONE ? 1 : arg_int(r, step, 1);
	if (!k)
		jr_fail(r, E_ARG, "slice step cannot be zero");
	if (k > 0) {
		a = clamp(r, from, 0, n);
		b = clamp(r, to, n, n);
	} else { /* bounds of a walk to the left lie one lower */
		int64_t x = arg_int(r, from.kind == V_NONE ? v_int(n) : from, 0);
		int64_t y = arg_int(r, to.kind == V_NONE ? v_int(0) : to, 0);

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
	return keep(r, v, sb_str(r, &out));
}
