/* mla.c - see mla.h. */
#include "model/mla.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/rotary.h"
#include "model/work.h"

struct mla {
	struct attn op;
	struct weight q_a, q, kv_a, c_rows, pe_rows, o, gate; /* q_a, gate: no rows where there is none */
	const float *norm_q;
	struct weight *to_latent, *from_latent; /* [heads]: Wk_h transposed, [kv_lora][nope]; Wv_h [values][kv_lora] */
	int nope, rope, values, kv_lora;
	int most;              /* positions that a row sees, as are chosen; 0: all */
	struct indexer *index; /* which chooses; NULL: an earlier layer's did */
};

/* ---- config ---- */

/* Factor of the scores' scale that follows from yarn's mscale_all_dim. */
static double yarn_scale(struct conf *c)
{
	struct conf r = { .j = conf_get(c, "rope_scaling"), .file = c->file, .where = "rope_scaling.", .err = c->err };
	double all, factor, s;

	if (!r.j) {
		r.j = conf_get(c, "rope_parameters");
		r.where = "rope_parameters.";
	}
	all = conf_double_or(&r, "mscale_all_dim", 0);
	factor = conf_double_or(&r, "factor", 1);
	c->code = r.code;
	if (!(factor > 1))
		return 1;
	s = 0.1 * all * log(factor) + 1;
	return s * s;
}

/* Queries of positions beyond the context that a model was first trained with grow by their logarithm. */
static void read_bend(struct mla_form *f, struct conf *c)
{
	struct conf r = {
		.j = conf_get(c, "rope_parameters"), .file = c->file, .where = "rope_parameters.", .err = c->err
	};

	if (!r.j || !conf_get(&r, "llama_4_scaling_beta"))
		return;
	f->q_bend = (float)conf_double(&r, "llama_4_scaling_beta");
	f->q_bend_every = conf_int(&r, "original_max_position_embeddings", 1, CONF_CTX_MAX);
	c->code = r.code;
}

void mla_read(struct mla_form *f, struct stack *s, struct conf *c, bool unturned)
{
	struct rotary_defaults r = { .theta = 10000, .partial = 1, .whole = true };
	struct shape *h = &s->m.shape;

	f->hidden = h->hidden;
	f->at = "self_attn";
	f->heads = conf_int(c, "num_attention_heads", 1, CONF_HEADS_MAX);
	f->q_lora = conf_int_or(c, "q_lora_rank", 0, 0, CONF_DIM_MAX);
	f->kv_lora = conf_int(c, "kv_lora_rank", 1, CONF_HEAD_DIM_MAX / 2);
	f->nope = conf_int(c, "qk_nope_head_dim", 1, CONF_HEAD_DIM_MAX);
	f->rope = conf_int(c, "qk_rope_head_dim", unturned ? 0 : 2, CONF_HEAD_DIM_MAX / 2);
	f->values = conf_int(c, "v_head_dim", 1, CONF_HEAD_DIM_MAX);
	if (conf_bool_or(c, "attention_bias", false))
		conf_fail(c, E_UNSUPPORTED, "attention_bias: true is not done by this version");
	if (c->code)
		return;
	f->scale = (float)(yarn_scale(c) / sqrt((double)(f->nope + f->rope)));
	read_bend(f, c);
	f->norm_eps = 1e-6f; /* of both low-rank norms, whatever the config's */
	if (!unturned) {
		rotary_read(&f->turn, c, &r, f->rope, &h->ctx_max, &s->m.vectors);
		f->turn.adjacent = conf_bool_or(c, "rope_interleave", true);
	}
}

/* ---- tensors ---- */

/* Wk_h lies as [nope][kv_lora] in kv_b; products by its other side want it transposed, in bf16 where that is exact. */
static void transpose(struct binder *b, struct weight *out, const struct weight *w, int first, int nope)
{
	int rank = w->cols;
	size_t n = (size_t)nope * (size_t)rank;
	bool half = !strcmp(w->fmt->name, "bf16");
	float *row = xmalloc((size_t)rank * sizeof *row), *at = bind_table(b, half ? (n + 1) / 2 : n);

	for (int i = 0; i < nope; i++) {
		weight_decode(row, w, first + i);
		for (int j = 0; j < rank; j++) {
			if (half) {
				uint16_t bits = float_to_bf16(row[j]);

				memcpy((char *)at + 2 * ((size_t)j * (size_t)nope + (size_t)i), &bits, 2);
			} else {
				at[(size_t)j * (size_t)nope + (size_t)i] = row[j];
			}
		}
	}
	free(row);
	b->code = weight_plain(out, w->name, half ? DT_BF16 : DT_F32, rank, nope, at, n * (half ? 2 : 4), b->err);
}

