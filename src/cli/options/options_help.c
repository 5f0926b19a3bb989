/* options_help.c - what `--help` prints of a command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cli/options/option_table.h"

/* Text broken at spaces to a width, each line after the first indented. */
static void wrapped(const char *text, int indent, int column, int width)
{
	while (*text) {
		int n = (int)strcspn(text, " ");

		if (column > indent && column + 1 + n > width) {
			printf("\n%*s", indent, "");
			column = indent;
		} else if (column > indent) {
			putchar(' ');
			column++;
		}
		printf("%.*s", n, text);
		column += n;
		text += n;
		text += strspn(text, " ");
	}
	putchar('\n');
}

/* Columns that help may take: those of the terminal or of the variable COLUMNS, 100 at most. */
static int columns(void)
{
	enum { LEAST = 40, MOST = 100 };
	const char *said = getenv("COLUMNS");
	int n = said ? atoi(said) : 0;
	struct winsize w;

	if (n <= 0 && isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w))
		n = w.ws_col;
	return n <= 0 || n > MOST ? MOST : n < LEAST ? LEAST : n;
}

static void help_option(const struct option *op, bool tuning)
{
	const int width = columns(), indent = width < 70 ? 8 : 30;
	char left[80], *help;
	struct buf b;

	if (tuning)
		snprintf(left, sizeof(left), "  %s%s%s", op->name, op->arg ? "=" : "", op->arg ? op->arg : "");
	else
		snprintf(left, sizeof(left), "  %s%s%s--%s%s%s", op->letter ? "-" : "", op->letter ? op->letter : "",
		         op->letter ? ", " : "    ", op->name, op->arg ? " " : "", op->arg ? op->arg : "");
	buf_init(&b);
	buf_puts(&b, op->help);
	if (op->deflt)
		buf_printf(&b, " (default %s)", op->deflt);
	help = buf_take(&b);
	if ((int)strlen(left) + 2 > indent)
		printf("%s\n%*s", left, indent, "");
	else
		printf("%-*s", indent, left);
	wrapped(help, indent, indent, width);
	free(help);
}

/* Few enough to be shown whole. */
enum { SHORT_HELP = 24 };

enum which { WHICH_COMMON, WHICH_ALL, WHICH_TUNING };

static bool is_shown(const struct option *op, const struct command *c, enum which which)
{
	if (which == WHICH_TUNING)
		return option_is_tuning(op, c->bit);
	return option_is_of(op, c->bit) && (which == WHICH_ALL || (op->commands & CMD_COMMON));
}

static int options_of(const struct command *c, enum which which)
{
	int n = 0;

	for (int i = 0; i < n_options; i++)
		n += is_shown(&option_table[i], c, which);
	return n;
}

static void help_groups(const struct command *c, enum which which)
{
	for (const char *const *group = option_groups; *group; group++) {
		bool any = false;

		for (int i = 0; i < n_options; i++) {
			const struct option *op = &option_table[i];

			if (op->group != *group || !is_shown(op, c, which))
				continue;
			if (!any)
				printf("\n%s:\n", *group);
			any = true;
			help_option(op, which == WHICH_TUNING);
		}
	}
}

/* Bytes of the paragraph at text, without its last newline.  A paragraph ends before an empty line, and with a line whose
 * sentence ends; *wide: its longest line. */
static int paragraph(const char *text, int *wide)
{
	int n = 0;

	*wide = 0;
	for (;;) {
		int line = (int)strcspn(text + n, "\n");

		*wide = line > *wide ? line : *wide;
		n += line;
		if (!text[n] || !text[n + 1] || text[n + 1] == '\n' || !line || text[n - 1] == '.')
			return n;
		n++;
	}
}

void help_paragraphs(const char *text)
{
	int width = columns();

	while (*text) {
		int wide, n = paragraph(text, &wide);

		if (wide <= width) {
			printf("%.*s\n", n, text);
		} else {
			char *one = xstrndup(text, (size_t)n);

			for (char *p = one; (p = strchr(p, '\n'));)
				*p = ' ';
			wrapped(one, 0, 0, width);
			free(one);
		}
		text += n + (text[n] == '\n');
	}
}

void help_item(const char *name, const char *what)
{
	int width = columns(), indent = 15;

	printf("  %-*s", indent - 2, name);
	wrapped(what, indent, indent, width);
}

/* Bytes of the first line of the shell command p[0..n) when it is broken to `room` columns: it ends before the last option that
 * leaves room for " \\", else after the last word that fits.  Quoted text is kept whole; a line has at least one word. */
static int shell_line(const char *p, int n, int room)
{
	int best = 0, option = 0;
	char quote = 0;

	for (int i = 0; i < n; i++) {
		if (quote ? p[i] == quote : p[i] == '\'' || p[i] == '"')
			quote = quote ? 0 : p[i];
		if (p[i] != ' ' || quote)
			continue;
		if (best && i > room - 2)
			break;
		best = i;
		option = p[i + 1] == '-' ? i : option;
	}
	return option ? option : best ? best : n;
}

/* Commands, a line each.  One that is longer than the width continues as a shell's commands do, so that it can be copied. */
static void put_examples(const char *text)
{
	int width = columns();

	while (*text) {
		int n = (int)strcspn(text, "\n"), at = 2, room = width - 2;

		printf("  ");
		while (n - at > room) {
			int part = shell_line(text + at, n - at, room);

			if (part == n - at)
				break;
			printf("%.*s \\\n      ", part, text + at);
			at += part + 1;
			room = width - 6;
		}
		printf("%.*s\n", n - at, text + at);
		text += n + (text[n] == '\n');
	}
}

void options_help(const struct command *c, const char *topic)
{
	int n = options_of(c, WHICH_ALL), n_tuning = options_of(c, WHICH_TUNING);
	bool few = !topic && n > SHORT_HELP;
	char usage[120];

	if (topic && !strcmp(topic, "tune")) {
		printf("weft %s --tune NAME=VALUE, for experiments:\n", c->name);
		help_groups(c, WHICH_TUNING);
		return;
	}
	snprintf(usage, sizeof usage, "weft %s [options]%s%s", c->name, *c->args ? " " : "", c->args);
	printf("usage: ");
	wrapped(usage, 7, 7, columns());
	putchar('\n');
	help_paragraphs(c->about);
	help_groups(c, few ? WHICH_COMMON : WHICH_ALL);
	if (few)
		printf("\n%d more options: weft %s --help all\n", n - options_of(c, WHICH_COMMON), c->name);
	if (topic && n_tuning && (c->bit & (CMD_SERVE | CMD_RUN)))
		printf("\n%d more for experiments: weft %s --help tune\n", n_tuning, c->name);
	printf("\nExamples:\n");
	put_examples(c->examples);
}
