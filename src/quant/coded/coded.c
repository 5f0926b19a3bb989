/* coded.c - which kernel multiplies a weight of small codes: one table, by level, by how the weight lies in memory, and
 * by the number of rows of activations. */
#include <assert.h>
#include <limits.h>

#include "quant/coded/coded.h"
#include "quant/coded/coded_kernels.h"
#include "quant/lanes/lane_table.h"

/* How a weight lies in memory. */
enum layout {
	PACKED,    /* blocks of codes in groups of 64 (packed.c) */
	PLANES_32, /* packed GGUF types (planes.h) with groups of 32 */
	PLANES_16, /* packed GGUF types with groups of 16 */
	ROWS_G64,  /* rows as the file has them, of weights that coded_is_g64 names */
	ROWS_32,   /* other rows: groups of a multiple of 32, and at most half of what tiles unpack at a time */
	ROWS_16,   /* other rows: groups of a multiple of 16 */
	ROWS_ANY,
	LAYOUTS
};

static enum layout layout_of(const struct weight *w)
{
	bool tiled = w->group % 32 == 0 && w->group <= TILED_INPUTS / 2;

	if (packed_of(w))
		return !w->fmt->coding->block ? PACKED : tiled ? PLANES_32 : PLANES_16;
	if (w->group % 16)
		return ROWS_ANY;
	return coded_is_g64(w) ? ROWS_G64 : tiled ? ROWS_32 : ROWS_16;
}

/* A kernel, and the most rows of activations that it is used for; the next range has the kernel for more. */
enum { RANGES = 3, ANY = INT_MAX };
struct range {
	int rows;
	weight_mul_fn *mul;
};
typedef const struct range kernel_table[LAYOUTS][RANGES];

