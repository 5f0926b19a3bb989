/* anchors.c - see anchors.h. */
#include "text/grammar/anchors.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 100 }; /* of containers: what is deeper no reference by name reaches */

static int32_t *bucket_of(const struct anchors *a, const struct json *root, const char *name)
{
	uint64_t h = (uint64_t)(uintptr_t)root;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return &a->bucket[(h * 0x9E3779B97F4A7C15u >> 32) & (uint64_t)(a->cap - 1)];
}

static void grow(struct anchors *a)
{
	a->cap = a->cap ? 2 * a->cap : 64; /* a power of two: the hash is masked */
	a->v = xrealloc(a->v, size_mul((size_t)a->cap, sizeof *a->v));
	a->bucket = xrealloc(a->bucket, size_mul((size_t)a->cap, sizeof *a->bucket));
	memset(a->bucket, 0xFF, (size_t)a->cap * sizeof *a->bucket);
	for (int i = 0; i < a->n; i++) {
		int32_t *first = bucket_of(a, a->v[i].root, a->v[i].name);

		a->v[i].chain = *first;
		*first = i;
	}
}

static const struct anchor *find_anchor(const struct anchors *a, const struct json *root, const char *name)
{
	if (!a->n)
		return NULL;
	for (int32_t i = *bucket_of(a, root, name); i >= 0; i = a->v[i].chain)
		if (a->v[i].root == root && !strcmp(a->v[i].name, name))
			return &a->v[i];
	return NULL;
}

/* The first of a name counts. */
static void add_anchor(struct anchors *a, const struct json *root, const char *name, const struct json *at)
{
	int32_t *first;

	if (find_anchor(a, root, name))
		return;
	if (a->n == a->cap)
		grow(a);
	first = bucket_of(a, root, name);
	a->v[a->n] = (struct anchor){ root, at, name, *first };
	*first = a->n++;
}

static void walk(struct anchors *a, struct dfa_pool *p, const struct json *root, const struct json *j, int depth)
{
	struct json_cursor c = json_first(j);
	const struct json *v;
	const char *key, *s;
	size_t n;

	if (depth > DEPTH_MAX)
		return;
	if (json_kind(j) == JSON_OBJECT && (s = json_str(json_get(j, "$anchor"), &n)))
		add_anchor(a, root, s, j);
	if (json_kind(j) == JSON_OBJECT && (s = json_str(json_get(j, "$id"), &n)) && s[0] == '#')
		add_anchor(a, root, s + 1, j);
	for (size_t i = 0; json_kind(j) == JSON_ARRAY && i < json_len(j) && dfa_spend(p, 1); i++)
		walk(a, p, root, json_at(j, i), depth + 1);
	while (json_next(&c, &key, &v) && dfa_spend(p, 1))
		if (strcmp(key, "enum") && strcmp(key, "const"))
			walk(a, p, root, v, depth + 1);
}

const struct json *anchors_find(struct anchors *a, struct dfa_pool *p, const struct json *root, const char *name)
{
	static const char walked[] =
		"\x01"; /* no JSON string that was read holds it, but by an escape, which is harmless */
	const struct anchor *f;

	if (!find_anchor(a, root, walked)) {
		walk(a, p, root, root, 0);
		add_anchor(a, root, walked, NULL);
	}
	f = find_anchor(a, root, name);
	return f ? f->at : NULL;
}

void anchors_fini(struct anchors *a)
{
	free(a->v);
	free(a->bucket);
}
