/* tower.h - from an image's pixels to the vectors that stand for it in a prompt.
 *
 * A tower belongs to a model: it lies in the model's files, is bound from the same store and computes on the same
 * backend. tower_open reads config and tensors; tower_attach gives it a backend.  Then two steps: `tower_image` makes
 * of pixels a media object (model/media.h) with everything that is known before the tower has run, on any thread; its
 * work() runs the tower a part at a time, on the thread that the backend's passes are of.
 *
 * The law of the row holds here, too: an image's vectors are a function of its pixels, of the model and of the
 * arithmetic; not of other images, of threads, of how the work was cut.  docs/images.md has families, equations and
 * errors. */
#ifndef VISION_TOWER_H
#define VISION_TOWER_H

#include "backend/backend.h"
#include "model/media.h"
#include "store/store.h"
#include "vision/picture.h"

struct tower;

/* The id of a token by its text, or -1: for the marks around an image's rows.  NULL: none is known. */
struct tower_tokens {
	int32_t (*id)(void *arg, const char *text);
	void *arg;
};

/* *out is NULL, and 0 returned, where the model has no tower, or one without tensors in these files.  E_UNSUPPORTED: a
 * family whose tower is not read; other codes: what is wrong with it.  The model can be run without: no tensor counts
 * as used by a tower that was not opened.  The store must outlive it. */
int tower_open(struct tower **out, struct store *st, struct err *err);
/* Places its weights.  tokens is only read during the call. */
int tower_attach(struct tower *t, struct backend *be, enum arith arith, const struct tower_tokens *tokens,
                 struct err *err);
/* After the last media object of it is gone. */
void tower_close(struct tower *t);

struct tower_info {
	const char *family;
	int depth, hidden, heads, patch, merge;
	int out, deep;       /* floats of a vector; vectors of each row besides the first */
	int64_t params;      /* elements of its tensors */
	int64_t bytes;       /* stored */
	int32_t image_token; /* that stands for an image's row */
	int32_t placeholder; /* that templates write for an image */
	bool both_ways;      /* rows of an image see each other in the text model */
};
struct tower_info tower_info(const struct tower *t);
/* The family's preparation of an image before its tower; borrowed. */
const struct picture_form *tower_form(const struct tower *t);

/* The media object of an image: resized, cut, its rows counted; refs is 1, the image can go.  Any thread, after
 * tower_attach.  E_LIMIT: a size that the family refuses, or more than rows_max rows (0: no bound). */
int tower_image(struct media **out, struct tower *t, const struct image *im, int rows_max, struct err *err);

#endif
