/* model.h - an architecture: tensors in a file to logits of a step.
 *
 * One file per family and one line in models.c.  A model holds no state of any
 * sequence: that is in its caches, keyed by slot.  Loaded once, then only
 * model_run is called, from the engine's thread. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/err.h"
#include "cache/cache.h"

struct store;
struct tensor;

struct model;

/* Where a layer's keys and values lie: in which group, and which of its layers it is. */
struct kv_place {
	int group, index;
};

/* Inputs and outputs of a draft head (model_bind_head). */
struct head_shape {
	int vocab; /* the model's */
	/* [n_tap] the model's layers whose outputs (shape_residual of each), side by side, are a row that it is given; NULL: the model's hidden row. */
	const int *tap;
	int n_tap;
	/* Rows of a block whose tokens are guessed at once: the last token's, and others, which have the
	 * token mask; 0: it guesses token by token. */
	int block, guesses; /* guesses: this many rows at the end of a block have one each */
	int32_t mask;
	const int32_t *token; /* [shape.vocab] the model's token that each of its logits is for; NULL: the same */
	/* The model whose keys and values it reads, having none of its own: of a pass span.pos is the last row that is seen,
	 * rope_pos the position guessed from, and the views of that model's caches are laid for the pass (caches_begin with
	 * spans of no rows).  NULL: it has its own. */
	const struct model *borrows;
};

struct shape {
	int layers, layers_attn, layers_rec;   /* all; with keys and values of their own; recurrent */
	int layers_moe, experts, experts_used; /* layers with a mixture; of how many, how many per token */
	int hidden, vocab;                     /* rows of the embedding (may exceed the tokenizer's) */
	int streams;                           /* residual streams of hidden floats, side by side in a row; 0: one */
	int ctx_max;                           /* max_position_embeddings */
	bool whole; /* each row sees its whole text, so a pass has all of a text or none; there are no answers and no logits */
	int deep; /* vectors of a brought row that are added to the residual stream after layers 0 .. deep - 1 */
	struct kv_group kv[KV_GROUPS]; /* [n_kv] the attention layers by geometry and reach; the keys of indexers */
	int n_kv;
	int *like
		[KV_GROUPS]; /* [layers] of groups read with others: by layer the attention layer, in the order of place */
	struct kv_place *place;   /* [layers_attn] in the model's order; NULL: all in one group */
	struct state_shape state; /* recurrent state; layers 0 when there is none */
	struct state_shape past;  /* history of layers that convolve apart from these; layers 0: there is none */
	int carry;                /* floats of a row that each sequence carries along (model_carried); 0: none */
	struct head_shape head;   /* of a draft head alone */
	int64_t params;           /* elements of all used tensors, logical */
	int64_t weight_bytes;     /* stored bytes of all used tensors */
};

/* How much to provide for.  Everything is a budget chosen at start. */
struct model_opts {
	enum arith arith;
	int slots;         /* sequences at once */
	int ctx_max;       /* longest sequence; 0: the model's own */
	int step_rows;     /* most rows of one step */
	int tape_rows;     /* most tentative rows of one sequence and step */
	size_t kv_bytes;   /* bound of the page pool; 0: slots * ctx_max rows */
	size_t snap_bytes; /* bound of state snapshots */
	/* all.k NULL: f32 under ARITH_F32, bf16 under ARITH_FAST.  kv.layer, by order
	 * among the attention layers, is copied. */
	struct kv_rows kv;
};

