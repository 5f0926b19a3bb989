/* slab_file.c - see slab_file.h. */
#include "backend/slab_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"

struct header {
	char magic[8];
	uint32_t version, n; /* n: entries */
	uint8_t key[32];
	uint64_t check; /* check64 of the entries */
};
static const char magic[8] = "weftslab";
enum { VERSION = 2 };

static size_t head_bytes(int n)
{
	size_t bytes = sizeof(struct header) + (size_t)n * sizeof(struct slab_entry);

	return (bytes + READ_ALIGN - 1) / READ_ALIGN * READ_ALIGN;
}

static int count(const struct slab_list *list)
{
	int n = 0;

	for (int i = 0; i < list->n_mix; i++)
		n += list->mix[i]->experts;
	return n;
}

/* Calls fn for each slab in the file's order, until one fails. */
typedef int each_fn(void *arg, int i, const struct slab_lay *lay, const struct moe *m, int expert);
static int each(const struct slab_list *list, each_fn *fn, void *arg)
{
	int n = 0, rc = 0;

	for (int i = 0; i < list->n_mix; i++)
		for (int e = 0; e < list->mix[i]->experts && !rc; e++) {
			struct slab_lay lay;

			slab_lay_packed(&lay, list->mix[i], e, list->packs, list->packs_arg);
			rc = fn(arg, n++, &lay, list->mix[i], e);
		}
	return rc;
}

/* ---- the name ---- */

static int put_lay(void *arg, int i, const struct slab_lay *lay, const struct moe *m, int expert)
{
	struct sha256 *h = arg;

	sha256_put(h, &lay->bytes, sizeof lay->bytes);
	for (enum slab_part k = 0; k < SLAB_PARTS; k++) {
		const struct weight *w = slab_weight(m, expert, k);
		const int64_t is[] = { lay->part[k].packed, w ? w->rows : 0, w ? w->cols : 0, w ? w->group : 0 };

		sha256_put(h, is, sizeof is);
		sha256_put(h, lay->part[k].at, sizeof lay->part[k].at);
		sha256_field(h, w ? w->fmt->name : "", w ? strlen(w->fmt->name) : 0);
	}
	return 0;
}

/* A digest of the checkpoint and of the layout.  The number in `what` goes up whenever a packed form changes. */
static struct digest key_of(const struct digest *checkpoint, const struct slab_list *list)
{
	static const char what[] = "weft, packed experts, 2";
	struct digest out;
	struct sha256 h;

	sha256_init(&h);
	sha256_field(&h, what, sizeof what);
	sha256_field(&h, checkpoint->b, sizeof checkpoint->b);
	each(list, put_lay, &h);
	sha256_end(&h, &out);
	return out;
}

/* ---- digests ---- */

uint64_t slab_piece_check(const uint8_t *slab, size_t bytes, int piece)
{
	size_t part = bytes / SLAB_PIECES, begin = part * (size_t)piece;

	return check64(slab + begin, piece + 1 < SLAB_PIECES ? part : bytes - begin);
}

uint64_t slab_check(const uint64_t piece[SLAB_PIECES])
{
	return check64(piece, SLAB_PIECES * sizeof *piece);
}

static uint64_t check_whole(const uint8_t *slab, size_t bytes)
{
	uint64_t piece[SLAB_PIECES];

	for (int i = 0; i < SLAB_PIECES; i++)
		piece[i] = slab_piece_check(slab, bytes, i);
	return slab_check(piece);
}

/* ---- making it ---- */

struct making {
	const struct stream_opts *how;
	const char *path;
	struct slab_entry *entry;
	int fd, n;
	uint64_t at;
	uint8_t *slab; /* room for one */
	size_t cap;
	struct err *err;
};

static int place_entry(void *arg, int i, const struct slab_lay *lay, const struct moe *m, int expert)
{
	struct making *k = arg;

	k->entry[i] = (struct slab_entry){ .at = k->at, .bytes = lay->bytes };
	k->at += lay->bytes;
	k->cap = lay->bytes > k->cap ? lay->bytes : k->cap;
	return 0;
}

