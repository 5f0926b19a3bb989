/* resample.h - images of another size, and their parts. */
#ifndef VISION_PIXELS_RESAMPLE_H
#define VISION_PIXELS_RESAMPLE_H

#include "vision/pixels/image.h"

enum resample { RESAMPLE_BILINEAR, RESAMPLE_BICUBIC };

/* The image at w x h pixels, with antialiasing where it shrinks, to the bit as the Python Imaging Library does it: taps of
 * 22 bits, rows first, rounded to 8 bits after each of the two passes.  E_LIMIT: the allowance is spent, or memory. */
int image_resample(struct image *out, const struct image *in, int w, int h, enum resample kind, struct err *err);

/* For tables of floats: n taps of output i of `out` from `in` elements begin at *first; to tap[resample_taps()]. */
int resample_taps(int in, int out, enum resample kind);
int resample_weights(double *tap, int *first, int in, int out, int i, enum resample kind);

#endif
