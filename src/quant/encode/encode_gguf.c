/* encode_gguf.c - rows of floats to blocks of GGUF; the layouts are those that src/quant/gguf reads.
 *
 * A block of 256 has scales in two steps, d (and m) in 16 bits for all, s (and min) small integers for each group.  First
 * each group finds its own best scale; then d is what the largest of them asks for, every group tries the integers next
 * to its own, d (and m) follow by least squares from all codes, and once more; the best that was met is written. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "quant/encode/encode.h"
#include "quant/encode/fit.h"

static float half_round(float x)
{
	return f16_to_float(float_to_f16(x));
}

static float no_round(float x)
{
	return x;
}

static void put_u16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static void put_half(uint8_t *p, float x)
{
	put_u16(p, float_to_f16(x));
}

static const signed char nl_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
static const struct steps nl_steps = { -127, 113, nl_values, 16 };

/* ---- blocks of 32, which are a group ---- */

enum { SHORT = 32 };

static void put_nibbles(uint8_t *p, const uint8_t *code)
{
	for (int i = 0; i < SHORT / 2; i++)
		p[i] = (uint8_t)((code[i] & 15) | code[i + SHORT / 2] << 4);
}

static void put_fifth(uint8_t *p, const uint8_t *code)
{
	memset(p, 0, 4);
	for (int i = 0; i < SHORT; i++)
		p[i / 8] |= (uint8_t)((code[i] >> 4 & 1) << i % 8);
}

static void encode_half(uint8_t *code, uint8_t *d, const float *x, const float *w, const struct steps *s)
{
	struct fit f = fit_scale(x, w, SHORT, s, half_round);

	fit_codes(code, x, w, SHORT, s, f.a, 0);
	put_half(d, f.a);
}

static void encode_halves(uint8_t *code, uint8_t *d, const float *x, const float *w, int most)
{
	const struct steps s = { 0, most, NULL, 0 };
	struct fit f = fit_both(x, w, SHORT, &s, 0, half_round);

	fit_codes(code, x, w, SHORT, &s, f.a, f.c);
	put_half(d, f.a);
	put_half(d + 2, f.c);
}

static void encode_q4_0(uint8_t *b, const float *x, const float *w)
{
	uint8_t code[SHORT];

	encode_half(code, b, x, w, &(struct steps){ -8, 7, NULL, 0 });
	put_nibbles(b + 2, code);
}

static void encode_iq4_nl(uint8_t *b, const float *x, const float *w)
{
	uint8_t code[SHORT];

	encode_half(code, b, x, w, &nl_steps);
	put_nibbles(b + 2, code);
}

static void encode_q5_0(uint8_t *b, const float *x, const float *w)
{
	uint8_t code[SHORT];

	encode_half(code, b, x, w, &(struct steps){ -16, 15, NULL, 0 });
	put_fifth(b + 2, code);
	put_nibbles(b + 6, code);
}

static void encode_q8_0(uint8_t *b, const float *x, const float *w)
{
	uint8_t code[SHORT];

	encode_half(code, b, x, w, &(struct steps){ -127, 127, NULL, 0 });
	for (int i = 0; i < SHORT; i++)
		b[2 + i] = (uint8_t)(code[i] - 127);
}

static void encode_q4_1(uint8_t *b, const float *x, const float *w)
{
	uint8_t code[SHORT];

	encode_halves(code, b, x, w, 15);
	put_nibbles(b + 4, code);
}

static void encode_q5_1(uint8_t *b, const float *x, const float *w)
{
	uint8_t code[SHORT];

	encode_halves(code, b, x, w, 31);
	put_fifth(b + 4, code);
	put_nibbles(b + 8, code);
}

/* ---- blocks of 256 ---- */

enum { LONG = 256, GROUPS = 16, ROUNDS = 3 };

/* The best encoding found for a block. */
struct found {
	float d, m; /* as stored */
	int s[GROUPS], min[GROUPS];
	uint8_t code[LONG];
	double err;
};

struct search {
	const float *x, *w;
	const struct steps *steps;
	int group, low, high; /* of s: unsigned from 0, or signed; of min: from 0 to high */
	bool mins;
};

static int rounded(float x, int lo, int hi)
{
	float v = rintf(x);

	return isnan(v) ? 0 : v < (float)lo ? lo : v > (float)hi ? hi : (int)v;
}

