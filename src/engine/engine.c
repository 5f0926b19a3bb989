/* engine.c - the inbox, the thread and the step; see engine.h and core.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/ticket.h"
#include "engine/core.h"
#include "engine/prefix/announce.h"
#include "engine/wanted_rows.h"

/* Defaults of engine_opts, for 0.  A token every tenth of a second is faster than
 * most people read; 512 tokens are more than most answers have. */
enum { GAP_MS = 100, ANSWER_RESERVE = 512 };
/* Images that are known again, some 56 bytes each. */
enum { SPANS = 1 << 16 };
/* Part of a decode step that getting memory for states may take while answers run. */
enum { READY_PART = 4 };

int64_t engine_now(const struct engine *e)
{
	return e->clock ? e->clock->now_ns(e->clock) : clock_monotonic_ns();
}

/* ---- requests ---- */

static void ask_fini(struct request_ask *k)
{
	free(k->stop_token);
	free(k->split);
	free(k->salt);
	place_plan_fini(&k->plan);
}

static void text_fini(struct request_text *t)
{
	sampler_fini(&t->sampler);
	lead_fini(&t->lead);
	if (t->mask)
		t->mask->ops->free(t->mask);
	if (t->is_made)
		stops_fini(&t->stops);
	for (int i = 0; i < t->n_stop; i++)
		free(t->stop[i]);
	free(t->stop);
	buf_fini(&t->piece);
	buf_fini(&t->shown);
	free(t->end);
}

void request_unref(struct request *r)
{
	if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) > 1)
		return;
	outbox_fini(&r->out);
	ask_fini(&r->ask);
	free(r->drafts.expect.tok);
	rows_close(r->rows);
	free(r->tok);
	brought_fini(&r->brought);
	if (r->broken) {
		request_give_up(r);
		return;
	}
	text_fini(&r->text);
	free(r);
}

int request_next(struct request *r, struct event *ev)
{
	return outbox_take(&r->out, ev, false);
}

int request_wait(struct request *r, struct event *ev)
{
	return outbox_take(&r->out, ev, true);
}

/* A flag and nothing more: as long as a request has not ended, the engine does
 * not sleep, and it looks at every step. */
void request_cancel(struct request *r)
{
	atomic_store_explicit(&r->cancel, true, memory_order_relaxed);
}

void request_free(struct request *r)
{
	if (!r)
		return;
	request_cancel(r);
	outbox_leave(&r->out);
	request_unref(r);
}

static void *copy(const void *p, int n, size_t size)
{
	void *q = xmalloc(n > 0 ? size_mul((size_t)n, size) : 1);

	if (n > 0)
		memcpy(q, p, (size_t)n * size);
	return q;
}

/* ---- submit ---- */

static int ask_check(const struct engine *e, const struct ask *a, int *out_max, struct err *err)
{
	int vocab = e->m->shape.vocab;
	int fits = caches_longest(&e->m->caches, e->ctx_max);
	int least = a->max_tokens > 0;

	if (a->n_prompt < 1)
		return err_set(err, E_ARG, "the prompt has %d tokens; at least 1 is needed", a->n_prompt);
	if (a->max_tokens < 0)
		return err_set(err, E_ARG, "max_tokens is %d; it cannot be negative", a->max_tokens);
	if (rows_check(e, a, err))
		return err->code;
	if (a->n_prompt > e->ctx_max - least)
		return err_set(err, E_LIMIT, "the prompt has %d tokens and the context holds %d, the answer included",
		               a->n_prompt, e->ctx_max);
	if (a->n_prompt > fits - least)
		return err_set(err, E_LIMIT, "the prompt has %d tokens and the page pool holds %d, the answer included",
		               a->n_prompt, fits);
	if (brought_check(e, a, err))
		return err->code;
	for (int i = 0, s = 0; i < a->n_prompt; i++) {
		if (s < a->n_span && i == a->span[s].at)
			i += a->span[s++].n - 1;
		else if (a->prompt[i] < 0 || a->prompt[i] >= vocab)
			return err_set(err, E_ARG, "prompt token %d is %d and the model's ids end at %d", i,
			               a->prompt[i], vocab - 1);
	}
	for (int i = 0; i < a->n_split; i++)
		if (a->split[i] < 1)
			return err_set(err, E_ARG, "split size %d is %d; at least 1 is needed", i, a->split[i]);
	if (a->n_stop && !e->tok)
		return err_set(err, E_ARG, "%d stop strings asked for and the model has no tokenizer", a->n_stop);
	*out_max = a->max_tokens < fits - a->n_prompt ? a->max_tokens : fits - a->n_prompt;
	return 0;
}

/* Only the tokenizer's tokens are picked; the model may have rows for more.  What
 * ends the answer is also what min_tokens holds off. */
static int sampling_init(struct engine *e, struct request *r, const struct ask *a, struct err *err)
{
	struct sampler_params p = a->sampling;
	int vocab = e->m->shape.vocab;

	if (e->tok && tokenizer_size(e->tok) < vocab)
		vocab = tokenizer_size(e->tok);
	if (!p.n_end_token) {
		p.end_token = a->stop_token;
		p.n_end_token = a->n_stop_token;
	}
	if (lead_init(&r->text.lead, a->lead, vocab, err))
		return err->code;
	return sampler_init(&r->text.sampler, &p, vocab, r->tok, r->n_prompt, err);
}

