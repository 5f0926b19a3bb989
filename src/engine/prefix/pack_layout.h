/* pack_layout.h - how a pack lies in its file: prefix_pack.h.  Inside src/engine/prefix/. */
#ifndef ENGINE_PACK_LAYOUT_H
#define ENGINE_PACK_LAYOUT_H

#include <string.h>

#include "engine/prefix/prefix_pack.h"

/* The line break shows a copy that was "translated" on the way. */
#define PACK_MAGIC "weftpk\r\n"

struct pack_head {
	char magic[8];
	uint32_t version, about_bytes;
	uint64_t pieces, piece_bytes, file_bytes;
	struct digest model, table_sum;
	uint64_t head_sum; /* check64 of all before */
};
_Static_assert(sizeof(struct pack_head) == PACK_HEAD, "no padding");

struct pack_entry {
	uint8_t sum[32];
	uint64_t bytes, tail;
};
_Static_assert(sizeof(struct pack_entry) == PACK_ENTRY, "no padding");

/* The order of pieces: < 0, 0 or > 0, as memcmp.  Snapshots come first, as they are read. */
static inline int pack_order(const struct spill_head *a, uint64_t tail_a, const struct spill_head *b, uint64_t tail_b)
{
	int keys = memcmp(&a->key, &b->key, sizeof(a->key));

	if (a->kind != b->kind)
		return a->kind == SPILL_SNAP ? -1 : 1;
	if (a->pos != b->pos)
		return a->pos < b->pos ? -1 : 1;
	return keys ? keys : (tail_a > tail_b) - (tail_a < tail_b);
}

/* Reads a piece whole and compares it with its digests, and copies it to a file at its offset (to -1: to none).  The message has
 * the path and the place. */
int pack_piece_check(const struct pack *p, const struct pack_piece *piece, int to, struct err *err);

#endif
