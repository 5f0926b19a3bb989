/* added.c - see added.h. */
#include "text/tokens/added.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/utf8.h"

void added_init(struct added *a, const struct added_token *token, size_t n_bytes)
{
	*a = (struct added){ .token = token };
	trie_init(&a->trie, n_bytes);
}

void added_fini(struct added *a)
{
	trie_fini(&a->trie);
	*a = (struct added){ 0 };
}

bool added_put(struct added *a, const char *p, size_t n, uint32_t k)
{
	if (!trie_put(&a->trie, p, n, k))
		return false;
	a->first[(unsigned char)p[0]] = true;
	a->n++;
	return true;
}

static bool is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_word(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_PC: return true;
	default: return c == 0x200C || c == 0x200D;
	}
}

/* The character that ends at byte at > 0, and its length. */
static size_t before(const char *p, size_t at, uint32_t *cp)
{
	size_t k = 1;

	while (k < 4 && k < at && ((unsigned char)p[at - k] & 0xC0) == 0x80)
		k++;
	return (size_t)utf8_decode(p + at - k, k, cp);
}

static bool stands_alone(const char *p, size_t n, size_t start, size_t end)
{
	uint32_t cp;

	if (start && before(p, start, &cp) && is_word(cp))
		return false;
	return end == n || !utf8_decode(p + end, n - end, &cp) || !is_word(cp);
}

static void take_in_space(const char *p, size_t n, size_t at, struct added_match *m)
{
	uint32_t cp;
	size_t len;

	if (m->token->lstrip)
		while (m->start > at && (len = before(p, m->start, &cp)) && len <= m->start - at && is_space(cp))
			m->start -= len;
	if (m->token->rstrip)
		while (m->end < n && (len = (size_t)utf8_decode(p + m->end, n - m->end, &cp)) && is_space(cp))
			m->end += len;
}

bool added_next(const struct added *a, const char *p, size_t n, size_t at, added_may *may, void *ctx,
                struct added_match *m)
{
	size_t look = at + ALLOWANCE_PIECE; /* where to look at the allowance next */

	if (!a->n)
		return false;
	for (size_t i = at; i < n; i++) {
		uint32_t from = TRIE_ROOT, number;
		const struct added_token *best = NULL;
		size_t end = 0;

		if (i >= look) {
			if (!allowance_spend(0))
				return false;
			look = i + ALLOWANCE_PIECE;
		}
		if (!a->first[(unsigned char)p[i]])
			continue;
		for (size_t k = i; k < n; k++) {
			from = trie_step(&a->trie, from, (unsigned char)p[k], &number);
			if (from == TRIE_NONE)
				break;
			if (number != TRIE_NONE && (!a->token[number].special || may(ctx, i, k + 1))) {
				best = &a->token[number];
				end = k + 1;
			}
		}
		if (!best)
			continue;
		if (best->single_word && !stands_alone(p, n, i, end)) {
			i = end - 1; /* as the reference: the match is spent */
			continue;
		}
		*m = (struct added_match){ best, i, end, i, end };
		take_in_space(p, n, at, m);
		return true;
	}
	return false;
}
