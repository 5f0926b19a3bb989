/* decoder.c - see decoder.h. */
#include "model/decoder.h"

#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/work.h"

/* ---- config ---- */

struct conf decoder_conf(const struct store *st, struct err *err)
{
	return (struct conf){ .j = st->text,
		              .file = st->config_path,
		              .where = st->text == st->config ? "" : "text_config.",
		              .err = err };
}

const char *decoder_kind(const struct decoder *d, const struct store *st)
{
	const char *type = json_str(json_get(st->text, "model_type"), NULL);

	return type ? type : d->m.arch;
}

static int int_or(struct conf *c, const char *key, int dflt, int lo, int hi)
{
	return dflt ? conf_int_or(c, key, dflt, lo, hi) : conf_int(c, key, lo, hi);
}

void decoder_read(struct decoder *d, struct conf *c, const struct decoder_defaults *f, struct decoder_plan *p)
{
	struct shape *s = &d->m.shape;
	struct attention_form *a = &p->attn;
	struct attn *op = &a->op;
	const char *eps = f->eps_key ? f->eps_key : "rms_norm_eps";

	s->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	s->layers = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	s->vocab = int_or(c, "vocab_size", f->vocab, 1, CONF_VOCAB_MAX);
	s->ctx_max = int_or(c, "max_position_embeddings", f->ctx, 1, CONF_CTX_MAX);
	op->heads = int_or(c, "num_attention_heads", f->heads, 1, CONF_HEADS_MAX);
	op->heads_kv = conf_int_or(c, "num_key_value_heads", f->heads_kv ? f->heads_kv : op->heads, 1, CONF_HEADS_MAX);
	op->dim = conf_int_or(c, "head_dim", f->dim ? f->dim : s->hidden / op->heads, 2, CONF_HEAD_DIM_MAX);
	d->eps = (float)(f->eps > 0 ? conf_double_or(c, eps, f->eps) : conf_double(c, eps));
	p->tied = conf_bool_or(c, "tie_word_embeddings", f->tied);
	p->ffn.inner = conf_int_or(c, "intermediate_size", 0, 0, CONF_DIM_MAX);
	if (p->ffn.act.kind == ACT_NONE)
		p->ffn.act = ffn_read_act(c, f->act);
	if (!c->code && op->heads % op->heads_kv)
		conf_fail(c, E_FORMAT, "num_attention_heads: %d is not a multiple of num_key_value_heads %d", op->heads,
		          op->heads_kv);
	if (c->code)
		return;
	p->local = arena_zalloc(&d->m.arena, (size_t)s->layers * sizeof *p->local);
	a->hidden = s->hidden;
	op->scale = 1.0f / sqrtf((float)op->dim);
	op->eps = d->eps;
}

void decoder_windows(struct decoder *d, struct conf *c, int every, struct decoder_plan *p)
{
	int layers = d->m.shape.layers;
	bool listed;

	if (c->code)
		return;
	listed = conf_layer_types(c, "layer_types", layers, "sliding_attention", "full_attention", p->local);
	p->window = conf_int_or(c, "sliding_window", 0, 0, CONF_CTX_MAX);
	for (int i = 0; i < layers && !listed; i++)
		p->local[i] = p->window && (!every || (i + 1) % every);
	for (int i = 0; i < layers; i++)
		if (p->local[i] && !p->window) {
			conf_fail(c, E_MISSING, "sliding_window: missing, and layer %d has one", i);
			return;
		}
}

struct attention_form decoder_attention(const struct decoder_plan *p, int i)
{
	struct attention_form f = p->attn;

	f.op.window = p->local[i] ? p->window : 0;
	return f;
}

/* ---- tensors ---- */

void decoder_bind(struct binder *b, struct decoder *d, const struct decoder_plan *p, float norm_add)
{
	struct shape *s = &d->m.shape;

	trunk_bind(b, &d->trunk, s->vocab, s->hidden, p->tied, d->eps, norm_add);
	decoder_room(d, p, s->layers);
}

void decoder_room(struct decoder *d, const struct decoder_plan *p, int layers)
{
	d->layer = arena_zalloc(&d->m.arena, size_mul((size_t)layers, sizeof *d->layer));
	d->m.shape.experts = p->moe.experts;
	d->m.shape.experts_used = p->moe.top_k;
}

static void bind_attention(struct binder *b, struct decoder *d, struct decoder_layer *y, const struct attention_form *f,
                           int i)
{
	attention_bind(b, &y->attn, f, i);
	if (!f->no_kv && !b->code)
		b->code = attention_keep(&d->m, f, &y->kv, b->err);
}

