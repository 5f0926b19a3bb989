/* fetch.c - see fetch.h. */
#include "hub/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "hub/hub_cache.h"
#include "hub/names.h"

enum { THREADS_MAX = 16, FAILURES_MAX = 5, DIGESTS_MAX = 3, TELL_MS = 100, READ_SIZE = 1 << 20 };

struct part {
	uint64_t done; /* bytes from its beginning */
	bool taken;
};

struct blob {
	const struct hub_entry *entry;
	enum { BLOB_WAITS, BLOB_OPENS, BLOB_OPEN, BLOB_READY } state;
	int fd, lock, marks;
	struct buf path, partial, marked; /* DIGEST, DIGEST.weft.incomplete, DIGEST.weft.parts */
	uint64_t part_size;
	struct part *part;
	int n;
	struct buf url; /* where it lies; empty: not known */
	bool locating;
	bool whole_only;                 /* the store answers no ranges: one request brings the file */
	const struct hub_line *whole_by; /* whose request that is; NULL: none */
	int users;                       /* threads that fetch for it */
	int wrong;                       /* digests */
	struct sha256 digest;
	bool digesting;
	int digested; /* parts */
};

struct fetch {
	const struct hub_fetch *of;
	struct blob *blob;
	pthread_mutex_t lock; /* for all that follows and what blobs have */
	pthread_cond_t changed;
	uint64_t done, total, fetched;
	int64_t told_ms;
	int code; /* of the first thread that failed */
	struct err err;
};

static uint64_t part_begin(const struct blob *b, int i)
{
	return (uint64_t)i * b->part_size;
}

static uint64_t part_length(const struct blob *b, int i)
{
	uint64_t size = (uint64_t)b->entry->size, from = part_begin(b, i);

	return size - from < b->part_size ? size - from : b->part_size;
}

static bool part_whole(const struct blob *b, int i)
{
	return b->part[i].done == part_length(b, i);
}

/* At most 16 million parts, whatever a list of files says. */
static uint64_t part_size_of(const struct hub_options *o, uint64_t size)
{
	uint64_t asked = o->part_size ? o->part_size : 32 << 20;

	return asked < size >> 24 ? size >> 24 : asked;
}

/* ---- the files of a blob ---- */

static void name_files(struct blob *b, const char *folder, const struct hub_entry *e)
{
	buf_init(&b->path);
	buf_init(&b->partial);
	buf_init(&b->marked);
	buf_printf(&b->path, "%s/blobs/%s", folder, e->digest);
	buf_printf(&b->partial, "%s.weft.incomplete", b->path.p);
	buf_printf(&b->marked, "%s.weft.parts", b->path.p);
}

static void forget_files(struct blob *b)
{
	buf_fini(&b->path);
	buf_fini(&b->partial);
	buf_fini(&b->marked);
}

static void make_parts(struct blob *b, const struct hub_options *o)
{
	uint64_t size = (uint64_t)b->entry->size;

	b->part_size = part_size_of(o, size);
	b->n = (int)((size + b->part_size - 1) / b->part_size);
	b->part = xcalloc((size_t)b->n + 1, sizeof *b->part);
}

static bool has_blob(const char *path, int64_t size)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size == size;
}

/* Sets the parts that an earlier fetch completed.  The first line says what they were parts of. */
static void read_marks(struct blob *b)
{
	struct stat st;
	struct buf text;
	char head[80], *line;
	int n = snprintf(head, sizeof head, "weft 1 %" PRId64 " %" PRIu64 "\n", b->entry->size, b->part_size);

	buf_init(&text);
	if (!stat(b->partial.p, &st) && st.st_size == b->entry->size && file_exists(b->marked.p) &&
	    !file_read(b->marked.p, 16 << 20, &text, NULL) && !strncmp(text.p, head, (size_t)n))
		for (line = text.p + n; *line; line += strcspn(line, "\n") + 1) {
			int i = atoi(line);

			if (strchr(line, '\n') && i >= 0 && i < b->n)
				b->part[i].done = part_length(b, i);
			if (!strchr(line, '\n'))
				break;
		}
	buf_fini(&text);
}

