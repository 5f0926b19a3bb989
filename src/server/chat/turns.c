/* turns.c - see turns.h. */
#include "server/chat/turns.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

enum { BUCKETS = 1 << 12 }; /* a few entries each when the default budget is full of short turns */

struct turns {
	pthread_mutex_t lock;
	/* Under the lock: all, and what is turns.c's own of every turn. */
	struct turn *bucket[BUCKETS];
	struct turn *newest, *oldest;
	struct turns_stats stats;
};

struct turns *turns_new(size_t bytes_max)
{
	struct turns *s = xcalloc(1, sizeof *s);

	s->stats.bytes_max = bytes_max;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

static struct turn **bucket_of(struct turns *s, const struct digest *key)
{
	return &s->bucket[(key->b[0] | key->b[1] << 8) % BUCKETS];
}

/* Bytes that a value takes in memory, as measured: an empty object 800, an array 400, most of them room for members. */
static size_t value_bytes(const struct json *j)
{
	struct json_cursor c = json_first(j);
	enum json_kind kind = json_kind(j);
	const struct json *v;
	const char *key;
	size_t n = 0;

	if (kind != JSON_ARRAY && kind != JSON_OBJECT) {
		json_str(j, &n);
		return 100 + n;
	}
	n = kind == JSON_OBJECT ? 800 : 400;
	for (size_t i = 0; kind == JSON_ARRAY && i < json_len(j); i++)
		n += value_bytes(json_at(j, i));
	while (json_next(&c, &key, &v))
		n += 100 + strlen(key) + value_bytes(v);
	return n;
}

static size_t size_of(const struct turn *t)
{
	return sizeof *t + t->n * sizeof *t->id + t->said.content.n + t->said.thinking.n +
	       (t->said.calls ? value_bytes(t->said.calls) : 0) + strlen(t->header);
}

static struct text own_text(struct text t)
{
	char *p = xmalloc(t.n ? t.n : 1);

	memcpy(p, t.p, t.n);
	return (struct text){ p, t.n };
}

/* Under the lock. */
static void unref(struct turns *s, struct turn *t)
{
	if (--t->refs)
		return;
	s->stats.bytes -= size_of(t);
	free(t->id);
	free(t->header);
	free((char *)(uintptr_t)t->said.content.p);
	free((char *)(uintptr_t)t->said.thinking.p);
	json_free((struct json *)(uintptr_t)t->said.calls);
	free(t);
}

static void unlink_use(struct turns *s, struct turn *t)
{
	*(t->newer ? &t->newer->older : &s->newest) = t->older;
	*(t->older ? &t->older->newer : &s->oldest) = t->newer;
}

static void link_use(struct turns *s, struct turn *t)
{
	t->newer = NULL;
	t->older = s->newest;
	*(s->newest ? &s->newest->newer : &s->oldest) = t;
	s->newest = t;
}

static void unlist(struct turns *s, struct turn *t)
{
	struct turn **at = bucket_of(s, &t->key);

	while (*at != t)
		at = &(*at)->chain;
	*at = t->chain;
	unlink_use(s, t);
	s->stats.n--;
	unref(s, t);
}

void turns_free(struct turns *s)
{
	if (!s)
		return;
	while (s->oldest)
		unlist(s, s->oldest);
	assert(!s->stats.bytes);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static struct turn *find_turn(struct turns *s, const struct digest *key)
{
	struct turn *t = *bucket_of(s, key);

	while (t && memcmp(&t->key, key, sizeof *key) != 0)
		t = t->chain;
	return t;
}

struct turn *turns_find(struct turns *s, const struct digest *key)
{
	struct turn *t;

	fault_lock(&s->lock);
	t = find_turn(s, key);
	if (t) {
		t->refs++;
		unlink_use(s, t);
		link_use(s, t);
	}
	fault_unlock(&s->lock);
	return t;
}

void turns_give_back(struct turns *s, struct turn *t)
{
	if (!t)
		return;
	fault_lock(&s->lock);
	unref(s, t);
	fault_unlock(&s->lock);
}

void turns_put(struct turns *s, const struct digest *key, const struct tokens *answer, const char *header,
               const struct said *said)
{
	struct turn *t = xcalloc(1, sizeof *t), *old;

	t->key = *key;
	t->refs = 1;
	t->n = answer->n;
	t->id = xmalloc(size_mul(t->n ? t->n : 1, sizeof *t->id));
	memcpy(t->id, answer->id, t->n * sizeof *t->id);
	t->header = xstrdup(header);
	t->said.content = own_text(said->content);
	t->said.thinking = own_text(said->thinking);
	t->said.calls = json_len(said->calls) ? json_copy_whole(said->calls) : NULL;
	fault_lock(&s->lock);
	s->stats.bytes += size_of(t);
	if ((old = find_turn(s, key)))
		unlist(s, old);
	t->chain = *bucket_of(s, key);
	*bucket_of(s, key) = t;
	link_use(s, t);
	s->stats.n++;
	while (s->stats.bytes > s->stats.bytes_max && s->oldest) {
		unlist(s, s->oldest);
		s->stats.evicted++;
	}
	fault_unlock(&s->lock);
}

void turns_stats(struct turns *s, struct turns_stats *out)
{
	fault_lock(&s->lock);
	*out = s->stats;
	fault_unlock(&s->lock);
}
