/* write_rows.c - see write_rows.h. */
#include "export/write_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "quant/encode/encode.h"

enum { BATCH_BYTES = 16 << 20, SAFE_BYTES = 64 << 20 }; /* of floats at once; written between two notes */

/* ---- the file and its note ---- */

struct out {
	const struct write_job *job;
	struct buf partial, note;
	int fd;
	size_t unsafe; /* bytes written since the last note */
};

static int io_error(const struct out *f, const char *what, struct err *err)
{
	return err_set(err, E_IO, "%s: %s: %s", f->partial.p, what, strerror(errno));
}

static int put(const struct out *f, size_t at, const void *p, size_t n, struct err *err)
{
	return file_write_at(f->fd, p, n, at) ? io_error(f, "cannot be written", err) : 0;
}

/* Items [0, done) are on disk. */
static int note_write(struct out *f, int done, struct err *err)
{
	struct buf text, tmp;
	FILE *file;
	int rc = 0;

	if (fdatasync(f->fd))
		return io_error(f, "cannot be written", err);
	buf_init(&text);
	buf_init(&tmp);
	buf_printf(&text, "%s\n%d\n", f->job->words, done);
	buf_printf(&tmp, "%s.new", f->note.p);
	file = fopen(tmp.p, "w");
	if (!file || fwrite(text.p, 1, text.n, file) != text.n)
		rc = io_error(f, "its note cannot be written", err);
	if (file && fclose(file) && !rc)
		rc = io_error(f, "its note cannot be written", err);
	if (!rc && rename(tmp.p, f->note.p))
		rc = io_error(f, "its note cannot be written", err);
	buf_fini(&text);
	buf_fini(&tmp);
	f->unsafe = 0;
	return rc;
}

/* How many items an earlier run of the same job left; 0: none. */
static int note_read(const struct out *f)
{
	size_t words = strlen(f->job->words);
	struct buf text;
	struct err err;
	int done = 0, rc = E_MISSING;

	buf_init(&text);
	if (file_exists(f->partial.p) && file_exists(f->note.p))
		rc = file_read(f->note.p, words + 64, &text, &err);
	if (!rc && text.n > words && !memcmp(text.p, f->job->words, words) && text.p[words] == '\n')
		done = atoi(text.p + words + 1);
	buf_fini(&text);
	return done < 0 || done > f->job->n ? 0 : done;
}

/* ---- items ---- */

struct batch {
	const struct item *it;
	int first, n, failed; /* failed: the first row that cannot be encoded, or -1 */
	float *x;             /* [threads][2][cols]: a row, and the same in the order that is written */
	uint8_t *out[ITEM_STREAMS];
};

/* Row r of the source's matrix as floats. */
static void read_row(float *x, const struct item *it, int r)
{
	struct weight one = it->w; /* the row as a column */

	if (!it->col_bytes) {
		it->w.fmt->decode(x, &it->w, r);
		return;
	}
	one.data += (size_t)r * one.row_bytes;
	one.row_bytes = it->col_bytes;
	one.cols = 1;
	for (int c = 0; c < it->w.cols; c++)
		one.fmt->decode(x + c, &one, c);
}

static float scale_at(const struct item_scales *s, int row, int col)
{
	int64_t k = (s->row0 + (int64_t)row) / s->high * s->wide + col / s->broad;
	float by;

	dtype_to_float(&by, s->at + (size_t)k * (size_t)dtype_size(s->type), s->type, 1);
	return by;
}

static void scale(float *x, const struct item *it, int from)
{
	const struct item_scales *s = it->scales;
	int cols = it->w.cols;

	if (s && s->across)
		for (int i = 0; i < cols; i++)
			x[i] *= scale_at(s, i, from);
	for (int i = 0; s && !s->across && i < cols;) {
		int end = cols - i > s->broad ? i + s->broad : cols;

		for (float by = scale_at(s, from, i); i < end; i++)
			x[i] *= by;
	}
}

static void multiply(float *x, const struct item *it, int row)
{
	for (int c = 0; it->times != 0 && c < it->w.cols; c++)
		x[c] *= it->times;
	for (int c = 0; it->row_times && c < it->w.cols; c++)
		x[c] *= it->row_times[row];
}

