/* tekken.c - see tekken.h.
 *
 * The file has an expression that cuts text, the bytes of each token in base64 with
 * a rank, and the texts of special tokens.  Ids are the special tokens' ranks, then
 * the others' ranks after them.  Two neighbours are joined if together they are a
 * token, those of the lowest rank first; ordinary text never becomes a special
 * token, and may spell one all the same. */
#include "store/hf/tekken.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/base64.h"
#include "base/json.h"
#include "store/byte_text.h"

enum {
	IDS_MAX = 1 << 20,    /* as of any tokenizer */
	TOKEN_MAX = 1 << 16,  /* base64 digits of one token */
	SPECIAL_MAX = 1 << 16 /* special tokens */
};

/* Special tokens of files from before v7, which do not list them. */
static const char *const old_special[] = {
	"<unk>",
	"<s>",
	"</s>",
	"[INST]",
	"[/INST]",
	"[AVAILABLE_TOOLS]",
	"[/AVAILABLE_TOOLS]",
	"[TOOL_RESULTS]",
	"[/TOOL_RESULTS]",
	"[TOOL_CALLS]",
	"[IMG]",
	"<pad>",
	"[IMG_BREAK]",
	"[IMG_END]",
	"[PREFIX]",
	"[MIDDLE]",
	"[SUFFIX]",
	"[SYSTEM_PROMPT]",
	"[/SYSTEM_PROMPT]",
	"[TOOL_CONTENT]",
};
enum { OLD_SPECIAL = sizeof(old_special) / sizeof(*old_special) };

struct special {
	const char *text; /* NULL: none has this rank */
	size_t n;
	bool control;
};

struct tekken {
	struct json *root;
	const char *pattern;
	int64_t n_special, n_plain;
	struct special *special;   /* [n_special] by rank; those that are not named have no text */
	const struct json **plain; /* [n_plain] base64 by rank */
};

/* ---- reading ---- */

static int read_config(struct tekken *k, struct err *err)
{
	const struct json *config = json_get(k->root, "config");
	int64_t all;
	int e;

	if ((e = json_get_str(config, "pattern", NULL, &k->pattern, err)) ||
	    (e = json_get_int(config, "default_vocab_size", -1, &all, err)) ||
	    (e = json_get_int(config, "default_num_special_tokens", -1, &k->n_special, err)))
		return err_prefix(err, "config");
	if (!k->pattern)
		return err_set(err, E_FORMAT, "config pattern: missing");
	if (all < 1 || all > IDS_MAX)
		return err_set(err, E_LIMIT, "config default_vocab_size: %" PRId64 " is outside [1, %d]", all, IDS_MAX);
	if (k->n_special < 0 || k->n_special > SPECIAL_MAX || k->n_special >= all)
		return err_set(err, E_LIMIT,
		               "config default_num_special_tokens: %" PRId64
		               " is outside [0, %d], or not below the %" PRId64 " of default_vocab_size",
		               k->n_special, SPECIAL_MAX, all);
	k->n_plain = all - k->n_special;
	return 0;
}

static int read_special(struct tekken *k, struct err *err)
{
	const struct json *list = json_get(k->root, "special_tokens");
	size_t n = json_kind(list) == JSON_NULL ? OLD_SPECIAL : json_len(list);

	if (json_kind(list) != JSON_ARRAY && json_kind(list) != JSON_NULL)
		return err_set(err, E_FORMAT, "special_tokens: must be an array, is %s",
		               json_kind_name(json_kind(list)));
	if (n > (size_t)k->n_special)
		return err_set(err, E_FORMAT,
		               "special_tokens: %zu, more than the %" PRId64 " of default_num_special_tokens", n,
		               k->n_special);
	k->special = xcalloc((size_t)k->n_special + 1, sizeof(*k->special));
	for (size_t i = 0; i < n; i++) {
		struct special s = { old_special[i % OLD_SPECIAL], 0, true };
		const struct json *j = json_at(list, i);
		int64_t rank = (int64_t)i;
		int e;

		if (list && json_kind(list) == JSON_ARRAY) {
			s.text = json_str(json_get(j, "token_str"), &s.n);
			if (!s.text || !s.n)
				return err_set(err, E_FORMAT, "special_tokens[%zu] token_str: is not text", i);
			if ((e = json_get_int(j, "rank", rank, &rank, err)) ||
			    (e = json_get_bool(j, "is_control", true, &s.control, err)))
				return err_prefix(err, "special_tokens[%zu]", i);
		} else {
			s.n = strlen(s.text);
		}
		if (rank < 0 || rank >= k->n_special || k->special[rank].text)
			return err_set(err, E_FORMAT,
			               "special_tokens[%zu] rank: %" PRId64 " is outside [0, %" PRId64
			               "), or there twice",
			               i, rank, k->n_special);
		k->special[rank] = s;
	}
	return 0;
}

