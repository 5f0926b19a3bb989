/* gguf_tokens.c - tokenizer.json from metadata.
 *
 * The text is one that Hugging Face's library would read, but for two kinds of
 * model that it does not have: "ScoredBPE" (SentencePiece's pairs, joined by the
 * score of what they give) and "Longest" (RWKV's greedy match). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "store/byte_text.h"
#include "store/gguf/gguf_conf.h"
#include "store/gguf/gguf_pre.h"
#include "store/gguf/gguf_vocab.h"

#define SPACE "\xE2\x96\x81" /* what SentencePiece writes for one */

struct writer {
	struct gguf_vocab v;
	struct buf *out;
	struct err *err;
	int code;
};

/* ---- keys ---- */

static bool key_bool(struct writer *w, const char *key, bool dflt)
{
	const struct gguf_value *v = gguf_find(w->v.g, key);
	bool out = dflt;

	if (v && !w->code)
		w->code = gguf_bool(w->v.g, v, 0, &out, w->err);
	return out;
}

static int32_t key_id(struct writer *w, const char *key)
{
	int32_t id = -1;

	if (!w->code)
		w->code = gguf_vocab_id(&w->v, key, &id, w->err);
	return id;
}

static struct gguf_string key_string(const struct writer *w, const char *key)
{
	const struct gguf_value *v = gguf_find(w->v.g, key);
	const uint8_t *at = v ? v->p : NULL;

	return v && v->kind == GGUF_STRING && !v->array ? gguf_next(&at) : (struct gguf_string){ "", 0 };
}

static bool is(struct gguf_string s, const char *text)
{
	return s.n == strlen(text) && !memcmp(s.p, text, s.n);
}

/* ---- the vocabulary ---- */

/* JSON holds UTF-8; text of a token that is none cannot be handed on. */
static void put_text(struct writer *w, int32_t id)
{
	struct gguf_string s = w->v.tok[id];
	size_t bad = utf8_valid(s.p, s.n);

	if (bad < s.n && !w->code)
		w->code = err_set(w->err, E_UNSUPPORTED,
		                  "%s: key tokenizer.ggml.tokens: token %" PRId32 " is not UTF-8 at byte "
		                  "%zu",
		                  w->v.g->path, id, bad);
	json_put_str(w->out, s.p, s.n);
}

/* [["text", score] ...] by id. */
static void put_list(struct writer *w)
{
	buf_puts(w->out, "\"vocab\":[");
	for (size_t i = 0; i < w->v.n && !w->code; i++) {
		buf_puts(w->out, i ? ",[" : "[");
		put_text(w, (int32_t)i);
		/* All digits: sums of scores are compared in double. */
		buf_printf(w->out, ",%.17g]", w->v.score ? (double)w->v.score[i] : 0);
	}
	buf_putc(w->out, ']');
}

static void put_scored(struct writer *w)
{
	if (!w->v.score && !w->code)
		w->code = err_set(w->err, E_MISSING, "%s: key tokenizer.ggml.scores: missing", w->v.g->path);
	put_list(w);
}

static bool has_zero_bytes(const struct gguf_vocab *v)
{
	for (size_t i = 0; i < v->n; i++)
		if (memchr(v->tok[i].p, 0, v->tok[i].n))
			return true;
	return false;
}

/* {"text": id ...}, unless a text holds a byte that no member's name can. */
static void put_vocab(struct writer *w)
{
	if (has_zero_bytes(&w->v)) {
		put_list(w);
		return;
	}
	buf_puts(w->out, "\"vocab\":{");
	for (size_t i = 0; i < w->v.n && !w->code; i++) {
		buf_puts(w->out, i ? "," : "");
		put_text(w, (int32_t)i);
		buf_printf(w->out, ":%zu", i);
	}
	buf_putc(w->out, '}');
}

/* A merge is two texts with a space between, the first one behind byte 0. */
static void put_merges(struct writer *w)
{
	const struct gguf_value *v = gguf_find(w->v.g, "tokenizer.ggml.merges");
	const uint8_t *at;

	if (!w->code && (!v || !v->array || v->kind != GGUF_STRING))
		w->code = err_set(w->err, E_MISSING, "%s: key tokenizer.ggml.merges: %s", w->v.g->path,
		                  v ? "is not a list of strings" : "missing");
	buf_puts(w->out, "\"merges\":[");
	at = v ? v->p : NULL;
	for (uint64_t i = 0; !w->code && i < v->n; i++) {
		struct gguf_string s = gguf_next(&at);
		const char *cut = s.n > 1 ? memchr(s.p + 1, ' ', s.n - 1) : NULL;

		if (!cut || utf8_valid(s.p, s.n) < s.n) {
			w->code = err_set(w->err, E_FORMAT,
			                  "%s: key tokenizer.ggml.merges: number %" PRIu64 " is not two texts",
			                  w->v.g->path, i);
			break;
		}
		buf_puts(w->out, i ? ",[" : "[");
		json_put_str(w->out, s.p, (size_t)(cut - s.p));
		buf_putc(w->out, ',');
		json_put_str(w->out, cut + 1, s.n - (size_t)(cut + 1 - s.p));
		buf_putc(w->out, ']');
	}
	buf_putc(w->out, ']');
}

