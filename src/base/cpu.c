/* cpu.c - see cpu.h. */
#include "base/cpu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu_detect.h"
#include "base/cpu_system.h"

static const struct {
	const char *name;
	enum cpu_level parent;
} levels[CPU_LEVELS] = {
	[CPU_SCALAR] = { "scalar", CPU_SCALAR },
	[CPU_AVX2] = { "avx2", CPU_SCALAR },
	[CPU_AVXVNNI] = { "avxvnni", CPU_AVX2 },
	[CPU_AVX512] = { "avx512", CPU_AVX2 },
	[CPU_AVX512BF16] = { "avx512bf16", CPU_AVX512 },
	[CPU_AMX] = { "amx", CPU_AVX512BF16 },
	[CPU_NEON] = { "neon", CPU_SCALAR },
	[CPU_DOTPROD] = { "dotprod", CPU_NEON },
	[CPU_I8MM] = { "i8mm", CPU_DOTPROD },
	[CPU_BF16] = { "bf16", CPU_I8MM },
};

static atomic_int mask = CPU_LEVELS;

void cpu_mask(enum cpu_level most)
{
	atomic_store_explicit(&mask, (int)most, memory_order_relaxed);
}

/* A virtual machine takes tens of microseconds to answer CPUID, so the answers are kept. */
bool cpu_has(enum cpu_level level)
{
	enum { UNKNOWN, NO, YES };
	static atomic_int known[CPU_LEVELS];
	int k, most = atomic_load_explicit(&mask, memory_order_relaxed);

	if (level == CPU_SCALAR)
		return true;
	if (most != CPU_LEVELS && !cpu_level_includes((enum cpu_level)most, level))
		return false;
	k = atomic_load_explicit(&known[level], memory_order_relaxed);
	if (k == UNKNOWN) {
		k = cpu_has(levels[level].parent) && cpu_detect_level(level) ? YES : NO;
		atomic_store_explicit(&known[level], k, memory_order_relaxed);
	}
	return k == YES;
}

enum cpu_level cpu_level_next(enum cpu_level level)
{
	do
		level++;
	while (level < CPU_LEVELS && !cpu_has(level));
	return level;
}

enum cpu_level cpu_detect(void)
{
	enum cpu_level best = CPU_SCALAR;

	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
		best = l;
	return best;
}

enum cpu_level cpu_level_parent(enum cpu_level level)
{
	return levels[level].parent;
}

bool cpu_level_includes(enum cpu_level level, enum cpu_level of)
{
	while (level != of && level != CPU_SCALAR)
		level = levels[level].parent;
	return level == of;
}

const char *cpu_level_name(enum cpu_level level)
{
	return levels[level].name;
}

/* "scalar, avx2 and avx512": the levels of this machine, or of every machine. */
static const char *list_levels(char *to, size_t size, bool here)
{
	enum cpu_level list[CPU_LEVELS];
	int n = 0;
	size_t at = 0;

	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l++)
		if (!here || cpu_has(l))
			list[n++] = l;
	to[0] = 0;
	for (int i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(to + at, size - at, "%s%s",
		                       !i        ? "" :
		                       i < n - 1 ? ", " :
		                       here      ? " and " :
		                                   " or ",
		                       levels[list[i]].name);
	return to;
}

int cpu_level_parse(const char *name, enum cpu_level *out, struct err *err)
{
	char all[CPU_LEVELS * 16], have[CPU_LEVELS * 16];

	list_levels(all, sizeof all, false);
	list_levels(have, sizeof have, true);
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l++) {
		if (strcmp(name, levels[l].name))
			continue;
		if (!cpu_has(l))
			return err_set(err, E_UNSUPPORTED, "'%s': this machine has %s", name, have);
		*out = l;
		return 0;
	}
	return err_set(err, E_ARG, "'%s': must be %s (this machine has %s)", name, all, have);
}

int cpu_count(void)
{
	return cpu_usable();
}
