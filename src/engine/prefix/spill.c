/* spill.c - see spill.h: the queue, the two threads and the loads. */
#include "engine/prefix/spill.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/prefix/prefix_pack.h"
#include "engine/prefix/spill_drop.h"
#include "engine/prefix/spill_index.h"

/* After the disk refused, 1, 2, 4 .. this many pieces are not even tried. */
enum { REST_MAX = 64 };

struct job {
	struct job *next;
	struct spill_head head;
	uint64_t tail;
	int32_t *tok;                 /* [head.n_tok] */
	const void *payload;          /* NULL: not to be written but dropped, the keys below; or all */
	void (*release)(void *owner); /* of the payload's memory */
	void *owner;
	struct digest *key;
};

struct got {
	struct got *next;
	struct spill_got got;
};

struct spill_load {
	struct spill_load *next;
	struct spill *s;
	struct spill_want w;
	int32_t *tok;
	struct digest *key;
	bool snap;   /* the snapshot is still to be read, before the pages */
	int at, end; /* the next page to read; past the last */
	struct got *ready, **ready_end;
	size_t ready_bytes;
	bool busy; /* the thread reads for it, without the lock */
	bool told; /* the taker was told to wait */
	bool ended, failed, closed;
};

struct spill {
	struct spill_opts o;
	const struct spill_io *io;
	int root, own, lock_file; /* descriptors: the directory, this model's folder in it, the lock */
	bool read_only;

	pthread_mutex_t lock;
	pthread_cond_t work, idle; /* for the writer; for flush */
	pthread_cond_t wanted;     /* for the reader */
	pthread_t writer, reader;
	/* Under the lock. */
	struct spill_index index;
	struct job *jobs, **jobs_end;
	struct spill_load *loads;
	int dropping; /* prefixes that are still to be dropped */
	bool writing, closing;
	bool unsynced;       /* names were given that a power cut might take back */
	int rest, rest_next; /* pieces still to be left alone; after the next failure */
	int64_t clock;       /* the last time given to a use: they rise */
	struct disk_stats stats;
};

/* ---- keys ---- */

static void key_root(const struct digest *model, const void *salt, size_t n, struct digest *out)
{
	static const char what[] = "weft prefix";
	struct sha256 h;

	sha256_init(&h);
	sha256_field(&h, what, sizeof(what));
	sha256_put(&h, model->b, sizeof(model->b));
	sha256_field(&h, salt, n);
	sha256_end(&h, out);
}

void spill_keys(const struct spill *s, const void *salt, size_t n_salt, const int32_t *tok, int n, struct digest *key)
{
	spill_keys_more(s, salt, n_salt, tok, n, NULL, key);
}

void spill_keys_more(const struct spill *s, const void *salt, size_t n_salt, const int32_t *tok, int n,
                     const struct digest *more, struct digest *key)
{
	static const struct digest none;
	int rows = s->o.page_rows;

	key_root(&s->o.model, salt, n_salt, key);
	for (int i = 0; i < n / rows; i++) {
		struct sha256 h;

		sha256_init(&h);
		sha256_put(&h, key[i].b, sizeof(key[i].b));
		sha256_put(&h, tok + (size_t)i * (size_t)rows, (size_t)rows * sizeof(*tok));
		if (more && memcmp(&more[i], &none, sizeof(none)))
			sha256_put(&h, more[i].b, sizeof(more[i].b));
		sha256_end(&h, &key[i + 1]);
	}
}

static uint64_t tail_of(const struct spill *s, const int32_t *tok, int pos)
{
	int n = pos % s->o.page_rows;

	return check64(tok + pos - n, (size_t)n * sizeof(*tok));
}

static void head_fill(const struct spill *s, const struct spill_piece *p, struct spill_head *h)
{
	int page = p->pos / s->o.page_rows;

	assert(p->pos > 0 && (p->kind == SPILL_SNAP || p->pos % s->o.page_rows == 0));
	*h = (struct spill_head){ .kind = p->kind, .pos = (uint32_t)p->pos, .model = s->o.model, .key = p->key[page] };
	if (p->kind == SPILL_PAGE) {
		h->n_tok = (uint32_t)s->o.page_rows;
		h->prev = p->key[page - 1];
	} else {
		h->n_tok = (uint32_t)p->pos;
	}
}

