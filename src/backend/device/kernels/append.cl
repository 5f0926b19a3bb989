/* append.cl - queries, keys and values made ready for attention: normed, rotated, and keys and values written to their pages
 * (backend/cpu/append.c, quant/kv/kv_coded.c). */
#include "dialect.cl"
#include "math.cl"
#include "../kernel_shapes.h"
#include "sums.cl"
#include "kv.cl"

#define THREADS 64
#define DIM_MAX 576
#define END 0.3f /* how much of a step the ends of a group's range stand out */

/* x = x * rsqrt(mean(x^2) + eps) * gain over n numbers in local memory, if `wanted`; gain NULL: 1. */
FN void norm_local(LOCAL float *x, int n, GLOBAL const float *gain, float eps, int wanted, LOCAL float *shared, SCRATCH_PARAM, int t)
{
	float part = 0.0f, r;

	if (t < 16)
		for (int i = t; i < n; i += 16)
			part = fma1(x[i], x[i], part);
	part = tree16(part, sh, t);
	if (t == 0)
		shared[0] = part;
	BARRIER();
	r = div1(1.0f, sqrt1(add1(div1(shared[0], (float)n), eps)));
	for (int i = t; i < n && wanted; i += THREADS) {
		float a = mul1(x[i], r);

		x[i] = gain ? mul1(a, gain[i]) : a;
	}
	BARRIER();
}

/* The first n_freq pairs of x by their angles. */
FN void rotate_local(LOCAL float *x, GLOBAL const float *cosines, GLOBAL const float *sines, int n_freq,
                     GLOBAL const struct append_shape *s, int t)
{
	for (int i = t; i < n_freq; i += THREADS) {
		int at = s->adjacent ? 2 * i : i, to = s->adjacent ? at + 1 : i + s->apart;
		float a = x[at], b = x[to];

		x[at] = sub1(mul1(a, cosines[i]), mul1(b, sines[i]));
		x[to] = add1(mul1(b, cosines[i]), mul1(a, sines[i]));
	}
	BARRIER();
}

/* The largest f16 at or below x. */
FN uint f16_below(float x)
{
	uint h = f16_of(x);

	return low_f16(h) > x ? (h & 0x8000u ? h + 1u : h ? h - 1u : 0x8001u) : h;
}

/* Codes of the first groups of a vector, 16 work-items a group, and their scales. */
FN void encode_groups(GLOBAL uchar *row, LOCAL const float *x, LOCAL uchar *code, LOCAL float *shared, int dim, int groups,
                      GLOBAL const struct kv_shape *k, SCRATCH_PARAM, int t)
{
	GLOBAL ushort *scales = (GLOBAL ushort *)(row + kv_scales_at(k, dim));
	float most = k->bits == 8 ? 255.0f : 15.0f;

	for (int i = dim + t; i < kv_chunks(dim) * CHUNK; i += THREADS)
		code[i] = 0;
	for (int g0 = 0; g0 < groups; g0 += THREADS / 16) {
		int l = t % 16, mine = t / 16, g = g0 + mine, in = g < groups;
		LOCAL const float *v = x + (in ? g : 0) * k->group;
		float least = 0x1.fffffep+127f, top = -0x1.fffffep+127f, lo, hi, s, b, inv;
		uint hs, hb;

		for (int i = l; i < k->group; i += 16) {
			least = min1(v[i], least);
			top = max1(v[i], top);
		}
		least = top16(sub1(0.0f, least), sh, t);
		top = top16(top, sh, t);
		if (l == 0) {
			shared[2 * mine] = least;
			shared[2 * mine + 1] = top;
		}
		BARRIER();
		lo = -shared[2 * mine], hi = shared[2 * mine + 1];
		if (!(lo <= hi)) /* nothing is a number */
			lo = hi = 0.0f;
		lo = min1(65504.0f, max1(-65504.0f, lo));
		hi = min1(65504.0f, max1(-65504.0f, hi));
		s = div1(sub1(hi, lo), add1(most, 2 * END));
		lo = add1(lo, mul1(END, s));
		hi = sub1(hi, mul1(END, s));
		hb = f16_below(lo);
		b = low_f16(hb);
		hs = f16_below(div1(sub1(b, hi), most)) ^ 0x8000u;
		s = low_f16(hs);
		inv = s > 0.0f ? div1(1.0f, s) : 0.0f;
		if (in && l == 0) {
			scales[g] = (ushort)hs;
			scales[groups + g] = (ushort)hb;
		}
		for (int i = l; i < k->group && in; i += 16) {
			float c = mul1(sub1(v[i], b), inv);

			c = min1(max1(c, 0.0f), most); /* what is not a number is 0 */
			code[g * k->group + i] = (uchar)(as_uint1(add1(c, 12582912.0f)) & 255u);
		}
		BARRIER();
	}
	BARRIER();
}