/* Sets up a request's conversion of ids to text. */
static int text_init(struct request_text *t, const struct tokenizer *tok, int out_max, const struct ask *a,
                     struct err *err)
{
	size_t *len;
	int rc;

	if (!tok)
		return 0;
	t->stop = xcalloc((size_t)a->n_stop + 1, sizeof(*t->stop));
	len = xcalloc((size_t)a->n_stop + 1, sizeof(*len));
	for (int i = 0; i < a->n_stop; i++) {
		len[i] = strlen(a->stop[i]);
		t->stop[i] = xstrdup(a->stop[i]);
	}
	t->n_stop = a->n_stop;
	rc = stops_init(&t->stops, a->stop, len, a->n_stop, err);
	free(len);
	if (rc)
		return rc;
	detok_init(&t->detok, tok, a->skip_special);
	t->is_made = true;
	if (a->n_stop)
		t->end = try_malloc(size_mul((size_t)out_max + 1, sizeof(*t->end)));
	if (a->n_stop && !t->end)
		return err_set(err, E_FULL, "no memory for the text of an answer of up to %d tokens", out_max);
	return 0;
}

/* Keeps what was asked for, apart from the tokens and what they have to be looked at for. */
static void ask_keep(struct request_ask *k, const struct ask *a, int place_block)
{
	k->stop_token = copy(a->stop_token, a->n_stop_token, sizeof(*a->stop_token));
	k->n_stop_token = a->n_stop_token;
	k->split = copy(a->split, a->n_split, sizeof(*a->split));
	k->n_split = a->n_split;
	k->salt = prefix_salt(a->cache_salt, &k->adapters);
	place_plan_init(&k->plan, a->n_prompt, a->mark, a->mark_kind, a->n_mark, place_block);
	k->priority = a->priority;
	k->deadline_ns = a->deadline_ns ? a->deadline_ns : INT64_MAX;
	k->on_logits = a->on_logits;
	k->on_logits_arg = a->on_logits_arg;
}

bool inbox_has_work(const struct inbox *b)
{
	return b->queue.n || b->shown.running || b->shown.waiting;
}

/* Into the inbox, if the queue takes it. */
static int enqueue(struct engine *e, struct request *r, const struct ask *a, struct err *err)
{
	struct refusal own, *why = a->refusal ? a->refusal : &own;
	int64_t left = r->ask.deadline_ns == INT64_MAX ? INT64_MAX : r->ask.deadline_ns - r->t_submit;
	int rc = 0;

	*why = (struct refusal){ .limit = LIMIT_NONE };
	fault_lock(&e->inbox.lock);
	if (e->inbox.closing || e->inbox.draining)
		rc = err_set(err, E_GONE, "the engine is closing");
	else if (!inbox_has_work(&e->inbox))
		e->inbox.work_ns = r->t_submit;
	if (!rc)
		rc = queue_enter(&e->inbox.queue, a->client, r->n_prompt, left, &r->client, why, err);
	if (!rc) {
		atomic_store(&r->refs, 2);
		r->text.mask = a->mask;
		r->age = e->inbox.submitted++;
		*e->inbox.end = r;
		e->inbox.end = &r->next;
		pthread_cond_signal(&e->inbox.wake);
	} else {
		e->inbox.refused[why->limit] += why->limit != LIMIT_NONE;
	}
	fault_unlock(&e->inbox.lock);
	return rc;
}

int engine_submit(struct engine *e, const struct ask *a, struct request **out, struct err *err)
{
	struct adapter_mix adapters;
	struct err own;
	struct request *r;
	int out_max = 0, rc;

	*out = NULL;
	if (!err)
		err = &own;
	if ((rc = ask_check(e, a, &out_max, err)) || (rc = adapters_of_ask(&adapters, &a->adapters, err)))
		return rc;
	r = xcalloc(1, sizeof(*r));
	atomic_init(&r->refs, 1);
	outbox_init(&r->out, a->notify, a->notify_arg);
	buf_init(&r->text.piece);
	buf_init(&r->text.shown);
	r->slot = -1;
	r->n_prompt = r->n_tok = a->n_prompt;
	r->ask.out_max = out_max;
	r->tok = try_malloc(size_mul((size_t)a->n_prompt + (size_t)out_max, sizeof(*r->tok)));
	if (!r->tok) {
		request_unref(r);
		return err_set(err, E_FULL, "no memory for a request of %d tokens and an answer of up to %d",
		               a->n_prompt, out_max);
	}
	memcpy(r->tok, a->prompt, (size_t)a->n_prompt * sizeof(*r->tok));
	r->ask.adapters = adapters;
	ask_keep(&r->ask, a, e->place_block);
	r->reuse.ahead = AHEAD_NONE;
	r->ask.no_cache = !brought_init(&r->brought, e, a->span, a->n_span, r->tok) || a->no_cache;
	r->drafts.expect.tok = copy(a->expect, a->n_expect, sizeof(*a->expect));
	r->drafts.expect.n = a->n_expect;
	r->drafts.n_max = a->n_draft < 0 ? 0 : a->n_draft && a->n_draft < DRAFT_MAX ? a->n_draft : DRAFT_MAX;
	r->ask.resume_at = brought_ceil(&r->brought, a->resume_at);
	r->t_submit = engine_now(e);
	rc = rows_begin(e, r, a, err);
	if (!rc)
		rc = sampling_init(e, r, a, err);
	if (!rc)
		rc = text_init(&r->text, e->tok, out_max, a, err);
	if (!rc)
		rc = enqueue(e, r, a, err);
	if (rc) {
		request_unref(r);
		return rc;
	}
	*out = r;
	return 0;
}

