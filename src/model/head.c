/* head.c - see head.h. */
#include "model/head.h"

#include <string.h>

#include "store/store.h"

enum { TAPS_MAX = 64 };

static const struct head_kind *const kinds[] = { &eagle3_head, &dflash_head, &assistant_head };

const struct head_kind *head_kind_of(const struct store *st)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i]->is(st))
			return kinds[i];
	return NULL;
}

struct model *head_new(const struct model_ops *ops, const struct model *of, struct store *st)
{
	struct model *m = xcalloc(1, ops->size);

	m->ops = ops;
	m->arch = ops->arch[0];
	m->st = st;
	m->shape.head.vocab = of->shape.vocab;
	arena_init(&m->arena);
	arena_init(&m->vectors);
	return m;
}

bool head_named(const struct store *st, const char *architecture)
{
	const struct json *list = json_get(st->config, "architectures");

	for (size_t i = 0; i < json_len(list); i++) {
		const char *name = json_str(json_at(list, i), NULL);

		if (name && !strcmp(name, architecture))
			return true;
	}
	return false;
}

void head_taps_of(struct conf *c, struct model *m, const struct model *of, const int *layer, int n, const char *key)
{
	int *tap = arena_alloc(&m->arena, (size_t)n * sizeof *tap);

	for (int i = 0; i < n; i++) {
		tap[i] = layer[i];
		if (tap[i] < 0 || tap[i] >= of->shape.layers)
			conf_fail(c, E_UNSUPPORTED, "%s: entry %d is the output of layer %d; the model has %d layers",
			          key, i, tap[i], of->shape.layers);
	}
	m->shape.head.tap = tap;
	m->shape.head.n_tap = n;
	m->shape.carry = n * of->shape.hidden;
}

void head_taps(struct conf *c, struct model *m, const struct model *of, const struct json *list, const char *key,
               int back)
{
	int layer[TAPS_MAX], n = (int)json_len(list);

	if (n < 1 || n > TAPS_MAX) {
		conf_fail(c, E_FORMAT, "%s: %d layers; a head reads 1 to %d", key, n, TAPS_MAX);
		return;
	}
	for (int i = 0; i < n; i++) {
		int64_t v;

		if (json_to_int(json_at(list, (size_t)i), &v) || v < 0 || v > CONF_LAYERS_MAX) {
			conf_fail(c, E_FORMAT, "%s: entry %d is not a layer's number", key, i);
			return;
		}
		layer[i] = (int)v - back;
	}
	head_taps_of(c, m, of, layer, n, key);
}