/* mlx cuts kv_b into two stacks; elsewhere it is one matrix, by head nope rows and then those of the values. */
static void bind_kv_b(struct binder *b, struct mla *a, int heads, const char *at, int layer)
{
	int rows = a->nope + a->values;
	struct weight kv_b;

	a->to_latent = arena_zalloc(&b->m->arena, 2 * (size_t)heads * sizeof *a->to_latent);
	a->from_latent = a->to_latent + heads;
	if (bind_has(b, "layers.%d.%s.embed_q.weight", layer, at)) {
		bind_stack(b, a->to_latent, heads, a->kv_lora, a->nope, "layers.%d.%s.embed_q", layer, at);
		bind_stack(b, a->from_latent, heads, a->values, a->kv_lora, "layers.%d.%s.unembed_out", layer, at);
		return;
	}
	bind_weight(b, &kv_b, heads * rows, a->kv_lora, "layers.%d.%s.kv_b_proj", layer, at);
	bind_rows_only(b, &kv_b); /* read in parts of one head */
	bind_apart(b, &kv_b);
	bind_usual_basis(b, &kv_b);
	for (int h = 0; h < heads && !b->code; h++) {
		transpose(b, &a->to_latent[h], &kv_b, h * rows, a->nope);
		a->from_latent[h] = weight_rows(&kv_b, h * rows + a->nope, a->values);
	}
}

static void bind_queries(struct binder *b, struct mla *a, const struct mla_form *f, int layer)
{
	int rows = f->heads * (f->nope + f->rope);
	const char *at = f->at;

	if (!f->q_lora) {
		bind_weight(b, &a->q, rows, f->hidden, "layers.%d.%s.q_proj", layer, at);
		return;
	}
	bind_weight(b, &a->q_a, f->q_lora, f->hidden, "layers.%d.%s.q_a_proj", layer, at);
	a->norm_q = bind_floats(b, f->q_lora, 0, "layers.%d.%s.q_a_layernorm.weight", layer, at);
	bind_weight(b, &a->q, rows, f->q_lora, "layers.%d.%s.q_b_proj", layer, at);
}

/* ---- forward ---- */

/* The queries of all heads, before they are absorbed, and *out, the low rank that they are made of, where they are. */
static float *queries(struct pass *p, const struct mla *a, const float *h, float **out)
{
	const struct backend_ops *ops = p->be->ops;
	float *q = pass_floats(p, (size_t)p->n_row * (size_t)a->q.rows), *low;
	struct linear job = { .w = &a->q, .out = q, .ld = (size_t)a->q.rows };

	if (!a->q_a.rows) {
		ops->linear(p, &job, 1, h, p->n_row, a->q.cols);
		return q;
	}
	*out = low = pass_floats(p, (size_t)p->n_row * (size_t)a->q_a.rows);
	ops->linear(p, &(struct linear){ .w = &a->q_a, .out = low, .ld = (size_t)a->q_a.rows }, 1, h, p->n_row,
	            a->q_a.cols);
	ops->norm(p, low, low, p->n_row, a->q_a.rows, a->norm_q, a->op.eps);
	ops->linear(p, &job, 1, low, p->n_row, a->q.cols);
	return q;
}

/* Attention of the absorbed queries to the positions that the layer's rows see. */
static void attend(struct pass *p, const struct block *y, float *mixed, const float *absorbed, const float *h,
                   const float *low, const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct mla *a = y->own;
	const struct kv_view *view = v->kv[y->kv.group];
	size_t dim = (size_t)a->op.dim, all = (size_t)a->op.heads * dim;
	int32_t *chosen = (int32_t *)v->shared;

	if (a->index)
		indexer_choose(p, a->index, chosen, h, low);
	if (a->most)
		ops->attend_chosen(p, mixed, &a->op, absorbed, NULL, all, dim, chosen, a->most, view, y->kv.index);
	else
		ops->attend(p, mixed, &a->op, absorbed, NULL, all, dim, view, y->kv.index);
}

/* values *= sigmoid(gate h), a number for each head or for each value. */
static void gate_values(struct pass *p, const struct mla *a, float *values, const float *h)
{
	size_t ld = (size_t)a->gate.rows;
	float *gate = pass_floats(p, (size_t)p->n_row * ld);
	struct linear job = { .w = &a->gate, .out = gate, .ld = ld, .act = { .kind = ACT_SIGMOID } };

	p->be->ops->linear(p, &job, 1, h, p->n_row, a->gate.cols);
	p->be->ops->mul(p, values, gate, ld, a->o.cols / a->gate.rows, p->n_row, a->o.cols);
}