static int read_plain(struct tekken *k, struct err *err)
{
	const struct json *list = json_get(k->root, "vocab");

	if (json_kind(list) != JSON_ARRAY)
		return err_set(err, E_FORMAT, "vocab: must be an array, is %s", json_kind_name(json_kind(list)));
	k->plain = xcalloc((size_t)k->n_plain, sizeof(*k->plain));
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *j = json_at(list, i);
		int64_t rank;
		int e = json_get_int(j, "rank", -1, &rank, err);

		if (e)
			return err_prefix(err, "vocab[%zu]", i);
		if (rank >= k->n_plain)
			continue; /* beyond the vocabulary's size */
		if (rank < 0 || k->plain[rank])
			return err_set(err, E_FORMAT, "vocab[%zu] rank: %" PRId64 " is negative, or there twice", i,
			               rank);
		k->plain[rank] = json_get(j, "token_bytes");
	}
	for (int64_t r = 0; r < k->n_plain; r++)
		if (json_kind(k->plain[r]) != JSON_STRING)
			return err_set(err, E_FORMAT, "vocab: rank %" PRId64 " of %" PRId64 " has no token_bytes", r,
			               k->n_plain);
	return 0;
}

static void tekken_close(struct tekken *k)
{
	json_free(k->root);
	free(k->special);
	free(k->plain);
}

static int tekken_open(struct tekken *k, const char *text, size_t n, struct err *err)
{
	int e = 0;

	*k = (struct tekken){ .root = json_parse(text, n, 0, err) };
	if (!k->root)
		return err ? err->code : E_FORMAT;
	if ((e = read_config(k, err)) || (e = read_special(k, err)) || (e = read_plain(k, err)))
		tekken_close(k);
	return e;
}

static int64_t find_special(const struct tekken *k, const char *text)
{
	for (int64_t i = 0; i < k->n_special; i++)
		if (k->special[i].text && k->special[i].n == strlen(text) &&
		    !memcmp(k->special[i].text, text, k->special[i].n))
			return i;
	return -1;
}

/* ---- writing ---- */

static void put_added(const struct tekken *k, struct buf *out)
{
	buf_puts(out, "\"added_tokens\":[");
	for (int64_t i = 0; i < k->n_special; i++) {
		const struct special *s = &k->special[i];

		buf_printf(out, "%s{\"id\":%" PRId64 ",\"content\":", i ? "," : "", i);
		if (s->text)
			json_put_str(out, s->text, s->n);
		else
			buf_printf(out, "\"<SPECIAL_%" PRId64 ">\"", i);
		buf_printf(out, ",\"special\":%s,\"normalized\":false}", s->text && !s->control ? "false" : "true");
	}
	buf_putc(out, ']');
}

static void put_begin(const struct tekken *k, struct buf *out)
{
	int64_t bos = find_special(k, "<s>");

	if (bos >= 0)
		buf_printf(
			out,
			",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
			"\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":"
			"{\"ids\":[%" PRId64 "]}}}",
			bos);
}

static int put_token(const struct tekken *k, int64_t rank, uint8_t *room, struct buf *out, struct err *err)
{
	size_t n, bad;
	const char *digits = json_str(k->plain[rank], &n);
	int64_t len = n > TOKEN_MAX ? -1 : base64_decode(room, digits, n, &bad);

	if (len < 1)
		return err_set(err, E_FORMAT, "vocab: token_bytes of rank %" PRId64 ", %zu digits, %s", rank, n,
		               n > TOKEN_MAX ? "are too many" :
		               len           ? "are not base64" :
		                               "are not bytes");
	buf_puts(out, ",[\"");
	for (int64_t i = 0; i < len; i++)
		byte_text_put(out, room[i]);
	buf_printf(out, "\",-%" PRId64 "]", rank);
	return 0;
}

/* Special tokens have no place in the vocabulary: a null holds their ids. */
static int put_vocab(const struct tekken *k, struct buf *out, struct err *err)
{
	uint8_t *room = xmalloc(3 * (TOKEN_MAX + 3) / 4);
	size_t at;
	int e = 0;

	buf_puts(out, ",\"model\":{\"type\":\"ScoredBPE\",\"vocab\":[");
	at = out->n;
	for (int64_t i = 0; i < k->n_special; i++)
		buf_puts(out, ",null");
	for (int64_t r = 0; r < k->n_plain && !e; r++)
		e = put_token(k, r, room, out, err);
	out->p[at] = ' '; /* in place of the first comma */
	buf_puts(out, "]}}");
	free(room);
	return e;
}

int tekken_tokenizer(const char *text, size_t n, struct buf *out, struct err *err)
{
	struct tekken k;
	int e = tekken_open(&k, text, n, err);

	if (e)
		return e;
	buf_putc(out, '{');
	put_added(&k, out);
	put_begin(&k, out);
	buf_puts(
		out,
		",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":");
	json_put_cstr(out, k.pattern);
	buf_puts(out, "},\"behavior\":\"Isolated\",\"invert\":false},"
	              "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
	              "\"decoder\":{\"type\":\"ByteLevel\"}");
	e = put_vocab(&k, out, err);
	tekken_close(&k);
	return e;
}

int tekken_tokenizer_config(const char *text, size_t n, struct buf *out, struct err *err)
{
	static const char *const role[][2] = {
		{ "bos_token", "<s>" }, { "eos_token", "</s>" }, { "unk_token", "<unk>" }, { "pad_token", "<pad>" }
	};
	struct tekken k;
	int e = tekken_open(&k, text, n, err);
	bool first = true;

	if (e)
		return e;
	buf_putc(out, '{');
	for (size_t i = 0; i < sizeof(role) / sizeof(*role); i++) {
		if (find_special(&k, role[i][1]) < 0)
			continue;
		buf_printf(out, "%s\"%s\":\"%s\"", first ? "" : ",", role[i][0], role[i][1]);
		first = false;
	}
	buf_putc(out, '}');
	tekken_close(&k);
	return 0;
}
