/* stub_engine.c - an engine without a model, for tests of the server.
 *
 * It answers with the prompt's own tokens, over and over, max_tokens of them, so
 * what an answer must be is known (but for what a struct lead gives).  The first words of the prompt's text choose
 * how: "queue" is never admitted, "prefill" is admitted and never begins,
 * "slow" takes a while for each token, "fail" ends with an error after three,
 * "expire" with its deadline after three; "full", "share", "late" and "large" are
 * refused when submitted; "assert" and "heap" fail there as a fault of ours would,
 * "broken" as its third token is taken.  Anything else is answered as
 * fast as it goes, a step of all requests at a time. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "engine/engine.h"
#include "engine/lead.h"
#include "engine/outbox.h"
#include "model/media.h"
#include "stub_engine.h"
#include "stub_sight.h"
#include "text/tokens/detok.h"
#include "text/tokens/mask_source.h"

enum way { PLAIN, QUEUE, PREFILL, SLOW, FAIL, EXPIRE, BROKEN, FAULT, EMPTY };

struct request {
	struct engine *e;
	struct request *next;
	struct outbox out;
	atomic_int refs;
	atomic_bool cancel;
	enum way way;
	int32_t *prompt;
	int n_prompt, max_tokens, n_out;
	int n_own; /* of n_out, those that are the prompt's */
	int n_top;
	int n_taken; /* the reader's */
	float row[2];
	struct tokens answer; /* scripted */
	char *salt;
	struct prefix_report prefix;
	bool started, over;
	struct detok detok;
	struct lead_run lead;
};

struct engine {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	const struct tokenizer *tok;
	struct request *all; /* not over yet */
	bool stop;
	int64_t moved_ns; /* clock: it last did something, or had nothing to do */
	bool slow;        /* all of them */
	bool script, odd;
	struct seq {
		int32_t *id;
		int n;
		char *salt;
	} * seq; /* script: all there were */
	int n_seq;
	struct engine_stats stats;
};

static void release(struct request *r)
{
	if (atomic_fetch_sub(&r->refs, 1) > 1)
		return;
	outbox_fini(&r->out);
	lead_fini(&r->lead);
	free(r->prompt);
	free(r->salt);
	tokens_fini(&r->answer);
	free(r);
}

static void keep(struct request *r)
{
	struct engine *e = r->e;
	struct seq *s;

	e->seq = xrealloc(e->seq, size_mul((size_t)e->n_seq + 1, sizeof *e->seq));
	s = &e->seq[e->n_seq++];
	s->n = r->n_prompt + r->n_out;
	s->id = xmalloc(size_mul((size_t)s->n, sizeof *s->id));
	memcpy(s->id, r->prompt, (size_t)r->n_prompt * sizeof *s->id);
	memcpy(s->id + r->n_prompt, r->answer.id, (size_t)r->n_out * sizeof *s->id);
	s->salt = xstrdup(r->salt);
}

static void look_up(struct request *r)
{
	r->prefix = (struct prefix_report){ .reason = PREFIX_EMPTY, .first_diff = -1, .was = -1 };
	for (int i = 0; i < r->e->n_seq; i++) {
		const struct seq *s = &r->e->seq[i];
		int k = 0;

		while (k < s->n && k < r->n_prompt - 1 && s->id[k] == r->prompt[k])
			k++;
		if (!strcmp(s->salt, r->salt) && k > r->prefix.resumed)
			r->prefix = (struct prefix_report){ .source = PREFIX_MEMORY,
				                            .reason = PREFIX_HIT,
				                            .resumed = k,
				                            .junction = k,
				                            .first_diff = k < s->n ? k : -1,
				                            .was = k < s->n ? s->id[k] : -1 };
	}
}

/* Tokens of single characters, but for those that are one token by name. */
static void put_script(const struct tokenizer *t, const char *p, size_t n, struct tokens *out)
{
	static const char *const whole[] = { "<think>", "</think>", "<tool_call>", "</tool_call>" };

	for (size_t i = 0; i < n;) {
		size_t len = 1;

		for (int k = 0; k < 4; k++)
			if (!strncmp(p + i, whole[k], strlen(whole[k])) &&
			    tokenizer_find(t, whole[k], strlen(whole[k])) >= 0)
				len = strlen(whole[k]);
		if (tokenizer_encode(t, p + i, len, TOKENIZE_SPECIAL, out, NULL))
			abort();
		i += len;
	}
}

