/* encoder.c - encoders as data: BERT, RoBERTa and XLM-RoBERTa, ModernBERT, Nomic's and Jina's BERT.
 *
 *     x = LN(E[token] + P[position] + T[type])
 *     norms behind the blocks:  x = LN(x + attention(x));  x = LN(x + mlp(x))
 *     norms before the blocks:  x += attention(LN(x));  x += mlp(LN(x)), and a last LN
 *
 * A row of the table says which keys and tensor names a kind has, what positions are, and where its norms are.  Every row
 * sees its whole text (shape.whole), so a text is computed in one pass.  There are no logits: what the model gives are the
 * rows themselves (pass.hidden).  Devlin et al., arXiv:1810.04805; Warner et al., arXiv:2412.13663; Nussbaum et al.,
 * arXiv:2402.01613; Guenther et al., arXiv:2310.19923. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/attention.h"
#include "model/conf.h"
#include "model/families.h"
#include "model/ffn.h"
#include "model/rotary.h"
#include "model/work.h"

enum position_kind {
	POSITIONS_NONE,    /* the embedding has none; attention may have them */
	POSITIONS_PLAIN,   /* 0, 1, 2 ... */
	POSITIONS_COUNTED, /* pad + 1 and on; a token that is the pad has the pad's position and does not count */
};

/* Keys of the config. */
struct encoder_keys {
	const char *hidden, *layers, *heads, *inner, *ctx, *eps, *act;
};

/* Tensors, of the whole and in a layer; NULL: there is none. */
struct encoder_names {
	const char *word, *place, *type, *first, *last;
	const char *layer;                           /* what the names below begin with, before the number */
	const char *q, *k, *v, *qkv, *out, *norm[2]; /* norm: of attention, of the MLP */
	const char *gate, *up, *both, *down;         /* both: the gate's rows, then up's */
};

struct encoder_plan {
	int heads, inner;
	struct activation act;
	bool bias_qkv, bias_out, bias_up, bias_down, bias_norm, gated;
	struct rope rope, local;
	int reach;      /* positions on each side that a local layer's rows see */
	bool *is_local; /* [layers] or NULL */
	const float *slopes;
	const char *prefix;
	/* Experts, of every moe_every-th layer; 0: none. */
	int moe_every, experts, top_k;
};

struct encoder_kind {
	const char *type; /* model_type */
	struct encoder_keys keys;
	struct encoder_names names;
	enum position_kind positions;
	bool before; /* norms are before the blocks; layer 0 has none before its attention */
	bool bias;   /* all products have one, and all norms */
	double eps;  /* without the key */
	/* Reads what the row does not say; NULL: nothing. */
	void (*more)(struct model *, struct encoder_plan *, struct conf *);
};

struct layer_norm {
	const float *gain, *bias; /* gain NULL: there is no norm */
};

struct encoder_layer {
	struct layer_norm norm[2];
	struct attention attn;
	struct kv_place kv;
	struct ffn ffn;
	const float *expert_bias; /* added to what the mixture gives; NULL: none */
};

struct encoder {
	struct model m;
	const struct encoder_kind *kind;
	struct weight word, place, type; /* place, type: no rows where there are none */
	int pad;
	float eps;
	struct layer_norm first, last;
	struct encoder_layer *layer;
};

/* ---- what a few kinds read besides their row ---- */

static struct activation read_act(struct conf *c, const char *key)
{
	static const struct {
		const char *name;
		enum act act;
	} known[] = {
		{ "gelu", ACT_GELU_ERF },       { "gelu_new", ACT_GELU_TANH }, { "gelu_pytorch_tanh", ACT_GELU_TANH },
		{ "gelu_fast", ACT_GELU_TANH }, { "silu", ACT_SILU },          { "swish", ACT_SILU },
		{ "swiglu", ACT_SILU },         { "geglu", ACT_GELU_ERF },
	};
	const char *name = conf_str_or(c, key, "gelu");

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(known[i].name, name))
			return (struct activation){ .kind = known[i].act };
	conf_fail(c, E_UNSUPPORTED, "%s: \"%.40s\" is not done; only gelu, gelu_new, silu, swiglu and geglu", key,
	          name);
	return (struct activation){ .kind = ACT_GELU_ERF };
}

static void refuse_if(struct conf *c, const char *key, bool absent)
{
	if (conf_bool_or(c, key, absent) != absent)
		conf_fail(c, E_UNSUPPORTED, "%s: %s is not done by this version", key, absent ? "false" : "true");
}

