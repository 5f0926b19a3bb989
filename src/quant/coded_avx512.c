/* coded_avx512.c */
#include "quant/levels.h"
void coded_mul_avx512(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                  int r1, void *scratch)
{
	coded_mul_scalar(out, ld, w, o0, o1, x, r0, r1, scratch);
}
