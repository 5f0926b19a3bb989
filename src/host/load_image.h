/* load_image.h - images and sounds for commands: from files and bytes to media objects of the session's tower and ear. */
#ifndef HOST_LOAD_IMAGE_H
#define HOST_LOAD_IMAGE_H

#include "engine/engine.h"
#include "model/media.h"
#include "quant/format.h"

struct host_opts;
struct session;

/* Binds the model's tower and ear, if it has them: session.tower, session.ear.  One that cannot be bound is warned of, and the
 * model is served without (session.no_tower, no_ear); where --mmproj names the tower, that is an error.  Before the model is
 * attached. */
int tower_bind(struct session *s, const struct host_opts *o, struct err *err);
/* After it is. */
int tower_begin(struct session *s, enum arith arith, struct err *err);

/* The bytes of an image or sound file to a media object with one reference.  E_UNSUPPORTED: the model does not see, or hear.
 * Any thread. */
int media_of_bytes(struct session *s, enum media_kind kind, const void *bytes, size_t n, struct media **out,
                   struct err *err);
/* Which of both it is, its bytes say. */
int media_of_file(struct session *s, const char *path, struct media **out, struct err *err);

/* Ids that contain images and sounds. */
struct seen_ids {
	int32_t *id;
	int n;
	struct ask_span *span;
	int n_span;
};
/* ids with the k-th run of placeholders of a kind as the k-th object of that kind, in full; fewer: there may be fewer runs than
 * objects.
 * E_FORMAT: a run of another length, or one without an object. */
int media_into_ids(struct session *s, struct media *const *m, int n_media, const int32_t *ids, int n, bool fewer,
                   struct seen_ids *out, struct err *err);
void seen_ids_fini(struct seen_ids *s);

#endif
