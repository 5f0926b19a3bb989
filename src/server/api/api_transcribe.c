/* api_transcribe.c - POST /v1/audio/transcriptions and /v1/audio/translations, in the OpenAI API's shapes: a form with a sound
 * becomes a chat of one message, whose answer is the text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/utf8.h"
#include "model/media.h"
#include "server/chat/chat.h"
#include "server/inside.h"
#include "server/routes.h"

/* ---- the form ---- */

/* One part of a multipart body. */
struct form_part {
	const char *name, *p;
	size_t n_name, n;
};

struct form {
	const char *p, *end, *line; /* line: the boundary with its dashes, as the body begins */
	size_t n_line;
};

/* A body begins with its boundary, as every client writes it. */
static int form_begin(struct form *f, const char *p, size_t n, struct problem *prob)
{
	const char *eol = n > 4 && p[0] == '-' && p[1] == '-' ? memmem(p, n < 200 ? n : 200, "\r\n", 2) : NULL;

	*f = (struct form){ .p = p, .end = p + n, .line = p, .n_line = eol ? (size_t)(eol - p) : 0 };
	if (f->n_line < 3)
		return problem_set(prob, 400, "invalid_value", NULL,
		                   "the body is not a form: send multipart/form-data with a file");
	f->p += f->n_line + 2;
	return 0;
}

/* The value of name="..." in the headers of a part. */
static const char *name_in(const char *p, size_t n, size_t *n_name)
{
	const char *at = memmem(p, n, "name=\"", 6), *end;

	/* "filename=" ends so, too. */
	while (at && at > p && at[-1] != ' ' && at[-1] != ';')
		at = memmem(at + 1, n - (size_t)(at + 1 - p), "name=\"", 6);
	end = at ? memchr(at + 6, '"', n - (size_t)(at + 6 - p)) : NULL;
	*n_name = end ? (size_t)(end - at - 6) : 0;
	return end ? at + 6 : NULL;
}

/* The next part.  False: there is none, or (p->status) the form is broken. */
static bool form_next(struct form *f, struct form_part *out, struct problem *p)
{
	size_t left = (size_t)(f->end - f->p);
	const char *head = memmem(f->p, left, "\r\n\r\n", 4), *end = head ? head + 4 : NULL;

	if (left < 4)
		return false;
	/* The line before the next boundary belongs to it; an empty value has only that. */
	while (end && (end = memmem(end - 2, (size_t)(f->end - end + 2), "\r\n", 2)) &&
	       ((size_t)(f->end - end) < f->n_line + 4 || memcmp(end + 2, f->line, f->n_line) != 0))
		end = (size_t)(f->end - end) > 4 ? end + 4 : NULL;
	out->name = end ? name_in(f->p, (size_t)(head - f->p), &out->n_name) : NULL;
	if (!out->name) {
		problem_set(p, 400, "invalid_value", NULL, "the form is broken after %zd of %zd bytes", f->p - f->line,
		            f->end - f->line);
		return false;
	}
	out->p = head + 4;
	out->n = end > head + 4 ? (size_t)(end - head - 4) : 0;
	f->p = end + 2 + f->n_line;
	f->p += memcmp(f->p, "--", 2) ? 2 : f->end - f->p;
	return true;
}

/* ---- as a chat ---- */

struct wish {
	struct form_part file, language, prompt, format;
	struct buf more; /* members of the chat's body, each with a comma before it */
};

static bool is(const struct form_part *f, const char *name)
{
	return f->n_name == strlen(name) && !memcmp(f->name, name, f->n_name);
}

/* Makes a part that is not of the message a member of the body, whose value is a number or a truth where it is written as one. */
static void take_member(struct wish *w, const struct form_part *f)
{
	bool plain = is(f, "temperature") || is(f, "stream") || is(f, "seed") || is(f, "max_completion_tokens");
	char text[40] = "", *end;
	double v;

	if (plain && f->n < sizeof text && !memchr(f->p, '\0', f->n))
		memcpy(text, f->p, f->n);
	v = strtod(text, &end);
	buf_putc(&w->more, ',');
	json_put_str(&w->more, f->name, f->n_name);
	buf_putc(&w->more, ':');
	if (*text && !*end && isfinite(v) && !strpbrk(text, "xX"))
		buf_printf(&w->more, "%.17g", v);
	else if (!strcasecmp(text, "true") || !strcasecmp(text, "false"))
		buf_puts(&w->more, strcasecmp(text, "true") ? "false" : "true");
	else
		json_put_str(&w->more, f->p, f->n);
}

