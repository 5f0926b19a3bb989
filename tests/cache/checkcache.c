/* checkcache.c - every kind of cache, alone and together, against what is true.
 *
 * A life is a random engine without a model: sequences that step with drafts,
 * keep some of them, go back, close, are captured, written to bytes and read
 * back, restored elsewhere, and run out of everything.  After every step each
 * row's "logits" must be what the tokens alone give (world.h), after every other
 * operation the books must be what a naive account says: which pages are
 * distinct, how many snapshots live, where a set can stand.
 *
 *     checkcache [--seed N] [--lives N] [--ops N] [--combo MASK] [--life N] [--far] [--cpu THREADS]
 *
 * The seed is printed, `--seed os` takes a new one; --life repeats one life of it.
 * --far makes the toy backend's memory unreadable outside its operations, --cpu
 * runs the CPU backend's own attention and recurrence instead of the toy's. */
#include <assert.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/rng.h"
#include "world.h"

enum { SLOTS_MAX = 8, CTX_MAX = 160, KEPT_MAX = 12, STEP_MAX = 24, TAPE_MAX = 6, SEEN_MAX = 3 };

/* A page as the naive account knows it: a number never used again. */
struct pages {
	int id[CTX_MAX];
	int n;
};

struct seq {
	int32_t tok[CTX_MAX + STEP_MAX];
	int pos;
	struct pages pages;
	/* While a span is reserved. */
	struct span span;
	bool reserved;
	struct pages before;        /* what it goes back to when it does not run */
	int seen[SEEN_MAX], n_seen; /* positions of the last step foreseen and not captured */
};

struct kept {
	struct snaps snaps;
	int32_t tok[CTX_MAX];
	int pos; /* 0: free */
	struct pages pages;
};

struct life {
	struct world w;
	uint64_t seed, number, drawn;
	struct seq seq[SLOTS_MAX];
	struct kept kept[KEPT_MAX];
	int next_id;
	int op;
	const char *doing;
	bool armed;
};

static struct {
	uint64_t rows, steps, drafts_kept, drafts_cut, rewinds, rewinds_exact, captures, restores, trips, pieces,
		hostile;
	uint64_t full[4]; /* reserve, capture, restore, read */
	uint64_t refused; /* allocations by the backend */
	uint64_t inside;  /* captured inside a step */
	uint64_t unreserved, preempted, checks, shed;
} count;

