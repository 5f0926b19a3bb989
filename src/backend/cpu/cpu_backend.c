/* cpu_backend.c - the CPU backend: opening it, its memory, and the small operations. */
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/level_ops.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/row_tables.h"
#include "backend/cpu/slots.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/pages.h"

void *room_get(struct room *r, size_t bytes)
{
	if (bytes > r->cap) {
		free(r->p);
		r->cap = (bytes + bytes / 4 + 4095) / 4096 * 4096;
		r->p = aligned_alloc(64, r->cap);
		if (!r->p)
			fault_abort();
	}
	return r->p;
}

void cpu_scratch(struct cpu_backend *c, size_t bytes)
{
	for (int i = 0; i < pool_threads(c->pool); i++)
		room_get(&c->scratch[i], bytes);
}

struct range {
	cpu_range_fn *fn;
	void *ctx;
	int n, parts;
};

static void range_part(void *ctx, int part)
{
	const struct range *r = ctx;

	r->fn(r->ctx, (int)((int64_t)r->n * part / r->parts), (int)((int64_t)r->n * (part + 1) / r->parts));
}

void cpu_range(struct cpu_backend *c, cpu_range_fn *fn, void *ctx, int n, int grain)
{
	/* Four pieces per thread even out what a disturbed thread leaves undone. */
	int most = pool_threads(c->pool) == 1 ? 1 : 4 * pool_threads(c->pool);
	struct range r = { fn, ctx, n, n / (grain > 0 ? grain : 1) };

	if (n <= 0)
		return;
	if (r.parts > most)
		r.parts = most;
	if (r.parts < 1)
		r.parts = 1;
	pool_run(c->pool, range_part, &r, r.parts);
}

int cpu_grain_rows(int cols)
{
	enum { GRAIN = 8192 }; /* below this many floats a second thread costs more than it gives */

	return cols >= GRAIN ? 1 : GRAIN / cols;
}

const struct kernels *cpu_kernels(struct cpu_backend *c, const struct format *f)
{
	for (int i = 0; formats[i]; i++)
		if (formats[i] == f)
			return &c->kernels[i];
	assert(!"a format that is not in the list");
	return NULL;
}

/* ---- memory ---- */

static void *cpu_alloc(struct backend *be, size_t bytes)
{
	void *p = pages_any(bytes ? bytes : 1, true);

	if (p)
		pages_huge(p, bytes); /* a state of megabytes is walked end to end every token */
	return p;
}

/* Whole pages of the system's within. */
static void cpu_discard(struct backend *be, void *p, size_t bytes)
{
	uintptr_t size = page_bytes(), from = ((uintptr_t)p + size - 1) / size * size;
	uintptr_t to = ((uintptr_t)p + bytes) / size * size;

	if (to > from)
		pages_clear((void *)from, to - from);
}

static void cpu_free(struct backend *be, void *p, size_t bytes)
{
	if (p)
		pages_free(p, bytes ? bytes : 1);
}

static void cpu_write(struct backend *be, void *far, const void *near, size_t n)
{
	memcpy(far, near, n);
}
static int cpu_read(struct backend *be, void *near, const void *far, size_t n)
{
	memcpy(near, far, n);
	return 0;
}
static void cpu_copy(struct backend *be, void *dst, const void *src, size_t n)
{
	memmove(dst, src, n);
}

/* ---- operations of one line ---- */

struct rows_job {
	struct cpu_backend *c;
	float *out;
	const float *in, *b, *bias, *t;
	const int32_t *index;
	const struct weight *table;
	size_t ld; /* of in; of out in blend */
	int cols, each;
	float eps, by, cap;
};

static void embed_rows(void *ctx, int begin, int end)
{
	struct rows_job *j = ctx;

	for (int i = begin; i < end; i++) {
		int row = j->index[i] < 0 ? 0 : j->index[i];

		assert(row < j->table->rows);
		weight_decode(j->out + (size_t)i * (size_t)j->cols, j->table, row);
	}
}

static void cpu_embed(struct pass *p, float *out, const struct weight *table)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct rows_job j = { .c = c, .out = out, .index = p->tok, .table = table, .cols = table->cols };
	struct row_table *on_disk = row_tables_find(c->rows, table);

	if (on_disk)
		row_table_embed(on_disk, p, out);
	else
		cpu_range(c, embed_rows, &j, p->n_row, cpu_grain_rows(table->cols));
}

static void cpu_bring(struct pass *p, float *x, int cols, int level)
{
	for (int i = 0; i < p->n_row; i++) {
		const float *v;

		if (p->tok[i] >= 0)
			continue;
		assert(~p->tok[i] < p->brought.n && (level + 1) * cols <= p->brought.cols);
		v = p->brought.v[~p->tok[i]] + (size_t)level * (size_t)cols;
		if (level)
			for (int c = 0; c < cols; c++)
				x[(size_t)i * (size_t)cols + (size_t)c] += v[c];
		else
			memcpy(x + (size_t)i * (size_t)cols, v, (size_t)cols * sizeof *x);
	}
}

