/* moe.cl - mixtures of experts around their products, in the processor's order (backend/cpu/route.c, moe.c): a row's choice by its
 * logits, the places of rows by expert, and the sum of what a row's experts give, in the order of their rank.
 *
 * Pick i is choice i % top_k of row i / top_k.  Its place is that among all picks in the order of experts. */
#include "dialect.cl"
#include "math.cl"
#include "act.cl"
#include "../kernel_shapes.h"

#define THREADS 256
#define EXPERTS 1024 /* most */
#define CHOICES 64   /* most of a row, and groups of experts */
#define STAGE 2048   /* picks that wait in local memory */

/* best[rank] = which, for the `most` largest of score[n] in falling order, of equal ones the first; what is NaN or -INFINITY is
 * none.  best was -1. */
FN void rank_scores(LOCAL const float *score, int n, int most, LOCAL int *best, int t)
{
	for (int i = t; i < n; i += THREADS) {
		float s = score[i];
		int rank = 0;

		for (int j = 0; j < n; j++)
			rank += score[j] > s || (score[j] == s && j < i);
		if (s > -INFINITY && rank < most)
			best[rank] = i;
	}
}

/* x = e^(x - max x); returns the sum, of rising members. */
FN float exponentials(LOCAL float *x, int n, LOCAL float *one, int t)
{
	float top, sum = 0.0f;

	if (t == 0) {
		top = x[0];
		for (int i = 1; i < n; i++)
			top = max1(x[i], top);
		one[0] = top;
	}
	BARRIER();
	top = one[0];
	for (int i = t; i < n; i += THREADS)
		x[i] = exp_bits(sub1(x[i], top));
	BARRIER();
	if (t == 0) {
		for (int i = 0; i < n; i++)
			sum = add1(sum, x[i]);
		one[0] = sum;
	}
	BARRIER();
	sum = one[0];
	BARRIER();
	return sum;
}

/* A row's logits as the choice begins with them. */
FN float scored(GLOBAL const struct moe_shape *s, float v, GLOBAL const float *bias, int i)
{
	if (s->route == 4)
		v = softplus_bits(v);
	if (bias)
		v = add1(v, bias[i]);
	return s->route == 2 ? sigmoid_bits(v) : s->route == 4 ? sqrt1(v) : v;
}

/* The sum of the two largest scores of a group; what is NaN or -INFINITY does not count. */
FN float two_largest(LOCAL const float *score, int n)
{
	float a = -INFINITY, b = -INFINITY, sum = 0.0f;

	for (int i = 0; i < n; i++)
		if (score[i] > a) {
			b = a;
			a = score[i];
		} else if (score[i] > b) {
			b = score[i];
		}
	if (b > -INFINITY)
		sum = add1(sum, b);
	return a > -INFINITY ? add1(sum, a) : sum;
}

