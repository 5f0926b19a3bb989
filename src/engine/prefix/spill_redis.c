/* spill_redis.c - see spill_redis.h: looks, and the thread that reads. */
#include "engine/prefix/spill_core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/redis.h"
#include "engine/prefix/spill_redis_names.h"

static const int64_t SECOND = 1000000000;
/* LOOKS_MAX: prompts that may wait for a look.  BATCH: pages asked for at once.  TRIES: snapshots, the deepest first. */
enum { LOOKS_MAX = 64, BATCH = 256, TRIES = 256 };

struct spill_look {
	struct spill_look *next;
	uint64_t ticket;
	int n_chain, n;
	bool pages;
	struct digest *key; /* [n_chain][n / page_rows + 1] */
	int32_t *tok;       /* [n] */
};

/* ---- looks ---- */

uint64_t spill_look_shared(struct spill *s, const struct digest *key, int n_chain, bool pages, const int32_t *tok,
                           int n)
{
	struct spill_redis *r = &s->redis;
	size_t n_key = size_mul((size_t)(n / s->o.page_rows) + 1, (size_t)n_chain);
	struct spill_look *l;
	uint64_t ticket = 0;

	if (!r->on || n < 1)
		return 0;
	pthread_mutex_lock(&s->lock);
	if (!r->in.up)
		r->asked = true;
	if (spill_redis_reads(s) && r->n_looks < LOOKS_MAX) {
		l = xcalloc(1, sizeof(*l));
		l->ticket = ticket = ++r->look_asked;
		l->n_chain = n_chain;
		l->n = n;
		l->pages = pages;
		l->key = xmalloc(size_mul(n_key, sizeof(*key)));
		memcpy(l->key, key, n_key * sizeof(*key));
		l->tok = xmalloc(size_mul((size_t)n, sizeof(*tok)));
		memcpy(l->tok, tok, (size_t)n * sizeof(*tok));
		*r->looks_end = l;
		r->looks_end = &l->next;
		r->n_looks++;
	}
	pthread_cond_signal(&r->wanted);
	pthread_mutex_unlock(&s->lock);
	return ticket;
}

bool spill_looked_shared(struct spill *s, uint64_t ticket)
{
	bool done;

	pthread_mutex_lock(&s->lock);
	done = s->redis.look_done >= ticket;
	pthread_mutex_unlock(&s->lock);
	return done;
}

/* Records that Redis has the piece, or not.  Is it there, in Redis or in a file?  With the lock. */
static bool learn(struct spill *s, enum spill_kind kind, const struct digest *key, uint32_t pos, uint64_t tail,
                  bool has)
{
	struct spill_entry *e = spill_index_find(&s->index, kind, key, pos, tail);

	if (!e && has) {
		spill_index_lend(&s->index, kind, key, pos, tail);
		s->stats.redis.found++;
	} else if (e && e->no_file && !has) {
		spill_index_remove(&s->index, e);
		return false;
	} else if (e) {
		e->shared = has ? SHARED_YES : SHARED_NO;
	}
	return has || (e && !e->queued);
}

/* A look that is under way: what it asks, and of which server. */
struct asking {
	struct spill *s;
	struct redis *redis;
	const struct spill_look *l;
	int64_t until;
	char seconds[16];
	uint8_t *at; /* [keys of chain 0][width]: bit b: a snapshot is b tokens after the key's page */
	int n_place, width;
	struct err err;
};

static void ask_for(struct asking *a, const char *name)
{
	char full[SPILL_SHARED_NAME];

	spill_shared_name(a->s, name, full);
	redis_addf(a->redis, "EXPIRE", full, a->seconds, NULL);
}

static int asked_for(struct asking *a, bool *has)
{
	struct redis_reply reply;
	int rc = redis_reply(a->redis, &reply, LOOK_BYTES, a->until, &a->err);

	if (!rc && reply.kind != REDIS_INTEGER)
		rc = err_set(&a->err, E_FORMAT, "it answers EXPIRE with something else than a number");
	*has = !rc && reply.n == 1;
	redis_reply_free(&reply);
	return rc;
}

/* Pages [from, to) of a chain, whose keys are key[from + 1 ..].  *there: how many from the first on. */
static int ask_pages(struct asking *a, const struct digest *key, int from, int to, int *there)
{
	bool has[BATCH], all = true;
	char name[SPILL_NAME];
	int rc;

	for (int i = from; i < to; i++) {
		spill_name_put(name, SPILL_PAGE, &key[i + 1], 0, 0);
		ask_for(a, name);
	}
	rc = redis_send(a->redis, a->until, &a->err);
	for (int i = from; i < to && !rc; i++)
		rc = asked_for(a, &has[i - from]);
	if (rc)
		return rc;
	pthread_mutex_lock(&a->s->lock);
	for (int i = from; i < to; i++) {
		all &= learn(a->s, SPILL_PAGE, &key[i + 1], 0, 0, has[i - from]);
		*there += all;
	}
	pthread_mutex_unlock(&a->s->lock);
	return 0;
}

