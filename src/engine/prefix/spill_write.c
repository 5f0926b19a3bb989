/* spill_write.c - see spill.h: the queue and the thread that writes. */
#include "engine/prefix/spill_core.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/prefix/spill_drop.h"

/* After the disk refused, 1, 2, 4 .. this many pieces are not even tried. */
enum { REST_MAX = 64 };
/* More than this part of the budget that others wrote, and the folder is listed before files go for it. */
enum { SLACK = 16 };

/* ---- writing ---- */

/* Where a piece is to be written whose entry, if there is one, is e. */
static bool wants(const struct spill *s, const struct spill_entry *e, int pos, bool *to_file, bool *to_redis)
{
	*to_file = s->o.dir && (!e || e->unread || e->no_file);
	/* Vectors of images, prefixes of one token, are not looked for there. */
	*to_redis = pos > 1 && spill_redis_writes(s) && (!e || e->shared == SHARED_NO);
	return (*to_file || *to_redis) && !(e && (e->queued || e->pack));
}

bool spill_wants(struct spill *s, const struct spill_piece *p)
{
	bool is, to_file, to_redis;

	if (s->read_only)
		return false;
	pthread_mutex_lock(&s->lock);
	is = wants(s, spill_entry_of(s, p), p->pos, &to_file, &to_redis);
	pthread_mutex_unlock(&s->lock);
	return is;
}

/* Is there no room for the job?  Counts it. */
static bool refuse(struct spill *s, const struct job *j)
{
	if (j->head.payload_bytes > s->o.queue_bytes - s->stats.queue_bytes ||
	    (s->o.dir && spill_size_of(&j->head) > s->o.bytes_max)) {
		s->stats.dropped++;
		return true;
	}
	return false;
}

bool spill_room(struct spill *s, size_t n)
{
	bool room;

	pthread_mutex_lock(&s->lock);
	room = n <= s->o.queue_bytes - s->stats.queue_bytes;
	pthread_mutex_unlock(&s->lock);
	return room;
}

int spill_put(struct spill *s, const struct spill_piece *p, void *payload, size_t n)
{
	return spill_put_held(s, p, payload, n, free, payload);
}

int spill_put_held(struct spill *s, const struct spill_piece *p, const void *payload, size_t n,
                   void (*release)(void *owner), void *owner)
{
	struct job *j = xcalloc(1, sizeof(*j));
	struct spill_entry *e;
	enum spill_shared shared;
	bool taken = false;

	spill_head_fill(s, p, &j->head);
	j->head.payload_bytes = n;
	j->payload = payload;
	j->release = release;
	j->owner = owner;
	j->tok = xmalloc(size_mul(j->head.n_tok, sizeof(*j->tok)));
	memcpy(j->tok, p->tok + (uint32_t)p->pos - j->head.n_tok, j->head.n_tok * sizeof(*j->tok));
	j->tail = p->kind == SPILL_SNAP ? spill_tail(s, p->tok, p->pos) : 0;
	pthread_mutex_lock(&s->lock);
	e = spill_entry_of(s, p);
	if (!s->read_only && wants(s, e, p->pos, &j->to_file, &j->to_redis) && !refuse(s, j)) {
		j->again = e && e->unread;
		shared = e ? e->shared : SHARED_UNKNOWN;
		if (e && j->to_file) {
			spill_index_remove(&s->index, e);
			e = NULL;
		}
		if (!e) {
			e = spill_index_add(&s->index, p->kind, &j->head.key, j->head.pos, j->tail, spill_tick(s));
			e->shared = shared;
		}
		if (j->to_redis)
			e->shared = SHARED_YES; /* soon */
		s->stats.queue_bytes += n;
		*s->jobs_end = j;
		s->jobs_end = &j->next;
		taken = true;
		pthread_cond_signal(&s->work);
	}
	pthread_mutex_unlock(&s->lock);
	if (taken)
		return 0;
	spill_job_free(j);
	return E_FULL;
}

/* Takes out the oldest file, unless another program has used it since; then it is no longer the oldest.  The index keeps it
 * until the file is gone, or a listing at the same time would add it anew.  Called and returns locked. */
static void evict_one(struct spill *s, struct spill_entry *e)
{
	const struct spill_entry is = *e;
	char path[SPILL_PATH];
	struct stat st;
	int64_t used = 0;
	bool there;

	spill_index_path(&s->index, e, path);
	e->leaving = true;
	pthread_mutex_unlock(&s->lock);
	there = !fstatat(s->root, path, &st, AT_SYMLINK_NOFOLLOW);
	if (there)
		used = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	if (used <= is.used)
		s->io->unlink(s->io, s->root, path);
	pthread_mutex_lock(&s->lock);
	e = spill_index_find(&s->index, is.kind, &is.key, is.pos, is.tail);
	if (!e)
		return;
	e->leaving = false;
	if (e->queued)
		return;
	if (used > is.used) {
		if (e->used == is.used)
			spill_index_move(&s->index, e, used);
		return;
	}
	spill_index_remove(&s->index, e);
	s->stats.evicted += there;
}

