/* benchread.c - how fast kernels of few rows go through packed weights that lie in memory, beside bare loads of the same bytes.
 *
 *     benchread FORMAT COLS [--cpu LEVEL] [--rows N] [--mb N] [--seconds N]
 *
 * FORMAT is a name of sample.h (Q8_0, affine4 ...) of COLS inputs; --rows: of activations (1); --mb: of weights (250).  Two threads
 * on two processors take a half each, in parts of 960 outputs as products do.  Kernel and loads take turns, each going first
 * in turn, for so many seconds (10).  Rounds are sorted by what the loads gave, since what a virtual machine's memory gives
 * moves (bench/notes/beside-others.md, "Near and far processors"), and each quarter's medians are printed in GB/s:
 *
 *     hinted loads    64 bytes at a time, each line asked for 4 KB ahead
 *     bare loads      64 bytes at a time
 *     kernel          weft's */
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/pages.h"
#include "quant/coded/coded.h"
#include "quant/packed.h"
#include "sample.h"

enum { PART = 960, AHEAD = 4096, ROUNDS_MOST = 20000, QUARTERS = 4 };
enum way { HINTED, BARE, KERNEL, WAYS };
static const char *const way_name[WAYS] = { "hinted loads", "bare loads", "kernel" };

struct bench {
	struct sample s;
	struct rows x;
	struct kernels kernels;
	const uint8_t *packed;
	size_t row_bytes; /* of an output, packed */
	float *out;
	uint8_t *scratch[2];
	int rows; /* of activations */
	enum way way;
	atomic_int round, done;
	atomic_bool quit;
	_Atomic uint64_t sink;
};

typedef uint64_t line __attribute__((vector_size(64), aligned(1), may_alias));

/* By the widest vectors of the processor. */
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static uint64_t
load(const uint8_t *at, size_t n, int ahead)
{
	line sum = { 0 };
	uint64_t all = 0;

	for (size_t i = 0; i + sizeof sum <= n; i += sizeof sum) {
		if (ahead)
			__builtin_prefetch(at + i + ahead);
		sum += *(const line *)(at + i);
	}
	for (size_t i = 0; i < sizeof sum / sizeof all; i++)
		all += sum[i];
	return all;
}

static void half(struct bench *b, int thread)
{
	int all = b->s.w.rows, middle = all / 2 / BLOCK_OUT * BLOCK_OUT, o0 = thread ? middle : 0,
	    o1 = thread ? all : middle;

	for (int o = o0; o < o1; o += PART) {
		int end = o + PART < o1 ? o + PART : o1;
		const uint8_t *at = b->packed + (size_t)o * b->row_bytes;
		size_t n = (size_t)(end - o) * b->row_bytes;

		if (b->way == KERNEL)
			b->kernels.mul[ARITH_FAST](b->out + o, (size_t)all, &b->s.w, o, end, &b->x.a, 0, b->rows,
			                           b->scratch[thread]);
		else
			b->sink += load(at, n, b->way == HINTED ? AHEAD : 0);
	}
}

