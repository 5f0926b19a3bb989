/* pattern.c - see pattern.h. */
#include "text/grammar/pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum {
	DEPTH_MAX = 100,    /* groups in groups */
	REPEAT_MAX = 10000, /* in {m,n} */
	RANGES_MAX = 256,   /* of one class */
	CHAR_MAX_CP = 0x10FFFF,
};

struct re {
	const char *p;
	size_t n, at;
	int depth;
	bool text; /* as it is and from beginning to end; not inside of a JSON string */
	struct nfa f;
	struct err *err;
};

struct ranges {
	uint32_t lo[RANGES_MAX], hi[RANGES_MAX];
	int n;
};

static int bad(struct re *r, int code, const char *what)
{
	return err_set(r->err, code, "%s at byte %zu of the regular expression", what, r->at);
}

static bool at_end(const struct re *r)
{
	return r->at >= r->n;
}
static char peek(const struct re *r)
{
	return r->at < r->n ? r->p[r->at] : 0;
}

static bool eat(struct re *r, char c)
{
	if (at_end(r) || r->p[r->at] != c)
		return false;
	r->at++;
	return true;
}

/* ---- classes ---- */

static int add_range(struct re *r, struct ranges *s, uint32_t lo, uint32_t hi)
{
	if (s->n == RANGES_MAX)
		return bad(r, E_LIMIT, "a class of too many ranges");
	s->lo[s->n] = lo;
	s->hi[s->n++] = hi;
	return 0;
}

static void sort_ranges(struct ranges *s)
{
	for (int i = 1; i < s->n; i++)
		for (int k = i; k && s->lo[k - 1] > s->lo[k]; k--) {
			uint32_t lo = s->lo[k], hi = s->hi[k];

			s->lo[k] = s->lo[k - 1];
			s->hi[k] = s->hi[k - 1];
			s->lo[k - 1] = lo;
			s->hi[k - 1] = hi;
		}
}

static int invert(struct re *r, struct ranges *s)
{
	struct ranges out = { .n = 0 };
	uint32_t from = 0;
	int rc = 0;

	sort_ranges(s);
	for (int i = 0; i < s->n && !rc; i++) {
		if (s->lo[i] > from)
			rc = add_range(r, &out, from, s->lo[i] - 1);
		if (s->hi[i] + 1 > from)
			from = s->hi[i] + 1;
	}
	if (!rc && from <= CHAR_MAX_CP)
		rc = add_range(r, &out, from, CHAR_MAX_CP);
	*s = out;
	return rc;
}

/* \d \w \s; a capital letter is the others. */
static int named_class(struct re *r, char c, struct ranges *out)
{
	static const uint32_t digit[] = { '0', '9' }, word[] = { '0', '9', 'A', 'Z', '_', '_', 'a', 'z' };
	static const uint32_t space[] = { 9,      13,     32,     32,     0xA0,   0xA0,   0x1680,
		                          0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x202F,
		                          0x205F, 0x205F, 0x3000, 0x3000, 0xFEFF, 0xFEFF };
	int low = tolower((unsigned char)c);
	const uint32_t *set = low == 'd' ? digit : low == 'w' ? word : space;
	size_t n = low == 'd' ? sizeof digit : low == 'w' ? sizeof word : sizeof space;
	struct ranges s = { .n = 0 };
	int rc = 0;

	for (size_t i = 0; i < n / sizeof *set; i += 2)
		add_range(r, &s, set[i], set[i + 1]);
	if (c != low)
		rc = invert(r, &s);
	for (int i = 0; i < s.n && !rc; i++)
		rc = add_range(r, out, s.lo[i], s.hi[i]);
	return rc;
}

static int hex(struct re *r, int n, uint32_t *out)
{
	*out = 0;
	for (int i = 0; i < n; i++, r->at++) {
		char c = peek(r);

		if (!isxdigit((unsigned char)c))
			return bad(r, E_FORMAT, "no hexadecimal digit");
		*out = *out * 16 +
		       (uint32_t)(isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10);
	}
	return 0;
}

