/* Tests of the sampler: against a slow one written from the contract, against
 * reference filters, and of the distribution it draws from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/sampler.h"
#include "golden.h"

static uint64_t draws;

static double uniform(void)
{
	return rng_uniform(2, draws++, 9);
}
static int die(int n)
{
	return (int)(uniform() * n);
}

/* Normal, by the sum of twelve. */
static float normal(void)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += uniform();
	return (float)sum;
}

/* ---- the contract, done slowly ---- */

struct slow {
	int32_t id[6000]; /* kept, in falling order */
	int n;
	bool close; /* a probability is so near its limit that rounding decides */
};

static const float *order_by;

static int falling(const void *a, const void *b)
{
	int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;

	if (order_by[i] != order_by[j])
		return order_by[i] > order_by[j] ? -1 : 1;
	return i < j ? -1 : 1;
}

static void slow_filter(const float *x, int n, const struct sampler_params *p, struct slow *k)
{
	double total = 0, mass = 0, t = (double)p->temperature;
	int m = 0;

	for (int i = 0; i < n; i++)
		if (x[i] > -INFINITY)
			k->id[m++] = i;
	order_by = x;
	qsort(k->id, (size_t)m, sizeof(*k->id), falling);
	if (p->top_k && p->top_k < m)
		m = p->top_k;
	for (int i = 0; i < m; i++)
		total += exp(((double)x[k->id[i]] - (double)x[k->id[0]]) / t);
	k->close = false;
	for (k->n = 0; k->n < m; k->n++) {
		double w = exp(((double)x[k->id[k->n]] - (double)x[k->id[0]]) / t);

		if (k->n && p->top_p < 1) {
			k->close |= fabs(mass / total - (double)p->top_p) < 1e-5;
			if (mass / total >= (double)p->top_p)
				break;
		}
		if (k->n && p->min_p > 0) {
			k->close |= fabs(w / (double)p->min_p - 1) < 1e-5;
			if (w < (double)p->min_p)
				break;
		}
		mass += w;
	}
}

static int32_t slow_draw(const float *x, const struct slow *k, const struct sampler_params *p, int64_t position)
{
	int32_t best = -1;
	double top = 0;

	for (int i = 0; i < k->n; i++) {
		double u = rng_uniform(p->seed, (uint64_t)position, (uint64_t)k->id[i]);
		double score = (double)x[k->id[i]] * (1 / (double)p->temperature) - log(-log(u));

		if (best < 0 || score > top || (score == top && k->id[i] < best)) {
			top = score;
			best = k->id[i];
		}
	}
	return best;
}

static int32_t pick_of(struct sampler *s, const float *x, int n, int64_t position)
{
	float *row = xmalloc((size_t)n * sizeof(*row));
	struct pick pick;
	struct err err;

	memcpy(row, x, (size_t)n * sizeof(*row));
	if (sampler_pick(s, row, position, &pick, &err))
		fail_msg("%s", err.msg);
	free(row);
	return pick.token;
}

/* ---- tests ---- */

