/* slabs.c - see slabs.h. */
#include "backend/slabs.h"
#include "backend/stream_files.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

enum { LINE = 64 }; /* matrices begin at one */

static size_t up_to(size_t n, size_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* A matrix by itself, without the packed form of its stack. */
static struct weight alone(const struct weight *w)
{
	struct weight own = *w;

	own.packed = NULL;
	own.packed_row0 = 0;
	return own;
}

struct run {
	const uint8_t *p;
	size_t n;
};

/* Data, scales, biases; n 0: there are none. */
static void runs_of(struct run run[SLAB_STREAMS], const struct weight *w)
{
	size_t scales = (size_t)w->rows * weight_scale_bytes(w);

	run[0] = (struct run){ w->data, (size_t)w->rows * w->row_bytes };
	run[1] = (struct run){ w->scales, w->scales ? scales : 0 };
	run[2] = (struct run){ w->biases, w->biases ? scales : 0 };
}

/* ---- packed ---- */

void slab_lay_packed(struct slab_lay *lay, const struct moe *m, int expert, slab_packs_fn *packs, const void *arg)
{
	size_t at = 0;

	*lay = (struct slab_lay){ 0 };
	for (enum slab_part i = 0; i < SLAB_PARTS; i++) {
		const struct weight *w = slab_weight(m, expert, i);
		struct run run[SLAB_STREAMS];
		struct weight own;

		if (!w)
			continue;
		own = alone(w);
		lay->part[i].packed = packs(arg, &own);
		runs_of(run, w);
		if (lay->part[i].packed) {
			run[0].n = packed_bytes(&own);
			run[1].n = run[2].n = 0;
		}
		for (int k = 0; k < SLAB_STREAMS; k++) {
			lay->part[i].at[k] = at;
			at += up_to(run[k].n, LINE);
		}
	}
	lay->bytes = up_to(at, READ_ALIGN);
}

void slab_fill(uint8_t *slab, const struct slab_lay *lay, const struct moe *m, int expert)
{
	memset(slab, 0, lay->bytes);
	for (enum slab_part i = 0; i < SLAB_PARTS; i++) {
		const struct weight *w = slab_weight(m, expert, i);
		struct run run[SLAB_STREAMS];
		struct weight own;

		if (!w)
			continue;
		own = alone(w);
		if (lay->part[i].packed) {
			packed_fill(slab + lay->part[i].at[0], &own, 0, own.rows);
			continue;
		}
		runs_of(run, w);
		for (int k = 0; k < SLAB_STREAMS; k++)
			if (run[k].n)
				memcpy(slab + lay->part[i].at[k], run[k].p, run[k].n);
	}
}

bool slab_wants_packing(const struct moe *m, int expert, slab_packs_fn *packs, const void *arg)
{
	for (enum slab_part i = 0; i < SLAB_PARTS; i++) {
		const struct weight *w = slab_weight(m, expert, i);
		struct weight own;

		if (!w)
			continue;
		own = alone(w);
		if (!packed_rows_slow(w) || !packs(arg, &own))
			return false;
	}
	return true;
}

/* ---- straight from the checkpoint ---- */

/* Whole pages of the file around a run, at the slab's end so far. */
static struct slab_extent around(const struct stream_file *file, int at, struct run run, size_t to)
{
	uint64_t from = (uint64_t)(run.p - file[at].map->p), begin = from / READ_ALIGN * READ_ALIGN;

	return (struct slab_extent){
		.file = at,
		.at = begin,
		.need = (size_t)(from - begin) + run.n,
		.n = up_to((size_t)(from - begin) + run.n, READ_ALIGN),
		.to = to,
	};
}

/* Does the run begin where the extent's last one ends?  Then one read brings both. */
static bool goes_on(const struct slab_extent *x, const struct stream_file *file, int at, struct run run)
{
	return x->file == at && x->at + x->need == (uint64_t)(run.p - file[at].map->p);
}

int slab_lay_checkpoint(struct slab_lay *lay, struct slab_extent x[SLAB_EXTENTS], const struct moe *m, int expert,
                        const struct stream_file *file, int n_file)
{
	int n = 0;

	*lay = (struct slab_lay){ 0 };
	for (enum slab_part i = 0; i < SLAB_PARTS; i++) {
		const struct weight *w = slab_weight(m, expert, i);
		struct run run[SLAB_STREAMS];

		if (!w)
			continue;
		runs_of(run, w);
		for (int k = 0; k < SLAB_STREAMS; k++) {
			int at = run[k].n ? stream_file_of(file, n_file, run[k].p, run[k].n) : 0;

			if (at < 0)
				return 0;
			if (!run[k].n)
				continue;
			if (n && goes_on(&x[n - 1], file, at, run[k])) {
				x[n - 1].need += run[k].n;
				x[n - 1].n = up_to(x[n - 1].need, READ_ALIGN);
			} else {
				x[n++] = around(file, at, run[k], lay->bytes);
			}
			lay->part[i].at[k] = x[n - 1].to + x[n - 1].need - run[k].n;
			lay->bytes = x[n - 1].to + x[n - 1].n;
		}
	}
	return n;
}

void slab_view(struct slab_view *v, const uint8_t *slab, const struct slab_lay *lay, const struct moe *m, int expert)
{
	for (enum slab_part i = 0; i < SLAB_PARTS; i++) {
		const struct weight *of = slab_weight(m, expert, i);
		const uint8_t *p = slab + lay->part[i].at[0];
		struct weight *w = &v->w[i];

		if (!of) { /* the view may have been another mixture's */
			*w = (struct weight){ 0 };
			continue;
		}
		*w = alone(of);
		w->data = p;
		w->scales = of->scales ? slab + lay->part[i].at[1] : NULL;
		w->biases = of->biases ? slab + lay->part[i].at[2] : NULL;
		atomic_store_explicit(&v->packed[i].at, lay->part[i].packed ? p : NULL, memory_order_relaxed);
		if (lay->part[i].packed)
			w->packed = &v->packed[i];
	}
}

int slab_pieces(const struct slab_view *rows)
{
	int n = 0;

	for (enum slab_part i = 0; i < SLAB_PARTS; i++)
		n += rows->w[i].rows / BLOCK_OUT;
	return n;
}

void slab_pack(uint8_t *slab, const struct slab_lay *lay, const struct slab_view *rows, int begin, int end)
{
	for (enum slab_part i = 0; i < SLAB_PARTS; i++) {
		const struct weight *w = &rows->w[i];
		int n = w->rows / BLOCK_OUT, from = begin > 0 ? begin : 0, to = end < n ? end : n;

		if (from < to) {
			size_t each = packed_bytes(w) / (size_t)n;

			assert(lay->part[i].packed);
			packed_fill(slab + lay->part[i].at[0] + (size_t)from * each, w, from * BLOCK_OUT,
			            (to - from) * BLOCK_OUT);
		}
		begin -= n;
		end -= n;
	}
}
