/* gguf_tokens.c - tokenizer.json from metadata.
 *
 * The text is one that Hugging Face's library would read, but for two kinds of
 * model that it does not have: "ScoredBPE" (SentencePiece's pairs, joined by the
 * score of what they give) and "Longest" (RWKV's greedy match). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "store/gguf_conf.h"
#include "store/gguf_pre.h"
#include "store/gguf_vocab.h"

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

/* {"text": id ...} */
static void put_vocab(struct writer *w)
{
	buf_puts(w->out, "\"vocab\":{");
	for (size_t i = 0; i < w->v.n && !w->code; i++) {
		if (memchr(w->v.tok[i].p, 0, w->v.tok[i].n))
			w->code = err_set(w->err, E_UNSUPPORTED,
			                  "%s: key tokenizer.ggml.tokens: token %zu holds a 0 byte", w->v.g->path, i);
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
	bool first = true;

	buf_puts(w->out, "\"added_tokens\":[");
	for (size_t i = 0; i < w->v.n && !w->code; i++) {
		int type = w->v.type[i];

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

/* What goes before and behind a text; -1: nothing. */
static void put_post(struct writer *w, int32_t before, int32_t behind)
{
	int32_t id[] = { before, behind };
	bool first = true;

	if (before < 0 && behind < 0)
		return;
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

static void put_ends(struct writer *w, bool bos, bool eos)
{
	int32_t before = key_bool(w, "tokenizer.ggml.add_bos_token", bos) ? key_id(w, "bos_token_id") : -1;
	int32_t behind = key_bool(w, "tokenizer.ggml.add_eos_token", eos) ? key_id(w, "eos_token_id") : -1;

	put_post(w, before, behind);
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

	put_ends(w, pre->bos, false);
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

/* ---- the document ---- */

static const struct {
	const char *model;
	void (*put)(struct writer *w);
} kinds[] = {
	{ "gpt2", put_byte_level },
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