void engine_dequeue(struct engine *e, struct request *r)
{
	pthread_mutex_lock(&e->inbox.lock);
	queue_leave(&e->inbox.queue, r->client, r->n_prompt);
	e->inbox.shown.running = e->sched.n_run; /* also during its first step it is somewhere */
	pthread_mutex_unlock(&e->inbox.lock);
}

void engine_client_hold(struct engine *e, struct client *c)
{
	pthread_mutex_lock(&e->inbox.lock);
	queue_hold(&e->inbox.queue, c);
	pthread_mutex_unlock(&e->inbox.lock);
}

void engine_client_forget(struct engine *e, struct client *c)
{
	pthread_mutex_lock(&e->inbox.lock);
	queue_forget(&e->inbox.queue, c);
	pthread_mutex_unlock(&e->inbox.lock);
}

void engine_drain(struct engine *e)
{
	pthread_mutex_lock(&e->inbox.lock);
	e->inbox.draining = true;
	pthread_mutex_unlock(&e->inbox.lock);
}

/* ---- the end of a request ---- */

static enum request_stage stage_of(const struct request *r)
{
	if (r->slot < 0)
		return r->sched.started ? STAGE_PREEMPTED : STAGE_QUEUED;
	return r->t_first ? STAGE_DECODE : STAGE_PREFILL;
}

struct flush {
	struct request *r;
	struct event *ev;
};

/* The text that is left, and room for it with the reader. */
static void flush(void *arg)
{
	const struct flush *f = arg;

	verify_flush(f->r, f->ev);
	outbox_room(&f->r->out, f->ev->n_text);
}

void engine_finish(struct engine *e, struct request *r)
{
	struct event ev = { .kind = EV_DONE };
	int64_t now = engine_now(e);

	ev.stage = stage_of(r);
	/* Prefixes of cancelled requests are kept, too: the client may return. */
	if ((r->slot >= 0 || r->park.pos) && !e->ending)
		reuse_end(e, r);
	if (r->slot >= 0 && (r->finish == FINISH_STOP || r->finish == FINISH_LENGTH))
		draft_learn(e, r);
	sched_remove(e, r);
	park_drop(e, r);
	if (!r->sched.started)
		engine_dequeue(e, r);
	engine_client_forget(e, r->client);
	r->client = NULL;
	if (r->sched.started)
		e->hold_ns += ((double)(now - r->t_start) - e->hold_ns) / 16; /* of some sixteen requests */
	if (!request_guard(r, flush, &(struct flush){ r, &ev }))
		ev.n_text = 0;
	ev.finish = r->finish;
	ev.stop_text = r->stop_text;
	ev.n_prompt = r->n_prompt;
	ev.n_cached = r->reuse.n_cached;
	ev.n_output = r->n_tok - r->n_prompt;
	ev.n_accepted = r->drafts.n_accepted;
	ev.n_rejected = r->drafts.n_rejected;
	ev.queue_ns = (r->sched.started ? r->t_start : now) - r->t_submit;
	if (r->sched.started)
		ev.prefill_ns = (r->t_first ? r->t_first : now) - r->t_start;
	if (r->t_first)
		ev.decode_ns = now - r->t_first;
	ev.n_preempted = r->sched.n_preempted;
	ev.err = r->err;
	ev.prefix = r->reuse.report;
	e->stats.finished[r->finish] += !r->ask.proof;
	if (r->finish == FINISH_CANCEL && !r->ask.proof)
		e->stats.cancelled[ev.stage]++;
	e->stats.late += r->finish == FINISH_ERROR && r->err.code == E_LATE;
	engine_show_stats(e); /* first, so that a reader of DONE finds the memory given back */
	outbox_put(&r->out, &ev);
	request_unref(r);
}

/* ---- the step ---- */

/* Did r's deadline pass, or will it before its prompt could be computed at best? */
static bool is_late(const struct engine *e, const struct request *r, int64_t now)
{
	double rate = pace_rate(&e->pace, false), left_s = (double)(r->ask.deadline_ns - now) / 1e9;
	struct prefix_hit hit = { 0 };

	if (r->ask.deadline_ns == INT64_MAX)
		return false;
	if (left_s <= 0)
		return true;
	if (r->slot >= 0 || r->sched.started || !rate || r->n_prompt <= left_s * rate)
		return false;
	if (!r->ask.no_cache)
		prefix_find(&e->prefix, r->ask.salt, r->tok, r->n_tok, &hit);
	return r->n_prompt - hit.at > left_s * rate;
}

