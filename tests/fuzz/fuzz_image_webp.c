/* Any bytes that begin as this format does: see fuzz_image.h. */
#define FUZZ_READER reader_webp
#include "fuzz_image.h"