static void norm_rows(void *ctx, int begin, int end)
{
	struct rows_job *j = ctx;

	for (int i = begin; i < end; i++)
		j->c->op->norm(j->out + (size_t)i * (size_t)j->cols, j->in + (size_t)i * (size_t)j->cols, j->cols, j->b,
		               j->eps);
}

static void cpu_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, float eps)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct rows_job j = { .c = c, .out = out, .in = in, .b = gain, .cols = cols, .eps = eps };

	cpu_range(c, norm_rows, &j, n, cpu_grain_rows(cols));
}

static void layer_norm_rows(void *ctx, int begin, int end)
{
	struct rows_job *j = ctx;

	for (int i = begin; i < end; i++)
		j->c->op->layer_norm(j->out + (size_t)i * (size_t)j->cols, j->in + (size_t)i * (size_t)j->cols, j->cols,
		                     j->b, j->bias, j->eps);
}

static void cpu_layer_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain,
                           const float *bias, float eps)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct rows_job j = { .c = c, .out = out, .in = in, .b = gain, .bias = bias, .cols = cols, .eps = eps };

	cpu_range(c, layer_norm_rows, &j, n, cpu_grain_rows(cols));
}

static void add_rows(void *ctx, int begin, int end)
{
	struct rows_job *j = ctx;

	for (int i = begin; i < end; i++)
		j->c->op->axpy(j->out + (size_t)i * (size_t)j->cols, j->by, j->in + (size_t)i * j->ld, j->cols);
}

static void cpu_add(struct pass *p, float *x, const float *y, int n, int cols, float scale)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct rows_job j = { .c = c, .out = x, .in = y, .ld = (size_t)cols, .cols = cols, .by = scale };

	cpu_range(c, add_rows, &j, n, cpu_grain_rows(cols));
}

static void map_rows(void *ctx, int begin, int end)
{
	struct rows_job *j = ctx;

	for (int i = begin; i < end; i++) {
		float *x = j->out + (size_t)i * (size_t)j->cols;

		if (j->cap != 0)
			j->c->op->cap(x, j->by, j->cap, j->cols);
		else
			j->c->op->scale(x, j->by, j->cols);
	}
}

static void cpu_map(struct pass *p, float *x, int n, int cols, float scale, float cap)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct rows_job j = { .c = c, .out = x, .cols = cols, .by = scale, .cap = cap };

	cpu_range(c, map_rows, &j, n, cpu_grain_rows(cols));
}

static void mul_rows(void *ctx, int begin, int end)
{
	struct rows_job *j = ctx;

	for (int i = begin; i < end; i++) {
		float *x = j->out + (size_t)i * (size_t)j->cols;
		const float *y = j->in + (size_t)i * j->ld;

		if (j->each == 1)
			j->c->op->mul(x, y, j->cols);
		for (int k = 0; k * j->each < j->cols && j->each > 1; k++)
			j->c->op->scale(x + (size_t)k * (size_t)j->each, y[k], j->each);
	}
}

static void cpu_mul(struct pass *p, float *x, const float *y, size_t y_ld, int each, int n, int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct rows_job j = { .c = c, .out = x, .in = y, .ld = y_ld, .each = each, .cols = cols };

	assert(each > 0 && cols % each == 0);
	cpu_range(c, mul_rows, &j, n, cpu_grain_rows(cols));
}

static void blend_rows(void *ctx, int begin, int end)
{
	struct rows_job *j = ctx;
	size_t cols = (size_t)j->cols;

	for (size_t i = (size_t)begin; i < (size_t)end; i++)
		if (j->t)
			j->c->op->blend(j->out + i * j->ld, j->in + i * cols, j->b + i * cols, j->t + i * cols,
			                j->cols);
		else
			memcpy(j->out + i * j->ld, j->in + i * cols, cols * sizeof *j->out);
}

static void cpu_blend(struct pass *p, float *out, size_t out_ld, const float *a, const float *b, const float *t, int n,
                      int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct rows_job j = { .c = c, .out = out, .ld = out_ld, .in = a, .b = b, .t = t, .cols = cols };

	cpu_range(c, blend_rows, &j, n, cpu_grain_rows(cols));
}

static void cpu_gather(struct pass *p, float *out, const float *in, const int32_t *index, int n, int cols)
{
	for (int i = 0; i < n; i++)
		memcpy(out + (size_t)i * (size_t)cols, in + (size_t)index[i] * (size_t)cols,
		       (size_t)cols * sizeof *out);
}