/* Takes files out until `need` bytes more fit, with those that other programs are writing.  Called and returns locked. */
static void make_room(struct spill *s, uint64_t need)
{
	uint64_t others, max = s->o.bytes_max;
	struct spill_entry *e;

	pthread_mutex_unlock(&s->lock);
	others = spill_others_wrote(s);
	pthread_mutex_lock(&s->lock);
	if (s->index.bytes + others + need > max && (others > max / SLACK || spill_is_old(s))) {
		spill_look_again(s, true, false);
		others = 0;
	}
	while (s->index.bytes + others + need > max && (e = spill_index_oldest(&s->index)))
		evict_one(s, e);
}

static void write_failed(struct spill *s, int errnum)
{
	s->stats.failed++;
	s->rest = s->rest_next;
	s->rest_next = s->rest_next < REST_MAX ? 2 * s->rest_next : REST_MAX;
	if (!(s->stats.failed & (s->stats.failed - 1))) /* the 1st, 2nd, 4th ... */
		log_warn("prompt cache %s: cannot write: %s (%lld pieces so far)", s->o.dir, strerror(errnum),
		         (long long)s->stats.failed);
}

static void job_pop(struct spill *s)
{
	s->jobs = s->jobs->next;
	if (!s->jobs)
		s->jobs_end = &s->jobs;
	s->writing = true;
}

/* Hands the job on to Redis, if it is for that too. */
static void job_on(struct spill *s, struct job *j)
{
	struct spill_entry *e;

	s->writing = false;
	if (j->to_redis && spill_redis_put(s, j))
		return;
	e = spill_index_find(&s->index, j->head.kind, &j->head.key, j->head.pos, j->tail);
	if (e && j->to_redis)
		e->shared = SHARED_NO;
	if (e && e->queued && !j->to_file)
		spill_index_remove(&s->index, e);
	spill_job_end(s, j);
}

static void job_over(struct spill *s, struct job *j, bool written)
{
	struct spill_entry *e = spill_index_find(&s->index, j->head.kind, &j->head.key, j->head.pos, j->tail);

	assert(e && e->queued);
	if (written) {
		spill_index_written(&s->index, e, spill_size_of(&j->head));
		s->unsynced = true;
		s->stats.written++;
		s->stats.written_bytes += j->head.payload_bytes;
		s->rest_next = 1;
	} else {
		spill_index_remove(&s->index, e);
	}
	job_on(s, j);
}

