/* cpu.h - what this processor can do, as a few named generations of instructions.
 *
 * A level is a whole generation, not a feature.  Each has one parent, whose kernels it takes where it has none of its own
 * (quant/level_kernels.h), so levels are a tree with plain C at its root: each architecture is a branch.
 * Levels are compared with cpu_level_includes and counted with cpu_level_next, never by their numbers. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>

#include "base/err.h"

enum cpu_level {
	CPU_SCALAR,     /* C only */
	CPU_AVX2,       /* AVX2, FMA, F16C */
	CPU_AVXVNNI,    /* AVX2 and vpdpbusd on its registers (Alder Lake, Zen 5) */
	CPU_AVX512,     /* AVX-512 F BW VL DQ VNNI (Ice Lake, Zen 4) */
	CPU_AVX512BF16, /* and vdpbf16ps, VBMI (Sapphire Rapids, Zen 4) */
	CPU_AMX,        /* and tiles of int8 and bf16 (Sapphire Rapids) */
	CPU_NEON,       /* 64-bit Arm: Advanced SIMD, which all of them have */
	CPU_DOTPROD,    /* and sdot (Armv8.2 DotProd: Cortex-A76, Neoverse N1, Apple M1) */
	CPU_I8MM,       /* and smmla (Armv8.6 I8MM: Neoverse V1, Cortex-X2, Apple M2) */
	CPU_BF16,       /* and bfmmla (Armv8.6 BF16: most of those that have I8MM) */
	CPU_LEVELS
};

/* Whether processor and operating system have the level, and it is not masked.  The first call for CPU_AMX asks the
 * kernel for the tiles. */
bool cpu_has(enum cpu_level level);
/* From now on the process has `most` and the levels that it adds to, and no others, whatever the processor has; CPU_LEVELS:
 * all again.  For --cpu: call it before threads start. */
void cpu_mask(enum cpu_level most);
/* The best level of this machine: the last in the list that it has. */
enum cpu_level cpu_detect(void);
/* The next level after this one in the list that this machine has; CPU_LEVELS: there is none.  A loop over all:
 *     for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) */
enum cpu_level cpu_level_next(enum cpu_level level);
/* The level that this one adds to; CPU_SCALAR's is itself. */
enum cpu_level cpu_level_parent(enum cpu_level level);
/* Whether a level is `of` or adds to it, at any distance. */
bool cpu_level_includes(enum cpu_level level, enum cpu_level of);
const char *cpu_level_name(enum cpu_level level); /* "scalar", "avx512bf16" */

/* Which processor this is, as CPUID leaves 0 and 1 say; zeros where there is no CPUID. */
struct cpu_processor {
	char vendor[13]; /* "GenuineIntel", "AuthenticAMD" */
	int family, model;
};
void cpu_processor(struct cpu_processor *out);

/* Parses a name.  E_ARG for an unknown one, E_UNSUPPORTED for one that this
 * machine does not have; the message says which levels it has. */
int cpu_level_parse(const char *name, enum cpu_level *out, struct err *err);

/* Processors this process may use: affinity mask and cgroup quota, at least 1. */
int cpu_count(void);

#endif
