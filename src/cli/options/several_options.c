/* several_options.c - `weft serve` with several models: a copy of the options for each, from words, the [model] sections of the
 * file of options, and a folder of models. */
#include "cli/options/several_options.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cli/options/option_table.h"

enum { MODELS_MAX = 1000 };

/* ---- one model ---- */

/* A copy of the options, without what is one model's alone. */
static struct options *add_model(struct options *o, const char *model)
{
	struct options *m;

	o->several.model = xrealloc(o->several.model,
	                            size_mul((size_t)o->several.n_model + 1, sizeof *o->several.model));
	m = &o->several.model[o->several.n_model++];
	*m = *o;
	m->several.model = NULL;
	m->several.n_model = 0;
	m->said.owned = NULL;
	m->said.n_owned = 0;
	m->said.source = o->said.source + 1; /* a list of the section replaces that of the server */
	m->alias = m->load.lora = m->load.draft.model = (struct texts){ 0 };
	m->load.mmproj = NULL;
	m->load.memory_bytes = 0;
	m->load.model = model;
	m->its.section = NULL;
	return m;
}

/* Sets what a line of a section says that is not an option of the command.  False: the line has another name. */
static bool own_line(struct options *m, const char *name, const char *value, struct err *err)
{
	char *end;
	long v;

	err->code = 0;
	if (!strcmp(name, "pinned")) {
		m->its.pinned = !*value || !strcmp(value, "true") || !strcmp(value, "on") || !strcmp(value, "yes");
		if (!m->its.pinned && strcmp(value, "false") && strcmp(value, "off") && strcmp(value, "no"))
			err_set(err, E_ARG, "pinned: '%s' is neither true nor false", value);
		return true;
	}
	if (strcmp(name, "unload-after"))
		return false;
	v = strtol(value, &end, 10);
	if (!*value || *end || v < 0 || v > 1000000000)
		err_set(err, E_ARG, "unload-after: '%s' is not a whole number of seconds from 0 to 1000000000", value);
	m->its.unload_after = (int)v;
	return true;
}

/* Whether an option may be in a section. */
static bool is_of_model(const char *name)
{
	for (int i = 0; i < n_options; i++) {
		const struct option *op = &option_table[i];

		if (!(op->commands & CMD_SERVE) ||
		    (!option_named(name, strlen(name), op->name) && !option_named(name, strlen(name), op->also)))
			continue;
		return op->group == option_groups[OPTION_ANSWERS] || op->group == option_groups[OPTION_MODEL] ||
		       !strcmp(op->name, "alias") || !strcmp(op->name, "tune");
	}
	return true; /* unknown: options_line says so */
}

/* One line, which is cut at its end; changes it, and appends what it says to `said`. */
static int section_line(const struct command *c, struct options *m, char *line, struct buf *said, struct err *err)
{
	char *name, *value;

	if (options_split_line(line, &name, &value, err))
		return err->code;
	if (!name)
		return 0;
	buf_printf(said, "%s=%s\n", name, value);
	if (own_line(m, name, value, err))
		return err->code;
	if (!is_of_model(name))
		return err_set(err, E_ARG, "%s is an option of the server, and belongs above the first [model]", name);
	return options_set_line(c, m, name, value, err);
}

static bool is_header(const char *line)
{
	size_t n = strlen(line);

	while (n && strchr(" \t\r", line[n - 1]))
		n--;
	line += strspn(line, " \t");
	return n >= 7 && !strncmp(line, "[model]", 7) && !line[7 + strspn(line + 7, " \t\r")];
}

/* The end of the section of m, where there is one. */
static int end_section(struct options *o, struct options *m, struct buf *said, struct err *err)
{
	if (!m)
		return 0;
	m->its.section = options_own(o, buf_take(said));
	return m->load.model ? 0 : err_set(err, E_ARG, "the [model] above has no line \"model = NAME\"");
}

static int sections(const struct command *c, struct options *o, struct err *err)
{
	struct options *m = NULL;
	char *text = o->several.sections, *next;
	int rc = 0, line = o->several.line;
	struct buf said;

	buf_init(&said);
	for (; text && !rc; text = next, line++) {
		next = options_next_line(text);
		if (is_header(text)) {
			if (!(rc = end_section(o, m, &said, err)) && o->several.n_model >= MODELS_MAX)
				rc = err_set(err, E_LIMIT, "more than %d models", MODELS_MAX);
			if (!rc)
				m = add_model(o, NULL);
		} else if (options_at_section(text)) {
			rc = err_set(err, E_ARG, "'%.40s': the only sections are [model]", text);
		} else {
			rc = section_line(c, m, text, &said, err);
		}
		if (rc)
			err_prefix(err, "%s:%d", o->several.file, line);
	}
	if (!rc && (rc = end_section(o, m, &said, err)))
		err_prefix(err, "%s:%d", o->several.file, line);
	buf_fini(&said);
	return rc;
}