/* The codes of group g with what f says. */
static double group_codes(const struct search *q, struct found *f, int g)
{
	int at = g * q->group;

	return fit_codes(f->code + at, q->x + at, q->w + at, q->group, q->steps, f->d * (float)f->s[g],
	                 q->mins ? -(f->m * (float)f->min[g]) : 0.0f);
}

/* The integers near s (and min) with which group g comes nearest. */
static void group_refine(const struct search *q, struct found *f, int g)
{
	int s0 = f->s[g], m0 = f->min[g], at = g * q->group, best_s = s0, best_m = m0;
	double best = HUGE_VAL;

	for (int s = s0 - 1; s <= s0 + 1; s++)
		for (int m = m0 - (q->mins ? 1 : 0); m <= m0 + (q->mins ? 1 : 0); m++) {
			double err;

			if (s < q->low || s > q->high || m < 0 || m > q->high)
				continue;
			err = fit_codes(NULL, q->x + at, q->w + at, q->group, q->steps, f->d * (float)s,
			                -(f->m * (float)m));
			if (err < best) {
				best = err;
				best_s = s;
				best_m = m;
			}
		}
	f->s[g] = best_s;
	f->min[g] = best_m;
}

static float step_of(const struct steps *s, int code)
{
	return s->table ? (float)s->table[code] : (float)(code + s->lo);
}

/* d and m of least squares, the codes, s and min being what they are. */
static void long_solve(const struct search *q, struct found *f)
{
	double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0, det;

	for (int i = 0; i < LONG; i++) {
		int g = i / q->group;
		double w = (double)q->w[i], x = (double)q->x[i];
		double a = (double)(f->s[g] * step_of(q->steps, f->code[i])), b = q->mins ? -(double)f->min[g] : 0;

		aa += w * a * a;
		ab += w * a * b;
		bb += w * b * b;
		xa += w * x * a;
		xb += w * x * b;
	}
	det = aa * bb - ab * ab;
	if (det > 1e-9 * aa * bb && bb > 0) {
		f->d = (float)((bb * xa - ab * xb) / det);
		f->m = (float)((aa * xb - ab * xa) / det);
	} else if (aa > 0) {
		f->d = (float)((xa - (double)f->m * ab) / aa);
	}
}

/* From scales a (and minima b) of the groups, with d and m for the largest. */
static void long_descend(const struct search *q, struct found *best, const float *a, const float *b, float share)
{
	struct found f = { .err = 0 };
	float most = 0, deepest = 0;

	for (int g = 0; g < LONG / q->group; g++) {
		most = fabsf(a[g]) > fabsf(most) ? a[g] : most;
		deepest = fabsf(b[g]) > fabsf(deepest) ? b[g] : deepest;
	}
	f.d = half_round(most / ((float)(q->low < 0 ? q->low : q->high) * share));
	f.m = half_round(deepest / (float)q->high);
	for (int g = 0; g < LONG / q->group; g++) {
		f.s[g] = f.d != 0 ? rounded(a[g] / f.d, q->low, q->high) : 0;
		f.min[g] = f.m != 0 ? rounded(b[g] / f.m, 0, q->high) : 0;
	}
	for (int r = 0; r < ROUNDS && isfinite(f.d) && isfinite(f.m); r++) {
		f.err = 0;
		for (int g = 0; g < LONG / q->group; g++) {
			group_refine(q, &f, g);
			f.err += group_codes(q, &f, g);
		}
		if (f.err < best->err)
			*best = f;
		long_solve(q, &f);
		f.d = half_round(f.d);
		f.m = half_round(f.m);
	}
}

static struct found long_search(const struct search *q)
{
	struct found best = { .err = HUGE_VAL };
	float a[GROUPS], b[GROUPS] = { 0 };

	/* Nothing but zeros, should no scale do. */
	for (int i = 0; i < LONG; i++)
		best.code[i] = (uint8_t)(q->steps->table ? 8 : -q->steps->lo);
	for (int sign = 1; sign >= (q->mins ? -1 : 1); sign -= 2) {
		for (int g = 0; g < LONG / q->group; g++) {
			const float *x = q->x + g * q->group, *w = q->w + g * q->group;
			struct fit f = q->mins ? fit_both(x, w, q->group, q->steps, sign, no_round) :
			                         fit_scale(x, w, q->group, q->steps, no_round);

			a[g] = f.a;
			b[g] = -f.c;
		}
		long_descend(q, &best, a, b, 1.0f);
		if (q->low < 0)
			long_descend(q, &best, a, b, (float)q->high / (float)q->low);
	}
	return best;
}

