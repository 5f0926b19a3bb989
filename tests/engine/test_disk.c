/* test_disk.c - the engine with kept prefixes on disk: over a restart, over damage,
 * over a disk that is slow or broken, every answer and every row of logits is what
 * it would be cold (lives.h compares them). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/core.h"
#include "engine/prefix/spill.h"
#include "lives.h"
#include "spill_world.h"
#include "toy.h"

enum { SLOTS = 3, CTX = 300 };

/* ---- a clock with hands ---- */

static struct hands {
	struct clock clock;
	_Atomic int64_t ns;
	_Atomic int64_t tick; /* a look at it takes so long */
} hands;

static int64_t hands_now(struct clock *c)
{
	return atomic_fetch_add(&hands.ns, atomic_load(&hands.tick));
}

/* ---- a disk with moods ---- */

static struct mood {
	struct spill_io io;
	pthread_mutex_t lock;
	pthread_cond_t opened;
	bool shut_reads; /* reads wait */
	uint64_t seed;   /* 0: all goes well; else one call in `in` fails or lies */
	int in;
	atomic_uint calls;
} mood = { .lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER };

static bool sulks(void)
{
	unsigned n = atomic_fetch_add(&mood.calls, 1);

	errno = ENOSPC;
	return mood.seed && rng_bits(mood.seed, n, 0) % (unsigned)mood.in == 0;
}

static int mood_open(const struct spill_io *io, int dir, const char *name, int flags)
{
	return sulks() ? -1 : spill_io_real.open(io, dir, name, flags);
}

static ssize_t mood_write(const struct spill_io *io, int fd, const void *p, size_t n)
{
	if (!sulks())
		return spill_io_real.write(io, fd, p, n);
	if (atomic_load(&mood.calls) % 2)
		return -1;
	return spill_io_real.write(io, fd, p, n / 2);
}

static ssize_t mood_read(const struct spill_io *io, int fd, void *p, size_t n, uint64_t at)
{
	ssize_t rc;

	pthread_mutex_lock(&mood.lock);
	while (mood.shut_reads)
		pthread_cond_wait(&mood.opened, &mood.lock);
	pthread_mutex_unlock(&mood.lock);
	rc = spill_io_real.read(io, fd, p, n, at);
	if (rc > 0 && sulks())
		((uint8_t *)p)[rc / 2] ^= 4;
	return rc;
}

static int mood_rename(const struct spill_io *io, int dir, const char *from, const char *to)
{
	return sulks() ? -1 : spill_io_real.rename(io, dir, from, to);
}

static void shut_reads(bool shut)
{
	pthread_mutex_lock(&mood.lock);
	mood.shut_reads = shut;
	pthread_cond_broadcast(&mood.opened);
	pthread_mutex_unlock(&mood.lock);
}

/* ---- an engine over a folder ---- */

struct rig {
	struct model *m;
	struct engine *e;
	char dir[PATH_MAX];
	struct toy_opts toy;
	struct engine_opts eo;
	struct engine_stats last; /* as it was at the last close */
};

static void rig_open(struct rig *g)
{
	struct err err;

	g->eo.disk.dir = g->dir;
	g->m = toy_open(&g->toy);
	CHECK(!engine_open(&g->e, g->m, NULL, &g->eo, &err), "%s", err.msg);
}

static void rig_close(struct rig *g)
{
	engine_close(g->e);
	toy_close(g->m);
}

static void rig_restart(struct rig *g)
{
	rig_close(g);
	rig_open(g);
}

static struct rig rig(void)
{
	struct rig g = {
		.toy = { .slots = SLOTS, .ctx_max = CTX, .step_rows = 32, .page_rows = 8 },
		.eo = { .seqs_max = SLOTS,
		        .step_rows = 32,
		        .queue_max = LIVES_MAX,
		        .prefix_bytes = 1 << 20,
		        .disk.bytes = 8 << 20,
		        .disk.model = { { 7 } },
		        .by_hand = true,
		        .clock = &hands.clock,
		        .disk.io = &mood.io },
	};

	hands.clock.now_ns = hands_now;
	mood.seed = 0;
	mood.io = *world_io();
	mood.io.open = mood_open;
	mood.io.write = mood_write;
	mood.io.read = mood_read;
	mood.io.rename = mood_rename;
	world_dir(g.dir);
	rig_open(&g);
	return g;
}

static void rig_end(struct rig *g)
{
	rig_close(g);
	world_remove(g->dir);
}

