/* backend.h - where numbers are and what computes with them.
 *
 * The seam is one operation over all rows of one step: some ten calls per
 * layer, plain pointers and structs, no graph, no tensor class.  forward()
 * never looks at a number it computed.  Caches keep their books on the host and
 * their bytes in memory from alloc(); only files under src/backend/ follow a
 * pointer into that memory, everyone else uses read() and write().  On the CPU
 * they are ordinary pointers and the rule costs nothing; the far backend in the
 * tests makes them unreadable outside the operations to keep us honest.
 *
 * The law of the row binds every operation here: a row's output bits are a
 * function of that row, of what the caches hold of its sequence, and of the
 * weights; never of the other rows, of how a sequence was cut into steps, or of
 * the number of threads. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/reads.h"
#include "base/stream_stats.h"
#include "quant/format.h"
#include "quant/placed.h"

struct adapter_mix; /* backend/low_rank.h */
struct kv_view;
struct state_view;

enum { KV_GROUPS = 10 }; /* most groups of layers whose keys and values are cached apart (struct kv_group) */

/* One sequence in one step, as caches and operations see it. */
struct span {
	int slot;    /* the sequence's place in every cache's tables */
	int pos;     /* the position of every cache before the step */
	int n;       /* positions written by this step: pos and on */
	int n_draft; /* tentative rows at the tail, which may be taken back; < n */
};

/* A copy of the outputs of a layer: row i of the pass goes to out + i * ld, as many floats as the residual stream has.  Backend
 * memory. */
struct tap {
	int layer; /* counted from 0 */
	float *out;
	size_t ld;
};

/* Taps in any order; one layer may have several. */
struct taps {
	const struct tap *v; /* [n] */
	int n;
};

/* Vectors that rows bring themselves (docs/images.md): an embedding, and what is added to the residual stream after the
 * first layers of some families. */
struct brought_rows {
	const float *const *v; /* [n] host memory, cols floats each */
	int n, cols;
};

/* Items of a pass of which a row could not be computed because an expert, or a row of a table, could not be read: their
 * rows are invalid, those of other items are as always. */
struct spoil {
	bool *items;    /* [n_item] set for them.  NULL: such a failure ends the program */
	struct err why; /* of the first in this pass; code 0: none is */
};

/* Rows that `gather` is given, all or a part of them, where they are not logit_row. */
struct picked_rows {
	const int32_t *row; /* [n] */
	int n;
};

/* Work memory of a pass: handed out by pass_floats, all given back by pass_begin.  Sized once for the largest step. */
struct pass_work {
	uint8_t *p;
	size_t cap, used, peak;
};

/* One forward pass over the rows of one step.  Rows of an item are adjacent and
 * in rising position.  A row needs logits when it is in logit_row. */
struct pass {
	struct backend *be;
	enum arith arith;
	int n_row, n_item, n_logit;
	const int32_t *tok;       /* [n_row] token ids; below 0: the row is brought.v[~tok] */
	const int32_t *pos;       /* [n_row] absolute positions, in the caches */
	const int32_t *item;      /* [n_row] index into span */
	const struct span *span;  /* [n_item] */
	const int32_t *row;       /* [n_item] first row of the item */
	const int32_t *logit_row; /* [n_logit] rising */
	float *logits;            /* [n_logit][vocab] backend memory, written by forward */

	/* Views of the step's sequences in the caches.  kv_append, attend, conv and recur of this pass name them by these
	 * addresses.  NULL where there is no such group, no recurrent state, no history (struct shape, past).  model_run sets them. */
	const struct kv_view *kv[KV_GROUPS];
	const struct state_view *state, *past;
	const int32_t (*grid)[2]; /* [n_row] the rows' places on a grid, by which `heads` rotates; NULL: none */
	struct picked_rows picked;

	struct brought_rows brought;
	/* [n_row][3] rotary positions: time, height, width.  NULL: all three are pos. */
	const int32_t *rope_pos;
	/* [n_row] the last position that a row sees where attention goes both ways (struct attn): of a row inside a
	 * stretch, which the step has whole, the stretch's last; else its own.  NULL: all rows' own. */
	const int32_t *see;
	/* [n_item] the position from which on an item's rows are of the second text of a pair; INT32_MAX: it has none.
	 * NULL: no item has. */
	const int32_t *second;
	/* [n_item] what the item's rows add to the products of linear (low_rank.h); an entry NULL: nothing.  NULL: no item
	 * has any.  n rows of linear are the step's, or those with logits. */
	const struct adapter_mix *const *adapter;
	/* Backend memory, or NULL. */
	float *hidden; /* [n_row][hidden] written by forward: each row as the output matrix reads it; or what a head guesses on from */
	struct taps taps;
	/* [n_row][shape.carry] read by a draft head: what the model gave for the token before; with `ahead` the head's own
	 * hidden of it, [n_row][hidden], or of a head that guesses blocks nothing: the rows are those of blocks. */
	const float *given;
	bool ahead;
	struct spoil spoil;
	int experts_used; /* of the CPU backend, for profiles: different experts that the rows of moe's last call chose */

	struct pass_work work;
	bool begun; /* pass_begin was called, and pass_end not yet */
};

/* Returns n floats of backend memory where the host may read and change them: `far` itself, or scratch [n], a copy, where the
 * backend's memory is elsewhere.  A caller that changes them reads them once.  NULL: the device failed (backend.failed). */
