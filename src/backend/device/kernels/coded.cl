/* coded.cl - products of coded weights, after quant/format.h:
 *   acc = fma(scale, xscale isum, acc), acc = fma(bias, xscale xsum, acc), over rising groups,
 * where the integer sum isum is exact and so may be made by anybody in any order.
 *
 * One text for all formats, by constants (kernels/modules).  Codes have BITS bits, and GROUP inputs share a scale.  Names:
 *   affine  codes count from 0, and groups have a bias
 *   signed  codes count from ZERO, and there is no bias; codes of 8 bits are signed bytes
 *   lut     (-DLUT) codes stand for the signed bytes of a table: 16 of them before the scales, then the code of -0, in 8 words
 *
 * Weights lie in tiles of 16 outputs (device/lay.h) and units of UNIT inputs: a group, or two of 16.  Of a tile and unit there
 * are 32 lanes, the fragments of mma_u8s8, in one or two planes.  Lane l has of step s, 32 inputs, and of rows l / 4 and l / 4 + 8
 * the eight inputs that input_at of lay.c says, as bytes a[0] to a[3] in the order of the fragment; the plane LOW has their lower
 * bits, the plane HIGH the rest:
 *   8 bits   a[0], a[2], a[1], a[3]
 *   4 bits   of two words: a[0] and a[1], above them a[2] and a[3]
 *   2 bits   of a word: a[0], above it a[1], a[2], a[3]
 *   1 bit    of half a word: four bits of a[0], four of a[1] and so on
 * Scales lie apart: [tile][group][16][SB] floats, scale and bias. */
#include "dialect.cl"
#include "math.cl"
#include "finish.cl"
#include "places.cl"

#define UNIT (GROUP < 32 ? 32 : GROUP)
#define PER (GROUP < 32 ? 2 : 1) /* groups of a unit */
#define STEPS (UNIT / 32)
#if BITS == 8
#define LOW 8
#elif BITS >= 4
#define LOW 4
#else
#define LOW 2
#endif
#define HIGH (BITS - LOW)
#define LANE (STEPS * LOW / 2) /* words of LOW of a lane */
#define UNIT_WORDS (16 * STEPS * BITS)
#define WARPS 8  /* of a work-group of few: they share the groups of a tile */
#define CHUNK 32 /* groups whose products wait in local memory */
#define TURNS (CHUNK / PER / WARPS)
#define AHEAD (LANE > 8 ? 2 : TURNS) /* units of a warp whose words are on their way at once */
#if defined(LUT) || defined(ZERO)
#define SB 1
#define PRODUCT(name) mma_s8##name
#else
#define SB 2
#define PRODUCT(name) mma_u8##name
#endif
#if defined(LUT)
#define TABLE 8 /* floats */
#define TABLE_PARAM const uint *table
#define TABLE_OF(sb)          \
	const uint table[4] = { ((GLOBAL const uint *)(sb))[0], ((GLOBAL const uint *)(sb))[1], \
		                ((GLOBAL const uint *)(sb))[2], ((GLOBAL const uint *)(sb))[3] }
#else
#define TABLE 0
#define TABLE_PARAM int table
#define TABLE_OF(sb) const int table = 0
#endif
#define SCALES(sb) ((sb) + TABLE)
/* Where the codes and the scales of an expert begin: its weight lies behind that of the expert before. */
#define TILES(outputs) (((outputs) + 63) / 64 * 4)
#define CODES_OF(expert, outputs, units) ((long)(expert) * TILES(outputs) * (units) * UNIT_WORDS)
#define SCALES_OF(expert, outputs, groups) ((long)(expert) * (TILES(outputs) * (groups) * 16 * SB + TABLE))

