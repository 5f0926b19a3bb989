/* coded.cl - products of coded weights: codes of BITS in groups of GROUP inputs with a scale and a bias, after quant/format.h:
 *   acc = fma(scale, xscale isum, acc), acc = fma(bias, xscale xsum, acc), over rising groups,
 * where the integer sum isum is exact and so may be made by anybody in any order.
 *
 * Weights lie in tiles of 16 outputs (device/lay.h): of a tile and group 32 lanes of LANE words, the fragments of mma_u8s8.  Lane l
 * has of step s, 32 inputs, and of rows l / 4 and l / 4 + 8, the eight inputs 8 (l % 4) and on: in 4 bits a word each, in the
 * order of the inputs; in 8 bits two words each, of the even inputs and of the odd ones.  Scales lie apart: [tile][group][16][2]
 * floats, scale and bias. */
#include "dialect.cl"
#include "math.cl"
#include "finish.cl"

#define STEPS (GROUP / 32)
#define LANE (STEPS * BITS / 2) /* words */
#define WARPS 8                 /* of a work-group of few: they share the groups of a tile */
#define CHUNK 32                /* groups whose products wait in local memory */
#define AHEAD (LANE > 8 ? 2 : CHUNK / WARPS) /* groups of a warp whose words are on their way at once */

/* The words of a lane, in loads as wide as there are. */
FN void lane_words(uint *v, GLOBAL const uint *w)
{
#if LANE % 4 == 0
#pragma unroll
	for (int i = 0; i < LANE / 4; i++) {
		uint4 x = ((GLOBAL const uint4 *)w)[i];

		v[4 * i] = x.x, v[4 * i + 1] = x.y, v[4 * i + 2] = x.z, v[4 * i + 3] = x.w;
	}
#else
	uint2 x = ((GLOBAL const uint2 *)w)[0];

	v[0] = x.x, v[1] = x.y;
#endif
}

/* Sums of one tile and group with 8 rows. */
FN void tile_group(int *c, const uint *w, const uint2 *b, MMA_PARAM, int lane)
{
	c[0] = c[1] = c[2] = c[3] = 0;
#pragma unroll
	for (int s = 0; s < STEPS; s++) {
		uint a[4];

#if BITS == 4
		a[0] = w[2 * s] & 0x0f0f0f0fu, a[1] = w[2 * s + 1] & 0x0f0f0f0fu;
		a[2] = (w[2 * s] >> 4) & 0x0f0f0f0fu, a[3] = (w[2 * s + 1] >> 4) & 0x0f0f0f0fu;
#else
		a[0] = w[4 * s], a[1] = w[4 * s + 2], a[2] = w[4 * s + 1], a[3] = w[4 * s + 3];
#endif
		mma_u8s8(c, a, b[s].x, b[s].y, sh, lane);
	}
}

/* out[row][o], o < outputs, for up to 8 rows, a work-group a tile; bias and add as finish.cl has them.  Its warps share the groups; then 128 work-items fold in rising order. */
KERNEL(256) few(MEM(float, out), MEM(const uint, w), MEM(const float, sb), MEM(const uint2, q), MEM(const float, scale),
                MEM(const float, scaled_sum), MEM(const float, bias), int out_ld, int groups, int rows, int outputs, int add)
{
	MMA_SCRATCH(scratch, WARPS);
	LOCAL float part[CHUNK * 128], by[CHUNK * 32], sums[CHUNK * 8]; /* scales and biases of outputs; sums of rows */
	USE(float, out);
	USE_CONST(uint, w);
	USE_CONST(float, sb);
	USE_CONST(uint2, q);
	USE_CONST(float, scale);
	USE_CONST(float, scaled_sum);
	USE_CONST(float, bias);
	int t = TID, lane = t % 32, warp = t / 32, tile = BID, r = lane / 4, row = r < rows ? r : rows - 1;
	int fold_o = t % 16, fold_r = t / 16;
	float acc = 0.0f;

	for (int c0 = 0; c0 < groups; c0 += CHUNK) {
		int there = groups - c0 < CHUNK ? groups - c0 : CHUNK;

		for (int k = 0; k < CHUNK / WARPS; k += AHEAD) {
			uint v[AHEAD][LANE];
			uint2 b[AHEAD][STEPS];

#pragma unroll
			for (int a = 0; a < AHEAD; a++) {
				int i = warp + (k + a) * WARPS, g = c0 + (i < there ? i : there - 1);
				GLOBAL const uint2 *from = q + ((long)row * groups + g) * (GROUP / 8) + lane % 4;

				lane_words(v[a], w + (((long)tile * groups + g) * 32 + lane) * LANE);
#pragma unroll
				for (int s = 0; s < STEPS; s++)
					b[a][s] = from[s * 4];
			}
#pragma unroll
			for (int a = 0; a < AHEAD; a++) {
				int i = warp + (k + a) * WARPS, g = c0 + (i < there ? i : there - 1), c[4];

				tile_group(c, v[a], b[a], MMA_OF(scratch, warp), lane);
#pragma unroll
				for (int j = 0; j < 4; j++) {
					int o = r + j / 2 * 8, n = lane % 4 * 2 + j % 2;
					float s = n < rows ? scale[(long)n * groups + g] : 0.0f;

					part[i * 128 + n * 16 + o] = mul1(s, (float)c[j]);
				}
			}
		}
		for (int i = t; i < there * 32; i += 256)
			by[i] = sb[((long)tile * groups + c0) * 32 + i];
		if (t % CHUNK < there && t / CHUNK < rows)
			sums[t] = scaled_sum[(long)(t / CHUNK) * groups + c0 + t % CHUNK];
		BARRIER();
		if (fold_r < rows) {
#pragma unroll 8
			for (int i = 0; i < there; i++) {
				acc = fma1(by[i * 32 + fold_o * 2], part[i * 128 + t], acc);
				acc = fma1(by[i * 32 + fold_o * 2 + 1], sums[fold_r * CHUNK + i], acc);
			}
		}
		BARRIER();
	}
	if (fold_r < rows && tile * 16 + fold_o < outputs)
		finish(out + (long)fold_r * out_ld, tile * 16 + fold_o, acc, NONE(bias) ? 0 : bias, add);
}