/* Times of segments are what verbose_json has by itself, and its list of them is empty. */
static bool asks_for_words(const struct form_part *f)
{
	return (is(f, "timestamp_granularities[]") || is(f, "timestamp_granularities")) && f->n == 4 &&
	       !memcmp(f->p, "word", 4);
}

static int read_form(struct wish *w, const char *body, size_t n, struct problem *p)
{
	struct form_part part;
	struct form f;
	int r = form_begin(&f, body, n, p);

	while (!r && form_next(&f, &part, p)) {
		struct form_part *to = is(&part, "file")            ? &w->file :
		                       is(&part, "language")        ? &w->language :
		                       is(&part, "prompt")          ? &w->prompt :
		                       is(&part, "response_format") ? &w->format :
		                                                      NULL;

		if (to)
			*to = part;
		else if (asks_for_words(&part))
			r = problem_set(p, 400, "unsupported_content", "timestamp_granularities",
			                "timestamp_granularities: times of words are not known");
		else if (is(&part, "messages") || is(&part, "transcript"))
			r = problem_set(p, 400, "invalid_value", NULL, "%.*s is not a field here", (int)part.n_name,
			                part.name);
		else
			take_member(w, &part);
	}
	if (r || p->status)
		return p->status;
	if (!w->file.p)
		return problem_set(p, 400, "missing_field", "file", "file: missing; it is the sound");
	if (utf8_valid(w->language.p, w->language.n) < w->language.n ||
	    utf8_valid(w->prompt.p, w->prompt.n) < w->prompt.n)
		return problem_set(p, 400, "invalid_value", "prompt", "prompt and language are to be UTF-8");
	return 0;
}

static void put_part(struct buf *b, const char *before, const struct form_part *f, const char *after)
{
	buf_puts(b, before);
	buf_put(b, f->p, f->n);
	buf_puts(b, after);
}

/* Appends the text that goes with the sound, as a JSON string.  The words are those of the makers of models that transcribe. */
static void put_question(struct buf *b, const struct wish *w, bool translate)
{
	struct buf text;

	buf_init(&text);
	buf_puts(&text, translate ? "Translate the speech of this sound into English." :
	                            "Transcribe the speech of this sound");
	if (!translate && w->language.n)
		put_part(&text, ", which is in the language \"", &w->language, "\".");
	else if (!translate)
		buf_puts(&text, " in its original language.");
	buf_puts(&text, " Only output the text, with no newlines.");
	if (w->prompt.n)
		put_part(&text, "\nContext: ", &w->prompt, "");
	json_put_str(b, text.p, text.n);
	buf_fini(&text);
}

