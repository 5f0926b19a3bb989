/* tower_parts.h - what a tower consists of, as its family's file binds it and tower_run.c computes it.  Inside vision/.
 *
 *     x = [norm] (W [norm] patch + b) + place          [pre norm]
 *     per block:  x += n(proj attention(norm(x)));  x += n(mlp(norm(x)))
 *     [post norm];  rows = projector(x), several patches to a row
 *
 * Patches are computed in the order of the rows that they become: merge x merge patches of one row are adjacent. */
#ifndef VISION_TOWER_PARTS_H
#define VISION_TOWER_PARTS_H

#include <pthread.h>

#include "model/bind.h"
#include "model/conf.h"
#include "vision/tower.h"

enum tower_norm_kind { TOWER_NORM_NONE, TOWER_NORM_RMS, TOWER_NORM_LAYER };
struct tower_norm {
	enum tower_norm_kind kind;
	const float *gain, *bias; /* gain may be NULL for RMS */
	float eps;
};

/* A product; bounded: its input and its output are kept within [in[0], in[1]] and [out[0], out[1]]. */
struct tower_linear {
	struct weight w;
	const float *bias; /* NULL: none */
	bool bounded;
	float in[2], out[2];
};

struct tower_block {
	struct tower_norm norm_attn, norm_mlp;
	struct tower_norm post_attn, post_mlp; /* of what joins the residual stream */
	struct tower_linear q, k, v, proj;
	const float *q_norm, *k_norm; /* [dim] gains of an RMS norm per head; NULL: none */
	bool v_norm;                  /* values are normalised as keys are, without a gain */
	bool windowed;                /* a patch sees its window alone */
	bool gated;                   /* mlp: down(act(gate x) * up x), else down(act(up x)) */
	struct tower_linear gate, up, down;
};

enum { PROJECTOR_LINEARS = 3 };
struct projector {
	struct tower_norm before; /* of each patch */
	bool average;             /* a row is factor times the sum of its patches, else they are one after the other */
	bool channels_first;      /* as [channel][patch] */
	float factor;
	const float *gain, *shift; /* of the average; NULL: none */
	struct tower_norm joined;  /* of each row */
	int n;
	struct tower_linear linear[PROJECTOR_LINEARS];
	struct activation act[PROJECTOR_LINEARS];
};

/* From a patch's pixels to its vector: patch norm, linear, embedded norm. */
struct patch_embedding {
	struct tower_norm patch, embedded;
	struct tower_linear linear;
	bool channels_last; /* in the weights */
};

/* Position embedding that is added to a patch. */
enum tower_places_kind {
	PLACES_NONE,
	PLACES_TABLE,     /* row * side + col: the grid is side x side */
	PLACES_CORNERS,   /* interpolated between the corners of the table's side x side */
	PLACES_ANTIALIAS, /* the table resized to the grid as an image is, with antialiasing */
	PLACES_AXES,      /* [2][side]: of the column, plus of the row */
};
struct tower_places {
	enum tower_places_kind kind;
	const float *table; /* [rows][hidden], in host memory */
	int side;
};

/* How heads are rotated by a patch's position. */
enum tower_rope_kind {
	ROPE_NONE,
	ROPE_ROW_COL,   /* theta^(-4 i / dim) of both axes, i < dim / 4, rows first */
	ROPE_ALTERNATE, /* theta^(-2 i / dim), i < dim / 2: even ones of rows, odd ones of columns */
	ROPE_HALVES,    /* the head's first half by the column, the second by the row: theta^(-4 i / dim) */
};
struct tower_rope {
	enum tower_rope_kind kind;
	double theta;
};

enum { TOWER_MARKS = 8, TOWER_DEEP = 8 };

/* Projectors of blocks in the midst, whose rows join the decoder's layers. */
struct deepstack {
	struct projector v[TOWER_DEEP];
	int after[TOWER_DEEP], n; /* blocks */
};

/* Ids of a row; of an image as templates write it; marks that the family's layout has, or MEDIA_UNKNOWN. */
struct image_tokens {
	int32_t row, placeholder, mark[TOWER_MARKS];
};

/* Memory of a run that is over, for the next one: to get 25 MB anew takes some 60 ms of page faults. */
struct spare_memory {
	pthread_mutex_t lock; /* runs end on any thread */
	void *area;
	size_t bytes;
};

struct tower {
	struct model holder; /* of which only the arenas are used: what binders put tables into */
	struct store *st;
	const struct tower_family *family;
	struct picture_form form;
	int hidden, heads, dim, inner, depth, out;
	float scale; /* of q . k */
	struct activation act;
	struct patch_embedding embed;
	struct tower_places places;
	struct tower_norm pre, post;
	struct tower_rope rope;
	int window;                /* rows of the prompt that a window's edge has; 0: there are none */
	struct tower_block *block; /* [depth] */
	struct projector projector;
	struct deepstack deep;
	bool both_ways, grid_places; /* media: whole; rotary positions by row and column */

	struct image_tokens tokens;

	struct backend *be;
	enum arith arith;
	int wide; /* dims of a head in the cache: dim, filled up for the kernels */
	struct placed *placed;
	int n_placed;
	struct spare_memory spare;
};

struct tower_family {
	const char *name;
	const char *const *types; /* model_type of the config; NULL-ended */
	/* Tensors' prefixes with a name that shows which it is; NULL-ended. */
	const char *const *prefix;
	const char *shown_by;
	/* b has the prefix, c the vision_config; fills the tower. */
	void (*bind)(struct tower *t, struct binder *b, struct conf *c);
	/* Texts of t->tokens.mark, NULL-ended; "" is not looked up. */
	const char *const *marks;
	/* The layout of an image into out, which has room for rows + 4 * (grid rows + tiles) + 8; returns its
	 * length. */
	int (*layout)(const struct tower *t, const struct picture_plan *p, int32_t *out);
};
extern const struct tower_family tower_qwen, tower_qwen2, tower_qwen2_5, tower_gemma3, tower_gemma4,
	tower_gemma4_unified, tower_lfm2, tower_pixtral;

/* For families. */
void bind_linear(struct binder *b, struct tower_linear *l, int rows, int cols, const char *path, int i,
                 const char *name, bool bias);
void bind_norm(struct binder *b, struct tower_norm *n, enum tower_norm_kind kind, int cols, float add, float eps,
               const char *path, int i, const char *name);
/* path.weight (or path) as floats of the heap's arena, before the backend may take the file away. */
const float *bind_host_table(struct binder *b, int rows, int cols, const char *path);
/* The patch embedding, and whether its weights have channels last. */
void bind_patches(struct binder *b, struct tower *t, const char *path, bool bias);
int layout_plain(const struct tower *t, const struct picture_plan *p, int32_t *out);

/* Backend memory for a run, with anything in it; *bytes is what is wanted and becomes what it has, *ready how much of
 * that was written before, from its front on.  NULL: there is none. tower_give keeps it for the next run, or frees it.
 * On any thread. */
void *tower_take(struct tower *t, size_t *bytes, size_t *ready);
void tower_give(struct tower *t, void *area, size_t bytes);

/* A tower at work on one image: tower_run.c. */
struct tower_run;
/* plan, source (one per resizing) and vectors [rows][1 + deep][out] are borrowed. */
struct tower_run *tower_run_open(struct tower *t, const struct picture_plan *plan, const struct image *source,
                                 float *vectors, struct err *err);
/* Works for about ns.  1: there is more to do; 0: the vectors are complete; an error: it is over. */
int tower_run_step(struct tower_run *r, int64_t ns, struct err *err);
void tower_run_close(struct tower_run *r);

#endif
