/* qwen4_exp.c - Qwen3.8-Flash-Next: text, and its draft head.
 *
 *     x_s = E[token], s < C;  per layer:  [x += n-grams(x)];  mixer and mixture of experts, each between gates of streams
 *     logits = lm_head (gates of streams (x))
 *
 * streams.h has the residual streams, which take the place of all norms around blocks.  The mixer is a gated delta net in
 * most layers (delta.h) and softmax attention with an output gate in the others, over the blocks that an indexer chooses
 * (indexer.h).  Some layers begin with embeddings of hashed n-grams (ngram_memory.h).
 *
 * The draft head is given the residual streams behind the last layer:
 *
 *     z_s = fc_embedding norm(E[token]) + fc_hidden norm(given)_s, one norm over all streams;  a layer;  gates;  lm_head */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/attention.h"
#include "model/conf.h"
#include "model/delta.h"
#include "model/families.h"
#include "model/ffn.h"
#include "model/indexer.h"
#include "model/mtp.h"
#include "model/ngram_memory.h"
#include "model/rotary.h"
#include "model/trunk.h"
#include "model/work.h"

struct layer {
	struct ngram_memory *ngrams; /* NULL: none */
	bool full;                   /* softmax attention */
	int index;                   /* of a delta net: the cache's layer */
	struct kv_place kv;
	struct attention attn;
	struct indexer *indexer;
	struct delta delta;
	struct ffn ffn;
	struct site around_mixer, around_ffn;
};

struct qwen4 {
	struct model m;
	struct trunk trunk;
	struct streams_form streams;
	struct site last; /* before the output matrix */
	int most;         /* positions that a row of attention sees */
	struct layer *layer;
	struct streams_fuse fuse; /* of a draft head */
};

/* Values of config.json beyond struct shape. */
struct plan {
	struct attention_form attn;
	struct delta_form delta;
	struct indexer_form indexer;
	struct ngram_form ngrams;
	struct moe_form moe;
	bool *full, *ngram_at; /* [layers] */
	bool tied;
};

/* ---- config ---- */

static void read_layers(struct conf *c, struct plan *p, int layers, struct arena *a)
{
	static const char *const full[] = { "full_attention", "qwen_sparse_attention", "deepseek_sparse_attention",
		                            "hybrid_indexed" };
	const struct json *list = conf_list(c, "layer_types");
	int every = list ? 0 : conf_int(c, "full_attention_interval", 1, CONF_LAYERS_MAX);

	p->full = arena_zalloc(a, (size_t)layers * sizeof *p->full);
	p->ngram_at = arena_zalloc(a, (size_t)layers * sizeof *p->ngram_at);
	if (list && json_len(list) != (size_t)layers)
		conf_fail(c, E_FORMAT, "layer_types: has %zu entries, num_hidden_layers is %d", json_len(list), layers);
	for (int i = 0; i < layers && !c->code; i++) {
		const char *name = list ? json_str(json_at(list, (size_t)i), NULL) : NULL;

		if (!list)
			p->full[i] = (i + 1) % every == 0;
		for (size_t k = 0; name && k < sizeof full / sizeof *full; k++)
			p->full[i] |= !strcmp(name, full[k]);
		if (list && !p->full[i] && (!name || strcmp(name, "linear_attention")))
			conf_fail(c, E_UNSUPPORTED, "layer_types: layer %d is \"%.40s\", which is not known", i,
			          name ? name : conf_entry(json_at(list, (size_t)i)));
	}
	conf_layers_named(c, "ple_layer_ids", 1, layers, p->ngram_at);
	for (int i = 0; i < layers && !c->code; i++)
		if (p->ngram_at[i] && p->full[i])
			conf_fail(c, E_UNSUPPORTED,
			          "ple_layer_ids: layer %d, counted from 1, is not of linear attention", i + 1);
}

static void read_attention(struct qwen4 *q, struct conf *c, struct plan *p)
{
	struct attention_form *f = &p->attn;
	struct shape *s = &q->m.shape;

	attention_read_gated(f, c, &q->m, q->streams.eps);
	if (c->code)
		return;
	p->indexer.eps = q->streams.eps;
	p->indexer.hidden = s->hidden;
	indexer_read_blocks(&p->indexer, c, &f->op.rope);
	q->most = p->indexer.most;
}