static void put_two_bits(uint8_t *p, const uint8_t *code)
{
	memset(p, 0, LONG / 4);
	for (int i = 0; i < LONG; i++)
		p[32 * (i / 128) + i % 32] |= (uint8_t)((code[i] & 3) << 2 * (i % 128 / 32));
}

static void encode_q2_k(uint8_t *b, const float *x, const float *w)
{
	struct found f = long_search(&(struct search){ x, w, &(struct steps){ 0, 3, NULL, 0 }, 16, 0, 15, true });

	for (int g = 0; g < 16; g++)
		b[g] = (uint8_t)(f.s[g] | f.min[g] << 4);
	put_two_bits(b + 16, f.code);
	put_half(b + 80, f.d);
	put_half(b + 82, f.m);
}

static void encode_q3_k(uint8_t *b, const float *x, const float *w)
{
	struct found f = long_search(&(struct search){ x, w, &(struct steps){ -4, 3, NULL, 0 }, 16, -32, 31, false });

	memset(b, 0, 32);
	memset(b + 96, 0, 12);
	for (int i = 0; i < LONG; i++)
		b[i % 32] |= (uint8_t)((f.code[i] >> 2) << i / 32);
	put_two_bits(b + 32, f.code);
	for (int g = 0; g < 16; g++) {
		int s = f.s[g] + 32;

		b[96 + g % 8] |= (uint8_t)((s & 15) << (g < 8 ? 0 : 4));
		b[104 + g % 4] |= (uint8_t)((s >> 4) << 2 * (g / 4));
	}
	put_half(b + 108, f.d);
}

/* Eight scales and minima of 6 bits. */
static void put_sixes(uint8_t *p, const struct found *f)
{
	for (int g = 0; g < 4; g++) {
		p[g] = (uint8_t)(f->s[g] | f->s[g + 4] >> 4 << 6);
		p[g + 4] = (uint8_t)(f->min[g] | f->min[g + 4] >> 4 << 6);
		p[g + 8] = (uint8_t)((f->s[g + 4] & 15) | (f->min[g + 4] & 15) << 4);
	}
}

static void put_nibbles_64(uint8_t *p, const uint8_t *code)
{
	for (int k = 0; k < LONG; k += 64)
		for (int i = 0; i < 32; i++)
			*p++ = (uint8_t)((code[k + i] & 15) | (code[k + 32 + i] & 15) << 4);
}

static void encode_q4_k(uint8_t *b, const float *x, const float *w)
{
	struct found f = long_search(&(struct search){ x, w, &(struct steps){ 0, 15, NULL, 0 }, 32, 0, 63, true });

	put_half(b, f.d);
	put_half(b + 2, f.m);
	put_sixes(b + 4, &f);
	put_nibbles_64(b + 16, f.code);
}

static void encode_q5_k(uint8_t *b, const float *x, const float *w)
{
	struct found f = long_search(&(struct search){ x, w, &(struct steps){ 0, 31, NULL, 0 }, 32, 0, 63, true });

	put_half(b, f.d);
	put_half(b + 2, f.m);
	put_sixes(b + 4, &f);
	memset(b + 16, 0, 32);
	for (int i = 0; i < LONG; i++)
		b[16 + i % 32] |= (uint8_t)((f.code[i] >> 4) << i / 32);
	put_nibbles_64(b + 48, f.code);
}

static void encode_q6_k(uint8_t *b, const float *x, const float *w)
{
	struct found f = long_search(
		&(struct search){ x, w, &(struct steps){ -32, 31, NULL, 0 }, 16, -128, 127, false });

	memset(b, 0, 192);
	for (int i = 0; i < LONG; i++) {
		int h = i / 128, g = i % 128 / 32, l = i % 32;

		b[64 * h + 32 * (g & 1) + l] |= (uint8_t)((f.code[i] & 15) << (g < 2 ? 0 : 4));
		b[128 + 32 * h + l] |= (uint8_t)((f.code[i] >> 4) << 2 * g);
	}
	for (int g = 0; g < 16; g++)
		b[192 + g] = (uint8_t)f.s[g];
	put_half(b + 208, f.d);
}

