/* response_store.c - see response_store.h. */
#include "server/responses/response_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

struct kept_response {
	struct kept_response *chain, *newer, *older;
	char *id;
	int key;
	struct buf part[N_KEPT];
	size_t bytes;
};

void response_store_init(struct response_store *s, size_t bytes_max)
{
	memset(s, 0, sizeof *s);
	s->bytes_max = bytes_max;
	pthread_mutex_init(&s->lock, NULL);
}

/* Ids are random, so anything spreads them. */
static struct kept_response **bucket_of(struct response_store *s, const char *id)
{
	unsigned h = 0;

	for (; *id; id++)
		h = h * 31 + (unsigned char)*id;
	return &s->bucket[h % RESPONSE_BUCKETS];
}

static struct kept_response *find_response(struct response_store *s, const char *id, int key)
{
	struct kept_response *r = *bucket_of(s, id);

	while (r && (r->key != key || strcmp(r->id, id)))
		r = r->chain;
	return r;
}

static void unlink_age(struct response_store *s, struct kept_response *r)
{
	*(r->newer ? &r->newer->older : &s->newest) = r->older;
	*(r->older ? &r->older->newer : &s->oldest) = r->newer;
}

static void make_newest(struct response_store *s, struct kept_response *r)
{
	r->newer = NULL;
	r->older = s->newest;
	*(s->newest ? &s->newest->newer : &s->oldest) = r;
	s->newest = r;
}

static void drop(struct response_store *s, struct kept_response *r)
{
	struct kept_response **at = bucket_of(s, r->id);

	while (*at != r)
		at = &(*at)->chain;
	*at = r->chain;
	unlink_age(s, r);
	s->bytes -= r->bytes;
	for (int i = 0; i < N_KEPT; i++)
		buf_fini(&r->part[i]);
	free(r->id);
	free(r);
}

void response_store_fini(struct response_store *s)
{
	while (s->newest)
		drop(s, s->newest);
	pthread_mutex_destroy(&s->lock);
}

void response_store_put(struct response_store *s, const char *id, int key, const struct buf *const part[N_KEPT])
{
	size_t bytes = sizeof(struct kept_response) + strlen(id) + 64; /* 64: what malloc adds */
	struct kept_response *r, *old, **at;

	for (int i = 0; i < N_KEPT; i++)
		bytes += part[i]->n;
	if (bytes > s->bytes_max)
		return;
	r = xcalloc(1, sizeof *r);
	r->id = xstrdup(id);
	r->key = key;
	r->bytes = bytes;
	for (int i = 0; i < N_KEPT; i++) {
		buf_init(&r->part[i]);
		buf_put(&r->part[i], part[i]->p, part[i]->n);
	}
	fault_lock(&s->lock);
	if ((old = find_response(s, id, key)))
		drop(s, old);
	while (s->bytes + bytes > s->bytes_max)
		drop(s, s->oldest);
	at = bucket_of(s, id);
	r->chain = *at;
	*at = r;
	make_newest(s, r);
	s->bytes += bytes;
	fault_unlock(&s->lock);
}

struct fetch {
	struct response_store *s;
	const char *id;
	int key;
	enum kept_part part;
	struct buf *out;
	bool found;
};

static void fetch(void *arg)
{
	struct fetch *f = arg;
	struct kept_response *r = find_response(f->s, f->id, f->key);

	f->found = r;
	if (!r)
		return;
	unlink_age(f->s, r);
	make_newest(f->s, r);
	buf_put(f->out, r->part[f->part].p, r->part[f->part].n);
}

bool response_store_get(struct response_store *s, const char *id, int key, enum kept_part part, struct buf *out)
{
	struct fetch f = { s, id, key, part, out, false };

	fault_locked(&s->lock, fetch, &f);
	return f.found;
}

/* r grew by `more` bytes and lost `less`: others are dropped until all fit, and r itself if it alone does not.  False: it was. */
static bool resized(struct response_store *s, struct kept_response *r, size_t more, size_t less)
{
	bool kept;

	r->bytes += more - less;
	s->bytes += more - less;
	unlink_age(s, r);
	make_newest(s, r);
	while (s->bytes > s->bytes_max && s->oldest != r)
		drop(s, s->oldest);
	kept = s->bytes <= s->bytes_max;
	if (!kept)
		drop(s, r);
	return kept;
}

bool response_store_append(struct response_store *s, const char *id, int key, enum kept_part part,
                           const struct buf *more)
{
	struct kept_response *r;
	bool kept = false;

	fault_lock(&s->lock);
	r = find_response(s, id, key);
	if (r) {
		bool comma = r->part[part].n > 0;

		if (comma)
			buf_putc(&r->part[part], ',');
		buf_put(&r->part[part], more->p, more->n);
		kept = resized(s, r, more->n + comma, 0);
	}
	fault_unlock(&s->lock);
	return kept;
}

bool response_store_replace(struct response_store *s, const char *id, int key, enum kept_part part,
                            const struct buf *old, const struct buf *by)
{
	struct kept_response *r;
	bool same;

	fault_lock(&s->lock);
	r = find_response(s, id, key);
	same = r && r->part[part].n == old->n && !memcmp(r->part[part].p, old->p, old->n);
	if (same) {
		buf_reset(&r->part[part]);
		buf_put(&r->part[part], by->p, by->n);
		same = resized(s, r, by->n, old->n);
	}
	fault_unlock(&s->lock);
	return same;
}

bool response_store_drop(struct response_store *s, const char *id, int key)
{
	struct kept_response *r;

	fault_lock(&s->lock);
	r = find_response(s, id, key);
	if (r)
		drop(s, r);
	fault_unlock(&s->lock);
	return r;
}
