/* lexeme.c - see lexeme.h. */
#include "text/grammar/lexeme.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/grammar.h"

/* ---- strings ---- */

static void hex_digits(struct nfa *f, int from, const char *set, int to)
{
	/* set: pairs of ends. */
	for (; *set; set += 2)
		nfa_bytes(f, from, set[0], set[1], to);
}

/* Four digits to `to`, or to a new state (to < 0).  Returns where it ends. */
static int hex_path(struct nfa *f, int from, const char *const *set, int end)
{
	for (int i = 0; i < 4; i++) {
		int to = i == 3 && end >= 0 ? end : nfa_state(f);

		hex_digits(f, from, set[i], to);
		from = to;
	}
	return from;
}

struct dfa *lexeme_string(struct dfa_pool *p)
{
	static const char any[] = "09afAF";
	static const char *const plain[] = { "09acefACEF", any, any, any }, *const d_low[] = { "ddDD", "07", any, any };
	static const char *const high[] = { "ddDD", "89abAB", any, any }, *const low[] = { "ddDD", "cfCF", any, any };
	struct dfa *out;
	struct nfa f;
	int body, end, escape, u, at;

	nfa_init(&f);
	body = nfa_text(&f, 0, "\"", 1);
	end = nfa_text(&f, body, "\"", 1);
	nfa_accept(&f, end, 0);
	nfa_utf8(&f, body, 0x20, 0x21, body);
	nfa_utf8(&f, body, 0x23, 0x5B, body);
	nfa_utf8(&f, body, 0x5D, 0x10FFFF, body);
	escape = nfa_text(&f, body, "\\", 1);
	for (const char *c = "\"\\/bfnrt"; *c; c++)
		nfa_bytes(&f, escape, *c, *c, body);
	u = nfa_text(&f, escape, "u", 1);
	hex_path(&f, u, plain, body);
	hex_path(&f, u, d_low, body);
	/* A high surrogate is half of a character. */
	at = nfa_text(&f, hex_path(&f, u, high, -1), "\\u", 2);
	hex_path(&f, at, low, body);
	out = dfa_from_nfa(p, &f);
	nfa_fini(&f);
	return out;
}

struct dfa *lexeme_plain_string(struct dfa_pool *p)
{
	struct dfa *out;
	struct nfa f;
	int body;

	nfa_init(&f);
	body = nfa_text(&f, 0, "\"", 1);
	nfa_accept(&f, nfa_text(&f, body, "\"", 1), 0);
	nfa_chars(&f, body, 0, 0x10FFFF, body);
	out = dfa_from_nfa(p, &f);
	nfa_fini(&f);
	return out;
}

struct counted {
	const struct dfa *of;
	int64_t min, max;
};

/* A state: of->n * (characters begun so far) + the automaton's.  Characters in
 * `of` are of the one spelling, so they can be told from the bytes alone: one
 * begins at each byte that is not a continuation and does not follow inside an
 * escape.  place: 0 outside, 1 between characters, 2 after a backslash, 3 to 6
 * before the digits of \u, 7 closed. */
struct place {
	uint64_t count;
	int place, state;
};

static struct place place_of(const struct counted *c, uint64_t s)
{
	return (struct place){ s / ((uint64_t)c->of->n * 8), (int)(s / (uint64_t)c->of->n % 8),
		               (int)(s % (uint64_t)c->of->n) };
}