static int unicode_escape(struct re *r, uint32_t *out)
{
	uint32_t low;
	int rc;

	if (eat(r, '{')) {
		*out = 0;
		while (isxdigit((unsigned char)peek(r)) && *out <= CHAR_MAX_CP) {
			uint32_t d;

			hex(r, 1, &d);
			*out = *out * 16 + d;
		}
		if (*out > CHAR_MAX_CP || !eat(r, '}'))
			return bad(r, E_FORMAT, "no code point");
		return 0;
	}
	rc = hex(r, 4, out);
	if (!rc && *out >= 0xD800 && *out < 0xDC00 && r->at + 1 < r->n && r->p[r->at] == '\\' &&
	    r->p[r->at + 1] == 'u') {
		r->at += 2;
		if (!(rc = hex(r, 4, &low)))
			*out = 0x10000 + ((*out - 0xD800) << 10) + ((low - 0xDC00) & 0x3FF);
	}
	return rc;
}

/* After a backslash: 1 with one character, 0 with a class added to set, or an error. */
static int escape(struct re *r, bool in_class, struct ranges *set, uint32_t *cp)
{
	static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v";
	const char *at;
	char c = peek(r);
	int rc;

	if (at_end(r))
		return bad(r, E_FORMAT, "nothing after a backslash");
	if (strchr("dDwWsS", c)) {
		r->at++;
		return named_class(r, c, set);
	}
	if (strchr("pP", c))
		return bad(r, E_UNSUPPORTED, "\\p, which is not supported,");
	if (isdigit((unsigned char)c) && c != '0')
		return bad(r, E_UNSUPPORTED, "a back reference, which is not supported,");
	if (strchr("bB", c) && !(in_class && c == 'b'))
		return bad(r, E_UNSUPPORTED, "\\b, which is not supported,");
	if (c == 'k' && !in_class)
		return bad(r, E_UNSUPPORTED, "a back reference, which is not supported,");
	/* Anchors and classes in other languages of expressions, errors in ECMA's with its flag u. */
	if (isalpha((unsigned char)c) && c != 'b' && c != 'x' && c != 'u' && c != 'c' && !strchr(from, c))
		return err_set(r->err, E_UNSUPPORTED,
		               "\\%c, which is not supported, at byte %zu of the regular expression", c, r->at);
	if (c == 'b') {
		*cp = 8;
	} else if ((at = strchr(from, c))) {
		*cp = (uint32_t)to[at - from];
	} else if (c == 'x' || c == 'u') {
		r->at++;
		rc = c == 'x' ? hex(r, 2, cp) : unicode_escape(r, cp);
		return rc ? rc : 1;
	} else if (c == 'c') {
		r->at++;
		if (!isalpha((unsigned char)peek(r)))
			return bad(r, E_FORMAT, "no letter after \\c");
		*cp = (uint32_t)peek(r) & 31;
	} else {
		int n = utf8_decode(r->p + r->at, r->n - r->at, cp);

		r->at += (size_t)(n ? n : 1);
		return n ? 1 : bad(r, E_FORMAT, "invalid UTF-8");
	}
	r->at++;
	return 1;
}

/* One member of a class: 1 with a character, 0 with a class added, or an error. */
static int member(struct re *r, struct ranges *set, uint32_t *cp)
{
	int n;

	if (eat(r, '\\'))
		return escape(r, true, set, cp);
	if (peek(r) == '[' && r->at + 1 < r->n && strchr(":.=", r->p[r->at + 1]))
		for (size_t i = r->at + 2; i + 1 < r->n && r->p[i] != ']' && r->p[i] != '['; i++)
			if (r->p[i] == r->p[r->at + 1] && r->p[i + 1] == ']')
				return bad(r, E_UNSUPPORTED,
				           "a class inside of a class, as [:alpha:], which is not supported,");
	n = utf8_decode(r->p + r->at, r->n - r->at, cp);
	r->at += (size_t)(n ? n : 1);
	return n ? 1 : bad(r, E_FORMAT, "invalid UTF-8");
}

