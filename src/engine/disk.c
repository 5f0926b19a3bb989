/* disk.c - see disk.h. */
#include "engine/disk.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "engine/core.h"
#include "engine/prefix/prefix_pack.h"
#include "engine/prefix/spill.h"

/* Copied between two steps, or before the next look for requests: a millisecond or two
 * of memory traffic, where steps take tens.  A piece is never cut, so one larger goes alone. */
enum { COPY_BYTES = 8 << 20 };
/* A state that leaves memory is copied at once; beyond LEAVE_BYTES it is let go.  PENDING_MAX: states that wait to be copied,
 * and hold no memory but their tokens. */
enum { LEAVE_BYTES = 256 << 20, PENDING_MAX = 64 };
enum { GAIN_MIN = PLACE_APART }; /* tokens that a read must save */
/* Until measured: what a disk reads per second, and the longest wait. */
static const double READ_RATE = 300e6;
static const int64_t WAIT_NS = 10ll * 1000000000;    /* while it is unknown what computing takes */
static const int64_t WAIT_SHARED_NS = 1000000000;    /* the same for Redis, which others may slow down */
static const int64_t WAIT_LEAST_NS = 20ll * 1000000; /* the first piece takes a moment */
/* ASKS: prompts that may wait for the disk, which the engine asks for again and again.  FORGET_STEPS: steps
 * without such an ask after which a prompt counts as gone. */
enum { ASKS = 64, FORGET_STEPS = 64 };

struct inquiry {
	uint64_t id;    /* a checksum of salt and tokens; a wrong one could only cost time */
	uint64_t asked; /* the step at which it was asked for last */
	int64_t deadline;
	bool looked_shared;         /* it had Redis looked at */
	uint64_t look, look_shared; /* its look at the folder (spill_look), and at Redis, which it waits for */
	int64_t look_until;         /* no longer than this; 0: it was not asked for yet */
};

/* A chain of keys over the whole pages of a prefix.  The first is the one that snapshots hang on; it
 * keys the pages of a cache that keeps all of them, if the set has one.  Pages of any other cache, as
 * one with a window, of which a snapshot has the last alone, have a chain of their own. */
enum { CHAINS_MAX = CACHES_MAX + 1 };
struct chain {
	int part; /* of the set; -1: no pages */
	size_t page_bytes;
};

/* The name of a prefix on disk.  Ids of rows that bring their own vectors (spans.h) are valid in this process only, so each
 * is recorded as 31 bits of a digest of the span and the row, and the keys of whole pages cover the whole digest. */
struct names {
	int32_t *tok;       /* [n] as they are recorded */
	struct digest *key; /* of all chains: key_of */
	int n;              /* less than was asked for where a span is not known any longer */
};

/* A state to be written. */
struct pending {
	struct pending *next;
	char *salt;
	int32_t *tok;
	int n, done;        /* done: of its pages (piece_at), those that are finished */
	struct names names; /* key NULL: not made yet */
};

/* How far the snapshots of packs are read before a request asks for them: in the order of the packs, while nothing runs. */
struct ahead {
	struct pack_walk walk, before; /* before: the last snapshot that was taken */
	int pack;                      /* walk's; n_pack: all were looked at */
	bool reads;                    /* the disk's load is one of these */
};

/* The tier of one store: the engine's, or one of a drafter's. */
struct disk {
	struct prefix_tier tier; /* first: the store's way to here */
	struct disk *next;       /* those of the drafters follow the engine's */
	struct engine *e;
	struct prefix *prefix;
	struct caches *caches;
	const struct digest *of; /* the drafter that keeps it; NULL: the model */
	struct spill *spill;     /* one for all */
	struct chain chain[CHAINS_MAX];
	int n_chain;
	size_t snap_max;
	int page_rows;
	struct pending *pending, **pending_end;
	int n_pending;
	int64_t dropped, loads, given_up;

	uint64_t step;
	struct inquiry inquiry[ASKS];
	bool looking;   /* a prompt of this step waits for its look */
	bool is_shared; /* what find_on_disk found last is in Redis alone */

	/* One prompt's read at a time, so that the next shares the pages it brings. */
	struct spill_load *load; /* NULL: none */
	char *salt;
	int32_t *tok; /* [at] */
	struct names names;
	int at;       /* the position of the snapshot */
	int at_chain; /* whose pages are being read */
	int64_t deadline;
	struct snaps snaps; /* being put together; n == 0: its rest has not come yet */
	int shared;         /* pages that are not read: memory has them */
	struct ahead ahead;
};

/* ---- keys ---- */

/* Rows of a span behind the last whole page by which a snapshot knows the span: some 120 bits. */
enum { ROWS_SURE = 4 };

