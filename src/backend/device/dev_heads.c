/* dev_heads.c - products by head, and heads of other sizes (kernels/heads.cl). */
#include <assert.h>

#include "backend/device/dev.h"

enum { LAUNCH_UNITS = 32768 }; /* units of one launch: a device counts work-groups of its second side in 16 bits */

void dev_by_head(struct pass *p, float *out, const struct by_head *h, const float *in, int n)
{
	struct dev *d = dev_of(p);
	int cols = h->w[0].cols, rows = h->w[0].rows, units;
	size_t places = (size_t)n * (size_t)h->heads, of_in = places * (size_t)cols, of_out = places * (size_t)rows;
	struct dev_acts a = { .rows = (int)places, .cols = cols };
	const struct dev_weight *w;
	struct dev_places by;
	struct dmem room, given;

	if (n <= 0 || dev_idle(d))
		return;
	w = dev_stack_of(d, h->w, h->heads, p->arith);
	if (!w)
		return;
	by = (struct dev_places){ .experts = h->heads, .size = dev_unit_size(w, n) };
	units = h->heads * ((n + by.size - 1) / by.size);
	of_in = (of_in + 63) / 64 * 64;
	of_out = (of_out + 63) / 64 * 64;
	room = dev_room(d, ROOM_MIX, (of_in + of_out + 3 * (size_t)units) * sizeof(float));
	a.in = room;
	given = dmem_at(room, of_in * sizeof(float));
	by.unit = dmem_at(given, of_out * sizeof(float));
	dev_run(d, "heads", "by_head", DEV_THREADS, dev_blocks(places * (size_t)cols), 1,
	        DARGS(darg_mem(a.in), darg_mem(by.unit), darg_mem(dev_at(d, in)), darg_int(n), darg_int(h->heads),
	              darg_int(cols), darg_int((int)h->in_head), darg_int(by.size)));
	for (int first = 0; first < units; first += by.units) {
		struct dev_places some = by;

		by.units = units - first < LAUNCH_UNITS ? units - first : LAUNCH_UNITS;
		some.units = by.units;
		some.unit = dmem_at(by.unit, 3 * (size_t)first * sizeof(int));
		dev_product(d, p->arith, &a, h->w, given, (size_t)rows, NULL, false, &some);
	}
	dev_run(d, "heads", "by_row", DEV_THREADS, dev_blocks(places * (size_t)(h->rest + rows)), 1,
	        DARGS(darg_mem(dev_at(d, out)), darg_mem(given), darg_mem(dev_at(d, in)), darg_int(n),
	              darg_int(h->heads), darg_int(rows), darg_int((int)h->out_head), darg_int(h->rest), darg_int(cols),
	              darg_int((int)h->in_head)));
}

void dev_heads(struct pass *p, float *out, int out_dim, const float *in, int in_dim, int n, int heads,
               const struct grid_rope *rope)
{
	struct dev *d = dev_of(p);

	assert(out != in || out_dim == in_dim);
	if (rope) {
		dev_refuse(d, "heads that are rotated by a grid");
		return;
	}
	dev_run(d, "heads", "resize", DEV_THREADS, dev_blocks((size_t)n * (size_t)heads * (size_t)out_dim), 1,
	        DARGS(darg_mem(dev_at(d, out)), darg_mem(dev_at(d, in)), darg_int(n * heads), darg_int(out_dim),
	              darg_int(in_dim)));
}
