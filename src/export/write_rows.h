/* write_rows.h - writes a model file of any size in bounded memory, and goes on where it was cut off.
 *
 * A file is a head, which is whole in memory, and items: bytes that are copied, or matrices whose rows are decoded, encoded
 * and written at their place, some at a time, by all threads.  While it is made it is PATH.partial, and next to
 * it PATH.partial.done says of what job it is and how many items are safely on disk; a job of the same words goes on
 * there.  PATH itself appears when all is written.  One thread at a time. */
#ifndef EXPORT_WRITE_ROWS_H
#define EXPORT_WRITE_ROWS_H

#include "base/err.h"
#include "base/pool.h"
#include "quant/format.h"

enum { ITEM_STREAMS = 3 }; /* codes, scales, biases */

/* Scales that are not part of a matrix's rows: that of element c of row r is number r / high * wide + c / broad. */
struct item_scales {
	const uint8_t *at;
	enum dtype type;
	int64_t wide;
	int high, broad;
	int row0;    /* of the item in the matrix */
	bool across; /* the item's rows are the matrix's columns */
};

struct item {
	const char *name; /* for messages */
	/* Copied to at[0]; encode NULL. */
	const uint8_t *bytes;
	size_t n;
	/* Or rows of w, each to stream i at at[i] + row * row_bytes[i].  Row r is read from row[r] of w, its element c from
	 * col[c]; NULL: in the same order.  col_bytes: from one element of a row to the next, where they are plain and
	 * apart; 0: adjacent.  Elements are multiplied by times, then by row_times[r]; 0 and NULL: they are not. */
	struct weight w;
	const int32_t *row, *col;
	size_t col_bytes;
	const struct item_scales *scales; /* NULL: there are none */
	float times;
	const float *row_times;
	void (*encode)(const struct item *it, uint8_t *const out[ITEM_STREAMS], const float *x);
	/* In place of encode: writes row `row` of w, whose codes go over as they are. */
	void (*recode)(const struct item *it, uint8_t *out, int row);
	size_t at[ITEM_STREAMS], row_bytes[ITEM_STREAMS]; /* row_bytes 0: no such stream */
	const void *how;                                  /* the encoder's own: a type */
	int bits, group;                                  /* the encoder's own too */
	const float *importance;                          /* [stack][cols] or NULL; rows / stack rows share one */
	int stack;
};

struct write_job {
	const char *path, *words; /* words: what makes two jobs the same */
	const void *head;
	size_t head_bytes, bytes; /* bytes: of the whole file */
	const struct item *item;
	int n;
	struct pool *pool;
	size_t safe_bytes; /* written between two notes of what is done; 0: 64 MB */
	/* Called after each item with the bytes written and the bytes of the whole file; may be NULL. */
	void (*progress)(void *arg, size_t done, size_t all);
	void *arg;
};

/* E_IO; E_FORMAT: a row that cannot be encoded (not a number, too large).  What was written stays for the next try. */
int write_rows(const struct write_job *job, struct err *err);

#endif
