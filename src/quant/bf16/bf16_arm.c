/* bf16_arm.c - products over bf16 weights on 64-bit Arm by bfmmla, which multiplies 2 rows by 4 inputs with 4 inputs by 2
 * outputs, in the order that format.h states for it.
 *
 * Eight outputs are multiplied with up to eight rows at a time.  Activations come two rows side by side, as the
 * instruction reads them; of weights two outputs are put side by side between registers.  A single row takes the same way
 * with zeros in the other row's place: it waits for the memory, and has the bits of many rows. */
#include <arm_neon.h>
#include <string.h>

#include "quant/bf16/bf16_kernels.h"
#include "quant/lanes/lanes.h"

enum {
	OUT = 8,                   /* outputs at a time */
	ROW_PAIRS = 4,             /* pairs of rows at a time */
	STEP = 8,                  /* inputs at a time */
	QUAD = 4,                  /* inputs of an instruction */
	QUAD_BYTES = 2 * QUAD * 2, /* of two rows */
};

/* Bytes from one pair of rows of activations to the next. */
static size_t pair_bytes(int cols)
{
	return acts_pairs_bytes(cols) / (ACTS_TILE / 2);
}

/* Inputs k to k + 4 of a row; zeros beyond the last one, and of a row that is not there (NULL). */
LANES_INLINE float32x4_t inputs_at(const float *x, int k, int cols)
{
	float some[QUAD] = { 0 };

	if (x && k + QUAD <= cols)
		return vld1q_f32(x + k);
	for (int i = 0; x && k + i < cols; i++)
		some[i] = x[k + i];
	return vld1q_f32(some);
}

void acts_pairs_arm(uint8_t *tile, const struct acts *a, int r0, int rows)
{
	const int all = (int)(pair_bytes(a->cols) / QUAD_BYTES) * QUAD;

	for (int r = r0; r < r0 + rows; r += 2) {
		const float *x = a->f + (size_t)r * a->ld, *y = r + 1 < r0 + rows ? x + a->ld : NULL;

		for (int k = 0; k < all; k += QUAD, tile += QUAD_BYTES) {
			bfloat16x8_t pair = vcvtq_low_bf16_f32(inputs_at(x, k, a->cols));

			vst1q_bf16((bfloat16_t *)tile, vcvtq_high_bf16_f32(pair, inputs_at(y, k, a->cols)));
		}
	}
}

/* Outputs [o, o + n) of w, of rows [r0, r1), to out: row r begins at out[(r - first) * ld]. */
struct outputs {
	float *out;
	size_t ld;
	const uint8_t *row[OUT]; /* the weights of each output; the last one repeated */
	int cols, n, r0, r1, first;
};

/* Eight inputs from k on of two rows of weights, side by side by four; zeros beyond the last. */
LANES_INLINE void weights_at(bfloat16x8_t out[2], const uint8_t *a, const uint8_t *b, int k, int cols)
{
	uint64x2_t x, y;

	if (k + STEP > cols) {
		uint8_t some[2][2 * STEP] = { { 0 } };

		memcpy(some[0], a + 2 * (size_t)k, 2 * (size_t)(cols - k));
		memcpy(some[1], b + 2 * (size_t)k, 2 * (size_t)(cols - k));
		x = vreinterpretq_u64_u8(vld1q_u8(some[0]));
		y = vreinterpretq_u64_u8(vld1q_u8(some[1]));
	} else {
		x = vreinterpretq_u64_u8(vld1q_u8(a + 2 * (size_t)k));
		y = vreinterpretq_u64_u8(vld1q_u8(b + 2 * (size_t)k));
	}
	out[0] = vreinterpretq_bf16_u64(vzip1q_u64(x, y));
	out[1] = vreinterpretq_bf16_u64(vzip2q_u64(x, y));
}

/* Row r of the sums of its pair: sum[j] has outputs 2 j and 2 j + 1 of the first row, then of the second. */
static void row_store(const struct outputs *s, int r, const float32x4_t sum[OUT / 2])
{
	float all[OUT];

	if (r < s->r0 || r >= s->r1)
		return;
	for (int j = 0; j < OUT / 2; j++)
		vst1_f32(all + 2 * j, r % 2 ? vget_high_f32(sum[j]) : vget_low_f32(sum[j]));
	memcpy(s->out + (size_t)(r - s->first) * s->ld, all, (size_t)s->n * sizeof *all);
}

