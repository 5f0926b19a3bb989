/* route.c - see route.h.
 *
 * A score is what experts are chosen by, a weight what their outputs are multiplied with: they differ where a bias or
 * groups have a say in the choice. */
#include "backend/cpu/route.h"

#include <math.h>
#include <string.h>

/* Scores, and one number and one index for each chosen expert or group. */
size_t route_scratch_bytes(const struct moe *m)
{
	size_t chosen = (size_t)(m->groups > m->top_k ? m->groups : m->top_k);

	return ((size_t)m->experts + (size_t)m->groups + chosen) * sizeof(float) + chosen * sizeof(int);
}

/* The k largest of n scores in falling order; returns how many there are, which is fewer where scores are
 * NaN or -INFINITY. */
static int choose(const float *score, int n, int k, int *chosen, float *best)
{
	int have = 0;

	for (int j = 0; j < k; j++) {
		chosen[j] = j;
		best[j] = -INFINITY;
	}
	for (int i = 0; i < n; i++) {
		int j = k;

		if (!(score[i] > best[k - 1]))
			continue;
		for (; j > 0 && score[i] > best[j - 1]; j--)
			if (j < k) {
				chosen[j] = chosen[j - 1];
				best[j] = best[j - 1];
			}
		chosen[j] = i;
		best[j] = score[i];
		have += have < k;
	}
	return have;
}

/* x = e^(x - max x); returns the sum. */
static float exponentials(const struct op_table *op, float *x, int n)
{
	float top = x[0], sum = 0.0f;

	for (int i = 1; i < n; i++)
		top = x[i] > top ? x[i] : top;
	for (int i = 0; i < n; i++)
		x[i] -= top;
	op->exp(x, x, n);
	for (int i = 0; i < n; i++)
		sum += x[i];
	return sum;
}

/* Takes the experts of groups that are not among the best out of the choice. */
static void keep_groups(const struct moe *m, float *score, float *total, int *chosen, float *best)
{
	int size = m->experts / m->groups, have;

	for (int g = 0; g < m->groups; g++) {
		int two[2];
		float top[2];

		total[g] = 0;
		for (int j = choose(score + g * size, size, size < 2 ? 1 : 2, two, top); j > 0; j--)
			total[g] += top[j - 1];
	}
	have = choose(total, m->groups, m->groups_used, chosen, best);
	for (int g = 0; g < m->groups; g++) {
		bool kept = false;

		for (int j = 0; j < have; j++)
			kept |= chosen[j] == g;
		for (int i = g * size; i < (g + 1) * size && !kept; i++)
			score[i] = m->groups_strict ? -INFINITY : 0.0f;
	}
}

static void divide(float *w, int k, float by)
{
	for (int j = 0; j < k; j++)
		w[j] /= by;
}

/* ROUTE_ROUNDS.  near: as many floats as there are experts. */
static void rounds(const struct op_table *op, const struct moe *m, const float *p, int *expert, float *weight,
                   float *near)
{
	for (int round = 0; round < 2; round++) {
		int taken = round ? expert[0] : -1, best = taken == 0;
		float top, sum;

		for (int i = best + 1; i < m->experts; i++)
			if (i != taken && !(p[i] <= p[best]))
				best = i;
		top = p[best];
		for (int i = 0; i < m->experts; i++) {
			float size = fabsf(p[i]) > top ? fabsf(p[i]) : top;

			near[i] = i == taken || (top - p[i]) / size > m->jitter ? -INFINITY : p[i];
		}
		sum = exponentials(op, near, m->experts);
		expert[round] = best;
		weight[round] = near[best] / sum;
	}
}

/* Weights of the chosen experts, of which `have` are there; sum: what their scores are divided by. */
static void weigh(const struct op_table *op, const struct moe *m, const float *p, const int *expert, float *weight,
                  int have, float sum)
{
	int k = m->top_k;

	for (int j = 0; j < k; j++)
		weight[j] = j < have ? p[expert[j]] : NAN;
	if (m->route == ROUTE_TOP)
		sum = exponentials(op, weight, k);
	divide(weight, k, sum);
	if (m->normalise) {
		sum = m->norm_eps;
		for (int j = 0; j < k; j++)
			sum += weight[j];
		divide(weight, k, sum);
	}
	for (int j = 0; j < k && m->scale != 0; j++)
		weight[j] *= m->scale;
	for (int j = 0; j < k && m->expert_scale; j++)
		weight[j] *= m->expert_scale[expert[j]];
}

void route_row(const struct op_table *op, const struct moe *m, float *p, const int32_t *fixed, int *expert,
               float *weight, float *scratch)
{
	int experts = m->experts, k = m->top_k, have;
	float *score = scratch, *total = score + experts, *best = total + m->groups, sum = 1.0f;

	if (m->router_bias)
		op->add(p, m->router_bias, experts);
	if (m->route == ROUTE_ROUNDS) {
		rounds(op, m, p, expert, weight, score);
		return;
	}
	if (m->route == ROUTE_SOFTMAX)
		sum = exponentials(op, p, experts);
	else if (m->route == ROUTE_SIGMOID)
		op->sigmoid(p, p, experts);
	for (int i = 0; i < experts && m->route == ROUTE_ROOT; i++)
		p[i] = sqrtf(p[i]);
	if (fixed) {
		for (int j = 0; j < k; j++)
			expert[j] = fixed[j];
		weigh(op, m, p, expert, weight, k, sum);
		return;
	}
	memcpy(score, p, (size_t)experts * sizeof *score);
	if (m->select_bias) {
		divide(score, experts, sum);
		op->add(score, m->select_bias, experts);
	}
	if (m->groups > 1)
		keep_groups(m, score, total, (int *)(best + (m->groups > k ? m->groups : k)), best);
	have = choose(score, experts, k, expert, best);
	weigh(op, m, p, expert, weight, have, sum);
}
