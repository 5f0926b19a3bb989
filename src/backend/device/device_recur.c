/* device_recur.c - see device_recur.h. */
#include "backend/device/device_recur.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { THREADS = 256, SCAN_THREADS = 128, COLUMNS = 32, EXACT_DIM = 128, DIM_MOST = 256 };

/* The modules of kernels/recur.cl: for keys of EXACT_DIM dims, and of any number; vectors: of a token. */
static const struct kind {
	const char *exact, *any;
	int vectors, put, decay;
} kinds[RECUR_RULES] = {
	[RECUR_DELTA] = { "delta_128", "delta_any", 2, 0, 0 },
	[RECUR_FIXED] = { "insert_128", "insert_any", 2, 0, 0 },
	[RECUR_SSM] = { "insert_128", "insert_any", 2, 0, 0 },
	[RECUR_KDA] = { "by_key_128", "by_key_any", 4, 2, 3 },
};

bool device_recur_serves(const struct state_shape *s)
{
	return kinds[s->rule].exact && s->dim_k <= DIM_MOST && s->dim_k % 4 == 0 &&
	       (s->rule != RECUR_KDA || s->heads_k == s->heads_v);
}

static const char *module_of(const struct state_shape *s)
{
	return s->dim_k == EXACT_DIM ? kinds[s->rule].exact : kinds[s->rule].any;
}

struct recur_shape recur_shape_of(const struct recur *r, const struct state_view *v, int layer)
{
	const struct state_shape *s = &v->shape;
	struct state_tape tape = state_tape(s);
	int keys = s->heads_k * s->dim_k, values = s->heads_v * s->dim_v, ssm = s->rule == RECUR_SSM;

	return (struct recur_shape){
		.layers = s->layers,
		.layer = layer,
		.heads_k = s->heads_k,
		.heads_v = s->heads_v,
		.dim_k = s->dim_k,
		.dim_v = s->dim_v,
		.tiled = s->tiled,
		.channels = s->conv_channels,
		.width = s->conv_width,
		.x_cols = 2 * keys + values,
		.x_key = ssm ? values : keys,
		.x_query = ssm ? values + keys : 0,
		.x_value = ssm ? 0 : 2 * keys,
		.tape_rows = v->tape_rows,
		.tape_floats = (int)tape.floats,
		.tape_key = (int)tape.key,
		.tape_decay = (int)tape.decay,
		.tape_update = (int)tape.update,
		.decay_n = tape.decay_n,
		.l2 = s->rule == RECUR_DELTA || s->rule == RECUR_KDA,
		.query_scale = ssm || !s->dim_k ? 1.0f : 1.0f / sqrtf((float)s->dim_k),
		.beta_scale = r ? r->beta_scale : 0.0f,
		.gate_floor = r ? r->gate_floor : 0.0f,
		.dt_min = r ? r->dt_min : 0.0f,
		.dt_max = r ? r->dt_max : 0.0f,
	};
}

struct recur_room recur_room_floats(const struct state_shape *s, int n_row)
{
	size_t n = (size_t)n_row, heads_k = (size_t)s->heads_k, heads_v = (size_t)s->heads_v;

	return (struct recur_room){ .kq = n * heads_k * (size_t)(kinds[s->rule].vectors * s->dim_k),
		                    .dot = n * heads_k,
		                    .decay = n * heads_v,
		                    .beta = n * heads_v,
		                    .update = n * heads_v * (size_t)s->dim_v };
}

void step_items(struct step_item *to, const struct pass *p, const struct state_view *v)
{
	for (int i = 0; i < p->n_item; i++) {
		const struct span *sp = &p->span[i];

		to[i] = (struct step_item){ .row = p->row[i],
			                    .n = sp->n,
			                    .sure = state_taped(v, sp),
			                    .slot = sp->slot,
			                    .owed = v->owed[sp->slot],
			                    .taped_at = state_taped_at(v, sp),
			                    .tail = v->still[sp->slot] ? -1 : state_taped(v, sp) };
	}
}

static const struct dmem none;

static int convolve(struct kernel_set *k, const struct device_recur *m, const struct state_view *v, struct dmem out,
                    struct dmem in, struct dmem w, struct dmem bias, bool silu, int at, int n, int n_row,
                    struct err *err)
{
	return kernels_run(k, "conv", "conv", THREADS, (n + THREADS - 1) / THREADS, n_row,
	                   DARGS(darg_mem(out), darg_mem(in), darg_mem(m->tail), darg_mem(m->tape), darg_mem(w),
	                         darg_mem(bias), darg_mem(m->rows), darg_mem(m->items), darg_mem(m->shape),
	                         darg_int(at), darg_int(n), darg_int(n), darg_int(silu)),
	                   err);
}