static bool counted_step(const void *ctx, uint64_t s, char byte, uint64_t *to)
{
	const struct counted *c = ctx;
	struct place p = place_of(c, s);
	uint64_t cap = c->max >= 0 ? (uint64_t)c->max : (uint64_t)c->min;
	uint8_t b = (uint8_t)byte;

	p.state = dfa_step(c->of, p.state, b);
	if (p.state < 0)
		return false;
	switch (p.place) {
	case 0: p.place = 1; break;
	case 1:
		if (b == '"') {
			if (p.count < (uint64_t)c->min)
				return false;
			p.place = 7;
			break;
		}
		if ((b & 0xC0) == 0x80)
			break;
		if (p.count == cap && c->max >= 0)
			return false;
		p.count += p.count < cap;
		p.place = b == '\\' ? 2 : 1;
		break;
	case 2: p.place = b == 'u' ? 3 : 1; break;
	case 6: p.place = 1; break;
	default: p.place++; break;
	}
	*to = (p.count * 8 + (uint64_t)p.place) * (uint64_t)c->of->n + (uint64_t)p.state;
	return true;
}

static bool counted_accept(const void *ctx, uint64_t s)
{
	const struct counted *c = ctx;
	struct place p = place_of(c, s);

	return p.place == 7 && c->of->label[p.state] >= 0;
}

/* A byte is looked at for these alone, and by the automaton. */
static uint64_t counted_kind(const void *ctx, char byte)
{
	const struct counted *c = ctx;
	uint8_t b = (uint8_t)byte;

	return (uint64_t)c->of->cls[b] << 8 | (b == '"'           ? 1 :
	                                       b == '\\'          ? 2 :
	                                       b == 'u'           ? 3 :
	                                       (b & 0xC0) == 0x80 ? 4 :
	                                                            0);
}

static const char *all_bytes(void)
{
	static const char *const all =
		"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c"
		"\x1d\x1e\x1f !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\x7f"
		"\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b"
		"\x9c\x9d\x9e\x9f\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7"
		"\xb8\xb9\xba\xbb\xbc\xbd\xbe\xbf\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xc9\xca\xcb\xcc\xcd\xce\xcf\xd0\xd1\xd2\xd3\xd4\xd5"
		"\xd6\xd7\xd8\xd9\xda\xdb\xdc\xdd\xde\xdf\xe0\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xeb\xec\xed\xee\xef\xf0\xf1"
		"\xf2\xf3\xf4";

	return all;
}

struct dfa *lexeme_length(struct dfa_pool *p, const struct dfa *of, int64_t min, int64_t max)
{
	struct counted c = { of, min, max };

	if (!of)
		return NULL;
	if (of->n && (min >= of->n || max >= of->n) && dfa_finite(p, of)) { /* no word has this many characters */
		if (min >= of->n)
			return dfa_minus(p, of, of);
		if (!min)
			return (struct dfa *)(uintptr_t)of;
		c.max = max = -1;
	}
	/* More states than the limit anyway; and the numbers of states stay small. */
	if (min > DFA_STATES_MAX || max > DFA_STATES_MAX)
		p->why = "it counts too many characters of strings that something else restricts too";
	if (!of->n || p->why)
		return (struct dfa *)(uintptr_t)(p->why ? NULL : of);
	return dfa_from_lazy(p, &(struct dfa_lazy){ &c, 0, counted_step, counted_accept, all_bytes(), counted_kind });
}

/* ---- bare text ---- */

struct bare {
	const struct dfa *of;
	const char *end;
	int n_end;
	bool line; /* a line break comes before the end */
};

/* q: where the string is, + 1; 0: it can only end.  k: bytes of the end that were
 * read; n_end + 1: the mark that opens the text was not.  broke: a line break is before them, or (k 0) was the
 * last byte; or none is needed.  fine: the text before that break, or before the end, is a whole string. */
struct bare_at {
	int q, k;
	bool broke, fine;
};

static uint64_t bare_pack(const struct bare *b, struct bare_at at)
{
	return (((uint64_t)at.q * (uint64_t)(b->n_end + 2) + (uint64_t)at.k) * 2 + at.broke) * 2 + at.fine;
}

static struct bare_at bare_unpack(const struct bare *b, uint64_t s)
{
	struct bare_at at = { .fine = s & 1, .broke = s >> 1 & 1 };

	at.k = (int)(s / 4 % (uint64_t)(b->n_end + 2));
	at.q = (int)(s / 4 / (uint64_t)(b->n_end + 2));
	return at;
}

