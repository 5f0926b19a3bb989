/* api_llama.c - llama-server's own endpoints: POST /completion and /infill, GET /slots.
 *
 * Front ends that were written for it ask there (SillyTavern, llama.vscode, llama.vim).  What a prompt may be and what
 * fields mean is as in /v1/completions; the shapes of replies are llama-server's. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/complete.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"

static const struct field native_fields[] = {
	{ "prompt" },
	SYNONYM("n_predict", "max_tokens"),
	IGNORED("n_keep", "0"),
	IGNORED("n_discard", "0"),
	IGNORED("n_indent", "0"),
	IGNORED("t_max_predict_ms", "0"),
	IGNORED("t_max_prompt_ms", "0"),
	IGNORED("n_cache_reuse", "0"),
	IGNORED("return_tokens", "false"),
	IGNORED("post_sampling_probs", "false"),
	IGNORED("response_fields", "[]"),
	{ "n_probs" },
	{ "timings_per_token" },
	{ "image_data", "[]" },
	{ "messages", "", "use /v1/chat/completions" },
	{ "logprobs", "false|0", "use n_probs" },
	{ NULL },
};
static const struct field completion_fields[] = { { "add_special_tokens" }, { NULL } };
static const struct field infill_fields[] = {
	{ "input_prefix" },
	{ "input_suffix" },
	{ "input_extra" },
	{ NULL },
};

/* ---- reading ---- */

static int read_common(struct generation *g, struct json *body, const struct field *own, struct problem *p)
{
	const struct field *const tables[] = { own, native_fields, form_fields, params_fields, NULL };
	int64_t probs = 0;
	int r;

	if (!(g->body = body_check(body, tables, &g->params.warnings, p)))
		return p->status;
	if ((r = model_read(g, g->body, p)) || (r = params_read(&g->params, g->body, g->served, p)) ||
	    (r = structured_fields(g, g->body, p)) ||
	    (r = field_bool(g->body, "timings_per_token", &g->params.timings, p)) ||
	    (r = field_int(g->body, "n_probs", 0, TOP_LOGPROBS_MAX, &probs, p)))
		return r;
	g->params.logprobs = probs > 0;
	params_logprobs(&g->params, (int)probs);
	return 0;
}

static int read_completion(struct generation *g, struct json *body, struct problem *p)
{
	int r = read_common(g, body, completion_fields, p);

	return r ? r : completion_prompts(g, g->body, p);
}

/* Other files than the edited one, before it: each with its name. */
static int put_extra(const struct json *extra, struct buf *out, struct problem *p)
{
	char at[60];
	int r;

	for (size_t i = 0; i < json_len(extra); i++) {
		size_t n_name = 0, n = 0;
		const char *name = json_str(json_get(json_at(extra, i), "filename"), &n_name);
		const char *text = json_str(json_get(json_at(extra, i), "text"), &n);

		snprintf(at, sizeof at, "input_extra[%zu]", i);
		if ((r = field_takes(json_at(extra, i), at, "filename", TAKES_STRING, p)))
			return r;
		snprintf(at, sizeof at, "input_extra[%zu].text", i);
		if (!text)
			return field_wrong(p, at, "a string", json_get(json_at(extra, i), "text"));
		buf_puts(out, "--- ");
		buf_put(out, name ? name : "", name ? n_name : 0);
		buf_putc(out, '\n');
		buf_put(out, text, n);
		buf_putc(out, '\n');
	}
	return 0;
}

static int read_infill(struct generation *g, struct json *body, struct problem *p)
{
	const struct json *prefix, *suffix, *prompt, *extra;
	struct buf before;
	const char *s;
	size_t len = 0;
	int r = read_common(g, body, infill_fields, p);

	if (r || (r = field_value(g->body, "input_prefix", JSON_STRING, &prefix, p)) ||
	    (r = field_value(g->body, "input_suffix", JSON_STRING, &suffix, p)) ||
	    (r = field_value(g->body, "prompt", JSON_STRING, &prompt, p)) ||
	    (r = field_value(g->body, "input_extra", JSON_ARRAY, &extra, p)))
		return r;
	if (!prefix && !suffix)
		return problem_set(p, 400, "missing_field", "input_prefix",
		                   "input_prefix and input_suffix are missing: the text before and after the answer");
	buf_init(&before);
	if (!(r = put_extra(extra, &before, p))) {
		/* The field "prompt" is the text that the user typed last. */
		if ((s = json_str(prefix, &len)))
			buf_put(&before, s, len);
		if ((s = json_str(prompt, &len)))
			buf_put(&before, s, len);
		s = json_str(suffix, &len);
		r = fim_prompt(g, before.p, before.n, s ? s : "", s ? len : 0, "input_suffix", p);
	}
	buf_fini(&before);
	return r;
}

/* ---- writing ---- */

enum { TOKENS, PROBABILITIES }; /* of choice.logprobs */