/* Ends r if it was cancelled (all: as if it were) or is too late. */
static void finish_left(struct engine *e, struct request *r, bool all, int64_t now)
{
	if (all || atomic_load_explicit(&r->cancel, memory_order_relaxed)) {
		verify_end(r, FINISH_CANCEL);
	} else if (is_late(e, r, now)) {
		err_set(&r->err, E_LATE,
		        "the deadline, %.3f s after the request came, was not kept: %d of %d prompt tokens are computed",
		        (double)(r->ask.deadline_ns - r->t_submit) / 1e9, r->pos < r->n_prompt ? r->pos : r->n_prompt,
		        r->n_prompt);
		verify_end(r, FINISH_ERROR);
	} else {
		return;
	}
	engine_finish(e, r);
}

static void finish_all_left(struct engine *e, bool all)
{
	struct sched *s = &e->sched;
	struct request *next;
	int64_t now = engine_now(e);

	for (struct request *r = fair_each(&e->sched.fair, NULL); r; r = next) {
		next = fair_each(&e->sched.fair, r);
		finish_left(e, r, all, now);
	}
	for (int i = s->n_run - 1; i >= 0; i--)
		finish_left(e, s->run[i], all, now);
}

/* Whether a file of weights or the backend's device was lost: then results computed since may be wrong and must not be
 * published. */
static bool lost(struct engine *e)
{
	const char *path = file_lost();
	const struct err *device = &e->m->be->failed;

	if (path && !e->lost)
		log_error(
			"%s became shorter while it was served: every request fails until the server is started again",
			path);
	else if (device->code && !e->lost)
		log_error("%s: every request fails until the server is started again", device->msg);
	e->stats.device_lost = device->code != 0;
	e->lost = path || device->code;
	return e->lost;
}

static void fail_lost(struct engine *e, struct request *r)
{
	const char *path = file_lost(), *name = path ? strrchr(path, '/') : NULL;

	/* A client learns the file's name, the log its folder. */
	if (path)
		err_set(&r->err, E_IO, "the model cannot be computed any more: %s became shorter while it was served",
		        name ? name + 1 : path);
	else
		err_set(&r->err, E_DEVICE, "the model cannot be computed any more: %s", e->m->be->failed.msg);
	verify_end(r, FINISH_ERROR);
	engine_finish(e, r);
}

static void fail_all_lost(struct engine *e)
{
	struct request *next;

	for (struct request *r = fair_each(&e->sched.fair, NULL); r; r = next) {
		next = fair_each(&e->sched.fair, r);
		fail_lost(e, r);
	}
	while (e->sched.n_run)
		fail_lost(e, e->sched.run[e->sched.n_run - 1]);
}

/* Settles the rows of an item whose expert, or whose row of a table, could not be read, so that the caches are consistent,
 * and ends its request; snapshots captured of it in this step are dropped. */
static bool end_spoiled(struct engine *e, int i)
{
	struct request *r = e->step.batch.item[i].req;
	const struct span *span = &e->step.batch.span[i];

	if (!e->step.spoiled[i])
		return false;
	caches_settle(&e->m->caches, span, span->n - span->n_draft);
	r->pos += span->n - span->n_draft;
	r->err = e->step.pass.spoil.why;
	r->reuse.n_passed = r->drafts.n = r->drafts.n_max = 0;
	e->step.batch.item[i].keep = 0;
	verify_end(r, FINISH_ERROR);
	return true;
}

/* The step's rows count as taken, so that the caches are whole. */
static void drop_step(struct engine *e)
{
	for (int i = 0; i < e->step.batch.n_item; i++) {
		const struct span *span = &e->step.batch.span[i];
		int keep = span->n - span->n_draft;

		caches_settle(&e->m->caches, span, keep);
		e->step.batch.item[i].req->pos += keep;
	}
	fail_all_lost(e);
}

static void admit(struct engine *e)
{
	struct request *r, *next;
	bool closing;

	commands_run(e);
	disk_step(e);
	proof_begin(e);
	pthread_mutex_lock(&e->inbox.lock);
	r = e->inbox.first;
	e->inbox.first = NULL;
	e->inbox.end = &e->inbox.first;
	closing = e->inbox.closing;
	pthread_mutex_unlock(&e->inbox.lock);
	for (; r; r = next) {
		next = r->next;
		fair_wait(e, r);
		reuse_waits(e, r);
	}
	e->ending = closing;
	finish_all_left(e, closing);
	if (lost(e))
		fail_all_lost(e);
}

static void adapters_set(struct step *s)
{
	struct batch *b = &s->batch;

	s->pass.adapter = NULL;
	for (int i = 0; i < b->n_item; i++) {
		b->adapter[i] = b->item[i].req->ask.adapters.n ? &b->item[i].req->ask.adapters : NULL;
		if (b->adapter[i])
			s->pass.adapter = b->adapter;
	}
}

