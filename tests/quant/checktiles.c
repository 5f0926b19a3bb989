/* checktiles.c - attention over bf16 rows by products of bf16: every way of it that this
 * processor has, for many queries and for few, against each query alone to the bit.  What the
 * bits are tests/backend/test_attend.c knows.
 *
 *   checktiles [--seed N] [--rounds N]
 *
 * Values end at an unreadable page, what lies before every window is no number, what is written is fenced, positions that a query does not
 * see may be anything; a kernel that dies of a signal is reported by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "fenced.h"
#include "quant/kv/kv_tiles.h"
#include "quant/coded/coded_kernels.h"

enum { RUNS = KV_SEGMENT / KV_RUN, DIM_MOST = 512 };

struct way {
	const char *name;
	enum cpu_level level;
	const struct kv_tiles *tiles;
	bool few;
};
#if defined(__x86_64__)
static const struct way ways[] = {
	{ "dot products", CPU_AVX512BF16, &kv_tiles_dot, false },
	{ "dot products, few", CPU_AVX512BF16, &kv_tiles_dot, true },
	{ "floats", CPU_AVX512BF16, &kv_tiles_floats, false },
	{ "floats, few", CPU_AVX512BF16, &kv_tiles_floats, true },
	{ "tiles", CPU_AMX, &kv_tiles_amx, false },
	{ "tiles, few", CPU_AMX, &kv_tiles_amx, true },
};
enum { WAYS = sizeof ways / sizeof *ways };
#else
static const struct way ways[1];
enum { WAYS = 0 };
#endif

struct sample {
	int dim, n, nq; /* positions that lie there, queries */
	float q[KV_QUERIES][DIM_MOST];
	int32_t from[KV_QUERIES], see[KV_QUERIES];
	struct fence rows[2][RUNS];
	struct kv_segment seg;
};

/* A bf16 number of some kind: ordinary, close to the smallest there is and below, large, none at all. */
static uint16_t number(int kind)
{
	switch (kind) {
	case 0: return float_to_bf16(uniform());
	case 1: return (uint16_t)((pick(2) << 15) | pick(0x0300));
	case 2: return float_to_bf16(uniform() * 0x1p-62f);
	case 3: return float_to_bf16(uniform() * 1e15f);
	default: return (uint16_t)(pick(2) << 15);
	}
}

static uint16_t mostly(int kind)
{
	return number(pick(8) ? kind : pick(3));
}

/* Rows [begin, known) of the run are numbers. */
static void run_make(struct fence *f, int rows, int begin, int known, int dim, int kind)
{
	uint8_t *p = fence_make(f, (size_t)(rows * dim) * 2, 1, 0);

	for (int i = 0; i < rows * dim; i++) {
		uint16_t h = i >= begin * dim && i < known * dim ? mostly(kind) : pick(2) ? 0x7fff : 0xff80;

		memcpy(p + 2 * i, &h, 2);
	}
}

static void sample_make(struct sample *s)
{
	int key_kind = pick(5), value_kind = pick(5), q_kind = pick(5), most;

	s->dim = 32 * (1 + pick(pick(2) ? 8 : 16));
	s->n = pick(3) ? 1 + pick(KV_SEGMENT) : KV_SEGMENT;
	s->nq = 1 + pick(pick(2) ? 8 : KV_QUERIES);
	most = pick(3) ? s->n : 1 + pick(s->n);
	for (int j = 0; j < KV_QUERIES; j++)
		s->see[j] = j >= s->nq - 1 ? most : most - pick(pick(2) ? 4 : most + 1);
	for (int j = s->nq - 2; j >= 0; j--)
		s->see[j] = s->see[j] < s->see[j + 1] ? s->see[j] : s->see[j + 1];
	/* Half of them with windows: those of later queries begin later. */
	s->from[0] = pick(2) ? pick(s->see[0] > 0 ? s->see[0] : 1) : 0;
	for (int j = 1; j < KV_QUERIES; j++) {
		int room = (s->see[j] > 0 ? s->see[j] : 1) - s->from[j - 1];

		s->from[j] = s->from[j - 1] + (s->from[0] && room > 0 ? pick(room) : 0);
	}
	s->seg.n = s->n;
	s->seg.first = s->from[0];
	for (int i = 0; i * KV_RUN < s->n; i++) {
		int left = s->n - i * KV_RUN, here = left < KV_RUN ? left : KV_RUN, begin = s->from[0] - i * KV_RUN;

		run_make(&s->rows[KV_KEYS][i], KV_RUN, begin, here, s->dim, key_kind);
		run_make(&s->rows[KV_VALUES][i], here, begin, here, s->dim, value_kind);
		s->seg.key[i] = s->rows[KV_KEYS][i].p;
		s->seg.value[i] = s->rows[KV_VALUES][i].p;
	}
	for (int i = 0; i < s->seg.first / KV_RUN; i++) {
		s->seg.key[i] = s->seg.key[s->seg.first / KV_RUN];
		s->seg.value[i] = s->seg.value[s->seg.first / KV_RUN];
	}
	for (int j = 0; j < s->nq; j++)
		for (int i = 0; i < s->dim; i++)
			s->q[j][i] = bf16_to_float(mostly(q_kind)) * (pick(2) ? 1 : 1 + 0.01f * uniform());
}

