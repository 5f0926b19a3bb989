/* utf8.c - see utf8.h. */
#include "base/utf8.h"

#include "base/allowance.h"

/* Length by first byte, and the bounds of the second, after table 3-7 of the
 * Unicode standard: that table is what excludes overlong forms and surrogates. */
static int lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
	*lo = 0x80;
	*hi = 0xBF;
	if (c < 0x80)
		return 1;
	if (c >= 0xC2 && c <= 0xDF)
		return 2;
	if (c >= 0xE0 && c <= 0xEF) {
		if (c == 0xE0)
			*lo = 0xA0;
		if (c == 0xED)
			*hi = 0x9F;
		return 3;
	}
	if (c >= 0xF0 && c <= 0xF4) {
		if (c == 0xF0)
			*lo = 0x90;
		if (c == 0xF4)
			*hi = 0x8F;
		return 4;
	}
	return 0;
}

int utf8_decode(const char *s, size_t n, uint32_t *cp)
{
	const unsigned char *p = (const unsigned char *)s;
	unsigned char lo, hi;
	int len = lead(p[0], &lo, &hi);
	uint32_t v;

	if (!len || (size_t)len > n)
		return 0;
	if (len == 1) {
		*cp = p[0];
		return 1;
	}
	if (p[1] < lo || p[1] > hi)
		return 0;
	v = p[0] & (0x7Fu >> len);
	v = v << 6 | (p[1] & 0x3Fu);
	for (int i = 2; i < len; i++) {
		if ((p[i] & 0xC0) != 0x80)
			return 0;
		v = v << 6 | (p[i] & 0x3Fu);
	}
	*cp = v;
	return len;
}

int utf8_encode(uint32_t cp, char *out)
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xC0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3F));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xE0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
		out[2] = (char)(0x80 | (cp & 0x3F));
		return 3;
	}
	out[0] = (char)(0xF0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
	out[3] = (char)(0x80 | (cp & 0x3F));
	return 4;
}

enum { BLOCK = 64 }; /* bytes that are looked at together, which the compiler turns into vectors */

static bool ascii_block(const char *p)
{
	unsigned char any = 0;

	for (int k = 0; k < BLOCK; k++)
		any |= (unsigned char)p[k];
	return !(any & 0x80);
}

size_t utf8_valid(const char *p, size_t n)
{
	uint32_t cp;
	size_t i = 0;

	while (i < n) {
		size_t end = n - i < BLOCK ? n : i + BLOCK;

		if (end == i + BLOCK && ascii_block(p + i)) {
			i = end;
			continue;
		}
		while (i < end) {
			int len = utf8_decode(p + i, n - i, &cp);

			if (!len)
				return i;
			i += (size_t)len;
		}
	}
	return n;
}

size_t utf8_piece(const char *p, size_t n, size_t most)
{
	size_t k = most;

	if (n <= most)
		return n;
	while (k > most - 3 && (p[k] & 0xC0) == 0x80)
		k--;
	return k;
}

size_t utf8_valid_piecewise(const char *p, size_t n)
{
	for (size_t i = 0, k, at; i < n && allowance_spend(0); i += k) {
		k = utf8_piece(p + i, n - i, ALLOWANCE_PIECE);
		if ((at = utf8_valid(p + i, k)) < k)
			return i + at;
	}
	return n;
}

size_t utf8_incomplete_tail(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	unsigned char lo, hi;

	for (size_t k = 1; k <= 3 && k <= n; k++) {
		unsigned char c = p[n - k];
		int len;

		if ((c & 0xC0) == 0x80)
			continue;
		len = lead(c, &lo, &hi);
		if (!len || (size_t)len <= k)
			return 0;
		if (k >= 2 && (p[n - k + 1] < lo || p[n - k + 1] > hi))
			return 0;
		return k;
	}
	return 0;
}
