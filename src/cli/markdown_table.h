/* markdown_table.h - a table of an answer's markdown, drawn for a terminal.
 *
 * Columns are as wide as their widest cell; where all have no room, the widest are made narrower and their cells take several
 * lines.  Where a column would have fewer than 4 columns of the terminal, each row becomes lines "header: cell". */
#ifndef CLI_MARKDOWN_TABLE_H
#define CLI_MARKDOWN_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { TABLE_BYTES_MAX = 64 << 10, TABLE_COLUMNS_MAX = 32 };

/* Whether the line p[0..n) is the second of a table: |---|:-:| and the like. */
bool table_is_rule(const char *p, size_t n);

/* Appends the table of the lines p[0..n), of which the second is its rule, for a terminal of that many columns.  cell appends
 * the text of a cell as it is shown, with escape sequences that end in m. */
void table_draw(const char *p, size_t n, int columns, void (*cell)(const char *p, size_t n, struct buf *out),
                struct buf *out);

#endif
