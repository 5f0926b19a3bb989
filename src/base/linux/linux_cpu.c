/* linux_cpu.c - see base/cpu_system.h. */
#include "base/cpu_system.h"

#include <sched.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

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

int cpu_usable(void)
{
	cpu_set_t set;
	int n = 1, q = quota_count();

	if (!sched_getaffinity(0, sizeof set, &set))
		n = CPU_COUNT(&set);
	if (q > 0 && q < n)
		n = q;
	return n < 1 ? 1 : n;
}

bool cpu_tiles_granted(void)
{
#ifdef SYS_arch_prctl
	enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 }; /* asm/prctl.h; not in every libc's headers */

	return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
	return false;
#endif
}

void cpu_capabilities(unsigned long out[2])
{
	out[0] = getauxval(AT_HWCAP);
	out[1] = getauxval(AT_HWCAP2);
}
