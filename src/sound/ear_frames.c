/* ear_frames.c - the ear of Gemma 4 12B, which has no tower: a frame of 640 samples, by the root of its mean of squares, is one
 * matrix away from a row's vector.  The last frame is filled up with zeros and counts. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sound/ear_parts.h"

enum { FRAMES = 64 }; /* at once */

struct run {
	struct ear *e;
	struct ear_desk desk;
	const float *samples;
	float *vectors, *frame; /* frame: [FRAMES][samples of one] */
	int n, rows, next;
};

static void bind(struct ear *e, struct binder *b, struct conf *c)
{
	e->frame = conf_int_or(c, "audio_samples_per_token", conf_int_or(c, "audio_embed_dim", 640, 1, 1 << 16), 1,
	                       1 << 16);
	e->hidden = e->projection.w.cols = e->frame;
}

static int rows(const struct ear *e, int samples)
{
	return samples / e->frame + (samples % e->frame != 0);
}

static void end(void *run)
{
	struct run *r = run;

	desk_close(&r->desk);
	free(r->frame);
	free(r);
}

static void *begin(struct ear *e, const float *samples, int n, int n_row, float *vectors, struct err *err)
{
	struct run *r = xcalloc(1, sizeof *r);

	*r = (struct run){ .e = e, .samples = samples, .vectors = vectors, .n = n, .rows = n_row };
	if (desk_open(&r->desk, e, FRAMES * (size_t)e->frame, FRAMES * (size_t)e->out, err)) {
		free(r);
		return NULL;
	}
	r->frame = xmalloc(FRAMES * (size_t)e->frame * sizeof *r->frame);
	return r;
}

static int step(void *run, int64_t ns, struct err *err)
{
	struct run *r = run;
	int64_t until = clock_monotonic_ns() + ns;
	int width = r->e->frame, rc = 0;

	do {
		int at = r->next * width, n = r->rows - r->next < FRAMES ? r->rows - r->next : FRAMES;
		int there = r->n - at < n * width ? r->n - at : n * width;

		memcpy(r->frame, r->samples + at, (size_t)there * sizeof *r->frame);
		memset(r->frame + there, 0, (size_t)(n * width - there) * sizeof *r->frame);
		ear_norm(r->frame, r->frame, n, width, NULL, r->e->eps);
		rc = desk_product(&r->desk, &r->e->projection, r->frame,
		                  r->vectors + (size_t)r->next * (size_t)r->e->out, n, err);
		r->next += n;
	} while (!rc && r->next < r->rows && clock_monotonic_ns() < until);
	return rc ? rc : r->next < r->rows;
}

const struct ear_family ear_frames = { "gemma4_unified",
	                               "gemma4_unified_audio",
	                               "embed_audio.embedding_projection.weight",
	                               bind,
	                               rows,
	                               begin,
	                               step,
	                               end };
