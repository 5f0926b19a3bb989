/* spans.c - see spans.h. */
#include "engine/spans.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

/* -1 is not an id of a span: the n-gram drafter sets it between texts. */
enum { FIRST = -2, BITS = 10 };

struct span_entry {
	struct digest digest;
	int32_t id, next; /* next: entry of the same hash, or -1 */
	uint64_t used;
};

void span_ids_init(struct span_ids *s, int most)
{
	*s = (struct span_ids){ .most = most, .last = FIRST + 1, .bits = BITS };
	pthread_mutex_init(&s->lock, NULL);
	while (1 << s->bits < most)
		s->bits++;
	s->head = xmalloc(sizeof *s->head << s->bits);
	memset(s->head, 0xff, sizeof *s->head << s->bits);
}

void span_ids_fini(struct span_ids *s)
{
	pthread_mutex_destroy(&s->lock);
	free(s->entry);
	free(s->head);
}

/* Everything that the rows' vectors, positions and sight are a function of. */
static struct digest digest_of(const struct media *m, int from, int n)
{
	static const char what[] = "weft rows";
	const int32_t part[] = { from, n, m->n, m->hidden, m->deep, m->grid_h, m->grid_w, m->whole };
	struct sha256 h;
	struct digest d;

	sha256_init(&h);
	sha256_put(&h, what, sizeof what);
	sha256_put(&h, m->digest.b, sizeof m->digest.b);
	sha256_put(&h, part, sizeof part);
	sha256_end(&h, &d);
	return d;
}

static int32_t *head_of(const struct span_ids *s, const struct digest *d)
{
	uint32_t h;

	memcpy(&h, d->b, sizeof h);
	return &s->head[h & ((1u << s->bits) - 1)];
}

static int by_use(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Forgets the half that was not in use for longest. */
static void forget_half(struct span_ids *s)
{
	uint64_t *used = xmalloc((size_t)s->n * sizeof *used), middle;
	int n = 0;

	for (int i = 0; i < s->n; i++)
		used[i] = s->entry[i].used;
	qsort(used, (size_t)s->n, sizeof *used, by_use);
	middle = used[s->n / 2];
	free(used);
	memset(s->head, 0xff, sizeof *s->head << s->bits);
	for (int i = 0; i < s->n; i++) {
		int32_t *head;

		if (s->entry[i].used < middle)
			continue;
		s->entry[n] = s->entry[i];
		head = head_of(s, &s->entry[n].digest);
		s->entry[n].next = *head;
		*head = n++;
	}
	s->n = n;
}

static int32_t look_up(struct span_ids *s, const struct digest *d)
{
	for (int32_t i = *head_of(s, d); i >= 0; i = s->entry[i].next)
		if (!memcmp(&s->entry[i].digest, d, sizeof *d)) {
			s->entry[i].used = ++s->clock;
			return s->entry[i].id;
		}
	return 0;
}

static int32_t add_span(struct span_ids *s, const struct digest *d)
{
	int32_t *head;

	if (s->last == INT32_MIN)
		return 0;
	if (s->n == s->most)
		forget_half(s);
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->entry = xrealloc(s->entry, size_mul((size_t)s->cap, sizeof *s->entry));
	}
	head = head_of(s, d);
	s->entry[s->n] = (struct span_entry){ .digest = *d, .id = --s->last, .next = *head, .used = ++s->clock };
	*head = s->n++;
	return s->last;
}

int32_t span_id(struct span_ids *s, const struct media *m, int from, int n)
{
	struct digest d = digest_of(m, from, n);
	int32_t id;

	fault_lock(&s->lock);
	id = look_up(s, &d);
	if (!id)
		id = add_span(s, &d);
	fault_unlock(&s->lock);
	return id;
}

bool span_digest(struct span_ids *s, int32_t id, struct digest *out)
{
	int lo = 0, hi;
	bool found;

	fault_lock(&s->lock);
	for (hi = s->n; lo < hi;) {
		int mid = (lo + hi) / 2;

		if (s->entry[mid].id > id)
			lo = mid + 1;
		else
			hi = mid;
	}
	found = lo < s->n && s->entry[lo].id == id;
	if (found)
		*out = s->entry[lo].digest;
	fault_unlock(&s->lock);
	return found;
}
