/* grid_ops.c - the operations that towers of images need besides a text model's: heads rotated by places on a grid,
 * bounds, and gates that are not part of a product. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"

struct rows_job {
	const struct op_table *op;
	float *out;
	const float *gain, *shift;
	float low, high;
	int cols;
};

static void affine_rows(void *ctx, int begin, int end)
{
	const struct rows_job *j = ctx;

	for (int i = begin; i < end; i++)
		j->op->affine(j->out + (size_t)i * (size_t)j->cols, j->cols, j->gain, j->shift, j->low, j->high);
}

void cpu_affine(struct pass *p, float *x, int n, int cols, const float *gain, const float *shift, float low, float high)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct rows_job j = {
		.op = c->op, .out = x, .gain = gain, .shift = shift, .low = low, .high = high, .cols = cols
	};

	cpu_range(c, affine_rows, &j, n, cpu_grain_rows(cols));
}

struct gate_job {
	const struct op_table *op;
	float *x;
	const float *y;
	int cols;
	const struct activation *act;
};

static void gate_rows(void *ctx, int begin, int end)
{
	const struct gate_job *j = ctx;

	for (int i = begin; i < end; i++) {
		size_t at = (size_t)i * (size_t)j->cols;

		j->op->gate(j->x + at, j->x + at, j->y + at, j->cols, j->act);
	}
}

void cpu_gate(struct pass *p, float *x, const float *y, int n, int cols, const struct activation *act)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct gate_job j = { c->op, x, y, cols, act };

	assert(!act_needs_factor(act->kind)); /* which changes y */
	cpu_range(c, gate_rows, &j, n, cpu_grain_rows(cols));
}

struct heads_job {
	const struct op_table *op;
	float *out;
	const float *in;
	int out_dim, in_dim, heads;
	const struct grid_rope *rope;
	const int32_t (*at)[2];
};

static void rotate(const struct heads_job *j, float *x, const int32_t at[2])
{
	const struct grid_rope *r = j->rope;
	int apart = r->halves ? r->freqs : 2 * r->freqs, second = r->halves ? 2 * r->freqs : r->freqs;

	for (int axis = 0; axis < 2; axis++) {
		size_t place = (size_t)at[axis] * (size_t)r->freqs;

		j->op->rope(x + axis * second, r->cos[axis] + place, r->sin[axis] + place, r->freqs, apart);
	}
}

static void heads_rows(void *ctx, int begin, int end)
{
	const struct heads_job *j = ctx;
	size_t both = (size_t)(j->in_dim < j->out_dim ? j->in_dim : j->out_dim) * sizeof(float);

	for (int i = begin; i < end; i++)
		for (int h = 0; h < j->heads; h++) {
			size_t head = (size_t)i * (size_t)j->heads + (size_t)h;
			float *to = j->out + head * (size_t)j->out_dim;
			const float *from = j->in + head * (size_t)j->in_dim;

			if (to != from)
				memcpy(to, from, both);
			if (j->out_dim > j->in_dim)
				memset(to + j->in_dim, 0, (size_t)(j->out_dim - j->in_dim) * sizeof(float));
			if (j->rope)
				rotate(j, to, j->at[i]);
		}
}

void cpu_heads(struct pass *p, float *out, int out_dim, const float *in, int in_dim, int n, int heads,
               const struct grid_rope *rope)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct heads_job j = { c->op, out, in, out_dim, in_dim, heads, rope, p->grid };

	assert(!rope || (p->grid && n == p->n_row));
	assert((out != in || out_dim == in_dim) && (!rope || (4 * rope->freqs <= in_dim && in_dim <= out_dim)));
	cpu_range(c, heads_rows, &j, n, cpu_grain_rows(heads * out_dim));
}