/* Asks at which of the keys [from, to) of chain 0 snapshots hang. */
static int ask_places(struct asking *a, int from, int to)
{
	char name[SPILL_NAME], full[SPILL_SHARED_NAME], last[16];
	struct redis_reply reply;
	int rc;

	snprintf(last, sizeof(last), "%d", a->width - 1);
	for (int i = from; i < to; i++) {
		spill_places_name(&a->l->key[i], name);
		spill_shared_name(a->s, name, full);
		redis_addf(a->redis, "GETRANGE", full, "0", last, NULL);
	}
	rc = redis_send(a->redis, a->until, &a->err);
	for (int i = from; i < to && !rc; i++) {
		rc = redis_reply(a->redis, &reply, LOOK_BYTES, a->until, &a->err);
		if (!rc && (reply.kind != REDIS_TEXT || reply.n > a->width))
			rc = err_set(&a->err, E_FORMAT, "its answer to GETRANGE is not what was asked for");
		if (!rc && reply.n)
			memcpy(a->at + (size_t)i * (size_t)a->width, reply.text, (size_t)reply.n);
		redis_reply_free(&reply);
	}
	return rc;
}

static bool is_place(const struct asking *a, int i, int bit)
{
	return spill_place_is(a->at + (size_t)i * (size_t)a->width, bit);
}

/* Redis has none of the snapshots after key i whose bit is not set.  With the lock. */
static void unlearn(struct asking *a, int i)
{
	int first = i * a->s->o.page_rows;

	for (struct spill_entry *e = NULL; (e = spill_index_next(&a->s->index, &a->l->key[i], e));) {
		int bit = (int)e->pos - first;

		if (e->kind == SPILL_SNAP && !e->no_file && bit >= 0 && bit < a->n_place && !is_place(a, i, bit))
			e->shared = SHARED_NO;
	}
}

/* The snapshots of the prompt after the first n_page pages, the deepest first. */
static int ask_snaps(struct asking *a, int n_page)
{
	const struct spill_look *l = a->l;
	int rows = a->s->o.page_rows, n = 0, rc;
	struct {
		int i, pos;
		uint64_t tail;
		bool has;
	} try[TRIES];
	char name[SPILL_NAME];

	for (int i = n_page; i >= 0 && n < TRIES; i--)
		for (int bit = a->n_place - 1; bit >= 0 && n < TRIES; bit--) {
			int64_t pos = (int64_t)i * rows + bit;

			if (pos < 1 || pos > l->n || !is_place(a, i, bit))
				continue;
			try[n].i = i;
			try[n].pos = (int)pos;
			try[n].tail = spill_tail(a->s, l->tok, (int)pos);
			spill_name_put(name, SPILL_SNAP, &l->key[i], (uint32_t)pos, try[n].tail);
			ask_for(a, name);
			spill_places_name(&l->key[i], name);
			ask_for(a, name);
			n++;
		}
	rc = redis_send(a->redis, a->until, &a->err);
	for (int k = 0; k < n && !rc; k++) {
		bool places;

		rc = asked_for(a, &try[k].has);
		if (!rc)
			rc = asked_for(a, &places);
	}
	if (rc)
		return rc;
	pthread_mutex_lock(&a->s->lock);
	for (int i = n_page; i >= 0; i--)
		unlearn(a, i);
	for (int k = 0; k < n; k++)
		learn(a->s, SPILL_SNAP, &l->key[try[k].i], (uint32_t)try[k].pos, try[k].tail, try[k].has);
	pthread_mutex_unlock(&a->s->lock);
	return 0;
}

static int look_all(struct asking *a)
{
	const struct spill_look *l = a->l;
	int n_page = l->n / a->s->o.page_rows, there = l->pages ? 0 : n_page, rc = 0;

	for (int c = 0; c < l->n_chain && !rc; c++) {
		const struct digest *key = l->key + (size_t)c * ((size_t)n_page + 1);
		int n = 0;

		for (int from = 0; from < n_page && !rc && (c || l->pages); from += BATCH) {
			int to = n_page - from < BATCH ? n_page : from + BATCH;

			rc = ask_pages(a, key, from, to, &n);
			if (!c && n < to)
				break; /* what comes after a gap is of no use */
		}
		if (!c && l->pages)
			there = n;
	}
	for (int from = 0; from <= there && !rc; from += BATCH)
		rc = ask_places(a, from, there + 1 - from < BATCH ? there + 1 : from + BATCH);
	return rc ? rc : ask_snaps(a, there);
}

