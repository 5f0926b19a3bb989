/* memory.h - how much memory this process may have, and how short it is: of the machine, of the control groups it is in
 * (versions 1 and 2, up to the root), and by its resource limits, whichever is least.  A function of each system's folder
 * (system.h); posix/ knows the machine's memory and the limits. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>

/* Bytes that this process may have in all: the least of the machine's memory, every memory.max (or
 * memory.limit_in_bytes) of the cgroups above this process, RLIMIT_AS and RLIMIT_DATA.  Never 0. */
size_t memory_total(void);
/* Bytes that can be allocated without swapping, counting pages of files that the system would drop.  posix/: half of
 * memory_total, as POSIX does not tell. */
size_t memory_available(void);
/* Share of the last ten seconds, 0 to 1, in which some of the group's (else the machine's) tasks waited for memory; 0
 * where the system does not say. */
double memory_pressure(void);

/* Bytes of this process's resident memory that are anonymous: those of mapped files are not counted.  0 where the
 * system does not say. */
size_t memory_own(void);
/* Bytes of this process's resident memory, with mapped files.  0 where the system does not say. */
size_t memory_resident(void);

/* Tests: paths begin with this in place of "" (linux/). */
extern const char *memory_root;

#endif
