/* jinja_format.c - numbers as Python writes and reads them, % formatting,
 * str.format, and json.dumps. */
#include "text/jinja/jinja.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* ---- numbers ---- */

void put_int(struct jrender *r, struct sb *b, int64_t i)
{
	char t[24];

	sb_put(r, b, t, (size_t)snprintf(t, sizeof t, "%lld", (long long)i), ORIGIN_TEXT);
}

/* The shortest digits that read back as d, laid out as repr() does: an exponent
 * below 1e-4 and from 1e16 on, otherwise always a point. */
void put_float(struct jrender *r, struct sb *b, double d)
{
	char t[40], digits[20];
	int n = 0, e;
	char *p;

	if (!isfinite(d)) {
		sb_puts(r, b, isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
		return;
	}
	/* Any 15 digits survive a double, but not a subnormal one. */
	for (int prec = fabs(d) < DBL_MIN ? 0 : 14; prec <= 16; prec++) {
		snprintf(t, sizeof t, "%.*e", prec, d);
		if (strtod(t, NULL) == d)
			break;
	}
	p = t;
	if (*p == '-') {
		sb_puts(r, b, "-");
		p++;
	}
	for (; *p != 'e'; p++)
		if (*p != '.')
			digits[n++] = *p;
	e = atoi(p + 1);
	while (n > 1 && digits[n - 1] == '0')
		n--;
	if (e < -4 || e >= 16) {
		sb_put(r, b, digits, 1, ORIGIN_TEXT);
		if (n > 1)
			sb_puts(r, b, ".");
		sb_put(r, b, digits + 1, (size_t)n - 1, ORIGIN_TEXT);
		snprintf(t, sizeof t, "e%c%02d", e < 0 ? '-' : '+', abs(e));
		sb_puts(r, b, t);
		return;
	}
	if (e < 0) {
		sb_puts(r, b, "0.");
		for (int i = -1; i > e; i--)
			sb_puts(r, b, "0");
		sb_put(r, b, digits, (size_t)n, ORIGIN_TEXT);
		return;
	}
	for (int i = 0; i <= e || i < n || i == e + 1; i++) {
		if (i == e + 1)
			sb_puts(r, b, ".");
		sb_put(r, b, i < n ? &digits[i] : "0", 1, ORIGIN_TEXT);
	}
}

static void trim(const char **p, size_t *n)
{
	size_t k;

	while ((k = space_at(*p, *n))) {
		*p += k;
		*n -= k;
	}
	while ((k = space_before(*p, *n)))
		*n -= k;
}

static int digit_value(int c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
}

bool parse_int(const char *p, size_t n, int base, int64_t *out)
{
	bool negative = false, after_digit = false;
	uint64_t v = 0;

	trim(&p, &n);
	if (n && (*p == '-' || *p == '+')) {
		negative = *p == '-';
		p++;
		n--;
	}
	if (n > 1 && *p == '0') {
		int c = p[1] | 32, of = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;

		if (of && (base == of || base == 0)) {
			base = of;
			p += 2;
			n -= 2;
			after_digit = true; /* 0x_1 is allowed */
		}
	}
	if (base == 0)
		base = 10;
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '_' && after_digit && i + 1 < n) {
			after_digit = false;
			continue;
		}
		if (digit_value(p[i]) >= base || __builtin_mul_overflow(v, (uint64_t)base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)digit_value(p[i]), &v))
			return false;
		after_digit = true;
	}
	if (!n || v > (uint64_t)INT64_MAX + negative)
		return false;
	*out = negative ? (int64_t)(0 - v) : (int64_t)v;
	return true;
}

bool parse_float(const char *p, size_t n, double *out)
{
	char t[512], *end;
	size_t k = 0;

	trim(&p, &n);
	if (!n || n >= sizeof t)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '_' && i && i + 1 < n && digit_value(p[i - 1]) < 10 && digit_value(p[i + 1]) < 10)
			continue;
		if (!strchr("+-.0123456789eEinfatyINFATY", p[i]) || !p[i])
			return false;
		t[k++] = p[i];
	}
	t[k] = 0;
	*out = strtod(t, &end);
	return end == t + k && !strchr(t, '(');
}

