/* sound_file.h - the bytes of a sound file to samples.
 *
 * One call reads whichever format it is, by its first bytes: WAV, FLAC, Ogg (Vorbis, Opus) and MP3, by libsndfile.  What
 * comes out is what models hear: one channel, the mean of all, 16,000 samples a second, resampled by libsoxr; docs/sound.md
 * compares this with the reference.  The bytes are hostile: what a header says is checked before anything is decoded,
 * what is decoded is counted, and the work is charged to the thread's allowance (base/allowance.h), to which samples
 * within the limits bring steps.
 *
 * Any thread. */
#ifndef SOUND_SAMPLES_SOUND_FILE_H
#define SOUND_SAMPLES_SOUND_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SOUND_RATE = 16000 };

struct sound {
	float *at; /* [n] of the heap; full scale is 1 */
	int n;
	int64_t source; /* samples of all channels in the file */
};

struct sound_limits {
	size_t bytes;    /* of the file */
	int64_t samples; /* of all channels in the file */
	int seconds, channels;
	int rate_min, rate_max;
};
/* 64 MB, 120,000,000 samples, 600 seconds, 8 channels, 4,000 to 384,000 a second. */
extern const struct sound_limits sound_limits_default;

/* Whether the bytes begin as a file of a known format does. */
bool sound_known(const void *bytes, size_t n);
/* limits NULL: the default.  E_FORMAT: the bytes are not a sound, or are a broken one.  E_LIMIT: beyond a limit, or the allowance
 * is spent.  E_UNSUPPORTED: a kind of sound that is not read, or by a library that this build is without. */
int sound_decode(struct sound *out, const void *bytes, size_t n, const struct sound_limits *limits, struct err *err);
void sound_fini(struct sound *s);

#endif