static void test_against_slow(void **state)
{
	static const int size[] = { 1, 2, 3, 15, 16, 17, 200, 1000, 5003 };
	static struct slow k;
	static float x[6000];
	int compared = 0;

	for (int round = 0; round < 1500; round++) {
		int n = size[die(9)];
		const float spread[] = { 0, 0.01f, 0.5f, 4, 4, 4 }; /* flat ones are the hard case of top_p */
		float scale = spread[die(6)];
		struct sampler_params p;
		struct sampler s;

		sampler_params_init(&p);
		p.temperature = (float)(0.05 + 2 * uniform());
		p.top_k = die(2) ? 0 : die(3) ? 1 + die(50) : 1 + die(2 * n);
		p.top_p = die(2) ? 1 : (float)(0.01 + 0.98 * uniform());
		p.min_p = die(2) ? 0 : (float)(0.5 * uniform());
		p.seed = rng_bits(5, (uint64_t)round, 0);
		for (int i = 0; i < n; i++)
			x[i] = die(20) ? scale * normal() : die(2) ? (float)die(3) : -INFINITY; /* with ties */
		x[die(n)] = scale;
		slow_filter(x, n, &p, &k);
		if (k.close)
			continue;
		compared++;
		assert_int_equal(sampler_init(&s, &p, n, NULL, 0, NULL), 0);
		for (int64_t position = 0; position < 20; position++) {
			int32_t got = pick_of(&s, x, n, position), want = slow_draw(x, &k, &p, position);

			if (got != want)
				fail_msg("n %d t %g k %d p %g m %g position %d: %d, slowly %d", n,
				         (double)p.temperature, p.top_k, (double)p.top_p, (double)p.min_p,
				         (int)position, got, want);
		}
		sampler_fini(&s);
	}
	assert_true(compared > 1300);
}

static void test_greedy(void **state)
{
	float x[100];
	struct sampler_params p;
	struct sampler s;

	sampler_params_init(&p);
	p.temperature = 0;
	for (int n = 1; n <= 100; n++) {
		int32_t want = 0;

		for (int i = 0; i < n; i++) {
			x[i] = (float)die(6); /* many ties: the lowest id */
			if (x[i] > x[want])
				want = i;
		}
		assert_int_equal(sampler_init(&s, &p, n, NULL, 0, NULL), 0);
		assert_int_equal(pick_of(&s, x, n, 3), want);
		sampler_fini(&s);
	}
}

/* A vocabulary of many stretches: the first of several largest, wherever they are. */
static void test_greedy_of_many(void **state)
{
	enum { N = 12345 };
	static float x[N];
	struct sampler_params p;
	struct sampler s;

	sampler_params_init(&p);
	p.temperature = 0;
	assert_int_equal(sampler_init(&s, &p, N, NULL, 0, NULL), 0);
	for (int round = 0; round < 300; round++) {
		const int edge[] = { 0, 4095, 4096, 8191, 8192, 12287, 12288, N - 1 };
		int at[2] = { die(2) ? edge[die(8)] : die(N), die(2) ? edge[die(8)] : die(N) };

		for (int i = 0; i < N; i++)
			x[i] = round % 3 ? (float)uniform() : -INFINITY;
		x[at[0]] = x[at[1]] = 2;
		assert_int_equal(pick_of(&s, x, N, 3), at[0] < at[1] ? at[0] : at[1]);
		x[die(N)] = NAN;
		assert_int_not_equal(sampler_pick(&s, x, 3, &(struct pick){ 0 }, &(struct err){ 0 }), 0);
	}
	sampler_fini(&s);
}

static void test_bad_logits(void **state)
{
	const float bad[] = { NAN, INFINITY };
	struct sampler_params p;
	struct sampler s;
	struct pick pick;
	struct err err;
	float x[40];
	uint32_t mask[2] = { 0, 0 };

	sampler_params_init(&p);
	assert_int_equal(sampler_init(&s, &p, 40, NULL, 0, NULL), 0);
	for (int k = 0; k < 2; k++) {
		for (int at = 0; at < 40; at++) {
			char where[20];

			for (int i = 0; i < 40; i++)
				x[i] = (float)i;
			x[at] = bad[k];
			assert_int_equal(sampler_pick(&s, x, 5, &pick, &err), E_FORMAT);
			snprintf(where, sizeof(where), "token %d at", at);
			assert_non_null(strstr(err.msg, where));
		}
	}
	for (int i = 0; i < 40; i++)
		x[i] = -INFINITY;
	assert_int_equal(sampler_pick(&s, x, 5, &pick, &err), E_ARG);
	s.mask = mask;
	for (int i = 0; i < 40; i++)
		x[i] = 1;
	assert_int_equal(sampler_pick(&s, x, 5, &pick, &err), E_ARG);
	mask[1] = 1u << 3;
	for (int i = 0; i < 40; i++)
		x[i] = 1;
	assert_int_equal(sampler_pick(&s, x, 5, &pick, &err), 0);
	assert_int_equal(pick.token, 35);
	sampler_fini(&s);
}