void decoder_bind_attention(struct binder *b, struct decoder *d, const struct attention_form *f, int i)
{
	bind_attention(b, d, &d->layer[i], f, i);
}

void decoder_bind_layer(struct binder *b, struct decoder *d, const struct decoder_plan *p, int i, bool dense)
{
	struct attention_form f = decoder_attention(p, i);

	decoder_bind_into(b, d, p, &d->layer[i], &f, i, dense);
}

void decoder_bind_into(struct binder *b, struct decoder *d, const struct decoder_plan *p, struct decoder_layer *y,
                       const struct attention_form *f, int i, bool dense)
{
	int hidden = d->m.shape.hidden;

	y->norm_attn = bind_floats(b, hidden, f->norm_add, "layers.%d.input_layernorm.weight", i);
	y->norm_ffn = bind_floats(b, hidden, f->norm_add, "layers.%d.post_attention_layernorm.weight", i);
	bind_attention(b, d, y, f, i);
	if (p->moe.experts && !dense) {
		ffn_bind_moe(b, &y->ffn, hidden, &p->moe, i);
		d->m.shape.layers_moe++;
	} else {
		ffn_bind_dense(b, &y->ffn, hidden, &p->ffn, i);
	}
}

void decoder_ignore(struct store *st)
{
	static const char *const tower[] = {
		"vision_tower.",       "model.vision_tower.", "multi_modal_projector.", "model.multi_modal_projector.",
		"vision_model.",       "audio_tower.",        "model.audio_tower.",     "embed_vision.",
		"model.embed_vision.", "embed_audio.",        "model.embed_audio.",     "visual.",
		"model.visual.",       "vision_embedder.",    "model.vision_embedder.",
	};

	for (size_t i = 0; i < sizeof tower / sizeof *tower; i++)
		store_ignore(st, tower[i], "vision or audio tower: read when there are images");
}

/* ---- forward ---- */

size_t decoder_work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct decoder *d = (const struct decoder *)m;
	size_t most = trunk_end_floats(&d->trunk, n_logit);

	for (int i = 0; i < m->shape.layers; i++) {
		most = work_max(most, attention_floats(&d->layer[i].attn, n_row));
		most = work_max(most, ffn_floats(&d->layer[i].ffn, n_row));
	}
	return trunk_begin_floats(&d->trunk, n_row) + work_floats_of(n_row, m->shape.hidden) + most;
}

/* The block's input: x through its norm, or x as it is. */
static const float *normed(struct pass *p, const struct decoder *d, const float *gain, const float *bias,
                           const float *x, float *h)
{
	if (!gain)
		return x;
	if (bias)
		p->be->ops->layer_norm(p, h, x, p->n_row, d->trunk.hidden, gain, bias, d->eps);
	else
		p->be->ops->norm(p, h, x, p->n_row, d->trunk.hidden, gain, d->eps);
	return h;
}

void decoder_attend(const struct decoder *d, struct pass *p, int i, float *x, float *h)
{
	const struct decoder_layer *y = &d->layer[i];
	float *to = join_to(&y->join_attn, x, h);

	attention_forward(p, &y->attn, to, to == x, normed(p, d, y->norm_attn, y->bias_attn, x, h), p->kv[y->kv.group],
	                  y->kv.index);
	join_add(p, &y->join_attn, x, to, d->trunk.hidden);
}

void decoder_forward(struct model *m, struct pass *p)
{
	const struct decoder *d = (const struct decoder *)m;
	float *x = trunk_begin(p, &d->trunk), *h, *to;

	h = pass_floats(p, (size_t)p->n_row * (size_t)d->trunk.hidden);
	for (int i = 0; i < m->shape.layers; i++) {
		const struct decoder_layer *y = &d->layer[i];

		decoder_attend(d, p, i, x, h);
		to = join_to(&y->join_ffn, x, h);
		ffn_forward(p, &y->ffn, to, to == x, y->beside ? h : normed(p, d, y->norm_ffn, y->bias_ffn, x, h));
		join_add(p, &y->join_ffn, x, to, d->trunk.hidden);
		if (p->brought.n && i < m->shape.deep)
			p->be->ops->bring(p, x, d->trunk.hidden, i + 1);
		trunk_tap(p, &d->trunk, i, x);
	}
	trunk_end(p, &d->trunk, x);
}