/* update none: the channels alone. */
static int tape_end(struct kernel_set *k, const struct device_recur *m, const struct state_view *v, struct dmem in,
                    struct dmem update, int at, int n, int n_item, struct err *err)
{
	const struct kind *kind = &kinds[v->shape.rule];
	int dim = v->shape.dim_k, most = update.base ? (int)state_tape_floats(&v->shape) : at + n;

	return kernels_run(k, "conv", "tape_end", THREADS, (most + THREADS - 1) / THREADS, n_item,
	                   DARGS(darg_mem(m->tail), darg_mem(m->tape), darg_mem(m->kept), darg_mem(in), darg_mem(m->kq),
	                         darg_mem(m->decay), darg_mem(update), darg_mem(m->items), darg_mem(m->keeps),
	                         darg_mem(m->shape), darg_int(v->n_keep), darg_int(at), darg_int(n),
	                         darg_int(kind->vectors * dim), darg_int(kind->put * dim), darg_int(kind->decay * dim)),
	                   err);
}

static int scan(struct kernel_set *k, const struct device_recur *m, const struct state_view *v, struct dmem out,
                struct dmem x, int n_item, struct err *err)
{
	const struct state_shape *s = &v->shape;

	return kernels_run(k, module_of(s), "scan", SCAN_THREADS, (s->dim_v + COLUMNS - 1) / COLUMNS,
	                   n_item * s->heads_v,
	                   DARGS(darg_mem(out), darg_mem(m->update), darg_mem(m->s), darg_mem(m->kept),
	                         darg_mem(m->tape), darg_mem(m->kq), darg_mem(m->dot), darg_mem(m->decay),
	                         darg_mem(m->beta), darg_mem(x), darg_mem(m->skip), darg_mem(m->items),
	                         darg_mem(m->keeps), darg_mem(m->shape), darg_int(v->n_keep)),
	                   err);
}

int device_conv(struct kernel_set *k, const struct device_recur *m, const struct state_view *v, struct dmem out,
                const struct conv *conv, const struct dmem *w, const struct dmem *bias, int n_conv, struct dmem in,
                int at, int n, int n_row, int n_item, struct err *err)
{
	int code = 0;

	for (int i = 0; i < n_conv && !code; i++)
		code = convolve(k, m, v, dmem_at(out, (size_t)i * (size_t)n_row * (size_t)n * sizeof(float)), in, w[i],
		                bias[i], conv[i].silu, at, n, n_row, err);
	return code ? code : tape_end(k, m, v, in, none, at, n, n_item, err);
}

int device_recur(struct kernel_set *k, const struct device_recur *m, const struct state_view *v, bool convolved,
                 struct dmem out, struct dmem x, struct dmem a, struct dmem b, int n_row, int n_item, struct err *err)
{
	const struct state_shape *s = &v->shape;
	struct dmem taken = convolved ? x : m->x;
	int code = 0;

	assert(device_recur_serves(s));
	if (!convolved)
		code = convolve(k, m, v, m->x, x, m->conv, m->conv_bias, true, 0, s->conv_channels, n_row, err);
	if (!code)
		code = kernels_run(k, module_of(s), "keys", SCAN_THREADS, s->heads_k, n_row,
		                   DARGS(darg_mem(m->kq), darg_mem(m->dot), darg_mem(m->decay), darg_mem(m->beta),
		                         darg_mem(taken), darg_mem(s->rule == RECUR_FIXED ? none : a), darg_mem(b),
		                         darg_mem(m->rate), darg_mem(m->dt_bias), darg_mem(m->shape)),
		                   err);
	if (!code)
		code = scan(k, m, v, out, taken, n_item, err);
	return code ? code : tape_end(k, m, v, x, m->update, 0, convolved ? 0 : s->conv_channels, n_item, err);
}

int device_tape_apply(struct kernel_set *k, const struct device_recur *m, const struct state_view *v, struct err *err)
{
	const struct device_recur state = {
		.s = m->s, .tail = m->tail, .tape = m->tape, .items = m->items, .shape = m->shape
	};
	struct state_view view = *v;
	int code;

	view.n_keep = 0;
	code = v->shape.heads_v ? scan(k, &state, &view, none, none, 1, err) : 0;
	return code || v->shape.conv_width < 2 ?
	               code :
	               tape_end(k, &state, &view, none, none, 0, v->shape.conv_channels, 1, err);
}
