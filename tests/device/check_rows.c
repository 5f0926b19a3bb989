/* check_rows.c - kernels/rows.cl. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "check.h"

enum { THREADS = 256 };

struct rows {
	struct pass p;
	float *x, *y, *z, *gain, *bias, *want;
	struct dmem dx, dy, dz, dgain, dbias;
	int n, cols;
	size_t all;
};

static struct dmem out(struct check *c, const struct rows *r)
{
	return check_up(c, NULL, r->all * sizeof(float));
}

static int groups(int n)
{
	return (n + THREADS - 1) / THREADS;
}

static void norms(struct check *c, struct rows *r)
{
	const float eps = 1e-6f;
	struct dmem none = { 0 }, o = out(c, r);
	struct darg cols = darg_int(r->cols), e = darg_float(eps), one = darg_int(1);
	const struct backend_ops *cpu = c->cpu->ops;

	cpu->norm(&r->p, r->want, r->x, r->n, r->cols, r->gain, eps);
	check_run(c, "rows", "norm", THREADS, r->n, 1,
	          ARGS(darg_mem(o), darg_mem(r->dx), darg_mem(r->dgain), cols, e, one));
	check_alike(c, "norm", r->want, o, r->all);
	cpu->norm(&r->p, r->want, r->x, r->n, r->cols, NULL, eps);
	check_run(c, "rows", "norm", THREADS, r->n, 1,
	          ARGS(darg_mem(o), darg_mem(r->dx), darg_mem(none), cols, e, one));
	check_alike(c, "norm without gain", r->want, o, r->all);
	for (int i = 0; i < r->n; i++)
		cpu->norm(&r->p, r->want + i * r->cols, r->x + i * r->cols, 1, r->cols, r->y + i % 2 * r->cols, eps);
	check_run(c, "rows", "norm", THREADS, r->n, 1,
	          ARGS(darg_mem(o), darg_mem(r->dx), darg_mem(r->dy), cols, e, darg_int(2)));
	check_alike(c, "norms side by side", r->want, o, r->all);
	cpu->layer_norm(&r->p, r->want, r->x, r->n, r->cols, r->gain, r->bias, eps);
	check_run(c, "rows", "layer_norm", THREADS, r->n, 1,
	          ARGS(darg_mem(o), darg_mem(r->dx), darg_mem(r->dgain), darg_mem(r->dbias), cols, e));
	check_alike(c, "layer_norm", r->want, o, r->all);
}

static void gates(struct check *c, struct rows *r)
{
	const struct backend_ops *cpu = c->cpu->ops;

	for (int kind = ACT_NONE; kind <= ACT_TANH; kind++) {
		struct activation act = { .kind = (enum act)kind, .alpha = 1.702f, .limit = 7.0f };
		struct dmem o = check_up(c, r->x, r->all * sizeof(float));
		char what[32];

		memcpy(r->want, r->x, r->all * sizeof *r->want);
		cpu->gate(&r->p, r->want, r->y, r->n, r->cols, &act);
		check_run(c, "rows", "gate", THREADS, groups((int)r->all), 1,
		          ARGS(darg_mem(o), darg_mem(r->dy), darg_int((int)r->all), darg_int(kind),
		               darg_float(act.alpha), darg_float(act.limit)));
		snprintf(what, sizeof what, "gate, activation %d", kind);
		check_alike(c, what, r->want, o, r->all);
	}
}

static void sums(struct check *c, struct rows *r)
{
	const struct backend_ops *cpu = c->cpu->ops;
	struct dmem o = check_up(c, r->x, r->all * sizeof(float)), none = { 0 };
	struct darg n = darg_int((int)r->all), cols = darg_int(r->cols);
	float scale = 0.37f, cap = 30.0f;

	memcpy(r->want, r->x, r->all * sizeof *r->want);
	cpu->add(&r->p, r->want, r->y, r->n, r->cols, scale);
	check_run(c, "rows", "add", THREADS, groups((int)r->all), 1,
	          ARGS(darg_mem(o), darg_mem(r->dy), n, darg_float(scale)));
	check_alike(c, "add", r->want, o, r->all);
	for (int capped = 0; capped < 2; capped++) {
		float at = capped ? cap : 0.0f;

		cpu->map(&r->p, r->want, r->n, r->cols, scale, at);
		check_run(c, "rows", "map", THREADS, groups((int)r->all), 1,
		          ARGS(darg_mem(o), n, darg_float(scale), darg_float(2.0f * scale / cap), darg_float(at)));
		check_alike(c, capped ? "map with a cap" : "map", r->want, o, r->all);
	}
	for (int each = 1; each <= 2; each++) {
		if (r->cols % each)
			continue;
		cpu->mul(&r->p, r->want, r->y, (size_t)r->cols, each, r->n, r->cols);
		check_run(c, "rows", "mul", THREADS, groups(r->cols), r->n,
		          ARGS(darg_mem(o), darg_mem(r->dy), cols, darg_int(each), darg_int(r->n), cols));
		check_alike(c, "mul", r->want, o, r->all);
	}
	cpu->blend(&r->p, r->want, (size_t)r->cols, r->x, r->y, r->z, r->n, r->cols);
	check_run(c, "rows", "blend", THREADS, groups(r->cols), r->n,
	          ARGS(darg_mem(o), darg_mem(r->dx), darg_mem(r->dy), darg_mem(r->dz), cols, cols));
	check_alike(c, "blend", r->want, o, r->all);
	cpu->affine(&r->p, r->want, r->n, r->cols, r->gain, NULL, -0.75f, 0.5f);
	check_run(c, "rows", "affine", THREADS, groups(r->cols), r->n,
	          ARGS(darg_mem(o), darg_mem(r->dgain), darg_mem(none), cols, darg_float(-0.75f), darg_float(0.5f)));
	check_alike(c, "affine", r->want, o, r->all);
}

static void gathered(struct check *c, struct rows *r)
{
	int32_t *index = xmalloc((size_t)r->n * sizeof *index);
	struct dmem o = out(c, r), di;

	for (int i = 0; i < r->n; i++)
		index[i] = (i * 7 + 3) % r->n;
	di = check_up(c, index, (size_t)r->n * sizeof *index);
	c->cpu->ops->gather(&r->p, r->want, r->x, index, r->n, r->cols);
	check_run(c, "rows", "gather", THREADS, groups(r->cols), r->n,
	          ARGS(darg_mem(o), darg_mem(r->dx), darg_mem(di), darg_int(r->cols)));
	check_alike(c, "gather", r->want, o, r->all);
	free(index);
}

/* What moves memory, through the backend: also a copy onto itself. */
static void check_copies(struct check *c)
{
	enum { N = 1024 };
	struct backend *be = check_backend(c);
	float *want = check_floats(N, 5), got[N], *far = be->ops->alloc(be, 2 * N * sizeof *far);

	be->ops->write(be, far, want, N * sizeof *want);
	be->ops->copy(be, far, far, N * sizeof *want);
	be->ops->copy(be, far + N, far, N * sizeof *want);
	check_ok(be->ops->read(be, got, far + N, sizeof got), &be->failed);
	check_floats_alike(c, "copies", want, got, N);
	be->ops->free(be, far, 2 * N * sizeof *far);
	be->ops->close(be);
	free(want);
}