uint64_t hub_fetch_left(const char *folder, const struct hub_entry *entry, const struct hub_options *options)
{
	struct blob b = { .entry = entry };
	uint64_t left = 0;

	name_files(&b, folder, entry);
	if (!has_blob(b.path.p, entry->size) && !file_exists(b.marked.p)) {
		left = (uint64_t)entry->size;
	} else if (!has_blob(b.path.p, entry->size)) {
		make_parts(&b, options);
		read_marks(&b);
		for (int i = 0; i < b.n; i++)
			left += part_length(&b, i) - b.part[i].done;
		free(b.part);
	}
	forget_files(&b);
	return left;
}

static int fail_io(struct err *err, const char *what, const char *path)
{
	return err_set(err, errno == ENOSPC || errno == EDQUOT ? E_FULL : E_IO, "%s: %s: %s", path, what,
	               strerror(errno));
}

/* Begins the partial file again with no parts. */
static int begin_marks(struct blob *b, bool keep, struct err *err)
{
	if (b->marks >= 0)
		close(b->marks);
	b->marks = open(b->marked.p, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (keep ? 0 : O_TRUNC), 0666);
	if (b->marks < 0)
		return fail_io(err, "cannot be written", b->marked.p);
	if (!keep && dprintf(b->marks, "weft 1 %" PRId64 " %" PRIu64 "\n", b->entry->size, b->part_size) < 0)
		return fail_io(err, "cannot be written", b->marked.p);
	return 0;
}

static void say_waits(struct fetch *f, const struct blob *b)
{
	char line[400];

	snprintf(line, sizeof line, "%.200s: another program is fetching it; waiting for that", b->entry->path);
	f->of->watch->say(f->of->watch->arg, line);
}

/* Waits for the lock that programs of this cache take while they write a blob. */
static int lock_blob(struct fetch *f, struct blob *b, struct err *err)
{
	static const struct hub_head none = { .left = -1, .retry_after = -1 };
	const char *folder = strrchr(f->of->folder, '/') + 1;
	struct buf path;
	int rc;

	buf_init(&path);
	buf_printf(&path, "%s/.locks/%s", f->of->place->cache, folder);
	rc = hub_make_folder(path.p, err);
	buf_printf(&path, "/%s.lock", b->entry->digest);
	if (!rc && (b->lock = open(path.p, O_RDWR | O_CREAT | O_CLOEXEC, 0664)) < 0)
		rc = fail_io(err, "cannot be opened", path.p);
	for (int tries = 0; !rc && flock(b->lock, LOCK_EX | LOCK_NB); tries++) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			rc = fail_io(err, "cannot be locked", path.p);
		else if (!tries && f->of->watch->say)
			say_waits(f, b);
		rc = rc ? rc : hub_http_wait(f->of->http, &none, 0, b->entry->path, err);
	}
	buf_fini(&path);
	return rc;
}

static void begin_digest(struct blob *b)
{
	char head[40];

	b->digested = 0;
	if (strlen(b->entry->digest) == HUB_SHA256) {
		sha256_init(&b->digest);
		return;
	}
	sha1_init(&b->digest);
	sha256_put(&b->digest, head, (size_t)snprintf(head, sizeof head, "blob %" PRId64, b->entry->size) + 1);
}

/* Opens what an earlier fetch left, or a new file.  *there: the blob is whole already. */
static int open_blob(struct fetch *f, struct blob *b, bool *there, struct err *err)
{
	bool keep = false;
	int rc = lock_blob(f, b, err);

	*there = false;
	if (rc)
		return rc;
	if (has_blob(b->path.p, b->entry->size)) {
		*there = true;
		return 0;
	}
	read_marks(b);
	for (int i = 0; i < b->n; i++)
		keep |= b->part[i].done > 0;
	b->fd = open(b->partial.p, O_RDWR | O_CREAT | O_CLOEXEC | (keep ? 0 : O_TRUNC), 0666);
	if (b->fd < 0)
		return fail_io(err, "cannot be written", b->partial.p);
	if (ftruncate(b->fd, b->entry->size))
		return fail_io(err, "cannot be written", b->partial.p);
	rc = begin_marks(b, keep, err);
	begin_digest(b);
	return rc;
}

