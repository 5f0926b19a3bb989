/* rows.cl - operations on rows of floats: one work-group a row where rows have sums, else 256 numbers a work-group. */
#include "dialect.cl"
#include "math.cl"
#include "act.cl"

#define THREADS 256
#define STAGE 4096 /* floats of a row that wait in local memory */

/* The processor's sum by 16 partials over n numbers of row, of f(i): partial l takes i = l, l + 16 ...; then 8 apart, 4, 2, 1.
 * All of the group come along, and all have the result. */
#define ROW_SUM(result, cols, ADD)                                                              \
	do {                                                                                    \
		float part_ = 0.0f;                                                             \
		for (int at_ = 0; at_ < (cols); at_ += STAGE) {                                 \
			int end_ = (cols) - at_ < STAGE ? (cols) - at_ : STAGE;                 \
			for (int i_ = t; i_ < end_; i_ += THREADS)                              \
				stage[i_] = row[at_ + i_];                                      \
			BARRIER();                                                              \
			if (t < 16)                                                             \
				for (int i_ = t; i_ < end_; i_ += 16)                           \
					part_ = ADD(stage[i_], part_);                          \
			BARRIER();                                                              \
		}                                                                               \
		for (int m_ = 8; m_; m_ /= 2)                                                   \
			part_ = add1(part_, SHFL_XOR(part_, m_, scratch, t));                   \
		if (t == 0)                                                                     \
			shared[0] = part_;                                                      \
		BARRIER();                                                                      \
		result = shared[0];                                                             \
		BARRIER();                                                                      \
	} while (0)
#define ADD_SQUARE(x, sum) fma1(x, x, sum)
#define ADD_ONE(x, sum) fma1(x, 1.0f, sum)
#define ADD_SPREAD(x, sum) fma1(sub1(x, mean), sub1(x, mean), sum)

/* out = in * rsqrt(mean(in^2) + eps) * gain: a work-group a row. */
/* Rows of `gains` norms side by side, each with a gain of its own: [gains][cols]. */
KERNEL(THREADS) norm(MEM(float, out), MEM(const float, in), MEM(const float, gain), int cols, float eps, int gains)
{
	SCRATCH(scratch, THREADS);
	LOCAL float stage[STAGE], shared[1];
	USE(float, out);
	USE_CONST(float, in);
	USE_CONST(float, gain);
	int t = TID;
	GLOBAL const float *row = in + (long)BID * cols;
	float sum, r;

	ROW_SUM(sum, cols, ADD_SQUARE);
	r = div1(1.0f, sqrt1(add1(div1(sum, (float)cols), eps)));
	for (int i = t; i < cols; i += THREADS) {
		float a = mul1(row[i], r);

		out[(long)BID * cols + i] = NONE(gain) ? a : mul1(a, gain[BID % gains * cols + i]);
	}
}

KERNEL(THREADS) layer_norm(MEM(float, out), MEM(const float, in), MEM(const float, gain), MEM(const float, bias), int cols,
                           float eps)
{
	SCRATCH(scratch, THREADS);
	LOCAL float stage[STAGE], shared[1];
	USE(float, out);
	USE_CONST(float, in);
	USE_CONST(float, gain);
	USE_CONST(float, bias);
	int t = TID;
	GLOBAL const float *row = in + (long)BID * cols;
	float sum, mean, r;

	ROW_SUM(sum, cols, ADD_ONE);
	mean = div1(sum, (float)cols);
	ROW_SUM(sum, cols, ADD_SPREAD);
	r = div1(1.0f, sqrt1(add1(div1(sum, (float)cols), eps)));
	for (int i = t; i < cols; i += THREADS)
		out[(long)BID * cols + i] = fma1(mul1(sub1(row[i], mean), r), gain[i], bias[i]);
}

/* out = in * rsqrt(mean(in^2) + eps) * gain * act(z), rows of heads side by side, gains as of norm; act: SiLU, or sigmoid. */
KERNEL(THREADS) gated_norm(MEM(float, out), MEM(const float, in), MEM(const float, z), MEM(const float, gain), int cols,
                           float eps, int sigmoid, int gains)
{
	SCRATCH(scratch, THREADS);
	LOCAL float stage[STAGE], shared[1];
	USE(float, out);
	USE_CONST(float, in);
	USE_CONST(float, z);
	USE_CONST(float, gain);
	int t = TID;
	GLOBAL const float *row = in + (long)BID * cols;
	float sum, r;

	ROW_SUM(sum, cols, ADD_SQUARE);
	r = div1(1.0f, sqrt1(add1(div1(sum, (float)cols), eps)));
	for (int i = t; i < cols; i += THREADS) {
		float g = z[(long)BID * cols + i];

		g = sigmoid ? sigmoid_bits(g) : silu_bits(g);
		out[(long)BID * cols + i] = mul1(mul1(mul1(row[i], r), gain[BID % gains * cols + i]), g);
	}
}

/* x = act(x) * y, y may be none.  y is not changed: what an activation makes of its factor is used at once. */
KERNEL(THREADS) gate(MEM(float, x), MEM(const float, y), int n, int kind, float alpha, float limit)
{
	USE(float, x);
	USE_CONST(float, y);
	int i = BID * THREADS + TID;
	float g, u;

	if (i >= n)
		return;
	u = NONE(y) ? 1.0f : y[i];
	g = activated(kind, alpha, limit, x[i], &u);
	x[i] = NONE(y) ? g : mul1(g, u);
}

/* x += scale * y */
KERNEL(THREADS) add(MEM(float, x), MEM(const float, y), int n, float scale)
{
	USE(float, x);
	USE_CONST(float, y);
	int i = BID * THREADS + TID;

	if (i < n)
		x[i] = fma1(scale, y[i], x[i]);
}

