/* pack.c - weights in the order and the memory that kernels read best; see pack.h.
 *
 * A matrix that kernels read in blocks is packed into a room, piece by piece, and the file's pages of
 * each piece leave the process; then it is published.  Steps go on meanwhile: those that looked before read the
 * rows, which the file still has, and bring some of its pages back.  So they are sent away once more
 * when a matrix is published, and all of them at the end.
 *
 * What is left of the files goes to huge pages where it lies.  These are not the file's any more and must
 * not be sent away: from then on nothing is packed (pack.rows_moved). */
#include "backend/cpu/pack.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/slots.h"
#include "base/alloc.h"
#include "base/pages.h"
#include "quant/packed.h"

enum { PIECE = 32 << 20, STRETCH = 4 << 20 }; /* bytes between two questions; that are there twice */

/* Packed matrices, one after the other. */
struct pack_room {
	uint8_t *p;
	size_t used, n;
};

struct held {
	struct placed is;
	int models;  /* that placed it */
	bool unread; /* read from disk when it is used: see pack_without */
};

struct pack {
	struct held *v;
	int n;
	const struct file_map **file; /* that v lies in */
	int n_file;
	struct pack_room *room;
	int n_room;
	bool rows_moved; /* what has no blocks has begun to move to huge pages */
};

/* ---- what lies where ---- */

/* The memory of a matrix as the file has it: rows [first, first + n), and their scales and biases if they are codes. */
enum { STREAMS = 3 };
static void streams_of(struct pack_run run[STREAMS], const struct weight *w, int first, int n)
{
	struct weight part = weight_rows(w, first, n);
	size_t scales = (size_t)n * weight_scale_bytes(w);

	run[0] = (struct pack_run){ .p = part.data, .n = (size_t)n * w->row_bytes };
	run[1] = (struct pack_run){ .p = part.scales, .n = scales };
	run[2] = (struct pack_run){ .p = part.biases, .n = scales };
}

static bool laid_out(const struct held *h)
{
	return h->is.whole && atomic_load_explicit(&h->is.whole->packed->at, memory_order_relaxed);
}

static int by_place(const void *a, const void *b)
{
	const struct pack_run *x = a, *y = b;

	return (x->p > y->p) - (x->p < y->p);
}

static void add_run(struct pack_run *v, int *n, struct pack_run run)
{
	if (run.n)
		v[(*n)++] = run;
}

/* The streams of all that is laid out or never read, by address. */
static struct pack_run *unread_runs(const struct pack *k, int *n)
{
	struct pack_run *v = xcalloc(size_mul((size_t)k->n + 1, STREAMS), sizeof *v);

	*n = 0;
	for (int i = 0; i < k->n; i++)
		if (k->v[i].unread) {
			v[(*n)++] = (struct pack_run){ .p = k->v[i].is.p, .n = k->v[i].is.bytes };
		} else if (laid_out(&k->v[i])) {
			streams_of(v + *n, k->v[i].is.whole, 0, k->v[i].is.whole->rows);
			*n += STREAMS;
		}
	qsort(v, (size_t)*n, sizeof *v, by_place);
	return v;
}

static struct pack_run *runs_of(const struct pack *k, int *n)
{
	int n_unread, u = 0;
	struct pack_run *unread = unread_runs(k, &n_unread), *v;

	v = xcalloc((size_t)(n_unread + k->n_file + k->n_room + 1), sizeof *v);
	*n = 0;
	for (int i = 0; i < k->n_room; i++)
		add_run(v, n, (struct pack_run){ .p = k->room[i].p, .n = k->room[i].used });
	for (int i = 0; i < k->n_file; i++) {
		const struct file_map *map = k->file[i];
		const uint8_t *at = map->p, *end = map->p + map->n;

		/* No stream crosses from a file to another: those of this one are together. */
		for (u = 0; u < n_unread; u++) {
			if (unread[u].p < at || unread[u].p >= end)
				continue;
			add_run(v, n, (struct pack_run){ .p = at, .n = (size_t)(unread[u].p - at), .file = map });
			at = unread[u].p + unread[u].n;
		}
		add_run(v, n, (struct pack_run){ .p = at, .n = (size_t)(end - at), .file = map });
	}
	free(unread);
	return v;
}

struct pack_run *pack_runs(const struct backend *be, int *n)
{
	return runs_of(((const struct cpu_backend *)be)->pack, n);
}

/* ---- what is placed ---- */

static void add_file(struct pack *k, const struct file_map *file)
{
	for (int i = 0; i < k->n_file; i++)
		if (k->file[i] == file)
			return;
	k->file = xrealloc(k->file, size_mul((size_t)k->n_file + 1, sizeof *k->file));
	k->file[k->n_file++] = file;
}

