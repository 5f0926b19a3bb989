/* hub.c - from the MODEL a person writes to a folder or file on disk.
 *
 * The cache layout is the hub library's: models--ORG--NAME/refs/main holds a
 * commit, snapshots/COMMIT/ the files (links into blobs/). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "store/pick.h"
#include "store/store.h"

/* Letters, digits and "-_." with at most one '/', as the hub allows; nothing
 * that could lead out of the cache folder. */
static int is_hub_name(const char *s)
{
	int slashes = 0;

	if (!isalnum((unsigned char)*s))
		return 0;
	for (; *s; s++) {
		if (*s == '/') {
			if (++slashes > 1 || !isalnum((unsigned char)s[1]))
				return 0;
		} else if (!isalnum((unsigned char)*s) && !strchr("-_.", *s)) {
			return 0;
		}
		if (s[0] == '.' && s[1] == '.')
			return 0;
	}
	return 1;
}

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static void cache_folder(struct buf *out)
{
	if (env("HF_HUB_CACHE"))
		buf_puts(out, env("HF_HUB_CACHE"));
	else if (env("HUGGINGFACE_HUB_CACHE")) /* its older name */
		buf_puts(out, env("HUGGINGFACE_HUB_CACHE"));
	else if (env("HF_HOME"))
		buf_printf(out, "%s/hub", env("HF_HOME"));
	else if (env("XDG_CACHE_HOME"))
		buf_printf(out, "%s/huggingface/hub", env("XDG_CACHE_HOME"));
	else
		buf_printf(out, "%s/.cache/huggingface/hub", env("HOME") ? env("HOME") : "");
}

/* refs/main of the repository at repo: the commit, checked to be a plain name. */
static int read_ref(const char *repo, struct buf *commit, struct err *err)
{
	struct buf path;
	int code;

	buf_init(&path);
	buf_printf(&path, "%s/refs/main", repo);
	code = file_refuse_special(path.p, err);
	if (!code)
		code = file_read(path.p, 200, commit, err);
	while (commit->n && isspace((unsigned char)commit->p[commit->n - 1]))
		commit->p[--commit->n] = 0;
	if (!code && (!commit->n || commit->p[strspn(commit->p, "0123456789abcdefABCDEF")]))
		code = err_set(err, E_FORMAT, "%s: not a commit", path.p);
	buf_fini(&path);
	return code;
}

static int locate_in_cache(const char *name, struct buf *out, struct err *err)
{
	struct buf repo, commit;
	int code = 0;

	buf_init(&repo);
	buf_init(&commit);
	cache_folder(&repo);
	buf_puts(&repo, "/models--");
	for (const char *c = name; *c; c++)
		buf_puts(&repo, *c == '/' ? "--" : (char[]){ *c, 0 });
	if (!dir_exists(repo.p)) {
		code = err_set(err, E_MISSING,
		               "%s: no such folder, and no %s in the Hugging Face cache; weft downloads "
		               "nothing: put a checkpoint there (for example: hf download %s) or give its folder",
		               name, repo.p, name);
	} else if ((code = read_ref(repo.p, &commit, err))) {
		err_prefix(err, "%s: found in the Hugging Face cache, but", name);
	} else {
		buf_printf(out, "%s/snapshots/%s", repo.p, commit.p);
		if (!dir_exists(out->p))
			code = err_set(err, E_MISSING, "%s: %s/refs/main names %s, but there is no %s", name, repo.p,
			               commit.p, out->p);
	}
	buf_fini(&repo);
	buf_fini(&commit);
	return code;
}

/* The folder of model, which is one or a name of the cache. */
static int locate_folder(const char *model, struct buf *out, struct err *err)
{
	if (dir_exists(model)) {
		buf_puts(out, model);
		while (out->n > 1 && out->p[out->n - 1] == '/')
			out->p[--out->n] = 0;
		return 0;
	}
	if (is_hub_name(model))
		return locate_in_cache(model, out, err);
	return err_set(err, E_MISSING, "%s: no such folder", model);
}

int store_locate(const char *model, struct buf *out, struct err *err)
{
	const char *colon = strrchr(model, ':'), *type = NULL;
	char *name;
	int code;

	buf_reset(out);
	if (file_exists(model)) {
		buf_puts(out, model);
		return 0;
	}
	if (!dir_exists(model) && colon && colon > model && colon[1] && !strchr(colon, '/'))
		type = colon + 1;
	name = xstrndup(model, type ? (size_t)(colon - model) : strlen(model));
	code = locate_folder(name, out, err);
	free(name);
	return code ? code : pick_file(out, type, err);
}