#if defined(__x86_64__)
#define TABLE_AVX2(level)                                                                                 \
	{                                                                                                 \
		[PACKED] = { { FEW_TWICE, packed_few_##level }, { ANY, packed_many_##level } },           \
		[PLANES_32] = { { FEW_TWICE, planes_few_##level }, { ANY, coded_many_##level } },         \
		[PLANES_16] = { { FEW_TWICE, planes_few_##level }, { ANY, coded_many_##level } },         \
		[ROWS_G64] = { { FEW_TWICE, coded_few_##level }, { ANY, coded_g64_many_##level } },       \
		[ROWS_32] = { { ANY, coded_many_##level } }, [ROWS_16] = { { ANY, coded_many_##level } }, \
		[ROWS_ANY] = { { ANY, coded_mul_scalar } },                                               \
	}
static kernel_table table_avx2 = TABLE_AVX2(avx2);
static kernel_table table_avxvnni = TABLE_AVX2(avxvnni);

/* Every layout but PACKED, of which the last kernels depend on the processor. */
#define TABLE_AVX512(...)                                                                         \
	{                                                                                         \
		[PACKED] = { { FEW_ROWS, packed_few_avx512 }, __VA_ARGS__ },                      \
		[PLANES_32] = { { FEW_PLANES, planes_few_avx512 }, { ANY, coded_many_avx512 } },  \
		[PLANES_16] = { { FEW_PLANES, planes_few_avx512 }, { ANY, coded_many_avx512 } },  \
		[ROWS_G64] = { { FEW_TWICE, coded_few_avx512 }, { ANY, coded_many_avx512 } },     \
		[ROWS_32] = { { DIRECT_ROWS, coded_direct_avx512 }, { ANY, coded_many_avx512 } }, \
		[ROWS_16] = { { DIRECT_ROWS, coded_direct_avx512 }, { ANY, coded_many_avx512 } }, \
		[ROWS_ANY] = { { ANY, coded_mul_scalar } },                                       \
	}
static kernel_table table_avx512 = TABLE_AVX512({ ANY, packed_many_avx512 });
/* On processors that packed_many_slow names. */
static kernel_table table_avx512_panels = TABLE_AVX512({ PANELS_FROM - 1, packed_many_avx512 },
                                                       { ANY, coded_many_avx512 });

/* AMX multiplies a tile of 16 rows at a time and takes as long for fewer.  Up to ACTS_TILED - 1 rows are faster without
 * it. */
static kernel_table table_amx = {
	[PACKED] = { { ACTS_TILED - 1, packed_few_avx512 }, { FEW_TWICE, packed_few_amx }, { ANY, coded_many_amx } },
	[PLANES_32] = { { FEW_TWICE, planes_few_avx512 }, { ANY, coded_many_amx } },
	[PLANES_16] = { { FEW_TWICE, planes_few_avx512 }, { ANY, coded_many_avx512 } },
	[ROWS_G64] = { { FEW_ROWS, coded_few_avx512 }, { ANY, coded_many_amx } },
	[ROWS_32] = { { ACTS_TILED - 1, coded_direct_avx512 }, { ANY, coded_many_amx } },
	[ROWS_16] = { { DIRECT_ROWS, coded_direct_avx512 }, { ANY, coded_many_avx512 } },
	[ROWS_ANY] = { { ANY, coded_mul_scalar } },
};
_Static_assert(ACTS_TILED - 1 <= DIRECT_ROWS, "coded_direct_avx512 takes no more rows");

static weight_mul_fn *kernel_for(kernel_table table, enum layout lies, int rows)
{
	const struct range *r = table[lies];

	while (rows > r->rows)
		r++;
	return r->mul;
}

/* Kernels of packed weights take whole blocks, those of ROWS_G64 whole 16 outputs from o0 on.  The outputs before and
 * after go another way; they are rare, since parts are cut at multiples of 16. */
static void table_mul(kernel_table table, float *out, size_t ld, const struct weight *weight, int o0, int o1,
                      const struct acts *x, int r0, int r1, void *scratch)
{
	struct weight copy;
	const struct weight *w = packed_settled(&copy, weight);
	enum layout lies = layout_of(w);
	weight_mul_fn *mul = kernel_for(table, lies, r1 - r0), *rest = coded_mul_scalar;
	int first = o0, last = o1;

	assert(x->cols == w->cols && x->group == w->group);
	if (lies < ROWS_G64) {
		first = (o0 + BLOCK_OUT - 1) / BLOCK_OUT * BLOCK_OUT;
		last = o1 / BLOCK_OUT * BLOCK_OUT;
	} else if (lies == ROWS_G64) {
		last = o0 + (o1 - o0) / BLOCK_OUT * BLOCK_OUT;
		rest = kernel_for(table, ROWS_32, r1 - r0);
	}
	if (first >= last)
		first = last = o1;
	if (o0 < first)
		rest(out, ld, w, o0, first, x, r0, r1, scratch);
	if (first < last)
		mul(out + (first - o0), ld, w, first, last, x, r0, r1, scratch);
	if (last < o1)
		rest(out + (last - o0), ld, w, last, o1, x, r0, r1, scratch);
}

/* struct kernels holds functions without a level, so each table has one. */
#define MUL(level)                                                                                                  \
	void coded_mul_##level(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, \
	                       int r0, int r1, void *scratch)                                                       \
	{                                                                                                           \
		table_mul(table_##level, out, ld, w, o0, o1, x, r0, r1, scratch);                                   \
	}
MUL(avx2)
MUL(avxvnni)
MUL(avx512)
MUL(avx512_panels)
MUL(amx)
#endif

/* Rows from which the kernels for many rows prefetch the lines of their outputs (struct kernels, prefetch_rows). */
enum { PREFETCH_ROWS_512 = 17, PREFETCH_ROWS_TILED = 33 };

void coded_kernels(struct kernels *k, enum cpu_level level)
{
	*k = (struct kernels){ .mul = { lane_table(level)->mul_decoded, coded_mul_scalar },
		               .acts = ACTS_INT8,
		               .packed = true };
#if defined(__x86_64__)
	if (level >= CPU_AVX2)
		k->mul[ARITH_FAST] = coded_mul_avx2;
	if (level >= CPU_AVXVNNI && cpu_has_avxvnni())
		k->mul[ARITH_FAST] = coded_mul_avxvnni;
	if (level >= CPU_AVX512) {
		k->mul[ARITH_FAST] = packed_many_slow() ? coded_mul_avx512_panels : coded_mul_avx512;
		k->prefetch_rows = PREFETCH_ROWS_512;
	}
	if (level >= CPU_AMX) {
		k->mul[ARITH_FAST] = coded_mul_amx;
		k->prefetch_rows = PREFETCH_ROWS_TILED;
	}
#endif
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Each sum is the scratch of one family of kernels, its terms in the order in which the kernel lays them out. */
size_t coded_scratch(const struct weight *w)
{
	size_t cols = (size_t)w->cols, groups = cols / (size_t)w->group;
	/* Codes of a panel, its scales and biases, sums in float. */
	size_t panel = PANEL_OUT * cols + (2 * groups + TILED_ROWS) * PANEL_OUT * sizeof(float);
	/* Scales and biases of 16 outputs, arranged rows, integer sums per 64 inputs. */
	size_t direct = 32 * groups * sizeof(float) + DIRECT_ROWS * (cols + 128) + DIRECT_ROWS * 256 * (cols / 64 + 2);
	/* Scales and biases of a panel, codes, sums in float, activations laid out here. */
	size_t tiled = 2 * PANEL_OUT * groups * sizeof(float) + PANEL_OUT * larger(cols, TILED_INPUTS) +
	               (size_t)TILED_ROWS * PANEL_OUT * sizeof(float) +
	               TILED_HERE / ACTS_TILE * acts_tile_bytes(w->cols, w->group);
	/* Scales and biases of 16 outputs, sums in float, a panel, arranged rows. */
	size_t block = (32 * groups + 16 * BLOCK_ROWS) * sizeof(float) + 16 * larger((size_t)w->group, PANEL_INPUTS) +
	               BLOCK_ROWS * cols;
	/* A panel of codes, sums and scales and biases of 16 outputs, arranged rows with two numbers a
	 * group, half as many where they are int16. */
	size_t g64 = G64_PANEL + 16 * G64_ROWS * sizeof(float) + 32 * groups * sizeof(float) +
	             G64_ROWS * (cols + 2 * groups * sizeof(float));
	/* One row: its codes, as int16 at most, two numbers a group, scales and biases of 16 outputs. */
	size_t row = 2 * cols + 34 * groups * sizeof(float) + coded_row_scratch(w->cols);
	/* Planes: three numbers a group of each row. */
	size_t planes = FEW_PLANES * 3 * groups * sizeof(float);

	return larger(larger(larger(panel, direct), larger(tiled, block)), larger(larger(g64, row), planes));
}
