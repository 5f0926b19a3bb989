/* pick.c - see pick.h. */
#include "store/pick.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/file.h"

enum { FILES_MAX = 1024, SHOWN_MAX = 300 };

struct files {
	char **v; /* below the folder, which may be one folder down */
	int n;
	bool safetensors;
};

static bool ends(const char *s, const char *tail)
{
	size_t n = strlen(s), m = strlen(tail);

	return n >= m && !strcasecmp(s + n - m, tail);
}

bool pick_is_projector(const char *name)
{
	return ends(name, ".gguf") && strcasestr(name, "mmproj");
}

/* A later part of a split file. */
static bool later_part(const char *name)
{
	size_t n = strlen(name);
	int part, count, end = 0;

	return n > 20 && sscanf(name + n - 20, "-%5d-of-%5d.gguf%n", &part, &count, &end) == 2 && end == 20 && part > 1;
}

static void list(struct files *f, const char *dir, const char *sub)
{
	struct buf path;
	struct dirent *e;
	DIR *d;

	buf_init(&path);
	buf_printf(&path, "%s%s%s", dir, sub ? "/" : "", sub ? sub : "");
	d = opendir(path.p);
	while (d && (e = readdir(d)) && f->n < FILES_MAX) {
		f->safetensors |= !sub && ends(e->d_name, ".safetensors");
		buf_reset(&path);
		buf_printf(&path, "%s%s%s", sub ? sub : "", sub ? "/" : "", e->d_name);
		if (ends(e->d_name, ".gguf") && !later_part(e->d_name) && !pick_is_projector(e->d_name))
			f->v[f->n++] = xstrdup(path.p);
		if (sub || e->d_name[0] == '.')
			continue;
		buf_reset(&path);
		buf_printf(&path, "%s/%s", dir, e->d_name);
		if (dir_exists(path.p))
			list(f, dir, e->d_name);
	}
	if (d)
		closedir(d);
	buf_fini(&path);
}

/* type stands in name as a word of its own: "Q4_K" not in "x-Q4_K_M.gguf". */
static bool of_type(const char *name, const char *type)
{
	size_t n = strlen(type);

	for (const char *p = name; *p; p++) {
		if (strncasecmp(p, type, n) || (p > name && (isalnum((unsigned char)p[-1]) || p[-1] == '_')))
			continue;
		if (!isalnum((unsigned char)p[n]) && p[n] != '_')
			return true;
	}
	return false;
}

static int by_string(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int refuse(const struct buf *path, const struct files *f, const char *type, int hits, struct err *err)
{
	struct buf there;
	int code;

	buf_init(&there);
	for (int i = 0; i < f->n && there.n < SHOWN_MAX; i++)
		if (!hits || !type || of_type(f->v[i], type))
			buf_printf(&there, "%s%s", there.n ? ", " : "", f->v[i]);
	if (!f->n)
		code = err_set(err, E_MISSING, "%s: no GGUF file in it, %s is wanted", path->p, type);
	else if (hits)
		code = err_set(err, E_ARG, "%s: %d GGUF files; give one of them, or its type behind a colon: %s",
		               path->p, hits, there.p);
	else
		code = err_set(err, E_MISSING, "%s: no GGUF file of type %s; there are: %s", path->p, type, there.p);
	buf_fini(&there);
	return code;
}

int pick_file(struct buf *path, const char *type, struct err *err)
{
	struct files f = { .v = xcalloc(FILES_MAX, sizeof *f.v) };
	const char *hit = NULL;
	int hits = 0, code = 0;

	list(&f, path->p, NULL);
	qsort(f.v, (size_t)f.n, sizeof *f.v, by_string);
	for (int i = 0; i < f.n; i++)
		if (!type || of_type(f.v[i], type)) {
			hit = f.v[i];
			hits++;
		}
	if (type ? hits != 1 : hits > 1 && !f.safetensors)
		code = refuse(path, &f, type, hits, err);
	else if (hits == 1 && (type || !f.safetensors))
		buf_printf(path, "/%s", hit);
	for (int i = 0; i < f.n; i++)
		free(f.v[i]);
	free(f.v);
	return code;
}
