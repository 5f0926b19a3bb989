/* lane_kernels.c - float kernels over lanes.h, compiled once per level.
 *
 * Dot products in the 16-partial order of format.h: a tile of rows by outputs
 * keeps one v16 of partial sums each, so any tile gives the bits of any other. */
#include <assert.h>
#include <string.h>

#include "quant/coding.h"
#include "quant/lanes/hadamard.h"
#include "quant/lanes/lane_table.h"
#include "quant/lanes/lanes.h"

/* Tile of the many-row product: as many sums as registers hold. */
#if LANES_REGISTERS >= 32
enum { TILE_R = 4, TILE_O = PACKED_OUT, TILE_O1 = 8 };
#elif LANES_REGISTERS
enum { TILE_R = 2, TILE_O = 2, TILE_O1 = 4 };
#else
enum { TILE_R = 1, TILE_O = 1, TILE_O1 = 1 };
#endif

LANES_INLINE v16 row_load(const uint8_t *p, enum dtype t)
{
	return t == DT_F32 ? v16_load(p) : t == DT_BF16 ? v16_load_bf16(p) : v16_load_f16(p);
}

LANES_INLINE v16 row_load_n(const uint8_t *p, enum dtype t, int n)
{
	return t == DT_F32 ? v16_load_n(p, n) : t == DT_BF16 ? v16_load_bf16_n(p, n) : v16_load_f16_n(p, n);
}

/* How the tiles below begin and end: partial sums of R rows by O outputs, in registers. */
LANES_INLINE void sums_clear(v16 (*acc)[8], const int R, const int O)
{
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
#pragma GCC unroll 8
		for (int o = 0; o < O; o++)
			acc[r][o] = v16_zero();
}

/* Sums that are kept between two stretches of inputs: [R][O][16]. */
LANES_INLINE void sums_load(v16 (*acc)[8], const float *keep, const int R, const int O)
{
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
#pragma GCC unroll 8
		for (int o = 0; o < O; o++)
			acc[r][o] = v16_load(keep + 16 * (r * O + o));
}

LANES_INLINE void sums_keep(float *keep, v16 (*acc)[8], const int R, const int O)
{
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
#pragma GCC unroll 8
		for (int o = 0; o < O; o++)
			v16_store(keep + 16 * (r * O + o), acc[r][o]);
}

#if defined(__AVX512F__)
/* Four rows, n <= 4 outputs from o on, of one tree. */
LANES_INLINE void sums_store_4(float *out, size_t ld, v16 (*acc)[8], const int o, const int n)
{
	float all[16];
	v16 f[4][4];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
		for (int r = 0; r < 4; r++)
			f[i][r] = i < n ? acc[r][o + i] : v16_zero();
	v16_store(all, v16_sums_4x4(f));
#pragma GCC unroll 4
	for (int r = 0; r < 4; r++)
		memcpy(out + (size_t)r * ld + o, all + 4 * r, (size_t)n * sizeof *all);
}
#endif

LANES_INLINE void sums_store(float *out, size_t ld, v16 (*acc)[8], const int R, const int O)
{
#if defined(__AVX512F__)
	if (R == 4 && O > 1) {
		sums_store_4(out, ld, acc, 0, O < 4 ? O : 4);
		if (O > 4)
			sums_store_4(out, ld, acc, 4, O - 4);
		return;
	}
#endif
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
#pragma GCC unroll 8
		for (int o = 0; o < O; o++)
			out[(size_t)r * ld + (size_t)o] = v16_sum(acc[r][o]);
}

/* R rows by O outputs.  With ahead, fetches the next O outputs' numbers: O short
 * streams at once are more than the prefetchers follow. */
LANES_INLINE void tile(float *out, size_t ld, const uint8_t *w, size_t row_bytes, enum dtype t, const float *x,
                       size_t x_ld, int n, const int R, const int O, const bool ahead)
{
	const int size = t == DT_F32 ? 4 : 2;
	v16 acc[8][8];
	int k;

	sums_clear(acc, R, O);
	for (k = 0; k + 16 <= n; k += 16) {
		v16 a[8];

#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			a[r] = v16_load(x + (size_t)r * x_ld + k);
#pragma GCC unroll 8
		for (int o = 0; o < O; o++) {
			v16 b = row_load(w + (size_t)o * row_bytes + (size_t)k * (size_t)size, t);

			if (ahead)
				__builtin_prefetch(w + (size_t)(o + O) * row_bytes + (size_t)k * (size_t)size, 0, 3);
#pragma GCC unroll 8
			for (int r = 0; r < R; r++)
				acc[r][o] = v16_fma(a[r], b, acc[r][o]);
		}
	}
	if (k < n) {
#pragma GCC unroll 8
		for (int o = 0; o < O; o++) {
			v16 b = row_load_n(w + (size_t)o * row_bytes + (size_t)k * (size_t)size, t, n - k);

#pragma GCC unroll 8
			for (int r = 0; r < R; r++)
				acc[r][o] = v16_fma_n(v16_load_n(x + (size_t)r * x_ld + k, n - k), b, acc[r][o], n - k);
		}
	}
	sums_store(out, ld, acc, R, O);
}

