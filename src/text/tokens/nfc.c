/* nfc.c - see nfc.h.  Unicode Standard Annex 15; the tables are utf8proc's. */
#include "text/tokens/nfc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/utf8.h"

/* The longest canonical decomposition of one character has 4 code points; the longest compatible one has 18, of a
 * character of three bytes. */
enum { DECOMPOSED_MAX = 6, NO_INDEX = UINT16_MAX };

static bool composes(enum nfc_form form)
{
	return form == FORM_C || form == FORM_KC;
}
static bool compatible(enum nfc_form form)
{
	return form == FORM_KC || form == FORM_KD;
}

void nfc_init(struct nfc *f)
{
	*f = (struct nfc){ 0 };
	buf_init(&f->out);
}

void nfc_fini(struct nfc *f)
{
	buf_fini(&f->out);
	free(f->change);
	free(f->cp);
	free(f->sorted);
}

/* Neither changes nor joins what comes before it: text can be cut before it. */
static bool inert(enum nfc_form form, uint32_t cp)
{
	const utf8proc_property_t *q;

	if (cp < (form == FORM_C ? 0x300 : 0x80))
		return true;
	if (!composes(form) && cp >= 0xAC00 && cp <= 0xD7A3) /* Hangul falls apart by rule, not by table */
		return false;
	if (cp >= 0x1160 && cp <= 0x11FF) /* vowels and finals of Hangul join by rule, not by table */
		return false;
	q = utf8proc_get_property((utf8proc_int32_t)cp);
	return !q->combining_class && q->comb_index == NO_INDEX &&
	       (q->decomp_seqindex == NO_INDEX || (q->decomp_type && !compatible(form)));
}

/* Sorts the marks cp[0..n) by combining class, equal ones staying in order. */
static void sort_marks(int32_t *cp, int32_t *tmp, size_t n)
{
	size_t start[257] = { 0 };

	if (n < 2)
		return;
	if (n == 2) {
		if (utf8proc_get_property(cp[0])->combining_class > utf8proc_get_property(cp[1])->combining_class) {
			int32_t first = cp[0];

			cp[0] = cp[1];
			cp[1] = first;
		}
		return;
	}
	for (size_t i = 0; i < n; i++)
		start[(utf8proc_get_property(cp[i])->combining_class & 0xFF) + 1]++;
	for (int c = 0; c < 256; c++)
		start[c + 1] += start[c];
	for (size_t i = 0; i < n; i++)
		tmp[start[utf8proc_get_property(cp[i])->combining_class & 0xFF]++] = cp[i];
	memcpy(cp, tmp, n * sizeof *cp);
}

/* Normalises one run and appends it.  utf8proc's own whole-string function sorts
 * marks by neighbour swaps, in quadratic time, so the steps are called apart. */
static void put_run(struct nfc *f, const char *p, size_t n)
{
	size_t n_cp = 0, mark = 0;
	utf8proc_ssize_t len;
	uint32_t cp;

	if (f->cap_cp < n * DECOMPOSED_MAX) {
		f->cap_cp = n * DECOMPOSED_MAX;
		f->cp = xrealloc(f->cp, size_mul(f->cap_cp, sizeof *f->cp));
		f->sorted = xrealloc(f->sorted, size_mul(f->cap_cp, sizeof *f->sorted));
	}
	for (size_t i = 0; i < n;) {
		i += (size_t)utf8_decode(p + i, n - i, &cp);
		len = utf8proc_decompose_char(
			(utf8proc_int32_t)cp, f->cp + n_cp, (utf8proc_ssize_t)(f->cap_cp - n_cp),
			compatible(f->form) ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE, NULL);
		assert(len >= 0 && (size_t)len <= f->cap_cp - n_cp);
		n_cp += (size_t)len;
	}
	for (size_t i = 0; i <= n_cp; i++) {
		if (i < n_cp && utf8proc_get_property(f->cp[i])->combining_class)
			continue;
		sort_marks(f->cp + mark, f->sorted, i - mark);
		mark = i + 1;
	}
	len = (utf8proc_ssize_t)n_cp;
	if (composes(f->form))
		len = utf8proc_normalize_utf32(f->cp, len, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	assert(len >= 0);
	for (utf8proc_ssize_t i = 0; i < len; i++) {
		char out[4];

		buf_put(&f->out, out, (size_t)utf8_encode((uint32_t)f->cp[i], out));
	}
}

static void put_change(struct nfc *f, struct nfc_change c)
{
	if (f->n_change == f->cap_change) {
		f->cap_change = f->cap_change ? 2 * f->cap_change : 16;
		f->change = xrealloc(f->change, size_mul(f->cap_change, sizeof *f->change));
	}
	f->change[f->n_change++] = c;
}

/* Appends what comes before the run, and the run normalised. */
static void do_run(struct nfc *f, const char *p, size_t *copied, size_t start, size_t end)
{
	size_t to;

	allowance_spend((end - start) / 2);
	buf_put(&f->out, p + *copied, start - *copied);
	to = f->out.n;
	put_run(f, p + start, end - start);
	if (f->out.n - to != end - start || memcmp(f->out.p + to, p + start, end - start))
		put_change(f, (struct nfc_change){ start, end, to, f->out.n });
	*copied = end;
}

bool nfc_run(struct nfc *f, const char *p, size_t n)
{
	size_t i = 0, last = 0, copied = 0;
	uint32_t cp;

	buf_reset(&f->out);
	f->n_change = 0;
	while (i < n && allowance_spend(0)) {
		size_t run = last;

		/* All bytes of characters below U+0300 are below 0xCC. */
		if ((unsigned char)p[i] < (f->form == FORM_C ? 0xCC : 0x80)) {
			last = i;
			i += (unsigned char)p[i] < 0x80 ? 1 : 2;
			continue;
		}
		size_t len = (size_t)utf8_decode(p + i, n - i, &cp);

		assert(len);
		if (inert(f->form, cp)) {
			last = i;
			i += len;
			continue;
		}
		do {
			last = i;
			i += len;
			len = i < n ? (size_t)utf8_decode(p + i, n - i, &cp) : 0;
		} while (len && !inert(f->form, cp));
		do_run(f, p, &copied, run, i);
	}
	if (!f->n_change) {
		buf_reset(&f->out);
		return false;
	}
	buf_put(&f->out, p + copied, n - copied);
	return true;
}

void nfc_source(const struct nfc *f, size_t to, size_t to_end, size_t *from, size_t *from_end)
{
	size_t lo = 0, hi = f->n_change;

	/* The first change that ends after to. */
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (f->change[mid].to_end > to)
			hi = mid;
		else
			lo = mid + 1;
	}
	*from = lo ? to - f->change[lo - 1].to_end + f->change[lo - 1].from_end : to;
	if (lo < f->n_change && f->change[lo].to <= to)
		*from = f->change[lo].from;
	while (lo < f->n_change && f->change[lo].to < to_end)
		lo++;
	*from_end = lo ? to_end - f->change[lo - 1].to_end + f->change[lo - 1].from_end : to_end;
	if (lo && f->change[lo - 1].to_end > to_end)
		*from_end = f->change[lo - 1].from_end;
}
