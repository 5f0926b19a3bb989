/* read_bmp.c - Windows bitmaps without compression, the one format here that no packaged library of its own reads.
 *
 * A file header of 14 bytes names where the pixels begin; an info header names size, bits and, from 40 bytes on,
 * compression and masks; a palette of 3 or 4 bytes a colour follows.  Rows are padded to 4 bytes and stored bottom up,
 * unless the height is negative.  Run lengths are refused. */
#include "vision/pixels/reader.h"

enum { FILE_HEADER = 14, CORE = 12, INFO = 40, PLAIN = 0, MASKS = 3, MASKS_ALPHA = 6 };

struct bmp {
	int64_t w, h;
	bool top_down;
	int bits;
	uint32_t mask[3];       /* of red, green, blue in pixels of 16 and 32 bits */
	const uint8_t *palette; /* blue, green, red */
	int colours, colour_bytes;
	const uint8_t *pixels;
	size_t row_bytes;
};

static bool knows(const uint8_t *p, size_t n)
{
	return n >= FILE_HEADER + CORE && p[0] == 'B' && p[1] == 'M' && !p[6] && !p[7] && !p[8] && !p[9];
}

static uint32_t u16(const uint8_t *p)
{
	return (uint32_t)(p[0] | p[1] << 8);
}
static uint32_t u32(const uint8_t *p)
{
	return u16(p) | u16(p + 2) << 16;
}

/* Bits of a mask to 0 .. 255, rounded down as the reference does. */
static uint8_t channel(uint32_t pixel, uint32_t mask)
{
	uint32_t most = mask ? mask >> __builtin_ctz(mask) : 0;

	return most ? (uint8_t)(((uint64_t)((pixel & mask) >> __builtin_ctz(mask)) * 255) / most) : 0;
}

static void put_index(uint8_t *to, const struct bmp *b, unsigned index)
{
	const uint8_t *c = b->palette + (size_t)(index < (unsigned)b->colours ? index : 0) * (size_t)b->colour_bytes;

	to[0] = c[2];
	to[1] = c[1];
	to[2] = c[0];
}

static void put_row(uint8_t *to, const uint8_t *p, const struct bmp *b)
{
	for (int64_t x = 0; x < b->w; x++, to += 3) {
		size_t bit = (size_t)x * (size_t)b->bits;
		const uint8_t *at = p + bit / 8;
		uint32_t pixel = b->bits == 16 ? u16(at) : b->bits == 32 ? u32(at) : 0;

		if (b->bits <= 8) {
			put_index(to, b, (unsigned)(*at >> (8 - b->bits - (int)(bit % 8))) & ((1u << b->bits) - 1));
		} else if (b->bits == 24) {
			to[0] = at[2];
			to[1] = at[1];
			to[2] = at[0];
		} else {
			for (int c = 0; c < 3; c++)
				to[c] = channel(pixel, b->mask[c]);
		}
	}
}

static bool bits_known(int bits, bool core)
{
	return bits == 1 || bits == 4 || bits == 8 || bits == 24 || (!core && (bits == 16 || bits == 32));
}

static void plain_masks(struct bmp *b)
{
	for (int c = 0; c < 3; c++)
		b->mask[c] = b->bits == 16 ? 0x1fu << (10 - 5 * c) : 0xffu << (16 - 8 * c);
}

/* Reads an info header of 40 bytes and more at p, `left` of them there. */
static int read_info(struct bmp *b, const uint8_t *p, size_t left, uint32_t size, size_t *masks, struct err *err)
{
	uint32_t compression, colours;
	int32_t h;

	if (size > 65535 || left < size)
		return err_set(err, E_FORMAT, "image: BMP: an info header of %u bytes, of which %zu are there", size,
		               left);
	compression = u32(p + 16);
	colours = u32(p + 32);
	h = (int32_t)u32(p + 8);
	b->w = (int32_t)u32(p + 4);
	b->h = h < 0 ? -(int64_t)h : h;
	b->top_down = h < 0;
	b->bits = (int)u16(p + 14);
	b->colour_bytes = 4;
	b->colours = colours ? (colours > 256 ? 256 : (int)colours) : 256;
	plain_masks(b);
	if (compression != PLAIN && compression != MASKS && compression != MASKS_ALPHA)
		return err_set(err, E_UNSUPPORTED, "image: BMP: compression %u is not read", compression);
	*masks = compression == PLAIN || size > INFO ? 0 : compression == MASKS ? 12 : 16;
	if (compression == PLAIN)
		return 0;
	if (left < INFO + 12)
		return err_set(err, E_FORMAT, "image: BMP: its masks are missing");
	for (int c = 0; c < 3; c++)
		b->mask[c] = u32(p + INFO + 4 * c);
	return 0;
}

static int read_header(struct bmp *b, const struct reading *r, struct err *err)
{
	const uint8_t *p = r->p + FILE_HEADER;
	uint32_t pixels = u32(r->p + 10), size = u32(p);
	size_t left = r->n - FILE_HEADER, masks = 0, before;
	int rc = 0;

	if (size == CORE) {
		b->w = u16(p + 4);
		b->h = u16(p + 6);
		b->bits = (int)u16(p + 10);
		b->colour_bytes = 3;
		b->colours = 256;
	} else if (size >= INFO) {
		rc = read_info(b, p, left, size, &masks, err);
	} else {
		rc = err_set(err, E_FORMAT, "image: BMP: an info header of %u bytes", size);
	}
	if (rc)
		return rc;
	if (!bits_known(b->bits, size == CORE))
		return err_set(err, E_UNSUPPORTED, "image: BMP: %d bits a pixel", b->bits);
	before = FILE_HEADER + (size_t)size + masks;
	if (before > r->n || pixels > r->n || pixels < before)
		return err_set(err, E_FORMAT, "image: BMP: pixels at %u, after headers of %zu, in a file of %zu bytes",
		               pixels, before, r->n);
	b->palette = r->p + before;
	b->pixels = r->p + pixels;
	if (b->bits <= 8) {
		size_t room = (pixels - before) / (size_t)b->colour_bytes;

		b->colours = b->colours > 1 << b->bits ? 1 << b->bits : b->colours;
		b->colours = (size_t)b->colours > room ? (int)room : b->colours;
		if (b->colours < 1)
			return err_set(err, E_FORMAT, "image: BMP: it has no colours");
	}
	return 0;
}

static int read_bmp(struct reading *r, struct err *err)
{
	struct bmp b = { 0 };
	int rc = read_header(&b, r, err);
	size_t left;

	if (rc)
		return rc;
	if (b.w < 1 || b.w > r->limits->edge)
		return reading_begin(r, b.w, b.h, err);
	b.row_bytes = ((size_t)b.w * (size_t)b.bits + 31) / 32 * 4;
	left = r->n - (size_t)(b.pixels - r->p);
	if (b.h > 0 && (size_t)b.h > left / b.row_bytes)
		return err_set(err, E_FORMAT, "image: BMP: %lld rows of %zu bytes, of which %zu bytes are there",
		               (long long)b.h, b.row_bytes, left);
	rc = reading_begin(r, b.w, b.h, err);
	for (int64_t y = 0; y < b.h && !rc; y++)
		put_row(reading_row(r, (int)(b.top_down ? y : b.h - 1 - y)), b.pixels + (size_t)y * b.row_bytes, &b);
	return rc;
}

const struct image_reader reader_bmp = { "BMP", knows, read_bmp };