/* x = x * scale; with a cap: cap tanh(scale x / cap), by = 2 scale / cap as the host computes it. */
KERNEL(THREADS) map(MEM(float, x), int n, float scale, float by, float cap)
{
	USE(float, x);
	int i = BID * THREADS + TID;

	if (i < n)
		x[i] = cap != 0.0f ? mul1(tanh_of_double(mul1(x[i], by)), cap) : mul1(x[i], scale);
}

/* x *= y, whose rows are y_ld floats apart, and whose every number is for `each` columns. */
KERNEL(THREADS) mul(MEM(float, x), MEM(const float, y), int y_ld, int each, int n, int cols)
{
	USE(float, x);
	USE_CONST(float, y);
	int i = BID * THREADS + TID;

	if (i < cols)
		x[(long)BID_Y * cols + i] = mul1(x[(long)BID_Y * cols + i], y[(long)BID_Y * y_ld + i / each]);
}

/* out = a + (b - a) sigmoid(t), rows of out out_ld apart; b none: out = a. */
KERNEL(THREADS) blend(MEM(float, out), MEM(const float, a), MEM(const float, b), MEM(const float, t), int out_ld, int cols)
{
	USE(float, out);
	USE_CONST(float, a);
	USE_CONST(float, b);
	USE_CONST(float, t);
	int i = BID * THREADS + TID;
	long at = (long)BID_Y * cols + i;

	if (i < cols)
		out[(long)BID_Y * out_ld + i] = NONE(b) ? a[at] : fma1(sub1(b[at], a[at]), sigmoid_bits(t[at]), a[at]);
}

/* x = min(max(x gain + shift, low), high) */
KERNEL(THREADS) affine(MEM(float, x), MEM(const float, gain), MEM(const float, shift), int cols, float low, float high)
{
	USE(float, x);
	USE_CONST(float, gain);
	USE_CONST(float, shift);
	int i = BID * THREADS + TID;
	long at = (long)BID_Y * cols + i;

	if (i < cols)
		x[at] = min1(high, max1(low, fma1(x[at], NONE(gain) ? 1.0f : gain[i], NONE(shift) ? 0.0f : shift[i])));
}

/* out[r] = in[index[r]] */
KERNEL(THREADS) gather(MEM(float, out), MEM(const float, in), MEM(const int, index), int cols)
{
	USE(float, out);
	USE_CONST(float, in);
	USE_CONST(int, index);
	int i = BID * THREADS + TID;

	if (i < cols)
		out[(long)BID_Y * cols + i] = in[(long)index[BID_Y] * cols + i];
}

/* Rows that bring their own vectors, those with tok below 0: brought[~tok] has `ld` floats, of which `cols` from `from` on are the
 * row; add: added to what is there. */
KERNEL(THREADS) bring(MEM(float, x), MEM(const float, brought), MEM(const int, tok), int cols, int ld, int from, int add)
{
	USE(float, x);
	USE_CONST(float, brought);
	USE_CONST(int, tok);
	int i = BID * THREADS + TID, t = tok[BID_Y];
	long at = (long)BID_Y * cols + i;

	if (i >= cols || t >= 0)
		return;
	x[at] = add ? add1(x[at], brought[(long)~t * ld + from + i]) : brought[(long)~t * ld + from + i];
}

/* Activations to bytes in groups of `group` inputs: 16 work-items a group, four groups a work-group.  Codes lie by words of
 * four bytes: of eight inputs the even ones, then the odd ones, which is how coded.cl wants them.  [rows][cols / 8][2] words;
 * words of two groups of 16 lie by turns.  scale and scaled_sum [rows][cols / group]. */
KERNEL(64) quantise(MEM(uint, q), MEM(float, scale), MEM(float, scaled_sum), MEM(const float, x), int group, int groups)
{
	LOCAL float top[64];
	LOCAL int sum[64];
	USE(uint, q);
	USE(float, scale);
	USE(float, scaled_sum);
	USE_CONST(float, x);
	int t = TID, l = t % 16, first = t - l, g = BID * 4 + t / 16, in = g < groups;
	GLOBAL const float *from = x + (long)(in ? g : groups - 1) * group;
	float most = 0.0f, s, inv;
	int total = 0;

	for (int i = l; i < group; i += 16)
		most = max1(abs1(from[i]), most);
	top[t] = most;
	BARRIER();
	for (int i = 0; i < 16; i++)
		most = max1(top[first + i], most);
	s = most < 1e-30f ? 0.0f : div1(most, 127.0f);
	inv = most < 1e-30f ? 0.0f : div1(1.0f, s);
	for (int w = l; w < group / 4; w += 16) { /* the word of inputs w / 2 * 8 + w % 2 and every other one on */
		uint word = 0;

		for (int i = 0; i < 4; i++) {
			float v = max1(min1(mul1(from[w / 2 * 8 + w % 2 + 2 * i], inv), 127.0f), -127.0f);
			int c = (int)(as_uint1(add1(v, 12582912.0f)) - 0x4b400000u);

			word |= ((uint)c & 255u) << (8 * i);
			total += c;
		}
		if (in)
			q[group < 32 ? (long)(g / 2) * 8 + 2 * w + g % 2 : (long)g * (group / 4) + w] = word;
	}
	sum[t] = total;
	BARRIER();
	total = 0;
	for (int i = 0; i < 16; i++)
		total += sum[first + i];
	if (in && l == 0) {
		scale[g] = s;
		scaled_sum[g] = mul1(s, (float)total);
	}
}
