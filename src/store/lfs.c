/* lfs.c - see lfs.h. */
#include "store/lfs.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

int lfs_refuse(const char *path, const void *p, size_t n, struct err *err)
{
	static const char begins[] = "version https://git-lfs.github.com/spec/";

	if (n < sizeof begins - 1 || memcmp(p, begins, sizeof begins - 1))
		return 0;
	return err_set(err, E_FORMAT,
	               "%s: a pointer of git-lfs, not the file itself: `git lfs pull` in its folder fetches it, "
	               "or `hf download NAME`",
	               path);
}

int lfs_refuse_file(const char *path, struct err *err)
{
	FILE *f = file_exists(path) ? fopen(path, "rb") : NULL; /* opening a pipe would wait for a writer */
	char head[64];
	size_t n = f ? fread(head, 1, sizeof head, f) : 0;

	if (f)
		fclose(f);
	return lfs_refuse(path, head, n, err);
}
