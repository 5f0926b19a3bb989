/* fuzz_image.h - any bytes into the reader of one image format; one target each, since a fuzzer that has to find a format's
 * first bytes finds little else. */
#include <stdint.h>
#include <stdlib.h>

#include "vision/pixels/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct image_limits small = { 1 << 20, 1 << 18, 4096 };
	struct err err;
	struct image im;

	if (!FUZZ_READER.knows(data, size))
		return 0;
	if (!image_decode(&im, data, size, &small, &err) && (int64_t)im.w * im.h > small.pixels)
		abort();
	image_fini(&im);
	return 0;
}
