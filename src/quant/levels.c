/* levels.c - the kernels of a level: its parent's, and those that it improves. */
#include <pthread.h>
#include <stdatomic.h>

#include "quant/coded/coded_kernels.h"
#include "quant/kv/kv_coded.h"
#include "quant/lanes/lane_table.h"
#include "quant/level_fill.h"

static void make(struct level_kernels *k, enum cpu_level level)
{
	if (level == CPU_SCALAR) {
		level_lanes(k, &lane_table_scalar, kv_coded_scalar);
		k->coded = coded_mul_scalar;
		k->peaks.int8 = coded_peak_scalar;
		k->orders = (struct level_orders){ .products = "plain", .attention = "plain" };
	} else {
		*k = *level_kernels(cpu_level_parent(level));
		level_fill(k, level);
	}
}

const struct level_kernels *level_kernels(enum cpu_level level)
{
	static struct level_kernels table[CPU_LEVELS];
	static atomic_bool made[CPU_LEVELS];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	if (!atomic_load_explicit(&made[level], memory_order_acquire)) {
		struct level_kernels k = { 0 };

		make(&k, level);
		pthread_mutex_lock(&lock);
		if (!atomic_load_explicit(&made[level], memory_order_relaxed))
			table[level] = k;
		atomic_store_explicit(&made[level], true, memory_order_release);
		pthread_mutex_unlock(&lock);
	}
	return &table[level];
}

acts_tile_fn *acts_tiler(enum cpu_level level)
{
	return level_kernels(level)->tile;
}

acts_tile_fn *acts_pairer(enum cpu_level level)
{
	return level_kernels(level)->pair;
}

acts_quantise_fn *acts_quantiser(enum cpu_level level)
{
	return level_kernels(level)->quantise;
}

void vec_kernels(struct vec_kernels *k, enum cpu_level level)
{
	*k = level_kernels(level)->lanes->vec;
}

struct level_orders level_orders(enum cpu_level level)
{
	return level_kernels(level)->orders;
}

void quant_peaks(struct peaks *p, enum cpu_level level)
{
	*p = level_kernels(level)->peaks;
}
