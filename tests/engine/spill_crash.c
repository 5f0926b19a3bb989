/* spill_crash.c - a process that writes and reads kept prefixes is killed with SIGKILL
 * again and again, at points it does not choose; after each, everything that the
 * folder offers must be right, byte by byte, and everything that was said to be
 * written must be there.
 *
 *     spill_crash [ROUNDS]        200, or $WEFT_KILLS; 5 with WEFT_TEST_QUICK
 *
 * In every second round there are two victims at once, which write, look, evict and read in one folder.
 *
 * The victim runs on its own memory and threads in a child process.  It is killed in
 * two ways: from outside after a random number of calls to the disk, reported through
 * a pipe (the kill comes some calls later, wherever the threads are then); and from
 * inside, half way through a write. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "lives.h"
#include "spill_world.h"

enum { PREFIXES = 400 };

/* What the victim says of each call, and of each prefix that is safely down. */
struct word {
	int32_t call, safe;
};

static struct victim {
	struct spill_io io;
	int to;
	atomic_int calls;
	int kill_at; /* the write during which it kills itself; 0: none */
	atomic_int writes;
} victim;

static void say(int safe)
{
	struct word w = { atomic_fetch_add(&victim.calls, 1), safe };

	if (write(victim.to, &w, sizeof(w)) != (ssize_t)sizeof(w))
		_exit(1);
}

static int v_open(const struct spill_io *io, int at, const char *name, int flags)
{
	say(-1);
	return spill_io_real.open(io, at, name, flags);
}

static ssize_t v_write(const struct spill_io *io, int fd, const void *p, size_t n)
{
	say(-1);
	if (atomic_fetch_add(&victim.writes, 1) + 1 == victim.kill_at) {
		ssize_t rc = spill_io_real.write(io, fd, p, n / 2);

		kill(getpid(), SIGKILL);
		return rc;
	}
	/* In two parts, so that a kill from outside finds half written files too. */
	return spill_io_real.write(io, fd, p, n > 8 ? n / 2 : n);
}

static int v_rename(const struct spill_io *io, int at, const char *from, const char *to)
{
	say(-1);
	return spill_io_real.rename(io, at, from, to);
}

static int v_unlink(const struct spill_io *io, int at, const char *name)
{
	say(-1);
	return spill_io_real.unlink(io, at, name);
}

/* Puts prefixes of its round, reads others back, until it is killed. */
static void be_victim(const struct spill_opts *given, uint64_t round, int to, int kill_at)
{
	struct spill_opts o = *given;
	struct spill *s;
	struct err err = { 0 };
	int32_t tok[LONGEST];

	victim.io = *world_io();
	victim.io.open = v_open;
	victim.io.write = v_write;
	victim.io.rename = v_rename;
	victim.io.unlink = v_unlink;
	victim.to = to;
	victim.kill_at = kill_at;
	o.io = &victim.io;
	CHECK(!spill_open(&s, &o, &err), "%s", err.msg);
	for (uint64_t i = 0;; i++) {
		uint64_t k = rng_bits(round, i, 0) % PREFIXES;
		int n = world_tokens(k, tok), at;

		at = i % 2 ? world_find(s, tok, n) : world_look_find(s, tok, n);
		if (at)
			world_load(s, tok, at);
		world_put(s, tok, n);
		if (i % 4 == 3) {
			spill_flush(s);
			if (world_find(s, tok, n) == n)
				say((int)k);
		}
	}
}

/* Reads words until some number of them has come, then kills; what was said to be safe
 * is noted. */
static void kill_after(pid_t pid, int from, int n_words, int kill_at, bool *safe)
{
	struct word w;
	bool killed = false;

	for (int n = 0; read(from, &w, sizeof(w)) == (ssize_t)sizeof(w); n++) {
		if (w.safe >= 0)
			safe[w.safe] = true;
		if (!killed && !kill_at && n >= n_words) {
			CHECK(!kill(pid, SIGKILL), "%s", strerror(errno));
			killed = true;
		}
	}
}

struct tally {
	int64_t offered, pieces, torn;
};

