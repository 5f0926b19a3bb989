/* reads.c - see reads.h.  The queue and the two ways of working it off. */
#include "base/reads.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/reads_ring.h"
#include "base/system.h"

enum { THREADS_MOST = 8 }; /* more lanes gain nothing: docs/experts-from-disk.md, "Reading" */

int (*reads_fault)(const struct read_ask *ask);

/* ---- files ---- */

int read_file_open(struct read_file *f, const char *path, struct err *err)
{
	*f = (struct read_file){ .fd = system_open_direct(path), .path = path };
	f->direct = f->fd >= 0;
	if (f->fd < 0 && errno == EINVAL)
		f->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (f->fd < 0)
		return err_set(err, errno == ENOENT ? E_MISSING : E_IO, "%s: %s", path, strerror(errno));
	if (file_id_of(f->fd, &f->id)) {
		int e = errno;

		read_file_close(f);
		return err_set(err, E_IO, "%s: %s", path, strerror(e));
	}
	return 0;
}

void read_file_close(struct read_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

bool read_file_same(const struct read_file *f)
{
	struct file_id now;

	return !file_id_of(f->fd, &now) && now.bytes == f->id.bytes && now.modified_ns == f->id.modified_ns;
}

/* ---- the queue ---- */

struct job {
	struct read_ask ask;
	size_t got;
	int error;
	struct job *next;
};

struct list {
	struct job *first, **end;
};

struct reads {
	struct list waiting; /* with threads, under the lock */
	struct job *spare;
	int depth, busy;   /* busy: begun and not given out by reads_next; of threads those queued as well */
	struct ring *ring; /* NULL: threads read */
	pthread_t thread[THREADS_MOST];
	int n_thread;
	pthread_mutex_t lock;
	pthread_cond_t work, ended;
	struct list done;
	bool closing;
};

static void list_init(struct list *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static void list_put(struct list *l, struct job *j)
{
	j->next = NULL;
	*l->end = j;
	l->end = &j->next;
}

static struct job *list_take(struct list *l)
{
	struct job *j = l->first;

	if (j && !(l->first = j->next))
		l->end = &l->first;
	return j;
}

/* n bytes came for the job, or an error (n < 0), or the file's end (0).  True: it has ended. */
static bool came(struct job *j, ssize_t n)
{
	if (n == -EINTR || n == -EAGAIN)
		return false;
	if (n < 0)
		j->error = (int)-n;
	else if (!n)
		j->error = ENODATA;
	else
		j->got += (size_t)n;
	return j->error || j->got >= j->ask.need;
}

static bool refused(struct job *j)
{
	j->error = reads_fault ? reads_fault(&j->ask) : 0;
	return j->error;
}

static bool give_out(struct reads *r, struct job *j, struct read_done *done)
{
	const struct read_file *f = j->ask.file;

	if (!f->direct)
		posix_fadvise(f->fd, (off_t)j->ask.at, (off_t)j->ask.n, POSIX_FADV_DONTNEED);
	*done = (struct read_done){ .tag = j->ask.tag, .error = j->error };
	j->next = r->spare;
	r->spare = j;
	r->busy--;
	return true;
}

/* ---- io_uring ---- */

static void uring_send(struct reads *r, struct job *j)
{
	const struct read_ask *a = &j->ask;

	ring_put(r->ring, a->file->fd, j->error ? NULL : a->to + j->got, a->n - j->got, a->at + j->got, j);
}

static void uring_fill(struct reads *r)
{
	bool some = false;

	while (r->busy < r->depth && r->waiting.first) {
		struct job *j = list_take(&r->waiting);

		refused(j);
		uring_send(r, j);
		r->busy++;
		some = true;
	}
	if (some)
		ring_submit(r->ring);
}

static bool uring_next(struct reads *r, struct read_done *done, bool wait)
{
	for (;;) {
		void *tag;
		struct job *j;
		int n;

		uring_fill(r);
		if (!r->busy)
			return false;
		if (!ring_next(r->ring, wait, &tag, &n))
			return false;
		j = tag;
		if (j->error || came(j, n)) {
			give_out(r, j, done);
			uring_fill(r);
			return true;
		}
		uring_send(r, j); /* the rest of it */
		ring_submit(r->ring);
	}
}

/* ---- threads ---- */

static void read_whole(struct job *j)
{
	const struct read_ask *a = &j->ask;
	ssize_t n;

	if (refused(j))
		return;
	do {
		n = pread(a->file->fd, a->to + j->got, a->n - j->got, (off_t)(a->at + j->got));
	} while (!came(j, n < 0 ? -errno : n));
}

static void *work(void *arg)
{
	struct reads *r = arg;

	pthread_mutex_lock(&r->lock);
	while (!r->closing) {
		struct job *j = list_take(&r->waiting);

		if (!j) {
			pthread_cond_wait(&r->work, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		read_whole(j);
		pthread_mutex_lock(&r->lock);
		list_put(&r->done, j);
		pthread_cond_signal(&r->ended);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static bool threads_next(struct reads *r, struct read_done *done, bool wait)
{
	struct job *j;

	pthread_mutex_lock(&r->lock);
	while (!(j = list_take(&r->done)) && wait && r->busy)
		pthread_cond_wait(&r->ended, &r->lock);
	pthread_mutex_unlock(&r->lock);
	return j && give_out(r, j, done);
}

static void threads_open(struct reads *r)
{
	int n = r->depth < THREADS_MOST ? r->depth : THREADS_MOST;

	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->work, NULL);
	pthread_cond_init(&r->ended, NULL);
	while (r->n_thread < n && !pthread_create(&r->thread[r->n_thread], NULL, work, r))
		r->n_thread++;
}

/* ---- both ---- */

int reads_open(struct reads **out, enum reads_way way, int depth, struct err *err)
{
	struct reads *r = xcalloc(1, sizeof *r);
	int rc;

	assert(depth > 0);
	*out = NULL;
	r->depth = depth;
	list_init(&r->waiting);
	list_init(&r->done);
	rc = way == READS_THREADS ? ENOSYS : ring_open(&r->ring, depth);
	if (rc && way == READS_URING) {
		free(r);
		return err_set(err, E_UNSUPPORTED, "io_uring: %s", strerror(rc));
	}
	if (rc)
		threads_open(r);
	*out = r;
	if (r->ring || r->n_thread)
		return 0;
	reads_close(r);
	*out = NULL;
	return err_set(err, E_IO, "no thread to read files with could be started");
}

static void free_list(struct job *j)
{
	while (j) {
		struct job *next = j->next;

		free(j);
		j = next;
	}
}

static void threads_close(struct reads *r)
{
	pthread_mutex_lock(&r->lock);
	r->closing = true;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
	for (int i = 0; i < r->n_thread; i++)
		pthread_join(r->thread[i], NULL);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->work);
	pthread_cond_destroy(&r->ended);
}

void reads_close(struct reads *r)
{
	struct read_done done;

	if (!r)
		return;
	if (r->ring) {
		free_list(r->waiting.first);
		list_init(&r->waiting);
		while (uring_next(r, &done, true))
			;
		ring_close(r->ring);
	} else {
		threads_close(r);
	}
	free_list(r->waiting.first);
	free_list(r->done.first);
	free_list(r->spare);
	free(r);
}

const char *reads_name(const struct reads *r)
{
	return r->ring ? "io_uring" : "threads";
}

void reads_put(struct reads *r, const struct read_ask *ask)
{
	struct job *j = r->spare;

	assert(ask->at % READ_ALIGN == 0 && ask->n % READ_ALIGN == 0 && ask->need <= ask->n && ask->need);
	assert((uintptr_t)ask->to % READ_ALIGN == 0);
	if (j)
		r->spare = j->next;
	else
		j = xmalloc(sizeof *j);
	*j = (struct job){ .ask = *ask };
	if (r->ring) {
		list_put(&r->waiting, j);
		uring_fill(r);
		return;
	}
	r->busy++;
	pthread_mutex_lock(&r->lock);
	list_put(&r->waiting, j);
	pthread_cond_signal(&r->work);
	pthread_mutex_unlock(&r->lock);
}

bool reads_next(struct reads *r, struct read_done *done, bool wait)
{
	return r->ring ? uring_next(r, done, wait) : threads_next(r, done, wait);
}
