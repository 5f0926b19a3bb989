/* kv_tiles.h - attention over bf16 keys and values by products of bf16 (tiles or dot products):
 * the kernels of one segment of positions, for backend/cpu/attend_tiles.c.  format.h states
 * their order.
 *
 * All of them take any number of queries, and give each the bits it would get alone.  No
 * memory but the caller's; from any thread.  Addresses of queries, laid and work are
 * 64-byte aligned, rows of the cache lie anywhere. */
#ifndef QUANT_KV_TILES_H
#define QUANT_KV_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/format.h"

enum {
	KV_SEGMENT = 256,   /* positions whose weights have one maximum and one sum */
	KV_RUN = 16,        /* rows of the cache that lie one after the other */
	KV_QUERIES = 32,    /* of one call */
	KV_TILES_LINE = 16, /* floats that max, sum and the like are a multiple of */
};

/* Positions [first, n) of a segment; nothing is known of the positions before first.  All 16 rows of the keys' runs can
 * be read, whatever they hold; of values only the rows of these positions.  Runs before that of `first` point to the
 * run of `first`. */
struct kv_segment {
	int first, n;
	const uint8_t *key[KV_SEGMENT / KV_RUN], *value[KV_SEGMENT / KV_RUN];
};

/* Attention of at most KV_QUERIES queries over one segment. */
struct kv_attend {
	float *acc;             /* [KV_QUERIES][dim] out: weights times values */
	float *max, *sum;       /* [KV_QUERIES] out: of the scores, and of the weights */
	const uint8_t *queries; /* as `queries` laid them */
	int n;                  /* queries; entries beyond them are undefined */
	bool fresh;             /* the segment may lie beyond the second cache */
	/* [n_ask] Runs of rows that are read next, to prefetch.  For few queries: the keys of the segment that follows. */
	const uint8_t *const *ask;
	int n_ask;
	/* [KV_QUERIES] Each sees positions [from, see) of the segment; neither falls from query to query, the first
	 * sees none before seg->first.  The n-th sees at least one; one that sees none gets nothing of use. */
	const int32_t *from, *see;
	const struct kv_segment *seg;
	const uint8_t *laid; /* by `lay`, as many positions as the n-th sees; NULL: the queries are few */
	uint8_t *room;       /* laid_bytes, for few queries */
	void *work;
};

struct kv_tiles {
	size_t (*query_bytes)(int dim); /* of KV_QUERIES queries */
	size_t (*laid_bytes)(int dim);  /* of a segment */
	size_t work_bytes;
	int few; /* up to this many queries of a unit are given no laid rows */
	/* n <= KV_QUERIES queries of dim floats each; few: all that there are, and nothing will be laid for them. */
	void (*queries)(uint8_t *to, const float *const *q, int n, int dim, bool few);
	/* Positions [seg->first, n); the other values of whole blocks of 32 as zeros. */
	void (*lay)(uint8_t *to, const struct kv_segment *seg, int n, int dim);
	/* Values [from, to) have neither infinities nor NaN: zero times them adds nothing. */
	bool (*finite)(const struct kv_segment *seg, int from, int to, int dim);
	void (*attend)(const struct kv_attend *a, int dim, float scale);
	/* (all, max, sum) of n queries absorb (acc, m, l) of a later segment.  max and m have room for
	 * a multiple of KV_TILES_LINE. */
	void (*merge)(float *all, float *max, float *sum, const float *acc, const float *m, const float *l, int n,
	              int dim, float scale);
};

/* NULL: not for these rows, this size of heads or this level. */
const struct kv_tiles *kv_tiles(struct kv_pair fmt, int dim, enum cpu_level level);

/* By the dot product of bf16, by the multiply-adds that it stands for where these are faster (the same bits), and by
 * tiles. */
extern const struct kv_tiles kv_tiles_dot, kv_tiles_floats, kv_tiles_amx;

#endif
