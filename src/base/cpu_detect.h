/* cpu_detect.h - inside base/: what each architecture's file (cpu_x86.c, cpu_arm.c, cpu_other.c) says of its processors. */
#ifndef BASE_CPU_DETECT_H
#define BASE_CPU_DETECT_H

#include "base/cpu.h"

/* Whether processor and operating system have the instructions of a level, those of its parents included.  Asked once per
 * level and process.  false for the levels of another architecture. */
bool cpu_detect_level(enum cpu_level level);

#endif
