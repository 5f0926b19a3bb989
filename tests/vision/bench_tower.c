/* A measurement (docs/images.md), not a test: milliseconds of a tower for an image of W x H, and which share that is of what the
 * level's arithmetic of bf16 gives on registers alone, all threads at once.
 *
 *     bench_tower FOLDER W H [THREADS] */
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
		int64_t begun = clock_monotonic_ns();
		struct media *m;

		CHECK(!tower_image(&m, t, &im, 0, &err), "%s", err.msg);
		while (!m->vectors)
			CHECK(!m->ops->work(m, INT64_MAX / 2, &err), "%s", err.msg);
		took[i] = (double)(clock_monotonic_ns() - begun) / 1e6;
		if (!i)
			printf("%d rows, %s\n", m->n, peaks.bf16 ? "bf16" : "f32");
		media_unref(m);
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
		printf("%.0f patches: %.1f ms (median of %d), %.0f GFLOP, of a peak of %.0f GFLOP/s: %.0f %%\n", n,
		       took[ROUNDS / 2], ROUNDS, (linear + attention) / 1e9, best / 1e9,
		       (linear + attention) / (took[ROUNDS / 2] / 1e3) / best * 100);
	}
	tower_close(t);
	be->ops->close(be);
	store_close(st);
	free(im.rgb);
	return 0;
}
