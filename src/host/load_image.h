/* load_image.h - images for commands: from files and bytes to media objects of the session's tower. */
#ifndef HOST_LOAD_IMAGE_H
#define HOST_LOAD_IMAGE_H

#include "engine/engine.h"
#include "quant/format.h"

struct host_opts;
struct session;
struct media;

/* Binds the model's tower, if it has one: session.tower.  One that cannot be bound is warned of, and the model reads text
 * only (session.no_tower); where --mmproj names it, that is an error.  Before the model is attached. */
int tower_bind(struct session *s, const struct host_opts *o, struct err *err);
/* After it is. */
int tower_begin(struct session *s, enum arith arith, struct err *err);

/* The bytes of an image file to a media object with one reference.  E_UNSUPPORTED: the model has no tower.  Any thread. */
int image_of_bytes(struct session *s, const void *bytes, size_t n, struct media **out, struct err *err);
int image_of_file(struct session *s, const char *path, struct media **out, struct err *err);

/* Ids that contain images. */
struct seen_ids {
	int32_t *id;
	int n;
	struct ask_span *span;
	int n_span;
};
/* ids with the k-th run of placeholders as the k-th image, in full; fewer: there may be fewer runs than
 * images.
 * E_FORMAT: a run of another length, or one without an image. */
int images_into_ids(struct session *s, struct media *const *m, int n_media, const int32_t *ids, int n, bool fewer,
                    struct seen_ids *out, struct err *err);
void seen_ids_fini(struct seen_ids *s);

#endif