double round_to(double v, int64_t digits)
{
	char t[700];
	double scale;

	if (!isfinite(v) || digits > 330)
		return v;
	if (digits < -310)
		return copysign(0.0, v);
	if (digits >= 0) {
		snprintf(t, sizeof t, "%.*f", (int)digits, v); /* rounds the exact value, half to even */
		return strtod(t, NULL);
	}
	scale = pow(10, (double)-digits);
	return isfinite(scale) ? nearbyint(v / scale) * scale : copysign(0.0, v);
}

/* ---- "..." % args ---- */

struct spec {
	bool left, plus, blank, zero, alt;
	int width, precision; /* precision -1: none */
};

enum { SPEC_MAX = 1000 }; /* widest field; a template has no use for more */

static int spec_number(struct jrender *r, const char **p, const char *end)
{
	int v = 0;

	for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
		v = v * 10 + (**p - '0');
		if (v > SPEC_MAX)
			jr_fail(r, E_LIMIT, "format field wider than %d", SPEC_MAX);
	}
	return v;
}

static const char *parse_spec(struct jrender *r, const char *p, const char *end, struct spec *s)
{
	*s = (struct spec){ .precision = -1 };
	for (; p < end && strchr("-+ 0#", *p) && *p; p++) {
		s->left = s->left || *p == '-';
		s->plus = s->plus || *p == '+';
		s->blank = s->blank || *p == ' ';
		s->zero = s->zero || *p == '0';
		s->alt = s->alt || *p == '#';
	}
	if (p < end && *p == '*')
		jr_fail(r, E_UNSUPPORTED, "format width '*'");
	s->width = spec_number(r, &p, end);
	if (p < end && *p == '.') {
		p++;
		s->precision = spec_number(r, &p, end);
	}
	while (p < end && (*p == 'h' || *p == 'l' || *p == 'L'))
		p++;
	if (p >= end)
		jr_fail(r, E_ARG, "incomplete format");
	return p;
}

/* Appends s padded to the field; sign is how much of it stays before zeros. */
static void put_field(struct jrender *r, struct sb *b, const struct spec *sp, struct jstr *s, bool zero, size_t sign)
{
	int64_t pad = sp->width - v_len(r, v_str(s));

	for (int64_t i = 0; !sp->left && !zero && i < pad; i++)
		sb_puts(r, b, " ");
	sb_put_sub(r, b, s, 0, zero ? sign : s->n);
	for (int64_t i = 0; zero && i < pad; i++)
		sb_puts(r, b, "0");
	if (zero)
		sb_put_sub(r, b, s, sign, s->n);
	for (int64_t i = 0; sp->left && i < pad; i++)
		sb_puts(r, b, " ");
}

static void put_number(struct jrender *r, struct sb *b, const struct spec *sp, int conv, struct value v)
{
	char t[SPEC_MAX + 400], f[16];
	struct jstr *s;
	int64_t i;
	int n;

	if (!v_is_number(v)) {
		if (v.kind == V_UNDEF)
			v_fail_undef(r, v);
		jr_fail(r, E_ARG, "%%%c format: a number is required, not %s", conv, v_type(v));
	}
	jr_steps(r, 20 + (sp->precision > 0 ? (uint64_t)sp->precision : 0));
	if (strchr("eEfFgG", conv)) {
		snprintf(f, sizeof f, "%%%s%s%s.*%c", sp->plus ? "+" : "", sp->blank ? " " : "", sp->alt ? "#" : "",
		         conv);
		n = snprintf(t, sizeof t, f, sp->precision < 0 ? 6 : sp->precision, v_as_double(v));
	} else {
		if (!v_as_int(v, &i)) {
			if (strchr("oxX", conv))
				jr_fail(r, E_ARG, "%%%c format: an integer is required, not float", conv);
			if (!isfinite(v.d) || fabs(v.d) > 9.2e18)
				jr_fail(r, E_ARG, "%%%c format: float out of range", conv);
			i = (int64_t)v.d;
		}
		uint64_t mag = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;

		n = snprintf(t, sizeof t, "%s", i < 0 ? "-" : sp->plus ? "+" : sp->blank ? " " : "");
		if (sp->alt && strchr("oxX", conv))
			n += snprintf(t + n, sizeof t - (size_t)n, "0%c", conv);
		snprintf(f, sizeof f, "%%.*ll%c", conv == 'i' || conv == 'd' ? 'u' : conv);
		n += snprintf(t + n, sizeof t - (size_t)n, f, sp->precision < 1 ? 1 : sp->precision,
		              (unsigned long long)mag);
	}
	s = str_new(r, t, (size_t)n, ORIGIN_TEXT);
	put_field(r, b, sp, s, sp->zero && !sp->left && isfinite(v_as_double(v)),
	          (size_t)(n && strchr("+- ", t[0])) + (sp->alt && strchr("xXo", conv) ? 2 : 0));
}

