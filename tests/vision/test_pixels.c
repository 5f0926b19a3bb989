/* Image files to pixels, against what the Python Imaging Library sees in them (make_images.py), and its resampling; files
 * cut short or changed, limits, and an allowance that is spent.
 *
 *     test_pixels FOLDER */
#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/rng.h"
#include "check.h"
#include "vision/pixels/reader.h"
#include "vision/pixels/resample.h"

enum { NAME = 400 };

static const char *folder;

static void load(struct buf *b, const char *name)
{
	char path[NAME * 2];
	struct err err;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	buf_init(b);
	CHECK(!file_read(path, 1 << 20, b, &err), "%s", err.msg);
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), m = strlen(with);

	return n >= m && !strcmp(s + n - m, with);
}

/* Decoders of lossy formats may round differently from version to version. */
static int tolerance(const char *name)
{
	return ends(name, ".jpg") || ends(name, "lossy.webp") ? 2 : 0;
}

static int farthest(const uint8_t *a, const uint8_t *b, size_t n)
{
	int most = 0;

	for (size_t i = 0; i < n; i++)
		most = abs(a[i] - b[i]) > most ? abs(a[i] - b[i]) : most;
	return most;
}

static void check_seen(const char *name, const struct buf *file)
{
	char seen_name[NAME];
	struct image im;
	struct buf seen;
	struct err err;
	int w, h, at = 0, off;

	snprintf(seen_name, sizeof seen_name, "%s.rgb", name);
	load(&seen, seen_name);
	CHECK(sscanf(seen.p, "%d %d%n", &w, &h, &at) == 2, "%s", seen_name);
	CHECK(!image_decode(&im, file->p, file->n, NULL, &err), "%s: %s", name, err.msg);
	CHECK(im.w == w && im.h == h, "%s: %d x %d, %d x %d wanted", name, im.w, im.h, w, h);
	CHECK(seen.n == (size_t)at + 1 + (size_t)(w * h) * 3, "%s", seen_name);
	off = farthest(im.rgb, (const uint8_t *)seen.p + at + 1, (size_t)(w * h) * 3);
	CHECK(off <= tolerance(name), "%s: a pixel is off by %d", name, off);
	image_fini(&im);
	buf_fini(&seen);
}

/* Whatever is done to the bytes, there is an image of allowed size or a message, and no more memory than the file has:
 * copies of exact size show the sanitizer reads beyond the end. */
static void try_bytes(const void *p, size_t n)
{
	static const struct image_limits small = { 1 << 20, 100000, 2000 };
	struct err err = { 0 };
	struct image im;
	void *copy = xmalloc(n ? n : 1);
	int rc;

	memcpy(copy, p, n);
	rc = image_decode(&im, copy, n, &small, &err);
	CHECK(rc ? err.msg[0] != 0 && !im.rgb : (int64_t)im.w * im.h <= small.pixels, "%s", err.msg);
	image_fini(&im);
	free(copy);
}

static void check_hostile(const struct buf *file, uint64_t seed)
{
	char *p = xmalloc(file->n);

	for (size_t n = 0; n < file->n; n += n < 100 ? 1 : 7)
		try_bytes(file->p, n);
	for (uint64_t i = 0; i < 200; i++) {
		memcpy(p, file->p, file->n);
		for (uint64_t k = 0; k <= i % 4; k++) {
			uint64_t r = rng_bits(seed, i, k);

			p[(r >> 8) % (i % 2 ? file->n : file->n < 64 ? file->n : 64)] = (char)r;
		}
		try_bytes(p, file->n);
	}
	free(p);
}

static void refused(const struct buf *file, const struct image_limits *l, int code, const char *says)
{
	struct err err;
	struct image im;
	int rc = image_decode(&im, file->p, file->n, l, &err);

	CHECK(rc == code && strstr(err.msg, says), "%d: %s", rc, rc ? err.msg : "read");
}

