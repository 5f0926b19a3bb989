/* man.c - `weft man`: the manual page, made from the tables of commands and options (man(7)). */
#include <stdio.h>
#include <string.h>

#include "cli/options/option_table.h"

/* The first n bytes of text as text: no line begins with a control character, and a dash is a dash. */
static void put_some(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if ((!i || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\''))
			printf("\\&");
		if (text[i] == '\\')
			printf("\\e");
		else if (text[i] == '-')
			printf("\\-");
		else
			putchar(text[i]);
	}
}

static void put_text(const char *text)
{
	put_some(text, strlen(text));
}

/* Paragraphs, which empty lines part. */
static void put_paragraphs(const char *text)
{
	const char *end;

	for (; (end = strstr(text, "\n\n")); text = end + 2) {
		put_some(text, (size_t)(end - text));
		printf("\n.PP\n");
	}
	put_text(text);
	printf("\n");
}

static void put_option(const struct option *op)
{
	printf(".TP\n.B ");
	if (op->letter)
		printf("\\-%s, ", op->letter);
	printf("\\-\\-");
	put_text(op->name);
	if (op->arg) {
		printf(" ");
		put_text(op->arg);
	}
	printf("\n");
	put_text(op->help);
	if (op->deflt) {
		printf(" (default ");
		put_text(op->deflt);
		printf(")");
	}
	printf("\n");
}

static void put_command(const struct command *c)
{
	printf(".SH WEFT ");
	for (const char *p = c->name; *p; p++)
		putchar(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
	printf("\n.B weft %s\n[options] ", c->name);
	put_text(c->args);
	printf("\n.PP\n");
	put_paragraphs(c->about);
	for (int i = 0; i < n_options; i++)
		if (option_is_of(&option_table[i], c->bit))
			put_option(&option_table[i]);
	printf(".PP\nExamples:\n.PP\n.nf\n");
	put_text(c->examples);
	printf(".fi\n");
}

int cmd_man(const struct options *o)
{
	printf(".TH WEFT 1 \"\" \"weft %s\"\n.SH NAME\nweft \\- inference server for hybrid language models\n",
	       WEFT_VERSION);
	printf(".SH SYNOPSIS\n.B weft\nCOMMAND [options] [MODEL]\n.SH COMMANDS\n");
	for (const struct command *c = commands; c->name; c++) {
		printf(".TP\n.B %s\n", c->name);
		put_text(c->what);
		printf("\n");
	}
	for (const struct command *c = commands; c->name; c++)
		put_command(c);
	printf(".SH ENVIRONMENT\n.TP\n.B WEFT_NAME\nSets the option of that name: WEFT_KV_BITS is \\-\\-kv\\-bits.\n"
	       ".TP\n.B WEFT_MODEL\nThe model where none is named.\n");
	return 0;
}
