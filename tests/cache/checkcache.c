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

#include "base/alloc.h"
#include "base/buf.h"
#include "base/rng.h"
#include "life.h"

static struct {
	uint64_t rows, steps, drafts_kept, drafts_cut, rewinds, rewinds_exact, captures, restores, trips, pieces,
		hostile;
	uint64_t full[4]; /* reserve, capture, restore, read */
	uint64_t refused; /* allocations by the backend */
	uint64_t inside;  /* captured inside a step */
	uint64_t unreserved, preempted, checks, shed, prepared;
} count;

void fail(const struct life *l, const char *fmt, ...)
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
	printf("; %d slots, %d rows per page, group %d\n", l->w.slots, l->w.paged[0].page_rows, l->w.pooled.group);
	fflush(stdout);
	exit(1);
}

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

static void check_books(struct life *l)
{
	caches_check(&l->w.set);
	check_numbers(l);
	if (l->op % 8 == 0)
		check_kept(l);
	count.checks++;
}

/* ---- what a life does ---- */

/* Goes back to, or has just come to, pos. */
static void set_pos(struct life *l, int s, int pos)
{
	struct seq *q = &l->seq[s];

	q->pos = pos;
	for (int g = 0; g < GROUPS; g++) {
		q->pages[g].n = pages_for(l, pos);
		q->pages[g].first = pos ? q->pages[g].first : 0;
	}
}

/* What no later row sees is given back: after a step, and of what is restored. */
static void age(struct life *l, struct pages p[GROUPS], int pos)
{
	for (int g = 0; g < GROUPS; g++)
		if (p[g].first < first_for(l, g, pos))
			p[g].first = first_for(l, g, pos);
}

/* The pages of q that it takes to stand at pos. */
static void pages_at(const struct life *l, const struct seq *q, int pos, struct pages out[GROUPS])
{
	memcpy(out, q->pages, sizeof q->pages);
	for (int g = 0; g < GROUPS; g++) {
		out[g].first = first_for(l, g, pos);
		out[g].n = pages_for(l, pos);
	}
}

