/* token_decoder.c - see token_decoder.h. */
#include "text/tokens/token_decoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { DEPTH_MAX = 4, TEXT_MAX = 64 };

#define SPACE "\xE2\x96\x81" /* what SentencePiece writes for one */

static int add_replace(struct decoder *d, const char *from, const char *to, struct err *err)
{
	if (d->n_replace == DECODER_REPLACES)
		return err_set(err, E_LIMIT, "more than %d times Replace", DECODER_REPLACES);
	if (!from || !*from || !to || strlen(from) > TEXT_MAX || strlen(to) > TEXT_MAX)
		return err_set(err, E_UNSUPPORTED, "Replace: only of a text by a text, both at most %d bytes",
		               TEXT_MAX);
	d->replace[d->n_replace].from = xstrdup(from);
	d->replace[d->n_replace++].to = xstrdup(to);
	return 0;
}

static int add_strip(struct decoder *d, const struct json *j, struct err *err)
{
	const char *content;
	int64_t start, stop;
	int e;

	if ((e = json_get_str(j, "content", "", &content, err)) || (e = json_get_int(j, "start", 0, &start, err)) ||
	    (e = json_get_int(j, "stop", 0, &stop, err)))
		return e;
	if (strcmp(content, " ") || start < 0 || start > 16 || stop)
		return err_set(err, E_UNSUPPORTED, "Strip: only of spaces at the beginning");
	d->strip += (int)start;
	return 0;
}

static int add_metaspace(struct decoder *d, const struct json *j, struct err *err)
{
	const char *with, *scheme;
	bool space;
	int e;

	if ((e = json_get_str(j, "replacement", SPACE, &with, err)) ||
	    (e = json_get_bool(j, "add_prefix_space", true, &space, err)) ||
	    (e = json_get_str(j, "prepend_scheme", space ? "always" : "never", &scheme, err)))
		return e;
	d->strip += strcmp(scheme, "never") != 0;
	return add_replace(d, with, " ", err);
}

static int add_wordpiece(struct decoder *d, const struct json *j, struct err *err)
{
	const char *prefix;
	int e;

	if ((e = json_get_str(j, "prefix", "##", &prefix, err)) ||
	    (e = json_get_bool(j, "cleanup", true, &d->cleanup, err)))
		return e;
	if (!*prefix || strlen(prefix) > TEXT_MAX)
		return err_set(err, E_UNSUPPORTED, "prefix of 1 to %d bytes", TEXT_MAX);
	d->inner = xstrdup(prefix);
	d->strip = 1;
	return 0;
}

static int add_decoder(struct decoder *d, const struct json *j, int depth, struct err *err);

static int add_one(struct decoder *d, const struct json *j, const char *type, int depth, struct err *err)
{
	if (!strcmp(type, "Sequence")) {
		const struct json *list = json_get(j, "decoders");
		int e = 0;

		for (size_t i = 0; i < json_len(list) && !e; i++)
			e = add_decoder(d, json_at(list, i), depth + 1, err);
		return e;
	}
	if (!strcmp(type, "ByteLevel")) {
		d->byte_level = true;
		return 0;
	}
	if (!strcmp(type, "ByteFallback")) {
		d->byte_fallback = true;
		return 0;
	}
	if (!strcmp(type, "Fuse"))
		return 0;
	if (!strcmp(type, "Replace"))
		return add_replace(d, json_str(json_get(json_get(j, "pattern"), "String"), NULL),
		                   json_str(json_get(j, "content"), NULL), err);
	if (!strcmp(type, "Strip"))
		return add_strip(d, j, err);
	if (!strcmp(type, "Metaspace"))
		return add_metaspace(d, j, err);
	if (!strcmp(type, "WordPiece") && !d->inner)
		return add_wordpiece(d, j, err);
	return err_set(err, E_UNSUPPORTED, "this type is not done");
}

static int add_decoder(struct decoder *d, const struct json *j, int depth, struct err *err)
{
	const char *type;
	int e;

	if (json_kind(j) != JSON_OBJECT || depth > DEPTH_MAX)
		return err_set(err, E_UNSUPPORTED, "must be an object, is %s", json_kind_name(json_kind(j)));
	if ((e = json_get_str(j, "type", "", &type, err)))
		return e;
	e = add_one(d, j, type, depth, err);
	return e ? err_prefix(err, "type \"%.40s\"", type) : 0;
}

int decoder_open(struct decoder *d, const struct json *j, struct err *err)
{
	int e;

	*d = (struct decoder){ 0 };
	e = json_kind(j) == JSON_NULL ? 0 : add_decoder(d, j, 0, err);
	if (!e && d->byte_level && (d->n_replace || d->byte_fallback || d->inner || d->strip))
		e = err_set(err, E_UNSUPPORTED, "ByteLevel with others");
	if (e) {
		decoder_close(d);
		return err_prefix(err, "decoder");
	}
	return 0;
}

void decoder_close(struct decoder *d)
{
	for (int i = 0; i < d->n_replace; i++) {
		free(d->replace[i].from);
		free(d->replace[i].to);
	}
	free(d->inner);
	*d = (struct decoder){ 0 };
}

/* ---- one token ---- */

static int hex(char c)
{
	const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, c >= 'a' && c <= 'f' ? c - 32 : c) : NULL;

	return at ? (int)(at - digits) : -1;
}

static int byte_of(const char *s, size_t n)
{
	if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || hex(s[3]) < 0 || hex(s[4]) < 0)
		return -1;
	return hex(s[3]) * 16 + hex(s[4]);
}

static void replace_all(struct buf *b, size_t from, const char *what, const char *with)
{
	size_t n = strlen(what);
	struct buf done;
	char *p = b->p + from, *end = b->p + b->n, *hit;

	if (!memmem(p, (size_t)(end - p), what, n))
		return;
	buf_init(&done);
	while (p < end && (hit = memmem(p, (size_t)(end - p), what, n))) {
		buf_put(&done, p, (size_t)(hit - p));
		buf_puts(&done, with);
		p = hit + n;
	}
	buf_put(&done, p, (size_t)(end - p));
	b->n = from;
	buf_put(b, done.p, done.n);
	buf_fini(&done);
}

void decoder_put(const struct decoder *d, const char *s, size_t n, struct buf *out)
{
	/* As BERT's library, token by token. */
	static const char *const clean[][2] = { { " .", "." },     { " ?", "?" },           { " !", "!" },
		                                { " ,", "," },     { " ' ", "'" },          { " n't", "n't" },
		                                { " 'm", "'m" },   { " do not", " don't" }, { " 's", "'s" },
		                                { " 've", "'ve" }, { " 're", "'re" } };
	size_t from = out->n;
	int byte = d->byte_fallback ? byte_of(s, n) : -1;

	if (byte >= 0) {
		buf_putc(out, byte);
		return;
	}
	if (d->inner && n >= strlen(d->inner) && !memcmp(s, d->inner, strlen(d->inner))) {
		buf_put(out, s + strlen(d->inner), n - strlen(d->inner));
	} else {
		buf_puts(out, d->inner ? " " : "");
		buf_put(out, s, n);
	}
	for (int i = 0; i < d->n_replace; i++)
		replace_all(out, from, d->replace[i].from, d->replace[i].to);
	for (size_t i = 0; d->cleanup && i < sizeof clean / sizeof *clean; i++)
		replace_all(out, from, clean[i][0], clean[i][1]);
}
