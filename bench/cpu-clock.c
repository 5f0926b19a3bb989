/* cpu-clock.c - lets `weft bench -t 1` count the thread's processor time instead of
 * the wall's, for machines that others use as well:
 *
 *     cc -O2 -shared -fPIC -o /tmp/cpu-clock.so bench/cpu-clock.c
 *     LD_PRELOAD=/tmp/cpu-clock.so weft bench MODEL -t 1 --profile
 *
 * Means nothing with more than one thread: only the caller's time is seen. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t)
{
	return (int)syscall(SYS_clock_gettime, id == CLOCK_MONOTONIC ? CLOCK_THREAD_CPUTIME_ID : id, t);
}
