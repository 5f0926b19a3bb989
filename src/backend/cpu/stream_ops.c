/* stream_ops.c - several residual streams side by side (struct backend_ops, mix_streams and others). */
#include <assert.h>

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