float *backend_near(struct backend *be, float *far, size_t n, float *scratch);

/* n floats of work memory, 64-byte aligned.  Asserts that the plan was right. */
float *pass_floats(struct pass *p, size_t n);
/* Begin and end a pass.  Operations that take a pass run between the two, and nothing that the pass names changes there.
 * pass_begin: every table and view of the pass is set and final; all work memory is free afterwards.
 * pass_end: waits until all results are there.
 * Both return 0 or E_DEVICE, with the message in p->be->failed; pass_end also where pass_begin or an operation failed.
 * The results of the pass are undefined then, and every later pass of the backend fails too. */
int pass_begin(struct pass *p);
int pass_end(struct pass *p);

/* Activation that a feed-forward block applies to its gate g, or, where there is no gate, to its one product. */
enum act {
	ACT_NONE,
	ACT_SILU,       /* g sigmoid(g) */
	ACT_GELU_TANH,  /* g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) / 2 */
	ACT_GELU_ERF,   /* g (1 + erf(g / sqrt 2)) / 2 */
	ACT_GELU_QUICK, /* g sigmoid(1.702 g) */
	ACT_RELU2,      /* max(g, 0)^2 */
	ACT_SIGMOID,
	ACT_TANH,
	ACT_CLAMPED, /* min(g, limit) sigmoid(alpha min(g, limit)), times 1 + the factor clamped to [-limit, limit] */
	ACT_LIMITED, /* min(g sigmoid(g), limit), times the factor clamped to [-limit, limit] */
	ACT_CLIPPED, /* m sigmoid(m) of m = min(g, limit), times the factor clamped to [-limit, limit] */
	/* alpha max(g, 0)^2 + limit (e^min(g, 0) - 1 - min(g, 0)) + beta g: xIELU (arXiv 2411.13010) */
	ACT_XIELU,
};
struct activation {
	enum act kind;
	float alpha, limit; /* alpha: of ACT_CLAMPED and ACT_XIELU; limit: of these, ACT_LIMITED and ACT_CLIPPED */
	float beta;         /* ACT_XIELU's alone */
};
/* Does it change the factor as well, so that it needs one? */
static inline bool act_needs_factor(enum act kind)
{
	return kind == ACT_CLAMPED || kind == ACT_LIMITED || kind == ACT_CLIPPED;
}

/* One product over a shared input: out = act(in W' + bias), with up times (in up' + its bias); or out += that with
 * add, which goes without act and up. */
enum { LINEAR_JOBS = 16 }; /* most products of one call of linear */
struct linear {
	const struct weight *w;
	float *out; /* [rows][ld] */
	size_t ld;
	const float *bias;       /* [w->rows] or NULL */
	bool add;                /* out += product: the residual stream */
	const struct linear *up; /* as many outputs; only its w and bias are looked at.  NULL: none */
	/* out is read by the next linear alone, as its in, and that is one product with this weight: a backend
	 * may keep it in whatever form it wants there and leave the floats unwritten.  NULL: anyone may read it. */
	const struct weight *reader;
	struct activation act;
};

/* Layers whose keys and values have one geometry and one reach. */
struct kv_group {
	int layers, heads; /* heads: of keys and values */
	int dim_k, dim_v;  /* of a head's row of keys, of values */
	bool latent;       /* values are the first dim_v numbers of the key's row, and are stored nowhere else */
	bool index;        /* keys of indexers, which are kept in 16 bits at least: rounding moves what is chosen */
	int window;        /* a row at pos sees (pos - window, pos]; 0: all positions up to its own */
	bool beside; /* of other rows of the attention layer that was added last, which are read together: in its formats */
	int every; /* positions of a row, which the last of them writes; 0: 1 */
};

/* A sequence's keys and values in the layers of a group.  A page holds page_rows positions, a
 * multiple of every: [layer][k, v][head][page_rows / every][row bytes], and row bytes differ by layer and side. */
struct kv_layer {
	const struct kv_format *fmt[2]; /* by enum kv_side */
	size_t row_bytes[2];
	size_t at[2]; /* in a page, of head 0 */
};
struct kv_view {
	uint8_t *base; /* page 0 */
	size_t page_bytes;
	const struct kv_layer *layer; /* [layers] the same as long as the view is there */
	int layers;
	int page_rows, heads, dim; /* dim: of keys */
	int dim_v;
	int window, every;    /* the group's; every is at least 1 */
	const int32_t *page;  /* [n_item][page_max] page numbers; -1 where there is none any longer */
	const int32_t *first; /* [n_item] the first that there is: rows of pages before it are gone.  NULL: all are 0 */
	int page_max;
};
/* Fills layer[layers] for pages of page_rows; returns a page's bytes.  In a latent group the
 * values' row is where the key's is. */
size_t kv_group_lay(struct kv_layer *layer, const struct kv_group *g, const struct kv_rows *rows, int page_rows);
/* kv_group_lay for a group whose keys and values have one size. */
size_t kv_layers_lay(struct kv_layer *layer, int layers, const struct kv_rows *rows, int heads, int dim, int page_rows);
/* Bytes of a head's keys and values of one position; 0: one of the formats is not for heads of this size. */
size_t kv_group_head_bytes(const struct kv_group *g, struct kv_pair pair);

