/* tiktoken.c - see tiktoken.h.
 *
 * A line of the file is a token's bytes in base64 and its rank, which is its id.  Special tokens follow the ranks. */
#include "store/hf/tiktoken.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/base64.h"
#include "store/byte_text.h"
#include "store/gguf/gguf_pre.h"

enum { IDS_MAX = 1 << 20, TOKEN_MAX = 1 << 16, RESERVED = 256, NAME_BYTES = 48 };

const char *tiktoken_pattern(const struct json *config, struct err *err)
{
	const char *class = json_str(json_get(config, "tokenizer_class"), NULL);

	if (class && !strcmp(class, "TikTokenTokenizer"))
		return GGUF_PRE_KIMI;
	err_set(err, E_UNSUPPORTED,
	        "tokenizer_class %.60s: how it cuts text stands in its own code; known is TikTokenTokenizer, Kimi's",
	        class ? class : "(none)");
	return NULL;
}

struct line {
	const char *digits; /* NULL: no line has this rank */
	size_t n;
};

struct ranks {
	struct line *line; /* [n] */
	int64_t n;
};

/* The line at *at as digits and a rank, and *at behind it. */
static int take_line(const char **at, const char *end, struct line *l, int64_t *rank)
{
	const char *stop = memchr(*at, '\n', (size_t)(end - *at)), *space;
	int64_t v = 0;

	stop = stop ? stop : end;
	space = memchr(*at, ' ', (size_t)(stop - *at));
	*l = (struct line){ *at, space ? (size_t)(space - *at) : 0 };
	*at = stop < end ? stop + 1 : end;
	if (stop > l->digits && stop[-1] == '\r')
		stop--;
	if (!l->n || space + 1 >= stop)
		return E_FORMAT;
	for (const char *p = space + 1; p < stop; p++) {
		if (*p < '0' || *p > '9' || v > IDS_MAX)
			return E_FORMAT;
		v = 10 * v + (*p - '0');
	}
	*rank = v;
	return 0;
}

static int64_t count_lines(const char *text, size_t n)
{
	int64_t lines = 0;

	for (const char *p = text, *end = text + n; p < end; lines++) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));

		p = stop ? stop + 1 : end;
	}
	return lines;
}

static int read_ranks(struct ranks *r, const char *text, size_t n, struct err *err)
{
	const char *at = text, *end = text + n;

	r->n = count_lines(text, n);
	if (r->n < 1 || r->n > IDS_MAX)
		return err_set(err, E_LIMIT, "%" PRId64 " lines, 1 to %d are read", r->n, IDS_MAX);
	r->line = xcalloc((size_t)r->n, sizeof *r->line);
	for (int64_t i = 0; at < end; i++) {
		struct line l;
		int64_t rank;

		if (take_line(&at, end, &l, &rank))
			return err_set(err, E_FORMAT, "line %" PRId64 ": is not base64, a space and a rank", i + 1);
		if (rank >= r->n || r->line[rank].digits)
			return err_set(err, E_FORMAT,
			               "line %" PRId64 ": rank %" PRId64 " is beyond the %" PRId64
			               " lines, or there twice",
			               i + 1, rank, r->n);
		r->line[rank] = l;
	}
	return 0;
}

/* ---- writing ---- */

static void put_added(struct buf *out, int64_t id, const struct json *token)
{
	size_t n;
	const char *text = json_str(json_get(token, "content"), &n);
	bool special = true;
	char name[NAME_BYTES];

	if (json_to_bool(json_get(token, "special"), &special))
		special = true;
	if (!text || !n) {
		n = (size_t)snprintf(name, sizeof name, "<|reserved_token_%" PRId64 "|>", id);
		text = name;
	}
	buf_printf(out, "%s{\"id\":%" PRId64 ",\"content\":", out->p[out->n - 1] == '[' ? "" : ",", id);
	json_put_str(out, text, n);
	buf_printf(out, ",\"special\":%s,\"normalized\":false}", special ? "true" : "false");
}

static int put_specials(struct buf *out, int64_t first, const struct json *config, struct err *err)
{
	const struct json *decoder = json_get(config, "added_tokens_decoder"), *token;
	const struct json *of[RESERVED] = { NULL };
	struct json_cursor c;
	const char *key;

	for (c = json_first(decoder); json_next(&c, &key, &token);) {
		char *end;
		long long id = strtoll(key, &end, 10);

		if (*end || end == key || id < first || id >= first + RESERVED)
			return err_set(err, E_FORMAT,
			               "added_tokens_decoder: %.40s is none of the %d ids from %" PRId64 " on", key,
			               RESERVED, first);
		of[id - first] = token;
	}
	buf_puts(out, "{\"added_tokens\":[");
	for (int i = 0; i < RESERVED; i++)
		put_added(out, first + i, of[i]);
	buf_putc(out, ']');
	return 0;
}

static int put_vocab(struct buf *out, const struct ranks *r, struct err *err)
{
	uint8_t *room = xmalloc(3 * (TOKEN_MAX + 3) / 4);
	int code = 0;

	buf_puts(out, ",\"model\":{\"type\":\"ScoredBPE\",\"vocab\":[");
	for (int64_t i = 0; i < r->n && !code; i++) {
		size_t bad;
		int64_t n = r->line[i].n > TOKEN_MAX ? -1 : base64_decode(room, r->line[i].digits, r->line[i].n, &bad);

		if (n < 1)
			code = err_set(err, E_FORMAT, "rank %" PRId64 ": its %zu digits are not base64 of a token", i,
			               r->line[i].n);
		buf_puts(out, i ? ",[\"" : "[\"");
		for (int64_t k = 0; k < n; k++)
			byte_text_put(out, room[k]);
		buf_printf(out, "\",-%" PRId64 "]", i);
	}
	buf_puts(out, "]}}");
	free(room);
	return code;
}

int tiktoken_tokenizer(const char *text, size_t n, const char *pattern, const struct json *config, struct buf *out,
                       struct err *err)
{
	struct ranks r = { NULL };
	int code = read_ranks(&r, text, n, err);

	if (!code)
		code = put_specials(out, r.n, config, err);
	if (!code) {
		buf_puts(out, ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
		              "\"pattern\":{\"Regex\":");
		json_put_cstr(out, pattern);
		buf_puts(out, "},\"behavior\":\"Isolated\",\"invert\":false},"
		              "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
		              "\"decoder\":{\"type\":\"ByteLevel\"}");
		code = put_vocab(out, &r, err);
	}
	free(r.line);
	return code;
}
