/* planes.h - inside quant/: blocks (packed.h) of weights whose rows are blocks that carry their scales (struct
 * file_block).
 *
 * The rows of 16 outputs lie together: first their scales, as small as the file has them, then their codes, 64 inputs
 * at a time.  A quad of inputs, four bytes of each output, makes a vector of 64 bytes, [16][4], which is what a dot
 * product of bytes takes; codes of fewer bits share lines:
 *
 *   low     8, 4, 2 or 1 bits of each code: 16, 8, 4 or 2 lines; quad q is at bits low * (q % (8 / low)) of line
 *           q / (8 / low).  One bit says 0 or 2
 *   high    2, 1 or no further bits: 4, 2 or no lines in the same way, each before the low lines of the same quads
 *
 * So kernels transpose nothing, and read one run of memory, in rising order, of hardly more bytes than the file has:
 * what a processor fetches ahead by itself.  Scales of n groups (or of the blocks of the file where these have more
 * groups), 16 outputs side by side:
 *
 *   SCALE_HALF  d[n]      SCALE_HALVES  d[n] m[n]      SCALE_E8M0, SCALE_UE4M3  s[n]
 *   SCALE_TIMES  d[blocks] s[n]                        SCALE_TIMES_MIN  d[blocks] m[blocks] s[n] min[n]
 *   SCALE_BLOCK  d[blocks]
 *
 * filled up to a whole line. */
#ifndef QUANT_PLANES_H
#define QUANT_PLANES_H

#include "quant/coded/packed_layout.h"

enum { PLANE_QUADS = BLOCK_INPUTS / 4 };

/* Bits of a code in low and high lines. */
static inline int planes_low(int bits)
{
	return bits == 8 ? 8 : bits >= 4 ? 4 : bits >= 2 ? 2 : 1;
}
static inline int planes_high(int bits)
{
	return bits - planes_low(bits);
}
/* Which of the lines of 64 inputs line i of the low bits is, and line i of the high ones. */
static inline int planes_low_line(int i, int low, int high)
{
	return high ? i + i / (low / high) + 1 : i;
}
static inline int planes_high_line(int i, int low, int high)
{
	return i * (low / high + 1);
}
/* Where scales lie, in bytes from the first of 16 outputs. */
struct plane_scales {
	size_t d, m, s, min, end; /* end: where codes begin */
};
struct plane_scales planes_scales(const struct weight *w);
bool planes_fit(const struct weight *w);
/* Whether one and two rows of these codes are faster on this processor where lines are prefetched.  Any thread. */
bool planes_hints(const struct coding *c);
/* Packs 16 outputs from o on. */
void planes_fill(uint8_t *to, const struct weight *w, int o);
/* Row o, codes with the table applied; scale and bias of one of its groups.  planes: those of w. */
void planes_row(uint8_t *code, const struct weight *w, const uint8_t *planes, int o);
void planes_scale(float *scale, float *bias, const struct weight *w, const uint8_t *planes, int o, int g);

/* Reads 16 outputs from o on: scales and biases of all groups, to scale[g * step] and bias[g * step]; codes of inputs
 * [k0, k1) as quads, to to[quad * step].  The AVX2 form of the second subtracts 128 from codes that go beyond 127. */
typedef void planes_lanes_fn(float *scale, float *bias, size_t step, const struct weight *w, const uint8_t *planes,
                             int o);
typedef void planes_panel_fn(uint8_t *to, size_t step, const struct weight *w, const uint8_t *planes, int o, int k0,
                             int k1);
planes_lanes_fn planes_lanes_avx2, planes_lanes_avxvnni, planes_lanes_avx512;
planes_panel_fn planes_panel_avx2, planes_panel_avxvnni, planes_panel_avx512;

#endif