/* A stretch of inputs, [k0, k1) of n: R rows by O outputs that lie as [n / 16][O][16] floats.  Sums of stretches
 * that are not the last are kept. */
LANES_INLINE void tile_packed(float *out, size_t ld, const float *w, const float *x, size_t x_ld, int k0, int k1, int n,
                              float *keep, const int R, const int O)
{
	v16 acc[8][8];
	int k = k0;

	if (k0)
		sums_load(acc, keep, R, O);
	else
		sums_clear(acc, R, O);
	for (w += (size_t)k0 * (size_t)O; k + 16 <= k1; k += 16, w += 16 * O) {
		v16 a[8];

#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			a[r] = v16_load(x + (size_t)r * x_ld + k);
#pragma GCC unroll 8
		for (int o = 0; o < O; o++) {
			v16 b = v16_load(w + 16 * o);

#pragma GCC unroll 8
			for (int r = 0; r < R; r++)
				acc[r][o] = v16_fma(a[r], b, acc[r][o]);
		}
	}
	for (int o = 0; o < O && k < k1; o++)
		for (int r = 0; r < R; r++)
			acc[r][o] = v16_fma_n(v16_load_n(x + (size_t)r * x_ld + k, k1 - k), v16_load(w + 16 * o),
			                      acc[r][o], k1 - k);
	if (k1 < n)
		sums_keep(keep, acc, R, O);
	else
		sums_store(out, ld, acc, R, O);
}

/* nr x no products; x rows x_ld apart, w rows row_bytes apart. */
LANES_INLINE void product(float *out, size_t ld, const uint8_t *w, size_t row_bytes, enum dtype t, int no,
                          const float *x, size_t x_ld, int nr, int n)
{
	int o = 0;

	if (nr >= TILE_R && TILE_R > 1) {
		for (; o + TILE_O <= no; o += TILE_O) {
			const uint8_t *b = w + (size_t)o * row_bytes;
			int r = TILE_R;

			tile(out + o, ld, b, row_bytes, t, x, x_ld, n, TILE_R, TILE_O, true);
			for (; r + TILE_R <= nr; r += TILE_R)
				tile(out + (size_t)r * ld + o, ld, b, row_bytes, t, x + (size_t)r * x_ld, x_ld, n,
				     TILE_R, TILE_O, false);
			for (; r < nr; r++)
				tile(out + (size_t)r * ld + o, ld, b, row_bytes, t, x + (size_t)r * x_ld, x_ld, n, 1,
				     TILE_O, false);
		}
	} else {
		for (; o + TILE_O1 <= no; o += TILE_O1)
			for (int r = 0; r < nr; r++)
				tile(out + (size_t)r * ld + o, ld, w + (size_t)o * row_bytes, row_bytes, t,
				     x + (size_t)r * x_ld, x_ld, n, 1, TILE_O1, true);
	}
	for (; o < no; o++)
		for (int r = 0; r < nr; r++)
			tile(out + (size_t)r * ld + o, ld, w + (size_t)o * row_bytes, row_bytes, t,
			     x + (size_t)r * x_ld, x_ld, n, 1, 1, false);
}

static void product_f32(float *out, size_t ld, const void *w, size_t row_bytes, int no, const float *x, size_t x_ld,
                        int nr, int n)
{
	product(out, ld, w, row_bytes, DT_F32, no, x, x_ld, nr, n);
}

/* TILE_O outputs as floats in the order in which tiles read them, which converts them once and keeps rows a power of
 * two apart from chasing each other out of the cache. */
