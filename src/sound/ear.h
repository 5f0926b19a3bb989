/* ear.h - from a sound's samples to the vectors that stand for it in a prompt.
 *
 * An ear belongs to a model as a tower does (vision/tower.h): it lies in the model's files, is bound from the same store and
 * computes on the same backend.  `ear_sound` makes of samples a media object (model/media.h) on any thread; its work()
 * computes the vectors a part at a time, on the thread that the backend's passes are of.
 *
 * A sound's vectors are a function of its samples, of the model and of the arithmetic; not of other sounds, of threads, of how
 * the work was cut.  docs/sound.md has families, equations and errors. */
#ifndef SOUND_EAR_H
#define SOUND_EAR_H

#include "backend/backend.h"
#include "model/media.h"
#include "sound/samples/sound_file.h"
#include "store/store.h"

struct ear;

/* *out is NULL, and 0 returned, where the model has no ear, or one without tensors in these files.  Other codes: what is wrong
 * with it.  The model can be run without: no tensor counts as used by an ear that was not opened.  The store must outlive
 * it. */
int ear_open(struct ear **out, struct store *st, struct err *err);
int ear_attach(struct ear *e, struct backend *be, enum arith arith, struct err *err);
/* After the last media object of it is gone. */
void ear_close(struct ear *e);

struct ear_info {
	const char *family;
	int depth, hidden;   /* blocks; columns of their rows */
	int out;             /* floats of a vector */
	int row_samples;     /* of a row of the prompt */
	int seconds_max;     /* of a sound; 0: any number */
	int64_t params;      /* elements of its tensors */
	int64_t bytes;       /* stored */
	int32_t sound_token; /* that stands for a sound's row, and for a sound in templates */
};
struct ear_info ear_info(const struct ear *e);

/* The media object of a sound: its rows counted; refs is 1, the samples are copied.  Any thread, after ear_attach.  E_LIMIT: it
 * is longer than the model hears, or than rows_max rows (0: no bound).  E_FORMAT: too short for one row. */
int ear_sound(struct media **out, struct ear *e, const struct sound *s, int rows_max, struct err *err);

#endif
