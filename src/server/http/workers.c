/* workers.c - see workers.h. */
#include "server/http/workers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/system.h"
#include "server/inside.h"

static _Thread_local struct worker *self; /* NULL: this thread is none */

/* ---- the ring ---- */

static struct line *line_of(struct workers *w, const char *client)
{
	struct line **at = &w->ring, *l;

	for (; *at; at = &(*at)->next)
		if (!strcmp((*at)->client, client))
			return *at;
	l = xcalloc(1, sizeof *l);
	snprintf(l->client, sizeof l->client, "%s", client);
	l->tail = &l->head;
	return *at = l;
}

/* Takes a client without jobs out of the line. */
static void line_forget(struct workers *w, struct line *l)
{
	struct line **at = &w->ring;

	if (l->n_waiting || l->n_working || l->n_aside || l->n_back)
		return;
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	free(l);
}

static void line_to_end(struct workers *w, struct line *l)
{
	struct line **at = &w->ring;

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	while (*at)
		at = &(*at)->next;
	*at = l;
	l->next = NULL;
}

/* Places that one client may have. */
static int places_max(const struct workers *w)
{
	return w->n > 1 ? w->n - 1 : 1;
}

/* The client whose turn it is, and that has not all the places it may have; NULL: there is none, or no place.  Threads that
 * come back from aside go first, for what they hold is in memory. */
static struct line *line_next(const struct workers *w)
{
	int most = places_max(w), left = w->n - w->n_working;
	struct line *l;

	for (l = w->ring; l; l = l->next)
		left -= l->n_back < most - l->n_working ? l->n_back : most - l->n_working;
	for (l = left > 0 ? w->ring : NULL; l; l = l->next)
		if (l->n_waiting && l->n_working + l->n_back < most)
			break;
	return l;
}

static struct exchange *take_job(struct workers *w, struct line *l)
{
	struct exchange *x = l->head;

	if (!(l->head = x->next))
		l->tail = &l->head;
	x->next = NULL;
	l->n_waiting--;
	w->n_waiting--;
	return x;
}

/* ---- a worker ---- */

/* A place is free, or a client may have one more. */
static void tell_place(struct workers *w)
{
	pthread_cond_broadcast(&w->place);
	if (w->n_waiting)
		pthread_cond_signal(&w->more);
}

static void begin_computing(struct worker *me)
{
	me->line->n_working++;
	me->srv->workers.n_working++;
	me->since = clock_monotonic_ns();
}

static void end_computing(struct worker *me)
{
	me->since = 0;
	me->srv->workers.n_working--;
	me->line->n_working--;
}

static void set_aside(struct worker *me, bool aside)
{
	me->aside = aside;
	me->line->n_aside += aside ? 1 : -1;
	me->srv->workers.n_aside += aside ? 1 : -1;
}

/* One exchange of l; the lock is held before and after. */
static void work_on(struct worker *me, struct line *l)
{
	struct server *s = me->srv;
	struct workers *w = &s->workers;
	struct exchange *x = take_job(w, l);

	line_to_end(w, l);
	me->line = l;
	begin_computing(me);
	pthread_mutex_unlock(&s->lock);
	exchange_prepare(x);
	pthread_mutex_lock(&s->lock);
	if (me->aside) /* a fault ended the work there */
		set_aside(me, false);
	else
		end_computing(me);
	line_forget(w, l);
	tell_place(w);
}

/* True: there was something. */
static bool tidy(struct server *s)
{
	struct workers *w = &s->workers;
	struct rubbish *r = w->rubbish;
	bool trim = w->trim;

	w->rubbish = NULL;
	w->trim = false;
	if (!r && !trim)
		return false;
	pthread_mutex_unlock(&s->lock);
	while (r) {
		struct rubbish *next = r->next;

		r->drop(r->p);
		free(r);
		r = next;
	}
	if (trim)
		system_heap_trim();
	pthread_mutex_lock(&s->lock);
	return true;
}

static void *work(void *arg)
{
	struct worker *me = arg;
	struct server *s = me->srv;
	struct workers *w = &s->workers;

	self = me;
	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct line *l = line_next(w);

		if (l)
			work_on(me, l);
		else if (tidy(s))
			continue;
		else if (w->stop && !w->n_waiting)
			break;
		else
			pthread_cond_wait(&w->more, &s->lock);
	}
	/* Wakes the threads that wait for another request of a client to end. */
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int workers_aside(struct problem *p)
{
	struct server *s = self ? self->srv : NULL;
	bool all, own;

	if (!s)
		return 0;
	pthread_mutex_lock(&s->lock);
	all = s->workers.n_aside >= s->workers.n_thread - s->workers.n;
	own = self->line->n_aside >= ASIDE_CLIENT_MAX;
	if (!all && !own) {
		end_computing(self);
		set_aside(self, true);
		tell_place(&s->workers);
	}
	pthread_mutex_unlock(&s->lock);
	if (!all && !own)
		return 0;
	if (all)
		problem_set(p, 503, "overloaded", NULL,
		            "%d requests wait for models or other machines, which are the most", ASIDE_MAX);
	else
		problem_set(p, 429, "client_over_share", NULL,
		            "%d requests of this client wait for models or other machines, which is its share",
		            ASIDE_CLIENT_MAX);
	p->retry_after = 1;
	return p->status;
}

