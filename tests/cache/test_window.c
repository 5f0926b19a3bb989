/* test_window.c - what windows save, counted: 1, 8 and 32 sequences of 32,768 tokens whose
 * keys and values lie in a group that sees everything and one with a window, on one budget.
 *
 * After each step, and in the middle of one, the bytes taken from the pool are those of the
 * global rows, of the windows, and of the step, rounded up to pages, and no more. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "cache/kinds.h"
#include "../check.h"
#include "world.h"

enum { CTX = 32768, WINDOW_ROWS = 1024, STEP = 512, PAGE = 64, SEQS_MAX = 32 };

/* As Gemma 3 4B, five layers of six local; a byte for each of a head's numbers. */
static const struct kv_group group[2] = {
	{ .layers = 5, .heads = 4, .dim_k = 8, .dim_v = 8 },
	{ .layers = 29, .heads = 4, .dim_k = 8, .dim_v = 8, .window = WINDOW_ROWS },
};

static size_t row_bytes(int dim)
{
	return (size_t)dim;
}

static const struct kv_format bytes = { .name = "bytes", .row_bytes = row_bytes };

/* Pages that rows from `from` to `to` lie on. */
static size_t pages(int from, int to)
{
	return to > from ? (size_t)((to - 1) / PAGE - from / PAGE + 1) : 0;
}

/* Of one sequence that stands at pos, with n rows of a step beside. */
static size_t least(const size_t page[2], int pos, int n)
{
	int from = pos >= WINDOW_ROWS ? pos - WINDOW_ROWS + 1 : 0;

	return pages(0, pos + n) * page[0] + pages(from, pos + n) * page[1];
}

static void live(int seqs)
{
	struct cache_pool pool = { .max = (size_t)seqs * (size_t)(CTX / PAGE) * 34 * 4 * 16 * PAGE };
	struct backend *be = toy_backend_open(true); /* memory is never touched */
	size_t page[2], most = 0, peak = 0;
	struct caches set = { .n = 0 };
	struct span span[SEQS_MAX];

	for (int g = 0; g < 2; g++) {
		struct paged_opts o = { .group = group[g],
			                .rows = kv_rows_of(&bytes),
			                .page_rows = PAGE,
			                .slots = seqs,
			                .ctx_max = CTX,
			                .step_rows = STEP,
			                .pool = &pool };

		caches_add(&set, paged_open(be, &o, NULL));
		page[g] = caches_page_bytes(&set, g);
	}
	/* Sequence i is i steps behind the first, so that positions differ. */
	for (int step = 0; step < CTX / STEP + seqs; step++) {
		size_t want = 0, held = 0;
		int n = 0;

		for (int i = 0; i < seqs; i++) {
			int pos = (step - i) * STEP, at = pos < 0 ? 0 : pos > CTX ? CTX : pos;

			want += least(page, at, pos >= 0 && pos < CTX ? STEP : 0);
			held += least(page, pos >= 0 && pos < CTX ? pos + STEP : at, 0);
			if (pos < 0 || pos >= CTX)
				continue;
			span[n] = (struct span){ .slot = i, .pos = pos, .n = STEP };
			CHECK(!caches_reserve(&set, &span[n]), "no room at %d", pos);
			n++;
		}
		CHECK(pool.used == want, "in a step: %zu bytes, not %zu", pool.used, want);
		peak = pool.used > peak ? pool.used : peak;
		if (n)
			caches_begin(&set, span, n);
		for (int i = 0; i < n; i++)
			caches_settle(&set, &span[i], STEP);
		CHECK(pool.used == held, "after a step: %zu bytes, not %zu", pool.used, held);
		most = pool.used > most ? pool.used : most;
	}
	caches_check(&set);
	CHECK(most == (size_t)seqs * least(page, CTX, 0), "%zu bytes at the end", most);
	CHECK(most <= (size_t)seqs * caches_need(&set, CTX), "more than is said to be needed");
	printf("%2d sequences of %d: %.3f of the bytes that all rows would take, %.3f in a step\n", seqs, CTX,
	       (double)most / (double)pool.max, (double)peak / (double)pool.max);
	caches_fini(&set);
	be->ops->close(be);
}

int main(void)
{
	live(1);
	live(8);
	live(32);
	return 0;
}
