/* rwkv7.c - RWKV-7: no attention; each layer mixes time through a state and channels through a shift.
 *
 *     h = ln(E[token]);  per layer:  h += time(ln(h));  h += channel(ln(h));  logits = lm_head ln(h)
 *
 *     x_* = u + (u before - u) mu_*                                      for r, w, k, v, a, g
 *     time = o_proj (rule(r x_r, k x_k, v, w_lora x_w, a_lora x_a) g_lora x_g)     (backend/cpu/state/rule_rwkv7.c)
 *     v = v x_v, from the second layer on mixed with the first layer's by sigmoid(v_lora x_v)
 *     channel = value relu(key x_k)^2
 *
 * The shift x_* is a convolution of width 2.  LayerNorms throughout, with a bias.  The first layer's v crosses layers
 * within a token and is not a state. */
#include <string.h>

#include "cache/kinds.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/stack.h"
#include "model/work.h"

enum { OF_R, OF_W, OF_K, OF_V, OF_A, OF_G, MIXES };
enum { LORA_W, LORA_A, LORA_V, LORA_G, LORAS };

struct plan {
	int heads, dim, inner; /* inner: of the channel mix */
	int rank[LORAS];
	float norm_eps; /* of the norm per head */
	bool tied;
};

/* up act(down x) + bias */
struct lora {
	struct weight down, up;
	const float *bias; /* or NULL */
	enum act act;
};

struct time_mix {
	struct recur op;
	struct conv shift[MIXES];
	struct weight r, k, v, out;
	struct lora lora[LORAS]; /* LORA_V: of no rows in the first layer */
	bool first;
};

struct channel_mix {
	struct conv shift;
	struct weight key, value;
};

/* ---- forward ---- */

static void product(struct pass *p, const struct weight *w, const float *in, float *out, size_t ld)
{
	struct linear job = { .w = w, .out = out, .ld = ld };

	p->be->ops->linear(p, &job, 1, in, p->n_row, w->cols);
}

static void lora_run(struct pass *p, const struct lora *a, const float *in, float *out)
{
	size_t mark = p->work.used;
	float *low = pass_floats(p, (size_t)p->n_row * (size_t)a->down.rows);
	struct linear down = { .w = &a->down, .out = low, .ld = (size_t)a->down.rows, .act = { .kind = a->act } };
	struct linear up = { .w = &a->up, .out = out, .ld = (size_t)a->up.rows, .bias = a->bias };

	p->be->ops->linear(p, &down, 1, in, p->n_row, a->down.cols);
	p->be->ops->linear(p, &up, 1, low, p->n_row, a->up.cols);
	p->work.used = mark;
}

static void time_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                     const struct stack_views *view)
{
	const struct backend_ops *ops = p->be->ops;
	const struct time_mix *a = y->own;
	int cols = a->out.cols;
	size_t mark = p->work.used, n = (size_t)p->n_row, inner = (size_t)cols, all = n * inner;
	float *mix = pass_floats(p, MIXES * all), *x = pass_floats(p, 3 * all), *v = a->first ? view->shared : NULL;
	float *w = pass_floats(p, all), *rate = pass_floats(p, all), *t = pass_floats(p, all);
	struct linear o = { .w = &a->out, .out = out, .ld = (size_t)a->out.rows, .add = add };

	ops->conv(p, mix, a->shift, MIXES, h, 0, cols, view->state, y->layer);
	product(p, &a->r, mix + OF_R * all, x, 3 * inner);
	product(p, &a->k, mix + OF_K * all, x + inner, 3 * inner);
	lora_run(p, &a->lora[LORA_W], mix + OF_W * all, w);
	lora_run(p, &a->lora[LORA_A], mix + OF_A * all, rate);
	if (!v) {
		v = mix + OF_R * all; /* which is read already */
		lora_run(p, &a->lora[LORA_V], mix + OF_V * all, t);
	}
	product(p, &a->v, mix + OF_V * all, v, inner);
	ops->blend(p, x + 2 * inner, 3 * inner, v, a->first ? NULL : view->shared, a->first ? NULL : t, p->n_row, cols);
	ops->recur(p, t, &a->op, &(struct recur_in){ .x = x, .a = w, .b = rate }, view->state, y->layer);
	lora_run(p, &a->lora[LORA_G], mix + OF_G * all, w);
	ops->mul(p, t, w, inner, 1, p->n_row, cols);
	ops->linear(p, &o, 1, t, p->n_row, cols);
	p->work.used = mark;
}

