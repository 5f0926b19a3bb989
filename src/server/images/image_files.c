/* image_files.c - see image_files.h. */
#include "server/images/image_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/buf.h"
#include "server/http/http.h"

struct image_folder {
	char *given, *real; /* paths without a slash at their end: as the option has it, and without links */
	int fd;
};

static char *without_slash(char *path)
{
	size_t n = strlen(path);

	while (n && path[n - 1] == '/')
		path[--n] = 0;
	return path;
}

int image_folders_open(struct image_folders *f, const char *const *path, int n, struct err *err)
{
	*f = (struct image_folders){ .v = n ? xcalloc((size_t)n, sizeof *f->v) : NULL };
	for (int i = 0; i < n; i++) {
		char *real = realpath(path[i], NULL);
		int fd = real ? open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

		if (fd < 0) {
			err_set(err, E_IO, "images of the folder %s: %s", path[i], strerror(errno));
			free(real);
			return err->code;
		}
		f->v[f->n++] = (struct image_folder){ without_slash(xstrdup(path[i])), without_slash(real), fd };
	}
	return 0;
}

void image_folders_close(struct image_folders *f)
{
	for (int i = 0; i < f->n; i++) {
		close(f->v[i].fd);
		free(f->v[i].given);
		free(f->v[i].real);
	}
	free(f->v);
	*f = (struct image_folders){ 0 };
}

/* ---- the URL ---- */

bool image_file_url(const char *url, size_t n)
{
	return n >= 5 && !strncasecmp(url, "file:", 5);
}

/* Appends the absolute path that s[0..n) spells, with %XX decoded. */
static int path_of(struct buf *path, const char *s, size_t n, struct err *err)
{
	static const char local[] = "//localhost/";
	size_t bad;

	if (n >= sizeof local - 1 && !strncasecmp(s, local, sizeof local - 1)) {
		s += sizeof local - 2;
		n -= sizeof local - 2;
	} else if (n > 2 && !memcmp(s, "///", 3)) {
		s += 2;
		n -= 2;
	}
	if (!n || s[0] != '/' || (n > 1 && s[1] == '/'))
		return err_set(err, E_ARG, "a file: URL is file:///PATH of this machine, with an absolute path");
	if (n <= 3 * PATH_MAX && http_unescape((struct http_slice){ s, n }, path, &bad))
		return err_set(
			err, E_ARG,
			!s[bad] || (n - bad > 2 && !memcmp(s + bad, "%00", 3)) ?
				"a file: URL with a zero byte at byte %zu of its path" :
				"a file: URL with a %% at byte %zu of its path that no two hexadecimal digits follow",
			bad);
	if (n > 3 * PATH_MAX || path->n >= PATH_MAX)
		return err_set(err, E_ARG, "a file: URL whose path has more than %d bytes", PATH_MAX - 1);
	return 0;
}

/* The rest of the path below the folder; NULL: it is not below it. */
static char *below(char *path, const char *folder)
{
	size_t n = strlen(folder);

	return !strncmp(path, folder, n) && path[n] == '/' ? path + n + 1 : NULL;
}

static bool climbs(const char *path)
{
	for (const char *s = path; s; s = strchr(s, '/')) {
		s += *s == '/';
		if (!strncmp(s, "..", 2) && (!s[2] || s[2] == '/'))
			return true;
	}
	return false;
}

/* ---- the file ---- */

/* Why a component of the path cannot be opened. */
static int no_file(const char *name, int error, struct err *err)
{
	if (error == ELOOP || error == ENOTDIR)
		return err_set(err, E_IO, "%s: a link or no folder; links are not followed", name);
	return err_set(err,
	               error == ENOENT                                       ? E_MISSING :
	               error == EMFILE || error == ENFILE || error == ENOMEM ? E_FULL :
	                                                                       E_IO,
	               "%s: %s", name, strerror(error));
}

/* Opens rest, which is written to, below the open folder; returns a descriptor or an error below 0. */
static int open_below(int folder, char *rest, struct err *err)
{
	int at = folder, fd = -1;
	char *next, *name = rest;

	err_set(err, E_IO, "the folder itself: no regular file");
	for (; *name; name = next) {
		size_t n = strcspn(name, "/");
		struct stat st;

		next = name + n;
		next += strspn(next, "/");
		if (!n || (n == 1 && name[0] == '.'))
			continue;
		name[n] = 0;
		if (*next)
			fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		else if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW)) /* a device is not even opened */
			fd = -1;
		else if (!S_ISREG(st.st_mode)) {
			fd = -1;
			err_set(err, E_IO, "%s: no regular file", name);
			break;
		} else
			fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0) {
			no_file(name, errno, err);
			break;
		}
		if (at != folder)
			close(at);
		at = fd;
	}
	if (fd < 0 && at != folder)
		close(at);
	return fd < 0 ? err->code : fd;
}

static int read_all(int fd, uint8_t **bytes, size_t *n_bytes, struct err *err)
{
	enum { PIECE = 1 << 18 };
	size_t at = 0, n;
	struct stat st;
	uint8_t *p;

	if (fstat(fd, &st))
		return err_set(err, E_IO, "%s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(err, E_IO, "no regular file");
	if (st.st_size > IMAGE_FILE_MAX)
		return err_set(err, E_LIMIT, "a file of %lld bytes; %d are the most", (long long)st.st_size,
		               IMAGE_FILE_MAX);
	n = (size_t)st.st_size;
	if (!allowance_spend(n / 16))
		return err_set(err, E_LIMIT, "%s", allowance_why());
	if (!(p = try_malloc(n + 1)))
		return err_set(err, E_FULL, "no memory for a file of %zu bytes", n);
	while (at < n && allowance_spend(0)) {
		ssize_t got = read(fd, p + at, n - at < PIECE ? n - at : PIECE);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			err_set(err, E_IO, "%s", got ? strerror(errno) : "the file became shorter while it was read");
			free(p);
			return err->code;
		}
		at += (size_t)got;
	}
	if (at < n) {
		free(p);
		return err_set(err, E_LIMIT, "%s", allowance_why());
	}
	*bytes = p;
	*n_bytes = n;
	return 0;
}

/* A descriptor of the file, or an error below 0. */
static int open_url(const struct image_folders *f, const char *url, size_t n, struct err *err)
{
	struct buf path;
	char *rest = NULL;
	int fd, i = 0;

	buf_init(&path);
	fd = path_of(&path, url + 5, n - 5, err);
	for (; !fd && i < f->n && !rest; i++)
		if (!(rest = below(path.p, f->v[i].real)))
			rest = below(path.p, f->v[i].given);
	if (!fd && (!rest || climbs(rest)))
		fd = err_set(err, E_ARG, "a file: URL whose path is not below a folder of --image-folder");
	else if (!fd)
		fd = open_below(f->v[i - 1].fd, rest, err);
	buf_fini(&path);
	return fd;
}

int image_file_read(const struct image_folders *f, const char *url, size_t n, uint8_t **bytes, size_t *n_bytes,
                    struct err *err)
{
	int fd, rc;

	if (!f || !f->n)
		return err_set(
			err, E_ARG,
			"a URL of kind \"file\": this server was started without --image-folder and opens nothing; "
			"send the image as a data URL (data:image/png;base64,...)");
	fd = open_url(f, url, n, err);
	if (fd < 0)
		return fd;
	rc = read_all(fd, bytes, n_bytes, err);
	close(fd);
	return rc;
}
