/* file.c - see file.h. */
#include "base/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/pages.h"

static struct file_id id_of(const struct stat *st)
{
	return (struct file_id){
		.device = st->st_dev,
		.inode = st->st_ino,
		.bytes = (uint64_t)st->st_size,
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

int file_id_of(int fd, struct file_id *out)
{
	struct stat st;

	if (fstat(fd, &st))
		return -1;
	*out = id_of(&st);
	return 0;
}

enum { OWN_PIECE = 32 << 20 };

/* ---- files that become shorter ---- */

/* The mappings there are.  A slot is taken by its path, filled, and then shown by its address: the
 * handler reads it at any moment. */
enum { MAPPINGS_MAX = 4096 }; /* as many files as models are cut into, and more; the rest are not mended */
static struct mapping {
	_Atomic(char *) path;
	_Atomic(const uint8_t *) p;
	size_t n;
} mappings[MAPPINGS_MAX];
static _Atomic(const char *) lost;

static void mapping_show(const char *path, const void *p, size_t n)
{
	char *name = xstrdup(path);

	for (int i = 0; i < MAPPINGS_MAX; i++) {
		char *none = NULL;

		if (!atomic_compare_exchange_strong(&mappings[i].path, &none, name))
			continue;
		mappings[i].n = n;
		atomic_store(&mappings[i].p, p);
		return;
	}
	free(name);
}

static void mapping_hide(const void *p)
{
	for (int i = 0; i < MAPPINGS_MAX; i++) {
		char *name;

		if (atomic_load(&mappings[i].p) != p)
			continue;
		atomic_store(&mappings[i].p, NULL);
		name = atomic_exchange(&mappings[i].path, NULL);
		if (name != atomic_load(&lost)) /* which is kept for good */
			free(name);
		return;
	}
}

const char *file_lost(void)
{
	return atomic_load_explicit(&lost, memory_order_acquire);
}

bool file_map_mend(const void *address)
{
	uintptr_t at = (uintptr_t)address;
	int e = errno;

	for (int i = 0; i < MAPPINGS_MAX; i++) {
		uintptr_t from = (uintptr_t)atomic_load(&mappings[i].p);
		const char *none = NULL;

		if (!from || at < from || at - from >= mappings[i].n)
			continue;
		/* First, so that no thread reads zeros before file_lost can tell it. */
		atomic_compare_exchange_strong(&lost, &none, atomic_load(&mappings[i].path));
		/* One page: its neighbours may be the process's own already (file_map_own). */
		at &= ~(uintptr_t)(page_bytes() - 1);
		if (!pages_blank((void *)at, page_bytes()))
			return false;
		errno = e;
		return true;
	}
	return false;
}

static void *map_whole(int fd, size_t n)
{
	void *room = n >= HUGE_PAGE_BYTES ? pages_room(n, false) : NULL, *p;

	p = mmap(room, n, PROT_READ, MAP_SHARED | (room ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED && room) {
		int e = errno;

		pages_free(room, n);
		errno = e;
	}
	return p;
}

int file_map_open(struct file_map *m, const char *path, struct err *err)
{
	struct stat st;
	void *p;
	int fd;

	*m = (struct file_map){ 0 };
	/* O_NONBLOCK: opening a pipe would wait for a writer, before its kind can be seen. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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
		return 0; /* nothing to map; p stays NULL */
	}
	p = map_whole(fd, (size_t)st.st_size);
	if (p == MAP_FAILED) {
		int e = errno;

		close(fd);
		return err_set(err, E_IO, "%s: mmap of %lld bytes: %s", path, (long long)st.st_size, strerror(e));
	}
	close(fd);
	mapping_show(path, p, (size_t)st.st_size);
	m->p = p;
	m->n = (size_t)st.st_size;
	m->id = id_of(&st);
	return 0;
}

void file_map_close(struct file_map *m)
{
	if (m->p)
		mapping_hide(m->p);
	if (m->p)
		munmap((void *)(uintptr_t)m->p, m->n);
	*m = (struct file_map){ 0 };
}

/* A read of an old page during the replacement waits in the system, and then finds the new page. */
static bool own(const uint8_t *p, size_t n)
{
	void *room = pages_room(n, true);

	if (!room)
		return false;
	if (!pages_huge(room, n)) {
		pages_free(room, n);
		return false;
	}
	memcpy(room, p, n);
	if (!pages_seal(room, n) || !pages_move(room, n, (void *)(uintptr_t)p)) {
		pages_free(room, n);
		return false;
	}
	return true;
}

/* Narrows [from, to) to the first and last boundary of pages of `page` bytes within it; to < from: no page fits. */
static void whole_within(const struct file_map *m, size_t page, size_t *from, size_t *to)
{
	uintptr_t at = (uintptr_t)m->p;

	*from = (at + *from + page - 1) / page * page - at;
	*to = (at + *to) / page * page > at ? (at + *to) / page * page - at : 0;
}

size_t file_map_own(const struct file_map *m, size_t from, size_t to, bool (*more)(void *arg, size_t done), void *arg)
{
	size_t done = 0;

	assert(from <= to && to <= m->n);
	whole_within(m, HUGE_PAGE_BYTES, &from, &to);
	while (from + done < to && more(arg, done)) {
		size_t left = to - from - done, n = left < OWN_PIECE ? left : OWN_PIECE;

		if (!own(m->p + from + done, n))
			break;
		done += n;
	}
	return done;
}

void file_map_drop(const struct file_map *m, size_t from, size_t to)
{
	assert(from <= to && to <= m->n);
	whole_within(m, page_bytes(), &from, &to);
	if (from < to)
		pages_unload(m->p + from, to - from);
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

int file_pipe(int ends[2], int flags)
{
	if (pipe(ends))
		return -1;
	for (int i = 0; i < 2; i++) {
		fcntl(ends[i], F_SETFD, FD_CLOEXEC);
		fcntl(ends[i], F_SETFL, flags);
	}
	return 0;
}

int file_write_at(int fd, const void *p, size_t n, uint64_t at)
{
	const char *from = p;

	while (n) {
		ssize_t put = pwrite(fd, from, n, (off_t)at);

		if (put < 0 && errno == EINTR)
			continue;
		if (!put)
			errno = ENOSPC;
		if (put <= 0)
			return -1;
		from += put;
		at += (uint64_t)put;
		n -= (size_t)put;
	}
	return 0;
}

int file_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, R_OK);
}

int dir_make_for(const char *dir, mode_t mode, struct err *err)
{
	char *path = xstrdup(dir);
	int rc = 0;

	for (char *p = path; *p; p++) {
		if (*p != '/' || p == path)
			continue;
		*p = '\0';
		(void)mkdir(path, mode); /* if it fails, so does what is below */
		*p = '/';
	}
	if (mkdir(path, mode) && errno != EEXIST)
		rc = err_set(err, E_IO, "%s: cannot make it: %s", dir, strerror(errno));
	free(path);
	return rc;
}

int dir_make(const char *dir, struct err *err)
{
	return dir_make_for(dir, 0700, err);
}

int file_is_special(const char *path)
{
	struct stat st;

	return !stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int file_refuse_special(const char *path, struct err *err)
{
	return file_is_special(path) ? err_set(err, E_IO, "%s: not a regular file", path) : 0;
}

int dir_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

int dir_remove(const char *path, struct err *err)
{
	if (!dir_exists(path) || !nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS))
		return 0;
	return err_set(err, E_IO, "%s: cannot be removed: %s", path, strerror(errno));
}
