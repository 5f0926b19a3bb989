/* prefix_pack_make.c - see prefix_pack.h: from folders of kept prefixes to packs, and back. */
#include "engine/prefix/prefix_pack.h"
#include "engine/prefix/spill_share.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/prefix/pack_layout.h"

/* ---- what a model's digest stands for ---- */

static void about_path(const char *dir, const struct digest *model, struct buf *out)
{
	char folder[SPILL_FOLDER];

	spill_folder_name(model, folder);
	buf_printf(out, "%s/%s", dir, folder);
}

int pack_about_read(const char *dir, const struct digest *model, struct buf *out, struct err *err)
{
	struct buf path;
	int rc;

	buf_init(&path);
	about_path(dir, model, &path);
	buf_puts(&path, "/" SPILL_ABOUT);
	rc = file_refuse_special(path.p, err);
	if (!rc)
		rc = file_read(path.p, PACK_ABOUT_MAX, out, err);
	buf_fini(&path);
	return rc;
}

int pack_about_write(const char *dir, const struct digest *model, const char *text, struct err *err)
{
	const struct spill_io *io = &spill_io_real;
	char tmp[SPILL_TMP_NAME];
	struct spill_owner owner;
	struct buf path;
	int root = -1, fd = -1, rc;

	buf_init(&path);
	about_path(dir, model, &path);
	rc = dir_make(path.p, err);
	if (!rc && (root = open(path.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		rc = err_set(err, E_IO, "%s: %s", path.p, strerror(errno));
	if (!rc && faccessat(root, SPILL_ABOUT, F_OK, 0)) {
		int e = 0;

		spill_owner_begin(&owner);
		spill_tmp_name(&owner, SPILL_ABOUT, tmp);
		fd = io->open(io, root, tmp, O_WRONLY | O_CREAT | O_EXCL);
		if (fd < 0)
			e = errno;
		else
			e = spill_settle(io, root, fd, tmp, SPILL_ABOUT, spill_write_all(io, fd, text, strlen(text)));
		spill_owner_end(&owner);
		io->sync(io, root); /* without it, at worst the name is gone after a power cut */
		if (e)
			rc = err_set(err, E_IO, "%s/" SPILL_ABOUT ": cannot write: %s", path.p, strerror(e));
	}
	if (root >= 0)
		close(root);
	buf_fini(&path);
	return rc;
}

/* ---- from a folder to a pack ---- */

struct piece {
	struct spill_head head;
	uint64_t tail;
};

struct making {
	const struct pack_from *from;
	const struct spill_io *io;
	int own, to; /* the model's folder; the file being written */
	struct piece *piece;
	size_t n, cap;
	struct pack_entry *entry; /* [n_entry] of pieces that are written */
	size_t n_entry;
	struct buf about;
	uint64_t at; /* bytes written */
	struct pack_sum *sum;
};

static bool is_wanted(const struct pack_from *from, const struct spill_head *h)
{
	if (!from->n_pos)
		return true;
	if (h->kind == SPILL_PAGE)
		return h->pos <= (uint32_t)from->pos[from->n_pos - 1];
	for (int i = 0; i < from->n_pos; i++)
		if (h->pos == (uint32_t)from->pos[i])
			return true;
	return false;
}

/* Reads the head of a file of the folder. */
static void list_file(struct making *m, const char *name)
{
	struct spill_head named, h;
	struct spill_part part;
	uint64_t tail;

	if (spill_name_get(name, &named.kind, &named.key, &named.pos, &tail))
		return;
	if (spill_file_open(m->io, m->own, name, &part, NULL)) {
		m->sum->left_out++;
		return;
	}
	if (spill_part_head(m->io, &part, &h, NULL) || h.kind != named.kind ||
	    memcmp(&h.key, &named.key, sizeof(h.key)) || (h.kind == SPILL_SNAP && h.pos != named.pos) ||
	    memcmp(&h.model, &m->from->model, sizeof(h.model))) {
		m->sum->left_out++;
	} else if (is_wanted(m->from, &h)) {
		if (m->n == m->cap) {
			m->cap = m->cap ? 2 * m->cap : 256;
			m->piece = xrealloc(m->piece, size_mul(m->cap, sizeof(*m->piece)));
		}
		m->piece[m->n++] = (struct piece){ h, h.kind == SPILL_SNAP ? tail : 0 };
	}
	close(part.fd);
}

static int by_order(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return pack_order(&x->head, x->tail, &y->head, y->tail);
}

/* Is there a snapshot at each position that is asked for? */
static int check_positions(const struct making *m, struct err *err)
{
	for (int i = 0; i < m->from->n_pos; i++) {
		size_t k = 0;

		while (k < m->n &&
		       (m->piece[k].head.kind != SPILL_SNAP || m->piece[k].head.pos != (uint32_t)m->from->pos[i]))
			k++;
		if (k == m->n)
			return err_set(err, E_MISSING,
			               "no state at token %d was kept: memory for prefixes may be short",
			               m->from->pos[i]);
	}
	return 0;
}

static int list_folder(struct making *m, struct err *err)
{
	char folder[SPILL_FOLDER];
	struct dirent *e;
	struct buf path;
	int fd, rc = 0;
	DIR *d;

	spill_folder_name(&m->from->model, folder);
	buf_init(&path);
	buf_printf(&path, "%s/%s", m->from->dir, folder);
	m->own = open(path.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	fd = m->own < 0 ? -1 : openat(m->own, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		rc = err_set(err, errno == ENOENT ? E_MISSING : E_IO, "%s: %s", path.p, strerror(errno));
		if (fd >= 0)
			close(fd);
	} else {
		while ((e = readdir(d)))
			list_file(m, e->d_name);
		closedir(d);
		if (m->n)
			qsort(m->piece, m->n, sizeof(*m->piece), by_order);
		rc = check_positions(m, err);
	}
	buf_fini(&path);
	return rc;
}

/* Appends a piece.  One that is gone or damaged is left out, and its bytes are written over. */
static int put_piece(struct making *m, const struct piece *p, struct err *err)
{
	struct pack_entry *e = &m->entry[m->n_entry];
	char name[SPILL_NAME];
	struct spill_part part;
	struct check128 body;
	struct digest sum;
	struct err why;
	int rc;

	spill_name_put(name, p->head.kind, &p->head.key, p->head.pos, p->tail);
	rc = spill_file_open(m->io, m->own, name, &part, &why);
	if (!rc) {
		rc = spill_copy(m->io, &part, m->to, &sum, &body, &why);
		if (!rc &&
		    (part.bytes != SPILL_HEAD + (uint64_t)p->head.n_tok * sizeof(int32_t) + p->head.payload_bytes ||
		     body.lo != p->head.sum.lo || body.hi != p->head.sum.hi))
			rc = err_set(&why, E_FORMAT, "its checksum is not that of its head");
		close(part.fd);
	}
	if (rc == E_IO)
		return err_set(err, rc, "%s: %s", name, why.msg);
	if (rc) {
		if (rc != E_MISSING)
			log_warn("%s: left out: %s", name, why.msg);
		m->sum->left_out++;
		return lseek(m->to, (off_t)m->at, SEEK_SET) < 0 ? err_set(err, E_IO, "%s", strerror(errno)) : 0;
	}
	*e = (struct pack_entry){ .bytes = part.bytes, .tail = p->tail };
	memcpy(e->sum, sum.b, sizeof(e->sum));
	m->n_entry++;
	m->at += part.bytes;
	return 0;
}

static void fill_head(const struct making *m, struct pack_head *h, struct pack_sum *sum)
{
	struct sha256 s;

	*h = (struct pack_head){ .version = PACK_VERSION,
		                 .about_bytes = (uint32_t)m->about.n,
		                 .pieces = m->n_entry,
		                 .piece_bytes = m->at - PACK_HEAD - m->about.n,
		                 .file_bytes = m->at + m->n_entry * PACK_ENTRY,
		                 .model = m->from->model };
	memcpy(h->magic, PACK_MAGIC, sizeof(h->magic));
	sha256_init(&s);
	sha256_put(&s, m->about.p, m->about.n);
	sha256_put(&s, m->entry, m->n_entry * sizeof(*m->entry));
	sha256_end(&s, &h->table_sum);
	h->head_sum = check64(h, offsetof(struct pack_head, head_sum));
	sum->pieces = h->pieces;
	sum->bytes = h->file_bytes;
	sha256_init(&s);
	sha256_put(&s, h, sizeof(*h));
	sha256_end(&s, &sum->digest);
}

/* The head is written last: until then the file cannot be read as a pack. */
static int write_pack(struct making *m, struct err *err)
{
	struct pack_head head = { 0 };
	int e, rc = 0;

	if ((e = spill_write_all(m->io, m->to, &head, sizeof(head))) ||
	    (e = spill_write_all(m->io, m->to, m->about.p, m->about.n)))
		return err_set(err, E_IO, "cannot write: %s", strerror(e));
	m->at = sizeof(head) + m->about.n;
	m->entry = xcalloc(m->n + 1, sizeof(*m->entry));
	for (size_t i = 0; i < m->n && !rc; i++)
		rc = put_piece(m, &m->piece[i], err);
	if (rc)
		return rc;
	if (!m->n_entry)
		return err_set(err, E_MISSING, "no prefixes are there");
	fill_head(m, &head, m->sum);
	if ((e = spill_write_all(m->io, m->to, m->entry, m->n_entry * sizeof(*m->entry))))
		return err_set(err, E_IO, "cannot write: %s", strerror(e));
	if (ftruncate(m->to, (off_t)head.file_bytes) || lseek(m->to, 0, SEEK_SET) < 0)
		return err_set(err, E_IO, "%s", strerror(errno));
	if ((e = spill_write_all(m->io, m->to, &head, sizeof(head))))
		return err_set(err, E_IO, "cannot write: %s", strerror(e));
	return 0;
}

/* The folder of a path, opened, and where its last part begins. */
static int open_parent(const char *path, const char **name, struct err *err)
{
	const char *slash = strrchr(path, '/');
	struct buf b;
	int fd;

	*name = slash ? slash + 1 : path;
	buf_init(&b);
	if (slash)
		buf_put(&b, path, (size_t)(*name - path));
	else
		buf_putc(&b, '.');
	fd = open(b.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		err_set(err, E_IO, "%s: %s", b.p, strerror(errno));
	buf_fini(&b);
	return fd;
}

static int make_file(struct making *m, const char *path, struct err *err)
{
	const char *name;
	struct buf tmp;
	int dir = open_parent(path, &name, err), rc, e;

	if (dir < 0)
		return E_IO;
	buf_init(&tmp);
	buf_printf(&tmp, "%s.partial", name);
	(void)m->io->unlink(m->io, dir, tmp.p); /* of a run that was interrupted */
	m->to = m->io->open(m->io, dir, tmp.p, O_WRONLY | O_CREAT | O_EXCL);
	if (m->to < 0) {
		rc = err_set(err, E_IO, "%s: %s", path, strerror(errno));
	} else if ((rc = write_pack(m, err))) {
		close(m->to);
		m->io->unlink(m->io, dir, tmp.p);
		if (err)
			err_prefix(err, "%s", path);
	} else if ((e = spill_settle(m->io, dir, m->to, tmp.p, name, 0))) {
		rc = err_set(err, E_IO, "%s: cannot write: %s", path, strerror(e));
	}
	m->io->sync(m->io, dir);
	buf_fini(&tmp);
	close(dir);
	return rc;
}

int pack_write(const struct pack_from *from, const char *path, struct pack_sum *out, struct err *err)
{
	struct making m = { .from = from, .io = from->io ? from->io : &spill_io_real, .own = -1, .to = -1, .sum = out };
	int rc;

	*out = (struct pack_sum){ 0 };
	buf_init(&m.about);
	rc = pack_about_read(from->dir, &from->model, &m.about, err);
	if (!rc)
		rc = list_folder(&m, err);
	if (!rc)
		rc = make_file(&m, path, err);
	if (m.own >= 0)
		close(m.own);
	free(m.piece);
	free(m.entry);
	buf_fini(&m.about);
	return rc;
}

/* ---- from a pack to a folder ---- */

static int take_piece(const struct pack *p, const struct pack_piece *piece, const struct spill_owner *owner,
                      const struct spill_io *io, int own, struct pack_sum *out, struct err *err)
{
	char name[SPILL_NAME], tmp[SPILL_TMP_NAME];
	struct stat st;
	int fd, rc, e;

	spill_name_put(name, piece->head.kind, &piece->head.key, piece->head.pos, piece->tail);
	if (!fstatat(own, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size == piece->part.bytes) {
		out->left_out++;
		return 0;
	}
	spill_tmp_name(owner, name, tmp);
	fd = io->open(io, own, tmp, O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0)
		return err_set(err, E_IO, "%s: %s", name, strerror(errno));
	rc = pack_piece_check(p, piece, fd, err);
	if (rc) {
		close(fd);
		io->unlink(io, own, tmp);
		return rc;
	}
	if ((e = spill_settle(io, own, fd, tmp, name, 0)))
		return err_set(err, E_IO, "%s: cannot write: %s", name, strerror(e));
	out->pieces++;
	out->bytes += piece->part.bytes;
	return 0;
}

int pack_import(const struct pack *p, const char *dir, const struct spill_io *io, struct pack_sum *out, struct err *err)
{
	struct pack_walk w = pack_walk(p);
	char folder[SPILL_FOLDER];
	struct pack_piece piece;
	char tally[SPILL_TALLY];
	struct spill_owner owner;
	int root = -1, own = -1, rc;

	*out = (struct pack_sum){ .digest = *pack_digest(p) };
	io = io ? io : &spill_io_real;
	spill_folder_name(pack_model(p), folder);
	spill_owner_begin(&owner);
	rc = dir_make(dir, err);
	if (!rc && (root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		rc = err_set(err, E_IO, "%s: %s", dir, strerror(errno));
	if (!rc)
		rc = pack_about_write(dir, pack_model(p), pack_about(p), err);
	if (!rc && (own = openat(root, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) < 0)
		rc = err_set(err, E_IO, "%s/%s: %s", dir, folder, strerror(errno));
	while (!rc && pack_next(&w, &piece, &rc, err))
		rc = take_piece(p, &piece, &owner, io, own, out, err);
	if (own >= 0)
		io->sync(io, own);
	if (out->pieces) {
		spill_tally_name(tally, folder, &owner);
		spill_tally_put(root, tally, (out->bytes + 1023) / 1024);
	}
	spill_owner_end(&owner);
	if (own >= 0)
		close(own);
	if (root >= 0)
		close(root);
	return rc;
}
