/* device_attend.c - see device_attend.h. */
#include "backend/device/device_attend.h"

#include <assert.h>
#include <string.h>

#include "backend/rope.h"
#include "quant/kv_layout.h"

enum {
	SEGMENT = 256, /* of attend.cl */
	DIM_MOST = 576,
	ENOUGH_GROUPS = 264 /* two work-groups a multiprocessor of the widest device: units alone fill it */
};

/* For heads of dim. */
static struct kv_shape kv_shape_of(const struct kv_layer *layer, enum kv_side side, int dim)
{
	struct kv_layout l = kv_layout_of(layer->fmt[side], dim);
	struct kv_shape s = { .bits = l.bits,
		              .group = l.group,
		              .row_bytes = (int)layer->row_bytes[side],
		              .at = (int)layer->at[side],
		              .unit = l.unit };

	memcpy(s.book, l.book, sizeof s.book);
	return s;
}

/* The rotation, which is the same for keys and values. */
static struct kv_turn kv_turn_of(const struct kv_layer *layer, int dim)
{
	struct kv_layout l = kv_layout_of(layer->fmt[KV_KEYS], dim);
	struct kv_turn turn;

	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 32; i++)
			turn.negative[round][i] = l.negative[round][i];
	return turn;
}

bool device_attn_serves(const struct attn *a)
{
	return a->dim <= DIM_MOST && a->dim % 4 == 0;
}

bool device_attn_turned(const struct attn *a, const struct kv_layer *layer)
{
	return kv_layout_of(layer->fmt[KV_KEYS], a->dim).unit != 0 ||
	       kv_layout_of(layer->fmt[KV_VALUES], a->dim).unit != 0;
}

struct append_shape append_shape_of(const struct attn *a, size_t q_row, size_t q_head, const struct kv_view *v,
                                    int layer)
{
	struct append_shape s = {
		.heads = a->heads,
		.heads_kv = a->heads_kv,
		.dim = a->dim,
		.q_row = (int)q_row,
		.q_head = (int)q_head,
		.n_freq = a->rope.n_freq,
		.apart = a->rope.apart ? a->rope.apart : a->rope.n_freq,
		.adjacent = a->rope.adjacent,
		.norm_from = a->norm_from,
		.v_norm = a->v_norm,
		.v_is_key = a->v_is_key,
		.eps = a->eps,
	};

	assert(a->dim <= DIM_MOST);
	if (v) {
		s.page_rows = v->page_rows, s.page_max = v->page_max, s.page_bytes = (int)v->page_bytes;
		s.k = kv_shape_of(&v->layer[layer], KV_KEYS, a->dim);
		s.v = kv_shape_of(&v->layer[layer], KV_VALUES, a->dim);
		s.turn = kv_turn_of(&v->layer[layer], a->dim);
	}
	return s;
}

struct attend_shape attend_shape_of(const struct attn *a, size_t q_row, size_t q_head, const struct kv_view *v,
                                    int layer)
{
	return (struct attend_shape){
		.heads = a->heads,
		.heads_kv = a->heads_kv,
		.dim = a->dim,
		.q_row = (int)q_row,
		.q_head = (int)q_head,
		.page_rows = v->page_rows,
		.page_max = v->page_max,
		.page_bytes = (int)v->page_bytes,
		.k = kv_shape_of(&v->layer[layer], KV_KEYS, a->dim),
		.v = kv_shape_of(&v->layer[layer], KV_VALUES, a->dim),
		.window = a->window,
		.first = a->first,
		.both_ways = a->both_ways,
		.scale = a->scale,
		.cap = a->softcap,
		.cap_by = a->softcap != 0 ? 2.0f * a->scale / a->softcap : 0.0f,
		.turn = kv_turn_of(&v->layer[layer], a->dim),
	};
}

void step_rows(struct step_row *to, const struct pass *p)
{
	for (int i = 0; i < p->n_row; i++)
		to[i] = (struct step_row){ p->item[i], p->pos[i], p->see ? p->see[i] : p->pos[i] };
}

void step_angles(float *cosines, float *sines, float *bend, const struct attn *a, const struct pass *p)
{
	size_t n = (size_t)a->rope.n_freq;

	for (int i = 0; i < p->n_row; i++) {
		rope_angles(cosines + (size_t)i * n, sines + (size_t)i * n, &a->rope, p, i);
		bend[i] = q_bend_at(a, p->pos[i]);
	}
}

/* ---- units ---- */

/* A build of attend.cl for heads of up to dim. */
struct dim_class {
	int dim, threads;
	const char *module, *turned; /* NULL: only heads of up to 512 dims, a power of two, are rotated */
};

