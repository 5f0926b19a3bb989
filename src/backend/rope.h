/* rope.h - the angles of a row's rotary embedding: computed on the host for every backend, since cosines of C libraries differ
 * from those of devices. */
#ifndef BACKEND_ROPE_H
#define BACKEND_ROPE_H

#include <math.h>

#include "backend/backend.h"

/* Cosines and sines of a position (time, height, width), n_freq each, times mscale. */
static inline void rope_angles_at(float *cosines, float *sines, const struct rope *r, const int32_t pos[3])
{
	for (int i = 0; i < r->n_freq; i++) {
		float angle = (float)pos[r->axis ? r->axis[i] : 0] * r->freq[i];

		cosines[i] = cosf(angle) * r->mscale;
		sines[i] = sinf(angle) * r->mscale;
	}
}

/* The angles of a row of the pass. */
static inline void rope_angles(float *cosines, float *sines, const struct rope *r, const struct pass *p, int row)
{
	const int32_t plain[] = { p->pos[row], p->pos[row], p->pos[row] };

	rope_angles_at(cosines, sines, r, p->rope_pos ? p->rope_pos + 3 * row : plain);
}

/* The factor of a row's queries at that position (attn.q_bend). */
static inline float q_bend_at(const struct attn *a, int pos)
{
	int bend = a->q_bend_every ? (pos + a->q_bend_from) / a->q_bend_every : 0;

	return bend ? 1.0f + a->q_bend * logf(1.0f + (float)bend) : 1.0f;
}

#endif
