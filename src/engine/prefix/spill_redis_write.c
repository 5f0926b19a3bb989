/* spill_redis_write.c - see spill_redis.h: the thread that writes and drops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/prefix/spill_drop.h"
#include "engine/prefix/spill_redis_names.h"

static const int64_t SECOND = 1000000000;
enum { SCAN = 1000 }; /* names that Redis looks at for one answer */

static void job_took(struct spill_redis *r, struct job *j)
{
	r->jobs = j->next;
	if (!r->jobs)
		r->jobs_end = &r->jobs;
	r->job_bytes -= j->head.payload_bytes;
	r->writing = true;
}

/* ---- writing ---- */

/* The answer to a command that says a number. */
static int take_number(struct redis *r, int64_t *n, int64_t until, struct err *err)
{
	struct redis_reply reply;
	int rc = redis_reply(r, &reply, LOOK_BYTES, until, err);

	if (!rc && reply.kind != REDIS_INTEGER)
		rc = err_set(err, E_FORMAT, "it answers with something else than a number");
	*n = reply.n;
	redis_reply_free(&reply);
	return rc;
}

static int set_value(struct spill *s, struct job *j, const char *full, int64_t until, struct err *err)
{
	struct redis *r = s->redis.out.redis;
	uint8_t head[SPILL_HEAD];
	size_t n_tok = j->head.n_tok * sizeof(*j->tok);
	const struct redis_word part[] = { { head, sizeof(head) },
		                           { j->tok, n_tok },
		                           { j->payload, j->head.payload_bytes } };
	struct redis_reply reply;
	int rc;

	j->head.sum = check128(j->tok, n_tok, j->payload, j->head.payload_bytes);
	spill_head_put(&j->head, head);
	rc = redis_set(r, full, part, 3, s->o.redis_seconds, until, err);
	if (!rc)
		rc = redis_reply(r, &reply, LOOK_BYTES, until, err);
	else
		return rc;
	redis_reply_free(&reply);
	return rc;
}

/* Notes where the snapshot is, once it is there. */
static int note_place(struct spill *s, const struct job *j, const char *seconds, int64_t until, struct err *err)
{
	struct redis *r = s->redis.out.redis;
	char name[SPILL_NAME], full[SPILL_SHARED_NAME], bit[16];
	int64_t n;
	int rc;

	spill_places_name(&j->head.key, name);
	spill_shared_name(s, name, full);
	snprintf(bit, sizeof(bit), "%u", (unsigned)(j->head.pos % (uint32_t)s->o.page_rows));
	redis_addf(r, "SETBIT", full, bit, "1", NULL);
	redis_addf(r, "EXPIRE", full, seconds, NULL);
	rc = redis_send(r, until, err);
	if (!rc)
		rc = take_number(r, &n, until, err);
	return rc ? rc : take_number(r, &n, until, err);
}

/* Without the lock. */
static int send_piece(struct spill *s, struct job *j, bool *sent, struct err *err)
{
	struct redis *r = s->redis.out.redis;
	int64_t until = clock_monotonic_ns() + SECOND + (int64_t)(j->head.payload_bytes / SPILL_LEAST_RATE * SECOND);
	char name[SPILL_NAME], full[SPILL_SHARED_NAME], seconds[16];
	int64_t has = 0;
	int rc;

	spill_name_put(name, j->head.kind, &j->head.key, j->head.pos, j->tail);
	spill_shared_name(s, name, full);
	snprintf(seconds, sizeof(seconds), "%d", s->o.redis_seconds);
	redis_addf(r, "EXPIRE", full, seconds, NULL); /* another server may have written it */
	rc = redis_send(r, until, err);
	if (!rc)
		rc = take_number(r, &has, until, err);
	*sent = !rc && has != 1;
	if (*sent)
		rc = set_value(s, j, full, until, err);
	if (!rc && j->head.kind == SPILL_SNAP)
		rc = note_place(s, j, seconds, until, err);
	return rc;
}

/* Also after an error that Redis answers with, as that its memory is full. */
static void piece_failed(struct spill *s, const struct err *err)
{
	redis_close(s->redis.out.redis);
	spill_line_failed(s, &s->redis.out, err);
	s->stats.redis.dropped++;
}

