#include "golden.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

struct golden {
	struct file_map map;
	struct json *header;
	const uint8_t *data;
};

struct golden *golden_open(const char *path)
{
	const char *root = getenv("WEFT_SHARED");
	struct golden *g = xcalloc(1, sizeof *g);
	char name[1024];
	uint64_t n;
	struct err err;

	snprintf(name, sizeof name, "%s/golden/%s", root ? root : WEFT_SHARED_DEFAULT, path);
	if (!file_exists(name))
		snprintf(name, sizeof name, "%s/%s", WEFT_TREE_GOLDEN, path);
	if (!file_exists(name) || file_map_open(&g->map, name, &err)) {
		printf("skipped: %s missing\n", name);
		free(g);
		return NULL;
	}
	assert(g->map.n > 8);
	memcpy(&n, g->map.p, 8);
	assert(n < g->map.n - 8);
	g->header = json_parse((const char *)g->map.p + 8, (size_t)n, 0, &err);
	assert(g->header);
	g->data = g->map.p + 8 + n;
	return g;
}

void golden_close(struct golden *g)
{
	if (!g)
		return;
	json_free(g->header);
	file_map_close(&g->map);
	free(g);
}

const void *golden_get(const struct golden *g, const char *name, int dim[4])
{
	const struct json *t = json_get(g->header, name), *shape = json_get(t, "shape");
	int64_t at = 0, v;

	if (!t)
		return NULL;
	json_to_int(json_at(json_get(t, "data_offsets"), 0), &at);
	for (size_t i = 0; i < 4; i++) {
		dim[i] = 1;
		if (i < json_len(shape) && !json_to_int(json_at(shape, i), &v))
			dim[i] = (int)v;
	}
	return g->data + at;
}