static void test_params(void **state)
{
	struct sampler_params p;
	struct sampler s;
	struct err err;

#define WRONG(field, value, says)                                                 \
	do {                                                                      \
		sampler_params_init(&p);                                          \
		p.field = value;                                                  \
		assert_int_equal(sampler_init(&s, &p, 10, NULL, 0, &err), E_ARG); \
		assert_non_null(strstr(err.msg, says));                           \
	} while (0)
	WRONG(temperature, -1, "temperature is -1");
	WRONG(temperature, NAN, "temperature");
	WRONG(top_p, 0, "top_p is 0; it must be above 0 and at most 1");
	WRONG(top_p, 1.5f, "top_p is 1.5");
	WRONG(min_p, 2, "min_p");
	WRONG(top_k, -1, "top_k is -1");
	WRONG(repetition_penalty, 0, "repetition_penalty");
	WRONG(presence_penalty, INFINITY, "presence_penalty");
	WRONG(frequency_penalty, NAN, "frequency_penalty");
	WRONG(repetition_context, -1, "repetition_context");
	WRONG(min_tokens, -1, "min_tokens");
	WRONG(n_logprobs, SAMPLER_TOP_MAX + 1, "logprobs");
	const struct logit_bias outside = { 10, 1 }, infinite = { 3, INFINITY };

	sampler_params_init(&p);
	p.n_bias = 1;
	p.bias = &outside;
	assert_int_equal(sampler_init(&s, &p, 10, NULL, 0, &err), E_ARG);
	assert_non_null(strstr(err.msg, "token 10"));
	p.bias = &infinite;
	assert_int_equal(sampler_init(&s, &p, 10, NULL, 0, &err), E_ARG);
}

/* Ids above n_vocab never come out, however large their logits. */
static void test_vocabulary_bound(void **state)
{
	struct sampler_params p;
	struct sampler s;
	float x[64];

	for (int mode = 0; mode < 5; mode++) {
		sampler_params_init(&p);
		p.temperature = mode ? 1.5f : 0;
		p.top_k = mode == 2 ? 30 : 0;
		p.top_p = mode == 3 ? 0.9f : 1;
		p.min_p = mode == 4 ? 0.01f : 0;
		assert_int_equal(sampler_init(&s, &p, 50, NULL, 0, NULL), 0);
		for (int i = 0; i < 64; i++)
			x[i] = i < 50 ? normal() : 100;
		for (int i = 0; i < 500; i++)
			assert_true(pick_of(&s, x, 64, i) < 50);
		sampler_fini(&s);
	}
}

