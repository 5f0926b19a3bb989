/* test_queue.c - the books of the queue: what is taken, what is refused and why,
 * and estimates that can be worked out by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/queue.h"
#include "lives.h"

static struct client *enter(struct queue *q, uint64_t key, int n)
{
	struct refusal why;
	struct client *c;
	struct err err;

	CHECK(!queue_enter(q, key, n, INT64_MAX, &c, &why, &err), "%s", err.msg);
	return c;
}

static enum limit refused(struct queue *q, uint64_t key, int n, int64_t left_ns)
{
	struct refusal why = { 0 };
	struct client *c;
	struct err err;
	int rc = queue_enter(q, key, n, left_ns, &c, &why, &err);

	if (!rc) {
		queue_leave(q, c, n);
		queue_forget(q, c);
		return LIMIT_NONE;
	}
	CHECK(rc == (why.limit == LIMIT_DEADLINE ? E_LATE : E_FULL), "code %d", rc);
	CHECK(why.retry_s >= 1 && why.wait_s >= 0 && err.msg[0], "refusal");
	return why.limit;
}

static void leave(struct queue *q, struct client *c, int n)
{
	queue_leave(q, c, n);
	queue_forget(q, c);
}

static void test_count(void)
{
	struct client *c[16];
	struct queue q;

	queue_init(&q, 8, 0, 2);
	/* Nobody in particular may fill it. */
	for (int i = 0; i < 8; i++)
		c[i] = enter(&q, 0, 10);
	CHECK(refused(&q, 0, 10, INT64_MAX) == LIMIT_COUNT && refused(&q, 5, 10, INT64_MAX) == LIMIT_COUNT, "full");
	for (int i = 0; i < 8; i++)
		leave(&q, c[i], 10);
	/* One client gets half, and there is room for the next, and the next. */
	for (int i = 0; i < 4; i++)
		c[i] = enter(&q, 7, 10);
	CHECK(refused(&q, 7, 10, INT64_MAX) == LIMIT_SHARE, "half");
	c[4] = enter(&q, 8, 10);
	c[5] = enter(&q, 8, 10);
	CHECK(refused(&q, 8, 10, INT64_MAX) == LIMIT_SHARE, "half of the rest");
	c[6] = enter(&q, 9, 10);
	c[7] = enter(&q, 10, 10);
	CHECK(refused(&q, 11, 10, INT64_MAX) == LIMIT_COUNT, "full");
	for (int i = 0; i < 8; i++)
		leave(&q, c[i], 10);
	queue_fini(&q);
}

static void test_seconds(void)
{
	struct client *a, *b, *c[2];
	struct queue q;

	queue_init(&q, 1000, 10, 4);
	/* Nothing is known of the rate: nothing is refused by it. */
	a = enter(&q, 1, 1 << 20);
	leave(&q, a, 1 << 20);
	q.rates.prefill = 100;
	/* 20 s alone are taken, since they wait for nobody; then nothing more is. */
	a = enter(&q, 1, 2000);
	CHECK(refused(&q, 2, 501, INT64_MAX) == LIMIT_SECONDS, "seconds");
	CHECK(refused(&q, 2, 500, INT64_MAX) == LIMIT_NONE, "the other half");
	/* One who came before anything was known of the rate takes no more than half from the others. */
	c[0] = enter(&q, 2, 100);
	CHECK(refused(&q, 2, 100, INT64_MAX) == LIMIT_NONE, "1 s of its own, 4 s free");
	leave(&q, c[0], 100);
	c[0] = enter(&q, 2, 200);
	c[1] = enter(&q, 3, 200);
	CHECK(refused(&q, 4, 101, INT64_MAX) == LIMIT_SECONDS, "5, 2 and 2 s of others");
	CHECK(refused(&q, 4, 100, INT64_MAX) == LIMIT_NONE, "5, 2 and 2 s of others");
	leave(&q, c[0], 200);
	leave(&q, c[1], 200);
	leave(&q, a, 2000);
	a = enter(&q, 1, 400); /* 4 of 10 s */
	b = enter(&q, 1, 200); /* 6 of 10 s */
	CHECK(refused(&q, 1, 10, INT64_MAX) == LIMIT_SHARE, "6 s of its own, 4 s free");
	CHECK(refused(&q, 2, 600, INT64_MAX) == LIMIT_SECONDS, "12 s");
	CHECK(refused(&q, 2, 400, INT64_MAX) == LIMIT_NONE, "10 s");
	/* Half of the tokens are found computed already: 3 of 10 s. */
	q.rates.miss = 0.5;
	CHECK(refused(&q, 1, 10, INT64_MAX) == LIMIT_NONE && refused(&q, 2, 1500, INT64_MAX) == LIMIT_SECONDS, "miss");
	leave(&q, a, 400);
	leave(&q, b, 200);
	queue_fini(&q);
}

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-6;
}

static void test_wait(void)
{
	struct client *c[3];
	struct queue q;

	queue_init(&q, 100, 0, 2);
	q.rates.prefill = 1000;
	CHECK(near((double)queue_wait_ns(&q, 1, 500) / 1e9, 0.5), "alone");
	c[0] = enter(&q, 1, 4000);
	c[1] = enter(&q, 1, 4000);
	/* Behind 8 s of another, of which as much goes first as it brings itself; and
	 * no third request fits two slots before somebody leaves. */
	CHECK(near((double)queue_wait_ns(&q, 2, 500) / 1e9, 1.0), "%f s", (double)queue_wait_ns(&q, 2, 500) / 1e9);
	CHECK(near((double)queue_wait_ns(&q, 1, 500) / 1e9, 8.5), "behind its own");
	q.rates.run_tokens = 2000;
	CHECK(near((double)queue_wait_ns(&q, 2, 500) / 1e9, 3.0), "and 2 s of prompts under way");
	q.rates.n_run = 2;
	q.rates.hold_ns = 20000000000;
	CHECK(near((double)queue_wait_ns(&q, 2, 500) / 1e9, 20), "one of the client before, then it: two that leave");
	CHECK(refused(&q, 2, 500, 19000000000) == LIMIT_DEADLINE && refused(&q, 2, 500, 21000000000) == LIMIT_NONE,
	      "deadline");
	leave(&q, c[0], 4000);
	leave(&q, c[1], 4000);
	queue_fini(&q);
}

int main(void)
{
	test_count();
	test_seconds();
	test_wait();
	return 0;
}
