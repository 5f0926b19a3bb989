/* tokenize.c - `weft tokenize`: text to ids. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "host/load.h"

/* One line per id: the id and its bytes, quoted. */
static void print_pieces(const struct tokenizer *t, const struct tokens *ids)
{
	struct buf b;

	buf_init(&b);
	for (size_t i = 0; i < ids->n; i++) {
		size_t n = 0;
		const char *p = tokenizer_token_bytes(t, ids->id[i], &n);

		buf_printf(&b, "%7d  ", ids->id[i]);
		buf_putc(&b, '"');
		for (size_t k = 0; p && k < n;) {
			unsigned char c = (unsigned char)p[k];
			uint32_t cp;
			int len = utf8_decode(p + k, n - k, &cp);

			if (c == '"' || c == '\\')
				buf_printf(&b, "\\%c", c);
			else if (c == '\n')
				buf_puts(&b, "\\n");
			else if (c < 32 || c == 127 || !len)
				buf_printf(&b, "\\x%02x", c); /* a byte alone: part of a character */
			else
				buf_put(&b, p + k, (size_t)len);
			k += len ? (size_t)len : 1;
		}
		buf_puts(&b, "\"\n");
	}
	fwrite(b.p, 1, b.n, stdout);
	buf_fini(&b);
}

static void print_ids(const struct tokens *ids)
{
	putchar('[');
	for (size_t i = 0; i < ids->n; i++)
		printf("%s%d", i ? ", " : "", ids->id[i]);
	puts("]");
}

int cmd_tokenize(const struct options *given)
{
	struct options o = *given;
	struct session s = { 0 };
	struct tokens ids;
	struct buf text;
	struct err err;
	int rc = 0;

	buf_init(&text);
	tokens_init(&ids);
	/* A lone word that leads to a model names it. */
	if (o.said.text && !o.load.model && !store_locate(o.said.text, &text, NULL)) {
		o.load.model = o.said.text;
		o.said.text = NULL;
	}
	buf_reset(&text);
	rc = session_open(&s, &o.load, LOAD_TOKENIZER, &err);
	if (!rc) {
		if (o.said.text)
			buf_puts(&text, o.said.text);
		else
			rc = file_read_fd(STDIN_FILENO, "standard input", TOKENIZER_TEXT_MAX, &text, &err);
	}
	if (!rc)
		rc = tokenizer_encode(s.tok, text.p, text.n,
		                      (o.tokenize.special ? TOKENIZE_SPECIAL : 0u) |
		                              (o.tokenize.around ? TOKENIZE_AROUND : 0u),
		                      &ids, &err);
	if (!rc && o.tokenize.pieces)
		print_pieces(s.tok, &ids);
	else if (!rc)
		print_ids(&ids);
	session_close(&s);
	tokens_fini(&ids);
	buf_fini(&text);
	return rc ? cli_fail("tokenize", &err) : 0;
}