static int32_t row_word(const struct digest *span, int row)
{
	uint64_t h = check64(span->b, sizeof(span->b)) + (uint64_t)row;

	return (int32_t)(check64(&h, sizeof(h)) | 0x80000000u);
}

/* Adds rows [i, end) of one span, of which `row` come before, to what the keys of their pages stand for. */
static void more_put(const struct disk *d, struct digest *more, const struct digest *span, int i, int end, int row)
{
	for (; i < end; i++, row++) {
		struct digest *m = &more[i / d->page_rows];
		const int32_t at[] = { i, row };
		struct sha256 h;

		if (row && i % d->page_rows)
			continue; /* its first row of the page stands for all */
		sha256_init(&h);
		sha256_put(&h, m->b, sizeof(m->b));
		sha256_put(&h, at, sizeof(at));
		sha256_put(&h, span->b, sizeof(span->b));
		sha256_end(&h, m);
	}
}

/* Fills names->tok and n.  Returns a digest of the spans in each whole page, which the caller frees; NULL: there are none. */
static struct digest *words_of(const struct disk *d, const int32_t *tok, int n, struct names *names)
{
	struct digest *more = NULL, span;
	int end;

	names->tok = xmalloc(size_mul((size_t)n + 1, sizeof(*tok)));
	for (int i = 0; i < n; i = end) {
		for (end = i + 1; end < n && tok[i] < 0 && tok[end] == tok[i]; end++)
			;
		names->tok[i] = tok[i];
		if (tok[i] >= 0)
			continue;
		if (!span_digest(&d->e->spans, tok[i], &span)) {
			n = i;
			break;
		}
		if (!more)
			more = xcalloc((size_t)(n / d->page_rows) + 1, sizeof(*more));
		for (int k = i; k < end; k++)
			names->tok[k] = row_word(&span, k - i);
		more_put(d, more, &span, i, end, 0);
	}
	names->n = n;
	return more;
}

/* Is a snapshot at n known by too few rows of a span? */
static bool is_weak(const struct disk *d, const int32_t *tok, int n)
{
	int end;

	for (int i = n - n % d->page_rows; i < n; i = end) {
		for (end = i + 1; end < n && tok[i] < 0 && tok[end] == tok[i]; end++)
			;
		if (tok[i] < 0 && end - i < ROWS_SURE && (!i || tok[i - 1] != tok[i]))
			return true;
	}
	return false;
}

static void names_free(struct names *names)
{
	free(names->tok);
	free(names->key);
	*names = (struct names){ 0 };
}

/* Keys are those of all chains, one after the other: key_of. */
static struct names names_of(const struct disk *d, const char *salt, const int32_t *tok, int n)
{
	struct names names;
	struct digest *more = words_of(d, tok, n, &names), *key;
	size_t each = (size_t)(names.n / d->page_rows) + 1;
	struct buf b;

	names.key = key = xmalloc(size_mul(size_mul((size_t)d->n_chain, each), sizeof(*key)));

	/* A drafter's are next to the model's under salts of their own, and so do those of further chains:
	 * no salt of a request has a byte of 0. */
	for (int c = 0; c < d->n_chain; c++) {
		const char own[2] = { 0, (char)c };

		buf_init(&b);
		if (c)
			buf_put(&b, own, sizeof(own));
		if (d->of)
			buf_put(&b, d->of->b, sizeof(d->of->b));
		buf_puts(&b, salt);
		spill_keys_more(d->spill, b.n ? b.p : "", b.n, names.tok, names.n, more, key + (size_t)c * each);
		buf_fini(&b);
	}
	free(more);
	return names;
}

static const struct digest *key_of(const struct disk *d, const struct digest *key, int n, int chain)
{
	return key + (size_t)chain * ((size_t)(n / d->page_rows) + 1);
}

/* The whole pages of a chain that a snapshot at n has are those from here to n / page_rows. */
static int first_page(const struct disk *d, int chain, int n)
{
	int part = d->chain[chain].part, end = n / d->page_rows;
	int first = part < 0 ? end : caches_page_first(d->caches, part, n);

	return first < end ? first : end;
}

/* The i-th of all pages of a snapshot at n; false: it has at most i pages. */
static bool piece_at(const struct disk *d, int n, int i, int *chain, int *page)
{
	for (*chain = 0; *chain < d->n_chain; ++*chain) {
		int first = first_page(d, *chain, n);

		*page = first + i;
		if (*page < n / d->page_rows)
			return true;
		i -= n / d->page_rows - first;
	}
	return false;
}

