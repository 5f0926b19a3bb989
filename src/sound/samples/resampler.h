/* resampler.h - samples of one rate to samples of another, as they come.  Inside sound/samples/. */
#ifndef SOUND_SAMPLES_RESAMPLER_H
#define SOUND_SAMPLES_RESAMPLER_H

#include <stddef.h>

#include "base/err.h"

struct resampler;

/* E_UNSUPPORTED: this build is without libsoxr. */
int resampler_open(struct resampler **out, int from_rate, int to_rate, struct err *err);
/* Takes n samples and writes at most room to out; *got of them were written, *taken of the n were read.  in NULL: there are no
 * more, and what is left comes out.  Returns 0 or E_LIMIT: no memory. */
int resampler_put(struct resampler *r, const float *in, size_t n, size_t *taken, float *out, size_t room, size_t *got,
                  struct err *err);
void resampler_close(struct resampler *r);

#endif
