/* stub_sight.c - see stub_sight.h. */
#include "model/media.h"
#include "stub_sight.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static atomic_int n_read;

int stub_sight_read(void)
{
	return n_read;
}

static void stub_free(struct media *m)
{
	free((void *)(uintptr_t)m->layout);
	free(m);
}

static const struct media_ops stub_media_ops = { .free = stub_free };

static int stub_read(enum media_kind kind, const void *bytes, size_t n, struct media **out, struct err *err)
{
	const char *end = memchr(bytes, '#', n);
	int h, w, at = 0;
	struct sha256 s;
	int32_t *layout;
	char text[64];

	n_read++;
	snprintf(text, sizeof text, "%.*s", (int)(n < 60 ? n : 60), (const char *)bytes);
	if (sscanf(text, kind == MEDIA_SOUND ? "HUM %dx%d " : "PIC %dx%d ", &h, &w) != 2)
		return err_set(err, E_FORMAT, "this is no %s", kind == MEDIA_SOUND ? "sound" : "image");
	if (h * w > 1000)
		return err_set(err, E_LIMIT, "an image of %d rows; 1000 are the most", h * w);
	*out = xcalloc(1, sizeof **out);
	layout = xcalloc((size_t)(h * (w + 1)), sizeof *layout);
	for (int r = 0; r < h; r++) {
		for (int c = 0; c < w; c++)
			layout[at++] = MEDIA_ROW;
		if (r + 1 < h)
			layout[at++] = STUB_BREAK;
	}
	**out = (struct media){ .ops = &stub_media_ops,
		                .refs = 1,
		                .kind = kind,
		                .row_token = kind == MEDIA_SOUND ? STUB_SOUND : STUB_IMAGE,
		                .placeholder = kind == MEDIA_SOUND ? STUB_SOUND : STUB_IMAGE,
		                .n = h * w,
		                .layout = layout,
		                .n_layout = at,
		                .pixels = strstr(text, "huge") ? 50000000 : h * w,
		                .bytes = (size_t)(h * w) * 1000 };
	sha256_init(&s);
	sha256_put(&s, bytes, end ? (size_t)(end - (const char *)bytes) : n);
	sha256_end(&s, &(*out)->digest);
	return 0;
}

static int stub_image(void *arg, const void *bytes, size_t n, struct media **out, struct err *err)
{
	return stub_read(MEDIA_IMAGE, bytes, n, out, err);
}

static int stub_sound(void *arg, const void *bytes, size_t n, struct media **out, struct err *err)
{
	return stub_read(MEDIA_SOUND, bytes, n, out, err);
}

const struct sight stub_sight = { .image = stub_image, .sound = stub_sound };
