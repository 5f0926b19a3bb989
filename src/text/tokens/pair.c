/* pair.c - see pair.h. */
#include "text/tokens/pair.h"

#include <string.h>

static void put_all(struct tokens *out, const int32_t *id, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tokens_put(out, id[i]);
}

/* How many of n[0] and n[1] stay within m: the longer gives until both are at m / 2. */
static void share(size_t n[2], size_t m)
{
	size_t a = n[0] < n[1] ? n[0] : n[1], b;
	bool swapped = n[0] > n[1];

	b = a > m ? a : m - a > a ? m - a : a;
	if (a + b > m) {
		a = m / 2;
		b = a + m % 2;
	}
	n[0] = swapped ? (b < n[0] ? b : n[0]) : a;
	n[1] = swapped ? a : (b < n[1] ? b : n[1]);
}

static void put_cut(struct tokens *out, const struct tokens *from, size_t n, bool ends)
{
	if (n) /* without tokens there is no array */
		put_all(out, from->id + (ends ? from->n - n : 0), n);
}

/* What is around and between, for one text or two. */
static struct pair_form form_of(const struct tokenizer *t, bool two)
{
	const struct pair_form *pair = two ? tokenizer_pair(t) : NULL;
	struct pair_form f = { .plain = -1 };
	const int32_t *id;

	if (pair)
		return *pair;
	for (int k = 0; k < (two ? 2 : 1); k++) {
		id = tokenizer_prefix(t, &f.n[k]);
		memcpy(f.part[k], id ? id : f.part[k], f.n[k] * sizeof *f.part[k]);
	}
	id = tokenizer_suffix(t, &f.n[2]);
	memcpy(f.part[2], id ? id : f.part[2], f.n[2] * sizeof *f.part[2]);
	return f;
}

int texts_encode(const struct tokenizer *t, const struct texts_in *in, unsigned flags, struct tokens *out, int *second,
                 size_t *length, struct err *err)
{
	struct pair_form f = form_of(t, in->two);
	size_t around = f.n[0] + f.n[1] + f.n[2], most = in->most ? (size_t)in->most : SIZE_MAX, n[2] = { 0 };
	struct tokens text[2];
	int e = 0;

	*second = 0;
	tokens_init(&text[0]);
	tokens_init(&text[1]);
	for (int k = 0; k < 1 + in->two && !e; k++) {
		e = tokenizer_encode(t, in->p[k], in->n[k], flags, &text[k], err);
		n[k] = text[k].n;
	}
	*length = n[0] + n[1] + around;
	if (!e && (most < around || (in->two && in->second_only && most < around + n[0])))
		e = err_set(err, E_LIMIT, "%zu tokens have no room for the %zu that are not cut", most,
		            around + (in->second_only ? n[0] : 0));
	if (!e && *length > most) {
		if (!in->two)
			n[0] = most - around;
		else if (in->second_only)
			n[1] = most - around - n[0];
		else
			share(n, most - around);
	}
	if (!e) {
		size_t before = out->n;

		put_all(out, f.part[0], f.n[0]);
		put_cut(out, &text[0], n[0], in->ends);
		put_all(out, f.part[1], f.n[1]);
		if (in->two && f.plain >= 0)
			*second = (int)(out->n - before - (f.n[1] - (size_t)f.plain));
		put_cut(out, &text[1], n[1], in->ends);
		put_all(out, f.part[2], f.n[2]);
	}
	tokens_fini(&text[0]);
	tokens_fini(&text[1]);
	return e;
}
