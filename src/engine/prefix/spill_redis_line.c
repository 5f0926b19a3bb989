/* spill_redis_line.c - see spill_redis.h: the connections, values and names, and the queue; what readers and writers of the
 * folder call too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/redis.h"
#include "engine/prefix/spill_core.h"
#include "engine/prefix/spill_redis_names.h"

static const int64_t SECOND = 1000000000;
static const uint64_t VALUE_MAX = 500000000; /* Redis takes 512 MB */
/* Seconds left alone after failures: from 1 to this. */
enum { REST_MAX_S = 60 };

/* ---- connections ---- */

void spill_line_failed(struct spill *s, struct spill_line *l, const struct err *err)
{
	l->up = false;
	l->rest_ns = !l->rest_ns ? SECOND : 2 * l->rest_ns < REST_MAX_S * SECOND ? 2 * l->rest_ns : REST_MAX_S * SECOND;
	l->rest_until = clock_monotonic_ns() + l->rest_ns;
	s->stats.redis.failed++;
	if (!l->told)
		log_warn("prompt cache %s: cannot %s: %s; it is tried again from time to time", redis_name(l->redis),
		         l->does, err->msg);
	l->told = true;
}

void spill_line_works(struct spill *s, struct spill_line *l)
{
	if (l->told)
		log_info("prompt cache %s: can %s again", redis_name(l->redis), l->does);
	l->told = false;
	l->rest_ns = 0;
}

bool spill_line_up(struct spill *s, struct spill_line *l)
{
	struct err err = { 0 };
	int rc;

	if (l->up || clock_monotonic_ns() < l->rest_until)
		return l->up;
	pthread_mutex_unlock(&s->lock);
	rc = redis_connect(l->redis, clock_monotonic_ns() + SECOND, &err);
	pthread_mutex_lock(&s->lock);
	if (rc)
		spill_line_failed(s, l, &err);
	else
		l->up = true;
	return l->up;
}

bool spill_redis_reads(const struct spill *s)
{
	return s->redis.on && s->redis.in.up && !s->redis.dropping;
}

bool spill_redis_writes(const struct spill *s)
{
	const struct spill_line *l = &s->redis.out;

	return s->redis.on && (l->up || clock_monotonic_ns() >= l->rest_until);
}

/* ---- names ---- */

void spill_shared_name(const struct spill *s, const char *name, char out[SPILL_SHARED_NAME])
{
	snprintf(out, SPILL_SHARED_NAME, "weft:%s:%.*s", s->folder, SPILL_NAME - 1, name);
}

void spill_places_name(const struct digest *key, char out[SPILL_NAME])
{
	char hex[2 * sizeof(key->b) + 1];

	hex_put(hex, key->b, sizeof(key->b));
	snprintf(out, SPILL_NAME, "%s.at", hex);
}

/* ---- jobs ---- */

void spill_job_free(struct job *j)
{
	free(j->tok);
	if (j->release)
		j->release(j->owner);
	free(j->key);
	free(j);
}

uint64_t spill_size_of(const struct spill_head *h)
{
	return SPILL_HEAD + (uint64_t)h->n_tok * sizeof(int32_t) + h->payload_bytes;
}

void spill_job_end(struct spill *s, struct job *j)
{
	s->stats.queue_bytes -= j->head.payload_bytes;
	spill_job_free(j);
}

bool spill_redis_put(struct spill *s, struct job *j)
{
	struct spill_redis *r = &s->redis;

	if (!r->on)
		return false;
	if (j->payload && (!spill_redis_writes(s) || r->dropping || spill_size_of(&j->head) > VALUE_MAX ||
	                   r->job_bytes + j->head.payload_bytes > s->o.queue_bytes / 2)) {
		s->stats.redis.dropped++;
		return false;
	}
	r->dropping += !j->payload;
	r->job_bytes += j->head.payload_bytes;
	j->next = NULL;
	*r->jobs_end = j;
	r->jobs_end = &j->next;
	pthread_cond_signal(&r->work);
	return true;
}

/* ---- reading ---- */

/* A value that lies in memory, for the readers of files. */
struct value_io {
	struct spill_io io;
	const char *p;
	uint64_t n;
};

static ssize_t value_read(const struct spill_io *io, int fd, void *p, size_t n, uint64_t at)
{
	const struct value_io *v = (const struct value_io *)io;

	if (at >= v->n)
		return 0;
	if (n > v->n - at)
		n = (size_t)(v->n - at);
	memcpy(p, v->p + at, n);
	return (ssize_t)n;
}

int spill_redis_read(struct spill *s, const char *name, struct spill_head *want, size_t most, const int32_t *tok,
                     void **payload, struct err *err)
{
	struct spill_line *l = &s->redis.in;
	size_t bytes = SPILL_HEAD + want->n_tok * sizeof(*tok) + (want->payload_bytes ? want->payload_bytes : most);
	int64_t until = clock_monotonic_ns() + SECOND + (int64_t)(bytes / SPILL_LEAST_RATE * SECOND);
	char full[SPILL_SHARED_NAME];
	struct redis_reply reply = { .kind = REDIS_NIL };
	bool lost;
	int rc;

	*payload = NULL;
	spill_shared_name(s, name, full);
	redis_addf(l->redis, "GET", full, NULL);
	rc = redis_send(l->redis, until, err);
	if (!rc)
		rc = redis_reply(l->redis, &reply, bytes + LOOK_BYTES, until, err);
	lost = rc && rc != E_UNSUPPORTED;
	if (rc == E_UNSUPPORTED)
		rc = E_FORMAT; /* no value, but something else by that name */
	if (!rc && reply.kind != REDIS_TEXT)
		rc = err_set(err, E_MISSING, "%s: it is gone", name);
	if (!rc) {
		struct value_io v = { { .read = value_read }, reply.text, (uint64_t)reply.n };
		const struct spill_part part = { .fd = -1, .bytes = (uint64_t)reply.n };

		rc = spill_part_read(&v.io, &part, want, most, tok, payload, err);
		if (rc)
			err_prefix(err, "%s", name);
	}
	redis_reply_free(&reply);
	if (rc && rc != E_MISSING && !lost) { /* others should not find it either */
		struct err ignored;

		redis_addf(l->redis, "UNLINK", full, NULL);
		lost = redis_send(l->redis, until, &ignored) ||
		       redis_reply(l->redis, &reply, LOOK_BYTES, until, &ignored);
		redis_reply_free(&reply);
	}
	pthread_mutex_lock(&s->lock);
	if (lost)
		spill_line_failed(s, l, err);
	else
		spill_line_works(s, l);
	pthread_mutex_unlock(&s->lock);
	return lost ? E_GONE : rc;
}

void spill_redis_took(struct spill *s, size_t bytes, int64_t ns)
{
	const double recent = 64e6; /* bytes */
	struct spill_redis *r = &s->redis;

	r->rate_bytes += (double)bytes;
	r->rate_ns += (double)ns;
	r->rate_at = clock_monotonic_ns();
	if (r->rate_bytes > recent) {
		r->rate_bytes /= 2;
		r->rate_ns /= 2;
	}
}

/* A Redis that was slow once is tried again. */
double spill_redis_ns_byte(const struct spill *s)
{
	const struct spill_redis *r = &s->redis;

	return r->rate_bytes > 0 && clock_monotonic_ns() - r->rate_at < 60 * SECOND ? r->rate_ns / r->rate_bytes : 0;
}
