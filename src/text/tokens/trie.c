/* trie.c - see trie.h. */
#include "text/tokens/trie.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"

/* One edge of the tree, and the node at its end. */
struct trie_edge {
	uint64_t key;    /* node << 8 | byte, + 1; 0: empty */
	uint32_t node;   /* where it leads; the root is 0 */
	uint32_t number; /* of the string that ends there, or TRIE_NONE */
};

void trie_init(struct trie *t, size_t n_bytes)
{
	uint32_t size = 16;

	while (size < 2 * n_bytes)
		size *= 2;
	*t = (struct trie){
		.edge = xcalloc(size, sizeof *t->edge), .mask = size - 1, .n_node = 1, .seed = rng_os_seed()
	};
}

void trie_fini(struct trie *t)
{
	free(t->edge);
	*t = (struct trie){ 0 };
}

static struct trie_edge *edge_of(const struct trie *t, uint32_t from, unsigned char byte)
{
	uint64_t key = ((uint64_t)from << 8 | byte) + 1;
	uint64_t h = ((key ^ key >> 15) + t->seed) * 0x9E3779B97F4A7C15u >> 20;

	while (t->edge[h & t->mask].key && t->edge[h & t->mask].key != key)
		h++;
	return &t->edge[h & t->mask];
}

bool trie_put(struct trie *t, const char *p, size_t n, uint32_t number)
{
	struct trie_edge *e = NULL;
	uint32_t at = TRIE_ROOT;

	for (size_t i = 0; i < n; i++) {
		e = edge_of(t, at, (unsigned char)p[i]);
		if (!e->key)
			*e = (struct trie_edge){ ((uint64_t)at << 8 | (unsigned char)p[i]) + 1, t->n_node++,
				                 TRIE_NONE };
		at = e->node;
	}
	if (e->number != TRIE_NONE)
		return false;
	e->number = number;
	return true;
}

uint32_t trie_step(const struct trie *t, uint32_t from, unsigned char byte, uint32_t *number)
{
	const struct trie_edge *e = edge_of(t, from, byte);

	*number = e->key ? e->number : TRIE_NONE;
	return e->key ? e->node : TRIE_NONE;
}
