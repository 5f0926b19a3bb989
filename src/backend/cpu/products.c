/* products.c - activations times weights: all products of an operation cut by outputs
 * and spread behind one barrier. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/races.h"
#include "quant/packed.h"

struct part {
	int job, o0, o1;
};

struct products_job {
	struct cpu_backend *c;
	enum arith arith;
	const struct product *job;
	const struct part *part;
	size_t tmp_at, up_at; /* of the threads' scratch: where a part waits, and what it is gated with */
};

/* Outputs per part: a multiple of the kernels' panels (32) and tiles (6, 8),
 * small enough that each thread gets two at least, since a kernel that reads two runs of a part begins
 * and ends at each; of small matrices, where that is not so, PART_OUT_LEAST, half a panel too many.  A thread's share ends
 * at a grain, of many rows a panel.  From MANY rows on a part is computed
 * where it stays in the second cache and then written row by row: straight to where it
 * belongs, each row of a panel would be two lines in a page of its own, unless the kernel asks
 * for those lines early enough itself. */
enum { PART_OUT_LEAST = 48, PART_OUT = 96, PART_OUT_MOST = 960, GRAIN_OUT = 16, GRAIN_MANY = 32, MANY = 17 };

static bool waits(struct cpu_backend *c, const struct product *j, enum arith arith)
{
	int rows = j->r1 - j->r0, prefetch_rows = arith == ARITH_FAST ? cpu_kernels(c, j->w->fmt)->prefetch_rows : 0;

	return j->add || j->up || j->act.kind || j->pairs || j->made ||
	       (rows >= MANY && !(prefetch_rows && rows >= prefetch_rows));
}

static void add_bias(const struct cpu_backend *c, float *to, size_t ld, int rows, const float *bias, int n)
{
	for (int r = 0; r < rows && bias; r++)
		c->op->add(to + (size_t)r * ld, bias, n);
}

/* row[n] holds gates and factors in turn: n / 2 outputs. */
static void gate_pairs(const struct cpu_backend *c, float *out, const float *row, int n, const struct activation *act)
{
	enum { ONCE = 64 };

	for (int i = 0; i < n / 2; i += ONCE) {
		float g[ONCE], u[ONCE];
		int m = n / 2 - i < ONCE ? n / 2 - i : ONCE;

		for (int k = 0; k < m; k++) {
			g[k] = row[2 * (i + k)];
			u[k] = row[2 * (i + k) + 1];
		}
		c->op->gate(out + i, g, u, m, act);
	}
}

/* One row of a part that waited: row[n] to its place, with what is done to it on the way. */
static void row_put(const struct cpu_backend *c, const struct product *j, float *at, const float *row, const float *up,
                    int n)
{
	if (j->pairs)
		gate_pairs(c, at, row, n, &j->act);
	else if (j->up || j->act.kind)
		c->op->gate(at, row, up, n, &j->act);
	else if (j->add)
		c->op->add(at, row, n);
	else if (at != row)
		memcpy(at, row, (size_t)n * sizeof *at);
}

/* Announces the memory that a product's kernel reads and writes (races.h); of a weight, the first bytes of each row or
 * of each packed block of outputs. */
static void announce(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                     int r1)
{
	const uint8_t *packed = w->packed ? atomic_load_explicit(&w->packed->at, memory_order_acquire) : NULL;
	size_t cols = (size_t)x->cols, groups = x->group ? cols / (size_t)x->group : 0;

	for (int r = r0; r < r1; r++) {
		if (x->q) {
			races_read(x->q + (size_t)r * cols, cols);
			races_read(x->scale + (size_t)r * groups, groups * sizeof *x->scale);
		}
		if (x->f)
			races_read(x->f + (size_t)r * x->ld, cols * sizeof *x->f);
		races_write(out + (size_t)(r - r0) * ld, (size_t)(o1 - o0) * sizeof *out);
	}
	for (int t = r0 / ACTS_TILE; x->pairs && t <= (r1 - 1) / ACTS_TILE; t++)
		races_read(x->pairs + (size_t)t * acts_pairs_bytes(x->cols), 64);
	for (int t = r0 / ACTS_TILE; x->tiles && t <= (r1 - 1) / ACTS_TILE; t++)
		races_read(x->tiles + (size_t)t * acts_tile_bytes(x->cols, x->group), 64);
	for (int o = o0; o < o1; o++)
		races_read(w->data + (size_t)o * w->row_bytes, 8);
	if (packed)
		races_read(packed, 64);
}