static void encode_iq4_xs(uint8_t *b, const float *x, const float *w)
{
	struct found f = long_search(&(struct search){ x, w, &nl_steps, 32, -32, 31, false });
	unsigned high = 0;

	put_half(b, f.d);
	memset(b + 4, 0, 4);
	for (int g = 0; g < 8; g++) {
		int s = f.s[g] + 32;

		b[4 + g / 2] |= (uint8_t)((s & 15) << 4 * (g & 1));
		high |= (unsigned)(s >> 4) << 2 * g;
		put_nibbles(b + 8 + 16 * g, f.code + 32 * g);
	}
	put_u16(b + 2, high);
}

/* ---- blocks of 1 and 2 bits with one scale ---- */

enum { SIGNS = 128, TERNARY = 64 };

static void encode_q1_0(uint8_t *b, const float *x, const float *w)
{
	static const signed char values[] = { -1, 1 };
	const struct steps s = { -1, 1, values, 2 };
	struct fit f = fit_scale(x, w, SIGNS, &s, half_round);
	uint8_t code[SIGNS];

	fit_codes(code, x, w, SIGNS, &s, f.a, 0);
	put_half(b, f.a);
	memset(b + 2, 0, SIGNS / 8);
	for (int i = 0; i < SIGNS; i++)
		b[2 + i / 8] |= (uint8_t)(code[i] << i % 8);
}

static void encode_q2_0(uint8_t *b, const float *x, const float *w)
{
	const struct steps s = { -1, 2, NULL, 0 };
	struct fit f = fit_scale(x, w, TERNARY, &s, half_round);
	uint8_t code[TERNARY];

	fit_codes(code, x, w, TERNARY, &s, f.a, 0);
	put_half(b, f.a);
	memset(b + 2, 0, TERNARY / 4);
	for (int i = 0; i < TERNARY; i++)
		b[2 + i / 4] |= (uint8_t)(code[i] << 2 * (i % 4));
}

/* ---- rows ---- */

typedef void encode_fn(uint8_t *b, const float *x, const float *w);
static const struct {
	const char *name;
	encode_fn *encode;
} encoders[] = {
	{ "Q4_0", encode_q4_0 }, { "Q4_1", encode_q4_1 }, { "Q5_0", encode_q5_0 },     { "Q5_1", encode_q5_1 },
	{ "Q8_0", encode_q8_0 }, { "Q2_K", encode_q2_k }, { "Q3_K", encode_q3_k },     { "Q4_K", encode_q4_k },
	{ "Q5_K", encode_q5_k }, { "Q6_K", encode_q6_k }, { "IQ4_NL", encode_iq4_nl }, { "IQ4_XS", encode_iq4_xs },
	{ "Q1_0", encode_q1_0 }, { "Q2_0", encode_q2_0 },
};

static encode_fn *encoder_of(const struct gguf_type *type)
{
	for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
		if (!strcmp(encoders[i].name, type->name))
			return encoders[i].encode;
	return NULL;
}

static bool is_plain(const struct gguf_type *type)
{
	return type->fmt && !type->fmt->coding;
}

bool gguf_encodes(const struct gguf_type *type)
{
	return is_plain(type) || encoder_of(type);
}

static void encode_plain(uint8_t *out, const struct gguf_type *type, const float *x, int cols)
{
	bool bf16 = type->fmt == gguf_type_named("BF16")->fmt;

	if (type->block_bytes == sizeof *x) {
		memcpy(out, x, (size_t)cols * sizeof *x);
		return;
	}
	for (int i = 0; i < cols; i++)
		put_u16(out + 2 * i, bf16 ? float_to_bf16(x[i]) : float_to_f16(x[i]));
}

void gguf_encode(uint8_t *out, const struct gguf_type *type, const float *x, int cols, const float *importance)
{
	encode_fn *encode = encoder_of(type);
	float ones[LONG];

	assert(gguf_encodes(type) && cols % type->block == 0);
	if (!encode) {
		encode_plain(out, type, x, cols);
		return;
	}
	for (int i = 0; i < LONG; i++)
		ones[i] = 1.0f;
	for (int k = 0; k < cols; k += type->block, out += type->block_bytes)
		encode(out, x + k, importance ? importance + k : ones);
}
