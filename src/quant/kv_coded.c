/* kv_coded.c - cache rows of small codes, compiled once per level.
 *
 * A row is its codes, CHUNK elements at a time, then what they are multiplied by:
 * a scale and a bias per group (affine), or one scale (turned rows).  Attention
 * reads the codes: keys meet an int16 query in integers, values pass through
 * registers on their way into the sum.
 *
 * The order of roundings of a score, the same at every level and for any number
 * of queries and rows: lane j of 16 takes the elements whose number mod 64 is
 * 4j .. 4j + 3.  It begins at bias[j] * sum[j], sum being the query's over group j
 * (0: no bias, or no such group), and for each group in rising order
 *     f[j] = fma(scale[group], (float)isum[j], f[j])
 * with isum exact over the lane's elements of the group; then the fixed tree of
 * lanes.h, then times the query's scale.  A row with one scale is one group. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "quant/lanes.h"
#include "quant/levels.h"

enum { CHUNK = 64, GROUPS_MAX = 16 };   /* a group per lane of the start value */
enum { Q_MOST = 127 * 128 };            /* so that both halves of a query fit int8 */

static int chunks_of(int dim) { return (dim + CHUNK - 1) / CHUNK; }

/* ---- queries ---- */

/* As score reads it: int16 padded to whole chunks, then this. */
struct query {
	float scale;
	float sum[GROUPS_MAX];          /* by group; whole numbers */
	int32_t lanes[16];              /* sums by lane, all groups */
};

static size_t codes_bytes(int dim) { return (size_t)chunks_of(dim) * CHUNK * 2; }

static size_t query_bytes(int dim) { return (codes_bytes(dim) + sizeof(struct query) + 63) / 64 * 64; }

LANES_INLINE void query_make(void *to, const float *q, int dim, const int group)
{
	int16_t *code = to;
	struct query head = { 0 };
	int n = chunks_of(dim) * CHUNK;
	float top = 0, inv;

	for (int i = 0; i < dim; i++)
		top = fabsf(q[i]) > top ? fabsf(q[i]) : top;
	head.scale = top < 1e-30f ? 0.0f : top / (float)Q_MOST;
	inv = top < 1e-30f ? 0.0f : 1.0f / head.scale;
	for (int i = 0; i < n; i++) {
		float v = i < dim ? q[i] * inv : 0.0f;

		/* In this order a NaN becomes a number. */
		v = v < (float)Q_MOST ? v : (float)Q_MOST;
		v = v > -(float)Q_MOST ? v : -(float)Q_MOST;
		code[i] = (int16_t)((v + 12582912.0f) - 12582912.0f);
		head.lanes[i % CHUNK / 4] += code[i];
		if (group)
			head.sum[i / group] += code[i];         /* below 2^24: exact */
	}
	memcpy((uint8_t *)to + codes_bytes(dim), &head, sizeof head);
}

/* ---- rows ---- */

static float load_f16(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, sizeof h);
	return f16_to_float(h);
}

/* Element values of a chunk's codes, before the scale. */
LANES_INLINE void chunk_open(int16_t out[CHUNK], const uint8_t *p, const int bits, const int8_t *book)
{
	for (int i = 0; i < CHUNK; i++) {
		int code = kv_code_at(p, bits, i);

		out[i] = (int16_t)(book ? book[code] : code);
	}
}

LANES_INLINE void row_score(float *out, const uint8_t *query, const uint8_t *row, int dim, const int bits,
                            const int group)
{
	const int16_t *q = (const void *)query;
	const struct query *head = (const void *)(query + codes_bytes(dim));
	const int8_t *book = group ? NULL : kv_book(bits);
	int chunks = chunks_of(dim), groups = group ? dim / group : 1;
	const uint8_t *scale = row + chunks * CHUNK * bits / 8;
	float start[16] = { 0 };
	int32_t sum[16];
	v16 f;

	for (int g = 0; group && g < groups; g++)
		start[g] = load_f16(scale + 2 * (groups + g)) * head->sum[g];
	f = v16_load(start);
	for (int g = 0; g < groups; g++) {
		int from = g * group, to = group ? from + group : dim;
		float s[16], one;

		if (group)
			one = load_f16(scale + 2 * g);
		else
			memcpy(&one, scale, sizeof one);
		memset(sum, 0, sizeof sum);
		for (int c = from / CHUNK; c * CHUNK < to; c++) {
			int16_t code[CHUNK];

			chunk_open(code, row + c * CHUNK * bits / 8, bits, book);
			for (int i = 0; i < CHUNK; i++)
				if (c * CHUNK + i >= from && c * CHUNK + i < to)
					sum[i / 4] += code[i] * q[c * CHUNK + i];
		}
		for (int j = 0; j < 16; j++)
			s[j] = (float)sum[j];
		f = v16_fma(v16_set1(one), v16_load(s), f);
	}
	*out = head->scale * v16_sum(f);
}

LANES_INLINE void score(float *out, size_t ld, const void *q, int nq, const uint8_t *rows, int n, int dim,
                        const int bits, const int group)
{
	size_t row_bytes = kv_coded_bytes(bits, group, dim), q_bytes = query_bytes(dim);

	for (int j = 0; j < nq; j++)
		for (int i = 0; i < n; i++)
			row_score(out + (size_t)j * ld + (size_t)i, (const uint8_t *)q + (size_t)j * q_bytes,
			          rows + (size_t)i * row_bytes, dim, bits, group);
}