/* Tokens that are found in the text itself.  Those of the user are always, the others where special text is read. */
static void put_added(struct writer *w)
{
	bool first = true, gemma = is(key_string(w, "tokenizer.ggml.model"), "gemma4");

	buf_puts(w->out, "\"added_tokens\":[");
	for (size_t i = 0; i < w->v.n && !w->code; i++) {
		int type = w->v.type[i];

		if (gemma && type == GGUF_USER && gguf_printed_mark(w->v.tok[i].p, w->v.tok[i].n))
			type = GGUF_CONTROL;
		if (!w->v.tok[i].n || (type != GGUF_CONTROL && type != GGUF_USER && type != GGUF_UNKNOWN))
			continue;
		buf_printf(w->out, "%s{\"id\":%zu,\"content\":", first ? "" : ",", i);
		put_text(w, (int32_t)i);
		buf_printf(w->out, ",\"special\":%s,\"normalized\":false}", type == GGUF_USER ? "false" : "true");
		first = false;
	}
	buf_putc(w->out, ']');
}

static void put_around(struct writer *w, int32_t id)
{
	buf_puts(w->out, "{\"SpecialToken\":{\"id\":");
	put_text(w, id);
	buf_puts(w->out, ",\"type_id\":0}}");
}

/* How two texts are joined: not at all, or with the token behind the first one once or twice. */
enum pairs { NO_PAIRS, JOINED_BY_ONE, JOINED_BY_TWO };

static void put_pairs(struct writer *w, int32_t before, int32_t behind, enum pairs pairs)
{
	buf_printf(w->out, "\"post_processor\":{\"type\":\"%sProcessing\",\"cls\":[",
	           pairs == JOINED_BY_TWO ? "Roberta" : "Bert");
	put_text(w, before);
	buf_printf(w->out, ",%" PRId32 "],\"sep\":[", before);
	put_text(w, behind);
	buf_printf(w->out, ",%" PRId32 "]},", behind);
}

