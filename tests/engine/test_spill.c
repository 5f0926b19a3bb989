/* test_spill.c - kept prefixes on disk: what is found is right, whatever happened to
 * the files, the disk or the process in between. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/system.h"
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

/* ---- what is written is found ---- */

static void test_restart(void **state)
{
	struct spill *s = open_plain();
	struct disk_stats st;

	assert_int_equal(world_find(s, tok, 30), 0);
	world_put(s, tok, 30);
	spill_flush(s);
	assert_int_equal(world_find(s, tok, LONGEST), 30);
	spill_close(s);
	s = open_plain();
	st = stats_of(s);
	assert_int_equal(st.pages, 7);
	assert_int_equal(st.snaps, 1);
	assert_int_equal(st.read, 0);
	assert_int_equal(world_find(s, tok, LONGEST), 30);
	assert_int_equal(world_find(s, tok, 30), 30);
	assert_int_equal(world_find(s, tok, 29), 0); /* no state there */
	assert_true(world_load(s, tok, 30));
	st = stats_of(s);
	assert_int_equal(st.read, 8);
	assert_int_equal(st.damaged + st.vanished + st.failed + st.dropped, 0);
	spill_close(s);
}

/* The longest that has a snapshot and all its pages; another salt or token has none. */
static void test_find(void **state)
{
	struct spill *s = open_plain();
	struct digest key[LONGEST / ROWS + 1];

	for (int n = 3; n <= 60; n += 19)
		world_put(s, tok, n);
	world_put(s, tok, 23); /* two on one page */
	spill_flush(s);
	for (int n = 1; n <= LONGEST; n++) {
		int want = n >= 60 ? 60 : n >= 41 ? 41 : n >= 23 ? 23 : n >= 22 ? 22 : n >= 3 ? 3 : 0;

		assert_int_equal(world_find(s, tok, n), want);
	}
	for (int at = 0; at < 60; at++) {
		int want = at >= 41 ? 41 : at >= 23 ? 23 : at >= 22 ? 22 : at >= 3 ? 3 : 0;

		tok[at] ^= 1;
		assert_int_equal(world_find(s, tok, 60), want);
		tok[at] ^= 1;
	}
	spill_keys(s, "tenant", 6, tok, 60, key);
	assert_int_equal(spill_find(s, key, true, tok, 60), 0);
	assert_int_equal(spill_find_pages(s, key, 15), 0);
	spill_keys(s, "", 0, tok, 60, key);
	assert_int_equal(spill_find_pages(s, key, 15), 15);
	spill_close(s);
}

static void test_branches_share(void **state)
{
	struct spill *s = open_plain();

	world_put(s, tok, 32);
	tok[25] = 1; /* page 6 of 8 */
	world_put(s, tok, 32);
	spill_flush(s);
	assert_int_equal(stats_of(s).pages, 8 + 2);
	assert_int_equal(stats_of(s).snaps, 2);
	assert_true(world_load(s, tok, 32));
	tok[25] = 125;
	assert_true(world_load(s, tok, 32));
	spill_close(s);
	assert_int_equal(world_files(dir, ".page").files, 10);
}

/* A checkpoint that changed under the same path is another model. */
static void test_other_model(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct spill *s;

	write_one(tok, 30);
	o.model.b[31] ^= 1; /* the same folder by its first bytes, too */
	s = open_with(&o);
	assert_int_equal(world_find(s, tok, 30), 0);
	assert_int_equal(stats_of(s).damaged, 0);
	spill_close(s);
	o.model.b[0] ^= 1;
	o.bytes_max = 2000; /* and the old one's files make room for the new one's */
	s = open_with(&o);
	world_put(s, tok, 12);
	spill_flush(s);
	assert_int_equal(world_find(s, tok, 30), 12);
	assert_true(stats_of(s).bytes <= 2000);
	assert_true(world_files(dir, "").bytes <= 2000);
	spill_close(s);
}

/* ---- damage ---- */

/* Loads the prefix of 10 tokens: it must come whole or not at all, and when it does
 * not, one file is dropped, counted, and written anew. */
