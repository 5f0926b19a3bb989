/* fault.h - work whose failure is its own.
 *
 * A failed assertion, an empty heap or a size that overflows ends the program,
 * but within fault_guard it ends the guarded call alone.  For work on one
 * request, whose data nobody else looks at: what it had allocated is lost (a
 * leak, once, in place of a crash), so the caller gives up that data unlooked at.
 * Locks that such work takes are taken as below: one that is left locked would
 * stop everybody.  Damage that is noticed as a signal other than SIGABRT still
 * ends the program: memory may be wrong everywhere. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <pthread.h>
#include <stdbool.h>

/* Calls fn(arg).  False: it was broken off; what went wrong is on standard error.
 * Any thread; calls may nest.  Takes over SIGABRT when first called. */
bool fault_guard(void (*fn)(void *arg), void *arg);

/* Around changes of what requests share: until it is unlocked a failure ends the
 * program, for what it would leave behind may be half made. */
void fault_lock(pthread_mutex_t *m);
void fault_unlock(pthread_mutex_t *m);
/* Calls fn(arg) with m locked.  Where fn is broken off m is unlocked, then its caller
 * is broken off too: so wherever fn may fail, what m is for must be sound. */
void fault_locked(pthread_mutex_t *m, void (*fn)(void *arg), void *arg);

/* For tests: the n-th allocation of this thread from now finds the heap empty;
 * guarded: only those count that a fault_guard is around.  0: none does. */
void fault_alloc_at(long n);
void fault_alloc_guarded_at(long n);
/* For alloc.c: is it this one? */
bool fault_alloc_now(void);

#endif
