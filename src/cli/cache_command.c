/* cache_command.c - `weft cache`: kept prefixes as files that can be copied. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/new_path.h"
#include "engine/prefix/prefix_pack.h"

static const double MB = 1e6;

/* ---- folders ---- */

static int is_model(const struct dirent *e)
{
	uint8_t b[(SPILL_FOLDER - 1) / 2];

	return strlen(e->d_name) == SPILL_FOLDER - 1 && !hex_get(b, sizeof(b), e->d_name);
}

/* A folder of a model's prefixes. */
struct kept {
	struct digest model;
	struct buf about;
	uint64_t pages, snaps, bytes;
};

static void count_files(struct kept *k, const char *path)
{
	struct spill_head h;
	uint64_t tail;
	struct buf file;
	struct file_id id;
	struct dirent *e;
	DIR *d = opendir(path);

	buf_init(&file);
	while (d && (e = readdir(d))) {
		if (spill_name_get(e->d_name, &h.kind, &h.key, &h.pos, &tail))
			continue;
		buf_reset(&file);
		buf_printf(&file, "%s/%s", path, e->d_name);
		if (file_id_get(file.p, &id, NULL))
			continue;
		k->pages += h.kind == SPILL_PAGE;
		k->snaps += h.kind == SPILL_SNAP;
		k->bytes += id.bytes;
	}
	if (d)
		closedir(d);
	buf_fini(&file);
}

/* The text of a member of what a model's digest stands for. */
static const char *member(const struct json *about, const char *name)
{
	size_t n;
	const char *s = json_str(json_get(about, name), &n);

	return s ? s : "?";
}

/* Reads what is in DIR/NAME.  E_FORMAT: its model is not known. */
static int kept_read(struct kept *k, const char *dir, const char *name, struct err *err)
{
	struct json *j;
	struct buf path;
	size_t n;
	int rc;

	memset(&k->model, 0, sizeof(k->model));
	k->pages = k->snaps = k->bytes = 0;
	buf_reset(&k->about);
	buf_init(&path);
	buf_printf(&path, "%s/%s", dir, name);
	count_files(k, path.p);
	hex_get(k->model.b, (SPILL_FOLDER - 1) / 2, name);
	rc = pack_about_read(dir, &k->model, &k->about, err);
	if (!rc) {
		const char *hex;

		j = json_parse(k->about.p, k->about.n, 4, err);
		hex = json_str(json_get(j, "identity"), &n);
		if (!hex || n != 2 * sizeof(k->model.b) || hex_get(k->model.b, sizeof(k->model.b), hex) ||
		    strncmp(hex, name, strlen(name)))
			rc = err_set(err, E_FORMAT, "%s/" SPILL_ABOUT ": it does not name the model of its folder",
			             path.p);
		json_free(j);
	} else if (rc == E_MISSING) {
		err_set(err, rc,
		        "%s: it has no file " SPILL_ABOUT "; a server that uses the folder writes it at its start",
		        path.p);
	}
	buf_fini(&path);
	return rc;
}

/* The one folder of a model in dir whose name begins with `id` (NULL: any) and that has prefixes. */
static int kept_choose(struct kept *k, const char *dir, const char *id, struct err *err)
{
	struct dirent **v;
	int n = scandir(dir, &v, is_model, alphasort), found = 0, rc = 0;
	struct buf names;

	if (n < 0)
		return err_set(err, E_IO, "%s: it cannot be read", dir);
	buf_init(&names);
	for (int i = 0; i < n; i++) {
		struct kept now = { 0 };
		struct buf path;

		buf_init(&path);
		buf_printf(&path, "%s/%s", dir, v[i]->d_name);
		if (!id || !strncmp(v[i]->d_name, id, strlen(id)))
			count_files(&now, path.p);
		if (now.pages || now.snaps) {
			buf_printf(&names, "%s%s", found ? ", " : "", v[i]->d_name);
			if (!found++)
				rc = kept_read(k, dir, v[i]->d_name, err);
		}
		buf_fini(&path);
		free(v[i]);
	}
	if (!found)
		rc = err_set(err, E_MISSING, "%s: no prefixes%s%s are in it", dir, id ? " of " : "", id ? id : "");
	else if (found > 1)
		rc = err_set(err, E_ARG, "%s: prefixes of %d models are in it, name one of %s", dir, found, names.p);
	free(v);
	buf_fini(&names);
	return rc;
}

static int info_folder(const char *dir, struct err *err)
{
	struct dirent **v;
	int n = scandir(dir, &v, is_model, alphasort);
	struct kept k;
	struct err why;

	if (n < 0)
		return err_set(err, E_IO, "%s: it cannot be read", dir);
	buf_init(&k.about);
	for (int i = 0; i < n; i++) {
		struct json *j = kept_read(&k, dir, v[i]->d_name, &why) ? NULL :
		                                                          json_parse(k.about.p, k.about.n, 4, NULL);

		printf("%s  %s, arithmetic %s: %" PRIu64 " pages and %" PRIu64 " snapshots, %.1f MB\n", v[i]->d_name,
		       member(j, "model"), member(j, "arithmetic"), k.pages, k.snaps, (double)k.bytes / MB);
		json_free(j);
		free(v[i]);
	}
	free(v);
	buf_fini(&k.about);
	return 0;
}

