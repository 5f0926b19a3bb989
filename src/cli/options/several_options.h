/* several_options.h - the options of each of several models.  Inside src/cli/. */
#ifndef CLI_SEVERAL_OPTIONS_H
#define CLI_SEVERAL_OPTIONS_H

#include "cli/cli.h"

/* Called for serve after options_parse.  Fills o->model[o->n_model] from the words and sections that it kept, and --models-dir.  One
 * word alone, which is o->load.model, leaves it empty. */
int options_several(const struct command *c, struct options *o, struct err *err);

/* Makes *out a copy of o in which the models are those that the [model] sections of the file and --models-dir name now.  Lines above
 * the first section stay as they were.  For options of which options_are_several; o outlives *out.  options_fini is due in any case. */
int options_again(const struct options *o, struct options *out, struct err *err);

/* Whether serve is asked for several models.  For options that are parsed. */
static inline bool options_are_several(const struct options *o)
{
	return o->said.n_word > 1 || o->several.sections || o->several.dir;
}

/* ---- of options.c ---- */

/* Reads a file of options; *text is kept until options_fini. */
int options_read_file(struct options *o, const char *path, char **text, struct err *err);
/* Cuts the line at its end and returns the next one; NULL: it is the last. */
char *options_next_line(char *line);
/* Whether the line is the head of a section. */
bool options_at_section(const char *line);
/* Divides a line "name = value" of a file, which is cut at its end, and changes it.  *name NULL: it is empty or a comment. */
int options_split_line(char *line, char **name, char **value, struct err *err);
/* Sets what such a line says. */
int options_set_line(const struct command *c, struct options *o, char *name, char *value, struct err *err);
/* Keeps p, from malloc, until options_fini. */
char *options_own(struct options *o, char *p);
/* What follows from several options together. */
int options_finish(struct options *o, struct err *err);

#endif
