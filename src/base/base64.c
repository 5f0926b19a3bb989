/* base64.c - see base64.h. */
#include "base/base64.h"

static int sextet(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

int64_t base64_decode(uint8_t *out, const char *s, size_t n, size_t *bad)
{
	size_t length = n;
	uint32_t bits = 0;
	int64_t at = 0;
	int have = 0;

	while (n && (s[n - 1] == '=' || s[n - 1] == '\n' || s[n - 1] == '\r'))
		n--;
	for (size_t i = 0; i < n; i++) {
		int v = sextet(s[i]);

		if (s[i] == '\n' || s[i] == '\r')
			continue;
		if (v < 0) {
			*bad = i;
			return -1;
		}
		bits = bits << 6 | (uint32_t)v;
		have += 6;
		if (have < 8)
			continue;
		have -= 8;
		out[at++] = (uint8_t)(bits >> have);
	}
	*bad = length;
	return have == 6 ? -1 : at;
}
