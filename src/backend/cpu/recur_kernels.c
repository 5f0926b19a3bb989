/* recur_kernels.c - see recur_kernels.h; compiled once per level. */
#include "backend/cpu/recur_kernels.h"

#include <string.h>

#include "backend/cpu/chunks.h"
#include "quant/lanes/lanes.h"

/* ---- the convolution ---- */

/* R tokens from x on; in seen, all inputs of the first but its last, and in the end those of the token after them. */
LANES_INLINE void conv_rows(float *out, size_t out_ld, const float *const *x, const v16 *by, v16 *seen,
                            const float *bias, int c, int m, bool silu, const int WIDTH, const int R)
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
	if (bias)
#pragma GCC unroll 4
		for (int i = 0; i < R; i++)
			acc[i] = v16_add(acc[i], v16_load_n(bias + c, m));
	if (silu)
		v16_silus(acc, R);
#pragma GCC unroll 4
	for (int i = 0; i < R; i++)
		v16_store_n(out + (size_t)i * out_ld, acc[i], m);
}

/* 16 channels, m of them real: down the tokens, so that each line of x is read once. */
LANES_INLINE void conv_lanes(float *out, size_t out_ld, const float *const *x, int rows, const float *w, size_t w_ld,
                             const float *bias, int c, int m, bool silu, const int WIDTH, const int R)
{
	v16 by[CONV_MAX], seen[CONV_MAX];
	int i = 0;

#pragma GCC unroll 8
	for (int j = 0; j < CONV_MAX; j++) {
		by[j] = j < WIDTH ? v16_load_n(w + (size_t)j * w_ld + c, m) : v16_zero();
		seen[j] = j < WIDTH - 1 ? v16_load_n(x[j] + c, m) : v16_zero();
	}
	for (; i + R <= rows; i += R)
		conv_rows(out + (size_t)i * out_ld + c, out_ld, x + i, by, seen, bias, c, m, silu, WIDTH, R);
	for (; i < rows; i++)
		conv_rows(out + (size_t)i * out_ld + c, out_ld, x + i, by, seen, bias, c, m, silu, WIDTH, 1);
}

static void conv(float *out, size_t out_ld, const float *const *x, int rows, const float *w, size_t w_ld,
                 const float *bias, int width, int n, bool silu)
{
	CHUNKS(n)
	{
		if (width == 4 && m == 16) /* most models' */
			conv_lanes(out, out_ld, x, rows, w, w_ld, bias, i, m, silu, 4, LANES_ABREAST);
		else
			conv_lanes(out, out_ld, x, rows, w, w_ld, bias, i, m, silu, width, 1);
	}
}

/* ---- floats ---- */

/* max(x, 0) + ln(1 + t), t = e^-|x|; ln(1 + t) = 2 artanh(s), s = t / (2 + t) <= 1/3: the series to s^15. */
static void softplus(float *out, const float *in, int n)
{
	static const float series[] = { 2.0f / 13, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f };

	CHUNKS(n)
	{
		v16 x = v16_load_n(in + i, m), t = v16_exp(v16_sub(v16_zero(), v16_abs(x))), s, s2;
		v16 sum = v16_set1(2.0f / 15);

		s = v16_div(t, v16_add(v16_set1(2.0f), t));
		s2 = v16_mul(s, s);
#pragma GCC unroll 7
		for (int j = 0; j < 7; j++)
			sum = v16_fma(sum, s2, v16_set1(series[j]));
		v16_store_n(out + i, v16_fma(sum, s, v16_max(v16_zero(), x)), m);
	}
}

static void mul(float *out, const float *a, const float *b, int n)
{
	CHUNKS(n)
	v16_store_n(out + i, v16_mul(v16_load_n(a + i, m), v16_load_n(b + i, m)), m);
}

/* ---- the recurrences of products ---- */

/* Differences between the kernels, known at compile time: K is one of enum recur_head. */
#define READS_BEFORE(K) ((K) != HEAD_INSERT) /* S'k is needed */
#define DECAYS_BY_KEY(K) ((K) == HEAD_DELTA_BY_KEY || (K) == HEAD_TWO_RANK)