static void read_bert(struct model *m, struct encoder_plan *p, struct conf *c)
{
	const char *places = conf_str_or(c, "position_embedding_type", "absolute");

	if (strcmp(places, "absolute"))
		conf_fail(c, E_UNSUPPORTED, "position_embedding_type: \"%.40s\" is not done; only absolute and alibi",
		          places);
	refuse_if(c, "is_decoder", false);
}

/* Slopes of n heads: 2^(-8 (h + 1) / n) where n is a power of two; else those of the power below, and every second of
 * those of the power above. */
static void read_jina(struct model *m, struct encoder_plan *p, struct conf *c)
{
	float *slope;
	int power = 1;

	p->gated = true;
	p->bias_up = false;
	if (c->code)
		return;
	while (2 * power <= p->heads)
		power *= 2;
	slope = arena_alloc(&m->vectors, (size_t)p->heads * sizeof *slope);
	for (int h = 0; h < p->heads; h++)
		slope[h] = h < power ? (float)exp2(-8.0 * (h + 1) / power) :
		                       (float)exp2(-8.0 * (2 * (h - power) + 1) / (2 * power));
	p->slopes = slope;
	if (strcmp(conf_str_or(c, "feed_forward_type", "geglu"), "geglu"))
		conf_fail(c, E_UNSUPPORTED, "feed_forward_type: only geglu is done");
}

static void read_modern(struct model *m, struct encoder_plan *p, struct conf *c)
{
	static const struct rotary_defaults all = {
		.theta = 160000, .partial = 1, .kind = "full_attention", .theta_key = "global_rope_theta"
	};
	static const struct rotary_defaults near = {
		.theta = 10000, .partial = 1, .kind = "sliding_attention", .theta_key = "local_rope_theta"
	};
	int layers = m->shape.layers, every = conf_int_or(c, "global_attn_every_n_layers", 3, 1, CONF_LAYERS_MAX);
	int ctx = m->shape.ctx_max;

	p->gated = true;
	p->bias_qkv = p->bias_out = conf_bool_or(c, "attention_bias", false);
	p->bias_up = p->bias_down = conf_bool_or(c, "mlp_bias", false);
	p->bias_norm = conf_bool_or(c, "norm_bias", false);
	p->reach = conf_int_or(c, "local_attention", 128, 1, CONF_CTX_MAX) / 2;
	if (c->code)
		return;
	rotary_read(&p->rope, c, &all, m->shape.hidden / p->heads, &ctx, &m->vectors);
	rotary_read(&p->local, c, &near, m->shape.hidden / p->heads, &ctx, &m->vectors);
	p->is_local = arena_zalloc(&m->arena, (size_t)layers * sizeof *p->is_local);
	if (!conf_layer_types(c, "layer_types", layers, "sliding_attention", "full_attention", p->is_local))
		for (int i = 0; i < layers; i++)
			p->is_local[i] = i % every != 0;
}

/* With a factor the base of the rotation grows with texts longer than max_trained_positions, to which the context is held
 * then, so that it is one for all. */
static void read_nomic(struct model *m, struct encoder_plan *p, struct conf *c)
{
	const char *act = conf_str_or(c, "activation_function", "gelu");
	struct rotary_defaults r = { .given = conf_above_zero_or(c, "rotary_emb_base", 10000), .partial = 1 };
	int ctx = m->shape.ctx_max, trained;

	p->gated = !strcmp(act, "swiglu") || !strcmp(act, "geglu") || !strcmp(act, "glu");
	p->bias_qkv = p->bias_out = conf_bool_or(c, "qkv_proj_bias", true);
	p->bias_up = conf_bool_or(c, "mlp_fc1_bias", true);
	p->bias_down = conf_bool_or(c, "mlp_fc2_bias", true);
	refuse_if(c, "prenorm", false);
	refuse_if(c, "causal", false);
	refuse_if(c, "parallel_block", false);
	refuse_if(c, "use_rms_norm", false);
	if (conf_get(c, "rotary_emb_scale_base"))
		conf_fail(c, E_UNSUPPORTED, "rotary_emb_scale_base: a scale by position is not done by this version");
	if (conf_double_or(c, "rotary_emb_fraction", 1) != 1)
		conf_fail(c, E_UNSUPPORTED, "rotary_emb_fraction: only 1 is done");
	if (c->code)
		return;
	rotary_read(&p->rope, c, &r, m->shape.hidden / p->heads, &ctx, &m->vectors);
	p->rope.adjacent = conf_bool_or(c, "rotary_emb_interleaved", false);
	trained = conf_int_or(c, "max_trained_positions", 2048, 1, CONF_CTX_MAX);
	if (conf_get(c, "rotary_scaling_factor") && m->shape.ctx_max > trained)
		m->shape.ctx_max = trained;
	p->moe_every = conf_int_or(c, "moe_every_n_layers", 0, -1, CONF_LAYERS_MAX);
	if (p->moe_every > 0) {
		p->experts = conf_int(c, "num_experts", 1, 1 << 10);
		p->top_k = conf_int(c, "moe_top_k", 1, p->experts);
	}
}

