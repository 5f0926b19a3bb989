/* spill.c - see spill.h: open and close. */
#include "engine/prefix/spill_core.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/prefix/prefix_pack.h"

/* ---- open and close ---- */

/* The directory and this model's folder in it. */
static int open_folders(struct spill *s, struct err *err)
{
	const char *dir = s->o.dir, *folder = s->folder;

	if (mkdir(dir, 0700) && errno != EEXIST)
		return err_set(err, E_IO, "%s: cannot make it: %s", dir, strerror(errno));
	s->root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->root < 0)
		return err_set(err, E_IO, "%s: %s", dir, strerror(errno));
	if (mkdirat(s->root, folder, 0700) && errno != EEXIST)
		return err_set(err, E_IO, "%s/%s: cannot make it: %s", dir, folder, strerror(errno));
	s->own = openat(s->root, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s->own < 0)
		return err_set(err, E_IO, "%s/%s: %s", dir, folder, strerror(errno));
	fdatasync(s->root); /* the folder's own name; without it, at worst nothing is found */
	return 0;
}

/* Adds the pieces of the packs that are not in the folder. */
static int add_packs(struct spill *s, struct err *err)
{
	struct pack_piece p;
	int rc = 0;

	for (int i = 0; i < s->o.n_pack && !rc; i++) {
		struct pack_walk w = pack_walk(s->o.pack[i]);

		while (!rc && pack_next(&w, &p, &rc, err)) {
			struct spill_entry e = { .kind = p.head.kind,
				                 .key = p.head.key,
				                 .pos = p.head.kind == SPILL_SNAP ? p.head.pos : 0,
				                 .tail = p.tail,
				                 .bytes = p.part.bytes,
				                 .pack = i + 1,
				                 .pack_at = p.part.at };

			if (!spill_index_find(&s->index, e.kind, &e.key, e.pos, e.tail))
				spill_index_pack(&s->index, &e);
		}
	}
	return rc;
}

static void free_all(struct spill *s)
{
	const int fd[] = { s->own, s->root };

	spill_index_fini(&s->index);
	for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++)
		if (fd[i] >= 0)
			close(fd[i]);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	pthread_cond_destroy(&s->wanted);
	pthread_cond_destroy(&s->looks.wanted);
	pthread_cond_destroy(&s->looks.over);
	spill_tallies_fini(&s->looks.others);
	spill_owner_end(&s->owner);
	spill_redis_free(s);
	free((char *)s->o.dir);
	free(s);
}

/* A thread that is there ends when spill.closing says so. */
static void stop_threads(struct spill *s, int n)
{
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	pthread_cond_signal(&s->wanted);
	pthread_cond_signal(&s->looks.wanted);
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	if (n > 0)
		pthread_join(s->reader, NULL);
	if (n > 1)
		pthread_join(s->writer, NULL);
	if (n > 2)
		pthread_join(s->looks.thread, NULL);
}

static int start_threads(struct spill *s, struct err *err)
{
	int n = !pthread_create(&s->reader, NULL, spill_reader, s);

	if (n == 1 && !s->read_only)
		n += !pthread_create(&s->writer, NULL, spill_writer, s);
	if (n == 2)
		n += !pthread_create(&s->looks.thread, NULL, spill_looker, s);
	if (n == (s->read_only ? 1 : 3))
		return 0;
	stop_threads(s, n);
	return err_set(err, E_IO, "prompt cache: cannot start a thread");
}

int spill_open(struct spill **out, const struct spill_opts *o, struct err *err)
{
	struct spill *s;
	int rc = 0;

	*out = NULL;
	if (o->page_rows < 1 || (o->dir ? !o->dir[0] : !o->n_pack && !o->redis))
		return err_set(err, E_ARG, "prompt cache: folder \"%s\", pages of %d tokens", o->dir ? o->dir : "",
		               o->page_rows);
	s = xcalloc(1, sizeof(*s));
	s->o = *o;
	s->o.dir = o->dir ? xstrdup(o->dir) : NULL;
	s->read_only = !o->dir && !o->redis;
	s->io = o->io ? o->io : &spill_io_real;
	s->root = s->own = -1;
	s->jobs_end = &s->jobs;
	s->rest_next = 1;
	s->writing = true; /* until the writer has looked at the budget */
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	pthread_cond_init(&s->wanted, NULL);
	pthread_cond_init(&s->looks.wanted, NULL);
	pthread_cond_init(&s->looks.over, NULL);
	spill_owner_begin(&s->owner);
	spill_folder_name(&o->model, s->folder);
	spill_tally_name(s->tally, s->folder, &s->owner);
	spill_index_init(&s->index, s->folder);
	if (o->dir)
		rc = open_folders(s, err);
	if (!rc && o->dir) {
		/* Before the listing: what comes during it is seen again. */
		spill_tallies_read(s->root, s->tally, &s->tally_kb, &s->looks.others);
		if (s->tally_kb)
			spill_tally_put(s->root, s->tally, s->tally_kb);
		rc = spill_index_scan(&s->index, s->root, s->io, err);
	}
	if (!rc && o->dir)
		log_info("prompt cache %s: %lld pages and %lld snapshots of this model; %llu of %llu MB are used",
		         o->dir, (long long)s->index.pages, (long long)s->index.snaps,
		         (unsigned long long)s->index.bytes >> 20, (unsigned long long)o->bytes_max >> 20);
	if (!rc)
		rc = add_packs(s, err);
	if (!rc)
		rc = start_threads(s, err);
	if (!rc && (rc = spill_redis_open(s, err)))
		stop_threads(s, s->read_only ? 1 : 3);
	if (rc) {
		free_all(s);
		return rc;
	}
	*out = s;
	return 0;
}

void spill_close(struct spill *s)
{
	if (!s)
		return;
	assert(!s->loads);
	stop_threads(s, s->read_only ? 1 : 3);
	spill_redis_stop(s);
	assert(!s->jobs && !s->redis.jobs);
	free_all(s);
}

int spill_page_rows(const struct spill *s)
{
	return s->o.page_rows;
}

bool spill_read_only(const struct spill *s)
{
	return s->read_only;
}

void spill_stats(struct spill *s, struct disk_stats *out)
{
	pthread_mutex_lock(&s->lock);
	*out = s->stats;
	out->on = true;
	out->pages = s->index.pages;
	out->snaps = s->index.snaps;
	out->bytes = s->index.bytes;
	out->bytes_max = s->o.bytes_max;
	out->redis.on = s->redis.on;
	out->redis.up = s->redis.in.up;
	out->redis.ns_byte = spill_redis_ns_byte(s);
	pthread_mutex_unlock(&s->lock);
}