/* Tiles of 16 columns that stay in registers from row to row of S.  With fewer, the sums
 * of one row wait for those of the row before. */
#if LANES_REGISTERS >= 32
enum { TILES = 4 };
#else
enum { TILES = 2 };
#endif

/* Where row i of tile t is among T tiles: [T / 2][dim_k][32], or [dim_k][16] of one. */
LANES_INLINE size_t tile_at(int dim_k, int i, int t, const int T)
{
	return T == 1 ? 16 * (size_t)i : (size_t)(t / 2) * (size_t)dim_k * 32 + 32 * (size_t)i + 16 * (size_t)(t % 2);
}

/* STATE_AHEAD: floats of S prefetched beyond those that are read, which behind a head's last are the next
 * head's first; 4 to 16 KB do alike. */
enum { OLD_MOST = 4, STATE_AHEAD = 2048 };

/* The first i of the quarter after quarter p of dim_k rows. */
LANES_INLINE int quarter_end(int dim_k, int p)
{
	int end = (p + 1) * ((dim_k + 3) / 4);

	return end < dim_k ? end : dim_k;
}

/* Sums over i of T tiles, by quarters of i: all = (a0 + a1) + (a2 + a3). */
struct sums {
	v16 a[TILES], half[TILES], all[TILES];
};

LANES_INLINE void sums_clear(struct sums *s, const int T)
{
#pragma GCC unroll 4
	for (int t = 0; t < T; t++)
		s->a[t] = s->half[t] = s->all[t] = v16_zero();
}

/* Ends quarter p. */
LANES_INLINE void sums_end(struct sums *s, int p, const int T)
{
#pragma GCC unroll 4
	for (int t = 0; t < T; t++) {
		if (p % 2)
			s->all[t] = v16_add(s->all[t], v16_add(s->half[t], s->a[t]));
		else
			s->half[t] = s->a[t];
		s->a[t] = v16_zero();
	}
}

/* T tiles of one row of updates, of which `last` columns of the last tile are real. */
LANES_INLINE void load_tiles(v16 *d, const float *from, int last, const int T)
{
#pragma GCC unroll 4
	for (int t = 0; t < T; t++)
		d[t] = v16_load_n(from + 16 * t, t == T - 1 ? last : 16);
}

/* The old tokens that a read of S applies: their vectors over i, and their updates of T tiles. */
struct old {
	const float *k[OLD_MOST], *decay[OLD_MOST], *k2[OLD_MOST];
	v16 d[OLD_MOST][TILES], d2[OLD_MOST][TILES], f[OLD_MOST];
};

LANES_INLINE void old_load(struct old *o, const struct recur_rows *r, int old, int c, int last, const int T,
                           const int OLD, const int K)
{
#pragma GCC unroll 4
	for (int j = 0; j < OLD; j++) {
		size_t at = (size_t)(old + j) * r->tape_ld;

		o->k[j] = r->old_k + at;
		if (DECAYS_BY_KEY(K))
			o->decay[j] = r->old_decay + at;
		else
			o->f[j] = v16_set1(r->old_decay[at]);
		load_tiles(o->d[j], r->old_d + at + c, last, T);
		o->k2[j] = NULL;
		if (K == HEAD_TWO_RANK) {
			o->k2[j] = r->old_k2 + at;
			load_tiles(o->d2[j], r->old_d2 + at + c, last, T);
		}
	}
}

/* Row i of S after OLD old tokens. */
LANES_INLINE void old_apply(v16 *x, struct old *o, int i, const int T, const int OLD, const int K)
{
#pragma GCC unroll 4
	for (int j = 0; j < OLD; j++) {
		v16 kj = v16_set1(o->k[j][i]);

		if (DECAYS_BY_KEY(K))
			o->f[j] = v16_set1(o->decay[j][i]);
#pragma GCC unroll 4
		for (int t = 0; t < T; t++)
			x[t] = v16_fma(kj, o->d[j][t], v16_mul(o->f[j], x[t]));
		if (K == HEAD_TWO_RANK) {
			v16 k2j = v16_set1(o->k2[j][i]);

#pragma GCC unroll 4
			for (int t = 0; t < T; t++)
				x[t] = v16_fma(k2j, o->d2[j][t], x[t]);
		}
	}
}