static void pass_set(struct engine *e)
{
	struct pass *p = &e->step.pass;
	const struct batch *b = &e->step.batch;

	p->n_row = b->n_row;
	p->n_item = b->n_item;
	p->n_logit = b->n_logit;
	p->spoil.why.code = 0;
	memset(e->step.spoiled, 0, (size_t)b->n_item * sizeof *e->step.spoiled);
	p->brought.n = b->n_brought;
	p->rope_pos = b->turns ? b->rope : NULL;
	p->see = b->whole ? b->see : NULL;
	p->hidden = e->step.follows || rows_wanted(e) ? e->step.hidden : NULL;
	adapters_set(&e->step);
	caches_begin(&e->m->caches, b->span, b->n_item);
	e->sched.n_pass = 0;
	for (int i = 0; i < b->n_item; i++)
		reuse_foresee(e, i);
}

/* The step's logits to where the host may change them.  false: the device failed. */
static bool logits_read(struct engine *e)
{
	size_t n = (size_t)e->step.pass.n_logit * (size_t)e->m->shape.vocab;

	e->step.logits = e->m->be->failed.code || !n ? NULL :
	                                               backend_near(e->m->be, e->step.pass.logits, n, e->step.copied);
	return e->step.logits || !n;
}

/* After the rows of an item are settled. */
static void move_on(struct engine *e, struct request *r)
{
	if (!r->ending && r->pos == r->ask.resume_at && sched_resume(e, r, &r->err))
		verify_end(r, FINISH_ERROR);
	if (!r->ending)
		reuse_moved(e, r);
	if (!r->ending && r->ask.proof && r->pos == r->n_tok)
		proof_judge(e, r);
	if (!r->ending && r->pos == r->n_tok)
		verify_end(r, FINISH_LENGTH); /* only the prompt was asked for */
	if (r->ending)
		engine_finish(e, r);
}

/* While answers run and the memory of few states is ready: makes some ready, for a part of a decode step and once more for
 * what one piece takes.  Returns the nanoseconds. */
static int64_t prepare_beside(struct engine *e)
{
	int64_t began = engine_now(e), most = (int64_t)(e->pace.base_ns / READY_PART), took = 0;

	if (!e->prefix.bytes_max || e->squeeze.is_short || !sched_decodes(&e->sched))
		return 0;
	while (took <= most && !caches_ready(&e->m->caches, READY_STATES) && caches_prepare(&e->m->caches))
		took = engine_now(e) - began;
	return took;
}

static void log_step(const struct engine *e, int64_t began)
{
	const struct batch *b = &e->step.batch;

	log_debug(
		"engine: step %lld: %d sequences, %d rows (%d of prompts), %d with logits, %.2f ms, %.2f of it to keep states; "
		"before it %.2f of a tower, %.2f for memory of states",
		(long long)e->stats.steps, b->n_item, b->n_row, b->n_prompt, b->n_logit,
		(double)(e->stats.last_step_ns - began) / 1e6, (double)e->between.keep_ns / 1e6,
		(double)e->between.tower_ns / 1e6, (double)e->between.ready_ns / 1e6);
}

static void count_rows(struct engine_stats *s, int rows)
{
	int i = 0;

	while (i < STEP_SIZES - 1 && rows > 1 << i)
		i++;
	s->step_rows[i]++;
	s->step_rows_sum += rows;
}

static bool step(struct engine *e)
{
	struct caches *caches = &e->m->caches;
	struct batch *b = &e->step.batch;
	int64_t began = engine_now(e), filled;
	bool towered;

	admit(e);
	squeeze_step(e);
	draft_propose(e);
	filled = engine_now(e);
	e->between.ready_ns = prepare_beside(e);
	towered = brought_work(e);
	e->between.tower_ns = towered ? engine_now(e) - filled - e->between.ready_ns : 0;
	/* Neither step nor drafts took this long. */
	began += e->between.ready_ns + e->between.tower_ns;
	filled += e->between.ready_ns + e->between.tower_ns;
	if (!sched_fill(e)) {
		bool did = disk_idle(e);

		/* Sequences that just joined may wait for a tower's vectors before their first row. */
		did |= towered || brought_work(e);
		engine_show_stats(e);
		return did;
	}
	e->between.keep_ns = 0;
	pass_set(e);
	model_run(e->m, &e->step.pass, NULL);
	if (!logits_read(e) || lost(e)) {
		drop_step(e);
		engine_show_stats(e);
		return true;
	}
	for (int i = 0; i < b->n_item; i++) {
		struct batch_item *it = &b->item[i];
		int keep, sure = b->span[i].n - b->span[i].n_draft;

		if (end_spoiled(e, i))
			continue;
		if (rows_take(e, it, &it->req->err))
			verify_end(it->req, FINISH_ERROR);
		keep = verify(e, it);
		caches_settle(caches, &b->span[i], keep);
		draft_judge(e, it->req, b->span[i].n_draft, keep - sure);
		it->req->pos += keep;
		it->keep = keep;
	}
	draft_timed(e, engine_now(e) - filled);
	draft_follow(e);
	for (int i = 0; i < b->n_item; i++)
		reuse_passed(e, b->item[i].req);
	caches_forget(caches);
	for (int i = 0; i < b->n_item; i++)
		move_on(e, b->item[i].req);
	e->stats.steps++;
	count_rows(&e->stats, b->n_row);
	e->stats.last_step_ns = engine_now(e);
	pace_learn(&e->pace, b->n_row - b->n_prompt, b->n_prompt, b->prompt_pos,
	           (double)(e->stats.last_step_ns - began - e->between.keep_ns));
	if (log_wants(LOG_DEBUG))
		log_step(e, began);
	engine_show_stats(e);
	return true;
}