void cpu_multiply(struct cpu_backend *c, enum arith arith, float *out, size_t ld, const struct weight *w, int o0,
                  int o1, const struct acts *x, int r0, int r1)
{
	if (races_seen())
		announce(out, ld, w, o0, o1, x, r0, r1);
	cpu_kernels(c, w->fmt)->mul[arith](out, ld, w, o0, o1, x, r0, r1, cpu_my_scratch(c));
}

static void product_part(void *ctx, int index)
{
	struct products_job *d = ctx;
	const struct cpu_backend *c = d->c;
	const struct part *t = &d->part[index];
	const struct product *j = &d->job[t->job];
	uint8_t *scratch = cpu_my_scratch(d->c);
	bool wait = waits(d->c, j, d->arith);
	float *out = j->out + t->o0 / (j->pairs ? 2 : 1), *to = wait ? (float *)(scratch + d->tmp_at) : out;
	float *up = (float *)(scratch + d->up_at);
	int n = t->o1 - t->o0, rows = j->r1 - j->r0;
	size_t ld = wait ? (size_t)n : j->ld;

	cpu_multiply(d->c, d->arith, to, ld, j->w, t->o0, t->o1, j->x, j->r0, j->r1);
	add_bias(c, to, ld, rows, j->bias ? j->bias + t->o0 : NULL, n);
	cpu_low_add(c, to, ld, t->o0, n, j->low, j->n_low, j->low_job);
	if (j->up) {
		cpu_multiply(d->c, d->arith, up, ld, j->up, t->o0, t->o1, j->x_up, j->r0, j->r1);
		add_bias(c, up, ld, rows, j->bias_up ? j->bias_up + t->o0 : NULL, n);
		cpu_low_add(c, up, ld, t->o0, n, j->low, j->n_low, j->low_job + 1);
	}
	for (int r = 0; r < rows && wait; r++) {
		enum { AHEAD = 4, LINE = 16 }; /* rows, which lie in pages of their own; floats */
		float *row = to + (size_t)r * ld, *at = j->made ? row : out + (size_t)r * j->ld;

		for (int i = 0; i < n && !j->made && r + AHEAD < rows; i += LINE)
			__builtin_prefetch(at + AHEAD * j->ld + i, 1);
		row_put(c, j, at, row, j->up ? up + (size_t)r * ld : NULL, n);
		if (j->made)
			cpu_made_put(c, j->made, r, t->o0, row, n);
	}
}

/* Relative cost of an output of j: with few rows, that of reading the weight. */
static double output_cost(const struct product *j)
{
	int rows = j->r1 - j->r0;

	return rows > 0 ? (double)(j->w->row_bytes + (j->up ? j->up->row_bytes : 0)) * (8 + rows) : 0;
}

/* n outputs, and as many as are missing to whole groups of what is made of them. */
static int part_outputs(const struct product *j, int n)
{
	int group = j->made ? j->made->acts.group : 1;

	return (n + group - 1) / group * group;
}

/* Parts of at most `step` outputs, whole groups, in order, in a run of equal cost for each thread; begin as
 * pool_run_cut has it.  A part ends where a run does, to the nearest grain. */
static void cut(struct part *part, int *begin, const struct product *job, int n, int step, int threads)
{
	double share = 0, room;
	int n_part = 0, t = 0;

	for (int i = 0; i < n; i++)
		share += job[i].w->rows * output_cost(&job[i]) / threads;
	room = share;
	begin[0] = 0;
	for (int i = 0; i < n; i++) {
		double cost = output_cost(&job[i]);
		int rows = cost > 0 ? job[i].w->rows : 0, most = part_outputs(&job[i], step);
		int grain = part_outputs(&job[i], job[i].r1 - job[i].r0 < MANY ? GRAIN_OUT : GRAIN_MANY);

		for (int o = 0, size; o < rows; o += size) {
			bool last;

			size = rows - o < most ? rows - o : most;
			last = t + 1 < threads && size * cost >= room;
			if (last) {
				int fit = room > 0 ? (int)(room / cost / grain + 0.5) * grain : 0;

				size = fit < size ? fit : size;
			}
			if (size)
				part[n_part++] = (struct part){ i, o, o + size };
			room -= size * cost;
			if (last) {
				begin[++t] = n_part;
				room += share;
			}
		}
	}
	while (t < threads)
		begin[++t] = n_part;
}

