/* dflash2.h - what DFlash 2 heads (z-lab, 2026) have beyond DFlash's.  Inside src/model/.
 *
 * Convolutions around attention and MLP, inside of a block of guesses alone; x is the block's normed input:
 *
 *     K = kernel x: for each row two kernels, one for what the layer reads and one for what it gives
 *     conv_s(y)_t = sum over taps j of (base[s][j] + K_t[s][j]) y_(t - j), rows before the first count nothing
 *     h += conv_1(layer(conv_0(x)))
 *
 * base has a number for each channel, K one for `each` of them side by side.
 *
 * A selector, which lets a guess hang on the token before it: of the `top` best tokens of a guess, b of logit U(b),
 *
 *     score(b) = U(b) + sum over r of before[token before][r] (gate hid)[r] after[b][r]
 *
 * where hid is the guess's normed row. */
#ifndef MODEL_DFLASH2_H
#define MODEL_DFLASH2_H

#include "model/bind.h"
#include "model/conf.h"

struct dflash2_form {
	int taps, each; /* of the convolutions; taps 0: not DFlash 2 */
	int rank, top;  /* of the selector */
	float embed_scale, logit_scale, logit_cap;
};

/* own: dflash_config. */
void dflash2_read(struct dflash2_form *f, struct conf *own, const struct shape *s);

struct block_conv {
	struct weight kernel;
	const float *base; /* [2][taps][hidden] */
	int taps, each;
};

/* layers.N.NAME.* */
void block_conv_bind(struct binder *b, struct block_conv *c, const struct dflash2_form *f, int hidden, int layer,
                     const char *name);
/* Floats of a row's K. */
static inline int block_conv_row(const struct block_conv *c)
{
	return c->kernel.rows;
}
/* k[n_row] of x[n_row][hidden]. */
void block_conv_kernel(struct pass *p, const struct block_conv *c, float *k, const float *x);
/* out[n_row][hidden] = conv_side(in); apart from each other. */
void block_conv(struct pass *p, const struct block_conv *c, int side, float *out, const float *in, const float *k);

struct selector {
	int top;
	struct weight before, after, gate;
	/* For one guess, in host memory: its best tokens behind the one before it, and rows of the matrices. */
	int32_t *tok, *zero;           /* [1 + top] */
	float *score;                  /* [top] */
	float *past, *gates, *matched; /* [rank], [rank], [1 + top][rank] */
};

/* candidate_selector.* */
void selector_bind(struct binder *b, struct selector *s, const struct dflash2_form *f, int vocab, int hidden);
/* Makes the logits of the best tokens their scores, and lowers all others so far that they come after these.  over: as lean in
 * model.h; hid: the guess's row in backend memory. */
void selector_lean(struct selector *s, const struct pass *over, const float *hid, int32_t token, float *logits);
/* Work memory of selector_lean. */
size_t selector_floats(const struct selector *s);

#endif
