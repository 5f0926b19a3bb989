/* generate.c - see generate.h. */
#include "server/chat/generate.h"
#include "text/tokens/mask_source.h"

#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/rng.h"
#include "embed/embedder.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/journal.h"
#include "server/chat/structured.h"

enum {
	/* A stream's text is flushed to the connection in pieces of about this size, so
	 * that a client that catches up is not sent megabytes past its mark at once. */
	FLUSH_BYTES = 16 << 10,
	EOS_TOKENS_MAX = 64, /* of a model; a few are known to have three */
};

/* ---- on a worker ---- */

int model_read(struct generation *g, const struct json *body, struct problem *p)
{
	const struct json *v;
	const char *name = NULL;
	size_t n = 0;
	int r;

	if ((r = field_value(body, "model", JSON_STRING, &v, p)))
		return r;
	if (v)
		name = json_str(v, &n);
	return adapters_read(&g->adapters, g->served, g->x ? &g->x->model->adapter_scales : NULL, name, n, body, p);
}

const char *model_shown(const struct generation *g)
{
	return g->adapters.name ? g->adapters.name : g->served->name;
}

void generation_prompts(struct generation *g, int n)
{
	g->prompts.of = xcalloc((size_t)n, sizeof *g->prompts.of);
	g->prompts.n = n;
	for (int i = 0; i < n; i++)
		tokens_init(&g->prompts.of[i]);
}

static const char *prompt_called(const struct prompts *a)
{
	return a->called ? a->called : "the prompt";
}

/* The words that clients look for, to make a history shorter, are in it: "prompt is too
 * long", "maximum context length". */
static int too_long(const struct generation *g, struct problem *p, const char *about, size_t n)
{
	char most[40] = "what is left";

	if (g->params.max_tokens >= 0)
		snprintf(most, sizeof most, "up to %lld", (long long)g->params.max_tokens);
	return problem_set(
		p, 400, "context_length_exceeded", NULL,
		"%s is too long: %s%zu tokens, and %s for the answer; the maximum context length of this model is"
		" %d tokens, the answer included",
		prompt_called(&g->prompts), about, n, most, g->served->ctx_max);
}

int generation_tokenize(struct generation *g, int i, const char *text, size_t n, unsigned flags,
                        const struct text_range *user, size_t n_user, struct problem *p)
{
	const struct served *d = g->served;
	size_t longest = g->x ? (size_t)g->x->model->longest_token : 0;
	struct err err;
	int r;

	if (g->x && atomic_load(&g->x->gone))
		return problem_set(p, 499, NULL, NULL, "the client left");
	/* Before the work: normalisation may shrink a text, but not by more than 3. */
	if (!g->endpoint->any_length && !g->prompts.cut && longest && n / 3 / longest > (size_t)d->ctx_max)
		return too_long(g, p, "more than ", n / 3 / longest);
	if (g->params.cache_salt)
		flags |= TOKENIZE_APART;
	r = tokenizer_encode_ranges(d->tokenizer, text, n, flags, user, n_user, &g->prompts.of[i], &err);
	if (r)
		return problem_set(p, 400, "invalid_prompt", NULL, "the prompt cannot be tokenised: %s", err.msg);
	return 0;
}

/* Empty and overlong prompts. */
static int check_prompts(struct generation *g, struct problem *p)
{
	for (int i = 0; i < g->prompts.n && !g->endpoint->any_length; i++) {
		if (!g->prompts.of[i].n)
			return problem_set(p, 400, "invalid_prompt", g->prompts.called ? g->prompts.called : "prompt",
			                   "%s is empty", prompt_called(&g->prompts));
		if (g->prompts.of[i].n >=
		    (size_t)g->served->ctx_max + (g->rows.kinds != 0)) /* no answer follows rows */
			return too_long(g, p, "", g->prompts.of[i].n);
	}
	return 0;
}

/* An answer cannot be longer than it may be. */
static int check_lengths(const struct generation *g, struct problem *p)
{
	const struct params *a = &g->params;

	if (a->max_tokens <= 0 || a->sampling.min_tokens <= a->max_tokens)
		return 0;
	return problem_set(p, 400, "invalid_value", "min_tokens",
	                   "min_tokens is %d, and the answer ends after at most %lld", a->sampling.min_tokens,
	                   (long long)a->max_tokens);
}

static int check_strict(const struct generation *g, struct problem *p)
{
	const struct warnings *w = &g->params.warnings;
	struct buf b;

	if (!g->served->strict || !warnings_some(w))
		return 0;
	buf_init(&b);
	warnings_put(w, &b);
	problem_set(p, 400, w->unknown.n ? "unknown_field" : "unsupported_field", NULL,
	            "this server was told to refuse what it does not honour: %s", b.p);
	buf_fini(&b);
	return p->status;
}

