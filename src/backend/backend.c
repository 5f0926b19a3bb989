/* backend.c - what every backend shares: work memory of a pass, sizes of state. */
#include "backend/backend.h"

#include <assert.h>

float *pass_floats(struct pass *p, size_t n)
{
	size_t bytes = (n * sizeof(float) + 63) / 64 * 64;
	float *f = (float *)(p->work + p->work_used);

	assert(n <= SIZE_MAX / 8 && bytes <= p->work_cap - p->work_used);
	p->work_used += bytes;
	if (p->work_used > p->work_peak)
		p->work_peak = p->work_used;
	return f;
}

void pass_reset(struct pass *p) { p->work_used = 0; }

static size_t round16(size_t n) { return (n + 15) / 16 * 16; }

size_t state_floats(const struct state_shape *s)
{
	return (size_t)s->heads_v * (size_t)s->dim_k * round16((size_t)s->dim_v);
}

size_t state_tail_floats(const struct state_shape *s)
{
	return (size_t)(s->conv_width > 0 ? s->conv_width - 1 : 0) * (size_t)s->conv_channels;
}

/* Convolution input, key, decay, and the update's right factor. */
size_t state_tape_floats(const struct state_shape *s)
{
	return round16((size_t)s->conv_channels + (size_t)s->heads_k * (size_t)s->dim_k + (size_t)s->heads_v +
	               (size_t)s->heads_v * (size_t)s->dim_v);
}