static void fail(const struct life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
static void fail(const struct life *l, const char *fmt, ...)
{
	va_list ap;

	printf("FAILED: seed %llu, life %llu, operation %d (%s): ", (unsigned long long)l->seed,
	       (unsigned long long)l->number, l->op, l->doing);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n  caches:");
	for (int k = 0; k < KINDS; k++)
		if (l->w.kind[k])
			printf(" %s", kind_name[k]);
	printf("; %d slots, %d rows per page, group %d\n", l->w.slots, l->w.paged.page_rows, l->w.pooled.group);
	fflush(stdout);
	exit(1);
}

#define must(l, cond, ...) ((cond) ? (void)0 : fail(l, __VA_ARGS__))

/* Uniform in [0, n). */
static int draw(struct life *l, int n)
{
	return (int)(rng_bits(l->seed, l->drawn++, l->number) % (uint64_t)n);
}

static bool chance(struct life *l, int in)
{
	return draw(l, in) == 0;
}

/* Lets the toy backend refuse one of the next allocations, now and then. */
static void arm(struct life *l)
{
	l->armed = l->w.truth == &toy_truth && chance(l, 8);
	if (l->armed)
		toy_backend_refuse(l->w.be, 1 + draw(l, 2));
}

/* Whether it did. */
static bool refused(struct life *l)
{
	bool fired = l->armed && toy_backend_refuse(l->w.be, 0) == 0;

	l->armed = false;
	count.refused += fired;
	return fired;
}

/* ---- the naive account ---- */

static int pages_for(const struct life *l, int pos)
{
	return (pos + l->w.paged.page_rows - 1) / l->w.paged.page_rows;
}

static int holders(const struct life *l, int id)
{
	int n = 0;

	for (int s = 0; s < l->w.slots; s++) {
		for (int i = 0; i < l->seq[s].pages.n; i++)
			n += l->seq[s].pages.id[i] == id;
		/* a page that is about to be replaced is held until the step begins */
		if (l->seq[s].reserved)
			for (int i = 0; i < l->seq[s].before.n; i++)
				n += l->seq[s].before.id[i] == id && l->seq[s].pages.id[i] != id;
	}
	for (int k = 0; k < KEPT_MAX; k++)
		for (int i = 0; l->kept[k].pos && i < l->kept[k].pages.n; i++)
			n += l->kept[k].pages.id[i] == id;
	return n;
}

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int pages_used(const struct life *l)
{
	static int id[(2 * SLOTS_MAX + KEPT_MAX) * CTX_MAX];
	int n = 0, distinct = 0;

	for (int s = 0; s < l->w.slots; s++) {
		const struct seq *q = &l->seq[s];

		memcpy(id + n, q->pages.id, (size_t)q->pages.n * sizeof *id);
		n += q->pages.n;
		if (q->reserved) {
			memcpy(id + n, q->before.id, (size_t)q->before.n * sizeof *id);
			n += q->before.n;
		}
	}
	for (int k = 0; k < KEPT_MAX; k++) {
		if (!l->kept[k].pos)
			continue;
		memcpy(id + n, l->kept[k].pages.id, (size_t)l->kept[k].pages.n * sizeof *id);
		n += l->kept[k].pages.n;
	}
	qsort(id, (size_t)n, sizeof *id, by_value);
	for (int i = 0; i < n; i++)
		distinct += i == 0 || id[i] != id[i - 1];
	return distinct;
}

static int kept_count(const struct life *l)
{
	int n = 0;

	for (int k = 0; k < KEPT_MAX; k++)
		n += l->kept[k].pos > 0;
	return n;
}

static int seen_count(const struct life *l)
{
	int n = 0;

	for (int s = 0; s < l->w.slots; s++)
		n += l->seq[s].n_seen;
	return n;
}

static int blocks_used(const struct life *l)
{
	int n = 0, g = l->w.pooled.group;

	for (int s = 0; s < l->w.slots; s++)
		n += pooled_blocks(g, l->seq[s].pos + (l->seq[s].reserved ? l->seq[s].span.n : 0));
	for (int k = 0; k < KEPT_MAX; k++)
		if (l->kept[k].pos)
			n += pooled_blocks(g, l->kept[k].pos);
	return n;
}

/* Pages that some snapshot holds and no slot; of one snapshot (k >= 0), those that
 * nobody else holds. */
static int pages_kept(const struct life *l, int k)
{
	int n = 0;

	for (int i = 0; i < KEPT_MAX; i++) {
		const struct pages *p = &l->kept[i].pages;

		for (int j = 0; l->kept[i].pos && j < p->n && (k < 0 || i == k); j++) {
			int before = 0, slots = 0, all = holders(l, p->id[j]);

			for (int o = 0; o < KEPT_MAX; o++)
				for (int x = 0; l->kept[o].pos && x < l->kept[o].pages.n; x++) {
					slots += l->kept[o].pages.id[x] == p->id[j];
					before += o < i && l->kept[o].pages.id[x] == p->id[j];
				}
			slots = all - slots;
			n += k < 0 ? !slots && !before : all == 1;
		}
	}
	return n;
}

static void check_kept(const struct life *l)
{
	size_t page_bytes = 0, rest = 0;

	if (l->w.kind[PAGED]) {
		struct paged_stats st;

		paged_stats(l->w.kind[PAGED], &st);
		page_bytes = st.page_bytes;
	}
	for (int k = 0; k < KEPT_MAX; k++) {
		size_t own;

		if (!l->kept[k].pos)
			continue;
		own = l->kept[k].snaps.bytes - (size_t)l->kept[k].pages.n * page_bytes;
		rest += own;
		must(l, snaps_room(&l->kept[k].snaps) == (size_t)pages_kept(l, k) * page_bytes,
		     "dropping gives %zu bytes of pages, not %d pages", snaps_room(&l->kept[k].snaps),
		     pages_kept(l, k));
		must(l, snaps_alone(&l->kept[k].snaps) == own + (size_t)pages_kept(l, k) * page_bytes,
		     "dropping frees %zu bytes", snaps_alone(&l->kept[k].snaps));
	}
	must(l, caches_kept(&l->w.set) == rest + (size_t)pages_kept(l, -1) * page_bytes,
	     "%zu bytes kept, %zu and %d pages are", caches_kept(&l->w.set), rest, pages_kept(l, -1));
}

/* Numbers for budgets, as the naive account has them. */
static void check_numbers(const struct life *l)
{
	struct cache_pool pool = caches_pool(&l->w.set);
	int free = l->w.kind[STATE] ? (int)(l->w.state.snap_bytes_max / state_slot_bytes(&l->w.state.shape)) :
	                              KEPT_MAX + 1;
	int longest = caches_longest(&l->w.set, l->w.ctx_max);
	size_t page_bytes = 0;

	if (l->w.kind[CARRY] && free > (int)(l->w.carry.snap_bytes_max / l->w.carry.bytes))
		free = (int)(l->w.carry.snap_bytes_max / l->w.carry.bytes);
	if (l->w.kind[PAGED]) {
		struct paged_stats st;

		paged_stats(l->w.kind[PAGED], &st);
		must(l, st.pages_used == pages_used(l), "%d pages used, %d are held", st.pages_used, pages_used(l));
		must(l, pool.max == (size_t)st.pages * st.page_bytes, "a pool of %zu bytes, %d pages", pool.max,
		     st.pages);
		page_bytes = st.page_bytes;
	}
	must(l, pool.used == (size_t)pages_used(l) * page_bytes, "%zu bytes of the pool, %d pages", pool.used,
	     pages_used(l));
	for (int s = 0; s < l->w.slots; s++) {
		const struct seq *q = &l->seq[s];
		int pos = q->pos + (q->reserved ? q->span.n : 0);

		must(l, caches_need(&l->w.set, pos) == (size_t)q->pages.n * page_bytes,
		     "position %d needs %zu bytes, %d pages are there", pos, caches_need(&l->w.set, pos), q->pages.n);
	}
	must(l, longest == l->w.ctx_max || caches_need(&l->w.set, longest + 1) > pool.max, "%d positions fit, no more",
	     longest);
	must(l, caches_need(&l->w.set, longest) <= pool.max, "%d positions do not fit", longest);
	free -= l->w.kind[STATE] || l->w.kind[CARRY] ? kept_count(l) : 0;
	must(l, caches_snaps_free(&l->w.set, KEPT_MAX) == (free < KEPT_MAX ? free : KEPT_MAX),
	     "room for %d snapshots, not %d", caches_snaps_free(&l->w.set, KEPT_MAX), free);
	must(l, caches_drafts_max(&l->w.set) == (l->w.kind[STATE] ? l->w.state.tape_rows : INT_MAX), "%d drafts",
	     caches_drafts_max(&l->w.set));
	must(l, caches_go_back(&l->w.set) == (!l->w.kind[STATE] && !l->w.kind[POOLED]), "whether slots can go back");
}

static void check_books(struct life *l)
{
	caches_check(&l->w.set);
	check_numbers(l);
	if (l->op % 8 == 0)
		check_kept(l);
	count.checks++;
}

static bool can_stand(const struct life *l, int at, int pos, bool snap)
{
	int g = l->w.pooled.group;

	if (l->w.kind[CARRY] && snap && pos != at && pos != 0)
		return false;
	if (l->w.kind[STATE] && pos != at && pos != 0)
		return false;
	if (l->w.kind[POOLED] && pos < at - at % g && pos % g)
		return false;
	return true;
}

/* The largest position that a slot (or a snapshot) which stands at `at` can go to. */
static int where(const struct life *l, int at, int pos, bool snap)
{
	if (pos > at)
		pos = at;
	while (!can_stand(l, at, pos, snap))
		pos--;
	return pos;
}

static size_t snap_bytes(const struct life *l, int pos)
{
	size_t n = 0;

	if (l->w.kind[PAGED]) {
		struct paged_stats st;

		paged_stats(l->w.kind[PAGED], &st);
		n += (size_t)pages_for(l, pos) * st.page_bytes;
	}
	if (l->w.kind[STATE])
		n += state_slot_bytes(&l->w.state.shape);
	if (l->w.kind[POOLED])
		n += (size_t)pooled_blocks(l->w.pooled.group, pos) * POOLED_BLOCK * sizeof(uint64_t);
	if (l->w.kind[CARRY])
		n += l->w.carry.bytes;
	return n;
}

/* ---- what a life does ---- */

static void set_pos(struct life *l, int s, int pos)
{
	l->seq[s].pos = pos;
	l->seq[s].pages.n = pages_for(l, pos);
}

static void do_close(struct life *l, int s)
{
	l->doing = "close";
	caches_close(&l->w.set, s);
	l->seq[s].n_seen = 0;
	set_pos(l, s, 0);
}

static bool room_to_keep(const struct life *l, int pos)
{
	if (l->w.kind[STATE] && (size_t)(kept_count(l) + seen_count(l) + 1) * state_slot_bytes(&l->w.state.shape) >
	                                l->w.state.snap_bytes_max)
		return false;
	if (l->w.kind[POOLED] && blocks_used(l) + pooled_blocks(l->w.pooled.group, pos) > l->w.pooled.blocks_max)
		return false;
	if (l->w.kind[CARRY] && (size_t)(kept_count(l) + 1) * l->w.carry.bytes > l->w.carry.snap_bytes_max)
		return false;
	return true;
}

/* The row that the owner of slot s has it carry: of the tokens, so that no two are alike. */
static uint64_t carried(const struct life *l, const int32_t *tok, int pos)
{
	uint64_t h = 17;

	for (int i = 0; i < pos; i++)
		h = prefix_hash(h, tok[i]);
	return h;
}

static void put_carried(struct life *l, int s)
{
	uint64_t row = carried(l, l->seq[s].tok, l->seq[s].pos);

	if (l->w.kind[CARRY])
		l->w.be->ops->write(l->w.be, carry_row(l->w.kind[CARRY], s), &row, sizeof row);
}

static void check_carried(struct life *l, int s)
{
	uint64_t row;

	if (!l->w.kind[CARRY] || !l->seq[s].pos)
		return;
	l->w.be->ops->read(l->w.be, &row, carry_row(l->w.kind[CARRY], s), sizeof row);
	must(l, row == carried(l, l->seq[s].tok, l->seq[s].pos), "slot %d carries another row to position %d", s,
	     l->seq[s].pos);
}

static struct kept *kept_free(struct life *l)
{
	for (int k = 0; k < KEPT_MAX; k++)
		if (!l->kept[k].pos)
			return &l->kept[k];
	return NULL;
}

static struct kept *kept_any(struct life *l)
{
	struct kept *k = &l->kept[draw(l, KEPT_MAX)];

	return k->pos ? k : NULL;
}

static void do_drop(struct life *l, struct kept *k)
{
	l->doing = "drop";
	snaps_drop(&k->snaps);
	must(l, k->snaps.n == 0 && !k->snaps.v[0], "snapshots are still named after the drop");
	k->pos = 0;
}

/* What was captured of slot s at pos is now k's. */
static void take(struct life *l, struct kept *k, int s, int pos)
{
	struct seq *q = &l->seq[s];

	must(l, k->snaps.pos == pos && k->snaps.bytes == snap_bytes(l, pos), "position %d, %zu bytes; not %d, %zu",
	     k->snaps.pos, k->snaps.bytes, pos, snap_bytes(l, pos));
	k->pos = pos;
	memcpy(k->tok, q->tok, (size_t)pos * sizeof *k->tok);
	k->pages = q->pages;
	k->pages.n = pages_for(l, pos);
	count.captures++;
}

/* Positions inside the step at which states will be captured, perhaps. */
static void do_foresee(struct life *l, const struct span *span, int n)
{
	for (int s = 0; s < l->w.slots; s++)
		l->seq[s].n_seen = 0;
	for (int i = 0; i < n; i++) {
		const struct span *sp = &span[i];
		struct seq *q = &l->seq[sp->slot];

		for (int pos = sp->pos + 1; pos < sp->pos + sp->n - sp->n_draft; pos++) {
			bool never = l->w.kind[POOLED] || l->w.kind[CARRY], room = !never;
			int rc;

			/* The set takes back nothing of what one kind refuses after another. */
			if (!chance(l, 4) || q->n_seen == SEEN_MAX || (never && l->w.kind[STATE]))
				continue;
			room = room && room_to_keep(l, pos);
			l->doing = "foresee";
			arm(l);
			rc = caches_foresee(&l->w.set, span, i, pos);
			room = !refused(l) && room;
			must(l, rc == (room ? 0 : E_FULL), "returned %d, there was %s", rc, room ? "room" : "no room");
			if (!rc)
				q->seen[q->n_seen++] = pos;
		}
	}
}

/* A position inside the last step. */
static struct kept *do_capture_inside(struct life *l, int s)
{
	struct seq *q = &l->seq[s];
	struct kept *k = kept_free(l);
	int i, pos;

	if (!k || !q->n_seen)
		return NULL;
	l->doing = "capture inside a step";
	i = draw(l, q->n_seen);
	pos = q->seen[i];
	must(l, !caches_capture(&l->w.set, s, pos, &k->snaps), "position %d was foreseen", pos);
	take(l, k, s, pos);
	q->seen[i] = q->seen[--q->n_seen];
	count.inside++;
	return k;
}

static struct kept *do_capture(struct life *l, int s)
{
	struct seq *q = &l->seq[s];
	struct kept *k = kept_free(l);
	bool room = room_to_keep(l, q->pos);
	int rc;

	l->doing = "capture";
	if (!k || !q->pos)
		return NULL;
	put_carried(l, s);
	arm(l);
	rc = caches_capture(&l->w.set, s, q->pos, &k->snaps);
	room = !refused(l) && room;
	must(l, rc == (room ? 0 : E_FULL), "returned %d, there was %s", rc, room ? "room" : "no room");
	if (rc) {
		must(l, !k->snaps.n && !k->snaps.v[0] && !k->snaps.bytes, "a refusal left snapshots");
		count.full[1]++;
		return NULL;
	}
	take(l, k, s, q->pos);
	return k;
}

static void do_restore(struct life *l, int s)
{
	struct seq *q = &l->seq[s];
	struct kept *k = kept_any(l);
	int ask, pos, want, rc;
	bool room;

	l->doing = "restore";
	if (!k)
		return;
	if (q->pos)
		do_close(l, s);
	l->doing = "restore";
	ask = draw(l, CTX_MAX);
	pos = snaps_reach(&k->snaps, ask);
	want = where(l, k->pos, ask, true);
	must(l, pos == want, "a snapshot at %d asked for %d offers %d, not %d", k->pos, ask, pos, want);
	if (chance(l, 2)) {
		pos = k->pos;
		must(l, snaps_reach(&k->snaps, pos) == pos, "a snapshot does not offer its own position %d", pos);
	}
	room = !l->w.kind[POOLED] || blocks_used(l) + pooled_blocks(l->w.pooled.group, pos) <= l->w.pooled.blocks_max;
	arm(l);
	rc = caches_restore(&l->w.set, s, &k->snaps, pos);
	room = !refused(l) && room;
	must(l, rc == (room ? 0 : E_FULL), "returned %d, there was %s", rc, room ? "room" : "no room");
	if (rc) {
		count.full[2]++;
		return;
	}
	memcpy(q->tok, k->tok, (size_t)pos * sizeof *q->tok);
	q->pages = k->pages;
	set_pos(l, s, pos);
	check_carried(l, s);
	count.restores++;
}

static void do_rewind(struct life *l, int s)
{
	struct seq *q = &l->seq[s];
	int pos = draw(l, q->pos + 1), to;

	l->doing = "rewind";
	if (chance(l, 2) && q->pos > 8)
		pos = q->pos - draw(l, 8);
	to = caches_rewind(&l->w.set, s, q->pos, pos);
	must(l, to == where(l, q->pos, pos, false), "from %d to %d arrived at %d, not %d", q->pos, pos, to,
	     where(l, q->pos, pos, false));
	count.rewinds++;
	count.rewinds_exact += to == pos;
	for (int i = q->n_seen; i-- > 0;)
		if (q->seen[i] > to)
			q->seen[i] = q->seen[--q->n_seen];
	set_pos(l, s, to);
}

struct bytes {
	struct sink sink;
	struct source source;
	struct buf buf;
	size_t at, limit; /* of the source; of the sink, in bytes */
};

static int bytes_put(struct sink *to, const void *p, size_t n)
{
	struct bytes *b = (struct bytes *)to;

	if (n > b->limit - b->buf.n)
		return E_IO;
	buf_put(&b->buf, p, n);
	return 0;
}

static int bytes_get(struct source *from, void *p, size_t n)
{
	struct bytes *b = (struct bytes *)((char *)from - offsetof(struct bytes, source));

	if (n > b->buf.n - b->at)
		return E_FORMAT;
	memcpy(p, b->buf.p + b->at, n);
	b->at += n;
	return 0;
}

static void bytes_init(struct bytes *b)
{
	*b = (struct bytes){ .sink.put = bytes_put, .source.get = bytes_get, .limit = SIZE_MAX };
	buf_init(&b->buf);
}

/* Bytes that are not what was written: an error, or, where only contents changed,
 * a snapshot that is well-formed; never a change of the books. */
static void do_hostile(struct life *l, const struct bytes *good)
{
	struct snaps snaps;
	struct bytes bad;
	struct err err = { 0 };
	bool cut = chance(l, 2);
	int rc;

	l->doing = "read of hostile bytes";
	bytes_init(&bad);
	buf_put(&bad.buf, good->buf.p, cut ? (size_t)draw(l, (int)good->buf.n) : good->buf.n);
	for (int i = draw(l, 4) + !cut; !cut && i > 0; i--) {
		size_t at = (size_t)draw(l, chance(l, 2) ? 128 : (int)bad.buf.n);

		if (at < bad.buf.n)
			bad.buf.p[at] ^= (char)(1 << draw(l, 8));
	}
	rc = caches_read(&l->w.set, &bad.source, &snaps, &err);
	must(l, !cut || rc, "%zu bytes of %zu were enough", bad.buf.n, good->buf.n);
	must(l, !rc || (err.msg[0] && !snaps.n && !snaps.v[0]), "an error without message, or with snapshots");
	if (!rc)
		snaps_drop(&snaps);
	buf_fini(&bad.buf);
	check_books(l);
	count.hostile++;
}

static void do_trip(struct life *l)
{
	struct kept *k = kept_any(l), *to = kept_free(l);
	struct bytes once, again;
	struct err err = { 0 };
	bool room;
	int rc;

	l->doing = "write and read";
	if (!k || !to)
		return;
	bytes_init(&once);
	bytes_init(&again);
	must(l, !snaps_write(&k->snaps, &once.sink), "write failed");
	again.limit = (size_t)draw(l, (int)once.buf.n);
	must(l, snaps_write(&k->snaps, &again.sink) == E_IO, "a full disk at byte %zu was not noticed", again.limit);
	again.limit = SIZE_MAX;
	buf_reset(&again.buf);
	if (chance(l, 2))
		do_hostile(l, &once);
	l->doing = "write and read";
	room = room_to_keep(l, k->pos);
	if (l->w.kind[PAGED]) {
		struct paged_stats st;

		paged_stats(l->w.kind[PAGED], &st);
		room = room && pages_used(l) + pages_for(l, k->pos) <= st.pages;
	}
	arm(l);
	rc = caches_read(&l->w.set, &once.source, &to->snaps, &err);
	room = !refused(l) && room;
	must(l, rc == (room ? 0 : E_FULL), "returned %d (%s), there was %s", rc, err.msg, room ? "room" : "no room");
	if (!rc) {
		must(l, once.at == once.buf.n, "%zu of %zu bytes were read", once.at, once.buf.n);
		to->pos = k->pos;
		memcpy(to->tok, k->tok, (size_t)k->pos * sizeof *k->tok);
		to->pages.n = pages_for(l, k->pos);
		for (int i = 0; i < to->pages.n; i++)
			to->pages.id[i] = ++l->next_id;
		must(l, to->snaps.bytes == snap_bytes(l, to->pos), "%zu bytes, not %zu", to->snaps.bytes,
		     snap_bytes(l, to->pos));
		must(l, !snaps_write(&to->snaps, &again.sink), "write failed");
		must(l, once.buf.n == again.buf.n && !memcmp(once.buf.p, again.buf.p, once.buf.n),
		     "what was read writes otherwise");
		count.trips++;
	} else {
		must(l, err.msg[0] && !to->snaps.n && !to->snaps.v[0], "an error without message, or with snapshots");
		count.full[3]++;
	}
	buf_fini(&once.buf);
	buf_fini(&again.buf);
}

/* Whole pages that two snapshots have in common by their tokens. */
static int common_pages(const struct life *l, const struct kept *a, const struct kept *b)
{
	int n = a->pos < b->pos ? a->pos : b->pos, i = 0;

	while (i < n && a->tok[i] == b->tok[i])
		i++;
	return l->w.kind[PAGED] ? i / l->w.paged.page_rows : 0;
}

/* As do_trip, but page by page, over the pages of a snapshot that has some of them. */
static void do_pieces(struct life *l)
{
	struct kept *k = kept_any(l), *to = kept_free(l), *base = kept_any(l);
	struct bytes rest, once, again;
	struct err err = { 0 };
	size_t page_bytes = caches_page_bytes(&l->w.set);
	void *page = xmalloc(page_bytes + 1);
	bool room;
	int rc, n;

	l->doing = "write and read in pieces";
	if (!k || !to) {
		free(page);
		return;
	}
	n = base ? common_pages(l, base, k) : 0;
	n = n ? draw(l, n + 1) : 0;
	bytes_init(&rest);
	bytes_init(&once);
	bytes_init(&again);
	must(l, !snaps_write(&k->snaps, &once.sink), "write failed");
	must(l, !snaps_write_rest(&k->snaps, &rest.sink), "write of the rest failed");
	room = room_to_keep(l, k->pos);
	if (l->w.kind[PAGED]) {
		struct paged_stats st;

		paged_stats(l->w.kind[PAGED], &st);
		room = room && pages_used(l) + pages_for(l, k->pos) - n <= st.pages;
		must(l, once.buf.n == rest.buf.n + (size_t)(k->pos / l->w.paged.page_rows) * page_bytes,
		     "the sum is not the whole");
	}
	arm(l);
	rc = caches_read_rest(&l->w.set, &rest.source, n ? &base->snaps : NULL, n, &to->snaps, &err);
	room = !refused(l) && room;
	must(l, rc == (room ? 0 : E_FULL), "returned %d (%s), there was %s", rc, err.msg, room ? "room" : "no room");
	if (!rc) {
		to->pos = k->pos;
		memcpy(to->tok, k->tok, (size_t)k->pos * sizeof *k->tok);
		to->pages.n = pages_for(l, k->pos);
		for (int i = 0; i < to->pages.n; i++)
			to->pages.id[i] = i < n ? base->pages.id[i] : ++l->next_id;
		for (int i = n; l->w.kind[PAGED] && i < k->pos / l->w.paged.page_rows; i++) {
			snaps_page_get(&k->snaps, i, page);
			snaps_page_set(&to->snaps, i, page);
		}
		must(l, to->snaps.bytes == snap_bytes(l, to->pos), "%zu bytes, not %zu", to->snaps.bytes,
		     snap_bytes(l, to->pos));
		must(l, !snaps_write(&to->snaps, &again.sink), "write failed");
		must(l, once.buf.n == again.buf.n && !memcmp(once.buf.p, again.buf.p, once.buf.n),
		     "what was put together writes otherwise");
		count.pieces++;
	} else {
		must(l, err.msg[0] && !to->snaps.n && !to->snaps.v[0], "an error without message, or with snapshots");
		count.full[3]++;
	}
	buf_fini(&rest.buf);
	buf_fini(&once.buf);
	buf_fini(&again.buf);
	free(page);
}

/* ---- a step ---- */

static bool room_to_step(const struct life *l, int s, const struct span *sp)
{
	const struct seq *q = &l->seq[s];

	if (l->w.kind[PAGED]) {
		int need = pages_for(l, sp->pos + sp->n) - q->pages.n;
		struct paged_stats st;

		if (sp->pos % l->w.paged.page_rows && holders(l, q->pages.id[q->pages.n - 1]) > 1)
			need++;
		paged_stats(l->w.kind[PAGED], &st);
		if (need > st.pages - pages_used(l))
			return false;
	}
	if (l->w.kind[POOLED]) {
		int g = l->w.pooled.group, need = pooled_blocks(g, sp->pos + sp->n) - pooled_blocks(g, sp->pos);

		if (need > l->w.pooled.blocks_max - blocks_used(l))
			return false;
	}
	return true;
}

static bool try_reserve(struct life *l, int s, const struct span *sp)
{
	struct seq *q = &l->seq[s];
	bool room = room_to_step(l, s, sp), shared;
	int rc;

	l->doing = "reserve";
	shared = sp->pos % l->w.paged.page_rows && holders(l, q->pages.id[q->pages.n - 1]) > 1;
	arm(l);
	rc = caches_reserve(&l->w.set, sp);
	room = !refused(l) && room;
	must(l, rc == (room ? 0 : E_FULL), "slot %d, %d + %d rows: returned %d, there was %s", s, sp->pos, sp->n, rc,
	     room ? "room" : "no room");
	if (rc) {
		count.full[0]++;
		check_books(l);
		return false;
	}
	q->before = q->pages;
	if (shared)
		q->pages.id[q->pages.n - 1] = ++l->next_id;
	while (q->pages.n < pages_for(l, sp->pos + sp->n))
		q->pages.id[q->pages.n++] = ++l->next_id;
	q->span = *sp;
	q->reserved = true;
	return true;
}

static void do_unreserve(struct life *l, int s)
{
	struct seq *q = &l->seq[s];

	l->doing = "unreserve";
	caches_unreserve(&l->w.set, &q->span);
	q->reserved = false;
	q->pages = q->before;
	check_books(l);
	count.unreserved++;
}

/* Makes room for s as an engine would: true when it is worth another try. */
static bool make_room(struct life *l, int s)
{
	int other = draw(l, l->w.slots);
	struct kept *k;

	switch (draw(l, 4)) {
	case 0:
		k = kept_any(l);
		if (k)
			do_drop(l, k);
		return k;
	case 1:
		if (other == s || l->seq[other].reserved || !l->seq[other].pos)
			return false;
		do_capture(l, other);
		do_close(l, other);
		count.preempted++;
		return true;
	case 2:
		if (!l->seq[other].reserved)
			return false;
		do_unreserve(l, other);
		return true;
	}
	return false;
}

static void run_step(struct life *l, const struct span *span, int n)
{
	static uint64_t got[SLOTS_MAX][STEP_MAX][KINDS], want[STEP_MAX][KINDS];
	struct item item[SLOTS_MAX];

	l->doing = "step";
	for (int i = 0; i < n; i++)
		item[i] = (struct item){ .span = span[i], .tok = l->seq[span[i].slot].tok, .out = got[i] };
	caches_begin(&l->w.set, span, n);
	do_foresee(l, span, n);
	l->doing = "step";
	l->w.truth->forward(&l->w, item, n);
	for (int i = 0; i < n; i++) {
		const struct span *sp = &span[i];
		struct seq *q = &l->seq[sp->slot];
		int keep = sp->n - (sp->n_draft ? draw(l, sp->n_draft + 1) : 0);

		l->w.truth->oracle(&l->w, q->tok, sp->pos, sp->pos + sp->n, want);
		for (int r = 0; r < sp->n; r++)
			for (int k = 0; k < KINDS; k++)
				must(l, !l->w.kind[k] || got[i][r][k] == want[r][k],
				     "slot %d, position %d (row %d of %d, %d drafts): %s sees %016llx, the tokens give %016llx",
				     sp->slot, sp->pos + r, r, sp->n, sp->n_draft, kind_name[k],
				     (unsigned long long)got[i][r][k], (unsigned long long)want[r][k]);
		caches_settle(&l->w.set, sp, keep);
		q->reserved = false;
		set_pos(l, sp->slot, sp->pos + keep);
		count.rows += (uint64_t)sp->n;
		count.drafts_kept += (uint64_t)(keep - (sp->n - sp->n_draft));
		count.drafts_cut += (uint64_t)(sp->n - keep);
	}
	for (int i = 0; i < n; i++)
		if (chance(l, 2))
			do_capture_inside(l, span[i].slot);
	count.steps++;
}

static void do_step(struct life *l)
{
	struct span span[SLOTS_MAX];
	int n = 0, first = draw(l, l->w.slots);

	for (int i = 0; i < l->w.slots; i++) {
		int s = (first + i) % l->w.slots, left = l->w.ctx_max - l->seq[s].pos;
		struct span sp = { .slot = s, .pos = l->seq[s].pos };

		if (chance(l, 2) || !left)
			continue;
		sp.n = 1 + draw(l, chance(l, 3) ? l->w.step_rows : 4 < l->w.step_rows ? 4 : l->w.step_rows);
		if (sp.n > left)
			sp.n = left;
		sp.n_draft = draw(l, sp.n < l->w.state.tape_rows + 1 ? sp.n : l->w.state.tape_rows + 1);
		for (int r = 0; r < sp.n; r++)
			l->seq[s].tok[sp.pos + r] = draw(l, 1000);
		while (!try_reserve(l, s, &sp))
			if (!make_room(l, s))
				break;
		if (l->seq[s].reserved && chance(l, 16))
			do_unreserve(l, s);
	}
	for (int s = 0; s < l->w.slots; s++)
		if (l->seq[s].reserved)
			span[n++] = l->seq[s].span;
	/* Items come in any order. */
	for (int i = n; i > 1; i--) {
		int k = draw(l, i);
		struct span t = span[k];

		span[k] = span[i - 1];
		span[i - 1] = t;
	}
	if (n)
		run_step(l, span, n);
}

static void do_any(struct life *l)
{
	int s = draw(l, l->w.slots), what = draw(l, 100);

	if (what < 60)
		do_step(l);
	else if (what < 70)
		do_rewind(l, s);
	else if (what < 80)
		do_capture(l, s);
	else if (what < 84)
		do_capture_inside(l, s);
	else if (what < 88)
		do_restore(l, s);
	else if (what < 91)
		do_close(l, s);
	else if (what < 93)
		do_trip(l);
	else if (what < 95)
		do_pieces(l);
	else if (what < 96) {
		l->doing = "shed";
		count.shed += caches_shed(&l->w.set, (size_t)draw(l, 1000));
	} else {
		struct kept *k = kept_any(l);

		if (k)
			do_drop(l, k);
	}
}

/* ---- birth and death ---- */

static void add(struct world *w, enum kind k, struct cache *c)
{
	w->kind[k] = c;
	caches_add(&w->set, c);
}

/* A life's caches, in any order, with budgets from starving to ample. */
static void life_open(struct life *l, const struct truth *truth, unsigned combo)
{
	static const int rows[] = { 1, 2, 3, 4, 5, 8, 16, 32, 64 };
	struct world *w = &l->w;
	struct err err = { 0 };
	int first = draw(l, KINDS), tight = draw(l, 3);

	l->doing = "open";
	w->truth = truth;
	w->slots = 1 + draw(l, SLOTS_MAX);
	w->ctx_max = 4 + draw(l, CTX_MAX - 4);
	w->step_rows = chance(l, 4) ? 1 + draw(l, 3) : STEP_MAX;
	w->paged = (struct paged_opts){ .page_rows = rows[draw(l, 9)], .slots = w->slots, .ctx_max = w->ctx_max };
	w->state = (struct state_opts){ .slots = w->slots, .tape_rows = draw(l, TAPE_MAX + 1) };
	w->pooled = (struct pooled_opts){
		.group = 2 + draw(l, 5), .slots = w->slots, .ctx_max = w->ctx_max, .step_rows = w->step_rows
	};
	truth->open(w, rng_bits(l->seed, l->drawn++, l->number));
	for (int i = 0; i < KINDS; i++) {
		enum kind k = (enum kind)((first + i) % KINDS);
		struct cache *c = NULL;
		int whole;

		if (!(combo & 1u << k))
			continue;
		if (k == PAGED) {
			size_t page = 0;

			for (int y = 0; y < w->paged.layers; y++)
				page += kv_pair_bytes(kv_rows_at(&w->paged.rows, y), w->paged.dim);
			page *= (size_t)w->paged.heads * (size_t)w->paged.page_rows;
			page = (page + 63) / 64 * 64;
			whole = w->slots * pages_for(l, w->ctx_max);
			w->paged.bytes_max = page * (size_t)(tight == 0 ? 1 + draw(l, whole) : tight * whole) + 63;
			c = paged_open(w->be, &w->paged, &err);
		} else if (k == STATE) {
			w->state.snap_bytes_max = state_slot_bytes(&w->state.shape) * (size_t)draw(l, KEPT_MAX + 2) + 3;
			c = state_open(w->be, &w->state, &err);
		} else if (k == CARRY) {
			w->carry = (struct carry_opts){
				.bytes = sizeof(uint64_t),
				.slots = w->slots,
				.snap_bytes_max = sizeof(uint64_t) * (size_t)draw(l, KEPT_MAX + 2) + 3
			};
			c = carry_open(w->be, &w->carry, &err);
		} else {
			whole = w->slots * pooled_blocks(w->pooled.group, w->ctx_max);
			w->pooled.blocks_max = tight == 0 ? draw(l, whole + 1) : tight * whole;
			c = pooled_open(w->be, &w->pooled, &err);
		}
		must(l, c, "%s", err.msg);
		add(w, k, c);
	}
}

static void life_close(struct life *l)
{
	bool early = chance(l, 2);

	/* Open slots may die with the caches; snapshots may not. */
	for (int k = 0; k < KEPT_MAX; k++)
		if (l->kept[k].pos)
			do_drop(l, &l->kept[k]);
	for (int s = 0; s < l->w.slots && early; s++)
		do_close(l, s);
	check_books(l);
	l->doing = "fini";
	caches_fini(&l->w.set);
	l->w.be->ops->close(l->w.be);
}

static void live(const struct truth *truth, uint64_t seed, uint64_t number, unsigned combo, int ops)
{
	struct life *l = xcalloc(1, sizeof *l);

	l->seed = seed;
	l->number = number;
	if (!combo)
		combo = 1 + (unsigned)(number % ((1 << KINDS) - 1));
	life_open(l, truth, combo);
	for (l->op = 0; l->op < ops; l->op++) {
		do_any(l);
		if (l->op % 16 == 0)
			check_books(l);
	}
	life_close(l);
	free(l);
}

/* ---- what must not open ---- */

/* The program must die of a table that lacks one of the required verbs. */
static void check_tables(void)
{
	struct backend *be = toy_backend_open(false);
	struct pooled_opts o = { .group = 2, .slots = 1, .ctx_max = 8, .step_rows = 4, .blocks_max = 1 };
	struct cache *c = pooled_open(be, &o, NULL);
	const struct cache_ops whole = *c->ops;
	static const size_t required[] = {
		offsetof(struct cache_ops, name),    offsetof(struct cache_ops, fini),
		offsetof(struct cache_ops, close),   offsetof(struct cache_ops, reserve),
		offsetof(struct cache_ops, settle),  offsetof(struct cache_ops, reach),
		offsetof(struct cache_ops, rewind),  offsetof(struct cache_ops, foresee),
		offsetof(struct cache_ops, capture), offsetof(struct cache_ops, snap_reach),
		offsetof(struct cache_ops, restore), offsetof(struct cache_ops, drop),
		offsetof(struct cache_ops, write),   offsetof(struct cache_ops, read),
		offsetof(struct cache_ops, facts),   offsetof(struct cache_ops, describe),
	};

	for (size_t i = 0; i <= sizeof required / sizeof *required; i++) {
		bool lacks = i < sizeof required / sizeof *required;
		int status;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			struct cache_ops ops = whole;
			struct cache copy = { .ops = &ops, .be = be };
			struct caches set = { .n = 0 };

			if (lacks)
				memset((char *)&ops + required[i], 0, sizeof ops.fini);
			ops.begin = NULL;
			ops.shed = NULL;
			ops.check = NULL;
			if (!freopen("/dev/null", "w", stderr))
				_exit(1);
			caches_add(&set, &copy);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			abort();
		if (lacks ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT : status != 0) {
			printf("FAILED: a table %s at byte %zu: status %x\n",
			       lacks ? "with nothing" : "with all required", lacks ? required[i] : 0, (unsigned)status);
			exit(1);
		}
	}
	c->ops->fini(c);
	be->ops->close(be);
}

/* A refused allocation at any point of opening leaves nothing behind. */
static void check_refusals(void)
{
	struct life *l = xcalloc(1, sizeof *l);
	struct world *w = &l->w;

	toy_truth.open(w, 0x35);
	w->paged.page_rows = 4;
	w->paged.slots = w->state.slots = 2;
	w->paged.ctx_max = 16;
	w->paged.bytes_max = 1 << 16;
	w->state.tape_rows = 2;
	for (int k = 0; k < 2; k++)
		for (int nth = 1;; nth++) {
			struct err err = { 0 };
			struct cache *c;

			toy_backend_refuse(w->be, nth);
			c = k ? state_open(w->be, &w->state, &err) : paged_open(w->be, &w->paged, &err);
			toy_backend_refuse(w->be, 0);
			if (c) {
				c->ops->fini(c);
				must(l, nth > 1, "no allocation was refused");
				break;
			}
			must(l, err.code == E_FULL && err.msg[0], "code %d: %s", err.code, err.msg);
			must(l, !toy_backend_live(w->be), "%zu bytes left", toy_backend_live(w->be));
		}
	w->paged.bytes_max = 3;
	{
		struct err err = { 0 };

		must(l, !paged_open(w->be, &w->paged, &err) && err.code == E_LIMIT, "a pool of no page opened");
		w->paged.bytes_max = SIZE_MAX;
		w->paged.heads = w->paged.layers = w->paged.page_rows = INT_MAX;
		must(l, !paged_open(w->be, &w->paged, &err) && err.code == E_LIMIT, "a page beyond memory opened");
	}
	w->be->ops->close(w->be);
	free(l);
}

static void report(void)
{
	printf("%llu steps, %llu rows checked; drafts: %llu kept, %llu cut; rewinds %llu (%llu exact)\n",
	       (unsigned long long)count.steps, (unsigned long long)count.rows, (unsigned long long)count.drafts_kept,
	       (unsigned long long)count.drafts_cut, (unsigned long long)count.rewinds,
	       (unsigned long long)count.rewinds_exact);
	printf("captures %llu, restores %llu, captures inside a step %llu, round trips %llu, in pieces %llu, hostile reads %llu, unreserved %llu, preempted %llu\n",
	       (unsigned long long)count.captures, (unsigned long long)count.restores, (unsigned long long)count.inside,
	       (unsigned long long)count.trips, (unsigned long long)count.pieces, (unsigned long long)count.hostile,
	       (unsigned long long)count.unreserved, (unsigned long long)count.preempted);
	printf("full: reserve %llu, capture %llu, restore %llu, read %llu (%llu refused); books checked %llu times\n",
	       (unsigned long long)count.full[0], (unsigned long long)count.full[1], (unsigned long long)count.full[2],
	       (unsigned long long)count.full[3], (unsigned long long)count.refused, (unsigned long long)count.checks);
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, lives = 300, only = UINT64_MAX;
	const struct truth *truth = &toy_truth;
	unsigned combo = 0;
	int ops = 400;

	for (int i = 1; i < argc; i++) {
		const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(arg, "--far")) {
			toy_far = true;
			continue;
		}
		if (!value) {
			fprintf(stderr, "checkcache: %s wants a value, or is not known\n", arg);
			return 2;
		}
		i++;
		if (!strcmp(arg, "--seed"))
			seed = strcmp(value, "os") ? strtoull(value, NULL, 0) : rng_os_seed();
		else if (!strcmp(arg, "--lives"))
			lives = strtoull(value, NULL, 0);
		else if (!strcmp(arg, "--life"))
			only = strtoull(value, NULL, 0);
		else if (!strcmp(arg, "--cpu")) {
			truth = &cpu_truth;
			cpu_threads = atoi(value);
		} else if (!strcmp(arg, "--ops"))
			ops = atoi(value);
		else if (!strcmp(arg, "--combo"))
			combo = (unsigned)strtoul(value, NULL, 0);
		else {
			fprintf(stderr, "checkcache: %s is not known\n", arg);
			return 2;
		}
	}
	printf("seed %llu, %s backend\n", (unsigned long long)seed, truth->name);
	fflush(stdout);
	if (only != UINT64_MAX) {
		live(truth, seed, only, combo, ops);
	} else {
		check_tables();
		check_refusals();
		for (uint64_t i = 0; i < lives; i++)
			live(truth, seed, i, combo, ops);
	}
	report();
	return 0;
}