static int by_address(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return (x->is.p > y->is.p) - (x->is.p < y->is.p);
}

/* Among the first n, which are sorted. */
static struct held *held_at(struct pack *k, const uint8_t *p, int n)
{
	const struct held key = { .is = { .p = p } };

	return n ? bsearch(&key, k->v, (size_t)n, sizeof *k->v, by_address) : NULL;
}

int cpu_place(struct backend *be, const struct placed *v, int n, struct err *err)
{
	struct pack *k = ((struct cpu_backend *)be)->pack;
	int sorted = k->n;

	k->v = xrealloc(k->v, size_mul((size_t)(k->n + n) + 1, sizeof *k->v));
	for (int i = 0; i < n; i++) {
		struct held *h = held_at(k, v[i].p, sorted);

		if (h)
			h->models++;
		else
			k->v[k->n++] = (struct held){ .is = v[i], .models = 1 };
		if (v[i].file)
			add_file(k, v[i].file);
	}
	qsort(k->v, (size_t)k->n, sizeof *k->v, by_address);
	return 0;
}

void cpu_unplace(struct backend *be, const struct placed *v, int n)
{
	struct pack *k = ((struct cpu_backend *)be)->pack;
	int kept = 0;

	for (int i = 0; i < n; i++) {
		struct held *h = held_at(k, v[i].p, k->n);

		assert(h);
		h->models--;
	}
	for (int i = 0; i < k->n; i++)
		if (k->v[i].models)
			k->v[kept++] = k->v[i];
	k->n = kept;
	if (!kept)
		k->n_file = 0;
}

static void drop_unread(const struct pack *k);

/* The placed memory that contains p. */
static struct held *held_around(struct pack *k, const uint8_t *p)
{
	int from = 0, to = k->n;

	while (from < to) {
		int mid = from + (to - from) / 2;

		if (k->v[mid].is.p <= p)
			from = mid + 1;
		else
			to = mid;
	}
	return from && p < k->v[from - 1].is.p + k->v[from - 1].is.bytes ? &k->v[from - 1] : NULL;
}

static void leave_out(struct pack *k, const struct weight *w)
{
	struct pack_run run[STREAMS];

	streams_of(run, w, 0, w->rows);
	for (int i = 0; i < STREAMS; i++) {
		struct held *h = run[i].n && run[i].p ? held_around(k, run[i].p) : NULL;

		if (h)
			h->unread = true;
	}
}

void pack_without(struct pack *k, struct moe *const *mix, int n)
{
	for (int i = 0; i < n; i++)
		for (int e = 0; e < mix[i]->experts; e++) {
			const struct weight *stack[] = { mix[i]->gate, mix[i]->up, mix[i]->down };

			for (int j = 0; j < 3; j++)
				if (stack[j])
					leave_out(k, &stack[j][e]);
		}
	drop_unread(k);
}

void pack_without_rows(struct pack *k, const struct weight *const *table, int n)
{
	for (int i = 0; i < n; i++)
		leave_out(k, table[i]);
	drop_unread(k);
}

struct pack *pack_new(void)
{
	return xcalloc(1, sizeof(struct pack));
}

void pack_free(struct pack *k)
{
	for (int i = 0; i < k->n_room; i++)
		pages_free(k->room[i].p, k->room[i].n);
	free(k->room);
	free(k->file);
	free(k->v);
	free(k);
}

/* ---- moving ---- */

struct move {
	struct pack *pack;
	const struct pack_opts *how;
	enum cpu_level level;
	size_t left; /* of the piece that was asked for */
	size_t done;
};

static void drop(const struct pack *k, struct pack_run run)
{
	for (int i = 0; i < k->n_file; i++) {
		const struct file_map *map = k->file[i];

		if (run.p >= map->p && run.p < map->p + map->n)
			file_map_drop(map, (size_t)(run.p - map->p), (size_t)(run.p - map->p) + run.n);
	}
}

static void drop_rows(const struct pack *k, const struct weight *w, int first, int n)
{
	struct pack_run run[STREAMS];

	streams_of(run, w, first, n);
	for (int i = 0; i < STREAMS; i++)
		drop(k, run[i]);
}

static bool more(void *arg, size_t done)
{
	const struct move *m = arg;

	return m->how->more(m->how->arg, m->done + done);
}