LANES_INLINE void pack(float *packed, const struct weight *w, const uint8_t *from, enum dtype t)
{
	const int size = t == DT_F32 ? 4 : 2;

	for (int k = 0; k < w->cols; k += 16)
		for (int i = 0; i < TILE_O; i++) {
			const uint8_t *p = from + (size_t)i * w->row_bytes + (size_t)k * (size_t)size;

			v16_store(packed + (size_t)k * TILE_O + 16 * i,
			          w->cols - k < 16 ? row_load_n(p, t, w->cols - k) : row_load(p, t));
		}
}

/* Packed outputs by nr <= PACKED_ROWS rows: a stretch of inputs after the other, so that its numbers stay in the first
 * cache for all rows. */
static void mul_packed(float *out, size_t ld, const float *packed, const float *x, size_t x_ld, int nr, int cols,
                       float *keep)
{
	for (int k = 0, end; k < cols; k = end) {
		int r = 0;

		end = cols - k < PACKED_INPUTS ? cols : k + PACKED_INPUTS;
		for (; r + TILE_R <= nr; r += TILE_R)
			tile_packed(out + (size_t)r * ld, ld, packed, x + (size_t)r * x_ld, x_ld, k, end, cols,
			            keep + 16 * r * TILE_O, TILE_R, TILE_O);
		for (; r < nr; r++)
			tile_packed(out + (size_t)r * ld, ld, packed, x + (size_t)r * x_ld, x_ld, k, end, cols,
			            keep + 16 * r * TILE_O, 1, TILE_O);
	}
}

/* The product of a weight in place, by way of `packed` when rows are many, of as many rows at a time as the second cache
 * holds. */
LANES_INLINE void mul_plain(float *out, size_t ld, const struct weight *w, enum dtype t, int o0, int o1,
                            const struct acts *x, int r0, int r1, float *packed)
{
	const uint8_t *from = w->data + (size_t)o0 * w->row_bytes;
	int most = PACKED_BYTES / 4 / w->cols,
	    no = TILE_R > 1 && r1 - r0 >= 4 * TILE_R ? (o1 - o0) / TILE_O * TILE_O : 0;
	float *keep = packed + (size_t)TILE_O * ((size_t)w->cols + 16);

	assert(x->cols == w->cols);
	most = most < 4 * TILE_R ? 4 * TILE_R : most < PACKED_ROWS ? most / TILE_R * TILE_R : PACKED_ROWS;
	for (int r = r0, n; r < r1 && no; r += n) {
		n = r1 - r < most ? r1 - r : most;
		for (int o = 0; o < no; o += TILE_O) {
			pack(packed, w, from + (size_t)o * w->row_bytes, t);
			mul_packed(out + (size_t)(r - r0) * ld + o, ld, packed, x->f + (size_t)r * x->ld, x->ld, n,
			           w->cols, keep);
		}
	}
	product(out + no, ld, from + (size_t)no * w->row_bytes, w->row_bytes, t, o1 - o0 - no,
	        x->f + (size_t)r0 * x->ld, x->ld, r1 - r0, w->cols);
}

static void mul_f32(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                    void *scratch)
{
	mul_plain(out, ld, w, DT_F32, o0, o1, x, r0, r1, scratch);
}

static void mul_bf16(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                     int r1, void *scratch)
{
	mul_plain(out, ld, w, DT_BF16, o0, o1, x, r0, r1, scratch);
}

static void mul_f16(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                    void *scratch)
{
	mul_plain(out, ld, w, DT_F16, o0, o1, x, r0, r1, scratch);
}

/* ---- codes of a byte, multiplied as floats: 8-bit codes with scales and biases, as a router has them, and E4M3 ---- */

