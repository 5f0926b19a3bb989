/* stream_ops.c - several residual streams side by side (struct backend_ops, mix_streams and others). */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"

struct streams_job {
	const struct cpu_backend *c;
	float *out;
	const float *a, *b;
	int streams, cols;
	float scale;
	bool add;
};

static void mix_rows(void *ctx, int begin, int end)
{
	const struct streams_job *j = ctx;
	size_t cols = (size_t)j->cols, all = cols * (size_t)j->streams;

	for (size_t i = (size_t)begin; i < (size_t)end; i++)
		j->c->op->mix(j->out + i * cols, j->a + i * all, j->b + i * all, j->streams, j->cols);
}

void cpu_mix_streams(struct pass *p, float *out, const float *x, const float *by, int n, int streams, int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct streams_job j = { .c = c, .out = out, .a = x, .b = by, .streams = streams, .cols = cols };

	cpu_range(c, mix_rows, &j, n, cpu_grain_rows(streams * cols));
}

static void add_rows(void *ctx, int begin, int end)
{
	const struct streams_job *j = ctx;
	size_t cols = (size_t)j->cols, streams = (size_t)j->streams;

	for (size_t i = (size_t)begin; i < (size_t)end; i++)
		for (size_t s = 0; s < streams; s++)
			j->c->op->spread(j->out + (i * streams + s) * cols, j->add, j->scale * j->b[i * streams + s],
			                 j->a + i * cols, j->cols);
}

void cpu_add_streams(struct pass *p, float *x, bool add, const float *y, const float *by, float scale, int n,
                     int streams, int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct streams_job j = { c, x, y, by, streams, cols, scale, add };

	cpu_range(c, add_rows, &j, n, cpu_grain_rows(streams * cols));
}

static void match_rows(void *ctx, int begin, int end)
{
	const struct streams_job *j = ctx;
	size_t cols = (size_t)j->cols, streams = (size_t)j->streams;

	for (size_t i = (size_t)begin; i < (size_t)end; i++) {
		for (size_t s = i * streams; s < (i + 1) * streams; s++)
			j->out[s] = j->c->vec.dot(j->a + s * cols, j->b + s * cols, j->cols);
		j->c->op->root(j->out + i * streams, j->scale, j->streams);
		j->c->op->sigmoid(j->out + i * streams, j->out + i * streams, j->streams);
	}
}

void cpu_match_streams(struct pass *p, float *out, const float *a, const float *b, float scale, int n, int streams,
                       int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct streams_job j = { .c = c, .out = out, .a = a, .b = b, .streams = streams, .cols = cols, .scale = scale };

	cpu_range(c, match_rows, &j, n, cpu_grain_rows(streams * cols));
}

/* ---- streams that gates mix ---- */

struct gates_job {
	struct cpu_backend *c;
	const struct stream_gates *g;
	float *out, *z;
	const float *x;
	int cols;
};

/* m[streams][streams] divided by sums, eps added: of columns, or of rows. */
static void balance(float *m, int n, float eps, bool columns)
{
	int line = columns ? 1 : n, step = columns ? n : 1;

	for (int i = 0; i < n; i++) {
		float *at = m + i * line, sum = 0;

		for (int k = 0; k < n; k++)
			sum += at[k * step];
		sum += eps;
		for (int k = 0; k < n; k++)
			at[k * step] /= sum;
	}
}

static void softmax_rows(const struct op_table *op, float *m, int n, float eps)
{
	for (int a = 0; a < n; a++) {
		float *row = m + a * n, most = row[0], sum = 0;

		for (int b = 1; b < n; b++)
			most = row[b] > most ? row[b] : most;
		for (int b = 0; b < n; b++)
			row[b] -= most;
		op->exp(row, row, n);
		for (int b = 0; b < n; b++)
			sum += row[b];
		for (int b = 0; b < n; b++)
			row[b] = row[b] / sum + eps;
	}
}

