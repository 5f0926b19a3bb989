/* row_tables.c - see row_tables.h. */
#include "backend/cpu/row_tables.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/pack.h"
#include "backend/stream_files.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/pages.h"

enum { ROW_READS = 16 }; /* reads under way at once, as of experts */

/* A place on disk: the rows of one run of a table. */
struct row_run {
	const struct read_file *file;
	uint64_t at;  /* of row 0 */
	size_t bytes; /* of a row; 0: there is no such run */
	size_t span;  /* most bytes of whole pages around a row */
};

struct row_table {
	struct row_tables *s;
	struct weight w;
	struct row_run run[WEIGHT_RUNS];
	int rows_most; /* different rows that the buffer has room for */
};

/* A row that is wanted, and which reads of the turn bring its runs. */
struct row_want {
	struct row_asked of;
	int read[WEIGHT_RUNS];
};

struct row_read {
	struct read_ask ask;
	int error;
};

struct row_tables {
	struct cpu_backend *c;
	struct row_table *table; /* [n] */
	int n;
	struct reads *reads;
	struct read_file *file; /* [n_file] */
	int n_file;
	uint8_t *buffer;
	size_t bytes;
	struct row_read *read; /* [n_read] of the turn; [WEIGHT_RUNS * the most rows_most] */
	int n_read;
	struct room wants;
	bool told; /* the log of a read that failed, in this call */
	struct row_stats stats;
};

static size_t page_down(size_t n)
{
	return n / READ_ALIGN * READ_ALIGN;
}

static size_t page_up(size_t n)
{
	return page_down(n + READ_ALIGN - 1);
}

/* ---- a turn: rows that are read together ---- */

static int by_id(const void *a, const void *b)
{
	const struct row_asked *x = &((const struct row_want *)a)->of, *y = &((const struct row_want *)b)->of;

	return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->to > y->to) - (x->to < y->to);
}

static struct row_want *sort_wants(struct row_table *t, const struct row_asked *ask, int n)
{
	struct row_want *v = room_get(&t->s->wants, (size_t)n * sizeof *v);

	for (int i = 0; i < n; i++) {
		v[i] = (struct row_want){ .of = ask[i] };
		assert(ask[i].id >= 0 && ask[i].id < t->w.rows);
	}
	qsort(v, (size_t)n, sizeof *v, by_id);
	return v;
}

/* How many of v[n] the next turn takes: all rows of as many ids as there is room for. */
static int turn_length(const struct row_table *t, const struct row_want *v, int n)
{
	int i = 0, ids = 0;

	for (; i < n; i++) {
		bool next = !i || v[i].of.id != v[i - 1].of.id;

		if (next && ids == t->rows_most)
			break;
		ids += next;
	}
	return i;
}

/* Plans the reads that bring run k of the rows of v[n], from `used` bytes of the buffer on.  A row whose first page is the
 * last page of the read before it, or follows it, joins that read.  Returns the bytes used then. */
static size_t plan_run(struct row_table *t, int k, struct row_want *v, int n, size_t used)
{
	const struct row_run *run = &t->run[k];
	struct row_tables *s = t->s;
	struct row_read *r = NULL;

	for (int i = 0; i < n; i++) {
		uint64_t from = run->at + (uint64_t)v[i].of.id * run->bytes, begin = page_down(from);
		size_t need;

		if (!r || begin > r->ask.at + r->ask.n) {
			r = &s->read[s->n_read++];
			*r = (struct row_read){ .ask = { .file = run->file, .at = begin, .to = s->buffer + used } };
		}
		need = (size_t)(from - r->ask.at) + run->bytes;
		used += page_up(need) - r->ask.n;
		r->ask.need = need;
		r->ask.n = page_up(need);
		v[i].read[k] = (int)(r - s->read);
	}
	return used;
}

static void send_reads(struct row_tables *s)
{
	for (int i = 0; i < s->n_read; i++) {
		s->read[i].ask.tag = (uint64_t)i;
		s->stats.reads++;
		s->stats.read_bytes += (int64_t)s->read[i].ask.n;
		reads_put(s->reads, &s->read[i].ask);
	}
}