/* The words of a lane and unit: LOW, then HIGH, a word for each step. */
struct words {
	uint low[LANE], high[STEPS];
};
FN void lane_words(struct words *v, GLOBAL const uint *unit, int lane)
{
	GLOBAL const uint *w = unit + lane * LANE;

#if LANE % 4 == 0
	UNROLL
	for (int i = 0; i < LANE / 4; i++) {
		uint4 x = ((GLOBAL const uint4 *)w)[i];

		v->low[4 * i] = x.x, v->low[4 * i + 1] = x.y, v->low[4 * i + 2] = x.z, v->low[4 * i + 3] = x.w;
	}
#elif LANE % 2 == 0
	uint2 x = ((GLOBAL const uint2 *)w)[0];

	v->low[0] = x.x, v->low[1] = x.y;
#else
	v->low[0] = w[0];
#endif
	UNROLL
	for (int s = 0; s < STEPS; s++) {
#if HIGH == 2
		v->high[s] = unit[32 * LANE + lane * STEPS + s];
#elif HIGH == 1
		v->high[s] = ((GLOBAL const ushort *)(unit + 32 * LANE))[lane * STEPS + s];
#else
		v->high[s] = 0;
#endif
	}
}

/* Four codes as the bytes that are multiplied. */
FN uint values(uint c, TABLE_PARAM)
{
#if defined(LUT)
	return table16(table, c);
#elif defined(ZERO) && BITS < 8
	return ((c | 0x80808080u) - ZERO * 0x01010101u) ^ 0x80808080u;
#else
	return c;
#endif
}

/* The codes of a[i] of step s. */
FN uint codes_of(const struct words *v, int s, int i)
{
	uint c, h = v->high[s];

#if LOW == 8
	c = v->low[4 * s + i % 2 * 2 + i / 2];
#elif LOW == 4
	c = (v->low[2 * s + i % 2] >> (i / 2 * 4)) & 0x0f0f0f0fu;
#else
	c = (v->low[s] >> (2 * i)) & 0x03030303u;
#endif
#if HIGH == 2
	c |= ((h >> (2 * i)) & 0x03030303u) << LOW;
#elif HIGH == 1
	c |= ((((h >> (4 * i)) & 15u) * 0x00204081u) & 0x01010101u) << LOW;
#endif
	return c;
}

/* Sums of one tile and unit with 8 rows: c[group of the unit][4]. */
FN void tile_unit(int *c, const struct words *v, const uint2 *b, TABLE_PARAM, MMA_PARAM, int lane)
{
	UNROLL
	for (int j = 0; j < 4 * PER; j++)
		c[j] = 0;
	UNROLL
	for (int s = 0; s < STEPS; s++) {
		uint a[4];

		UNROLL
		for (int i = 0; i < 4; i++)
			a[i] = values(codes_of(v, s, i), table);
#if PER == 2
		PRODUCT(s8_16)(c, a, b[s].x, sh, lane);
		PRODUCT(s8_16)(c + 4, a + 2, b[s].y, sh, lane);
#else
		PRODUCT(s8)(c, a, b[s].x, b[s].y, sh, lane);
#endif
	}
}

/* out[row][o], o < outputs, for up to 8 rows, a work-group a tile; bias and add as finish.cl has them, unit and index places.cl.  Its
 * warps share the groups; then 128 work-items fold in rising order. */