static struct spill_entry *entry_of(const struct spill *s, const struct spill_piece *p)
{
	const struct digest *key = &p->key[p->pos / s->o.page_rows];

	if (p->kind == SPILL_PAGE)
		return spill_index_find(&s->index, SPILL_PAGE, key, 0, 0);
	return spill_index_find(&s->index, SPILL_SNAP, key, (uint32_t)p->pos, tail_of(s, p->tok, p->pos));
}

/* ---- order of use ---- */

/* Times come from the wall clock, since they outlive the process, and rise. */
static int64_t tick(struct spill *s)
{
	struct timespec ts;
	int64_t now;

	clock_gettime(CLOCK_REALTIME, &ts);
	now = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
	return s->clock = now > s->clock ? now : s->clock + 1;
}

/* A prefix is given up from its end: the snapshot, then its pages, the deepest
 * first. */
static void use(struct spill *s, const struct digest *key, const int32_t *tok, int pos)
{
	struct spill_piece p = { SPILL_SNAP, pos, tok, key };
	struct spill_entry *e = entry_of(s, &p);

	if (e)
		spill_index_use(&s->index, e, tick(s));
	for (int i = pos / s->o.page_rows; i > 0; i--) {
		e = spill_index_find(&s->index, SPILL_PAGE, &key[i], 0, 0);
		if (e)
			spill_index_use(&s->index, e, tick(s));
	}
	if (!s->read_only)
		pthread_cond_signal(&s->work);
}

void spill_use(struct spill *s, const struct digest *key, const int32_t *tok, int pos)
{
	pthread_mutex_lock(&s->lock);
	use(s, key, tok, pos);
	pthread_mutex_unlock(&s->lock);
}

/* ---- writing ---- */

static void job_free(struct job *j)
{
	free(j->tok);
	if (j->release)
		j->release(j->owner);
	free(j->key);
	free(j);
}

bool spill_wants(struct spill *s, const struct spill_piece *p)
{
	bool wants;

	if (s->read_only)
		return false;
	pthread_mutex_lock(&s->lock);
	wants = !entry_of(s, p);
	pthread_mutex_unlock(&s->lock);
	return wants;
}

static uint64_t size_of(const struct spill_head *h)
{
	return SPILL_HEAD + (uint64_t)h->n_tok * sizeof(int32_t) + h->payload_bytes;
}

