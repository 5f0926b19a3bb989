/* spill_file.c - see spill_file.h. */
#include "engine/prefix/spill_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are written as memory has them");

/* ---- the system ---- */

static int real_open(const struct spill_io *io, int dir, const char *name, int flags)
{
	/* O_NONBLOCK: opening a pipe that was put there would wait for its other end; reading it at an offset fails. */
	return openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
}

static ssize_t real_write(const struct spill_io *io, int fd, const void *p, size_t n)
{
	return write(fd, p, n);
}

static ssize_t real_read(const struct spill_io *io, int fd, void *p, size_t n, uint64_t at)
{
	return pread(fd, p, n, (off_t)at);
}

static int real_sync(const struct spill_io *io, int fd)
{
	return fdatasync(fd);
}

static int real_rename(const struct spill_io *io, int dir, const char *from, const char *to)
{
	return renameat(dir, from, dir, to);
}

static int real_unlink(const struct spill_io *io, int dir, const char *name)
{
	return unlinkat(dir, name, 0);
}

const struct spill_io spill_io_real = {
	.open = real_open,
	.write = real_write,
	.read = real_read,
	.sync = real_sync,
	.rename = real_rename,
	.unlink = real_unlink,
};

/* ---- the head ---- */

/* As it lies in the file.  The line break in the magic shows a copy that was
 * "translated" on the way. */
struct raw {
	char magic[8];
	uint32_t version, kind, pos, n_tok;
	uint64_t payload_bytes, file_bytes;
	uint8_t model[32], prev[32], key[32];
	uint64_t sum_lo, sum_hi;
	uint64_t head_sum; /* check64 of all before */
};
static const char magic[8] = "weftkv\r\n";

_Static_assert(sizeof(struct raw) == SPILL_HEAD, "no padding");

static uint64_t file_bytes(const struct spill_head *h)
{
	return SPILL_HEAD + (uint64_t)h->n_tok * sizeof(int32_t) + h->payload_bytes;
}

void spill_head_put(const struct spill_head *h, uint8_t out[SPILL_HEAD])
{
	struct raw r = { .version = SPILL_VERSION,
		         .kind = h->kind,
		         .pos = h->pos,
		         .n_tok = h->n_tok,
		         .payload_bytes = h->payload_bytes,
		         .file_bytes = file_bytes(h),
		         .sum_lo = h->sum.lo,
		         .sum_hi = h->sum.hi };

	memcpy(r.magic, magic, sizeof(magic));
	memcpy(r.model, h->model.b, sizeof(r.model));
	memcpy(r.prev, h->prev.b, sizeof(r.prev));
	memcpy(r.key, h->key.b, sizeof(r.key));
	r.head_sum = check64(&r, offsetof(struct raw, head_sum));
	memcpy(out, &r, sizeof(r));
}

int spill_head_get(struct spill_head *h, const uint8_t *p, size_t n, uint64_t size, struct err *err)
{
	struct raw r;
	uint64_t sum;

	if (n < sizeof(r))
		return err_set(err, E_FORMAT, "a head of %zu bytes, %d are needed", n, SPILL_HEAD);
	memcpy(&r, p, sizeof(r));
	if (memcmp(r.magic, magic, sizeof(magic)))
		return err_set(err, E_FORMAT, "not a file of kept prefixes");
	if (r.version != SPILL_VERSION)
		return err_set(err, E_UNSUPPORTED, "version %u, this program reads %d", (unsigned)r.version,
		               SPILL_VERSION);
	sum = check64(&r, offsetof(struct raw, head_sum));
	if (sum != r.head_sum)
		return err_set(err, E_FORMAT, "the head's checksum is %016llx, it says %016llx",
		               (unsigned long long)sum, (unsigned long long)r.head_sum);
	if (r.kind != SPILL_PAGE && r.kind != SPILL_SNAP)
		return err_set(err, E_FORMAT, "kind %u, known are %d and %d", (unsigned)r.kind, SPILL_PAGE, SPILL_SNAP);
	if (!r.n_tok || r.n_tok > r.pos || r.pos > INT32_MAX || (r.kind == SPILL_SNAP && r.n_tok != r.pos))
		return err_set(err, E_FORMAT, "%u tokens recorded of %u", (unsigned)r.n_tok, (unsigned)r.pos);
	*h = (struct spill_head){ .kind = r.kind,
		                  .pos = r.pos,
		                  .n_tok = r.n_tok,
		                  .payload_bytes = r.payload_bytes,
		                  .sum = { r.sum_lo, r.sum_hi } };
	memcpy(h->model.b, r.model, sizeof(r.model));
	memcpy(h->prev.b, r.prev, sizeof(r.prev));
	memcpy(h->key.b, r.key, sizeof(r.key));
	/* Compared by subtraction: a payload chosen to wrap the sum around is refused. */
	if (r.file_bytes != size || size < SPILL_HEAD + (uint64_t)r.n_tok * sizeof(int32_t) ||
	    r.payload_bytes != size - SPILL_HEAD - (uint64_t)r.n_tok * sizeof(int32_t))
		return err_set(err, E_FORMAT, "%llu bytes, the head says %llu with a payload of %llu",
		               (unsigned long long)size, (unsigned long long)r.file_bytes,
		               (unsigned long long)r.payload_bytes);
	return 0;
}