/* Called and returns locked. */
static void send_one(struct spill *s)
{
	struct spill_redis *r = &s->redis;
	struct job *j = r->jobs;
	struct spill_entry *e;
	struct err err = { 0 };
	bool sent = false, done = false;

	job_took(r, j);
	if ((r->closing && clock_monotonic_ns() > r->close_until) || !spill_line_up(s, &r->out)) {
		s->stats.redis.dropped++;
	} else {
		pthread_mutex_unlock(&s->lock);
		done = !send_piece(s, j, &sent, &err);
		pthread_mutex_lock(&s->lock);
		if (done)
			spill_line_works(s, &r->out);
		else
			piece_failed(s, &err);
	}
	e = spill_index_find(&s->index, j->head.kind, &j->head.key, j->head.pos, j->tail);
	if (e && !s->o.dir && e->queued) {
		spill_index_remove(&s->index, e);
		e = NULL;
	}
	if (e)
		e->shared = done ? SHARED_YES : SHARED_NO;
	else if (done)
		spill_index_lend(&s->index, j->head.kind, &j->head.key, j->head.pos, j->tail);
	s->stats.redis.written += done && sent;
	s->stats.redis.written_bytes += done && sent ? j->head.payload_bytes : 0;
	r->writing = false;
	spill_job_end(s, j);
}

/* ---- dropping ---- */

struct names {
	struct spill_name *v;
	size_t n, cap;
};

/* Adds the pieces among the names of one answer.  All: removes every name of the model at once. */
static int take_names(struct spill *s, const struct redis_reply *list, bool all, struct names *to, int64_t until,
                      struct err *err)
{
	struct redis *r = s->redis.out.redis;
	size_t skip = strlen("weft:") + SPILL_FOLDER;
	int64_t n;
	int rc;

	for (int64_t i = 0; i < list->n; i++) {
		struct redis_reply x = redis_item(list, i);
		struct spill_name f = { 0 };

		if (x.kind != REDIS_TEXT || x.n >= SPILL_SHARED_NAME || (size_t)x.n <= skip)
			continue;
		if (all)
			redis_addf(r, "UNLINK", x.text, NULL);
		if (all || spill_name_get(x.text + skip, &f.kind, &f.key, &f.pos, &f.tail))
			continue;
		if (to->n == to->cap) {
			to->cap = to->cap ? 2 * to->cap : 256;
			to->v = xrealloc(to->v, size_mul(to->cap, sizeof(*to->v)));
		}
		to->v[to->n++] = f;
	}
	if (!all)
		return 0;
	rc = redis_send(r, until, err);
	for (int64_t i = 0; i < list->n && !rc; i++) {
		struct redis_reply x = redis_item(list, i);

		if (x.kind == REDIS_TEXT && x.n < SPILL_SHARED_NAME && (size_t)x.n > skip)
			rc = take_number(r, &n, until, err);
	}
	return rc;
}

/* All pieces of this model. */
static int list_names(struct spill *s, bool all, struct names *to, struct err *err)
{
	struct redis *r = s->redis.out.redis;
	char match[SPILL_SHARED_NAME], cursor[24] = "0", count[16];
	int rc = 0;

	spill_shared_name(s, "*", match);
	snprintf(count, sizeof(count), "%d", SCAN);
	do {
		int64_t until = clock_monotonic_ns() + SECOND;
		struct redis_reply reply, at, list;

		redis_addf(r, "SCAN", cursor, "MATCH", match, "COUNT", count, NULL);
		rc = redis_send(r, until, err);
		if (rc)
			return rc;
		rc = redis_reply(r, &reply, 4 * LOOK_BYTES, until, err);
		at = redis_item(&reply, 0);
		list = redis_item(&reply, 1);
		if (!rc && (at.kind != REDIS_TEXT || at.n >= (int64_t)sizeof(cursor) || list.kind != REDIS_LIST))
			rc = err_set(err, E_FORMAT, "its answer to SCAN is not what was asked for");
		if (!rc) {
			memcpy(cursor, at.text, (size_t)at.n + 1);
			rc = take_names(s, &list, all, to, until, err);
		}
		redis_reply_free(&reply);
	} while (!rc && strcmp(cursor, "0") != 0);
	return rc;
}

/* What spill_mark asks about a piece. */
struct peeker {
	struct spill_peek peek;
	struct spill *s;
	int rc;
	struct err err;
};