/* Recurrent state.  Per slot and recurrent layer: S, heads_v x dim_k x dim_v
 * floats in an order that is the backend's own (state_floats), and the conv
 * tail, the last (width - 1) inputs of the convolution, oldest first.
 *
 * A pass need not write S: what the updates of some rows need it can lay on the slot's
 * tape, from which they are made later, with the same bits.  The first `owed` rows there
 * are true and not part of S and tail yet; a pass goes on from after them.
 *
 *   still: S and tail stay as they are, and all the span's rows go on the tape, after those owed.
 *   else:  S and tail move through the owed rows and the sure ones (n - n_draft of the span) and
 *          not beyond; the tentative ones go on the tape, from its beginning.
 *
 * Where the view says so (keep), the pass copies S and the tail on the way, as they are
 * after some of an item's sure rows: what the sequence would hold had it stopped there. Such
 * an item is not still. */

/* How S moves from token to token; equations, parameters and costs stand in the rule's file. */
enum recur_rule_id {
	RECUR_DELTA, /* gated delta net: backend/cpu/state/rule_delta.c */
	RECUR_FIXED, /* linear attention with a fixed decay per head: rule_fixed.c */
	RECUR_SSM,   /* Mamba-2: rule_ssm.c */
	RECUR_KDA,   /* gated delta with a decay per key channel: rule_kda.c */
	RECUR_SCAN,  /* Mamba's selective scan: rule_scan.c */
	RECUR_RWKV7, /* rule_rwkv7.c */
	RECUR_RULES
};
struct state_shape {
	int layers;
	int heads_k, heads_v, dim_k, dim_v; /* of S; heads_v = 0: none */
	int conv_channels, conv_width;      /* width 0: no convolution */
	enum recur_rule_id rule;
	/* Value head h reads key head h mod heads_k; else h / (heads_v / heads_k). */
	bool tiled;
	/* [layers][heads_v][dim_k][dim_v] what a decay per element of S is computed with; NULL but for rules that say so */
	const float *const *rate;
};
struct state_keep {
	int item, row;   /* rows of the item before the copy, 0 < row <= n - n_draft */
	float *s, *tail; /* [layer][...] like those of one slot; backend memory; NULL where the shape has none */
};
struct state_view {
	struct state_shape shape;
	float *s;    /* [slot][layer][state_floats] */
	float *tail; /* [slot][layer][(width - 1) * channels] */
	float *tape; /* state_tape_row */
	int tape_rows;
	int slots;
	const int32_t *owed;           /* [slots] */
	const bool *still;             /* [slots] */
	const struct state_keep *keep; /* [n_keep] in any order; no two at one row of an item */
	int n_keep;
	int64_t *keep_ns; /* threads add the time of their parts of these copies here; NULL: not measured */
};
size_t state_floats(const struct state_shape *s); /* S of one layer, padding included */
size_t state_tail_floats(const struct state_shape *s);

/* One row of one layer on the tape: conv_channels inputs of the convolution, then these members, at offsets in floats. */
struct state_tape {
	size_t key;           /* [heads_k][dim_k] left factors of the updates */
	size_t decay;         /* [heads_v][decay_n] */
	size_t update;        /* [heads_v][dim_v] right factors */
	size_t key2, update2; /* [heads_v][dim_k], [heads_v][dim_v] of rules with two updates per token */
	size_t floats;        /* of the row, padding included */
	int decay_n;
};
struct state_tape state_tape(const struct state_shape *s);
static inline size_t state_tape_floats(const struct state_shape *s)
{
	return state_tape(s).floats;
}
static inline float *state_tape_row(const struct state_view *v, int slot, int layer, int row)
{
	size_t at = ((size_t)slot * (size_t)v->shape.layers + (size_t)layer) * (size_t)v->tape_rows + (size_t)row;

	return v->tape + at * state_tape_floats(&v->shape);
}
/* The first row of the span that goes on the tape, and (state_taped_at) to which row there. */
static inline int state_taped(const struct state_view *v, const struct span *sp)
{
	return v->still[sp->slot] ? 0 : sp->n - sp->n_draft;
}
static inline int state_taped_at(const struct state_view *v, const struct span *sp)
{
	return v->still[sp->slot] ? v->owed[sp->slot] : 0;
}

/* Rotary embedding: cos and sin of pos * freq[i] scaled by mscale turn n_freq pairs of a head's dims, by default
 * (i, i + n_freq).  n_freq 0: nothing is rotated. */
struct rope {
	const float *freq; /* [n_freq] radians per position */
	int n_freq;
	float mscale;
	int apart;     /* pairs are (i, i + apart); 0: n_freq */
	int at;        /* the first dim that is rotated */
	bool adjacent; /* pairs are (2 i, 2 i + 1) */
	/* [n_freq] which of a row's rotary positions turns each pair: 0 time, 1 height, 2 width.  NULL: time. */
	const uint8_t *axis;
};

