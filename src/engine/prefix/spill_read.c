/* spill_read.c - see spill.h: finding, the loads and the thread that reads. */
#include "engine/prefix/spill_core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/prefix/prefix_pack.h"

/* ---- finding ---- */

bool spill_on_disk(const struct spill *s, const struct spill_entry *e)
{
	return e && !e->queued && !e->unread && (!e->no_file || spill_redis_reads(s));
}

bool spill_is_shared(struct spill *s, const struct spill_piece *p)
{
	const struct spill_entry *e;
	bool is;

	pthread_mutex_lock(&s->lock);
	e = spill_entry_of(s, p);
	is = e && e->no_file;
	pthread_mutex_unlock(&s->lock);
	return is;
}

static int find_pages(struct spill *s, const struct digest *key, int n_page)
{
	int i = 0;

	while (i < n_page && spill_on_disk(s, spill_index_find(&s->index, SPILL_PAGE, &key[i + 1], 0, 0)))
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
		all = spill_on_disk(s, spill_index_find(&s->index, SPILL_PAGE, &key[i + 1], 0, 0));
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
			if (e->kind == SPILL_SNAP && spill_on_disk(s, e) && e->pos <= (uint32_t)n &&
			    e->pos > (uint32_t)best && e->pos / (uint32_t)rows == (uint32_t)i &&
			    e->tail == spill_tail(s, tok, (int)e->pos))
				best = (int)e->pos;
	}
	pthread_mutex_unlock(&s->lock);
	return best;
}

/* ---- loads ---- */

/* Called locked. */
static void wake_readers(struct spill *s)
{
	pthread_cond_signal(&s->wanted);
	if (s->redis.on)
		pthread_cond_signal(&s->redis.wanted);
}

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
	spill_used(s, l->key, l->tok, w->pos);
	for (end = &s->loads; *end; end = &(*end)->next)
		;
	*end = l;
	wake_readers(s);
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
		wake_readers(s);
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
	spill_head_fill(l->s, p, want);
	want->payload_bytes = l->snap ? 0 : l->w.page_bytes;
}

/* Forgets a piece that could not be read.  The file of one that the disk does not give stays: it may be the way to the disk
 * that fails, and other programs read it.  Called locked. */
static void read_failed(struct spill *s, const struct spill_piece *p, const struct err *err)
{
	struct spill_entry *e = spill_entry_of(s, p);
	int64_t *count;
	bool shared;

	if (!spill_on_disk(s, e) || e->leaving || err->code == E_GONE)
		return; /* evicted since, or now, or written anew */
	shared = e->no_file;
	if (err->code == E_IO && !e->pack && !shared)
		e->unread = true;
	else
		spill_index_remove(&s->index, e);
	if (err->code == E_MISSING) {
		s->stats.vanished++;
		return;
	}
	count = shared ? &s->stats.redis.damaged : &s->stats.damaged;
	++*count;
	if (!(*count & (*count - 1)))
		log_warn("prompt cache %s: dropped %s",
		         shared   ? "in Redis" :
		         s->o.dir ? s->o.dir :
		                    "(packs)",
		         err->msg);
}

void spill_bad(struct spill *s, const struct spill_piece *p)
{
	const struct err err = { .code = E_FORMAT, .msg = "a piece that does not fit" };
	char name[SPILL_NAME];
	struct spill_entry *e;
	struct spill_head h;

	spill_head_fill(s, p, &h);
	spill_name_put(name, p->kind, &h.key, h.pos, p->kind == SPILL_SNAP ? spill_tail(s, p->tok, p->pos) : 0);
	pthread_mutex_lock(&s->lock);
	e = spill_entry_of(s, p);
	if (spill_on_disk(s, e) && !e->pack && !e->no_file)
		s->io->unlink(s->io, s->own, name);
	read_failed(s, p, &err);
	pthread_mutex_unlock(&s->lock);
}