LANES_INLINE void mix(float *acc, const float *p, size_t ld, int nq, const uint8_t *rows, int n, int dim,
                      const int bits, const int group)
{
	size_t row_bytes = kv_coded_bytes(bits, group, dim);
	float x[GROUPS_MAX * 32];

	for (int i = 0; i < n; i++) {
		kv_coded_decode(x, rows + (size_t)i * row_bytes, dim, bits, group);
		for (int j = 0; j < nq; j++)
			for (int d = 0; d < dim; d += 16) {
				float *a = acc + (size_t)j * (size_t)dim + d;

				v16_store(a, v16_fma(v16_set1(p[(size_t)j * ld + (size_t)i]), v16_load(x + d),
				                     v16_load(a)));
			}
	}
}

/* ---- writing ---- */

/* The largest f16 at or below x, the smallest at or above; x in [-65504, 65504]. */
static uint16_t f16_below(float x)
{
	uint16_t h = float_to_f16(x);

	if (f16_to_float(h) > x)
		h = h & 0x8000 ? h + 1 : h ? h - 1 : 0x8001;
	return h;
}

static uint16_t f16_above(float x) { return f16_below(-x) ^ 0x8000; }

static void pack(uint8_t *row, const uint8_t *code, int chunks, const int bits)
{
	for (int c = 0; c < chunks; c++, code += CHUNK, row += CHUNK * bits / 8) {
		if (bits == 8) {
			memcpy(row, code, CHUNK);
		} else if (bits == 4) {
			for (int i = 0; i < 32; i++)
				row[i] = (uint8_t)(code[i] | code[32 + i] << 4);
		} else {
			for (int i = 0; i < 16; i++)
				row[i] = (uint8_t)((code[i] & 3) | (code[16 + i] & 3) << 2 | (code[32 + i] & 3) << 4 |
				                   (code[48 + i] & 3) << 6);
			for (int b = 0; bits == 3 && b < 8; b++) {
				row[16 + b] = 0;
				for (int i = 0; i < 8; i++)
					row[16 + b] |= (uint8_t)(code[8 * b + i] >> 2 << i);
			}
		}
	}
}

/* Per group: bias is the least element and scale a step of 1 / most of the range,
 * both rounded so that the range is covered; codes are chosen with the rounded ones. */
LANES_INLINE void encode_affine(uint8_t *row, const float *x, int dim, const int bits, const int group)
{
	const float most = (float)((1 << bits) - 1);
	uint8_t code[GROUPS_MAX * 32 + CHUNK] = { 0 }, *scale = row + chunks_of(dim) * CHUNK * bits / 8;

	for (int g = 0; g < dim / group; g++) {
		const float *v = x + g * group;
		float lo = FLT_MAX, hi = -FLT_MAX, s, b, inv;
		uint16_t hs, hb;

		for (int i = 0; i < group; i++) {
			lo = v[i] < lo ? v[i] : lo;
			hi = v[i] > hi ? v[i] : hi;
		}
		if (!(lo <= hi))
			lo = hi = 0;                    /* NaN only */
		lo = lo < -65504.0f ? -65504.0f : lo > 65504.0f ? 65504.0f : lo;
		hi = hi < -65504.0f ? -65504.0f : hi > 65504.0f ? 65504.0f : hi;
		hb = f16_below(lo);
		b = f16_to_float(hb);
		hs = f16_above((hi - b) / most);
		s = f16_to_float(hs);
		inv = s > 0 ? 1.0f / s : 0.0f;
		memcpy(scale + 2 * g, &hs, 2);
		memcpy(scale + 2 * (dim / group + g), &hb, 2);
		for (int i = 0; i < group; i++) {
			float c = (v[i] - b) * inv;

			c = c > 0.0f ? c : 0.0f;        /* a NaN too */
			c = c < most ? c : most;
			code[g * group + i] = (uint8_t)((c + 12582912.0f) - 12582912.0f);
		}
	}
	pack(row, code, chunks_of(dim), bits);
}

/* ---- the table ---- */

#define KERNELS(name, bits, group) \
	static void encode_##name(void *row, const float *x, int dim, enum kv_side side) \
	{ \
		encode_affine(row, x, dim, bits, group); \
	} \
	static void query_##name(void *to, const float *q, int dim) { query_make(to, q, dim, group); } \
	static void score_##name(float *out, size_t ld, const void *q, int nq, const void *rows, int n, int dim) \
	{ \
		score(out, ld, q, nq, rows, n, dim, bits, group); \
	} \
	static void mix_##name(float *acc, const float *p, size_t ld, int nq, const void *rows, int n, int dim) \
	{ \
		mix(acc, p, ld, nq, rows, n, dim, bits, group); \
	}
KV_CODED(KERNELS)

#define ENTRY(name, bits, group) \
	{ .encode = encode_##name, .query_bytes = query_bytes, .query = query_##name, .score = score_##name, \
	  .mix = mix_##name },
const struct kv_kernels LANES(kv_coded)[] = { KV_CODED(ENTRY) };