/* A byte of bare text as a JSON string has it; returns its length. */
static int bare_spelled(char c, char text[6])
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
	const char *at = c ? strchr(from, c) : NULL;

	if (!at && (unsigned char)c >= 0x20) {
		text[0] = c;
		return 1;
	}
	memcpy(text, "\\u00", 4);
	if (at) {
		text[1] = to[at - from];
		return 2;
	}
	text[4] = hex[(unsigned char)c >> 4];
	text[5] = hex[c & 15];
	return 6;
}

/* The string's state after a byte of bare text; -1: it is none. */
static int bare_next(const struct dfa *d, int q, char c)
{
	char text[6];
	int n = bare_spelled(c, text);

	for (int i = 0; i < n && q >= 0; i++)
		q = dfa_step(d, q, (uint8_t)text[i]);
	return q;
}

/* Bytes that are in no end and are spelled alike for the string's automaton. */
static uint64_t bare_kind(const void *ctx, char c)
{
	const struct bare *b = ctx;
	uint64_t kind = 0;
	char text[6];
	int n;

	if (strchr(b->end, c) || (c == '\n' && b->line))
		return (uint64_t)1 << 63 | (uint8_t)c;
	n = bare_spelled(c, text);
	for (int i = 0; i < n; i++)
		kind = kind << 8 | b->of->cls[(uint8_t)text[i]];
	return kind << 4 | (uint64_t)n;
}

static bool bare_whole(const struct dfa *d, int q)
{
	q = q >= 0 ? dfa_step(d, q, '"') : -1;
	return q >= 0 && d->label[q] >= 0;
}

static bool bare_step(const void *ctx, uint64_t s, char c, uint64_t *to)
{
	const struct bare *b = ctx;
	struct bare_at at = bare_unpack(b, s), next = { 0 };

	if (at.k == b->n_end)
		return false;
	if (at.k > b->n_end) {
		*to = bare_pack(b, (struct bare_at){ .q = at.q });
		return c == b->end[0];
	}
	next.q = at.q ? bare_next(b->of, at.q - 1, c) + 1 : 0;
	if (c == b->end[at.k] && (at.k || b->line)) {
		next.k = at.k + 1;
		next.broke = at.broke;
		next.fine = at.fine;
	} else if (c == b->end[0]) {
		next.k = 1; /* there is no break where one is wanted: it is text */
		next.broke = !b->line;
		next.fine = !b->line && at.q && bare_whole(b->of, at.q - 1);
	} else if (c == '\n' && b->line) {
		next.broke = true;
		next.fine = at.q && bare_whole(b->of, at.q - 1);
	}
	if (next.k == b->n_end) {
		next.q = 0;
		*to = bare_pack(b, next);
		return next.broke && next.fine;
	}
	if (!next.fine || !next.broke)
		next.fine = next.broke = next.broke && next.fine;
	*to = bare_pack(b, next);
	return next.q || next.fine;
}

static bool bare_accept(const void *ctx, uint64_t s)
{
	const struct bare *b = ctx;

	return bare_unpack(b, s).k == b->n_end;
}

static struct dfa *bare_text(struct dfa_pool *p, const struct dfa *of, const char *end, bool line, bool opened)
{
	struct bare b = { of, end, (int)strlen(end), line };
	struct bare_at first = { .k = opened ? b.n_end + 1 : 0 };
	char bytes[270];
	size_t n;
	int q;

	if (!of)
		return NULL;
	q = of->n ? dfa_step(of, 0, '"') : -1;
	/* No text at all is the break before the end alone. */
	first.q = q + 1;
	/* An end may have marks in it (grammar.h), which are not bytes of a text. */
	n = (size_t)snprintf(bytes, sizeof bytes - MARKS_MOST - 1, "%s", all_bytes());
	for (int i = 0; i < MARKS_MOST; i++)
		if (strchr(end, (char)(MARK_FIRST + i)))
			bytes[n++] = (char)(MARK_FIRST + i);
	bytes[n] = 0;
	return dfa_from_lazy(p,
	                     &(struct dfa_lazy){ &b, bare_pack(&b, first), bare_step, bare_accept, bytes, bare_kind });
}