/* Whether a pack has the piece; *out becomes its place.  The caller holds the lock. */
static bool is_packed(const struct spill *s, const struct spill_piece *p, struct spill_part *out)
{
	const struct spill_entry *e = spill_entry_of(s, p);

	if (!e || !e->pack)
		return false;
	*out = pack_part(s->o.pack[e->pack - 1], e->pack_at, e->bytes);
	return true;
}

/* Has Redis alone the piece?  The caller holds the lock. */
static bool is_lent(const struct spill *s, const struct spill_piece *p)
{
	const struct spill_entry *e = spill_entry_of(s, p);

	return e && e->no_file;
}

/* Counts a piece that was read, and puts it where the taker finds it. */
static void load_put(struct spill *s, struct spill_load *l, struct got *g, const struct spill_head *h, bool shared)
{
	g->got.n = h->payload_bytes;
	g->got.kind = h->kind;
	g->got.page = l->at;
	s->stats.read += !shared;
	s->stats.read_bytes += shared ? 0 : g->got.n;
	s->stats.redis.read += shared;
	s->stats.redis.read_bytes += shared ? g->got.n : 0;
	l->at += !l->snap;
	l->snap = false;
	l->ready_bytes += g->got.n;
	*l->ready_end = g;
	l->ready_end = &g->next;
	l->ended = l->at == l->end;
}

void spill_read_one(struct spill *s, struct spill_load *l)
{
	struct spill_piece p;
	struct spill_head want;
	struct got *g = xcalloc(1, sizeof(*g));
	struct err err = { 0 };
	char name[SPILL_NAME], tmp[SPILL_TMP_NAME];
	struct spill_part part;
	const int32_t *tok;
	bool packed, shared, closed;
	int64_t from;
	int rc;

	l->busy = true;
	load_piece(l, &p, &want);
	packed = is_packed(s, &p, &part);
	shared = is_lent(s, &p);
	closed = shared && !spill_redis_reads(s);
	pthread_mutex_unlock(&s->lock);
	tok = p.tok + want.pos - want.n_tok;
	spill_name_put(name, p.kind, &want.key, want.pos, p.kind == SPILL_SNAP ? spill_tail(s, p.tok, p.pos) : 0);
	from = clock_monotonic_ns();
	rc = closed ? err_set(&err, E_GONE, "Redis does not answer") :
	     packed ? spill_part_read(s->io, &part, &want, l->w.snap_max, tok, &g->got.payload, &err) :
	     shared ? spill_redis_read(s, name, &want, l->w.snap_max, tok, &g->got.payload, &err) :
	              spill_file_read(s->io, s->own, name, &want, l->w.snap_max, tok, &g->got.payload, &err);
	if (rc == E_FORMAT && !packed && !shared) {
		spill_tmp_name(&s->owner, name, tmp);
		load_piece(l, &p, &want);
		err.code = spill_file_discard(s->io, s->own, tmp, name, &want, l->w.snap_max, tok);
	}
	pthread_mutex_lock(&s->lock);
	from = clock_monotonic_ns() - from;
	if (!shared)
		s->stats.read_ns += (uint64_t)from;
	else if (!rc)
		spill_redis_took(s, want.payload_bytes, from);
	l->busy = false;
	if (rc) {
		read_failed(s, &p, &err);
		free(g);
		l->ended = l->failed = true;
	} else {
		load_put(s, l, g, &want, shared);
	}
	if (l->closed) {
		load_free(l);
	} else if (l->told) {
		l->told = false;
		if (l->w.notify)
			l->w.notify(l->w.notify_arg);
	}
}

struct spill_load *spill_next_load(struct spill *s, bool redis)
{
	struct spill_load *l = s->loads;
	struct spill_head h;
	struct spill_piece p;

	for (; l; l = l->next) {
		if (l->busy || l->ended || l->ready_bytes >= s->o.window_bytes)
			continue;
		load_piece(l, &p, &h);
		if (is_lent(s, &p) == redis)
			break;
	}
	return l;
}

void *spill_reader(void *arg)
{
	struct spill *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->closing) {
		struct spill_load *l = spill_next_load(s, false);

		if (l)
			spill_read_one(s, l);
		else
			pthread_cond_wait(&s->wanted, &s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}
