/* move.c - weights into memory of the process's own; see store_move.
 *
 * A matrix that kernels read in blocks is laid out in a room, piece by piece, and the file's pages of
 * each piece leave the process; then it is published.  Steps go on meanwhile: those that looked before read the
 * rows, which the file still has, and bring some of its pages back.  So they are sent away once more
 * when a matrix is published, and all of them at the end.
 *
 * What is left of the files goes to huge pages where it lies.  These are not the file's any more and must
 * not be sent away: from then on nothing is laid out (store.rows_moved). */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/pages.h"
#include "store/store.h"

enum { PIECE = 32 << 20, STRETCH = 4 << 20 }; /* bytes between two questions; that are there twice */

/* ---- what lies where ---- */

/* The memory of a matrix as the file has it: rows [first, first + n), and their scales and biases if they are codes. */
enum { STREAMS = 3 };
static void streams_of(struct store_run run[STREAMS], const struct weight *w, int first, int n)
{
	struct weight part = weight_rows(w, first, n);
	size_t scales = (size_t)n * weight_scale_bytes(w);

	run[0] = (struct store_run){ .p = part.data, .n = (size_t)n * w->row_bytes };
	run[1] = (struct store_run){ .p = part.scales, .n = scales };
	run[2] = (struct store_run){ .p = part.biases, .n = scales };
}

static bool laid_out(const struct tensor *t)
{
	return t->whole && atomic_load_explicit(&t->blocks.at, memory_order_relaxed);
}

static int by_place(const void *a, const void *b)
{
	const struct store_run *x = a, *y = b;

	return (x->p > y->p) - (x->p < y->p);
}

static void add_run(struct store_run *v, int *n, struct store_run run)
{
	if (run.n)
		v[(*n)++] = run;
}

/* The streams of all that is laid out, by address. */
static struct store_run *unread_runs(const struct store *st, int *n)
{
	struct store_run *v = xcalloc(size_mul(st->n + 1, STREAMS), sizeof *v);

	*n = 0;
	for (size_t i = 0; i < st->n; i++)
		if (laid_out(st->v[i])) {
			streams_of(v + *n, st->v[i]->whole, 0, st->v[i]->whole->rows);
			*n += STREAMS;
		}
	qsort(v, (size_t)*n, sizeof *v, by_place);
	return v;
}

struct store_run *store_runs(const struct store *st, int *n)
{
	int n_unread, k = 0;
	struct store_run *unread = unread_runs(st, &n_unread), *v;

	v = xcalloc((size_t)(n_unread + st->n_file + st->n_room + 1), sizeof *v);
	*n = 0;
	for (int i = 0; i < st->n_room; i++)
		add_run(v, n, (struct store_run){ .p = st->room[i].p, .n = st->room[i].used });
	for (int i = 0; i < st->n_file; i++) {
		const struct file_map *map = &st->file[i].map;
		const uint8_t *at = map->p, *end = map->p + map->n;

		/* No stream crosses from a file to another: those of this one are together. */
		for (k = 0; k < n_unread; k++) {
			if (unread[k].p < at || unread[k].p >= end)
				continue;
			add_run(v, n, (struct store_run){ .p = at, .n = (size_t)(unread[k].p - at), .file = map });
			at = unread[k].p + unread[k].n;
		}
		add_run(v, n, (struct store_run){ .p = at, .n = (size_t)(end - at), .file = map });
	}
	free(unread);
	return v;
}

void store_rows_only(struct store *st, struct weight *w)
{
	struct tensor *t = store_find(st, w->name);

	w->blocks = NULL;
	if (t)
		t->whole = NULL;
}

/* ---- moving ---- */

struct move {
	struct store *st;
	const struct store_move *how;
	size_t left; /* of the piece that was asked for */
	size_t done;
};

static void drop(const struct store *st, struct store_run run)
{
	for (int i = 0; i < st->n_file; i++) {
		const struct file_map *map = &st->file[i].map;

		if (run.p >= map->p && run.p < map->p + map->n)
			file_map_drop(map, (size_t)(run.p - map->p), (size_t)(run.p - map->p) + run.n);
	}
}

static void drop_rows(const struct store *st, const struct weight *w, int first, int n)
{
	struct store_run run[STREAMS];

	streams_of(run, w, first, n);
	for (int i = 0; i < STREAMS; i++)
		drop(st, run[i]);
}

