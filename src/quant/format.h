/* format.h - how rows of numbers are written in a model file, and what multiplies them.
 *
 * One file per format (float.c, affine.c, fp4.c ...) with its ISA kernels
 * next to it, and one line in formats.c.  Weights stay where the file has them:
 * row-major, mapped read-only, any alignment; a kernel that wants another layout
 * makes it in its scratch, a panel at a time.  The commonest formats also have a packed
 * form (packed.h), which a backend with memory to spare makes once and kernels then read instead.
 *
 * The law of the row in this folder: out[r][o] is a function of row r of the
 * activations and row o of the weight alone, with one fixed order of roundings,
 * whatever the number of rows, the kernel and the thread.  The orders are
 *
 *   plain float (and every format under ARITH_F32, decoded first):
 *     16 partial sums, partial j taking inputs j, j+16, j+32 ... by fused
 *     multiply-add in rising order, then a fixed tree: 8 apart, 4, 2, 1.
 *   coded weights under ARITH_FAST: activations are int8 with one scale per
 *     group; per group the integer sum is exact; per output the float steps are
 *       acc = fma(scale[o][g], xscale[r][g] * (float)isum, acc)
 *       acc = fma(bias[o][g],  xscale[r][g] * (float)xsum[r][g], acc)   (where there is a bias)
 *     over rising g.  Of a type of GGUF a group is 16 or 32 inputs, those that share its smallest scale;
 *     scale and bias are its products of a block's scale and a group's, which are exact (gguf/gguf.h).
 *   bf16 weights under ARITH_FAST at levels avx512bf16 and amx: activations are rounded to bf16;
 *     per output and block of 32 inputs, the last filled up with zeros,
 *       even = fma(x[2 i], w[2 i], even), odd = fma(x[2 i + 1], w[2 i + 1], odd)
 *     over rising i, both from 0, then acc = acc + (even + odd), over rising
 *     blocks; what is denormal counts as zero, before and after every step.  At
 *     the other levels of x86 they are plain floats.
 *   bf16 weights under ARITH_FAST at level bf16 of Arm ("bfmmla"): activations are rounded to bf16; per output,
 *       acc = acc + (x[i] w[i] + x[i + 1] w[i + 1])
 *     over rising even i, from 0 and to the next multiple of 8 inputs, the last ones 0; products are
 *     exact; both sums are rounded to odd: what is beyond 24 bits is cut off, and if that was anything, the last
 *     bit becomes 1; what is denormal counts as zero, before and after every step.
 *   attention over bf16 rows under ARITH_FAST at the same levels, heads of a multiple of 32
 *     dims up to 512: queries are rounded to bf16; a score is their sum by blocks of 32 dims as
 *     of bf16 weights above.  Per segment of 256 positions, at absolute ones, weights are
 *       p = bf16(2^((score - max) c)), c = scale log2(e) rounded, 2^x in kv_softmax512.c;
 *     their sum is that of even plus that of odd positions, each rising; they are
 *     multiplied with the values by blocks of 32 positions, likewise as above, where
 *     what a row does not see counts as zero.  Segments merge in rising order,
 *       acc = fma(new, 2^((its max - max) c), acc 2^((old max - max) c)), sum likewise,
 *     and last 0 is added.  Everywhere else rows are plain floats, and attend.c has
 *     the order of softmax.  A position outside of a row's window has weight 0 and is not read;
 *     segments and blocks wholly outside are left out.  A sink is merged last, as a segment
 *     of sum 1 and no values, in the order of attend.c.
 *
 *   recurrences (backend/cpu/recur_kernels.c), at all levels: a sum over the dim_k rows of S is made by quarters
 *     of w = (dim_k + 3) / 4 rows, quarter p from row p w on, each from 0 by fused multiply-add over
 *     rising rows, then (a0 + a1) + (a2 + a3).  So four lanes of a device can share a column of S.
 *
 * exp is the polynomial of lanes.h at all levels, 0 below -87, and logarithms are series over it: no result
 * hangs on a library of C.  What does, sines and cosines of positions and the logarithm in attn.q_bend, is
 * computed by the host for every backend.
 *
 * So all levels give the same bits as well, but for bf16 weights and for attention over bf16
 * rows, of which those with a dot product of bf16 give other bits than those without (level_orders);
 * checkkern and tests/backend test that with memcmp. */
