/* hearer.h - who is told of blocks (engine/prefix/announce.h), by the naive account. */
#ifndef TESTS_HEARER_H
#define TESTS_HEARER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/prefix/announce.h"

enum { BLOCK = 4, HEARD_MAX = 1 << 15 };

/* Names that are told, by adding and taking away. */
struct hearer {
	struct block_sink sink; /* first */
	uint64_t name[HEARD_MAX];
	int n, cleared;
	bool open, again; /* open: something was said since the last end; again: to be answered once */
};

void hearer_init(struct hearer *h);
/* The index of a name; n: it is not told. */
int heard_at(const struct hearer *h, uint64_t name);
/* The name of the block of tok[BLOCK] behind another one; parent 0: the first. */
uint64_t name_behind(uint64_t parent, const int32_t *tok);

#endif