/* S'k and S'q. */
struct reads {
	struct sums k, q;
};

LANES_INLINE void reads_add(struct reads *r, const v16 *x, float k, float q, const int T, const int K)
{
	v16 ki = v16_set1(k), qi = v16_set1(q);

#pragma GCC unroll 4
	for (int t = 0; t < T; t++) {
		if (READS_BEFORE(K))
			r->k.a[t] = v16_fma(x[t], ki, r->k.a[t]);
		r->q.a[t] = v16_fma(x[t], qi, r->q.a[t]);
	}
}

LANES_INLINE void reads_end(struct reads *r, int p, const int T, const int K)
{
	if (READS_BEFORE(K))
		sums_end(&r->k, p, T);
	sums_end(&r->q, p, T);
}

LANES_INLINE void reads_take(v16 *m, v16 *u, const struct reads *r, const int T)
{
#pragma GCC unroll 4
	for (int t = 0; t < T; t++) {
		m[t] = r->k.all[t];
		u[t] = r->q.all[t];
	}
}

/* m = S'k and u = S'q (no token: neither), S being `from` after OLD of the old tokens, of which the first is
 * `old`; S goes to `to` unless that is NULL. */
LANES_INLINE void state_read(float *to, const float *from, int dim_k, const struct recur_rows *r, int old, int c,
                             int last, v16 *m, v16 *u, const int T, const int OLD, const int K)
{
	const float *k = r->n ? r->k : NULL, *q = r->q;
	struct reads sums;
	struct old o;

	old_load(&o, r, old, c, last, T, OLD, K);
	sums_clear(&sums.k, T);
	sums_clear(&sums.q, T);
	for (int p = 0, i = 0; p < 4; p++) {
		for (int end = quarter_end(dim_k, p); i < end; i++) {
			v16 x[TILES];

#pragma GCC unroll 4
			for (int t = 0; t < T; t++) {
				__builtin_prefetch(from + STATE_AHEAD + tile_at(dim_k, i, t, T));
				x[t] = v16_load(from + tile_at(dim_k, i, t, T));
			}
			old_apply(x, &o, i, T, OLD, K);
			if (to)
#pragma GCC unroll 4
				for (int t = 0; t < T; t++)
					v16_store(to + tile_at(dim_k, i, t, T), x[t]);
			if (k)
				reads_add(&sums, x, k[i], q[i], T, K);
		}
		reads_end(&sums, p, T, K);
	}
	reads_take(m, u, &sums, T);
}

/* Computes m and u after all old tokens.  The state S at that point stays in s or is written to `to`; returns its address,
 * NULL where S is not needed. */
LANES_INLINE const float *state_begin(float *to, const float *s, int dim_k, const struct recur_rows *r, int c, int last,
                                      v16 *m, v16 *u, const int T, const int K)
{
	const float *from = s;
	int old = 0;

	/* All old tokens but the last few: S is always stored after them; m and u are not used yet. */
	for (; r->n_old - old > OLD_MOST; old += OLD_MOST, from = to)
		state_read(to, from, dim_k, r, old, c, last, m, u, T, OLD_MOST, K);
	/* A single token that leaves S as it is needs no more than m and u. */
	if (r->n == 1 && r->n_sure == 0)
		to = NULL;
	switch (r->n_old - old) {
	case 0: state_read(NULL, from, dim_k, r, old, c, last, m, u, T, 0, K); return from;
	case 1: state_read(to, from, dim_k, r, old, c, last, m, u, T, 1, K); break;
	case 2: state_read(to, from, dim_k, r, old, c, last, m, u, T, 2, K); break;
	case 3: state_read(to, from, dim_k, r, old, c, last, m, u, T, 3, K); break;
	default: state_read(to, from, dim_k, r, old, c, last, m, u, T, OLD_MOST, K);
	}
	return to;
}