static void put_conversion(struct jrender *r, struct sb *b, const struct spec *sp, int conv, struct value v,
                           bool markup)
{
	struct jstr *s;
	struct sb one;
	int64_t i;
	char t[4];

	switch (conv) {
	case 's':
	case 'r':
		sb_init(&one);
		if (conv == 'r')
			v_put_repr(r, &one, v);
		s = conv == 'r' ? sb_str(r, &one) : v_soft_str(r, v);
		if (markup)
			s = str_escape(r, s);
		if (sp->precision >= 0)
			s = str_sub(r, s, 0, str_offset(s, (size_t)sp->precision));
		put_field(r, b, sp, s, false, 0);
		return;
	case 'c':
		if (v_as_int(v, &i)) {
			if (i < 0 || i > 0x10FFFF || (i >= 0xD800 && i < 0xE000))
				jr_fail(r, E_ARG, "%%c arg not in range(0x110000)");
			s = str_copy(r, t, (size_t)utf8_encode((uint32_t)i, t));
		} else if (v.kind == V_STR && v_len(r, v) == 1) {
			s = v.s;
		} else {
			jr_fail(r, E_ARG, "%%c requires int or char");
		}
		put_field(r, b, sp, s, false, 0);
		return;
	case 'd':
	case 'i':
	case 'u':
	case 'o':
	case 'x':
	case 'X':
	case 'e':
	case 'E':
	case 'f':
	case 'F':
	case 'g':
	case 'G': put_number(r, b, sp, conv == 'u' ? 'd' : conv, v); return;
	default: jr_fail(r, E_ARG, "unsupported format character (0x%x)", conv & 0xff);
	}
}

struct value format_percent(struct jrender *r, struct jstr *fmt, struct value args)
{
	const char *p = fmt->p, *end = p + fmt->n, *from = p, *key_end;
	struct jlist one = { 1, &args }, *list = args.kind == V_TUPLE ? args.l : &one;
	bool mapping = args.kind == V_DICT || args.kind == V_LIST || args.kind == V_RANGE || args.kind == V_UNDEF;
	size_t next = 0;
	struct spec sp;
	struct sb b;

	sb_init(&b);
	while ((p = memchr(p, '%', (size_t)(end - p)))) {
		struct value v = { .kind = V_MISSING };

		sb_put_sub(r, &b, fmt, (size_t)(from - fmt->p), (size_t)(p - fmt->p));
		jr_steps(r, 1);
		p++;
		if (p < end && *p == '(') {
			key_end = memchr(p, ')', (size_t)(end - p));
			if (!key_end || args.kind != V_DICT)
				jr_fail(r, E_ARG, "format requires a mapping");
			v = v_getitem(r, args,
			              v_str(str_sub(r, fmt, (size_t)(p + 1 - fmt->p), (size_t)(key_end - fmt->p))));
			if (v.kind == V_UNDEF)
				jr_fail(r, E_ARG, "format: key not in mapping");
			p = key_end + 1;
		}
		p = parse_spec(r, p, end, &sp);
		if (*p == '%') {
			sb_puts(r, &b, "%");
		} else {
			if (v.kind == V_MISSING) {
				if (next >= list->n)
					jr_fail(r, E_ARG, "not enough arguments for format string");
				v = list->v[next++];
			}
			put_conversion(r, &b, &sp, *p, v, fmt->markup);
		}
		from = ++p;
	}
	sb_put_sub(r, &b, fmt, (size_t)(from - fmt->p), fmt->n);
	if (next < list->n && !mapping)
		jr_fail(r, E_ARG, "not all arguments converted during string formatting");
	return v_str(fmt->markup ? str_markup(r, sb_str(r, &b)) : sb_str(r, &b));
}

/* "{} {0} {name} {{ }}"; format specifications are refused by name. */
struct value format_braces(struct jrender *r, struct jstr *fmt, const struct jargs *a)
{
	size_t from = 0, next = 0, close;
	struct sb b;