static void reload(bool whole, const char *what, int at)
{
	struct spill *s = open_plain();
	struct disk_stats st;
	bool came = world_load(s, tok, 10);

	st = stats_of(s);
	if (came != whole || st.damaged != !whole || st.vanished)
		fail_msg("%s at %d: came %d, damaged %d, vanished %d", what, at, came, (int)st.damaged,
		         (int)st.vanished);
	if (!whole) {
		assert_int_equal(world_find(s, tok, 10), 0);
		assert_int_equal(world_files(dir, ".page").files + world_files(dir, ".snap").files, 2);
		world_put(s, tok, 10);
		spill_flush(s);
		assert_true(world_load(s, tok, 10));
	}
	spill_close(s);
}

static void put_file(const char *path, const struct buf *b, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, b->p, n), n);
	close(fd);
}

static void damage(const char *suffix, int step)
{
	struct world_files f;
	struct buf b;
	struct err err;

	write_one(tok, 10);
	f = world_files(dir, suffix);
	assert_true(f.files > 0);
	buf_init(&b);
	assert_int_equal(file_read(f.last, 1 << 20, &b, &err), 0);
	reload(true, "untouched", 0);
	for (size_t n = 0; n < b.n; n += n < SPILL_HEAD + 8 ? 7 : 13) {
		put_file(f.last, &b, n);
		reload(false, "cut", (int)n);
	}
	put_file(f.last, &b, b.n - 1);
	reload(false, "cut by", 1);
	put_file(f.last, &b, b.n + 1); /* with the 0 that ends a buf */
	reload(false, "longer by", 1);
	for (size_t bit = 0; bit < 8 * b.n; bit += (size_t)step) {
		b.p[bit / 8] ^= (char)(1 << bit % 8);
		put_file(f.last, &b, b.n);
		reload(false, "bit", (int)bit);
		b.p[bit / 8] ^= (char)(1 << bit % 8);
	}
	buf_fini(&b);
}

static void test_damaged_page(void **state)
{
	damage(".page", getenv("WEFT_TEST_QUICK") ? 37 : 1);
}

static void test_damaged_snap(void **state)
{
	damage(".snap", getenv("WEFT_TEST_QUICK") ? 37 : 1);
}

/* A whole and sound file under another's name. */
static void test_exchanged(void **state)
{
	struct world_files a, b;
	char name[PATH_MAX];

	write_one(tok, 4);
	a = world_files(dir, ".page");
	strcpy(name, a.last);
	tok[0] ^= 1;
	write_one(tok, 4);
	assert_int_equal(world_files(dir, ".page").files, 2);
	tok[0] ^= 1;
	assert_int_equal(unlink(name), 0);
	b = world_files(dir, ".page");
	assert_int_equal(rename(b.last, name), 0);
	struct spill *s = open_plain();
	assert_false(world_load(s, tok, 4));
	assert_int_equal(stats_of(s).damaged, 1);
	spill_close(s);
}

/* The same tokens on a page after other tokens: only the keys in the head differ. */
static void test_exchanged_after(void **state)
{
	struct digest key[3];
	char a[SPILL_NAME], b[SPILL_NAME], own[PATH_MAX];
	struct spill *s = open_plain();
	int at;

	world_put(s, tok, 8);
	spill_keys(s, NULL, 0, tok, 8, key);
	spill_name_put(a, SPILL_PAGE, &key[2], 0, 0);
	tok[0] ^= 1;
	world_put(s, tok, 8);
	spill_keys(s, NULL, 0, tok, 8, key);
	spill_name_put(b, SPILL_PAGE, &key[2], 0, 0);
	spill_close(s);
	strcpy(own, world_files(dir, ".page").last);
	*strrchr(own, '/') = '\0';
	at = open(own, O_RDONLY | O_DIRECTORY);
	assert_int_equal(renameat(at, a, at, b), 0);
	close(at);
	s = open_plain();
	assert_false(world_load(s, tok, 8));
	assert_int_equal(stats_of(s).damaged, 1);
	spill_close(s);
}

