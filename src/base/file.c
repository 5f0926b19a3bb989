/* file.c - see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
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

int file_read(const char *path, size_t max, struct buf *out, struct err *err)
{
	char chunk[65536];
	size_t n = 0;
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, errno == ENOENT ? E_MISSING : E_IO, "%s: %s", path, strerror(errno));
	while ((got = read(fd, chunk, sizeof chunk)) != 0) {
		if (got < 0) {
			int e = errno;

			if (e == EINTR)
				continue;
			close(fd);
			return err_set(err, E_IO, "%s: %s", path, strerror(e));
		}
		n += (size_t)got;
		if (n > max) {
			close(fd);
			return err_set(err, E_LIMIT, "%s: more than %zu bytes", path, max);
		}
		buf_put(out, chunk, (size_t)got);
	}
	close(fd);
	return 0;
}

int file_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, R_OK);
}

int dir_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}
