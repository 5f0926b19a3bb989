/* adapter.c - see adapter.h. */
#include "model/adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/adapter_file.h"

struct adapter_own {
	struct adapter a;
	struct arena arena;
	struct backend *be; /* that the matrices were placed with; NULL: none */
	struct placed *placed;
	int n_placed;
};

/* Does x hold a number that is none? */
static bool all_finite(const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!__builtin_isfinite(x[i]))
			return false;
	return true;
}

static int check(const struct model *m, const char *where, const struct adapter_matrix *v,
                 const struct store_matrix **to, struct err *err)
{
	const struct store_matrix *w = store_matrix(m->st, v->path);

	if (!w)
		return err_set(err, E_MISSING, "%s: %s: the model has no matrix %s", where, v->name, v->path);
	if (w->apart)
		return err_set(
			err, E_UNSUPPORTED,
			"%s: %s: adapters of embeddings, routers, experts and what is laid out anew are not done",
			where, v->name);
	if (v->rows != w->w.rows || v->cols != w->w.cols)
		return err_set(err, E_FORMAT, "%s: %s: is for [%d, %d], the model's %s is [%d, %d]", where, v->name,
		               v->rows, v->cols, v->path, w->w.rows, w->w.cols);
	if (v->rank < 1 || v->rank > LOW_RANK_MAX)
		return err_set(err, E_LIMIT, "%s: %s: rank %d, 1 to %d are read", where, v->name, v->rank,
		               LOW_RANK_MAX);
	if (!all_finite(v->a, (size_t)v->rank * (size_t)v->cols) ||
	    !all_finite(v->b, (size_t)v->rank * (size_t)v->rows) || !__builtin_isfinite(v->factor))
		return err_set(err, E_FORMAT, "%s: %s: a number in it is not finite", where, v->name);
	*to = w;
	return 0;
}

static void put(uint8_t *to, size_t at, float x, bool half)
{
	uint16_t bits = float_to_bf16(x);

	if (half)
		memcpy(to + 2 * at, &bits, 2);
	else
		memcpy(to + 4 * at, &x, 4);
}

/* A as it lies, B in panels. */
static int lay(struct adapter_own *o, struct low_rank *l, const struct adapter_matrix *v, const struct store_matrix *w,
               bool half, struct err *err)
{
	size_t rank = (size_t)v->rank, panels = ((size_t)v->rows + LOW_RANK_PANEL - 1) / LOW_RANK_PANEL;
	size_t of_a = rank * (size_t)v->cols, of_b = panels * rank * LOW_RANK_PANEL, size = half ? 2 : 4;
	/* Kernels may read a whole vector behind a row's end. */
	uint8_t *a = arena_zalloc(&o->arena, size_mul(of_a, size) + 64),
		*b = arena_zalloc(&o->arena, size_mul(of_b, size));

	for (size_t i = 0; i < of_a; i++)
		put(a, i, v->a[i], half);
	for (size_t row = 0; row < (size_t)v->rows; row++)
		for (size_t r = 0; r < rank; r++)
			put(b, (row / LOW_RANK_PANEL * rank + r) * LOW_RANK_PANEL + row % LOW_RANK_PANEL,
			    v->b[row * rank + r], half);
	*l = (struct low_rank){
		.of = w->w.data,
		.of_row_bytes = w->w.row_bytes,
		.of_rows = v->rows,
		.rank = v->rank,
		.b = b,
		.half = half,
		.factor = v->factor,
	};
	o->placed[o->n_placed++] = (struct placed){ .p = a, .bytes = of_a * size + 64 };
	o->placed[o->n_placed++] = (struct placed){ .p = b, .bytes = of_b * size };
	o->a.bytes += (of_a + of_b) * size;
	return weight_plain(&l->a, w->path, half ? DT_BF16 : DT_F32, v->rank, v->cols, a, of_a * size, err);
}

static void digest_pair(struct sha256 *s, const struct adapter_matrix *v)
{
	const int32_t size[] = { v->rank, v->rows, v->cols };

	sha256_field(s, v->path, strlen(v->path));
	sha256_put(s, size, sizeof size);
	sha256_put(s, &v->factor, sizeof v->factor);
	sha256_put(s, v->a, (size_t)v->rank * (size_t)v->cols * sizeof *v->a);
	sha256_put(s, v->b, (size_t)v->rank * (size_t)v->rows * sizeof *v->b);
}

static int by_weight(const void *x, const void *y)
{
	const struct low_rank *a = x, *b = y;

	return a->of < b->of ? -1 : a->of > b->of;
}

/* A backend with memory of its own copies the matrices to it. */
static int bring(struct adapter_own *o, struct model *m, struct err *err)
{
	const struct adapter_mix mix = { 1, { { &o->a, 1 } } };
	int code;

	if (m->be->ops->near)
		return 0;
	code = m->be->ops->place(m->be, o->placed, o->n_placed, err);
	if (code)
		return code;
	o->be = m->be;
	return m->be->ops->rehearse ? model_rehearse(m, &mix, err) : 0;
}

int adapter_make(struct adapter **out, struct model *m, const char *name, const char *where,
                 const struct adapter_matrix *v, int n, struct err *err)
{
	struct adapter_own *o = xcalloc(1, sizeof *o);
	struct sha256 s;
	int code = 0;

	*out = NULL;
	arena_init(&o->arena);
	sha256_init(&s);
	o->a.name = arena_strndup(&o->arena, name, strlen(name));
	o->a.v = arena_zalloc(&o->arena, size_mul((size_t)n, sizeof *o->a.v));
	o->placed = arena_zalloc(&o->arena, size_mul(2 * (size_t)n, sizeof *o->placed));
	if (!m->be->ops->adapts)
		code = err_set(err, E_UNSUPPORTED, "%s: backend %s has no adapters", where, m->be->ops->name);
	for (; o->a.n < n && !code; o->a.n++) {
		const struct adapter_matrix *pair = &v[o->a.n];
		const struct store_matrix *w = NULL;

		code = check(m, where, pair, &w, err);
		if (!code)
			code = lay(o, &o->a.v[o->a.n], pair, w, m->opts.arith == ARITH_FAST, err);
		if (!code)
			digest_pair(&s, pair);
	}
	sha256_end(&s, &o->a.digest);
	if (!code)
		qsort(o->a.v, (size_t)n, sizeof *o->a.v, by_weight);
	for (int i = 1; i < n && !code; i++)
		if (o->a.v[i].of == o->a.v[i - 1].of)
			code = err_set(err, E_FORMAT, "%s: two additions to %s", where, o->a.v[i].a.name);
	if (!code)
		code = bring(o, m, err);
	if (code)
		adapter_close(&o->a);
	else
		*out = &o->a;
	return code;
}

int adapter_open(struct adapter **out, struct model *m, const char *name, const char *path, struct err *err)
{
	struct adapter_file f;
	int code = adapter_file_open(&f, m->st, path, err);

	*out = NULL;
	if (!code)
		code = adapter_make(out, m, name, path, f.v, f.n, err);
	if (!code)
		log_info("adapter %s: %s: %d matrices, %.1f MB", name, path, f.n, (double)(*out)->bytes / 1e6);
	adapter_file_close(&f);
	return code;
}

void adapter_close(struct adapter *a)
{
	struct adapter_own *o = (struct adapter_own *)a;

	if (!a)
		return;
	if (o->be)
		o->be->ops->unplace(o->be, o->placed, o->n_placed);
	arena_fini(&o->arena);
	free(o);
}