/* E8M0 of stored bytes: 2^(b - 127), 255 is NaN. */
static float power_of_two(uint8_t b)
{
	uint32_t u = b == 255 ? 0x7fc00000 : b ? (uint32_t)b << 23 : 0x00400000;
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static float float_at(const uint8_t *p)
{
	float x;

	memcpy(&x, p, sizeof x);
	return x;
}

/* Fewer rows than BYTES_FEW are multiplied while codes become floats, BYTES_R at a time; for more
 * that is done once for all. */
enum { BYTES_R = TILE_R > 2 ? 4 : 1, BYTES_O = 4, BYTES_FEW = 2 * BYTES_R + 1 };

static size_t scales_room(const struct weight *w)
{
	return (size_t)(w->cols / w->group + 15) / 16 * 16;
}

static void scales_row(float *to, const uint8_t *p, const struct weight *w, int o)
{
	int groups = w->cols / w->group, size = dtype_size(w->scale_type);

	p += (size_t)o * (size_t)groups * (size_t)size;
	for (int g = 0; w->scale_type == DT_F8_E8M0 && g < groups; g++)
		to[g] = power_of_two(p[g]);
	for (int g = 0; w->scale_type != DT_F8_E8M0 && g < groups; g += 16, p += 16 * size)
		v16_store(to + g,
		          groups - g < 16 ? row_load_n(p, w->scale_type, groups - g) : row_load(p, w->scale_type));
}

/* Scales, and biases where there are any, of outputs o .. o + n - 1: [n][2][scales_room]. */
static void scales_rows(float *to, const struct weight *w, int o, int n)
{
	for (int i = 0; i < n; i++) {
		scales_row(to + (size_t)(2 * i) * scales_room(w), w->scales, w, o + i);
		if (w->biases)
			scales_row(to + (size_t)(2 * i + 1) * scales_room(w), w->biases, w, o + i);
	}
}

static void decode_bytes(float *to, const struct weight *w, int o, const float *scale)
{
	const uint8_t *p = w->data + (size_t)o * w->row_bytes;
	const float *bias = scale + scales_room(w);

	for (int g = 0, k = 0; k < w->cols; g++) {
		v16 s = v16_set1(scale[g]), b = v16_set1(bias[g]);

		for (int end = k + w->group; k < end; k += 16)
			v16_store(to + k, v16_add(v16_mul(s, v16_load_u8(p + k)), b));
	}
}

/* Adds inputs k .. end - 1 of a group to the sums, `runs` times 16 at once; p: codes of the first output; s, b: of each. */
LANES_INLINE void tile_bytes_group(v16 acc[8][8], const float *x, size_t x_ld, const uint8_t *p, size_t row_bytes,
                                   int k, int end, const v16 *s, const v16 *b, const int R, const int O, const int runs,
                                   const bool e4m3)
{
	for (; k < end; k += 16 * runs) {
		v16 a[2][8], v[2];

#pragma GCC unroll 2
		for (int h = 0; h < runs; h++)
#pragma GCC unroll 8
			for (int r = 0; r < R; r++)
				a[h][r] = v16_load(x + (size_t)r * x_ld + k + 16 * h);
#pragma GCC unroll 8
		for (int i = 0; i < O; i++) {
			const uint8_t *at = p + (size_t)i * row_bytes + k;

			if (e4m3 && runs == 2)
				v16_load_e4m3s(v, at);
			else
				v[0] = e4m3 ? v16_load_e4m3(at) : v16_load_u8(at);
#pragma GCC unroll 2
			for (int h = 0; h < runs; h++) {
				v[h] = e4m3 ? v16_mul(s[i], v[h]) : v16_add(v16_mul(s[i], v[h]), b[i]);
#pragma GCC unroll 8
				for (int r = 0; r < R; r++)
					acc[r][i] = v16_fma(a[h][r], v[h], acc[r][i]);
			}
		}
	}
}

/* R rows by outputs o .. o + O - 1; prefetches the codes of the next O outputs.  e4m3: codes are that, and have no biases. */
LANES_INLINE void tile_bytes(float *out, size_t ld, const struct weight *w, int o, const float *scale, const float *x,
                             size_t x_ld, const int R, const int O, const bool e4m3)
{
	size_t room = scales_room(w);
	const uint8_t *p = w->data + (size_t)o * w->row_bytes;
	v16 acc[8][8];

	sums_clear(acc, R, O);
	for (int g = 0, k = 0; k < w->cols; g++) {
		v16 s[8], b[8];

#pragma GCC unroll 8
		for (int i = 0; i < O; i++) {
			for (int at = k; at < k + w->group; at += 64)
				__builtin_prefetch(p + (size_t)(O + i) * w->row_bytes + at, 0, 3);
			s[i] = v16_set1((e4m3 ? 256.0f : 1.0f) * scale[(size_t)(2 * i) * room + (size_t)g]);
			b[i] = e4m3 ? v16_zero() : v16_set1(scale[(size_t)(2 * i + 1) * room + (size_t)g]);
		}
		if (e4m3 && R == 1 && w->group % 32 == 0)
			tile_bytes_group(acc, x, x_ld, p, w->row_bytes, k, k + w->group, s, b, R, O, 2, e4m3);
		else
			tile_bytes_group(acc, x, x_ld, p, w->row_bytes, k, k + w->group, s, b, R, O, 1, e4m3);
		k += w->group;
	}
	sums_store(out, ld, acc, R, O);
}

LANES_INLINE void mul_few(float *out, size_t ld, const struct weight *w, int o0, int o1, const float *x, size_t x_ld,
                          int nr, float *scale, const bool e4m3)
{
	for (int o = o0, n; o < o1; o += n, out += n) {
		n = o1 - o < BYTES_O ? 1 : BYTES_O;
		scales_rows(scale, w, o, n);
		for (int r = 0, R; r < nr; r += R) {
			const float *from = x + (size_t)r * x_ld;
			float *to = out + (size_t)r * ld;

			R = n == BYTES_O && nr - r >= BYTES_R ? BYTES_R : 1;
			if (n < BYTES_O)
				tile_bytes(to, ld, w, o, scale, from, x_ld, 1, 1, e4m3);
			else if (R == BYTES_R)
				tile_bytes(to, ld, w, o, scale, from, x_ld, BYTES_R, BYTES_O, e4m3);
			else
				tile_bytes(to, ld, w, o, scale, from, x_ld, 1, BYTES_O, e4m3);
		}
	}
}

/* n outputs from o on as floats, at rows, by rows [r0, r1); scratch behind them. */
static void mul_rows_decoded(float *out, size_t ld, const struct weight *w, int o, int n, const struct acts *x, int r0,
                             int r1, float *rows, bool bytes)
{
	float *scale = rows + DECODE_ROWS * (size_t)w->cols;
	struct weight plain = { .cols = w->cols,
		                .data = (const uint8_t *)rows,
		                .row_bytes = (size_t)w->cols * sizeof(float) };

	for (int i = 0; i < n; i++) {
		float *to = rows + (size_t)i * (size_t)w->cols;

		if (bytes) {
			scales_rows(scale, w, o + i, 1);
			decode_bytes(to, w, o + i, scale);
		} else {
			w->fmt->decode(to, w, o + i);
		}
	}
	mul_plain(out, ld, &plain, DT_F32, 0, n, x, r0, r1, scale);
}

static void mul_decoded(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                        int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	bool bytes = c && c->bits == 8 && c->bias && w->group % 16 == 0;

	assert(x->cols == w->cols);
	if (bytes && r1 - r0 < BYTES_FEW) {
		mul_few(out, ld, w, o0, o1, x->f + (size_t)r0 * x->ld, x->ld, r1 - r0, scratch, false);
		return;
	}
	for (int o = o0; o < o1; o += DECODE_ROWS)
		mul_rows_decoded(out + (o - o0), ld, w, o, o1 - o < DECODE_ROWS ? o1 - o : DECODE_ROWS, x, r0, r1,
		                 scratch, bytes);
}

static void mul_mxfp8(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                      int r1, void *scratch)
{
	float *rows = scratch;
	size_t cols = (size_t)w->cols;

	assert(x->cols == w->cols && w->group % 16 == 0);
	if (r1 - r0 < BYTES_FEW) {
		mul_few(out, ld, w, o0, o1, x->f + (size_t)r0 * x->ld, x->ld, r1 - r0, scratch, true);
		return;
	}
	for (int o = o0; o < o1; o += DECODE_ROWS) {
		int n = o1 - o < DECODE_ROWS ? o1 - o : DECODE_ROWS;

		for (int i = 0; i < n; i++) {
			const uint8_t *p = w->data + (size_t)(o + i) * w->row_bytes;

			size_t size = (size_t)dtype_size(w->scale_type);
			const uint8_t *scale = w->scales + (size_t)(o + i) * (cols / (size_t)w->group) * size;
			float *to = rows + (size_t)i * cols;

			for (int k = 0; k < w->cols; scale += size) {
				v16 f = v16_set1(256.0f * (size == 1 ? power_of_two(*scale) : float_at(scale)));

				for (int end = k + w->group; k < end; k += 16)
					v16_store(to + k, v16_mul(f, v16_load_e4m3(p + k)));
			}
		}
		product_f32(out + (o - o0), ld, rows, cols * 4, n, x->f + (size_t)r0 * x->ld, x->ld, r1 - r0, w->cols);
	}
}

static float dot(const float *a, const float *b, int n)
{
	float s;

	tile(&s, 1, (const void *)a, 0, DT_F32, b, 0, n, 1, 1, false);
	return s;
}

static float sum_squares(const float *a, int n)
{
	return dot(a, a, n);
}

static void hadamard(float *x, int n, float scale)
{
	hadamard_sums(x, n);
	for (int i = 0; i < n; i++)
		x[i] *= scale;
}

static void quantise(int8_t *q, float *scale, int32_t *sum, float *scaled_sum, const float *x, int cols, int group)
{
	assert(group > 0 && cols % group == 0);
	for (int g = 0; g < cols / group; g++, x += group, q += group) {
		v16 top = v16_zero(), s = v16_zero(), inv;
		float amax;
		int i;

		for (i = 0; i + 16 <= group; i += 16)
			top = v16_max(v16_abs(v16_load(x + i)), top);
		if (i < group)
			top = v16_max(v16_abs(v16_load_n(x + i, group - i)), top);
		amax = v16_top(top);
		scale[g] = amax < 1e-30f ? 0.0f : amax / 127.0f;
		inv = v16_set1(amax < 1e-30f ? 0.0f : 1.0f / scale[g]);
		for (i = 0; i < group; i += 16) {
			int n = group - i < 16 ? group - i : 16;
			v16 v = v16_mul(v16_load_n(x + i, n), inv);
			int8_t last[16];

			v = v16_max(v16_min(v, v16_set1(127.0f)), v16_set1(-127.0f));
			v = v16_rint(v);
			s = v16_add(s, v); /* whole numbers: exact in any order */
			if (n == 16) {
				v16_store_i8(q + i, v);
			} else {
				v16_store_i8(last, v);
				memcpy(q + i, last, (size_t)n);
			}
		}
		sum[g] = (int32_t)v16_sum(s);
		scaled_sum[g] = scale[g] * (float)sum[g];
	}
}

static size_t query_bytes(int dim)
{
	return ((size_t)dim * sizeof(float) + 63) / 64 * 64;
}
static void query(void *to, const float *q, int dim)
{
	memcpy(to, q, (size_t)dim * sizeof *q);
}

static void encode_f32(void *row, const float *x, int dim, enum kv_side side)
{
	memcpy(row, x, (size_t)dim * 4);
}

static void encode_bf16(void *row, const float *x, int dim, enum kv_side side)
{
	uint8_t *p = row;
	int i = 0;

	for (; i + 16 <= dim; i += 16)
		v16_store_bf16(p + 2 * i, v16_load(x + i));
	for (; i < dim; i++) {
		uint16_t h = float_to_bf16(x[i]);

		memcpy(p + 2 * i, &h, 2);
	}
}

/* Queries and rows of a tile of scores; queries and vectors of 16 dims of one of values. */
#if LANES_REGISTERS >= 32
enum { SCORE_Q = 4, SCORE_K = 4, MIX_Q = 4, MIX_V = 4 };
#elif LANES_REGISTERS
enum { SCORE_Q = 2, SCORE_K = 2, MIX_Q = 2, MIX_V = 2 };
#else
enum { SCORE_Q = 1, SCORE_K = 1, MIX_Q = 1, MIX_V = 1 };
#endif

LANES_INLINE void score_tile(float *out, size_t ld, const float *q, size_t q_ld, const uint8_t *rows, enum dtype t,
                             int dim, struct kv_ahead *next, const int Q, const int K)
{
	const int size = t == DT_F32 ? 4 : 2, line = 64 / size;
	const size_t row_bytes = (size_t)dim * (size_t)size;
	v16 f[4][4];
	int k;

#pragma GCC unroll 4
	for (int i = 0; i < K; i++)
#pragma GCC unroll 4
		for (int j = 0; j < Q; j++)
			f[i][j] = v16_zero();
	for (k = 0; k + 16 <= dim; k += 16) {
		v16 a[4];

		if (next && k % line == 0)
			kv_prefetch(next, K);
#pragma GCC unroll 4
		for (int j = 0; j < Q; j++)
			a[j] = v16_load(q + (size_t)j * q_ld + k);
#pragma GCC unroll 4
		for (int i = 0; i < K; i++) {
			v16 b = row_load(rows + (size_t)i * row_bytes + (size_t)(k * size), t);

#pragma GCC unroll 4
			for (int j = 0; j < Q; j++)
				f[i][j] = v16_fma(a[j], b, f[i][j]);
		}
	}
	if (k < dim)
#pragma GCC unroll 4
		for (int i = 0; i < K; i++) {
			v16 b = row_load_n(rows + (size_t)i * row_bytes + (size_t)(k * size), t, dim - k);

#pragma GCC unroll 4
			for (int j = 0; j < Q; j++)
				f[i][j] = v16_fma_n(v16_load_n(q + (size_t)j * q_ld + k, dim - k), b, f[i][j], dim - k);
		}
#if defined(__AVX512F__)
	if (Q == 4 && K == 4) {
		float all[16]; /* of query j from 4 j on */

		v16_store(all, v16_sums_4x4(f));
		for (int j = 0; j < 4; j++)
			memcpy(out + (size_t)j * ld, all + 4 * j, 4 * sizeof *all);
		return;
	}
#endif
#pragma GCC unroll 4
	for (int i = 0; i < K; i++)
#pragma GCC unroll 4
		for (int j = 0; j < Q; j++)
			out[(size_t)j * ld + (size_t)i] = v16_sum(f[i][j]);
}

/* K rows for all queries. */
LANES_INLINE void score_rows(float *out, size_t ld, const float *q, int nq, const uint8_t *rows, enum dtype t, int dim,
                             struct kv_ahead *next, const int K)
{
	const size_t q_ld = query_bytes(dim) / sizeof *q;
	int j = 0;

	for (; j + SCORE_Q <= nq; j += SCORE_Q, next = NULL)
		score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_ld, q_ld, rows, t, dim, next, SCORE_Q, K);
	for (; SCORE_Q > 2 && j + 2 <= nq; j += 2, next = NULL)
		score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_ld, q_ld, rows, t, dim, next, 2, K);
	for (; j < nq; j++, next = NULL)
		score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_ld, q_ld, rows, t, dim, next, 1, K);
}