static const struct dim_class *dim_class(int dim)
{
	static const struct dim_class all[] = {
		{ 64, 256, "attend_64", "attend_turned_64" },    { 128, 256, "attend_128", "attend_turned_128" },
		{ 256, 256, "attend_256", "attend_turned_256" }, { 512, 256, "attend_512", "attend_turned_512" },
		{ DIM_MOST, DIM_MOST / 2, "attend_576", NULL },
	};
	const struct dim_class *c = all;

	while (c->dim < dim)
		c++;
	return c;
}

static int queries_most(int dim)
{
	return dim > 256 ? 8 : 16;
}

/* Parts of the query heads that share a key head, a work-group each. */
static int head_parts(const struct attn *a)
{
	int group = a->heads / a->heads_kv, most = queries_most(a->dim);

	return (group + most - 1) / most;
}

int attend_units_cut(struct attend_unit *u, const struct attn *a, const struct pass *p)
{
	int group = a->heads / a->heads_kv, rows = queries_most(a->dim) / group, n_unit = 0;

	for (int r = 0, n; r < p->n_row; r += n) {
		for (n = 1; r + n < p->n_row && n < rows && p->item[r + n] == p->item[r]; n++)
			;
		u[n_unit++] = (struct attend_unit){ r, n };
	}
	return n_unit;
}

/* As kernels/attend.cl has it. */
static int first_segment(const struct attn *a, int pos)
{
	int first = a->window ? pos - a->window + 1 : 0;

	if (first < a->first && pos >= a->first)
		first = a->first;
	return (first > 0 ? first : 0) / SEGMENT;
}

size_t attend_part_bytes(const struct attn *a, const struct pass *p, const struct attend_unit *u, int n_unit,
                         int *segments)
{
	size_t groups = (size_t)n_unit * (size_t)(a->heads_kv * head_parts(a));
	int most = 1;

	for (int i = 0; i < n_unit; i++) {
		int last = u[i].row + u[i].n - 1, see = a->both_ways && p->see ? p->see[last] : p->pos[last];
		int n = see / SEGMENT + 1 - first_segment(a, p->pos[u[i].row]);

		most = n > most ? n : most;
	}
	*segments = most > 1 && groups < ENOUGH_GROUPS ? most : 0;
	return groups * (size_t)*segments * (size_t)(queries_most(a->dim) * (dim_class(a->dim)->dim + 2)) *
	       sizeof(float);
}

/* ---- the operations ---- */

int device_append(struct kernel_set *s, const struct device_attn *m, const struct attn *a, int n_row, struct dmem q,
                  struct dmem k, struct dmem v, struct err *err)
{
	return kernels_run(s, "append", "append", 64, (q.base ? a->heads : 0) + (k.base ? 2 * a->heads_kv : 0), n_row,
	                   DARGS(darg_mem(q), darg_mem(k), darg_mem(v), darg_mem(m->pages), darg_mem(m->page),
	                         darg_mem(m->rows), darg_mem(m->cosines), darg_mem(m->sines), darg_mem(m->bend),
	                         darg_mem(m->q_norm), darg_mem(m->k_norm), darg_mem(m->append_shape)),
	                   err);
}

int device_attend(struct kernel_set *s, const struct device_attn *m, const struct attn *a, struct dmem out,
                  struct dmem q, struct dmem gate, int n_unit, int segments, struct err *err)
{
	const struct dim_class *c = dim_class(a->dim);
	const char *module = m->turned ? c->turned : c->module;
	int groups = n_unit * a->heads_kv * head_parts(a), threads = c->threads, code;

	assert(module);
	if (!segments)
		return kernels_run(s, module, "attend", threads, groups, 1,
		                   DARGS(darg_mem(out), darg_mem(q), darg_mem(gate), darg_mem(m->sinks),
		                         darg_mem(m->pages), darg_mem(m->page), darg_mem(m->rows), darg_mem(m->units),
		                         darg_mem(m->attend_shape)),
		                   err);
	code = kernels_run(s, module, "attend_part", threads, groups, segments,
	                   DARGS(darg_mem(m->part), darg_mem(q), darg_mem(m->pages), darg_mem(m->page),
	                         darg_mem(m->rows), darg_mem(m->units), darg_mem(m->attend_shape), darg_int(segments)),
	                   err);
	if (code)
		return code;
	return kernels_run(s, module, "attend_merge", threads, groups, 1,
	                   DARGS(darg_mem(out), darg_mem(m->part), darg_mem(gate), darg_mem(m->sinks),
	                         darg_mem(m->rows), darg_mem(m->units), darg_mem(m->attend_shape), darg_int(segments)),
	                   err);
}