/* Logits after bias and penalties, seen in the scratch that pick leaves. */
static void test_penalties(void **state)
{
	const struct logit_bias bias[] = { { 1, 2 }, { 4, -1 }, { 1, 0.5f } };
	const int32_t prompt[] = { 0, 0, 1, 2, 7, 99, -1 };
	struct sampler_params p;
	struct sampler s;
	struct pick pick;
	float x[8] = { 2, 2, -2, 2, 2, 2, 2, 0 };

	sampler_params_init(&p);
	p.temperature = 0;
	p.repetition_penalty = 2;
	p.presence_penalty = 0.25f;
	p.frequency_penalty = 0.5f;
	p.bias = bias;
	p.n_bias = 3;
	p.n_logprobs = 2;
	assert_int_equal(sampler_init(&s, &p, 8, prompt, 7, NULL), 0);
	sampler_accept(&s, 3);
	sampler_accept(&s, 3);
	sampler_accept(&s, 0);
	assert_int_equal(sampler_pick(&s, x, 10, &pick, NULL), 0);
	const float want[8] = { 1 - 0.75f, 4.5f / 2, -4, 1 - 1.25f, 1, 2, 2, 0 };

	for (int i = 0; i < 8; i++)
		assert_true(x[i] == want[i]);
	assert_int_equal(pick.token, 1);
	/* Log-probabilities are of the logits as they came: 2 five times and once each -2, 0 and 2. */
	double lse = log(6 * exp(2) + exp(-2) + 1);

	assert_true(fabs((double)pick.logprob - (2 - lse)) < 1e-6);
	assert_int_equal(pick.n_top, 2);
	assert_int_equal(pick.top[0].token, 0);
	assert_int_equal(pick.top[1].token, 1);
	assert_true(fabs((double)pick.top[0].logprob - (2 - lse)) < 1e-6);
	sampler_fini(&s);

	/* A window of 3: of 0 1 2 3 4 the last three, though 4 pushes 1 out. */
	p.n_bias = 0;
	p.presence_penalty = p.frequency_penalty = 0;
	p.repetition_context = 3;
	const int32_t five[] = { 0, 1, 2, 3 };

	assert_int_equal(sampler_init(&s, &p, 8, five, 4, NULL), 0);
	sampler_accept(&s, 4);
	float y[8] = { 2, 2, 2, 2, 2, 2, 2, 2 };

	assert_int_equal(sampler_pick(&s, y, 10, &pick, NULL), 0);
	for (int i = 0; i < 8; i++)
		assert_true(y[i] == (i >= 2 && i <= 4 ? 1 : 2));
	sampler_fini(&s);
}

/* Thousands of different tokens: the table of seen ones grows and stays right. */
static void test_many_seen(void **state)
{
	enum { N = 20000 };
	float *x = xmalloc(N * sizeof(*x));
	int *count = xcalloc(N, sizeof(*count));
	struct sampler_params p;
	struct sampler s;
	struct pick pick;

	sampler_params_init(&p);
	p.temperature = 0;
	p.frequency_penalty = 0.125f;
	assert_int_equal(sampler_init(&s, &p, N, NULL, 0, NULL), 0);
	for (int i = 0; i < 30000; i++) {
		int32_t token = die(N);

		count[token]++;
		sampler_accept(&s, token);
	}
	for (int i = 0; i < N; i++)
		x[i] = 8;
	assert_int_equal(sampler_pick(&s, x, 1, &pick, NULL), 0);
	for (int i = 0; i < N; i++)
		assert_true(x[i] == 8 - 0.125f * (float)count[i]);
	sampler_fini(&s);
	free(count);
	free(x);
}

static void test_min_tokens(void **state)
{
	const int32_t end[] = { 3, 5, 100 };
	struct sampler_params p;
	struct sampler s;
	float x[6] = { 0, 1, 0, 9, 0, 8 };

	sampler_params_init(&p);
	p.temperature = 0;
	p.min_tokens = 2;
	p.end_token = end;
	p.n_end_token = 3;
	assert_int_equal(sampler_init(&s, &p, 6, NULL, 0, NULL), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pick_of(&s, x, 6, i), i < 2 ? 1 : 3);
		sampler_accept(&s, 1);
	}
	sampler_fini(&s);
}

