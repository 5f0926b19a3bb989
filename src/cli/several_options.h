/* several_options.h - the options of each of several models.  Inside src/cli/. */
#ifndef CLI_SEVERAL_OPTIONS_H
#define CLI_SEVERAL_OPTIONS_H

#include "cli/cli.h"

/* Called for serve after options_parse.  Fills o->model[o->n_model] from the words and sections that it kept, and --models-dir.  One
 * word alone, which is o->load.model, leaves it empty. */
int options_several(const struct command *c, struct options *o, struct err *err);

/* Whether serve is asked for several models.  For options that are parsed. */
static inline bool options_are_several(const struct options *o)
{
	return o->n_word > 1 || o->sections || o->models_dir;
}

/* ---- of options.c ---- */

/* Divides a line "name = value" of a file, which is cut at its end, and changes it.  False: it is empty or a comment. */
bool options_split_line(char *line, char **name, char **value);
/* Sets what such a line says. */
int options_set_line(const struct command *c, struct options *o, char *name, char *value, struct err *err);
/* Keeps p, from malloc, until options_fini. */
char *options_own(struct options *o, char *p);
/* What follows from several options together. */
int options_finish(struct options *o, struct err *err);

#endif
