/* resampler.c - see resampler.h. */
#include "sound/samples/resampler.h"

#include <stdlib.h>

#include "base/alloc.h"

#ifdef WEFT_SOXR
#include <soxr.h>

struct resampler {
	soxr_t of;
};

int resampler_open(struct resampler **out, int from_rate, int to_rate, struct err *err)
{
	soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
	soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
	soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
	soxr_error_t why;
	soxr_t of = soxr_create(from_rate, to_rate, 1, &why, &io, &quality, &runtime);

	*out = NULL;
	if (!of)
		return err_set(err, E_LIMIT, "sound: %d samples a second cannot become %d: %s", from_rate, to_rate,
		               why ? why : "no memory");
	*out = xcalloc(1, sizeof **out);
	(*out)->of = of;
	return 0;
}

int resampler_put(struct resampler *r, const float *in, size_t n, size_t *taken, float *out, size_t room, size_t *got,
                  struct err *err)
{
	soxr_error_t why = soxr_process(r->of, in, n, taken, out, room, got);

	return why ? err_set(err, E_LIMIT, "sound: resampling failed: %s", why) : 0;
}

void resampler_close(struct resampler *r)
{
	if (!r)
		return;
	soxr_delete(r->of);
	free(r);
}

#else

int resampler_open(struct resampler **out, int from_rate, int to_rate, struct err *err)
{
	*out = NULL;
	return err_set(err, E_UNSUPPORTED,
	               "sound: %d samples a second: this build of weft is without libsoxr, and reads %d a second alone",
	               from_rate, to_rate);
}

int resampler_put(struct resampler *r, const float *in, size_t n, size_t *taken, float *out, size_t room, size_t *got,
                  struct err *err)
{
	return err_set(err, E_UNSUPPORTED, "sound: this build of weft is without libsoxr");
}

void resampler_close(struct resampler *r) {}

#endif
