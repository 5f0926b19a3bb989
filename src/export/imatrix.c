/* imatrix.c - see imatrix.h. */
#include "export/imatrix.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "store/gguf/gguf_file.h"

enum { FILE_MOST = 1 << 30 };

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct importance *)a)->name, ((const struct importance *)b)->name);
}

void imatrix_fini(struct imatrix *m)
{
	for (int i = 0; i < m->n; i++) {
		free((char *)m->v[i].name);
		free(m->v[i].v);
	}
	free(m->v);
	*m = (struct imatrix){ 0 };
}

static struct importance *add_importance(struct imatrix *m, const char *name, size_t n, int stack, int cols)
{
	struct importance *it;
	char *copy = xmalloc(n + 1);

	m->v = xrealloc(m->v, size_mul((size_t)m->n + 1, sizeof *m->v));
	it = &m->v[m->n++];
	memcpy(copy, name, n);
	copy[n] = 0;
	*it = (struct importance){ copy, stack, cols, 0,
		                   xmalloc(size_mul(size_mul((size_t)stack, (size_t)cols), sizeof(float))) };
	return it;
}

void imatrix_add(struct imatrix *m, const char *name, const float *x, size_t ld, int n, int cols)
{
	struct importance *it = NULL;

	for (int i = 0; i < m->n && !it; i++)
		it = strcmp(m->v[i].name, name) || m->v[i].cols != cols ? NULL : &m->v[i];
	if (!it) {
		it = add_importance(m, name, strlen(name), 1, cols);
		memset(it->v, 0, (size_t)cols * sizeof *it->v);
	}
	for (int r = 0; r < n; r++)
		for (int i = 0; i < cols; i++)
			it->v[i] += x[(size_t)r * ld + (size_t)i] * x[(size_t)r * ld + (size_t)i];
	it->rows += n;
}

/* Something for inputs that were always zero, so that their weights are not left to chance. */
static void add_floor(struct importance *it)
{
	for (float *v = it->v; v < it->v + (size_t)it->stack * (size_t)it->cols; v += it->cols) {
		double sum = 0;
		float floor;

		for (int i = 0; i < it->cols; i++)
			sum += (double)v[i];
		floor = sum > 0 ? fmaxf((float)(1e-4 * sum / it->cols), FLT_MIN) : 1.0f;
		for (int i = 0; i < it->cols; i++)
			v[i] = fminf(v[i] + floor, FLT_MAX);
	}
}

void imatrix_finish(struct imatrix *m)
{
	for (int i = 0; i < m->n; i++) {
		for (int k = 0; k < m->v[i].cols; k++)
			m->v[i].v[k] = (float)((double)m->v[i].v[k] / m->v[i].rows);
		add_floor(&m->v[i]);
	}
	if (m->n)
		qsort(m->v, (size_t)m->n, sizeof *m->v, by_name);
}

void imatrix_rename(struct imatrix *m, const char *from, const char *to)
{
	const struct importance key = { .name = from };
	const struct importance *it = m->n ? bsearch(&key, m->v, (size_t)m->n, sizeof *m->v, by_name) : NULL;
	struct importance *copy;
	struct importance was;

	if (!it)
		return;
	was = *it;
	copy = add_importance(m, to, strlen(to), was.stack, was.cols);
	memcpy(copy->v, was.v, (size_t)was.stack * (size_t)was.cols * sizeof *copy->v);
	qsort(m->v, (size_t)m->n, sizeof *m->v, by_name);
}

/* Refuses values that are not numbers, or are negative. */
static int check(const struct imatrix *m, const char *path, struct err *err)
{
	struct importance *it = &m->v[m->n - 1];

	for (size_t i = 0; i < (size_t)it->stack * (size_t)it->cols; i++)
		if (!(it->v[i] >= 0) || isinf(it->v[i]))
			return err_set(err, E_FORMAT, "%s: %s: element %zu is %g, an importance is 0 or more", path,
			               it->name, i, (double)it->v[i]);
	add_floor(it);
	return 0;
}

/* ---- GGUF ---- */

