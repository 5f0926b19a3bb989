/* hub_cache.c - see hub_cache.h. */
#include "hub/hub_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/names.h"

enum { TREE_MAX = 64 << 20, ENTRIES_MAX = 100000 };
static const int64_t FILE_BYTES_MAX = (int64_t)1
                                      << 50; /* a petabyte: sums of files and counts of parts stay in range */

void hub_tree_add(struct hub_tree *t, const char *path, int64_t size, const char *digest, const char *blob_id)
{
	struct hub_entry *e;

	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 64;
		t->v = xrealloc(t->v, size_mul((size_t)t->cap, sizeof *t->v));
	}
	e = &t->v[t->n++];
	*e = (struct hub_entry){ .path = xstrdup(path), .size = size };
	snprintf(e->digest, sizeof e->digest, "%s", digest);
	snprintf(e->blob_id, sizeof e->blob_id, "%s", blob_id);
}

void hub_tree_free(struct hub_tree *t)
{
	for (int i = 0; i < t->n; i++)
		free(t->v[i].path);
	free(t->v);
	*t = (struct hub_tree){ 0 };
}

/* ---- lists of files ---- */

/* Adds a file, or nothing where its path would lead elsewhere.  large: its SHA-256, or NULL.  0 or E_FORMAT. */
static int add(struct hub_tree *t, const char *path, const struct json *size, const char *oid, const char *large)
{
	int64_t bytes;

	if (!path || json_to_whole(size, &bytes) || bytes < 0 || bytes > FILE_BYTES_MAX || !oid ||
	    !hub_is_hex(oid, HUB_COMMIT) || (large && !hub_is_digest(large)) || t->n == ENTRIES_MAX)
		return E_FORMAT;
	if (hub_is_path(path))
		hub_tree_add(t, path, bytes, large ? large : oid, oid);
	return 0;
}

int hub_tree_page(struct hub_tree *t, const char *text, size_t n, struct err *err)
{
	struct json *root = json_parse(text, n, 0, err);
	int code = 0;

	if (!root)
		return err_prefix(err, "the hub's list of files");
	if (json_kind(root) != JSON_ARRAY)
		code = E_FORMAT;
	for (size_t i = 0; !code && i < json_len(root); i++) {
		const struct json *e = json_at(root, i), *lfs = json_get(e, "lfs");
		const char *type = json_str(json_get(e, "type"), NULL);

		if (type && !strcmp(type, "file"))
			code = add(t, json_str(json_get(e, "path"), NULL), json_get(e, "size"),
			           json_str(json_get(e, "oid"), NULL), json_str(json_get(lfs, "oid"), NULL));
	}
	json_free(root);
	return code ? err_set(err, E_FORMAT, "the hub's list of files is not as it is documented") : 0;
}

int hub_tree_read(struct hub_tree *t, const char *folder, const char *commit)
{
	struct json *root = NULL;
	struct json_cursor c;
	const struct json *e;
	const char *key;
	struct buf path, text;
	int64_t version;
	int code = E_MISSING;

	buf_init(&path);
	buf_init(&text);
	buf_printf(&path, "%s/trees/%s.json", folder, commit);
	if (file_exists(path.p) && !file_read(path.p, TREE_MAX, &text, NULL))
		root = json_parse(text.p, text.n, 0, NULL);
	if (root && !json_to_int(json_get(root, "format_version"), &version) && version == 1) {
		code = 0;
		for (c = json_first(json_get(root, "files")); !code && json_next(&c, &key, &e);)
			code = add(t, key, json_get(e, "size"), json_str(json_get(e, "blob_id"), NULL),
			           json_str(json_get(e, "lfs_sha256"), NULL));
	}
	if (code)
		hub_tree_free(t);
	json_free(root);
	buf_fini(&path);
	buf_fini(&text);
	return code ? E_MISSING : 0;
}

int hub_tree_write(const struct hub_tree *t, const char *folder, const char *commit, struct err *err)
{
	struct buf path, text;
	int code;

	buf_init(&path);
	buf_init(&text);
	buf_puts(&text, "{\"format_version\":1,\"files\":{");
	for (int i = 0; i < t->n; i++) {
		const struct hub_entry *e = &t->v[i];

		buf_puts(&text, i ? "," : "");
		json_put_cstr(&text, e->path);
		buf_printf(&text, ":{\"size\":%lld,\"blob_id\":\"%s\"", (long long)e->size, e->blob_id);
		if (strcmp(e->digest, e->blob_id) != 0)
			buf_printf(&text, ",\"lfs_sha256\":\"%s\",\"lfs_size\":%lld", e->digest, (long long)e->size);
		buf_putc(&text, '}');
	}
	buf_puts(&text, "}}");
	buf_printf(&path, "%s/trees/%s.json", folder, commit);
	code = hub_write(path.p, text.p, text.n, err);
	buf_fini(&path);
	buf_fini(&text);
	return code;
}

