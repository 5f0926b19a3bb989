/* bench_ceiling.c - what the machine allows: reading, and arithmetic on registers. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "backend/cpu/pack.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "quant/choices.h"

enum {
	PIECE = 4 << 20, /* bytes of weights a part reads */
	PARTS = 16,      /* of arithmetic, for each thread */
	ROUNDS = 3,
	READ_ROUNDS = 2,
	RUNS_MOST = 4,
};

/* Patterns in which a thread reads a piece: a number of runs side by side, each prefetched some
 * bytes ahead (0: not at all).  The fastest depends on the machine, so all are tried and the best counts.
 * On one machine two runs read 36 to 40 GB/s, one 28 to 29, four 35, eight 32. */
static const struct pattern {
	int runs, ahead;
} patterns[] = { { 1, 0 }, { 1, 4096 }, { 2, 2048 }, { 2, 3072 }, { 4, 2048 } };
enum { PATTERNS = sizeof patterns / sizeof *patterns };

struct probe {
	const struct pack_run *piece; /* by part */
	const struct pattern *pattern;
	quant_peak_fn *peak;
	int64_t n;          /* rounds of a part */
	_Atomic double ops; /* of a part: written by all, the same */
};

/* Sums of all that was read, so that the compiler keeps the reads. */
static _Atomic uint64_t sink;

/* The first pieces of what products read, at most `most`; shreds between matrices only where there is nothing else. */
static int pieces_of(const struct backend *be, struct pack_run *piece, int most)
{
	enum { SHRED = PIECE / 64 };
	int n, k = 0;
	struct pack_run *run = pack_runs(be, &n);

	for (int i = 0; i < n; i++)
		for (size_t at = 0; at < run[i].n && k < most && (run[i].n >= SHRED || !k); at += PIECE)
			piece[k++] = (struct pack_run){ .p = run[i].p + at,
				                        .n = run[i].n - at < PIECE ? run[i].n - at : PIECE };
	free(run);
	return k;
}

typedef uint64_t line __attribute__((vector_size(64), aligned(1), may_alias));

/* Inlined where runs is a number, so that the sums are registers. */
static inline __attribute__((always_inline)) uint64_t read_runs(const uint8_t *at, size_t n, int runs, int ahead)
{
	line sum[RUNS_MOST] = { 0 };
	size_t run = n / (size_t)runs / sizeof *sum * sizeof *sum;
	uint64_t all = 0;

	for (size_t i = 0; i < run; i += sizeof *sum)
		for (int r = 0; r < runs; r++) {
			const uint8_t *from = at + (size_t)r * run + i;

			if (ahead)
				__builtin_prefetch(from + ahead); /* harmless beyond the end */
			sum[r] += *(const line *)from;
		}
	for (int r = 0; r < runs; r++)
		for (size_t i = 0; i < sizeof *sum / 8; i++)
			all += sum[r][i];
	return all;
}

static void read_part(void *ctx, int part)
{
	const struct probe *p = ctx;
	const uint8_t *at = p->piece[part].p;
	size_t n = p->piece[part].n;
	int ahead = p->pattern->ahead;

	switch (p->pattern->runs) {
	case 1: sink += read_runs(at, n, 1, ahead); break;
	case 2: sink += read_runs(at, n, 2, ahead); break;
	default: sink += read_runs(at, n, RUNS_MOST, ahead);
	}
}

static void peak_part(void *ctx, int part)
{
	struct probe *p = ctx;

	(void)part;
	atomic_store_explicit(&p->ops, p->peak(p->n), memory_order_relaxed);
}

static double seconds(struct pool *pool, pool_fn *fn, struct probe *p, int parts)
{
	int64_t t = clock_monotonic_ns();

	pool_run(pool, fn, p, parts);
	return (double)(clock_monotonic_ns() - t + 1) / 1e9;
}

static double peak_rate(struct pool *pool, quant_peak_fn *peak)
{
	int threads = pool_threads(pool), parts = PARTS * threads;
	struct probe p = { .peak = peak, .n = 16 };
	double best = 0, s;

	/* Parts of about half a millisecond: long compared with a barrier. */
	do {
		p.n *= 2;
		s = seconds(pool, peak_part, &p, threads);
	} while (s < 0.0005);
	for (int i = 0; i < ROUNDS; i++) {
		double rate = p.ops * parts / seconds(pool, peak_part, &p, parts);

		best = rate > best ? rate : best;
	}
	return best;
}

static double read_rate(struct pool *pool, const struct backend *be)
{
	enum { MOST = 256 }; /* pieces: a gigabyte, more than caches hold */
	struct pack_run piece[MOST];
	struct probe p = { .piece = piece };
	double best = 0, bytes = 0;
	int parts = pieces_of(be, piece, MOST);

	for (int i = 0; i < parts; i++)
		bytes += (double)piece[i].n;
	for (int i = 0; i < READ_ROUNDS * PATTERNS; i++) {
		double rate;

		p.pattern = &patterns[i % PATTERNS];
		rate = bytes / seconds(pool, read_part, &p, parts);
		best = rate > best ? rate : best;
	}
	return best;
}

struct meeting {
	atomic_int come;
	int all;
};

/* Ends when every thread has a part: none can take two. */
static void meet_part(void *ctx, int part)
{
	struct meeting *m = ctx;

	(void)part;
	atomic_fetch_add(&m->come, 1);
	for (int i = 0; atomic_load(&m->come) < m->all; i++)
		if (i > 10000)
			sched_yield(); /* fewer processors than threads */
}

/* The best of some, each of many: what a step pays for a join at least. */
static double join_seconds(struct pool *pool)
{
	enum { MANY = 200 };
	double best = 1;

	for (int i = 0; i < 4 * ROUNDS; i++) {
		int64_t t = clock_monotonic_ns();
		double s;

		for (int k = 0; k < MANY; k++) {
			struct meeting m = { .all = pool_threads(pool) };

			pool_run(pool, meet_part, &m, m.all);
		}
		s = (double)(clock_monotonic_ns() - t) / 1e9 / MANY;
		best = s < best ? s : best;
	}
	return best;
}

static void keep_best(double *best, double v)
{
	*best = v > *best ? v : *best;
}

void ceilings_measure(struct ceilings *c, struct pool *pool, const struct backend *be)
{
	struct peaks peaks;

	quant_peaks(&peaks, backend_cpu_choices(be)->level);
	keep_best(&c->read, read_rate(pool, be));
	keep_best(&c->int8, peak_rate(pool, peaks.int8));
	if (peaks.int8_vectors)
		keep_best(&c->int8_vectors, peak_rate(pool, peaks.int8_vectors));
	if (peaks.bf16)
		keep_best(&c->bf16, peak_rate(pool, peaks.bf16));
	keep_best(&c->f32, peak_rate(pool, peaks.f32));
	c->join = join_seconds(pool);
}