static void use(struct disk *d, const struct digest *key, const int32_t *tok, int n)
{
	for (int c = 0; c < d->n_chain; c++)
		spill_use(d->spill, key_of(d, key, n, c), tok, n);
}

/* ---- writing ---- */

struct rest {
	struct sink sink;
	struct buf buf;
};

static int rest_put(struct sink *to, const void *p, size_t n)
{
	buf_put(&((struct rest *)to)->buf, p, n);
	return 0;
}

/* NULL: the device failed. */
static void *page_copy(const struct disk *d, const struct snaps *snaps, int chain, int page)
{
	void *p = xmalloc(d->chain[chain].page_bytes);

	if (!snaps_page_get(snaps, d->chain[chain].part, page, p))
		return p;
	free(p);
	return NULL;
}

/* Hands over the pieces of a snapshot that are wanted, from its *done-th page on, as many
 * as `bytes` allow but at least one; true: all are done, or the device failed and there are no more.  wait: stops, rather than
 * lose a piece, where the queue is full. */
static bool hand_over(struct disk *d, const struct snaps *snaps, const struct names *names, int *done, size_t bytes,
                      bool wait)
{
	const struct digest *key = names->key;
	const int32_t *tok = names->tok;
	int n = names->n;
	struct rest rest = { .sink.put = rest_put };
	struct spill_piece p;
	int chain, page;
	size_t sum = 0;
	void *copy;

	for (; piece_at(d, n, *done, &chain, &page); ++*done) {
		size_t size = d->chain[chain].page_bytes;

		p = (struct spill_piece){ SPILL_PAGE, (page + 1) * d->page_rows, tok, key_of(d, key, n, chain) };
		if (!spill_wants(d->spill, &p))
			continue;
		if (sum + size > bytes && sum)
			return false;
		if (wait && !spill_room(d->spill, size))
			return false;
		copy = page_copy(d, snaps, chain, page);
		if (!copy)
			return true;
		spill_put(d->spill, &p, copy, size);
		sum += size;
	}
	p = (struct spill_piece){ SPILL_SNAP, n, tok, key };
	if (spill_wants(d->spill, &p)) {
		if ((sum && sum + d->snap_max > bytes) || (wait && !spill_room(d->spill, d->snap_max)))
			return false;
		buf_init(&rest.buf);
		buf_reserve(&rest.buf, d->snap_max);
		if (snaps_write_rest(snaps, &rest.sink)) {
			buf_fini(&rest.buf);
			return true;
		}
		sum = rest.buf.n;
		assert(sum <= d->snap_max);
		spill_put(d->spill, &p, buf_take(&rest.buf), sum);
	}
	use(d, key, tok, n);
	return true;
}

static void pending_free(struct pending *w)
{
	free(w->salt);
	free(w->tok);
	names_free(&w->names);
	free(w);
}

static struct pending *pending_take(struct disk *d)
{
	struct pending *w = d->pending;

	d->pending = w->next;
	if (!d->pending)
		d->pending_end = &d->pending;
	d->n_pending--;
	return w;
}

/* prefix_tier.kept */
static void kept(struct prefix_tier *tier, const char *salt, const int32_t *tok, int n)
{
	struct disk *d = (struct disk *)tier;
	struct pending *w;

	if (spill_read_only(d->spill) || is_weak(d, tok, n))
		return;
	if (d->n_pending == PENDING_MAX) {
		pending_free(pending_take(d));
		d->dropped++;
	}
	w = xcalloc(1, sizeof(*w));
	w->salt = xstrdup(salt);
	w->tok = xmalloc(size_mul((size_t)n, sizeof(*w->tok)));
	memcpy(w->tok, tok, (size_t)n * sizeof(*w->tok));
	w->n = n;
	*d->pending_end = w;
	d->pending_end = &w->next;
	d->n_pending++;
}

/* Goes on with the oldest state to be written.  false: nothing could be done. */
static bool write_some(struct disk *d, size_t bytes)
{
	struct pending *w = d->pending;
	const struct snaps *snaps;
	int done;

	if (!w)
		return false;
	snaps = prefix_snaps(d->prefix, w->salt, w->tok, w->n);
	done = w->done;
	if (snaps) {
		if (!w->names.key) {
			w->names = names_of(d, w->salt, w->tok, w->n);
			use(d, w->names.key, w->names.tok, w->names.n);
		}
		if (w->names.n == w->n && !hand_over(d, snaps, &w->names, &w->done, bytes, true))
			return w->done > done;
	}
	pending_free(pending_take(d)); /* written, or no longer in memory: then left() saw to it */
	return true;
}

