/* op_kernels.c - see op_kernels.h; compiled once per level. */
#include "backend/cpu/op_kernels.h"

#include <assert.h>
#include <math.h>

#include "quant/lanes/lanes.h"

/* Runs body for each 16 of n with i the first and m how many: twice in the program, first for whole sixteens, without masks. */
#define CHUNKS(n)                                                                                                \
	_Pragma("GCC unroll 2") for (int whole = 1; whole >= 0;                                                  \
	                             whole--) for (int i = whole ? 0 : (n) / 16 * 16, m = whole ? 16 : (n) % 16; \
	                                           i < (whole ? (n) / 16 * 16 : (n)); i += 16)

/* The same with V vectors at a time, which exponentials are fastest in: LANES_ABREAST, then one. */
#define CHUNKS_ABREAST(n)                                                                                          \
	_Pragma("GCC unroll 3") for (int step = 2, i = 0; step >= 0;                                               \
	                             step--) for (int V = step == 2 ? LANES_ABREAST : 1, m = step ? 16 : (n) % 16; \
	                                          step ? i + 16 * V <= (n) : i < (n); i += 16 * V)

static float sum_squares(const float *x, int n)
{
	v16 acc = v16_zero();

	CHUNKS(n)
	{
		v16 a = v16_load_n(x + i, m);

		acc = v16_fma_n(a, a, acc, m);
	}
	return v16_sum(acc);
}

static void norm(float *out, const float *in, int n, const float *gain, float eps)
{
	v16 r = v16_set1(1.0f / sqrtf(sum_squares(in, n) / (float)n + eps));

	CHUNKS(n)
	{
		v16 a = v16_mul(v16_load_n(in + i, m), r);

		v16_store_n(out + i, gain ? v16_mul(a, v16_load_n(gain + i, m)) : a, m);
	}
}

static void l2norm(float *x, int n, float scale)
{
	v16 r = v16_set1(1.0f / sqrtf(sum_squares(x, n) + 1e-6f)), s = v16_set1(scale);

	CHUNKS(n)
	v16_store_n(x + i, v16_mul(v16_mul(v16_load_n(x + i, m), r), s), m);
}

static void swiglu(float *out, const float *gate, const float *up, int n)
{
	CHUNKS_ABREAST(n)
	{
		v16 g[LANES_ABREAST];

		ABREAST(V) g[v] = v16_load_n(gate + i + 16 * v, m);
		v16_silus(g, V);
		ABREAST(V) v16_store_n(out + i + 16 * v, v16_mul(g[v], v16_load_n(up + i + 16 * v, m)), m);
	}
}

static void sigmoid(float *out, const float *in, int n)
{
	CHUNKS_ABREAST(n)
	{
		v16 a[LANES_ABREAST];

		ABREAST(V) a[v] = v16_load_n(in + i + 16 * v, m);
		v16_sigmoids(a, V);
		ABREAST(V) v16_store_n(out + i + 16 * v, a[v], m);
	}
}

static void exp_(float *out, const float *in, int n)
{
	CHUNKS_ABREAST(n)
	{
		v16 a[LANES_ABREAST];

		ABREAST(V) a[v] = v16_load_n(in + i + 16 * v, m);
		v16_exps(a, V);
		ABREAST(V) v16_store_n(out + i + 16 * v, a[v], m);
	}
}

static float exp1(float x)
{
	float out[16];

	v16_store(out, v16_exp(v16_set1(x)));
	return out[0];
}

static void axpy(float *y, float a, const float *x, int n)
{
	v16 f = v16_set1(a);

	CHUNKS(n)
	v16_store_n(y + i, v16_fma(f, v16_load_n(x + i, m), v16_load_n(y + i, m)), m);
}

static void add(float *y, const float *x, int n)
{
	CHUNKS(n)
	v16_store_n(y + i, v16_add(v16_load_n(y + i, m), v16_load_n(x + i, m)), m);
}

