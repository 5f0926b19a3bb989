/* test_route.c - the routers of a mixture against a plain one in double: which experts are chosen, in what order, with
 * what weights; equal scores, groups, scores below zero, and numbers that are none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/level_ops.h"
#include "backend/cpu/route.h"
#include "base/rng.h"

enum { EXPERTS = 24, TOP = 6, ROUNDS = 400 };

static int failures;
static uint64_t drawn;

static float draw(float scale)
{
	return (float)(rng_uniform(9, drawn++, 1) * 2 - 1) * scale;
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* Index of the largest of s that is not taken yet; the lower of equals. */
static int largest(const double *s, int n, const int *taken, int have)
{
	int best = -1;

	for (int i = 0; i < n; i++) {
		int used = 0;

		for (int j = 0; j < have; j++)
			used |= taken[j] == i;
		if (!used && (best < 0 || s[i] > s[best]))
			best = i;
	}
	return best;
}

static void plain_groups(const struct moe *m, double *score)
{
	int size = m->experts / m->groups, taken[EXPERTS];
	double total[EXPERTS];

	for (int g = 0; g < m->groups; g++) {
		int two[2];

		total[g] = 0;
		for (int j = 0; j < 2 && j < size; j++) {
			two[j] = largest(score + g * size, size, two, j);
			total[g] += score[g * size + two[j]];
		}
	}
	for (int j = 0; j < m->groups_used; j++)
		taken[j] = largest(total, m->groups, taken, j);
	for (int i = 0; i < m->experts; i++) {
		int kept = 0;

		for (int j = 0; j < m->groups_used; j++)
			kept |= taken[j] == i / size;
		if (!kept)
			score[i] = m->groups_strict ? -INFINITY : 0;
	}
}

static void plain(const struct moe *m, const float *logit, int *expert, double *weight)
{
	double p[EXPERTS], score[EXPERTS], sum = 0;

	for (int i = 0; i < m->experts; i++) {
		p[i] = (double)logit[i] + (m->router_bias ? (double)m->router_bias[i] : 0);
		sum += exp(p[i]);
	}
	for (int i = 0; i < m->experts; i++) {
		if (m->route == ROUTE_SOFTMAX)
			p[i] = exp(p[i]) / sum;
		if (m->route == ROUTE_SIGMOID)
			p[i] = sigmoid(p[i]);
		score[i] = p[i] + (m->select_bias ? (double)m->select_bias[i] : 0);
	}
	if (m->groups)
		plain_groups(m, score);
	sum = 0;
	for (int j = 0; j < m->top_k; j++) {
		expert[j] = largest(score, m->experts, expert, j);
		weight[j] = p[expert[j]];
		if (m->route == ROUTE_TOP)
			weight[j] = exp(weight[j]);
		sum += weight[j];
	}
	for (int j = 0; j < m->top_k; j++) {
		if (m->normalise || m->route == ROUTE_TOP)
			weight[j] /= sum + (m->normalise ? (double)m->norm_eps : 0);
		weight[j] *= m->scale != 0 ? (double)m->scale : 1;
		weight[j] *= m->expert_scale ? (double)m->expert_scale[expert[j]] : 1;
	}
}

static void compare(const char *what, const struct moe *m, const float *logit)
{
	float copy[EXPERTS], weight[TOP], first[TOP], *scratch = malloc(route_scratch_bytes(m));
	int expert[TOP], want[TOP];
	double should[TOP];

	plain(m, logit, want, should);
	for (enum cpu_level t = CPU_SCALAR; t < CPU_LEVELS; t = cpu_level_next(t)) {
		memcpy(copy, logit, sizeof copy);
		route_row(level_ops(t)->op, m, copy, NULL, expert, t ? weight : first, scratch);
		if (!t)
			memcpy(weight, first, sizeof weight);
		for (int j = 0; j < m->top_k; j++)
			if (expert[j] != want[j] || !(fabs((double)weight[j] - should[j]) < 1e-5) ||
			    weight[j] != first[j]) {
				printf("FAIL %s, level %d: rank %d: expert %d of weight %g, should be %d of %g\n", what,
				       (int)t, j, expert[j], (double)weight[j], want[j], should[j]);
				failures++;
				break;
			}
	}
	free(scratch);
}

/* Each kind of router over random logits. */
static void kinds(void)
{
	static float router_bias[EXPERTS], select_bias[EXPERTS], scale[EXPERTS];
	const struct {
		const char *name;
		struct moe m;
	} kind[] = {
		{ "softmax", { .top_k = 4, .route = ROUTE_SOFTMAX } },
		{ "softmax, divided",
		  { .top_k = 4, .route = ROUTE_SOFTMAX, .normalise = true, .expert_scale = scale } },
		{ "top", { .top_k = 4, .route = ROUTE_TOP, .router_bias = router_bias } },
		{ "sigmoid", { .top_k = 3, .route = ROUTE_SIGMOID, .scale = 2.5f } },
		{ "sigmoid with a bias",
		  { .top_k = TOP,
		    .route = ROUTE_SIGMOID,
		    .select_bias = select_bias,
		    .normalise = true,
		    .norm_eps = 1e-6f } },
		{ "groups",
		  { .top_k = 4, .route = ROUTE_SIGMOID, .select_bias = select_bias, .groups = 6, .groups_used = 3 } },
		{ "strict groups",
		  { .top_k = 4,
		    .route = ROUTE_SIGMOID,
		    .select_bias = select_bias,
		    .groups = 8,
		    .groups_used = 2,
		    .groups_strict = true } },
		{ "softmax with a bias", { .top_k = 2, .route = ROUTE_SOFTMAX, .select_bias = select_bias } },
	};

	for (int r = 0; r < ROUNDS; r++) {
		float logit[EXPERTS];

		for (int i = 0; i < EXPERTS; i++) {
			logit[i] = draw(r % 3 ? 3 : 0.5f);
			router_bias[i] = draw(1);
			select_bias[i] = draw(1) - (r % 2 ? 1.5f : 0);
			scale[i] = draw(1) + 1.5f;
		}
		for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
			struct moe m = kind[k].m;

			m.experts = EXPERTS;
			compare(kind[k].name, &m, logit);
		}
	}
}

/* All alike: the lower index comes first.  No number: what is left of the weights is none either. */
static void edges(void)
{
	struct moe m = { .experts = EXPERTS, .top_k = 4, .route = ROUTE_SIGMOID };
	float logit[EXPERTS] = { 0 }, weight[TOP], scratch[4 * EXPERTS];
	int expert[TOP];

	compare("ties", &m, logit);
	for (int i = 0; i < EXPERTS; i++)
		logit[i] = i == 7 ? 1 : NAN;
	route_row(&op_table_scalar, &m, logit, NULL, expert, weight, scratch);
	for (int j = 0; j < 4; j++)
		if (expert[j] < 0 || expert[j] >= EXPERTS || (j ? !isnan(weight[j]) : expert[j] != 7)) {
			printf("FAIL no numbers: rank %d: expert %d of weight %g\n", j, expert[j], (double)weight[j]);
			failures++;
		}
}

int main(void)
{
	kinds();
	edges();
	return failures != 0;
}