static void show(const struct observer *o, const struct product *j)
{
	const struct acts *x = j->x;

	if (x->f && j->r1 > j->r0)
		o->see(o->arg, j->w, x->f + (size_t)j->r0 * x->ld, x->ld, j->r1 - j->r0);
	if (x->f && j->r1 > j->r0 && j->up)
		o->see(o->arg, j->up, x->f + (size_t)j->r0 * x->ld, x->ld, j->r1 - j->r0);
}

void cpu_products(struct cpu_backend *c, enum arith arith, const struct product *job, int n)
{
	struct products_job d = { .c = c, .arith = arith, .job = job };
	size_t outputs = 0, scratch = 0, tmp = 0;
	int step = PART_OUT_MOST, widest = 0, n_part = 0, threads = pool_threads(c->pool), *begin;
	struct part *part;

	for (int i = 0; i < n && c->be.observer && arith == ARITH_F32; i++)
		show(c->be.observer, &job[i]);
	for (int i = 0; i < n; i++)
		outputs += (size_t)job[i].w->rows * (job[i].up ? 2 : 1);
	if (threads > 1) {
		int even = (int)(outputs / (size_t)(2 * threads)) / GRAIN_OUT * GRAIN_OUT;

		step = even < PART_OUT ? PART_OUT_LEAST : even < PART_OUT_MOST ? even : PART_OUT_MOST;
	}
	for (int i = 0; i < n; i++) {
		size_t rows = (size_t)(job[i].r1 - job[i].r0), s = weight_scratch_bytes(job[i].w);

		scratch = s > scratch ? s : scratch;
		s = job[i].up ? weight_scratch_bytes(job[i].up) : 0;
		scratch = s > scratch ? s : scratch;
		if (rows >= MANY && step > PART_OUT)
			step = PART_OUT;
		if (waits(c, &job[i], arith) && tmp < rows)
			tmp = rows;
		n_part += job[i].w->rows / PART_OUT_LEAST + 1;
	}
	for (int i = 0; i < n; i++) /* now that the step is known */
		widest = part_outputs(&job[i], step) > widest ? part_outputs(&job[i], step) : widest;
	tmp = (tmp * (size_t)widest * sizeof(float) + 63) / 64 * 64;
	d.tmp_at = (scratch + 63) / 64 * 64;
	d.up_at = d.tmp_at + tmp;
	cpu_scratch(c, d.up_at + tmp);
	n_part += threads;
	d.part = part = room_get(&c->parts, (size_t)n_part * sizeof *part + ((size_t)threads + 1) * sizeof *begin);
	begin = (int *)(part + n_part);
	cut(part, begin, job, n, step, threads);
	pool_run_cut(c->pool, product_part, &d, begin);
}

void cpu_linear(struct pass *p, const struct linear *job, int n_job, const float *in, int n, int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct product product[LINEAR_JOBS];
	struct acts acts[ACTS_MAX];
	const struct low_run *low = NULL;
	int n_acts = 0, n_low = 0;
	bool taken;

	assert(n_job <= LINEAR_JOBS);
	if (n <= 0)
		return;
	taken = cpu_made_take(c, acts, in, n, job->w);
	assert(!taken || (n_job == 1 && !job->up && !job->act.kind));
	n_acts = taken;
	if (p->adapter)
		n_low = cpu_low_runs(p, &low, job, n_job, acts, &n_acts, in, n);
	for (int i = 0; i < n_job; i++) {
		const struct linear *j = &job[i];

		assert(j->w->cols == cols && !(j->add && j->act.kind) && (!act_needs_factor(j->act.kind) || j->up));
		product[i] = (struct product){
			.w = j->w,
			.x = cpu_acts_for(c, acts, &n_acts, j->w, p->arith, in, n),
			.r1 = n,
			.out = j->out,
			.ld = j->ld,
			.bias = j->bias,
			.add = j->add,
			.act = j->act,
			.low = low,
			.n_low = n_low,
			.low_job = 2 * i,
		};
		assert(!j->reader || (n_job == 1 && !j->add && j->reader->cols == j->w->rows));
		if (n >= MANY && !taken) /* of few rows groups are cut */
			product[i].made = cpu_made_open(p, j->reader, j->out, n, j->w->rows);
		if (j->up) {
			assert(j->up->w->cols == cols && j->up->w->rows == j->w->rows && !j->add);
			product[i].up = j->up->w;
			product[i].x_up = cpu_acts_for(c, acts, &n_acts, j->up->w, p->arith, in, n);
			product[i].bias_up = j->up->bias;
		}
	}
	cpu_products(c, p->arith, product, n_job);
}