	sb_init(&b);
	for (size_t i = 0; i < fmt->n; i++) {
		struct value v = { .kind = V_MISSING };
		int64_t index;

		if (fmt->p[i] != '{' && fmt->p[i] != '}')
			continue;
		sb_put_sub(r, &b, fmt, from, i);
		if (i + 1 < fmt->n && fmt->p[i + 1] == fmt->p[i]) {
			sb_put_sub(r, &b, fmt, i, i + 1);
			from = ++i + 1;
			continue;
		}
		for (close = i + 1; close < fmt->n && fmt->p[close] != '}' && fmt->p[close] != '{'; close++)
			if (strchr(":!.[", fmt->p[close]) && fmt->p[close])
				jr_fail(r, E_UNSUPPORTED, "format(): only plain fields are supported");
		if (fmt->p[i] == '}' || close >= fmt->n || fmt->p[close] != '}')
			jr_fail(r, E_ARG, "single '%c' encountered in format string", fmt->p[i]);
		if (close == i + 1) {
			if (next < a->n)
				v = a->v[next++];
		} else if (parse_int(fmt->p + i + 1, close - i - 1, 10, &index)) {
			if (index >= 0 && (uint64_t)index < a->n)
				v = a->v[index];
		} else {
			for (size_t k = 0; k < a->n_kw; k++)
				if (a->kw[k]->n == close - i - 1 && !memcmp(a->kw[k]->p, fmt->p + i + 1, a->kw[k]->n))
					v = a->kwv[k];
		}
		if (v.kind == V_MISSING)
			jr_fail(r, E_ARG, "format(): no argument for field '%.*s'",
			        close - i < 60 ? (int)(close - i - 1) : 60, fmt->p + i + 1);
		v_put_str(r, &b, v);
		from = close + 1;
		i = close;
	}
	sb_put_sub(r, &b, fmt, from, fmt->n);
	return v_str(sb_str(r, &b));
}

/* ---- json.dumps ---- */

struct dump {
	struct sb b;
	bool ascii, sort, pretty;
	struct jstr *indent, *item_sep, *key_sep;
	uint32_t origin;
};

static void dump_str(struct jrender *r, struct dump *d, const struct jstr *s)
{
	static const char plain[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
	size_t from = 0, len;
	const char *hit;
	uint32_t cp;
	char esc[16];
	int n;

	d->origin = origin_mix(d->origin, str_origin(s));
	sb_puts(r, &d->b, "\"");
	for (size_t i = 0; i < s->n; i += len) {
		unsigned char c = (unsigned char)s->p[i];

		len = 1;
		n = 0;
		hit = c ? strchr(plain, c) : NULL;
		if (hit) {
			n = snprintf(esc, sizeof esc, "\\%c", names[hit - plain]);
		} else if (c < 0x20 || (c == 0x7f && d->ascii)) {
			n = snprintf(esc, sizeof esc, "\\u%04x", c);
		} else if (c >= 0x80 && d->ascii) {
			len = (size_t)utf8_decode(s->p + i, s->n - i, &cp);
			if (cp < 0x10000)
				n = snprintf(esc, sizeof esc, "\\u%04x", cp);
			else
				n = snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
				             0xDC00 + ((cp - 0x10000) & 0x3FF));
		}
		if (!n)
			continue;
		sb_put(r, &d->b, s->p + from, i - from, ORIGIN_TEXT);
		sb_put(r, &d->b, esc, (size_t)n, ORIGIN_TEXT);
		from = i + len;
	}
	sb_put(r, &d->b, s->p + from, s->n - from, ORIGIN_TEXT);
	sb_puts(r, &d->b, "\"");
}

static void dump_newline(struct jrender *r, struct dump *d, int level)
{
	if (!d->pretty)
		return;
	sb_puts(r, &d->b, "\n");
	for (int i = 0; i < level; i++)
		sb_put_str(r, &d->b, d->indent);
}

