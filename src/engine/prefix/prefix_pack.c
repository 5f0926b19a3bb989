/* prefix_pack.c - see prefix_pack.h: reading. */
#include "engine/prefix/prefix_pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/prefix/pack_layout.h"

struct pack {
	char *path;
	struct spill_part file;
	struct pack_head head;
	struct digest digest;
	char *about;
};

/* ---- the head ---- */

static uint64_t table_at(const struct pack_head *h)
{
	return PACK_HEAD + h->about_bytes + h->piece_bytes;
}

/* Do the sizes add up to the file's?  Compared by subtraction and division, so that no sum wraps around. */
static int check_sizes(const struct pack_head *h, uint64_t size, struct err *err)
{
	uint64_t left;

	if (h->about_bytes > PACK_ABOUT_MAX)
		return err_set(err, E_FORMAT, "%u bytes say what it is, at most %d can", (unsigned)h->about_bytes,
		               PACK_ABOUT_MAX);
	if (h->file_bytes != size)
		return err_set(err, E_FORMAT, "it has %llu bytes, its head says %llu", (unsigned long long)size,
		               (unsigned long long)h->file_bytes);
	left = size - PACK_HEAD; /* there is a head */
	if (left < h->about_bytes || left - h->about_bytes < h->piece_bytes ||
	    h->pieces != (left - h->about_bytes - h->piece_bytes) / PACK_ENTRY ||
	    (left - h->about_bytes - h->piece_bytes) % PACK_ENTRY)
		return err_set(err, E_FORMAT, "%u and %llu bytes and %llu pieces do not fill its %llu bytes",
		               (unsigned)h->about_bytes, (unsigned long long)h->piece_bytes,
		               (unsigned long long)h->pieces, (unsigned long long)size);
	return 0;
}

static int read_head(struct pack *p, struct err *err)
{
	uint8_t raw[PACK_HEAD];
	struct sha256 h;
	uint64_t sum;
	int rc;

	if (p->file.bytes < PACK_HEAD)
		return err_set(err, E_FORMAT, "it has %llu bytes, a pack has more than %d",
		               (unsigned long long)p->file.bytes, PACK_HEAD);
	rc = spill_read_all(&spill_io_real, p->file.fd, raw, sizeof(raw), 0, err);
	if (rc)
		return rc;
	memcpy(&p->head, raw, sizeof(raw));
	if (memcmp(p->head.magic, PACK_MAGIC, sizeof(p->head.magic)))
		return err_set(err, E_FORMAT, "not a pack of prefixes");
	if (p->head.version != PACK_VERSION)
		return err_set(err, E_UNSUPPORTED, "version %u, this program reads %d", (unsigned)p->head.version,
		               PACK_VERSION);
	sum = check64(raw, offsetof(struct pack_head, head_sum));
	if (sum != p->head.head_sum)
		return err_set(err, E_FORMAT, "the head's checksum is %016llx, it says %016llx",
		               (unsigned long long)sum, (unsigned long long)p->head.head_sum);
	sha256_init(&h);
	sha256_put(&h, raw, sizeof(raw));
	sha256_end(&h, &p->digest);
	return check_sizes(&p->head, p->file.bytes, err);
}

/* ---- about and table ---- */

static int read_about(struct pack *p, struct err *err)
{
	uint8_t entry[PACK_ENTRY];
	struct digest got;
	struct sha256 h;
	char a[65], b[65];
	int rc;

	p->about = xmalloc((size_t)p->head.about_bytes + 1);
	p->about[p->head.about_bytes] = '\0';
	rc = spill_read_all(&spill_io_real, p->file.fd, p->about, p->head.about_bytes, PACK_HEAD, err);
	sha256_init(&h);
	sha256_put(&h, p->about, p->head.about_bytes);
	for (uint64_t i = 0; i < p->head.pieces && !rc; i++) {
		rc = spill_read_all(&spill_io_real, p->file.fd, entry, sizeof(entry),
		                    table_at(&p->head) + i * PACK_ENTRY, err);
		sha256_put(&h, entry, sizeof(entry));
	}
	sha256_end(&h, &got);
	if (rc || !memcmp(&got, &p->head.table_sum, sizeof(got)))
		return rc;
	hex_put(a, got.b, sizeof(got.b));
	hex_put(b, p->head.table_sum.b, sizeof(p->head.table_sum.b));
	return err_set(err, E_FORMAT,
	               "what it is of, or its table, is damaged: digest %.16s..., its head says %.16s...", a, b);
}

