/* wanted_rows.h - the rows of a prompt that a request gives besides its answer, as they are or pooled; embedders make vectors of
 * them.
 *
 * Rows come in rising position, each once, in any number of pieces: what is pooled is a function of the rows and their
 * positions alone. */
#ifndef ENGINE_WANTED_ROWS_H
#define ENGINE_WANTED_ROWS_H

#include <stdbool.h>
#include <stddef.h>

/* Ways to pool the rows of a text.  The results of several lie in rows.out in this order. */
enum rows_kind {
	ROWS_FIRST = 1,
	ROWS_MAX = 2, /* number by number */
	ROWS_MEAN = 4,
	ROWS_SQRT_MEAN = 8, /* the sum by the root of the count */
	ROWS_WEIGHTED = 16, /* the mean with weights position + 1 */
	ROWS_LAST = 32,
	ROWS_ALL = 64, /* as they are */
};

struct rows {
	unsigned kinds; /* of rows_kind */
	int from, end;  /* positions */
	int next;       /* rows before it are in */
	int cols;
	size_t n;               /* floats of out */
	double *sum, *by_place; /* [cols] or NULL: what means are made of */
	float *out;
};

/* Takes about as much memory as what comes out.  NULL: there is no memory. */
struct rows *rows_open(unsigned kinds, int from, int end, int cols);
void rows_close(struct rows *r); /* NULL is allowed */
/* Takes the row at pos; a row that is not the next one is ignored.  After the last row, out is complete. */
void rows_put(struct rows *r, int pos, const float *row);

#endif