#ifndef QUANT_FORMAT_H
#define QUANT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/err.h"

/* Number types of stored tensors (safetensors names). */
enum dtype {
	DT_BOOL,
	DT_U8,
	DT_I8,
	DT_U16,
	DT_I16,
	DT_U32,
	DT_I32,
	DT_U64,
	DT_I64,
	DT_F16,
	DT_BF16,
	DT_F32,
	DT_F64,
	DT_F8_E4M3,
	DT_F8_E5M2,
	DT_F8_E8M0,
	DT_OTHER, /* of a file: a name that is not known here.  Its elements have no size and are never read */
	DT_COUNT
};

const char *dtype_name(enum dtype t);               /* "BF16" */
int dtype_size(enum dtype t);                       /* bytes per element; 0 of DT_OTHER */
int dtype_parse(const char *name, enum dtype *out); /* 0, or E_FORMAT: it would be DT_OTHER */
/* n elements at p (any alignment) to float; F16 BF16 F32 F64 and the F8 only. */
void dtype_to_float(float *out, const void *p, enum dtype t, size_t n);

float bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float f); /* nearest even, NaN stays NaN */
float f16_to_float(uint16_t h);
uint16_t float_to_f16(float f); /* nearest even, NaN stays NaN */
float e4m3_mlx(uint8_t b);      /* E4M3 as MLX reads it: 0x7f is 480, there is no NaN */

/* The arithmetic of a pass: reference, or what serving uses. */
enum arith { ARITH_F32, ARITH_FAST };

/* A matrix of a model file: rows outputs by cols inputs, y = x W'.  Borrowed from the mapped file; never written. */
struct packed;
struct basis; /* quant/basis.h */
struct weight {
	const struct format *fmt;
	const char *name; /* tensor name, for messages */
	int rows, cols;
	int group;           /* inputs that share a scale; 0: format has none */
	const uint8_t *data; /* row o begins at data + o * row_bytes */
	size_t row_bytes;
	/* [rows][cols / group] of scale_type; biases may be NULL, and both are where scales lie in the rows. */
	const uint8_t *scales, *biases;
	enum dtype scale_type;
	/* The packed form (packed.h) of the tensor in which these are rows packed_row0 and on; NULL: never packed. */
	struct packed *packed;
	int packed_row0;
	/* The rows are in this basis: products turn their inputs into it, and weight_decode undoes it.  NULL: as they are. */
	const struct basis *basis;
};

/* Bytes of a row's scales, and of its biases if it has any; 0: they do not lie apart from the row. */
size_t weight_scale_bytes(const struct weight *w);

/* Rows [first, first + n) as a weight of their own: one expert of a stack, one half of a fused pair. */
struct weight weight_rows(const struct weight *w, int first, int n);
/* out[cols] = row o in the basis of the inputs: what an input is multiplied by, or a table's entry. */
void weight_decode(float *out, const struct weight *w, int o);

/* Rows of activations in the forms kernels want.  f is always there; q, scale and sum only when prepared for a coded
 * format. */