/* Row i of S after token's update: x = a x + put d' (+ put2 v'). */
LANES_INLINE void row_update(v16 *x, const struct recur_rows *r, size_t row, int i, v16 f, v16 ki, const v16 *d,
                             const v16 *v, const int T, const int K)
{
#pragma GCC unroll 4
	for (int t = 0; t < T; t++)
		x[t] = v16_fma(ki, d[t], v16_mul(f, x[t]));
	if (K == HEAD_TWO_RANK) {
		v16 k2i = v16_set1(r->put2[row + (size_t)i]);

#pragma GCC unroll 4
		for (int t = 0; t < T; t++)
			x[t] = v16_fma(k2i, v[t], x[t]);
	}
}

/* to = `from` after token n's update, and at the same time the next token's m and u: one
 * load and one store of S per token.  A row's loads come before its stores: pairs of
 * tiles lie a multiple of 4 KB apart, which the processor takes for the same place. */
LANES_INLINE void state_step(float *to, const float *from, int dim_k, const struct recur_rows *r, int n, const v16 *d,
                             const v16 *v, v16 *m, v16 *u, const int T, const int K)
{
	size_t row = (size_t)n * r->kq_ld;
	const float *put = r->put + row, *k2 = r->k + row + r->kq_ld, *q2 = r->q + row + r->kq_ld;
	const float *decay = r->decay + (size_t)n * r->decay_ld;
	v16 x[TILES], f = v16_set1(decay[0]);
	struct reads sums;

	sums_clear(&sums.k, T);
	sums_clear(&sums.q, T);
	for (int p = 0, i = 0; p < 4; p++) {
		for (int end = quarter_end(dim_k, p); i < end; i++) {
			v16 ki = v16_set1(put[i]);

			if (DECAYS_BY_KEY(K))
				f = v16_set1(decay[i]);
#pragma GCC unroll 4
			for (int t = 0; t < T; t++)
				x[t] = v16_load(from + tile_at(dim_k, i, t, T));
			row_update(x, r, row, i, f, ki, d, v, T, K);
#pragma GCC unroll 4
			for (int t = 0; t < T; t++)
				v16_store(to + tile_at(dim_k, i, t, T), x[t]);
			reads_add(&sums, x, k2[i], q2[i], T, K);
		}
		reads_end(&sums, p, T, K);
	}
	reads_take(m, u, &sums, T);
}

LANES_INLINE void state_update(float *s, int dim_k, const struct recur_rows *r, int n, const v16 *d, const v16 *v,
                               const int T, const int K)
{
	size_t row = (size_t)n * r->kq_ld;
	const float *put = r->put + row, *decay = r->decay + (size_t)n * r->decay_ld;
	v16 f = v16_set1(decay[0]), x[TILES];

	for (int i = 0; i < dim_k; i++) {
		v16 ki = v16_set1(put[i]);

		if (DECAYS_BY_KEY(K))
			f = v16_set1(decay[i]);
#pragma GCC unroll 4
		for (int t = 0; t < T; t++)
			x[t] = v16_load(s + tile_at(dim_k, i, t, T));
		row_update(x, r, row, i, f, ki, d, v, T, K);
#pragma GCC unroll 4
		for (int t = 0; t < T; t++)
			v16_store(s + tile_at(dim_k, i, t, T), x[t]);
	}
}

/* Token i's update d and its output, of tile t's n columns; m and u are S'k and S'q. */
LANES_INLINE void token_out(const struct recur_rows *r, int i, size_t value, int n, v16 f, v16 m, v16 u, v16 *d, v16 *v,
                            const int K)
{
	v16 in = v16_load_n(r->v + value, n), dot = v16_set1(r->dot[i]), out;

	*v = in;
	switch (K) {
	case HEAD_DELTA: *d = v16_mul(v16_set1(r->beta[i]), v16_sub(in, v16_mul(f, m))); break;
	case HEAD_INSERT: *d = v16_mul(v16_set1(r->beta[i]), in); break;
	case HEAD_DELTA_BY_KEY: *d = v16_mul(v16_set1(r->beta[i]), v16_sub(in, m)); break;
	default: *d = m;
	}
	out = v16_fma(dot, *d, DECAYS_BY_KEY(K) ? u : v16_mul(f, u));
	if (K == HEAD_TWO_RANK)
		out = v16_fma(v16_set1(r->dot2[i]), in, out);
	v16_store_n(r->out + value, out, n);
}

