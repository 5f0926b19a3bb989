/* markdown.c - see markdown.h. */
#include "cli/markdown.h"

#include <ctype.h>
#include <string.h>

#include "cli/markdown_table.h"

enum { COLUMNS = 80 }; /* where the terminal does not say */

static const char bold_on[] = "\033[1m", italic_on[] = "\033[3m", underline_on[] = "\033[4m", code_on[] = "\033[36m",
		  off[] = "\033[0m";

/* Everything that is on, after something went off. */
static void colours(const struct markdown *m, struct buf *out)
{
	buf_puts(out, off);
	if (m->bold || m->heading)
		buf_puts(out, bold_on);
	if (m->heading == 1)
		buf_puts(out, underline_on);
	if (m->italic)
		buf_puts(out, italic_on);
	if (m->code || m->fence)
		buf_puts(out, code_on);
}

static void plain(struct markdown *m, struct buf *out)
{
	buf_put(out, m->held, (size_t)m->n_held);
	if (m->n_held)
		m->last = m->held[m->n_held - 1];
	m->n_held = 0;
	m->inside = true;
}

/* Decides on one star that is held, of which the next character is known: *a word* is italic, and 2 * 3, a*b are not. */
static void star(struct markdown *m, char next, struct buf *out)
{
	bool blank = next == ' ' || next == '\t' || next == '\n';

	if (m->n_held != 1 || m->held[0] != '*' || m->code || m->fence || m->fence_line)
		return;
	if (m->italic ? m->last == ' ' : blank || isalnum((unsigned char)m->last) || (m->last & 0x80))
		return;
	m->italic = !m->italic;
	m->n_held = 0;
	m->inside = true;
	colours(m, out);
}

static void line_end(struct markdown *m, struct buf *out)
{
	bool any = m->bold || m->italic || m->code || m->heading;

	m->bold = m->italic = m->code = m->inside = m->fence_line = false;
	m->heading = 0;
	m->last = 0;
	if (any)
		colours(m, out);
	buf_putc(out, '\n');
}

/* At the beginning of a line: blanks, then #, ``` or a bullet.  True: the byte was taken. */
static bool begin(struct markdown *m, char c, struct buf *out)
{
	char mark = m->n_held ? m->held[0] : c;

	if (c == ' ' && !m->n_held) {
		buf_putc(out, c);
		return true;
	}
	if (mark == '`' && c == '`' && m->n_held < 3) {
		m->held[m->n_held++] = c;
		if (m->n_held < 3)
			return true;
		m->fence = !m->fence;
		m->n_held = 0;
		m->inside = m->fence_line = true;
		colours(m, out);
		buf_puts(out, "```");
		return true;
	}
	if (m->fence)
		return false;
	if (mark == '#' && c == '#' && m->n_held < 6) {
		m->held[m->n_held++] = c;
		return true;
	}
	if (mark == '#' && c == ' ' && m->n_held) {
		m->heading = m->n_held;
		m->n_held = 0;
		m->inside = true;
		colours(m, out);
		return true;
	}
	if ((c == '-' || c == '*') && !m->n_held) {
		m->held[m->n_held++] = c;
		return true;
	}
	if ((mark == '-' || mark == '*') && c == ' ' && m->n_held == 1) {
		m->n_held = 0;
		m->inside = true;
		buf_puts(out, "\xe2\x80\xa2 ");
		return true;
	}
	return false;
}

static void inside(struct markdown *m, char c, struct buf *out)
{
	if (c == '*' && !m->code) {
		m->held[m->n_held++] = c;
		if (m->n_held == 2) {
			m->bold = !m->bold;
			m->n_held = 0;
			colours(m, out);
		}
		return;
	}
	star(m, c, out);
	plain(m, out);
	m->last = c;
	if (c != '`') {
		buf_putc(out, c);
		return;
	}
	m->code = !m->code;
	colours(m, out);
}

