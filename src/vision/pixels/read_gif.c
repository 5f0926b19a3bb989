/* read_gif.c - the first frame of a GIF by giflib. */
#include "vision/pixels/reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static bool knows(const uint8_t *p, size_t n)
{
	return n >= 6 && (!memcmp(p, "GIF87a", 6) || !memcmp(p, "GIF89a", 6));
}

#ifdef WEFT_GIF
#include <gif_lib.h>

struct source {
	struct reading *r;
	size_t at;
};

static int gif_bytes(GifFileType *g, GifByteType *to, int n)
{
	struct source *s = g->UserData;
	size_t left = s->r->n - s->at;

	n = (size_t)n < left ? n : (int)left;
	memcpy(to, s->r->p + s->at, (size_t)n);
	s->at += (size_t)n;
	return n;
}

static int broken(const GifFileType *g, struct err *err)
{
	const char *why = GifErrorString(g->Error);

	return err_set(err, E_FORMAT, "image: GIF: %s", why ? why : "broken");
}

/* Reads on to the first image. */
static int find_frame(GifFileType *g, struct err *err)
{
	for (;;) {
		GifRecordType kind;
		GifByteType *ext;
		int code;

		if (DGifGetRecordType(g, &kind) != GIF_OK)
			return broken(g, err);
		if (kind == IMAGE_DESC_RECORD_TYPE)
			return DGifGetImageDesc(g) == GIF_OK ? 0 : broken(g, err);
		if (kind == TERMINATE_RECORD_TYPE)
			return err_set(err, E_FORMAT, "image: GIF: it has no frame");
		if (kind != EXTENSION_RECORD_TYPE)
			continue;
		if (DGifGetExtension(g, &code, &ext) != GIF_OK)
			return broken(g, err);
		while (ext)
			if (DGifGetExtensionNext(g, &ext) != GIF_OK)
				return broken(g, err);
	}
}

static void put_row(uint8_t *to, const GifByteType *index, int n, const ColorMapObject *map)
{
	for (int x = 0; x < n; x++, to += 3) {
		const GifColorType *c = &map->Colors[index[x] < map->ColorCount ? index[x] : 0];

		to[0] = c->Red;
		to[1] = c->Green;
		to[2] = c->Blue;
	}
}

/* The canvas where the frame is not: colour 0. */
static void put_ground(struct reading *r, const ColorMapObject *map)
{
	GifByteType *index = xcalloc((size_t)r->out.w, 1);

	for (int y = 0; y < r->out.h && map; y++)
		put_row(reading_row(r, y), index, r->out.w, map);
	free(index);
}

static int read_rows(struct reading *r, GifFileType *g, const ColorMapObject *map, struct err *err)
{
	static const struct {
		int from, step;
	} passes[] = { { 0, 1 }, { 0, 8 }, { 4, 8 }, { 2, 4 }, { 1, 2 } };
	const GifImageDesc *at = &g->Image;
	GifByteType *line = xmalloc((size_t)at->Width);
	int rc = 0;

	for (int pass = at->Interlace ? 1 : 0; pass < (at->Interlace ? 5 : 1); pass++)
		for (int y = passes[pass].from; y < at->Height && !rc; y += passes[pass].step) {
			if (DGifGetLine(g, line, at->Width) != GIF_OK)
				rc = broken(g, err);
			else
				put_row(reading_row(r, at->Top + y) + 3 * (size_t)at->Left, line, at->Width, map);
		}
	free(line);
	return rc;
}

static int read_open(struct reading *r, GifFileType *g, struct err *err)
{
	const ColorMapObject *map;
	const GifImageDesc *at = &g->Image;
	int rc = find_frame(g, err), w = g->SWidth, h = g->SHeight;

	if (rc)
		return rc;
	map = at->ColorMap ? at->ColorMap : g->SColorMap;
	if (!map)
		return err_set(err, E_FORMAT, "image: GIF: it has no colours");
	if (at->Width < 1 || at->Height < 1 || at->Left < 0 || at->Top < 0 || at->Width > w - at->Left ||
	    at->Height > h - at->Top)
		return err_set(err, E_FORMAT, "image: GIF: a frame of %d x %d at %d, %d of %d x %d pixels", at->Width,
		               at->Height, at->Left, at->Top, w, h);
	rc = reading_begin(r, w, h, err);
	if (rc)
		return rc;
	if (at->Width < w || at->Height < h)
		put_ground(r, g->SColorMap);
	return read_rows(r, g, map, err);
}

static int read_gif(struct reading *r, struct err *err)
{
	struct source s = { .r = r };
	int code = 0, rc;
	GifFileType *g = DGifOpen(&s, gif_bytes, &code);
	const char *why;

	if (!g) {
		why = GifErrorString(code);
		return err_set(err, E_FORMAT, "image: GIF: %s", why ? why : "broken");
	}
	rc = read_open(r, g, err);
	DGifCloseFile(g, &code);
	return rc;
}
#else
#define read_gif NULL
#endif

const struct image_reader reader_gif = { "GIF", knows, read_gif };