struct attn {
	int heads, heads_kv, dim;     /* query heads, key/value heads, head size */
	float scale;                  /* of q . k */
	const float *q_norm, *k_norm; /* [dim] gains or NULL; RMS norm per head before the rotation */
	float eps;
	struct rope rope;
	bool v_norm;    /* RMS norm of the values per head, without a gain */
	int window;     /* a row at pos sees (pos - window, pos]; 0: all positions up to its own */
	int chunk;      /* a row sees nothing before the last multiple of it up to its own; 0: there is no such bound */
	int first;      /* no row sees positions before it, but those before it themselves */
	bool both_ways; /* rows see up to the pass's `see` instead of their own position */
	int ahead; /* with both_ways: a row sees at most this many positions after its own; 0: there is no such bound */
	float softcap; /* a score is softcap tanh(scale q . k / softcap); 0: scale q . k */
	/* [heads] a score is scale q . k - slopes[h] |pos - the key's position|, ALiBi; NULL: none.  Not with a softcap. */
	const float *slopes;
	const float *sinks; /* [heads] a score of each head's that takes weight and has no value; NULL: none */
	/* Queries times 1 + q_bend ln(1 + (pos + q_bend_from) / q_bend_every), rounded down; q_bend_every 0: none. */
	float q_bend;
	int q_bend_every, q_bend_from;
	int norm_from; /* first dim of a key that the norm covers */
	bool v_is_key; /* values are the keys as they are cached, normed and rotated; v is not looked at */
	/* A key is of a block of this length, counted from `first`: the norm of the mean of what the block's rows are given,
	 * rotated by the block's first position, in the row of the last.  Rows of the others keep what they are given, so that
	 * a sequence may end anywhere.  The mean is of rows as they are cached, but for the last, in order.  0: a key is of its
	 * own position.  For kv_append, with v_is_key and one head of keys, and choose; not where the pass has rope_pos. */
	int pooled;
	/* With pooled: a block's key is instead the sum of its rows' keys, each dim weighted by a softmax over the block's rows of
	 * v + pool_bias[row in the block], [pooled][dim]; v is a row's weights, which are cached as values.  NULL: the mean. */
	const float *pool_bias;
	/* For attend_chosen: chosen entries below 0 are ~r, row r of a layer of this view, in heads and formats as the other's. */
	const struct kv_view *rows;
	int rows_layer;
};

/* Rows that stand for groups of `every` positions, for kv_groups of as many.  A row of the pass gives k and v, [w], w = dim, or 2
 * dim where groups overlap, which the raw view keeps as keys and values.  A group's row is the sum of its k, weighted, dim by
 * dim, by a softmax of v + bias[row in the group], [every][w]; where groups overlap, of its second halves and of the first
 * halves of the group before it, if there is one.  It is normed (gain NULL: not), rotated by the group's first position, and
 * written. */
struct compress {
	int every, dim;
	bool overlap;
	const float *bias, *gain;
	float eps;
	struct rope rope;
};

/* A short causal convolution of some channels of a recurrent layer, each by itself:
 * y = act(bias + sum of w[j] times the input of width - 1 - j tokens before). */
struct conv {
	const float *w;    /* [width][n], newest input last */
	const float *bias; /* [n] or NULL */
	bool silu;         /* act is SiLU; else none */
	int apart;         /* w is of inputs this far apart, [(width - 1) / apart + 1][n]; 0: 1, every one */
};

/* A recurrent layer between its projections.  Which fields a rule reads stands in its file. */
struct recur {
	const float *conv,
		*conv_bias;     /* [width][channels] and [channels] or NULL; conv NULL: x is not to be convolved */
	const float *a_log_exp; /* [heads_v] exp(A_log) */
	const float *dt_bias;   /* [heads_v], by key [heads_v][dim_k], by channel [heads_v][dim_v] */
	const float *decay;     /* [heads_v] fixed */
	const float *skip;      /* D: [heads_v], by channel [heads_v][dim_v] */
	float dt_min, dt_max;   /* bounds of dt */
	float gate_floor;       /* least logarithm of a decay; 0: none */
	const float *key_gain, *key_rate, *bonus, *norm_bias; /* k_k, k_a, r_k, all [heads_v][dim]; of RWKV-7 */
	float beta_scale;                                     /* of beta; 0: 1 */
	/* The output is norm(o) * gain * act(z), or norm(o * act(z)) * gain where the gate comes first. */
	const float *norm; /* gain [dim_v] of a norm per head, or [heads_v * dim_v] of norm_cols; NULL: no norm */
	float eps;         /* of that norm */
	bool sigmoid_gate; /* act: sigmoid instead of SiLU */
	bool gate_first;
	int norm_cols;               /* columns of one norm, over several heads; 0: a head's */
	const struct weight *reader; /* of out: see struct linear */
};
/* Its inputs, by the rule; z NULL: no gate, and no norm. */
struct recur_in {
	const float *x; /* [n_row][2 heads_k dim_k + heads_v dim_v] */
	const float *z; /* [n_row][heads_v * dim_v] */
	const float *b, *a;
};

/* A product for each head of a row: out[h] = [the last `rest` of in[h] | what is before them times w[h]'].  Heads of a
 * row lie in_head and out_head floats apart, rows heads times as many. */
struct by_head {
	const struct weight *w; /* [heads] of one size, format and group */
	int heads, rest;
	size_t in_head, out_head;
};

/* Hashed n-grams.  c[0] is a row's token and c[s] the one s positions before it, or `end` where that, or one between, is `end`,
 * and before the sequence.  Head h, of heads / (most - 1) for each order o = 2 .. most in turn, reads row
 * offset[h] + (c[0] mult[0] xor .. xor c[o - 1] mult[o - 1]) mod size[h] of the table. */
