/* kept.c - hub_list and hub_remove (hub.h): what the cache has, and taking it away. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "hub/hub_cache.h"
#include "hub/hub.h"
#include "hub/names.h"

struct names {
	char **v;
	int n;
};

static void names_add(struct names *l, const char *s)
{
	l->v = xrealloc(l->v, size_mul((size_t)l->n + 1, sizeof *l->v));
	l->v[l->n++] = xstrdup(s);
}

static void names_free(struct names *l)
{
	while (l->n)
		free(l->v[--l->n]);
	free(l->v);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The entries of a folder but those that begin with a dot, sorted. */
static int read_folder(const char *path, struct names *out)
{
	DIR *d = opendir(path);
	struct dirent *e;

	*out = (struct names){ 0 };
	if (!d)
		return -1;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			names_add(out, e->d_name);
	closedir(d);
	if (out->n)
		qsort(out->v, (size_t)out->n, sizeof *out->v, by_name);
	return 0;
}

/* "Qwen/Qwen3.5-4B" of "models--Qwen--Qwen3.5-4B"; false: no model's folder. */
static bool name_of(const char *folder, struct buf *out)
{
	const char *p = folder + 8, *dashes;

	if (strncmp(folder, "models--", 8) != 0)
		return false;
	dashes = strstr(p, "--");
	buf_reset(out);
	buf_put(out, p, dashes ? (size_t)(dashes - p) : strlen(p));
	if (dashes)
		buf_printf(out, "/%s", dashes + 2);
	return hub_is_name(out->p);
}

/* ---- a model ---- */

struct look {
	struct hub_model m;
	struct buf formats;
	bool safetensors, gguf, dangling;
};

static bool is_gguf(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && !strcasecmp(name + n - 5, ".gguf");
}

/* The type that a GGUF file's name ends with.  Other programs may have named the file: each character other than a letter, a
 * digit, '_' and '.' becomes '?'. */
