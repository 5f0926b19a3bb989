/* sampler.c - see sampler.h.
 *
 * Costs matter at 250,000 ids: greedy is one pass; filters select what they need
 * by heap and never sort the vocabulary; with no filter a cheap bound spares most
 * ids the logarithms. */
#include "engine/sampler.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/rng.h"

enum { LANES = 16 };

/* Below it logit / temperature loses its meaning in float; taken as 0. */
static const float temperature_min = 1e-5f;

struct sampler_seen {
	int32_t token;
	int32_t in_context; /* times in what the repetition penalty looks at */
	int32_t in_output;
	float raw; /* its logit before the changes of this pick */
};

struct sampler_cand {
	float logit;
	int32_t id;
};

/* ---- parameters ---- */

void sampler_params_init(struct sampler_params *p)
{
	*p = (struct sampler_params){ .temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1 };
}

int sampler_params_check(const struct sampler_params *p, int n_vocab, struct err *err)
{
	const struct {
		const char *name;
		float v, min, max;
		bool open;
	} real[] = {
		{ "temperature", p->temperature, 0, 100, false },
		{ "top_p", p->top_p, 0, 1, true },
		{ "min_p", p->min_p, 0, 1, false },
		{ "repetition_penalty", p->repetition_penalty, 0, 100, true },
		{ "presence_penalty", p->presence_penalty, -100, 100, false },
		{ "frequency_penalty", p->frequency_penalty, -100, 100, false },
	};
	const struct {
		const char *name;
		int v, min, max;
	} whole[] = {
		{ "top_k", p->top_k, 0, INT_MAX },
		{ "repetition_context", p->repetition_context, 0, INT_MAX },
		{ "min_tokens", p->min_tokens, 0, INT_MAX },
		{ "logprobs", p->n_logprobs, -1, SAMPLER_TOP_MAX },
	};

	for (size_t i = 0; i < sizeof(real) / sizeof(*real); i++)
		if (!(real[i].v >= real[i].min && real[i].v <= real[i].max) ||
		    (real[i].open && real[i].v == real[i].min))
			return err_set(err, E_ARG, "%s is %g; it must be %s %g and at most %g", real[i].name,
			               (double)real[i].v, real[i].open ? "above" : "at least", (double)real[i].min,
			               (double)real[i].max);
	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
		if (whole[i].v < whole[i].min || whole[i].v > whole[i].max)
			return err_set(err, E_ARG, "%s is %d; it must be from %d to %d", whole[i].name, whole[i].v,
			               whole[i].min, whole[i].max);
	for (int i = 0; i < p->n_bias; i++) {
		if (p->bias[i].token < 0 || p->bias[i].token >= n_vocab)
			return err_set(err, E_ARG, "logit_bias names token %d; ids are from 0 to %d", p->bias[i].token,
			               n_vocab - 1);
		if (!isfinite(p->bias[i].bias))
			return err_set(err, E_ARG, "logit_bias of token %d is %g; it must be finite", p->bias[i].token,
			               (double)p->bias[i].bias);
	}
	return 0;
}

/* ---- what was said so far ---- */

static bool penalises_output(const struct sampler *s)
{
	return s->p.presence_penalty != 0 || s->p.frequency_penalty != 0;
}

static int32_t *find_slot(const struct sampler *s, int32_t token)
{
	uint32_t mask = 2 * (uint32_t)s->cap_seen - 1, h = (uint32_t)token * 0x9E3779B1u >> 7;

	while (s->slot[h & mask] >= 0 && s->seen[s->slot[h & mask]].token != token)
		h++;
	return &s->slot[h & mask];
}

static struct sampler_seen *seen_of(struct sampler *s, int32_t token)
{
	int32_t *slot;

	if (s->n_seen == s->cap_seen) {
		s->cap_seen = s->cap_seen ? 2 * s->cap_seen : 256;
		s->seen = xrealloc(s->seen, size_mul((size_t)s->cap_seen, sizeof(*s->seen)));
		s->slot = xrealloc(s->slot, size_mul(2 * (size_t)s->cap_seen, sizeof(*s->slot)));
		memset(s->slot, 0xFF, 2 * (size_t)s->cap_seen * sizeof(*s->slot));
		for (int i = 0; i < s->n_seen; i++)
			*find_slot(s, s->seen[i].token) = i;
	}
	slot = find_slot(s, token);
	if (*slot < 0) {
		*slot = s->n_seen;
		s->seen[s->n_seen++] = (struct sampler_seen){ .token = token };
	}
	return &s->seen[*slot];
}