static void close_blob(struct blob *b)
{
	sha256_drop(&b->digest);
	if (b->fd >= 0)
		close(b->fd);
	if (b->marks >= 0)
		close(b->marks);
	if (b->lock >= 0)
		close(b->lock);
	b->fd = b->marks = b->lock = -1;
}

/* ---- digests ---- */

/* Puts part i into the digest; called without the lock by the thread that digests. */
static int digest_part(struct blob *b, int i, struct err *err)
{
	uint64_t at = part_begin(b, i), end = at + part_length(b, i);
	char *p = xmalloc(READ_SIZE);
	int rc = 0;

	while (!rc && at < end) {
		size_t want = end - at < READ_SIZE ? (size_t)(end - at) : READ_SIZE;
		ssize_t n = pread(b->fd, p, want, (off_t)at);

		if (n > 0) {
			sha256_put(&b->digest, p, (size_t)n);
			at += (uint64_t)n;
		} else if (!n || errno != EINTR) {
			rc = fail_io(err, "cannot be read", b->partial.p);
		}
	}
	free(p);
	return rc;
}

static bool digest_right(struct blob *b)
{
	char got[HUB_SHA256 + 1];
	struct digest d;
	uint8_t sha1[20];

	if (strlen(b->entry->digest) == HUB_SHA256) {
		sha256_end(&b->digest, &d);
		hex_put(got, d.b, sizeof d.b);
	} else {
		sha1_end(&b->digest, sha1);
		hex_put(got, sha1, sizeof sha1);
	}
	return !strcmp(got, b->entry->digest);
}

/* All parts are there: the blob gets its name, or begins again. */
static int finish(struct fetch *f, struct blob *b, struct err *err)
{
	int rc = 0;

	if (!digest_right(b)) {
		if (++b->wrong == DIGESTS_MAX)
			rc = err_set(
				err, E_FORMAT,
				"%s: its bytes came %d times with another digest than the hub names: the file there "
				"or the way to it is damaged",
				b->entry->path, b->wrong);
		rc = rc ? rc : begin_marks(b, false, err);
		begin_digest(b);
		pthread_mutex_lock(&f->lock);
		for (int i = 0; i < b->n; i++)
			b->part[i] = (struct part){ 0 };
		f->done -= (uint64_t)b->entry->size;
		pthread_mutex_unlock(&f->lock);
		if (rc)
			unlink(b->marked.p);
		return rc;
	}
	if (fsync(b->fd) || rename(b->partial.p, b->path.p))
		return fail_io(err, "cannot be finished", b->path.p);
	unlink(b->marked.p);
	close_blob(b);
	pthread_mutex_lock(&f->lock);
	b->state = BLOB_READY;
	pthread_mutex_unlock(&f->lock);
	return 0;
}

/* Digests the whole parts that follow those that are; at the end of the file, the last thread that fetched for it finishes
 * it.  With the lock held. */
static int advance(struct fetch *f, struct blob *b, struct err *err)
{
	int rc = 0;

	if (b->digesting || b->state != BLOB_OPEN)
		return 0;
	b->digesting = true;
	while (!rc && b->digested < b->n && part_whole(b, b->digested)) {
		pthread_mutex_unlock(&f->lock);
		rc = digest_part(b, b->digested, err);
		pthread_mutex_lock(&f->lock);
		b->digested++;
	}
	if (!rc && b->digested == b->n && !b->users) {
		pthread_mutex_unlock(&f->lock);
		rc = finish(f, b, err);
		pthread_mutex_lock(&f->lock);
	}
	b->digesting = false;
	pthread_cond_broadcast(&f->changed);
	return rc;
}

/* ---- one request ---- */

