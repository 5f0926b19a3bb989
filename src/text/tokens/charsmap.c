/* charsmap.c - see charsmap.h. */
#include "text/tokens/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/base64.h"

static uint32_t load(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int charsmap_open(struct charsmap *m, const char *base64, size_t n, struct err *err)
{
	size_t array, len, bad;
	int64_t got;

	*m = (struct charsmap){ 0 };
	m->p = xmalloc(n + 4);
	got = base64_decode(m->p, base64, n, &bad);
	if (got <= 0) {
		charsmap_close(m);
		return got ? err_set(err, E_FORMAT, "precompiled_charsmap: no base64 at byte %zu", bad) : 0;
	}
	len = (size_t)got;
	array = len >= 4 ? load(m->p) : 0;
	if (len < 4 || array % 4 || array > len - 4) {
		charsmap_close(m);
		return err_set(err, E_FORMAT, "precompiled_charsmap: an array of %zu bytes in %zu", array, len);
	}
	m->n_unit = array / 4;
	m->text = (const char *)m->p + 4 + array;
	m->n_text = len - 4 - array;
	return 0;
}

void charsmap_close(struct charsmap *m)
{
	free(m->p);
	*m = (struct charsmap){ 0 };
}

/* ---- darts-clone's double array ----
 *
 * A unit: bits 0-7 and 31 label, bit 8 has a leaf, bits 10-30 offset, shifted left by 8 where bit 9 is set; a leaf's
 * value is bits 0-30. */

static uint32_t offset_of(uint32_t unit)
{
	return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

size_t charsmap_find(const struct charsmap *m, const char *p, size_t n, const char **with, size_t *len)
{
	uint32_t at, unit, value;

	if (!m->n_unit)
		return 0;
	unit = load(m->p + 4);
	at = offset_of(unit);
	for (size_t i = 0; i < n; i++) {
		at ^= (unsigned char)p[i];
		if (at >= m->n_unit)
			break;
		unit = load(m->p + 4 + 4 * (size_t)at);
		if ((unit & (1u << 31 | 0xff)) != (unsigned char)p[i])
			break;
		at ^= offset_of(unit);
		if (unit >> 8 & 1 && at < m->n_unit) {
			value = load(m->p + 4 + 4 * (size_t)at) & ~(1u << 31);
			if (value >= m->n_text || !memchr(m->text + value, 0, m->n_text - value))
				return 0;
			*with = m->text + value;
			*len = strlen(*with);
			return i + 1;
		}
	}
	return 0;
}