static int add_gguf(struct imatrix *m, const struct gguf *g, const struct gguf_info *sums, size_t stem, struct err *err)
{
	const struct gguf_info *counts;
	struct importance *it;
	struct buf name;

	buf_init(&name);
	buf_printf(&name, "%.*s.counts", (int)stem, sums->name);
	counts = gguf_info(g, name.p);
	buf_fini(&name);
	if (!counts || strcmp(sums->type->name, "F32") || strcmp(counts->type->name, "F32") || sums->ne[0] > INT_MAX ||
	    sums->ne[1] > INT_MAX || counts->count != sums->ne[1] || sums->count != sums->ne[0] * sums->ne[1])
		return err_set(err, E_FORMAT, "%s: %s: no counts of type F32, one for each of %lld matrices", g->path,
		               sums->name, (long long)sums->ne[1]);
	it = add_importance(m, sums->name, stem, (int)sums->ne[1], (int)sums->ne[0]);
	for (int s = 0; s < it->stack; s++) {
		float count;

		memcpy(&count, counts->data + (size_t)s * sizeof count, sizeof count);
		for (int i = 0; i < it->cols; i++) {
			size_t at = (size_t)s * (size_t)it->cols + (size_t)i;
			float sum;

			memcpy(&sum, sums->data + at * sizeof sum, sizeof sum);
			it->v[at] = count > 0 ? sum / count : 1.0f;
		}
	}
	return check(m, g->path, err);
}

static int read_gguf(struct imatrix *m, const char *path, struct err *err)
{
	static const char tail[] = ".in_sum2";
	struct gguf g;
	int rc = gguf_open(&g, path, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < g.n_info && !rc; i++) {
		size_t n = strlen(g.info[i].name), t = sizeof tail - 1;

		if (n > t && !strcmp(g.info[i].name + n - t, tail))
			rc = add_gguf(m, &g, &g.info[i], n - t, err);
	}
	gguf_close(&g);
	return rc;
}

/* ---- the older form ---- */

struct reader {
	const uint8_t *p, *end;
};

static int read_int(struct reader *r, int most, int *out)
{
	int32_t v;

	if (r->end - r->p < (ptrdiff_t)sizeof v)
		return -1;
	memcpy(&v, r->p, sizeof v);
	r->p += sizeof v;
	*out = (int)v;
	return v < 0 || v > most ? -1 : 0;
}

/* i32 n; n times i32 length, name, i32 calls, i32 values, f32 values, each the mean times calls. */
static int read_old(struct imatrix *m, const char *path, const struct buf *file, struct err *err)
{
	enum { TENSORS_MOST = 1 << 20, NAME_MOST = 255 };
	struct reader r = { (const uint8_t *)file->p, (const uint8_t *)file->p + file->n };
	int n, rc = 0;

	if (read_int(&r, TENSORS_MOST, &n))
		return err_set(err, E_FORMAT, "%s: neither form of an importance matrix", path);
	for (int i = 0; i < n && !rc; i++) {
		int length, calls, values;
		const char *name;
		struct importance *it;

		if (read_int(&r, NAME_MOST, &length) || r.end - r.p < length)
			return err_set(err, E_FORMAT, "%s: entry %d of %d: its name is not whole", path, i, n);
		name = (const char *)r.p;
		r.p += length;
		for (int k = 0; k < length; k++)
			if ((unsigned char)name[k] < ' ' || name[k] == 0x7f)
				return err_set(err, E_FORMAT, "%s: entry %d of %d: byte %d of its name is 0x%02x", path,
				               i, n, k, (unsigned char)name[k]);
		if (read_int(&r, INT_MAX, &calls) || read_int(&r, INT_MAX, &values) || values < 1 ||
		    (size_t)(r.end - r.p) / sizeof(float) < (size_t)values)
			return err_set(err, E_FORMAT, "%s: %.*s: its values are not whole", path, length, name);
		it = add_importance(m, name, (size_t)length, 1, values);
		memcpy(it->v, r.p, (size_t)values * sizeof(float));
		r.p += (size_t)values * sizeof(float);
		for (int k = 0; k < values && calls; k++)
			it->v[k] /= (float)calls;
		rc = check(m, path, err);
	}
	return rc;
}

int imatrix_read(struct imatrix *m, const char *path, struct err *err)
{
	struct buf file;
	int rc;

	*m = (struct imatrix){ 0 };
	buf_init(&file);
	if (gguf_is(path)) {
		rc = read_gguf(m, path, err);
	} else {
		rc = file_read(path, FILE_MOST, &file, err);
		if (!rc)
			rc = read_old(m, path, &file, err);
	}
	buf_fini(&file);
	if (m->n)
		qsort(m->v, (size_t)m->n, sizeof *m->v, by_name);
	for (int i = 1; i < m->n && !rc; i++)
		if (!strcmp(m->v[i].name, m->v[i - 1].name))
			rc = err_set(err, E_FORMAT, "%s: %s: there are two of them", path, m->v[i].name);
	if (rc)
		imatrix_fini(m);
	return rc;
}

const struct importance *imatrix_find(const struct imatrix *m, const char *name, int cols)
{
	const struct importance key = { .name = name };
	const struct importance *it = m && m->n ? bsearch(&key, m->v, (size_t)m->n, sizeof *m->v, by_name) : NULL;

	/* The older form has the matrices of a stack one after the other. */
	return it && it->cols % cols == 0 ? it : NULL;
}
