/* api_tokens.c - POST /tokenize, /detokenize, /apply-template and vLLM's /render, and GET /props: what
 * a prompt becomes, without an answer.  Names are those of vLLM and llama.cpp, of
 * which either may be used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/utf8.h"
#include "server/chat/chat.h"
#include "server/api/complete.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"
#include "text/calls/dialect.h"

/* Replies are made where the request is read, on a worker: they may be many times as long as it, and the loop
 * serves all clients.  They lie in g->echo until then. */
static void reply_ready(struct exchange *x)
{
	struct generation *g = x->work;

	generation_reply(g, &g->echo);
}

/* The steps of an endpoint whose answer is what prep made. */
#define REPLY_STEPS .ready = reply_ready, .drop = generation_drop, .abandon = generation_abandon, .any_length = true

/* Text that was left in g->echo, under both names that clients look for. */
static void put_text(struct generation *g)
{
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"prompt\":");
	json_put_str(&b, g->echo.p, g->echo.n);
	buf_puts(&b, ",\"content\":");
	json_put_str(&b, g->echo.p, g->echo.n);
	buf_puts(&b, "}\n");
	buf_fini(&g->echo);
	g->echo = b;
}

static void prep(struct exchange *x, void (*put)(struct generation *g))
{
	generation_prep(x);
	if (!x->problem.status)
		put(x->work);
}

/* ---- /tokenize: text, or messages through the template ---- */

/* How tokens are listed: as llama-server has it, {"id", "piece"} each; or as vLLM, next to their ids. */
struct telling {
	bool pieces, strings;
};

static void *telling_new(void)
{
	return xcalloc(1, sizeof(struct telling));
}

/* A token's text, or its bytes where they are not text by themselves; and the end of its object. */
static void put_piece(const struct served *d, int32_t id, struct buf *out)
{
	size_t n = 0;
	const char *p = tokenizer_token_bytes(d->tokenizer, id, &n);

	if (p && utf8_valid(p, n) == n) {
		json_put_str(out, p, n);
	} else {
		buf_putc(out, '[');
		for (size_t i = 0; p && i < n; i++)
			buf_printf(out, "%s%u", i ? "," : "", (unsigned char)p[i]);
		buf_putc(out, ']');
	}
	buf_putc(out, '}');
}