static void gates_of(const struct op_table *op, float *z, const struct stream_gates *g)
{
	int n = g->streams;
	float *m = z + 2 * n;

	for (int i = 0; i < (g->rounds ? stream_gates_cols(n) : n); i++)
		z[i] = z[i] * g->scale[i < 2 * n ? i / n : 2] + g->base[i];
	op->sigmoid(z, z, g->rounds ? 2 * n : n);
	for (int s = 0; s < n; s++) {
		z[s] += g->eps;
		if (g->rounds)
			z[n + s] *= 2;
	}
	if (!g->rounds)
		return;
	softmax_rows(op, m, n, g->eps);
	balance(m, n, g->eps, true);
	for (int i = 1; i < g->rounds; i++) {
		balance(m, n, g->eps, false);
		balance(m, n, g->eps, true);
	}
}

static void gate_rows(void *ctx, int begin, int end)
{
	const struct gates_job *j = ctx;
	int streams = j->g->streams, gates = j->g->rounds ? stream_gates_cols(streams) : streams;

	for (int i = begin; i < end; i++) {
		float *z = j->z + (size_t)i * (size_t)gates, *out = j->out + (size_t)i * (size_t)j->cols;
		const float *x = j->x + (size_t)i * (size_t)streams * (size_t)j->cols;

		gates_of(j->c->op, z, j->g);
		for (int s = 0; s < streams; s++)
			j->c->op->spread(out, s > 0, z[s], x + (size_t)s * (size_t)j->cols, j->cols);
	}
}

void cpu_gate_streams(struct pass *p, float *out, float *z, const struct stream_gates *g, const float *x, int n,
                      int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct gates_job j = { .c = c, .g = g, .out = out, .z = z, .x = x, .cols = cols };

	assert(g->streams > 0 && g->streams <= STREAMS_MOST && g->rounds >= 0);
	cpu_range(c, gate_rows, &j, n, cpu_grain_rows(g->streams * cols));
}

struct join_job {
	struct cpu_backend *c;
	float *x;
	const float *gates, *y;
	int streams, cols;
};

static void join_rows(void *ctx, int begin, int end)
{
	const struct join_job *j = ctx;
	size_t cols = (size_t)j->cols, n = (size_t)j->streams;
	float *old = cpu_my_scratch(j->c);

	for (size_t i = (size_t)begin; i < (size_t)end; i++) {
		const float *z = j->gates + i * (size_t)stream_gates_cols(j->streams), *post = z + n, *m = z + 2 * n;
		float *x = j->x + i * n * cols;

		memcpy(old, x, n * cols * sizeof *x);
		for (size_t b = 0; b < n; b++) {
			j->c->op->spread(x + b * cols, false, post[b], j->y + i * cols, j->cols);
			for (size_t a = 0; a < n; a++)
				j->c->op->spread(x + b * cols, true, m[a * n + b], old + a * cols, j->cols);
		}
	}
}

void cpu_join_streams(struct pass *p, float *x, const float *gates, const float *y, int n, int streams, int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct join_job j = { c, x, gates, y, streams, cols };

	cpu_scratch(c, (size_t)streams * (size_t)cols * sizeof *x);
	cpu_range(c, join_rows, &j, n, cpu_grain_rows(streams * cols));
}

static void mean_rows(void *ctx, int begin, int end)
{
	const struct streams_job *j = ctx;
	size_t cols = (size_t)j->cols, streams = (size_t)j->streams;

	for (size_t i = (size_t)begin; i < (size_t)end; i++)
		for (size_t s = 0; s < streams; s++)
			j->c->op->spread(j->out + i * cols, s > 0, j->scale, j->a + (i * streams + s) * cols, j->cols);
}

void cpu_mean_streams(struct pass *p, float *out, const float *x, int n, int streams, int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct streams_job j = {
		.c = c, .out = out, .a = x, .streams = streams, .cols = cols, .scale = 1.0f / (float)streams
	};

	cpu_range(c, mean_rows, &j, n, cpu_grain_rows(streams * cols));
}