enum { NGRAM_MOST = 8 };
struct ngrams {
	int most, heads;
	const int64_t *mult, *size, *offset; /* [most], [heads], [heads] host memory; products fit */
	int32_t end;
	const struct weight *part; /* [n_part] the table: rows in order, the same number in each */
	int n_part;
};

/* Residual streams that gates made of them mix (manifold-constrained hyper-connections, 2025, arXiv 2512.24880).  A row of
 * products z, behind which z = z scale[0, 1 or 2] + base for the three parts [streams | streams | streams * streams]:
 *
 *     pre_s = sigmoid(z_s) + eps;  post_s = 2 sigmoid(z_s);  M[a][b] = softmax over b (z_ab) + eps
 *     M[a][b] /= sum over a + eps;  rounds - 1 times: M[a][b] /= sum over b + eps;  M[a][b] /= sum over a + eps
 *
 * Sums are in rising order.  rounds 0: of z, base and scale there is the first part alone, and pre. */
enum { STREAMS_MOST = 16 };
struct stream_gates {
	int streams, rounds;
	const float *base, *scale; /* [streams (2 + streams)], [3] */
	float eps;
};
static inline int stream_gates_cols(int streams)
{
	return streams * (2 + streams);
}

/* How a mixture scores its experts by the router's logits. */
enum moe_route {
	ROUTE_SOFTMAX, /* softmax over all experts, of which the top_k largest are taken */
	ROUTE_TOP,     /* the top_k largest logits are taken, then softmax over these */
	ROUTE_SIGMOID, /* a sigmoid of each, of which the top_k largest are taken */
	/* Two rounds, top_k is 2: the largest logit m is taken, then, without it, the largest of the others.  Its weight is
	 * that of a softmax over those of the round that are near it: (m - l) / max(|l|, m) is at most jitter. */
	ROUTE_ROUNDS,
	ROUTE_ROOT, /* the root of a softplus of each, of which the top_k largest are taken */
};

struct moe {
	int experts, top_k, inner, shared_inner; /* shared_inner 0: none */
	bool normalise;                          /* divide by norm_eps + the sum of the chosen */
	const struct weight *router;             /* [experts][its cols] */
	/* Stacks over the experts, one weight each; those of one kind have one group size.  gate NULL: act(up).  up NULL:
	 * gate has 2 * inner rows, of which the even ones are the gate and the odd ones the factor. */
	const struct weight *gate, *up, *down;
	/* An expert for all rows; NULL: none.  Without shared_router it counts as it is, else times a sigmoid. */
	const struct weight *shared_gate, *shared_up, *shared_down, *shared_router;
	struct activation act, shared_act; /* shared_act ACT_NONE: act, for the shared expert too */
	enum moe_route route;
	const int32_t
		*by_token; /* [vocab][top_k] the experts of rows of each token, host memory; NULL: scores choose them */
	/* All by expert and NULL for none: added to the logits; added to the scores for the choice, not for the weight;
	 * times the weight. */
	const float *router_bias, *select_bias, *expert_scale;
	const float *gate_bias, *up_bias, *down_bias; /* [experts][rows of each] or NULL */
	/* Experts in groups of one size, of which those with the largest sums of two scores are chosen from; groups 0: no
	 * groups.  An expert of another group has score 0, or none at all with groups_strict. */
	int groups, groups_used;
	bool groups_strict;
	float scale, norm_eps;    /* the weights' factor, 0: 1 */
	float jitter;             /* of ROUTE_ROUNDS */
	bool weight_input;        /* weights multiply what experts read, not what they give */
	struct slot_layer *slots; /* the backend's own: its experts are read when they are used (stream); NULL: they lie
	                           * where the weights say */
};

/* How placed matrices are packed: in any one thread, while others may compute. */
struct pack_opts {
	enum arith arith; /* of the passes that read them */
	bool huge_rows;   /* what is not packed goes to huge pages */
	/* Asked before each piece of 32 MB, with the bytes done so far; false ends the packing. */
	bool (*more)(void *arg, size_t done);
	void *arg;
};

/* Experts that stay on disk and are read into slots when they are used: docs/experts-from-disk.md. */
struct stream_file {
	const struct file_map *map;
	const char *path;
};
struct stream_opts {
	enum arith arith;               /* of the passes */
	size_t bytes;                   /* of all slots together */
	const struct stream_file *file; /* [n_file] in which the checkpoint's experts lie */
	int n_file;
	const char *dir;          /* of packed slabs, made where they are missing; NULL: read from the checkpoint */
	const struct digest *key; /* of the checkpoint, with dir */
	enum reads_way way;
	int depth;         /* reads under way at once; 0: as was measured best */
	const char *trace; /* file that is told which experts each layer uses; NULL: none */
	/* Called while slabs are packed; may be NULL. */
	void (*progress)(void *arg, int percent);
	void *progress_arg;
};

/* Tables that stay on disk, of which the rows that a step looks up are read: docs/experts-from-disk.md. */
struct rows_opts {
	size_t bytes;                   /* of the buffer that rows are read into; at least that of one row is taken */
	const struct stream_file *file; /* [n_file] in which the tables lie */
	int n_file;
	enum reads_way way;
};