static void check_limits(const char *name, const struct buf *file)
{
	struct image_limits bytes = { file->n - 1, 1000, 100 }, pixels = { 1 << 20, 17 * 23 - 1, 100 },
			    edge = { 1 << 20, 1000, 16 };
	struct allowance w;
	struct image im;
	struct err err;

	refused(file, &bytes, E_LIMIT, "bytes");
	refused(file, &pixels, E_LIMIT, "pixels are");
	refused(file, &edge, E_LIMIT, "an edge of 16");
	allowance_begin(&w, 0, NULL);
	allowance_spend(ALLOWANCE_STEPS - 10);
	CHECK(!image_decode(&im, file->p, file->n, NULL, &err), "%s: %s", name,
	      err.msg); /* its pixels bring their own */
	image_fini(&im);
	allowance_spend(ALLOWANCE_STEPS);
	refused(file, NULL, E_LIMIT, "");
	allowance_end();
}

/* The orientation is any integer of TIFF (6.0, page 15), in both orders of bytes. */
static void check_orientation(void)
{
	static const struct {
		uint8_t type, count, seen;
	} of[] = { { 3, 1, 6 }, { 4, 1, 6 }, { 8, 1, 6 }, { 9, 1, 6 }, { 4, 2, 0 },
		   { 9, 2, 0 }, { 2, 1, 0 }, { 5, 1, 0 }, { 7, 1, 0 }, { 11, 1, 0 } };

	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		bool wide = of[i].type == 4 || of[i].type == 9;
		uint8_t big[] = { 'M',        'M', 0, 42, 0,           0, 0, 8, 0, 1, 1, 0x12, 0,
			          of[i].type, 0,   0, 0,  of[i].count, 0, 0, 0, 0, 0, 0, 0,    0 };
		uint8_t little[] = { 'I', 'I',         42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, of[i].type,
			             0,   of[i].count, 0,  0, 0, 6, 0, 0, 0, 0, 0,    0, 0 };

		big[wide ? 21 : 19] = 6;
		CHECK(exif_orientation(big, sizeof big) == of[i].seen, "type %d", of[i].type);
		CHECK(exif_orientation(little, sizeof little) == of[i].seen, "type %d", of[i].type);
	}
}

static void check_files(void)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int n = 0;

	CHECK(d, "%s", folder);
	while ((e = readdir(d))) {
		struct buf file;

		if (e->d_name[0] == '.' || ends(e->d_name, ".rgb") || ends(e->d_name, ".txt"))
			continue;
		load(&file, e->d_name);
		check_seen(e->d_name, &file);
		check_limits(e->d_name, &file);
		check_hostile(&file, (uint64_t)n++);
		buf_fini(&file);
	}
	closedir(d);
	CHECK(n >= 38, "%d files in %s", n, folder);
}

/* CRC-32 as zlib has it. */
static uint32_t crc32_of(const uint8_t *p, size_t n)
{
	uint32_t c = ~0u;

	for (size_t i = 0; i < n; i++) {
		c ^= p[i];
		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
	}
	return ~c;
}

static void check_resample(void)
{
	struct buf list;
	char *line, *rest;
	int n = 0;

	load(&list, "resample.txt");
	buf_put(&list, "", 1);
	for (line = strtok_r(list.p, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), n++) {
		char name[64], kind[16];
		struct image im, to;
		struct err err;
		struct buf file;
		unsigned crc, got;
		int w, h;

		CHECK(sscanf(line, "%63s %d %d %15s %x", name, &w, &h, kind, &crc) == 5, "%s", line);
		load(&file, name);
		CHECK(!image_decode(&im, file.p, file.n, NULL, &err), "%s", err.msg);
		CHECK(!image_resample(&to, &im, w, h, strcmp(kind, "bicubic") ? RESAMPLE_BILINEAR : RESAMPLE_BICUBIC,
		                      &err),
		      "%s", err.msg);
		got = crc32_of(to.rgb, (size_t)(w * h) * 3);
		CHECK(got == crc, "%s: %08x", line, got);
		image_fini(&im);
		image_fini(&to);
		buf_fini(&file);
	}
	CHECK(n > 20, "%d lines", n);
	buf_fini(&list);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2, "FOLDER");
	folder = argv[1];
	check_files();
	check_orientation();
	check_resample();
	return 0;
}
