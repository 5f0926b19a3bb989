/* fault.c - see fault.h.
 *
 * abort() raises SIGABRT with its own lock given back, so a handler may leave it
 * by a jump (POSIX allows that: the handler "does not return").  What the thread
 * blocks is put back before the jump and not by it, so a guard costs no system call. */
#include "base/fault.h"

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct guard {
	sigjmp_buf env;
	struct guard *outer;
	int locks; /* held by this thread when it began */
};

static _Thread_local struct guard *innermost;
static _Thread_local int locks; /* of fault_lock and fault_locked */
static _Thread_local long alloc_left;
static _Thread_local bool alloc_guarded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void on_abort(int signal_number, siginfo_t *info, void *context)
{
	struct sigaction plain;

	if (innermost && innermost->locks == locks) {
		pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
		siglongjmp(innermost->env, 1);
	}
	/* Nobody's request, or more than one's: as if there were no handler. */
	memset(&plain, 0, sizeof plain);
	plain.sa_handler = SIG_DFL;
	sigaction(SIGABRT, &plain, NULL);
	raise(signal_number);
}

static void install(void)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = on_abort;
	sa.sa_flags = SA_SIGINFO;
	sigemptyset(&sa.sa_mask);
	sigaction(SIGABRT, &sa, NULL);
}

bool fault_guard(void (*fn)(void *arg), void *arg)
{
	struct guard g;

	pthread_once(&once, install);
	g.outer = innermost;
	g.locks = locks;
	if (sigsetjmp(g.env, 0)) {
		/* g is as it was: nothing was changed in it since. */
		innermost = innermost->outer;
		return false;
	}
	innermost = &g;
	fn(arg);
	innermost = g.outer;
	return true;
}

void fault_lock(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	locks++;
}

void fault_unlock(pthread_mutex_t *m)
{
	locks--;
	pthread_mutex_unlock(m);
}

void fault_locked(pthread_mutex_t *m, void (*fn)(void *arg), void *arg)
{
	bool whole;

	fault_lock(m);
	whole = fault_guard(fn, arg);
	fault_unlock(m);
	if (!whole)
		abort();
}

void fault_alloc_at(long n)
{
	alloc_left = n;
	alloc_guarded = false;
}

void fault_alloc_guarded_at(long n)
{
	alloc_left = n;
	alloc_guarded = true;
}

bool fault_alloc_now(void)
{
	return alloc_left && (!alloc_guarded || (innermost && innermost->locks == locks)) && !--alloc_left;
}