/* Waits for the turn's reads.  What came of a file that was changed meanwhile counts as not read. */
static void await_reads(struct row_table *t)
{
	struct row_tables *s = t->s;
	int64_t began = clock_monotonic_ns();
	struct read_done done;

	for (int left = s->n_read; left; left--) {
		if (!reads_next(s->reads, &done, true))
			assert(!"a read has been lost");
		s->read[done.tag].error = done.error;
	}
	for (int k = 0; k < WEIGHT_RUNS; k++) {
		bool same = !t->run[k].bytes || read_file_same(t->run[k].file);

		for (int i = 0; i < s->n_read && !same; i++)
			if (s->read[i].ask.file == t->run[k].file && !s->read[i].error)
				s->read[i].error = ESTALE;
	}
	s->stats.wait_ns += clock_monotonic_ns() - began;
}

static void read_rows(struct row_table *t, struct row_want *v, int n)
{
	size_t used = 0;

	t->s->n_read = 0;
	for (int k = 0; k < WEIGHT_RUNS; k++)
		if (t->run[k].bytes)
			used = plan_run(t, k, v, n, used);
	assert(used <= t->s->bytes);
	send_reads(t->s);
	await_reads(t);
}

/* ---- what becomes of the rows ---- */

/* The read that failed to bring a part of the row; NULL: all of it is there. */
static const struct row_read *failed_read(const struct row_table *t, const struct row_want *v)
{
	for (int k = 0; k < WEIGHT_RUNS; k++)
		if (t->run[k].bytes && t->s->read[v->read[k]].error)
			return &t->s->read[v->read[k]];
	return NULL;
}

/* Marks the items that needed the row as spoiled. */
static void spoil_row(struct row_table *t, struct pass *p, const struct row_want *v, const struct row_read *r)
{
	struct err why;

	err_set(&why, E_IO, "row %d of %s could not be read: %s: %s", v->of.id, t->w.name, r->ask.file->path,
	        stream_fault_text(r->error));
	if (!t->s->told)
		log_error("%s", why.msg);
	t->s->told = true;
	t->s->stats.failed++;
	if (!p->spoil.items)
		fault_abort();
	if (!p->spoil.why.code)
		p->spoil.why = why;
	p->spoil.items[p->item[v->of.row]] = true;
}

/* The address in the buffer of the row's run k. */
static const uint8_t *row_at(const struct row_table *t, const struct row_want *v, int k)
{
	const struct read_ask *ask;

	if (!t->run[k].bytes)
		return NULL;
	ask = &t->s->read[v->read[k]].ask;
	return ask->to + (t->run[k].at + (uint64_t)v->of.id * t->run[k].bytes - ask->at);
}

struct rows_made {
	const struct row_table *t;
	const struct row_want *v;
	float *out;
};

static void decode_rows(void *ctx, int begin, int end)
{
	const struct rows_made *j = ctx;
	size_t cols = (size_t)j->t->w.cols;

	for (int i = begin; i < end; i++) {
		const struct row_want *v = &j->v[i];
		struct weight w = j->t->w;

		if (failed_read(j->t, v)) {
			memset(j->out + (size_t)v->of.to * cols, 0, cols * sizeof *j->out);
			continue;
		}
		w.rows = 1;
		w.data = row_at(j->t, v, 0);
		w.scales = row_at(j->t, v, 1);
		w.biases = row_at(j->t, v, 2);
		weight_decode(j->out + (size_t)v->of.to * cols, &w, 0);
	}
}

void row_table_read(struct row_table *t, struct pass *p, const struct row_asked *ask, int all, float *out)
{
	struct row_tables *s = t->s;
	struct row_want *v = sort_wants(t, ask, all);

	s->told = false;
	s->stats.rows += all;
	for (int at = 0, n; at < all; at += n) {
		struct rows_made j = { t, v + at, out };

		n = turn_length(t, v + at, all - at);
		read_rows(t, v + at, n);
		for (int i = at; i < at + n; i++) {
			const struct row_read *r = failed_read(t, &v[i]);

			if (r)
				spoil_row(t, p, &v[i], r);
		}
		cpu_range(s->c, decode_rows, &j, n, cpu_grain_rows(t->w.cols));
	}
}

void row_table_embed(struct row_table *t, struct pass *p, float *out)
{
	struct row_asked *ask = room_get(&t->s->c->parts, (size_t)p->n_row * sizeof *ask);

	for (int i = 0; i < p->n_row; i++)
		ask[i] = (struct row_asked){ .id = p->tok[i] < 0 ? 0 : p->tok[i], .row = i, .to = i };
	row_table_read(t, p, ask, p->n_row, out);
}

struct row_table *row_tables_find(struct row_tables *s, const struct weight *w)
{
	for (int i = 0; s && i < s->n; i++)
		if (s->table[i].w.data == w->data)
			return &s->table[i];
	return NULL;
}

