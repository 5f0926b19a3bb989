/* proof.c - kept prefixes recomputed cold and compared byte for byte.
 *
 * A share of the requests that resumed from the store leave the prefix they
 * resumed with.  When the engine has nothing else to do, that prefix is computed
 * as a request of the engine's own, which neither uses nor keeps anything, and
 * what the caches then hold is compared with what the store has there.  When it
 * differs, all that begins with the same token is dropped, for it may share the
 * wrong pages or have come of the wrong state; counted and logged.
 *
 * The law of the row says that this never happens.  It is for finding out that a
 * memory, a kernel or a build breaks it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/core.h"

struct proof_job {
	struct proof_job *next;
	char *salt;
	struct adapter_mix adapters;
	int32_t *tok; /* [n], and one more of no meaning */
	int n;
	struct ask_span *span;
	int n_span;
};

/* More are not remembered: on a busy machine they would never be done. */
enum { JOBS_MAX = 16 };
/* Coins are numbers of this stream of the seed. */
enum { STREAM = 0x70726f66 };

static void job_free(struct proof_job *j)
{
	for (int i = 0; i < j->n_span; i++)
		media_unref(j->span[i].media);
	free(j->span);
	free(j->salt);
	free(j->tok);
	free(j);
}

void proof_fini(struct proof *p)
{
	struct proof_job *j;

	request_free(p->req);
	while ((j = p->job)) {
		p->job = j->next;
		job_free(j);
	}
}

static void take_spans(struct proof_job *j, const struct brought *b)
{
	j->span = b->n ? xcalloc((size_t)b->n, sizeof(*j->span)) : NULL;
	for (int i = 0; i < b->n && b->span[i].at + b->span[i].n <= j->n; i++)
		j->span[j->n_span++] = (struct ask_span){ b->span[i].at, b->span[i].n, media_ref(b->span[i].media),
			                                  b->span[i].from };
}

/* Does the prefix end inside a span, so that its ids are not those of a prompt? */
static bool parts_span(const struct brought *b, int hit)
{
	for (int i = 0; i < b->n; i++)
		if (b->span[i].at < hit && b->span[i].at + b->span[i].n > hit)
			return true;
	return false;
}

void proof_draw(struct engine *e, const struct request *r, int hit)
{
	struct proof *p = &e->proof;
	struct proof_job **at = &p->job, *j;

	if (!(e->opts.verify_share > 0) || p->n_job == JOBS_MAX || parts_span(&r->brought, hit))
		return;
	if (rng_uniform(e->opts.verify_seed, p->drawn++, STREAM) >= e->opts.verify_share)
		return;
	j = xcalloc(1, sizeof(*j));
	j->salt = xstrdup(r->ask.salt);
	j->adapters = r->ask.adapters;
	j->tok = xcalloc((size_t)hit + 1, sizeof(*j->tok));
	memcpy(j->tok, r->tok, (size_t)hit * sizeof(*j->tok));
	j->n = hit;
	take_spans(j, &r->brought);
	while (*at)
		at = &(*at)->next;
	*at = j;
	p->n_job++;
}

bool proof_wants(const struct engine *e)
{
	return e->proof.job && !e->inbox.draining;
}

static void job_done(struct proof *p)
{
	struct proof_job *j = p->job;

	p->job = j->next;
	p->n_job--;
	job_free(j);
}

