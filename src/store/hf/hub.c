/* hub.c - from the MODEL a person writes to a folder or file on disk.
 *
 * The cache layout is the hub library's: models--ORG--NAME/refs/main holds a
 * commit, snapshots/COMMIT/ the files (links into blobs/). */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "hub/hub_cache.h"
#include "hub/hub.h"
#include "hub/names.h"
#include "store/pick.h"
#include "store/store.h"

/* The snapshot of a model that the cache has. */
static int locate_in_cache(const struct hub_wish *wish, const char *model, struct buf *out, struct err *err)
{
	struct hub_place place;
	char commit[HUB_COMMIT + 1];
	struct buf repo;
	int code = 0, found;

	hub_place_get(&place);
	buf_init(&repo);
	buf_printf(&repo, "%s/", place.cache);
	hub_put_folder(&repo, wish->name);
	found = hub_ref_read(repo.p, wish->revision, commit);
	if (!dir_exists(repo.p)) {
		code = err_set(err, E_MISSING,
		               "%s: no such folder, and no %s in the Hugging Face cache; fetch it with `weft pull %s`, "
		               "or give a folder or file",
		               model, repo.p, model);
	} else if (found == E_FORMAT) {
		code = err_set(err, E_FORMAT, "%s: found in the Hugging Face cache, but %s/refs/%s: not a commit",
		               model, repo.p, wish->revision);
	} else if (found) {
		code = err_set(
			err, E_MISSING,
			"%s: found in the Hugging Face cache, but %s/refs/%s names no commit: what fetched it was "
			"interrupted; `weft pull %s` goes on",
			model, repo.p, wish->revision, model);
	} else {
		buf_printf(out, "%s/snapshots/%s", repo.p, commit);
		if (!dir_exists(out->p))
			code = err_set(err, E_MISSING, "%s: %s/refs/%s names %s, but there is no %s", model, repo.p,
			               wish->revision, commit, out->p);
	}
	buf_fini(&repo);
	hub_place_free(&place);
	return code;
}

int store_locate(const char *model, struct buf *out, struct err *err)
{
	const char *colon = strrchr(model, ':'), *type = NULL;
	struct hub_wish wish = { 0 };
	char *folder;
	int code = 0;

	buf_reset(out);
	if (file_exists(model)) {
		buf_puts(out, model);
		return 0;
	}
	if (!dir_exists(model) && colon && colon > model && colon[1] && !strchr(colon, '/'))
		type = colon + 1;
	folder = xstrndup(model, type ? (size_t)(colon - model) : strlen(model));
	if (dir_exists(folder)) {
		buf_puts(out, folder);
		while (out->n > 1 && out->p[out->n - 1] == '/')
			out->p[--out->n] = 0;
	} else if (hub_wish_parse(&wish, model, NULL)) {
		code = err_set(err, E_MISSING, "%s: no such file or folder", folder);
	} else {
		code = locate_in_cache(&wish, folder, out, err);
	}
	free(folder);
	hub_wish_free(&wish);
	return code ? code : pick_file(out, type, err);
}