static int class(struct re *r, struct ranges *set)
{
	bool other = eat(r, '^');
	int rc;

	while (!at_end(r) && peek(r) != ']') {
		uint32_t lo, hi;

		if ((rc = member(r, set, &lo)) < 0)
			return rc;
		if (!rc)
			continue;
		hi = lo;
		if (peek(r) == '-' && r->at + 1 < r->n && r->p[r->at + 1] != ']') {
			r->at++;
			if ((rc = member(r, set, &hi)) < 0)
				return rc;
			if (!rc) { /* [a-\d] is a, - and the digits */
				if ((rc = add_range(r, set, '-', '-')))
					return rc;
				hi = lo;
			}
		}
		if (hi < lo)
			return bad(r, E_FORMAT, "a range out of order");
		if ((rc = add_range(r, set, lo, hi)))
			return rc;
	}
	if (!eat(r, ']'))
		return bad(r, E_FORMAT, "a class without end");
	return other ? invert(r, set) : 0;
}

/* ---- terms ---- */

static int alternatives(struct re *r, int from);

static int chars(struct re *r, int from, const struct ranges *set)
{
	int to = nfa_state(&r->f);

	for (int i = 0; i < set->n; i++)
		(r->text ? nfa_utf8 : nfa_chars)(&r->f, from, set->lo[i], set->hi[i], to);
	return to;
}

static int group(struct re *r, int from)
{
	int to;

	if (r->depth++ == DEPTH_MAX)
		return bad(r, E_LIMIT, "groups nested too deep");
	if (eat(r, '?')) {
		if (!eat(r, ':')) {
			/* Python's named groups, and ECMA's. */
			if (peek(r) == 'P' && r->at + 1 < r->n && r->p[r->at + 1] == '<')
				r->at++;
			if (peek(r) != '<' || (r->at + 1 < r->n && strchr("=!", r->p[r->at + 1])))
				return bad(r, E_UNSUPPORTED,
				           "a group of another kind than (?:, which is not supported,");
			while (!at_end(r) && !eat(r, '>'))
				r->at++;
		}
	}
	to = alternatives(r, from);
	if (to < 0)
		return to;
	if (!eat(r, ')'))
		return bad(r, E_FORMAT, "a group without end");
	r->depth--;
	return to;
}

/* Returns the state after it, or an error. */
static int atom(struct re *r, int from)
{
	struct ranges set = { .n = 0 };
	uint32_t cp;
	int rc, to;

	if (eat(r, '('))
		return group(r, from);
	if (r->text && (peek(r) == '^' || peek(r) == '$')) {
		char before = r->at ? r->p[r->at - 1] : '|', after = r->at + 1 < r->n ? r->p[r->at + 1] : '|';

		if (r->depth || (peek(r) == '^' ? before : after) != '|')
			return bad(r, E_UNSUPPORTED, "^ or $ inside of it, which is not supported,");
		r->at++;
		return from;
	}
	if (peek(r) == '^' || peek(r) == '$') {
		to = nfa_state(&r->f);
		nfa_empty(&r->f, from, to, r->p[r->at++] == '^' ? NFA_BEGIN : NFA_END);
		return to;
	}
	if (eat(r, '.')) {
		static const uint32_t line_end[] = { '\n', '\r', 0x2028, 0x2029 };

		for (int i = 0; i < 4; i++)
			add_range(r, &set, line_end[i], line_end[i]);
		rc = invert(r, &set);
	} else if (eat(r, '[')) {
		rc = class(r, &set);
	} else if (strchr("*+?", peek(r)) && peek(r)) {
		return bad(r, E_FORMAT, "nothing to repeat");
	} else {
		if (eat(r, '\\')) {
			rc = escape(r, false, &set, &cp);
		} else {
			rc = utf8_decode(r->p + r->at, r->n - r->at, &cp);
			r->at += (size_t)(rc ? rc : 1);
			rc = rc ? 1 : bad(r, E_FORMAT, "invalid UTF-8");
		}
		if (rc > 0)
			rc = add_range(r, &set, cp, cp);
	}
	return rc < 0 ? rc : chars(r, from, &set);
}

