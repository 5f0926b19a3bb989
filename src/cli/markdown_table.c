/* markdown_table.c - see markdown_table.h. */
#include "cli/markdown_table.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { NARROWEST = 4, BETWEEN = 3 }; /* columns of the terminal: of a column that is drawn, and between two */

/* A cell of the row that is being drawn. */
struct cell {
	struct buf text;  /* as shown */
	size_t at;        /* of text: what the next line begins with */
	struct buf style; /* escape sequences in force there */
};

struct table {
	int n, width[TABLE_COLUMNS_MAX];
	char align[TABLE_COLUMNS_MAX]; /* l, r, c */
	struct cell cell[TABLE_COLUMNS_MAX];
	void (*show)(const char *p, size_t n, struct buf *out);
	struct buf *out;
};

/* ---- lines to cells ---- */

static const char *line_end(const char *p, const char *end)
{
	const char *at = memchr(p, '\n', (size_t)(end - p));

	return at ? at : end;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts the first cell of the line *p up to end off, into out and without the blanks around it.  False: there is none. */
static bool next_cell(const char **p, const char *end, struct buf *out)
{
	size_t from = 0;

	buf_reset(out);
	if (*p >= end)
		return false;
	for (; *p < end && **p != '|'; ++*p) {
		if (**p == '\\' && *p + 1 < end && (*p)[1] == '|')
			++*p;
		buf_putc(out, **p == '\t' ? ' ' : **p);
	}
	if (*p < end)
		++*p;
	while (out->n && is_blank(out->p[out->n - 1]))
		out->n--;
	while (from < out->n && is_blank(out->p[from]))
		from++;
	buf_drop(out, from);
	return true;
}

/* To the first cell, and the end without what closes the line. */
static void trim_row(const char **p, const char **end)
{
	while (*p < *end && is_blank(**p))
		++*p;
	while (*end > *p && is_blank((*end)[-1]))
		--*end;
	if (*p < *end && **p == '|')
		++*p;
}

bool table_is_rule(const char *p, size_t n)
{
	const char *end = p + n;
	struct buf b;
	bool good = true, any = false;

	trim_row(&p, &end);
	buf_init(&b);
	while (good && next_cell(&p, end, &b)) {
		size_t from = b.n && b.p[0] == ':', to = b.n - (b.n > 1 && b.p[b.n - 1] == ':');

		good = to > from;
		for (size_t i = from; i < to; i++)
			good &= b.p[i] == '-';
		any = true;
	}
	buf_fini(&b);
	return good && any;
}

static void read_rule(struct table *t, const char *p, const char *end)
{
	struct buf b;

	trim_row(&p, &end);
	buf_init(&b);
	for (int j = 0; j < t->n && next_cell(&p, end, &b); j++) {
		bool left = b.n && b.p[0] == ':', right = b.n && b.p[b.n - 1] == ':';

		t->align[j] = right ? (left ? 'c' : 'r') : 'l';
	}
	buf_fini(&b);
}

static int count_cells(const char *p, const char *end)
{
	struct buf b;
	int n = 0;

	trim_row(&p, &end);
	buf_init(&b);
	while (next_cell(&p, end, &b))
		n++;
	buf_fini(&b);
	return n;
}

/* The cells of a line as they are shown; missing ones are empty. */
static void read_row(struct table *t, const char *p, const char *end)
{
	struct buf b;

	trim_row(&p, &end);
	buf_init(&b);
	for (int j = 0; j < t->n; j++) {
		struct cell *c = &t->cell[j];

		buf_reset(&c->text);
		buf_reset(&c->style);
		c->at = 0;
		if (next_cell(&p, end, &b))
			t->show(b.p, b.n, &c->text);
	}
	buf_fini(&b);
}

/* ---- widths ---- */

/* One character or escape sequence at p: its bytes; *width: the columns of the terminal that it takes. */
static size_t take_char(const char *p, size_t n, int *width)
{
	uint32_t cp;
	int bytes, w;

	*width = 0;
	if (*p == '\033') {
		size_t i = 1;

		while (i < n && p[i] != 'm')
			i++;
		return i < n ? i + 1 : n;
	}
	bytes = utf8_decode(p, n, &cp);
	w = bytes ? wcwidth((wchar_t)cp) : 1;
	*width = w < 0 ? 1 : w; /* assigned after the C library was made */
	return bytes ? (size_t)bytes : 1;
}

static int width_of(const struct buf *b)
{
	int all = 0, w;

	for (size_t at = 0; at < b->n; all += w)
		at += take_char(b->p + at, b->n - at, &w);
	return all;
}

/* Makes the widest columns narrower until all have room.  False: they would be too narrow. */
static bool fit(struct table *t, int columns)
{
	int most = columns - (t->n - 1) * BETWEEN, all = 0;

	for (int j = 0; j < t->n; j++)
		all += t->width[j];
	for (; all > most; all--) {
		int widest = 0;

		for (int j = 1; j < t->n; j++)
			widest = t->width[j] > t->width[widest] ? j : widest;
		if (t->width[widest] <= NARROWEST)
			return false;
		t->width[widest]--;
	}
	return true;
}

/* ---- drawing ---- */

/* How much of the cell stands in its next line of `most` columns: bytes; *width: columns.  A line ends at a blank where there is
 * one. */
static size_t line_of(const struct cell *c, int most, int *width)
{
	size_t at = c->at, blank = 0;
	int all = 0, at_blank = 0, w;

	while (at < c->text.n) {
		size_t n = take_char(c->text.p + at, c->text.n - at, &w);

		if (all + w > most && c->text.p[at] == ' ')
			break; /* no blank is shown at the end of a line */
		if (all + w > most) {
			*width = blank ? at_blank : all;
			return (blank ? blank : at > c->at ? at : at + n) - c->at;
		}
		if (c->text.p[at] == ' ') {
			blank = at;
			at_blank = all;
		}
		all += w;
		at += n;
	}
	*width = all;
	return at - c->at;
}

/* Notes the escape sequences of p[0..n), of which the one that ends all others begins with a 0. */
static void note_style(struct buf *style, const char *p, size_t n)
{
	int w;

	for (size_t at = 0, len; at < n; at += len) {
		len = take_char(p + at, n - at, &w);
		if (p[at] == '\033' && len > 2 && p[at + 2] == '0')
			buf_reset(style);
		else if (p[at] == '\033')
			buf_put(style, p + at, len);
	}
}

static void put_blanks(struct buf *out, int n)
{
	while (n-- > 0)
		buf_putc(out, ' ');
}

/* The next line of a cell in column j. */
static void draw_cell(struct table *t, int j)
{
	struct cell *c = &t->cell[j];
	int width, room;
	size_t n = line_of(c, t->width[j], &width);

	room = t->width[j] - width;
	put_blanks(t->out, t->align[j] == 'r' ? room : t->align[j] == 'c' ? room / 2 : 0);
	buf_put(t->out, c->style.p, c->style.n);
	buf_put(t->out, c->text.p + c->at, n);
	note_style(&c->style, c->text.p + c->at, n);
	if (c->style.n)
		buf_puts(t->out, "\033[0m");
	c->at += n;
	while (c->at < c->text.n && c->text.p[c->at] == ' ')
		c->at++;
	if (j + 1 < t->n)
		put_blanks(t->out, t->align[j] == 'r' ? 0 : t->align[j] == 'c' ? room - room / 2 : room);
}

static bool row_goes_on(const struct table *t)
{
	for (int j = 0; j < t->n; j++)
		if (t->cell[j].at < t->cell[j].text.n)
			return true;
	return false;
}

static void draw_row(struct table *t)
{
	do {
		for (int j = 0; j < t->n; j++) {
			draw_cell(t, j);
			buf_puts(t->out, j + 1 < t->n ? " \xe2\x94\x82 " : "\n");
		}
	} while (row_goes_on(t));
}

static void draw_rule(struct table *t)
{
	for (int j = 0; j < t->n; j++) {
		for (int i = 0; i < t->width[j]; i++)
			buf_puts(t->out, "\xe2\x94\x80");
		buf_puts(t->out, j + 1 < t->n ? "\xe2\x94\x80\xe2\x94\xbc\xe2\x94\x80" : "\n");
	}
}

/* A row as lines "header: cell". */
static void draw_record(struct table *t, const struct buf header[])
{
	for (int j = 0; j < t->n; j++) {
		if (!t->cell[j].text.n)
			continue;
		buf_put(t->out, header[j].p, header[j].n);
		buf_puts(t->out, header[j].n ? ": " : "");
		buf_put(t->out, t->cell[j].text.p, t->cell[j].text.n);
		buf_putc(t->out, '\n');
	}
}

static void embolden(struct table *t)
{
	for (int j = 0; j < t->n; j++) {
		struct buf b = t->cell[j].text;

		if (!b.n)
			continue;
		buf_init(&t->cell[j].text);
		buf_printf(&t->cell[j].text, "\033[1m%s\033[0m", b.p);
		buf_fini(&b);
	}
}

static void draw_lines(struct table *t, const char *p, const char *end, int columns)
{
	const char *first = line_end(p, end), *rows = line_end(first + 1, end) + 1;
	struct buf header[TABLE_COLUMNS_MAX];
	bool fits;

	for (const char *at = p, *to; at < end; at = to + 1) {
		to = line_end(at, end);
		read_row(t, at, to);
		for (int j = 0; j < t->n && at != first + 1; j++) {
			int w = width_of(&t->cell[j].text);

			t->width[j] = w > t->width[j] ? w : t->width[j];
		}
	}
	fits = fit(t, columns);
	read_row(t, p, first);
	embolden(t);
	for (int j = 0; j < t->n; j++) {
		buf_init(&header[j]);
		buf_put(&header[j], t->cell[j].text.p, t->cell[j].text.n);
	}
	if (fits) {
		draw_row(t);
		draw_rule(t);
	}
	for (const char *at = rows, *to; at < end; at = to + 1) {
		to = line_end(at, end);
		read_row(t, at, to);
		if (fits) {
			draw_row(t);
			continue;
		}
		if (at != rows)
			buf_putc(t->out, '\n');
		draw_record(t, header);
	}
	for (int j = 0; j < t->n; j++)
		buf_fini(&header[j]);
}

void table_draw(const char *p, size_t n, int columns, void (*cell)(const char *p, size_t n, struct buf *out),
                struct buf *out)
{
	struct table *t = xcalloc(1, sizeof *t);
	const char *end = p + n, *first;

	if (n && end[-1] == '\n')
		end--;
	first = line_end(p, end);
	t->n = count_cells(p, first);
	t->n = t->n > TABLE_COLUMNS_MAX ? TABLE_COLUMNS_MAX : t->n;
	t->show = cell;
	t->out = out;
	for (int j = 0; j < TABLE_COLUMNS_MAX; j++) {
		buf_init(&t->cell[j].text);
		buf_init(&t->cell[j].style);
	}
	read_rule(t, first + 1, line_end(first + 1, end));
	draw_lines(t, p, end, columns);
	for (int j = 0; j < TABLE_COLUMNS_MAX; j++) {
		buf_fini(&t->cell[j].text);
		buf_fini(&t->cell[j].style);
	}
	free(t);
}
