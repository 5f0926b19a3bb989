/* fault.c - see fault.h.
 *
 * abort() raises SIGABRT with its own lock given back, so a handler may leave it
 * by a jump (POSIX allows that: the handler "does not return"). */
#include "base/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

struct guard {
	sigjmp_buf env;
	struct guard *outer;
};

static _Thread_local struct guard *innermost;
static _Thread_local long alloc_left;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void on_abort(int signal_number)
{
	struct sigaction plain;

	if (innermost)
		siglongjmp(innermost->env, 1);
	/* Nobody's request: as if there were no handler. */
	memset(&plain, 0, sizeof plain);
	plain.sa_handler = SIG_DFL;
	sigaction(SIGABRT, &plain, NULL);
	raise(signal_number);
}

static void install(void)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_abort;
	sigemptyset(&sa.sa_mask);
	sigaction(SIGABRT, &sa, NULL);
}

bool fault_guard(void (*fn)(void *arg), void *arg)
{
	struct guard g;

	pthread_once(&once, install);
	g.outer = innermost;
	if (sigsetjmp(g.env, 1)) {
		/* g is as it was: nothing was changed in it since. */
		innermost = innermost->outer;
		return false;
	}
	innermost = &g;
	fn(arg);
	innermost = g.outer;
	return true;
}

void fault_alloc_at(long n) { alloc_left = n; }

bool fault_alloc_now(void) { return alloc_left && !--alloc_left; }