/* Is there no room for the job?  Counts it. */
static bool refuse(struct spill *s, const struct job *j)
{
	if (j->head.payload_bytes > s->o.queue_bytes - s->stats.queue_bytes || size_of(&j->head) > s->o.bytes_max) {
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
	bool taken = false;

	head_fill(s, p, &j->head);
	j->head.payload_bytes = n;
	j->payload = payload;
	j->release = release;
	j->owner = owner;
	j->tok = xmalloc(size_mul(j->head.n_tok, sizeof(*j->tok)));
	memcpy(j->tok, p->tok + (uint32_t)p->pos - j->head.n_tok, j->head.n_tok * sizeof(*j->tok));
	j->tail = p->kind == SPILL_SNAP ? tail_of(s, p->tok, p->pos) : 0;
	pthread_mutex_lock(&s->lock);
	if (!s->read_only && !entry_of(s, p) && !refuse(s, j)) {
		spill_index_add(&s->index, p->kind, &j->head.key, j->head.pos, j->tail, tick(s));
		s->stats.queue_bytes += n;
		*s->jobs_end = j;
		s->jobs_end = &j->next;
		taken = true;
		pthread_cond_signal(&s->work);
	}
	pthread_mutex_unlock(&s->lock);
	if (taken)
		return 0;
	job_free(j);
	return E_FULL;
}

/* Takes files out until `need` bytes more fit.  Called and returns locked. */
static void make_room(struct spill *s, uint64_t need)
{
	struct spill_entry *e;

	while (s->index.bytes + need > s->o.bytes_max && (e = spill_index_oldest(&s->index))) {
		char path[SPILL_PATH];

		spill_index_path(&s->index, e, path);
		spill_index_remove(&s->index, e);
		s->stats.evicted++;
		pthread_mutex_unlock(&s->lock);
		s->io->unlink(s->io, s->root, path);
		pthread_mutex_lock(&s->lock);
	}
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

static void job_over(struct spill *s, struct job *j, bool written)
{
	struct spill_entry *e = spill_index_find(&s->index, j->head.kind, &j->head.key, j->head.pos, j->tail);

	assert(e && e->queued);
	if (written) {
		spill_index_written(&s->index, e, size_of(&j->head));
		s->unsynced = true;
		s->stats.written++;
		s->stats.written_bytes += j->head.payload_bytes;
		s->rest_next = 1;
	} else {
		spill_index_remove(&s->index, e);
	}
	s->stats.queue_bytes -= j->head.payload_bytes;
	s->writing = false;
	job_free(j);
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
	if (s->rest > 0) {
		s->rest--;
		s->stats.failed++;
		job_over(s, j, false);
		return;
	}
	make_room(s, size_of(&j->head));
	e = spill_index_find(&s->index, j->head.kind, &j->head.key, j->head.pos, j->tail);
	assert(e && e->queued);
	used = e->used;
	pthread_mutex_unlock(&s->lock);
	spill_name_put(name, j->head.kind, &j->head.key, j->head.pos, j->tail);
	rc = spill_file_write(s->io, s->own, name, &j->head, j->tok, j->payload, used);
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
		job_free(j);
}

/* Called and returns locked. */
static void drop_one(struct spill *s)
{
	struct job *j = s->jobs;
	struct spill_name *v = xmalloc(size_mul(s->index.n + 1, sizeof(*v)));
	size_t n = 0;

	job_pop(s);
	spill_index_unpack(&s->index);
	for (struct spill_entry *e = NULL; (e = spill_index_each(&s->index, e));)
		if (!e->folder && !e->queued)
			v[n++] = (struct spill_name){
				.kind = e->kind, .key = e->key, .pos = e->pos, .tail = e->tail, .out = !j->key
			};
	pthread_mutex_unlock(&s->lock);
	if (j->key)
		spill_mark(s->io, s->own, s->o.page_rows, j->key, j->tok, (int)j->head.n_tok, v, n);
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
	s->dropping--;
	s->writing = false;
	free(v);
	job_free(j);
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
	s->writing = false;
	return true;
}

static void *write_all_jobs(void *arg)
{
	struct spill *s = arg;

	pthread_mutex_lock(&s->lock);
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
	while (!s->read_only && (s->jobs || s->writing || s->unsynced))
		pthread_cond_wait(&s->idle, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* ---- finding ---- */

static bool on_disk(const struct spill_entry *e)
{
	return e && !e->queued;
}

static int find_pages(struct spill *s, const struct digest *key, int n_page)
{
	int i = 0;

	while (i < n_page && on_disk(spill_index_find(&s->index, SPILL_PAGE, &key[i + 1], 0, 0)))
		i++;
	return i;
}

int spill_find_pages(struct spill *s, const struct digest *key, int n_page)
{
	int n;

	pthread_mutex_lock(&s->lock);
	n = s->dropping ? 0 : find_pages(s, key, n_page);
	pthread_mutex_unlock(&s->lock);
	return n;
}

bool spill_find_run(struct spill *s, const struct digest *key, int from, int to)
{
	bool all;

	pthread_mutex_lock(&s->lock);
	all = !s->dropping;
	for (int i = from; i < to && all; i++)
		all = on_disk(spill_index_find(&s->index, SPILL_PAGE, &key[i + 1], 0, 0));
	pthread_mutex_unlock(&s->lock);
	return all;
}

int spill_find(struct spill *s, const struct digest *key, bool pages, const int32_t *tok, int n)
{
	int rows = s->o.page_rows, best = 0, most = n / rows;

	pthread_mutex_lock(&s->lock);
	if (pages)
		most = find_pages(s, key, most);
	for (int i = s->dropping ? -1 : most; i >= 0 && !best; i--) {
		struct spill_entry *e = NULL;

		while ((e = spill_index_next(&s->index, &key[i], e)))
			if (e->kind == SPILL_SNAP && on_disk(e) && e->pos <= (uint32_t)n && e->pos > (uint32_t)best &&
			    e->pos / (uint32_t)rows == (uint32_t)i && e->tail == tail_of(s, tok, (int)e->pos))
				best = (int)e->pos;
	}
	pthread_mutex_unlock(&s->lock);
	return best;
}

/* ---- loads ---- */

struct spill_load *spill_load_open(struct spill *s, const struct spill_want *w)
{
	struct spill_load *l = xcalloc(1, sizeof(*l)), **end;
	int n_page = w->pos / s->o.page_rows;

	assert(w->pos > 0 && w->page >= 0 && w->page <= n_page && (w->page == n_page || w->page_bytes));
	l->s = s;
	l->w = *w;
	l->tok = xmalloc(size_mul((size_t)w->pos, sizeof(*l->tok)));
	memcpy(l->tok, w->tok, (size_t)w->pos * sizeof(*l->tok));
	l->key = xmalloc(size_mul((size_t)n_page + 1, sizeof(*l->key)));
	memcpy(l->key, w->key, ((size_t)n_page + 1) * sizeof(*l->key));
	l->at = w->page;
	l->ready_end = &l->ready;
	l->end = n_page;
	l->snap = w->snap_max > 0;
	l->ended = !l->snap && l->at == l->end;
	pthread_mutex_lock(&s->lock);
	use(s, l->key, l->tok, w->pos);
	for (end = &s->loads; *end; end = &(*end)->next)
		;
	*end = l;
	pthread_cond_signal(&s->wanted);
	pthread_mutex_unlock(&s->lock);
	return l;
}

static void load_free(struct spill_load *l)
{
	struct got *g;

	while ((g = l->ready)) {
		l->ready = g->next;
		free(g->got.payload);
		free(g);
	}
	free(l->tok);
	free(l->key);
	free(l);
}

static void load_unlink(struct spill_load *l)
{
	struct spill_load **at = &l->s->loads;

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
}

void spill_load_close(struct spill_load *l)
{
	struct spill *s = l->s;
	bool busy;

	pthread_mutex_lock(&s->lock);
	load_unlink(l);
	busy = l->busy;
	l->closed = true;
	pthread_mutex_unlock(&s->lock);
	if (!busy)
		load_free(l); /* otherwise the reader does, when it comes back */
}

enum spill_next spill_load_next(struct spill_load *l, struct spill_got *out)
{
	struct spill *s = l->s;
	enum spill_next rc = SPILL_GOT;
	struct got *g;

	pthread_mutex_lock(&s->lock);
	g = l->ready;
	if (g) {
		l->ready = g->next;
		if (!l->ready)
			l->ready_end = &l->ready;
		l->ready_bytes -= g->got.n;
		pthread_cond_signal(&s->wanted);
	} else if (l->ended) {
		rc = l->failed ? SPILL_FAIL : SPILL_END;
	} else {
		rc = SPILL_WAIT;
		l->told = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (g) {
		*out = g->got;
		free(g);
	}
	return rc;
}

/* The piece of l that is read next, and what its head should say. */
static void load_piece(const struct spill_load *l, struct spill_piece *p, struct spill_head *want)
{
	*p = (struct spill_piece){ .kind = l->snap ? SPILL_SNAP : SPILL_PAGE,
		                   .pos = l->snap ? l->w.pos : (l->at + 1) * l->s->o.page_rows,
		                   .tok = l->tok,
		                   .key = l->key };
	head_fill(l->s, p, want);
	want->payload_bytes = l->snap ? 0 : l->w.page_bytes;
}

/* Forgets a piece that could not be read, and removes its file.  Called with the lock held, since otherwise
 * a new file could have the name by the time of the removal. */
static void read_failed(struct spill *s, const struct spill_piece *p, const char *name, const struct err *err)
{
	struct spill_entry *e = entry_of(s, p);
	bool packed;

	if (!on_disk(e))
		return; /* evicted since, or being written anew */
	packed = e->pack != 0;
	spill_index_remove(&s->index, e);
	if (err->code == E_MISSING) {
		s->stats.vanished++;
		return;
	}
	s->stats.damaged++;
	if (!s->read_only && !packed)
		s->io->unlink(s->io, s->own, name);
	if (!(s->stats.damaged & (s->stats.damaged - 1)))
		log_warn("prompt cache %s: dropped %s", s->o.dir ? s->o.dir : "(packs)", err->msg);
}

void spill_bad(struct spill *s, const struct spill_piece *p)
{
	const struct err err = { .code = E_FORMAT, .msg = "a piece that does not fit" };
	char name[SPILL_NAME];
	struct spill_head h;

	head_fill(s, p, &h);
	spill_name_put(name, p->kind, &h.key, h.pos, p->kind == SPILL_SNAP ? tail_of(s, p->tok, p->pos) : 0);
	pthread_mutex_lock(&s->lock);
	read_failed(s, p, name, &err);
	pthread_mutex_unlock(&s->lock);
}

/* Whether a pack has the piece; *out becomes its place.  The caller holds the lock. */
static bool is_packed(const struct spill *s, const struct spill_piece *p, struct spill_part *out)
{
	const struct spill_entry *e = entry_of(s, p);

	if (!e || !e->pack)
		return false;
	*out = pack_part(s->o.pack[e->pack - 1], e->pack_at, e->bytes);
	return true;
}

/* Reads one piece for l.  Called and returns locked; l may be gone then. */
static void read_one(struct spill *s, struct spill_load *l)
{
	struct spill_piece p;
	struct spill_head want;
	struct got *g = xcalloc(1, sizeof(*g));
	struct err err = { 0 };
	char name[SPILL_NAME];
	struct spill_part part;
	const int32_t *tok;
	bool packed;
	int64_t from;
	int rc;

	l->busy = true;
	load_piece(l, &p, &want);
	packed = is_packed(s, &p, &part);
	pthread_mutex_unlock(&s->lock);
	tok = p.tok + want.pos - want.n_tok;
	spill_name_put(name, p.kind, &want.key, want.pos, p.kind == SPILL_SNAP ? tail_of(s, p.tok, p.pos) : 0);
	from = clock_monotonic_ns();
	rc = packed ? spill_part_read(s->io, &part, &want, l->w.snap_max, tok, &g->got.payload, &err) :
	              spill_file_read(s->io, s->own, name, &want, l->w.snap_max, tok, &g->got.payload, &err);
	pthread_mutex_lock(&s->lock);
	s->stats.read_ns += (uint64_t)(clock_monotonic_ns() - from);
	l->busy = false;
	if (rc) {
		read_failed(s, &p, name, &err);
		free(g);
		l->ended = l->failed = true;
	} else {
		g->got.n = want.payload_bytes;
		g->got.kind = p.kind;
		g->got.page = l->at;
		s->stats.read++;
		s->stats.read_bytes += g->got.n;
		l->at += !l->snap;
		l->snap = false;
		l->ready_bytes += g->got.n;
		*l->ready_end = g;
		l->ready_end = &g->next;
		l->ended = l->at == l->end;
	}
	if (l->closed) {
		load_free(l);
	} else if (l->told) {
		l->told = false;
		if (l->w.notify)
			l->w.notify(l->w.notify_arg);
	}
}

static void *read_all_loads(void *arg)
{
	struct spill *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->closing) {
		struct spill_load *l = s->loads;

		while (l && (l->ended || l->ready_bytes >= s->o.window_bytes))
			l = l->next;
		if (l)
			read_one(s, l);
		else
			pthread_cond_wait(&s->wanted, &s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- open and close ---- */

/* The directory, this model's folder in it and the lock. */
static int open_folders(struct spill *s, const char *folder, struct err *err)
{
	const char *dir = s->o.dir;
	int rc;

	if (mkdir(dir, 0700) && errno != EEXIST)
		return err_set(err, E_IO, "%s: cannot make it: %s", dir, strerror(errno));
	s->root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->root < 0)
		return err_set(err, E_IO, "%s: %s", dir, strerror(errno));
	rc = spill_lock(s->root, dir, &s->lock_file, err);
	if (rc && rc != E_FULL)
		return rc;
	if (rc) {
		s->read_only = true;
		log_warn("prompt cache %s: another server has it; this one reads it and writes nothing", dir);
	}
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
	const int fd[] = { s->own, s->root, s->lock_file };

	spill_index_fini(&s->index);
	for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++)
		if (fd[i] >= 0)
			close(fd[i]);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	pthread_cond_destroy(&s->wanted);
	free((char *)s->o.dir);
	free(s);
}

static int start_threads(struct spill *s, struct err *err)
{
	if (pthread_create(&s->reader, NULL, read_all_loads, s))
		return err_set(err, E_IO, "prompt cache: cannot start a thread");
	if (s->read_only || !pthread_create(&s->writer, NULL, write_all_jobs, s))
		return 0;
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	pthread_cond_signal(&s->wanted);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->reader, NULL);
	return err_set(err, E_IO, "prompt cache: cannot start a thread");
}

int spill_open(struct spill **out, const struct spill_opts *o, struct err *err)
{
	struct spill *s;
	char folder[SPILL_FOLDER];
	int rc = 0;

	*out = NULL;
	if (o->page_rows < 1 || (o->dir ? !o->dir[0] : !o->n_pack))
		return err_set(err, E_ARG, "prompt cache: folder \"%s\", pages of %d tokens", o->dir ? o->dir : "",
		               o->page_rows);
	s = xcalloc(1, sizeof(*s));
	s->o = *o;
	s->o.dir = o->dir ? xstrdup(o->dir) : NULL;
	s->read_only = !o->dir;
	s->io = o->io ? o->io : &spill_io_real;
	s->root = s->own = s->lock_file = -1;
	s->jobs_end = &s->jobs;
	s->rest_next = 1;
	s->writing = true; /* until the writer has looked at the budget */
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	pthread_cond_init(&s->wanted, NULL);
	spill_folder_name(&o->model, folder);
	spill_index_init(&s->index, folder);
	if (o->dir)
		rc = open_folders(s, folder, err);
	if (!rc && o->dir)
		rc = spill_index_scan(&s->index, s->root, !s->read_only, s->io, err);
	if (!rc && o->dir)
		log_info("prompt cache %s: %lld pages and %lld snapshots of this model; %llu of %llu MB are used",
		         o->dir, (long long)s->index.pages, (long long)s->index.snaps,
		         (unsigned long long)s->index.bytes >> 20, (unsigned long long)o->bytes_max >> 20);
	if (!rc)
		rc = add_packs(s, err);
	if (!rc)
		rc = start_threads(s, err);
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
	pthread_mutex_lock(&s->lock);
	assert(!s->loads);
	s->closing = true;
	pthread_cond_signal(&s->wanted);
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	if (!s->read_only)
		pthread_join(s->writer, NULL);
	pthread_join(s->reader, NULL);
	assert(!s->jobs);
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
	out->read_only = s->read_only && s->o.dir;
	out->pages = s->index.pages;
	out->snaps = s->index.snaps;
	out->bytes = s->index.bytes;
	out->bytes_max = s->o.bytes_max;
	pthread_mutex_unlock(&s->lock);
}