static void test_logprobs(void **state)
{
	enum { N = 3001 };
	static float x[N], row[N];
	struct sampler_params p;
	struct sampler s;
	struct pick pick;
	double sum = 0;

	for (int i = 0; i < N; i++) {
		x[i] = 5 * normal() - 40;
		sum += exp((double)x[i]);
	}
	sampler_params_init(&p);
	p.n_logprobs = SAMPLER_TOP_MAX;
	p.temperature = 0.7f;
	p.top_k = 3;
	p.presence_penalty = 1;
	assert_int_equal(sampler_init(&s, &p, N, NULL, 0, NULL), 0);
	for (int i = 0; i < 50; i++) {
		memcpy(row, x, sizeof(row));
		assert_int_equal(sampler_pick(&s, row, i, &pick, NULL), 0);
		assert_true(fabs((double)pick.logprob - ((double)x[pick.token] - log(sum))) < 1e-5);
		assert_int_equal(pick.n_top, SAMPLER_TOP_MAX);
		for (int k = 0; k < SAMPLER_TOP_MAX; k++) {
			int above = 0;

			for (int m = 0; m < N; m++)
				above += x[m] > x[pick.top[k].token];
			assert_int_equal(above, k);
			assert_true(fabs((double)pick.top[k].logprob - ((double)x[pick.top[k].token] - log(sum))) <
			            1e-5);
		}
		sampler_accept(&s, pick.token);
	}
	sampler_fini(&s);
	/* Only the picked one's; and fewer tokens than asked for. */
	p.n_logprobs = 0;
	assert_int_equal(sampler_init(&s, &p, N, NULL, 0, NULL), 0);
	memcpy(row, x, sizeof(row));
	assert_int_equal(sampler_pick(&s, row, 0, &pick, NULL), 0);
	assert_int_equal(pick.n_top, 0);
	assert_true(pick.logprob < 0);
	sampler_fini(&s);
	p.n_logprobs = 5;
	assert_int_equal(sampler_init(&s, &p, 2, NULL, 0, NULL), 0);
	memcpy(row, x, sizeof(row));
	assert_int_equal(sampler_pick(&s, row, 0, &pick, NULL), 0);
	assert_int_equal(pick.n_top, 2);
	sampler_fini(&s);
}

/* Chi-square of n_draws picks against the softmax of what is kept.  The bound is five
 * standard deviations above the mean of the statistic: with these fixed seeds the test
 * always says the same, and a wrong temperature or filter misses it by far. */
static double chi_square(const float *x, int n, const struct sampler_params *p, int n_draws, double *bound)
{
	static struct slow k;
	int *count = xcalloc((size_t)n, sizeof(*count)), cells = 0, rest = 0;
	double total = 0, chi = 0, rest_want = 0;
	struct sampler s;

	slow_filter(x, n, p, &k);
	assert_int_equal(sampler_init(&s, p, n, NULL, 0, NULL), 0);
	for (int i = 0; i < n_draws; i++)
		count[pick_of(&s, x, n, i)]++;
	sampler_fini(&s);
	for (int i = 0; i < k.n; i++)
		total += exp((double)x[k.id[i]] / (double)p->temperature);
	for (int i = 0; i < k.n; i++) {
		double want = n_draws * exp((double)x[k.id[i]] / (double)p->temperature) / total;
		int got = count[k.id[i]];

		count[k.id[i]] = 0;
		if (want < 10) { /* too rare for a cell of its own */
			rest += got;
			rest_want += want;
			continue;
		}
		chi += (got - want) * (got - want) / want;
		cells++;
	}
	if (rest_want > 5) {
		chi += (rest - rest_want) * (rest - rest_want) / rest_want;
		cells++;
	}
	for (int i = 0; i < n; i++)
		if (count[i])
			fail_msg("token %d was drawn %d times and should not be kept", i, count[i]);
	free(count);
	*bound = cells - 1 + 5 * sqrt(2 * cells);
	return chi;
}

