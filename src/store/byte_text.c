/* byte_text.c - see byte_text.h. */
#include "store/byte_text.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

static uint32_t character_of(uint8_t byte)
{
	static const uint8_t from[] = { 0x21, 0xA1, 0xAE }, to[] = { 0x7E, 0xAC, 0xFF };
	uint32_t cp = 0x100;

	for (int i = 0; i < 3; i++)
		if (byte >= from[i] && byte <= to[i])
			return byte;
	for (int b = 0; b < byte; b++)
		cp += !(b >= 0x21 && b <= 0x7E) && !(b >= 0xA1 && b <= 0xAC) && b < 0xAE;
	return cp;
}

void byte_text_put(struct buf *out, uint8_t byte)
{
	char text[4];

	json_put_inside(out, text, (size_t)utf8_encode(character_of(byte), text));
}

int64_t byte_text_read(uint8_t *out, const char *text, size_t n)
{
	int16_t byte[0x180];
	int64_t put = 0;

	memset(byte, -1, sizeof byte);
	for (int b = 0; b < 256; b++)
		byte[character_of((uint8_t)b)] = (int16_t)b;
	for (size_t at = 0; at < n;) {
		uint32_t cp;
		int len = utf8_decode(text + at, n - at, &cp);

		if (len < 1 || cp >= sizeof byte / sizeof *byte || byte[cp] < 0)
			return -1;
		out[put++] = (uint8_t)byte[cp];
		at += (size_t)len;
	}
	return put;
}