/* Writes the post-processor that adds a token before and one behind a text; -1: none. */
static void put_post(struct writer *w, int32_t before, int32_t behind, enum pairs pairs)
{
	int32_t id[] = { before, behind };
	bool first = true;

	if (before < 0 && behind < 0)
		return;
	if (pairs && before >= 0 && behind >= 0) {
		put_pairs(w, before, behind, pairs);
		return;
	}
	buf_puts(w->out, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
	if (before >= 0) {
		put_around(w, before);
		buf_putc(w->out, ',');
	}
	buf_puts(w->out, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
	if (behind >= 0) {
		buf_putc(w->out, ',');
		put_around(w, behind);
	}
	buf_puts(w->out, "],\"special_tokens\":{");
	for (int i = 0; i < 2; i++) {
		if (id[i] < 0 || (i && before == behind))
			continue;
		buf_puts(w->out, first ? "" : ",");
		put_text(w, id[i]);
		buf_printf(w->out, ":{\"ids\":[%" PRId32 "]}", id[i]);
		first = false;
	}
	buf_puts(w->out, "}},");
}

static void put_ends(struct writer *w, bool bos, bool eos, enum pairs pairs)
{
	int32_t before = key_bool(w, "tokenizer.ggml.add_bos_token", bos) ? key_id(w, "bos_token_id") : -1;
	int32_t behind = key_bool(w, "tokenizer.ggml.add_eos_token", eos) ? key_id(w, "eos_token_id") : -1;

	put_post(w, before, behind, pairs);
}

/* ---- byte-level pairs ---- */

static const struct gguf_pre *pre_of(struct writer *w)
{
	struct gguf_string name = key_string(w, "tokenizer.ggml.pre");
	const struct gguf_pre *pre = gguf_pre_find(name.p, (int)name.n);

	if (pre)
		return pre;
	log_warn(
		"%s: tokenizer.ggml.pre \"%.*s\" is not known: text is cut as by \"default\", and some of it will have other "
		"tokens than the model was trained with",
		w->v.g->path, name.n < 60 ? (int)name.n : 60, name.p);
	return gguf_pre_find("default", 7);
}

static void put_byte_level(struct writer *w)
{
	const struct gguf_pre *pre = pre_of(w);
	struct gguf_string arch = key_string(w, "general.architecture");

	put_ends(w, pre->bos, false,
	         is(arch, "modern-bert") ? JOINED_BY_ONE :
	         is(arch, "bert")        ? JOINED_BY_TWO :
	                                   NO_PAIRS);
	buf_puts(w->out, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
	for (int i = 0; i < GGUF_PRE_STEPS && pre->step[i]; i++) {
		buf_puts(w->out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
		json_put_cstr(w->out, pre->step[i]);
		buf_puts(w->out, "},\"behavior\":\"Isolated\",\"invert\":false},");
	}
	buf_puts(w->out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
	                 "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",");
	buf_printf(w->out, "\"ignore_merges\":%s,", pre->whole_first ? "true" : "false");
	put_vocab(w);
	buf_putc(w->out, ',');
	put_merges(w);
	buf_putc(w->out, '}');
}

/* ---- SentencePiece ---- */

static void put_prepend(struct writer *w, const char *type)
{
	buf_printf(w->out, "{\"type\":\"%s\",\"prepend\":\"" SPACE "\"},", type);
}

static void put_space_replaced(struct writer *w)
{
	buf_puts(w->out, "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE "\"}");
}

/* strip: the space that was put before a text. */
static void put_space_decoder(struct writer *w, bool strip)
{
	buf_puts(
		w->out,
		"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" SPACE
		"\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}");
	if (strip)
		buf_puts(w->out, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
	buf_puts(w->out, "]},");
}

static void put_unknown(struct writer *w)
{
	int32_t id = key_id(w, "unknown_token_id");

	if (id >= 0)
		buf_printf(w->out, "\"unk_id\":%" PRId32 ",", id);
}

static void put_sentencepiece(struct writer *w)
{
	bool space = key_bool(w, "tokenizer.ggml.add_space_prefix", true);

	put_ends(w, true, false, NO_PAIRS);
	buf_puts(w->out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
	if (space)
		put_prepend(w, "Prepend");
	put_space_replaced(w);
	buf_puts(w->out, "]},");
	put_space_decoder(w, space);
	buf_puts(w->out, "\"model\":{\"type\":\"ScoredBPE\",\"byte_fallback\":true,");
	put_unknown(w);
	put_scored(w);
	buf_putc(w->out, '}');
}

/* Pairs of characters; words are cut at ends of lines alone. */
static void put_gemma4(struct writer *w)
{
	put_ends(w, true, false, NO_PAIRS);
	buf_puts(w->out, "\"normalizer\":");
	put_space_replaced(w);
	buf_puts(w->out, ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^\\\\n]+|\\\\n+\"},"
	                 "\"behavior\":\"Isolated\",\"invert\":false},");
	put_space_decoder(w, false);
	buf_puts(w->out, "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,");
	put_unknown(w);
	put_vocab(w);
	buf_putc(w->out, ',');
	put_merges(w);
	buf_putc(w->out, '}');
}

/* u8[] as base64. */
static void put_charsmap(struct writer *w)
{
	const struct gguf_value *v = gguf_find(w->v.g, "tokenizer.ggml.precompiled_charsmap");

	if (!v || !v->array || (v->kind != GGUF_U8 && v->kind != GGUF_I8) || !v->n)
		return;
	buf_puts(w->out, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
	base64_put(w->out, v->p, v->n);
	buf_puts(w->out, "\"},");
}

static void put_unigram(struct writer *w)
{
	bool space = key_bool(w, "tokenizer.ggml.add_space_prefix", true);

	put_ends(w, false, true, JOINED_BY_TWO);
	buf_puts(w->out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
	put_charsmap(w);
	if (key_bool(w, "tokenizer.ggml.remove_extra_whitespaces", false))
		/* Spaces only: ends of lines that the charsmap leaves are text. */
		buf_puts(
			w->out,
			"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(?<![\\\\s\\\\S]) +| +(?![\\\\s\\\\S])\"},\"content\":\"\"},"
			"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"},");
	if (space)
		put_prepend(w, "PrependWord");
	put_space_replaced(w);
	buf_puts(w->out, "]},");
	put_space_decoder(w, space);
	buf_puts(w->out, "\"model\":{\"type\":\"Unigram\",");
	put_unknown(w);
	put_scored(w);
	buf_putc(w->out, '}');
}

/* ---- words ---- */

/* The file marks what begins a word; Hugging Face what does not. */
static void put_word(struct writer *w, int32_t id)
{
	struct gguf_string s = w->v.tok[id];
	bool begins = s.n > strlen(SPACE) && !memcmp(s.p, SPACE, strlen(SPACE));

	if (begins)
		s = (struct gguf_string){ s.p + strlen(SPACE), s.n - strlen(SPACE) };
	buf_puts(w->out, begins || w->v.type[id] != GGUF_NORMAL ? "\"" : "\"##");
	json_put_inside(w->out, s.p, s.n);
	buf_printf(w->out, "\":%" PRId32, id);
}

static void put_wordpiece(struct writer *w)
{
	int32_t unknown = key_id(w, "unknown_token_id");

	put_post(w, key_bool(w, "tokenizer.ggml.add_bos_token", true) ? key_id(w, "bos_token_id") : -1,
	         key_bool(w, "tokenizer.ggml.add_eos_token", true) ? key_id(w, "seperator_token_id") : -1,
	         JOINED_BY_ONE);
	buf_puts(
		w->out,
		"\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"Replace\",\"pattern\":"
		"{\"Regex\":\"\\\\p{M}+\"},\"content\":\"\"},{\"type\":\"BertNormalizer\",\"strip_accents\":false}]},"
		"\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\",\"cleanup\":false},"
		"\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":1000000,");
	if (unknown >= 0)
		buf_printf(w->out, "\"unk_id\":%" PRId32 ",", unknown);
	buf_puts(w->out, "\"vocab\":{");
	for (size_t i = 0; i < w->v.n && !w->code; i++) {
		buf_puts(w->out, i ? "," : "");
		put_word(w, (int32_t)i);
	}
	buf_puts(w->out, "}}");
}

/* ---- the longest match ---- */

/* One byte of a token's text, in which some are escaped; moves *at behind it. */
static uint8_t unescaped(struct gguf_string s, size_t *at)
{
	static const char letters[] = "tnr\\'\"", bytes[] = "\t\n\r\\'\"";
	char c = s.p[(*at)++];
	const char *known;

	if (c != '\\' || *at == s.n)
		return (uint8_t)c;
	c = s.p[(*at)++];
	if (c == 'x' && s.n - *at >= 2) {
		char hex[3] = { s.p[*at], s.p[*at + 1], 0 };

		*at += 2;
		return (uint8_t)strtoul(hex, NULL, 16);
	}
	known = c ? strchr(letters, c) : NULL;
	return (uint8_t)(known ? bytes[known - letters] : c);
}

static void put_longest(struct writer *w)
{
	put_ends(w, false, false, NO_PAIRS);
	buf_puts(w->out, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
	                 "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"Longest\",\"vocab\":{");
	for (size_t i = 0; i < w->v.n && !w->code; i++) {
		buf_puts(w->out, i ? ",\"" : "\"");
		for (size_t at = 0; at < w->v.tok[i].n;)
			byte_text_put(w->out, unescaped(w->v.tok[i], &at));
		buf_printf(w->out, "\":%zu", i);
	}
	buf_puts(w->out, "}}");
}

/* ---- the document ---- */

static const struct {
	const char *model;
	void (*put)(struct writer *w);
} kinds[] = {
	{ "gpt2", put_byte_level }, { "llama", put_sentencepiece }, { "gemma4", put_gemma4 },
	{ "t5", put_unigram },      { "bert", put_wordpiece },      { "rwkv", put_longest },
};

int gguf_tokenizer(const struct gguf_model *m, struct buf *out, struct err *err)
{
	struct writer w = { .out = out, .err = err };
	struct gguf_string model;
	size_t k = 0;

	if ((w.code = gguf_vocab_read(&w.v, m, err)))
		return w.code;
	model = key_string(&w, "tokenizer.ggml.model");
	while (k < sizeof kinds / sizeof *kinds && !is(model, kinds[k].model))
		k++;
	if (k == sizeof kinds / sizeof *kinds) {
		w.code = err_set(err, E_UNSUPPORTED, "%s: key tokenizer.ggml.model: \"%.*s\" is not done", w.v.g->path,
		                 model.n < 60 ? (int)model.n : 60, model.p);
	} else {
		buf_putc(out, '{');
		put_added(&w);
		buf_putc(out, ',');
		kinds[k].put(&w);
		buf_putc(out, '}');
	}
	gguf_vocab_free(&w.v);
	return w.code;
}
