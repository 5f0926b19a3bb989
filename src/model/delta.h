/* delta.h - gated delta net layers of Qwen's hybrids (arXiv 2412.06464).  Inside src/model/.
 *
 * Qwen3-Next keeps the inputs in two matrices whose rows are grouped by key head: q, k, the group's v, the group's z;
 * and b, a.  Each run of rows becomes a product of its own that writes to its place, so nothing is copied.  The cost: 6
 * products per key head instead of 4 in all (96 of the 80B: six calls), each call quantising the shared input again. */
#ifndef MODEL_DELTA_H
#define MODEL_DELTA_H

#include "model/bind.h"
#include "model/conf.h"

/* Outputs of the products of a layer's input. */
enum delta_input { TO_QKV, TO_Z, TO_B, TO_A, TO_COUNT };

struct delta_form {
	int hidden;
	struct state_shape shape; /* without its layers */
	float eps;
	bool sigmoid_gate;
};

struct delta_part;
struct delta {
	struct recur op;
	struct delta_part *part;
	int n_part;
	int width[TO_COUNT]; /* columns of qkv, z, b, a */
	struct weight out;
};

/* linear_* and output_gate_type; hidden and eps are the caller's. */
void delta_read(struct delta_form *f, struct conf *c);
/* layers.N.linear_attn.* */
void delta_bind(struct binder *b, struct delta *x, const struct delta_form *f, int layer);
/* out = delta(h), or out += it with add; h[n_row][hidden].  layer: index in the cache of states. */
void delta_forward(struct pass *p, const struct delta *x, float *out, bool add, const float *h,
                   const struct state_view *view, int layer);
size_t delta_floats(const struct delta *x, int n_row);

/* A convolution's weight, [channels][width] in files: a row for each input, as operations read it.  NULL after a failure. */
const float *delta_conv(struct binder *b, const float *w, int channels, int width);

/* 1 where the files' norms lack their 1: Hugging Face's do, whose convolutions have the axes [channels, 1, width], and mlx's,
 * [channels, width, 1], do not.  Without such a layer the prefix must tell.  full[layers]: layers that are not of this kind. */
float delta_norms_add(const struct binder *b, const bool *full, int layers);

#endif