static void put_tokens(struct generation *g)
{
	const struct telling *own = g->own;
	const struct tokens *t = &g->prompts.of[0];
	struct buf *b = &g->echo;

	buf_printf(b, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", t->n, g->served->ctx_max);
	for (size_t i = 0; i < t->n && allowance_spend(1); i++) {
		buf_printf(b, own->pieces ? "%s{\"id\":%d,\"piece\":" : "%s%d", i ? "," : "", t->id[i]);
		if (own->pieces)
			put_piece(g->served, t->id[i], b);
	}
	buf_putc(b, ']');
	if (own->strings) {
		buf_puts(b, ",\"token_strs\":[");
		for (size_t i = 0; i < t->n && allowance_spend(1); i++) {
			if (i)
				buf_putc(b, ',');
			put_token(g->served, t->id[i], b);
		}
		buf_putc(b, ']');
	}
	buf_puts(b, "}\n");
}

static const struct field tokenize_fields[] = { { "with_pieces" }, { "return_token_strs" }, { NULL } };
static const struct field text_fields[] = {
	TAKEN("model", TAKES_STRING), { "prompt" },      { "content" },       { "messages" },
	{ "add_special_tokens" },     { "add_special" }, { "parse_special" }, { NULL },
};
/* A body of either kind may have the other's prompt in it: it is refused below, by name. */
static const struct field either_fields[] = { { "prompt" }, { "content" }, { NULL } };

static int read_text(struct generation *g, const char *name, bool around, struct problem *p)
{
	const struct json *v = json_get(g->body, name);
	bool special = true;
	const char *s;
	size_t n;
	int r;

	if (!(s = json_str(v, &n)))
		return field_wrong(p, name, "a string", v);
	if ((r = field_bool(g->body, "add_special_tokens", &around, p)) ||
	    (r = field_bool(g->body, "add_special", &around, p)) ||
	    (r = field_bool(g->body, "parse_special", &special, p)))
		return r;
	return generation_tokenize(g, 0, s, n, (around ? TOKENIZE_AROUND : 0) | (special ? TOKENIZE_SPECIAL : 0), NULL,
	                           0, p);
}

static int read_chat(struct generation *g, struct problem *p)
{
	struct chat c;
	int r;

	chat_init(&c);
	if (!(r = chat_read(g, &c, p)))
		r = chat_prompt(g, &c, p);
	chat_fini(&c);
	return r;
}

static int read_tokenize(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field *const text[] = { tokenize_fields, text_fields, NULL };
	static const struct field *const chat[] = { tokenize_fields, either_fields, chat_fields,
		                                    form_fields,     params_fields, NULL };
	struct telling *own = g->own;
	bool is_chat;
	int r;

	is_chat = json_kind(json_get(body, "messages")) != JSON_NULL;
	generation_prompts(g, 1);
	if (!(g->body = body_check(body, is_chat ? chat : text, &g->params.warnings, p)))
		return p->status;
	if ((r = model_read(g, g->body, p)) || (r = field_bool(g->body, "with_pieces", &own->pieces, p)) ||
	    (r = field_bool(g->body, "return_token_strs", &own->strings, p)))
		return r;
	if (is_chat + (json_get(g->body, "prompt") != NULL) + (json_get(g->body, "content") != NULL) > 1)
		return problem_set(p, 400, "invalid_value", "prompt",
		                   "prompt, content and messages: one of them is tokenised");
	if (is_chat)
		return read_chat(g, p);
	/* As each of the two has it where the request does not say. */
	if (json_get(g->body, "prompt"))
		return read_text(g, "prompt", true, p);
	if (json_get(g->body, "content"))
		return read_text(g, "content", false, p);
	return problem_set(p, 400, "missing_field", "prompt",
	                   "prompt (or content, or messages) is missing: what is to be tokenised");
}

static void tokenize_prep(struct exchange *x)
{
	prep(x, put_tokens);
}

const struct endpoint tokenize_endpoint = {
	.prep = tokenize_prep,
	REPLY_STEPS,
	.read = read_tokenize,
	.own_new = telling_new,
	.own_free = free,
};

/* ---- /render: the prompt of a chat or a completion, as its answer would begin with ---- */

static void *rendered_own(void)
{
	return completions_endpoint.own_new();
}

static int read_rendered_chat(struct generation *g, struct json *body, struct problem *p)
{
	return chat_endpoint.read(g, body, p);
}

static int read_rendered_text(struct generation *g, struct json *body, struct problem *p)
{
	return completions_endpoint.read(g, body, p);
}

static void put_rendered(struct generation *g, int i)
{
	const struct tokens *t = &g->prompts.of[i];
	struct buf *b = &g->echo;

	buf_printf(b, "{\"request_id\":\"%s%s\",\"model\":", g->endpoint->id_prefix, g->x->id);
	json_put_cstr(b, model_shown(g));
	buf_puts(b, ",\"token_ids\":[");
	for (size_t k = 0; k < t->n && allowance_spend(1); k++)
		buf_printf(b, k ? ",%d" : "%d", t->id[k]);
	buf_puts(b, "]}");
}

static void put_rendered_chat(struct generation *g)
{
	put_rendered(g, 0);
	buf_putc(&g->echo, '\n');
}

static void put_rendered_texts(struct generation *g)
{
	for (int i = 0; i < g->prompts.n; i++) {
		buf_putc(&g->echo, i ? ',' : '[');
		put_rendered(g, i);
	}
	buf_puts(&g->echo, "]\n");
}

static void render_chat_prep(struct exchange *x)
{
	prep(x, put_rendered_chat);
}

static void render_texts_prep(struct exchange *x)
{
	prep(x, put_rendered_texts);
}

const struct endpoint render_chat_endpoint = {
	.prep = render_chat_prep,
	REPLY_STEPS,
	.id_prefix = "chatcmpl-",
	.read = read_rendered_chat,
};
const struct endpoint render_texts_endpoint = {
	.prep = render_texts_prep,
	REPLY_STEPS,
	.id_prefix = "cmpl-",
	.read = read_rendered_text,
	.own_new = rendered_own,
	.own_free = free,
};

/* ---- /detokenize ---- */

static int read_detokenize(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field fields[] = { { "model" }, { "tokens" }, { "skip_special_tokens" }, { NULL } };
	static const struct field *const tables[] = { fields, NULL };
	const struct json *v;
	char where[60], expected[60];
	bool skip = false;
	int64_t id;
	int r;

	g->body = body;
	generation_prompts(g, 1);
	if ((r = fields_check(g->body, NULL, tables, &g->params.warnings, p)) || (r = model_read(g, g->body, p)) ||
	    (r = field_value(g->body, "tokens", JSON_ARRAY, &v, p)) ||
	    (r = field_bool(g->body, "skip_special_tokens", &skip, p)))
		return r;
	if (!v)
		return problem_set(p, 400, "missing_field", "tokens", "tokens is missing: an array of token ids");
	for (size_t i = 0; i < json_len(v) && allowance_spend(1); i++) {
		if (json_to_int(json_at(v, i), &id) || id < 0 || id >= g->served->vocab) {
			snprintf(where, sizeof where, "tokens[%zu]", i);
			snprintf(expected, sizeof expected, "a token id from 0 to %d", g->served->vocab - 1);
			return field_wrong(p, where, expected, json_at(v, i));
		}
		tokens_put(&g->prompts.of[0], (int32_t)id);
	}
	tokenizer_decode(g->served->tokenizer, g->prompts.of[0].id, g->prompts.of[0].n, skip, &g->echo);
	return 0;
}

static void detokenize_prep(struct exchange *x)
{
	prep(x, put_text);
}

const struct endpoint detokenize_endpoint = {
	.prep = detokenize_prep,
	REPLY_STEPS,
	.read = read_detokenize,
};

/* ---- /apply-template ---- */

static int make_text(struct generation *g, struct chat *c, struct problem *p)
{
	return chat_text(g, c, &g->echo, p);
}

static int read_template(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field *const tables[] = { chat_fields, form_fields, params_fields, NULL };

	return chat_body(g, body, tables, chat_read, make_text, p);
}

static void template_prep(struct exchange *x)
{
	prep(x, put_text);
}

const struct endpoint template_endpoint = {
	.prep = template_prep,
	REPLY_STEPS,
	.read = read_template,
};

/* ---- /props ---- */

static void put_special(struct buf *b, const char *token, const char *none)
{
	if (token)
		json_put_cstr(b, token);
	else
		buf_puts(b, none);
}

static void put_template(struct buf *b, const struct template *t, const char *none)
{
	size_t n = 0;
	const char *text = t ? template_text(t, &n) : NULL;

	if (text)
		json_put_str(b, text, n);
	else
		buf_puts(b, none);
}

/* Appends the members that llama-server's clients look for. */
static void put_llama_members(struct buf *b, const struct served *d)
{
	struct engine_stats st = { 0 };

	engine_stats(d->engine, &st);
	buf_printf(
		b,
		",\"default_generation_settings\":{\"id\":0,\"n_ctx\":%d,\"params\":{\"n_predict\":%d,\"temperature\":",
		d->ctx_max, d->max_tokens);
	json_put_double(b, (double)d->sampling.temperature);
	buf_puts(b, ",\"top_p\":");
	json_put_double(b, (double)d->sampling.top_p);
	buf_printf(b, ",\"top_k\":%d}},\"total_slots\":%d,\"model_alias\":", d->sampling.top_k, st.slots);
	json_put_cstr(b, d->name);
	buf_puts(b, ",\"model_path\":");
	json_put_cstr(b, d->name);
	buf_printf(b, ",\"modalities\":{\"vision\":%s,\"audio\":%s},\"infill\":%s,\"chat_template\":",
	           d->sight && d->sight->image ? "true" : "false", d->sight && d->sight->sound ? "true" : "false",
	           fim_known(d->tokenizer) ? "true" : "false");
	put_template(b, d->tmpl, "\"\"");
	if (d->tool_tmpl) {
		buf_puts(b, ",\"chat_template_tool_use\":");
		put_template(b, d->tool_tmpl, "\"\"");
	}
	buf_puts(b, ",\"bos_token\":");
	put_special(b, d->bos_token, "\"\"");
	buf_puts(b, ",\"eos_token\":");
	put_special(b, d->eos_token, "\"\"");
}

static void props(struct exchange *x)
{
	const struct server_opts *o = &x->srv->opts;
	const struct template *with_tools;
	const struct dialect *dialect;
	const struct sampler_params *s;
	const struct served *d;
	struct problem p;
	struct buf b;

	if (known_ask(x, &p)) {
		exchange_refuse(x, &p);
		return;
	}
	d = &x->model->served;
	s = &d->sampling;
	with_tools = served_template(d, true);
	dialect = with_tools ? dialect_taught(with_tools) : NULL;
	buf_init(&b);
	buf_puts(&b, "{\"model\":");
	json_put_cstr(&b, d->name);
	buf_printf(&b, ",\"build_info\":\"weft %s\"", o->version);
	buf_printf(&b, ",\"context\":%d,\"vocabulary\":%d,\"max_tokens\":%d,\"chat\":%s,\"tools\":", d->ctx_max,
	           d->vocab, d->max_tokens, d->tmpl ? "true" : "false");
	if (dialect && template_uses(with_tools, "tools"))
		json_put_cstr(&b, dialect->name);
	else
		buf_puts(&b, with_tools && template_uses(with_tools, "tools") ? "true" : "false");
	buf_printf(&b, ",\"thinking\":%s,\"strict\":%s,\"sampling\":{\"temperature\":",
	           d->tmpl && template_uses(d->tmpl, "enable_thinking") ? "\"by request\"" :
	           d->tmpl && speech_thinks(d->tmpl)                    ? "\"always\"" :
	                                                                  "false",
	           d->strict ? "true" : "false");
	json_put_double(&b, (double)s->temperature);
	buf_puts(&b, ",\"top_p\":");
	json_put_double(&b, (double)s->top_p);
	buf_printf(&b, ",\"top_k\":%d,\"min_p\":", s->top_k);
	json_put_double(&b, (double)s->min_p);
	buf_puts(&b, ",\"repetition_penalty\":");
	json_put_double(&b, (double)s->repetition_penalty);
	buf_printf(
		&b,
		"},\"limits\":{\"connections\":%d,\"body_bytes\":%lld,\"response_store_bytes\":%zu,\"choices\":%d,\"stop_strings\":%d,"
		"\"top_logprobs\":%d}",
		o->connections_max, (long long)o->body_max, o->response_bytes, N_MAX, STOPS_MAX, TOP_LOGPROBS_MAX);
	put_llama_members(&b, d);
	buf_puts(&b, "}\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct endpoint props_endpoint = { .ready = props };

/* ---- /tokenizer_info, as vLLM has it: for clients that split text with the server's tokenizer ---- */

static void tokenizer_info(struct exchange *x)
{
	const struct served *d;
	struct problem p;
	struct buf b;

	if (known_ask(x, &p)) {
		exchange_refuse(x, &p);
		return;
	}
	d = &x->model->served;
	buf_init(&b);
	buf_printf(&b,
	           "{\"tokenizer_class\":\"weft\",\"vocab_size\":%d,\"model_max_length\":%d,\"bos_token\":", d->vocab,
	           d->ctx_max);
	put_special(&b, d->bos_token, "null");
	buf_puts(&b, ",\"eos_token\":");
	put_special(&b, d->eos_token, "null");
	buf_puts(&b, ",\"pad_token\":null,\"chat_template\":");
	put_template(&b, d->tmpl, "null");
	buf_puts(&b, "}\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct endpoint tokenizer_info_endpoint = { .ready = tokenizer_info };