KERNEL(256) few(MEM(float, out), MEM(const uint, w), MEM(const float, sb), MEM(const uint2, q), MEM(const float, scale),
                MEM(const float, scaled_sum), MEM(const float, bias), MEM(const int, unit), MEM(const int, index), int out_ld,
                int groups, int rows, int outputs, int add)
{
	MMA_SCRATCH(scratch, WARPS);
	LOCAL float part[CHUNK * 128], by[CHUNK * 16 * SB], sums[CHUNK * 8]; /* scales and biases of outputs; sums of rows */
	USE(float, out);
	USE_CONST(uint, w);
	USE_CONST(float, sb);
	USE_CONST(uint2, q);
	USE_CONST(float, scale);
	USE_CONST(float, scaled_sum);
	USE_CONST(float, bias);
	PLACES(p, 0, rows);
	int t = TID, lane = t % 32, warp = t / 32, tile = BID, r = lane / 4, row = row_of(&p, r);
	int row0 = row_of(&p, lane % 4 * 2), row1 = row_of(&p, lane % 4 * 2 + 1);
	int fold_o = t % 16, fold_r = t / 16, row_s = row_of(&p, t / CHUNK);
	int units = groups / PER;
	float acc = 0.0f;
	TABLE_OF(sb);

	w += CODES_OF(p.expert, outputs, units);
	sb += SCALES_OF(p.expert, outputs, groups);
	rows = p.n;
	for (int c0 = 0; c0 < (rows > 0 ? groups : 0); c0 += CHUNK) {
		int there = groups - c0 < CHUNK ? groups - c0 : CHUNK;

		for (int k = 0; k < TURNS; k += AHEAD) {
			struct words v[AHEAD];
			uint2 b[AHEAD][STEPS];

			UNROLL
			for (int a = 0; a < AHEAD; a++) {
				int i = warp + (k + a) * WARPS, u = (c0 + (i * PER < there ? i * PER : there - PER)) / PER;
				GLOBAL const uint2 *from = q + ((long)row * units + u) * (UNIT / 8) + lane % 4;

				lane_words(&v[a], w + ((long)tile * units + u) * UNIT_WORDS, lane);
				UNROLL
				for (int s = 0; s < STEPS; s++)
					b[a][s] = from[s * 4];
			}
			UNROLL
			for (int a = 0; a < AHEAD; a++) {
				int first = (warp + (k + a) * WARPS) * PER, c[4 * PER];

				tile_unit(c, &v[a], b[a], table, MMA_OF(scratch, warp), lane);
				UNROLL
				for (int j = 0; j < 4 * PER; j++) {
					int o = r + j / 2 % 2 * 8, n = lane % 4 * 2 + j % 2, i = first + j / 4;
					int g = c0 + (i < there ? i : there - 1);
					float s = n < rows ? scale[(long)(j % 2 ? row1 : row0) * groups + g] : 0.0f;

					part[i * 128 + n * 16 + o] = mul1(s, (float)c[j]);
				}
			}
		}
		for (int i = t; i < there * 16 * SB; i += 256)
			by[i] = SCALES(sb)[((long)tile * groups + c0) * 16 * SB + i];
		if (SB == 2 && t % CHUNK < there && t / CHUNK < rows)
			sums[t] = scaled_sum[(long)row_s * groups + c0 + t % CHUNK];
		BARRIER();
		if (fold_r < rows) {
#pragma unroll 8
			for (int i = 0; i < there; i++) {
				acc = fma1(by[(i * 16 + fold_o) * SB], part[i * 128 + t], acc);
#if SB == 2
				acc = fma1(by[i * 32 + fold_o * 2 + 1], sums[fold_r * CHUNK + i], acc);
#endif
			}
		}
		BARRIER();
	}
	if (fold_r < rows && tile * 16 + fold_o < outputs)
		finish(out + (long)(p.first + fold_r) * out_ld, tile * 16 + fold_o, acc, NONE(bias) ? 0 : bias + (long)p.expert * outputs, add);
}