LANES_INLINE void score(float *out, size_t ld, const float *q, int nq, const uint8_t *rows, enum dtype t, int n,
                        int dim, struct kv_ahead *next)
{
	const size_t row_bytes = (size_t)dim * (t == DT_F32 ? 4 : 2);
	struct kv_ahead ask = *next;
	int i = 0;

	for (; i + SCORE_K <= n; i += SCORE_K, rows += SCORE_K * row_bytes)
		score_rows(out + i, ld, q, nq, rows, t, dim, &ask, SCORE_K);
	for (; i < n; i++, rows += row_bytes)
		score_rows(out + i, ld, q, nq, rows, t, dim, &ask, 1);
	*next = ask;
}

static void score_f32(float *out, size_t ld, const void *q, int nq, const void *rows, int n, int dim,
                      struct kv_ahead *next)
{
	score(out, ld, q, nq, rows, DT_F32, n, dim, next);
}

static void score_bf16(float *out, size_t ld, const void *q, int nq, const void *rows, int n, int dim,
                       struct kv_ahead *next)
{
	score(out, ld, q, nq, rows, DT_BF16, n, dim, next);
}

/* V vectors of 16 dims for Q queries. */
LANES_INLINE void mix_tile(float *acc, size_t acc_ld, const float *p, size_t ld, const uint8_t *rows, size_t row_bytes,
                           enum dtype t, int n, struct kv_ahead *next, const int Q, const int V)
{
	const int step = t == DT_F32 ? 64 : 32;
	v16 a[4][4];

#pragma GCC unroll 4
	for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			a[j][v] = v16_load(acc + (size_t)j * acc_ld + 16 * v);
	for (int i = 0; i < n; i++, rows += row_bytes) {
		v16 b[4];

		if (next)
			kv_prefetch(next, (V * step + 63) / 64);
#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			b[v] = row_load(rows + v * step, t);
#pragma GCC unroll 4
		for (int j = 0; j < Q; j++) {
			v16 pj = v16_set1(p[(size_t)j * ld + (size_t)i]);

#pragma GCC unroll 4
			for (int v = 0; v < V; v++)
				a[j][v] = v16_fma(pj, b[v], a[j][v]);
		}
	}
#pragma GCC unroll 4
	for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			v16_store(acc + (size_t)j * acc_ld + 16 * v, a[j][v]);
}

