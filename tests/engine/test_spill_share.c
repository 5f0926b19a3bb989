/* test_spill_share.c - several programs on one folder of kept prefixes, none of which locks anything. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "spill_world.h"

static char dir[PATH_MAX];
static int32_t tok[LONGEST];

static int setup(void **state)
{
	world_dir(dir);
	for (int i = 0; i < LONGEST; i++)
		tok[i] = 100 + i;
	return 0;
}

static int teardown(void **state)
{
	world_remove(dir);
	return 0;
}

static struct spill *open_with(const struct spill_opts *o)
{
	struct spill *s;
	struct err err = { 0 };

	if (spill_open(&s, o, &err))
		fail_msg("%s", err.msg);
	return s;
}

static struct spill *open_plain(void)
{
	struct spill_opts o = world_opts(dir);

	return open_with(&o);
}

static struct disk_stats stats_of(struct spill *s)
{
	struct disk_stats st;

	spill_stats(s, &st);
	return st;
}

static void write_one(const int32_t *t, int n)
{
	struct spill *s = open_plain();

	world_put(s, t, n);
	spill_close(s);
}

/* Renames wait while it is shut. */
static struct gate {
	struct spill_io io;
	pthread_mutex_t lock;
	pthread_cond_t opened;
	bool shut;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER };

static int gate_rename(const struct spill_io *io, int at, const char *from, const char *to)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.shut)
		pthread_cond_wait(&gate.opened, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	return spill_io_real.rename(io, at, from, to);
}

static void gate_set(bool shut)
{
	pthread_mutex_lock(&gate.lock);
	gate.shut = shut;
	pthread_cond_broadcast(&gate.opened);
	pthread_mutex_unlock(&gate.lock);
}

/* Each finds what the other writes, once it has looked, and no sooner; and bears that the other removes it. */
static void test_two(void **state)
{
	struct spill_opts small = world_opts(dir);
	struct spill *a = open_plain(), *b = open_plain();
	int32_t t[LONGEST];

	world_put(a, tok, 30);
	spill_flush(a);
	assert_int_equal(world_find(b, tok, 30), 0);
	assert_int_equal(world_look_find(b, tok, 30), 30);
	assert_int_equal(stats_of(b).found, 8);
	assert_true(world_load(b, tok, 30));
	world_put(b, tok, 41);
	spill_flush(b);
	assert_int_equal(stats_of(b).written, 10 + 1 - 7);
	assert_int_equal(world_look_find(a, tok, LONGEST), 41);
	assert_true(world_load(a, tok, 41));
	spill_close(a);
	small.bytes_max = 1000;
	a = open_with(&small);
	world_put(a, t, world_tokens(7, t));
	spill_flush(a);
	assert_false(world_load(b, tok, 30)); /* evicted by a, and b does not know */
	assert_int_equal(stats_of(b).vanished, 1);
	assert_int_equal(stats_of(b).damaged, 0);
	assert_int_equal(world_look_find(b, tok, 30), 0);
	assert_true(stats_of(b).bytes == world_files(dir, "").bytes);
	spill_close(b);
	spill_close(a);
}

/* Both write the same: one file, counted once. */
static void test_two_write_one(void **state)
{
	struct spill *a = open_plain(), *b = open_plain();

	world_put(a, tok, 30);
	world_put(b, tok, 30);
	spill_flush(a);
	spill_flush(b);
	assert_int_equal(world_look_find(a, tok, 30), 30);
	assert_int_equal(world_look_find(b, tok, 30), 30);
	assert_true(stats_of(a).bytes == world_files(dir, "").bytes);
	assert_true(stats_of(b).bytes == world_files(dir, "").bytes);
	spill_close(b);
	spill_close(a);
}

/* An opening server leaves what another is writing. */
static void test_opened_meanwhile(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct spill *a, *b;

	gate.io = *world_io();
	gate.io.rename = gate_rename;
	gate_set(true);
	o.io = &gate.io;
	a = open_with(&o);
	world_put(a, tok, 8);
	while (!world_files(dir, "").tmp)
		sched_yield();
	b = open_plain();
	assert_int_equal(world_files(dir, "").tmp, 1);
	gate_set(false);
	spill_flush(a);
	assert_int_equal(stats_of(a).failed, 0);
	assert_int_equal(world_look_find(b, tok, 8), 8);
	spill_close(b);
	spill_close(a);
}

/* Where nothing was written since, a look lists nothing: a file that was put there by other means stays unknown for a minute. */
static void test_look_is_cheap(void **state)
{
	struct spill *a, *b = open_plain();
	char own[PATH_MAX], away[PATH_MAX];

	write_one(tok, 8);
	assert_int_equal(world_look_find(b, tok, 8), 8);
	strcpy(own, world_files(dir, ".snap").last);
	assert_true(snprintf(away, sizeof(away), "%s/away", dir) < PATH_MAX);
	assert_int_equal(rename(own, away), 0);
	assert_int_equal(world_look_find(b, tok, 8), 8); /* it has not listed */
	assert_int_equal(rename(away, own), 0);
	a = open_plain();
	world_put(a, tok, 12);
	spill_flush(a);
	assert_int_equal(world_look_find(b, tok, 12), 12);
	spill_close(a);
	spill_close(b);
}