/* out[row][o] for many rows: a work-group of 4 warps has 64 outputs by 64 rows, a warp 16 by 64. */
KERNEL(128) many(MEM(float, out), MEM(const uint, w), MEM(const float, sb), MEM(const uint2, q), MEM(const float, scale),
                 MEM(const float, scaled_sum), MEM(const float, bias), MEM(const int, unit), MEM(const int, index), int out_ld,
                 int groups, int rows, int outputs, int add)
{
	MMA_SCRATCH(scratch, 4);
	LOCAL uint2 stage[64 * (UNIT / 8)];
	LOCAL float by[128 * PER];
	USE(float, out);
	USE_CONST(uint, w);
	USE_CONST(float, sb);
	USE_CONST(uint2, q);
	USE_CONST(float, scale);
	USE_CONST(float, scaled_sum);
	USE_CONST(float, bias);
	PLACES(p, BID_Y * 64, rows);
	int t = TID, lane = t % 32, warp = t / 32, tile = BID * 4 + warp, row = row_of(&p, t / 2);
	int units = groups / PER;
	float acc[8][4];
	TABLE_OF(sb);

	w += CODES_OF(p.expert, outputs, units);
	sb += SCALES_OF(p.expert, outputs, groups);

	UNROLL
	for (int n = 0; n < 8; n++)
		UNROLL
		for (int j = 0; j < 4; j++)
			acc[n][j] = 0.0f;
	for (int u = 0; u < (p.n > 0 ? units : 0); u++) {
		struct words v;
		float sz[PER][2 * SB]; /* scales and biases of the lane's two outputs */

		UNROLL
		for (int h = 0; h < PER; h++)
			UNROLL
			for (int j = 0; j < 2 * SB; j++)
				sz[h][j] = SCALES(sb)[(((long)tile * groups + u * PER + h) * 16 + lane / 4 + j / SB * 8) * SB + j % SB];
		lane_words(&v, w + ((long)tile * units + u) * UNIT_WORDS, lane);
		for (int i = t % 2 * (UNIT / 16); i < (t % 2 + 1) * (UNIT / 16); i++)
			stage[t / 2 * (UNIT / 8) + i] = q[((long)row * units + u) * (UNIT / 8) + i];
		UNROLL
		for (int h = 0; h < PER; h++)
			by[h * 128 + t] = t % 2 ? scaled_sum[(long)row * groups + u * PER + h] : scale[(long)row * groups + u * PER + h];
		BARRIER();
		UNROLL
		for (int n = 0; n < 8; n++) {
			int c[4 * PER];
			uint2 b[STEPS];

			UNROLL
			for (int s = 0; s < STEPS; s++)
				b[s] = stage[(n * 8 + lane / 4) * (UNIT / 8) + s * 4 + lane % 4];
			tile_unit(c, &v, b, table, MMA_OF(scratch, warp), lane);
			UNROLL
			for (int j = 0; j < 4 * PER; j++) {
				int m = n * 8 + lane % 4 * 2 + j % 2, h = j / 4, up = j / 2 % 2 * SB;

				acc[n][j % 4] = fma1(sz[h][up], mul1(by[h * 128 + 2 * m], (float)c[j]), acc[n][j % 4]);
#if SB == 2
				acc[n][j % 4] = fma1(sz[h][up + 1], by[h * 128 + 2 * m + 1], acc[n][j % 4]);
#endif
			}
		}
		BARRIER();
	}
	UNROLL
	for (int n = 0; n < 8; n++)
		UNROLL
		for (int j = 0; j < 4; j++) {
			int m = n * 8 + lane % 4 * 2 + j % 2, o = tile * 16 + lane / 4 + j / 2 * 8;

			if (m < p.n && o < outputs)
				finish(out + (long)(p.first + m) * out_ld, o, acc[n][j], NONE(bias) ? 0 : bias + (long)p.expert * outputs, add);
		}
}

/* Rows tok[r] of the matrix as floats: scale code, or scale code + bias in two roundings; below 0: row 0. */
KERNEL(256) embed(MEM(float, out), MEM(const uint, w), MEM(const float, sb), MEM(const int, tok), int groups)
{
	USE(float, out);
	USE_CONST(uint, w);
	USE_CONST(float, sb);
	USE_CONST(int, tok);
	int i = BID * 256 + TID, o = tok[BID_Y] < 0 ? 0 : tok[BID_Y], in = i % 32, s = i % UNIT / 32;
#if GROUP < 32
	int second = in / 16, t = in % 16 / 8 * 2 + in % 2, k = in % 8 / 2;
#else
	int second = in % 2, t = in / 8, k = in % 8 / 2;
#endif
	int lane = o % 8 * 4 + t, at = second * 2 + o % 16 / 8;
	long tile = o / 16;
	GLOBAL const float *v = SCALES(sb) + ((tile * groups + i / GROUP) * 16 + o % 16) * SB;
	struct words words;
	TABLE_OF(sb);
	uint four = 0, byte;
	float x;

	if (i >= groups * GROUP)
		return;
	lane_words(&words, w + (tile * (groups / PER) + i / UNIT) * UNIT_WORDS, lane);
	UNROLL
	for (int j = 0; j < 4 * STEPS; j++)
		four = j == s * 4 + at ? codes_of(&words, j / 4, j % 4) : four;
	byte = (values(four, table) >> (8 * k)) & 255u;
#if SB == 2
	x = add1(mul1(v[0], (float)byte), v[1]);
#else
	x = (float)((int)(byte << 24) >> 24);
#if defined(LUT)
	x = ((four >> (8 * k)) & 255u) == ((GLOBAL const uint *)sb)[4] ? -0.0f : x;
#endif
	x = mul1(v[0], x);
#endif
	out[(long)BID_Y * groups * GROUP + i] = x;
}
