/* ear_desk.c - what the families of ears compute with: see ear_parts.h. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "sound/ear_parts.h"

int desk_open(struct ear_desk *d, struct ear *e, size_t in, size_t out, struct err *err)
{
	const struct backend_ops *ops = e->be->ops;

	*d = (struct ear_desk){ .e = e, .in_bytes = in * sizeof(float), .out_bytes = out * sizeof(float) };
	d->in = ops->alloc(e->be, d->in_bytes);
	d->out = ops->alloc(e->be, d->out_bytes);
	d->copy = try_malloc(d->in_bytes);
	if (d->in && d->out && d->copy)
		return 0;
	desk_close(d);
	return err_set(err, E_FULL, "sound: no memory for %zu bytes", 2 * d->in_bytes + d->out_bytes);
}

void desk_close(struct ear_desk *d)
{
	if (d->in)
		d->e->be->ops->free(d->e->be, d->in, d->in_bytes);
	if (d->out)
		d->e->be->ops->free(d->e->be, d->out, d->out_bytes);
	free(d->copy);
	d->in = d->out = d->copy = NULL;
}

static void bound(float *to, const float *from, size_t n, const float by[2])
{
	for (size_t i = 0; i < n; i++)
		to[i] = fminf(fmaxf(from[i], by[0]), by[1]);
}

int desk_product(struct ear_desk *d, const struct ear_linear *l, const float *in, float *out, int n, struct err *err)
{
	const struct backend_ops *ops = d->e->be->ops;
	struct pass pass = { .be = d->e->be, .arith = d->e->arith, .n_row = n };
	struct linear job = { .w = &l->w, .out = d->out, .ld = (size_t)l->w.rows, .bias = l->bias };
	size_t n_in = (size_t)n * (size_t)l->w.cols, n_out = (size_t)n * (size_t)l->w.rows;
	int rc = pass_begin(&pass);

	if (!rc) {
		if (l->bounded)
			bound(d->copy, in, n_in, l->in);
		ops->write(d->e->be, d->in, l->bounded ? d->copy : in, n_in * sizeof(float));
		ops->linear(&pass, &job, 1, d->in, n, l->w.cols);
		ops->read(d->e->be, out, d->out, n_out * sizeof(float));
	}
	if (pass_end(&pass)) {
		*err = d->e->be->failed;
		return err->code;
	}
	if (l->bounded)
		bound(out, out, n_out, l->out);
	return 0;
}

void ear_norm(float *out, const float *x, int n, int cols, const float *gain, float eps)
{
	for (int r = 0; r < n; r++, x += cols, out += cols) {
		double sum = 0;
		float by;

		for (int i = 0; i < cols; i++)
			sum += (double)x[i] * (double)x[i];
		by = (float)(1 / sqrt(sum / cols + (double)eps));
		for (int i = 0; i < cols; i++)
			out[i] = x[i] * by * (gain ? gain[i] : 1);
	}
}
