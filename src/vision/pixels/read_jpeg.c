/* read_jpeg.c - JPEG by libjpeg-turbo. */
#include "vision/pixels/reader.h"

#include <setjmp.h>
#include <stdio.h>

static bool knows(const uint8_t *p, size_t n)
{
	return n >= 3 && p[0] == 0xff && p[1] == 0xd8 && p[2] == 0xff;
}

#ifdef WEFT_JPEG
#include <jpeglib.h>
#include <jerror.h>

enum { SCANS_MOST = 100, APP1_MOST = 0xffff };

struct source {
	struct jpeg_error_mgr errors; /* first, so that the library's pointer is ours */
	struct jpeg_progress_mgr progress;
	struct reading *r;
	struct err *err;
	int rc, scan;
	jmp_buf out;
};

static void leave(j_common_ptr c)
{
	struct source *s = (struct source *)c->err;
	char why[JMSG_LENGTH_MAX];

	if (!s->rc) {
		s->errors.format_message(c, why);
		s->rc = err_set(s->err, E_FORMAT, "image: JPEG: %s", why);
	}
	longjmp(s->out, 1);
}

/* A broken stretch inside is shown as it comes out, as other decoders do; a file that ends early is an error. */
static void on_message(j_common_ptr c, int level)
{
	struct source *s = (struct source *)c->err;

	if (level < 0 && s->errors.msg_code == JWRN_JPEG_EOF) {
		s->rc = err_set(s->err, E_FORMAT, "image: JPEG: the file ends early, after %zu bytes", s->r->n);
		leave(c);
	}
}

/* A progressive file may name any number of scans, each of which goes over all pixels. */
static void on_progress(j_common_ptr c)
{
	struct source *s = (struct source *)c->err;
	const struct jpeg_decompress_struct *j = (const struct jpeg_decompress_struct *)c;

	if (j->input_scan_number == s->scan)
		return;
	s->scan = j->input_scan_number;
	if (s->scan > SCANS_MOST)
		s->rc = err_set(s->err, E_LIMIT, "image: JPEG: more than %d scans", SCANS_MOST);
	else if (!reading_spend((int64_t)j->image_width * j->image_height))
		s->rc = reading_stopped(s->err);
	if (s->rc)
		leave(c);
}

/* x * y / 255, rounded. */
static int product255(int x, int y)
{
	int p = x * y + 128;

	return (p + (p >> 8)) >> 8;
}

/* Four inks to three colours, in place.  Adobe's files have them inverted. */
static void rgb_of_cmyk(uint8_t *to, const uint8_t *from, int n, bool inverted)
{
	for (int i = 0; i < n; i++, to += 3, from += 4)
		for (int c = 0; c < 3; c++) {
			int ink = inverted ? 255 - from[c] : from[c], light = inverted ? from[3] : 255 - from[3];
			int v = light - product255(ink, light);

			to[c] = (uint8_t)(v < 0 ? 0 : v);
		}
}

static void find_orientation(struct reading *r, jpeg_saved_marker_ptr m)
{
	for (; m && !r->orientation; m = m->next)
		if (m->marker == JPEG_APP0 + 1)
			r->orientation = exif_orientation(m->data, m->data_length);
}

static void read_rows(struct jpeg_decompress_struct *j, struct source *s)
{
	bool inks = j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK;
	JSAMPARRAY four;

	j->out_color_space = inks ? JCS_CMYK : JCS_RGB;
	jpeg_start_decompress(j);
	four = inks ? j->mem->alloc_sarray((j_common_ptr)j, JPOOL_IMAGE, j->output_width * 4, 1) : NULL;
	while (j->output_scanline < j->output_height) {
		uint8_t *row = reading_row(s->r, (int)j->output_scanline);

		jpeg_read_scanlines(j, inks ? four : &row, 1);
		if (inks)
			rgb_of_cmyk(row, four[0], s->r->out.w, j->saw_Adobe_marker);
	}
	jpeg_finish_decompress(j);
}

static int read_jpeg(struct reading *r, struct err *err)
{
	struct source s = { .r = r, .err = err };
	struct jpeg_decompress_struct j = { .err = jpeg_std_error(&s.errors) };

	s.errors.error_exit = leave;
	s.errors.emit_message = on_message;
	s.progress.progress_monitor = on_progress;
	if (!setjmp(s.out)) {
		jpeg_create_decompress(&j);
		j.progress = &s.progress;
		jpeg_mem_src(&j, r->p, r->n);
		jpeg_save_markers(&j, JPEG_APP0 + 1, APP1_MOST);
		jpeg_read_header(&j, TRUE);
		find_orientation(r, j.marker_list);
		s.rc = reading_begin(r, j.image_width, j.image_height, err);
		if (!s.rc)
			read_rows(&j, &s);
	}
	jpeg_destroy_decompress(&j);
	return s.rc;
}
#else
#define read_jpeg NULL
#endif

const struct image_reader reader_jpeg = { "JPEG", knows, read_jpeg };
