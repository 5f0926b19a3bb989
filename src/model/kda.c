/* kda.c - see kda.h. */
#include "model/kda.h"

#include "model/mamba.h"
#include "model/work.h"

enum { TO_Q, TO_K, TO_V, TO_B, TO_F, TO_G, TO_COUNT };

struct kda {
	struct recur op;
	struct weight in[TO_COUNT]; /* TO_F and TO_G: to the low rank, if there is one */
	struct weight f, g, out;    /* f, g: from it; no rows where there is none */
};

/* F or G from the low rank; of full rank it is there already. */
static void widen(struct pass *p, const struct weight *w, float *out, const float *low)
{
	struct linear job = { .w = w, .out = out, .ld = (size_t)w->rows };

	if (w->rows)
		p->be->ops->linear(p, &job, 1, low, p->n_row, w->cols);
}

static void kda_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                    const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct kda *a = y->own;
	size_t mark = p->work.used, n = (size_t)p->n_row, inner = (size_t)a->in[TO_Q].rows;
	float *x = pass_floats(p, 3 * n * inner), *f = pass_floats(p, n * inner), *z = pass_floats(p, n * inner);
	float *b = pass_floats(p, n * (size_t)a->in[TO_B].rows), *mixed = pass_floats(p, n * inner);
	float *low_f = a->f.rows ? pass_floats(p, n * (size_t)a->in[TO_F].rows) : f;
	float *low_g = a->g.rows ? pass_floats(p, n * (size_t)a->in[TO_G].rows) : z;
	float *to[TO_COUNT] = { x, x + inner, x + 2 * inner, b, low_f, low_g };
	struct linear job[TO_COUNT];
	struct linear o = { .w = &a->out, .out = out, .ld = (size_t)a->out.rows, .add = add };

	for (int i = 0; i < TO_COUNT; i++)
		job[i] = (struct linear){ .w = &a->in[i],
			                  .out = to[i],
			                  .ld = i <= TO_V ? 3 * inner : (size_t)a->in[i].rows };
	ops->linear(p, job, TO_COUNT, h, p->n_row, a->in[0].cols);
	widen(p, &a->f, f, low_f);
	widen(p, &a->g, z, low_g);
	ops->recur(p, mixed, &a->op, &(struct recur_in){ .x = x, .z = z, .a = f, .b = b }, v->state, y->layer);
	ops->linear(p, &o, 1, mixed, p->n_row, a->out.cols);
	p->work.used = mark;
}

static size_t kda_room(const struct block *y, int n_row)
{
	const struct kda *a = y->own;
	int inner = a->in[TO_Q].rows;

	return work_floats_of(n_row, 3 * inner) + 3 * work_floats_of(n_row, inner) +
	       work_floats_of(n_row, a->in[TO_B].rows) + work_floats_of(n_row, a->in[TO_F].rows) +
	       work_floats_of(n_row, a->in[TO_G].rows);
}

static const struct block_ops kda_block = { kda_run, kda_room };

/* f_proj or g_proj, in one matrix or in two. */
static void bind_gate(struct binder *b, struct weight *to, struct weight *from, const struct kda_form *f, char name,
                      int hidden, int i)
{
	int inner = f->heads * f->dim;

	if (bind_has(b, "layers.%d.%s.%c_a_proj.weight", i, f->at, name)) {
		bind_weight(b, to, f->dim, hidden, "layers.%d.%s.%c_a_proj", i, f->at, name);
		bind_weight(b, from, inner, f->dim, "layers.%d.%s.%c_b_proj", i, f->at, name);
	} else {
		bind_weight(b, to, inner, hidden, "layers.%d.%s.%c_proj", i, f->at, name);
	}
}

struct block *stack_add_kda(struct stack *s, struct binder *b, const struct kda_form *f, const float *norm, int i)
{
	static const char *const names[] = { "q_proj", "k_proj", "v_proj", "b_proj" };
	struct kda *a = arena_zalloc(&b->m->arena, sizeof *a);
	struct block *y = stack_add(s, &kda_block, a, norm);
	int inner = f->heads * f->dim, hidden = s->m.shape.hidden;

	for (int k = 0; k <= TO_B; k++)
		bind_weight(b, &a->in[k], k <= TO_V ? inner : f->heads, hidden, "layers.%d.%s.%s", i, f->at, names[k]);
	bind_gate(b, &a->in[TO_F], &a->f, f, 'f', hidden, i);
	bind_gate(b, &a->in[TO_G], &a->g, f, 'g', hidden, i);
	bind_weight(b, &a->out, hidden, inner, "layers.%d.%s.o_proj", i, f->at);
	a->op = (struct recur){ .conv = mamba_conv_qkv(b, (const int[]){ inner, inner, inner }, f->width, f->at, i),
		                .a_log_exp = bind_exp(b, bind_floats(b, f->heads, 0, "layers.%d.%s.A_log", i, f->at),
		                                      f->heads),
		                .dt_bias = bind_floats(b, inner, 0, "layers.%d.%s.dt_bias", i, f->at),
		                .gate_floor = f->floor,
		                .norm = bind_floats(b, f->dim, 0, "layers.%d.%s.o_norm.weight", i, f->at),
		                .eps = s->trunk.eps,
		                .sigmoid_gate = true,
		                .reader = &a->out };
	y->layer = s->m.shape.layers_rec++;
	s->m.shape.state = (struct state_shape){ .layers = s->m.shape.layers_rec,
		                                 .rule = RECUR_KDA,
		                                 .heads_k = f->heads,
		                                 .heads_v = f->heads,
		                                 .dim_k = f->dim,
		                                 .dim_v = f->dim,
		                                 .conv_channels = 3 * inner,
		                                 .conv_width = f->width };
	return y;
}
