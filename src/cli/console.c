/* console.c - see console.h.
 *
 * A pasted text of several lines stands in the line as a short mark, "[paste 1: 12 lines]", and
 * takes its place when the message is complete: an editor of one line cannot show it. */
#include "cli/console.h"

#include <histedit.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { HISTORY_MAX = 500, PASTES_MAX = 32, PASTE_BYTES_MAX = 16 << 20 };

struct console {
	EditLine *el;
	History *past;
	char *history;
	void (*interrupted)(void);
	bool cut; /* Ctrl-C took the line */
	struct paste {
		char mark[48];
		char *text;
	} paste[PASTES_MAX]; /* of the message that is being typed */
	int n_paste;
	bool more; /* the prompt is that of a line that goes on */
};

static char *prompt_of(EditLine *el)
{
	static char first[] = "> ", next[] = ". ";
	struct console *c;

	el_get(el, EL_CLIENTDATA, &c);
	return c->more ? next : first;
}

static unsigned char drop_line(EditLine *el, wint_t key)
{
	struct console *c;

	el_get(el, EL_CLIENTDATA, &c);
	c->cut = true;
	c->interrupted();
	return CC_EOF;
}

static void mark_pastes(bool on)
{
	fputs(on ? "\033[?2004h" : "\033[?2004l", stdout); /* the terminal marks what is pasted */
	fflush(stdout);
}

/* Ctrl-Z, which is a key here as Ctrl-C is: does what the terminal would do, with the terminal as the shell wants it. */
static unsigned char suspend(EditLine *el, wint_t key)
{
	el_set(el, EL_PREP_TERM, 0);
	mark_pastes(false);
	kill(0, SIGTSTP); /* the group, with a script that waits for this program; Linux has the main thread take it */
	mark_pastes(true);
	el_set(el, EL_PREP_TERM, 1);
	return CC_REDISPLAY;
}

/* ---- pasted text ---- */

static void put_char(struct buf *b, wchar_t ch)
{
	char utf8[4];

	buf_put(b, utf8, (size_t)utf8_encode((uint32_t)ch, utf8));
}

/* Up to the sequence that ends it; line ends become \n. */
static void read_paste(EditLine *el, struct buf *text)
{
	static const char end[] = "\033[201~";
	enum { END = sizeof end - 1 };
	wchar_t ch;

	while (text->n < PASTE_BYTES_MAX && el_wgetc(el, &ch) == 1) {
		if (ch == L'\r')
			ch = L'\n';
		if (ch == L'\n' || ch == L'\t' || ch == L'\033' || ch >= L' ')
			put_char(text, ch);
		if (text->n >= END && !memcmp(text->p + text->n - END, end, END)) {
			text->n -= END;
			text->p[text->n] = '\0';
			return;
		}
	}
}

