/* file.c - see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

static struct file_id id_of(const struct stat *st)
{
	return (struct file_id){
		.device = st->st_dev, .inode = st->st_ino, .bytes = (uint64_t)st->st_size,
		.changed_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec,
		.modified_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
	};
}

int file_id_get(const char *path, struct file_id *out, struct err *err)
{
	struct stat st;

	if (stat(path, &st))
		return err_set(err, errno == ENOENT ? E_MISSING : E_IO, "%s: %s", path, strerror(errno));
	*out = id_of(&st);
	return 0;
}

enum { HUGE_PAGE = 2 << 20, OWN_PIECE = 32 << 20 };

/* Addresses for n bytes that begin at a huge page: the caller's to unmap.  NULL: there are none. */
static void *huge_room(size_t n, int prot)
{
	uintptr_t at, from;
	size_t all, page = HUGE_PAGE;
	void *p;

	if (n > SIZE_MAX - page)
		return NULL;
	all = n + page;
	p = mmap(NULL, all, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	at = (uintptr_t)p;
	from = (at + page - 1) / page * page;
	if (from > at)
		munmap(p, from - at);
	n = (n + 4095) / 4096 * 4096;
	if (at + all > from + n)
		munmap((void *)(from + n), at + all - from - n);
	return (void *)from;
}

static void *map_whole(int fd, size_t n)
{
	void *room = n >= HUGE_PAGE ? huge_room(n, PROT_NONE) : NULL, *p;

	p = mmap(room, n, PROT_READ, MAP_SHARED | (room ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED && room) {
		int e = errno;

		munmap(room, n);
		errno = e;
	}
	return p;
}

int file_map_open(struct file_map *m, const char *path, struct err *err)
{
	struct stat st;
	void *p;
	int fd;

	*m = (struct file_map){0};
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, errno == ENOENT ? E_MISSING : E_IO, "%s: %s", path, strerror(errno));
	if (fstat(fd, &st)) {
		int e = errno;

		close(fd);
		return err_set(err, E_IO, "%s: %s", path, strerror(e));
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(err, E_IO, "%s: not a regular file", path);
	}
	if (st.st_size == 0) {
		close(fd);
		return 0;                 /* nothing to map; p stays NULL */
	}
	p = map_whole(fd, (size_t)st.st_size);
	if (p == MAP_FAILED) {
		int e = errno;

		close(fd);
		return err_set(err, E_IO, "%s: mmap of %lld bytes: %s", path, (long long)st.st_size,
		               strerror(e));
	}
	close(fd);
	m->p = p;
	m->n = (size_t)st.st_size;
	m->id = id_of(&st);
	return 0;
}

void file_map_close(struct file_map *m)
{
	if (m->p)
		munmap((void *)(uintptr_t)m->p, m->n);
	*m = (struct file_map){0};
}

/* What reads the old pages while they are taken away waits for the system, and finds the new ones. */
static bool own(const uint8_t *p, size_t n)
{
	void *room = huge_room(n, PROT_READ | PROT_WRITE);

	if (!room)
		return false;
	if (madvise(room, n, MADV_HUGEPAGE)) {
		munmap(room, n);
		return false;
	}
	memcpy(room, p, n);
	if (mprotect(room, n, PROT_READ) || mremap(room, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, p) == MAP_FAILED) {
		munmap(room, n);
		return false;
	}
	return true;
}

size_t file_map_own(const struct file_map *m, bool (*more)(void *arg, size_t done), void *arg)
{
	size_t whole = (uintptr_t)m->p % HUGE_PAGE ? 0 : m->n / HUGE_PAGE * HUGE_PAGE, done = 0;

	while (done < whole && more(arg, done)) {
		size_t n = whole - done < OWN_PIECE ? whole - done : OWN_PIECE;

		if (!own(m->p + done, n))
			break;
		done += n;
	}
	return done;
}

int file_read_fd(int fd, const char *name, size_t max, struct buf *out, struct err *err)
{
	char chunk[65536];
	size_t n = 0;
	ssize_t got;

	while ((got = read(fd, chunk, sizeof chunk)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(err, E_IO, "%s: %s", name, strerror(errno));
		n += (size_t)got;
		if (n > max)
			return err_set(err, E_LIMIT, "%s: more than %zu bytes", name, max);
		buf_put(out, chunk, (size_t)got);
	}
	return 0;
}

int file_read(const char *path, size_t max, struct buf *out, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return err_set(err, errno == ENOENT ? E_MISSING : E_IO, "%s: %s", path, strerror(errno));
	rc = file_read_fd(fd, path, max, out, err);
	close(fd);
	return rc;
}

int file_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, R_OK);
}

int dir_make(const char *dir, struct err *err)
{
	char *path = xstrdup(dir);
	int rc = 0;

	for (char *p = path; *p; p++) {
		if (*p != '/' || p == path)
			continue;
		*p = '\0';
		(void)mkdir(path, 0700);        /* if it fails, so does what is below */
		*p = '/';
	}
	if (mkdir(path, 0700) && errno != EEXIST)
		rc = err_set(err, E_IO, "%s: cannot make it: %s", dir, strerror(errno));
	free(path);
	return rc;
}

int file_is_special(const char *path)
{
	struct stat st;

	return !stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int dir_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}