static int write_all(struct making *k, const void *p, size_t n, uint64_t at)
{
	if (file_write_at(k->fd, p, n, at))
		return err_set(k->err, E_IO, "%s: cannot write experts: %s", k->path, strerror(errno));
	return 0;
}

static void drop_source(const struct stream_opts *how, const struct moe *m, int expert)
{
	struct slab_extent x[SLAB_EXTENTS];
	struct slab_lay lay;
	int n = slab_lay_checkpoint(&lay, x, m, expert, how->file, how->n_file);

	for (int i = 0; i < n; i++)
		file_map_drop(how->file[x[i].file].map, x[i].at, x[i].at + x[i].need);
}

static int write_slab(void *arg, int i, const struct slab_lay *lay, const struct moe *m, int expert)
{
	enum { FLUSH = 64 << 20 }; /* bytes of the file that the system may hold unwritten */
	struct making *k = arg;
	struct slab_entry *x = &k->entry[i];
	int rc;

	slab_fill(k->slab, lay, m, expert);
	drop_source(k->how, m, expert);
	if (file_lost())
		return err_set(k->err, E_IO, "%s became shorter while its experts were packed", file_lost());
	x->check = check_whole(k->slab, x->bytes);
	rc = write_all(k, k->slab, x->bytes, x->at);
	if (!rc && x->at / FLUSH != (x->at + x->bytes) / FLUSH && !fdatasync(k->fd))
		posix_fadvise(k->fd, 0, (off_t)(x->at + x->bytes), POSIX_FADV_DONTNEED);
	if (k->how->progress)
		k->how->progress(k->how->progress_arg, (int)((int64_t)i * 100 / k->n));
	return rc;
}

static int write_head(struct making *k, const struct digest *key)
{
	struct header h = { .version = VERSION, .n = (uint32_t)k->n };
	size_t bytes = (size_t)k->n * sizeof *k->entry;
	int rc;

	memcpy(h.magic, magic, sizeof magic);
	memcpy(h.key, key->b, sizeof h.key);
	h.check = check64(k->entry, bytes);
	rc = write_all(k, &h, sizeof h, 0);
	return rc ? rc : write_all(k, k->entry, bytes, sizeof h);
}

/* All of the file under the name that it has until it is whole. */
static int write_file(struct making *k, const struct digest *key, const struct slab_list *list)
{
	int rc;

	k->entry = xcalloc((size_t)k->n + 1, sizeof *k->entry);
	k->at = head_bytes(k->n);
	each(list, place_entry, k);
	k->slab = xmalloc(k->cap + 1);
	rc = posix_fallocate(k->fd, 0, (off_t)k->at);
	if (rc && rc != EOPNOTSUPP && rc != EINVAL)
		rc = err_set(k->err, E_IO, "%s: no room for %" PRIu64 " MB of packed experts: %s", k->path, k->at >> 20,
		             strerror(rc));
	else
		rc = each(list, write_slab, k);
	if (!rc)
		rc = write_head(k, key);
	if (!rc && fsync(k->fd))
		rc = err_set(k->err, E_IO, "%s: %s", k->path, strerror(errno));
	posix_fadvise(k->fd, 0, 0, POSIX_FADV_DONTNEED);
	free(k->entry);
	free(k->slab);
	return rc;
}

static void sync_folder(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
}