static void rope(float *x, const float *cos, const float *sin, int n)
{
	CHUNKS(n)
	{
		v16 a = v16_load_n(x + i, m), b = v16_load_n(x + n + i, m);
		v16 c = v16_load_n(cos + i, m), s = v16_load_n(sin + i, m);

		v16_store_n(x + i, v16_sub(v16_mul(a, c), v16_mul(b, s)), m);
		v16_store_n(x + n + i, v16_add(v16_mul(b, c), v16_mul(a, s)), m);
	}
}

/* First all maxima, then what follows from them, then all weights: what one query waits for
 * is another's work. */
static void softmax_block(float *s, const int *see, int n, float scale, float *max, float *sum, float *corr)
{
	float m[16], l[16];
	v16 f = v16_set1(scale), old = v16_load_n(max, n), next, c;

	assert(n <= 16);
	for (int j = 0; j < n; j++) {
		float *p = s + j * ATTN_BLOCK;
		v16 top = v16_set1(-INFINITY);

		for (int i = see[j]; i < ATTN_BLOCK; i++)
			p[i] = -INFINITY;
		for (int i = 0; i < ATTN_BLOCK; i += 16)
			top = v16_max(top, v16_mul(v16_load(p + i), f));
		m[j] = v16_top(top);
	}
	next = v16_max(v16_load_n(m, n), old);
	c = v16_exp(v16_sub(old, next));
	v16_store_n(m, next, n);
	for (int j = 0; j < n; j++) {
		float *p = s + j * ATTN_BLOCK;
		v16 tot = v16_zero(), by = v16_set1(m[j]);

		for (int i = 0; i < ATTN_BLOCK; i += 16 * LANES_ABREAST) {
			v16 e[LANES_ABREAST];

			ABREAST(LANES_ABREAST) e[v] = v16_sub(v16_mul(v16_load(p + i + 16 * v), f), by);
			v16_exps(e, LANES_ABREAST);
			ABREAST(LANES_ABREAST)
			{
				v16_store(p + i + 16 * v, e[v]);
				tot = v16_add(tot, e[v]);
			}
		}
		l[j] = v16_sum(tot);
	}
	v16_store_n(max, next, n);
	v16_store_n(sum, v16_fma(v16_load_n(sum, n), c, v16_load_n(l, n)), n);
	v16_store_n(corr, c, n);
}

static void scale(float *x, float f, int n)
{
	v16 a = v16_set1(f);

	CHUNKS(n)
	v16_store_n(x + i, v16_mul(v16_load_n(x + i, m), a), m);
}

static void merge(float *acc, float *max, float *sum, const float *a, float am, float l, int dim)
{
	float top = am > *max ? am : *max;
	float c1 = exp1(*max - top), c2 = exp1(am - top);
	v16 f1 = v16_set1(c1), f2 = v16_set1(c2);

	CHUNKS(dim)
	v16_store_n(acc + i, v16_fma(v16_load_n(a + i, m), f2, v16_mul(v16_load_n(acc + i, m), f1)), m);
	*max = top;
	*sum = __builtin_fmaf(l, c2, *sum * c1);
}

static void attn_out(float *out, const float *acc, float sum, const float *gate, int dim)
{
	v16 r = v16_set1(1.0f / sum);

	CHUNKS_ABREAST(dim)
	{
		v16 by[LANES_ABREAST];

		ABREAST(V) by[v] = gate ? v16_load_n(gate + i + 16 * v, m) : v16_zero();
		if (gate)
			v16_sigmoids(by, V);
		ABREAST(V)
		{
			v16 a = v16_mul(v16_load_n(acc + i + 16 * v, m), r);

			v16_store_n(out + i + 16 * v, gate ? v16_mul(a, by[v]) : a, m);
		}
	}
}

/* R tokens from x on; in seen, all inputs of the first but its last, and in the end those of the token after them. */
LANES_INLINE void conv_rows(float *out, size_t out_ld, const float *const *x, const v16 *by, v16 *seen, int c, int m,
                            const int WIDTH, const int R)
{
	v16 acc[LANES_ABREAST];

#pragma GCC unroll 4
	for (int i = 0; i < R; i++) {
		const float *last = x[WIDTH - 1 + i] + c;

		__builtin_prefetch(last + 16, 0, 2); /* rows lie pages apart: too many for the first cache's ways */
		seen[WIDTH - 1] = v16_load_n(last, m);
		acc[i] = v16_mul(by[0], seen[0]);
#pragma GCC unroll 8
		for (int j = 1; j < WIDTH; j++)
			acc[i] = v16_fma(by[j], seen[j], acc[i]);
#pragma GCC unroll 8
		for (int j = 0; j < WIDTH - 1; j++)
			seen[j] = seen[j + 1];
	}
	v16_silus(acc, R);
#pragma GCC unroll 4
	for (int i = 0; i < R; i++)
		v16_store_n(out + (size_t)i * out_ld, acc[i], m);
}

