/* api_ollama.c - ollama's API: /api/chat, /api/generate, /api/tags, /api/show, /api/ps, /api/version.
 *
 * Programs that look for ollama find the one model that is served.  A body becomes that of a chat completion, which
 * shares its values, and is read as one; replies are objects, one to a line. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/allowance.h"
#include "base/clock.h"
#include "base/digest.h"
#include "server/chat/chat.h"
#include "server/chat/messages.h"
#include "server/api/complete.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"
#include "text/calls/dialect.h"

/* ---- reading ---- */

/* Fields of chat and generate. */
static const struct field ollama_fields[] = {
	TAKEN("model", TAKES_STRING),
	{ "format" },
	TAKEN("options", TAKES_OBJECT),
	TAKEN("stream", TAKES_BOOL),
	TAKEN("think", TAKES_BOOL | TAKES_STRING),
	TAKEN("keep_alive", TAKES_NUMBER | TAKES_STRING), /* known_choose reads it */
	{ "logprobs", "false" },
	{ "top_logprobs", "0" },
	IGNORED("truncate", ""),
	IGNORED("shift", ""),
	{ NULL },
};
static const struct field talk_fields[] = {
	{ "messages" },
	TAKEN("tools", TAKES_ARRAY),
	{ NULL },
};
static const struct field generate_fields[] = {
	TAKEN("prompt", TAKES_STRING), TAKEN("suffix", TAKES_STRING),
	TAKEN("system", TAKES_STRING), TAKEN("images", TAKES_ARRAY),
	TAKEN("raw", TAKES_BOOL),      { "template", "\"\"" },
	IGNORED("context", "[]"),      { NULL },
};

/* Options of how a model is run, which are the server's here. */
static const struct field machine_fields[] = {
	TAKEN("num_ctx", TAKES_NUMBER),
	TAKEN("num_batch", TAKES_NUMBER),
	TAKEN("num_gpu", TAKES_NUMBER),
	TAKEN("main_gpu", TAKES_NUMBER),
	TAKEN("num_thread", TAKES_NUMBER),
	TAKEN("num_keep", TAKES_NUMBER),
	TAKEN("use_mmap", TAKES_BOOL),
	TAKEN("use_mlock", TAKES_BOOL),
	TAKEN("low_vram", TAKES_BOOL),
	TAKEN("numa", TAKES_BOOL),
	TAKEN("vocab_only", TAKES_BOOL),
	TAKEN("f16_kv", TAKES_BOOL),
	TAKEN("penalize_newline", TAKES_BOOL),
	{ "logprobs", "false" },
	{ "top_logprobs", "0" },
	{ NULL },
};

/* Text and a list of images in base64 as the parts of a message's content. */
static struct json *seen_parts(const struct json *text, const struct json *images)
{
	struct json *parts = json_new_array(), *part = json_new_object();

	json_set_cstr(part, "type", "text");
	json_set(part, "text", json_kind(text) == JSON_STRING ? json_share(text) : json_new_str("", 0));
	json_add(parts, part);
	for (size_t i = 0; i < json_len(images) && allowance_spend(1); i++) {
		part = json_new_object();
		json_set_cstr(part, "type", "image");
		json_set(part, "image", json_share(json_at(images, i)));
		json_add(parts, part);
	}
	return parts;
}

/* Adds a message: its thought under the other name, its images as parts of its content. */
static int add_message(const struct json *m, size_t i, struct json *list, struct problem *p)
{
	struct json_cursor c = json_first(m);
	const struct json *v, *images = json_get(m, "images");
	struct json *out;
	const char *key;
	char at[60];
	int r;

	snprintf(at, sizeof at, "messages[%zu]", i);
	if (json_kind(m) != JSON_OBJECT)
		return field_wrong(p, at, "an object with role and content", m);
	if ((r = field_takes(m, at, "images", TAKES_ARRAY, p)) ||
	    (r = field_takes(m, at, "thinking", TAKES_STRING, p)) ||
	    (r = field_takes(m, at, "tool_name", TAKES_STRING, p)))
		return r;
	out = json_new_object();
	while (json_next(&c, &key, &v) && allowance_spend(1)) {
		if (!strcmp(key, "thinking"))
			json_set(out, "reasoning_content", json_share(v));
		else if (!strcmp(key, "tool_name"))
			json_set(out, "name", json_share(v));
		else if (!strcmp(key, "content") && json_len(images))
			json_set(out, key, seen_parts(v, images));
		else if (strcmp(key, "images"))
			json_set(out, key, json_share(v));
	}
	json_add(list, out);
	return 0;
}

