/* known_switch.c - see known_switch.h and known_models.h. */
#include "server/known_switch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/system.h"
#include "server/http/exchange.h"
#include "server/inside.h"

enum { MB = 1 << 20 };

/* ---- requests ---- */

/* Bytes of pinned models other than m, which never make room; their names are appended to out. */
static size_t pinned_bytes(const struct known_models *k, const struct known_model *m, struct buf *out)
{
	size_t bytes = 0;

	for (int i = 0; i < k->n_listed; i++) {
		const struct known_model *o = k->v[i];

		if (o == m || !o->source.pinned)
			continue;
		bytes += o->bytes;
		buf_printf(out, "%s\"%s\" (%zu MB)", out->n ? ", " : "", o->about.name, o->bytes / MB);
	}
	return bytes;
}

/* Why m cannot be had, however long a request waits; 0: it can. */
static int refuse(const struct known_models *k, const struct known_model *m, struct problem *p)
{
	struct buf names;
	size_t pinned;
	int r = 0;

	if (k->stop)
		return problem_stopping(p);
	if (m->asleep)
		return problem_set(p, 503, "model_asleep", "model",
		                   "the model \"%s\" is asleep; POST /wake_up?model=%s wakes it", m->about.name,
		                   m->about.name);
	if (m->source.why.code)
		return problem_set(p, 503, "model_unusable", "model", "the model \"%s\" cannot be loaded: %s",
		                   m->about.name, m->source.why.msg);
	buf_init(&names);
	pinned = pinned_bytes(k, m, &names);
	if (m->bytes > k->budget)
		r = problem_set(p, 503, "model_too_large", "model",
		                "the model \"%s\" takes %zu MB, and models may take %zu MB (--memory)", m->about.name,
		                m->bytes / MB, k->budget / MB);
	else if (pinned && m->bytes > k->budget - pinned)
		r = problem_set(
			p, 503, "model_too_large", "model",
			"the model \"%s\" takes %zu MB, and %zu MB are left: models may take %zu MB (--memory), and "
			"pinned ones are %s.  One of these would have to go",
			m->about.name, m->bytes / MB, (k->budget - pinned) / MB, k->budget / MB, names.p);
	buf_fini(&names);
	return r;
}

/* Whether x may wait no longer, with *p filled or KNOWN_AGAIN.  failures: how often m had failed before. */
static int gave_up(const struct exchange *x, const struct known_model *m, int64_t failures, struct problem *p)
{
	if (atomic_load(&x->gone))
		return problem_set(p, 499, NULL, NULL, "the client left");
	if (m->failures != failures)
		return problem_set(p, 503, "model_unusable", "model", "the model \"%s\" cannot be loaded: %s",
		                   m->about.name, m->why.msg);
	if (x->deadline.ns && clock_monotonic_ns() >= x->deadline.ns)
		return problem_set(p, 504, "deadline", NULL, "the deadline passed while the request waited for \"%s\"",
		                   m->about.name);
	return m->removed ? KNOWN_AGAIN : refuse(&m->srv->known, m, p);
}

static void wait_changed(struct known_models *k, int64_t until)
{
	struct timespec t = { until / 1000000000, until % 1000000000 };

	if (until)
		pthread_cond_timedwait(&k->changed, &k->lock, &t);
	else
		pthread_cond_wait(&k->changed, &k->lock);
}

static bool is_shut_out(const struct known_models *k, const struct known_model *m);
static size_t room(const struct known_models *k);

/* Why m is not there yet, and how many models are loaded first, itself included. */
static void tell_why(const struct known_models *k, const struct known_model *m, char *out, size_t n)
{
	int position = 1;

	for (int i = 0; i < k->n_listed; i++) {
		const struct known_model *o = k->v[i];

		position += o != m && (o->phase == KNOWN_LOADING || o->due || (o->waiting && o->wanted < m->wanted));
	}
	snprintf(out, n, "position %d, %s", position,
	         m->phase == KNOWN_LOADING        ? "loading" :
	         is_shut_out(k, m)                ? "its old self answers" :
	         position > 1                     ? "others are loaded first" :
	         room(k) < m->bytes || m->leaving ? "others have the memory" :
	                                            "loading");
}

