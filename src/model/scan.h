/* scan.h - Mamba's block: projections around convolution and selective scan (backend/cpu/state/rule_scan.c).  Inside src/model/.
 *
 *     [x | z] = in_proj h;  x = SiLU(conv(x));  [dt | B | C] = x_proj x, each through its norm, where there are norms
 *     out = out_proj (scan(x, dt_proj dt, B, C) SiLU(z)) */
#ifndef MODEL_SCAN_H
#define MODEL_SCAN_H

#include "model/conf.h"
#include "model/stack.h"

enum scan_norms {
	SCAN_PLAIN,  /* dt, B and C as they are projected */
	SCAN_NORMED, /* each divided by its RMS */
	SCAN_GAINED, /* the same, with gains */
};

/* Parameters that an architecture chooses once for all its scans. */
struct scan_form {
	struct state_shape shape; /* layers left out */
	int inner, rank, states;  /* channels; of dt; of each channel */
	bool bias, conv_bias;     /* of the projections; of the convolution */
	enum scan_norms norms;
	float eps;          /* of these norms */
	const char *at;     /* the block's name in its layer */
	const float **rate; /* [layers] of struct state_shape */
};

/* Sizes into the form's shape; rank_key's value may be "auto", a sixteenth of the hidden size. */
void scan_sizes(struct scan_form *f, struct stack *s, struct conf *c, int inner, const char *rank_key, int states,
                int conv_width);
/* Adds the block, which takes the next layer of the state's cache. */
struct block *stack_add_scan(struct stack *s, struct binder *b, const struct scan_form *f, const float *norm,
                             int layer);

#endif
