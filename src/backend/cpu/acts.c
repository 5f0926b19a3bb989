/* acts.c - activations as a product's kernels want them: quantised, and by tiles where
 * there are enough rows. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/races.h"
#include "quant/basis.h"

int cpu_act_group(struct cpu_backend *c, const struct weight *w, enum arith arith, int n)
{
	enum acts_form form = arith == ARITH_FAST ? cpu_kernels(c, w->fmt)->acts : ACTS_FLOAT;

	return form == ACTS_INT8 ? w->group : form == ACTS_BF16 && n >= ACTS_TILED ? ACTS_PAIRS : 0;
}

/* Rows that one thread makes at a time; with a tile, those of the tile. */
struct unit {
	int r, n;
	uint8_t *tile;
};

struct acts_job {
	struct cpu_backend *c;
	const struct acts *from;
	const int *row;
	bool there;      /* in order and quantised already: only tiles are made */
	struct acts all; /* of all runs, without tiles */
	int8_t *q;
	float *scale, *scaled_sum, *gathered;
	int32_t *sum;
	acts_tile_fn *lay;
	struct unit *unit;
};

static void make_row(const struct acts_job *j, size_t r)
{
	const struct acts *from = j->from;
	size_t k = j->row ? (size_t)j->row[r] : r, cols = (size_t)from->cols;
	size_t groups = j->q ? cols / (size_t)j->all.group : 0, at = r * groups;

	if (!j->q) {
		if (j->gathered)
			memcpy(j->gathered + r * cols, from->f + k * from->ld, cols * sizeof(float));
		return;
	}
	if (!from->q) {
		j->c->quantise(j->q + r * cols, j->scale + at, j->sum + at, j->scaled_sum + at, from->f + k * from->ld,
		               from->cols, j->all.group);
		return;
	}
	memcpy(j->q + r * cols, from->q + k * cols, cols);
	memcpy(j->scale + at, from->scale + k * groups, groups * sizeof *j->scale);
	memcpy(j->sum + at, from->sum + k * groups, groups * sizeof *j->sum);
	memcpy(j->scaled_sum + at, from->scaled_sum + k * groups, groups * sizeof *j->scaled_sum);
}

static void make_units(void *ctx, int begin, int end)
{
	const struct acts_job *j = ctx;

	for (const struct unit *u = j->unit + begin; u < j->unit + end; u++) {
		for (int r = u->r; r < u->r + u->n && !j->there; r++)
			make_row(j, (size_t)r);
		if (u->tile) {
			for (int r = u->r; r < u->r + u->n && j->all.f; r++)
				races_read(j->all.f + (size_t)r * j->all.ld, (size_t)j->all.cols * sizeof *j->all.f);
			races_write(u->tile, 64);
			j->lay(u->tile, &j->all, u->r, u->n);
		}
	}
}

/* The job's memory; returns where its tiles begin. */
static uint8_t *job_room(struct acts_job *j, int units, size_t tile_bytes, int at)
{
	struct acts *a = &j->all;
	size_t values = (size_t)a->rows * (size_t)a->cols, groups = a->group ? values / (size_t)a->group : 0;
	size_t floats = j->row && !a->group ? values * sizeof(float) : 0, codes = a->group && !j->there ? values : 0;
	uint8_t *p = room_get(&j->c->acts[at], codes + floats + (codes ? 12 * groups : 0) + tile_bytes +
	                                               (size_t)units * sizeof *j->unit + 7 * 64);

	j->unit = room_take(&p, (size_t)units * sizeof *j->unit);
	if (floats)
		a->f = j->gathered = room_take(&p, floats);
	if (codes) {
		a->q = j->q = room_take(&p, values);
		a->scale = j->scale = room_take(&p, 4 * groups);
		a->scaled_sum = j->scaled_sum = room_take(&p, 4 * groups);
		a->sum = j->sum = room_take(&p, 4 * groups);
	}
	return p;
}

/* Rows [r0, r1) of a, which have no tiles. */
static struct acts rows_of(const struct acts *a, int r0, int r1)
{
	size_t r = (size_t)r0, groups = a->group ? (size_t)(a->cols / a->group) : 0;
	struct acts part = *a;

	part.rows = r1 - r0;
	if (a->f)
		part.f += r * a->ld;
	if (a->group) {
		part.q += r * (size_t)a->cols;
		part.scale += r * groups;
		part.scaled_sum += r * groups;
		part.sum += r * groups;
	}
	return part;
}

