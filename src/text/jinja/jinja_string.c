/* jinja_string.c - strings that remember where their text came from.
 *
 * A struct jstr is a view: slices, strip and split share the bytes.  Text that is
 * put together goes through a struct sb, which writes an origin run only where the
 * origin changes.  A string just built remembers its builder: appending to it again
 * (the ns.out = ns.out ~ x of some templates) then costs only the new bytes, since
 * bytes beyond its end belong to no string.  Its last run may have grown meanwhile; readers
 * stop at the string's own length. */
#include "text/jinja/jinja.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

enum { SB_FIRST = 64 };

void sb_init(struct sb *b)
{
	*b = (struct sb){ .max = SIZE_MAX };
}

void sb_reserve(struct jrender *r, struct sb *b, size_t more)
{
	size_t cap;
	char *p;

	if (more <= b->cap - b->n)
		return;
	if (more > b->max - b->n)
		jr_fail(r, E_LIMIT, "output of more than %zu bytes", b->max);
	cap = b->cap ? b->cap * 2 : SB_FIRST;
	if (cap < b->n + more)
		cap = b->n + more;
	p = jr_alloc(r, cap);
	jr_copy(r, p, b->p, b->n);
	b->p = p;
	b->cap = cap;
}

static void add_run(struct jrender *r, struct sb *b, size_t end, uint32_t origin)
{
	struct jrun *old = b->runs;

	if (b->n_runs && b->runs[b->n_runs - 1].origin == origin) {
		b->runs[b->n_runs - 1].end = end;
		return;
	}
	if (b->n_runs == b->cap_runs) {
		b->cap_runs = b->cap_runs ? b->cap_runs * 2 : 4;
		b->runs = jr_array(r, b->cap_runs, sizeof *b->runs);
		if (b->n_runs)
			memcpy(b->runs, old, b->n_runs * sizeof *old);
	}
	b->runs[b->n_runs++] = (struct jrun){ end, origin };
}

void sb_put(struct jrender *r, struct sb *b, const char *p, size_t n, uint32_t origin)
{
	if (!n)
		return;
	jr_bytes(r, n);
	if (n > b->max - b->n)
		jr_fail(r, E_LIMIT, "output of more than %zu bytes", b->max);
	sb_reserve(r, b, n);
	jr_copy(r, b->p + b->n, p, n);
	b->n += n;
	add_run(r, b, b->n, origin);
}

void sb_puts(struct jrender *r, struct sb *b, const char *s)
{
	sb_put(r, b, s, strlen(s), ORIGIN_TEXT);
}

/* Index of the run that byte `at` lies in. */
static uint32_t run_at(const struct jstr *s, size_t at)
{
	uint32_t lo = 0, hi = s->n_runs - 1;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->runs[mid].end > at)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

void sb_put_sub(struct jrender *r, struct sb *b, const struct jstr *s, size_t from, size_t to)
{
	if (from >= to)
		return;
	if (!s->n_runs) {
		sb_put(r, b, s->p + from, to - from, s->origin);
		return;
	}
	for (uint32_t i = run_at(s, from); from < to; i++) {
		size_t end = s->runs[i].end < to ? s->runs[i].end : to;

		sb_put(r, b, s->p + from, end - from, s->runs[i].origin);
		from = end;
	}
}

void sb_put_str(struct jrender *r, struct sb *b, const struct jstr *s)
{
	sb_put_sub(r, b, s, 0, s->n);
}

void sb_one_origin(struct sb *b, uint32_t origin)
{
	if (b->n) {
		b->runs[0] = (struct jrun){ b->n, origin };
		b->n_runs = 1;
	}
}

struct jstr *sb_str(struct jrender *r, struct sb *b)
{
	struct jstr *s = str_new(r, b->n ? b->p : "", b->n, b->n_runs ? b->runs[0].origin : ORIGIN_TEXT);

	if (b->n_runs > 1) {
		s->runs = b->runs;
		s->n_runs = b->n_runs;
	}
	return s;
}

struct jstr *str_new(struct jrender *r, const char *p, size_t n, uint32_t origin)
{
	struct jstr *s = jr_alloc(r, sizeof *s);

	*s = (struct jstr){ .p = p, .n = n, .chars = NO_CHARS, .origin = origin };
	return s;
}

struct jstr *str_copy(struct jrender *r, const char *p, size_t n)
{
	char *q = jr_alloc(r, n ? n : 1);

	jr_copy(r, q, p, n);
	return str_new(r, q, n, ORIGIN_TEXT);
}