static void end(struct request *r, enum finish why, const char *text, size_t n)
{
	struct event ev = { .kind = EV_DONE,
		            .finish = why,
		            .text = text,
		            .n_text = n,
		            .n_prompt = r->n_prompt,
		            .n_output = r->n_out,
		            .n_cached = r->prefix.resumed,
		            .prefix = r->prefix };

	r->e->stats.finished[why]++;

	if (why == FINISH_ERROR && r->way == EXPIRE)
		err_set(&ev.err, E_LATE, "the deadline passed");
	else if (why == FINISH_ERROR && (r->way == FAULT || r->way == EMPTY))
		err_set(&ev.err, r->way == FAULT ? E_FAULT : E_MEMORY, "the stub was told to fail");
	else if (why == FINISH_ERROR)
		err_set(&ev.err, E_FORMAT, "the stub was told to fail");
	r->over = true;
	if (r->answer.n)
		keep(r);
	outbox_put(&r->out, &ev);
}

static void one_token(struct request *r)
{
	int32_t given = lead_next(&r->lead), id;
	struct event ev = { .kind = EV_TOKEN, .pick = { .logprob = -0.5f, .n_top = r->n_top } };
	struct buf text;

	if (given >= 0)
		id = given;
	else
		id = r->answer.n ? r->answer.id[r->n_own++] : r->prompt[r->n_own++ % r->n_prompt];
	ev.token = ev.pick.token = id;
	for (int i = 0; i < r->n_top; i++) {
		ev.pick.top[i].token = (id + i) % tokenizer_size(r->e->tok);
		ev.pick.top[i].logprob = -0.5f - (float)i;
	}
	buf_init(&text);
	detok_put(&r->detok, id, &text);
	ev.text = text.p;
	ev.n_text = text.n;
	r->n_out++;
	lead_take(&r->lead, id);
	outbox_put(&r->out, &ev);
	if (r->n_out >= r->max_tokens) {
		buf_reset(&text);
		detok_flush(&r->detok, &text);
		end(r, r->answer.n ? FINISH_STOP : FINISH_LENGTH, text.p, text.n);
	} else if ((r->way == FAIL || r->way == EXPIRE || r->way == FAULT || r->way == EMPTY) && r->n_out == 3) {
		end(r, FINISH_ERROR, "", 0);
	}
	buf_fini(&text);
}

/* True when it has something to do at once. */
static bool step(struct request *r)
{
	if (atomic_load(&r->cancel)) {
		end(r, FINISH_CANCEL, "", 0);
		return true;
	}
	if (r->way == QUEUE)
		return false;
	if (!r->started) {
		r->started = true;
		outbox_put(&r->out,
		           &(struct event){ .kind = EV_START, .cached = r->prefix.resumed, .prefix = r->prefix });
		outbox_put(&r->out, &(struct event){ .kind = EV_PROGRESS, .done = r->n_prompt, .total = r->n_prompt });
	}
	if (r->way == PREFILL)
		return false;
	one_token(r);
	return true;
}