/* ---- a folder ---- */

/* A model is a folder with a config.json, or a GGUF file that is neither a tower nor the second part of one or more. */
static bool is_model(const char *dir, const char *name)
{
	size_t n = strlen(name);
	const char *part;
	bool is;
	struct buf b;

	if (*name == '.')
		return false;
	if (n > 5 && !strcmp(name + n - 5, ".gguf")) {
		part = strstr(name, "-of-");
		return !strstr(name, "mmproj") && (!part || part - name < 6 || !strncmp(part - 6, "-00001", 6));
	}
	buf_init(&b);
	buf_printf(&b, "%s/%s/config.json", dir, name);
	is = file_exists(b.p);
	buf_fini(&b);
	return is;
}

static int folder(struct options *o, struct err *err)
{
	struct dirent **v;
	int n, rc = 0;

	if (!o->several.dir)
		return 0;
	n = scandir(o->several.dir, &v, NULL, alphasort);
	if (n < 0)
		return err_set(err, E_IO, "--models-dir %s: it cannot be read", o->several.dir);
	for (int i = 0; i < n; i++) {
		if (!rc && is_model(o->several.dir, v[i]->d_name)) {
			struct buf path;

			buf_init(&path);
			buf_printf(&path, "%s/%s", o->several.dir, v[i]->d_name);
			if (o->several.n_model >= MODELS_MAX)
				rc = err_set(err, E_LIMIT, "--models-dir %s: more than %d models", o->several.dir,
				             MODELS_MAX);
			else
				add_model(o, options_own(o, buf_take(&path)))->its.found = true;
			buf_fini(&path);
		}
		free(v[i]);
	}
	free(v);
	if (!rc && !o->several.n_model)
		rc = err_set(err, E_MISSING,
		             "--models-dir %s: no model is in it (a folder with config.json, or a file .gguf)",
		             o->several.dir);
	return rc;
}

/* ---- all ---- */

static int all_models(const struct command *c, struct options *o, struct err *err)
{
	const char *first = o->load.model, *const *word = o->said.word;
	int rc = 0, n = o->said.n_word;

	if (first)
		add_model(o, first);
	for (int i = first ? 1 : 0; i < n; i++)
		add_model(o, word[i]);
	if ((rc = sections(c, o, err)) || (rc = folder(o, err)))
		return rc;
	if (o->alias.n)
		return err_set(err, E_ARG, "--alias names one model; with several, give it in a [model] section");
	if (o->load.mmproj || o->load.lora.n || o->load.draft.model.n)
		return err_set(err, E_ARG, "%s is for one model; with several, give it in a [model] section",
		               o->load.mmproj ? "--mmproj" :
		               o->load.lora.n ? "--lora" :
		                                "--draft-model");
	for (int i = 0; i < o->several.n_model && !rc; i++)
		rc = options_finish(&o->several.model[i], err);
	return rc;
}

int options_several(const struct command *c, struct options *o, struct err *err)
{
	return options_are_several(o) ? all_models(c, o, err) : 0;
}

int options_again(const struct options *o, struct options *out, struct err *err)
{
	const struct command *c = commands;
	char *text;
	int rc = 0;

	while (c->bit != CMD_SERVE)
		c++;
	*out = *o;
	out->several.model = NULL;
	out->several.n_model = 0;
	out->said.owned = NULL;
	out->said.n_owned = 0;
	out->several.sections = NULL;
	if (o->several.file) {
		rc = options_read_file(out, o->several.file, &text, err);
		for (int line = 1; !rc && text && !out->several.sections; line++) {
			if (options_at_section(text)) {
				out->several.sections = text;
				out->several.line = line;
			} else {
				text = options_next_line(text);
			}
		}
	}
	if (!rc)
		rc = all_models(c, out, err);
	return rc || out->several.n_model ? rc : err_set(err, E_MISSING, "%s: no [model] is in it", o->several.file);
}
