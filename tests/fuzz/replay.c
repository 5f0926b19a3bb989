/* replay.c - runs a fuzz target over its corpus without a fuzzer.
 *
 * Linked with one LLVMFuzzerTestOneInput; arguments are files or folders.  Every
 * find of the fuzzer becomes a file there and so a test.  Each input is also fed
 * cut short at a few lengths, since truncation is what outside bytes suffer most. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replayed;

/* An exact-sized heap copy, so that a sanitizer sees a read past the end. */
static void feed(const uint8_t *p, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	if (!copy)
		abort();
	memcpy(copy, p, n);
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
	replayed++;
}

static int replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p;
	long n;

	if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET)) {
		fprintf(stderr, "%s: cannot read\n", path);
		return 1;
	}
	p = malloc((size_t)n + 1);
	if (!p || fread(p, 1, (size_t)n, f) != (size_t)n) {
		fprintf(stderr, "%s: short read\n", path);
		return 1;
	}
	fclose(f);
	feed(p, (size_t)n);
	for (int part = 1; part < 8; part++)
		feed(p, (size_t)n * (size_t)part / 8);
	free(p);
	return 0;
}

static int replay(const char *path)
{
	struct stat st;
	struct dirent *e;
	char sub[4096];
	int bad = 0;
	DIR *d;

	if (stat(path, &st)) {
		fprintf(stderr, "%s: not there\n", path);
		return 1;
	}
	if (!S_ISDIR(st.st_mode))
		return replay_file(path);
	if (!(d = opendir(path)))
		return 1;
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
		bad |= replay(sub);
	}
	closedir(d);
	return bad;
}

int main(int argc, char **argv)
{
	int bad = 0;

	for (int i = 1; i < argc; i++)
		bad |= replay(argv[i]);
	if (!replayed) {
		fprintf(stderr, "no input replayed\n");
		return 1;
	}
	printf("%d inputs\n", replayed);
	return bad;
}