/* V vectors of 16 dims for all queries. */
LANES_INLINE void mix_dims(float *acc, size_t acc_ld, const float *p, size_t ld, int nq, const uint8_t *rows,
                           size_t row_bytes, enum dtype t, int n, struct kv_ahead *next, const int V)
{
	int j = 0;

	for (; j + MIX_Q <= nq; j += MIX_Q, next = NULL)
		mix_tile(acc + (size_t)j * acc_ld, acc_ld, p + (size_t)j * ld, ld, rows, row_bytes, t, n, next, MIX_Q,
		         V);
	for (; MIX_Q > 2 && j + 2 <= nq; j += 2, next = NULL)
		mix_tile(acc + (size_t)j * acc_ld, acc_ld, p + (size_t)j * ld, ld, rows, row_bytes, t, n, next, 2, V);
	for (; j < nq; j++, next = NULL)
		mix_tile(acc + (size_t)j * acc_ld, acc_ld, p + (size_t)j * ld, ld, rows, row_bytes, t, n, next, 1, V);
}

LANES_INLINE void mix(float *acc, const float *p, size_t ld, int nq, const uint8_t *rows, enum dtype t, int n, int dim,
                      struct kv_ahead *next)
{
	const size_t size = t == DT_F32 ? 4 : 2, row_bytes = (size_t)dim * size;
	struct kv_ahead ask = *next;
	int d = 0;