/* ---- the kinds ---- */

#define BERT_KEYS                                                                               \
	{                                                                                       \
		"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", \
			"max_position_embeddings", "layer_norm_eps", "hidden_act"               \
	}
#define BERT_EMBEDDING                                                                    \
	.word = "embeddings.word_embeddings", .type = "embeddings.token_type_embeddings", \
	.first = "embeddings.LayerNorm"
#define BERT_ATTENTION                                                                                                 \
	.layer = "encoder.layer", .q = "attention.self.query", .k = "attention.self.key", .v = "attention.self.value", \
	.out = "attention.output.dense"
#define BERT_NAMES                                                                            \
	{                                                                                     \
		BERT_EMBEDDING, .place = "embeddings.position_embeddings", BERT_ATTENTION,    \
				.norm = { "attention.output.LayerNorm", "output.LayerNorm" }, \
				.up = "intermediate.dense", .down = "output.dense"            \
	}

static const struct encoder_kind kinds[] = {
	{ "bert", BERT_KEYS, BERT_NAMES, POSITIONS_PLAIN, .bias = true, .eps = 1e-12, .more = read_bert },
	{ "roberta", BERT_KEYS, BERT_NAMES, POSITIONS_COUNTED, .bias = true, .eps = 1e-5, .more = read_bert },
	{ "xlm-roberta", BERT_KEYS, BERT_NAMES, POSITIONS_COUNTED, .bias = true, .eps = 1e-5, .more = read_bert },
	{ "camembert", BERT_KEYS, BERT_NAMES, POSITIONS_COUNTED, .bias = true, .eps = 1e-5, .more = read_bert },
	{ "modernbert",
	  { "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
	    "norm_eps", "hidden_activation" },
	  { .word = "embeddings.tok_embeddings",
	    .first = "embeddings.norm",
	    .last = "final_norm",
	    .layer = "layers",
	    .qkv = "attn.Wqkv",
	    .out = "attn.Wo",
	    .norm = { "attn_norm", "mlp_norm" },
	    .both = "mlp.Wi",
	    .down = "mlp.Wo" },
	  .before = true,
	  .eps = 1e-5,
	  .more = read_modern },
	{ "nomic_bert",
	  { "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon", "activation_function" },
	  { .word = "embeddings.word_embeddings",
	    .type = "embeddings.token_type_embeddings",
	    .first = "emb_ln",
	    .layer = "encoder.layers",
	    .qkv = "attn.Wqkv",
	    .out = "attn.out_proj",
	    .norm = { "norm1", "norm2" },
	    .gate = "mlp.fc12",
	    .up = "mlp.fc11",
	    .down = "mlp.fc2" },
	  .bias = true,
	  .eps = 1e-12,
	  .more = read_nomic },
};

/* Jina's, of type bert, in whose config position_embedding_type is alibi. */
static const struct encoder_kind jina = { "bert",
	                                  BERT_KEYS,
	                                  { BERT_EMBEDDING, BERT_ATTENTION,
	                                    .norm = { "attention.output.LayerNorm", "mlp.layernorm" },
	                                    .both = "mlp.gated_layers", .down = "mlp.wo" },
	                                  .bias = true,
	                                  .eps = 1e-12,
	                                  .more = read_jina };

static const struct encoder_kind *kind_of(const char *type, const struct conf *c)
{
	const char *places = json_str(conf_get(c, "position_embedding_type"), NULL);

	if (!strcmp(type, jina.type) && places && !strcmp(places, "alibi"))
		return &jina;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kinds[i].type, type))
			return &kinds[i];
	return NULL;
}