struct model_ops {
	const char *const *arch; /* model_type values it reads; NULL-ended */
	size_t size;             /* of the struct that begins with struct model */
	/* Reads config and tensors into shape and weights.  No caches yet. */
	int (*bind)(struct model *, struct store *, struct err *);
	/* Fills p->logits for the rows that want them; writes the caches, through the pass's views.  For model_run alone. */
	void (*forward)(struct model *, struct pass *);
	/* Floats of work memory forward needs for n_row rows and n_logit logits. */
	size_t (*work_floats)(const struct model *, int n_row, int n_logit);
	/* Optional: as bind, makes m, zeroed and of this size, the model's own draft head from st (mtp.h).  E_MISSING when st
	 * has none. */
	int (*bind_head)(struct model *m, const struct model *of, struct store *st, struct err *err);
	/* Optional, of a head that guesses blocks: adds to a guess's logits, host memory, what the token before it says.
	 * p: a pass that is over, whose work memory is used by a small pass of its own, and whose hidden has the guess's
	 * row. */
	void (*lean)(struct model *, const struct pass *p, int row, int32_t token, float *logits);
};

/* Frequencies of which a model has two sets, for short sequences and for long ones (longrope).  Which is right for a model
 * depends on the longest sequence it is to take, so model_attach chooses for all of them: rows that are cached stay true. */
struct rotary_lengths {
	float *freq;         /* [n] those of short sequences, which the model's rope names */
	const float *longer; /* [n] of long ones */
	int n;               /* 0: there is one set */
	int ctx;             /* longest short sequence */
};

struct model {
	const struct model_ops *ops;
	struct shape shape;
	struct model_opts opts;
	struct backend *be;
	struct caches caches;
	struct cache_pool pool;    /* of the groups of keys and values, when there are several */
	const struct trunk *trunk; /* what is around its layers, for draft heads that share it */
	/* The members of caches by kind, for src/model alone; NULL where the model has none of the kind. */
	struct cache *kv[KV_GROUPS], *state, *past, *carry;
	struct arena arena;    /* everything the model owns, but */
	struct arena vectors;  /* the floats it made for operations: placed with the backend */
	struct store *st;      /* that it was bound from */
	struct placed *placed; /* with the backend, from model_attach on */
	int n_placed;
	struct rotary_lengths lengths;
	bool lengthened;      /* those of long ones were chosen */
	struct moe **mixture; /* [n_mixture] its mixtures of experts, in the order of its layers */
	int n_mixture;
	/* [n_table] matrices of which a step looks up a row for each token, and that nothing multiplies. */
	const struct weight **table;
	int n_table;
	const struct stream_file *file; /* [st->n_file] the store's, as backends want them; NULL for draft heads */
	const char *arch;               /* the matching entry of ops->arch */
};

/* Reads config.json of an opened store, picks the architecture, binds its
 * tensors, opens its caches.  The store must outlive the model. */
int model_open(struct model **out, struct store *st, struct backend *be, const struct model_opts *opts,
               struct err *err);
void model_close(struct model *m);

/* Bind only, without backend or caches: for inspect.  model_attach opens the
 * caches later; model_bind_as takes an architecture that no list has (tests). */
int model_bind(struct model **out, struct store *st, struct err *err);
int model_bind_as(struct model **out, const struct model_ops *ops, const char *arch, struct store *st, struct err *err);
/* The draft head of a bound model, from its own folder or another one: multi-token prediction, EAGLE-3, DFlash or
 * an assistant, ops->arch[0] says which.  A model of its own with a row of keys and values per token, made of what the model
 * gave for the token before (shape.head), of which it carries the last along (model_carried).  To be attached like any, and
 * closed before `of`.  E_MISSING: st has none that is known.  E_UNSUPPORTED: it cannot be read, or is not for this model. */
int model_bind_head(struct model **out, const struct model *of, struct store *st, struct err *err);
/* Does the folder hold a draft head alone, and no model? */
bool model_only_head(const struct store *st);
int model_attach(struct model *m, struct backend *be, const struct model_opts *opts, struct err *err);

/* Rehearses a step of the most rows of a sequence with these adapters; NULL: without any.  Only where the backend
 * rehearses (backend.h), and not during a pass.  E_UNSUPPORTED: the backend lacks an operation; E_FULL; E_DEVICE. */
int model_rehearse(struct model *m, const struct adapter_mix *mix, struct err *err);

