/* gguf_settings.c - tokenizer_config.json, generation_config.json and stop tokens from metadata.
 *
 * GGUF has no list of the tokens that end an answer: they are those that the
 * metadata names as an end of text, of turn or of message, and every token that is
 * known by its text to be one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "store/gguf/gguf_conf.h"
#include "store/gguf/gguf_vocab.h"

static const char *const stop_keys[] = { "eos_token_id",     "eot_token_id",     "eom_token_id",
	                                 "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id" };

static const char *const stop_texts[] = {
	"<|eot_id|>",
	"<|im_end|>",
	"<|end|>",
	"<|return|>",
	"<|call|>",
	"<|flush|>",
	"<|calls|>",
	"<end_of_turn>",
	"<|endoftext|>",
	"</s>",
	"<|eom_id|>",
	"<EOT>",
	"_<EOT>",
	"[EOT]",
	"[EOS]",
	"<|end_of_text|>",
	"<end_of_utterance>",
	"<eos>",
	"<turn|>",
	"<|tool_response>",
	"<｜end▁of▁sentence｜>",
	"[e~[",
};

static int32_t find_token(const struct gguf_vocab *v, const char *text)
{
	return gguf_vocab_find(v, text, strlen(text));
}

static void put_stop(int32_t *id, int *n, int32_t stop)
{
	for (int i = 0; i < *n; i++)
		if (id[i] == stop)
			return;
	if (stop >= 0 && *n < GGUF_STOPS)
		id[(*n)++] = stop;
}

/* Texts that end an answer elsewhere, and not with those of gpt-oss and Gemma 4. */
static bool goes_on(const struct gguf_vocab *v, const char *text)
{
	if (!strcmp(text, "<|end|>"))
		return find_token(v, "<|return|>") >= 0 && find_token(v, "<|call|>") >= 0;
	return !strcmp(text, "</s>") && find_token(v, "<|tool_response>") >= 0;
}

int gguf_stops(const struct gguf_model *m, int32_t *id, int *n, struct err *err)
{
	struct gguf_vocab v;
	int32_t stop;
	int code = gguf_vocab_read(&v, m, err);

	*n = 0;
	if (code)
		return code == E_MISSING ? 0 : code;
	for (size_t i = 0; i < sizeof stop_keys / sizeof *stop_keys && !code; i++)
		if (!(code = gguf_vocab_id(&v, stop_keys[i], &stop, err)))
			put_stop(id, n, stop);
	for (size_t i = 0; i < sizeof stop_texts / sizeof *stop_texts; i++)
		if (!goes_on(&v, stop_texts[i]))
			put_stop(id, n, find_token(&v, stop_texts[i]));
	gguf_vocab_free(&v);
	return code;
}

/* ---- tokenizer_config.json ---- */

static int put_special(struct gguf_conf *c, const struct gguf_vocab *v, const char *member, const char *key)
{
	int32_t id;
	int code = gguf_vocab_id(v, key, &id, c->err);

	if (code || id < 0)
		return code;
	gguf_put_name(c, member);
	json_put_str(c->out, v->tok[id].p, v->tok[id].n);
	return 0;
}

static int put_specials(struct gguf_conf *c, struct err *err)
{
	static const struct {
		const char *member, *key;
	} special[] = {
		{ "bos_token", "bos_token_id" },
		{ "eos_token", "eos_token_id" },
		{ "unk_token", "unknown_token_id" },
		{ "pad_token", "padding_token_id" },
	};
	struct gguf_vocab v;
	int code = gguf_vocab_read(&v, c->m, err);

	if (code)
		return code == E_MISSING ? 0 : code;
	for (size_t i = 0; i < sizeof special / sizeof *special && !code; i++)
		code = put_special(c, &v, special[i].member, special[i].key);
	gguf_vocab_free(&v);
	return code;
}

/* The text under the key; false: there is none. */
static bool text_of(const struct gguf *g, const char *key, struct gguf_string *out)
{
	const struct gguf_value *v = gguf_find(g, key);
	const uint8_t *at;

	if (!v || v->kind != GGUF_STRING || v->array)
		return false;
	at = v->p;
	*out = gguf_next(&at);
	return true;
}