struct dfa *lexeme_bare(struct dfa_pool *p, const struct dfa *of, const char *end)
{
	return bare_text(p, of, end, true, false);
}

struct dfa *lexeme_bare_to(struct dfa_pool *p, const struct dfa *of, const char *end)
{
	return bare_text(p, of, end, false, false);
}

struct dfa *lexeme_bare_between(struct dfa_pool *p, const struct dfa *of, const char *mark)
{
	return bare_text(p, of, mark, false, true);
}

/* ---- texts ---- */

void texts_init(struct texts *t)
{
	nfa_init(&t->f);
}

void texts_put(struct texts *t, const char *p, size_t n, int32_t label)
{
	nfa_accept(&t->f, nfa_text(&t->f, 0, p, n), label);
}

void texts_fini(struct texts *t)
{
	nfa_fini(&t->f);
}

struct dfa *texts_finish(struct dfa_pool *p, struct texts *t)
{
	struct dfa *d = dfa_from_nfa(p, &t->f);

	texts_fini(t);
	return d;
}

/* ---- texts with numbers and ids in them ---- */

/* Up to three digits, exactly nine letters or digits, or up to 40 of what ids are made of. */
static int spell_some(struct nfa *f, int at, char what)
{
	int end = nfa_state(f), most = what == '\1' ? 3 : what == '\2' ? 9 : 40;

	for (int i = 0, next; i < most; i++, at = next) {
		next = nfa_state(f);
		nfa_bytes(f, at, '0', '9', next);
		if (what > '\1') {
			nfa_bytes(f, at, 'a', 'z', next);
			nfa_bytes(f, at, 'A', 'Z', next);
		}
		if (what > '\2') {
			nfa_bytes(f, at, '-', '-', next);
			nfa_bytes(f, at, '_', '_', next);
			nfa_bytes(f, at, '.', '.', next);
			nfa_bytes(f, at, ':', ':', next);
		}
		if (what != '\2' || i == 8)
			nfa_empty(f, next, end, NFA_EMPTY);
	}
	return end;
}

int lexeme_spell(struct nfa *f, int at, const char *text)
{
	for (; *text; text++)
		at = *text <= '\3' && *text > 0 ? spell_some(f, at, *text) : nfa_text(f, at, text, 1);
	return at;
}

struct dfa *lexeme_spelled(struct dfa_pool *p, const char *const *list)
{
	struct dfa *d;
	struct nfa f;

	nfa_init(&f);
	for (int i = 0; list[i]; i++)
		nfa_accept(&f, lexeme_spell(&f, 0, list[i]), 0);
	d = dfa_from_nfa(p, &f);
	nfa_fini(&f);
	return d;
}

/* ---- decimals ---- */

int decimal_parse(struct decimal *d, const char *s)
{
	char digit[2 * NUMBER_DIGITS_MAX + 1];
	long point = 0, exponent; /* digits before the point */
	int n = 0;
	bool after = false;

	memset(d, 0, sizeof *d);
	if (*s == '-') {
		d->negative = true;
		s++;
	}
	for (; *s && *s != 'e' && *s != 'E'; s++) {
		if (*s == '.') {
			after = true;
			continue;
		}
		if (!n && *s == '0') {
			point -= after; /* a zero in front says nothing but where the point is */
			continue;
		}
		if (n < (int)sizeof digit - 1)
			digit[n] = *s;
		else if (*s != '0')
			return E_LIMIT;
		n++;
		point += !after;
	}
	exponent = *s ? strtol(s + 1, NULL, 10) : 0;
	if (n > (int)sizeof digit - 1)
		n = (int)sizeof digit - 1;
	while (n && digit[n - 1] == '0')
		n--;
	if (!n) {
		d->negative = false;
		return 0;
	}
	if (exponent > 100 || exponent < -100)
		return E_LIMIT;
	point += exponent;
	if (point > NUMBER_DIGITS_MAX || n - point > NUMBER_DIGITS_MAX)
		return E_LIMIT;
	for (long i = point < 0 ? point : 0; i < n || i < point; i++) {
		char c = i >= 0 && i < n ? digit[i] : '0';

		if (i < point)
			d->whole[d->n_whole++] = c;
		else
			d->part[d->n_part++] = c;
	}
	return 0;
}

