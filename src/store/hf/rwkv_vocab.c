/* rwkv_vocab.c - see rwkv_vocab.h.
 *
 * A line is a token's id, its text as Python writes a string or bytes, and how many bytes it has. */
#include "store/hf/rwkv_vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "store/byte_text.h"

enum { IDS_MAX = 1 << 20 };

/* ---- a literal ---- */

struct literal {
	const char *p, *end;
	bool bytes;
};

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 :
	                              -1;
}

/* n hexadecimal digits; -1: they are none. */
static int64_t take_hex(struct literal *l, int n)
{
	int64_t v = 0;

	for (int i = 0; i < n; i++) {
		int digit = l->p < l->end ? hex_digit(*l->p++) : -1;

		if (digit < 0)
			return -1;
		v = 16 * v + digit;
	}
	return v;
}

static bool put_number(struct buf *out, const struct literal *l, int64_t v)
{
	char text[4];

	if (v < 0 || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000) || (l->bytes && v > 255))
		return false;
	if (l->bytes)
		buf_putc(out, (char)v);
	else
		buf_put(out, text, (size_t)utf8_encode((uint32_t)v, text));
	return true;
}

/* Appends the meaning of the letters behind a backslash. */
static bool put_escaped(struct buf *out, struct literal *l)
{
	static const char letters[] = "abfnrtv\\'\"", meant[] = "\a\b\f\n\r\t\v\\'\"";
	char c = l->p < l->end ? *l->p++ : 0;
	const char *known = c ? strchr(letters, c) : NULL;

	if (known)
		buf_putc(out, meant[known - letters]);
	else if (c == 'x')
		return put_number(out, l, take_hex(l, 2));
	else if (!l->bytes && (c == 'u' || c == 'U'))
		return put_number(out, l, take_hex(l, c == 'u' ? 4 : 8));
	else
		return false;
	return true;
}

/* Appends the bytes that 'text', "text" or b'text' in p[0..n) stands for; false: it is none of these. */
static bool put_literal(struct buf *out, const char *p, size_t n)
{
	struct literal l = { p, p + n, n && *p == 'b' };
	char quote;

	l.p += l.bytes;
	if (l.end - l.p < 2 || (*l.p != '\'' && *l.p != '"') || l.end[-1] != *l.p)
		return false;
	quote = *l.p++;
	l.end--;
	while (l.p < l.end) {
		char c = *l.p++;

		if (c == quote || (c == '\\' && !put_escaped(out, &l)))
			return false;
		if (c != '\\')
			buf_putc(out, c);
	}
	return true;
}

/* ---- lines ---- */

/* A whole number of at most IDS_MAX; -1: it is none. */
static int64_t number_of(const char *p, const char *end)
{
	int64_t v = 0;

	if (p == end)
		return -1;
	for (; p < end; p++) {
		if (*p < '0' || *p > '9' || v > IDS_MAX)
			return -1;
		v = 10 * v + (*p - '0');
	}
	return v > IDS_MAX ? -1 : v;
}

/* The line p[0..n) as a member of the vocabulary; seen: ids that there were, a bit each. */
static int put_line(struct buf *out, const char *p, size_t n, uint8_t *seen, struct buf *bytes, struct err *err)
{
	const char *first = memchr(p, ' ', n), *last = memrchr(p, ' ', n), *end = p + n;
	int64_t id = first ? number_of(p, first) : -1, length = last ? number_of(last + 1, end) : -1;

	buf_reset(bytes);
	if (id < 0 || length < 0 || first == last || !put_literal(bytes, first + 1, (size_t)(last - first - 1)))
		return err_set(err, E_FORMAT, "is not an id, a text and a length");
	if (!length || bytes->n != (size_t)length)
		return err_set(err, E_FORMAT, "its text has %zu bytes, its length is %" PRId64, bytes->n, length);
	if (!id || seen[id / 8] >> id % 8 & 1)
		return err_set(err, E_FORMAT, "id %" PRId64 " is that of the end, or there twice", id);
	seen[id / 8] |= (uint8_t)(1 << id % 8);
	buf_puts(out, out->p[out->n - 1] == '{' ? "\"" : ",\"");
	for (size_t i = 0; i < bytes->n; i++)
		byte_text_put(out, (uint8_t)bytes->p[i]);
	buf_printf(out, "\":%" PRId64, id);
	return 0;
}

int rwkv_tokenizer(const char *text, size_t n, const struct json *config, struct buf *out, struct err *err)
{
	const char *name = json_str(json_get(json_get(json_get(config, "added_tokens_decoder"), "0"), "content"), NULL);
	uint8_t *seen = xcalloc(IDS_MAX / 8 + 1, 1);
	struct buf bytes;
	int code = 0;
	int64_t lines = 0;

	buf_init(&bytes);
	buf_puts(out, "{\"added_tokens\":[{\"id\":0,\"content\":");
	json_put_cstr(out, name && *name ? name : "<s>");
	buf_puts(out, ",\"special\":true,\"normalized\":false}],"
	              "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
	              "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"Longest\",\"vocab\":{");
	for (const char *p = text, *end = text + n, *stop; p < end && !code; p = stop + 1) {
		stop = memchr(p, '\n', (size_t)(end - p));
		stop = stop ? stop : end;
		code = put_line(out, p, (size_t)(stop - p) - (stop > p && stop[-1] == '\r'), seen, &bytes, err);
		lines++;
	}
	if (code)
		err_prefix(err, "line %" PRId64, lines);
	else if (!lines)
		code = err_set(err, E_FORMAT, "no tokens");
	buf_puts(out, "}}}");
	buf_fini(&bytes);
	free(seen);
	return code;
}