static void *run(void *arg)
{
	struct engine *e = arg;

	pthread_mutex_lock(&e->lock);
	for (;;) {
		bool work = false, slow = false;
		int running = 0, waiting = 0;

		for (struct request **at = &e->all, *r; (r = *at);) {
			work |= step(r);
			slow |= r->way == SLOW;
			if (r->over) {
				*at = r->next;
				release(r);
				continue;
			}
			running += r->started;
			waiting += !r->started;
			at = &r->next;
		}
		e->stats.running = running;
		e->stats.waiting = waiting;
		e->stats.steps++;
		if (work || !e->all)
			e->moved_ns = clock_monotonic_ns();
		if (e->stop)
			break;
		if (!work) {
			pthread_cond_wait(&e->more, &e->lock);
		} else if (slow) {
			/* The pace of a small model: 5 ms a step. */
			pthread_mutex_unlock(&e->lock);
			nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
			pthread_mutex_lock(&e->lock);
		}
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

struct engine *stub_engine_open(const struct tokenizer *tok)
{
	struct engine *e = xcalloc(1, sizeof *e);

	e->tok = tok;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->more, NULL);
	pthread_create(&e->thread, NULL, run, e);
	return e;
}

void stub_engine_slow(struct engine *e)
{
	e->slow = true;
}

void stub_engine_script(struct engine *e, bool odd)
{
	e->script = true;
	e->odd = odd;
}

void engine_close(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	e->stop = true;
	for (struct request *r = e->all; r; r = r->next)
		atomic_store(&r->cancel, true);
	pthread_cond_signal(&e->more);
	pthread_mutex_unlock(&e->lock);
	pthread_join(e->thread, NULL);
	for (struct request *r = e->all, *next; r; r = next) {
		next = r->next;
		end(r, FINISH_CANCEL, "", 0);
		release(r);
	}
	for (int i = 0; i < e->n_seq; i++) {
		free(e->seq[i].id);
		free(e->seq[i].salt);
	}
	free(e->seq);
	pthread_mutex_destroy(&e->lock);
	pthread_cond_destroy(&e->more);
	free(e);
}

/* What stands between the last [[ and ]]. */
static void script_init(const struct engine *e, struct tokens *answer, const char *text)
{
	const char *to;

	tokens_init(answer);
	while (e->script && (text = strstr(text, "[[")) && (to = strstr(text, "]]"))) {
		tokens_reset(answer);
		if (e->odd)
			put_script(e->tok, text + 2, (size_t)(to - text) - 2, answer);
		else if (tokenizer_encode(e->tok, text + 2, (size_t)(to - text) - 2, TOKENIZE_SPECIAL, answer, NULL))
			abort();
		text = to;
	}
}

/* "say rows": the answer is where rows bring their vectors, how many, of what digest, from which row on, and how many
 * images were read so far. */
static void tell_rows(const struct engine *e, const struct ask *a, struct tokens *answer)
{
	struct buf b;

	buf_init(&b);
	for (int i = 0; i < a->n_span; i++) {
		const struct ask_span *s = &a->span[i];
		char hex[9];

		hex_put(hex, s->media->digest.b, 4);
		buf_printf(&b, "%d+%d:%s.%d ", s->at, s->n, hex, s->from);
		for (int k = 0; k < s->n; k++)
			assert(a->prompt[s->at + k] == s->media->row_token);
	}
	buf_printf(&b, "of %d, %d read", a->n_prompt, stub_sight_read());
	tokens_reset(answer);
	if (tokenizer_encode(e->tok, b.p, b.n, 0, answer, NULL))
		abort();
	buf_fini(&b);
}

static void fail_as_told(const char *text)
{
	assert(!strstr(text, "say assert"));
	if (strstr(text, "say heap")) {
		fault_alloc_at(1);
		free(xmalloc(1));
	}
}

int engine_submit(struct engine *e, const struct ask *a, struct request **out, struct err *err)
{
	static const struct {
		const char *word;
		enum way way;
	} ways[] = {
		{ "queue", QUEUE },   { "prefill", PREFILL }, { "slow", SLOW },   { "fail", FAIL },
		{ "expire", EXPIRE }, { "broken", BROKEN },   { "fault", FAULT }, { "empty", EMPTY },
	};
	struct request *r;
	struct tokens answer;
	struct buf text;
	bool full, large, share, late;
	enum way way = e->slow ? SLOW : PLAIN;

	buf_init(&text);
	tokenizer_decode(e->tok, a->prompt, (size_t)a->n_prompt, true, &text);
	full = strstr(text.p, "say full") != NULL;
	large = strstr(text.p, "say large") != NULL;
	share = strstr(text.p, "say share") != NULL;
	late = strstr(text.p, "say late") != NULL;
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		char say[40];

		snprintf(say, sizeof say, "say %s", ways[i].word);
		if (strstr(text.p, say))
			way = ways[i].way;
	}
	script_init(e, &answer, text.p);
	fail_as_told(text.p);
	if (strstr(text.p, "say rows"))
		tell_rows(e, a, &answer);
	buf_fini(&text);
	if (full || share || large || (late && a->deadline_ns))
		tokens_fini(&answer);
	if (full) {
		*a->refusal = (struct refusal){ .limit = LIMIT_COUNT, .retry_s = 7 };
		return err_set(err, E_FULL, "the queue is full: 3 of 3 requests wait");
	}
	if (share) {
		*a->refusal = (struct refusal){ .limit = LIMIT_SHARE, .retry_s = 3 };
		return err_set(err, E_FULL, "2 requests of this client are waiting and its share of the queue is 2");
	}
	if (late && a->deadline_ns) {
		*a->refusal = (struct refusal){ .limit = LIMIT_DEADLINE, .retry_s = 9 };
		return err_set(err, E_LATE, "in %lld s",
		               (long long)(a->deadline_ns - clock_monotonic_ns()) / 1000000000);
	}
	if (large)
		return err_set(err, E_LIMIT, "it would never fit: 5 pages of 4");
	r = xcalloc(1, sizeof *r);
	r->e = e;
	r->way = way;
	r->answer = answer;
	r->salt = xstrdup(a->cache_salt ? a->cache_salt : "");
	r->prompt = xmalloc(size_mul((size_t)a->n_prompt, sizeof(int32_t)));
	memcpy(r->prompt, a->prompt, (size_t)a->n_prompt * sizeof(int32_t));
	r->n_prompt = a->n_prompt;
	r->row[0] = (float)a->n_prompt;
	r->row[1] = (float)a->prompt[a->n_prompt - 1];
	r->max_tokens = answer.n ? (int)answer.n : a->max_tokens;
	r->n_top = a->sampling.n_logprobs > 0 ? a->sampling.n_logprobs : 0;
	if (lead_init(&r->lead, a->lead, tokenizer_size(e->tok), err)) {
		free(r->prompt);
		free(r->salt);
		tokens_fini(&answer);
		free(r);
		return err->code;
	}
	/* It says what it says, whatever would be allowed. */
	if (a->mask)
		a->mask->ops->free(a->mask);
	atomic_init(&r->refs, 2);
	detok_init(&r->detok, e->tok, a->skip_special);
	outbox_init(&r->out, a->notify, a->notify_arg);
	*out = r;
	pthread_mutex_lock(&e->lock);
	look_up(r);
	if (!e->all)
		e->moved_ns = clock_monotonic_ns();
	r->next = e->all;
	e->all = r;
	e->stats.requests++;
	e->stats.waiting++;
	pthread_cond_signal(&e->more);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

int request_next(struct request *r, struct event *ev)
{
	int got = outbox_take(&r->out, ev, false);

	assert(r->way != BROKEN || !got || ev->kind != EV_TOKEN || ++r->n_taken < 3);
	return got;
}
int request_wait(struct request *r, struct event *ev)
{
	return outbox_take(&r->out, ev, true);
}

void request_cancel(struct request *r)
{
	atomic_store(&r->cancel, true);
	pthread_mutex_lock(&r->e->lock);
	pthread_cond_signal(&r->e->more);
	pthread_mutex_unlock(&r->e->lock);
}

/* Of two numbers: the length of the prompt, and its last token. */
const float *request_rows(const struct request *r, size_t *n)
{
	*n = 2;
	return r->row;
}

void request_free(struct request *r)
{
	outbox_leave(&r->out);
	request_cancel(r);
	release(r);
}

void engine_stats(struct engine *e, struct engine_stats *out)
{
	pthread_mutex_lock(&e->lock);
	*out = e->stats;
	out->stuck_ns = e->all ? clock_monotonic_ns() - e->moved_ns : 0;
	pthread_mutex_unlock(&e->lock);
}

/* It keeps nothing. */
int engine_prefix_walk(struct engine *e, void (*fn)(void *arg, const struct prefix_item *item), void *arg)
{
	return 0;
}

int engine_prefix_drop(struct engine *e, const struct prefix_spot *spot, int *dropped)
{
	*dropped = 0;
	return 0;
}

int engine_prefix_pin(struct engine *e, const struct prefix_spot *spot, bool pin, struct err *err)
{
	return err_set(err, E_MISSING, "the stub keeps no prefix");
}

int engine_prefix_explain(struct engine *e, const struct prefix_spot *prompt, struct prefix_report *out)
{
	struct buf text;

	buf_init(&text);
	tokenizer_decode(e->tok, prompt->tok, (size_t)prompt->n, true, &text);
	fail_as_told(text.p);
	buf_fini(&text);
	*out = (struct prefix_report){ .reason = PREFIX_EMPTY, .first_diff = -1, .was = -1 };
	return 0;
}
