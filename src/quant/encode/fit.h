/* fit.h - inside quant/encode: the scale, and the bias, with which codes come nearest to some numbers. */
#ifndef QUANT_FIT_H
#define QUANT_FIT_H

enum { FIT_MOST = 256 }; /* numbers at once, whose count is a multiple of 4 */

/* The values of codes: lo .. hi, or those of a rising table [n]. */
struct steps {
	int lo, hi;
	const signed char *table; /* NULL: all integers between */
	int n;
};

/* value = a * step + c.  Codes count from 0: step lo or table[0]. */
struct fit {
	float a, c;
	double err; /* weighted sum of squares */
};

/* How a scale is stored: what remains of it. */
typedef float rounding_fn(float);

/* Codes of x for a and c, and the error that is left.  w: weights; code may be NULL. */
double fit_codes(unsigned char *code, const float *x, const float *w, int n, const struct steps *s, float a, float c);
/* The best a, c being 0. */
struct fit fit_scale(const float *x, const float *w, int n, const struct steps *s, rounding_fn *round);
/* The best of both; sign: 1: c is at most 0, -1: at least 0, 0: anything. */
struct fit fit_both(const float *x, const float *w, int n, const struct steps *s, int sign, rounding_fn *round);

#endif
