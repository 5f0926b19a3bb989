/* plain.cl - products of plain weights, as the model file has them: rows of bf16 (kind 0), f16 (1) or f32 (2), in the order of
 * 16 partial sums (quant/format.h).  Eight lanes have an output, two partials each, ROWS rows of activations at once. */
#include "dialect.cl"
#include "math.cl"
#include "finish.cl"
#include "places.cl"

#define ROWS 4

FN float plain_at(GLOBAL const ushort *w, int kind, long i)
{
	return kind == 2 ? as_float1((uint)w[2 * i] | (uint)w[2 * i + 1] << 16)
	     : kind == 1 ? low_f16(w[i])
	                 : as_float1((uint)w[i] << 16);
}

/* Units have at most ROWS places. */
KERNEL(256) plain(MEM(float, out), MEM(const ushort, w), MEM(const float, x), MEM(const float, bias), MEM(const int, unit),
                  MEM(const int, index), int kind, int out_ld, int outputs, int cols, int rows, int add)
{
	SCRATCH(scratch, 256);
	USE(float, out);
	USE_CONST(ushort, w);
	USE_CONST(float, x);
	USE_CONST(float, bias);
	PLACES(p, BID_Y * ROWS, rows);
	int t = TID, l = t % 8, o = BID * 32 + t / 8, row[ROWS];
	long at = ((long)p.expert * outputs + (o < outputs ? o : outputs - 1)) * cols;
	float acc[ROWS][2];

#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		acc[r][0] = acc[r][1] = 0.0f;
		row[r] = row_of(&p, r);
	}
	for (int i = 2 * l; i < (p.n > 0 ? cols : 0); i += 16) {
		int two = i + 1 < cols;
		float w0 = plain_at(w, kind, at + i), w1 = two ? plain_at(w, kind, at + i + 1) : 0.0f;

#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			GLOBAL const float *from = x + (long)row[r] * cols;

			acc[r][0] = fma1(from[i], w0, acc[r][0]);
			if (two)
				acc[r][1] = fma1(from[i + 1], w1, acc[r][1]);
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
#pragma unroll
		for (int j = 0; j < 2; j++) {
			acc[r][j] = add1(acc[r][j], SHFL_XOR(acc[r][j], 4, scratch, t));
			acc[r][j] = add1(acc[r][j], SHFL_XOR(acc[r][j], 2, scratch, t));
			acc[r][j] = add1(acc[r][j], SHFL_XOR(acc[r][j], 1, scratch, t));
		}
		if (l == 0 && o < outputs && r < p.n)
			finish(out + (long)(p.first + r) * out_ld, o, add1(acc[r][0], acc[r][1]),
			       NONE(bias) ? 0 : bias + (long)p.expert * outputs, add);
	}
}

/* Rows tok[r] of the matrix as floats; below 0: row 0. */
KERNEL(256) embed(MEM(float, out), MEM(const ushort, w), MEM(const int, tok), int kind, int cols)
{
	USE(float, out);
	USE_CONST(ushort, w);
	USE_CONST(int, tok);
	int i = BID * 256 + TID;

	if (i < cols)
		out[(long)BID_Y * cols + i] = plain_at(w, kind, (long)(tok[BID_Y] < 0 ? 0 : tok[BID_Y]) * cols + i);
}