static void read_config(struct qwen4 *q, struct conf *c, struct plan *p)
{
	struct shape *s = &q->m.shape;

	s->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	s->layers = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	s->vocab = conf_int(c, "vocab_size", 1, CONF_VOCAB_MAX);
	s->ctx_max = conf_int(c, "max_position_embeddings", 1, CONF_CTX_MAX);
	p->delta.eps = q->streams.eps = (float)conf_double(c, "rms_norm_eps");
	p->delta.hidden = q->streams.hidden = s->hidden;
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	p->moe.act = ffn_read_act(c, ACT_NONE);
	p->moe.experts = s->experts = conf_int(c, "num_experts", 1, 1 << 16);
	p->moe.top_k = s->experts_used = conf_int(c, "num_experts_per_tok", 1, p->moe.experts);
	p->moe.inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	p->moe.shared_inner = conf_int(c, "shared_expert_intermediate_size", 0, CONF_DIM_MAX);
	p->moe.normalise = conf_bool_or(c, "norm_topk_prob", true);
	/* Not Hugging Face's, nor mlx's: files whose norms, zero-centred there, hold 1 + w. */
	q->streams.norm_add = conf_bool_or(c, "norm_weights_whole", false) ? 0 : 1;
	p->attn.norm_add = p->indexer.norm_add = q->streams.norm_add;
	streams_read(&q->streams, c);
	s->streams = q->streams.streams;
	read_attention(q, c, p);
	delta_read(&p->delta, c);
	if (!c->code)
		read_layers(c, p, s->layers, &q->m.arena);
	p->ngrams.streams = &q->streams;
	if (conf_get(c, "ple_layer_ids"))
		ngram_read(&p->ngrams, c, &q->m.arena);
}

static struct conf conf_of(struct store *st, struct err *err)
{
	return (struct conf){ .j = st->text,
		              .file = st->config_path,
		              .where = st->text == st->config ? "" : "text_config.",
		              .err = err };
}

/* ---- tensors ---- */

static void bind_layer(struct binder *b, struct qwen4 *q, const struct plan *p, struct layer *y, int i)
{
	struct shape *s = &b->m->shape;
	char path[80];

	snprintf(path, sizeof path, "layers.%d.attn_hyper_connection", i);
	site_bind(b, &y->around_mixer, &q->streams, true, path);
	snprintf(path, sizeof path, "layers.%d.mlp_hyper_connection", i);
	site_bind(b, &y->around_ffn, &q->streams, true, path);
	if (y->full) {
		attention_bind(b, &y->attn, &p->attn, i);
		if (!b->code)
			b->code = attention_keep(b->m, &p->attn, &y->kv, b->err);
		y->indexer = indexer_bind(b, &p->indexer, "self_attn", i);
	} else {
		delta_bind(b, &y->delta, &p->delta, i);
		y->index = s->layers_rec++;
		s->state = p->delta.shape;
		s->state.layers = s->layers_rec;
	}
	ffn_bind_moe(b, &y->ffn, s->hidden, &p->moe, i);
	s->layers_moe++;
}

static void bind_trunk(struct binder *b, struct qwen4 *q, const struct plan *p)
{
	struct trunk *t = &q->trunk;

	b->m->trunk = t;
	*t = (struct trunk){ .hidden = q->m.shape.hidden,
		             .vocab = q->m.shape.vocab,
		             .eps = q->streams.eps,
		             .embed_scale = 1,
		             .logit_scale = 1 };
	bind_embedding(b, &t->embed, &t->head, "embed_tokens", t->vocab, t->hidden, p->tied);
	site_bind(b, &q->last, &q->streams, false, "hyper_connection_mixer");
	if (bind_has(b, "norm.weight"))
		b->code = err_set(b->err, E_UNSUPPORTED, "%s: tensor %snorm.weight: a last norm is not known here",
		                  b->st->dir, b->prefix);
}

