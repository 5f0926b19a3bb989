/* folder.c - see folder.h. */
#include "folder.h"

#include <assert.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *folder_new(void)
{
	const char *tmp = getenv("TMPDIR");
	char *dir = malloc(4096);

	assert(dir);
	snprintf(dir, 4096, "%s/weft-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(dir)) {
		perror(dir);
		exit(1);
	}
	return dir;
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
	return remove(path);
}

void folder_remove(char *dir)
{
	nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	free(dir);
}

const char *folder_path(const char *dir, const char *file)
{
	static char path[8192];

	snprintf(path, sizeof path, "%s/%s", dir, file);
	return path;
}

/* Writes under the folder, making the folders on the way. */
void folder_put(const char *dir, const char *file, const void *p, size_t n)
{
	char path[8192];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, file);
	for (char *c = path + strlen(dir) + 1; (c = strchr(c, '/')); c++) {
		*c = 0;
		mkdir(path, 0777);
		*c = '/';
	}
	f = fopen(path, "wb");
	if (!f || fwrite(p, 1, n, f) != n || fclose(f)) {
		perror(path);
		exit(1);
	}
}

void folder_puts(const char *dir, const char *file, const char *text)
{
	folder_put(dir, file, text, strlen(text));
}

void folder_put_tensors(const char *dir, const char *file, const char *header, size_t n)
{
	size_t h = strlen(header);
	uint8_t *p = calloc(1, 8 + h + n);

	assert(p);
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)((uint64_t)h >> 8 * i);
	memcpy(p + 8, header, h);
	folder_put(dir, file, p, 8 + h + n);
	free(p);
}
