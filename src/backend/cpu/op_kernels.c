/* op_kernels.c - see op_kernels.h; compiled once per level. */
#include "backend/cpu/op_kernels.h"

#include <assert.h>
#include <math.h>

#include "backend/cpu/chunks.h"
#include "backend/low_rank.h"
#include "quant/lanes/lanes.h"

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

static void layer_norm(float *out, const float *in, int n, const float *gain, const float *bias, float eps)
{
	v16 one = v16_set1(1.0f), total = v16_zero(), squares = v16_zero(), mean, r;

	CHUNKS(n)
	total = v16_fma_n(v16_load_n(in + i, m), one, total, m);
	mean = v16_set1(v16_sum(total) / (float)n);
	CHUNKS(n)
	{
		v16 d = v16_sub(v16_load_n(in + i, m), mean);

		squares = v16_fma_n(d, d, squares, m);
	}
	r = v16_set1(1.0f / sqrtf(v16_sum(squares) / (float)n + eps));
	CHUNKS(n)
	{
		v16 d = v16_mul(v16_sub(v16_load_n(in + i, m), mean), r);

		v16_store_n(out + i, v16_fma(d, v16_load_n(gain + i, m), v16_load_n(bias + i, m)), m);
	}
}

static void affine(float *x, int n, const float *gain, const float *shift, float low, float high)
{
	v16 lo = v16_set1(low), hi = v16_set1(high);

	CHUNKS(n)
	{
		v16 a = v16_load_n(x + i, m);

		a = v16_fma(a, gain ? v16_load_n(gain + i, m) : v16_set1(1.0f),
		            shift ? v16_load_n(shift + i, m) : v16_zero());
		v16_store_n(x + i, v16_min(hi, v16_max(lo, a)), m); /* this order keeps a NaN */
	}
}

static void l2norm(float *x, int n, float scale)
{
	v16 r = v16_set1(1.0f / sqrtf(sum_squares(x, n) + 1e-6f)), s = v16_set1(scale);

	CHUNKS(n)
	v16_store_n(x + i, v16_mul(v16_mul(v16_load_n(x + i, m), r), s), m);
}

/* tanh z = 1 - 2 / (1 + e^2z) */
LANES_INLINE void tanhs(v16 *z, const int N)
{
	v16 one = v16_set1(1.0f), two = v16_set1(2.0f);

	ABREAST(N) z[v] = v16_mul(two, z[v]);
	v16_exps(z, N);
	ABREAST(N) z[v] = v16_sub(one, v16_div(two, v16_add(one, z[v])));
}

/* g by their activation; the factors u are there where act has one, and may be changed by it. */
LANES_INLINE void activate(v16 *g, v16 *u, const struct activation *act, const enum act kind, const int N)
{
	v16 d[LANES_ABREAST], alpha = v16_set1(act->alpha), high = v16_set1(act->limit), low = v16_set1(-act->limit);

	if (kind == ACT_SILU)
		v16_silus(g, N);
	if (kind == ACT_GELU_TANH)
		v16_gelus(g, N);
	if (kind == ACT_GELU_ERF)
		v16_gelus_erf(g, N);
	if (kind == ACT_GELU_QUICK) {
		ABREAST(N) d[v] = v16_mul(v16_set1(1.702f), g[v]);
		v16_sigmoids(d, N);
		ABREAST(N) g[v] = v16_mul(g[v], d[v]);
	}
	if (kind == ACT_RELU2) {
		ABREAST(N) g[v] = v16_max(v16_zero(), g[v]); /* this order keeps a NaN */
		ABREAST(N) g[v] = v16_mul(g[v], g[v]);
	}
	if (kind == ACT_SIGMOID)
		v16_sigmoids(g, N);
	if (kind == ACT_TANH)
		tanhs(g, N);
	if (kind == ACT_CLAMPED) {
		ABREAST(N) g[v] = v16_min(high, g[v]);
		ABREAST(N) d[v] = v16_mul(alpha, g[v]);
		v16_sigmoids(d, N);
		ABREAST(N) g[v] = v16_mul(g[v], d[v]);
		ABREAST(N) u[v] = v16_add(v16_max(low, v16_min(high, u[v])), v16_set1(1.0f));
	}
	if (kind == ACT_XIELU) {
		v16 low_part[LANES_ABREAST], high_part[LANES_ABREAST], beta = v16_set1(act->beta);

		ABREAST(N) low_part[v] = v16_min(v16_zero(), g[v]);
		ABREAST(N) high_part[v] = v16_max(v16_zero(), g[v]);
		ABREAST(N) d[v] = low_part[v];
		v16_exps(d, N);
		ABREAST(N) d[v] = v16_sub(v16_sub(d[v], v16_set1(1.0f)), low_part[v]);
		ABREAST(N) d[v] = v16_fma(high, d[v], v16_mul(beta, g[v]));
		ABREAST(N) g[v] = v16_fma(v16_mul(alpha, high_part[v]), high_part[v], d[v]);
	}
	if (kind == ACT_CLIPPED) {
		ABREAST(N) g[v] = v16_min(high, g[v]);
		v16_silus(g, N);
		ABREAST(N) u[v] = v16_max(low, v16_min(high, u[v]));
	}
	if (kind == ACT_LIMITED) {
		v16_silus(g, N);
		ABREAST(N) g[v] = v16_min(high, g[v]);
		ABREAST(N) u[v] = v16_max(low, v16_min(high, u[v]));
	}
}

