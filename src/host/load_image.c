/* load_image.c - see load_image.h. */
#include "host/load_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "host/load.h"
#include "sound/ear.h"
#include "vision/tower.h"

int tower_bind(struct session *s, const struct host_opts *o, struct err *err)
{
	struct err why;

	if (ear_open(&s->ear, s->store, &why)) {
		s->no_ear = why;
		log_warn("%s: sounds are refused: its tower for them cannot be bound: %s", s->store->name, why.msg);
	}
	if (!tower_open(&s->tower, s->store, &why))
		return 0;
	if (o->mmproj && strcmp(o->mmproj, "none")) {
		*err = why;
		return why.code;
	}
	s->no_tower = why;
	log_warn("%s%s images are refused: its tower cannot be bound: %s", s->store->name,
	         s->ear ? ":" : " reads text only,", why.msg);
	return 0;
}

static int32_t token_id(void *arg, const char *text)
{
	const struct session *s = arg;

	return s->tok ? tokenizer_find(s->tok, text, strlen(text)) : -1;
}

int tower_begin(struct session *s, enum arith arith, struct err *err)
{
	struct tower_tokens tokens = { token_id, s };
	int rc = s->tower ? tower_attach(s->tower, s->cpu, arith, &tokens, err) : 0;

	return !rc && s->ear ? ear_attach(s->ear, s->cpu, arith, err) : rc;
}

static int image_of_bytes(struct session *s, const void *bytes, size_t n, struct media **out, struct err *err)
{
	struct image im;
	int rc;

	if (s->no_tower.code)
		return err_set(err, E_UNSUPPORTED, "%s: its tower cannot be bound: %s", s->store->name,
		               s->no_tower.msg);
	if (!s->tower)
		return err_set(err, E_UNSUPPORTED, "%s has no tower for images that is read", s->store->name);
	rc = image_decode(&im, bytes, n, NULL, err);
	if (rc)
		return rc;
	rc = tower_image(out, s->tower, &im, 0, err);
	image_fini(&im);
	return rc;
}

static int sound_of_bytes(struct session *s, const void *bytes, size_t n, struct media **out, struct err *err)
{
	struct sound sound;
	int rc;

	if (s->no_ear.code)
		return err_set(err, E_UNSUPPORTED, "%s: its tower for sounds cannot be bound: %s", s->store->name,
		               s->no_ear.msg);
	if (!s->ear)
		return err_set(err, E_UNSUPPORTED, "%s does not hear, or its tower for sounds is not read",
		               s->store->name);
	rc = sound_decode(&sound, bytes, n, NULL, err);
	if (rc)
		return rc;
	rc = ear_sound(out, s->ear, &sound, 0, err);
	sound_fini(&sound);
	return rc;
}

int media_of_bytes(struct session *s, enum media_kind kind, const void *bytes, size_t n, struct media **out,
                   struct err *err)
{
	return kind == MEDIA_SOUND ? sound_of_bytes(s, bytes, n, out, err) : image_of_bytes(s, bytes, n, out, err);
}

int media_of_file(struct session *s, const char *path, struct media **out, struct err *err)
{
	struct buf b;
	int rc;

	buf_init(&b);
	rc = file_read(path, image_limits_default.bytes, &b, err);
	if (!rc && (rc = media_of_bytes(s, sound_known(b.p, b.n) ? MEDIA_SOUND : MEDIA_IMAGE, b.p, b.n, out, err)))
		err_prefix(err, "%s", path);
	buf_fini(&b);
	return rc;
}

/* Runs of rows in the layout at `at`. */
static void add_spans(struct seen_ids *s, struct media *m, int at)
{
	for (int i = 0, row = 0, n; i < m->n_layout; i += n) {
		for (n = 0; i + n < m->n_layout && m->layout[i + n] == MEDIA_ROW; n++)
			;
		if (!n) {
			n = 1;
			continue;
		}
		s->span = xrealloc(s->span, size_mul((size_t)s->n_span + 1, sizeof *s->span));
		s->span[s->n_span++] = (struct ask_span){ .at = at + i, .n = n, .media = m, .from = row };
		row += n;
	}
}

/* The object whose placeholder comes first from `at` on, among the next ones of each kind; NULL: there is none. */
static struct media *next_object(struct media *const *m, int n_media, const bool *done, const struct seen_ids *ids,
                                 int at, int *which)
{
	bool looked[MEDIA_KINDS] = { false };
	int first = ids->n;

	*which = -1;
	for (int i = 0; i < n_media; i++) {
		int to;

		if (done[i] || looked[m[i]->kind])
			continue;
		looked[m[i]->kind] = true;
		to = media_next(m[i], ids->id, ids->n, at);
		if (to < first) {
			first = to;
			*which = i;
		}
	}
	return *which < 0 ? NULL : m[*which];
}

static int check_rest(const struct session *s, const struct seen_ids *ids, int at, struct err *err)
{
	for (; at < ids->n; at++)
		if ((s->tower && ids->id[at] == tower_info(s->tower).image_token) ||
		    (s->ear && ids->id[at] == ear_info(s->ear).sound_token))
			return err_set(err, E_FORMAT, "a placeholder at %d, and no image or sound is left for it", at);
	return 0;
}

int media_into_ids(struct session *s, struct media *const *m, int n_media, const int32_t *ids, int n, bool fewer,
                   struct seen_ids *out, struct err *err)
{
	bool *done = xcalloc((size_t)n_media + 1, sizeof *done);
	int room = n, at = 0, rc = 0, layout, left = n_media, which;
	struct media *next;

	for (int i = 0; i < n_media; i++)
		room += m[i]->n_layout;
	*out = (struct seen_ids){ .id = xcalloc((size_t)room, sizeof *out->id), .n = n };
	if (n)
		memcpy(out->id, ids, (size_t)n * sizeof *ids);
	while (!rc && left && (next = next_object(m, n_media, done, out, at, &which))) {
		rc = media_expand(next, out->id, &out->n, &at, &layout, err);
		if (!rc)
			add_spans(out, next, layout);
		done[which] = true;
		left--;
	}
	if (!rc && left && !fewer)
		rc = err_set(err, E_MISSING, "no placeholder is left for %d of %d images and sounds", left, n_media);
	free(done);
	return rc || !n_media || (left && fewer) ? rc : check_rest(s, out, at, err);
}

void seen_ids_fini(struct seen_ids *s)
{
	free(s->id);
	free(s->span);
	*s = (struct seen_ids){ 0 };
}
