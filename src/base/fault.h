/* fault.h - work whose failure is its own.
 *
 * A failed assertion, an empty heap or a size that overflows ends the program,
 * but within fault_guard it ends the guarded call alone.  For work on one
 * request, whose data nobody else looks at: what it had allocated is lost (a
 * leak, once, in place of a crash), so the caller gives up that data unlooked at.
 * Locks that such work takes are taken as below: one that is left locked would
 * stop everybody.
 *
 * Only failures that this program finds by itself are survived: assertions and fault_abort.
 * Whatever comes as a signal (the allocator's report of a damaged heap, a wild pointer)
 * ends the program, since memory may be wrong everywhere and a lock may be held. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <pthread.h>
#include <stdbool.h>

/* Ends the innermost guarded call of this thread, or, outside of any, the program. */
void fault_abort(void) __attribute__((noreturn));

/* From here on a deadly signal says so in the log before it ends the program; and a file that
 * became shorter under its mapping does not end it (file.h).  Once, before threads. */
void fault_install(void);

/* Calls fn(arg).  False: it was broken off; what went wrong is on standard error.
 * Any thread; calls may nest. */
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