struct transfer {
	struct fetch *f;
	struct blob *b;
	const struct hub_line *line;
	uint64_t at, end; /* the bytes that are written next; the first that is not wanted */
	enum hub_range step;
	bool begun, moved;
	int code;
	struct err err;
};

/* With the lock held. */
static void tell(struct fetch *f, bool last)
{
	int64_t now = clock_monotonic_ns() / 1000000;

	if (!f->of->watch->moved || (!last && now - f->told_ms < TELL_MS))
		return;
	f->told_ms = now;
	f->of->watch->moved(f->of->watch->arg, f->done, f->total);
}

/* Bytes [at, at + n) are written: counts them in their parts, and marks those that are whole. */
static void count(struct transfer *t, uint64_t at, size_t n)
{
	struct fetch *f = t->f;
	struct blob *b = t->b;

	pthread_mutex_lock(&f->lock);
	f->fetched += n;
	for (int i = (int)(at / b->part_size); i < b->n && part_begin(b, i) < at + n; i++) {
		uint64_t from = part_begin(b, i), length = part_length(b, i), end;

		end = at + n - from < length ? at + n - from : length;
		if ((at > from && at - from > b->part[i].done) || end <= b->part[i].done)
			continue;
		f->done += end - b->part[i].done;
		b->part[i].done = end;
		t->moved = true;
		if (end == length)
			dprintf(b->marks, "%d\n", i); /* a mark that is lost costs a part */
	}
	tell(f, false);
	pthread_mutex_unlock(&f->lock);
}

static bool begin_body(struct transfer *t, const struct hub_head *head, uint64_t asked)
{
	struct blob *b = t->b;
	bool go = true;

	t->begun = true;
	t->step = hub_range_step(head, (int64_t)asked, b->entry->size);
	if (head->status != 200)
		return true;
	/* The file from its beginning, whatever was asked for. */
	t->step = HUB_APPEND;
	t->at = 0;
	t->end = (uint64_t)b->entry->size;
	pthread_mutex_lock(&t->f->lock);
	if (b->n > 1 && !b->whole_only) {
		b->whole_only = true;
		b->whole_by = t->line;
	}
	go = b->n <= 1 || b->whole_by == t->line;
	pthread_mutex_unlock(&t->f->lock);
	return go;
}

static bool put(void *arg, const struct hub_head *head, const void *p, size_t n)
{
	struct transfer *t = arg;
	const char *from = p;

	if (!t->begun && !begin_body(t, head, t->at))
		return false;
	if (t->step != HUB_APPEND)
		return true;
	if (t->at == t->end)
		return false; /* more than was asked for */
	if (n > t->end - t->at)
		n = (size_t)(t->end - t->at);
	while (n) {
		ssize_t w = pwrite(t->b->fd, from, n, (off_t)t->at);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			t->code = fail_io(&t->err, "cannot be written", t->b->partial.p);
			return false;
		}
		count(t, t->at, (size_t)w);
		t->at += (uint64_t)w;
		from += w;
		n -= (size_t)w;
	}
	return true;
}

/* Sets url to where the blob lies; asks the hub where that is not known. */
static int locate(struct fetch *f, struct blob *b, struct hub_line *line, struct buf *url, struct err *err)
{
	struct hub_file file = { .size = -1 };
	struct buf asked;
	int rc = 0;

	pthread_mutex_lock(&f->lock);
	while (b->locating && !f->code)
		pthread_cond_wait(&f->changed, &f->lock);
	buf_reset(url);
	buf_put(url, b->url.p, b->url.n);
	b->locating |= !url->n;
	pthread_mutex_unlock(&f->lock);
	if (url->n)
		return 0;
	buf_init(&asked);
	buf_init(&file.url);
	buf_puts(&asked, f->of->place->endpoint);
	hub_put_resolve(&asked, f->of->name, f->of->commit, b->entry->path);
	rc = hub_locate(line, asked.p, b->entry->path, &file, err);
	if (!rc && (file.size != b->entry->size || strcmp(file.digest, b->entry->digest) != 0))
		rc = err_set(err, E_FORMAT,
		             "%s: the hub names %" PRId64 " bytes with digest %.16s... here and %" PRId64
		             " with %.16s... in its list of files",
		             b->entry->path, file.size, file.digest, b->entry->size, b->entry->digest);
	pthread_mutex_lock(&f->lock);
	b->locating = false;
	if (!rc) {
		buf_reset(&b->url);
		buf_put(&b->url, file.url.p, file.url.n);
		buf_put(url, file.url.p, file.url.n);
	}
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	buf_fini(&asked);
	buf_fini(&file.url);
	return rc;
}

