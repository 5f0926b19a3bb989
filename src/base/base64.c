/* base64.c - see base64.h. */
#include "base/base64.h"

/* The six bits of each character, of both alphabets; NONE: it is not one of them. */
enum { NONE = 0x40 };
#define NO8 NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE
#define NO32 NO8, NO8, NO8, NO8
/* clang-format off */
static const uint8_t sextet[256] = {
	NO32,
	NO8, NONE, NONE, NONE, 62, NONE, 62, NONE, 63, /* + - / */
	52, 53, 54, 55, 56, 57, 58, 59, 60, 61, NONE, NONE, NONE, NONE, NONE, NONE, /* 0 to 9 */
	NONE, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, /* A to O */
	15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, NONE, NONE, NONE, NONE, 63, /* P to Z, _ */
	NONE, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, /* a to o */
	41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, NONE, NONE, NONE, NONE, NONE, /* p to z */
	NO32, NO32, NO32, NO32,
};
/* clang-format on */

/* Decodes from s[0..n) as many groups of four characters as come without anything between; returns their characters. */
static size_t decode_groups(uint8_t *out, const uint8_t *s, size_t n)
{
	size_t i = 0;

	for (; i + 4 <= n; i += 4, out += 3) {
		uint32_t a = sextet[s[i]], b = sextet[s[i + 1]], c = sextet[s[i + 2]], d = sextet[s[i + 3]];

		if ((a | b | c | d) & NONE)
			break;
		out[0] = (uint8_t)(a << 2 | b >> 4);
		out[1] = (uint8_t)(b << 4 | c >> 2);
		out[2] = (uint8_t)(c << 6 | d);
	}
	return i;
}

int64_t base64_decode(uint8_t *out, const char *s, size_t n, size_t *bad)
{
	const uint8_t *u = (const uint8_t *)s;
	size_t length = n;
	uint32_t bits = 0;
	int64_t at = 0;
	int have = 0;

	while (n && (s[n - 1] == '=' || s[n - 1] == '\n' || s[n - 1] == '\r'))
		n--;
	for (size_t i = 0; i < n; i++) {
		if (!have) {
			size_t k = decode_groups(out + at, u + i, n - i);

			at += (int64_t)(k / 4 * 3);
			i += k;
			if (i == n)
				break;
		}
		if (s[i] == '\n' || s[i] == '\r')
			continue;
		if (sextet[u[i]] & NONE) {
			*bad = i;
			return -1;
		}
		bits = bits << 6 | sextet[u[i]];
		have += 6;
		if (have < 8)
			continue;
		have -= 8;
		out[at++] = (uint8_t)(bits >> have);
	}
	*bad = length;
	return have == 6 ? -1 : at;
}

void base64_put(struct buf *out, const void *bytes, size_t n)
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *p = bytes;

	buf_reserve(out, (n + 2) / 3 * 4);
	for (size_t i = 0; i < n; i += 3) {
		uint32_t bits = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
		                (i + 2 < n ? p[i + 2] : 0);

		buf_putc(out, digit[bits >> 18]);
		buf_putc(out, digit[bits >> 12 & 63]);
		buf_putc(out, i + 1 < n ? digit[bits >> 6 & 63] : '=');
		buf_putc(out, i + 2 < n ? digit[bits & 63] : '=');
	}
}
