/* cpu.h - what this processor can do, as a few named generations.
 *
 * A level is a whole generation of instructions, not a feature: kernels are
 * chosen per level, scalar first, then overwritten upward. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>

#include "base/err.h"

enum cpu_level {
	CPU_SCALAR,     /* C only */
	CPU_AVX2,       /* AVX2, FMA, F16C */
	CPU_AVXVNNI,    /* and vpdpbusd on AVX2's registers (Alder Lake, Zen 5).  A level below AVX-512
	                 * that some processors with AVX-512 lack: there it is the same as AVX2 */
	CPU_AVX512,     /* AVX-512 F BW VL DQ VNNI (Ice Lake, Zen 4) */
	CPU_AVX512BF16, /* and vdpbf16ps (Cooper Lake, Zen 4) */
	CPU_AMX,        /* and tiles of int8 and bf16 (Sapphire Rapids) */
	CPU_LEVELS
};

/* The highest level that processor and operating system support.  Where that is
 * CPU_AMX, the process has asked the kernel for the tiles when this returns. */
enum cpu_level cpu_detect(void);
/* Whether the processor has the instructions that CPU_AVXVNNI adds. */
bool cpu_has_avxvnni(void);
const char *cpu_level_name(enum cpu_level level); /* "scalar" "avx2" "avxvnni" "avx512" "avx512bf16" "amx" */

/* Which processor this is, as CPUID leaves 0 and 1 say; zeros where there is no CPUID. */
struct cpu_processor {
	char vendor[13]; /* "GenuineIntel", "AuthenticAMD" */
	int family, model;
};
void cpu_processor(struct cpu_processor *out);

/* Parses a name.  E_ARG for an unknown one, E_UNSUPPORTED for one above what
 * this machine has; the message says which levels it has. */
int cpu_level_parse(const char *name, enum cpu_level *out, struct err *err);

/* Processors this process may use: affinity mask and cgroup quota, at least 1. */
int cpu_count(void);

#endif