	for (; d + 16 * MIX_V <= dim; d += 16 * MIX_V)
		mix_dims(acc + d, (size_t)dim, p, ld, nq, rows + (size_t)d * size, row_bytes, t, n, &ask, MIX_V);
	for (; d < dim; d += 16) {
		int m = dim - d < 16 ? dim - d : 16;

		for (int j = 0; j < nq; j++) {
			float *to = acc + (size_t)j * (size_t)dim + d;
			v16 a = v16_load_n(to, m);

			for (int i = 0; i < n; i++)
				a = v16_fma(v16_set1(p[(size_t)j * ld + (size_t)i]),
				            row_load_n(rows + (size_t)i * row_bytes + (size_t)d * size, t, m), a);
			v16_store_n(to, a, m);
		}
	}
	*next = ask;
}

static void mix_f32(float *acc, const float *p, size_t ld, int nq, const void *rows, int n, int dim,
                    struct kv_ahead *next)
{
	mix(acc, p, ld, nq, rows, DT_F32, n, dim, next);
}

static void mix_bf16(float *acc, const float *p, size_t ld, int nq, const void *rows, int n, int dim,
                     struct kv_ahead *next)
{
	mix(acc, p, ld, nq, rows, DT_BF16, n, dim, next);
}

LANES_INLINE void open_rows(float *to, const uint8_t *rows, enum dtype t, int n, int dim)
{
	const int size = t == DT_F32 ? 4 : 2;

	for (int i = 0; i < n; i++, to += KV_PANEL)
		for (int d = 0; d < dim; d += 16, rows += 16 * size)
			v16_store(to + d / KV_PANEL * KV_PANEL * KV_BLOCK + d % KV_PANEL, row_load(rows, t));
}