/* Rows [r, r + 2 P), whose pairs begin at x. */
LANES_INLINE void outputs_of(const struct outputs *s, int r, const uint8_t *x, const int P)
{
	const size_t step = pair_bytes(s->cols);
	float32x4_t sum[ROW_PAIRS][OUT / 2];

#pragma GCC unroll 4
	for (int p = 0; p < P; p++)
#pragma GCC unroll 4
		for (int j = 0; j < OUT / 2; j++)
			sum[p][j] = vdupq_n_f32(0);
	for (int k = 0; k < s->cols; k += STEP, x += 2 * QUAD_BYTES) {
		bfloat16x8_t w[OUT / 2][2];

#pragma GCC unroll 4
		for (int j = 0; j < OUT / 2; j++)
			weights_at(w[j], s->row[2 * j], s->row[2 * j + 1], k, s->cols);
#pragma GCC unroll 4
		for (int p = 0; p < P; p++) {
			bfloat16x8_t a = vld1q_bf16((const bfloat16_t *)(x + (size_t)p * step));
			bfloat16x8_t b = vld1q_bf16((const bfloat16_t *)(x + (size_t)p * step + QUAD_BYTES));

#pragma GCC unroll 4
			for (int j = 0; j < OUT / 2; j++)
				sum[p][j] = vbfmmlaq_f32(vbfmmlaq_f32(sum[p][j], a, w[j][0]), b, w[j][1]);
		}
	}
#pragma GCC unroll 4
	for (int p = 0; p < P; p++) {
		row_store(s, r + 2 * p, sum[p]);
		row_store(s, r + 2 * p + 1, sum[p]);
	}
}

/* The rows of a tile, of which the first is t. */
static void tile_mul(const struct outputs *s, int t, const uint8_t *tile)
{
	const int first = s->r0 > t ? (s->r0 - t) / 2 : 0;
	const int end = ((s->r1 < t + ACTS_TILE ? s->r1 - t : ACTS_TILE) + 1) / 2;

	for (int p = first, n; p < end; p += n) {
		const uint8_t *x = tile + (size_t)p * pair_bytes(s->cols);

		n = end - p < ROW_PAIRS ? end - p : ROW_PAIRS;
		switch (n) {
		case 1: outputs_of(s, t + 2 * p, x, 1); break;
		case 2: outputs_of(s, t + 2 * p, x, 2); break;
		case 3: outputs_of(s, t + 2 * p, x, 3); break;
		default: outputs_of(s, t + 2 * p, x, 4); break;
		}
	}
}

/* Outputs [o0, o1) of rows [r0, r1), whose tiles begin with that of row t0. */
static void tiles_mul(float *out, size_t ld, const struct weight *w, int o0, int o1, int r0, int r1, int t0,
                      const uint8_t *tiles)
{
	struct outputs s = { .ld = ld, .cols = w->cols, .r0 = r0, .r1 = r1, .first = r0 };

	for (int o = o0; o < o1; o += OUT) {
		s.n = o1 - o < OUT ? o1 - o : OUT;
		s.out = out + (o - o0);
		for (int i = 0; i < OUT; i++)
			s.row[i] = w->data + (size_t)(o + (i < s.n ? i : s.n - 1)) * w->row_bytes;
		for (int t = t0; t < r1; t += ACTS_TILE)
			tile_mul(&s, t, tiles + (size_t)((t - t0) / ACTS_TILE) * acts_pairs_bytes(w->cols));
	}
}

void bf16_mul_arm(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                  void *scratch)
{
	const size_t bytes = acts_pairs_bytes(w->cols);

	if (x->pairs) {
		int t = r0 / ACTS_TILE;

		tiles_mul(out, ld, w, o0, o1, r0, r1, t * ACTS_TILE, x->pairs + (size_t)t * bytes);
		return;
	}
	for (int t = r0 / ACTS_TILE * ACTS_TILE; t < r1; t += ACTS_TILE) {
		int n = x->rows - t < ACTS_TILE ? x->rows - t : ACTS_TILE, from = r0 > t ? r0 : t;

		acts_pairs_arm(scratch, x, t, n);
		tiles_mul(out + (size_t)(from - r0) * ld, ld, w, o0, o1, from, r1 < t + n ? r1 : t + n, t, scratch);
	}
}

size_t bf16_scratch_arm(int cols)
{
	return acts_pairs_bytes(cols);
}

double bf16_peak_arm(int64_t n)
{
	enum { SUMS = 16 };
	float32x4_t sum[SUMS];
	volatile uint32_t twice = 0x3f803f80; /* gcc 12 would write the constant 1 in an instruction of float16 */
	bfloat16x8_t one = vreinterpretq_bf16_u32(vdupq_n_u32(twice));
	volatile float keep = 0;

#pragma GCC unroll 16
	for (int i = 0; i < SUMS; i++)
		sum[i] = vdupq_n_f32((float)i);
	for (int64_t k = 0; k < n; k++) {
#pragma GCC unroll 16
		for (int i = 0; i < SUMS; i++) {
			sum[i] = vbfmmlaq_f32(sum[i], one, one);
			__asm__("" : "+w"(sum[i]));
		}
	}
#pragma GCC unroll 16
	for (int i = 0; i < SUMS; i++)
		keep += vaddvq_f32(sum[i]);
	(void)keep;
	return 2.0 * SUMS * 16 * (double)n;
}