void decimal_text(const struct decimal *d, char out[2 * NUMBER_DIGITS_MAX + 4])
{
	char *p = out;

	if (d->negative)
		*p++ = '-';
	if (!d->n_whole)
		*p++ = '0';
	memcpy(p, d->whole, (size_t)d->n_whole);
	p += d->n_whole;
	if (d->n_part) {
		*p++ = '.';
		memcpy(p, d->part, (size_t)d->n_part);
		p += d->n_part;
	}
	*p = 0;
}

/* ---- numbers ---- */

static int digits(struct nfa *f, int from, int n, int out)
{
	/* Up to n more digits, each of which may be the last. */
	for (int i = 0; i < n; i++) {
		int to = nfa_state(f);

		nfa_empty(f, from, out, NFA_EMPTY);
		nfa_bytes(f, from, '0', '9', to);
		from = to;
	}
	nfa_empty(f, from, out, NFA_EMPTY);
	return out;
}

struct dfa *lexeme_number(struct dfa_pool *p)
{
	struct nfa f;
	struct dfa *out;
	int sign, whole, one, part, end, at;

	nfa_init(&f);
	sign = nfa_state(&f);
	whole = nfa_state(&f);
	one = nfa_state(&f);
	part = nfa_state(&f);
	end = nfa_state(&f);
	nfa_accept(&f, end, 0);
	nfa_empty(&f, 0, sign, NFA_EMPTY);
	nfa_bytes(&f, 0, '-', '-', sign);
	nfa_bytes(&f, sign, '0', '0', whole);
	nfa_bytes(&f, sign, '1', '9', one);
	digits(&f, one, NUMBER_DIGITS_MAX - 1, whole);
	nfa_empty(&f, whole, part, NFA_EMPTY);
	at = nfa_text(&f, whole, ".", 1);
	one = nfa_state(&f);
	nfa_bytes(&f, at, '0', '9', one);
	digits(&f, one, NUMBER_DIGITS_MAX - 1, part);
	nfa_empty(&f, part, end, NFA_EMPTY);
	/* An exponent of two digits: what a double holds is never left. */
	at = nfa_state(&f);
	nfa_bytes(&f, part, 'e', 'e', at);
	nfa_bytes(&f, part, 'E', 'E', at);
	one = nfa_state(&f);
	nfa_empty(&f, at, one, NFA_EMPTY);
	nfa_bytes(&f, at, '+', '+', one);
	nfa_bytes(&f, at, '-', '-', one);
	at = nfa_state(&f);
	nfa_bytes(&f, one, '0', '9', at);
	digits(&f, at, 1, end);
	out = dfa_from_nfa(p, &f);
	nfa_fini(&f);
	return out;
}

struct dfa *lexeme_decimal(struct dfa_pool *p, bool integer)
{
	int n = integer ? INTEGER_DIGITS_MAX : DECIMAL_DIGITS_MAX, sign, whole, end;
	int more[DECIMAL_DIGITS_MAX + 1]; /* states behind the point, by the digits left */
	struct nfa f;
	struct dfa *out;