static void open_f32(float *to, const void *rows, int n, int dim)
{
	open_rows(to, rows, DT_F32, n, dim);
}
static void open_bf16(float *to, const void *rows, int n, int dim)
{
	open_rows(to, rows, DT_BF16, n, dim);
}

static double peak(int64_t n)
{
	enum { CHAINS = 10 }; /* latency times throughput */
	volatile float start = 1.0f, factor = 0.5f;
	v16 a[CHAINS], f = v16_set1(factor);
	volatile float keep;

	for (int i = 0; i < CHAINS; i++)
		a[i] = v16_set1(start);
	for (int64_t k = 0; k < n; k++)
#pragma GCC unroll 10
		for (int i = 0; i < CHAINS; i++)
			a[i] = v16_fma(a[i], f, f);
	for (int i = 1; i < CHAINS; i++)
		a[0] = v16_add(a[0], a[i]);
	keep = v16_sum(a[0]);
	(void)keep;
	return 2.0 * 16 * CHAINS * (double)n;
}

const struct lane_table LANES(lane_table) = {
	.vec = { dot, sum_squares, hadamard },
	.quantise = quantise,
	.mul_f32 = mul_f32,
	.mul_bf16 = mul_bf16,
	.mul_f16 = mul_f16,
	.mul_decoded = mul_decoded,
	.mul_mxfp8 = mul_mxfp8,
	.kv_f32 = { encode_f32, NULL, NULL, query_bytes, query, score_f32, mix_f32, open_f32, LANES(kv_opened_score),
	            LANES(kv_opened_mix) },
	.kv_bf16 = { encode_bf16, NULL, NULL, query_bytes, query, score_bf16, mix_bf16, open_bf16,
	             LANES(kv_opened_score), LANES(kv_opened_mix) },
	.peak = peak,
};