static bool peek(struct spill_peek *p, const struct spill_name *f, struct spill_head *h, int32_t *tok, size_t n)
{
	struct peeker *k = (struct peeker *)p;
	struct redis *r = k->s->redis.out.redis;
	int64_t until = clock_monotonic_ns() + SECOND, bytes = 0;
	size_t most = SPILL_HEAD + n * sizeof(*tok);
	char name[SPILL_NAME], full[SPILL_SHARED_NAME], last[24];
	struct redis_reply reply = { .kind = REDIS_NIL };
	bool good;

	if (k->rc)
		return false;
	spill_name_put(name, f->kind, &f->key, f->pos, f->tail);
	spill_shared_name(k->s, name, full);
	snprintf(last, sizeof(last), "%zu", most - 1);
	redis_addf(r, "STRLEN", full, NULL);
	redis_addf(r, "GETRANGE", full, "0", last, NULL);
	k->rc = redis_send(r, until, &k->err);
	if (!k->rc)
		k->rc = take_number(r, &bytes, until, &k->err);
	if (!k->rc)
		k->rc = redis_reply(r, &reply, most + LOOK_BYTES, until, &k->err);
	good = !k->rc && reply.kind == REDIS_TEXT && (size_t)reply.n == most && bytes >= 0 &&
	       !spill_head_get(h, (const uint8_t *)reply.text, SPILL_HEAD, (uint64_t)bytes, NULL) && h->n_tok >= n;
	if (good && n)
		memcpy(tok, reply.text + SPILL_HEAD, n * sizeof(*tok));
	redis_reply_free(&reply);
	return good;
}

/* Without the lock.  key NULL: all. */
static int drop_pieces(struct spill *s, const struct job *j, struct err *err)
{
	struct peeker k = { { peek }, s, 0, { 0 } };
	struct redis *r = s->redis.out.redis;
	struct names names = { 0 };
	int rc = list_names(s, !j->key, &names, err);
	int64_t n;

	if (!rc && j->key && names.n) {
		spill_mark(&k.peek, s->o.page_rows, j->key, j->tok, (int)j->head.n_tok, names.v, names.n);
		rc = k.rc;
		*err = rc ? k.err : *err;
	}
	for (size_t i = 0; i < names.n && !rc && j->key; i++) {
		int64_t until = clock_monotonic_ns() + SECOND;
		char name[SPILL_NAME], full[SPILL_SHARED_NAME];
		const struct spill_name *f = &names.v[i];

		if (!f->out)
			continue;
		spill_name_put(name, f->kind, &f->key, f->pos, f->tail);
		spill_shared_name(s, name, full);
		redis_addf(r, "UNLINK", full, NULL);
		rc = redis_send(r, until, err);
		if (!rc)
			rc = take_number(r, &n, until, err);
	}
	free(names.v);
	return rc;
}

/* false: later.  Called and returns locked. */
static bool drop_one(struct spill *s)
{
	struct spill_redis *r = &s->redis;
	struct job *j = r->jobs;
	struct err err = { 0 };
	int rc;

	if (r->closing && !r->out.up)
		log_warn("prompt cache %s: ends before it could remove prefixes that were dropped",
		         redis_name(r->out.redis));
	else if (!spill_line_up(s, &r->out))
		return false;
	if (r->out.up) {
		pthread_mutex_unlock(&s->lock);
		rc = drop_pieces(s, j, &err);
		pthread_mutex_lock(&s->lock);
		if (rc) {
			redis_close(r->out.redis);
			spill_line_failed(s, &r->out, &err);
			return false;
		}
		spill_line_works(s, &r->out);
	}
	job_took(r, j);
	spill_index_unlend(&s->index);
	r->dropping--;
	r->writing = false;
	spill_job_free(j);
	return true;
}

/* Until the connection is not left alone any longer, or there is something else to do.  Called and returns locked. */
static void wait_rest(struct spill *s)
{
	int64_t left = s->redis.out.rest_until - clock_monotonic_ns();
	struct timespec until;

	if (left <= 0)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (left + until.tv_nsec) / SECOND;
	until.tv_nsec = (left + until.tv_nsec) % SECOND;
	pthread_cond_timedwait(&s->redis.work, &s->lock, &until);
}

void *spill_redis_writer(void *arg)
{
	struct spill *s = arg;
	struct spill_redis *r = &s->redis;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		if (r->jobs && r->jobs->payload) {
			send_one(s);
		} else if (r->jobs) {
			if (!drop_one(s) && !r->closing)
				wait_rest(s);
		} else {
			pthread_cond_broadcast(&s->idle);
			if (r->closing)
				break;
			pthread_cond_wait(&r->work, &s->lock);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}
