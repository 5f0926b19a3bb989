/* weight.c - rows of a weight. */
#include "quant/basis.h"

size_t weight_scale_bytes(const struct weight *w)
{
	return w->scales ? (size_t)(w->cols / w->group) * (size_t)dtype_size(w->scale_type) : 0;
}

struct weight weight_rows(const struct weight *w, int first, int n)
{
	struct weight r = *w;

	r.rows = n;
	r.data += (size_t)first * w->row_bytes;
	if (r.scales)
		r.scales += (size_t)first * weight_scale_bytes(w);
	if (r.biases)
		r.biases += (size_t)first * weight_scale_bytes(w);
	r.packed_row0 += first;
	return r;
}

void weight_decode(float *out, const struct weight *w, int o)
{
	w->fmt->decode(out, w, o);
	if (w->basis)
		basis_undo(w->basis, out);
}