/* 16 channels, m of them real: down the tokens, so that each line of x is read once. */
LANES_INLINE void conv_lanes(float *out, size_t out_ld, const float *const *x, int rows, const float *w, size_t w_ld,
                             int c, int m, const int WIDTH, const int R)
{
	v16 by[CONV_MAX], seen[CONV_MAX];
	int i = 0;

#pragma GCC unroll 8
	for (int j = 0; j < CONV_MAX; j++) {
		by[j] = j < WIDTH ? v16_load_n(w + (size_t)j * w_ld + c, m) : v16_zero();
		seen[j] = j < WIDTH - 1 ? v16_load_n(x[j] + c, m) : v16_zero();
	}
	for (; i + R <= rows; i += R)
		conv_rows(out + (size_t)i * out_ld + c, out_ld, x + i, by, seen, c, m, WIDTH, R);
	for (; i < rows; i++)
		conv_rows(out + (size_t)i * out_ld + c, out_ld, x + i, by, seen, c, m, WIDTH, 1);
}

static void conv_silu(float *out, size_t out_ld, const float *const *x, int rows, const float *w, size_t w_ld,
                      int width, int n)
{
	CHUNKS(n)
	{
		if (width == 4 && m == 16) /* every model's so far */
			conv_lanes(out, out_ld, x, rows, w, w_ld, i, m, 4, LANES_ABREAST);
		else
			conv_lanes(out, out_ld, x, rows, w, w_ld, i, m, width, 1);
	}
}

/* Tiles of 16 columns that stay in registers from row to row of S.  With fewer, the sums
 * of one row wait for those of the row before. */
#if defined(__AVX512F__)
enum { DELTA_TILES = 4 };
#else
enum { DELTA_TILES = 2 };
#endif

/* Where row i of tile t is among T tiles: [T / 2][dim_k][32], or [dim_k][16] of one. */
LANES_INLINE size_t tile_at(int dim_k, int i, int t, const int T)
{
	return T == 1 ? 16 * (size_t)i : (size_t)(t / 2) * (size_t)dim_k * 32 + 32 * (size_t)i + 16 * (size_t)(t % 2);
}

/* STATE_AHEAD: floats of S asked for beyond those that are read, which behind a head's last are the next
 * head's first; 4 to 16 KB do alike. */
enum { OLD_MOST = 4, STATE_AHEAD = 2048 };

/* m = S'k and u = S'q (no token: neither), S being `from` after OLD of the old tokens, of which the first is
 * `old`; S goes to `to` unless that is NULL. */