static void ignore_the_rest(struct store *st)
{
	store_ignore(st, "model.visual.", "vision tower: images are not read for this family yet");
	store_ignore(st, "vision_tower.", "vision tower: images are not read for this family yet");
	store_ignore(st, "*.token_lookup", "made from the config");
	store_ignore(st, "*hyper_connection_mixer.block_inject_weight.weight", "nothing comes behind the last gates");
	mtp_ignore_apart(st);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct qwen4 *q = (struct qwen4 *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = conf_of(st, err);
	struct plan p = { 0 };

	read_config(q, &c, &p);
	if (c.code)
		return c.code;
	bind_find_prefix(&b, "embed_tokens");
	bind_trunk(&b, q, &p);
	q->layer = arena_zalloc(&m->arena, size_mul((size_t)m->shape.layers, sizeof *q->layer));
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		q->layer[i].full = p.full[i];
		if (p.ngram_at[i])
			q->layer[i].ngrams = ngram_bind(&b, &p.ngrams, i);
		bind_layer(&b, q, &p, &q->layer[i], i);
	}
	if (!b.code)
		ignore_the_rest(st);
	return b.code;
}

/* ---- forward ---- */

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct qwen4 *q = (const struct qwen4 *)m;
	int hidden = m->shape.hidden, wide = shape_residual(&m->shape), rows = n_row > n_logit ? n_row : n_logit;
	size_t most = site_floats(&q->last, rows) + work_floats_of(n_logit, wide) + work_floats_of(n_logit, hidden);

	for (int i = 0; i < m->shape.layers; i++) {
		const struct layer *y = &q->layer[i];
		size_t chosen = work_floats_of(n_row, q->most + 1);

		most = work_max(most, y->ngrams ? ngram_floats(y->ngrams, n_row) : 0);
		most = work_max(most, y->full ? chosen + work_max(attention_floats(&y->attn, n_row),
		                                                  indexer_floats(y->indexer, n_row)) :
		                                delta_floats(&y->delta, n_row));
		most = work_max(most, ffn_floats(&y->ffn, n_row));
	}
	most = work_max(most, streams_fuse_floats(&q->fuse, n_row));
	return most + work_floats_of(n_row, wide) + work_floats_of(n_row, hidden) +
	       work_floats_of(n_row, m->shape.streams);
}

static void mixer_forward(struct pass *p, const struct qwen4 *q, const struct layer *y, float *h)
{
	size_t mark = p->work.used;
	int32_t *chosen;

	if (!y->full) {
		delta_forward(p, &y->delta, h, false, h, p->state, y->index);
		return;
	}
	chosen = (int32_t *)pass_floats(p, (size_t)p->n_row * (size_t)(q->most + 1));
	indexer_choose(p, y->indexer, chosen, h, NULL);
	attention_over(p, &y->attn, h, false, h, chosen, q->most, p->kv[y->kv.group], y->kv.index);
	p->work.used = mark;
}

static void finish(struct pass *p, const struct qwen4 *q, const float *x)
{
	const struct backend_ops *ops = p->be->ops;
	const struct linear head = { .w = &q->trunk.head, .out = p->logits, .ld = (size_t)q->trunk.vocab };
	size_t mark = p->work.used, wide = (size_t)shape_residual(&q->m.shape), n = (size_t)p->n_logit;
	float *last, *h;

	if (p->hidden && q->fuse.norm_given)
		ops->blend(p, p->hidden, wide, x, NULL, NULL, p->n_row, (int)wide);
	else if (p->hidden)
		site_begin(p, &q->last, p->hidden, NULL, x, p->n_row);
	if (!p->n_logit)
		return;
	last = pass_floats(p, n * wide);
	h = pass_floats(p, n * (size_t)q->trunk.hidden);
	ops->gather(p, last, x, p->logit_row, p->n_logit, (int)wide);
	site_begin(p, &q->last, h, NULL, last, p->n_logit);
	ops->linear(p, &head, 1, h, p->n_logit, q->trunk.hidden);
	p->work.used = mark;
}