/* Rotates the first n numbers; n 0: none. */
FN void turn_local(LOCAL float *x, int n, GLOBAL const struct kv_turn *s, int t)
{
	signs_local(x, 1, 0, n, s, 0, 1.0f, t, THREADS);
	hadamard_local(x, 1, 0, n, t, THREADS);
	signs_local(x, 1, 0, n, s, 1, n ? div1(1.0f, (float)n) : 0.0f, t, THREADS);
	hadamard_local(x, 1, 0, n, t, THREADS);
}

/* Codes and the scale of a rotated vector; not `wanted`: x is left alone, and nothing is written. */
FN void encode_turned(GLOBAL uchar *row, LOCAL const float *x, LOCAL uchar *code, LOCAL float *shared, int dim, int wanted, int is_key,
                      GLOBAL const struct kv_shape *k, SCRATCH_PARAM, int t)
{
	float norm = 0.0f, xy = 0.0f, yy = 0.0f, inv;

	if (t < 16)
		for (int i = t; i < dim; i += 16)
			norm = fma1(x[i], x[i], norm);
	norm = tree16(norm, sh, t);
	if (t == 0)
		shared[0] = norm;
	BARRIER();
	norm = shared[0];
	inv = wanted && norm >= 1e-30f ? div1(sqrt1(div1((float)dim, norm)), k->unit) : 0.0f;
	for (int i = t; i < dim && wanted; i += THREADS) {
		float v = mul1(x[i], inv);
		int c = 0;

		for (int e = 0; e + 1 < 1 << k->bits; e++) /* what is not a number is 0 */
			c = v > mul1(0.5f, add1(kv_entry(k, e), kv_entry(k, e + 1))) ? e + 1 : c;
		code[i] = (uchar)c;
	}
	BARRIER();
	if (t < 16 && wanted)
		for (int i = t; i < dim; i += 16) {
			float y = kv_entry(k, code[i]);

			xy = fma1(x[i], y, xy);
			yy = fma1(y, y, yy);
		}
	xy = tree16(xy, sh, t);
	yy = tree16(yy, sh, t);
	if (t == 0 && wanted)
		*(GLOBAL float *)(row + kv_scales_at(k, dim)) = norm < 1e-30f ? 0.0f : is_key ? div1(norm, xy) : div1(xy, yy);
	BARRIER();
}

/* Byte i of codes of 2 or 3 bits: two bits each of 16 codes in four parts of a chunk, and then their upper bits. */
FN uint packed_byte(LOCAL const uchar *code, int bits, int i)
{
	int each = 8 * bits;
	LOCAL const uchar *c = code + i / each * CHUNK;
	uint byte = 0;

	i %= each;
	if (i < 16)
		return (c[i] & 3u) | (c[16 + i] & 3u) << 2 | (c[32 + i] & 3u) << 4 | (c[48 + i] & 3u) << 6;
	for (int b = 0; b < 8; b++)
		byte |= (c[8 * (i - 16) + b] >> 2 & 1u) << b;
	return byte;
}