static void dump_float(struct jrender *r, struct dump *d, double x)
{
	if (isfinite(x))
		put_float(r, &d->b, x);
	else
		sb_puts(r, &d->b, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
}

static void dump_value(struct jrender *r, struct dump *d, struct value v, int level);

static void dump_key(struct jrender *r, struct dump *d, struct value k)
{
	if (k.kind == V_STR) {
		dump_str(r, d, k.s);
		return;
	}
	if (k.kind != V_NONE && !v_is_number(k))
		jr_fail(r, E_ARG, "tojson: keys must be str, int, float, bool or None, not %s", v_type(k));
	sb_puts(r, &d->b, "\"");
	dump_value(r, d, k, 0);
	sb_puts(r, &d->b, "\"");
}

static void dump_dict(struct jrender *r, struct dump *d, const struct jdict *o, int level)
{
	struct value *keys = NULL, *vals = NULL;

	if (!o->n) {
		sb_puts(r, &d->b, "{}");
		return;
	}
	if (d->sort) {
		keys = jr_array(r, o->n, sizeof *keys);
		vals = jr_array(r, o->n, sizeof *vals);
		for (size_t i = 0; i < o->n; i++) {
			keys[i] = o->e[i].key;
			vals[i] = v_int((int64_t)i);
		}
		v_sort(r, keys, vals, o->n, false);
	}
	sb_puts(r, &d->b, "{");
	for (size_t i = 0; i < o->n; i++) {
		const struct jpair *e = &o->e[vals ? (size_t)vals[i].i : i];

		if (i)
			sb_put_str(r, &d->b, d->item_sep);
		dump_newline(r, d, level + 1);
		dump_key(r, d, e->key);
		sb_put_str(r, &d->b, d->key_sep);
		dump_value(r, d, e->value, level + 1);
	}
	dump_newline(r, d, level);
	sb_puts(r, &d->b, "}");
}

static void dump_list(struct jrender *r, struct dump *d, const struct jlist *l, int level)
{
	sb_puts(r, &d->b, "[");
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			sb_put_str(r, &d->b, d->item_sep);
		dump_newline(r, d, level + 1);
		dump_value(r, d, l->v[i], level + 1);
	}
	if (l->n)
		dump_newline(r, d, level);
	sb_puts(r, &d->b, "]");
}

static void dump_value(struct jrender *r, struct dump *d, struct value v, int level)
{
	jr_enter(r);
	switch (v.kind) {
	case V_NONE: sb_puts(r, &d->b, "null"); break;
	case V_BOOL: sb_puts(r, &d->b, v.b ? "true" : "false"); break;
	case V_INT: put_int(r, &d->b, v.i); break;
	case V_FLOAT:
		if (v.digits)
			sb_puts(r, &d->b, v.digits);
		else
			dump_float(r, d, v.d);
		break;
	case V_STR: dump_str(r, d, v.s); break;
	case V_LIST:
	case V_TUPLE: dump_list(r, d, v.l, level); break;
	case V_DICT: dump_dict(r, d, v.o, level); break;
	default: jr_fail(r, E_ARG, "Object of type %s is not JSON serializable", v_type(v));
	}
	jr_leave(r);
}

struct value v_tojson(struct jrender *r, struct value v, const struct jargs *a)
{
	struct dump d = { 0 };
	struct value arg[4];
	int64_t width;

	args_bind(r, "tojson", "ensure_ascii indent separators sort_keys", a, arg, 0);
	d.ascii = v_true(r, arg[0]);
	d.sort = v_true(r, arg[3]);
	d.pretty = arg[1].kind != V_MISSING && arg[1].kind != V_NONE;
	d.item_sep = str_lit(r, d.pretty ? "," : ", ");
	d.key_sep = str_lit(r, ": ");
	if (d.pretty && arg[1].kind == V_STR)
		d.indent = arg[1].s;
	else if (d.pretty) {
		if (!v_as_int(arg[1], &width))
			jr_fail(r, E_ARG, "tojson: indent must be an integer or a string, not %s", v_type(arg[1]));
		d.indent = v_binary(r, OP_MUL, v_str(str_lit(r, " ")), v_int(width)).s;
	}
	if (arg[2].kind != V_MISSING && arg[2].kind != V_NONE) {
		if ((arg[2].kind != V_TUPLE && arg[2].kind != V_LIST) || arg[2].l->n != 2 ||
		    arg[2].l->v[0].kind != V_STR || arg[2].l->v[1].kind != V_STR)
			jr_fail(r, E_ARG, "tojson: separators must be two strings");
		d.item_sep = arg[2].l->v[0].s;
		d.key_sep = arg[2].l->v[1].s;
	}
	sb_init(&d.b);
	dump_value(r, &d, v, 0);
	sb_one_origin(&d.b, d.origin);
	return v_str(sb_str(r, &d.b));
}
