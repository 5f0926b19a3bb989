/* guess.c - see guess.h. */
#include "backend/cpu/guess.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "quant/encode/encode.h"

static const struct gguf_type *small_type(void)
{
	return gguf_type_named("Q8_0");
}

static size_t row_bytes(const struct weight *router)
{
	const struct gguf_type *type = small_type();

	return (size_t)(router->cols / type->block) * (size_t)type->block_bytes;
}

/* Rows of the small form at `data`, which need not be there yet. */
static bool rows_at(struct weight *w, const struct weight *router, const uint8_t *data)
{
	struct err why;

	return router->cols % small_type()->block == 0 &&
	       !weight_gguf(w, router->name, small_type(), router->rows, router->cols, data,
	                    (size_t)router->rows * row_bytes(router), &why) &&
	       packed_fit(w);
}

size_t guess_router_bytes(struct cpu_backend *c, const struct weight *router)
{
	struct weight w;

	return cpu_kernels(c, small_type()->fmt)->packed && rows_at(&w, router, NULL) ? packed_bytes(&w) : 0;
}

bool guess_router_make(struct guess_router *g, const struct weight *router, uint8_t *to)
{
	size_t each = row_bytes(router);
	uint8_t *rows = xmalloc((size_t)router->rows * each);
	float *x = xmalloc((size_t)router->cols * sizeof *x);
	bool fits = rows_at(&g->w, router, rows);

	assert(fits);
	for (int o = 0; o < router->rows && fits; o++) {
		router->fmt->decode(x, router, o);
		fits = encode_takes(x, router->cols);
		if (fits)
			gguf_encode(rows + (size_t)o * each, small_type(), x, router->cols, NULL);
	}
	if (fits) {
		packed_fill(to, &g->w, 0, g->w.rows);
		atomic_store_explicit(&g->packed.at, to, memory_order_release);
		g->w.packed = &g->packed;
		g->w.data = to; /* the rows go; kernels of packed weights name their addresses at most (races.h) */
	} else {
		g->w = (struct weight){ 0 };
	}
	free(x);
	free(rows);
	return fits;
}