struct jstr *str_lit(struct jrender *r, const char *s)
{
	return str_new(r, s, strlen(s), ORIGIN_TEXT);
}

struct jstr *str_sub(struct jrender *r, struct jstr *s, size_t from, size_t to)
{
	struct jstr *out;
	uint32_t first, last;

	if (from == 0 && to == s->n)
		return s;
	if (from >= to)
		from = to = 0;
	out = str_new(r, s->p + from, to - from, s->origin);
	out->markup = s->markup;
	if (s->chars == s->n)
		out->chars = out->n;
	if (!s->n_runs || !out->n)
		return out;
	first = run_at(s, from);
	last = run_at(s, to - 1);
	if (first == last) {
		out->origin = s->runs[first].origin;
		return out;
	}
	out->n_runs = last - first + 1;
	out->runs = jr_array(r, out->n_runs, sizeof *out->runs);
	for (uint32_t i = 0; i < out->n_runs; i++)
		out->runs[i] = (struct jrun){ s->runs[first + i].end - from, s->runs[first + i].origin };
	return out;
}

struct jstr *str_concat(struct jrender *r, struct jstr *a, const struct jstr *b)
{
	struct sb *g = a->grown;
	struct jstr *out;

	if (!g || a->p != g->p || a->n != g->n) {
		g = jr_alloc(r, sizeof *g);
		sb_init(g);
		sb_reserve(r, g, a->n + b->n);
		sb_put_str(r, g, a);
	}
	sb_put_str(r, g, b);
	out = sb_str(r, g);
	out->grown = g;
	return out;
}

uint32_t str_origin(const struct jstr *s)
{
	uint32_t o = s->origin;

	if (s->n_runs) {
		o = s->runs[0].origin;
		for (uint32_t i = 1; i < s->n_runs; i++)
			o = origin_mix(o, s->runs[i].origin);
	}
	return o;
}

struct jstr *str_markup(struct jrender *r, struct jstr *s)
{
	struct jstr *out;

	if (s->markup)
		return s;
	out = jr_alloc(r, sizeof *out);
	*out = *s;
	out->markup = true;
	return out;
}

struct jstr *str_escape(struct jrender *r, struct jstr *s)
{
	size_t from = 0;
	struct sb b;

	if (s->markup)
		return s;
	jr_steps(r, s->n / 4);
	sb_init(&b);
	for (size_t i = 0; i < s->n; i++) {
		const char *esc = s->p[i] == '&'  ? "&amp;" :
		                  s->p[i] == '<'  ? "&lt;" :
		                  s->p[i] == '>'  ? "&gt;" :
		                  s->p[i] == '\'' ? "&#39;" :
		                  s->p[i] == '"'  ? "&#34;" :
		                                    NULL;

		if (!esc)
			continue;
		sb_put_sub(r, &b, s, from, i);
		sb_put(r, &b, esc, strlen(esc), s->n_runs ? s->runs[run_at(s, i)].origin : s->origin);
		from = i + 1;
	}
	if (!from)
		return str_markup(r, s);
	sb_put_sub(r, &b, s, from, s->n);
	return str_markup(r, sb_str(r, &b));
}

/* ---- characters ---- */

static size_t count_chars(const char *p, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		k += (p[i] & 0xC0) != 0x80;
	return k;
}

size_t str_chars(struct jstr *s)
{
	if (s->chars == NO_CHARS)
		s->chars = count_chars(s->p, s->n);
	return s->chars;
}

size_t str_offset(struct jstr *s, size_t chars)
{
	size_t i = 0;

	if (str_chars(s) == s->n)
		return chars < s->n ? chars : s->n;
	for (; i < s->n; i++)
		if ((s->p[i] & 0xC0) != 0x80 && chars-- == 0)
			break;
	return i;
}

bool str_eq(const struct jstr *a, const struct jstr *b)
{
	return a->n == b->n && !memcmp(a->p, b->p, a->n);
}

bool str_is(const struct jstr *a, const char *b)
{
	return a->n == strlen(b) && !memcmp(a->p, b, a->n);
}

/* Order of code points, which UTF-8 keeps. */
int str_cmp(const struct jstr *a, const struct jstr *b)
{
	int d = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);

	return d ? d : (a->n > b->n) - (a->n < b->n);
}