/* ---- config ---- */

static void read_config(struct encoder *e, struct conf *c, struct encoder_plan *p)
{
	const struct encoder_kind *k = e->kind;
	const struct encoder_keys *key = &k->keys;
	struct shape *s = &e->m.shape;

	s->whole = true;
	s->hidden = conf_int(c, key->hidden, 1, CONF_DIM_MAX);
	s->layers = conf_int(c, key->layers, 1, CONF_LAYERS_MAX);
	s->vocab = conf_int(c, "vocab_size", 1, CONF_VOCAB_MAX);
	s->ctx_max = conf_int(c, key->ctx, 1, CONF_CTX_MAX);
	p->heads = conf_int(c, key->heads, 1, CONF_HEADS_MAX);
	p->inner = conf_int_or(c, key->inner, 4 * (int64_t)s->hidden, 1, CONF_DIM_MAX);
	p->act = read_act(c, key->act);
	e->eps = (float)conf_above_zero_or(c, key->eps, k->eps);
	e->pad = conf_int_or(c, "pad_token_id", k->positions == POSITIONS_COUNTED ? 1 : 0, 0, CONF_VOCAB_MAX);
	p->bias_qkv = p->bias_out = p->bias_up = p->bias_down = p->bias_norm = k->bias;
	if (c->code)
		return;
	if (s->hidden % p->heads)
		conf_fail(c, E_FORMAT, "%s: %d heads do not divide %s %d", key->heads, p->heads, key->hidden,
		          s->hidden);
	if (k->positions == POSITIONS_COUNTED && s->ctx_max <= e->pad + 1)
		conf_fail(c, E_FORMAT, "%s: %d positions, of which pad_token_id %d leaves none", key->ctx, s->ctx_max,
		          e->pad);
	if (k->more)
		k->more(&e->m, p, c);
}

/* ---- tensors ---- */

static void bind_norm(struct binder *b, const struct encoder_plan *p, struct layer_norm *n, int cols, const char *path)
{
	bool old = bind_has(b, "%s.gamma", path);
	float *zero;

	n->gain = bind_floats(b, cols, 0, "%s.%s", path, old ? "gamma" : "weight");
	if (p->bias_norm) {
		n->bias = bind_floats(b, cols, 0, "%s.%s", path, old ? "beta" : "bias");
		return;
	}
	if (b->code)
		return;
	zero = bind_table(b, (size_t)cols);
	memset(zero, 0, (size_t)cols * sizeof *zero);
	n->bias = zero;
}

/* Writes layer.i.name to out, and returns it. */
static const char *path_in(char out[160], const struct encoder *e, int i, const char *name)
{
	snprintf(out, 160, "%s.%d.%s", e->kind->names.layer, i, name);
	return out;
}

static void bind_product(struct binder *b, const struct encoder *e, struct weight *w, const float **bias, int i,
                         const char *name, int rows, int cols)
{
	char path[160];

	path_in(path, e, i, name);
	bind_weight(b, w, rows, cols, "%s", path);
	if (bias)
		*bias = bind_floats(b, rows, 0, "%s.bias", path);
}

static void bind_attention(struct binder *b, struct encoder *e, const struct encoder_plan *p, int i)
{
	const struct encoder_names *n = &e->kind->names;
	struct attention *a = &e->layer[i].attn;
	int h = e->m.shape.hidden, dim = h / p->heads;
	bool local = p->is_local && p->is_local[i];
	struct attention_form keep = { .op = { .heads_kv = p->heads, .dim = dim } };
	const float *bias = NULL;
	struct weight all;

	a->op = (struct attn){ .heads = p->heads,
		               .heads_kv = p->heads,
		               .dim = dim,
		               .scale = 1.0f / sqrtf((float)dim),
		               .eps = e->eps,
		               .rope = local ? p->local : p->rope,
		               .window = local ? p->reach + 1 : 0,
		               .ahead = local ? p->reach : 0,
		               .both_ways = true,
		               .slopes = p->slopes };
	a->dim_v = dim;
	if (n->qkv) {
		bind_product(b, e, &all, p->bias_qkv ? &bias : NULL, i, n->qkv, 3 * h, h);
		if (b->code)
			return;
		a->q = weight_rows(&all, 0, h);
		a->k = weight_rows(&all, h, h);
		a->v = weight_rows(&all, 2 * h, h);
		if (bias) {
			a->bias_q = bias;
			a->bias_k = bias + h;
			a->bias_v = bias + 2 * h;
		}
	} else {
		bind_product(b, e, &a->q, p->bias_qkv ? &a->bias_q : NULL, i, n->q, h, h);
		bind_product(b, e, &a->k, p->bias_qkv ? &a->bias_k : NULL, i, n->k, h, h);
		bind_product(b, e, &a->v, p->bias_qkv ? &a->bias_v : NULL, i, n->v, h, h);
	}
	bind_product(b, e, &a->o, p->bias_out ? &a->bias_o : NULL, i, n->out, h, h);
	if (!b->code)
		b->code = attention_keep(&e->m, &keep, &e->layer[i].kv, b->err);
}