static void cpu_close(struct backend *be)
{
	struct cpu_backend *c = (struct cpu_backend *)be;

	for (int i = 0; i < pool_threads(c->pool); i++)
		free(c->scratch[i].p);
	for (int i = 0; i < ACTS_MAX; i++)
		free(c->acts[i].p);
	free(c->parts.p);
	free(c->made_room.p);
	free(c->work.p);
	free(c->low.p);
	free(c->low_h.p);
	free(c->turned.p);
	slots_free(c->slots);
	row_tables_free(c->rows);
	pack_free(c->pack);
	pool_free(c->pool);
	free(c->scratch);
	free(c->kernels);
	free(c);
}

static const struct backend_ops cpu_ops = {
	.name = "cpu",
	.adapts = true,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.discard = cpu_discard,
	.near = true,
	.write = cpu_write,
	.read = cpu_read,
	.copy = cpu_copy,
	.place = cpu_place,
	.unplace = cpu_unplace,
	.pack = cpu_pack,
	.stream = cpu_stream,
	.stream_shrink = cpu_stream_shrink,
	.stream_stats = cpu_stream_stats,
	.stream_rows = cpu_stream_rows,
	.row_stats = cpu_row_stats,
	.embed = cpu_embed,
	.bring = cpu_bring,
	.norm = cpu_norm,
	.layer_norm = cpu_layer_norm,
	.linear = cpu_linear,
	.by_head = cpu_by_head,
	.kv_append = cpu_kv_append,
	.attend = cpu_attend,
	.compress = cpu_compress,
	.choose = cpu_choose,
	.attend_chosen = cpu_attend_chosen,
	.conv = cpu_conv,
	.recur = cpu_recur,
	.tape_apply = cpu_tape_apply,
	.moe = cpu_moe,
	.heads = cpu_heads,
	.gate = cpu_gate,
	.affine = cpu_affine,
	.add = cpu_add,
	.map = cpu_map,
	.mul = cpu_mul,
	.blend = cpu_blend,
	.mix_streams = cpu_mix_streams,
	.add_streams = cpu_add_streams,
	.match_streams = cpu_match_streams,
	.conv_block = cpu_conv_block,
	.gate_streams = cpu_gate_streams,
	.join_streams = cpu_join_streams,
	.mean_streams = cpu_mean_streams,
	.embed_ngrams = cpu_embed_ngrams,
	.gather = cpu_gather,
	.close = cpu_close,
};

/* The orders of format.h that levels have. */
static const char *arithmetic_of(const struct choices *c)
{
	static const struct {
		const char *products, *attention, *name;
	} names[] = {
		{ "plain", "plain", "plain" },
		{ "bf16", "bf16", "bf16" },
		{ "bf16", "plain", "bf16, attention plain" },
		{ "plain", "bf16", "plain, attention bf16" },
		{ "bfmmla", "plain", "bfmmla, attention plain" },
	};
	const char *products = level_orders(c->level).products, *attention = level_orders(c->attention).attention;
	size_t i = 0;

	while (strcmp(names[i].products, products) != 0 || strcmp(names[i].attention, attention) != 0) {
		i++;
		assert(i < sizeof names / sizeof *names);
	}
	return names[i].name;
}

/* "avx512bf16", or "avx512bf16, attention avx512". */
static void name_level(struct cpu_backend *c)
{
	const char *all = cpu_level_name(c->choices.level), *attention = cpu_level_name(c->choices.attention);

	if (c->choices.level == c->choices.attention)
		snprintf(c->level, sizeof c->level, "%s", all);
	else
		snprintf(c->level, sizeof c->level, "%s, attention %s", all, attention);
	c->be.level = c->level;
}

struct backend *backend_cpu_open_chosen(int threads, const struct choices *choices)
{
	struct cpu_backend *c = xcalloc(1, sizeof *c);
	enum cpu_level level = choices->level;
	int n = 0;

	c->pool = pool_new(threads);
	c->pack = pack_new();
	c->be = (struct backend){ .ops = &cpu_ops, .threads = pool_threads(c->pool) };
	c->choices = *choices;
	c->be.arithmetic = arithmetic_of(choices);
	c->be.order = "cpu";
	name_level(c);
	c->op = level_ops(level)->op;
	c->recur = level_ops(level)->recur;
	vec_kernels(&c->vec, level);
	c->quantise = acts_quantiser(level);
	c->tile = acts_tiler(level);
	c->pair = acts_pairer(level);
	while (formats[n])
		n++;
	c->kernels = xcalloc((size_t)n, sizeof *c->kernels);
	for (int i = 0; i < n; i++)
		formats[i]->kernels(&c->kernels[i], level);
	c->scratch = xcalloc((size_t)pool_threads(c->pool), sizeof *c->scratch);
	return &c->be;
}

struct backend *backend_cpu_open(int threads, enum cpu_level level)
{
	struct choices c = choices_all(level);

	return backend_cpu_open_chosen(threads, &c);
}

const struct choices *backend_cpu_choices(const struct backend *be)
{
	return &((const struct cpu_backend *)be)->choices;
}

uint64_t backend_cpu_joins(const struct backend *be)
{
	return *pool_joins(((const struct cpu_backend *)be)->pool);
}