bool known_waits(const struct exchange *x, struct known_waits *out)
{
	struct known_models *k = &x->srv->known;
	const struct known_model *m;

	pthread_mutex_lock(&k->lock);
	m = x->waited.on;
	if (m && !x->waited.streams)
		m = NULL;
	if (m) {
		snprintf(out->name, sizeof out->name, "%s", m->about.name);
		tell_why(k, m, out->why, sizeof out->why);
	}
	pthread_mutex_unlock(&k->lock);
	return m != NULL;
}

/* Waits until all that wait for m are given it, or x gives up.  m->waiting and k->n_waiting count x until then. */
static int wait_for(struct exchange *x, struct known_model *m, struct problem *p)
{
	struct known_models *k = &m->srv->known;
	int64_t grants = m->grants, failures = m->failures, begin = clock_monotonic_ns();
	bool aside;
	int r;

	x->waited.on = m;
	if (!*x->waited.why)
		tell_why(k, m, x->waited.why, sizeof x->waited.why);
	pthread_mutex_unlock(&k->lock);
	exchange_notify(x);
	r = workers_aside(p);
	aside = !r;
	pthread_mutex_lock(&k->lock);
	while (m->grants == grants && !r && !(r = gave_up(x, m, failures, p)))
		wait_changed(k, x->deadline.ns);
	x->waited.on = NULL;
	x->waited.ns += clock_monotonic_ns() - begin;
	if (m->grants != grants) {
		x->model = m;
	} else {
		k->n_waiting--;
		if (!--m->waiting)
			m->wanted = 0;
		pthread_cond_signal(&k->work);
	}
	if (!aside)
		return r;
	pthread_mutex_unlock(&k->lock);
	workers_back();
	pthread_mutex_lock(&k->lock);
	return r;
}

int known_hold(struct exchange *x, struct known_model *m, struct problem *p)
{
	struct known_models *k = &m->srv->known;
	int r;

	if (m->phase == KNOWN_LOADED && !m->leaving && !m->asleep) {
		m->refs++;
		x->model = m;
		return 0;
	}
	if ((r = refuse(k, m, p)))
		return r;
	if (m->srv->queue_max && k->n_waiting >= m->srv->queue_max) {
		p->retry_after = 1;
		return problem_set(p, 503, "overloaded", NULL,
		                   "%d requests wait for models to be loaded, and the queue holds %d", k->n_waiting,
		                   m->srv->queue_max);
	}
	m->waiting++;
	k->n_waiting++;
	if (!m->wanted)
		m->wanted = ++k->wishes;
	pthread_cond_signal(&k->work);
	return wait_for(x, m, p);
}

void known_release(struct exchange *x)
{
	struct known_model *m = x->model;
	struct known_models *k = &x->srv->known;

	x->model = NULL;
	if (!m)
		return;
	pthread_mutex_lock(&k->lock);
	m->used_ns = clock_monotonic_ns();
	if (!--m->refs)
		pthread_cond_signal(&k->work);
	pthread_mutex_unlock(&k->lock);
}

void known_wake(struct server *s)
{
	struct known_models *k = &s->known;

	pthread_mutex_lock(&k->lock);
	if (k->n_waiting)
		pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
}

/* ---- loading ---- */

/* Gives m to all requests that wait for it.  False: none does. */
static bool grant(struct known_model *m)
{
	struct known_models *k = &m->srv->known;

	if (!m->waiting)
		return false;
	m->refs += m->waiting;
	k->n_waiting -= m->waiting;
	m->waiting = 0;
	m->grants++;
	m->wanted = 0;
	pthread_cond_broadcast(&k->changed);
	return true;
}

/* Under the lock, which is given back meanwhile. */
static int load(struct known_model *m, struct err *err)
{
	struct known_models *k = &m->srv->known;
	int64_t begin = clock_monotonic_ns();
	struct served served;
	size_t bytes = m->bytes;
	int rc;

	m->phase = KNOWN_LOADING;
	m->due = false;
	pthread_mutex_unlock(&k->lock);
	log_info("loading %s, %zu MB", m->about.name, bytes / MB);
	rc = m->source.open(m->source.arg, &served, err);
	if (!rc)
		known_fill(m, &served);
	pthread_mutex_lock(&k->lock);
	m->used_ns = clock_monotonic_ns();
	if (rc) {
		m->phase = KNOWN_ON_DISK;
		m->failures++;
		m->why = *err;
		m->wanted = 0;
		log_error("%s cannot be loaded: %s", m->about.name, err->msg);
		pthread_cond_broadcast(&k->changed);
		return rc;
	}
	m->phase = KNOWN_LOADED;
	m->loads++;
	log_info("loaded %s in %.1f s", m->about.name, (double)(m->used_ns - begin) / 1e9);
	return 0;
}

