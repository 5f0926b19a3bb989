/* levels_x86.c - the kernels of the levels of x86-64. */
#include "quant/bf16/bf16_kernels.h"
#include "quant/coded/coded.h"
#include "quant/coded/coded_table.h"
#include "quant/kv/kv_coded.h"
#include "quant/kv/kv_tiles.h"
#include "quant/lanes/lane_table.h"
#include "quant/level_fill.h"

#define TABLE_AVX2(level)                                                                                 \
	{                                                                                                 \
		[PACKED] = { { FEW_TWICE, packed_few_##level }, { ANY, packed_many_##level } },           \
		[PLANES_32] = { { FEW_TWICE, planes_few_##level }, { ANY, coded_many_##level } },         \
		[PLANES_16] = { { FEW_TWICE, planes_few_##level }, { ANY, coded_many_##level } },         \
		[ROWS_G64] = { { FEW_TWICE, coded_few_##level }, { ANY, coded_g64_many_##level } },       \
		[ROWS_32] = { { ANY, coded_many_##level } }, [ROWS_16] = { { ANY, coded_many_##level } }, \
		[ROWS_ANY] = { { ANY, coded_mul_scalar } },                                               \
	}
static coded_table table_avx2 = TABLE_AVX2(avx2);
static coded_table table_avxvnni = TABLE_AVX2(avxvnni);

/* one: of one row over planes.  Then the last kernels of PACKED, which depend on the processor. */
#define TABLE_AVX512(one, ...)                                                                               \
	{                                                                                                    \
		[PACKED] = { { FEW_ROWS, packed_few_avx512 }, __VA_ARGS__ },                                 \
		[PLANES_32] = { { 1, one }, { FEW_PLANES, planes_few_avx512 }, { ANY, coded_many_avx512 } }, \
		[PLANES_16] = { { FEW_PLANES, planes_few_avx512 }, { ANY, coded_many_avx512 } },             \
		[ROWS_G64] = { { FEW_TWICE, coded_few_avx512 }, { ANY, coded_many_avx512 } },                \
		[ROWS_32] = { { DIRECT_ROWS, coded_direct_avx512 }, { ANY, coded_many_avx512 } },            \
		[ROWS_16] = { { DIRECT_ROWS, coded_direct_avx512 }, { ANY, coded_many_avx512 } },            \
		[ROWS_ANY] = { { ANY, coded_mul_scalar } },                                                  \
	}
static coded_table table_avx512 = TABLE_AVX512(planes_few_avx512, { ANY, packed_many_avx512 });
static coded_table table_avx512bf16 = TABLE_AVX512(planes_one_vbmi, { ANY, packed_many_avx512 });
/* On processors that packed_many_slow names. */
#define PANELS                                   \
	{ PANELS_FROM - 1, packed_many_avx512 }, \
	{                                        \
		ANY, coded_many_avx512           \
	}
static coded_table table_avx512_panels = TABLE_AVX512(planes_few_avx512, PANELS);
static coded_table table_avx512bf16_panels = TABLE_AVX512(planes_one_vbmi, PANELS);

/* AMX multiplies a tile of 16 rows at a time and takes as long for fewer.  Up to ACTS_TILED - 1 rows are faster without
 * it. */
static coded_table table_amx = {
	[PACKED] = { { ACTS_TILED - 1, packed_few_avx512 }, { FEW_TWICE, packed_few_amx }, { ANY, coded_many_amx } },
	[PLANES_32] = { { 1, planes_one_vbmi }, { FEW_TWICE, planes_few_avx512 }, { ANY, coded_many_amx } },
	[PLANES_16] = { { FEW_TWICE, planes_few_avx512 }, { ANY, coded_many_avx512 } },
	[ROWS_G64] = { { FEW_ROWS, coded_few_avx512 }, { ANY, coded_many_amx } },
	[ROWS_32] = { { ACTS_TILED - 1, coded_direct_avx512 }, { ANY, coded_many_amx } },
	[ROWS_16] = { { DIRECT_ROWS, coded_direct_avx512 }, { ANY, coded_many_avx512 } },
	[ROWS_ANY] = { { ANY, coded_mul_scalar } },
};
_Static_assert(ACTS_TILED - 1 <= DIRECT_ROWS, "coded_direct_avx512 takes no more rows");

CODED_MUL(avx2)
CODED_MUL(avxvnni)
CODED_MUL(avx512)
CODED_MUL(avx512_panels)
CODED_MUL(avx512bf16)
CODED_MUL(avx512bf16_panels)
CODED_MUL(amx)

/* Rows from which the kernels for many rows prefetch the lines of their outputs (struct kernels, prefetch_rows). */
enum { PREFETCH_ROWS_512 = 17, PREFETCH_ROWS_TILED = 33 };

static void fill_avx2(struct level_kernels *k)
{
	level_lanes(k, &lane_table_avx2, kv_coded_avx2);
	k->coded = coded_mul_avx2;
	k->peaks.int8 = coded_peak_avx2;
}

static void fill_avxvnni(struct level_kernels *k)
{
	k->coded = coded_mul_avxvnni;
	k->peaks.int8 = coded_peak_avxvnni;
}

static void fill_avx512(struct level_kernels *k)
{
	level_lanes(k, &lane_table_avx512, kv_coded_avx512);
	k->quantise = acts_quantise_avx512;
	k->coded = packed_many_slow() ? coded_mul_avx512_panels : coded_mul_avx512;
	k->coded_prefetch_rows = PREFETCH_ROWS_512;
	k->peaks.int8 = coded_peak_avx512;
}

static void fill_avx512bf16(struct level_kernels *k)
{
	bool floats = bf16_dot_slow();

	k->coded = packed_many_slow() ? coded_mul_avx512bf16_panels : coded_mul_avx512bf16;
	k->pair = acts_pairs_avx512bf16;
	k->bf16 = floats ? bf16_mul_floats : bf16_mul_dot;
	k->bf16_packed = true;
	k->kv_tiles = floats ? &kv_tiles_floats : &kv_tiles_dot;
	k->orders = (struct level_orders){ .products = "bf16", .attention = "bf16" };
	k->peaks.bf16 = floats ? k->peaks.f32 : bf16_peak_avx512bf16;
}

static void fill_amx(struct level_kernels *k)
{
	k->tile = acts_tile_amx;
	k->pair = acts_pairs_amx;
	k->coded = coded_mul_amx;
	k->coded_prefetch_rows = PREFETCH_ROWS_TILED;
	k->bf16 = bf16_mul_amx;
	k->bf16_packed = false;
	k->kv_tiles = &kv_tiles_amx;
	k->peaks.int8_vectors = k->peaks.int8;
	k->peaks.int8 = coded_peak_amx;
	k->peaks.bf16 = bf16_peak_amx;
}

void level_fill(struct level_kernels *k, enum cpu_level level)
{
	static void (*const fill[CPU_LEVELS])(struct level_kernels *) = {
		[CPU_AVX2] = fill_avx2,     [CPU_AVXVNNI] = fill_avxvnni,
		[CPU_AVX512] = fill_avx512, [CPU_AVX512BF16] = fill_avx512bf16,
		[CPU_AMX] = fill_amx,
	};

	if (fill[level])
		fill[level](k);
}

size_t level_bf16_scratch(const struct weight *w)
{
	size_t dots = bf16_scratch_avx512bf16(w->cols), tiles = bf16_scratch_amx(w->cols);

	return dots > tiles ? dots : tiles;
}