/* token is the newest of prompt and output. */
static void remember(struct sampler *s, int32_t token)
{
	if (s->p.repetition_penalty == 1 || token < 0 || token >= s->n_vocab)
		return;
	seen_of(s, token)->in_context++;
	if (!s->p.repetition_context)
		return;
	if (s->n_recent == s->p.repetition_context)
		seen_of(s, s->recent[s->at_recent])->in_context--;
	else
		s->n_recent++;
	s->recent[s->at_recent] = token;
	s->at_recent = (s->at_recent + 1) % s->p.repetition_context;
}

static void *copy(const void *p, int n, size_t size)
{
	void *to = n ? xmalloc(size_mul((size_t)n, size)) : NULL;

	if (n)
		memcpy(to, p, (size_t)n * size);
	return to;
}

int sampler_init(struct sampler *s, const struct sampler_params *p, int n_vocab, const int32_t *prompt, int n_prompt,
                 struct err *err)
{
	int e = sampler_params_check(p, n_vocab, err), from = 0;

	*s = (struct sampler){ .p = *p, .n_vocab = n_vocab };
	s->p.bias = NULL;
	s->p.end_token = NULL;
	if (e)
		return e;
	assert(n_vocab > 0);
	s->p.bias = copy(p->bias, p->n_bias, sizeof(*p->bias));
	s->p.end_token = copy(p->end_token, p->n_end_token, sizeof(*p->end_token));
	for (int i = 0; i < p->n_bias; i++)
		seen_of(s, p->bias[i].token); /* whatever adjust changes is listed there */
	/* A window wider than any sequence has no effect; it also bounds the ring. */
	if (s->p.repetition_context > 1 << 20)
		s->p.repetition_context = 0;
	if (s->p.repetition_penalty != 1 && s->p.repetition_context) {
		s->recent = xcalloc((size_t)s->p.repetition_context, sizeof(*s->recent));
		if (n_prompt > s->p.repetition_context)
			from = n_prompt - s->p.repetition_context;
	}
	for (int i = from; i < n_prompt; i++)
		remember(s, prompt[i]);
	return 0;
}

void sampler_fini(struct sampler *s)
{
	free((void *)(uintptr_t)s->p.bias);
	free((void *)(uintptr_t)s->p.end_token);
	free(s->seen);
	free(s->slot);
	free(s->recent);
	free(s->cand);
	*s = (struct sampler){ 0 };
}

void sampler_accept(struct sampler *s, int32_t token)
{
	s->n_out++;
	remember(s, token);
	if (penalises_output(s) && token >= 0 && token < s->n_vocab)
		seen_of(s, token)->in_output++;
}

/* ---- passes over the vocabulary ---- */

/* Floats that are one operation each where registers are as wide, else some. */
enum { WIDE = 8 };
typedef float floats __attribute__((vector_size(WIDE * sizeof(float))));
typedef int32_t ints __attribute__((vector_size(WIDE * sizeof(int32_t))));
/* Half as many, so that doubles take the same width. */
enum { HALF = WIDE / 2 };
typedef float half_floats __attribute__((vector_size(HALF * sizeof(float))));
typedef double doubles __attribute__((vector_size(HALF * sizeof(double))));

#define INLINE static inline __attribute__((always_inline))

/* Vectors that are looked at side by side, so that none waits for another. */
enum { SIDES = 4 };
/* Numbers that are looked at before the place of the largest so far is noted. */
enum { STRETCH = 4096 };

