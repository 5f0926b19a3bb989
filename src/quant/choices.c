/* choices.c - see choices.h. */
#include "quant/choices.h"

#include <string.h>

/* A processor that is not in the table takes every operation at its highest level.
 *
 * Tokens a second of `weft bench DIR -t 2 -p 512 -n 32 --depth 0,4096 --depth-filled --cpu LEVEL`, decoding at depth 4,096, the 0.8B
 * at 4 bits, three pairs in turn, at avx512 and at avx512bf16:
 *   Xeon, Sapphire or Emerald Rapids without tiles: 49.8, 48.1, 48.7 and 43.4, 42.0, 45.1
 *   Zen 5 (EPYC): 21.4, 13.8, 17.2 and 20.8, 21.9, 21.8, on a machine with busy neighbours; so it is not in the table */
static const struct row {
	const char *vendor;
	int family, model;
	enum cpu_level best, attention;
} table[] = {
	{ "GenuineIntel", 6, 0x8F, CPU_AVX512BF16, CPU_AVX512 }, /* Sapphire Rapids */
	{ "GenuineIntel", 6, 0xCF, CPU_AVX512BF16, CPU_AVX512 }, /* Emerald Rapids */
};

struct choices choices_all(enum cpu_level level)
{
	return (struct choices){ level, level };
}

struct choices choices_of(const struct cpu_processor *p, enum cpu_level best)
{
	struct choices c = choices_all(best);

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		const struct row *r = &table[i];

		if (!strcmp(p->vendor, r->vendor) && p->family == r->family && p->model == r->model && best == r->best)
			c.attention = r->attention;
	}
	return c;
}