/* Rotary embedding by places on a grid: the angles of axis 0 and of axis 1 are apart.  A head's 2 * 2 * freqs dims are
 * pairs (i, i + 2 freqs), the first freqs of them of axis 0; with halves the first half of the head is of axis 0 and the
 * second of axis 1, each with pairs (i, i + freqs). */
struct grid_rope {
	const float *cos[2], *sin[2]; /* by axis: [places][freqs] backend memory */
	int freqs;
	bool halves;
};

enum { REHEARSE_AGAIN = -1 }; /* of rehearsed() */

struct backend_ops {
	const char *name;
	bool adapts; /* linear applies adapters (struct pass, adapter); false: that member is never set */
	bool near;   /* what alloc gives is host memory, and an operation has written it when it returns */

	void *(*alloc)(struct backend *, size_t bytes); /* zeroed, 64-byte aligned, touched lazily; NULL: refused */
	void (*free)(struct backend *, void *, size_t bytes);
	/* Optional: what is there is not needed any longer and may be lost; its memory, where the system can
	 * take it back, is free for others until it is written again. */
	void (*discard)(struct backend *, void *, size_t bytes);
	void (*write)(struct backend *, void *far, const void *near, size_t);
	/* Waits for what came before.  Returns 0, or E_DEVICE with the message in backend.failed: near[n] is undefined then. */
	int (*read)(struct backend *, void *near, const void *far, size_t n);
	void (*copy)(struct backend *, void *dst, const void *src, size_t); /* both far; apart, or one and the same */

	/* Optional; NULL: operations read host memory directly.
	 * Weights and vectors are named by their host addresses in all operations.  A model places what it
	 * will name before its first pass, and takes it back after its last; several models may place the same
	 * memory.  A backend that computes elsewhere copies it here and looks the copies up by address.
	 * The bytes do not change while they are placed.  E_FULL where they do not fit. */
	int (*place)(struct backend *, const struct placed *v, int n, struct err *);
	void (*unplace)(struct backend *, const struct placed *v, int n);
	/* Optional; NULL: nothing to gain.  Packs placed matrices into the layout that the backend reads fastest;
	 * passes before, during and after the call give the same bits.  Then makes the memory of slots ready, if there are
	 * any (stream).  Returns the bytes packed and made ready; ends early where the system gives no memory. */
	size_t (*pack)(struct backend *, const struct pack_opts *);

	/* Optional; NULL: all experts are in memory.  Makes products read the placed experts of these mixtures through a
	 * number of slots in memory, into which they are loaded from disk; called once, before the first pass.  The bits of
	 * passes are the same.  E_LIMIT: too few bytes for the experts of one row; E_UNSUPPORTED: the experts lie in no
	 * file; E_IO, E_FORMAT: as slab_file.h says. */
	int (*stream)(struct backend *, struct moe *const *mix, int n, const struct stream_opts *, struct err *);
	/* Required where stream is; called between passes.  Reduces the slots to at most `bytes` bytes, or lets them grow
	 * again up to their first number; freed memory returns to the system.  Returns the bytes of the slots now. */
	size_t (*stream_shrink)(struct backend *, size_t bytes);
	void (*stream_stats)(const struct backend *, struct stream_stats *);
	/* Optional; NULL: all tables are in memory.  Makes embed read its rows of these n placed matrices from disk, also for a
	 * model that shares them; no other operation may be given them.  Called once, before the first pass.  The bits of
	 * passes are the same.  E_UNSUPPORTED: a table lies in no file; E_IO, E_MISSING, E_FULL. */
	int (*stream_rows)(struct backend *, const struct weight *const *table, int n, const struct rows_opts *,
	                   struct err *);
	void (*row_stats)(const struct backend *, struct row_stats *); /* required where stream_rows is */

	/* Optional, both or none; NULL: every operation of backend.h is there for everything.  Between the two, passes compute
	 * nothing: their operations bring over what they name and compile what they need, and rehearsed reports the first that
	 * the backend cannot compute.  A model rehearses when it is opened, with a step of the most rows, so that it is refused
	 * then, and not in the middle of an answer.  Tables of the views are not read.
	 * rehearsed: 0; REHEARSE_AGAIN: the model rehearses once more, now that the backend knows where its layers lie;
	 * E_UNSUPPORTED, with the operation and why; E_FULL: what it names does not fit; E_DEVICE. */
	void (*rehearse)(struct backend *);
	int (*rehearsed)(struct backend *, struct err *);

	/* Optional; NULL: operations read the host's.  Called once per pass, by pass_begin, when all host tables that the pass
	 * names are final: tok, pos, item, span, row, logit_row, brought, rope_pos, see, adapter, grid, pick, and those of the
	 * views kv and state (page, first; owed, still, keep).  The backend may bring them over; they stay as they are until
	 * end. Operations name views and tables by the same host addresses. */
	int (*begin)(struct pass *);
	/* Optional; NULL: operations are done when they return, and cannot fail.  Called once for each begin, by pass_end:
	 * waits for the pass's operations.  begin and end return 0 or E_DEVICE, with the message in backend.failed. */
	int (*end)(struct pass *);