/* expert and weight[row][top_k] of logit[row][experts]; bias, select and each: struct moe. */
KERNEL(THREADS) route(MEM(int, expert), MEM(float, weight), MEM(const float, logit), MEM(const struct moe_shape, s), MEM(const float, bias),
                      MEM(const float, select), MEM(const float, each))
{
	LOCAL float p[EXPERTS], score[EXPERTS], total[CHOICES], w[CHOICES], one[1];
	LOCAL int best[CHOICES], group[CHOICES];
	USE(int, expert);
	USE(float, weight);
	USE_CONST(float, logit);
	USE_CONST(struct moe_shape, s);
	USE_CONST(float, bias);
	USE_CONST(float, select);
	USE_CONST(float, each);
	int t = TID, experts = s->experts, k = s->top_k, groups = s->groups > 1 ? s->groups : 0, size = groups ? experts / groups : 1;
	int have = 0;
	float sum, norm;

	for (int i = t; i < experts; i += THREADS)
		p[i] = scored(s, logit[(long)BID * experts + i], NONE(bias) ? 0 : bias, i);
	if (t < CHOICES)
		best[t] = group[t] = -1;
	BARRIER();
	sum = exponentials(p, s->route == 0 ? experts : 0, one, t);
	sum = s->route == 0 ? sum : 1.0f;
	for (int i = t; i < experts; i += THREADS)
		score[i] = NONE(select) ? p[i] : add1(div1(p[i], sum), select[i]);
	BARRIER();
	if (t < groups)
		total[t] = two_largest(score + t * size, size);
	BARRIER();
	rank_scores(total, groups, s->groups_used, group, t);
	BARRIER();
	for (int i = t; i < (groups ? experts : 0); i += THREADS) {
		int kept = 0;

		for (int j = 0; j < s->groups_used; j++)
			kept |= group[j] == i / size;
		if (!kept)
			score[i] = s->groups_strict ? -INFINITY : 0.0f;
	}
	BARRIER();
	rank_scores(score, experts, k, best, t);
	BARRIER();
	for (int j = 0; j < k; j++)
		have += best[j] >= 0;
	if (t < k)
		w[t] = t < have ? p[best[t]] : as_float1(0x7fc00000u);
	BARRIER();
	norm = exponentials(w, s->route == 1 ? k : 0, one, t);
	sum = s->route == 1 ? norm : sum;
	if (t < k)
		w[t] = div1(w[t], sum);
	BARRIER();
	norm = s->norm_eps;
	for (int j = 0; j < k; j++)
		norm = add1(norm, w[j]);
	if (t < k) {
		int e = t < have ? best[t] : t - have;
		float v = s->normalise ? div1(w[t], norm) : w[t];

		v = s->scale != 0.0f ? mul1(v, s->scale) : v;
		expert[BID * k + t] = e;
		weight[BID * k + t] = NONE(each) ? v : mul1(v, each[e]);
	}
}

/* The same of ROUTE_ROUNDS. */
KERNEL(THREADS) rounds(MEM(int, expert), MEM(float, weight), MEM(const float, logit), MEM(const struct moe_shape, s), MEM(const float, bias))
{
	LOCAL float p[EXPERTS], near[EXPERTS], one[1];
	LOCAL int first[2];
	USE(int, expert);
	USE(float, weight);
	USE_CONST(float, logit);
	USE_CONST(struct moe_shape, s);
	USE_CONST(float, bias);
	int t = TID, experts = s->experts;

	for (int i = t; i < experts; i += THREADS)
		p[i] = scored(s, logit[(long)BID * experts + i], NONE(bias) ? 0 : bias, i);
	BARRIER();
	for (int round = 0; round < 2; round++) {
		int taken = round ? first[0] : -1;
		float top, sum;

		if (t == 0) {
			int best = taken == 0;

			for (int i = best + 1; i < experts; i++)
				if (i != taken && !(p[i] <= p[best]))
					best = i;
			first[round] = best;
		}
		BARRIER();
		top = p[first[round]];
		for (int i = t; i < experts; i += THREADS) {
			float far = max1(abs1(p[i]), top);

			near[i] = i == taken || div1(sub1(top, p[i]), far) > s->jitter ? -INFINITY : p[i];
		}
		BARRIER();
		sum = exponentials(near, experts, one, t);
		if (t == 0) {
			expert[BID * 2 + round] = first[round];
			weight[BID * 2 + round] = div1(near[first[round]], sum);
		}
		BARRIER();
	}
}

/* Counting sort of the picks by expert, by one work-group, and its cut into units of at most `size` places (places.cl), of which
 * there is room for `units`; those at the end are empty.  place[pick]; index[place] the pick's row, or the pick with by_pick. */
