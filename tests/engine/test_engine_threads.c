/* test_engine_threads.c - the engine with its own thread, and several others that
 * submit, read, cancel and leave as they please.  Built for ThreadSanitizer; what
 * is checked besides is that no answer changes and that everything ends. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "cache/kinds.h"
#include "lives.h"
#include "model/model.h"
#include "text/tokens/tokenizer.h"
#include "toy.h"

enum { CLIENTS = 5, ROUNDS = 40 };

static struct tokenizer *tok;
static struct model *m;
static struct engine *e;
static int room;

struct client {
	pthread_t thread;
	uint64_t seed;
	pthread_mutex_t lock;
	pthread_cond_t told;
	bool waits; /* notify came */
};

static void notify(void *arg)
{
	struct client *c = arg;

	pthread_mutex_lock(&c->lock);
	c->waits = true;
	pthread_cond_signal(&c->told);
	pthread_mutex_unlock(&c->lock);
}

/* Reads as a server does: woken by notify, then all there is. */
static void read_notified(struct client *c, struct life *l)
{
	while (!l->done) {
		pthread_mutex_lock(&c->lock);
		while (!c->waits)
			pthread_cond_wait(&c->told, &c->lock);
		c->waits = false;
		pthread_mutex_unlock(&c->lock);
		life_read(l, false);
	}
}

static void one(struct client *c, struct life *l, uint64_t bits)
{
	struct answer want;
	struct err err;
	int how = (int)((bits >> 8) % 6), rc;

	life_init(l, 1 + (int)(bits % 60), 250, bits % 7);
	l->ask.max_tokens = (int)((bits >> 16) % 40);
	l->ask.sampling.temperature = (bits >> 24) % 2;
	l->ask.sampling.seed = bits % 3;
	l->want_rows = how == 0;
	l->loose = true;
	if (how == 1) {
		l->ask.notify = notify;
		l->ask.notify_arg = c;
		c->waits = false;
	}
	rc = life_submit(l, e, &err);
	if (rc == E_FULL)
		return;
	CHECK(!rc, "%s", err.msg);
	life_alone(l, m, room, tok, toy_logits, &want);
	switch (how) {
	case 2: /* leaves at once */ break;
	case 3: /* cancels, and sees the end */
		request_cancel(l->r);
		life_read(l, true);
		life_check(l, m, &want, toy_logits, l->end.finish == FINISH_CANCEL);
		break;
	case 4: { /* reads a little, leaves */
		struct event ev;

		for (int i = 0; i < 3; i++)
			request_wait(l->r, &ev);
		break;
	}
	case 1:
		read_notified(c, l);
		life_check(l, m, &want, toy_logits, false);
		break;
	default: life_read(l, true); life_check(l, m, &want, toy_logits, false);
	}
	life_free(l);
}

/* One who looks at what is kept, and meddles. */
static void count_item(void *arg, const struct prefix_item *item)
{
	CHECK(item->end > item->begin && item->tok[0] >= 0, "a node of %d tokens", item->end - item->begin);
	++*(int *)arg;
}

static void *keeper(void *arg)
{
	struct life *l = xmalloc(sizeof(*l));

	for (int i = 0; i < 2 * ROUNDS; i++) {
		struct prefix_spot spot = { .tok = l->prompt, .n = 1 + i % 60 };
		struct prefix_report r;
		struct err err;
		int n = 0, rc;

		life_init(l, 60, 250, (uint64_t)i % 7);
		CHECK(!engine_prefix_walk(e, count_item, &n), "walk");
		CHECK(!engine_prefix_explain(e, &spot, &r), "explain");
		CHECK(r.resumed < spot.n && r.resumed + r.replayed == r.junction, "resumed %d", r.resumed);
		rc = engine_prefix_pin(e, &spot, i % 2, &err);
		CHECK(!rc || rc == E_MISSING || rc == E_FULL, "%s", err.msg);
		if (i % 5 == 0)
			CHECK(!engine_prefix_drop(e, &spot, &n), "drop");
	}
	free(l);
	return NULL;
}

static void *client(void *arg)
{
	struct client *c = arg;
	struct life *l = xmalloc(sizeof(*l));
	struct engine_stats s;

	for (int i = 0; i < ROUNDS; i++) {
		one(c, l, rng_bits(c->seed, (uint64_t)i, 1));
		engine_stats(e, &s);
		CHECK(s.running <= 4 && s.kv.pages_used <= s.kv.pages, "%d running", s.running);
	}
	free(l);
	return NULL;
}

int main(void)
{
	static struct client c[CLIENTS];
	struct toy_opts to = { .slots = 4, .ctx_max = 128, .step_rows = 32, .page_rows = 4, .pages = 50 };
	struct engine_opts eo = { .seqs_max = 4, .step_rows = 32, .queue_max = 3, .prefix_bytes = 100000 };
	struct paged_stats kv;
	pthread_t meddler;
	struct life *last = xmalloc(3 * sizeof(*last));
	struct err err;

	tok = toy_tokenizer();
	m = toy_open(&to);
	room = life_room(m);
	CHECK(!engine_open(&e, m, tok, &eo, &err), "%s", err.msg);
	for (int i = 0; i < CLIENTS; i++) {
		c[i].seed = (uint64_t)i;
		pthread_mutex_init(&c[i].lock, NULL);
		pthread_cond_init(&c[i].told, NULL);
		CHECK(!pthread_create(&c[i].thread, NULL, client, &c[i]), "thread");
	}
	CHECK(!pthread_create(&meddler, NULL, keeper, NULL), "thread");
	pthread_join(meddler, NULL);
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(c[i].thread, NULL);
	/* Closed in the middle of things. */
	for (int i = 0; i < 3; i++) {
		life_init(&last[i], 50, 250, (uint64_t)i);
		last[i].ask.max_tokens = 70;
		while (life_submit(&last[i], e, &err)) /* those who left may still be in the queue */
			CHECK(err.code == E_FULL, "%s", err.msg);
	}
	engine_close(e);
	for (int i = 0; i < 3; i++) {
		life_read(&last[i], true);
		life_free(&last[i]);
	}
	paged_stats(m->kv[0], &kv);
	CHECK(kv.pages_used == 0, "%d pages are still in use", kv.pages_used);
	toy_close(m);
	tokenizer_close(tok);
	free(last);
	return 0;
}
