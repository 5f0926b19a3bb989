/* hub_pull.c - hub_pull (hub.h): a model by its name, from the first request to the last link. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/hub_cache.h"
#include "hub/fetch.h"
#include "hub/hub.h"
#include "hub/names.h"

enum { ANSWER_MAX = 64 << 20, INDEX_MAX = 64 << 20, PAGES_MAX = 1000 };

struct pull {
	const struct hub_place *place;
	const struct hub_wish *wish;
	const struct hub_options *options;
	const struct hub_watch *watch;
	struct hub_http *http;
	struct buf folder; /* models--ORG--NAME */
	char commit[HUB_COMMIT + 1];
	struct hub_tree tree;
	struct hub_choice choice;
	uint64_t fetched;
};

static void say(const struct pull *p, const char *line)
{
	if (p->watch->say)
		p->watch->say(p->watch->arg, line);
}

static void put_api(struct buf *url, const struct pull *p)
{
	buf_printf(url, "%s/api/models/%s", p->place->endpoint, p->wish->name);
}

/* The commit of the revision, from the hub's description of the model. */
static int read_commit(struct pull *p, const struct buf *body, struct err *err)
{
	struct json *root = json_parse(body->p, body->n, 0, err);
	const char *sha;
	bool disabled;
	int code = 0;

	if (!root)
		return err_prefix(err, "%s: the hub's answer (a portal or proxy that wants a login?)", p->wish->name);
	sha = json_str(json_get(root, "sha"), NULL);
	if (!json_to_bool(json_get(root, "disabled"), &disabled) && disabled)
		code = err_set(err, E_UNSUPPORTED, "%s: the hub has disabled access to it", p->wish->name);
	else if (!sha || !hub_is_hex(sha, HUB_COMMIT))
		code = err_set(err, E_FORMAT, "%s: the hub's answer names no commit", p->wish->name);
	else
		snprintf(p->commit, sizeof p->commit, "%s", sha);
	json_free(root);
	return code;
}

static int ask_commit(struct pull *p, struct hub_line *line, struct err *err)
{
	struct hub_head head;
	struct buf url, body, what;
	int code;

	hub_head_init(&head);
	buf_init(&url);
	buf_init(&body);
	buf_init(&what);
	put_api(&url, p);
	buf_puts(&url, "/revision/");
	hub_put_escaped(&url, p->wish->revision, false);
	buf_printf(&what, "%s%s%s", p->wish->name, strcmp(p->wish->revision, "main") ? "@" : "",
	           strcmp(p->wish->revision, "main") ? p->wish->revision : "");
	code = hub_get(line, url.p, what.p, ANSWER_MAX, &head, &body, err);
	code = code ? code : read_commit(p, &body, err);
	hub_head_fini(&head);
	buf_fini(&url);
	buf_fini(&body);
	buf_fini(&what);
	return code;
}

/* The next page's URL, on our endpoint: a mirror passes on the hub's own. */
static int next_page(const struct pull *p, const struct hub_head *head, struct buf *url, bool *more, struct err *err)
{
	static const char hub[] = "https://huggingface.co/";
	struct buf next;
	int code = 0;

	buf_init(&next);
	*more = hub_next(head->link.p, &next);
	buf_reset(url);
	if (!strncmp(next.p, hub, sizeof hub - 1))
		buf_printf(url, "%s/%s", p->place->endpoint, next.p + sizeof hub - 1);
	else
		buf_put(url, next.p, next.n);
	if (*more && !hub_same_origin(url->p, p->place->endpoint))
		code = err_set(err, E_FORMAT, "%s: the list of files goes on at another host: not followed",
		               p->wish->name);
	buf_fini(&next);
	return code;
}

