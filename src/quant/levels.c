/* levels.c - what a level of instructions offers beside products of weights: forms of activations, plain vectors, and its
 * peaks. */
#include "quant/bf16/bf16_kernels.h"
#include "quant/coded/coded_kernels.h"
#include "quant/lanes/lane_table.h"

acts_tile_fn *acts_tiler(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AMX)
		return acts_tile_amx;
#endif
	return NULL;
}

acts_tile_fn *acts_pairer(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AVX512BF16)
		return level >= CPU_AMX ? acts_pairs_amx : acts_pairs_avx512bf16;
#endif
	return NULL;
}

acts_quantise_fn *acts_quantiser(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AVX512)
		return acts_quantise_avx512;
#endif
	return lane_table(level)->quantise;
}

void vec_kernels(struct vec_kernels *k, enum cpu_level level)
{
	*k = lane_table(level)->vec;
}

void quant_peaks(struct peaks *p, enum cpu_level level)
{
	*p = (struct peaks){ .int8 = coded_peak_scalar, .f32 = lane_table(level)->peak };
#if defined(__x86_64__)
	if (level >= CPU_AVX2)
		p->int8 = coded_peak_avx2;
	if (level >= CPU_AVXVNNI && cpu_has_avxvnni())
		p->int8 = coded_peak_avxvnni;
	if (level >= CPU_AVX512)
		p->int8 = coded_peak_avx512;
	if (level >= CPU_AVX512BF16)
		p->bf16 = bf16_dot_slow() ? p->f32 : bf16_peak_avx512bf16;
	if (level >= CPU_AMX) {
		p->int8_vectors = p->int8;
		p->int8 = coded_peak_amx;
		p->bf16 = bf16_peak_amx;
	}
#endif
}
