/* dev_low.c - what adapters add to the products of a linear, in the order of backend/low_rank.h. */
#include <assert.h>

#include "backend/device/dev.h"

/* Rows [r0, r1) of the linear have this addition. */
static void add_run(struct pass *p, const struct dev_acts *a, const struct weight *w, struct dmem out, size_t ld,
                    const struct low_rank *l, float scale, int row0, int r0, int r1)
{
	struct dev *d = dev_of(p);
	size_t rank = (size_t)l->rank;
	struct dev_acts rows = { .in = dmem_at(a->in, (size_t)r0 * (size_t)a->cols * sizeof(float)),
		                 .rows = r1 - r0,
		                 .cols = a->cols };
	struct dmem h = dev_room(d, ROOM_LOW, (size_t)a->rows * rank * sizeof(float)), b = dev_vector(d, l->b);

	assert(l->a.cols == w->cols && row0 + w->rows <= l->of_rows);
	dev_product(d, p->arith, &rows, &l->a, h, rank, NULL, false, NULL);
	dev_run(d, "low_rank", "low_rank", DEV_THREADS, dev_blocks((size_t)w->rows), r1 - r0,
	        DARGS(darg_mem(dmem_at(out, (size_t)r0 * ld * sizeof(float))), darg_mem(h), darg_mem(b),
	              darg_int((int)ld), darg_int(w->rows), darg_int(l->rank), darg_int(row0), darg_int(l->half),
	              darg_float(scale)));
}

void dev_low_rank(struct pass *p, const struct dev_acts *a, const struct weight *w, struct dmem out, size_t ld)
{
	for (int i = 0, j; p->adapter && i < p->n_item && !dev_idle(dev_of(p)); i = j) {
		const struct adapter_mix *mix = p->adapter[i];
		int r0 = low_rank_first_row(p, i, a->rows), r1, row0;

		for (j = i + 1; j < p->n_item && mix && p->adapter[j] && adapter_mix_same(mix, p->adapter[j]);)
			j++;
		r1 = low_rank_first_row(p, j, a->rows);
		for (int k = 0; mix && k < mix->n && r0 < r1; k++) {
			const struct low_rank *l = low_rank_find(mix->part[k].of, w, &row0);

			if (l)
				add_run(p, a, w, out, ld, l, mix->part[k].scale * l->factor, row0, r0, r1);
		}
	}
}

void dev_add_rows(struct dev *d, struct dmem x, size_t ld, struct dmem y, int n, int cols)
{
	dev_run(d, "low_rank", "add_rows", DEV_THREADS, dev_blocks((size_t)cols), n,
	        DARGS(darg_mem(x), darg_mem(y), darg_int((int)ld), darg_int(cols)));
}