/* ---- opening ---- */

/* Finds where the table lies; E_UNSUPPORTED: in none of the files.  *row: most bytes that a row takes of the buffer. */
static int lay_table(struct row_tables *s, const struct weight *w, const struct rows_opts *how, size_t *row,
                     struct err *err)
{
	struct row_table *t = &s->table[s->n];
	struct weight_run run[WEIGHT_RUNS];

	weight_runs(run, w);
	*t = (struct row_table){ .s = s, .w = *w };
	t->w.packed = NULL;
	*row = 0;
	for (int k = 0; k < WEIGHT_RUNS; k++) {
		int f;

		if (!run[k].each)
			continue;
		f = stream_file_of(how->file, how->n_file, run[k].p, (size_t)w->rows * run[k].each);
		if (f < 0)
			return err_set(err, E_UNSUPPORTED,
			               "%s: made when the model is opened, so that it cannot be read when it is used",
			               w->name);
		t->run[k] = (struct row_run){ .file = &s->file[f],
			                      .at = (uint64_t)(run[k].p - how->file[f].map->p),
			                      .bytes = run[k].each,
			                      .span = page_up(run[k].each + READ_ALIGN - 1) };
		*row += t->run[k].span;
	}
	s->n++;
	return 0;
}

static int open_buffer(struct row_tables *s, const struct rows_opts *how, const size_t *row, struct err *err)
{
	int most = 0;

	s->bytes = page_up(how->bytes);
	for (int i = 0; i < s->n; i++)
		s->bytes = row[i] > s->bytes ? row[i] : s->bytes;
	for (int i = 0; i < s->n; i++) {
		size_t n = s->bytes / row[i];

		s->table[i].rows_most = n < (size_t)s->table[i].w.rows ? (int)n : s->table[i].w.rows;
		most = s->table[i].rows_most > most ? s->table[i].rows_most : most;
	}
	s->read = xcalloc(size_mul((size_t)most, WEIGHT_RUNS), sizeof *s->read);
	s->buffer = pages_room(s->bytes, true);
	return s->buffer ?
	               0 :
	               err_set(err, E_FULL, "memory for rows of tables: the system does not give %zu bytes", s->bytes);
}

static int open_tables(struct row_tables *s, const struct weight *const *table, int n, const struct rows_opts *how,
                       struct err *err)
{
	size_t *row = xcalloc((size_t)n, sizeof *row);
	int rc = stream_files_open(&s->file, how->file, how->n_file, err);

	s->n_file = rc ? 0 : how->n_file;
	for (int i = 0; i < n && !rc; i++)
		rc = lay_table(s, table[i], how, &row[i], err);
	if (!rc)
		rc = open_buffer(s, how, row, err);
	if (!rc)
		rc = reads_open(&s->reads, how->way, ROW_READS, err);
	free(row);
	return rc;
}

int cpu_stream_rows(struct backend *be, const struct weight *const *table, int n, const struct rows_opts *how,
                    struct err *err)
{
	struct cpu_backend *c = (struct cpu_backend *)be;
	struct row_tables *s = xcalloc(1, sizeof *s);
	int rc;

	assert(n > 0 && !c->rows);
	s->c = c;
	s->table = xcalloc((size_t)n, sizeof *s->table);
	rc = open_tables(s, table, n, how, err);
	if (rc) {
		row_tables_free(s);
		return rc;
	}
	c->rows = s;
	pack_without_rows(c->pack, table, n);
	return 0;
}

void row_tables_free(struct row_tables *s)
{
	if (!s)
		return;
	reads_close(s->reads);
	stream_files_close(s->file, s->n_file);
	if (s->buffer)
		pages_free(s->buffer, s->bytes);
	free(s->wants.p);
	free(s->read);
	free(s->table);
	free(s);
}

void cpu_row_stats(const struct backend *be, struct row_stats *out)
{
	const struct row_tables *s = ((const struct cpu_backend *)be)->rows;

	*out = (struct row_stats){ 0 };
	if (!s)
		return;
	*out = s->stats;
	out->tables = s->n;
	for (int i = 0; i < s->n; i++)
		for (int k = 0; k < WEIGHT_RUNS; k++)
			out->table_bytes += (size_t)s->table[i].w.rows * s->table[i].run[k].bytes;
	out->buffer_bytes = s->bytes;
	out->way = reads_name(s->reads);
}
