/* cpu_x86.c - which levels an x86-64 processor has: CPUID says what the processor has, XGETBV which registers the
 * system saves. */
#include <cpuid.h>
#include <string.h>

#include "base/cpu_detect.h"
#include "base/cpu_system.h"

enum { EAX, EBX, ECX, EDX };

/* Bits of CPUID leaf 7.1 that cpuid.h of the compilers in use has no name for. */
enum { LEAF71_EAX_AVXVNNI = 1 << 4, LEAF71_EAX_AVX512BF16 = 1 << 5 };
/* Bits of leaf 7 EDX: bf16, tile, int8. */
enum { LEAF7_EDX_AMX = 1 << 22 | 1 << 24 | 1 << 25 };
/* Registers that the system saves, of XCR0: XMM and YMM; opmask and both halves of ZMM; tiles. */
enum { XCR0_AVX = 0x06, XCR0_AVX512 = 0xE6, XCR0_TILES = 0x60000 };

/* All bits of `want` in a register of a CPUID leaf. */
static bool has_bits(unsigned leaf, unsigned sub, int which, unsigned want)
{
	unsigned r[4];

	return __get_cpuid_count(leaf, sub, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) && (r[which] & want) == want;
}

static bool saves(unsigned registers)
{
	unsigned lo, hi;

	if (!has_bits(1, 0, ECX, bit_OSXSAVE))
		return false;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (lo & registers) == registers;
}

bool cpu_detect_level(enum cpu_level level)
{
	switch (level) {
	case CPU_AVX2:
		return has_bits(1, 0, ECX, bit_FMA | bit_F16C | bit_AVX) && saves(XCR0_AVX) &&
		       has_bits(7, 0, EBX, bit_AVX2);
	case CPU_AVXVNNI: return has_bits(7, 1, EAX, LEAF71_EAX_AVXVNNI);
	case CPU_AVX512:
		return saves(XCR0_AVX512) &&
		       has_bits(7, 0, EBX, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) &&
		       has_bits(7, 0, ECX, bit_AVX512VNNI);
	/* Both, of all processors that have bf16 but those of 2020 (Cooper Lake), which stay at avx512. */
	case CPU_AVX512BF16: return has_bits(7, 1, EAX, LEAF71_EAX_AVX512BF16) && has_bits(7, 0, ECX, bit_AVX512VBMI);
	case CPU_AMX: return has_bits(7, 0, EDX, LEAF7_EDX_AMX) && saves(XCR0_TILES) && cpu_tiles_granted();
	default: return false;
	}
}

void cpu_processor(struct cpu_processor *out)
{
	unsigned a, b, c, d;

	*out = (struct cpu_processor){ 0 };
	if (!__get_cpuid(0, &a, &b, &c, &d))
		return;
	memcpy(out->vendor, &b, 4);
	memcpy(out->vendor + 4, &d, 4);
	memcpy(out->vendor + 8, &c, 4);
	if (!__get_cpuid(1, &a, &b, &c, &d))
		return;
	out->family = (int)(a >> 8 & 15);
	out->model = (int)(a >> 4 & 15);
	if (out->family == 6 || out->family == 15)
		out->model |= (int)(a >> 12 & 0xF0);
	if (out->family == 15)
		out->family += (int)(a >> 20 & 255);
}