struct acts {
	int rows, cols;
	const struct basis *basis; /* of f and what is made of it; NULL: as the operation got it */
	const float *f;            /* [rows][ld] */
	size_t ld;
	int group;               /* of q; 0 when q is not there */
	const int8_t *q;         /* [rows][cols], in [-127, 127] */
	const float *scale;      /* [rows][cols / group]; 0 for a group of zeros */
	const int32_t *sum;      /* [rows][cols / group]: sum of q over the group */
	const float *scaled_sum; /* [rows][cols / group]: scale * (float)sum */
	/* q, scale, sum and scaled_sum by ACTS_TILE rows side by side, for kernels with tiles;
	 * NULL: not prepared.  Tile t begins at t * acts_tile_bytes: [cols / group][scale,
	 * scaled_sum, sum][16], then [cols / 4][16][4] of q; zeros beyond the last row. */
	const uint8_t *tiles;
	/* f as bf16 by ACTS_TILE rows and pairs of inputs, for kernels of bf16; NULL: not
	 * prepared.  Tile t begins at t * acts_pairs_bytes.  In it, at level amx: [blocks of
	 * 32 inputs][16 pairs][16 rows][2]; zeros beyond the last row and input.  At level
	 * avx512bf16: [rows][blocks of 32 inputs][4 inputs a b c d as c a d b]; zeros beyond
	 * the last input.  At level bf16: [8 pairs of rows][fours of inputs, to a multiple of 32][2][4]; zeros beyond the
	 * last input, and in place of the second row of a pair where there is none. */
	const uint8_t *pairs;
};
enum { ACTS_TILE = 16, ACTS_TILED = 5 }; /* rows of a tile; fewer rows than the second are not read as tiles */

/* Quantises one row: scale = max|x| / 127 per group, q = rint(x * (1 / scale));
 * a group whose max|x| is below 1e-30 counts as zeros.  cols must be a multiple
 * of group.  The same bits at every level. */
typedef void acts_quantise_fn(int8_t *q, float *scale, int32_t *sum, float *scaled_sum, const float *x, int cols,
                              int group);
acts_quantise_fn *acts_quantiser(enum cpu_level level);
/* Lays out one tile from rows r0 .. r0 + rows - 1 of a, rows <= ACTS_TILE.  NULL: the level's kernels do not read
 * tiles. */
static inline size_t acts_tile_bytes(int cols, int group)
{
	return (size_t)ACTS_TILE * ((size_t)cols + (size_t)(cols / group) * 3 * sizeof(float));
}
typedef void acts_tile_fn(uint8_t *tile, const struct acts *a, int r0, int rows);
acts_tile_fn *acts_tiler(enum cpu_level level);
/* Lays out one tile of struct acts.pairs: 16 rows by blocks of 32 inputs of 2 bytes.  NULL: the level's kernels do not
 * read pairs. */
static inline size_t acts_pairs_bytes(int cols)
{
	return ((size_t)cols + 31) / 32 * 32 * ACTS_TILE * 2;
}
acts_tile_fn *acts_pairer(enum cpu_level level);

/* out[r * ld + o - o0] = x[r] . w[o] for r in [r0, r1), o in [o0, o1).  scratch
 * is the calling thread's own, weight_scratch_bytes(w) long, 64-byte aligned. */
typedef void weight_mul_fn(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                           int r1, void *scratch);

enum acts_form { ACTS_FLOAT, ACTS_INT8, ACTS_BF16 }; /* f only; q and its scales; pairs */

struct kernels {
	weight_mul_fn *mul[2]; /* by enum arith */
	enum acts_form acts;   /* what ARITH_FAST wants */
	/* From this many rows on, the product of ARITH_FAST prefetches its own output lines, since rows of outputs may
	 * lie pages apart.  0: it never does. */
	int prefetch_rows;
	/* The product of ARITH_FAST reads the packed form where there is one, and then nothing else of the weight. */
	bool packed;
};

struct coding;
struct format {
	const char *name; /* "bf16", "affine4" */
	int bits;         /* per element, scales aside */
	/* The truth: row o as floats, in plain C, in the weight's own basis. */
	void (*decode)(float *out, const struct weight *w, int o);
	/* Fills k for a level: scalar first, then what is better. */
	void (*kernels)(struct kernels *k, enum cpu_level level);
	const struct coding *coding; /* what quant/'s integer kernels read; NULL: not theirs */
	bool pairs;                  /* elements are bf16: the packed form is pairs of inputs, and so are activations */
};

