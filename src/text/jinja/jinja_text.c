/* jinja_text.c - the methods of Python's str. */
#include "text/jinja/jinja.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* ---- arguments ---- */

int64_t py_index(struct jrender *r, struct value v, int64_t deflt)
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

struct value str_like(struct jrender *r, struct value self, struct jstr *s)
{
	return v_str(self.s->markup ? str_markup(r, s) : s);
}

/* The other strings of such a method, which a markup escapes. */
static struct jstr *other(struct jrender *r, struct value self, struct jstr *s)
{
	return self.s->markup ? str_escape(r, s) : s;
}

int64_t py_bound(struct jrender *r, struct value v, int64_t deflt, int64_t n)
{
	int64_t i;

	if (v.kind == V_NONE || v.kind == V_MISSING)
		return deflt;
	i = py_index(r, v, 0);
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
		start = py_index(r, from, 0);
	a = py_bound(r, from, 0, n);
	b = py_bound(r, to, n, n);
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

static struct value find_text(struct jrender *r, struct value self, const struct jargs *a, bool last, bool must)
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
	return find_text(r, self, a, false, false);
}

static struct value m_rfind(struct jrender *r, struct value self, const struct jargs *a)
{
	return find_text(r, self, a, true, false);
}

static struct value m_index(struct jrender *r, struct value self, const struct jargs *a)
{
	return find_text(r, self, a, false, true);
}

static struct value m_rindex(struct jrender *r, struct value self, const struct jargs *a)
{
	return find_text(r, self, a, true, true);
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
	max = py_index(r, arg[1], -1);
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
	return str_like(r, self,
	                str_replace(r, self.s, other(r, self, arg_str(r, "replace", arg[0])),
	                            other(r, self, arg_str(r, "replace", arg[1])), py_index(r, arg[2], -1)));
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
	return str_like(r, self, sb_str(r, &b));
}

static struct value pad(struct jrender *r, struct value self, const struct jargs *a, int where)
{
	struct jstr *fill = str_lit(r, " ");
	int64_t width, n, left;
	struct value arg[2];
	struct sb b;

	args_bind(r, "justify", "- -", a, arg, 1);
	width = py_index(r, arg[0], 0);
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
	return str_like(r, self, sb_str(r, &b));
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
	n = py_index(r, arg[0], 0) - v_len(r, self);
	sb_init(&b);
	sb_put_sub(r, &b, self.s, 0, sign);
	for (; n > 0; n--)
		sb_puts(r, &b, "0");
	sb_put_sub(r, &b, self.s, sign, self.s->n);
	return str_like(r, self, sb_str(r, &b));
}

void no_args(struct jrender *r, const char *what, const struct jargs *a)
{
	if (a->n || a->n_kw)
		jr_fail(r, E_ARG, "%s() takes no arguments (%zu given)", what, a->n + a->n_kw);
}

static struct value m_upper(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "upper", a);
	return str_like(r, self, str_upper(r, self.s));
}

static struct value m_lower(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "lower", a);
	return str_like(r, self, str_lower(r, self.s));
}

static struct value m_capitalize(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "capitalize", a);
	return str_like(r, self, str_capitalize(r, self.s));
}

static struct value m_title(struct jrender *r, struct value self, const struct jargs *a)
{
	no_args(r, "title", a);
	return str_like(r, self, str_title(r, self.s, false));
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

/* ---- the list ---- */

const struct jmethod_def text_methods[] = {
	METHOD(V_STR, "split", m_split),
	METHOD(V_STR, "rsplit", m_rsplit),
	METHOD(V_STR, "strip", m_strip),
	METHOD(V_STR, "lstrip", m_lstrip),
	METHOD(V_STR, "rstrip", m_rstrip),
	METHOD(V_STR, "startswith", m_startswith),
	METHOD(V_STR, "endswith", m_endswith),
	METHOD(V_STR, "replace", m_replace),
	METHOD(V_STR, "join", m_join),
	METHOD(V_STR, "upper", m_upper),
	METHOD(V_STR, "lower", m_lower),
	METHOD(V_STR, "title", m_title),
	METHOD(V_STR, "capitalize", m_capitalize),
	METHOD(V_STR, "find", m_find),
	METHOD(V_STR, "rfind", m_rfind),
	METHOD(V_STR, "index", m_index),
	METHOD(V_STR, "rindex", m_rindex),
	METHOD(V_STR, "count", m_count),
	METHOD(V_STR, "splitlines", m_splitlines),
	METHOD(V_STR, "partition", m_partition),
	METHOD(V_STR, "rpartition", m_rpartition),
	METHOD(V_STR, "removeprefix", m_removeprefix),
	METHOD(V_STR, "removesuffix", m_removesuffix),
	METHOD(V_STR, "ljust", m_ljust),
	METHOD(V_STR, "rjust", m_rjust),
	METHOD(V_STR, "center", m_center),
	METHOD(V_STR, "zfill", m_zfill),
	METHOD(V_STR, "format", m_format),
	METHOD(V_STR, "isalpha", m_isalpha),
	METHOD(V_STR, "isdecimal", m_isdecimal),
	METHOD(V_STR, "isdigit", m_isdigit),
	METHOD(V_STR, "isnumeric", m_isnumeric),
	METHOD(V_STR, "isalnum", m_isalnum),
	METHOD(V_STR, "isspace", m_isspace),
	METHOD(V_STR, "isascii", m_isascii),
	METHOD(V_STR, "isupper", m_isupper),
	METHOD(V_STR, "islower", m_islower),
	METHOD(V_STR, "casefold", NULL),
	METHOD(V_STR, "encode", NULL),
	METHOD(V_STR, "expandtabs", NULL),
	METHOD(V_STR, "format_map", NULL),
	METHOD(V_STR, "isidentifier", NULL),
	METHOD(V_STR, "isprintable", NULL),
	METHOD(V_STR, "istitle", NULL),
	METHOD(V_STR, "maketrans", NULL),
	METHOD(V_STR, "swapcase", NULL),
	METHOD(V_STR, "translate", NULL),
};
const size_t n_text_methods = sizeof text_methods / sizeof *text_methods;