void check_rows(struct check *c)
{
	static const int shape[][2] = { { 3, 40 }, { 1, 1 }, { 2, 257 }, { 5, 1024 }, { 2, 5120 }, { 33, 96 } };

	for (size_t i = 0; i < (c->small ? 1 : sizeof shape / sizeof *shape); i++) {
		struct rows r = { .p = { .be = c->cpu }, .n = shape[i][0], .cols = shape[i][1] };

		r.all = (size_t)r.n * (size_t)r.cols;
		r.x = check_floats(r.all, 1), r.y = check_floats(r.all, 2), r.z = check_floats(r.all, 3);
		r.gain = check_floats((size_t)r.cols, 4), r.bias = check_floats((size_t)r.cols, 5);
		r.want = xmalloc(r.all * sizeof *r.want);
		r.dx = check_up(c, r.x, r.all * sizeof(float)), r.dy = check_up(c, r.y, r.all * sizeof(float));
		r.dz = check_up(c, r.z, r.all * sizeof(float));
		r.dgain = check_up(c, r.gain, (size_t)r.cols * sizeof(float));
		r.dbias = check_up(c, r.bias, (size_t)r.cols * sizeof(float));
		norms(c, &r);
		gates(c, &r);
		sums(c, &r);
		gathered(c, &r);
		check_done(c);
		free(r.x), free(r.y), free(r.z), free(r.gain), free(r.bias), free(r.want);
	}
	check_copies(c);
}