static void stay_on(int processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static void *other_half(void *arg)
{
	struct bench *b = arg;
	int seen = 0;

	stay_on(1);
	for (;;) {
		while (atomic_load(&b->round) == seen)
			;
		seen = atomic_load(&b->round);
		if (atomic_load(&b->quit))
			return NULL;
		half(b, 1);
		atomic_store(&b->done, seen);
	}
}

/* GB/s of all weights once. */
static double once(struct bench *b, enum way way)
{
	double began = now();
	int round;

	b->way = way;
	round = atomic_fetch_add(&b->round, 1) + 1;
	half(b, 0);
	while (atomic_load(&b->done) != round)
		;
	return (double)b->row_bytes * b->s.w.rows / (now() - began) * 1e-9;
}

static void *huge(size_t n)
{
	void *p = pages_room(n, true);

	assert(p);
	pages_huge(p, n);
	return p;
}

static void prepare(struct bench *b, const char *name, int cols, double mb)
{
	const struct kind *k = NULL;
	uint8_t *packed;
	int bits, rows;

	for (size_t i = 0; i < n_kinds; i++)
		if (!strcmp(kinds[i].name, name))
			k = &kinds[i];
	if (!k) {
		fprintf(stderr, "benchread: no format is called %s (sample.c lists them)\n", name);
		exit(2);
	}
	bits = k->bits ? k->bits : format_find(k->name)->bits;
	rows = (int)(mb * 8e6 / bits / cols) / (2 * PART) * 2 * PART;
	sample_make(&b->s, k, rows > 0 ? rows : 2 * PART, cols, k->group ? k->group : 64, DT_BF16, V_RANDOM);
	b->s.w.fmt->kernels(&b->kernels, cpu_detect());
	if (!packed_fit(&b->s.w) || !b->kernels.packed) {
		fprintf(stderr, "benchread: %s of %d inputs has no packed form\n", name, cols);
		exit(2);
	}
	packed = huge(packed_bytes(&b->s.w));
	packed_fill(packed, &b->s.w, 0, b->s.w.rows);
	b->packed = packed;
	b->s.made.at = packed;
	b->s.w.packed = &b->s.made;
	b->row_bytes = packed_bytes(&b->s.w) / (size_t)b->s.w.rows;
	rows_make(&b->x, b->rows, cols, b->s.w.group, V_RANDOM, cpu_detect());
	b->out = huge((size_t)b->s.w.rows * (size_t)b->rows * sizeof *b->out);
	for (int i = 0; i < 2; i++)
		b->scratch[i] = huge(weight_scratch_bytes(&b->s.w));
}

struct round {
	double rate[WAYS];
};

static int by_loads(const void *a, const void *b)
{
	double x = ((const struct round *)a)->rate[BARE], y = ((const struct round *)b)->rate[BARE];

	return (x > y) - (x < y);
}
static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(struct round *round, int n)
{
	double *one = xcalloc((size_t)n, sizeof *one);

	qsort(round, (size_t)n, sizeof *round, by_loads);
	for (int q = 0; q < QUARTERS; q++) {
		int from = n * q / QUARTERS, to = n * (q + 1) / QUARTERS;

		printf("quarter %d:", q + 1);
		for (enum way w = 0; w < WAYS && to > from; w++) {
			for (int i = from; i < to; i++)
				one[i - from] = round[i].rate[w];
			qsort(one, (size_t)(to - from), sizeof *one, by_size);
			printf("  %s %.1f", way_name[w], one[(to - from) / 2]);
		}
		putchar('\n');
	}
	free(one);
}

int main(int argc, char **argv)
{
	static struct bench b;
	struct round *round = xcalloc(ROUNDS_MOST, sizeof *round);
	double mb = 250, seconds = 10, began;
	pthread_t thread;
	int n = 0;

	b.rows = 1;
	for (int i = 3; i + 1 < argc; i += 2) {
		double v = atof(argv[i + 1]);
		enum cpu_level level;
		struct err err;

		if (!strcmp(argv[i], "--cpu") && !cpu_level_parse(argv[i + 1], &level, &err))
			cpu_mask(level);
		else if (!strcmp(argv[i], "--rows"))
			b.rows = (int)v;
		else if (!strcmp(argv[i], "--mb"))
			mb = v;
		else if (!strcmp(argv[i], "--seconds"))
			seconds = v;
		else
			argc = 0;
	}
	if (argc < 3 || argc % 2 == 0 || b.rows < 1 || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: benchread FORMAT COLS [--cpu LEVEL] [--rows N] [--mb N] [--seconds N]\n");
		return 2;
	}
	prepare(&b, argv[1], atoi(argv[2]), mb);
	stay_on(0);
	if (pthread_create(&thread, NULL, other_half, &b))
		return 1;
	for (began = now(); n < ROUNDS_MOST && now() - began < seconds; n++)
		for (int i = 0; i < WAYS; i++) {
			enum way w = (enum way)((i + n) % WAYS);

			round[n].rate[w] = once(&b, w);
		}
	printf("%s, %d by %d, %.0f MB, %d rows, GB/s of %d rounds\n", argv[1], b.s.w.rows, b.s.w.cols,
	       (double)b.row_bytes * b.s.w.rows * 1e-6, b.rows, n);
	print(round, n);
	atomic_store(&b.quit, true);
	atomic_fetch_add(&b.round, 1);
	pthread_join(thread, NULL);
	sample_drop(&b.s);
	rows_drop(&b.x);
	free(round);
	return 0;
}