static struct engine_stats stats_of(struct rig *g)
{
	struct engine_stats s;

	engine_stats(g->e, &s);
	return s;
}

/* Until nothing is to be done and what was to be written is. */
static void settle(struct rig *g)
{
	struct disk_stats s;

	while (engine_step(g->e))
		;
	disk_own_stats(g->e, &s);
	do
		disk_stats(g->e, &s);
	while ((s.queue_bytes || s.bytes > s.bytes_max) && !sched_yield());
	engine_show_stats(g->e);
}

static void check(struct rig *g, struct life *l)
{
	struct answer want;

	CHECK(l->done && l->end.finish != FINISH_ERROR, "%s", l->end.err.msg);
	life_alone(l, g->m, life_room(g->m), NULL, toy_logits, &want);
	life_check(l, g->m, &want, toy_logits, false);
}

/* Runs a request to its end and compares; its tokens go on into `next`, if given. */
static struct prefix_report ask(struct rig *g, const struct life *like, int answer, struct life *next)
{
	struct life l = *like;
	struct prefix_report report;
	struct err err;

	l.ask.prompt = l.prompt;
	l.ask.max_tokens = answer;
	l.want_rows = true;
	CHECK(!life_submit(&l, g->e, &err), "%s", err.msg);
	settle(g);
	life_read(&l, true);
	check(g, &l);
	report = l.end.prefix;
	if (next) {
		*next = *like;
		next->ask.prompt = next->prompt;
		memcpy(next->prompt + like->ask.n_prompt, l.got.tok, (size_t)l.got.n * sizeof(l.got.tok[0]));
		next->ask.n_prompt = like->ask.n_prompt + l.got.n;
	}
	life_free(&l);
	return report;
}

/* ---- over a restart ---- */

static void test_restart(bool attention_only)
{
	struct rig g = rig();
	struct life first, then;
	struct prefix_report rep;
	struct engine_stats s;

	rig_close(&g);
	g.toy.attention_only = attention_only;
	rig_open(&g);
	life_init(&first, 100, 250, 1);
	rep = ask(&g, &first, 20, &then);
	CHECK(rep.resumed == 0, "%d", rep.resumed);
	rig_restart(&g);
	s = stats_of(&g);
	CHECK(s.disk.snaps > 0 && s.disk.read == 0, "%d snapshots, %d pages, %d read", (int)s.disk.snaps,
	      (int)s.disk.pages, (int)s.disk.read);
	/* The conversation goes on where the answer ended. */
	then.prompt[then.ask.n_prompt] = then.prompt[then.ask.n_prompt + 1] = 3;
	then.ask.n_prompt += 2;
	rep = ask(&g, &then, 10, NULL);
	CHECK(rep.resumed == 119 && rep.source == PREFIX_DISK, "resumed at %d from %s", rep.resumed,
	      prefix_source_name(rep.source));
	/* Now memory has it. */
	rep = ask(&g, &then, 10, NULL);
	CHECK(rep.resumed == 121 && rep.source == PREFIX_MEMORY, "resumed at %d from %s", rep.resumed,
	      prefix_source_name(rep.source));
	rig_restart(&g);
	/* The same prompt again: all but its last token. */
	rep = ask(&g, &first, 20, NULL);
	CHECK(rep.resumed == 99 && (attention_only || rep.source == PREFIX_DISK), "resumed at %d from %s", rep.resumed,
	      prefix_source_name(rep.source));
	s = stats_of(&g);
	CHECK(s.disk.damaged + s.disk.failed + s.disk.vanished + s.disk.dropped + s.disk.given_up == 0,
	      "faults counted");
	rig_end(&g);
}

/* What memory lets go comes back. */
static void test_evicted(void)
{
	struct rig g = rig();
	struct life l;
	struct prefix_report rep;

	rig_close(&g);
	g.toy.snaps = 3;
	rig_open(&g);
	for (uint64_t k = 0; k < 8; k++) {
		life_init(&l, 60, 250, k);
		ask(&g, &l, 5, NULL);
	}
	CHECK(stats_of(&g).prefix.evicted > 0, "nothing was evicted");
	life_init(&l, 60, 250, 0);
	rep = ask(&g, &l, 5, NULL);
	CHECK(rep.resumed == 59 && rep.source == PREFIX_DISK, "resumed at %d from %s", rep.resumed,
	      prefix_source_name(rep.source));
	rig_end(&g);
}