void engine_wake(struct engine *e)
{
	pthread_mutex_lock(&e->inbox.lock);
	e->inbox.woken = true;
	pthread_cond_signal(&e->inbox.wake);
	pthread_mutex_unlock(&e->inbox.lock);
}

/* Sleeps while all work waits for the disk: until a read ends, or a request may have been
 * cancelled. */
static void doze(struct engine *e)
{
	enum { DOZE_NS = 20000000 }; /* 20 ms: what a cancel may take to be seen */
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += DOZE_NS;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	pthread_mutex_lock(&e->inbox.lock);
	while (!e->inbox.closing && !e->inbox.first && !e->inbox.woken && !commands_wait(&e->inbox))
		if (pthread_cond_timedwait(&e->inbox.wake, &e->inbox.lock, &t))
			break;
	e->inbox.woken = false;
	pthread_mutex_unlock(&e->inbox.lock);
}

bool engine_step(struct engine *e)
{
	bool worked;

	assert(e->opts.by_hand);
	worked = step(e);
	announce_step(e->announce, &e->prefix);
	if (worked)
		return true;
	if (!disk_busy(e))
		return false;
	doze(e);
	return true;
}

static void *engine_thread(void *arg)
{
	struct engine *e = arg;
	bool closing, worked;

	do {
		pthread_mutex_lock(&e->inbox.lock);
		while (!e->inbox.closing && !e->inbox.first && !commands_wait(&e->inbox) && !proof_wants(e) &&
		       !e->sched.fair.n_waiting && !e->sched.n_run && !disk_busy(e) && e->prepared)
			pthread_cond_wait(&e->inbox.wake, &e->inbox.lock);
		closing = e->inbox.closing;
		pthread_mutex_unlock(&e->inbox.lock);
		ticket_enter(e->opts.turn);
		worked = step(e);
		announce_step(e->announce, &e->prefix);
		ticket_leave(e->opts.turn);
		if (worked)
			e->prepared = !e->prefix.bytes_max;
		else if ((e->sched.fair.n_waiting && e->prefix.tier) || disk_busy(e))
			doze(e);
		else
			e->prepared = e->prepared || e->squeeze.is_short || !caches_prepare(&e->m->caches);
	} while (!closing);
	return NULL;
}

/* ---- open and close ---- */

int engine_block(const struct model *m)
{
	int rows = caches_page_rows(&m->caches);

	return rows ? rows : PLACE_STEP;
}

/* Each sequence may want its last row's, and those of its drafts. */
static int logit_rows(const struct model *m, const struct engine_opts *o)
{
	int n = m->shape.whole ? 0 : o->seqs_max * (1 + o->n_draft);

	return n < o->step_rows ? n : o->step_rows;
}

size_t engine_step_bytes(const struct model *m, const struct engine_opts *o)
{
	int logits = o->logit_rows ? o->logit_rows : logit_rows(m, o);

	size_t out = size_mul((size_t)logits, (size_t)m->shape.vocab);
	size_t hidden = size_mul((size_t)o->step_rows, (size_t)m->shape.hidden);

	return size_mul(m->ops->work_floats(m, o->step_rows, logits) + out + hidden, sizeof(float));
}

static int opts_check(const struct model *m, const struct engine_opts *o, struct err *err)
{
	if (o->seqs_max < 1 || o->seqs_max > m->opts.slots)
		return err_set(err, E_ARG, "%d sequences at once asked of an engine over a model with %d slots",
		               o->seqs_max, m->opts.slots);
	if (o->step_rows < 1 || o->step_rows > m->opts.step_rows)
		return err_set(err, E_ARG, "%d rows per step asked of an engine over a model made for %d", o->step_rows,
		               m->opts.step_rows);
	if (o->logit_rows && (o->logit_rows < logit_rows(m, o) || o->logit_rows > o->step_rows))
		return err_set(err, E_ARG, "logits for %d rows of a step asked for; %d to %d can be done",
		               o->logit_rows, logit_rows(m, o), o->step_rows);
	if (o->queue_max < 1)
		return err_set(err, E_ARG, "a queue of %d requests; at least 1 is needed", o->queue_max);
	if (o->n_draft < 0 || o->n_draft > DRAFT_MAX)
		return err_set(err, E_ARG, "%d drafted tokens asked for; at most %d are done", o->n_draft, DRAFT_MAX);
	if (o->n_draft > caches_drafts_max(&m->caches))
		return err_set(err, E_ARG, "%d drafted tokens asked of an engine over a model made for %d", o->n_draft,
		               caches_drafts_max(&m->caches));
	return 0;
}