static void test_distribution(void **state)
{
	static float x[400];
	struct sampler_params p;
	double chi, bound;

	for (int i = 0; i < 400; i++)
		x[i] = 2 * normal();
	for (int mode = 0; mode < 6; mode++) {
		sampler_params_init(&p);
		p.seed = 11 + (uint64_t)mode;
		p.temperature = mode == 1 ? 0.5f : mode == 2 ? 1.7f : 1;
		p.top_k = mode == 3 ? 25 : 0;
		p.top_p = mode == 4 ? 0.8f : 1;
		p.min_p = mode == 5 ? 0.05f : 0;
		chi = chi_square(x, 400, &p, 40000, &bound);
		if (chi > bound)
			fail_msg("mode %d: chi-square %g above %g", mode, chi, bound);
	}
	/* The test can fail: the draws of one temperature are not those of another. */
	sampler_params_init(&p);
	static struct slow k;
	struct sampler s;
	int count[400] = { 0 };
	double total = 0;

	p.temperature = 1.1f;
	assert_int_equal(sampler_init(&s, &p, 400, NULL, 0, NULL), 0);
	for (int i = 0; i < 40000; i++)
		count[pick_of(&s, x, 400, i)]++;
	sampler_fini(&s);
	p.temperature = 1;
	slow_filter(x, 400, &p, &k);
	chi = 0;
	for (int i = 0; i < 400; i++)
		total += exp((double)x[i]);
	for (int i = 0; i < 400; i++) {
		double want = 40000 * exp((double)x[i]) / total;

		chi += want < 10 ? 0 : (count[i] - want) * (count[i] - want) / want;
	}
	assert_true(chi > 400 + 5 * sqrt(800));
}

/* Seeds, positions and neighbours: the same coordinates give the same token, others do not. */
static void test_keyed(void **state)
{
	static float x[1000];
	struct sampler_params p;
	struct sampler a, b, c;
	int same_seed = 0, same_position = 0;

	for (int i = 0; i < 1000; i++)
		x[i] = normal();
	sampler_params_init(&p);
	p.seed = 1;
	sampler_init(&a, &p, 1000, NULL, 0, NULL);
	sampler_init(&b, &p, 1000, NULL, 0, NULL);
	p.seed = 2;
	sampler_init(&c, &p, 1000, NULL, 0, NULL);
	for (int i = 0; i < 300; i++)
		sampler_accept(&b, i); /* what was said before does not matter without penalties */
	for (int i = 299; i >= 0; i--) {
		int32_t t = pick_of(&a, x, 1000, i);

		assert_int_equal(t, pick_of(&b, x, 1000, i));
		same_seed += t == pick_of(&c, x, 1000, i);
		same_position += t == pick_of(&a, x, 1000, i + 1);
	}
	assert_true(same_seed < 20);
	assert_true(same_position < 20);
	sampler_fini(&a);
	sampler_fini(&b);
	sampler_fini(&c);
}

/* ---- reference filters ---- */

static const float *golden_row(const struct golden *g, const char *name, int row)
{
	int dim[4];
	const float *p = golden_get(g, name, dim);

	if (!p || dim[1] != 200 || row >= dim[0])
		fail_msg("reference has no tensor %s [%d.., 200]", name, row + 1);
	return p + 200 * row;
}

static int open_golden(void **state)
{
	*state = golden_open("_ops/sampling.safetensors");
	return 0;
}

static int close_golden(void **state)
{
	golden_close(*state);
	return 0;
}

/* mlx-lm's filters one at a time, at temperature 1: what they keep. */
static void test_reference_filters(void **state)
{
	static const struct {
		const char *name;
		int top_k;
		float top_p, min_p;
	} c[] = {
		{ "top_k.1", 1, 1, 0 },
		{ "top_k.5", 5, 1, 0 },
		{ "top_k.40", 40, 1, 0 },
		{ "top_p.0.1", 0, 0.1f, 0 },
		{ "top_p.0.5", 0, 0.5f, 0 },
		{ "top_p.0.9", 0, 0.9f, 0 },
		{ "top_p.0.99", 0, 0.99f, 0 },
		{ "min_p.0.05.keep1", 0, 1, 0.05f },
		{ "min_p.0.3.keep1", 0, 1, 0.3f },
	};
	const struct golden *g = *state;

	if (!g)
		skip();
	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		for (int row = 0; row < 3; row++) {
			const float *x = golden_row(g, "logits", row), *want = golden_row(g, c[i].name, row);
			static struct slow k;
			struct sampler_params p;
			bool kept[200] = { 0 };
			double chi, bound;

			sampler_params_init(&p);
			p.top_k = c[i].top_k;
			p.top_p = c[i].top_p;
			p.min_p = c[i].min_p;
			slow_filter(x, 200, &p, &k);
			for (int m = 0; m < k.n; m++)
				kept[k.id[m]] = true;
			for (int m = 0; m < 200; m++)
				if (kept[m] != (want[m] > -INFINITY))
					fail_msg("%s row %d: token %d %s", c[i].name, row, m,
					         kept[m] ? "is kept" : "is not kept");
			/* And the sampler draws from just these. */
			chi = chi_square(x, 200, &p, 5000, &bound);
			if (k.n > 1 && chi > bound)
				fail_msg("%s row %d: chi-square %g above %g", c[i].name, row, chi, bound);
		}
	}
}

