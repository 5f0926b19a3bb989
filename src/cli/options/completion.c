/* completion.c - `weft completion`: scripts for shells, made from the tables of commands and options. */
#include <stdio.h>
#include <string.h>

#include "cli/options/option_table.h"

/* The first word of a command's name, once for commands that share it. */
static bool first_of_name(const struct command *c)
{
	return !strchr(c->name, ' ');
}

static bool is_choice(const struct option *op)
{
	return op->arg && op->kind != K_HELP && strchr(op->arg, '|');
}

/* The values of "a|b|c", separated by blanks. */
static void put_choices(const char *arg)
{
	for (; *arg; arg++)
		putchar(*arg == '|' ? ' ' : *arg);
}

/* Is d the command c, or one whose name goes on from c's, as `bench serve` from `bench`? */
static bool goes_on(const struct command *d, const struct command *c)
{
	size_t n = strlen(c->name);

	return !strncmp(d->name, c->name, n) && (!d->name[n] || d->name[n] == ' ');
}

/* Is it an option of c, or of a command that goes on from c? */
static bool option_follows(const struct option *op, const struct command *c)
{
	for (const struct command *d = commands; d->name; d++)
		if (goes_on(d, c) && option_is_of(op, d->bit))
			return true;
	return false;
}

/* The words that may follow a command's name, besides options and files: second names, and what its argument is one of. */
static void put_words(const struct command *c)
{
	for (const struct command *d = commands; d->name; d++)
		if (goes_on(d, c) && strchr(d->name, ' '))
			printf("%s ", strchr(d->name, ' ') + 1);
	if (strchr(c->args, '|') && !strchr(c->args, ' '))
		put_choices(c->args);
}

static bool has_words(const struct command *c)
{
	for (const struct command *d = commands; d->name; d++)
		if (goes_on(d, c) && strchr(d->name, ' '))
			return true;
	return strchr(c->args, '|') && !strchr(c->args, ' ');
}

/* Text between single quotes of sh, with a quote in it left out. */
static void put_quoted(const char *text, const char *stop)
{
	putchar('\'');
	for (size_t n = strcspn(text, stop); n; n--, text++)
		if (!strchr("'[]\\:", *text))
			putchar(*text);
	putchar('\'');
}

/* Prints names of models in the cache, one a line. */
static const char models[] = "weft list 2>/dev/null | sed -n \"2,\\$s/ .*//p\"";

static bool takes_model(const struct command *c)
{
	return strstr(c->args, "MODEL") || (c->bit & CMD_RM);
}

/* A case of options with a value that is not one of a few: no word follows but a file. */
static void put_valued(const struct command *c)
{
	const char *bar = "\t\t";

	for (int i = 0; i < n_options; i++) {
		const struct option *op = &option_table[i];

		if (!option_follows(op, c) || !op->arg || is_choice(op) || op->kind == K_HELP)
			continue;
		printf("%s--%s", bar, op->name);
		bar = "|";
	}
	if (*bar == '|')
		printf(") ;;\n");
}

static void bash(void)
{
	printf("# bash completion of weft\n"
	       "_weft() {\n"
	       "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
	       "\tCOMPREPLY=()\n"
	       "\tif [ \"$COMP_CWORD\" = 1 ]; then\n"
	       "\t\twords='");
	for (const struct command *c = commands; c->name; c++)
		if (first_of_name(c))
			printf("%s ", c->name);
	printf("help'\n\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n\t\treturn\n\tfi\n"
	       "\tcase ${COMP_WORDS[1]} in\n");
	for (const struct command *c = commands; c->name; c++) {
		if (!first_of_name(c))
			continue;
		printf("\t%s)\n\t\tcase $prev in\n", c->name);
		for (int i = 0; i < n_options; i++)
			if (option_follows(&option_table[i], c) && is_choice(&option_table[i])) {
				printf("\t\t--%s) words='", option_table[i].name);
				put_choices(option_table[i].arg);
				printf("' ;;\n");
			}
		if (has_words(c)) {
			printf("\t\t%s) words='", c->name);
			put_words(c);
			printf("' ;;\n");
		}
		put_valued(c);
		printf("\t\t*) words='");
		for (int i = 0; i < n_options; i++)
			if (option_follows(&option_table[i], c))
				printf("--%s ", option_table[i].name);
		printf("'\n");
		if (takes_model(c))
			printf("\t\t\t[ \"${cur#-}\" != \"$cur\" ] || words=$(%s) ;;\n", models);
		else
			printf("\t\t\t;;\n");
		printf("\t\tesac ;;\n");
	}
	printf("\thelp) words='");
	for (const struct command *c = commands; c->name; c++)
		if (first_of_name(c))
			printf("%s ", c->name);
	printf("' ;;\n\tesac\n"
	       "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
	       "}\n"
	       "complete -o default -F _weft weft\n");
}