/* Two that begin alike: the second reads only what the first did not bring. */
static void test_shared_pages(void)
{
	struct rig g = rig();
	struct life a, b;
	struct engine_stats s;
	int64_t read;

	life_init(&a, 100, 250, 1);
	b = a;
	b.prompt[82] ^= 1;
	ask(&g, &a, 4, NULL);
	ask(&g, &b, 4, NULL);
	rig_restart(&g);
	ask(&g, &a, 4, NULL);
	read = stats_of(&g).disk.read;
	CHECK(read == 12 + 1, "%d pieces", (int)read);
	ask(&g, &b, 4, NULL);
	s = stats_of(&g);
	CHECK(s.disk.read == read + 2 + 1, "%d pieces more", (int)(s.disk.read - read));
	rig_end(&g);
}

/* A checkpoint swapped under the same path, another salt: nothing of the other's. */
static void test_others(void)
{
	struct rig g = rig();
	struct life l;
	struct prefix_report rep;

	life_init(&l, 100, 250, 1);
	ask(&g, &l, 4, NULL);
	g.eo.disk.model.b[9] ^= 1;
	rig_restart(&g);
	rep = ask(&g, &l, 4, NULL);
	CHECK(rep.resumed == 0, "resumed at %d of another model", rep.resumed);
	g.eo.disk.model.b[9] ^= 1;
	rig_restart(&g);
	l.ask.cache_salt = "mine";
	rep = ask(&g, &l, 4, NULL);
	CHECK(rep.resumed == 0, "resumed at %d under another salt", rep.resumed);
	l.ask.cache_salt = NULL;
	rep = ask(&g, &l, 4, NULL);
	CHECK(rep.resumed == 99 && rep.source == PREFIX_DISK, "resumed at %d", rep.resumed);
	rig_end(&g);
}

/* What somebody drops does not come back from disk, now or after a restart. */
static void test_dropped(void)
{
	struct rig g = rig();
	struct life a, b;
	struct prefix_report rep;
	struct prefix_spot spot = { 0 };
	int n;

	life_init(&a, 100, 250, 1);
	b = a;
	b.prompt[40] ^= 1;
	ask(&g, &a, 4, NULL);
	ask(&g, &b, 4, NULL);
	spot.tok = a.prompt;
	spot.n = 100;
	CHECK(!engine_prefix_drop(g.e, &spot, &n), "refused");
	settle(&g);
	rep = ask(&g, &a, 0, NULL);
	CHECK(rep.resumed < 99, "resumed at %d", rep.resumed);
	rig_restart(&g);
	rep = ask(&g, &b, 4, NULL);
	CHECK(rep.resumed == 99 && rep.source == PREFIX_DISK, "resumed at %d", rep.resumed);
	rig_end(&g);
}

/* Nor what memory knows nothing of: under one salt, then under all. */
static void test_dropped_unseen(void)
{
	static const char *const salts[] = { "x", "y", NULL };
	struct rig g = rig();
	struct life l[3];
	struct prefix_report rep;
	int n;

	for (int k = 0; k < 3; k++) {
		life_init(&l[k], 100, 250, 1);
		l[k].ask.cache_salt = salts[k];
		ask(&g, &l[k], 4, NULL);
	}
	rig_restart(&g);
	CHECK(!engine_prefix_drop(g.e, &(struct prefix_spot){ .salt = "x" }, &n) && n == 0, "%d in memory", n);
	rig_restart(&g);
	for (int k = 0; k < 2; k++) {
		rep = ask(&g, &l[k], 0, NULL);
		CHECK(rep.resumed == (k ? 99 : 0), "salt %d resumed at %d", k, rep.resumed);
	}
	rig_restart(&g);
	CHECK(!engine_prefix_drop(g.e, &(struct prefix_spot){ 0 }, &n) && n == 0, "%d in memory", n);
	rig_restart(&g);
	for (int k = 0; k < 3; k++) {
		rep = ask(&g, &l[k], 0, NULL);
		CHECK(rep.resumed == 0, "salt %d resumed at %d", k, rep.resumed);
	}
	rig_end(&g);
}

/* Every file, one after the other, with a flipped bit. */
static void flip_each(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	CHECK(d, "%s", dir);
	while ((e = readdir(d))) {
		char path[PATH_MAX];
		uint8_t byte;
		int fd;

		if (!strstr(e->d_name, ".page") && !strstr(e->d_name, ".snap"))
			continue;
		CHECK(snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < (int)sizeof(path), "long path");
		fd = open(path, O_RDWR);
		CHECK(fd >= 0 && pread(fd, &byte, 1, 250) == 1, "%s", path);
		byte ^= 1;
		CHECK(pwrite(fd, &byte, 1, 250) == 1, "%s", path);
		close(fd);
	}
	closedir(d);
}