static void add_type(struct look *l, const char *name)
{
	size_t n = strlen(name);
	char text[256];
	char *p;
	int part, count;

	if (hub_split_of(name, &part, &count)) {
		n -= HUB_SPLIT_TAIL - 5;
		if (part > 1)
			return;
	}
	snprintf(text, sizeof text, "%.*s", (int)(n - 5), name);
	if (strcasestr(text, "mmproj"))
		return;
	p = strrchr(text, '-');
	p = p ? p + 1 : strrchr(text, '.') ? strrchr(text, '.') + 1 : text;
	for (char *c = p; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_' && *c != '.')
			*c = '?';
	buf_printf(&l->formats, "%s%s", l->gguf ? ", " : l->safetensors ? ", GGUF " : "GGUF ", p);
	l->gguf = true;
}

static void look_below(struct look *l, const char *dir, int depth)
{
	struct names files;
	struct buf path;
	struct stat st;

	if (depth > 3 || read_folder(dir, &files))
		return;
	buf_init(&path);
	for (int i = 0; i < files.n; i++) {
		size_t n = strlen(files.v[i]);

		buf_reset(&path);
		buf_printf(&path, "%s/%s", dir, files.v[i]);
		if (stat(path.p, &st)) {
			l->dangling = true;
		} else if (S_ISDIR(st.st_mode)) {
			look_below(l, path.p, depth + 1);
			continue;
		}
		l->m.files++;
		if (n > 12 && !strcmp(files.v[i] + n - 12, ".safetensors") && !l->safetensors) {
			buf_printf(&l->formats, "%ssafetensors", l->formats.n ? ", " : "");
			l->safetensors = true;
		} else if (is_gguf(files.v[i])) {
			add_type(l, files.v[i]);
		}
	}
	names_free(&files);
	buf_fini(&path);
}

/* Bytes on disk below a folder; links are not followed. */
static uint64_t bytes_below(const char *dir, int depth, bool *partial)
{
	struct names files;
	struct buf path;
	struct stat st;
	uint64_t sum = 0;

	if (depth > 8 || read_folder(dir, &files))
		return 0;
	buf_init(&path);
	for (int i = 0; i < files.n; i++) {
		buf_reset(&path);
		buf_printf(&path, "%s/%s", dir, files.v[i]);
		*partial |= strstr(files.v[i], ".incomplete") != NULL;
		if (lstat(path.p, &st))
			continue;
		sum += S_ISDIR(st.st_mode) ? bytes_below(path.p, depth + 1, partial) : (uint64_t)st.st_blocks * 512;
	}
	names_free(&files);
	buf_fini(&path);
	return sum;
}

static void look(struct look *l, const char *folder)
{
	char commit[HUB_COMMIT + 1];
	struct buf dir;
	struct stat st;
	bool partial = false;

	buf_init(&dir);
	l->m.bytes = bytes_below(folder, 0, &partial);
	if (!hub_ref_read(folder, "main", commit)) {
		buf_printf(&dir, "%s/snapshots/%s", folder, commit);
		look_below(l, dir.p, 0);
		if (!stat(dir.p, &st))
			l->m.changed = st.st_mtime;
	}
	l->m.formats = l->formats.p;
	l->m.whole = l->m.files && !partial && !l->dangling;
	buf_fini(&dir);
}

int hub_list(const struct hub_place *place, void (*each)(void *arg, const struct hub_model *m), void *arg,
             struct err *err)
{
	struct names folders;
	struct buf name, path;

	if (read_folder(place->cache, &folders))
		return errno == ENOENT ? 0 : err_set(err, E_IO, "%s: %s", place->cache, strerror(errno));
	buf_init(&name);
	buf_init(&path);
	for (int i = 0; i < folders.n; i++) {
		struct look l = { 0 };

		if (!name_of(folders.v[i], &name))
			continue;
		buf_init(&l.formats);
		buf_reset(&path);
		buf_printf(&path, "%s/%s", place->cache, folders.v[i]);
		l.m.name = name.p;
		look(&l, path.p);
		each(arg, &l.m);
		buf_fini(&l.formats);
	}
	names_free(&folders);
	buf_fini(&name);
	buf_fini(&path);
	return 0;
}

/* ---- removing ---- */

/* Removes the link at path and, from the model's folder, the blob that it names; a link that leads elsewhere loses itself
 * alone. */
static int remove_file(const char *folder, const char *path, uint64_t *bytes, struct err *err)
{
	char to[4096];
	ssize_t n = readlink(path, to, sizeof to - 1);
	struct buf blob;
	struct stat st;

	if (!stat(path, &st))
		*bytes += (uint64_t)st.st_blocks * 512;
	if (n > 0) {
		const char *digest;

		to[n] = 0;
		digest = strrchr(to, '/') ? strrchr(to, '/') + 1 : to;
		buf_init(&blob);
		buf_printf(&blob, "%s/blobs/%s", folder, digest);
		if (hub_is_digest(digest))
			unlink(blob.p);
		buf_fini(&blob);
	}
	return unlink(path) ? err_set(err, E_IO, "%s: cannot be removed: %s", path, strerror(errno)) : 0;
}

/* Removes the GGUF files of a type below dir, in the model's folder. */
static int remove_type(const char *folder, const char *dir, const char *type, int depth, int *hits, uint64_t *bytes,
                       struct err *err)
{
	struct names files;
	struct buf path;
	int code = 0;

	if (depth > 3 || read_folder(dir, &files))
		return 0;
	buf_init(&path);
	for (int i = 0; i < files.n && !code; i++) {
		buf_reset(&path);
		buf_printf(&path, "%s/%s", dir, files.v[i]);
		if (is_gguf(files.v[i]) && hub_has_type(files.v[i], type)) {
			code = remove_file(folder, path.p, bytes, err);
			(*hits)++;
		} else if (dir_exists(path.p)) {
			code = remove_type(folder, path.p, type, depth + 1, hits, bytes, err);
		}
	}
	names_free(&files);
	buf_fini(&path);
	return code;
}

int hub_remove(const struct hub_place *place, const struct hub_wish *wish, uint64_t *bytes, struct err *err)
{
	struct buf folder, snapshots;
	bool partial;
	int hits = 0, code = 0;

	*bytes = 0;
	buf_init(&folder);
	buf_init(&snapshots);
	buf_printf(&folder, "%s/", place->cache);
	hub_put_folder(&folder, wish->name);
	buf_printf(&snapshots, "%s/snapshots", folder.p);
	if (!dir_exists(folder.p)) {
		code = err_set(err, E_MISSING, "%s: not in the cache (%s)", wish->name, place->cache);
	} else if (!wish->type) {
		*bytes = bytes_below(folder.p, 0, &partial);
		code = dir_remove(folder.p, err);
	} else {
		code = remove_type(folder.p, snapshots.p, wish->type, -1, &hits, bytes, err);
		if (!code && !hits)
			code = err_set(err, E_MISSING, "%s: no GGUF file of type %s in the cache", wish->name,
			               wish->type);
	}
	buf_fini(&folder);
	buf_fini(&snapshots);
	return code;
}