	/* Rows are n rows of `cols` floats, one after the other, unless said. */
	/* Rows that bring their own vectors get the table's row 0. */
	void (*embed)(struct pass *, float *out, const struct weight *table);
	/* For rows that bring their own vectors: level 0 writes their embedding to x[row], level l adds what follows
	 * after layer l - 1.  Others are left as they are. */
	void (*bring)(struct pass *, float *x, int cols, int level);
	void (*norm)(struct pass *, float *out, const float *in, int n, int cols, const float *gain, float eps);
	/* LayerNorm: (in - mean) * rsqrt(mean of squares of that + eps) * gain + bias. */
	void (*layer_norm)(struct pass *, float *out, const float *in, int n, int cols, const float *gain,
	                   const float *bias, float eps);
	/* All jobs share in[n][cols].  Jobs may differ in format. */
	void (*linear)(struct pass *, const struct linear *job, int n_job, const float *in, int n, int cols);
	void (*by_head)(struct pass *, float *out, const struct by_head *, const float *in, int n);
	/* Norms and rotates the queries in place and the keys, and writes keys and values to the cache at the rows'
	 * positions.  Query head h of a row begins at q + row * q_row + h * q_head.  v may be k: the values are the
	 * keys before norm and rotation.  k and v NULL: the queries alone, for a layer that reads what another layer
	 * of the step has written; one call serves both since they share their cosines and a barrier.  view NULL, and k:
	 * rows that no cache holds. */
	void (*kv_append)(struct pass *, const struct attn *, float *q, size_t q_row, size_t q_head, float *k,
	                  const float *v, const struct kv_view *, int layer);
	/* out[row][heads * dim]; a row sees positions 0 .. its own, or those of its window, and takes nothing from
	 * others, not even zero times what is there: rows before every window may be gone.  gate (NULL: none) lies
	 * like q; out *= sigmoid(gate). */
	void (*attend)(struct pass *, float *out, const struct attn *, const float *q, const float *gate, size_t q_row,
	               size_t q_head, const struct kv_view *, int layer);
	/* An indexer's choice (DeepSeek-V3.2, 2025, section 2.1): of the positions that a row sees, the `most` with the highest
	 * scores, of equal scores the lower positions; all, where there are no more.  The score is the sum over rising heads h
	 * of weight[row][h] max(q_h . key, 0), by fma from 0; a NaN is below all others; weight NULL: 1.  chosen[n_row][most +
	 * 1], backend memory: how many, then the positions, rising.  The view's keys have one head.
	 * Where the view has a row for every some positions, and attn a window, it is of those rows that are whole that `most -
	 * attn.window` are chosen, and written as ~row; the positions of the window follow.  q NULL: all of them.
	 * With attn.pooled, and where the view has a row for every some positions and attn no window, it is the whole blocks
	 * that are chosen, as many as `most` has, where a row sees more than `most` positions; their positions are written, and
	 * those that it sees behind its last whole block come on top. */
	void (*choose)(struct pass *, int32_t *chosen, int most, const struct attn *, const float *q, size_t q_row,
	               size_t q_head, const float *weight, const struct kv_view *, int layer);
	/* attend over what choose has left in chosen: the i-th chosen position has the place of position i, so that the bits are
	 * those of attend where a row's positions are all from 0 to its own.  Without slopes. */
	void (*attend_chosen)(struct pass *, float *out, const struct attn *, const float *q, const float *gate,
	                      size_t q_row, size_t q_head, const int32_t *chosen, int most, const struct kv_view *,
	                      int layer);
	/* out[j][n_row][n] = the j-th convolution of in[n_row][n], which are channels [at, at + n) of the layer:
	 * for layers that convolve apart from their recurrence, or have no other. */
	void (*conv)(struct pass *, float *out, const struct conv *, int n_conv, const float *in, int at, int n,
	             const struct state_view *, int layer);
	/* Keeps k and v of the pass's rows in a layer of the raw view, and writes the rows of groups that end among them to a
	 * layer of the other (struct compress). */
	void (*compress)(struct pass *, const struct compress *, const float *k, const float *v,
	                 const struct kv_view *raw, int raw_layer, const struct kv_view *, int layer);
	/* A recurrent layer between its projections, out[n_row][heads_v * dim_v]: convolution, the view's rule,
	 * norm and gate. */
	void (*recur)(struct pass *, float *out, const struct recur *, const struct recur_in *,
	              const struct state_view *, int layer);
	/* Between passes: make the first keep > 0 tape rows of the slot part of S and tail,
	 * all layers. */
	void (*tape_apply)(struct backend *, const struct state_view *, int slot, int keep);
	/* out = the mixture's output for in, or out += it with add; out may be in.  by: what the routers read, rows of
	 * the router's cols; NULL: in. */
	void (*moe)(struct pass *, float *out, bool add, const struct moe *, const float *in, const float *by, int n,
	            int cols);
	/* out[n][heads][out_dim] = in[n][heads][in_dim], cut or filled up with zeros; with a rope rotated by the rows'
	 * places (pass, grid), and n is the pass's rows then.  out may be in where the dims are equal. */
	void (*heads)(struct pass *, float *out, int out_dim, const float *in, int in_dim, int n, int heads,
	              const struct grid_rope *);
	/* x = act(x) * y, for products with something between them */
	void (*gate)(struct pass *, float *x, const float *y, int n, int cols, const struct activation *act);
	/* x = min(max(x * gain + shift, low), high); gain and shift are of columns, NULL: 1 and 0 */
	void (*affine)(struct pass *, float *x, int n, int cols, const float *gain, const float *shift, float low,
	               float high);
	/* x += scale * y */
	void (*add)(struct pass *, float *x, const float *y, int n, int cols, float scale);
	/* x = scale * x; with a cap other than 0 x = cap tanh(scale * x / cap) */
	void (*map)(struct pass *, float *x, int n, int cols, float scale, float cap);
	/* x *= y, whose rows are y_ld floats apart and whose every number is for `each` columns of x side by side */
	void (*mul)(struct pass *, float *x, const float *y, size_t y_ld, int each, int n, int cols);
	/* out = a + (b - a) * sigmoid(t), rows of out out_ld apart; b and t NULL: out = a. */
	void (*blend)(struct pass *, float *out, size_t out_ld, const float *a, const float *b, const float *t, int n,
	              int cols);
	/* Rows of `streams` residual streams side by side, cols each; all sums by fma.
	 * mix_streams: out[n][cols] = sum over rising s, from 0, of by_s x_s; x and by [n][streams * cols].
	 * add_streams: x_s = scale by[row][s] y, or x_s += that with add; y[n][cols], by[n][streams].
	 * match_streams: out[n][streams] = sigmoid(g); g is the root of scale a_s . b_s, at least 1e-3, with its sign; 0 of 0. */
	void (*mix_streams)(struct pass *, float *out, const float *x, const float *by, int n, int streams, int cols);
	void (*add_streams)(struct pass *, float *x, bool add, const float *y, const float *by, float scale, int n,
	                    int streams, int cols);
	void (*match_streams)(struct pass *, float *out, const float *a, const float *b, float scale, int n,
	                      int streams, int cols);
	/* Convolves the rows of each item by themselves, with a kernel of which a part is each row's own: out = sum over rising
	 * j < taps, by fma from 0, of (base[j][c] + by[row][j][c / each]) times c of the row j before; rows before the item's
	 * first count nothing.  out and in[n_row][cols] are apart; base[taps][cols]; rows of by are by_ld floats apart. */
	void (*conv_block)(struct pass *, float *out, const float *in, const float *base, const float *by, size_t by_ld,
	                   int taps, int each, int cols);
	/* gate_streams: z[n][stream_gates_cols] becomes pre | post | M in place, and out[n][cols] = sum of pre_s x_s.
	 * join_streams: x_b = post_b y + sum over a of M[a][b] x_a, by the gates that gate_streams left.
	 * mean_streams: out[n][cols] = sum of x_s / streams; out is not x. */
	void (*gate_streams)(struct pass *, float *out, float *z, const struct stream_gates *, const float *x, int n,
	                     int cols);
	void (*join_streams)(struct pass *, float *x, const float *gates, const float *y, int n, int streams, int cols);
	void (*mean_streams)(struct pass *, float *out, const float *x, int n, int streams, int cols);
	/* out[n_row][heads * width]: rows of tables that the last tokens choose (struct ngrams).  Channel `at` of the layer of
	 * the view, which is pass.past, remembers the tokens: the operation reads and moves it. */
	void (*embed_ngrams)(struct pass *, float *out, const struct ngrams *, const struct state_view *, int layer,
	                     int at);
	/* out[i] = in[index[i]]; index[n] lies in the pass's logit_row or pick */
	void (*gather)(struct pass *, float *out, const float *in, const int32_t *index, int n, int cols);