/* The same key, by whatever accident, over other tokens: they are compared. */
static void test_same_key_other_tokens(void **state)
{
	struct digest key[4];
	struct spill_load *l;
	struct spill_got got;
	struct spill *s;
	enum spill_next next;
	int32_t other[12];

	write_one(tok, 12);
	s = open_plain();
	spill_keys(s, NULL, 0, tok, 12, key);
	memcpy(other, tok, sizeof(other));
	other[5] ^= 1;
	l = spill_load_open(
		s, &(struct spill_want){
			   .tok = other, .key = key, .pos = 12, .page_bytes = PAGE_BYTES, .snap_max = SNAP_BYTES });
	spill_flush(s);
	while ((next = spill_load_next(l, &got)) <= SPILL_WAIT)
		if (next == SPILL_GOT)
			fail_msg("the snapshot came, of other tokens");
	assert_int_equal(next, SPILL_FAIL);
	assert_int_equal(stats_of(s).damaged, 1);
	spill_load_close(l);
	spill_close(s);
}

/* Files that are nobody's are left alone; half written ones are removed when their program has ended, or after an hour. */
static void half_written(const char *in, pid_t pid, bool old)
{
	const struct timespec times[2] = { { .tv_sec = time(NULL) - 4000 }, { .tv_sec = time(NULL) - 4000 } };
	const struct buf none = { .n = 0 };
	char path[PATH_MAX];

	assert_true(snprintf(path, sizeof(path), "%s/" SPILL_TMP "%016llx-%d-%08x-%d", in,
	                     (unsigned long long)system_processes(), (int)pid, 1, old) < PATH_MAX);
	put_file(path, &none, 0);
	if (old)
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static pid_t child_that_ended(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return pid;
}

static void test_strangers(void **state)
{
	static const char *const name[] = { "notes.txt", "x.page", ".hidden", "lock2" };
	char path[PATH_MAX], own[PATH_MAX];
	struct buf b;
	struct spill *s;

	write_one(tok, 8);
	strcpy(own, world_files(dir, ".page").last);
	*strrchr(own, '/') = '\0';
	buf_init(&b);
	buf_puts(&b, "mine");
	for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
		assert_true(snprintf(path, sizeof(path), "%s/%s", i % 2 ? own : dir, name[i]) < PATH_MAX);
		put_file(path, &b, b.n);
	}
	half_written(own, getpid(), false); /* of this process, but of nothing that is open */
	half_written(dir, child_that_ended(), false);
	half_written(dir, getppid(), true);
	half_written(own, getppid(), false);
	assert_int_equal(world_files(dir, "").tmp, 4);
	s = open_plain();
	assert_int_equal(world_files(dir, "").tmp, 1);
	half_written(dir, getppid(), true);
	assert_int_equal(stats_of(s).pages, 2);
	assert_true(world_load(s, tok, 8));
	spill_close(s);
	for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
		assert_true(snprintf(path, sizeof(path), "%s/%s", i % 2 ? own : dir, name[i]) < PATH_MAX);
		assert_true(file_exists(path));
	}
	buf_fini(&b);
}

/* A pipe takes the place of a page that the index has: found missing, without waiting for who writes to it. */
static void test_pipe_for_page(void **state)
{
	char path[PATH_MAX];
	struct spill *s;

	write_one(tok, 8);
	s = open_plain();
	strcpy(path, world_files(dir, ".page").last);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_false(world_load(s, tok, 8));
	spill_close(s);
	spill_close(open_plain());
	unlink(path);
}

/* ---- a disk that fails ---- */

enum call { OPEN, WRITE, READ, SYNC, RENAME, UNLINK, CALLS };
enum how { REFUSE, SHORT, GARBAGE };

/* The nth call of a kind, counted from 1, goes wrong; and all after it, if asked. */
static struct faulty {
	struct spill_io io;
	pthread_mutex_t lock;
	int count[CALLS];
	enum call call;
	int nth, errnum;
	enum how how;
	bool on; /* and from then on */
	bool hit;
} faulty;

static bool wrong(enum call call)
{
	bool yes;

	pthread_mutex_lock(&faulty.lock);
	faulty.count[call]++;
	yes = call == faulty.call &&
	      (faulty.count[call] == faulty.nth || (faulty.on && faulty.count[call] > faulty.nth));
	faulty.hit |= yes;
	pthread_mutex_unlock(&faulty.lock);
	errno = faulty.errnum;
	return yes;
}

static int faulty_open(const struct spill_io *io, int at, const char *name, int flags)
{
	return wrong(OPEN) ? -1 : spill_io_real.open(io, at, name, flags);
}