static int read_int(struct re *r, int *out)
{
	if (!isdigit((unsigned char)peek(r)))
		return bad(r, E_FORMAT, "no number");
	for (*out = 0; isdigit((unsigned char)peek(r)); r->at++) {
		*out = *out * 10 + (peek(r) - '0');
		if (*out > REPEAT_MAX)
			return bad(r, E_LIMIT, "too many repetitions");
	}
	return 0;
}

/* max -1: any number.  1 when there is one. */
static int quantifier(struct re *r, int *min, int *max)
{
	int rc;

	*min = *max = 1;
	if (eat(r, '*')) {
		*min = 0;
		*max = -1;
	} else if (eat(r, '+')) {
		*max = -1;
	} else if (eat(r, '?')) {
		*min = 0;
	} else if (peek(r) == '{' && r->at + 1 < r->n && isdigit((unsigned char)r->p[r->at + 1])) {
		r->at++;
		if ((rc = read_int(r, min)))
			return rc;
		*max = *min;
		if (eat(r, ',')) {
			*max = -1;
			if (peek(r) != '}' && (rc = read_int(r, max)))
				return rc;
		}
		if (!eat(r, '}'))
			return bad(r, E_FORMAT, "a repetition without end");
		if (*max >= 0 && *max < *min)
			return bad(r, E_FORMAT, "a repetition out of order");
	} else {
		return 0;
	}
	eat(r, '?');
	return 1;
}

/* An atom as often as it is said, each time read anew. */
static int term(struct re *r, int from)
{
	size_t begin = r->at, after;
	int first = nfa_state(&r->f), to = atom(r, first), min, max, out, rc;

	if (to < 0)
		return to;
	if ((rc = quantifier(r, &min, &max)) < 0)
		return rc;
	after = r->at;
	if (!max)
		return from;
	nfa_empty(&r->f, from, first, NFA_EMPTY);
	if (!rc)
		return to;
	out = nfa_state(&r->f);
	if (!min)
		nfa_empty(&r->f, from, out, NFA_EMPTY);
	for (int i = 1; i < (max < 0 ? min : max); i++) {
		if (i >= min)
			nfa_empty(&r->f, to, out, NFA_EMPTY);
		first = nfa_state(&r->f);
		nfa_empty(&r->f, to, first, NFA_EMPTY);
		r->at = begin;
		if ((to = atom(r, first)) < 0)
			return to;
		if (r->f.n_edge > NFA_EDGES_MAX || r->f.n > NFA_EDGES_MAX)
			return bad(r, E_LIMIT, "too many repetitions");
	}
	if (max < 0)
		nfa_empty(&r->f, to, first, NFA_EMPTY);
	nfa_empty(&r->f, to, out, NFA_EMPTY);
	r->at = after;
	return out;
}

static int alternatives(struct re *r, int from)
{
	int end = nfa_state(&r->f);

	do {
		int at = nfa_state(&r->f);

		nfa_empty(&r->f, from, at, NFA_EMPTY);
		while (!at_end(r) && peek(r) != '|' && peek(r) != ')')
			if ((at = term(r, at)) < 0)
				return at;
		nfa_empty(&r->f, at, end, NFA_EMPTY);
	} while (eat(r, '|'));
	return end;
}

int pattern_compile(struct dfa_pool *p, const char *re, size_t n, struct dfa **out, struct err *err)
{
	struct re r = { .p = re, .n = n, .err = err };
	int open, close, end;

	*out = NULL;
	nfa_init(&r.f);
	open = nfa_text(&r.f, 0, "\"", 1);
	nfa_chars(&r.f, open, 0, CHAR_MAX_CP, open);
	/* The loop above is behind a state of its own, so that ^ is met at the beginning
	 * alone: begin edges are open only there. */
	end = alternatives(&r, open);
	if (end >= 0 && !at_end(&r))
		end = bad(&r, E_FORMAT, "a ) too many");
	if (end >= 0) {
		close = nfa_text(&r.f, end, "\"", 1);
		nfa_accept(&r.f, close, 0);
		nfa_chars(&r.f, end, 0, CHAR_MAX_CP, end);
		*out = dfa_from_nfa(p, &r.f);
	}
	nfa_fini(&r.f);
	return end < 0 ? end : 0;
}

