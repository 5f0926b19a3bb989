/* gemma4.h - layers of Gemma 4, for the model (gemma4.c) and for the assistant that drafts for it
 * (gemma4_assistant.c).  Inside src/model/. */
#ifndef MODEL_GEMMA4_H
#define MODEL_GEMMA4_H

#include "model/decoder.h"

/* Parts of a layer that other families do not have. */
struct gemma4_more {
	struct ffn mixture;                            /* moe.experts 0: none */
	const float *norm_mlp;                         /* of the mlp's output, with a mixture */
	const float *norm_in, *norm_out, *norm_router; /* of the mixture and its router */
	struct weight gate, out;                       /* of the embeddings per layer */
	struct join join;
	float scalar;
};

struct gemma4 {
	struct decoder d;
	struct gemma4_more *more;
	int dim;                   /* of an embedding per layer; 0: there are none */
	struct weight table, proj; /* E' and M */
	const float *norm;
};

struct gemma4_plan {
	struct decoder_plan all;
	struct attention_form full; /* of layers that see everything */
	int shared;                 /* layers without keys and values, at the end */
	bool wide;                  /* their mlp has twice the width */
	const struct gemma4 *of;    /* whose keys and values all layers read; NULL: their own */
};

/* Reads the config of c into g's shape and the plan, whose `of` is set. */
void gemma4_read(struct gemma4 *g, struct conf *c, struct gemma4_plan *p);
/* Tensors of layer i; g->more is there. */
void gemma4_bind_layer(struct binder *b, struct gemma4 *g, const struct gemma4_plan *p, int i);
/* The part of layer i behind its attention, on the residual stream x; overwrites h.  e: embeddings per layer, or NULL. */
void gemma4_feed(const struct gemma4 *g, struct pass *p, int i, float *x, float *h, const float *e);

#endif
