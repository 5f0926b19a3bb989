/* image.h - the bytes of an image file to pixels.
 *
 * One call reads whichever format it is, by its first bytes: PNG, JPEG, WebP, GIF (its first frame) and BMP.  What
 * comes out is what a person sees: 8 bits of red, green and blue, turned as the EXIF orientation says.  Alpha is
 * dropped and not blended, grey is repeated, of 16 bits the upper 8 count, CMYK is converted without a colour profile;
 * docs/images.md compares this with the reference.  The bytes are hostile: sizes are checked in the header before
 * anything of their size is allocated, and the work is charged to the thread's allowance (base/allowance.h), to which
 * each pixel of the size in the header brings steps.
 *
 * Any thread; no state is kept between calls. */
#ifndef VISION_PIXELS_IMAGE_H
#define VISION_PIXELS_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct image {
	int w, h;
	uint8_t *rgb; /* [h][w][3], of the heap */
};

struct image_limits {
	size_t bytes;   /* of the file */
	int64_t pixels; /* w * h */
	int edge;       /* w and h, each */
};
/* 64 MB, 50,000,000 pixels, 32,768. */
extern const struct image_limits image_limits_default;

/* limits NULL: the default.  E_FORMAT: the bytes are not an image, or a broken one.  E_LIMIT: beyond a limit, or the
 * allowance is spent.  E_UNSUPPORTED: a kind of image that is not read, or by a library that this build is without. */
int image_decode(struct image *out, const void *bytes, size_t n, const struct image_limits *limits, struct err *err);
void image_fini(struct image *im);

#endif