/* Writes a vector as a row of the cache; codes are there for those of 8 bits and less. */
FN void write_row(GLOBAL uchar *row, LOCAL const float *x, LOCAL const uchar *code, int dim, int bits, int t)
{
	int codes = kv_chunks(dim) * CHUNK;

	if (bits == 32)
		for (int i = t; i < dim; i += THREADS)
			((GLOBAL float *)row)[i] = x[i];
	else if (bits == 16)
		for (int i = t; i < dim; i += THREADS)
			((GLOBAL ushort *)row)[i] = (ushort)bf16_of(x[i]);
	else if (bits == 8)
		for (int i = t; i < codes; i += THREADS)
			row[i] = code[i];
	else if (bits < 4)
		for (int i = t; i < codes / 8 * bits; i += THREADS)
			row[i] = (uchar)packed_byte(code, bits, i);
	else
		for (int i = t; i < codes / 2; i += THREADS) {
			LOCAL const uchar *c = code + i / 32 * CHUNK + i % 32;

			row[i] = (uchar)(c[0] | c[32] << 4);
		}
}

/* A work-group has a head of a row: the query heads in place, then the heads of keys, then those of values.  cosines and sines:
 * [row][n_freq] times mscale; bend: [row] what queries are multiplied with, or none.  Keys are not changed where they lie. */
KERNEL(THREADS) append(MEM(float, q), MEM(const float, k), MEM(const float, v), MEM(uchar, kv), MEM(const int, page),
                       MEM(const struct step_row, rows), MEM(const float, cosines), MEM(const float, sines),
                       MEM(const float, bend), MEM(const float, q_norm), MEM(const float, k_norm),
                       MEM(const struct append_shape, shape))
{
	SCRATCH(scratch, THREADS);
	LOCAL float x[DIM_MAX], shared[8];
	LOCAL uchar code[DIM_MAX];
	USE(float, q);
	USE_CONST(float, k);
	USE_CONST(float, v);
	USE(uchar, kv);
	USE_CONST(int, page);
	USE_CONST(struct step_row, rows);
	USE_CONST(float, cosines);
	USE_CONST(float, sines);
	USE_CONST(float, bend);
	USE_CONST(float, q_norm);
	USE_CONST(float, k_norm);
	USE_CONST(struct append_shape, shape);
	GLOBAL const struct append_shape *s = shape;
	int t = TID, row = BID_Y, heads = NONE(q) ? 0 : s->heads, is_q = BID < heads, h = BID - heads, dim = s->dim;
	int is_key = h < s->heads_kv, keyed = is_key || s->v_is_key; /* a query is keyed: its norm and rotation are like a key's */
	int from = is_q || !keyed ? 0 : s->norm_from, written = !is_q && (is_key || s->v.at != s->k.at);
	GLOBAL const struct kv_shape *side = is_key ? &s->k : &s->v;
	GLOBAL const float *gain = is_q ? (NONE(q_norm) ? 0 : q_norm) : keyed ? (NONE(k_norm) ? 0 : k_norm) : 0;
	GLOBAL float *at = q + (long)row * s->q_row + (long)BID * s->q_head;
	GLOBAL const float *vector = is_q ? at : (keyed ? k : v) + ((long)row * s->heads_kv + (is_key ? h : h - s->heads_kv)) * dim;
	GLOBAL uchar *to = kv;
	int turned = is_q ? s->k.unit != 0.0f : written && side->unit != 0.0f;

	if (written)
		to += kv_row_at(page, s->page_max, s->page_rows, s->page_bytes, side, rows[row].item, is_key ? h : h - s->heads_kv,
		                rows[row].pos);
	for (int i = t; i < dim; i += THREADS)
		x[i] = vector[i];
	BARRIER();
	norm_local(x + from, dim - from, gain, s->eps, gain || (!keyed && s->v_norm), shared, SCRATCH_OF(scratch), t);
	rotate_local(x, cosines + (long)row * s->n_freq, sines + (long)row * s->n_freq, keyed ? s->n_freq : 0, s, t);
	for (int i = t; i < dim && is_q && !NONE(bend); i += THREADS)
		x[i] = mul1(x[i], bend[row]);
	BARRIER();
	turn_local(x, turned ? dim : 0, &s->turn, t);
	encode_turned(to, x, code, shared, dim, written && turned, is_key, side, SCRATCH_OF(scratch), t);
	encode_groups(to, x, code, shared, dim, written && side->group ? dim / side->group : 0, side, SCRATCH_OF(scratch), t);
	if (is_q)
		for (int i = t; i < dim; i += THREADS)
			at[i] = x[i];
	else if (written)
		write_row(to, x, code, dim, side->bits, t);
}
