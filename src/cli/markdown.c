/* markdown.c - see markdown.h. */
#include "cli/markdown.h"

#include <string.h>

static const char bold_on[] = "\033[1m", code_on[] = "\033[36m", off[] = "\033[0m";

/* Everything that is on, after something went off. */
static void colours(const struct markdown *m, struct buf *out)
{
	buf_puts(out, off);
	if (m->bold || m->heading)
		buf_puts(out, bold_on);
	if (m->code || m->fence)
		buf_puts(out, code_on);
}

static void plain(struct markdown *m, struct buf *out)
{
	buf_put(out, m->held, (size_t)m->n_held);
	m->n_held = 0;
	m->inside = true;
}

static void line_end(struct markdown *m, struct buf *out)
{
	bool any = m->bold || m->code || m->heading;

	m->bold = m->code = m->heading = m->inside = m->fence_line = false;
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
		m->heading = true;
		buf_puts(out, bold_on);
		plain(m, out);
		buf_putc(out, c);
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
	plain(m, out);
	if (c != '`') {
		buf_putc(out, c);
		return;
	}
	m->code = !m->code;
	colours(m, out);
}

static void take_char(struct markdown *m, char c, struct buf *out)
{
	if (c == '\n') {
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

void markdown_put(struct markdown *m, const char *p, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++)
		take_char(m, p[i], out);
}

void markdown_end(struct markdown *m, struct buf *out)
{
	bool any = m->bold || m->code || m->heading || m->fence;

	plain(m, out);
	if (any)
		buf_puts(out, off);
	memset(m, 0, sizeof *m);
}