static void unload(struct known_model *m, const char *why)
{
	struct known_models *k = &m->srv->known;
	int64_t begin = clock_monotonic_ns();

	m->phase = KNOWN_UNLOADING;
	m->leaving = false;
	pthread_mutex_unlock(&k->lock);
	known_empty(m);
	m->source.close(m->source.arg);
	system_heap_trim();
	log_info("unloaded %s in %.1f s: %s", m->about.name, (double)(clock_monotonic_ns() - begin) / 1e9, why);
	pthread_mutex_lock(&k->lock);
	m->phase = KNOWN_ON_DISK;
	pthread_cond_broadcast(&k->changed);
}

/* ---- the thread ---- */

static bool is_idle(const struct known_model *m, int64_t now)
{
	return !m->waiting && !m->source.pinned && m->idle_ns != INT64_MAX && now - m->used_ns >= m->idle_ns;
}

/* Unloads one that nothing has and that is to go of itself.  False: there is none. */
static bool let_go(struct known_models *k)
{
	int64_t now = clock_monotonic_ns();

	for (int i = 0; i < k->n; i++) {
		struct known_model *m = k->v[i];

		if (m->phase != KNOWN_LOADED || m->refs || !m->source.open)
			continue;
		if (!m->asleep && !is_idle(m, now))
			continue;
		unload(m, m->removed ? "it was removed" : m->asleep ? "asleep" : "idle");
		return true;
	}
	return false;
}

/* Frees removed models that nothing has any more. */
static void free_removed(struct known_models *k)
{
	for (int i = k->n_listed; i < k->n;) {
		struct known_model *m = k->v[i];

		if (m->phase != KNOWN_ON_DISK || m->waiting) {
			i++;
			continue;
		}
		k->v[i] = k->v[--k->n];
		known_free(m);
	}
}

/* Whether a removed model still writes where m would. */
static bool is_shut_out(const struct known_models *k, const struct known_model *m)
{
	for (int i = k->n_listed; i < k->n; i++)
		if (m->source.folder && k->v[i]->source.folder && !strcmp(m->source.folder, k->v[i]->source.folder))
			return true;
	return false;
}

/* The model on disk that is due, else the one that has been waited for longest. */
static struct known_model *next_wanted(const struct known_models *k)
{
	struct known_model *best = NULL;

	for (int i = 0; i < k->n; i++) {
		struct known_model *m = k->v[i];

		if (m->phase == KNOWN_ON_DISK && (m->due || (m->waiting && m->wanted)) && !m->asleep &&
		    !is_shut_out(k, m) && (!best || (!best->due && (m->due || m->wanted < best->wanted))))
			best = m;
	}
	return best;
}

/* Bytes of the budget that no model has. */
static size_t room(const struct known_models *k)
{
	size_t used = 0;

	for (int i = 0; i < k->n; i++)
		if (k->v[i]->phase != KNOWN_ON_DISK)
			used += k->v[i]->bytes;
	return used < k->budget ? k->budget - used : 0;
}

/* Whether a makes room before b: one that goes anyway, then one that makes room already, then one that no request has, then the
 * one used least lately. */
static bool goes_before(const struct known_model *a, const struct known_model *b)
{
	if (a->asleep != b->asleep)
		return a->asleep;
	if (a->leaving != b->leaving)
		return a->leaving;
	if (!a->refs != !b->refs)
		return !a->refs;
	return a->used_ns < b->used_ns;
}

/* The index of the model that makes room next; -1: none of those that are not chosen can. */
static int next_to_go(const struct known_models *k, const bool *chosen)
{
	int best = -1;

	for (int i = 0; i < k->n; i++) {
		const struct known_model *m = k->v[i];

		if (!chosen[i] && m->phase == KNOWN_LOADED && m->source.open && !m->source.pinned &&
		    (best < 0 || goes_before(m, k->v[best])))
			best = i;
	}
	return best;
}

/* Marks the models that leave until there are `bytes`, and gives all others to requests that wait for them.  Unloads one that
 * leaves and that no request has.  False: it did nothing but mark. */