	nfa_init(&f);
	sign = nfa_state(&f);
	end = nfa_state(&f);
	nfa_accept(&f, end, 0);
	nfa_empty(&f, 0, sign, NFA_EMPTY);
	nfa_bytes(&f, 0, '-', '-', sign);
	for (int i = 0; i <= DECIMAL_DIGITS_MAX && !integer; i++) {
		more[i] = nfa_state(&f);
		nfa_empty(&f, more[i], end, NFA_EMPTY);
		if (i)
			nfa_bytes(&f, more[i], '0', '9', more[i - 1]);
	}
	whole = sign;
	for (int i = 1; i <= n; i++) {
		int to = nfa_state(&f);

		nfa_bytes(&f, whole, i == 1 ? '1' : '0', '9', to);
		if (i == 1)
			nfa_bytes(&f, whole, '0', '0', end);
		if (i == 1 && !integer) {
			int zero = nfa_state(&f);

			nfa_bytes(&f, whole, '0', '0', zero);
			nfa_bytes(&f, nfa_text(&f, zero, ".", 1), '0', '9', more[n - 1]);
		}
		nfa_empty(&f, to, end, NFA_EMPTY);
		if (!integer && i < n)
			nfa_bytes(&f, nfa_text(&f, to, ".", 1), '0', '9', more[n - i - 1]);
		whole = to;
	}
	out = dfa_from_nfa(p, &f);
	nfa_fini(&f);
	return out;
}

struct dfa *lexeme_once(struct dfa_pool *p)
{
	struct dfa *bad, *all = lexeme_decimal(p, false);
	struct nfa f;
	int part, zero;

	nfa_init(&f);
	nfa_bytes(&f, 0, '-', '-', 0);
	nfa_bytes(&f, 0, '0', '9', 0);
	part = nfa_text(&f, 0, ".", 1);
	nfa_bytes(&f, part, '0', '9', part);
	zero = nfa_state(&f);
	nfa_bytes(&f, part, '0', '0', zero);
	nfa_accept(&f, zero, 0);
	bad = dfa_from_nfa(p, &f);
	nfa_fini(&f);
	all = dfa_minus(p, all, bad);
	nfa_init(&f);
	nfa_accept(&f, nfa_text(&f, 0, "-0", 2), 0);
	bad = dfa_from_nfa(p, &f);
	nfa_fini(&f);
	return dfa_minus(p, all, bad);
}

/* ---- bounds ---- */

struct bound {
	struct decimal d;
	bool below, open;
};

/* at: 0 nothing read, 1 after the sign, 2 in the whole part, 3 a lone zero, 4 in the
 * part after the point.  count: digits of that part, up to one more than d has.
 * cmp: how what was read compares with as many digits of d, plus 1. */
static uint64_t pack(int negative, int at, int count, int cmp)
{
	return (uint64_t)(((negative * 8 + at) * 64 + count) * 4 + cmp);
}

/* -1, 0, 1: magnitude of what was read against d's, if it ended here. */
static int whole_cmp(const struct bound *b, int at, int count, int cmp)
{
	int n = at == 3 ? 0 : count;

	if (n != b->d.n_whole)
		return n < b->d.n_whole ? -1 : 1;
	return n ? cmp - 1 : 0;
}

static bool bound_step(const void *ctx, uint64_t s, char c, uint64_t *to)
{
	const struct bound *b = ctx;
	int cmp = (int)(s & 3), count = (int)(s >> 2 & 63), at = (int)(s >> 8 & 7), negative = (int)(s >> 11);

	if (c == '-') {
		*to = pack(1, 1, 0, 1);
		return at == 0;
	}
	if (c == '.') {
		*to = pack(negative, 4, 0, whole_cmp(b, at, count, cmp) + 1);
		return at == 2 || at == 3;
	}
	if (at == 3)
		return false;
	if (at < 2) {
		if (c == '0') {
			*to = pack(negative, 3, 0, 1);
			return true;
		}
		at = 2;
		count = 0;
		cmp = 1;
	}
	const char *want = at == 2 ? b->d.whole : b->d.part;
	int n = at == 2 ? b->d.n_whole : b->d.n_part;
	char w = count < n ? want[count] : '0';

	/* Longer than d's whole part: no digit matters any more. */
	if (cmp == 1 && (at == 4 || count < n))
		cmp = c < w ? 0 : c > w ? 2 : 1;
	if (count <= n)
		count++;
	*to = pack(negative, at, count, cmp);
	return true;
}

