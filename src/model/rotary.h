/* rotary.h - frequencies of the rotary embedding from a config.  Inside src/model/. */
#ifndef MODEL_ROTARY_H
#define MODEL_ROTARY_H

#include "backend/backend.h"
#include "base/alloc.h"
#include "model/conf.h"

struct rotary_defaults {
	double theta;   /* 0: the config must name it */
	double partial; /* share of the head's dims that rotate */
};

/* Reads rope_parameters, or rope_theta with rope_scaling, in the text part of a
 * config: default, linear, llama3 and yarn.  dim: size of a head.  Types whose
 * frequencies depend on the length of the sequence (dynamic, longrope) are
 * refused: keys already cached would be wrong.  *ctx_max grows to what yarn
 * stretches to. */
void rotary_read(struct rope *out, struct conf *c, const struct rotary_defaults *d, int dim, int *ctx_max,
                 struct arena *a);

#endif