/* What an answer that brought nothing of use means: 0 to try again.  url is forgotten where it has expired. */
static int judge(struct fetch *f, struct blob *b, const struct transfer *t, const struct hub_head *head, int rc,
                 const struct buf *url, int failures, struct err *err)
{
	struct err why = *err;

	if (t->code) {
		*err = t->err;
		return t->code;
	}
	if (rc == E_GONE)
		return hub_http_stopped(f->of->http) ? rc : 0;
	if (rc && rc != E_IO)
		return rc;
	pthread_mutex_lock(&f->lock);
	if ((rc || t->step == HUB_NEW_LOCATION || head->status >= 400) && !strcmp(b->url.p, url->p))
		buf_reset(&b->url);
	pthread_mutex_unlock(&f->lock);
	if (failures <= FAILURES_MAX)
		return failures ? hub_http_wait(f->of->http, head, failures - 1, b->entry->path, err) : 0;
	if (rc)
		return err_set(err, E_IO, "%s: %d tries without a byte; the last: %s", b->entry->path, failures,
		               why.msg);
	return err_set(err, E_IO, "%s: the store answers %d, %d times", b->entry->path, head->status, failures);
}

/* Fetches part i, or the whole file where i is -1. */
static int fetch_part(struct fetch *f, struct blob *b, int i, struct hub_line *line, struct err *err)
{
	int first = i < 0 ? 0 : i, failures = 0, rc = 0;
	struct hub_head head;
	struct buf url;

	hub_head_init(&head);
	buf_init(&url);
	while (!rc) {
		struct transfer t = { .f = f, .b = b, .line = line };
		const struct hub_sink sink = { .put = put, .arg = &t };
		bool whole;

		pthread_mutex_lock(&f->lock);
		t.at = i < 0 ? 0 : part_begin(b, i) + b->part[i].done;
		t.end = i < 0 ? (uint64_t)b->entry->size : part_begin(b, i) + part_length(b, i);
		whole = b->n == 0 || (i >= 0 && part_whole(b, i));
		if (i < 0)
			for (whole = true; first < b->n && whole; first++)
				whole = part_whole(b, first);
		first = i < 0 ? 0 : i;
		whole |= i >= 0 && b->whole_only && b->whole_by != line;
		pthread_mutex_unlock(&f->lock);
		if (whole)
			break;
		rc = locate(f, b, line, &url, err);
		if (rc)
			break;
		rc = hub_ask(line, "GET", url.p, i < 0 ? -1 : (int64_t)t.at, i < 0 ? -1 : (int64_t)t.end - 1, &head,
		             &sink, err);
		failures = t.moved ? 0 : failures + 1;
		if (rc || !t.moved)
			rc = judge(f, b, &t, &head, rc, &url, failures, err);
	}
	hub_head_fini(&head);
	buf_fini(&url);
	return rc;
}

/* ---- threads ---- */

enum { NOTHING = -2 };

/* A part of an open blob that no thread has; NOTHING: there is none.  With the lock held. */
static int free_part(struct blob *b, const struct hub_line *line)
{
	if (b->state != BLOB_OPEN)
		return NOTHING;
	if (b->whole_only) {
		if (b->whole_by)
			return NOTHING;
		for (int i = 0; i < b->n; i++)
			if (!part_whole(b, i)) {
				b->whole_by = line;
				return -1;
			}
		return NOTHING;
	}
	for (int i = 0; i < b->n; i++)
		if (!b->part[i].taken && !part_whole(b, i)) {
			b->part[i].taken = true;
			return i;
		}
	return NOTHING;
}