static void forward(struct model *m, struct pass *p)
{
	const struct qwen4 *q = (const struct qwen4 *)m;
	int hidden = m->shape.hidden, wide = shape_residual(&m->shape);
	size_t n = (size_t)p->n_row;
	float *x = pass_floats(p, n * (size_t)wide), *h = pass_floats(p, n * (size_t)hidden);
	float *by = pass_floats(p, n * (size_t)m->shape.streams);

	p->be->ops->embed(p, h, &q->trunk.embed);
	if (q->fuse.norm_given)
		streams_fuse(p, &q->fuse, x, h);
	else
		streams_fill(p, x, h, p->n_row, m->shape.streams, hidden);
	for (int i = 0; i < m->shape.layers; i++) {
		const struct layer *y = &q->layer[i];

		if (y->ngrams)
			ngram_add(p, y->ngrams, x);
		site_begin(p, &y->around_mixer, h, by, x, p->n_row);
		mixer_forward(p, q, y, h);
		site_end(p, &y->around_mixer, x, h, by);
		site_begin(p, &y->around_ffn, h, by, x, p->n_row);
		ffn_forward(p, &y->ffn, h, false, h);
		site_end(p, &y->around_ffn, x, h, by);
		streams_tap(p, i, x, wide);
	}
	finish(p, q, x);
}

/* ---- the draft head: one full layer ---- */

static int bind_head(struct model *m, const struct model *of, struct store *st, struct err *err)
{
	static const struct mtp_form forms[] = { { .proj = "fc_embedding", .apart = true, .outside = true },
		                                 { .proj = "fc", .apart = true, .outside = true } };
	bool whole = store_has(st, "mtp.fc.weight"); /* as GGUF files have it */
	struct qwen4 *q = (struct qwen4 *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = conf_of(st, err);
	struct plan p = { 0 };
	int *tap, hidden = of->shape.hidden;

	read_config(q, &c, &p);
	if (conf_int_or(&c, "mtp_num_hidden_layers", 1, 0, CONF_LAYERS_MAX) > 1)
		conf_fail(&c, E_UNSUPPORTED, "mtp_num_hidden_layers: a draft head of several layers is not done");
	if (conf_bool_or(&c, "mtp_use_dedicated_embeddings", false))
		conf_fail(&c, E_UNSUPPORTED, "mtp_use_dedicated_embeddings: true is not done");
	if (c.code)
		return c.code;
	p.attn.op.first = p.indexer.first = 1; /* the row of the first token comes of nothing */
	mtp_begin(&b, &q->trunk, of, &forms[whole], 1);
	q->fuse.hidden = hidden;
	q->fuse.streams = q->streams.streams;
	q->fuse.eps = q->trunk.eps;
	if (whole) {
		bind_weight(&b, &q->fuse.both, hidden, 2 * hidden, "fc");
	} else {
		bind_weight(&b, &q->fuse.of_embed, hidden, hidden, "fc_embedding");
		bind_weight(&b, &q->fuse.of_given, hidden, hidden, "fc_hidden");
	}
	q->fuse.norm_embed = bind_floats(&b, hidden, q->streams.norm_add, "pre_fc_norm_embedding.weight");
	q->fuse.norm_given = bind_floats(&b, shape_residual(&m->shape), q->streams.norm_add,
	                                 "pre_fc_norm_hidden.weight");
	site_bind(&b, &q->last, &q->streams, false, "hyper_connection_mixer");
	q->layer = arena_zalloc(&m->arena, sizeof *q->layer);
	q->layer->full = true;
	if (!b.code)
		bind_layer(&b, q, &p, q->layer, 0);
	m->shape.head.tap = tap = arena_alloc(&m->arena, sizeof *tap);
	*tap = of->shape.layers - 1;
	m->shape.head.n_tap = 1;
	return b.code;
}

static const char *const arch[] = { "qwen4_exp", "qwen4_exp_text", NULL };

const struct model_ops qwen4_exp_ops = {
	.arch = arch,
	.size = sizeof(struct qwen4),
	.bind = bind,
	.forward = forward,
	.work_floats = work_floats,
	.bind_head = bind_head,
};