static ssize_t faulty_write(const struct spill_io *io, int fd, const void *p, size_t n)
{
	uint8_t *copy;
	ssize_t rc;

	if (!wrong(WRITE))
		return spill_io_real.write(io, fd, p, n);
	if (faulty.how == REFUSE)
		return -1;
	if (faulty.how == SHORT)
		return spill_io_real.write(io, fd, p, n / 2);
	copy = xmalloc(n);
	memcpy(copy, p, n);
	copy[n / 2] ^= 0x10;
	rc = spill_io_real.write(io, fd, copy, n);
	free(copy);
	return rc;
}

static ssize_t faulty_read(const struct spill_io *io, int fd, void *p, size_t n, uint64_t at)
{
	ssize_t rc;

	if (!wrong(READ))
		return spill_io_real.read(io, fd, p, n, at);
	if (faulty.how == REFUSE)
		return -1;
	if (faulty.how == SHORT)
		return spill_io_real.read(io, fd, p, n / 2, at);
	rc = spill_io_real.read(io, fd, p, n, at);
	if (rc > 0)
		((uint8_t *)p)[rc / 2] ^= 0x10;
	return rc;
}

static int faulty_sync(const struct spill_io *io, int fd)
{
	return wrong(SYNC) ? -1 : 0;
}

static int faulty_rename(const struct spill_io *io, int at, const char *from, const char *to)
{
	return wrong(RENAME) ? -1 : spill_io_real.rename(io, at, from, to);
}

static int faulty_unlink(const struct spill_io *io, int at, const char *name)
{
	return wrong(UNLINK) ? -1 : spill_io_real.unlink(io, at, name);
}

static void faulty_set(enum call call, int nth, enum how how, int errnum, bool on)
{
	faulty = (struct faulty){ .io = { .open = faulty_open,
		                          .write = faulty_write,
		                          .read = faulty_read,
		                          .sync = faulty_sync,
		                          .rename = faulty_rename,
		                          .unlink = faulty_unlink },
		                  .lock = PTHREAD_MUTEX_INITIALIZER,
		                  .call = call,
		                  .nth = nth,
		                  .how = how,
		                  .errnum = errnum,
		                  .on = on };
}

static void faulty_heal(void)
{
	pthread_mutex_lock(&faulty.lock);
	faulty.nth = INT_MAX;
	faulty.on = false;
	pthread_mutex_unlock(&faulty.lock);
}

enum { LIVES = 6 };

/* Writes prefixes and reads some of them, evicting: whatever went wrong, nothing wrong is read (world_load looks), budgets hold, and the next start
 * finds a sound folder. */
static void life_on(enum call call, int nth, enum how how, int errnum, bool on)
{
	struct spill_opts o = world_opts(dir);
	struct spill *s;
	struct disk_stats st;
	int32_t t[LONGEST];

	faulty_set(call, nth, how, errnum, on);
	o.io = &faulty.io;
	o.bytes_max = 5000;
	s = open_with(&o);
	for (uint64_t k = 0; k < LIVES; k++) {
		int n = world_tokens(k, t), at;

		world_put(s, t, n);
		spill_flush(s);
		n = world_tokens(k / 2, t);
		at = world_find(s, t, n);
		if (at)
			world_load(s, t, at);
		st = stats_of(s);
		assert_true(st.bytes <= o.bytes_max);
		assert_int_equal(st.queue_bytes, 0);
	}
	spill_close(s);
	if (call != UNLINK)
		assert_true(world_files(dir, "").bytes <= o.bytes_max);
	o.io = world_io();
	s = open_with(&o);
	assert_int_equal(world_files(dir, "").tmp, 0);
	for (uint64_t k = 0; k < LIVES; k++) {
		int n = world_tokens(k, t), at = world_find(s, t, n);

		if (at)
			world_load(s, t, at);
	}
	spill_flush(s); /* what could not be removed then is removed now */
	assert_true(stats_of(s).bytes <= o.bytes_max);
	assert_true(stats_of(s).bytes == world_files(dir, "").bytes);
	spill_close(s);
	world_remove(dir);
	assert_int_equal(mkdir(dir, 0700), 0);
}

