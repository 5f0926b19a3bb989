/* completion.c - `weft completion`: scripts for shells, made from the tables of commands and options. */
#include <stdio.h>
#include <string.h>

#include "cli/option_table.h"

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

/* Text between single quotes of sh, with a quote in it left out. */
static void put_quoted(const char *text, const char *stop)
{
	putchar('\'');
	for (size_t n = strcspn(text, stop); n; n--, text++)
		if (!strchr("'[]\\:", *text))
			putchar(*text);
	putchar('\'');
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
			if (option_is_of(&option_table[i], c->bit) && is_choice(&option_table[i])) {
				printf("\t\t--%s) words='", option_table[i].name);
				put_choices(option_table[i].arg);
				printf("' ;;\n");
			}
		printf("\t\t*) words='");
		for (int i = 0; i < n_options; i++)
			if (option_is_of(&option_table[i], c->bit))
				printf("--%s ", option_table[i].name);
		printf("' ;;\n\t\tesac ;;\n");
	}
	printf("\tcompletion) words='bash zsh fish' ;;\n\tesac\n"
	       "\tcase $cur$words in\n\t-* | [a-z]*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n\tesac\n"
	       "}\n"
	       "complete -o default -F _weft weft\n");
}

static void zsh(void)
{
	printf("#compdef weft\n"
	       "local -a commands options\n"
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
		printf("%s)\n\toptions=(\n", c->name);
		for (int i = 0; i < n_options; i++) {
			const struct option *op = &option_table[i];

			if (!option_is_of(op, c->bit))
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
	printf("*) options=() ;;\nesac\n"
	       "shift words\n(( CURRENT-- ))\n"
	       "_arguments $options '*:model:_files'\n");
}

static void fish(void)
{
	for (const struct command *c = commands; c->name; c++) {
		if (!first_of_name(c))
			continue;
		printf("complete -c weft -n __fish_use_subcommand -a %s -d ", c->name);
		put_quoted(c->what, "");
		putchar('\n');
		for (int i = 0; i < n_options; i++) {
			const struct option *op = &option_table[i];

			if (!option_is_of(op, c->bit))
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

	for (size_t i = 0; o->model && i < sizeof shell / sizeof *shell; i++)
		if (!strcmp(o->model, shell[i].name)) {
			shell[i].print();
			return 0;
		}
	if (o->model)
		fprintf(stderr, "weft completion: '%s' is not bash, zsh or fish\n", o->model);
	else
		fprintf(stderr, "weft completion: which shell? bash, zsh or fish\n");
	return EXIT_USAGE;
}