LANES_INLINE void gate_as(float *out, const float *gate, const float *up, int n, const struct activation *act,
                          const enum act kind)
{
	CHUNKS_ABREAST(n)
	{
		v16 g[LANES_ABREAST], u[LANES_ABREAST];

		ABREAST(V) g[v] = v16_load_n(gate + i + 16 * v, m);
		ABREAST(V) u[v] = up ? v16_load_n(up + i + 16 * v, m) : v16_set1(1.0f);
		activate(g, u, act, kind, V);
		ABREAST(V) v16_store_n(out + i + 16 * v, up ? v16_mul(g[v], u[v]) : g[v], m);
	}
}

static void gate(float *out, const float *gate, const float *up, int n, const struct activation *act)
{
	switch (act->kind) {
	case ACT_NONE: gate_as(out, gate, up, n, act, ACT_NONE); break;
	case ACT_SILU: gate_as(out, gate, up, n, act, ACT_SILU); break;
	case ACT_GELU_TANH: gate_as(out, gate, up, n, act, ACT_GELU_TANH); break;
	case ACT_GELU_ERF: gate_as(out, gate, up, n, act, ACT_GELU_ERF); break;
	case ACT_GELU_QUICK: gate_as(out, gate, up, n, act, ACT_GELU_QUICK); break;
	case ACT_RELU2: gate_as(out, gate, up, n, act, ACT_RELU2); break;
	case ACT_SIGMOID: gate_as(out, gate, up, n, act, ACT_SIGMOID); break;
	case ACT_TANH: gate_as(out, gate, up, n, act, ACT_TANH); break;
	case ACT_CLAMPED: gate_as(out, gate, up, n, act, ACT_CLAMPED); break;
	case ACT_LIMITED: gate_as(out, gate, up, n, act, ACT_LIMITED); break;
	case ACT_CLIPPED: gate_as(out, gate, up, n, act, ACT_CLIPPED); break;
	case ACT_XIELU: gate_as(out, gate, up, n, act, ACT_XIELU); break;
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

static void blend(float *out, const float *a, const float *b, const float *t, int n)
{
	CHUNKS_ABREAST(n)
	{
		v16 s[LANES_ABREAST];

		ABREAST(V) s[v] = v16_load_n(t + i + 16 * v, m);
		v16_sigmoids(s, V);
		ABREAST(V)
		{
			v16 from = v16_load_n(a + i + 16 * v, m), to = v16_load_n(b + i + 16 * v, m);

			v16_store_n(out + i + 16 * v, v16_fma(v16_sub(to, from), s[v], from), m);
		}
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

static void add_floats(float *y, const float *x, int n)
{
	CHUNKS(n)
	v16_store_n(y + i, v16_add(v16_load_n(y + i, m), v16_load_n(x + i, m)), m);
}

static void mul(float *y, const float *x, int n)
{
	CHUNKS(n)
	v16_store_n(y + i, v16_mul(v16_load_n(y + i, m), v16_load_n(x + i, m)), m);
}

static void scale(float *x, float f, int n)
{
	v16 a = v16_set1(f);

	CHUNKS(n)
	v16_store_n(x + i, v16_mul(v16_load_n(x + i, m), a), m);
}

/* tanh z = 1 - 2 / (1 + e^2z) */
static void cap_(float *x, float f, float cap, int n)
{
	v16 by = v16_set1(2.0f * f / cap), one = v16_set1(1.0f), two = v16_set1(2.0f), c = v16_set1(cap);

	CHUNKS_ABREAST(n)
	{
		v16 a[LANES_ABREAST];

		ABREAST(V) a[v] = v16_mul(v16_load_n(x + i + 16 * v, m), by);
		v16_exps(a, V);
		ABREAST(V) a[v] = v16_sub(one, v16_div(two, v16_add(one, a[v])));
		ABREAST(V) v16_store_n(x + i + 16 * v, v16_mul(a[v], c), m);
	}
}

static void rope(float *x, const float *cos, const float *sin, int n, int apart)
{
	CHUNKS(n)
	{
		v16 a = v16_load_n(x + i, m), b = v16_load_n(x + apart + i, m);
		v16 c = v16_load_n(cos + i, m), s = v16_load_n(sin + i, m);

		v16_store_n(x + i, v16_sub(v16_mul(a, c), v16_mul(b, s)), m);
		v16_store_n(x + apart + i, v16_add(v16_mul(b, c), v16_mul(a, s)), m);
	}
}

/* First all maxima, then what follows from them, then all weights: what one query waits for
 * is another's work. */
static void softmax_block(float *s, const int *from, const int *see, int n, float scale, float *max, float *sum,
                          float *corr)
{
	float m[16], l[16];
	v16 f = v16_set1(scale), old = v16_load_n(max, n), next, c;

	assert(n <= 16);
	for (int j = 0; j < n; j++) {
		float *p = s + j * ATTN_BLOCK;
		v16 top = v16_set1(-INFINITY);

		for (int i = 0; i < from[j]; i++)
			p[i] = -INFINITY;
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

static void sink(float *acc, float max, float *sum, float score, int dim)
{
	float top = score > max ? score : max, c = exp1(max - top);

	*sum = __builtin_fmaf(*sum, c, exp1(score - top));
	if (c != 1.0f)
		scale(acc, c, dim);
}

static void index_sum(float *score, const float *s, size_t ld, const float *w, int heads, int n)
{
	CHUNKS(n)
	{
		v16 sum = v16_zero();

		for (int h = 0; h < heads; h++) {
			v16 a = v16_max(v16_zero(), v16_load_n(s + (size_t)h * ld + i, m)); /* this order keeps a NaN */

			sum = v16_fma(v16_set1(w ? w[h] : 1.0f), a, sum);
		}
		v16_store_n(score + i, sum, m);
	}
}

static void mix(float *out, const float *x, const float *by, int streams, int n)
{
	CHUNKS(n)
	{
		v16 sum = v16_zero();

		for (size_t s = (size_t)i; s < (size_t)streams * (size_t)n; s += (size_t)n)
			sum = v16_fma(v16_load_n(by + s, m), v16_load_n(x + s, m), sum);
		v16_store_n(out + i, sum, m);
	}
}

static void spread(float *x, bool add, float f, const float *y, int n)
{
	v16 by = v16_set1(f);

	CHUNKS(n)
	{
		v16 a = v16_load_n(y + i, m);

		v16_store_n(x + i, add ? v16_fma(by, a, v16_load_n(x + i, m)) : v16_mul(by, a), m);
	}
}

static void tap(float *x, bool add, const float *base, const float *by, int each, const float *in, int n)
{
	for (int g = 0, at = 0; at < n; g++, at += each) {
		v16 own = v16_set1(by[g]);
		int most = each < n - at ? each : n - at;

		CHUNKS(most)
		{
			v16 k = v16_add(v16_load_n(base + at + i, m), own);
			v16 sum = add ? v16_load_n(x + at + i, m) : v16_zero();

			v16_store_n(x + at + i, v16_fma(k, v16_load_n(in + at + i, m), sum), m);
		}
	}
}

static void root(float *x, float scale, int n)
{
	for (int i = 0; i < n; i++) {
		float a = x[i] * scale, r = sqrtf(fmaxf(fabsf(a), 1e-6f));

		x[i] = a > 0 ? r : a < 0 ? -r : a; /* a NaN stays one */
	}
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

static void low_rank(float *y, int n, const float *h, const void *b, bool half, int rank, int o, float scale)
{
	v16 by = v16_set1(scale);

	for (int m; n > 0; n -= m, y += m, o += m) {
		int lane = o % LOW_RANK_PANEL;
		size_t bytes = LOW_RANK_PANEL * (half ? 2 : 4);
		const uint8_t *at = (const uint8_t *)b + (size_t)(o / LOW_RANK_PANEL) * (size_t)rank * bytes;
		v16 d = v16_zero();

		m = LOW_RANK_PANEL - lane < n ? LOW_RANK_PANEL - lane : n;
		for (int r = 0; r < rank; r++, at += bytes)
			d = v16_fma(v16_set1(h[r]), half ? v16_load_bf16(at) : v16_load(at), d);
		if (lane) {
			float part[LOW_RANK_PANEL];

			v16_store(part, d);
			d = v16_load_n(part + lane, m);
		}
		v16_store_n(y, v16_fma(by, d, v16_load_n(y, m)), m);
	}
}

const struct op_table LANES(op_table) = {
	.norm = norm,
	.layer_norm = layer_norm,
	.blend = blend,
	.affine = affine,
	.l2norm = l2norm,
	.gate = gate,
	.sigmoid = sigmoid,
	.exp = exp_,
	.axpy = axpy,
	.add = add_floats,
	.mul = mul,
	.cap = cap_,
	.low_rank = low_rank,
	.rope = rope,
	.softmax_block = softmax_block,
	.scale = scale,
	.merge = merge,
	.sink = sink,
	.attn_out = attn_out,
	.index_sum = index_sum,
	.mix = mix,
	.spread = spread,
	.tap = tap,
	.root = root,
	.gated_norm = gated_norm,
};