/* The client that the request counts for, if its key does not say. */
static void name_client(struct exchange *x, const struct json *body)
{
	static const char *const names[] = { "user", "safety_identifier" };
	const char *user = NULL;
	size_t n = 0;

	if (x->from.keyed)
		return;
	for (int i = 0; i < 2 && !user; i++)
		user = json_str(json_get(body, names[i]), &n);
	if (!user)
		user = json_str(json_get(json_get(body, "metadata"), "user_id"), &n);
	client_name(user, user ? n : 0, x->from.peer, x->from.client);
}

static void log_prompts(const struct generation *g)
{
	struct buf text;

	for (int i = 0; i < g->prompts.n; i++) {
		buf_init(&text);
		tokenizer_decode(g->served->tokenizer, g->prompts.of[i].id, g->prompts.of[i].n, false, &text);
		access_log_prompt(g->x, text.p, text.n);
		buf_fini(&text);
	}
}

static void log_params(const struct generation *g)
{
	const struct params *a = &g->params;
	const struct sampler_params *s = &a->sampling;

	log_debug(
		"%s: prompts %d of %zu.. tokens, n %d, max_tokens %lld, stream %d, temperature %g, top_p %g, top_k %d, "
		"min_p %g, penalties %g %g %g, seed %s%llu, %d stop strings, %d stop tokens, %d biases, logprobs %d",
		g->x->request_id, g->prompts.n, g->prompts.n ? g->prompts.of[0].n : 0, a->n, (long long)a->max_tokens,
		a->stream, (double)s->temperature, (double)s->top_p, s->top_k, (double)s->min_p,
		(double)s->repetition_penalty, (double)s->presence_penalty, (double)s->frequency_penalty,
		a->seeded ? "" : "new ", (unsigned long long)(a->seeded ? s->seed : 0), a->n_stop, a->n_stop_token,
		s->n_bias, s->n_logprobs);
}

static void prompts_fini(struct prompts *a)
{
	for (int i = 0; i < a->n; i++)
		tokens_fini(&a->of[i]);
	free(a->of);
}

static void led_init(struct led *l)
{
	tokens_init(&l->open);
	tokens_init(&l->end);
	tokens_init(&l->then);
}

static void led_fini(struct led *l)
{
	tokens_fini(&l->open);
	tokens_fini(&l->end);
	tokens_fini(&l->then);
}

static void rows_wish_fini(struct rows_wish *w)
{
	free(w->kind);
	free(w->from);
	free(w->second);
}

struct generation *generation_new(const struct served *served, const struct endpoint *as)
{
	struct generation *g = xcalloc(1, sizeof *g);

	g->endpoint = as;
	g->served = served;
	g->created = (int64_t)time(NULL);
	g->images.sight = served->sight;
	params_init(&g->params, g->served);
	g->own = as->own_new ? as->own_new() : NULL;
	g->own_free = as->own_free;
	buf_init(&g->echo);
	led_init(&g->led);
	return g;
}

static bool only_embeds(const struct served *d)
{
	return d->embedder && !d->embedder->writes;
}

static void free_bodies(struct generation *g)
{
	json_free(g->body);
	json_free(g->made);
	json_free(g->tools.shown);
	g->body = g->made = g->tools.shown = NULL;
	g->tools.list = NULL;
}

void generation_prep_as(struct exchange *x, const struct endpoint *as, struct json *body)
{
	struct generation *g;
	bool streams = false;

	x->waited.streams = as == x->route->endpoint && as->delta && !as->stream_type &&
	                    !json_to_bool(json_get(body, "stream"), &streams) && streams;
	if (known_choose(x, body, &x->problem)) {
		json_free(body);
		return;
	}
	g = generation_new(&x->model->served, as);
	g->x = x;
	g->images.store = &x->model->images;
	g->images.folders = &x->srv->image_folders;
	g->images.hosts = &x->srv->image_hosts;
	g->params.cache_report = x->headers.cache_report;
	x->work = g;
	if (!as->takes_texts && !as->any_length && only_embeds(g->served)) {
		problem_set(&x->problem, 400, "unsupported_model", "model",
		            "%s writes no text: it is for vectors or scores of texts (docs/embeddings.md)",
		            g->served->name);
		json_free(body);
	} else if (journal_find(g, &x->problem))
		json_free(body);
	else if (as->read(g, body, &x->problem))
		fields_own_name(&g->params.warnings, &x->problem);
	else if (!check_strict(g, &x->problem) && !check_lengths(g, &x->problem) && !check_prompts(g, &x->problem))
		journal_begin(g, &x->problem);
	/* The report stands in usage. */
	if (g->params.cache_report && g->params.stream)
		g->params.include_usage = true;
	name_client(x, g->body);
	buf_reset(&x->warned);
	warnings_put(&g->params.warnings, &x->warned);
	if (!x->problem.status && x->srv->opts.log_prompts)
		log_prompts(g);
	if (!x->problem.status && log_wants(LOG_DEBUG))
		log_params(g);
	/* Here, for a large one takes a while to free; its tools are still looked at.  Parts of it that this thread frees
	 * later, when its client has left, are no other thread's then. */
	if (!g->tools.list || allowance_why())
		free_bodies(g);
}