static void mla_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                    const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct mla *a = y->own;
	size_t mark = p->work.used, n = (size_t)p->n_row, dim = (size_t)a->op.dim, heads = (size_t)a->op.heads;
	float *absorbed = pass_floats(p, n * heads * dim), *row = pass_floats(p, n * dim);
	float *mixed = pass_floats(p, n * heads * dim), *values = pass_floats(p, n * (size_t)a->o.cols), *q,
	      *low = NULL;
	const struct linear in[] = { { .w = &a->c_rows, .out = row + a->rope, .ld = dim },
		                     { .w = &a->pe_rows, .out = row, .ld = dim } };
	struct linear o = { .w = &a->o, .out = out, .ld = (size_t)a->o.rows, .add = add };
	const struct by_head to = { .w = a->to_latent,
		                    .heads = a->op.heads,
		                    .in_head = (size_t)(a->nope + a->rope),
		                    .out_head = dim,
		                    .rest = a->rope };
	const struct by_head from = {
		.w = a->from_latent, .heads = a->op.heads, .in_head = dim, .out_head = (size_t)a->values
	};

	ops->linear(p, in, a->rope ? 2 : 1, h, p->n_row, a->kv_a.cols);
	q = queries(p, a, h, &low);
	ops->by_head(p, absorbed, &to, q, p->n_row);
	ops->kv_append(p, &a->op, absorbed, heads * dim, dim, row, row, v->kv[y->kv.group], y->kv.index);
	attend(p, y, mixed, absorbed, h, low, v);
	ops->by_head(p, values, &from, mixed + a->rope, p->n_row);
	if (a->gate.rows)
		gate_values(p, a, values, h);
	ops->linear(p, &o, 1, values, p->n_row, a->o.cols);
	p->work.used = mark;
}

static size_t mla_room(const struct block *y, int n_row)
{
	const struct mla *a = y->own;

	return 2 * work_floats_of(n_row, a->op.heads * a->op.dim) + work_floats_of(n_row, a->op.dim) +
	       work_floats_of(n_row, a->o.cols) + work_floats_of(n_row, a->q.rows) +
	       work_floats_of(n_row, a->q_a.rows) + work_floats_of(n_row, a->gate.rows) +
	       (a->index ? indexer_floats(a->index, n_row) : 0);
}

static const struct block_ops mla_block = { mla_run, mla_room };

struct block *stack_add_mla(struct stack *s, struct binder *b, const struct mla_form *f, const float *norm, int layer)
{
	struct mla *a = arena_zalloc(&b->m->arena, sizeof *a);
	struct block *y = stack_add(s, &mla_block, a, norm);
	const char *at = f->at;

	const struct kv_group row = {
		.heads = 1, .dim_k = f->rope + f->kv_lora, .dim_v = f->rope + f->kv_lora, .latent = true
	};

	*a = (struct mla){ .nope = f->nope, .rope = f->rope, .values = f->values, .kv_lora = f->kv_lora };
	a->op = (struct attn){ .heads = f->heads,
		               .heads_kv = 1,
		               .dim = f->rope + f->kv_lora,
		               .scale = f->scale,
		               .eps = f->norm_eps,
		               .first = f->first,
		               .q_bend = f->q_bend,
		               .q_bend_every = f->q_bend_every,
		               .rope = f->turn,
		               .norm_from = f->rope,
		               .v_is_key = true };
	bind_scores_scale(b, f->scale);
	bind_queries(b, a, f, layer);
	bind_weight(b, &a->kv_a, f->kv_lora + f->rope, f->hidden, "layers.%d.%s.kv_a_proj_with_mqa", layer, at);
	a->op.k_norm = bind_floats(b, f->kv_lora, 0, "layers.%d.%s.kv_a_layernorm.weight", layer, at);
	bind_kv_b(b, a, f->heads, f->at, layer);
	bind_weight(b, &a->o, f->hidden, f->heads * f->values, "layers.%d.%s.%s", layer, at,
	            f->o_proj ? f->o_proj : "o_proj");
	if (f->gates)
		bind_weight(b, &a->gate, f->gates, f->hidden, "layers.%d.%s.g_proj", layer, at);
	if (!b->code) {
		a->c_rows = weight_rows(&a->kv_a, 0, f->kv_lora);
		if (f->rope)
			a->pe_rows = weight_rows(&a->kv_a, f->kv_lora, f->rope);
	}
	if (!b->code)
		b->code = model_kv_add(&s->m, &row, &y->kv, b->err);
	if (!f->index)
		return y;
	a->most = f->index->most;
	s->shared = a->most + 1; /* a row's choice */
	if (!f->follows)
		a->index = indexer_bind(b, f->index, at, layer);
	return y;
}
