/* stream_stats.h - counters of what stays on disk and is read when it is used, experts and rows of tables: a backend fills
 * them, the engine passes them on, and the server shows them. */
#ifndef BASE_STREAM_STATS_H
#define BASE_STREAM_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream_stats {
	int slots, slots_used, experts; /* experts: in all layers */
	size_t slot_bytes;
	const char *way; /* how it reads */
	bool packed;
	int64_t visits;            /* of layers */
	int64_t used, hits;        /* experts that visits used; those of them that were in a slot already */
	int64_t reads, read_bytes; /* experts and bytes that were read */
	int64_t packs;             /* slabs that were packed after they had been read */
	int64_t ahead, ahead_used; /* experts read on a guess; those of them that were used */
	int64_t wait_ns;           /* the engine waited for the disk */
	int64_t failed;            /* experts that could not be read */
};

struct row_stats {
	int tables; /* on disk; 0: all are in memory */
	size_t table_bytes, buffer_bytes;
	const char *way;           /* how it reads */
	int64_t rows;              /* looked up */
	int64_t reads, read_bytes; /* a read may bring several rows */
	int64_t wait_ns;           /* the engine waited for the disk */
	int64_t failed;            /* rows that could not be read */
};

#endif
