/* media.h - rows of a prompt that bring their own embedding, such as those of an image or a sound.
 *
 * A media object is one image or one sound. It is made from decoded pixels or samples when a request is prepared: its digest,
 * how many rows it has and how they are placed in the prompt are known then.  Its vectors may come later: work() computes them
 * a part at a time on the engine's thread, between steps, and only for a request that has to compute these rows, so a
 * prompt whose image is in a kept prefix runs no tower.  docs/images.md describes the way of such rows through the
 * program.
 *
 * Everything but `vectors`, `sought` and `broken` is constant from the first reference on.  A media object may be shared by
 * several requests. */
#ifndef MODEL_MEDIA_H
#define MODEL_MEDIA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

struct media;

struct media_ops {
	/* Computes a part of the vectors, which takes about ns nanoseconds or, where a part cannot be cut as short, a
	 * little more.  On the engine's thread, between two steps, so the backend's threads are free; parts of other
	 * media objects may come between two calls.  Returns 0, and `vectors` is set once they are complete; or an error
	 * code, after which it is not called again, and `broken` is set.  NULL: the vectors are there from the beginning.
	 * The vectors are a function of pixels and settings: not of ns, of the number of threads, of other media. */
	int (*work)(struct media *, int64_t ns, struct err *);
	/* Sets `vectors` to these, which were computed of an equal object earlier; malloc's, and m's from here on.  In
	 * place of work, or between two of its parts.  Engine's thread.  NULL: they are not kept outside of memory. */
	void (*take)(struct media *m, float *vectors);
	/* The last reference is gone; any thread. */
	void (*free)(struct media *);
};

enum media_kind { MEDIA_IMAGE, MEDIA_SOUND, MEDIA_KINDS };

enum {
	MEDIA_ROW = -1,     /* in a layout: the next row of the media object */
	MEDIA_UNKNOWN = -2, /* in a layout: a token that the tokenizer lacks */
};

struct media {
	const struct media_ops *ops;
	atomic_int refs; /* 1 when it is made; media_ref, media_unref */
	enum media_kind kind;
	/* The token that stands for a row in a prompt, and the one that templates write for the object. */
	int32_t row_token, placeholder;
	/* A digest of everything that the vectors are a function of: decoded pixels, the settings of preprocessing, and the
	 * tower where a process has several.  Not the bytes of the file: another encoding of the same pixels is equal. */
	struct digest digest;
	int n;      /* rows */
	int hidden; /* floats of a vector: shape.hidden of the text model */
	int deep; /* vectors of each row besides the embedding, added to the residual stream after layers 0 .. deep - 1 */
	/* n = grid_h * grid_w rows in raster order with rotary positions (b, b + row, b + column), after which text goes on
	 * at b + max(grid_h, grid_w).  0: rotary positions are those of text. */
	int grid_h, grid_w;
	bool whole; /* attention among the rows goes both ways, in the layers that say so: a step has all of them or none */
	/* Token ids that a prompt has for the object, with MEDIA_ROW for each of its n rows.  A run of MEDIA_ROW is a span. */
	const int32_t *layout;
	int n_layout;
	size_t bytes;   /* of the vectors, once they are there: what keeping them costs */
	double seconds; /* of a sound */
	int64_t pixels; /* of the file that it was made from; of a sound its samples */
	/* [n][1 + deep][hidden] in the host's memory: per row its embedding, then what is added after layers.  NULL: not
	 * computed yet.  Written once, by work. */
	const float *vectors;
	bool sought;        /* the engine's thread: the vectors were looked for on disk */
	atomic_bool broken; /* set by the engine: work said that there will be no vectors */
};

/* Puts the layout of m into a prompt, ids[0..*n), at the first placeholder of its kind from *at on (0 for the first object); *at
 * goes on behind it.  A single placeholder is replaced by the layout; a layout that the prompt has already is kept.  ids has
 * room for *n + n_layout - 1 ids, *n is updated; *layout_at is where the layout begins.  E_FORMAT: a run of another length.
 * E_MISSING: no placeholder is left, or a token of the layout is not known. */
int media_expand(const struct media *m, int32_t *ids, int *n, int *at, int *layout_at, struct err *err);
/* The index of the placeholder that media_expand would take for m, the first one in ids[at..n); n: there is none. */
int media_next(const struct media *m, const int32_t *ids, int n, int at);

static inline struct media *media_ref(struct media *m)
{
	atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	return m;
}
static inline void media_unref(struct media *m)
{
	if (m && atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1)
		m->ops->free(m);
}

#endif
