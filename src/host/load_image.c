/* load_image.c - see load_image.h. */
#include "host/load_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "host/load.h"
#include "vision/tower.h"

int tower_bind(struct session *s, const struct host_opts *o, struct err *err)
{
	struct err why;

	if (!tower_open(&s->tower, s->store, &why))
		return 0;
	if (o->mmproj && strcmp(o->mmproj, "none")) {
		*err = why;
		return why.code;
	}
	s->no_tower = why;
	log_warn("%s reads text only, images are refused: its tower cannot be bound: %s", s->store->name, why.msg);
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

	return s->tower ? tower_attach(s->tower, s->cpu, arith, &tokens, err) : 0;
}

int image_of_bytes(struct session *s, const void *bytes, size_t n, struct media **out, struct err *err)
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

int image_of_file(struct session *s, const char *path, struct media **out, struct err *err)
{
	struct buf b;
	int rc;

	buf_init(&b);
	rc = file_read(path, image_limits_default.bytes, &b, err);
	if (!rc && (rc = image_of_bytes(s, b.p, b.n, out, err)))
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

int images_into_ids(struct session *s, struct media *const *m, int n_media, const int32_t *ids, int n, bool fewer,
                    struct seen_ids *out, struct err *err)
{
	int room = n, at = 0, rc = 0, layout;

	for (int i = 0; i < n_media; i++)
		room += m[i]->n_layout;
	*out = (struct seen_ids){ .id = xcalloc((size_t)room, sizeof *out->id), .n = n };
	if (n)
		memcpy(out->id, ids, (size_t)n * sizeof *ids);
	for (int i = 0; i < n_media && !rc; i++) {
		rc = tower_expand(s->tower, m[i], out->id, &out->n, &at, &layout, err);
		if (rc == E_MISSING && fewer)
			return 0;
		if (!rc)
			add_spans(out, m[i], layout);
	}
	for (; n_media && at < out->n && !rc; at++)
		if (out->id[at] == tower_info(s->tower).image_token)
			rc = err_set(err, E_FORMAT, "a placeholder at %d, and no image is left for it", at);
	return rc;
}

void seen_ids_fini(struct seen_ids *s)
{
	free(s->id);
	free(s->span);
	*s = (struct seen_ids){ 0 };
}