/* prefix_tier.left */
static void left(struct prefix_tier *tier, const char *salt, const int32_t *tok, int n, const struct snaps *snaps)
{
	struct disk *d = (struct disk *)tier;
	struct names names;
	struct spill_piece p;
	int done = 0, chain, page;
	size_t bytes;

	if (spill_read_only(d->spill) || is_weak(d, tok, n))
		return;
	names = names_of(d, salt, tok, n);
	p = (struct spill_piece){ SPILL_SNAP, n, names.tok, names.key };
	bytes = spill_wants(d->spill, &p) ? d->snap_max : 0;
	for (int i = 0; piece_at(d, n, i, &chain, &page); i++) {
		p = (struct spill_piece){ SPILL_PAGE, (page + 1) * d->page_rows, names.tok,
			                  key_of(d, names.key, n, chain) };
		if (spill_wants(d->spill, &p))
			bytes += d->chain[chain].page_bytes;
	}
	if (names.n < n || (bytes && (bytes > LEAVE_BYTES || !spill_room(d->spill, bytes)))) {
		d->dropped++;
	} else {
		use(d, names.key, names.tok, n);
		hand_over(d, snaps, &names, &done, SIZE_MAX, false);
	}
	names_free(&names);
}

/* ---- reading ---- */

/* On the reading thread. */
static void piece_came(void *arg)
{
	engine_wake(arg);
}

static void ahead_end(struct disk *d)
{
	d->ahead.pack = d->e->opts.disk.n_pack;
}

static void read_over(struct disk *d, bool brought)
{
	spill_load_close(d->load);
	snaps_drop(&d->snaps);
	free(d->salt);
	free(d->tok);
	names_free(&d->names);
	d->load = NULL;
	d->given_up += !brought && !d->ahead.reads;
	d->ahead.reads = false;
}

/* The pages of a chain from this one on; with the snapshot's rest before those of the first. */
static void chain_begin(struct disk *d, int chain, int page)
{
	d->at_chain = chain;
	d->load = spill_load_open(d->spill, &(struct spill_want){ .tok = d->names.tok,
	                                                          .key = key_of(d, d->names.key, d->at, chain),
	                                                          .pos = d->at,
	                                                          .page = page,
	                                                          .page_bytes = d->chain[chain].page_bytes,
	                                                          .snap_max = chain ? 0 : d->snap_max,
	                                                          .notify = piece_came,
	                                                          .notify_arg = d->e });
}

/* Over the pages that memory has of the same tokens. */
static void load_begin(struct disk *d, bool share)
{
	int alike = d->at;

	d->shared = 0;
	if (share && prefix_alike(d->prefix, d->salt, d->tok, &alike))
		d->shared = alike / d->page_rows;
	chain_begin(d, 0, d->chain[0].part < 0 ? d->at / d->page_rows : d->shared);
}

/* The pages of the next chain; false: there is none. */
static bool load_on(struct disk *d)
{
	int chain = d->at_chain + 1, page, end = d->at / d->page_rows;

	if (chain == d->n_chain)
		return false;
	spill_load_close(d->load);
	page = snaps_page_wanted(&d->snaps, d->chain[chain].part);
	chain_begin(d, chain, page < end ? page : end);
	return true;
}

static void read_begin(struct disk *d, const char *salt, const int32_t *tok, int at, int64_t deadline)
{
	struct names names = names_of(d, salt, tok, at);

	if (names.n < at) { /* spans of another thread have evicted one of these names since it was found */
		names_free(&names);
		return;
	}
	d->salt = xstrdup(salt);
	d->tok = xmalloc(size_mul((size_t)at, sizeof(*tok)));
	memcpy(d->tok, tok, (size_t)at * sizeof(*tok));
	d->names = names;
	d->at = at;
	d->deadline = deadline;
	load_begin(d, true);
}

struct bytes {
	struct source source;
	const char *p;
	size_t n;
};

static int bytes_get(struct source *from, void *out, size_t n)
{
	struct bytes *b = (struct bytes *)from;

	if (n > b->n)
		return E_FORMAT;
	memcpy(out, b->p, n);
	b->p += n;
	b->n -= n;
	return 0;
}

/* The rest of the snapshot came: memory is taken for the whole.  Anything but 0 ends
 * the read, but E_GONE: the pages to be shared have gone. */