static void batch_init(struct engine *e)
{
	struct batch *b = &e->step.batch;
	size_t seqs = (size_t)e->opts.seqs_max, rows = (size_t)e->opts.step_rows;

	b->item = xcalloc(seqs, sizeof(*b->item));
	b->span = xcalloc(seqs, sizeof(*b->span));
	b->first = xcalloc(seqs, sizeof(*b->first));
	b->tok = xcalloc(rows, sizeof(*b->tok));
	b->pos = xcalloc(rows, sizeof(*b->pos));
	b->item_of = xcalloc(rows, sizeof(*b->item_of));
	b->logit_row = xcalloc((size_t)e->opts.logit_rows, sizeof(*b->logit_row));
	b->rope = xcalloc(3 * rows, sizeof(*b->rope));
	b->see = xcalloc(rows, sizeof(*b->see));
	b->second = xcalloc(seqs, sizeof(*b->second));
	b->brought = xcalloc(rows, sizeof(*b->brought));
	b->adapter = xcalloc(seqs, sizeof(*b->adapter));
}

/* Bytes of what drafter d follows, in the largest step. */
static size_t taps_bytes(const struct engine *e, const struct drafter *d)
{
	size_t row = (size_t)shape_residual(&e->m->shape) * sizeof(float);

	return size_mul(size_mul((size_t)e->opts.step_rows, row), (size_t)d->n_tap);
}

/* Where the pass leaves what drafters follow. */
static int taps_init(struct engine *e, struct err *err)
{
	struct backend *be = e->m->be;
	size_t hidden = (size_t)e->m->shape.hidden, row = (size_t)shape_residual(&e->m->shape);
	struct pass *p = &e->step.pass;
	int n = 0;

	for (int i = 0; i < e->opts.n_drafter; i++)
		n += e->opts.drafter[i]->n_tap;
	e->step.tap = xcalloc((size_t)n + 1, sizeof(*e->step.tap));
	for (int i = 0; i < e->opts.n_drafter; i++) {
		struct drafter *d = e->opts.drafter[i];

		d->taps = NULL;
		e->step.follows |= d->ops->follow && !d->n_tap;
		if (d->n_tap && !(d->taps = be->ops->alloc(be, taps_bytes(e, d))))
			return err_set(err, E_FULL, "no memory for %zu bytes of layers' outputs", taps_bytes(e, d));
		for (int k = 0; k < d->n_tap; k++)
			e->step.tap[p->taps.n++] = (struct tap){ d->tap[k], d->taps + (size_t)k * row,
				                                 (size_t)d->n_tap * row };
	}
	p->taps.v = e->step.tap;
	e->step.hidden_bytes = size_mul(size_mul((size_t)e->opts.step_rows, hidden), sizeof(float));
	if (!(e->step.hidden = be->ops->alloc(be, e->step.hidden_bytes)))
		return err_set(err, E_FULL, "no memory for %zu bytes of hidden rows", e->step.hidden_bytes);
	return 0;
}

static void taps_fini(struct engine *e)
{
	struct backend *be = e->m->be;

	for (int i = 0; i < e->opts.n_drafter; i++) {
		struct drafter *d = e->opts.drafter[i];

		if (d->taps)
			be->ops->free(be, d->taps, taps_bytes(e, d));
		d->taps = NULL;
	}
	if (e->step.hidden)
		be->ops->free(be, e->step.hidden, e->step.hidden_bytes);
	free(e->step.tap);
}

/* The pass of the largest step, in the backend's memory. */
static int pass_init(struct engine *e, struct err *err)
{
	struct model *m = e->m;
	struct backend *be = m->be;
	struct pass *p = &e->step.pass;
	const struct batch *b = &e->step.batch;
	int rows = e->opts.step_rows;

	*p = (struct pass){
		.be = be,
		.arith = m->opts.arith,
		.tok = b->tok,
		.pos = b->pos,
		.item = b->item_of,
		.span = b->span,
		.row = b->first,
		.logit_row = b->logit_row,
		.second = b->second,
		.spoil.items = e->step.spoiled,
		.brought.v = b->brought,
		.brought.cols = (1 + m->shape.deep) * m->shape.hidden,
	};
	e->step.logits_bytes = size_mul(size_mul((size_t)e->opts.logit_rows, (size_t)m->shape.vocab), sizeof(float));
	p->work.cap = size_mul(m->ops->work_floats(m, rows, e->opts.logit_rows), sizeof(float));
	if (!be->ops->near)
		e->step.copied = xmalloc(e->step.logits_bytes + 1);
	p->logits = e->step.logits_bytes ? be->ops->alloc(be, e->step.logits_bytes) : NULL;
	p->work.p = p->work.cap ? be->ops->alloc(be, p->work.cap) : NULL;
	if ((e->step.logits_bytes && !p->logits) || (p->work.cap && !p->work.p))
		return err_set(err, E_FULL, "no memory for a step of %d rows: %zu bytes of logits, %zu of work", rows,
		               e->step.logits_bytes, p->work.cap);
	return taps_init(e, err);
}