/* Returns the largest of one stretch; *fine becomes false when a number in it is NaN or +infinity. */
INLINE float largest_in(const float *x, int n, bool *fine)
{
	const floats least = { -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY };
	floats m[SIDES] = { least, least, least, least };
	ints bad[SIDES] = { { 0 } };
	float best = -INFINITY;
	int any = 0, i = 0;

	for (; i + SIDES * WIDE <= n; i += SIDES * WIDE)
#pragma GCC unroll 4
		for (int k = 0; k < SIDES; k++) {
			floats w;
			ints more;

			memcpy(&w, x + i + k * WIDE, sizeof w);
			more = w > m[k];
			m[k] = (floats)(((ints)w & more) | ((ints)m[k] & ~more));
			bad[k] |= ~(w <= FLT_MAX);
		}
	for (; i < n; i++) {
		best = x[i] > best ? x[i] : best;
		any |= !(x[i] <= FLT_MAX);
	}
	for (int k = 0; k < SIDES * WIDE; k++) {
		best = m[k / WIDE][k % WIDE] > best ? m[k / WIDE][k % WIDE] : best;
		any |= bad[k / WIDE][k % WIDE];
	}
	*fine &= !any;
	return best;
}

/* See largest. */
INLINE float largest_of(const float *x, int n, bool *fine, int *near)
{
	float best = -INFINITY;

	*fine = true;
	*near = 0;
	for (int i = 0; i < n; i += STRETCH) {
		float v = largest_in(x + i, n - i < STRETCH ? n - i : STRETCH, fine);

		if (v > best) {
			best = v;
			*near = i;
		}
	}
	return best;
}

/* See place_of. */
INLINE int place_in(const float *x, int n, float v)
{
	int i = 0;

	for (; i + SIDES * WIDE <= n; i += SIDES * WIDE) {
		ints some = { 0 };
		int any = 0;

#pragma GCC unroll 4
		for (int k = 0; k < SIDES; k++) {
			floats w;

			memcpy(&w, x + i + k * WIDE, sizeof w);
			some |= w == v;
		}
		for (int k = 0; k < WIDE; k++)
			any |= some[k];
		if (any)
			break;
	}
	while (x[i] != v)
		i++;
	return i;
}

/* exp(x) for x <= 0, in float, to a few units of the last place; in place. */
INLINE void exp_down(floats *x)
{
	const float magic = 0x1.8p23f; /* adding it rounds to a whole number */
	const float low = -87;         /* below: 0 for every purpose here, and no subnormals */
	const floats least = { low, low, low, low, low, low, low, low };
	ints above = *x > least;
	floats z = (floats)(((ints)*x & above) | ((ints)least & ~above));
	floats n = z * 1.44269504f + magic - magic;
	floats r = z - n * 0.693359375f + n * 2.12194440e-4f; /* ln 2 in two parts, the first exact */
	floats y = 1 +
	           r * (1 + r * (1 / 2.0f + r * (1 / 6.0f + r * (1 / 24.0f + r * (1 / 120.0f + r * (1 / 720.0f))))));

	*x = y * (floats)((__builtin_convertvector(n, ints) + 127) * (1 << 23));
}

INLINE double sum_exp_of(const float *x, int n, float max, float scale)
{
	doubles lane[LANES / HALF] = { { 0 } };
	double sum = 0;
	int i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int k = 0; k < LANES / WIDE; k++) {
			half_floats h[2];
			floats w;

			memcpy(&w, x + i + k * WIDE, sizeof(w));
			w = (w - max) * scale;
			exp_down(&w);
			memcpy(h, &w, sizeof(w));
			lane[2 * k] += __builtin_convertvector(h[0], doubles);
			lane[2 * k + 1] += __builtin_convertvector(h[1], doubles);
		}
	for (; i < n; i++) {
		floats w = { (x[i] - max) * scale };

		exp_down(&w);
		sum += (double)w[0];
	}
	for (int k = 0; k < LANES; k++)
		sum += lane[k / HALF][k % HALF];
	return sum;
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static double sum_exp_avx2(const float *x, int n, float max, float scale)
{
	return sum_exp_of(x, n, max, scale);
}

__attribute__((target("avx2"))) static float largest_avx2(const float *x, int n, bool *fine, int *near)
{
	return largest_of(x, n, fine, near);
}

__attribute__((target("avx2"))) static int place_avx2(const float *x, int n, float v)
{
	return place_in(x, n, v);
}
#endif

