/* trial.c - see trial.h. */
#include "quant/trial.h"

bool trial_slower(atomic_int *known, trial_fn *way, trial_fn *other, double by)
{
	enum { UNKNOWN, NO, YES, TRIES = 6 };
	int k = atomic_load_explicit(known, memory_order_relaxed);
	double best[2] = { 1e18, 1e18 };

	if (k == UNKNOWN) {
		for (int i = 0; i < 2 * TRIES; i++) {
			double t = i % 2 ? other() : way();

			best[i % 2] = t < best[i % 2] ? t : best[i % 2];
		}
		k = best[0] > by * best[1] ? YES : NO;
		atomic_store_explicit(known, k, memory_order_relaxed);
	}
	return k == YES;
}