static void put_template(struct buf *out, const char *name, size_t n, struct gguf_string text)
{
	buf_puts(out, "{\"name\":");
	json_put_str(out, name, n);
	buf_puts(out, ",\"template\":");
	json_put_str(out, text.p, text.n);
	buf_putc(out, '}');
}

/* The default template, and as Hugging Face's list those that have names, whether or not tokenizer.chat_templates lists
 * them. */
static void put_templates(struct gguf_conf *c)
{
	static const char own[] = "tokenizer.chat_template", prefix[] = "tokenizer.chat_template.";
	const size_t n_prefix = sizeof prefix - 1;
	const struct gguf *g = &c->m->part[0];
	struct gguf_string text, own_text;
	bool has_own = text_of(g, own, &own_text);
	struct buf list;

	buf_init(&list);
	for (size_t i = 0; i < g->n_kv; i++) {
		const char *key = g->kv[i].key;

		if (strncmp(key, prefix, n_prefix) || !text_of(g, key, &text))
			continue;
		buf_putc(&list, list.n ? ',' : '[');
		put_template(&list, key + n_prefix, strlen(key + n_prefix), text);
	}
	if (list.n || has_own)
		gguf_put_name(c, "chat_template");
	if (list.n) {
		if (has_own) {
			buf_putc(&list, ',');
			put_template(&list, "default", 7, own_text);
		}
		buf_putc(&list, ']');
		buf_put(c->out, list.p, list.n);
	} else if (has_own) {
		json_put_str(c->out, own_text.p, own_text.n);
	}
	buf_fini(&list);
}

int gguf_tokenizer_config(const struct gguf_model *m, struct buf *out, struct err *err)
{
	struct gguf_conf c = { .m = m, .out = out, .err = err };
	int code;

	buf_putc(out, '{');
	code = put_specials(&c, err);
	put_templates(&c);
	buf_putc(out, '}');
	return code;
}

/* ---- generation_config.json ---- */

static void put_suppressed(struct gguf_conf *c, const struct gguf_value *list)
{
	int64_t id = 0;

	if (c->code || !list || !list->array || !list->n)
		return;
	gguf_put_name(c, "suppress_tokens");
	for (uint64_t i = 0; i < list->n && !c->code; i++) {
		c->code = gguf_int(&c->m->part[0], list, i, &id, c->err);
		buf_printf(c->out, "%c%" PRId64, i ? ',' : '[', id);
	}
	buf_putc(c->out, ']');
}

/* The author's suggestions for sampling: only those members that the metadata names. */
int gguf_generation_config(const struct gguf_model *m, struct buf *out, struct err *err)
{
	static const struct {
		const char *member, *key;
		bool whole;
	} sampling[] = {
		{ "temperature", "general.sampling.temp", false },
		{ "top_k", "general.sampling.top_k", true },
		{ "top_p", "general.sampling.top_p", false },
		{ "min_p", "general.sampling.min_p", false },
		{ "repetition_penalty", "general.sampling.penalty_repeat", false },
	};
	const struct gguf *g = &m->part[0];
	struct gguf_conf c = { .m = m, .out = out, .err = err };
	double v = 0;

	buf_putc(out, '{');
	for (size_t i = 0; i < sizeof sampling / sizeof *sampling && !c.code; i++) {
		const struct gguf_value *a = gguf_find(g, sampling[i].key);

		if (!a || (c.code = gguf_float(g, a, 0, &v, err)))
			continue;
		if (sampling[i].whole)
			gguf_put_int(&c, sampling[i].member, v > -1e9 && v < 1e9 ? (int64_t)v : 0);
		else
			gguf_put_float(&c, sampling[i].member, v);
	}
	put_suppressed(&c, gguf_find(g, "tokenizer.ggml.suppress_tokens"));
	buf_putc(out, '}');
	return c.code;
}