static void encode_row(void *ctx, int i)
{
	struct batch *b = ctx;
	const struct item *it = b->it;
	float *x = b->x + (size_t)pool_thread() * 2 * (size_t)it->w.cols, *ordered = x + it->w.cols;
	uint8_t *out[ITEM_STREAMS];
	struct item one = *it;
	int row = b->first + i, from = it->row ? it->row[row] : row;

	if (it->recode) {
		it->recode(it, b->out[0] + (size_t)i * it->row_bytes[0], from);
		return;
	}
	read_row(x, it, from);
	scale(x, it, from);
	multiply(x, it, row);
	if (!encode_takes(x, it->w.cols)) {
		__atomic_store_n(&b->failed, row, __ATOMIC_RELAXED);
		return;
	}
	for (int k = 0; k < ITEM_STREAMS; k++)
		out[k] = b->out[k] ? b->out[k] + (size_t)i * it->row_bytes[k] : NULL;
	if (it->importance)
		one.importance += (size_t)(row / (it->w.rows / it->stack)) * (size_t)it->w.cols;
	for (int c = 0; it->col && c < it->w.cols; c++)
		ordered[c] = x[it->col[c]];
	it->encode(&one, out, it->col ? ordered : x);
}

static int write_matrix(struct out *f, const struct item *it, struct err *err)
{
	int threads = pool_threads(f->job->pool), rc = 0;
	size_t row = 2 * (size_t)it->w.cols * sizeof(float);
	int most = BATCH_BYTES / row < 1 ? 1 : (int)(BATCH_BYTES / row);
	struct batch b = { .it = it, .failed = -1, .x = xmalloc(size_mul((size_t)threads, row)) };

	most = most < it->w.rows ? most : it->w.rows;
	for (int k = 0; k < ITEM_STREAMS; k++)
		b.out[k] = it->row_bytes[k] ? xmalloc(size_mul((size_t)most, it->row_bytes[k])) : NULL;
	for (; b.first < it->w.rows && !rc; b.first += b.n) {
		b.n = it->w.rows - b.first < most ? it->w.rows - b.first : most;
		pool_run(f->job->pool, encode_row, &b, b.n);
		if (b.failed >= 0)
			rc = err_set(err, E_FORMAT, "%s: row %d has elements that are not numbers or beyond 65504",
			             it->name, b.failed);
		for (int k = 0; k < ITEM_STREAMS && !rc; k++)
			if (b.out[k])
				rc = put(f, it->at[k] + (size_t)b.first * it->row_bytes[k], b.out[k],
				         (size_t)b.n * it->row_bytes[k], err);
	}
	for (int k = 0; k < ITEM_STREAMS; k++)
		free(b.out[k]);
	free(b.x);
	return rc;
}

static bool is_matrix(const struct item *it)
{
	return it->encode || it->recode;
}

static size_t item_bytes(const struct item *it)
{
	size_t sum = it->n;

	for (int k = 0; k < ITEM_STREAMS && is_matrix(it); k++)
		sum += (size_t)it->w.rows * it->row_bytes[k];
	return sum;
}

static int write_item(struct out *f, int i, struct err *err)
{
	const struct item *it = &f->job->item[i];
	int rc = is_matrix(it) ? write_matrix(f, it, err) : put(f, it->at[0], it->bytes, it->n, err);

	f->unsafe += item_bytes(it);
	if (!rc && f->unsafe >= (f->job->safe_bytes ? f->job->safe_bytes : SAFE_BYTES))
		rc = note_write(f, i + 1, err);
	return rc;
}

static int write_all(struct out *f, struct err *err)
{
	const struct write_job *job = f->job;
	size_t done = job->head_bytes;
	int from = note_read(f), rc = 0;

	f->fd = open(f->partial.p, O_CREAT | O_WRONLY | O_CLOEXEC | (from ? 0 : O_TRUNC), 0666);
	if (f->fd < 0)
		return io_error(f, "cannot be opened", err);
	if (ftruncate(f->fd, (off_t)job->bytes))
		rc = io_error(f, "cannot be made as long as needed", err);
	if (!rc)
		rc = put(f, 0, job->head, job->head_bytes, err);
	for (int i = 0; i < job->n && !rc; i++) {
		if (i >= from)
			rc = write_item(f, i, err);
		done += item_bytes(&job->item[i]);
		if (job->progress && !rc)
			job->progress(job->arg, done, job->bytes);
	}
	if (!rc)
		rc = note_write(f, job->n, err);
	if (close(f->fd) && !rc)
		rc = io_error(f, "cannot be written", err);
	return rc;
}

int write_rows(const struct write_job *job, struct err *err)
{
	struct out f = { .job = job, .fd = -1 };
	int rc;

	buf_init(&f.partial);
	buf_init(&f.note);
	buf_printf(&f.partial, "%s.partial", job->path);
	buf_printf(&f.note, "%s.partial.done", job->path);
	rc = write_all(&f, err);
	if (!rc && rename(f.partial.p, job->path))
		rc = io_error(&f, "cannot be renamed", err);
	if (!rc)
		unlink(f.note.p);
	buf_fini(&f.partial);
	buf_fini(&f.note);
	return rc;
}