static int make(const char *dir, const char *path, const struct digest *key, const struct slab_list *list,
                const struct stream_opts *how, struct err *err)
{
	struct making k = { .how = how, .n = count(list), .err = err };
	struct buf tmp;
	int rc;

	buf_init(&tmp);
	buf_printf(&tmp, "%s.%ld.tmp", path, (long)getpid());
	k.path = tmp.p;
	k.fd = open(tmp.p, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (k.fd < 0) {
		rc = err_set(err, E_IO, "%s: %s", tmp.p, strerror(errno));
	} else {
		rc = write_file(&k, key, list);
		close(k.fd);
		if (!rc && rename(tmp.p, path))
			rc = err_set(err, E_IO, "%s: %s", path, strerror(errno));
		if (rc)
			unlink(tmp.p);
		else
			sync_folder(dir);
	}
	buf_fini(&tmp);
	return rc;
}

/* ---- reading it ---- */

#define ANEW "; remove the file, and it is made anew"

static int bad(struct slab_file *f, struct err *err, const char *what)
{
	return err_set(err, E_FORMAT, "%s: %s" ANEW, f->path, what);
}

static int read_at(int fd, void *p, size_t n, uint64_t at)
{
	for (uint8_t *to = p; n;) {
		ssize_t got = pread(fd, to, n, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -1;
		to += got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return 0;
}

/* Compares the file's entries with those of the layout, one after the other. */
struct checking {
	const struct slab_file *f;
	uint64_t at;
};
static int check_entry(void *arg, int i, const struct slab_lay *lay, const struct moe *m, int expert)
{
	struct checking *c = arg;
	const struct slab_entry *x = &c->f->entry[i];
	bool good = x->at == c->at && x->bytes == lay->bytes;

	c->at += lay->bytes;
	return good ? 0 : -1;
}

static int read_head(struct slab_file *f, int fd, const struct digest *key, const struct slab_list *list,
                     struct err *err)
{
	struct header h;
	struct checking c = { .f = f, .at = head_bytes(f->n) };

	if (read_at(fd, &h, sizeof h, 0) || memcmp(h.magic, magic, sizeof magic))
		return bad(f, err, "not a file of packed experts");
	if (h.version != VERSION)
		return err_set(err, E_FORMAT, "%s: packed experts in form %" PRIu32 ", form %d is wanted" ANEW, f->path,
		               h.version, VERSION);
	if (h.n != (uint32_t)f->n || memcmp(h.key, key->b, sizeof h.key))
		return bad(f, err, "packed experts of another model");
	f->entry = xcalloc((size_t)f->n + 1, sizeof *f->entry);
	if (read_at(fd, f->entry, (size_t)f->n * sizeof *f->entry, sizeof h) ||
	    check64(f->entry, (size_t)f->n * sizeof *f->entry) != h.check || each(list, check_entry, &c))
		return bad(f, err, "its table is damaged");
	if (f->file.id.bytes != c.at)
		return err_set(err, E_FORMAT, "%s: %" PRIu64 " bytes, %" PRIu64 " are wanted" ANEW, f->path,
		               f->file.id.bytes, c.at);
	return 0;
}

static int open_made(struct slab_file *f, const struct digest *key, const struct slab_list *list, struct err *err)
{
	int rc = read_file_open(&f->file, f->path, err), fd;

	if (rc)
		return rc;
	fd = open(f->path, O_RDONLY | O_CLOEXEC); /* the head need not be aligned */
	if (fd < 0)
		return err_set(err, E_IO, "%s: %s", f->path, strerror(errno));
	rc = read_head(f, fd, key, list, err);
	close(fd);
	return rc;
}

int slab_file_open(struct slab_file *f, const char *dir, const struct digest *checkpoint, const struct slab_list *list,
                   const struct stream_opts *how, struct err *err)
{
	struct digest key = key_of(checkpoint, list);
	char name[2 * sizeof key.b + 1];
	struct buf path;
	int rc = dir_make(dir, err);

	*f = (struct slab_file){ .file.fd = -1, .n = count(list) };
	if (rc)
		return rc;
	hex_put(name, key.b, sizeof key.b);
	buf_init(&path);
	buf_printf(&path, "%s/%s.experts", dir, name);
	f->path = xstrdup(path.p);
	buf_fini(&path);
	if (!file_exists(f->path))
		rc = make(dir, f->path, &key, list, how, err);
	if (!rc)
		rc = open_made(f, &key, list, err);
	if (rc)
		slab_file_close(f);
	return rc;
}

void slab_file_close(struct slab_file *f)
{
	read_file_close(&f->file);
	free(f->entry);
	free(f->path);
	*f = (struct slab_file){ .file.fd = -1 };
}