static int open_next(struct fetch *f, struct blob *b, struct err *err)
{
	uint64_t before = 0;
	bool there;
	int rc;

	b->state = BLOB_OPENS;
	pthread_mutex_unlock(&f->lock);
	rc = open_blob(f, b, &there, err);
	for (int i = 0; i < b->n; i++)
		before += b->part[i].done;
	pthread_mutex_lock(&f->lock);
	if (rc)
		return rc;
	f->done += there ? (uint64_t)b->entry->size : before;
	b->state = there ? BLOB_READY : BLOB_OPEN;
	if (there)
		close_blob(b);
	pthread_cond_broadcast(&f->changed);
	return there ? 0 : advance(f, b, err);
}

/* One piece of work.  With the lock held; false: there will be none. */
static bool work(struct fetch *f, struct hub_line *line, struct err *err, int *rc)
{
	bool all = true;

	for (int k = 0; k < f->of->n; k++) {
		struct blob *b = &f->blob[k];
		int i = free_part(b, line);

		if (i == NOTHING)
			continue;
		b->users++;
		pthread_mutex_unlock(&f->lock);
		*rc = fetch_part(f, b, i, line, err);
		pthread_mutex_lock(&f->lock);
		b->users--;
		if (i >= 0)
			b->part[i].taken = false;
		if (b->whole_by == line)
			b->whole_by = NULL;
		*rc = *rc ? *rc : advance(f, b, err);
		return true;
	}
	for (int k = 0; k < f->of->n; k++)
		if (f->blob[k].state == BLOB_WAITS) {
			*rc = open_next(f, &f->blob[k], err);
			return true;
		}
	for (int k = 0; k < f->of->n; k++)
		all &= f->blob[k].state == BLOB_READY;
	if (all)
		return false;
	pthread_cond_wait(&f->changed, &f->lock);
	return true;
}

static void *run(void *arg)
{
	struct fetch *f = arg;
	struct hub_line *line = hub_line_open(f->of->http);
	struct err err = { 0 };
	int rc = 0;

	pthread_mutex_lock(&f->lock);
	while (!f->code && work(f, line, &err, &rc))
		if (rc && !f->code) {
			f->code = rc;
			f->err = err;
			hub_http_stop(f->of->http);
		}
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	hub_line_close(line);
	return NULL;
}

int hub_fetch(const struct hub_fetch *of, uint64_t *fetched, struct err *err)
{
	struct fetch f = { .of = of, .blob = xcalloc((size_t)of->n + 1, sizeof *f.blob) };
	pthread_t thread[THREADS_MAX];
	int n = 0;

	pthread_mutex_init(&f.lock, NULL);
	pthread_cond_init(&f.changed, NULL);
	for (int k = 0; k < of->n; k++) {
		struct blob *b = &f.blob[k];

		*b = (struct blob){ .entry = of->entry[k], .fd = -1, .lock = -1, .marks = -1 };
		name_files(b, of->folder, b->entry);
		make_parts(b, of->options);
		buf_init(&b->url);
		f.total += (uint64_t)b->entry->size;
	}
	while (n < of->options->connections && n < THREADS_MAX && !pthread_create(&thread[n], NULL, run, &f))
		n++;
	if (!n)
		f.code = err_set(&f.err, E_IO, "no thread for a connection: %s", strerror(errno));
	while (n)
		pthread_join(thread[--n], NULL);
	tell(&f, true);
	for (int k = 0; k < of->n; k++) {
		close_blob(&f.blob[k]);
		forget_files(&f.blob[k]);
		buf_fini(&f.blob[k].url);
		free(f.blob[k].part);
	}
	free(f.blob);
	pthread_mutex_destroy(&f.lock);
	pthread_cond_destroy(&f.changed);
	*fetched += f.fetched;
	if (f.code && err)
		*err = f.err;
	return f.code;
}