/* ---- packs ---- */

static void put_about(const struct pack *p)
{
	struct json *j = json_parse(pack_about(p), strlen(pack_about(p)), 4, NULL);
	const struct json *value;
	struct json_cursor c;
	const char *name, *text;
	size_t n;

	for (c = json_first(j); json_next(&c, &name, &value);) {
		struct buf line;

		text = json_str(value, &n);
		buf_init(&line);
		if (text) /* escaped: a terminal obeys control bytes */
			json_put_inside(&line, text, n);
		printf("  %-13.40s %s\n", name, line.p);
		buf_fini(&line);
	}
	json_free(j);
}

static int info_pack(const char *path, struct err *err)
{
	char hex[2 * sizeof(struct digest) + 1];
	struct pack_piece piece;
	struct pack_walk w;
	struct pack *p;
	uint64_t pages = 0, snaps = 0;
	int rc = pack_open(&p, path, err);

	if (rc)
		return rc;
	hex_put(hex, pack_digest(p)->b, sizeof(struct digest));
	printf("%s: %.1f MB, sha256 of its head %s\n", path, (double)pack_bytes(p) / MB, hex);
	put_about(p);
	for (w = pack_walk(p); pack_next(&w, &piece, &rc, err);) {
		pages += piece.head.kind == SPILL_PAGE;
		snaps += piece.head.kind == SPILL_SNAP;
		if (piece.head.kind == SPILL_SNAP && snaps <= 20)
			printf("  snapshot      at token %u, %.2f MB\n", (unsigned)piece.head.pos,
			       (double)piece.head.payload_bytes / MB);
	}
	if (!rc)
		printf("  %" PRIu64 " snapshots, %" PRIu64 " pages\n", snaps, pages);
	pack_close(p);
	return rc;
}

/* Opens a pack and compares every piece with its digest; the caller closes *p after a failure, too. */
static int open_checked(struct pack **p, const char *path, struct err *err)
{
	int rc;

	*p = NULL;
	rc = pack_open(p, path, err);
	return rc ? rc : pack_check(*p, NULL, NULL, err);
}

static int verify(const char *path, struct err *err)
{
	struct pack *p;
	int rc = open_checked(&p, path, err);

	if (!rc)
		printf("%s: all %" PRIu64 " pieces have their digests\n", path, pack_pieces(p));
	pack_close(p);
	return rc;
}

/* ---- between them ---- */

static int export_folder(const struct options *o, const char *dir, const char *id, struct err *err)
{
	struct pack_from from = { .dir = dir };
	struct pack_sum sum;
	struct kept k;
	struct buf out;
	int rc;

	if (!o->pack.out)
		return err_set(err, E_ARG, "--out FILE is needed");
	buf_init(&k.about);
	buf_init(&out);
	rc = new_path(&out, "out", o->pack.out, false, err);
	if (!rc)
		rc = kept_choose(&k, dir, id, err);
	from.model = k.model;
	if (!rc)
		rc = pack_write(&from, out.p, &sum, err);
	if (!rc)
		printf("%s: %" PRIu64 " pieces, %.1f MB; %" PRIu64 " left out\n", out.p, sum.pieces,
		       (double)sum.bytes / MB, sum.left_out);
	buf_fini(&out);
	buf_fini(&k.about);
	return rc;
}

static int import_pack(const char *path, const char *dir, struct err *err)
{
	struct pack_sum sum;
	struct pack *p;
	int rc = open_checked(&p, path, err);

	if (!rc)
		rc = pack_import(p, dir, NULL, &sum, err);
	if (!rc)
		printf("%s: %" PRIu64 " pieces, %.1f MB, now in %s; %" PRIu64 " were there\n", path, sum.pieces,
		       (double)sum.bytes / MB, dir, sum.left_out);
	pack_close(p);
	return rc;
}

static int is_of(const char *word, const char *what, int n, int least, int most, struct err *err)
{
	if (strcmp(word, what))
		return 0;
	return n < least || n > most ? err_set(err, E_ARG, "%s: %d names follow, see `weft cache --help`", what, n) : 1;
}

int cmd_cache(const struct options *o)
{
	const char *word = o->said.n_word ? o->said.word[0] : "";
	const char *const *name = o->said.word + (o->said.n_word > 0);
	int n = o->said.n_word - 1, rc;
	struct err err;

	if ((rc = is_of(word, "export", n, 1, 2, &err))) {
		if (rc > 0)
			rc = export_folder(o, name[0], n > 1 ? name[1] : NULL, &err);
	} else if ((rc = is_of(word, "import", n, 2, 2, &err))) {
		if (rc > 0)
			rc = import_pack(name[0], name[1], &err);
	} else if ((rc = is_of(word, "info", n, 1, 1, &err))) {
		if (rc > 0)
			rc = (dir_exists(name[0]) ? info_folder : info_pack)(name[0], &err);
	} else if ((rc = is_of(word, "verify", n, 1, 1, &err))) {
		if (rc > 0)
			rc = verify(name[0], &err);
	} else {
		rc = err_set(&err, E_ARG, "'%s': one of export, import, info and verify is expected", word);
	}
	if (!rc)
		return 0;
	cli_fail("cache", &err);
	return err.code == E_ARG ? EXIT_USAGE : EXIT_WORK;
}