/* ---- refs and snapshots ---- */

int hub_make_folder(const char *path, struct err *err)
{
	return dir_make_for(path, 0777, err);
}

/* The folders above path. */
static int make_above(const char *path, struct err *err)
{
	char *dir = xstrndup(path, (size_t)(strrchr(path, '/') - path));
	int code = hub_make_folder(dir, err);

	free(dir);
	return code;
}

int hub_write(const char *path, const char *text, size_t n, struct err *err)
{
	struct buf own;
	int fd, code = make_above(path, err);

	if (code)
		return code;
	buf_init(&own);
	buf_printf(&own, "%s.%ld.weft", path, (long)getpid());
	fd = open(own.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0 || write(fd, text, n) != (ssize_t)n || rename(own.p, path)) {
		code = err_set(err, errno == ENOSPC ? E_FULL : E_IO, "%s: cannot be written: %s", path,
		               strerror(errno));
		unlink(own.p);
	}
	if (fd >= 0)
		close(fd);
	buf_fini(&own);
	return code;
}

int hub_ref_read(const char *folder, const char *revision, char commit[41])
{
	struct buf path, text;
	int code = E_MISSING;

	if (hub_is_hex(revision, HUB_COMMIT)) {
		snprintf(commit, HUB_COMMIT + 1, "%s", revision);
		return 0;
	}
	buf_init(&path);
	buf_init(&text);
	buf_printf(&path, "%s/refs/%s", folder, revision);
	if (file_exists(path.p) && !file_read(path.p, 200, &text, NULL)) {
		while (text.n && strchr(" \t\r\n", text.p[text.n - 1]))
			text.p[--text.n] = 0;
		code = hub_is_hex(text.p, HUB_COMMIT) ? 0 : E_FORMAT;
		if (!code)
			snprintf(commit, HUB_COMMIT + 1, "%s", text.p);
	}
	buf_fini(&path);
	buf_fini(&text);
	return code;
}

int hub_ref_write(const char *folder, const char *revision, const char *commit, struct err *err)
{
	char now[HUB_COMMIT + 1];
	struct buf path;
	int code;

	if (hub_is_hex(revision, HUB_COMMIT) || (!hub_ref_read(folder, revision, now) && !strcmp(now, commit)))
		return 0;
	buf_init(&path);
	buf_printf(&path, "%s/refs/%s", folder, revision);
	code = hub_write(path.p, commit, strlen(commit), err);
	buf_fini(&path);
	return code;
}

static void put_snapshot(struct buf *b, const char *folder, const char *commit, const char *path)
{
	buf_printf(b, "%s/snapshots/%s/%s", folder, commit, path);
}

bool hub_linked(const char *folder, const char *commit, const struct hub_entry *e)
{
	struct stat st;
	struct buf path;
	bool is;

	buf_init(&path);
	put_snapshot(&path, folder, commit, e->path);
	is = !stat(path.p, &st) && S_ISREG(st.st_mode) && st.st_size == e->size;
	buf_fini(&path);
	return is;
}

/* A file system without symbolic links: the snapshot has the file itself. */
static int move_blob(const char *folder, const char *to, const struct hub_entry *e, struct err *err)
{
	struct buf blob;
	int code = 0;

	buf_init(&blob);
	buf_printf(&blob, "%s/blobs/%s", folder, e->digest);
	if (link(blob.p, to) && rename(blob.p, to))
		code = err_set(err, E_IO, "%s: cannot be made: %s", to, strerror(errno));
	buf_fini(&blob);
	return code;
}

int hub_link(const char *folder, const char *commit, const struct hub_entry *e, struct err *err)
{
	struct buf path, to;
	int code;

	if (hub_linked(folder, commit, e))
		return 0;
	buf_init(&path);
	buf_init(&to);
	put_snapshot(&path, folder, commit, e->path);
	hub_put_link(&to, e->path, e->digest);
	code = make_above(path.p, err);
	if (!code && unlink(path.p) && errno != ENOENT)
		code = err_set(err, E_IO, "%s: cannot be replaced: %s", path.p, strerror(errno));
	if (!code && symlink(to.p, path.p) && !(errno == EEXIST && hub_linked(folder, commit, e)))
		code = errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP ?
		               move_blob(folder, path.p, e, err) :
		               err_set(err, E_IO, "%s: cannot be made: %s", path.p, strerror(errno));
	buf_fini(&path);
	buf_fini(&to);
	return code;
}