static void zsh(void)
{
	printf("#compdef weft\n"
	       "local -a commands options words_of\n"
	       "commands=(\n");
	for (const struct command *c = commands; c->name; c++)
		if (first_of_name(c)) {
			printf("\t%s:", c->name);
			put_quoted(c->what, "");
			putchar('\n');
		}
	printf(")\n"
	       "if (( CURRENT == 2 )); then\n\t_describe command commands\n\treturn\nfi\n"
	       "case $words[2] in\n");
	for (const struct command *c = commands; c->name; c++) {
		if (!first_of_name(c))
			continue;
		printf("%s)\n\twords_of=(", c->name);
		put_words(c);
		printf(")\n\toptions=(\n");
		for (int i = 0; i < n_options; i++) {
			const struct option *op = &option_table[i];

			if (!option_follows(op, c))
				continue;
			printf("\t\t--%s'[", op->name);
			for (const char *p = op->help; *p && *p != ';' && *p != ':'; p++)
				if (!strchr("'[]\\", *p))
					putchar(*p);
			printf("]");
			if (is_choice(op)) {
				printf(":value:(");
				put_choices(op->arg);
				printf(")");
			} else if (op->arg && op->kind != K_HELP) {
				printf(":value:%s", op->kind == K_TEXT ? "_files" : "");
			}
			printf("'\n");
		}
		printf("\t) ;;\n");
	}
	printf("help)\n\toptions=()\n\twords_of=(");
	for (const struct command *c = commands; c->name; c++)
		if (first_of_name(c))
			printf("%s ", c->name);
	printf(") ;;\n*) options=() ;;\nesac\n"
	       "shift words\n(( CURRENT-- ))\n"
	       "if (( $#words_of )); then\n\t_arguments $options \"1:word:($words_of)\" '*:model:_files'\n"
	       "else\n\t_arguments $options '*:model:_alternative \"models:model:($(%s))\" \"files:file:_files\"'\nfi\n",
	       models);
}

static void fish(void)
{
	for (const struct command *c = commands; c->name; c++)
		if (first_of_name(c))
			printf("complete -c weft -n '__fish_seen_subcommand_from help' -f -a %s\n", c->name);
	for (const struct command *c = commands; c->name; c++) {
		if (!first_of_name(c))
			continue;
		printf("complete -c weft -n __fish_use_subcommand -a %s -d ", c->name);
		put_quoted(c->what, "");
		putchar('\n');
		if (has_words(c)) {
			printf("complete -c weft -n '__fish_seen_subcommand_from %s' -f -a '", c->name);
			put_words(c);
			printf("'\n");
		}
		if (takes_model(c))
			printf("complete -c weft -n '__fish_seen_subcommand_from %s' -a '(%s)'\n", c->name, models);
		for (int i = 0; i < n_options; i++) {
			const struct option *op = &option_table[i];

			if (!option_follows(op, c))
				continue;
			printf("complete -c weft -n '__fish_seen_subcommand_from %s' -l %s", c->name, op->name);
			if (is_choice(op)) {
				printf(" -x -a '");
				put_choices(op->arg);
				printf("'");
			} else if (op->arg && op->kind != K_HELP) {
				printf(" -r");
			}
			printf(" -d ");
			put_quoted(op->help, ";");
			putchar('\n');
		}
	}
}

int cmd_completion(const struct options *o)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} shell[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };

	for (size_t i = 0; o->load.model && i < sizeof shell / sizeof *shell; i++)
		if (!strcmp(o->load.model, shell[i].name)) {
			shell[i].print();
			return 0;
		}
	if (o->load.model)
		fprintf(stderr, "weft completion: '%s' is not bash, zsh or fish\n", o->load.model);
	else
		fprintf(stderr, "weft completion: which shell? bash, zsh or fish\n");
	return EXIT_USAGE;
}
