/* low_rank.cl - what adapters add to the products of weights (backend/low_rank.h). */
#include "dialect.cl"
#include "math.cl"

#define THREADS 256
#define PANEL 16 /* outputs of B side by side */

/* y[row][o] = fma(scale, sum over rising r of h[row][r] B[row0 + o][r], y[row][o]); rows of y are ld floats apart.  b:
 * [panel][rank][PANEL] bf16 (is_half) or floats. */
KERNEL(THREADS) low_rank(MEM(float, y), MEM(const float, h), MEM(const ushort, b), int ld, int outputs, int rank, int row0,
                         int is_half, float scale)
{
	USE(float, y);
	USE_CONST(float, h);
	USE_CONST(ushort, b);
	int o = BID * THREADS + TID, in = row0 + o;
	long at = (long)(in / PANEL) * rank * PANEL + in % PANEL;
	GLOBAL float *to = y + (long)BID_Y * ld + o;
	float d = 0.0f;

	if (o >= outputs)
		return;
	for (int r = 0; r < rank; r++, at += PANEL)
		d = fma1(h[(long)BID_Y * rank + r], is_half ? low_bf16(b[at]) : ((GLOBAL const float *)b)[at], d);
	to[0] = fma1(scale, d, to[0]);
}

/* x[row][i] += y[row][i]; rows of x are ld floats apart, those of y cols. */
KERNEL(THREADS) add_rows(MEM(float, x), MEM(const float, y), int ld, int cols)
{
	USE(float, x);
	USE_CONST(float, y);
	int i = BID * THREADS + TID;

	if (i < cols)
		x[(long)BID_Y * ld + i] = add1(x[(long)BID_Y * ld + i], y[(long)BID_Y * cols + i]);
}
