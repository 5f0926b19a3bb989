/* ear_parts.h - what an ear consists of, and what its families share.  Inside sound/. */
#ifndef SOUND_EAR_PARTS_H
#define SOUND_EAR_PARTS_H

#include "model/bind.h"
#include "model/conf.h"
#include "sound/ear.h"

/* A product; bounded: its input and its output are kept within [in[0], in[1]] and [out[0], out[1]]. */
struct ear_linear {
	struct weight w;
	const float *bias; /* NULL: none */
	bool bounded;
	float in[2], out[2];
};

struct ear_family {
	const char *name;
	const char *type;     /* model_type of the audio_config */
	const char *shown_by; /* a tensor, behind "model." or behind nothing */
	/* b has the prefix, c the audio_config; fills the ear. */
	void (*bind)(struct ear *e, struct binder *b, struct conf *c);
	int (*rows)(const struct ear *e, int samples); /* 0: too few */
	/* A run over the samples of a sound, which are borrowed as vectors [rows][out] are. */
	void *(*begin)(struct ear *e, const float *samples, int n, int rows, float *vectors, struct err *err);
	/* Works for about ns.  1: there is more to do; 0: the vectors are complete; an error: it is over. */
	int (*step)(void *run, int64_t ns, struct err *err);
	void (*end)(void *run);
};
extern const struct ear_family ear_frames, ear_conformer;

struct ear {
	struct model holder; /* of which only the arenas are used: what binders put tables into */
	struct store *st;
	const struct ear_family *family;
	int depth, hidden, out;
	int frame;       /* samples of a row */
	int seconds_max; /* 0: any number */
	float eps;
	struct ear_linear projection;
	struct conformer *conformer; /* of that family */
	int32_t token, open,
		close; /* of a row; before and behind the rows, MEDIA_UNKNOWN where the config does not say */

	struct backend *be;
	enum arith arith;
	struct placed *placed;
	int n_placed;
};

/* Backend memory of products over at most n rows, one after the other: host floats in, host floats out. */
struct ear_desk {
	struct ear *e;
	float *in, *out; /* backend memory */
	float *copy;     /* of an input that is bounded */
	size_t in_bytes, out_bytes;
};
/* For inputs and outputs of at most these floats.  E_FULL: no memory. */
int desk_open(struct ear_desk *d, struct ear *e, size_t in, size_t out, struct err *err);
void desk_close(struct ear_desk *d);
/* out[n][rows of w] = the product over in[n][cols of w].  E_DEVICE: the device failed. */
int desk_product(struct ear_desk *d, const struct ear_linear *l, const float *in, float *out, int n, struct err *err);

/* x[n][cols] by its root of the mean of squares, times gain (NULL: 1) */
void ear_norm(float *out, const float *x, int n, int cols, const float *gain, float eps);

#endif
