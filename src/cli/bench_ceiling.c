/* bench_ceiling.c - what the machine allows: reading, and arithmetic on registers. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/bench.h"

enum {
	PIECE = 4 << 20,        /* bytes of weights a part reads */
	PARTS = 16,             /* of arithmetic, for each thread */
	ROUNDS = 3,
};

struct probe {
	const struct store *st;
	quant_peak_fn *peak;
	int64_t n;              /* rounds of a part */
	double ops;             /* of a part: written by all, the same */
};

/* Sums that nobody wants, so that the reads are not left out. */
static _Atomic uint64_t sink;

/* The piece's bytes, wherever in the shards it lies; NULL: there is none. */
static const uint8_t *piece_at(const struct store *st, int part, size_t *n)
{
	for (int i = 0; i < st->n_shard; i++) {
		const struct file_map *map = &st->shard[i].map;
		int pieces = (int)((map->n + PIECE - 1) / PIECE);

		if (part < pieces) {
			size_t at = (size_t)part * PIECE;

			*n = map->n - at < PIECE ? map->n - at : PIECE;
			return map->p + at;
		}
		part -= pieces;
	}
	return NULL;
}

static void read_part(void *ctx, int part)
{
	const struct probe *p = ctx;
	typedef uint64_t line __attribute__((vector_size(64), aligned(1), may_alias));
	size_t n = 0;
	const uint8_t *at = piece_at(p->st, part, &n);
	line sum = { 0 };
	uint64_t all = 0;

	for (size_t i = 0; i + sizeof sum <= n; i += sizeof sum) {
		__builtin_prefetch(at + i + 4096);      /* a hint: harmless beyond the end */
		sum += *(const line *)(at + i);
	}
	for (size_t i = 0; i < sizeof sum / 8; i++)
		all += sum[i];
	sink += all;
}

static void peak_part(void *ctx, int part)
{
	struct probe *p = ctx;
	double ops = p->peak(p->n);

	(void)part;
	if (!pool_thread())
		p->ops = ops;
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

	/* Parts of about half a millisecond: long beside a barrier. */
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

static double read_rate(struct pool *pool, const struct store *st)
{
	enum { MOST = 256 };    /* pieces: a gigabyte, more than caches hold */
	struct probe p = { .st = st };
	double best = 0, bytes = 0;
	int parts = 0;
	size_t n = 0;

	while (parts < MOST && piece_at(st, parts, &n)) {
		bytes += (double)n;
		parts++;
	}
	for (int i = 0; i < ROUNDS; i++) {
		double rate = bytes / seconds(pool, read_part, &p, parts);

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
			sched_yield();  /* fewer processors than threads */
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

void ceilings_measure(struct ceilings *c, struct pool *pool, const struct store *st, enum cpu_level level)
{
	struct peaks peaks;

	quant_peaks(&peaks, level);
	keep_best(&c->read, read_rate(pool, st));
	keep_best(&c->int8, peak_rate(pool, peaks.int8));
	if (peaks.bf16)
		keep_best(&c->bf16, peak_rate(pool, peaks.bf16));
	keep_best(&c->f32, peak_rate(pool, peaks.f32));
	c->join = join_seconds(pool);
}