/* Rows of the tensor of that name, which some files round up. */
static int rows_in_file(struct binder *b, const struct encoder *e, int i, const char *name, int dflt)
{
	const struct tensor *t;
	char path[160], full[320];

	snprintf(full, sizeof full, "%s%s.weight", b->prefix, path_in(path, e, i, name));
	t = b->code ? NULL : store_find(b->st, full);
	return t && t->n_dim == 2 && t->dim[0] > 0 && t->dim[0] <= CONF_DIM_MAX ? (int)t->dim[0] : dflt;
}

static void bind_mlp(struct binder *b, struct encoder *e, const struct encoder_plan *p, int i)
{
	const struct encoder_names *n = &e->kind->names;
	int h = e->m.shape.hidden, inner = p->inner;
	struct ffn *f = &e->layer[i].ffn;
	const char *up = p->gated || !n->gate ? n->up : "mlp.fc1";
	struct weight both;

	f->hidden = h;
	f->act = p->act;
	if (n->both) {
		const float *bias = NULL;

		bind_product(b, e, &both, p->bias_up ? &bias : NULL, i, n->both, 2 * inner, h);
		if (b->code)
			return;
		f->gate = weight_rows(&both, 0, inner);
		f->up = weight_rows(&both, inner, inner);
		f->bias_gate = bias;
		f->bias_up = bias ? bias + inner : NULL;
	} else {
		inner = rows_in_file(b, e, i, up, inner);
		if (p->gated)
			bind_product(b, e, &f->gate, p->bias_up ? &f->bias_gate : NULL, i, n->gate, inner, h);
		bind_product(b, e, &f->up, p->bias_up ? &f->bias_up : NULL, i, up, inner, h);
	}
	bind_product(b, e, &f->down, p->bias_down ? &f->bias_down : NULL, i, n->down, h, inner);
}

/* Matrices [inner][hidden] of n experts, one below the other, as n weights [hidden][inner]. */
static struct weight *bind_turned_rows(struct binder *b, int n, int inner, int hidden, const char *path)
{
	struct weight *w = arena_zalloc(&b->m->arena, size_mul((size_t)n, sizeof *w));
	size_t each = size_mul((size_t)inner, (size_t)hidden);
	const float *from = bind_floats(b, (int64_t)(each * (size_t)n), 0, "%s", path);

	for (int e = 0; e < n && !b->code; e++) {
		float *to = bind_table(b, each);

		for (int i = 0; i < inner; i++)
			for (int h = 0; h < hidden; h++)
				to[(size_t)h * (size_t)inner + (size_t)i] =
					from[(size_t)e * each + (size_t)i * (size_t)hidden + (size_t)h];
		b->code = weight_plain(&w[e], path, DT_F32, hidden, inner, to, each * sizeof *to, b->err);
	}
	return w;
}

/* Nomic's experts: gelu(x W1') W2 without gates, their weights those of a softmax over all, not divided by the sum of the
 * chosen; one bias for the sum. */
