/* byte_text.c - see byte_text.h. */
#include "store/byte_text.h"

#include "base/json.h"
#include "base/utf8.h"

void byte_text_put(struct buf *out, uint8_t byte)
{
	static const uint8_t from[] = { 0x21, 0xA1, 0xAE }, to[] = { 0x7E, 0xAC, 0xFF };
	char text[4];
	uint32_t cp = 0x100;

	for (int i = 0; i < 3; i++)
		if (byte >= from[i] && byte <= to[i])
			cp = byte;
	for (int b = 0; cp >= 0x100 && b < byte; b++)
		cp += !(b >= 0x21 && b <= 0x7E) && !(b >= 0xA1 && b <= 0xAC) && b < 0xAE;
	json_put_inside(out, text, (size_t)utf8_encode(cp, text));
}