void cpu_acts_runs(struct cpu_backend *c, struct acts *run, const int *first, int n_run, const struct acts *from,
                   const int *row, int group, int at)
{
	struct acts_job j = { .c = c,
		              .from = from,
		              .row = row,
		              .lay = group == ACTS_PAIRS ? c->pair :
		                     group               ? c->tile :
		                                           NULL };
	int cols = from->cols;
	size_t tile_bytes = group == ACTS_PAIRS ? acts_pairs_bytes(cols) : group ? acts_tile_bytes(cols, group) : 0;
	int units = 0, tiles = 0, n = first[n_run];
	uint8_t *tile;

	assert(at < ACTS_MAX && (group <= 0 || cols % group == 0) && (!from->q || from->group == group));
	j.there = from->q && !row;
	j.all = (struct acts){ .rows = n,
		               .cols = cols,
		               .f = row ? NULL : from->f,
		               .ld = row ? (size_t)cols : from->ld,
		               .group = group > 0 ? group : 0 };
	if (j.there)
		j.all = *from;
	for (int i = 0; i < n_run; i++) {
		int rows = first[i + 1] - first[i],
		    of_run = j.lay && rows >= ACTS_TILED ? (rows + ACTS_TILE - 1) / ACTS_TILE : 0;

		tiles += of_run;
		units += of_run ? of_run : rows;
	}
	tile = job_room(&j, units, (size_t)tiles * tile_bytes, at);
	units = 0;
	for (int i = 0; i < n_run; i++) {
		int end = first[i + 1], rows = end - first[i], step = j.lay && rows >= ACTS_TILED ? ACTS_TILE : 1;

		run[i] = rows_of(&j.all, first[i], end);
		if (step > 1)
			*(group > 0 ? &run[i].tiles : &run[i].pairs) = tile;
		for (int r = first[i]; r < end; r += step) {
			j.unit[units++] = (struct unit){ r, end - r < step ? end - r : step, step > 1 ? tile : NULL };
			tile += step > 1 ? tile_bytes : 0;
		}
	}
	if ((group || row) && !(j.there && !tiles))
		cpu_range(c, make_units, &j, units, (int)((int64_t)16384 * units / ((int64_t)n * cols + 1)));
}

void cpu_acts(struct cpu_backend *c, struct acts *a, const float *in, int n, int cols, int group, int at)
{
	const struct acts from = { .rows = n, .cols = cols, .f = in, .ld = (size_t)cols };

	cpu_acts_runs(c, a, (const int[]){ 0, n }, 1, &from, NULL, group, at);
}

/* ---- in the basis of a weight ---- */

struct turn_job {
	const struct cpu_backend *c;
	const struct basis *basis;
	float *out;
	const float *in;
};

static void turn_rows(void *ctx, int begin, int end)
{
	const struct turn_job *j = ctx;
	size_t cols = (size_t)j->basis->cols;

	for (size_t r = (size_t)begin; r < (size_t)end; r++) {
		races_read(j->in + r * cols, cols * sizeof *j->in);
		races_write(j->out + r * cols, cols * sizeof *j->out);
		basis_turn(j->basis, &j->c->vec, j->out + r * cols, j->in + r * cols);
	}
}

/* Returns in[rows][cols] in the basis.  It is made once for a call: acts[0..n) that have a basis have this one. */
static const float *turned(struct cpu_backend *c, const struct acts *acts, int n, const struct basis *basis,
                           const float *in, int rows)
{
	struct turn_job j = { .c = c, .basis = basis, .in = in };

	for (int i = 0; i < n; i++)
		if (acts[i].basis) {
			assert(acts[i].basis == basis);
			return acts[i].f;
		}
	j.out = room_get(&c->turned, (size_t)rows * (size_t)basis->cols * sizeof *j.out);
	cpu_range(c, turn_rows, &j, rows, 8192 / basis->cols + 1);
	return j.out;
}

const struct acts *cpu_acts_for(struct cpu_backend *c, struct acts *acts, int *n, const struct weight *w,
                                enum arith arith, const float *in, int rows)
{
	int group = cpu_act_group(c, w, arith, rows), at = 0;

	while (at < *n &&
	       (acts[at].basis != w->basis || (group == ACTS_PAIRS ? !acts[at].pairs : acts[at].group != group)))
		at++;
	if (at == *n) {
		assert(*n < ACTS_MAX);
		if (w->basis)
			in = turned(c, acts, *n, w->basis, in, rows);
		cpu_acts(c, &acts[(*n)++], in, rows, w->cols, group, at);
		acts[at].basis = w->basis;
	}
	return &acts[at];
}

/* ---- made by the producer ---- */

struct made *cpu_made_open(const struct pass *p, const struct weight *reader, const float *of, int n, int stretch)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	int group = reader && !reader->basis ? cpu_act_group(c, reader, p->arith, n) : 0;
	size_t values = reader ? (size_t)n * (size_t)reader->cols : 0, groups;
	struct made *m = &c->made;
	uint8_t *at;

	if (group <= 0 || group > MADE_GROUP_MOST || stretch % group || low_rank_any(p, reader))
		return NULL;
	groups = values / (size_t)group;
	at = room_get(&c->made_room, values + 12 * groups + 4 * 64);
	m->q = room_take(&at, values);
	m->scale = room_take(&at, 4 * groups);
	m->scaled_sum = room_take(&at, 4 * groups);
	m->sum = room_take(&at, 4 * groups);
	m->of = of;
	m->reader = reader;
	m->acts = (struct acts){ .rows = n,
		                 .cols = reader->cols,
		                 .group = group,
		                 .q = m->q,
		                 .scale = m->scale,
		                 .scaled_sum = m->scaled_sum,
		                 .sum = m->sum };
	return m;
}

void cpu_made_put(const struct cpu_backend *c, const struct made *m, int row, int k, const float *x, int n)
{
	size_t at = (size_t)row * (size_t)m->acts.cols + (size_t)k, g = at / (size_t)m->acts.group;

	c->quantise(m->q + at, m->scale + g, m->sum + g, m->scaled_sum + g, x, n, m->acts.group);
}

bool cpu_made_take(struct cpu_backend *c, struct acts *a, const float *in, int n, const struct weight *w)
{
	struct made *m = &c->made;
	bool there = m->of == in;

	m->of = NULL;
	if (!there)
		return false;
	assert(w == m->reader && n == m->acts.rows);
	cpu_acts_runs(c, a, (const int[]){ 0, n }, 1, &m->acts, NULL, m->acts.group, 0);
	return true;
}