/* T tiles beginning at value column c of dim_v, of which `last` columns of the last tile are real. */
LANES_INLINE void tiles(float *s, int dim_k, int dim_v, int c, int last, const struct recur_rows *r, float *spare,
                        const int T, const int K)
{
	const float *from;
	v16 m[TILES], u[TILES], d[TILES], v[TILES];

	from = state_begin(r->n_sure || !r->n ? s : spare, s, dim_k, r, c, last, m, u, T, K);
	for (int i = 0; i < r->n; i++) {
		size_t value = (size_t)i * (size_t)dim_v + (size_t)c;
		v16 f = v16_set1(r->decay[(size_t)i * r->decay_ld]);

#pragma GCC unroll 4
		for (int t = 0; t < T; t++) {
			int n = t == T - 1 ? last : 16;

			token_out(r, i, value + 16 * (size_t)t, n, f, m[t], u[t], &d[t], &v[t], K);
			if (i >= r->n_sure) {
				size_t at = (size_t)(i - r->n_sure) * r->tape_ld + (size_t)(c + 16 * t);

				v16_store_n(r->tape + at, d[t], n);
				if (K == HEAD_TWO_RANK)
					v16_store_n(r->tape2 + at, v[t], n);
			}
		}
		if (i + 1 < r->n) {
			float *to = i < r->n_sure ? s : spare;

			state_step(to, from, dim_k, r, i, d, v, m, u, T, K);
			from = to;
		} else if (i < r->n_sure) {
			state_update(s, dim_k, r, i, d, v, T, K);
		}
	}
}

LANES_INLINE void head(float *s, int dim_k, int dim_v, const struct recur_rows *r, float *spare, const int K)
{
	int c = 0;

	/* A single token meets S in memory, where one run is read faster than two. */
	for (; TILES == 4 && r->n > 1 && c + 48 < dim_v; c += 64, s += (size_t)dim_k * 64)
		tiles(s, dim_k, dim_v, c, dim_v - c < 64 ? dim_v - c - 48 : 16, r, spare, TILES, K);
	for (; c + 16 < dim_v; c += 32, s += (size_t)dim_k * 32)
		tiles(s, dim_k, dim_v, c, dim_v - c < 32 ? dim_v - c - 16 : 16, r, spare, 2, K);
	if (c < dim_v)
		tiles(s, dim_k, dim_v, c, dim_v - c, r, spare, 1, K);
}

static void delta(float *s, int dim_k, int dim_v, const struct recur_rows *r, float *spare)
{
	head(s, dim_k, dim_v, r, spare, HEAD_DELTA);
}

static void insert(float *s, int dim_k, int dim_v, const struct recur_rows *r, float *spare)
{
	head(s, dim_k, dim_v, r, spare, HEAD_INSERT);
}

static void delta_by_key(float *s, int dim_k, int dim_v, const struct recur_rows *r, float *spare)
{
	head(s, dim_k, dim_v, r, spare, HEAD_DELTA_BY_KEY);
}

static void two_rank(float *s, int dim_k, int dim_v, const struct recur_rows *r, float *spare)
{
	head(s, dim_k, dim_v, r, spare, HEAD_TWO_RANK);
}

/* ---- the selective scan ---- */

/* Rows [i, i + R) of one tile's S, rows ld apart, after a token of n columns; adds their part of S'q to *sum. */
LANES_INLINE void scan_rows(float *s, size_t ld, int i, const float *rate, size_t rate_ld, v16 dt, v16 d,
                            const float *put, const float *q, int n, v16 *sum, const int R)
{
	v16 a[LANES_ABREAST];

	ABREAST(R) a[v] = v16_mul(dt, v16_load_n(rate + (size_t)(i + v) * rate_ld, n));
	v16_exps(a, R);
	ABREAST(R)
	{
		float *at = s + (size_t)(i + v) * ld;
		v16 x = v16_fma(v16_set1(put[i + v]), d, v16_mul(a[v], v16_load(at)));

		v16_store(at, x);
		if (q)
			*sum = v16_fma(x, v16_set1(q[i + v]), *sum);
	}
}

