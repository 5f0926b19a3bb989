/* exif.c - the orientation in EXIF data: tag 0x0112 in the first directory of a TIFF header (EXIF 2.32, 4.6). */
#include "vision/pixels/reader.h"

enum { TAG_ORIENTATION = 0x0112, ENTRY = 12 };
enum { TYPE_SHORT = 3, TYPE_LONG = 4, TYPE_SSHORT = 8, TYPE_SLONG = 9 };

static unsigned u16(const uint8_t *p, bool big)
{
	return big ? (unsigned)p[0] << 8 | p[1] : (unsigned)p[1] << 8 | p[0];
}

static uint32_t u32(const uint8_t *p, bool big)
{
	return big ? (uint32_t)u16(p, true) << 16 | u16(p + 2, true) :
	             (uint32_t)u16(p + 2, false) << 16 | u16(p, false);
}

/* The one value of an entry, as any of the integers that it may be; 0: it is none of them. */
static uint32_t value_of(const uint8_t *entry, bool big)
{
	unsigned type = u16(entry + 2, big);

	if (type == TYPE_SHORT || type == TYPE_SSHORT)
		return u16(entry + 8, big);
	/* Two of them are elsewhere, and this is their place. */
	if ((type == TYPE_LONG || type == TYPE_SLONG) && u32(entry + 4, big) == 1)
		return u32(entry + 8, big);
	return 0;
}

int exif_orientation(const uint8_t *p, size_t n)
{
	bool big;
	uint32_t at;

	if (n >= 6 && p[0] == 'E' && p[1] == 'x' && p[2] == 'i' && p[3] == 'f') /* JPEG's marker, sometimes WebP's */
		p += 6, n -= 6;
	if (n < 8 || p[0] != p[1] || (p[0] != 'M' && p[0] != 'I'))
		return 0;
	big = p[0] == 'M';
	at = u32(p + 4, big);
	if (u16(p + 2, big) != 42 || at > n - 2)
		return 0;
	for (unsigned i = 0, entries = u16(p + at, big); i < entries; i++) {
		size_t e = (size_t)at + 2 + (size_t)i * ENTRY;
		uint32_t value;

		if (e + ENTRY > n)
			return 0;
		if (u16(p + e, big) != TAG_ORIENTATION)
			continue;
		value = value_of(p + e, big);
		return value >= 1 && value <= 8 ? (int)value : 0;
	}
	return 0;
}