/* Two that write in turn keep one budget; each looks before it removes what the other has used since. */
static void test_two_budget(void **state)
{
	enum { MOST = SPILL_HEAD + 4 * LONGEST + SNAP_BYTES };
	struct spill_opts o = world_opts(dir);
	struct spill *s[2];
	int rounds = getenv("WEFT_TEST_QUICK") ? 40 : 300;

	o.bytes_max = 9000;
	s[0] = open_with(&o);
	s[1] = open_with(&o);
	for (int k = 0; k < rounds; k++) {
		int32_t t[2][LONGEST];
		int n[2];

		for (int i = 0; i < 2; i++) {
			n[i] = world_tokens((uint64_t)(2 * k + i), t[i]);
			world_put(s[i], t[i], n[i]); /* both at once */
		}
		assert_true(world_files(dir, "").bytes <= o.bytes_max + 2 * MOST);
		spill_flush(s[0]);
		spill_flush(s[1]);
		if (world_files(dir, "").bytes > o.bytes_max)
			fail_msg("round %d: %d bytes of %d", k, (int)world_files(dir, "").bytes, (int)o.bytes_max);
		for (int i = 0; i < 2; i++) {
			int at = world_look_find(s[!i], t[i], n[i]);

			if (at)
				assert_true(world_load(s[!i], t[i], at));
		}
	}
	assert_true(stats_of(s[0]).evicted > 0 && stats_of(s[1]).evicted > 0);
	assert_int_equal(stats_of(s[0]).damaged + stats_of(s[1]).damaged, 0);
	assert_int_equal(stats_of(s[0]).failed + stats_of(s[1]).failed, 0);
	spill_close(s[0]);
	spill_close(s[1]);
}

/* What another has used is not the oldest, whatever this one remembers. */
static void test_used_elsewhere(void **state)
{
	enum { N = 32 };
	struct spill_opts o = world_opts(dir);
	struct digest key[N / ROWS + 1];
	int32_t a[N], b[N];
	struct spill *s, *other;

	for (int i = 0; i < N; i++) {
		a[i] = i;
		b[i] = 1000 + i;
	}
	write_one(a, N);
	write_one(b, N);
	o.bytes_max = world_files(dir, "").bytes;
	s = open_with(&o);
	spill_flush(s);
	other = open_plain();
	spill_keys(other, NULL, 0, a, N, key);
	spill_use(other, key, a, N);
	spill_close(other); /* times are written */
	world_put(s, tok, 10);
	spill_flush(s);
	assert_int_equal(world_find(s, a, N), N);
	assert_int_equal(world_find(s, b, N), 0);
	spill_close(s);
}

/* Two models, or two arithmetics: each finds its own, and they keep one budget. */
static void test_two_models(void **state)
{
	struct spill_opts o = world_opts(dir), p = world_opts(dir);
	struct spill *a, *b;
	int32_t t[LONGEST];

	p.model.b[0] ^= 1;
	o.bytes_max = p.bytes_max = 6000;
	a = open_with(&o);
	b = open_with(&p);
	for (uint64_t k = 0; k < 40; k++) {
		int n = world_tokens(k, t);

		world_put(a, t, n);
		spill_flush(a);
		assert_int_equal(world_find(a, t, n), n);
		assert_int_equal(world_look_find(b, t, n), 0);
		world_put(b, t, n);
		spill_flush(b);
		assert_true(world_load(b, t, n));
		assert_true(world_files(dir, "").bytes <= 6000);
	}
	assert_int_equal(stats_of(a).damaged + stats_of(b).damaged, 0);
	spill_close(a);
	spill_close(b);
}

/* Dropped is what any of them wrote. */
static void test_drop_anothers(void **state)
{
	struct spill *a = open_plain(), *b = open_plain();
	struct digest key[LONGEST / ROWS + 1];

	world_put(a, tok, 30);
	spill_flush(a);
	spill_keys(b, NULL, 0, tok, 8, key);
	spill_drop(b, key, tok, 8);
	spill_flush(b);
	assert_int_equal(world_files(dir, ".snap").files, 0);
	assert_false(world_load(a, tok, 30));
	assert_int_equal(stats_of(a).vanished, 1);
	assert_int_equal(world_look_find(a, tok, 30), 0);
	spill_close(a);
	spill_close(b);
}

/* Its folder was removed by another that took it for one of the past. */
static void test_folder_gone(void **state)
{
	struct spill *s = open_plain();
	char cmd[PATH_MAX + 32];

	world_put(s, tok, 8);
	spill_flush(s);
	snprintf(cmd, sizeof(cmd), "rm -r '%s'/[0-9a-f]*", dir);
	assert_int_equal(system(cmd), 0);
	assert_false(world_load(s, tok, 8));
	world_put(s, tok, 12);
	spill_flush(s);
	assert_int_equal(stats_of(s).failed, 0);
	spill_close(s);
	write_one(tok, 12);
	s = open_plain();
	assert_true(world_load(s, tok, 12));
	spill_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_two, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_write_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_opened_meanwhile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_look_is_cheap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_budget, setup, teardown),
		cmocka_unit_test_setup_teardown(test_used_elsewhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_models, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drop_anothers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_folder_gone, setup, teardown),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