static void test_nth_call_fails(void **state)
{
	static const struct {
		enum call call;
		enum how how;
		int errnum;
	} kind[] = {
		{ OPEN, REFUSE, EMFILE }, { WRITE, REFUSE, ENOSPC },  { WRITE, REFUSE, EIO },    { WRITE, SHORT, 0 },
		{ WRITE, GARBAGE, 0 },    { READ, REFUSE, EIO },      { READ, SHORT, 0 },        { READ, GARBAGE, 0 },
		{ SYNC, REFUSE, EIO },    { RENAME, REFUSE, ENOSPC }, { UNLINK, REFUSE, EROFS },
	};
	int step = getenv("WEFT_TEST_QUICK") ? 11 : 1;

	for (size_t i = 0; i < sizeof(kind) / sizeof(kind[0]); i++) {
		int nth = 1;

		do {
			life_on(kind[i].call, nth, kind[i].how, kind[i].errnum, false);
			nth += step;
		} while (faulty.hit);
		if (nth <= 1 + (step > 1 ? 1 : 3) * step) /* the last time nothing did */
			fail_msg("call %d went wrong %d times", (int)kind[i].call, nth);
		life_on(kind[i].call, 3, kind[i].how, kind[i].errnum, true);
	}
}

/* A full disk: every piece is dropped and counted, what was there stays good, and
 * writing goes on when there is room again. */
static void test_full_disk(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct spill *s;

	write_one(tok, 30);
	faulty_set(WRITE, 1, REFUSE, ENOSPC, true);
	o.io = &faulty.io;
	s = open_with(&o);
	for (uint64_t k = 0; k < 20; k++) {
		int32_t t[LONGEST];
		int n = world_tokens(k, t);

		world_put(s, t, n);
		spill_flush(s);
		assert_int_equal(world_find(s, t, n), 0);
	}
	assert_int_equal(stats_of(s).written, 0);
	assert_true(stats_of(s).failed > 20);
	assert_true(faulty.count[WRITE] < 20); /* it is left alone between tries */
	assert_int_equal(world_files(dir, "").tmp, 0);
	assert_true(world_load(s, tok, 30));
	faulty_heal();
	for (int tries = 0; !world_find(s, tok, 12); tries++) {
		assert_true(tries < 100);
		world_put(s, tok, 12);
		spill_flush(s);
	}
	assert_true(world_load(s, tok, 12));
	spill_close(s);
}

/* ---- budgets ---- */

static void test_budget(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct spill *s;
	int rounds = getenv("WEFT_TEST_QUICK") ? 40 : 400;

	o.bytes_max = 9000;
	s = open_with(&o);
	for (int k = 0; k < rounds; k++) {
		int32_t t[LONGEST];
		int n = world_tokens((uint64_t)k, t);

		world_put(s, t, n);
		spill_flush(s);
		assert_true(stats_of(s).bytes <= o.bytes_max);
		assert_true(stats_of(s).bytes == world_files(dir, "").bytes);
		assert_int_equal(world_find(s, t, n), n); /* the newest stays */
		assert_true(world_load(s, t, n));
	}
	assert_true(stats_of(s).evicted > 0);
	spill_close(s);
	o.bytes_max = 3000; /* less than last time */
	s = open_with(&o);
	spill_flush(s);
	world_put(s, tok, 3);
	spill_flush(s);
	assert_true(world_files(dir, "").bytes <= 3000);
	spill_close(s);
}

/* What was used stays, across a restart too; a prefix goes from its end. */
static void test_order(void **state)
{
	enum { N = 32, FILES = N / ROWS };
	struct spill_opts o = world_opts(dir);
	uint64_t page = SPILL_HEAD + 4 * ROWS + PAGE_BYTES, snap = SPILL_HEAD + 4 * N + SNAP_BYTES;
	struct digest key[FILES + 1];
	int32_t a[N], b[N];
	struct spill *s = open_with(&o);

	for (int i = 0; i < N; i++) {
		a[i] = i;
		b[i] = 1000 + i;
	}
	world_put(s, a, N);
	world_put(s, b, N);
	spill_flush(s);
	spill_keys(s, NULL, 0, a, N, key);
	spill_use(s, key, a, N); /* now b is the older */
	spill_close(s);
	o.bytes_max = 2 * (FILES * page + snap) - snap - 2 * page;
	s = open_with(&o);
	/* Three files of b are too many: its snapshot and its last two pages. */
	world_put(s, a, 2); /* wakes the writer; and needs room for itself */
	spill_flush(s);
	assert_true(world_load(s, a, N));
	spill_keys(s, NULL, 0, b, N, key);
	assert_int_equal(world_find(s, b, N), 0);
	assert_in_range(spill_find_pages(s, key, FILES), 3, FILES - 3);
	spill_close(s);
}

