/* Any bytes into the reader of sounds: of WAV, FLAC, Ogg and MP3, by their first bytes. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "sound/samples/sound_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct sound_limits small = { 1 << 20, 1 << 18, 8, 8, 4000, 384000 };
	struct sound s;
	struct err err;

	if (!sound_known(data, size))
		return 0;
	if (!sound_decode(&s, data, size, &small, &err) && (s.n < 1 || s.n > small.seconds * SOUND_RATE))
		abort();
	for (int i = 0; i < s.n; i++)
		if (!isfinite(s.at[i]))
			abort();
	sound_fini(&s);
	return 0;
}