/* What the folder offers of every prefix there is. */
static void look(const struct spill_opts *o, const bool *safe, bool evicts, struct tally *t)
{
	struct spill *s;
	struct disk_stats st;
	struct err err = { 0 };
	int32_t tok[LONGEST];

	t->torn += world_files(o->dir, "").tmp;
	CHECK(!spill_open(&s, o, &err), "%s", err.msg);
	CHECK(world_files(o->dir, "").tmp == 0, "half written files are left");
	for (uint64_t k = 0; k < PREFIXES; k++) {
		int n = world_tokens(k, tok), at = world_find(s, tok, n);

		CHECK(evicts || !safe[k] || at == n, "prefix %d of %d tokens was safe; %d are there", (int)k, n, at);
		if (!at)
			continue;
		CHECK(world_load(s, tok, at), "prefix %d at %d does not come", (int)k, at);
		t->offered++;
		t->pieces += at / ROWS + 1;
	}
	spill_stats(s, &st);
	CHECK(st.damaged == 0 && st.vanished == 0, "%d damaged, %d vanished", (int)st.damaged, (int)st.vanished);
	CHECK(st.bytes == world_files(o->dir, "").bytes, "the books disagree with the folder");
	spill_close(s);
	CHECK(world_files(o->dir, "").bytes <= o->bytes_max, "budget");
}

struct prey {
	pid_t pid;
	int from, kill_at;
};

static struct prey prey_fork(const struct spill_opts *o, uint64_t seed)
{
	struct prey p = { .kill_at = rng_bits(1, seed, 0) % 2 ? 1 + (int)(rng_bits(1, seed, 1) % 150) : 0 };
	int fd[2];

	CHECK(!pipe(fd), "%s", strerror(errno));
	p.pid = fork();
	CHECK(p.pid >= 0, "%s", strerror(errno));
	if (!p.pid) {
		close(fd[0]);
		be_victim(o, seed, fd[1], p.kill_at);
	}
	close(fd[1]);
	p.from = fd[0];
	return p;
}

static void prey_kill(struct prey *p, uint64_t seed, bool *safe)
{
	int status;

	kill_after(p->pid, p->from, (int)(rng_bits(1, seed, 2) % 600), p->kill_at, safe);
	close(p->from);
	CHECK(waitpid(p->pid, &status, 0) == p->pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	      "round %d: the victim ended by itself, status %x", (int)seed, (unsigned)status);
}

int main(int argc, char **argv)
{
	const char *kills = argc > 1 ? argv[1] : getenv("WEFT_KILLS");
	int rounds = kills ? atoi(kills) : getenv("WEFT_TEST_QUICK") ? 5 : 200, n = 0, inside = 0;
	char dir[PATH_MAX];
	bool *safe = xcalloc(PREFIXES, sizeof(*safe));
	struct tally t = { 0 };

	log_set_level(LOG_ERROR);
	for (int r = 0; r < rounds; r++) {
		bool evicts = r / 20 % 2, fresh = r % 20 == 0;
		struct spill_opts o;
		struct prey p[2];

		if (fresh) {
			if (r)
				world_remove(dir);
			world_dir(dir);
			memset(safe, 0, PREFIXES * sizeof(*safe));
		}
		o = world_opts(dir);
		o.bytes_max = evicts ? 30000 : 100 << 20;
		for (int i = 0; i <= r % 2; i++)
			p[i] = prey_fork(&o, (uint64_t)(r + 10000 * i));
		for (int i = 0; i <= r % 2; i++, n++) {
			prey_kill(&p[i], (uint64_t)(r + 10000 * i), safe);
			inside += p[i].kill_at > 0;
		}
		look(&o, safe, evicts, &t);
	}
	if (rounds)
		world_remove(dir);
	free(safe);
	printf("%d kills, %d of them half way through a write; %lld half written files were left, then removed; "
	       "%lld prefixes in %lld pieces read and equal\n",
	       n, inside, (long long)t.torn, (long long)t.offered, (long long)t.pieces);
	return 0;
}
