/* cpu_arm.c - which levels a 64-bit Arm processor has: the kernel says it in the auxiliary vector (HWCAP), and only names
 * instructions whose registers it saves. */
#include "base/cpu_detect.h"
#include "base/cpu_system.h"

/* asm/hwcap.h of arm64; older headers do not have all. */
enum { CAP_ASIMD = 1 << 1, CAP_ASIMDDP = 1 << 20, CAP2_I8MM = 1 << 13, CAP2_BF16 = 1 << 14 };

bool cpu_detect_level(enum cpu_level level)
{
	unsigned long cap[2];

	cpu_capabilities(cap);
	switch (level) {
	case CPU_NEON: return cap[0] & CAP_ASIMD;
	case CPU_DOTPROD: return cap[0] & CAP_ASIMDDP;
	case CPU_I8MM: return cap[1] & CAP2_I8MM;
	case CPU_BF16: return cap[1] & CAP2_BF16;
	default: return false;
	}
}

void cpu_processor(struct cpu_processor *out)
{
	*out = (struct cpu_processor){ 0 };
}
