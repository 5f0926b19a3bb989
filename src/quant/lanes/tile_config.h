/* tile_config.h - inside quant/: the shape of the tile registers, for the files of level amx
 * (Intel's architecture manual, volume 1, "Intel AMX palettes"). */
#ifndef QUANT_TILE_CONFIG_H
#define QUANT_TILE_CONFIG_H

#include <immintrin.h>
#include <stdint.h>

struct tile_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
} __attribute__((aligned(64)));

static inline void tile_config_load(const struct tile_config *c)
{
	/* gcc 12's intrinsic says it reads 8 bytes; stores to the others may go. */
	__asm__ volatile("" : : "m"(*c));
	_tile_loadconfig(c);
}

/* All eight registers as large as they can be: 16 rows of 64 bytes. */
static inline void tile_config_whole(void)
{
	struct tile_config c = { .palette = 1 };

	for (int i = 0; i < 8; i++) {
		c.rows[i] = 16;
		c.row_bytes[i] = 64;
	}
	tile_config_load(&c);
}

#endif