size_t weight_scratch_bytes(const struct weight *w);

/* The list, formats.c.  Lookup by name; NULL when there is none. */
extern const struct format *const formats[]; /* NULL-ended */
const struct format *format_find(const char *name);

/* Describe a matrix in a file.  Each checks that the byte counts it is given are those its shape asks for. */
int weight_plain(struct weight *w, const char *name, enum dtype t, int rows, int cols, const void *data, size_t bytes,
                 struct err *err);
/* MLX modes: "affine" with bits 1 2 3 4 5 6 8, "mxfp4", "mxfp8", "nvfp4"; and "fp8" with scales
 * of DT_F32, in groups of a multiple of 16. */
int weight_coded(struct weight *w, const char *name, const char *mode, int bits, int group, int rows, int cols,
                 const void *data, size_t data_bytes, const void *scales, size_t scale_bytes, const void *biases,
                 size_t bias_bytes, enum dtype scale_type, struct err *err);

/* Names of a level's orders of roundings, as the head of this file has them: of bf16 weights and of attention over bf16
 * rows, both under ARITH_FAST.  "plain": as floats, as at the scalar level. */
struct level_orders {
	const char *products, *attention;
};
struct level_orders level_orders(enum cpu_level level);

/* Peak arithmetic of a level: runs n rounds of its widest instruction on registers alone
 * and returns the multiplications and additions made.  Kinds: int8 with sums in int32,
 * bf16 with sums in float, and floats. */
typedef double quant_peak_fn(int64_t n);
struct peaks {
	quant_peak_fn *int8, *f32;
	quant_peak_fn *bf16;         /* NULL: the level has no such arithmetic */
	quant_peak_fn *int8_vectors; /* where int8 is of tiles, what vectors give; NULL: it is of vectors */
};
void quant_peaks(struct peaks *p, enum cpu_level level);

/* Plain float kernels that other folders share, in the 16-partial order above. */
struct vec_kernels {
	float (*dot)(const float *a, const float *b, int n);
	float (*sum_squares)(const float *a, int n);
	/* x = scale * H x, H of 1 and -1; n is a power of two.  Sums of neighbours first, the factor last. */
	void (*hadamard)(float *x, int n, float scale);
};
void vec_kernels(struct vec_kernels *k, enum cpu_level level);

/* How the K or V vector of one head and token is written in the cache.  Without
 * state: the bytes depend on the vector alone.  A format may rotate vectors by a
 * fixed rotation first; then queries are rotated in the same way, scores are the same,
 * and the sums of mix are rotated back once.  docs/kv-cache.md has the formats. */
enum kv_side { KV_KEYS, KV_VALUES };
struct kv_kernels;
struct kv_format {
	const char *name;             /* "bf16", "u8g64" */
	size_t (*row_bytes)(int dim); /* 0: not for heads of this size */
	/* Defines the format: the vector that a row stands for, still rotated if the format rotates. */
	void (*decode)(float *x, const void *row, int dim);
	void (*kernels)(struct kv_kernels *k, enum cpu_level level);
};
/* Memory that will be read next, as two runs: [at, end), and as many bytes from at + apart on.  Kernels prefetch lines
 * of it while they read as many, and leave the part that they did not reach.  From memory that is 1.5 times as fast as
 * prefetching a row some rows ahead, and two runs 1.25 times as fast as one: a processor's own prefetchers follow both. */
