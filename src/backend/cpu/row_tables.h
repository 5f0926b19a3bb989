/* row_tables.h - inside backend/cpu/: tables that stay on disk, of which embed reads the rows that a step looks up.
 *
 * A step's ids are known before it begins: they are sorted, and each row is read once into a buffer, in as many turns as the
 * buffer asks for.  Nothing is kept from one call to the next.  All calls are the engine thread's. */
#ifndef BACKEND_CPU_ROW_TABLES_H
#define BACKEND_CPU_ROW_TABLES_H

#include "backend/cpu/cpu_backend.h"

struct row_tables;
struct row_table;

/* Operations of the backend's table; see backend.h. */
int cpu_stream_rows(struct backend *be, const struct weight *const *table, int n, const struct rows_opts *how,
                    struct err *err);
void cpu_row_stats(const struct backend *be, struct row_stats *out);
void row_tables_free(struct row_tables *s); /* NULL is allowed */

/* The table whose matrix w is; NULL: w is in memory.  s may be NULL. */
struct row_table *row_tables_find(struct row_tables *s, const struct weight *w);
/* Row `id` of the table, wanted by a row of the pass, goes to row `to` of the output. */
struct row_asked {
	int id, row, to;
};
/* Reads n rows into out, rows of the table's columns.  A row that cannot be read becomes zeros, and its item is spoiled. */
void row_table_read(struct row_table *t, struct pass *p, const struct row_asked *ask, int n, float *out);
/* As embed in backend.h. */
void row_table_embed(struct row_table *t, struct pass *p, float *out);

#endif
