/* cpu_backend.h - inside backend/cpu/: the backend's own struct, its scratch, and
 * spreading work over its threads. */
#ifndef BACKEND_CPU_CPU_BACKEND_H
#define BACKEND_CPU_CPU_BACKEND_H

#include "backend/backend.h"
#include "backend/cpu/op_kernels.h"
#include "backend/cpu/recur_kernels.h"
#include "backend/low_rank.h"
#include "base/pool.h"
#include "quant/choices.h"

/* Memory that grows to the largest operation seen and is kept. */
struct room {
	uint8_t *p;
	size_t cap;
};

enum {
	ACTS_MAX = 8,          /* distinct groups among the jobs of one linear */
	ACTS_PAIRS = -1,       /* in place of a group: pairs of bf16 */
	MADE_GROUP_MOST = 128, /* parts of products have whole groups of what they make */
};

/* Activations quantised by the operation that made them, a stretch at a time while it is in the first
 * cache, in place of floats.  From one operation to the linear that reads it. */
struct made {
	const float *of; /* where the floats would be; NULL: there are none */
	const struct weight *reader;
	struct acts acts; /* f NULL, without tiles */
	int8_t *q;        /* its memory */
	float *scale, *scaled_sum;
	int32_t *sum;
};

struct cpu_backend {
	struct backend be;
	struct choices choices;
	char level[64];
	struct pool *pool;
	const struct op_table *op;
	const struct recur_table *recur;
	struct vec_kernels vec;
	acts_quantise_fn *quantise;
	acts_tile_fn *tile, *pair;  /* NULL: its kernels read no tiles */
	struct kernels *kernels;    /* parallel to formats[] */
	struct room *scratch;       /* one per thread */
	struct room acts[ACTS_MAX]; /* quantised activations */
	struct room parts;          /* how a product is cut */
	struct room work;           /* of the operation in progress */
	struct room low, low_h;     /* what adapters add to the products in progress */
	struct room turned;         /* the inputs of the products in progress in the basis of weights */
	struct pack *pack;          /* what models have placed: pack.h */
	struct slots *slots;        /* experts that are read when they are used: slots.h; NULL: none */
	struct row_tables *rows;    /* tables whose rows are read when they are looked up: row_tables.h; NULL: none */
	struct made made;           /* by the last operation, for the next linear */
	struct room made_room;
};

/* At least that many bytes, 64-byte aligned; old contents are lost. */
void *room_get(struct room *r, size_t bytes);
/* The next bytes of a room at *p, which goes on to the line behind them: up to 63 more each. */
static inline void *room_take(uint8_t **p, size_t bytes)
{
	void *at = *p;

	*p += (bytes + 63) / 64 * 64;
	return at;
}
/* Every thread's scratch is at least that large from now on. */
void cpu_scratch(struct cpu_backend *c, size_t bytes);
static inline void *cpu_my_scratch(struct cpu_backend *c)
{
	return c->scratch[pool_thread()].p;
}

/* fn(ctx, begin, end) over [0, n), in pieces of at least `grain`; one piece, on
 * the caller, when there is no more than that. */
typedef void cpu_range_fn(void *ctx, int begin, int end);
void cpu_range(struct cpu_backend *c, cpu_range_fn *fn, void *ctx, int n, int grain);
/* A grain of rows of cols floats. */
int cpu_grain_rows(int cols);

const struct kernels *cpu_kernels(struct cpu_backend *c, const struct format *f);

/* in[n][cols] ready for weights in groups of `group` (0: floats only; or ACTS_PAIRS), in
 * c->acts[at]; as they are, without a basis. */
void cpu_acts(struct cpu_backend *c, struct acts *a, const float *in, int n, int cols, int group, int at);
/* Prepares activations for runs of rows of which each is multiplied by other weights: run[i], i < n_run, gets rows
 * first[i] to first[i + 1] - 1, counted from 0, with tiles of its own where it is long enough.  Row j is row row[j]
 * of `from` (row NULL: j), floats or quantised already; where it has q, it has no f. */
void cpu_acts_runs(struct cpu_backend *c, struct acts *run, const int *first, int n_run, const struct acts *from,
                   const int *row, int group, int at);
/* The group that w's kernel wants of n rows of activations under arith; 0: floats; or ACTS_PAIRS. */
int cpu_act_group(struct cpu_backend *c, const struct weight *w, enum arith arith, int n);
/* in as w's kernel wants it, made in acts[*n] and c->acts[*n] unless it is among the *n there are.  Weights of one call
 * that are in a basis share it. */
const struct acts *cpu_acts_for(struct cpu_backend *c, struct acts *acts, int *n, const struct weight *w,
                                enum arith arith, const float *in, int rows);

/* n rows that `reader` alone reads, in place of floats at `of`, in stretches of `stretch` inputs or parts of them
 * that are whole groups; NULL: as floats, since there is no reader, it wants no codes, groups do not fit, or an adapter
 * of the pass reads them too. */
struct made *cpu_made_open(const struct pass *p, const struct weight *reader, const float *of, int n, int stretch);
/* Inputs [k, k + n) of a row; from any thread. */
void cpu_made_put(const struct cpu_backend *c, const struct made *m, int row, int k, const float *x, int n);
/* a is what was made in place of in; false: in are floats.  Either way nothing is made any more. */
bool cpu_made_take(struct cpu_backend *c, struct acts *a, const float *in, int n, const struct weight *w);

