/* fault.h - work whose failure is its own.
 *
 * A failed assertion, a lack of memory or a size that overflows ends the program,
 * but within fault_guard it ends the guarded call alone.  For work on one
 * request, whose data no other thread reads: its allocations are lost (a leak,
 * once, in place of a crash), and the caller drops its data without reading them.
 * Such work takes locks through fault_lock or fault_locked: a lock left locked
 * would stop every thread.
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
/* Does the same, for want of memory. */
void fault_no_memory(void) __attribute__((noreturn));
/* Why the guarded call of this thread that was last broken off ended: E_MEMORY, for want of memory, or E_FAULT. */
int fault_code(void);
/* The sentence that a client gets for E_FAULT or E_MEMORY. */
const char *fault_words(int code);
/* Does as fault_abort, for the reason that another call ended with: E_MEMORY or E_FAULT. */
void fault_as(int code) __attribute__((noreturn));

/* Installs the signal handlers: a deadly signal is logged before it ends the program, and a file that
 * became shorter under its mapping does not end it (file.h).  Call once, before threads start. */
void fault_install(void);

/* Calls fn(arg).  False: fn was broken off, and the reason is on standard error.
 * Any thread; calls may nest. */
bool fault_guard(void (*fn)(void *arg), void *arg);

/* Lock m around changes of data that requests share: a failure before fault_unlock ends the
 * program, since the data may be half changed. */
void fault_lock(pthread_mutex_t *m);
void fault_unlock(pthread_mutex_t *m);
/* Calls fn(arg) with m locked.  When fn is broken off, m is unlocked and the caller is broken off too:
 * so the data that m protects must be sound wherever fn may fail. */
void fault_locked(pthread_mutex_t *m, void (*fn)(void *arg), void *arg);

/* For tests: the n-th allocation of this thread from now finds the heap empty;
 * guarded: only those count that a fault_guard is around.  0: none does. */
void fault_alloc_at(long n);
void fault_alloc_guarded_at(long n);
/* For alloc.c: whether the allocation about to be made is the one that fault_alloc_at chose to fail. */
bool fault_alloc_now(void);

#endif
