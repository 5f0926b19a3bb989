/* posix_cpu.c - see base/cpu_system.h. */
#include "base/cpu_system.h"

#include <unistd.h>

int cpu_usable(void)
{
	/* Not in POSIX, but Linux, macOS and FreeBSD have it. */
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : (int)n;
}

bool cpu_tiles_granted(void)
{
	return false;
}

void cpu_capabilities(unsigned long out[2])
{
	enum { CAP_ASIMD = 1 << 1 };

	out[0] = CAP_ASIMD;
	out[1] = 0;
}
