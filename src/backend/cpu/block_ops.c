/* block_ops.c - what rows of one block of guesses take from each other besides attention (struct backend_ops, conv_block). */
#include <assert.h>

#include "backend/cpu/cpu_backend.h"

struct block_job {
	const struct pass *p;
	const struct cpu_backend *c;
	float *out;
	const float *in, *base, *by;
	size_t by_ld;
	int taps, each, cols;
};

static void conv_rows(void *ctx, int begin, int end)
{
	const struct block_job *j = ctx;
	size_t cols = (size_t)j->cols, groups = (cols + (size_t)j->each - 1) / (size_t)j->each;

	for (int i = begin; i < end; i++) {
		int before = i - j->p->row[j->p->item[i]];
		float *out = j->out + (size_t)i * cols;
		const float *by = j->by + (size_t)i * j->by_ld;

		for (int k = 0; k < j->taps && k <= before; k++)
			j->c->op->tap(out, k > 0, j->base + (size_t)k * cols, by + (size_t)k * groups, j->each,
			              j->in + (size_t)(i - k) * cols, j->cols);
	}
}

void cpu_conv_block(struct pass *p, float *out, const float *in, const float *base, const float *by, size_t by_ld,
                    int taps, int each, int cols)
{
	enum { GRAIN = 8192 };
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct block_job j = { p, c, out, in, base, by, by_ld, taps, each, cols };

	assert(out != in && taps > 0 && each > 0);
	cpu_range(c, conv_rows, &j, p->n_row, cols >= GRAIN ? 1 : GRAIN / cols);
}
