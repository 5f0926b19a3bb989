/* option_table.h - every option of every command: what parsing, help, the manual page
 * and completions are made from.  Inside src/cli/. */
#ifndef CLI_OPTION_TABLE_H
#define CLI_OPTION_TABLE_H

#include "cli/cli.h"

/* Flags in option.commands. */
enum {
	CMD_COMMON = 1 << 16, /* one of the dozen that `--help` shows; `--help all` shows the rest too */
	CMD_TUNE = 1 << 17    /* also --tune NAME=VALUE, and only that in serve and run; `--help tune` shows these */
};

enum kind {
	K_FLAG, /* bool; no value on the command line */
	K_HELP, /* a value "all" or "tune" may follow */
	K_TUNE, /* NAME=VALUE of an option with CMD_TUNE; never stored itself */
	K_INT,
	K_INT64,
	K_SIZE,
	K_DOUBLE,
	K_TEXT,
	K_INTS,
	K_TEXTS, /* each time that it is given adds one */
	K_CPU,
	K_ARITH,
	K_THINK,
	K_DRAFT,
	K_LOG,
	K_LOG_FORMAT,
	K_REPLAY,
	K_AGAINST,
	K_TABLES
};

struct option {
	unsigned commands;
	const char *name;   /* without the dashes */
	const char *letter; /* short form, without its dash; NULL: none */
	const char *also;   /* other long names, separated by spaces; read, not shown */
	enum kind kind;
	size_t at, set_at; /* fields of struct options; set_at 0: no flag says that it was given */
	double min, max;   /* K_INT, K_INT64, K_DOUBLE */
	const char *arg;   /* its value in the help; NULL: takes none */
	const char *deflt; /* as a person would write it; NULL: zero, and the help says what that means */
	const char *group; /* one of option_groups */
	const char *help;
};

extern const struct option option_table[];
extern const int n_options;
enum { OPTION_MAX = 256 };                     /* n_options is below */
extern const char *const option_groups[];      /* in the order of the help; NULL-ended */
enum { OPTION_ANSWERS = 1, OPTION_MODEL = 3 }; /* option_groups: what an answer is like; how a model is opened */
/* Whether a command with these bits takes the option by --tune. */
static inline bool option_is_tuning(const struct option *op, unsigned command)
{
	return (op->commands & CMD_TUNE) && (op->commands & command);
}
/* Whether a command with these bits has the option under its own name. */
static inline bool option_is_of(const struct option *op, unsigned command)
{
	return (op->commands & command) && !((op->commands & CMD_TUNE) && (command & (CMD_SERVE | CMD_RUN)));
}
/* Whether word[0..n) is one of the names in list, which blanks separate; list may be NULL. */
bool option_named(const char *word, size_t n, const char *list);
/* E_ARG when an option of given[n_options] cannot have an effect with the others in o. */
int options_refuse_idle(const struct command *c, const struct options *o, const bool *given, struct err *err);

#endif