static int set_messages(const struct json *body, struct json *out, struct problem *p)
{
	const struct json *messages = json_get(body, "messages");
	struct json *list;
	int r = 0;

	if (json_kind(messages) != JSON_ARRAY)
		return field_wrong(p, "messages", "an array of messages", messages);
	list = json_new_array();
	for (size_t i = 0; i < json_len(messages) && !r && allowance_spend(1); i++)
		r = add_message(json_at(messages, i), i, list, p);
	json_set(out, "messages", list);
	return r;
}

/* /api/generate: what it says is one message of the user. */
static void set_question(const struct json *body, struct json *out)
{
	const struct json *system = json_get(body, "system"), *prompt = json_get(body, "prompt"),
			  *images = json_get(body, "images");
	struct json *list = json_new_array(), *user = message_new("user", "", 0);
	size_t n = 0;
	const char *s = json_str(system, &n);

	if (s && n)
		json_add(list, message_new("system", s, n));
	if (json_len(images))
		json_set(user, "content", seen_parts(prompt, images));
	else if (json_kind(prompt) == JSON_STRING)
		json_set(user, "content", json_share(prompt));
	json_add(list, user);
	json_set(out, "messages", list);
}

static int set_format(const struct json *format, struct json *out, struct problem *p)
{
	struct json *form;
	size_t n = 1;
	const char *s = json_str(format, &n);

	if (json_kind(format) == JSON_NULL || !n)
		return 0;
	if ((!s || strcmp(s, "json")) && json_kind(format) != JSON_OBJECT)
		return field_wrong(p, "format", "\"json\" or a JSON schema, as an object", format);
	if (!s) {
		json_set(out, "json_schema", json_share(format));
		return 0;
	}
	form = json_new_object();
	json_set_cstr(form, "type", "json_object");
	json_set(out, "response_format", form);
	return 0;
}

static int set_think(const struct json *think, struct warnings *w, struct json *out, struct problem *p)
{
	bool yes = false;
	size_t n;

	if (json_str(think, &n)) {
		warnings_rename(w, "reasoning_effort", "think");
		json_set(out, "reasoning_effort", json_share(think));
	} else if (!json_to_bool(think, &yes))
		json_set_str(out, "reasoning_effort", yes ? "high" : "none", 4);
	else if (json_kind(think) != JSON_NULL)
		return field_wrong(p, "think", "true, false or an effort", think);
	return 0;
}

/* Options become members of the body, so an option named like a member that the body has of its own is refused. */
static int check_options(const struct json *options, struct problem *p)
{
	static const char *const beside[] = { "model",  "messages",        "tools",       "prompt",          "suffix",
		                              "stream", "response_format", "json_schema", "reasoning_effort" };
	char path[60];

	for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
		snprintf(path, sizeof path, "options.%s", beside[i]);
		if (json_kind(json_get(options, beside[i])) != JSON_NULL)
			return problem_set(p, 400, "unsupported_field", path, "%s is not an option", path);
	}
	return 0;
}

/* Is the answer between two texts? An empty one does not count. */
static bool has_suffix(const struct json *body)
{
	size_t n = 0;

	return json_str(json_get(body, "suffix"), &n) && n;
}