/* An adapter's addition to rows [r0, r1) of a linear: scale B h; output 0 is row row0 of B. */
struct low_run {
	const struct low_rank *of;
	int job; /* of the linear, 2 * its place, and 1 more for its up */
	int r0, r1, row0;
	float scale;
	const float *h; /* [r1 - r0][rank] */
};
/* Makes h of all that adapters add to these jobs over in[n], and *run of them by rising job; returns how many.  acts: as
 * cpu_acts_for has them. */
int cpu_low_runs(struct pass *p, const struct low_run **run, const struct linear *job, int n_job, struct acts *acts,
                 int *n_acts, const float *in, int n);
/* Adds what run[n_run] say to outputs [o0, o0 + n) of rows that lie ld apart; rows of job alone. */
void cpu_low_add(const struct cpu_backend *c, float *y, size_t ld, int o0, int n, const struct low_run *run, int n_run,
                 int job);

/* out[r][o] of rows [r0, r1) of x, r counted from r0; one barrier for all. */
struct product {
	const struct weight *w;
	const struct acts *x;
	int r0, r1;
	float *out;
	size_t ld;
	const float *bias;
	bool add;
	struct activation act; /* of x w + bias */
	bool pairs;            /* outputs of w are gate and factor in turn: out has half as many */
	/* act(x w + bias) * (x_up up + bias_up) in place of the former alone; NULL: that. */
	const struct weight *up;
	const struct acts *x_up;
	const float *bias_up;
	struct made *made;         /* in place of out; NULL: floats */
	const struct low_run *low; /* [n_low] of the job low_job, and of its up behind that; r0 is 0 then */
	int n_low, low_job;
};
void cpu_products(struct cpu_backend *c, enum arith arith, const struct product *job, int n);
/* The kernel of w over rows [r0, r1) of x, as weight_mul_fn says, with the calling thread's scratch. */
void cpu_multiply(struct cpu_backend *c, enum arith arith, float *out, size_t ld, const struct weight *w, int o0,
                  int o1, const struct acts *x, int r0, int r1);

/* The operations that have a file of their own. */
void cpu_by_head(struct pass *, float *out, const struct by_head *, const float *in, int n);
void cpu_linear(struct pass *, const struct linear *job, int n_job, const float *in, int n, int cols);
void cpu_kv_append(struct pass *, const struct attn *, float *q, size_t q_row, size_t q_head, float *k, const float *v,
                   const struct kv_view *, int layer);
void cpu_attend(struct pass *, float *out, const struct attn *, const float *q, const float *gate, size_t q_row,
                size_t q_head, const struct kv_view *, int layer);
void cpu_attend_chosen(struct pass *, float *out, const struct attn *, const float *q, const float *gate, size_t q_row,
                       size_t q_head, const int32_t *chosen, int most, const struct kv_view *, int layer);
void cpu_compress(struct pass *, const struct compress *, const float *k, const float *v, const struct kv_view *raw,
                  int raw_layer, const struct kv_view *, int layer);
void cpu_choose(struct pass *, int32_t *chosen, int most, const struct attn *, const float *q, size_t q_row,
                size_t q_head, const float *weight, const struct kv_view *, int layer);
void cpu_conv(struct pass *, float *out, const struct conv *, int n_conv, const float *in, int at, int n,
              const struct state_view *, int layer);
void cpu_recur(struct pass *, float *out, const struct recur *, const struct recur_in *, const struct state_view *,
               int layer);
void cpu_tape_apply(struct backend *, const struct state_view *, int slot, int keep);
void cpu_heads(struct pass *, float *out, int out_dim, const float *in, int in_dim, int n, int heads,
               const struct grid_rope *);
void cpu_gate(struct pass *, float *x, const float *y, int n, int cols, const struct activation *act);
void cpu_affine(struct pass *, float *x, int n, int cols, const float *gain, const float *shift, float low, float high);
void cpu_mix_streams(struct pass *, float *out, const float *x, const float *by, int n, int streams, int cols);
void cpu_add_streams(struct pass *, float *x, bool add, const float *y, const float *by, float scale, int n,
                     int streams, int cols);
void cpu_match_streams(struct pass *, float *out, const float *a, const float *b, float scale, int n, int streams,
                       int cols);
void cpu_conv_block(struct pass *, float *out, const float *in, const float *base, const float *by, size_t by_ld,
                    int taps, int each, int cols);
void cpu_gate_streams(struct pass *, float *out, float *z, const struct stream_gates *, const float *x, int n,
                      int cols);
void cpu_join_streams(struct pass *, float *x, const float *gates, const float *y, int n, int streams, int cols);
void cpu_mean_streams(struct pass *, float *out, const float *x, int n, int streams, int cols);
void cpu_embed_ngrams(struct pass *, float *out, const struct ngrams *, const struct state_view *, int layer, int at);
void cpu_moe(struct pass *, float *out, bool add, const struct moe *, const float *in, const float *by, int n,
             int cols);

#endif
