/* reader.h - what image.c and the readers of single formats share.  Inside vision/pixels/. */
#ifndef VISION_PIXELS_READER_H
#define VISION_PIXELS_READER_H

#include <stdbool.h>

#include "vision/pixels/image.h"

/* One decoding. */
struct reading {
	const uint8_t *p; /* the file */
	size_t n;
	const struct image_limits *limits;
	struct image out; /* its pixels are freed by image_decode after an error */
	int orientation;  /* EXIF's, 1 to 8; 0: none was found */
};

/* Checks the size that a header names against the limits, charges it, and allocates r->out, black. */
int reading_begin(struct reading *r, int64_t w, int64_t h, struct err *err);
/* Charges the work of `pixels` pixels.  False: stop; reading_stopped is the error. */
bool reading_spend(int64_t pixels);
int reading_stopped(struct err *err);
static inline uint8_t *reading_row(struct reading *r, int y)
{
	return r->out.rgb + (size_t)y * (size_t)r->out.w * 3;
}

/* The orientation in EXIF data, which begin with a TIFF header; 0: there is none. */
int exif_orientation(const uint8_t *p, size_t n);

struct image_reader {
	const char *name;
	bool (*knows)(const uint8_t *p, size_t n);
	int (*read)(struct reading *r, struct err *err); /* NULL: this build is without the library */
};
extern const struct image_reader reader_png, reader_jpeg, reader_webp, reader_gif, reader_bmp;

#endif
