/* options_help.c - what `--help` prints of a command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/option_table.h"

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

static void help_option(const struct option *op)
{
	enum { INDENT = 30, WIDTH = 100 };
	char left[80], *help;
	struct buf b;

	snprintf(left, sizeof(left), "  %s%s%s--%s%s%s", op->letter ? "-" : "", op->letter ? op->letter : "",
	         op->letter ? ", " : "    ", op->name, op->arg ? " " : "", op->arg ? op->arg : "");
	buf_init(&b);
	buf_puts(&b, op->help);
	if (op->deflt)
		buf_printf(&b, " (default %s)", op->deflt);
	help = buf_take(&b);
	if (strlen(left) + 2 > INDENT)
		printf("%s\n%*s", left, INDENT, "");
	else
		printf("%-*s", INDENT, left);
	wrapped(help, INDENT, INDENT, WIDTH);
	free(help);
}

/* Few enough to be shown whole. */
enum { SHORT_HELP = 24 };

static int options_of(const struct command *c, unsigned also)
{
	int n = 0;

	for (int i = 0; i < n_options; i++)
		n += option_is_of(&option_table[i], c->bit) && (option_table[i].commands & also) == also;
	return n;
}

void options_help(const struct command *c, bool all)
{
	int n = options_of(c, 0);
	bool few = !all && n > SHORT_HELP;

	printf("usage: weft %s [options] %s\n\n%s\n", c->name, c->args, c->about);
	for (const char *const *group = option_groups; *group; group++) {
		bool any = false;

		for (int i = 0; i < n_options; i++) {
			const struct option *op = &option_table[i];

			if (op->group != *group || !option_is_of(op, c->bit) || (few && !(op->commands & CMD_COMMON)))
				continue;
			if (!any)
				printf("\n%s:\n", *group);
			any = true;
			help_option(op);
		}
	}
	if (few)
		printf("\n%d options more: weft %s --help all\n", n - options_of(c, CMD_COMMON), c->name);
	printf("\nExamples:\n%s", c->examples);
}