static void bind_experts(struct binder *b, struct encoder *e, const struct encoder_plan *p, int i)
{
	struct encoder_layer *y = &e->layer[i];
	struct ffn *f = &y->ffn;
	int h = e->m.shape.hidden, n = p->experts;
	struct weight *up = arena_zalloc(&e->m.arena, size_mul((size_t)n, sizeof *up)), *down;
	size_t each = size_mul((size_t)p->inner, (size_t)h);
	const float *first;
	char path[160];

	f->hidden = h;
	bind_weight(b, &f->router, n, h, "%s", path_in(path, e, i, "mlp.router.layer"));
	bind_usual_basis(b, &f->router);
	first = bind_floats(b, (int64_t)(each * (size_t)n), 0, "%s", path_in(path, e, i, "mlp.experts.mlp.w1"));
	for (int k = 0; k < n && !b->code; k++)
		b->code = weight_plain(&up[k], path, DT_F32, p->inner, h, first + (size_t)k * each,
		                       each * sizeof *first, b->err);
	down = bind_turned_rows(b, n, p->inner, h, path_in(path, e, i, "mlp.experts.mlp.w2"));
	y->expert_bias = bind_floats(b, h, 0, "%s", path_in(path, e, i, "mlp.experts.bias"));
	f->moe = (struct moe){ .experts = n,
		               .top_k = p->top_k,
		               .inner = p->inner,
		               .router = &f->router,
		               .up = up,
		               .down = down,
		               .act = p->act,
		               .route = ROUTE_SOFTMAX };
	e->m.shape.layers_moe++;
	e->m.shape.experts = n;
	e->m.shape.experts_used = p->top_k;
}

static void bind_embedding_rows(struct binder *b, struct encoder *e, struct conf *c)
{
	const struct encoder_names *n = &e->kind->names;
	struct shape *s = &e->m.shape;
	int types = conf_int_or(c, "type_vocab_size", n->type && e->kind->positions == POSITIONS_COUNTED ? 1 : 2, 0,
	                        1 << 10);

	bind_weight(b, &e->word, s->vocab, s->hidden, "%s", n->word);
	bind_looked_up(b, &e->word);
	if (n->place) {
		bind_weight(b, &e->place, s->ctx_max, s->hidden, "%s", n->place);
		bind_looked_up(b, &e->place);
	}
	if (n->type && types) {
		bind_weight(b, &e->type, types, s->hidden, "%s", n->type);
		bind_looked_up(b, &e->type);
	}
	if (e->kind->positions == POSITIONS_COUNTED)
		s->ctx_max -= e->pad + 1;
}

/* Heads of classifiers and of what the model was first trained for, under either prefix; heads that are used are bound by
 * what uses them. */
static void ignore_heads(struct store *st)
{
	static const char *const names[] = {
		"pooler.", "classifier.", "cls.", "lm_head.", "head.", "decoder.", "embeddings.position_ids"
	};
	static const char *const before[] = { "", "bert.", "roberta.", "model." };
	char at[64];

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		for (size_t k = 0; k < sizeof before / sizeof *before; k++) {
			snprintf(at, sizeof at, "%s%s", before[k], names[i]);
			store_ignore(st, at, "not of the encoder: a head, or a table that is computed");
		}
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	static const char *const prefixes[] = { "", "bert.", "roberta.", "xlm-roberta.", "camembert.", "model.", NULL };
	struct encoder *e = (struct encoder *)m;
	struct conf c = { .j = st->config, .file = st->config_path, .where = "", .err = err };
	struct binder b = { .st = st, .m = m, .err = err };
	struct encoder_plan p = { 0 };
	char name[80], path[160];

	e->kind = kind_of(m->arch, &c);
	assert(e->kind);
	read_config(e, &c, &p);
	if (c.code)
		return c.code;
	snprintf(name, sizeof name, "%s.weight", e->kind->names.word);
	b.prefix = store_prefix(st, prefixes, name);
	if (!b.prefix)
		return store_missing(st, name, err);
	bind_embedding_rows(&b, e, &c);
	bind_norm(&b, &p, &e->first, m->shape.hidden, e->kind->names.first);
	if (e->kind->names.last)
		bind_norm(&b, &p, &e->last, m->shape.hidden, e->kind->names.last);
	e->layer = arena_zalloc(&m->arena, size_mul((size_t)m->shape.layers, sizeof *e->layer));
	for (int i = 0; i < m->shape.layers && !b.code && !c.code; i++) {
		for (int k = 0; k < 2; k++)
			if (!e->kind->before || i || k)
				bind_norm(&b, &p, &e->layer[i].norm[k], m->shape.hidden,
				          path_in(path, e, i, e->kind->names.norm[k]));
		bind_attention(&b, e, &p, i);
		if (p.moe_every > 0 && i % p.moe_every == 1 % p.moe_every)
			bind_experts(&b, e, &p, i);
		else
			bind_mlp(&b, e, &p, i);
	}
	if (!b.code)
		ignore_heads(st);
	return b.code ? b.code : c.code;
}

/* ---- forward ---- */