/* A character of text outside of tables. */
static void take_text(struct markdown *m, char c, struct buf *out)
{
	if (c == '\n') {
		star(m, c, out);
		plain(m, out);
		line_end(m, out);
		return;
	}
	if (!m->inside && begin(m, c, out))
		return;
	if (!m->inside && m->n_held && m->held[0] != '*') {
		/* The held characters turned out not to begin a block, so they are text; backticks among them begin code. */
		int n = m->n_held;
		char held = m->held[0];

		m->n_held = 0;
		m->inside = true;
		for (int i = 0; i < n && held == '`' && !m->fence; i++)
			inside(m, held, out);
		for (int i = 0; i < n && (held != '`' || m->fence); i++)
			buf_putc(out, held);
	}
	m->inside = true;
	if (m->fence || m->fence_line) {
		plain(m, out);
		buf_putc(out, c);
	} else {
		inside(m, c, out);
	}
}

/* ---- tables ---- */

static void put_cell(const char *p, size_t n, struct buf *out)
{
	struct markdown m = { .inside = true };

	for (size_t i = 0; i < n; i++)
		take_text(&m, p[i], out);
	markdown_end(&m, out);
}

static void hold(struct markdown *m, char c)
{
	if (!m->rows.p)
		buf_init(&m->rows);
	buf_putc(&m->rows, c);
}

/* What is held is whole: draws it if it is a table, and shows it as text if it is none. */
static void rows_end(struct markdown *m, struct buf *out)
{
	struct buf rows = m->rows;
	size_t n = rows.n;

	if (!rows.p)
		return;
	m->rows = (struct buf){ 0 };
	if (m->n_rows >= 2) {
		while (n && rows.p[n - 1] == ' ')
			n--; /* how the line after it begins */
		table_draw(rows.p, n, m->columns ? m->columns : COLUMNS, put_cell, out);
	} else {
		n = 0;
	}
	m->n_rows = 0;
	m->row = false;
	for (size_t i = n; i < rows.n; i++)
		take_text(m, rows.p[i], out);
	buf_fini(&rows);
}

/* The line that ends what is held is whole. */
static void row_ends(struct markdown *m, struct buf *out)
{
	size_t at = m->rows.n - 1;

	m->row = false;
	while (at && m->rows.p[at - 1] != '\n')
		at--;
	m->n_rows++;
	if (m->n_rows != 2) {
		if (m->rows.n > TABLE_BYTES_MAX)
			rows_end(m, out);
	} else if (!table_is_rule(m->rows.p + at, m->rows.n - 1 - at)) {
		m->n_rows = 1;
		rows_end(m, out);
	}
}

static void take_char(struct markdown *m, char c, struct buf *out)
{
	bool at_begin = !m->inside && !m->n_held && !m->fence;

	if (m->row) {
		hold(m, c);
		if (c == '\n')
			row_ends(m, out);
		else if (m->rows.n > 2 * TABLE_BYTES_MAX)
			rows_end(m, out);
		return;
	}
	if (at_begin && c == '|') {
		hold(m, c);
		m->row = true;
		return;
	}
	if (at_begin && c == ' ' && m->n_rows) {
		hold(m, c);
		return;
	}
	rows_end(m, out);
	take_text(m, c, out);
}

void markdown_put(struct markdown *m, const char *p, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++)
		take_char(m, p[i], out);
}

void markdown_end(struct markdown *m, struct buf *out)
{
	int columns = m->columns;
	bool any;

	if (m->row && m->n_rows) { /* the last row of a table, or its rule, without the end of the line */
		hold(m, '\n');
		row_ends(m, out);
	}
	rows_end(m, out);
	star(m, '\n', out);
	any = m->bold || m->italic || m->code || m->heading || m->fence;
	plain(m, out);
	if (any)
		buf_puts(out, off);
	memset(m, 0, sizeof *m);
	m->columns = columns;
}
