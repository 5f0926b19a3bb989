/* cpu.c - see cpu.h. */
#include "base/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Tiles are 8 KB of registers that Linux gives only to those who ask. */
static bool tiles_granted(void)
{
	enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 }; /* asm/prctl.h; not in every libc's headers */

	return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
}

/* Asked once: a virtual machine takes tens of microseconds to answer. */
bool cpu_has_avxvnni(void)
{
	enum { UNKNOWN, NO, YES };
	static atomic_int known;
	int k = atomic_load_explicit(&known, memory_order_relaxed);
	unsigned a, b, c, d;

	if (k == UNKNOWN) {
		k = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) ? YES : NO; /* CPUID 7.1 EAX */
		atomic_store_explicit(&known, k, memory_order_relaxed);
	}
	return k == YES;
}

/* CPUID says what the processor has, XGETBV which registers the system saves. */
enum cpu_level cpu_detect(void)
{
	unsigned a, b, c, d, lo, hi;

	if (!__get_cpuid(1, &a, &b, &c, &d))
		return CPU_SCALAR;
	if (!(c & bit_FMA) || !(c & bit_F16C) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
		return CPU_SCALAR;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	if ((lo & 0x06) != 0x06) /* XMM and YMM state */
		return CPU_SCALAR;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
		return CPU_SCALAR;
	if ((lo & 0xE6) != 0xE6) /* opmask and both halves of ZMM */
		return cpu_has_avxvnni() ? CPU_AVXVNNI : CPU_AVX2;
	if ((b & bit_AVX512F) && (b & bit_AVX512BW) && (b & bit_AVX512VL) && (b & bit_AVX512DQ) &&
	    (c & bit_AVX512VNNI)) {
		const unsigned amx = 1u << 22 | 1u << 24 | 1u << 25; /* CPUID 7 EDX: bf16, tile, int8 */
		const unsigned bf16 = 1u << 5;                       /* CPUID 7.1 EAX: AVX-512 BF16 */
		bool tiles = (d & amx) == amx && (lo & 0x60000) == 0x60000;

		if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & bf16))
			return CPU_AVX512;
		return tiles && tiles_granted() ? CPU_AMX : CPU_AVX512BF16;
	}
	return cpu_has_avxvnni() ? CPU_AVXVNNI : CPU_AVX2;
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
#else
void cpu_processor(struct cpu_processor *out)
{
	*out = (struct cpu_processor){ 0 };
}
bool cpu_has_avxvnni(void)
{
	return false;
}
enum cpu_level cpu_detect(void)
{
	return CPU_SCALAR;
}
#endif

static const char *const names[CPU_LEVELS] = { "scalar", "avx2", "avxvnni", "avx512", "avx512bf16", "amx" };

const char *cpu_level_name(enum cpu_level level)
{
	return names[level];
}

int cpu_level_parse(const char *name, enum cpu_level *out, struct err *err)
{
	enum cpu_level have = cpu_detect();

	for (int i = 0; i < CPU_LEVELS; i++) {
		if (strcmp(name, names[i]))
			continue;
		if (i > (int)have)
			return err_set(err, E_UNSUPPORTED, "--cpu %s: this machine has up to %s", name, names[have]);
		if (i == CPU_AVXVNNI && !cpu_has_avxvnni())
			return err_set(err, E_UNSUPPORTED, "--cpu %s: this machine has %s without AVX-VNNI", name,
			               names[have]);
		*out = (enum cpu_level)i;
		return 0;
	}
	return err_set(err, E_ARG,
	               "--cpu %s: must be scalar, avx2, avxvnni, avx512, avx512bf16 or amx (this machine has up to %s)",
	               name, names[have]);
}

/* cgroup version 2: "max 100000" or "QUOTA PERIOD", in microseconds. */
static int quota_count(void)
{
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
	long quota, period;
	int n = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%ld %ld", &quota, &period) == 2 && quota > 0 && period > 0)
		n = (int)((quota + period - 1) / period);
	fclose(f);
	return n;
}

int cpu_count(void)
{
	cpu_set_t set;
	int n = 1, q = quota_count();

	if (!sched_getaffinity(0, sizeof set, &set))
		n = CPU_COUNT(&set);
	if (q > 0 && q < n)
		n = q;
	return n < 1 ? 1 : n;
}