/* Largest of x[0..n), of which the first is *near or behind it; *fine is false when one is NaN or +infinity. */
static float largest(const float *x, int n, bool *fine, int *near)
{
#ifdef __x86_64__
	if (cpu_has(CPU_AVX2))
		return largest_avx2(x, n, fine, near);
#endif
	return largest_of(x, n, fine, near);
}

/* Returns the first i with x[i] == v; one of x[0..n) is v. */
static int place_of(const float *x, int n, float v)
{
#ifdef __x86_64__
	if (cpu_has(CPU_AVX2))
		return place_avx2(x, n, v);
#endif
	return place_in(x, n, v);
}

/* Sum of exp((x[i] - max) * scale), always in the same order and to the same bits. */
static double sum_exp(const float *x, int n, float max, float scale)
{
#ifdef __x86_64__
	if (cpu_has(CPU_AVX2))
		return sum_exp_avx2(x, n, max, scale);
#endif
	return sum_exp_of(x, n, max, scale);
}

/* ---- candidates ---- */

/* a comes before b in falling order. */
static bool before(struct sampler_cand a, struct sampler_cand b)
{
	return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Restores the heap c[0..n) below i.  first: the root is the first in falling
 * order, else the last. */
static void sift(struct sampler_cand *c, int n, int i, bool first)
{
	struct sampler_cand top = c[i];

	for (;;) {
		int kid = 2 * i + 1;

		if (kid >= n)
			break;
		if (kid + 1 < n && before(c[kid + 1], c[kid]) == first)
			kid++;
		if (before(c[kid], top) != first)
			break;
		c[i] = c[kid];
		i = kid;
	}
	c[i] = top;
}

static void make_heap(struct sampler_cand *c, int n, bool first)
{
	for (int i = n / 2; i-- > 0;)
		sift(c, n, i, first);
}

/* The first k in falling order of x[0..n), in that order, to c; -infinity never
 * counts.  Returns how many. */
static int select_first(const float *x, int n, int k, struct sampler_cand *c)
{
	int m = 0, i = 0;

	for (; i < n && m < k; i++)
		if (x[i] > -INFINITY)
			c[m++] = (struct sampler_cand){ x[i], i };
	make_heap(c, m, false); /* the root is the worst token that is kept */
	for (; i < n; i++) {
		if (x[i] > c[0].logit) { /* an equal one has the higher id */
			c[0] = (struct sampler_cand){ x[i], i };
			sift(c, m, 0, false);
		}
	}
	for (int left = m; left > 1;) {
		struct sampler_cand worst = c[0];

		c[0] = c[--left];
		sift(c, left, 0, false);
		c[left] = worst;
	}
	return m;
}

static void reserve_cand(struct sampler *s, int n)
{
	if (s->cap_cand >= n)
		return;
	s->cap_cand = n;
	s->cand = xrealloc(s->cand, size_mul((size_t)n, sizeof(*s->cand)));
}

/* All with x >= least, in no order. */
static int collect(struct sampler *s, const float *x, float least)
{
	int n = 0, m = 0;

	for (int i = 0; i < s->n_vocab; i++)
		n += x[i] >= least;
	/* In steps, so that a request asks for memory a few times and not at each token. */
	reserve_cand(s, n > s->cap_cand ? (n < s->n_vocab / 2 ? 2 * n : s->n_vocab) : n);
	for (int i = 0; i < s->n_vocab; i++)
		if (x[i] >= least)
			s->cand[m++] = (struct sampler_cand){ x[i], i };
	return m;
}

/* ---- drawing ---- */

static double noise(uint64_t seed, int64_t position, int32_t id)
{
	return -log(-log(rng_uniform(seed, (uint64_t)position, (uint64_t)id)));
}

struct race {
	double best;
	int32_t id;
};

static void enter(struct race *r, double score, int32_t id)
{
	if (score > r->best || (score == r->best && id < r->id) || r->id < 0)
		*r = (struct race){ score, id };
}

/* Draws from all of x[0..n) that is at least least.  A token can win only when
 * -log(u) < exp(z - best); since 1 - u <= -log(u), most are out after one look at u. */
static int32_t draw_all(const struct sampler *s, const float *x, float least, int64_t position)
{
	double over_t = 1 / (double)s->p.temperature, bound[64];
	uint64_t place = rng_place(s->p.seed, (uint64_t)position);
	struct race r = { -HUGE_VAL, -1 };

	for (int d = 0; d < 64; d++)
		bound[d] = exp(-d) * (1 + 1e-9); /* slack above any rounding */
	for (int i = 0; i < s->n_vocab; i++) {
		double z, behind, u;

		if (!(x[i] >= least) || x[i] == -INFINITY)
			continue;
		z = (double)x[i] * over_t;
		behind = r.best - z;
		u = rng_uniform_of(rng_bits_at(place, (uint64_t)i));
		if (behind > 0 && 1 - u >= bound[behind < 63 ? (int)behind : 63])
			continue;
		enter(&r, z - log(-log(u)), i);
	}
	return r.id;
}

static int32_t draw_from(const struct sampler *s, const struct sampler_cand *c, int n, int64_t position)
{
	double over_t = 1 / (double)s->p.temperature;
	struct race r = { -HUGE_VAL, -1 };

	for (int i = 0; i < n; i++)
		enter(&r, (double)c[i].logit * over_t + noise(s->p.seed, position, c[i].id), c[i].id);
	return r.id;
}

/* least: the smallest logit that min_p allows, or -FLT_MAX. */
static int32_t draw_top_k(struct sampler *s, const float *x, float least, int64_t position)
{
	struct sampler_cand *c;
	double total = 0, mass = 0;
	int n, kept = 0;

	reserve_cand(s, s->p.top_k);
	c = s->cand;
	n = select_first(x, s->n_vocab, s->p.top_k, c);
	for (int i = 0; i < n; i++)
		total += exp(((double)c[i].logit - (double)c[0].logit) / (double)s->p.temperature);
	/* The first is always kept. */
	for (; kept < n; kept++) {
		if (kept && ((s->p.top_p < 1 && mass >= (double)s->p.top_p * total) || c[kept].logit < least))
			break;
		mass += exp(((double)c[kept].logit - (double)c[0].logit) / (double)s->p.temperature);
	}
	return draw_from(s, c, kept, position);
}

/* top_p without top_k.  All tokens of less than (1 - top_p) / n_vocab together have
 * less than 1 - top_p, so every kept token has more; of the tokens with more, only as
 * many are sorted as are kept. */
static int32_t draw_top_p(struct sampler *s, const float *x, float max, float least, int64_t position)
{
	float t = s->p.temperature;
	double total = sum_exp(x, s->n_vocab, max, 1 / t), mass = 0;
	/* A little lower, for the error of exp_down; never lower than min_p allows. */
	float rare = (float)((double)max + (double)t * (log((1 - (double)s->p.top_p) * total / s->n_vocab) - 1e-3));
	int n = collect(s, x, rare > least ? rare : least), left = n;
	struct sampler_cand *c = s->cand;

	make_heap(c, n, true);
	/* The heap shrinks from its end, where the kept ones gather. */
	while (left && mass < (double)s->p.top_p * total) {
		struct sampler_cand first = c[0];

		c[0] = c[--left];
		sift(c, left, 0, true);
		c[left] = first;
		mass += exp(((double)first.logit - (double)max) / (double)t);
	}
	return draw_from(s, c + left, n - left, position);
}

static int32_t draw(struct sampler *s, const float *x, float max, int64_t position)
{
	const struct sampler_params *p = &s->p;
	float least = -FLT_MAX;

	if (p->min_p > 0)
		least = (float)((double)max + (double)p->temperature * log((double)p->min_p));
	if (p->top_k && p->top_k < s->n_vocab)
		return draw_top_k(s, x, least, position);
	if (p->top_p < 1)
		return draw_top_p(s, x, max, least, position);
	return draw_all(s, x, least, position);
}

/* ---- one token ---- */

static void put_top(const struct sampler *s, const float *x, double lse, struct pick *out)
{
	struct sampler_cand c[SAMPLER_TOP_MAX];

	out->n_top = s->p.n_logprobs ? select_first(x, s->n_vocab, s->p.n_logprobs, c) : 0;
	for (int i = 0; i < out->n_top; i++)
		out->top[i] = (struct pick_top){ c[i].id, (float)((double)c[i].logit - lse) };
}

/* A word of the mask at a time and without branches: masks are as good as random, and
 * a wrong guess for every other id would take longer than all the rest. */
static void forbid(float *x, const uint32_t *mask, int n)
{
#define BITS4(k) (int32_t)(1u << (k)), (int32_t)(2u << (k)), (int32_t)(4u << (k)), (int32_t)(8u << (k))
	static const int32_t bit[32] = { BITS4(0),  BITS4(4),  BITS4(8),  BITS4(12),
		                         BITS4(16), BITS4(20), BITS4(24), BITS4(28) };
#undef BITS4
	int i = 0;

	for (; i + 32 <= n; i += 32) {
		int32_t word = (int32_t)mask[i / 32];
		float *y = x + i;

		for (int k = 0; k < 32; k++)
			y[k] = word & bit[k] ? y[k] : -INFINITY;
	}
	for (; i < n; i++)
		if (!(mask[i / 32] >> (i % 32) & 1))
			x[i] = -INFINITY;
}

/* Steps 2 to 5. */
static void adjust(struct sampler *s, float *x)
{
	const struct sampler_params *p = &s->p;

	for (int i = 0; i < s->n_seen; i++)
		s->seen[i].raw = x[s->seen[i].token];
	for (int i = 0; i < p->n_bias; i++)
		x[p->bias[i].token] += p->bias[i].bias;
	for (int i = 0; i < s->n_seen; i++) {
		const struct sampler_seen *seen = &s->seen[i];
		float *l = &x[seen->token];

		if (seen->in_context)
			*l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
		if (seen->in_output)
			*l -= p->presence_penalty + p->frequency_penalty * (float)seen->in_output;
	}
	if (s->mask)
		forbid(x, s->mask, s->n_vocab);
	if (s->n_out < p->min_tokens)
		for (int i = 0; i < p->n_end_token; i++)
			if (p->end_token[i] >= 0 && p->end_token[i] < s->n_vocab)
				x[p->end_token[i]] = -INFINITY;
}

static int not_finite(const float *x, int n, int64_t position, struct err *err)
{
	for (int i = 0; i < n; i++)
		if (!(x[i] <= FLT_MAX))
			return err_set(err, E_FORMAT, "logit of token %d at position %lld is %g", i,
			               (long long)position, (double)x[i]);
	return 0;
}

static float raw_logit(const struct sampler *s, const float *x, int32_t token)
{
	int32_t slot = s->n_seen ? *find_slot(s, token) : -1;

	return slot < 0 ? x[token] : s->seen[slot].raw;
}

int sampler_pick(struct sampler *s, float *x, int64_t position, struct pick *out, struct err *err)
{
	int n = s->n_vocab, near;
	double lse = 0;
	bool fine;
	float max = largest(x, n, &fine, &near);

	if (!fine)
		return not_finite(x, n, position, err);
	out->n_top = 0;
	out->logprob = 0;
	if (s->p.n_logprobs >= 0 && max > -INFINITY) {
		lse = (double)max + log(sum_exp(x, n, max, 1));
		put_top(s, x, lse, out);
	}
	if (s->n_seen || s->mask || s->n_out < s->p.min_tokens) {
		adjust(s, x);
		max = largest(x, n, &fine, &near);
		if (!fine)
			return not_finite(x, n, position, err);
	}
	if (max == -INFINITY)
		return err_set(err, E_ARG, "no token is allowed at position %lld", (long long)position);
	if (s->p.temperature < temperature_min) {
		out->token = near + place_of(x + near, n - near, max);
	} else {
		out->token = draw(s, x, max, position);
	}
	assert(out->token >= 0 && out->token < n);
	if (s->p.n_logprobs >= 0)
		out->logprob = (float)((double)raw_logit(s, x, out->token) - lse);
	return 0;
}

int32_t sampler_guess(struct sampler *s, float *x, int64_t position)
{
	int n_logprobs = s->p.n_logprobs, rc;
	struct pick pick;
	struct err err;

	s->p.n_logprobs = -1;
	rc = sampler_pick(s, x, position, &pick, &err);
	s->p.n_logprobs = n_logprobs;
	return rc ? -1 : pick.token;
}