void generation_prep(struct exchange *x)
{
	struct json *body = body_parse(x->body.p, x->body.n, &x->problem);

	if (x->srv->opts.journal) {
		struct sha256 h;

		sha256_init(&h);
		sha256_field(&h, x->route->path, strlen(x->route->path));
		sha256_field(&h, x->body.p, x->body.n);
		sha256_end(&h, &x->asked);
	}
	buf_fini(&x->body);
	if (body)
		generation_prep_as(x, x->route->endpoint, body);
}

/* The header that tells what of the request was not honoured. */
static void put_warnings(const struct generation *g, struct buf *header)
{
	if (!warnings_some(&g->params.warnings))
		return;
	buf_puts(header, "x-weft-warning: ");
	warnings_put(&g->params.warnings, header);
	buf_puts(header, "\r\n");
}

/* ---- to the engine ---- */

static int refuse_submit(struct problem *p, const struct err *err, const struct refusal *why)
{
	if (err->code == E_FULL || err->code == E_LATE) {
		/* 429: others would be taken, and this client will be once it has less waiting. */
		if (why->limit == LIMIT_SHARE)
			problem_set(p, 429, "client_over_share", NULL, "%s", err->msg);
		else
			problem_set(p, 503, why->limit == LIMIT_DEADLINE ? "deadline" : "overloaded", NULL, "%s",
			            err->msg);
		p->retry_after = why->retry_s > 0 ? why->retry_s : 1;
		return p->status;
	}
	if (err->code == E_GONE)
		return problem_stopping(p);
	if (err->code == E_LIMIT)
		return problem_set(p, 400, "context_length_exceeded", NULL, "%s", err->msg);
	return problem_set(p, err->code == E_ARG ? 400 : 500, NULL, NULL, "%s", err->msg);
}

/* The rows of prompt i, which has n tokens. */
static void ask_rows(struct ask *ask, const struct rows_wish *w, int i, int n)
{
	ask->rows = w->kind && w->kind[i] ? w->kind[i] : w->kinds;
	ask->rows_from = w->from ? w->from[i] : n - 1;
	ask->second = w->second ? w->second[i] : 0;
}

static int submit(struct generation *g, struct choice *c, struct problem *p)
{
	const struct params *a = &g->params;
	const struct served *d = g->served;
	const struct tokens *prompt = &g->prompts.of[c->prompt];
	int told = g->prompts.told ? (int)prompt->n - 1 : 0;
	/* Prompt tokens give the same state whether they are computed as a prompt or forced as output. */
	struct lead whole = { .open = -1, .close = -1, .think_max = -1, .then = prompt->id + 1, .n_then = told };
	int32_t stop[STOP_TOKENS_MAX + EOS_TOKENS_MAX];
	int64_t room = d->ctx_max - (int64_t)prompt->n;
	struct refusal why = { 0 };
	struct err err;
	struct ask ask = {
		.prompt = prompt->id,
		.n_prompt = (int)prompt->n - told,
		.span = g->images.span,
		.n_span = g->images.n_span,
		.max_tokens = told + (int)(a->max_tokens < 0 || a->max_tokens > room ? room : a->max_tokens),
		.sampling = a->sampling,
		.stop_token = stop,
		.stop = (const char *const *)a->stop,
		.n_stop = a->n_stop,
		.skip_special = a->skip_special,
		.mark = g->marks.at,
		.n_mark = g->marks.n,
		.mark_kind = g->marks.kind,
		.cache_salt = a->cache_salt,
		.adapters = adapters_ask(&g->adapters),
		.lead = told      ? &whole :
		        g->led.on ? &g->led.lead :
		                    NULL,
		.priority = a->priority,
		.n_draft = a->n_draft,
		.client = client_number(g->x->from.client),
		.deadline_ns = g->x->deadline.ns,
		.refusal = &why,
		.notify = exchange_notify,
		.notify_arg = g->x,
	};

	ask_rows(&ask, &g->rows, c->prompt, (int)prompt->n);
	for (int i = 0; i < a->n_stop_token; i++)
		stop[ask.n_stop_token++] = a->stop_token[i];
	for (int i = 0; i < d->n_eos && i < EOS_TOKENS_MAX && !a->ignore_eos; i++)
		stop[ask.n_stop_token++] = d->eos[i];
	/* Choices of one prompt differ by their seed; the first is what n = 1 gives. */
	ask.sampling.seed = a->seeded ? a->sampling.seed + (uint64_t)(c->index % a->n) : rng_os_seed();
	if (g->stream.journal)
		ask.expect = journal_known(g->stream.journal, &ask.n_expect);
	ask.mask = structured_mask(g, stop, ask.n_stop_token);
	if (engine_submit(d->engine, &ask, &c->req, &err)) {
		if (ask.mask)
			ask.mask->ops->free(ask.mask);
		return refuse_submit(p, &err, &why);
	}
	return 0;
}

