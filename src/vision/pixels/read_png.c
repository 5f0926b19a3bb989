/* read_png.c - PNG by libpng. */
#include "vision/pixels/reader.h"

#include <string.h>

static bool knows(const uint8_t *p, size_t n)
{
	return n >= 8 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8);
}

#ifdef WEFT_PNG
#include <png.h>

enum { CHUNK_MOST = 8 << 20, CHUNKS_MOST = 256 }; /* bytes of one besides the pixels; how many are kept */

struct source {
	struct reading *r;
	size_t at;
	struct err *err;
	int rc;
};

static void png_bytes(png_structp png, png_bytep to, size_t n)
{
	struct source *s = png_get_io_ptr(png);

	if (n > s->r->n - s->at)
		png_error(png, "the file ends early");
	memcpy(to, s->r->p + s->at, n);
	s->at += n;
}

static void on_error(png_structp png, png_const_charp why)
{
	struct source *s = png_get_error_ptr(png);

	if (!s->rc)
		s->rc = err_set(s->err, E_FORMAT, "image: PNG: %s at byte %zu of %zu", why, s->at, s->r->n);
	png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp why) {}

/* Has every kind of PNG converted to three bytes a pixel. */
static void ask_for_rgb(png_structp png, png_infop info)
{
	png_set_palette_to_rgb(png);
	png_set_strip_16(png);
	if (png_get_color_type(png, info) == PNG_COLOR_TYPE_GRAY)
		png_set_expand_gray_1_2_4_to_8(png);
	png_set_gray_to_rgb(png);
	png_set_strip_alpha(png);
}

static void read_rows(png_structp png, struct source *s)
{
	struct reading *r = s->r;
	int passes = png_set_interlace_handling(png);

	for (int pass = 0; pass < passes; pass++)
		for (int y = 0; y < r->out.h; y++) {
			if (!reading_spend(r->out.w)) {
				s->rc = reading_stopped(s->err);
				png_error(png, "stopped");
			}
			png_read_row(png, reading_row(r, y), NULL);
		}
}

static void read_all(png_structp png, png_infop info, struct source *s)
{
	png_bytep exif = NULL;
	png_uint_32 n_exif = 0;

	png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* reading_begin has limits */
	png_set_chunk_malloc_max(png, CHUNK_MOST);
	png_set_chunk_cache_max(png, CHUNKS_MOST);
	png_set_read_fn(png, s, png_bytes);
	png_read_info(png, info);
	s->rc = reading_begin(s->r, png_get_image_width(png, info), png_get_image_height(png, info), s->err);
	if (s->rc)
		return;
	ask_for_rgb(png, info);
	read_rows(png, s);
	png_read_end(png, info);
	if (png_get_eXIf_1(png, info, &n_exif, &exif))
		s->r->orientation = exif_orientation(exif, n_exif);
}

static int read_png(struct reading *r, struct err *err)
{
	struct source s = { .r = r, .err = err };
	png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning);
	png_infop info = png ? png_create_info_struct(png) : NULL;

	if (info && !setjmp(png_jmpbuf(png)))
		read_all(png, info, &s);
	else if (!info)
		s.rc = err_set(err, E_LIMIT, "image: PNG: no memory");
	png_destroy_read_struct(&png, &info, NULL);
	return s.rc;
}
#else
#define read_png NULL
#endif

const struct image_reader reader_png = { "PNG", knows, read_png };