/* Computes a pass, whose tables are set and for whose spans the caches have begun a step (caches_begin): the one way into
 * forward. Returns when all results are there.  E_DEVICE: the device failed; what the pass wrote, the caches' rows of these
 * spans among them, is not to be used.  Engine's thread. */
int model_run(struct model *m, struct pass *p, struct err *err);

/* Leaves the experts of all mixtures on disk (backend.h, stream); after model_attach, before the first pass.  The
 * store's files are filled in here.  E_UNSUPPORTED: there are no mixtures, or this backend cannot. */
int model_stream(struct model *m, struct stream_opts *how, struct err *err);
/* Bytes of what mixtures read, as it is stored: of experts, routers and shared experts. */
size_t model_mixture_bytes(const struct model *m);
/* Sets bytes[shape.layers] to those of each layer's matrices as they are stored, and mixtures[shape.layers] to those of them that
 * only mixtures read. */
void model_layer_bytes(const struct model *m, size_t *bytes, size_t *mixtures);
/* Bytes of all experts as they are stored.  Is p one of them? */
size_t model_expert_bytes(const struct model *m);
bool model_has_expert(const struct model *m, const uint8_t *p, size_t n);

/* Leaves the tables that lie in files on disk (backend.h, stream_rows); after model_attach, before the first pass.  The
 * store's files are filled in here.  E_UNSUPPORTED: there are none, or this backend cannot. */
int model_stream_rows(struct model *m, struct rows_opts *how, struct err *err);
/* Bytes of those tables as they are stored; 0: there are none.  Is p[n] a part of one? */
size_t model_table_bytes(const struct model *m);
bool model_has_table(const struct model *m, const uint8_t *p, size_t n);

/* The carried row of a slot, shape.carry floats in backend memory.  forward does not touch it; the
 * model's user writes it before the sequence is captured, and finds it after a restore. */
float *model_carried(const struct model *m, int slot);

/* For bind: the attention layers are `layers` alike, which see everything. */
void shape_kv_plain(struct shape *s, int layers, int heads, int dim);
/* For bind, layer by layer: one more of this geometry and reach (g->layers is not looked at; of a group of indexers' keys, or read
 * with another, the layer is not counted among attention layers); of whole texts (shape.whole) one
 * place for all layers of a geometry, which take turns in it.  Its group is that of
 * earlier ones like it.  E_UNSUPPORTED: it would be a group too many. */
int model_kv_add(struct model *m, const struct kv_group *g, struct kv_place *out, struct err *err);
/* Floats of a row of the residual stream. */
static inline int shape_residual(const struct shape *s)
{
	return s->hidden * (s->streams ? s->streams : 1);
}
/* For an attention layer, counted among those with keys and values of their own. */
struct kv_place shape_kv_place(const struct shape *s, int layer);

/* Sizes for plans, before there are caches: keys and values of one position over all layers. */
size_t model_kv_row_bytes(const struct shape *s, const struct kv_rows *kv);
struct kv_rows model_kv_default(enum arith arith);
/* model_pool_bytes: bytes of pages that a sequence of ctx positions needs at most, of one group or (-1) of all.
 * model_longest: the longest sequence, up to ctx, whose pages fit into `bytes`.  Both read only kv and step_rows
 * of o. */
size_t model_pool_bytes(const struct shape *s, const struct model_opts *o, int group, int ctx);
int model_longest(const struct shape *s, const struct model_opts *o, size_t bytes, int ctx);
/* model_slot_bytes: bytes of a sequence that do not depend on its length, with a tape for tape_rows tentative rows.
 * model_snap_bytes: bytes of a snapshot besides pages. */
size_t model_slot_bytes(const struct shape *s, int tape_rows);
size_t model_snap_bytes(const struct shape *s);

/* For measuring: makes k and v, [n_row][heads * dim_k and dim_v of the group], the keys and values of the pass's rows in a layer
 * of a group; k is spoiled. */
void model_fill(const struct model *m, struct pass *p, struct kv_place at, float *k, const float *v);

extern const struct model_ops *const models[]; /* models.c; NULL-ended */

#endif