/* ---- writing ---- */

int spill_write_all(const struct spill_io *io, int fd, const void *p, size_t n)
{
	const char *at = p;

	while (n) {
		ssize_t got = io->write(io, fd, at, n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? errno : ENOSPC;
		at += got;
		n -= (size_t)got;
	}
	return 0;
}

static int write_body(const struct spill_io *io, int fd, const struct spill_head *h, const int32_t *tok,
                      const void *payload, int64_t used_ns)
{
	const struct timespec when = { used_ns / 1000000000, used_ns % 1000000000 };
	const struct timespec times[2] = { when, when };
	uint8_t head[SPILL_HEAD];
	int rc;

	spill_head_put(h, head);
	rc = spill_write_all(io, fd, head, sizeof(head));
	if (!rc)
		rc = spill_write_all(io, fd, tok, h->n_tok * sizeof(*tok));
	if (!rc)
		rc = spill_write_all(io, fd, payload, h->payload_bytes);
	futimens(fd, times); /* only the order of eviction hangs on it */
	return rc;
}

int spill_settle(const struct spill_io *io, int dir, int fd, const char *tmp, const char *name, int failed)
{
	int rc = failed;

	if (!rc && io->sync(io, fd))
		rc = errno;
	if (close(fd) && !rc)
		rc = errno;
	if (!rc && io->rename(io, dir, tmp, name))
		rc = errno;
	if (rc)
		io->unlink(io, dir, tmp);
	return rc;
}

int spill_file_write(const struct spill_io *io, int dir, const char *tmp, const char *name, struct spill_head *h,
                     const int32_t *tok, const void *payload, int64_t used_ns)
{
	int fd, rc;

	assert(h->n_tok && h->payload_bytes);
	h->sum = check128(tok, h->n_tok * sizeof(*tok), payload, h->payload_bytes);
	fd = io->open(io, dir, tmp, O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0)
		return errno;
	rc = write_body(io, fd, h, tok, payload, used_ns);
	return spill_settle(io, dir, fd, tmp, name, rc);
}

/* ---- reading ---- */

int spill_read_all(const struct spill_io *io, int fd, void *p, size_t n, uint64_t at, struct err *err)
{
	char *to = p;

	while (n) {
		ssize_t got = io->read(io, fd, to, n, at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(err, errno == ESTALE ? E_MISSING : E_IO, "at byte %llu: %s",
			               (unsigned long long)at, strerror(errno));
		if (!got)
			return err_set(err, E_FORMAT, "ends at byte %llu, %zu are missing", (unsigned long long)at, n);
		to += got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return 0;
}

/* Is the file what is asked for? */
static int head_match(const struct spill_head *h, const struct spill_head *want, struct err *err)
{
	if (memcmp(&h->model, &want->model, sizeof(h->model)))
		return err_set(err, E_FORMAT, "of another model");
	if (memcmp(&h->key, &want->key, sizeof(h->key)) || memcmp(&h->prev, &want->prev, sizeof(h->prev)))
		return err_set(err, E_FORMAT, "of another prefix");
	if (h->kind != want->kind || h->pos != want->pos || h->n_tok != want->n_tok)
		return err_set(err, E_FORMAT, "kind %d with %u tokens at %u, wanted is kind %d with %u at %u", h->kind,
		               (unsigned)h->n_tok, (unsigned)h->pos, want->kind, (unsigned)want->n_tok,
		               (unsigned)want->pos);
	if (h->payload_bytes != want->payload_bytes)
		return err_set(err, E_FORMAT, "%llu bytes of payload, wanted are %llu",
		               (unsigned long long)h->payload_bytes, (unsigned long long)want->payload_bytes);
	return 0;
}

int spill_part_head(const struct spill_io *io, const struct spill_part *part, struct spill_head *h, struct err *err)
{
	uint8_t raw[SPILL_HEAD];
	int rc = spill_read_all(io, part->fd, raw, sizeof(raw), part->at, err);

	return rc ? rc : spill_head_get(h, raw, sizeof(raw), part->bytes, err);
}

/* The head of the part, if it is what is asked for. */
static int read_head(const struct spill_io *io, const struct spill_part *part, struct spill_head *want, size_t most,
                     struct spill_head *h, struct err *err)
{
	int rc = spill_part_head(io, part, h, err);

	if (!rc && !want->payload_bytes) {
		if (!h->payload_bytes || h->payload_bytes > most)
			return err_set(err, E_FORMAT, "%llu bytes of payload, at most %zu can be",
			               (unsigned long long)h->payload_bytes, most);
		want->payload_bytes = h->payload_bytes;
	}
	return rc ? rc : head_match(h, want, err);
}

static int read_body(const struct spill_io *io, const struct spill_part *part, const struct spill_head *h,
                     const int32_t *tok, int32_t *got_tok, void *payload, struct err *err)
{
	size_t tok_bytes = h->n_tok * sizeof(*tok);
	struct check128 sum;
	int rc = spill_read_all(io, part->fd, got_tok, tok_bytes, part->at + SPILL_HEAD, err);

	if (!rc && memcmp(got_tok, tok, tok_bytes))
		rc = err_set(err, E_FORMAT, "other tokens under the same key");
	if (!rc)
		rc = spill_read_all(io, part->fd, payload, h->payload_bytes, part->at + SPILL_HEAD + tok_bytes, err);
	if (rc)
		return rc;
	sum = check128(got_tok, tok_bytes, payload, h->payload_bytes);
	if (sum.lo != h->sum.lo || sum.hi != h->sum.hi)
		return err_set(err, E_FORMAT, "checksum %016llx%016llx, the head says %016llx%016llx",
		               (unsigned long long)sum.hi, (unsigned long long)sum.lo, (unsigned long long)h->sum.hi,
		               (unsigned long long)h->sum.lo);
	return 0;
}

int spill_part_read(const struct spill_io *io, const struct spill_part *part, struct spill_head *want, size_t most,
                    const int32_t *tok, void **payload, struct err *err)
{
	struct spill_head h;
	int32_t *got_tok;
	int rc = read_head(io, part, want, most, &h, err);

	*payload = NULL;
	if (rc)
		return rc == E_UNSUPPORTED ? E_FORMAT : rc;
	got_tok = xmalloc(h.n_tok * sizeof(*got_tok));
	*payload = xmalloc(h.payload_bytes);
	rc = read_body(io, part, &h, tok, got_tok, *payload, err);
	free(got_tok);
	if (rc) {
		free(*payload);
		*payload = NULL;
	}
	return rc;
}

int spill_file_open(const struct spill_io *io, int dir, const char *name, struct spill_part *out, struct err *err)
{
	struct stat st;
	int fd = io->open(io, dir, name, O_RDONLY), rc = 0;

	if (fd < 0)
		return err_set(err, errno == ENOENT || errno == ESTALE ? E_MISSING : E_IO, "%s: %s", name,
		               strerror(errno));
	if (fstat(fd, &st))
		rc = err_set(err, errno == ESTALE ? E_MISSING : E_IO, "%s: %s", name, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = err_set(err, E_FORMAT, "%s: not a regular file", name);
	if (rc)
		close(fd);
	else
		*out = (struct spill_part){ .fd = fd, .bytes = (uint64_t)st.st_size };
	return rc;
}

int spill_file_read(const struct spill_io *io, int dir, const char *name, struct spill_head *want, size_t most,
                    const int32_t *tok, void **payload, struct err *err)
{
	struct spill_part part;
	int rc = spill_file_open(io, dir, name, &part, err);

	*payload = NULL;
	if (rc)
		return rc;
	rc = spill_part_read(io, &part, want, most, tok, payload, err);
	close(part.fd);
	if (rc && err)
		err_prefix(err, "%s", name);
	return rc;
}

int spill_file_discard(const struct spill_io *io, int dir, const char *tmp, const char *name, struct spill_head *want,
                       size_t most, const int32_t *tok)
{
	void *payload;
	int rc;

	if (io->rename(io, dir, name, tmp))
		return errno == ENOENT ? E_FORMAT : E_IO;
	rc = spill_file_read(io, dir, tmp, want, most, tok, &payload, NULL);
	free(payload);
	if (rc != E_FORMAT)
		return io->rename(io, dir, tmp, name) || rc ? E_IO : E_GONE;
	io->unlink(io, dir, tmp);
	return E_FORMAT;
}

int spill_copy(const struct spill_io *io, const struct spill_part *from, int to, struct digest *sum,
               struct check128 *body, struct err *err)
{
	enum { PIECE = 1 << 20 };
	uint8_t *piece = xmalloc(from->bytes < PIECE ? (size_t)from->bytes + 1 : PIECE);
	struct check128_run run;
	struct sha256 all;
	int rc = 0;

	sha256_init(&all);
	check128_begin(&run);
	for (uint64_t at = 0; !rc && at < from->bytes;) {
		size_t n = from->bytes - at < PIECE ? (size_t)(from->bytes - at) : PIECE;
		size_t head = at < SPILL_HEAD ? SPILL_HEAD - (size_t)at : 0;

		rc = spill_read_all(io, from->fd, piece, n, from->at + at, err);
		if (rc)
			break;
		sha256_put(&all, piece, n);
		if (n > head)
			check128_put(&run, piece + head, n - head);
		if (to >= 0 && (rc = spill_write_all(io, to, piece, n)))
			rc = err_set(err, E_IO, "cannot write: %s", strerror(rc));
		at += n;
	}
	sha256_end(&all, sum);
	*body = check128_end(&run);
	free(piece);
	return rc;
}

/* ---- the folder ---- */

void spill_folder_name(const struct digest *model, char out[SPILL_FOLDER])
{
	hex_put(out, model->b, (SPILL_FOLDER - 1) / 2);
}

/* ---- names ---- */

void spill_name_put(char out[SPILL_NAME], enum spill_kind kind, const struct digest *key, uint32_t pos, uint64_t tail)
{
	char hex[2 * sizeof(key->b) + 1];

	hex_put(hex, key->b, sizeof(key->b));
	if (kind == SPILL_PAGE)
		snprintf(out, SPILL_NAME, "%s.page", hex);
	else
		snprintf(out, SPILL_NAME, "%s.%u.%016llx.snap", hex, (unsigned)pos, (unsigned long long)tail);
}

int spill_name_get(const char *name, enum spill_kind *kind, struct digest *key, uint32_t *pos, uint64_t *tail)
{
	char again[SPILL_NAME];
	unsigned long long t = 0;
	unsigned at = 0;

	if (strlen(name) >= SPILL_NAME || hex_get(key->b, sizeof(key->b), name))
		return E_FORMAT;
	*kind = SPILL_PAGE;
	*pos = 0;
	*tail = 0;
	if (!strcmp(name + 2 * sizeof(key->b), ".page"))
		return 0;
	if (sscanf(name + 2 * sizeof(key->b), ".%u.%llx.snap", &at, &t) == 2)
		*kind = SPILL_SNAP;
	*pos = at;
	*tail = t;
	/* Accepts only the exact spelling that spill_name_put would write. */
	spill_name_put(again, *kind, key, at, t);
	return strcmp(again, name) || at > INT32_MAX ? E_FORMAT : 0;
}
