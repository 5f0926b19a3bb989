/* Any bytes as a file: URL of an image, as they are and behind the folder's own path in its spellings: refused with a
 * message, or the bytes of a file that lies in the folder; never those beside it, behind a link or in a pipe. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "server/images/image_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char root[] = "/tmp/weft-fuzz-XXXXXX";
static struct image_folders folders;

static void put(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		abort();
	close(fd);
}

static void remove_all(void)
{
	static const char *const name[] = { "in/a.png", "in/b c", "in/d/e", "in/d/up", "in/out", "in/home",
		                            "in/pipe",  "in/d",   "in",     "secret",  "inside" };
	int dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	image_folders_close(&folders);
	for (size_t i = 0; i < sizeof name / sizeof *name; i++)
		if (unlinkat(dir, name[i], 0))
			unlinkat(dir, name[i], AT_REMOVEDIR);
	close(dir);
	rmdir(root);
}

/* A folder "in" with files, links that lead out of it and a pipe, beside files that nobody may read. */
static void make(void)
{
	char in[sizeof root + 3];
	const char *path = in;
	struct err err;
	int dir;

	if (!mkdtemp(root) || (dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		abort();
	snprintf(in, sizeof in, "%s/in", root);
	if (mkdirat(dir, "in", 0700) || mkdirat(dir, "in/d", 0700) || mkfifoat(dir, "in/pipe", 0600) ||
	    symlinkat("../../secret", dir, "in/d/up") || symlinkat("../secret", dir, "in/out") ||
	    symlinkat("..", dir, "in/home"))
		abort();
	put(dir, "in/a.png", "in: a");
	put(dir, "in/b c", "in: b");
	put(dir, "in/d/e", "in: e");
	put(dir, "secret", "out");
	put(dir, "inside", "out");
	close(dir);
	if (image_folders_open(&folders, &path, 1, &err))
		abort();
	atexit(remove_all);
}

static void try_url(const char *before, const char *folder, const uint8_t *data, size_t size)
{
	struct err err = { 0 };
	uint8_t *bytes = NULL;
	size_t n = 0;
	struct buf url;

	buf_init(&url);
	buf_puts(&url, before);
	buf_puts(&url, folder);
	buf_put(&url, data, size);
	if (image_file_url(url.p, url.n)) {
		if (!image_file_read(&folders, url.p, url.n, &bytes, &n, &err)) {
			if (n != 5 || memcmp(bytes, "in: ", 4))
				abort();
			free(bytes);
		} else if (!err.msg[0] || bytes)
			abort();
	}
	buf_fini(&url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!folders.n)
		make();
	try_url("", "", data, size);
	try_url("file:", "", data, size);
	try_url("file://", root, data, size);
	try_url("FILE://localhost", root, data, size);
	try_url("file://", root, (const uint8_t *)"/in/", 4);
	for (size_t at = 0; at <= size; at++) /* the input cut in two by the folder's name, escaped in part */
		if (at == size || data[at] == '|') {
			struct buf b;

			buf_init(&b);
			buf_put(&b, data, at);
			buf_puts(&b, "/%69n/");
			buf_put(&b, data + at, size - at);
			try_url("file://", root, (const uint8_t *)b.p, b.n);
			buf_fini(&b);
			break;
		}
	return 0;
}