static bool make_room(struct known_models *k, size_t bytes)
{
	bool *chosen = xcalloc((size_t)k->n + 1, sizeof(*chosen));
	size_t free_bytes = room(k);
	struct known_model *now = NULL;
	bool some = false;

	for (int i; free_bytes < bytes && (i = next_to_go(k, chosen)) >= 0;) {
		chosen[i] = true;
		free_bytes += k->v[i]->bytes;
		if (!k->v[i]->refs && !now)
			now = k->v[i];
	}
	for (int i = 0; i < k->n; i++) {
		struct known_model *m = k->v[i];

		m->leaving = chosen[i];
		if (m->phase == KNOWN_LOADED && !chosen[i] && !m->asleep)
			some |= grant(m);
	}
	free(chosen);
	if (now)
		unload(now, "its memory is wanted");
	return now || some;
}

/* One thing that is to be done.  False: there is none. */
static bool do_one(struct known_models *k)
{
	struct known_model *m;
	struct err err;

	free_removed(k);
	if (let_go(k))
		return true;
	m = next_wanted(k);
	if (make_room(k, m ? m->bytes : 0))
		return true;
	if (!m || room(k) < m->bytes)
		return false;
	if (!load(m, &err))
		grant(m);
	return true;
}

/* Waits for work, or until a model has been idle for long enough. */
static void wait_work(struct known_models *k)
{
	int64_t until = INT64_MAX;
	struct timespec t;

	for (int i = 0; i < k->n; i++) {
		const struct known_model *m = k->v[i];

		if (m->phase == KNOWN_LOADED && !m->refs && m->source.open && !m->source.pinned &&
		    m->idle_ns < INT64_MAX - m->used_ns && m->used_ns + m->idle_ns < until)
			until = m->used_ns + m->idle_ns;
	}
	t = (struct timespec){ until / 1000000000, until % 1000000000 };
	if (until == INT64_MAX)
		pthread_cond_wait(&k->work, &k->lock);
	else
		pthread_cond_timedwait(&k->work, &k->lock, &t);
}

/* False: it was not asked for. */
static bool read_again(struct known_models *k)
{
	if (!k->reread_asked)
		return false;
	k->reread_asked = false;
	pthread_mutex_unlock(&k->lock);
	k->reread(k->reread_arg);
	pthread_mutex_lock(&k->lock);
	return true;
}

static void *switching(void *arg)
{
	struct known_models *k = arg;

	pthread_mutex_lock(&k->lock);
	while (!k->stop)
		if (!read_again(k) && !do_one(k))
			wait_work(k);
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

int known_begin(struct server *s, size_t budget, struct err *err)
{
	struct known_models *k = &s->known;
	int rc = 0;

	k->budget = budget;
	pthread_mutex_lock(&k->lock);
	for (int i = 0; i < k->n && !rc; i++) {
		struct known_model *m = k->v[i];

		if (m->phase != KNOWN_ON_DISK || m->source.why.code || (i && !m->source.pinned))
			continue;
		if (m->bytes <= room(k))
			rc = load(m, err);
		else if (m->source.pinned)
			rc = err_set(err, E_LIMIT, "%s is pinned and takes %zu MB; %zu MB are left for it",
			             m->about.name, m->bytes / MB, room(k) / MB);
	}
	if (!rc && pthread_create(&k->thread, NULL, switching, k))
		rc = err_set(err, E_LIMIT, "the thread that loads models cannot be started");
	k->threaded = !rc;
	pthread_mutex_unlock(&k->lock);
	return rc;
}

bool known_reread(struct server *s)
{
	struct known_models *k = &s->known;

	if (!k->reread)
		return false;
	pthread_mutex_lock(&k->lock);
	k->reread_asked = true;
	pthread_cond_signal(&k->work);
	pthread_mutex_unlock(&k->lock);
	return true;
}

void known_stop(struct server *s)
{
	struct known_models *k = &s->known;

	pthread_mutex_lock(&k->lock);
	k->stop = true;
	pthread_cond_broadcast(&k->work);
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
}

/* ---- orders ---- */

int known_sleep(struct server *s, const char *name, size_t n, bool asleep)
{
	struct known_models *k = &s->known;
	const struct known_model *only;
	int count = 0;

	pthread_mutex_lock(&k->lock);
	only = name ? known_find(k, name, n) : NULL;
	for (int i = 0; i < k->n_listed && (only || !name); i++)
		if ((!only || k->v[i] == only) && k->v[i]->source.open) {
			k->v[i]->asleep = asleep;
			count++;
		}
	pthread_cond_broadcast(&k->work);
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
	return count;
}
