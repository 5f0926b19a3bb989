/* linux_system.c - see base/system.h; glibc's allocator. */
#include "base/system.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fault.h"
#include "base/file.h"

void system_random(void *to, size_t n)
{
	if (getrandom(to, n, 0) != (ssize_t)n)
		fault_abort();
}

uint64_t system_processes(void)
{
	char text[128];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t boot = fd < 0 ? -1 : read(fd, text, sizeof(text) / 2), space;

	if (fd >= 0)
		close(fd);
	if (boot <= 0)
		return 0;
	space = readlink("/proc/self/ns/pid", text + boot, sizeof(text) - (size_t)boot);
	return space <= 0 ? 0 : check64(text, (size_t)(boot + space));
}

int system_program(char *to, size_t size, struct err *err)
{
	ssize_t n = readlink("/proc/self/exe", to, size - 1);

	if (n < 0)
		return err_set(err, E_IO, "/proc/self/exe does not say where this program is: %m");
	to[n] = '\0';
	return 0;
}

int system_words(size_t max, struct buf *out, struct err *err)
{
	return file_read("/proc/self/cmdline", max, out, err);
}

void system_background(void)
{
	setpriority(PRIO_PROCESS, (id_t)gettid(), 19); /* refused: the thread only competes more */
}

void system_heap_begin(void)
{
	/* Without glibc's bins of small chunks that are not merged when they are freed: after a large JSON text they hold
	 * millions, and the next large malloc or free would merge them all, for 50 ms. */
	mallopt(M_MXFAST, 0);
	/* Bodies and replies have pages of their own, which return to the system with them.  glibc moves this limit up to
	 * 32 MB otherwise, and what lies in an arena stays resident when it is freed after the last malloc_trim. */
	mallopt(M_MMAP_THRESHOLD, 4 << 20);
}

void system_heap_trim(void)
{
	malloc_trim(0);
}

void system_keep_alive(int fd, int idle_s)
{
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
}

int system_open_direct(const char *path)
{
	return open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
}

/* In place of the C library's, for assert: an assertion that fails ends the request, not the program (fault.h).  Its
 * name and types are given. */
void __assert_fail(const char *what, const char *file, unsigned int line, const char *function)
{
	fprintf(stderr, "weft: %s:%u: %s: assertion `%s' failed\n", file, line, function, what);
	fault_abort();
}