static bool more(void *arg, size_t done)
{
	const struct move *m = arg;

	return m->how->more(m->how->arg, m->done + done);
}

/* All blocks of w; false: told to end. */
static bool fill(struct move *m, uint8_t *to, const struct weight *w)
{
	size_t some = blocks_bytes(w) / (size_t)(w->rows / BLOCK_OUT);
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
		blocks_fill(to, w, first, n);
		drop_rows(m->st, w, first, n);
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
	const struct tensor *x = *(struct tensor *const *)a, *y = *(struct tensor *const *)b;
	size_t m = blocks_bytes(x->whole), n = blocks_bytes(y->whole);

	return m != n ? (m > n) - (m < n) : (x->data > y->data) - (x->data < y->data);
}

static bool wants(const struct tensor *t, const struct store_move *how)
{
	struct kernels k;

	if (!t->whole || laid_out(t) || how->arith != ARITH_FAST)
		return false;
	t->whole->fmt->kernels(&k, how->level);
	return k.blocks;
}

static struct store_room *add_room(struct store *st, size_t bytes)
{
	struct store_room room = { .p = pages_room(bytes, true), .n = bytes };

	if (!room.p)
		return NULL;
	pages_huge(room.p, bytes); /* slower without, and right */
	st->room = xrealloc(st->room, size_mul((size_t)st->n_room + 1, sizeof *st->room));
	st->room[st->n_room] = room;
	return &st->room[st->n_room++];
}

/* What is not used goes back; of what is, whole huge pages stay together. */
static void trim_room(struct store *st)
{
	struct store_room *r = &st->room[st->n_room - 1];
	size_t keep = (r->used + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;

	if (keep < r->n) {
		pages_free(r->p + keep, r->n - keep);
		r->n = keep;
	}
	pages_seal(r->p, r->n);
	if (!r->used)
		st->n_room--;
}

/* Each of t[n] a place in one room; false: told to end, or there is no memory. */
static bool lay_out(struct move *m, struct tensor **t, int n)
{
	struct store_room *room;
	size_t bytes = 0;
	bool go_on = true;

	for (int i = 0; i < n; i++)
		bytes += blocks_bytes(t[i]->whole);
	room = add_room(m->st, bytes);
	if (!room)
		return false;
	for (int i = 0; i < n; i++) {
		const struct weight *w = t[i]->whole;
		uint8_t *to = room->p + room->used;
		size_t before = m->done;

		go_on = fill(m, to, w);
		if (!go_on) {
			m->done = before;
			break;
		}
		room->used += blocks_bytes(w);
		atomic_store_explicit(&t[i]->blocks.at, to, memory_order_release);
		drop_rows(m->st, w, 0, w->rows);
	}
	trim_room(m->st);
	return go_on;
}

static void drop_unread(const struct store *st)
{
	int n;
	struct store_run *v = unread_runs(st, &n);

	for (int i = 0; i < n; i++)
		drop(st, v[i]);
	free(v);
}

static bool move_blocks(struct move *m)
{
	struct tensor **t = xcalloc(m->st->n + 1, sizeof *t);
	bool go_on = true;
	int n = 0;

	for (size_t i = 0; i < m->st->n; i++)
		if (wants(m->st->v[i], m->how))
			t[n++] = m->st->v[i];
	if (n) {
		qsort(t, (size_t)n, sizeof *t, by_size);
		go_on = lay_out(m, t, n) && more(m, 0); /* whoever read rows has had time to end */
		drop_unread(m->st);
	}
	free(t);
	return go_on;
}

static void move_rows(struct move *m)
{
	int n;
	struct store_run *v = store_runs(m->st, &n);

	m->st->rows_moved = true;
	for (int i = 0; i < n; i++) {
		const struct file_map *map = v[i].file;
		size_t from = map ? (size_t)(v[i].p - map->p) : 0;

		if (map)
			m->done += file_map_own(map, from, from + v[i].n, more, m);
	}
	free(v);
}

size_t store_move(struct store *st, const struct store_move *how)
{
	struct move m = { .st = st, .how = how };

	if (!st->rows_moved && move_blocks(&m) && how->huge_rows)
		move_rows(&m);
	return m.done;
}
