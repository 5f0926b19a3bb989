/* fault.c - see fault.h.
 *
 * A failure within a guard reaches the guard by a jump: no signal is raised, and no
 * library's code is in between.  So SIGABRT comes from elsewhere: from an allocator that
 * found its data damaged, from a library or from a sanitizer. */
#include "base/fault.h"

#include <assert.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"

struct guard {
	sigjmp_buf env;
	struct guard *outer;
	int locks; /* held by this thread when it began */
};

static _Thread_local struct guard *innermost;
static _Thread_local bool no_memory; /* the reason of the last jump out of a guard */
static _Thread_local int locks;      /* of fault_lock and fault_locked */
static _Thread_local long alloc_left;
static _Thread_local bool alloc_guarded;

static void break_off(bool memory) __attribute__((noreturn));
static void break_off(bool memory)
{
	no_memory = memory;
	if (innermost && innermost->locks == locks)
		siglongjmp(innermost->env, 1);
	abort();
}

void fault_abort(void)
{
	break_off(false);
}

void fault_no_memory(void)
{
	break_off(true);
}

int fault_code(void)
{
	return no_memory ? E_MEMORY : E_FAULT;
}

const char *fault_words(int code)
{
	return code == E_MEMORY ? "there was no memory left for the work of this request" :
	                          "a fault in the server ended this request";
}

void fault_as(int code)
{
	break_off(code == E_MEMORY);
}

/* ---- signals that end the program ---- */

static const struct {
	int number;
	const char *words;
} deadly[] = {
	{ SIGABRT, "aborted outside of any guarded work: memory may be damaged, so the program ends at once" },
	{ SIGSEGV, "memory that is not there was used (SIGSEGV): the program ends at once" },
	{ SIGBUS, "memory that its file no longer holds was used (SIGBUS): the program ends at once" },
	{ SIGILL, "an instruction that this processor lacks (SIGILL): the program ends at once" },
	{ SIGFPE, "an arithmetic fault (SIGFPE): the program ends at once" },
};
enum { N_DEADLY = sizeof deadly / sizeof *deadly };

static struct sigaction before[N_DEADLY];

static void on_deadly(int number, siginfo_t *info, void *context)
{
	int i = 0;

	(void)context;
	if (number == SIGBUS && file_map_mend(info->si_addr))
		return;
	while (i + 1 < N_DEADLY && deadly[i].number != number)
		i++;
	log_last_words(deadly[i].words);
	/* The previous handler then does its work: a core file, a sanitizer's report. */
	sigaction(number, &before[i], NULL);
	raise(number);
}

void fault_install(void)
{
	for (int i = 0; i < N_DEADLY; i++) {
		struct sigaction sa;

		memset(&sa, 0, sizeof sa);
		sa.sa_sigaction = on_deadly;
		/* The stack that sanitizers set aside, where there is one. */
		sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
		sigemptyset(&sa.sa_mask);
		sigaction(deadly[i].number, &sa, &before[i]);
	}
}

/* ---- guards ---- */

bool fault_guard(void (*fn)(void *arg), void *arg)
{
	struct guard g;

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
		break_off(no_memory);
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