	void (*close)(struct backend *);
};

/* A callback that is shown the inputs of products: n rows of w's inputs, ld floats apart.  Only products of ARITH_F32 in
 * the CPU backend call it, on the engine's thread, before they compute. */
struct observer {
	void (*see)(void *arg, const struct weight *w, const float *x, size_t ld, int n);
	void *arg;
};

struct backend {
	const struct backend_ops *ops;
	/* Names what the bits of results depend on, besides the model and the input: two backends of one arithmetic give the
	 * same bits.  "plain" are the orders of format.h without a dot product of bf16, which every device can follow. */
	const char *arithmetic;
	/* Names the order of numbers in the backend's memory, of states above all: two backends of one order read each other's
	 * snapshots. */
	const char *order;
	size_t memory; /* bytes of the device that computes; 0: the machine's memory */
	/* What computes, for messages: of the CPU backend its level of instructions, and that of attention where it is
	 * another. */
	const char *level;
	/* Set by the backend, once and for ever, when the device fails: E_DEVICE and what happened.  code 0: it has not.  Read
	 * between operations, by the thread that calls them. */
	struct err failed;
	int threads;                     /* that compute, the caller's included */
	const struct observer *observer; /* borrowed; may be NULL */
	struct profile *profile;         /* NULL: nothing is counted; see backend/profile.h */
};

/* backend/cpu: threads counts the caller's.  Fails only for lack of memory.  All operations at one level, or each at
 * the level chosen for it. */
struct backend *backend_cpu_open(int threads, enum cpu_level level);
struct choices; /* quant/choices.h */
struct backend *backend_cpu_open_chosen(int threads, const struct choices *choices);
/* Memory that its operations come to hold for themselves, besides passes' work memory, in steps of n rows of `cols`:
 * that of the mixture that takes most.  For plans. */
size_t backend_cpu_own_bytes(struct moe *const *mix, int n_mix, int n, int cols);
/* For a backend that backend_cpu_open made: its levels, and how often its threads were waited for since then. */
const struct choices *backend_cpu_choices(const struct backend *be);
uint64_t backend_cpu_joins(const struct backend *be);

#endif
