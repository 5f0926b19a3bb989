/* steps.c - see embedder.h: from pooled rows to vectors and scores. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "embed/embedder.h"

/* Sums side by side: one order, that of the lanes, whatever the compiler makes of it. */
enum { LANES = 16 };

static float dot(const float *a, const float *b, int n)
{
	float lane[LANES] = { 0 }, sum = 0;
	int i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int k = 0; k < LANES; k++)
			lane[k] += a[i + k] * b[i + k];
	for (int k = 0; i < n; i++, k++)
		lane[k] += a[i] * b[i];
	for (int k = 0; k < LANES; k++)
		sum += lane[k];
	return sum;
}

static float act_of(enum step_act act, float x)
{
	double v = (double)x;

	switch (act) {
	case STEP_PLAIN: return x;
	case STEP_TANH: return (float)tanh(v);
	case STEP_GELU: return (float)(0.5 * v * (1 + erf(v / sqrt(2.0))));
	case STEP_GELU_TANH: return (float)(0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))));
	case STEP_RELU: return x > 0 ? x : 0;
	case STEP_SILU: return (float)(v / (1 + exp(-v)));
	case STEP_SIGMOID: return (float)(1 / (1 + exp(-v)));
	}
	return x;
}

static void layer_norm(const struct embed_step *s, const float *in, float *out)
{
	double mean = 0, square = 0, by;

	for (int i = 0; i < s->in; i++)
		mean += (double)in[i];
	mean /= s->in;
	for (int i = 0; i < s->in; i++)
		square += ((double)in[i] - mean) * ((double)in[i] - mean);
	by = 1 / sqrt(square / s->in + (double)s->eps);
	for (int i = 0; i < s->in; i++)
		out[i] = (float)(((double)in[i] - mean) * by * (double)s->gain[i] + (s->bias ? (double)s->bias[i] : 0));
}

static void run_step(const struct embed_step *s, const float *in, float *out)
{
	if (s->w)
		for (int o = 0; o < s->out; o++)
			out[o] = act_of(s->act,
			                dot(s->w + (size_t)o * (size_t)s->in, in, s->in) + (s->bias ? s->bias[o] : 0));
	else if (s->gain)
		layer_norm(s, in, out);
	else
		for (int i = 0; i < s->in; i++)
			out[i] = in[i] * s->scale;
}

void embedder_run(const struct embedder *e, const float *in, float *out)
{
	int most = e->in > e->out ? e->in : e->out;
	float *a, *b;

	for (int i = 0; i < e->n_step; i++)
		most = e->step[i].out > most ? e->step[i].out : most;
	a = xmalloc(size_mul(2 * (size_t)most, sizeof *a));
	b = a + most;
	memcpy(a, in, (size_t)e->in * sizeof *a);
	for (int i = 0; i < e->n_step; i++) {
		float *was = a;

		run_step(&e->step[i], a, b);
		a = b;
		b = was;
	}
	memcpy(out, a, (size_t)e->out * sizeof *out);
	free(a < b ? a : b);
}

void embedder_scores(const struct embedder *e, float *v, bool raw)
{
	double most = (double)v[0], sum = 0;

	if (raw || e->act == SCORES_RAW)
		return;
	if (e->act == SCORES_SIGMOID) {
		for (int i = 0; i < e->out; i++)
			v[i] = act_of(STEP_SIGMOID, v[i]);
		return;
	}
	for (int i = 1; i < e->out; i++)
		most = (double)v[i] > most ? (double)v[i] : most;
	for (int i = 0; i < e->out; i++)
		sum += exp((double)v[i] - most);
	for (int i = 0; i < e->out; i++)
		v[i] = (float)(exp((double)v[i] - most) / sum);
}

void vector_normalize(float *v, int n)
{
	double sum = 0, by;

	for (int i = 0; i < n; i++)
		sum += (double)v[i] * (double)v[i];
	by = 1 / fmax(sqrt(sum), 1e-12);
	for (int i = 0; i < n; i++)
		v[i] = (float)((double)v[i] * by);
}