LANES_INLINE void state_read(float *to, const float *from, int dim_k, const struct delta_rows *r, int old, int c,
                             int last, v16 *m, v16 *u, const int T, const int OLD)
{
	const float *k_old[OLD_MOST], *k = r->n ? r->k : NULL, *q = r->q;
	v16 a[DELTA_TILES], b[DELTA_TILES], d[OLD_MOST][DELTA_TILES], f[OLD_MOST] = { v16_zero() };

#pragma GCC unroll 4
	for (int j = 0; j < OLD; j++) {
		size_t at = (size_t)(old + j) * r->tape_ld;

		k_old[j] = r->old_k + at;
		f[j] = v16_set1(r->old_alpha[at]);
#pragma GCC unroll 4
		for (int t = 0; t < T; t++)
			d[j][t] = v16_load_n(r->old_delta + at + c + 16 * t, t == T - 1 ? last : 16);
	}
	for (int t = 0; t < T; t++)
		a[t] = b[t] = v16_zero();
	for (int i = 0; i < dim_k; i++) {
		v16 x[DELTA_TILES];

#pragma GCC unroll 4
		for (int t = 0; t < T; t++) {
			__builtin_prefetch(from + STATE_AHEAD + tile_at(dim_k, i, t, T));
			x[t] = v16_load(from + tile_at(dim_k, i, t, T));
		}
#pragma GCC unroll 4
		for (int j = 0; j < OLD; j++) {
			v16 kj = v16_set1(k_old[j][i]);

#pragma GCC unroll 4
			for (int t = 0; t < T; t++)
				x[t] = v16_fma(kj, d[j][t], v16_mul(f[j], x[t]));
		}
		if (to)
#pragma GCC unroll 4
			for (int t = 0; t < T; t++)
				v16_store(to + tile_at(dim_k, i, t, T), x[t]);
		if (k) {
			v16 ki = v16_set1(k[i]), qi = v16_set1(q[i]);

#pragma GCC unroll 4
			for (int t = 0; t < T; t++) {
				a[t] = v16_fma(x[t], ki, a[t]);
				b[t] = v16_fma(x[t], qi, b[t]);
			}
		}
	}
	for (int t = 0; t < T; t++) {
		m[t] = a[t];
		u[t] = b[t];
	}
}

/* The same after all old tokens; S of then stays where it is or goes to `to`, which is returned, unless nobody needs it. */
LANES_INLINE const float *state_begin(float *to, const float *s, int dim_k, const struct delta_rows *r, int c, int last,
                                      v16 *m, v16 *u, const int T)
{
	const float *from = s;
	int old = 0;

	/* All but the last few, of which S is stored whoever needs it; m and u are not of use yet. */
	for (; r->n_old - old > OLD_MOST; old += OLD_MOST, from = to)
		state_read(to, from, dim_k, r, old, c, last, m, u, T, OLD_MOST);
	/* A single token that leaves S as it is needs no more than m and u. */
	if (r->n == 1 && r->n_sure == 0)
		to = NULL;
	switch (r->n_old - old) {
	case 0: state_read(NULL, from, dim_k, r, old, c, last, m, u, T, 0); return from;
	case 1: state_read(to, from, dim_k, r, old, c, last, m, u, T, 1); break;
	case 2: state_read(to, from, dim_k, r, old, c, last, m, u, T, 2); break;
	case 3: state_read(to, from, dim_k, r, old, c, last, m, u, T, 3); break;
	default: state_read(to, from, dim_k, r, old, c, last, m, u, T, OLD_MOST);
	}
	return to;
}

/* to = alpha from + k d', and at the same time the next token's m and u: one
 * load and one store of S per token.  A row's loads come before its stores: pairs of
 * tiles lie a multiple of 4 KB apart, which the processor takes for the same place. */
LANES_INLINE void state_step(float *to, const float *from, int dim_k, float alpha, const float *k, const v16 *d,
                             const float *k2, const float *q2, v16 *m, v16 *u, const int T)
{
	v16 a[DELTA_TILES], b[DELTA_TILES], x[DELTA_TILES], f = v16_set1(alpha);

	for (int t = 0; t < T; t++)
		a[t] = b[t] = v16_zero();
	for (int i = 0; i < dim_k; i++) {
		v16 ki = v16_set1(k[i]), k2i = v16_set1(k2[i]), q2i = v16_set1(q2[i]);

#pragma GCC unroll 4
		for (int t = 0; t < T; t++)
			x[t] = v16_fma(ki, d[t], v16_mul(f, v16_load(from + tile_at(dim_k, i, t, T))));
#pragma GCC unroll 4
		for (int t = 0; t < T; t++) {
			v16_store(to + tile_at(dim_k, i, t, T), x[t]);
			a[t] = v16_fma(x[t], k2i, a[t]);
			b[t] = v16_fma(x[t], q2i, b[t]);
		}
	}
	for (int t = 0; t < T; t++) {
		m[t] = a[t];
		u[t] = b[t];
	}
}

LANES_INLINE void state_update(float *s, int dim_k, float alpha, const float *k, const v16 *d, const int T)
{
	v16 f = v16_set1(alpha);

	for (int i = 0; i < dim_k; i++) {
		v16 ki = v16_set1(k[i]);

#pragma GCC unroll 4
		for (int t = 0; t < T; t++) {
			float *p = s + tile_at(dim_k, i, t, T);

			v16_store(p, v16_fma(ki, d[t], v16_mul(f, v16_load(p))));
		}
	}
}

