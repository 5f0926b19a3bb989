/* images.h - images and sounds in messages: from data URLs to rows of the prompt.
 *
 * While a body is read, an image becomes a mark in the text of its message, which names the image by the digest of its
 * pixels.  So histories, roles and stored responses, which are made of text, carry images along and tell one from
 * another.  Before the template sees the messages, content with marks becomes a list of parts; and after the text was
 * tokenised, each placeholder that the template wrote is replaced by its image's rows.  A sound goes the same way; what is
 * said of images here is of sounds too.
 *
 * On a worker, but for what is said otherwise. */
#ifndef SERVER_IMAGES_H
#define SERVER_IMAGES_H

#include <pthread.h>

#include "base/json.h"
#include "engine/engine.h"
#include "server/images/image_files.h"
#include "server/images/image_hosts.h"
#include "server/http/problem.h"
#include "server/server.h"
#include "text/tokens/tokenizer.h"

/* ---- kept images ---- */

/* Images that came lately, with what their towers computed: a second turn decodes and computes nothing, and a stored
 * response can be gone on from.  Least recently used ones go.  Any thread. */
struct image_store {
	pthread_mutex_t lock;
	struct image_kept *kept; /* [n] */
	int n, cap;
	size_t bytes, bytes_max;
	uint64_t clock;
};
void image_store_init(struct image_store *s, size_t bytes_max);
void image_store_fini(struct image_store *s);

/* ---- those of one request ---- */

enum { IMAGES_MAX = 64 };
/* Pixels of a request's images together, about ten of the largest: a bound of its work, which some 10 s are. */
enum { IMAGES_PIXELS_MAX = 500000000 };

struct images {
	const struct sight *sight;           /* NULL: the model reads text only */
	struct image_store *store;           /* NULL: nothing is kept */
	const struct image_folders *folders; /* whose files may be read; NULL: none */
	const struct image_hosts *hosts;     /* that may be asked; NULL: none */
	struct media *came[IMAGES_MAX];      /* with this request; each is a reference */
	int n_came;
	int64_t pixels; /* of the files of those that came, whether they were kept or not */
	/* In the order of the prompt, once images_parts was called; each is a reference of its own. */
	struct media **shown;
	int n_shown;
	struct ask_span *span; /* of the prompt, once images_expand was called */
	int n_span;
};
void images_fini(struct images *im);
/* Takes over m and appends its mark to text.  E_LIMIT: there are IMAGES_MAX, and m is let go. */
int images_take(struct images *im, struct media *m, struct buf *text);

/* Reads an image and appends its mark to text.  url: "data:image/...;base64,...", the base64 alone, or "file:///..." of a
 * file in one of the folders, or "http://..." or "https://..." of one of the hosts.  at names the field.  im NULL: no image is
 * accepted here.  Other URLs are refused. */
int images_url(struct images *im, const char *url, size_t n, const char *at, struct buf *text, struct problem *p);

/* The same for a sound; url may also be "data:audio/...;base64,...". */
int images_sound(struct images *im, const char *url, size_t n, const char *at, struct buf *text, struct problem *p);

/* The messages with parts in place of marks; the images of the marks are those shown from here on.  Owned by the caller.
 * NULL: no message has marks, or (p->status) an image is not here any longer. */
struct json *images_parts(struct images *im, const struct json *messages, struct problem *p);

/* Replaces the placeholders in ids, which are as many as there are images shown and in their order, by rows, and moves the n positions in
 * `at`, each n_at[] long, of what follows them. */
struct image_places {
	int *at, n;
};
int images_expand(struct images *im, struct tokens *ids, const struct image_places *places, int n_places,
                  struct problem *p);

#endif