static int take_rest(struct disk *d, const struct spill_got *got, struct err *err)
{
	for (;;) {
		struct bytes b = { { bytes_get }, got->payload, got->n };
		int alike = d->at, rc;
		const struct snaps *base = d->shared ? prefix_alike(d->prefix, d->salt, d->tok, &alike) : NULL;

		if (d->shared && (!base || alike / d->page_rows < d->shared))
			return E_GONE;
		rc = caches_read_rest(d->caches, &b.source, base, d->shared, &d->snaps, err);
		if (rc == E_FULL && !d->ahead.reads && prefix_shrink(d->prefix))
			continue;
		if (!rc && (b.n || d->snaps.pos != d->at)) {
			rc = err_set(err, E_FORMAT, "it is at %d, its name says %d; %zu bytes are left over",
			             d->snaps.pos, d->at, b.n);
			snaps_drop(&d->snaps);
		}
		return rc;
	}
}

static void read_done(struct disk *d)
{
	/* The kind of checkpoint that it was is not recorded; it counts as an end, since a prompt returns to it. */
	struct prefix_key key = { .salt = d->salt, .kind = PLACE_END, .by = AHEAD_NONE, .now = engine_now(d->e) };
	struct snaps snaps = d->snaps;

	d->snaps = (struct snaps){ .n = 0 };
	prefix_hang(d->prefix, &key, d->tok, d->at, &snaps);
	if (spill_is_shared(d->spill, &(struct spill_piece){ SPILL_SNAP, d->at, d->names.tok, d->names.key }))
		kept(&d->tier, d->salt, d->tok, d->at); /* the folder should have it too */
	/* Larger than the budget of memory: another read would end in the same way, so the requests that wait are computed. */
	if (!prefix_covers(d->prefix, d->salt, d->tok, d->at))
		for (int i = 0; i < ASKS; i++)
			if (d->inquiry[i].deadline < INT64_MAX)
				d->inquiry[i].deadline = key.now;
	read_over(d, true);
}

static void take_got(struct disk *d, struct spill_got *got)
{
	struct err err = { 0 };
	int rc = 0;

	if (got->kind == SPILL_PAGE)
		snaps_page_set(&d->snaps, d->chain[d->at_chain].part, got->page, got->payload);
	else
		rc = take_rest(d, got, &err);
	free(got->payload);
	if (rc == E_GONE) {
		spill_load_close(d->load);
		load_begin(d, false);
	} else if (rc) {
		if (rc != E_FULL) {
			log_warn("prompt cache: a snapshot from disk does not fit: %s", err.msg);
			spill_bad(d->spill, &(struct spill_piece){ SPILL_SNAP, d->at, d->names.tok, d->names.key });
		} else if (d->ahead.reads) {
			ahead_end(d);
		}
		read_over(d, false);
	}
}

/* No more than this is read up to `at`, if memory has all pages before `from`. */
static double read_bytes(const struct disk *d, int from, int at)
{
	double bytes = (double)d->snap_max;

	for (int c = 0; c < d->n_chain; c++) {
		int first = first_page(d, c, at), have = from / d->page_rows;

		if (have < at / d->page_rows)
			bytes += (double)d->chain[c].page_bytes * (at / d->page_rows - (have > first ? have : first));
	}
	return bytes;
}

/* Takes what came.  false: nothing did. */
static bool read_some(struct disk *d, size_t bytes)
{
	size_t done = 0;

	while (d->load && done < bytes) {
		struct spill_got got;

		switch (spill_load_next(d->load, &got)) {
		case SPILL_GOT:
			done += got.n;
			take_got(d, &got);
			break;
		case SPILL_WAIT:
			if (engine_now(d->e) < d->deadline)
				return done > 0;
			__attribute__((fallthrough)); /* it takes longer than computing would */
		case SPILL_FAIL: read_over(d, false); return true;
		case SPILL_END:
			if (load_on(d))
				break;
			read_done(d);
			return true;
		}
	}
	return done > 0;
}

/* prefix_tier.dropped */
static void dropped(struct prefix_tier *tier, const char *salt, const int32_t *tok, int n)
{
	struct disk *d = (struct disk *)tier;
	struct names names = { 0 };

	ahead_end(d); /* no piece of a pack is found from now on */
	if (d->load)
		read_over(d, false);
	if (salt) /* what is under a span that is not known any longer is dropped with everything else */
		names = names_of(d, salt, tok, n);
	for (int c = 0; c < (salt ? d->n_chain : 1); c++)
		spill_drop(d->spill, salt ? key_of(d, names.key, names.n, c) : NULL, salt ? names.tok : tok,
		           salt ? names.n : n);
	names_free(&names);
}

/* ---- packs, before a request asks ---- */