struct kv_ahead {
	const uint8_t *at, *end;
	size_t apart;
};
static inline struct kv_ahead kv_ahead_of(const uint8_t *rows, size_t bytes)
{
	size_t half = (bytes + 127) / 128 * 64;

	return (struct kv_ahead){ rows, rows + half, half };
}
/* Inlined: gcc 12 drops calls of a function that only asks for memory. */
__attribute__((always_inline)) static inline void kv_prefetch(struct kv_ahead *a, int lines)
{
	if (a->at >= a->end)
		return;
	for (int i = 0; i < lines; i += 2, a->at += 64) {
		__builtin_prefetch(a->at);
		__builtin_prefetch(a->at + a->apart);
	}
}
__attribute__((always_inline)) static inline void kv_prefetch_rest(struct kv_ahead *a)
{
	for (; a->at < a->end; a->at += 64) {
		__builtin_prefetch(a->at);
		__builtin_prefetch(a->at + a->apart);
	}
}
typedef void kv_score_fn(float *score, size_t ld, const void *q, int nq, const void *rows, int n, int dim,
                         struct kv_ahead *next);
typedef void kv_mix_fn(float *acc, const float *p, size_t ld, int nq, const void *rows, int n, int dim,
                       struct kv_ahead *next);
typedef void kv_opened_score_fn(float *score, size_t ld, const void *q, int nq, const void *opened, int n, int dim);
typedef void kv_opened_mix_fn(float *acc, const float *p, size_t ld, int nq, const void *opened, int n, int dim);
/* Kernels of a format of cache rows; every level gives the same bits.  Rows lie one after the other. */
struct kv_kernels {
	void (*encode)(void *row, const float *x, int dim, enum kv_side side);
	/* The rotation and its inverse, in place; NULL: there is none. */
	void (*turn)(float *x, int dim);
	void (*turn_back)(float *x, int dim);
	/* Converts a query, already rotated, to the form that score reads: query_bytes(dim) bytes, 64-byte aligned. */
	size_t (*query_bytes)(int dim);
	void (*query)(void *to, const float *q, int dim);
	/* For each of nq queries j, query_bytes apart: score[j][i] = q[j] . row_i for
	 * i < n.  Plain rows: in the 16-partial order.  Coded rows: the query is int16
	 * with one scale, the order is at the head of kv_coded.c. */
	kv_score_fn *score;
	/* acc[j][d] = fma(p[j][i], decoded row_i[d], acc[j][d]) over rising i; p: [nq][ld]. */
	kv_mix_fn *mix;
	/* For many queries, and dims that are a multiple of 16.  open dequantises rows to floats once,
	 * into kv_opened_bytes(dim) bytes: element d of row i of KV_BLOCK at to[d / KV_PANEL][i][d %
	 * KV_PANEL].  score_opened and mix_opened give the bits of score and mix over the first
	 * n <= KV_BLOCK of those rows.  score_opened NULL: scores are not computed of dequantised rows. */
	void (*open)(float *to, const void *rows, int n, int dim);
	kv_opened_score_fn *score_opened;
	kv_opened_mix_fn *mix_opened;
};
enum { KV_BLOCK = 64, KV_PANEL = 64 };
static inline size_t kv_opened_bytes(int dim)
{
	return (size_t)((dim + KV_PANEL - 1) / KV_PANEL) * KV_PANEL * KV_BLOCK * sizeof(float);
}
extern const struct kv_format *const kv_formats[]; /* NULL-ended */
const struct kv_format *kv_format_find(const char *name);

/* The formats of a model's attention layers. */
struct kv_pair {
	const struct kv_format *k, *v;
};
struct kv_rows {
	struct kv_pair all;          /* of every layer, unless */
	const struct kv_pair *layer; /* [layers]; NULL: all */
};
static inline struct kv_rows kv_rows_of(const struct kv_format *f)
{
	return (struct kv_rows){ .all = { f, f } };
}
static inline struct kv_pair kv_rows_at(const struct kv_rows *r, int layer)
{
	return r->layer ? r->layer[layer] : r->all;
}
/* K and V of one head; 0 when one of them is not for heads of this size. */
size_t kv_pair_bytes(struct kv_pair pair, int dim);

#endif
