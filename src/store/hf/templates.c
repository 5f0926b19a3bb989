/* templates.c - the chat templates that a model has, by name. */
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

enum { TEMPLATES_MAX = 64 }; /* the most known are three */

static struct store_template *find(const struct store_templates *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (!strcmp(t->v[i].name, name))
			return &t->v[i];
	return NULL;
}

/* Takes text over; it replaces one of the same name. */
static int add(struct store_templates *t, const char *name, char *text, const char *place, struct err *err)
{
	struct store_template *old = find(t, name);

	if (old) {
		free(old->text);
		old->text = text;
		return 0;
	}
	if (t->n == TEMPLATES_MAX) {
		free(text);
		return err_set(err, E_LIMIT, "%s: more than %d chat templates", place, TEMPLATES_MAX);
	}
	if (!t->v)
		t->v = xcalloc(TEMPLATES_MAX, sizeof *t->v);
	t->v[t->n++] = (struct store_template){ xstrndup(name, strlen(name)), text };
	return 0;
}

/* ---- files ---- */

/* The document's text into out, which is set up; *there: there is one. */
static int read_text(const struct store *st, const char *name, struct buf *out, bool *there, struct err *err)
{
	struct err own = { 0 };
	int code = store_document(st, name, out, &own);

	*there = !code;
	return code && code != E_MISSING ? err_set(err, code, "%s", own.msg) : 0;
}

static int read_file(const struct store *st, const char *name, const char *called, struct store_templates *t,
                     struct err *err)
{
	struct buf text;
	bool there;
	int code;

	buf_init(&text);
	code = read_text(st, name, &text, &there, err);
	if (there)
		code = add(t, called, buf_take(&text), store_place(st, name), err);
	buf_fini(&text);
	return code;
}

static int read_files(const struct store *st, struct store_templates *t, struct err *err)
{
	static const char folder[] = "additional_chat_templates", ending[] = ".jinja";
	const char *const *name = NULL;
	int code = read_file(st, "chat_template.jinja", "default", t, err);

	if (!code)
		code = store_list(st, folder, &name, err);
	for (; !code && *name; name++) {
		const char *base = *name + sizeof folder;
		size_t n = strlen(base), n_ending = sizeof ending - 1;
		char *called;

		if (n <= n_ending || strcmp(base + n - n_ending, ending))
			continue;
		called = xstrndup(base, n - n_ending);
		code = read_file(st, *name, called, t, err);
		free(called);
	}
	return code;
}

/* ---- a member of JSON ---- */

/* Adds the template of a string, which is the default one, or all templates of a list of {name, template}. */
static int read_member(const struct json *j, struct store_templates *t, const char *place, struct err *err)
{
	bool list = json_kind(j) == JSON_ARRAY;
	int code = 0;

	for (size_t i = 0; i < (list ? json_len(j) : 1) && !code; i++) {
		const char *name = list ? json_str(json_get(json_at(j, i), "name"), NULL) : "default", *text;
		size_t n;

		text = json_str(list ? json_get(json_at(j, i), "template") : j, &n);
		if (text)
			code = add(t, name ? name : "", xstrndup(text, n), place, err);
	}
	return code;
}

/* Puts the default one first. */
static void put_first(struct store_templates *t)
{
	struct store_template *d = find(t, "default"), first;

	if (!d)
		return;
	first = t->v[0];
	t->v[0] = *d;
	*d = first;
}

/* Adds templates of the member chat_template: all of them if t is empty, or else the default one if t lacks it. */
static int read_rest(const struct json *object, struct store_templates *t, const char *place, struct err *err)
{
	struct store_templates more = { 0 };
	int code = read_member(json_get(object, "chat_template"), &more, place, err);

	put_first(&more);
	if (!code && !t->n) {
		*t = more;
		return 0;
	}
	if (!code && more.n && !find(t, "default")) {
		code = add(t, "default", more.v[0].text, place, err);
		more.v[0].text = NULL;
	}
	store_templates_end(&more);
	return code;
}

/* ---- all of it ---- */

static int read_json(const struct store *st, struct store_templates *t, struct err *err)
{
	static const char name[] = "chat_template.json";
	const char *place = store_place(st, name);
	struct json *j = NULL;
	struct err own = { 0 };
	struct buf text;
	bool there;
	int code;

	buf_init(&text);
	code = read_text(st, name, &text, &there, err);
	if (there && (j = json_parse_python(text.p, text.n, 0, &own)))
		code = read_rest(j, t, place, err);
	else if (there)
		code = err_set(err, own.code, "%s: %s", place, own.msg);
	buf_fini(&text);
	json_free(j);
	return code;
}

int store_templates_read(const struct store *st, struct store_templates *out, struct err *err)
{
	int code;

	*out = (struct store_templates){ 0 };
	code = read_files(st, out, err);
	if (!code)
		code = read_rest(st->tokenizer_config, out, store_place(st, "tokenizer_config.json"), err);
	if (!code && !find(out, "default"))
		code = read_json(st, out, err);
	put_first(out);
	return code;
}

void store_templates_end(struct store_templates *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->v[i].name);
		free(t->v[i].text);
	}
	free(t->v);
	*t = (struct store_templates){ 0 };
}

const char *store_templates_find(const struct store_templates *t, const char *name)
{
	const struct store_template *found = find(t, name);

	return found ? found->text : NULL;
}