void workers_back(void)
{
	struct server *s = self ? self->srv : NULL;
	struct workers *w;
	struct line *l;

	if (!s)
		return;
	w = &s->workers;
	l = self->line;
	pthread_mutex_lock(&s->lock);
	set_aside(self, false);
	l->n_back++;
	while (w->n_working >= w->n || l->n_working >= places_max(w))
		pthread_cond_wait(&w->place, &s->lock);
	l->n_back--;
	begin_computing(self);
	/* There may be a place for another client: this one may have waited for its share alone. */
	tell_place(w);
	pthread_mutex_unlock(&s->lock);
}

void workers_open(struct server *s, int n, bool aside)
{
	struct workers *w = &s->workers;

	assert(n >= 1);
	system_heap_begin();
	pthread_cond_init(&w->more, NULL);
	pthread_cond_init(&w->place, NULL);
	w->v = xcalloc((size_t)n + ASIDE_MAX, sizeof *w->v);
	pthread_mutex_lock(&s->lock);
	for (w->n_thread = 0; w->n_thread < n + (aside ? ASIDE_MAX : 0); w->n_thread++) {
		w->v[w->n_thread].srv = s;
		if (pthread_create(&w->v[w->n_thread].thread, NULL, work, &w->v[w->n_thread]))
			break;
	}
	w->n = w->n_thread < n ? w->n_thread : n;
	pthread_mutex_unlock(&s->lock);
	assert(w->n > 0);
}

void workers_close(struct server *s)
{
	struct workers *w = &s->workers;

	pthread_mutex_lock(&s->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < w->n_thread; i++)
		pthread_join(w->v[i].thread, NULL);
	w->n = w->n_thread = 0;
	free(w->v);
	w->v = NULL;
	pthread_cond_destroy(&w->more);
	pthread_cond_destroy(&w->place);
}

/* ---- from the loop ---- */

/* The bound of all that waits; own of it and `here` of it wait here.  What the engine takes from a client it
 * judges itself. */
static int judge(struct server *s, int own, int here, struct problem *p)
{
	int max = s->queue_max, waiting;

	/* Without waiting jobs here an engine decides: freed room may not be for this client. */
	if (!max || !here)
		return 0;
	waiting = known_waiting(s);
	if (here + waiting >= max)
		problem_set(p, 503, "overloaded", NULL, "%d requests are waiting and the queue holds %d",
		            here + waiting, max);
	else if (own && own >= max - here)
		problem_set(p, 429, "client_over_share", NULL,
		            "%d requests of this client are waiting and its share of the queue is %d", own, max - here);
	else
		return 0;
	p->retry_after = 1;
	return p->status;
}

int workers_give(struct server *s, struct exchange *x, struct problem *p)
{
	struct workers *w = &s->workers;
	int own = 0, here, r;
	struct line *l;

	pthread_mutex_lock(&s->lock);
	here = w->n_waiting;
	for (l = w->ring; l; l = l->next)
		if (!strcmp(l->client, x->from.client))
			own = l->n_waiting;
	pthread_mutex_unlock(&s->lock);
	/* Without the lock, for the engine has its own; and only this thread adds. */
	r = judge(s, own, here, p);
	pthread_mutex_lock(&s->lock);
	w->refused += r != 0;
	if (!r) {
		l = line_of(w, x->from.client);
		x->next = NULL;
		*l->tail = x;
		l->tail = &x->next;
		l->n_waiting++;
		w->n_waiting++;
		pthread_cond_signal(&w->more);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

bool workers_take_back(struct server *s, struct exchange *x)
{
	struct workers *w = &s->workers;
	bool found = false;

	pthread_mutex_lock(&s->lock);
	for (struct line *l = w->ring; l && !found; l = l->next) {
		struct exchange **at = &l->head;

		while (*at && *at != x)
			at = &(*at)->next;
		if (!*at)
			continue;
		*at = x->next;
		if (l->tail == &x->next)
			l->tail = at;
		x->next = NULL;
		l->n_waiting--;
		w->n_waiting--;
		line_forget(w, l);
		found = true;
		break;
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

void workers_discard(struct server *s, void (*drop)(void *p), void *p)
{
	struct rubbish *r = s->workers.v ? xmalloc(sizeof *r) : NULL;

	if (!r) {
		drop(p);
		return;
	}
	pthread_mutex_lock(&s->lock);
	*r = (struct rubbish){ drop, p, s->workers.rubbish };
	s->workers.rubbish = r;
	pthread_cond_signal(&s->workers.more);
	pthread_mutex_unlock(&s->lock);
}

void workers_trim(struct server *s)
{
	if (!s->workers.v)
		return;
	pthread_mutex_lock(&s->lock);
	s->workers.trim = true;
	pthread_cond_signal(&s->workers.more);
	pthread_mutex_unlock(&s->lock);
}

void workers_stats(struct server *s, struct workers_stats *out)
{
	struct workers *w = &s->workers;
	int64_t now = clock_monotonic_ns();

	*out = (struct workers_stats){ 0 };
	pthread_mutex_lock(&s->lock);
	out->waiting = w->n_waiting;
	out->working = w->n_working;
	for (const struct line *l = w->ring; l; l = l->next)
		out->working += l->n_aside + l->n_back;
	out->refused = w->refused;
	for (int i = 0; i < w->n_thread; i++)
		if (w->v[i].since && now - w->v[i].since > out->oldest_ns)
			out->oldest_ns = now - w->v[i].since;
	pthread_mutex_unlock(&s->lock);
}
