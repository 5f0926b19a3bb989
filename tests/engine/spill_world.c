/* spill_world.c - see spill_world.h. */
#include "spill_world.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "lives.h"

static int no_sync(const struct spill_io *io, int fd)
{
	return 0;
}

const struct spill_io *world_io(void)
{
	static struct spill_io io;

	io = spill_io_real;
	io.sync = no_sync;
	return &io;
}

struct spill_opts world_opts(const char *dir)
{
	return (struct spill_opts){ .dir = dir,
		                    .io = world_io(),
		                    .bytes_max = 1 << 20,
		                    .queue_bytes = 1 << 20,
		                    .window_bytes = 1 << 20,
		                    .page_rows = ROWS,
		                    .model = { { 1, 2, 3 } } };
}

/* Tokens of prefix k: a family shares its beginning, so that pages are shared. */
int world_tokens(uint64_t k, int32_t *tok)
{
	int n = 1 + (int)(rng_bits(k, 0, 1) % LONGEST), shared = (int)(rng_bits(k, 0, 2) % LONGEST);

	for (int i = 0; i < n; i++)
		tok[i] = (int32_t)(rng_bits(i < shared ? k % 5 : k, (uint64_t)i, 3) % 1000);
	return n;
}

/* The payload of a piece is a function of all tokens before its end, as in life. */
void *world_payload(enum spill_kind kind, const int32_t *tok, int pos, size_t n)
{
	uint8_t *p = xmalloc(n);
	uint64_t seed = check64(tok, (size_t)pos * sizeof(*tok));

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_bits(seed, i, (uint64_t)kind);
	return p;
}

/* Hands over what is wanted of the prefix tok[0..n) and its snapshot. */
void world_put(struct spill *s, const int32_t *tok, int n)
{
	struct digest key[LONGEST / ROWS + 1];

	spill_keys(s, NULL, 0, tok, n, key);
	spill_use(s, key, tok, n);
	for (int pos = ROWS; pos <= n; pos += ROWS) {
		struct spill_piece p = { SPILL_PAGE, pos, tok, key };

		if (spill_wants(s, &p))
			spill_put(s, &p, world_payload(SPILL_PAGE, tok, pos, PAGE_BYTES), PAGE_BYTES);
	}
	struct spill_piece p = { SPILL_SNAP, n, tok, key };

	if (spill_wants(s, &p))
		spill_put(s, &p, world_payload(SPILL_SNAP, tok, n, SNAP_BYTES), SNAP_BYTES);
	spill_use(s, key, tok, n);
}

struct world_taker {
	pthread_mutex_t lock;
	pthread_cond_t told;
	bool came;
};

static void world_notify(void *arg)
{
	struct world_taker *t = arg;

	pthread_mutex_lock(&t->lock);
	t->came = true;
	pthread_cond_signal(&t->told);
	pthread_mutex_unlock(&t->lock);
}

/* Takes all of a load and compares each piece; true when all came. */
bool world_load(struct spill *s, const int32_t *tok, int pos)
{
	struct world_taker t = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };
	struct digest key[LONGEST / ROWS + 1];
	struct spill_got got;
	struct spill_load *l;
	enum spill_next next;
	int n = 0;

	spill_keys(s, NULL, 0, tok, pos, key);
	l = spill_load_open(s, &(struct spill_want){ .tok = tok,
	                                             .key = key,
	                                             .pos = pos,
	                                             .page_bytes = PAGE_BYTES,
	                                             .snap_max = SNAP_BYTES,
	                                             .notify = world_notify,
	                                             .notify_arg = &t });
	while ((next = spill_load_next(l, &got)) <= SPILL_WAIT) {
		bool page = n > 0;
		int at = page ? n * ROWS : pos;
		void *want;

		if (next == SPILL_WAIT) {
			pthread_mutex_lock(&t.lock);
			while (!t.came)
				pthread_cond_wait(&t.told, &t.lock);
			t.came = false;
			pthread_mutex_unlock(&t.lock);
			continue;
		}
		CHECK(got.kind == (page ? SPILL_PAGE : SPILL_SNAP), "piece %d of %d", n, pos);
		CHECK(!page || got.page == n - 1, "piece %d of %d", n, pos);
		CHECK(got.n == (page ? PAGE_BYTES : SNAP_BYTES), "%zu bytes", got.n);
		want = world_payload(got.kind, tok, at, got.n);
		CHECK(!memcmp(got.payload, want, got.n), "piece %d of %d is another", n, pos);
		free(want);
		free(got.payload);
		n++;
	}
	spill_load_close(l);
	CHECK(next == SPILL_FAIL || n == pos / ROWS + 1, "%d pieces of %d", n, pos / ROWS + 1);
	return next == SPILL_END;
}

int world_find(struct spill *s, const int32_t *tok, int n)
{
	struct digest key[LONGEST / ROWS + 1];

	spill_keys(s, NULL, 0, tok, n, key);
	return spill_find(s, key, true, tok, n);
}

int world_look_find(struct spill *s, const int32_t *tok, int n)
{
	uint64_t ticket = spill_look(s);

	while (!spill_looked(s, ticket))
		sched_yield();
	return world_find(s, tok, n);
}

/* ---- the folder as the system sees it ---- */

static void world_look(const char *dir, const char *suffix, struct world_files *f)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	CHECK(d, "%s", dir);
	while ((e = readdir(d))) {
		char path[PATH_MAX];
		size_t n = strlen(e->d_name), m = strlen(suffix);
		struct stat st;

		if (e->d_name[0] == '.' && strncmp(e->d_name, SPILL_TMP, strlen(SPILL_TMP)))
			continue;
		CHECK(snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < (int)sizeof(path), "long path");
		if (lstat(path, &st))
			continue;
		if (S_ISDIR(st.st_mode) && !strcmp(e->d_name, "servers")) {
			continue; /* tallies are as long as what they count, and hold nothing */
		} else if (S_ISDIR(st.st_mode)) {
			world_look(path, suffix, f);
		} else if (!strncmp(e->d_name, SPILL_TMP, strlen(SPILL_TMP))) {
			f->tmp++;
		} else if (n > m && !strcmp(e->d_name + n - m, suffix)) {
			f->files++;
			f->bytes += (uint64_t)st.st_size;
			strcpy(f->last, path);
		}
	}
	closedir(d);
}

struct world_files world_files(const char *dir, const char *suffix)
{
	struct world_files f = { 0 };

	world_look(dir, suffix, &f);
	return f;
}

void world_remove(const char *dir)
{
	char cmd[PATH_MAX + 16];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	CHECK(system(cmd) == 0, "%s", cmd);
}

/* A new empty folder under $TMPDIR or /tmp. */
void world_dir(char out[PATH_MAX])
{
	const char *tmp = getenv("TMPDIR");

	snprintf(out, PATH_MAX, "%s/weft-spill-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	CHECK(mkdtemp(out), "%s", out);
}
