/* trie.h - byte strings as a tree, each with a number; for added tokens and for vocabularies that match the longest. */
#ifndef TEXT_TRIE_H
#define TEXT_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRIE_ROOT = 0 };
#define TRIE_NONE UINT32_MAX

struct trie_edge;

struct trie {
	struct trie_edge *edge; /* open addressing by (node, byte) */
	uint32_t mask, n_node;
	uint64_t seed;
};

/* Room for strings of n_bytes in all. */
void trie_init(struct trie *t, size_t n_bytes);
void trie_fini(struct trie *t);
/* p[0..n), n >= 1, gets the number; false: it has one. */
bool trie_put(struct trie *t, const char *p, size_t n, uint32_t number);
/* The node that byte leads to from node `from`, or TRIE_NONE; *number of the string that ends there, or TRIE_NONE. */
uint32_t trie_step(const struct trie *t, uint32_t from, unsigned char byte, uint32_t *number);

#endif
