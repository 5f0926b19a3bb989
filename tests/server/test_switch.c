/* Requests that wait for a model while it is taken from those that were to have it, or removed: each has a model or a reason. */
#include <sched.h>
#include <stdatomic.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/log.h"
#include "server/inside.h"
#include "server/known_models.h"
#include "server/known_switch.h"

enum { ROUNDS = 200 };

static int open_model(void *arg, struct served *out, struct err *err)
{
	(void)err;
	*out = (struct served){ .name = arg };
	return 0;
}

static void close_model(void *arg)
{
	(void)arg;
}

static atomic_bool freed;

static void free_model(void *arg)
{
	(void)arg;
	atomic_store(&freed, true);
}

/* ---- requests ---- */

/* One request, on a thread of its own. */
struct asker {
	struct exchange x;
	struct known_model *m;
	atomic_bool hold;        /* it is kept where it comes back from aside */
	atomic_bool back, ended; /* it came there; it has an answer */
	int r;
	pthread_t thread;
};

static _Thread_local struct asker *self;

/* There is no IO thread. */
void __wrap_exchange_notify(void *x);
void __wrap_exchange_notify(void *x)
{
	(void)x;
}

void __wrap_workers_back(void);
void __wrap_workers_back(void)
{
	atomic_store(&self->back, true);
	while (atomic_load(&self->hold))
		sched_yield();
}

static void *ask(void *arg)
{
	struct asker *a = self = arg;
	struct known_models *k = &a->x.srv->known;

	pthread_mutex_lock(&k->lock);
	a->r = known_hold(&a->x, a->m, &a->x.problem);
	pthread_mutex_unlock(&k->lock);
	atomic_store(&a->ended, true);
	return NULL;
}

static struct asker *begin(struct server *s, struct known_model *m, bool hold)
{
	struct asker *a = xcalloc(1, sizeof *a);

	a->x.srv = s;
	a->m = m;
	atomic_store(&a->hold, hold);
	CHECK(!pthread_create(&a->thread, NULL, ask, a), "no thread");
	return a;
}

/* It is given its model in the end. */
static void end(struct asker *a)
{
	pthread_join(a->thread, NULL);
	CHECK(!a->r, "%s: %s", a->m->about.name, a->x.problem.message);
	CHECK(a->x.model == a->m, "%s: it has no model", a->m->about.name);
	known_release(&a->x);
	free(a);
}

/* ---- what a round waits for ---- */

static int waiting(struct known_model *m)
{
	struct known_models *k = &m->srv->known;
	int n;

	pthread_mutex_lock(&k->lock);
	n = m->waiting;
	pthread_mutex_unlock(&k->lock);
	return n;
}

static bool leaving(struct known_model *m)
{
	struct known_models *k = &m->srv->known;
	bool is;

	pthread_mutex_lock(&k->lock);
	is = m->leaving;
	pthread_mutex_unlock(&k->lock);
	return is;
}

/* A second request for b comes when the first was given it and has not yet gone on, and a has been asked for since. */
static void round_of(struct server *s, struct known_model *a, struct known_model *b)
{
	struct asker *first = begin(s, b, true), *other, *second;
	int before;

	while (!atomic_load(&first->back))
		sched_yield();
	other = begin(s, a, false);
	while (!leaving(b))
		sched_yield();
	before = waiting(b);
	second = begin(s, b, false);
	while (waiting(b) == before && !atomic_load(&second->back))
		sched_yield();
	atomic_store(&first->hold, false);
	end(first);
	end(other);
	end(second);
}

/* The second model is removed when one request was given it and has not yet gone on, and another waits: the first keeps it, the
 * other is told to look again, and it is freed after the first. */
static void removal(struct server *s, const struct model_source src[2])
{
	struct known_models *k = &s->known;
	struct known_model *b = k->v[1];
	struct asker *first = begin(s, b, true), *other, *second;

	while (!atomic_load(&first->back))
		sched_yield();
	other = begin(s, k->v[0], false);
	while (!leaving(b))
		sched_yield();
	second = begin(s, b, false);
	while (!waiting(b))
		sched_yield();
	known_set(s, src, 1);
	pthread_join(second->thread, NULL);
	CHECK(second->r == KNOWN_AGAIN && !second->x.model, "a request for what was removed: %d", second->r);
	free(second);
	CHECK(!atomic_load(&freed), "freed while a request has it");
	atomic_store(&first->hold, false);
	end(first);
	end(other);
	while (!atomic_load(&freed))
		sched_yield();
	atomic_store(&freed, false);
	known_set(s, src, 2);
}

int main(void)
{
	static struct server s;
	const struct served about[2] = { { .name = "a" }, { .name = "b" } };
	struct model_source src[2];
	struct err err;

	log_set_level(LOG_ERROR);
	known_init(&s);
	for (int i = 0; i < 2; i++)
		src[i] = (struct model_source){
			.about = &about[i],
			.open = open_model,
			.close = close_model,
			.free = free_model,
			.arg = (void *)about[i].name,
			.bytes = 1,
		};
	known_set(&s, src, 2);
	CHECK(!known_begin(&s, 1, &err), "%s", err.msg);
	for (int i = 0; i < ROUNDS; i++)
		round_of(&s, s.known.v[i % 2], s.known.v[1 - i % 2]);
	for (int i = 0; i < ROUNDS; i++)
		removal(&s, src);
	CHECK(s.known.n_waiting == 0 && !s.known.v[0]->refs && !s.known.v[1]->refs, "requests are left over");
	known_close(&s);
	printf("%d rounds\n", ROUNDS);
	return 0;
}