static void do_close(struct life *l, int s)
{
	l->doing = "close";
	caches_close(&l->w.set, s);
	l->seq[s].n_seen = 0;
	set_pos(l, s, 0);
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

/* What was captured of slot s at pos, with these pages, is now k's. */
static void take(struct life *l, struct kept *k, int s, int pos, const struct pages pages[GROUPS])
{
	struct seq *q = &l->seq[s];

	must(l, k->snaps.pos == pos && k->snaps.bytes == snap_bytes(l, pos), "position %d, %zu bytes; not %d, %zu",
	     k->snaps.pos, k->snaps.bytes, pos, snap_bytes(l, pos));
	k->pos = pos;
	memcpy(k->tok, q->tok, (size_t)pos * sizeof *k->tok);
	memcpy(k->pages, pages, sizeof k->pages);
	count.captures++;
}

static bool window_before_state(const struct life *l)
{
	for (int i = 0; i < l->w.set.n; i++)
		if (l->w.set.v[i] == l->w.kind[WINDOW] || l->w.set.v[i] == l->w.kind[STATE])
			return l->w.set.v[i] == l->w.kind[WINDOW] && l->w.kind[STATE];
	return false;
}

static void forget_seen(struct life *l)
{
	for (int s = 0; s < l->w.slots; s++)
		l->seq[s].n_seen = 0;
}

static void do_forget(struct life *l)
{
	l->doing = "forget";
	caches_forget(&l->w.set);
	forget_seen(l);
}

/* Positions inside the step at which states will be captured, perhaps. */
static void do_foresee(struct life *l, const struct span *span, int n)
{
	forget_seen(l);
	for (int i = 0; i < n; i++) {
		const struct span *sp = &span[i];
		struct seq *q = &l->seq[sp->slot];

		for (int pos = sp->pos + 1; pos < sp->pos + sp->n - sp->n_draft; pos++) {
			bool never = l->w.kind[POOLED] || l->w.kind[CARRY], room = !never;
			int rc;

			/* The set takes back nothing of what one kind refuses after another. */
			if (!chance(l, 4) || q->n_seen == SEEN_MAX ||
			    (never && (l->w.kind[STATE] || l->w.kind[WINDOW])))
				continue;
			room = room && room_to_keep(l, pos);
			l->doing = "foresee";
			arm(l);
			rc = caches_foresee(&l->w.set, span, i, pos);
			room = !refused(l) && room;
			must(l, rc == (room ? 0 : E_FULL), "returned %d, there was %s", rc, room ? "room" : "no room");
			if (rc && !window_before_state(l))
				continue;
			q->seen[q->n_seen].pos = pos;
			q->seen[q->n_seen].lost = rc;
			pages_at(l, q, pos, q->seen[q->n_seen].pages);
			/* Without a window the slot's own pages do. */
			q->seen[q->n_seen++].pages[PAGED].n = 0;
		}
	}
}

/* A position inside the last step. */
static struct kept *do_capture_inside(struct life *l, int s)
{
	struct seq *q = &l->seq[s];
	struct kept *k = kept_free(l);
	struct pages pages[GROUPS];
	int i, pos;

	if (!k || !q->n_seen)
		return NULL;
	l->doing = "capture inside a step";
	i = draw(l, q->n_seen);
	pos = q->seen[i].pos;
	if (q->seen[i].lost)
		return NULL;
	must(l, !caches_capture(&l->w.set, s, pos, &k->snaps), "position %d was foreseen", pos);
	pages_at(l, q, pos, pages);
	pages[WINDOW] = q->seen[i].pages[WINDOW];
	take(l, k, s, pos, pages);
	q->seen[i] = q->seen[--q->n_seen];
	count.inside++;
	return k;
}

static struct kept *do_capture(struct life *l, int s)
{
	struct seq *q = &l->seq[s];
	struct kept *k = kept_free(l);
	bool room = room_to_keep(l, q->pos);
	struct pages pages[GROUPS];
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
	pages_at(l, q, q->pos, pages);
	take(l, k, s, q->pos, pages);
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
	want = where(l, k->pages, k->pos, ask, true);
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
	memcpy(q->pages, k->pages, sizeof q->pages);
	set_pos(l, s, pos);
	age(l, q->pages, pos);
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
	must(l, to == where(l, q->pages, q->pos, pos, false), "from %d to %d arrived at %d, not %d", q->pos, pos, to,
	     where(l, q->pages, q->pos, pos, false));
	count.rewinds++;
	count.rewinds_exact += to == pos;
	for (int i = q->n_seen; i-- > 0;)
		if (q->seen[i].pos > to)
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

/* The pages of a snapshot that is read, like one with pages k over the first n of another's (NULL:
 * of none).  Returns whether there is room for those that are new. */
static bool new_pages(struct life *l, const struct pages k[GROUPS], const struct kept *base, int n,
                      struct pages out[GROUPS])
{
	int more[GROUPS] = { 0 };

	memcpy(out, k, GROUPS * sizeof *out);
	for (int g = 0; g < GROUPS; g++) {
		bool over = base && base->pages[g].first <= k[g].first;

		for (int i = k[g].first; i < k[g].n; i++) {
			out[g].id[i] = over && i < n ? base->pages[g].id[i] : ++l->next_id;
			more[g] += !over || i >= n;
		}
	}
	return room_for_pages(l, more);
}

static void do_trip(struct life *l)
{
	struct kept *k = kept_any(l), *to = kept_free(l);
	struct pages pages[GROUPS];
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
	room = room && new_pages(l, k->pages, NULL, 0, pages);
	arm(l);
	rc = caches_read(&l->w.set, &once.source, &to->snaps, &err);
	room = !refused(l) && room;
	must(l, rc == (room ? 0 : E_FULL), "returned %d (%s), there was %s", rc, err.msg, room ? "room" : "no room");
	if (!rc) {
		must(l, once.at == once.buf.n, "%zu of %zu bytes were read", once.at, once.buf.n);
		to->pos = k->pos;
		memcpy(to->tok, k->tok, (size_t)k->pos * sizeof *k->tok);
		memcpy(to->pages, pages, sizeof pages);
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
	return l->w.kind[PAGED] || l->w.kind[WINDOW] ? i / l->w.paged[0].page_rows : 0;
}

/* Bytes of the whole pages of a snapshot. */
static size_t whole_bytes(const struct life *l, int pos)
{
	size_t n = 0;

	for (int part = 0; part < caches_parts(&l->w.set); part++) {
		int whole = pos / caches_page_rows(&l->w.set) - caches_page_first(&l->w.set, part, pos);

		n += whole > 0 ? (size_t)whole * caches_page_bytes(&l->w.set, part) : 0;
	}
	return n;
}

/* Sets those pages of `to` that were not read over base's. */
static void set_pages(struct life *l, const struct kept *from, struct kept *to, const struct kept *base, int n)
{
	int part = 0;

	for (int i = 0; i < l->w.set.n; i++) {
		enum kind g = l->w.set.v[i] == l->w.kind[PAGED] ? PAGED : WINDOW;
		int first, want, wanted;
		void *page;

		if (l->w.set.v[i] != l->w.kind[g])
			continue;
		first = first_for(l, g, to->pos);
		want = base && base->pages[g].first <= first && n > first ? n : first;
		wanted = snaps_page_wanted(&to->snaps, part);
		must(l, caches_page_first(&l->w.set, part, to->pos) == first,
		     "position %d begins with page %d of %s, not %d", to->pos,
		     caches_page_first(&l->w.set, part, to->pos), kind_name[g], first);
		must(l, wanted == want, "pages of %s from %d on are wanted, not from %d", kind_name[g], wanted, want);
		page = xmalloc(caches_page_bytes(&l->w.set, part));
		for (; want < to->pos / l->w.paged[g].page_rows; want++) {
			snaps_page_get(&from->snaps, part, want, page);
			snaps_page_set(&to->snaps, part, want, page);
		}
		free(page);
		part++;
	}
	must(l, part == caches_parts(&l->w.set), "%d parts, not %d", caches_parts(&l->w.set), part);
}

/* As do_trip, but page by page, over the pages of a snapshot that has some of them. */
static void do_pieces(struct life *l)
{
	struct kept *k = kept_any(l), *to = kept_free(l), *base = kept_any(l);
	struct pages pages[GROUPS];
	struct bytes rest, once, again;
	struct err err = { 0 };
	bool room;
	int rc, n;

	l->doing = "write and read in pieces";
	if (!k || !to)
		return;
	for (int i = 0; i < 8 && !(base && base != k && common_pages(l, base, k)); i++)
		base = kept_any(l);
	n = base ? common_pages(l, base, k) : 0;
	n = n && chance(l, 2) ? draw(l, n + 1) : n;
	bytes_init(&rest);
	bytes_init(&once);
	bytes_init(&again);
	must(l, !snaps_write(&k->snaps, &once.sink), "write failed");
	must(l, !snaps_write_rest(&k->snaps, &rest.sink), "write of the rest failed");
	room = room_to_keep(l, k->pos);
	room = new_pages(l, k->pages, base, n, pages) && room;
	must(l, once.buf.n == rest.buf.n + whole_bytes(l, k->pos), "the sum is not the whole");
	arm(l);
	rc = caches_read_rest(&l->w.set, &rest.source, n ? &base->snaps : NULL, n, &to->snaps, &err);
	room = !refused(l) && room;
	must(l, rc == (room ? 0 : E_FULL), "returned %d (%s), there was %s", rc, err.msg, room ? "room" : "no room");
	if (!rc) {
		to->pos = k->pos;
		memcpy(to->tok, k->tok, (size_t)k->pos * sizeof *k->tok);
		memcpy(to->pages, pages, sizeof pages);
		set_pages(l, k, to, base, n);
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
}

/* ---- a step ---- */

static bool room_to_step(const struct life *l, int s, const struct span *sp)
{
	const struct seq *q = &l->seq[s];
	int more[GROUPS];

	for (int g = 0; g < GROUPS; g++)
		more[g] = pages_for(l, sp->pos + sp->n) - q->pages[g].n + shares_last(l, s, g);
	if (!room_for_pages(l, more))
		return false;
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
	bool room = room_to_step(l, s, sp), shared[GROUPS];
	int rc;

	l->doing = "reserve";
	for (int g = 0; g < GROUPS; g++)
		shared[g] = shares_last(l, s, g);
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
	memcpy(q->before, q->pages, sizeof q->before);
	for (int g = 0; g < GROUPS; g++) {
		struct pages *p = &q->pages[g];

		if (shared[g])
			p->id[p->n - 1] = ++l->next_id;
		while (p->n < pages_for(l, sp->pos + sp->n))
			p->id[p->n++] = ++l->next_id;
	}
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
	memcpy(q->pages, q->before, sizeof q->pages);
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
		age(l, q->pages, q->pos);
		count.rows += (uint64_t)sp->n;
		count.drafts_kept += (uint64_t)(keep - (sp->n - sp->n_draft));
		count.drafts_cut += (uint64_t)(sp->n - keep);
	}
	for (int i = 0; i < n; i++)
		if (chance(l, 2))
			do_capture_inside(l, span[i].slot);
	if (chance(l, 2))
		do_forget(l);
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
	else if (what < 96)
		do_pieces(l);
	else if (what < 97) {
		l->doing = "shed";
		count.shed += caches_shed(&l->w.set, (size_t)draw(l, 1000));
	} else if (what < 98) {
		l->doing = "prepare";
		for (int n = 1 + draw(l, 8); n && caches_prepare(&l->w.set); n--)
			count.prepared++;
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

static size_t page_of(const struct paged_opts *o)
{
	size_t page = 0;

	for (int y = 0; y < o->group.layers; y++)
		page += kv_group_head_bytes(&o->group, kv_rows_at(&o->rows, y));
	page *= (size_t)o->group.heads * (size_t)(o->page_rows / (o->group.every ? o->group.every : 1));
	return (page + 63) / 64 * 64;
}

/* A budget for each group, or one for both, that holds at least a page of each. */
static void pools_open(struct life *l, unsigned combo, int tight)
{
	size_t least = 0, all = 0;
	bool both = combo & 1u << PAGED && combo & 1u << WINDOW && chance(l, 2);

	for (int g = 0; g < GROUPS; g++) {
		struct paged_opts *o = &l->w.paged[g];
		int whole = l->w.slots * pages_for(l, l->w.ctx_max);
		size_t pages = (size_t)(tight == 0 ? 1 + draw(l, whole) : tight * whole), page = page_of(o);

		o->bytes_max = page * pages + 63;
		o->pool = both ? &l->w.pool : NULL;
		all += o->bytes_max;
		least = page > least ? page : least;
	}
	l->w.pool.max = all > least ? all : least;
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
	w->paged[PAGED] = (struct paged_opts){
		.page_rows = rows[draw(l, 9)], .slots = w->slots, .ctx_max = w->ctx_max, .step_rows = w->step_rows
	};
	w->paged[WINDOW] = w->paged[PAGED];
	w->paged[WINDOW].group.window = 1 + draw(l, chance(l, 2) ? 8 : 100);
	w->state = (struct state_opts){ .slots = w->slots, .tape_rows = draw(l, TAPE_MAX + 1) };
	w->pooled = (struct pooled_opts){
		.group = 2 + draw(l, 5), .slots = w->slots, .ctx_max = w->ctx_max, .step_rows = w->step_rows
	};
	truth->open(w, rng_bits(l->seed, l->drawn++, l->number));
	pools_open(l, combo, tight);
	for (int i = 0; i < KINDS; i++) {
		enum kind k = (enum kind)((first + i) % KINDS);
		struct cache *c = NULL;
		int whole;

		if (!(combo & 1u << k))
			continue;
		if ((int)k < GROUPS) {
			c = paged_open(w->be, &w->paged[k], &err);
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

/* ---- the command ---- */

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
	printf("full: reserve %llu, capture %llu, restore %llu, read %llu (%llu refused); %llu pieces made ready; books checked %llu times\n",
	       (unsigned long long)count.full[0], (unsigned long long)count.full[1], (unsigned long long)count.full[2],
	       (unsigned long long)count.full[3], (unsigned long long)count.refused, (unsigned long long)count.prepared,
	       (unsigned long long)count.checks);
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