/* Copies the fields that need the template, which read_raw refuses or ignores by name. */
static void set_wishes_of_raw(const struct json *body, struct json *out)
{
	static const char *const names[] = { "system", "images", "think" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (json_kind(json_get(body, names[i])) != JSON_NULL)
			json_set(out, names[i], json_share(json_get(body, names[i])));
}

struct json *ollama_body_new(const struct json *body)
{
	static const char latest[] = ":latest";
	size_t n = 0, len = sizeof latest - 1;
	const char *s = json_str(json_get(body, "model"), &n);
	struct json *out = json_new_object();

	if (s)
		json_set_str(out, "model", s, n > len && !memcmp(s + n - len, latest, len) ? n - len : n);
	return out;
}

/* Sets the members of the body of a chat completion, or (raw) of a completion, that asks for the same as body. */
static int translate(const struct json *body, bool generate, bool raw, struct warnings *w, struct json *out,
                     struct problem *p)
{
	const struct json *options, *v;
	struct json_cursor c;
	const char *key;
	bool stream = true;
	int r;

	if ((r = field_value(body, "options", JSON_OBJECT, &options, p)) || (r = check_options(options, p)) ||
	    (r = field_bool(body, "stream", &stream, p)))
		return r;
	if (raw) {
		json_set(out, "prompt", json_share(json_get(body, "prompt")));
		if (has_suffix(body))
			json_set(out, "suffix", json_share(json_get(body, "suffix")));
		set_wishes_of_raw(body, out);
	} else if (generate) {
		set_question(body, out);
	} else if ((r = set_messages(body, out, p))) {
		return r;
	}
	if (json_kind(json_get(body, "tools")) != JSON_NULL)
		json_set(out, "tools", json_share(json_get(body, "tools")));
	json_set_bool(out, "stream", stream);
	if ((r = set_format(json_get(body, "format"), out, p)) ||
	    (!raw && (r = set_think(json_get(body, "think"), w, out, p))))
		return r;
	for (c = json_first(options); json_next(&c, &key, &v) && allowance_spend(1);)
		json_set(out, key, json_share(v));
	return 0;
}

/* Reports a context that is asked for and is larger than the model's here. */
static void note_context(struct generation *g)
{
	double asked;

	if (!json_to_double(json_get(g->body, "num_ctx"), &asked) && asked > g->served->ctx_max)
		warnings_add(&g->params.warnings.ignored, "options", "num_ctx");
}

/* A prompt without the template. */
static int read_raw(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field known[] = { { "prompt" },
		                              { "suffix" },
		                              { "system", "\"\"", "the prompt is taken as it is" },
		                              { "images", "[]", "the prompt is taken as it is" },
		                              { "tools", "[]", "the prompt is taken as it is" },
		                              IGNORED("think", "false"),
		                              { NULL } };
	static const struct field *const tables[] = { machine_fields, known, form_fields, params_fields, NULL };
	const char *before, *after;
	size_t n_before = 0, n_after = 0;
	int r;

	if (!(g->body = body_check(body, tables, &g->params.warnings, p)))
		return p->status;
	if ((r = model_read(g, g->body, p)) || (r = params_read(&g->params, g->body, g->served, p)) ||
	    (r = structured_fields(g, g->body, p)))
		return r;
	before = json_str(json_get(g->body, "prompt"), &n_before);
	after = json_str(json_get(g->body, "suffix"), &n_after);
	return after && n_after ? fim_prompt(g, before ? before : "", n_before, after, n_after, "suffix", p) :
	                          completion_prompts(g, g->body, p);
}

/* Clients have a model loaded, or let go, by a request that asks nothing of it. */
static bool asks_nothing(const struct json *body, bool generate)
{
	const struct json *v = json_get(body, generate ? "prompt" : "messages");
	size_t n = 0;

	if (generate && (json_len(json_get(body, "images")) || has_suffix(body)))
		return false;
	if (json_kind(v) == JSON_NULL)
		return true;
	return generate ? json_str(v, &n) && !n : json_kind(v) == JSON_ARRAY && !json_len(v);
}

static int read_any(struct generation *g, struct json *body, bool generate, struct problem *p)
{
	static const struct field *const talk[] = { talk_fields, ollama_fields, NULL };
	static const struct field *const text[] = { generate_fields, ollama_fields, NULL };
	static const struct field *const tables[] = { machine_fields, chat_fields, form_fields, params_fields, NULL };
	struct json *meant;
	bool raw = false;
	int r;

	if (!(body = body_check(body, generate ? text : talk, &g->params.warnings, p)))
		return p->status;
	meant = ollama_body_new(body);
	if (asks_nothing(body, generate)) {
		g->body = meant;
		r = model_read(g, g->body, p);
	} else if (!generate || !(r = field_bool(body, "raw", &raw, p))) {
		/* The answer to a suffix is between two texts, which no template frames. */
		raw |= generate && has_suffix(body);
		if ((r = translate(body, generate, raw, &g->params.warnings, meant, p)))
			json_free(meant);
		else
			r = raw ? read_raw(g, meant, p) : chat_body(g, meant, tables, chat_read, chat_prompt, p);
		if (!r && json_kind(json_get(body, "options")) == JSON_OBJECT)
			note_context(g);
	} else {
		json_free(meant);
	}
	json_free(body);
	return r;
}

static int read_talk(struct generation *g, struct json *body, struct problem *p)
{
	return read_any(g, body, false, p);
}

static int read_generate(struct generation *g, struct json *body, struct problem *p)
{
	return read_any(g, body, true, p);
}

/* ---- writing ---- */

static void put_time(struct buf *out, int64_t seconds)
{
	time_t at = (time_t)seconds;
	struct tm utc;
	char when[40];

	strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
	buf_printf(out, "\"%s\"", when);
}

static void put_head(const struct generation *g, struct buf *out)
{
	buf_puts(out, "{\"model\":");
	json_put_cstr(out, model_shown(g));
	buf_puts(out, ",\"created_at\":");
	put_time(out, g->created);
}

static bool generates(const struct generation *g)
{
	return g->endpoint == &ollama_generate_endpoint;
}

/* A call's name and its arguments as an object. */
static void put_call(const struct choice *c, int i, struct buf *out)
{
	const struct piece *name = &c->split.piece[i], *arguments = &c->split.piece[i + 1];
	struct json *j = json_parse(c->split.text.p + arguments->at, arguments->n, 200, NULL);

	buf_puts(out, out->n ? ",{\"function\":{\"name\":" : "{\"function\":{\"name\":");
	json_put_str(out, c->split.text.p + name->at, name->n);
	buf_puts(out, ",\"arguments\":");
	if (json_kind(j) == JSON_OBJECT) {
		json_put(out, j);
	} else {
		buf_puts(out, "{\"arguments\":");
		json_put_str(out, c->split.text.p + arguments->at, arguments->n);
		buf_putc(out, '}');
	}
	buf_puts(out, "}}");
	json_free(j);
}

/* Appends the new pieces as members of a message.  A call comes whole: when it ends, or when the answer does. */
static bool put_news(const struct generation *g, struct choice *c, struct buf *out)
{
	struct buf thinking, content, calls;
	struct piece p;
	bool begins, some;

	buf_init(&thinking);
	buf_init(&content);
	buf_init(&calls);
	while (chat_next(c, &p, &begins)) {
		if (p.kind == PIECE_THINKING)
			buf_put(&thinking, c->split.text.p + p.at, p.n);
		else if (p.kind == PIECE_CONTENT)
			buf_put(&content, c->split.text.p + p.at, p.n);
		else if (p.kind == PIECE_CALL_END)
			put_call(c, c->told.n - 2, &calls);
	}
	some = thinking.n || content.n || calls.n;
	buf_puts(out, generates(g) ? ",\"response\":" : ",\"message\":{\"role\":\"assistant\",\"content\":");
	json_put_str(out, content.p, content.n);
	if (thinking.n) {
		buf_puts(out, ",\"thinking\":");
		json_put_str(out, thinking.p, thinking.n);
	}
	if (calls.n)
		buf_printf(out, ",\"tool_calls\":[%s]", calls.p);
	buf_puts(out, generates(g) ? "" : "}");
	buf_fini(&thinking);
	buf_fini(&content);
	buf_fini(&calls);
	return some;
}

static void put_end(const struct generation *g, const struct choice *c, struct buf *out)
{
	int64_t now = clock_monotonic_ns(), first = g->t_first ? g->t_first : now;

	buf_printf(
		out,
		",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%d,"
		"\"prompt_eval_duration\":%lld,\"eval_count\":%d,\"eval_duration\":%lld}\n",
		finish_name(c->finish), (long long)(now - g->x->t_begin), c->usage.prompt,
		(long long)(first - g->x->t_begin), c->usage.output, (long long)(now - first));
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	struct buf b;

	buf_init(&b);
	put_head(g, &b);
	if (put_news(g, c, &b)) {
		buf_puts(&b, ",\"done\":false}\n");
		buf_put(out, b.p, b.n);
	}
	buf_fini(&b);
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	put_head(g, out);
	put_news(g, c, out);
	put_end(g, c, out);
}

static void close_stream(struct generation *g, struct buf *out)
{
	(void)g;
	(void)out;
}

static void error(struct generation *g, const struct problem *p, struct buf *out)
{
	(void)g;
	problem_put(out, p);
	buf_putc(out, '\n');
}

static void ollama_whole(struct generation *g, struct buf *out)
{
	last(g, &g->choice[0], out);
}

static void nothing(struct generation *g, struct buf *out)
{
	put_head(g, out);
	buf_puts(out, generates(g) ? ",\"response\":\"\"" : ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
	buf_puts(out, ",\"done\":true,\"done_reason\":\"load\"}\n");
}

#define ENDPOINT(reader)                                                                                         \
	{                                                                                                        \
		GENERATION_STEPS, .id_prefix = "ollama-", .stream_type = "application/x-ndjson", .read = reader, \
				  .open = chat_open, .token = chat_token, .end = chat_end, .delta = delta,       \
				  .last = last, .close = close_stream, .error = error, .whole = ollama_whole,    \
				  .nothing = nothing                                                             \
	}
const struct endpoint ollama_chat_endpoint = ENDPOINT(read_talk);
const struct endpoint ollama_generate_endpoint = ENDPOINT(read_generate);
#undef ENDPOINT

/* ---- the model ---- */

static const char *arch_of(const struct served *d)
{
	return d->is.arch ? d->is.arch : "weft";
}

static void put_details(const struct served *d, struct buf *b)
{
	double n = (double)d->is.params;

	buf_printf(
		b,
		"{\"parent_model\":\"\",\"format\":\"%s\",\"family\":\"%s\",\"families\":[\"%s\"],\"parameter_size\":\"",
		d->is.form ? d->is.form : "safetensors", arch_of(d), arch_of(d));
	buf_printf(b, n >= 1e9 ? "%.1fB" : "%.1fM", n >= 1e9 ? n / 1e9 : n / 1e6);
	buf_printf(b, "\",\"quantization_level\":\"%s\"}", d->is.quant ? d->is.quant : "unknown");
}

/* Clients print the first digits: made of what is told of the model, not of its bytes. */
static void put_digest(const struct served *d, const char *name, size_t n, struct buf *b)
{
	struct sha256 s;
	struct digest of;
	char hex[2 * sizeof of.b + 1];

	sha256_init(&s);
	sha256_field(&s, name, n);
	sha256_field(&s, d->name, strlen(d->name));
	sha256_field(&s, arch_of(d), strlen(arch_of(d)));
	sha256_put(&s, &d->is.params, sizeof d->is.params);
	sha256_put(&s, &d->is.bytes, sizeof d->is.bytes);
	sha256_end(&s, &of);
	hex_put(hex, of.b, sizeof of.b);
	buf_puts(b, hex);
}

/* When a model is unloaded if no request comes: far away where that is not known, or never. */
static void put_expiry(struct buf *b, const struct known_model *m)
{
	if (m->phase == KNOWN_LOADED && !m->refs && m->idle_ns < INT64_MAX)
		put_time(b, time(NULL) + (m->used_ns + m->idle_ns - clock_monotonic_ns()) / 1000000000);
	else
		buf_puts(b, "\"9999-12-31T23:59:59Z\"");
}

struct tags {
	struct buf b;
	int64_t created;
	bool loaded; /* only those that are */
	int n;
};

static void put_tag(struct tags *t, const struct known_model *m, const char *name, size_t n)
{
	const struct served *d = known_as(m);
	struct buf *b = &t->b;

	buf_puts(b, t->n++ ? ",{\"name\":" : "{\"name\":");
	json_put_str(b, name, n);
	buf_puts(b, ",\"model\":");
	json_put_str(b, name, n);
	buf_puts(b, ",\"modified_at\":");
	put_time(b, t->created);
	buf_printf(b, ",\"size\":%lld,\"size_vram\":0,\"digest\":\"", (long long)d->is.bytes);
	put_digest(d, name, n, b);
	buf_printf(b, "\",\"context_length\":%d,\"expires_at\":", d->ctx_max);
	put_expiry(b, m);
	buf_puts(b, ",\"details\":");
	put_details(d, b);
	buf_putc(b, '}');
}

static void put_tags(void *arg, const struct known_model *m)
{
	const struct served *d = known_as(m);
	const char *at = d->aliases, *name;
	struct tags *t = arg;
	size_t n;

	if (t->loaded && m->phase != KNOWN_LOADED)
		return;
	put_tag(t, m, d->name, strlen(d->name));
	while ((name = served_alias(&at, &n)))
		put_tag(t, m, name, n);
	for (int i = 0; i < d->n_adapter; i++)
		put_tag(t, m, d->adapter[i].name, strlen(d->adapter[i].name));
}

static void list(struct exchange *x, bool loaded)
{
	struct tags t = { .created = x->srv->created, .loaded = loaded };

	buf_init(&t.b);
	buf_puts(&t.b, "{\"models\":[");
	known_each(x->srv, put_tags, &t);
	buf_puts(&t.b, "]}\n");
	exchange_reply(x, 200, "application/json", t.b.p, t.b.n);
	buf_fini(&t.b);
}

static void tags(struct exchange *x)
{
	list(x, false);
}

static void ps(struct exchange *x)
{
	list(x, true);
}

/* Reads the name; there is nothing else to be read. */
static int read_show(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field known[] = { TAKEN("model", TAKES_STRING),
		                              SYNONYM("name", "model"),
		                              TAKEN("verbose", TAKES_BOOL),
		                              TAKEN("system", TAKES_STRING),
		                              TAKEN("template", TAKES_STRING),
		                              TAKEN("options", TAKES_OBJECT),
		                              { NULL } };
	static const struct field *const tables[] = { known, NULL };

	if (!(body = body_check(body, tables, &g->params.warnings, p)))
		return p->status;
	g->body = ollama_body_new(body);
	json_free(body);
	return model_read(g, g->body, p);
}

static void show(struct exchange *x)
{
	const struct served *d = &x->model->served;
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\",\"license\":\"\",\"details\":");
	put_details(d, &b);
	buf_printf(
		&b,
		",\"model_info\":{\"general.architecture\":\"%s\",\"general.parameter_count\":%lld,\"general.basename\":",
		arch_of(d), (long long)d->is.params);
	json_put_cstr(&b, d->name);
	buf_printf(&b, ",\"%s.context_length\":%d,\"%s.embedding_length\":%d,\"%s.vocab_size\":%d},\"modified_at\":",
	           arch_of(d), d->ctx_max, arch_of(d), d->is.hidden, arch_of(d), d->vocab);
	put_time(&b, x->srv->created);
	buf_puts(&b, ",\"capabilities\":");
	put_capabilities(served_can(d) & ~CAN_CHAT, &b); /* ollama has no word for it */
	buf_puts(&b, "}\n");
	generation_reply(x->work, &b);
	buf_fini(&b);
}

static void version(struct exchange *x)
{
	static const char text[] = "{\"version\":\"0.12.0\"}\n"; /* of the API that is spoken */

	exchange_reply(x, 200, "application/json", text, sizeof text - 1);
}

static void unsupported(struct exchange *x)
{
	struct problem p;

	problem_set(&p, 501, "unsupported", NULL, "%s is not supported by this server", x->route->path);
	exchange_refuse(x, &p);
}

const struct endpoint ollama_tags_endpoint = { .ready = tags };
const struct endpoint ollama_ps_endpoint = { .ready = ps };
const struct endpoint ollama_show_endpoint = {
	.prep = generation_prep,
	.ready = show,
	.drop = generation_drop,
	.abandon = generation_abandon,
	.any_length = true,
	.read = read_show,
};
const struct endpoint ollama_version_endpoint = { .ready = version };
const struct endpoint ollama_unsupported_endpoint = { .ready = unsupported };