static void place_ids(const struct encoder *e, const struct pass *p, int32_t *id)
{
	for (int i = 0; i < p->n_item; i++) {
		int count = 0;

		for (int r = p->row[i]; r < p->row[i] + p->span[i].n; r++) {
			bool pad = p->tok[r] == e->pad;

			if (e->kind->positions == POSITIONS_PLAIN)
				id[r] = p->pos[r];
			else
				id[r] = pad ? e->pad : e->pad + 1 + count;
			count += !pad;
		}
	}
}

/* Which of a pair's texts each row is of. */
static void type_ids(const struct encoder *e, const struct pass *p, int32_t *id)
{
	for (int r = 0; r < p->n_row; r++)
		id[r] = e->type.rows > 1 && p->second && p->pos[r] >= p->second[p->item[r]];
}

static void normed(struct pass *p, const struct encoder *e, float *out, const float *in, const struct layer_norm *n)
{
	p->be->ops->layer_norm(p, out, in, p->n_row, e->m.shape.hidden, n->gain, n->bias, e->eps);
}

/* x += the rows of a table with these numbers. */
static void add_rows(struct pass *p, const struct encoder *e, float *x, float *h, const struct weight *table,
                     const int32_t *id)
{
	const int32_t *tok = p->tok;

	p->tok = id;
	p->be->ops->embed(p, h, table);
	p->tok = tok;
	p->be->ops->add(p, x, h, p->n_row, e->m.shape.hidden, 1.0f);
}

static void embed_rows(struct pass *p, const struct encoder *e, float *x, float *h)
{
	int32_t *id = xcalloc((size_t)p->n_row, sizeof *id);

	p->be->ops->embed(p, x, &e->word);
	if (e->place.rows) {
		place_ids(e, p, id);
		add_rows(p, e, x, h, &e->place, id);
	}
	if (e->type.rows) {
		type_ids(e, p, id);
		add_rows(p, e, x, h, &e->type, id);
	}
	free(id);
	normed(p, e, x, x, &e->first);
}

static void run_layer(struct pass *p, const struct encoder *e, const struct encoder_layer *y, float *x, float *h)
{
	const struct kv_view *kv = p->kv[y->kv.group];
	bool before = e->kind->before;
	const float *in = x;

	if (before && y->norm[0].gain) {
		normed(p, e, h, x, &y->norm[0]);
		in = h;
	}
	attention_forward(p, &y->attn, x, true, in, kv, y->kv.index);
	normed(p, e, before ? h : x, x, &y->norm[before]);
	if (y->expert_bias) /* the mixture may overwrite what it reads */
		p->be->ops->copy(p->be, h, x, (size_t)p->n_row * (size_t)e->m.shape.hidden * sizeof *h);
	ffn_forward(p, &y->ffn, x, true, before || y->expert_bias ? h : x);
	if (y->expert_bias)
		p->be->ops->affine(p, x, p->n_row, e->m.shape.hidden, NULL, y->expert_bias, -INFINITY, INFINITY);
	if (!before)
		normed(p, e, x, x, &y->norm[1]);
}

static void forward(struct model *m, struct pass *p)
{
	const struct encoder *e = (const struct encoder *)m;
	size_t floats = (size_t)p->n_row * (size_t)m->shape.hidden;
	float *x = pass_floats(p, floats), *h = pass_floats(p, floats);

	assert(!p->n_logit);
	embed_rows(p, e, x, h);
	for (int i = 0; i < m->shape.layers; i++)
		run_layer(p, e, &e->layer[i], x, h);
	if (!p->hidden)
		return;
	if (e->last.gain)
		normed(p, e, p->hidden, x, &e->last);
	else
		p->be->ops->copy(p->be, p->hidden, x, floats * sizeof *x);
}

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct encoder *e = (const struct encoder *)m;
	size_t most = 0;

	for (int i = 0; i < m->shape.layers; i++) {
		most = work_max(most, attention_floats(&e->layer[i].attn, n_row));
		most = work_max(most, ffn_floats(&e->layer[i].ffn, n_row));
	}
	return 2 * work_floats_of(n_row, m->shape.hidden) + most;
}

static const char *const arch[] = { "bert", "roberta", "xlm-roberta", "camembert", "modernbert", "nomic_bert", NULL };

const struct model_ops encoder_ops = {
	.arch = arch,
	.size = sizeof(struct encoder),
	.bind = bind,
	.forward = forward,
	.work_floats = work_floats,
};