static void sample_drop(struct sample *s)
{
	for (int i = 0; i * KV_RUN < s->n; i++) {
		fence_drop(&s->rows[KV_KEYS][i]);
		fence_drop(&s->rows[KV_VALUES][i]);
	}
}

struct result {
	float acc[KV_QUERIES][DIM_MOST], max[KV_QUERIES], sum[KV_QUERIES];
};

/* Queries [at, at + n) in one call. */
static int attend(struct result *out, const struct way *w, const struct sample *s, int at, int n)
{
	const struct kv_tiles *t = w->tiles;
	const float *q[KV_QUERIES];
	int32_t from[KV_QUERIES], see[KV_QUERIES];
	struct kv_segment seg = s->seg;
	const uint8_t *ask[3] = { fence_nothing(), fence_nothing(), fence_nothing() };
	struct fence queries, laid, work, acc, max, sum;
	struct kv_attend a = {
		.n = n, .fresh = pick(2), .ask = ask, .n_ask = pick(4), .from = from, .see = see, .seg = &seg
	};
	int sig;

	for (int j = 0; j < KV_QUERIES; j++)
		from[j] = s->from[at + (j < n ? j : n - 1)], see[j] = s->see[at + (j < n ? j : n - 1)];
	seg.first = from[0];
	a.queries = fence_make(&queries, t->query_bytes(s->dim), 1, 0);
	a.laid = a.room = fence_make(&laid, t->laid_bytes(s->dim), 1, 0);
	a.work = fence_make(&work, t->work_bytes, 1, 0);
	a.acc = fence_make(&acc, (size_t)(KV_QUERIES * s->dim) * sizeof(float), 1, 0);
	a.max = fence_make(&max, KV_QUERIES * sizeof(float), 1, 0);
	a.sum = fence_make(&sum, KV_QUERIES * sizeof(float), 1, 0);
	for (int j = 0; j < n; j++)
		q[j] = s->q[at + j];
	sig = GUARD(t->queries(queries.p, q, n, s->dim, w->few));
	if (!sig && !w->few)
		sig = GUARD(t->lay(laid.p, &seg, see[n - 1], s->dim));
	if (w->few)
		a.laid = NULL;
	if (!sig)
		sig = GUARD(t->attend(&a, s->dim, 0.1f));
	/* The sign of a zero may hang on what others see; whoever takes the sums adds 0. */
	for (int j = 0; j < n; j++)
		for (int i = 0; i < s->dim; i++)
			out->acc[at + j][i] = a.acc[j * s->dim + i] + 0.0f;
	memcpy(out->max + at, a.max, (size_t)n * sizeof(float));
	memcpy(out->sum + at, a.sum, (size_t)n * sizeof(float));
	fence_drop(&queries);
	fence_drop(&laid);
	fence_drop(&work);
	fence_drop(&acc);
	fence_drop(&max);
	fence_drop(&sum);
	return sig;
}

/* Those who see something are the same. */
static bool equal(const struct sample *s, const struct result *a, const struct result *b)
{
	for (int j = 0; j < s->nq; j++)
		if (s->see[j] > 0 && (memcmp(a->acc[j], b->acc[j], (size_t)s->dim * sizeof(float)) ||
		                      !same(a->max[j], b->max[j]) || !same(a->sum[j], b->sum[j])))
			return false;
	return true;
}

static void round_tiles(void)
{
	static struct sample s;
	static struct result alone, got;

	sample_make(&s);
	for (int j = 0; j < s.nq; j++) {
		int sig = s.see[j] > 0 ? attend(&alone, &ways[0], &s, j, 1) : 0;

		if (sig)
			fail_at(signal_name(sig), ways[0].level, s.dim, s.n);
	}
	for (const struct way *w = ways; w < ways + WAYS; w++) {
		int sig;

		if (!cpu_has(w->level) || (w->few && s.nq > w->tiles->few))
			continue;
		sig = attend(&got, w, &s, 0, s.nq);
		if (sig || !equal(&s, &alone, &got))
			fail_at(sig ? signal_name(sig) : w->name, w->level, s.dim, s.n);
	}
	sample_drop(&s);
}

int main(int argc, char **argv)
{
	struct check_opts o;

	check_opts_read(&o, argc, argv, 60);
	if (!WAYS || !cpu_has(ways[0].level)) {
		printf("no products of bf16 here\n");
		return 77;
	}
	for (int r = 0; r < o.rounds && failures < 20; r++)
		round_tiles();
	if (failures)
		printf("%d failures; again with --seed %llu\n", failures, (unsigned long long)seed);
	return failures > 0;
}