static void send_events(struct generation *g, const struct buf *out)
{
	g->stream.sent |= out->n > 0;
	if (!g->x->detached)
		conn_stream(g->x->conn, out->p, out->n);
	else if (out->n)
		g->endpoint->apart_events(g, out->p, out->n);
}

/* Sends events of the answer itself, which have ids where the stream has a journal. */
static void send_answer(struct generation *g, struct buf *out)
{
	if (g->stream.journal)
		journal_number(g->stream.journal, out);
	send_events(g, out);
}

static void end_stream(struct generation *g, const struct buf *out)
{
	send_events(g, out);
	if (!g->x->detached)
		conn_stream_end(g->x->conn);
}

/* Proxies and clients give up a connection on which nothing moves, as none does
 * while a request waits or a long prompt is computed. */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct generation *g = arg;
	const char *sign = g->endpoint->stream_type ? g->endpoint->keep_alive : ": keep-alive\n\n";

	server_turn(g->x->srv);
	(void)fd;
	(void)what;
	if (!g->stream.sent && conn_has_room(g->x->conn))
		conn_stream(g->x->conn, sign, strlen(sign));
	g->stream.sent = false;
}

static void keep_alive(struct generation *g)
{
	int ms = g->x->srv->opts.keep_alive_ms;
	struct timeval every = { ms / 1000, ms % 1000 * 1000 };

	if (!ms || (g->endpoint->stream_type && !g->endpoint->keep_alive))
		return;
	g->stream.tick = event_new(g->x->srv->base, -1, EV_PERSIST, on_tick, g);
	if (!g->stream.tick)
		fault_no_memory();
	event_add(g->stream.tick, &every);
}

static void tell_first(struct generation *g, struct choice *c, struct buf *out)
{
	if (g->endpoint->first && !c->told_first)
		g->endpoint->first(g, c, out);
	c->told_first = true;
}