static size_t time_room(const struct block *y, int n_row)
{
	const struct time_mix *a = y->own;
	int cols = a->out.cols, rank = 0;

	for (int i = 0; i < LORAS; i++)
		rank = a->lora[i].down.rows > rank ? a->lora[i].down.rows : rank;
	return work_floats_of(n_row, MIXES * cols) + work_floats_of(n_row, 3 * cols) + 3 * work_floats_of(n_row, cols) +
	       work_floats_of(n_row, rank);
}

static const struct block_ops time_block = { time_run, time_room };

static void channel_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                        const struct stack_views *view)
{
	const struct backend_ops *ops = p->be->ops;
	const struct channel_mix *a = y->own;
	int cols = a->key.cols;
	size_t mark = p->work.used, n = (size_t)p->n_row, inner = (size_t)a->key.rows;
	float *x = pass_floats(p, n * (size_t)cols), *mid = pass_floats(p, n * inner);
	struct linear up = { .w = &a->key, .out = mid, .ld = inner, .reader = &a->value, .act = { .kind = ACT_RELU2 } };
	struct linear down = { .w = &a->value, .out = out, .ld = (size_t)a->value.rows, .add = add };

	ops->conv(p, x, &a->shift, 1, h, cols, cols, view->state, y->layer);
	ops->linear(p, &up, 1, x, p->n_row, cols);
	ops->linear(p, &down, 1, mid, p->n_row, a->value.cols);
	p->work.used = mark;
}

static size_t channel_room(const struct block *y, int n_row)
{
	const struct channel_mix *a = y->own;

	return work_floats_of(n_row, a->key.cols) + work_floats_of(n_row, a->key.rows);
}

static const struct block_ops channel_block = { channel_run, channel_room };

/* ---- config ---- */

static void want_str(struct conf *c, const char *key, const char *want)
{
	const char *is = conf_str_or(c, key, want);

	if (!c->code && strcmp(is, want))
		conf_fail(c, E_UNSUPPORTED, "%s: %s is not done by this version, %s is", key, is, want);
}

static void want_bool(struct conf *c, const char *key, bool want)
{
	if (conf_bool_or(c, key, want) != want)
		conf_fail(c, E_UNSUPPORTED, "%s: %s is not done by this version", key, want ? "false" : "true");
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	static const char *const rank[LORAS] = { "decay_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim",
		                                 "gate_low_rank_dim" };
	struct shape *h = &s->m.shape;

	stack_read(s, c);
	s->trunk.eps = (float)conf_double_or(c, "norm_eps", 1e-5);
	p->dim = conf_int_or(c, "head_dim", 64, 1, CONF_HEAD_DIM_MAX);
	p->heads = conf_int_or(c, "num_heads", h->hidden / p->dim, 1, CONF_HEADS_MAX);
	p->inner = conf_int_or(c, "intermediate_size", 4 * h->hidden, 1, CONF_DIM_MAX);
	p->norm_eps = s->trunk.eps * (float)p->dim;
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	for (int i = 0; i < LORAS; i++)
		p->rank[i] = conf_int(c, rank[i], 1, CONF_DIM_MAX);
	if (!c->code && p->heads * p->dim != h->hidden)
		conf_fail(c, E_UNSUPPORTED, "num_heads: %d heads of %d are not hidden_size %d", p->heads, p->dim,
		          h->hidden);
	want_str(c, "hidden_act", "sqrelu");
	want_bool(c, "norm_bias", true);
	want_bool(c, "norm_first", true);
	if (conf_get(c, "attn"))
		conf_fail(c, E_UNSUPPORTED, "attn: layers of attention in RWKV-7 are not done by this version");
	h->state = (struct state_shape){ .layers = h->layers,
		                         .rule = RECUR_RWKV7,
		                         .heads_k = p->heads,
		                         .heads_v = p->heads,
		                         .dim_k = p->dim,
		                         .dim_v = p->dim,
		                         .conv_channels = 2 * h->hidden,
		                         .conv_width = 2 };
	h->layers_rec = h->layers;
}

/* ---- tensors ---- */