/* T tiles beginning at value column c of dim_v, of which `last` columns of the last tile are real. */
LANES_INLINE void delta_tiles(float *s, int dim_k, int dim_v, int c, int last, const struct delta_rows *r, float *spare,
                              const int T)
{
	const float *from;
	v16 m[DELTA_TILES], u[DELTA_TILES], d[DELTA_TILES];

	from = state_begin(r->n_sure || !r->n ? s : spare, s, dim_k, r, c, last, m, u, T);
	for (int i = 0; i < r->n; i++) {
		size_t row = (size_t)i * r->kq_ld, value = (size_t)i * (size_t)dim_v + (size_t)c;
		float alpha = r->alpha[i];
		v16 f = v16_set1(alpha), beta = v16_set1(r->beta[i]), kq = v16_set1(r->kq[i]);

#pragma GCC unroll 4
		for (int t = 0; t < T; t++) {
			int n = t == T - 1 ? last : 16;
			v16 v = v16_load_n(r->v + value + 16 * t, n);

			d[t] = v16_mul(beta, v16_sub(v, v16_mul(f, m[t])));
			v16_store_n(r->out + value + 16 * t, v16_fma(kq, d[t], v16_mul(f, u[t])), n);
			if (i >= r->n_sure)
				v16_store_n(r->tape + (size_t)(i - r->n_sure) * r->tape_ld + c + 16 * t, d[t], n);
		}
		if (i + 1 < r->n) {
			float *to = i < r->n_sure ? s : spare;

			state_step(to, from, dim_k, alpha, r->k + row, d, r->k + row + r->kq_ld, r->q + row + r->kq_ld,
			           m, u, T);
			from = to;
		} else if (i < r->n_sure) {
			state_update(s, dim_k, alpha, r->k + row, d, T);
		}
	}
}

static void delta_head(float *s, int dim_k, int dim_v, const struct delta_rows *r, float *spare)
{
	int c = 0;

	/* A single token meets S in memory, where one run is read faster than two. */
	for (; DELTA_TILES == 4 && r->n > 1 && c + 48 < dim_v; c += 64, s += (size_t)dim_k * 64)
		delta_tiles(s, dim_k, dim_v, c, dim_v - c < 64 ? dim_v - c - 48 : 16, r, spare, DELTA_TILES);
	for (; c + 16 < dim_v; c += 32, s += (size_t)dim_k * 32)
		delta_tiles(s, dim_k, dim_v, c, dim_v - c < 32 ? dim_v - c - 16 : 16, r, spare, 2);
	if (c < dim_v)
		delta_tiles(s, dim_k, dim_v, c, dim_v - c, r, spare, 1);
}

static void gated_norm(float *out, const float *in, const float *z, int n, const float *gain, float eps, bool sig)
{
	v16 r = v16_set1(1.0f / sqrtf(sum_squares(in, n) / (float)n + eps));

	CHUNKS_ABREAST(n)
	{
		v16 g[LANES_ABREAST];

		ABREAST(V) g[v] = v16_load_n(z + i + 16 * v, m);
		if (sig)
			v16_sigmoids(g, V);
		else
			v16_silus(g, V);
		ABREAST(V)
		{
			v16 a = v16_mul(v16_mul(v16_load_n(in + i + 16 * v, m), r), v16_load_n(gain + i + 16 * v, m));

			v16_store_n(out + i + 16 * v, v16_mul(a, g[v]), m);
		}
	}
}

const struct op_table LANES(op_table) = {
	.norm = norm,
	.l2norm = l2norm,
	.swiglu = swiglu,
	.sigmoid = sigmoid,
	.exp = exp_,
	.axpy = axpy,
	.add = add,
	.rope = rope,
	.softmax_block = softmax_block,
	.scale = scale,
	.merge = merge,
	.attn_out = attn_out,
	.conv_silu = conv_silu,
	.delta_head = delta_head,
	.gated_norm = gated_norm,
};