/* ---- dropping ---- */

enum { MANY = 60 };

/* What begins with the dropped tokens is gone, files and all; everything else is as it
 * was. */
static void drop(int32_t (*t)[LONGEST], const int *n, const int32_t *d, int at)
{
	int before[MANY];
	struct digest key[LONGEST / ROWS + 1];
	struct spill *s = open_plain();

	for (int k = 0; k < MANY; k++)
		before[k] = world_find(s, t[k], n[k]);
	spill_keys(s, NULL, 0, d, at, key);
	spill_drop(s, key, d, at);
	for (int k = 0; k < MANY; k++) {
		bool of_it = n[k] >= at && !memcmp(t[k], d, (size_t)at * sizeof(*d));
		int got = world_find(s, t[k], n[k]);

		/* At once, whether the files are gone or not. */
		assert_true(got == 0 || got < at || (!of_it && got == before[k]));
	}
	spill_flush(s);
	for (int again = 0; again < 2; again++) {
		for (int k = 0; k < MANY; k++) {
			bool of_it = n[k] >= at && !memcmp(t[k], d, (size_t)at * sizeof(*d));
			int got = world_find(s, t[k], n[k]);

			if (of_it && at)
				assert_true(got < at);
			else
				assert_int_equal(got, at ? before[k] : 0);
		}
		assert_true(stats_of(s).bytes == world_files(dir, "").bytes);
		spill_close(s);
		s = open_plain();
	}
	spill_close(s);
}

static void test_drop(void **state)
{
	static int32_t t[MANY][LONGEST];
	int n[MANY];
	struct spill *s = open_plain();
	int64_t files;

	for (int k = 0; k < MANY; k++) {
		n[k] = world_tokens((uint64_t)k, t[k]);
		world_put(s, t[k], n[k]);
	}
	spill_close(s);
	files = world_files(dir, "").files;
	for (int k = 0; k < MANY; k += 7) {
		drop(t, n, t[k], 1 + (int)(rng_bits(9, (uint64_t)k, 0) % (uint64_t)n[k]));
		drop(t, n, t[k], n[k] >= ROWS ? n[k] / ROWS * ROWS : 1);
	}
	assert_true(world_files(dir, "").files < files);
	assert_true(world_files(dir, ".snap").files > 5);
	drop(t, n, t[0], 0); /* the whole salt */
	assert_int_equal(world_files(dir, ".page").files + world_files(dir, ".snap").files, 0);
}

/* All of a model, whatever the salt; what is put afterwards is there. */
static void test_drop_all(void **state)
{
	static const char *const salts[] = { "", "x" };
	struct digest key[2][LONGEST / ROWS + 1];
	int32_t t[LONGEST];
	struct spill *s = open_plain();
	int n = world_tokens(3, t);

	for (int k = 0; k < 2; k++) {
		struct spill_piece p = { SPILL_SNAP, n, t, key[k] };

		spill_keys(s, salts[k], strlen(salts[k]), t, n, key[k]);
		for (int i = 0; i < n / ROWS; i++)
			spill_put(s, &(struct spill_piece){ SPILL_PAGE, (i + 1) * ROWS, t, key[k] }, xcalloc(1, 8), 8);
		spill_put(s, &p, xcalloc(1, 8), 8);
	}
	spill_flush(s);
	assert_int_equal(world_files(dir, ".snap").files, 2);
	spill_close(s);
	s = open_plain();
	for (int k = 0; k < 2; k++)
		assert_int_equal(spill_find(s, key[k], true, t, n), n);
	spill_drop(s, NULL, NULL, 0);
	for (int k = 0; k < 2; k++)
		assert_int_equal(spill_find(s, key[k], true, t, n), 0);
	spill_flush(s); /* what is still there is not written again */
	world_put(s, t, n);
	spill_close(s);
	s = open_plain();
	assert_int_equal(world_find(s, t, n), n);
	assert_int_equal(spill_find(s, key[1], true, t, n), 0);
	assert_int_equal(world_files(dir, ".snap").files, 1);
	spill_close(s);
}