void proof_begin(struct engine *e)
{
	struct proof *p = &e->proof;
	bool alone = !e->sched.fair.n_waiting && e->sched.n_run == (p->req != NULL), empty;
	struct event ev;
	struct err err;
	struct ask ask = { .max_tokens = 0, .no_cache = true };

	while (p->req && request_next(p->req, &ev))
		if (ev.kind == EV_DONE) {
			/* Cancelled ones are begun again when the engine is idle. */
			if (ev.finish != FINISH_CANCEL)
				job_done(p);
			request_free(p->req);
			p->req = NULL;
			alone = !e->sched.fair.n_waiting && !e->sched.n_run;
		}
	if (!p->job)
		return;
	pthread_mutex_lock(&e->inbox.lock);
	empty = !e->inbox.first && !e->inbox.closing && !e->inbox.draining;
	pthread_mutex_unlock(&e->inbox.lock);
	if (p->req && (!alone || !empty))
		request_cancel(p->req);
	if (p->req || !alone || !empty)
		return;
	ask.prompt = p->job->tok;
	ask.n_prompt = p->job->n;
	ask.span = p->job->span;
	ask.n_span = p->job->n_span;
	sampler_params_init(&ask.sampling);
	if (engine_submit(e, &ask, &p->req, &err)) {
		log_warn("engine: a kept prefix of %d tokens cannot be verified: %s", p->job->n, err.msg);
		job_done(p);
		return;
	}
	p->req->ask.proof = true; /* no other thread has seen it yet */
	p->req->ask.adapters = p->job->adapters;
	pthread_mutex_lock(&e->inbox.lock);
	e->inbox.submitted_own++;
	pthread_mutex_unlock(&e->inbox.lock);
}

/* ---- comparing ---- */

/* Snapshots as bytes, a window at a time: a long prefix takes gigabytes. */
enum { WINDOW = 64 << 20 };

struct window {
	struct sink sink;
	char *bytes;     /* of the stream's positions [from, from + WINDOW) */
	size_t from, at; /* at: so far in the stream */
	bool compare, differs;
};

static int window_put(struct sink *s, const void *p, size_t n)
{
	struct window *w = (struct window *)s;
	size_t first = w->at > w->from ? w->at : w->from, end = w->at + n;

	if (end > w->from + WINDOW)
		end = w->from + WINDOW;
	if (first < end) {
		char *mine = w->bytes + (first - w->from);
		const char *new = (const char *)p + (first - w->at);

		if (w->compare)
			w->differs |= memcmp(mine, new, end - first) != 0;
		else
			memcpy(mine, new, end - first);
	}
	w->at += n;
	return 0;
}

static bool same(const struct snaps *a, const struct snaps *b)
{
	struct window w = { .sink = { window_put } };
	size_t total;
	bool failed; /* the device, which tells of no difference */

	w.bytes = xmalloc(WINDOW);
	do {
		w.at = 0;
		w.compare = false;
		failed = snaps_write(a, &w.sink);
		total = w.at;
		w.at = 0;
		w.compare = true;
		failed = snaps_write(b, &w.sink) || failed;
		w.differs |= w.at != total;
		w.from += WINDOW;
	} while (!failed && !w.differs && w.from < total);
	free(w.bytes);
	return failed || !w.differs;
}

void proof_judge(struct engine *e, struct request *r)
{
	struct proof *p = &e->proof;
	struct caches *caches = &e->m->caches;
	const struct proof_job *j = p->job;
	struct snaps cold, kept;
	struct prefix_hit hit;
	bool differs;

	assert(r == p->req && j && r->pos == j->n);
	prefix_find(&e->prefix, j->salt, j->tok, j->n + 1, &hit);
	if (hit.at != j->n || caches_capture(caches, r->slot, j->n, &cold))
		return; /* evicted since, or no memory for the comparison */
	/* Through the slot, for a snapshot may hold more than is asked of it. */
	caches_close(caches, r->slot);
	if (caches_restore(caches, r->slot, hit.snaps, hit.at) || caches_capture(caches, r->slot, hit.at, &kept)) {
		caches_close(caches, r->slot);
		caches_restore(caches, r->slot, &cold, j->n);
		snaps_drop(&cold);
		return;
	}
	differs = !same(&cold, &kept);
	snaps_drop(&cold);
	snaps_drop(&kept);
	e->stats.prefix.verified++;
	if (!differs)
		return;
	e->stats.prefix.wrong++;
	log_error(
		"engine: a kept prefix of %d tokens (node %llu) differs from what is computed now; it is dropped, and all "
		"that shares memory with it",
		j->n, (unsigned long long)hit.report.node);
	prefix_drop(&e->prefix, prefix_top(hit.node), NULL);
}
