/* posix_system.c - see base/system.h.  An assertion that fails ends the program: POSIX has no name for what assert calls. */
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fault.h"

void system_random(void *to, size_t n)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, to, n);

	if (fd >= 0)
		close(fd);
	if (got != (ssize_t)n)
		fault_abort();
}

uint64_t system_processes(void)
{
	char name[256] = "";

	return gethostname(name, sizeof(name)) ? 0 : check64(name, strnlen(name, sizeof(name)));
}

int system_program(char *to, size_t size, struct err *err)
{
	return err_set(err, E_UNSUPPORTED, "this system does not say where the program is");
}

int system_words(size_t max, struct buf *out, struct err *err)
{
	return err_set(err, E_UNSUPPORTED, "this system does not say how the program was called");
}

void system_background(void) {}

void system_heap_begin(void) {}

void system_heap_trim(void) {}

void system_keep_alive(int fd, int idle_s)
{
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

int system_open_direct(const char *path)
{
	errno = EINVAL;
	return -1;
}
