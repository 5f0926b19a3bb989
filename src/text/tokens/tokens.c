#include <stdlib.h>

#include "base/alloc.h"
#include "text/tokens/tokenizer.h"

void tokens_init(struct tokens *v)
{
	*v = (struct tokens){ 0 };
}

void tokens_fini(struct tokens *v)
{
	free(v->id);
	*v = (struct tokens){ 0 };
}

void tokens_reset(struct tokens *v)
{
	v->n = 0;
}

void tokens_put(struct tokens *v, int32_t id)
{
	if (v->n == v->cap) {
		v->cap = v->cap ? 2 * v->cap : 64;
		v->id = xrealloc(v->id, size_mul(v->cap, sizeof *v->id));
	}
	v->id[v->n++] = id;
}

void tokens_append(struct tokens *v, const int32_t *id, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tokens_put(v, id[i]);
}