/* Reads a snapshot of a pack, if it is of this store and no request's salt.  False: no more of them fit. */
static bool ahead_begin(struct disk *d, const struct pack_piece *piece, const int32_t *tok)
{
	int n = (int)piece->head.pos, alike = n;
	struct names names = names_of(d, "", tok, n);
	bool ours = names.n == n &&
	            !memcmp(key_of(d, names.key, n, 0) + n / d->page_rows, &piece->head.key, sizeof(piece->head.key));

	names_free(&names);
	if (!ours)
		return true;
	if (!prefix_alike(d->prefix, "", tok, &alike))
		alike = 0;
	if ((double)d->prefix->bytes + read_bytes(d, alike, n) > (double)d->prefix->bytes_max)
		return false;
	read_begin(d, "", tok, n, INT64_MAX);
	d->ahead.reads = d->load != NULL;
	return true;
}

/* Goes on with the next snapshot.  False: nothing could be done. */
static bool ahead_some(struct disk *d)
{
	const struct engine_disk *o = &d->e->opts.disk;
	struct ahead *a = &d->ahead;
	struct pack_piece piece;
	struct err err = { 0 };
	int32_t *tok;
	int rc;

	if (d->load || a->pack == o->n_pack)
		return false;
	a->before = a->walk;
	if (d->e->squeeze.is_short) {
		ahead_end(d);
	} else if (!pack_next(&a->walk, &piece, &rc, &err) || piece.head.kind != SPILL_SNAP) {
		if (++a->pack < o->n_pack) /* pages follow the snapshots */
			a->walk = pack_walk(o->pack[a->pack]);
	} else if (piece.head.pos <= (uint32_t)d->e->ctx_max && !pack_tokens(&piece, &tok, &err)) {
		if (!ahead_begin(d, &piece, tok))
			ahead_end(d);
		free(tok);
	}
	return true;
}

/* A request wants what is on disk: makes room for its read, unless what is being read is its own beginning. */
static void ahead_give_way(struct disk *d, const char *salt, const int32_t *tok, int n)
{
	if (!d->load || !d->ahead.reads || (!*salt && d->at <= n && !memcmp(d->tok, tok, (size_t)d->at * sizeof(*tok))))
		return;
	d->ahead.walk = d->ahead.before;
	read_over(d, false);
}

/* ---- requests that wait ---- */

/* prefix_tier.find */
static int find_on_disk(struct prefix_tier *tier, const char *salt, const int32_t *tok, int n)
{
	struct disk *d = (struct disk *)tier;
	struct names names;
	bool complete = false;
	int at;

	if (n < 1)
		return 0;
	names = names_of(d, salt, tok, n);
	n = names.n;
	for (at = n + 1; at && !complete;) {
		at = spill_find(d->spill, names.key, d->chain[0].part >= 0, names.tok, at - 1);
		complete = true;
		for (int c = 1; at && c < d->n_chain; c++)
			complete &= spill_find_run(d->spill, key_of(d, names.key, n, c), first_page(d, c, at),
			                           at / d->page_rows);
	}
	d->is_shared = at && spill_is_shared(d->spill, &(struct spill_piece){ SPILL_SNAP, at, names.tok, names.key });
	names_free(&names);
	return at;
}

/* Nanoseconds that computing n tokens would take; 0: not known. */
static double compute_ns(const struct engine *e, int n)
{
	double rate = pace_rate(&e->pace, e->sched.n_run > 0);

	return rate > 0 ? n / rate * 1e9 : 0;
}

/* Expected ns of reading up to `at`, if memory had all pages before `from`. */
static double read_ns(struct disk *d, int from, int at)
{
	struct disk_stats st;
	double ns_byte;

	spill_stats(d->spill, &st);
	ns_byte = d->is_shared ? st.redis.ns_byte : st.read_bytes ? (double)st.read_ns / (double)st.read_bytes : 0;
	return read_bytes(d, from, at) * (ns_byte > 0 ? ns_byte : 1e9 / READ_RATE);
}

/* The prompt's ask, or room for it: the one not asked for since longest. */
static struct inquiry *inquiry_of(struct disk *d, uint64_t id)
{
	struct inquiry *a = &d->inquiry[0];

	for (int i = 0; i < ASKS && a->id != id; i++)
		if (d->inquiry[i].id == id || d->inquiry[i].asked < a->asked)
			a = &d->inquiry[i];
	if (a->id == id && d->step - a->asked < FORGET_STEPS)
		return a;
	*a = (struct inquiry){ .id = id, .deadline = INT64_MAX };
	return a;
}

/* Has Redis looked at, once for each prompt: what is found there is kept for longer, so also where memory has all. */
static void look_shared(struct disk *d, struct inquiry *a, const char *salt, const int32_t *tok, int n)
{
	struct names names;

	a->looked_shared = true;
	if (!d->e->opts.disk.redis)
		return;
	names = names_of(d, salt, tok, n);
	a->look_shared = spill_look_shared(d->spill, names.key, d->n_chain, d->chain[0].part >= 0, names.tok, names.n);
	names_free(&names);
}