static void test_damage(void)
{
	struct rig g = rig();
	struct life l;
	struct prefix_report rep;
	char own[PATH_MAX];

	life_init(&l, 100, 250, 1);
	ask(&g, &l, 4, NULL);
	rig_close(&g);
	strcpy(own, world_files(g.dir, ".page").last);
	*strrchr(own, '/') = '\0';
	flip_each(own);
	rig_open(&g);
	rep = ask(&g, &l, 4, NULL);
	CHECK(rep.resumed == 0 && stats_of(&g).disk.damaged > 0, "resumed at %d", rep.resumed);
	CHECK(stats_of(&g).disk.given_up > 0, "not counted");
	/* What was dropped is written anew, and what is still damaged is found in its turn. */
	for (int i = 0; rep.resumed != 99; i++) {
		CHECK(i < 40, "it does not heal");
		rig_restart(&g);
		rep = ask(&g, &l, 4, NULL);
	}
	rig_end(&g);
}

/* ---- a disk that does not answer ---- */

static void test_slow(void)
{
	struct rig g = rig();
	struct life l, other;
	struct err err;

	life_init(&l, 100, 250, 1);
	ask(&g, &l, 4, NULL);
	rig_restart(&g);
	/* While one waits for the disk, another runs from beginning to end. */
	shut_reads(true);
	l.ask.prompt = l.prompt;
	l.ask.max_tokens = 10;
	l.want_rows = true;
	CHECK(!life_submit(&l, g.e, &err), "%s", err.msg);
	for (int i = 0; i < 3; i++)
		engine_step(g.e);
	life_init(&other, 50, 250, 2);
	other.ask.max_tokens = 10;
	CHECK(!life_submit(&other, g.e, &err), "%s", err.msg);
	while (!other.done) {
		engine_step(g.e);
		life_read(&other, false);
	}
	check(&g, &other);
	life_free(&other);
	life_read(&l, false);
	CHECK(!l.started, "it did not wait");
	/* Its patience ends: it is computed. */
	atomic_fetch_add(&hands.ns, 3600ll * 1000000000);
	while (!l.done) {
		engine_step(g.e);
		life_read(&l, false);
	}
	check(&g, &l);
	CHECK(l.end.prefix.resumed == 0 && stats_of(&g).disk.given_up == 1, "resumed at %d", l.end.prefix.resumed);
	life_free(&l);
	/* Cancelled while it waits; and at the end of all. */
	for (int how = 0; how < 2; how++) {
		shut_reads(false);
		rig_restart(&g);
		shut_reads(true);
		life_init(&l, 100, 250, 1);
		CHECK(!life_submit(&l, g.e, &err), "%s", err.msg);
		engine_step(g.e);
		if (!how) {
			request_cancel(l.r);
			engine_step(g.e);
			life_read(&l, true);
			CHECK(l.end.finish == FINISH_CANCEL, "%d", l.end.finish);
		} else {
			shut_reads(false);
			rig_restart(&g);
		}
		life_free(&l);
	}
	shut_reads(false);
	rig_end(&g);
}

/* Runs another request, so that a rate of computing is known: some nanoseconds a row. */
static void compute_fast(struct rig *g, uint64_t seed)
{
	struct life l;

	life_init(&l, 100, 250, seed);
	atomic_store(&hands.tick, 10);
	ask(g, &l, 4, NULL);
	atomic_store(&hands.tick, 0);
}