static bool bound_accept(const void *ctx, uint64_t s)
{
	const struct bound *b = ctx;
	int cmp = (int)(s & 3), count = (int)(s >> 2 & 63), at = (int)(s >> 8 & 7), negative = (int)(s >> 11), m;
	bool zero = !b->d.n_whole && !b->d.n_part;

	if (at < 2 || (at == 4 && !count))
		return false;
	m = at == 4 ? cmp - 1 : whole_cmp(b, at, count, cmp);
	/* Digits of d that were not read are not all zeros. */
	if (!m && (at == 4 ? count : 0) < b->d.n_part)
		m = -1;
	if (negative && zero && !m)
		m = 0; /* -0 */
	else if (negative && b->d.negative)
		m = -m;
	else if (negative != b->d.negative)
		/* -0 against 0 was handled; d negative and 0 read: above. */
		m = negative ? -1 : 1;
	if (b->below)
		m = -m;
	return m > 0 || (m == 0 && !b->open);
}

struct dfa *lexeme_bound(struct dfa_pool *p, const struct decimal *d, bool below, bool open)
{
	struct bound b = { *d, below, open };

	return dfa_from_lazy(p,
	                     &(struct dfa_lazy){ &b, 0 + pack(0, 0, 0, 1), bound_step, bound_accept, "0123456789.-" });
}

/* ---- multiples ---- */

struct multiple {
	uint64_t m; /* d times ten to the power of part */
	int part;
};

/* State: remainder * 64 + place; place 0 begin, 1 after the sign, 2 whole, 3 lone
 * zero, 4 + k: k digits after the point. */
static bool multiple_step(const void *ctx, uint64_t s, char c, uint64_t *to)
{
	const struct multiple *m = ctx;
	uint64_t rest = s / 64;
	int at = (int)(s % 64);

	if (c == '-') {
		*to = 1;
		return at == 0;
	}
	if (c == '.') {
		*to = rest * 64 + 4;
		return at == 2 || at == 3;
	}
	if (at == 3)
		return false;
	if (at >= 4 && at - 4 >= m->part) {
		/* The remainder is of the number scaled up; more digits must be zeros. */
		*to = rest * 64 + (uint64_t)(at < 5 + m->part ? at + 1 : at);
		return c == '0';
	}
	rest = (rest * 10 + (uint64_t)(c - '0')) % m->m;
	at = at < 2 ? (c == '0' ? 3 : 2) : at >= 4 ? at + 1 : at;
	*to = rest * 64 + (uint64_t)at;
	return true;
}

static bool multiple_accept(const void *ctx, uint64_t s)
{
	const struct multiple *m = ctx;
	uint64_t rest = s / 64;
	int at = (int)(s % 64), k = at >= 4 ? at - 4 : 0;

	if (at < 2 || at == 4)
		return false;
	for (; k < m->part; k++)
		rest = rest * 10 % m->m;
	return !rest;
}

struct dfa *lexeme_multiple(struct dfa_pool *p, const struct decimal *d)
{
	struct multiple m = { 0, d->n_part };

	for (int i = 0; i < d->n_whole + d->n_part; i++) {
		m.m = m.m * 10 + (uint64_t)((i < d->n_whole ? d->whole[i] : d->part[i - d->n_whole]) - '0');
		if (m.m * (uint64_t)(m.part + 2) > MULTIPLE_STATES_MAX)
			return NULL;
	}
	if (!m.m)
		return NULL;
	return dfa_from_lazy(p, &(struct dfa_lazy){ &m, 0, multiple_step, multiple_accept, "0123456789.-" });
}