/* One tile's S after a token of n columns; returns S'q, 0 where q is NULL. */
LANES_INLINE v16 scan_token(float *s, size_t ld, int dim_k, const float *rate, size_t rate_ld, v16 dt, v16 d,
                            const float *put, const float *q, int n)
{
	struct sums sums;

	sums_clear(&sums, 1);
	for (int p = 0, i = 0; p < 4; p++) {
		int end = quarter_end(dim_k, p);

		for (; i + LANES_ABREAST <= end; i += LANES_ABREAST)
			scan_rows(s, ld, i, rate, rate_ld, dt, d, put, q, n, sums.a, LANES_ABREAST);
		for (; i < end; i++)
			scan_rows(s, ld, i, rate, rate_ld, dt, d, put, q, n, sums.a, 1);
		sums_end(&sums, p, 1);
	}
	return sums.all[0];
}

/* Columns [c, c + n) of the head, which are a tile whose rows lie ld apart. */
static void scan_tile(float *s, size_t ld, int dim_k, int dim_v, int c, int n, const struct recur_rows *r, float *spare)
{
	const float *rate = r->rate + c;
	bool written = r->n_sure || !r->n;

	if (!written)
		for (int i = 0; i < dim_k; i++)
			v16_store(spare + 16 * i, v16_load(s + (size_t)i * ld));
	for (int i = 0; i < r->n_old; i++) {
		size_t at = (size_t)i * r->tape_ld;

		scan_token(written ? s : spare, written ? ld : 16, dim_k, rate, (size_t)dim_v,
		           v16_load_n(r->old_decay + at + c, n), v16_load_n(r->old_d + at + c, n), r->old_k + at, NULL,
		           n);
	}
	for (int i = 0; i < r->n; i++) {
		size_t value = (size_t)i * (size_t)dim_v + (size_t)c, row = (size_t)i * r->kq_ld;
		v16 x = v16_load_n(r->v + value, n), dt = v16_load_n(r->decay + (size_t)i * r->decay_ld + c, n);
		v16 d = v16_mul(dt, x), out;

		if (i == r->n_sure && written)
			for (int k = 0; k < dim_k; k++)
				v16_store(spare + 16 * k, v16_load(s + (size_t)k * ld));
		out = i < r->n_sure ?
		              scan_token(s, ld, dim_k, rate, (size_t)dim_v, dt, d, r->put + row, r->q + row, n) :
		              scan_token(spare, 16, dim_k, rate, (size_t)dim_v, dt, d, r->put + row, r->q + row, n);
		v16_store_n(r->out + value, v16_fma(v16_load_n(r->skip + c, n), x, out), n);
		if (i >= r->n_sure)
			v16_store_n(r->tape + (size_t)(i - r->n_sure) * r->tape_ld + c, d, n);
	}
}

static void scan(float *s, int dim_k, int dim_v, const struct recur_rows *r, float *spare)
{
	for (int c = 0; c < dim_v; c += 16) {
		size_t ld = dim_v - c / 32 * 32 > 16 ? 32 : 16;
		float *at = s + (size_t)(c / 32 * 32) * (size_t)dim_k + c % 32;

		scan_tile(at, ld, dim_k, dim_v, c, dim_v - c < 16 ? dim_v - c : 16, r, spare);
	}
}

const struct recur_table LANES(recur_table) = {
	.conv = conv,
	.softplus = softplus,
	.mul = mul,
	.head = { [HEAD_DELTA] = delta,
	          [HEAD_INSERT] = insert,
	          [HEAD_DELTA_BY_KEY] = delta_by_key,
	          [HEAD_TWO_RANK] = two_rank,
	          [HEAD_SCAN] = scan },
};
