#include "text/tokens/recent.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/digest.h"

struct text {
	char *p; /* [n]; NULL: the place is free */
	size_t n;
	bool first;
	uint64_t hash, used; /* used: the time of the last use */
	uint64_t steps;
	int32_t *id;
	size_t n_id;
};

struct recent {
	pthread_mutex_t lock; /* over all that follows */
	size_t most, held;    /* bytes */
	uint64_t now;         /* counts uses */
	struct text text[RECENT_TEXTS];
};

static size_t bytes_of(const struct text *t)
{
	return t->n + t->n_id * sizeof *t->id;
}

struct recent *recent_new(size_t bytes)
{
	struct recent *r = xcalloc(1, sizeof *r);

	pthread_mutex_init(&r->lock, NULL);
	r->most = bytes;
	return r;
}

static void drop(struct recent *r, struct text *t)
{
	r->held -= bytes_of(t);
	free(t->p);
	free(t->id);
	*t = (struct text){ 0 };
}

void recent_free(struct recent *r)
{
	if (!r)
		return;
	for (int i = 0; i < RECENT_TEXTS; i++)
		drop(r, &r->text[i]);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

static struct text *find(struct recent *r, const char *p, size_t n, bool first, uint64_t hash)
{
	for (struct text *t = r->text; t < r->text + RECENT_TEXTS; t++)
		if (t->p && t->hash == hash && t->n == n && t->first == first && !memcmp(t->p, p, n))
			return t;
	return NULL;
}

bool recent_find(struct recent *r, const char *p, size_t n, bool first, struct tokens *out, uint64_t *steps)
{
	uint64_t hash = check64(p, n);
	struct text *t;

	pthread_mutex_lock(&r->lock);
	t = find(r, p, n, first, hash);
	if (t) {
		t->used = ++r->now;
		*steps = t->steps;
		tokens_append(out, t->id, t->n_id);
	}
	pthread_mutex_unlock(&r->lock);
	return t != NULL;
}

/* A free place; NULL: none. */
static struct text *place(struct recent *r)
{
	for (struct text *t = r->text; t < r->text + RECENT_TEXTS; t++)
		if (!t->p)
			return t;
	return NULL;
}

static void drop_oldest(struct recent *r)
{
	struct text *oldest = NULL;

	for (struct text *t = r->text; t < r->text + RECENT_TEXTS; t++)
		if (t->p && (!oldest || t->used < oldest->used))
			oldest = t;
	drop(r, oldest);
}

static void *copy(const void *p, size_t n)
{
	return memcpy(xmalloc(n), p, n);
}

void recent_put(struct recent *r, const char *p, size_t n, bool first, const int32_t *id, size_t n_id, uint64_t steps)
{
	struct text t = { .n = n, .first = first, .hash = check64(p, n), .steps = steps, .n_id = n_id };

	if (bytes_of(&t) > r->most / 4)
		return;
	pthread_mutex_lock(&r->lock);
	if (!find(r, p, n, first, t.hash)) {
		while (!place(r) || r->held + bytes_of(&t) > r->most)
			drop_oldest(r);
		t.p = copy(p, n);
		t.id = copy(id, n_id * sizeof *id);
		t.used = ++r->now;
		r->held += bytes_of(&t);
		*place(r) = t;
	}
	pthread_mutex_unlock(&r->lock);
}