/* All blocks of w; false: told to end. */
static bool fill(struct move *m, uint8_t *to, const struct weight *w)
{
	size_t some = packed_bytes(w) / (size_t)(w->rows / BLOCK_OUT);
	int n;

	for (int first = 0; first < w->rows; first += n, to += (size_t)(n / BLOCK_OUT) * some) {
		size_t take;

		if (m->left < some) {
			if (!more(m, 0))
				return false;
			m->left = some < PIECE ? PIECE : some;
		}
		take = (m->left < STRETCH ? m->left : STRETCH) / some;
		take = take ? take : 1;
		n = take < (size_t)((w->rows - first) / BLOCK_OUT) ? (int)take * BLOCK_OUT : w->rows - first;
		packed_fill(to, w, first, n);
		drop_rows(m->pack, w, first, n);
		take = (size_t)(n / BLOCK_OUT) * some;
		m->done += take;
		m->left -= take;
	}
	return true;
}

/* Small ones first: while a matrix is on its way, steps may hold it twice, so the largest comes when a server has
 * been there for a while. */
static int by_size(const void *a, const void *b)
{
	const struct weight *x = *(const struct weight *const *)a, *y = *(const struct weight *const *)b;
	size_t m = packed_bytes(x), n = packed_bytes(y);

	return m != n ? (m > n) - (m < n) : (x->data > y->data) - (x->data < y->data);
}

static bool wants(const struct held *h, const struct move *m)
{
	struct kernels k;

	if (!h->is.whole || h->unread || laid_out(h) || m->how->arith != ARITH_FAST)
		return false;
	h->is.whole->fmt->kernels(&k, m->level);
	return k.packed;
}

static struct pack_room *add_room(struct pack *k, size_t bytes)
{
	struct pack_room room = { .p = pages_room(bytes, true), .n = bytes };

	if (!room.p)
		return NULL;
	pages_huge(room.p, bytes); /* slower without, and right */
	k->room = xrealloc(k->room, size_mul((size_t)k->n_room + 1, sizeof *k->room));
	k->room[k->n_room] = room;
	return &k->room[k->n_room++];
}

/* Returns unused memory to the system; whole huge pages in use stay together. */
static void trim_room(struct pack *k)
{
	struct pack_room *r = &k->room[k->n_room - 1];
	size_t keep = (r->used + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;

	if (keep < r->n) {
		pages_free(r->p + keep, r->n - keep);
		r->n = keep;
	}
	pages_seal(r->p, r->n);
	if (!r->used)
		k->n_room--;
}

/* Each of t[n] a place in one room; false: told to end, or there is no memory. */
static bool lay_out(struct move *m, const struct weight **w, int n)
{
	struct pack_room *room;
	size_t bytes = 0;
	bool go_on = true;

	for (int i = 0; i < n; i++)
		bytes += packed_bytes(w[i]);
	room = add_room(m->pack, bytes);
	if (!room)
		return false;
	for (int i = 0; i < n; i++) {
		uint8_t *to = room->p + room->used;
		size_t before = m->done;

		go_on = fill(m, to, w[i]);
		if (!go_on) {
			m->done = before;
			break;
		}
		room->used += packed_bytes(w[i]);
		atomic_store_explicit(&w[i]->packed->at, to, memory_order_release);
		drop_rows(m->pack, w[i], 0, w[i]->rows);
	}
	trim_room(m->pack);
	return go_on;
}

static void drop_unread(const struct pack *k)
{
	int n;
	struct pack_run *v = unread_runs(k, &n);

	for (int i = 0; i < n; i++)
		drop(k, v[i]);
	free(v);
}

static bool move_blocks(struct move *m)
{
	const struct pack *k = m->pack;
	const struct weight **w = xcalloc((size_t)k->n + 1, sizeof *w);
	bool go_on = true;
	int n = 0;

	for (int i = 0; i < k->n; i++)
		if (wants(&k->v[i], m))
			w[n++] = k->v[i].is.whole;
	if (n) {
		qsort(w, (size_t)n, sizeof *w, by_size);
		go_on = lay_out(m, w, n) && more(m, 0); /* products that read rows have had time to end */
		drop_unread(m->pack);
	}
	free(w);
	return go_on;
}

static void move_rows(struct move *m)
{
	int n;
	struct pack_run *v = runs_of(m->pack, &n);

	m->pack->rows_moved = true;
	for (int i = 0; i < n; i++) {
		const struct file_map *map = v[i].file;
		size_t from = map ? (size_t)(v[i].p - map->p) : 0;

		if (map)
			m->done += file_map_own(map, from, from + v[i].n, more, m);
	}
	free(v);
}

size_t cpu_pack(struct backend *be, const struct pack_opts *how)
{
	struct cpu_backend *c = (struct cpu_backend *)be;
	struct move m = { .pack = c->pack, .how = how, .level = c->choices.level };

	if (!m.pack->rows_moved && move_blocks(&m) && how->huge_rows)
		move_rows(&m);
	return m.done + slots_make_ready(c->slots, more, &m);
}