static int ask_tree(struct pull *p, struct hub_line *line, struct err *err)
{
	struct hub_head head;
	struct buf url, body;
	bool more = true;
	int code = 0;

	hub_head_init(&head);
	buf_init(&url);
	buf_init(&body);
	put_api(&url, p);
	buf_printf(&url, "/tree/%s?recursive=true&expand=false", p->commit);
	for (int page = 0; !code && more; page++) {
		if (page == PAGES_MAX) {
			code = err_set(err, E_FORMAT, "%s: the list of files has no end", p->wish->name);
			break;
		}
		code = hub_get(line, url.p, p->wish->name, ANSWER_MAX, &head, &body, err);
		code = code ? code : hub_tree_page(&p->tree, body.p, body.n, err);
		code = code ? code : next_page(p, &head, &url, &more, err);
	}
	hub_head_fini(&head);
	buf_fini(&url);
	buf_fini(&body);
	return code ? code : hub_tree_write(&p->tree, p->folder.p, p->commit, err);
}

/* Names the commit and its files, from the hub or, where it cannot be asked, from what is on disk. */
static int know(struct pull *p, struct hub_line *line, struct err *err)
{
	int code;

	if (p->place->offline) {
		if (hub_ref_read(p->folder.p, p->wish->revision, p->commit) ||
		    hub_tree_read(&p->tree, p->folder.p, p->commit))
			return err_set(err, E_MISSING,
			               "%s: not in the cache, and HF_HUB_OFFLINE says that the hub is not asked",
			               p->wish->name);
		return 0;
	}
	code = ask_commit(p, line, err);
	if (code == E_IO && !hub_ref_read(p->folder.p, p->wish->revision, p->commit) &&
	    !hub_tree_read(&p->tree, p->folder.p, p->commit)) {
		char text[600];

		snprintf(text, sizeof text, "%s; going by what the cache knows", err->msg);
		say(p, text);
		return 0;
	}
	if (code)
		return code;
	return hub_tree_read(&p->tree, p->folder.p, p->commit) ? ask_tree(p, line, err) : 0;
}

static int need_room(const struct pull *p, struct err *err)
{
	uint64_t left = 0, room;
	struct statvfs fs;

	if (statvfs(p->folder.p, &fs))
		return 0;
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	for (int i = 0; i < p->choice.n && left <= room; i++) /* a sum of all might wrap around */
		left += hub_fetch_left(p->folder.p, &p->tree.v[p->choice.v[i]], p->options);
	if (left <= room)
		return 0;
	return err_set(err, E_FULL,
	               "%s: %.1f GB or more are missing and %s has room for %.1f GB; HF_HUB_CACHE names another place",
	               p->wish->name, (double)left * 1e-9, p->place->cache, (double)room * 1e-9);
}

static int by_digest(const void *a, const void *b)
{
	return strcmp((*(const struct hub_entry *const *)a)->digest, (*(const struct hub_entry *const *)b)->digest);
}

/* Sorts entries and leaves one of each digest; how many. */
static int once_each(const struct hub_entry **entry, int n)
{
	int kept = 0;

	qsort(entry, (size_t)n, sizeof *entry, by_digest);
	for (int i = 0; i < n; i++)
		if (!kept || strcmp(entry[kept - 1]->digest, entry[i]->digest) != 0)
			entry[kept++] = entry[i];
	return kept;
}

/* Fetches the chosen files that are neither linked nor there. */
static int fetch(struct pull *p, const int *chosen, int n, struct err *err)
{
	const struct hub_entry **entry = xcalloc((size_t)n + 1, sizeof *entry);
	struct hub_fetch f = { .http = p->http,
		               .place = p->place,
		               .name = p->wish->name,
		               .commit = p->commit,
		               .folder = p->folder.p,
		               .entry = entry,
		               .options = p->options,
		               .watch = p->watch };
	struct buf blobs;
	int code;

	for (int i = 0; i < n; i++)
		if (!hub_linked(p->folder.p, p->commit, &p->tree.v[chosen[i]]))
			entry[f.n++] = &p->tree.v[chosen[i]];
	f.n = once_each(entry, f.n);
	buf_init(&blobs);
	buf_printf(&blobs, "%s/blobs", p->folder.p);
	code = hub_make_folder(blobs.p, err);
	if (!code && f.n && p->place->offline) {
		for (int k = 0; k < f.n && !code; k++)
			if (hub_fetch_left(p->folder.p, entry[k], p->options))
				code = err_set(err, E_MISSING,
				               "%s: %s is not in the cache, and HF_HUB_OFFLINE says that the hub is "
				               "not asked",
				               p->wish->name, entry[k]->path);
	} else if (!code && f.n) {
		code = hub_fetch(&f, &p->fetched, err);
	}
	free(entry);
	buf_fini(&blobs);
	return code;
}

