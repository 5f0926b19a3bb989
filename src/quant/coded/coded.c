/* coded.c - weights of small codes: the kernels of a level, and their scratch. */
#include "quant/coded/coded.h"
#include "quant/coded/coded_kernels.h"
#include "quant/lanes/lane_table.h"
#include "quant/level_kernels.h"

void coded_kernels(struct kernels *k, enum cpu_level level)
{
	const struct level_kernels *at = level_kernels(level);

	*k = (struct kernels){ .mul = { at->lanes->mul_decoded, at->coded },
		               .acts = ACTS_INT8,
		               .prefetch_rows = at->coded_prefetch_rows,
		               .packed = true };
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
	/* Planes: three numbers a group of each row, or tables of one row. */
	size_t planes = larger(FEW_PLANES * 3 * groups * sizeof(float), SIGNS_TABLES * cols);

	return larger(larger(larger(panel, direct), larger(tiled, block)), larger(larger(g64, row), planes));
}