/* Should the prompt wait, before n more tokens are computed, for a look at what other servers wrote?  An eighth of what
 * computing them would take, at most. */
static bool looks(struct disk *d, struct inquiry *a, int n, int64_t now)
{
	int64_t wait = d->e->opts.disk.wait_ns;
	double worth = wait ? (double)wait : compute_ns(d->e, n) / 8;

	if (!a->look_until) {
		if (n < GAIN_MIN)
			return false;
		a->look = spill_look(d->spill);
		a->look_until = now + (worth > (double)WAIT_LEAST_NS ? (int64_t)worth : WAIT_LEAST_NS);
	}
	if (now >= a->look_until || (spill_looked(d->spill, a->look) && spill_looked_shared(d->spill, a->look_shared)))
		return false;
	return d->looking = true;
}

/* prefix_tier.fetch */
static bool fetch(struct prefix_tier *tier, const char *salt, const int32_t *tok, int n, int have)
{
	struct disk *d = (struct disk *)tier;
	struct inquiry *a = inquiry_of(d, check64(tok, (size_t)n * sizeof(*tok)) ^ check64(salt, strlen(salt)));
	int64_t now = engine_now(d->e), wait = d->e->opts.disk.wait_ns;
	double worth; /* ns that reading may take; 0: not known */
	int at;

	a->asked = d->step;
	if (now >= a->deadline)
		return false;
	/* While others read, it waits its turn, and for what they bring. */
	if (a->deadline != INT64_MAX && d->load && !d->ahead.reads)
		return true;
	if (!a->looked_shared)
		look_shared(d, a, salt, tok, n - 1);
	at = find_on_disk(tier, salt, tok, n - 1);
	if (looks(d, a, n - 1 - (at > have ? at : have), now))
		return true;
	if (a->look || a->look_shared)
		at = find_on_disk(tier, salt, tok, n - 1);
	worth = wait ? (double)wait : compute_ns(d->e, at - have);
	if (at - have < GAIN_MIN || (worth > 0 && read_ns(d, have, at) > worth)) {
		a->deadline = INT64_MAX; /* asked again, it does not look again */
		return false;
	}
	if (a->deadline == INT64_MAX) {
		if (!wait)
			wait = worth > WAIT_LEAST_NS ? (int64_t)worth :
			       worth > 0             ? WAIT_LEAST_NS :
			       d->is_shared          ? WAIT_SHARED_NS :
			                               WAIT_NS;
		a->deadline = now + wait;
	}
	ahead_give_way(d, salt, tok, at);
	if (!d->load) {
		read_begin(d, salt, tok, at, a->deadline);
		d->loads += d->load != NULL;
	}
	return true;
}

bool disk_yield(struct engine *e)
{
	if (!e->disk || !e->disk->snaps.n)
		return false;
	if (e->disk->ahead.reads)
		ahead_end(e->disk);
	read_over(e->disk, false);
	return true;
}

struct spill *disk_spill(const struct engine *e)
{
	return e->disk ? e->disk->spill : NULL;
}

/* ---- between two steps ---- */

void disk_step(struct engine *e)
{
	for (struct disk *d = e->disk; d; d = d->next) {
		d->step++;
		d->looking = false;
		read_some(d, COPY_BYTES);
		write_some(d, COPY_BYTES);
	}
}

bool disk_busy(const struct engine *e)
{
	for (const struct disk *d = e->disk; d; d = d->next)
		if (d->load || d->pending || d->ahead.pack < e->opts.disk.n_pack || d->looking)
			return true;
	return e->vectors.load != NULL;
}

bool disk_idle(struct engine *e)
{
	for (struct disk *d = e->disk; d; d = d->next)
		if (read_some(d, COPY_BYTES) || write_some(d, COPY_BYTES) || ahead_some(d))
			return true;
	return false;
}

void disk_own_stats(const struct engine *e, struct disk_stats *out)
{
	if (!e->disk)
		return;
	*out = (struct disk_stats){ 0 };
	for (const struct disk *d = e->disk; d; d = d->next) {
		out->pending += d->n_pending;
		out->dropped += d->dropped;
		out->loads += d->loads;
		out->given_up += d->given_up;
	}
}

void disk_stats(struct engine *e, struct disk_stats *io)
{
	const struct disk_stats own = *io;

	if (!e->disk)
		return;
	spill_stats(e->disk->spill, io);
	io->pending = own.pending;
	io->dropped += own.dropped;
	io->loads = own.loads;
	io->given_up = own.given_up;
}

/* ---- open and close ---- */