static void engine_free(struct engine *e)
{
	struct backend *be = e->m->be;
	struct batch *b = &e->step.batch;

	sched_fini(e);
	announce_close(e->announce);
	disk_close(e);
	proof_fini(&e->proof);
	prefix_fini(&e->prefix);
	queue_fini(&e->inbox.queue);
	if (e->step.pass.logits)
		be->ops->free(be, e->step.pass.logits, e->step.logits_bytes);
	taps_fini(e);
	if (e->step.pass.work.p)
		be->ops->free(be, e->step.pass.work.p, e->step.pass.work.cap);
	free(b->item);
	free(b->span);
	free(b->first);
	free(b->adapter);
	free(b->tok);
	free(b->pos);
	free(b->item_of);
	free(b->logit_row);
	free(b->rope);
	free(b->see);
	free(b->second);
	free(b->brought);
	span_ids_fini(&e->spans);
	free(e->step.copied);
	free(e->step.spoiled);
	free(e->step.only);
	drafting_fini(&e->drafting);
	pthread_cond_destroy(&e->inbox.answered);
	pthread_cond_destroy(&e->inbox.wake);
	pthread_mutex_destroy(&e->inbox.lock);
	free(e);
}

/* Waits with a limit (doze) go by a clock that never jumps. */
static void wake_init(pthread_cond_t *wake)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(wake, &attr);
	pthread_condattr_destroy(&attr);
}

static void blocks_init(struct engine *e)
{
	int size = engine_block(e->m);

	if (!e->opts.blocks)
		return;
	e->announce = announce_open(e->opts.blocks, size);
	e->place_block = caches_go_back(&e->m->caches) ? 0 : size;
}

int engine_open(struct engine **out, struct model *m, const struct tokenizer *tok, const struct engine_opts *opts,
                struct err *err)
{
	struct engine *e;
	int rc = opts_check(m, opts, err);

	*out = NULL;
	if (rc)
		return rc;
	e = xcalloc(1, sizeof(*e));
	e->m = m;
	e->tok = tok;
	e->opts = *opts;
	e->clock = opts->clock;
	if (!e->opts.decode_gap_ms)
		e->opts.decode_gap_ms = GAP_MS;
	if (!e->opts.answer_reserve)
		e->opts.answer_reserve = ANSWER_RESERVE;
	if (!e->opts.logit_rows)
		e->opts.logit_rows = logit_rows(m, opts);
	pace_init(&e->pace, e->opts.decode_gap_ms, m->shape.experts, m->shape.experts_used);
	e->miss = 1;
	e->ctx_max = m->opts.ctx_max ? m->opts.ctx_max : m->shape.ctx_max;
	e->pool_bytes = caches_pool(&m->caches).max;
	if (e->pool_bytes)
		e->stats.kv.pages = (int)(e->pool_bytes / caches_unit_bytes(&m->caches));
	e->stats.kv.page_rows = caches_page_rows(&m->caches);
	e->stats.slots = opts->seqs_max;
	e->stats.parked.bytes_max = opts->park_bytes;
	for (int i = 0; i < opts->n_drafter; i++)
		e->stats.drafter[i].name = opts->drafter[i]->ops->name;
	drafting_init(&e->drafting, opts->seqs_max, opts->n_drafter);
	e->stats.prefix.bytes_max = opts->prefix_bytes;
	pthread_mutex_init(&e->inbox.lock, NULL);
	wake_init(&e->inbox.wake);
	pthread_cond_init(&e->inbox.answered, NULL);
	e->inbox.end = &e->inbox.first;
	queue_init(&e->inbox.queue, opts->queue_max, opts->queue_seconds, opts->seqs_max);
	sched_init(&e->sched, opts->seqs_max);
	prefix_init(&e->prefix, &m->caches, opts->prefix_bytes);
	blocks_init(e);
	squeeze_init(e);
	span_ids_init(&e->spans, SPANS);
	e->prepared = !opts->prefix_bytes;
	batch_init(e);
	e->step.only = xcalloc((size_t)m->shape.vocab / 32 + 1, sizeof(*e->step.only));
	e->step.spoiled = xcalloc((size_t)opts->seqs_max, sizeof *e->step.spoiled);
	rc = pass_init(e, err);
	if (!rc)
		rc = disk_open(e, err);
	engine_show_stats(e);
	if (!rc && !opts->by_hand && pthread_create(&e->thread, NULL, engine_thread, e))
		rc = err_set(err, E_IO, "cannot start the engine's thread");
	if (rc) {
		engine_free(e);
		return rc;
	}
	*out = e;
	return 0;
}

void engine_close(struct engine *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->inbox.lock);
	e->inbox.closing = true;
	pthread_cond_signal(&e->inbox.wake);
	pthread_mutex_unlock(&e->inbox.lock);
	if (e->opts.by_hand)
		step(e);
	else
		pthread_join(e->thread, NULL);
	engine_free(e);
}
