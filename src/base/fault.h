/* fault.h - work whose failure is its own.
 *
 * A failed assertion, an empty heap or a size that overflows ends the program,
 * but within fault_guard it ends the guarded call alone.  For work on one
 * request, whose data nobody else looks at: what it had allocated is lost (a
 * leak, once, in place of a crash), so the caller gives up that data unlooked at.
 * It must not hold a lock where it could fail.  Damage that is noticed as a signal
 * other than SIGABRT still ends the program: memory may be wrong everywhere. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>

/* Calls fn(arg).  False: it was broken off; what went wrong is on standard error.
 * Any thread; calls may nest.  Takes over SIGABRT when first called. */
bool fault_guard(void (*fn)(void *arg), void *arg);

/* For tests: the n-th allocation of this thread from now finds the heap empty;
 * 0: none does. */
void fault_alloc_at(long n);
/* For alloc.c: is it this one? */
bool fault_alloc_now(void);

#endif
