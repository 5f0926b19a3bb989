/* levels_arm.c - the kernels of the levels of 64-bit Arm. */
#include "quant/bf16/bf16_kernels.h"
#include "quant/coded/coded.h"
#include "quant/coded/coded_table.h"
#include "quant/kv/kv_coded.h"
#include "quant/lanes/lane_table.h"
#include "quant/level_fill.h"

/* One kernel serves every layout but groups whose size is not a multiple of 16.  An instruction smmla makes twice the products of an
 * sdot, for two rows; with one row half of them are wasted. */
#define TABLE_ARM(...)                                                                                    \
	{                                                                                                 \
		[PACKED] = { __VA_ARGS__ }, [PLANES_32] = { __VA_ARGS__ }, [PLANES_16] = { __VA_ARGS__ }, \
		[ROWS_G64] = { __VA_ARGS__ }, [ROWS_32] = { __VA_ARGS__ }, [ROWS_16] = { __VA_ARGS__ },   \
		[ROWS_ANY] = { { ANY, coded_mul_scalar } },                                               \
	}
static coded_table table_neon = TABLE_ARM({ ANY, coded_many_neon });
static coded_table table_dotprod = TABLE_ARM({ ANY, coded_many_dotprod });
static coded_table table_i8mm = TABLE_ARM({ 1, coded_many_dotprod }, { ANY, coded_many_i8mm });

CODED_MUL(neon)
CODED_MUL(dotprod)
CODED_MUL(i8mm)

void level_fill(struct level_kernels *k, enum cpu_level level)
{
	switch (level) {
	case CPU_NEON:
		level_lanes(k, &lane_table_neon, kv_coded_neon);
		k->coded = coded_mul_neon;
		k->peaks.int8 = coded_peak_neon;
		break;
	case CPU_DOTPROD:
		k->coded = coded_mul_dotprod;
		k->peaks.int8 = coded_peak_dotprod;
		break;
	case CPU_I8MM:
		k->coded = coded_mul_i8mm;
		k->peaks.int8 = coded_peak_i8mm;
		break;
	case CPU_BF16:
		k->pair = acts_pairs_arm;
		k->bf16 = bf16_mul_arm;
		k->orders.products = "bfmmla";
		k->peaks.bf16 = bf16_peak_arm;
		break;
	default: break;
	}
}

size_t level_bf16_scratch(const struct weight *w)
{
	return bf16_scratch_arm(w->cols);
}
