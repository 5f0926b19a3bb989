/* vectors.c - see disk.h: vectors of images on disk, in the folder of kept prefixes.  After a restart, or after memory forgot
 * them, a picture that was seen before runs no tower. */
#include "engine/disk.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/core.h"
#include "engine/prefix/spill.h"
#include "model/media.h"

/* A disk that takes longer is slower than any tower. */
static const int64_t WAIT_NS = 10ll * 1000000000;

struct name {
	int32_t tok[1];
	struct digest key[2];
	struct spill_piece piece;
};

/* A salt that begins with 0 belongs to no request; those of further chains of pages (disk.c) go on with a small number. */
static void name_of(struct spill *s, const struct media *m, struct name *out)
{
	uint8_t salt[2 + sizeof m->digest] = { 0, 0xFF };

	memcpy(salt + 2, &m->digest, sizeof m->digest);
	out->tok[0] = m->n;
	spill_keys(s, salt, sizeof salt, out->tok, 1, out->key);
	out->piece = (struct spill_piece){ SPILL_SNAP, 1, out->tok, out->key };
}

/* On the reading thread. */
static void vectors_came(void *arg)
{
	engine_wake(arg);
}

void vectors_close(struct engine *e)
{
	struct vectors *v = &e->vectors;

	if (!v->load)
		return;
	spill_load_close(v->load);
	media_unref(v->media);
	*v = (struct vectors){ 0 };
}

static void take(struct engine *e, struct spill_got *got)
{
	struct spill *s = disk_spill(e);
	struct media *m = e->vectors.media;
	struct name name;

	if (got->n == m->bytes) {
		m->ops->take(m, got->payload);
		return;
	}
	log_warn("prompt cache: %zu bytes of an image's vectors, where %zu were kept", got->n, m->bytes);
	free(got->payload);
	name_of(s, m, &name);
	spill_bad(s, &name.piece);
}

bool vectors_step(struct engine *e)
{
	struct vectors *v = &e->vectors;
	struct spill_got got;

	if (!v->load)
		return false;
	switch (spill_load_next(v->load, &got)) {
	case SPILL_WAIT:
		if (engine_now(e) < v->deadline)
			return false;
		break;
	case SPILL_GOT: take(e, &got); break;
	case SPILL_END:
	case SPILL_FAIL: break;
	}
	vectors_close(e);
	return true;
}

bool vectors_fetch(struct engine *e, struct media *m)
{
	struct vectors *v = &e->vectors;
	struct spill *s = disk_spill(e);
	struct name name;

	if (v->media == m)
		return true;
	if (!s || m->sought || !m->ops->take)
		return false;
	name_of(s, m, &name);
	m->sought = !spill_find(s, name.key, false, name.tok, 1);
	if (m->sought || v->load)
		return !m->sought; /* its turn comes */
	m->sought = true;
	*v = (struct vectors){ .media = media_ref(m), .deadline = engine_now(e) + WAIT_NS };
	v->load = spill_load_open(s, &(struct spill_want){ .tok = name.tok,
	                                                   .key = name.key,
	                                                   .pos = 1,
	                                                   .page = name.piece.pos / spill_page_rows(s),
	                                                   .snap_max = m->bytes,
	                                                   .notify = vectors_came,
	                                                   .notify_arg = e });
	return true;
}

static void let_go(void *media)
{
	media_unref(media);
}

void vectors_keep(struct engine *e, struct media *m)
{
	struct spill *s = disk_spill(e);
	struct name name;

	if (!s || !m->ops->take)
		return;
	name_of(s, m, &name);
	if (spill_wants(s, &name.piece))
		spill_put_held(s, &name.piece, m->vectors, m->bytes, let_go, media_ref(m));
}