static int lines_of(const char *text)
{
	int n = 1;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static unsigned char take_paste(EditLine *el, wint_t key)
{
	struct console *c;
	struct buf text;
	bool fits;

	el_get(el, EL_CLIENTDATA, &c);
	buf_init(&text);
	read_paste(el, &text);
	if (text.n && !strpbrk(text.p, "\n\t\033")) {
		fits = !el_insertstr(el, text.p);
	} else if (text.n && c->n_paste < PASTES_MAX) {
		struct paste *p = &c->paste[c->n_paste++];

		snprintf(p->mark, sizeof p->mark, "[paste %d: %d lines]", c->n_paste, lines_of(text.p));
		p->text = xstrdup(text.p);
		fits = !el_insertstr(el, p->mark);
	} else {
		fits = !text.n;
	}
	buf_fini(&text);
	return fits ? CC_REFRESH : CC_ERROR;
}

static void forget_pastes(struct console *c)
{
	while (c->n_paste)
		free(c->paste[--c->n_paste].text);
}

/* Each mark that still stands in the message, once, by what was pasted. */
static void put_pastes(struct console *c, struct buf *out)
{
	for (int i = 0; i < c->n_paste; i++) {
		const struct paste *p = &c->paste[i];
		char *at = out->n ? strstr(out->p, p->mark) : NULL;
		struct buf whole;

		if (!at)
			continue;
		buf_init(&whole);
		buf_put(&whole, out->p, (size_t)(at - out->p));
		buf_puts(&whole, p->text);
		buf_puts(&whole, at + strlen(p->mark));
		buf_fini(out);
		*out = whole;
	}
}

/* ---- messages ---- */

/* One line without its end, appended: 1, 0, -1 as console_read. */
static int read_line(struct console *c, struct buf *out)
{
	const char *line;
	int n;

	c->cut = false;
	/* libedit shows its prompt before it takes over the terminal's keys; a Ctrl-D in between
	 * would be lost. */
	el_set(c->el, EL_PREP_TERM, 1);
	line = el_gets(c->el, &n);
	if (!line || n <= 0)
		return c->cut ? -1 : 0;
	while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
		n--;
	buf_put(out, line, (size_t)n);
	return 1;
}

static bool ends_with(const struct buf *b, size_t from, const char *end)
{
	size_t n = strlen(end);

	return b->n >= from + n && !memcmp(b->p + b->n - n, end, n);
}

static void cut_end(struct buf *b, size_t n)
{
	b->n -= n;
	b->p[b->n] = '\0';
}

/* Reads the lines after a first one that begins with """, up to a line that ends with it. */
static int read_quoted(struct console *c, struct buf *out)
{
	int got = 1;

	memmove(out->p, out->p + 3, out->n - 2);
	out->n -= 3;
	while (got == 1 && !ends_with(out, 0, "\"\"\"")) {
		if (out->n)
			buf_putc(out, '\n');
		got = read_line(c, out);
	}
	if (got == 1)
		cut_end(out, 3);
	while (got == 1 && ends_with(out, 0, "\n"))
		cut_end(out, 1);
	return got;
}

static int read_message(struct console *c, struct buf *out)
{
	int got = read_line(c, out);

	c->more = true;
	if (got == 1 && out->n >= 3 && !memcmp(out->p, "\"\"\"", 3))
		return read_quoted(c, out);
	while (got == 1 && ends_with(out, 0, "\\")) {
		out->p[out->n - 1] = '\n';
		got = read_line(c, out);
	}
	return got;
}

int console_read(struct console *c, struct buf *out)
{
	HistEvent hev;
	int got;

	buf_reset(out);
	mark_pastes(true);
	got = read_message(c, out);
	mark_pastes(false);
	c->more = false;
	if (got == 1) {
		put_pastes(c, out);
		if (out->n)
			history(c->past, &hev, H_ENTER, out->p);
	} else if (got < 0) {
		el_reset(c->el);
	}
	forget_pastes(c);
	return got;
}

/* ---- open, close ---- */

static void bind_keys(struct console *c)
{
	el_set(c->el, EL_CLIENTDATA, c);
	el_set(c->el, EL_PROMPT, prompt_of);
	el_set(c->el, EL_EDITOR, "emacs");
	el_set(c->el, EL_HIST, history, c->past);
	/* Ctrl-C is a key while a line is edited, and a signal at all other times. */
	el_wset(c->el, EL_ADDFN, L"weft-drop-line", L"drop the line", drop_line); /* the narrow form leaks */
	el_wset(c->el, EL_ADDFN, L"weft-paste", L"take what is pasted", take_paste);
	el_wset(c->el, EL_ADDFN, L"weft-suspend", L"stop the program, as a shell's job", suspend);
	el_set(c->el, EL_BIND, "^C", "weft-drop-line", NULL);
	el_set(c->el, EL_BIND, "^Z", "weft-suspend", NULL);
	el_set(c->el, EL_BIND, "\033[200~", "weft-paste", NULL);
	el_set(c->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
	el_set(c->el, EL_SETTY, "-d", "-isig", NULL);
	el_source(c->el, NULL);
}

int console_open(struct console **out, const char *file, void (*interrupted)(void), struct err *err)
{
	struct console *c = xcalloc(1, sizeof *c);
	HistEvent hev;

	c->interrupted = interrupted;
	c->el = el_init("weft", stdin, stdout, stderr);
	c->past = history_init();
	if (!c->el || !c->past) {
		console_close(c);
		return err_set(err, E_IO, "cannot set up line editing");
	}
	history(c->past, &hev, H_SETSIZE, HISTORY_MAX);
	if (file) {
		c->history = xstrdup(file);
		history(c->past, &hev, H_LOAD, file);
	}
	bind_keys(c);
	*out = c;
	return 0;
}

void console_close(struct console *c)
{
	HistEvent hev;

	if (c->history) {
		mode_t mask = umask(077); /* it says what was asked */

		history(c->past, &hev, H_SAVE, c->history);
		umask(mask);
	}
	if (c->past)
		history_end(c->past);
	if (c->el)
		el_end(c->el);
	forget_pastes(c);
	free(c->history);
	free(c);
}
