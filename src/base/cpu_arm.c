/* cpu_arm.c - which levels a 64-bit Arm processor has: the kernel says it in the auxiliary vector (HWCAP), and only names
 * instructions whose registers it saves. */
#include <sys/auxv.h>

#include "base/cpu_detect.h"

/* asm/hwcap.h of arm64; older headers do not have all. */
enum { CAP_ASIMD = 1 << 1, CAP_ASIMDDP = 1 << 20, CAP2_I8MM = 1 << 13 };

bool cpu_detect_level(enum cpu_level level)
{
	switch (level) {
	case CPU_NEON: return getauxval(AT_HWCAP) & CAP_ASIMD;
	case CPU_DOTPROD: return getauxval(AT_HWCAP) & CAP_ASIMDDP;
	case CPU_I8MM: return getauxval(AT_HWCAP2) & CAP2_I8MM;
	default: return false;
	}
}

void cpu_processor(struct cpu_processor *out)
{
	*out = (struct cpu_processor){ 0 };
}