void generation_stream(struct generation *g)
{
	struct buf extra, out;

	buf_init(&extra);
	buf_init(&out);
	/* The second keeps a proxy of the nginx kind from gathering the stream. */
	buf_puts(&extra, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
	put_warnings(g, &extra);
	if (!g->x->waited.began && !g->x->detached)
		conn_stream_begin(g->x->conn,
		                  g->endpoint->stream_type ? g->endpoint->stream_type :
		                                             "text/event-stream; charset=utf-8",
		                  extra.p);
	g->stream.begun = true;
	g->x->status = 200;
	for (int i = 0; i < g->n_choice && !g->endpoint->first_when_started; i++)
		tell_first(g, &g->choice[i], &out);
	send_answer(g, &out);
	if (!g->x->detached)
		keep_alive(g);
	buf_fini(&extra);
	buf_fini(&out);
}

void choice_open(struct generation *g, struct choice *c)
{
	tokens_init(&c->said);
	buf_init(&c->text);
	buf_init(&c->called);
	for (int k = 0; k < 4; k++)
		buf_init(&c->logprobs[k]);
	if (g->endpoint->open)
		g->endpoint->open(g, c);
}

static void answer_nothing(struct generation *g)
{
	struct buf b;

	buf_init(&b);
	g->endpoint->nothing(g, &b);
	generation_reply(g, &b);
	buf_fini(&b);
}

/* Gives choices to the engine: all answers, or as many texts as leave others' requests room in the queue. */
static int submit_more(struct generation *g, struct problem *p)
{
	enum { TEXTS_AT_ONCE = 64 };
	int most = g->rows.kinds ? g->n_done + TEXTS_AT_ONCE : g->n_choice, r = 0;

	if (g->rows.kinds && g->served->queue_max && most > g->n_done + g->served->queue_max)
		most = g->n_done + g->served->queue_max;
	for (; g->n_submitted < g->n_choice && g->n_submitted < most && !r; g->n_submitted++)
		r = submit(g, &g->choice[g->n_submitted], p);
	return r;
}

int generation_start(struct exchange *x, struct problem *p)
{
	struct generation *g = x->work;

	g->n_choice = g->prompts.n * g->params.n;
	g->choice = xcalloc((size_t)g->n_choice, sizeof *g->choice);
	for (int i = 0; i < g->n_choice; i++) {
		struct choice *c = &g->choice[i];

		c->index = i;
		c->prompt = i / g->params.n;
		c->usage.prompt = (int)g->prompts.of[c->prompt].n;
		choice_open(g, c);
	}
	if (submit_more(g, p))
		return p->status; /* drop cancels those before it */
	/* The engine has its copies. */
	for (int i = 0; i < g->prompts.n && !g->params.cache_report && !g->prompts.told && !g->rows.kinds; i++)
		tokens_fini(&g->prompts.of[i]);
	if (g->stream.journal && x->headers.last_event.asked)
		x->srv->metrics.continued++;
	return 0;
}

void generation_ready(struct exchange *x)
{
	struct generation *g = x->work;
	struct problem p;

	if (!g->prompts.n && g->endpoint->nothing)
		answer_nothing(g);
	else if (generation_start(x, &p))
		exchange_refuse(x, &p);
	else if (g->params.stream)
		generation_stream(g);
}

/* ---- from the engine ---- */

/* Fills in this answer's line of the access log. */
static void account(const struct generation *g, const char *how)
{
	struct access *a = &g->x->access;
	int64_t decode = g->t_first ? clock_monotonic_ns() - g->t_first : 0;

	*a = (struct access){ .finish = how, .queue_ns = a->queue_ns };
	for (int i = 0; i < g->n_choice; i++) {
		const struct choice *c = &g->choice[i];

		/* Until DONE tells, what was submitted. */
		a->n_prompt += c->usage.prompt;
		a->n_cached += c->usage.cached;
		a->n_output += c->usage.output;
	}
	if (g->t_first)
		a->first_ns = g->t_first - g->x->t_begin;
	if (decode > 0 && a->n_output > 1)
		a->rate = (a->n_output - 1) * 1e9 / (double)decode;
}

static void take_token(struct generation *g, struct choice *c, const struct event *ev)
{
	struct metrics *m = &g->x->srv->metrics;
	int64_t now = clock_monotonic_ns();

	if (!g->t_first)
		g->t_first = now;
	if (!c->t_last)
		histogram_add(&m->first_token, (double)(now - g->x->t_begin) / 1e9, 1);
	else
		histogram_add(&m->next_token, (double)(now - c->t_last) / 1e9, 1);
	c->t_last = now;
	c->usage.output++;
	if (g->past.header)
		tokens_put(&c->said, ev->token);
	g->endpoint->token(g, c, ev);
}

/* Adds the n bytes of text a DONE may bring to what the tokens brought. */
static void take_done(struct generation *g, struct choice *c, const struct event *ev)
{
	struct metrics *m = &g->x->srv->metrics;

	if (ev->n_text)
		g->endpoint->token(
			g, c, &(struct event){ .kind = EV_DONE, .token = -1, .text = ev->text, .n_text = ev->n_text });
	c->done = true;
	c->finish = ev->finish;
	c->stop_text = ev->stop_text;
	c->usage.prompt = ev->n_prompt;
	c->usage.cached = ev->n_cached;
	c->usage.accepted = ev->n_accepted;
	c->usage.rejected = ev->n_rejected;
	c->usage.output = ev->n_output;
	if (g->prompts.told) {
		c->usage.prompt = (int)g->prompts.of[c->prompt].n;
		c->usage.output -= c->usage.prompt - ev->n_prompt;
	}
	g->x->access.queue_ns = ev->queue_ns;
	if (!c->index)
		g->prefix = ev->prefix;
	metrics_answer(m, ev);
	g->n_done++;
	g->endpoint->end(g, c);
}

/* The endpoint wants no more: as if the model had ended here. */
static void take_enough(struct generation *g, struct choice *c)
{
	request_cancel(c->req);
	c->done = true;
	c->finish = FINISH_STOP;
	g->n_done++;
	g->endpoint->end(g, c);
}

static enum left_at stage_of(const struct generation *g)
{
	enum left_at at = LEFT_QUEUED;

	for (int i = 0; i < g->n_choice; i++)
		if (g->choice[i].started && at < LEFT_PREFILL)
			at = LEFT_PREFILL;
	return g->t_first ? LEFT_DECODE : at;
}

/* One choice failed: so does the whole, since a reply has one status. */
static void break_off(struct generation *g, const struct problem *why)
{
	struct exchange *x = g->x;
	struct problem p = *why;
	struct buf out;

	p.shape = x->route->shape;
	if (x->detached)
		g->endpoint->apart_failed(g, &p);
	if (!g->stream.begun) {
		exchange_refuse(x, &p);
		return;
	}
	snprintf(x->access.why, sizeof x->access.why, "%s", p.message);
	buf_init(&out);
	if (g->endpoint->error) {
		g->endpoint->error(g, &p, &out);
	} else {
		event_begin(&out);
		problem_put(&out, &p);
		event_end(&out);
	}
	end_stream(g, &out);
	buf_fini(&out);
	exchange_end(x);
}

static void fail(struct generation *g, const struct err *err)
{
	struct problem p;

	if (err->code == E_LATE) {
		problem_set(&p, 504, "deadline", NULL, "%s", err->msg);
		account(g, "cancelled");
		g->x->cancel.cause = CAUSE_DEADLINE;
		exchange_cancelled(g->x, stage_of(g));
	} else if (err->code == E_FAULT || err->code == E_MEMORY) {
		exchange_fault(&p, err->code);
		g->x->srv->metrics.faults++;
		account(g, "error");
	} else {
		problem_set(&p, err->code == E_GONE ? 503 : 500, NULL, NULL, "%s", err->msg);
		account(g, "error");
	}
	break_off(g, &p);
}

void generation_reply(struct generation *g, struct buf *body)
{
	struct exchange *x = g->x;
	struct buf extra;

	buf_init(&extra);
	put_warnings(g, &extra);
	x->status = 200;
	if (x->conn)
		conn_reply_whole(x->conn, 200, g->reply_type ? g->reply_type : "application/json", extra.p, body);
	buf_fini(&extra);
	exchange_end(x);
}

static void finish(struct generation *g)
{
	struct exchange *x = g->x;
	struct buf out;

	histogram_add(&x->srv->metrics.whole, (double)(clock_monotonic_ns() - x->t_begin) / 1e9, 1);
	account(g, finish_name(g->choice[0].finish));
	buf_init(&out);
	if (g->stream.begun) {
		g->endpoint->close(g, &out);
		if (g->stream.journal)
			journal_number(g->stream.journal, &out);
		end_stream(g, &out);
	} else {
		g->endpoint->whole(g, &out);
		generation_reply(g, &out);
		buf_fini(&out);
		return;
	}
	buf_fini(&out);
	exchange_end(x);
}

/* The tokens of a stream that is continued are not those that it had. */
static void fail_to_continue(struct generation *g)
{
	struct problem p;

	log_error("%s: the answer differs from the one that is continued, after %d tokens", g->x->request_id,
	          g->choice[0].usage.output);
	problem_set(&p, 500, "other_answer", NULL,
	            "the answer that is continued has another token after %d: send the request without Last-Event-ID",
	            g->choice[0].usage.output);
	account(g, "error");
	break_off(g, &p);
}

/* Progress is of this computation, and has no id. */
static void tell_progress(struct generation *g, struct choice *c, const struct event *ev, struct buf *out)
{
	g->endpoint->progress(g, c, ev, out);
	if (!g->stream.journal)
		return;
	send_events(g, out);
	buf_reset(out);
}

/* Takes what waits of one choice and, in a stream, passes it on.  False: the
 * exchange is over. */
static bool pull(struct generation *g, struct choice *c)
{
	/* With a journal one token's events at a time, so that they are the same however tokens come. */
	size_t most = g->stream.journal ? 1 : FLUSH_BYTES;
	struct conn *conn = g->x->conn;
	struct event ev;
	struct buf out;

	buf_init(&out);
	while (!c->done && (!g->stream.begun || !conn || conn_has_room(conn))) {
		size_t taken = 0;

		while (!c->done && taken < most && request_next(c->req, &ev)) {
			if (ev.kind == EV_START) {
				c->started = true;
				c->usage.cached = ev.cached;
				/* An answer that its API ends has no DONE. */
				if (!c->index)
					g->prefix = ev.prefix;
				if (g->stream.begun && g->endpoint->first_when_started) {
					tell_first(g, c, &out);
					taken++;
				}
			} else if (ev.kind == EV_PROGRESS && g->stream.begun && g->params.progress &&
			           g->endpoint->progress) {
				tell_progress(g, c, &ev, &out);
				taken++;
			} else if (ev.kind == EV_TOKEN && g->stream.journal &&
			           !journal_take(g->stream.journal, g->x->srv, ev.token)) {
				c->done = true;
				buf_fini(&out);
				fail_to_continue(g);
				return false;
			} else if (ev.kind == EV_TOKEN) {
				take_token(g, c, &ev);
				if (c->enough)
					take_enough(g, c);
				/* With logprobs a token is some hundred bytes per alternative. */
				taken += ev.n_text + 100 +
				         (g->params.logprobs ? 200 * (size_t)(1 + g->params.top_logprobs) : 0);
			} else if (ev.kind == EV_DONE && (ev.finish == FINISH_ERROR || ev.finish == FINISH_CANCEL)) {
				c->done = true;
				if (ev.finish == FINISH_CANCEL)
					err_set(&ev.err, E_GONE, "the request was cancelled by the server");
				fail(g, &ev.err);
				buf_fini(&out);
				return false;
			} else if (ev.kind == EV_DONE) {
				take_done(g, c, &ev);
				if (g->stream.begun)
					tell_first(g, c, &out);
			}
		}
		if (!taken && !c->done)
			break;
		if (g->stream.begun) {
			g->endpoint->delta(g, c, &out);
			if (c->done)
				g->endpoint->last(g, c, &out);
			send_answer(g, &out);
			buf_reset(&out);
		}
		if (taken < most)
			break;
	}
	buf_fini(&out);
	return true;
}

void generation_wake(struct exchange *x)
{
	struct generation *g = x->work;
	struct problem p;

	/* A wake-up may be for the exchange that lived here before. */
	if (!g || !g->choice)
		return;
	for (int i = 0; i < g->n_submitted; i++)
		if (!g->choice[i].done && !pull(g, &g->choice[i]))
			return;
	if (g->n_submitted < g->n_choice && submit_more(g, &p)) {
		break_off(g, &p);
		return;
	}
	if (g->n_done == g->n_choice)
		finish(g);
}

const struct generation *generation_running(const struct exchange *x)
{
	return (x->conn || x->detached) && x->stage == RUNNING && x->route->endpoint->wake == generation_wake ?
	               x->work :
	               NULL;
}

void generation_stop(struct exchange *x, const struct problem *p)
{
	struct generation *g = x->work;

	account(g, "cancelled");
	exchange_cancelled(x, stage_of(g));
	break_off(g, p);
}

static void drop_json(void *p)
{
	json_free(p);
}

/* Values by the hundred thousand take a while.  One thread frees them all, for they share values. */
static void discard_bodies(struct generation *g)
{
	struct json *all = json_new_array();

	json_add(all, g->body);
	json_add(all, g->made);
	json_add(all, g->tools.shown);
	if (g->x && g->x->heavy)
		workers_discard(g->x->srv, drop_json, all);
	else
		json_free(all);
}

void generation_free(struct generation *g)
{
	if (g->stream.tick)
		event_free(g->stream.tick);
	for (int i = 0; i < g->n_choice; i++) {
		struct choice *c = &g->choice[i];

		if (c->req)
			request_free(c->req); /* cancels what is not done */
		split_fini(&c->split);
		free(c->ids.v);
		buf_fini(&c->text);
		buf_fini(&c->called);
		tokens_fini(&c->said);
		for (int k = 0; k < 4; k++)
			buf_fini(&c->logprobs[k]);
	}
	prompts_fini(&g->prompts);
	if (g->own_free)
		g->own_free(g->own);
	buf_fini(&g->echo);
	grammar_unref(g->held.content);
	grammar_unref(g->held.calls);
	led_fini(&g->led);
	free(g->choice);
	rows_wish_fini(&g->rows);
	free(g->messages.at);
	images_fini(&g->images);
	past_fini(&g->past);
	if (g->stream.journal)
		journal_close(g->stream.journal, g->x->srv);
	discard_bodies(g);
	tool_kinds_fini(&g->tools.kinds);
	params_fini(&g->params);
	free(g);
}

void generation_abandon(struct exchange *x)
{
	struct generation *g = x->work;

	for (int i = 0; g && g->choice && i < g->n_choice; i++)
		if (g->choice[i].req)
			request_free(g->choice[i].req);
}

void generation_drop(struct exchange *x)
{
	struct generation *g = x->work;

	if (!g)
		return;
	/* Nothing was replied, or a stream was broken off: the client left. */
	if (atomic_load(&x->gone) && g->choice) {
		account(g, "cancelled");
		exchange_cancelled(x, stage_of(g));
	}
	generation_free(g);
	x->work = NULL;
}

/* ---- shapes that endpoints share ---- */

void event_begin(struct buf *out)
{
	buf_puts(out, "data: ");
}
void event_named(struct buf *out, const char *name)
{
	buf_printf(out, "event: %s\ndata: ", name);
}
void event_end(struct buf *out)
{
	buf_puts(out, "\n\n");
}

const char *finish_name(enum finish f)
{
	return f == FINISH_STOP ? "stop" : f == FINISH_LENGTH ? "length" : NULL;
}

void put_reply_head(const struct generation *g, struct buf *out, const char *object)
{
	buf_printf(out, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", g->endpoint->id_prefix,
	           g->x->id, object, (long long)g->created);
	json_put_cstr(out, model_shown(g));
	buf_puts(out, ",\"choices\":");
}

void generation_explain(const struct generation *g, struct buf *out)
{
	struct explained x = { .ids = &g->prompts.of[0],
		               .message_at = g->messages.at,
		               .n_message = g->messages.n,
		               .n_turn = g->past.n_turn,
		               .n_turn_token = g->past.n_token };

	/* With several keys, the text of another client's prompt is not shown. */
	explain_put(out, g->served->tokenizer, &x, &g->prefix, atomic_load(&g->x->srv->clients.apart));
}

void put_cache_report(const struct generation *g, struct buf *out)
{
	if (!g->params.cache_report || g->n_done < g->n_choice)
		return;
	buf_puts(out, ",\"cache\":");
	generation_explain(g, out);
}

struct usage generation_usage(const struct generation *g)
{
	struct usage u = { 0 };

	for (int i = 0; i < g->n_choice; i++) {
		struct usage c = g->choice[i].usage;

		/* A prompt counts once, whatever n; so does what its first choice found. */
		if (g->choice[i].index % g->params.n == 0) {
			u.prompt += c.prompt;
			u.cached += c.cached;
		}
		u.output += c.output;
		u.thought += c.thought;
		u.accepted += c.accepted;
		u.rejected += c.rejected;
	}
	return u;
}

/* ,"NAME_n", "NAME_ms" and the two ratios, of n tokens in ms milliseconds. */
static void put_rate(struct buf *out, const char *name, int n, double ms)
{
	buf_printf(out, ",\"%s_n\":%d,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f", name, n, name,
	           ms, name, n ? ms / n : 0, name, ms > 0 ? n * 1e3 / ms : 0);
}

void put_timings(const struct generation *g, struct usage u, struct buf *out)
{
	int64_t now = clock_monotonic_ns(), first = g->t_first ? g->t_first : now;

	buf_printf(out, ",\"timings\":{\"cache_n\":%d", u.cached);
	put_rate(out, "prompt", u.prompt - u.cached, (double)(first - g->x->t_begin) / 1e6);
	put_rate(out, "predicted", u.output, (double)(now - first) / 1e6);
	if (u.accepted + u.rejected)
		buf_printf(out, ",\"draft_n\":%d,\"draft_n_accepted\":%d", u.accepted + u.rejected, u.accepted);
	buf_putc(out, '}');
}

void put_usage(const struct generation *g, struct buf *out, bool thinking)
{
	struct usage u = generation_usage(g);

	buf_printf(out,
	           "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
	           "\"prompt_tokens_details\":{\"cached_tokens\":%d}",
	           u.prompt, u.output, u.prompt + u.output, u.cached);
	buf_puts(out, ",\"completion_tokens_details\":{");
	if (thinking)
		buf_printf(out, "\"reasoning_tokens\":%d,", u.thought);
	buf_printf(out, "\"accepted_prediction_tokens\":%d,\"rejected_prediction_tokens\":%d}", u.accepted, u.rejected);
	put_cache_report(g, out);
	buf_putc(out, '}');
}

void close_openai(struct generation *g, const char *object, bool thinking, struct buf *out)
{
	if (g->params.include_usage) {
		event_begin(out);
		put_reply_head(g, out, object);
		buf_puts(out, "[],\"usage\":");
		put_usage(g, out, thinking);
		put_timings(g, generation_usage(g), out);
		buf_putc(out, '}');
		event_end(out);
	}
	event_begin(out);
	buf_puts(out, "[DONE]");
	event_end(out);
}

void put_progress(const struct generation *g, const struct choice *c, const struct event *ev, struct buf *out)
{
	(void)c;
	buf_printf(out, "{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%lld}", ev->total, ev->cached,
	           ev->done, (long long)((clock_monotonic_ns() - g->x->t_begin) / 1000000));
}

void put_token(const struct served *d, int32_t id, struct buf *out)
{
	size_t n = 0;
	const char *p = tokenizer_token_bytes(d->tokenizer, id, &n);

	json_put_str(out, p ? p : "", p ? n : 0);
}

void put_logprob(struct buf *out, float v)
{
	/* An impossible token has no finite logarithm; the API writes -9999 for it. */
	json_put_double(out, v >= -9999.0f ? (double)v : -9999.0);
}
