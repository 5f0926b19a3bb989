/* kv_ask.h - inside quant/kv/: prefetches runs of rows into the second cache, two at a time.
 *
 * One run alone is read as fast as a core waits for 16 lines.  Two make the processor's own
 * prefetchers follow both: 1.25 times as fast where it was measured. */
#ifndef QUANT_KV_ASK_H
#define QUANT_KV_ASK_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* n runs of `bytes` bytes: runs i and i + half are prefetched next, from byte `at` on. */
struct kv_ask {
	const uint8_t *const *run;
	int n, i, half;
	size_t at, bytes;
};

static inline struct kv_ask kv_ask_runs(const uint8_t *const *run, int n, size_t bytes)
{
	return (struct kv_ask){ .run = run, .n = n, .half = (n + 1) / 2, .bytes = bytes };
}

/* How many lines each of n calls asks for. */
static inline int kv_ask_share(const struct kv_ask *a, int n)
{
	return (int)((size_t)a->n * a->bytes / 64 + (size_t)n - 1) / n;
}

/* Inlined: gcc 12 drops calls of a function that only prefetches. */
static inline __attribute__((always_inline)) void kv_ask(struct kv_ask *a, int lines)
{
	for (int i = 0; i < lines && a->i < a->half; i += 2) {
		_mm_prefetch((const char *)a->run[a->i] + a->at, _MM_HINT_T1);
		if (a->i + a->half < a->n)
			_mm_prefetch((const char *)a->run[a->i + a->half] + a->at, _MM_HINT_T1);
		a->at += 64;
		if (a->at == a->bytes) {
			a->at = 0;
			a->i++;
		}
	}
}

#endif