/* ---- the queue ---- */

static struct gate {
	struct spill_io io;
	pthread_mutex_t lock;
	pthread_cond_t opened;
	bool shut, reached;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER };

static ssize_t gate_write(const struct spill_io *io, int fd, const void *p, size_t n)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.shut)
		pthread_cond_wait(&gate.opened, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	return spill_io_real.write(io, fd, p, n);
}

static void gate_set(bool shut)
{
	pthread_mutex_lock(&gate.lock);
	gate.shut = shut;
	pthread_cond_broadcast(&gate.opened);
	pthread_mutex_unlock(&gate.lock);
}

/* A disk that does not answer: nobody waits, what the queue cannot hold is dropped. */
static void test_slow_disk(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct spill *s;

	gate.io = *world_io();
	gate.io.write = gate_write;
	gate_set(true);
	o.io = &gate.io;
	o.queue_bytes = 5 * PAGE_BYTES;
	s = open_with(&o);
	world_put(s, tok, 40);
	assert_int_equal(stats_of(s).queue_bytes, 5 * PAGE_BYTES);
	assert_int_equal(stats_of(s).dropped, 10 + 1 - 5);
	world_put(s, tok, 20); /* those five wait already */
	assert_int_equal(stats_of(s).dropped, 10 + 1 - 5 + 1);
	assert_int_equal(world_find(s, tok, 20), 0);
	gate_set(false);
	spill_flush(s);
	assert_int_equal(stats_of(s).queue_bytes, 0);
	assert_int_equal(stats_of(s).written, 5);
	world_put(s, tok, 20);
	spill_close(s); /* writes what waits */
	s = open_plain();
	assert_true(world_load(s, tok, 20));
	spill_close(s);
}