/* out[row][o] for many rows: a work-group of 4 warps has 64 outputs by 64 rows, a warp 16 by 64. */
KERNEL(128) many(MEM(float, out), MEM(const uint, w), MEM(const float, sb), MEM(const uint2, q), MEM(const float, scale),
                 MEM(const float, scaled_sum), MEM(const float, bias), int out_ld, int groups, int rows, int outputs, int add)
{
	MMA_SCRATCH(scratch, 4);
	LOCAL uint2 stage[64 * (GROUP / 8)];
	LOCAL float by[128];
	USE(float, out);
	USE_CONST(uint, w);
	USE_CONST(float, sb);
	USE_CONST(uint2, q);
	USE_CONST(float, scale);
	USE_CONST(float, scaled_sum);
	USE_CONST(float, bias);
	int t = TID, lane = t % 32, warp = t / 32, tile = BID * 4 + warp, r0 = BID_Y * 64;
	int row = r0 + t / 2 < rows ? r0 + t / 2 : rows - 1;
	float acc[8][4];

#pragma unroll
	for (int n = 0; n < 8; n++)
#pragma unroll
		for (int j = 0; j < 4; j++)
			acc[n][j] = 0.0f;
	for (int g = 0; g < groups; g++) {
		uint v[LANE];
		GLOBAL const float *v0 = sb + (((long)tile * groups + g) * 16 + lane / 4) * 2;
		float s0 = v0[0], z0 = v0[1], s1 = v0[16], z1 = v0[17];

		lane_words(v, w + (((long)tile * groups + g) * 32 + lane) * LANE);
		for (int i = t % 2 * (GROUP / 16); i < (t % 2 + 1) * (GROUP / 16); i++)
			stage[t / 2 * (GROUP / 8) + i] = q[((long)row * groups + g) * (GROUP / 8) + i];
		by[t] = t % 2 ? scaled_sum[(long)row * groups + g] : scale[(long)row * groups + g];
		BARRIER();
#pragma unroll
		for (int n = 0; n < 8; n++) {
			int c[4];
			uint2 b[STEPS];

#pragma unroll
			for (int s = 0; s < STEPS; s++)
				b[s] = stage[(n * 8 + lane / 4) * (GROUP / 8) + s * 4 + lane % 4];
			tile_group(c, v, b, MMA_OF(scratch, warp), lane);
#pragma unroll
			for (int j = 0; j < 4; j++) {
				int m = n * 8 + lane % 4 * 2 + j % 2;

				acc[n][j] = fma1(j < 2 ? s0 : s1, mul1(by[2 * m], (float)c[j]), acc[n][j]);
				acc[n][j] = fma1(j < 2 ? z0 : z1, by[2 * m + 1], acc[n][j]);
			}
		}
		BARRIER();
	}
#pragma unroll
	for (int n = 0; n < 8; n++)
#pragma unroll
		for (int j = 0; j < 4; j++) {
			int m = r0 + n * 8 + lane % 4 * 2 + j % 2, o = tile * 16 + lane / 4 + j / 2 * 8;

			if (m < rows && o < outputs)
				finish(out + (long)m * out_ld, o, acc[n][j], NONE(bias) ? 0 : bias, add);
		}
}

/* Rows tok[r] of the matrix as floats: scale code + bias, two roundings; below 0: row 0. */
KERNEL(256) embed(MEM(float, out), MEM(const uint, w), MEM(const float, sb), MEM(const int, tok), int groups)
{
	USE(float, out);
	USE_CONST(uint, w);
	USE_CONST(float, sb);
	USE_CONST(int, tok);
	int i = BID * 256 + TID, o = tok[BID_Y] < 0 ? 0 : tok[BID_Y], g = i / GROUP, in = i % 32;
	long at = (long)(o / 16) * groups + g;
	GLOBAL const float *v = sb + (at * 16 + o % 16) * 2;
	GLOBAL const uint *from = w + (at * 32 + o % 8 * 4 + in / 8) * LANE + i % GROUP / 32 * (BITS / 2);
	uint code;

	if (i >= groups * GROUP)
		return;
#if BITS == 4
	code = (from[o % 16 / 8] >> (4 * (in % 8))) & 15u;
#else
	code = (from[o % 16 / 8 * 2 + in % 2] >> (in % 8 / 2 * 8)) & 255u;
#endif
	out[(long)BID_Y * groups * GROUP + i] = add1(mul1(v[0], (float)code), v[1]);
}