/* Called and returns locked. */
static void look_one(struct spill *s)
{
	struct spill_redis *r = &s->redis;
	struct spill_look *l = r->looks;
	int64_t now = clock_monotonic_ns();
	struct asking a = { .s = s, .redis = r->in.redis, .l = l, .until = now + SECOND };
	int rc = E_IO;

	r->looks = l->next;
	if (!r->looks)
		r->looks_end = &r->looks;
	r->n_looks--;
	if (spill_redis_reads(s)) {
		pthread_mutex_unlock(&s->lock);
		snprintf(a.seconds, sizeof(a.seconds), "%d", s->o.redis_seconds);
		a.n_place = l->n < s->o.page_rows ? l->n + 1 : s->o.page_rows;
		a.width = (a.n_place + 7) / 8;
		a.at = xcalloc((size_t)(l->n / s->o.page_rows) + 1, (size_t)a.width);
		rc = look_all(&a);
		free(a.at);
		pthread_mutex_lock(&s->lock);
		if (rc)
			spill_line_failed(s, &r->in, &a.err);
		else
			spill_line_works(s, &r->in);
	}
	r->look_done = l->ticket;
	free(l->key);
	free(l->tok);
	free(l);
	if (!s->o.looked)
		return;
	pthread_mutex_unlock(&s->lock); /* it takes a lock with which this one may be asked for */
	s->o.looked(s->o.looked_arg);
	pthread_mutex_lock(&s->lock);
}

/* ---- the thread ---- */

static void *reader(void *arg)
{
	struct spill *s = arg;
	struct spill_redis *r = &s->redis;

	pthread_mutex_lock(&s->lock);
	r->asked = true;
	while (!s->closing) {
		struct spill_load *l;

		if (r->asked && !r->in.up) {
			r->asked = false;
			spill_line_up(s, &r->in);
			r->was_tried = true;
			pthread_cond_broadcast(&r->tried);
		} else if (r->looks) {
			look_one(s);
		} else if ((l = spill_next_load(s, true))) {
			spill_read_one(s, l);
		} else {
			pthread_cond_wait(&r->wanted, &s->lock);
		}
	}
	while (r->looks)
		look_one(s);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- open and close ---- */

int spill_redis_open(struct spill *s, struct err *err)
{
	struct spill_redis *r = &s->redis;
	struct timespec until;
	int rc;

	r->looks_end = &r->looks;
	r->jobs_end = &r->jobs;
	if (!s->o.redis)
		return 0;
	r->in.does = "read";
	r->out.does = "write";
	rc = redis_new(&r->in.redis, s->o.redis, s->o.redis_password, err);
	if (!rc)
		rc = redis_new(&r->out.redis, s->o.redis, s->o.redis_password, err);
	if (rc)
		return rc;
	pthread_cond_init(&r->wanted, NULL);
	pthread_cond_init(&r->work, NULL);
	pthread_cond_init(&r->tried, NULL);
	r->on = true;
	if (pthread_create(&r->reader, NULL, reader, s))
		return err_set(err, E_IO, "prompt cache: cannot start a thread");
	if (pthread_create(&r->writer, NULL, spill_redis_writer, s)) {
		pthread_mutex_lock(&s->lock);
		s->closing = true;
		pthread_cond_signal(&r->wanted);
		pthread_mutex_unlock(&s->lock);
		pthread_join(r->reader, NULL);
		return err_set(err, E_IO, "prompt cache: cannot start a thread");
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	pthread_mutex_lock(&s->lock);
	while (!r->was_tried && pthread_cond_timedwait(&r->tried, &s->lock, &until) != ETIMEDOUT)
		;
	if (r->in.up)
		log_info("prompt cache %s: connected", redis_name(r->in.redis));
	pthread_mutex_unlock(&s->lock);
	return 0;
}

void spill_redis_stop(struct spill *s)
{
	struct spill_redis *r = &s->redis;

	if (!r->on)
		return;
	pthread_mutex_lock(&s->lock);
	r->closing = true;
	r->close_until = clock_monotonic_ns() + 5 * SECOND;
	pthread_cond_signal(&r->wanted);
	pthread_cond_signal(&r->work);
	pthread_mutex_unlock(&s->lock);
	pthread_join(r->reader, NULL);
	pthread_join(r->writer, NULL);
}

void spill_redis_free(struct spill *s)
{
	struct spill_redis *r = &s->redis;

	redis_free(r->in.redis);
	redis_free(r->out.redis);
	if (!r->on)
		return;
	pthread_cond_destroy(&r->wanted);
	pthread_cond_destroy(&r->work);
	pthread_cond_destroy(&r->tried);
}
