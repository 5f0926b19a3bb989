/* cpu_other.c - processors that have no level but plain C. */
#include "base/cpu_detect.h"

bool cpu_detect_level(enum cpu_level level)
{
	return false;
}

void cpu_processor(struct cpu_processor *out)
{
	*out = (struct cpu_processor){ 0 };
}