/* 0 or an errno.  A file that another program wrote meanwhile is as good, and stays. */
static int write_file(struct spill *s, const char *name, struct job *j, int64_t used)
{
	char tmp[SPILL_TMP_NAME];
	struct stat st;
	int rc;

	if (!j->again && !fstatat(s->own, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size == spill_size_of(&j->head))
		return 0;
	spill_tmp_name(&s->owner, name, tmp);
	rc = spill_file_write(s->io, s->own, tmp, name, &j->head, j->tok, j->payload, used);
	if ((rc == ENOENT || rc == ESTALE) && spill_folder_again(s))
		rc = spill_file_write(s->io, s->own, tmp, name, &j->head, j->tok, j->payload, used);
	return rc;
}

/* Called and returns locked. */
static void write_one(struct spill *s)
{
	struct job *j = s->jobs;
	struct spill_entry *e;
	char name[SPILL_NAME];
	int64_t used;
	int rc;

	job_pop(s);
	if (!j->to_file) {
		job_on(s, j);
		return;
	}
	if (s->rest > 0) {
		s->rest--;
		s->stats.failed++;
		job_over(s, j, false);
		return;
	}
	pthread_mutex_unlock(&s->lock);
	spill_announce(s, spill_size_of(&j->head)); /* first: two that write at once do not both take the last room */
	pthread_mutex_lock(&s->lock);
	make_room(s, spill_size_of(&j->head));
	e = spill_index_find(&s->index, j->head.kind, &j->head.key, j->head.pos, j->tail);
	assert(e && e->queued);
	used = e->used;
	pthread_mutex_unlock(&s->lock);
	spill_name_put(name, j->head.kind, &j->head.key, j->head.pos, j->tail);
	rc = write_file(s, name, j, used);
	if (!rc)
		spill_announced(s);
	pthread_mutex_lock(&s->lock);
	if (rc)
		write_failed(s, rc);
	job_over(s, j, !rc);
}

void spill_drop(struct spill *s, const struct digest *key, const int32_t *tok, int n)
{
	size_t n_key = (size_t)(n / s->o.page_rows) + 1;
	struct job *j = xcalloc(1, sizeof(*j));

	j->head.n_tok = (uint32_t)n;
	j->tok = xmalloc(size_mul((size_t)n + 1, sizeof(*j->tok)));
	if (n)
		memcpy(j->tok, tok, (size_t)n * sizeof(*j->tok));
	if (key) {
		j->key = xmalloc(size_mul(n_key, sizeof(*j->key)));
		memcpy(j->key, key, n_key * sizeof(*j->key));
	}
	pthread_mutex_lock(&s->lock);
	s->dropping++;
	if (!s->read_only) {
		*s->jobs_end = j;
		s->jobs_end = &j->next;
		pthread_cond_signal(&s->work);
		j = NULL;
	}
	/* Another's files stay where they are: this process looks at none of them again. */
	pthread_mutex_unlock(&s->lock);
	if (j)
		spill_job_free(j);
}

/* Called and returns locked. */
static void drop_one(struct spill *s)
{
	struct job *j = s->jobs;
	struct spill_peek_files files;
	struct spill_name *v;
	size_t n = 0;

	job_pop(s);
	if (s->o.dir)
		spill_look_again(s, false, true);
	v = xmalloc(size_mul(s->index.n + 1, sizeof(*v)));
	spill_index_unpack(&s->index);
	for (struct spill_entry *e = NULL; (e = spill_index_each(&s->index, e));)
		if (!e->folder && !e->queued)
			v[n++] = (struct spill_name){
				.kind = e->kind, .key = e->key, .pos = e->pos, .tail = e->tail, .out = !j->key
			};
	pthread_mutex_unlock(&s->lock);
	files = spill_peek_files(s->io, s->own);
	if (j->key)
		spill_mark(&files.peek, s->o.page_rows, j->key, j->tok, (int)j->head.n_tok, v, n);
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < n; i++) {
		struct spill_entry *e = spill_index_find(&s->index, v[i].kind, &v[i].key, v[i].pos, v[i].tail);
		char name[SPILL_NAME];

		if (!v[i].out || !e || e->queued)
			continue;
		spill_index_remove(&s->index, e);
		spill_name_put(name, v[i].kind, &v[i].key, v[i].pos, v[i].tail);
		s->io->unlink(s->io, s->own, name);
	}
	free(v);
	spill_index_unlend(&s->index);
	if (!spill_redis_put(s, j)) /* before finding goes on */
		spill_job_free(j);
	s->dropping--;
	s->writing = false;
}

/* Gives a file the time of its last use.  Called and returns locked; false: none
 * waits for it. */
static bool stamp_one(struct spill *s)
{
	struct spill_entry *e = spill_index_stale(&s->index);
	struct timespec times[2];
	char path[SPILL_PATH];

	if (!e)
		return false;
	spill_index_path(&s->index, e, path);
	times[0].tv_sec = e->used / 1000000000;
	times[0].tv_nsec = e->used % 1000000000;
	times[1] = times[0];
	pthread_mutex_unlock(&s->lock);
	utimensat(s->root, path, times, AT_SYMLINK_NOFOLLOW);
	pthread_mutex_lock(&s->lock);
	return true;
}

/* Makes the names of what was written outlive a power cut, once for many.  A disk that
 * refuses costs no more than such a cut would.  Called and returns locked; false: there
 * are none. */
static bool sync_names(struct spill *s)
{
	if (!s->unsynced)
		return false;
	s->unsynced = false;
	s->writing = true;
	pthread_mutex_unlock(&s->lock);
	s->io->sync(s->io, s->own);
	pthread_mutex_lock(&s->lock);
	/* What others were writing may not have been counted: the last to write puts it right. */
	if (s->looks.others.n && s->index.bytes > s->o.bytes_max - s->o.bytes_max / SLACK) {
		spill_look_again(s, true, false);
		make_room(s, 0);
	}
	s->writing = false;
	return true;
}

void *spill_writer(void *arg)
{
	struct spill *s = arg;

	pthread_mutex_lock(&s->lock);
	if (s->o.dir)
		make_room(s, 0); /* the budget may be smaller than last time */
	s->writing = false;
	for (;;) {
		if (s->jobs && !s->jobs->payload) {
			drop_one(s);
		} else if (s->jobs) {
			write_one(s);
		} else if (!sync_names(s) && !stamp_one(s)) {
			pthread_cond_broadcast(&s->idle);
			if (s->closing)
				break;
			pthread_cond_wait(&s->work, &s->lock);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

void spill_flush(struct spill *s)
{
	pthread_mutex_lock(&s->lock);
	while (!s->read_only && (s->jobs || s->writing || s->unsynced || s->redis.jobs || s->redis.writing))
		pthread_cond_wait(&s->idle, &s->lock);
	pthread_mutex_unlock(&s->lock);
}
