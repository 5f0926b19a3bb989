/* cpu_system.h - inside base/: what the operating system says of the processors.  posix/ says what is always true. */
#ifndef BASE_CPU_SYSTEM_H
#define BASE_CPU_SYSTEM_H

#include <stdbool.h>

/* Processors that this process may use, at least 1: of its affinity mask and its control group's quota; posix/: those
 * of the machine. */
int cpu_usable(void);
/* x86: asks for the tiles of AMX, 8 KB of registers that a process must ask for.  posix/: false. */
bool cpu_tiles_granted(void);
/* 64-bit Arm: words 1 and 2 of the capabilities, with the bits of Linux's asm/hwcap.h.  posix/: Advanced SIMD alone. */
void cpu_capabilities(unsigned long out[2]);

#endif