/* A token, its text, its bytes and its logarithm; the object is left open. */
static void put_probability(const struct served *d, int32_t id, float logprob, struct buf *out)
{
	size_t n = 0;
	const char *p = tokenizer_token_bytes(d->tokenizer, id, &n);

	buf_printf(out, "{\"id\":%d,\"token\":", id);
	put_token(d, id, out);
	buf_puts(out, ",\"bytes\":[");
	for (size_t i = 0; p && i < n; i++)
		buf_printf(out, "%s%d", i ? "," : "", (unsigned char)p[i]);
	buf_puts(out, "],\"logprob\":");
	put_logprob(out, logprob);
}

static void put_probabilities(const struct generation *g, struct choice *c, const struct event *ev)
{
	struct buf *b = &c->logprobs[PROBABILITIES];

	if (b->n)
		buf_putc(b, ',');
	put_probability(g->served, ev->token, ev->pick.logprob, b);
	buf_puts(b, ",\"top_logprobs\":[");
	for (int i = 0; i < ev->pick.n_top && i < g->params.top_logprobs; i++) {
		buf_puts(b, i ? "," : "");
		put_probability(g->served, ev->pick.top[i].token, ev->pick.top[i].logprob, b);
		buf_putc(b, '}');
	}
	buf_puts(b, "]}");
}

static void token(struct generation *g, struct choice *c, const struct event *ev)
{
	buf_put(&c->text, ev->text, ev->n_text);
	if (ev->kind != EV_TOKEN)
		return;
	buf_printf(&c->logprobs[TOKENS], "%s%d", c->logprobs[TOKENS].n ? "," : "", ev->token);
	if (g->params.logprobs)
		put_probabilities(g, c, ev);
}

static void end(struct generation *g, struct choice *c)
{
	(void)g;
	(void)c;
}

static void put_part(struct choice *c, bool stop, struct buf *out)
{
	buf_printf(out, "{\"index\":%d,\"content\":", c->index);
	json_put_str(out, c->text.p, c->text.n);
	buf_printf(out, ",\"tokens\":[%s],\"stop\":%s,\"id_slot\":0,\"tokens_predicted\":%d,\"tokens_evaluated\":%d",
	           c->logprobs[TOKENS].p, stop ? "true" : "false", c->usage.output, c->usage.prompt);
	if (c->logprobs[PROBABILITIES].n)
		buf_printf(out, ",\"completion_probabilities\":[%s]", c->logprobs[PROBABILITIES].p);
	buf_reset(&c->text);
	buf_reset(&c->logprobs[TOKENS]);
	buf_reset(&c->logprobs[PROBABILITIES]);
}

/* The last object of an answer, or the whole of it. */
static void put_last(const struct generation *g, struct choice *c, struct buf *out)
{
	const char *why = c->stop_text ? "word" : c->finish == FINISH_LENGTH ? "limit" : "eos";

	put_part(c, true, out);
	buf_puts(out, ",\"model\":");
	json_put_cstr(out, model_shown(g));
	buf_printf(out, ",\"stop_type\":\"%s\",\"stopping_word\":", why);
	json_put_cstr(out, c->stop_text ? c->stop_text : "");
	buf_printf(out, ",\"truncated\":false,\"tokens_cached\":%d", c->usage.cached);
	put_timings(g, c->usage, out);
	put_cache_report(g, out);
	buf_putc(out, '}');
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	if (!c->text.n || c->done)
		return;
	event_begin(out);
	put_part(c, false, out);
	if (g->params.timings)
		put_timings(g, c->usage, out);
	buf_putc(out, '}');
	event_end(out);
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	event_begin(out);
	put_last(g, c, out);
	event_end(out);
}

static void close_stream(struct generation *g, struct buf *out)
{
	(void)g;
	(void)out; /* the last object says stop */
}

static void llama_whole(struct generation *g, struct buf *out)
{
	bool several = g->n_choice > 1;

	for (int i = 0; i < g->n_choice; i++) {
		if (several)
			buf_putc(out, i ? ',' : '[');
		put_last(g, &g->choice[i], out);
	}
	buf_puts(out, several ? "]\n" : "\n");
}

#define ENDPOINT(reader)                                                                                            \
	{                                                                                                           \
		GENERATION_STEPS, .id_prefix = "cmpl-", .read = reader, .token = token, .end = end, .delta = delta, \
				  .last = last, .close = close_stream, .whole = llama_whole                         \
	}
const struct endpoint native_endpoint = ENDPOINT(read_completion);
const struct endpoint infill_endpoint = ENDPOINT(read_infill);
#undef ENDPOINT

/* ---- /slots ---- */

/* Requests that run, in the shape of llama-server's slots: there are as many as the engine takes at once, and none has
 * a place of its own. */
static void slots(struct exchange *x)
{
	struct engine_stats st = { 0 };
	struct problem p;
	struct buf b;

	if (known_ask(x, &p)) {
		exchange_refuse(x, &p);
		return;
	}
	engine_stats(x->model->served.engine, &st);
	buf_init(&b);
	buf_putc(&b, '[');
	for (int i = 0; i < st.slots; i++)
		buf_printf(&b, "%s{\"id\":%d,\"n_ctx\":%d,\"speculative\":false,\"is_processing\":%s}", i ? "," : "", i,
		           x->model->served.ctx_max, i < st.running ? "true" : "false");
	buf_puts(&b, "]\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct endpoint slots_endpoint = { .ready = slots };
