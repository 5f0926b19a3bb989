/* test_choices.c - which level's arithmetic is chosen on which processor. */
#include <assert.h>
#include <string.h>

#include "quant/choices.h"

static void expect(const char *vendor, int family, int model, enum cpu_level best, enum cpu_level attention)
{
	struct cpu_processor p = { .family = family, .model = model };
	struct choices c;

	strcpy(p.vendor, vendor);
	c = choices_of(&p, best);
	assert(c.level == best && c.attention == attention);
}

int main(void)
{
	struct cpu_processor p;
	struct choices c;

	expect("GenuineIntel", 6, 0x8F, CPU_AVX512BF16, CPU_AVX512);
	expect("GenuineIntel", 6, 0xCF, CPU_AVX512BF16, CPU_AVX512);
	/* With tiles, and held to an older level. */
	expect("GenuineIntel", 6, 0x8F, CPU_AMX, CPU_AMX);
	expect("GenuineIntel", 6, 0x8F, CPU_AVX2, CPU_AVX2);
	/* Others: a Zen 5, the same numbers of another vendor, none. */
	expect("AuthenticAMD", 26, 2, CPU_AVX512BF16, CPU_AVX512BF16);
	expect("AuthenticAMD", 6, 0x8F, CPU_AVX512BF16, CPU_AVX512BF16);
	expect("", 0, 0, CPU_SCALAR, CPU_SCALAR);

	cpu_processor(&p);
	assert(strlen(p.vendor) == 12 || (!*p.vendor && !cpu_has(CPU_AVX2)));
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l++) {
		c = choices_all(l);
		assert(c.level == l && c.attention == l);
	}
	return 0;
}
