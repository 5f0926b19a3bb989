/* read_webp.c - WebP by libwebp; of an animation the first frame. */
#include "vision/pixels/reader.h"

#include <string.h>

static bool knows(const uint8_t *p, size_t n)
{
	return n >= 12 && !memcmp(p, "RIFF", 4) && !memcmp(p + 8, "WEBP", 4);
}

#ifdef WEFT_WEBP
#include <webp/decode.h>
#include <webp/demux.h>

/* The first frame at its place on the canvas. */
static int read_frame(struct reading *r, const WebPIterator *f, struct err *err)
{
	int stride = r->out.w * 3;
	WebPBitstreamFeatures is;
	uint8_t *to;

	if (WebPGetFeatures(f->fragment.bytes, f->fragment.size, &is) != VP8_STATUS_OK || is.width != f->width ||
	    is.height != f->height)
		return err_set(err, E_FORMAT, "image: WebP: its frame cannot be read");
	if (f->x_offset < 0 || f->y_offset < 0 || f->width > r->out.w - f->x_offset ||
	    f->height > r->out.h - f->y_offset)
		return err_set(err, E_FORMAT, "image: WebP: a frame of %d x %d at %d, %d of %d x %d pixels", f->width,
		               f->height, f->x_offset, f->y_offset, r->out.w, r->out.h);
	to = reading_row(r, f->y_offset) + (size_t)f->x_offset * 3;
	if (!WebPDecodeRGBInto(f->fragment.bytes, f->fragment.size, to,
	                       (size_t)(f->height - 1) * (size_t)stride + (size_t)f->width * 3, stride))
		return err_set(err, E_FORMAT, "image: WebP: broken, or it ends early after %zu bytes", r->n);
	return 0;
}

static void find_orientation(struct reading *r, const WebPDemuxer *d)
{
	WebPChunkIterator c;

	if (WebPDemuxGetChunk(d, "EXIF", 1, &c))
		r->orientation = exif_orientation(c.chunk.bytes, c.chunk.size);
	WebPDemuxReleaseChunkIterator(&c);
}

static int read_webp(struct reading *r, struct err *err)
{
	WebPData all = { r->p, r->n };
	WebPDemuxer *d = WebPDemux(&all);
	WebPIterator f;
	int rc;

	if (!d)
		return err_set(err, E_FORMAT, "image: WebP: broken, or it ends early after %zu bytes", r->n);
	rc = reading_begin(r, WebPDemuxGetI(d, WEBP_FF_CANVAS_WIDTH), WebPDemuxGetI(d, WEBP_FF_CANVAS_HEIGHT), err);
	if (!rc) {
		memset(&f, 0, sizeof f);
		rc = WebPDemuxGetFrame(d, 1, &f) ? read_frame(r, &f, err) :
		                                   err_set(err, E_FORMAT, "image: WebP: it has no frame");
		WebPDemuxReleaseIterator(&f);
	}
	if (!rc)
		find_orientation(r, d);
	WebPDemuxDelete(d);
	return rc;
}
#else
#define read_webp NULL
#endif

const struct image_reader reader_webp = { "WebP", knows, read_webp };