bool is_space(uint32_t c)
{
	return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t space_at(const char *p, size_t n)
{
	uint32_t cp;
	int len;

	if (!n)
		return 0;
	if ((unsigned char)*p < 0x80)
		return is_space((unsigned char)*p);
	len = utf8_decode(p, n, &cp);
	return len && is_space(cp) ? (size_t)len : 0;
}

static size_t char_before(const char *p, size_t n)
{
	size_t k = 1;

	while (k < n && k < 4 && (p[n - k] & 0xC0) == 0x80)
		k++;
	return k;
}

size_t space_before(const char *p, size_t n)
{
	size_t k = n ? char_before(p, n) : 0;

	return k && space_at(p + n - k, k) == k ? k : 0;
}

size_t line_break_at(const char *p, size_t n)
{
	uint32_t cp;
	int len = utf8_decode(p, n, &cp);

	if (!len)
		return 0;
	if (cp == '\r')
		return n > 1 && p[1] == '\n' ? 2 : 1;
	if ((cp >= 10 && cp <= 12) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029)
		return (size_t)len;
	return 0;
}

const char *mem_find(const char *p, size_t n, const char *what, size_t m)
{
	return memmem(p, n, what, m);
}

/* ---- transformations ---- */

static bool in_set(const struct jstr *set, const char *p, size_t n)
{
	return mem_find(set->p, set->n, p, n) != NULL;
}

struct jstr *str_strip(struct jrender *r, struct jstr *s, const struct jstr *chars, int sides)
{
	size_t from = 0, to = s->n, k;
	uint32_t cp;

	while ((sides & STRIP_LEFT) && from < to) {
		k = (size_t)utf8_decode(s->p + from, to - from, &cp);
		if (!k || (chars ? !in_set(chars, s->p + from, k) : !is_space(cp)))
			break;
		from += k;
	}
	while ((sides & STRIP_RIGHT) && to > from) {
		k = char_before(s->p + from, to - from);
		if (chars ? !in_set(chars, s->p + to - k, k) : !space_at(s->p + to - k, k))
			break;
		to -= k;
	}
	jr_steps(r, (s->n - (to - from)) * (chars ? chars->n / 16 + 1 : 1) + 1);
	return str_sub(r, s, from, to);
}

struct jstr *str_replace(struct jrender *r, struct jstr *s, const struct jstr *old, const struct jstr *with,
                         int64_t count)
{
	size_t from = 0, at = 0;
	const char *hit;
	struct sb b;

	jr_bytes(r, s->n);
	if (old->n && !mem_find(s->p, s->n, old->p, old->n))
		return s;
	sb_init(&b);
	while (count && at <= s->n) {
		if (old->n) {
			hit = mem_find(s->p + at, s->n - at, old->p, old->n);
			if (!hit)
				break;
			at = (size_t)(hit - s->p);
			sb_put_sub(r, &b, s, from, at);
			sb_put_str(r, &b, with);
			at += old->n;
			from = at;
		} else { /* between all characters, and at both ends */
			sb_put_sub(r, &b, s, from, at);
			sb_put_str(r, &b, with);
			from = at++;
			while (at < s->n && (s->p[at] & 0xC0) == 0x80)
				at++;
		}
		jr_steps(r, 1);
		if (count > 0)
			count--;
	}
	sb_put_sub(r, &b, s, from, s->n);
	return sb_str(r, &b);
}

/* Upper-case forms of more than one character (Unicode's SpecialCasing), those
 * without a rule of construction: code point, then its capitals. */
static const uint16_t wide_upper[][4] = {
	{ 0xDF, 'S', 'S' },
	{ 0x149, 0x2BC, 'N' },
	{ 0x1F0, 'J', 0x30C },
	{ 0x390, 0x399, 0x308, 0x301 },
	{ 0x3B0, 0x3A5, 0x308, 0x301 },
	{ 0x587, 0x535, 0x552 },
	{ 0x1E96, 'H', 0x331 },
	{ 0x1E97, 'T', 0x308 },
	{ 0x1E98, 'W', 0x30A },
	{ 0x1E99, 'Y', 0x30A },
	{ 0x1E9A, 'A', 0x2BE },
	{ 0xFB00, 'F', 'F' },
	{ 0xFB01, 'F', 'I' },
	{ 0xFB02, 'F', 'L' },
	{ 0xFB03, 'F', 'F', 'I' },
	{ 0xFB04, 'F', 'F', 'L' },
	{ 0xFB05, 'S', 'T' },
	{ 0xFB06, 'S', 'T' },
};

enum fold { FOLD_UPPER, FOLD_LOWER, FOLD_TITLE };

static bool is_cased(uint32_t cp)
{
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

	return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

static bool case_ignorable(uint32_t cp)
{
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

	return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
	       c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || cp == '\'' || cp == '.' || cp == ':' ||
	       cp == 0xB7 || cp == 0x2019 || cp == 0x2018;
}

/* Greek sigma is written otherwise at the end of a word: a cased letter before
 * it and none after, ignorable characters apart. */
static bool final_sigma(const struct jstr *s, size_t at, size_t len)
{
	bool before = false;
	uint32_t cp;
	int k;

	for (size_t i = at, steps = 0; i && steps < 64; steps++) {
		size_t c = char_before(s->p, i);

		i -= c;
		utf8_decode(s->p + i, c, &cp);
		if (case_ignorable(cp))
			continue;
		before = is_cased(cp);
		break;
	}
	for (size_t i = at + len, steps = 0; before && i < s->n && steps < 64; i += (size_t)k, steps++) {
		k = utf8_decode(s->p + i, s->n - i, &cp);
		if (!case_ignorable(cp))
			return !is_cased(cp);
	}
	return before;
}

/* Appends one character of s, folded. */
static void put_folded(struct jrender *r, struct sb *b, const struct jstr *s, size_t at, size_t len, uint32_t cp,
                       enum fold how)
{
	uint32_t origin = s->n_runs ? s->runs[run_at(s, at)].origin : s->origin;
	char out[16];
	size_t n = 0;

	jr_steps(r, cp < 0x80 ? 1 : cp == 0x3A3 ? 20 : 5); /* what looking up its case costs */
	if (cp < 0x80) {
		if (how == FOLD_LOWER ? cp >= 'A' && cp <= 'Z' : cp >= 'a' && cp <= 'z')
			cp ^= 32;
		out[n++] = (char)cp;
	} else if (how == FOLD_LOWER) {
		if (cp == 0x130) {
			n = (size_t)utf8_encode('i', out);
			cp = 0x307;
		} else if (cp == 0x3A3) {
			cp = final_sigma(s, at, len) ? 0x3C2 : 0x3C3;
		} else {
			cp = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
		}
		n += (size_t)utf8_encode(cp, out + n);
	} else {
		for (size_t i = 0; i < sizeof wide_upper / sizeof *wide_upper && !n; i++)
			for (int k = 1; wide_upper[i][0] == cp && k < 4 && wide_upper[i][k]; k++)
				n += (size_t)utf8_encode(how == FOLD_TITLE && k > 1 && wide_upper[i][k] < 0x80 ?
				                                 wide_upper[i][k] | 32u :
				                                 wide_upper[i][k],
				                         out + n);
		if (!n) {
			cp = (uint32_t)(how == FOLD_TITLE ? utf8proc_totitle((utf8proc_int32_t)cp) :
			                                    utf8proc_toupper((utf8proc_int32_t)cp));
			n = (size_t)utf8_encode(cp, out);
		}
	}
	sb_put(r, b, out, n, origin);
}

/* first: what to do with the first character; rest: with those after it. */
static struct jstr *fold(struct jrender *r, struct jstr *s, enum fold first, enum fold rest)
{
	enum fold how = first;
	uint32_t cp;
	struct sb b;

	sb_init(&b);
	for (size_t i = 0, len; i < s->n; i += len) {
		len = (size_t)utf8_decode(s->p + i, s->n - i, &cp);
		put_folded(r, &b, s, i, len, cp, how);
		how = rest;
	}
	return sb_str(r, &b);
}

struct jstr *str_upper(struct jrender *r, struct jstr *s)
{
	return fold(r, s, FOLD_UPPER, FOLD_UPPER);
}
struct jstr *str_lower(struct jrender *r, struct jstr *s)
{
	return fold(r, s, FOLD_LOWER, FOLD_LOWER);
}
struct jstr *str_capitalize(struct jrender *r, struct jstr *s)
{
	return fold(r, s, FOLD_TITLE, FOLD_LOWER);
}

/* str.title() begins a word after anything without case; Jinja's filter begins
 * one after whitespace and - ( { [ <, and capitalises with upper(). */
struct jstr *str_title(struct jrender *r, struct jstr *s, bool jinja)
{
	bool start = true;
	uint32_t cp;
	struct sb b;

	sb_init(&b);
	for (size_t i = 0, len; i < s->n; i += len) {
		len = (size_t)utf8_decode(s->p + i, s->n - i, &cp);
		put_folded(r, &b, s, i, len, cp, !start ? FOLD_LOWER : jinja ? FOLD_UPPER : FOLD_TITLE);
		start = jinja ? is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp)) : !is_cased(cp);
	}
	return sb_str(r, &b);
}