/* mlx-lm's penalties look at the last 20 tokens of prompt and output together; ours
 * for presence and frequency at the output, so those 20 are given as output. */
static void test_reference_penalties(void **state)
{
	static const int32_t token[33] = { 3,  7,  7,  9,  3,  150, 151, 7,  20, 21, 22, 23, 24, 25, 26, 27, 28,
		                           29, 30, 31, 32, 33, 34,  35,  36, 37, 38, 39, 40, 41, 42, 43, 44 };
	static const struct logit_bias bias[] = { { 5, 2 }, { 7, -3 } };
	static const struct {
		const char *name;
		float repetition, presence, frequency;
		int context, n_bias;
	} c[] = {
		{ "penalty.repetition_1.3", 1.3f, 0, 0, 20, 0 }, { "penalty.repetition_1.3_ctx8", 1.3f, 0, 0, 8, 0 },
		{ "penalty.presence_0.7", 1, 0.7f, 0, 0, 0 },    { "penalty.frequency_0.4", 1, 0, 0.4f, 0, 0 },
		{ "penalty.logit_bias", 1, 0, 0, 0, 2 },
	};
	const struct golden *g = *state;

	if (!g)
		skip();
	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		const float *want = golden_row(g, c[i].name, 0);
		struct sampler_params p;
		struct sampler s;
		struct pick pick;
		float x[200];

		sampler_params_init(&p);
		p.temperature = 0;
		p.repetition_penalty = c[i].repetition;
		p.repetition_context = c[i].context;
		p.presence_penalty = c[i].presence;
		p.frequency_penalty = c[i].frequency;
		p.bias = bias;
		p.n_bias = c[i].n_bias;
		assert_int_equal(sampler_init(&s, &p, 200, token, 13, NULL), 0);
		for (int k = 13; k < 33; k++)
			sampler_accept(&s, token[k]);
		memcpy(x, golden_row(g, "logits", 0), sizeof(x));
		assert_int_equal(sampler_pick(&s, x, 33, &pick, NULL), 0);
		for (int k = 0; k < 200; k++)
			if (fabs((double)(x[k] - want[k])) > 1e-5)
				fail_msg("%s: token %d is %g, reference %g", c[i].name, k, (double)x[k],
				         (double)want[k]);
		sampler_fini(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_slow),
		cmocka_unit_test(test_greedy),
		cmocka_unit_test(test_greedy_of_many),
		cmocka_unit_test(test_bad_logits),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_vocabulary_bound),
		cmocka_unit_test(test_penalties),
		cmocka_unit_test(test_many_seen),
		cmocka_unit_test(test_min_tokens),
		cmocka_unit_test(test_logprobs),
		cmocka_unit_test(test_distribution),
		cmocka_unit_test(test_keyed),
		cmocka_unit_test_setup_teardown(test_reference_filters, open_golden, close_golden),
		cmocka_unit_test_setup_teardown(test_reference_penalties, open_golden, close_golden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