/* Adds the shards that the index names; the index itself is fetched for it. */
static int choose_shards(struct pull *p, struct err *err)
{
	const struct hub_entry *e = &p->tree.v[p->choice.index];
	struct buf path, text;
	int code = e->size > INDEX_MAX ? err_set(err, E_LIMIT, "%s: %lld bytes, of which %d are the most", e->path,
	                                         (long long)e->size, INDEX_MAX) :
	                                 fetch(p, &p->choice.index, 1, err);

	buf_init(&path);
	buf_init(&text);
	if (hub_linked(p->folder.p, p->commit, e))
		buf_printf(&path, "%s/snapshots/%s/%s", p->folder.p, p->commit, e->path);
	else
		buf_printf(&path, "%s/blobs/%s", p->folder.p, e->digest);
	code = code ? code : file_read(path.p, INDEX_MAX, &text, err);
	code = code ? code : hub_choose_shards(&p->tree, text.p, text.n, &p->choice, err);
	buf_fini(&path);
	buf_fini(&text);
	return code;
}

static int choose(struct pull *p, struct err *err)
{
	int code;

	if (p->options->all) {
		hub_choose_all(&p->tree, &p->choice);
		return 0;
	}
	code = hub_choose(&p->tree, p->wish->type, !p->options->no_projector, &p->choice, err);
	if (!code && p->choice.index >= 0)
		code = choose_shards(p, err);
	return code ? err_prefix(err, "%s", p->wish->name) : 0;
}

/* All is there: the snapshot gets its links, then the revision its commit. */
static int publish(struct pull *p, struct hub_pulled *out, struct err *err)
{
	int code = 0;

	for (int i = 0; i < p->choice.n && !code; i++) {
		code = hub_link(p->folder.p, p->commit, &p->tree.v[p->choice.v[i]], err);
		out->bytes += (uint64_t)p->tree.v[p->choice.v[i]].size;
	}
	code = code ? code : hub_ref_write(p->folder.p, p->wish->revision, p->commit, err);
	out->files = p->choice.n;
	out->fetched = p->fetched;
	buf_printf(&out->path, "%s/snapshots/%s", p->folder.p, p->commit);
	if (p->choice.model >= 0)
		buf_printf(&out->path, "/%s", p->tree.v[p->choice.model].path);
	return code;
}

static int tag_cache(const struct hub_place *place, struct err *err)
{
	static const char tag[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
				  "# This folder is a cache: backup programs may leave it out (bford.info/cachedir).\n";
	struct buf path;
	int code = 0;

	buf_init(&path);
	buf_printf(&path, "%s/CACHEDIR.TAG", place->cache);
	if (!file_exists(path.p))
		code = hub_write(path.p, tag, sizeof tag - 1, err);
	buf_fini(&path);
	return code;
}

int hub_pull(const struct hub_place *place, const struct hub_wish *wish, const struct hub_options *options,
             const struct hub_watch *watch, struct hub_pulled *out, struct err *err)
{
	struct pull p = { .place = place, .wish = wish, .options = options, .watch = watch };
	struct hub_line *line;
	int code = hub_http_open(&p.http, place, watch->say, watch->arg, err);

	*out = (struct hub_pulled){ 0 };
	buf_init(&out->path);
	if (code)
		return code;
	line = hub_line_open(p.http);
	buf_init(&p.folder);
	buf_printf(&p.folder, "%s/", place->cache);
	hub_put_folder(&p.folder, wish->name);
	code = know(&p, line, err);
	code = code ? code : choose(&p, err);
	code = code ? code : hub_make_folder(p.folder.p, err);
	code = code ? code : tag_cache(place, err);
	code = code ? code : need_room(&p, err);
	code = code ? code : fetch(&p, p.choice.v, p.choice.n, err);
	code = code ? code : publish(&p, out, err);
	hub_line_close(line);
	hub_http_close(p.http);
	hub_tree_free(&p.tree);
	hub_choice_free(&p.choice);
	buf_fini(&p.folder);
	return code;
}