static void prep(struct exchange *x)
{
	struct wish w = { 0 };
	struct json *body = NULL;
	struct buf b;

	buf_init(&w.more);
	buf_init(&b);
	if (!read_form(&w, x->body.p, x->body.n, &x->problem)) {
		buf_puts(
			&b,
			"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"");
		base64_put(&b, w.file.p, w.file.n);
		buf_puts(&b, "\"}},{\"type\":\"text\",\"text\":");
		put_question(&b, &w, strstr(x->route->path, "translations") != NULL);
		buf_puts(&b, "}]}],\"transcript\":");
		json_put_str(&b, w.format.n ? w.format.p : "json", w.format.n ? w.format.n : 4);
		buf_put(&b, w.more.p, w.more.n);
		buf_putc(&b, '}');
		body = body_parse(b.p, b.n, &x->problem);
	}
	buf_fini(&x->body);
	buf_fini(&b);
	buf_fini(&w.more);
	if (body)
		generation_prep_as(x, x->route->endpoint, body);
}

/* ---- reading ---- */

enum form_of { FORM_JSON, FORM_TEXT, FORM_VERBOSE };

static void *own_new(void)
{
	return xcalloc(1, sizeof(enum form_of));
}

static int read_chat(struct generation *g, struct chat *c, struct problem *p)
{
	static const char *const forms[] = { "json", "text", "verbose_json" };
	enum form_of *form = g->own;
	size_t n;
	const char *s = json_str(json_get(g->body, "transcript"), &n);
	int r;

	for (*form = FORM_JSON; *form <= FORM_VERBOSE; ++*form)
		if (s && !strcmp(s, forms[*form]))
			break;
	if (*form > FORM_VERBOSE)
		return problem_set(
			p, 400, "unsupported_content", "response_format",
			"response_format is \"%.40s\": json, text and verbose_json are written, times are not known",
			s);
	if ((r = chat_read(g, c, p)))
		return r;
	if (!c->effort && c->think < 0 && chat_template(g, c) && template_uses(chat_template(g, c), "enable_thinking"))
		c->think = 0;
	if (!json_get(g->body, "temperature"))
		g->params.sampling.temperature = 0;
	return 0;
}

static int read_body(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field own[] = { { "transcript" }, { NULL } };
	static const struct field *const tables[] = { own, chat_fields, params_fields, NULL };

	return chat_body(g, body, tables, read_chat, chat_prompt, p);
}

/* ---- writing ---- */

/* Appends what has come of the answer to c->text.  Returns where the new text begins. */
static size_t take_news(struct choice *c)
{
	size_t before = c->text.n;
	struct piece piece;
	bool begins;

	while (chat_next(c, &piece, &begins))
		if (piece.kind == PIECE_CONTENT)
			buf_put(&c->text, c->split.text.p + piece.at, piece.n);
	return before;
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	size_t from = take_news(c);

	if (c->text.n == from)
		return;
	event_begin(out);
	buf_puts(out, "{\"type\":\"transcript.text.delta\",\"delta\":");
	json_put_str(out, c->text.p + from, c->text.n - from);
	buf_putc(out, '}');
	event_end(out);
}

static void put_tokens(const struct generation *g, struct buf *out)
{
	struct usage u = generation_usage(g);
	int rows = g->images.n_span ? g->images.span[0].n : 0;

	buf_printf(
		out,
		"{\"type\":\"tokens\",\"input_tokens\":%d,\"input_token_details\":{\"text_tokens\":%d,\"audio_tokens\":%d,"
		"\"cached_tokens\":%d},\"output_tokens\":%d,\"total_tokens\":%d}",
		u.prompt, u.prompt - rows, rows, u.cached, u.output, u.prompt + u.output);
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	delta(g, c, out);
	event_begin(out);
	buf_puts(out, "{\"type\":\"transcript.text.done\",\"text\":");
	json_put_str(out, c->text.p, c->text.n);
	buf_puts(out, ",\"usage\":");
	put_tokens(g, out);
	buf_putc(out, '}');
	event_end(out);
}

static void close_stream(struct generation *g, struct buf *out) {}

static void whole(struct generation *g, struct buf *out)
{
	struct choice *c = &g->choice[0];
	enum form_of form = *(enum form_of *)g->own;

	take_news(c);
	if (form == FORM_TEXT) {
		g->reply_type = "text/plain; charset=utf-8";
		buf_put(out, c->text.p, c->text.n);
		buf_putc(out, '\n');
		return;
	}
	buf_puts(out, "{\"text\":");
	json_put_str(out, c->text.p, c->text.n);
	if (form == FORM_VERBOSE)
		buf_printf(out, ",\"task\":\"%s\",\"duration\":%.3f,\"segments\":[]",
		           strstr(g->x->route->path, "translations") ? "translate" : "transcribe",
		           g->images.n_span ? g->images.span[0].media->seconds : 0);
	buf_puts(out, ",\"usage\":");
	put_tokens(g, out);
	buf_puts(out, "}\n");
}

const struct endpoint transcribe_endpoint = {
	.prep = prep,
	.ready = generation_ready,
	.wake = generation_wake,
	.drop = generation_drop,
	.abandon = generation_abandon,
	.stop = generation_stop,
	.id_prefix = "transcript-",
	.own_new = own_new,
	.own_free = free,
	.read = read_body,
	.open = chat_open,
	.token = chat_token,
	.end = chat_end,
	.delta = delta,
	.last = last,
	.close = close_stream,
	.whole = whole,
};