/* The shift by the factors x_NAME, as a convolution of width 2. */
static struct conv bind_shift(struct binder *b, int cols, const char *part, char name, int i)
{
	const float *mu = bind_floats(b, cols, 0, "layers.%d.%s.x_%c", i, part, name);
	float *w = b->code ? NULL : bind_table(b, 2 * (size_t)cols);

	for (int c = 0; w && c < cols; c++) {
		w[c] = mu[c];
		w[cols + c] = 1.0f - mu[c];
	}
	return (struct conv){ .w = w };
}

static void bind_lora(struct binder *b, struct lora *a, int cols, int rank, char name, enum act act, int i)
{
	a->act = act;
	bind_weight(b, &a->down, rank, cols, "layers.%d.attn.%c_lora.lora.0", i, name);
	bind_weight(b, &a->up, cols, rank, "layers.%d.attn.%c_lora.lora.2", i, name);
	if (name != 'g')
		a->bias = bind_floats(b, cols, 0, "layers.%d.attn.%c_lora.lora.2.bias", i, name);
}

static struct block *add_normed(struct stack *s, struct binder *b, const struct block_ops *ops, void *own,
                                const char *norm, int i)
{
	struct block *y = stack_add(s, ops, own, bind_floats(b, s->m.shape.hidden, 0, "layers.%d.%s.weight", i, norm));

	y->bias = bind_floats(b, s->m.shape.hidden, 0, "layers.%d.%s.bias", i, norm);
	y->layer = i;
	return y;
}

static void add_time(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	static const enum act act[LORAS] = { ACT_TANH, ACT_NONE, ACT_NONE, ACT_SIGMOID };
	struct time_mix *a = arena_zalloc(&b->m->arena, sizeof *a);
	int cols = s->m.shape.hidden;

	add_normed(s, b, &time_block, a, "attn_norm", i);
	a->first = i == 0;
	for (int k = 0; k < MIXES; k++)
		a->shift[k] = bind_shift(b, cols, "attn", "rwkvag"[k], i);
	bind_weight(b, &a->r, cols, cols, "layers.%d.attn.r_proj", i);
	bind_weight(b, &a->k, cols, cols, "layers.%d.attn.k_proj", i);
	bind_weight(b, &a->v, cols, cols, "layers.%d.attn.v_proj", i);
	bind_weight(b, &a->out, cols, cols, "layers.%d.attn.o_proj", i);
	for (int k = 0; k < LORAS; k++)
		if (k != LORA_V || !a->first)
			bind_lora(b, &a->lora[k], cols, p->rank[k], "wavg"[k], act[k], i);
	a->op = (struct recur){ .key_gain = bind_floats(b, cols, 0, "layers.%d.attn.k_k", i),
		                .key_rate = bind_floats(b, cols, 0, "layers.%d.attn.k_a", i),
		                .bonus = bind_floats(b, cols, 0, "layers.%d.attn.r_k", i),
		                .norm = bind_floats(b, cols, 0, "layers.%d.attn.g_norm.weight", i),
		                .norm_bias = bind_floats(b, cols, 0, "layers.%d.attn.g_norm.bias", i),
		                .eps = p->norm_eps };
}

static void add_channel(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	struct channel_mix *a = arena_zalloc(&b->m->arena, sizeof *a);
	int cols = s->m.shape.hidden;

	add_normed(s, b, &channel_block, a, "ffn_norm", i);
	a->shift = bind_shift(b, cols, "ffn", 'k', i);
	bind_weight(b, &a->key, p->inner, cols, "layers.%d.ffn.key", i);
	bind_weight(b, &a->value, cols, p->inner, "layers.%d.ffn.value", i);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };
	int hidden;

	read_config(s, &c, &p);
	if (c.code)
		return c.code;
	hidden = m->shape.hidden;
	stack_init(s, &b, 2 * m->shape.layers, &(struct trunk_names){ "embeddings", "norm" }, p.tied);
	s->shared = hidden;
	s->trunk.norm_bias = bind_floats(&b, hidden, 0, "norm.bias");
	store_ignore(st, "model.layers.0.attn.v_lora.", "of the first layer: its values are mixed with none");
	s->trunk.first = bind_floats(&b, hidden, 0, "layers.0.pre_norm.weight");
	s->trunk.first_bias = bind_floats(&b, hidden, 0, "layers.0.pre_norm.bias");
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		add_time(s, &b, &p, i);
		add_channel(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	return b.code;
}

static const char *const arch[] = { "rwkv7", NULL };

const struct model_ops rwkv7_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
