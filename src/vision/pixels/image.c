/* image.c - see image.h. */
#include "vision/pixels/image.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "vision/pixels/reader.h"

const struct image_limits image_limits_default = { 64 << 20, 50000000, 32768 };

static const struct image_reader *const readers[] = { &reader_png, &reader_jpeg, &reader_webp, &reader_gif,
	                                              &reader_bmp };
enum { READERS = sizeof readers / sizeof *readers };

/* Pixels per step of an allowance, which is some 20 ns. */
enum { PIXELS_PER_STEP = 2 };

/* Steps that each pixel of an allowed size brings: 4 that an interlaced PNG takes, or a progressive JPEG in seven
 * scans, and 2 to resize it.  So a picture is taken or refused by its size and not by how well its file is packed. */
enum { STEPS_PER_PIXEL = 6 };

int reading_stopped(struct err *err)
{
	const char *why = allowance_why();

	return err_set(err, E_LIMIT, "image: %s", why ? why : "it takes too long to decode");
}

bool reading_spend(int64_t pixels)
{
	return allowance_spend((uint64_t)pixels / PIXELS_PER_STEP + 1);
}

int reading_begin(struct reading *r, int64_t w, int64_t h, struct err *err)
{
	const struct image_limits *l = r->limits;

	if (w < 1 || h < 1)
		return err_set(err, E_FORMAT, "image: %lld x %lld pixels", (long long)w, (long long)h);
	if (w > l->edge || h > l->edge)
		return err_set(err, E_LIMIT, "image: %lld x %lld pixels, where an edge of %d is allowed", (long long)w,
		               (long long)h, l->edge);
	if (w * h > l->pixels)
		return err_set(err, E_LIMIT, "image: %lld x %lld pixels are %lld, where %lld are allowed", (long long)w,
		               (long long)h, (long long)(w * h), (long long)l->pixels);
	allowance_grant((uint64_t)(w * h) * STEPS_PER_PIXEL);
	if (!reading_spend(w * h))
		return reading_stopped(err);
	r->out.w = (int)w;
	r->out.h = (int)h;
	r->out.rgb = try_malloc((size_t)(w * h) * 3);
	if (!r->out.rgb)
		return err_set(err, E_LIMIT, "image: no memory for %lld x %lld pixels", (long long)w, (long long)h);
	memset(r->out.rgb, 0, (size_t)(w * h) * 3);
	return 0;
}

/* Where pixel (x, y) of a w x h image is after the turn that EXIF's orientation o asks for. */
static size_t turned_at(int o, int x, int y, int w, int h)
{
	int flip_x = o == 2 || o == 3 || o == 7 || o == 8, flip_y = o == 3 || o == 4 || o == 6 || o == 7;

	x = flip_x ? w - 1 - x : x;
	y = flip_y ? h - 1 - y : y;
	return o >= 5 ? (size_t)x * (size_t)h + (size_t)y : (size_t)y * (size_t)w + (size_t)x;
}

/* Orientations from 5 on change width and height. */
static int turn(struct reading *r, struct err *err)
{
	struct image *im = &r->out;
	uint8_t *to;
	int w = im->w, h = im->h;

	if (r->orientation < 2 || r->orientation > 8)
		return 0;
	to = try_malloc((size_t)w * (size_t)h * 3);
	if (!to)
		return err_set(err, E_LIMIT, "image: no memory to turn %d x %d pixels", w, h);
	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++)
			memcpy(to + 3 * turned_at(r->orientation, x, y, w, h), reading_row(r, y) + 3 * x, 3);
	free(im->rgb);
	*im = r->orientation >= 5 ? (struct image){ h, w, to } : (struct image){ w, h, to };
	return 0;
}

static const struct image_reader *reader_of(const uint8_t *p, size_t n)
{
	for (int i = 0; i < READERS; i++)
		if (readers[i]->knows(p, n))
			return readers[i];
	return NULL;
}

int image_decode(struct image *out, const void *bytes, size_t n, const struct image_limits *limits, struct err *err)
{
	struct reading r = { .p = bytes, .n = n, .limits = limits ? limits : &image_limits_default };
	const struct image_reader *reader;
	int rc;

	*out = (struct image){ 0 };
	if (n > r.limits->bytes)
		return err_set(err, E_LIMIT, "image: a file of %zu bytes, where %zu are allowed", n, r.limits->bytes);
	reader = reader_of(bytes, n);
	if (!reader)
		return err_set(err, E_FORMAT, "image: %zu bytes that begin as no PNG, JPEG, WebP, GIF or BMP file does",
		               n);
	if (!reader->read)
		return err_set(err, E_UNSUPPORTED, "image: this build of weft is without the library for %s files",
		               reader->name);
	rc = reader->read(&r, err);
	if (!rc)
		rc = turn(&r, err);
	if (rc) {
		image_fini(&r.out);
		return rc;
	}
	*out = r.out;
	return 0;
}

void image_fini(struct image *im)
{
	free(im->rgb);
	*im = (struct image){ 0 };
}