/* The first part that keeps all its pages goes with the snapshots. */
static void chains_open(struct disk *d)
{
	int parts = caches_parts(d->caches), whole = 0;

	while (whole < parts && caches_page_first(d->caches, whole, INT_MAX))
		whole++;
	d->chain[d->n_chain++] = whole < parts ? (struct chain){ whole, caches_page_bytes(d->caches, whole) } :
	                                         (struct chain){ -1, 0 };
	for (int i = 0; i < parts; i++)
		if (i != whole)
			d->chain[d->n_chain++] = (struct chain){ i, caches_page_bytes(d->caches, i) };
}

static struct disk *disk_new(struct engine *e, struct prefix *prefix, struct model *m, const struct digest *of)
{
	struct disk *d = xcalloc(1, sizeof(*d));
	int rows = caches_page_rows(&m->caches);

	d->tier = (struct prefix_tier){
		.kept = kept, .left = left, .dropped = dropped, .find = find_on_disk, .fetch = fetch
	};
	d->e = e;
	d->prefix = prefix;
	d->caches = &m->caches;
	d->of = of;
	d->pending_end = &d->pending;
	d->page_rows = rows ? rows : INT_MAX; /* without pages all is the rest */
	chains_open(d);
	d->snap_max = caches_rest_max(&m->caches);
	if (e->opts.disk.n_pack)
		d->ahead.walk = pack_walk(e->opts.disk.pack[0]);
	return d;
}

/* The tiers of the drafters that keep prefixes, in pages like the model's. */
static void add_drafters(struct engine *e, struct disk *first)
{
	static const struct digest none;

	for (int i = 0; i < e->opts.n_drafter; i++) {
		struct drafter *d = e->opts.drafter[i];
		struct model *m = NULL;
		struct prefix *prefix = d->ops->kept ? d->ops->kept(d, &m) : NULL;
		struct disk *k;

		if (!prefix || !prefix->bytes_max || !memcmp(&d->identity, &none, sizeof(none)))
			continue;
		k = disk_new(e, prefix, m, &d->identity);
		if (k->page_rows != first->page_rows) {
			free(k);
			continue;
		}
		k->next = first->next;
		first->next = k;
	}
}

int disk_open(struct engine *e, struct err *err)
{
	const struct engine_disk *o = &e->opts.disk;
	struct spill_opts so = { .dir = o->dir,
		                 .pack = o->pack,
		                 .n_pack = o->n_pack,
		                 .bytes_max = o->bytes,
		                 .model = o->model,
		                 .io = o->io,
		                 .redis = o->redis,
		                 .redis_password = o->redis_password,
		                 .redis_seconds = o->redis_seconds,
		                 .looked = piece_came,
		                 .looked_arg = e };
	struct disk *first, *next;
	struct spill *spill = NULL;
	size_t snap = 0, page = 0;
	int rc;

	if (!o->dir && !o->n_pack && !o->redis)
		return 0;
	if (!e->opts.prefix_bytes)
		return err_set(err, E_ARG, "kept prefixes on disk (%s) and no memory for any",
		               o->dir   ? o->dir :
		               o->redis ? "Redis" :
		                          "packs");
	first = disk_new(e, &e->prefix, e->m, NULL);
	add_drafters(e, first);
	for (struct disk *d = first; d; d = d->next) {
		snap = d->snap_max > snap ? d->snap_max : snap;
		for (int c = 0; c < d->n_chain; c++)
			page = d->chain[c].page_bytes > page ? d->chain[c].page_bytes : page;
	}
	so.page_rows = first->page_rows;
	so.queue_bytes = e->opts.prefix_bytes / 4;
	if (so.queue_bytes < 4 * (snap + page))
		so.queue_bytes = 4 * (snap + page);
	so.window_bytes = snap + 16 * page;
	rc = spill_open(&spill, &so, err);
	for (struct disk *d = first; d; d = next) {
		next = d->next;
		d->spill = spill;
		d->prefix->tier = rc ? NULL : &d->tier;
		if (rc)
			free(d);
	}
	if (!rc)
		e->disk = first;
	return rc;
}

void disk_close(struct engine *e)
{
	struct disk *next, *first = e->disk;
	struct spill *spill;

	if (!first)
		return;
	spill = first->spill;
	vectors_close(e);
	for (struct disk *d = first; d; d = d->next) {
		if (d->load)
			read_over(d, false);
		while (d->pending)
			if (!write_some(d, SIZE_MAX))
				spill_flush(spill); /* then there is room */
	}
	for (struct disk *d = first; d; d = next) {
		next = d->next;
		d->prefix->tier = NULL;
		free(d);
	}
	spill_close(spill);
	e->disk = NULL;
}