static int gate_unlink(const struct spill_io *io, int at, const char *name)
{
	int rc = spill_io_real.unlink(io, at, name);

	pthread_mutex_lock(&gate.lock);
	gate.reached = true;
	pthread_cond_broadcast(&gate.opened);
	while (gate.shut)
		pthread_cond_wait(&gate.opened, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	return rc;
}

/* A piece that is read while its file is evicted was evicted, and did not vanish. */
static void test_evicted_while_read(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct spill *s = open_plain();
	int32_t other[LONGEST];
	int n = world_tokens(1, other);

	world_put(s, tok, 3);
	spill_flush(s);
	o.bytes_max = stats_of(s).bytes;
	spill_close(s);
	gate.io = *world_io();
	gate.io.unlink = gate_unlink;
	gate.reached = false;
	gate_set(true);
	o.io = &gate.io;
	s = open_with(&o);
	assert_int_equal(world_find(s, tok, 3), 3);
	world_put(s, other, n);
	pthread_mutex_lock(&gate.lock);
	while (!gate.reached)
		pthread_cond_wait(&gate.opened, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	assert_false(world_load(s, tok, 3));
	assert_int_equal(stats_of(s).vanished, 0);
	gate_set(false);
	spill_flush(s);
	assert_true(stats_of(s).evicted > 0);
	assert_int_equal(stats_of(s).vanished, 0);
	assert_true(stats_of(s).bytes == world_files(dir, "").bytes);
	spill_close(s);
}

static void test_larger_than_all(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct spill *s;

	o.bytes_max = 100;
	s = open_with(&o);
	world_put(s, tok, 4);
	spill_flush(s);
	assert_int_equal(stats_of(s).dropped, 2);
	assert_int_equal(stats_of(s).bytes, 0);
	spill_close(s);
}

/* ---- loads ---- */

/* The reader stays within its window, and a load may be left at any time. */
static void test_window(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct digest key[LONGEST / ROWS + 1];
	struct spill *s;

	write_one(tok, 60);
	o.window_bytes = PAGE_BYTES;
	s = open_with(&o);
	spill_keys(s, NULL, 0, tok, 60, key);
	for (int take = 0; take <= 16; take++) {
		struct spill_want w = {
			.tok = tok, .key = key, .pos = 60, .page_bytes = PAGE_BYTES, .snap_max = SNAP_BYTES
		};
		struct spill_load *l = spill_load_open(s, &w);
		int64_t read = stats_of(s).read;

		for (int n = 0; n < take;) {
			struct spill_got got;

			if (spill_load_next(l, &got) == SPILL_GOT) {
				free(got.payload);
				n++;
			}
		}
		/* What was open before may still be finishing its last piece. */
		assert_true(stats_of(s).read - read <= take + 2);
		spill_load_close(l);
		assert_true(world_load(s, tok, 60));
	}
	spill_close(s);
}

/* Only what memory does not have: from some page on, or pages alone. */
static void test_part(void **state)
{
	struct digest key[LONGEST / ROWS + 1];
	struct spill *s;

	write_one(tok, 42);
	s = open_plain();
	spill_keys(s, NULL, 0, tok, 42, key);
	for (int page = 0; page <= 10; page++)
		for (int snap = 0; snap < 2; snap++) {
			struct spill_want w = { .tok = tok,
				                .key = key,
				                .pos = 42,
				                .page = page,
				                .page_bytes = PAGE_BYTES,
				                .snap_max = snap ? SNAP_BYTES : 0 };
			struct spill_load *l = spill_load_open(s, &w);
			struct spill_got got;
			enum spill_next next;
			int at = page, snaps = 0;

			while ((next = spill_load_next(l, &got)) <= SPILL_WAIT)
				if (next == SPILL_GOT) {
					if (got.kind == SPILL_PAGE)
						assert_int_equal(got.page, at++);
					snaps += got.kind == SPILL_SNAP;
					free(got.payload);
				}
			assert_int_equal(next, SPILL_END);
			assert_int_equal(at, 10);
			assert_int_equal(snaps, snap);
			spill_load_close(l);
		}
	spill_close(s);
}

/* A file that the disk does not give stays, and is written over; one that is damaged, and was written anew by another before it could
 * be removed, stays too. */
static void test_unread(void **state)
{
	struct spill_opts o = world_opts(dir);
	struct spill *s;
	int files;

	write_one(tok, 8);
	files = world_files(dir, "").files;
	faulty_set(READ, 1, REFUSE, EIO, true);
	o.io = &faulty.io;
	s = open_with(&o);
	assert_false(world_load(s, tok, 8));
	assert_int_equal(stats_of(s).damaged, 1);
	assert_int_equal(world_look_find(s, tok, 8), 0);
	faulty_heal();
	world_put(s, tok, 8);
	spill_flush(s);
	assert_true(world_load(s, tok, 8));
	assert_true(stats_of(s).bytes == world_files(dir, "").bytes);
	spill_close(s);
	faulty_set(READ, 1, REFUSE, ESTALE, false);
	s = open_with(&o);
	assert_false(world_load(s, tok, 8));
	assert_int_equal(stats_of(s).vanished, 1);
	spill_close(s);
	faulty_set(READ, 2, GARBAGE, 0, false); /* read once more, it is good */
	s = open_with(&o);
	assert_false(world_load(s, tok, 8));
	spill_close(s);
	assert_int_equal(world_files(dir, "").files, files);
}

static void test_refused(void **state)
{
	struct spill_opts o = world_opts("/nonexistent/deeper");
	struct spill *s;
	struct err err = { 0 };

	assert_int_equal(spill_open(&s, &o, &err), E_IO);
	assert_non_null(strstr(err.msg, "/nonexistent/deeper"));
	o.dir = "/dev/null";
	assert_int_equal(spill_open(&s, &o, &err), E_IO);
	o.dir = "";
	assert_int_equal(spill_open(&s, &o, &err), E_ARG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_restart, setup, teardown),
		cmocka_unit_test_setup_teardown(test_find, setup, teardown),
		cmocka_unit_test_setup_teardown(test_branches_share, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_model, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged_page, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged_snap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_exchanged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_exchanged_after, setup, teardown),
		cmocka_unit_test_setup_teardown(test_same_key_other_tokens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_strangers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pipe_for_page, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nth_call_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_budget, setup, teardown),
		cmocka_unit_test_setup_teardown(test_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drop, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drop_all, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slow_disk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_larger_than_all, setup, teardown),
		cmocka_unit_test_setup_teardown(test_window, setup, teardown),
		cmocka_unit_test_setup_teardown(test_part, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unread, setup, teardown),
		cmocka_unit_test_setup_teardown(test_evicted_while_read, setup, teardown),
		cmocka_unit_test(test_refused),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
