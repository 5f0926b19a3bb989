/* A measurement (docs/images.md), not a test: milliseconds of a tower for an image of W x H, and which share that is of what the
 * level's arithmetic of bf16 gives on registers alone, all threads at once.
 *
 *     bench_tower FOLDER W H [THREADS [MS]...]
 *
 * MS: the same in parts of so many milliseconds, as the engine asks for them between its steps; how long all of them took
 * together, how many there were, and the longest. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/pool.h"
#include "check.h"
#include "vision/tower.h"

enum { ROUNDS = 5, PEAK_ROUNDS = 1 << 21 };

static struct peaks peaks;
static double peak_ops[64];

static void peak_part(void *ctx, int part)
{
	peak_ops[part] = (peaks.bf16 ? peaks.bf16 : peaks.f32)(PEAK_ROUNDS);
}

/* Multiplications and additions a second. */
static double peak(int threads)
{
	struct pool *pool = pool_new(threads);
	int64_t begun = clock_monotonic_ns();
	double ops = 0;

	pool_run(pool, peak_part, NULL, threads);
	for (int i = 0; i < threads; i++)
		ops += peak_ops[i];
	pool_free(pool);
	return ops / ((double)(clock_monotonic_ns() - begun) / 1e9);
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* All of an image in parts of ns; milliseconds. */
static double in_parts(struct tower *t, const struct image *im, int64_t ns, int *parts, double *longest)
{
	int64_t begun = clock_monotonic_ns();
	struct media *m;
	struct err err;
	double took;

	*parts = 0;
	*longest = 0;
	CHECK(!tower_image(&m, t, im, 0, &err), "%s", err.msg);
	for (; !m->vectors; ++*parts) {
		int64_t before = clock_monotonic_ns();

		CHECK(!m->ops->work(m, ns, &err), "%s", err.msg);
		took = (double)(clock_monotonic_ns() - before) / 1e6;
		*longest = took > *longest ? took : *longest;
	}
	took = (double)(clock_monotonic_ns() - begun) / 1e6;
	media_unref(m);
	return took;
}

static void print_parts(struct tower *t, const struct image *im, double ms)
{
	double took[ROUNDS], longest[ROUNDS];
	int parts = 0;

	for (int i = 0; i < ROUNDS; i++)
		took[i] = in_parts(t, im, (int64_t)(ms * 1e6), &parts, &longest[i]);
	qsort(took, ROUNDS, sizeof *took, by_time);
	qsort(longest, ROUNDS, sizeof *longest, by_time);
	printf("parts of %g ms: %.1f ms (median; best %.1f) in %d parts, the longest %.1f ms (median)\n", ms,
	       took[ROUNDS / 2], took[0], parts, longest[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
	int threads = argc > 4 ? atoi(argv[4]) : 2;
	struct image im;
	struct store *st;
	struct tower *t;
	struct backend *be;
	struct err err = { 0 };
	double took[ROUNDS], best = 0;

	CHECK(argc > 3 && threads > 0 && threads <= 64, "FOLDER W H [THREADS]");
	im = (struct image){ atoi(argv[2]), atoi(argv[3]), NULL };
	im.rgb = xmalloc((size_t)im.w * (size_t)im.h * 3);
	for (size_t i = 0; i < (size_t)im.w * (size_t)im.h * 3; i++)
		im.rgb[i] = (uint8_t)(i * 2654435761u >> 13);
	CHECK(!store_open(&st, argv[1], &err) && !tower_open(&t, st, &err) && t, "%s", err.msg);
	be = backend_cpu_open(threads, cpu_detect());
	CHECK(!tower_attach(t, be, ARITH_FAST, NULL, &err), "%s", err.msg);
	quant_peaks(&peaks, cpu_detect());
	for (int i = 0; i < ROUNDS; i++) {
		int parts;
		double longest;

		took[i] = in_parts(t, &im, INT64_MAX / 2, &parts, &longest);
		best = peak(threads) > best ? peak(threads) : best;
	}
	qsort(took, ROUNDS, sizeof *took, by_time);
	{
		struct tower_info i = tower_info(t);
		struct picture_plan p;
		double n, h = i.hidden, linear, attention;

		CHECK(!picture_plan(&p, tower_form(t), im.w, im.h, &err), "%s", err.msg);
		n = (double)p.rows * i.merge * i.merge;
		/* An MLP four times as wide as the tower; embedding and projector are left out. */
		linear = 2 * n * (double)i.depth * (12 * h * h);
		attention = 4 * n * n * h * i.depth;
		printf("%s, %.0f patches: %.1f ms (median of %d; best %.1f), %.0f GFLOP, of a peak of %.0f GFLOP/s: %.0f %%\n",
		       peaks.bf16 ? "bf16" : "f32", n, took[ROUNDS / 2], ROUNDS, took[0], (linear + attention) / 1e9,
		       best / 1e9, (linear + attention) / (took[ROUNDS / 2] / 1e3) / best * 100);
	}
	for (int i = 5; i < argc; i++)
		print_parts(t, &im, atof(argv[i]));
	tower_close(t);
	be->ops->close(be);
	store_close(st);
	free(im.rgb);
	return 0;
}