int pattern_compile_text(struct dfa_pool *p, const char *re, size_t n, struct dfa **out, struct err *err)
{
	struct re r = { .p = re, .n = n, .text = true, .err = err };
	int end;

	*out = NULL;
	nfa_init(&r.f);
	end = alternatives(&r, 0);
	if (end >= 0 && !at_end(&r))
		end = bad(&r, E_FORMAT, "a ) too many");
	if (end >= 0) {
		nfa_accept(&r.f, end, 0);
		*out = dfa_from_nfa(p, &r.f);
	}
	nfa_fini(&r.f);
	return end < 0 ? end : 0;
}

/* ---- formats ---- */

#define HOUR "([01][0-9]|2[0-3])"
#define TIME HOUR ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([Zz]|[+-]" HOUR ":[0-5][0-9])"
#define LEAP "([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define DATE                                                                                     \
	"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)" \
	"|02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 BYTE "(\\." BYTE "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
/* Shorter than what is allowed, so that the whole cannot become too long. */
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,38}[A-Za-z0-9])?"
#define HOST LABEL "(\\." LABEL "){0,5}"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,15}"
#define PCT "%[0-9A-Fa-f]{2}"
#define UCHAR "([A-Za-z0-9._~!$&'()*+,;=:@/?-]|" PCT ")"

static const struct {
	const char *name, *re;
} formats[] = {
	{ "date", "^" DATE "$" },
	{ "time", "^" TIME "$" },
	{ "date-time", "^" DATE "[Tt]" TIME "$" },
	{ "duration", "^P([0-9]{1,9}W|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)"
	              "(T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))?"
	              "|T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))$" },
	{ "uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$" },
	{ "ipv4", "^" IPV4 "$" },
	{ "ipv6", "^((" H16 ":){7}" H16 "|(" H16 ":){6}" IPV4 "|(" H16 ":){1,7}:|(" H16 ":){1,6}:" H16 "|(" H16
	          ":){1,5}(:" H16 "){1,2}|(" H16 ":){1,4}(:" H16 "){1,3}|(" H16 ":){1,3}(:" H16 "){1,4}"
	          "|(" H16 ":){1,2}(:" H16 "){1,5}|" H16 ":(:" H16 "){1,6}|:(:" H16 "){1,7}|::)$" },
	{ "hostname", "^" HOST "$" },
	{ "email", "^" ATEXT "(\\." ATEXT "){0,3}@" HOST "$" },
	{ "uri", "^[A-Za-z][A-Za-z0-9+.-]*:(" UCHAR "|//\\[[0-9A-Fa-f:.]{2,45}\\])" UCHAR "*(#" UCHAR "*)?$" },
	{ "uri-reference", "^([A-Za-z][A-Za-z0-9+.-]*:)?([A-Za-z0-9._~!$&'()*+,;=@/?-]|" PCT ")*(#" UCHAR "*)?$" },
	{ "json-pointer", "^(/([^~/]|~[01])*)*$" },
};

/* The others of the specification; what it does not know says nothing. */
static const char *const known_formats[] = { "idn-email",    "idn-hostname",          "iri",   "iri-reference",
	                                     "uri-template", "relative-json-pointer", "regex", NULL };

int pattern_format(struct dfa_pool *p, const char *name, struct dfa **out, struct err *err)
{
	*out = NULL;
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (!strcmp(formats[i].name, name))
			return pattern_compile(p, formats[i].re, strlen(formats[i].re), out, err);
	for (int i = 0; known_formats[i]; i++)
		if (!strcmp(known_formats[i], name))
			return err_set(err, E_UNSUPPORTED, "the format \"%s\" is not supported", name);
	return E_MISSING;
}