KERNEL(THREADS) by_expert(MEM(int, place), MEM(int, index), MEM(int, unit), MEM(const int, expert), int picks, int top_k, int experts,
                          int size, int units, int by_pick)
{
	LOCAL int stage[STAGE], count[EXPERTS], at[EXPERTS], cut[EXPERTS];
	USE(int, place);
	USE(int, index);
	USE(int, unit);
	USE_CONST(int, expert);
	int t = TID, last = 0;

	for (int e = t; e < EXPERTS; e += THREADS)
		count[e] = 0;
	BARRIER();
	for (int turn = 0; turn < 2; turn++) {
		for (int from = 0; from < picks; from += STAGE) {
			int there = picks - from < STAGE ? picks - from : STAGE;

			for (int i = t; i < there; i += THREADS)
				stage[i] = expert[from + i];
			BARRIER();
			for (int e = t; e < experts; e += THREADS) {
				int n = 0;

				for (int i = 0; i < there; i++)
					if (stage[i] == e) {
						if (turn) {
							place[from + i] = at[e] + n;
							index[at[e] + n] = by_pick ? from + i : (from + i) / top_k;
						}
						n++;
					}
				if (turn)
					at[e] += n;
				else
					count[e] += n;
			}
			BARRIER();
		}
		for (int e = t; e < (turn ? 0 : experts); e += THREADS) {
			int begin = 0, u = 0;

			for (int i = 0; i < e; i++) {
				begin += count[i];
				u += (count[i] + size - 1) / size;
			}
			at[e] = begin;
			cut[e] = u;
		}
		BARRIER();
	}
	for (int e = t; e < experts; e += THREADS)
		for (int i = 0, u = cut[e]; i < count[e]; i += size, u++) {
			unit[3 * u] = e;
			unit[3 * u + 1] = at[e] - count[e] + i;
			unit[3 * u + 2] = count[e] - i < size ? count[e] - i : size;
		}
	last = cut[experts - 1] + (count[experts - 1] + size - 1) / size;
	for (int u = last + t; u < units; u += THREADS)
		unit[3 * u] = unit[3 * u + 1] = unit[3 * u + 2] = 0;
}

/* out[pick] = in[its row] times the pick's weight */
KERNEL(THREADS) weigh(MEM(float, out), MEM(const float, in), MEM(const float, weight), int top_k, int cols)
{
	USE(float, out);
	USE_CONST(float, in);
	USE_CONST(float, weight);
	int i = BID * THREADS + TID;

	if (i < cols)
		out[(long)BID_Y * cols + i] = mul1(in[(long)(BID_Y / top_k) * cols + i], weight[BID_Y]);
}

/* out[n] = act(in[2 i]) * in[2 i + 1] */
KERNEL(THREADS) pairs(MEM(float, out), MEM(const float, in), int n, int kind, float alpha, float limit)
{
	USE(float, out);
	USE_CONST(float, in);
	int i = BID * THREADS + TID;
	float g, u;

	if (i >= n)
		return;
	u = in[2 * (long)i + 1];
	g = activated(kind, alpha, limit, in[2 * (long)i], &u);
	out[i] = mul1(g, u);
}

/* out[row] = sum over rising rank of weight down[place], by fma from 0, and the shared expert's row times the sigmoid of its logit; or
 * out += that.  weight, shared, shared_logit none: 1, no shared expert, 1. */
KERNEL(THREADS) combine(MEM(float, out), MEM(const float, down), MEM(const float, weight), MEM(const int, place), MEM(const float, shared),
                        MEM(const float, shared_logit), int top_k, int cols, int add)
{
	USE(float, out);
	USE_CONST(float, down);
	USE_CONST(float, weight);
	USE_CONST(int, place);
	USE_CONST(float, shared);
	USE_CONST(float, shared_logit);
	int i = BID * THREADS + TID;
	long at = (long)BID_Y * cols + i;
	float v = 0.0f;

	if (i >= cols)
		return;
	for (int j = BID_Y * top_k; j < (BID_Y + 1) * top_k; j++)
		v = fma1(NONE(weight) ? 1.0f : weight[j], down[(long)place[j] * cols + i], v);
	if (!NONE(shared))
		v = fma1(NONE(shared_logit) ? 1.0f : sigmoid_bits(shared_logit[BID_Y]), shared[at], v);
	out[at] = add ? add1(out[at], v) : v;
}
