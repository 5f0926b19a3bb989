/* rotary.h - frequencies of the rotary embedding from a config.  Inside src/model/. */
#ifndef MODEL_ROTARY_H
#define MODEL_ROTARY_H

#include "backend/backend.h"
#include "base/alloc.h"
#include "model/conf.h"
#include "model/model.h"

struct rotary_defaults {
	double theta;   /* 0: the config must name it */
	double partial; /* share of the head's dims that rotate */
	/* Layers of which rope_parameters has an entry of its own, as "full_attention"; NULL, or no such entry: that of
	 * all. */
	const char *kind;
	/* theta in the place of rope_theta; with entries by kind nothing. */
	const char *theta_key;
	double given;  /* theta, whatever the config says; 0: the config's */
	bool whole;    /* partial_rotary_factor is not for these layers */
	bool unscaled; /* rope_scaling is not for these layers; with entries by kind nothing */
};

/* Reads rope_parameters, or rope_theta with rope_scaling, in the text part of a
 * config: default, linear, llama3, yarn, proportional, and dynamic, whose base is the config's up to
 * max_position_embeddings, which *ctx_max stays at, or, with an alpha, another for all lengths; and longrope whose long
 * and short factors are the same.  dim: size of a head, 2 to CONF_HEAD_DIM_MAX, or an error.  *ctx_max grows to what yarn
 * stretches to. */
void rotary_read(struct rope *out, struct conf *c, const struct rotary_defaults *d, int dim, int *ctx_max,
                 struct arena *a);
/* rotary_read, which also reads longrope whose factors differ: *lengths has both sets of frequencies, *out the short one.
 * lengths->n is left as it is where there is one set. */
void rotary_read_lengths(struct rope *out, struct rotary_lengths *lengths, struct conf *c,
                         const struct rotary_defaults *d, int dim, int *ctx_max, struct arena *a);

#endif