/* A prompt that is computed faster than it is read does not wait for the disk; a wait that is given is kept to. */
static void test_wait(void)
{
	struct rig g = rig();
	struct life l;
	struct err err;
	const int64_t wait = 5ll * 1000000000;

	life_init(&l, 100, 250, 1);
	ask(&g, &l, 4, NULL);
	for (int given = 0; given < 2; given++) {
		struct prefix_report rep;

		g.eo.disk.wait_ns = given * wait;
		rig_restart(&g);
		compute_fast(&g, 2 + (uint64_t)given);
		rep = ask(&g, &l, 4, NULL);
		CHECK((rep.resumed == 99) == given, "resumed at %d", rep.resumed);
		CHECK(stats_of(&g).disk.loads == given, "loads");
	}
	rig_restart(&g);
	shut_reads(true);
	l.ask.prompt = l.prompt;
	l.ask.max_tokens = 4;
	l.want_rows = true;
	CHECK(!life_submit(&l, g.e, &err), "%s", err.msg);
	for (int i = 0; i < 20; i++) {
		engine_step(g.e);
		if (i == 10)
			atomic_fetch_add(&hands.ns, wait - 1);
	}
	life_read(&l, false);
	CHECK(!l.started, "it did not wait");
	atomic_fetch_add(&hands.ns, 1);
	settle(&g);
	shut_reads(false);
	life_read(&l, true);
	check(&g, &l);
	CHECK(l.end.prefix.resumed == 0 && stats_of(&g).disk.given_up == 1, "resumed at %d", l.end.prefix.resumed);
	life_free(&l);
	rig_end(&g);
}

/* Eight with one beginning after a restart: it is read once. */
static void test_herd(void)
{
	struct rig g = rig();
	struct life l[8];
	struct err err;

	life_init(&l[0], 100, 250, 1);
	ask(&g, &l[0], 0, NULL);
	rig_restart(&g);
	for (int i = 0; i < 8; i++) {
		life_init(&l[i], 100, 250, 1);
		l[i].prompt[100] = i;
		l[i].ask.n_prompt = 101;
		l[i].ask.max_tokens = 5;
		CHECK(!life_submit(&l[i], g.e, &err), "%s", err.msg);
	}
	settle(&g);
	for (int i = 0; i < 8; i++) {
		life_read(&l[i], true);
		check(&g, &l[i]);
		CHECK(l[i].end.prefix.resumed >= 99, "resumed at %d", l[i].end.prefix.resumed);
		life_free(&l[i]);
	}
	CHECK(stats_of(&g).disk.read == 12 + 1, "%d pieces", (int)stats_of(&g).disk.read);
	rig_end(&g);
}

/* ---- random lives, restarts and moods ---- */

static void test_lives(uint64_t seed)
{
	struct lives_opts lo = { .steps = 150, .prompt_max = 200, .answer_max = 60, .poison = -1 };
	struct rig g = rig();
	int64_t read = 0, written = 0, damaged = 0, evicted = 0;
	uint64_t s = seed;

	for (int round = 0; round < 5; round++) {
		struct engine_stats es;

		rig_close(&g);
		g.toy.page_rows = 1 << dice(&s, 5);
		g.toy.attention_only = seed % 4 == 3;
		g.toy.window = seed % 3 == 1 ? 0 : 1 + (int)(seed * 11 % 90);
		g.toy.snaps = 2 + (int)dice(&s, 12);
		g.toy.pages = (int)dice(&s, 2) * (CTX / g.toy.page_rows + 5);
		g.eo.prefix_bytes = 1 << (15 + dice(&s, 6));
		g.eo.disk.bytes = 1 << (14 + dice(&s, 8));
		g.eo.disk.model.b[0] = (uint8_t)g.toy.page_rows; /* part of what the pages are a function of */
		mood.in = 40;
		mood.seed = seed % 2 ? seed : 0;
		rig_open(&g);
		lives_many(g.e, g.m, NULL, toy_logits, &lo, &s);
		settle(&g);
		es = stats_of(&g);
		CHECK(es.disk.bytes <= g.eo.disk.bytes, "%d bytes of %d", (int)es.disk.bytes, (int)g.eo.disk.bytes);
		CHECK(mood.seed || es.disk.damaged + es.disk.failed + es.disk.vanished == 0,
		      "a good disk, and %d damaged", (int)es.disk.damaged);
		read += es.disk.read;
		written += es.disk.written;
		damaged += es.disk.damaged;
		evicted += es.disk.evicted;
	}
	printf("  lives %d: %d pieces written, %d evicted, %d read, %d damaged\n", (int)seed, (int)written,
	       (int)evicted, (int)read, (int)damaged);
	CHECK(written > 0, "nothing was written");
	rig_end(&g);
}

int main(void)
{
	uint64_t most = getenv("WEFT_TEST_QUICK") ? 4 : 24;

	log_set_level(LOG_ERROR);
	test_restart(false);
	test_restart(true);
	test_evicted();
	test_shared_pages();
	test_others();
	test_dropped();
	test_dropped_unseen();
	test_damage();
	test_slow();
	test_wait();
	test_herd();
	for (uint64_t seed = 0; seed < most; seed++)
		test_lives(seed);
	return 0;
}