int pack_open(struct pack **out, const char *path, struct err *err)
{
	struct pack *p = xcalloc(1, sizeof(*p));
	struct stat st;
	int rc = 0;

	*out = NULL;
	p->path = xstrdup(path);
	p->file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (p->file.fd < 0 || fstat(p->file.fd, &st))
		rc = err_set(err, errno == ENOENT ? E_MISSING : E_IO, "%s", strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = err_set(err, E_FORMAT, "not a regular file");
	else
		p->file.bytes = (uint64_t)st.st_size;
	if (!rc)
		rc = read_head(p, err);
	if (!rc)
		rc = read_about(p, err);
	if (rc) {
		pack_close(p);
		if (err)
			err_prefix(err, "%s", path);
		return rc;
	}
	*out = p;
	return 0;
}

void pack_close(struct pack *p)
{
	if (!p)
		return;
	if (p->file.fd >= 0)
		close(p->file.fd);
	free(p->path);
	free(p->about);
	free(p);
}

const char *pack_path(const struct pack *p)
{
	return p->path;
}

const struct digest *pack_model(const struct pack *p)
{
	return &p->head.model;
}

const struct digest *pack_digest(const struct pack *p)
{
	return &p->digest;
}

const char *pack_about(const struct pack *p)
{
	return p->about;
}

uint64_t pack_pieces(const struct pack *p)
{
	return p->head.pieces;
}

uint64_t pack_bytes(const struct pack *p)
{
	return p->file.bytes;
}

/* ---- pieces ---- */

struct pack_walk pack_walk(const struct pack *p)
{
	return (struct pack_walk){ .p = p, .at = PACK_HEAD + p->head.about_bytes };
}

struct spill_part pack_part(const struct pack *p, uint64_t at, uint64_t bytes)
{
	return (struct spill_part){ .fd = p->file.fd, .at = at, .bytes = bytes };
}

/* The i-th entry of the table, and the head of its piece, which begins at w->at. */
static int read_piece(const struct pack_walk *w, struct pack_piece *out, struct err *err)
{
	const struct pack *p = w->p;
	uint64_t end = table_at(&p->head);
	struct pack_entry e;
	int rc = spill_read_all(&spill_io_real, p->file.fd, &e, sizeof(e), end + w->i * PACK_ENTRY, err);

	if (rc)
		return rc;
	if (e.bytes < SPILL_HEAD || e.bytes > end - w->at)
		return err_set(err, E_FORMAT, "%llu bytes, %llu are left", (unsigned long long)e.bytes,
		               (unsigned long long)(end - w->at));
	*out = (struct pack_piece){ .part = pack_part(p, w->at, e.bytes), .tail = e.tail };
	memcpy(&out->sum, e.sum, sizeof(e.sum));
	rc = spill_part_head(&spill_io_real, &out->part, &out->head, err);
	if (rc)
		return rc;
	if (memcmp(&out->head.model, &p->head.model, sizeof(out->head.model)))
		return err_set(err, E_FORMAT, "of another model than the pack");
	if (w->i && pack_order(&w->last, w->last_tail, &out->head, out->tail) >= 0)
		return err_set(err, E_FORMAT, "not in its place: pieces are ordered by kind, position, key and tail");
	return 0;
}

bool pack_next(struct pack_walk *w, struct pack_piece *out, int *rc, struct err *err)
{
	const struct pack *p = w->p;

	*rc = 0;
	if (w->i == p->head.pieces) {
		if (w->at != table_at(&p->head))
			*rc = err_set(err, E_FORMAT, "%s: %llu bytes belong to no piece", p->path,
			              (unsigned long long)(table_at(&p->head) - w->at));
		return false;
	}
	*rc = read_piece(w, out, err);
	if (*rc) {
		if (err)
			err_prefix(err, "%s: piece %llu, at byte %llu", p->path, (unsigned long long)w->i,
			           (unsigned long long)w->at);
		return false;
	}
	w->i++;
	w->at += out->part.bytes;
	w->last = out->head;
	w->last_tail = out->tail;
	return true;
}

int pack_tokens(const struct pack_piece *piece, int32_t **out, struct err *err)
{
	size_t bytes = size_mul(piece->head.n_tok, sizeof(**out));
	int rc;

	*out = xmalloc(bytes);
	rc = spill_read_all(&spill_io_real, piece->part.fd, *out, bytes, piece->part.at + SPILL_HEAD, err);
	if (rc)
		free(*out);
	return rc;
}

int pack_piece_check(const struct pack *p, const struct pack_piece *piece, int to, struct err *err)
{
	struct check128 body;
	struct digest sum;
	char a[65], b[65];
	int rc = spill_copy(&spill_io_real, &piece->part, to, &sum, &body, err);

	if (!rc && memcmp(&sum, &piece->sum, sizeof(sum))) {
		hex_put(a, sum.b, sizeof(sum.b));
		hex_put(b, piece->sum.b, sizeof(piece->sum.b));
		rc = err_set(err, E_FORMAT, "its digest is %.16s..., the table says %.16s...", a, b);
	} else if (!rc && (body.lo != piece->head.sum.lo || body.hi != piece->head.sum.hi)) {
		rc = err_set(err, E_FORMAT, "its checksum is not that of its head");
	}
	if (rc == E_FORMAT && err)
		err_prefix(err, "%s: the %s at token %u, byte %llu, is damaged", p->path,
		           piece->head.kind == SPILL_PAGE ? "page" : "snapshot", (unsigned)piece->head.pos,
		           (unsigned long long)piece->part.at);
	return rc;
}

int pack_check(const struct pack *p, void (*told)(void *arg, int percent), void *arg, struct err *err)
{
	struct pack_walk w = pack_walk(p);
	struct pack_piece piece;
	int rc = 0, before = -1;

	while (!rc && pack_next(&w, &piece, &rc, err)) {
		int now = (int)((double)w.at / (double)p->file.bytes * 100);

		rc = pack_piece_check(p, &piece, -1, err);
		if (told && now != before)
			told(arg, now);
		before = now;
	}
	return rc;
}
